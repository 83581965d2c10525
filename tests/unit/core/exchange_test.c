/*
 * exchange_test.c - semantics section 10: map outputs, what is lost, and what is redone for it.
 */
#include <string.h>

#include "cluster.h"

#define NOT_REGISTERED "map output not registered for requested attempt"

/* Query "q": `maps` map tasks with as many partitions as there are readers, then `readers` tasks that read them. */
static void submit_shuffle(struct cluster *c, uint32_t maps, uint32_t readers)
{
    struct stage_spec stages[] = {MAP_STAGE(maps, readers), QUERY_STAGE(readers, AFTER(READS(0)))};
    SUBMIT_QUERY(c, "q", stages);
}

static enum err map_output_err(const struct cluster *c, struct attempt_ref ref)
{
    struct output_info info;
    struct error e = {0};
    enum err code = core_map_output(c->core, &ref, &info, &e);
    if (code != ERR_OK) {
        CHECK_STR(e.message, NOT_REGISTERED);
    }
    return code;
}

TEST(a_map_output_can_be_fetched_once_its_attempt_has_succeeded)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_shuffle(&c, 1, 3);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_ERR(map_output_err(&c, a->ref), ERR_NOT_FOUND);
    CHECK_INT(worker_registers_map(&c, "w1", a, 3), REFUSE_NONE);
    CHECK_ERR(map_output_err(&c, a->ref), ERR_NOT_FOUND); /* not yet succeeded */
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);

    struct output_info info;
    struct error e;
    CHECK_ERR(core_map_output(c.core, &a->ref, &info, &e), ERR_OK);
    CHECK_UINT(info.attempt, 1);
    CHECK_STR(info.worker_id, "w1");
    CHECK_STR(info.address, "w1.test:7401");
    CHECK_UINT(info.n_partitions, 3);
    CHECK_UINT(info.partitions[2].bytes, 1002);
    CHECK_UINT(info.partitions[2].rows, 12);
    CHECK_UINT(info.partitions[2].checksum, 79);
    struct attempt_ref wrong = a->ref;
    wrong.attempt = 2;
    CHECK_ERR(map_output_err(&c, wrong), ERR_NOT_FOUND);
    wrong = a->ref;
    wrong.task.task = 1;
    CHECK_ERR(map_output_err(&c, wrong), ERR_NOT_FOUND);
    wrong = a->ref;
    wrong.task.job_id = "other";
    CHECK_ERR(map_output_err(&c, wrong), ERR_NOT_FOUND);
    cluster_finish(&c);
}

TEST(readers_are_told_which_attempts_to_read)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_shuffle(&c, 2, 2);
    CHECK_INT(worker_releases(&c, "w1", worker_takes_task(&c, "w1", at("q", 0, 0))), REFUSE_NONE);
    worker_maps(&c, "w1", at("q", 0, 0), 2); /* its second attempt */
    worker_maps(&c, "w2", at("q", 0, 1), 2);
    const struct assignment *reader = worker_takes_task(&c, "w2", at("q", 1, 0));
    CHECK_UINT(reader->n_sources, 2);
    CHECK_UINT(reader->sources[0].ref.stage, 0);
    CHECK_UINT(reader->sources[0].ref.task, 0);
    CHECK_UINT(reader->sources[0].attempt, 2);
    CHECK_STR(reader->sources[0].worker_id, "w1");
    CHECK_STR(reader->sources[0].address, "w1.test:7401");
    CHECK_UINT(reader->sources[1].ref.task, 1);
    CHECK_UINT(reader->sources[1].attempt, 1);
    CHECK_STR(reader->sources[1].worker_id, "w2");
    cluster_finish(&c);
}

