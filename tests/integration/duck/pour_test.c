/* Rows that DuckDB pours into a sink: their order, their forms, errors on both sides. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "duck/fixture.h"

static const struct duck_options defaults = {.threads = 2, .has_short_decimals = true};

struct bucket {
    struct buf formats; /* of the schema */
    uint64_t n_rows;
    uint64_t n_calls;
    uint64_t refuse_from; /* rows; 0: never */
    bool is_refused;      /* by `open` */
    struct buf text;      /* values of the first column, with commas between */
};

static enum err open_bucket(void *context, const struct ArrowSchema *schema, struct error *e)
{
    struct bucket *bucket = context;
    for (int64_t i = 0; i < schema->n_children; i++) {
        buf_format(&bucket->formats, "%s%s=%s", i == 0 ? "" : " ", schema->children[i]->name,
                   schema->children[i]->format);
    }
    return bucket->is_refused ? error_set(e, ERR_EXHAUSTED, "no room at all") : ERR_OK;
}

/* As told in duck.h. */
struct piece {
    uint32_t n;
    char start[4];
    const char *bytes;
};

static bool is_null(const struct ArrowArray *array, int64_t row)
{
    const uint8_t *validity = array->buffers[0];
    return array->null_count != 0 && validity != NULL && (validity[row / 8] >> (row % 8) & 1) == 0;
}

static enum err take_rows(void *context, const struct ArrowArray *rows, struct error *e)
{
    struct bucket *bucket = context;
    const struct ArrowArray *first = rows->children[0];
    bucket->n_calls++;
    bucket->n_rows += (uint64_t)rows->length;
    if (bucket->refuse_from > 0 && bucket->n_rows >= bucket->refuse_from) {
        return error_set(e, ERR_EXHAUSTED, "the bucket is full");
    }
    for (int64_t i = 0; i < rows->length && bucket->text.n < 4000; i++) {
        buf_text(&bucket->text, bucket->text.n == 0 ? "" : ",");
        if (is_null(first, i)) {
            buf_text(&bucket->text, "null");
        } else if (strncmp(bucket->formats.data, "c0=u", 4) == 0 || strncmp(bucket->formats.data, "c0=z", 4) == 0) {
            const struct piece *piece = (const struct piece *)first->buffers[1] + i;
            buf_append(&bucket->text, piece->n <= 12 ? piece->start : piece->bytes, piece->n);
        } else if (strncmp(bucket->formats.data, "c0=l", 4) == 0) {
            buf_format(&bucket->text, "%" PRId64, ((const int64_t *)first->buffers[1])[i]);
        }
    }
    return ERR_OK;
}

static void empty(struct bucket *bucket)
{
    buf_deinit(&bucket->formats);
    buf_deinit(&bucket->text);
    *bucket = (struct bucket){0};
}

static enum err pour(struct fixture *f, const char *sql, uint32_t n, struct bucket *bucket, bool *out_has_begun,
                     struct error *e)
{
    static const char *const names[] = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11"};
    struct duck_sink sink = {
        .names = n == 0 ? NULL : names, .n = n, .open = open_bucket, .take = take_rows, .context = bucket};
    return duck_pour(f->connection, sql, &sink, out_has_begun, e);
}

TEST(an_error_shows_the_line_that_was_asked_for)
{
    static const char sql[] = "SELECT i, CAST('x' || i AS INTEGER) FROM range(3) r(i)";
    struct fixture f = fixture_open(&defaults);
    struct bucket bucket = {0};
    struct error expected = {0};
    struct error e = {0};
    bool has_begun = false;
    CHECK_ERR(duck_run(f.connection, sql, &expected), ERR_INVALID);
    CHECK(strstr(expected.message, "LINE 1: SELECT i") != NULL);
    CHECK_ERR(pour(&f, sql, 0, &bucket, &has_begun, &e), ERR_INVALID);
    CHECK_STR(e.message, expected.message);
    CHECK_ERR(pour(&f, sql, 2, &bucket, &has_begun, &e), ERR_INVALID);
    CHECK_STR(e.message, expected.message);
    empty(&bucket);
    fixture_close(&f);
}

TEST(rows_are_poured_in_their_order_with_their_nulls)
{
    struct fixture f = fixture_open(&defaults);
    struct bucket bucket = {0};
    struct error e = {0};
    bool has_begun = false;
    CHECK_ERR(
        pour(&f,
             "SELECT CASE WHEN i % 3 = 1 THEN NULL WHEN i = 5 THEN 'exactly 12 b' WHEN i = 6 THEN '13 bytes long' "
             "WHEN i = 8 THEN '' ELSE 'a longer text, number ' || i END AS c0 FROM range(9) r(i)",
             1, &bucket, &has_begun, &e),
        ERR_OK);
    CHECK(has_begun);
    CHECK_STR(bucket.formats.data, "c0=u");
    CHECK_STR(bucket.text.data, "a longer text, number 0,null,a longer text, number 2,a longer text, number 3,null,"
                                "exactly 12 b,13 bytes long,null,");
    empty(&bucket);
    CHECK_ERR(pour(&f, "SELECT i AS c0, [i] AS c1 FROM range(100000) r(i) ORDER BY i DESC LIMIT 50000", 2, &bucket,
                   &has_begun, &e),
              ERR_OK);
    CHECK_UINT(bucket.n_rows, 50000);
    CHECK(bucket.n_calls > 10);
    CHECK_MEM(bucket.text.data, "99999,99998,99997,", 18);
    empty(&bucket);
    fixture_close(&f);
}

