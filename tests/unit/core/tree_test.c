/*
 * tree_test.c - semantics section 2: dependencies, failure and skipping in task trees, at any depth and width.
 */
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "cluster.h"

TEST(a_tree_runs_in_the_order_of_its_dependencies)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {
        TREE_TASK("last", AFTER(ON(2), ON(3))), /* listed before what it depends on */
        TREE_TASK("first"),
        TREE_TASK("left", AFTER(ON(1))),
        TREE_TASK("right", AFTER(ON(1))),
    };
    SUBMIT_TREE(&c, "t", stages);
    worker_runs(&c, "w1", at("t", 1, 0));
    const struct assignment *left = worker_takes_task(&c, "w1", at("t", 2, 0));
    const struct assignment *right = worker_takes_task(&c, "w1", at("t", 3, 0));
    CHECK_STR(left->name, "left");
    worker_gets_nothing(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", right), REFUSE_NONE);
    worker_gets_nothing(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", left), REFUSE_NONE);
    worker_runs(&c, "w1", at("t", 0, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_failure_skips_dependents_while_other_branches_go_on)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {
        TREE_TASK("bad"),  TREE_TASK("after_bad", AFTER(ON(0))),  TREE_TASK("after_that", AFTER(ON(1))),
        TREE_TASK("good"), TREE_TASK("after_good", AFTER(ON(3))), TREE_TASK("after_both", AFTER(ON(1), ON(4))),
    };
    SUBMIT_TREE(&c, "t", stages);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("t", 0, 0)), "no"), REFUSE_NONE);
    CHECK_INT(state_of(&c, "t", 0, 0), TASK_FAILED);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_SKIPPED);
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_SKIPPED);
    CHECK_INT(state_of(&c, "t", 5, 0), TASK_SKIPPED);
    CHECK_UINT(cluster_task_events(&c, EVENT_SKIPPED, at("t", 2, 0)), 1);
    CHECK_INT(job_state_of(&c, "t"), JOB_RUNNING);
    worker_runs(&c, "w1", at("t", 3, 0));
    worker_runs(&c, "w1", at("t", 4, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    CHECK_INT(stored_task(&c.store, at("t", 5, 0))->state, TASK_SKIPPED);
    CHECK_INT(stored_task(&c.store, at("t", 4, 0))->state, TASK_SUCCEEDED);
    cluster_finish(&c);
}

TEST(on_failure_stop_cancels_the_rest_at_once)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {TREE_TASK("bad"), TREE_TASK("running"), TREE_TASK("queued"),
                                  TREE_TASK("dependent", AFTER(ON(0)))};
    struct cmd_submit request = submit_request("t", JOB_KIND_TREE, stages, 4);
    request.stop_on_failure = true;
    submit_ok(&c, &request);
    const struct assignment *bad = worker_takes_task(&c, "w1", at("t", 0, 0));
    const struct assignment *other = worker_takes_task(&c, "w2", at("t", 1, 0));
    uint64_t poll = worker_waits(&c, "w2", 0, 60000);
    CHECK_INT(worker_fails_for_good(&c, "w1", bad, "no"), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_CANCELED);
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_CANCELED);
    CHECK(worker_answer(&c, "w2", poll) != NULL);
    CHECK(worker_was_stopped(&c, "w2", other));
    CHECK_INT(stored_task(&c.store, at("t", 0, 0))->state, TASK_FAILED);
    CHECK_INT(stored_task(&c.store, at("t", 1, 0))->state, TASK_CANCELED);
    CHECK_INT(stored_task(&c.store, at("t", 2, 0))->state, TASK_CANCELED);
    CHECK_UINT(row_store_count(&c.store, ROW_LEASE), 0);
    CHECK_INT(stored_attempt(&c.store, at("t", 1, 0), 1)->outcome, OUTCOME_LOST);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(queries_always_stop_on_failure)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {QUERY_STAGE(3), QUERY_STAGE(3)};
    SUBMIT_QUERY(&c, "q", stages); /* without stop_on_failure */
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), "no"), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_FAILED);
    CHECK_INT(state_of(&c, "q", 1, 2), TASK_CANCELED);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(a_retry_that_is_still_possible_stops_nothing)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "q", 2);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_RUNNING);
    worker_runs(&c, "w1", at("q", 0, 1));
    cluster_advance(&c, SECOND_MS);
    worker_runs(&c, "w1", at("q", 0, 0));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(an_optional_dependency_waits_for_any_end)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {
        TREE_TASK("flaky"),
        TREE_TASK("skipped", AFTER(ON(0))),
        TREE_TASK("anyway", AFTER(ON_ANY_END(0), ON_ANY_END(1))),
    };
    SUBMIT_TREE(&c, "t", stages);
    const struct assignment *a = worker_takes_task(&c, "w1", at("t", 0, 0));
    worker_gets_nothing(&c, "w1"); /* optional, and still it waits */
    CHECK_INT(worker_fails_for_good(&c, "w1", a, "no"), REFUSE_NONE);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_SKIPPED);
    worker_runs(&c, "w1", at("t", 2, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED); /* a task failed, though nothing waited for it */
    cluster_finish(&c);
}

