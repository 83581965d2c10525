/*
 * bench_sql.c - the 22 queries of TPC-H on a cluster, beside one DuckDB with as many threads as the cluster has slots.
 *
 * Both read the same Parquet files. DuckDB runs in this process, which is only a client otherwise, in its quickest way, by
 * duckdb_query: a stream of its rows as Arrow would have it bind SQL that reads files twice. Each query is run once
 * by everybody to warm up, then in turns, and whoever begins changes. Medians count. Rows must be the same: those of the
 * cluster are looked at after each run, those of DuckDB after the first one.
 *
 *   (nothing)  how long each query takes: ratios, and where the time of the cluster went
 *   --single   the same with small tables, so that queries are one task each: what the way through the cluster adds; and
 *              `select 42`, from the submit to the row
 *   --gain     one worker and two, beside DuckDB with one thread and two
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "cli/text.h"
#include "duck/duck.h"
#include "main/bench_exchange.h"
#include "main/bench_query.h"
#include "main/tpch.h"

#define SCALE_SINGLE 0.01
#define SCALE_MAX 1000
#define SLOTS_DEFAULT 1
#define CONTENDERS_MAX 4
#define TRIVIAL_RUNS 200
#define TRIVIAL_WARM_UPS 10
#define SHORT_MS 50 /* a ratio of queries that DuckDB is this quick with says little */

enum sql_mode { MODE_COMPARE, MODE_SINGLE, MODE_GAIN };
static const char *const mode_names[] = {"compare", "single", "gain"};

/* Who runs queries: a DuckDB or a cluster. */
struct contender {
    const char *name; /* as in the JSON: NAME_ms */
    const struct bench *bench;
    struct client *client;
    struct duck *duck;
    struct duck_connection *connection;
    uint32_t threads;
};

struct query_figures {
    double ms[CONTENDERS_MAX];
    double cpu_ms[CONTENDERS_MAX]; /* processor time, averages */
    uint64_t rows;
    uint64_t sum;             /* of all rows, row_sum.h */
    struct query_times times; /* of the last contender, averages; workers: of the run with the most */
    uint32_t workers_min;     /* of the run with the fewest */
    double exchange_ms;       /* of its tasks, averages; see has_exchange */
    double fetch_ms;          /* what is not the job's own time: calls, and the rows on their way */
};

struct sql_bench {
    struct bench *bench;
    struct bench small; /* a second cluster, of one worker; for the gain */
    enum sql_mode mode;
    double scale;
    uint32_t repeat;
    bool is_forced;
    const char *engine;
    struct tpch_query *queries;
    uint32_t n_queries;
    struct contender contenders[CONTENDERS_MAX];
    uint32_t n_contenders;
    struct query_figures *figures; /* one per query */
    bool has_exchange;             /* all workers have always told it */
    double load_before;
    int64_t *trivial_us; /* TRIVIAL_RUNS of them */
};

/* ---- one query ---- */

static double cpu_ms(const struct contender *c)
{
    return c->connection != NULL ? bench_own_cpu_ms() : bench_cluster_cpu_ms(c->bench);
}

static enum err run_once(const struct sql_bench *b, const struct contender *c, const char *sql, struct query_run *out,
                         struct error *e)
{
    if (interrupt_is_on(b->bench->interrupt)) {
        return error_set(e, ERR_CANCELED, "interrupted");
    }
    if (c->connection != NULL) {
        return query_run_duck(c->connection, sql, out, e);
    }
    struct query_request request = {.sql = sql, .options_json = b->is_forced ? "{\"forced\":true}" : NULL};
    return query_run(c->bench, c->client, &request, out, e);
}

/* Of tasks of all workers until now. */
static double exchange_ms(struct sql_bench *b, const struct contender *c)
{
    struct bench_exchange exchange = {0};
    b->has_exchange = bench_exchange(c->bench, &exchange) && b->has_exchange;
    return exchange.in_ms + exchange.out_ms;
}

