/*
 * recovery_test.c - what happens to work when workers or leaders go away.
 */
#include "cluster.h"

TEST(coordinator_requeues_tasks_from_stale_worker)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "q", 3);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 3), 3);
    worker_gets_nothing(&c, "w2");
    worker_dies(&c, "w1");

    cluster_advance(&c, 17 * SECOND_MS);
    CHECK_UINT(core_stats(c.core).tasks[TASK_QUEUED], 3);
    CHECK_UINT(core_stats(c.core).leases, 0);
    CHECK_UINT(worker_takes_up_to(&c, "w2", 8), 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct task_status task = task_of(&c, "q", 0, i);
        CHECK_UINT(task.attempt, 2);
        CHECK_UINT(task.failures, 1); /* a lost worker counts */
        CHECK_STR(task.worker_id, "w2");
        CHECK_INT(stored_attempt(&c.store, at("q", 0, i), 1)->outcome, OUTCOME_LOST);
        CHECK_INT(stored_attempt(&c.store, at("q", 0, i), 2)->outcome, OUTCOME_PENDING);
    }
    cluster_finish(&c);
}

TEST(recover_expired_leases)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.worker_liveness_timeout_ms = 60000;
    config.max_concurrent_tasks_per_worker = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 2);
    worker_takes_task(&c, "w1", at("j", 0, 0));
    const struct assignment *kept = worker_takes_task(&c, "w2", at("j", 0, 1));
    worker_dies(&c, "w1");

    cluster_advance(&c, 17 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "j", 0, 1), TASK_RUNNING); /* renewed: stays */
    CHECK_INT(worker_succeeds(&c, "w2", kept), REFUSE_NONE);
    CHECK_UINT(worker_takes_task(&c, "w2", at("j", 0, 0))->ref.attempt, 2);
    CHECK_UINT(cluster_task_events(&c, EVENT_REASSIGNED, at("j", 0, 0)), 1);
    cluster_finish(&c);
}

TEST(recover_on_node_crash)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 2), 2);
    worker_restarts(&c, "w1"); /* back after a second, under the same name */
    cluster_advance(&c, SECOND_MS);

    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 2);
    CHECK_UINT(task_of(&c, "j", 0, 0).attempt, 2);
    CHECK_UINT(row_store_count(&c.store, ROW_LEASE), 2);
    cluster_finish(&c);
}

TEST(reassign_to_healthy_node)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    const struct assignment *zombie = worker_takes(&c, "w1");
    worker_dies(&c, "w1");
    cluster_advance(&c, 17 * SECOND_MS);

    const struct assignment *heir = worker_takes(&c, "w2");
    CHECK_UINT(heir->ref.attempt, 2);
    CHECK(!lease_token_equal(heir->ref.token, zombie->ref.token));
    CHECK(!digest_equal(heir->idempotency_key, zombie->idempotency_key));
    CHECK_INT(worker_succeeds(&c, "w2", heir), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "j"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(lost_workers_use_up_the_budget)
{
    struct cluster c;
    cluster_init(&c);
    submit_tasks(&c, "j", 1);
    const char *const names[] = {"w1", "w2", "w3"};
    for (uint32_t i = 0; i < 3; i++) {
        worker_joins(&c, names[i]);
        cluster_advance(&c, 2 * SECOND_MS);
        CHECK_UINT(worker_takes(&c, names[i])->ref.attempt, i + 1);
        worker_dies(&c, names[i]);
        cluster_advance(&c, 17 * SECOND_MS);
        CHECK_UINT(task_of(&c, "j", 0, 0).failures, i + 1);
    }
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_FAILED);
    CHECK_INT(job_state_of(&c, "j"), JOB_FAILED);
    cluster_finish(&c);
}

