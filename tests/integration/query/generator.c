#include "query/generator.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/prng.h"

#define JOINED_ROWS 250 /* about how many rows of a table take part in a join */
#define SCOPE_MAX 200

/* A column that can be named at some place of the query. */
struct visible {
    char sql[96];
    enum column_class class;
};

struct scope {
    struct visible columns[SCOPE_MAX];
    uint32_t n;
};

struct generator {
    const struct schema *schema;
    struct prng prng;
    bool is_replay;
    uint32_t at;
    struct decisions *decisions;
    struct buf *out;
    uint32_t n_names;
    uint32_t depth;
};

enum column_class column_class_of(const char *type)
{
    static const struct {
        const char *start;
        enum column_class class;
    } starts[] = {
        {"TINYINT", CLASS_INT},
        {"SMALLINT", CLASS_INT},
        {"INTEGER", CLASS_INT},
        {"BIGINT", CLASS_INT},
        {"HUGEINT", CLASS_INT},
        {"UTINYINT", CLASS_INT},
        {"USMALLINT", CLASS_INT},
        {"UINTEGER", CLASS_INT},
        {"UBIGINT", CLASS_INT},
        {"DECIMAL", CLASS_DECIMAL},
        {"FLOAT", CLASS_FLOAT},
        {"DOUBLE", CLASS_FLOAT},
        {"VARCHAR", CLASS_TEXT},
        {"DATE", CLASS_DATE},
        {"BOOLEAN", CLASS_BOOL},
        {"TIMESTAMP", CLASS_TIMESTAMP},
        {"TIMESTAMP WITH TIME ZONE", CLASS_TIMESTAMP_TZ},
        {"TIME", CLASS_TIME},
        {"UUID", CLASS_UUID},
        {"BLOB", CLASS_BLOB},
        {"ENUM", CLASS_ENUM},
        {"STRUCT", CLASS_STRUCT},
    };
    size_t n = strcspn(type, "(");
    const char *bracket = strchr(type, '[');
    if (bracket != NULL && strcmp(type, "BIGINT[]") == 0) {
        return CLASS_LIST;
    }
    if (bracket != NULL) {
        return CLASS_OTHER;
    }
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (strlen(starts[i].start) == n && strncmp(type, starts[i].start, n) == 0) {
            return starts[i].class;
        }
    }
    return CLASS_OTHER;
}

void decisions_deinit(struct decisions *decisions)
{
    mem_free(decisions->values);
    *decisions = (struct decisions){0};
}

/* A number below `n`; zero leads to the simplest query. */
static uint32_t pick(struct generator *g, uint32_t n)
{
    uint32_t value = 0;
    if (g->is_replay) {
        value = g->at < g->decisions->n ? g->decisions->values[g->at] : 0;
    } else {
        value = (uint32_t)prng_below(&g->prng, n);
        g->decisions->values = mem_grow(g->decisions->values, &g->decisions->cap, g->at + 1, sizeof value);
        g->decisions->values[g->at] = value;
        g->decisions->n = g->at + 1;
    }
    g->at++;
    return value % n;
}

static bool chance(struct generator *g, uint32_t one_in)
{
    return pick(g, one_in) == one_in - 1;
}

static void add_column(struct scope *scope, const char *alias, const char *name, enum column_class class)
{
    if (scope->n < SCOPE_MAX) {
        struct visible *column = &scope->columns[scope->n++];
        snprintf(column->sql, sizeof column->sql, "%.15s.\"%.70s\"", alias, name);
        column->class = class;
    }
}

/* A column of that class; NULL if there is none. */
static const struct visible *pick_column(struct generator *g, const struct scope *scope, enum column_class class)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < scope->n; i++) {
        n += scope->columns[i].class == class ? 1 : 0;
    }
    if (n == 0) {
        return NULL;
    }
    uint32_t wanted = pick(g, n);
    for (uint32_t i = 0; i < scope->n; i++) {
        if (scope->columns[i].class == class && wanted-- == 0) {
            return &scope->columns[i];
        }
    }
    return NULL;
}

