/* unparse.c - nodes as SQL: one table of kinds. */
#include "query/unparse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "query/join_filter.h"
#include "query/unparse_internal.h"

/* What all writers use. */

bool unparse__unsupported(struct unparser *u, const char *fmt, ...)
{
    if (u->err == ERR_OK) {
        char text[512];
        va_list values;
        va_start(values, fmt);
        (void)vsnprintf(text, sizeof(text), fmt, values);
        va_end(values);
        u->err = error_set(u->e, ERR_PRECONDITION, "%s", text);
    }
    return false;
}

void unparse__alias(struct unparser *u, char letter, char out[16])
{
    (void)snprintf(out, 16, "%c%" PRIu32, letter, u->n_aliases++);
}

struct unparse_name *unparse__name(struct unparser *u, uint32_t id, char letter)
{
    u->names = mem_grow(u->names, &u->names_cap, u->n_names + 1, sizeof(*u->names));
    struct unparse_name *name = &u->names[u->n_names++];
    *name = (struct unparse_name){.id = id};
    unparse__alias(u, letter, name->text);
    return name;
}

static const struct unparse_name *find_name(const struct unparser *u, uint32_t id, bool is_delim)
{
    for (uint32_t i = u->n_names; i > 0; i--) {
        if (u->names[i - 1].id == id && u->names[i - 1].is_delim == is_delim) {
            return &u->names[i - 1];
        }
    }
    return NULL;
}

bool unparse__side(struct unparser *u, struct plan_node *node, struct side *out)
{
    unparse__alias(u, 't', out->alias);
    out->n_columns = node->n_columns;
    buf_char(&out->from, '(');
    if (!unparse__node(u, &out->from, node)) {
        return false;
    }
    buf_format(&out->from, ") %s", out->alias);
    return true;
}

void unparse__separate(struct buf *sql, uint32_t i)
{
    buf_text(sql, i == 0 ? "SELECT " : ", ");
}

void unparse__as(struct unparser *u, struct buf *sql, const struct plan_node *node, uint32_t i)
{
    if (node == u->named) {
        buf_text(sql, " AS ");
        sql_write_name(sql, u->columns[i].name);
    } else {
        buf_format(sql, " AS c%" PRIu32, i);
    }
}

void unparse__mapped(struct unparser *u, struct buf *sql, const struct plan_node *node, const char *alias,
                     const uint32_t *map, uint32_t n, uint32_t first)
{
    for (uint32_t i = 0; i < n; i++) {
        unparse__separate(sql, first + i);
        buf_format(sql, "%s.c%" PRIu32, alias, map != NULL ? map[i] : i);
        unparse__as(u, sql, node, first + i);
    }
}

/* The expressions as output columns `first` and so on. */
static bool write_items(struct unparser *u, struct buf *sql, const struct plan_node *node,
                        struct expression *const *expressions, uint32_t n, uint32_t first,
                        const struct columns *columns)
{
    for (uint32_t i = 0; i < n; i++) {
        unparse__separate(sql, first + i);
        if (!unparse__expression(u, sql, expressions[i], columns)) {
            return false;
        }
        unparse__as(u, sql, node, first + i);
    }
    return true;
}

/* Appends "SELECT <all columns> FROM <side>". */
static void write_all(struct unparser *u, struct buf *sql, const struct plan_node *node, const struct side *side,
                      const uint32_t *map)
{
    unparse__mapped(u, sql, node, side->alias, map, node->n_columns, 0);
    buf_format(sql, " FROM %s", side->from.data);
}

/* Nodes with one child get it as a side, with its columns. */
typedef bool unary_fn(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                      const struct columns *columns);

static bool write_unary(struct unparser *u, struct buf *sql, struct plan_node *node, unary_fn *write)
{
    struct side side = {0};
    bool is_written = unparse__side(u, node->children[0], &side);
    if (is_written) {
        struct columns columns = unparse__one(side.alias, side.n_columns);
        is_written = write(u, sql, node, &side, &columns);
    }
    buf_deinit(&side.from);
    return is_written;
}

/* Leaves. */

