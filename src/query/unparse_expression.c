/* unparse_expression.c - expressions as SQL: one table of kinds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "query/unparse_internal.h"

/* References. */

static bool write_table_column(struct unparser *u, struct buf *sql, const struct columns *columns, uint32_t index)
{
    const char *table = columns->table;
    if (index >= columns->n) {
        if (columns->second == NULL) {
            return unparse__unsupported(u, "a reference to a column that is not there");
        }
        table = columns->second;
        index -= columns->n;
    }
    if (table != NULL) {
        buf_format(sql, "%s.", table);
    }
    buf_format(sql, "c%" PRIu32, index);
    return true;
}

struct columns unparse__one(const char *table, uint32_t n)
{
    return (struct columns){.write = write_table_column, .table = table, .n = n};
}

struct columns unparse__two(const char *table, uint32_t n, const char *second)
{
    return (struct columns){.write = write_table_column, .table = table, .n = n, .second = second};
}

static bool write_lambda_column(struct unparser *u, struct buf *sql, const struct columns *columns, uint32_t index)
{
    uint32_t n = columns->lambda->as.lambda.n_parameters;
    if (index < n) {
        buf_format(sql, "x%" PRIu32 "_%" PRIu32, columns->lambda_id, index);
        return true;
    }
    if (index - n + 1 >= columns->lambda->n_args) {
        return unparse__unsupported(u, "a reference to a captured value that is not there");
    }
    return unparse__expression(u, sql, columns->lambda->args[index - n + 1], columns->outer);
}

/* The kinds. */

static bool write_ref(struct unparser *u, struct buf *sql, const struct expression *expression,
                      const struct columns *columns)
{
    return columns->write(u, sql, columns, expression->as.index);
}

static bool write_constant(struct unparser *u, struct buf *sql, const struct expression *expression,
                           const struct columns *columns)
{
    UNUSED(columns);
    return constant_write(sql, expression->as.constant) ||
           unparse__unsupported(u, "a constant that SQL cannot express");
}

static bool write_comparison(struct unparser *u, struct buf *sql, const struct expression *expression,
                             const struct columns *columns)
{
    buf_char(sql, '(');
    if (!unparse__expression(u, sql, expression->args[0], columns)) {
        return false;
    }
    buf_format(sql, " %s ", comparison_sql(expression->as.comparison));
    if (!unparse__expression(u, sql, expression->args[1], columns)) {
        return false;
    }
    buf_char(sql, ')');
    return true;
}

static bool write_conjunction(struct unparser *u, struct buf *sql, const struct expression *expression,
                              const struct columns *columns)
{
    for (uint32_t i = 0; i < expression->n_args; i++) {
        buf_text(sql, i == 0 ? "(" : expression->kind == EXPRESSION_AND ? " AND " : " OR ");
        if (!unparse__expression(u, sql, expression->args[i], columns)) {
            return false;
        }
    }
    buf_char(sql, ')');
    return true;
}

/* SQL has only the form with both bounds inside; the others are two comparisons, which evaluate the input twice. */
static bool write_between(struct unparser *u, struct buf *sql, const struct expression *expression,
                          const struct columns *columns)
{
    const struct expression *input = expression->args[0];
    bool is_whole = expression->as.between.has_lower && expression->as.between.has_upper;
    if (!is_whole && expression_is_volatile(input)) {
        return unparse__unsupported(u, "a range check of a volatile expression");
    }
    buf_char(sql, '(');
    bool is_written = unparse__expression(u, sql, input, columns);
    buf_text(sql, is_whole ? " BETWEEN " : expression->as.between.has_lower ? " >= " : " > ");
    is_written = is_written && unparse__expression(u, sql, expression->args[1], columns);
    buf_text(sql, " AND ");
    if (!is_whole) {
        is_written = is_written && unparse__expression(u, sql, input, columns);
        buf_text(sql, expression->as.between.has_upper ? " <= " : " < ");
    }
    is_written = is_written && unparse__expression(u, sql, expression->args[2], columns);
    buf_char(sql, ')');
    return is_written;
}

