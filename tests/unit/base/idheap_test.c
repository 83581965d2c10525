#include "../test.h"

#include "base/idheap.h"
#include "base/prng.h"

TEST(ids_come_out_in_ascending_order)
{
    static const uint64_t pushed[] = {5, 3, UINT64_MAX, 0, 3, 8};
    static const uint64_t sorted[] = {0, 3, 3, 5, 8, UINT64_MAX};
    struct idheap heap = {0};
    for (size_t i = 0; i < ARRAY_LEN(pushed); i++) {
        idheap_push(&heap, pushed[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(sorted); i++) {
        CHECK_UINT(idheap_top(&heap), sorted[i]);
        CHECK_UINT(idheap_pop(&heap), sorted[i]);
    }
    CHECK_UINT(heap.count, 0);
    idheap_deinit(&heap);
}

TEST(an_empty_idheap_has_no_top)
{
    struct idheap heap = {0};
    CHECK_ABORTS(idheap_top(&heap));
    CHECK_ABORTS(idheap_pop(&heap));
    CHECK_ABORTS(idheap_replace_top(&heap, 1));
    idheap_deinit(&heap);
}

TEST(replacing_the_top_is_a_pop_and_a_push)
{
    struct idheap heap = {0};
    idheap_push(&heap, 1);
    idheap_replace_top(&heap, 9);
    CHECK_UINT(idheap_top(&heap), 9);
    idheap_push(&heap, 4);
    idheap_replace_top(&heap, 6);
    CHECK_UINT(idheap_pop(&heap), 6);
    CHECK_UINT(idheap_pop(&heap), 9);
    idheap_deinit(&heap);
}

TEST(ascending_pushes_leave_the_array_sorted)
{
    struct idheap heap = {0};
    for (uint64_t id = 0; id < 1000; id++) {
        idheap_push(&heap, id);
        CHECK_UINT(heap.ids[id], id); /* nothing moved */
    }
    idheap_deinit(&heap);
}

enum { VALUES = 64 };

/* The naive model: how often each number is in the heap. */
static uint64_t model_min(const uint32_t counts[VALUES])
{
    uint64_t value = 0;
    while (value < VALUES && counts[value] == 0) {
        value++;
    }
    return value;
}

TEST(random_ids_agree_with_counting)
{
    struct idheap heap = {0};
    uint32_t counts[VALUES] = {0};
    uint32_t total = 0;
    struct prng prng;
    prng_init(&prng, 6);
    for (int step = 0; step < 100000; step++) {
        uint64_t id = prng_below(&prng, VALUES);
        uint64_t action = prng_below(&prng, 100);
        if (total == 0 || action < 40) {
            idheap_push(&heap, id);
            counts[id]++;
            total++;
        } else if (action < 80) {
            uint64_t expected = model_min(counts);
            CHECK_UINT(idheap_pop(&heap), expected);
            counts[expected]--;
            total--;
        } else {
            counts[model_min(counts)]--;
            counts[id]++;
            idheap_replace_top(&heap, id);
        }
        CHECK_UINT(heap.count, total);
        CHECK(total == 0 || idheap_top(&heap) == model_min(counts));
    }
    idheap_deinit(&heap);
}
