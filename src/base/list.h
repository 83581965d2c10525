/*
 * list.h - an intrusive, circular, doubly linked list.
 *
 * The head is a `struct list` of its own that list_init() has made; elements embed a `struct list` and are found
 * with CONTAINER_OF. An element that is zero-initialised, self-linked or removed is "not linked".
 *
 * Ownership: the list owns nothing. An element must be removed before its memory goes away, and must not be pushed
 * while it is linked. Threads: one at a time per list.
 */
#ifndef CAPSTAN_BASE_LIST_H
#define CAPSTAN_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"

struct list {
    struct list *prev;
    struct list *next;
};

/* Visits the nodes from first to last. The loop must not remove the node that it is at. */
#define LIST_EACH(var, head) for (struct list *var = (head)->next; var != (head); var = var->next)

/* As LIST_EACH, and the loop may remove `var` (not the one after it). */
#define LIST_EACH_SAFE(var, tmp, head)                                                                                 \
    for (struct list *var = (head)->next, *tmp = var->next; var != (head); var = tmp, tmp = var->next)

/* Makes `list` an empty head, or a node that is not linked. */
static inline void list_init(struct list *list)
{
    list->prev = list;
    list->next = list;
}

static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}

/* Whether the node is in some list. */
static inline bool list_is_linked(const struct list *node)
{
    return node->next != NULL && node->next != node;
}

/* Puts `node` in front of `at`, which is a linked node or a head (then `node` becomes the last). */
static inline void list_insert_before(struct list *at, struct list *node)
{
    ASSERT(!list_is_linked(node));
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

static inline void list_push_back(struct list *head, struct list *node)
{
    list_insert_before(head, node);
}

static inline void list_push_front(struct list *head, struct list *node)
{
    list_insert_before(head->next, node);
}

/* Takes `node` out of its list. Does nothing if it is in none. */
static inline void list_remove(struct list *node)
{
    if (!list_is_linked(node)) {
        return;
    }
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* NULL if the list is empty. */
static inline struct list *list_first(const struct list *head)
{
    return list_is_empty(head) ? NULL : head->next;
}

/* NULL if the list is empty. */
static inline struct list *list_last(const struct list *head)
{
    return list_is_empty(head) ? NULL : head->prev;
}

/* The node after `node`, NULL if it is the last. */
static inline struct list *list_next(const struct list *head, const struct list *node)
{
    return node->next == head ? NULL : node->next;
}

#endif
