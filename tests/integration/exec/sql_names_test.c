/* Names of files and columns, and texts, that could be taken for something of ours or of DuckDB's. */
#include <stdio.h>
#include <unistd.h>

#include "fixture.h"
#include "sql_cluster.h"
#include "test.h"

#define FORCED "\"options\":{\"slots\":4,\"partitions\":3,\"forced\":true,\"broadcast_bytes\":20000}"

static void rename_inside(const struct cluster *cluster, const char *from, const char *to)
{
    char old[200];
    char new[200];
    snprintf(old, sizeof(old), "%s/%s", cluster->folder, from);
    snprintf(new, sizeof(new), "%s/%s", cluster->folder, to);
    CHECK_INT(rename(old, new), 0);
}

static void compare_all(struct cluster *cluster, const char *const *queries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cluster_compare(cluster, queries[i], FORCED, ORDER_IS_FREE, NULL);
        cluster_compare(cluster, queries[i], "\"options\":{\"slots\":4,\"single_task_bytes\":1}", ORDER_IS_FREE, NULL);
    }
}

TEST(columns_with_the_names_of_duckdbs_own_are_the_files)
{
    static const char *const queries[] = {
        "SELECT g, count(*) AS n, sum(k) AS s FROM '@/frn.parquet' GROUP BY g",
        "SELECT g, count(*) AS n, sum(file_row_number) AS s FROM '@/frn.parquet' GROUP BY g",
        "SELECT g, count(*) AS n, sum(k) AS s FROM '@/mixed*.parquet' GROUP BY g",
        "SELECT g, count(*) AS n, sum(k) AS s FROM '@/struct.parquet' GROUP BY g",
        "SELECT g, count(*) AS n, sum(k) AS s FROM read_parquet('@/hive/*/*.parquet', hive_partitioning = true) GROUP BY g",
        "SELECT filename LIKE '%named1.parquet' AS f, count(*) AS n FROM '@/named*.parquet' GROUP BY f",
        "SELECT file_index, count(*) AS n FROM '@/named*.parquet' GROUP BY ALL",
        "SELECT g, max(filename) AS f FROM '@/named1.parquet' GROUP BY g",
        "SELECT parse_filename(filename) AS f, sum(capstan_file) AS s FROM '@/ours*.parquet' GROUP BY f",
        "SELECT g, sum(capstan_file) AS s FROM '@/ours*.parquet' GROUP BY g",
        "SELECT parse_filename(filename) AS f, sum(g) AS s FROM '@/theirs*.parquet' GROUP BY f",
    };
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    cluster_sql(&cluster,
                "COPY (SELECT i AS k, i * 7919 % 10007 AS File_Row_Number, i % 5 AS g FROM range(10000) r(i)) "
                "TO '@/frn.parquet' (ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i AS k, {'a': i} AS file_row_number, i % 5 AS g FROM range(10000) r(i)) "
                          "TO '@/struct.parquet' (ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i AS k, i % 5 AS g FROM range(10000) r(i)) TO '@/mixed0.parquet' "
                          "(ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i AS k, i % 5 AS g, 3 AS file_row_number FROM range(10000) r(i)) "
                          "TO '@/mixed1.parquet' (ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i AS k, i % 5 AS g FROM range(10000) r(i)) TO '@/named0.parquet' "
                          "(ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i AS k, i % 5 AS g, 'mine' || i AS filename, 77 AS file_index "
                          "FROM range(10000) r(i)) TO '@/named1.parquet' (ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i AS capstan_file, i % 5 AS g FROM range(10000) r(i)) TO '@/ours0.parquet' "
                          "(ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i AS capstan_file, i % 5 AS g FROM range(3000) r(i)) TO '@/ours1.parquet'");
    cluster_sql(&cluster, "COPY (SELECT i % 5 AS g FROM range(10000) r(i)) TO '@/theirs0.parquet' "
                          "(ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i % 5 AS g, i AS capstan_file FROM range(3000) r(i)) TO '@/theirs1.parquet'");
    cluster_sql(&cluster, "COPY (SELECT i AS k, i % 5 AS g, 999999999 AS file_row_number FROM range(300000) r(i)) "
                          "TO '@/hive' (FORMAT parquet, PARTITION_BY (file_row_number))");
    compare_all(&cluster, queries, ARRAY_LEN(queries));
    cluster_close(&cluster);
}

