/*
 * unparse.h - a plan, or a part of one, as SQL for DuckDB.
 *
 * Every node becomes one SELECT whose columns are called c0, c1, … in the order of plan_node.columns; nodes are nested as
 * derived tables, CTEs and the key side of delim joins stand in a WITH in front. DuckDB optimizes the text again where it
 * runs, so nesting costs nothing. The columns have exactly the types that the plan says.
 *
 * A fragment of a plan is made by replacing subtrees before unparsing: NODE_INPUT for rows of another stage (columns are
 * cast to the node's types, since Arrow does not carry all of them), struct scan_split for a part of a scan, plan_extend
 * for more columns.
 *
 * Some plans have no form in SQL. These functions then return ERR_PRECONDITION with the reason as the message; the query
 * runs as one task.
 *
 * Ownership: text is appended to the caller's buffer, and cut back to what it was on failure. Threads: any.
 */
#ifndef CAPSTAN_QUERY_UNPARSE_H
#define CAPSTAN_QUERY_UNPARSE_H

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "query/plan.h"

/* Appends the SELECT for the node and all below it. */
MUST_USE enum err unparse_node(struct buf *sql, struct plan_node *node, struct error *e);

/* The same, with the result's own names (and types, where they differ) instead of c0, c1, … */
MUST_USE enum err unparse_result(struct buf *sql, struct plan_node *node, const struct plan_column *columns, uint32_t n,
                                 struct error *e);

/*
 * Appends one expression. Column i of its input is written as "<table>.c<i>", or as "c<i>" if `table` is NULL. Not for
 * lambdas on their own.
 */
MUST_USE enum err unparse_expression(struct buf *sql, const struct expression *expression, const char *table,
                                     struct error *e);

#endif
