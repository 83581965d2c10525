/* Results as Arrow, and Arrow streams as tables. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "duck/duck_internal.h"
#include "duck/fixture.h"

static const struct duck_options defaults = {.threads = 2};

/* A stream that hands on the result of a query, made on a connection of its own. */
struct source {
    struct duck_connection *connection;
    struct duck_result *result;
    int fails_after; /* arrays; negative: never */
    int *n_released;
    struct error e;
};

static int source_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    struct source *source = stream->private_data;
    return duck_result_schema(source->result, out, &source->e) == ERR_OK ? 0 : EIO;
}

static int source_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct source *source = stream->private_data;
    if (source->fails_after == 0) {
        (void)error_set(&source->e, ERR_DATA_LOSS, "the other end is gone");
        return EIO;
    }
    source->fails_after--;
    return duck_result_next(source->result, out, &source->e) == ERR_OK ? 0 : EIO;
}

static const char *source_error(struct ArrowArrayStream *stream)
{
    struct source *source = stream->private_data;
    return source->e.message;
}

static void source_release(struct ArrowArrayStream *stream)
{
    struct source *source = stream->private_data;
    duck_result_close(source->result);
    duck_disconnect(source->connection);
    (*source->n_released)++;
    mem_free(source);
    stream->release = NULL;
}

static struct ArrowArrayStream stream_of(struct fixture *f, const char *sql, int fails_after, int *n_released)
{
    struct source *source = mem_calloc(1, sizeof(*source));
    struct error e = {0};
    CHECK_ERR(duck_connect(f->duck, &source->connection, &e), ERR_OK);
    CHECK_ERR(duck_query(source->connection, sql, &source->result, &e), ERR_OK);
    source->fails_after = fails_after;
    source->n_released = n_released;
    return (struct ArrowArrayStream){.get_schema = source_schema,
                                     .get_next = source_next,
                                     .get_last_error = source_error,
                                     .release = source_release,
                                     .private_data = source};
}

TEST(a_result_streams_as_arrow)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    struct duck_result *result = NULL;
    CHECK_ERR(duck_query(f.connection, "SELECT range AS n, 'x' || range AS t FROM range(10000)", &result, &e), ERR_OK);
    struct ArrowSchema schema;
    CHECK_ERR(duck_result_schema(result, &schema, &e), ERR_OK);
    CHECK_STR(schema.format, "+s");
    CHECK_INT(schema.n_children, 2);
    CHECK_STR(schema.children[0]->name, "n");
    CHECK_STR(schema.children[0]->format, "l");
    CHECK_STR(schema.children[1]->name, "t");
    int64_t n_rows = 0;
    int64_t sum = 0;
    for (;;) {
        struct ArrowArray array;
        CHECK_ERR(duck_result_next(result, &array, &e), ERR_OK);
        if (array.release == NULL) {
            break;
        }
        const int64_t *values = array.children[0]->buffers[1];
        for (int64_t i = 0; i < array.length; i++) {
            sum += values[i];
        }
        n_rows += array.length;
        array.release(&array);
    }
    CHECK_INT(n_rows, 10000);
    CHECK_INT(sum, 49995000);
    schema.release(&schema);
    duck_result_close(result);
    fixture_close(&f);
}

static enum err read_to_the_end(struct duck_connection *connection, const char *sql, struct error *e)
{
    struct duck_result *result = NULL;
    enum err err = duck_query(connection, sql, &result, e);
    while (err == ERR_OK) {
        struct ArrowArray array;
        err = duck_result_next(result, &array, e);
        if (err == ERR_OK && array.release == NULL) {
            break;
        }
        if (err == ERR_OK) {
            array.release(&array);
        }
    }
    duck_result_close(result);
    return err;
}

/* DuckDB may lose the reason when several threads run, but never the failure, and it is not taken for an interrupt. */
TEST(an_error_in_the_middle_of_a_result_is_reported)
{
    static const char sql[] =
        "SELECT CASE WHEN range = 900000 THEN error('half way') ELSE range END FROM range(1000000)";
    struct fixture f = fixture_open(&defaults);
    int n_told = 0;
    for (int i = 0; i < 20; i++) {
        struct error e = {0};
        enum err err = read_to_the_end(f.connection, sql, &e);
        bool is_told = err == ERR_INVALID && strstr(e.message, "half way") != NULL;
        CHECK(is_told || err == ERR_INTERNAL);
        n_told += is_told ? 1 : 0;
    }
    CHECK(n_told > 10);
    fixture_close(&f);
}

