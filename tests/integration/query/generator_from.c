/* generator_from.c - what random queries read: tables and shares of them, joins, lists, conditions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "query/generator_internal.h"

#define JOINED_ROWS 250 /* about how many rows of a table take part in a join */
#define ALIAS_BYTES 16

/* One way to join. The function writes what follows the words, and shows the columns. */
struct join_kind {
    const char *words;
    void (*write)(struct generator *g, struct scope *scope);
    bool is_left_only; /* only the left side is seen afterwards */
};

static void new_alias(struct generator *g, char alias[ALIAS_BYTES])
{
    snprintf(alias, ALIAS_BYTES, "r%" PRIu32, g->n_names++);
}

/* Rows of the table {t}, which is called q, that are chosen by a column {x}; hash(q) makes the order one of all rows. */
static const char *const choices[] = {
    "(SELECT DISTINCT ON ({x}) * FROM {t} ORDER BY {x}, hash(q))",
    "(SELECT DISTINCT ON ({x}) * FROM {t} ORDER BY {x} DESC NULLS LAST, hash(q) DESC)",
    "(SELECT * FROM {t} ORDER BY hash(q) LIMIT 40)",
    "(SELECT * FROM {t} QUALIFY row_number() OVER (PARTITION BY {x} ORDER BY hash(q)) <= 2)",
};

static void write_choice(struct generator *g, const struct schema_table *table, const char *from)
{
    struct scope own = {0};
    struct holes holes = {0};
    for (uint32_t i = 0; i < table->n_columns; i++) {
        generator__show(&own, "q", table->columns[i].name, table->columns[i].class);
    }
    holes.texts['t' - 'a'] = from;
    holes.texts['x' - 'a'] = generator__plain(g, &own)->sql;
    generator__fill(g, choices[generator__pick(g, ARRAY_LEN(choices))], &holes, &own);
}

void generator__relation(struct generator *g, struct scope *scope, bool is_joined)
{
    const struct schema_table *table = &g->schema->tables[generator__pick(g, g->schema->n_tables)];
    char alias[ALIAS_BYTES];
    struct buf from = {0};
    new_alias(g, alias);
    uint64_t share = table->rows / JOINED_ROWS;
    bool is_share = is_joined && share > 1;
    buf_format(&from, "%s q", table->name);
    if (is_share && generator__chance(g, 4)) {
        buf_format(&from, " WHERE hash(q) %% %" PRIu64 " = %" PRIu32, share, generator__pick(g, 2));
    } else if (is_share) { /* less to read */
        buf_format(&from, " WHERE hash(q.\"%s\") %% %" PRIu64 " = %" PRIu32, table->columns[0].name, share,
                   generator__pick(g, 2));
    }
    if (is_joined && generator__chance(g, 10)) {
        write_choice(g, table, from.data);
        buf_format(g->out, " %s", alias);
    } else if (is_share) {
        buf_format(g->out, "(SELECT * FROM %s) %s", from.data, alias);
    } else {
        buf_format(g->out, "%s %s", table->name, alias);
    }
    for (uint32_t i = 0; i < table->n_columns; i++) {
        generator__show(scope, alias, table->columns[i].name, table->columns[i].class);
    }
    buf_deinit(&from);
}

/* Columns `from` and later belong to the other side. */
static void write_condition(struct generator *g, const struct scope *scope, uint32_t from)
{
    struct scope left = {.n = from};
    struct scope right = {.n = scope->n - from};
    memcpy(left.columns, scope->columns, from * sizeof left.columns[0]);
    memcpy(right.columns, scope->columns + from, right.n * sizeof right.columns[0]);
    for (uint32_t i = 0, n = 1 + generator__pick(g, 2); i < n; i++) {
        static const enum column_class classes[] = {CLASS_INT,  CLASS_INT,  CLASS_TEXT, CLASS_DATE, CLASS_DECIMAL,
                                                    CLASS_UUID, CLASS_ENUM, CLASS_BLOB, CLASS_TIME};
        enum column_class class = classes[generator__pick(g, 9)];
        const struct visible *a = generator__column(g, &left, class);
        const struct visible *b = generator__column(g, &right, class);
        buf_text(g->out, i == 0 ? "" : " AND ");
        if (i == 0 && left.columns[0].class == CLASS_INT && right.columns[0].class == CLASS_INT &&
            generator__chance(g, 2)) {
            buf_format(g->out, "%s = %s", left.columns[0].sql, right.columns[0].sql); /* by which tables are ordered */
            continue;
        }
        if (a == NULL || b == NULL) {
            a = generator__column(g, &left, CLASS_INT);
            b = generator__column(g, &right, CLASS_INT);
        }
        if (a == NULL || b == NULL) {
            buf_text(g->out, "true");
        } else if (class == CLASS_INT && generator__chance(g, 3)) { /* few values, so that there are matches */
            buf_format(g->out, "%s %% 50 = %s %% 50", a->sql, b->sql);
        } else {
            buf_format(g->out, "%s %s %s", a->sql, generator__chance(g, 4) ? "IS NOT DISTINCT FROM" : "=", b->sql);
        }
    }
    if (generator__chance(g, 4)) {
        buf_text(g->out, " AND ");
        generator__predicate(g, scope);
    }
}

