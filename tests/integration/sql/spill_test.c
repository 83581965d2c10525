/*
 * Joins and aggregates over four times the memory of all workers, in partitions that are as large as the memory of one. With
 * much less memory DuckDB cannot work, whatever it spills. Real processes, whose memory is measured, do the same in
 * tests/e2e/load-sql.test.js, for ./dev soak sql.
 */
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/check.h"
#include "exec/sql_cluster.h"
#include "test.h"

#define MEMORY_BYTES 80000000 /* of DuckDB in one worker */
#define ROW_BYTES 64          /* as DuckDB has them in memory */
#define ROWS (4 * CLUSTER_WORKERS * MEMORY_BYTES / ROW_BYTES)

#define FORCED "\"options\":{\"forced\":true,\"slots\":4,\"partitions\":8,\"broadcast_bytes\":0}"

/* Every row has its own key, so nothing can be left out before the exchange, and what is right follows from the rows. */
static const struct {
    const char *sql;
    const char *known;
} queries[] = {
    {"SELECT count(*) AS n, sum(c)::BIGINT AS c, max(s) AS s FROM "
     "(SELECT s, v, count(*) AS c FROM '@/rows.parquet' GROUP BY s, v)",
     "SELECT count(*) AS n, count(*) AS c, max(s) AS s FROM rows"},
    {"SELECT count(*) AS n, sum(hash(a.s, b.v) % 1000)::BIGINT AS h FROM '@/rows.parquet' a JOIN '@/rows.parquet' b "
     "ON a.k = b.k AND a.s = b.s",
     "SELECT count(*) AS n, sum(hash(s, v) % 1000)::BIGINT AS h FROM rows"},
};

/* Files that appear in the cluster's folder, where DuckDB has its blocks if they do not fit, are noted from now on. */
static int watch_folder(const struct cluster *cluster)
{
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(watch >= 0);
    CHECK(inotify_add_watch(watch, cluster->folder, IN_CREATE) >= 0);
    return watch;
}

/* How many of DuckDB's have appeared, also such as are gone by now. */
static uint32_t count_spilled(int watch)
{
    char events[16384];
    uint32_t n_files = 0;
    ssize_t n = 0;
    while ((n = read(watch, events, sizeof(events))) > 0) {
        for (const char *at = events; at < events + n;) {
            struct inotify_event event;
            memcpy(&event, at, sizeof(event));
            at += sizeof(event);
            n_files += event.len > 0 && strncmp(at, "duckdb_temp", strlen("duckdb_temp")) == 0 ? 1 : 0;
            at += event.len;
        }
    }
    return n_files;
}

static void compare(struct cluster *cluster, const char *sql, const char *known)
{
    struct cluster_job job;
    struct buf inputs = {0};
    struct buf difference = {0};
    struct table expected = {0};
    struct table actual = {0};
    struct error e = {0};
    cluster_begin(cluster, &job);
    cluster_inputs(cluster, sql, FORCED, &inputs);
    const struct exec_outcome *planned = cluster_plan(cluster, &job, inputs.data);
    CHECK_STR(planned->is_success ? NULL : planned->message.data, NULL);
    int watch = watch_folder(cluster);
    while (cluster_step(cluster, &job)) {
    }
    CHECK(count_spilled(watch) > 0); /* DuckDB's memory was too little for a task */
    close(watch);
    for (uint32_t i = 0; i < CLUSTER_WORKERS; i++) {
        CHECK(folder_files(cluster->workers[i].folder.shuffle) > 0); /* nor did that for rows between tasks do */
        exchange_store_end_job(cluster->workers[i].folder.store, job.id, false, EXCHANGE_ALL_NUMBERS);
    }
    cluster_result(cluster, &job, &actual);
    CHECK_ERR(table_append(&expected, cluster->connection, known, &e), ERR_OK);
    (void)table_equal(&expected, &actual, ORDER_IS_FREE, &difference);
    CHECK_STR(difference.n > 0 ? difference.data : "", "");
    table_deinit(&expected);
    table_deinit(&actual);
    buf_deinit(&inputs);
    buf_deinit(&difference);
    cluster_end(&job);
}

TEST(join_and_aggregate_of_four_times_the_memory_of_all_workers_finish_by_spilling)
{
    struct cluster cluster;
    char sql[300];
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000, .memory_bytes = MEMORY_BYTES});
    snprintf(sql, sizeof(sql),
             "COPY (SELECT i AS k, hash(i) AS v, md5(i::VARCHAR) AS s FROM range(%d) r(i)) TO '@/rows.parquet' "
             "(FORMAT parquet, ROW_GROUP_SIZE 20480); CREATE TEMP VIEW rows AS FROM '@/rows.parquet'",
             ROWS);
    cluster_sql(&cluster, sql);
    for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
        compare(&cluster, queries[i].sql, queries[i].known);
    }
    cluster_close(&cluster);
}
