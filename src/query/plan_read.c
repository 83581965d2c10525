/*
 * plan_read.c - nodes out of a plan's JSON: one table of kinds.
 *
 * A node's children are read before the node itself, so that its references can be checked against their columns. Only
 * a delim join comes first, to be known by the DELIM_GETs below it.
 */
#include "query/plan_read.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "query/plan_read_internal.h"

/* What all readers use. */

void *plan__unsupported(struct plan_reader *r, const char *fmt, ...)
{
    if (r->err == ERR_OK) {
        char text[512];
        va_list values;
        va_start(values, fmt);
        (void)vsnprintf(text, sizeof(text), fmt, values);
        va_end(values);
        r->err = error_set(r->e, ERR_PRECONDITION, "%s", text);
    }
    return NULL;
}

void *plan__malformed(struct plan_reader *r, const char *what)
{
    if (r->err == ERR_OK) {
        r->err = error_set(r->e, ERR_INVALID, "the plan is not as expected: %s", what);
    }
    return NULL;
}

bool plan__enter(struct plan_reader *r)
{
    if (r->depth == LIMIT_PLAN_DEPTH) {
        (void)plan__unsupported(r, "a plan nested deeper than %d", LIMIT_PLAN_DEPTH);
        return false;
    }
    if (r->n_items == LIMIT_PLAN_ITEMS) {
        (void)plan__unsupported(r, "a plan with more than %d parts", LIMIT_PLAN_ITEMS);
        return false;
    }
    r->depth++;
    r->n_items++;
    return true;
}

void plan__leave(struct plan_reader *r)
{
    r->depth--;
}

const char *plan__text(struct plan_reader *r, const struct json *object, const char *key)
{
    const char *text = json_text(json_get(object, key), NULL);
    return text != NULL ? arena_strdup(r->arena, text) : plan__malformed(r, key);
}

uint64_t plan__u64(struct plan_reader *r, const struct json *object, const char *key)
{
    uint64_t value = 0;
    if (!json_uint(json_get(object, key), &value)) {
        (void)plan__malformed(r, key);
    }
    return value;
}

uint32_t plan__u32(struct plan_reader *r, const struct json *object, const char *key)
{
    uint64_t value = plan__u64(r, object, key);
    if (value >= UINT32_MAX) {
        (void)plan__malformed(r, key);
        return 0;
    }
    return (uint32_t)value;
}

uint32_t *plan__positions(struct plan_reader *r, const struct json *array, uint32_t limit, uint32_t *out_n)
{
    size_t n = json_count(array);
    if (n > LIMIT_PLAN_ITEMS) {
        return plan__malformed(r, "a list of columns");
    }
    uint32_t *positions = arena_alloc(r->arena, n * sizeof(*positions));
    for (size_t i = 0; i < n; i++) {
        uint64_t position = 0;
        if (!json_uint(json_at(array, i), &position) || position >= limit) {
            return plan__malformed(r, "the position of a column");
        }
        positions[i] = (uint32_t)position;
    }
    *out_n = (uint32_t)n;
    return positions;
}

uint32_t *plan__map(struct plan_reader *r, const struct json *array, uint32_t n_columns, uint32_t *out_n)
{
    if (json_count(array) > 0) {
        return plan__positions(r, array, n_columns, out_n);
    }
    uint32_t *map = arena_alloc(r->arena, n_columns * sizeof(*map));
    for (uint32_t i = 0; i < n_columns; i++) {
        map[i] = i;
    }
    *out_n = n_columns;
    return map;
}

void plan__set_columns(struct plan_reader *r, struct relation *self, uint32_t n)
{
    self->node->n_columns = n;
    self->node->columns = arena_zalloc(r->arena, n * sizeof(struct type *));
    self->bindings = arena_zalloc(r->arena, n * sizeof(struct binding));
}

struct input plan__input(const struct relation *relation)
{
    return (struct input){.n = relation->node->n_columns, .relation = relation};
}

/* Output columns that are some of the child's. */
static void take_columns(struct plan_reader *r, struct relation *self, const struct relation *child,
                         const uint32_t *map, uint32_t n)
{
    plan__set_columns(r, self, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = map != NULL ? map[i] : i;
        self->node->columns[i] = child->node->columns[from];
        self->bindings[i] = child->bindings[from];
    }
}

