/*
 * bench_shuffle.c - rows from workers to workers: a hash exchange, beside the same by Parquet files.
 *
 * A physical plan of two stages: tasks read Parquet files and scatter their rows by the hash of a number, tasks of the
 * next stage add up the partitions. Beside it, in turns, one DuckDB with as many threads as there are slots reads the
 * same files, writes them with COPY ... PARTITION_BY into Parquet files, and adds up each partition. Both times are those
 * of the whole way, the reading of the rows included; the cluster's, too, from the submit to the sums being here. Sums
 * must be the same, and before anything is measured those of the hashes of all rows. A run in which some worker wrote or read
 * nothing is done again.
 *
 * MB are always those of the rows themselves: 8 bytes for a number, for a text its bytes and 4 for its place. Two sets of
 * rows: four numbers, and one number with two texts.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/text.h"
#include "client/rows.h"
#include "duck/duck.h"
#include "main/bench_query.h"
#include "query/plan.h"

#define SLOTS_DEFAULT 1
#define PARTITIONS_PER_SLOT 2
#define TOLERANCE 1e-10
#define TRIES_MAX 20 /* until a run has all workers in it */

struct shape {
    const char *name;
    const char *columns; /* over a table t with a number i */
    const char *row_bytes;
    const char *sum;  /* an expression */
    const char *hash; /* another one, which a row that has changed on its way changes */
};

/* Of 24 bits each, so that it is exact up to 500 million rows. */
#define SUM_OF_HASHES(columns) "sum(hash(" columns ") >> 40)::DOUBLE"

static const struct shape shapes[] = {
    {"numbers", "i, (i * 7919) % 1000003 AS a, i / 3.0 AS b, (i % 97)::DOUBLE AS c", "32", "sum(i + a + b + c)::DOUBLE",
     SUM_OF_HASHES("i, a, b, c")},
    {"texts", "i, 'customer#' || lpad(i::VARCHAR, 9, '0') AS a, 'some words that are ' || (i % 1000) AS b",
     "8 + 4 + strlen(a) + 4 + strlen(b)", "sum(i + length(a) + length(b))::DOUBLE", SUM_OF_HASHES("i, a, b")},
};
#define N_SHAPES ARRAY_LEN(shapes)

struct shape_figures {
    double mb;
    double ms;
    double parquet_ms;
    double total;             /* of all partitions, as the cluster had it last */
    struct query_times times; /* of one of the runs */
};

struct shuffle_bench {
    struct bench *bench;
    struct client *client;
    struct duck *duck;
    struct duck_connection *connection;
    uint64_t rows;
    uint32_t repeat;
    uint32_t partitions; /* and files */
    uint32_t n_folders;  /* of Parquet files that were written */
    uint32_t n_repeated; /* runs in which not all workers took part */
    double load_before;
    struct shape_figures figures[N_SHAPES];
};

/* ---- rows ---- */

static enum err read_number(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    if (n != 1 || values[0].bytes == NULL) {
        return error_set(e, ERR_INTERNAL, "DuckDB has no answer");
    }
    *(double *)context = strtod(values[0].bytes, NULL);
    return ERR_OK;
}

/* The files of one partition, or of all, as SQL and as JSON. */
static const char *source_path(const struct shuffle_bench *b, const struct shape *shape, const char *number)
{
    return arena_format(&b->bench->cli->arena, "%s/%s-%s.parquet", b->bench->cluster.folder, shape->name, number);
}

static void append_path(struct buf *sql, const char *path)
{
    sql_write_text(sql, path, strlen(path));
}

