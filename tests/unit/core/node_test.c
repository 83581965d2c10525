/*
 * node_test.c - semantics sections 1 and 5: workers join, live, fall silent, come back, drain and leave.
 */
#include <stdio.h>

#include "cluster.h"

TEST(node_registration)
{
    struct cluster c;
    cluster_init(&c);
    const char *const executors[] = {"command", "sql"};
    const struct capability gpu[] = {{.key = "gpu", .kind = VALUE_TEXT, .text = "nvidia"}};
    const struct offer offer = {.executors = {executors, 2}, .capabilities = {gpu, 1}, .engine = "v1.5-amd64"};
    worker_joins_with(&c, "w1", &offer);

    struct node_info node = node_of(&c, "w1");
    CHECK_STR(node.worker_id, "w1");
    CHECK_STR(node.incarnation, "w1#1");
    CHECK_STR(node.address, "w1.test:7401");
    CHECK_STR(node.version, "1.0");
    CHECK_INT(node.status, NODE_HEALTHY);
    CHECK(!node.blacklisted);
    CHECK(!node.draining);
    CHECK_UINT(node.slots, 8);
    CHECK_UINT(node.running, 0);
    CHECK_INT(node.last_seen_ms, c.now_ms);
    CHECK(offer_equal(node.offer, &offer));
    const struct row_node *row = stored_node(&c.store, "w1");
    CHECK(row != NULL);
    CHECK_INT(row->registered_at_ms, c.now_ms);
    CHECK(offer_equal(row->offer, &offer));
    CHECK_STR(cluster_event(&c, EVENT_JOINED)->worker_id, "w1");
    CHECK_UINT(core_stats(c.core).nodes[NODE_HEALTHY], 1);
    cluster_finish(&c);
}

TEST(a_registration_tells_the_intervals)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.heartbeat_interval_ms = 1000;
    config.lease_ms = 9000;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    const struct reply *reply = worker_registers(&c, "w1"); /* once more: a lost answer is harmless */
    CHECK_INT(reply->kind, REPLY_REGISTER);
    CHECK_INT(reply->u.registered.heartbeat_interval_ms, 1000);
    CHECK_INT(reply->u.registered.lease_ms, 9000);
    submit_tasks(&c, "j", 1);
    CHECK_UINT(worker_takes(&c, "w1")->lease_ms, 9000);
    cluster_finish(&c);
}

TEST(a_repeated_registration_of_the_same_process_keeps_its_leases)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers(&c, "w1")->kind, REPLY_REGISTER);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(node_heartbeat)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 4);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 4), 4);
    uint64_t rows = c.store.n_applied;

    cluster_advance(&c, 2 * SECOND_MS);
    const struct reply *reply = worker_beats(&c, "w1");
    CHECK(reply->u.heartbeat.accepted);
    CHECK_INT(reply->u.heartbeat.refusal, REFUSE_NONE);
    CHECK(!reply->u.heartbeat.drain);
    CHECK_UINT(reply->u.heartbeat.n_stop, 0);
    struct node_info node = node_of(&c, "w1");
    CHECK_INT(node.last_seen_ms, c.now_ms);
    CHECK(node.load == 0.5);
    CHECK_UINT(node.running, 4);
    CHECK_UINT(c.store.n_applied, rows);
    cluster_finish(&c);
}

TEST(a_heartbeat_of_an_unknown_worker_is_refused)
{
    struct cluster c;
    cluster_init(&c);
    struct cmd_heartbeat beat = {.worker_id = "stranger", .incarnation = "s#1"};
    struct command command = {.kind = CMD_HEARTBEAT, .u = {.heartbeat = beat}};
    const struct reply *reply = cluster_do(&c, &command);
    CHECK(!reply->u.heartbeat.accepted);
    CHECK_INT(reply->u.heartbeat.refusal, REFUSE_UNKNOWN_WORKER);
    struct node_info node;
    CHECK_ERR(core_node(c.core, "stranger", &node), ERR_NOT_FOUND);
    cluster_finish(&c);
}

