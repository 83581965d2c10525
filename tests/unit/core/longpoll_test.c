/*
 * longpoll_test.c - semantics section 4: GetTask waits, and what wakes it.
 */
#include "cluster.h"

TEST(a_poll_that_finds_work_returns_at_once)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 3);
    uint64_t poll = worker_waits(&c, "w1", 8, 30000);
    const struct reply *reply = worker_answer(&c, "w1", poll);
    CHECK_UINT(reply->u.tasks.n_tasks, 3); /* what there is, without waiting for more */
    CHECK_INT(reply->u.tasks.waited_ms, 0);
    cluster_finish(&c);
}

TEST(a_poll_waits_its_time_and_returns_empty)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    uint64_t poll = worker_waits(&c, "w1", 1, 5000);
    cluster_advance(&c, 4900);
    CHECK(worker_answer(&c, "w1", poll) == NULL);
    cluster_advance(&c, 100);
    const struct reply *reply = worker_answer(&c, "w1", poll);
    CHECK_UINT(reply->u.tasks.n_tasks, 0);
    CHECK_UINT(reply->u.tasks.n_stop, 0);
    CHECK_INT(reply->u.tasks.waited_ms, 5000);
    cluster_finish(&c);
}

TEST(new_work_wakes_a_poll_and_the_answer_says_how_long_it_waited)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    uint64_t poll = worker_waits(&c, "w1", 2, 30000);
    cluster_advance(&c, 7321);
    submit_tasks(&c, "j", 3);
    const struct reply *reply = worker_answer(&c, "w1", poll);
    CHECK_UINT(reply->u.tasks.n_tasks, 2);
    CHECK_INT(reply->u.tasks.waited_ms, 7321);
    CHECK_INT(stored_lease(&c.store, at("j", 0, 0))->acquired_at_ms, c.now_ms);
    cluster_finish(&c);
}

TEST(an_assignment_says_how_long_the_task_was_ready)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    cluster_advance(&c, 1234);
    CHECK_INT(worker_takes(&c, "w1")->queued_ms, 1234);
    cluster_finish(&c);
}

TEST(the_end_of_a_parent_wakes_a_poll)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {TREE_TASK("a"), TREE_TASK("b", AFTER(ON(0)))};
    SUBMIT_TREE(&c, "j", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    uint64_t poll = worker_waits(&c, "w2", 1, 30000);
    CHECK(worker_answer(&c, "w2", poll) == NULL);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_UINT(worker_answer(&c, "w2", poll)->u.tasks.first->ref.task.stage, 1);
    cluster_finish(&c);
}

TEST(the_end_of_a_backoff_wakes_a_poll)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    int64_t wait_ms = task_of(&c, "j", 0, 0).ready_at_ms - c.now_ms;
    uint64_t poll = worker_waits(&c, "w1", 1, 30000);
    CHECK(c.fx.wake_at_ms <= c.now_ms + wait_ms); /* the core asks to be woken for it */
    cluster_advance(&c, wait_ms);
    CHECK_INT(worker_answer(&c, "w1", poll)->u.tasks.waited_ms, wait_ms);
    cluster_finish(&c);
}

