/*
 * Workers: registration, heartbeats, silence, the blacklist, draining.
 *
 * A worker is live from its registration until it is silent for too long, leaves, or is superseded by a new
 * incarnation. Whatever it ran or kept is taken back at that moment. Silence is measured in attended time.
 */
#include <string.h>

#include "base/mem.h"
#include "core/core_internal.h"

#define STOPS_MAX 10000

static bool worker_matches(const void *value, const void *key)
{
    return strcmp(((const struct worker *)value)->id, key) == 0;
}

struct worker *worker_find(const struct core *core, const char *worker_id)
{
    return map_get(&core->workers, core__hash(core, worker_id), worker_matches, worker_id);
}

bool worker_is_able(const struct worker *worker)
{
    return worker->is_live && worker->blacklisted_until_ms == 0 && !worker->draining;
}

struct worker *worker_new(struct core *core, const char *worker_id)
{
    struct worker *worker = mem_calloc(1, sizeof *worker);
    worker->id = mem_strdup(worker_id);
    worker->hash = core__hash(core, worker_id);
    worker->watch.kind = TIMER_WORKER;
    worker->blacklist.kind = TIMER_BLACKLIST;
    worker->poll.timer.kind = TIMER_POLL;
    worker->given_end = &worker->given;
    list_init(&worker->running);
    list_init(&worker->outputs);
    map_put(&core->workers, worker->hash, worker);
    profile_join(core, worker, &(struct offer){0});
    return worker;
}

static void clear_stops(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->n_stops; i++) {
        mem_free(worker->stops[i].job_id);
    }
    worker->n_stops = 0;
}

void worker_free(struct core *core, struct worker *worker)
{
    map_take_value(&core->workers, worker->hash, worker);
    heap_remove(&core->watches, &worker->watch.node);
    heap_remove(&core->timers, &worker->blacklist.node);
    heap_remove(&core->timers, &worker->poll.timer.node);
    poll_unpark(core, worker);
    list_remove(&worker->in_hot);
    list_remove(&worker->in_served);
    profile_leave(core, worker);
    holder_deinit(&worker->own);
    clear_stops(worker);
    mem_free(worker->stops);
    mem_free(worker->id);
    mem_free(worker->incarnation);
    for (int i = 0; i < NODE_PAST_INCARNATIONS; i++) {
        mem_free(worker->past_incarnations[i]);
    }
    mem_free(worker->address);
    mem_free(worker->version);
    mem_free(worker);
}

