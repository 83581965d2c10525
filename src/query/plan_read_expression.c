/* plan_read_expression.c - expressions out of a plan's JSON, but for calls. One table of classes, one of operators. */
#include <string.h>

#include "base/limits.h"
#include "query/plan_read_internal.h"

struct expression *plan__new_expression(struct plan_reader *r, enum expression_kind kind, const struct type *type,
                                        uint32_t n_args)
{
    struct expression *expression = arena_zalloc(r->arena, sizeof(*expression));
    expression->kind = kind;
    expression->type = type;
    expression->n_args = n_args;
    expression->args = arena_zalloc(r->arena, n_args * sizeof(struct expression *));
    return expression;
}

struct expression *plan__constant_expression(struct plan_reader *r, const struct constant *constant)
{
    if (constant == NULL) {
        return NULL;
    }
    struct expression *expression = plan__new_expression(r, EXPRESSION_CONSTANT, constant->type, 0);
    expression->as.constant = constant;
    return expression;
}

bool plan__comparison(struct plan_reader *r, const char *name, enum comparison *out)
{
    static const char *const names[] = {
        [COMPARE_EQUAL] = "COMPARE_EQUAL",
        [COMPARE_NOT_EQUAL] = "COMPARE_NOTEQUAL",
        [COMPARE_LESS] = "COMPARE_LESSTHAN",
        [COMPARE_GREATER] = "COMPARE_GREATERTHAN",
        [COMPARE_LESS_OR_EQUAL] = "COMPARE_LESSTHANOREQUALTO",
        [COMPARE_GREATER_OR_EQUAL] = "COMPARE_GREATERTHANOREQUALTO",
        [COMPARE_DISTINCT] = "COMPARE_DISTINCT_FROM",
        [COMPARE_NOT_DISTINCT] = "COMPARE_NOT_DISTINCT_FROM",
    };
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (enum comparison)i;
            return true;
        }
    }
    (void)plan__unsupported(r, "the comparison %s", name != NULL ? name : "without a name");
    return false;
}

/* Reads one argument; false if it cannot be read. */
static bool read_arg(struct plan_reader *r, const struct json *json, const struct input *input,
                     struct expression *expression, uint32_t i)
{
    expression->args[i] = plan__expression(r, json, input);
    return expression->args[i] != NULL;
}

static bool read_children(struct plan_reader *r, const struct json *json, const struct input *input,
                          struct expression *expression)
{
    expression->args = plan__expressions(r, json_get(json, "children"), input, &expression->n_args);
    return expression->args != NULL;
}

/* The classes. Each gets an expression with kind, type and room for as many arguments as the table says. */

static bool read_ref(struct plan_reader *r, const struct json *json, const struct input *input,
                     struct expression *expression)
{
    uint32_t index = plan__u32(r, json, "index");
    if (r->err == ERR_OK && index >= input->n) {
        (void)plan__unsupported(r, "a reference to a column that is not there");
    }
    if (r->err != ERR_OK) {
        return false;
    }
    expression->as.index = input->map != NULL ? input->map[index] : index;
    return true;
}

static bool read_column_ref(struct plan_reader *r, const struct json *json, const struct input *input,
                            struct expression *expression)
{
    const struct json *binding = json_get(json, "binding");
    uint64_t table = plan__u64(r, binding, "table_index");
    uint64_t column = plan__u64(r, binding, "column_index");
    const struct relation *relation = input->relation;
    for (uint32_t i = 0; r->err == ERR_OK && relation != NULL && i < relation->node->n_columns; i++) {
        if (relation->bindings[i].table == table && relation->bindings[i].column == column) {
            expression->as.index = i;
            return true;
        }
    }
    (void)plan__unsupported(r, "a column that is not resolved");
    return false;
}

static bool read_constant(struct plan_reader *r, const struct json *json, const struct input *input,
                          struct expression *expression)
{
    UNUSED(input);
    const struct constant *constant = plan__constant(r, json_get(json, "value"));
    if (constant == NULL) {
        return false;
    }
    expression->type = constant->type;
    expression->as.constant = constant;
    return true;
}

static bool read_comparison(struct plan_reader *r, const struct json *json, const struct input *input,
                            struct expression *expression)
{
    return plan__comparison(r, json_text(json_get(json, "type"), NULL), &expression->as.comparison) &&
           read_arg(r, json_get(json, "left"), input, expression, 0) &&
           read_arg(r, json_get(json, "right"), input, expression, 1);
}