/* A file per partition, all of the same size, and how many MB their rows have. */
static enum err make_rows(struct shuffle_bench *b, size_t i, struct error *e)
{
    const struct shape *shape = &shapes[i];
    struct buf sql = {0};
    double bytes = 0;
    for (uint32_t k = 0; k < b->partitions; k++) {
        uint64_t from = b->rows * k / b->partitions;
        uint64_t to = b->rows * (k + 1) / b->partitions;
        buf_format(&sql, "COPY (SELECT %s FROM range(%" PRIu64 ", %" PRIu64 ") t(i)) TO ", shape->columns, from, to);
        append_path(&sql, source_path(b, shape, arena_format(&b->bench->cli->arena, "%u", k)));
        buf_text(&sql, " (FORMAT parquet, COMPRESSION uncompressed);\n");
    }
    enum err err = duck_run(b->connection, sql.data, e);
    buf_reset(&sql);
    buf_format(&sql, "SELECT sum(%s)::DOUBLE FROM read_parquet(", shape->row_bytes);
    append_path(&sql, source_path(b, shape, "*"));
    buf_char(&sql, ')');
    if (err == ERR_OK) {
        err = duck_rows(b->connection, sql.data, NULL, 0, read_number, &bytes, e);
    }
    b->figures[i].mb = bytes / 1e6;
    buf_deinit(&sql);
    return err;
}

/* ---- the cluster ---- */

static void write_plan(const struct shuffle_bench *b, const struct shape *shape, const char *sum, struct buf *out)
{
    buf_text(out, "{\"stages\":[{\"id\":0,\"sql\":\"SELECT * FROM read_parquet({{split}})\",\"splits\":[");
    for (uint32_t k = 0; k < b->partitions; k++) {
        buf_format(out, "%s{\"file\":", k > 0 ? "," : "");
        json_write_text(out, source_path(b, shape, arena_format(&b->bench->cli->arena, "%u", k)));
        buf_char(out, '}');
    }
    buf_format(out,
               "],\"deterministic\":true,\"output\":{\"exchange\":\"hash\",\"keys\":[\"i\"],\"partitions\":%u}},"
               "{\"id\":1,\"inputs\":{\"arrived\":0},\"sql\":\"SELECT %s AS s FROM arrived\",\"deterministic\":true,"
               "\"output\":{\"exchange\":\"result\"}}]}",
               b->partitions, sum);
}

/* Adds up what the partitions of a job have, whose result is one column of numbers. */
static enum err read_sum(const struct shuffle_bench *b, const char *job_id, double *out, struct error *e)
{
    struct arena arena = {0};
    struct client_caller caller = {
        .client = b->client, .cancel = interrupt_cancel(b->bench->interrupt), .arena = &arena};
    struct rows *rows = rows_open(&caller, job_id, NULL, NULL);
    struct ArrowArray batch = {0};
    double sum = 0;
    enum err err = rows_next(rows, &batch, e);
    while (err == ERR_OK && batch.release != NULL) {
        const struct ArrowArray *column = batch.children[0];
        const double *values = column->buffers[1];
        for (int64_t i = 0; i < batch.length; i++) {
            sum += values[column->offset + i];
        }
        batch.release(&batch);
        err = rows_next(rows, &batch, e);
    }
    if (err == ERR_OK) {
        *out = sum;
    }
    rows_close(rows);
    arena_deinit(&arena);
    return err;
}

/* Moves the rows once and adds up `sum`. */
static enum err run_once(struct shuffle_bench *b, size_t i, const char *sum, int64_t *out_us, struct error *e)
{
    struct buf plan = {0};
    struct query_run run = {0};
    struct query_times *times = &b->figures[i].times;
    write_plan(b, &shapes[i], sum, &plan);
    enum err err = query_run(b->bench, b->client, &(struct query_request){.plan = &plan}, &run, e);
    if (err == ERR_OK) {
        err = query_times(b->bench, b->client, run.job_id, times, e);
    }
    if (err == ERR_OK && (run.rows != b->partitions || times->moved_rows != b->rows)) {
        err = error_set(e, ERR_INTERNAL, "%" PRIu64 " rows were moved instead of %" PRIu64, times->moved_rows, b->rows);
    }
    if (err == ERR_OK) {
        err = read_sum(b, run.job_id, &b->figures[i].total, e);
    }
    if (err == ERR_OK) {
        *out_us = run.us;
    }
    buf_deinit(&plan);
    return err;
}