/* Executors tell their inputs apart by it. */
TEST(sources_come_in_the_order_in_which_the_stage_names_its_parents)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), MAP_STAGE(1, 1), MAP_STAGE(1, 1),
                                  QUERY_STAGE(1, AFTER(READS(2), READS(0), READS_ALL(1))),
                                  QUERY_STAGE(1, AFTER(READS(0), READS_ALL(1), READS(2)))};
    static const uint32_t orders[][3] = {{2, 0, 1}, {0, 1, 2}};
    SUBMIT_QUERY(&c, "q", stages);
    for (uint32_t i = 0; i < 3; i++) {
        worker_maps(&c, "w1", at("q", i, 0), 1);
    }
    for (uint32_t reader = 0; reader < 2; reader++) {
        const struct assignment *a = worker_takes_task(&c, "w1", at("q", 3 + reader, 0));
        CHECK_UINT(a->n_sources, 3);
        for (uint32_t i = 0; i < 3; i++) {
            CHECK_UINT(a->sources[i].ref.stage, orders[reader][i]);
        }
    }
    cluster_finish(&c);
}

TEST(readers_get_their_own_range_of_partitions)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 5), QUERY_STAGE(2, AFTER(READS(0))),
                                  QUERY_STAGE(2, AFTER(READS_ALL(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 5);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 1, 0));
    CHECK_UINT(a->sources[0].first_partition, 0);
    CHECK_UINT(a->sources[0].n_partitions, 2); /* 0*5/2 up to 1*5/2 */
    CHECK_UINT(a->sources[0].partitions[1].bytes, 1001);
    a = worker_takes_task(&c, "w1", at("q", 1, 1));
    CHECK_UINT(a->sources[0].first_partition, 2);
    CHECK_UINT(a->sources[0].n_partitions, 3);
    CHECK_UINT(a->sources[0].partitions[0].bytes, 1002);
    for (uint32_t i = 0; i < 2; i++) {
        a = worker_takes_task(&c, "w1", at("q", 2, i));
        CHECK_UINT(a->sources[0].first_partition, 0);
        CHECK_UINT(a->sources[0].n_partitions, 5);
    }
    cluster_finish(&c);
}

TEST(a_map_output_that_does_not_fit_the_stage_is_refused)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_shuffle(&c, 1, 2);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_map(&c, "w1", a, 1), REFUSE_BAD_OUTPUT);
    CHECK_INT(worker_registers_map(&c, "w1", a, 3), REFUSE_BAD_OUTPUT);
    CHECK_INT(worker_registers_result(&c, "w1", a, 10, true), REFUSE_BAD_OUTPUT);
    CHECK_INT(worker_registers_map(&c, "w2", a, 2), REFUSE_WRONG_WORKER);
    struct assignment forged = *a;
    forged.ref.token.bits[0]++;
    CHECK_INT(worker_registers_map(&c, "w1", &forged, 2), REFUSE_WRONG_TOKEN);
    forged = *a;
    forged.ref.task.job_id = "other";
    CHECK_INT(worker_registers_map(&c, "w1", &forged, 2), REFUSE_UNKNOWN_JOB);
    CHECK_INT(worker_registers_map(&c, "w1", a, 2), REFUSE_NONE);
    CHECK_INT(worker_registers_map(&c, "w1", a, 2), REFUSE_NONE); /* again: the answer was lost */
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_UINT(row_store_count(&c.store, ROW_MAP_OUTPUT), 1);
    cluster_finish(&c);
}

