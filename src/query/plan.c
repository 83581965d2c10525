/* plan.c - walking, copying and making nodes. */
#include "query/plan.h"

#include <string.h>

const char *node_kind_name(enum node_kind kind)
{
    static const char *const names[] = {
        [NODE_SCAN] = "scan",
        [NODE_CALL] = "table function",
        [NODE_INPUT] = "input",
        [NODE_VALUES] = "values",
        [NODE_DUMMY] = "one row",
        [NODE_EMPTY] = "no rows",
        [NODE_FILTER] = "filter",
        [NODE_PROJECTION] = "projection",
        [NODE_AGGREGATE] = "aggregate",
        [NODE_WINDOW] = "window",
        [NODE_UNNEST] = "unnest",
        [NODE_ORDER] = "order",
        [NODE_TOP_N] = "top n",
        [NODE_LIMIT] = "limit",
        [NODE_DISTINCT] = "distinct",
        [NODE_SAMPLE] = "sample",
        [NODE_UNION] = "union",
        [NODE_EXCEPT] = "except",
        [NODE_INTERSECT] = "intersect",
        [NODE_JOIN] = "join",
        [NODE_CROSS] = "cross product",
        [NODE_POSITIONAL] = "positional join",
        [NODE_DELIM_GET] = "delim get",
        [NODE_CTE] = "cte",
        [NODE_RECURSIVE_CTE] = "recursive cte",
        [NODE_CTE_REF] = "cte reference",
        [NODE_CUSTOM] = "operator",
    };
    return names[kind];
}

void plan_visit(struct plan_node *node, plan_visit_fn *visit, void *context)
{
    if (!visit(node, context)) {
        return;
    }
    for (uint32_t i = 0; i < node->n_children; i++) {
        plan_visit(node->children[i], visit, context);
    }
}

/* A node's own expressions. */

struct visitor {
    expression_visit_fn *visit;
    void *context;
};

static void visit_array(struct expression **slots, uint32_t n, const struct visitor *visitor)
{
    for (uint32_t i = 0; i < n; i++) {
        expression_visit(&slots[i], visitor->visit, visitor->context);
    }
}

static void visit_orders(struct order_key *orders, uint32_t n, const struct visitor *visitor)
{
    for (uint32_t i = 0; i < n; i++) {
        expression_visit(&orders[i].expression, visitor->visit, visitor->context);
    }
}

static void visit_scan(struct plan_node *node, const struct visitor *visitor)
{
    visit_array(node->as.scan->filters, node->as.scan->n_filters, visitor);
    visit_array(node->as.scan->virtual_filters, node->as.scan->n_virtual_filters, visitor);
}

static void visit_custom(struct plan_node *node, const struct visitor *visitor)
{
    visit_array(node->as.custom.scan->filters, node->as.custom.scan->n_filters, visitor);
}

static void visit_values(struct plan_node *node, const struct visitor *visitor)
{
    for (uint32_t i = 0; i < node->as.values.n_rows; i++) {
        visit_array(node->as.values.rows[i], node->n_columns, visitor);
    }
}

static void visit_filter(struct plan_node *node, const struct visitor *visitor)
{
    visit_array(node->as.filter.expressions, node->as.filter.n_expressions, visitor);
}

static void visit_projection(struct plan_node *node, const struct visitor *visitor)
{
    visit_array(node->as.projection.expressions, node->as.projection.n_expressions, visitor);
}

static void visit_aggregate(struct plan_node *node, const struct visitor *visitor)
{
    visit_array(node->as.aggregate->groups, node->as.aggregate->n_groups, visitor);
    visit_array(node->as.aggregate->aggregates, node->as.aggregate->n_aggregates, visitor);
}

static void visit_order(struct plan_node *node, const struct visitor *visitor)
{
    visit_orders(node->as.order->keys, node->as.order->n_keys, visitor);
}

static void visit_distinct(struct plan_node *node, const struct visitor *visitor)
{
    visit_array(node->as.distinct.targets, node->as.distinct.n_targets, visitor);
    visit_orders(node->as.distinct.orders, node->as.distinct.n_orders, visitor);
}

static void visit_join(struct plan_node *node, const struct visitor *visitor)
{
    struct join *join = node->as.join;
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        expression_visit(&join->conditions[i].left, visitor->visit, visitor->context);
        expression_visit(&join->conditions[i].right, visitor->visit, visitor->context);
    }
    if (join->residual != NULL) {
        expression_visit(&join->residual, visitor->visit, visitor->context);
    }
    visit_array(join->keys, join->n_keys, visitor);
}

