/*
 * bench-exchange - what an exchange costs: rows of DuckDB scattered, kept, fetched and scanned by DuckDB again.
 *
 *   bench-exchange [--json] [--quick]
 *
 * Steps, each with one thread: scatter alone (into batches that nobody keeps), scatter into a store, fetch from it. Then
 * the whole way of a hash exchange: a table of DuckDB, scatter, store, fetch, an aggregate of DuckDB for each partition;
 * within one process, and from a server in a process of its own over loopback, where the two sides do not overlap in time.
 * Beside it, in turns, the same rows by COPY ... PARTITION_BY to Parquet and read back by the same aggregates, with two
 * threads. Two sets of rows: four numeric columns, and a number with two texts. MB are always those of the rows in Arrow
 * before any compression. Medians of three, but those with LZ4 are of one run.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "duck/duck.h"
#include "exchange/fetch.h"
#include "exchange/serve.h"
#include "exchange/writer.h"

#define PARTITIONS 4
#define ROUNDS 3

static bool as_json;
static bool any_printed;
static int64_t n_rows = 6000000;
static char folder[64];

static void print(const char *set, const char *name, double value, const char *unit)
{
    if (as_json) {
        printf("%s\"%s_%s\": %.6g", any_printed ? ", " : "{", set, name, value);
    } else {
        printf("%-10s %-34s %12.6g  %s\n", set, name, value, unit);
    }
    any_printed = true;
    fflush(stdout);
}

static void must(enum err err, const struct error *e)
{
    if (err != ERR_OK) {
        fprintf(stderr, "bench-exchange: %s\n", e->message);
        exit(1);
    }
}

static double ms_since(int64_t start_us)
{
    return (double)(clock_mono_us() - start_us) / 1000;
}

static double median(double *values, int n)
{
    for (int i = 1; i < n; i++) {
        for (int k = i; k > 0 && values[k - 1] > values[k]; k--) {
            double value = values[k];
            values[k] = values[k - 1];
            values[k - 1] = value;
        }
    }
    return values[n / 2];
}

/* ---- rows ---- */

/* A result of DuckDB, kept as arrays. */
struct rows {
    struct ArrowSchema schema;
    struct ArrowArray *arrays;
    uint32_t n;
    uint32_t cap;
};

static void load(struct duck_connection *connection, const char *sql, struct rows *out)
{
    struct duck_result *result = NULL;
    struct error e = {0};
    *out = (struct rows){0};
    must(duck_query(connection, sql, &result, &e), &e);
    must(duck_result_schema(result, &out->schema, &e), &e);
    for (;;) {
        struct ArrowArray array = {0};
        must(duck_result_next(result, &array, &e), &e);
        if (array.release == NULL) {
            break;
        }
        out->arrays = mem_grow(out->arrays, &out->cap, out->n + 1, sizeof(*out->arrays));
        out->arrays[out->n++] = array;
    }
    duck_result_close(result);
}

static void unload(struct rows *rows)
{
    for (uint32_t i = 0; i < rows->n; i++) {
        rows->arrays[i].release(&rows->arrays[i]);
    }
    mem_free(rows->arrays);
    rows->schema.release(&rows->schema);
}

/* ---- steps ---- */

static enum err ignore(void *context, uint32_t partition, const struct ArrowArray *batch, struct error *e)
{
    UNUSED(partition);
    UNUSED(e);
    *(int64_t *)context += batch->length;
    return ERR_OK;
}

static double run_scatter(const struct rows *rows, uint32_t column, uint32_t n_partitions)
{
    struct scatter *scatter = NULL;
    struct error e = {0};
    int64_t seen = 0;
    struct scatter_options options = {.mode = SCATTER_COLUMN, .n_partitions = n_partitions, .column = column};
    must(scatter_open(&rows->schema, &options, ignore, &seen, &scatter, &e), &e);
    int64_t start = clock_mono_us();
    for (uint32_t i = 0; i < rows->n; i++) {
        must(scatter_append(scatter, &rows->arrays[i], &e), &e);
    }
    must(scatter_finish(scatter, &e), &e);
    double ms = ms_since(start);
    scatter_close(scatter);
    if (seen != n_rows) {
        fprintf(stderr, "bench-exchange: rows are missing\n");
        exit(1);
    }
    return ms;
}