TEST(a_partition_that_cannot_be_fetched_sends_its_map_task_back)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    submit_shuffle(&c, 2, 1);
    const struct assignment *lost = worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w2", at("q", 0, 1), 1);
    const struct assignment *reader = worker_takes_task(&c, "w2", at("q", 1, 0));
    CHECK_UINT(reader->n_sources, 2);
    CHECK_INT(worker_cannot_fetch(&c, "w2", reader, &reader->sources[0]), REFUSE_NONE);

    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 0, 1), TASK_SUCCEEDED); /* the other is still there */
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_QUEUED);
    CHECK_ERR(map_output_err(&c, lost->ref), ERR_NOT_FOUND);
    CHECK_UINT(task_of(&c, "q", 0, 0).failures, 0); /* fetch failures count nothing */
    CHECK_UINT(task_of(&c, "q", 1, 0).failures, 0);
    CHECK_UINT(node_of(&c, "w1").failures, 0); /* and blame nobody */
    CHECK_UINT(node_of(&c, "w2").failures, 0);
    cluster_fail_over(&c);

    CHECK_UINT(worker_maps(&c, "w2", at("q", 0, 0), 1)->ref.attempt, 2);
    cluster_advance(&c, SECOND_MS);
    reader = worker_takes_task(&c, "w3", at("q", 1, 0));
    CHECK_UINT(reader->n_sources, 2);
    CHECK_UINT(reader->sources[0].ref.task, 0);
    CHECK_UINT(reader->sources[0].attempt, 2);
    CHECK_STR(reader->sources[0].worker_id, "w2");
    CHECK_UINT(reader->sources[1].attempt, 1);
    CHECK_INT(worker_succeeds(&c, "w3", reader), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_fetch_failure_is_not_the_readers_own_fault)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    submit_shuffle(&c, 1, 1);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    const struct assignment *reader = worker_takes_task(&c, "w2", at("q", 1, 0));
    CHECK_INT(worker_cannot_fetch(&c, "w2", reader, &reader->sources[0]), REFUSE_NONE);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    cluster_advance(&c, SECOND_MS);
    CHECK_INT(worker_fails(&c, "w3", worker_takes_task(&c, "w3", at("q", 1, 0)), "boom"), REFUSE_NONE);
    CHECK_UINT(node_of(&c, "w3").failures, 1); /* its first failure: so it may be the worker's fault */
    cluster_finish(&c);
}

TEST(the_loss_of_an_incarnation_is_one_recovery_before_readers_fail)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_shuffle(&c, 4, 2);
    for (uint32_t i = 0; i < 3; i++) {
        worker_maps(&c, "w1", at("q", 0, i), 2);
    }
    worker_maps(&c, "w2", at("q", 0, 3), 2);
    worker_restarts(&c, "w1"); /* its files went with its process */
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(state_of(&c, "q", 0, i), TASK_QUEUED);
    }
    CHECK_INT(state_of(&c, "q", 0, 3), TASK_SUCCEEDED);
    CHECK_UINT(stored_stage(&c.store, "q", 0)->n_recovered, 1);
    for (uint32_t i = 0; i < 3; i++) {
        worker_maps(&c, "w2", at("q", 0, i), 2);
    }
    worker_runs(&c, "w2", at("q", 1, 0));
    worker_runs(&c, "w2", at("q", 1, 1));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_stale_worker_and_one_that_leaves_lose_their_outputs_too)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    submit_shuffle(&c, 2, 1);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w2", at("q", 0, 1), 1);
    worker_dies(&c, "w1");
    cluster_advance(&c, 17 * SECOND_MS);
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    worker_leaves(&c, "w2");
    CHECK_INT(state_of(&c, "q", 0, 1), TASK_QUEUED);
    CHECK_UINT(stored_stage(&c.store, "q", 0)->n_recovered, 2);
    CHECK_UINT(task_of(&c, "q", 0, 0).failures, 0);
    worker_maps(&c, "w3", at("q", 0, 0), 1);
    worker_maps(&c, "w3", at("q", 0, 1), 1);
    worker_runs(&c, "w3", at("q", 1, 0));
    cluster_finish(&c);
}