static bool write_input(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    char alias[16];
    unparse__alias(u, 't', alias);
    for (uint32_t i = 0; i < node->n_columns; i++) {
        unparse__separate(sql, i);
        if (!type_has_sql(node->columns[i])) {
            buf_format(sql, "%s.c%" PRIu32, alias, i);
        } else {
            buf_format(sql, "CAST(%s.c%" PRIu32 " AS ", alias, i);
            type_write(sql, node->columns[i]);
            buf_char(sql, ')');
        }
        unparse__as(u, sql, node, i);
    }
    buf_text(sql, " FROM ");
    sql_write_name(sql, node->as.input.name);
    buf_format(sql, " %s", alias);
    return true;
}

static bool write_dummy(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    buf_text(sql, "SELECT 1");
    unparse__as(u, sql, node, 0);
    return true;
}

static bool write_empty(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    for (uint32_t i = 0; i < node->n_columns; i++) {
        if (!type_has_sql(node->columns[i])) {
            return unparse__unsupported(u, "no rows of a type without a name");
        }
        unparse__separate(sql, i);
        buf_text(sql, "CAST(NULL AS ");
        type_write(sql, node->columns[i]);
        buf_char(sql, ')');
        unparse__as(u, sql, node, i);
    }
    buf_text(sql, node->n_columns == 0 ? "SELECT 1 AS c0 WHERE false" : " WHERE false");
    return true;
}

static bool write_row(struct unparser *u, struct buf *sql, struct expression *const *row, uint32_t n)
{
    struct columns nothing = unparse__one(NULL, 0);
    buf_char(sql, '(');
    if (!unparse__list(u, sql, row, n, &nothing)) {
        return false;
    }
    buf_char(sql, ')');
    return true;
}

static bool write_values(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    const struct values *values = &node->as.values;
    if (values->n_rows == 0 || node->n_columns == 0) {
        return write_empty(u, sql, node);
    }
    char alias[16];
    unparse__alias(u, 't', alias);
    for (uint32_t i = 0; i < node->n_columns; i++) {
        bool has_type = type_has_sql(node->columns[i]);
        unparse__separate(sql, i);
        buf_format(sql, has_type ? "CAST(%s.v%" PRIu32 " AS " : "%s.v%" PRIu32, alias, i);
        if (has_type) {
            type_write(sql, node->columns[i]);
            buf_char(sql, ')');
        }
        unparse__as(u, sql, node, i);
    }
    for (uint32_t i = 0; i < values->n_rows; i++) {
        buf_text(sql, i == 0 ? " FROM (VALUES " : ", ");
        if (!write_row(u, sql, values->rows[i], node->n_columns)) {
            return false;
        }
    }
    buf_format(sql, ") %s", alias);
    for (uint32_t i = 0; i < node->n_columns; i++) {
        buf_format(sql, "%sv%" PRIu32, i == 0 ? "(" : ", ", i);
    }
    buf_char(sql, ')');
    return true;
}

static bool write_delim_get(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    const struct unparse_name *name = find_name(u, node->as.delim_get.delim_id, true);
    if (name == NULL) {
        return unparse__unsupported(u, "the keys of a delim join that is not in this fragment");
    }
    const struct join *join = name->delim_join->as.join;
    if (join->n_keys != node->n_columns) {
        return unparse__unsupported(u, "a delim join with other keys than it should have");
    }
    char alias[16];
    char from[16];
    memcpy(from, name->text, sizeof(from));
    unparse__alias(u, 't', alias);
    struct columns columns = unparse__one(alias, name->delim_join->children[join->delim_side]->n_columns);
    buf_text(sql, "SELECT DISTINCT ");
    for (uint32_t i = 0; i < join->n_keys; i++) {
        buf_text(sql, i == 0 ? "" : ", ");
        if (!unparse__expression(u, sql, join->keys[i], &columns)) {
            return false;
        }
        unparse__as(u, sql, node, i);
    }
    buf_format(sql, " FROM %s %s", from, alias);
    return true;
}

static bool write_cte_ref(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    const struct unparse_name *name = find_name(u, node->as.cte_ref.id, false);
    if (name == NULL) {
        return unparse__unsupported(u, "a CTE that is not in this fragment");
    }
    char alias[16];
    unparse__alias(u, 't', alias);
    unparse__mapped(u, sql, node, alias, NULL, node->n_columns, 0);
    buf_format(sql, " FROM %s %s", name->text, alias);
    return true;
}

/* One child. */

