/*
 * plan_read_call.c - functions, aggregates and windows out of a plan's JSON.
 *
 * When DuckDB binds a call, some functions take constant arguments out of it and keep them as data of their own. These
 * are put back here, by name of the function, so that the call can be written again; a call with missing arguments that
 * is not in the tables below is not supported.
 */
#include <string.h>

#include "base/limits.h"
#include "query/plan_read_internal.h"

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Adds an argument, which may be NULL after an error, in front of argument `at`. */
static bool insert_arg(struct plan_reader *r, struct expression *expression, struct expression *arg, uint32_t at)
{
    if (arg == NULL) {
        return false;
    }
    struct expression **args = arena_alloc(r->arena, (expression->n_args + 1) * sizeof(*args));
    for (uint32_t i = 0, k = 0; i < expression->n_args + 1; i++) {
        args[i] = i == at ? arg : expression->args[k++];
    }
    expression->args = args;
    expression->n_args++;
    return true;
}

static bool append_constant(struct plan_reader *r, struct expression *expression, const struct constant *constant)
{
    return insert_arg(r, expression, plan__constant_expression(r, constant), expression->n_args);
}

/* Functions. */

/* Arguments from `first` on are named as the last fields of the result are. */
static bool name_args(struct plan_reader *r, struct expression *expression, uint32_t first)
{
    const struct type *type = expression->type;
    uint32_t n_named = expression->n_args - first;
    if (expression->n_args < first || type->n_fields < n_named) {
        (void)plan__malformed(r, "the fields of a struct");
        return false;
    }
    const char **names = arena_zalloc(r->arena, expression->n_args * sizeof(char *));
    for (uint32_t i = 0; i < n_named; i++) {
        names[first + i] = type->fields[type->n_fields - n_named + i].name;
    }
    expression->as.function.names = names;
    return true;
}

static bool restore_struct_pack(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    UNUSED(json);
    return name_args(r, expression, 0);
}

static bool restore_struct_insert(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    UNUSED(json);
    return name_args(r, expression, 1);
}

/* A UNION's value has one argument, which is named as the only member. */
static bool restore_union_value(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    UNUSED(json);
    return name_args(r, expression, 0);
}

static bool restore_struct_update(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    const struct json *children = json_get(json, "children");
    const char **names = arena_zalloc(r->arena, expression->n_args * sizeof(char *));
    for (uint32_t i = 1; i < expression->n_args; i++) {
        names[i] = plan__text(r, json_at(children, i), "alias");
        if (names[i] == NULL || names[i][0] == '\0') {
            (void)plan__unsupported(r, "struct_update without the names of its fields");
            return false;
        }
    }
    expression->as.function.names = names;
    return true;
}

/* date_part with a list of parts, which are the fields of the result. */
static bool restore_date_part(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    const struct type *type = expression->type;
    if (json_count(json_get(json_get(json, "function_data"), "part_codes")) == 0 || type->id != TYPE_STRUCT) {
        return true;
    }
    struct constant *parts = arena_zalloc(r->arena, type->n_fields * sizeof(*parts));
    for (uint32_t i = 0; i < type->n_fields; i++) {
        parts[i] = *plan__text_constant(r, type->fields[i].name, strlen(type->fields[i].name));
    }
    const struct constant *list = plan__list_constant(r, parts, type->n_fields, type_plain(TYPE_VARCHAR));
    return insert_arg(r, expression, plan__constant_expression(r, list), 0);
}

/* list_aggregate(list, 'name', more…): what comes after the name is kept with the aggregate, and restored there. */
static bool restore_list_aggregate(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    const struct json *data = json_get(json_get(json, "function_data"), "bind_data");
    const struct json *aggregate = json_get(data, "aggr_expr");
    struct input nothing = {.n = 0};
    if (aggregate == NULL || expression->n_args != 2) {
        return true;
    }
    struct expression *call = plan__expression(r, aggregate, &nothing);
    for (uint32_t i = 1; call != NULL && i < call->n_args; i++) {
        if (!insert_arg(r, expression, call->args[i], expression->n_args)) {
            return false;
        }
    }
    return call != NULL;
}