/* Output columns with types of their own, named as columns 0, 1, … of table `key`. */
static bool make_columns(struct plan_reader *r, struct relation *self, const struct type *const *types, uint32_t n,
                         uint64_t table)
{
    if (r->err != ERR_OK) {
        return false;
    }
    plan__set_columns(r, self, n);
    for (uint32_t i = 0; i < n; i++) {
        self->node->columns[i] = types[i];
        self->bindings[i] = (struct binding){.table = table, .column = i};
    }
    return true;
}

/* The kinds. */

typedef bool read_fn(struct plan_reader *r, const struct json *json, const struct relation *children,
                     struct relation *self);

static bool read_filter(struct plan_reader *r, const struct json *json, const struct relation *children,
                        struct relation *self)
{
    struct filter *filter = &self->node->as.filter;
    struct input input = plan__input(&children[0]);
    uint32_t n = 0;
    filter->map = plan__map(r, json_get(json, "projection_map"), input.n, &n);
    filter->expressions = plan__expressions(r, json_get(json, "expressions"), &input, &filter->n_expressions);
    if (r->err != ERR_OK) {
        return false;
    }
    take_columns(r, self, &children[0], filter->map, n);
    return true;
}

static bool read_projection(struct plan_reader *r, const struct json *json, const struct relation *children,
                            struct relation *self)
{
    struct projection *projection = &self->node->as.projection;
    struct input input = plan__input(&children[0]);
    uint64_t table = plan__u64(r, json, "table_index");
    projection->expressions = plan__expressions(r, json_get(json, "expressions"), &input, &projection->n_expressions);
    if (r->err != ERR_OK) {
        return false;
    }
    plan__set_columns(r, self, projection->n_expressions);
    for (uint32_t i = 0; i < projection->n_expressions; i++) {
        self->node->columns[i] = projection->expressions[i]->type;
        self->bindings[i] = (struct binding){.table = table, .column = i};
    }
    return true;
}

/* Nodes whose expressions are calls of their own kind: nobody asks each of them again what it is. */
static void check_kinds(struct plan_reader *r, struct expression *const *expressions, uint32_t n,
                        enum expression_kind kind, const char *what)
{
    for (uint32_t i = 0; i < n && r->err == ERR_OK; i++) {
        if (expressions[i]->kind != kind) {
            (void)plan__malformed(r, what);
        }
    }
}

/* WINDOW and UNNEST: the child's columns, then the expressions. */
static bool read_extension(struct plan_reader *r, const struct json *json, const struct relation *children,
                           struct relation *self)
{
    struct projection *projection = &self->node->as.projection;
    struct input input = plan__input(&children[0]);
    bool is_window = self->node->kind == NODE_WINDOW;
    uint64_t table = plan__u64(r, json, is_window ? "window_index" : "unnest_index");
    projection->expressions = plan__expressions(r, json_get(json, "expressions"), &input, &projection->n_expressions);
    if (r->err == ERR_OK && projection->n_expressions == 0) {
        (void)plan__malformed(r, "a node without expressions");
    }
    check_kinds(r, projection->expressions, projection->n_expressions,
                is_window ? EXPRESSION_WINDOW : EXPRESSION_UNNEST, "the expressions of a window or of UNNEST");
    if (r->err != ERR_OK) {
        return false;
    }
    uint32_t n = input.n;
    plan__set_columns(r, self, n + projection->n_expressions);
    for (uint32_t i = 0; i < n; i++) {
        self->node->columns[i] = children[0].node->columns[i];
        self->bindings[i] = children[0].bindings[i];
    }
    for (uint32_t i = 0; i < projection->n_expressions; i++) {
        self->node->columns[n + i] = projection->expressions[i]->type;
        self->bindings[n + i] = (struct binding){.table = table, .column = i};
    }
    return true;
}

static struct group_set *read_sets(struct plan_reader *r, const struct json *array, uint32_t n_groups, uint32_t *out_n)
{
    size_t n = json_count(array);
    struct group_set *sets = arena_zalloc(r->arena, n * sizeof(*sets));
    for (size_t i = 0; i < n; i++) {
        sets[i].groups = plan__positions(r, json_at(array, i), n_groups, &sets[i].n);
    }
    *out_n = (uint32_t)n;
    return sets;
}

