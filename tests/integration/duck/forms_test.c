/* DECIMAL and BLOB of an instance with short decimals: what leaves, and what comes back. */
#include <string.h>

#include "base/buf.h"
#include "duck/duck.h"
#include "test.h"

static const char rows_sql[] =
    "SELECT (i / 3.0 - 300)::DECIMAL(15, 2) AS d64, (i % 1000 - 500)::DECIMAL(7, 1) AS d32, (i % 10)::DECIMAL(4, 1) AS d16, "
    "i::DECIMAL(30, 2) AS d128, CASE WHEN i % 3 = 0 THEN NULL ELSE (i * 7)::DECIMAL(12, 3) END AS nulls, "
    "CASE WHEN i % 5 = 0 THEN NULL ELSE repeat('x', (i % 40)::INTEGER)::BLOB END AS blob, "
    "[i::DECIMAL(12, 3), NULL] AS list, {'b': repeat('y', (i % 20)::INTEGER)::BLOB, 't': i || ''} AS nested, "
    "i % 2 = 0 AS even FROM range(3000) r(i)";

struct fixture {
    struct duck *duck;
    struct duck_connection *from;
    struct duck_connection *to;
    struct duck_result *result;
    struct buf formats;
    struct error e;
};

static void note_formats(struct buf *out, const struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        buf_format(out, "%s ", schema->children[i]->format);
        note_formats(out, schema->children[i]);
    }
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    struct fixture *f = stream->private_data;
    return duck_result_schema(f->result, out, &f->e) == ERR_OK ? 0 : 5;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct fixture *f = stream->private_data;
    return duck_result_next(f->result, out, &f->e) == ERR_OK ? 0 : 5;
}

static const char *get_last_error(struct ArrowArrayStream *stream)
{
    return ((struct fixture *)stream->private_data)->e.message;
}

static void release(struct ArrowArrayStream *stream)
{
    stream->release = NULL;
}

/* Runs the query and makes its rows the table `arrived` of the other connection. */
static void fixture_open(struct fixture *f, bool is_shortened)
{
    struct ArrowSchema schema;
    *f = (struct fixture){0};
    CHECK_ERR(duck_open(&(struct duck_options){.threads = 1, .has_short_decimals = true}, &f->duck, &f->e), ERR_OK);
    CHECK_ERR(duck_connect(f->duck, &f->from, &f->e), ERR_OK);
    CHECK_ERR(duck_connect(f->duck, &f->to, &f->e), ERR_OK);
    enum err err = duck_query(f->from, rows_sql, &f->result, &f->e);
    CHECK_STR(f->e.message, "");
    CHECK_ERR(err, ERR_OK);
    if (is_shortened) {
        duck_result_shorten(f->result);
    }
    CHECK_ERR(duck_result_schema(f->result, &schema, &f->e), ERR_OK);
    note_formats(&f->formats, &schema);
    schema.release(&schema);
    struct ArrowArrayStream stream = {.get_schema = get_schema,
                                      .get_next = get_next,
                                      .get_last_error = get_last_error,
                                      .release = release,
                                      .private_data = f};
    err = duck_register(f->to, &(struct duck_input){.name = "arrived", .rows = 3000, .is_kept = true}, &stream, &f->e);
    CHECK_STR(f->e.message, "");
    CHECK_ERR(err, ERR_OK);
}

static void fixture_close(struct fixture *f)
{
    duck_result_close(f->result);
    duck_disconnect(f->to);
    duck_disconnect(f->from);
    duck_close(f->duck);
    buf_deinit(&f->formats);
}

static enum err keep(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(e);
    for (uint32_t i = 0; i < n; i++) {
        buf_format(context, "%s ", values[i].bytes);
    }
    return ERR_OK;
}

