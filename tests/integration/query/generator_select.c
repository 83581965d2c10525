/* generator_select.c - random SELECTs: plain ones, groups, DISTINCT ON, windows, set operations, CTEs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "query/generator_internal.h"

#define KEYS_MAX 3

#define CLASS(class) (1U << (class))
#define CLASSES_ALL (~0U)
#define CLASSES_EXACT (CLASSES_ALL & ~CLASS(CLASS_FLOAT))
#define CLASSES_NUMBER (CLASS(CLASS_INT) | CLASS(CLASS_DECIMAL) | CLASS(CLASS_FLOAT))

/* An aggregate of a column {a} of one of the classes; {b} is one more column, of which equal values read the same. */
struct aggregate {
    const char *call;
    uint32_t classes;
    bool is_exact; /* if its argument is */
};

static const struct aggregate aggregates[] = {
    {"count(*)", CLASSES_ALL, true},
    {"count(DISTINCT {a})", CLASSES_ALL, true},
    {"min({a})", CLASSES_ALL, true},
    {"max({a})", CLASSES_ALL, true},
    {"count({a})", CLASSES_ALL, true},
    {"sum({a})", CLASSES_NUMBER, true},
    {"avg({a})", CLASSES_NUMBER, false},
    {"bool_or({p})", CLASSES_ALL, true},
    {"count_if({p})", CLASSES_ALL, true},
    {"stddev_pop({a})", CLASSES_NUMBER, false},
    {"var_samp({a})", CLASSES_NUMBER, false},
    {"median({a})", CLASSES_NUMBER, false},
    {"list({a} ORDER BY {a})", CLASS(CLASS_INT) | CLASS(CLASS_TEXT), true},
    {"approx_count_distinct({a})", CLASSES_EXACT, true},
    {"sum(DISTINCT {a})", CLASS(CLASS_INT) | CLASS(CLASS_DECIMAL), true},
    {"list(DISTINCT {a} ORDER BY {a} DESC)", CLASSES_EXACT, true},
    {"string_agg({a}, '|' ORDER BY {a})", CLASS(CLASS_TEXT), true},
    {"first({a} ORDER BY {b} DESC, {a})", CLASSES_EXACT, true},
    {"arg_max({a}, struct_pack(b := {b}, a := {a}))", CLASSES_EXACT, true},
    {"count(DISTINCT struct_pack(a := {a}, b := {b}))", CLASSES_EXACT, true},
    {"max({a}, 3)", CLASS(CLASS_INT) | CLASS(CLASS_TEXT), true},
    {"quantile_disc({a}, 0.3)", CLASS(CLASS_INT) | CLASS(CLASS_DECIMAL) | CLASS(CLASS_DATE), true},
    {"bit_xor({a})", CLASS(CLASS_INT), true},
    {"avg(DISTINCT {a})", CLASS(CLASS_INT) | CLASS(CLASS_DECIMAL), false},
};

/* Whether the result of the aggregate is exact. */
static bool write_aggregate(struct generator *g, const struct scope *scope)
{
    const struct visible *column = generator__plain(g, scope);
    const struct visible *other = generator__exact(g, scope);
    uint32_t wanted = generator__pick(g, ARRAY_LEN(aggregates));
    struct holes holes = {0};
    while ((aggregates[wanted].classes & CLASS(column->class)) == 0) {
        wanted--; /* the first ones take everything */
    }
    wanted = column->class == CLASS_OTHER || other == NULL ? 0 : wanted;
    holes.texts['a' - 'a'] = column->sql;
    holes.texts['b' - 'a'] = other == NULL ? "" : other->sql;
    generator__fill(g, aggregates[wanted].call, &holes, scope);
    if (generator__chance(g, 5)) {
        buf_text(g->out, " FILTER (WHERE ");
        generator__predicate(g, scope);
        buf_char(g->out, ')');
    }
    return aggregates[wanted].is_exact && (column->class != CLASS_FLOAT || wanted < 2);
}

static const char *pick_order(struct generator *g)
{
    static const char *const orders[] = {"", " DESC", " NULLS FIRST", " DESC NULLS LAST"};
    return orders[generator__pick(g, 4)];
}