static void add_times(struct query_figures *f, const struct query_times *times, double total_ms, uint32_t repeat)
{
    double part = 1.0 / (double)repeat;
    f->times.plan_ms += part * times->plan_ms;
    f->times.run_ms += part * times->run_ms;
    f->times.dispatch_ms += part * times->dispatch_ms;
    f->times.job_ms += part * times->job_ms;
    f->times.task_ms += part * times->task_ms;
    f->times.stages = times->stages;
    f->times.tasks = times->tasks;
    f->times.tasks_max = times->tasks_max > f->times.tasks_max ? times->tasks_max : f->times.tasks_max;
    f->times.workers = times->workers > f->times.workers ? times->workers : f->times.workers;
    f->workers_min = f->workers_min == 0 || times->workers < f->workers_min ? times->workers : f->workers_min;
    f->times.moved_bytes = times->moved_bytes;
    f->fetch_ms += part * (total_ms > times->job_ms ? total_ms - times->job_ms : 0);
}

/*
 * Whether the contender has the rows of the first one. Those of DuckDB are looked at in the warm-up only: it would have to run
 * the query anew for that, while the cluster only sends its result once more.
 */
static enum err compare_rows(struct sql_bench *b, uint32_t query, uint32_t who, uint32_t round,
                             const struct query_run *run, struct error *e)
{
    const struct contender *c = &b->contenders[who];
    struct query_figures *f = &b->figures[query];
    bool is_first = round == 0 && who == 0;
    uint64_t sum = f->sum;
    enum err err = ERR_OK;
    if (!is_first && run->rows != f->rows) {
        return error_set(e, ERR_INTERNAL, "%s: %s has %" PRIu64 " rows, %s has %" PRIu64, b->queries[query].name,
                         b->contenders[0].name, f->rows, c->name, run->rows);
    }
    if (c->connection == NULL) {
        err = query_sum(c->bench, c->client, run->job_id, &sum, e);
    } else if (round == 0) {
        err = query_sum_duck(c->connection, b->queries[query].sql, &sum, e);
    }
    if (err == ERR_OK && !is_first && sum != f->sum) {
        error_set(e, ERR_INTERNAL, "%s: the %" PRIu64 " rows of %s are not those of %s", b->queries[query].name,
                  f->rows, c->name, b->contenders[0].name);
        error_hint(e, "one of the two is wrong: `capstan sql` and the program duckdb show what each of them has");
        return ERR_INTERNAL;
    }
    f->rows = run->rows;
    f->sum = sum;
    return err;
}

/* One run of one contender; round 0 is the warm-up. */
static enum err take_turn(struct sql_bench *b, uint32_t query, uint32_t who, uint32_t round, int64_t *us,
                          struct error *e)
{
    const struct contender *c = &b->contenders[who];
    struct query_figures *f = &b->figures[query];
    struct query_run run = {0};
    struct query_times times;
    bool is_last = who + 1 == b->n_contenders;
    double exchanged_ms = is_last ? exchange_ms(b, c) : 0;
    double before_ms = cpu_ms(c);
    enum err err = run_once(b, c, b->queries[query].sql, &run, e);
    if (err != ERR_OK) {
        struct error inner = e != NULL ? *e : (struct error){0};
        return error_set(e, err, "%s on %s: %s", b->queries[query].name, c->name, inner.message);
    }
    double used_ms = cpu_ms(c) - before_ms;
    exchanged_ms = is_last ? exchange_ms(b, c) - exchanged_ms : 0;
    err = compare_rows(b, query, who, round, &run, e);
    if (err != ERR_OK || round == 0) {
        return err;
    }
    us[round - 1] = run.us;
    f->cpu_ms[who] += used_ms / (double)b->repeat;
    if (is_last) {
        f->exchange_ms += exchanged_ms / (double)b->repeat;
        err = query_times(c->bench, c->client, run.job_id, &times, e);
        if (err == ERR_OK) {
            add_times(f, &times, (double)run.us / 1000, b->repeat);
        }
    }
    return err;
}

