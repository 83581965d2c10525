#include "query/table.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define TOLERANCE 1e-9

void table_deinit(struct table *table)
{
    arena_deinit(&table->arena);
    mem_free(table->rows);
    *table = (struct table){0};
}

struct description {
    struct table *table;
    uint32_t n;
    const char *names[4096];
    const char *types[4096];
};

static enum err add_column(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    struct description *d = context;
    if (n < 2 || d->n == 4096) {
        return error_set(e, ERR_INTERNAL, "DESCRIBE has too many columns");
    }
    d->names[d->n] = arena_strdup(&d->table->arena, values[0].bytes);
    d->types[d->n++] = arena_strdup(&d->table->arena, values[1].bytes);
    return ERR_OK;
}

static enum err add_row(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    struct table *table = context;
    const char **row = arena_alloc(&table->arena, (n + 1) * sizeof *row);
    (void)e;
    for (uint32_t i = 0; i < n; i++) {
        row[i] = values[i].bytes == NULL ? NULL : arena_strdup(&table->arena, values[i].bytes);
    }
    table->rows = mem_grow(table->rows, &table->cap, table->n_rows + 1, sizeof *table->rows);
    table->rows[table->n_rows++] = row;
    return ERR_OK;
}

static enum err note_columns(struct table *table, const struct description *d, struct error *e)
{
    if (table->names == NULL) {
        table->n_columns = d->n;
        table->names = arena_copy(&table->arena, d->names, d->n * sizeof *d->names);
        table->types = arena_copy(&table->arena, d->types, d->n * sizeof *d->types);
        return ERR_OK;
    }
    for (uint32_t i = 0; i < d->n || i < table->n_columns; i++) {
        if (d->n != table->n_columns || strcmp(d->types[i], table->types[i]) != 0) {
            return error_set(e, ERR_INTERNAL, "tasks of one stage have different types");
        }
    }
    return ERR_OK;
}

enum err table_append(struct table *table, struct duck_connection *connection, const char *sql, struct error *e)
{
    struct description *d = mem_calloc(1, sizeof *d);
    struct buf text = {0};
    d->table = table;
    /* DESCRIBE takes a SUMMARIZE only as a table. */
    bool is_summary = strncmp(sql, "SUMMARIZE", strlen("SUMMARIZE")) == 0;
    buf_format(&text, is_summary ? "DESCRIBE SELECT * FROM (%s)" : "DESCRIBE %s", sql);
    enum err err = duck_rows(connection, text.data, NULL, 0, add_column, d, e);
    if (err == ERR_OK) {
        err = note_columns(table, d, e);
    }
    if (err == ERR_OK) {
        buf_reset(&text);
        buf_format(&text, "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (%s\n)", sql);
        err = duck_rows(connection, text.data, NULL, 0, add_row, table, e);
    }
    buf_deinit(&text);
    mem_free(d);
    return err;
}

static bool is_inexact(const char *type)
{
    return strstr(type, "DOUBLE") != NULL || strstr(type, "FLOAT") != NULL;
}

/* Whether a number starts at `p`, and not in the middle of a word. */
static bool is_number_start(const char *text, const char *p)
{
    bool is_inside = p > text && (isalnum((unsigned char)p[-1]) || p[-1] == '.' || p[-1] == '_');
    return !is_inside && (isdigit((unsigned char)p[0]) || (p[0] == '-' && isdigit((unsigned char)p[1])));
}

static bool is_close(double a, double b)
{
    double larger = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
    return a == b || (isfinite(larger) && (fabs(a - b) <= TOLERANCE * larger || fabs(a - b) < 1e-12));
}

/* A sum over a NaN may be a NaN of either sign: it depends on the order of the additions. Steps over that sign. */
static const char *skip_nan_sign(const char *text, const char *p)
{
    bool is_inside = p > text && (isalnum((unsigned char)p[-1]) || p[-1] == '_');
    bool is_nan = !is_inside && strncmp(p, "-nan", 4) == 0 && !isalnum((unsigned char)p[4]) && p[4] != '_';
    return is_nan ? p + 1 : p;
}

