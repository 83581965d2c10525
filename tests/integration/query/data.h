/*
 * data.h - the generated tables, and the queries over them, for tests of this folder.
 *
 * The data is made once per process, at the first use, in a folder of its own, which is removed at the end.
 *
 * Ownership: everything belongs to this file and lives until the process ends. Threads: the tests' own.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_QUERY_DATA_H
#define CAPSTAN_TESTS_INTEGRATION_QUERY_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "duck/duck.h"
#include "query/planner.h"
#include "query/table.h"

struct test_data {
    const char *tpch; /* folder with the tables of TPC-H at scale 0.01 */
    const char *ugly; /* folder with the uneven ones */
    const struct planner_table *tables;
    uint32_t n_tables;
};

const struct test_data *test_data(void);

/* How many rows the largest of the uneven tables has, 20,000 unless it is said before the first use. */
void test_data_rows(uint32_t rows);

struct test_query {
    const char *name;
    const char *sql;   /* without a semicolon; {ugly} is filled in */
    bool is_ordered;   /* the order of its rows is part of the answer */
    bool is_volatile;  /* its rows differ from run to run */
    bool is_counted;   /* but their number does not */
    bool is_empty;     /* it has no rows, on purpose */
    bool is_fileless;  /* it reads no files, so that there is nothing to share out */
    const char *fails; /* a part of the error that it must end with; NULL: it does not fail */
};

/* What a result of the query must have in common with another one. */
enum table_order test_query_order(const struct test_query *query);

/* Of the queries of tpch.sql, q11 and q20 find nothing in so little data. wide.sql has them with other constants. */
#define TEST_TPCH_WITHOUT_ROWS 2

/*
 * Whether a result of the query has rows, or has none and is marked as empty: two results without rows are the same, whatever
 * made them. Says so if not. How many rows there are may be a matter of chance; then it is so always.
 */
bool test_has_rows(const struct test_query *query, const struct table *result);

/* The queries of tests/data/sql/`file`. */
const struct test_query *test_queries(const char *file, uint32_t *out_n);

/* The text with every {ugly} in it filled in. */
const char *test_fill_in(const char *sql);

/* Makes the tables known as views on a connection of another instance. */
void test_create_views(struct duck_connection *connection);

/* A file as a text. */
char *test_read_file(const char *path);

#endif
