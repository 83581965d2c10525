/*
 * lease_test.c - semantics section 5: who may run a task, for how long, and how the right to it is lost.
 */
#include "cluster.h"

TEST(acquire_lease_success)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);

    const struct assignment *a = worker_takes_task(&c, "w1", at("j", 0, 0));
    CHECK_UINT(a->ref.attempt, 1);
    CHECK(!lease_token_is_none(a->ref.token));
    CHECK_UINT(a->lease_ms, 15000);

    struct task_status task = task_of(&c, "j", 0, 0);
    CHECK_INT(task.state, TASK_RUNNING);
    CHECK_STR(task.worker_id, "w1");
    CHECK(lease_token_equal(task.token, a->ref.token));
    CHECK_UINT(core_stats(c.core).leases, 1);
    const struct row_lease *lease = stored_lease(&c.store, at("j", 0, 0));
    CHECK(lease != NULL);
    CHECK_STR(lease->worker_id, "w1");
    CHECK_UINT(lease->attempt, 1);
    CHECK(lease_token_equal(lease->token, a->ref.token));
    CHECK_INT(lease->acquired_at_ms, c.now_ms);
    CHECK_INT(lease->expires_at_ms, c.now_ms + 15000);
    cluster_finish(&c);
}

TEST(acquire_lease_already_held)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");

    worker_gets_nothing(&c, "w2");
    worker_gets_nothing(&c, "w1");
    cluster_advance(&c, 30 * SECOND_MS); /* its heartbeats keep it */
    worker_gets_nothing(&c, "w2");

    CHECK_UINT(row_store_count(&c.store, ROW_LEASE), 1);
    CHECK(lease_token_equal(stored_lease(&c.store, at("j", 0, 0))->token, a->ref.token));
    cluster_finish(&c);
}

TEST(lease_expiry_detection)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.worker_liveness_timeout_ms = 60000;
    config.node_stale_ms = 60000;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    cluster_advance(&c, 700);
    const struct assignment *a = worker_takes(&c, "w1");
    worker_dies(&c, "w1");

    cluster_advance(&c, 14 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    cluster_advance(&c, SECOND_MS + CORE_TICK_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_UINT(core_stats(c.core).lease_expired_total, 1);
    CHECK_UINT(core_stats(c.core).leases, 0);
    CHECK(stored_lease(&c.store, at("j", 0, 0)) == NULL);
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 1)->outcome, OUTCOME_LOST);
    CHECK_UINT(core_stats(c.core).outcomes_total[OUTCOME_LOST], 1);
    CHECK_UINT(core_stats(c.core).released_total, 0);
    CHECK_STALE(worker_succeeds(&c, "w1", a));
    cluster_finish(&c);
}

TEST(lease_renewal)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");

    uint64_t rows = c.store.n_applied;
    cluster_advance(&c, 120 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_UINT(c.store.n_applied, rows); /* renewals live in memory */
    CHECK(lease_token_equal(task_of(&c, "j", 0, 0).token, a->ref.token));
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(a_renewal_is_answered_without_waiting_for_a_commit)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    cluster_advance(&c, SECOND_MS);
    CHECK(worker_beats(&c, "w1")->immediate);
    cluster_finish(&c);
}

TEST(one_heartbeat_renews_all_leases_that_it_names)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 8);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 8);
    worker_named(&c, "w1")->beats = false;
    for (int i = 0; i < 6; i++) {
        cluster_advance(&c, 14 * SECOND_MS);
        CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.n_stop, 0);
    }
    CHECK_UINT(core_stats(c.core).leases, 8);
    cluster_finish(&c);
}

TEST(a_heartbeat_with_a_wrong_token_is_told_to_stop_and_renews_nothing)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    struct worker *w = worker_named(&c, "w1");
    w->running[0].token.bits[0] ^= 1;

    cluster_advance(&c, SECOND_MS);
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.n_stop, 1);
    CHECK(worker_was_stopped(&c, "w1", a));
    cluster_finish(&c);
}

