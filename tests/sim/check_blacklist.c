/*
 * check_blacklist.c - a blacklisted worker gets nothing.
 *
 * The model counts failures per worker by itself: a retryable failed report that was taken adds one, unless the task
 * went wrong on another worker before; a success that was taken sets the count to 0. At the threshold the worker is
 * blacklisted until its time is over or somebody clears it. The model errs on the side of fewer blacklistings.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/sim.h"

struct blacklist_worker {
    uint32_t failures;
    bool is_listed;
    uint64_t listed_no;        /* row */
    int64_t until_ms;          /* leader time */
    int64_t heard_ms;          /* until when the core says that it is listed, as stored */
    int64_t heard_by_clock_ms; /* the same by the present leader's clock */
};

static void unlist(struct blacklist_worker *worker)
{
    worker->failures = 0;
    worker->is_listed = false;
    worker->until_ms = 0;
}

struct blacklist_task {
    uint32_t went_wrong_on; /* bits of workers */
    uint32_t judged;        /* the newest attempt whose report was counted */
};

struct blacklist {
    struct blacklist_worker workers[MAX_WORKERS];
    struct blacklist_task tasks[MAX_TASKS];
};

static void count_failure(struct sim *sim, struct blacklist_worker *worker, const struct msg *request)
{
    const struct core_config *config = &sim->world.config;
    if (worker->is_listed || ++worker->failures < config->blacklist_failure_threshold) {
        return;
    }
    worker->is_listed = true;
    worker->failures = 0;
    worker->listed_no = request->step_row;
    worker->until_ms = config->blacklist_ttl_ms == 0 ? INT64_MAX : request->step_now_ms + config->blacklist_ttl_ms;
}

static void count_report(struct sim *sim, struct blacklist *blacklist, const struct msg *request,
                         const struct report *report, enum refusal refusal)
{
    uint32_t tid = store_tid(&sim->store, report->ref.job, report->ref.stage, report->ref.task);
    if (!report_is_final(report, refusal) || tid == NO_INDEX || blacklist->tasks[tid].judged >= report->ref.attempt) {
        return;
    }
    struct blacklist_task *task = &blacklist->tasks[tid];
    struct blacklist_worker *worker = &blacklist->workers[request->worker];
    task->judged = report->ref.attempt;
    if (report->state == TASK_SUCCEEDED && refusal == REFUSE_NONE) {
        worker->failures = 0;
    }
    if (report->state != TASK_FAILED) {
        return;
    }
    bool is_own_fault = (task->went_wrong_on & ~(1U << request->worker)) != 0;
    bool counts = !report->not_retryable && report->n_fetch == 0 && report->missing_op == NO_INDEX;
    if (counts && !is_own_fault) {
        count_failure(sim, worker, request);
    }
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    struct blacklist *blacklist = state;
    if (request->kind == CMD_SET_NODE) {
        if (reply->kind == REPLY_DONE && request->u.set_node.clear_blacklist) {
            unlist(&blacklist->workers[request->worker]);
        }
        return;
    }
    for (uint32_t i = 0; reply->kind == REPLY_REPORT && i < reply->u.report.n_outcomes; i++) {
        count_report(sim, blacklist, request, &request->u.report.reports[i], reply->u.report.outcomes[i]);
    }
}

static void check_lease_row(struct sim *sim, struct blacklist *blacklist, const struct row_note *note)
{
    const struct row_lease *lease = (const struct row_lease *)note->row;
    struct blacklist_worker *worker = &blacklist->workers[note->worker];
    if (!worker->is_listed || worker->listed_no >= note->no) {
        return;
    }
    if (lease->acquired_at_ms >= worker->until_ms) {
        unlist(worker);
        return;
    }
    sim_fail(sim, PROPERTY_blacklist, "%s is given to %s, which is blacklisted", task_text(sim, note->tid),
             worker_name(note->worker));
}

/* The core counted one more and listed it earlier: then its time is over earlier, too. */
static void hear_of_listing(struct blacklist_worker *worker, int64_t until_ms)
{
    if (until_ms == 0) {
        return;
    }
    if (until_ms != worker->heard_ms) {
        worker->heard_ms = until_ms;
        worker->heard_by_clock_ms = until_ms;
    }
    if (!worker->is_listed) {
        worker->failures = 0;
    } else if (worker->heard_by_clock_ms < worker->until_ms) {
        worker->until_ms = worker->heard_by_clock_ms;
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct blacklist *blacklist = state;
    switch (note->row->kind) {
    case ROW_TASK:
        if (((const struct row_task *)note->row)->is_new) {
            blacklist->tasks[note->tid] = (struct blacklist_task){0};
        }
        break;
    case ROW_ATTEMPT: {
        enum attempt_outcome outcome = ((const struct row_attempt *)note->row)->outcome;
        if (note->worker != NO_INDEX && (outcome == OUTCOME_FAILED || outcome == OUTCOME_LOST)) {
            blacklist->tasks[note->tid].went_wrong_on |= 1U << note->worker;
        }
        break;
    }
    case ROW_LEASE:
        check_lease_row(sim, blacklist, note);
        break;
    case ROW_NODE_GONE:
        unlist(&blacklist->workers[note->worker]);
        break;
    case ROW_NODE:
        hear_of_listing(&blacklist->workers[note->worker], ((const struct row_node *)note->row)->blacklisted_until_ms);
        break;
    case ROW_JOB:
    case ROW_JOB_SWEEP:
    case ROW_STAGE:
    case ROW_LEASE_GONE:
    case ROW_MAP_OUTPUT:
    case ROW_MAP_OUTPUT_GONE:
    case ROW_RESULT:
    case ROW_RESULT_GONE:
    case ROW_EVENT:
    case ROW_META:
        break;
    }
}

/* The new leader may have another clock; it waits no longer than a full period. */
static void takeover(struct sim *sim, void *state)
{
    struct blacklist *blacklist = state;
    for (uint32_t w = 0; w < MAX_WORKERS; w++) {
        struct blacklist_worker *worker = &blacklist->workers[w];
        if (worker->is_listed && worker->until_ms <= sim->leader.past_now_max_ms) {
            unlist(worker);
        }
        int64_t latest_ms = sim->leader.now_max_ms + sim->world.config.blacklist_ttl_ms;
        if (worker->until_ms != INT64_MAX && worker->until_ms > latest_ms) {
            worker->until_ms = latest_ms;
        }
        if (worker->heard_by_clock_ms != INT64_MAX && worker->heard_by_clock_ms > latest_ms) {
            worker->heard_by_clock_ms = latest_ms;
        }
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct blacklist *blacklist = state;
    memset(blacklist->workers, 0, sizeof(blacklist->workers));
}

const struct checker check_blacklist = {
    .property = PROPERTY_blacklist,
    .state_size = sizeof(struct blacklist),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_ATTEMPT) | BIT(ROW_LEASE) | BIT(ROW_NODE) | BIT(ROW_NODE_GONE),
    .fact_kinds = BIT(CMD_REPORT) | BIT(CMD_SET_NODE),
    .reset = reset,
    .fact = fact,
    .row = row,
    .takeover = takeover,
};