/* By all of the `n` columns of the result, and how many rows then. */
static void write_order_of_all(struct generator *g, uint32_t n, bool is_limited)
{
    buf_text(g->out, " ORDER BY ");
    for (uint32_t i = 0; i < n; i++) {
        buf_format(g->out, "%s%" PRIu32 "%s", i == 0 ? "" : ", ", i + 1, pick_order(g));
    }
    if (is_limited) {
        buf_format(g->out, " LIMIT %" PRIu32, 1 + generator__pick(g, 30));
        if (generator__chance(g, 3)) {
            buf_format(g->out, " OFFSET %" PRIu32, generator__pick(g, 20));
        }
    }
}

static void write_order(struct generator *g, uint32_t n, bool is_exact)
{
    uint32_t form = generator__pick(g, 5);
    if (is_exact && form >= 2) {
        write_order_of_all(g, n, form == 4);
    }
}

/* Groups. */

struct keys {
    struct buf texts[KEYS_MAX];
    uint32_t n;
};

/* Those of the keys whose bit is set. */
static void write_keys(struct buf *out, const struct keys *keys, uint32_t bits)
{
    bool is_first = true;
    for (uint32_t i = 0; i < keys->n; i++) {
        if ((bits >> i & 1) != 0) {
            buf_format(out, "%s%s", is_first ? "" : ", ", keys->texts[i].data);
            is_first = false;
        }
    }
}

static void write_group_by(struct generator *g, const struct keys *keys)
{
    static const char *const kinds[] = {"", "", "", "ROLLUP (", "CUBE (", "GROUPING SETS ("};
    uint32_t kind = keys->n > 1 ? generator__pick(g, 6) : 0;
    buf_format(g->out, " GROUP BY %s", kinds[kind]);
    if (kind == 5) {
        buf_char(g->out, '(');
        write_keys(g->out, keys, CLASSES_ALL); /* each key must be in one of the sets */
        buf_char(g->out, ')');
        for (uint32_t i = 0, n = generator__pick(g, 4); i < n; i++) {
            buf_text(g->out, ", (");
            write_keys(g->out, keys, generator__pick(g, 1U << keys->n));
            buf_char(g->out, ')');
        }
    } else {
        write_keys(g->out, keys, CLASSES_ALL);
    }
    buf_text(g->out, kind < 3 ? "" : ")");
    if (generator__chance(g, 4)) {
        buf_text(g->out,
                 generator__pick(g, 2) == 0 ? " HAVING count(*) > 1" : " HAVING count(*) FILTER (WHERE true) < 9");
    }
    if (generator__chance(g, 8)) {
        buf_text(g->out, " QUALIFY rank() OVER (ORDER BY count(*) DESC) <= 3");
    }
}

static void write_grouped(struct generator *g)
{
    struct scope scope = {0};
    struct buf *out = g->out;
    struct buf from = {0};
    struct keys keys = {0};
    g->out = &from;
    generator__from(g, &scope);
    keys.n = generator__pick(g, KEYS_MAX + 1);
    bool is_exact = true;
    for (uint32_t i = 0; i < keys.n; i++) {
        enum column_class class = generator__plain(g, &scope)->class;
        g->out = &keys.texts[i];
        generator__value(g, &scope, class == CLASS_OTHER ? CLASS_INT : class);
        is_exact = is_exact && class != CLASS_FLOAT;
    }
    g->out = out;
    buf_text(out, "SELECT ");
    write_keys(out, &keys, CLASSES_ALL);
    uint32_t n = keys.n;
    for (uint32_t i = 0, n_aggregates = 1 + generator__pick(g, 3); i < n_aggregates; i++) {
        buf_text(out, n++ == 0 ? "" : ", ");
        is_exact = write_aggregate(g, &scope) && is_exact;
    }
    if (keys.n > 0 && generator__chance(g, 6)) {
        buf_text(out, ", grouping(");
        write_keys(out, &keys, CLASSES_ALL);
        buf_char(out, ')');
        n++;
    }
    buf_format(out, " FROM %s", from.data);
    if (keys.n > 0) {
        write_group_by(g, &keys);
    }
    write_order(g, n, is_exact);
    for (uint32_t i = 0; i < keys.n; i++) {
        buf_deinit(&keys.texts[i]);
    }
    buf_deinit(&from);
}