static bool write_cast(struct unparser *u, struct buf *sql, const struct expression *expression,
                       const struct columns *columns)
{
    const struct expression *child = expression->args[0];
    if (type_equal(child->type, expression->type)) {
        return unparse__expression(u, sql, child, columns);
    }
    if (!type_has_sql(expression->type)) {
        return unparse__unsupported(u, "a cast to a type without a name");
    }
    buf_text(sql, expression->as.is_try ? "TRY_CAST(" : "CAST(");
    if (!unparse__expression(u, sql, child, columns)) {
        return false;
    }
    buf_text(sql, " AS ");
    type_write(sql, expression->type);
    buf_char(sql, ')');
    return true;
}

static bool write_case(struct unparser *u, struct buf *sql, const struct expression *expression,
                       const struct columns *columns)
{
    buf_text(sql, "(CASE");
    for (uint32_t i = 0; i < expression->n_args; i++) {
        bool is_else = i + 1 == expression->n_args;
        buf_text(sql, is_else ? " ELSE " : i % 2 == 0 ? " WHEN " : " THEN ");
        if (!unparse__expression(u, sql, expression->args[i], columns)) {
            return false;
        }
    }
    buf_text(sql, " END)");
    return true;
}

/* What stands before the first argument, between it and the others, between these, and at the end. */
static const struct {
    const char *start;
    const char *first;
    const char *others;
    const char *end;
} operator_forms[N_OPERATORS] = {
    [OPERATOR_NOT] = {"(NOT ", "", "", ")"},
    [OPERATOR_IS_NULL] = {"(", "", "", " IS NULL)"},
    [OPERATOR_IS_NOT_NULL] = {"(", "", "", " IS NOT NULL)"},
    [OPERATOR_IN] = {"(", " IN (", ", ", "))"},
    [OPERATOR_NOT_IN] = {"(", " NOT IN (", ", ", "))"},
    [OPERATOR_COALESCE] = {"COALESCE(", ", ", ", ", ")"},
    [OPERATOR_NULLIF] = {"NULLIF(", ", ", ", ", ")"},
    [OPERATOR_TRY] = {"TRY(", "", "", ")"},
};

static bool write_operator(struct unparser *u, struct buf *sql, const struct expression *expression,
                           const struct columns *columns)
{
    enum operator_kind kind = expression->as.operator;
    buf_text(sql, operator_forms[kind].start);
    for (uint32_t i = 0; i < expression->n_args; i++) {
        buf_text(sql, i == 0 ? "" : i == 1 ? operator_forms[kind].first : operator_forms[kind].others);
        if (!unparse__expression(u, sql, expression->args[i], columns)) {
            return false;
        }
    }
    buf_text(sql, operator_forms[kind].end);
    return true;
}

/* Functions. */

static bool write_call(struct unparser *u, struct buf *sql, const struct expression *expression,
                       const struct columns *columns)
{
    const struct function_call *call = &expression->as.function;
    sql_write_name(sql, call->name);
    buf_char(sql, '(');
    for (uint32_t i = 0; i < expression->n_args; i++) {
        buf_text(sql, i == 0 ? "" : ", ");
        if (call->names != NULL && call->names[i] != NULL) {
            sql_write_name(sql, call->names[i]);
            buf_text(sql, " := ");
        }
        if (!unparse__expression(u, sql, expression->args[i], columns)) {
            return false;
        }
    }
    buf_char(sql, ')');
    return true;
}

static bool is_empty_list(const struct expression *expression)
{
    return expression->kind == EXPRESSION_CONSTANT && expression->type->id == TYPE_LIST &&
           !expression->as.constant->is_null && expression->as.constant->as.items.n == 0;
}

/* A bound that was left out of list[a:b:step] is an empty list in the plan, which only that syntax can express. */
static bool is_open_slice(const struct expression *expression)
{
    const char *name = expression->as.function.name;
    if ((strcmp(name, "array_slice") != 0 && strcmp(name, "list_slice") != 0) || expression->n_args < 3) {
        return false;
    }
    return is_empty_list(expression->args[1]) || is_empty_list(expression->args[2]);
}

static bool write_slice(struct unparser *u, struct buf *sql, const struct expression *expression,
                        const struct columns *columns)
{
    static const char *const before[] = {"(", ")[", ":", ":"};
    for (uint32_t i = 0; i < expression->n_args && i < ARRAY_LEN(before); i++) {
        buf_text(sql, before[i]);
        if (i > 0 && is_empty_list(expression->args[i])) {
            buf_text(sql, i == 2 && expression->n_args > 3 ? "-" : "");
        } else if (!unparse__expression(u, sql, expression->args[i], columns)) {
            return false;
        }
    }
    buf_char(sql, ']');
    return true;
}