void plan_node_visit_expressions(struct plan_node *node, expression_visit_fn *visit, void *context)
{
    static void (*const visitors[N_NODE_KINDS])(struct plan_node *, const struct visitor *) = {
        [NODE_SCAN] = visit_scan,           [NODE_VALUES] = visit_values,
        [NODE_FILTER] = visit_filter,       [NODE_PROJECTION] = visit_projection,
        [NODE_WINDOW] = visit_projection,   [NODE_UNNEST] = visit_projection,
        [NODE_AGGREGATE] = visit_aggregate, [NODE_ORDER] = visit_order,
        [NODE_TOP_N] = visit_order,         [NODE_DISTINCT] = visit_distinct,
        [NODE_JOIN] = visit_join,           [NODE_CUSTOM] = visit_custom,
    };
    if (visitors[node->kind] != NULL) {
        visitors[node->kind](node, &(struct visitor){.visit = visit, .context = context});
    }
}

/* Copying: the struct behind `as`, and the arrays in which somebody may want to replace something. */

#define COPY_ARRAY(arena, array, n) ((array) = arena_copy((arena), (array), (n) * sizeof(*(array))))

static void copy_scan(struct arena *arena, struct plan_node *node)
{
    struct scan *scan = node->as.scan = arena_copy(arena, node->as.scan, sizeof(*scan));
    COPY_ARRAY(arena, scan->filters, scan->n_filters);
    COPY_ARRAY(arena, scan->virtual_filters, scan->n_virtual_filters);
}

static void copy_custom(struct arena *arena, struct plan_node *node)
{
    struct scan *scan = node->as.custom.scan = arena_copy(arena, node->as.custom.scan, sizeof(*scan));
    COPY_ARRAY(arena, scan->filters, scan->n_filters);
}

static void copy_call(struct arena *arena, struct plan_node *node)
{
    node->as.call = arena_copy(arena, node->as.call, sizeof(*node->as.call));
}

static void copy_values(struct arena *arena, struct plan_node *node)
{
    COPY_ARRAY(arena, node->as.values.rows, node->as.values.n_rows);
    for (uint32_t i = 0; i < node->as.values.n_rows; i++) {
        COPY_ARRAY(arena, node->as.values.rows[i], node->n_columns);
    }
}

static void copy_filter(struct arena *arena, struct plan_node *node)
{
    COPY_ARRAY(arena, node->as.filter.expressions, node->as.filter.n_expressions);
    COPY_ARRAY(arena, node->as.filter.map, node->n_columns);
}

static void copy_projection(struct arena *arena, struct plan_node *node)
{
    COPY_ARRAY(arena, node->as.projection.expressions, node->as.projection.n_expressions);
}

static void copy_aggregate(struct arena *arena, struct plan_node *node)
{
    struct aggregate *aggregate = node->as.aggregate = arena_copy(arena, node->as.aggregate, sizeof(*aggregate));
    COPY_ARRAY(arena, aggregate->groups, aggregate->n_groups);
    COPY_ARRAY(arena, aggregate->aggregates, aggregate->n_aggregates);
    COPY_ARRAY(arena, aggregate->sets, aggregate->n_sets);
    COPY_ARRAY(arena, aggregate->groupings, aggregate->n_groupings);
}

static void copy_order(struct arena *arena, struct plan_node *node)
{
    struct order *order = node->as.order = arena_copy(arena, node->as.order, sizeof(*order));
    COPY_ARRAY(arena, order->keys, order->n_keys);
    if (order->map != NULL) {
        COPY_ARRAY(arena, order->map, node->n_columns);
    }
}

static void copy_limit(struct arena *arena, struct plan_node *node)
{
    node->as.limit = arena_copy(arena, node->as.limit, sizeof(*node->as.limit));
}

static void copy_distinct(struct arena *arena, struct plan_node *node)
{
    COPY_ARRAY(arena, node->as.distinct.targets, node->as.distinct.n_targets);
    COPY_ARRAY(arena, node->as.distinct.orders, node->as.distinct.n_orders);
}

static void copy_sample(struct arena *arena, struct plan_node *node)
{
    node->as.sample = arena_copy(arena, node->as.sample, sizeof(*node->as.sample));
}

static void copy_join(struct arena *arena, struct plan_node *node)
{
    struct join *join = node->as.join = arena_copy(arena, node->as.join, sizeof(*join));
    COPY_ARRAY(arena, join->conditions, join->n_conditions);
    COPY_ARRAY(arena, join->left_map, join->n_left);
    COPY_ARRAY(arena, join->right_map, join->n_right);
    COPY_ARRAY(arena, join->keys, join->n_keys);
}

