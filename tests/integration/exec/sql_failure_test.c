#include "test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fixture.h"
#include "sql_cluster.h"

/* ---- what is refused ---- */

static struct exec_outcome run_attempt(struct cluster *cluster, const char *name, uint64_t number, uint32_t attempt,
                                       const char *inputs)
{
    struct fixture worker = {.set = cluster->workers[0].set};
    struct exec_task task = task_with(inputs);
    task.name = name;
    task.task = number;
    task.attempt = attempt;
    return fixture_run_task(&worker, "sql", &task);
}

static struct exec_outcome run_named(struct cluster *cluster, const char *name, uint64_t number, const char *inputs)
{
    return run_attempt(cluster, name, number, 2, inputs);
}

#define PLAN "{\"stages\":[{\"id\":3,\"sql\":\"SELECT 1 AS a\",\"output\":{\"exchange\":\"result\"}}]}"

TEST(inputs_of_another_shape_are_refused)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){0});
    static const struct {
        const char *name;
        uint64_t task;
        const char *inputs;
        const char *message;
    } cases[] = {
        {"plan", 0, "{\"statement\":1}",
         "inputs must have either the member 'sql', a query, or 'stages', a physical plan"},
        {"s0", 0, "[]", "inputs must be an object"},
        {NULL, 0, PLAN,
         "a task whose inputs are a physical plan is called 'refine' or as a stage, such as 's0', not ''"},
        {"s", 0, PLAN,
         "a task whose inputs are a physical plan is called 'refine' or as a stage, such as 's0', not 's'"},
        {"s0", 0, PLAN, "the plan has no stage 0, which the task's name 's0' asks for"},
        {"s3", 1, PLAN, "stage 3 of the plan has 1 tasks, but this is number 1"},
        {"plan", 0, "{\"sql\":7}", "inputs.sql must be a text"},
        {"plan", 0, "{\"sql\":null}", "inputs.sql must be a query of at most 1048576 bytes"},
        {"plan", 0, "{\"sql\":\"SELECT 1\",\"params\":7}",
         "inputs.params must be a list, for $1, $2 and so on, or an object, for named ones"},
        {"plan", 0, "{\"sql\":\"SELECT 1\",\"tables\":[{\"name\":\"t\"}]}",
         "each of inputs.tables must have a name and a source"},
        {"plan", 0, "{\"sql\":\"SELECT 1\",\"options\":{\"partitions\":10001}}",
         "inputs.options.partitions must be a whole number from 0 to 10000"},
        {"plan", 0, "{\"sql\":\"SELECT 1\",\"options\":{\"slots\":-1}}",
         "inputs.options.slots must be a whole number from 0 to 10000000"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_failure(run_named(&cluster, cases[i].name, cases[i].task, cases[i].inputs), cases[i].message, true);
    }
    struct exec_outcome out = run_named(&cluster, "s0", 0, "{\"stages\":[]}");
    CHECK(!out.is_success);
    CHECK(out.not_retryable);
    exec_outcome_deinit(&out);
    cluster_close(&cluster);
}

/* That it fails with a message that has this in it. */
static void expect_failed(struct exec_outcome out, const char *part, bool not_retryable)
{
    CHECK(!out.is_success);
    if (strstr(out.message.data, part) == NULL) {
        CHECK_STR(out.message.data, part);
    }
    CHECK_INT(out.not_retryable, not_retryable);
    CHECK_INT(out.output.kind, EXEC_OUTPUT_NONE);
    CHECK_UINT(out.plan.n, 0);
    exec_outcome_deinit(&out);
}

