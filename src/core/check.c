/*
 * The invariants, as asserts over everything. Slow on purpose: tests call it after every step.
 */
#include <string.h>

#include "core/core_internal.h"

/* ---- tasks and stages ---- */

static void check_output(const struct task *task)
{
    const struct output *output = task->output;
    if (output == NULL) {
        return;
    }
    ASSERT(output->task == task);
    ASSERT(output->attempt == task->attempt);
    if (task->stage->output == OUTPUT_SHUFFLE) {
        ASSERT(output->n_partitions == task->stage->partitions);
        ASSERT(list_is_linked(&output->in_worker));
        ASSERT(output->incarnation_mark == output->worker->incarnation_mark);
    } else if (task->stage->output == OUTPUT_RESULT) {
        ASSERT(output->worker_id != NULL);
    }
}

static void check_task(const struct task *task, bool job_ended)
{
    const struct stage *stage = task->stage;
    switch ((enum task_state)task->state) {
    case TASK_RUNNING:
        ASSERT(!job_ended);
        ASSERT(task->attempt > 0);
        ASSERT(task->outcome == OUTCOME_PENDING);
        if (stage->child) {
            ASSERT(task->u.child == NULL || task->u.child->parent == task);
        } else {
            ASSERT(task->u.lease->task == task);
            ASSERT(task->u.lease->worker->is_live);
        }
        break;
    case TASK_QUEUED:
        ASSERT(!job_ended);
        ASSERT(task->u.backoff == NULL || task->u.backoff->task == task);
        ASSERT(task->outcome != OUTCOME_PENDING);
        break;
    case TASK_SUCCEEDED:
        ASSERT(task->outcome == OUTCOME_COMPLETED);
        ASSERT(task->u.lease == NULL);
        break;
    case TASK_FAILED:
    case TASK_CANCELED:
    case TASK_SKIPPED:
        ASSERT(task->u.lease == NULL);
        break;
    }
    check_output(task);
}

static bool entry_covers(uint64_t entry, const struct task *task)
{
    const struct stage *stage = task->stage->job->stages[entry >> 32];
    const struct task *named = &stage->tasks[(uint32_t)entry];
    bool is_range = stage == task->stage && !(named->flags & TASK_IN_HEAP);
    return (named == task && task->flags & TASK_IN_HEAP) || (is_range && task_index(task) >= stage->fresh);
}

static bool is_entered(const struct jobqueue *queue, const struct task *task)
{
    bool found = queue->n_ready > 0 && entry_covers(queue->top, task);
    for (uint32_t i = 0; i < queue->more.count && !found; i++) {
        ASSERT(queue->more.ids[i] >= queue->top);
        found = entry_covers(queue->more.ids[i], task);
    }
    return found;
}

/* A task that could run is in its queue, and that queue is in line or parked. */
static void check_findable(const struct stage *stage)
{
    const struct task *task = NULL;
    for (uint32_t t = 0; t < stage->n_tasks && task == NULL; t++) {
        if (stage->tasks[t].state == TASK_QUEUED && stage->tasks[t].u.backoff == NULL) {
            task = &stage->tasks[t];
        }
    }
    if (task == NULL || stage->waiting > 0) {
        return;
    }
    const struct jobqueue *queue = task_queue(task);
    ASSERT(is_entered(queue, task));
    ASSERT(list_is_linked(&queue->in_class));
}

static void check_edges(const struct stage *stage)
{
    const struct job *job = stage->job;
    uint32_t waiting = 0;
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        const struct edge *edge = &job->edges[i];
        const struct stage *parent = job->stages[edge->parent];
        uint32_t open = parent->counts[TASK_QUEUED] + parent->counts[TASK_RUNNING];
        bool holds = edge->optional ? open == 0 : parent->counts[TASK_SUCCEEDED] == parent->n_tasks;
        ASSERT(edge->child == stage->id);
        ASSERT(edge->is_satisfied == holds);
        waiting += !holds;
        if (edge->read != READ_NONE && stage->waiting == 0 && stage->counts[TASK_QUEUED] > 0) {
            ASSERT(parent->n_missing == 0);
        }
    }
    ASSERT(stage->waiting == waiting);
}

static uint32_t check_stage(const struct stage *stage, bool job_ended)
{
    uint32_t counts[TASK_STATE_COUNT] = {0};
    uint32_t missing = 0;
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < stage->n_tasks; t++) {
        const struct task *task = &stage->tasks[t];
        ASSERT(task->stage == stage);
        check_task(task, job_ended);
        counts[task->state]++;
        missing += task->state == TASK_SUCCEEDED && stage->output == OUTPUT_SHUFFLE && task->output == NULL;
        bytes += task->output != NULL ? task->output->bytes : 0;
        ASSERT(t < stage->fresh || (task->attempt == 0 && !(task->flags & TASK_IN_HEAP)));
    }
    ASSERT(memcmp(counts, stage->counts, sizeof counts) == 0);
    ASSERT(bytes == stage->bytes);
    if (!job_ended) {
        ASSERT(missing == stage->n_missing);
        check_edges(stage);
        check_findable(stage);
    }
    return counts[TASK_RUNNING];
}

