/*
 * check_drain.c - a draining worker gets nothing new.
 *
 * The model follows the orders that were carried out: drained after this row, in use again after that one.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/sim.h"

#define ORDERS 8

struct order {
    uint64_t step_no; /* the newest row before it */
    bool draining;
};

struct drain_worker {
    struct order orders[ORDERS]; /* a ring */
    uint32_t n_orders;
};

struct drain {
    struct drain_worker workers[MAX_WORKERS];
};

static void give_order(struct drain *drain, uint32_t w, uint64_t step_no, bool draining)
{
    struct drain_worker *worker = &drain->workers[w];
    worker->orders[worker->n_orders++ % ORDERS] = (struct order){.step_no = step_no, .draining = draining};
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    UNUSED(sim);
    if (reply->kind == REPLY_DONE && request->u.set_node.set_draining) {
        give_order(state, request->worker, request->step_row, request->u.set_node.draining);
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct drain *drain = state;
    if (note->row->kind == ROW_NODE_GONE) {
        give_order(drain, note->worker, note->no, false); /* forgotten, and with it the order */
        return;
    }
    const struct drain_worker *worker = &drain->workers[note->worker];
    const struct order *latest = NULL;
    for (uint32_t i = 0; i < ORDERS && i < worker->n_orders; i++) {
        const struct order *order = &worker->orders[i];
        if (order->step_no < note->no && (latest == NULL || order->step_no >= latest->step_no)) {
            latest = order;
        }
    }
    if (latest != NULL && latest->draining && worker->n_orders <= ORDERS) {
        sim_fail(sim, PROPERTY_drain, "%s is given to %s, which is draining", task_text(sim, note->tid),
                 worker_name(note->worker));
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct drain *drain = state;
    for (uint32_t w = 0; w < MAX_WORKERS; w++) {
        drain->workers[w].n_orders = 0;
    }
}

const struct checker check_drain = {
    .property = PROPERTY_drain,
    .state_size = sizeof(struct drain),
    .row_kinds = BIT(ROW_LEASE) | BIT(ROW_NODE_GONE),
    .fact_kinds = BIT(CMD_SET_NODE),
    .reset = reset,
    .fact = fact,
    .row = row,
};
