#include "base/idheap.h"

#include <stddef.h>

#include "base/mem.h"

#define CHILDREN 4

/* Puts `id` at the root or nearer to the leaves, moving up the smaller ones on the way. */
static void sift_down(struct idheap *heap, uint64_t id)
{
    uint64_t *ids = heap->ids;
    size_t at = 0;
    for (;;) {
        size_t child = at * CHILDREN + 1;
        if (child >= heap->count) {
            break;
        }
        size_t end = child + CHILDREN < heap->count ? child + CHILDREN : heap->count;
        size_t least = child;
        for (child = child + 1; child < end; child++) {
            if (ids[child] < ids[least]) {
                least = child;
            }
        }
        if (id <= ids[least]) {
            break;
        }
        ids[at] = ids[least];
        at = least;
    }
    ids[at] = id;
}

void idheap_push(struct idheap *heap, uint64_t id)
{
    ASSERT(heap->count < UINT32_MAX);
    heap->ids = mem_grow(heap->ids, &heap->cap, heap->count + 1, sizeof(heap->ids[0]));
    size_t at = heap->count++;
    while (at > 0) {
        size_t parent = (at - 1) / CHILDREN;
        if (heap->ids[parent] <= id) {
            break;
        }
        heap->ids[at] = heap->ids[parent];
        at = parent;
    }
    heap->ids[at] = id;
}

uint64_t idheap_pop(struct idheap *heap)
{
    uint64_t top = idheap_top(heap);
    heap->count--;
    if (heap->count > 0) {
        sift_down(heap, heap->ids[heap->count]);
    }
    return top;
}

void idheap_replace_top(struct idheap *heap, uint64_t id)
{
    ASSERT(heap->count > 0);
    sift_down(heap, id);
}

void idheap_deinit(struct idheap *heap)
{
    mem_free(heap->ids);
    *heap = (struct idheap){0};
}