struct digits {
    uint8_t width;
    uint8_t scale;
};

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/*
 * The digits that DuckDB's binder will give to + - * % over arguments of these types. False if they are not both exact
 * numbers, or neither is a DECIMAL.
 */
static bool bound_digits(char name, const struct type *left, const struct type *right, struct digits *out)
{
    struct digits a = {0};
    struct digits b = {0};
    if (!type_is_exact_number(left, &a.width, &a.scale) || !type_is_exact_number(right, &b.width, &b.scale)) {
        return false;
    }
    int width_max = larger(a.width, b.width);
    int scale = a.scale + b.scale;
    int width = a.width + b.width;
    if (name == '*') {
        width = width > 18 && width_max <= 18 && scale < 18 ? 18 : width;
    } else {
        scale = larger(a.scale, b.scale);
        width = larger(scale + larger(a.width - a.scale, b.width - b.scale), width_max);
        if (name != '%') {
            width++;
            width = width > 18 && width_max <= 18 ? 18 : width;
        }
    }
    *out = (struct digits){.width = (uint8_t)(width > 38 ? 38 : width), .scale = (uint8_t)scale};
    return left->id == TYPE_DECIMAL || right->id == TYPE_DECIMAL;
}

static bool has_bound_type(const struct expression *call, const struct expression *left, const struct expression *right)
{
    struct digits digits = {0};
    return bound_digits(call->as.function.name[0], left->type, right->type, &digits) &&
           digits.width == call->type->width && digits.scale == call->type->scale;
}

/* The argument without a cast that the binder put there to bring it to the result's digits, and will put there again. */
static struct expression *without_binders_cast(struct expression *argument)
{
    uint8_t scale = 0;
    if (argument->kind != EXPRESSION_CAST || argument->as.is_try || argument->type->id != TYPE_DECIMAL ||
        !type_is_exact_number(argument->args[0]->type, NULL, &scale) || scale > argument->type->scale) {
        return argument;
    }
    return argument->args[0];
}

/*
 * DuckDB widens DECIMAL arithmetic when it binds it, and would widen it once more when it binds our text. So the call
 * is written without the casts of the first binding, if that gives the right type; or else it is cast to it.
 */
static bool write_decimal_call(struct unparser *u, struct buf *sql, const struct expression *expression,
                               const struct columns *columns)
{
    bool is_product = expression->as.function.name[0] == '*';
    struct expression *left = expression->args[0];
    struct expression *right = expression->args[1];
    struct expression *args[] = {is_product ? left : without_binders_cast(left),
                                 is_product ? right : without_binders_cast(right)};
    struct expression stripped = *expression;
    stripped.n_args = ARRAY_LEN(args);
    stripped.args = args;
    if (has_bound_type(expression, args[0], args[1])) {
        return write_call(u, sql, &stripped, columns);
    }
    if (has_bound_type(expression, left, right)) {
        return write_call(u, sql, expression, columns);
    }
    buf_text(sql, "CAST(");
    if (!write_call(u, sql, expression, columns)) {
        return false;
    }
    buf_text(sql, " AS ");
    type_write(sql, expression->type);
    buf_char(sql, ')');
    return true;
}

static bool write_function(struct unparser *u, struct buf *sql, const struct expression *expression,
                           const struct columns *columns)
{
    const char *name = expression->as.function.name;
    bool is_arithmetic = name[0] != '\0' && strchr("+-*%", name[0]) != NULL && name[1] == '\0';
    if (is_arithmetic && expression->type->id == TYPE_DECIMAL && expression->n_args == 2) {
        return write_decimal_call(u, sql, expression, columns);
    }
    if (is_open_slice(expression)) {
        return write_slice(u, sql, expression, columns);
    }
    return write_call(u, sql, expression, columns);
}

