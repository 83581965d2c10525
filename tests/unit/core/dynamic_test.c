/*
 * dynamic_test.c - jobs that grow: planning tasks that add stages (semantics section 10), and child jobs.
 */
#include <string.h>

#include "cluster.h"

/* ---- planning tasks ---- */

static enum refusal plan(struct cluster *c, const struct assignment *a, const struct stage_spec *stages, uint32_t n)
{
    struct task_report report = report_on(a, TASK_SUCCEEDED);
    report.added = stages;
    report.n_added = n;
    return worker_reports(c, "w1", &report);
}

static const struct assignment *take_planner(struct cluster *c)
{
    struct stage_spec planner[] = {QUERY_STAGE(1, .planning = true)};
    SUBMIT_QUERY(c, "q", planner);
    return worker_takes_task(c, "w1", at("q", 0, 0));
}

TEST(the_report_of_a_planning_task_adds_stages)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct assignment *a = take_planner(&c);
    struct stage_spec added[] = {MAP_STAGE(2, 1), RESULT_STAGE(1, AFTER(READS(0)))};
    CHECK_INT(plan(&c, a, added, 2), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_RUNNING);
    CHECK_UINT(job_of(&c, "q").n_stages, 3); /* the next free ids */
    CHECK_UINT(stored_job(&c.store, "q")->n_stages, 3);
    CHECK_UINT(stored_stage(&c.store, "q", 2)->spec->parents[0].stage, 1);
    cluster_fail_over(&c);
    worker_maps(&c, "w1", at("q", 1, 0), 1);
    worker_maps(&c, "w1", at("q", 1, 1), 1);
    const struct assignment *r = worker_takes_task(&c, "w1", at("q", 2, 0));
    CHECK_UINT(r->n_sources, 2);
    CHECK_UINT(r->sources[0].ref.stage, 1);
    CHECK_INT(worker_registers_result(&c, "w1", r, 10, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", r), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_planning_task_without_further_stages_just_succeeds)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    CHECK_INT(plan(&c, take_planner(&c), NULL, 0), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_repeated_planning_report_adds_nothing_twice)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct assignment *a = take_planner(&c);
    struct stage_spec added[] = {QUERY_STAGE(1)};
    CHECK_INT(plan(&c, a, added, 1), REFUSE_NONE);
    CHECK_INT(plan(&c, a, added, 1), REFUSE_NONE);
    CHECK_UINT(job_of(&c, "q").n_stages, 2);
    cluster_fail_over(&c);
    CHECK_INT(plan(&c, a, added, 1), REFUSE_NONE);
    CHECK_UINT(job_of(&c, "q").n_stages, 2);
    cluster_finish(&c);
}

TEST(a_second_planning_task_is_told_sizes_and_adds_stages_that_read_finished_ones)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(2, 2), QUERY_STAGE(1, AFTER(ON(0)), .planning = true)};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_maps(&c, "w1", at("q", 0, 1), 2);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 1, 0));
    uint64_t rows = 0;
    uint64_t bytes = 0;
    CHECK_ERR(core_stage_sizes(c.core, "q", 0, &rows, &bytes), ERR_OK);
    CHECK_UINT(rows, 42); /* two maps of 10 + 11 rows */
    CHECK_UINT(bytes, 4002);

    const struct stage_parent reads_old = {.stage = 0, .read = READ_PARTITION};
    struct stage_spec added[] = {QUERY_STAGE(2)};
    added[0].parents = &reads_old;
    added[0].n_parents = 1;
    CHECK_INT(plan(&c, a, added, 1), REFUSE_NONE);
    cluster_fail_over(&c);
    const struct assignment *r = worker_takes_task(&c, "w1", at("q", 2, 0));
    CHECK_UINT(r->n_sources, 2);
    CHECK_UINT(r->sources[0].n_partitions, 1);
    cluster_finish(&c);
}

