/*
 * unparse_join.c - joins as SQL.
 *
 * INNER, LEFT, RIGHT, FULL, SEMI and ANTI are SQL's own (or DuckDB's). The two that come from subqueries are not:
 *
 * - SINGLE yields for each left row the one right row that matches, or NULLs, and fails if there are two. It becomes a
 *   LEFT JOIN with the right side grouped by its keys. How many rows a group had is asked above the join, since nobody
 *   may want that group, and in a WHERE, since nobody may read the columns.
 * - MARK adds one column to each left row: whether a right row matches, with SQL's three values. It becomes EXISTS if it
 *   can only be true or false, `x op ANY (…)` for one comparison, `(a, b) IN (…)` for several equalities, and two joins
 *   for an IN inside a correlated subquery.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "query/unparse_internal.h"

struct joined {
    struct plan_node *node;
    const struct join *join;
    struct side left;
    struct side right;
    struct columns left_columns;
    struct columns right_columns;
};

/* "(left = right)", with the right expression as it stands or as a column of another table. */
static bool write_condition(struct unparser *u, struct buf *sql, const struct joined *joined,
                            const struct join_condition *condition, const char *right)
{
    buf_char(sql, '(');
    if (!unparse__expression(u, sql, condition->left, &joined->left_columns)) {
        return false;
    }
    buf_format(sql, " %s ", comparison_sql(condition->comparison));
    if (right != NULL) {
        buf_text(sql, right);
    } else if (!unparse__expression(u, sql, condition->right, &joined->right_columns)) {
        return false;
    }
    buf_char(sql, ')');
    return true;
}

/* Ordinary joins. */

static bool write_on(struct unparser *u, struct buf *sql, const struct joined *joined)
{
    const struct join *join = joined->join;
    buf_text(sql, " ON ");
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        buf_text(sql, i == 0 ? "" : " AND ");
        if (!write_condition(u, sql, joined, &join->conditions[i], NULL)) {
            return false;
        }
    }
    if (join->residual != NULL) {
        struct columns both = unparse__two(joined->left.alias, joined->left.n_columns, joined->right.alias);
        buf_text(sql, join->n_conditions == 0 ? "" : " AND ");
        return unparse__expression(u, sql, join->residual, &both);
    }
    buf_text(sql, join->n_conditions == 0 ? "true" : "");
    return true;
}

static bool write_ordinary(struct unparser *u, struct buf *sql, const struct joined *joined)
{
    static const char *const words[] = {
        [JOIN_INNER] = " JOIN ",     [JOIN_LEFT] = " LEFT JOIN ", [JOIN_RIGHT] = " RIGHT JOIN ",
        [JOIN_FULL] = " FULL JOIN ", [JOIN_SEMI] = " SEMI JOIN ", [JOIN_ANTI] = " ANTI JOIN ",
    };
    const struct join *join = joined->join;
    uint32_t n_left = join->n_left;
    bool has_right = join->type != JOIN_SEMI && join->type != JOIN_ANTI;
    unparse__mapped(u, sql, joined->node, joined->left.alias, join->left_map, n_left, 0);
    if (has_right) {
        unparse__mapped(u, sql, joined->node, joined->right.alias, join->right_map, join->n_right, n_left);
    }
    buf_format(sql, " FROM %s%s%s%s", joined->left.from.data, join->is_asof ? " ASOF" : "", words[join->type],
               joined->right.from.data);
    return write_on(u, sql, joined);
}

/* SINGLE. */

