/*
 * heap.h - a min-heap of intrusive nodes, for timers.
 *
 * Four children per node: a flatter tree with fewer cache misses than a binary one. Nodes with equal keys come out
 * in an order that depends only on the calls made, so a replay sees the same order.
 *
 * Ownership: a zero-initialised `struct heap` is valid and empty. It owns its array, not the nodes; a node must be
 * removed before its memory goes away. Threads: one at a time per heap.
 */
#ifndef CAPSTAN_BASE_HEAP_H
#define CAPSTAN_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t key;    /* changed only by heap_set while the node is in a heap */
    uint32_t index; /* place in the heap, from 1; 0 = in no heap */
};

struct heap {
    struct heap_node **nodes; /* the node with index i is nodes[i - 1] */
    uint32_t count;
    uint32_t cap;
};

/* Adds `node`, which is in no heap, under the key that it has. */
void heap_push(struct heap *heap, struct heap_node *node);

/* Takes `node` out. Does nothing if it is in no heap. */
void heap_remove(struct heap *heap, struct heap_node *node);

/* Gives `node` the key and moves it to its place, adding it if it is in no heap. */
void heap_set(struct heap *heap, struct heap_node *node, int64_t key);

/* A node with the smallest key, NULL if the heap is empty. */
static inline struct heap_node *heap_min(const struct heap *heap)
{
    return heap->count == 0 ? NULL : heap->nodes[0];
}

static inline bool heap_has(const struct heap_node *node)
{
    return node->index != 0;
}

/* Frees the array; nodes still in the heap become absent. The heap is then as if zero-initialised. */
void heap_deinit(struct heap *heap);

#endif
