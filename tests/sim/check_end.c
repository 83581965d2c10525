/*
 * check_end.c - every job ends after the heal.
 *
 * The run itself watches the time. When it is over, nothing may be half done: no task queued or running, no attempt
 * without an outcome, no job with an end that its tasks do not agree with.
 */
#include "sim/check.h"
#include "sim/sim.h"

static void check_job(struct sim *sim, uint32_t index)
{
    const struct stored_job *job = &sim->store.jobs[index];
    bool all_succeeded = true;
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            uint32_t tid = job->stages[s].first_tid + t;
            const struct row_task *task = &sim->store.tasks[tid].row;
            all_succeeded = all_succeeded && task->state == TASK_SUCCEEDED;
            if (!task_state_is_terminal(task->state) || task->outcome == OUTCOME_PENDING) {
                sim_fail(sim, PROPERTY_end, "%s is %s, its last attempt %s, although its job is %s",
                         task_text(sim, tid), task_state_name(task->state), attempt_outcome_name(task->outcome),
                         job_state_name(job->row.state));
            }
        }
    }
    if (!job_state_is_terminal(job->row.state)) {
        sim_fail(sim, PROPERTY_end, "%s is still %s", job_name(index), job_state_name(job->row.state));
    }
    if ((job->row.state == JOB_SUCCEEDED) != all_succeeded && job->row.state != JOB_CANCELED) {
        sim_fail(sim, PROPERTY_end, "%s is %s, and its tasks do not agree", job_name(index),
                 job_state_name(job->row.state));
    }
}

static void end(struct sim *sim, void *state)
{
    UNUSED(state);
    for (uint32_t i = 0; i < sim->store.n_jobs; i++) {
        if (sim->store.jobs[i].present) {
            check_job(sim, i);
        }
    }
}

const struct checker check_end = {
    .property = PROPERTY_end,
    .end = end,
};
