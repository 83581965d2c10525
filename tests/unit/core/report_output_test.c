/*
 * report_output_test.c - outputs that come in one go with the report of success, and plans that come with results.
 */
#include "cluster.h"

static struct task_report success_of(const struct assignment *a)
{
    return (struct task_report){.ref = a->ref, .state = TASK_SUCCEEDED};
}

TEST(a_map_output_that_comes_with_the_success_counts)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 2), QUERY_STAGE(2, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 0, 0));
    struct partition partitions[] = {{.bytes = 10, .rows = 1, .checksum = 7}, {.bytes = 20, .rows = 2}};
    struct task_report report = success_of(a);
    report.map_output = partitions;
    report.n_map_output = 2;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE); /* repeated: its answer was lost */
    CHECK_UINT(row_store_count(&c.store, ROW_MAP_OUTPUT), 1);
    cluster_fail_over(&c);
    worker_takes_task(&c, "w1", at("q", 1, 0));
    const struct assignment *r = worker_takes_task(&c, "w1", at("q", 1, 1));
    CHECK_UINT(r->n_sources, 1);
    CHECK_UINT(r->sources[0].first_partition, 1);
    CHECK_UINT(r->sources[0].partitions[0].bytes, 20);
    cluster_finish(&c);
}

TEST(a_map_output_of_the_wrong_shape_fails_the_attempt)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 2)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    struct partition partitions[] = {{.bytes = 10}};
    struct task_report report = success_of(a);
    report.map_output = partitions;
    report.n_map_output = 1;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_BAD_OUTPUT);
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_UINT(task_of(&c, "q", 0, 0).failures, 1);
    CHECK_UINT(row_store_count(&c.store, ROW_MAP_OUTPUT), 0);
    cluster_finish(&c);
}

TEST(rows_that_come_with_the_success_are_the_result)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {RESULT_STAGE(2)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 0, 0));
    const struct assignment *b = worker_takes_task(&c, "w1", at("q", 0, 1));
    struct task_rows small = {.rows = 3, .bytes = 100, .is_inline = true};
    struct task_rows large = {.rows = 9, .bytes = 7000000};
    struct task_report report = success_of(b);
    report.query_results = &large;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    struct arena arena = {0};
    const struct result_info *results = NULL;
    CHECK_UINT(core_results(c.core, "q", &arena, &results), 0); /* the job has not succeeded */
    report = success_of(a);
    report.query_results = &small;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    CHECK_UINT(core_results(c.core, "q", &arena, &results), 2);
    CHECK_UINT(results[0].ref.task, 0);
    CHECK(results[0].output.is_inline);
    CHECK_UINT(results[1].output.bytes, 7000000);
    CHECK_STR(results[1].output.worker_id, "w1");
    arena_deinit(&arena);
    cluster_finish(&c);
}

TEST(rows_from_a_task_that_has_a_map_output_to_make_are_refused)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 1)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    struct task_rows rows = {.rows = 3, .bytes = 100, .is_inline = true};
    struct task_report report = success_of(a);
    report.query_results = &rows;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_BAD_OUTPUT);
    CHECK_UINT(row_store_count(&c.store, ROW_RESULT), 0);
    cluster_finish(&c);
}

static const struct assignment *take_sql_planner(struct cluster *c)
{
    struct stage_spec planner[] = {RESULT_STAGE(1, .planning = true)};
    SUBMIT_QUERY(c, "q", planner);
    return worker_takes_task(c, "w1", at("q", 0, 0));
}

TEST(a_planning_task_with_an_output_to_make_leaves_rows_or_stages)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct assignment *a = take_sql_planner(&c);
    struct task_report report = success_of(a);
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_BAD_OUTPUT); /* neither */
    cluster_advance(&c, SECOND_MS);
    a = worker_takes_task(&c, "w1", at("q", 0, 0));
    struct stage_spec added[] = {RESULT_STAGE(1)};
    report = success_of(a);
    report.added = added;
    report.n_added = 1;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_RUNNING);
    a = worker_takes_task(&c, "w1", at("q", 1, 0));
    struct task_rows rows = {.rows = 3, .bytes = 100, .is_inline = true};
    report = success_of(a);
    report.query_results = &rows;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    struct arena arena = {0};
    const struct result_info *results = NULL;
    CHECK_UINT(core_results(c.core, "q", &arena, &results), 1); /* the planner left none */
    CHECK_UINT(results[0].ref.stage, 1);
    arena_deinit(&arena);
    cluster_finish(&c);
}

TEST(a_query_that_its_planner_has_done_is_done_again_if_its_rows_are_lost)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct assignment *a = take_sql_planner(&c);
    struct task_rows rows = {.rows = 3, .bytes = 7000000};
    struct task_report report = success_of(a);
    report.query_results = &rows;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    struct command retry = {.kind = CMD_RETRY, .u.retry = {.job_id = "q", .results_lost = true}};
    CHECK_INT(cluster_do(&c, &retry)->kind, REPLY_JOB);
    a = worker_takes_task(&c, "w1", at("q", 0, 0));
    CHECK_UINT(a->ref.attempt, 2);
    cluster_finish(&c);
}

TEST(a_planning_task_is_told_the_sizes_of_what_it_waited_for)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(2, 2), RESULT_STAGE(1, AFTER(ON(0)), .planning = true)};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_maps(&c, "w1", at("q", 0, 1), 2);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 1, 0));
    CHECK_UINT(a->n_sources, 2);
    CHECK_UINT(a->sources[1].n_partitions, 2);
    CHECK_UINT(a->sources[1].ref.task, 1);
    cluster_finish(&c);
}

TEST(what_a_stage_has_written_is_known_after_the_end)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 0, 0));
    struct partition partition = {.bytes = 10, .rows = 4};
    struct task_report report = success_of(a);
    report.map_output = &partition;
    report.n_map_output = 1;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    a = worker_takes_task(&c, "w1", at("q", 1, 0));
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    struct stage_status status;
    CHECK_ERR(core_stage_status(c.core, "q", 0, &status), ERR_OK);
    CHECK_UINT(status.rows, 4);
    CHECK_UINT(status.bytes, 10);
    cluster_finish(&c);
}