struct plan_node *plan_node_copy(struct arena *arena, const struct plan_node *node)
{
    static void (*const copiers[N_NODE_KINDS])(struct arena *, struct plan_node *) = {
        [NODE_SCAN] = copy_scan,
        [NODE_CALL] = copy_call,
        [NODE_VALUES] = copy_values,
        [NODE_FILTER] = copy_filter,
        [NODE_PROJECTION] = copy_projection,
        [NODE_WINDOW] = copy_projection,
        [NODE_UNNEST] = copy_projection,
        [NODE_AGGREGATE] = copy_aggregate,
        [NODE_ORDER] = copy_order,
        [NODE_TOP_N] = copy_order,
        [NODE_LIMIT] = copy_limit,
        [NODE_DISTINCT] = copy_distinct,
        [NODE_SAMPLE] = copy_sample,
        [NODE_JOIN] = copy_join,
        [NODE_CUSTOM] = copy_custom,
    };
    struct plan_node *copy = arena_copy(arena, node, sizeof(*node));
    COPY_ARRAY(arena, copy->children, copy->n_children);
    COPY_ARRAY(arena, copy->columns, copy->n_columns);
    if (copiers[node->kind] != NULL) {
        copiers[node->kind](arena, copy);
    }
    return copy;
}

struct plan_node *plan_node_with_children(struct arena *arena, const struct plan_node *node,
                                          struct plan_node *const *children, uint32_t n)
{
    struct plan_node *copy = plan_node_copy(arena, node);
    copy->n_children = n;
    copy->children = arena_copy(arena, children, n * sizeof(struct plan_node *));
    return copy;
}

struct plan_node *plan_node_with_child(struct arena *arena, const struct plan_node *node, struct plan_node *child)
{
    ASSERT(node->n_children == 1);
    return plan_node_with_children(arena, node, &child, 1);
}

/* Making. */

static struct plan_node *new_node(struct arena *arena, enum node_kind kind, struct plan_node *child, uint32_t n_columns)
{
    struct plan_node *node = arena_zalloc(arena, sizeof(*node));
    node->kind = kind;
    node->n_children = child != NULL ? 1 : 0;
    node->children = arena_copy(arena, &child, node->n_children * sizeof(child));
    node->n_columns = n_columns;
    node->columns = arena_zalloc(arena, n_columns * sizeof(struct type *));
    node->rows_estimated = child != NULL ? child->rows_estimated : -1;
    return node;
}

struct plan_node *plan_input(struct arena *arena, const char *name, const struct type *const *columns,
                             uint32_t n_columns)
{
    struct plan_node *node = new_node(arena, NODE_INPUT, NULL, n_columns);
    for (uint32_t i = 0; i < n_columns; i++) {
        node->columns[i] = columns[i];
    }
    node->as.input.name = arena_strdup(arena, name);
    return node;
}

struct plan_node *plan_project(struct arena *arena, struct plan_node *child, struct expression *const *expressions,
                               uint32_t n)
{
    struct plan_node *node = new_node(arena, NODE_PROJECTION, child, n);
    node->as.projection.n_expressions = n;
    node->as.projection.expressions = arena_copy(arena, expressions, n * sizeof(struct expression *));
    for (uint32_t i = 0; i < n; i++) {
        node->columns[i] = expressions[i]->type;
    }
    return node;
}

struct plan_node *plan_filter(struct arena *arena, struct plan_node *child, struct expression *condition)
{
    struct plan_node *node = new_node(arena, NODE_FILTER, child, child->n_columns);
    node->as.filter.n_expressions = 1;
    node->as.filter.expressions = arena_copy(arena, &condition, sizeof(condition));
    node->as.filter.map = arena_alloc(arena, child->n_columns * sizeof(uint32_t));
    for (uint32_t i = 0; i < child->n_columns; i++) {
        node->columns[i] = child->columns[i];
        node->as.filter.map[i] = i;
    }
    return node;
}

struct plan_node *plan_extend(struct arena *arena, struct plan_node *child, struct expression *const *extra, uint32_t n)
{
    uint32_t n_all = child->n_columns + n;
    struct expression **all = arena_alloc(arena, n_all * sizeof(struct expression *));
    for (uint32_t i = 0; i < n_all; i++) {
        all[i] = i < child->n_columns ? expression_ref(arena, i, child->columns[i]) : extra[i - child->n_columns];
    }
    return plan_project(arena, child, all, n_all);
}

static bool look_for_volatile(struct expression **slot, void *context)
{
    bool *is_found = context;
    *is_found = *is_found || expression_is_volatile(*slot);
    return false;
}

bool plan_node_is_volatile(struct plan_node *node)
{
    bool is_found = false;
    plan_node_visit_expressions(node, look_for_volatile, &is_found);
    return is_found;
}

const char *scan_next_folder(const char **path, size_t *out_n)
{
    const char *slash = NULL;
    while ((slash = strpbrk(*path, "/\\")) != NULL) {
        const char *part = *path;
        const char *equals = memchr(part, '=', (size_t)(slash - part));
        *path = slash + 1;
        bool is_clear = equals != NULL && equals > part;
        for (const char *p = part; is_clear && p < slash; p++) { /* these, and a second =, are of other names */
            is_clear = *p != '?' && *p != '\n' && (*p != '=' || p == equals);
        }
        if (is_clear) {
            *out_n = (size_t)(equals - part);
            return part;
        }
    }
    return NULL;
}
