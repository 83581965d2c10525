/*
 * check_priority.c - urgent tasks go first.
 *
 * The model is the state of every task as its rows say. When a task is handed out, no task of a more urgent job may
 * wait that this worker could have had instead. Judged are only waiting tasks that any worker can run and that never
 * went wrong; a task that reads map outputs may go to the worker that has them, whatever else that worker could do.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/sim.h"

struct priority_state {
    enum task_state tasks[MAX_TASKS];
    int64_t ready_at_ms[MAX_TASKS];
    uint32_t attempt[MAX_TASKS];
    uint32_t n_queued[MAX_JOBS];
    uint32_t n_running[MAX_JOBS];
};

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct priority_state *priority = state;
    memset(priority->n_queued, 0, sizeof(priority->n_queued));
    memset(priority->n_running, 0, sizeof(priority->n_running));
}

static void set_state(struct priority_state *priority, uint32_t job, uint32_t tid, enum task_state to, bool is_new)
{
    if (!is_new) {
        priority->n_queued[job] -= priority->tasks[tid] == TASK_QUEUED;
        priority->n_running[job] -= priority->tasks[tid] == TASK_RUNNING;
    }
    priority->tasks[tid] = to;
    priority->n_queued[job] += to == TASK_QUEUED;
    priority->n_running[job] += to == TASK_RUNNING;
}

/* The stage's tasks may start, and any worker can run them. */
static bool is_open_to_all(const struct sim *sim, const struct priority_state *priority, const struct stored_job *job,
                           const struct stored_stage *stage)
{
    if (stage->spec->child || sim->world.stage_defs[stage->def].need != 0) {
        return false;
    }
    for (uint32_t p = 0; p < stage->spec->n_parents; p++) {
        const struct stage_parent *parent = &stage->spec->parents[p];
        const struct stored_stage *other = &job->stages[parent->stage];
        for (uint32_t t = 0; t < other->spec->n_tasks; t++) {
            if (priority->tasks[other->first_tid + t] != TASK_SUCCEEDED) {
                return false;
            }
        }
    }
    return true;
}

/* A task of this job that waits and that any worker could have; NO_INDEX: none. */
static uint32_t find_waiting(const struct sim *sim, const struct priority_state *priority, uint32_t index,
                             int64_t now_ms)
{
    const struct stored_job *job = &sim->store.jobs[index];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        const struct stored_stage *stage = &job->stages[s];
        if (!is_open_to_all(sim, priority, job, stage)) {
            continue;
        }
        for (uint32_t t = 0; t < stage->spec->n_tasks; t++) {
            uint32_t tid = stage->first_tid + t;
            if (priority->tasks[tid] == TASK_QUEUED && priority->attempt[tid] == 0 &&
                priority->ready_at_ms[tid] <= now_ms) {
                return tid;
            }
        }
    }
    return NO_INDEX;
}

static void check_lease_row(struct sim *sim, const struct priority_state *priority, const struct row_note *note)
{
    const struct row_lease *lease = (const struct row_lease *)note->row;
    const struct stored_job *given = &sim->store.jobs[note->job];
    const struct stage_spec *spec = given->stages[note->stage].spec;
    for (uint32_t p = 0; p < spec->n_parents; p++) {
        if (spec->parents[p].read != READ_NONE) {
            return;
        }
    }
    for (uint32_t i = 0; i < sim->store.n_jobs && given->row.priority > 0; i++) {
        const struct stored_job *job = &sim->store.jobs[i];
        if (priority->n_queued[i] == 0 || job->row.priority >= given->row.priority ||
            !store_job_is_open(&sim->store, i) ||
            priority->n_running[i] >= sim->world.config.max_concurrent_tasks_per_query) {
            continue;
        }
        uint32_t tid = find_waiting(sim, priority, i, lease->acquired_at_ms);
        if (tid != NO_INDEX) {
            sim_fail(sim, PROPERTY_priority, "%s %u.%u of priority %u is given to %s while %s of priority %u waits",
                     job_name(note->job), note->stage, lease->ref.task, given->row.priority, worker_name(note->worker),
                     task_text(sim, tid), job->row.priority);
            return;
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct priority_state *priority = state;
    if (note->row->kind == ROW_LEASE) {
        check_lease_row(sim, priority, note);
        return;
    }
    if (note->row->kind == ROW_JOB_SWEEP) {
        const struct stored_job *job = &sim->store.jobs[note->job];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                uint32_t tid = job->stages[s].first_tid + t;
                if (!task_state_is_terminal(priority->tasks[tid])) {
                    set_state(priority, note->job, tid, TASK_CANCELED, false);
                }
            }
        }
        return;
    }
    const struct row_task *row = (const struct row_task *)note->row;
    set_state(priority, note->job, note->tid, row->state, row->is_new);
    priority->ready_at_ms[note->tid] = row->ready_at_ms;
    priority->attempt[note->tid] = row->attempt;
}

const struct checker check_priority = {
    .property = PROPERTY_priority,
    .state_size = sizeof(struct priority_state),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_LEASE) | BIT(ROW_JOB_SWEEP),
    .reset = reset,
    .row = row,
};