TEST(node_stale_detection)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    worker_dies(&c, "w1");

    cluster_advance(&c, 14 * SECOND_MS);
    CHECK_INT(node_of(&c, "w1").status, NODE_HEALTHY);
    cluster_advance(&c, 2 * SECOND_MS);
    CHECK_INT(node_of(&c, "w1").status, NODE_STALE);
    CHECK_UINT(node_of(&c, "w1").running, 0);
    CHECK_STR(cluster_event(&c, EVENT_LOST)->worker_id, "w1");
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_INT(node_of(&c, "w2").status, NODE_HEALTHY);
    cluster_advance(&c, 102 * SECOND_MS);
    CHECK_INT(node_of(&c, "w1").status, NODE_STALE);
    cluster_advance(&c, 4 * SECOND_MS);
    CHECK_INT(node_of(&c, "w1").status, NODE_DEAD);
    CHECK_INT(stored_node(&c.store, "w1")->status, NODE_DEAD);
    CHECK_UINT(core_stats(c.core).nodes[NODE_DEAD], 1);
    CHECK_UINT(core_stats(c.core).nodes[NODE_HEALTHY], 1);
    cluster_finish(&c);
}

TEST(a_worker_that_was_thought_dead_comes_back_and_works)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    worker_named(&c, "w1")->beats = false;
    cluster_advance(&c, 200 * SECOND_MS);
    CHECK_INT(node_of(&c, "w1").status, NODE_DEAD);

    const struct reply *reply = worker_beats(&c, "w1");
    if (reply->u.heartbeat.accepted) {
        CHECK(worker_was_stopped(&c, "w1", a)); /* a refused renewal ends the attempt */
    } else {
        CHECK_INT(worker_registers(&c, "w1")->kind, REPLY_REGISTER);
    }
    CHECK_INT(node_of(&c, "w1").status, NODE_HEALTHY);
    CHECK_UINT(worker_takes_task(&c, "w1", at("j", 0, 0))->ref.attempt, 2);
    cluster_finish(&c);
}

TEST(node_deregistration)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");

    CHECK_INT(worker_leaves(&c, "w1")->kind, REPLY_DONE);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED); /* at once, not after a timeout */
    CHECK_UINT(core_stats(c.core).released_total, 1);
    struct node_info node;
    CHECK(core_node(c.core, "w1", &node) != ERR_OK || node.status != NODE_HEALTHY);
    CHECK_INT(worker_leaves(&c, "w1")->kind, REPLY_DONE); /* again: a lost answer is harmless */

    struct cmd_get_task poll = {.worker_id = "w1", .incarnation = "w1#1", .capacity = 1};
    struct command command = {.kind = CMD_GET_TASK, .u = {.get_task = poll}};
    CHECK_INT(cluster_do(&c, &command)->kind, REPLY_ERROR);
    cluster_advance(&c, SECOND_MS);
    const struct assignment *b = worker_takes(&c, "w2");
    CHECK_UINT(b->ref.attempt, 2);
    struct task_report late = report_on(a, TASK_SUCCEEDED);
    struct cmd_report said = {.worker_id = "w1", .incarnation = "w1#1", .reports = &late, .n_reports = 1};
    struct command zombie = {.kind = CMD_REPORT, .u = {.report = said}};
    cluster_do(&c, &zombie);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_INT(worker_succeeds(&c, "w2", b), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(an_old_process_cannot_deregister_its_successor)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins_as(&c, "heir", "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "heir");
    worker_leaves(&c, "w1");
    CHECK_STR(node_of(&c, "heir").incarnation, "heir#1");
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_INT(worker_succeeds(&c, "heir", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(a_new_incarnation_takes_the_leases_back_at_once)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 3);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 3), 3);
    worker_restarts(&c, "w1");
    CHECK_UINT(node_of(&c, "w1").running, 0);
    CHECK_UINT(core_stats(c.core).leases, 0);
    cluster_advance(&c, SECOND_MS);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 3), 3);
    CHECK_UINT(task_of(&c, "j", 0, 2).attempt, 2);
    cluster_finish(&c);
}

