/*
 * Polls: workers ask, and wait here until there is something for them.
 *
 * A poll that could take a task is parked with its worker's profile. What may change its luck (a class got ready tasks,
 * a slot got free) makes the profile or the worker hot; a tick looks only at those. Each hot worker takes one task per
 * round, so that work spreads over everyone who asks at the same moment.
 */
#include <string.h>

#include "base/mem.h"
#include "core/core_internal.h"
#include "core/idempotency.h"

#define CLASSES_PER_LOOK 32

static bool can_take_more(const struct core *core, const struct worker *worker)
{
    return worker->poll.is_open && worker_is_able(worker) && worker->n_given < worker->poll.capacity &&
           (worker->n_running < core->config.max_concurrent_tasks_per_worker || BUG(core, ignore_worker_limit));
}

void poll_unpark(struct core *core, struct worker *worker)
{
    if (list_is_linked(&worker->in_parked)) {
        list_remove(&worker->in_parked);
        core->n_parked--;
    }
}

/* Something about the worker changed: park its poll or not, and look at it in the next tick. */
void poll_reconsider(struct core *core, struct worker *worker)
{
    if (!can_take_more(core, worker)) {
        poll_unpark(core, worker);
        return;
    }
    if (!list_is_linked(&worker->in_parked)) {
        list_push_back(&worker->profile->parked, &worker->in_parked);
        core->n_parked++;
    }
    if (!list_is_linked(&worker->in_hot)) {
        list_push_back(&core->hot_workers, &worker->in_hot);
    }
}

static const struct attempt_ref *take_stops(struct core *core, struct worker *worker)
{
    struct attempt_ref *stop = arena_alloc(&core->fx->arena, worker->n_stops * sizeof *stop);
    for (uint32_t i = 0; i < worker->n_stops; i++) {
        const struct stop *from = &worker->stops[i];
        stop[i] =
            (struct attempt_ref){{core__text(core, from->job_id), from->stage, from->task}, from->attempt, from->token};
        mem_free(from->job_id);
    }
    return stop;
}

static void forget(struct core *core, struct worker *worker)
{
    worker->n_given = 0;
    worker->given = NULL;
    worker->given_end = &worker->given;
    worker->poll.is_open = false;
    worker->poll.is_due = false;
    heap_remove(&core->timers, &worker->poll.timer.node);
    poll_unpark(core, worker);
}

/* Answers the open poll with what the worker has been given. */
static void answer(struct core *core, struct worker *worker)
{
    struct reply *reply = core__reply(core, worker->poll.reply_to, REPLY_TASKS);
    reply->u.tasks.first = worker->given;
    reply->u.tasks.n_tasks = worker->n_given;
    reply->u.tasks.n_stop = worker->n_stops;
    reply->u.tasks.stop = worker->n_stops > 0 ? take_stops(core, worker) : NULL;
    reply->u.tasks.waited_ms = core->now_ms - worker->poll.since_ms;
    reply->immediate = worker->n_given == 0 && worker->n_stops == 0;
    worker->n_stops = 0;
    forget(core, worker);
}

static void answer_nothing(struct core *core, struct worker *worker)
{
    struct reply *reply = core__reply(core, worker->poll.reply_to, REPLY_TASKS);
    reply->u.tasks.waited_ms = core->now_ms - worker->poll.since_ms;
    reply->immediate = true;
    forget(core, worker);
}

/* Outside a tick nothing has been given, so the answer is empty. */
void poll_close(struct core *core, struct worker *worker)
{
    if (worker->poll.is_open) {
        answer(core, worker);
    }
    list_remove(&worker->in_served);
    list_remove(&worker->in_hot);
}

/* Ends the open poll of a process that may not ask any more. */
void poll_refuse(struct core *core, struct worker *worker, enum refusal refusal)
{
    if (worker->poll.is_open) {
        uint64_t to = worker->poll.reply_to;
        forget(core, worker);
        core__reply_error(core, to, ERR_STALE, refusal_text(refusal));
    }
}

