/* expression.c - walking, copying and comparing expressions. */
#include <string.h>

#include "query/plan.h"

const char *comparison_sql(enum comparison comparison)
{
    static const char *const operators[] = {
        [COMPARE_EQUAL] = "=",
        [COMPARE_NOT_EQUAL] = "<>",
        [COMPARE_LESS] = "<",
        [COMPARE_GREATER] = ">",
        [COMPARE_LESS_OR_EQUAL] = "<=",
        [COMPARE_GREATER_OR_EQUAL] = ">=",
        [COMPARE_DISTINCT] = "IS DISTINCT FROM",
        [COMPARE_NOT_DISTINCT] = "IS NOT DISTINCT FROM",
    };
    return operators[comparison];
}

enum comparison comparison_flip(enum comparison comparison)
{
    static const enum comparison flipped[] = {
        [COMPARE_EQUAL] = COMPARE_EQUAL,
        [COMPARE_NOT_EQUAL] = COMPARE_NOT_EQUAL,
        [COMPARE_LESS] = COMPARE_GREATER,
        [COMPARE_GREATER] = COMPARE_LESS,
        [COMPARE_LESS_OR_EQUAL] = COMPARE_GREATER_OR_EQUAL,
        [COMPARE_GREATER_OR_EQUAL] = COMPARE_LESS_OR_EQUAL,
        [COMPARE_DISTINCT] = COMPARE_DISTINCT,
        [COMPARE_NOT_DISTINCT] = COMPARE_NOT_DISTINCT,
    };
    return flipped[comparison];
}

/* Walking. */

static void visit_all(struct expression **slots, uint32_t n, expression_visit_fn *visit, void *context)
{
    for (uint32_t i = 0; i < n; i++) {
        expression_visit(&slots[i], visit, context);
    }
}

static void visit_orders(struct order_key *orders, uint32_t n, expression_visit_fn *visit, void *context)
{
    for (uint32_t i = 0; i < n; i++) {
        expression_visit(&orders[i].expression, visit, context);
    }
}

static void visit_optional(struct expression **slot, expression_visit_fn *visit, void *context)
{
    if (*slot != NULL) {
        expression_visit(slot, visit, context);
    }
}

static void visit_window(struct window_call *window, expression_visit_fn *visit, void *context)
{
    visit_optional(&window->filter, visit, context);
    visit_orders(window->argument_orders, window->n_argument_orders, visit, context);
    visit_all(window->partitions, window->n_partitions, visit, context);
    visit_orders(window->orders, window->n_orders, visit, context);
    visit_optional(&window->start.offset, visit, context);
    visit_optional(&window->end.offset, visit, context);
}

void expression_visit(struct expression **slot, expression_visit_fn *visit, void *context)
{
    if (!visit(slot, context)) {
        return;
    }
    struct expression *expression = *slot;
    visit_all(expression->args, expression->n_args, visit, context);
    if (expression->kind == EXPRESSION_AGGREGATE) {
        visit_optional(&expression->as.aggregate->filter, visit, context);
        visit_orders(expression->as.aggregate->orders, expression->as.aggregate->n_orders, visit, context);
    } else if (expression->kind == EXPRESSION_WINDOW) {
        visit_window(expression->as.window, visit, context);
    }
}

/* Copying. Whatever can be changed in place is copied: expressions, arrays of them, calls with their orders. */

static struct order_key *copy_orders(struct arena *arena, const struct order_key *orders, uint32_t n)
{
    return arena_copy(arena, orders, n * sizeof(*orders));
}

/* A copy of one expression with its own arrays; what is inside is still shared. */
static struct expression *copy_one(struct arena *arena, const struct expression *from)
{
    struct expression *copy = arena_copy(arena, from, sizeof(*from));
    copy->args = arena_copy(arena, from->args, from->n_args * sizeof(struct expression *));
    if (from->kind == EXPRESSION_AGGREGATE) {
        struct aggregate_call *call = arena_copy(arena, from->as.aggregate, sizeof(*call));
        call->orders = copy_orders(arena, call->orders, call->n_orders);
        copy->as.aggregate = call;
    } else if (from->kind == EXPRESSION_WINDOW) {
        struct window_call *call = arena_copy(arena, from->as.window, sizeof(*call));
        call->orders = copy_orders(arena, call->orders, call->n_orders);
        call->argument_orders = copy_orders(arena, call->argument_orders, call->n_argument_orders);
        call->partitions = arena_copy(arena, call->partitions, call->n_partitions * sizeof(struct expression *));
        copy->as.window = call;
    }
    return copy;
}

