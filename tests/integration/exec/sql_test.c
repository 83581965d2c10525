#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fixture.h"
#include "sql_cluster.h"

/* Two tables in several files with small row groups, so that even these few rows are many splits. */
static void open_with_data(struct cluster *cluster, const struct cluster_options *options)
{
    cluster_open(cluster, options);
    for (int i = 0; i < 3; i++) {
        char sql[600];
        snprintf(sql, sizeof(sql),
                 "COPY (SELECT i AS id, i %% 97 AS k, i * 0.25 AS v, 'name ' || (i %% 13) AS name, "
                 "CASE WHEN i %% 5 = 0 THEN NULL ELSE CAST(i %% 11 AS DECIMAL(9, 2)) END AS d "
                 "FROM range(%d, %d) r(i)) TO '@/facts%d.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)",
                 i * 10000, (i + 1) * 10000, i);
        cluster_sql(cluster, sql);
    }
    cluster_sql(cluster, "COPY (SELECT i AS k, 'group ' || (i % 7) AS label FROM range(90) r(i)) "
                         "TO '@/groups.parquet' (FORMAT parquet)");
    cluster_sql(cluster,
                "COPY (SELECT i AS id, i % 3 AS k FROM range(5000) r(i)) TO '@/more.csv' (FORMAT csv, HEADER)");
}

#define FORCED "\"options\":{\"slots\":4,\"partitions\":3,\"forced\":true,\"broadcast_bytes\":0}"
#define FORCED_BROADCAST                                                                                               \
    "\"options\":{\"slots\":4,\"partitions\":3,\"forced\":true,\"broadcast_bytes\":18446744073709551615}"

static const struct {
    const char *sql;
    enum table_order order;
} queries[] = {
    {"SELECT k, count(*) AS n, sum(v) AS s, avg(d) AS a, max(name) AS m FROM '@/facts*.parquet' GROUP BY k",
     ORDER_IS_FREE},
    {"SELECT count(*), sum(id), count(DISTINCT name) FROM '@/facts*.parquet' WHERE v > 100", ORDER_IS_FREE},
    {"SELECT g.label, sum(f.v) AS s FROM '@/facts*.parquet' f JOIN '@/groups.parquet' g USING (k) GROUP BY ALL "
     "ORDER BY s DESC, label",
     ORDER_MATTERS},
    {"SELECT f.id, g.label FROM '@/facts*.parquet' f LEFT JOIN '@/groups.parquet' g ON f.k = g.k WHERE f.id % 100 < 3",
     ORDER_IS_FREE},
    {"SELECT id, name, d FROM '@/facts*.parquet' ORDER BY name, d DESC NULLS LAST, id", ORDER_MATTERS},
    {"SELECT id, v FROM '@/facts*.parquet' ORDER BY v DESC LIMIT 17 OFFSET 3", ORDER_MATTERS},
    {"SELECT name, id, row_number() OVER (PARTITION BY name ORDER BY id) AS r FROM '@/facts*.parquet' QUALIFY r < 4",
     ORDER_IS_FREE},
    {"WITH a AS (SELECT k, sum(v) AS s FROM '@/facts*.parquet' GROUP BY k) "
     "SELECT x.k, x.s, y.s AS t FROM a x JOIN a y ON x.k + 1 = y.k",
     ORDER_IS_FREE},
    {"SELECT k, sum(v) AS s FROM '@/facts*.parquet' WHERE name = 'name 123' GROUP BY k", ORDER_IS_FREE},
    {"SELECT DISTINCT d, struct_pack(a := k, b := [name]) AS nested FROM '@/facts*.parquet' WHERE k < 3",
     ORDER_IS_FREE},
};

