/* Planning: parameters, named data sets, files that need a stand-in, and what is an error rather than a fallback. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "query/data.h"
#include "query/plan_repeat.h"
#include "query/planner.h"
#include "query/unparse.h"
#include "test.h"

struct fixture {
    struct planner *planner;
    struct duck *duck;
    struct duck_connection *connection;
    struct arena arena;
    struct error e;
    struct buf text;
};

static struct fixture fixture_open(void)
{
    struct fixture f = {0};
    (void)test_data();
    CHECK_ERR(planner_open(&f.planner, &f.e), ERR_OK);
    CHECK_ERR(duck_open(&(struct duck_options){.threads = 1}, &f.duck, &f.e), ERR_OK);
    CHECK_ERR(duck_connect(f.duck, &f.connection, &f.e), ERR_OK);
    return f;
}

static void fixture_close(struct fixture *f)
{
    planner_close(f->planner);
    duck_disconnect(f->connection);
    duck_close(f->duck);
    arena_deinit(&f->arena);
    buf_deinit(&f->text);
}

static enum err plan_with(struct fixture *f, const char *sql, const char *params, struct plan **out)
{
    f->e = (struct error){0};
    return query_plan(f->planner, sql, params, test_data()->tables, test_data()->n_tables, &f->arena, out, &f->e);
}

static struct plan *plan(struct fixture *f, const char *sql, const char *params)
{
    struct plan *made = NULL;
    enum err err = plan_with(f, sql, params, &made);
    CHECK_STR(f->e.message, "");
    CHECK_ERR(err, ERR_OK);
    return made;
}

static enum err add_row(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(e);
    struct buf *text = context;
    buf_text(text, text->n > 0 ? ";" : "");
    for (uint32_t i = 0; i < n; i++) {
        buf_format(text, "%s%s", i > 0 ? "," : "", values[i].bytes == NULL ? "null" : values[i].bytes);
    }
    return ERR_OK;
}

/* The rows of the plan, run as SQL. */
static const char *rows_of_plan(struct fixture *f, const char *sql, const char *params)
{
    struct plan *made = plan(f, sql, params);
    struct buf text = {0};
    CHECK_STR(made->unsupported, NULL);
    CHECK_ERR(unparse_result(&text, made->root, made->columns, made->n_columns, &f->e), ERR_OK);
    buf_reset(&f->text);
    buf_text(&f->text, "");
    enum err err = duck_rows(f->connection, text.data, NULL, 0, add_row, &f->text, &f->e);
    CHECK_STR(f->e.message, "");
    CHECK_ERR(err, ERR_OK);
    buf_deinit(&text);
    return f->text.data;
}

TEST(parameters_are_filled_in_by_position_and_by_name)
{
    struct fixture f = fixture_open();
    CHECK_STR(rows_of_plan(&f, "SELECT ? + 1, ?, ?, ?", "[41, \"it's\", true, null]"), "42,it's,true,null");
    CHECK_STR(rows_of_plan(&f, "SELECT $2, $1, $2", "[1, \"two\"]"), "two,1,two");
    CHECK_STR(rows_of_plan(&f, "SELECT $b || $a", "{\"a\": \"x\", \"b\": \"y\"}"), "yx");
    CHECK_STR(rows_of_plan(&f, "SELECT typeof($1), typeof($2), typeof($3), typeof($4)",
                           "[5, 5000000000, 1.5, \"2020-01-01\"]"),
              "INTEGER,BIGINT,DECIMAL(2,1),VARCHAR");
    CHECK_STR(rows_of_plan(&f, "SELECT name FROM dims WHERE k < $1 AND since > $2 ORDER BY k LIMIT $3",
                           "[10, \"1999-12-04\", 2]"),
              "name 4;name 5");
    fixture_close(&f);
}

