/*
 * table.h - a query's result as texts, and whether two results are the same.
 *
 * Ownership: a zero-initialised table is valid and empty; table_deinit frees it. Threads: one at a time.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_QUERY_TABLE_H
#define CAPSTAN_TESTS_INTEGRATION_QUERY_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "duck/duck.h"

struct table {
    struct arena arena;
    uint32_t n_columns;
    const char **names;
    const char **types;
    uint32_t n_rows;
    uint32_t cap;
    const char ***rows; /* texts; NULL for a NULL */
};

void table_deinit(struct table *table);

/* Runs the SELECT and appends its rows; the first call also notes names and types, later ones must find the same. */
enum err table_append(struct table *table, struct duck_connection *connection, const char *sql, struct error *e);

enum table_order {
    ORDER_MATTERS,
    ORDER_IS_FREE, /* the same rows, in any order */
    COUNT_ONLY,    /* names, types and the number of rows, for rows that differ each time */
    TYPES_ONLY     /* names and types only, for results whose number of rows differs, too */
};

/*
 * Whether they are the same: names, types, and values, of which floating-point numbers may differ in the last digits.
 * If not, says in `difference` what is different.
 */
bool table_equal(const struct table *expected, const struct table *actual, enum table_order order,
                 struct buf *difference);

#endif
