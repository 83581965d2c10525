#define _DEFAULT_SOURCE /* mkdtemp */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "fixture.h"
#include "sql_cluster.h"

#define FORCED "\"options\":{\"slots\":4,\"partitions\":3,\"forced\":true,\"broadcast_bytes\":0}"

static void open_with_data(struct cluster *cluster, const char *plugin)
{
    cluster_open(cluster, &(struct cluster_options){.shuffle_bytes = 100000000, .plugin = plugin});
    cluster_sql(cluster, "COPY (SELECT i AS k, 'n' || i AS name FROM range(10000) r(i)) TO '@/a.parquet' "
                         "(FORMAT parquet, ROW_GROUP_SIZE 2048)");
    cluster_sql(cluster, "COPY (SELECT i AS k, 'n' || i AS name FROM range(10000, 12000) r(i)) TO '@/b.parquet' "
                         "(FORMAT parquet)");
}

static const struct exec_outcome *plan(struct cluster *cluster, struct cluster_job *job, const char *sql,
                                       const char *members)
{
    struct buf inputs = {0};
    cluster_begin(cluster, job);
    cluster_inputs(cluster, sql, members, &inputs);
    const struct exec_outcome *out = cluster_plan(cluster, job, inputs.data);
    buf_deinit(&inputs);
    CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
    CHECK_INT(out->output.kind, EXEC_OUTPUT_NONE);
    return out;
}

/* Names in the cluster's folder that begin with this; in a folder inside it if there is a slash at its end. */
static uint32_t count_names(const struct cluster *cluster, const char *inner, const char *start)
{
    char path[200];
    uint32_t n = 0;
    snprintf(path, sizeof(path), "%s/%s", cluster->folder, inner);
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    const struct dirent *entry = NULL;
    while ((entry = readdir(folder)) != NULL) {
        n += strncmp(entry->d_name, start, strlen(start)) == 0 ? 1 : 0;
    }
    closedir(folder);
    return n;
}

