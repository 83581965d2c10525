/*
 * check_durable.c - nothing leaves before it is durable.
 *
 * At the moment at which an answer leaves, what it says is compared with what is in the store. The store may be ahead
 * of the answer, never behind it.
 */
#include "sim/check.h"
#include "sim/sim.h"

struct durable {
    uint32_t reached[MAX_JOBS]; /* bits: states that the job was stored in */
    bool is_registered[MAX_PROCS];
};

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    UNUSED(sim);
    struct durable *durable = state;
    if (note->row->kind == ROW_JOB) {
        durable->reached[note->job] |= 1U << ((const struct row_job *)note->row)->state;
    } else {
        durable->is_registered[name_index(((const struct row_node *)note->row)->incarnation)] = true;
    }
}

static const struct stored_task *stored(const struct sim *sim, const struct task_ref *ref)
{
    uint32_t tid = store_ref_tid(&sim->store, ref);
    return tid == NO_INDEX ? NULL : &sim->store.tasks[tid];
}

static void check_job_told(struct sim *sim, const struct durable *durable, const struct reply *reply)
{
    uint32_t job = name_index(reply->u.job.job_id);
    if ((durable->reached[job] >> reply->u.job.state & 1) == 0) {
        sim_fail(sim, PROPERTY_durable, "a client is told that %s is %s, the store has never known it so",
                 reply->u.job.job_id, job_state_name(reply->u.job.state));
    }
}

static void check_tasks_told(struct sim *sim, const struct reply *reply)
{
    for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
        const struct stored_task *task = stored(sim, &a->ref.task);
        bool is_stored =
            task != NULL && (task->row.attempt > a->ref.attempt ||
                             (task->row.attempt == a->ref.attempt && lease_token_equal(task->row.token, a->ref.token)));
        if (!is_stored) {
            sim_fail(sim, PROPERTY_durable, "attempt %u of %s %u.%u is handed out and not stored", a->ref.attempt,
                     a->ref.task.job_id, a->ref.task.stage, a->ref.task.task);
        }
    }
}

/* A worker may be told to stop only what the store knows to be over. */
static void check_stops_told(struct sim *sim, uint32_t worker, const struct attempt_ref *stops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct stored_task *task = stored(sim, &stops[i].task);
        bool is_live = task != NULL && task->has_lease && task->row.state == TASK_RUNNING &&
                       task->lease.attempt == stops[i].attempt &&
                       lease_token_equal(task->lease.token, stops[i].token) &&
                       name_index(task->lease.worker_id) == worker;
        if (is_live) {
            sim_fail(sim, PROPERTY_durable,
                     "a worker is told to stop attempt %u of %s, which the store says is running", stops[i].attempt,
                     stops[i].task.job_id);
        }
    }
}

static void check_reports_told(struct sim *sim, const struct msg *request, const struct reply *reply)
{
    for (uint32_t i = 0; i < reply->u.report.n_outcomes; i++) {
        const struct report *report = &request->u.report.reports[i];
        if (reply->u.report.outcomes[i] != REFUSE_NONE || report->state == TASK_RUNNING) {
            continue;
        }
        uint32_t tid = store_tid(&sim->store, report->ref.job, report->ref.stage, report->ref.task);
        const struct row_task *task = tid == NO_INDEX ? NULL : &sim->store.tasks[tid].row;
        if (task == NULL || task->attempt < report->ref.attempt ||
            (task->attempt == report->ref.attempt && task->outcome == OUTCOME_PENDING)) {
            sim_fail(sim, PROPERTY_durable,
                     "a worker is told that its report of attempt %u of %s %u.%u counts, and it is not stored",
                     report->ref.attempt, job_name(report->ref.job), report->ref.stage, report->ref.task);
        }
    }
}

