#include "query/write.h"

#include <string.h>

#include "base/buf.h"
#include "query/physical.h"
#include "test.h"

#define NAME_OF_63 "a23456789_b23456789_c23456789_d23456789_e23456789_f23456789_g23"

struct reading {
    struct arena arena;
    struct query_write write;
    struct error e;
    enum err err;
};

static struct reading read_sql(const char *sql)
{
    struct reading r = {0};
    r.err = query_write_read(sql, "/data/warehouse/", &r.arena, &r.write, &r.e);
    return r;
}

static void check_write(const char *sql, struct query_write expected)
{
    struct reading r = read_sql(sql);
    CHECK_STR(r.e.message, "");
    CHECK_ERR(r.err, ERR_OK);
    CHECK_STR(r.write.sql == NULL ? "(none)" : r.write.sql, expected.sql == NULL ? "(none)" : expected.sql);
    if (expected.sql != NULL) {
        CHECK_STR(r.write.to, expected.to);
        CHECK_STR(r.write.format, expected.format);
        CHECK_STR(r.write.options, expected.options == NULL ? "" : expected.options);
        CHECK_STR(r.write.table == NULL ? "(none)" : r.write.table, expected.table == NULL ? "(none)" : expected.table);
    }
    arena_deinit(&r.arena);
}

TEST(copy_is_read_with_quotes_comments_and_brackets)
{
    check_write("COPY (SELECT 1) TO '/out' (FORMAT parquet)",
                (struct query_write){.sql = "SELECT 1", .to = "/out", .format = "parquet"});
    check_write("-- a note\n copy /* ( */ (select ')' as \"(\", (1), $$)$$ -- )\n) to '/o''x//' with (format 'CSV', "
                "Header true, delim ',', FORCE_QUOTE (a, b)) ; -- end",
                (struct query_write){.sql = "select ')' as \"(\", (1), $$)$$ -- )\n",
                                     .to = "/o'x",
                                     .format = "csv",
                                     .options = "Header true, delim ',', FORCE_QUOTE (a, b)"});
    check_write("COPY t TO '/out.json'", (struct query_write){.sql = "FROM t", .to = "/out.json", .format = "json"});
    check_write("COPY \"a b\" TO '/out' (COMPRESSION zstd, ROW_GROUP_SIZE 1000, FORMAT parquet)",
                (struct query_write){.sql = "FROM \"a b\"",
                                     .to = "/out",
                                     .format = "parquet",
                                     .options = "COMPRESSION zstd, ROW_GROUP_SIZE 1000"});
}

TEST(create_table_as_goes_to_the_warehouse)
{
    check_write(
        "CREATE TABLE t_1 AS SELECT 1;",
        (struct query_write){.sql = "SELECT 1", .to = "/data/warehouse/t_1", .format = "parquet", .table = "t_1"});
    check_write("create table \"T\" as (from x)",
                (struct query_write){.sql = "(from x)", .to = "/data/warehouse/T", .format = "parquet", .table = "T"});
    check_write("CREATE TABLE " NAME_OF_63 " AS SELECT 1",
                (struct query_write){
                    .sql = "SELECT 1", .to = "/data/warehouse/" NAME_OF_63, .format = "parquet", .table = NAME_OF_63});
}

TEST(statements_that_read_are_let_through)
{
    static const char *const statements[] = {
        "DESCRIBE SELECT 1",         "SHOW TABLES",         "SUMMARIZE t",
        "PIVOT t ON a USING sum(b)", "EXPLAIN SELECT 1",    "explain (format json) select 1",
        "EXPLAIN ANALYZE FROM t",    " /* x */ (SELECT 1)", "WITH RECURSIVE a(i) USING KEY (i) AS (SELECT ')') FROM a"};
    for (size_t i = 0; i < ARRAY_LEN(statements); i++) {
        check_write(statements[i], (struct query_write){0});
    }
}

