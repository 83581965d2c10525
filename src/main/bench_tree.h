/*
 * bench_tree.h - trees of tasks that do nothing, for the benchmarks of tasks and of latency.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_MAIN_BENCH_TREE_H
#define CAPSTAN_MAIN_BENCH_TREE_H

#include "main/bench.h"

/* Settings of a cluster that do not stand in the way of tasks that do nothing. */
#define BENCH_TREE_SETTINGS "max_concurrent_tasks_per_worker=1000", "max_concurrent_tasks_per_query=100000"

/* Appends a tree of `n` tasks. */
void bench_write_tree(struct buf *out, uint64_t n);

MUST_USE enum err bench_submit_tree(const struct bench *bench, struct client *client, const char *job_id,
                                    const struct buf *tree, struct error *e);

#endif
