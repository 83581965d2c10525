/*
 * redo_test.c - semantics section 10: stages that give other rows when they are redone restart all who read them.
 */
#include "cluster.h"

TEST(a_redone_nondeterministic_map_restarts_all_its_readers)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(2, 3, .nondeterministic = true), RESULT_STAGE(3, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 3);
    worker_maps(&c, "w2", at("q", 0, 1), 3);
    const struct assignment *done = worker_takes_task(&c, "w2", at("q", 1, 0));
    CHECK_INT(worker_registers_result(&c, "w2", done, 100, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w2", done), REFUSE_NONE);
    const struct assignment *running = worker_takes_task(&c, "w2", at("q", 1, 1));
    worker_restarts(&c, "w1");

    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 0, 1), TASK_SUCCEEDED);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_QUEUED); /* finished, and still it must read the new rows */
    CHECK_INT(state_of(&c, "q", 1, 1), TASK_QUEUED);
    CHECK_UINT(core_stats(c.core).released_total, 1);
    CHECK_UINT(core_stats(c.core).outcomes_total[OUTCOME_LOST], 0); /* its worker lives */
    CHECK_STALE(worker_succeeds(&c, "w2", running));                /* it has read the old rows */
    CHECK_UINT(task_of(&c, "q", 1, 0).failures, 0);
    CHECK_UINT(task_of(&c, "q", 1, 1).failures, 0);
    cluster_fail_over(&c);
    worker_maps(&c, "w2", at("q", 0, 0), 3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct assignment *a = worker_takes_task(&c, "w2", at("q", 1, i));
        CHECK_UINT(a->sources[0].attempt, 2); /* all of them the same attempt */
        CHECK_UINT(a->sources[1].attempt, 1);
        CHECK_INT(worker_registers_result(&c, "w2", a, 100, true), REFUSE_NONE);
        CHECK_INT(worker_succeeds(&c, "w2", a), REFUSE_NONE);
    }
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    struct output_info info;
    struct error e;
    CHECK_ERR(core_result(c.core, at("q", 1, 0), &info, &e), ERR_OK);
    CHECK_UINT(info.attempt, 2);
    cluster_finish(&c);
}

TEST(a_restarted_reader_is_told_to_stop)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 2, .nondeterministic = true), QUERY_STAGE(2, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    const struct assignment *r0 = worker_takes_task(&c, "w2", at("q", 1, 0));
    const struct assignment *r1 = worker_takes_task(&c, "w2", at("q", 1, 1));
    uint64_t poll = worker_waits(&c, "w2", 0, 60000);
    worker_leaves(&c, "w1");
    CHECK(worker_answer(&c, "w2", poll) != NULL);
    CHECK(worker_was_stopped(&c, "w2", r0));
    CHECK(worker_was_stopped(&c, "w2", r1));
    CHECK_UINT(node_of(&c, "w2").running, 0);
    cluster_finish(&c);
}