static bool write_call(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                       const struct columns *columns)
{
    UNUSED(columns);
    const struct table_call *call = node->as.call;
    char alias[16];
    unparse__alias(u, 'f', alias);
    for (uint32_t i = 0; i < call->n_columns; i++) {
        unparse__separate(sql, i);
        buf_format(sql, "%s.", alias);
        sql_write_name(sql, call->names[call->columns[i]]);
        unparse__as(u, sql, node, i);
    }
    unparse__mapped(u, sql, node, side->alias, call->passed, call->n_passed, call->n_columns);
    buf_format(sql, " FROM %s, LATERAL ", side->from.data);
    sql_write_name(sql, call->function);
    buf_char(sql, '(');
    for (uint32_t i = 0; i < call->n_arguments; i++) {
        buf_format(sql, "%s%s.c%" PRIu32, i == 0 ? "" : ", ", side->alias, i);
    }
    buf_format(sql, call->has_ordinality ? ") WITH ORDINALITY %s" : ") %s", alias);
    for (uint32_t i = 0; i < call->n_names; i++) {
        buf_text(sql, i == 0 ? "(" : ", ");
        sql_write_name(sql, call->names[i]);
    }
    buf_text(sql, call->n_names > 0 ? ")" : "");
    return true;
}

static bool write_filter(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                         const struct columns *columns)
{
    const struct filter *filter = &node->as.filter;
    write_all(u, sql, node, side, filter->map);
    for (uint32_t i = 0; i < filter->n_expressions; i++) {
        buf_text(sql, i == 0 ? " WHERE " : " AND ");
        if (!unparse__expression(u, sql, filter->expressions[i], columns)) {
            return false;
        }
    }
    return true;
}

static bool write_projection(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                             const struct columns *columns)
{
    const struct projection *projection = &node->as.projection;
    if (!write_items(u, sql, node, projection->expressions, projection->n_expressions, 0, columns)) {
        return false;
    }
    buf_text(sql, projection->n_expressions == 0 ? "SELECT 1 AS c0" : "");
    buf_format(sql, " FROM %s", side->from.data);
    return true;
}

/* WINDOW and UNNEST. */
static bool write_extension(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                            const struct columns *columns)
{
    const struct projection *projection = &node->as.projection;
    unparse__mapped(u, sql, node, side->alias, NULL, side->n_columns, 0);
    if (!write_items(u, sql, node, projection->expressions, projection->n_expressions, side->n_columns, columns)) {
        return false;
    }
    buf_format(sql, " FROM %s", side->from.data);
    return true;
}

/* GROUPING() takes expressions, so of two groups that are the same one it would mean the first. */
static bool are_groups_distinct(const struct aggregate *aggregate)
{
    for (uint32_t i = 0; i < aggregate->n_groups; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (expression_equal(aggregate->groups[i], aggregate->groups[k])) {
                return false;
            }
        }
    }
    return true;
}

static bool write_groupings(struct unparser *u, struct buf *sql, const struct plan_node *node,
                            const struct columns *columns)
{
    const struct aggregate *aggregate = node->as.aggregate;
    uint32_t first = aggregate->n_groups + aggregate->n_aggregates;
    if (aggregate->n_groupings > 0 && !are_groups_distinct(aggregate)) {
        return unparse__unsupported(u, "GROUPING() of groups that are the same");
    }
    for (uint32_t i = 0; i < aggregate->n_groupings; i++) {
        unparse__separate(sql, first + i);
        for (uint32_t k = 0; k < aggregate->groupings[i].n; k++) {
            buf_text(sql, k == 0 ? "GROUPING(" : ", ");
            if (!unparse__expression(u, sql, aggregate->groups[aggregate->groupings[i].groups[k]], columns)) {
                return false;
            }
        }
        buf_char(sql, ')');
        unparse__as(u, sql, node, first + i);
    }
    return true;
}

/* Groups are named by their position in the SELECT, so that a constant among them is no position itself. */
static void write_group_by(struct buf *sql, const struct aggregate *aggregate)
{
    if (aggregate->n_sets <= 1) {
        for (uint32_t i = 0; i < aggregate->n_groups; i++) {
            buf_format(sql, "%s%" PRIu32, i == 0 ? " GROUP BY " : ", ", i + 1);
        }
        return;
    }
    buf_text(sql, " GROUP BY GROUPING SETS (");
    for (uint32_t i = 0; i < aggregate->n_sets; i++) {
        buf_text(sql, i == 0 ? "(" : ", (");
        for (uint32_t k = 0; k < aggregate->sets[i].n; k++) {
            buf_format(sql, "%s%" PRIu32, k == 0 ? "" : ", ", aggregate->sets[i].groups[k] + 1);
        }
        buf_char(sql, ')');
    }
    buf_char(sql, ')');
}