static bool read_conjunction(struct plan_reader *r, const struct json *json, const struct input *input,
                             struct expression *expression)
{
    const char *type = plan__text(r, json, "type");
    if (r->err != ERR_OK || !read_children(r, json, input, expression)) {
        return false;
    }
    expression->kind = strcmp(type, "CONJUNCTION_OR") == 0 ? EXPRESSION_OR : EXPRESSION_AND;
    if (expression->n_args == 0 || (expression->kind == EXPRESSION_AND && strcmp(type, "CONJUNCTION_AND") != 0)) {
        (void)plan__malformed(r, "a conjunction");
        return false;
    }
    return true;
}

static bool read_between(struct plan_reader *r, const struct json *json, const struct input *input,
                         struct expression *expression)
{
    expression->as.between.has_lower = json_bool(json_get(json, "lower_inclusive"));
    expression->as.between.has_upper = json_bool(json_get(json, "upper_inclusive"));
    return read_arg(r, json_get(json, "input"), input, expression, 0) &&
           read_arg(r, json_get(json, "lower"), input, expression, 1) &&
           read_arg(r, json_get(json, "upper"), input, expression, 2);
}

static bool read_cast(struct plan_reader *r, const struct json *json, const struct input *input,
                      struct expression *expression)
{
    expression->as.is_try = json_bool(json_get(json, "try_cast"));
    return read_arg(r, json_get(json, "child"), input, expression, 0);
}

static bool read_case(struct plan_reader *r, const struct json *json, const struct input *input,
                      struct expression *expression)
{
    const struct json *checks = json_get(json, "case_checks");
    uint32_t n = (uint32_t)json_count(checks);
    expression->n_args = 2 * n + 1;
    expression->args = arena_zalloc(r->arena, expression->n_args * sizeof(struct expression *));
    for (uint32_t i = 0; i < n; i++) {
        const struct json *check = json_at(checks, i);
        if (!read_arg(r, json_get(check, "when_expr"), input, expression, 2 * i) ||
            !read_arg(r, json_get(check, "then_expr"), input, expression, 2 * i + 1)) {
            return false;
        }
    }
    return read_arg(r, json_get(json, "else_expr"), input, expression, 2 * n);
}

static bool read_operator(struct plan_reader *r, const struct json *json, const struct input *input,
                          struct expression *expression)
{
    static const struct {
        const char *name;
        uint32_t n_args_min;
    } operators[N_OPERATORS] = {
        [OPERATOR_NOT] = {"OPERATOR_NOT", 1},
        [OPERATOR_IS_NULL] = {"OPERATOR_IS_NULL", 1},
        [OPERATOR_IS_NOT_NULL] = {"OPERATOR_IS_NOT_NULL", 1},
        [OPERATOR_IN] = {"COMPARE_IN", 2},
        [OPERATOR_NOT_IN] = {"COMPARE_NOT_IN", 2},
        [OPERATOR_COALESCE] = {"OPERATOR_COALESCE", 1},
        [OPERATOR_NULLIF] = {"OPERATOR_NULLIF", 2},
        [OPERATOR_TRY] = {"OPERATOR_TRY", 1},
    };
    const char *type = plan__text(r, json, "type");
    if (r->err != ERR_OK || !read_children(r, json, input, expression)) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(operators); i++) {
        if (strcmp(operators[i].name, type) == 0) {
            if (expression->n_args < operators[i].n_args_min) {
                (void)plan__malformed(r, "an operator");
            }
            expression->as.operator=(enum operator_kind) i;
            return r->err == ERR_OK;
        }
    }
    (void)plan__unsupported(r, "the operator %s", type);
    return false;
}

static bool read_unnest(struct plan_reader *r, const struct json *json, const struct input *input,
                        struct expression *expression)
{
    return read_arg(r, json_get(json, "child"), input, expression, 0);
}

typedef bool read_fn(struct plan_reader *r, const struct json *json, const struct input *input,
                     struct expression *expression);