/* Some column that is not of a nested or rare type; there may be only such, then any. */
static const struct visible *pick_plain(struct generator *g, const struct scope *scope)
{
    uint32_t wanted = pick(g, scope->n);
    for (uint32_t i = 0; i < scope->n; i++) {
        const struct visible *column = &scope->columns[(wanted + i) % scope->n];
        if (column->class != CLASS_OTHER) {
            return column;
        }
    }
    return &scope->columns[wanted];
}

static void write_constant(struct generator *g, enum column_class class)
{
    static const char *const texts[] = {"'a'", "''", "'M'", "'%'", "'é'"};
    static const char *const dates[] = {"DATE '1995-06-17'", "DATE '1998-01-01'", "DATE '2020-03-01'"};
    switch (class) {
    case CLASS_INT:
    case CLASS_FLOAT:
        buf_format(g->out, "%" PRIu32, pick(g, 4) * pick(g, 50));
        return;
    case CLASS_DECIMAL:
        buf_format(g->out, "%" PRIu32 ".%" PRIu32, pick(g, 3000), pick(g, 100));
        return;
    case CLASS_TEXT:
        buf_text(g->out, texts[pick(g, 5)]);
        return;
    case CLASS_DATE:
        buf_text(g->out, dates[pick(g, 3)]);
        return;
    case CLASS_BOOL:
        buf_text(g->out, pick(g, 2) == 0 ? "true" : "false");
        return;
    case CLASS_TIMESTAMP:
        buf_text(g->out, pick(g, 2) == 0 ? "TIMESTAMP '2000-01-05 12:34:56.789'" : "TIMESTAMP '2000-01-08'");
        return;
    case CLASS_TIMESTAMP_TZ:
        buf_text(g->out,
                 pick(g, 2) == 0 ? "TIMESTAMPTZ '2020-03-29 01:30:00+01'" : "TIMESTAMPTZ '2020-05-01 00:00:00Z'");
        return;
    case CLASS_TIME:
        buf_text(g->out, pick(g, 2) == 0 ? "TIME '12:00:00'" : "TIME '00:00:01'");
        return;
    case CLASS_UUID:
        buf_format(g->out, "'00000000-0000-4000-8000-%012" PRIu32 "'::UUID", pick(g, 1000));
        return;
    case CLASS_BLOB:
        buf_text(g->out, pick(g, 2) == 0 ? "'x'::BLOB" : "''::BLOB");
        return;
    case CLASS_ENUM: /* of the one that there is */
        buf_format(g->out, "'%s'::ENUM('low', 'mid', 'high')", pick(g, 2) == 0 ? "mid" : "high");
        return;
    case CLASS_LIST:
        buf_text(g->out, pick(g, 2) == 0 ? "[1, NULL, 2]::BIGINT[]" : "[]::BIGINT[]");
        return;
    case CLASS_STRUCT:
        buf_text(g->out, "{'a': 1::BIGINT, 'b': 'x', 'in': {'deep': 1::BIGINT}}");
        return;
    case CLASS_OTHER:
        buf_text(g->out, "NULL");
        return;
    }
}

static void write_predicate(struct generator *g, const struct scope *scope);

/* A value of the class, over the columns of the scope. */
static void write_value(struct generator *g, const struct scope *scope, enum column_class class)
{
    const struct visible *column = pick_column(g, scope, class);
    const struct visible *text = NULL;
    if (column == NULL) {
        write_constant(g, class);
        return;
    }
    switch (pick(g, 9)) {
    case 6:
        buf_format(g->out, "coalesce(%s, ", column->sql);
        write_constant(g, class);
        buf_text(g->out, class == CLASS_DECIMAL ? "::DECIMAL(12,2))" : ")");
        return;
    case 7:
        buf_text(g->out, "CASE WHEN ");
        write_predicate(g, scope);
        buf_format(g->out, " THEN %s END", column->sql);
        return;
    case 8:
        text = pick_column(g, scope, CLASS_TEXT);
        if (class == CLASS_INT && text != NULL) {
            buf_format(g->out, "length(%s)", text->sql);
        } else if (class == CLASS_TEXT) {
            buf_format(g->out, "substr(%s, 1, %" PRIu32 ")", column->sql, 1 + pick(g, 3));
        } else if (class == CLASS_INT) {
            buf_format(g->out, "(%s %% %" PRIu32 ")", column->sql, 2 + pick(g, 9));
        } else {
            buf_text(g->out, column->sql);
        }
        return;
    default:
        buf_text(g->out, column->sql);
        return;
    }
}

