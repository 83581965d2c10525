/* custom(…) in SQL: each query is run in stages, with operators of the test, and compared with plain SQL in one piece. */
#include <stdio.h>
#include <string.h>

#include "query/data.h"
#include "query/runner.h"
#include "test.h"

static struct runner open_runner(void)
{
    struct runner runner = {0};
    struct error e = {0};
    CHECK_ERR(runner_open(&runner, &e), ERR_OK);
    runner.tables = test_data()->tables;
    runner.n_tables = test_data()->n_tables;
    test_create_views(runner.connection);
    return runner;
}

static const struct run_options forced = {.cut = {.partitions = 3, .slots = 4, .is_forced = true},
                                          .is_refined = true,
                                          .refine_bytes = 1000};
static const struct run_options single = {.cut = {.slots = 4, .single_task_bytes = UINT64_MAX}};

/* Runs the query with operators, cut as far as it goes, and not cut at all; both must be as the plain one. */
static struct run_facts check_both(struct runner *runner, const char *sql, const char *plain)
{
    struct table expected = {0};
    struct run_facts facts[2];
    struct error e = {0};
    CHECK_ERR(run_whole(runner, plain, &expected, &e), ERR_OK);
    for (int i = 0; i < 2; i++) {
        struct table actual = {0};
        struct buf difference = {0};
        e = (struct error){0};
        enum err err = run_cut(runner, sql, i == 0 ? &forced : &single, &actual, &facts[i], &e);
        CHECK_STR(e.message, "");
        CHECK_ERR(err, ERR_OK);
        if (!table_equal(&expected, &actual, facts[i].is_ordered ? ORDER_MATTERS : ORDER_IS_FREE, &difference)) {
            CHECK_STR(difference.data, sql);
        }
        buf_deinit(&difference);
        table_deinit(&actual);
    }
    CHECK(facts[1].is_single);
    table_deinit(&expected);
    return facts[0];
}

TEST(an_operator_sees_the_rows_of_several_tasks)
{
    struct runner runner = open_runner();
    struct run_facts facts = check_both(
        &runner, "SELECT * FROM custom('add', (SELECT l_orderkey AS a, l_comment FROM lineitem), config := '{}')",
        "SELECT CAST(l_orderkey + 5 AS BIGINT) AS a, l_comment FROM lineitem");
    CHECK(!facts.is_single);
    CHECK(facts.n_operator_tasks > 1);
    runner_close(&runner);
}

TEST(an_operator_may_read_a_join_and_be_aggregated)
{
    struct runner runner = open_runner();
    struct run_facts facts = check_both(
        &runner,
        "SELECT c_mktsegment, sum(a) AS s, count(*) FROM custom('add', (SELECT o_orderkey AS a, c_mktsegment "
        "FROM orders JOIN customer ON o_custkey = c_custkey), config := '{\"by\": 100}') AS x "
        "WHERE a % 3 = 1 GROUP BY c_mktsegment ORDER BY s",
        "SELECT c_mktsegment, sum(CAST(o_orderkey + 100 AS BIGINT)) AS s, count(*) FROM orders JOIN customer ON "
        "o_custkey = c_custkey WHERE (o_orderkey + 100) % 3 = 1 GROUP BY c_mktsegment ORDER BY s");
    CHECK(!facts.is_single);
    CHECK(facts.n_operator_tasks > 1);
    runner_close(&runner);
}

TEST(an_operator_may_change_the_columns_and_yield_rows_for_no_rows)
{
    struct runner runner = open_runner();
    check_both(&runner, "SELECT sum(n) AS n FROM custom('count', (SELECT * FROM orders))",
               "SELECT sum(n) AS n FROM (SELECT count(*) AS n FROM orders)");
    check_both(&runner,
               "SELECT sum(n) AS n, count(*) > 0 AS has_rows FROM custom('count', (SELECT a.o_orderkey FROM orders "
               "a JOIN orders b ON a.o_orderkey = b.o_orderkey AND b.o_totalprice < -5))",
               "SELECT sum(n) AS n, true AS has_rows FROM (SELECT 0::BIGINT AS n)");
    runner_close(&runner);
}

TEST(an_operator_over_one_task_sees_all_rows)
{
    struct runner runner = open_runner();
    struct run_facts facts =
        check_both(&runner, "SELECT n FROM custom('count', (SELECT * FROM orders ORDER BY o_orderkey LIMIT 100))",
                   "SELECT 100::BIGINT AS n");
    CHECK(!facts.is_single);
    CHECK_UINT(facts.n_operator_tasks, 1);
    check_both(&runner, "SELECT n FROM custom('count', (SELECT 1))", "SELECT 1::BIGINT AS n");
    runner_close(&runner);
}