/* The core answers a process that was replaced; it must not come back, neither by heartbeat nor by registering. */
static void check_superseded(struct cluster *c, const char *name)
{
    const struct reply *beat = worker_beats(c, name);
    CHECK(!beat->u.heartbeat.accepted);
    CHECK_INT(beat->u.heartbeat.refusal, REFUSE_SUPERSEDED);
    const struct reply *again = worker_registers(c, name);
    CHECK_INT(again->kind, REPLY_ERROR);
    CHECK_STR(again->message, refusal_text(REFUSE_SUPERSEDED));
}

TEST(a_replaced_process_is_told_so_and_cannot_come_back)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "old");
    for (int i = 0; i < NODE_PAST_INCARNATIONS - 1; i++) {
        worker_restarts(&c, "old");
    }
    worker_joins_as(&c, "new", "old");
    check_superseded(&c, "old");
    cluster_fail_over(&c);
    worker_named(&c, "old")->beats = false;
    check_superseded(&c, "old"); /* the next leader knows it too */
    snprintf(worker_named(&c, "old")->incarnation, 64, "old#1");
    check_superseded(&c, "old");
    CHECK_STR(node_of(&c, "new").incarnation, "new#1");
    cluster_finish(&c);
}

TEST(a_draining_worker_gets_no_tasks_and_is_told)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    operator_drains(&c, "w1", true);
    CHECK(node_of(&c, "w1").draining);
    CHECK(stored_node(&c.store, "w1")->draining);
    CHECK_STR(cluster_event(&c, EVENT_DRAINING)->worker_id, "w1");
    worker_gets_nothing(&c, "w1");
    CHECK(worker_beats(&c, "w1")->u.heartbeat.drain);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE); /* it finishes what it has */
    cluster_fail_over(&c);
    worker_gets_nothing(&c, "w1");

    operator_drains(&c, "w1", false);
    CHECK(!worker_beats(&c, "w1")->u.heartbeat.drain);
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

TEST(undraining_wakes_a_waiting_poll)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    operator_drains(&c, "w1", true);
    submit_tasks(&c, "j", 1);
    uint64_t poll = worker_waits(&c, "w1", 1, 30000);
    CHECK(worker_answer(&c, "w1", poll) == NULL);
    operator_drains(&c, "w1", false);
    CHECK_UINT(worker_answer(&c, "w1", poll)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(a_released_attempt_is_requeued_at_once_and_counts_nothing)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    for (uint32_t i = 1; i <= 10; i++) {
        const struct assignment *a = worker_takes(&c, "w1");
        CHECK_UINT(a->ref.attempt, i);
        CHECK_INT(worker_releases(&c, "w1", a), REFUSE_NONE);
        CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
        CHECK_UINT(task_of(&c, "j", 0, 0).failures, 0);
        CHECK_UINT(node_of(&c, "w1").failures, 0);
    }
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 10)->outcome, OUTCOME_LOST);
    CHECK_UINT(core_stats(c.core).released_total, 10);
    CHECK_UINT(core_stats(c.core).outcomes_total[OUTCOME_LOST], 0);
    cluster_finish(&c);
}

TEST(settings_of_an_unknown_node_are_refused)
{
    struct cluster c;
    cluster_init(&c);
    struct cmd_set_node set = {.worker_id = "nobody", .set_draining = true, .draining = true};
    struct command command = {.kind = CMD_SET_NODE, .u = {.set_node = set}};
    const struct reply *reply = cluster_do(&c, &command);
    CHECK_INT(reply->kind, REPLY_ERROR);
    CHECK_ERR(reply->code, ERR_NOT_FOUND);
    cluster_finish(&c);
}

static uint32_t count_nodes(const struct cluster *c, struct node_filter filter)
{
    size_t cursor = 0;
    uint32_t n = 0;
    struct node_info node;
    while (core_next_node(c->core, &filter, &cursor, &node)) {
        n++;
    }
    return n;
}

