#include "pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "query/data.h"
#include "test.h"

#define PLENTY_BYTES (UINT64_C(1) << 30)
#define SLOTS 2
#define UGLY_ROWS 6000

static void write_tables(struct buf *out)
{
    const struct test_data *data = test_data();
    buf_text(out, "\"tables\":[");
    for (uint32_t i = 0; i < data->n_tables; i++) {
        buf_text(out, i == 0 ? "{\"name\":" : ",{\"name\":");
        json_write_text(out, data->tables[i].name);
        buf_text(out, ",\"source\":");
        json_write_text(out, data->tables[i].source);
        buf_char(out, '}');
    }
    buf_char(out, ']');
}

void pair_open(struct pair *pair)
{
    *pair = (struct pair){0};
    test_data_rows(UGLY_ROWS);
    write_tables(&pair->tables);
    cluster_open(&pair->clusters[0], &(struct cluster_options){.shuffle_bytes = PLENTY_BYTES});
    cluster_open(&pair->clusters[1], &(struct cluster_options){.shuffle_bytes = 0});
    test_create_views(pair->clusters[0].connection);
}

void pair_close(struct pair *pair)
{
    cluster_close(&pair->clusters[0]);
    cluster_close(&pair->clusters[1]);
    buf_deinit(&pair->tables);
}

struct pair_way pair_way_of(uint32_t number)
{
    return (struct pair_way){
        .is_broadcast = (number & 1) != 0, .partitions = (number & 2) != 0 ? 5 : 2, .is_spilled = (number & 4) != 0};
}

const char *pair_way_name(uint32_t number)
{
    static const char *const names[PAIR_WAYS] = {
        "no broadcast, 2 partitions, in memory", "all broadcast, 2 partitions, in memory",
        "no broadcast, 5 partitions, in memory", "all broadcast, 5 partitions, in memory",
        "no broadcast, 2 partitions, in files",  "all broadcast, 2 partitions, in files",
        "no broadcast, 5 partitions, in files",  "all broadcast, 5 partitions, in files",
    };
    return names[number];
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
    buf_text(out_sql, sql);
    enum err err = table_append(out, connection, sql, e);
    if (err == ERR_OK && !is_plain(out)) {
        table_deinit(out);
        buf_reset(out_sql);
        buf_format(out_sql, "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (%s)", sql);
        err = table_append(out, connection, out_sql->data, e);
    }
    return err;
}

static void write_inputs(const struct pair *pair, const char *sql, struct pair_way way, struct buf *out)
{
    buf_text(out, "{\"sql\":");
    json_write_text(out, sql);
    buf_format(out,
               ",%s,\"options\":{\"forced\":true,\"slots\":%d,\"partitions\":%" PRIu32 ",\"broadcast_bytes\":%" PRIu64
               "}}",
               pair->tables.data, SLOTS, way.partitions, way.is_broadcast ? UINT64_MAX : 0);
}

bool pair_compare(struct pair *pair, const char *sql, uint32_t way, const struct table *expected,
                  enum table_order order, uint32_t *out_stages, struct buf *why)
{
    struct cluster *cluster = &pair->clusters[pair_way_of(way).is_spilled ? 1 : 0];
    struct cluster_job job;
    struct table actual = {0};
    struct buf inputs = {0};
    bool is_same = false;
    cluster_begin(cluster, &job);
    job.failure = why;
    write_inputs(pair, sql, pair_way_of(way), &inputs);
    const struct exec_outcome *planned = cluster_plan(cluster, &job, inputs.data);
    if (!planned->is_success) {
        buf_text(why, planned->message.data);
    }
    while (planned->is_success && planned->output.kind == EXEC_OUTPUT_NONE && cluster_step(cluster, &job)) {
    }
    if (why->n == 0) {
        cluster_result(cluster, &job, &actual);
        is_same = table_equal(expected, &actual, order, why);
    }
    *out_stages = job.n_stages;
    for (uint32_t i = 0; i < CLUSTER_WORKERS; i++) {
        exchange_store_drop_job(cluster->workers[i].folder.store, job.id);
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