TEST(a_query_that_is_wrong_fails_for_good_with_duckdbs_words)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    static const struct {
        const char *sql;
        const char *part;
    } cases[] = {
        {"SELEC 1", "syntax error"},
        {"SELECT nothing_of_that_name", "Binder Error"},
        {"SELECT * FROM 'nowhere/at/all*.parquet'", "No files found"},
        {"SELECT * FROM 'nowhere/at/all*.parquet'", "paths must mean the same on all workers"},
        {"SELECT $1", "parameter"},
        {"SELECT CAST('x' || i AS INTEGER) FROM range(3) r(i)", "Conversion Error"},
        {"SELECT to_hours(2562048)",
         "an INTERVAL of more than 292 years in hours or less cannot be passed on: Arrow has no "
         "such value; cast it to VARCHAR, or write it with days, months or years"},
        {"SELECT {'a': [-to_hours(2562048)]}",
         "an INTERVAL of more than 292 years in hours or less cannot be passed on: Arrow has no such value; cast it to "
         "VARCHAR, or write it with days, months or years"},
        {"SELECT [to_microseconds(2305843009213693952)]", "an INTERVAL of more than 292 years"},
        {"SELECT {'a': to_microseconds(9223372036854775807)}", "an INTERVAL of more than 292 years"},
        {"SELECT MAP {1: [to_microseconds(2305843009213693952)]}", "an INTERVAL of more than 292 years"},
        {"SELECT union_value(s := to_microseconds(2305843009213693952))", "an INTERVAL of more than 292 years"},
        {"SELECT [to_days(1), to_microseconds(2305843009213693952)]::INTERVAL[2] FROM range(3000)",
         "an INTERVAL of more than 292 years"},
        {"SELECT [to_days(1), to_days(2), to_microseconds(2305843009213693952)][2:] FROM range(3000)",
         "an INTERVAL of more than 292 years"},
        {"SELECT CAST(1 AS VARIANT) AS v",
         "a column of type VARIANT cannot be given out: Arrow has no such type; cast it, as in x::VARCHAR or x::JSON"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf inputs = {0};
        cluster_inputs(&cluster, cases[i].sql, "", &inputs);
        expect_failed(run_named(&cluster, "plan", 0, inputs.data), cases[i].part, true);
        buf_deinit(&inputs);
    }
    cluster_close(&cluster);
}

TEST(a_stage_whose_rows_are_wrong_fails_for_good)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    expect_failed(
        run_named(&cluster, "s0", 0,
                  "{\"stages\":[{\"id\":0,\"sql\":\"SELECT CAST('x' || i AS INTEGER) AS k FROM range(3) r(i)\","
                  "\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":2}},{\"id\":1,\"inputs\":"
                  "{\"m\":0},\"sql\":\"SELECT * FROM m\",\"output\":{\"exchange\":\"result\"}}]}"),
        "Conversion Error", true);
    CHECK_UINT(exchange_store_memory_bytes(cluster.workers[0].folder.store), 0);
    cluster_close(&cluster);
}

TEST(a_query_without_enough_memory_says_so_and_is_not_tried_again)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000, .memory_bytes = 60000000});
    struct exec_outcome out =
        run_named(&cluster, "plan", 0, "{\"sql\":\"SELECT list(i + random()) AS l FROM range(30000000) r(i)\"}");
    CHECK(strstr(out.message.data, "all memory for queries of this worker, 60 MB, to itself") != NULL);
    expect_failed(out, "Out of Memory Error", true);
    /* The worker goes on. */
    out = run_named(&cluster, "plan", 0, "{\"sql\":\"SELECT sum(i) AS s FROM range(1000000) r(i)\"}");
    CHECK_STR(out.is_success ? NULL : out.message.data, NULL);
    exec_outcome_deinit(&out);
    cluster_close(&cluster);
}

/* Needs more than a third of 60 MB, and cannot spill it. */
#define LARGE                                                                                                          \
    "{\"stages\":[{\"id\":0,\"sql\":\"SELECT len(list(i)) AS n FROM range(" LARGE_ROWS ") r(i)\","                     \
    "\"output\":{\"exchange\":\"result\"}}]}"
#define LARGE_ROWS "1500000"

static atomic_uint n_attempts; /* each has a number of its own: at the same time they would be one output */

static void *run_large(void *context)
{
    size_t n_failed = 0;
    for (int i = 0; i < 8; i++) {
        struct exec_outcome out = run_attempt(context, "s0", 0, 1 + atomic_fetch_add(&n_attempts, 1), LARGE);
        if (!out.is_success) {
            fprintf(stderr, "%s\n", out.message.data);
        }
        n_failed += !out.is_success;
        exec_outcome_deinit(&out);
    }
    return (void *)n_failed;
}