TEST(operators_can_be_joined_nested_and_used_in_subqueries)
{
    struct runner runner = open_runner();
    check_both(
        &runner,
        "SELECT x.a, y.v FROM custom('add', (SELECT o_orderkey AS a FROM orders)) x JOIN custom('add', (SELECT "
        "l_orderkey AS a, l_quantity AS v FROM lineitem), config := '{\"by\":6}') y ON x.a = y.a",
        "SELECT CAST(o_orderkey + 5 AS BIGINT) AS a, l_quantity AS v FROM orders JOIN lineitem ON o_orderkey + 5 = "
        "l_orderkey + 6");
    struct run_facts facts = check_both(
        &runner,
        "SELECT a FROM custom('add', (SELECT a FROM custom('add', (SELECT o_orderkey AS a FROM orders WHERE 50 < "
        "o_orderkey), config := '{\"by\": 1}') WHERE a > 100), config := '{\"by\": 2}') WHERE a < 5000",
        "SELECT CAST(o_orderkey + 3 AS BIGINT) AS a FROM orders WHERE o_orderkey + 1 > 100 AND o_orderkey + 3 < 5000 AND "
        "50 < o_orderkey");
    CHECK(facts.n_operator_tasks > 2);
    check_both(
        &runner,
        "SELECT count(*) FROM orders WHERE o_orderkey IN (SELECT a FROM custom('add', (SELECT l_orderkey AS a FROM "
        "lineitem)))",
        "SELECT count(*) FROM orders WHERE o_orderkey IN (SELECT l_orderkey + 5 FROM lineitem)");
    runner_close(&runner);
}

TEST(an_operator_may_read_ctes_of_the_query_around_it)
{
    struct runner runner = open_runner();
    check_both(
        &runner,
        "WITH keys AS (SELECT o_orderkey AS a, o_custkey FROM orders), picked AS MATERIALIZED (SELECT a FROM keys WHERE "
        "o_custkey % 2 = 0), more AS (FROM custom('add', (SELECT a FROM picked))) SELECT m.a FROM more m JOIN more n "
        "ON m.a = n.a JOIN keys ON keys.a = m.a",
        "WITH keys AS (SELECT o_orderkey AS a, o_custkey FROM orders), more AS (SELECT CAST(a + 5 AS BIGINT) AS a FROM "
        "keys WHERE o_custkey % 2 = 0) SELECT m.a FROM more m JOIN more n ON m.a = n.a JOIN keys ON keys.a = m.a");
    runner_close(&runner);
}

TEST(a_query_that_cannot_be_cut_still_has_its_operators)
{
    struct runner runner = open_runner();
    struct run_facts facts = check_both(
        &runner,
        "WITH RECURSIVE t(i) AS (SELECT 1::BIGINT UNION ALL SELECT t.i + 1 FROM t WHERE i < 5) SELECT i, (SELECT count(*) "
        "FROM custom('add', (SELECT o_orderkey AS a FROM orders)) x WHERE x.a = i + 5) AS n FROM t ORDER BY i",
        "WITH RECURSIVE t(i) AS (SELECT 1::BIGINT UNION ALL SELECT t.i + 1 FROM t WHERE i < 5) SELECT i, (SELECT count(*) "
        "FROM orders WHERE o_orderkey = i) AS n FROM t ORDER BY i");
    CHECK(facts.n_operator_tasks > 0);
    /* A LIMIT that is not constant cannot be planned: the query is one task, and what the operators read one each. */
    facts = check_both(
        &runner,
        "SELECT a FROM custom('add', (SELECT a FROM custom('count', (SELECT * FROM orders)) x(a))) ORDER BY a "
        "LIMIT (SELECT max(n_nationkey) FROM nation)",
        "SELECT CAST(count(*) + 5 AS BIGINT) AS a FROM orders");
    CHECK(facts.is_single);
    CHECK_STR(facts.reason, "a LIMIT that is not constant");
    CHECK_UINT(facts.n_operator_tasks, 2);
    CHECK_UINT(facts.n_stages, 3);
    facts =
        check_both(&runner,
                   "SELECT max(a) AS a FROM custom('add', (SELECT o_orderkey AS a FROM orders ORDER BY a LIMIT (SELECT "
                   "max(n_nationkey) FROM nation)))",
                   "SELECT max(CAST(a + 5 AS BIGINT)) AS a FROM (SELECT o_orderkey AS a FROM orders ORDER BY a LIMIT "
                   "(SELECT max(n_nationkey) FROM nation))");
    CHECK_STR(facts.reason, "what custom('add', …) reads: a LIMIT that is not constant");
    facts = check_both(
        &runner,
        "PIVOT (SELECT * FROM custom('add', (SELECT o_orderkey % 3 AS a FROM orders))) ON a IN (5, 6, 7) USING "
        "count(*)",
        "PIVOT (SELECT CAST(o_orderkey % 3 + 5 AS BIGINT) AS a FROM orders) ON a IN (5, 6, 7) USING count(*)");
    CHECK(facts.n_operator_tasks > 0);
    runner_close(&runner);
}

