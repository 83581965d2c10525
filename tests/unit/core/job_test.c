/*
 * job_test.c - semantics sections 1, 2 and 8: a job's identity, its end by cancel, and its new life by retry.
 */
#include <string.h>

#include "cluster.h"

TEST(a_known_id_with_the_same_content_returns_that_job)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stage = QUERY_STAGE(1);
    struct cmd_submit request = submit_request("j", JOB_KIND_QUERY, &stage, 1);
    submit_ok(&c, &request);
    uint64_t rows = c.store.n_applied;
    const struct reply *again = submit(&c, &request);
    CHECK_INT(again->kind, REPLY_SUBMIT);
    CHECK(again->u.job.existed);
    CHECK_STR(again->u.job.job_id, "j");
    CHECK_INT(again->u.job.state, JOB_QUEUED);
    CHECK_UINT(c.store.n_applied, rows);

    worker_runs(&c, "w1", at("j", 0, 0));
    again = submit(&c, &request); /* ended or not */
    CHECK(again->u.job.existed);
    CHECK_INT(again->u.job.state, JOB_SUCCEEDED);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(a_known_id_with_other_content_is_refused)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec stage = QUERY_STAGE(1);
    struct cmd_submit request = submit_request("j", JOB_KIND_QUERY, &stage, 1);
    submit_ok(&c, &request);
    request.content = digest_of("something else");
    uint64_t rows = c.store.n_applied;
    for (int i = 0; i < 2; i++) {
        const struct reply *reply = submit(&c, &request);
        CHECK_INT(reply->kind, REPLY_ERROR);
        CHECK_ERR(reply->code, ERR_EXISTS);
        CHECK_UINT(c.store.n_applied, rows);
        cluster_fail_over(&c);
    }
    cluster_finish(&c);
}

TEST(a_second_submit_with_the_same_idempotency_key_returns_the_first_job)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stage = QUERY_STAGE(1);
    struct cmd_submit first = submit_request("first", JOB_KIND_QUERY, &stage, 1);
    first.idempotency_key = "order-17";
    submit_ok(&c, &first);
    CHECK_STR(core_job_by_key(c.core, "order-17"), "first");
    CHECK(core_job_by_key(c.core, "order-18") == NULL);

    struct cmd_submit second = submit_request("second", JOB_KIND_QUERY, &stage, 1);
    second.idempotency_key = "order-17";
    const struct reply *reply = submit(&c, &second);
    CHECK_INT(reply->kind, REPLY_SUBMIT);
    CHECK_STR(reply->u.job.job_id, "first");
    CHECK(reply->u.job.existed);
    CHECK(!core_has_job(c.core, "second"));
    CHECK_STR(stored_job(&c.store, "first")->idempotency_key, "order-17");
    cluster_fail_over(&c);
    CHECK_STR(core_job_by_key(c.core, "order-17"), "first");
    worker_runs(&c, "w1", at("first", 0, 0));
    reply = submit(&c, &second); /* also after it ended */
    CHECK_STR(reply->u.job.job_id, "first");
    CHECK_INT(reply->u.job.state, JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(jobs_without_an_idempotency_key_have_nothing_to_do_with_each_other)
{
    struct cluster c;
    cluster_init(&c);
    submit_tasks(&c, "a", 1);
    submit_tasks(&c, "b", 1);
    CHECK(core_has_job(c.core, "a"));
    CHECK(core_has_job(c.core, "b"));
    CHECK(!core_has_job(c.core, "d"));
    cluster_finish(&c);
}

TEST(a_submitted_job_is_described_as_it_was_asked_for)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec stages[] = {TREE_TASK("a", .max_attempts = 0), TREE_TASK("b", AFTER(ON(0)))};
    struct cmd_submit request = submit_request("j", JOB_KIND_TREE, stages, 2);
    request.name = "nightly";
    request.priority = 1;
    submit_ok(&c, &request);
    struct job_status job = job_of(&c, "j");
    CHECK_STR(job.job_id, "j");
    CHECK_STR(job.name, "nightly");
    CHECK_INT(job.kind, JOB_KIND_TREE);
    CHECK_UINT(job.priority, 1);
    CHECK_UINT(job.n_stages, 2);
    struct stage_status stage;
    CHECK_ERR(core_stage_status(c.core, "j", 1, &stage), ERR_OK);
    CHECK_STR(stage.name, "b");
    CHECK_UINT(stage.counts[TASK_QUEUED], 1);
    CHECK_ERR(core_stage_status(c.core, "j", 2, &stage), ERR_NOT_FOUND);
    struct task_status task;
    CHECK_ERR(core_task_status(c.core, at("j", 1, 1), &task), ERR_NOT_FOUND);
    CHECK_ERR(core_task_status(c.core, at("x", 0, 0), &task), ERR_NOT_FOUND);
    CHECK_ERR(core_job_status(c.core, "x", &job), ERR_NOT_FOUND);
    CHECK_UINT(cluster_events(&c, EVENT_CREATED), 1);
    CHECK_STR(cluster_event(&c, EVENT_CREATED)->ref.job_id, "j");
    CHECK_UINT(cluster_event(&c, EVENT_CREATED)->ref.stage, EVENT_WHOLE_JOB);
    cluster_finish(&c);
}

