/*
 * bench-store - what durability costs: the coordinator's loop with a store behind it, beside the bare engine.
 *
 *   bench-store [--json] [--quick] [--check] [--store sqlite|postgres] [--width N] [--history N] [PART]...
 *
 *   lifecycles  full lifecycles of tasks per second (submit, assign, complete) with 1, 100 and 1,000 of them under way, and
 *               the same rows written by the bare engine; then also with a question and an input of its own per submit,
 *               beside the bare engine that writes these inputs, too; and jobs of so many tasks by the bare engine alone
 *   latency     a lone command beside a bare commit
 *   recovery    from the start of a coordinator with 1,000,000 live tasks, a tenth of them under leases, to its first answer
 *   prune       a lone command while old history is removed, and while it is not
 *   idle        what a leader and a standby with nothing to do ask of PostgreSQL
 *   history     the speed with N ended tasks in the history (5,000,000: it takes minutes and some 20 GB of disk)
 *
 * Without names all of them but history. With --check the exit status is 1 if a bar ("wanted") is missed.
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
    bool is_check;
    uint32_t n_missed; /* bars */
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

/* The value that this share of all does not go beyond. */
static double quantile(const double *values, int n, double share)
{
    double sorted[1024];
    ASSERT(n > 0 && n <= 1024);
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
    int at = (int)(share * n);
    return sorted[at < n ? at : n - 1];
}