static bool write_single(struct unparser *u, struct buf *sql, const struct joined *joined)
{
    const struct join *join = joined->join;
    char alias[16];
    char key[40];
    unparse__alias(u, 's', alias);
    unparse__mapped(u, sql, joined->node, joined->left.alias, join->left_map, join->n_left, 0);
    for (uint32_t i = 0; i < join->n_right; i++) {
        unparse__separate(sql, join->n_left + i);
        buf_format(sql, "%s.v%" PRIu32, alias, i);
        unparse__as(u, sql, joined->node, join->n_left + i);
    }
    buf_format(sql, " FROM %s LEFT JOIN (SELECT ", joined->left.from.data);
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        enum comparison comparison = join->conditions[i].comparison;
        if (comparison != COMPARE_EQUAL && comparison != COMPARE_NOT_DISTINCT) {
            return unparse__unsupported(u, "a scalar subquery that is not correlated by equality");
        }
        if (!unparse__expression(u, sql, join->conditions[i].right, &joined->right_columns)) {
            return false;
        }
        buf_format(sql, " AS k%" PRIu32 ", ", i);
    }
    buf_text(sql, "count(*) AS n");
    for (uint32_t i = 0; i < join->n_right; i++) {
        buf_format(sql, ", first(%s.c%" PRIu32 ") AS v%" PRIu32, joined->right.alias, join->right_map[i], i);
    }
    buf_format(sql, " FROM %s", joined->right.from.data);
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        buf_format(sql, "%s%" PRIu32, i == 0 ? " GROUP BY " : ", ", i + 1);
    }
    buf_format(sql, ") %s ON ", alias);
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        buf_text(sql, i == 0 ? "" : " AND ");
        (void)snprintf(key, sizeof(key), "%s.k%" PRIu32, alias, i);
        if (!write_condition(u, sql, joined, &join->conditions[i], key)) {
            return false;
        }
    }
    buf_text(sql, join->n_conditions == 0 ? "true" : "");
    buf_format(sql,
               " WHERE CASE WHEN %s.n > 1 THEN error('More than one row returned by a subquery used as an expression "
               "- scalar subqueries can only return a single row.') ELSE true END",
               alias);
    return true;
}

/* MARK. */

/* The conditions, those that only know true and false apart. */
struct marks {
    const struct join_condition *keys[64]; /* IS [NOT] DISTINCT FROM */
    uint32_t n_keys;
    const struct join_condition *comparisons[64];
    uint32_t n_comparisons;
    bool has_only_equal_keys; /* all keys are IS NOT DISTINCT FROM */
};

static bool sort_conditions(struct unparser *u, const struct join *join, struct marks *marks)
{
    *marks = (struct marks){.has_only_equal_keys = true};
    if (join->n_conditions > ARRAY_LEN(marks->keys)) {
        return unparse__unsupported(u, "a subquery with more than 64 conditions");
    }
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        const struct join_condition *condition = &join->conditions[i];
        enum comparison comparison = condition->comparison;
        if (comparison == COMPARE_DISTINCT || comparison == COMPARE_NOT_DISTINCT) {
            marks->keys[marks->n_keys++] = condition;
            marks->has_only_equal_keys = marks->has_only_equal_keys && comparison == COMPARE_NOT_DISTINCT;
        } else {
            marks->comparisons[marks->n_comparisons++] = condition;
        }
    }
    return true;
}

/* The left columns; the mark is written next by the caller. */
static void write_left(struct unparser *u, struct buf *sql, const struct joined *joined)
{
    unparse__mapped(u, sql, joined->node, joined->left.alias, joined->join->left_map, joined->join->n_left, 0);
    unparse__separate(sql, joined->join->n_left);
}

static void end_mark(struct unparser *u, struct buf *sql, const struct joined *joined)
{
    unparse__as(u, sql, joined->node, joined->join->n_left);
    buf_format(sql, " FROM %s", joined->left.from.data);
}

/* The right sides of conditions, as k0, k1, … */
static bool write_keys(struct unparser *u, struct buf *sql, const struct joined *joined, const struct marks *marks)
{
    for (uint32_t i = 0; i < marks->n_keys; i++) {
        buf_text(sql, i == 0 ? "" : ", ");
        if (!unparse__expression(u, sql, marks->keys[i]->right, &joined->right_columns)) {
            return false;
        }
        buf_format(sql, " AS k%" PRIu32, i);
    }
    return true;
}

static bool write_key_conditions(struct unparser *u, struct buf *sql, const struct joined *joined,
                                 const struct marks *marks, const char *table)
{
    for (uint32_t i = 0; i < marks->n_keys; i++) {
        char key[40];
        (void)snprintf(key, sizeof(key), "%s.k%" PRIu32, table, i);
        buf_text(sql, i == 0 ? "" : " AND ");
        if (!write_condition(u, sql, joined, marks->keys[i], key)) {
            return false;
        }
    }
    return true;
}