TEST(a_parameter_without_a_value_is_an_error)
{
    struct fixture f = fixture_open();
    struct plan *made = NULL;
    CHECK_ERR(plan_with(&f, "SELECT $1 + $2", "[1]", &made), ERR_INVALID);
    CHECK_STR(f.e.message, "the parameter $2 has no value");
    CHECK_ERR(plan_with(&f, "SELECT $who", NULL, &made), ERR_INVALID);
    CHECK_STR(f.e.message, "the parameter $who has no value");
    CHECK_ERR(plan_with(&f, "SELECT $1", "[[1]]", &made), ERR_INVALID);
    CHECK(strstr(f.e.message, "must be a text") != NULL);
    CHECK_ERR(plan_with(&f, "SELECT $1", "[1", &made), ERR_INVALID);
    CHECK(strstr(f.e.message, "not JSON") != NULL);
    CHECK(made == NULL);
    fixture_close(&f);
}

TEST(a_value_without_a_parameter_is_an_error)
{
    struct fixture f = fixture_open();
    struct plan *made = NULL;
    CHECK_ERR(plan_with(&f, "SELECT $1", "[1, 2]", &made), ERR_INVALID);
    CHECK_STR(f.e.message, "there is a value for the parameter $2, which the statement does not have");
    CHECK_ERR(plan_with(&f, "SELECT 1", "[1]", &made), ERR_INVALID);
    CHECK_ERR(plan_with(&f, "SELECT $b", "{\"a\": 1, \"b\": 2}", &made), ERR_INVALID);
    CHECK_STR(f.e.message, "there is a value for the parameter $a, which the statement does not have");
    CHECK(made == NULL);
    CHECK_STR(rows_of_plan(&f, "SELECT ? WHERE ? IN (SELECT $1 + 1)", "[1, 2]"), "1");
    fixture_close(&f);
}

/* Values are sought by their names, of which there may be many. */
TEST(many_parameters_do_not_take_long)
{
    enum { N = 40000 };
    struct fixture f = fixture_open();
    struct plan *made = NULL;
    struct buf sql = {0};
    struct buf params = {0};
    buf_text(&sql, "SELECT 1 WHERE 1 IN (");
    for (int i = 0; i < N; i++) {
        buf_format(&sql, "%s$p%d", i == 0 ? "" : ",", i);
        buf_format(&params, "%s\"p%d\":%d", i == 0 ? "{" : ",", N - 1 - i, i);
    }
    buf_text(&sql, ")");
    buf_text(&params, ",\"one_more\":1}");
    CHECK_ERR(plan_with(&f, sql.data, params.data, &made), ERR_INVALID);
    CHECK_STR(f.e.message, "there is a value for the parameter $one_more, which the statement does not have");
    buf_deinit(&sql);
    buf_deinit(&params);
    fixture_close(&f);
}

TEST(names_and_types_of_the_result_are_those_of_the_query)
{
    struct fixture f = fixture_open();
    struct plan *made = plan(&f, "SELECT k, k + 1, count(*) AS \"a b\", 1.5, k FROM dims GROUP BY k;", NULL);
    CHECK_UINT(made->n_columns, 5);
    CHECK_STR(made->columns[0].name, "k");
    CHECK_STR(made->columns[1].name, "(k + 1)");
    CHECK_STR(made->columns[2].name, "a b");
    CHECK_STR(made->columns[2].type, "BIGINT");
    CHECK_STR(made->columns[3].type, "DECIMAL(2,1)");
    CHECK_STR(made->columns[4].name, "k");
    fixture_close(&f);
}

TEST(what_is_wrong_with_a_query_is_said_in_the_words_of_duckdb)
{
    static const struct {
        const char *sql;
        enum err err;
        const char *part;
    } cases[] = {
        {"SELEC 1", ERR_INVALID, "syntax error"},
        {"SELECT nothing FROM dims", ERR_INVALID, "nothing"},
        {"SELECT * FROM nowhere", ERR_INVALID, "nowhere"},
        {"SELECT 1; SELECT 2", ERR_INVALID, "one statement is expected, not 2"},
        {"SELECT * FROM 'no/such/file.parquet'", ERR_NOT_FOUND, "no/such/file.parquet"},
        {"SELECT * FROM read_csv('no/such/file.csv')", ERR_NOT_FOUND, "no/such/file.csv"},
        {"", ERR_INVALID, ""},
    };
    struct fixture f = fixture_open();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan *made = NULL;
        CHECK_ERR(plan_with(&f, cases[i].sql, NULL, &made), cases[i].err);
        CHECK(strstr(f.e.message, cases[i].part) != NULL);
        CHECK(made == NULL);
    }
    fixture_close(&f);
}