static bool is_past(const struct worker *worker, const char *incarnation)
{
    for (int i = 0; i < NODE_PAST_INCARNATIONS; i++) {
        if (worker->past_incarnations[i] != NULL && strcmp(worker->past_incarnations[i], incarnation) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether a process may speak for this worker now. */
enum refusal worker_speak(const struct core *core, const char *worker_id, const char *incarnation,
                          struct worker **out_worker)
{
    struct worker *worker = worker_find(core, worker_id);
    if (worker == NULL || worker->incarnation == NULL) {
        return REFUSE_UNKNOWN_WORKER;
    }
    if (strcmp(worker->incarnation, incarnation) != 0) {
        return is_past(worker, incarnation) ? REFUSE_SUPERSEDED : REFUSE_UNKNOWN_WORKER;
    }
    if (!worker->is_live) {
        return REFUSE_UNKNOWN_WORKER;
    }
    *out_worker = worker;
    return REFUSE_NONE;
}

/* ---- offers ---- */

void worker_change_offer(struct core *core, struct worker *worker, const struct offer *offer)
{
    if (offer_equal(worker->profile->offer, offer)) {
        return;
    }
    struct offer *copy = offer_copy(offer); /* `offer` may be part of the profile that is about to go */
    poll_unpark(core, worker);
    profile_leave(core, worker);
    profile_join(core, worker, copy);
    mem_free(copy);
    poll_reconsider(core, worker);
}

void worker_drop_op(struct core *core, struct worker *worker, const char *op)
{
    struct offer offer = *worker->profile->offer;
    const char **ops = mem_alloc(offer.ops.count * sizeof *ops);
    uint32_t n = 0;
    for (uint32_t i = 0; i < offer.ops.count; i++) {
        if (strcmp(offer.ops.items[i], op) != 0) {
            ops[n++] = offer.ops.items[i];
        }
    }
    if (n < offer.ops.count) {
        offer.ops = (struct string_list){ops, n};
        worker_change_offer(core, worker, &offer);
        core__emit_node(core, worker);
    }
    mem_free(ops);
}

/* ---- silence ---- */

/* Sets the worker's timer to the next thing that its silence would mean. */
void worker_watch(struct core *core, struct worker *worker)
{
    const struct core_config *config = &core->config;
    int64_t next = worker->last_seen_ms + NODE_FORGET_MS;
    if (worker->status == NODE_HEALTHY) {
        next = worker->last_seen_ms + config->node_stale_ms;
    } else if (worker->status == NODE_STALE) {
        next = worker->last_seen_ms + config->node_dead_ms;
    }
    if (worker->is_live && worker->last_seen_ms + config->worker_liveness_timeout_ms < next) {
        next = worker->last_seen_ms + config->worker_liveness_timeout_ms;
    }
    LIST_EACH(at, &worker->running) {
        const struct lease *lease = CONTAINER_OF(at, struct lease, in_worker);
        if (lease->expires_ms < next) {
            next = lease->expires_ms;
        }
    }
    heap_set(&core->watches, &worker->watch.node, next > core->attended_ms ? next : core->attended_ms + 1);
}

enum loss { LOSS_COUNTS, LOSS_FREE };

/* The process behind the worker is gone for us: take back what it ran and what it kept. */
static void worker_lose(struct core *core, struct worker *worker, enum loss loss, const char *why)
{
    worker->is_live = false;
    worker->status = worker->status == NODE_HEALTHY ? NODE_STALE : worker->status;
    poll_close(core, worker);
    profile_recount(core, worker);
    clear_stops(worker);
    const char *text = arena_format(&core->fx->arena, "worker '%s' %s", worker->id, why);
    while (!list_is_empty(&worker->running)) {
        struct lease *lease = CONTAINER_OF(list_first(&worker->running), struct lease, in_worker);
        if (loss == LOSS_COUNTS) {
            task_retry_or_fail(core, lease->task,
                               &(struct failure){.message = text, .is_retryable = true, .is_lost = true});
        } else {
            task_release(core, lease->task, text);
        }
    }
    outputs_lost_with(core, worker);
    recovery_run(core);
}

static void expire_leases(struct core *core, struct worker *worker)
{
    LIST_EACH_SAFE(at, next, &worker->running) {
        struct lease *lease = CONTAINER_OF(at, struct lease, in_worker);
        if (lease->expires_ms > core->attended_ms) {
            continue;
        }
        core->stats.lease_expired_total++;
        task_retry_or_fail(core, lease->task,
                           &(struct failure){.message = "the lease expired", .is_retryable = true, .is_lost = true});
        /* That may have ended the job and with it any other lease here, so look again from the start. */
        next = worker->running.next;
    }
}

void worker_watch_fired(struct core *core, struct worker *worker)
{
    int64_t silent_ms = core->attended_ms - worker->last_seen_ms;
    bool blind = BUG(core, lease_never_expires);
    if (!blind) {
        expire_leases(core, worker);
    }
    if (worker->is_live && silent_ms >= core->config.worker_liveness_timeout_ms && !blind) {
        core__node_event(core, EVENT_LOST, worker, "no heartbeat");
        worker_lose(core, worker, LOSS_COUNTS, "was lost");
        core__emit_node(core, worker);
    }
    if (worker->status == NODE_HEALTHY && silent_ms >= core->config.node_stale_ms) {
        worker->status = NODE_STALE;
        core__emit_node(core, worker);
    }
    if (worker->status == NODE_STALE && silent_ms >= core->config.node_dead_ms) {
        worker->status = NODE_DEAD;
        core__emit_node(core, worker);
    }
    if (!worker->is_live && silent_ms >= NODE_FORGET_MS && worker->blacklisted_until_ms == 0) {
        core__emit_node_gone(core, worker);
        worker_free(core, worker);
        return;
    }
    worker_watch(core, worker);
}

/* ---- registration ---- */

static void replace_text(char **text, const char *with)
{
    char *copy = mem_strdup(with);
    mem_free(*text);
    *text = copy;
}

static void take_incarnation(struct worker *worker, const char *incarnation)
{
    if (worker->incarnation != NULL) {
        mem_free(worker->past_incarnations[NODE_PAST_INCARNATIONS - 1]);
        memmove(&worker->past_incarnations[1], &worker->past_incarnations[0],
                (NODE_PAST_INCARNATIONS - 1) * sizeof *worker->past_incarnations);
        worker->past_incarnations[0] = worker->incarnation;
    }
    worker->incarnation = mem_strdup(incarnation);
    worker->incarnation_mark = core__mark(incarnation);
}

void worker_register(struct core *core, const struct command *command)
{
    const struct cmd_register *reg = &command->u.reg;
    struct worker *worker = worker_find(core, reg->worker_id);
    if (worker != NULL && is_past(worker, reg->incarnation)) {
        core__reply_error(core, command->reply_to, ERR_STALE, refusal_text(REFUSE_SUPERSEDED));
        core->stats.refused_total[REFUSE_SUPERSEDED]++;
        return;
    }
    if (worker == NULL) {
        worker = worker_new(core, reg->worker_id);
        worker->registered_at_ms = core->now_ms;
    }
    bool is_new = worker->incarnation == NULL || strcmp(worker->incarnation, reg->incarnation) != 0;
    bool joins = is_new || !worker->is_live;
    if (is_new) {
        poll_refuse(core, worker, REFUSE_SUPERSEDED);
        worker_lose(core, worker, LOSS_COUNTS, "was restarted");
        take_incarnation(worker, reg->incarnation);
        worker->registered_at_ms = core->now_ms;
    }
    replace_text(&worker->address, reg->address);
    replace_text(&worker->version, reg->version);
    worker->slots = reg->slots;
    worker->is_live = true;
    worker->status = NODE_HEALTHY;
    worker->last_seen_ms = core->attended_ms;
    worker->heartbeat_at_ms = core->now_ms;
    worker_change_offer(core, worker, &reg->offer);
    profile_recount(core, worker);
    worker_watch(core, worker);
    core__emit_node(core, worker);
    if (joins) {
        core__node_event(core, EVENT_JOINED, worker, NULL);
    }
    struct reply *reply = core__reply(core, command->reply_to, REPLY_REGISTER);
    reply->u.registered.heartbeat_interval_ms = core->config.heartbeat_interval_ms;
    reply->u.registered.lease_ms = core->config.lease_ms;
}

void worker_deregister(struct core *core, const struct command *command)
{
    const struct cmd_deregister *leave = &command->u.deregister;
    struct worker *worker = worker_find(core, leave->worker_id);
    /* A process that was superseded, or whose answer was lost, may leave as often as it likes. */
    if (worker != NULL && worker->incarnation != NULL && strcmp(worker->incarnation, leave->incarnation) == 0) {
        core__node_event(core, EVENT_LOST, worker, "left");
        worker_lose(core, worker, LOSS_FREE, "left");
        if (worker->failures > 0 || worker->blacklisted_until_ms != 0) {
            core__emit_node(core, worker); /* leaving does not wipe the slate clean */
        } else {
            core__emit_node_gone(core, worker);
            worker_free(core, worker);
        }
    }
    core__reply(core, command->reply_to, REPLY_DONE);
}

/* ---- heartbeats ---- */

/* True if the worker may go on with it: the lease is its own and current, or the attempt has won already. */
static bool renew(struct core *core, struct worker *worker, const struct attempt_ref *ref)
{
    const struct job *job = job_find(core, ref->task.job_id);
    struct task *task = job == NULL ? NULL : task_find(job, ref->task.stage, ref->task.task);
    if (task == NULL || task->attempt != ref->attempt || !lease_token_equal(task->token, ref->token) ||
        task->stage->child) {
        return false;
    }
    if (task->state != TASK_RUNNING) {
        return task->outcome == OUTCOME_COMPLETED && task->state == TASK_SUCCEEDED;
    }
    struct lease *lease = task->u.lease;
    if (lease->worker != worker) {
        return false;
    }
    lease->expires_ms = core->attended_ms + core->config.lease_ms;
    lease->beat = worker->beat;
    return true;
}

/* True if the assignment waits for its commit: the worker cannot know of it, and its time has not begun. */
static bool is_unsent(const struct core *core, const struct lease *lease)
{
    return core->pending_since_ms != 0 && lease->acquired_at_ms >= core->pending_since_ms;
}

/* Attempts that the worker should know of by now but does not name: the answer with them was lost. */
static void requeue_unnamed(struct core *core, struct worker *worker)
{
    int64_t patience_ms = 2 * core->config.heartbeat_interval_ms;
    LIST_EACH_SAFE(at, next, &worker->running) {
        struct lease *lease = CONTAINER_OF(at, struct lease, in_worker);
        if (is_unsent(core, lease)) {
            lease->assigned_ms = core->attended_ms;
            lease->expires_ms = core->attended_ms + core->config.lease_ms;
        } else if (lease->beat == worker->beat && BUG(core, second_lease) && (core__draw(core).bits[0] & 15) == 0) {
            struct task *task = lease->task;
            lease_end(core, task, false);
            task_move(core, task, TASK_QUEUED);
            task_enqueue(core, task);
        } else if (lease->beat != worker->beat && core->attended_ms - lease->assigned_ms > patience_ms) {
            task_requeue(core, lease->task, OUTCOME_LOST, "the assignment did not reach the worker");
        }
    }
}

static void name_ended_jobs(struct core *core, const struct cmd_heartbeat *beat, struct reply *reply)
{
    const char **ended = arena_alloc(&core->fx->arena, beat->n_held_jobs * sizeof *ended);
    const char **failed = arena_alloc(&core->fx->arena, beat->n_held_jobs * sizeof *failed);
    uint32_t n = 0;
    uint32_t n_failed = 0;
    for (uint32_t i = 0; i < beat->n_held_jobs; i++) {
        const struct job *job = job_find(core, beat->held_jobs[i]);
        if (job != NULL && !job_state_is_terminal((enum job_state)job->state)) {
            continue;
        }
        ended[n++] = core__text(core, beat->held_jobs[i]);
        if (job != NULL &&
            job->state != JOB_SUCCEEDED) { /* how one that is not in memory has ended is not known here */
            failed[n_failed++] = ended[n - 1];
        }
    }
    reply->u.heartbeat.ended_jobs = ended;
    reply->u.heartbeat.n_ended_jobs = n;
    reply->u.heartbeat.failed_jobs = failed;
    reply->u.heartbeat.n_failed_jobs = n_failed;
}

/* Outputs of a stage mostly stand together, so its answer is kept for the next. */
static uint32_t count_needed_outputs(const struct worker *worker)
{
    const struct stage *last = NULL;
    bool last_needed = false;
    uint32_t n = 0;
    LIST_EACH(at, &worker->outputs) {
        const struct stage *stage = CONTAINER_OF(at, struct output, in_worker)->task->stage;
        if (stage != last) {
            last = stage;
            last_needed = stage_outputs_needed(stage);
        }
        n += last_needed;
    }
    return n;
}

static void note_alive(struct core *core, struct worker *worker, const struct cmd_heartbeat *beat)
{
    struct offer offer = *worker->profile->offer;
    worker->last_seen_ms = core->attended_ms;
    worker->heartbeat_at_ms = core->now_ms;
    worker->load = beat->load;
    worker->beat++;
    offer.ops = beat->ops;
    bool changed = !offer_equal(&offer, worker->profile->offer);
    if (changed) {
        worker_change_offer(core, worker, &offer);
    }
    if (changed || worker->status != NODE_HEALTHY) {
        worker->status = NODE_HEALTHY;
        worker_watch(core, worker);
        core__emit_node(core, worker);
    }
}

void worker_heartbeat(struct core *core, const struct command *command)
{
    const struct cmd_heartbeat *beat = &command->u.heartbeat;
    struct worker *worker = NULL;
    uint32_t rows_before = core->fx->n_rows;
    enum refusal refusal = worker_speak(core, beat->worker_id, beat->incarnation, &worker);
    if (refusal != REFUSE_NONE) {
        struct reply *reply = core__reply(core, command->reply_to, REPLY_HEARTBEAT);
        reply->u.heartbeat.refusal = core__refused(core, refusal);
        return;
    }
    note_alive(core, worker, beat);
    struct attempt_ref *stop = NULL;
    uint32_t n_stop = 0;
    for (uint32_t i = 0; i < beat->n_running; i++) {
        const struct attempt_ref *ref = &beat->running[i];
        if (renew(core, worker, ref)) {
            continue;
        }
        if (stop == NULL) {
            stop = arena_alloc(&core->fx->arena, beat->n_running * sizeof *stop);
        }
        stop[n_stop] = *ref;
        stop[n_stop++].task.job_id = core__text(core, ref->task.job_id);
    }
    requeue_unnamed(core, worker);
    struct reply *reply = core__reply(core, command->reply_to, REPLY_HEARTBEAT);
    reply->u.heartbeat.accepted = true;
    reply->u.heartbeat.drain = worker->draining;
    reply->u.heartbeat.stop = stop;
    reply->u.heartbeat.n_stop = n_stop;
    if (beat->n_held_jobs > 0) {
        name_ended_jobs(core, beat, reply);
    }
    /* "Nobody needs your outputs", like a stop order, may be said only when it is durable. */
    bool wants_to_go = beat->is_leaving || worker->draining;
    if (wants_to_go) {
        reply->u.heartbeat.outputs_needed = count_needed_outputs(worker);
    }
    reply->immediate =
        n_stop == 0 && reply->u.heartbeat.n_ended_jobs == 0 && !wants_to_go && core->fx->n_rows == rows_before;
}

/* A stop order for the attempt that the task has at the moment; it goes out with the worker's next poll. */
void worker_tell_stop(struct core *core, struct worker *worker, const struct task *task)
{
    if (!worker->is_live || worker->n_stops >= STOPS_MAX) {
        return; /* its next heartbeat will be told */
    }
    worker->stops = mem_grow(worker->stops, &worker->cap_stops, worker->n_stops + 1, sizeof *worker->stops);
    worker->stops[worker->n_stops++] =
        (struct stop){mem_strdup(task->stage->job->id), task->stage->id, task_index(task), task->attempt, task->token};
    if (worker->poll.is_open && !list_is_linked(&worker->in_served)) {
        list_push_back(&core->served, &worker->in_served);
    }
}

/* ---- blacklist and drain ---- */

/* However far away the stored end is (another leader's clock wrote it), nobody waits longer than the configured time. */
void worker_arm_blacklist(struct core *core, struct worker *worker)
{
    int64_t latest_ms = core->now_ms + core->config.blacklist_ttl_ms;
    bool is_far = core->config.blacklist_ttl_ms > 0 && worker->blacklisted_until_ms > latest_ms;
    int64_t until_ms = is_far ? latest_ms : worker->blacklisted_until_ms;
    if (worker->blacklisted_until_ms == 0 || worker->blacklisted_until_ms == INT64_MAX) {
        heap_remove(&core->timers, &worker->blacklist.node);
    } else {
        heap_set(&core->timers, &worker->blacklist.node, until_ms);
    }
}

/* True if the task failed on some other worker before: then it is its own fault. */
static bool failed_elsewhere(const struct task *task, const struct worker *worker)
{
    const struct class *class = task_queue(task)->class;
    return task->failures > 0 && class->n_avoid > (class_avoids(class, worker->id) ? 1u : 0u);
}

void worker_count_failure(struct core *core, struct worker *worker, const struct task *task)
{
    if (failed_elsewhere(task, worker)) {
        return;
    }
    worker->failures++;
    if (worker->failures >= core->config.blacklist_failure_threshold && worker->blacklisted_until_ms == 0 &&
        !BUG(core, skip_blacklist)) {
        int64_t ttl_ms = core->config.blacklist_ttl_ms;
        worker->blacklisted_until_ms = ttl_ms == 0 ? INT64_MAX : core->now_ms + ttl_ms;
        worker_arm_blacklist(core, worker);
        profile_recount(core, worker);
        poll_reconsider(core, worker);
        core__node_event(core, EVENT_BLACKLISTED, worker, NULL);
    }
    core__emit_node(core, worker);
}

void worker_count_success(struct core *core, struct worker *worker)
{
    if (worker->failures > 0) {
        worker->failures = 0;
        core__emit_node(core, worker);
    }
}

void worker_clear_blacklist(struct core *core, struct worker *worker)
{
    if (worker->blacklisted_until_ms == 0 && worker->failures == 0) {
        return;
    }
    worker->blacklisted_until_ms = 0;
    worker->failures = 0;
    worker_arm_blacklist(core, worker);
    profile_recount(core, worker);
    poll_reconsider(core, worker);
    core__node_event(core, EVENT_CLEARED, worker, NULL);
    core__emit_node(core, worker);
}

void worker_set(struct core *core, const struct command *command)
{
    const struct cmd_set_node *set = &command->u.set_node;
    struct worker *worker = worker_find(core, set->worker_id);
    if (worker == NULL) {
        core__reply_error(core, command->reply_to, ERR_NOT_FOUND,
                          arena_format(&core->fx->arena, "there is no worker '%s'", command->u.set_node.worker_id));
        return;
    }
    if (set->clear_blacklist) {
        worker_clear_blacklist(core, worker);
    }
    if (set->set_draining && worker->draining != set->draining) {
        worker->draining = set->draining;
        profile_recount(core, worker);
        poll_reconsider(core, worker);
        core__node_event(core, set->draining ? EVENT_DRAINING : EVENT_CLEARED, worker, NULL);
        core__emit_node(core, worker);
    }
    core__reply(core, command->reply_to, REPLY_DONE);
}
