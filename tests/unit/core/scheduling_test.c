/*
 * scheduling_test.c - semantics section 4: the gates of GetTask, and the order in which tasks are handed out.
 */
#include <stdio.h>

#include "cluster.h"

TEST(coordinator_schedules_and_tracks_query_state)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(2, 1), RESULT_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    CHECK_INT(job_state_of(&c, "q"), JOB_QUEUED);
    CHECK_INT(job_of(&c, "q").submitted_at_ms, c.now_ms);
    CHECK_INT(job_of(&c, "q").started_at_ms, 0);

    cluster_advance(&c, 50);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    struct job_status job = job_of(&c, "q");
    CHECK_INT(job.state, JOB_RUNNING); /* from the first assignment on */
    CHECK_INT(job.started_at_ms, c.now_ms);
    struct stage_status stage;
    CHECK_ERR(core_stage_status(c.core, "q", 0, &stage), ERR_OK);
    CHECK_UINT(stage.n_tasks, 2);
    CHECK_UINT(stage.counts[TASK_SUCCEEDED], 1);
    CHECK_UINT(stage.counts[TASK_QUEUED], 1);
    worker_maps(&c, "w1", at("q", 0, 1), 1);

    cluster_advance(&c, 50);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 1, 0));
    CHECK_INT(worker_registers_result(&c, "w1", a, 10, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    job = job_of(&c, "q");
    CHECK_INT(job.state, JOB_SUCCEEDED);
    CHECK_INT(job.finished_at_ms, c.now_ms);
    CHECK_UINT(job.n_stages, 2);
    CHECK_UINT(job.running, 0);
    CHECK_INT(stored_job(&c.store, "q")->state, JOB_SUCCEEDED);
    CHECK_INT(stored_task(&c.store, at("q", 1, 0))->state, TASK_SUCCEEDED);
    cluster_finish(&c);
}

TEST(coordinator_enforces_worker_and_query_concurrency_limits)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 2;
    config.max_concurrent_tasks_per_query = 3;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    submit_tasks(&c, "q", 10);
    const struct reply *got = worker_polls(&c, "w1", 10);
    CHECK_UINT(got->u.tasks.n_tasks, 2); /* the worker's limit */
    worker_gets_nothing(&c, "w1");
    CHECK_UINT(worker_takes_up_to(&c, "w2", 10), 1); /* the query's */
    worker_gets_nothing(&c, "w3");
    CHECK_UINT(job_of(&c, "q").running, 3);

    CHECK_INT(worker_succeeds(&c, "w1", got->u.tasks.first), REFUSE_NONE);
    CHECK_UINT(worker_takes_up_to(&c, "w3", 10), 1);
    worker_gets_nothing(&c, "w1"); /* it has room, the query has not */
    submit_tasks(&c, "r", 10);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 10), 1); /* another query is not held up */
    cluster_finish(&c);
}

TEST(coordinator_assigns_custom_operator_tasks_only_to_capable_workers)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer both = {.ops = TEXTS("add_five", "scale")};
    const struct offer half = {.ops = TEXTS("scale")};
    worker_joins(&c, "plain");
    worker_joins_with(&c, "half", &half);
    worker_joins_with(&c, "both", &both);
    const struct requirement need = {.ops = TEXTS("scale", "add_five")};
    submit_tasks_for(&c, "q", 1, &need);
    worker_gets_nothing(&c, "plain");
    worker_gets_nothing(&c, "half");
    const struct assignment *a = worker_takes(&c, "both");
    CHECK_UINT(a->ops.count, 2);
    CHECK(string_list_has(a->ops, "add_five"));
    CHECK(string_list_has(a->ops, "scale"));
    cluster_finish(&c);
}

