/* Statements: texts, errors, interrupts and progress. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "duck/fixture.h"

static const struct duck_options defaults = {.threads = 2};

TEST(rows_come_as_texts)
{
    struct fixture f = fixture_open(&defaults);
    CHECK_STR(
        rows_of(
            &f, f.connection,
            "SELECT 'a', 1::TINYINT, -2::BIGINT, 18446744073709551615::UBIGINT, true, 0.1::DOUBLE, NULL::VARCHAR "
            "UNION ALL SELECT 'ß, a text of more than twelve bytes', NULL, 0, 0::UBIGINT, false, 'nan'::DOUBLE, ''"),
        "a,1,-2,18446744073709551615,true,0.10000000000000001,null;"
        "ß, a text of more than twelve bytes,null,0,0,false,nan,");
    CHECK_STR(rows_of(&f, f.connection, "SELECT count(*) FROM range(100000)"), "100000");
    CHECK_STR(rows_of(&f, f.connection, "SELECT 1 WHERE false"), "");
    CHECK_STR(rows_of(&f, f.connection, "CREATE TEMP TABLE t AS SELECT 5 AS a; FROM t; SELECT a + 1 FROM t"), "6");
    fixture_close(&f);
}

static enum err keep_text(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(e);
    CHECK_UINT(n, 1);
    buf_append(context, values[0].bytes, values[0].n);
    return ERR_OK;
}

TEST(rows_are_counted_as_plainly_as_duckdb_can)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    uint64_t rows = 7;
    CHECK_ERR(duck_count(f.connection, "SELECT range FROM range(100000) WHERE range % 2 = 0", &rows, &e), ERR_OK);
    CHECK_UINT(rows, 50000);
    CHECK_ERR(duck_count(f.connection, "SELECT 1 WHERE false", &rows, &e), ERR_OK);
    CHECK_UINT(rows, 0);
    rows = 7;
    CHECK_ERR(duck_count(f.connection, "SELECT error('late') FROM range(10)", &rows, &e), ERR_INVALID);
    CHECK(strstr(e.message, "late") != NULL);
    CHECK_UINT(rows, 7);
    fixture_close(&f);
}

TEST(arguments_may_contain_quotes_and_nuls)
{
    struct fixture f = fixture_open(&defaults);
    struct duck_text args[2] = {{.bytes = "a'\0b", .n = 4}, {0}};
    struct error e = {0};
    struct buf text = {0};
    CHECK_ERR(
        duck_rows(f.connection, "SELECT $1::VARCHAR || coalesce($2::VARCHAR, '!')", args, 2, keep_text, &text, &e),
        ERR_OK);
    CHECK_UINT(text.n, 5);
    CHECK_MEM(text.data, "a'\0b!", 5);
    CHECK_ERR(duck_rows(f.connection, "SELECT $1::VARCHAR", NULL, 0, keep_text, &text, &e), ERR_INVALID);
    buf_deinit(&text);
    fixture_close(&f);
}

static enum err refuse_row(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(context);
    UNUSED(values);
    UNUSED(n);
    return error_set(e, ERR_EXHAUSTED, "enough");
}

TEST(a_row_that_is_refused_ends_the_query)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    CHECK_ERR(duck_rows(f.connection, "SELECT * FROM range(1000000000)", NULL, 0, refuse_row, NULL, &e), ERR_EXHAUSTED);
    CHECK_STR(e.message, "enough");
    CHECK_STR(rows_of(&f, f.connection, "SELECT 1"), "1");
    fixture_close(&f);
}

TEST(errors_say_whose_fault_it_is)
{
    static const struct {
        const char *sql;
        enum err err;
        const char *part;
    } cases[] = {
        {"SELEC 1", ERR_INVALID, "syntax error"},
        {"SELECT * FROM nowhere", ERR_INVALID, "nowhere"},
        {"SELECT nothing", ERR_INVALID, "nothing"},
        {"SELECT 'x'::INTEGER", ERR_INVALID, "Could not convert"},
        {"SELECT error('no luck')", ERR_INVALID, "no luck"},
        {"SELECT CAST(range AS TINYINT) FROM range(1000)", ERR_INVALID, "range"},
        {"SELECT * FROM 'no/such/file.parquet'", ERR_NOT_FOUND, "no/such/file.parquet"},
        {"SELECT 1; SELECT nothing", ERR_INVALID, "nothing"},
        {"", ERR_INVALID, "no statement"},
        {"SELECT DATE '2000-01-01'", ERR_INVALID, "cast to VARCHAR"},
    };
    struct fixture f = fixture_open(&defaults);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = {0};
        struct buf text = {0};
        CHECK_ERR(duck_rows(f.connection, cases[i].sql, NULL, 0, keep_text, &text, &e), cases[i].err);
        CHECK(strstr(e.message, cases[i].part) != NULL);
        buf_deinit(&text);
    }
    fixture_close(&f);
}

TEST(memory_is_limited_and_spills_only_with_a_folder)
{
    struct duck_options small = {.threads = 1, .memory_bytes_max = 20000000};
    struct fixture f = fixture_open(&small);
    struct error e = {0};
    CHECK_ERR(duck_run(f.connection, "CREATE TEMP TABLE t AS SELECT hash(range) h FROM range(10000000)", &e),
              ERR_EXHAUSTED);
    fixture_close(&f);
}

TEST(settings_that_do_not_exist_are_refused)
{
    struct duck *duck = NULL;
    struct error e = {0};
    struct duck_options options = {.disabled_optimizers = "no_such_optimizer"};
    CHECK_ERR(duck_open(&options, &duck, &e), ERR_INVALID);
    CHECK(duck == NULL);
    CHECK(e.message[0] != '\0');
}

TEST(the_engine_is_named_by_version_and_architecture)
{
    const char *engine = NULL;
    CHECK_ERR(duck_engine(&engine, NULL), ERR_OK);
    CHECK(strncmp(engine, "duckdb-v", 8) == 0);
    CHECK(strchr(engine + 8, '-') != NULL);
}

struct running {
    struct duck_connection *connection;
    atomic_bool is_done;
    enum err err;
};

static void *run_for_long(void *context)
{
    struct running *running = context;
    running->err = duck_run(running->connection, "SELECT count(*) FROM range(1000000000) a, range(1000000) b", NULL);
    atomic_store(&running->is_done, true);
    return NULL;
}

TEST(a_running_statement_can_be_interrupted_from_another_thread)
{
    struct fixture f = fixture_open(&defaults);
    struct running running = {.connection = f.connection};
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, run_for_long, &running), 0);
    while (!atomic_load(&running.is_done)) { /* an interrupt before the statement has begun does nothing */
        CHECK(duck_progress(f.connection) <= 100);
        duck_interrupt(f.connection);
        (void)sched_yield();
    }
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_ERR(running.err, ERR_CANCELED);
    CHECK_STR(rows_of(&f, f.connection, "SELECT 1"), "1");
    fixture_close(&f);
}