static void write_joined(struct generator *g, struct scope *scope)
{
    uint32_t from = scope->n;
    generator__relation(g, scope, true);
    buf_text(g->out, " ON ");
    write_condition(g, scope, from);
}

/* Three rows, whichever come first in the order of all columns. */
static void write_few(struct generator *g, struct scope *scope)
{
    struct scope inner = {0};
    char alias[ALIAS_BYTES];
    buf_text(g->out, "(SELECT * FROM ");
    generator__relation(g, &inner, true);
    new_alias(g, alias);
    buf_format(g->out, " ORDER BY ALL LIMIT 3) %s", alias);
    for (uint32_t i = 0; i < inner.n; i++) {
        const char *name = strchr(inner.columns[i].sql, '.') + 2;
        char bare[72];
        snprintf(bare, sizeof bare, "%.*s", (int)(strcspn(name, "\"") % sizeof bare), name);
        generator__show(scope, alias, bare, inner.columns[i].class);
    }
}

/*
 * The nearest row of the other side, which has been made one of groups by all keys, so that there is only one. {l} and {m}
 * are what is near, {x} and {y} numbers that must be equal, {v} is what is seen, {r} the new name. What is near is never
 * NULL, but the constant {c}: DuckDB 1.5.6 may find a row that is near to NULL.
 */
static const char *const nearest[] = {
    "(SELECT {m} AS y, max({v}) AS v, count(*) AS n FROM {f} WHERE {m} IS NOT NULL GROUP BY ALL) {r} "
    "ON coalesce({l}, {c}) >= {r}.y",
    "(SELECT {m} AS y, min({v}) AS v, count(*) AS n FROM {f} WHERE {m} IS NOT NULL GROUP BY ALL) {r} "
    "ON coalesce({l}, {c}) < {r}.y",
    "(SELECT {m} AS y, {y} % 5 AS k, max({v}) AS v, count(*) AS n FROM {f} WHERE {m} IS NOT NULL GROUP BY ALL) {r} "
    "ON {x} % 5 = {r}.k AND coalesce({l}, {c}) > {r}.y",
    "(SELECT {m} AS y, {y} AS k, max({v}) AS v, count(*) AS n FROM {f} WHERE {m} IS NOT NULL GROUP BY ALL) {r} "
    "ON coalesce({l}, {c}) <= {r}.y AND {x} = {r}.k",
    "(SELECT DISTINCT ON ({m}) {m} AS y, {v} AS v, 1 AS n FROM {f} WHERE {m} IS NOT NULL AND {p} ORDER BY {m}, {v}) {r} "
    "ON coalesce({l}, {c}) >= {r}.y",
};

static void write_asof(struct generator *g, struct scope *scope)
{
    static const enum column_class classes[] = {CLASS_INT,     CLASS_INT,       CLASS_DATE,        CLASS_TEXT,
                                                CLASS_DECIMAL, CLASS_TIMESTAMP, CLASS_TIMESTAMP_TZ};
    enum column_class class = classes[generator__pick(g, ARRAY_LEN(classes))];
    struct buf *out = g->out;
    struct buf from = {0};
    struct buf constant = {0};
    struct scope inner = {0};
    struct holes holes = {0};
    char alias[ALIAS_BYTES];
    g->out = &from;
    generator__relation(g, &inner, true);
    new_alias(g, alias);
    const struct visible *x = generator__column(g, scope, CLASS_INT);
    const struct visible *y = generator__column(g, &inner, CLASS_INT);
    const struct visible *left = generator__column(g, scope, class);
    const struct visible *mine = generator__column(g, &inner, class);
    bool is_possible = left != NULL && mine != NULL;
    class = is_possible ? class : CLASS_INT;
    g->out = &constant;
    generator__constant(g, class);
    g->out = out;
    const struct visible *seen = generator__exact(g, &inner);
    holes.texts['c' - 'a'] = constant.data;
    holes.texts['f' - 'a'] = from.data;
    holes.texts['l' - 'a'] = is_possible ? left->sql : x->sql;
    holes.texts['m' - 'a'] = is_possible ? mine->sql : y->sql;
    holes.texts['r' - 'a'] = alias;
    holes.texts['v' - 'a'] = seen->sql;
    holes.texts['x' - 'a'] = x->sql;
    holes.texts['y' - 'a'] = y->sql;
    generator__fill(g, nearest[generator__pick(g, ARRAY_LEN(nearest))], &holes, &inner);
    generator__show(scope, alias, "y", class);
    generator__show(scope, alias, "v", seen->class);
    generator__show(scope, alias, "n", CLASS_INT);
    buf_deinit(&from);
    buf_deinit(&constant);
}