TEST(a_result_may_be_closed_before_its_end)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    struct duck_result *result = NULL;
    CHECK_ERR(duck_query(f.connection, "SELECT range FROM range(100000000)", &result, &e), ERR_OK);
    struct ArrowArray array;
    CHECK_ERR(duck_result_next(result, &array, &e), ERR_OK);
    array.release(&array);
    duck_result_close(result);
    CHECK_STR(rows_of(&f, f.connection, "SELECT 1"), "1");
    fixture_close(&f);
}

TEST(a_stream_is_a_table_with_projections_and_filters)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    int n_released = 0;
    struct ArrowArrayStream stream =
        stream_of(&f, "SELECT range AS n, 'x' || range AS t, range % 7 AS k FROM range(50000)", -1, &n_released);
    CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "in \"0\"", .is_kept = false}, &stream, &e),
              ERR_OK);
    CHECK(stream.release == NULL);
    CHECK_STR(
        rows_of(&f, f.connection,
                "SELECT k, count(*), max(t) FROM \"in \"\"0\"\"\" WHERE k < 2 AND t LIKE '%9' GROUP BY k ORDER BY k"),
        "0,714,x9989;1,714,x9969");
    CHECK_INT(n_released, 0);
    duck_unregister(f.connection, "in \"0\"");
    CHECK_INT(n_released, 1);
    CHECK_ERR(duck_run(f.connection, "SELECT * FROM \"in \"\"0\"\"\"", &e), ERR_INVALID);
    fixture_close(&f);
}

TEST(a_kept_stream_can_be_read_twice)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    int n_released = 0;
    struct ArrowArrayStream stream = stream_of(&f, "SELECT range AS n FROM range(5000)", -1, &n_released);
    CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "kept", .is_kept = true}, &stream, &e), ERR_OK);
    CHECK_INT(n_released, 1);
    CHECK_STR(rows_of(&f, f.connection, "SELECT count(*) FROM kept a JOIN kept b USING (n)"), "5000");
    duck_unregister(f.connection, "kept");
    CHECK_ERR(duck_run(f.connection, "SELECT * FROM kept", &e), ERR_INVALID);
    fixture_close(&f);
}

TEST(two_connections_may_use_the_same_name)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    struct duck_connection *other = NULL;
    CHECK_ERR(duck_connect(f.duck, &other, &e), ERR_OK);
    int n_released = 0;
    struct ArrowArrayStream one = stream_of(&f, "SELECT 1 AS n", -1, &n_released);
    struct ArrowArrayStream two = stream_of(&f, "SELECT 2 AS n", -1, &n_released);
    CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "m", .is_kept = false}, &one, &e), ERR_OK);
    CHECK_ERR(duck_register(other, &(struct duck_input){.name = "m", .is_kept = false}, &two, &e), ERR_OK);
    CHECK_STR(rows_of(&f, f.connection, "FROM m"), "1");
    CHECK_STR(rows_of(&f, other, "FROM m"), "2");
    duck_disconnect(other);
    CHECK_INT(n_released, 1);
    fixture_close(&f);
    CHECK_INT(n_released, 2);
}

TEST(an_error_of_a_stream_fails_the_query_with_its_message)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    int n_released = 0;
    struct ArrowArrayStream stream = stream_of(&f, "SELECT range AS n FROM range(500000)", 2, &n_released);
    CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "broken", .is_kept = false}, &stream, &e),
              ERR_OK);
    CHECK(duck_run(f.connection, "SELECT sum(n) FROM broken", &e) != ERR_OK);
    CHECK(strstr(e.message, "the other end is gone") != NULL);
    stream = stream_of(&f, "SELECT range AS n FROM range(500000)", 2, &n_released);
    CHECK(duck_register(f.connection, &(struct duck_input){.name = "kept", .is_kept = true}, &stream, &e) != ERR_OK);
    CHECK(strstr(e.message, "the other end is gone") != NULL);
    CHECK(stream.release == NULL);
    CHECK_INT(n_released, 1);
    fixture_close(&f);
    CHECK_INT(n_released, 2);
}

