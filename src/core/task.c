/*
 * A task's states, and the one function that moves it from one to the next.
 *
 *   queued -> running -> succeeded            running -> queued (another attempt) | failed (out of budget)
 *   queued | running -> canceled              queued -> skipped (a required dependency failed)
 *   succeeded -> queued (its map output was lost while readers still need it; RetryJob)
 *   failed | canceled | skipped -> queued (RetryJob)
 */
#include "base/mem.h"
#include "core/core_internal.h"

#define TO(state) (1u << TASK_##state)

static const unsigned legal_moves[TASK_STATE_COUNT] = {
    [TASK_QUEUED] = TO(RUNNING) | TO(CANCELED) | TO(SKIPPED),
    [TASK_RUNNING] = TO(QUEUED) | TO(SUCCEEDED) | TO(FAILED) | TO(CANCELED),
    [TASK_SUCCEEDED] = TO(QUEUED),
    [TASK_FAILED] = TO(QUEUED),
    [TASK_CANCELED] = TO(QUEUED),
    [TASK_SKIPPED] = TO(QUEUED),
};

struct task *task_find(const struct job *job, uint32_t stage, uint32_t task)
{
    if (stage >= job->n_stages || job->stages[stage] == NULL || task >= job->stages[stage]->n_tasks) {
        return NULL;
    }
    return &job->stages[stage]->tasks[task];
}

uint32_t task_index(const struct task *task)
{
    return (uint32_t)(task - task->stage->tasks);
}

void task_move(struct core *core, struct task *task, enum task_state to)
{
    struct stage *stage = task->stage;
    struct job *job = stage->job;
    enum task_state from = (enum task_state)task->state;
    ASSERT(legal_moves[from] & 1u << to);
    stage->counts[from]--;
    stage->counts[to]++;
    if (!job_state_is_terminal((enum job_state)job->state)) {
        core->stats.tasks[from]--;
        core->stats.tasks[to]++;
    }
    job->n_open = job->n_open - !task_state_is_terminal(from) + !task_state_is_terminal(to);
    job->n_failed = job->n_failed - (from == TASK_FAILED) + (to == TASK_FAILED);
    task->state = (uint8_t)to;
    if (to == TASK_QUEUED) {
        task->queued_at_ms = core->now_ms;
    }
}

int64_t task_ready_at(const struct task *task)
{
    bool waits = task->state == TASK_QUEUED && task->u.backoff != NULL;
    return waits ? task->u.backoff->ready_at_ms : 0;
}

/* When its backoff really ends; 0: it is in none. */
int64_t task_timer_at(const struct task *task)
{
    bool waits = task->state == TASK_QUEUED && task->u.backoff != NULL;
    return waits ? task->u.backoff->timer.node.key : 0;
}

/* ---- backoff ---- */

void task_clear_backoff(struct core *core, struct task *task)
{
    if (task->state == TASK_QUEUED && task->u.backoff != NULL) {
        heap_remove(&core->timers, &task->u.backoff->timer.node);
        mem_free(task->u.backoff);
        task->u.backoff = NULL;
    }
}

void task_set_backoff(struct core *core, struct task *task, int64_t ready_at_ms)
{
    struct backoff *backoff = mem_calloc(1, sizeof *backoff);
    backoff->timer.kind = TIMER_RETRY;
    int64_t latest_ms = core->now_ms + BACKOFF_MS_MAX + BACKOFF_MS_MAX / 5;
    backoff->ready_at_ms = ready_at_ms;
    backoff->timer.node.key = ready_at_ms < latest_ms ? ready_at_ms : latest_ms;
    backoff->task = task;
    task->u.backoff = backoff;
    heap_push(&core->timers, &backoff->timer.node);
}