/* Only keys: whether there is such a row at all. */
static bool write_exists(struct unparser *u, struct buf *sql, const struct joined *joined, const struct marks *marks)
{
    char alias[16];
    unparse__alias(u, 's', alias);
    write_left(u, sql, joined);
    if (marks->n_keys == 0) {
        buf_format(sql, "EXISTS (SELECT 1 FROM %s)", joined->right.from.data);
        end_mark(u, sql, joined);
        return true;
    }
    if (!marks->has_only_equal_keys) {
        return unparse__unsupported(u, "an EXISTS that is not correlated by equality");
    }
    buf_format(sql, "(%s.m IS NOT NULL)", alias);
    end_mark(u, sql, joined);
    buf_text(sql, " LEFT JOIN (SELECT DISTINCT ");
    if (!write_keys(u, sql, joined, marks)) {
        return false;
    }
    buf_format(sql, ", true AS m FROM %s) %s ON ", joined->right.from.data, alias);
    return write_key_conditions(u, sql, joined, marks, alias);
}

/* One comparison and no keys: SQL's own quantified comparison. */
static bool write_any(struct unparser *u, struct buf *sql, const struct joined *joined, const struct marks *marks)
{
    const struct join_condition *condition = marks->comparisons[0];
    write_left(u, sql, joined);
    buf_char(sql, '(');
    if (!unparse__expression(u, sql, condition->left, &joined->left_columns)) {
        return false;
    }
    buf_format(sql, " %s ANY (SELECT ", comparison_sql(condition->comparison));
    if (!unparse__expression(u, sql, condition->right, &joined->right_columns)) {
        return false;
    }
    buf_format(sql, " FROM %s))", joined->right.from.data);
    end_mark(u, sql, joined);
    return true;
}

/* Several equalities and no keys: IN over rows. */
static bool write_row_in(struct unparser *u, struct buf *sql, const struct joined *joined, const struct marks *marks)
{
    write_left(u, sql, joined);
    for (uint32_t i = 0; i < marks->n_comparisons; i++) {
        if (marks->comparisons[i]->comparison != COMPARE_EQUAL) {
            return unparse__unsupported(u, "a subquery with several inequalities");
        }
        buf_text(sql, i == 0 ? "((" : ", ");
        if (!unparse__expression(u, sql, marks->comparisons[i]->left, &joined->left_columns)) {
            return false;
        }
    }
    buf_text(sql, ") IN (SELECT ");
    for (uint32_t i = 0; i < marks->n_comparisons; i++) {
        buf_text(sql, i == 0 ? "" : ", ");
        if (!unparse__expression(u, sql, marks->comparisons[i]->right, &joined->right_columns)) {
            return false;
        }
    }
    buf_format(sql, " FROM %s))", joined->right.from.data);
    end_mark(u, sql, joined);
    return true;
}

/* The right side with its keys as k0, … and the compared value as y, in the WITH; `name` is what it is called. */
static bool add_compared(struct unparser *u, const struct joined *joined, const struct marks *marks, const char *name)
{
    struct buf text = {0};
    buf_format(&text, "%s AS MATERIALIZED (SELECT ", name);
    bool is_written = write_keys(u, &text, joined, marks);
    buf_text(&text, ", ");
    is_written = is_written && unparse__expression(u, &text, marks->comparisons[0]->right, &joined->right_columns);
    buf_format(&text, " AS y FROM %s)", joined->right.from.data);
    buf_text(&u->with, u->with.n == 0 ? "" : ", ");
    buf_append(&u->with, text.data, text.n);
    buf_deinit(&text);
    return is_written;
}

static void write_key_names(struct buf *sql, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        buf_format(sql, "%sk%" PRIu32, i == 0 ? "" : ", ", i);
    }
}

/*
 * An IN inside a correlated subquery: one equality among the rows with the same keys. Besides the rows that match, one
 * has to know for each key whether there are rows at all, and whether one of them is NULL.
 */
