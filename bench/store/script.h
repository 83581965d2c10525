/*
 * script.h - what a core writes for the lifecycles of many tasks, transaction by transaction, taken apart into values.
 *
 * A group is `width` tasks: one transaction submits them, one assigns them, one ends them. The bare engines write these
 * transactions; the coordinator makes the same ones out of commands.
 *
 * Ownership: script_deinit ends what script_init began. Threads: one at a time.
 */
#ifndef CAPSTAN_BENCH_STORE_SCRIPT_H
#define CAPSTAN_BENCH_STORE_SCRIPT_H

#include <stdint.h>

#include "base/arena.h"
#include "store/table.h"

#define GROUP_TRANSACTIONS 3

enum op_kind { OP_NEW, OP_CHANGED, OP_GONE, OP_KINDS };

/* One row: all columns, those that change behind the key, or the key of a lease and its token. */
struct op {
    enum op_kind what;
    const struct table *table;
    const struct value *values; /* in the order of the columns; those that are not written are NULL */
};

struct transaction {
    const struct op *ops;
    uint32_t n_ops;
};

/* What the tasks of a group belong to. */
enum script_shape {
    SCRIPT_JOBS,   /* each to a job of its own */
    SCRIPT_INPUTS, /* the same, and each has an input of its own, which is a row of `payloads` */
    SCRIPT_TREE,   /* all to one job, with one input for all: what `capstan bench tasks` submits */
};

struct script {
    struct arena arena;
    struct transaction *transactions;
    uint32_t n;
};

/* `first` numbers the jobs: those of two scripts with different numbers differ. */
void script_init(struct script *script, enum script_shape shape, uint32_t n_groups, uint32_t width, uint64_t first);
void script_deinit(struct script *script);

/* Ids that sort by their number, as those that people's programs make sort by time; 36 characters. */
const char *script_job_id(struct arena *arena, uint64_t number);

/* The input of that job's only task: 64 bytes, other ones for every job. */
const char *script_input(struct arena *arena, const char *job_id);

/* As table_of; for ROW_META, which no table holds, `payloads`, which holds no rows of the core. */
const struct table *script_table(enum row_kind kind);

#endif