static bool read_aggregate(struct plan_reader *r, const struct json *json, const struct relation *children,
                           struct relation *self)
{
    struct aggregate *aggregate = arena_zalloc(r->arena, sizeof(*aggregate));
    struct input input = plan__input(&children[0]);
    aggregate->groups = plan__expressions(r, json_get(json, "groups"), &input, &aggregate->n_groups);
    aggregate->aggregates = plan__expressions(r, json_get(json, "expressions"), &input, &aggregate->n_aggregates);
    check_kinds(r, aggregate->aggregates, aggregate->n_aggregates, EXPRESSION_AGGREGATE, "the aggregates of a node");
    aggregate->sets = read_sets(r, json_get(json, "grouping_sets"), aggregate->n_groups, &aggregate->n_sets);
    aggregate->groupings =
        read_sets(r, json_get(json, "grouping_functions"), aggregate->n_groups, &aggregate->n_groupings);
    uint64_t tables[] = {plan__u64(r, json, "group_index"), plan__u64(r, json, "aggregate_index"),
                         plan__u64(r, json, "groupings_index")};
    if (r->err != ERR_OK) {
        return false;
    }
    uint32_t n_groups = aggregate->n_groups;
    uint32_t n_values = n_groups + aggregate->n_aggregates;
    plan__set_columns(r, self, n_values + aggregate->n_groupings);
    for (uint32_t i = 0; i < self->node->n_columns; i++) {
        if (i < n_groups) {
            self->node->columns[i] = aggregate->groups[i]->type;
            self->bindings[i] = (struct binding){.table = tables[0], .column = i};
        } else if (i < n_values) {
            self->node->columns[i] = aggregate->aggregates[i - n_groups]->type;
            self->bindings[i] = (struct binding){.table = tables[1], .column = i - n_groups};
        } else {
            self->node->columns[i] = type_plain(TYPE_BIGINT);
            self->bindings[i] = (struct binding){.table = tables[2], .column = i - n_values};
        }
    }
    self->node->as.aggregate = aggregate;
    return true;
}

static bool read_order(struct plan_reader *r, const struct json *json, const struct relation *children,
                       struct relation *self)
{
    struct order *order = arena_zalloc(r->arena, sizeof(*order));
    struct input input = plan__input(&children[0]);
    uint32_t n = 0;
    order->map = plan__map(r, json_get(json, "projections"), input.n, &n);
    order->keys = plan__orders(r, json_get(json, "orders"), &input, &order->n_keys);
    if (r->err != ERR_OK) {
        return false;
    }
    take_columns(r, self, &children[0], order->map, n);
    self->node->as.order = order;
    return true;
}

static bool read_top_n(struct plan_reader *r, const struct json *json, const struct relation *children,
                       struct relation *self)
{
    struct order *order = arena_zalloc(r->arena, sizeof(*order));
    struct input input = plan__input(&children[0]);
    order->keys = plan__orders(r, json_get(json, "orders"), &input, &order->n_keys);
    order->limit.count = (struct limit_value){.kind = LIMIT_BY_ROWS, .rows = plan__u64(r, json, "limit")};
    order->limit.offset = (struct limit_value){.kind = LIMIT_BY_ROWS, .rows = plan__u64(r, json, "offset")};
    if (r->err != ERR_OK) {
        return false;
    }
    take_columns(r, self, &children[0], NULL, input.n);
    self->node->as.order = order;
    return true;
}

static bool read_limit_value(struct plan_reader *r, const struct json *json, struct limit_value *out)
{
    const char *type = plan__text(r, json, "type");
    if (type == NULL) {
        return false;
    }
    if (strcmp(type, "CONSTANT_VALUE") == 0) {
        *out = (struct limit_value){.kind = LIMIT_BY_ROWS, .rows = plan__u64(r, json, "constant_integer")};
    } else if (strcmp(type, "CONSTANT_PERCENTAGE") == 0) {
        *out = (struct limit_value){.kind = LIMIT_BY_PERCENT,
                                    .percent = json_number(json_get(json, "constant_percentage"))};
    } else if (strcmp(type, "UNSET") != 0) {
        (void)plan__unsupported(r, "a LIMIT that is not constant");
    }
    return r->err == ERR_OK;
}