TEST(nothing_is_executed_again_because_a_leader_died)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    const struct assignment *b = worker_takes(&c, "w1");
    for (int i = 0; i < 3; i++) {
        cluster_fail_over(&c);
        cluster_advance(&c, 10 * SECOND_MS);
    }
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.n_stop, 0);
    worker_gets_nothing(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", b), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "j"), JOB_SUCCEEDED);
    CHECK_UINT(row_store_count(&c.store, ROW_ATTEMPT), 2);
    cluster_finish(&c);
}

TEST(counts_and_blacklistings_survive_a_failover)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 5);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
        cluster_fail_over(&c);
    }
    CHECK_UINT(node_of(&c, "w1").failures, 2);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    CHECK(node_of(&c, "w1").blacklisted);
    cluster_fail_over(&c);
    CHECK(node_of(&c, "w1").blacklisted);
    worker_gets_nothing(&c, "w1");
    cluster_advance(&c, 601 * SECOND_MS);
    CHECK(!node_of(&c, "w1").blacklisted);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 2), 2);
    cluster_finish(&c);
}

TEST(budgets_backoffs_and_avoided_workers_survive_a_failover)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    struct task_status before = task_of(&c, "j", 0, 0);
    cluster_fail_over(&c);
    struct task_status after = task_of(&c, "j", 0, 0);
    CHECK_UINT(after.failures, 1);
    CHECK_INT(after.ready_at_ms, before.ready_at_ms);
    worker_gets_nothing(&c, "w2"); /* not yet */
    cluster_advance(&c, SECOND_MS);
    worker_gets_nothing(&c, "w1"); /* it failed there */
    CHECK_UINT(worker_takes(&c, "w2")->ref.attempt, 2);
    cluster_finish(&c);
}

/* A core that loads job "j" and node "w1" as they are stored, except for the waits in their rows. */
static struct core *load_with_waits(struct cluster *c, int64_t ready_at_ms, int64_t blacklisted_until_ms)
{
    struct core *core = core_new(&c->config, 1);
    struct row_job job = *stored_job(&c->store, "j");
    struct row_stage stage = *stored_stage(&c->store, "j", 0);
    struct row_task task = *stored_task(&c->store, at("j", 0, 0));
    struct row_node node = *stored_node(&c->store, "w1");
    struct row_meta meta = {.row = {.kind = ROW_META}, .last_event_seq = c->store.n_events};
    task.ready_at_ms = ready_at_ms;
    node.blacklisted_until_ms = blacklisted_until_ms;
    const struct row *rows[] = {&job.row, &stage.row, &task.row, &node.row, &meta.row};
    struct core_input input = {.now_ms = c->now_ms, .seed = {5, 6}};
    struct effects fx = {0};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct command load = {.kind = CMD_LOAD, .u = {.load = rows[i]}};
        core_step(core, &input, &load, &fx);
    }
    struct command loaded = {.kind = CMD_LOADED};
    core_step(core, &input, &loaded, &fx);
    core_check(core);
    effects_deinit(&fx);
    return core;
}

TEST(loaded_waits_are_clamped_to_their_maximum)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);

    int64_t far_ms = c.now_ms + 100000 * SECOND_MS; /* the last leader's clock was a day ahead */
    struct core *core = load_with_waits(&c, far_ms, far_ms);
    struct task_status task;
    CHECK_ERR(core_task_status(core, at("j", 0, 0), &task), ERR_OK);
    CHECK(task.ready_at_ms <= c.now_ms + 36 * SECOND_MS);
    struct node_info node;
    CHECK_ERR(core_node(core, "w1", &node), ERR_OK);
    CHECK(node.blacklisted);
    struct effects fx = {0};
    for (int64_t passed_ms = 0; passed_ms <= 601 * SECOND_MS; passed_ms += CORE_TICK_MS) {
        struct core_input input = {.now_ms = c.now_ms + passed_ms, .seed = {7, (uint64_t)passed_ms}};
        struct command tick = {.kind = CMD_TICK};
        core_step(core, &input, &tick, &fx);
        effects_reset(&fx);
    }
    CHECK_ERR(core_node(core, "w1", &node), ERR_OK);
    CHECK(!node.blacklisted);
    effects_deinit(&fx);
    core_free(core);
    cluster_finish(&c);
}

