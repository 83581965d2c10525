/*
 * The ready tasks of a job, one queue per class that it has tasks in.
 *
 * A queue is ordered by (stage, task). The tasks of a stage that were never handed out are a range and take one entry,
 * the first of them; a task that came back has an entry of its own. Entries go stale when a task is canceled or its
 * stage must wait again; they are thrown out when they reach the top.
 *
 * A queue with entries stands in its class's line, unless the job is at its limit: then it is parked until a slot of
 * the job gets free.
 */
#include "base/mem.h"
#include "core/core_internal.h"

static uint64_t entry_of(uint32_t stage, uint32_t task)
{
    return (uint64_t)stage << 32 | task;
}

static void entry_push(struct jobqueue *queue, uint64_t entry)
{
    if (queue->n_ready++ == 0) {
        queue->top = entry;
    } else if (entry < queue->top) {
        idheap_push(&queue->more, queue->top);
        queue->top = entry;
    } else {
        idheap_push(&queue->more, entry);
    }
}

static void entry_pop(struct jobqueue *queue)
{
    if (--queue->n_ready > 0) {
        queue->top = idheap_pop(&queue->more);
    }
}

static void entry_replace_top(struct jobqueue *queue, uint64_t entry)
{
    if (queue->n_ready > 1 && idheap_top(&queue->more) < entry) {
        queue->top = idheap_top(&queue->more);
        idheap_replace_top(&queue->more, entry);
    } else {
        queue->top = entry;
    }
}

void jobqueue_clear(struct jobqueue *queue)
{
    queue->n_ready = 0;
    queue->more.count = 0;
}

struct jobqueue *task_queue(const struct task *task)
{
    return task->avoid_queue != NULL ? task->avoid_queue : task->stage->queue;
}

bool job_is_full(const struct core *core, const struct job *job)
{
    return job->running >= core->config.max_concurrent_tasks_per_query && !BUG(core, ignore_query_limit);
}

/* Takes over the caller's reference to the class. */
struct jobqueue *jobqueue_get(struct core *core, struct job *job, struct class *class)
{
    for (struct jobqueue *queue = job->queues; queue != NULL; queue = queue->next) {
        if (queue->class == class) {
            class_unref(core, class);
            return queue;
        }
    }
    struct jobqueue *queue = job->queues == NULL ? &job->first_queue : mem_calloc(1, sizeof *queue);
    queue->job = job;
    queue->class = class;
    queue->next = job->queues;
    job->queues = queue;
    job->n_needs += class->n_avoid == 0;
    return queue;
}

/* Puts the queue in line, if it has entries and the job may run more. */
void jobqueue_wake(struct core *core, struct jobqueue *queue)
{
    if (queue->n_ready == 0 || list_is_linked(&queue->in_class) || queue->is_parked) {
        return;
    }
    if (job_is_full(core, queue->job)) {
        jobqueue_park(queue);
        return;
    }
    queue->since_ms = core->now_ms;
    list_push_back(&queue->class->queue, &queue->in_class);
    class_announce(core, queue->class);
}

/* The job is at its limit: out of the line, until it is not. */
void jobqueue_park(struct jobqueue *queue)
{
    queue->is_parked = true;
    list_push_back(&queue->job->parked, &queue->in_class);
}

void jobqueue_leave(struct jobqueue *queue)
{
    list_remove(&queue->in_class);
    queue->is_parked = false;
}

/* The job runs one less: its parked queues get back in line. */
void job_slot_freed(struct core *core, struct job *job)
{
    if (job_state_is_terminal((enum job_state)job->state) || job_is_full(core, job)) {
        return;
    }
    for (struct list *first; (first = list_first(&job->parked)) != NULL;) {
        struct jobqueue *queue = CONTAINER_OF(first, struct jobqueue, in_class);
        jobqueue_leave(queue);
        jobqueue_wake(core, queue);
    }
}

static bool stage_is_runnable(const struct core *core, const struct stage *stage)
{
    return stage->waiting == 0 || BUG(core, skip_parent_gate);
}

