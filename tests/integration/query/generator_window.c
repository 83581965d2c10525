/*
 * generator_window.c - random queries with windows: frames, QUALIFY.
 *
 * What a row gets may depend on its place among rows that are alike in the window's order. So a query first makes columns
 * of which equal values read the same, and windows see these only. Rows that are alike in all of them are the same for
 * everybody, unless two windows number them: that is allowed only if they have been made distinct.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "query/generator_internal.h"

#define COLUMNS_MAX 3

/* A function of a column {a}, or of a number {n}. */
struct window_call {
    const char *call;
    bool has_frame; /* it is about the rows of the frame */
    bool is_exact;
};

/* These give the same for rows that are alike in the window's order. */
static const struct window_call peer_calls[] = {
    {"count(*)", true, true},      {"sum({n})", true, true},   {"min({a})", true, true},
    {"max({a})", true, true},      {"count({a})", true, true}, {"count(DISTINCT {a})", true, true},
    {"rank()", false, true},       {"avg({n})", true, false},  {"dense_rank()", false, true},
    {"cume_dist()", false, false},
};

static const struct window_call row_calls[] = {
    {"row_number()", false, true},
    {"sum({n})", true, true},
    {"first_value({a})", true, true},
    {"lag({a})", false, true},
    {"count(*)", true, true},
    {"max({a})", true, true},
    {"lead({a}, 2)", false, true},
    {"last_value({a} IGNORE NULLS)", true, true},
    {"nth_value({a}, 2)", true, true},
    {"ntile(3)", false, true},
    {"count(DISTINCT {a})", true, true},
    {"lag({a}, 1 IGNORE NULLS)", false, true},
    {"avg({n})", true, false},
};

/* For an order of all columns. */
static const char *const row_frames[] = {
    "",
    " ROWS UNBOUNDED PRECEDING",
    " ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW",
    " ROWS BETWEEN 3 PRECEDING AND CURRENT ROW EXCLUDE TIES",
    " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
};

/* For any order. */
static const char *const peer_frames[] = {
    "",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE GROUP",
    " GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
    " GROUPS BETWEEN 1 FOLLOWING AND 2 FOLLOWING",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES",
};

/* Frames of values near that of the row. What DuckDB could not add to is left out of the order: it would fail. */
static const struct {
    enum column_class class;
    const char *order;
} range_orders[] = {
    {CLASS_INT, "{a} % 1000::BIGINT RANGE BETWEEN 5 PRECEDING AND 5 FOLLOWING"},
    {CLASS_INT, "{a} % 1000::BIGINT DESC NULLS LAST RANGE BETWEEN 1 FOLLOWING AND 20 FOLLOWING"},
    {CLASS_DECIMAL, "{a} RANGE BETWEEN 10 PRECEDING AND CURRENT ROW"},
    {CLASS_DATE,
     "CASE WHEN isfinite({a}) THEN {a} END RANGE BETWEEN INTERVAL 3 DAYS PRECEDING AND INTERVAL 1 DAY FOLLOWING"},
    {CLASS_TIMESTAMP, "{a} DESC RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW"},
};

/* By all columns, of which any may be the first. */
static void write_order_of_rows(struct generator *g, const struct scope *scope)
{
    static const char *const orders[] = {"", " DESC", " NULLS FIRST", " DESC NULLS LAST"};
    uint32_t first = generator__pick(g, scope->n);
    buf_text(g->out, "ORDER BY ");
    for (uint32_t i = 0; i < scope->n; i++) {
        buf_format(g->out, "%s%s%s", i == 0 ? "" : ", ", scope->columns[(first + i) % scope->n].sql,
                   orders[generator__pick(g, 4)]);
    }
}

static void write_order_of_peers(struct generator *g, const struct scope *scope, bool has_frame)
{
    const struct visible *by = generator__exact(g, scope);
    uint32_t range = generator__pick(g, 2 * ARRAY_LEN(range_orders));
    struct holes holes = {0};
    if (has_frame && range < ARRAY_LEN(range_orders)) {
        const struct visible *near = generator__column(g, scope, range_orders[range].class);
        if (near != NULL) {
            holes.texts['a' - 'a'] = near->sql;
            buf_text(g->out, "ORDER BY ");
            generator__fill(g, range_orders[range].order, &holes, scope);
            return;
        }
    }
    buf_format(g->out, "ORDER BY %s", by->sql);
    if (has_frame) {
        buf_text(g->out, peer_frames[generator__pick(g, ARRAY_LEN(peer_frames))]);
    }
}