TEST(every_kind_of_state_survives_a_failover)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec query[] = {MAP_STAGE(3, 2), RESULT_STAGE(2, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", query);
    struct stage_spec tree[] = {
        TREE_TASK("a"),
        TREE_TASK("b", AFTER(ON(0)), .max_attempts = 7, .timeout_ms = 5, .exclusive = true),
        TREE_TASK("c", AFTER(ON_ANY_END(0), ON(1))),
        TREE_TASK("sub", .child = true),
    };
    struct cmd_submit request = submit_request("t", JOB_KIND_TREE, tree, 4);
    request.priority = 1;
    submit_ok(&c, &request);
    CHECK_UINT(worker_takes_up_to(&c, "w2", 2), 2); /* one of each job */
    cluster_fail_over(&c);
    struct assignment t = {.ref = worker_named(&c, "w2")->running[0]};
    struct assignment q = {.ref = worker_named(&c, "w2")->running[1]};
    CHECK_STR(q.ref.task.job_id, "q");
    CHECK_INT(worker_fails_for_good(&c, "w2", &t, "bad"), REFUSE_NONE);
    CHECK_INT(worker_registers_map(&c, "w2", &q, 2), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w2", &q), REFUSE_NONE);
    cluster_fail_over(&c);
    CHECK_INT(state_of(&c, "t", 1, 0), TASK_SKIPPED);
    CHECK_INT(state_of(&c, "t", 2, 0), TASK_SKIPPED);
    worker_maps(&c, "w2", at("q", 0, 1), 2);
    worker_maps(&c, "w1", at("q", 0, 2), 2);
    cluster_fail_over(&c);
    const struct assignment *a = worker_takes_task(&c, "w1", at("q", 1, 0));
    CHECK_UINT(a->n_sources, 3);
    CHECK_INT(worker_registers_result(&c, "w1", a, 100, true), REFUSE_NONE);
    cluster_fail_over(&c);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_fail_over(&c);
    a = worker_takes_task(&c, "w2", at("q", 1, 1));
    CHECK_INT(worker_registers_result(&c, "w2", a, 5000000, false), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w2", a), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(event_numbers_go_on_after_a_failover)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    uint32_t before = c.store.n_events;
    CHECK(before > 0);
    cluster_fail_over(&c);
    submit_tasks(&c, "j", 1);
    CHECK(c.store.n_events > before); /* the fixture's store has checked that no number is missing or used twice */
    cluster_finish(&c);
}

TEST(a_fresh_core_equals_one_loaded_from_nothing)
{
    struct cluster c;
    cluster_init(&c);
    cluster_finish(&c);
}

TEST(equality_sees_every_kind_of_difference)
{
    struct cluster a;
    struct cluster b;
    char why[200];
    cluster_init(&a);
    cluster_init(&b);
    CHECK(core_equal(a.core, b.core, NULL, 0));
    worker_joins(&a, "w1");
    CHECK(!core_equal(a.core, b.core, why, sizeof(why)));
    worker_joins(&b, "w1");
    CHECK(core_equal(a.core, b.core, NULL, 0));
    submit_tasks(&a, "j", 2);
    CHECK(!core_equal(a.core, b.core, NULL, 0));
    CHECK(!core_equal(b.core, a.core, why, sizeof(why)));
    submit_tasks(&b, "j", 2);
    CHECK(core_equal(a.core, b.core, NULL, 0));
    const struct assignment *task = worker_takes(&a, "w1");
    CHECK(!core_equal(a.core, b.core, why, sizeof(why)));
    CHECK(why[0] != '\0');
    const struct assignment *same = worker_takes(&b, "w1");
    CHECK(core_equal(a.core, b.core, why, sizeof(why)));
    CHECK_INT(worker_succeeds(&a, "w1", task), REFUSE_NONE);
    CHECK(!core_equal(a.core, b.core, why, sizeof(why)));
    CHECK_INT(worker_succeeds(&b, "w1", same), REFUSE_NONE);
    CHECK(core_equal(a.core, b.core, why, sizeof(why)));
    operator_drains(&a, "w1", true);
    CHECK(!core_equal(a.core, b.core, why, sizeof(why)));
    cluster_finish(&a);
    cluster_finish(&b);
}

TEST(all_that_a_stage_asks_for_survives_a_failover)
{
    struct cluster c;
    cluster_init(&c);
    const char *const texts[] = {"command", "op"};
    const struct offer offer = {.executors = {texts, 1}, .ops = {&texts[1], 1}, .engine = "e1"};
    worker_joins_with(&c, "w1", &offer);
    const struct requirement need = {
        .executor = "command", .ops = TEXTS("op"), .engine = "e1", .max_parallel_per_node = 1};
    struct stage_spec stages[] = {
        {.name = "a",
         .need = &need,
         .n_tasks = 1,
         .max_attempts = 2,
         .backoff_ms = 20000,
         .timeout_ms = 77,
         .exclusive = true},
        {.name = "b", .need = &need, .n_tasks = 1, .backoff_ms = -1},
        TREE_TASK("z", AFTER(ON(0), ON_ANY_END(1))),
    };
    SUBMIT_TREE(&c, "t", stages);
    cluster_fail_over(&c);
    const struct assignment *a = worker_takes_task(&c, "w1", at("t", 0, 0));
    CHECK_STR(a->name, "a");
    CHECK_STR(a->executor, "command");
    CHECK(string_list_has(a->ops, "op"));
    CHECK_UINT(a->timeout_ms, 77);
    CHECK(a->exclusive);
    worker_gets_nothing(&c, "w1"); /* max_parallel_per_node */
    CHECK_INT(worker_fails(&c, "w1", a, "boom"), REFUSE_NONE);
    CHECK(task_of(&c, "t", 0, 0).ready_at_ms >= c.now_ms + 16000);
    worker_runs(&c, "w1", at("t", 1, 0));
    cluster_fail_over(&c);
    cluster_advance(&c, 25 * SECOND_MS);
    CHECK_INT(worker_fails(&c, "w1", worker_takes_task(&c, "w1", at("t", 0, 0)), "boom"), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "t"), JOB_FAILED); /* max_attempts */
    CHECK_INT(stored_task(&c.store, at("t", 2, 0))->state, TASK_SKIPPED);
    cluster_finish(&c);
}

TEST(a_failover_in_the_middle_of_everything_changes_no_outcome)
{
    for (uint32_t crash = 0; crash < 12; crash++) { /* the leader dies after the n-th call */
        struct cluster c;
        cluster_init(&c);
        worker_joins(&c, "w1");
        struct stage_spec stages[] = {MAP_STAGE(2, 2), RESULT_STAGE(2, AFTER(READS(0)))};
        SUBMIT_QUERY(&c, "q", stages);
        uint32_t calls = 0;
        for (uint32_t i = 0; i < 4; i++) {
            const struct assignment *a = worker_takes_task(&c, "w1", at("q", i / 2, i % 2));
            calls++ == crash ? cluster_fail_over(&c) : (void)0;
            enum refusal refusal =
                i < 2 ? worker_registers_map(&c, "w1", a, 2) : worker_registers_result(&c, "w1", a, 10, true);
            CHECK_INT(refusal, REFUSE_NONE);
            calls++ == crash ? cluster_fail_over(&c) : (void)0;
            CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
            calls++ == crash ? cluster_fail_over(&c) : (void)0;
        }
        CHECK_INT(stored_job(&c.store, "q")->state, JOB_SUCCEEDED);
        CHECK_UINT(row_store_count(&c.store, ROW_ATTEMPT), 4);
        CHECK_UINT(row_store_count(&c.store, ROW_RESULT), 2);
        CHECK_UINT(row_store_count(&c.store, ROW_LEASE), 0);
        cluster_finish(&c);
    }
}