static void compare_all(const struct cluster_options *options, const char *members)
{
    struct cluster cluster;
    open_with_data(&cluster, options);
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        uint32_t n = cluster_compare(&cluster, queries[i].sql, members, queries[i].order, NULL);
        if (n <= 2) {
            print_error("in one piece: %s\n", queries[i].sql);
        }
        CHECK(n > 2); /* the planning and more than one stage: it was cut */
    }
    for (uint32_t i = 0; i < CLUSTER_WORKERS; i++) {
        CHECK(exchange_server_bytes(cluster.workers[i].server) > 0); /* rows went over the network both ways */
    }
    cluster_close(&cluster);
}

TEST(queries_that_run_in_stages_have_the_rows_of_one_duckdb)
{
    compare_all(&(struct cluster_options){.shuffle_bytes = 100000000}, FORCED);
}

TEST(queries_whose_small_sides_are_sent_to_all_have_the_rows_of_one_duckdb)
{
    compare_all(&(struct cluster_options){.shuffle_bytes = 100000000}, FORCED_BROADCAST);
}

TEST(queries_whose_outputs_all_go_to_files_have_the_rows_of_one_duckdb)
{
    compare_all(&(struct cluster_options){.shuffle_bytes = 0}, FORCED);
}

/* Each type that a column between two stages can have but ENUM, which results have as texts; with NULLs, the ends of its range, short texts and long ones. */
static const char *const type_expressions[] = {
    "CAST(id % 200 - 100 AS TINYINT)",
    "CAST(id - 15000 AS SMALLINT)",
    "CAST(id - 15000 AS INTEGER)",
    "id * 307445734561825 - 4611686018427387904",
    "CAST(id % 256 AS UTINYINT)",
    "CAST(id AS USMALLINT)",
    "CAST(id AS UINTEGER)",
    "CAST(id AS UBIGINT) + 18446744073709500000",
    "CAST(id AS HUGEINT) * 100000000000000000000",
    "CAST(id / 7 AS FLOAT)",
    "CASE id % 5 WHEN 1 THEN 'nan'::DOUBLE WHEN 2 THEN '-inf'::DOUBLE ELSE id / 3 END",
    "id % 2 = 0",
    "CAST(id % 100 AS DECIMAL(4, 1))",
    "CAST(id AS DECIMAL(9, 3)) - 20000",
    "CAST(id AS DECIMAL(18, 4)) * -1",
    "CAST(id AS DECIMAL(38, 10)) - 15000",
    "DATE '1970-01-01' - CAST(id AS INTEGER)",
    "CAST(to_seconds(id) + TIME '00:00:01' AS TIME)",
    "TIMESTAMP '1969-12-31 23:59:59.999999' + to_microseconds(id * 1000003)",
    "CAST(TIMESTAMP '2020-01-01' + to_seconds(id) AS TIMESTAMP_S)",
    "CAST(TIMESTAMP '2020-01-01' + to_seconds(id) AS TIMESTAMP_MS)",
    "make_timestamp_ns(id * 1000000007)",
    "CAST(TIMESTAMP '2020-01-01' + to_seconds(id) AS TIMESTAMPTZ)",
    "to_days(CAST(id AS INTEGER))",
    "substr('0123456789abcdefghijklmnopqrstuvwxyz', 1, id % 36) || id",
    "repeat('€', id % 30)",
    "encode(repeat(chr(CAST(id % 3 AS INTEGER)), id % 20))",
    "CAST('00000000-0000-0000-0000-' || lpad(CAST(id AS VARCHAR), 12, '0') AS UUID)",
    "[id, NULL, id + 1]",
    "struct_pack(a := name, b := d)",
    "MAP {name: id}",
    "CAST(CAST(id % 16 AS INTEGER) AS BIT)",
};

