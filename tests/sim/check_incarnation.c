/*
 * check_incarnation.c - only the newest process of a worker is heard.
 *
 * The model knows from the registrations that were taken which process was a worker's current one at which moment.
 * Only that one may renew leases, get tasks, or have a report taken that moves anything.
 */
#include "sim/check.h"
#include "sim/sim.h"

#define CHANGES 8

struct incarnation_change {
    uint64_t step_no; /* the newest row before it */
    uint32_t proc;    /* NO_INDEX: it left */
};

struct incarnation_worker {
    struct incarnation_change changes[CHANGES]; /* a ring */
    uint32_t n;
};

struct incarnation {
    struct incarnation_worker workers[MAX_WORKERS];
};

static void note_change(struct incarnation_worker *worker, uint64_t step_no, uint32_t proc)
{
    if (worker->n == 0 || worker->changes[(worker->n - 1) % CHANGES].proc != proc) {
        worker->changes[worker->n++ % CHANGES] = (struct incarnation_change){.step_no = step_no, .proc = proc};
    }
}

/* False only if it is certain that another process was current at that step. */
static bool may_be_current(const struct incarnation_worker *worker, uint64_t step_no, uint32_t proc)
{
    for (uint32_t back = 1; back <= CHANGES && back <= worker->n; back++) {
        const struct incarnation_change *change = &worker->changes[(worker->n - back) % CHANGES];
        if (change->proc == proc) {
            return true;
        }
        if (change->step_no < step_no) {
            return false;
        }
    }
    return true;
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    UNUSED(sim);
    struct incarnation_worker *worker = &((struct incarnation *)state)->workers[request->worker];
    if (reply->kind == REPLY_REGISTER) {
        note_change(worker, request->step_row, request->proc);
    } else if (request->kind == CMD_DEREGISTER && reply->kind == REPLY_DONE && worker->n > 0 &&
               worker->changes[(worker->n - 1) % CHANGES].proc == request->proc) {
        note_change(worker, request->step_row, NO_INDEX);
    }
}

/* How what it said was taken; NULL: it was not, or it changes nothing. */
static const char *taken_as(const struct reply *reply)
{
    if (reply->kind == REPLY_HEARTBEAT && reply->u.heartbeat.accepted) {
        return "its heartbeat is taken";
    }
    if (reply->kind == REPLY_TASKS && reply->u.tasks.n_tasks > 0) {
        return "it gets tasks";
    }
    return NULL;
}

/* A registration that the core may have taken, and that is not committed yet. */
static bool has_open_registration(struct sim *sim, uint32_t proc)
{
    for (uint32_t m = sim->leader.first_held; m != 0; m = net_msg(sim, m)->next) {
        if (net_msg(sim, m)->kind == CMD_REGISTER && net_msg(sim, m)->proc == proc) {
            return true;
        }
    }
    return false;
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    const struct incarnation_worker *worker = &((struct incarnation *)state)->workers[request->worker];
    const char *how = taken_as(reply);
    if (how != NULL && !may_be_current(worker, request->step_row, request->proc) &&
        !(reply->immediate && has_open_registration(sim, request->proc))) {
        sim_fail(sim, PROPERTY_incarnation, "%s is not the process of %s any more, and %s", proc_name(request->proc),
                 worker_name(request->worker), how);
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    for (uint32_t w = 0; w < MAX_WORKERS; w++) {
        ((struct incarnation *)state)->workers[w].n = 0;
    }
}

const struct checker check_incarnation = {
    .property = PROPERTY_incarnation,
    .state_size = sizeof(struct incarnation),
    .fact_kinds = BIT(CMD_REGISTER) | BIT(CMD_DEREGISTER),
    .leave_kinds = BIT(CMD_HEARTBEAT) | BIT(CMD_GET_TASK),
    .reset = reset,
    .fact = fact,
    .leave = leave,
};
