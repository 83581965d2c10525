#include "query/table.h"

#include "query/data.h"
#include "test.h"

/* Whether the comparison takes one cell for the other, in a column of that type. */
static bool is_same(const char *type, const char *expected, const char *actual, enum table_order order)
{
    const char *name = "c";
    const char *const *rows_a[] = {&expected};
    const char *const *rows_b[] = {&actual};
    struct table a = {.n_columns = 1, .names = &name, .types = &type, .n_rows = 1, .rows = (const char ***)rows_a};
    struct table b = {.n_columns = 1, .names = &name, .types = &type, .n_rows = 1, .rows = (const char ***)rows_b};
    struct buf difference = {0};
    bool is_equal = table_equal(&a, &b, order, &difference);
    buf_deinit(&difference);
    return is_equal;
}

TEST(of_a_nan_only_the_sign_may_differ)
{
    static const enum table_order orders[] = {ORDER_MATTERS, ORDER_IS_FREE};
    for (size_t i = 0; i < 2; i++) {
        CHECK(is_same("DOUBLE", "nan", "-nan", orders[i]));
        CHECK(is_same("FLOAT", "-nan", "nan", orders[i]));
        CHECK(is_same("DOUBLE[]", "[1.5, nan, NULL]", "[1.5, -nan, NULL]", orders[i]));
        CHECK(is_same("STRUCT(a DOUBLE, b VARCHAR)", "{'a': -nan, 'b': x}", "{'a': nan, 'b': x}", orders[i]));
        CHECK(!is_same("DOUBLE", "nan", "0.0", orders[i]));
        CHECK(!is_same("DOUBLE", "nan", "inf", orders[i]));
        CHECK(!is_same("DOUBLE", "inf", "-inf", orders[i]));
        CHECK(!is_same("DOUBLE", "nan", NULL, orders[i]));
        CHECK(!is_same("DOUBLE[]", "[nan, 1.5]", "[-nan, -1.5]", orders[i]));
        CHECK(!is_same("VARCHAR", "nan", "-nan", orders[i])); /* a text is what it is */
        CHECK(!is_same("STRUCT(a DOUBLE, b VARCHAR)", "{'a': 1.5, 'b': x-nan}", "{'a': 1.5, 'b': xnan}", orders[i]));
    }
}

TEST(fractions_may_differ_in_their_last_digits_only)
{
    CHECK(is_same("DOUBLE", "0.1", "0.10000000000000001", ORDER_MATTERS));
    CHECK(!is_same("DOUBLE", "0.1", "0.1000001", ORDER_MATTERS));
    CHECK(!is_same("BIGINT", "1000000000001", "1000000000002", ORDER_MATTERS));
}

TEST(what_is_exact_may_not_differ_at_all)
{
    static const char *const types[] = {"DECIMAL(38,2)", "DECIMAL(18,3)[]", "VARCHAR", "TIMESTAMP", "JSON"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        CHECK(is_same(types[i], "1234567890123.25", "1234567890123.25", ORDER_MATTERS));
        CHECK(!is_same(types[i], "1234567890123.25", "1234567890123.26", ORDER_MATTERS));
        CHECK(!is_same(types[i], "1234567890123.25", "1234567890123.26", ORDER_IS_FREE));
        CHECK(!is_same(types[i], "0.1", "0.10", ORDER_MATTERS));
    }
    CHECK(is_same("STRUCT(a DOUBLE, b DECIMAL(18,2))", "{'a': 0.1, 'b': 1.00}", "{'a': 0.10000000000000001, 'b': 1.00}",
                  ORDER_MATTERS));
}

/* Whether a result with `actual` rows passes for one with `expected`, which are all different. */
static bool is_same_count(uint32_t expected, uint32_t actual, enum table_order order)
{
    static const char *const texts[] = {"1", "2", "3", "4"};
    const char *name = "c";
    const char *type = "INTEGER";
    const char *const *rows[] = {&texts[0], &texts[1], &texts[2], &texts[3]};
    struct table a = {.n_columns = 1, .names = &name, .types = &type, .n_rows = expected, .rows = (const char ***)rows};
    struct table b = {.n_columns = 1, .names = &name, .types = &type, .n_rows = actual, .rows = (const char ***)rows};
    b.rows += 1; /* none is where it is in the other */
    struct buf difference = {0};
    bool is_equal = table_equal(&a, &b, order, &difference);
    buf_deinit(&difference);
    return is_equal;
}

TEST(rows_that_differ_each_time_are_counted_where_their_number_is_fixed)
{
    CHECK(!is_same_count(3, 3, ORDER_IS_FREE));
    CHECK(is_same_count(3, 3, COUNT_ONLY));
    CHECK(!is_same_count(3, 2, COUNT_ONLY));
    CHECK(!is_same_count(3, 0, COUNT_ONLY));
    CHECK(is_same_count(3, 0, TYPES_ONLY));
}

TEST(of_the_queries_whose_rows_differ_each_time_only_those_that_take_rows_by_chance_are_not_counted)
{
    uint32_t n = 0;
    uint32_t n_counted = 0;
    uint32_t n_uncounted = 0;
    const struct test_query *queries = test_queries("wide.sql", &n);
    for (uint32_t i = 0; i < n; i++) {
        enum table_order order = test_query_order(&queries[i]);
        n_counted += order == COUNT_ONLY ? 1 : 0;
        n_uncounted += order == TYPES_ONLY ? 1 : 0;
    }
    CHECK_UINT(n_counted, 4);
    CHECK_UINT(n_uncounted, 2); /* samples of so many percent */
}