/* With the line and the place in it, of what the user wrote. */
TEST(errors_are_those_that_duckdb_has_for_the_statement_by_itself)
{
    static const char *const cases[] = {
        "SELEC 1",
        "SELECT *\n  FRM dims",
        "SELECT 'abc",
        "SELECT citi FROM (SELECT 1 AS city)",
        "SELECT 1 AS a,\n       citi FROM (SELECT 1 AS city)",
        "SELECT sum('a'::DATE)",
        "SELECT nothing(1)",
        "SELECT citi, 'a line that is so long that DuckDB shows a part of it only', 'and goes on' FROM (SELECT 1 AS city)",
    };
    struct fixture f = fixture_open();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan *made = NULL;
        struct error expected = {0};
        CHECK_ERR(duck_run(f.connection, cases[i], &expected), ERR_INVALID);
        CHECK_ERR(plan_with(&f, cases[i], NULL, &made), ERR_INVALID);
        CHECK_STR(f.e.message, expected.message);
    }
    /* Here, DuckDB takes characters for bytes. */
    struct plan *made = NULL;
    CHECK_ERR(plan_with(&f, "SELECT 'é', 'ßßß' FRM a b c", NULL, &made), ERR_INVALID);
    CHECK_STR(strstr(f.e.message, "LINE"), "LINE 1: SELECT 'é', 'ßßß' FRM a b c\n                              ^");
    fixture_close(&f);
}

TEST(an_unknown_table_is_told_with_where_data_sets_are)
{
    struct fixture f = fixture_open();
    struct plan *made = NULL;
    CHECK_ERR(plan_with(&f, "SELECT * FROM ordes", NULL, &made), ERR_INVALID);
    CHECK(strstr(f.e.message, "Did you mean") == NULL && strstr(f.e.message, "LINE 1: SELECT * FROM ordes\n") != NULL);
    CHECK(strstr(f.e.hint, "`capstan table list`") != NULL);
    struct planner_table table = {.name = "gone", .source = "/nowhere/*.parquet"};
    CHECK_ERR(query_plan(f.planner, "FROM gone", NULL, &table, 1, &f.arena, &made, &f.e), ERR_NOT_FOUND);
    CHECK(strstr(f.e.message, "/nowhere/*.parquet") != NULL && strstr(f.e.message, "LINE") == NULL);
    fixture_close(&f);
}

TEST(a_query_that_cannot_be_planned_still_has_its_sql_with_views_and_parameters)
{
    struct fixture f = fixture_open();
    struct plan *made = plan(&f, "SELECT count(*) FROM (SELECT * FROM dims WHERE k < $1 LIMIT (SELECT 3))", "[100]");
    CHECK_STR(made->unsupported, "a LIMIT that is not constant");
    CHECK(made->root == NULL);
    CHECK_ERR(duck_rows(f.connection, made->sql, NULL, 0, add_row, &f.text, &f.e), ERR_OK);
    CHECK_STR(f.text.data, "3");
    fixture_close(&f);
}

TEST(statements_other_than_select_are_left_to_one_task)
{
    struct fixture f = fixture_open();
    CHECK(plan(&f, "EXPLAIN SELECT 1", NULL)->unsupported != NULL);
    CHECK(plan(&f, "SUMMARIZE SELECT 1", NULL)->sql != NULL);
    CHECK_UINT(plan(&f, "SUMMARIZE SELECT ';' AS a; -- all of it; \n ;", NULL)->n_columns, 12);
    CHECK_UINT(plan(&f, "DESCRIBE SELECT 1 AS a ;", NULL)->n_columns, 6);
    struct plan *made = NULL;
    CHECK_ERR(plan_with(&f, "CREATE TABLE x AS SELECT 1", NULL, &made), ERR_INVALID);
    CHECK(strstr(f.e.message, "`warehouse` is not set") != NULL);
    fixture_close(&f);
}