/* ---- cancel ---- */

TEST(a_queued_job_is_canceled)
{
    struct cluster c;
    cluster_init(&c);
    submit_tasks(&c, "j", 3);
    CHECK_INT(client_cancels(&c, "j"), JOB_CANCELED);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_CANCELED);
    CHECK_INT(stored_job(&c.store, "j")->state, JOB_CANCELED);
    CHECK_INT(stored_job(&c.store, "j")->finished_at_ms, c.now_ms);
    CHECK(strstr(stored_job(&c.store, "j")->message, "by hand") != NULL);
    CHECK_INT(stored_task(&c.store, at("j", 0, 2))->state, TASK_CANCELED);
    CHECK(cluster_events(&c, EVENT_CANCELLED) > 0);
    worker_joins(&c, "w1");
    worker_gets_nothing(&c, "w1");
    CHECK_INT(client_cancels(&c, "j"), JOB_CANCELED); /* again */
    cluster_finish(&c);
}

TEST(a_running_job_is_canceled_and_its_workers_are_told_by_heartbeat)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 3);
    const struct assignment *a = worker_takes(&c, "w1");
    const struct assignment *b = worker_takes(&c, "w2");
    CHECK_INT(client_cancels(&c, "j"), JOB_CANCELED);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_CANCELED);
    CHECK_UINT(core_stats(c.core).leases, 0);
    CHECK_UINT(row_store_count(&c.store, ROW_LEASE), 0);
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 1)->outcome, OUTCOME_LOST);
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.n_stop, 1);
    CHECK_UINT(worker_beats(&c, "w2")->u.heartbeat.n_stop, 1);
    CHECK(worker_was_stopped(&c, "w1", a));
    CHECK(worker_was_stopped(&c, "w2", b));
    CHECK_UINT(node_of(&c, "w1").running, 0);
    cluster_finish(&c);
}

TEST(a_stop_order_survives_a_failover_because_heartbeats_repeat_it)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    client_cancels(&c, "j");
    cluster_fail_over(&c);
    cluster_advance(&c, 4 * SECOND_MS);
    CHECK(worker_was_stopped(&c, "w1", a));
    cluster_finish(&c);
}

TEST(a_job_in_backoff_is_canceled_for_good)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    CHECK_INT(client_cancels(&c, "j"), JOB_CANCELED);
    cluster_advance(&c, 60 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_CANCELED);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(an_ended_job_cannot_be_canceled)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_runs(&c, "w1", at("j", 0, 0));
    uint64_t rows = c.store.n_applied;
    CHECK_INT(client_cancels(&c, "j"), JOB_SUCCEEDED);
    CHECK_UINT(c.store.n_applied, rows);
    cluster_finish(&c);
}

