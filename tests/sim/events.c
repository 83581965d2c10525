/*
 * events.c - a wheel for the near future, a binary heap for the rest.
 *
 * An event moves from the heap to the wheel as soon as its millisecond comes within reach, so before any event can be
 * added to that millisecond directly: the order of arrival is kept.
 */
#include "sim/events.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

static void add_near(struct events *events, const struct event *event)
{
    uint32_t n = events->free_node;
    if (n != 0) {
        events->free_node = events->nodes[n].next;
    } else {
        if (events->n_nodes == events->cap_nodes) {
            events->nodes = mem_grow(events->nodes, &events->cap_nodes, events->n_nodes + 1, sizeof(*events->nodes));
        }
        n = events->n_nodes++;
    }
    events->nodes[n] = (struct wheel_node){.event = *event};
    uint32_t slot = (uint32_t)event->at_ms & (WHEEL_MS - 1);
    if (events->first[slot] == 0) {
        events->first[slot] = n;
        events->busy[slot / 64] |= 1ULL << (slot % 64);
    } else {
        events->nodes[events->last[slot]].next = n;
    }
    events->last[slot] = n;
    events->n_near++;
}

static bool is_before(const struct far_event *a, const struct far_event *b)
{
    return a->event.at_ms < b->event.at_ms || (a->event.at_ms == b->event.at_ms && a->seq < b->seq);
}

static void add_far(struct events *events, const struct event *event)
{
    if (events->n_far == events->cap_far) {
        events->heap = mem_grow(events->heap, &events->cap_far, events->n_far + 1, sizeof(*events->heap));
    }
    struct far_event far = {.event = *event, .seq = events->seq++};
    struct far_event *heap = events->heap;
    uint32_t i = events->n_far++;
    while (i > 0 && is_before(&far, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = far;
}

static struct event take_far(struct events *events)
{
    struct far_event *heap = events->heap;
    struct event first = heap[0].event;
    struct far_event last = heap[--events->n_far];
    uint32_t n = events->n_far;
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n) {
            break;
        }
        child += (uint32_t)(child + 1 < n && is_before(&heap[child + 1], &heap[child]));
        if (!is_before(&heap[child], &last)) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    if (n > 0) {
        heap[i] = last;
    }
    return first;
}

void events_add(struct events *events, int64_t at_ms, enum event_kind kind, uint32_t a, uint32_t b)
{
    ASSERT(at_ms >= events->now_ms);
    struct event event = {.at_ms = at_ms, .kind = (uint16_t)kind, .b = (uint16_t)b, .a = a};
    if (at_ms - events->now_ms < WHEEL_MS) {
        add_near(events, &event);
    } else {
        add_far(events, &event);
    }
}

static void set_now(struct events *events, int64_t now_ms)
{
    events->now_ms = now_ms;
    while (events->n_far > 0 && events->heap[0].event.at_ms - now_ms < WHEEL_MS) {
        struct event event = take_far(events);
        add_near(events, &event);
    }
}

/* The first busy millisecond from now on, as a distance. There is one. */
static uint32_t next_busy(const struct events *events)
{
    uint32_t start = (uint32_t)events->now_ms & (WHEEL_MS - 1);
    uint32_t word = start / 64;
    uint64_t bits = events->busy[word] & (~0ULL << (start % 64));
    while (bits == 0) {
        word = (word + 1) % (WHEEL_MS / 64);
        bits = events->busy[word];
    }
    uint32_t slot = word * 64 + (uint32_t)__builtin_ctzll(bits);
    return (slot - start) & (WHEEL_MS - 1);
}

bool events_take(struct events *events, struct event *out)
{
    if (events->n_near == 0) {
        if (events->n_far == 0) {
            return false;
        }
        set_now(events, events->heap[0].event.at_ms);
    }
    uint32_t distance = next_busy(events);
    if (distance > 0) {
        set_now(events, events->now_ms + distance);
    }
    uint32_t slot = (uint32_t)events->now_ms & (WHEEL_MS - 1);
    uint32_t n = events->first[slot];
    struct wheel_node *node = &events->nodes[n];
    *out = node->event;
    events->first[slot] = node->next;
    if (node->next == 0) {
        events->busy[slot / 64] &= ~(1ULL << (slot % 64));
    }
    node->next = events->free_node;
    events->free_node = n;
    events->n_near--;
    return true;
}

void events_clear(struct events *events)
{
    memset(events->first, 0, sizeof(events->first));
    memset(events->busy, 0, sizeof(events->busy));
    events->now_ms = 0;
    events->n_nodes = 1;
    events->free_node = 0;
    events->n_near = 0;
    events->n_far = 0;
    events->seq = 0;
    if (events->cap_nodes == 0) {
        events->nodes = mem_grow(NULL, &events->cap_nodes, 256, sizeof(*events->nodes));
    }
}

void events_deinit(struct events *events)
{
    mem_free(events->nodes);
    mem_free(events->heap);
    *events = (struct events){0};
}
