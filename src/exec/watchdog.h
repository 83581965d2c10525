/*
 * watchdog.h - one thread that fires stops when their time is over.
 *
 * The thread starts with the first limit and sleeps until the earliest one. A limit that is taken back does not wake it:
 * it finds out when that time comes. So tasks that end in time, which are nearly all, wake it once per limit's length and
 * not once per task.
 *
 * Ownership: a limit is the caller's memory, and must be disarmed before it goes away. Threads: any.
 */
#ifndef CAPSTAN_EXEC_WATCHDOG_H
#define CAPSTAN_EXEC_WATCHDOG_H

#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "base/heap.h"
#include "exec/executor.h"

struct watchdog;

struct watchdog_limit {
    struct heap_node node; /* the key is the end, in monotonic microseconds */
    struct exec_stop *stop;
};

struct watchdog *watchdog_new(void);
/* No limit is armed any more. NULL ok. */
void watchdog_free(struct watchdog *watchdog);

/* Fires STOP_TIMEOUT after `ms`, unless it is disarmed before. ERR_EXHAUSTED if no thread can be started. */
MUST_USE enum err watchdog_arm(struct watchdog *watchdog, struct watchdog_limit *limit, struct exec_stop *stop,
                               uint32_t ms);

/* After this, it will not fire; it may have done so. */
void watchdog_disarm(struct watchdog *watchdog, struct watchdog_limit *limit);

#endif
