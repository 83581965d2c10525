/*
 * Corners that went wrong once: each of these was a bug, found by reading the core with bad intentions.
 */
#include <stdio.h>
#include <string.h>

#include "core/cluster.h"

static struct command added_report(struct cluster *c, const char *w, const struct assignment *a, struct task_report *r,
                                   const struct stage_spec *added, uint32_t n)
{
    *r = report_on(a, TASK_SUCCEEDED);
    r->added = added;
    r->n_added = n;
    struct worker *wk = worker_named(c, w);
    return (struct command){.kind = CMD_REPORT, .u = {.report = {wk->worker_id, wk->incarnation, r, 1}}};
}

TEST(one_death_redoes_a_nondeterministic_map_and_all_that_was_made_of_it)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 1, .nondeterministic = true), MAP_STAGE(1, 2, AFTER(READS(0))),
                                  RESULT_STAGE(2, AFTER(READS(1)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w1", at("q", 1, 0), 2);
    const struct assignment *z0 = worker_takes_task(&c, "w2", at("q", 2, 0));
    CHECK_INT(worker_registers_result(&c, "w2", z0, 100, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w2", z0), REFUSE_NONE);
    worker_leaves(&c, "w1");
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 2, 0), TASK_QUEUED); /* must read the new rows */
    cluster_finish(&c);
}

TEST(a_retry_that_redoes_a_nondeterministic_map_restarts_finished_readers)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 1, .nondeterministic = true), MAP_STAGE(1, 2, AFTER(READS(0))),
                                  RESULT_STAGE(2, AFTER(READS(1)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w1", at("q", 1, 0), 2);
    const struct assignment *z0 = worker_takes_task(&c, "w1", at("q", 2, 0));
    CHECK_INT(worker_registers_result(&c, "w1", z0, 100, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", z0), REFUSE_NONE);
    const struct assignment *z1 = worker_takes_task(&c, "w1", at("q", 2, 1));
    CHECK_INT(worker_fails_for_good(&c, "w1", z1, "oops"), REFUSE_NONE);
    client_retries(&c, "q");
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED); /* X runs again */
    CHECK_INT(state_of(&c, "q", 2, 0), TASK_QUEUED); /* so Z0 must, too */
    cluster_finish(&c);
}

TEST(a_second_death_restarts_readers_behind_a_stage_that_is_being_redone)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    struct stage_spec stages[] = {MAP_STAGE(1, 1, .nondeterministic = true), MAP_STAGE(1, 2, AFTER(READS(0))),
                                  RESULT_STAGE(2, AFTER(READS(1)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w2", at("q", 1, 0), 2);
    const struct assignment *z0 = worker_takes_task(&c, "w3", at("q", 2, 0));
    CHECK_INT(worker_registers_result(&c, "w3", z0, 100, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w3", z0), REFUSE_NONE);
    worker_leaves(&c, "w2");
    worker_takes_task(&c, "w3", at("q", 1, 0)); /* R runs again */
    worker_leaves(&c, "w1");
    CHECK_INT(state_of(&c, "q", 2, 0), TASK_QUEUED);
    cluster_finish(&c);
}

TEST(many_classes_that_forbid_a_worker_do_not_hide_the_one_that_fits)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    uint64_t poll = worker_waits(&c, "w1", 1, 60000);
    for (int i = 0; i < 40; i++) {
        struct requirement need = {.forbidden_nodes = TEXTS("w1"), .max_parallel_per_node = (uint32_t)i + 1};
        char id[20];
        snprintf(id, sizeof id, "f%d", i);
        submit_tasks_for(&c, id, 1, &need);
    }
    struct requirement ok = {.max_parallel_per_node = 99};
    submit_tasks_for(&c, "ok", 1, &ok);
    cluster_advance(&c, 50000);
    const struct reply *r = worker_answer(&c, "w1", poll);
    CHECK(r != NULL && r->u.tasks.n_tasks == 1);
    cluster_finish(&c);
}

TEST(an_urgent_task_behind_many_forbidden_ones_still_goes_first)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    for (int i = 0; i < 40; i++) {
        struct requirement need = {.forbidden_nodes = TEXTS("w1"), .max_parallel_per_node = (uint32_t)i + 1};
        struct stage_spec stage = QUERY_STAGE(1);
        stage.need = &need;
        char id[20];
        snprintf(id, sizeof id, "f%d", i);
        struct cmd_submit r = submit_request(id, JOB_KIND_QUERY, &stage, 1);
        r.priority = 0;
        submit_ok(&c, &r);
    }
    submit_tasks_urgent(&c, "urgent", 1, 0);
    submit_tasks_urgent(&c, "low", 1, 3);
    worker_takes_task(&c, "w1", at("urgent", 0, 0));
    cluster_finish(&c);
}

TEST(a_stage_that_is_added_below_a_failed_one_is_skipped)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("a"), TREE_TASK("plan", .planning = true)};
    SUBMIT_TREE(&c, "t", stages);
    const struct assignment *a = worker_takes_task(&c, "w1", at("t", 0, 0));
    const struct assignment *p = worker_takes_task(&c, "w1", at("t", 1, 0));
    worker_fails_for_good(&c, "w1", a, "no");
    struct stage_parent par[] = {{.stage = 0}};
    struct stage_spec more = TREE_TASK("body", .parents = par, .n_parents = 1);
    struct task_report r;
    struct command cmd = added_report(&c, "w1", p, &r, &more, 1);
    cluster_do(&c, &cmd);
    cluster_advance(&c, 10000);
    worker_gets_nothing(&c, "w1");
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_SKIPPED);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    cluster_finish(&c);
}

TEST(a_blacklisted_worker_that_leaves_and_comes_back_is_still_blacklisted)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j1", 3);
    for (int i = 0; i < 3; i++) {
        const struct assignment *a = worker_takes(&c, "w1");
        worker_fails(&c, "w1", a, "x");
    }
    CHECK(node_of(&c, "w1").blacklisted);
    worker_leaves(&c, "w1");
    worker_restarts(&c, "w1");
    CHECK(node_of(&c, "w1").blacklisted);
    cluster_finish(&c);
}