/* One value of every type, and a NULL, go out and come back. ENUM comes back as VARCHAR: fragments cast it. */
TEST(every_type_survives_the_way_through_arrow)
{
    static const char *const values[] = {
        "true",
        "1::TINYINT",
        "-2::SMALLINT",
        "3",
        "4::BIGINT",
        "170141183460469231731687303715884105727::HUGEINT",
        "1::UTINYINT",
        "2::USMALLINT",
        "3::UINTEGER",
        "18446744073709551615::UBIGINT",
        "5::UHUGEINT",
        "1.5::FLOAT",
        "'nan'::DOUBLE",
        "1.25::DECIMAL(4,2)",
        "12345678901234567890.12::DECIMAL(38,2)",
        "'text'",
        "'\\x00\\xFF'::BLOB",
        "'0101'::BIT",
        "DATE '0001-01-01'",
        "TIME '01:02:03.4'",
        "'01:02:03+04:05'::TIMETZ",
        "TIMESTAMP '2020-01-01 01:02:03.456789'",
        "TIMESTAMP_S '2020-01-01'",
        "TIMESTAMP_MS '2020-01-01'",
        "TIMESTAMP_NS '2020-01-01 00:00:00.123456789'",
        "TIMESTAMPTZ '2020-01-01 00:00:00+02'",
        "INTERVAL '1 month 2 days 3 seconds'",
        "'6d3d1a80-0000-4000-8000-0123456789ab'::UUID",
        "[1, NULL, 3]",
        "[[1], []]",
        "{'a': 1, 'b': 'x'}",
        "MAP {'k': [1]}",
        "[1, 2, 3]::INTEGER[3]",
        "union_value(s := 'a')",
        "'{\"a\": 1}'::JSON",
    };
    struct fixture f = fixture_open(&defaults);
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct error e = {0};
        int n_released = 0;
        struct buf sql = {0};
        buf_format(&sql, "SELECT x FROM (SELECT %s AS x UNION ALL SELECT NULL) ORDER BY 1 NULLS LAST", values[i]);
        struct ArrowArrayStream stream = stream_of(&f, sql.data, -1, &n_released);
        CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "m", .is_kept = true}, &stream, &e), ERR_OK);
        struct buf expected = {0};
        buf_reset(&sql);
        buf_format(&sql, "SELECT typeof(%s), (%s)::VARCHAR, '2'", values[i], values[i]);
        buf_text(&expected, rows_of(&f, f.connection, sql.data));
        CHECK_STR(
            rows_of(
                &f, f.connection,
                "SELECT typeof(first(x)), first(x)::VARCHAR, count(*)::VARCHAR FROM (FROM m ORDER BY x NULLS LAST)"),
            expected.data);
        duck_unregister(f.connection, "m");
        buf_deinit(&expected);
        buf_deinit(&sql);
    }
    fixture_close(&f);
}

/* Those of sums are, though Arrow has no such types. */
TEST(types_that_need_no_asking_are_those_of_duckdb)
{
    static const struct {
        const char *value;
        bool is_plain;
    } cases[] = {
        {"sum(1)", true},
        {"5::UHUGEINT", true},
        {"sum(1.5::DECIMAL(9,2))", true},
        {"DATE '2020-01-01'", true},
        {"'0101'::BIT", false},
        {"'{}'::JSON", false},
        {"[1]", false},
    };
    struct fixture f = fixture_open(&defaults);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct duck_result *result = NULL;
        struct ArrowSchema schema;
        struct ArrowArray array;
        struct buf sql = {0};
        duckdb_logical_type type = NULL;
        duckdb_result plain = {0};
        buf_format(&sql, "SELECT %s AS x", cases[i].value);
        CHECK_ERR(duck_query(f.connection, sql.data, &result, NULL), ERR_OK);
        CHECK_ERR(duck_result_schema(result, &schema, NULL), ERR_OK);
        CHECK_INT(duck__plain_type(schema.children[0], &type), cases[i].is_plain);
        CHECK_ERR(duck_result_next(result, &array, NULL), ERR_OK);
        array.release(&array);
        schema.release(&schema);
        duck_result_close(result);
        CHECK_INT(duck__api.query(f.connection->connection, sql.data, &plain), DuckDBSuccess);
        if (type != NULL) {
            CHECK_INT(duck__api.get_type_id(type), duck__api.column_type(&plain, 0));
            duck__api.destroy_logical_type(&type);
        }
        duck__api.destroy_result(&plain);
        buf_deinit(&sql);
    }
    fixture_close(&f);
}