/* The planner's stages are wrong: the task has failed for good, and with it the query. */
static void check_bad_plan(const struct stage_spec *added, uint32_t n)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct assignment *a = take_planner(&c);
    plan(&c, a, added, n);
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_FAILED);
    CHECK_INT(job_state_of(&c, "q"), JOB_FAILED);
    CHECK_UINT(job_of(&c, "q").n_stages, 1);
    CHECK(stored_stage(&c.store, "q", 1) == NULL);
    CHECK_UINT(task_of(&c, "q", 0, 0).attempt, 1);
    CHECK(strlen(job_of(&c, "q").message) > 0);
    CHECK_UINT(node_of(&c, "w1").failures, 0);
    cluster_finish(&c);
}

TEST(bad_stages_fail_the_planning_task_for_good)
{
    struct stage_spec unknown_parent[] = {QUERY_STAGE(1, AFTER(ON(7)))};
    check_bad_plan(unknown_parent, 1);
    struct stage_spec unknown_stage[] = {QUERY_STAGE(1, AFTER(ON_STAGE(9)))};
    check_bad_plan(unknown_stage, 1);
    struct stage_spec cycle[] = {QUERY_STAGE(1, AFTER(ON(1))), QUERY_STAGE(1, AFTER(ON(0)))};
    check_bad_plan(cycle, 2);
    struct stage_spec no_tasks[] = {QUERY_STAGE(0)};
    check_bad_plan(no_tasks, 1);
}

TEST(only_planning_tasks_may_add_stages)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "q", 1);
    struct stage_spec added[] = {QUERY_STAGE(1)};
    plan(&c, worker_takes(&c, "w1"), added, 1);
    CHECK_UINT(job_of(&c, "q").n_stages, 1);
    cluster_finish(&c);
}

TEST(a_planning_task_that_fails_is_retried_like_any_other)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    CHECK_INT(worker_fails(&c, "w1", take_planner(&c), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    struct stage_spec added[] = {QUERY_STAGE(1)};
    CHECK_INT(plan(&c, worker_takes_task(&c, "w1", at("q", 0, 0)), added, 1), REFUSE_NONE);
    worker_runs(&c, "w1", at("q", 1, 0));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_stale_planner_adds_nothing)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct assignment *a = take_planner(&c);
    client_cancels(&c, "q");
    struct stage_spec added[] = {QUERY_STAGE(1)};
    CHECK_STALE(plan(&c, a, added, 1));
    CHECK_UINT(stored_job(&c.store, "q")->n_stages, 1);
    cluster_finish(&c);
}

/* ---- child jobs ---- */

/* The newest child that the core asked for. */
static struct child_start last_child(const struct cluster *c)
{
    const struct child_start *last = c->fx.children;
    CHECK(last != NULL);
    while (last->next != NULL) {
        last = last->next;
    }
    return *last;
}

static uint32_t count_children(const struct cluster *c)
{
    uint32_t n = 0;
    for (const struct child_start *child = c->fx.children; child != NULL; child = child->next) {
        n++;
    }
    return n;
}

static struct task_spec SUB_INPUTS[1] = {{.inputs_bytes = 12}};

/* Tree "t": a, then the child task "sub", then "z". */
static void submit_parent(struct cluster *c)
{
    SUB_INPUTS[0].inputs = digest_of("select 42");
    struct stage_spec stages[] = {TREE_TASK("a"), TREE_TASK("sub", AFTER(ON(0)), .child = true, .max_attempts = 1),
                                  TREE_TASK("z", AFTER(ON(1)))};
    stages[1].tasks = SUB_INPUTS;
    SUBMIT_TREE(c, "t", stages);
}

static const struct reply *submit_child(struct cluster *c, const char *job_id)
{
    struct stage_spec stage = QUERY_STAGE(1);
    struct cmd_submit request = submit_request(job_id, JOB_KIND_QUERY, &stage, 1);
    struct attempt_ref parent = last_child(c).ref;
    request.parent = &parent;
    return submit(c, &request);
}

/* Up to the point where the child job is queued. */
static void start_child(struct cluster *c)
{
    submit_parent(c);
    CHECK_UINT(count_children(c), 0);
    worker_runs(c, "w1", at("t", 0, 0));
    CHECK_UINT(count_children(c), 1);
    CHECK_INT(submit_child(c, "kid")->kind, REPLY_SUBMIT);
}