static enum err measure_query(struct sql_bench *b, uint32_t query, struct error *e)
{
    int64_t *us = mem_calloc((size_t)b->repeat * b->n_contenders, sizeof *us);
    enum err err = ERR_OK;
    for (uint32_t round = 0; round <= b->repeat && err == ERR_OK; round++) {
        for (uint32_t i = 0; i < b->n_contenders && err == ERR_OK; i++) {
            uint32_t who = (i + (round > 0 ? round - 1 : 0)) % b->n_contenders;
            err = take_turn(b, query, who, round, us + (size_t)who * b->repeat, e);
        }
    }
    for (uint32_t i = 0; i < b->n_contenders && err == ERR_OK; i++) {
        b->figures[query].ms[i] = bench_median_ms(us + (size_t)i * b->repeat, b->repeat);
    }
    mem_free(us);
    return err;
}

static enum err measure_trivial(struct sql_bench *b, struct error *e)
{
    const struct contender *c = &b->contenders[b->n_contenders - 1];
    struct query_run run = {0};
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < TRIVIAL_WARM_UPS + TRIVIAL_RUNS && err == ERR_OK; i++) {
        err = run_once(b, c, "select 42", &run, e);
        if (err == ERR_OK && i >= TRIVIAL_WARM_UPS) {
            b->trivial_us[i - TRIVIAL_WARM_UPS] = run.us;
        }
    }
    return err;
}

/* ---- figures of all queries ---- */

/* Of the ratio of two contenders. */
static double geometric_mean(const struct sql_bench *b, uint32_t above, uint32_t below)
{
    double sum = 0;
    for (uint32_t i = 0; i < b->n_queries; i++) {
        sum += log(b->figures[i].ms[above] / b->figures[i].ms[below]);
    }
    return exp(sum / (double)b->n_queries);
}

/* Of the processor time of the cluster to that of DuckDB, of all queries together. */
static double cpu_ratio(const struct sql_bench *b)
{
    double sums[2] = {0};
    for (uint32_t i = 0; i < b->n_queries; i++) {
        sums[0] += b->figures[i].cpu_ms[0];
        sums[1] += b->figures[i].cpu_ms[1];
    }
    return sums[0] > 0 ? sums[1] / sums[0] : 0;
}

/* The largest ratio among queries that are not short; 0: all are. */
static double worst_ratio(const struct sql_bench *b)
{
    double worst = 0;
    for (uint32_t i = 0; i < b->n_queries; i++) {
        const struct query_figures *f = &b->figures[i];
        double ratio = f->ms[1] / f->ms[0];
        worst = f->ms[0] >= SHORT_MS && ratio > worst ? ratio : worst;
    }
    return worst;
}

static double median_overhead_ms(const struct sql_bench *b)
{
    int64_t *us = mem_calloc(b->n_queries, sizeof *us);
    for (uint32_t i = 0; i < b->n_queries; i++) {
        us[i] = (int64_t)((b->figures[i].ms[1] - b->figures[i].ms[0]) * 1000);
    }
    double ms = bench_median_ms(us, b->n_queries);
    mem_free(us);
    return ms;
}

/* How busy the slots were while tasks ran, 0 to 1. */
static double busy_part(const struct query_times *times, uint32_t slots)
{
    return times->run_ms > 0 && slots > 0 ? times->task_ms / (times->run_ms * (double)slots) : 1;
}

/* ---- printing ---- */