static int64_t backoff_delay_ms(struct core *core, const struct task *task)
{
    int64_t base = task->stage->backoff_ms >= 0 ? task->stage->backoff_ms : core->config.retry_backoff_base_ms;
    uint32_t doublings = task->failures - 1 < 20 ? task->failures - 1 : 20;
    int64_t delay = (base < BACKOFF_MS_MAX ? base : BACKOFF_MS_MAX) << doublings;
    if (delay > BACKOFF_MS_MAX) {
        delay = BACKOFF_MS_MAX;
    }
    int64_t spread = delay / 5; /* +- 20 % */
    if (spread > 0) {
        uint64_t bits = core__draw(core).bits[0];
        delay += (int64_t)(bits % (uint64_t)(2 * spread + 1)) - spread;
    }
    return delay;
}

/* ---- moves ---- */

static void close_attempt(struct core *core, struct task *task, enum attempt_outcome outcome)
{
    const char *worker_id = task->stage->child ? NULL : task->u.lease->worker->id;
    task->outcome = (uint8_t)outcome;
    core__emit_attempt(core, task, worker_id, NULL);
}

/* Ends what ties a running task to its worker or child job. `tell` sends the worker a stop order. */
static void let_go(struct core *core, struct task *task, bool tell)
{
    struct job *job = task->stage->job;
    if (task->stage->child) {
        task->u.child = NULL;
        job->running--;
        job_slot_freed(core, job);
    } else {
        lease_end(core, task, tell);
    }
    task->u.lease = NULL;
}

static int64_t started_at(const struct task *task)
{
    return task->stage->child ? task->stage->child_started_at_ms : task->u.lease->acquired_at_ms;
}

static void requeue(struct core *core, struct task *task, enum attempt_outcome outcome, const char *why)
{
    const char *worker_id = task->stage->child ? NULL : task->u.lease->worker->id;
    struct task_news news = {.message = why, .worker_id = worker_id};
    close_attempt(core, task, outcome);
    output_drop(core, task, true);
    core__task_event(core, EVENT_REASSIGNED, task, worker_id, why);
    core__emit_lease_gone(core, task);
    let_go(core, task, true);
    task_move(core, task, TASK_QUEUED);
    core__emit_task(core, task, &news);
    if (BUG(core, forget_requeue)) {
        return;
    }
    task_enqueue(core, task);
}

/* A running attempt is over without a verdict: the next one can start at once. Counts against nothing. */
void task_requeue(struct core *core, struct task *task, enum attempt_outcome outcome, const char *why)
{
    core->stats.outcomes_total[outcome]++;
    requeue(core, task, outcome, why);
}

/* The same where nothing went wrong. The attempt's row says `lost`, as of all without a verdict; statistics do not. */
void task_release(struct core *core, struct task *task, const char *why)
{
    core->stats.released_total++;
    requeue(core, task, OUTCOME_LOST, why);
}

static void fail_for_good(struct core *core, struct task *task, const struct failure *failure, const char *worker_id)
{
    const char *message = failure->message;
    struct stage *stage = task->stage;
    struct job *job = stage->job;
    struct task_news news = {.message = message,
                             .worker_id = worker_id,
                             .started_at_ms = started_at(task),
                             .finished_at_ms = core->now_ms,
                             .report = failure->report};
    core__task_event(core, EVENT_FAILED, task, worker_id, message);
    core__emit_lease_gone(core, task);
    let_go(core, task, false);
    task_move(core, task, TASK_FAILED);
    core__emit_task(core, task, &news);
    if (job->message == NULL) {
        struct arena *arena = &core->fx->arena;
        const char *text = message != NULL ? message : "no message";
        const char *line = stage->name != NULL ? arena_format(arena, "task '%s' failed in attempt %u: %s", stage->name,
                                                              task->attempt, text)
                                               : arena_format(arena, "task %u of stage %u failed in attempt %u: %s",
                                                              task_index(task), stage->id, task->attempt, text);
        job->message = mem_strdup(line);
        if (!job->stop_on_failure) {
            core__emit_job(core, job, false);
        }
    }
    if (job->stop_on_failure) {
        job_end(core, job, JOB_FAILED, NULL);
        return;
    }
    stage_settle(core, stage);
    job_maybe_end(core, job);
}

