/*
 * operators.h - a few custom operators for tests, written as SQL over the rows that they read.
 *
 *   add      the column a and more: adds "by" of the configuration, 5 if that says nothing
 *   count    one row, the number of rows that this task has seen, even if there are none; the column n
 *
 * Threads: one at a time.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_QUERY_OPERATORS_H
#define CAPSTAN_TESTS_INTEGRATION_QUERY_OPERATORS_H

#include "base/buf.h"
#include "base/err.h"
#include "capstan/arrow.h"

/* As planner_custom_fn; `context` is a duck_connection. */
enum err operator_columns(void *context, const char *op, const char *config_json, const struct ArrowSchema *in,
                          struct ArrowSchema *out, struct error *e);

/* Appends a SELECT of what the operator makes of the rows of the table `from`. */
enum err operator_sql(struct buf *sql, const char *op, const char *config_json, const char *from, struct error *e);

#endif