#define AN_ENUM "CASE WHEN range % 2 = 0 THEN NULL ELSE 'b'::ENUM('a', 'b') END"

TEST(nulls_of_enums_stay_nulls)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    int n_released = 0;
    struct ArrowArrayStream stream =
        stream_of(&f, "SELECT " AN_ENUM " AS x, {'x': " AN_ENUM "} AS s FROM range(5000)", -1, &n_released);
    CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "m", .is_kept = true}, &stream, &e), ERR_OK);
    CHECK_STR(rows_of(&f, f.connection, "SELECT x, s.x, count(*) FROM m GROUP BY ALL ORDER BY ALL"),
              "b,b,2500;null,null,2500");
    fixture_close(&f);
}

/* DuckDB would die of it: see slice.c. */
TEST(lists_of_enums_with_nulls_are_refused_if_they_are_many)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    int n_released = 0;
    struct ArrowArrayStream stream = stream_of(&f, "SELECT [" AN_ENUM ", NULL] AS x FROM range(500)", -1, &n_released);
    CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "few", .is_kept = true}, &stream, &e), ERR_OK);
    CHECK_STR(rows_of(&f, f.connection, "SELECT x[1], x[2], count(*) FROM few GROUP BY ALL ORDER BY ALL"),
              "b,null,250;null,null,250");
    stream = stream_of(&f, "SELECT [" AN_ENUM ", NULL] AS x FROM range(2000)", -1, &n_released);
    CHECK(duck_register(f.connection, &(struct duck_input){.name = "many", .is_kept = true}, &stream, &e) != ERR_OK);
    CHECK(strstr(e.message, "lists of ENUM with NULLs cannot be passed on") != NULL);
    fixture_close(&f);
}

/* The bits of a Bool array as 0, 1 and - for NULL. */
static void write_bools(struct buf *out, const struct ArrowArray *array)
{
    const uint8_t *validity = array->buffers[0];
    const uint8_t *bits = array->buffers[1];
    for (int64_t i = array->offset; i < array->offset + array->length; i++) {
        bool is_null = validity != NULL && (validity[i / 8] >> (i % 8) & 1) == 0;
        buf_char(out, is_null ? '-' : (bits[i / 8] >> (i % 8) & 1) != 0 ? '1' : '0');
    }
}

TEST(a_boolean_is_a_bool_of_arrow)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    struct duck_result *result = NULL;
    struct ArrowSchema schema;
    struct ArrowArray array;
    struct buf text = {0};
    CHECK_ERR(duck_query(
                  f.connection,
                  "SELECT CASE WHEN i % 4 = 3 THEN NULL ELSE i % 3 = 0 END AS b, i::TINYINT AS n, [i = 2, i > 1] AS l, "
                  "{'x': i = 1, 'y': i} AS s FROM range(11) r(i) ORDER BY i",
                  &result, &e),
              ERR_OK);
    CHECK_ERR(duck_result_schema(result, &schema, &e), ERR_OK);
    CHECK_STR(schema.children[0]->format, "b");
    CHECK(schema.children[0]->metadata == NULL);
    CHECK_STR(schema.children[1]->format, "c");
    CHECK_STR(schema.children[2]->children[0]->format, "b");
    CHECK_STR(schema.children[3]->children[0]->format, "b");
    CHECK_ERR(duck_result_next(result, &array, &e), ERR_OK);
    CHECK_INT(array.length, 11);
    write_bools(&text, array.children[0]);
    CHECK_STR(text.data, "100-001-010");
    buf_reset(&text);
    write_bools(&text, array.children[2]->children[0]);
    CHECK_STR(text.data, "0000110101010101010101");
    buf_reset(&text);
    write_bools(&text, array.children[3]->children[0]);
    CHECK_STR(text.data, "01000000000");
    CHECK_INT(((const int8_t *)array.children[1]->buffers[1])[10], 10);
    array.release(&array);
    schema.release(&schema);
    duck_result_close(result);
    buf_deinit(&text);
    fixture_close(&f);
}