TEST(gate_1_an_unregistered_worker_or_an_old_incarnation_gets_an_error)
{
    struct cluster c;
    cluster_init(&c);
    submit_tasks(&c, "j", 1);
    struct cmd_get_task poll = {.worker_id = "ghost", .incarnation = "g#1", .capacity = 1};
    struct command command = {.kind = CMD_GET_TASK, .u = {.get_task = poll}};
    const struct reply *reply = cluster_do(&c, &command);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_STR(reply->message, refusal_text(REFUSE_UNKNOWN_WORKER));

    worker_joins(&c, "w1");
    worker_restarts(&c, "w1");
    struct cmd_get_task old = {.worker_id = "w1", .incarnation = "w1#1", .capacity = 1};
    command = (struct command){.kind = CMD_GET_TASK, .u = {.get_task = old}};
    reply = cluster_do(&c, &command);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_STR(reply->message, refusal_text(REFUSE_SUPERSEDED));
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    cluster_finish(&c);
}

TEST(gate_1_a_blacklisted_worker_gets_nothing)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.blacklist_failure_threshold = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 3);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(gate_2_capacity_zero_gets_nothing)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 0), 0);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 1), 1);
    cluster_finish(&c);
}

TEST(gate_2_no_more_than_capacity)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 8);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 3), 3);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 3), 3);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 3), 2);
    cluster_finish(&c);
}

TEST(gate_3_the_limit_per_worker_counts_over_all_jobs)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 5);
    submit_tasks(&c, "k", 5);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 100), 8);
    CHECK_UINT(node_of(&c, "w1").running, 8);
    cluster_fail_over(&c);
    CHECK_UINT(node_of(&c, "w1").running, 8);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(gate_4_the_limit_per_query_survives_a_failover)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_query = 2;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 5);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 100), 2);
    cluster_fail_over(&c);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(gate_5_all_tasks_of_all_required_parents_come_first)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {QUERY_STAGE(2), QUERY_STAGE(1), QUERY_STAGE(1, AFTER(ON(0), ON(1)))};
    SUBMIT_QUERY(&c, "j", stages);
    const struct assignment *a = worker_takes_task(&c, "w1", at("j", 0, 0));
    const struct assignment *b = worker_takes_task(&c, "w1", at("j", 0, 1));
    const struct assignment *d = worker_takes_task(&c, "w1", at("j", 1, 0));
    worker_gets_nothing(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", b), REFUSE_NONE);
    worker_gets_nothing(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", d), REFUSE_NONE);
    worker_takes_task(&c, "w1", at("j", 2, 0));
    cluster_finish(&c);
}

TEST(gate_6_a_task_in_backoff_waits_until_it_is_ready)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    int64_t ready_ms = task_of(&c, "j", 0, 0).ready_at_ms;
    CHECK(ready_ms > c.now_ms);
    cluster_advance(&c, ready_ms - c.now_ms - 1);
    worker_gets_nothing(&c, "w1");
    cluster_advance(&c, 1);
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(gate_7_executor_operators_and_engine_must_match)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer other_engine = {.executors = TEXTS("sql"), .ops = TEXTS("op"), .engine = "1.4 x86"};
    const struct offer right = {.executors = TEXTS("sql"), .ops = TEXTS("op"), .engine = "1.5 x86"};
    worker_joins_with(&c, "other", &other_engine);
    worker_joins(&c, "plain");
    worker_joins_with(&c, "right", &right);
    const struct requirement need = {.executor = "sql", .ops = TEXTS("op"), .engine = "1.5 x86"};
    submit_tasks_for(&c, "j", 1, &need);
    worker_gets_nothing(&c, "other");
    worker_gets_nothing(&c, "plain");
    worker_takes(&c, "right");
    cluster_finish(&c);
}

TEST(gate_8_placement_holds)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    const struct requirement need = {.forbidden_nodes = TEXTS("w1")};
    submit_tasks_for(&c, "j", 1, &need);
    worker_gets_nothing(&c, "w1");
    worker_takes(&c, "w2");
    cluster_finish(&c);
}

TEST(gate_9_a_task_avoids_the_worker_that_it_failed_on)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    worker_gets_nothing(&c, "w1");
    submit_tasks(&c, "k", 1);
    worker_runs(&c, "w1", at("k", 0, 0)); /* other tasks are not meant */
    worker_runs(&c, "w2", at("j", 0, 0));
    cluster_finish(&c);
}

