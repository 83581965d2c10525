/*
 * Tables that ascend by a key are joined and grouped where they are read (cut_range.c): keys at the bounds of ranges, without
 * values, of all integer types, in files that overlap, are empty, are named twice or differ in their columns. And conditions on files whose types differ.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "query/data.h"
#include "query/runner.h"
#include "test.h"

/* A row group of DuckDB has at least 2048 rows. */
#define COPY_TO(select, file) "COPY (" select ") TO '{ugly}/" file "' (FORMAT parquet, ROW_GROUP_SIZE 2048);"

#define TYPES(d, x, s, n, w)                                                                                           \
    "SELECT " d " AS d, " x " AS x, " s " AS s, " n " AS n, " w " AS w, i AS k, 'a' AS g FROM range(5000) r(i)"

#define NAMES(more)                                                                                                    \
    "SELECT i AS id, {'id': (i % 20)::VARCHAR, 'value': i % 7} AS n, i % 9 AS value, 'k' || i % 10 AS key, "           \
    "MAP {'a': (i % 4)::VARCHAR} AS tags" more " FROM range(5000) r(i)"

static const char *const files[] = {
    COPY_TO("SELECT (i * 3 - 15000)::INTEGER AS k, i % 7 AS g, CASE WHEN i % 5 > 0 THEN i % 11 END AS n, "
            "'n' || i AS s FROM range(12000) r(i)",
            "range-o.parquet"),
    COPY_TO("SELECT (i // 4 - 5000)::INTEGER AS k, i % 13 AS q, i AS id FROM range(40000) r(i)", "range-l.parquet"),
    COPY_TO("SELECT (i // 1500)::INTEGER AS k, i AS id FROM range(30000) r(i)", "range-dup.parquet"),
    COPY_TO("SELECT (CASE WHEN i % 10 > 0 THEN i END)::INTEGER AS k, i AS id FROM range(12000) r(i)",
            "range-null.parquet"),
    COPY_TO("SELECT (CASE WHEN i < 5000 THEN -9223372036854775808 + i ELSE 9223372036854775807 - 9999 + i END)::BIGINT "
            "AS k, i AS id FROM range(10000) r(i)",
            "range-limit.parquet"),
    COPY_TO("SELECT (i * 429496)::UINTEGER AS k, i AS id FROM range(10000) r(i)", "range-unsigned.parquet"),
    COPY_TO("SELECT (i * 2)::INTEGER AS k, i AS id FROM range(10000) r(i)", "range-v0.parquet"),
    COPY_TO("SELECT (i * 2 + 1)::INTEGER AS k, i AS id FROM range(10000) r(i)", "range-v1.parquet"),
    COPY_TO("SELECT 0::INTEGER AS k, 0::BIGINT AS id WHERE false", "range-v2.parquet"),
    /* The same columns in other places. */
    COPY_TO("SELECT i AS k, i * 1000 AS b, i % 3 AS g FROM range(0, 7000) r(i)", "range-p0.parquet"),
    COPY_TO("SELECT i * 1000 AS b, i AS k, i % 3 AS g FROM range(7000, 13000) r(i)", "range-p1.parquet"),
    COPY_TO("SELECT i AS k, i * 1000 AS b, i % 3 AS g FROM range(13000, 22000) r(i)", "range-p2.parquet"),
    /* A column whose type is narrower in a file that is not the first. */
    COPY_TO("SELECT i AS k, i AS b, i % 3 AS g FROM range(0, 8192) r(i)", "range-t0.parquet"),
    COPY_TO("SELECT i AS k, i::INTEGER AS b, i % 3 AS g FROM range(8192, 12288) r(i)", "range-t1.parquet"),
    COPY_TO("SELECT i AS k, i * 10000000000 AS b, i % 3 AS g FROM range(12288, 16384) r(i)", "range-t2.parquet"),
    /* The type of a file without rows, which is the first. */
    COPY_TO("SELECT 0::INTEGER AS k, 0::BIGINT AS b WHERE false", "range-x0.parquet"),
    COPY_TO("SELECT DATE '2020-01-01' + i::INTEGER AS k, i AS b FROM range(10000) r(i)", "range-x1.parquet"),
    COPY_TO("SELECT 0::INTEGER AS k, 0::BIGINT AS b WHERE false", "range-y0.parquet"),
    COPY_TO("SELECT i AS k, i AS b FROM range(10000) r(i)", "range-y1.parquet"),
    /* Types in which conditions mean something else, and in which they do not. */
    COPY_TO(
        TYPES("DATE '2020-01-01' + (i % 9)::INTEGER", "i % 5", "(i % 30)::VARCHAR", "{'a': i % 3}", "(i % 5)::INTEGER"),
        "types-0.parquet"),
    COPY_TO(TYPES("TIMESTAMP '2020-01-01 10:00' + to_days((i % 9)::INTEGER)", "i % 5 + 0.4::DOUBLE",
                  "(i % 30)::INTEGER", "{'a': (i % 3)::SMALLINT}", "i % 5"),
            "types-1.parquet"),
    COPY_TO(NAMES(""), "names-0.parquet"),
    COPY_TO(NAMES(", i AS more"), "names-1.parquet"),
    "COPY (SELECT *, 0 AS p FROM '{ugly}/types-0.parquet') TO '{ugly}/types' (FORMAT parquet, PARTITION_BY (p), OVERWRITE)",
    "COPY (SELECT *, 1 AS p FROM '{ugly}/types-1.parquet') TO '{ugly}/types' (FORMAT parquet, PARTITION_BY (p), APPEND)",
};

