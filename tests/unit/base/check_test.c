#include "../test.h"

#include "base/check.h"

struct outer {
    int before;
    int inner;
};

TEST(an_assertion_that_holds_does_nothing)
{
    int evaluations = 0;
    ASSERT(++evaluations == 1);
    CHECK_INT(evaluations, 1);
}

TEST(an_assertion_that_does_not_hold_aborts)
{
    volatile int two = 2;
    CHECK_ABORTS(ASSERT(two == 3));
}

TEST(container_of_finds_the_struct_around_a_field)
{
    struct outer outer = {.before = 1, .inner = 2};
    int *inner = &outer.inner;
    CHECK(CONTAINER_OF(inner, struct outer, inner) == &outer);
}

TEST(array_len_counts_elements)
{
    uint32_t numbers[7] = {0};
    UNUSED(numbers);
    CHECK_UINT(ARRAY_LEN(numbers), 7);
}
