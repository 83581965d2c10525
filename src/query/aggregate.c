/* The table of aggregates, and how a row of it becomes SQL. */
#include "query/aggregate.h"

#include <string.h>

#include "base/buf.h"

#define SAME(fn) .n_args = 1, .partials = {{fn "(@0)%", NULL, PARTIAL_RESULT}}, .final = fn "(@0)"
#define COUNT(sql) .partials = {{sql, NULL, PARTIAL_BIGINT}}, .final = "coalesce(sum(@0), 0)"
#define AVERAGE                                                                                                        \
    .n_args = 1, .needs_number = true,                                                                                 \
    .partials = {{"sum(@0)%", NULL, PARTIAL_SUM}, {"count(@0)%", NULL, PARTIAL_BIGINT}},                               \
    .final = "(CASE WHEN sum(@1) > 0 THEN CAST(sum(@0) AS DOUBLE) / CAST(sum(@1) AS DOUBLE) END)"
#define ANY_FIRST                                                                                                      \
    .n_args = 1, .partials = {{"first(@0)%", NULL, PARTIAL_RESULT}, {"count(*)%", NULL, PARTIAL_BIGINT}},              \
    .final = "first(@0) FILTER (WHERE @1 > 0)"
#define ARGUMENT(fn)                                                                                                   \
    .n_args = 2,                                                                                                       \
    .partials = {{fn "(@0, @1)%", NULL, PARTIAL_RESULT}, {fn "(@1, @1)%", "@0 IS NOT NULL", PARTIAL_SECOND}},          \
    .final = fn "(@0, @1)"
#define STATE(args) .n_args = (args), .is_state = true

const struct aggregate_rule aggregate_rules_default[] = {
    {"count_star", COUNT("count(*)%")},
    {"count", .n_args = 1, COUNT("count(@0)%")},
    /* Of no rows, or of nothing but NULLs, it is NULL and not 0. */
    {"count_if", .n_args = 1, .partials = {{"count_if(@0)%", NULL, PARTIAL_RESULT}}, .final = "sum(@0)"},
    {"countif", .n_args = 1, .partials = {{"count_if(@0)%", NULL, PARTIAL_RESULT}}, .final = "sum(@0)"},
    {"sum", .needs_number = true, SAME("sum")},
    {"min", .ignores_distinct = true, SAME("min")},
    {"max", .ignores_distinct = true, SAME("max")},
    {"bool_and", .ignores_distinct = true, SAME("bool_and")},
    {"bool_or", .ignores_distinct = true, SAME("bool_or")},
    {"bit_and", .ignores_distinct = true, SAME("bit_and")},
    {"bit_or", .ignores_distinct = true, SAME("bit_or")},
    {"bit_xor", SAME("bit_xor")},
    {"product", SAME("product")},
    {"any_value", .ignores_distinct = true, SAME("any_value")},
    {"first", .ignores_distinct = true, ANY_FIRST},
    {"arbitrary", .ignores_distinct = true, ANY_FIRST},
    {"avg", AVERAGE},
    {"mean", AVERAGE},
    {"arg_min", ARGUMENT("arg_min")},
    {"argmin", ARGUMENT("arg_min")},
    {"min_by", ARGUMENT("arg_min")},
    {"arg_max", ARGUMENT("arg_max")},
    {"argmax", ARGUMENT("arg_max")},
    {"max_by", ARGUMENT("arg_max")},
    {"var_samp", STATE(1)},
    {"variance", STATE(1)},
    {"var_pop", STATE(1)},
    {"stddev", STATE(1)},
    {"stddev_samp", STATE(1)},
    {"stddev_pop", STATE(1)},
    {"approx_count_distinct", .ignores_distinct = true, STATE(1)},
    {"corr", STATE(2)},
    {"covar_pop", STATE(2)},
    {"covar_samp", STATE(2)},
    {"regr_avgx", STATE(2)},
    {"regr_avgy", STATE(2)},
    {"regr_count", STATE(2)},
    {"regr_intercept", STATE(2)},
    {"regr_r2", STATE(2)},
    {"regr_slope", STATE(2)},
    {"regr_sxx", STATE(2)},
    {"regr_sxy", STATE(2)},
    {"regr_syy", STATE(2)},
    {"skewness", STATE(1)},
    {"kurtosis", STATE(1)},
    {"kurtosis_pop", STATE(1)},
    {"sem", STATE(1)},
    {"fsum", STATE(1)},
    {"sumkahan", STATE(1)},
    {"kahan_sum", STATE(1)},
    {"favg", STATE(1)},
    {NULL},
};