TEST(queries_whose_memory_does_for_one_of_them_run_one_after_the_other)
{
    struct cluster cluster;
    pthread_t threads[3];
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000, .memory_bytes = 60000000});
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, run_large, &cluster), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        void *n_failed = NULL;
        CHECK_INT(pthread_join(threads[i], &n_failed), 0);
        CHECK_UINT((uintptr_t)n_failed, 0);
    }
    cluster_close(&cluster);
}

TEST(an_output_that_is_there_already_is_not_written_again)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    const char *plan = "{\"stages\":[{\"id\":0,\"sql\":\"SELECT 1 AS k\",\"output\":{\"exchange\":\"gather\"}},"
                       "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT * FROM m\",\"output\":"
                       "{\"exchange\":\"result\"}}]}";
    struct exec_outcome out = run_named(&cluster, "s0", 0, plan);
    CHECK_STR(out.is_success ? NULL : out.message.data, NULL);
    CHECK_INT(out.output.kind, EXEC_OUTPUT_MAP);
    CHECK_UINT(out.output.n_partitions, 1);
    CHECK_UINT(out.output.partitions[0].rows, 1);
    exec_outcome_deinit(&out);
    expect_failed(run_named(&cluster, "s0", 0, plan), "the output of job-1 stage 3 task 0 attempt 2 exists", false);
    cluster_close(&cluster);
}

TEST(a_worker_without_the_operator_says_which_one_is_missing)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    expect_failed(
        run_named(&cluster, "s0", 0,
                  "{\"stages\":[{\"id\":0,\"sql\":\"SELECT 1 AS k\",\"custom\":{\"op\":\"mine\",\"config\":{}},"
                  "\"output\":{\"exchange\":\"result\"}}]}"),
        "custom physical operator 'mine' is not registered on worker", false);
    cluster_close(&cluster);
}

TEST(an_operators_failure_is_told_in_its_own_words)
{
    struct cluster cluster;
    char plugin[600];
    plugin_path("add_five", plugin, sizeof(plugin));
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000, .plugin = plugin});
    struct exec_outcome out =
        run_named(&cluster, "s0", 0,
                  "{\"stages\":[{\"id\":0,\"sql\":\"SELECT CAST(120 + i AS TINYINT) AS k FROM range(8) r(i)\","
                  "\"custom\":{\"op\":\"add_five\",\"config\":{}},\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],"
                  "\"partitions\":2}},{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT * FROM m\","
                  "\"output\":{\"exchange\":\"result\"}}]}");
    CHECK_MEM(out.message.data, "operator 'add_five': ", 21); /* and no word of DuckDB's in front */
    expect_failed(out, "operator 'add_five': ", true);
    cluster_close(&cluster);
}

TEST(a_file_that_has_changed_since_planning_fails_the_query)
{
    struct cluster cluster;
    struct cluster_job job;
    struct buf inputs = {0};
    char message[400];
    uint32_t n_changed = 0;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(1000) r(i)) TO '@/a.parquet' (FORMAT parquet)");
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(1000) r(i)) TO '@/b.parquet' (FORMAT parquet)");
    cluster_begin(&cluster, &job);
    cluster_inputs(&cluster, "SELECT k % 7 AS m, count(*) AS n FROM '@/*.parquet' GROUP BY ALL",
                   "\"options\":{\"partitions\":2,\"forced\":true}", &inputs);
    const struct exec_outcome *planned = cluster_plan(&cluster, &job, inputs.data);
    CHECK_STR(planned->is_success ? NULL : planned->message.data, NULL);
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(1001) r(i)) TO '@/b.parquet' (FORMAT parquet)");
    snprintf(message, sizeof(message),
             "the file '%s/b.parquet' has changed since the query was planned; run the query again", cluster.folder);
    CHECK_UINT(physical_tasks(job.read, 0), 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct exec_outcome out = {0};
        cluster_run_task(&cluster, &job, 0, 1, i, 0, NULL, &out);
        n_changed += out.is_success ? 0 : 1;
        if (!out.is_success) {
            CHECK_STR(out.message.data, message);
            CHECK(out.not_retryable);
        }
        exec_outcome_deinit(&out);
    }
    CHECK_UINT(n_changed, 1);
    buf_deinit(&inputs);
    cluster_end(&job);
    cluster_close(&cluster);
}

