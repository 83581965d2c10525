/* generator_subquery.c - subqueries of random queries, as predicates and as values. */
#include "base/check.h"
#include "query/generator_internal.h"

/*
 * In templates {o} is a column of the query around, {m} one of the same class of the subquery; {x} and {y} are such a pair of
 * numbers. {f} is what the subquery reads, {p} a predicate over it, {c} a constant of the class.
 */
static const char *const predicates[] = {
    "{o} IN (SELECT {m} FROM {f} WHERE {p})",
    "{o} NOT IN (SELECT {m} FROM {f} WHERE {p})",
    "EXISTS (SELECT 1 FROM {f} WHERE {m} = {o} AND {p})",
    "NOT EXISTS (SELECT 1 FROM {f} WHERE {m} = {o} AND {p})",
    "(SELECT count({m}) FROM {f} WHERE {m} = {o}) > 1",
    "(SELECT max({m}) FROM {f} WHERE {m} = {o}) IS DISTINCT FROM {c}",
    "{o} IN (SELECT {m} FROM {f} WHERE {y} = {x} AND {p})",
    "{o} NOT IN (SELECT {m} FROM {f} WHERE {y} = {x} AND {p})",
    "({o}, {x}) IN (SELECT {m}, {y} FROM {f} WHERE {p})",
    "{o} > ALL (SELECT {m} FROM {f} WHERE {p})",
    "{o} <= ANY (SELECT {m} FROM {f} WHERE {y} = {x})",
    "EXISTS (SELECT 1 FROM {f} WHERE {m} < {o} AND {y} = {x} AND {p})",
    "{o} = (SELECT min({m}) FROM {f} WHERE {y} = {x} AND {p})",
    "{o} >= (SELECT max({m}) FROM {f} WHERE {p})",
};

/* Of a subquery with LIMIT, only what it is ordered by is seen. */
static const char *const values[] = {
    "(SELECT count(*) FROM {f} WHERE {m} = {o})",
    "(SELECT max({m}) FROM {f} WHERE {y} = {x})",
    "(SELECT sum({y}) FROM {f} WHERE {m} = {o} AND {p})",
    "(SELECT {m} FROM {f} WHERE {y} = {x} ORDER BY {m} LIMIT 1)",
    "(SELECT count(DISTINCT {m}) FROM {f} WHERE {y} < {x})",
    "(SELECT min({m}) FROM {f} WHERE {p})",
    "EXISTS (SELECT 1 FROM {f} WHERE {m} = {o} AND {p})",
    "{o} IN (SELECT {m} FROM {f} WHERE {p})",
    "{o} IN (SELECT {m} FROM {f} WHERE {y} = {x})",
};

static bool write_subquery(struct generator *g, const struct scope *scope, const char *template)
{
    static const enum column_class classes[] = {CLASS_INT,     CLASS_INT,       CLASS_INT,  CLASS_TEXT, CLASS_DATE,
                                                CLASS_DECIMAL, CLASS_TIMESTAMP, CLASS_UUID, CLASS_ENUM};
    enum column_class class = classes[generator__pick(g, ARRAY_LEN(classes))];
    struct buf *out = g->out;
    struct buf from = {0};
    struct buf constant = {0};
    struct scope inner = {0};
    g->out = &from;
    generator__relation(g, &inner, true);
    const struct visible *x = generator__column(g, scope, CLASS_INT);
    const struct visible *y = generator__column(g, &inner, CLASS_INT);
    const struct visible *outer = generator__column(g, scope, class);
    const struct visible *mine = generator__column(g, &inner, class);
    if (outer == NULL || mine == NULL) {
        class = CLASS_INT;
        outer = x;
        mine = y;
    }
    g->out = &constant;
    generator__constant(g, class);
    g->out = out;
    bool is_possible = x != NULL && y != NULL;
    if (is_possible) {
        struct holes holes = {0};
        holes.texts['o' - 'a'] = outer->sql;
        holes.texts['m' - 'a'] = mine->sql;
        holes.texts['x' - 'a'] = x->sql;
        holes.texts['y' - 'a'] = y->sql;
        holes.texts['f' - 'a'] = from.data;
        holes.texts['c' - 'a'] = constant.data;
        generator__fill(g, template, &holes, &inner);
    }
    buf_deinit(&from);
    buf_deinit(&constant);
    return is_possible;
}

void generator__subquery_predicate(struct generator *g, const struct scope *scope)
{
    if (!write_subquery(g, scope, predicates[generator__pick(g, ARRAY_LEN(predicates))])) {
        buf_text(g->out, "true");
    }
}

bool generator__subquery_value(struct generator *g, const struct scope *scope)
{
    return write_subquery(g, scope, values[generator__pick(g, ARRAY_LEN(values))]);
}
