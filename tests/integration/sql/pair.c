#include "pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "query/data.h"
#include "query/order.h"
#include "test.h"

#define PLENTY_BYTES (UINT64_C(1) << 30)
#define SLOTS 2
#define UGLY_ROWS 6000

/*
 * Tables that are written anew, in three files each, so that these have more than the 4 MiB from which on a task is not
 * enough. Rows stay as they are, but for a longer text that few queries look at.
 */
static const struct {
    const char *name;
    const char *rows;
    const char *key;
    const char *order;
    uint32_t row_group;
} large[] = {
    {"lineitem", "FROM lineitem", "l_orderkey", "l_orderkey, l_linenumber", 4096},
    {"facts",
     "SELECT * REPLACE (json_merge_patch(js, json_object('rest', rpad(id::VARCHAR, 700, '.'))) AS js) FROM facts", "id",
     "id", 2048},
};

/* As views of the connection that results are compared with. */
static void write_large(struct cluster *cluster)
{
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        char sql[600];
        for (int k = 0; k < 3; k++) {
            snprintf(sql, sizeof(sql),
                     "COPY (%s WHERE %s %% 3 = %d ORDER BY %s) TO '@/%s-%d.parquet' "
                     "(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE %" PRIu32 ")",
                     large[i].rows, large[i].key, k, large[i].order, large[i].name, k, large[i].row_group);
            cluster_sql(cluster, sql);
        }
        snprintf(sql, sizeof(sql), "CREATE OR REPLACE TEMP VIEW %s AS FROM read_parquet('@/%s-*.parquet')",
                 large[i].name, large[i].name);
        cluster_sql(cluster, sql);
    }
}

