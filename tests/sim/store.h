/*
 * store.h - the database of a simulated cluster: rows in memory, changed by whole batches only.
 *
 * Jobs and tasks are array elements; a task's place in all arrays, here and in the checkers, is its `tid`, given when
 * the row of its stage is stored. The store also keeps an undo log: between store_try_begin() and store_try_end()
 * changes are only tried, which is how a recovery is rehearsed with rows that are not committed yet.
 *
 * Ownership: the store owns copies of all that it was given, until store_reset(). Threads: one.
 */
#ifndef CAPSTAN_SIM_STORE_H
#define CAPSTAN_SIM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/limits.h"
#include "core/command.h"
#include "core/rows.h"
#include "sim/names.h"

#define MAX_OUTPUTS 4096

/* A map output or a result: `next` is an index into the pool, 0 ends the list. */
struct stored_map {
    struct row_map_output row;
    struct partition partitions[MAX_PARTITIONS];
    uint32_t next;
};

struct stored_result {
    struct row_result row;
    uint32_t next;
};

struct stored_task {
    struct row_task row;
    const char *failed_on[LIMIT_ATTEMPTS_REMEMBERED];
    struct row_lease lease;
    bool has_lease;
    uint32_t maps;
    uint32_t results;
};

struct stored_stage {
    struct row_stage row;
    const struct stage_spec *spec;
    uint32_t first_tid;
    uint32_t def; /* stage_def */
    bool present;
};

struct stored_job {
    struct row_job row;
    bool present;
    struct stored_stage stages[MAX_STAGES];
    uint32_t n_stages;
};

struct stored_node {
    struct row_node row;
    bool present;
};

struct store {
    struct arena arena;
    struct stored_job jobs[MAX_JOBS];
    uint32_t n_jobs; /* one more than the largest index in use */
    struct stored_task tasks[MAX_TASKS];
    uint32_t n_tids;
    struct stored_node nodes[MAX_WORKERS];
    uint32_t key_job[MAX_KEYS]; /* NO_INDEX: none */
    uint64_t last_event_seq;
    struct stored_map maps[MAX_OUTPUTS];
    uint32_t n_maps; /* index 0 is not used */
    struct stored_result results[MAX_OUTPUTS];
    uint32_t n_results;

    bool trying;
    unsigned char *undo;
    uint32_t undo_bytes;
    uint32_t undo_cap;
};

void store_reset(struct store *store);
void store_deinit(struct store *store);

void store_apply(struct store *store, const struct row *row);

void store_try_begin(struct store *store);
void store_try_end(struct store *store);

/* The task's tid, NO_INDEX if its stage is not stored. */
static inline uint32_t store_tid(const struct store *store, uint32_t job, uint32_t stage, uint32_t task)
{
    if (job >= MAX_JOBS || stage >= MAX_STAGES || !store->jobs[job].stages[stage].present) {
        return NO_INDEX;
    }
    return store->jobs[job].stages[stage].first_tid + task;
}

static inline uint32_t store_ref_tid(const struct store *store, const struct task_ref *ref)
{
    return store_tid(store, name_index(ref->job_id), ref->stage, ref->task);
}

static inline bool store_job_is_open(const struct store *store, uint32_t job)
{
    return store->jobs[job].present && !job_state_is_terminal(store->jobs[job].row.state);
}

/* Called for every row of a load, in loading order. */
typedef void store_row_fn(void *context, const struct row *row);

/* All rows that a new leader loads. */
void store_each_row(const struct store *store, store_row_fn *fn, void *context);

/* All rows of one job. */
void store_each_row_of_job(const struct store *store, uint32_t job, store_row_fn *fn, void *context);

#endif
