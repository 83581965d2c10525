/*
 * check_capability.c - a task runs only where its executor and operators are.
 *
 * The model knows what each worker has said of itself: executors and engine with its registration, operators also with
 * every heartbeat, less those that it was found to lack. What it says counts from the moment at which the leader took
 * it, so the last few versions are kept with the number of the row that was written then.
 */
#include "sim/check.h"
#include "sim/sim.h"

#define VERSIONS 8

struct skills {
    uint64_t since_no; /* row */
    uint32_t executors;
    uint32_t ops;
    enum engine_trait engine;
};

struct capability_worker {
    struct skills versions[VERSIONS]; /* newest at `newest`, older ones behind it, around the end */
    uint32_t newest;
};

struct capability_state {
    struct capability_worker workers[MAX_WORKERS];
    uint32_t judged[MAX_TASKS]; /* the newest attempt of which a report was taken: repetitions count nothing */
};

static void add_version(struct capability_worker *worker, struct skills skills)
{
    struct skills *last = &worker->versions[worker->newest];
    if (last->ops == skills.ops && last->executors == skills.executors && last->engine == skills.engine) {
        /* An immediate answer is heard of before the earlier ones of its batch. */
        last->since_no = last->since_no < skills.since_no ? last->since_no : skills.since_no;
        return;
    }
    worker->newest = (worker->newest + 1) % VERSIONS;
    worker->versions[worker->newest] = skills;
}

static const struct skills *version_at(const struct capability_worker *worker, uint64_t no)
{
    for (uint32_t back = 0; back < VERSIONS; back++) {
        const struct skills *skills = &worker->versions[(worker->newest + VERSIONS - back) % VERSIONS];
        if (skills->since_no < no) {
            return skills;
        }
    }
    return NULL;
}

static void fact_report(const struct sim *sim, struct capability_state *state, const struct msg *request,
                        const struct reply *reply)
{
    struct capability_worker *worker = &state->workers[request->worker];
    for (uint32_t i = 0; i < reply->u.report.n_outcomes; i++) {
        const struct report *report = &request->u.report.reports[i];
        uint32_t tid = store_tid(&sim->store, report->ref.job, report->ref.stage, report->ref.task);
        if (!report_is_final(report, reply->u.report.outcomes[i]) || tid == NO_INDEX ||
            state->judged[tid] >= report->ref.attempt) {
            continue;
        }
        state->judged[tid] = report->ref.attempt;
        if (report->state != TASK_FAILED || report->missing_op == NO_INDEX) {
            continue;
        }
        struct skills skills = worker->versions[worker->newest];
        skills.since_no = request->step_row;
        skills.ops &= ~(1U << report->missing_op);
        add_version(worker, skills);
    }
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    struct capability_state *capability = state;
    struct capability_worker *worker = &capability->workers[request->worker];
    struct skills skills = worker->versions[worker->newest];
    skills.since_no = request->step_row;
    if (reply->kind == REPLY_REGISTER) {
        const struct traits *traits = &request->u.reg;
        skills.executors = traits->executors;
        skills.ops = traits->ops;
        skills.engine = traits->engine;
        add_version(worker, skills);
    } else if (reply->kind == REPLY_HEARTBEAT && reply->u.heartbeat.accepted) {
        skills.ops = request->u.heartbeat.ops;
        add_version(worker, skills);
    } else if (reply->kind == REPLY_REPORT) {
        fact_report(sim, capability, request, reply);
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    const struct capability_state *capability = state;
    const struct stored_stage *stage = &sim->store.jobs[note->job].stages[note->stage];
    const struct wants *wants = &sim->world.needs[sim->world.stage_defs[stage->def].need].wants;
    const struct skills *skills = version_at(&capability->workers[note->worker], note->no);
    if (skills == NULL) {
        return; /* too long ago to know */
    }
    if (wants->executor != NO_INDEX && (skills->executors >> wants->executor & 1) == 0) {
        sim_fail(sim, PROPERTY_capability, "%s needs executor %s and is given to %s, which does not have it",
                 task_text(sim, note->tid), executor_name(wants->executor), worker_name(note->worker));
    }
    uint32_t missing = wants->ops & ~skills->ops;
    if (missing != 0) {
        sim_fail(sim, PROPERTY_capability, "%s needs operator %s and is given to %s, which does not have it",
                 task_text(sim, note->tid), op_name((uint32_t)__builtin_ctz(missing)), worker_name(note->worker));
    }
    if (wants->engine && skills->engine != ENGINE_RIGHT) {
        sim_fail(sim, PROPERTY_capability, "%s needs another engine than %s has", task_text(sim, note->tid),
                 worker_name(note->worker));
    }
}

/* A new leader knows what was stored; what was said but not stored yet will be said again. */
static void takeover(struct sim *sim, void *state)
{
    struct capability_state *capability = state;
    for (uint32_t w = 0; w < MAX_WORKERS; w++) {
        const struct stored_node *node = &sim->store.nodes[w];
        if (!node->present) {
            continue;
        }
        struct capability_worker *worker = &capability->workers[w];
        struct skills skills = worker->versions[worker->newest];
        skills.ops = 0;
        for (uint32_t i = 0; i < node->row.offer->ops.count; i++) {
            skills.ops |= 1U << op_index(node->row.offer->ops.items[i]);
        }
        skills.since_no = sim->leader.batch[0].row_base;
        add_version(worker, skills);
    }
}

const struct checker check_capability = {
    .property = PROPERTY_capability,
    .state_size = sizeof(struct capability_state),
    .row_kinds = BIT(ROW_LEASE),
    .fact_kinds = BIT(CMD_REGISTER) | BIT(CMD_HEARTBEAT) | BIT(CMD_REPORT),
    .fact = fact,
    .row = row,
    .takeover = takeover,
};