TEST(gate_9_opens_when_no_other_live_worker_could_take_it)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_joins_with(&c, "w1", &docker);
    worker_joins_with(&c, "w2", &docker);
    worker_joins(&c, "unfit");
    const struct requirement need = {.executor = "docker"};
    submit_tasks_for(&c, "j", 1, &need);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    worker_gets_nothing(&c, "w1");
    worker_dies(&c, "w2");
    cluster_advance(&c, 17 * SECOND_MS);
    worker_takes(&c, "w1"); /* the other is not live, the third cannot do it */
    cluster_finish(&c);
}

TEST(gate_9_a_draining_worker_is_no_alternative)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    operator_drains(&c, "w2", true);
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(gate_9_opens_when_it_failed_on_all_of_them)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    CHECK_INT(worker_fails(&c, "w2", worker_takes(&c, "w2"), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(a_lost_worker_is_avoided_by_what_it_lost_no_longer_than_needed)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    worker_restarts(&c, "w1"); /* alone: it must get its task back */
    cluster_advance(&c, SECOND_MS);
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(urgent_jobs_come_first)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks_urgent(&c, "low", 1, 3);
    submit_tasks_urgent(&c, "normal", 1, 2);
    submit_tasks_urgent(&c, "high", 1, 1);
    submit_tasks_urgent(&c, "urgent", 1, 0);
    const char *const order[] = {"urgent", "high", "normal", "low"};
    const struct assignment *a = worker_polls(&c, "w1", 8)->u.tasks.first;
    for (int i = 0; i < 4; i++, a = a->next) {
        CHECK_STR(a->ref.task.job_id, order[i]);
    }
    cluster_finish(&c);
}

TEST(urgent_jobs_come_first_whatever_they_require)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_joins_with(&c, "w1", &docker);
    submit_tasks_urgent(&c, "normal", 3, 2);
    const struct requirement need = {.executor = "docker"};
    struct stage_spec stage = QUERY_STAGE(2);
    stage.need = &need;
    struct cmd_submit request = submit_request("urgent", JOB_KIND_QUERY, &stage, 1);
    request.priority = 0;
    submit_ok(&c, &request);
    worker_takes_task(&c, "w1", at("urgent", 0, 0));
    worker_takes_task(&c, "w1", at("urgent", 0, 1));
    worker_takes_task(&c, "w1", at("normal", 0, 0));
    cluster_finish(&c);
}

TEST(jobs_of_the_same_priority_take_turns)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "a", 3);
    submit_tasks(&c, "b", 3);
    uint32_t from_a = 0;
    for (uint32_t i = 0; i < 6; i++) {
        const struct assignment *a = worker_takes(&c, "w1");
        from_a += a->ref.task.job_id[0] == 'a';
        CHECK(i % 2 == 0 || from_a == (i + 1) / 2);
    }
    cluster_finish(&c);
}

TEST(jobs_take_turns_within_one_poll)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "a", 100);
    submit_tasks(&c, "b", 100);
    submit_tasks(&c, "d", 100);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 6), 6);
    CHECK_UINT(job_of(&c, "a").running, 2);
    CHECK_UINT(job_of(&c, "b").running, 2);
    CHECK_UINT(job_of(&c, "d").running, 2);
    cluster_finish(&c);
}

TEST(jobs_take_turns_whatever_they_require)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_joins_with(&c, "w1", &docker);
    const struct requirement need = {.executor = "docker"};
    submit_tasks(&c, "a", 100);
    submit_tasks_for(&c, "b", 100, &need);
    for (int i = 0; i < 4; i++) {
        CHECK_UINT(worker_takes_up_to(&c, "w1", 2), 2);
        uint32_t a = job_of(&c, "a").running;
        uint32_t b = job_of(&c, "b").running;
        CHECK_UINT(a, b);
    }
    cluster_finish(&c);
}

