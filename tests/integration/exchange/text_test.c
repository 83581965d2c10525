/*
 * text_test.c - cells and types as text, beside DuckDB's own CAST and typeof.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "duck/duck.h"
#include "exchange/stream.h"
#include "exchange/text.h"
#include "test.h"

/* Each row: SQL for a list of values of one type, NULLs among them. */
static const char *const lists[] = {
    "[true, false, null]",
    "[1, -128, 127, 0, null]::tinyint[]",
    "[1, -32768, 32767, null]::smallint[]",
    "[1, -2147483648, 2147483647, null]::integer[]",
    "[1, -9223372036854775808, 9223372036854775807, null]::bigint[]",
    "['0', '-1', '170141183460469231731687303715884105727', '-170141183460469231731687303715884105728', null]::hugeint[]",
    "[0, 255]::utinyint[]",
    "[0, 65535]::usmallint[]",
    "[0, 4294967295]::uinteger[]",
    "['0', '18446744073709551615', null]::ubigint[]",
    "['0', '1', '340282366920938463463374607431768211455', null]::uhugeint[]",
    "['0', '-1', '255', '-256', '123456789012345678901234567890', '-123456789012345678901234567890', null]::bignum[]",
    "['0', '-0.0', '1', '1.5', '0.1', '1e15', '1e16', '123456789012345678', '1e100', '1e-4', '1e-5', '1.25e-7', 'nan']::double[]",
    "['inf', '-inf', '5e-324', '2.2250738585072014e-308', '1.7976931348623157e308', '123456.789', '0.30000000000000004']::double[]",
    "['9007199254740993', null]::double[]",
    "['0', '-0.0', '1', '1.5', '0.1', '1e15', '1e16', '16777216', '1e-4', '1e-5', 'nan', 'inf', '-inf', '1e-45']::float[]",
    "['3.4028235e38', '1.1754944e-38', '0.3333333', null]::float[]",
    "list_transform(range(2000), lambda i: (hash(i) % 1000000000) / (1 + hash(i + 7) % 100000000)::double)",
    "list_transform(range(2000), lambda i: ((hash(i) % 1000000) / (1 + hash(i + 7) % 1000000)::double)::float)",
    "['0', '-1.5', '999.9', '0.1', '-0.1', null]::decimal(4, 1)[]",
    "['0', '0.5', '-0.5', '0.0001', null]::decimal(4, 4)[]",
    "['0', '12', '-12', null]::decimal(9, 0)[]",
    "['0', '123456789012345.678', '-0.001', null]::decimal(18, 3)[]",
    "['0', '-1.5', '0.00005', '999999999999999999999999999999999.99999', null]::decimal(38, 5)[]",
    "['', 'a', 'täxt', 'a\"b''c\\d', chr(0) || 'x', 'a' || chr(10) || 'b', null]",
    "['', 'abc', '\\x00\\xFF\\x27\\x22\\x5C\\x7F ~', null]::blob[]",
    "['0', '1', '101', '000000001', '1111111100000000', null]::bit[]",
    "['00000000-0000-0000-0000-000000000000', 'ffffffff-eeee-dddd-cccc-bbbbbbbbbbbb', null]::uuid[]",
    "['1970-01-01', '2024-02-29', '1900-03-01', '0001-01-01', '9999-12-31', '10000-01-01', '0001-12-31 (BC)', '5881580-07-10']::date[]",
    "['5877642-06-25 (BC)', 'infinity', '-infinity', null]::date[]",
    "list_transform(range(0, 3000000, 997), lambda i: date '0100-01-01 (BC)' + i::int)",
    "['00:00:00', '24:00:00', '00:00:00.5', '23:59:59.999999', null]::time[]",
    "['00:00:00', '24:00:00', '00:00:00.5', '23:59:59.999999999', null]::time_ns[]",
    "['01:02:03+02', '24:00:00-15:59:59', '00:00:00.5+05:30', '12:00:00-08', '00:00:00+15:59:59', null]::timetz[]",
    "['1970-01-01', '2020-01-01 01:02:03.000001', '1969-12-31 23:59:59.999999', '0044-03-15 (BC) 12:00:00', 'infinity']::timestamp[]",
    "['290309-12-22 (BC) 00:00:00', '294247-01-10 04:00:54.775806', '-infinity', null]::timestamp[]",
    "['1970-01-01', '1969-12-31 23:59:59', 'infinity', '-infinity', null]::timestamp_s[]",
    "['1970-01-01', '1969-12-31 23:59:59.999', 'infinity', null]::timestamp_ms[]",
    "['1970-01-01', '1969-12-31 23:59:59.999999999', '1677-09-22', 'infinity', null]::timestamp_ns[]",
    "['1970-01-01', '2020-07-01 12:00:00.5+02', '0044-03-15 (BC) 12:00:00+00', 'infinity', '-infinity', null]::timestamptz[]",
    "['0 days', '1 day', '-1 day', '14 months', '-14 months', '12 months', '1 month 3 days 01:02:03.5', '1 microsecond']::interval[]",
    "['-1 second', '1000 hours', '-1 month -3 days -01:02:03.000001', null]::interval[]",
    "['sad', 'happy, or not', null]::enum('sad', 'happy, or not')[]",
    "[[1, null], [], null]",
    "[[[1], null], [], [[]]]",
    "[[1, 2, 3], [null, 5, 6], null]::integer[3][]",
    "[['a', '', ' a', 'a ', 'a b', 'a,b', 'a''b', 'a\"b', 'a\\b', 'a\\,b', 'null', 'NuLL', 'nul', '[', '}', '(', 'a=b', 'a:b']]",
    "[['a' || chr(10) || 'b', chr(9), chr(0), 'ünï', null]]",
    "[[date '2020-01-01', null], [date '0044-03-15 (BC)']]",
    "[[timestamp '2020-01-01 00:00:00']]",
    "[[interval 1 day, interval 1 hour]]",
    "[['a b'::blob, '\\x00,'::blob]]",
    "[[time '01:02:03']]",
    "[['a,b'::enum('a,b', 'c'), 'c', null]]",
    "[{'a': 1, 'b c': null::date, 'q''d': 'x,y', 'B\\C': {'d': ['x', null]}}, null]",
    "[row(1, 'x'), row(null, 'x, y'), null]",
    "[[row(1, row('x,', 2))]]",
    "[map {'a': 1, 'b, c': null}, map {}, null]",
    "[map {1: [1, 2], 2: null}]",
    "[map {{'k': 'a,b'}: ['a,b']}]",
    "[union_value(num := 1), union_value(str := 'a, b')::union(num integer, str varchar), null]",
    "[[union_value(num := 1), union_value(str := 'a, b')::union(num integer, str varchar)]]",
    "['{\"a\": [1, 2]}', '[]', 'null', null]::json[]",
    "[['{\"a\":1}', '\"x, y\"']::json[]]",
    "[map {'{}'::json: '{}'::json}]",
    "[['{}'::json, null]::json[2]]",
    "[[{'m': map {1: ['x']}, 'e': ('sad')::enum('sad', 'ok'), 'j': '{}'::json}]]",
};

