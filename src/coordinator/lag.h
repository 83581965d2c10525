/*
 * lag.h - when something was sent, by the clock of whoever receives it.
 *
 * A message bears the sender's time. Neither knows what the other's clock shows, but the one that came fastest tells most:
 * what came later by the receiver's clock than that one would let expect was late by so much. So a message that lay in a
 * buffer for seconds, because the receiver was frozen or the network slow, is not taken for a new one. Only the first of
 * all has nothing to be compared with: it counts as sent when it came.
 *
 * What came fastest counts a little less as time passes, because two clocks do not run equally fast.
 *
 * Nothing here reads a clock. Ownership: a value, for one stream of one sender. Threads: one at a time.
 */
#ifndef CAPSTAN_COORDINATOR_LAG_H
#define CAPSTAN_COORDINATOR_LAG_H

#include <stdbool.h>
#include <stdint.h>

#define LAG_DRIFT 1000 /* clocks that are set right gently differ by less than one part in so many */

struct lag {
    bool is_known;
    int64_t least_ms;   /* of the message that came fastest: received, minus sent by the sender's clock */
    int64_t sent_at_ms; /* that message */
};

/* When a message that came now was sent, by the receiver's clock and at the latest. */
static inline int64_t lag_sent_mono_ms(struct lag *lag, int64_t sent_at_ms, int64_t received_mono_ms)
{
    int64_t ms = received_mono_ms - sent_at_ms;
    int64_t expected_ms = lag->least_ms + (sent_at_ms - lag->sent_at_ms) / LAG_DRIFT;
    if (!lag->is_known || ms <= expected_ms) {
        *lag = (struct lag){.is_known = true, .least_ms = ms, .sent_at_ms = sent_at_ms};
        return received_mono_ms;
    }
    return sent_at_ms + expected_ms;
}

#endif