/*
 * The same, until all workers have written rows and all have read some: workers race for tasks, and a run in which one was
 * always the first has moved none between two of them. `out_us` may be NULL.
 */
static enum err run_cluster(struct shuffle_bench *b, size_t i, const char *sum, int64_t *out_us, struct error *e)
{
    const struct query_times *times = &b->figures[i].times;
    int64_t us = 0;
    for (uint32_t k = 0; k < TRIES_MAX; k++) {
        enum err err = run_once(b, i, sum, &us, e);
        if (err != ERR_OK) {
            return err;
        }
        if (times->workers_least >= b->bench->workers) {
            if (out_us != NULL) {
                *out_us = us;
            }
            return ERR_OK;
        }
        b->n_repeated++;
    }
    error_set(e, ERR_PRECONDITION, "bench: shuffle: %s: in none of %d runs all %u workers took part in both stages",
              shapes[i].name, TRIES_MAX, b->bench->workers);
    error_hint(e, "have more rows (--rows), fewer workers, or a machine that is less busy");
    return ERR_PRECONDITION;
}

/* ---- Parquet ---- */

/* Whether both sums are the same, but for the last digits, which depend on the order of the additions. */
static enum err compare_sums(const struct shape *shape, double exchanged, double written, struct error *e)
{
    if (fabs(exchanged - written) <= TOLERANCE * fabs(written)) {
        return ERR_OK;
    }
    return error_set(e, ERR_INTERNAL, "%s: the rows add up to %.17g over the exchange, and to %.17g over Parquet",
                     shape->name, exchanged, written);
}

/* Moves the rows by files, and compares what they add up to with what the cluster had. */
static enum err run_parquet(struct shuffle_bench *b, size_t i, const char *sum, int64_t *out_us, struct error *e)
{
    struct arena *arena = &b->bench->cli->arena;
    /* Always another: DuckDB takes a file of the same size, written again in the same second, to be the one that it knows. */
    const char *folder =
        arena_format(arena, "%s/parquet-%s-%u", b->bench->cluster.folder, shapes[i].name, b->n_folders++);
    struct buf sql = {0};
    double part = 0;
    double total = 0;
    buf_format(&sql, "COPY (SELECT *, ((hash(i) >> 32) %% %u)::INTEGER AS p FROM read_parquet(", b->partitions);
    append_path(&sql, source_path(b, &shapes[i], "*"));
    buf_text(&sql, ")) TO ");
    append_path(&sql, folder);
    buf_text(&sql, " (FORMAT parquet, PARTITION_BY (p))");
    int64_t began_us = clock_mono_us();
    enum err err = duck_run(b->connection, sql.data, e);
    for (uint32_t k = 0; k < b->partitions && err == ERR_OK; k++) {
        buf_reset(&sql);
        buf_format(&sql, "SELECT %s FROM read_parquet(", sum);
        append_path(&sql, arena_format(arena, "%s/p=%u/*", folder, k));
        buf_char(&sql, ')');
        err = duck_rows(b->connection, sql.data, NULL, 0, read_number, &part, e);
        total += part;
    }
    int64_t us = clock_mono_us() - began_us;
    if (err == ERR_OK) {
        err = compare_sums(&shapes[i], b->figures[i].total, total, e);
    }
    if (err == ERR_OK && out_us != NULL) {
        *out_us = us;
    }
    buf_deinit(&sql);
    return err;
}

/* ---- both ---- */

