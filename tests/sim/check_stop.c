/*
 * check_stop.c - a worker is told to stop what is over, and nothing else.
 *
 * The model knows each task's latest attempts and how they ended. A heartbeat names what a process runs; its answer
 * must order the end of everything that is not the process's any more, and leave alone what is.
 */
#include "sim/check.h"
#include "sim/sim.h"

#define REMEMBERED 8

struct stop_attempt {
    uint32_t attempt; /* 0: none */
    uint32_t worker;
    struct lease_token token;
    enum attempt_outcome outcome;
    uint64_t ended_no; /* row */
};

struct stop_task {
    uint32_t latest;
    struct stop_attempt attempts[REMEMBERED];
};

struct stop_state {
    struct stop_task tasks[MAX_TASKS];
};

static void end_attempt(struct stop_task *task, uint32_t number, enum attempt_outcome outcome, uint64_t no)
{
    struct stop_attempt *attempt = &task->attempts[number % REMEMBERED];
    if (attempt->attempt == number && attempt->outcome == OUTCOME_PENDING) {
        attempt->outcome = outcome;
        attempt->ended_no = no;
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct stop_state *stop = state;
    if (note->row->kind == ROW_JOB_SWEEP) {
        const struct stored_job *job = &sim->store.jobs[note->job];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                struct stop_task *task = &stop->tasks[job->stages[s].first_tid + t];
                end_attempt(task, task->latest, OUTCOME_LOST, note->no);
            }
        }
        return;
    }
    struct stop_task *task = &stop->tasks[note->tid];
    if (note->row->kind == ROW_TASK) {
        if (((const struct row_task *)note->row)->is_new) {
            *task = (struct stop_task){0};
        }
    } else if (note->row->kind == ROW_LEASE) {
        const struct row_lease *lease = (const struct row_lease *)note->row;
        task->latest = lease->attempt;
        task->attempts[lease->attempt % REMEMBERED] = (struct stop_attempt){
            .attempt = lease->attempt, .worker = note->worker, .token = lease->token, .outcome = OUTCOME_PENDING};
    } else {
        const struct row_attempt *attempt = (const struct row_attempt *)note->row;
        if (attempt->outcome != OUTCOME_PENDING) {
            end_attempt(task, attempt->attempt, attempt->outcome, note->no);
        }
    }
}

enum verdict { MUST_GO_ON, MUST_STOP, MAY_STOP };

static enum verdict judge(const struct sim *sim, const struct stop_state *stop, const struct msg *request,
                          const struct ref *ref)
{
    uint32_t tid = store_tid(&sim->store, ref->job, ref->stage, ref->task);
    if (tid == NO_INDEX) {
        return MUST_STOP;
    }
    const struct stop_attempt *attempt = &stop->tasks[tid].attempts[ref->attempt % REMEMBERED];
    if (ref->attempt == 0 || attempt->attempt != ref->attempt || !lease_token_equal(attempt->token, ref->token)) {
        return MUST_STOP;
    }
    if (attempt->outcome == OUTCOME_PENDING || attempt->ended_no > request->step_row) {
        return attempt->worker == request->worker ? MUST_GO_ON : MAY_STOP; /* a lie */
    }
    return attempt->outcome == OUTCOME_LOST ? MUST_STOP : MAY_STOP;
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    const struct stop_state *stop = state;
    if (reply->kind != REPLY_HEARTBEAT || !reply->u.heartbeat.accepted) {
        return;
    }
    for (uint32_t i = 0; i < request->u.heartbeat.n_running; i++) {
        const struct ref *ref = &request->u.heartbeat.running[i];
        bool is_told = false;
        for (uint32_t k = 0; k < reply->u.heartbeat.n_stop; k++) {
            is_told = is_told || (lease_token_equal(reply->u.heartbeat.stop[k].token, ref->token) &&
                                  reply->u.heartbeat.stop[k].attempt == ref->attempt);
        }
        enum verdict verdict = judge(sim, stop, request, ref);
        if ((verdict == MUST_GO_ON && is_told) || (verdict == MUST_STOP && !is_told)) {
            sim_fail(sim, PROPERTY_stop, "%s names attempt %u of %s %u.%u, which is %s, and is %s",
                     worker_name(request->worker), ref->attempt, job_name(ref->job), ref->stage, ref->task,
                     verdict == MUST_STOP ? "over" : "its own", is_told ? "told to stop it" : "not told to stop it");
        }
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    UNUSED(state); /* a task's model is made with its row */
}

const struct checker check_stop = {
    .property = PROPERTY_stop,
    .state_size = sizeof(struct stop_state),
    .row_kinds = BIT(ROW_JOB_SWEEP) | BIT(ROW_TASK) | BIT(ROW_LEASE) | BIT(ROW_ATTEMPT),
    .leave_kinds = BIT(CMD_HEARTBEAT),
    .reset = reset,
    .row = row,
    .leave = leave,
};