TEST(an_optional_dependency_waits_through_retries)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("flaky"), TREE_TASK("anyway", AFTER(ON_ANY_END(0)))};
    SUBMIT_TREE(&c, "t", stages);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    worker_gets_nothing(&c, "w1");
    cluster_advance(&c, SECOND_MS);
    worker_runs(&c, "w1", at("t", 0, 0));
    worker_runs(&c, "w1", at("t", 1, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_required_and_an_optional_parent_both_count)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("a"), TREE_TASK("b"), TREE_TASK("z", AFTER(ON_ANY_END(0), ON(1)))};
    SUBMIT_TREE(&c, "t", stages);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("t", 0, 0)), "no"), REFUSE_NONE);
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_QUEUED);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("t", 1, 0)), "no"), REFUSE_NONE);
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_SKIPPED);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    cluster_finish(&c);
}

/* Wants it refused as invalid, and nothing of it stored. */
static const char *check_invalid(struct cluster *c, const struct cmd_submit *request)
{
    uint64_t rows = c->store.n_applied;
    const struct reply *reply = submit(c, request);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_ERR(reply->code, ERR_INVALID);
    CHECK(reply->message != NULL);
    CHECK(reply->message[0] != '\0');
    CHECK_UINT(c->store.n_applied, rows);
    CHECK(!core_has_job(c->core, request->job_id));
    return reply->message;
}

TEST(an_empty_tree_is_rejected)
{
    struct cluster c;
    cluster_init(&c);
    struct cmd_submit request = submit_request("t", JOB_KIND_TREE, NULL, 0);
    check_invalid(&c, &request);
    cluster_finish(&c);
}

TEST(cycles_are_rejected)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec self[] = {TREE_TASK("a", AFTER(ON(0)))};
    struct cmd_submit request = submit_request("t", JOB_KIND_TREE, self, 1);
    check_invalid(&c, &request);
    struct stage_spec ring[] = {TREE_TASK("root"), TREE_TASK("a", AFTER(ON(0), ON(3))), TREE_TASK("b", AFTER(ON(1))),
                                TREE_TASK("c", AFTER(ON_ANY_END(2)))};
    request = submit_request("t", JOB_KIND_TREE, ring, 4);
    check_invalid(&c, &request);
    cluster_finish(&c);
}