TEST(a_child_task_runs_as_a_job_without_slot_or_lease)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    struct child_start child = last_child(&c);
    CHECK_STR(child.ref.task.job_id, "t");
    CHECK_UINT(child.ref.task.stage, 1);
    CHECK_UINT(child.ref.attempt, 1);
    CHECK(digest_equal(child.inputs, digest_of("select 42")));
    CHECK_UINT(child.inputs_bytes, 12);
    CHECK_UINT(child.n_parents, 1);
    CHECK_STR(child.parents[0].name, "a");
    CHECK(child.parents[0].has_succeeded);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_RUNNING);
    CHECK_UINT(core_stats(c.core).leases, 0);
    CHECK(task_of(&c, "t", 1, 0).worker_id == NULL);
    CHECK_STR(stored_job(&c.store, "kid")->parent.task.job_id, "t");
    cluster_fail_over(&c);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_RUNNING);
    CHECK_UINT(count_children(&c), 1); /* it has its job: not asked for again */

    worker_runs(&c, "w1", at("kid", 0, 0));
    CHECK_INT(job_state_of(&c, "kid"), JOB_SUCCEEDED);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_RUNNING); /* until somebody says what the child brought */
    child_is_read(&c, "kid");
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_SUCCEEDED);
    const struct row_task *row = stored_task(&c.store, at("t", 1, 0));
    CHECK(digest_equal(row->result, digest_of("{\"row_count\":42}")));
    CHECK_UINT(row->result_bytes, 16);
    CHECK_UINT(row->rows, 42);
    cluster_fail_over(&c);
    worker_runs(&c, "w1", at("t", 2, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_child_whose_time_is_limited_is_asked_for_by_every_leader)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("sub", .child = true, .timeout_ms = 5000)};
    SUBMIT_TREE(&c, "t", stages);
    CHECK_UINT(last_child(&c).timeout_ms, 5000);
    CHECK_UINT(last_child(&c).timeout_left_ms, 5000);
    CHECK_INT(submit_child(&c, "kid")->kind, REPLY_SUBMIT);
    cluster_advance(&c, 2000);
    cluster_fail_over(&c);
    CHECK_UINT(count_children(&c), 2);
    CHECK_UINT(last_child(&c).timeout_ms, 5000);
    CHECK_UINT(last_child(&c).timeout_left_ms, 3000);
    CHECK(submit_child(&c, "kid")->u.job.existed);
    cluster_advance(&c, 4000);
    cluster_fail_over(&c);
    CHECK_UINT(last_child(&c).timeout_left_ms, 0);
    worker_runs(&c, "w1", at("kid", 0, 0));
    child_is_read(&c, "kid");
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED); /* nobody was strict */
    cluster_finish(&c);
}

TEST(a_child_is_told_which_of_its_parents_failed)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("a"), TREE_TASK("b"),
                                  TREE_TASK("sub", AFTER(ON_ANY_END(0), ON(1)), .child = true)};
    SUBMIT_TREE(&c, "t", stages);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("t", 0, 0)), "no"), REFUSE_NONE);
    worker_runs(&c, "w1", at("t", 1, 0));
    for (uint32_t i = 1; i <= 2; i++) { /* and the next leader says the same */
        CHECK_UINT(count_children(&c), i);
        struct child_start child = last_child(&c);
        CHECK_UINT(child.n_parents, 2);
        CHECK_STR(child.parents[0].name, "a");
        CHECK(!child.parents[0].has_succeeded);
        CHECK_STR(child.parents[1].name, "b");
        CHECK(child.parents[1].has_succeeded);
        cluster_fail_over(&c);
    }
    cluster_finish(&c);
}