TEST(a_job_does_not_get_more_turns_by_having_more_kinds_of_tasks)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer all = {.executors = TEXTS("x", "y", "z")};
    worker_joins_with(&c, "w1", &all);
    const struct requirement x = {.executor = "x"};
    const struct requirement y = {.executor = "y"};
    const struct requirement z = {.executor = "z"};
    struct stage_spec stages[] = {QUERY_STAGE(10), QUERY_STAGE(10), QUERY_STAGE(10)};
    stages[0].need = &x;
    stages[1].need = &y;
    stages[2].need = &z;
    SUBMIT_QUERY(&c, "many", stages);
    submit_tasks_for(&c, "one", 10, &x);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 8);
    CHECK_UINT(job_of(&c, "many").running, 4);
    CHECK_UINT(job_of(&c, "one").running, 4);
    cluster_finish(&c);
}

TEST(within_a_job_stages_and_tasks_go_in_order)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {QUERY_STAGE(2), QUERY_STAGE(2), QUERY_STAGE(1)};
    SUBMIT_QUERY(&c, "j", stages);
    const struct assignment *a = worker_polls(&c, "w1", 8)->u.tasks.first;
    const uint32_t order[][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}};
    for (size_t i = 0; i < ARRAY_LEN(order); i++, a = a->next) {
        CHECK_UINT(a->ref.task.stage, order[i][0]);
        CHECK_UINT(a->ref.task.task, order[i][1]);
    }
    cluster_finish(&c);
}

TEST(within_a_job_stages_go_in_order_whatever_they_require)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_joins_with(&c, "w1", &docker);
    submit_tasks(&c, "earlier", 1); /* makes the class of the plain tasks older */
    worker_runs(&c, "w1", at("earlier", 0, 0));
    const struct requirement need = {.executor = "docker"};
    struct stage_spec stages[] = {QUERY_STAGE(2), QUERY_STAGE(2), QUERY_STAGE(2)};
    stages[0].need = &need;
    stages[2].need = &need;
    SUBMIT_QUERY(&c, "j", stages);
    for (uint32_t i = 0; i < 6; i++) {
        worker_takes_task(&c, "w1", at("j", i / 2, i % 2));
    }
    cluster_finish(&c);
}

TEST(a_task_that_comes_back_keeps_its_place)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 5);
    const struct assignment *a = worker_takes_task(&c, "w1", at("j", 0, 0));
    worker_takes_task(&c, "w1", at("j", 0, 1));
    CHECK_INT(worker_releases(&c, "w1", a), REFUSE_NONE);
    worker_takes_task(&c, "w1", at("j", 0, 0));
    worker_takes_task(&c, "w1", at("j", 0, 2));
    cluster_finish(&c);
}

TEST(a_job_at_its_limit_never_blocks_others)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_query = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks_urgent(&c, "greedy", 1000, 0);
    submit_tasks_urgent(&c, "modest", 1, 3);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 2);
    CHECK_UINT(job_of(&c, "greedy").running, 1);
    CHECK_UINT(job_of(&c, "modest").running, 1);
    cluster_finish(&c);
}

TEST(tasks_that_nobody_can_run_block_nobody)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    for (int i = 0; i < 50; i++) {
        char name[16];
        snprintf(name, sizeof(name), "need%d", i);
        const struct requirement need = {.executor = name};
        submit_tasks_for(&c, name, 3, &need);
    }
    submit_tasks_urgent(&c, "plain", 1, 3);
    worker_runs(&c, "w1", at("plain", 0, 0));
    cluster_finish(&c);
}

TEST(the_worker_that_holds_the_inputs_is_preferred_in_the_same_batch)
{
    const char *const holders[] = {"w1", "w2", "w3"};
    for (int i = 0; i < 3; i++) {
        struct cluster c;
        cluster_init(&c);
        worker_joins(&c, "w1");
        worker_joins(&c, "w2");
        worker_joins(&c, "w3");
        struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0)))};
        SUBMIT_QUERY(&c, "q", stages);
        worker_maps(&c, holders[i], at("q", 0, 0), 1);
        cluster_begin(&c);
        uint64_t polls[3];
        for (int w = 0; w < 3; w++) {
            polls[w] = worker_waits(&c, holders[w], 1, 1000);
        }
        cluster_end(&c);
        CHECK_UINT(worker_answer(&c, holders[i], polls[i])->u.tasks.n_tasks, 1);
        cluster_finish(&c);
    }
}