static bool write_aggregate(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                            const struct columns *columns)
{
    const struct aggregate *aggregate = node->as.aggregate;
    if (node->n_columns == 0) {
        return unparse__unsupported(u, "an aggregate without columns");
    }
    if (!write_items(u, sql, node, aggregate->groups, aggregate->n_groups, 0, columns) ||
        !write_items(u, sql, node, aggregate->aggregates, aggregate->n_aggregates, aggregate->n_groups, columns) ||
        !write_groupings(u, sql, node, columns)) {
        return false;
    }
    buf_format(sql, " FROM %s", side->from.data);
    write_group_by(sql, aggregate);
    return true;
}

static bool write_order(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                        const struct columns *columns)
{
    const struct order *order = node->as.order;
    write_all(u, sql, node, side, order->map);
    return unparse__order_by(u, sql, order->keys, order->n_keys, columns);
}

static void write_limit_value(struct buf *sql, const char *word, const struct limit_value *value)
{
    if (value->kind == LIMIT_BY_ROWS) {
        buf_format(sql, " %s %" PRIu64, word, value->rows);
    } else if (value->kind == LIMIT_BY_PERCENT) {
        buf_format(sql, " %s %.17g%%", word, value->percent);
    }
}

static bool write_top_n(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                        const struct columns *columns)
{
    const struct order *order = node->as.order;
    write_all(u, sql, node, side, NULL);
    if (!unparse__order_by(u, sql, order->keys, order->n_keys, columns)) {
        return false;
    }
    write_limit_value(sql, "LIMIT", &order->limit.count);
    write_limit_value(sql, "OFFSET", &order->limit.offset);
    return true;
}

static bool write_limit(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                        const struct columns *columns)
{
    UNUSED(columns);
    write_all(u, sql, node, side, NULL);
    write_limit_value(sql, "LIMIT", &node->as.limit->count);
    write_limit_value(sql, "OFFSET", &node->as.limit->offset);
    return true;
}

static bool write_distinct(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                           const struct columns *columns)
{
    const struct distinct *distinct = &node->as.distinct;
    buf_text(sql, distinct->is_on ? "SELECT DISTINCT ON (" : "SELECT DISTINCT ");
    for (uint32_t i = 0; distinct->is_on && i < distinct->n_targets; i++) {
        if (distinct->targets[i]->kind == EXPRESSION_CONSTANT) {
            return unparse__unsupported(u, "DISTINCT ON a constant");
        }
    }
    if (distinct->is_on && !unparse__list(u, sql, distinct->targets, distinct->n_targets, columns)) {
        return false;
    }
    buf_text(sql, distinct->is_on ? ") " : "");
    for (uint32_t i = 0; i < node->n_columns; i++) {
        buf_format(sql, "%s%s.c%" PRIu32, i == 0 ? "" : ", ", side->alias, i);
        unparse__as(u, sql, node, i);
    }
    buf_format(sql, " FROM %s", side->from.data);
    return unparse__order_by(u, sql, distinct->orders, distinct->n_orders, columns);
}

static bool write_sample(struct unparser *u, struct buf *sql, struct plan_node *node, const struct side *side,
                         const struct columns *columns)
{
    UNUSED(columns);
    static const char *const methods[] = {
        [SAMPLE_SYSTEM] = "system", [SAMPLE_BERNOULLI] = "bernoulli", [SAMPLE_RESERVOIR] = "reservoir"};
    const struct sample *sample = node->as.sample;
    write_all(u, sql, node, side, NULL);
    buf_format(sql, " USING SAMPLE %s(", methods[sample->method]);
    if (sample->is_percent) {
        buf_format(sql, "%.17g PERCENT)", sample->percent);
    } else {
        buf_format(sql, "%" PRIu64 " ROWS)", sample->rows);
    }
    if (sample->seed >= 0) {
        buf_format(sql, " REPEATABLE (%" PRId64 ")", sample->seed);
    }
    return true;
}

