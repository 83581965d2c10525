/*
 * report_test.c - semantics sections 2, 5 and 6: what a report moves, what it does not, budget, backoff, blacklist.
 */
#include <string.h>

#include "cluster.h"

TEST(a_started_attempt_leaves_an_event)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_starts(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_UINT(cluster_task_events(&c, EVENT_STARTED, at("j", 0, 0)), 1);
    CHECK_INT(worker_starts(&c, "w1", a), REFUSE_NONE); /* again: the answer was lost */
    CHECK_UINT(cluster_task_events(&c, EVENT_STARTED, at("j", 0, 0)), 1);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(a_success_keeps_result_rows_and_bytes)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    struct task_report report = report_on(worker_takes(&c, "w1"), TASK_SUCCEEDED);
    report.result = digest_of("42");
    report.result_bytes = 2;
    report.rows = 7;
    report.bytes = 70;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    const struct row_task *row = stored_task(&c.store, at("j", 0, 0));
    CHECK_INT(row->state, TASK_SUCCEEDED);
    CHECK_INT(row->outcome, OUTCOME_COMPLETED);
    CHECK(digest_equal(row->result, digest_of("42")));
    CHECK_UINT(row->result_bytes, 2);
    CHECK_UINT(row->rows, 7);
    CHECK_UINT(row->bytes, 70);
    CHECK_INT(row->finished_at_ms, c.now_ms);
    CHECK(stored_lease(&c.store, at("j", 0, 0)) == NULL);
    struct stage_status stage;
    CHECK_ERR(core_stage_status(c.core, "j", 0, &stage), ERR_OK);
    CHECK_UINT(stage.rows, 7);
    CHECK_UINT(stage.bytes, 70);
    cluster_fail_over(&c);
    CHECK_ERR(core_stage_status(c.core, "j", 0, &stage), ERR_OK);
    CHECK_UINT(stage.rows, 7);
    CHECK_UINT(stage.bytes, 70);
    CHECK_UINT(cluster_task_events(&c, EVENT_COMPLETED, at("j", 0, 0)), 1);
    CHECK_UINT(node_of(&c, "w1").running, 0);
    cluster_finish(&c);
}

TEST(several_reports_are_answered_in_their_order)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 3);
    const struct assignment *first = worker_polls(&c, "w1", 3)->u.tasks.first;
    struct task_report reports[4] = {
        report_on(first, TASK_SUCCEEDED),
        report_on(first->next, TASK_SUCCEEDED),
        report_on(first->next->next, TASK_FAILED),
        report_on(first, TASK_SUCCEEDED),
    };
    reports[1].ref.token.bits[1]++;
    struct cmd_report said = {.worker_id = "w1", .incarnation = "w1#1", .reports = reports, .n_reports = 4};
    struct command command = {.kind = CMD_REPORT, .u = {.report = said}};
    const struct reply *reply = cluster_do(&c, &command);
    CHECK_UINT(reply->u.report.n_outcomes, 4);
    CHECK_INT(reply->u.report.outcomes[0], REFUSE_NONE);
    CHECK_INT(reply->u.report.outcomes[1], REFUSE_WRONG_TOKEN);
    CHECK_INT(reply->u.report.outcomes[2], REFUSE_NONE);
    CHECK_INT(reply->u.report.outcomes[3], REFUSE_NONE);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_SUCCEEDED);
    CHECK_INT(state_of(&c, "j", 0, 1), TASK_RUNNING);
    CHECK_INT(state_of(&c, "j", 0, 2), TASK_QUEUED);
    cluster_finish(&c);
}

/* Reports `ref` as succeeded, wants it refused like that, and counted. */
static void check_refused(struct cluster *c, const char *worker, struct attempt_ref ref, enum refusal refusal)
{
    uint64_t before = core_stats(c->core).refused_total[refusal];
    uint64_t rows = c->store.n_applied;
    struct task_report report = {.ref = ref, .state = TASK_SUCCEEDED};
    CHECK_INT(worker_reports(c, worker, &report), refusal);
    CHECK_UINT(core_stats(c->core).refused_total[refusal], before + 1);
    CHECK_UINT(c->store.n_applied, rows); /* nothing moves */
}