static void check_error(struct runner *runner, const char *sql, enum err expected, const char *message)
{
    struct table table = {0};
    struct run_facts facts;
    struct error e = {0};
    enum err err = run_cut(runner, sql, &forced, &table, &facts, &e);
    if (strstr(e.message, message) == NULL) {
        CHECK_STR(e.message, message);
    }
    CHECK_ERR(err, expected);
    table_deinit(&table);
}

TEST(wrong_calls_are_explained)
{
    struct runner runner = open_runner();
    check_error(&runner, "SELECT * FROM custom('nix', (SELECT 1 AS a))", ERR_NOT_FOUND,
                "custom physical operator 'nix' is not registered on worker");
    check_error(&runner, "SELECT * FROM custom('add', (SELECT 1 AS a), config := '{\"by\":\"x\"}')", ERR_INVALID,
                "add: \"by\" must be a whole number");
    check_error(&runner, "SELECT * FROM custom()", ERR_INVALID,
                "the first argument of custom() must be the name of an operator, a text");
    check_error(&runner, "SELECT * FROM custom(7, (SELECT 1))", ERR_INVALID,
                "the first argument of custom() must be the name of an operator, a text");
    check_error(&runner, "SELECT * FROM custom('add')", ERR_INVALID,
                "the second argument of custom('add', …) must be a query in brackets");
    check_error(&runner, "SELECT * FROM custom('add', 'orders')", ERR_INVALID,
                "the second argument of custom('add', …) must be a query in brackets");
    check_error(&runner, "SELECT * FROM custom('add', EXISTS (SELECT 1))", ERR_INVALID,
                "the second argument of custom('add', …) must be a query in brackets");
    check_error(&runner, "SELECT * FROM custom('add', (SELECT 1 AS a), '{}')", ERR_INVALID,
                "custom('add', …) takes a query, and config := a text with JSON; nothing else");
    check_error(&runner, "SELECT * FROM custom('add', (SELECT 1 AS a), config := '{}', more := 1)", ERR_INVALID,
                "custom('add', …) takes a query, and config := a text with JSON; nothing else");
    check_error(&runner, "SELECT * FROM custom('add', (SELECT 1 AS a), config := 5)", ERR_INVALID,
                "custom('add', …) takes a query, and config := a text with JSON; nothing else");
    check_error(&runner, "SELECT * FROM custom('add', (SELECT 1 AS a), config := '[]')", ERR_INVALID,
                "the config of custom('add', …) must be a JSON object");
    check_error(&runner, "SELECT * FROM custom('add', (SELECT 1 AS a), config := '{')", ERR_INVALID,
                "the config of custom('add', …) must be a JSON object");
    check_error(&runner, "SELECT * FROM custom('add', (SELECT 1 AS a)) WITH ORDINALITY", ERR_INVALID,
                "custom('add', …) has no WITH ORDINALITY");
    check_error(&runner, "PIVOT (FROM Custom /* x */ ('add', (SELECT 1 AS a))) ON a USING count(*)", ERR_INVALID,
                "custom(…) can only be used in a plain SELECT");
    check_error(&runner, "SELECT * FROM custom('add', (SELECT x FROM nowhere))", ERR_INVALID, "nowhere");
    check_error(&runner, "SELECT b FROM custom('add', (SELECT 1 AS a))", ERR_INVALID, "\"b\"");
    check_error(&runner, "SELECT * FROM orders, custom('add', (SELECT o_orderkey AS a))", ERR_INVALID, "o_orderkey");
    /* After all that, the planner is as good as new. */
    check_both(&runner, "SELECT a FROM custom('add', (SELECT 1 AS a))", "SELECT 6::BIGINT AS a");
    runner_close(&runner);
}