static bool copy_slot(struct expression **slot, void *context)
{
    *slot = copy_one(context, *slot);
    return true;
}

struct expression *expression_copy(struct arena *arena, const struct expression *expression)
{
    struct expression *copy = copy_one(arena, expression);
    struct expression *root = copy;
    expression_visit(&root, copy_slot, arena);
    return root;
}

struct remap {
    const uint32_t *map;
    uint32_t n;
};

/* Of a lambda, only the captures belong to the outer input: all arguments but the first. */
static bool remap_slot(struct expression **slot, void *context)
{
    const struct remap *remapping = context;
    struct expression *expression = *slot;
    if (expression->kind == EXPRESSION_REF) {
        ASSERT(expression->as.index < remapping->n);
        ASSERT(remapping->map[expression->as.index] != PLAN_NO_COLUMN);
        expression->as.index = remapping->map[expression->as.index];
        return false;
    }
    if (expression->kind == EXPRESSION_LAMBDA) {
        for (uint32_t i = 1; i < expression->n_args; i++) {
            expression_visit(&expression->args[i], remap_slot, context);
        }
        return false;
    }
    return true;
}

struct expression *expression_remap(struct arena *arena, const struct expression *expression, const uint32_t *map,
                                    uint32_t n)
{
    struct remap remap = {.map = map, .n = n};
    struct expression *copy = expression_copy(arena, expression);
    expression_visit(&copy, remap_slot, &remap);
    return copy;
}

/* Comparing. */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool equal_or_none(const struct expression *a, const struct expression *b)
{
    return a == b || (a != NULL && b != NULL && expression_equal(a, b));
}

static bool all_equal(struct expression *const *a, struct expression *const *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!expression_equal(a[i], b[i])) {
            return false;
        }
    }
    return true;
}

static bool orders_equal(const struct order_key *a, const struct order_key *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (a[i].is_descending != b[i].is_descending || a[i].has_nulls_first != b[i].has_nulls_first ||
            !expression_equal(a[i].expression, b[i].expression)) {
            return false;
        }
    }
    return true;
}

static bool functions_equal(const struct expression *a, const struct expression *b)
{
    if (strcmp(a->as.function.name, b->as.function.name) != 0 ||
        (a->as.function.names == NULL) != (b->as.function.names == NULL)) {
        return false;
    }
    for (uint32_t i = 0; a->as.function.names != NULL && i < a->n_args; i++) {
        if (!same_text(a->as.function.names[i], b->as.function.names[i])) {
            return false;
        }
    }
    return true;
}

static bool aggregates_equal(const struct aggregate_call *a, const struct aggregate_call *b)
{
    return strcmp(a->name, b->name) == 0 && a->is_distinct == b->is_distinct && a->n_orders == b->n_orders &&
           equal_or_none(a->filter, b->filter) && orders_equal(a->orders, b->orders, a->n_orders);
}

static bool bounds_equal(const struct frame_bound *a, const struct frame_bound *b)
{
    return a->kind == b->kind && equal_or_none(a->offset, b->offset);
}

static bool windows_equal(const struct window_call *a, const struct window_call *b)
{
    return strcmp(a->name, b->name) == 0 && a->is_distinct == b->is_distinct &&
           a->has_ignore_nulls == b->has_ignore_nulls && a->is_row_id == b->is_row_id &&
           equal_or_none(a->filter, b->filter) && a->n_argument_orders == b->n_argument_orders &&
           orders_equal(a->argument_orders, b->argument_orders, a->n_argument_orders) &&
           a->n_partitions == b->n_partitions && all_equal(a->partitions, b->partitions, a->n_partitions) &&
           a->n_orders == b->n_orders && orders_equal(a->orders, b->orders, a->n_orders) && a->unit == b->unit &&
           bounds_equal(&a->start, &b->start) && bounds_equal(&a->end, &b->end) && a->exclusion == b->exclusion;
}

