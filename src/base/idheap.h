/*
 * idheap.h - a min-heap of plain 64-bit numbers, for ready tasks.
 *
 * Equal numbers are allowed. Pushing numbers in ascending order costs O(1) each, anything else O(log n); there are
 * four children per node.
 *
 * Ownership: a zero-initialised `struct idheap` is valid and empty; it owns its array. Threads: one at a time per
 * heap.
 */
#ifndef CAPSTAN_BASE_IDHEAP_H
#define CAPSTAN_BASE_IDHEAP_H

#include <stdint.h>

#include "base/check.h"

struct idheap {
    uint64_t *ids;
    uint32_t count;
    uint32_t cap;
};

void idheap_push(struct idheap *heap, uint64_t id);

/* The smallest number. The heap must not be empty. */
static inline uint64_t idheap_top(const struct idheap *heap)
{
    ASSERT(heap->count > 0);
    return heap->ids[0];
}

/* Removes and returns the smallest number. The heap must not be empty. */
uint64_t idheap_pop(struct idheap *heap);

/* The same as a pop followed by a push of `id`, but cheaper. The heap must not be empty. */
void idheap_replace_top(struct idheap *heap, uint64_t id);

/* Frees the array; the heap is then as if zero-initialised. */
void idheap_deinit(struct idheap *heap);

#endif
