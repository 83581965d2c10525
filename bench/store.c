/*
 * bench-store - what durability costs: the coordinator's loop with a store behind it, beside the bare engine.
 *
 *   bench-store [--json] [--quick] [--store sqlite|postgres] [--width N] [--history N] [lifecycles|latency|recovery|history|idle]...
 *
 * For each store: full lifecycles of tasks per second (submit, assign, complete) with 1, 100 and 1,000 of them under way, and
 * the same rows written by the bare engine; the latency of a lone command beside a bare commit; the time to load 1,000,000
 * live tasks; the speed with N ended tasks in the history (5,000,000: it takes minutes and some 10 GB of disk; only if it is
 * named); and what an idle coordinator asks of PostgreSQL.
 *
 * What is compared takes turns, round by round, and ratios are medians over the rounds: the machine may be busy with other
 * things. Databases lie in build/, on a real disk; PostgreSQL is started by tests/integration/postgres/server.sh.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "coordinator/service.h"
#include "store/bare.h"
#include "store/drive.h"
#include "store/store.h"

#define ROUNDS_MAX 9
#define SERVER "tests/integration/postgres/server.sh"

static struct {
    bool json;
    bool quick;
    const char *store; /* NULL: both */
    uint64_t history;
    uint32_t width; /* 0: all of them */
    char folder[128];
    char server[256]; /* URL of PostgreSQL's own database; "": not started */
    uint32_t n_databases;
    uint64_t next_script; /* number of the next job of a script */
} bench = {.history = 5000000};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bench-store: %s\n", what);
    exit(1);
}

/* ---- figures ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int n)
{
    double sorted[1024];
    ASSERT(n > 0 && n <= 1024);
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
    return sorted[n / 2];
}

static bool any_printed;

__attribute__((format(printf, 3, 4))) static void print(double value, const char *unit, const char *name, ...)
{
    char text[96];
    va_list args;
    va_start(args, name);
    vsnprintf(text, sizeof text, name, args);
    va_end(args);
    if (bench.json) {
        printf("%s\"%s\": %.6g", any_printed ? ", " : "{", text, value);
    } else {
        printf("%-40s %12.5g  %s\n", text, value, unit);
    }
    any_printed = true;
    fflush(stdout);
}

/* ---- databases ---- */

static void run_command(const char *command)
{
    if (system(command) != 0) {
        die(command);
    }
}

static void clean_up(void)
{
    setenv("FOLDER", bench.folder, 1);
    if (bench.server[0] != '\0') {
        run_command(SERVER " remove \"$FOLDER/pg\"");
    }
    run_command("rm -rf \"$FOLDER\"");
}

static void make_folder(void)
{
    snprintf(bench.folder, sizeof bench.folder, "build/bench-store-XXXXXX");
    if (mkdtemp(bench.folder) == NULL || chmod(bench.folder, 0755) != 0) {
        die("cannot make a folder in build/; run it from the repository's root");
    }
    atexit(clean_up);
}

static const char *server_url(void)
{
    if (bench.server[0] == '\0') {
        setenv("FOLDER", bench.folder, 1);
        FILE *pipe = popen(SERVER " start \"$FOLDER/pg\" shared_buffers=1GB max_wal_size=8GB "
                                  "checkpoint_timeout=30min",
                           "r");
        if (pipe == NULL || fgets(bench.server, sizeof bench.server, pipe) == NULL || pclose(pipe) != 0) {
            die("PostgreSQL cannot be started");
        }
        bench.server[strcspn(bench.server, "\n")] = '\0';
    }
    return bench.server;
}

/* A new database with the schema; the URL lives as long as the program. */
static const char *new_database(const char *engine)
{
    static struct arena arena;
    uint32_t number = ++bench.n_databases;
    const char *url = NULL;
    struct store *store = NULL;
    struct error e = {0};
    if (strcmp(engine, "sqlite") == 0) {
        url = arena_format(&arena, "sqlite:%s/%u.db", bench.folder, number);
    } else {
        const char *server = server_url();
        const char *options = strchr(server, '?');
        struct bare *admin = bare_open(server);
        bare_run(admin, arena_format(&arena, "CREATE DATABASE bench_%u", number));
        bare_close(admin);
        int before = (int)(strstr(server, "/postgres?") - server);
        url = arena_format(&arena, "%.*s/bench_%u%s", before, server, number, options);
    }
    if (store_open(url, &store, &e) != ERR_OK || store_migrate(store, STORE_NEWEST, &e) != ERR_OK) {
        die(e.message);
    }
    store_close(store);
    return url;
}