/* SQL of others. */

static const char seen_by_all[] =
    "SELECT (SELECT count(*) FROM duckdb_functions() WHERE NOT internal), (SELECT count(*) FROM duckdb_tables()), "
    "(SELECT count(*) FROM duckdb_views() WHERE NOT internal), "
    "(SELECT count(*) FROM duckdb_types() WHERE NOT internal), (SELECT count(*) FROM duckdb_secrets()), "
    "(SELECT count(*) FROM duckdb_databases() WHERE NOT internal), current_setting('threads'), "
    "(SELECT count(*) FROM duckdb_schemas() WHERE NOT internal)";

static enum err read_to_end(struct duck_connection *connection, const char *sql, struct error *e)
{
    struct duck_result *result = NULL;
    enum err err = duck_query(connection, sql, &result, e);
    for (bool has_more = true; err == ERR_OK && has_more;) {
        struct ArrowArray rows = {0};
        err = duck_result_next(result, &rows, e);
        has_more = rows.release != NULL;
        if (has_more) {
            rows.release(&rows);
        }
    }
    duck_result_close(result);
    return err;
}

static enum err open_nothing(void *context, const struct ArrowSchema *schema, struct error *e)
{
    UNUSED(context);
    UNUSED(schema);
    UNUSED(e);
    return ERR_OK;
}

