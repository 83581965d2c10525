/*
 * Files that are written again in the second of their last change, or whose time is set back, with the same number of
 * bytes: nothing that DuckDB remembers of the old one may be taken for the new one.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fixture.h"
#include "sql_cluster.h"
#include "test.h"

#define AT_ONCE "\"options\":{\"slots\":2}"
#define IN_STAGES "\"options\":{\"slots\":2,\"partitions\":2,\"forced\":true}"

/* Writes numbers from `first` on into the file; it was last changed at `second` and these milliseconds. */
static struct stat write_file(struct cluster *cluster, int first, time_t second, long ms)
{
    char sql[300];
    char path[200];
    struct stat st;
    struct timespec times[2] = {{second, ms * 1000000}, {second, ms * 1000000}};
    snprintf(sql, sizeof(sql),
             "COPY (SELECT i + %d AS k, i AS v FROM range(10000) r(i)) TO '@/a.parquet' "
             "(FORMAT parquet, ROW_GROUP_SIZE 2048, COMPRESSION uncompressed, USE_TMP_FILE false)",
             first);
    cluster_sql(cluster, sql);
    snprintf(path, sizeof(path), "%s/a.parquet", cluster->folder);
    CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
    CHECK_INT(stat(path, &st), 0);
    return st;
}

/* What is compared with is not taken in either. */
static void check_reference(struct cluster *cluster)
{
    struct table rows = {0};
    struct error e = {0};
    char sql[300];
    fill_in("SELECT CAST(count(*) AS VARCHAR) FROM '@/a.parquet' WHERE k >= 12000", cluster->folder, sql, sizeof(sql));
    CHECK_ERR(table_append(&rows, cluster->connection, sql, &e), ERR_OK);
    CHECK_STR(rows.rows[0][0], "3000");
    table_deinit(&rows);
}

TEST(a_file_that_is_written_again_in_the_same_second_is_read_anew)
{
    static const struct {
        const char *sql;
        const char *members;
    } cases[] = {
        {"SELECT count(*) AS n FROM '@/a.parquet' WHERE k >= 12000", AT_ONCE},
        {"SELECT count(*) AS n FROM '@/a.parquet' WHERE k >= 12000", IN_STAGES},
        {"SELECT v % 7 AS m, count(*) AS n FROM '@/a.parquet' WHERE k >= 12000 GROUP BY ALL", IN_STAGES},
        {"SELECT count(*) AS n FROM '@/a.parquet' a JOIN '@/a.parquet' b USING (v) WHERE a.k >= 12000", IN_STAGES},
        {"SELECT column_name, \"min\", count FROM (SUMMARIZE SELECT k FROM '@/a.parquet' WHERE k >= 12000)", AT_ONCE},
    };
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        time_t second = time(NULL);
        struct stat first = write_file(&cluster, 0, second, 100);
        cluster_compare(&cluster, "SELECT count(*) AS n, sum(v) AS s FROM '@/a.parquet' WHERE k < 100",
                        cases[i].members, ORDER_IS_FREE, NULL);
        struct stat next = write_file(&cluster, 5000, second, 200);
        CHECK_UINT((uint64_t)next.st_ino, (uint64_t)first.st_ino);
        CHECK_INT(next.st_size, first.st_size);
        check_reference(&cluster);
        cluster_compare(&cluster, cases[i].sql, cases[i].members, ORDER_IS_FREE, NULL);
    }
    cluster_close(&cluster);
}

TEST(a_file_that_has_settled_is_known_by_its_second)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000, .settled_ms = 1});
    for (int i = 0; i < 4; i++) {
        (void)write_file(&cluster, 5000 * i, 1700000000 + i, 0);
        cluster_compare(&cluster, "SELECT v % 7 AS m, count(*) AS n FROM '@/a.parquet' WHERE k >= 12000 GROUP BY ALL",
                        IN_STAGES, ORDER_IS_FREE, NULL);
    }
    cluster_close(&cluster);
}

TEST(a_file_whose_time_is_set_back_is_read_anew)
{
    static const char *const members[] = {AT_ONCE, IN_STAGES};
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000, .settled_ms = 1});
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        time_t second = 1700000000 + (time_t)i;
        (void)write_file(&cluster, 0, second, 100);
        /* Twice: what is settled by the second time is remembered. */
        for (int k = 0; k < 2; k++) {
            cluster_compare(&cluster, "SELECT count(*) AS n, sum(v) AS s FROM '@/a.parquet' WHERE k < 100", members[i],
                            ORDER_IS_FREE, NULL);
        }
        (void)write_file(&cluster, 5000, second, 100);
        check_reference(&cluster);
        cluster_compare(&cluster, "SELECT count(*) AS n FROM '@/a.parquet' WHERE k >= 12000", members[i], ORDER_IS_FREE,
                        NULL);
    }
    cluster_close(&cluster);
}

/* Of a query that DuckDB answers from the metadata alone, the tree has no scan any more; its words name the file. */
TEST(a_file_that_is_read_only_for_its_metadata_is_read_anew)
{
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000, .settled_ms = 1});
    (void)write_file(&cluster, 0, 1700000000, 100);
    for (int i = 0; i < 2 * CLUSTER_WORKERS; i++) {
        cluster_compare(&cluster, "SELECT max(k) AS m FROM '@/a.parquet'", AT_ONCE, ORDER_IS_FREE, NULL);
    }
    (void)write_file(&cluster, 5000, 1700000000, 100);
    check_reference(&cluster);
    cluster_compare(&cluster, "SELECT max(k) AS m FROM '@/a.parquet'", AT_ONCE, ORDER_IS_FREE, NULL);
    cluster_compare(&cluster, "SELECT count(*) AS n FROM '@/a.parquet' WHERE k >= 12000", AT_ONCE, ORDER_IS_FREE, NULL);
    cluster_compare(&cluster, "SELECT count(*) AS n FROM '@/a.parquet' WHERE k >= 12000", IN_STAGES, ORDER_IS_FREE,
                    NULL);
    cluster_close(&cluster);
}

/* Plans of others do not say what their files were like. */
TEST(a_file_of_a_plan_that_does_not_say_what_it_was_is_read_anew)
{
    static const char *const plans[] = {
        "{\"stages\":[{\"id\":0,\"sql\":\"SELECT count(*) AS n FROM read_parquet({{split}}) WHERE k >= #\","
        "\"splits\":[{\"file\":\"@/a.parquet\"}],\"output\":{\"exchange\":\"result\"}}]}",
        "{\"stages\":[{\"id\":0,\"sql\":\"SELECT count(*) AS n FROM '@/a.parquet' WHERE k >= #\","
        "\"output\":{\"exchange\":\"result\"}}]}",
    };
    for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
        time_t second = time(NULL);
        struct cluster cluster;
        cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
        for (int k = 0; k < 2; k++) {
            char plan[600];
            char text[700];
            (void)write_file(&cluster, 5000 * k, second, 100 * (k + 1));
            fill_in(plans[i], cluster.folder, plan, sizeof(plan));
            int n_before = (int)strcspn(plan, "#");
            (void)snprintf(text, sizeof(text), "%.*s%d%s", n_before, plan, k == 0 ? 9900 : 12000, plan + n_before + 1);
            for (int n = 0; n < 2 * CLUSTER_WORKERS; n++) {
                cluster_check_plan(&cluster, text, k == 0 ? "100" : "3000");
            }
        }
        cluster_close(&cluster);
    }
}