static void write_comparison(struct generator *g, const struct scope *scope)
{
    static const char *const operators[] = {"<", "=", ">", "<>", "<=", ">=", "IS DISTINCT FROM"};
    enum column_class class = pick_plain(g, scope)->class;
    const struct visible *column = pick_column(g, scope, class);
    if (class == CLASS_OTHER || column == NULL) {
        buf_format(g->out, "%s IS NOT NULL", scope->columns[0].sql);
        return;
    }
    buf_format(g->out, "%s %s ", column->sql, operators[pick(g, 7)]);
    if (chance(g, 3)) {
        write_value(g, scope, class);
    } else {
        write_constant(g, class);
    }
}

static void write_subquery_predicate(struct generator *g, const struct scope *scope);

static void write_predicate(struct generator *g, const struct scope *scope)
{
    const struct visible *column = pick_plain(g, scope);
    g->depth++;
    uint32_t form = g->depth > 4 ? 0 : pick(g, 10);
    if (form <= 4) {
        write_comparison(g, scope);
    } else if (form == 5) {
        buf_format(g->out, "%s IS %sNULL", column->sql, pick(g, 2) == 0 ? "NOT " : "");
    } else if (form == 6 && column->class != CLASS_OTHER && column->class != CLASS_BOOL) {
        buf_format(g->out, "%s %sIN (", column->sql, chance(g, 3) ? "NOT " : "");
        for (uint32_t i = 0, n = 1 + pick(g, 4); i < n; i++) {
            buf_text(g->out, i == 0 ? "" : ", ");
            write_constant(g, column->class);
        }
        buf_char(g->out, ')');
    } else if (form == 7) {
        buf_text(g->out, "NOT (");
        write_predicate(g, scope);
        buf_char(g->out, ')');
    } else {
        buf_char(g->out, '(');
        write_predicate(g, scope);
        buf_text(g->out, form == 8 ? " AND " : " OR ");
        write_predicate(g, scope);
        buf_char(g->out, ')');
    }
    g->depth--;
}

/* A table, or a share of it if it is to be joined, under a new name. Its columns come into scope. */
static void write_relation(struct generator *g, struct scope *scope, bool is_joined)
{
    const struct schema_table *table = &g->schema->tables[pick(g, g->schema->n_tables)];
    char alias[16];
    snprintf(alias, sizeof alias, "r%" PRIu32, g->n_names++);
    uint64_t share = table->rows / JOINED_ROWS;
    if (is_joined && share > 1) {
        buf_format(g->out, "(SELECT * FROM %s q WHERE hash(q) %% %" PRIu64 " = %" PRIu32 ") %s", table->name, share,
                   pick(g, 2), alias);
    } else {
        buf_format(g->out, "%s %s", table->name, alias);
    }
    for (uint32_t i = 0; i < table->n_columns; i++) {
        add_column(scope, alias, table->columns[i].name, table->columns[i].class);
    }
}

