/*
 * check_budget.c - a task is tried as often as its budget says.
 *
 * A failed report costs one failure; a release, a fetch failure and a missing operator cost nothing; a lost worker
 * costs at most one. A task is failed for good when its budget is used up or it said that it is not retryable, never
 * before, and it is never queued after that.
 */
#include "sim/check.h"
#include "sim/retries.h"
#include "sim/sim.h"

struct budget_task {
    uint32_t failures; /* as stored */
    enum task_state state;
    uint32_t attempt; /* the one that `said` is about; 0: none */
    bool costs;       /* it said that it failed, at its own cost */
    bool is_final;    /* and that it should not be tried again */
    bool is_free;     /* it was released, or could not be blamed */
    bool is_paid;     /* a row with its cost was written */
};

struct budget {
    struct budget_task tasks[MAX_TASKS];
    struct retries retries[MAX_JOBS];
};

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        ((struct budget *)state)->retries[i].n = 0;
    }
}

static void fact_report(struct sim *sim, struct budget *budget, const struct report *report, enum refusal refusal)
{
    uint32_t tid = store_tid(&sim->store, report->ref.job, report->ref.stage, report->ref.task);
    bool is_bad_plan =
        report->state == TASK_SUCCEEDED && report->plan && sim->world.stage_defs[report->def].is_bad_plan;
    if (!report_is_final(report, refusal) || tid == NO_INDEX || budget->tasks[tid].attempt >= report->ref.attempt) {
        return;
    }
    struct budget_task *task = &budget->tasks[tid];
    bool blames = report->n_fetch > 0 || report->missing_op != NO_INDEX;
    task->attempt = report->ref.attempt;
    task->is_final = (report->state == TASK_FAILED && !blames && report->not_retryable) || is_bad_plan;
    task->costs = (report->state == TASK_FAILED && !blames) || is_bad_plan;
    task->is_free = report->state == TASK_QUEUED || report->missing_op != NO_INDEX;
    task->is_paid = false;
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    struct budget *budget = state;
    if (request->kind == CMD_RETRY) {
        retries_add(&budget->retries[request->job], request, reply);
        return;
    }
    for (uint32_t i = 0; reply->kind == REPLY_REPORT && i < reply->u.report.n_outcomes; i++) {
        fact_report(sim, budget, &request->u.report.reports[i], reply->u.report.outcomes[i]);
    }
}

static void check_cost(struct sim *sim, const struct budget_task *task, const struct row_note *note)
{
    const struct row_task *row = (const struct row_task *)note->row;
    uint32_t cost = row->failures - task->failures;
    bool is_told = task->attempt == row->attempt && row->attempt > 0;
    bool is_free = (is_told && task->is_free) || row->state == TASK_RUNNING;
    bool must_cost = is_told && task->costs && !task->is_paid;
    if (cost > 1 || (cost == 1 && is_free) || (cost == 0 && must_cost)) {
        sim_fail(sim, PROPERTY_budget, "%s: attempt %u cost %u failures", task_text(sim, note->tid), row->attempt,
                 cost);
    }
}

static void row_task(struct sim *sim, struct budget *budget, const struct row_note *note)
{
    const struct row_task *row = (const struct row_task *)note->row;
    struct budget_task *task = &budget->tasks[note->tid];
    const struct stage_spec *spec = sim->store.jobs[note->job].stages[note->stage].spec;
    uint32_t max = spec->max_attempts > 0 ? spec->max_attempts : (uint32_t)sim->world.config.max_task_attempts;
    if (row->is_new) {
        *task = (struct budget_task){0};
    } else if (retries_cover(&budget->retries[note->job], note->no) && row->failures == 0) {
        task->failures = 0;
    } else {
        check_cost(sim, task, note);
    }
    bool did_not_succeed = task->state == TASK_FAILED || task->state == TASK_CANCELED || task->state == TASK_SKIPPED;
    if (did_not_succeed && row->state == TASK_QUEUED && row->failures != 0 && !row->is_new) {
        sim_fail(sim, PROPERTY_budget, "%s is run again by a retry with %u failures on its account",
                 task_text(sim, note->tid), row->failures);
    }
    bool is_final = task->is_final && task->attempt == row->attempt;
    if (row->state == TASK_FAILED && row->failures < max && !is_final && !spec->child) {
        sim_fail(sim, PROPERTY_budget, "%s failed for good after %u failures, its budget is %u",
                 task_text(sim, note->tid), row->failures, max);
    }
    bool is_over = row->failures >= max || (is_final && row->outcome == OUTCOME_FAILED);
    if (row->state == TASK_QUEUED && is_over && row->outcome != OUTCOME_COMPLETED &&
        !retries_cover(&budget->retries[note->job], note->no)) {
        sim_fail(sim, PROPERTY_budget, "%s is queued again after %u failures, its budget is %u",
                 task_text(sim, note->tid), row->failures, max);
    }
    task->failures = row->failures;
    task->state = row->state;
    task->is_paid = true;
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct budget *budget = state;
    if (note->row->kind == ROW_JOB_SWEEP) {
        const struct stored_job *job = &sim->store.jobs[note->job];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                struct budget_task *task = &budget->tasks[job->stages[s].first_tid + t];
                task->state = task_state_is_terminal(task->state) ? task->state : TASK_CANCELED;
            }
        }
        return;
    }
    row_task(sim, budget, note);
}

const struct checker check_budget = {
    .property = PROPERTY_budget,
    .state_size = sizeof(struct budget),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_JOB_SWEEP),
    .fact_kinds = BIT(CMD_REPORT) | BIT(CMD_RETRY),
    .reset = reset,
    .fact = fact,
    .row = row,
};