void poll_open(struct core *core, const struct command *command)
{
    const struct cmd_get_task *get = &command->u.get_task;
    struct worker *worker = NULL;
    enum refusal refusal = worker_speak(core, get->worker_id, get->incarnation, &worker);
    if (refusal != REFUSE_NONE) {
        core__reply_error(core, command->reply_to, refusal == REFUSE_SUPERSEDED ? ERR_STALE : ERR_NOT_FOUND,
                          refusal_text(core__refused(core, refusal)));
        return;
    }
    if (worker->poll.is_open) {
        answer_nothing(core, worker); /* stop orders wait for the new one: nobody may be listening to the old */
    }
    uint32_t wait_ms = get->wait_ms < LIMIT_WAIT_MS ? get->wait_ms : LIMIT_WAIT_MS;
    worker->poll.is_open = true;
    worker->poll.reply_to = command->reply_to;
    worker->poll.capacity = get->capacity < LIMIT_CAPACITY ? get->capacity : LIMIT_CAPACITY;
    worker->poll.since_ms = core->now_ms;
    heap_set(&core->timers, &worker->poll.timer.node, core->now_ms + wait_ms);
    if (worker->n_stops > 0 && !list_is_linked(&worker->in_served)) {
        list_push_back(&core->served, &worker->in_served);
    }
    poll_reconsider(core, worker);
}

/* The poll has waited long enough; a task that is ready in this very tick still goes with it. */
void poll_due(struct core *core, struct worker *worker)
{
    worker->poll.is_due = true;
    if (!list_is_linked(&worker->in_served)) {
        list_push_back(&core->served, &worker->in_served);
    }
}

/* ---- picking ---- */

/* Running attempts of this job's tasks with the same requirement on this worker. */
uint32_t worker_count_alike(const struct worker *worker, const struct job *job, const struct need *need)
{
    uint32_t n = 0;
    LIST_EACH(at, &worker->running) {
        const struct task *task = CONTAINER_OF(at, struct lease, in_worker)->task;
        n += task->stage->job == job && task_queue(task)->class->need == need;
    }
    return n;
}

static bool is_crowded(const struct jobqueue *queue, const struct worker *worker)
{
    uint32_t limit = queue->class->need->value->max_parallel_per_node;
    return limit > 0 && worker_count_alike(worker, queue->job, queue->class->need) >= limit;
}

/* The first queue in the class's line with a task that this worker (NULL: nobody in particular) may take. */
static struct jobqueue *next_in_line(struct core *core, struct class *class, const struct worker *worker)
{
    LIST_EACH_SAFE(at, next, &class->queue) {
        struct jobqueue *queue = CONTAINER_OF(at, struct jobqueue, in_class);
        if (jobqueue_top(core, queue) == NULL) {
            jobqueue_leave(queue);
        } else if (job_is_full(core, queue->job)) {
            jobqueue_leave(queue);
            jobqueue_park(queue);
        } else if (worker == NULL || !is_crowded(queue, worker)) {
            return queue;
        }
    }
    return NULL;
}

/* By the turns of their jobs; within a job, by stage and task. */
static bool goes_before(const struct jobqueue *a, const struct jobqueue *b)
{
    if (a->job == b->job) {
        return a->top < b->top;
    }
    return a->job->turn < b->job->turn;
}

/* Looks at some classes of one priority; returns the job queue whose turn it is, if that is before `best`. */
static struct jobqueue *look(struct core *core, struct holder *holder, int p, const struct worker *worker,
                             struct jobqueue *best)
{
    uint32_t looked = 0;
    uint32_t fitting = 0; /* those that this worker must leave to others do not count */
    while (looked < holder->n_ready[p] && fitting < CLASSES_PER_LOOK) {
        uint32_t at = (holder->rotor + looked) % holder->n_ready[p];
        struct link *link = holder->ready[p][at];
        struct jobqueue *queue = next_in_line(core, link->class, worker);
        if (list_is_empty(&link->class->queue)) {
            holder_drop(link);
            link->class->is_announced = false;
            continue;
        }
        looked++;
        if (queue == NULL || (worker != NULL && class_blocks_worker(core, link->class, worker))) {
            continue;
        }
        fitting++;
        if (best == NULL || goes_before(queue, best)) {
            best = queue;
        }
    }
    if (holder->n_ready[p] > CLASSES_PER_LOOK) {
        holder->rotor += looked;
    }
    return best;
}