static enum err measure_shape(struct shuffle_bench *b, size_t i, struct error *e)
{
    int64_t *us = mem_calloc(2 * (size_t)b->repeat, sizeof *us);
    enum err err = make_rows(b, i, e);
    const char *const unmeasured[] = {shapes[i].hash, shapes[i].sum}; /* the latter to warm up */
    for (size_t k = 0; k < ARRAY_LEN(unmeasured); k++) {
        err = err == ERR_OK ? run_cluster(b, i, unmeasured[k], NULL, e) : err;
        err = err == ERR_OK ? run_parquet(b, i, unmeasured[k], NULL, e) : err;
    }
    for (uint32_t round = 0; round < b->repeat && err == ERR_OK; round++) {
        if (interrupt_is_on(b->bench->interrupt)) {
            err = error_set(e, ERR_CANCELED, "interrupted");
        }
        err = err == ERR_OK ? run_cluster(b, i, shapes[i].sum, &us[round], e) : err;
        err = err == ERR_OK ? run_parquet(b, i, shapes[i].sum, &us[b->repeat + round], e) : err;
    }
    if (err == ERR_OK) {
        b->figures[i].ms = bench_median_ms(us, b->repeat);
        b->figures[i].parquet_ms = bench_median_ms(us + b->repeat, b->repeat);
    }
    mem_free(us);
    return err;
}

/* ---- printing ---- */

static void print_json(const struct shuffle_bench *b)
{
    struct buf out = {0};
    double mb = 0;
    double ms = 0;
    double parquet_ms = 0;
    for (size_t i = 0; i < N_SHAPES; i++) {
        mb += b->figures[i].mb;
        ms += b->figures[i].ms;
        parquet_ms += b->figures[i].parquet_ms;
    }
    buf_format(&out, "{\"bench\":\"shuffle\",\"mb_per_s\":%.1f,\"parquet_mb_per_s\":%.1f,\"ratio\":%.3f,\"shapes\":[",
               1000 * mb / ms, 1000 * mb / parquet_ms, parquet_ms / ms);
    for (size_t i = 0; i < N_SHAPES; i++) {
        const struct shape_figures *f = &b->figures[i];
        buf_format(&out, "%s{\"name\":\"%s\",\"mb\":%.1f,\"mb_per_s\":%.1f,\"parquet_mb_per_s\":%.1f,\"ratio\":%.3f",
                   i > 0 ? "," : "", shapes[i].name, f->mb, 1000 * f->mb / f->ms, 1000 * f->mb / f->parquet_ms,
                   f->parquet_ms / f->ms);
        buf_format(&out, ",\"ms\":%.3f,\"parquet_ms\":%.3f,\"dispatch_ms\":%.1f,\"run_ms\":%.1f", f->ms, f->parquet_ms,
                   f->times.dispatch_ms, f->times.run_ms);
        buf_format(&out, ",\"workers\":%u,\"moved_bytes\":%" PRIu64 "}", f->times.workers_least, f->times.moved_bytes);
    }
    buf_format(&out, "],\"rows\":%" PRIu64 ",\"partitions\":%u,\"repeat\":%u,\"repeated\":%u", b->rows, b->partitions,
               b->repeat, b->n_repeated);
    buf_format(&out, ",\"duckdb_threads\":%u,\"load_before\":%.2f,\"load_after\":%.2f,", b->bench->slots,
               b->load_before, bench_load());
    bench_write_conditions_json(b->bench, &out);
    buf_text(&out, "}\n");
    bench_print(b->bench, &out);
    buf_deinit(&out);
}

