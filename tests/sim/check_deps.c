/*
 * check_deps.c - a task starts only after what it depends on.
 *
 * The model is the state of every task as its rows say. When a row says that a task has started, all tasks of its
 * required parents must have succeeded, and those of its optional parents must have ended.
 */
#include "sim/check.h"
#include "sim/sim.h"

struct deps_task {
    enum task_state state;
    uint32_t attempt;
};

struct deps {
    struct deps_task tasks[MAX_TASKS];
};

static void sweep(struct sim *sim, struct deps *deps, uint32_t index)
{
    const struct stored_job *job = &sim->store.jobs[index];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            struct deps_task *task = &deps->tasks[job->stages[s].first_tid + t];
            if (task->state == TASK_QUEUED || task->state == TASK_RUNNING) {
                task->state = TASK_CANCELED;
            }
        }
    }
}

static void check_start(struct sim *sim, const struct deps *deps, const struct row_note *note)
{
    const struct stored_job *job = &sim->store.jobs[note->job];
    const struct stage_spec *spec = job->stages[note->stage].spec;
    for (uint32_t p = 0; p < spec->n_parents; p++) {
        const struct stage_parent *parent = &spec->parents[p];
        const struct stored_stage *stage = &job->stages[parent->stage];
        for (uint32_t t = 0; t < stage->spec->n_tasks; t++) {
            enum task_state state = deps->tasks[stage->first_tid + t].state;
            if (state == TASK_SUCCEEDED || (parent->optional && task_state_is_terminal(state))) {
                continue;
            }
            sim_fail(sim, PROPERTY_deps, "%s starts while task %u of its %s parent, stage %u, is %s",
                     task_text(sim, note->tid), t, parent->optional ? "optional" : "required", parent->stage,
                     task_state_name(state));
            return;
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct deps *deps = state;
    if (note->row->kind == ROW_JOB_SWEEP) {
        sweep(sim, deps, note->job);
        return;
    }
    const struct row_task *row = (const struct row_task *)note->row;
    struct deps_task *task = &deps->tasks[note->tid];
    if (row->is_new) {
        task->attempt = 0;
    }
    if (row->state == TASK_RUNNING && row->attempt > task->attempt) {
        check_start(sim, deps, note);
    }
    task->state = row->state;
    task->attempt = row->attempt;
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    UNUSED(state); /* a task's model is made with its row */
}

const struct checker check_deps = {
    .property = PROPERTY_deps,
    .state_size = sizeof(struct deps),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_JOB_SWEEP),
    .reset = reset,
    .row = row,
};