static const struct run_options ways[] = {
    {.cut = {.partitions = 3, .slots = 4, .is_forced = true, .broadcast_bytes = 1}},
    {.cut = {.partitions = 5, .slots = 9, .is_forced = true, .broadcast_bytes = 20000}, .is_refined = true},
    {.cut = {.partitions = 2, .slots = 2, .is_forced = true, .broadcast_bytes = 200000, .tail_bytes = LIMIT_QUANTITY},
     .is_refined = true},
    {.cut = {.partitions = 3, .slots = 2, .is_forced = true}}, /* nothing by ranges */
};

static struct runner open_runner(void)
{
    struct runner runner = {0};
    struct error e = {0};
    CHECK_ERR(runner_open(&runner, &e), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        enum err err = duck_run(runner.connection, test_fill_in(files[i]), &e);
        CHECK_STR(e.message, "");
        CHECK_ERR(err, ERR_OK);
    }
    return runner;
}

/*
 * Runs the query in all ways. `n_shares_min`: of how many shares the files must be that are read in most. Returns how many
 * stages it had in the first way.
 */
static uint32_t compare_all(struct runner *runner, const char *text, uint32_t n_shares_min)
{
    const char *sql = test_fill_in(text);
    uint32_t n_stages = 0;
    struct table expected = {0};
    struct error e = {0};
    CHECK_ERR(run_whole(runner, sql, &expected, &e), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct table actual = {0};
        struct run_facts facts;
        struct buf difference = {0};
        enum err err = run_cut(runner, sql, &ways[i], &actual, &facts, &e);
        bool is_same = err == ERR_OK && table_equal(&expected, &actual, ORDER_IS_FREE, &difference);
        if (!is_same) {
            fprintf(stderr, "%s\n  way %zu: %s%s\n", sql, i, e.message, difference.n > 0 ? difference.data : "");
        }
        CHECK(is_same);
        CHECK(!facts.is_single);
        CHECK_INT(facts.n_splits_max > 0, n_shares_min > 0);
        CHECK(facts.n_splits_max >= n_shares_min);
        n_stages = i == 0 ? facts.n_stages : n_stages;
        buf_deinit(&difference);
        table_deinit(&actual);
    }
    table_deinit(&expected);
    return n_stages;
}

static uint32_t compare(struct runner *runner, const char *text)
{
    return compare_all(runner, text, 1);
}

#define O "'{ugly}/range-o.parquet'"
#define L "'{ugly}/range-l.parquet'"
#define DUP "'{ugly}/range-dup.parquet'"
#define NUL "'{ugly}/range-null.parquet'"
#define V "'{ugly}/range-v*.parquet'"