static const struct {
    const char *name;
    bool (*restore)(struct plan_reader *r, const struct json *json, struct expression *expression);
} restored_functions[] = {
    {"list_aggr", restore_list_aggregate},
    {"list_aggregate", restore_list_aggregate},
    {"aggregate", restore_list_aggregate},
    {"array_aggr", restore_list_aggregate},
    {"array_aggregate", restore_list_aggregate},
    {"struct_pack", restore_struct_pack},
    {"struct_insert", restore_struct_insert},
    {"union_value", restore_union_value},
    {"struct_update", restore_struct_update},
    {"date_part", restore_date_part},
    {"datepart", restore_date_part},
};

/*
 * list_transform and its like: the children are the list, an initial value if there is one, and what the lambda captures.
 * Inside the lambda, DuckDB counts the parameters from the last to the first, then the captures.
 */
static bool read_lambda(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    const struct json *data = json_get(json, "function_data");
    const char *name = expression->as.function.name;
    bool has_initial = json_bool(json_get(data, "has_initial"));
    uint32_t n_parameters =
        (strstr(name, "reduce") != NULL ? 2U : 1U) + (json_bool(json_get(data, "has_index")) ? 1U : 0U);
    uint32_t n_own = has_initial ? 2 : 1;
    if (expression->n_args < n_own) {
        (void)plan__malformed(r, "a lambda's arguments");
        return false;
    }
    uint32_t n_captures = expression->n_args - n_own;
    uint32_t *map = arena_alloc(r->arena, (n_parameters + n_captures) * sizeof(*map));
    for (uint32_t i = 0; i < n_parameters + n_captures; i++) {
        map[i] = i < n_parameters ? n_parameters - 1 - i : i;
    }
    struct input inner = {.n = n_parameters + n_captures, .map = map};
    struct expression *body = plan__expression(r, json_get(data, "lambda_expr"), &inner);
    if (body == NULL) {
        return false;
    }
    struct expression *lambda = plan__new_expression(r, EXPRESSION_LAMBDA, body->type, 1 + n_captures);
    lambda->as.lambda.n_parameters = n_parameters;
    lambda->args[0] = body;
    for (uint32_t i = 0; i < n_captures; i++) {
        lambda->args[1 + i] = expression->args[n_own + i];
    }
    expression->n_args = n_own;
    return insert_arg(r, expression, lambda, 1);
}

/*
 * Functions that only mean something where they were bound, or tell of the statement that calls them, which would be the
 * task's own: its text and numbers, what is known of its columns, how it holds them.
 */
static bool is_unportable(const char *name)
{
    static const char *const names[] = {"nextval",
                                        "currval",
                                        "getvariable",
                                        "current_query",
                                        "current_query_id",
                                        "current_transaction_id",
                                        "current_connection_id",
                                        "stats",
                                        "vector_type"};
    bool is_one = starts_with(name, "__internal");
    for (size_t i = 0; i < ARRAY_LEN(names) && !is_one; i++) {
        is_one = strcmp(name, names[i]) == 0;
    }
    return is_one;
}

bool plan__function(struct plan_reader *r, const struct json *json, const struct input *input,
                    struct expression *expression)
{
    const char *name = plan__text(r, json, "name");
    expression->args = plan__expressions(r, json_get(json, "children"), input, &expression->n_args);
    if (r->err != ERR_OK) {
        return false;
    }
    expression->as.function.name = name;
    if (is_unportable(name)) {
        (void)plan__unsupported(r, "the function %s", name);
        return false;
    }
    if (json_get(json_get(json, "function_data"), "lambda_expr") != NULL) {
        return read_lambda(r, json, expression);
    }
    for (size_t i = 0; i < ARRAY_LEN(restored_functions); i++) {
        if (strcmp(restored_functions[i].name, name) == 0 && !restored_functions[i].restore(r, json, expression)) {
            return false;
        }
    }
    if (json_count(json_get(json, "original_arguments")) > expression->n_args) {
        (void)plan__unsupported(r, "an argument of the function %s is lost", name);
        return false;
    }
    return true;
}

/* Aggregates. */

static bool restore_separator(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    size_t n = 0;
    const char *separator = json_text(json_get(json_get(json, "function_data"), "separator"), &n);
    if (separator == NULL || expression->n_args != 1) {
        return true;
    }
    return append_constant(r, expression, plan__text_constant(r, separator, n));
}