/* The first untouched task that is still queued, or NULL if there is none. */
static struct task *next_fresh(struct stage *stage)
{
    while (stage->fresh < stage->n_tasks && stage->tasks[stage->fresh].state != TASK_QUEUED) {
        stage->fresh++;
    }
    return stage->fresh < stage->n_tasks ? &stage->tasks[stage->fresh] : NULL;
}

static struct task *check_top(struct core *core, struct jobqueue *queue, uint64_t entry)
{
    struct stage *stage = queue->job->stages[entry >> 32];
    struct task *task = &stage->tasks[(uint32_t)entry];
    bool is_range = stage->is_range_queued && queue == stage->queue && !(task->flags & TASK_IN_HEAP);
    if (!stage_is_runnable(core, stage)) {
        stage->has_dropped = true;
    } else if (is_range) {
        struct task *first = next_fresh(stage);
        if (first != NULL) {
            if (first != task) {
                entry_replace_top(queue, entry_of(stage->id, stage->fresh));
                return NULL;
            }
            return task;
        }
    } else if (task->state == TASK_QUEUED && task->u.backoff == NULL && task_queue(task) == queue) {
        return task;
    }
    if (is_range) {
        stage->is_range_queued = false;
    } else {
        task->flags &= (uint8_t)~TASK_IN_HEAP;
    }
    entry_pop(queue);
    return NULL;
}

/* The next task of the queue, or NULL if there is none after all. */
struct task *jobqueue_top(struct core *core, struct jobqueue *queue)
{
    while (queue->n_ready > 0) {
        struct task *task = check_top(core, queue, queue->top);
        if (task != NULL) {
            return task;
        }
    }
    return NULL;
}

/* Takes out what jobqueue_top returned. */
void jobqueue_pop(struct jobqueue *queue)
{
    uint64_t entry = queue->top;
    struct stage *stage = queue->job->stages[entry >> 32];
    struct task *task = &stage->tasks[(uint32_t)entry];
    if (task->flags & TASK_IN_HEAP) {
        task->flags &= (uint8_t)~TASK_IN_HEAP;
        entry_pop(queue);
        return;
    }
    stage->fresh++;
    if (stage->fresh < stage->n_tasks) {
        entry_replace_top(queue, entry_of(stage->id, stage->fresh));
    } else {
        stage->is_range_queued = false;
        entry_pop(queue);
    }
}

/* A queued task, not in backoff: make it findable, if its stage is runnable. */
void task_enqueue(struct core *core, struct task *task)
{
    struct stage *stage = task->stage;
    struct jobqueue *queue = task_queue(task);
    uint32_t index = task_index(task);
    ASSERT(task->state == TASK_QUEUED);
    if (!stage_is_runnable(core, stage)) {
        stage->has_dropped = true;
        return;
    }
    if (index >= stage->fresh && task->avoid_queue == NULL) {
        if (!stage->is_range_queued) {
            stage->is_range_queued = true;
            entry_push(queue, entry_of(stage->id, stage->fresh));
        }
    } else if (!(task->flags & TASK_IN_HEAP)) {
        task->flags |= TASK_IN_HEAP;
        entry_push(queue, entry_of(stage->id, index));
    }
    jobqueue_wake(core, queue);
}

/* The stage became runnable. */
void stage_enqueue(struct core *core, struct stage *stage)
{
    stage->ready_at_ms = core->now_ms;
    if (next_fresh(stage) != NULL) {
        task_enqueue(core, &stage->tasks[stage->fresh]);
    }
    if (!stage->has_dropped) {
        return;
    }
    stage->has_dropped = false;
    for (uint32_t i = 0; i < stage->fresh; i++) {
        struct task *task = &stage->tasks[i];
        if (task->state == TASK_QUEUED && task->u.backoff == NULL) {
            task_enqueue(core, task);
        }
    }
}

void jobqueues_free(struct core *core, struct job *job)
{
    for (struct jobqueue *queue = job->queues, *next; queue != NULL; queue = next) {
        next = queue->next;
        jobqueue_leave(queue);
        idheap_deinit(&queue->more);
        class_unref(core, queue->class);
        if (queue != &job->first_queue) {
            mem_free(queue);
        }
    }
    job->queues = NULL;
}