static bool read_limit(struct plan_reader *r, const struct json *json, const struct relation *children,
                       struct relation *self)
{
    struct limit *limit = arena_zalloc(r->arena, sizeof(*limit));
    if (!read_limit_value(r, json_get(json, "limit_val"), &limit->count) ||
        !read_limit_value(r, json_get(json, "offset_val"), &limit->offset)) {
        return false;
    }
    take_columns(r, self, &children[0], NULL, children[0].node->n_columns);
    self->node->as.limit = limit;
    return true;
}

static bool read_distinct(struct plan_reader *r, const struct json *json, const struct relation *children,
                          struct relation *self)
{
    struct distinct *distinct = &self->node->as.distinct;
    struct input input = plan__input(&children[0]);
    const char *type = plan__text(r, json, "distinct_type");
    distinct->targets = plan__expressions(r, json_get(json, "distinct_targets"), &input, &distinct->n_targets);
    distinct->orders = plan__orders(r, json_get(json_get(json, "order_by"), "orders"), &input, &distinct->n_orders);
    if (r->err != ERR_OK) {
        return false;
    }
    distinct->is_on = strcmp(type, "DISTINCT") != 0 || distinct->n_targets != input.n;
    for (uint32_t i = 0; i < distinct->n_targets; i++) {
        const struct expression *target = distinct->targets[i];
        distinct->is_on = distinct->is_on || target->kind != EXPRESSION_REF || target->as.index != i;
    }
    take_columns(r, self, &children[0], NULL, input.n);
    return true;
}

static bool read_sample_size(struct plan_reader *r, const struct json *json, struct sample *sample)
{
    const struct json *value = json_get(json_get(json, "sample_size"), "value");
    sample->is_percent = json_bool(json_get(json, "is_percentage"));
    if (sample->is_percent) {
        sample->percent = json_number(value);
        return true;
    }
    if (!json_uint(value, &sample->rows)) {
        (void)plan__unsupported(r, "a sample of this size");
        return false;
    }
    return true;
}

static bool read_sample(struct plan_reader *r, const struct json *json, const struct relation *children,
                        struct relation *self)
{
    static const char *const methods[] = {
        [SAMPLE_SYSTEM] = "System",
        [SAMPLE_BERNOULLI] = "Bernoulli",
        [SAMPLE_RESERVOIR] = "Reservoir",
    };
    struct sample *sample = arena_zalloc(r->arena, sizeof(*sample));
    const struct json *options = json_get(json, "sample_options");
    const char *method = plan__text(r, options, "method");
    if (method == NULL || !read_sample_size(r, options, sample)) {
        return false;
    }
    sample->seed = -1;
    if (!json_int(json_get(options, "seed"), &sample->seed)) {
        sample->seed = -1; /* too large for a seed that was asked for */
    }
    take_columns(r, self, &children[0], NULL, children[0].node->n_columns);
    self->node->as.sample = sample;
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (strcmp(methods[i], method) == 0) {
            sample->method = (enum sample_method)i;
            return true;
        }
    }
    (void)plan__unsupported(r, "the sample method %s", method);
    return false;
}

static bool read_set(struct plan_reader *r, const struct json *json, const struct relation *children,
                     struct relation *self)
{
    self->node->as.is_all = json_bool(json_get(json, "setop_all"));
    for (uint32_t i = 1; i < self->node->n_children; i++) {
        if (children[i].node->n_columns != children[0].node->n_columns) {
            (void)plan__malformed(r, "sides of a set operation with different columns");
            return false;
        }
    }
    return make_columns(r, self, children[0].node->columns, children[0].node->n_columns,
                        plan__u64(r, json, "table_index"));
}

/* CROSS_PRODUCT and POSITIONAL_JOIN: the columns of both. */
static bool read_pair(struct plan_reader *r, const struct json *json, const struct relation *children,
                      struct relation *self)
{
    UNUSED(json);
    uint32_t n = children[0].node->n_columns;
    plan__set_columns(r, self, n + children[1].node->n_columns);
    for (uint32_t i = 0; i < self->node->n_columns; i++) {
        const struct relation *side = &children[i < n ? 0 : 1];
        self->node->columns[i] = side->node->columns[i < n ? i : i - n];
        self->bindings[i] = side->bindings[i < n ? i : i - n];
    }
    return true;
}

