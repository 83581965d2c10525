#include "query/aggregate.h"

#include <string.h>

#include "query/unparse.h"
#include "test.h"

struct fixture {
    struct arena arena;
    struct buf text;
};

static struct expression *make(struct fixture *f, const char *name, const struct type *result, uint32_t n,
                               const struct type *argument)
{
    struct expression *expression = arena_zalloc(&f->arena, sizeof *expression);
    expression->kind = EXPRESSION_AGGREGATE;
    expression->type = result;
    expression->n_args = n;
    expression->args = arena_zalloc(&f->arena, 2 * sizeof *expression->args);
    for (uint32_t i = 0; i < n; i++) {
        expression->args[i] = expression_ref(&f->arena, i, argument);
    }
    expression->as.aggregate = arena_zalloc(&f->arena, sizeof *expression->as.aggregate);
    expression->as.aggregate->name = name;
    return expression;
}

/* The partial values and the final one as SQL, with bars between. */
static const char *parts_of(struct fixture *f, const struct expression *aggregate)
{
    struct aggregate_parts parts;
    struct error e = {0};
    buf_reset(&f->text);
    buf_text(&f->text, "");
    if (!aggregate_split(aggregate_rules_default, aggregate, &f->arena, &parts)) {
        return "none";
    }
    for (uint32_t i = 0; i < parts.n; i++) {
        CHECK_ERR(unparse_expression(&f->text, parts.partials[i], NULL, &e), ERR_OK);
        buf_text(&f->text, " | ");
    }
    CHECK_ERR(unparse_expression(&f->text, aggregate_final(&parts, 5, &f->arena), NULL, &e), ERR_OK);
    return f->text.data;
}

static void fixture_close(struct fixture *f)
{
    buf_deinit(&f->text);
    arena_deinit(&f->arena);
}

TEST(aggregates_are_taken_apart_as_the_table_says)
{
    struct fixture f = {0};
    const struct type *bigint = type_plain(TYPE_BIGINT);
    const struct type *number = type_plain(TYPE_DOUBLE);
    CHECK_STR(parts_of(&f, make(&f, "count_star", bigint, 0, NULL)), "count(*) | CAST(coalesce(sum(c5), 0) AS BIGINT)");
    CHECK_STR(parts_of(&f, make(&f, "sum", type_plain(TYPE_HUGEINT), 1, bigint)), "sum(c0) | CAST(sum(c5) AS HUGEINT)");
    CHECK_STR(
        parts_of(&f, make(&f, "avg", number, 1, bigint)),
        "sum(c0) | count(c0) | CAST((CASE WHEN sum(c6) > 0 THEN CAST(sum(c5) AS DOUBLE) / CAST(sum(c6) AS DOUBLE) "
        "END) AS DOUBLE)");
    CHECK_STR(parts_of(&f, make(&f, "arg_max", bigint, 2, bigint)),
              "arg_max(c0, c1) | arg_max(c1, c1) FILTER (WHERE c0 IS NOT NULL) | CAST(arg_max(c5, c6) AS BIGINT)");
    fixture_close(&f);
}

TEST(a_filter_goes_into_every_partial_value)
{
    struct fixture f = {0};
    struct expression *aggregate = make(&f, "arg_min", type_plain(TYPE_BIGINT), 2, type_plain(TYPE_BIGINT));
    aggregate->as.aggregate->filter = expression_ref(&f.arena, 3, type_plain(TYPE_BOOLEAN));
    CHECK_STR(parts_of(&f, aggregate), "arg_min(c0, c1) FILTER (WHERE c3) | arg_min(c1, c1) FILTER (WHERE c0 IS NOT "
                                       "NULL AND c3) | CAST(arg_min(c5, c6) AS BIGINT)");
    fixture_close(&f);
}

TEST(states_travel_as_blobs)
{
    struct fixture f = {0};
    const char *parts = parts_of(&f, make(&f, "corr", type_plain(TYPE_DOUBLE), 2, type_plain(TYPE_DOUBLE)));
    CHECK(strstr(parts, "CAST(\"corr\"(c0, c1) EXPORT_STATE AS BLOB) | ") == parts);
    CHECK(strstr(parts, "finalize(list_reduce(list(combine((SELECT \"corr\"(z0, z1) EXPORT_STATE") != NULL);
    fixture_close(&f);
}

TEST(what_does_not_come_apart_is_left_alone)
{
    struct fixture f = {0};
    const struct type *bigint = type_plain(TYPE_BIGINT);
    CHECK_STR(parts_of(&f, make(&f, "median", bigint, 1, bigint)), "none");
    CHECK_STR(parts_of(&f, make(&f, "min", bigint, 2, bigint)), "none"); /* the n smallest */
    CHECK_STR(parts_of(&f, make(&f, "sum", bigint, 1, type_plain(TYPE_INTERVAL))), "none");
    struct expression *distinct = make(&f, "count", bigint, 1, bigint);
    distinct->as.aggregate->is_distinct = true;
    CHECK_STR(parts_of(&f, distinct), "none");
    struct expression *ordered = make(&f, "first", bigint, 1, bigint);
    ordered->as.aggregate->n_orders = 1;
    CHECK_STR(parts_of(&f, ordered), "none");
    struct expression *maximum = make(&f, "max", bigint, 1, bigint);
    maximum->as.aggregate->is_distinct = true; /* which changes nothing */
    CHECK_STR(parts_of(&f, maximum), "max(c0) | CAST(max(c5) AS BIGINT)");
    fixture_close(&f);
}

TEST(no_aggregate_is_in_the_table_twice)
{
    for (const struct aggregate_rule *a = aggregate_rules_default; a->name != NULL; a++) {
        for (const struct aggregate_rule *b = aggregate_rules_default; b < a; b++) {
            CHECK(strcmp(a->name, b->name) != 0);
        }
        CHECK(a->is_state || (a->final != NULL && a->partials[0].sql != NULL));
    }
}