/* The elements of a list {l}, or of one that is made of a number {x}, as rows. */
static void write_unnest(struct generator *g, struct scope *scope)
{
    static const char *const lists[] = {
        "unnest({l}) AS {r}(x)",
        "unnest([1, NULL, 2]) AS {r}(x)",
        "unnest([{x}, NULL, {x}]) AS {r}(x)",
        "unnest(range(({x} % 4)::BIGINT)) AS {r}(x)",
        "unnest(list_distinct({l})) AS {r}(x)",
        "LATERAL (SELECT unnest({l}) AS x) {r}",
    };
    struct holes holes = {0};
    char alias[ALIAS_BYTES];
    new_alias(g, alias);
    const struct visible *list = generator__column(g, scope, CLASS_LIST);
    holes.texts['l' - 'a'] = list == NULL ? "[3, NULL, 3]" : list->sql;
    holes.texts['r' - 'a'] = alias;
    holes.texts['x' - 'a'] = generator__column(g, scope, CLASS_INT)->sql;
    generator__fill(g, lists[generator__pick(g, ARRAY_LEN(lists))], &holes, scope);
    generator__show(scope, alias, "x", CLASS_INT);
}

static void write_unnest_on(struct generator *g, struct scope *scope)
{
    write_unnest(g, scope);
    buf_text(g->out, " ON true");
}

/* What a subquery finds for each row: {x} and {y} are numbers of both sides, {v} is what is seen, {r} the new name. */
static void write_lateral(struct generator *g, struct scope *scope)
{
    static const char *const subqueries[] = {
        "LATERAL (SELECT max({v}) AS v, count(*) AS n FROM {f} WHERE {y} = {x}) {r} ON true",
        "LATERAL (SELECT {v} AS v, {y} AS n FROM {f} WHERE {y} = {x} AND {p}) {r} ON true",
        "LATERAL (SELECT {v} AS v, {y} AS n FROM {f} WHERE {y} = {x} ORDER BY 1, 2 LIMIT 2) {r} ON true",
        "LATERAL (SELECT {v} AS v, count(*) AS n FROM {f} WHERE {y} = {x} AND {p} GROUP BY 1) {r} ON true",
    };
    struct buf *out = g->out;
    struct buf from = {0};
    struct scope inner = {0};
    struct holes holes = {0};
    char alias[ALIAS_BYTES];
    g->out = &from;
    generator__relation(g, &inner, true);
    g->out = out;
    new_alias(g, alias);
    const struct visible *seen = generator__exact(g, &inner);
    holes.texts['f' - 'a'] = from.data;
    holes.texts['r' - 'a'] = alias;
    holes.texts['v' - 'a'] = seen->sql;
    holes.texts['x' - 'a'] = generator__column(g, scope, CLASS_INT)->sql;
    holes.texts['y' - 'a'] = generator__column(g, &inner, CLASS_INT)->sql;
    generator__fill(g, subqueries[generator__pick(g, ARRAY_LEN(subqueries))], &holes, &inner);
    generator__show(scope, alias, "v", seen->class);
    generator__show(scope, alias, "n", CLASS_INT);
    buf_deinit(&from);
}

/*
 * Plain joins are more frequent than others. There is no ASOF RIGHT and no ASOF FULL JOIN: DuckDB 1.5.6 waits for ever if
 * their left side has no rows.
 */
static const struct join_kind join_kinds[] = {
    {"JOIN", write_joined, false},        {"LEFT JOIN", write_joined, false},    {"RIGHT JOIN", write_joined, false},
    {"FULL JOIN", write_joined, false},   {"SEMI JOIN", write_joined, true},     {"ANTI JOIN", write_joined, true},
    {"CROSS JOIN", write_few, false},     {"JOIN", write_joined, false},         {"LEFT JOIN", write_joined, false},
    {"ASOF JOIN", write_asof, false},     {"ASOF LEFT JOIN", write_asof, false}, {"ASOF SEMI JOIN", write_asof, true},
    {"ASOF ANTI JOIN", write_asof, true}, {"CROSS JOIN", write_unnest, false},   {"LEFT JOIN", write_unnest_on, false},
    {"JOIN", write_lateral, false},       {"LEFT JOIN", write_lateral, false},
};

void generator__from(struct generator *g, struct scope *scope)
{
    uint32_t n = generator__pick(g, 3);
    generator__relation(g, scope, n > 0);
    for (uint32_t i = 0; i < n; i++) {
        const struct join_kind *kind = &join_kinds[generator__pick(g, ARRAY_LEN(join_kinds))];
        uint32_t before = scope->n;
        buf_format(g->out, " %s ", kind->words);
        kind->write(g, scope);
        scope->n = kind->is_left_only ? before : scope->n;
    }
    generator__where(g, scope);
}

void generator__where(struct generator *g, const struct scope *scope)
{
    if (generator__chance(g, 2)) {
        buf_text(g->out, " WHERE ");
        generator__predicate(g, scope);
        if (generator__chance(g, 4)) {
            buf_text(g->out, generator__pick(g, 2) == 0 ? " AND " : " OR ");
            generator__subquery_predicate(g, scope);
        }
    }
}
