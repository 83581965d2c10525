#include "../test.h"

#include <string.h>

#include "base/mem.h"
#include "base/prng.h"
#include "exec/tail.h"

TEST(a_short_stream_is_kept_whole)
{
    struct tail tail = {0};
    tail_append(&tail, "ab", 2);
    tail_append(&tail, NULL, 0);
    tail_append(&tail, "c", 1);
    tail_finish(&tail);
    CHECK_UINT(tail.n, 3);
    CHECK_MEM(tail.data, "abc", 3);
    CHECK_UINT(tail.cut, 0);
    tail_deinit(&tail);
}

TEST(of_a_long_stream_the_end_is_kept_in_whatever_pieces_it_comes)
{
    struct prng prng;
    prng_init(&prng, 7);
    for (int round = 0; round < 20; round++) {
        size_t total = TAIL_BYTES * 5 + prng_below(&prng, 1000);
        char *all = mem_alloc(total);
        for (size_t i = 0; i < total; i++) {
            all[i] = (char)('a' + prng_below(&prng, 26));
        }
        struct tail tail = {0};
        size_t done = 0;
        while (done < total) {
            size_t n = 1 + prng_below(&prng, round % 2 == 0 ? 3 * TAIL_BYTES : 5000);
            n = n < total - done ? n : total - done;
            tail_append(&tail, all + done, n);
            done += n;
        }
        tail_finish(&tail);
        CHECK_UINT(tail.n, TAIL_BYTES);
        CHECK_UINT(tail.cut, total - TAIL_BYTES);
        CHECK_MEM(tail.data, all + total - TAIL_BYTES, TAIL_BYTES);
        CHECK(tail.cap <= 2 * TAIL_BYTES);
        tail_deinit(&tail);
        mem_free(all);
    }
}

TEST(a_cut_inside_a_character_takes_the_rest_of_it_away)
{
    struct tail tail = {0};
    char rest[TAIL_BYTES - 1];
    memset(rest, 'x', sizeof(rest));
    tail_append(&tail, "\xe2\x82\xac", 3); /* one character of three bytes; the last would be left */
    tail_append(&tail, rest, sizeof(rest));
    tail_finish(&tail);
    CHECK_UINT(tail.n, sizeof(rest));
    CHECK_UINT(tail.cut, 3);
    tail_deinit(&tail);
}

TEST(bytes_that_look_like_the_rest_of_a_character_stay_if_nothing_was_cut)
{
    struct tail tail = {0};
    tail_append(&tail, "\x82\xac", 2);
    tail_finish(&tail);
    CHECK_UINT(tail.n, 2);
    tail_deinit(&tail);
}
