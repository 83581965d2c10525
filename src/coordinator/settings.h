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
#include "core/config.h"

/* X(name, default, smallest, largest) */
#define SETTINGS_TABLE(X)                                                                                              \
    X(leader_ttl_ms, 10000, 100, 3600000)                                                                              \
    X(history_ttl_ms, 604800000, 1000, 3153600000000)                                                                  \
    X(result_ttl_ms, 3600000, 1000, 3153600000000)                                                                     \
    X(orphan_ms, 600000, 1000, 86400000)                                                                               \
    X(drain_timeout_ms, 60000, 0, 86400000)                                                                            \
    X(kill_grace_ms, 5000, 0, 3600000)                                                                                 \
    X(single_task_bytes, 33554432, 0, 1099511627776)                                                                   \
    X(broadcast_bytes, 67108864, 0, 1099511627776)                                                                     \
    X(partition_bytes, 67108864, 1024, 1099511627776)                                                                  \
    X(shuffle_memory_bytes, 0, 0, 1099511627776) /* 0: a quarter of each worker's memory */                            \
    X(payload_cache_bytes, 67108864, 0, 1099511627776)

struct settings {
    struct core_config core;
#define SETTINGS_FIELD(name, def, lo, hi) int64_t name;
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
