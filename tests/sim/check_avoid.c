/*
 * check_avoid.c - a task does not go back to a worker on which it failed, while another live worker could take it.
 *
 * The model notes on which workers a task's attempts went wrong. It judges only tasks that any worker can run, so that
 * "could take it" needs no more than a live worker that is neither blacklisted nor draining.
 */
#include "base/limits.h"
#include "sim/check.h"
#include "sim/sim.h"

struct avoid_task {
    uint32_t failed_on;  /* bits of workers: failed reports that were taken */
    uint32_t suspicious; /* these, and all others on which an attempt ended without success */
    uint32_t judged;     /* the newest attempt whose report was counted */
};

struct avoid {
    struct avoid_task tasks[MAX_TASKS];
};

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    struct avoid *avoid = state;
    for (uint32_t i = 0; reply->kind == REPLY_REPORT && i < reply->u.report.n_outcomes; i++) {
        const struct report *report = &request->u.report.reports[i];
        uint32_t tid = store_tid(&sim->store, report->ref.job, report->ref.stage, report->ref.task);
        if (!report_is_final(report, reply->u.report.outcomes[i]) || tid == NO_INDEX ||
            avoid->tasks[tid].judged >= report->ref.attempt) {
            continue;
        }
        avoid->tasks[tid].judged = report->ref.attempt;
        if (report->state == TASK_FAILED) {
            avoid->tasks[tid].failed_on |= BIT(request->worker);
        }
    }
}

static void check_lease_row(struct sim *sim, const struct avoid *avoid, const struct row_note *note)
{
    const struct avoid_task *task = &avoid->tasks[note->tid];
    const struct stored_stage *stage = &sim->store.jobs[note->job].stages[note->stage];
    bool anyone_can = sim->world.stage_defs[stage->def].need == 0;
    if ((task->failed_on >> note->worker & 1) == 0 || !anyone_can ||
        __builtin_popcount(task->suspicious) > LIMIT_ATTEMPTS_REMEMBERED) {
        return;
    }
    for (uint32_t w = 0; w < MAX_WORKERS; w++) {
        const struct stored_node *node = &sim->store.nodes[w];
        if (node->present && node->row.is_live && !node->row.draining && node->row.blacklisted_until_ms == 0 &&
            (task->suspicious >> w & 1) == 0) {
            sim_fail(sim, PROPERTY_avoid, "%s goes back to %s, where it failed, although %s could take it",
                     task_text(sim, note->tid), worker_name(note->worker), worker_name(w));
            return;
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct avoid *avoid = state;
    if (note->row->kind == ROW_JOB) {
        const struct stored_job *job = &sim->store.jobs[note->job];
        bool starts_afresh = ((const struct row_job *)note->row)->state == JOB_QUEUED; /* new, or retried */
        for (uint32_t s = 0; starts_afresh && s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                avoid->tasks[job->stages[s].first_tid + t].failed_on = 0;
            }
        }
        return;
    }
    struct avoid_task *task = &avoid->tasks[note->tid];
    if (note->row->kind == ROW_TASK) {
        if (((const struct row_task *)note->row)->is_new) {
            *task = (struct avoid_task){0};
        }
    } else if (note->row->kind == ROW_LEASE) {
        check_lease_row(sim, avoid, note);
    } else {
        enum attempt_outcome outcome = ((const struct row_attempt *)note->row)->outcome;
        if (note->worker != NO_INDEX && (outcome == OUTCOME_FAILED || outcome == OUTCOME_LOST)) {
            task->suspicious |= BIT(note->worker);
        }
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    UNUSED(state); /* a task's model is made with its row */
}

const struct checker check_avoid = {
    .property = PROPERTY_avoid,
    .state_size = sizeof(struct avoid),
    .row_kinds = BIT(ROW_JOB) | BIT(ROW_TASK) | BIT(ROW_LEASE) | BIT(ROW_ATTEMPT),
    .fact_kinds = BIT(CMD_REPORT),
    .reset = reset,
    .fact = fact,
    .row = row,
};