static bool is_wanted(const char *engine)
{
    return bench.store == NULL || strcmp(bench.store, engine) == 0;
}

static const char *const engines[] = {"sqlite", "postgres"};

/* ---- lifecycles ---- */

static double bare_lifecycles(struct bare *bare, uint32_t width, uint32_t n)
{
    struct script script;
    uint32_t n_groups = (n + width - 1) / width;
    script_init(&script, n_groups, width, bench.next_script);
    bench.next_script += (uint64_t)n_groups * width;
    struct bare_script *prepared = bare_prepare(bare, &script);
    double start = seconds();
    for (uint32_t i = 0; i < script.n; i++) {
        bare_write(bare, prepared, i);
    }
    double rate = n_groups * width / (seconds() - start);
    bare_script_free(prepared);
    script_deinit(&script);
    return rate;
}

static void run_lifecycles(void)
{
    static const struct {
        uint32_t width;
        uint32_t n;
    } sizes[] = {{1, 500}, {100, 20000}, {1000, 40000}};
    int rounds = bench.quick ? 3 : 7;
    for (size_t k = 0; k < ARRAY_LEN(engines); k++) {
        if (!is_wanted(engines[k])) {
            continue;
        }
        struct bare *bare = bare_open(new_database(engines[k]));
        struct drive *drive = drive_start(new_database(engines[k]), NULL, NULL);
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
            if (bench.width != 0 && bench.width != sizes[i].width) {
                continue;
            }
            double ours[ROUNDS_MAX], twos[ROUNDS_MAX], bares[ROUNDS_MAX], ratios[ROUNDS_MAX];
            uint32_t n = bench.quick ? sizes[i].n / 5 : sizes[i].n;
            for (int r = -1; r < rounds; r++) { /* the first is to warm up */
                double bare_rate = bare_lifecycles(bare, sizes[i].width, n);
                double our_rate = drive_lifecycles(drive, 1, sizes[i].width, n);
                double two_rate = drive_lifecycles(drive, 2, sizes[i].width, n);
                if (r >= 0) {
                    bares[r] = bare_rate;
                    ours[r] = our_rate;
                    twos[r] = two_rate;
                    ratios[r] = our_rate / bare_rate;
                }
            }
            print(median(bares, rounds), "lifecycles/s, bare engine", "%s_bare_%u", engines[k], sizes[i].width);
            print(median(ours, rounds), "lifecycles/s, loop + store", "%s_loop_%u", engines[k], sizes[i].width);
            print(median(twos, rounds), "lifecycles/s, two clients that take turns", "%s_loop_twice_%u", engines[k],
                  sizes[i].width);
            print(median(ratios, rounds), "of the bare engine; wanted >= 0.7 at 100 and 1000", "%s_ratio_%u",
                  engines[k], sizes[i].width);
        }
        drive_stop(drive);
        bare_close(bare);
    }
}

/* ---- latency ---- */

static void run_latency(void)
{
    enum { N_MAX = 400 };
    static double ours[N_MAX], bares[N_MAX];
    int n = bench.quick ? 50 : N_MAX;
    for (size_t k = 0; k < ARRAY_LEN(engines); k++) {
        struct script script;
        if (!is_wanted(engines[k])) {
            continue;
        }
        struct bare *bare = bare_open(new_database(engines[k]));
        struct drive *drive = drive_start(new_database(engines[k]), NULL, NULL);
        script_init(&script, (uint32_t)n, 1, bench.next_script);
        bench.next_script += (uint64_t)n;
        struct bare_script *prepared = bare_prepare(bare, &script);
        for (int i = 0; i < n; i++) {
            double start = seconds();
            bare_write(bare, prepared, (uint32_t)i * GROUP_TRANSACTIONS); /* the submit */
            bares[i] = seconds() - start;
            ours[i] = drive_submit(drive);
        }
        print(median(bares, n) * 1e3, "ms, a bare commit of the rows of a submit, median", "%s_commit_ms", engines[k]);
        print(median(ours, n) * 1e3, "ms, a lone submit through loop + store, median", "%s_lone_ms", engines[k]);
        print(median(ours, n) / median(bares, n), "wanted <= 2", "%s_lone_ratio", engines[k]);
        bare_script_free(prepared);
        script_deinit(&script);
        drive_stop(drive);
        bare_close(bare);
    }
}