TEST(a_child_that_ended_before_a_failover_is_found_again)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    struct attempt_ref ref = last_child(&c).ref;
    worker_runs(&c, "w1", at("kid", 0, 0));
    cluster_fail_over(&c);
    CHECK_UINT(count_children(&c), 2); /* nobody has said yet what it brought */
    cluster_load_job(&c, "kid");
    const struct reply *again = submit_child(&c, "kid");
    CHECK_INT(again->kind, REPLY_SUBMIT);
    CHECK(again->u.job.existed);
    CHECK_INT(again->u.job.state, JOB_SUCCEEDED);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_RUNNING);
    CHECK_INT(child_is_done(&c, ref)->kind, REPLY_ACCEPT);
    CHECK_INT(child_is_done(&c, ref)->code, ERR_STALE); /* said twice, as by the clerks of two terms */
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_child_whose_rows_cannot_be_read_fails_its_task)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    worker_runs(&c, "w1", at("kid", 0, 0));
    struct cmd_child_failed failed = {.ref = last_child(&c).ref, .message = "the rows are lost"};
    struct command command = {.kind = CMD_CHILD_FAILED, .u = {.child_failed = failed}};
    CHECK_INT(cluster_do(&c, &command)->kind, REPLY_DONE);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_FAILED);
    CHECK_INT(child_is_done(&c, failed.ref)->code, ERR_STALE);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    cluster_finish(&c);
}

TEST(a_child_that_is_run_again_before_it_was_read_holds_its_task)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("sub", .child = true)};
    SUBMIT_TREE(&c, "t", stages);
    struct stage_spec work[] = {TREE_TASK("only")};
    struct cmd_submit request = submit_request("kid", JOB_KIND_TREE, work, 1);
    struct attempt_ref parent = last_child(&c).ref;
    request.parent = &parent;
    submit_ok(&c, &request);
    worker_runs(&c, "w1", at("kid", 0, 0));
    CHECK_INT(client_retries_from(&c, "kid", "only")->kind, REPLY_JOB);
    CHECK_INT(child_is_done(&c, parent)->code, ERR_STALE); /* what was read is not what will be */
    cluster_fail_over(&c);
    CHECK_UINT(count_children(&c), 1); /* it has its job */
    worker_runs(&c, "w1", at("kid", 0, 0));
    child_is_read(&c, "kid");
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_parent_canceled_before_its_child_was_read_stays_canceled)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    struct attempt_ref ref = last_child(&c).ref;
    worker_runs(&c, "w1", at("kid", 0, 0));
    CHECK_INT(client_cancels(&c, "t"), JOB_CANCELED);
    CHECK_INT(job_state_of(&c, "kid"), JOB_SUCCEEDED); /* it had ended */
    CHECK_INT(child_is_done(&c, ref)->code, ERR_STALE);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_CANCELED);
    cluster_finish(&c);
}

TEST(a_child_that_was_not_started_before_a_failover_is_asked_for_again)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_parent(&c);
    worker_runs(&c, "w1", at("t", 0, 0));
    CHECK_UINT(count_children(&c), 1);
    cluster_fail_over(&c);
    CHECK_UINT(count_children(&c), 2);
    CHECK(last_child(&c).parents[0].has_succeeded);
    CHECK_INT(submit_child(&c, "kid")->kind, REPLY_SUBMIT);
    worker_runs(&c, "w1", at("kid", 0, 0));
    child_is_read(&c, "kid");
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_failed_child_fails_its_task)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("kid", 0, 0)), "no"), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "kid"), JOB_FAILED);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_FAILED);
    CHECK_STR(stored_task(&c.store, at("t", 1, 0))->message,
              "child job kid failed: task 0 of stage 0 failed in attempt 1: no");
    CHECK(c.fx.child_ends == NULL);
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_SKIPPED);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    cluster_finish(&c);
}

TEST(a_canceled_child_ends_its_task)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    CHECK_INT(client_cancels(&c, "kid"), JOB_CANCELED);
    CHECK(task_state_is_terminal(state_of(&c, "t", 1, 0)));
    CHECK(state_of(&c, "t", 1, 0) != TASK_SUCCEEDED);
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_SKIPPED);
    CHECK(job_state_is_terminal(job_state_of(&c, "t")));
    cluster_finish(&c);
}

TEST(a_canceled_parent_cancels_its_running_child)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    const struct assignment *a = worker_takes_task(&c, "w1", at("kid", 0, 0));
    CHECK_INT(client_cancels(&c, "t"), JOB_CANCELED);
    CHECK_INT(job_state_of(&c, "kid"), JOB_CANCELED);
    CHECK_INT(stored_job(&c.store, "kid")->state, JOB_CANCELED);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_CANCELED);
    worker_beats(&c, "w1");
    CHECK(worker_was_stopped(&c, "w1", a));
    CHECK_INT(job_state_of(&c, "t"), JOB_CANCELED);
    cluster_finish(&c);
}

