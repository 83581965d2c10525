/*
 * results_test.c - semantics section 10: the results of final tasks.
 */
#include "cluster.h"

TEST(results_are_kept_per_task_and_served_when_the_job_has_succeeded)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {RESULT_STAGE(2)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 0, 0));
    const struct assignment *b = worker_takes_task(&c, "w1", at("q", 0, 1));
    CHECK_INT(worker_registers_result(&c, "w1", a, 100, true), REFUSE_NONE);
    CHECK_INT(worker_registers_result(&c, "w1", b, 7000000, false), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    struct output_info info;
    struct error e;
    CHECK_ERR(core_result(c.core, at("q", 0, 0), &info, &e), ERR_PRECONDITION);
    CHECK_INT(worker_succeeds(&c, "w1", b), REFUSE_NONE);
    CHECK_ERR(core_result(c.core, at("q", 0, 0), &info, &e), ERR_OK);
    CHECK_UINT(info.bytes, 100);
    CHECK_UINT(info.rows, 5);
    CHECK(info.is_inline);
    CHECK_ERR(core_result(c.core, at("q", 0, 1), &info, &e), ERR_OK);
    CHECK_UINT(info.bytes, 7000000);
    CHECK(!info.is_inline);
    CHECK_STR(info.worker_id, "w1");
    CHECK_UINT(row_store_count(&c.store, ROW_RESULT), 2);
    CHECK_ERR(core_result(c.core, at("q", 0, 2), &info, &e), ERR_NOT_FOUND);
    cluster_finish(&c);
}

TEST(inline_results_of_a_job_share_one_limit)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {RESULT_STAGE(3)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    const struct assignment *b = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_result(&c, "w1", a, 600000, true), REFUSE_NONE);
    CHECK_INT(worker_registers_result(&c, "w1", a, 600000, true), REFUSE_NONE); /* repeated: counted once */
    CHECK_UINT(stored_job(&c.store, "q")->inline_bytes, 600000);
    CHECK_INT(worker_registers_result(&c, "w1", b, 448577, true), REFUSE_INLINE_LIMIT);
    CHECK_UINT(core_stats(c.core).refused_total[REFUSE_INLINE_LIMIT], 1);
    cluster_fail_over(&c);
    CHECK_INT(worker_registers_result(&c, "w1", b, 448577, true), REFUSE_INLINE_LIMIT);
    CHECK_INT(worker_registers_result(&c, "w1", b, 448576, true), REFUSE_NONE); /* 1 MiB in all */
    const struct assignment *d = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_result(&c, "w1", d, 1, true), REFUSE_INLINE_LIMIT);
    CHECK_INT(worker_registers_result(&c, "w1", d, 1, false), REFUSE_NONE); /* on the worker there is room */
    CHECK_INT(worker_succeeds(&c, "w1", d), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(the_result_of_a_failed_attempt_gives_its_room_back)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {RESULT_STAGE(1)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_result(&c, "w1", a, 1000000, true), REFUSE_NONE);
    CHECK_INT(worker_fails(&c, "w1", a, "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_result(&c, "w1", a, 1000000, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    struct output_info info;
    struct error e;
    CHECK_ERR(core_result(c.core, at("q", 0, 0), &info, &e), ERR_OK);
    CHECK_UINT(info.attempt, 2);
    CHECK_UINT(row_store_count(&c.store, ROW_RESULT), 1);
    CHECK_UINT(stored_job(&c.store, "q")->inline_bytes, 1000000);
    cluster_finish(&c);
}

TEST(a_stale_attempt_registers_no_result)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {RESULT_STAGE(1)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *zombie = worker_takes(&c, "w1");
    worker_dies(&c, "w1");
    cluster_advance(&c, 17 * SECOND_MS);
    const struct assignment *heir = worker_takes(&c, "w2");
    CHECK_STALE(worker_registers_result(&c, "w1", zombie, 100, true));
    CHECK_UINT(row_store_count(&c.store, ROW_RESULT), 0);
    CHECK_INT(worker_registers_result(&c, "w2", heir, 200, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w2", heir), REFUSE_NONE);
    CHECK_STALE(worker_registers_result(&c, "w1", zombie, 100, true));
    struct output_info info;
    struct error e;
    CHECK_ERR(core_result(c.core, at("q", 0, 0), &info, &e), ERR_OK);
    CHECK_UINT(info.bytes, 200);
    cluster_finish(&c);
}

TEST(the_loss_of_a_worker_does_not_rerun_finished_result_tasks)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {RESULT_STAGE(2)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_result(&c, "w1", a, 9000000, false), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    worker_restarts(&c, "w1"); /* result files survive a restart */
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_result_that_is_registered_anew_replaces_the_first)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {RESULT_STAGE(2)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    const struct assignment *b = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_result(&c, "w1", a, 1048577, true), REFUSE_INLINE_LIMIT);
    CHECK_INT(worker_registers_result(&c, "w1", a, 1048576, true), REFUSE_NONE); /* just enough */
    CHECK_INT(worker_registers_result(&c, "w1", b, 1, true), REFUSE_INLINE_LIMIT);
    CHECK_INT(worker_registers_result(&c, "w1", a, 5000000, false), REFUSE_NONE); /* kept on the worker after all */
    CHECK_UINT(stored_job(&c.store, "q")->inline_bytes, 0);
    CHECK_INT(worker_registers_result(&c, "w1", b, 1048576, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", b), REFUSE_NONE);
    CHECK_UINT(row_store_count(&c.store, ROW_RESULT), 2);
    CHECK(!stored_result(&c.store, at("q", 0, 0), 1)->is_inline);
    cluster_finish(&c);
}