TEST(a_free_place_in_the_job_wakes_a_poll)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_query = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    uint64_t poll = worker_waits(&c, "w2", 1, 30000);
    CHECK(worker_answer(&c, "w2", poll) == NULL);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_UINT(worker_answer(&c, "w2", poll)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(a_free_place_on_the_worker_wakes_its_own_poll)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    uint64_t poll = worker_waits(&c, "w1", 1, 30000);
    CHECK(worker_answer(&c, "w1", poll) == NULL);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_UINT(worker_answer(&c, "w1", poll)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(the_death_of_another_worker_wakes_a_poll)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    worker_dies(&c, "w1");
    uint64_t poll = worker_waits(&c, "w2", 1, 60000);
    cluster_advance(&c, 17 * SECOND_MS);
    CHECK_UINT(worker_answer(&c, "w2", poll)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(an_operator_advertised_by_heartbeat_wakes_a_poll)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    static const char *const ops[] = {"op"};
    const struct requirement need = {.ops = {ops, 1}};
    submit_tasks_for(&c, "j", 1, &need);
    uint64_t poll = worker_waits(&c, "w1", 1, 30000);
    CHECK(worker_answer(&c, "w1", poll) == NULL);
    worker_named(&c, "w1")->offer.ops = need.ops;
    worker_beats(&c, "w1");
    CHECK_UINT(worker_answer(&c, "w1", poll)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(the_end_of_a_blacklisting_wakes_a_poll)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.blacklist_failure_threshold = 1;
    config.blacklist_ttl_ms = 20000;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    uint64_t by_time = worker_waits(&c, "w1", 1, 60000);
    cluster_advance(&c, 19900);
    CHECK(worker_answer(&c, "w1", by_time) == NULL);
    cluster_advance(&c, 1000);
    const struct reply *reply = worker_answer(&c, "w1", by_time);
    CHECK_UINT(reply->u.tasks.n_tasks, 1);
    CHECK_INT(worker_fails(&c, "w1", reply->u.tasks.first, "boom"), REFUSE_NONE);
    uint64_t by_hand = worker_waits(&c, "w1", 1, 60000);
    CHECK(node_of(&c, "w1").blacklisted);
    CHECK(worker_answer(&c, "w1", by_hand) == NULL);
    operator_clears(&c, "w1");
    CHECK_UINT(worker_answer(&c, "w1", by_hand)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(a_stop_order_wakes_a_poll)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    uint64_t poll = worker_waits(&c, "w1", 7, 30000);
    cluster_advance(&c, 100);
    client_cancels(&c, "j");
    const struct reply *reply = worker_answer(&c, "w1", poll);
    CHECK_UINT(reply->u.tasks.n_tasks, 0);
    CHECK_UINT(reply->u.tasks.n_stop, 1);
    CHECK_INT(reply->u.tasks.waited_ms, 100);
    CHECK(worker_was_stopped(&c, "w1", a));
    CHECK(lease_token_equal(reply->u.tasks.stop[0].token, a->ref.token));
    cluster_finish(&c);
}

TEST(a_poll_with_capacity_zero_is_woken_by_stops_and_not_by_work)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    uint64_t poll = worker_waits(&c, "w1", 0, 60000);
    submit_tasks(&c, "k", 1);
    cluster_advance(&c, 10 * SECOND_MS);
    CHECK(worker_answer(&c, "w1", poll) == NULL);
    client_cancels(&c, "j");
    const struct reply *reply = worker_answer(&c, "w1", poll);
    CHECK_UINT(reply->u.tasks.n_tasks, 0);
    CHECK_UINT(reply->u.tasks.n_stop, 1);
    CHECK(worker_was_stopped(&c, "w1", a));
    cluster_finish(&c);
}

TEST(a_stop_order_waits_for_the_next_poll_when_none_is_open)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    client_cancels(&c, "j");
    uint64_t poll = worker_waits(&c, "w1", 0, 60000);
    CHECK_UINT(worker_answer(&c, "w1", poll)->u.tasks.n_stop, 1);
    CHECK(worker_was_stopped(&c, "w1", a));
    cluster_finish(&c);
}

TEST(a_second_poll_of_a_worker_leaves_no_poll_unanswered)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    uint64_t first = worker_waits(&c, "w1", 1, 10000);
    uint64_t second = worker_waits(&c, "w1", 1, 10000);
    submit_tasks(&c, "j", 1);
    cluster_advance(&c, 11 * SECOND_MS);
    const struct reply *a = worker_answer(&c, "w1", first);
    const struct reply *b = worker_answer(&c, "w1", second);
    CHECK(a != NULL);
    CHECK(b != NULL);
    CHECK_UINT(a->u.tasks.n_tasks + b->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(the_open_poll_of_a_process_ends_when_it_is_replaced)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    uint64_t poll = worker_waits(&c, "w1", 1, 60000);
    worker_joins_as(&c, "heir", "w1");
    const struct reply *reply = cluster_reply(&c, poll);
    CHECK(reply != NULL);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_STR(reply->message, refusal_text(REFUSE_SUPERSEDED));
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "heir");
    cluster_finish(&c);
}

TEST(the_open_poll_of_a_worker_that_leaves_is_answered)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    uint64_t poll = worker_waits(&c, "w1", 1, 60000);
    worker_leaves(&c, "w1");
    submit_tasks(&c, "j", 1);
    cluster_advance(&c, 61 * SECOND_MS);
    CHECK(cluster_reply(&c, poll) != NULL);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    cluster_finish(&c);
}