TEST(a_parent_that_stops_on_failure_cancels_its_child)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("sub", .child = true), TREE_TASK("bad")};
    struct cmd_submit request = submit_request("t", JOB_KIND_TREE, stages, 2);
    request.stop_on_failure = true;
    submit_ok(&c, &request);
    CHECK_INT(submit_child(&c, "kid")->kind, REPLY_SUBMIT);
    const struct assignment *a = worker_takes(&c, "w1");
    a = strcmp(a->ref.task.job_id, "t") == 0 ? a : worker_takes(&c, "w1");
    CHECK_INT(worker_fails_for_good(&c, "w1", a, "no"), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    CHECK_INT(job_state_of(&c, "kid"), JOB_CANCELED);
    cluster_finish(&c);
}

TEST(a_child_that_cannot_be_started_fails_its_task)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_parent(&c);
    worker_runs(&c, "w1", at("t", 0, 0));
    struct cmd_child_failed failed = {.ref = last_child(&c).ref, .message = "parser error"};
    struct command command = {.kind = CMD_CHILD_FAILED, .u = {.child_failed = failed}};
    CHECK_INT(cluster_do(&c, &command)->kind, REPLY_DONE);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_FAILED);
    CHECK_STR(stored_task(&c.store, at("t", 1, 0))->message, "parser error");
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    cluster_finish(&c);
}

TEST(a_child_of_a_parent_that_went_away_is_refused)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_parent(&c);
    worker_runs(&c, "w1", at("t", 0, 0));
    client_cancels(&c, "t");
    uint64_t rows = c.store.n_applied;
    CHECK_INT(submit_child(&c, "kid")->kind, REPLY_ERROR);
    CHECK(!core_has_job(c.core, "kid"));
    CHECK_UINT(c.store.n_applied, rows);
    cluster_finish(&c);
}

TEST(a_child_submitted_twice_is_the_same_child)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    const struct reply *again = submit_child(&c, "kid");
    CHECK_INT(again->kind, REPLY_SUBMIT);
    CHECK(again->u.job.existed);
    worker_runs(&c, "w1", at("kid", 0, 0));
    again = submit_child(&c, "kid"); /* and after its end */
    CHECK_INT(again->kind, REPLY_SUBMIT);
    CHECK(again->u.job.existed);
    child_is_read(&c, "kid");
    again = submit_child(&c, "kid"); /* and when it was read */
    CHECK_INT(again->kind, REPLY_SUBMIT);
    CHECK(again->u.job.existed);
    cluster_finish(&c);
}

TEST(a_retried_parent_starts_a_new_child)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), "no"), REFUSE_NONE);
    CHECK(!job_state_is_terminal(client_retries(&c, "t")));
    CHECK_UINT(count_children(&c), 2);
    CHECK_UINT(last_child(&c).ref.attempt, 2);
    CHECK_INT(submit_child(&c, "kid")->code, ERR_EXISTS); /* that one was of the attempt before */
    CHECK_INT(submit_child(&c, "kid2")->kind, REPLY_SUBMIT);
    worker_runs(&c, "w1", at("kid2", 0, 0));
    child_is_read(&c, "kid2");
    worker_runs(&c, "w1", at("t", 2, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(reports_about_a_child_task_are_refused)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    struct task_report forged = {.ref = last_child(&c).ref, .state = TASK_SUCCEEDED};
    CHECK(worker_reports(&c, "w1", &forged) != REFUSE_NONE);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_RUNNING);
    cluster_finish(&c);
}