TEST(booleans_survive_the_way_through_arrow)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    int n_released = 0;
    const char *sql =
        "SELECT i, CASE WHEN i % 5 = 0 THEN NULL ELSE i % 3 = 0 END AS b, [i % 2 = 0, NULL, i % 7 = 0] AS l, MAP "
        "{i: i % 11 = 0} AS m FROM range(10000) r(i)";
    struct ArrowArrayStream stream = stream_of(&f, sql, -1, &n_released);
    CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "m"}, &stream, &e), ERR_OK);
    struct buf both = {0};
    buf_format(&both,
               "SELECT count(*)::VARCHAR FROM (FROM m) a JOIN (%s) b ON a.i = b.i AND a.b IS NOT DISTINCT FROM b.b AND "
               "a.l = b.l AND a.m = b.m",
               sql);
    CHECK_STR(rows_of(&f, f.connection, both.data), "10000");
    buf_deinit(&both);
    fixture_close(&f);
}

TEST(a_stand_in_has_columns_and_no_rows)
{
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    CHECK_ERR(duck_add_source(f.connection, "s1", "(SELECT 1 AS a, [DATE '2000-01-01'] AS \"B c\")", 1000, &e), ERR_OK);
    CHECK_STR(rows_of(&f, f.connection, "SELECT column_name, column_type FROM (DESCRIBE FROM capstan_source('s1'))"),
              "a,INTEGER;B c,DATE[]");
    CHECK_STR(rows_of(&f, f.connection, "SELECT a FROM capstan_source('s1')"), "");
    CHECK_ERR(duck_run(f.connection, "FROM capstan_source('s2')", &e), ERR_INVALID);
    CHECK_ERR(duck_add_source(f.connection, "s2", "'no/such.csv'", 1, &e), ERR_NOT_FOUND);
    duck_forget_sources(f.connection);
    CHECK_ERR(duck_run(f.connection, "FROM capstan_source('s1')", &e), ERR_INVALID);
    fixture_close(&f);
}

/* Nobody has the setting on; a statement of a task might. */
TEST(intervals_inside_of_list_views_are_looked_at_too)
{
    static const struct {
        const char *sql;
        const char *format;
        enum err expected;
    } cases[] = {
        {"SELECT [to_microseconds(2305843009213693952)] AS x", "+v", ERR_INVALID},
        {"SELECT [[to_days(1)], [to_microseconds(2305843009213693952)]] AS x FROM range(3000)", "+v", ERR_INVALID},
        {"SELECT {'a': [-to_hours(2562048)]} AS x", "+s", ERR_INVALID},
        {"SELECT MAP {1: [to_microseconds(2305843009213693952)]} AS x", "+m", ERR_INVALID},
        {"SELECT [to_days(1), to_microseconds(5)] AS x FROM range(3000)", "+v", ERR_OK},
    };
    struct fixture f = fixture_open(&defaults);
    struct error e = {0};
    CHECK_ERR(duck_run(f.connection, "SET arrow_output_list_view = true; SET arrow_output_version = '1.5'", &e),
              ERR_OK);
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        struct duck_result *result = NULL;
        struct ArrowArray array = {0};
        struct ArrowSchema schema = {0};
        char sql[100];
        (void)snprintf(sql, sizeof sql, "SET arrow_large_buffer_size = %s", i % 2 == 1 ? "true" : "false");
        CHECK_ERR(duck_run(f.connection, sql, &e), ERR_OK);
        CHECK_ERR(duck_query(f.connection, cases[i / 2].sql, &result, &e), ERR_OK);
        CHECK_ERR(duck_result_schema(result, &schema, &e), ERR_OK);
        CHECK_MEM(schema.children[0]->format, cases[i / 2].format, 2);
        schema.release(&schema);
        CHECK_ERR(duck_result_next(result, &array, &e), cases[i / 2].expected);
        if (array.release != NULL) {
            array.release(&array);
        }
        duck_result_close(result);
    }
    fixture_close(&f);
}