static void print_heading(const struct sql_bench *b)
{
    struct buf out = {0};
    buf_text(&out, "query");
    for (uint32_t i = 0; i < b->n_contenders; i++) {
        buf_format(&out, " %12s", b->contenders[i].name);
    }
    if (b->mode != MODE_GAIN) {
        buf_text(&out, b->mode == MODE_SINGLE ? "     more" : "    ratio");
    }
    buf_text(&out, "   stages tasks");
    if (cli_flag(b->bench->cli, "verbose")) {
        for (uint32_t i = 0; i < b->n_contenders; i++) {
            buf_text(&out, "      cpu");
        }
        buf_text(&out, "    plan dispatch      run    calls   busy workers exchange      moved");
    }
    buf_char(&out, '\n');
    bench_print(b->bench, &out);
    buf_deinit(&out);
}

/* How many workers ran tasks, "1-2" if it was not the same in all runs, and what the exchange took them. */
static void print_taking_part(const struct sql_bench *b, const struct query_figures *f, struct buf *out)
{
    char workers[32];
    (void)snprintf(workers, sizeof workers, f->workers_min < f->times.workers ? "%u-%u" : "%u", f->workers_min,
                   f->times.workers);
    buf_format(out, "%7s ", workers);
    if (b->has_exchange) {
        buf_format(out, "%8.1f", f->exchange_ms);
    } else {
        buf_text(out, "       ?");
    }
}

static void print_query(const struct sql_bench *b, uint32_t query)
{
    const struct query_figures *f = &b->figures[query];
    struct buf out = {0};
    buf_format(&out, "%-5s", b->queries[query].name);
    for (uint32_t i = 0; i < b->n_contenders; i++) {
        buf_format(&out, " %9.1f ms", f->ms[i]);
    }
    if (b->mode == MODE_SINGLE) {
        buf_format(&out, " %8.1f", f->ms[1] - f->ms[0]);
    } else if (b->mode == MODE_COMPARE) {
        buf_format(&out, " %8.2f", f->ms[1] / f->ms[0]);
    }
    buf_format(&out, " %8u %5u", f->times.stages, f->times.tasks);
    if (cli_flag(b->bench->cli, "verbose")) {
        const struct query_times *t = &f->times;
        for (uint32_t i = 0; i < b->n_contenders; i++) {
            buf_format(&out, " %8.1f", f->cpu_ms[i]);
        }
        buf_format(&out, " %7.1f %8.1f %8.1f %8.1f %5.0f%% ", t->plan_ms, t->dispatch_ms, t->run_ms, f->fetch_ms,
                   100 * busy_part(t, b->bench->slots));
        print_taking_part(b, f, &out);
        buf_format(&out, " %7.1f MB", (double)t->moved_bytes / 1e6);
    }
    buf_char(&out, '\n');
    bench_print(b->bench, &out);
    buf_deinit(&out);
}

static void write_summary(const struct sql_bench *b, struct buf *out)
{
    if (b->mode == MODE_COMPARE) {
        buf_format(out,
                   "\ngeometric mean of the ratios  %.3f\nlargest ratio                 %.2f   of queries that take "
                   "DuckDB at least %d ms\n",
                   geometric_mean(b, 1, 0), worst_ratio(b), SHORT_MS);
        buf_format(out, "processor time                %.2f   times that of DuckDB, all queries together\n",
                   cpu_ratio(b));
    } else if (b->mode == MODE_SINGLE) {
        buf_format(out, "\nmore than DuckDB   %8.3f ms   median of the queries\n", median_overhead_ms(b));
        buf_format(out, "select 42, p50     %8.3f ms   from the submit to the row\n",
                   bench_percentile_ms(b->trivial_us, TRIVIAL_RUNS, 0.5));
        buf_format(out, "select 42, p99     %8.3f ms\n", bench_percentile_ms(b->trivial_us, TRIVIAL_RUNS, 0.99));
    } else {
        double duckdb = geometric_mean(b, 0, 1);
        double capstan = geometric_mean(b, 2, 3);
        buf_format(out,
                   "\nDuckDB gains       %8.3f   from 1 to 2 threads, geometric mean\nCapstan gains      %8.3f   "
                   "from 1 to 2 workers\nratio              %8.3f\n",
                   duckdb, capstan, capstan / duckdb);
    }
}