TEST(a_backoff_of_any_size_is_capped)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec st = QUERY_STAGE(1);
    st.backoff_ms = INT64_MAX;
    st.max_attempts = 5;
    submit_stages(&c, "j", JOB_KIND_QUERY, &st, 1);
    for (int i = 0; i < 3; i++) {
        const struct assignment *a = worker_takes(&c, "w1");
        worker_fails(&c, "w1", a, "x");
        CHECK(task_of(&c, "j", 0, 0).ready_at_ms <= c.now_ms + 36000);
        cluster_advance(&c, 40000);
    }
    cluster_finish(&c);
}

TEST(a_child_task_keeps_the_time_at_which_it_started)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec st = QUERY_STAGE(1);
    struct stage_spec stages[] = {TREE_TASK("a", .child = true), TREE_TASK("b", AFTER(ON(0)))};
    SUBMIT_TREE(&c, "t", stages);
    int64_t started = stored_task(&c.store, at("t", 0, 0))->started_at_ms;
    struct attempt_ref ref = {.task = at("t", 0, 0), .attempt = 1};
    struct cmd_submit rq = submit_request("kid", JOB_KIND_QUERY, &st, 1);
    rq.parent = &ref;
    submit(&c, &rq);
    const struct assignment *a = worker_takes(&c, "w1");
    cluster_advance(&c, 5000);
    worker_succeeds(&c, "w1", a);
    child_is_read(&c, "kid");
    worker_takes(&c, "w1");
    CHECK_INT(stored_task(&c.store, at("t", 0, 0))->started_at_ms, started);
    cluster_finish(&c);
}

TEST(waiting_for_a_parent_is_not_waiting_for_a_worker)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("a"), TREE_TASK("b", AFTER(ON(0)))};
    SUBMIT_TREE(&c, "t", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    cluster_advance(&c, 5000);
    worker_succeeds(&c, "w1", a);
    CHECK_INT(worker_takes(&c, "w1")->queued_ms, 0);
    cluster_finish(&c);
}

TEST(a_retry_starts_counting_recoveries_anew)
{
    struct cluster c;
    struct core_config cf = core_config_default();
    cf.max_fetch_recoveries = 1;
    cluster_init_with(&c, cf);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    for (int i = 0; i < 2; i++) {
        worker_maps(&c, "w1", at("q", 0, 0), 1);
        worker_restarts(&c, "w1");
    }
    CHECK_INT(job_state_of(&c, "q"), JOB_FAILED);
    client_retries(&c, "q");
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_restarts(&c, "w1"); /* the first loss of this run */
    CHECK_INT(job_state_of(&c, "q"), JOB_RUNNING);
    cluster_finish(&c);
}

TEST(planning_stages_wait_for_others_but_read_nothing)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, .planning = true, AFTER(READS_ALL(0)))};
    struct cmd_submit request = submit_request("q", JOB_KIND_QUERY, stages, 2);
    const struct reply *reply = submit(&c, &request);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK(strstr(reply->message, "not read") != NULL);
    cluster_finish(&c);
}

TEST(a_stage_does_not_depend_on_another_twice)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0), READS_ALL(0)))};
    struct cmd_submit request = submit_request("q", JOB_KIND_QUERY, stages, 2);
    const struct reply *reply = submit(&c, &request);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_STR(reply->message, "stage 1 depends on stage 0 twice");
    cluster_finish(&c);
}

