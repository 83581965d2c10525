/*
 * LIMIT and DISTINCT ON below joins, where DuckDB's filters of joins would change which rows these take (join_filter.h).
 *
 * What is compared with is written down here: one DuckDB as it is has wrong rows, too. Before `numbers` is read, groups have
 * to be counted, so that the join has its filter ready by then, each time; and its keys lie too far apart for DuckDB to
 * squeeze them, through which no filter would find its way.
 */
#include "test.h"

#include <string.h>

#include "base/check.h"
#include "fixture.h"
#include "sql_cluster.h"

/* Of the two keys that are looked for, only the first is that of a row with the least value. */
static void open_with_data(struct cluster *cluster)
{
    cluster_open(cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    cluster_sql(cluster, "COPY (SELECT i * 1000000007 AS k, i % 100 AS g, "
                         "CASE WHEN i = 15000 THEN -1 ELSE (i * 7919) % 100003 END AS v "
                         "FROM range(40000) r(i)) TO '@/numbers.parquet' (FORMAT parquet, ROW_GROUP_SIZE 10240)");
    cluster_sql(cluster, "COPY (SELECT i * 1000000007 AS k FROM (VALUES (15000::BIGINT), (15037)) w(i)) "
                         "TO '@/wanted.parquet' (FORMAT parquet)");
}

#define GROUPS "(SELECT i % 100 AS g FROM range(50000) r(i) GROUP BY 1 HAVING count(*) > 0)"
#define NUMBERS "(SELECT n.* FROM '@/numbers.parquet' n JOIN " GROUPS " d ON n.g = d.g)"
#define LEAST "(SELECT * FROM " NUMBERS " ORDER BY v LIMIT 100)"
#define MANY "(SELECT * FROM " NUMBERS " ORDER BY v LIMIT 9000)" /* too many for DuckDB to make a TOP_N of it */
#define OF_EACH "(SELECT DISTINCT ON (g) * FROM " NUMBERS " ORDER BY g, v)"

/* All count one row. */
static const char *const queries[] = {
    "SELECT count(*) FROM '@/wanted.parquet' w JOIN " LEAST " n ON w.k = n.k",
    "SELECT count(*) FROM '@/wanted.parquet' w JOIN " MANY " n ON w.k = n.k",
    "SELECT count(*) FROM '@/wanted.parquet' w JOIN " OF_EACH " n ON w.k = n.k",
    "SELECT count(*) FROM " LEAST " n SEMI JOIN '@/wanted.parquet' w ON w.k = n.k",
    "SELECT count(*) FROM " OF_EACH " n WHERE k IN (SELECT k FROM '@/wanted.parquet')",
    "SELECT count(*) FROM '@/wanted.parquet' w WHERE EXISTS (SELECT 1 FROM " LEAST " n WHERE n.k = w.k)",
    "SELECT count(*) FROM '@/wanted.parquet' w, LATERAL (SELECT * FROM " LEAST " n WHERE n.k = w.k AND n.v < w.k)",
    "SELECT count(n.v) FROM " LEAST " n RIGHT JOIN '@/wanted.parquet' w ON w.k = n.k",
    "SELECT count(*) FROM (SELECT k, max(v) AS v FROM " LEAST " GROUP BY k) n JOIN '@/wanted.parquet' w ON w.k = n.k",
};

static void check_one(struct cluster *cluster, const char *sql, const char *members)
{
    struct buf inputs = {0};
    struct table rows = {0};
    struct cluster_job job;
    cluster_begin(cluster, &job);
    cluster_inputs(cluster, sql, members, &inputs);
    const struct exec_outcome *planned = cluster_plan(cluster, &job, inputs.data);
    CHECK_STR(planned->is_success ? NULL : planned->message.data, NULL);
    while (planned->output.kind == EXEC_OUTPUT_NONE && cluster_step(cluster, &job)) {
    }
    cluster_result(cluster, &job, &rows);
    CHECK_UINT(rows.n_rows, 1);
    if (strcmp(rows.rows[0][0], "1") != 0) {
        print_error("%s rows with %s: %s\n", rows.rows[0][0], members, sql);
    }
    CHECK_STR(rows.rows[0][0], "1");
    table_deinit(&rows);
    buf_deinit(&inputs);
    cluster_end(&job);
}

static void check_all(const char *members)
{
    struct cluster cluster;
    open_with_data(&cluster);
    for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
        check_one(&cluster, queries[i], members);
    }
    cluster_close(&cluster);
}

TEST(limits_below_joins_take_the_right_rows_of_little_data)
{
    check_all("");
}

TEST(limits_below_joins_take_the_right_rows_in_stages)
{
    check_all("\"options\":{\"slots\":4,\"partitions\":3,\"forced\":true,\"broadcast_bytes\":0}");
}

TEST(limits_below_joins_take_the_right_rows_if_all_is_sent_to_all)
{
    check_all("\"options\":{\"slots\":4,\"partitions\":3,\"forced\":true,\"broadcast_bytes\":18446744073709551615}");
}

/* One task reads all numbers, and both steps are in its SQL. */
TEST(limits_below_joins_take_the_right_rows_within_one_task)
{
    check_all("\"options\":{\"slots\":1,\"single_task_bytes\":0}");
}
