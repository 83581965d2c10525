/*
 * check_terminal.c - what has ended stays ended, except by a retry.
 *
 * The model is the state of every job and task as their rows say, and the retries that were granted: the rows that a
 * retry writes follow directly on the number at which it was stepped.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/retries.h"
#include "sim/sim.h"

struct terminal {
    enum job_state jobs[MAX_JOBS];
    struct retries retries[MAX_JOBS];
    enum task_state tasks[MAX_TASKS];
};

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct terminal *terminal = state;
    memset(terminal->jobs, 0, sizeof(terminal->jobs));
    memset(terminal->retries, 0, sizeof(terminal->retries));
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    UNUSED(sim);
    retries_add(&((struct terminal *)state)->retries[request->job], request, reply);
}

static void row_job(struct sim *sim, struct terminal *terminal, const struct row_note *note)
{
    const struct row_job *row = (const struct row_job *)note->row;
    enum job_state before = row->is_new ? JOB_QUEUED : terminal->jobs[note->job];
    bool is_wrong = job_state_is_terminal(before) && row->state != before &&
                    (job_state_is_terminal(row->state) || !retries_cover(&terminal->retries[note->job], note->no));
    if (is_wrong) {
        sim_fail(sim, PROPERTY_terminal, "%s was %s and becomes %s", row->job_id, job_state_name(before),
                 job_state_name(row->state));
    }
    terminal->jobs[note->job] = row->state;
}

static void row_task(struct sim *sim, struct terminal *terminal, const struct row_note *note)
{
    const struct row_task *row = (const struct row_task *)note->row;
    enum task_state before = row->is_new ? TASK_QUEUED : terminal->tasks[note->tid];
    bool is_retried = retries_cover(&terminal->retries[note->job], note->no);
    if (job_state_is_terminal(terminal->jobs[note->job]) && row->state != before && !is_retried) {
        sim_fail(sim, PROPERTY_terminal, "%s was %s and becomes %s, although its job is %s", task_text(sim, note->tid),
                 task_state_name(before), task_state_name(row->state), job_state_name(terminal->jobs[note->job]));
    }
    if (task_state_is_terminal(before) && before != TASK_SUCCEEDED && row->state != before && !is_retried) {
        sim_fail(sim, PROPERTY_terminal, "%s was %s and becomes %s", task_text(sim, note->tid), task_state_name(before),
                 task_state_name(row->state));
    }
    terminal->tasks[note->tid] = row->state;
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct terminal *terminal = state;
    if (note->row->kind == ROW_JOB) {
        row_job(sim, terminal, note);
    } else if (note->row->kind == ROW_TASK) {
        row_task(sim, terminal, note);
    } else if (note->row->kind == ROW_JOB_SWEEP) {
        const struct stored_job *job = &sim->store.jobs[note->job];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                enum task_state *task = &terminal->tasks[job->stages[s].first_tid + t];
                *task = task_state_is_terminal(*task) ? *task : TASK_CANCELED;
            }
        }
    } else if (job_state_is_terminal(terminal->jobs[note->job])) {
        sim_fail(sim, PROPERTY_terminal, "%s is leased although its job is %s", task_text(sim, note->tid),
                 job_state_name(terminal->jobs[note->job]));
    }
}

const struct checker check_terminal = {
    .property = PROPERTY_terminal,
    .state_size = sizeof(struct terminal),
    .row_kinds = BIT(ROW_JOB) | BIT(ROW_TASK) | BIT(ROW_JOB_SWEEP) | BIT(ROW_LEASE),
    .fact_kinds = BIT(CMD_RETRY),
    .reset = reset,
    .fact = fact,
    .row = row,
};