TEST(gate_9_a_forbidden_or_foreign_worker_is_no_alternative)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    const struct requirement needs[] = {{.forbidden_nodes = TEXTS("w2", "w3", "w9")}, {.allowed_nodes = TEXTS("w1")}};
    const char *const jobs[] = {"forbidden", "allowed"};
    for (int i = 0; i < 2; i++) {
        submit_tasks_for(&c, jobs[i], 1, &needs[i]);
        CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
        cluster_advance(&c, SECOND_MS);
        worker_runs(&c, "w1", at(jobs[i], 0, 0));
    }
    cluster_finish(&c);
}

TEST(gate_9_opens_when_the_alternative_is_blacklisted_and_closes_again)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.blacklist_failure_threshold = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "noise", 1);
    CHECK_INT(worker_fails(&c, "w2", worker_takes(&c, "w2"), "boom"), REFUSE_NONE);
    client_cancels(&c, "noise");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    operator_clears(&c, "w1");
    cluster_advance(&c, SECOND_MS);
    CHECK_INT(worker_releases(&c, "w1", worker_takes(&c, "w1")), REFUSE_NONE); /* w2 is blacklisted: no choice */
    operator_clears(&c, "w2");
    worker_gets_nothing(&c, "w1");
    worker_runs(&c, "w2", at("j", 0, 0));
    cluster_finish(&c);
}

TEST(gate_9_wakes_the_waiting_poll_when_the_alternative_goes)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    uint64_t poll = worker_waits(&c, "w1", 1, 60000);
    CHECK(worker_answer(&c, "w1", poll) == NULL);
    worker_leaves(&c, "w2");
    CHECK(worker_answer(&c, "w1", poll) != NULL);
    CHECK_UINT(worker_answer(&c, "w1", poll)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(gate_9_remembers_several_workers_in_any_order)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_task_attempts = 20;
    cluster_init_with(&c, config);
    const char *const names[] = {"m", "c", "x", "a", "p", "b"};
    for (int i = 0; i < 6; i++) {
        worker_joins(&c, names[i]);
    }
    submit_tasks(&c, "j", 1);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(worker_fails(&c, names[i], worker_takes(&c, names[i]), "boom"), REFUSE_NONE);
        cluster_fail_over(&c);
        cluster_advance(&c, 30 * SECOND_MS);
        for (int before = 0; before <= i; before++) {
            worker_gets_nothing(&c, names[before]);
        }
    }
    CHECK_INT(worker_fails(&c, "p", worker_takes(&c, "p"), "boom"), REFUSE_NONE); /* more than are remembered */
    cluster_advance(&c, 60 * SECOND_MS);
    worker_runs(&c, "b", at("j", 0, 0));
    cluster_finish(&c);
}

TEST(a_poll_for_many_stops_at_the_workers_limit)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 7);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 7), 7);
    uint64_t poll = worker_waits(&c, "w1", 5, 60000);
    submit_tasks(&c, "k", 10);
    CHECK_UINT(worker_answer(&c, "w1", poll)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(commands_of_one_batch_see_each_other)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    cluster_begin(&c);
    uint64_t poll = worker_waits(&c, "w1", 8, 60000);
    submit_tasks(&c, "canceled", 2);
    CHECK_INT(client_cancels(&c, "canceled"), JOB_CANCELED);
    submit_tasks(&c, "kept", 1);
    CHECK(cluster_reply(&c, poll) == NULL); /* polls are served at the end of the batch */
    cluster_end(&c);
    const struct reply *reply = worker_answer(&c, "w1", poll);
    CHECK_UINT(reply->u.tasks.n_tasks, 1);
    CHECK_STR(reply->u.tasks.first->ref.task.job_id, "kept");
    cluster_finish(&c);
}

TEST(a_lease_taken_and_lost_in_one_batch_leaves_nothing_behind)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    cluster_begin(&c);
    CHECK_INT(worker_releases(&c, "w1", a), REFUSE_NONE);
    uint64_t poll = worker_waits(&c, "w1", 1, 0);
    cluster_end(&c);
    const struct assignment *b = worker_answer(&c, "w1", poll)->u.tasks.first;
    CHECK_UINT(b->ref.attempt, 2);
    CHECK(lease_token_equal(stored_lease(&c.store, at("j", 0, 0))->token, b->ref.token));
    cluster_finish(&c);
}