TEST(a_heartbeat_that_names_what_nobody_knows_is_told_to_stop_it)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    struct attempt_ref unknown[] = {
        {.task = {.job_id = "ghost", .stage = 0, .task = 0}, .attempt = 1, .token = {{1, 2}}},
        {.task = {.job_id = "j", .stage = 9, .task = 0}, .attempt = 1, .token = {{1, 2}}},
        {.task = {.job_id = "j", .stage = 0, .task = 9}, .attempt = 1, .token = {{1, 2}}},
        {.task = {.job_id = "j", .stage = 0, .task = 0}, .attempt = 5, .token = {{1, 2}}},
        {.task = {.job_id = "j", .stage = 0, .task = 0}, .attempt = 0, .token = {{0, 0}}},
    };
    struct cmd_heartbeat beat = {.worker_id = "w1", .incarnation = "w1#1", .running = unknown, .n_running = 5};
    struct command command = {.kind = CMD_HEARTBEAT, .u = {.heartbeat = beat}};
    const struct reply *reply = cluster_do(&c, &command);
    CHECK(reply->u.heartbeat.accepted);
    CHECK_UINT(reply->u.heartbeat.n_stop, 5);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    cluster_finish(&c);
}

TEST(a_worker_cannot_renew_the_lease_of_another)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");

    struct cmd_heartbeat beat = {.worker_id = "w2", .incarnation = "w2#1", .running = &a->ref, .n_running = 1};
    struct command command = {.kind = CMD_HEARTBEAT, .u = {.heartbeat = beat}};
    CHECK_UINT(cluster_do(&c, &command)->u.heartbeat.n_stop, 1);
    CHECK_STR(task_of(&c, "j", 0, 0).worker_id, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(an_assignment_whose_reply_was_lost_goes_back_after_two_heartbeat_intervals)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    worker_forgets(&c, "w1");

    cluster_advance(&c, 5 * SECOND_MS); /* a heartbeat at 3 s does not name it: too early to tell */
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    cluster_advance(&c, 5 * SECOND_MS);
    struct task_status task = task_of(&c, "j", 0, 0);
    CHECK_INT(task.state, TASK_QUEUED);
    CHECK_UINT(task.failures, 0); /* lost replies count nothing */
    CHECK_UINT(node_of(&c, "w1").running, 0);
    CHECK_UINT(node_of(&c, "w1").failures, 0);
    CHECK_UINT(worker_takes(&c, "w1")->ref.attempt, 2);
    cluster_finish(&c);
}

TEST(all_leases_and_workers_get_a_full_period_after_a_takeover)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    worker_named(&c, "w1")->beats = false;

    cluster_advance(&c, 14 * SECOND_MS);
    cluster_fail_over(&c);
    cluster_advance(&c, 14 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_INT(node_of(&c, "w1").status, NODE_HEALTHY);
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.n_stop, 0);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(leases_end_after_a_takeover_too)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    worker_dies(&c, "w1");
    cluster_advance(&c, 5 * SECOND_MS);
    cluster_fail_over(&c);
    cluster_advance(&c, 16 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_INT(node_of(&c, "w1").status, NODE_STALE);
    cluster_finish(&c);
}

TEST(a_stall_of_the_leader_is_not_silence_of_the_workers)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    worker_named(&c, "w1")->beats = false;

    cluster_advance(&c, 10 * SECOND_MS);
    cluster_stall(&c, 600 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_INT(node_of(&c, "w1").status, NODE_HEALTHY);
    cluster_stall(&c, 600 * SECOND_MS);
    cluster_advance(&c, 2 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.n_stop, 0);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(a_worker_that_is_silent_after_a_stall_is_still_found_out)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    worker_dies(&c, "w1");
    cluster_stall(&c, 600 * SECOND_MS);
    cluster_advance(&c, 17 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_INT(node_of(&c, "w1").status, NODE_STALE);
    cluster_finish(&c);
}

TEST(leader_time_never_runs_backwards)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    int64_t before_ms = c.now_ms;

    c.now_ms -= 3600 * SECOND_MS; /* the clock jumps back an hour; wake_at_ms stays where it was */
    struct command tick = {.kind = CMD_TICK};
    struct core_input input = {.now_ms = c.now_ms, .seed = {1, 2}};
    core_step(c.core, &input, &tick, &c.fx);
    CHECK(c.fx.wake_at_ms > before_ms);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    cluster_begin(&c);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE); /* the store refuses an event older than the one before */
    c.now_ms = before_ms;
    cluster_end(&c);
    CHECK(stored_task(&c.store, at("j", 0, 0))->finished_at_ms >= before_ms);
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(tokens_differ_between_attempts_tasks_and_leaders)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 4);
    struct lease_token seen[8];
    uint32_t n = 0;
    for (int round = 0; round < 2; round++) {
        const struct reply *reply = worker_polls(&c, "w1", 4);
        CHECK_UINT(reply->u.tasks.n_tasks, 4);
        for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
            for (uint32_t i = 0; i < n; i++) {
                CHECK(!lease_token_equal(seen[i], a->ref.token));
                CHECK(seen[i].bits[0] != a->ref.token.bits[0]);
                CHECK(seen[i].bits[1] != a->ref.token.bits[1]);
            }
            seen[n++] = a->ref.token;
        }
        for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
            CHECK_INT(worker_releases(&c, "w1", a), REFUSE_NONE);
        }
        cluster_fail_over(&c);
    }
    cluster_finish(&c);
}