static void print_end(const struct sql_bench *b)
{
    struct buf out = {0};
    write_summary(b, &out);
    buf_format(&out, "\nconditions:\n  scale         %g%s, %u runs each, medians\n", b->scale,
               b->is_forced ? ", cut by force" : "", b->repeat);
    buf_format(&out, "  DuckDB        %s, %u thread%s, in the process of the client, by duckdb_query\n", b->engine,
               b->contenders[b->mode == MODE_GAIN ? 1 : 0].threads,
               b->contenders[b->mode == MODE_GAIN ? 1 : 0].threads == 1 ? "" : "s");
    bench_write_conditions(b->bench, &out);
    buf_format(&out, "  load          %.2f before, %.2f after\n", b->load_before, bench_load());
    bench_print(b->bench, &out);
    buf_deinit(&out);
}

static void write_query_json(const struct sql_bench *b, uint32_t query, struct buf *out)
{
    const struct query_figures *f = &b->figures[query];
    const struct query_times *t = &f->times;
    buf_format(out, "%s{\"name\":\"%s\",\"rows\":%" PRIu64, query > 0 ? "," : "", b->queries[query].name, f->rows);
    for (uint32_t i = 0; i < b->n_contenders; i++) {
        buf_format(out, ",\"%s_ms\":%.3f,\"%s_cpu_ms\":%.1f", b->contenders[i].name, f->ms[i], b->contenders[i].name,
                   f->cpu_ms[i]);
    }
    buf_format(out, ",\"stages\":%u,\"tasks\":%u,\"workers\":%u,\"workers_min\":%u", t->stages, t->tasks, t->workers,
               f->workers_min);
    buf_format(out, ",\"plan_ms\":%.1f,\"dispatch_ms\":%.1f,\"run_ms\":%.1f,\"calls_ms\":%.1f,\"task_ms\":%.1f",
               t->plan_ms, t->dispatch_ms, t->run_ms, f->fetch_ms, t->task_ms);
    if (b->has_exchange) {
        buf_format(out, ",\"exchange_ms\":%.1f", f->exchange_ms);
    } else {
        buf_text(out, ",\"exchange_ms\":null");
    }
    buf_format(out, ",\"busy\":%.3f,\"moved_bytes\":%" PRIu64 "}", busy_part(t, b->bench->slots), t->moved_bytes);
}

static void print_json(const struct sql_bench *b)
{
    struct buf out = {0};
    buf_format(&out, "{\"bench\":\"sql\",\"mode\":\"%s\"", mode_names[b->mode]);
    if (b->mode == MODE_GAIN) {
        double duckdb = geometric_mean(b, 0, 1);
        double capstan = geometric_mean(b, 2, 3);
        buf_format(&out, ",\"duckdb_gain\":%.4f,\"capstan_gain\":%.4f,\"gain_ratio\":%.4f", duckdb, capstan,
                   capstan / duckdb);
    } else {
        buf_format(&out, ",\"ratio_geomean\":%.4f,\"ratio_worst\":%.4f,\"overhead_ms\":%.3f,\"cpu_ratio\":%.4f",
                   geometric_mean(b, 1, 0), worst_ratio(b), median_overhead_ms(b), cpu_ratio(b));
    }
    if (b->mode == MODE_SINGLE) {
        buf_format(&out, ",\"select_p50_ms\":%.3f", bench_percentile_ms(b->trivial_us, TRIVIAL_RUNS, 0.5));
        buf_format(&out, ",\"select_p99_ms\":%.3f", bench_percentile_ms(b->trivial_us, TRIVIAL_RUNS, 0.99));
    }
    buf_text(&out, ",\"queries\":[");
    for (uint32_t i = 0; i < b->n_queries; i++) {
        write_query_json(b, i, &out);
    }
    buf_format(&out, "],\"scale\":%g,\"repeat\":%u,\"forced\":%s,\"engine\":\"%s\",\"duckdb_threads\":%u", b->scale,
               b->repeat, b->is_forced ? "true" : "false", b->engine,
               b->contenders[b->mode == MODE_GAIN ? 1 : 0].threads);
    buf_format(&out, ",\"load_before\":%.2f,\"load_after\":%.2f,", b->load_before, bench_load());
    bench_write_conditions_json(b->bench, &out);
    buf_text(&out, "}\n");
    bench_print(b->bench, &out);
    buf_deinit(&out);
}