TEST(readers_that_fail_on_a_loss_that_is_known_already_start_no_further_recovery)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    submit_shuffle(&c, 3, 2);
    for (uint32_t i = 0; i < 3; i++) {
        worker_maps(&c, "w1", at("q", 0, i), 2);
    }
    const struct assignment *r0 = worker_takes_task(&c, "w2", at("q", 1, 0));
    const struct assignment *r1 = worker_takes_task(&c, "w2", at("q", 1, 1));
    worker_restarts(&c, "w1");
    CHECK_UINT(stored_stage(&c.store, "q", 0)->n_recovered, 1);
    const struct assignment *redone = worker_maps(&c, "w1", at("q", 0, 0), 2);
    CHECK_INT(worker_cannot_fetch(&c, "w2", r0, &r0->sources[0]), REFUSE_NONE);
    CHECK_INT(worker_cannot_fetch(&c, "w2", r1, &r1->sources[2]), REFUSE_NONE);
    CHECK_UINT(stored_stage(&c.store, "q", 0)->n_recovered, 1);
    CHECK_ERR(map_output_err(&c, redone->ref), ERR_OK); /* the new attempt is not touched by old news */
    worker_maps(&c, "w1", at("q", 0, 1), 2);
    worker_maps(&c, "w1", at("q", 0, 2), 2);
    cluster_advance(&c, SECOND_MS);
    worker_runs(&c, "w3", at("q", 1, 0));
    worker_runs(&c, "w3", at("q", 1, 1));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(fetch_failures_of_one_incarnation_are_one_recovery)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_shuffle(&c, 3, 3);
    for (uint32_t i = 0; i < 3; i++) {
        worker_maps(&c, "w1", at("q", 0, i), 3);
    }
    const struct assignment *readers[3];
    for (uint32_t i = 0; i < 3; i++) {
        readers[i] = worker_takes_task(&c, "w2", at("q", 1, i));
    }
    for (uint32_t i = 0; i < 3; i++) { /* each cannot read another map of the same process */
        CHECK_INT(worker_cannot_fetch(&c, "w2", readers[i], &readers[i]->sources[i]), REFUSE_NONE);
        CHECK_UINT(stored_stage(&c.store, "q", 0)->n_recovered, 1);
    }
    cluster_finish(&c);
}

TEST(recoveries_of_a_stage_are_bounded)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_shuffle(&c, 1, 1);
    for (uint32_t i = 1; i <= 5; i++) {
        CHECK_INT(job_state_of(&c, "q"), i == 1 ? JOB_QUEUED : JOB_RUNNING);
        worker_maps(&c, "w1", at("q", 0, 0), 1);
        const struct assignment *r = worker_takes_task(&c, "w1", at("q", 1, 0));
        CHECK_INT(worker_cannot_fetch(&c, "w1", r, &r->sources[0]), REFUSE_NONE); /* the disk is broken */
        cluster_advance(&c, 60 * SECOND_MS);
    }
    CHECK_INT(job_state_of(&c, "q"), JOB_FAILED); /* max_fetch_recoveries is 4 */
    const char *message = stored_job(&c.store, "q")->message;
    CHECK(strstr(message, "stage 0 lost its map outputs 5 times; at last: ") == message); /* and why */
    cluster_finish(&c);
}

TEST(recoveries_are_bounded_by_lost_workers_too)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_fetch_recoveries = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_shuffle(&c, 2, 1);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_restarts(&c, "w1");
    CHECK_INT(job_state_of(&c, "q"), JOB_RUNNING);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    cluster_fail_over(&c);
    worker_restarts(&c, "w1");
    CHECK_INT(job_state_of(&c, "q"), JOB_FAILED);
    cluster_finish(&c);
}