static double median(const double *values, int n)
{
    return quantile(values, n, 0.5);
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

/* For a figure that was just printed: that it keeps to the bar. */
static void want(bool holds, const char *engine, const char *what)
{
    if (!holds) {
        bench.n_missed++;
        fprintf(stderr, "bench-store: %s misses the bar: %s\n", engine, what);
    }
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
                                  "checkpoint_timeout=30min 'log_line_prefix=%m %u '",
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

static double bare_lifecycles(struct bare *bare, enum script_shape shape, uint32_t width, uint32_t n)
{
    struct script script;
    uint32_t n_groups = (n + width - 1) / width;
    script_init(&script, shape, n_groups, width, bench.next_script);
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

enum speed { BARE, LOOP, LOOP_TWICE, RATIO, BARE_EACH, LOOP_EACH, RATIO_EACH, BARE_TREE, SPEEDS };

static void measure_lifecycles(struct bare *bare, struct drive *drive, uint32_t width, uint32_t n, double out[SPEEDS])
{
    out[BARE] = bare_lifecycles(bare, SCRIPT_JOBS, width, n);
    out[LOOP] = drive_lifecycles(drive, DRIVE_TOGETHER, 1, width, n);
    out[LOOP_TWICE] = drive_lifecycles(drive, DRIVE_TOGETHER, 2, width, n);
    out[RATIO] = out[LOOP] / out[BARE];
    out[BARE_EACH] = bare_lifecycles(bare, SCRIPT_INPUTS, width, n);
    out[LOOP_EACH] = drive_lifecycles(drive, DRIVE_EACH, 1, width, n);
    out[RATIO_EACH] = out[LOOP_EACH] / out[BARE_EACH];
    out[BARE_TREE] = bare_lifecycles(bare, SCRIPT_TREE, width, n);
}

static void print_lifecycles(const char *engine, uint32_t width, int rounds, double seen[SPEEDS][ROUNDS_MAX])
{
    static const struct {
        const char *name;
        const char *unit;
    } figures[SPEEDS] = {
        [BARE] = {"bare", "lifecycles/s, bare engine"},
        [LOOP] = {"loop", "lifecycles/s, loop + store"},
        [LOOP_TWICE] = {"loop_twice", "lifecycles/s, two clients that take turns"},
        [RATIO] = {"ratio", "of the bare engine; wanted >= 0.7 at 100 and 1000"},
        [BARE_EACH] = {"bare_each", "lifecycles/s, bare engine, one payload per job"},
        [LOOP_EACH] = {"loop_each", "lifecycles/s, one lookup and one payload per submit"},
        [RATIO_EACH] = {"ratio_each", "of the bare engine; wanted >= 0.7 at 100 and 1000"},
        [BARE_TREE] = {"bare_tree", "lifecycles/s, bare engine, jobs of so many tasks with one payload"},
    };
    for (int i = 0; i < SPEEDS; i++) {
        print(median(seen[i], rounds), figures[i].unit, "%s_%s_%u", engine, figures[i].name, width);
    }
    want(width == 1 || median(seen[RATIO], rounds) >= 0.7, engine, "0.7 of the bare engine");
    want(width == 1 || median(seen[RATIO_EACH], rounds) >= 0.7, engine,
         "0.7 of the bare engine with one lookup and one payload per submit");
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
        struct drive *drive = drive_start(new_database(engines[k]), 0);
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
            if (bench.width != 0 && bench.width != sizes[i].width) {
                continue;
            }
            double seen[SPEEDS][ROUNDS_MAX];
            for (int r = -1; r < rounds; r++) { /* the first is to warm up */
                double round[SPEEDS];
                measure_lifecycles(bare, drive, sizes[i].width, bench.quick ? sizes[i].n / 5 : sizes[i].n, round);
                for (int f = 0; f < SPEEDS && r >= 0; f++) {
                    seen[f][r] = round[f];
                }
            }
            print_lifecycles(engines[k], sizes[i].width, rounds, seen);
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
        struct drive *drive = drive_start(new_database(engines[k]), 0);
        script_init(&script, SCRIPT_JOBS, (uint32_t)n, 1, bench.next_script);
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
        want(median(ours, n) <= 2 * median(bares, n), engines[k], "a lone command within 2 bare commits");
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
    const struct table *table = script_table(kind);
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

enum template { TEMPLATE_WAITING, TEMPLATE_LEASED, TEMPLATE_ENDED };

static const struct drive_templates templates = {"waiting-template", "leased-template", "ended-template"};

/* Jobs, stages and tasks; of those under leases these and their attempts; of ended ones attempts, payloads and events. */
static void multiply_all(struct bare *bare, const struct multiplication *m, enum template template)
{
    bool is_lite = strcmp(m->engine, "sqlite") == 0;
    char job_of_job[96], job_of_task[96], task[48], spec[160], key[48], token[96], digest[96], seq[160];
    write_id(job_of_job, sizeof job_of_job, m, 1);
    write_id(job_of_task, sizeof job_of_task, m, m->per_job);
    snprintf(task, sizeof task, "s.i %% %llu", (unsigned long long)m->per_job);
    snprintf(spec, sizeof spec, "replace(t.spec, '\"tasks\":1,', '\"tasks\":%llu,')", (unsigned long long)m->per_job);
    snprintf(key, sizeof key, "%s", is_lite ? "randomblob(32)" : "sha256(int8send(s.i))");
    snprintf(token, sizeof token, "%s", /* 16 bytes, the same for the task and its lease */
             is_lite ? "CAST(printf('%016d', s.i) AS BLOB)" : "convert_to(lpad(s.i::text, 16, '0'), 'UTF8')");
    snprintf(digest, sizeof digest, "%s", /* 32 bytes, the same for the task and its input */
             is_lite ? "CAST(printf('%032d', s.i) AS BLOB)" : "convert_to(lpad(s.i::text, 32, '0'), 'UTF8')");
    uint64_t n_jobs = m->n / m->per_job;
    const struct replacement of_job[] = {{"job_id", job_of_job}, {"spec", spec}};
    const struct replacement of_task[] = {{"job_id", job_of_task}, {"task", task}, {"inputs", digest}};
    const struct replacement of_attempt[] = {{"job_id", job_of_task}, {"task", task}, {"idempotency_key", key}};
    const struct replacement of_payload[] = {{"job_id", job_of_task}, {"digest", digest}};
    const struct replacement of_lease[] = {{"job_id", job_of_task},
                                           {"task", task},
                                           {"lease_id", token},
                                           {"lease_token", token},
                                           {"lease_expires_at_ms", "4102444800000"}, /* the year 2100 */
                                           {"expires_at_ms", "4102444800000"}};
    multiply(bare, m, ROW_JOB, n_jobs, of_job, 1);
    multiply(bare, m, ROW_STAGE, n_jobs, of_job, 2);
    multiply(bare, m, ROW_TASK, m->n, template == TEMPLATE_LEASED ? of_lease : of_task,
             template == TEMPLATE_LEASED  ? ARRAY_LEN(of_lease)
             : template == TEMPLATE_ENDED ? 3
                                          : 2); /* nobody waits or runs with an input */
    if (template == TEMPLATE_LEASED) {
        multiply(bare, m, ROW_LEASE, m->n, of_lease, ARRAY_LEN(of_lease));
    }
    if (template != TEMPLATE_WAITING) {
        multiply(bare, m, ROW_ATTEMPT, m->n, of_attempt, 3);
    }
    if (template == TEMPLATE_ENDED) {
        long long last = bare_number(bare, is_lite ? "SELECT max(seq) FROM task_events"
                                                   : "SELECT max(seq) FROM capstan.task_events");
        snprintf(seq, sizeof seq, "%lld + 1 + s.i * 1000 + t.seq %% 1000", last);
        const struct replacement of_event[] = {{"job_id", job_of_task}, {"task", task}, {"seq", seq}};
        multiply(bare, m, ROW_EVENT, m->n, of_event, 3);
        multiply(bare, m, ROW_META, m->n, of_payload, 2); /* which stands for payloads */
    }
    bare_run(bare, is_lite ? "PRAGMA wal_checkpoint(TRUNCATE); ANALYZE" : "ANALYZE");
}

/* A database with jobs to multiply. */
static const char *database_with_templates(const char *engine)
{
    const char *url = new_database(engine);
    struct drive *drive = drive_start(url, 0);
    drive_make_templates(drive, &templates);
    drive_stop(drive);
    return url;
}

/* ---- recovery ---- */

/* A tenth of them run. */
static const char *database_with_live_tasks(const char *engine, uint64_t n, uint64_t per_job)
{
    const char *url = database_with_templates(engine);
    uint64_t n_leased = n / 10;
    uint64_t n_waiting = n - n_leased;
    struct multiplication waiting = {engine, templates.waiting_id, "waiting-", n_waiting,
                                     per_job == 0 ? n_waiting : per_job};
    struct multiplication leased = {engine, templates.leased_id, "leased-", n_leased,
                                    per_job == 0 ? n_leased : per_job};
    struct bare *bare = bare_open(url);
    multiply_all(bare, &waiting, TEMPLATE_WAITING);
    multiply_all(bare, &leased, TEMPLATE_LEASED);
    long long n_leases = bare_number(bare, strcmp(engine, "sqlite") == 0 ? "SELECT count(*) FROM task_leases"
                                                                         : "SELECT count(*) FROM capstan.task_leases");
    if (n_leases <= (long long)n_leased) { /* and the template's own */
        die("the tasks that should run have no leases");
    }
    bare_close(bare);
    return url;
}

static void run_recovery(void)
{
    static const struct {
        const char *name;
        uint64_t per_job; /* 0: all of them */
    } shapes[] = {{"one_job", 0}, {"1000_per_job", 1000}, {"one_per_job", 1}};
    uint64_t n = bench.quick ? 100000 : 1000000;
    for (size_t k = 0; k < ARRAY_LEN(engines) * ARRAY_LEN(shapes); k++) {
        const char *engine = engines[k / ARRAY_LEN(shapes)];
        const char *shape = shapes[k % ARRAY_LEN(shapes)].name;
        double took[3], cpu[3];
        if (!is_wanted(engine)) {
            continue;
        }
        const char *url = database_with_live_tasks(engine, n, shapes[k % ARRAY_LEN(shapes)].per_job);
        for (int r = 0; r < 3; r++) {
            drive_recover(url, &took[r], &cpu[r]);
        }
        print(median(took, 3),
              bench.quick ? "s to the first answer with 100,000 live tasks"
                          : "s to the first answer with 1,000,000 live tasks; wanted < 10",
              "%s_load_%s_s", engine, shape);
        print(median(cpu, 3), "s of this process's cores, the rest is waiting", "%s_load_%s_cpu_s", engine, shape);
        want(bench.quick || median(took, 3) < 10, engine, "a recovery of 1,000,000 tasks in 10 s");
    }
}

/* ---- pruning ---- */

static long long count_jobs(struct bare *bare, const char *engine)
{
    return bare_number(bare, strcmp(engine, "sqlite") == 0 ? "SELECT count(*) FROM jobs WHERE kind >= 0"
                                                           : "SELECT count(*) FROM capstan.jobs WHERE kind >= 0");
}

/* Lone submits beside a coordinator that prunes whatever is older than this. Returns the jobs that went meanwhile. */
static long long measure_submits(const char *engine, const char *url, int64_t history_ttl_ms, double *out, int n)
{
    struct drive *drive = drive_start(url, history_ttl_ms);
    struct bare *bare = bare_open(url);
    long long at_first = count_jobs(bare, engine);
    double start = seconds();
    struct timespec pause = {.tv_nsec = 20000000};
    while (history_ttl_ms != 0 && count_jobs(bare, engine) >= at_first) { /* until it has begun */
        nanosleep(&pause, NULL);
        if (seconds() - start > 60) {
            die("the coordinator does not prune");
        }
    }
    long long before = count_jobs(bare, engine);
    for (int i = 0; i < n; i++) {
        out[i] = drive_submit(drive);
    }
    long long gone = before + n - count_jobs(bare, engine);
    bare_close(bare);
    drive_stop(drive);
    return gone;
}

static void run_prune(void)
{
    enum { N_MAX = 1000 };
    static double quiet[N_MAX], busy[N_MAX];
    int n = bench.quick ? 100 : N_MAX;
    uint64_t n_tasks = bench.quick ? 200000 : 2000000;
    for (size_t k = 0; k < ARRAY_LEN(engines); k++) {
        if (!is_wanted(engines[k])) {
            continue;
        }
        const char *url = database_with_templates(engines[k]);
        struct bare *bare = bare_open(url);
        struct multiplication m = {engines[k], templates.ended_id, "0-ended-", n_tasks, 10};
        multiply_all(bare, &m, TEMPLATE_ENDED);
        measure_submits(engines[k], url, 0, quiet, n);
        long long gone = measure_submits(engines[k], url, 1000, busy, n);
        long long left = count_jobs(bare, engines[k]);
        bare_close(bare);
        print(median(quiet, n) * 1e3, "ms, a lone submit without pruning, median", "%s_prune_quiet_ms", engines[k]);
        print(quantile(quiet, n, 0.99) * 1e3, "ms, p99", "%s_prune_quiet_p99_ms", engines[k]);
        print(median(busy, n) * 1e3, "ms, a lone submit while history goes, median", "%s_prune_busy_ms", engines[k]);
        print(quantile(busy, n, 0.99) * 1e3, "ms, p99", "%s_prune_busy_p99_ms", engines[k]);
        double ratio = median(busy, n) / median(quiet, n);
        print(ratio, "of one without pruning, medians; wanted <= 2", "%s_prune_ratio", engines[k]);
        want(ratio <= 2, engines[k], "a lone command beside pruning within 2 of those without");
        print((double)gone, "jobs of ten tasks that went meanwhile", "%s_prune_jobs_gone", engines[k]);
        print((double)left, "jobs left: above 0, it was pruned all the time", "%s_prune_jobs_left", engines[k]);
    }
}

/* ---- history ---- */

static uint64_t database_bytes(const char *url)
{
    struct store *store = NULL;
    struct store_summary summary;
    struct error e = {0};
    if (store_open(url, &store, &e) != ERR_OK || store_summarize(store, &summary, &e) != ERR_OK) {
        die(e.message);
    }
    store_close(store);
    return summary.bytes;
}

/* A database with that many ended tasks, each with an attempt, an input and events. */
static const char *database_with_history(const char *engine)
{
    const char *url = database_with_templates(engine);
    struct bare *bare = bare_open(url);
    struct multiplication m = {engine, templates.ended_id, "0-ended-", bench.history, 10};
    double start = seconds();
    multiply_all(bare, &m, TEMPLATE_ENDED);
    bare_run(bare, strcmp(engine, "sqlite") == 0 ? "SELECT 1" : "CHECKPOINT");
    bare_close(bare);
    print(seconds() - start, "s to write the history by SQL", "%s_history_write_s", engine);
    print((double)database_bytes(url) / 1e9, "GB of disk, logs not included", "%s_history_gb", engine);
    print((double)bench.history, "ended tasks in the history", "%s_history_tasks", engine);
    return url;
}

static void compare_history(const char *engine, struct drive *full, struct drive *empty, enum drive_manner manner)
{
    double ratios[ROUNDS_MAX], empties[ROUNDS_MAX], fulls[ROUNDS_MAX];
    const char *each = manner == DRIVE_EACH ? "_each" : ""; /* one lookup and one payload per submit */
    int rounds = bench.quick ? 3 : 7;
    for (int r = -1; r < rounds; r++) {
        uint32_t n = bench.quick ? 5000 : 20000;
        double empty_rate = drive_lifecycles(empty, manner, 1, 100, n);
        double full_rate = drive_lifecycles(full, manner, 1, 100, n);
        if (r >= 0) {
            empties[r] = empty_rate;
            fulls[r] = full_rate;
            ratios[r] = full_rate / empty_rate;
        }
    }
    print(median(empties, rounds), "lifecycles/s at 100 without them", "%s_history_empty%s_100", engine, each);
    print(median(fulls, rounds), "lifecycles/s at 100 with them", "%s_history_full%s_100", engine, each);
    print(median(ratios, rounds), "wanted >= 0.8", "%s_history_ratio%s", engine, each);
    want(median(ratios, rounds) >= 0.8, engine,
         manner == DRIVE_EACH ? "0.8 of the speed with a long history, with one lookup and one payload per submit"
                              : "0.8 of the speed with a long history");
}

static void run_history(void)
{
    for (size_t k = 0; k < ARRAY_LEN(engines); k++) {
        if (!is_wanted(engines[k])) {
            continue;
        }
        struct drive *full = drive_start(database_with_history(engines[k]), 0);
        struct drive *empty = drive_start(new_database(engines[k]), 0);
        compare_history(engines[k], full, empty, DRIVE_TOGETHER);
        compare_history(engines[k], full, empty, DRIVE_EACH);
        drive_stop(full);
        drive_stop(empty);
    }
}

/* ---- idle ---- */

/* Statements of that user in the server's log. */
static long count_statements(const char *user)
{
    char path[160], statement[64], execution[64];
    char line[4096];
    long n = 0;
    snprintf(statement, sizeof statement, " %s LOG:  statement: ", user);
    snprintf(execution, sizeof execution, " %s LOG:  execute ", user);
    snprintf(path, sizeof path, "%s/pg/log", bench.folder);
    FILE *log = fopen(path, "r");
    while (log != NULL && fgets(line, sizeof line, log) != NULL) {
        n += strstr(line, statement) != NULL || strstr(line, execution) != NULL;
    }
    if (log == NULL || fclose(log) != 0) {
        die("PostgreSQL's log cannot be read");
    }
    return n;
}

static struct service *start_idle(const char *url, const char *node_id)
{
    struct service *service = NULL;
    struct error e = {0};
    struct service_options options = {
        .store_url = url, .node_id = node_id, .listen = "127.0.0.1:0", .settings = settings_default()};
    if (service_start(&options, &service, &e) != ERR_OK) {
        die(e.message);
    }
    return service;
}

static void print_idle(long n, int length_s, const char *who)
{
    double rate = (double)n / length_s;
    print(rate, "statements/s with nothing to do; wanted < 3", "postgres_idle_%s_statements_per_s", who);
    want(rate < 3, "postgres", "3 statements per second of an idle coordinator");
}

/* The standby is another user of the database, so that the log tells them apart. */
static void run_idle(void)
{
    int length_s = bench.quick ? 10 : 70; /* upkeep comes once a minute */
    struct timespec pause = {.tv_sec = 3};
    if (!is_wanted("postgres")) {
        return;
    }
    const char *url = new_database("postgres");
    struct bare *bare = bare_open(url);
    struct buf sql = {0};
    buf_format(&sql, "ALTER DATABASE bench_%u SET log_statement = 'all'; CREATE ROLE standby SUPERUSER LOGIN",
               bench.n_databases);
    bare_run(bare, sql.data);
    buf_reset(&sql);
    bare_close(bare);
    buf_format(&sql, "postgres://standby%s", strchr(url, '@'));
    struct service *leader = start_idle(url, "leader");
    nanosleep(&pause, NULL); /* the election is over */
    struct service *standby = start_idle(sql.data, "standby");
    nanosleep(&pause, NULL);
    long of_leader = count_statements("postgres");
    long of_standby = count_statements("standby");
    pause.tv_sec = length_s;
    nanosleep(&pause, NULL);
    of_leader = count_statements("postgres") - of_leader;
    of_standby = count_statements("standby") - of_standby;
    print_idle(of_leader, length_s, "leader");
    print_idle(of_standby, length_s, "standby");
    service_stop(standby);
    service_stop(leader);
    buf_deinit(&sql);
}

/* ---- */

static const struct part {
    const char *name;
    bool is_default;
    void (*run)(void);
} parts[] = {
    {"lifecycles", true, run_lifecycles}, {"latency", true, run_latency}, {"recovery", true, run_recovery},
    {"history", false, run_history},      {"prune", true, run_prune},     {"idle", true, run_idle},
};

static int usage(const char *argument)
{
    fprintf(stderr, "bench-store: unknown argument '%s'\n", argument);
    fprintf(stderr,
            "  hint: bench-store [--json] [--quick] [--check] [--store sqlite|postgres] [--width N] [--history N] "
            "[lifecycles|latency|recovery|history|prune|idle]...\n");
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
        } else if (strcmp(argv[i], "--check") == 0) {
            bench.is_check = true;
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
    return bench.is_check && bench.n_missed > 0 ? 1 : 0;
}