/* ---- multiplying what is there, by SQL ---- */

struct multiplication {
    const char *engine;
    const char *template_id; /* of the job that is multiplied */
    const char *prefix;      /* of the new jobs */
    uint64_t n;              /* tasks in all */
    uint64_t per_job;
};

/* "a, b, c" with what stands for some of the columns in place of them. */
struct replacement {
    const char *column;
    const char *text;
};

static void write_columns(struct buf *sql, const struct table *table, const struct replacement *r, size_t n)
{
    for (uint32_t i = 0; i < table->n_columns; i++) {
        const char *text = NULL;
        for (size_t k = 0; k < n; k++) {
            text = strcmp(r[k].column, table->columns[i].name) == 0 ? r[k].text : text;
        }
        buf_format(sql, "%s%s%s", i == 0 ? " " : ", ", text == NULL ? "t." : "",
                   text == NULL ? table->columns[i].name : text);
    }
}

/* Inserts n copies of the template's rows in a table; `i` counts them. */
static void multiply(struct bare *bare, const struct multiplication *m, enum row_kind kind, uint64_t n,
                     const struct replacement *replacements, size_t n_replacements)
{
    const struct table *table = table_of(kind);
    bool is_lite = strcmp(m->engine, "sqlite") == 0;
    const char *schema = is_lite ? "" : "capstan.";
    struct buf sql = {0};
    buf_format(&sql, "INSERT INTO %s%s SELECT", schema, table->name);
    write_columns(&sql, table, replacements, n_replacements);
    if (is_lite) {
        buf_format(&sql,
                   " FROM (WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i + 1 < %" PRIu64
                   ") SELECT i FROM s) s CROSS JOIN %s t",
                   n, table->name);
    } else {
        buf_format(&sql, " FROM generate_series(0::bigint, %" PRIu64 ") s(i) CROSS JOIN %s%s t", n - 1, schema,
                   table->name);
    }
    buf_format(&sql, " WHERE t.job_id = '%s'", m->template_id);
    if (kind == ROW_EVENT) { /* two per task will do */
        buf_format(&sql, " AND t.seq IN (SELECT seq FROM %stask_events WHERE job_id = '%s' ORDER BY seq LIMIT 2)",
                   schema, m->template_id);
    }
    bare_run(bare, sql.data);
    buf_deinit(&sql);
}

/* The id of the job that row i belongs to, as SQL. */
static void write_id(char *out, size_t size, const struct multiplication *m, uint64_t per_job)
{
    if (strcmp(m->engine, "sqlite") == 0) {
        snprintf(out, size, "printf('%s%%08d', s.i / %" PRIu64 ")", m->prefix, per_job);
    } else {
        snprintf(out, size, "'%s' || lpad((s.i / %" PRIu64 ")::text, 8, '0')", m->prefix, per_job);
    }
}

/* Jobs, stages and tasks; of ended ones also attempts and events. */
static void multiply_all(struct bare *bare, const struct multiplication *m, bool is_ended)
{
    bool is_lite = strcmp(m->engine, "sqlite") == 0;
    char job_of_job[96], job_of_task[96], task[48], spec[160], key[48], seq[160];
    write_id(job_of_job, sizeof job_of_job, m, 1);
    write_id(job_of_task, sizeof job_of_task, m, m->per_job);
    snprintf(task, sizeof task, "s.i %% %llu", (unsigned long long)m->per_job);
    snprintf(spec, sizeof spec, "replace(t.spec, '\"tasks\":1,', '\"tasks\":%llu,')", (unsigned long long)m->per_job);
    snprintf(key, sizeof key, "%s", is_lite ? "randomblob(32)" : "sha256(int8send(s.i))");
    uint64_t n_jobs = m->n / m->per_job;
    const struct replacement of_job[] = {{"job_id", job_of_job}, {"spec", spec}};
    const struct replacement of_task[] = {{"job_id", job_of_task}, {"task", task}, {"idempotency_key", key}};
    multiply(bare, m, ROW_JOB, n_jobs, of_job, 1);
    multiply(bare, m, ROW_STAGE, n_jobs, of_job, 2);
    multiply(bare, m, ROW_TASK, m->n, of_task, 2);
    if (is_ended) {
        long long last = bare_number(bare, is_lite ? "SELECT max(seq) FROM task_events"
                                                   : "SELECT max(seq) FROM capstan.task_events");
        snprintf(seq, sizeof seq, "%lld + 1 + s.i * 1000 + t.seq %% 1000", last);
        const struct replacement of_event[] = {{"job_id", job_of_task}, {"task", task}, {"seq", seq}};
        multiply(bare, m, ROW_ATTEMPT, m->n, of_task, 3);
        multiply(bare, m, ROW_EVENT, m->n, of_event, 3);
    }
    bare_run(bare, is_lite ? "PRAGMA wal_checkpoint(TRUNCATE); ANALYZE" : "ANALYZE");
}

