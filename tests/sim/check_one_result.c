/*
 * check_one_result.c - at most one committed result per task.
 *
 * The model remembers which attempt of a task completed. Another one may complete only after the first was taken
 * back, and that only for a reason: the job is run again, the map output is gone, or a nondeterministic input is
 * being redone. When a job succeeds, every final task has exactly one result, of the attempt that completed.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/retries.h"
#include "sim/sim.h"

struct one_result {
    uint32_t winner[MAX_TASKS]; /* attempt; 0: none */
    bool is_output_gone[MAX_TASKS];
    bool is_terminal[MAX_JOBS];
    struct retries retries[MAX_JOBS];
    bool was_undone[MAX_JOBS][MAX_STAGES]; /* a completed task of the stage was taken back */
};

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct one_result *one = state;
    memset(one->is_terminal, 0, sizeof(one->is_terminal));
    memset(one->retries, 0, sizeof(one->retries));
    memset(one->was_undone, 0, sizeof(one->was_undone));
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    UNUSED(sim);
    retries_add(&((struct one_result *)state)->retries[request->job], request, reply);
}

/* Some stage whose rows reach this one is nondeterministic and was redone. Parents have smaller ids. */
static bool has_redone_input(const struct sim *sim, const struct one_result *one, uint32_t index, uint32_t stage)
{
    const struct stored_job *job = &sim->store.jobs[index];
    bool reaches[MAX_STAGES] = {false};
    reaches[stage] = true;
    for (uint32_t s = stage + 1; s-- > 0;) {
        if (!reaches[s]) {
            continue;
        }
        const struct stage_spec *spec = job->stages[s].spec;
        if (s != stage && spec->nondeterministic && one->was_undone[index][s]) {
            return true;
        }
        for (uint32_t p = 0; p < spec->n_parents; p++) {
            reaches[spec->parents[p].stage] |= spec->parents[p].read != READ_NONE;
        }
    }
    return false;
}

static void take_back(struct sim *sim, struct one_result *one, const struct row_note *note)
{
    const struct stage_spec *spec = sim->store.jobs[note->job].stages[note->stage].spec;
    bool is_lost_map = spec->output == OUTPUT_SHUFFLE && one->is_output_gone[note->tid];
    if (!retries_cover(&one->retries[note->job], note->no) && !is_lost_map &&
        !has_redone_input(sim, one, note->job, note->stage)) {
        sim_fail(sim, PROPERTY_one_result, "%s: the result of attempt %u is taken back for no reason",
                 task_text(sim, note->tid), one->winner[note->tid]);
    }
    one->winner[note->tid] = 0;
    one->was_undone[note->job][note->stage] = true;
}

static void check_results(struct sim *sim, const struct one_result *one, const struct row_note *note)
{
    const struct stored_job *job = &sim->store.jobs[note->job];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        const struct stage_spec *spec = job->stages[s].spec;
        for (uint32_t t = 0; spec->output == OUTPUT_RESULT && t < spec->n_tasks; t++) {
            uint32_t tid = job->stages[s].first_tid + t;
            uint32_t first = sim->store.tasks[tid].results;
            if (first == 0 || sim->store.results[first].next != 0 ||
                sim->store.results[first].row.attempt != one->winner[tid]) {
                sim_fail(sim, PROPERTY_one_result,
                         "%s: the job succeeded, and its result is not that of attempt %u alone", task_text(sim, tid),
                         one->winner[tid]);
            }
        }
    }
}

static void row_attempt(struct sim *sim, struct one_result *one, const struct row_note *note)
{
    const struct row_attempt *row = (const struct row_attempt *)note->row;
    if (row->outcome != OUTCOME_COMPLETED) {
        return;
    }
    if (one->winner[note->tid] != 0) {
        sim_fail(sim, PROPERTY_one_result, "%s: attempt %u completes after attempt %u did", task_text(sim, note->tid),
                 row->attempt, one->winner[note->tid]);
    }
    one->winner[note->tid] = row->attempt;
}

static void row_job(struct sim *sim, struct one_result *one, const struct row_note *note)
{
    const struct row_job *row = (const struct row_job *)note->row;
    if (row->state == JOB_SUCCEEDED && !one->is_terminal[note->job]) {
        check_results(sim, one, note);
    }
    one->is_terminal[note->job] = job_state_is_terminal(row->state);
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct one_result *one = state;
    if (note->row->kind == ROW_JOB) {
        row_job(sim, one, note);
    } else if (note->row->kind == ROW_JOB_SWEEP) {
        const struct stored_job *job = &sim->store.jobs[note->job];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                one->is_output_gone[job->stages[s].first_tid + t] = true;
            }
        }
    } else if (note->row->kind == ROW_ATTEMPT) {
        row_attempt(sim, one, note);
    } else if (note->row->kind == ROW_MAP_OUTPUT) {
        one->is_output_gone[note->tid] = false;
    } else if (note->row->kind == ROW_MAP_OUTPUT_GONE) {
        one->is_output_gone[note->tid] = true;
    } else {
        const struct row_task *task = (const struct row_task *)note->row;
        if (task->is_new) {
            one->winner[note->tid] = 0;
            one->is_output_gone[note->tid] = false;
        }
        if (task->state != TASK_SUCCEEDED && one->winner[note->tid] != 0) {
            take_back(sim, one, note);
        }
    }
}

const struct checker check_one_result = {
    .property = PROPERTY_one_result,
    .state_size = sizeof(struct one_result),
    .row_kinds = BIT(ROW_JOB) | BIT(ROW_JOB_SWEEP) | BIT(ROW_TASK) | BIT(ROW_ATTEMPT) | BIT(ROW_MAP_OUTPUT) |
                 BIT(ROW_MAP_OUTPUT_GONE),
    .fact_kinds = BIT(CMD_RETRY),
    .reset = reset,
    .fact = fact,
    .row = row,
};