/* ---- bars ---- */

/* What --check holds the figures against. */
#define WANTED_RATIO 1.3
#define WANTED_RATIO_LARGE 1.15 /* from SCALE_LARGE on */
#define SCALE_LARGE 10
#define WANTED_WORST 2.5
#define WANTED_OVERHEAD_MS 30
#define WANTED_TRIVIAL_MS 15
#define WANTED_GAIN 0.85

/* Queries that tasks could have shared, and that one worker had to itself each time: they say nothing of a cluster. */
static void check_workers(const struct sql_bench *b, struct buf *missed)
{
    for (uint32_t i = 0; i < b->n_queries && b->bench->workers > 1; i++) {
        const struct query_times *times = &b->figures[i].times;
        if (times->tasks_max > 1 && times->workers < 2) {
            buf_format(missed, "; in all runs of %s one worker had all tasks", b->queries[i].name);
        }
    }
}

/* ERR_PRECONDITION, which says what is missed. */
static enum err check_bars(const struct sql_bench *b, struct error *e)
{
    struct buf missed = {0};
    check_workers(b, &missed);
    if (b->mode == MODE_COMPARE) {
        double wanted = b->scale >= SCALE_LARGE ? WANTED_RATIO_LARGE : WANTED_RATIO;
        if (geometric_mean(b, 1, 0) > wanted) {
            buf_format(&missed, "; the geometric mean is %.3f, at most %.2f is wanted", geometric_mean(b, 1, 0),
                       wanted);
        }
        if (worst_ratio(b) > WANTED_WORST) {
            buf_format(&missed, "; the largest ratio is %.2f, at most %.1f is wanted", worst_ratio(b), WANTED_WORST);
        }
    } else if (b->mode == MODE_SINGLE) {
        double trivial_ms = bench_percentile_ms(b->trivial_us, TRIVIAL_RUNS, 0.5);
        if (median_overhead_ms(b) > WANTED_OVERHEAD_MS) {
            buf_format(&missed, "; queries take %.1f ms more than DuckDB, at most %d is wanted", median_overhead_ms(b),
                       WANTED_OVERHEAD_MS);
        }
        if (trivial_ms >= WANTED_TRIVIAL_MS) {
            buf_format(&missed, "; select 42 takes %.1f ms, less than %d is wanted", trivial_ms, WANTED_TRIVIAL_MS);
        }
    } else if (geometric_mean(b, 2, 3) / geometric_mean(b, 0, 1) < WANTED_GAIN) {
        buf_format(&missed, "; the gain is %.3f of DuckDB's, at least %.2f is wanted",
                   geometric_mean(b, 2, 3) / geometric_mean(b, 0, 1), WANTED_GAIN);
    }
    enum err err = missed.n == 0 ? ERR_OK : error_set(e, ERR_PRECONDITION, "bench: %s", missed.data + 2);
    buf_deinit(&missed);
    return err;
}

/* ---- options ---- */

static enum err read_scale(struct sql_bench *b, struct error *e)
{
    const char *text = cli_text(b->bench->cli, "scale");
    b->scale = b->mode == MODE_SINGLE ? SCALE_SINGLE : 1;
    if (text != NULL && (!num_parse(text, &b->scale) || !(b->scale > 0) || b->scale > SCALE_MAX)) {
        return error_set(e, ERR_INVALID, "bench: --scale: '%s' is no number above 0 and up to %d", text, SCALE_MAX);
    }
    return ERR_OK;
}