TEST(equal_requirements_share_a_class_and_equal_offers_a_profile)
{
    struct cluster c;
    cluster_init(&c);
    c.checks = false;
    const struct offer docker = {.executors = TEXTS("docker")};
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        worker_joins_with(&c, name, i % 2 == 0 ? &docker : &NOTHING_SPECIAL);
        const struct requirement need = {.executor = i % 2 == 0 ? "docker" : NULL};
        submit_tasks_for(&c, name, 5, &need);
    }
    CHECK_UINT(core_stats(c.core).classes, 2);
    CHECK_UINT(core_stats(c.core).profiles, 2);
    cluster_finish(&c);
}

TEST(classes_that_nobody_uses_do_not_pile_up)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.ended_jobs_resident = 10;
    cluster_init_with(&c, config);
    c.checks = false;
    worker_joins(&c, "w1");
    for (int i = 0; i < 5000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "need%d", i);
        const struct requirement need = {.executor = name};
        submit_tasks_for(&c, name, 1, &need);
        client_cancels(&c, name);
        cluster_forget(&c);
    }
    CHECK(core_stats(c.core).classes < 2500);
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(gate_9_tells_tasks_apart_that_failed_on_different_workers)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 3);
    CHECK_INT(worker_fails(&c, "w1", worker_takes_task(&c, "w1", at("j", 0, 0)), "boom"), REFUSE_NONE);
    CHECK_INT(worker_fails(&c, "w2", worker_takes_task(&c, "w2", at("j", 0, 1)), "boom"), REFUSE_NONE);
    worker_runs(&c, "w1", at("j", 0, 2));
    cluster_advance(&c, SECOND_MS);
    worker_runs(&c, "w1", at("j", 0, 1));
    worker_gets_nothing(&c, "w1");
    worker_runs(&c, "w2", at("j", 0, 0));
    cluster_finish(&c);
}

/* Polls of both in one batch; true if the first got the one task that there is. */
static bool first_gets_it(struct cluster *c, const char *first, const char *second)
{
    cluster_begin(c);
    uint64_t p1 = worker_waits(c, first, 1, 1000);
    uint64_t p2 = worker_waits(c, second, 1, 1000);
    cluster_end(c);
    const struct reply *r1 = worker_answer(c, first, p1);
    const struct reply *r2 = worker_answer(c, second, p2);
    CHECK_UINT((r1 != NULL ? r1->u.tasks.n_tasks : 0) + (r2 != NULL ? r2->u.tasks.n_tasks : 0), 1);
    return r1 != NULL && r1->u.tasks.n_tasks == 1;
}

TEST(a_worker_is_not_preferred_beyond_the_limit_per_node)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    const struct requirement one = {.max_parallel_per_node = 1};
    struct stage_spec stages[] = {MAP_STAGE(1, 2), QUERY_STAGE(2, AFTER(READS_ALL(0)))};
    stages[1].need = &one;
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_takes_task(&c, "w1", at("q", 1, 0));
    CHECK(!first_gets_it(&c, "w1", "w2")); /* it holds the inputs, but runs one already */
    cluster_finish(&c);
}

TEST(a_worker_is_not_preferred_for_what_it_failed)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS_ALL(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes_task(&c, "w1", at("q", 1, 0)), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    CHECK(!first_gets_it(&c, "w1", "w2"));
    cluster_finish(&c);
}

TEST(a_full_worker_is_not_preferred)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS_ALL(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *m = worker_takes_task(&c, "w1", at("q", 0, 0));
    CHECK_INT(worker_registers_map(&c, "w1", m, 1), REFUSE_NONE);
    submit_tasks(&c, "other", 1);
    cluster_begin(&c);
    CHECK_INT(worker_succeeds(&c, "w1", m), REFUSE_NONE);
    cluster_end(&c);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 1), 1);
    CHECK(!first_gets_it(&c, "w1", "w2"));
    cluster_finish(&c);
}