TEST(nothing_is_assigned_to_the_open_poll_of_a_stale_worker)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_waits(&c, "w1", 1, 60000);
    worker_dies(&c, "w1");
    cluster_advance(&c, 20 * SECOND_MS);
    CHECK_INT(node_of(&c, "w1").status, NODE_STALE);
    submit_tasks(&c, "j", 1);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED); /* it is not there to take it */
    cluster_finish(&c);
}

TEST(many_waiting_workers_share_new_work)
{
    struct cluster c;
    cluster_init(&c);
    const char *const names[] = {"w1", "w2", "w3", "w4"};
    uint64_t polls[4];
    for (int i = 0; i < 4; i++) {
        worker_joins(&c, names[i]);
        polls[i] = worker_waits(&c, names[i], 1, 30000);
    }
    submit_tasks(&c, "j", 4);
    for (int i = 0; i < 4; i++) {
        CHECK_UINT(worker_answer(&c, names[i], polls[i])->u.tasks.n_tasks, 1);
    }
    cluster_finish(&c);
}

TEST(work_for_this_node_alone_wakes_its_poll)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    uint64_t p1 = worker_waits(&c, "w1", 1, 60000);
    uint64_t p2 = worker_waits(&c, "w2", 1, 60000);
    const struct requirement need = {.allowed_nodes = TEXTS("w2")};
    submit_tasks_for(&c, "j", 1, &need);
    CHECK(worker_answer(&c, "w1", p1) == NULL);
    CHECK_UINT(worker_answer(&c, "w2", p2)->u.tasks.n_tasks, 1);
    p2 = worker_waits(&c, "w2", 1, 60000);
    submit_tasks_for(&c, "k", 1, &need); /* the same again, for a class that is known by now */
    CHECK_UINT(worker_answer(&c, "w2", p2)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(a_free_place_under_the_limit_per_node_wakes_a_poll)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement need = {.max_parallel_per_node = 1};
    submit_tasks_for(&c, "j", 2, &need);
    const struct assignment *a = worker_takes(&c, "w1");
    uint64_t poll = worker_waits(&c, "w1", 1, 60000);
    CHECK(worker_answer(&c, "w1", poll) == NULL);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_UINT(worker_answer(&c, "w1", poll)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(the_end_of_a_job_wakes_polls_that_its_tasks_kept_out)
{
    struct cluster c;
    cluster_init_with(&c, core_config_default());
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 8);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 8); /* full */
    submit_tasks(&c, "k", 1);
    uint64_t poll = worker_waits(&c, "w1", 1, 60000);
    CHECK(worker_answer(&c, "w1", poll) == NULL);
    client_cancels(&c, "j");
    const struct reply *reply = worker_answer(&c, "w1", poll);
    CHECK_UINT(reply->u.tasks.n_stop, 8);
    CHECK(reply->u.tasks.n_tasks == 1 || worker_takes_up_to(&c, "w1", 1) == 1);
    cluster_finish(&c);
}