/* Columns `from` and later belong to the other side. */
static void write_join_condition(struct generator *g, const struct scope *scope, uint32_t from)
{
    struct scope left = {.n = from};
    struct scope right = {.n = scope->n - from};
    memcpy(left.columns, scope->columns, from * sizeof left.columns[0]);
    memcpy(right.columns, scope->columns + from, right.n * sizeof right.columns[0]);
    for (uint32_t i = 0, n = 1 + pick(g, 2); i < n; i++) {
        static const enum column_class classes[] = {CLASS_INT,  CLASS_INT,  CLASS_TEXT, CLASS_DATE, CLASS_DECIMAL,
                                                    CLASS_UUID, CLASS_ENUM, CLASS_BLOB, CLASS_TIME};
        enum column_class class = classes[pick(g, 9)];
        const struct visible *a = pick_column(g, &left, class);
        const struct visible *b = pick_column(g, &right, class);
        buf_text(g->out, i == 0 ? "" : " AND ");
        if (i == 0 && left.columns[0].class == CLASS_INT && right.columns[0].class == CLASS_INT && chance(g, 2)) {
            buf_format(g->out, "%s = %s", left.columns[0].sql, right.columns[0].sql); /* by which tables are ordered */
            continue;
        }
        if (a == NULL || b == NULL) {
            a = pick_column(g, &left, CLASS_INT);
            b = pick_column(g, &right, CLASS_INT);
        }
        if (a == NULL || b == NULL) {
            buf_text(g->out, "true");
        } else if (class == CLASS_INT && chance(g, 3)) { /* few values, so that there are matches */
            buf_format(g->out, "%s %% 50 = %s %% 50", a->sql, b->sql);
        } else {
            buf_format(g->out, "%s %s %s", a->sql, chance(g, 4) ? "IS NOT DISTINCT FROM" : "=", b->sql);
        }
    }
    if (chance(g, 4)) {
        buf_text(g->out, " AND ");
        write_predicate(g, scope);
    }
}

static void write_from(struct generator *g, struct scope *scope)
{
    static const char *const types[] = {"JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"};
    uint32_t n = pick(g, 3);
    write_relation(g, scope, n > 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = scope->n;
        uint32_t type = pick(g, 7);
        buf_format(g->out, " %s ", type == 6 ? "CROSS JOIN" : types[type]);
        if (type == 6) {
            buf_text(g->out, "(SELECT * FROM ");
            struct scope inner = {0};
            char alias[16];
            write_relation(g, &inner, true);
            snprintf(alias, sizeof alias, "r%" PRIu32, g->n_names++);
            buf_text(g->out, " ORDER BY ALL LIMIT 3) ");
            buf_text(g->out, alias);
            for (uint32_t k = 0; k < inner.n; k++) {
                const char *name = strchr(inner.columns[k].sql, '.') + 2;
                char bare[72];
                snprintf(bare, sizeof bare, "%.*s", (int)(strcspn(name, "\"") % sizeof bare), name);
                add_column(scope, alias, bare, inner.columns[k].class);
            }
            continue;
        }
        write_relation(g, scope, true);
        buf_text(g->out, " ON ");
        write_join_condition(g, scope, from);
        scope->n = type >= 4 ? from : scope->n; /* SEMI and ANTI show the left side only */
    }
}

/* IN, EXISTS or a scalar subquery, correlated or not. */
static void write_subquery_predicate(struct generator *g, const struct scope *scope)
{
    struct scope inner = {0};
    const struct visible *outer = pick_column(g, scope, CLASS_INT);
    struct buf *out = g->out;
    struct buf from = {0};
    g->out = &from;
    write_relation(g, &inner, true);
    g->out = out;
    const struct visible *mine = pick_column(g, &inner, CLASS_INT);
    if (outer == NULL || mine == NULL) {
        buf_text(out, "true");
        buf_deinit(&from);
        return;
    }
    uint32_t form = pick(g, 5);
    if (form <= 1) {
        buf_format(out, "%s %sIN (SELECT %s FROM %s WHERE ", outer->sql, form == 0 ? "" : "NOT ", mine->sql, from.data);
        write_predicate(g, &inner);
        buf_char(out, ')');
    } else if (form <= 3) {
        buf_format(out, "%sEXISTS (SELECT 1 FROM %s WHERE %s = %s AND ", form == 2 ? "" : "NOT ", from.data, mine->sql,
                   outer->sql);
        write_predicate(g, &inner);
        buf_char(out, ')');
    } else {
        buf_format(out, "(SELECT %s(%s) FROM %s WHERE %s = %s) %s ", pick(g, 2) == 0 ? "count" : "max", mine->sql,
                   from.data, mine->sql, outer->sql, pick(g, 2) == 0 ? ">" : "IS DISTINCT FROM");
        write_constant(g, CLASS_INT);
    }
    buf_deinit(&from);
}