/* Texts that are the same; with floats, but for the last digits of fractions in them, and the sign of NaN. */
static bool is_same_text(const char *a, const char *b, bool has_floats)
{
    const char *p = a;
    const char *q = b;
    if (a == NULL || b == NULL) {
        return a == b;
    }
    if (!has_floats) {
        return strcmp(a, b) == 0;
    }
    while (*p != '\0' && *q != '\0') {
        p = skip_nan_sign(a, p);
        q = skip_nan_sign(b, q);
        if (is_number_start(a, p) && is_number_start(b, q)) {
            char *end_p = NULL;
            char *end_q = NULL;
            double x = strtod(p, &end_p);
            double y = strtod(q, &end_q);
            bool is_fraction = memchr(p, '.', (size_t)(end_p - p)) != NULL ||
                               memchr(q, '.', (size_t)(end_q - q)) != NULL ||
                               memchr(p, 'e', (size_t)(end_p - p)) != NULL;
            bool is_identical = end_p - p == end_q - q && memcmp(p, q, (size_t)(end_p - p)) == 0;
            if (!is_identical && !(is_fraction && is_close(x, y))) {
                return false;
            }
            p = end_p;
            q = end_q;
        } else if (*p++ != *q++) {
            return false;
        }
    }
    return *p == *q;
}

static const struct table *sorted_table; /* for qsort */

static int compare_cells(const char *a, const char *b, bool is_number)
{
    if (a == NULL || b == NULL) {
        return (a != NULL) - (b != NULL);
    }
    if (is_number) {
        double x = strtod(a, NULL);
        double y = strtod(b, NULL);
        if (isnan(x) || isnan(y)) {
            return (isnan(x) ? 1 : 0) - (isnan(y) ? 1 : 0);
        }
        return is_close(x, y) ? 0 : (x > y) - (x < y);
    }
    return strcmp(a, b);
}

/* By the columns that are exact, then by the others. */
static int compare_rows(const void *a, const void *b)
{
    const char *const *x = *(const char *const *const *)a;
    const char *const *y = *(const char *const *const *)b;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < sorted_table->n_columns; i++) {
            bool is_number = is_inexact(sorted_table->types[i]);
            int order = is_number == (pass == 1) ? compare_cells(x[i], y[i], is_number) : 0;
            if (order != 0) {
                return order;
            }
        }
    }
    return 0;
}

static void describe_row(struct buf *out, const struct table *table, uint32_t at)
{
    for (uint32_t i = 0; at < table->n_rows && i < table->n_columns; i++) {
        buf_format(out, "%s%s", i == 0 ? "" : " | ", table->rows[at][i] == NULL ? "NULL" : table->rows[at][i]);
    }
}

static bool have_same_rows(const struct table *a, const struct table *b, struct buf *difference)
{
    for (uint32_t i = 0; i < a->n_rows; i++) {
        for (uint32_t k = 0; k < a->n_columns; k++) {
            if (!is_same_text(a->rows[i][k], b->rows[i][k], is_inexact(a->types[k]))) {
                buf_format(difference, "row %" PRIu32 ", column %" PRIu32 ":\n    expected ", i, k);
                describe_row(difference, a, i);
                buf_text(difference, "\n    got      ");
                describe_row(difference, b, i);
                return false;
            }
        }
    }
    return true;
}

bool table_equal(const struct table *expected, const struct table *actual, enum table_order order,
                 struct buf *difference)
{
    if (expected->n_columns != actual->n_columns) {
        buf_format(difference, "%" PRIu32 " columns expected, got %" PRIu32, expected->n_columns, actual->n_columns);
        return false;
    }
    for (uint32_t i = 0; i < expected->n_columns; i++) {
        if (strcmp(expected->types[i], actual->types[i]) != 0 || strcmp(expected->names[i], actual->names[i]) != 0) {
            buf_format(difference, "column %" PRIu32 ": expected %s %s, got %s %s", i, expected->names[i],
                       expected->types[i], actual->names[i], actual->types[i]);
            return false;
        }
    }
    if (order == TYPES_ONLY) {
        return true;
    }
    if (expected->n_rows != actual->n_rows) {
        buf_format(difference, "%" PRIu32 " rows expected, got %" PRIu32, expected->n_rows, actual->n_rows);
        return false;
    }
    if (order == COUNT_ONLY) {
        return true;
    }
    if (order == ORDER_MATTERS) {
        return have_same_rows(expected, actual, difference);
    }
    struct table a = *expected;
    struct table b = *actual;
    a.rows = mem_copy(expected->rows, expected->n_rows * sizeof *expected->rows);
    b.rows = mem_copy(actual->rows, actual->n_rows * sizeof *actual->rows);
    sorted_table = expected;
    if (a.n_rows > 1) {
        qsort(a.rows, a.n_rows, sizeof *a.rows, compare_rows);
        qsort(b.rows, b.n_rows, sizeof *b.rows, compare_rows);
    }
    bool is_same = have_same_rows(&a, &b, difference);
    mem_free(a.rows);
    mem_free(b.rows);
    return is_same;
}