/* Plans the query, then runs `change`; returns how many of the tasks that read files fail, because of `file`. */
static uint32_t count_changed(struct cluster *cluster, const char *sql, const char *members, const char *change,
                              const char *file, uint32_t *out_tasks)
{
    struct cluster_job job;
    struct buf inputs = {0};
    char message[400];
    uint32_t n_changed = 0;
    cluster_begin(cluster, &job);
    cluster_inputs(cluster, sql, members, &inputs);
    const struct exec_outcome *planned = cluster_plan(cluster, &job, inputs.data);
    CHECK_STR(planned->is_success ? NULL : planned->message.data, NULL);
    CHECK_UINT(planned->output.kind, EXEC_OUTPUT_NONE); /* it was cut, and not run at once */
    cluster_sql(cluster, change);
    snprintf(message, sizeof(message), "the file '%s/%s' has changed since the query was planned; run the query again",
             cluster->folder, file);
    for (uint32_t stage = 0; stage < job.read->n_stages; stage++) {
        uint32_t n_tasks = job.read->stages[stage].n_inputs == 0 ? physical_tasks(job.read, stage) : 0;
        *out_tasks += n_tasks;
        for (uint32_t i = 0; i < n_tasks; i++) {
            struct exec_outcome out = {0};
            cluster_run_task(cluster, &job, stage, stage + 1, i, i % CLUSTER_WORKERS, NULL, &out);
            n_changed += out.is_success ? 0 : 1;
            if (!out.is_success) {
                CHECK_STR(out.message.data, message);
                CHECK(out.not_retryable);
            }
            exec_outcome_deinit(&out);
        }
    }
    buf_deinit(&inputs);
    cluster_end(&job);
    return n_changed;
}

#define CUT "\"options\":{\"slots\":2,\"partitions\":2,\"single_task_bytes\":1,\"partition_bytes\":1048576}"
#define CUT_BY_FORCE "\"options\":{\"slots\":2,\"partitions\":2,\"forced\":true}"
#define BY_RANGES "\"options\":{\"slots\":2,\"partitions\":2,\"forced\":true,\"broadcast_bytes\":1}"