TEST(nodes_are_listed_by_executor_capability_and_operator)
{
    struct cluster c;
    cluster_init(&c);
    const char *const executors[] = {"command", "docker"};
    const char *const ops[] = {"add_five"};
    const struct capability cores = {.key = "cpu_cores", .kind = VALUE_NUMBER, .number = 8};
    const struct offer a = {.executors = {executors, 1}, .capabilities = {&cores, 1}};
    const struct offer b = {.executors = {executors, 2}, .ops = {ops, 1}};
    worker_joins_with(&c, "w1", &a);
    worker_joins_with(&c, "w2", &b);
    worker_joins(&c, "w3");

    CHECK_UINT(count_nodes(&c, (struct node_filter){0}), 3);
    CHECK_UINT(count_nodes(&c, (struct node_filter){.executor = "command"}), 2);
    CHECK_UINT(count_nodes(&c, (struct node_filter){.executor = "docker"}), 1);
    CHECK_UINT(count_nodes(&c, (struct node_filter){.op = "add_five"}), 1);
    CHECK_UINT(count_nodes(&c, (struct node_filter){.op = "none"}), 0);
    CHECK_UINT(count_nodes(&c, (struct node_filter){.capability = &cores}), 1);
    const struct capability more = {.key = "cpu_cores", .kind = VALUE_NUMBER, .number = 16};
    CHECK_UINT(count_nodes(&c, (struct node_filter){.capability = &more}), 0);
    CHECK_UINT(count_nodes(&c, (struct node_filter){.capability = &cores, .op = "add_five"}), 0);
    size_t cursor = 0;
    struct node_info node;
    const struct node_filter by_op = {.op = "add_five"};
    CHECK(core_next_node(c.core, &by_op, &cursor, &node));
    CHECK_STR(node.worker_id, "w2");
    CHECK_UINT(node.slots, 8);
    CHECK(!core_next_node(c.core, &by_op, &cursor, &node));
    cursor = 0;
    CHECK(core_next_node(c.core, NULL, &cursor, &node));
    cluster_finish(&c);
}

TEST(operators_follow_the_heartbeat)
{
    struct cluster c;
    cluster_init(&c);
    const char *const ops[] = {"a", "b"};
    const struct offer offer = {.ops = {ops, 1}};
    worker_joins_with(&c, "w1", &offer);
    CHECK_UINT(count_nodes(&c, (struct node_filter){.op = "b"}), 0);
    worker_named(&c, "w1")->offer.ops.count = 2;
    worker_beats(&c, "w1");
    CHECK_UINT(count_nodes(&c, (struct node_filter){.op = "b"}), 1);
    CHECK_UINT(stored_node(&c.store, "w1")->offer->ops.count, 2);
    cluster_finish(&c);
}

TEST(leaving_workers_are_told_how_many_of_their_outputs_are_needed)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_named(&c, "w1")->is_leaving = true;
    struct stage_spec stages[] = {MAP_STAGE(2, 2), QUERY_STAGE(2, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_maps(&c, "w1", at("q", 0, 1), 2);
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.outputs_needed, 2);
    worker_runs(&c, "w1", at("q", 1, 0));
    CHECK(worker_beats(&c, "w1")->u.heartbeat.outputs_needed > 0);
    worker_runs(&c, "w1", at("q", 1, 1));
    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.outputs_needed, 0);
    cluster_finish(&c);
}

TEST(a_worker_learns_which_of_its_held_jobs_have_ended)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "done", 1);
    worker_runs(&c, "w1", at("done", 0, 0));
    submit_tasks(&c, "canceled", 1);
    client_cancels(&c, "canceled");
    submit_tasks(&c, "open", 1);
    const char *const held[] = {"open", "done", "canceled", "not in memory"};
    struct cmd_heartbeat beat = {.worker_id = "w1", .incarnation = "w1#1", .held_jobs = held, .n_held_jobs = 4};
    struct command command = {.kind = CMD_HEARTBEAT, .u = {.heartbeat = beat}};
    const struct reply *reply = cluster_do(&c, &command);
    CHECK_UINT(reply->u.heartbeat.n_ended_jobs, 3);
    CHECK_STR(reply->u.heartbeat.ended_jobs[0], "done");
    CHECK_STR(reply->u.heartbeat.ended_jobs[1], "canceled");
    CHECK_STR(reply->u.heartbeat.ended_jobs[2], "not in memory");
    CHECK_UINT(reply->u.heartbeat.n_failed_jobs, 1); /* of the last one nobody knows whether it succeeded */
    CHECK_STR(reply->u.heartbeat.failed_jobs[0], "canceled");
    CHECK(!reply->immediate);
    cluster_finish(&c);
}