TEST(forged_and_stale_reports_are_refused_with_a_reason_and_counted)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");

    struct attempt_ref ref = a->ref;
    ref.task.job_id = "other";
    check_refused(&c, "w1", ref, REFUSE_UNKNOWN_JOB);
    ref = a->ref;
    ref.task.stage = 1;
    check_refused(&c, "w1", ref, REFUSE_UNKNOWN_TASK);
    ref = a->ref;
    ref.task.task = 2;
    check_refused(&c, "w1", ref, REFUSE_UNKNOWN_TASK);
    ref = a->ref;
    ref.attempt = 2;
    check_refused(&c, "w1", ref, REFUSE_STALE_ATTEMPT);
    ref = a->ref;
    ref.token.bits[0] ^= 1;
    check_refused(&c, "w1", ref, REFUSE_WRONG_TOKEN);
    check_refused(&c, "w2", a->ref, REFUSE_WRONG_WORKER);
    ref = a->ref;
    ref.task.task = 1; /* queued, never assigned */
    ref.attempt = 0;
    ref.token = (struct lease_token){{0, 0}};
    struct task_report report = {.ref = ref, .state = TASK_SUCCEEDED};
    CHECK_STALE(worker_reports(&c, "w1", &report));
    CHECK_INT(state_of(&c, "j", 0, 1), TASK_QUEUED);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(reports_after_the_end_of_the_job_are_refused)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    client_cancels(&c, "j");
    check_refused(&c, "w1", a->ref, REFUSE_JOB_ENDED);
    CHECK_INT(job_state_of(&c, "j"), JOB_CANCELED);
    cluster_finish(&c);
}

TEST(refusals_name_stale_attempts_as_such)
{
    CHECK_STR(refusal_text(REFUSE_STALE_ATTEMPT), "stale attempt");
    CHECK(refusal_is_stale(REFUSE_WRONG_TOKEN));
    CHECK(refusal_is_stale(REFUSE_JOB_ENDED));
    CHECK(refusal_is_stale(REFUSE_WRONG_WORKER));
    CHECK_STR(refusal_text(REFUSE_NONE), "");
}

/* Fails a fresh task of `j` on a fresh worker, so that neither blacklist nor gate 9 is in the way. */
static void fail_once(struct cluster *c, const char *worker, const char *job)
{
    CHECK_INT(worker_fails(c, worker, worker_takes_task(c, worker, at(job, 0, 0)), "boom"), REFUSE_NONE);
}

TEST(a_task_fails_when_its_budget_is_used_up)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    for (uint32_t i = 1; i <= 2; i++) {
        fail_once(&c, "w1", "j");
        CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
        CHECK_UINT(task_of(&c, "j", 0, 0).failures, i);
        CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), i)->outcome, OUTCOME_FAILED);
        cluster_advance(&c, SECOND_MS);
    }
    fail_once(&c, "w1", "j");
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_FAILED);
    CHECK_UINT(task_of(&c, "j", 0, 0).attempt, 3);
    CHECK_INT(job_state_of(&c, "j"), JOB_FAILED);
    CHECK_STR(stored_task(&c.store, at("j", 0, 0))->message, "boom");
    CHECK(strstr(job_of(&c, "j").message, "boom") != NULL);
    CHECK_UINT(cluster_task_events(&c, EVENT_FAILED, at("j", 0, 0)), 3);
    cluster_finish(&c);
}

TEST(a_budget_of_one_leaves_no_second_attempt)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_task_attempts = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    fail_once(&c, "w1", "j");
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_FAILED);
    cluster_finish(&c);
}

TEST(a_task_can_have_a_budget_and_a_backoff_of_its_own)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {
        TREE_TASK("often", .max_attempts = 6),
        TREE_TASK("once", .max_attempts = 1),
        {.name = "slowly", .need = &ANY_WORKER, .n_tasks = 1, .backoff_ms = 10000},
        {.name = "at_once", .need = &ANY_WORKER, .n_tasks = 1, .backoff_ms = 0},
    };
    SUBMIT_TREE(&c, "j", stages);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(worker_fails(&c, "w1", worker_takes_task(&c, "w1", at("j", i, 0)), "boom"), REFUSE_NONE);
        operator_clears(&c, "w1");
    }
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "j", 1, 0), TASK_FAILED);
    CHECK(task_of(&c, "j", 3, 0).ready_at_ms <= c.now_ms);
    int64_t wait_ms = task_of(&c, "j", 2, 0).ready_at_ms - c.now_ms;
    CHECK(wait_ms >= 8000);
    CHECK(wait_ms <= 12000);
    for (uint32_t i = 2; i <= 6; i++) {
        CHECK_UINT(task_of(&c, "j", 0, 0).failures, i - 1);
        CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
        cluster_advance(&c, 60 * SECOND_MS);
        CHECK_INT(worker_fails(&c, "w1", worker_takes_task(&c, "w1", at("j", 0, 0)), "boom"), REFUSE_NONE);
        operator_clears(&c, "w1");
    }
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_FAILED);
    cluster_finish(&c);
}

