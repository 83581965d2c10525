/*
 * cut.h - a plan into stages: the physical plan.
 *
 * The cutter walks the plan from the leaves and keeps, for what it has seen so far, a fragment: a subtree that one task
 * can run by itself, and how rows are spread over the tasks that run it:
 *
 *   any         each row is at one task, nobody knows at which
 *   hash(cols)  the same, and rows with equal `cols` are at the same task: by a hash, or by ranges of values (cut_range.c)
 *   single      all rows are at one task
 *   replicated  every task has all rows
 *
 * A table with one entry per kind of node (cut_node.c) says what spread a node needs and leaves. Where it needs another
 * one, the fragment becomes a stage, with an exchange at its end, and a new fragment begins that reads this stage. The
 * tables for joins (join.h) and aggregates (aggregate.h) say what is right for these.
 *
 * What cannot be cut, or is too small to be worth it, becomes one stage with one task, which runs the query as it was
 * written; the plan says why.
 *
 * Ownership: the result lies in the arena. Threads: any; a pure function of what it is given.
 */
#ifndef CAPSTAN_QUERY_CUT_H
#define CAPSTAN_QUERY_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "query/physical.h"
#include "query/plan.h"
#include "query/split.h"

struct join_rules;
struct aggregate_rule;

/* How the values of a range are compared with the first one, and with the first one of the next. */
struct range_rule {
    const char *from;
    const char *to;
};

struct cut_options {
    uint32_t partitions;        /* of every exchange; 0: by the size of the input */
    uint32_t slots;             /* tasks that the cluster can run at a time; at least 1 */
    uint64_t broadcast_bytes;   /* a side of a join up to this is sent to everybody; UINT64_MAX: whatever its size */
    uint64_t single_task_bytes; /* less input than this is one task's work */
    uint64_t partition_bytes;   /* what a task should read; 0: 64 MiB */
    uint64_t tail_bytes;        /* the last stages become one task if they turn out to read no more; 0: never */
    bool is_forced;             /* cut whatever the size, and let no task read a whole table for itself */
    uint32_t shrink;            /* sizes that decide are divided by it, for tests over small tables; 0: by 1 */
    const struct split_catalog *catalog;
    const struct join_rules *join_rules;          /* NULL: the right ones. Tests plant wrong ones */
    const struct aggregate_rule *aggregate_rules; /* NULL: the right ones */
    const struct range_rule *range_rule;          /* NULL: the right one */
    uint32_t wrong_kinds; /* 1 << NODE_…: tests plant the wrong rule that rows of or for such nodes may lie anywhere */
};

/* Cuts the plan. What cannot be cut is no error; only a programmer's mistake is. */
MUST_USE enum err query_cut(const struct plan *plan, const struct cut_options *options, struct arena *arena,
                            struct physical_plan **out_physical, struct error *e);

#endif
