/* What can be said about a fragment's tree: what it does, whether it does the same each time, what leaves it empty. */
#include <inttypes.h>
#include <string.h>

#include "query/cut_internal.h"

#define COLUMNS_SHOWN 20

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_float(const struct type *type)
{
    return type->id == TYPE_FLOAT || type->id == TYPE_DOUBLE;
}

static bool has_arg_of(const struct expression *call, bool (*is_such)(const struct type *))
{
    for (uint32_t i = 0; i < call->n_args; i++) {
        if (is_such(call->args[i]->type)) {
            return true;
        }
    }
    return false;
}

/*
 * Whether an aggregate hangs on the order of rows because it adds up floating-point numbers, whose last digits do. All that
 * have to do with such numbers count, but for those that only count, compare or sort them. An average of exact numbers is
 * a division of exact sums.
 */
static bool is_inexact(const char *name, const struct expression *call)
{
    static const char *const exact[] = {"count",         "count_star",    "count_if", "countif",
                                        "min",           "max",           "median",   "quantile",
                                        "quantile_cont", "quantile_disc", "mad",      "approx_count_distinct",
                                        "regr_count"};
    bool is_average = strcmp(name, "avg") == 0 || strcmp(name, "mean") == 0;
    return !is_one_of(name, exact, ARRAY_LEN(exact)) &&
           (has_arg_of(call, is_float) || (is_float(call->type) && !is_average));
}

/* Aggregates that take what comes first, or keep it in the order in which it comes. */
static bool is_in_order(const char *name)
{
    static const char *const names[] = {"first",     "last",         "any_value",      "arbitrary",
                                        "list",      "array_agg",    "argmin",         "argmax",
                                        "min_by",    "max_by",       "mode",           "listagg",
                                        "histogram", "string_agg",   "group_concat",   "reservoir_quantile",
                                        "map_agg",   "approx_top_k", "approx_quantile"};
    static const char *const starts[] = {"arg_min", "arg_max"}; /* arg_min_null, … */
    return is_one_of(name, names, ARRAY_LEN(names)) || strncmp(name, starts[0], strlen(starts[0])) == 0 ||
           strncmp(name, starts[1], strlen(starts[1])) == 0;
}

/* Aggregates and windows whose value hangs on the order of rows that nobody has ordered. */
static bool is_by_chance(const struct expression *expression)
{
    static const char *const fixed_windows[] = {"rank", "dense_rank", "percent_rank", "cume_dist"};
    static const char *const places[] = {"row_number",  "ntile",      "lead",      "lag",
                                         "first_value", "last_value", "nth_value", "fill"};
    if (expression->kind == EXPRESSION_AGGREGATE) {
        const char *name = expression->as.aggregate->name;
        return is_in_order(name) || is_inexact(name, expression);
    }
    if (expression->kind != EXPRESSION_WINDOW) {
        return false;
    }
    const struct window_call *window = expression->as.window;
    if (is_one_of(window->name, fixed_windows, ARRAY_LEN(fixed_windows))) {
        return false;
    }
    bool is_whole_frame = window->n_orders == 0 && window->unit != FRAME_ROWS;
    return !is_whole_frame || is_in_order(window->name) || is_one_of(window->name, places, ARRAY_LEN(places)) ||
           is_inexact(window->name, expression);
}

static bool is_blob(const struct type *type)
{
    return type->id == TYPE_BLOB;
}

/* Templates of ours: row numbers by task, and steps of aggregates as above (aggregate.c). */
static bool is_template_by_chance(const struct expression *template, bool is_aggregate)
{
    static const char *const starts[] = {"first(",          "any_value(",    "arg_min(",
                                         "arg_max(",        "(row_number()", "CAST(first(",
                                         "CAST(any_value(", "CAST(arg_min(", "CAST(arg_max("};
    static const char *const exact[] = {"count(",
                                        "count_if(",
                                        "min(",
                                        "max(",
                                        "CAST(min(",
                                        "CAST(max(",
                                        "CAST(\"approx_count_distinct\"(",
                                        "CAST(\"regr_count\"("};
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        if (strncmp(template->as.sql, starts[i], strlen(starts[i])) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(exact); i++) {
        if (strncmp(template->as.sql, exact[i], strlen(exact[i])) == 0) {
            return false;
        }
    }
    /* A floating-point number made of BLOBs comes from states of aggregates. */
    return is_aggregate &&
           (has_arg_of(template, is_float) || (is_float(template->type) && has_arg_of(template, is_blob)));
}

struct chance {
    bool is_aggregate; /* whether these are the expressions of a GROUP BY */
    bool is_found;
};