TEST(backoff_doubles_with_jitter_up_to_its_cap)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("a", .max_attempts = 14)};
    SUBMIT_TREE(&c, "j", stages);
    int64_t base_ms = 250;
    for (int i = 0; i < 13; i++) {
        fail_once(&c, "w1", "j");
        operator_clears(&c, "w1");
        int64_t wait_ms = task_of(&c, "j", 0, 0).ready_at_ms - c.now_ms;
        CHECK(wait_ms >= base_ms * 8 / 10);
        CHECK(wait_ms <= base_ms * 12 / 10);
        cluster_advance(&c, wait_ms);
        base_ms = base_ms * 2 > 30000 ? 30000 : base_ms * 2;
    }
    cluster_finish(&c);
}

TEST(jitter_spreads_tasks_that_fail_together)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 100;
    config.max_concurrent_tasks_per_query = 100;
    config.blacklist_failure_threshold = 1000;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    struct stage_spec stage = QUERY_STAGE(100);
    stage.backoff_ms = 10000;
    submit_stages(&c, "j", JOB_KIND_QUERY, &stage, 1);
    const struct reply *reply = worker_polls(&c, "w1", 100);
    int64_t least = INT64_MAX;
    int64_t most = 0;
    int64_t sum = 0;
    for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
        CHECK_INT(worker_fails(&c, "w1", a, "boom"), REFUSE_NONE);
        int64_t wait_ms = task_of(&c, "j", 0, a->ref.task.task).ready_at_ms - c.now_ms;
        least = wait_ms < least ? wait_ms : least;
        most = wait_ms > most ? wait_ms : most;
        sum += wait_ms;
    }
    CHECK(least >= 8000);
    CHECK(most <= 12000);
    CHECK(most - least > 2000); /* of 4,000 possible */
    CHECK(sum > 100 * 9300);
    CHECK(sum < 100 * 10700);
    cluster_finish(&c);
}

TEST(a_user_error_is_not_retried_and_blames_no_worker)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), "no such column"), REFUSE_NONE);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_FAILED);
    CHECK_UINT(task_of(&c, "j", 0, 0).attempt, 1);
    CHECK_INT(job_state_of(&c, "j"), JOB_FAILED);
    CHECK_UINT(node_of(&c, "w1").failures, 0);
    cluster_finish(&c);
}

TEST(coordinator_blacklists_failing_worker)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "bad");
    worker_joins(&c, "good");
    submit_tasks(&c, "j", 6);
    for (uint32_t i = 1; i <= 3; i++) {
        CHECK(!node_of(&c, "bad").blacklisted);
        CHECK_INT(worker_fails(&c, "bad", worker_takes(&c, "bad"), "boom"), REFUSE_NONE);
        CHECK_UINT(node_of(&c, "bad").failures, i);
    }
    CHECK(node_of(&c, "bad").blacklisted);
    CHECK(stored_node(&c.store, "bad")->blacklisted_until_ms > c.now_ms);
    CHECK_STR(cluster_event(&c, EVENT_BLACKLISTED)->worker_id, "bad");
    CHECK_UINT(cluster_events(&c, EVENT_BLACKLISTED), 1);
    worker_gets_nothing(&c, "bad");
    cluster_advance(&c, SECOND_MS);
    CHECK_UINT(worker_takes_up_to(&c, "good", 8), 6);
    cluster_finish(&c);
}

TEST(a_success_sets_the_failure_count_back)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 20);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
        CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
        CHECK_UINT(node_of(&c, "w1").failures, 2);
        CHECK_INT(worker_succeeds(&c, "w1", worker_takes(&c, "w1")), REFUSE_NONE);
        CHECK_UINT(node_of(&c, "w1").failures, 0);
    }
    CHECK(!node_of(&c, "w1").blacklisted);
    cluster_finish(&c);
}

static void blacklist(struct cluster *c, const char *worker)
{
    submit_tasks(c, "noise", 3);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(worker_fails(c, worker, worker_takes(c, worker), "boom"), REFUSE_NONE);
    }
    CHECK(node_of(c, worker).blacklisted);
    client_cancels(c, "noise");
}