TEST(commands_about_unknown_jobs_are_refused)
{
    struct cluster c;
    cluster_init(&c);
    struct command cancel = {.kind = CMD_CANCEL, .u = {.cancel = {.job_id = "x"}}};
    const struct reply *reply = cluster_do(&c, &cancel);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_ERR(reply->code, ERR_NOT_FOUND);
    reply = client_retries_from(&c, "x", NULL);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_ERR(reply->code, ERR_NOT_FOUND);
    cluster_finish(&c);
}

/* ---- retry ---- */

/* a fails, b after it is skipped, d succeeds. */
static void run_half_failed_tree(struct cluster *c)
{
    struct stage_spec stages[] = {TREE_TASK("a", .max_attempts = 0), TREE_TASK("b", AFTER(ON(0))), TREE_TASK("d"),
                                  TREE_TASK("e", AFTER(ON(2)))};
    SUBMIT_TREE(c, "t", stages);
    CHECK_INT(worker_fails_for_good(c, "w1", worker_takes_task(c, "w1", at("t", 0, 0)), "no"), REFUSE_NONE);
    worker_runs(c, "w1", at("t", 2, 0));
    worker_runs(c, "w1", at("t", 3, 0));
    CHECK_INT(job_state_of(c, "t"), JOB_FAILED);
}

TEST(a_retry_runs_what_did_not_succeed)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    run_half_failed_tree(&c);
    CHECK(!job_state_is_terminal(client_retries(&c, "t")));
    CHECK_UINT(cluster_events(&c, EVENT_RETRIED), 1);
    CHECK_INT(stored_job(&c.store, "t")->finished_at_ms, 0);
    CHECK_INT(state_of(&c, "t", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_SUCCEEDED);
    cluster_fail_over(&c);
    CHECK_UINT(worker_runs(&c, "w1", at("t", 0, 0))->ref.attempt, 2); /* attempts only grow */
    CHECK_UINT(worker_runs(&c, "w1", at("t", 1, 0))->ref.attempt, 1);
    worker_gets_nothing(&c, "w1");
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_retried_task_has_its_full_budget_again)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
            operator_clears(&c, "w1");
            cluster_advance(&c, 2 * SECOND_MS);
        }
        CHECK_INT(job_state_of(&c, "j"), JOB_FAILED);
        CHECK(!job_state_is_terminal(client_retries(&c, "j")));
    }
    CHECK_UINT(worker_runs(&c, "w1", at("j", 0, 0))->ref.attempt, 7);
    CHECK_INT(job_state_of(&c, "j"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_canceled_job_can_be_retried_and_its_old_attempts_stay_refused)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    worker_runs(&c, "w1", at("j", 0, 0));
    const struct assignment *a = worker_takes_task(&c, "w1", at("j", 0, 1));
    client_cancels(&c, "j");
    CHECK(!job_state_is_terminal(client_retries(&c, "j")));
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_SUCCEEDED);
    CHECK_STALE(worker_succeeds(&c, "w1", a));
    CHECK_UINT(worker_runs(&c, "w1", at("j", 0, 1))->ref.attempt, 2);
    CHECK_INT(job_state_of(&c, "j"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_retry_from_a_task_runs_it_and_what_depends_on_it)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    run_half_failed_tree(&c);
    const struct reply *reply = client_retries_from(&c, "t", "d");
    CHECK_INT(reply->kind, REPLY_JOB);
    CHECK_INT(state_of(&c, "t", 0, 0), TASK_QUEUED); /* did not succeed */
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_QUEUED); /* asked for */
    CHECK_INT(state_of(&c, "t", 3, 0), TASK_QUEUED); /* depends on it */
    cluster_fail_over(&c);
    worker_runs(&c, "w1", at("t", 0, 0));
    worker_runs(&c, "w1", at("t", 1, 0));
    CHECK_UINT(worker_runs(&c, "w1", at("t", 2, 0))->ref.attempt, 2);
    CHECK_UINT(worker_runs(&c, "w1", at("t", 3, 0))->ref.attempt, 2);
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_retry_from_an_unknown_task_is_refused_and_moves_nothing)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    run_half_failed_tree(&c);
    uint64_t rows = c.store.n_applied;
    CHECK_INT(client_retries_from(&c, "t", "nobody")->kind, REPLY_ERROR);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    CHECK_UINT(c.store.n_applied, rows);
    cluster_finish(&c);
}