static bool write_correlated_in(struct unparser *u, struct buf *sql, const struct joined *joined,
                                const struct marks *marks)
{
    char compared[16];
    char match[16];
    char group[16];
    struct buf left = {0};
    unparse__alias(u, 'k', compared);
    unparse__alias(u, 's', match);
    unparse__alias(u, 's', group);
    bool is_written = add_compared(u, joined, marks, compared) &&
                      unparse__expression(u, &left, marks->comparisons[0]->left, &joined->left_columns);
    if (is_written) {
        write_left(u, sql, joined);
        buf_format(sql,
                   "(CASE WHEN %s.m THEN true WHEN %s.n IS NULL THEN false WHEN %s IS NULL OR %s.h THEN "
                   "CAST(NULL AS BOOLEAN) ELSE false END)",
                   match, group, left.data, group);
        end_mark(u, sql, joined);
        buf_text(sql, " LEFT JOIN (SELECT DISTINCT ");
        write_key_names(sql, marks->n_keys);
        buf_format(sql, ", y, true AS m FROM %s) %s ON ", compared, match);
        is_written = write_key_conditions(u, sql, joined, marks, match);
        buf_format(sql, " AND %s = %s.y LEFT JOIN (SELECT ", left.data, match);
        write_key_names(sql, marks->n_keys);
        buf_format(sql, ", count(*) AS n, bool_or(y IS NULL) AS h FROM %s GROUP BY ", compared);
        write_key_names(sql, marks->n_keys);
        buf_format(sql, ") %s ON ", group);
        is_written = is_written && write_key_conditions(u, sql, joined, marks, group);
    }
    buf_deinit(&left);
    return is_written;
}

/* Whether the mark is true, by the least value (lo) and the greatest one (hi) among the rows with the same keys. */
static void write_found(struct buf *sql, enum comparison comparison, const char *left, const char *group)
{
    bool is_below = comparison == COMPARE_LESS || comparison == COMPARE_LESS_OR_EQUAL;
    bool is_above = comparison == COMPARE_GREATER || comparison == COMPARE_GREATER_OR_EQUAL;
    if (is_below || is_above) {
        buf_format(sql, "%s %s %s.%s", left, comparison_sql(comparison), group, is_below ? "hi" : "lo");
    } else {
        buf_format(sql, "%s <> %s.lo OR %s <> %s.hi", left, group, left, group);
    }
}

/* The same with another comparison than an equality: x < ANY (…) is x < the greatest of them. */
static bool write_correlated_any(struct unparser *u, struct buf *sql, const struct joined *joined,
                                 const struct marks *marks)
{
    char compared[16];
    char group[16];
    struct buf left = {0};
    unparse__alias(u, 'k', compared);
    unparse__alias(u, 's', group);
    bool is_written = add_compared(u, joined, marks, compared) &&
                      unparse__expression(u, &left, marks->comparisons[0]->left, &joined->left_columns);
    if (is_written) {
        write_left(u, sql, joined);
        buf_format(sql, "(CASE WHEN %s.n IS NULL THEN false WHEN ", group);
        write_found(sql, marks->comparisons[0]->comparison, left.data, group);
        buf_format(sql, " THEN true WHEN %s IS NULL OR %s.h THEN CAST(NULL AS BOOLEAN) ELSE false END)", left.data,
                   group);
        end_mark(u, sql, joined);
        buf_text(sql, " LEFT JOIN (SELECT ");
        write_key_names(sql, marks->n_keys);
        buf_format(sql, ", count(*) AS n, bool_or(y IS NULL) AS h, min(y) AS lo, max(y) AS hi FROM %s GROUP BY ",
                   compared);
        write_key_names(sql, marks->n_keys);
        buf_format(sql, ") %s ON ", group);
        is_written = write_key_conditions(u, sql, joined, marks, group);
    }
    buf_deinit(&left);
    return is_written;
}