/* Several children. */

static bool write_set(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    const char *word = node->kind == NODE_UNION ? "UNION" : node->kind == NODE_EXCEPT ? "EXCEPT" : "INTERSECT";
    char alias[16];
    unparse__alias(u, 't', alias);
    unparse__mapped(u, sql, node, alias, NULL, node->n_columns, 0);
    buf_text(sql, " FROM (");
    for (uint32_t i = 0; i < node->n_children; i++) {
        if (i > 0) {
            buf_format(sql, " %s%s ", word, node->as.is_all ? " ALL" : "");
        }
        buf_char(sql, '(');
        if (!unparse__node(u, sql, node->children[i])) {
            return false;
        }
        buf_char(sql, ')');
    }
    buf_format(sql, ") %s", alias);
    return true;
}

static bool write_pair(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    struct side left = {0};
    struct side right = {0};
    bool is_written = unparse__side(u, node->children[0], &left) && unparse__side(u, node->children[1], &right);
    if (is_written) {
        unparse__mapped(u, sql, node, left.alias, NULL, left.n_columns, 0);
        unparse__mapped(u, sql, node, right.alias, NULL, right.n_columns, left.n_columns);
        buf_format(sql, " FROM %s %s %s", left.from.data, node->kind == NODE_CROSS ? "CROSS JOIN" : "POSITIONAL JOIN",
                   right.from.data);
    }
    buf_deinit(&left.from);
    buf_deinit(&right.from);
    return is_written;
}

static bool write_cte(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    struct buf text = {0};
    uint32_t n_names = u->n_names;
    bool is_written = unparse__entry(u, &text, node->children[0]);
    if (is_written) {
        const struct unparse_name *name = unparse__name(u, node->as.cte.id, 'm');
        buf_format(&u->with, "%s%s AS MATERIALIZED (", u->with.n == 0 ? "" : ", ", name->text);
        buf_append(&u->with, text.data, text.n);
        buf_char(&u->with, ')');
        u->named = u->named == node ? node->children[1] : u->named;
        is_written = unparse__node(u, sql, node->children[1]);
    }
    u->n_names = n_names;
    buf_deinit(&text);
    return is_written;
}

/* What either part needs in the WITH could only stand before it, where the recursion is not known yet. */
static bool write_recursive_cte(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    struct buf text = {0};
    struct buf with = u->with;
    uint32_t n_names = u->n_names;
    bool was_in_recursion = u->is_in_recursion;
    char name[16];
    u->with = (struct buf){0};
    u->is_in_recursion = true;
    bool is_written = unparse__node(u, &text, node->children[0]);
    memcpy(name, unparse__name(u, node->as.recursive.id, 'r')->text, sizeof(name));
    buf_text(&text, node->as.recursive.is_union_all ? " UNION ALL " : " UNION ");
    is_written = is_written && unparse__node(u, &text, node->children[1]);
    if (is_written && u->with.n > 0) {
        is_written = unparse__unsupported(u, "a CTE or a correlated subquery inside a recursive CTE");
    }
    buf_deinit(&u->with);
    u->with = with;
    u->is_in_recursion = was_in_recursion;
    u->n_names = n_names;
    if (is_written) {
        char alias[16];
        buf_format(&u->with, "%s%s", u->with.n == 0 ? "" : ", ", name);
        for (uint32_t i = 0; i < node->n_columns; i++) {
            buf_format(&u->with, "%sc%" PRIu32, i == 0 ? "(" : ", ", i);
        }
        buf_text(&u->with, ") AS (");
        buf_append(&u->with, text.data, text.n);
        buf_char(&u->with, ')');
        u->is_recursive = true;
        unparse__alias(u, 't', alias);
        unparse__mapped(u, sql, node, alias, NULL, node->n_columns, 0);
        buf_format(sql, " FROM %s %s", name, alias);
    }
    buf_deinit(&text);
    return is_written;
}