static bool read_delim_get(struct plan_reader *r, const struct json *json, const struct relation *children,
                           struct relation *self)
{
    UNUSED(children);
    if (r->n_open_delims == 0) {
        (void)plan__unsupported(r, "the keys of a delim join outside of one");
        return false;
    }
    self->node->as.delim_get.delim_id = r->open_delims[r->n_open_delims - 1];
    uint32_t n = 0;
    const struct type **types = plan__types(r, json_get(json, "chunk_types"), &n);
    return make_columns(r, self, types, n, plan__u64(r, json, "table_index"));
}

static bool read_cte(struct plan_reader *r, const struct json *json, const struct relation *children,
                     struct relation *self)
{
    self->node->as.cte.id = plan__u32(r, json, "table_index");
    take_columns(r, self, &children[1], NULL, children[1].node->n_columns);
    return r->err == ERR_OK;
}

static bool read_recursive_cte(struct plan_reader *r, const struct json *json, const struct relation *children,
                               struct relation *self)
{
    if (json_bool(json_get(json, "ref_recurring")) || json_count(json_get(json, "key_targets")) > 0) {
        (void)plan__unsupported(r, "a recursive CTE with USING KEY");
        return false;
    }
    self->node->as.recursive.id = plan__u32(r, json, "table_index");
    self->node->as.recursive.is_union_all = json_bool(json_get(json, "union_all"));
    return make_columns(r, self, children[0].node->columns, children[0].node->n_columns, self->node->as.recursive.id);
}

static bool read_cte_ref(struct plan_reader *r, const struct json *json, const struct relation *children,
                         struct relation *self)
{
    UNUSED(children);
    uint32_t n = 0;
    const struct type **types = plan__types(r, json_get(json, "chunk_types"), &n);
    self->node->as.cte_ref.id = plan__u32(r, json, "cte_index");
    return make_columns(r, self, types, n, plan__u64(r, json, "table_index"));
}

static bool read_dummy(struct plan_reader *r, const struct json *json, const struct relation *children,
                       struct relation *self)
{
    UNUSED(children);
    const struct type *type = type_plain(TYPE_INTEGER);
    return make_columns(r, self, &type, 1, plan__u64(r, json, "table_index"));
}

static bool read_empty(struct plan_reader *r, const struct json *json, const struct relation *children,
                       struct relation *self)
{
    UNUSED(children);
    const struct json *bindings = json_get(json, "bindings");
    uint32_t n = 0;
    const struct type **types = plan__types(r, json_get(json, "return_types"), &n);
    if (!make_columns(r, self, types, n, 0)) {
        return false;
    }
    for (uint32_t i = 0; i < n && i < json_count(bindings); i++) {
        self->bindings[i] = (struct binding){.table = plan__u64(r, json_at(bindings, i), "table_index"),
                                             .column = plan__u64(r, json_at(bindings, i), "column_index")};
    }
    return r->err == ERR_OK;
}

/* VALUES as it was written: rows of expressions, over one row without meaning. */
static bool read_expression_get(struct plan_reader *r, const struct json *json, const struct relation *children,
                                struct relation *self)
{
    const struct json *rows = json_get(json, "expressions");
    struct input input = {.n = 0};
    uint32_t n = 0;
    const struct type **types = plan__types(r, json_get(json, "expr_types"), &n);
    if (!make_columns(r, self, types, n, plan__u64(r, json, "table_index"))) {
        return false;
    }
    if (children[0].node->kind != NODE_DUMMY) {
        (void)plan__unsupported(r, "VALUES that depend on rows");
        return false;
    }
    struct values *values = &self->node->as.values;
    values->n_rows = (uint32_t)json_count(rows);
    values->rows = arena_zalloc(r->arena, values->n_rows * sizeof(struct expression **));
    for (uint32_t i = 0; i < values->n_rows; i++) {
        uint32_t n_values = 0;
        values->rows[i] = plan__expressions(r, json_at(rows, i), &input, &n_values);
        if (values->rows[i] == NULL || n_values != n) {
            (void)plan__malformed(r, "a row of VALUES");
            return false;
        }
    }
    self->node->n_children = 0;
    return true;
}