static bool note_chance(struct expression **slot, void *context)
{
    struct chance *chance = context;
    const struct expression *expression = *slot;
    bool is_template = expression->kind == EXPRESSION_TEMPLATE;
    chance->is_found = chance->is_found || is_by_chance(expression) || expression_is_volatile(expression) ||
                       (is_template && is_template_by_chance(expression, chance->is_aggregate));
    return !chance->is_found;
}

bool cut__is_node_deterministic(struct plan_node *node)
{
    struct chance chance = {.is_aggregate = node->kind == NODE_AGGREGATE};
    /* Which row is the first, or which of several is the nearest, hangs on their order. */
    chance.is_found = node->kind == NODE_LIMIT || node->kind == NODE_TOP_N || node->kind == NODE_SAMPLE ||
                      node->kind == NODE_POSITIONAL || (node->kind == NODE_DISTINCT && node->as.distinct.is_on) ||
                      (node->kind == NODE_JOIN && node->as.join->is_asof);
    if (!chance.is_found) {
        plan_node_visit_expressions(node, note_chance, &chance);
    }
    return !chance.is_found;
}

static bool note_node(struct plan_node *node, void *context)
{
    bool *is_fixed = context;
    *is_fixed = *is_fixed && cut__is_node_deterministic(node);
    return *is_fixed;
}

bool cut__is_deterministic(struct plan_node *node)
{
    bool is_fixed = true;
    plan_visit(node, note_node, &is_fixed);
    return is_fixed;
}

/* The last part of a path. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static void describe_scan(struct buf *out, const struct scan *scan)
{
    if (scan->source != SCAN_PARQUET) {
        buf_format(out, "scan %s", scan->source == SCAN_FUNCTION ? scan->function : scan->from);
    } else if (scan->n_files == 1) {
        buf_format(out, "scan %s", base_name(scan->files[0]));
    } else {
        buf_format(out, "scan %s and %" PRIu32 " more", base_name(scan->files[0]), scan->n_files - 1);
    }
    if (scan->n_columns > 0) {
        buf_text(out, ": ");
    }
    for (uint32_t i = 0; i < scan->n_columns && i < COLUMNS_SHOWN; i++) {
        const struct scan_column *column = &scan->columns[i];
        buf_format(out, "%s%s", i == 0 ? "" : ", ",
                   column->is_virtual == VIRTUAL_NONE ? scan->names[column->index] : "(virtual)");
    }
    if (scan->n_columns > COLUMNS_SHOWN) {
        buf_format(out, " and %" PRIu32 " more", scan->n_columns - COLUMNS_SHOWN);
    }
    if (scan->n_filters > 0) {
        buf_format(out, "; %" PRIu32 " condition%s", scan->n_filters, scan->n_filters == 1 ? "" : "s");
    }
    if (scan->split.range != NULL) {
        buf_format(out, "; a range of %s", scan->split.range);
    }
}

static void describe_aggregate(struct buf *out, const struct aggregate *aggregate)
{
    bool has_templates = false;
    for (uint32_t i = 0; i < aggregate->n_aggregates; i++) {
        has_templates = has_templates || aggregate->aggregates[i]->kind == EXPRESSION_TEMPLATE;
    }
    buf_text(out, has_templates ? "aggregate (one step of two)" : "aggregate");
    if (aggregate->n_groups > 0) {
        buf_format(out, " by %" PRIu32 " column%s", aggregate->n_groups, aggregate->n_groups == 1 ? "" : "s");
    }
    for (uint32_t i = 0; i < aggregate->n_aggregates && !has_templates; i++) {
        buf_format(out, "%s%s%s", i == 0 ? ": " : ", ", aggregate->aggregates[i]->as.aggregate->name,
                   aggregate->aggregates[i]->as.aggregate->is_distinct ? " distinct" : "");
    }
}

static void describe_join(struct buf *out, const struct join *join)
{
    static const char *const types[] = {
        [JOIN_INNER] = "inner", [JOIN_LEFT] = "left", [JOIN_RIGHT] = "right", [JOIN_FULL] = "full",
        [JOIN_SEMI] = "semi",   [JOIN_ANTI] = "anti", [JOIN_MARK] = "mark",   [JOIN_SINGLE] = "single",
    };
    buf_format(out, "%s%s join on", join->is_asof ? "asof " : "", types[join->type]);
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        buf_format(out, "%s %s", i == 0 ? "" : ",", comparison_sql(join->conditions[i].comparison));
    }
    buf_text(out, join->residual != NULL ? (join->n_conditions > 0 ? " and a condition" : " a condition") : "");
}

static void describe_one(struct buf *out, const struct plan_node *node)
{
    if (node->kind == NODE_SCAN) {
        describe_scan(out, node->as.scan);
    } else if (node->kind == NODE_INPUT) {
        buf_format(out, "rows of %s", node->as.input.name);
    } else if (node->kind == NODE_CUSTOM) {
        buf_format(out, "rows of the operator %s", node->as.custom.custom->op);
    } else if (node->kind == NODE_AGGREGATE) {
        describe_aggregate(out, node->as.aggregate);
    } else if (node->kind == NODE_JOIN) {
        describe_join(out, node->as.join);
    } else if (node->kind == NODE_TOP_N) {
        buf_format(out, "first %" PRIu64 " rows by order", node->as.order->limit.count.rows);
    } else {
        buf_text(out, node_kind_name(node->kind));
    }
}

static void describe_below(struct buf *out, const struct plan_node *node, uint32_t depth)
{
    /* A projection says nothing to people. */
    if (node->kind != NODE_PROJECTION) {
        buf_format(out, "%s%*s", out->n > 0 ? "\n" : "", (int)(2 * depth), "");
        describe_one(out, node);
        depth++;
    }
    for (uint32_t i = 0; i < node->n_children; i++) {
        describe_below(out, node->children[i], depth);
    }
}