/* The type of sum(x); NULL if x is nothing that sums up as numbers do. */
static const struct type *sum_type(const struct type *type, struct arena *arena)
{
    if (type->id == TYPE_DECIMAL) {
        return type_decimal(arena, 38, type->scale);
    }
    if (type->id == TYPE_FLOAT || type->id == TYPE_DOUBLE) {
        return type_plain(TYPE_DOUBLE);
    }
    bool is_whole = (type->id >= TYPE_TINYINT && type->id <= TYPE_UBIGINT) || type->id == TYPE_BOOLEAN;
    return is_whole ? type_plain(TYPE_HUGEINT) : NULL;
}

static const struct type *partial_type_of(enum partial_type type, const struct expression *aggregate,
                                          struct arena *arena)
{
    switch (type) {
    case PARTIAL_RESULT:
        return aggregate->type;
    case PARTIAL_SUM:
        return sum_type(aggregate->args[0]->type, arena);
    case PARTIAL_SECOND:
        return aggregate->args[1]->type;
    case PARTIAL_BIGINT:
        return type_plain(TYPE_BIGINT);
    }
    ASSERT(false);
    return NULL;
}

/* Appends a type inside of a template, where @ has a meaning. */
static void write_type(struct buf *sql, const struct type *type)
{
    struct buf text = {0};
    type_write(&text, type);
    for (size_t i = 0; i < text.n; i++) {
        buf_text(sql, text.data[i] == '@' ? "@" : "");
        buf_char(sql, text.data[i]);
    }
    buf_deinit(&text);
}

/* Appends the FILTER clause, if one is needed. The aggregate's own filter is argument `filter`. */
static void write_filter(struct buf *sql, const char *condition, bool has_filter, uint32_t filter)
{
    if (condition == NULL && !has_filter) {
        return;
    }
    buf_format(sql, " FILTER (WHERE %s%s", condition == NULL ? "" : condition,
               condition != NULL && has_filter ? " AND " : "");
    if (has_filter) {
        buf_format(sql, "@%u", (unsigned)filter);
    }
    buf_char(sql, ')');
}

/* One partial value as a template. */
static struct expression *make_partial(const struct expression *aggregate, const char *sql, const char *condition,
                                       const struct type *type, struct arena *arena)
{
    struct expression *args[4];
    struct expression *filter = aggregate->as.aggregate->filter;
    uint32_t n = aggregate->n_args;
    struct buf text = {0};
    for (uint32_t i = 0; i < n; i++) {
        args[i] = aggregate->args[i];
    }
    const char *at = strchr(sql, '%');
    ASSERT(at != NULL);
    buf_append(&text, sql, (size_t)(at - sql));
    write_filter(&text, condition, filter != NULL, n);
    buf_text(&text, at + 1);
    if (filter != NULL) {
        args[n++] = filter;
    }
    struct expression *partial = expression_template(arena, arena_strdup(arena, text.data), type, args, n);
    buf_deinit(&text);
    return partial;
}