/* One window over the columns; `is_by_row` says that it may tell rows apart that are alike. True if its values are exact. */
static bool write_framed(struct generator *g, const struct scope *scope, bool is_by_row)
{
    const struct window_call *call = is_by_row ? &row_calls[generator__pick(g, ARRAY_LEN(row_calls))]
                                               : &peer_calls[generator__pick(g, ARRAY_LEN(peer_calls))];
    const struct visible *number = generator__column(g, scope, CLASS_INT);
    struct holes holes = {0};
    holes.texts['a' - 'a'] = generator__exact(g, scope)->sql;
    holes.texts['n' - 'a'] = number == NULL ? "1" : number->sql;
    generator__fill(g, call->call, &holes, scope);
    if (call->has_frame && strstr(call->call, "_value") == NULL && generator__chance(g, 6)) {
        buf_text(g->out, " FILTER (WHERE ");
        generator__predicate(g, scope);
        buf_char(g->out, ')');
    }
    buf_text(g->out, " OVER (");
    if (generator__pick(g, 3) > 0) {
        buf_format(g->out, "PARTITION BY %s ", generator__exact(g, scope)->sql);
    }
    if (is_by_row) {
        write_order_of_rows(g, scope);
        if (call->has_frame) {
            buf_text(g->out, row_frames[generator__pick(g, ARRAY_LEN(row_frames))]);
        }
    } else {
        write_order_of_peers(g, scope, call->has_frame);
    }
    buf_char(g->out, ')');
    return call->is_exact;
}

static void write_qualify(struct generator *g, const struct scope *scope, bool is_by_row)
{
    const struct visible *by = generator__exact(g, scope);
    uint32_t form = generator__pick(g, is_by_row ? 3 : 2);
    if (form == 0) {
        buf_format(g->out, " QUALIFY count(*) OVER (PARTITION BY %s) > 1", by->sql);
    } else if (form == 1) {
        buf_format(g->out, " QUALIFY rank() OVER (PARTITION BY %s ORDER BY %s DESC) <= 2", by->sql,
                   generator__exact(g, scope)->sql);
    } else {
        buf_format(g->out, " QUALIFY row_number() OVER (PARTITION BY %s ", by->sql);
        write_order_of_rows(g, scope);
        buf_format(g->out, ") <= %" PRIu32, 1 + generator__pick(g, 3));
    }
}

/* The columns that windows see, as a SELECT; they come into scope. */
static void write_columns(struct generator *g, struct scope *seen, bool is_distinct)
{
    struct scope scope = {0};
    struct buf *out = g->out;
    struct buf from = {0};
    g->out = &from;
    generator__from(g, &scope);
    g->out = out;
    buf_text(out, is_distinct ? "SELECT DISTINCT " : "SELECT ");
    for (uint32_t i = 0, n = 1 + generator__pick(g, COLUMNS_MAX); i < n; i++) {
        char name[16];
        enum column_class class = generator__exact(g, &scope)->class;
        snprintf(name, sizeof name, "c%" PRIu32, i);
        buf_text(out, i == 0 ? "" : ", ");
        generator__value(g, &scope, class);
        buf_format(out, " AS %s", name);
        generator__show(seen, "w", name, class);
    }
    buf_format(out, " FROM %s", from.data);
    buf_deinit(&from);
}

void generator__windows(struct generator *g, uint32_t *out_columns, bool *out_is_exact)
{
    struct scope seen = {0};
    struct buf *out = g->out;
    struct buf from = {0};
    bool is_distinct = generator__chance(g, 3);
    bool may_number = true;
    bool is_exact = true;
    g->out = &from;
    write_columns(g, &seen, is_distinct);
    g->out = out;
    buf_text(out, "SELECT *");
    uint32_t n = generator__pick(g, 3);
    for (uint32_t i = 0; i < n; i++) {
        bool is_by_row = may_number && generator__chance(g, 2);
        buf_text(out, ", ");
        is_exact = write_framed(g, &seen, is_by_row) && is_exact;
        may_number = may_number && (is_distinct || !is_by_row);
    }
    buf_format(out, " FROM (%s) w", from.data);
    if (n == 0 || generator__chance(g, 4)) {
        write_qualify(g, &seen, may_number);
    }
    *out_columns = seen.n + n;
    *out_is_exact = is_exact;
    buf_deinit(&from);
}
