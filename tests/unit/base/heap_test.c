#include "../test.h"

#include "base/check.h"
#include "base/heap.h"
#include "base/prng.h"

TEST(an_empty_heap_has_no_minimum)
{
    struct heap heap = {0};
    CHECK(heap_min(&heap) == NULL);
    heap_deinit(&heap);
}

TEST(the_smallest_key_comes_first)
{
    struct heap heap = {0};
    struct heap_node nodes[5] = {{.key = 30}, {.key = -10}, {.key = INT64_MAX}, {.key = INT64_MIN}, {.key = 0}};
    static const int order[] = {3, 1, 4, 0, 2};
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        heap_push(&heap, &nodes[i]);
        CHECK(heap_has(&nodes[i]));
    }
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        CHECK(heap_min(&heap) == &nodes[order[i]]);
        heap_remove(&heap, &nodes[order[i]]);
        CHECK(!heap_has(&nodes[order[i]]));
    }
    CHECK(heap_min(&heap) == NULL);
    heap_deinit(&heap);
}

TEST(setting_a_key_adds_or_moves_the_node)
{
    struct heap heap = {0};
    struct heap_node a = {0};
    struct heap_node b = {0};
    heap_set(&heap, &a, 5);
    heap_set(&heap, &b, 7);
    CHECK(heap_min(&heap) == &a);
    heap_set(&heap, &a, 9);
    CHECK(heap_min(&heap) == &b);
    heap_set(&heap, &a, 1);
    CHECK(heap_min(&heap) == &a);
    CHECK_UINT(heap.count, 2);
    heap_deinit(&heap);
}

TEST(removing_an_absent_node_does_nothing)
{
    struct heap heap = {0};
    struct heap_node node = {.key = 1};
    heap_remove(&heap, &node);
    heap_push(&heap, &node);
    heap_remove(&heap, &node);
    heap_remove(&heap, &node);
    CHECK_UINT(heap.count, 0);
    heap_deinit(&heap);
}

TEST(misuse_of_a_heap_aborts)
{
    struct heap heap = {0};
    struct heap other = {0};
    struct heap_node node = {.key = 1};
    heap_push(&heap, &node);
    CHECK_ABORTS(heap_push(&heap, &node));
    CHECK_ABORTS(heap_remove(&other, &node));
    heap_deinit(&heap);
}

TEST(nodes_of_a_freed_heap_are_in_none)
{
    struct heap heap = {0};
    struct heap_node node = {.key = 1};
    heap_push(&heap, &node);
    heap_deinit(&heap);
    CHECK(!heap_has(&node));
    CHECK_UINT(heap.count, 0);
}

enum { NODES = 64 };

/* The smallest key by looking at all nodes. */
static const struct heap_node *naive_min(const struct heap_node *nodes)
{
    const struct heap_node *least = NULL;
    for (size_t i = 0; i < NODES; i++) {
        if (heap_has(&nodes[i]) && (least == NULL || nodes[i].key < least->key)) {
            least = &nodes[i];
        }
    }
    return least;
}

static void check_shape(const struct heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++) {
        CHECK_UINT(heap->nodes[i]->index, i + 1);
        CHECK(i == 0 || heap->nodes[(i - 1) / 4]->key <= heap->nodes[i]->key);
    }
}

TEST(random_timers_agree_with_a_linear_search)
{
    struct heap heap = {0};
    struct heap_node nodes[NODES] = {0};
    struct prng prng;
    uint32_t count = 0;
    prng_init(&prng, 4);
    for (int step = 0; step < 100000; step++) {
        struct heap_node *node = &nodes[prng_below(&prng, NODES)];
        if (prng_permille(&prng, 450)) {
            count -= heap_has(node);
            heap_remove(&heap, node);
        } else {
            count += !heap_has(node);
            heap_set(&heap, node, prng_range(&prng, -50, 50));
        }
        CHECK_UINT(heap.count, count);
        const struct heap_node *expected = naive_min(nodes);
        const struct heap_node *actual = heap_min(&heap);
        CHECK((expected == NULL) == (actual == NULL));
        CHECK(actual == NULL || actual->key == expected->key);
        if (step % 20 == 0) {
            check_shape(&heap);
        }
    }
    heap_deinit(&heap);
}

TEST(a_thousand_nodes_come_out_sorted)
{
    static struct heap_node nodes[1000];
    struct heap heap = {0};
    struct prng prng;
    prng_init(&prng, 5);
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        heap_set(&heap, &nodes[i], (int64_t)prng_u64(&prng));
    }
    int64_t before = INT64_MIN;
    while (heap_min(&heap) != NULL) {
        struct heap_node *node = heap_min(&heap);
        CHECK(before <= node->key);
        before = node->key;
        heap_remove(&heap, node);
    }
    heap_deinit(&heap);
}