TEST(a_retry_of_a_running_job_just_returns_its_state)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    CHECK_INT(client_retries(&c, "j"), JOB_QUEUED);
    const struct assignment *a = worker_takes(&c, "w1");
    uint64_t rows = c.store.n_applied;
    CHECK_INT(client_retries(&c, "j"), JOB_RUNNING);
    CHECK_UINT(c.store.n_applied, rows);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

static const struct reply *retry_lost(struct cluster *c, const char *job_id)
{
    struct command command = {.kind = CMD_RETRY, .u = {.retry = {.job_id = job_id, .results_lost = true}}};
    return cluster_do(c, &command);
}

TEST(a_succeeded_query_runs_again_only_if_its_results_were_lost)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), RESULT_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 1, 0));
    CHECK_INT(worker_registers_result(&c, "w1", a, 9000000, false), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    client_retries_from(&c, "q", NULL);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);

    CHECK_INT(retry_lost(&c, "q")->kind, REPLY_JOB);
    CHECK(!job_state_is_terminal(job_state_of(&c, "q")));
    cluster_fail_over(&c);
    worker_maps(&c, "w1", at("q", 0, 0), 1); /* its shuffle files went with the end of the job */
    a = worker_takes_task(&c, "w1", at("q", 1, 0));
    CHECK_UINT(a->ref.attempt, 2);
    CHECK_UINT(a->sources[0].attempt, 2);
    CHECK_INT(worker_registers_result(&c, "w1", a, 9000000, false), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_failed_query_is_retried_with_map_outputs_made_anew)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(2, 1), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w1", at("q", 0, 1), 1);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), "no"), REFUSE_NONE);
    CHECK_UINT(row_store_count(&c.store, ROW_MAP_OUTPUT), 0); /* swept */
    CHECK(!job_state_is_terminal(client_retries(&c, "q")));
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w1", at("q", 0, 1), 1);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 1, 0));
    CHECK_UINT(a->n_sources, 2);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

/* ---- how many there may be ---- */

TEST(tasks_over_the_limit_are_refused_at_submit_and_retry_and_ended_jobs_do_not_count)
{
    struct cluster c;
    struct core_config config = core_config_default();
    struct stage_spec three = QUERY_STAGE(3);
    struct cmd_submit request = submit_request("b", JOB_KIND_QUERY, &three, 1);
    config.max_live_tasks = 5;
    cluster_init_with(&c, config);
    submit_tasks(&c, "a", 3);
    const struct reply *reply = submit(&c, &request);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_ERR(reply->code, ERR_EXHAUSTED);
    CHECK_STR(reply->message,
              "jobs that have not ended have 3 tasks, and with the 3 of this one that would be more than 5");
    CHECK(!core_has_job(c.core, "b"));
    struct stage_spec six = QUERY_STAGE(6);
    struct cmd_submit large = submit_request("large", JOB_KIND_QUERY, &six, 1);
    reply = submit(&c, &large);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_ERR(reply->code, ERR_INVALID); /* it need not be tried again */
    CHECK_STR(reply->message, "the job has 6 tasks, and max_live_tasks is 5");
    submit_tasks(&c, "d", 2); /* just as many as there may be */
    client_cancels(&c, "a");
    submit_ok(&c, &request);
    reply = client_retries_from(&c, "a", NULL);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_ERR(reply->code, ERR_EXHAUSTED);
    client_cancels(&c, "d");
    client_cancels(&c, "b");
    reply = client_retries_from(&c, "a", NULL);
    CHECK_INT(reply->kind, REPLY_JOB);
    cluster_finish(&c);
}