/* A database with a job under way and one that has ended. */
static const char *database_with_templates(const char *engine)
{
    const char *url = new_database(engine);
    struct drive *drive = drive_start(url, NULL, NULL);
    drive_templates(drive, "live-template", "ended-template");
    drive_stop(drive);
    return url;
}

/* ---- recovery ---- */

static void run_recovery(void)
{
    static const struct {
        const char *name;
        uint64_t per_job; /* 0: all of them */
    } shapes[] = {{"one_job", 0}, {"1000_per_job", 1000}, {"one_per_job", 1}};
    uint64_t n = bench.quick ? 100000 : 1000000;
    for (size_t k = 0; k < ARRAY_LEN(engines) * ARRAY_LEN(shapes); k++) {
        const char *engine = engines[k / ARRAY_LEN(shapes)];
        uint64_t per_job = shapes[k % ARRAY_LEN(shapes)].per_job;
        double took[3], cpu[3];
        if (!is_wanted(engine)) {
            continue;
        }
        const char *url = database_with_templates(engine);
        struct bare *bare = bare_open(url);
        struct multiplication m = {engine, "live-template", "live-", n, per_job == 0 ? n : per_job};
        multiply_all(bare, &m, false);
        bare_close(bare);
        for (int r = 0; r < 3; r++) {
            struct drive *drive = drive_start(url, &took[r], &cpu[r]);
            drive_stop(drive);
        }
        print(median(took, 3),
              bench.quick ? "s to lead with 100,000 live tasks" : "s to lead with 1,000,000 live tasks; wanted < 10",
              "%s_load_%s_s", engine, shapes[k % ARRAY_LEN(shapes)].name);
        print(median(cpu, 3), "s of this process's cores, the rest is waiting", "%s_load_%s_cpu_s", engine,
              shapes[k % ARRAY_LEN(shapes)].name);
    }
}

/* ---- history ---- */

static void run_history(void)
{
    int rounds = bench.quick ? 3 : 7;
    for (size_t k = 0; k < ARRAY_LEN(engines); k++) {
        double ratios[ROUNDS_MAX], empties[ROUNDS_MAX], fulls[ROUNDS_MAX];
        if (!is_wanted(engines[k])) {
            continue;
        }
        const char *url = database_with_templates(engines[k]);
        struct bare *bare = bare_open(url);
        struct multiplication m = {engines[k], "ended-template", "0-ended-", bench.history, 10};
        double start = seconds();
        multiply_all(bare, &m, true);
        bare_run(bare, strcmp(engines[k], "sqlite") == 0 ? "SELECT 1" : "CHECKPOINT");
        bare_close(bare);
        print(seconds() - start, "s to write the history by SQL", "%s_history_write_s", engines[k]);
        struct drive *full = drive_start(url, NULL, NULL);
        struct drive *empty = drive_start(new_database(engines[k]), NULL, NULL);
        for (int r = -1; r < rounds; r++) {
            uint32_t n = bench.quick ? 5000 : 20000;
            double empty_rate = drive_lifecycles(empty, 1, 100, n);
            double full_rate = drive_lifecycles(full, 1, 100, n);
            if (r >= 0) {
                empties[r] = empty_rate;
                fulls[r] = full_rate;
                ratios[r] = full_rate / empty_rate;
            }
        }
        print((double)bench.history, "ended tasks in the history", "%s_history_tasks", engines[k]);
        print(median(empties, rounds), "lifecycles/s at 100 without them", "%s_history_empty_100", engines[k]);
        print(median(fulls, rounds), "lifecycles/s at 100 with them", "%s_history_full_100", engines[k]);
        print(median(ratios, rounds), "wanted >= 0.8", "%s_history_ratio", engines[k]);
        drive_stop(full);
        drive_stop(empty);
    }
}

/* ---- idle ---- */

