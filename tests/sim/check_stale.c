/*
 * check_stale.c - no stale attempt is accepted.
 *
 * The model knows, from committed rows, each task's latest attempts: token, worker, and when and how they ended. What a
 * worker says may be taken only if it quotes the token of an attempt that had not ended when it was said, or that had
 * ended just so.
 */
#include "sim/check.h"
#include "sim/sim.h"

#define REMEMBERED 8

struct grant {
    uint32_t attempt; /* 0: none */
    uint32_t worker;
    struct lease_token token;
    enum attempt_outcome outcome;
    uint64_t ended_no; /* row */
};

struct stale_task {
    uint32_t latest;
    struct grant grants[REMEMBERED];
};

struct stale {
    struct stale_task tasks[MAX_TASKS];
};

static struct grant *grant_of(struct stale_task *task, uint32_t attempt)
{
    struct grant *grant = &task->grants[attempt % REMEMBERED];
    return grant->attempt == attempt && attempt > 0 ? grant : NULL;
}

static void begin_attempt(struct sim *sim, struct stale_task *task, const struct row_note *note, struct grant grant)
{
    if (grant.attempt <= task->latest) {
        sim_fail(sim, PROPERTY_stale, "%s: attempt %u is given after attempt %u", task_text(sim, note->tid),
                 grant.attempt, task->latest);
    }
    task->latest = grant.attempt;
    task->grants[grant.attempt % REMEMBERED] = grant;
}

static void end_attempt(struct sim *sim, struct stale_task *task, const struct row_note *note)
{
    const struct row_attempt *row = (const struct row_attempt *)note->row;
    struct grant *grant = grant_of(task, row->attempt);
    if (grant == NULL) {
        sim_fail(sim, PROPERTY_stale, "%s: attempt %u ends and was never given", task_text(sim, note->tid),
                 row->attempt);
        return;
    }
    bool is_verdict = row->outcome == OUTCOME_COMPLETED || row->outcome == OUTCOME_FAILED;
    if (is_verdict && (grant->outcome != OUTCOME_PENDING || row->attempt != task->latest)) {
        sim_fail(sim, PROPERTY_stale, "%s: attempt %u (latest is %u) was %s and becomes %s", task_text(sim, note->tid),
                 row->attempt, task->latest, attempt_outcome_name(grant->outcome), attempt_outcome_name(row->outcome));
    }
    grant->outcome = row->outcome;
    grant->ended_no = note->no;
}

static void sweep(struct sim *sim, struct stale *stale, const struct row_note *note)
{
    const struct stored_job *job = &sim->store.jobs[note->job];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            struct stale_task *task = &stale->tasks[job->stages[s].first_tid + t];
            struct grant *grant = grant_of(task, task->latest);
            if (grant != NULL && grant->outcome == OUTCOME_PENDING) {
                grant->outcome = OUTCOME_LOST;
                grant->ended_no = note->no;
            }
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct stale *stale = state;
    if (note->row->kind == ROW_JOB_SWEEP) {
        sweep(sim, stale, note);
        return;
    }
    struct stale_task *task = &stale->tasks[note->tid];
    if (note->row->kind == ROW_TASK) {
        if (((const struct row_task *)note->row)->is_new) {
            *task = (struct stale_task){0};
        }
    } else if (note->row->kind == ROW_LEASE) {
        const struct row_lease *lease = (const struct row_lease *)note->row;
        begin_attempt(
            sim, task, note,
            (struct grant){
                .attempt = lease->attempt, .worker = note->worker, .token = lease->token, .outcome = OUTCOME_PENDING});
    } else {
        const struct row_attempt *attempt = (const struct row_attempt *)note->row;
        if (attempt->outcome != OUTCOME_PENDING) {
            end_attempt(sim, task, note);
        } else if (attempt->worker_id == NULL) { /* a child job has no lease */
            begin_attempt(sim, task, note,
                          (struct grant){.attempt = attempt->attempt, .worker = NO_INDEX, .outcome = OUTCOME_PENDING});
        }
    }
}

/* `state` is what the worker says of the attempt; TASK_RUNNING if only that it lives. */
static void check_accepted(struct sim *sim, struct stale *stale, const struct msg *request, const struct ref *ref,
                           enum task_state said)
{
    uint32_t tid = store_tid(&sim->store, ref->job, ref->stage, ref->task);
    struct grant *grant = tid == NO_INDEX ? NULL : grant_of(&stale->tasks[tid], ref->attempt);
    if (grant == NULL) {
        sim_fail(sim, PROPERTY_stale, "a worker speaks for attempt %u of %s %u.%u, which was never given, and is heard",
                 ref->attempt, job_name(ref->job), ref->stage, ref->task);
        return;
    }
    if (!lease_token_equal(grant->token, ref->token)) {
        sim_fail(sim, PROPERTY_stale, "%s: a report of attempt %u with a wrong token is accepted", task_text(sim, tid),
                 ref->attempt);
    }
    if (grant->outcome == OUTCOME_PENDING || grant->ended_no > request->step_row) {
        if (grant->worker != request->worker) {
            sim_fail(sim, PROPERTY_stale, "%s: %s speaks for attempt %u, which %s has, and is heard",
                     task_text(sim, tid), worker_name(request->worker), ref->attempt, worker_name(grant->worker));
        }
        return;
    }
    bool is_repeat = (grant->outcome == OUTCOME_COMPLETED && said != TASK_FAILED) ||
                     (grant->outcome == OUTCOME_FAILED && said == TASK_FAILED);
    if (!is_repeat) {
        sim_fail(sim, PROPERTY_stale, "%s: attempt %u had ended as %s, and then a report of %s is accepted",
                 task_text(sim, tid), ref->attempt, attempt_outcome_name(grant->outcome), task_state_name(said));
    }
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    struct stale *stale = state;
    if (reply->kind == REPLY_ACCEPT && reply->u.accept == REFUSE_NONE) {
        check_accepted(sim, stale, request, &request->u.output.ref, TASK_RUNNING);
    }
    if (reply->kind != REPLY_REPORT) {
        return;
    }
    for (uint32_t i = 0; i < reply->u.report.n_outcomes; i++) {
        if (reply->u.report.outcomes[i] == REFUSE_NONE) {
            const struct report *report = &request->u.report.reports[i];
            check_accepted(sim, stale, request, &report->ref, report->state);
        }
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    UNUSED(state); /* a task's model is made with its row */
}

const struct checker check_stale = {
    .property = PROPERTY_stale,
    .state_size = sizeof(struct stale),
    .row_kinds = BIT(ROW_JOB_SWEEP) | BIT(ROW_TASK) | BIT(ROW_LEASE) | BIT(ROW_ATTEMPT),
    .leave_kinds = BIT(CMD_REPORT) | BIT(CMD_MAP_OUTPUT) | BIT(CMD_RESULTS),
    .reset = reset,
    .row = row,
    .leave = leave,
};