TEST(outputs_that_nobody_needs_any_more_are_not_redone)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(2, 1), QUERY_STAGE(1, AFTER(READS(0))), QUERY_STAGE(1, AFTER(ON(1)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w1", at("q", 0, 1), 1);
    worker_runs(&c, "w2", at("q", 1, 0));
    worker_restarts(&c, "w1");
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_SUCCEEDED);
    CHECK_UINT(stored_stage(&c.store, "q", 0)->n_recovered, 0);
    worker_runs(&c, "w2", at("q", 2, 0));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

/* Query "q" of three stages in a row, one task each, all outputs shuffled. */
static void submit_three(struct cluster *c)
{
    struct stage_spec stages[] = {MAP_STAGE(1, 1), MAP_STAGE(1, 1, AFTER(READS(0))), QUERY_STAGE(1, AFTER(READS(1)))};
    SUBMIT_QUERY(c, "q", stages);
}

TEST(a_loss_reaches_back_as_far_as_it_must)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_three(&c);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w1", at("q", 1, 0), 1);
    worker_restarts(&c, "w1"); /* both are gone: the second cannot be redone without the first */
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_QUEUED);
    cluster_fail_over(&c);
    worker_maps(&c, "w2", at("q", 0, 0), 1);
    worker_maps(&c, "w2", at("q", 1, 0), 1);
    worker_runs(&c, "w2", at("q", 2, 0));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_loss_reaches_no_further_back_than_it_must)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_three(&c);
    worker_maps(&c, "w2", at("q", 0, 0), 1);
    worker_maps(&c, "w1", at("q", 1, 0), 1);
    worker_restarts(&c, "w1");
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_SUCCEEDED);
    const struct assignment *a = worker_maps(&c, "w1", at("q", 1, 0), 1);
    CHECK_UINT(a->sources[0].attempt, 1);
    worker_runs(&c, "w2", at("q", 2, 0));
    cluster_finish(&c);
}

TEST(an_output_lost_while_unneeded_is_redone_when_it_is_needed_again)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    submit_three(&c);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w2", at("q", 1, 0), 1);
    worker_restarts(&c, "w1"); /* nobody needs it: its reader is done */
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_SUCCEEDED);
    cluster_fail_over(&c);
    worker_restarts(&c, "w2"); /* now the reader must read it again */
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_QUEUED);
    worker_maps(&c, "w3", at("q", 0, 0), 1);
    const struct assignment *a = worker_maps(&c, "w3", at("q", 1, 0), 1);
    CHECK_UINT(a->sources[0].attempt, 2);
    worker_runs(&c, "w3", at("q", 2, 0));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_running_reader_of_a_deterministic_map_goes_on)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_shuffle(&c, 1, 2);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_runs(&c, "w2", at("q", 1, 0));
    const struct assignment *r = worker_takes_task(&c, "w2", at("q", 1, 1));
    worker_restarts(&c, "w1");
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_SUCCEEDED);
    CHECK_UINT(worker_beats(&c, "w2")->u.heartbeat.n_stop, 0); /* it may have read all it needs */
    CHECK_INT(worker_succeeds(&c, "w2", r), REFUSE_NONE);
    if (state_of(&c, "q", 0, 0) == TASK_QUEUED) { /* on its way already when the last reader ended */
        worker_maps(&c, "w2", at("q", 0, 0), 2);
    }
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_forged_fetch_failure_moves_nothing_of_other_jobs)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec victim[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "victim", victim);
    worker_maps(&c, "w1", at("victim", 0, 0), 1);
    const struct assignment *kept = worker_takes_task(&c, "w1", at("victim", 1, 0));
    submit_tasks(&c, "liar", 1);
    const struct assignment *a = worker_takes_task(&c, "w1", at("liar", 0, 0));
    const struct source forged[] = {
        {.ref = at("victim", 0, 0), .attempt = 1},
        {.ref = at("ghost", 0, 0), .attempt = 1},
        {.ref = at("liar", 7, 0), .attempt = 1},
        {.ref = at("liar", 0, 9), .attempt = 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(forged); i++) {
        worker_cannot_fetch(&c, "w1", a, &forged[i]);
        CHECK_INT(state_of(&c, "victim", 0, 0), TASK_SUCCEEDED);
        cluster_advance(&c, 5 * SECOND_MS);
        a = state_of(&c, "liar", 0, 0) == TASK_QUEUED ? worker_takes_task(&c, "w1", at("liar", 0, 0)) : a;
    }
    CHECK_INT(worker_succeeds(&c, "w1", kept), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "victim"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(more_readers_than_partitions_leave_some_with_nothing_to_read)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 2), QUERY_STAGE(4, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    uint32_t read = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const struct assignment *a = worker_runs(&c, "w1", at("q", 1, i));
        for (uint32_t s = 0; s < a->n_sources; s++) {
            CHECK_UINT(a->sources[s].first_partition, i * 2 / 4);
            CHECK_UINT(a->sources[s].n_partitions, (i + 1) * 2 / 4 - i * 2 / 4);
            read += a->sources[s].n_partitions;
        }
    }
    CHECK_UINT(read, 2); /* every partition once */
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_stage_can_read_several_others_each_in_its_way)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(2, 2), MAP_STAGE(1, 3), QUERY_STAGE(1),
                                  QUERY_STAGE(2, AFTER(READS(0), READS_ALL(1), ON(2)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_maps(&c, "w1", at("q", 0, 1), 2);
    worker_maps(&c, "w1", at("q", 1, 0), 3);
    worker_runs(&c, "w1", at("q", 2, 0));
    worker_runs(&c, "w1", at("q", 3, 0));
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 3, 1));
    CHECK_UINT(a->n_sources, 3);
    for (uint32_t i = 0; i < 3; i++) {
        bool all = a->sources[i].ref.stage == 1;
        CHECK_UINT(a->sources[i].first_partition, all ? 0 : 1);
        CHECK_UINT(a->sources[i].n_partitions, all ? 3 : 1);
    }
    cluster_finish(&c);
}

