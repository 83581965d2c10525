/*
 * text_test.c - cells and types as text. What DuckDB makes of them is compared in tests/integration/exchange.
 */
#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "exchange/text.h"
#include "generate.h"
#include "stream.h"

/* A column of one value, or of NULL, of a type without children. */
static void check_cell(const char *format, const void *value, const char *type_name, const char *text, const char *json)
{
    uint8_t is_valid = 1;
    const void *buffers[] = {&is_valid, value};
    struct ArrowSchema schema = {.format = format, .name = "x"};
    struct ArrowArray array = {.length = 1, .null_count = -1, .n_buffers = 2, .buffers = buffers};
    struct text_type *type = NULL;
    struct buf out = {0};
    struct error e = {0};
    CHECK_ERR(text_type_new(&schema, &type, &e), ERR_OK);
    text_type_name(&out, type);
    CHECK_STR(out.data, type_name);
    buf_reset(&out);
    CHECK(text_cell(&out, type, &array, 0));
    CHECK_STR(out.data, text);
    buf_reset(&out);
    text_cell_json(&out, type, &array, 0);
    CHECK_STR(out.data, json);
    is_valid = 0;
    buf_reset(&out);
    CHECK(!text_cell(&out, type, &array, 0));
    CHECK_UINT(out.n, 0);
    text_cell_json(&out, type, &array, 0);
    CHECK_STR(out.data, "null");
    buf_deinit(&out);
    text_type_free(type);
}

#define CELL(format, c_type, value, type_name, text, json)                                                             \
    check_cell((format), &(c_type){value}, (type_name), (text), (json))

TEST(numbers_have_all_their_digits)
{
    CELL("c", int8_t, -128, "TINYINT", "-128", "-128");
    CELL("S", uint16_t, 65535, "USMALLINT", "65535", "65535");
    CELL("l", int64_t, INT64_MIN, "BIGINT", "-9223372036854775808", "\"-9223372036854775808\"");
    CELL("l", int64_t, -(INT64_C(1) << 53), "BIGINT", "-9007199254740992", "-9007199254740992");
    CELL("L", uint64_t, UINT64_MAX, "UBIGINT", "18446744073709551615", "\"18446744073709551615\"");
    CELL("g", double, 1e16, "DOUBLE", "1e+16", "1e+16");
    CELL("g", double, -0.0, "DOUBLE", "-0.0", "-0.0");
    CELL("g", double, 123.0, "DOUBLE", "123.0", "123.0");
    CELL("f", float, 0.1F, "FLOAT", "0.1", "0.1");
    CELL("e", uint16_t, 0x3e00, "FLOAT", "1.5", "1.5");
    CELL("e", uint16_t, 0xfc00, "FLOAT", "-inf", "\"-inf\"");
}

TEST(types_that_duckdb_reads_but_does_not_write_have_a_text_as_well)
{
    int32_t decimal256[8] = {-150, -1, -1, -1, -1, -1, -1, -1};
    CELL("d:9,2,32", int32_t, -5, "DECIMAL(9,2)", "-0.05", "\"-0.05\"");
    CELL("d:9,-2,64", int64_t, 12, "DECIMAL(9,-2)", "1200", "\"1200\"");
    check_cell("d:76,2,256", decimal256, "DECIMAL(76,2)", "-1.50", "\"-1.50\"");
    CELL("tdm", int64_t, -1, "DATE", "1969-12-31", "\"1969-12-31\"");
    CELL("tts", int32_t, 3661, "TIME", "01:01:01", "\"01:01:01\"");
    CELL("ttm", int32_t, 1500, "TIME", "00:00:01.5", "\"00:00:01.5\"");
    CELL("tDs", int64_t, -90, "INTERVAL", "-00:01:30", "\"-00:01:30\"");
    CELL("tDm", int64_t, INT64_C(3600000), "INTERVAL", "01:00:00", "\"01:00:00\"");
    CELL("tiM", int32_t, 25, "INTERVAL", "2 years 1 month", "\"2 years 1 month\"");
    CELL("tiD", int64_t, (INT64_C(500) << 32) + 2, "INTERVAL", "2 days 00:00:00.5", "\"2 days 00:00:00.5\"");
    CELL("tsn:Europe/Zurich", int64_t, 1, "TIMESTAMP WITH TIME ZONE", "1970-01-01 00:00:00.000000001+00",
         "\"1970-01-01 00:00:00.000000001+00\"");
    CELL("w:2", uint16_t, 0x4100, "BLOB", "\\x00A", "\"\\\\x00A\"");
}

TEST(a_type_that_is_not_known_is_refused)
{
    struct ArrowSchema schema = {.format = "vu", .name = "x"};
    struct ArrowSchema *children[] = {&schema};
    struct ArrowSchema list = {.format = "+l", .name = "x", .n_children = 1, .children = children};
    struct text_type *type = NULL;
    struct error e = {0};
    CHECK_ERR(text_type_new(&schema, &type, &e), ERR_INVALID);
    CHECK_ERR(text_type_new(&list, &type, &e), ERR_INVALID);
    CHECK(strstr(e.message, "vu") != NULL);
    CHECK(type == NULL);
}

/* All cells of a batch, a line each, as texts and as JSON, which must be JSON. */
static void write_all(const struct ArrowSchema *schema, const struct ArrowArray *batch, struct buf *out)
{
    for (int64_t c = 0; c < schema->n_children; c++) {
        struct text_type *type = NULL;
        CHECK_ERR(text_type_new(schema->children[c], &type, NULL), ERR_OK);
        text_type_name(out, type);
        buf_char(out, '\n');
        for (int64_t row = 0; row < batch->length; row++) {
            struct buf json = {0};
            struct json *root = NULL;
            struct error e = {0};
            buf_text(out, text_cell(out, type, batch->children[c], batch->offset + row) ? "\n" : "is NULL\n");
            text_cell_json(&json, type, batch->children[c], batch->offset + row);
            enum err err = json_parse(json.data, json.n, &root, &e);
            /* Fields of a struct may be called alike in Arrow, and chance makes maps with the same key twice. */
            if (err != ERR_OK && strstr(e.message, "already") == NULL) {
                print_error("%s: %s\n", json.data, e.message);
                CHECK_ERR(err, ERR_OK);
            }
            json_free(root);
            buf_append(out, json.data, json.n);
            buf_deinit(&json);
        }
        text_type_free(type);
    }
}

TEST(awkward_arrays_read_the_same_before_and_after_a_stream)
{
    for (uint32_t seed = 0; seed < 200; seed++) {
        struct prng prng;
        struct ArrowSchema schema;
        struct ArrowArray batch;
        struct buf bytes = {0};
        struct buf before = {0};
        struct buf after = {0};
        struct stream_read read;
        prng_init(&prng, seed);
        generate_schema(&prng, 4, 3, &schema);
        generate_array(&prng, &schema, 30, true, &batch);
        write_all(&schema, &batch, &before);
        stream_write(&schema, &batch, 1, false, &bytes);
        CHECK_ERR(stream_read(&bytes, 1000, true, &read), ERR_OK);
        CHECK_UINT(read.n_batches, 1);
        write_all(ipc_reader_schema(read.reader), &read.batches[0], &after);
        CHECK_UINT(before.n, after.n);
        CHECK_MEM(before.data, after.data, before.n);
        stream_read_deinit(&read);
        batch.release(&batch);
        schema.release(&schema);
        buf_deinit(&bytes);
        buf_deinit(&before);
        buf_deinit(&after);
    }
}