TEST(tokens_come_from_the_seed_of_the_step)
{
    struct lease_token tokens[2];
    for (uint64_t i = 0; i < 2; i++) {
        struct cluster c;
        cluster_init(&c);
        worker_joins(&c, "w1");
        submit_tasks(&c, "j", 1);
        prng_init(&c.prng, 1000 + i);
        tokens[i] = worker_takes(&c, "w1")->ref.token;
        cluster_finish(&c);
    }
    CHECK(!lease_token_equal(tokens[0], tokens[1]));
}

TEST(a_stop_order_is_repeated_until_the_worker_obeys)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    client_cancels(&c, "j");
    for (int i = 0; i < 3; i++) {
        struct cmd_heartbeat beat = {.worker_id = "w1", .incarnation = "w1#1", .running = &a->ref, .n_running = 1};
        struct command command = {.kind = CMD_HEARTBEAT, .u = {.heartbeat = beat}};
        CHECK_UINT(cluster_do(&c, &command)->u.heartbeat.n_stop, 1);
        cluster_advance(&c, 100);
    }
    cluster_finish(&c);
}

TEST(an_exclusive_task_says_so_in_its_assignment)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("alone", .exclusive = true, .timeout_ms = 1234), TREE_TASK("free")};
    SUBMIT_TREE(&c, "j", stages);
    const struct assignment *alone = worker_takes_task(&c, "w1", at("j", 0, 0));
    CHECK(alone->exclusive);
    CHECK_UINT(alone->timeout_ms, 1234);
    CHECK_STR(alone->name, "alone");
    const struct assignment *other = worker_takes_task(&c, "w1", at("j", 1, 0));
    CHECK(!other->exclusive);
    CHECK_UINT(other->timeout_ms, 0);
    cluster_finish(&c);
}

TEST(a_heartbeat_that_crossed_a_stall_does_not_take_a_fresh_assignment_back)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    c.now_ms += 60 * SECOND_MS; /* the leader hangs in the commit of the assignment; heartbeats pile up meanwhile */
    struct cmd_heartbeat beat = {.worker_id = "w1", .incarnation = "w1#1"};
    struct command command = {.kind = CMD_HEARTBEAT, .u = {.heartbeat = beat}};
    cluster_do(&c, &command);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.n_stop, 0); /* now the answer has arrived */
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(a_worker_that_is_given_up_later_than_its_leases_loses_everything_then)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.worker_liveness_timeout_ms = 60000;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    worker_dies(&c, "w1");
    cluster_advance(&c, 59 * SECOND_MS);
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_SUCCEEDED);
    CHECK_UINT(cluster_events(&c, EVENT_LOST), 0);
    cluster_advance(&c, 2 * SECOND_MS);
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    CHECK_UINT(cluster_events(&c, EVENT_LOST), 1);
    cluster_finish(&c);
}

TEST(a_lease_expires_in_time_whatever_else_is_watched)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.worker_liveness_timeout_ms = 60000;
    config.node_stale_ms = 5000;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    worker_takes(&c, "w1");
    cluster_advance(&c, 1000);
    worker_takes(&c, "w1");
    worker_dies(&c, "w1");
    cluster_advance(&c, 14500); /* looks stale since a while; the first lease has ended, the second has not */
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_INT(state_of(&c, "j", 0, 1), TASK_RUNNING);
    cluster_advance(&c, 1000);
    CHECK_INT(state_of(&c, "j", 0, 1), TASK_QUEUED);
    cluster_finish(&c);
}

TEST(a_worker_that_came_back_is_watched_again)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_named(&c, "w1")->beats = false;
    for (uint32_t i = 1; i <= 3; i++) {
        cluster_advance(&c, 130 * SECOND_MS);
        CHECK_INT(node_of(&c, "w1").status, NODE_DEAD);
        CHECK_INT(worker_registers(&c, "w1")->kind, REPLY_REGISTER);
        CHECK_INT(node_of(&c, "w1").status, NODE_HEALTHY);
        CHECK_UINT(worker_takes(&c, "w1")->ref.attempt, i);
        CHECK_UINT(cluster_events(&c, EVENT_LOST), i);
    }
    cluster_finish(&c);
}