/* Keeps the queries that --queries names: 1,3,22. */
static enum err choose_queries(struct sql_bench *b, struct error *e)
{
    struct arena *arena = &b->bench->cli->arena;
    const char *list = cli_text(b->bench->cli, "queries");
    uint32_t n_all = tpch_queries(arena, &b->queries);
    b->n_queries = n_all;
    if (list == NULL) {
        return ERR_OK;
    }
    struct tpch_query *chosen = arena_zalloc(arena, n_all * sizeof *chosen);
    b->n_queries = 0;
    for (const char *p = list; *p != '\0';) {
        size_t n = strcspn(p, ",");
        int64_t number = 0;
        if (!num_parse_int(arena_format(arena, "%.*s", (int)n, p), &number) || number < 1 || number > n_all ||
            b->n_queries == n_all) {
            error_set(e, ERR_INVALID, "bench: --queries: '%.*s' is no number from 1 to %u", (int)n, p, n_all);
            error_hint(e, "such as --queries 1,3,6");
            return ERR_INVALID;
        }
        chosen[b->n_queries++] = b->queries[number - 1];
        p += n;
        p += *p == ',' ? 1 : 0;
    }
    b->queries = chosen;
    return b->n_queries > 0 ? ERR_OK : error_set(e, ERR_INVALID, "bench: --queries: names none");
}

static enum err read_options(struct sql_bench *b, struct error *e)
{
    struct cli *cli = b->bench->cli;
    if (cli_flag(cli, "single") && cli_flag(cli, "gain")) {
        return error_set(e, ERR_INVALID, "bench: --single and --gain: choose one of them");
    }
    if (cli_flag(cli, "gain") && cli_is_given(cli, "store")) {
        return error_set(e, ERR_INVALID, "bench: --gain and --store: two clusters cannot share a store");
    }
    b->mode = cli_flag(cli, "single") ? MODE_SINGLE : cli_flag(cli, "gain") ? MODE_GAIN : MODE_COMPARE;
    b->is_forced = cli_flag(cli, "forced");
    b->repeat = (uint32_t)cli_number(cli, "repeat");
    enum err err = read_scale(b, e);
    if (err == ERR_OK) {
        err = choose_queries(b, e);
    }
    if (err == ERR_OK && cli_is_given(cli, "server")) {
        err = error_set(e, ERR_INVALID, "bench: sql: would add tables to the cluster of --server");
        error_hint(e, "leave out --server (CAPSTAN_SERVER): it starts a private cluster");
    }
    return err;
}

/* ---- contenders ---- */

static enum err add_duck(struct sql_bench *b, const char *name, uint32_t threads, const char *folder, struct error *e)
{
    struct contender *c = &b->contenders[b->n_contenders++];
    struct duck_options options = {
        .threads = threads, .temp_folder = b->bench->cluster.folder, .keeps_metadata = true, .keeps_files = true};
    c->name = name;
    c->threads = threads;
    enum err err = duck_open(&options, &c->duck, e);
    if (err == ERR_OK) {
        err = duck_connect(c->duck, &c->connection, e);
    }
    return err == ERR_OK ? tpch_create_views(c->connection, folder, e) : err;
}

static enum err add_cluster(struct sql_bench *b, const char *name, const struct bench *bench, const char *folder,
                            struct error *e)
{
    struct contender *c = &b->contenders[b->n_contenders++];
    c->name = name;
    c->bench = bench;
    enum err err = client_open(&bench->client, &c->client, e);
    for (uint32_t i = 0; i < TPCH_TABLES && err == ERR_OK; i++) {
        const char *source = arena_format(&bench->cli->arena, "%s/%s", folder, tpch_tables[i].files);
        err = private_put_table(&bench->cluster, tpch_tables[i].name, source, e);
    }
    return err;
}