/*
 * A running attempt went wrong. Counts one failure; the task is queued again if it may be and has budget left, else it
 * failed, and perhaps its job with it.
 */
void task_retry_or_fail(struct core *core, struct task *task, const struct failure *failure)
{
    bool with_backoff = !failure->is_lost;
    struct stage *stage = task->stage;
    const char *worker_id = stage->child ? NULL : task->u.lease->worker->id;
    uint32_t budget = stage->max_attempts > 0 ? stage->max_attempts : (uint32_t)core->config.max_task_attempts;
    task->failures++;
    enum attempt_outcome outcome = with_backoff ? OUTCOME_FAILED : OUTCOME_LOST;
    core->stats.outcomes_total[outcome]++;
    close_attempt(core, task, outcome);
    output_drop(core, task, true);
    if (worker_id != NULL && with_backoff) {
        task_avoid(core, task, worker_id); /* a lost worker is not its fault */
    }
    if (!failure->is_retryable || task->failures >= budget) {
        fail_for_good(core, task, failure, worker_id);
        return;
    }
    struct task_news news = {.message = failure->message, .worker_id = worker_id, .report = failure->report};
    core__task_event(core, with_backoff ? EVENT_FAILED : EVENT_REASSIGNED, task, worker_id, failure->message);
    core__emit_lease_gone(core, task);
    let_go(core, task, !with_backoff);
    task_move(core, task, TASK_QUEUED);
    int64_t delay = with_backoff && !BUG(core, drop_backoff) ? backoff_delay_ms(core, task) : 0;
    if (delay > 0) {
        task_set_backoff(core, task, core->now_ms + delay);
    }
    core__emit_task(core, task, &news);
    if (BUG(core, forget_requeue)) {
        return;
    }
    if (delay == 0) {
        task_enqueue(core, task);
    }
}

void task_succeed(struct core *core, struct task *task, const struct task_report *report)
{
    struct stage *stage = task->stage;
    const char *worker_id = stage->child ? NULL : task->u.lease->worker->id;
    struct task_news news = {
        .worker_id = worker_id, .report = report, .started_at_ms = started_at(task), .finished_at_ms = core->now_ms};
    core->stats.outcomes_total[OUTCOME_COMPLETED]++;
    close_attempt(core, task, OUTCOME_COMPLETED);
    core__task_event(core, EVENT_COMPLETED, task, worker_id, NULL);
    core__emit_lease_gone(core, task);
    let_go(core, task, false);
    task_move(core, task, TASK_SUCCEEDED);
    core__emit_task(core, task, &news);
    stage_settle(core, stage);
    job_maybe_end(core, stage->job);
}

/* Part of the job's end: rows are swept as a whole, so none is written here. */
void task_cancel(struct core *core, struct task *task)
{
    if (task->state == TASK_RUNNING) {
        if (!task->stage->child) {
            core__task_event(core, EVENT_CANCELLED, task, task->u.lease->worker->id, NULL);
        }
        task->outcome = OUTCOME_LOST;
        core->stats.canceled_total++;
        let_go(core, task, true);
    } else {
        task_clear_backoff(core, task);
    }
    task_move(core, task, TASK_CANCELED);
}

void task_skip(struct core *core, struct task *task)
{
    struct task_news news = {.finished_at_ms = core->now_ms};
    task_clear_backoff(core, task);
    task_move(core, task, TASK_SKIPPED);
    core__task_event(core, EVENT_SKIPPED, task, NULL, NULL);
    core__emit_task(core, task, &news);
}

/* From now on `worker_id` gets this task only if nobody else can take it. */
void task_avoid(struct core *core, struct task *task, const char *worker_id)
{
    struct class *class = task_queue(task)->class;
    if (!class_avoids(class, worker_id)) {
        task->avoid_queue = jobqueue_get(core, task->stage->job, class_avoiding(core, class, worker_id));
    }
}