/* ---- jobs ---- */

static void check_queue(const struct core *core, const struct jobqueue *queue, bool job_ended)
{
    ASSERT(queue->more.count == (queue->n_ready > 0 ? queue->n_ready - 1 : 0));
    ASSERT(!queue->is_parked || list_is_linked(&queue->in_class));
    ASSERT(!job_ended || !list_is_linked(&queue->in_class));
    if (queue->is_parked) {
        ASSERT(job_is_full(core, queue->job));
    }
}

static void check_job(const struct core *core, const struct job *job)
{
    bool ended = job_state_is_terminal((enum job_state)job->state);
    uint64_t open = 0;
    uint64_t tasks = 0;
    uint32_t running = 0;
    for (uint32_t s = 0; s < job->n_stages; s++) {
        const struct stage *stage = job->stages[s];
        ASSERT(stage->id == s && stage->job == job);
        ASSERT(stage->recovery == 0);
        running += check_stage(stage, ended);
        open += stage->counts[TASK_QUEUED] + stage->counts[TASK_RUNNING];
        tasks += stage->n_tasks;
    }
    ASSERT(running == job->running);
    ASSERT(open == job->n_open);
    ASSERT(tasks == job->n_tasks);
    ASSERT(ended == (open == 0));
    ASSERT(ended == list_is_linked(&job->in_list));
    ASSERT(job->running <= core->config.max_concurrent_tasks_per_query || BUG(core, ignore_query_limit));
    for (const struct jobqueue *queue = job->queues; queue != NULL; queue = queue->next) {
        check_queue(core, queue, ended);
    }
    if (job->parent != NULL) {
        ASSERT(!ended);
        ASSERT(job->parent->u.child == job);
        ASSERT(job->parent->attempt == job->parent_attempt);
    }
}

/* ---- workers and classes ---- */

static void check_worker(const struct core *core, const struct worker *worker)
{
    uint32_t running = 0;
    LIST_EACH(at, &worker->running) {
        const struct lease *lease = CONTAINER_OF(at, struct lease, in_worker);
        ASSERT(lease->worker == worker);
        ASSERT(lease->task->state == TASK_RUNNING && lease->task->u.lease == lease);
        running++;
    }
    ASSERT(running == worker->n_running || BUG(core, count_superseded_attempt));
    ASSERT(worker->is_live || running == 0);
    ASSERT(worker->n_given == 0);
    ASSERT(worker->is_counted_live == worker->is_live);
    ASSERT(worker->is_counted_able == worker_is_able(worker));
    ASSERT(heap_has(&worker->watch.node));
    ASSERT(worker->poll.is_open || !list_is_linked(&worker->in_parked));
    LIST_EACH(at, &worker->outputs) {
        ASSERT(CONTAINER_OF(at, struct output, in_worker)->worker == worker);
    }
}

static void check_class(const struct class *class)
{
    LIST_EACH(at, &class->queue) {
        const struct jobqueue *queue = CONTAINER_OF(at, struct jobqueue, in_class);
        ASSERT(queue->class == class);
        ASSERT(queue->job->priority == class->priority);
    }
    if (list_is_empty(&class->queue)) {
        return;
    }
    for (const struct link *link = class->links; link != NULL; link = link->next) {
        ASSERT(link->is_queued);
    }
}

void core_check(const struct core *core)
{
    size_t cursor = 0;
    uint64_t leases = 0;
    uint64_t jobs = 0;
    uint64_t running = 0;
    for (const struct job *job; (job = map_next(&core->jobs, &cursor)) != NULL;) {
        ASSERT(job_find(core, job->id) == job);
        check_job(core, job);
        jobs += !job_state_is_terminal((enum job_state)job->state);
        running += job->state == JOB_RUNNING;
    }
    cursor = 0;
    for (const struct worker *worker; (worker = map_next(&core->workers, &cursor)) != NULL;) {
        check_worker(core, worker);
        LIST_EACH(at, &worker->running) {
            leases++;
        }
    }
    LIST_EACH(at, &core->all_classes) {
        check_class(CONTAINER_OF(at, struct class, in_core));
    }
    ASSERT(leases == core->stats.leases);
    ASSERT(jobs == core->stats.jobs);
    ASSERT(running == core->stats.jobs_running);
}