TEST(a_replaced_process_is_not_told_before_its_successor_is_durable)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "old");
    worker_named(&c, "old")->beats = false;
    cluster_begin(&c); /* the successor's registration is in this batch, not yet committed */
    worker_joins_as(&c, "new", "old");
    CHECK(!worker_beats(&c, "old")->immediate);
    cluster_end(&c);
    cluster_finish(&c);
}

TEST(a_stop_order_does_not_leave_before_the_cancel_is_durable)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    cluster_begin(&c);
    client_cancels(&c, "j");
    const struct reply *beat = worker_beats(&c, "w1");
    CHECK_UINT(beat->u.heartbeat.n_stop, 1);
    CHECK(!beat->immediate);
    cluster_end(&c);
    cluster_finish(&c);
}

TEST(an_assignment_whose_reply_was_lost_with_its_leader_goes_back_too)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    worker_forgets(&c, "w1"); /* committed, but the leader died before it answered */
    cluster_fail_over(&c);
    cluster_advance(&c, 16 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_UINT(task_of(&c, "j", 0, 0).failures, 0);
    CHECK_UINT(worker_takes(&c, "w1")->ref.attempt, 2);
    cluster_finish(&c);
}

TEST(nodes_that_are_long_dead_are_dropped_unless_blacklisted_for_ever)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.blacklist_ttl_ms = 0;
    config.blacklist_failure_threshold = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "bad");
    worker_joins(&c, "gone");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "bad", worker_takes(&c, "bad"), "boom"), REFUSE_NONE);
    client_cancels(&c, "j");
    worker_dies(&c, "bad");
    worker_dies(&c, "gone");
    c.checks = false;
    for (int hour = 0; hour < 25; hour++) {
        cluster_advance(&c, 3600 * SECOND_MS);
        cluster_forget(&c);
    }
    struct node_info node;
    CHECK_ERR(core_node(c.core, "gone", &node), ERR_NOT_FOUND);
    CHECK(stored_node(&c.store, "gone") == NULL);
    worker_restarts(&c, "gone");
    CHECK_INT(node_of(&c, "gone").status, NODE_HEALTHY);
    worker_restarts(&c, "bad");
    CHECK(node_of(&c, "bad").blacklisted); /* a time of 0 never ends */
    cluster_finish(&c);
}

TEST(a_node_can_look_stale_before_it_is_given_up)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.node_stale_ms = 5000;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    worker_named(&c, "w1")->beats = false;
    cluster_advance(&c, 6 * SECOND_MS);
    CHECK_INT(node_of(&c, "w1").status, NODE_STALE); /* for people */
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK(worker_beats(&c, "w1")->u.heartbeat.accepted);
    CHECK_INT(node_of(&c, "w1").status, NODE_HEALTHY);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(a_registration_with_other_offers_counts_at_once)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement need = {.executor = "docker"};
    submit_tasks_for(&c, "j", 1, &need);
    uint64_t poll = worker_waits(&c, "w1", 1, 60000);
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_named(&c, "w1")->offer = docker;
    CHECK_INT(worker_registers(&c, "w1")->kind, REPLY_REGISTER); /* the same process */
    if (cluster_reply(&c, poll) == NULL) {
        cluster_tick(&c);
    }
    CHECK_UINT(worker_answer(&c, "w1", poll)->u.tasks.n_tasks, 1);
    cluster_finish(&c);
}

TEST(a_worker_is_not_told_that_it_may_go_before_its_last_reader_is_durable)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 1);
    const struct assignment *r = worker_takes_task(&c, "w2", at("q", 1, 0));
    cluster_begin(&c);
    CHECK_INT(worker_succeeds(&c, "w2", r), REFUSE_NONE);
    worker_named(&c, "w1")->is_leaving = true;
    const struct reply *beat = worker_beats(&c, "w1");
    CHECK(beat->u.heartbeat.outputs_needed > 0 || !beat->immediate);
    cluster_end(&c);
    cluster_finish(&c);
}
