#include "../test.h"

#include "base/prng.h"

TEST(xoshiro_yields_the_published_numbers)
{
    static const uint64_t expected[] = {
        UINT64_C(11520),
        UINT64_C(0),
        UINT64_C(1509978240),
        UINT64_C(1215971899390074240),
        UINT64_C(1216172134540287360),
        UINT64_C(607988272756665600),
        UINT64_C(16172922978634559625),
        UINT64_C(8476171486693032832),
        UINT64_C(10595114339597558777),
        UINT64_C(2904607092377533576),
    };
    struct prng prng = {.s = {1, 2, 3, 4}};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        CHECK_UINT(prng_u64(&prng), expected[i]);
    }
}

TEST(the_seed_goes_through_splitmix)
{
    struct prng prng;
    prng_init(&prng, 0);
    CHECK_UINT(prng.s[0], UINT64_C(0xe220a8397b1dcdaf));
    CHECK_UINT(prng.s[1], UINT64_C(0x6e789e6aa1b965f4));
    CHECK_UINT(prng.s[2], UINT64_C(0x06c45d188009454f));
    CHECK_UINT(prng.s[3], UINT64_C(0xf88bb8a8724c81ec));
}

TEST(the_same_seed_yields_the_same_numbers)
{
    struct prng a;
    struct prng b;
    struct prng c;
    prng_init(&a, 99);
    prng_init(&b, 99);
    prng_init(&c, 100);
    int equal = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t number = prng_u64(&a);
        CHECK_UINT(prng_u64(&b), number);
        equal += prng_u64(&c) == number;
    }
    CHECK_INT(equal, 0);
}

TEST(below_reaches_every_number_about_equally_often)
{
    struct prng prng;
    int counts[10] = {0};
    prng_init(&prng, 1);
    for (int i = 0; i < 100000; i++) {
        counts[prng_below(&prng, 10)]++;
    }
    for (int i = 0; i < 10; i++) {
        CHECK(counts[i] > 9500 && counts[i] < 10500);
    }
    CHECK_UINT(prng_below(&prng, 1), 0);
    CHECK_ABORTS(prng_below(&prng, 0));
}

TEST(permille_is_a_share_of_a_thousand)
{
    struct prng prng;
    int hits = 0;
    prng_init(&prng, 2);
    for (int i = 0; i < 100000; i++) {
        hits += prng_permille(&prng, 250);
        CHECK(!prng_permille(&prng, 0));
        CHECK(prng_permille(&prng, 1000));
    }
    CHECK(hits > 24000 && hits < 26000);
}

TEST(a_range_includes_both_ends)
{
    struct prng prng;
    bool low = false;
    bool high = false;
    prng_init(&prng, 3);
    for (int i = 0; i < 1000; i++) {
        int64_t number = prng_range(&prng, -2, 2);
        CHECK(number >= -2 && number <= 2);
        low = low || number == -2;
        high = high || number == 2;
    }
    CHECK(low && high);
    CHECK_INT(prng_range(&prng, 5, 5), 5);
    CHECK_INT(prng_range(&prng, INT64_MIN, INT64_MIN), INT64_MIN);
    CHECK_ABORTS(prng_range(&prng, 1, 0));
}

TEST(a_range_can_be_everything)
{
    struct prng prng;
    int negative = 0;
    prng_init(&prng, 4);
    for (int i = 0; i < 1000; i++) {
        negative += prng_range(&prng, INT64_MIN, INT64_MAX) < 0;
    }
    CHECK(negative > 400 && negative < 600);
}