/* Rows that DuckDB has computed already: column by column. */
static bool read_chunk_get(struct plan_reader *r, const struct json *json, const struct relation *children,
                           struct relation *self)
{
    UNUSED(children);
    const struct json *columns = json_get(json_get(json, "collection"), "values");
    uint32_t n = 0;
    const struct type **types = plan__types(r, json_get(json, "chunk_types"), &n);
    if (!make_columns(r, self, types, n, plan__u64(r, json, "table_index"))) {
        return false;
    }
    struct values *values = &self->node->as.values;
    values->n_rows = n > 0 ? (uint32_t)json_count(json_at(columns, 0)) : 0;
    values->rows = arena_zalloc(r->arena, values->n_rows * sizeof(struct expression **));
    for (uint32_t i = 0; i < values->n_rows; i++) {
        values->rows[i] = arena_zalloc(r->arena, n * sizeof(struct expression *));
        for (uint32_t k = 0; k < n; k++) {
            const struct json *value = json_at(json_at(columns, k), i);
            values->rows[i][k] = plan__constant_expression(r, plan__constant(r, value));
            if (values->rows[i][k] == NULL) {
                return false;
            }
        }
    }
    return true;
}

static const struct node_reader {
    const char *name;
    enum node_kind kind;
    uint32_t n_children_min;
    uint32_t n_children_max;
    read_fn *read;
} node_readers[] = {
    {"LOGICAL_GET", NODE_SCAN, 0, 1, plan__scan},
    {"LOGICAL_EXPRESSION_GET", NODE_VALUES, 1, 1, read_expression_get},
    {"LOGICAL_CHUNK_GET", NODE_VALUES, 0, 0, read_chunk_get},
    {"LOGICAL_DUMMY_SCAN", NODE_DUMMY, 0, 0, read_dummy},
    {"LOGICAL_EMPTY_RESULT", NODE_EMPTY, 0, 0, read_empty},
    {"LOGICAL_FILTER", NODE_FILTER, 1, 1, read_filter},
    {"LOGICAL_PROJECTION", NODE_PROJECTION, 1, 1, read_projection},
    {"LOGICAL_AGGREGATE_AND_GROUP_BY", NODE_AGGREGATE, 1, 1, read_aggregate},
    {"LOGICAL_WINDOW", NODE_WINDOW, 1, 1, read_extension},
    {"LOGICAL_UNNEST", NODE_UNNEST, 1, 1, read_extension},
    {"LOGICAL_ORDER_BY", NODE_ORDER, 1, 1, read_order},
    {"LOGICAL_TOP_N", NODE_TOP_N, 1, 1, read_top_n},
    {"LOGICAL_LIMIT", NODE_LIMIT, 1, 1, read_limit},
    {"LOGICAL_DISTINCT", NODE_DISTINCT, 1, 1, read_distinct},
    {"LOGICAL_SAMPLE", NODE_SAMPLE, 1, 1, read_sample},
    {"LOGICAL_UNION", NODE_UNION, 2, LIMIT_PLAN_ITEMS, read_set},
    {"LOGICAL_EXCEPT", NODE_EXCEPT, 2, 2, read_set},
    {"LOGICAL_INTERSECT", NODE_INTERSECT, 2, 2, read_set},
    {"LOGICAL_COMPARISON_JOIN", NODE_JOIN, 2, 2, plan__join},
    {"LOGICAL_ANY_JOIN", NODE_JOIN, 2, 2, plan__join},
    {"LOGICAL_ASOF_JOIN", NODE_JOIN, 2, 2, plan__join},
    {"LOGICAL_DELIM_JOIN", NODE_JOIN, 2, 2, plan__join},
    {"LOGICAL_CROSS_PRODUCT", NODE_CROSS, 2, 2, read_pair},
    {"LOGICAL_POSITIONAL_JOIN", NODE_POSITIONAL, 2, 2, read_pair},
    {"LOGICAL_DELIM_GET", NODE_DELIM_GET, 0, 0, read_delim_get},
    {"LOGICAL_MATERIALIZED_CTE", NODE_CTE, 2, 2, read_cte},
    {"LOGICAL_RECURSIVE_CTE", NODE_RECURSIVE_CTE, 2, 2, read_recursive_cte},
    {"LOGICAL_CTE_REF", NODE_CTE_REF, 0, 0, read_cte_ref},
};

/* Reading a node. */