TEST(unknown_parents_and_stages_without_tasks_are_rejected)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec unknown[] = {TREE_TASK("a"), TREE_TASK("b", AFTER(ON(2)))};
    struct cmd_submit request = submit_request("t", JOB_KIND_TREE, unknown, 2);
    check_invalid(&c, &request);
    struct stage_spec none[] = {QUERY_STAGE(0)};
    request = submit_request("t", JOB_KIND_QUERY, none, 1);
    check_invalid(&c, &request);
    struct stage_spec no_partitions[] = {MAP_STAGE(1, 0)};
    request = submit_request("t", JOB_KIND_QUERY, no_partitions, 1);
    check_invalid(&c, &request);
    struct stage_spec too_many[] = {MAP_STAGE(1, LIMIT_PARTITIONS + 1)};
    request = submit_request("t", JOB_KIND_QUERY, too_many, 1);
    check_invalid(&c, &request);
    struct stage_spec just_enough[] = {MAP_STAGE(1, LIMIT_PARTITIONS)};
    SUBMIT_QUERY(&c, "large", just_enough);
    struct stage_spec no_output[] = {QUERY_STAGE(1), QUERY_STAGE(1, AFTER(READS(0)))};
    request = submit_request("t", JOB_KIND_QUERY, no_output, 2);
    check_invalid(&c, &request); /* reads what is never written */
    cluster_finish(&c);
}

TEST(a_job_above_the_limits_is_rejected)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec huge[] = {QUERY_STAGE(6000000), QUERY_STAGE(6000000)};
    struct cmd_submit request = submit_request("t", JOB_KIND_QUERY, huge, 2);
    check_invalid(&c, &request);
    cluster_finish(&c);
}

static uint64_t rows_per_task(const struct cluster *c, uint64_t before, uint64_t tasks)
{
    return (c->store.n_applied - before) / tasks;
}

static struct core_config wide_open(void)
{
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 100000;
    config.max_concurrent_tasks_per_query = 10000000;
    return config;
}

#define LARGE 100000

/* A chain of LARGE tasks, each after the one before. */
static void submit_chain(struct cluster *c, const char *job_id)
{
    struct stage_spec *stages = mem_calloc(LARGE, sizeof(*stages));
    struct stage_parent *parents = mem_calloc(LARGE, sizeof(*parents));
    for (uint32_t i = 0; i < LARGE; i++) {
        stages[i] = (struct stage_spec){.need = &ANY_WORKER, .n_tasks = 1, .backoff_ms = -1};
        parents[i] = (struct stage_parent){.stage = i - 1, .added = true};
        stages[i].parents = i == 0 ? NULL : &parents[i];
        stages[i].n_parents = i == 0 ? 0 : 1;
    }
    submit_stages(c, job_id, JOB_KIND_TREE, stages, LARGE);
    mem_free(parents);
    mem_free(stages);
}

/* A root, LARGE tasks after it, and one after all of these. */
static void submit_fan(struct cluster *c, const char *job_id)
{
    struct stage_spec *stages = mem_calloc(LARGE + 2, sizeof(*stages));
    struct stage_parent *all = mem_calloc(LARGE, sizeof(*all));
    static const struct stage_parent root = {.stage = 0, .added = true};
    for (uint32_t i = 0; i < LARGE + 2; i++) {
        stages[i] = (struct stage_spec){.need = &ANY_WORKER, .n_tasks = 1, .backoff_ms = -1};
        if (i > 0 && i <= LARGE) {
            stages[i].parents = &root;
            stages[i].n_parents = 1;
            all[i - 1] = (struct stage_parent){.stage = i, .added = true};
        }
    }
    stages[LARGE + 1].parents = all;
    stages[LARGE + 1].n_parents = LARGE;
    submit_stages(c, job_id, JOB_KIND_TREE, stages, LARGE + 2);
    mem_free(all);
    mem_free(stages);
}