static void write_where(struct generator *g, const struct scope *scope)
{
    if (chance(g, 2)) {
        buf_text(g->out, " WHERE ");
        write_predicate(g, scope);
        if (chance(g, 4)) {
            buf_text(g->out, pick(g, 2) == 0 ? " AND " : " OR ");
            write_subquery_predicate(g, scope);
        }
    }
}

/* Whether the result of the aggregate is exact. */
static bool write_aggregate(struct generator *g, const struct scope *scope)
{
    static const char *const numbers[] = {"sum", "min", "max", "count", "avg", "stddev_pop", "var_samp", "median"};
    static const char *const others[] = {"min", "max", "count", "approx_count_distinct"};
    const struct visible *column = pick_plain(g, scope);
    enum column_class class = column->class;
    bool is_exact = class != CLASS_FLOAT;
    uint32_t form = pick(g, 8);
    if (form == 0 || class == CLASS_OTHER) {
        buf_text(g->out, "count(*)");
        is_exact = true;
    } else if (form == 1) {
        buf_format(g->out, "count(DISTINCT %s)", column->sql);
        is_exact = true;
    } else if (form == 2 && (class == CLASS_INT || class == CLASS_TEXT)) {
        buf_format(g->out, "list(%s ORDER BY %s)", column->sql, column->sql);
    } else if (form == 3) {
        buf_text(g->out, pick(g, 2) == 0 ? "bool_or(" : "count_if(");
        write_predicate(g, scope);
        buf_char(g->out, ')');
        is_exact = true;
    } else if (class == CLASS_INT || class == CLASS_DECIMAL || class == CLASS_FLOAT) {
        uint32_t which = pick(g, 8);
        buf_format(g->out, "%s(%s)", numbers[which], column->sql);
        is_exact = is_exact && which < 4;
    } else {
        buf_format(g->out, "%s(%s)", others[pick(g, 4)], column->sql);
    }
    if (chance(g, 5)) {
        buf_text(g->out, " FILTER (WHERE ");
        write_predicate(g, scope);
        buf_char(g->out, ')');
    }
    return is_exact;
}

static void write_order(struct generator *g, uint32_t n, bool is_exact)
{
    uint32_t form = pick(g, 5);
    if (!is_exact || form < 2) {
        return;
    }
    buf_text(g->out, " ORDER BY ");
    for (uint32_t i = 0; i < n; i++) {
        static const char *const orders[] = {"", " DESC", " NULLS FIRST", " DESC NULLS LAST"};
        buf_format(g->out, "%s%" PRIu32 "%s", i == 0 ? "" : ", ", i + 1, orders[pick(g, 4)]);
    }
    if (form == 4) {
        buf_format(g->out, " LIMIT %" PRIu32, 1 + pick(g, 30));
        if (chance(g, 3)) {
            buf_format(g->out, " OFFSET %" PRIu32, pick(g, 20));
        }
    }
}

static void write_grouped(struct generator *g)
{
    static const char *const kinds[] = {"(%s)", "(%s)", "(%s)", "ROLLUP (%s)", "CUBE (%s)"};
    struct scope scope = {0};
    struct buf *out = g->out;
    struct buf from = {0};
    struct buf keys = {0};
    g->out = &from;
    write_from(g, &scope);
    write_where(g, &scope);
    g->out = &keys;
    uint32_t n_keys = pick(g, 4);
    bool is_exact = true;
    for (uint32_t i = 0; i < n_keys; i++) {
        enum column_class class = pick_plain(g, &scope)->class;
        buf_text(&keys, i == 0 ? "" : ", ");
        write_value(g, &scope, class == CLASS_OTHER ? CLASS_INT : class);
        is_exact = is_exact && class != CLASS_FLOAT;
    }
    g->out = out;
    buf_format(out, "SELECT %s", n_keys > 0 ? keys.data : "");
    uint32_t n_aggregates = 1 + pick(g, 3);
    for (uint32_t i = 0; i < n_aggregates; i++) {
        buf_text(out, i + n_keys == 0 ? "" : ", ");
        is_exact = write_aggregate(g, &scope) && is_exact;
    }
    buf_format(out, " FROM %s", from.data);
    if (n_keys > 0) {
        const char *kind = kinds[n_keys > 1 ? pick(g, 5) : 0];
        buf_text(out, " GROUP BY ");
        buf_append(out, kind, strcspn(kind, "(") + (kind[0] == '(' ? 0 : 1));
        buf_text(out, keys.data);
        buf_text(out, kind[0] == '(' ? "" : ")");
        if (chance(g, 4)) {
            buf_text(out, " HAVING count(*) > 1");
        }
    }
    write_order(g, n_keys + n_aggregates, is_exact);
    buf_deinit(&from);
    buf_deinit(&keys);
}

