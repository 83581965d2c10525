#include "coordinator/lag.h"

#include "test.h"

#define SENDER_MS INT64_C(1700000000000) /* what the sender's clock shows when the receiver's shows 0 */
#define WAY_MS 3                         /* how long a message takes at least */
#define BEAT_MS 500

/* When a message was sent, as the receiver takes it; all times by the receiver's clock. */
static int64_t sent(struct lag *lag, int64_t sent_mono_ms, int64_t received_mono_ms)
{
    return lag_sent_mono_ms(lag, SENDER_MS + sent_mono_ms, received_mono_ms);
}

TEST(the_first_message_counts_from_when_it_came)
{
    struct lag lag = {0};
    CHECK_INT(sent(&lag, 1000, 1000 + WAY_MS), 1000 + WAY_MS);
}

TEST(messages_that_lay_in_a_buffer_are_as_old_as_they_are)
{
    struct lag lag = {0};
    for (int64_t ms = 0; ms < 10000; ms += BEAT_MS) {
        CHECK_INT(sent(&lag, ms, ms + WAY_MS), ms + WAY_MS);
    }
    for (int64_t ms = 10000; ms < 25000; ms += BEAT_MS) { /* all of them come when the receiver goes on */
        int64_t taken_ms = sent(&lag, ms, 25000);
        CHECK(taken_ms >= ms + WAY_MS);
        CHECK(taken_ms <= ms + WAY_MS + 15000 / LAG_DRIFT);
    }
    CHECK_INT(sent(&lag, 25000, 25000 + WAY_MS), 25000 + WAY_MS);
}

TEST(one_that_comes_faster_than_all_before_tells_how_late_those_were)
{
    struct lag lag = {0};
    CHECK_INT(sent(&lag, 0, 2000), 2000); /* nobody can know yet */
    CHECK_INT(sent(&lag, 500, 510), 510);
    CHECK_INT(sent(&lag, 600, 2600), 610);
}

TEST(clocks_that_do_not_run_equally_fast_make_nothing_seem_old)
{
    struct lag lag = {0};
    for (int64_t ms = 0; ms < INT64_C(86400000); ms += 60000) {
        int64_t received_ms = ms + WAY_MS + ms / 2000; /* the receiver's clock is the faster one */
        CHECK_INT(sent(&lag, ms, received_ms), received_ms);
    }
    lag = (struct lag){0};
    for (int64_t ms = 0; ms < INT64_C(86400000); ms += 60000) {
        int64_t received_ms = ms + WAY_MS - ms / 2000;
        CHECK_INT(sent(&lag, ms, received_ms), received_ms);
    }
}

TEST(a_network_that_has_become_slow_is_noticed_for_long)
{
    struct lag lag = {0};
    CHECK_INT(sent(&lag, 0, WAY_MS), WAY_MS);
    for (int64_t ms = BEAT_MS; ms < 600000; ms += BEAT_MS) {
        CHECK(sent(&lag, ms, ms + 1500) <= ms + WAY_MS + 600);
    }
}