/* A quantile counted from the other end is written as a negative one. */
static bool negate(struct plan_reader *r, struct constant *constant)
{
    enum constant_form form = type_form(constant->type->id);
    if (form == FORM_NUMBER) {
        constant->as.number = -constant->as.number;
        return true;
    }
    if (form != FORM_INTEGER || constant->is_null) {
        (void)plan__unsupported(r, "a quantile of this type");
        return false;
    }
    constant->as.integer.upper = ~constant->as.integer.upper + (constant->as.integer.lower == 0 ? 1 : 0);
    constant->as.integer.lower = ~constant->as.integer.lower + 1;
    return true;
}

/* A quantile is a constant with its type, or just a number, of the type that the function takes. */
static bool read_quantile(struct plan_reader *r, const struct json *json, bool is_float, bool is_descending,
                          struct constant *out)
{
    if (json_kind_of(json) == JSON_NUMBER) {
        const struct type *type = type_plain(is_float ? TYPE_FLOAT : TYPE_DOUBLE);
        *out = (struct constant){.type = type, .as.number = json_number(json)};
    } else {
        const struct constant *constant = plan__constant(r, json);
        if (constant == NULL) {
            return false;
        }
        *out = *constant;
    }
    return !is_descending || negate(r, out);
}

static bool restore_quantiles(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    const struct json *data = json_get(json, "function_data");
    const char *name = json_text(json_get(json, "name"), NULL);
    bool is_float = name != NULL && strcmp(name, "approx_quantile") == 0;
    const struct json *array = json_get(data, "quantiles");
    uint32_t n = (uint32_t)json_count(array);
    uint64_t sample_size = 0;
    if (n == 0 || expression->n_args != 1) {
        return true;
    }
    struct constant *quantiles = arena_zalloc(r->arena, n * sizeof(*quantiles));
    for (uint32_t i = 0; i < n; i++) {
        if (!read_quantile(r, json_at(array, i), is_float, json_bool(json_get(data, "desc")), &quantiles[i])) {
            return false;
        }
    }
    bool is_list = expression->type->id == TYPE_LIST;
    const struct constant *argument = is_list ? plan__list_constant(r, quantiles, n, quantiles[0].type) : &quantiles[0];
    if (!append_constant(r, expression, argument)) {
        return false;
    }
    if (!json_uint(json_get(data, "sample_size"), &sample_size)) {
        return true;
    }
    struct constant *size = arena_zalloc(r->arena, sizeof(*size));
    size->type = type_plain(TYPE_INTEGER);
    size->as.integer.lower = sample_size;
    return append_constant(r, expression, size);
}

static bool restore_bounds(struct plan_reader *r, const struct json *json, struct expression *expression)
{
    const struct json *data = json_get(json, "function_data");
    if (json_get(data, "min") == NULL || expression->n_args != 1) {
        return true;
    }
    return append_constant(r, expression, plan__constant(r, json_get(data, "min"))) &&
           append_constant(r, expression, plan__constant(r, json_get(data, "max")));
}

static const struct {
    const char *name;
    bool (*restore)(struct plan_reader *r, const struct json *json, struct expression *expression);
} restored_aggregates[] = {
    {"string_agg", restore_separator},      {"group_concat", restore_separator},
    {"listagg", restore_separator},         {"quantile", restore_quantiles},
    {"quantile_disc", restore_quantiles},   {"quantile_cont", restore_quantiles},
    {"approx_quantile", restore_quantiles}, {"reservoir_quantile", restore_quantiles},
    {"bitstring_agg", restore_bounds},
};

/* The name and the arguments of an aggregate, which may be called as a window. */
static const char *read_aggregate_call(struct plan_reader *r, const struct json *json, const struct input *input,
                                       struct expression *expression)
{
    const char *name = plan__text(r, json, "name");
    expression->args = plan__expressions(r, json_get(json, "children"), input, &expression->n_args);
    if (r->err != ERR_OK) {
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(restored_aggregates); i++) {
        if (strcmp(restored_aggregates[i].name, name) == 0 && !restored_aggregates[i].restore(r, json, expression)) {
            return NULL;
        }
    }
    if (json_count(json_get(json, "original_arguments")) > expression->n_args) {
        return plan__unsupported(r, "an argument of the aggregate %s is lost", name);
    }
    /* DuckDB's own name for a sum that cannot overflow, by what it knows of the values; SQL must not use it. */
    return strcmp(name, "sum_no_overflow") == 0 ? "sum" : name;
}

