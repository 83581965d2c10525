/*
 * join_filter.h - where the filters that DuckDB's joins make while they run would change a result.
 *
 * A join that has read one side knows which keys it looks for, and lets the scans of its other side leave out all other
 * rows. DuckDB 1.5.6 (join_filter_pushdown_optimizer.cpp) finds these scans below LIMIT, ORDER BY … LIMIT and DISTINCT ON,
 * too, though these then take other rows than they should: `a JOIN (SELECT … ORDER BY v LIMIT 100) b` had rows that are not
 * among those hundred, or not, from run to run. The optimizer can only be turned off for a whole process, and most queries
 * are much faster with it.
 *
 * And where one task reads files whose columns differ in their types or places, such a filter may not be understood at all:
 * the query fails, or not, by which side of the join is the smaller one.
 *
 * It does not look into an entry of a WITH that is MATERIALIZED. So SQL that Capstan writes has such nodes there if they are
 * below a join (unparse.c), as have stages whose SQL is put together (tail.c, refine.c); and a query in which there are any
 * does not run in its user's own words (cut.c), unless it cannot be cut: then it is as right as in DuckDB.
 *
 * Threads: any.
 */
#ifndef CAPSTAN_QUERY_JOIN_FILTER_H
#define CAPSTAN_QUERY_JOIN_FILTER_H

#include <stdbool.h>

#include "query/plan.h"

/* Behind a scan of such files, by which SQL that has one is known. */
#define JOIN_FILTER_KINDS " /* files of several kinds */"

/* Whether a filter must not come here: other rows would come out of the node, or the query could fail. */
bool join_filter_changes(const struct plan_node *node);

/* Whether a filter of a join above the node may reach what is below it. */
bool join_filter_passes(const struct plan_node *node);

/* Whether the tree, run as it is, has a node that is changed below a join. */
bool join_filter_does_harm(const struct plan_node *root);

/* What stands behind AS if the SQL, which Capstan has written, becomes an entry of a WITH: "MATERIALIZED " or nothing. */
const char *join_filter_barrier(const char *sql);

#endif