/* How many rows there are, and how many differ from those of the query, types included. */
static void expect_same_rows(struct fixture *f)
{
    struct buf sql = {0};
    struct buf text = {0};
    buf_format(
        &sql,
        "SELECT (SELECT count(*) FROM arrived), count(*), (SELECT any_value(typeof(d64) || typeof(nulls) || "
        "typeof(blob) || typeof(list) || typeof(nested)) FROM arrived) FROM (SELECT t::VARCHAR FROM arrived t EXCEPT "
        "ALL SELECT t::VARCHAR FROM (%s) t)",
        rows_sql);
    enum err err = duck_rows(f->to, sql.data, NULL, 0, keep, &text, &f->e);
    CHECK_STR(f->e.message, "");
    CHECK_ERR(err, ERR_OK);
    CHECK_STR(text.data, "3000 0 DECIMAL(15,2)DECIMAL(12,3)BLOBDECIMAL(12,3)[]STRUCT(b BLOB, t VARCHAR) ");
    buf_deinit(&sql);
    buf_deinit(&text);
}

TEST(decimals_and_blobs_leave_in_the_forms_that_every_reader_knows)
{
    struct fixture f;
    fixture_open(&f, false);
    CHECK_STR(f.formats.data, "d:15,2 d:7,1 d:4,1 d:30,2 d:12,3 z +l d:12,3 +s z u b ");
    expect_same_rows(&f);
    fixture_close(&f);
}

TEST(short_decimals_are_those_that_duckdb_keeps)
{
    struct fixture f;
    fixture_open(&f, true);
    CHECK_STR(f.formats.data, "d:15,2,64 d:7,1,32 d:4,1,32 d:30,2,128 d:12,3,64 z +l d:12,3,64 +s z u b ");
    expect_same_rows(&f);
    fixture_close(&f);
}

TEST(rows_that_were_chosen_are_all_there)
{
    struct fixture f;
    struct buf text = {0};
    fixture_open(&f, true);
    duck_result_close(f.result);
    enum err err = duck_query(f.from, "SELECT CASE WHEN i % 3 = 0 THEN NULL ELSE i END AS k, i FROM range(3000) r(i)",
                              &f.result, &f.e);
    CHECK_ERR(err, ERR_OK);
    struct ArrowArrayStream stream = {.get_schema = get_schema,
                                      .get_next = get_next,
                                      .get_last_error = get_last_error,
                                      .release = release,
                                      .private_data = &f};
    err = duck_register(f.to, &(struct duck_input){.name = "chosen", .rows = 3000, .is_chosen = true}, &stream, &f.e);
    CHECK_STR(f.e.message, "");
    CHECK_ERR(err, ERR_OK);
    CHECK_ERR(duck_rows(f.to, "SELECT count(*), count(k), sum(i)::BIGINT FROM chosen", NULL, 0, keep, &text, &f.e),
              ERR_OK);
    CHECK_STR(text.data, "3000 2000 4498500 ");
    buf_deinit(&text);
    fixture_close(&f);
}

/* The formats of all types, as an instance writes them. */
static void all_formats(bool has_short_decimals, struct buf *out)
{
    struct duck *duck = NULL;
    struct duck_connection *connection = NULL;
    struct duck_result *result = NULL;
    struct ArrowSchema schema;
    struct ArrowArray array = {0};
    struct error e = {0};
    struct duck_options options = {.threads = 1, .has_short_decimals = has_short_decimals};
    CHECK_ERR(duck_open(&options, &duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(duck, &connection, &e), ERR_OK);
    CHECK_ERR(duck_query(connection, "SELECT * FROM test_all_types()", &result, &e), ERR_OK);
    CHECK_ERR(duck_result_schema(result, &schema, &e), ERR_OK);
    note_formats(out, &schema);
    schema.release(&schema);
    CHECK_ERR(duck_result_next(result, &array, &e), ERR_OK);
    CHECK_INT(array.length, 3);
    array.release(&array);
    duck_result_close(result);
    duck_disconnect(connection);
    duck_close(duck);
}

TEST(an_instance_with_short_decimals_changes_no_form_that_leaves)
{
    struct buf with = {0};
    struct buf without = {0};
    all_formats(true, &with);
    all_formats(false, &without);
    CHECK_STR(with.data, without.data);
    buf_deinit(&with);
    buf_deinit(&without);
}