TEST(values_of_all_types_go_from_stage_to_stage)
{
    struct cluster cluster;
    open_with_data(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    for (size_t i = 0; i < sizeof(type_expressions) / sizeof(type_expressions[0]); i++) {
        char sql[500];
        snprintf(sql, sizeof(sql),
                 "SELECT DISTINCT id, CASE WHEN id %% 7 = 0 THEN NULL ELSE %s END AS t FROM '@/facts*.parquet'",
                 type_expressions[i]);
        uint32_t n = cluster_compare(&cluster, sql, FORCED, ORDER_IS_FREE, NULL);
        if (n <= 2) {
            print_error("in one piece: %s\n", sql);
        }
        CHECK(n > 2);
    }
    cluster_close(&cluster);
}

TEST(a_query_over_little_data_is_run_by_its_planning_task)
{
    struct cluster cluster;
    struct cluster_job job;
    struct table rows = {0};
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    cluster_begin(&cluster, &job);
    const struct exec_outcome *out = cluster_plan(&cluster, &job, "{\"sql\":\"SELECT 42 AS answer, 'x' AS t\"}");
    CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
    CHECK_INT(out->output.kind, EXEC_OUTPUT_RESULT);
    CHECK_UINT(out->output.rows, 1);
    CHECK_UINT(out->rows, 1);
    CHECK(out->output.ipc.n > 0);
    CHECK_UINT(out->bytes, out->output.ipc.n);
    CHECK_UINT(job.read->n_stages, 1);
    CHECK_UINT(job.read->first_job_stage, 1);
    CHECK(job.read->engine != NULL);
    cluster_result(&cluster, &job, &rows);
    CHECK_STR(rows.names[0], "answer");
    CHECK_STR(rows.rows[0][0], "42");
    CHECK_UINT(folder_files(cluster.workers[0].folder.results), 0);
    table_deinit(&rows);
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(parameters_and_named_tables_reach_the_query)
{
    struct cluster cluster;
    struct cluster_job job;
    struct table rows = {0};
    struct buf inputs = {0};
    open_with_data(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    static const char *const cases[] = {
        "\"params\":[7,\"group 3\"],\"tables\":[{\"name\":\"facts\",\"source\":\"@/facts*.parquet\",\"format\":\"\"},"
        "{\"name\":\"groups\",\"source\":\"@/groups.parquet\",\"format\":\"parquet\"}]",
        "\"params\":[7,\"group 3\"],\"tables\":[{\"name\":\"facts\",\"source\":\"@/facts*.parquet\"},"
        "{\"name\":\"groups\",\"source\":\"@/groups.parquet\"}]," FORCED,
    };
    for (size_t i = 0; i < 2; i++) {
        cluster_begin(&cluster, &job);
        buf_reset(&inputs);
        cluster_inputs(&cluster, "SELECT count(*) AS n FROM facts JOIN groups USING (k) WHERE k >= $1 AND label = $2",
                       cases[i], &inputs);
        const struct exec_outcome *out = cluster_plan(&cluster, &job, inputs.data);
        CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
        CHECK_INT(out->output.kind, i == 0 ? EXEC_OUTPUT_RESULT : EXEC_OUTPUT_NONE);
        while (out->output.kind == EXEC_OUTPUT_NONE && cluster_step(&cluster, &job)) {
        }
        cluster_result(&cluster, &job, &rows);
        CHECK_UINT(rows.n_rows, i + 1);
        CHECK_STR(rows.rows[i][0], "3711"); /* k is 10, 17, … 87: three times 310 rows and nine times 309 */
        cluster_end(&job);
    }
    buf_deinit(&inputs);
    table_deinit(&rows);
    cluster_close(&cluster);
}

TEST(csv_files_are_read_in_stages_and_at_once)
{
    struct cluster cluster;
    open_with_data(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    const char *sql =
        "SELECT c.k, count(*) AS n, sum(f.v) AS s FROM '@/more.csv' c JOIN '@/facts*.parquet' f USING (id) "
        "GROUP BY c.k ORDER BY 1";
    CHECK(cluster_compare(&cluster, sql, FORCED, ORDER_MATTERS, NULL) > 2);
    CHECK_UINT(cluster_compare(&cluster, sql, "", ORDER_MATTERS, NULL), 1);
    cluster_close(&cluster);
}

TEST(an_explained_query_is_planned_and_not_run)
{
    struct cluster cluster;
    struct cluster_job job;
    struct table rows = {0};
    struct buf inputs = {0};
    struct arena arena = {0};
    struct physical_plan *plan = NULL;
    struct error e = {0};
    open_with_data(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    cluster_begin(&cluster, &job);
    cluster_inputs(&cluster, "SELECT k, 'it''s' AS t, sum(v) FROM '@/facts*.parquet' GROUP BY k",
                   "\"explain\":true," FORCED, &inputs);
    const struct exec_outcome *out = cluster_plan(&cluster, &job, inputs.data);
    CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
    CHECK_UINT(out->plan.n, 0);
    cluster_result(&cluster, &job, &rows);
    CHECK_UINT(rows.n_rows, 1);
    CHECK_STR(rows.names[0], "explain");
    CHECK_STR(rows.names[1], "plan");
    CHECK_STR(rows.types[0], "VARCHAR");
    CHECK_STR(rows.types[1], "VARCHAR");
    CHECK(strstr(rows.rows[0][0], "3 partitions") != NULL);
    CHECK_ERR(physical_read(rows.rows[0][1], strlen(rows.rows[0][1]), &arena, &plan, NULL, &e), ERR_OK);
    CHECK_UINT(plan->n_stages, 2);
    CHECK(strstr(plan->stages[0].sql, "sum") != NULL);
    arena_deinit(&arena);
    buf_deinit(&inputs);
    table_deinit(&rows);
    cluster_end(&job);
    cluster_close(&cluster);
}

/* How many stages the plan has at first and in the end; the rows are compared as well. */
static void run_with_choice(struct cluster *cluster, const char *sql, uint32_t *out_before, uint32_t *out_after)
{
    struct cluster_job job;
    struct buf inputs = {0};
    uint32_t n_refined = 0;
    const char *members = "\"options\":{\"slots\":4,\"partitions\":3,\"forced\":true,\"broadcast_bytes\":100000}";
    cluster_compare(cluster, sql, members, ORDER_IS_FREE, &n_refined);
    CHECK_UINT(n_refined, 1);
    cluster_begin(cluster, &job);
    cluster_inputs(cluster, sql, members, &inputs);
    const struct exec_outcome *out = cluster_plan(cluster, &job, inputs.data);
    CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
    *out_before = job.read->n_stages;
    CHECK(cluster_step(cluster, &job));
    *out_after = job.read->n_stages;
    CHECK_UINT(job.read->first_job_stage, job.n_stages);
    buf_deinit(&inputs);
    cluster_end(&job);
}

TEST(a_join_whose_small_side_turns_out_small_is_planned_anew)
{
    struct cluster cluster;
    uint32_t before = 0;
    uint32_t after = 0;
    open_with_data(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    run_with_choice(&cluster,
                    "SELECT f.id, g.name FROM '@/facts*.parquet' f JOIN (SELECT id + 1 AS id, name FROM "
                    "'@/facts*.parquet' WHERE name LIKE '%e 12' AND k < 4) g ON f.id = g.id",
                    &before, &after);
    CHECK(after < before); /* the large side is read where it is joined */
    run_with_choice(&cluster,
                    "SELECT f.id, g.name FROM '@/facts*.parquet' f JOIN (SELECT id + 1 AS id, name FROM "
                    "'@/facts*.parquet' WHERE name LIKE '%n%' AND k >= 0) g ON f.id = g.id",
                    &before, &after);
    CHECK_UINT(after, before); /* both sides are spread by their keys */
    cluster_close(&cluster);
}

/* How many tasks aggregate three partitions, whose sizes are known by then. */
static uint32_t count_reduce_tasks(struct cluster *cluster, const char *options)
{
    struct cluster_job job;
    struct buf inputs = {0};
    struct buf members = {0};
    const char *sql = "SELECT -id AS id, count(*) AS n, max(name) AS m FROM '@/facts*.parquet' GROUP BY 1 ORDER BY 1 "
                      "LIMIT 4000"; /* rows of the ids themselves would be together */
    buf_format(&members, "\"options\":{\"slots\":4,\"partitions\":3,\"forced\":true,\"tail_bytes\":1%s}", options);
    cluster_compare(cluster, sql, members.data, ORDER_IS_FREE, &(uint32_t){0});
    cluster_begin(cluster, &job);
    cluster_inputs(cluster, sql, members.data, &inputs);
    const struct exec_outcome *out = cluster_plan(cluster, &job, inputs.data);
    CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
    CHECK_UINT(physical_tasks(job.read, 1), 3);
    CHECK(cluster_step(cluster, &job));
    CHECK_UINT(job.n_refined, 1);
    uint32_t n = physical_tasks(job.read, 1);
    buf_deinit(&inputs);
    buf_deinit(&members);
    cluster_end(&job);
    return n;
}

TEST(partitions_are_put_together_by_the_size_that_the_submission_says)
{
    struct cluster cluster;
    open_with_data(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    CHECK_UINT(count_reduce_tasks(&cluster, ""), 1);
    CHECK_UINT(count_reduce_tasks(&cluster, ",\"partition_bytes\":1"), 3);
    CHECK_UINT(count_reduce_tasks(&cluster, ",\"partition_bytes\":1000000000"), 1);
    cluster_close(&cluster);
}

/* One stage with an operator, whose rows are spread by a column that it has changed. */
static const char operator_plan[] =
    "{\"stages\":["
    "{\"id\":4,\"sql\":\"SELECT i AS k, 'x' || i AS t FROM range(10000) r(i)\","
    " \"custom\":{\"op\":\"add_five\",\"config\":{\"column\":\"k\"}},"
    " \"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":3}},"
    "{\"id\":7,\"inputs\":{\"m\":4},\"sql\":\"SELECT min(k) AS low, max(k) AS high, count(*) AS n, "
    "count(DISTINCT (hash(k) >> 32) % 3) AS places FROM m\",\"output\":{\"exchange\":\"gather\"}},"
    "{\"id\":9,\"inputs\":{\"p\":7},\"sql\":\"SELECT min(low) AS low, max(high) AS high, sum(n) AS n, "
    "max(places) AS places FROM p\",\"custom\":{\"op\":\"add_five\",\"config\":{\"column\":\"low\"}},"
    "\"output\":{\"exchange\":\"result\"}}]}";

TEST(operators_run_after_the_sql_and_before_the_exchange)
{
    struct cluster cluster;
    struct cluster_job job;
    struct table rows = {0};
    char plugin[600];
    plugin_path("add_five", plugin, sizeof(plugin));
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000, .plugin = plugin});
    cluster_begin(&cluster, &job);
    cluster_use_plan(&job, operator_plan);
    CHECK(cluster_step(&cluster, &job));
    CHECK_UINT(job.stages[0].outputs[0].outcome.rows, 10000);
    CHECK_UINT(job.stages[0].outputs[0].outcome.output.n_partitions, 3);
    cluster_result(&cluster, &job, &rows);
    CHECK_STR(rows.rows[0][0], "10"); /* 0 + 5 + 5 */
    CHECK_STR(rows.rows[0][1], "10004");
    CHECK_STR(rows.rows[0][2], "10000");
    CHECK_STR(rows.rows[0][3], "1"); /* each partition has the rows of one hash only */
    table_deinit(&rows);
    cluster_end(&job);
    cluster_close(&cluster);
}

/* A result of about so many bytes in one column. Returns how large it is, and whether it came inside the outcome. */
static uint64_t run_large(struct cluster *cluster, uint64_t n, bool *out_is_inline)
{
    struct cluster_job job;
    struct table rows = {0};
    char inputs[200];
    char digits[32];
    snprintf(inputs, sizeof(inputs),
             "{\"sql\":\"SELECT t, length(t) AS n FROM (SELECT repeat('x', %" PRIu64 ") AS t)\"}", n);
    cluster_begin(cluster, &job);
    const struct exec_outcome *out = cluster_plan(cluster, &job, inputs);
    CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
    uint64_t bytes = out->output.bytes;
    *out_is_inline = out->output.ipc.n > 0;
    cluster_result(cluster, &job, &rows);
    snprintf(digits, sizeof(digits), "%" PRIu64, n);
    CHECK_STR(rows.rows[0][1], digits);
    table_deinit(&rows);
    cluster_end(&job);
    return bytes;
}

TEST(a_result_travels_with_the_report_up_to_the_limit)
{
    struct cluster cluster;
    bool is_inline = false;
    uint32_t n_inline = 0;
    uint32_t n_files = 0;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    uint64_t around = run_large(&cluster, 1000000, &is_inline) - 1000000;
    CHECK(is_inline);
    uint64_t middle = LIMIT_INLINE_RESULT_BYTES - around;
    for (uint64_t n = middle - 128; n <= middle + 128; n += 16) {
        uint64_t bytes = run_large(&cluster, n, &is_inline);
        CHECK_INT(is_inline, bytes <= LIMIT_INLINE_RESULT_BYTES);
        n_inline += is_inline ? 1 : 0;
        n_files += is_inline ? 0 : 1;
        CHECK_UINT(folder_files(cluster.workers[0].folder.results), n_files);
    }
    CHECK(n_inline > 0);
    CHECK(n_files > 0);
    CHECK_UINT(exchange_store_memory_bytes(cluster.workers[0].folder.store), 0);
    cluster_close(&cluster);
}

TEST(the_tasks_of_a_result_share_the_limit)
{
    struct cluster cluster;
    struct cluster_job job;
    struct table rows = {0};
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    cluster_begin(&cluster, &job);
    cluster_use_plan(&job,
                     "{\"stages\":[{\"id\":0,\"sql\":\"SELECT i AS k FROM range(100) r(i)\",\"output\":"
                     "{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":4}},"
                     "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT repeat('x', 200000 + {{task}} * 40000) AS t, "
                     "{{task}} AS task FROM (SELECT count(*) FROM m)\",\"output\":{\"exchange\":\"result\"}}]}");
    CHECK(cluster_step(&cluster, &job));
    for (uint32_t i = 0; i < 4; i++) {
        const struct exec_output *output = &job.stages[1].outputs[i].outcome.output;
        CHECK_INT(output->ipc.n > 0, i < 2); /* a quarter of a mebibyte for each: 200 and 240 kB fit */
    }
    CHECK_UINT(folder_files(cluster.workers[0].folder.results), 1);
    CHECK_UINT(folder_files(cluster.workers[1].folder.results), 1);
    cluster_result(&cluster, &job, &rows);
    CHECK_UINT(rows.n_rows, 4);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(strtol(rows.rows[i][1], NULL, 10), i); /* in the order of the tasks */
    }
    table_deinit(&rows);
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(a_task_reads_the_partitions_of_its_group_only)
{
    struct cluster cluster;
    struct cluster_job job;
    struct table rows = {0};
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    cluster_begin(&cluster, &job);
    cluster_use_plan(&job, "{\"stages\":[{\"id\":0,\"sql\":\"SELECT i AS k FROM range(1000) r(i)\",\"output\":"
                           "{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":3}},"
                           "{\"id\":1,\"inputs\":{\"m\":0},\"groups\":[[0,1],[2,2]],\"sql\":\"SELECT count(*) AS n, "
                           "min((hash(k) >> 32) % 3) AS low, max((hash(k) >> 32) % 3) AS high FROM m\","
                           "\"output\":{\"exchange\":\"result\"}}]}");
    CHECK(cluster_step(&cluster, &job));
    cluster_result(&cluster, &job, &rows);
    CHECK_UINT(rows.n_rows, 2);
    CHECK_INT(strtol(rows.rows[0][0], NULL, 10) + strtol(rows.rows[1][0], NULL, 10), 1000);
    CHECK_STR(rows.rows[0][1], "0");
    CHECK_STR(rows.rows[0][2], "1");
    CHECK_STR(rows.rows[1][1], "2");
    CHECK_STR(rows.rows[1][2], "2");
    table_deinit(&rows);
    cluster_end(&job);
    cluster_close(&cluster);
}