static struct exchange_key key_of(uint32_t task)
{
    struct exchange_key key;
    bool is_ok = exchange_key_make("bench", 0, task, 1, &key);
    ASSERT(is_ok);
    return key;
}

static struct exchange_writer_options writer_options(struct exchange_store *store, uint32_t column, bool is_compressed)
{
    return (struct exchange_writer_options){
        .store = store,
        .key = key_of(0),
        .scatter = {.mode = SCATTER_COLUMN, .n_partitions = PARTITIONS, .column = column},
        .is_compressed = is_compressed};
}

static double run_write(struct exchange_store *store, const struct rows *rows, uint32_t column, bool is_compressed,
                        struct ipc_tally *tallies)
{
    struct exchange_writer *writer = NULL;
    struct error e = {0};
    struct exchange_writer_options options = writer_options(store, column, is_compressed);
    exchange_store_end_job(store, "bench", false, EXCHANGE_ALL_NUMBERS);
    int64_t start = clock_mono_us();
    must(exchange_writer_open(&options, &rows->schema, &writer, &e), &e);
    for (uint32_t i = 0; i < rows->n; i++) {
        must(exchange_writer_append(writer, &rows->arrays[i], &e), &e);
    }
    must(exchange_writer_finish(writer, tallies, &e), &e);
    exchange_writer_close(writer);
    return ms_since(start);
}

/* Runs a query of DuckDB into the store. */
static double run_query_into(struct duck_connection *connection, const char *sql, struct exchange_store *store,
                             uint32_t column, bool is_compressed, struct ipc_tally *tallies)
{
    struct duck_result *result = NULL;
    struct exchange_writer *writer = NULL;
    struct ArrowSchema schema;
    struct error e = {0};
    struct exchange_writer_options options = writer_options(store, column, is_compressed);
    exchange_store_end_job(store, "bench", false, EXCHANGE_ALL_NUMBERS);
    int64_t start = clock_mono_us();
    must(duck_query(connection, sql, &result, &e), &e);
    must(duck_result_schema(result, &schema, &e), &e);
    must(exchange_writer_open(&options, &schema, &writer, &e), &e);
    for (;;) {
        struct ArrowArray array = {0};
        must(duck_result_next(result, &array, &e), &e);
        if (array.release == NULL) {
            break;
        }
        must(exchange_writer_append(writer, &array, &e), &e);
        array.release(&array);
    }
    must(exchange_writer_finish(writer, tallies, &e), &e);
    exchange_writer_close(writer);
    duck_result_close(result);
    schema.release(&schema);
    return ms_since(start);
}

/* Where partitions are: in this process's store, or at an address. */
struct place {
    struct exchange_store *store;
    struct exchange_channels *channels;
    const char *address;
};

static struct exchange_fetch *open_fetch(const struct place *place, const struct ipc_tally *tallies, uint32_t first,
                                         uint32_t n)
{
    struct exchange_source sources[PARTITIONS];
    struct exchange_fetch *fetch = NULL;
    struct error e = {0};
    for (uint32_t i = 0; i < n; i++) {
        sources[i] = (struct exchange_source){.key = key_of(0),
                                              .partition = first + i,
                                              .address = place->address,
                                              .is_local = place->address == NULL,
                                              .tally = tallies[first + i]};
    }
    struct exchange_fetch_options options = {.store = place->store, .channels = place->channels};
    must(exchange_fetch_open(sources, n, &options, &fetch, &e), &e);
    return fetch;
}

/* Fetches everything and looks at nothing. */
static double run_fetch(const struct place *place, const struct ipc_tally *tallies)
{
    struct error e = {0};
    int64_t seen = 0;
    int64_t start = clock_mono_us();
    struct exchange_fetch *fetch = open_fetch(place, tallies, 0, PARTITIONS);
    for (;;) {
        struct ArrowArray array = {0};
        must(exchange_fetch_next(fetch, &array, &e), &e);
        if (array.release == NULL) {
            break;
        }
        seen += array.length;
        array.release(&array);
    }
    double ms = ms_since(start);
    exchange_fetch_close(fetch);
    ASSERT(seen == n_rows);
    return ms;
}