TEST(what_is_not_understood_is_refused_with_what_is)
{
    static const struct {
        const char *sql;
        const char *message;
    } cases[] = {
        {"COPY t FROM '/x.csv'", "this COPY cannot be run"},
        {"COPY (SELECT 1 TO '/x'", "this COPY cannot be run"},
        {"COPY s.t TO '/x'", "this COPY cannot be run"},
        {"COPY t (a, b) TO '/x'", "this COPY cannot be run"},
        {"COPY t TO x", "COPY needs a folder in quotes after TO"},
        {"COPY t TO '/x", "COPY needs a folder in quotes after TO"},
        {"COPY t TO '/x' CSV HEADER", "the end of this COPY cannot be read"},
        {"COPY t TO '/x' (FORMAT csv", "the end of this COPY cannot be read"},
        {"COPY t TO '/x' (FORMAT csv, , HEADER)", "the options of COPY cannot be read"},
        {"COPY t TO 'x' (FORMAT csv)", "'x' is no absolute path of a folder"},
        {"COPY t TO 's3://bucket/x' (FORMAT csv)", "'s3://bucket/x' is no absolute path of a folder"},
        {"COPY t TO '///' (FORMAT csv)", "'///' is no absolute path of a folder"},
        {"COPY t TO '/x'", "COPY needs a format: add (FORMAT parquet), csv or json"},
        {"COPY t TO '/x' (FORMAT xlsx)", "COPY knows the formats parquet, csv and json, not xlsx"},
        {"COPY t TO '/x' (FORMAT parquet, PARTITION_BY (a))",
         "COPY cannot take the option PARTITION_BY with the format parquet"},
        {"COPY t TO '/x' (FORMAT json, HEADER)", "COPY cannot take the option HEADER with the format json"},
        {"CREATE OR REPLACE TABLE t AS SELECT 1",
         "only a plain CREATE TABLE name AS query can be run: no OR REPLACE, no TEMPORARY"},
        {"CREATE TEMP TABLE t AS SELECT 1",
         "only a plain CREATE TABLE name AS query can be run: no OR REPLACE, no TEMPORARY"},
        {"CREATE TABLE IF NOT EXISTS t AS SELECT 1", "CREATE TABLE cannot take IF NOT EXISTS"},
        {"CREATE TABLE s.t AS SELECT 1", "CREATE TABLE needs a name without a schema, then AS and a query"},
        {"CREATE TABLE t (a INT)", "CREATE TABLE needs a name without a schema, then AS and a query"},
        {"CREATE TABLE \"../t\" AS SELECT 1",
         "the name of a table that is created has letters, digits and _ only, and no digit first"},
        {"CREATE TABLE 1t AS SELECT 1", "CREATE TABLE needs a name without a schema, then AS and a query"},
        {"CREATE TABLE \"1t\" AS SELECT 1",
         "the name of a table that is created has letters, digits and _ only, and no digit first"},
        {"CREATE TABLE \"\" AS SELECT 1", "the name of a table has 1 to 63 bytes"},
        {"CREATE TABLE " NAME_OF_63 "x AS SELECT 1", "the name of a table has 1 to 63 bytes"},
        {"CREATE VIEW v AS SELECT 1", "this CREATE cannot be run"},
        {"INSERT INTO t VALUES (1)", "INSERT: statements of this kind cannot be run"},
        {"explain analyze copy t to '/x'", "copy: statements of this kind cannot be run"},
        {"WITH a AS (SELECT 1), \"b c\"(x) AS NOT MATERIALIZED (SELECT 2) INSERT INTO t FROM a",
         "INSERT: statements of this kind cannot be run"},
        {"EXPLAIN SELECT 1; DROP TABLE t", "one statement is expected, not several"},
        {"COPY t TO '/x.csv'; COPY t TO '/y.csv'", "one statement is expected, not several"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reading r = read_sql(cases[i].sql);
        CHECK_STR(r.e.message, cases[i].message);
        CHECK_ERR(r.err, ERR_INVALID);
        CHECK(r.write.sql == NULL);
        arena_deinit(&r.arena);
    }
}

TEST(sql_only_reads_if_all_of_it_does)
{
    static const struct {
        const char *sql;
        bool only_reads;
    } cases[] = {
        {"SELECT ';' /* ; */; -- ;", true},
        {"create or replace temp view \"a;b\" (x) as from 'f.parquet'; CREATE TEMPORARY VIEW c AS SELECT 1; FROM c",
         true},
        {"CREATE TEMP VIEW a AS SELECT 1", false},
        {"CREATE TEMP VIEW a AS SELECT 1;", false},
        {"CREATE VIEW a AS SELECT 1; FROM a", false},
        {"CREATE OR TEMP VIEW a AS SELECT 1; FROM a", false},
        {"CREATE TEMP TABLE a AS SELECT 1; FROM a", false},
        {"CREATE TEMP VIEW a AS DELETE FROM t; FROM a", false},
        {"CREATE TEMP VIEW a (x; DROP TABLE t) AS SELECT 1; FROM a", false},
        {"CREATE TEMP VIEW a (x; CREATE TEMP VIEW b (y) AS SELECT 1) AS SELECT 1; FROM a", false},
        {"; SELECT 1", false},
        {"SELECT 1; SELECT 2", false},
        {"SET threads = 1; SELECT 2", false},
        {"INSERT INTO t VALUES (1)", false},
        {"ATTACH 'x'", false},
        {"", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena arena = {0};
        if (query_only_reads(cases[i].sql, &arena) != cases[i].only_reads) {
            CHECK_STR(cases[i].sql, cases[i].only_reads ? "is to be taken" : "is to be refused");
        }
        arena_deinit(&arena);
    }
}

/* If the end of each statement, or bracket, were sought in all that follows, these MiB would take many minutes. */
TEST(many_views_are_read_as_fast_as_long_ones)
{
    static const size_t bytes = (size_t)4 * 1024 * 1024;
    struct arena arena = {0};
    struct buf views = {0};
    struct buf nested = {0};
    while (views.n < bytes) {
        buf_text(&views, "CREATE TEMP VIEW a AS SELECT 1;");
    }
    CHECK(!query_only_reads(views.data, &arena));
    buf_text(&views, "FROM a");
    CHECK(query_only_reads(views.data, &arena));
    while (nested.n < bytes) {
        buf_text(&nested, "CREATE TEMP VIEW a (;");
    }
    while (nested.n < 2 * bytes) {
        buf_text(&nested, ") AS SELECT 1 ");
    }
    buf_text(&nested, "; FROM a");
    CHECK(!query_only_reads(nested.data, &arena));
    buf_deinit(&views);
    buf_deinit(&nested);
    arena_deinit(&arena);
}

TEST(a_table_without_a_warehouse_names_the_setting)
{
    struct arena arena = {0};
    struct query_write write = {0};
    struct error e = {0};
    CHECK_ERR(query_write_read("CREATE TABLE t AS SELECT 1", NULL, &arena, &write, &e), ERR_INVALID);
    CHECK_STR(e.message, "CREATE TABLE t AS needs a folder for its files, but `warehouse` is not set");
    CHECK_ERR(query_write_read("CREATE TABLE t AS SELECT 1", "relative", &arena, &write, &e), ERR_INVALID);
    CHECK_STR(e.message, "'relative/t' is no absolute path of a folder");
    arena_deinit(&arena);
}

TEST(the_ending_of_a_file_says_how_it_is_compressed)
{
    CHECK_STR(physical_write_ending(&(struct physical_write){.format = "parquet", .options = "COMPRESSION gzip"}),
              "parquet");
    CHECK_STR(physical_write_ending(&(struct physical_write){.format = "csv", .options = ""}), "csv");
    CHECK_STR(physical_write_ending(&(struct physical_write){.format = "csv", .options = "HEADER, compression 'GZIP'"}),
              "csv.gz");
    CHECK_STR(physical_write_ending(&(struct physical_write){.format = "json", .options = "COMPRESSION zstd"}),
              "json.zst");
    CHECK_STR(physical_write_ending(&(struct physical_write){.format = "json", .options = "ARRAY 'COMPRESSION zstd'"}),
              "json");
}

/* A stage that writes and one that publishes, with these members. */
static void check_plan(const char *write, const char *publish, const char *expected)
{
    struct arena arena = {0};
    struct buf text = {0};
    struct buf errors = {0};
    struct error e = {0};
    struct physical_plan *plan = NULL;
    buf_format(&text, "{\"stages\":[{\"id\":0,\"sql\":\"x\",%s},{\"id\":1,\"inputs\":{\"f\":0},\"sql\":\"y\",%s}]}",
               write, publish);
    enum err err = physical_read(text.data, text.n, &arena, &plan, &errors, &e);
    if (expected != NULL) {
        CHECK_ERR(err, ERR_INVALID);
        CHECK_STR(errors.data, expected);
    } else {
        struct buf again = {0};
        CHECK_ERR(err, ERR_OK);
        physical_write(&again, plan);
        CHECK(strstr(again.data, write) != NULL);
        CHECK(strstr(again.data, publish) != NULL);
        buf_deinit(&again);
    }
    buf_deinit(&text);
    buf_deinit(&errors);
    arena_deinit(&arena);
}

TEST(writes_are_part_of_a_plan)
{
    const char *write = "\"deterministic\":true,\"write\":{\"to\":\"/x\",\"format\":\"csv\",\"options\":\"HEADER\"},"
                        "\"output\":{\"exchange\":\"gather\"}";
    const char *publish =
        "\"deterministic\":true,\"publish\":{\"to\":\"/x\",\"table\":\"t\"},\"output\":{\"exchange\":\"result\"}";
    const char *plain = "\"output\":{\"exchange\":\"gather\"}";
    check_plan(write, publish, NULL);
    check_plan(write, "\"publish\":{\"to\":\"/x\",\"table\":\"" NAME_OF_63 "x\"},\"output\":{\"exchange\":\"result\"}",
               "stage 1: the \"table\" of a publish has more than 63 bytes");
    check_plan(write, "\"publish\":{\"to\":\"/x\",\"table\":\"1t\"},\"output\":{\"exchange\":\"result\"}",
               "stage 1: the \"table\" of a publish has letters, digits and _ only, and no digit first");
    check_plan(write, "\"publish\":{\"to\":\"/x\",\"table\":\"a-b\"},\"output\":{\"exchange\":\"result\"}",
               "stage 1: the \"table\" of a publish has letters, digits and _ only, and no digit first");
    check_plan(write, "\"output\":{\"exchange\":\"result\"}",
               "stage 1: it reads stage 0, which writes to /x, but does not publish that");
    check_plan(write, "\"publish\":{\"to\":\"/y\"},\"output\":{\"exchange\":\"result\"}",
               "stage 1: it reads stage 0, which writes to /x, but does not publish that");
    check_plan(plain, publish, "stage 1: a stage that publishes is the result, and reads one stage that writes");
    check_plan("\"write\":{\"to\":\"x\",\"format\":\"csv\"},\"output\":{\"exchange\":\"gather\"}", publish,
               "stage 0: the \"to\" of a write must be an absolute path without a slash at its end");
    check_plan("\"write\":{\"to\":\"/x\",\"format\":\"xml\"},\"output\":{\"exchange\":\"gather\"}", publish,
               "stage 0: the \"format\" of a write must be parquet, csv or json");
    check_plan(
        "\"write\":{\"to\":\"/x\",\"format\":\"csv\"},\"custom\":{\"op\":\"o\"},\"output\":{\"exchange\":\"gather\"}",
        publish, "stage 0: a stage that writes has the exchange gather, and no \"custom\" or \"publish\"");
    check_plan("\"write\":{\"to\":\"/x\",\"format\":\"csv\"},\"output\":{\"exchange\":\"broadcast\"}", publish,
               "stage 0: a stage that writes has the exchange gather, and no \"custom\" or \"publish\"");
    check_plan("\"write\":{\"to\":\"/x\",\"format\":\"csv\",\"a\":1},\"output\":{\"exchange\":\"gather\"}", publish,
               "stage 0: \"write\" has an unknown member \"a\"");
}
