/*
 * memory.h - the store in memory: what only those ask of it who chose it: tests, and observers, who keep their copy in one.
 *
 * `memory:NAME` names a database of this process; all stores opened with that name share it, from any thread. It lasts
 * until memory_drop, so that closing and opening a store is a restart. Nothing of it is durable.
 *
 * Every function here makes the database if there is none. Threads: any.
 */
#ifndef CAPSTAN_STORE_MEMORY_H
#define CAPSTAN_STORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "core/rows.h"
#include "store/table.h"

/* From now on the database's clock stands at `now_ms`; before the first call it is this machine's. */
void memory_set_clock(const char *name, int64_t now_ms);

/* Says that the schema has this version, as a newer program might have left it. */
void memory_set_schema(const char *name, uint32_t version);

/* Leaves a tree in the inbox, as an application would. Returns the entry's id. */
uint64_t memory_add_inbox(const char *name, const char *job_id, const void *tree, size_t n_bytes);

/* Values in the order of the table's columns; they live until the function returns. */
typedef void memory_values_fn(void *context, const struct table *table, const struct value *values);

/* Everything that is kept of rows of this kind, by key: also what store.h has no way to read. */
void memory_each(const char *name, enum row_kind kind, memory_values_fn *fn, void *context);

/* Exchanges all that two databases hold but for who leads them. Stores stay open, and see the other's content at once. */
void memory_swap(const char *a, const char *b);

/* The state of a job (enum job_state); -1: there is none. */
int memory_job_state(const char *name, const char *job_id);

/* How much of what has ended a database may hold. */
struct memory_limits {
    uint32_t ended_jobs;
    uint32_t tasks; /* of all jobs; those of open ones always stay */
    uint64_t payload_bytes;
    uint32_t events;
};

/* Once a limit has been exceeded by an eighth, removes the jobs that ended first, and the first events, down to it. */
void memory_trim(const char *name, const struct memory_limits *limits);

/* Forgets the database. No store of it may be open. */
void memory_drop(const char *name);

#endif
