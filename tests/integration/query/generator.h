/*
 * generator.h - random queries over any schema, from a seed.
 *
 * A query follows from a list of decisions, small numbers that are drawn as they are needed; zero is always the simplest
 * way to go on. So a query that shows a difference can be made smaller by making its decisions smaller, whatever the grammar
 * is (generator_shrink).
 *
 * Queries are such that the result does not hang on chance: LIMIT and DISTINCT ON come with an order of all columns,
 * aggregates and windows that depend on the order of rows have one that leaves nothing open, an ASOF join has one nearest
 * row to find. Each table must have a column of whole numbers.
 *
 * Ownership: a zero-initialised `struct decisions` is valid and empty; decisions_deinit frees it. Threads: one at a time.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_QUERY_GENERATOR_H
#define CAPSTAN_TESTS_INTEGRATION_QUERY_GENERATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum column_class {
    CLASS_INT,
    CLASS_DECIMAL,
    CLASS_FLOAT,
    CLASS_TEXT,
    CLASS_DATE,
    CLASS_BOOL,
    CLASS_TIMESTAMP,
    CLASS_TIMESTAMP_TZ,
    CLASS_TIME,
    CLASS_UUID,
    CLASS_BLOB,
    CLASS_ENUM,
    CLASS_LIST,
    CLASS_STRUCT,
    CLASS_OTHER, /* MAP, ARRAY, JSON, INTERVAL, of which equal ones may read differently: they are only passed on */
};

struct schema_column {
    const char *name;
    enum column_class class;
};

struct schema_table {
    const char *name;
    uint64_t rows;
    uint32_t n_columns;
    struct schema_column *columns;
};

struct schema {
    uint32_t n_tables;
    struct schema_table *tables;
};

/* The class of a type, as DESCRIBE names it. */
enum column_class column_class_of(const char *type);

struct decisions {
    uint32_t *values;
    uint32_t n;
    uint32_t cap;
};

void decisions_deinit(struct decisions *decisions);

/* Writes the query of a seed, and notes the decisions that led to it. */
void generate_query(const struct schema *schema, uint64_t seed, struct decisions *out_decisions, struct buf *out_sql);

/* Writes the query of these decisions; what they do not decide is as simple as it can be. */
void generate_from(const struct schema *schema, const struct decisions *decisions, struct buf *out_sql);

/* Whether the query still shows what is looked for. */
typedef bool shrink_check_fn(void *context, const char *sql);

/* Makes the decisions smaller as long as their query passes the check, which is called at most `calls_max` times. */
void generator_shrink(const struct schema *schema, struct decisions *decisions, shrink_check_fn *check, void *context,
                      uint32_t calls_max);

#endif