TEST(a_blacklisting_ends_after_its_time)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    blacklist(&c, "w1");
    submit_tasks(&c, "j", 1);
    cluster_advance(&c, 599 * SECOND_MS);
    CHECK(node_of(&c, "w1").blacklisted);
    worker_gets_nothing(&c, "w1");
    cluster_advance(&c, 2 * SECOND_MS);
    CHECK(!node_of(&c, "w1").blacklisted);
    CHECK_UINT(node_of(&c, "w1").failures, 0); /* a fresh start, not one failure from the next */
    CHECK_STR(cluster_event(&c, EVENT_CLEARED)->worker_id, "w1");
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(a_blacklisting_ends_by_hand)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    blacklist(&c, "w1");
    submit_tasks(&c, "j", 1);
    operator_clears(&c, "w1");
    CHECK(!node_of(&c, "w1").blacklisted);
    CHECK_UINT(node_of(&c, "w1").failures, 0);
    CHECK_UINT(cluster_events(&c, EVENT_CLEARED), 1);
    CHECK_INT(stored_node(&c.store, "w1")->blacklisted_until_ms, 0);
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(a_blacklisting_without_a_time_lasts_until_it_is_cleared)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.blacklist_ttl_ms = 0;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    blacklist(&c, "w1");
    cluster_advance(&c, 3600 * SECOND_MS);
    CHECK(node_of(&c, "w1").blacklisted);
    cluster_fail_over(&c);
    CHECK(node_of(&c, "w1").blacklisted);
    operator_clears(&c, "w1");
    CHECK(!node_of(&c, "w1").blacklisted);
    cluster_finish(&c);
}

TEST(a_blacklisting_survives_a_restart_of_the_worker)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    blacklist(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_restarts(&c, "w1");
    CHECK(node_of(&c, "w1").blacklisted);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(one_poison_job_does_not_blacklist_a_fleet)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.blacklist_failure_threshold = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    submit_tasks(&c, "poison", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    CHECK(node_of(&c, "w1").blacklisted);
    cluster_fail_over(&c);
    cluster_advance(&c, SECOND_MS);
    CHECK_INT(worker_fails(&c, "w2", worker_takes(&c, "w2"), "boom"), REFUSE_NONE);
    CHECK_UINT(node_of(&c, "w2").failures, 0); /* it failed elsewhere before: its own fault */
    CHECK(!node_of(&c, "w2").blacklisted);
    cluster_advance(&c, SECOND_MS);
    CHECK_INT(worker_fails(&c, "w3", worker_takes(&c, "w3"), "boom"), REFUSE_NONE);
    CHECK_UINT(node_of(&c, "w3").failures, 0);
    CHECK_INT(job_state_of(&c, "poison"), JOB_FAILED);
    cluster_finish(&c);
}

#define MISSING "custom physical operator 'op' is not registered on worker"

TEST(a_missing_operator_is_retried_elsewhere_at_no_cost)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer offer = {.ops = TEXTS("op", "other")};
    worker_joins_with(&c, "w1", &offer);
    worker_joins_with(&c, "w2", &offer);
    const struct requirement need = {.ops = TEXTS("op")};
    const struct requirement need_other = {.ops = TEXTS("other")};
    struct stage_spec stage = QUERY_STAGE(1);
    stage.need = &need;
    stage.max_attempts = 1;
    submit_stages(&c, "j", JOB_KIND_QUERY, &stage, 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), MISSING), REFUSE_NONE);
    struct task_status task = task_of(&c, "j", 0, 0);
    CHECK_INT(task.state, TASK_QUEUED);
    CHECK_UINT(task.failures, 0);
    CHECK(!string_list_has(node_of(&c, "w1").offer->ops, "op"));
    CHECK(string_list_has(node_of(&c, "w1").offer->ops, "other"));
    cluster_fail_over(&c);
    cluster_advance(&c, SECOND_MS);
    submit_tasks_for(&c, "k", 1, &need_other);
    worker_runs(&c, "w1", at("k", 0, 0)); /* the other operator is still trusted */
    worker_runs(&c, "w2", at("j", 0, 0));
    cluster_finish(&c);
}

TEST(a_missing_operator_counts_again_when_it_is_advertised_again)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer offer = {.ops = TEXTS("op")};
    worker_joins_with(&c, "w1", &offer);
    const struct requirement need = {.ops = TEXTS("op")};
    submit_tasks_for(&c, "j", 1, &need);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), MISSING), REFUSE_NONE);
    worker_named(&c, "w1")->offer.ops.count = 0;
    cluster_advance(&c, 10 * SECOND_MS);
    worker_gets_nothing(&c, "w1");
    worker_named(&c, "w1")->offer.ops.count = 1;
    worker_beats(&c, "w1");
    CHECK(string_list_has(node_of(&c, "w1").offer->ops, "op"));
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(a_failure_that_only_looks_like_a_missing_operator_costs_budget)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer offer = {.ops = TEXTS("op")};
    worker_joins_with(&c, "w1", &offer);
    submit_tasks(&c, "j", 1); /* requires no operator at all */
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), MISSING), REFUSE_NONE);
    CHECK_UINT(task_of(&c, "j", 0, 0).failures, 1);
    CHECK(string_list_has(node_of(&c, "w1").offer->ops, "op"));
    cluster_finish(&c);
}

