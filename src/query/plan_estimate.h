/*
 * plan_estimate.h - DuckDB's guesses at numbers of rows, for the nodes of a plan.
 *
 * The plan's JSON has none, but EXPLAIN (FORMAT JSON) of the same statement shows the same tree with them.
 *
 * Ownership: nothing is kept. Threads: any.
 */
#ifndef CAPSTAN_QUERY_PLAN_ESTIMATE_H
#define CAPSTAN_QUERY_PLAN_ESTIMATE_H

#include <stddef.h>

#include "query/plan.h"

/*
 * Sets rows_estimated of all nodes for which the text has a guess. What does not fit the plan is left out, with all below
 * it; they are guesses, and nobody may depend on them for more than speed.
 */
void plan_estimate(struct plan_node *root, const char *explained, size_t n);

#endif