static bool write_lambda(struct unparser *u, struct buf *sql, const struct expression *expression,
                         const struct columns *columns)
{
    struct columns inner = {
        .write = write_lambda_column, .lambda = expression, .lambda_id = u->n_aliases++, .outer = columns};
    for (uint32_t i = 0; i < expression->as.lambda.n_parameters; i++) {
        buf_format(sql, "%sx%" PRIu32 "_%" PRIu32, i == 0 ? "lambda " : ", ", inner.lambda_id, i);
    }
    buf_text(sql, ": ");
    return unparse__expression(u, sql, expression->args[0], &inner);
}

static bool write_unnest(struct unparser *u, struct buf *sql, const struct expression *expression,
                         const struct columns *columns)
{
    buf_text(sql, "unnest(");
    if (!unparse__expression(u, sql, expression->args[0], columns)) {
        return false;
    }
    buf_char(sql, ')');
    return true;
}

/* Orders, aggregates and windows. */

static bool write_orders(struct unparser *u, struct buf *sql, const struct order_key *keys, uint32_t n,
                         bool has_constants, const struct columns *columns)
{
    bool is_first = true;
    for (uint32_t i = 0; i < n; i++) {
        if (!has_constants && keys[i].expression->kind == EXPRESSION_CONSTANT) {
            continue;
        }
        buf_text(sql, is_first ? " ORDER BY " : ", ");
        is_first = false;
        if (!unparse__expression(u, sql, keys[i].expression, columns)) {
            return false;
        }
        buf_text(sql, keys[i].is_descending ? " DESC" : " ASC");
        buf_text(sql, keys[i].has_nulls_first ? " NULLS FIRST" : " NULLS LAST");
    }
    return true;
}

bool unparse__order_by(struct unparser *u, struct buf *sql, const struct order_key *keys, uint32_t n,
                       const struct columns *columns)
{
    return write_orders(u, sql, keys, n, false, columns);
}

/* The part of a call that aggregates and windows have in common. */
struct called {
    const char *name;
    bool is_distinct;
    bool has_ignore_nulls;
    const struct order_key *orders;
    uint32_t n_orders;
    const struct expression *filter;
};

static bool write_called(struct unparser *u, struct buf *sql, const struct expression *expression,
                         const struct called *called, const struct columns *columns)
{
    if (strcmp(called->name, "count_star") == 0) {
        buf_text(sql, "count(*)");
    } else {
        sql_write_name(sql, called->name);
        buf_text(sql, called->is_distinct ? "(DISTINCT " : "(");
        if (!unparse__list(u, sql, expression->args, expression->n_args, columns) ||
            !write_orders(u, sql, called->orders, called->n_orders, true, columns)) {
            return false;
        }
        buf_text(sql, called->has_ignore_nulls ? " IGNORE NULLS)" : ")");
    }
    if (called->filter == NULL) {
        return true;
    }
    buf_text(sql, " FILTER (WHERE ");
    if (!unparse__expression(u, sql, called->filter, columns)) {
        return false;
    }
    buf_char(sql, ')');
    return true;
}

static bool write_aggregate(struct unparser *u, struct buf *sql, const struct expression *expression,
                            const struct columns *columns)
{
    const struct aggregate_call *call = expression->as.aggregate;
    struct called called = {.name = call->name,
                            .is_distinct = call->is_distinct,
                            .orders = call->orders,
                            .n_orders = call->n_orders,
                            .filter = call->filter};
    return write_called(u, sql, expression, &called, columns);
}

static bool write_bound(struct unparser *u, struct buf *sql, const struct frame_bound *bound,
                        const struct columns *columns)
{
    static const char *const texts[] = {
        [BOUND_UNBOUNDED_PRECEDING] = "UNBOUNDED PRECEDING",
        [BOUND_UNBOUNDED_FOLLOWING] = "UNBOUNDED FOLLOWING",
        [BOUND_CURRENT_ROW] = "CURRENT ROW",
        [BOUND_PRECEDING] = " PRECEDING",
        [BOUND_FOLLOWING] = " FOLLOWING",
    };
    if (bound->offset != NULL && !unparse__expression(u, sql, bound->offset, columns)) {
        return false;
    }
    buf_text(sql, texts[bound->kind]);
    return true;
}