TEST(poured_columns_have_the_forms_of_a_shortened_result)
{
    struct fixture f = fixture_open(&defaults);
    struct bucket bucket = {0};
    struct error e = {0};
    bool has_begun = false;
    const char *sql = "SELECT 'a'::BLOB AS c0, 1::DECIMAL(4,1) AS c1, 1::DECIMAL(9,2) AS c2, 1::DECIMAL(18,3) AS c3, "
                      "1::DECIMAL(38,4) AS c4, true AS c5, DATE '2020-01-01' AS c6, 1::HUGEINT AS c7, "
                      "TIMESTAMPTZ '2020-01-01 00:00:00+00' AS c8, {'a': 1} AS c9, INTERVAL 1 DAY AS c10, "
                      "'a'::ENUM('a', 'b') AS c11";
    struct duck_result *result = NULL;
    struct ArrowSchema schema;
    struct buf expected = {0};
    CHECK_ERR(pour(&f, sql, 12, &bucket, &has_begun, &e), ERR_OK);
    CHECK_ERR(duck_query(f.connection, sql, &result, &e), ERR_OK);
    duck_result_shorten(result);
    CHECK_ERR(duck_result_schema(result, &schema, &e), ERR_OK);
    for (int64_t i = 0; i < schema.n_children; i++) {
        buf_format(&expected, "%s%s=%s", i == 0 ? "" : " ", schema.children[i]->name, schema.children[i]->format);
    }
    CHECK_STR(bucket.formats.data, expected.data);
    CHECK_STR(bucket.text.data, "a");
    schema.release(&schema);
    duck_result_close(result);
    buf_deinit(&expected);
    empty(&bucket);
    fixture_close(&f);
}

TEST(a_sink_without_rows_is_opened_all_the_same)
{
    struct fixture f = fixture_open(&defaults);
    struct bucket bucket = {0};
    struct error e = {0};
    bool has_begun = false;
    CHECK_ERR(pour(&f, "SELECT i AS c0 FROM range(10) r(i) WHERE i > 10 -- a comment", 1, &bucket, &has_begun, &e),
              ERR_OK);
    CHECK_STR(bucket.formats.data, "c0=l");
    CHECK_UINT(bucket.n_rows, 0);
    empty(&bucket);
    fixture_close(&f);
}

TEST(duckdb_is_asked_for_names_that_nobody_knows)
{
    struct fixture f = fixture_open(&defaults);
    struct bucket bucket = {0};
    struct error e = {0};
    bool has_begun = false;
    CHECK_ERR(pour(&f, "SELECT i AS \"a name\", 'x' FROM range(3) r(i) -- a comment", 0, &bucket, &has_begun, &e),
              ERR_OK);
    CHECK_STR(bucket.formats.data, "a name=l 'x'=u");
    CHECK_UINT(bucket.n_rows, 3);
    empty(&bucket);
    CHECK_ERR(pour(&f, "SELECT nothing", 0, &bucket, &has_begun, &e), ERR_INVALID);
    CHECK(!has_begun);
    CHECK_ERR(pour(&f, "SELECT 1; SELECT 2", 0, &bucket, &has_begun, &e), ERR_INVALID);
    CHECK(!has_begun);
    empty(&bucket);
    fixture_close(&f);
}

TEST(an_error_of_the_sink_is_that_of_the_query)
{
    struct fixture f = fixture_open(&defaults);
    struct bucket bucket = {.refuse_from = 30000};
    struct error e = {0};
    bool has_begun = false;
    CHECK_ERR(pour(&f, "SELECT i AS c0 FROM range(1000000) r(i)", 1, &bucket, &has_begun, &e), ERR_EXHAUSTED);
    CHECK_STR(e.message, "the bucket is full");
    CHECK(has_begun);
    CHECK(bucket.n_rows < 1000000);
    empty(&bucket);
    bucket.is_refused = true;
    CHECK_ERR(pour(&f, "SELECT i AS c0 FROM range(10) r(i)", 1, &bucket, &has_begun, &e), ERR_EXHAUSTED);
    CHECK_STR(e.message, "no room at all");
    CHECK_UINT(bucket.n_calls, 0);
    empty(&bucket);
    CHECK_ERR(pour(&f, "SELECT CAST('x' || i AS BIGINT) AS c0 FROM range(10) r(i)", 1, &bucket, &has_begun, &e),
              ERR_INVALID);
    CHECK(has_begun && strstr(e.message, "Could not convert string 'x0'") != NULL);
    empty(&bucket);
    CHECK_STR(rows_of(&f, f.connection, "SELECT 1"), "1"); /* the connection is as good as before */
    fixture_close(&f);
}

TEST(what_cannot_be_poured_has_not_begun)
{
    static const struct {
        const char *sql;
        uint32_t n;
    } cases[] = {
        {"SELECT nothing AS c0", 1},
        {"SELECT 1 AS c0, 2 AS c1", 1},
        {"SELECT COLUMNS(*) AS c0 FROM (SELECT 1 AS a, 2 AS b)", 1},
        {"CREATE TABLE t (i INT)", 1},
        {"SELECT 1 AS c0; SELECT 2 AS c0", 1},
        {"", 1},
    };
    struct fixture f = fixture_open(&defaults);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bucket bucket = {0};
        struct error e = {0};
        bool has_begun = true;
        CHECK_ERR(pour(&f, cases[i].sql, cases[i].n, &bucket, &has_begun, &e), ERR_INVALID);
        CHECK(!has_begun);
        CHECK_UINT(bucket.formats.n, 0);
        empty(&bucket);
    }
    struct error e = {0};
    CHECK_ERR(duck_run(f.connection, "COPY (SELECT 1) TO 'x' (FORMAT capstan_pour)", &e), ERR_INVALID);
    CHECK(strstr(e.message, "for Capstan's workers only") != NULL);
    fixture_close(&f);
}