static const struct {
    const char *sql;
    uint32_t n_stages; /* by ranges; 0: as many as it takes */
} queries[] = {
    {"SELECT o.k, o.s, l.id FROM " O " o JOIN " L " l USING (k)", 1},
    {"SELECT o.k, l.id, l.k FROM " O " o FULL JOIN " L " l ON o.k = l.k AND o.g < l.q", 1},
    {"SELECT l.k, count(*) FROM " O " o LEFT JOIN " L " l ON o.k = l.k GROUP BY l.k", 2}, /* NULLs are everywhere */
    {"SELECT a.k, b.k, c.id FROM " O " a RIGHT JOIN " L " b ON a.k = b.k AND b.q = 3 LEFT JOIN " V " c ON c.k = a.k",
     0},
    {"SELECT o.k FROM " O " o ANTI JOIN " L " l ON o.k = l.k AND l.q = 3", 1},
    {"SELECT k, count(*), sum(id) FROM " DUP " GROUP BY k", 1}, /* keys that row groups share */
    {"SELECT k, id % 2 AS x, count(*) FROM " DUP " GROUP BY ROLLUP (k, x)", 0},
    {"SELECT k, count(*) FROM " NUL " GROUP BY k", 2},
    {"SELECT o.k, l.k FROM " O " o FULL JOIN " NUL " l ON o.k = l.k", 0},
    {"SELECT a.k, count(*) FROM '{ugly}/range-limit.parquet' a JOIN '{ugly}/range-limit.parquet' b USING (k) GROUP BY a.k",
     1},
    {"SELECT k, count(*) FROM '{ugly}/range-unsigned.parquet' GROUP BY k", 1},
    {"SELECT k, count(*), min(id) FROM " V " GROUP BY k", 1}, /* they overlap, and one is empty */
    {"SELECT a.k, count(*), sum(b.id) FROM read_parquet(['{ugly}/range-v0.parquet', '{ugly}/range-v0.parquet']) a JOIN "
     "read_parquet(['{ugly}/range-v1.parquet', '{ugly}/range-v0.parquet', '{ugly}/range-v0.parquet']) b USING (k) "
     "GROUP BY a.k",
     1},
    {"SELECT k, sum(c) FROM (SELECT k, count(*) AS c FROM " DUP " GROUP BY k UNION ALL SELECT k, count(*) FROM " L
     " GROUP BY k UNION ALL SELECT 5, 6) GROUP BY k",
     0},
    {"WITH x AS MATERIALIZED (SELECT k, count(*) AS c FROM " L
     " GROUP BY k) SELECT a.k, b.c FROM x a JOIN x b USING (k) "
     "JOIN " O " o USING (k)",
     0},
    {"SELECT k, sum(id) OVER (PARTITION BY k) FROM (SELECT k, l.id FROM " L " l JOIN " O " o USING (k))", 1},
    {"SELECT a.k, b.id FROM " O " a ASOF LEFT JOIN " L " b ON a.k = b.k AND a.g >= b.q", 1},
    {"SELECT o.k, o.g FROM " O " o WHERE NOT EXISTS (SELECT 1 FROM " L " l WHERE l.k = o.k AND l.q = o.n)", 1},
    {"SELECT o.k FROM " O " o WHERE NOT EXISTS (SELECT 1 FROM " L
     " l WHERE l.k = o.k AND l.q IS NOT DISTINCT FROM o.n)",
     1},
    {"SELECT o.k, (SELECT count(*) FROM " L " l WHERE l.k = o.k AND l.q > o.n) FROM " O " o", 1},
    {"SELECT o.k FROM " O " o WHERE o.n NOT IN (SELECT l.q FROM " L " l WHERE l.k = o.k)", 0},
    {"SELECT o.k FROM " O " o WHERE EXISTS (SELECT 1 FROM " L " l WHERE l.k = o.k AND EXISTS (SELECT 1 FROM " V
     " v WHERE v.k = l.k AND v.id > o.g))",
     0},
    {"SELECT o.k, x.c, y.m FROM " O " o, LATERAL (SELECT count(*) AS c FROM " L
     " l WHERE l.k = o.k) x, LATERAL (SELECT "
     "max(v.id) AS m FROM " V " v WHERE v.k = o.k AND v.id > x.c) y",
     0},
};

TEST(tables_that_ascend_are_joined_and_grouped_where_they_are_read)
{
    struct runner runner = open_runner();
    for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
        uint32_t n_stages = compare(&runner, queries[i].sql);
        CHECK_UINT(n_stages, queries[i].n_stages > 0 ? queries[i].n_stages : n_stages);
    }
    runner_close(&runner);
}