TEST(a_chain_of_100000_runs_in_linearly_many_steps)
{
    struct cluster c;
    cluster_init_with(&c, wide_open());
    c.checks = false;
    worker_joins(&c, "w1");
    uint64_t before = c.store.n_applied;
    submit_chain(&c, "chain");
    CHECK(rows_per_task(&c, before, LARGE) <= 4);
    uint64_t steps = c.steps;
    before = c.store.n_applied;
    CHECK_UINT(worker_drains_queue(&c, "w1", 1), LARGE);
    CHECK_UINT(c.steps - steps, LARGE * 4 + 2); /* poll, tick, report, tick */
    CHECK(rows_per_task(&c, before, LARGE) <= 12);
    CHECK_INT(job_state_of(&c, "chain"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_fan_of_100000_runs_in_linearly_many_steps)
{
    struct cluster c;
    cluster_init_with(&c, wide_open());
    c.checks = false;
    worker_joins(&c, "w1");
    submit_fan(&c, "fan");
    uint64_t steps = c.steps;
    uint64_t before = c.store.n_applied;
    CHECK_UINT(worker_drains_queue(&c, "w1", 1000), LARGE + 2);
    CHECK_UINT(c.steps - steps, (LARGE / 1000 + 2) * 4 + 2);
    CHECK(rows_per_task(&c, before, LARGE) <= 12);
    CHECK_INT(job_state_of(&c, "fan"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(a_chain_of_100000_is_skipped_without_recursion)
{
    struct cluster c;
    cluster_init_with(&c, wide_open());
    c.checks = false;
    worker_joins(&c, "w1");
    submit_chain(&c, "chain");
    cluster_check_recovery(&c);
    uint64_t before = c.store.n_applied;
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("chain", 0, 0)), "no"), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "chain"), JOB_FAILED);
    CHECK_INT(state_of(&c, "chain", LARGE - 1, 0), TASK_SKIPPED);
    CHECK_INT(stored_task(&c.store, at("chain", LARGE - 1, 0))->state, TASK_SKIPPED);
    CHECK(rows_per_task(&c, before, LARGE) <= 4);

    CHECK(!job_state_is_terminal(client_retries(&c, "chain")));
    CHECK_INT(state_of(&c, "chain", LARGE - 1, 0), TASK_QUEUED);
    CHECK_INT(client_cancels(&c, "chain"), JOB_CANCELED);
    CHECK_INT(stored_task(&c.store, at("chain", LARGE - 1, 0))->state, TASK_CANCELED);
    cluster_finish(&c);
}

TEST(half_of_a_large_fan_survives_a_failover)
{
    struct cluster c;
    cluster_init_with(&c, wide_open());
    c.checks = false;
    worker_joins(&c, "w1");
    submit_fan(&c, "fan");
    worker_runs(&c, "w1", at("fan", 0, 0));
    for (int i = 0; i < 50; i++) {
        CHECK_UINT(worker_takes_up_to(&c, "w1", 1000), 1000);
        cluster_forget(&c);
    }
    cluster_fail_over(&c);
    CHECK_UINT(core_stats(c.core).leases, LARGE / 2);
    CHECK_UINT(core_stats(c.core).tasks[TASK_QUEUED], LARGE / 2 + 1);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 1000), 1000);
    cluster_finish(&c);
}

TEST(every_branch_under_a_failure_is_skipped_to_its_end)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {
        TREE_TASK("root"),
        TREE_TASK("a", AFTER(ON(0))),
        TREE_TASK("b", AFTER(ON(0))),
        TREE_TASK("d", AFTER(ON(0))),
        TREE_TASK("after_a", AFTER(ON(1))),
        TREE_TASK("after_b", AFTER(ON(2))),
        TREE_TASK("after_d", AFTER(ON(3))),
        TREE_TASK("after_after_a", AFTER(ON(4))),
        TREE_TASK("anyway", AFTER(ON_ANY_END(5))),
    };
    SUBMIT_TREE(&c, "t", stages);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes(&c, "w1"), "no"), REFUSE_NONE);
    for (uint32_t i = 1; i <= 7; i++) {
        CHECK_INT(state_of(&c, "t", i, 0), TASK_SKIPPED);
    }
    worker_runs(&c, "w1", at("t", 8, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED);
    cluster_finish(&c);
}