static enum err print_row(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(n);
    UNUSED(e);
    snprintf(context, 64, "%s", values[0].bytes);
    return ERR_OK;
}

/* Each partition is scanned by an aggregate of its own, as reduce tasks would. */
static double run_scan(struct duck_connection *connection, const struct place *place, const char *aggregate,
                       const struct ipc_tally *tallies)
{
    struct error e = {0};
    char answer[64];
    int64_t start = clock_mono_us();
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        struct ArrowArrayStream stream;
        struct exchange_fetch *fetch = open_fetch(place, tallies, p, 1);
        exchange_fetch_stream(fetch, &stream);
        exchange_fetch_close(fetch);
        struct duck_input input = {.name = "arrived", .rows = tallies[p].rows};
        must(duck_register(connection, &input, &stream, &e), &e);
        must(duck_rows(connection, aggregate, NULL, 0, print_row, answer, &e), &e);
        duck_unregister(connection, "arrived");
    }
    return ms_since(start);
}

/* ---- Parquet ---- */

static double run_parquet(struct duck_connection *connection, const char *sql, const char *aggregate, double *out_read)
{
    struct error e = {0};
    struct buf text = {0};
    char answer[64];
    buf_format(&text, "copy (%s) to '%s/parquet' (format parquet, partition_by (p), overwrite_or_ignore)", sql, folder);
    int64_t start = clock_mono_us();
    must(duck_run(connection, text.data, &e), &e);
    double ms = ms_since(start);
    start = clock_mono_us();
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        buf_reset(&text);
        buf_format(&text, "create or replace temp view arrived as select * from read_parquet('%s/parquet/p=%u/*')",
                   folder, p);
        must(duck_run(connection, text.data, &e), &e);
        must(duck_rows(connection, aggregate, NULL, 0, print_row, answer, &e), &e);
    }
    *out_read = ms_since(start);
    must(duck_run(connection, "drop view arrived", &e), &e);
    buf_deinit(&text);
    return ms;
}

/* ---- a server in a process of its own ---- */

struct server {
    pid_t pid;
    char address[64];
    struct ipc_tally tallies[PARTITIONS];
    double write_ms;
};

struct set {
    const char *name;
    const char *make; /* makes the table src */
    const char *sql;  /* with the number of the partition, called p, as its last column */
    uint32_t column;  /* which that is */
    const char *scan; /* an aggregate over the table `arrived` */
};

static struct exchange_store *open_store(const char *name)
{
    char shuffle[100];
    char results[100];
    struct exchange_store *store = NULL;
    struct error e = {0};
    snprintf(shuffle, sizeof(shuffle), "%s/%s-shuffle", folder, name);
    snprintf(results, sizeof(results), "%s/%s-results", folder, name);
    (void)mkdir(shuffle, 0700);
    (void)mkdir(results, 0700);
    struct exchange_store_options options = {
        .shuffle_folder = shuffle, .result_folder = results, .memory_bytes_max = (uint64_t)4 << 30};
    must(exchange_store_open(&options, &store, &e), &e);
    return store;
}

static struct duck_connection *open_duck(const struct set *set, uint32_t threads, struct duck **out)
{
    struct duck_connection *connection = NULL;
    struct error e = {0};
    struct duck_options options = {.threads = threads, .temp_folder = folder};
    must(duck_open(&options, out, &e), &e);
    must(duck_connect(*out, &connection, &e), &e);
    must(duck_run(connection, set->make, &e), &e);
    return connection;
}