TEST(a_named_data_set_may_be_csv_or_json)
{
    struct fixture f = fixture_open();
    struct arena arena = {0};
    struct planner_table tables[] = {
        {.name = "Plain", .source = arena_format(&arena, "%s/plain.csv", test_data()->ugly)},
        {.name = "objects", .source = arena_format(&arena, "%s/facts.json", test_data()->ugly), .format = "json"},
        {.name = "bad", .source = "x", .format = "xml"},
    };
    struct plan *made = NULL;
    struct buf sql = {0};
    CHECK_ERR(query_plan(f.planner, "SELECT count(*), max(i) FROM plain JOIN objects ON i = id WHERE k = 7", NULL,
                         tables, 3, &f.arena, &made, &f.e),
              ERR_OK);
    CHECK_STR(made->unsupported, NULL);
    CHECK_ERR(unparse_node(&sql, made->root, &f.e), ERR_OK);
    CHECK_ERR(duck_rows(f.connection, sql.data, NULL, 0, add_row, &f.text, &f.e), ERR_OK);
    CHECK_STR(f.text.data, "502,998");
    CHECK_ERR(query_plan(f.planner, "SELECT * FROM bad", NULL, tables, 3, &f.arena, &made, &f.e), ERR_INVALID);
    CHECK(strstr(f.e.message, "unknown format 'xml'") != NULL);
    CHECK_ERR(query_plan(f.planner, "SELECT * FROM plain", NULL, tables, 0, &f.arena, &made, &f.e), ERR_INVALID);
    buf_deinit(&sql);
    arena_deinit(&arena);
    fixture_close(&f);
}

/* The rows of a query over a data set "t", by its plan and as one task. */
static void check_data_set(struct fixture *f, const char *source, const char *sql, const char *expected)
{
    struct planner_table tables[] = {{.name = "t", .source = source}, {.name = "u", .source = source}};
    struct plan *made = NULL;
    struct buf text = {0};
    CHECK_ERR(query_plan(f->planner, sql, NULL, tables, 2, &f->arena, &made, &f->e), ERR_OK);
    CHECK_STR(made->unsupported, NULL);
    CHECK_ERR(unparse_node(&text, made->root, &f->e), ERR_OK);
    const char *const ways[] = {text.data, made->sql};
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        buf_reset(&f->text);
        CHECK_ERR(duck_rows(f->connection, ways[i], NULL, 0, add_row, &f->text, &f->e), ERR_OK);
        CHECK_STR(f->text.data, expected);
    }
    buf_deinit(&text);
}

/* A planner keeps views, and statements can come to them by names that do not stand in them as those of tables. */
TEST(a_data_set_is_what_it_is_now_by_whatever_name_it_is_read)
{
    static const char *const froms[] = {
        "t",
        "main.t",
        "MAIN.T AS x",
        "memory.main.t",
        "memory.t",
        "temp.t",
        "temp.main.t",
        "query_table('t')",
        "query_table(['t'])",
        "query('FROM t')",
        "(SELECT main.t.k FROM main.t)",
        "(SELECT memory.main.t.k FROM memory.main.t)",
        "(SELECT memory.t.k FROM memory.t)",
        "(WITH t AS (SELECT 1 AS k) SELECT k FROM main.t)",
        "(WITH t AS (SELECT 1 AS k), v AS (FROM memory.T) SELECT (SELECT max(v.k + 0 * t.k) FROM t) AS k FROM v)",
    };
    struct fixture f = fixture_open();
    struct arena arena = {0};
    const char *one = arena_format(&arena, "%s/dims-0.parquet", test_data()->ugly);
    const char *all = arena_format(&arena, "%s/dims-*.parquet", test_data()->ugly);
    for (size_t i = 0; i < ARRAY_LEN(froms); i++) {
        const char *sql =
            arena_format(&arena, "SELECT count(k + 1) > (SELECT count(k + 1) FROM '%s') FROM %s", one, froms[i]);
        check_data_set(&f, one, sql, "false");
        check_data_set(&f, all, sql, "true");
        check_data_set(&f, one, sql, "false");
    }
    struct plan *made = NULL;
    struct planner_table other = {.name = "other", .source = one};
    CHECK_ERR(query_plan(f.planner, "FROM main.t", NULL, &other, 1, &f.arena, &made, &f.e), ERR_INVALID);
    arena_deinit(&arena);
    fixture_close(&f);
}

