/*
 * settings.h - everything that `--set name=value` can set: the scheduler's configuration and the coordinator's own.
 *
 * Names and defaults are fixed by the interface ("Configuration names").
 * Ownership: a plain value. Threads: any, each with its own.
 */
#ifndef CAPSTAN_COORDINATOR_SETTINGS_H
#define CAPSTAN_COORDINATOR_SETTINGS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "base/limits.h"
#include "core/config.h"

/* X(name, default, smallest, largest, meaning) */
#define SETTINGS_TABLE(X)                                                                                                        \
    X(leader_ttl_ms, 10000, 100, 3600000,                                                                                        \
      "a leader that has not renewed its term for so long can be replaced by another coordinator")                               \
    X(history_ttl_ms, 604800000, 1000, 3153600000000, "how long ended jobs and events are kept")                                 \
    X(result_ttl_ms, 3600000, 1000, 3153600000000, "how long workers keep the rows of ended queries")                            \
    X(orphan_ms, 600000, 1000, 86400000, "how long a worker goes on with its tasks while it finds no coordinator")               \
    X(drain_timeout_ms, 60000, 0, 86400000,                                                                                      \
      "how long a worker that was told to stop may go on with what it runs; 0: 60000")                                           \
    X(kill_grace_ms, 5000, 0, 3600000, "from SIGTERM to SIGKILL for processes of a task that must stop; 0: 5000")                \
    X(single_task_bytes, 33554432, 0, 1099511627776, "a query that reads no more than this is one task")                         \
    X(broadcast_bytes, 67108864, 0, 1099511627776,                                                                               \
      "a side of a join up to this size, if it is small beside the other one, is given to every task instead of being shuffled") \
    X(partition_bytes, 67108864, 1024, 1099511627776, "how much one partition of a shuffle should have")                         \
    X(shuffle_memory_bytes, 0, 0, 1099511627776,                                                                                 \
      "rows that each worker keeps in memory for others; 0: a quarter of its memory")                                            \
    X(payload_cache_bytes, 67108864, 0, 1099511627776,                                                                           \
      "memory of the coordinator for inputs and results that it has read from the store")                                        \
    X(max_calls_per_client, 10000, 1, 40000,                                                                                     \
      "calls of one token (or host, without tokens) that may wait for their answer; more are refused at once")                   \
    X(max_bytes_per_client, 134217728, 1048576, 1099511627776, "bytes of the requests of those calls")

/* What a client may ask for one query. X(name, largest, meaning); largest 0: true or false. */
#define QUERY_OPTIONS_TABLE(X)                                                                                         \
    X(partitions, LIMIT_PARTITIONS, "so many partitions, whatever the size; 0: by size")                               \
    X(forced, 0, "cut into stages even where one task would be quicker; for tests")                                    \
    X(single_task_bytes, LIMIT_QUANTITY, "instead of the coordinator's setting")                                       \
    X(broadcast_bytes, LIMIT_QUANTITY, "instead of the coordinator's setting")                                         \
    X(partition_bytes, LIMIT_QUANTITY, "instead of the coordinator's setting")                                         \
    X(tail_bytes, LIMIT_QUANTITY, "the last stages become one task if they turn out to read no more; 0: never")

struct settings {
    struct core_config core;
#define SETTINGS_FIELD(name, def, lo, hi, help) int64_t name;
    SETTINGS_TABLE(SETTINGS_FIELD)
#undef SETTINGS_FIELD
};

struct settings settings_default(void);

/* Takes "name=value". ERR_INVALID for an unknown name, or a value that is no number or out of range. */
MUST_USE enum err settings_set(struct settings *settings, const char *assignment, struct error *e);

/* ERR_INVALID if the whole is nonsense, with all complaints, one a line. */
MUST_USE enum err settings_check(const struct settings *settings, struct error *e);

/* Appends "name default\n" for every setting. */
void settings_list(struct buf *out);

#endif