static bool is_large(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        if (strcmp(large[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void list_tables(struct pair *pair)
{
    const struct test_data *data = test_data();
    const char *folder = pair->clusters[0].folder;
    pair->known = arena_copy(&pair->arena, data->tables, data->n_tables * sizeof(*pair->known));
    for (uint32_t i = 0; i < data->n_tables; i++) {
        const char *name = data->tables[i].name;
        if (is_large(name)) {
            pair->known[i].source = arena_format(&pair->arena, "%s/%s-*.parquet", folder, name);
        }
    }
}

static void write_tables(struct pair *pair)
{
    struct buf *out = &pair->tables;
    buf_text(out, "\"tables\":[");
    for (uint32_t i = 0; i < test_data()->n_tables; i++) {
        buf_text(out, i == 0 ? "{\"name\":" : ",{\"name\":");
        json_write_text(out, pair->known[i].name);
        buf_text(out, ",\"source\":");
        json_write_text(out, pair->known[i].source);
        buf_char(out, '}');
    }
    buf_char(out, ']');
}

void pair_open(struct pair *pair)
{
    struct error e = {0};
    *pair = (struct pair){0};
    test_data_rows(UGLY_ROWS);
    cluster_open(&pair->clusters[0], &(struct cluster_options){.shuffle_bytes = PLENTY_BYTES});
    cluster_open(&pair->clusters[1], &(struct cluster_options){.shuffle_bytes = 0});
    test_create_views(pair->clusters[0].connection);
    write_large(&pair->clusters[0]);
    list_tables(pair);
    write_tables(pair);
    CHECK_ERR(planner_open(&pair->planner, &e), ERR_OK);
}

void pair_close(struct pair *pair)
{
    cluster_close(&pair->clusters[0]);
    cluster_close(&pair->clusters[1]);
    planner_close(pair->planner);
    buf_deinit(&pair->tables);
    arena_deinit(&pair->arena);
}

#define NONE ",\"forced\":true,\"broadcast_bytes\":0"
#define ALL ",\"forced\":true,\"broadcast_bytes\":18446744073709551615"
#define IN_USE ",\"single_task_bytes\":0"

const struct pair_way *pair_way_of(uint32_t number)
{
    static const struct pair_way ways[PAIR_WAYS] = {
        {"no broadcast, 2 partitions, in memory", true, false, NONE ",\"partitions\":2"},
        {"all broadcast, 2 partitions, in memory", true, false, ALL ",\"partitions\":2"},
        {"no broadcast, 5 partitions, in memory", true, false, NONE ",\"partitions\":5"},
        {"all broadcast, 5 partitions, in memory", true, false, ALL ",\"partitions\":5"},
        {"no broadcast, 2 partitions, in files", true, true, NONE ",\"partitions\":2"},
        {"all broadcast, 2 partitions, in files", true, true, ALL ",\"partitions\":2"},
        {"no broadcast, 5 partitions, in files", true, true, NONE ",\"partitions\":5"},
        {"all broadcast, 5 partitions, in files", true, true, ALL ",\"partitions\":5"},
        {"as in use, in memory", false, false, IN_USE},
        {"as in use, little broadcast, in files", false, true, IN_USE ",\"broadcast_bytes\":65536"},
    };
    return &ways[number];
}

/* Whether there is a STRUCT without names in it: "STRUCT(INTEGER, …" and not "STRUCT(a INTEGER, …". */
static bool has_unnamed_struct(const char *type)
{
    static const char start[] = "STRUCT(";
    for (const char *p = type; (p = strstr(p, start)) != NULL;) {
        p += strlen(start);
        if (p[strcspn(p, " ,()")] != ' ') {
            return true;
        }
    }
    return false;
}

/* Whether the result, as Arrow, can become a table with the same names and types. */
static bool is_plain(const struct table *table)
{
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (strstr(table->types[i], "ENUM(") != NULL || has_unnamed_struct(table->types[i])) {
            return false;
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcasecmp(table->names[i], table->names[k]) == 0) {
                return false;
            }
        }
    }
    return true;
}

enum err pair_whole(struct pair *pair, const char *sql, struct table *out, struct buf *out_sql, struct error *e)
{
    struct duck_connection *connection = pair->clusters[0].connection;
    struct error ignored;
    buf_text(out_sql, sql);
    /* DuckDB 1.5.6 may take the filter of a join below a LIMIT or DISTINCT ON (run_whole of query/runner.c says more). */
    enum err err = duck_run(connection, "SET disabled_optimizers = 'join_filter_pushdown'", e);
    if (err == ERR_OK) {
        err = table_append(out, connection, sql, e);
    }
    if (err == ERR_OK && !is_plain(out)) {
        table_deinit(out);
        buf_reset(out_sql);
        buf_format(out_sql, "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (%s)", sql);
        err = table_append(out, connection, out_sql->data, e);
    }
    CHECK_ERR(duck_run(connection, "RESET disabled_optimizers", &ignored), ERR_OK);
    return err;
}

enum table_order pair_order(struct pair *pair, const char *sql)
{
    struct arena arena = {0};
    struct plan *plan = NULL;
    struct error e = {0};
    struct planner_request request = {.sql = sql, .tables = pair->known, .n_tables = test_data()->n_tables};
    bool is_ordered =
        query_plan_request(pair->planner, &request, &arena, &plan, &e) == ERR_OK && order_is_given(plan->root);
    arena_deinit(&arena);
    return is_ordered ? ORDER_MATTERS : ORDER_IS_FREE;
}

static void write_inputs(const struct pair *pair, const char *sql, const struct pair_way *way, struct buf *out)
{
    buf_text(out, "{\"sql\":");
    json_write_text(out, sql);
    buf_format(out, ",%s,\"options\":{\"slots\":%d%s}}", pair->tables.data, SLOTS, way->options);
}

static struct pair_run describe(const struct cluster_job *job)
{
    struct pair_run run = {.n_stages = job->n_stages, .has_tail = job->answered_by > 0};
    for (uint32_t i = 0; i < job->n_stages; i++) {
        const struct cluster_stage *stage = &job->stages[i];
        run.n_tasks_max = stage->n_tasks > run.n_tasks_max ? stage->n_tasks : run.n_tasks_max;
        for (uint32_t k = 0; k < stage->n_tasks; k++) {
            const struct exec_outcome *outcome = &stage->outputs[k].outcome;
            run.moved_rows += outcome->output.kind == EXEC_OUTPUT_MAP ? outcome->rows : 0;
        }
    }
    return run;
}

bool pair_compare(struct pair *pair, const char *sql, const struct pair_way *way, const struct table *expected,
                  enum table_order order, struct pair_run *out_run, struct buf *why)
{
    struct cluster *cluster = &pair->clusters[way->is_spilled ? 1 : 0];
    struct cluster_job job;
    struct table actual = {0};
    struct buf inputs = {0};
    bool is_same = false;
    cluster_begin(cluster, &job);
    job.failure = why;
    job.mistake = pair->mistake;
    write_inputs(pair, sql, way, &inputs);
    const struct exec_outcome *planned = cluster_plan(cluster, &job, inputs.data);
    if (!planned->is_success) {
        buf_text(why, planned->message.data);
    }
    while (planned->is_success && planned->output.kind == EXEC_OUTPUT_NONE && cluster_step(cluster, &job)) {
    }
    if (why->n == 0) {
        cluster_result(cluster, &job, &actual);
    }
    *out_run = describe(&job);
    out_run->has_failed = why->n > 0;
    if (!out_run->has_failed) {
        is_same = table_equal(expected, &actual, order, why);
    }
    for (uint32_t i = 0; i < CLUSTER_WORKERS; i++) {
        out_run->n_files += folder_files(cluster->workers[i].folder.shuffle);
        exchange_store_end_job(cluster->workers[i].folder.store, job.id, false, EXCHANGE_ALL_NUMBERS);
    }
    cluster_end(&job);
    table_deinit(&actual);
    buf_deinit(&inputs);
    return is_same;
}

uint64_t pair_number(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);
    return value == NULL ? otherwise : strtoull(value, NULL, 10);
}