static bool note_rows(struct plan_node *node, void *context)
{
    double *rows = context;
    if (rows[node->kind] < 0 || rows[node->kind] == 0) {
        rows[node->kind] = node->rows_estimated;
    }
    return true;
}

TEST(nodes_carry_the_guesses_of_duckdb)
{
    struct fixture f = fixture_open();
    struct plan *made = plan(&f,
                             "SELECT n_name, count(*) FROM nation JOIN (VALUES (1), (2)) v(n_nationkey) "
                             "USING (n_nationkey) GROUP BY n_name",
                             NULL);
    double rows[N_NODE_KINDS] = {0};
    plan_visit(made->root, note_rows, rows);
    CHECK_INT((int64_t)rows[NODE_SCAN], 25);
    CHECK_INT((int64_t)rows[NODE_VALUES], 2);
    CHECK(rows[NODE_JOIN] >= 1);
    CHECK(rows[NODE_AGGREGATE] >= 1);
    fixture_close(&f);
}

static enum err count_row(void *context, const char *const *values, uint32_t n, struct error *e)
{
    UNUSED(e);
    CHECK_UINT(n, 2);
    CHECK(values[0] != NULL);
    (*(int *)context)++;
    return ERR_OK;
}

TEST(metadata_can_be_asked_for)
{
    struct fixture f = fixture_open();
    struct buf sql = {0};
    int n = 0;
    buf_format(&sql, "SELECT file_name, num_rows FROM parquet_file_metadata('%s/facts-*.parquet')", test_data()->ugly);
    CHECK_ERR(planner_rows(f.planner, sql.data, count_row, &n, &f.e), ERR_OK);
    CHECK_INT(n, 3);
    buf_deinit(&sql);
    fixture_close(&f);
}

/* Settings that the planner changes for a second try are set back. */
TEST(a_planner_can_be_used_again_after_anything)
{
    struct fixture f = fixture_open();
    struct plan *made = NULL;
    CHECK(plan(&f, "SELECT bit_count('01'::BIT) FROM dims WHERE k::VARCHAR::BIT = '1'::BIT", NULL)->unsupported !=
          NULL);
    CHECK_ERR(plan_with(&f, "SELECT x FROM dims", NULL, &made), ERR_INVALID);
    CHECK_STR(rows_of_plan(&f, "SELECT count(*) FROM dims a, dims b WHERE a.k = b.k", NULL), "288");
    fixture_close(&f);
}

struct running {
    struct fixture *f;
    atomic_bool is_done;
    enum err err;
};

/* The optimizer of DuckDB takes very long for this. */
static void *plan_for_long(void *context)
{
    struct running *running = context;
    struct buf sql = {0};
    struct plan *made = NULL;
    buf_text(&sql, "SELECT count(*) FROM range(10) t0");
    for (int i = 1; i < 400; i++) {
        buf_format(&sql, " JOIN (SELECT range AS r%d FROM range(10) WHERE range %% %d = 1) ON r%d = t0.range", i, i + 1,
                   i);
    }
    running->err = query_plan(running->f->planner, sql.data, NULL, NULL, 0, &running->f->arena, &made, &running->f->e);
    buf_deinit(&sql);
    atomic_store(&running->is_done, true);
    return NULL;
}

TEST(planning_can_be_interrupted)
{
    struct fixture f = fixture_open();
    struct running running = {.f = &f};
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, plan_for_long, &running), 0);
    while (!atomic_load(&running.is_done)) {
        planner_interrupt(f.planner);
        (void)sched_yield();
    }
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_ERR(running.err, ERR_CANCELED);
    CHECK_STR(rows_of_plan(&f, "SELECT 1", NULL), "1");
    fixture_close(&f);
}