bool expression_equal(const struct expression *a, const struct expression *b)
{
    if (a == b) {
        return true;
    }
    if (a->kind != b->kind || a->n_args != b->n_args || !type_equal(a->type, b->type) ||
        !all_equal(a->args, b->args, a->n_args)) {
        return false;
    }
    switch (a->kind) {
    case EXPRESSION_REF:
        return a->as.index == b->as.index;
    case EXPRESSION_CONSTANT:
        return constant_equal(a->as.constant, b->as.constant);
    case EXPRESSION_COMPARISON:
        return a->as.comparison == b->as.comparison;
    case EXPRESSION_BETWEEN:
        return a->as.between.has_lower == b->as.between.has_lower && a->as.between.has_upper == b->as.between.has_upper;
    case EXPRESSION_CAST:
        return a->as.is_try == b->as.is_try;
    case EXPRESSION_OPERATOR:
        return a->as.operator== b->as.operator;
    case EXPRESSION_FUNCTION:
        return functions_equal(a, b);
    case EXPRESSION_LAMBDA:
        return a->as.lambda.n_parameters == b->as.lambda.n_parameters;
    case EXPRESSION_AGGREGATE:
        return aggregates_equal(a->as.aggregate, b->as.aggregate);
    case EXPRESSION_WINDOW:
        return windows_equal(a->as.window, b->as.window);
    case EXPRESSION_TEMPLATE:
        return strcmp(a->as.sql, b->as.sql) == 0;
    case EXPRESSION_AND:
    case EXPRESSION_OR:
    case EXPRESSION_CASE:
    case EXPRESSION_UNNEST:
    case N_EXPRESSION_KINDS:
        break;
    }
    return true;
}

/* Searching. Nothing is changed, so the slots may belong to somebody else. */

struct search {
    enum expression_kind kind;
    bool is_found;
};

static bool look_for_kind(struct expression **slot, void *context)
{
    struct search *search = context;
    search->is_found = search->is_found || (*slot)->kind == search->kind;
    return !search->is_found;
}

bool expression_contains(const struct expression *expression, enum expression_kind kind)
{
    struct search search = {.kind = kind};
    struct expression *root = (struct expression *)(uintptr_t)expression;
    expression_visit(&root, look_for_kind, &search);
    return search.is_found;
}

/* Functions that are not folded by the planner and may differ from call to call. */
static const char *const volatile_functions[] = {
    "random",
    "setseed",
    "uuid",
    "gen_random_uuid",
    "uuidv4",
    "uuidv7",
    "nextval",
    "currval",
    "txid_current",
    "get_current_timestamp",
    "now",
    "transaction_timestamp",
    "current_timestamp",
    "clock_timestamp",
    "write_log",
    "sleep_ms",
};

static bool look_for_volatile(struct expression **slot, void *context)
{
    bool *is_found = context;
    for (size_t i = 0; (*slot)->kind == EXPRESSION_FUNCTION && i < ARRAY_LEN(volatile_functions); i++) {
        *is_found = *is_found || strcmp((*slot)->as.function.name, volatile_functions[i]) == 0;
    }
    return !*is_found;
}

bool expression_is_volatile(const struct expression *expression)
{
    bool is_found = false;
    struct expression *root = (struct expression *)(uintptr_t)expression;
    expression_visit(&root, look_for_volatile, &is_found);
    return is_found;
}

/* Making. */

struct expression *expression_ref(struct arena *arena, uint32_t index, const struct type *type)
{
    struct expression *expression = arena_zalloc(arena, sizeof(*expression));
    expression->kind = EXPRESSION_REF;
    expression->type = type;
    expression->as.index = index;
    return expression;
}

struct expression *expression_template(struct arena *arena, const char *sql, const struct type *type,
                                       struct expression *const *args, uint32_t n_args)
{
    struct expression *expression = arena_zalloc(arena, sizeof(*expression));
    expression->kind = EXPRESSION_TEMPLATE;
    expression->type = type;
    expression->n_args = n_args;
    expression->args = arena_copy(arena, args, n_args * sizeof(struct expression *));
    expression->as.sql = sql;
    return expression;
}