TEST(a_file_that_is_not_split_and_has_changed_fails_all_tasks_that_read_it)
{
    static const struct {
        const char *sql;
        const char *members;
        const char *file; /* that changes, as `change` makes it */
        const char *change;
        uint32_t n_changed;
        uint32_t n_tasks;
    } cases[] = {
        {"SELECT name, count(*) AS n FROM '@/large*.parquet' JOIN '@/names.parquet' USING (k) GROUP BY ALL", CUT,
         "names.parquet", "COPY (SELECT i AS k, 'new' AS name FROM range(101) r(i)) TO '@/names.parquet'", 2, 2},
        {"SELECT count(l.file_index) AS n FROM read_parquet('@/large*.parquet', union_by_name = true) l JOIN '@/*.csv' "
         "USING (k)",
         CUT_BY_FORCE, "large1.parquet", "COPY (SELECT i AS k, i AS v FROM range(10) r(i)) TO '@/large1.parquet'", 1,
         3},
        {"SELECT count(*) AS n FROM read_parquet('@/large*.parquet', union_by_name = true) JOIN '@/*.csv' USING (k)",
         CUT_BY_FORCE, "large1.parquet", "COPY (SELECT i AS k, i AS v FROM range(11) r(i)) TO '@/large1.parquet'", 1,
         7},
        {"SELECT k % 7 AS m, count(*) AS n FROM '@/*.csv' GROUP BY ALL", CUT_BY_FORCE, "b.csv",
         "COPY (SELECT i AS k FROM range(1001) r(i)) TO '@/b.csv'", 1, 2},
        {"SELECT k % 7 AS m, count(*) AS n FROM '@/b.csv' GROUP BY ALL", CUT_BY_FORCE, "b.csv",
         "COPY (SELECT i AS k FROM range(1002) r(i)) TO '@/b.csv'", 1, 1},
        {"SELECT k % 7 AS m, count(*) AS n FROM read_csv('@/*.csv', union_by_name = true) GROUP BY ALL", CUT_BY_FORCE,
         "b.csv", "COPY (SELECT i AS k FROM range(1003) r(i)) TO '@/b.csv'", 1, 1},
        {"SELECT k % 7 AS m, count(*) AS n FROM '@/*.csv' GROUP BY ALL", CUT_BY_FORCE, "", "SELECT 1", 0, 2},
        {"SELECT count(*) AS n FROM '@/lines.parquet' JOIN '@/orders.parquet' USING (o)", BY_RANGES, "", "SELECT 1", 0,
         2},
        {"SELECT count(*) AS n FROM '@/lines.parquet' JOIN '@/orders.parquet' USING (o)", BY_RANGES, "orders.parquet",
         "COPY (SELECT i AS o FROM range(10001) r(i)) TO '@/orders.parquet' (ROW_GROUP_SIZE 2048)", 2, 2},
    };
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    for (int i = 0; i < 2; i++) {
        char sql[300];
        snprintf(sql, sizeof(sql),
                 "COPY (SELECT i %% 100 AS k, hash(i + %d) AS v FROM range(300000) r(i)) TO '@/large%d.parquet' "
                 "(ROW_GROUP_SIZE 20480)",
                 i, i);
        cluster_sql(&cluster, sql);
    }
    cluster_sql(&cluster, "COPY (SELECT i AS k, 'old' AS name FROM range(100) r(i)) TO '@/names.parquet'");
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(1000) r(i)) TO '@/a.csv'");
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(1000) r(i)) TO '@/b.csv'");
    cluster_sql(&cluster, "COPY (SELECT i AS o FROM range(10000) r(i)) TO '@/orders.parquet' (ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i // 4 AS o, hash(i) AS v FROM range(40000) r(i)) TO '@/lines.parquet' "
                          "(ROW_GROUP_SIZE 2048)");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t n_tasks = 0;
        uint32_t n_changed =
            count_changed(&cluster, cases[i].sql, cases[i].members, cases[i].change, cases[i].file, &n_tasks);
        if (n_changed != cases[i].n_changed || n_tasks != cases[i].n_tasks) {
            print_error("after a change of '%s': %s\n", cases[i].file, cases[i].sql);
        }
        CHECK_UINT(n_tasks, cases[i].n_tasks);
        CHECK_UINT(n_changed, cases[i].n_changed);
    }
    cluster_close(&cluster);
}

/* ---- what is lost ---- */

static const char two_stages[] =
    "{\"stages\":[{\"id\":0,\"sql\":\"SELECT k FROM read_parquet({{split}})\",\"splits\":[{\"file\":\"@/a.parquet\"},"
    "{\"file\":\"@/a.parquet\"},{\"file\":\"@/a.parquet\"},{\"file\":\"@/a.parquet\"}],\"output\":{\"exchange\":"
    "\"hash\",\"keys\":[\"k\"],\"partitions\":2}},{\"id\":1,\"inputs\":{\"m\":{\"stage\":0,\"repeated\":%s}},\"sql\":"
    "\"SELECT count(*) AS n FROM m\",\"output\":{\"exchange\":\"result\"}}]}";