static bool read_node(struct plan_reader *r, const struct json *json, struct relation *out);

static const struct node_reader *find_reader(struct plan_reader *r, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(node_readers); i++) {
        if (strcmp(node_readers[i].name, name) == 0) {
            return &node_readers[i];
        }
    }
    return plan__unsupported(r, "the operator %s", name);
}

/* Both sides of a delim join; inside the one that is not `delim_side`, its keys are known. */
static bool read_delim_sides(struct plan_reader *r, const struct json *array, const struct join *join,
                             struct relation *children)
{
    uint32_t other = 1 - join->delim_side;
    if (!read_node(r, json_at(array, join->delim_side), &children[join->delim_side])) {
        return false;
    }
    r->open_delims[r->n_open_delims++] = join->delim_id;
    bool is_read = read_node(r, json_at(array, other), &children[other]);
    r->n_open_delims--;
    return is_read;
}

static bool read_children(struct plan_reader *r, const struct json *json, struct plan_node *node,
                          struct relation *children)
{
    const struct json *array = json_get(json, "children");
    if (node->kind == NODE_JOIN) {
        struct join *join = arena_zalloc(r->arena, sizeof(*join));
        node->as.join = join;
        join->is_delim = strcmp(json_text(json_get(json, "type"), NULL), "LOGICAL_DELIM_JOIN") == 0;
        if (join->is_delim) {
            join->delim_id = r->n_delims++;
            join->delim_side = json_bool(json_get(json, "delim_flipped")) ? 1 : 0;
            return read_delim_sides(r, array, join, children);
        }
    }
    for (uint32_t i = 0; i < node->n_children; i++) {
        if (!read_node(r, json_at(array, i), &children[i])) {
            return false;
        }
    }
    return true;
}

static bool read_known(struct plan_reader *r, const struct json *json, const struct node_reader *reader,
                       struct relation *out)
{
    size_t n = json_count(json_get(json, "children"));
    if (n < reader->n_children_min || n > reader->n_children_max) {
        (void)plan__malformed(r, "the children of a node");
        return false;
    }
    struct plan_node *node = arena_zalloc(r->arena, sizeof(*node));
    struct relation *children = arena_zalloc(r->arena, n * sizeof(*children));
    node->kind = reader->kind;
    node->rows_estimated = -1;
    node->n_children = (uint32_t)n;
    if (!read_children(r, json, node, children)) {
        return false;
    }
    node->children = arena_alloc(r->arena, n * sizeof(struct plan_node *));
    for (size_t i = 0; i < n; i++) {
        node->children[i] = children[i].node;
    }
    out->node = node;
    return reader->read(r, json, children, out);
}

static bool read_node(struct plan_reader *r, const struct json *json, struct relation *out)
{
    const char *name = json_text(json_get(json, "type"), NULL);
    if (name == NULL) {
        (void)plan__malformed(r, "a node without a type");
        return false;
    }
    const struct node_reader *reader = find_reader(r, name);
    if (reader == NULL || !plan__enter(r)) {
        return false;
    }
    bool is_read = read_known(r, json, reader, out);
    plan__leave(r);
    return is_read && r->err == ERR_OK;
}

/* DuckDB says with the same JSON that it could not write the plan. */
static bool check_outcome(struct plan_reader *r, const struct json *root)
{
    if (json_bool(json_get(root, "error"))) {
        const char *text = json_text(json_get(root, "error_message"), NULL);
        (void)plan__unsupported(r, "DuckDB cannot write the plan: %s", text != NULL ? text : "it does not say why");
        return false;
    }
    if (json_count(json_get(root, "plans")) != 1) {
        (void)plan__unsupported(r, "%zu statements instead of one", json_count(json_get(root, "plans")));
        return false;
    }
    return true;
}

enum err plan_read(const char *json, size_t n, struct arena *arena, struct plan_node **out_root, struct error *e)
{
    struct json *root = NULL;
    struct plan_reader r = {.arena = arena, .e = e};
    enum err err = json_parse_with_nan(json, n, &root, e);
    if (err != ERR_OK) {
        return err;
    }
    struct relation relation = {0};
    if (check_outcome(&r, root) && read_node(&r, json_at(json_get(root, "plans"), 0), &relation)) {
        *out_root = relation.node;
    }
    json_free(root);
    return r.err;
}