/* Runs a query with an exchange by hash. Returns what servers have sent and others taken since the cluster was opened. */
static uint64_t count_sent_with(struct cluster *cluster, uint32_t n_workers)
{
    struct cluster_job job;
    struct table rows = {0};
    uint64_t bytes = 0;
    cluster_begin(cluster, &job);
    job.n_workers = n_workers;
    cluster_use_plan(&job, "{\"stages\":[{\"id\":0,\"sql\":\"SELECT i AS k FROM range(1000) r(i)\",\"output\":"
                           "{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":4}},"
                           "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT count(*) AS n, sum(k) AS s FROM m\","
                           "\"output\":{\"exchange\":\"gather\"}},"
                           "{\"id\":2,\"inputs\":{\"p\":1},\"sql\":\"SELECT sum(n) AS n, sum(s) AS s FROM p\","
                           "\"output\":{\"exchange\":\"result\"}}]}");
    while (cluster_step(cluster, &job)) {
    }
    cluster_result(cluster, &job, &rows);
    CHECK_UINT(rows.n_rows, 1);
    CHECK_STR(rows.rows[0][0], "1000");
    CHECK_STR(rows.rows[0][1], "499500");
    for (uint32_t i = 0; i < CLUSTER_WORKERS; i++) {
        bytes += exchange_server_bytes(cluster->workers[i].server);
        bytes += exchange_channels_bytes(cluster->workers[i].channels);
    }
    table_deinit(&rows);
    cluster_end(&job);
    return bytes;
}