/* Runs the query into its store, says where it is, and serves until it is ended. */
_Noreturn static void serve(const struct set *set, int to_parent)
{
    struct server server = {0};
    struct duck *duck = NULL;
    struct rpc_server *rpc = NULL;
    struct error e = {0};
    struct duck_connection *connection = open_duck(set, 1, &duck);
    struct exchange_store *store = open_store("server");
    server.write_ms = run_query_into(connection, set->sql, store, set->column, false, server.tallies);
    struct exchange_server *exchange = exchange_server_open(store, 1);
    struct rpc_method method = {.path = EXCHANGE_FETCH_PATH, .handler = exchange_serve};
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0", .methods = &method, .n_methods = 1, .context = exchange};
    must(rpc_server_open(&options, &rpc, &e), &e);
    snprintf(server.address, sizeof(server.address), "%s", rpc_server_address(rpc));
    if (write(to_parent, &server, sizeof(server)) != (ssize_t)sizeof(server)) {
        exit(1);
    }
    for (;;) {
        pause();
    }
}

static void start_server(const char *program, int index, struct server *out)
{
    int ends[2];
    char fd[16];
    char number[16];
    if (pipe(ends) != 0) {
        exit(1);
    }
    pid_t pid = fork();
    if (pid == 0) { /* a process of its own from the start: gRPC and DuckDB do not survive a fork */
        char rows[32];
        snprintf(fd, sizeof(fd), "%d", ends[1]);
        snprintf(number, sizeof(number), "%d", index);
        snprintf(rows, sizeof(rows), "%" PRId64, n_rows);
        execl(program, program, "--serve", fd, number, rows, folder, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (read(ends[0], out, sizeof(*out)) != (ssize_t)sizeof(*out)) {
        fprintf(stderr, "bench-exchange: the server did not start\n");
        exit(1);
    }
    out->pid = pid;
    close(ends[0]);
}

static void stop_server(const struct server *server)
{
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
}

/* ---- all of it ---- */

static double median_scatter(const struct rows *rows, uint32_t column, uint32_t n_partitions)
{
    double ms[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        ms[i] = run_scatter(rows, column, n_partitions);
    }
    return median(ms, ROUNDS);
}

static void measure_steps(const struct set *set, struct duck_connection *connection, double *out_mb)
{
    struct rows rows;
    struct ipc_tally tallies[PARTITIONS];
    struct exchange_store *store = open_store("local");
    struct place place = {.store = store};
    double write_ms[ROUNDS];
    double fetch_ms[ROUNDS];
    double mb = 0;
    load(connection, set->sql, &rows);
    for (int i = 0; i < ROUNDS; i++) {
        write_ms[i] = run_write(store, &rows, set->column, false, tallies);
        fetch_ms[i] = run_fetch(&place, tallies);
    }
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        mb += (double)tallies[p].bytes / 1e6;
    }
    print(set->name, "mb", mb, "MB of Arrow");
    print(set->name, "scatter_mb_per_s", mb / median_scatter(&rows, set->column, PARTITIONS) * 1000, "MB/s");
    print(set->name, "scatter_write_mb_per_s", mb / median(write_ms, ROUNDS) * 1000, "MB/s");
    print(set->name, "fetch_local_mb_per_s", mb / median(fetch_ms, ROUNDS) * 1000, "MB/s");
    double packed_ms = run_write(store, &rows, set->column, true, tallies);
    double packed_mb = 0;
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        packed_mb += (double)tallies[p].bytes / 1e6;
    }
    print(set->name, "lz4_write_mb_per_s", mb / packed_ms * 1000, "MB/s of what it was before");
    print(set->name, "lz4_ratio", packed_mb / mb, "");
    print(set->name, "lz4_read_mb_per_s", mb / run_fetch(&place, tallies) * 1000, "MB/s of what it is afterwards");
    unload(&rows);
    exchange_store_close(store);
    *out_mb = mb;
}

