#include "base/heap.h"

#include "base/check.h"
#include "base/mem.h"

#define CHILDREN 4

/* Positions count from 0 here; a node's index is its position + 1. */
static void place(struct heap *heap, size_t at, struct heap_node *node)
{
    heap->nodes[at] = node;
    node->index = (uint32_t)(at + 1);
}

/* Puts `node` at `at` or nearer to the root, moving down the larger nodes on the way. */
static void sift_up(struct heap *heap, size_t at, struct heap_node *node)
{
    while (at > 0) {
        size_t parent = (at - 1) / CHILDREN;
        if (heap->nodes[parent]->key <= node->key) {
            break;
        }
        place(heap, at, heap->nodes[parent]);
        at = parent;
    }
    place(heap, at, node);
}

/* Puts `node` at `at` or nearer to the leaves, moving up the smaller nodes on the way. */
static void sift_down(struct heap *heap, size_t at, struct heap_node *node)
{
    for (;;) {
        size_t child = at * CHILDREN + 1;
        if (child >= heap->count) {
            break;
        }
        size_t end = child + CHILDREN < heap->count ? child + CHILDREN : heap->count;
        size_t least = child;
        for (child = child + 1; child < end; child++) {
            if (heap->nodes[child]->key < heap->nodes[least]->key) {
                least = child;
            }
        }
        if (node->key <= heap->nodes[least]->key) {
            break;
        }
        place(heap, at, heap->nodes[least]);
        at = least;
    }
    place(heap, at, node);
}

/* Puts `node` at `at` or wherever it belongs from there. */
static void settle(struct heap *heap, size_t at, struct heap_node *node)
{
    if (at > 0 && node->key < heap->nodes[(at - 1) / CHILDREN]->key) {
        sift_up(heap, at, node);
    } else {
        sift_down(heap, at, node);
    }
}

void heap_push(struct heap *heap, struct heap_node *node)
{
    ASSERT(node->index == 0);
    ASSERT(heap->count < UINT32_MAX);
    heap->nodes = mem_grow(heap->nodes, &heap->cap, heap->count + 1, sizeof(heap->nodes[0]));
    heap->count++;
    sift_up(heap, heap->count - 1, node);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    if (node->index == 0) {
        return;
    }
    size_t at = node->index - 1;
    ASSERT(at < heap->count);
    ASSERT(heap->nodes[at] == node);
    heap->count--;
    node->index = 0;
    struct heap_node *last = heap->nodes[heap->count];
    if (last != node) {
        settle(heap, at, last);
    }
}

void heap_set(struct heap *heap, struct heap_node *node, int64_t key)
{
    node->key = key;
    if (node->index == 0) {
        heap_push(heap, node);
        return;
    }
    ASSERT(node->index <= heap->count);
    ASSERT(heap->nodes[node->index - 1] == node);
    settle(heap, node->index - 1, node);
}

void heap_deinit(struct heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++) {
        heap->nodes[i]->index = 0;
    }
    mem_free(heap->nodes);
    *heap = (struct heap){0};
}