static void print_text(const struct shuffle_bench *b)
{
    struct buf out = {0};
    buf_text(&out, "rows             MB     exchange                Parquet             ratio\n");
    for (size_t i = 0; i < N_SHAPES; i++) {
        const struct shape_figures *f = &b->figures[i];
        buf_format(&out, "%-10s %8.1f %7.0f ms %6.0f MB/s %7.0f ms %6.0f MB/s %8.2f\n", shapes[i].name, f->mb, f->ms,
                   1000 * f->mb / f->ms, f->parquet_ms, 1000 * f->mb / f->parquet_ms, f->parquet_ms / f->ms);
    }
    buf_text(&out, "\nconditions:\n  rows          ");
    text_count(&out, b->rows);
    buf_format(&out, " in %u files, hashed into %u partitions; %u runs each, medians\n", b->partitions, b->partitions,
               b->repeat);
    buf_format(&out,
               "  Parquet       COPY ... PARTITION_BY and reading back by DuckDB with %u threads, in the process "
               "of the client\n",
               b->bench->slots);
    if (b->n_repeated > 0) {
        buf_format(&out, "  repeated      %u runs, in which not all workers took part\n", b->n_repeated);
    }
    bench_write_conditions(b->bench, &out);
    buf_format(&out, "  load          %.2f before, %.2f after\n", b->load_before, bench_load());
    bench_print(b->bench, &out);
    buf_deinit(&out);
}

/* ---- bars ---- */

#define WANTED_RATIO 2.0

/* ERR_PRECONDITION, which says what is missed. */
static enum err check_bars(const struct shuffle_bench *b, struct error *e)
{
    struct buf missed = {0};
    for (size_t i = 0; i < N_SHAPES; i++) {
        double ratio = b->figures[i].parquet_ms / b->figures[i].ms;
        if (ratio < WANTED_RATIO) {
            buf_format(&missed, "; %s are exchanged %.2f times as fast as by Parquet, at least %.1f is wanted",
                       shapes[i].name, ratio, WANTED_RATIO);
        }
    }
    enum err err = missed.n == 0 ? ERR_OK : error_set(e, ERR_PRECONDITION, "bench: %s", missed.data + 2);
    buf_deinit(&missed);
    return err;
}

/* ---- all of it ---- */

static enum err open_all(struct shuffle_bench *b, struct error *e)
{
    struct cli *cli = b->bench->cli;
    int64_t slots = cli_number(cli, "slots");
    struct bench_shape shape = {.workers = (uint32_t)cli_number(cli, "workers"),
                                .slots = (uint32_t)(slots > 0 ? slots : SLOTS_DEFAULT)};
    if (cli_is_given(cli, "server")) {
        error_set(e, ERR_INVALID, "bench: shuffle: needs workers that read the same files as this process");
        error_hint(e, "leave out --server (CAPSTAN_SERVER): it starts a private cluster");
        return ERR_INVALID;
    }
    enum err err = bench_start(b->bench, &shape, e);
    if (err == ERR_OK) {
        err = client_open(&b->bench->client, &b->client, e);
    }
    if (err == ERR_OK) {
        struct duck_options options = {.threads = b->bench->slots,
                                       .temp_folder = b->bench->cluster.folder,
                                       .keeps_metadata = true,
                                       .keeps_files = true};
        err = duck_open(&options, &b->duck, e);
    }
    return err == ERR_OK ? duck_connect(b->duck, &b->connection, e) : err;
}

enum err bench_shuffle(struct bench *bench, struct error *e)
{
    struct shuffle_bench b = {.bench = bench,
                              .rows = (uint64_t)cli_number(bench->cli, "rows"),
                              .repeat = (uint32_t)cli_number(bench->cli, "repeat")};
    enum err err = open_all(&b, e);
    b.partitions = bench->slots * PARTITIONS_PER_SLOT;
    b.load_before = bench_load();
    for (size_t i = 0; i < N_SHAPES && err == ERR_OK; i++) {
        err = measure_shape(&b, i, e);
    }
    client_close(b.client);
    duck_disconnect(b.connection);
    duck_close(b.duck);
    bench_stop(bench);
    if (err == ERR_OK && bench->cli->wants_json) {
        print_json(&b);
    } else if (err == ERR_OK) {
        print_text(&b);
    }
    if (err == ERR_OK && cli_flag(bench->cli, "check")) {
        err = check_bars(&b, e);
    }
    return err;
}