static void check_output_told(struct sim *sim, const struct msg *request)
{
    const struct ref *ref = &request->u.output.ref;
    uint32_t tid = store_tid(&sim->store, ref->job, ref->stage, ref->task);
    const struct stored_task *task = tid == NO_INDEX ? NULL : &sim->store.tasks[tid];
    if (task == NULL || task->row.attempt > ref->attempt || task->row.outcome != OUTCOME_PENDING) {
        return; /* it is over already */
    }
    uint32_t first = request->kind == CMD_MAP_OUTPUT ? task->maps : task->results;
    if (first == 0) {
        sim_fail(sim, PROPERTY_durable,
                 "a worker is told that its output of attempt %u of %s %u.%u is registered, and it is not stored",
                 ref->attempt, job_name(ref->job), ref->stage, ref->task);
    }
}

static void check_child_told(struct sim *sim, const struct msg *request)
{
    const struct ref *ref = &request->u.child_news;
    const struct stored_task *task = &sim->store.tasks[store_tid(&sim->store, ref->job, ref->stage, ref->task)];
    if (task->row.attempt == ref->attempt && task->row.outcome == OUTCOME_PENDING) {
        sim_fail(sim, PROPERTY_durable,
                 "what the child of attempt %u of %s %u.%u brought is taken, and it is not stored", ref->attempt,
                 job_name(ref->job), ref->stage, ref->task);
    }
}

static void check_heartbeat_told(struct sim *sim, const struct durable *durable, const struct msg *request,
                                 const struct reply *reply)
{
    check_stops_told(sim, request->worker, reply->u.heartbeat.stop, reply->u.heartbeat.n_stop);
    for (uint32_t i = 0; i < reply->u.heartbeat.n_ended_jobs; i++) {
        uint32_t job = name_index(reply->u.heartbeat.ended_jobs[i]);
        uint32_t ends = BIT(JOB_SUCCEEDED) | BIT(JOB_FAILED) | BIT(JOB_CANCELED);
        if ((durable->reached[job] & ends) == 0) {
            sim_fail(sim, PROPERTY_durable, "a worker is told that %s has ended, the store says %s", job_name(job),
                     job_state_name(sim->store.jobs[job].row.state));
        }
    }
    for (uint32_t i = 0; i < reply->u.heartbeat.n_failed_jobs; i++) {
        uint32_t job = name_index(reply->u.heartbeat.failed_jobs[i]);
        if ((durable->reached[job] & (BIT(JOB_FAILED) | BIT(JOB_CANCELED))) == 0) {
            sim_fail(sim, PROPERTY_durable, "a worker is told that %s has no results, the store says %s", job_name(job),
                     job_state_name(sim->store.jobs[job].row.state));
        }
    }
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    const struct durable *durable = state;
    switch (reply->kind) {
    case REPLY_SUBMIT:
    case REPLY_JOB:
        check_job_told(sim, durable, reply);
        break;
    case REPLY_REGISTER:
        if (!durable->is_registered[request->proc]) {
            sim_fail(sim, PROPERTY_durable, "%s is told that it is registered, and it is not stored",
                     worker_name(request->worker));
        }
        break;
    case REPLY_HEARTBEAT:
        check_heartbeat_told(sim, durable, request, reply);
        break;
    case REPLY_TASKS:
        check_tasks_told(sim, reply);
        check_stops_told(sim, request->worker, reply->u.tasks.stop, reply->u.tasks.n_stop);
        break;
    case REPLY_REPORT:
        check_reports_told(sim, request, reply);
        break;
    case REPLY_ACCEPT:
        if (request->kind == CMD_CHILD_DONE) {
            check_child_told(sim, request);
        } else if (reply->u.accept == REFUSE_NONE) {
            check_output_told(sim, request);
        }
        break;
    case REPLY_ERROR:
    case REPLY_DONE:
        break;
    }
}

const struct checker check_durable = {
    .property = PROPERTY_durable,
    .state_size = sizeof(struct durable),
    .row_kinds = BIT(ROW_JOB) | BIT(ROW_NODE),
    .row = row,
    .leave_kinds = UINT32_MAX,
    .leave = leave,
};
