/*
 * events.h - what happens next: a queue of small events in order of simulated time.
 *
 * Events of the same millisecond come out in the order in which they were added, so a run depends on nothing but its
 * seed. The next two seconds are a wheel with a list per millisecond; what is further away waits in a heap. Nothing is
 * allocated once they have grown.
 *
 * Ownership: a zero-initialised queue must be cleared before use; it owns its arrays. Threads: one.
 */
#ifndef CAPSTAN_SIM_EVENTS_H
#define CAPSTAN_SIM_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

enum event_kind {
    EVENT_DELIVER,     /* a: message */
    EVENT_LEADER_STEP, /* a: the leader's number */
    EVENT_LEADER_TICK, /* a: the leader's number */
    EVENT_COMMIT_DONE, /* a: the leader's number */
    EVENT_LEADER_UP,
    EVENT_PROC_TIMER, /* a: worker process */
    EVENT_TASK_DONE,  /* a: worker process, b: slot and its generation */
    EVENT_PROC_START, /* a: worker */
    EVENT_CLIENT,     /* a: job */
    EVENT_FAULT,
    EVENT_CALM, /* a passing fault ends; a: which, b: where */
    EVENT_HEAL,
    EVENT_WATCH,
};

struct event {
    int64_t at_ms;
    uint16_t kind;
    uint16_t b;
    uint32_t a;
};

#define WHEEL_MS 2048 /* a power of two */

struct wheel_node {
    struct event event;
    uint32_t next; /* index of a node; 0: none */
};

struct far_event {
    struct event event;
    uint64_t seq;
};

struct events {
    int64_t now_ms; /* everything before it is over */
    uint32_t first[WHEEL_MS];
    uint32_t last[WHEEL_MS];
    uint64_t busy[WHEEL_MS / 64]; /* bits: milliseconds with events */
    struct wheel_node *nodes;     /* index 0 is not used */
    uint32_t n_nodes;
    uint32_t cap_nodes;
    uint32_t free_node; /* list of unused nodes */
    uint32_t n_near;
    struct far_event *heap;
    uint32_t n_far;
    uint32_t cap_far;
    uint64_t seq;
};

/* `at_ms` is not before the last event that was taken. */
void events_add(struct events *events, int64_t at_ms, enum event_kind kind, uint32_t a, uint32_t b);
bool events_take(struct events *events, struct event *out);
void events_clear(struct events *events); /* keeps the arrays; time starts at 0 */
void events_deinit(struct events *events);

#endif