static enum err add_contenders(struct sql_bench *b, const char *folder, struct error *e)
{
    enum err err = duck_engine(&b->engine, e);
    if (b->mode != MODE_GAIN) {
        err = err == ERR_OK ? add_duck(b, "duckdb", b->bench->slots, folder, e) : err;
        return err == ERR_OK ? add_cluster(b, "capstan", b->bench, folder, e) : err;
    }
    err = err == ERR_OK ? add_duck(b, "duckdb_1", 1, folder, e) : err;
    err = err == ERR_OK ? add_duck(b, "duckdb_2", 2, folder, e) : err;
    err = err == ERR_OK ? add_cluster(b, "capstan_1", &b->small, folder, e) : err;
    return err == ERR_OK ? add_cluster(b, "capstan_2", b->bench, folder, e) : err;
}

static void remove_contenders(struct sql_bench *b)
{
    for (uint32_t i = 0; i < b->n_contenders; i++) {
        client_close(b->contenders[i].client);
        duck_disconnect(b->contenders[i].connection);
        duck_close(b->contenders[i].duck);
    }
}

/* ---- all of it ---- */

static enum err start(struct sql_bench *b, struct error *e)
{
    struct cli *cli = b->bench->cli;
    int64_t slots = cli_number(cli, "slots");
    struct bench_shape shape = {.workers = (uint32_t)cli_number(cli, "workers"),
                                .slots = (uint32_t)(slots > 0 ? slots : SLOTS_DEFAULT),
                                .has_metrics = true};
    if (b->mode != MODE_GAIN) {
        return bench_start(b->bench, &shape, e);
    }
    b->small = (struct bench){.cli = cli, .interrupt = b->bench->interrupt, .cluster.up.output = -1};
    shape = (struct bench_shape){.workers = 2, .slots = 1, .has_metrics = true};
    enum err err = bench_start(b->bench, &shape, e);
    shape.workers = 1;
    return err == ERR_OK ? bench_start(&b->small, &shape, e) : err;
}

static enum err measure(struct sql_bench *b, struct error *e)
{
    bool is_live = !b->bench->cli->wants_json;
    enum err err = ERR_OK;
    b->figures = mem_calloc(b->n_queries, sizeof *b->figures);
    b->trivial_us = mem_calloc(TRIVIAL_RUNS, sizeof *b->trivial_us);
    b->load_before = bench_load();
    if (is_live) {
        print_heading(b);
    }
    for (uint32_t i = 0; i < b->n_queries && err == ERR_OK; i++) {
        err = measure_query(b, i, e);
        if (err == ERR_OK && is_live) {
            print_query(b, i);
        }
    }
    if (err == ERR_OK && b->mode == MODE_SINGLE) {
        err = measure_trivial(b, e);
    }
    if (err == ERR_OK && is_live) {
        print_end(b);
    } else if (err == ERR_OK) {
        print_json(b);
    }
    if (err == ERR_OK && cli_flag(b->bench->cli, "check")) {
        err = check_bars(b, e);
    }
    mem_free(b->figures);
    mem_free(b->trivial_us);
    return err;
}

enum err bench_sql(struct bench *bench, struct error *e)
{
    struct sql_bench b = {.bench = bench, .has_exchange = true};
    const char *folder = NULL;
    enum err err = read_options(&b, e);
    if (err == ERR_OK) {
        err = start(&b, e);
    }
    if (err == ERR_OK) {
        const char *data = cli_text_or(bench->cli, "data", bench->cluster.folder);
        err = tpch_make(data, b.scale, &bench->cli->arena, &folder, e);
    }
    if (err == ERR_OK) {
        err = add_contenders(&b, folder, e);
    }
    if (err == ERR_OK) {
        err = measure(&b, e);
    }
    remove_contenders(&b);
    bench_stop(bench);
    if (b.small.cli != NULL) {
        bench_end(&b.small);
    }
    return err;
}