static struct jobqueue *pick(struct core *core, struct worker *worker)
{
    for (int p = 0; p < PRIORITY_COUNT; p++) {
        struct jobqueue *best = NULL;
        if (worker->profile->holder.n_ready[p] > 0) {
            best = look(core, &worker->profile->holder, p, worker, best);
        }
        if (worker->own.n_ready[p] > 0) {
            best = look(core, &worker->own, p, worker, best);
        }
        if (best != NULL) {
            return best;
        }
    }
    return NULL;
}

/* ---- assigning ---- */

/* The queue has just given a task: its job's turn is over. */
static void end_turn(struct core *core, struct jobqueue *queue)
{
    queue->job->turn = ++core->turn;
    list_remove(&queue->in_class);
    queue->since_ms = core->now_ms;
    if (queue->n_ready == 0) {
        return;
    }
    if (job_is_full(core, queue->job)) {
        jobqueue_park(queue);
    } else {
        list_push_back(&queue->class->queue, &queue->in_class);
    }
}

/* The parents whose results go into the inputs. In the order of the tree's own list. */
const struct parent_result *core__list_parents(struct core *core, const struct stage *stage, uint32_t *out_n)
{
    const struct job *job = stage->job;
    uint32_t n = 0;
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        n += job->edges[i].read == READ_NONE;
    }
    struct parent_result *parents = n == 0 ? NULL : arena_alloc(&core->fx->arena, n * sizeof *parents);
    *out_n = 0;
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        if (job->edges[i].read == READ_NONE) {
            const struct stage *parent = job->stages[job->edges[i].parent];
            parents[(*out_n)++] =
                (struct parent_result){.stage = parent->id,
                                       .name = core__text(core, parent->name),
                                       .has_succeeded = parent->n_tasks == parent->counts[TASK_SUCCEEDED]};
        }
    }
    return parents;
}

static struct assignment *describe(struct core *core, const struct task *task, int64_t queued_ms,
                                   const struct digest *key)
{
    const struct stage *stage = task->stage;
    const struct requirement *need = stage->queue->class->need->value;
    struct arena *arena = &core->fx->arena;
    struct assignment *given = arena_zalloc(arena, sizeof *given);
    given->ref = core__attempt(core, task);
    given->kind = (enum job_kind)stage->job->kind;
    given->inputs = task->inputs;
    given->inputs_bytes = task->inputs_bytes;
    given->parents = core__list_parents(core, stage, &given->n_parents);
    given->name = core__text(core, stage->name);
    given->executor = core__text(core, need->executor);
    if (need->ops.count > 0) {
        const char **ops = arena_alloc(arena, need->ops.count * sizeof *ops);
        for (uint32_t i = 0; i < need->ops.count; i++) {
            ops[i] = core__text(core, need->ops.items[i]);
        }
        given->ops = (struct string_list){ops, need->ops.count};
    }
    given->idempotency_key = *key;
    given->lease_ms = (uint32_t)core->config.lease_ms;
    given->timeout_ms = stage->timeout_ms;
    given->exclusive = stage->exclusive;
    given->queued_ms = queued_ms;
    given->sources = output_sources(core, task, &given->n_sources);
    return given;
}

static void assign(struct core *core, struct jobqueue *queue, struct worker *worker)
{
    struct task *task = jobqueue_top(core, queue);
    int64_t ready_at_ms = task->stage->ready_at_ms;
    int64_t queued_ms = core->now_ms - (task->queued_at_ms > ready_at_ms ? task->queued_at_ms : ready_at_ms);
    jobqueue_pop(queue);
    lease_grant(core, task, worker);
    end_turn(core, queue);
    job_mark_running(core, queue->job);
    struct task_ref ref = {queue->job->id, task->stage->id, task_index(task)};
    struct digest key = attempt_key(ref, task->attempt, &task->inputs);
    struct task_news news = {.worker_id = worker->id,
                             .started_at_ms = core->now_ms,
                             .lease_expires_at_ms = core->now_ms + core->config.lease_ms,
                             .idempotency_key = &key};
    core__emit_task(core, task, &news);
    core__emit_attempt(core, task, worker->id, &key);
    core__task_event(core, EVENT_ASSIGNED, task, worker->id, NULL);
    struct assignment *given = describe(core, task, queued_ms, &key);
    *worker->given_end = given;
    worker->given_end = &given->next;
    worker->n_given++;
    if (!list_is_linked(&worker->in_served)) {
        list_push_back(&core->served, &worker->in_served);
    }
    if (!can_take_more(core, worker)) {
        poll_unpark(core, worker);
    }
}

