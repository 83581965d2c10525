#include "coordinator/patience.h"

#include "test.h"

#define CHUNK_BYTES ((size_t)256 * 1024)
#define CHUNKS 100000

/* How many chunks a reader gets that lets us wait so long for each. */
static uint32_t chunks_until_given_up(int64_t each_ms)
{
    struct patience patience = PATIENCE_FULL;
    uint32_t n = 0;
    while (n < CHUNKS && each_ms < patience.left_ms) {
        patience_spend(&patience, each_ms, CHUNK_BYTES);
        n++;
    }
    return n;
}

TEST(a_reader_that_takes_nothing_has_its_time_and_no_more)
{
    CHECK_UINT(chunks_until_given_up(PATIENCE_MS), 0);
    CHECK_UINT(chunks_until_given_up(PATIENCE_MS - 1), 1);
}

TEST(a_reader_that_takes_a_little_now_and_then_is_given_up)
{
    CHECK_UINT(chunks_until_given_up(19000), 1);
    CHECK_UINT(chunks_until_given_up(5000), 4);
    CHECK(chunks_until_given_up(1100) < 200);
}

TEST(a_reader_that_is_fast_enough_gets_everything)
{
    CHECK_UINT(chunks_until_given_up(1000), CHUNKS);
    CHECK_UINT(chunks_until_given_up(0), CHUNKS);
}

TEST(a_fast_reader_saves_no_time_for_a_long_pause)
{
    struct patience patience = PATIENCE_FULL;
    for (int i = 0; i < 1000; i++) {
        patience_spend(&patience, 0, CHUNK_BYTES);
    }
    CHECK_INT(patience.left_ms, PATIENCE_MS);
    patience_spend(&patience, PATIENCE_MS, 0);
    CHECK_INT(patience.left_ms, 0);
}