/* That the one value of the query over what was written is this. */
static void check_written(struct cluster *cluster, const char *sql, const char *value)
{
    struct table rows = {0};
    struct error e = {0};
    char text[400];
    fill_in(sql, cluster->folder, text, sizeof(text));
    enum err err = table_append(&rows, cluster->connection, text, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    CHECK_STR(rows.rows[0][0], value);
    table_deinit(&rows);
}

static void check_rows(struct cluster *cluster, struct cluster_job *job, const char *value)
{
    struct table rows = {0};
    cluster_result(cluster, job, &rows);
    CHECK_UINT(rows.n_rows, 1);
    CHECK_STR(rows.names[0], "rows");
    CHECK_STR(rows.rows[0][0], value);
    table_deinit(&rows);
}

TEST(a_copy_makes_a_folder_with_a_file_of_each_task)
{
    struct cluster cluster;
    struct cluster_job job;
    open_with_data(&cluster, NULL);
    plan(&cluster, &job, "COPY (SELECT k, name FROM '@/*.parquet' WHERE k >= 0) TO '@/out' (FORMAT parquet)", FORCED);
    uint32_t n_tasks = physical_tasks(job.read, 0);
    CHECK(n_tasks > 1);
    CHECK(cluster_step(&cluster, &job));
    check_rows(&cluster, &job, "12000");
    CHECK_UINT(count_names(&cluster, "out", "part-"), n_tasks);
    check_written(&cluster, "SELECT count(DISTINCT k) || ' ' || sum(k) FROM '@/out/*.parquet'", "12000 71994000");
    CHECK_UINT(count_names(&cluster, "", ".out"), 0);
    /* The last task may be run again, if nobody has heard of its end. */
    struct exec_outcome out = {0};
    cluster_run_task(&cluster, &job, job.read->n_stages - 1, job.n_stages - 1, 0, 1, NULL, &out);
    CHECK_STR(out.is_success ? NULL : out.message.data, NULL);
    exec_outcome_deinit(&out);
    CHECK_UINT(count_names(&cluster, "out", "part-"), n_tasks);
    /* So may the others, and then the last once more, if their outputs are lost as well. */
    exchange_store_end_job(cluster.workers[0].folder.store, job.id, false, EXCHANGE_ALL_NUMBERS);
    exec_outcome_deinit(&job.stages[1].outputs[0].outcome);
    cluster_run_task(&cluster, &job, 0, 1, 0, 0, NULL, &job.stages[1].outputs[0].outcome);
    CHECK_STR(job.stages[1].outputs[0].outcome.is_success ? NULL : job.stages[1].outputs[0].outcome.message.data, NULL);
    CHECK_UINT(count_names(&cluster, "", ".out"), 1);
    check_written(&cluster, "SELECT count(*) FROM '@/out/*.parquet'", "12000");
    executor_set_drop_job(cluster.workers[0].set, job.id); /* what is published stays */
    CHECK_UINT(count_names(&cluster, "", ".out"), 0);
    CHECK_UINT(count_names(&cluster, "out", "part-"), n_tasks);
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(a_copy_over_little_data_writes_one_file_in_the_wanted_form)
{
    struct cluster cluster;
    struct cluster_job job;
    open_with_data(&cluster, NULL);
    plan(&cluster, &job, "COPY (SELECT k, name FROM '@/a.parquet' ORDER BY k DESC) TO '@/out' (FORMAT csv, HEADER)",
         "");
    CHECK(cluster_step(&cluster, &job));
    check_rows(&cluster, &job, "10000");
    CHECK_UINT(count_names(&cluster, "out", "part-"), 1);
    check_written(&cluster, "SELECT first(k) || ' ' || count(*) FROM '@/out/*.csv'", "9999 10000");
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(files_of_attempts_that_do_not_count_are_not_published)
{
    struct cluster cluster;
    struct cluster_job job;
    char path[300];
    open_with_data(&cluster, NULL);
    plan(&cluster, &job, "COPY (SELECT k FROM '@/a.parquet') TO '@/out' (FORMAT parquet)", "");
    job.read->stages[0].job_stage = 1;
    struct cluster_stage *stage = &job.stages[job.n_stages++];
    *stage = (struct cluster_stage){.n_tasks = 1, .outputs = mem_calloc(1, sizeof(*stage->outputs))};
    stage->outputs[0].attempt = 1;
    cluster_run_task(&cluster, &job, 0, 1, 0, 0, NULL, &stage->outputs[0].outcome);
    CHECK(stage->outputs[0].outcome.is_success);
    snprintf(path, sizeof(path), "%s/.out.capstan-%s/part-000000-9.parquet", cluster.folder, job.id);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
    struct exec_outcome out = {0};
    cluster_run_task(&cluster, &job, 1, 2, 0, 1, NULL, &out);
    CHECK_STR(out.is_success ? NULL : out.message.data, NULL);
    exec_outcome_deinit(&out);
    CHECK_UINT(count_names(&cluster, "out", "part-"), 1);
    check_written(&cluster, "SELECT count(*) FROM '@/out/*.parquet'", "10000");
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(a_copy_into_a_folder_that_exists_changes_nothing)
{
    struct cluster cluster;
    struct cluster_job job;
    struct exec_outcome out = {0};
    char path[100];
    char message[300];
    open_with_data(&cluster, NULL);
    plan(&cluster, &job, "COPY (SELECT k FROM '@/a.parquet') TO '@/out' (FORMAT parquet)", "");
    snprintf(path, sizeof(path), "%s/out", cluster.folder);
    CHECK_INT(mkdir(path, 0700), 0);
    cluster_run_task(&cluster, &job, 0, 1, 0, 0, NULL, &out);
    snprintf(message, sizeof(message), "'%s' exists already; name a folder that does not exist yet, or remove this one",
             path);
    expect_failure(out, message, true);
    CHECK_UINT(count_names(&cluster, "out", "part-"), 0);
    CHECK_UINT(count_names(&cluster, "", ".out"), 0);
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(whoever_finds_the_folder_of_another_job_is_told_of_it)
{
    struct cluster cluster;
    struct cluster_job first;
    struct cluster_job second;
    struct exec_outcome out = {0};
    char message[600];
    open_with_data(&cluster, NULL);
    plan(&cluster, &first, "COPY (SELECT k FROM '@/a.parquet') TO '@/out' (FORMAT parquet)", "");
    CHECK(cluster_step(&cluster, &first));
    plan(&cluster, &second, "COPY (SELECT k + 1 AS k FROM '@/a.parquet') TO '@/out' (FORMAT parquet)", "");
    CHECK(strcmp(first.id, second.id) != 0);
    cluster_run_task(&cluster, &second, 0, 1, 0, 0, NULL, &out);
    snprintf(message, sizeof(message),
             "'%s/out' exists already; job %s has made it, and if that did not succeed, 'capstan retry %s' completes "
             "it; else name another folder, or remove this one",
             cluster.folder, first.id, first.id);
    expect_failure(out, message, true);
    check_written(&cluster, "SELECT min(k) || ' ' || count(*) FROM '@/out/*.parquet'", "0 10000");
    cluster_end(&first);
    cluster_end(&second);
    cluster_close(&cluster);
}

TEST(a_copy_that_fails_leaves_nothing_behind)
{
    struct cluster cluster;
    struct cluster_job job;
    open_with_data(&cluster, NULL);
    /* Wrong in the second file only. */
    plan(&cluster, &job,
         "COPY (SELECT CASE WHEN k < 11000 THEN k ELSE CAST(name AS BIGINT) END AS k FROM '@/*.parquet') TO '@/out' "
         "(FORMAT parquet)",
         FORCED);
    uint32_t n_failed = 0;
    uint32_t n_tasks = physical_tasks(job.read, 0);
    for (uint32_t i = 0; i < n_tasks; i++) {
        struct exec_outcome out = {0};
        cluster_run_task(&cluster, &job, 0, 1, i, 0, NULL, &out);
        n_failed += out.is_success ? 0 : 1;
        CHECK(out.is_success || out.not_retryable);
        exec_outcome_deinit(&out);
    }
    CHECK_UINT(n_failed, 1);
    char folder[60];
    snprintf(folder, sizeof(folder), ".out.capstan-%s", job.id);
    CHECK_UINT(count_names(&cluster, folder, "part-"), n_tasks - 1); /* the one that failed has taken its file away */
    CHECK_UINT(count_names(&cluster, folder, ""), n_tasks - 1 + 2);
    executor_set_drop_job(cluster.workers[0].set, "another-job");
    CHECK_UINT(count_names(&cluster, "", ".out"), 1);
    executor_set_drop_job(cluster.workers[0].set, job.id);
    CHECK_UINT(count_names(&cluster, "", ".out"), 0);
    cluster_end(&job);
    cluster_close(&cluster);
}

struct named_jobs {
    uint32_t n;
    char last[100];
};

static void name_job(void *context, const char *job_id)
{
    struct named_jobs *jobs = context;
    jobs->n++;
    snprintf(jobs->last, sizeof(jobs->last), "%s", job_id);
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK_INT(fclose(file), 0);
}

/* What is in the folder besides itself and the one above. */
static uint32_t count_files(const char *path)
{
    uint32_t n = 0;
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n - 2;
}

/* The first process dies in the middle; the second knows nothing but what is in its folder. */
TEST(a_worker_that_starts_again_removes_what_its_jobs_have_left)
{
    struct cluster cluster;
    struct cluster_job job;
    struct error e = {0};
    struct exec_outcome out = {0};
    struct named_jobs jobs = {0};
    char notes[] = "/tmp/capstan-notes-XXXXXX";
    char folder[60];
    CHECK(mkdtemp(notes) != NULL);
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 100000000, .notes_folder = notes});
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(100) r(i)) TO '@/a.parquet' (FORMAT parquet)");
    plan(&cluster, &job, "COPY (SELECT k FROM '@/a.parquet') TO '@/out' (FORMAT parquet)", "");
    CHECK_UINT(count_files(notes), 1); /* before there is anything to remove */
    CHECK_UINT(count_names(&cluster, "", ".out"), 0);
    cluster_run_task(&cluster, &job, 0, 1, 0, 0, NULL, &out);
    CHECK_STR(out.is_success ? NULL : out.message.data, NULL);
    exec_outcome_deinit(&out);
    snprintf(folder, sizeof(folder), ".out.capstan-%s", job.id);
    CHECK_UINT(count_names(&cluster, folder, "part-"), 1);
    write_text(notes, "0123", "job\n/tmp/.x.capstan-job"); /* such a note would have another name */
    write_text(notes, "4567", "");
    struct sql_options options = {.store = cluster.workers[0].folder.store,
                                  .channels = cluster.workers[0].channels,
                                  .threads = 1,
                                  .notes_folder = notes};
    struct executor_set *later = executor_set_new();
    CHECK_ERR(executor_set_add(later, executor_sql(&options), &e), ERR_OK);
    executor_set_each_job(later, name_job, &jobs);
    CHECK_UINT(jobs.n, 1);
    CHECK_STR(jobs.last, job.id);
    CHECK_UINT(count_files(notes), 1); /* those that were not whole are gone */
    executor_set_drop_job(later, "another-job");
    CHECK_UINT(count_names(&cluster, folder, "part-"), 1);
    executor_set_drop_job(later, job.id);
    CHECK_UINT(count_names(&cluster, "", ".out"), 0);
    CHECK_UINT(count_files(notes), 0);
    executor_set_free(later);
    cluster_end(&job);
    cluster_close(&cluster);
    CHECK_INT(rmdir(notes), 0);
}

TEST(a_worker_that_only_planned_a_copy_removes_what_others_have_left)
{
    struct cluster cluster;
    struct cluster_job job;
    struct exec_outcome out = {0};
    open_with_data(&cluster, NULL);
    plan(&cluster, &job, "COPY (SELECT k FROM '@/a.parquet') TO '@/out' (FORMAT parquet)", ""); /* on worker 0 */
    cluster_run_task(&cluster, &job, 0, 1, 0, 1, NULL, &out);
    CHECK_STR(out.is_success ? NULL : out.message.data, NULL);
    exec_outcome_deinit(&out);
    CHECK_UINT(count_names(&cluster, "", ".out"), 1);
    executor_set_drop_job(cluster.workers[0].set, job.id);
    CHECK_UINT(count_names(&cluster, "", ".out"), 0);
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(a_table_is_created_in_the_warehouse)
{
    struct cluster cluster;
    struct cluster_job job;
    open_with_data(&cluster, NULL);
    plan(&cluster, &job, "CREATE TABLE few AS SELECT k FROM '@/a.parquet' WHERE k < 10", "\"warehouse\":\"@\"");
    CHECK_STR(job.read->stages[job.read->n_stages - 1].publish.table, "few");
    CHECK(cluster_step(&cluster, &job));
    check_rows(&cluster, &job, "10");
    check_written(&cluster, "SELECT count(*) FROM '@/few/*.parquet'", "10");
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(operators_in_sql_are_planned_and_run)
{
    struct cluster cluster;
    char plugin[600];
    plugin_path("add_five", plugin, sizeof(plugin));
    open_with_data(&cluster, plugin);
    static const char *const members[] = {"", FORCED};
    for (size_t i = 0; i < 2; i++) {
        struct cluster_job job;
        struct table rows = {0};
        plan(&cluster, &job,
             "SELECT min(k) AS low, max(k) AS high, count(*) AS n FROM custom('add_five', (SELECT k FROM "
             "'@/*.parquet'))",
             members[i]);
        while (cluster_step(&cluster, &job)) {
        }
        cluster_result(&cluster, &job, &rows);
        CHECK_STR(rows.rows[0][0], "5");
        CHECK_STR(rows.rows[0][1], "12004");
        CHECK_STR(rows.rows[0][2], "12000");
        table_deinit(&rows);
        cluster_end(&job);
    }
    /* And what an operator makes can be written. */
    struct cluster_job job;
    plan(&cluster, &job,
         "COPY (SELECT * FROM custom('add_five', (SELECT k FROM '@/*.parquet'))) TO '@/out' (FORMAT parquet)", FORCED);
    while (cluster_step(&cluster, &job)) {
    }
    check_rows(&cluster, &job, "12000");
    check_written(&cluster, "SELECT min(k) || ' ' || max(k) || ' ' || count(*) FROM '@/out/*.parquet'",
                  "5 12004 12000");
    cluster_end(&job);
    cluster_close(&cluster);
}

TEST(a_query_with_an_operator_is_for_a_worker_that_has_it)
{
    struct cluster cluster;
    struct cluster_job job;
    struct buf inputs = {0};
    open_with_data(&cluster, NULL);
    cluster_begin(&cluster, &job);
    cluster_inputs(&cluster, "SELECT * FROM custom('add_five', (SELECT k FROM '@/*.parquet'))", "", &inputs);
    const struct exec_outcome *out = cluster_plan(&cluster, &job, inputs.data);
    CHECK(!out->is_success);
    CHECK(!out->not_retryable);
    CHECK_STR(out->message.data, "custom physical operator 'add_five' is not registered on worker");
    buf_deinit(&inputs);
    cluster_end(&job);
    cluster_close(&cluster);
}