static void write_window(struct generator *g, const struct scope *scope)
{
    const struct visible *by = pick_plain(g, scope);
    const struct visible *number = pick_column(g, scope, CLASS_INT);
    uint32_t form = number == NULL ? 0 : pick(g, 4);
    if (form == 0) {
        buf_format(g->out, "rank() OVER (PARTITION BY %s ORDER BY %s)", by->sql, pick_plain(g, scope)->sql);
    } else if (form == 1) {
        buf_format(g->out, "sum(%s) OVER (PARTITION BY %s)", number->sql, by->sql);
    } else if (form == 2) {
        buf_format(g->out, "count(*) OVER (PARTITION BY %s ORDER BY %s)", by->sql, number->sql);
    } else {
        buf_format(g->out, "dense_rank() OVER (ORDER BY %s)", number->sql);
    }
}

static void write_plain(struct generator *g)
{
    struct scope scope = {0};
    struct buf *out = g->out;
    struct buf from = {0};
    g->out = &from;
    write_from(g, &scope);
    write_where(g, &scope);
    g->out = out;
    bool is_exact = true;
    uint32_t n = 1 + pick(g, 4);
    buf_text(out, chance(g, 4) ? "SELECT DISTINCT " : "SELECT ");
    for (uint32_t i = 0; i < n; i++) {
        const struct visible *column = pick_plain(g, &scope);
        buf_text(out, i == 0 ? "" : ", ");
        is_exact = is_exact && column->class != CLASS_FLOAT && column->class != CLASS_OTHER;
        if (chance(g, 6)) {
            write_window(g, &scope);
        } else if (column->class == CLASS_OTHER) {
            buf_text(out, column->sql);
        } else {
            write_value(g, &scope, column->class);
        }
    }
    buf_format(out, " FROM %s", from.data);
    write_order(g, n, is_exact);
    buf_deinit(&from);
}