void cut__describe(struct buf *out, const struct plan_node *node)
{
    describe_below(out, node, 0);
}

/* How what is below a node decides whether it is empty. */
enum emptiness {
    EMPTY_NEVER,     /* it has rows whatever is below */
    EMPTY_WITH_LEFT, /* as its first child, or its only one */
    EMPTY_WITH_RIGHT,
    EMPTY_WITH_EITHER,
    EMPTY_WITH_ALL,
};

static enum emptiness emptiness_of(const struct plan_node *node)
{
    static const enum emptiness by_join[] = {
        [JOIN_INNER] = EMPTY_WITH_EITHER, [JOIN_LEFT] = EMPTY_WITH_LEFT,   [JOIN_RIGHT] = EMPTY_WITH_RIGHT,
        [JOIN_FULL] = EMPTY_WITH_ALL,     [JOIN_SEMI] = EMPTY_WITH_EITHER, [JOIN_ANTI] = EMPTY_WITH_LEFT,
        [JOIN_MARK] = EMPTY_WITH_LEFT,    [JOIN_SINGLE] = EMPTY_WITH_LEFT,
    };
    if (node->kind == NODE_JOIN) {
        return by_join[node->as.join->type];
    }
    if (node->kind == NODE_AGGREGATE) {
        const struct aggregate *aggregate = node->as.aggregate;
        bool has_row_for_nothing = aggregate->n_groups == 0;
        for (uint32_t i = 0; i < aggregate->n_sets; i++) {
            has_row_for_nothing = has_row_for_nothing || aggregate->sets[i].n == 0;
        }
        return has_row_for_nothing ? EMPTY_NEVER : EMPTY_WITH_LEFT;
    }
    if (node->kind == NODE_CROSS || node->kind == NODE_INTERSECT) {
        return EMPTY_WITH_EITHER;
    }
    if (node->kind == NODE_UNION || node->kind == NODE_POSITIONAL) {
        return EMPTY_WITH_ALL;
    }
    bool is_opaque = node->kind == NODE_RECURSIVE_CTE || node->kind == NODE_CTE || node->kind == NODE_CTE_REF ||
                     node->kind == NODE_DELIM_GET;
    return node->n_children == 0 || is_opaque ? EMPTY_NEVER : EMPTY_WITH_LEFT;
}

static bool is_empty_with(const struct plan_node *node, const char *name)
{
    if (node->kind == NODE_INPUT) {
        return strcmp(node->as.input.name, name) == 0;
    }
    switch (emptiness_of(node)) {
    case EMPTY_NEVER:
        return false;
    case EMPTY_WITH_LEFT:
        return is_empty_with(node->children[0], name);
    case EMPTY_WITH_RIGHT:
        return is_empty_with(node->children[1], name);
    case EMPTY_WITH_EITHER:
        return is_empty_with(node->children[0], name) || is_empty_with(node->children[1], name);
    case EMPTY_WITH_ALL:
        for (uint32_t i = 0; i < node->n_children; i++) {
            if (!is_empty_with(node->children[i], name)) {
                return false;
            }
        }
        return true;
    }
    ASSERT(false);
    return false;
}

void cut__empty_if(const struct plan_node *node, const char *const *names, uint32_t n, bool *out_flags)
{
    for (uint32_t i = 0; i < n; i++) {
        out_flags[i] = is_empty_with(node, names[i]);
    }
}