/* CAST(f(@0, @1)% EXPORT_STATE AS BLOB) */
static struct expression *make_state(const struct expression *aggregate, struct arena *arena)
{
    struct buf text = {0};
    buf_format(&text, "CAST(\"%s\"(%s)%% EXPORT_STATE AS BLOB)", aggregate->as.aggregate->name,
               aggregate->n_args == 1 ? "@0" : "@0, @1");
    struct expression *partial = make_partial(aggregate, text.data, NULL, type_plain(TYPE_BLOB), arena);
    buf_deinit(&text);
    return partial;
}

static const struct aggregate_rule *find_rule(const struct aggregate_rule *rules, const struct expression *aggregate)
{
    const struct aggregate_call *call = aggregate->as.aggregate;
    for (const struct aggregate_rule *rule = rules; rule->name != NULL; rule++) {
        if (strcmp(rule->name, call->name) == 0) {
            bool is_fitting = rule->n_args == aggregate->n_args && call->n_orders == 0 &&
                              (!call->is_distinct || rule->ignores_distinct);
            return is_fitting ? rule : NULL;
        }
    }
    return NULL;
}

bool aggregate_split(const struct aggregate_rule *rules, const struct expression *aggregate, struct arena *arena,
                     struct aggregate_parts *out)
{
    if (aggregate->kind != EXPRESSION_AGGREGATE) {
        return false;
    }
    const struct aggregate_rule *rule = find_rule(rules, aggregate);
    if (rule == NULL || !type_has_sql(aggregate->type) ||
        (rule->needs_number && sum_type(aggregate->args[0]->type, arena) == NULL)) {
        return false;
    }
    struct aggregate_parts parts = {.rule = rule, .whole = aggregate};
    for (uint32_t i = 0; i < aggregate->n_args; i++) {
        if (!type_has_sql(aggregate->args[i]->type)) {
            return false;
        }
    }
    if (rule->is_state) {
        parts.partials[parts.n++] = make_state(aggregate, arena);
    }
    for (uint32_t i = 0; i < AGGREGATE_PARTIALS_MAX && !rule->is_state && rule->partials[i].sql != NULL; i++) {
        const struct aggregate_partial *partial = &rule->partials[i];
        parts.partials[parts.n++] = make_partial(aggregate, partial->sql, partial->condition,
                                                 partial_type_of(partial->type, aggregate, arena), arena);
    }
    *out = parts;
    return true;
}

/*
 * A BLOB becomes a state again by combining it with an empty state of the right type, which SQL can only make by
 * aggregating no rows.
 */
static void write_final_state(struct buf *sql, const struct expression *aggregate)
{
    const char *name = aggregate->as.aggregate->name;
    buf_format(sql, "finalize(list_reduce(list(combine((SELECT \"%s\"(%s) EXPORT_STATE FROM (SELECT ", name,
               aggregate->n_args == 1 ? "z0" : "z0, z1");
    for (uint32_t i = 0; i < aggregate->n_args; i++) {
        buf_text(sql, i == 0 ? "CAST(NULL AS " : ", CAST(NULL AS ");
        write_type(sql, aggregate->args[i]->type);
        buf_format(sql, ") AS z%u", (unsigned)i);
    }
    buf_text(sql, " WHERE false)), @0)), lambda x, y: combine(x, y)))");
}

struct expression *aggregate_final(const struct aggregate_parts *parts, uint32_t first, struct arena *arena)
{
    struct expression *args[AGGREGATE_PARTIALS_MAX];
    struct buf text = {0};
    for (uint32_t i = 0; i < parts->n; i++) {
        args[i] = expression_ref(arena, first + i, parts->partials[i]->type);
    }
    buf_text(&text, "CAST(");
    if (parts->rule->is_state) {
        write_final_state(&text, parts->whole);
    } else {
        buf_text(&text, parts->rule->final);
    }
    buf_text(&text, " AS ");
    write_type(&text, parts->whole->type);
    buf_char(&text, ')');
    struct expression *final =
        expression_template(arena, arena_strdup(arena, text.data), parts->whole->type, args, parts->n);
    buf_deinit(&text);
    return final;
}