/* Runs the first stage, on both workers in turn. */
static void run_first_stage(struct cluster *cluster, struct cluster_job *job, bool is_repeated)
{
    char pattern[1000];
    char plan[1200];
    struct cluster_stage *stage = &job->stages[0];
    snprintf(pattern, sizeof(pattern), two_stages, is_repeated ? "true" : "false");
    fill_in(pattern, cluster->folder, plan, sizeof(plan));
    cluster_begin(cluster, job);
    cluster_use_plan(job, plan);
    job->read->stages[0].job_stage = 0;
    stage->n_tasks = 4;
    stage->outputs = mem_calloc(4, sizeof(*stage->outputs));
    job->n_stages = 1;
    for (uint32_t i = 0; i < 4; i++) {
        struct cluster_output *output = &stage->outputs[i];
        *output = (struct cluster_output){.worker = i % 2, .attempt = 1};
        cluster_run_task(cluster, job, 0, 0, i, i % 2, NULL, &output->outcome);
        CHECK_STR(output->outcome.is_success ? NULL : output->outcome.message.data, NULL);
    }
}

static void open_with_file(struct cluster *cluster)
{
    cluster_open(cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    cluster_sql(cluster, "COPY (SELECT i AS k FROM range(100000) r(i)) TO '@/a.parquet' (FORMAT parquet)");
}

static void check_lost(struct cluster *cluster, struct cluster_job *job, const uint64_t *tasks, uint32_t n)
{
    struct exec_outcome out = {0};
    cluster_run_task(cluster, job, 1, 1, 1, 0, NULL, &out);
    CHECK(!out.is_success);
    CHECK(!out.not_retryable);
    CHECK_MEM(out.message.data, "fetch_failed: partition 1 of job-", 33);
    CHECK_UINT(out.n_lost, n);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_UINT(out.lost[i].stage, 0);
        CHECK_UINT(out.lost[i].task, tasks[i]);
        CHECK_UINT(out.lost[i].attempt, 1);
    }
    exec_outcome_deinit(&out);
}

TEST(map_outputs_that_a_worker_has_dropped_are_named)
{
    for (int i = 0; i < 2; i++) {
        struct cluster cluster;
        struct cluster_job job;
        struct exec_outcome out = {0};
        open_with_file(&cluster);
        run_first_stage(&cluster, &job, i == 1);
        cluster_run_task(&cluster, &job, 1, 1, 0, 0, NULL, &out);
        CHECK_STR(out.is_success ? NULL : out.message.data, NULL);
        exec_outcome_deinit(&out);
        exchange_store_end_job(cluster.workers[0].folder.store, job.id, false, EXCHANGE_ALL_NUMBERS);
        check_lost(&cluster, &job, (const uint64_t[]){0}, 1); /* its own: read one after the other */
        cluster_end(&job);
        cluster_close(&cluster);
    }
}

TEST(all_map_outputs_of_a_worker_that_is_gone_are_named)
{
    struct cluster cluster;
    struct cluster_job job;
    open_with_file(&cluster);
    run_first_stage(&cluster, &job, false);
    cluster_stop_server(&cluster, 1);
    check_lost(&cluster, &job, (const uint64_t[]){1, 3}, 2);
    cluster_end(&job);
    cluster_close(&cluster);
}

/* ---- stops ---- */

static atomic_uint n_told;

static void on_progress(void *context, double fraction, uint64_t rows, uint64_t bytes)
{
    (void)context;
    (void)bytes;
    bool is_good = fraction >= 0 && fraction <= 1 && rows < 1000000;
    atomic_fetch_add(&n_told, is_good ? 1 : 1000000);
}

static bool was_told(const struct fixture *f)
{
    (void)f;
    return atomic_load(&n_told) > 0;
}

/* Runs it until it has told of its progress, then stops it. */
static void check_stops(struct cluster *cluster, struct exec_task *task)
{
    struct fixture worker = {.set = cluster->workers[0].set};
    int64_t took_ms = 0;
    atomic_store(&n_told, 0);
    task->on_progress = on_progress;
    struct exec_outcome out = fixture_stop(&worker, "sql", task, STOP_CANCELED, was_told, &took_ms);
    CHECK(took_ms < 15000); /* it would take hours */
    CHECK(atomic_load(&n_told) < 1000000);
    CHECK_INT(out.output.kind, EXEC_OUTPUT_NONE);
    expect_failure(out, "stopped: canceled", false);
    CHECK_UINT(exchange_store_memory_bytes(cluster->workers[0].folder.store), 0);
}