/* Plans that may be kept: those that depend on files of data sets alone. */
TEST(a_plan_is_repeatable_only_if_its_statement_means_the_same_each_time)
{
    static const struct {
        const char *sql;
        bool is_repeatable;
    } cases[] = {
        {"SELECT n_name, count(*) FROM nation WHERE n_name LIKE 'A%' GROUP BY 1 ORDER BY 2 DESC, upper(n_name)", true},
        {"SELECT max(l_shipdate) FROM lineitem WHERE extract(year FROM l_shipdate) = 1995", true},
        {"SELECT count(*) FROM orders WHERE o_orderdate < current_date", false},
        {"SELECT count(*) FROM orders WHERE o_orderdate < CURRENT_TIMESTAMP", false},
        {"SELECT count(*) FROM orders WHERE o_orderdate < now()", false},
        {"SELECT count(*) FROM orders WHERE o_orderdate < localtimestamp", false},
        {"SELECT count(*) FROM orders WHERE age(o_orderdate) > INTERVAL 3 years", false},
        {"SELECT n_name FROM nation WHERE random() < 0.5", false},
        {"SELECT n_name FROM nation USING SAMPLE 3 ROWS", false},
        {"SELECT n_name, (SELECT today()) AS t FROM nation", false},
        {"SELECT i FROM range(3) r(i)", false},
        {"WITH x AS (SELECT n_name FROM nation) SELECT n_name, (SELECT count(*) FROM x) AS n FROM x", true},
        {"SELECT n_name, (SELECT count(*) FROM '{ugly}/dims-0.parquet') AS n FROM nation", false},
    };
    struct fixture f = fixture_open();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan *made = plan(&f, test_fill_in(cases[i].sql), NULL);
        if (made->is_repeatable != cases[i].is_repeatable) {
            print_error("%s\n", cases[i].sql);
        }
        CHECK_INT(made->is_repeatable, cases[i].is_repeatable);
    }
    fixture_close(&f);
}

static enum err keep_setting(void *context, const char *const *values, uint32_t n, struct error *e)
{
    UNUSED(n);
    UNUSED(e);
    buf_reset(context);
    buf_text(context, values[0]);
    return ERR_OK;
}

static const char *optimizers_off(struct fixture *f)
{
    CHECK_ERR(planner_rows(f->planner, "SELECT current_setting('disabled_optimizers')", keep_setting, &f->text, &f->e),
              ERR_OK);
    return f->text.data;
}

/* DuckDB drops a column below the join that its plan still names, unless other optimizers have been at work before. */
TEST(a_plan_that_duckdb_cannot_write_is_made_again_with_other_optimizers)
{
    struct fixture f = fixture_open();
    CHECK_STR(rows_of_plan(&f,
                           "SELECT count(d.since), bool_or(n.n_name <> d.name) FROM nation n RIGHT JOIN dims d "
                           "ON n.n_nationkey = d.k AND n.n_comment = d.name",
                           NULL),
              "300,null");
    CHECK(strstr(optimizers_off(&f), "build_side_probe_side") != NULL); /* as for every other plan */
    CHECK(strstr(optimizers_off(&f), "column_lifetime") == NULL);
    fixture_close(&f);
}

TEST(the_plans_of_tpch_are_repeatable)
{
    uint32_t n = 0;
    const struct test_query *queries = test_queries("tpch.sql", &n);
    struct fixture f = fixture_open();
    for (uint32_t i = 0; i < n; i++) {
        struct plan *made = plan(&f, queries[i].sql, NULL);
        if (!made->is_repeatable) {
            print_error("%s\n", queries[i].name);
        }
        CHECK(made->is_repeatable);
    }
    CHECK_UINT(n, 22);
    fixture_close(&f);
}

TEST(a_repeatable_plan_names_all_files_that_it_depends_on)
{
    const char **paths = NULL;
    uint32_t n = 0;
    struct fixture f = fixture_open();
    struct plan *made = plan(&f, "SELECT count(*) FROM lineitem WHERE l_orderkey < 0", NULL); /* needs no file */
    CHECK(plan_repeat_files(made, &f.arena, &paths, &n));
    CHECK_UINT(n, 4); /* three files and their folder */
    made = plan(&f, "SELECT count(*) FROM lineitem JOIN nation ON l_suppkey = n_nationkey", NULL);
    CHECK(plan_repeat_files(made, &f.arena, &paths, &n));
    CHECK_UINT(n, 5);
    buf_reset(&f.text);
    buf_format(&f.text, "SELECT count(*) FROM nation JOIN '%s/region.parquet' ON n_regionkey = r_regionkey",
               test_data()->tpch);
    made = plan(&f, f.text.data, NULL);
    CHECK(!plan_repeat_files(made, &f.arena, &paths, &n));
    fixture_close(&f);
}
