/*
 * explain.h - a physical plan for people: stages as a tree, the result on top.
 *
 * Each stage says how many tasks it has and what they take (splits, partitions, or everything), where its rows go, how many
 * these may be, what it does, and below that the stages that it reads. A stage that is read twice is shown once.
 *
 * Ownership: text is appended to the caller's buffer. Threads: any.
 */
#ifndef CAPSTAN_QUERY_EXPLAIN_H
#define CAPSTAN_QUERY_EXPLAIN_H

#include "base/buf.h"
#include "query/physical.h"

void explain_write(struct buf *out, const struct physical_plan *plan);

#endif