/* The whole way, and Parquet beside it, in turns. */
static void measure_whole(const struct set *set, const char *program, int index, double mb)
{
    double local[ROUNDS];
    double remote[ROUNDS];
    double parquet[ROUNDS];
    double remote_fetch[ROUNDS];
    struct duck *one = NULL;
    struct duck *two = NULL;
    struct duck_connection *single = open_duck(set, 1, &one);
    struct duck_connection *both = open_duck(set, 2, &two);
    struct exchange_store *store = open_store("local");
    struct exchange_channels *channels = exchange_channels_open(&(struct rpc_channel_options){0});
    struct ipc_tally tallies[PARTITIONS];
    for (int i = 0; i < ROUNDS; i++) {
        struct place here = {.store = store};
        double read_ms = 0;
        local[i] = run_query_into(single, set->sql, store, set->column, false, tallies);
        local[i] += run_scan(single, &here, set->scan, tallies);
        struct server server;
        start_server(program, index, &server);
        struct place there = {.channels = channels, .address = server.address};
        remote[i] = server.write_ms + run_scan(single, &there, set->scan, server.tallies);
        remote_fetch[i] = run_fetch(&there, server.tallies);
        stop_server(&server);
        parquet[i] = run_parquet(both, set->sql, set->scan, &read_ms) + read_ms;
    }
    double parquet_rate = mb / median(parquet, ROUNDS) * 1000;
    double remote_rate = mb / median(remote, ROUNDS) * 1000;
    print(set->name, "fetch_remote_mb_per_s", mb / median(remote_fetch, ROUNDS) * 1000, "MB/s");
    print(set->name, "local_mb_per_s", mb / median(local, ROUNDS) * 1000, "MB/s");
    print(set->name, "remote_mb_per_s", remote_rate, "MB/s");
    print(set->name, "parquet_mb_per_s", parquet_rate, "MB/s, two threads");
    print(set->name, "remote_over_parquet", remote_rate / parquet_rate, "");
    exchange_channels_close(channels);
    exchange_store_close(store);
    duck_disconnect(single);
    duck_disconnect(both);
    duck_close(one);
    duck_close(two);
}

static void make_sets(struct set sets[2])
{
    struct buf numbers = {0};
    struct buf texts = {0};
    struct buf select = {0};
    buf_format(&numbers,
               "create table src as select i, (i * 7919) %% 1000003 as a, i / 3.0 as b, (i %% 97)::double as c "
               "from range(%" PRId64 ") t(i)",
               n_rows);
    buf_format(&texts,
               "create table src as select i, 'customer#' || lpad(i::varchar, 9, '0') as a, "
               "'some words that are ' || (i %% 1000) as b from range(%" PRId64 ") t(i)",
               n_rows);
    buf_format(&select, "select *, ((hash(i) >> 32) %% %d)::integer as p from src", PARTITIONS);
    sets[0] = (struct set){.name = "numbers",
                           .make = numbers.data,
                           .sql = select.data,
                           .column = 4,
                           .scan = "select sum(i + a + b + c)::double from arrived"};
    sets[1] = (struct set){.name = "texts",
                           .make = texts.data,
                           .sql = select.data,
                           .column = 3,
                           .scan = "select sum(i + length(a) + length(b))::double from arrived"};
}

static void remove_folder(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    struct set sets[2];
    if (argc == 6 && strcmp(argv[1], "--serve") == 0) {
        n_rows = strtoll(argv[4], NULL, 10);
        snprintf(folder, sizeof(folder), "%s", argv[5]);
        make_sets(sets);
        serve(&sets[strtol(argv[3], NULL, 10)], (int)strtol(argv[2], NULL, 10));
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            as_json = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            n_rows /= 10;
        } else {
            fprintf(stderr, "usage: bench-exchange [--json] [--quick]\n");
            return 2;
        }
    }
    snprintf(folder, sizeof(folder), "build/bench-exchange-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    make_sets(sets);
    for (int i = 0; i < 2; i++) {
        double mb = 0;
        struct duck *duck = NULL;
        struct duck_connection *connection = open_duck(&sets[i], 1, &duck);
        measure_steps(&sets[i], connection, &mb);
        duck_disconnect(connection);
        duck_close(duck);
        measure_whole(&sets[i], argv[0], i, mb);
        mem_free((char *)sets[i].make);
    }
    mem_free((char *)sets[0].sql);
    printf(as_json ? ", \"rows\": %" PRId64 "}\n" : "rows: %" PRId64 "\n", n_rows);
    remove_folder();
    return 0;
}