/* Parquet stores them in the same form, and DuckDB reads several files with the types of the first. */
TEST(files_whose_types_differ_in_meaning_only_are_not_read_together)
{
    static const char *const queries[] = {
        "SELECT sum(d) AS s FROM read_parquet(['@/d0.parquet', '@/d1.parquet', '@/d2.parquet'])",
        "SELECT d % 2 AS m, count(*) AS n FROM read_parquet(['@/d0.parquet', '@/d1.parquet', '@/d2.parquet']) "
        "WHERE d > 1.2 GROUP BY m",
    };
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    cluster_sql(&cluster, "COPY (SELECT CAST(i / 4 AS DECIMAL(9, 2)) AS d FROM range(100000) r(i)) TO '@/d0.parquet' "
                          "(ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT CAST(i AS DECIMAL(9, 0)) AS d FROM range(3000) r(i)) TO '@/d1.parquet'");
    cluster_sql(&cluster, "COPY (SELECT CAST(i / 4 AS DECIMAL(9, 2)) AS d FROM range(3000) r(i)) TO '@/d2.parquet'");
    compare_all(&cluster, queries, ARRAY_LEN(queries));
    cluster_close(&cluster);
}

TEST(files_whose_names_look_like_patterns_are_themselves)
{
    static const char *const queries[] = {
        "SELECT count(*) AS n, sum(k) AS s FROM '@/x*.parquet' WHERE k >= 0",
        "SELECT k % 3 AS g, count(*) AS n FROM '@/x*.parquet' GROUP BY g",
        "SELECT k % 3 AS g, count(*) AS n FROM '@/y*.parquet' GROUP BY g",
        "SELECT k % 3 AS g, count(*) AS n FROM '@/z*.csv' GROUP BY g",
        "SELECT a.k % 3 AS g, count(*) AS n FROM '@/x*.parquet' a JOIN '@/y*.parquet' b USING (k) GROUP BY g",
    };
    struct cluster cluster;
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(3000) r(i)) TO '@/x1.parquet' (ROW_GROUP_SIZE 2048)");
    cluster_sql(&cluster, "COPY (SELECT i + 9 AS k FROM range(5000) r(i)) TO '@/p.parquet' (ROW_GROUP_SIZE 2048)");
    rename_inside(&cluster, "p.parquet", "x[1].parquet");
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(7000) r(i)) TO '@/p.parquet' (ROW_GROUP_SIZE 2048)");
    rename_inside(&cluster, "p.parquet", "y[ab].parquet"); /* as a pattern, it would mean none */
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(3000) r(i)) TO '@/z1.csv'");
    cluster_sql(&cluster, "COPY (SELECT i + 9 AS k FROM range(5000) r(i)) TO '@/p.csv'");
    rename_inside(&cluster, "p.csv", "z?.csv");
    compare_all(&cluster, queries, ARRAY_LEN(queries));
    cluster_close(&cluster);
}

TEST(texts_that_look_like_placeholders_are_texts)
{
    static const char *const queries[] = {
        "SELECT count(*) AS c, sum(n) AS s FROM (SELECT k, count(*) AS n FROM '@/r*.parquet' "
        "WHERE s <> 'CAST({{file_index' GROUP BY k)",
        "SELECT count(*) AS c FROM (SELECT k, count(*) AS n FROM '@/r*.parquet' WHERE s <> '{{file_index}}' GROUP BY k)",
        "SELECT v, count(*) AS c FROM '@/r*.parquet' WHERE s <> '{{rows:' AND s <> '{{split}}' GROUP BY v",
    };
    static const char plan[] =
        "{\"stages\":[{\"id\":0,\"sql\":\"SELECT count(*) AS n FROM read_parquet({{split}}) WHERE s <> '{{rows:'\","
        "\"splits\":[{\"file\":\"@/r0.parquet\",\"first_row\":0,\"last_row\":2047},"
        "{\"file\":\"@/r0.parquet\",\"first_row\":2048,\"last_row\":4095}],\"output\":{\"exchange\":\"gather\"}},"
        "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT sum(n) AS n FROM m\","
        "\"output\":{\"exchange\":\"result\"}}]}";
    struct cluster cluster;
    char text[800];
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    for (int i = 0; i < 6; i++) {
        char sql[300];
        snprintf(sql, sizeof(sql),
                 "COPY (SELECT i AS k, i %% 11 AS v, 's' || i AS s FROM range(%d, %d) r(i)) TO '@/r%d.parquet' "
                 "(ROW_GROUP_SIZE 2048)",
                 i * 4096, (i + 1) * 4096, i);
        cluster_sql(&cluster, sql);
    }
    compare_all(&cluster, queries, ARRAY_LEN(queries));
    fill_in(plan, cluster.folder, text, sizeof(text));
    cluster_check_plan(&cluster, text, "4096");
    cluster_close(&cluster);
}
