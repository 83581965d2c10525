/* Parquet files that we write, read by DuckDB: every value is the one that was written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "duck/duck.h"
#include "exchange/parquet.h"
#include "integration/exchange/sql.h"
#include "test.h"

#define SQL_BYTES 8000

/* A column of each type that Parquet has, too, then of some that become texts; NULLs in all of them, and none in `full`. */
static const char rows_sql[] =
    "create table src as select i as full, b, if(i % 3 = 0, null, columns(c -> c not in ('i', 'b'))) from (select i, "
    "if(i % 7 = 0, null, i % 2 = 0) as b, (i % 200 - 100)::tinyint as t, (i % 200)::utinyint as ut, "
    "(i % 60000 - 30000)::smallint as s, (i % 60000)::usmallint as us, (-i)::integer as n, i::uinteger as un, "
    "(i * 10000000000 - 5)::bigint as l, 18446744073709551615::ubigint - i::ubigint as ul, (i / 7)::float as f, "
    "i / 7 as g, (i / 4)::decimal(9, 2) as d, (-i)::decimal(38, 3) as dd, 'text ä ' || i as u, '' as empty, "
    "('\\x00\\xff' || i)::blob as z, date '1969-01-01' + i::integer as day, time '01:02:03.000004' as at, "
    "timestamp '1969-12-31 23:59:59.999999' + to_seconds(i) as ts, "
    "(timestamp '2026-01-02 03:04:05')::timestamptz as tz, "
    "(timestamp '2026-01-02 03:04:05.000000006')::timestamp_ns as ns, "
    "(timestamp '2026-01-02 03:04:05')::timestamp_ms as ms, (timestamp '2026-01-02 03:04:05')::timestamp_s as sec, "
    "i::hugeint * 100000000000000000000 as h, '00000000-0000-0000-0000-000000000001'::uuid as id, [i, null] as list, "
    "{'a': i, 'b': 'x'} as record, map {i: 'v'} as mapped, interval '1 day' as span, "
    "['small', 'large'][1 + i % 2]::enum('small', 'large') as kind from range(5000) r(i))";

static void must(enum err err, const struct error *e)
{
    if (err != ERR_OK) {
        print_error("%s\n", e->message);
    }
    CHECK_ERR(err, ERR_OK);
}

/* The rows of a query as a file, each batch in groups of at most `n_max` rows, so that some begin inside of a batch. */
static void write_file(struct duck_connection *connection, const char *sql, int64_t n_max, const char *path)
{
    struct duck_result *result = NULL;
    struct ArrowSchema schema = {0};
    struct ArrowArray batch = {0};
    struct parquet_file *file = NULL;
    struct buf bytes = {0};
    struct error e = {0};
    must(duck_query(connection, sql, &result, &e), &e);
    must(duck_result_schema(result, &schema, &e), &e);
    must(parquet_file_new(&schema, &file, &bytes, &e), &e);
    for (;;) {
        must(duck_result_next(result, &batch, &e), &e);
        if (batch.release == NULL) {
            break;
        }
        for (int64_t at = 0; at < batch.length; at += n_max) {
            int64_t n = batch.length - at < n_max ? batch.length - at : n_max;
            must(parquet_file_rows(file, &batch, at, n, &bytes, &e), &e);
        }
        batch.release(&batch);
    }
    parquet_file_end(file, &bytes);
    FILE *out = fopen(path, "wbe");
    CHECK(out != NULL && fwrite(bytes.data, 1, bytes.n, out) == bytes.n && fclose(out) == 0);
    parquet_file_free(file);
    schema.release(&schema);
    duck_result_close(result);
    buf_deinit(&bytes);
}

/* The one number of a query over the file, whose name goes between the two parts. */
static int64_t number_of(struct duck_connection *connection, const char *before, const char *path, const char *after)
{
    char sql[SQL_BYTES];
    int64_t number = -1;
    struct error e = {0};
    snprintf(sql, sizeof sql, "%s'%s'%s", before, path, after);
    must(sql_number(connection, sql, &number, &e), &e);
    return number;
}

static void check_file(struct duck_connection *connection, int64_t n_max, const char *path)
{
    write_file(connection, "from src", n_max, path);
    CHECK_INT(number_of(connection, "select count(*) from ", path, ""), 5000);
    CHECK_INT(
        number_of(
            connection,
            "select count(*) from (select columns(*)::varchar from src except all select columns(*)::varchar from ",
            path, ")"),
        0);
    /* Types that Parquet has stay what they are; the others are texts. */
    CHECK_INT(number_of(connection, "select count(*) from (describe src) a join (describe from ", path,
                        ") b using (column_name) where a.column_type <> b.column_type"),
              9); /* ms, sec, h, id, list, record, mapped, span, kind */
    CHECK_INT(number_of(connection, "select count(*) from (describe from ", path,
                        ") where column_type = 'VARCHAR' and column_name not in ('u', 'empty')"),
              8); /* all of these but ms, which is a TIMESTAMP */
}

TEST(a_parquet_file_has_every_value_that_was_written)
{
    struct duck *duck = NULL;
    struct duck_connection *connection = NULL;
    struct error e = {0};
    char folder[] = "/tmp/capstan-parquet-XXXXXX";
    char path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/rows.parquet", folder);
    must(duck_open(&(struct duck_options){.threads = 1}, &duck, &e), &e);
    must(duck_connect(duck, &connection, &e), &e);
    must(duck_run(connection, "set timezone = 'UTC'", &e), &e);
    must(duck_run(connection, rows_sql, &e), &e);
    check_file(connection, 100000, path);
    check_file(connection, 77, path);
    check_file(connection, 13, path);

    write_file(connection, "from src where false", 1, path);
    CHECK_INT(number_of(connection, "select count(*) from ", path, ""), 0);
    write_file(connection, "select 1 as a, 2 as a, 3 as \"A\"", 1, path); /* names that Parquet could not tell apart */
    CHECK_INT(number_of(connection, "select sum(a + a_1 + \"A_2\")::bigint from ", path, ""), 6);
    duck_disconnect(connection);
    duck_close(duck);
    unlink(path);
    rmdir(folder);
}