/* Rows. */

static void write_window(struct generator *g, const struct scope *scope)
{
    const struct visible *by = generator__plain(g, scope);
    const struct visible *number = generator__column(g, scope, CLASS_INT);
    uint32_t form = number == NULL ? 0 : generator__pick(g, 4);
    if (form == 0) {
        buf_format(g->out, "rank() OVER (PARTITION BY %s ORDER BY %s)", by->sql, generator__plain(g, scope)->sql);
    } else if (form == 1) {
        buf_format(g->out, "sum(%s) OVER (PARTITION BY %s)", number->sql, by->sql);
    } else if (form == 2) {
        buf_format(g->out, "count(*) OVER (PARTITION BY %s ORDER BY %s)", by->sql, number->sql);
    } else {
        buf_format(g->out, "dense_rank() OVER (ORDER BY %s)", number->sql);
    }
}

/* The elements of a list, one row for each. */
static void write_unnest(struct generator *g, const struct scope *scope)
{
    const struct visible *list = generator__column(g, scope, CLASS_LIST);
    const struct visible *number = generator__column(g, scope, CLASS_INT);
    if (list != NULL) {
        buf_format(g->out, "unnest(%s)", list->sql);
    } else {
        buf_format(g->out, "unnest([%s, NULL, 7])", number == NULL ? "1" : number->sql);
    }
}

static void write_plain(struct generator *g)
{
    struct scope scope = {0};
    struct buf *out = g->out;
    struct buf from = {0};
    g->out = &from;
    generator__from(g, &scope);
    g->out = out;
    bool is_exact = true;
    uint32_t n = 1 + generator__pick(g, 4);
    buf_text(out, generator__chance(g, 4) ? "SELECT DISTINCT " : "SELECT ");
    for (uint32_t i = 0; i < n; i++) {
        const struct visible *column = generator__plain(g, &scope);
        uint32_t form = generator__pick(g, 18);
        buf_text(out, i == 0 ? "" : ", ");
        is_exact = is_exact && column->class != CLASS_FLOAT && column->class != CLASS_OTHER;
        if (form >= 15) {
            write_window(g, &scope);
        } else if (form == 14) {
            write_unnest(g, &scope);
        } else if (form == 13 && generator__subquery_value(g, &scope)) {
            continue;
        } else if (column->class == CLASS_OTHER) {
            buf_text(out, column->sql);
        } else {
            generator__value(g, &scope, column->class);
        }
    }
    buf_format(out, " FROM %s", from.data);
    write_order(g, n, is_exact);
    buf_deinit(&from);
}

/* The first row for each value of the first columns, in an order of all columns: rows that are alike in it are the same. */
static void write_distinct_on(struct generator *g)
{
    struct scope scope = {0};
    struct buf *out = g->out;
    struct buf from = {0};
    struct keys columns = {0};
    g->out = &from;
    generator__from(g, &scope);
    columns.n = 1 + generator__pick(g, KEYS_MAX);
    for (uint32_t i = 0; i < columns.n; i++) {
        g->out = &columns.texts[i];
        generator__value(g, &scope, generator__exact(g, &scope)->class);
    }
    g->out = out;
    buf_text(out, "SELECT DISTINCT ON (");
    write_keys(out, &columns, (1U << (1 + generator__pick(g, columns.n))) - 1);
    buf_text(out, ") ");
    write_keys(out, &columns, CLASSES_ALL);
    buf_format(out, " FROM %s", from.data);
    write_order_of_all(g, columns.n, generator__chance(g, 4));
    for (uint32_t i = 0; i < columns.n; i++) {
        buf_deinit(&columns.texts[i]);
    }
    buf_deinit(&from);
}

