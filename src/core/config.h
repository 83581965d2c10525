/*
 * config.h - the coordinator's settings that the scheduler reads, their defaults, and which combinations are nonsense.
 *
 * Names and defaults are fixed by the interface ("Configuration names"). A config is a plain value; who has it owns it.
 */
#ifndef CAPSTAN_CORE_CONFIG_H
#define CAPSTAN_CORE_CONFIG_H

#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

/* X(name, default, smallest, largest, meaning) */
#define CORE_CONFIG_TABLE(X)                                                                                           \
    X(max_concurrent_tasks_per_worker, 8, 1, 100000, "tasks that one worker runs at most, however many slots it has")  \
    X(max_concurrent_tasks_per_query, 32, 1, 10000000, "tasks of one query that run at the same time")                 \
    X(max_task_attempts, 3, 1, 1000,                                                                                   \
      "how often a task may fail before it has failed for good, if its tree does not say")                             \
    X(retry_backoff_base_ms, 250, 0, 30000,                                                                            \
      "pause after the first failure of a task; each further one is twice as long, up to 30 s")                        \
    X(worker_liveness_timeout_ms, 15000, 30, 86400000, "a worker that has said nothing for so long loses its tasks")   \
    X(blacklist_failure_threshold, 3, 1, 1000000, "failures in a row after which a worker gets no more tasks")         \
    X(blacklist_ttl_ms, 600000, 0, 31536000000, "for how long it gets none")                                           \
    X(lease_ms, 15000, 30, 86400000, "how long a worker may run a task without renewing its lease")                    \
    X(heartbeat_interval_ms, 3000, 10, 3600000, "how often workers renew their leases")                                \
    X(node_stale_ms, 15000, 30, 86400000, "a worker that has said nothing for so long is stale")                       \
    X(node_dead_ms, 120000, 30, 31536000000, "a worker that has said nothing for so long is dead")                     \
    X(stuck_task_warn_ms, 60000, 1, 86400000,                                                                          \
      "a task that waits for so long for what no live worker has counts as stuck")                                     \
    X(max_fetch_recoveries, 4, 0, 64, "how often a stage runs again because rows that it made were lost")              \
    X(ended_jobs_resident, 10000, 0, 10000000, "ended jobs that stay in memory; older ones are read from the store")   \
    X(max_live_tasks, 20000000, 0, 1000000000000,                                                                      \
      "tasks of all jobs that have not ended; a job that would make more is refused; 0: no limit")

struct core_config {
#define CORE_CONFIG_FIELD(name, def, lo, hi, help) int64_t name;
    CORE_CONFIG_TABLE(CORE_CONFIG_FIELD)
#undef CORE_CONFIG_FIELD
};

struct core_config core_config_default(void);

/*
 * Sets one value by its name. ERR_INVALID for an unknown name or a value out of range; nothing changes then.
 */
MUST_USE enum err core_config_set(struct core_config *config, const char *name, int64_t value, struct error *e);

/*
 * Looks at the whole. ERR_INVALID if anything is nonsense, with all complaints in `e`, one a line.
 */
MUST_USE enum err core_config_check(const struct core_config *config, struct error *e);

#endif