TEST(a_long_query_is_over_soon_after_its_stop)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    /* All work is done before the first row comes. */
    struct exec_task task =
        task_with("{\"sql\":\"SELECT count(*) AS n FROM range(1000000000000) r(i) WHERE hash(i) % 7 = 3\"}");
    check_stops(&cluster, &task);
    /* Rows come, slowly. */
    task = task_with("{\"sql\":\"SELECT i FROM range(1000000000000) r(i) WHERE hash(i) % 10000000 = 3\"}");
    check_stops(&cluster, &task);
    cluster_close(&cluster);
}

TEST(a_query_that_takes_too_long_is_ended)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    struct fixture worker = {.set = cluster.workers[0].set};
    struct exec_task task =
        task_with("{\"sql\":\"SELECT count(*) AS n FROM range(1000000000000) r(i) WHERE hash(i) % 7 = 3\"}");
    task.timeout_ms = 300;
    int64_t start_ms = clock_mono_ms();
    expect_failure(fixture_run_task(&worker, "sql", &task), "timed out after 300 ms", false);
    CHECK(clock_mono_ms() - start_ms < 15000); /* not hours */
    cluster_close(&cluster);
}

TEST(a_task_whose_sources_do_not_answer_is_over_soon_after_its_stop)
{
    struct cluster cluster;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(address);
    char name[64];
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    /* Connections are made, and then nobody says a word. */
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(bind(silent, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_INT(listen(silent, 16), 0);
    CHECK_INT(getsockname(silent, (struct sockaddr *)&address, &n), 0);
    snprintf(name, sizeof(name), "127.0.0.1:%d", ntohs(address.sin_port));
    struct exec_partition partition = {.bytes = 1000, .rows = 10, .batches = 1, .checksum = 1};
    struct exec_source source = {.stage = 2,
                                 .attempt = 1,
                                 .worker_id = "worker-1",
                                 .address = name,
                                 .partitions = &partition,
                                 .n_partitions = 1};
    struct exec_task task =
        task_with("{\"stages\":[{\"id\":0,\"sql\":\"SELECT 1 AS k\",\"output\":{\"exchange\":\"gather\"}},"
                  "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT * FROM m\",\"output\":{\"exchange\":\"result\"}}]}");
    task.name = "s1";
    task.task = 0;
    task.sources = &source;
    task.n_sources = 1;
    check_stops(&cluster, &task);
    close(silent);
    cluster_close(&cluster);
}

struct planning {
    struct cluster *cluster;
    const char *inputs;
    struct exec_outcome out;
    atomic_bool has_ended;
};

static void *plan_in_background(void *argument)
{
    struct planning *planning = argument;
    struct fixture worker = {.set = planning->cluster->workers[0].set};
    planning->out = fixture_run(&worker, "sql", planning->inputs);
    atomic_store(&planning->has_ended, true);
    return NULL;
}

TEST(a_query_that_waits_for_the_planner_is_over_soon_after_its_stop)
{
    struct cluster cluster;
    char pipe[100];
    char inputs[300];
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    struct fixture worker = {.set = cluster.workers[0].set};
    snprintf(pipe, sizeof(pipe), "%s/pipe.csv", cluster.folder);
    CHECK_INT(mkfifo(pipe, 0600), 0);
    snprintf(inputs, sizeof(inputs), "{\"sql\":\"SELECT * FROM read_csv('%s')\"}", pipe);
    /* The planner reads a file that does not come. */
    struct planning first = {.cluster = &cluster, .inputs = inputs};
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, plan_in_background, &first), 0);
    int end = -1;
    while (end < 0) {
        end = open(pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* there is one who reads */
        pause_ms(1);
    }
    struct exec_task task = task_with("{\"sql\":\"SELECT 1 AS a\"}");
    check_stops(&cluster, &task);
    task.on_progress = NULL;
    /* Let the first one go, however often it looks. */
    while (!atomic_load(&first.has_ended)) {
        ssize_t n = end >= 0 ? write(end, "a,b\n1,2\n", 8) : 0;
        (void)n;
        if (end >= 0) {
            close(end);
        }
        pause_ms(1);
        end = open(pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    }
    if (end >= 0) {
        close(end);
    }
    CHECK_INT(pthread_join(thread, NULL), 0);
    exec_outcome_deinit(&first.out);
    /* And the planner serves the next. */
    struct exec_outcome out = fixture_run_task(&worker, "sql", &task);
    CHECK_STR(out.is_success ? NULL : out.message.data, NULL);
    exec_outcome_deinit(&out);
    cluster_close(&cluster);
}

/* ---- many at a time ---- */

static void *run_some(void *argument)
{
    struct cluster *cluster = argument;
    struct fixture worker = {.set = cluster->workers[0].set};
    uintptr_t n_wrong = 0;
    static atomic_uint n_tasks;
    for (int i = 0; i < 10; i++) {
        struct exec_task task = task_with(
            i % 2 == 0 ? "{\"sql\":\"SELECT sum(i) AS s FROM range(10000) r(i)\"}"
                       : "{\"stages\":[{\"id\":0,\"sql\":\"SELECT i FROM range(100) r(i)\",\"output\":"
                         "{\"exchange\":\"gather\"}},{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT * FROM m\","
                         "\"output\":{\"exchange\":\"result\"}}]}");
        task.name = i % 2 == 0 ? "plan" : "s0";
        task.task = 0;
        task.attempt = atomic_fetch_add(&n_tasks, 1) + 1;
        struct exec_outcome out = fixture_run_task(&worker, "sql", &task);
        n_wrong += out.is_success && out.rows == (i % 2 == 0 ? 1 : 100) ? 0 : 1;
        exec_outcome_deinit(&out);
    }
    return (void *)n_wrong;
}

TEST(many_queries_run_at_a_time)
{
    struct cluster cluster;
    pthread_t threads[6];
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    for (size_t i = 0; i < 6; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, run_some, &cluster), 0);
    }
    for (size_t i = 0; i < 6; i++) {
        void *n_wrong = NULL;
        CHECK_INT(pthread_join(threads[i], &n_wrong), 0);
        CHECK_UINT((uintptr_t)n_wrong, 0);
    }
    cluster_close(&cluster);
}