TEST(a_retry_from_a_planning_task_does_not_add_its_stages_again)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("plan", .planning = true)};
    SUBMIT_TREE(&c, "t", stages);
    const struct assignment *p = worker_takes_task(&c, "w1", at("t", 0, 0));
    struct stage_parent parent = {.stage = 0};
    struct stage_spec more = TREE_TASK("body", .parents = &parent, .n_parents = 1);
    struct task_report report;
    struct command command = added_report(&c, "w1", p, &report, &more, 1);
    cluster_do(&c, &command);
    worker_runs(&c, "w1", at("t", 1, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    client_retries_from(&c, "t", "plan");
    worker_runs(&c, "w1", at("t", 1, 0)); /* only what the plan added */
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    CHECK_UINT(job_of(&c, "t").n_stages, 2);
    cluster_finish(&c);
}

TEST(a_retry_from_a_planning_task_runs_stages_that_read_nothing_from_it)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {QUERY_STAGE(1, .planning = true, .name = "plan")};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *p = worker_takes_task(&c, "w1", at("q", 0, 0));
    struct stage_spec more = QUERY_STAGE(1, .name = "s0");
    struct task_report report;
    struct command command = added_report(&c, "w1", p, &report, &more, 1);
    cluster_do(&c, &command);
    worker_runs(&c, "w1", at("q", 1, 0));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    client_retries_from(&c, "q", "plan");
    CHECK_UINT(worker_runs(&c, "w1", at("q", 1, 0))->ref.attempt, 2);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    CHECK_INT(client_retries_from(&c, "q", "s7")->kind, REPLY_ERROR);
    cluster_finish(&c);
}

TEST(a_known_job_does_not_become_the_child_of_a_waiting_task)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stage = QUERY_STAGE(1);
    submit_stages(&c, "kid", JOB_KIND_QUERY, &stage, 1);
    struct stage_spec stages[] = {TREE_TASK("a", .child = true)};
    SUBMIT_TREE(&c, "t", stages);
    struct attempt_ref ref = {.task = at("t", 0, 0), .attempt = 1};
    struct cmd_submit request = submit_request("kid", JOB_KIND_QUERY, &stage, 1);
    request.parent = &ref;
    CHECK_ERR(submit(&c, &request)->code, ERR_EXISTS);
    cluster_finish(&c);
}

TEST(a_lost_worker_does_not_make_a_task_guilty)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 3);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 3), 3);
    worker_restarts(&c, "w1");
    worker_joins(&c, "w2");
    for (int i = 0; i < 3; i++) {
        CHECK_INT(worker_fails(&c, "w2", worker_takes(&c, "w2"), "boom"), REFUSE_NONE);
    }
    CHECK(node_of(&c, "w2").blacklisted);
    cluster_finish(&c);
}

TEST(a_success_without_its_output_counts_against_the_worker)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(4, 1)};
    SUBMIT_QUERY(&c, "q", stages);
    CHECK_INT(worker_succeeds(&c, "w1", worker_takes(&c, "w1")), REFUSE_BAD_OUTPUT);
    CHECK_UINT(node_of(&c, "w1").failures, 1);
    cluster_finish(&c);
}

TEST(a_blacklisting_does_not_end_because_the_next_leader_knows_no_end)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j1", 3);
    for (int i = 0; i < 3; i++) {
        worker_fails(&c, "w1", worker_takes(&c, "w1"), "x");
    }
    c.config.blacklist_ttl_ms = 0; /* never */
    cluster_fail_over(&c);
    CHECK(node_of(&c, "w1").blacklisted);
    cluster_finish(&c);
}

TEST(two_cores_may_write_into_the_same_effects)
{
    struct core_config config = core_config_default();
    struct effects fx = {0};
    struct core_input in = {.now_ms = 1000, .seed = {1, 2}};
    struct stage_spec stage = QUERY_STAGE(1);
    const char *ids[] = {"first", "second"};
    for (int i = 0; i < 2; i++) {
        struct core *core = core_new(&config, 1);
        struct command command = {
            .kind = CMD_SUBMIT, .reply_to = 1, .u = {.submit = submit_request(ids[i], JOB_KIND_QUERY, &stage, 1)}};
        core_step(core, &in, &command, &fx);
        core_free(core);
    }
    CHECK_STR(fx.replies->next->u.job.job_id, "second");
    effects_deinit(&fx);
}