/* ---- ended jobs that left the memory ---- */

static struct core_config forgetful(void)
{
    struct core_config config = core_config_default();
    config.ended_jobs_resident = 0;
    return config;
}

TEST(ended_jobs_stay_in_memory_up_to_the_limit)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.ended_jobs_resident = 2;
    cluster_init_with(&c, config);
    const char *const names[] = {"a", "b", "d", "e"};
    for (int i = 0; i < 4; i++) {
        submit_tasks(&c, names[i], 1);
        client_cancels(&c, names[i]);
    }
    cluster_tick(&c);
    CHECK(!core_has_job(c.core, "a"));
    CHECK(!core_has_job(c.core, "b"));
    CHECK(core_has_job(c.core, "d"));
    CHECK(core_has_job(c.core, "e"));
    cluster_finish(&c);
}

TEST(an_ended_job_is_brought_back_for_late_messages)
{
    struct cluster c;
    cluster_init_with(&c, forgetful());
    worker_joins(&c, "w1");
    struct stage_spec stage = QUERY_STAGE(2);
    struct cmd_submit request = submit_request("j", JOB_KIND_QUERY, &stage, 1);
    request.idempotency_key = "key";
    submit_ok(&c, &request);
    const struct assignment *a = worker_takes(&c, "w1");
    const struct assignment *b = worker_takes(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", b), REFUSE_NONE);
    cluster_tick(&c);
    CHECK(!core_has_job(c.core, "j"));

    cluster_begin(&c); /* whoever drives the core loads it in the batch of the late message */
    cluster_load_job(&c, "j");
    CHECK(core_has_job(c.core, "j"));
    CHECK_STR(core_job_by_key(c.core, "key"), "j");
    CHECK_INT(job_state_of(&c, "j"), JOB_SUCCEEDED);
    CHECK_INT(worker_succeeds(&c, "w1", b), REFUSE_NONE); /* its answer was lost */
    CHECK_STALE(worker_fails(&c, "w1", a, "late"));
    CHECK(submit(&c, &request)->u.job.existed);
    CHECK_INT(job_state_of(&c, "j"), JOB_SUCCEEDED);
    cluster_end(&c);
    cluster_finish(&c);
}

TEST(an_ended_job_that_was_brought_back_can_be_retried)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.ended_jobs_resident = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    run_half_failed_tree(&c);
    submit_tasks(&c, "other", 1);
    client_cancels(&c, "other");
    CHECK(!core_has_job(c.core, "t"));
    cluster_load_job(&c, "t");
    CHECK(core_has_job(c.core, "t"));
    CHECK(!job_state_is_terminal(client_retries(&c, "t")));
    cluster_fail_over(&c);
    worker_runs(&c, "w1", at("t", 0, 0));
    worker_runs(&c, "w1", at("t", 1, 0));
    CHECK_INT(stored_job(&c.store, "t")->state, JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_failover_forgets_ended_jobs_and_keeps_the_others)
{
    struct cluster c;
    cluster_init(&c);
    submit_tasks(&c, "live", 1);
    submit_tasks(&c, "dead", 1);
    client_cancels(&c, "dead");
    cluster_fail_over(&c);
    CHECK(core_has_job(c.core, "live"));
    CHECK(!core_has_job(c.core, "dead"));
    cluster_load_job(&c, "dead");
    CHECK_INT(job_state_of(&c, "dead"), JOB_CANCELED);
    CHECK(job_of(&c, "dead").finished_at_ms > 0);
    CHECK_UINT(core_stats(c.core).jobs, 1); /* statistics are about those that have not ended */
    CHECK_UINT(core_stats(c.core).tasks[TASK_QUEUED], 1);
    CHECK_UINT(core_stats(c.core).tasks[TASK_CANCELED], 0);
    CHECK_INT(state_of(&c, "dead", 0, 0), TASK_CANCELED);
    cluster_finish(&c);
}

TEST(results_of_an_ended_job_come_back_with_it)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.ended_jobs_resident = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {RESULT_STAGE(1)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_result(&c, "w1", a, 500, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    submit_tasks(&c, "other", 1);
    client_cancels(&c, "other");
    cluster_load_job(&c, "q");
    struct output_info info;
    struct error e;
    CHECK_ERR(core_result(c.core, at("q", 0, 0), &info, &e), ERR_OK);
    CHECK_UINT(info.bytes, 500);
    CHECK(info.is_inline);
    cluster_finish(&c);
}

TEST(every_event_of_a_tasks_life_is_emitted)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    struct task_ref ref = at("j", 0, 0);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_UINT(cluster_task_events(&c, EVENT_ASSIGNED, ref), 1);
    CHECK_STR(cluster_event(&c, EVENT_ASSIGNED)->worker_id, "w1");
    CHECK_UINT(cluster_event(&c, EVENT_ASSIGNED)->attempt, 1);
    CHECK_INT(worker_starts(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(worker_fails(&c, "w1", a, "boom"), REFUSE_NONE);
    CHECK_UINT(cluster_task_events(&c, EVENT_FAILED, ref), 1);
    CHECK_STR(cluster_event(&c, EVENT_FAILED)->message, "boom");
    cluster_advance(&c, SECOND_MS);
    worker_runs(&c, "w1", ref);
    CHECK_UINT(cluster_task_events(&c, EVENT_ASSIGNED, ref), 2);
    CHECK_UINT(cluster_task_events(&c, EVENT_COMPLETED, ref), 1);
    cluster_finish(&c);
}

TEST(states_and_events_have_their_names)
{
    CHECK_STR(job_state_name(JOB_QUEUED), "queued");
    CHECK_STR(job_state_name(JOB_CANCELED), "canceled");
    CHECK_STR(task_state_name(TASK_SKIPPED), "skipped");
    CHECK_STR(task_state_name(TASK_SUCCEEDED), "succeeded");
    CHECK_STR(attempt_outcome_name(OUTCOME_PENDING), "pending");
    CHECK_STR(attempt_outcome_name(OUTCOME_LOST), "lost");
    CHECK_STR(event_type_name(EVENT_CANCELLED), "cancelled");
    CHECK_STR(event_type_name(EVENT_STUCK), "stuck");
}

TEST(a_priority_out_of_range_is_refused)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec stage = QUERY_STAGE(1);
    struct cmd_submit request = submit_request("j", JOB_KIND_QUERY, &stage, 1);
    request.priority = 4;
    const struct reply *reply = submit(&c, &request);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_ERR(reply->code, ERR_INVALID);
    CHECK(!core_has_job(c.core, "j"));
    cluster_finish(&c);
}

TEST(every_event_type_is_emitted_somewhere)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    run_half_failed_tree(&c);
    CHECK(cluster_events(&c, EVENT_CREATED) > 0);
    CHECK(cluster_events(&c, EVENT_PENDING) > 0);
    CHECK(cluster_events(&c, EVENT_ASSIGNED) > 0);
    CHECK(cluster_events(&c, EVENT_COMPLETED) > 0);
    CHECK(cluster_events(&c, EVENT_FAILED) > 0);
    CHECK(cluster_events(&c, EVENT_SKIPPED) > 0);
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_releases(&c, "w1", worker_takes(&c, "w1")), REFUSE_NONE);
    CHECK(cluster_task_events(&c, EVENT_REASSIGNED, at("j", 0, 0)) > 0);
    client_cancels(&c, "j");
    CHECK(cluster_events(&c, EVENT_CANCELLED) > 0);
    client_retries(&c, "j");
    CHECK(cluster_events(&c, EVENT_RETRIED) > 0);
    cluster_finish(&c);
}