/* Who should get the next task of `queue`: the worker that holds its inputs, if it asks too; else the one at hand. */
static struct worker *prefer(struct core *core, struct jobqueue *queue, struct worker *worker)
{
    struct worker *best = output_best_worker(jobqueue_top(core, queue));
    if (best == NULL || best == worker || !list_is_linked(&best->in_parked) || !class_fits_worker(queue->class, best) ||
        class_blocks_worker(core, queue->class, best) || is_crowded(queue, best)) {
        return worker;
    }
    return best;
}

/* True if a task was handed out, to this worker or to one that was preferred. */
static bool serve(struct core *core, struct worker *worker)
{
    struct jobqueue *queue = can_take_more(core, worker) ? pick(core, worker) : NULL;
    if (queue == NULL) {
        return false;
    }
    assign(core, queue, prefer(core, queue, worker));
    return true;
}

static void serve_hot_workers(struct core *core)
{
    bool progress = true;
    while (progress) {
        progress = false;
        LIST_EACH_SAFE(at, next, &core->hot_workers) {
            if (serve(core, CONTAINER_OF(at, struct worker, in_hot))) {
                progress = true;
            } else {
                list_remove(at);
            }
        }
    }
}

static bool has_ready(const struct holder *holder)
{
    for (int p = 0; p < PRIORITY_COUNT; p++) {
        if (holder->n_ready[p] > 0) {
            return true;
        }
    }
    return false;
}

static void serve_hot_profiles(struct core *core)
{
    for (struct list *first; (first = list_first(&core->hot_profiles)) != NULL;) {
        struct profile *profile = CONTAINER_OF(first, struct profile, in_hot);
        bool progress = true;
        while (progress) {
            progress = false;
            LIST_EACH_SAFE(at, next, &profile->parked) {
                if (!has_ready(&profile->holder)) {
                    break;
                }
                progress |= serve(core, CONTAINER_OF(at, struct worker, in_parked));
                if (!list_is_linked(next) && next != &profile->parked) {
                    break; /* somebody else was preferred and is not waiting any more */
                }
            }
        }
        list_remove(first);
    }
}

/* ---- child jobs: tasks that need no worker ---- */

static void start_children(struct core *core)
{
    for (int p = 0; p < PRIORITY_COUNT; p++) {
        for (struct jobqueue *queue; (queue = look(core, &core->child_holder, p, NULL, NULL)) != NULL;) {
            struct task *task = jobqueue_top(core, queue);
            jobqueue_pop(queue);
            task->attempt++;
            task->token = core__draw(core);
            task->outcome = OUTCOME_PENDING;
            task_move(core, task, TASK_RUNNING);
            task->u.child = NULL;
            task->stage->child_started_at_ms = core->now_ms;
            queue->job->running++;
            end_turn(core, queue);
            job_mark_running(core, queue->job);
            struct task_ref ref = {queue->job->id, task->stage->id, task_index(task)};
            struct digest key = attempt_key(ref, task->attempt, &task->inputs);
            struct task_news news = {.started_at_ms = core->now_ms, .idempotency_key = &key};
            core__emit_task(core, task, &news);
            core__emit_attempt(core, task, NULL, &key);
            core__task_event(core, EVENT_STARTED, task, NULL, NULL);
            core__emit_child(core, task);
        }
    }
}

/* The end of every batch: hand out work, answer polls that have something or have waited long enough. */
void poll_dispatch(struct core *core)
{
    if (core->is_everyone_hot) {
        core->is_everyone_hot = false;
        LIST_EACH(at, &core->profiles) {
            struct profile *profile = CONTAINER_OF(at, struct profile, in_core);
            LIST_EACH_SAFE(w, next, &profile->parked) {
                poll_reconsider(core, CONTAINER_OF(w, struct worker, in_parked));
            }
        }
    }
    start_children(core);
    serve_hot_workers(core);
    serve_hot_profiles(core);
    for (struct list *first; (first = list_first(&core->served)) != NULL;) {
        struct worker *worker = CONTAINER_OF(first, struct worker, in_served);
        list_remove(first);
        if (worker->poll.is_open && (worker->n_given > 0 || worker->n_stops > 0 || worker->poll.is_due)) {
            answer(core, worker);
        }
    }
}
