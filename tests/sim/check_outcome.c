/*
 * check_outcome.c - a job ends as its tasks say, and a task is given up only for a reason.
 *
 * The model is the state of every task as its rows say. A job succeeds if all its tasks did. It fails if one failed,
 * or if a stage lost its map outputs too often. Unless it stops at the first failure, everything that could run has
 * run then. A task is skipped only if something that it requires went wrong.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/sim.h"

struct outcome {
    enum task_state tasks[MAX_TASKS];
    bool is_exhausted[MAX_JOBS]; /* a stage lost its outputs too often */
    bool is_terminal[MAX_JOBS];
    bool must_end[MAX_JOBS]; /* because of that */
};

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct outcome *outcome = state;
    memset(outcome->is_exhausted, 0, sizeof(outcome->is_exhausted));
    memset(outcome->is_terminal, 0, sizeof(outcome->is_terminal));
    memset(outcome->must_end, 0, sizeof(outcome->must_end));
}

static bool has_bad_parent(const struct sim *sim, const struct outcome *outcome, uint32_t index, uint32_t stage)
{
    const struct stored_job *job = &sim->store.jobs[index];
    const struct stage_spec *spec = job->stages[stage].spec;
    for (uint32_t p = 0; p < spec->n_parents; p++) {
        const struct stored_stage *parent = &job->stages[spec->parents[p].stage];
        for (uint32_t t = 0; !spec->parents[p].optional && t < parent->spec->n_tasks; t++) {
            enum task_state state = outcome->tasks[parent->first_tid + t];
            if (state == TASK_FAILED || state == TASK_SKIPPED || state == TASK_CANCELED) {
                return true;
            }
        }
    }
    return false;
}

static void check_job(struct sim *sim, const struct outcome *outcome, const struct row_note *note)
{
    const struct row_job *row = (const struct row_job *)note->row;
    const struct stored_job *job = &sim->store.jobs[note->job];
    bool stops = sim->world.jobs[note->job].submit.stop_on_failure || job->row.kind == JOB_KIND_QUERY;
    uint32_t n_failed = 0;
    uint32_t n_open = 0;
    uint32_t n_not_succeeded = 0;
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            enum task_state state = outcome->tasks[job->stages[s].first_tid + t];
            n_failed += state == TASK_FAILED;
            n_open += !task_state_is_terminal(state);
            n_not_succeeded += state != TASK_SUCCEEDED;
        }
    }
    bool is_right = true;
    if (row->state == JOB_SUCCEEDED) {
        is_right = n_not_succeeded == 0;
    } else if (row->state == JOB_FAILED) {
        is_right = (n_failed > 0 && (stops || n_open == 0)) || outcome->is_exhausted[note->job];
    }
    if (!is_right) {
        sim_fail(sim, PROPERTY_outcome, "%s is %s with %u tasks failed, %u open, %u not succeeded", row->job_id,
                 job_state_name(row->state), n_failed, n_open, n_not_succeeded);
    }
}

static void row_job(struct sim *sim, struct outcome *outcome, const struct row_note *note)
{
    const struct row_job *row = (const struct row_job *)note->row;
    bool is_terminal = job_state_is_terminal(row->state);
    if (is_terminal && !outcome->is_terminal[note->job]) {
        check_job(sim, outcome, note);
    }
    outcome->is_terminal[note->job] = is_terminal;
    outcome->must_end[note->job] = outcome->must_end[note->job] && !is_terminal;
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct outcome *outcome = state;
    if (note->row->kind == ROW_JOB) {
        row_job(sim, outcome, note);
    } else if (note->row->kind == ROW_STAGE) {
        const struct row_stage *stage = (const struct row_stage *)note->row;
        if (!stage->is_new && stage->n_recovered > sim->world.config.max_fetch_recoveries) {
            outcome->is_exhausted[note->job] = true;
            outcome->must_end[note->job] = true;
        }
    } else if (note->row->kind == ROW_LEASE) {
        if (outcome->must_end[note->job]) {
            sim_fail(sim, PROPERTY_outcome, "%s goes on although a stage lost its map outputs too often",
                     job_name(note->job));
        }
    } else if (note->row->kind == ROW_TASK) {
        const struct row_task *task = (const struct row_task *)note->row;
        outcome->tasks[note->tid] = task->state;
        if (task->state == TASK_SKIPPED && !has_bad_parent(sim, outcome, note->job, note->stage)) {
            sim_fail(sim, PROPERTY_outcome, "%s is skipped, and nothing that it requires went wrong",
                     task_text(sim, note->tid));
        }
    } else {
        const struct stored_job *job = &sim->store.jobs[note->job];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                enum task_state *task = &outcome->tasks[job->stages[s].first_tid + t];
                *task = task_state_is_terminal(*task) ? *task : TASK_CANCELED;
            }
        }
    }
}

const struct checker check_outcome = {
    .property = PROPERTY_outcome,
    .state_size = sizeof(struct outcome),
    .row_kinds = BIT(ROW_JOB) | BIT(ROW_STAGE) | BIT(ROW_TASK) | BIT(ROW_LEASE) | BIT(ROW_JOB_SWEEP),
    .reset = reset,
    .row = row,
};
