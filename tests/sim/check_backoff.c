/*
 * check_backoff.c - a failed task waits before its next attempt.
 *
 * The model notes every failed report that was taken: when, by the leader's clock, and how often the task had failed
 * so. The next lease may be given only after the wait that follows from that, less its jitter.
 */
#include "sim/check.h"
#include "sim/sim.h"

#define BACKOFF_CAP_MS 30000

struct backoff_task {
    uint32_t failures; /* reports of failure that cost budget, since the last retry of the job */
    uint32_t attempt;  /* the newest whose report was taken; 0: none */
    int64_t wait_ms;   /* the least that its successor waits */
    int64_t until_ms;  /* leader time */
};

struct backoff {
    struct backoff_task tasks[MAX_TASKS];
};

static int64_t least_wait_ms(const struct sim *sim, const struct stage_spec *spec, uint32_t failures)
{
    int64_t base = spec->backoff_ms >= 0 ? spec->backoff_ms : sim->world.config.retry_backoff_base_ms;
    int64_t wait_ms = failures > 12 ? BACKOFF_CAP_MS : base << (failures - 1);
    wait_ms = wait_ms < BACKOFF_CAP_MS ? wait_ms : BACKOFF_CAP_MS;
    return wait_ms - wait_ms / 5;
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    struct backoff *backoff = state;
    for (uint32_t i = 0; reply->kind == REPLY_REPORT && i < reply->u.report.n_outcomes; i++) {
        const struct report *report = &request->u.report.reports[i];
        uint32_t tid = store_tid(&sim->store, report->ref.job, report->ref.stage, report->ref.task);
        if (!report_is_final(report, reply->u.report.outcomes[i]) || tid == NO_INDEX ||
            backoff->tasks[tid].attempt >= report->ref.attempt) {
            continue; /* not taken, or said before */
        }
        struct backoff_task *task = &backoff->tasks[tid];
        task->attempt = report->ref.attempt;
        task->until_ms = 0;
        if (reply->u.report.outcomes[i] == REFUSE_NONE && report->state == TASK_FAILED && report->n_fetch == 0 &&
            report->missing_op == NO_INDEX) {
            const struct stage_spec *spec = sim->store.jobs[report->ref.job].stages[report->ref.stage].spec;
            task->failures++;
            task->wait_ms = least_wait_ms(sim, spec, task->failures);
            task->until_ms = request->step_now_ms + task->wait_ms;
        }
    }
}

/* A retry of the job starts afresh. */
static void forget(struct sim *sim, struct backoff *backoff, uint32_t index)
{
    const struct stored_job *job = &sim->store.jobs[index];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            struct backoff_task *task = &backoff->tasks[job->stages[s].first_tid + t];
            task->failures = 0;
            task->until_ms = 0;
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct backoff *backoff = state;
    if (note->row->kind == ROW_JOB) {
        if (((const struct row_job *)note->row)->state == JOB_QUEUED) {
            forget(sim, backoff, note->job);
        }
        return;
    }
    struct backoff_task *task = &backoff->tasks[note->tid];
    if (note->row->kind == ROW_TASK) {
        if (((const struct row_task *)note->row)->is_new) {
            *task = (struct backoff_task){0};
        }
        return;
    }
    const struct row_lease *lease = (const struct row_lease *)note->row;
    if (task->attempt > 0 && lease->attempt == task->attempt + 1 && lease->acquired_at_ms < task->until_ms) {
        sim_fail(sim, PROPERTY_backoff,
                 "%s: attempt %u failed (the task's failure no. %u), the next one comes %lld ms too early",
                 task_text(sim, note->tid), task->attempt, task->failures,
                 (long long)(task->until_ms - lease->acquired_at_ms));
    }
}

/* The new leader may have another clock. It waits at most as long as the longest wait. */
static void takeover(struct sim *sim, void *state)
{
    struct backoff *backoff = state;
    for (uint32_t tid = 0; tid < sim->store.n_tids; tid++) {
        struct backoff_task *task = &backoff->tasks[tid];
        int64_t latest_ms = sim->leader.now_max_ms + task->wait_ms;
        task->until_ms = task->until_ms < latest_ms ? task->until_ms : latest_ms;
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    UNUSED(state); /* a task's model is made with its row */
}

const struct checker check_backoff = {
    .property = PROPERTY_backoff,
    .state_size = sizeof(struct backoff),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_LEASE) | BIT(ROW_JOB),
    .fact_kinds = BIT(CMD_REPORT),
    .reset = reset,
    .fact = fact,
    .row = row,
    .takeover = takeover,
};