bool plan__aggregate(struct plan_reader *r, const struct json *json, const struct input *input,
                     struct expression *expression)
{
    struct aggregate_call *call = arena_zalloc(r->arena, sizeof(*call));
    call->name = read_aggregate_call(r, json, input, expression);
    if (call->name == NULL) {
        return false;
    }
    const char *type = plan__text(r, json, "aggregate_type");
    call->is_distinct = type != NULL && strcmp(type, "DISTINCT") == 0;
    call->filter = plan__optional_expression(r, json_get(json, "filter"), input);
    call->orders = plan__orders(r, json_get(json_get(json, "order_bys"), "orders"), input, &call->n_orders);
    expression->as.aggregate = call;
    return r->err == ERR_OK;
}

/* Windows. */

static const struct {
    const char *type;
    const char *name;
} window_functions[] = {
    {"WINDOW_ROW_NUMBER", "row_number"},
    {"WINDOW_RANK", "rank"},
    {"WINDOW_RANK_DENSE", "dense_rank"},
    {"WINDOW_PERCENT_RANK", "percent_rank"},
    {"WINDOW_CUME_DIST", "cume_dist"},
    {"WINDOW_NTILE", "ntile"},
    {"WINDOW_LEAD", "lead"},
    {"WINDOW_LAG", "lag"},
    {"WINDOW_FIRST_VALUE", "first_value"},
    {"WINDOW_LAST_VALUE", "last_value"},
    {"WINDOW_NTH_VALUE", "nth_value"},
    {"WINDOW_FILL", "fill"},
};

static const struct {
    const char *name;
    enum bound_kind kind;
    bool has_unit;
    enum frame_unit unit;
} bounds[] = {
    {"UNBOUNDED_PRECEDING", BOUND_UNBOUNDED_PRECEDING, false, FRAME_ROWS},
    {"UNBOUNDED_FOLLOWING", BOUND_UNBOUNDED_FOLLOWING, false, FRAME_ROWS},
    {"CURRENT_ROW_ROWS", BOUND_CURRENT_ROW, true, FRAME_ROWS},
    {"CURRENT_ROW_RANGE", BOUND_CURRENT_ROW, true, FRAME_RANGE},
    {"CURRENT_ROW_GROUPS", BOUND_CURRENT_ROW, true, FRAME_GROUPS},
    {"EXPR_PRECEDING_ROWS", BOUND_PRECEDING, true, FRAME_ROWS},
    {"EXPR_PRECEDING_RANGE", BOUND_PRECEDING, true, FRAME_RANGE},
    {"EXPR_PRECEDING_GROUPS", BOUND_PRECEDING, true, FRAME_GROUPS},
    {"EXPR_FOLLOWING_ROWS", BOUND_FOLLOWING, true, FRAME_ROWS},
    {"EXPR_FOLLOWING_RANGE", BOUND_FOLLOWING, true, FRAME_RANGE},
    {"EXPR_FOLLOWING_GROUPS", BOUND_FOLLOWING, true, FRAME_GROUPS},
};

static struct expression *without_casts(struct expression *expression)
{
    while (expression != NULL && expression->kind == EXPRESSION_CAST) {
        expression = expression->args[0];
    }
    return expression;
}

/*
 * The bound of a RANGE frame is not the offset but the order key plus or minus it. If the key itself is a sum, DuckDB's
 * optimizer may have put its constant and the offset together; then there is no offset any more.
 */
static struct expression *offset_of_range(struct plan_reader *r, struct expression *bound,
                                          const struct window_call *call)
{
    bound = without_casts(bound);
    const struct expression *key = call->n_orders == 1 ? without_casts(call->orders[0].expression) : NULL;
    bool is_sum = bound != NULL && bound->kind == EXPRESSION_FUNCTION && bound->n_args == 2 &&
                  (strcmp(bound->as.function.name, "+") == 0 || strcmp(bound->as.function.name, "-") == 0);
    if (!is_sum || key == NULL || !expression_equal(without_casts(bound->args[0]), key)) {
        return plan__unsupported(r, "the bound of a RANGE frame whose order is computed");
    }
    return bound->args[1];
}