struct fixture {
    struct duck *duck;
    struct duck_connection *connection;
};

static void must(enum err err, const struct error *e)
{
    if (err != ERR_OK) {
        print_error("%s\n", e->message);
    }
    CHECK_ERR(err, ERR_OK);
}

static void fixture_open(struct fixture *f)
{
    struct error e = {0};
    must(duck_open(&(struct duck_options){.threads = 1}, &f->duck, &e), &e);
    must(duck_connect(f->duck, &f->connection, &e), &e);
    must(duck_run(f->connection, "set timezone = 'UTC'", &e), &e);
}

static void fixture_close(struct fixture *f)
{
    duck_disconnect(f->connection);
    duck_close(f->duck);
}

/* The columns of a batch: the value, DuckDB's text of it, its type. */
struct columns {
    struct text_type *types[3];
};

static void columns_init(struct columns *columns, const struct ArrowSchema *schema)
{
    struct error e = {0};
    CHECK_INT(schema->n_children, 3);
    for (uint32_t i = 0; i < 3; i++) {
        must(text_type_new(schema->children[i], &columns->types[i], &e), &e);
    }
}

static void columns_deinit(struct columns *columns)
{
    for (uint32_t i = 0; i < 3; i++) {
        text_type_free(columns->types[i]);
    }
}

static void check_type(const struct columns *columns, const struct buf *expected)
{
    struct buf name = {0};
    text_type_name(&name, columns->types[0]);
    /* The values of an ENUM are not in the schema. */
    if (strstr(expected->data, "ENUM(") == NULL) {
        CHECK_STR(name.data, expected->data);
    } else {
        CHECK(strstr(name.data, "ENUM") != NULL);
    }
    buf_deinit(&name);
}

static void check_json(const struct columns *columns, const struct ArrowArray *array, int64_t row)
{
    struct buf json = {0};
    struct json *root = NULL;
    struct error e = {0};
    text_cell_json(&json, columns->types[0], array, row);
    must(json_parse(json.data, json.n, &root, &e), &e);
    CHECK(strchr(json.data, '\n') == NULL);
    json_free(root);
    buf_deinit(&json);
}

static uint32_t check_batch(const struct columns *columns, const struct ArrowArray *batch, const char *list)
{
    struct buf cells[3] = {{0}};
    for (int64_t row = 0; row < batch->length; row++) {
        bool is_there[3];
        for (uint32_t i = 0; i < 3; i++) {
            buf_reset(&cells[i]);
            is_there[i] = text_cell(&cells[i], columns->types[i], batch->children[i], batch->offset + row);
        }
        bool is_same = is_there[0] == is_there[1] && cells[0].n == cells[1].n &&
                       memcmp(cells[0].data, cells[1].data, cells[0].n) == 0;
        if (!is_same) {
            print_error("%s: '%s', but DuckDB prints '%s'\n", list, cells[0].data, cells[1].data);
        }
        CHECK(is_same);
        check_type(columns, &cells[2]);
        check_json(columns, batch->children[0], batch->offset + row);
    }
    for (uint32_t i = 0; i < 3; i++) {
        buf_deinit(&cells[i]);
    }
    return (uint32_t)batch->length;
}

