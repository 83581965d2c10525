/* What a query that writes leaves in its folder, beyond the plain cases of sql_write_test.c. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "sql_cluster.h"
#include "test.h"

#define FORCED "\"options\":{\"slots\":4,\"partitions\":3,\"forced\":true,\"broadcast_bytes\":0}"

static void open_with_data(struct cluster *cluster)
{
    cluster_open(cluster, &(struct cluster_options){.shuffle_bytes = 100000000});
    cluster_sql(cluster, "COPY (SELECT i AS k FROM range(10000) r(i)) TO '@/a.parquet' (FORMAT parquet, "
                         "ROW_GROUP_SIZE 2048)");
}

static void plan(struct cluster *cluster, struct cluster_job *job, const char *sql)
{
    struct buf inputs = {0};
    cluster_begin(cluster, job);
    cluster_inputs(cluster, sql, FORCED, &inputs);
    const struct exec_outcome *out = cluster_plan(cluster, job, inputs.data);
    CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
    buf_deinit(&inputs);
}

static uint32_t count_names(const struct cluster *cluster, const char *inner, const char *start, const char *end)
{
    char path[200];
    uint32_t n = 0;
    snprintf(path, sizeof(path), "%s/%s", cluster->folder, inner);
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    for (const struct dirent *entry = NULL; (entry = readdir(folder)) != NULL;) {
        size_t n_name = strlen(entry->d_name);
        size_t n_end = strlen(end);
        n += strncmp(entry->d_name, start, strlen(start)) == 0 && n_name >= n_end &&
                     strcmp(entry->d_name + n_name - n_end, end) == 0
                 ? 1
                 : 0;
    }
    closedir(folder);
    return n;
}

static void check_value(struct cluster *cluster, const char *sql, const char *expected)
{
    struct table rows = {0};
    struct error e = {0};
    char text[400];
    fill_in(sql, cluster->folder, text, sizeof(text));
    CHECK_ERR(table_append(&rows, cluster->connection, text, &e), ERR_OK);
    CHECK_STR(rows.rows[0][0], expected);
    table_deinit(&rows);
}

TEST(files_without_rows_are_left_out_but_for_one)
{
    struct cluster cluster;
    struct cluster_job job;
    open_with_data(&cluster);
    plan(&cluster, &job, "COPY (SELECT k FROM '@/a.parquet' WHERE k % 10000 = 9999) TO '@/few' (FORMAT parquet)");
    CHECK(physical_tasks(job.read, 0) > 1);
    CHECK(cluster_step(&cluster, &job));
    CHECK_UINT(count_names(&cluster, "few", "part-", ".parquet"), 1);
    CHECK_UINT(count_names(&cluster, "few", "_capstan_", job.id), 1);
    check_value(&cluster, "SELECT max(k)::VARCHAR FROM '@/few/*.parquet'", "9999");
    cluster_end(&job);
    plan(&cluster, &job, "COPY (SELECT k FROM '@/a.parquet' WHERE hash(k) = 5) TO '@/none' (FORMAT parquet)");
    CHECK(cluster_step(&cluster, &job));
    CHECK_UINT(count_names(&cluster, "none", "part-", ".parquet"), 1);
    check_value(&cluster, "SELECT column_type FROM (DESCRIBE FROM '@/none/*.parquet')", "BIGINT");
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(a_compressed_file_is_called_so)
{
    struct cluster cluster;
    struct cluster_job job;
    open_with_data(&cluster);
    plan(&cluster, &job, "COPY (SELECT k FROM '@/a.parquet') TO '@/out' (FORMAT csv, HEADER, COMPRESSION gzip)");
    CHECK(cluster_step(&cluster, &job));
    CHECK(count_names(&cluster, "out", "part-", ".csv.gz") > 1);
    check_value(&cluster, "SELECT sum(k)::VARCHAR FROM '@/out/*.csv.gz'", "49995000");
    cluster_end(&job);
    cluster_close(&cluster);
}

/* The last task of the job, alone. */
static void run_last(struct cluster *cluster, struct cluster_job *job, struct exec_outcome *out)
{
    *out = (struct exec_outcome){0};
    cluster_run_task(cluster, job, job->read->n_stages - 1, job->n_stages - 1, 0, 1, NULL, out);
}

TEST(a_target_that_appears_meanwhile_is_not_touched)
{
    struct cluster cluster;
    struct cluster_job job;
    struct exec_outcome out;
    char path[200];
    char other[200];
    char message[400];
    open_with_data(&cluster);
    plan(&cluster, &job, "COPY (SELECT k FROM '@/a.parquet') TO '@/out' (FORMAT parquet)");
    CHECK(cluster_step(&cluster, &job));
    snprintf(path, sizeof(path), "%s/out", cluster.folder);
    snprintf(other, sizeof(other), "%s/moved", cluster.folder);
    CHECK_INT(rename(path, other), 0);
    CHECK_INT(mkdir(path, 0700), 0); /* it is somebody else's now */
    run_last(&cluster, &job, &out);
    snprintf(message, sizeof(message), "'%s' exists already; name a folder that does not exist yet, or remove this one",
             path);
    expect_failure(out, message, true);
    CHECK_UINT(count_names(&cluster, "out", "", ""), 2); /* itself and its parent */
    CHECK_INT(rmdir(path), 0);
    run_last(&cluster, &job, &out); /* its files are gone, with the folder that was moved away */
    CHECK(!out.is_success);
    CHECK(strstr(out.message.data, "which another task has written, is not there") != NULL);
    exec_outcome_deinit(&out);
    CHECK_INT(access(path, F_OK), -1);
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(a_folder_to_write_in_must_be_there)
{
    struct cluster cluster;
    struct cluster_job job;
    struct exec_outcome out = {0};
    open_with_data(&cluster);
    plan(&cluster, &job, "COPY (SELECT k FROM '@/a.parquet') TO '@/no/out' (FORMAT parquet)");
    cluster_run_task(&cluster, &job, 0, 1, 0, 0, NULL, &out);
    CHECK(!out.is_success);
    CHECK(strstr(out.message.data, "must exist, and workers must be allowed to write there") != NULL);
    exec_outcome_deinit(&out);
    cluster_end(&job);
    cluster_close(&cluster);
}
