/*
 * idempotency_test.c - semantics section 8: keys, the history of attempts, and what is never done twice.
 */
#include "core/idempotency.h"

#include "cluster.h"

TEST(idempotent_execution_cached_result)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    struct task_report report = report_on(a, TASK_SUCCEEDED);
    report.result = digest_of("first");
    report.result_bytes = 5;
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    uint64_t rows = c.store.n_applied;

    report.result = digest_of("second"); /* executed again by mistake: the stored outcome stands */
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE);
    CHECK_UINT(c.store.n_applied, rows);
    CHECK(digest_equal(stored_task(&c.store, at("j", 0, 0))->result, digest_of("first")));
    cluster_fail_over(&c);
    CHECK_INT(worker_reports(&c, "w1", &report), REFUSE_NONE); /* the next leader knows it, too */
    CHECK(digest_equal(stored_task(&c.store, at("j", 0, 0))->result, digest_of("first")));
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 1)->outcome, OUTCOME_COMPLETED);
    CHECK_UINT(core_stats(c.core).outcomes_total[OUTCOME_COMPLETED], 0); /* counted by the leader that took it */
    worker_takes_task(&c, "w1", at("j", 0, 1));
    worker_gets_nothing(&c, "w1"); /* a completed attempt is never executed again */
    cluster_finish(&c);
}

TEST(idempotent_execution_retry_with_new_attempt)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *first = worker_takes(&c, "w1");
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 1)->outcome, OUTCOME_PENDING);
    CHECK(digest_equal(stored_attempt(&c.store, at("j", 0, 0), 1)->idempotency_key, first->idempotency_key));
    CHECK_INT(worker_fails(&c, "w1", first, "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    const struct assignment *second = worker_takes(&c, "w1");
    CHECK_UINT(second->ref.attempt, 2);
    CHECK(!digest_equal(first->idempotency_key, second->idempotency_key));
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 1)->outcome, OUTCOME_FAILED);
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 2)->outcome, OUTCOME_PENDING);
    CHECK(digest_equal(stored_attempt(&c.store, at("j", 0, 0), 2)->idempotency_key, second->idempotency_key));
    CHECK_STR(stored_attempt(&c.store, at("j", 0, 0), 2)->worker_id, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", second), REFUSE_NONE);
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 2)->outcome, OUTCOME_COMPLETED);
    cluster_finish(&c);
}

TEST(keys_depend_on_task_attempt_and_inputs)
{
    struct digest x = digest_of("x");
    struct digest y = digest_of("y");
    struct digest key = attempt_key(at("j", 1, 2), 3, &x);
    CHECK(digest_equal(key, attempt_key(at("j", 1, 2), 3, &x)));
    CHECK(!digest_equal(key, attempt_key(at("j", 1, 2), 3, &y)));
    CHECK(!digest_equal(key, attempt_key(at("j", 1, 2), 4, &x)));
    CHECK(!digest_equal(key, attempt_key(at("j", 1, 3), 3, &x)));
    CHECK(!digest_equal(key, attempt_key(at("j", 2, 2), 3, &x)));
    CHECK(!digest_equal(key, attempt_key(at("k", 1, 2), 3, &x)));
    CHECK(!digest_equal(attempt_key(at("j1", 1, 2), 3, &x), attempt_key(at("j", 11, 2), 3, &x)));
    CHECK(!digest_equal(attempt_key(at("j", 1, 12), 3, &x), attempt_key(at("j", 11, 2), 3, &x)));
}

TEST(the_key_of_a_task_is_the_same_over_all_attempts)
{
    CHECK(digest_equal(task_key(at("j", 1, 2)), task_key(at("j", 1, 2))));
    CHECK(!digest_equal(task_key(at("j", 1, 2)), task_key(at("j", 2, 1))));
    CHECK(!digest_equal(task_key(at("j", 1, 2)), task_key(at("k", 1, 2))));
    struct digest none = {{0}};
    CHECK(!digest_equal(task_key(at("j", 1, 2)), attempt_key(at("j", 1, 2), 1, &none)));
}

TEST(assignments_carry_the_key_of_their_attempt)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct task_spec tasks[] = {{.inputs = digest_of("in 0"), .inputs_bytes = 4},
                                      {.inputs = digest_of("in 1"), .inputs_bytes = 4}};
    struct stage_spec stage = QUERY_STAGE(2, .tasks = tasks);
    submit_stages(&c, "j", JOB_KIND_QUERY, &stage, 1);
    CHECK(digest_equal(stored_task(&c.store, at("j", 0, 1))->inputs, tasks[1].inputs));
    cluster_fail_over(&c); /* the inputs' digests are loaded with the tasks */
    for (uint32_t i = 0; i < 2; i++) {
        const struct assignment *a = worker_takes_task(&c, "w1", at("j", 0, i));
        CHECK(digest_equal(a->idempotency_key, attempt_key(at("j", 0, i), 1, &tasks[i].inputs)));
    }
    cluster_finish(&c);
}

TEST(every_attempt_has_one_row_of_history_and_one_end)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    struct task_ref ref = at("j", 0, 0);
    CHECK_INT(worker_releases(&c, "w1", worker_takes(&c, "w1")), REFUSE_NONE);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    worker_takes(&c, "w2");
    worker_dies(&c, "w2");
    cluster_advance(&c, 20 * SECOND_MS);
    worker_runs(&c, "w1", ref);
    CHECK_UINT(row_store_count(&c.store, ROW_ATTEMPT), 4);
    const enum attempt_outcome ends[] = {OUTCOME_LOST, OUTCOME_FAILED, OUTCOME_LOST, OUTCOME_COMPLETED};
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(stored_attempt(&c.store, ref, i + 1)->outcome, ends[i]);
    }
    cluster_finish(&c);
}
