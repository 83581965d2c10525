/*
 * hands.h - executors for tests, and a worker that has them.
 *
 *   noop      succeeds at once
 *   block     runs until the gate is open (succeeds) or it is stopped
 *   stubborn  runs until the gate is open, whatever it is told
 *   big       succeeds with a result of almost 1 MiB
 *   fail      fails with the message "it failed"; poison: with "poison"
 *
 * Ownership: hands_free after the worker is closed. Threads: any.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_WORKER_HANDS_H
#define CAPSTAN_TESTS_INTEGRATION_WORKER_HANDS_H

#include <stdatomic.h>

#include "exec/executor.h"
#include "integration/worker/script.h"
#include "test.h"
#include "worker/worker.h"

#define HANDS_TASKS_MAX 2000000

struct hands {
    struct executor executors[6];
    struct executor_set *set;
    atomic_uchar *runs;     /* by task: how often it was executed */
    atomic_int gate;        /* 1: open */
    atomic_int running;     /* executions under way */
    atomic_int reasons[64]; /* by task: why its execution was stopped */
};

struct hands *hands_new(void);
void hands_free(struct hands *hands);
/* Waits until exactly so many executions are under way. */
bool hands_wait_running(struct hands *hands, int n);
bool hands_wait_reason(struct hands *hands, uint32_t task, enum stop_reason reason);

/* A script, hands, and a worker that has registered and polls. */
struct stage {
    struct script *script;
    struct hands *hands;
    struct worker *worker;
    const char *join[2];
    struct error e;
};
struct stage stage_set(uint32_t slots);
/* As stage_set, with options; what is NULL or zero in them is filled in. */
void stage_start(struct stage *stage, struct worker_options options);
/* Opens the gate, closes the worker, frees all. */
void stage_clear(struct stage *stage);

#endif