TEST(one_report_may_name_several_lost_outputs)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    submit_shuffle(&c, 3, 1);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w2", at("q", 0, 1), 1);
    worker_maps(&c, "w3", at("q", 0, 2), 1);
    const struct assignment *reader = worker_takes_task(&c, "w3", at("q", 1, 0));
    struct attempt_ref lost[] = {{.task = at("q", 0, 0), .attempt = 1}, {.task = at("q", 0, 1), .attempt = 1}};
    struct task_report report = report_on(reader, TASK_FAILED);
    report.fetch_failed = lost;
    report.n_fetch_failed = 2;
    CHECK_INT(worker_reports(&c, "w3", &report), REFUSE_NONE);
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 0, 1), TASK_QUEUED);
    CHECK_INT(state_of(&c, "q", 0, 2), TASK_SUCCEEDED);
    CHECK_INT(worker_reports(&c, "w3", &report), REFUSE_NONE);  /* again: the answer was lost */
    CHECK_UINT(stored_stage(&c.store, "q", 0)->n_recovered, 2); /* two processes */
    cluster_finish(&c);
}

TEST(without_recoveries_the_first_loss_fails_the_job)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_fetch_recoveries = 0;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_shuffle(&c, 1, 1);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_restarts(&c, "w1");
    CHECK_INT(job_state_of(&c, "q"), JOB_FAILED);
    cluster_finish(&c);
}

TEST(a_lost_map_waits_for_nothing_but_a_worker)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_shuffle(&c, 2, 1);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    uint64_t poll = worker_waits(&c, "w2", 8, 60000); /* takes map 1 at once */
    CHECK_UINT(worker_answer(&c, "w2", poll)->u.tasks.n_tasks, 1);
    poll = worker_waits(&c, "w2", 8, 60000);
    worker_leaves(&c, "w1");
    const struct reply *reply = worker_answer(&c, "w2", poll);
    CHECK(reply != NULL);
    CHECK_UINT(reply->u.tasks.n_tasks, 1);
    CHECK_UINT(reply->u.tasks.first->ref.task.task, 0);
    cluster_finish(&c);
}

TEST(map_outputs_are_gone_when_the_job_has_ended)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_shuffle(&c, 1, 1);
    const struct assignment *m = worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_runs(&c, "w1", at("q", 1, 0));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    CHECK_UINT(row_store_count(&c.store, ROW_MAP_OUTPUT), 0);
    CHECK_ERR(map_output_err(&c, m->ref), ERR_NOT_FOUND);
    cluster_finish(&c);
}