static enum err take_nothing(void *context, const struct ArrowArray *rows, struct error *e)
{
    UNUSED(context);
    UNUSED(rows);
    UNUSED(e);
    return ERR_OK;
}

static enum err pour_away(struct duck_connection *connection, const char *sql, struct error *e)
{
    struct duck_sink sink = {.open = open_nothing, .take = take_nothing};
    bool has_begun = false;
    return duck_pour(connection, sql, &sink, &has_begun, e);
}

static enum err read_as_texts(struct duck_connection *connection, const char *sql, struct error *e)
{
    struct buf text = {0};
    enum err err = duck_read_rows(connection, sql, keep_text, &text, e);
    buf_deinit(&text);
    return err;
}

static enum err copy_away(struct duck_connection *connection, const char *sql, struct error *e)
{
    struct buf text = {0};
    enum err err = duck_copy(connection, sql, "'/dev/null' (FORMAT csv)", keep_text, &text, e);
    buf_deinit(&text);
    return err;
}

typedef enum err way_fn(struct duck_connection *connection, const char *sql, struct error *e);
static way_fn *const ways[] = {read_to_end, pour_away, read_as_texts, copy_away, duck_run_views};

TEST(sql_of_others_changes_nothing_for_anybody_else)
{
    static const char *const hostile[] = {
        "CREATE OR REPLACE MACRO memory.main.lower(x) AS 'pwned'; SELECT 1",
        ("CREATE TEMP VIEW v AS SELECT 1 AS a$$q$; CREATE OR REPLACE MACRO memory.main.lower(x) AS 'pwned'; "
         "CREATE TEMP VIEW w AS SELECT 1 AS x$q$; SELECT 1"),
        "CREATE TEMP VIEW v AS SELECT e'a'\n'\\''; CREATE OR REPLACE TABLE memory.main.evil AS SELECT e'\\''; SELECT 1",
        "CREATE VIEW v AS SELECT 1; SELECT 1",
        "CREATE TABLE t AS SELECT 1; SELECT 1",
        "CREATE TYPE t AS ENUM ('a'); SELECT 1",
        "CREATE SEQUENCE s; SELECT 1",
        "CREATE SCHEMA s; SELECT 1",
        "CREATE SECRET s (TYPE http, HTTP_PROXY 'a'); SELECT 1",
        "CREATE TEMPORARY SECRET s (TYPE http, HTTP_PROXY 'a'); SELECT 1",
        "CREATE OR REPLACE MACRO system.main.lower(x) AS 'pwned'; SELECT 1",
        "COMMIT; CREATE TABLE t AS SELECT 1; SELECT 1",
        "SET GLOBAL threads = 1; SELECT 1",
        "ATTACH ':memory:' AS other; SELECT 1",
        "SELECT 1; CREATE TABLE t AS SELECT 1",
        "SELECT 1) TO '/dev/null' (FORMAT csv); CREATE TABLE t AS SELECT 1; COPY (SELECT 1",
        "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1",
        "EXPLAIN ANALYZE SET GLOBAL threads = 1",
        "/* '*/ EXPLAIN ANALYZE SET GLOBAL threads = 1",
        "EXPLAIN (ANALYZE) SET GLOBAL threads = 1",
        "CREATE TEMP VIEW v AS SELECT 1; EXPLAIN ANALYZE SET GLOBAL threads = 1",
        "SET GLOBAL threads = 1",
        "CREATE TABLE t AS SELECT 1",
        "",
    };
    struct fixture f = fixture_open(&defaults);
    struct duck_connection *other = NULL;
    CHECK_ERR(duck_connect(f.duck, &other, NULL), ERR_OK);
    CHECK_STR(rows_of(&f, other, seen_by_all), "0,0,0,0,0,1,2,0");
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
            struct error e = {0};
            struct duck_connection *connection = NULL;
            CHECK_ERR(duck_connect(f.duck, &connection, NULL), ERR_OK);
            if (ways[k](connection, hostile[i], &e) == ERR_OK) {
                print_error("taken by way %zu: %s\n", k, hostile[i]);
                CHECK(false);
            }
            CHECK(e.message[0] != '\0');
            CHECK_STR(rows_of(&f, connection, "SELECT 2"), "2"); /* no transaction is left open */
            duck_disconnect(connection);
            CHECK_STR(rows_of(&f, other, seen_by_all), "0,0,0,0,0,1,2,0");
        }
    }
    CHECK_STR(rows_of(&f, other, "SELECT lower('A')"), "a");
    duck_disconnect(other);
    fixture_close(&f);
}

