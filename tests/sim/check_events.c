/*
 * check_events.c - events are numbered without gaps, over all leaders.
 */
#include "sim/check.h"
#include "sim/sim.h"

struct events_state {
    uint64_t last_seq;
};

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct events_state *events = state;
    const struct row_event *event = (const struct row_event *)note->row;
    if (event->seq != events->last_seq + 1) {
        sim_fail(sim, PROPERTY_events, "event %llu follows on event %llu", (unsigned long long)event->seq,
                 (unsigned long long)events->last_seq);
    }
    events->last_seq = event->seq;
}

const struct checker check_events = {
    .property = PROPERTY_events,
    .state_size = sizeof(struct events_state),
    .row_kinds = BIT(ROW_EVENT),
    .row = row,
};