/* Takes a map task, registers its output, and succeeds with ten rows. */
static void map_ten_rows(struct cluster *c, const char *worker, uint32_t task)
{
    const struct assignment *a = worker_takes_task(c, worker, at("q", 0, task));
    CHECK_INT(worker_registers_map(c, worker, a, 1), REFUSE_NONE);
    struct task_report report = report_on(a, TASK_SUCCEEDED);
    report.rows = 10;
    report.bytes = 1000; /* as registered */
    CHECK_INT(worker_reports(c, worker, &report), REFUSE_NONE);
}

static void check_stage_rows(struct cluster *c, uint64_t rows)
{
    for (int i = 0; i < 2; i++) {
        struct stage_status stage;
        CHECK_ERR(core_stage_status(c->core, "q", 0, &stage), ERR_OK);
        CHECK_UINT(stage.rows, rows);
        CHECK_UINT(stage.bytes, rows * 100);
        cluster_fail_over(c);
    }
}

TEST(rows_that_were_lost_are_not_counted_twice)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_shuffle(&c, 2, 1);
    map_ten_rows(&c, "w1", 0);
    map_ten_rows(&c, "w2", 1);
    check_stage_rows(&c, 20);
    worker_restarts(&c, "w1");
    check_stage_rows(&c, 10);
    map_ten_rows(&c, "w2", 0);
    check_stage_rows(&c, 20);
    uint64_t rows = 0;
    uint64_t bytes = 0;
    CHECK_ERR(core_stage_sizes(c.core, "q", 0, &rows, &bytes), ERR_OK);
    CHECK_UINT(rows, 20);
    CHECK_UINT(bytes, 2000);
    CHECK(core_stage_sizes(c.core, "q", 5, &rows, &bytes) != ERR_OK);
    cluster_finish(&c);
}

TEST(a_draining_worker_goes_on_serving_its_outputs)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_shuffle(&c, 1, 1);
    const struct assignment *m = worker_maps(&c, "w1", at("q", 0, 0), 1);
    operator_drains(&c, "w1", true);
    CHECK_ERR(map_output_err(&c, m->ref), ERR_OK);
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.outputs_needed, 1);
    worker_gets_nothing(&c, "w1");
    const struct assignment *r = worker_runs(&c, "w2", at("q", 1, 0));
    CHECK_STR(r->sources[0].worker_id, "w1");
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.outputs_needed, 0); /* it may go */
    cluster_finish(&c);
}

TEST(a_reader_can_only_lose_what_it_reads)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0), ON(1))),
                                  QUERY_STAGE(1, AFTER(READS(1)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_maps(&c, "w1", at("q", 1, 0), 1);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 2, 0));
    CHECK_UINT(a->n_sources, 1);
    const struct source only_waited_for = {.ref = at("q", 1, 0), .attempt = 1};
    worker_cannot_fetch(&c, "w1", a, &only_waited_for);
    CHECK_INT(state_of(&c, "q", 1, 0), TASK_SUCCEEDED);
    CHECK_UINT(stored_stage(&c.store, "q", 1)->n_recovered, 0);
    cluster_finish(&c);
}

TEST(an_output_that_was_registered_without_success_goes_with_its_attempt)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_shuffle(&c, 1, 1);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_map(&c, "w1", a, 1), REFUSE_NONE);
    CHECK_UINT(row_store_count(&c.store, ROW_MAP_OUTPUT), 1);
    CHECK_INT(worker_releases(&c, "w1", a), REFUSE_NONE);
    CHECK_UINT(row_store_count(&c.store, ROW_MAP_OUTPUT), 0);
    CHECK_ERR(map_output_err(&c, a->ref), ERR_NOT_FOUND);
    a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_map(&c, "w1", a, 1), REFUSE_NONE);
    CHECK_INT(worker_fails(&c, "w1", a, "boom"), REFUSE_NONE);
    CHECK_UINT(row_store_count(&c.store, ROW_MAP_OUTPUT), 0);
    cluster_finish(&c);
}