TEST(a_retry_from_a_task_reaches_all_that_depends_on_it)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {
        TREE_TASK("bad"),
        TREE_TASK("from"),
        TREE_TASK("left", AFTER(ON(1))),
        TREE_TASK("right", AFTER(ON(1))),
        TREE_TASK("after_left", AFTER(ON(2))),
        TREE_TASK("after_right", AFTER(ON_ANY_END(3))),
        TREE_TASK("last", AFTER(ON(4), ON(5))),
        TREE_TASK("apart"),
    };
    SUBMIT_TREE(&c, "t", stages);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), "no"), REFUSE_NONE);
    CHECK_UINT(worker_drains_queue(&c, "w1", 1), 7);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    CHECK_INT(client_retries_from(&c, "t", "from")->kind, REPLY_JOB);
    for (uint32_t i = 0; i < 7; i++) {
        CHECK_INT(state_of(&c, "t", i, 0), TASK_QUEUED);
    }
    CHECK_INT(state_of(&c, "t", 7, 0), TASK_SUCCEEDED);
    CHECK_UINT(worker_drains_queue(&c, "w1", 1), 7);
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_retry_of_a_failed_query_redoes_results_that_were_in_files)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {RESULT_STAGE(3)};
    SUBMIT_QUERY(&c, "q", stages);
    for (uint32_t i = 0; i < 2; i++) {
        const struct assignment *a = worker_takes_task(&c, "w1", at("q", 0, i));
        CHECK_INT(worker_registers_result(&c, "w1", a, 100, i == 0), REFUSE_NONE);
        CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    }
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("q", 0, 2)), "no"), REFUSE_NONE);
    CHECK(!job_state_is_terminal(client_retries(&c, "q")));
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_SUCCEEDED); /* lies in the store */
    CHECK_INT(state_of(&c, "q", 0, 1), TASK_QUEUED);    /* the worker was told that nobody can have it */
    for (uint32_t i = 1; i < 3; i++) {
        const struct assignment *a = worker_takes_task(&c, "w1", at("q", 0, i));
        CHECK_INT(worker_registers_result(&c, "w1", a, 100, false), REFUSE_NONE);
        CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    }
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_retry_of_a_failed_query_keeps_the_results_that_it_has)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {RESULT_STAGE(2)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 0, 0));
    CHECK_INT(worker_registers_result(&c, "w1", a, 100, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("q", 0, 1)), "no"), REFUSE_NONE);
    CHECK(!job_state_is_terminal(client_retries(&c, "q")));
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_SUCCEEDED);
    a = worker_takes_task(&c, "w1", at("q", 0, 1));
    CHECK_INT(worker_registers_result(&c, "w1", a, 100, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    struct output_info info;
    struct error e;
    CHECK_ERR(core_result(c.core, at("q", 0, 0), &info, &e), ERR_OK);
    CHECK_UINT(info.attempt, 1);
    CHECK_ERR(core_result(c.core, at("q", 0, 1), &info, &e), ERR_OK);
    CHECK_UINT(info.attempt, 2);
    cluster_finish(&c);
}

TEST(rows_carry_the_times_of_what_happened)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct task_spec tasks[] = {{.inputs = digest_of("x"), .inputs_bytes = 12}, {.inputs_bytes = 13}};
    struct stage_spec stage = QUERY_STAGE(2, .tasks = tasks);
    submit_stages(&c, "j", JOB_KIND_QUERY, &stage, 1);
    int64_t submitted_ms = c.now_ms;
    CHECK_UINT(stored_task(&c.store, at("j", 0, 1))->inputs_bytes, 13);
    CHECK_INT(stored_task(&c.store, at("j", 0, 1))->queued_at_ms, submitted_ms);
    cluster_advance(&c, 1234);
    const struct assignment *a = worker_takes(&c, "w1");
    int64_t started_ms = c.now_ms;
    CHECK_INT(stored_task(&c.store, at("j", 0, 0))->started_at_ms, started_ms);
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 1)->at_ms, started_ms);
    cluster_advance(&c, 1000);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 1)->at_ms, c.now_ms);
    CHECK_INT(stored_task(&c.store, at("j", 0, 0))->started_at_ms, started_ms);
    cluster_advance(&c, 1000);
    worker_takes(&c, "w1");
    cluster_advance(&c, 1000);
    client_cancels(&c, "j");
    CHECK_INT(stored_task(&c.store, at("j", 0, 1))->finished_at_ms, c.now_ms);
    CHECK_INT(stored_job(&c.store, "j")->started_at_ms, started_ms);
    CHECK_INT(cluster_event(&c, EVENT_CANCELLED)->at_ms, c.now_ms);
    cluster_advance(&c, 1000);
    worker_restarts(&c, "w1");
    CHECK_INT(stored_node(&c.store, "w1")->registered_at_ms, c.now_ms);
    cluster_finish(&c);
}