static const struct {
    const char *name;
    enum expression_kind kind;
    bool is_boolean; /* it has no type of its own in the JSON */
    uint32_t n_args; /* that are there before it is read */
    read_fn *read;
} classes[] = {
    {"BOUND_REF", EXPRESSION_REF, false, 0, read_ref},
    {"BOUND_COLUMN_REF", EXPRESSION_REF, false, 0, read_column_ref},
    {"BOUND_CONSTANT", EXPRESSION_CONSTANT, true, 0, read_constant}, /* it takes its constant's type */
    {"BOUND_COMPARISON", EXPRESSION_COMPARISON, true, 2, read_comparison},
    {"BOUND_CONJUNCTION", EXPRESSION_AND, true, 0, read_conjunction},
    {"BOUND_BETWEEN", EXPRESSION_BETWEEN, true, 3, read_between},
    {"BOUND_CAST", EXPRESSION_CAST, false, 1, read_cast},
    {"BOUND_CASE", EXPRESSION_CASE, false, 0, read_case},
    {"BOUND_OPERATOR", EXPRESSION_OPERATOR, false, 0, read_operator},
    {"BOUND_FUNCTION", EXPRESSION_FUNCTION, false, 0, plan__function},
    {"BOUND_UNNEST", EXPRESSION_UNNEST, false, 1, read_unnest},
    {"BOUND_AGGREGATE", EXPRESSION_AGGREGATE, false, 0, plan__aggregate},
    {"BOUND_WINDOW", EXPRESSION_WINDOW, false, 0, plan__window},
};

static struct expression *read_class(struct plan_reader *r, const struct json *json, const struct input *input)
{
    const char *name = json_text(json_get(json, "expression_class"), NULL);
    if (name == NULL) {
        return plan__malformed(r, "an expression without a class");
    }
    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        if (strcmp(classes[i].name, name) != 0) {
            continue;
        }
        const struct type *type =
            classes[i].is_boolean ? type_plain(TYPE_BOOLEAN) : plan__type(r, json_get(json, "return_type"));
        if (type == NULL) {
            return NULL;
        }
        struct expression *expression = plan__new_expression(r, classes[i].kind, type, classes[i].n_args);
        return classes[i].read(r, json, input, expression) ? expression : NULL;
    }
    return plan__unsupported(r, "the expression %s", name);
}

struct expression *plan__expression(struct plan_reader *r, const struct json *json, const struct input *input)
{
    if (!plan__enter(r)) {
        return NULL;
    }
    struct expression *expression = read_class(r, json, input);
    plan__leave(r);
    return r->err == ERR_OK ? expression : NULL;
}

struct expression *plan__optional_expression(struct plan_reader *r, const struct json *json, const struct input *input)
{
    return json == NULL ? NULL : plan__expression(r, json, input);
}

struct expression **plan__expressions(struct plan_reader *r, const struct json *array, const struct input *input,
                                      uint32_t *out_n)
{
    size_t n = json_count(array);
    if (n > LIMIT_PLAN_ITEMS) {
        return plan__malformed(r, "a list of expressions");
    }
    struct expression **expressions = arena_zalloc(r->arena, n * sizeof(struct expression *));
    for (size_t i = 0; i < n; i++) {
        expressions[i] = plan__expression(r, json_at(array, i), input);
        if (expressions[i] == NULL) {
            return NULL;
        }
    }
    *out_n = (uint32_t)n;
    return expressions;
}

struct order_key *plan__orders(struct plan_reader *r, const struct json *array, const struct input *input,
                               uint32_t *out_n)
{
    size_t n = json_count(array);
    struct order_key *orders = arena_zalloc(r->arena, n * sizeof(*orders));
    for (size_t i = 0; i < n; i++) {
        const struct json *order = json_at(array, i);
        const char *type = plan__text(r, order, "type");
        const char *nulls = plan__text(r, order, "null_order");
        orders[i].expression = plan__expression(r, json_get(order, "expression"), input);
        if (orders[i].expression == NULL) {
            return NULL;
        }
        bool is_ascending = strcmp(type, "ASCENDING") == 0;
        bool has_nulls_last = strcmp(nulls, "NULLS LAST") == 0;
        if ((!is_ascending && strcmp(type, "DESCENDING") != 0) ||
            (!has_nulls_last && strcmp(nulls, "NULLS FIRST") != 0)) {
            return plan__unsupported(r, "the order %s %s", type, nulls);
        }
        orders[i].is_descending = !is_ascending;
        orders[i].has_nulls_first = !has_nulls_last;
    }
    *out_n = (uint32_t)n;
    return orders;
}