static bool write_frame(struct unparser *u, struct buf *sql, const struct window_call *call,
                        const struct columns *columns)
{
    static const char *const units[] = {
        [FRAME_ROWS] = " ROWS BETWEEN ", [FRAME_RANGE] = " RANGE BETWEEN ", [FRAME_GROUPS] = " GROUPS BETWEEN "};
    static const char *const exclusions[] = {
        [EXCLUDE_NOTHING] = "",
        [EXCLUDE_CURRENT_ROW] = " EXCLUDE CURRENT ROW",
        [EXCLUDE_GROUP] = " EXCLUDE GROUP",
        [EXCLUDE_TIES] = " EXCLUDE TIES",
    };
    buf_text(sql, units[call->unit]);
    if (!write_bound(u, sql, &call->start, columns)) {
        return false;
    }
    buf_text(sql, " AND ");
    if (!write_bound(u, sql, &call->end, columns)) {
        return false;
    }
    buf_text(sql, exclusions[call->exclusion]);
    return true;
}

static bool write_window(struct unparser *u, struct buf *sql, const struct expression *expression,
                         const struct columns *columns)
{
    const struct window_call *call = expression->as.window;
    struct called called = {.name = call->name,
                            .is_distinct = call->is_distinct,
                            .has_ignore_nulls = call->has_ignore_nulls,
                            .orders = call->argument_orders,
                            .n_orders = call->n_argument_orders,
                            .filter = call->filter};
    if (!write_called(u, sql, expression, &called, columns)) {
        return false;
    }
    buf_text(sql, " OVER (");
    if (call->n_partitions > 0) {
        buf_text(sql, "PARTITION BY ");
        if (!unparse__list(u, sql, call->partitions, call->n_partitions, columns)) {
            return false;
        }
    }
    if (!write_orders(u, sql, call->orders, call->n_orders, true, columns) || !write_frame(u, sql, call, columns)) {
        return false;
    }
    buf_char(sql, ')');
    return true;
}

/* SQL of the cutter's own. */
static bool write_template(struct unparser *u, struct buf *sql, const struct expression *expression,
                           const struct columns *columns)
{
    for (const char *p = expression->as.sql; *p != '\0'; p++) {
        if (*p != '@') {
            buf_char(sql, *p);
            continue;
        }
        p++;
        if (*p == '@') {
            buf_char(sql, '@');
        } else if (*p == '*') {
            if (!unparse__list(u, sql, expression->args, expression->n_args, columns)) {
                return false;
            }
        } else {
            ASSERT(*p >= '0' && *p <= '9');
            ASSERT((uint32_t)(*p - '0') < expression->n_args);
            if (!unparse__expression(u, sql, expression->args[*p - '0'], columns)) {
                return false;
            }
        }
    }
    return true;
}

typedef bool write_fn(struct unparser *u, struct buf *sql, const struct expression *expression,
                      const struct columns *columns);

static write_fn *const writers[N_EXPRESSION_KINDS] = {
    [EXPRESSION_REF] = write_ref,
    [EXPRESSION_CONSTANT] = write_constant,
    [EXPRESSION_COMPARISON] = write_comparison,
    [EXPRESSION_AND] = write_conjunction,
    [EXPRESSION_OR] = write_conjunction,
    [EXPRESSION_BETWEEN] = write_between,
    [EXPRESSION_CAST] = write_cast,
    [EXPRESSION_CASE] = write_case,
    [EXPRESSION_OPERATOR] = write_operator,
    [EXPRESSION_FUNCTION] = write_function,
    [EXPRESSION_LAMBDA] = write_lambda,
    [EXPRESSION_UNNEST] = write_unnest,
    [EXPRESSION_AGGREGATE] = write_aggregate,
    [EXPRESSION_WINDOW] = write_window,
    [EXPRESSION_TEMPLATE] = write_template,
};

bool unparse__expression(struct unparser *u, struct buf *sql, const struct expression *expression,
                         const struct columns *columns)
{
    return writers[expression->kind](u, sql, expression, columns);
}

bool unparse__list(struct unparser *u, struct buf *sql, struct expression *const *expressions, uint32_t n,
                   const struct columns *columns)
{
    for (uint32_t i = 0; i < n; i++) {
        buf_text(sql, i == 0 ? "" : ", ");
        if (!unparse__expression(u, sql, expressions[i], columns)) {
            return false;
        }
    }
    return true;
}
