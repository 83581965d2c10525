/*
 * Every query is planned, its plan written as SQL again, and that run by a DuckDB that knows no views: names, types and
 * rows must be those of the query itself. What runs as one task, and why, is kept in tests/data/sql/unsupported.txt.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "query/data.h"
#include "query/unparse.h"
#include "test.h"

/* Between the values of a row, and for NULL; neither is in the data. */
#define SEPARATOR "\x1f"
#define NULL_TEXT "\x01null"

struct rows {
    char **rows;
    uint32_t n;
    uint32_t cap;
};

struct bench {
    struct planner *planner;
    struct duck *duck;
    struct duck_connection *viewed; /* has the tables as views */
    struct duck_connection *bare;
    uint32_t n_failed;
    uint32_t n_supported;
    struct buf unsupported;
};

static struct bench bench_open(void)
{
    struct bench b = {0};
    struct error e = {0};
    CHECK_ERR(planner_open(&b.planner, &e), ERR_OK);
    CHECK_ERR(duck_open(&(struct duck_options){.threads = 2}, &b.duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(b.duck, &b.viewed, &e), ERR_OK);
    CHECK_ERR(duck_connect(b.duck, &b.bare, &e), ERR_OK);
    test_create_views(b.viewed);
    return b;
}

static void bench_close(struct bench *b)
{
    duck_disconnect(b->viewed);
    duck_disconnect(b->bare);
    duck_close(b->duck);
    planner_close(b->planner);
    buf_deinit(&b->unsupported);
}

static enum err keep_row(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(e);
    struct rows *rows = context;
    struct buf row = {0};
    for (uint32_t i = 0; i < n; i++) {
        buf_text(&row, i == 0 ? "" : SEPARATOR);
        if (values[i].bytes == NULL) {
            buf_text(&row, NULL_TEXT);
        } else {
            for (size_t k = 0; k < values[i].n; k++) {
                buf_char(&row, values[i].bytes[k] == '\0' ? '\x02' : values[i].bytes[k]);
            }
        }
    }
    rows->rows = mem_grow(rows->rows, &rows->cap, rows->n + 1, sizeof(char *));
    rows->rows[rows->n++] = row.data;
    return ERR_OK;
}

static void rows_free(struct rows *rows)
{
    for (uint32_t i = 0; i < rows->n; i++) {
        mem_free(rows->rows[i]);
    }
    mem_free(rows->rows);
    *rows = (struct rows){0};
}

/* Runs "<before><sql><after>". */
static enum err run(struct duck_connection *connection, const char *before, const char *sql, const char *after,
                    struct rows *out, struct error *e)
{
    struct buf text = {0};
    buf_format(&text, "%s%s%s", before, sql, after);
    enum err err = duck_rows(connection, text.data, NULL, 0, keep_row, out, e);
    buf_deinit(&text);
    return err;
}

/* All values as texts. Statements before the last one, which make views, are run as they are. */
static enum err run_query(struct duck_connection *connection, const char *sql, struct rows *out, struct error *e)
{
    struct buf before = {0};
    for (const char *end = strstr(sql, ";\n"); end != NULL; end = strstr(sql, ";\n")) {
        buf_append(&before, sql, (size_t)(end + 2 - sql));
        sql = end + 2;
    }
    buf_text(&before, "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (");
    enum err err = run(connection, before.data, sql, "\n)", out, e);
    buf_deinit(&before);
    return err;
}

static bool numbers_are_near(const char *a, const char *b)
{
    char *end_a = NULL;
    char *end_b = NULL;
    double x = strtod(a, &end_a);
    double y = strtod(b, &end_b);
    if (end_a == a || end_b == b || *end_a != '\0' || *end_b != '\0') {
        return false;
    }
    return fabs(x - y) <= 1e-9 * fmax(fabs(x), fabs(y));
}

/* Whether the rows are the same, but for the last digits of floating sums, whose order is not fixed. */
static bool rows_are_near(const char *a, const char *b)
{
    if (strcmp(a, b) == 0) {
        return true;
    }
    for (;;) {
        size_t n = strcspn(a, SEPARATOR);
        size_t m = strcspn(b, SEPARATOR);
        char x[64];
        char y[64];
        bool is_same = n == m && strncmp(a, b, n) == 0;
        if (!is_same) {
            if (n >= sizeof(x) || m >= sizeof(y)) {
                return false;
            }
            (void)snprintf(x, sizeof(x), "%.*s", (int)n, a);
            (void)snprintf(y, sizeof(y), "%.*s", (int)m, b);
            if (!numbers_are_near(x, y)) {
                return false;
            }
        }
        if (a[n] == '\0' || b[m] == '\0') {
            return a[n] == b[m];
        }
        a += n + 1;
        b += m + 1;
    }
}

static int compare_rows(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_rows(struct rows *rows)
{
    if (rows->n > 0) {
        qsort(rows->rows, rows->n, sizeof(char *), compare_rows);
    }
}

static void complain(struct bench *b, const char *name, const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s: %s\n", name, what, detail);
    b->n_failed++;
}

static bool compare_numbers(struct bench *b, const char *name, const char *what, const struct rows *actual,
                            const struct rows *expected)
{
    char detail[100];
    if (actual->n != expected->n) {
        (void)snprintf(detail, sizeof(detail), "%u rows instead of %u", actual->n, expected->n);
        complain(b, name, what, detail);
    }
    return actual->n == expected->n;
}

/* Compares; rows in any order if `is_ordered` is not set. */
static void compare(struct bench *b, const char *name, const char *what, struct rows *actual, struct rows *expected,
                    bool is_ordered)
{
    char detail[1000];
    if (!compare_numbers(b, name, what, actual, expected)) {
        return;
    }
    if (!is_ordered) {
        sort_rows(actual);
        sort_rows(expected);
    }
    for (uint32_t i = 0; i < actual->n; i++) {
        if (!rows_are_near(actual->rows[i], expected->rows[i])) {
            (void)snprintf(detail, sizeof(detail), "row %u is '%.400s' instead of '%.400s'", i, actual->rows[i],
                           expected->rows[i]);
            complain(b, name, what, detail);
            return;
        }
    }
}

static void compare_types(struct bench *b, const struct test_query *query, const char *sql)
{
    struct rows actual = {0};
    struct rows expected = {0};
    struct error e = {0};
    if (run(b->bare, "DESCRIBE ", sql, "", &actual, &e) != ERR_OK ||
        (run(b->viewed, "DESCRIBE ", query->sql, "", &expected, &e) != ERR_OK &&
         run(b->viewed, "DESCRIBE SELECT * FROM (", query->sql, ")", &expected, &e) != ERR_OK)) {
        complain(b, query->name, "types", e.message);
    } else {
        compare(b, query->name, "types", &actual, &expected, true);
    }
    rows_free(&actual);
    rows_free(&expected);
}

static void compare_results(struct bench *b, const struct test_query *query, const char *sql)
{
    struct rows actual = {0};
    struct rows expected = {0};
    struct error e = {0};
    if (run_query(b->viewed, query->sql, &expected, &e) != ERR_OK) {
        complain(b, query->name, "the query itself", e.message);
    } else if (run_query(b->bare, sql, &actual, &e) != ERR_OK) {
        complain(b, query->name, "its plan", e.message);
    } else if (!query->is_volatile) {
        compare(b, query->name, "rows", &actual, &expected, query->is_ordered);
    } else if (query->is_counted) {
        compare_numbers(b, query->name, "rows", &actual, &expected);
    }
    rows_free(&actual);
    rows_free(&expected);
}

static void check_query(struct bench *b, const struct test_query *query)
{
    const struct test_data *data = test_data();
    struct arena arena = {0};
    struct error e = {0};
    struct plan *plan = NULL;
    struct buf sql = {0};
    if (query_plan(b->planner, query->sql, NULL, data->tables, data->n_tables, &arena, &plan, &e) != ERR_OK) {
        complain(b, query->name, "planning", e.message);
        goto out;
    }
    if (plan->unsupported != NULL) {
        buf_format(&b->unsupported, "%s: %s\n", query->name, plan->unsupported);
        buf_text(&sql, plan->sql);
    } else {
        b->n_supported++;
        if (unparse_result(&sql, plan->root, plan->columns, plan->n_columns, &e) != ERR_OK) {
            complain(b, query->name, "unparsing", e.message);
            goto out;
        }
        compare_types(b, query, sql.data);
    }
    uint32_t n_failed = b->n_failed;
    compare_results(b, query, sql.data);
    if (b->n_failed > n_failed && getenv("CAPSTAN_TEST_VERBOSE") != NULL) {
        fprintf(stderr, "%s\n", sql.data);
    }
out:
    buf_deinit(&sql);
    arena_deinit(&arena);
}

static uint32_t check_file(struct bench *b, const char *file)
{
    uint32_t n = 0;
    const struct test_query *queries = test_queries(file, &n);
    const char *only = getenv("CAPSTAN_TEST_QUERY");
    for (uint32_t i = 0; i < n; i++) {
        if (only == NULL || strcmp(queries[i].name, only) == 0) {
            check_query(b, &queries[i]);
        }
    }
    return n;
}

TEST(the_queries_of_tpch_survive_the_way_through_their_plans)
{
    struct bench b = bench_open();
    CHECK_UINT(check_file(&b, "tpch.sql"), 22);
    CHECK_UINT(b.n_failed, 0);
    CHECK_STR(b.unsupported.n > 0 ? b.unsupported.data : "", "");
    bench_close(&b);
}

TEST(all_features_of_the_dialect_survive_or_are_known_to_run_as_one_task)
{
    struct bench b = bench_open();
    uint32_t n = check_file(&b, "wide.sql");
    CHECK(n >= 150);
    fprintf(stderr, "%u of %u queries have a plan\n", b.n_supported, n);
    CHECK_UINT(b.n_failed, 0);
    CHECK_STR(b.unsupported.n > 0 ? b.unsupported.data : "", test_read_file("tests/data/sql/unsupported.txt"));
    CHECK(10 * b.n_supported >= 9 * n);
    bench_close(&b);
}