static bool write_correlated(struct unparser *u, struct buf *sql, const struct joined *joined,
                             const struct marks *marks)
{
    if (marks->n_comparisons > 1) {
        return unparse__unsupported(u, "a correlated subquery with several comparisons");
    }
    if (!marks->has_only_equal_keys) {
        return unparse__unsupported(u, "a correlated subquery that is not correlated by equality");
    }
    const struct join_condition *condition = marks->comparisons[0];
    if (condition->comparison == COMPARE_EQUAL) {
        return write_correlated_in(u, sql, joined, marks);
    }
    const struct type *type = condition->right->type;
    if (type->id != TYPE_ENUM && (type->child != NULL || type->n_fields > 0)) {
        return unparse__unsupported(u, "a correlated subquery whose nested values are compared by order");
    }
    return write_correlated_any(u, sql, joined, marks);
}

static bool write_mark(struct unparser *u, struct buf *sql, const struct joined *joined)
{
    struct marks marks;
    if (joined->join->residual != NULL) {
        return unparse__unsupported(u, "a subquery with a condition over both sides");
    }
    if (!sort_conditions(u, joined->join, &marks)) {
        return false;
    }
    if (marks.n_comparisons == 0) {
        return write_exists(u, sql, joined, &marks);
    }
    if (marks.n_keys == 0) {
        return marks.n_comparisons == 1 ? write_any(u, sql, joined, &marks) : write_row_in(u, sql, joined, &marks);
    }
    return write_correlated(u, sql, joined, &marks);
}

/* All joins. */

/* The key side of a delim join goes into the WITH, where the DELIM_GETs of the other side find it. */
static bool write_delim_sides(struct unparser *u, struct joined *joined)
{
    const struct join *join = joined->join;
    struct side *sides[] = {&joined->left, &joined->right};
    struct plan_node *keyed = joined->node->children[join->delim_side];
    struct side *keyed_side = sides[join->delim_side];
    struct buf text = {0};
    bool is_written = unparse__entry(u, &text, keyed);
    if (is_written) {
        uint32_t n_names = u->n_names;
        const struct unparse_name *name = unparse__name(u, join->delim_id, 'd');
        u->names[n_names].is_delim = true;
        u->names[n_names].delim_join = joined->node;
        buf_format(&u->with, "%s%s AS MATERIALIZED (", u->with.n == 0 ? "" : ", ", name->text);
        buf_append(&u->with, text.data, text.n);
        buf_char(&u->with, ')');
        unparse__alias(u, 't', keyed_side->alias);
        buf_format(&keyed_side->from, "%s %s", name->text, keyed_side->alias);
        keyed_side->n_columns = keyed->n_columns;
        is_written = unparse__side(u, joined->node->children[1 - join->delim_side], sides[1 - join->delim_side]);
        u->n_names = n_names;
    }
    buf_deinit(&text);
    return is_written;
}

static bool write_sides(struct unparser *u, struct joined *joined)
{
    if (joined->join->is_delim) {
        return write_delim_sides(u, joined);
    }
    return unparse__side(u, joined->node->children[0], &joined->left) &&
           unparse__side(u, joined->node->children[1], &joined->right);
}

bool unparse__join(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    struct joined joined = {.node = node, .join = node->as.join};
    bool is_written = write_sides(u, &joined);
    if (is_written) {
        joined.left_columns = unparse__one(joined.left.alias, joined.left.n_columns);
        joined.right_columns = unparse__one(joined.right.alias, joined.right.n_columns);
        switch (joined.join->type) {
        case JOIN_MARK:
            is_written = write_mark(u, sql, &joined);
            break;
        case JOIN_SINGLE:
            is_written = joined.join->residual == NULL
                             ? write_single(u, sql, &joined)
                             : unparse__unsupported(u, "a scalar subquery with a condition over both sides");
            break;
        case JOIN_INNER:
        case JOIN_LEFT:
        case JOIN_RIGHT:
        case JOIN_FULL:
        case JOIN_SEMI:
        case JOIN_ANTI:
            is_written = write_ordinary(u, sql, &joined);
            break;
        }
    }
    buf_deinit(&joined.left.from);
    buf_deinit(&joined.right.from);
    return is_written;
}