TEST(news_about_a_child_that_is_not_current_are_refused)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    struct cmd_child_failed failed = {.ref = last_child(&c).ref, .message = "late"};
    failed.ref.attempt = 7;
    struct command command = {.kind = CMD_CHILD_FAILED, .u = {.child_failed = failed}};
    CHECK_INT(cluster_do(&c, &command)->kind, REPLY_ERROR);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_RUNNING);
    failed.ref = (struct attempt_ref){.task = at("t", 0, 0), .attempt = 1}; /* no child task at all */
    command = (struct command){.kind = CMD_CHILD_FAILED, .u = {.child_failed = failed}};
    CHECK_INT(cluster_do(&c, &command)->kind, REPLY_ERROR);
    CHECK_INT(child_is_done(&c, last_child(&c).ref)->code, ERR_STALE); /* the child still runs */
    CHECK_INT(child_is_done(&c, failed.ref)->code, ERR_STALE);
    failed.ref = (struct attempt_ref){.task = at("nobody", 0, 0), .attempt = 1};
    CHECK_INT(child_is_done(&c, failed.ref)->code, ERR_STALE);
    cluster_finish(&c);
}

TEST(a_child_stage_has_one_task_and_no_output)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec two[] = {QUERY_STAGE(2, .child = true)};
    struct cmd_submit request = submit_request("t", JOB_KIND_QUERY, two, 1);
    CHECK_INT(submit(&c, &request)->kind, REPLY_ERROR);
    struct stage_spec shuffled[] = {MAP_STAGE(1, 1, .child = true)};
    request = submit_request("t", JOB_KIND_QUERY, shuffled, 1);
    CHECK_INT(submit(&c, &request)->kind, REPLY_ERROR);
    cluster_finish(&c);
}

TEST(grandchildren_end_with_their_grandparent)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("sub", .child = true)};
    SUBMIT_TREE(&c, "t", stages);
    struct cmd_submit request = submit_request("kid", JOB_KIND_TREE, stages, 1);
    struct attempt_ref parent = last_child(&c).ref;
    request.parent = &parent;
    submit_ok(&c, &request);
    CHECK_INT(submit_child(&c, "grandkid")->kind, REPLY_SUBMIT);
    CHECK_INT(state_of(&c, "kid", 0, 0), TASK_RUNNING);
    cluster_fail_over(&c);
    client_cancels(&c, "t");
    CHECK_INT(job_state_of(&c, "kid"), JOB_CANCELED);
    CHECK_INT(job_state_of(&c, "grandkid"), JOB_CANCELED);
    cluster_finish(&c);
}

TEST(the_end_of_a_grandchild_reaches_the_grandparent)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("sub", .child = true)};
    SUBMIT_TREE(&c, "t", stages);
    struct cmd_submit request = submit_request("kid", JOB_KIND_TREE, stages, 1);
    struct attempt_ref parent = last_child(&c).ref;
    request.parent = &parent;
    submit_ok(&c, &request);
    CHECK_INT(submit_child(&c, "grandkid")->kind, REPLY_SUBMIT);
    worker_runs(&c, "w1", at("grandkid", 0, 0));
    CHECK_INT(job_state_of(&c, "grandkid"), JOB_SUCCEEDED);
    child_is_read(&c, "grandkid");
    CHECK_INT(job_state_of(&c, "kid"), JOB_SUCCEEDED);
    child_is_read(&c, "kid");
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_canceled_parent_that_is_retried_asks_for_a_new_child)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    const struct assignment *old = worker_takes_task(&c, "w1", at("kid", 0, 0));
    client_cancels(&c, "t");
    CHECK(!job_state_is_terminal(client_retries(&c, "t")));
    CHECK_UINT(last_child(&c).ref.attempt, 2);
    CHECK_INT(submit_child(&c, "kid2")->kind, REPLY_SUBMIT);
    CHECK_STALE(worker_succeeds(&c, "w1", old)); /* the old child stays canceled */
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_RUNNING);
    worker_runs(&c, "w1", at("kid2", 0, 0));
    child_is_read(&c, "kid2");
    worker_runs(&c, "w1", at("t", 2, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_child_that_is_retried_by_itself_leaves_its_ended_parent_alone)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    start_child(&c);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), "no"), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    CHECK(!job_state_is_terminal(client_retries(&c, "kid")));
    cluster_fail_over(&c);
    worker_runs(&c, "w1", at("kid", 0, 0));
    CHECK_INT(stored_job(&c.store, "kid")->state, JOB_SUCCEEDED);
    CHECK_INT(stored_job(&c.store, "t")->state, JOB_FAILED); /* terminal stays terminal */
    cluster_finish(&c);
}