/* It would on every worker, and if each attempt counted against one, a few such queries would stop all of them. */
TEST(a_query_at_which_duckdb_itself_errs_fails_for_good_and_harms_no_other)
{
    static const char part[] = "INTERNAL Error: Failed to bind column reference";
    static const char hint[] = "this is a mistake in DuckDB";
    struct cluster cluster;
    struct buf inputs = {0};
    pthread_t other;
    void *n_wrong = NULL;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    cluster_sql(&cluster, "COPY (SELECT i FROM range(9) r(i)) TO '@/nine.parquet'");
    cluster_inputs(&cluster, "SELECT TRY(1 / (i - 3)), count(*) FROM '@/nine.parquet' GROUP BY ALL", "", &inputs);
    CHECK_INT(pthread_create(&other, NULL, run_some, &cluster), 0);
    for (int i = 0; i < 2; i++) {
        struct exec_outcome out = run_named(&cluster, "plan", 0, inputs.data);
        CHECK(strstr(out.message.data, hint) != NULL);
        CHECK(strstr(out.message.data, "Stack Trace") == NULL);
        expect_failed(out, part, true);
    }
    for (int i = 0; i < 4; i++) {
        struct exec_outcome out =
            run_named(&cluster, "s0", 0,
                      "{\"stages\":[{\"id\":0,\"sql\":\"SELECT TRY(1 / (i - 3)) AS k, count(*) AS n FROM range(9) r(i) "
                      "GROUP BY ALL\",\"output\":{\"exchange\":\"result\"}}]}");
        CHECK(strstr(out.message.data, hint) != NULL);
        expect_failed(out, part, true);
    }
    CHECK_INT(pthread_join(other, &n_wrong), 0);
    CHECK_UINT((uintptr_t)n_wrong, 0);
    buf_deinit(&inputs);
    cluster_close(&cluster);
}