/* The batch as DuckDB made it, and as it comes out of an Arrow stream. */
static uint32_t check_both(const struct ArrowSchema *schema, const struct ArrowArray *batch, const char *list)
{
    struct columns columns = {0};
    struct buf bytes = {0};
    struct stream_read read;
    columns_init(&columns, schema);
    uint32_t n = check_batch(&columns, batch, list);
    columns_deinit(&columns);
    stream_write(schema, batch, 1, false, &bytes);
    CHECK_ERR(stream_read(&bytes, 4096, true, &read), ERR_OK);
    columns_init(&columns, ipc_reader_schema(read.reader));
    for (uint32_t i = 0; i < read.n_batches; i++) {
        check_batch(&columns, &read.batches[i], list);
    }
    columns_deinit(&columns);
    stream_read_deinit(&read);
    buf_deinit(&bytes);
    return n;
}

static uint32_t check_list(struct fixture *f, const char *list)
{
    struct duck_result *result = NULL;
    struct ArrowSchema schema = {0};
    struct ArrowArray batch = {0};
    struct buf sql = {0};
    struct error e = {0};
    uint32_t rows = 0;
    buf_format(&sql, "select x, x::varchar, typeof(x) from (select unnest(%s) as x)", list);
    must(duck_query(f->connection, sql.data, &result, &e), &e);
    must(duck_result_schema(result, &schema, &e), &e);
    for (;;) {
        must(duck_result_next(result, &batch, &e), &e);
        if (batch.release == NULL) {
            break;
        }
        rows += check_both(&schema, &batch, list);
        batch.release(&batch);
    }
    schema.release(&schema);
    duck_result_close(result);
    buf_deinit(&sql);
    return rows;
}

TEST(cells_of_all_types_read_as_duckdb_prints_them)
{
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        CHECK(check_list(&f, lists[i]) > 0);
    }
    fixture_close(&f);
}

static void check_one_json(struct fixture *f, const char *value, const char *expected)
{
    struct duck_result *result = NULL;
    struct ArrowSchema schema = {0};
    struct ArrowArray batch = {0};
    struct text_type *type = NULL;
    struct buf text = {0};
    struct error e = {0};
    buf_format(&text, "select %s", value);
    must(duck_query(f->connection, text.data, &result, &e), &e);
    must(duck_result_schema(result, &schema, &e), &e);
    must(duck_result_next(result, &batch, &e), &e);
    must(text_type_new(schema.children[0], &type, &e), &e);
    buf_reset(&text);
    text_cell_json(&text, type, batch.children[0], 0);
    CHECK_STR(text.data, expected);
    text_type_free(type);
    batch.release(&batch);
    schema.release(&schema);
    duck_result_close(result);
    buf_deinit(&text);
}

TEST(json_has_numbers_only_where_every_reader_gets_them_exactly)
{
    static const char *const cases[][2] = {
        {"true", "true"},
        {"42", "42"},
        {"9007199254740992", "9007199254740992"},
        {"9007199254740993", "\"9007199254740993\""},
        {"-9007199254740993", "\"-9007199254740993\""},
        {"18446744073709551615::ubigint", "\"18446744073709551615\""},
        {"1::hugeint", "\"1\""},
        {"1.50::decimal(4,2)", "\"1.50\""},
        {"1.5::double", "1.5"},
        {"0.1::float", "0.1"},
        {"'nan'::double", "\"nan\""},
        {"'-inf'::float", "\"-inf\""},
        {"null::integer", "null"},
        {"'a\"b' || chr(10)", "\"a\\\"b\\n\""},
        {"'\\x00a'::blob", "\"\\\\x00a\""},
        {"timestamptz '2020-01-01 00:00:00+00'", "\"2020-01-01 00:00:00+00\""},
        {"[1, null, 3]", "[1,null,3]"},
        {"{'a': 1, 'b': ['x']}", "{\"a\":1,\"b\":[\"x\"]}"},
        {"row(1, 'x')", "[1,\"x\"]"},
        {"map {1: true, 2: null}", "{\"1\":true,\"2\":null}"},
        {"union_value(num := 1)", "{\"num\":1}"},
        {"null::union(num integer)", "null"},
        {"'{\"a\" : [1, \"x \\\" , y\"] }'::json", "{\"a\":[1,\"x \\\" , y\"]}"},
        {"'sad'::enum('sad', 'ok')", "\"sad\""},
    };
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_one_json(&f, cases[i][0], cases[i][1]);
    }
    fixture_close(&f);
}