/* No task reads two files that differ: it would know the columns of one of them only. */
TEST(files_whose_columns_differ_are_read_as_the_first_one_says)
{
    struct runner runner = open_runner();
    static const char *const names[] = {"p", "t"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char sql[200];
        snprintf(sql, sizeof sql, "SELECT g, count(*), sum(k), sum(b) FROM '{ugly}/range-%s*.parquet' GROUP BY g",
                 names[i]);
        (void)compare(&runner, sql);
        snprintf(sql, sizeof sql, "SELECT k, sum(b) FROM '{ugly}/range-%s*.parquet' GROUP BY k", names[i]);
        (void)compare(&runner, sql);
        snprintf(sql, sizeof sql,
                 "SELECT o.k, sum(p.b) FROM " V " o JOIN '{ugly}/range-%s*.parquet' p ON o.k = p.k "
                 "GROUP BY o.k",
                 names[i]);
        (void)compare(&runner, sql);
    }
    runner_close(&runner);
}

TEST(files_whose_types_cannot_be_cast_fail_by_the_cast_and_not_by_a_range)
{
    static const char sql[] = "SELECT k, count(*) FROM '{ugly}/range-x*.parquet' GROUP BY k";
    struct runner runner = open_runner();
    struct error e = {0};
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct table actual = {0};
        struct run_facts facts;
        CHECK(run_cut(&runner, test_fill_in(sql), &ways[i], &actual, &facts, &e) != ERR_OK);
        if (strstr(e.message, "Unimplemented type for cast (DATE -> INTEGER)") == NULL) {
            fprintf(stderr, "way %zu: %s\n", i, e.message);
            CHECK(false);
        }
    }
    /* Whole numbers may be of any width. */
    CHECK_UINT(compare(&runner, "SELECT k, count(*) FROM '{ugly}/range-y*.parquet' GROUP BY k"), 1);
    runner_close(&runner);
}

/*
 * Conditions that DuckDB checks inside of a scan it moves over to the types of the files; so one task reads all of them. If
 * the condition is not on a column whose type differs, or only its width does, they are shared out.
 */
TEST(files_whose_types_differ_in_a_column_with_a_condition_are_read_by_one_task)
{
    static const struct {
        const char *condition;
        uint32_t n_shares_min;
    } cases[] = {
        {"d = DATE '2020-01-03'", 0},
        {"d <= DATE '2020-01-03'", 0},
        {"x = 1", 0},
        {"x > 3", 0},
        {"s = '7'", 0},
        {"s < '2'", 0},
        {"n.a = 1", 0},
        {"k < 7000", 2},
        {"w = 3", 2},
        {"w > 100000", 2},
        {"g = 'a'", 2},
    };
    struct runner runner = open_runner();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char sql[300];
        snprintf(sql, sizeof sql,
                 "SELECT count(*), sum(k), min(d), max(x), max(s) FROM '{ugly}/types-[01].parquet' WHERE %s",
                 cases[i].condition);
        compare_all(&runner, sql, cases[i].n_shares_min);
    }
    /* What DuckDB leaves out may be the file that has said what the types are (see pruned_test.c, too). */
    compare_all(&runner, "SELECT x, d, s, w, typeof(x) FROM '{ugly}/types/*/*.parquet' WHERE p = 1 AND k % 9 = 0", 1);
    /* Other tables of the query are shared out. */
    compare_all(&runner,
                "SELECT count(*), sum(l.id) FROM '{ugly}/types-[01].parquet' t JOIN " L " l ON t.k = l.k WHERE t.x > 3",
                2);
    runner_close(&runner);
}

/* What is inside of columns may be called as others are, and new columns come with time. */
TEST(files_are_shared_out_if_a_column_with_a_condition_has_one_type)
{
    static const char *const conditions[] = {"id > 10", "value > 3", "n.id < '9'", "n.value > 2 AND key = 'k5'",
                                             "tags['a'] = '3'"};
    struct runner runner = open_runner();
    for (size_t i = 0; i < ARRAY_LEN(conditions); i++) {
        char sql[300];
        snprintf(sql, sizeof sql,
                 "SELECT count(*), sum(id), min(n), max(key) FROM '{ugly}/names-[01].parquet' WHERE %s", conditions[i]);
        compare_all(&runner, sql, 2);
    }
    runner_close(&runner);
}