static bool read_bound(struct plan_reader *r, const struct json *kind, const struct json *offset,
                       const struct input *input, struct frame_bound *out, struct window_call *call)
{
    const char *name = json_text(kind, NULL);
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(bounds); i++) {
        if (strcmp(bounds[i].name, name) != 0) {
            continue;
        }
        out->kind = bounds[i].kind;
        if (bounds[i].has_unit) {
            call->unit = bounds[i].unit;
        }
        if (out->kind != BOUND_PRECEDING && out->kind != BOUND_FOLLOWING) {
            return true;
        }
        out->offset = plan__expression(r, offset, input);
        if (out->offset != NULL && bounds[i].unit == FRAME_RANGE) {
            out->offset = offset_of_range(r, out->offset, call);
        }
        return out->offset != NULL;
    }
    (void)plan__unsupported(r, "the window bound %s", name != NULL ? name : "without a name");
    return false;
}

static bool read_exclusion(struct plan_reader *r, const struct json *json, struct window_call *call)
{
    static const char *const names[] = {
        [EXCLUDE_NOTHING] = "NO_OTHER",
        [EXCLUDE_CURRENT_ROW] = "CURRENT_ROW",
        [EXCLUDE_GROUP] = "GROUP",
        [EXCLUDE_TIES] = "TIES",
    };
    const char *name = json_text(json, NULL);
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], name) == 0) {
            call->exclusion = (enum frame_exclusion)i;
            return true;
        }
    }
    (void)plan__unsupported(r, "the window exclusion %s", name != NULL ? name : "without a name");
    return false;
}

/* lead and lag have their offset and default apart from the other arguments. */
static bool read_offset_and_default(struct plan_reader *r, const struct json *json, const struct input *input,
                                    struct expression *expression)
{
    struct expression *offset = plan__optional_expression(r, json_get(json, "offset_expr"), input);
    struct expression *fallback = plan__optional_expression(r, json_get(json, "default_expr"), input);
    if (r->err != ERR_OK) {
        return false;
    }
    if (offset == NULL && fallback != NULL) {
        struct constant *one = arena_zalloc(r->arena, sizeof(*one));
        one->type = type_plain(TYPE_BIGINT);
        one->as.integer.lower = 1;
        offset = plan__constant_expression(r, one);
    }
    return (offset == NULL || insert_arg(r, expression, offset, expression->n_args)) &&
           (fallback == NULL || insert_arg(r, expression, fallback, expression->n_args));
}

/* The function's name in SQL, and its arguments. */
static const char *read_window_call(struct plan_reader *r, const struct json *json, const struct input *input,
                                    struct expression *expression)
{
    const char *type = plan__text(r, json, "type");
    if (type == NULL) {
        return NULL;
    }
    if (strcmp(type, "WINDOW_AGGREGATE") == 0) {
        return read_aggregate_call(r, json, input, expression);
    }
    for (size_t i = 0; i < ARRAY_LEN(window_functions); i++) {
        if (strcmp(window_functions[i].type, type) == 0) {
            expression->args = plan__expressions(r, json_get(json, "children"), input, &expression->n_args);
            return expression->args != NULL ? window_functions[i].name : NULL;
        }
    }
    return plan__unsupported(r, "the window function %s", type);
}

bool plan__window(struct plan_reader *r, const struct json *json, const struct input *input,
                  struct expression *expression)
{
    struct window_call *call = arena_zalloc(r->arena, sizeof(*call));
    expression->as.window = call;
    call->name = read_window_call(r, json, input, expression);
    if (call->name == NULL || !read_offset_and_default(r, json, input, expression)) {
        return false;
    }
    call->is_distinct = json_bool(json_get(json, "distinct"));
    call->has_ignore_nulls = json_bool(json_get(json, "ignore_nulls"));
    call->filter = plan__optional_expression(r, json_get(json, "filters"), input);
    call->argument_orders = plan__orders(r, json_get(json, "arg_orders"), input, &call->n_argument_orders);
    call->partitions = plan__expressions(r, json_get(json, "partitions"), input, &call->n_partitions);
    call->orders = plan__orders(r, json_get(json, "orders"), input, &call->n_orders);
    if (r->err != ERR_OK || !read_exclusion(r, json_get(json, "exclude_clause"), call) ||
        !read_bound(r, json_get(json, "start"), json_get(json, "start_expr"), input, &call->start, call) ||
        !read_bound(r, json_get(json, "end"), json_get(json, "end_expr"), input, &call->end, call)) {
        return false;
    }
    const char *alias = json_text(json_get(json, "alias"), NULL);
    call->is_row_id = alias != NULL && strcmp(alias, "delim_index") == 0 && strcmp(call->name, "row_number") == 0 &&
                      call->n_partitions == 0 && call->n_orders == 0;
    return true;
}
