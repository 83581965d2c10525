/*
 * row_store.h - the rows that a core wanted to be durable, kept as a database would keep them.
 *
 * Applies rows in order: a row replaces what is stored under its key, except for fields marked (new) in rows.h and for
 * a message that is NULL. What a database's constraints would refuse ends the test: a second lease of a task, an event
 * number that does not follow the last, an attempt that shrinks, an ended job that moves without a retry.
 *
 * Ownership: the store copies what it keeps and owns it; pointers into it are valid until the entity's next change.
 */
#ifndef CAPSTAN_TESTS_UNIT_CORE_ROW_STORE_H
#define CAPSTAN_TESTS_UNIT_CORE_ROW_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/map.h"
#include "core/rows.h"

struct row_table {
    struct map map;
    struct list all; /* of struct stored, in order of insertion */
};

struct row_store {
    struct arena arena;
    struct row_table tables[ROW_META + 1];
    struct row_event *events;
    uint32_t n_events;
    uint32_t cap_events;
    uint64_t n_applied; /* rows */
    bool may_revive;    /* an ended job may be changed: a retry is under way */
};

/* What a row is stored under. `name` is the job's id, or the worker's; unused numbers are 0. */
struct row_key {
    const char *name;
    uint32_t stage;
    uint32_t task;
    uint32_t attempt;
};

void row_store_init(struct row_store *store);
void row_store_deinit(struct row_store *store);

void row_store_apply(struct row_store *store, const struct row *row);

/* The stored row with that key, NULL if there is none. */
const struct row *row_store_get(const struct row_store *store, enum row_kind kind, struct row_key key);

uint32_t row_store_count(const struct row_store *store, enum row_kind kind);

typedef void row_load_fn(void *context, const struct row *row);

/*
 * Hands out the rows that a new core loads, ROW_META included; with `backwards` the rows of each kind in the opposite
 * order, which must make no difference.
 */
void row_store_load(const struct row_store *store, bool backwards, row_load_fn *load, void *context);

/* The same for one job, ended or not. */
void row_store_load_job(const struct row_store *store, const char *job_id, row_load_fn *load, void *context);

/* Typed lookups; NULL if absent. */
const struct row_job *stored_job(const struct row_store *store, const char *job_id);
const struct row_stage *stored_stage(const struct row_store *store, const char *job_id, uint32_t stage);
const struct row_task *stored_task(const struct row_store *store, struct task_ref ref);
const struct row_lease *stored_lease(const struct row_store *store, struct task_ref ref);
const struct row_attempt *stored_attempt(const struct row_store *store, struct task_ref ref, uint32_t attempt);
const struct row_map_output *stored_map_output(const struct row_store *store, struct task_ref ref, uint32_t attempt);
const struct row_result *stored_result(const struct row_store *store, struct task_ref ref, uint32_t attempt);
const struct row_node *stored_node(const struct row_store *store, const char *worker_id);

#endif