/* Of one to three columns, by two or three SELECTs. */
static void write_set_operation(struct generator *g)
{
    static const char *const operations[] = {"UNION ALL", "UNION",      "EXCEPT",
                                             "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"};
    static const enum column_class classes[] = {CLASS_INT,  CLASS_TEXT, CLASS_DATE, CLASS_TIMESTAMP, CLASS_TIMESTAMP_TZ,
                                                CLASS_UUID, CLASS_BLOB, CLASS_ENUM, CLASS_LIST};
    enum column_class chosen[KEYS_MAX];
    uint32_t n_columns = 1 + generator__pick(g, KEYS_MAX);
    uint32_t n = generator__chance(g, 4) ? 3 : 2;
    for (uint32_t i = 0; i < n_columns; i++) {
        chosen[i] = classes[generator__pick(g, 9)];
    }
    for (uint32_t i = 0; i < n; i++) {
        struct scope scope = {0};
        struct buf *out = g->out;
        struct buf from = {0};
        g->out = &from;
        generator__relation(g, &scope, false);
        generator__where(g, &scope);
        g->out = out;
        for (uint32_t k = 0; k < n_columns; k++) {
            buf_text(out, k == 0 ? "SELECT " : ", ");
            generator__value(g, &scope, chosen[k]);
            buf_format(out, " AS v%" PRIu32, k);
        }
        buf_format(out, " FROM %s", from.data);
        buf_deinit(&from);
        if (i + 1 < n) {
            buf_format(out, " %s ", operations[generator__pick(g, 6)]);
        }
    }
}

/* A CTE that is read twice. */
static void write_cte(struct generator *g)
{
    struct scope scope = {0};
    struct buf *out = g->out;
    struct buf from = {0};
    g->out = &from;
    generator__relation(g, &scope, true);
    generator__where(g, &scope);
    g->out = out;
    buf_format(out, "WITH c AS %sMATERIALIZED (SELECT ", generator__chance(g, 4) ? "NOT " : "");
    generator__value(g, &scope, CLASS_INT);
    buf_text(out, " AS a, ");
    generator__value(g, &scope, CLASS_TEXT);
    buf_text(out, " AS b");
    bool is_grouped = generator__chance(g, 2);
    buf_text(out, is_grouped ? ", count(*) AS n" : ", 1 AS n");
    buf_format(out, " FROM %s%s) ", from.data, is_grouped ? " GROUP BY ALL" : "");
    static const char *const bodies[] = {
        "SELECT x.a, y.b, x.n FROM c x JOIN c y ON x.a = y.a",
        "SELECT x.a, (SELECT max(y.n) FROM c y WHERE y.b = x.b) FROM c x",
        "SELECT a, b FROM c WHERE n > (SELECT avg(n) FROM c)",
        "SELECT a FROM c UNION ALL SELECT n FROM c",
        "SELECT x.b, count(*) FROM c x LEFT JOIN c y ON x.b = y.b AND x.a < y.a GROUP BY x.b",
        "SELECT a FROM c EXCEPT SELECT n FROM c",
        "SELECT x.a, y.b FROM c x JOIN (SELECT DISTINCT ON (b) b, a, n FROM c ORDER BY b, a DESC, n) y ON x.b = y.b",
        "SELECT x.a, y.n FROM c x ASOF LEFT JOIN (SELECT a, max(n) AS n FROM c WHERE a > 0 GROUP BY a) y ON ifnull(x.a, 7) > y.a",
        "SELECT a, sum(n) OVER (PARTITION BY b ORDER BY a, n ROWS 1 PRECEDING) FROM c WHERE n <= (SELECT max(n) FROM c)",
        "SELECT a, b FROM c x WHERE NOT EXISTS (SELECT 1 FROM c y WHERE y.b = x.b AND y.a > x.a)",
    };
    buf_text(out, bodies[generator__pick(g, ARRAY_LEN(bodies))]);
    buf_deinit(&from);
}

static void write_windows(struct generator *g)
{
    uint32_t n = 0;
    bool is_exact = false;
    generator__windows(g, &n, &is_exact);
    write_order(g, n, is_exact);
}

/* The forms of queries, the frequent ones several times. */
static void (*const forms[])(struct generator *g) = {
    write_plain,   write_plain,   write_plain,       write_plain,   write_grouped,       write_grouped,
    write_grouped, write_grouped, write_distinct_on, write_windows, write_set_operation, write_cte,
};

void generator__query(struct generator *g)
{
    forms[generator__pick(g, ARRAY_LEN(forms))](g);
}