TEST(a_fetch_failure_on_a_nondeterministic_map_restarts_finished_readers)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    struct stage_spec stages[] = {MAP_STAGE(1, 2, .nondeterministic = true), QUERY_STAGE(2, AFTER(READS_ALL(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_runs(&c, "w2", at("q", 1, 0));
    const struct assignment *r = worker_takes_task(&c, "w2", at("q", 1, 1));
    CHECK_INT(worker_cannot_fetch(&c, "w2", r, &r->sources[0]), REFUSE_NONE);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 1, 1), TASK_QUEUED);
    worker_maps(&c, "w2", at("q", 0, 0), 2);
    cluster_advance(&c, SECOND_MS);
    worker_runs(&c, "w3", at("q", 1, 0));
    worker_runs(&c, "w3", at("q", 1, 1));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(other_rows_travel_through_deterministic_stages)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 2, .nondeterministic = true), MAP_STAGE(2, 2, AFTER(READS(0))),
                                  QUERY_STAGE(2, AFTER(READS(1)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_maps(&c, "w1", at("q", 1, 0), 2);
    worker_maps(&c, "w2", at("q", 1, 1), 2);
    worker_runs(&c, "w2", at("q", 2, 0));
    worker_restarts(&c, "w1"); /* stage 1, task 0 must be redone, for that stage 0, for that all of stage 1 */
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 1, 1), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 2, 0), TASK_QUEUED); /* it has seen rows that do not exist any more */
    CHECK_INT(state_of(&c, "q", 2, 1), TASK_QUEUED);
    worker_maps(&c, "w2", at("q", 0, 0), 2);
    worker_maps(&c, "w2", at("q", 1, 0), 2);
    worker_maps(&c, "w2", at("q", 1, 1), 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct assignment *a = worker_runs(&c, "w2", at("q", 2, i));
        CHECK_UINT(a->sources[0].attempt, 2);
        CHECK_UINT(a->sources[1].attempt, 2);
    }
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_nondeterministic_map_that_nobody_needs_is_left_alone)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 1, .nondeterministic = true), QUERY_STAGE(1, AFTER(READS(0))),
                                  QUERY_STAGE(1, AFTER(ON(1)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_runs(&c, "w2", at("q", 1, 0));
    worker_restarts(&c, "w1");
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_SUCCEEDED);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_nondeterministic_stage_read_by_two_stages_restarts_both)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 1, .nondeterministic = true), MAP_STAGE(1, 1, AFTER(READS(0))),
                                  MAP_STAGE(1, 1, AFTER(READS(0))), QUERY_STAGE(1, AFTER(READS(1), READS(2)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w2", at("q", 1, 0), 1); /* finished, its output is safe */
    worker_takes_task(&c, "w2", at("q", 2, 0));
    worker_restarts(&c, "w1");
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_QUEUED); /* both sides of the join must see the same rows */
    CHECK_INT(state_of(&c, "q", 2, 0), TASK_QUEUED);
    cluster_fail_over(&c);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    CHECK_UINT(worker_maps(&c, "w2", at("q", 1, 0), 1)->sources[0].attempt, 2);
    CHECK_UINT(worker_maps(&c, "w2", at("q", 2, 0), 1)->sources[0].attempt, 2);
    worker_runs(&c, "w2", at("q", 3, 0));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_nondeterministic_map_that_fails_before_it_succeeds_restarts_nobody)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(2, 1, .nondeterministic = true), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes_task(&c, "w1", at("q", 0, 1)), "boom"), REFUSE_NONE);
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_SUCCEEDED); /* nobody has read it */
    cluster_advance(&c, SECOND_MS);
    worker_maps(&c, "w1", at("q", 0, 1), 1);
    worker_runs(&c, "w1", at("q", 1, 0));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_loss_before_any_reader_started_redoes_only_the_map)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(2, 1, .nondeterministic = true), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w2", at("q", 0, 1), 1);
    worker_restarts(&c, "w1");
    CHECK_INT(state_of(&c, "q", 0, 1), TASK_SUCCEEDED);
    worker_maps(&c, "w2", at("q", 0, 0), 1);
    const struct assignment *a = worker_runs(&c, "w2", at("q", 1, 0));
    CHECK_UINT(a->ref.attempt, 1);
    cluster_finish(&c);
}

TEST(the_results_of_restarted_readers_are_withdrawn)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 2, .nondeterministic = true), RESULT_STAGE(2, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    const struct assignment *a = worker_takes_task(&c, "w2", at("q", 1, 0));
    CHECK_INT(worker_registers_result(&c, "w2", a, 1000000, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w2", a), REFUSE_NONE);
    worker_restarts(&c, "w1");
    CHECK_UINT(row_store_count(&c.store, ROW_RESULT), 0);
    CHECK_UINT(stored_job(&c.store, "q")->inline_bytes, 0);
    uint64_t rows = c.store.n_applied;
    worker_succeeds(&c, "w2", a); /* a repeated report of the withdrawn attempt, however it is answered, wins nothing */
    CHECK_UINT(c.store.n_applied, rows);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_QUEUED);
    worker_maps(&c, "w2", at("q", 0, 0), 2);
    a = worker_takes_task(&c, "w2", at("q", 1, 0));
    CHECK_INT(worker_registers_result(&c, "w2", a, 1000000, true), REFUSE_NONE); /* the room is free again */
    cluster_finish(&c);
}