TEST(what_sql_of_others_makes_is_gone_with_its_connection)
{
    static const char *const right[] = {
        "SELECT 1",
        "CREATE OR REPLACE TEMP VIEW v AS SELECT 'x' AS b, 1 AS a;\nSELECT * FROM v; -- the end",
        "CREATE TEMP VIEW v AS SELECT 1; CREATE TEMP VIEW w AS FROM v; FROM w",
        "PIVOT (SELECT 1 AS a, 'x' AS b) ON b USING sum(a)",
        "CREATE TEMP VIEW v AS SELECT 1 AS a, 'x' AS b; PIVOT v ON b USING sum(a)",
        "EXPLAIN SELECT 1",
        "-- a\n EXPLAIN /* b */ ANALYZE SELECT '$'",
        "explain (analyze, format json) FROM range(3);",
        "EXPLAIN (SELECT 1)",
        "DESCRIBE SELECT 1",
        "SUMMARIZE SELECT 1",
        "SHOW TABLES",
        "VALUES (1), (2)",
    };
    struct fixture f = fixture_open(&defaults);
    for (size_t i = 0; i < ARRAY_LEN(right); i++) {
        struct error e = {0};
        struct duck_connection *connection = NULL;
        CHECK_ERR(duck_connect(f.duck, &connection, NULL), ERR_OK);
        enum err err = read_to_end(connection, right[i], &e);
        CHECK_STR(e.message, "");
        CHECK_ERR(err, ERR_OK);
        CHECK_STR(rows_of(&f, connection, "SELECT 2"), "2");
        CHECK_STR(rows_of(&f, f.connection, seen_by_all), "0,0,0,0,0,1,2,0");
        duck_disconnect(connection);
    }
    fixture_close(&f);
}

TEST(views_that_were_run_before_stay_for_what_comes_next)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    CHECK_ERR(duck_run_views(f.connection, "CREATE TEMP VIEW v AS SELECT 7 AS a; CREATE TEMP VIEW w AS FROM v", &e),
              ERR_OK);
    CHECK_ERR(pour_away(f.connection, "SELECT nothing FROM w", &e), ERR_INVALID);
    CHECK_ERR(read_to_end(f.connection, "EXPLAIN FROM w", &e), ERR_OK);
    CHECK_STR(rows_of(&f, f.connection, "FROM w"), "7");
    fixture_close(&f);
}

TEST(statements_are_counted_as_duckdb_parts_them)
{
    struct fixture f = fixture_open(&defaults);
    CHECK_UINT(duck_statements(f.connection, "SELECT ';'; SELECT $$;$$;;"), 2);
    CHECK_UINT(duck_statements(f.connection, "SELECT 1 AS a$$q$; SELECT 1 AS x$q$"), 2);
    CHECK_UINT(duck_statements(f.connection, "SELECT e'a'\n'\\'; SELECT '"), 1);
    CHECK_UINT(duck_statements(f.connection, "nonsense; SELECT 1"), 0);
    CHECK_UINT(duck_statements(f.connection, ""), 0);
    fixture_close(&f);
}