TEST(parameters_reach_what_an_operator_reads)
{
    struct runner runner = open_runner();
    runner.params_json = "[50, \"x\"]";
    struct table table = {0};
    struct run_facts facts;
    struct error e = {0};
    CHECK_ERR(
        run_cut(&runner,
                "SELECT a, $2 AS t FROM custom('add', (SELECT $1::BIGINT AS a), config := '{\"by\":1}') WHERE a > $1",
                &forced, &table, &facts, &e),
        ERR_OK);
    CHECK_UINT(table.n_rows, 1);
    CHECK_STR(table.rows[0][0], "51");
    CHECK_STR(table.rows[0][1], "x");
    table_deinit(&table);
    runner_close(&runner);
}

TEST(statements_that_write_become_files_and_a_publish)
{
    struct runner runner = open_runner();
    struct run_facts facts = check_both(
        &runner,
        "COPY (SELECT o_orderkey, o_comment FROM orders WHERE o_orderkey % 2 = 0) TO '/data/out' (FORMAT parquet)",
        "SELECT o_orderkey, o_comment FROM orders WHERE o_orderkey % 2 = 0");
    CHECK(facts.is_published);
    CHECK(!facts.is_single);
    facts =
        check_both(&runner,
                   "CREATE TABLE big AS SELECT o_orderkey, count(*) AS n FROM orders JOIN lineitem ON o_orderkey = "
                   "l_orderkey GROUP BY ALL ORDER BY 1 DESC",
                   "SELECT o_orderkey, count(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey GROUP BY ALL "
                   "ORDER BY 1 DESC");
    CHECK(facts.is_published);
    facts = check_both(&runner, "COPY nation TO '/data/nation.csv' (HEADER, DELIM '|')", "SELECT * FROM nation");
    CHECK(facts.is_published);
    facts = check_both(&runner,
                       "COPY (SELECT a FROM custom('add', (SELECT o_orderkey AS a FROM orders))) TO '/x' (FORMAT json)",
                       "SELECT CAST(o_orderkey + 5 AS BIGINT) AS a FROM orders");
    CHECK(facts.is_published);
    CHECK(facts.n_operator_tasks > 1);
    facts = check_both(&runner, "COPY (SELECT 1 AS a WHERE false) TO '/x' (FORMAT csv)", "SELECT 1 AS a WHERE false");
    CHECK(facts.is_published);
    runner_close(&runner);
}

TEST(a_table_cannot_take_the_name_of_a_data_set_of_other_files)
{
    struct runner runner = open_runner();
    struct planner_table tables[] = {
        {.name = "nation", .source = runner.tables[1].source},
        {.name = "mine", .source = "/elsewhere/*.csv", .format = "csv"},
        {.name = "again", .source = "/warehouse/again/*.parquet", .format = "parquet"},
    };
    CHECK_STR(runner.tables[1].name, "nation");
    runner.tables = tables;
    runner.n_tables = ARRAY_LEN(tables);
    check_error(&runner, "CREATE TABLE mine AS SELECT * FROM nation", ERR_INVALID,
                "there is a data set 'mine' already, which reads /elsewhere/*.csv");
    check_error(&runner, "CREATE TABLE MINE AS SELECT * FROM nation", ERR_INVALID,
                "there is a data set 'mine' already");
    check_error(&runner, "CREATE TABLE nation AS SELECT * FROM nation", ERR_INVALID, "there is a data set 'nation'");
    /* What it made before, whose files somebody has removed, may be made again; and a folder is no data set. */
    CHECK(check_both(&runner, "CREATE TABLE again AS SELECT * FROM nation", "SELECT * FROM nation").is_published);
    CHECK(check_both(&runner, "COPY nation TO '/data/mine' (FORMAT csv)", "SELECT * FROM nation").is_published);
    runner_close(&runner);
}

TEST(statements_that_change_anything_else_are_refused)
{
    static const char *const statements[] = {
        "INSERT INTO orders SELECT * FROM orders",
        "DROP TABLE orders",
        "SET threads = 7",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "EXPORT DATABASE '/tmp/x'",
        "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1",
        "CREATE VIEW x AS SELECT 1",
        "SELECT 1; DROP TABLE orders",
        "PRAGMA threads = 1",
    };
    struct runner runner = open_runner();
    for (size_t i = 0; i < ARRAY_LEN(statements); i++) {
        struct table table = {0};
        struct run_facts facts;
        struct error e = {0};
        if (run_cut(&runner, statements[i], &single, &table, &facts, &e) != ERR_INVALID) {
            CHECK_STR(e.message, statements[i]);
        }
        table_deinit(&table);
    }
    check_error(&runner, "COPY orders FROM '/tmp/x.csv'", ERR_INVALID, "this COPY cannot be run");
    check_error(&runner, "COPY (SELECT nix FROM orders) TO '/x' (FORMAT csv)", ERR_INVALID, "nix");
    runner_close(&runner);
}