TEST(what_a_worker_has_itself_is_read_without_a_connection)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    CHECK_UINT(count_sent_with(&cluster, 1), 0);
    CHECK(count_sent_with(&cluster, CLUSTER_WORKERS) > 0);
    cluster_close(&cluster);
}

/* A plan that does not say so: the stream is opened a second time, which is an error, and the task runs again with a table. */
TEST(an_input_that_is_read_twice_is_kept)
{
    struct cluster cluster;
    struct cluster_job job;
    struct table rows = {0};
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    cluster_begin(&cluster, &job);
    cluster_use_plan(&job,
                     "{\"stages\":[{\"id\":0,\"sql\":\"SELECT i AS k FROM range(1000) r(i)\",\"output\":"
                     "{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":3}},"
                     "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT count(*) AS n FROM m a JOIN m b USING (k)\","
                     "\"output\":{\"exchange\":\"result\"}}]}");
    CHECK(cluster_step(&cluster, &job));
    cluster_result(&cluster, &job, &rows);
    int64_t n = 0;
    for (uint64_t i = 0; i < rows.n_rows; i++) {
        n += strtol(rows.rows[i][0], NULL, 10);
    }
    CHECK_INT(n, 1000);
    table_deinit(&rows);
    cluster_end(&job);
    cluster_close(&cluster);
}

