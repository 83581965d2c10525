#include "base/slice.h"

#include "test.h"

TEST(a_slice_is_set_and_put_back)
{
    uint64_t usual = slice_set(20000);
    uint64_t asked = slice_set(usual);
    /* Kernels before 6.12 know one length for all, and do not tell it. */
    CHECK(asked == 20000 || asked == usual);
    CHECK_UINT(slice_set(usual), usual);
}