/* Two SELECTs of one column each. */
static void write_set_operation(struct generator *g)
{
    static const char *const operations[] = {"UNION ALL", "UNION",      "EXCEPT",
                                             "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"};
    static const enum column_class classes[] = {CLASS_INT,  CLASS_TEXT, CLASS_DATE, CLASS_TIMESTAMP, CLASS_TIMESTAMP_TZ,
                                                CLASS_UUID, CLASS_BLOB, CLASS_ENUM, CLASS_LIST};
    enum column_class class = classes[pick(g, 9)];
    for (uint32_t i = 0; i < 2; i++) {
        struct scope scope = {0};
        struct buf *out = g->out;
        struct buf from = {0};
        g->out = &from;
        write_relation(g, &scope, false);
        write_where(g, &scope);
        g->out = out;
        buf_text(out, i == 0 ? "SELECT " : " SELECT ");
        write_value(g, &scope, class);
        buf_format(out, "%s FROM %s", i == 0 ? " AS v" : "", from.data);
        buf_deinit(&from);
        if (i == 0) {
            buf_format(out, " %s", operations[pick(g, 6)]);
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
    write_relation(g, &scope, true);
    write_where(g, &scope);
    g->out = out;
    buf_text(out, "WITH c AS MATERIALIZED (SELECT ");
    write_value(g, &scope, CLASS_INT);
    buf_text(out, " AS a, ");
    write_value(g, &scope, CLASS_TEXT);
    buf_text(out, " AS b");
    bool is_grouped = chance(g, 2);
    buf_text(out, is_grouped ? ", count(*) AS n" : ", 1 AS n");
    buf_format(out, " FROM %s%s) ", from.data, is_grouped ? " GROUP BY ALL" : "");
    static const char *const bodies[] = {
        "SELECT x.a, y.b, x.n FROM c x JOIN c y ON x.a = y.a",
        "SELECT x.a, (SELECT max(y.n) FROM c y WHERE y.b = x.b) FROM c x",
        "SELECT a, b FROM c WHERE n > (SELECT avg(n) FROM c)",
        "SELECT a FROM c UNION ALL SELECT n FROM c",
        "SELECT x.b, count(*) FROM c x LEFT JOIN c y ON x.b = y.b AND x.a < y.a GROUP BY x.b",
        "SELECT a FROM c EXCEPT SELECT n FROM c",
    };
    buf_text(out, bodies[pick(g, 6)]);
    buf_deinit(&from);
}

static void write_query(struct generator *g)
{
    uint32_t form = pick(g, 10);
    if (form <= 3) {
        write_plain(g);
    } else if (form <= 7) {
        write_grouped(g);
    } else if (form == 8) {
        write_set_operation(g);
    } else {
        write_cte(g);
    }
}

void generate_query(const struct schema *schema, uint64_t seed, struct decisions *out_decisions, struct buf *out_sql)
{
    struct generator g = {.schema = schema, .decisions = out_decisions, .out = out_sql};
    prng_init(&g.prng, seed);
    out_decisions->n = 0;
    write_query(&g);
}

void generate_from(const struct schema *schema, const struct decisions *decisions, struct buf *out_sql)
{
    struct decisions same = *decisions;
    struct generator g = {.schema = schema, .is_replay = true, .decisions = &same, .out = out_sql};
    write_query(&g);
}

/* Tries the decisions without `n` of them from `at` on (or with zeros there); keeps what passes. */
static bool try_smaller(const struct schema *schema, struct decisions *decisions, uint32_t at, uint32_t n,
                        bool is_removed, shrink_check_fn *check, void *context)
{
    struct buf sql = {0};
    struct decisions next = {.n = decisions->n, .cap = decisions->n};
    next.values = mem_copy(decisions->values, decisions->n * sizeof *decisions->values);
    if (is_removed) {
        memmove(next.values + at, next.values + at + n, (next.n - at - n) * sizeof *next.values);
        next.n -= n;
    } else {
        memset(next.values + at, 0, n * sizeof *next.values);
    }
    generate_from(schema, &next, &sql);
    bool passes = check(context, sql.data);
    buf_deinit(&sql);
    if (passes) {
        decisions_deinit(decisions);
        *decisions = next;
    } else {
        decisions_deinit(&next);
    }
    return passes;
}

static bool is_zero(const struct decisions *decisions, uint32_t at, uint32_t n)
{
    for (uint32_t i = at; i < at + n; i++) {
        if (decisions->values[i] != 0) {
            return false;
        }
    }
    return true;
}

void generator_shrink(const struct schema *schema, struct decisions *decisions, shrink_check_fn *check, void *context,
                      uint32_t calls_max)
{
    uint32_t calls = 0;
    for (bool has_changed = true; has_changed && calls < calls_max;) {
        has_changed = false;
        for (uint32_t n = decisions->n > 16 ? 16 : decisions->n; n > 0; n /= 2) {
            for (uint32_t at = 0; at + n <= decisions->n && calls < calls_max; at++) {
                calls++;
                if (try_smaller(schema, decisions, at, n, true, check, context)) {
                    has_changed = true;
                } else if (!is_zero(decisions, at, n)) {
                    calls++;
                    has_changed = try_smaller(schema, decisions, at, n, false, check, context) || has_changed;
                }
            }
        }
    }
}