/* Rows of the last statement cannot be poured, and what comes before it cannot be run twice. */
TEST(statements_before_the_last_one_run_once)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    cluster_check_plan(
        &cluster,
        "{\"stages\":[{\"id\":0,\"sql\":\"SELECT i AS k FROM range(100) r(i)\",\"output\":"
        "{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":4}},"
        "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"CREATE TEMP TABLE t AS SELECT max(k) AS a FROM m; "
        "EXPLAIN SELECT * FROM t;\",\"output\":{\"exchange\":\"gather\"}},{\"id\":2,\"inputs\":{\"e\":1},"
        "\"sql\":\"SELECT count(*) AS n FROM e\",\"output\":{\"exchange\":\"result\"}}]}",
        "4");
    cluster_close(&cluster);
}

/* Whatever whoever looked at a plan takes its SQL for: what it changes would be changed for all that the worker runs. */
TEST(what_a_plan_would_change_for_others_is_refused_by_the_task)
{
    static const char *const outputs[] = {
        "{\"exchange\":\"result\"}", "{\"exchange\":\"gather\"}},{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"FROM m\","
                                     "\"output\":{\"exchange\":\"result\"}"};
    static const char *const hostile[] = {
        "CREATE TEMP VIEW v AS SELECT 1 AS a$$q$; CREATE OR REPLACE MACRO memory.main.lower(x) AS 'pwned'; "
        "CREATE TEMP VIEW w AS SELECT 1 AS x$q$; SELECT 1 AS c0",
        "CREATE TEMP VIEW v AS SELECT e'a'\\n'\\\\''; CREATE OR REPLACE MACRO memory.main.lower(x) AS 'pwned'; "
        "SELECT e'\\\\'' AS c0",
        "CREATE OR REPLACE MACRO lower(x) AS 'pwned'; SELECT 1 AS c0",
        "SELECT 1 AS c0; CREATE OR REPLACE MACRO lower(x) AS 'pwned'",
    };
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    for (size_t i = 0; i < ARRAY_LEN(hostile) * ARRAY_LEN(outputs); i++) {
        struct cluster_job job;
        struct buf plan = {0};
        struct buf failure = {0};
        buf_format(&plan, "{\"stages\":[{\"id\":0,\"sql\":\"%s\",\"output\":%s}]}", hostile[i / ARRAY_LEN(outputs)],
                   outputs[i % ARRAY_LEN(outputs)]);
        cluster_begin(&cluster, &job);
        job.failure = &failure;
        cluster_use_plan(&job, plan.data);
        CHECK(!cluster_step(&cluster, &job));
        CHECK(failure.n > 0);
        cluster_end(&job);
        buf_deinit(&plan);
        buf_deinit(&failure);
    }
    for (int i = 0; i < CLUSTER_WORKERS; i++) {
        cluster_check_plan(&cluster,
                           "{\"stages\":[{\"id\":0,\"sql\":\"SELECT DISTINCT lower(s) FROM (VALUES ('A')) t(s)\","
                           "\"output\":{\"exchange\":\"result\"}}]}",
                           "a");
    }
    cluster_close(&cluster);
}

/* DuckDB's own error ends the whole instance; it is run again in one without the optimizer that errs. */
TEST(a_query_that_an_optimizer_breaks_is_run_without_it)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    for (int i = 0; i < 2; i++) {
        cluster_check_plan(
            &cluster,
            "{\"stages\":[{\"id\":0,\"sql\":\"SELECT i % 50 AS c0, i AS c1 FROM range(1000) r(i)\",\"output\":"
            "{\"exchange\":\"gather\"}},{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT c0 FROM (SELECT c0, c1, "
            "row_number() OVER (PARTITION BY c0 ORDER BY c1) AS r FROM m WHERE c0 BETWEEN 5 AND 10) WHERE r = 1\","
            "\"output\":{\"exchange\":\"gather\"}},{\"id\":2,\"inputs\":{\"e\":1},"
            "\"sql\":\"SELECT sum(c0) AS n FROM e\",\"output\":{\"exchange\":\"result\"}}]}",
            "45");
    }
    cluster_close(&cluster);
}