TEST(a_long_message_is_cut)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    static char message[10000];
    memset(message, 'x', sizeof(message) - 1);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), message), REFUSE_NONE);
    const char *kept = stored_task(&c.store, at("j", 0, 0))->message;
    CHECK(strlen(kept) <= 4096);
    CHECK(strlen(kept) >= 4000);
    submit_tasks(&c, "k", 2);
    message[4096] = '\0';
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), message), REFUSE_NONE);
    CHECK_UINT(strlen(stored_task(&c.store, at("k", 0, 0))->message), 4096);
    cluster_finish(&c);
}

TEST(a_failure_without_a_message_is_a_failure_too)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), NULL), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "j"), JOB_FAILED);
    cluster_finish(&c);
}

TEST(a_repeated_failed_report_counts_once)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_fails(&c, "w1", a, "boom"), REFUSE_NONE);
    uint64_t rows = c.store.n_applied;
    CHECK_INT(worker_fails(&c, "w1", a, "boom"), REFUSE_NONE); /* the answer was lost */
    CHECK_STALE(worker_succeeds(&c, "w1", a));                 /* another final state: no */
    CHECK_UINT(c.store.n_applied, rows);
    CHECK_UINT(task_of(&c, "j", 0, 0).failures, 1);
    CHECK_UINT(node_of(&c, "w1").failures, 1);
    cluster_finish(&c);
}

TEST(a_succeeded_attempt_cannot_fail_or_be_released_afterwards)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_STALE(worker_fails(&c, "w1", a, "boom"));
    CHECK_STALE(worker_releases(&c, "w1", a));
    CHECK_STALE(worker_starts(&c, "w1", a));
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_SUCCEEDED);
    CHECK_UINT(node_of(&c, "w1").failures, 0);
    cluster_finish(&c);
}

TEST(statistics_follow_the_states)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 4);
    const struct assignment *a = worker_polls(&c, "w1", 3)->u.tasks.first;
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(worker_fails(&c, "w1", a->next, "boom"), REFUSE_NONE);
    struct core_stats stats = core_stats(c.core);
    CHECK_UINT(stats.jobs, 1);
    CHECK_UINT(stats.tasks[TASK_QUEUED], 2);
    CHECK_UINT(stats.tasks[TASK_RUNNING], 1);
    CHECK_UINT(stats.tasks[TASK_SUCCEEDED], 1);
    CHECK_UINT(stats.leases, 1);
    CHECK_UINT(stats.assigned_total, 3);
    CHECK_UINT(stats.outcomes_total[OUTCOME_COMPLETED], 1);
    CHECK_UINT(stats.outcomes_total[OUTCOME_FAILED], 1);
    client_cancels(&c, "j");
    stats = core_stats(c.core);
    CHECK_UINT(stats.jobs, 0);
    CHECK_UINT(stats.tasks[TASK_QUEUED], 0);
    CHECK_UINT(stats.tasks[TASK_RUNNING], 0);
    CHECK_UINT(stats.leases, 0);
    CHECK_UINT(stats.outcomes_total[OUTCOME_LOST], 0); /* nobody lost it */
    CHECK_UINT(stats.canceled_total, 1);
    cluster_finish(&c);
}

TEST(a_report_with_a_state_that_workers_cannot_give_is_refused)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    struct worker *w = worker_named(&c, "w1");
    const enum task_state states[] = {TASK_CANCELED, TASK_SKIPPED};
    for (int i = 0; i < 2; i++) {
        struct task_report report = report_on(a, states[i]);
        CHECK(worker_reports(&c, "w1", &report) != REFUSE_NONE);
        CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
        w->running[0] = a->ref;
        w->n_running = 1;
    }
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(lost_workers_do_not_blacklist_the_worker)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.blacklist_failure_threshold = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 3);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 3), 3);
    worker_dies(&c, "w1");
    cluster_advance(&c, 17 * SECOND_MS);
    CHECK_UINT(node_of(&c, "w1").failures, 0); /* only failed reports count */
    CHECK(!node_of(&c, "w1").blacklisted);
    cluster_finish(&c);
}