TEST(a_later_retry_does_not_repeat_an_earlier_retry_from)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    run_half_failed_tree(&c); /* a fails, b is skipped, d and e succeed */
    CHECK_INT(client_retries_from(&c, "t", "d")->kind, REPLY_JOB);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("t", 0, 0)), "no"), REFUSE_NONE);
    CHECK_UINT(worker_drains_queue(&c, "w1", 1), 2);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    CHECK(!job_state_is_terminal(client_retries(&c, "t")));
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_SUCCEEDED);
    CHECK_INT(state_of(&c, "t", 3, 0), TASK_SUCCEEDED);
    CHECK_UINT(worker_drains_queue(&c, "w1", 1), 2);
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_task_that_waits_again_counts_its_wait_anew)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    cluster_advance(&c, 3000);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(a->queued_ms, 3000);
    cluster_advance(&c, 1000);
    CHECK_INT(worker_releases(&c, "w1", a), REFUSE_NONE);
    cluster_advance(&c, 700);
    CHECK_INT(worker_takes(&c, "w1")->queued_ms, 700);
    cluster_finish(&c);
}

TEST(a_submit_that_was_refused_outside_is_kept_as_a_failed_job)
{
    struct cluster c;
    cluster_init(&c);
    struct cmd_submit request = submit_request("j", JOB_KIND_TREE, NULL, 0);
    request.refusal = "tasks: there are none";
    CHECK_INT(submit(&c, &request)->u.job.state, JOB_FAILED);
    CHECK_STR(job_of(&c, "j").message, "tasks: there are none");
    CHECK_INT(cluster_events(&c, EVENT_FAILED), 1);
    struct command retry = {.kind = CMD_RETRY, .u.retry = {.job_id = "j"}};
    CHECK_ERR(cluster_do(&c, &retry)->code, ERR_PRECONDITION); /* there is nothing that could run */
    cluster_check_recovery(&c);
    cluster_finish(&c);
}

TEST(an_assignment_names_the_parents_whose_results_it_gets)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("a", .max_attempts = 0), TREE_TASK("b", .max_attempts = 1),
                                  TREE_TASK("c", AFTER(ON(0), ON_ANY_END(1)))};
    SUBMIT_TREE(&c, "t", stages);
    CHECK_INT(worker_succeeds(&c, "w1", worker_takes_task(&c, "w1", at("t", 0, 0))), REFUSE_NONE);
    const struct assignment *bad = worker_takes_task(&c, "w1", at("t", 1, 0));
    CHECK_INT(worker_fails_for_good(&c, "w1", bad, "no"), REFUSE_NONE);
    const struct assignment *last = worker_takes(&c, "w1");
    CHECK_INT(last->kind, JOB_KIND_TREE);
    CHECK_INT(last->n_parents, 2);
    CHECK_STR(last->parents[0].name, "a");
    CHECK(last->parents[0].has_succeeded);
    CHECK_STR(last->parents[1].name, "b");
    CHECK(!last->parents[1].has_succeeded);
    cluster_finish(&c);
}