/* Statements in the server's log. */
static long count_statements(void)
{
    char path[160];
    char line[4096];
    long n = 0;
    snprintf(path, sizeof path, "%s/pg/log", bench.folder);
    FILE *log = fopen(path, "r");
    while (log != NULL && fgets(line, sizeof line, log) != NULL) {
        n += strstr(line, "LOG:  statement: ") != NULL || strstr(line, "LOG:  execute ") != NULL;
    }
    if (log == NULL || fclose(log) != 0) {
        die("PostgreSQL's log cannot be read");
    }
    return n;
}

static void run_idle(void)
{
    int length_s = bench.quick ? 10 : 70; /* upkeep comes once a minute */
    struct timespec pause = {.tv_sec = 3};
    struct service *service = NULL;
    struct error e = {0};
    if (!is_wanted("postgres")) {
        return;
    }
    const char *url = new_database("postgres");
    struct bare *bare = bare_open(url);
    struct buf sql = {0};
    buf_format(&sql, "ALTER DATABASE bench_%u SET log_statement = 'all'", bench.n_databases);
    bare_run(bare, sql.data);
    buf_deinit(&sql);
    bare_close(bare);
    struct service_options options = {
        .store_url = url, .node_id = "idle", .listen = "127.0.0.1:0", .settings = settings_default()};
    if (service_start(&options, &service, &e) != ERR_OK) {
        die(e.message);
    }
    nanosleep(&pause, NULL); /* the election is over */
    long before = count_statements();
    pause.tv_sec = length_s;
    nanosleep(&pause, NULL);
    long after = count_statements();
    print((double)(after - before) / length_s, "statements/s of an idle leader; wanted < 3",
          "postgres_idle_statements_per_s");
    service_stop(service);
}

/* ---- */

static const struct part {
    const char *name;
    bool is_default;
    void (*run)(void);
} parts[] = {
    {"lifecycles", true, run_lifecycles}, {"latency", true, run_latency}, {"recovery", true, run_recovery},
    {"history", false, run_history},      {"idle", true, run_idle},
};

static int usage(const char *argument)
{
    fprintf(stderr, "bench-store: unknown argument '%s'\n", argument);
    fprintf(stderr, "  hint: bench-store [--json] [--quick] [--store sqlite|postgres] [--width N] [--history N] "
                    "[lifecycles|latency|recovery|history|idle]...\n");
    return 2;
}

/* How busy the machine is, with this and everything else: runnable threads over the last minute. */
static double load_average(void)
{
    char text[64] = "";
    FILE *file = fopen("/proc/loadavg", "r");
    if (file != NULL) {
        char *line = fgets(text, sizeof text, file);
        (void)line;
        fclose(file);
    }
    return strtod(text, NULL);
}

static void print_conditions(void)
{
    if (bench.json) {
        printf("%s\"quick\": %s, \"cores\": %ld, \"durable\": \"sqlite: WAL, synchronous=FULL; postgres: fsync and "
               "synchronous_commit on, same machine\"}\n",
               any_printed ? ", " : "{", bench.quick ? "true" : "false", sysconf(_SC_NPROCESSORS_ONLN));
    } else {
        printf(
            "on %ld cores, with SQLite in WAL mode and synchronous=FULL, PostgreSQL on the same machine with fsync and "
            "synchronous_commit on\n",
            sysconf(_SC_NPROCESSORS_ONLN));
    }
}

int main(int argc, char **argv)
{
    bool wanted[ARRAY_LEN(parts)] = {false};
    bool any = false;
    for (int i = 1; i < argc; i++) {
        bool is_part = false;
        for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
            if (strcmp(argv[i], parts[k].name) == 0) {
                wanted[k] = is_part = any = true;
            }
        }
        if (strcmp(argv[i], "--json") == 0) {
            bench.json = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            bench.quick = true;
        } else if (strcmp(argv[i], "--store") == 0 && i + 1 < argc) {
            bench.store = argv[++i];
        } else if (strcmp(argv[i], "--width") == 0 && i + 1 < argc) {
            bench.width = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--history") == 0 && i + 1 < argc) {
            bench.history = strtoull(argv[++i], NULL, 10);
            wanted[3] = true;
        } else if (!is_part) {
            return usage(argv[i]);
        }
    }
    make_folder();
    print(load_average(), "load of the machine before", "load_before");
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        if (wanted[k] || (!any && parts[k].is_default)) {
            parts[k].run();
        }
    }
    print(load_average(), "and after", "load_after");
    print_conditions();
    return 0;
}