static bool (*const writers[N_NODE_KINDS])(struct unparser *u, struct buf *sql, struct plan_node *node) = {
    [NODE_SCAN] = unparse__scan,    [NODE_INPUT] = write_input,
    [NODE_VALUES] = write_values,   [NODE_DUMMY] = write_dummy,
    [NODE_EMPTY] = write_empty,     [NODE_UNION] = write_set,
    [NODE_EXCEPT] = write_set,      [NODE_INTERSECT] = write_set,
    [NODE_JOIN] = unparse__join,    [NODE_CROSS] = write_pair,
    [NODE_POSITIONAL] = write_pair, [NODE_DELIM_GET] = write_delim_get,
    [NODE_CTE] = write_cte,         [NODE_RECURSIVE_CTE] = write_recursive_cte,
    [NODE_CTE_REF] = write_cte_ref, [NODE_CUSTOM] = unparse__custom,
};

/* Those with one child, which all begin alike. */
static unary_fn *const unary_writers[N_NODE_KINDS] = {
    [NODE_CALL] = write_call,           [NODE_FILTER] = write_filter,    [NODE_PROJECTION] = write_projection,
    [NODE_AGGREGATE] = write_aggregate, [NODE_WINDOW] = write_extension, [NODE_UNNEST] = write_extension,
    [NODE_ORDER] = write_order,         [NODE_TOP_N] = write_top_n,      [NODE_LIMIT] = write_limit,
    [NODE_DISTINCT] = write_distinct,   [NODE_SAMPLE] = write_sample,
};

static bool write_node(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    if (unary_writers[node->kind] != NULL) {
        return write_unary(u, sql, node, unary_writers[node->kind]);
    }
    return writers[node->kind](u, sql, node);
}

bool unparse__entry(struct unparser *u, struct buf *text, struct plan_node *node)
{
    bool was_below_join = u->is_below_join;
    u->is_below_join = false;
    bool is_written = unparse__node(u, text, node);
    u->is_below_join = was_below_join;
    return is_written;
}

/* The node as an entry of the WITH of its own, where the filters of the joins above it do not get. */
static bool write_apart(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    struct buf text = {0};
    bool is_written = unparse__entry(u, &text, node);
    if (is_written) {
        char name[16];
        char alias[16];
        unparse__alias(u, 'm', name);
        unparse__alias(u, 't', alias);
        buf_format(&u->with, "%s%s AS MATERIALIZED (", u->with.n == 0 ? "" : ", ", name);
        buf_append(&u->with, text.data, text.n);
        buf_char(&u->with, ')');
        unparse__mapped(u, sql, node, alias, NULL, node->n_columns, 0);
        buf_format(sql, " FROM %s %s", name, alias);
    }
    buf_deinit(&text);
    return is_written;
}

bool unparse__node(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    bool was_below_join = u->is_below_join;
    if (was_below_join && !u->is_in_recursion && join_filter_changes(node)) {
        return write_apart(u, sql, node);
    }
    u->is_below_join = node->kind == NODE_JOIN || (was_below_join && join_filter_passes(node));
    bool is_written = write_node(u, sql, node);
    u->is_below_join = was_below_join;
    return is_written;
}

/* The interface. */

static enum err unparse(struct buf *sql, struct plan_node *node, const struct plan_column *columns, struct error *e)
{
    struct unparser u = {.e = e, .named = columns != NULL ? node : NULL, .columns = columns};
    struct buf text = {0};
    if (unparse__node(&u, &text, node)) {
        if (u.with.n > 0) {
            buf_format(sql, "WITH %s", u.is_recursive ? "RECURSIVE " : "");
            buf_append(sql, u.with.data, u.with.n);
            buf_char(sql, ' ');
        }
        buf_append(sql, text.data, text.n);
    }
    mem_free(u.names);
    buf_deinit(&u.with);
    buf_deinit(&text);
    return u.err;
}

enum err unparse_node(struct buf *sql, struct plan_node *node, struct error *e)
{
    return unparse(sql, node, NULL, e);
}

enum err unparse_result(struct buf *sql, struct plan_node *node, const struct plan_column *columns, uint32_t n,
                        struct error *e)
{
    ASSERT(n == node->n_columns);
    return unparse(sql, node, columns, e);
}

enum err unparse_expression(struct buf *sql, const struct expression *expression, const char *table, struct error *e)
{
    struct unparser u = {.e = e};
    struct buf text = {0};
    struct columns columns = unparse__one(table, UINT32_MAX);
    if (unparse__expression(&u, &text, expression, &columns)) {
        buf_append(sql, text.data, text.n);
    }
    buf_deinit(&text);
    return u.err;
}