TEST(the_limit_of_requirements_is_the_jobs_not_the_plans)
{
    struct cluster c;
    cluster_init(&c);
    c.checks = false;
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("p", .planning = true), TREE_TASK("p2", .planning = true)};
    SUBMIT_TREE(&c, "t", stages);
    static struct requirement need[600];
    static struct stage_spec more[600];
    for (uint32_t k = 0; k < 2; k++) {
        const struct assignment *p = worker_takes_task(&c, "w1", at("t", k, 0));
        for (uint32_t i = 0; i < 600; i++) {
            need[i] = (struct requirement){.executor = "no", .max_parallel_per_node = k * 600 + i + 1};
            more[i] = (struct stage_spec)TREE_TASK("x");
            more[i].need = &need[i];
        }
        struct task_report report = report_on(p, TASK_SUCCEEDED);
        report.added = more;
        report.n_added = 600;
        CHECK_INT(worker_reports(&c, "w1", &report), k == 0 ? REFUSE_NONE : REFUSE_BAD_OUTPUT);
    }
    cluster_finish(&c);
}

TEST(an_assignment_that_waits_for_its_commit_is_not_lost)
{
    struct core_config config = core_config_default();
    struct effects fx = {0};
    struct core *core = core_new(&config, 1);
    struct stage_spec stage = QUERY_STAGE(1);
    struct task_status task;
    struct command steps[] = {
        {.kind = CMD_REGISTER, .reply_to = 1, .u = {.reg = {.worker_id = "w1", .incarnation = "i1", .slots = 1}}},
        {.kind = CMD_SUBMIT, .reply_to = 2, .u = {.submit = submit_request("j", JOB_KIND_QUERY, &stage, 1)}},
        {.kind = CMD_GET_TASK,
         .reply_to = 3,
         .u = {.get_task = {.worker_id = "w1", .incarnation = "i1", .capacity = 1, .wait_ms = 0}}},
        {.kind = CMD_TICK},
    };
    struct core_input in = {.now_ms = 1000, .seed = {1, 2}};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        core_step(core, &in, &steps[i], &fx);
    }
    struct command beat = {
        .kind = CMD_HEARTBEAT, .reply_to = 4, .u = {.heartbeat = {.worker_id = "w1", .incarnation = "i1"}}};
    in.pending_since_ms = 1000; /* the commit takes for ever */
    for (in.now_ms = 1500; in.now_ms < 60000; in.now_ms += 500) {
        core_step(core, &in, &beat, &fx);
    }
    CHECK_ERR(core_task_status(core, at("j", 0, 0), &task), ERR_OK);
    CHECK_INT(task.state, TASK_RUNNING);
    in.pending_since_ms = 0; /* it is durable, the answer leaves and is lost */
    for (; in.now_ms < 70000; in.now_ms += 500) {
        core_step(core, &in, &beat, &fx);
    }
    CHECK_ERR(core_task_status(core, at("j", 0, 0), &task), ERR_OK);
    CHECK_INT(task.state, TASK_QUEUED);
    core_free(core);
    effects_deinit(&fx);
}

TEST(a_missing_operator_costs_its_worker_nothing)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer offer = {.ops = TEXTS("x")};
    worker_joins_with(&c, "w1", &offer);
    const struct requirement need = {.ops = TEXTS("x")};
    submit_tasks_for(&c, "j", 1, &need);
    CHECK_INT(
        worker_fails(&c, "w1", worker_takes(&c, "w1"), "custom physical operator 'x' is not registered on worker"),
        REFUSE_NONE);
    CHECK_UINT(node_of(&c, "w1").failures, 0);
    cluster_finish(&c);
}

TEST(an_idempotency_key_is_free_again_a_day_after_its_job_ended)
{
    struct cluster c;
    cluster_init(&c);
    c.checks = false;
    struct stage_spec stage = QUERY_STAGE(1);
    struct cmd_submit first = submit_request("first", JOB_KIND_QUERY, &stage, 1);
    first.idempotency_key = "k";
    submit_ok(&c, &first);
    client_cancels(&c, "first");
    struct cmd_submit second = submit_request("second", JOB_KIND_QUERY, &stage, 1);
    second.idempotency_key = "k";
    cluster_advance(&c, 23 * 3600 * SECOND_MS);
    CHECK_STR(submit(&c, &second)->u.job.job_id, "first");
    cluster_advance(&c, 2 * 3600 * SECOND_MS);
    CHECK_STR(submit(&c, &second)->u.job.job_id, "second");
    cluster_finish(&c);
}

TEST(a_task_that_avoids_the_free_worker_does_not_say_that_it_has_room)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "busy", 1);
    worker_takes(&c, "w2");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    struct arena arena = {0};
    struct pending_reason reason;
    CHECK_UINT(core_why_pending(c.core, "j", &arena, &reason, 1), 1);
    CHECK_STR(reason.reason, "all 2 matching workers are full");
    arena_deinit(&arena);
    cluster_finish(&c);
}
