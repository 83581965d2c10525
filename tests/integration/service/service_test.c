/* The services from outside: a client and a worker over real gRPC, on a real file. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "service/peer.h"
#include "test.h"

#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED
#define FAILED CAPSTAN__V1__TASK_STATE__TASK_STATE_FAILED
#define JOB_HAS_SUCCEEDED CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED
#define JOB_HAS_FAILED CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED

#define CHAIN                                                                                                          \
    "{\"name\":\"t\",\"tasks\":["                                                                                      \
    "{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}},"                                                   \
    "{\"name\":\"b\",\"executor\":\"sleep\",\"depends_on\":[\"a\"],\"inputs\":{\"ms\":\"${results.a.n}\"}}]}"

TEST(a_tree_goes_through_and_results_travel_to_dependents)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, CHAIN);
    const struct pb_task_assignment *a = peer_take(&p, "w1", "a");
    CHECK_STR(peer_inputs(&p, a), "{\"ms\":0}");
    CHECK_STR(a->executor, "sleep");
    CHECK_UINT(a->lease_token.len, 16);
    CHECK_UINT(strlen(a->idempotency_key), 64);
    CHECK_UINT(strlen(a->task_key), 64);
    CHECK_STR(peer_report(&p, "w1", a, SUCCEEDED, "{\"n\":7}"), "");
    const struct pb_task_assignment *b = peer_take(&p, "w1", "b");
    CHECK_STR(peer_inputs(&p, b), "{\"ms\":7,\"results\":{\"a\":{\"n\":7}}}");
    CHECK_STR(peer_report(&p, "w1", b, SUCCEEDED, "true"), "");
    const struct pb_query_status *status = peer_status(&p, job, 10000);
    CHECK_INT(status->state, JOB_HAS_SUCCEEDED);
    CHECK_STR(status->kind, "tree");
    CHECK_UINT(status->n_stages, 2);
    CHECK_UINT(status->stages[1]->n_parents, 1);
    CHECK_STR(peer_results(&p, job, 0), "{\"a\":{\"n\":7},\"b\":true}");
    CHECK_STR(peer_results(&p, job, 5), "{\"n\":7},\"b\":true}");
    peer_deinit(&p);
}

TEST(a_path_that_no_result_has_fails_the_task_and_names_the_path)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, CHAIN);
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), SUCCEEDED, "{\"m\":7}"), "");
    CHECK_UINT(peer_poll(&p, "w1", 1, 1000)->n_tasks, 0);
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_FAILED);
    struct pb_list_tasks_request *request = peer_message(&p, PB_LIST_TASKS_REQUEST);
    struct pb_list_tasks_response *tasks = NULL;
    request->query_id = arena_strdup(&p.arena, job);
    CHECK_ERR(peer_call(&p, "ControlPlane/ListTasks", request, PB_LIST_TASKS_RESPONSE, &tasks), ERR_OK);
    CHECK_UINT(tasks->n_tasks, 2);
    CHECK_STR(tasks->tasks[1]->name, "b");
    CHECK(strstr(tasks->tasks[1]->message, "results.a.n") != NULL);
    CHECK_UINT(tasks->tasks[1]->failures, 1);
    CHECK_MEM(tasks->tasks[0]->result_json.data, "{\"m\":7}", 7);
    peer_deinit(&p);
}

TEST(results_are_found_in_the_store_when_the_cache_is_cold)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, CHAIN);
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), SUCCEEDED, "{\"n\":[1,2]}"), "");
    peer_restart(&p);
    peer_register(&p, "w1");
    const struct pb_task_assignment *b = peer_take(&p, "w1", "b");
    CHECK_STR(peer_inputs(&p, b), "{\"ms\":[1,2],\"results\":{\"a\":{\"n\":[1,2]}}}");
    CHECK_STR(peer_report(&p, "w1", b, SUCCEEDED, "null"), "");
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    peer_restart(&p); /* the job is in no leader's memory any more */
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    CHECK_STR(peer_results(&p, job, 0), "{\"a\":{\"n\":[1,2]},\"b\":null}");
    peer_deinit(&p);
}

TEST(a_bad_tree_is_refused_with_everything_that_is_wrong_and_leaves_nothing)
{
    struct peer p;
    peer_init(&p);
    CHECK_ERR(peer_submit_err(&p, "j", "{\"tasks\":[{\"name\":\"1\"},{\"name\":\"b\",\"executor\":7}]}"), ERR_INVALID);
    CHECK(strstr(p.e.message, "tasks[0].name") != NULL);
    CHECK(strstr(p.e.message, "tasks[1].executor") != NULL);
    struct pb_get_query_status_request *request = peer_message(&p, PB_GET_QUERY_STATUS_REQUEST);
    request->query_id = arena_strdup(&p.arena, "j");
    CHECK_ERR(peer_call(&p, "ControlPlane/GetQueryStatus", request, PB_GET_QUERY_STATUS_RESPONSE, NULL), ERR_NOT_FOUND);
    peer_deinit(&p);
}

TEST(a_known_id_returns_its_job_also_long_after_and_other_content_is_refused)
{
    struct peer p;
    peer_init(&p);
    CHECK_ERR(peer_submit_err(&p, "j", CHAIN), ERR_OK);
    CHECK_ERR(peer_submit_err(&p, "j", CHAIN), ERR_OK);
    struct pb_cancel_query_request *cancel = peer_message(&p, PB_CANCEL_QUERY_REQUEST);
    cancel->query_id = arena_strdup(&p.arena, "j");
    CHECK_ERR(peer_call(&p, "ControlPlane/CancelQuery", cancel, PB_CANCEL_QUERY_RESPONSE, NULL), ERR_OK);
    peer_restart(&p);
    CHECK_ERR(peer_submit_err(&p, "j", CHAIN), ERR_OK);
    CHECK_ERR(peer_submit_err(&p, "j", "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":1}}]}"),
              ERR_EXISTS);
    peer_deinit(&p);
}

/* ---- waiting ---- */

struct waiter {
    struct peer *peer; /* only its channel is used */
    const char *job_id;
    Capstan__V1__QueryState state;
};

static void *wait_for_end(void *context)
{
    struct waiter *waiter = context;
    struct peer own = {.channel = waiter->peer->channel};
    struct pb_get_query_status_request *request = peer_message(&own, PB_GET_QUERY_STATUS_REQUEST);
    struct pb_get_query_status_response *response = NULL;
    request->query_id = arena_strdup(&own.arena, waiter->job_id);
    request->wait_ms = 20000;
    if (peer_call(&own, "ControlPlane/GetQueryStatus", request, PB_GET_QUERY_STATUS_RESPONSE, &response) == ERR_OK) {
        waiter->state = response->status->state;
    }
    arena_deinit(&own.arena);
    return NULL;
}

TEST(a_status_call_that_waits_is_answered_when_the_job_ends)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, CHAIN);
    struct waiter waiters[8];
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        waiters[i] = (struct waiter){.peer = &p, .job_id = job};
        CHECK_INT(pthread_create(&threads[i], NULL, wait_for_end, &waiters[i]), 0);
    }
    CHECK_INT(peer_status(&p, job, 20)->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_QUEUED); /* does not wait longer */
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), SUCCEEDED, "{\"n\":1}"), "");
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "b"), SUCCEEDED, ""), "");
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(waiters[i].state, JOB_HAS_SUCCEEDED);
    }
    peer_deinit(&p);
}

/* ---- events ---- */

static struct rpc_stream *watch(struct peer *p, const char *job_id, bool follow)
{
    struct pb_watch_events_request *request = peer_message(p, PB_WATCH_EVENTS_REQUEST);
    struct rpc_stream *stream = NULL;
    struct buf bytes = {0};
    request->query_id = arena_strdup(&p->arena, job_id);
    request->follow = follow;
    wire_encode(request, &bytes);
    struct rpc_request call = {
        .path = "/capstan.v1.ControlPlane/WatchEvents", .bytes = bytes.data, .n = bytes.n, .timeout_ms = 30000};
    CHECK_ERR(rpc_stream_open(p->channel, &call, &stream, &p->e), ERR_OK);
    buf_deinit(&bytes);
    return stream;
}

/* The type of the next event; "" at the end. */
static const char *next_event(struct peer *p, struct rpc_stream *stream)
{
    struct buf bytes = {0};
    struct pb_event *event = NULL;
    bool is_end = false;
    CHECK_ERR(rpc_stream_next(stream, &bytes, &is_end, &p->trailer, &p->e), ERR_OK);
    if (!is_end) {
        CHECK_ERR(wire_decode(PB_EVENT, bytes.data, bytes.n, &p->arena, &event, &p->e), ERR_OK);
    }
    buf_deinit(&bytes);
    return is_end ? "" : event->type;
}

TEST(events_of_a_job_are_told_as_they_happen_and_again_later)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, CHAIN);
    struct rpc_stream *live = watch(&p, job, true);
    CHECK_STR(next_event(&p, live), "created");
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), SUCCEEDED, "{\"n\":0}"), "");
    const char *type = "created";
    while (strcmp(type, "created") == 0 || strcmp(type, "pending") == 0) {
        type = next_event(&p, live);
    }
    CHECK_STR(type, "assigned");
    CHECK_STR(next_event(&p, live), "completed");
    rpc_stream_close(live);
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "b"), SUCCEEDED, ""), "");
    struct rpc_stream *past = watch(&p, job, false);
    uint32_t n_completed = 0;
    for (type = next_event(&p, past); type[0] != '\0'; type = next_event(&p, past)) {
        n_completed += strcmp(type, "completed") == 0;
    }
    CHECK_UINT(n_completed, 3); /* both tasks and the job */
    rpc_stream_close(past);
    peer_deinit(&p);
}

TEST(streams_end_when_the_coordinator_stops)
{
    struct peer p;
    peer_init(&p);
    struct rpc_stream *live = watch(&p, "", true);
    struct rpc_stream *other = watch(&p, "nobody", true);
    struct buf bytes = {0};
    bool is_end = false;
    service_stop(p.service);
    p.service = NULL;
    CHECK(rpc_stream_next(live, &bytes, &is_end, &p.trailer, &p.e) != ERR_OK);
    CHECK(rpc_stream_next(other, &bytes, &is_end, &p.trailer, &p.e) != ERR_OK);
    rpc_stream_close(live);
    rpc_stream_close(other);
    buf_deinit(&bytes);
    peer_deinit(&p);
}

/* ---- the cluster ---- */

TEST(tables_are_put_listed_and_removed)
{
    struct peer p;
    peer_init(&p);
    struct pb_put_table_request *put = peer_message(&p, PB_PUT_TABLE_REQUEST);
    struct pb_list_tables_response *list = NULL;
    put->table = peer_message(&p, PB_TABLE);
    put->table->name = arena_strdup(&p.arena, "trips");
    put->table->source = arena_strdup(&p.arena, "/data/*.parquet");
    put->table->format = arena_strdup(&p.arena, "parquet");
    CHECK_ERR(peer_call(&p, "Cluster/PutTable", put, PB_PUT_TABLE_RESPONSE, NULL), ERR_OK);
    CHECK_ERR(
        peer_call(&p, "Cluster/ListTables", peer_message(&p, PB_LIST_TABLES_REQUEST), PB_LIST_TABLES_RESPONSE, &list),
        ERR_OK);
    CHECK_UINT(list->n_tables, 1);
    CHECK_STR(list->tables[0]->source, "/data/*.parquet");
    struct pb_delete_table_request *remove = peer_message(&p, PB_DELETE_TABLE_REQUEST);
    remove->name = arena_strdup(&p.arena, "trips");
    CHECK_ERR(peer_call(&p, "Cluster/DeleteTable", remove, PB_DELETE_TABLE_RESPONSE, NULL), ERR_OK);
    CHECK_ERR(peer_call(&p, "Cluster/DeleteTable", remove, PB_DELETE_TABLE_RESPONSE, NULL), ERR_NOT_FOUND);
    peer_deinit(&p);
}

TEST(nodes_are_listed_in_order_and_can_be_drained)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w2");
    peer_register(&p, "w1");
    struct pb_list_nodes_response *nodes = NULL;
    CHECK_ERR(
        peer_call(&p, "Cluster/ListNodes", peer_message(&p, PB_LIST_NODES_REQUEST), PB_LIST_NODES_RESPONSE, &nodes),
        ERR_OK);
    CHECK_UINT(nodes->n_nodes, 2);
    CHECK_STR(nodes->nodes[0]->worker_id, "w1");
    struct pb_set_node_request *set = peer_message(&p, PB_SET_NODE_REQUEST);
    struct pb_set_node_response *done = NULL;
    set->worker_id = arena_strdup(&p.arena, "w1");
    set->set_draining = true;
    set->draining = true;
    CHECK_ERR(peer_call(&p, "Cluster/SetNode", set, PB_SET_NODE_RESPONSE, &done), ERR_OK);
    CHECK(done->node->draining);
    set->worker_id = arena_strdup(&p.arena, "w9");
    CHECK_ERR(peer_call(&p, "Cluster/SetNode", set, PB_SET_NODE_RESPONSE, &done), ERR_NOT_FOUND);
    peer_deinit(&p);
}

TEST(the_leader_says_that_it_leads)
{
    struct peer p;
    peer_init(&p);
    struct pb_get_leader_response *leader = NULL;
    CHECK_ERR(
        peer_call(&p, "Cluster/GetLeader", peer_message(&p, PB_GET_LEADER_REQUEST), PB_GET_LEADER_RESPONSE, &leader),
        ERR_OK);
    CHECK_STR(leader->role, "leader");
    CHECK_STR(leader->address, service_address(p.service));
    CHECK(leader->epoch > 0);
    peer_deinit(&p);
}

TEST(a_stale_report_is_refused_and_its_result_is_not_kept)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, CHAIN);
    struct pb_task_assignment *a = peer_take(&p, "w1", "a");
    struct pb_task_assignment forged = *a;
    uint8_t token[16] = {1, 2, 3};
    forged.lease_token.data = token;
    CHECK_STR(peer_report(&p, "w1", &forged, SUCCEEDED, "{\"n\":666}"), "stale attempt: wrong lease token");
    CHECK_STR(peer_report(&p, "w1", a, SUCCEEDED, "{\"n\":1}"), "");
    CHECK_STR(peer_report(&p, "w1", &forged, SUCCEEDED, "{\"n\":666}"), "stale attempt");
    CHECK_STR(peer_inputs(&p, peer_take(&p, "w1", "b")), "{\"ms\":1,\"results\":{\"a\":{\"n\":1}}}");
    UNUSED(job);
    peer_deinit(&p);
}

TEST(an_escaped_template_loses_its_escape_in_a_task_without_parents)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    peer_submit(
        &p,
        "{\"tasks\":[{\"name\":\"a\",\"executor\":\"command\",\"inputs\":{\"argv\":[\"echo\",\"$${results.x}\"]}}]}");
    CHECK_STR(peer_inputs(&p, peer_take(&p, "w1", "a")), "{\"argv\":[\"echo\",\"${results.x}\"]}");
    peer_deinit(&p);
}

TEST(what_a_failed_task_left_is_kept_beside_its_message)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(
        &p,
        "{\"tasks\":[{\"name\":\"a\",\"executor\":\"command\",\"inputs\":{\"argv\":[\"false\"]},\"retry\":{\"max_attempts\":1}}]}");
    const struct pb_task_assignment *a = peer_take(&p, "w1", "a");
    CHECK_STR(peer_report_failure(&p, "w1", a, "exit code 1", "{\"stderr\":\"oh no\"}"), "");
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_FAILED);
    struct pb_list_tasks_request *request = peer_message(&p, PB_LIST_TASKS_REQUEST);
    struct pb_list_tasks_response *tasks = NULL;
    request->query_id = arena_strdup(&p.arena, job);
    CHECK_ERR(peer_call(&p, "ControlPlane/ListTasks", request, PB_LIST_TASKS_RESPONSE, &tasks), ERR_OK);
    CHECK_STR(tasks->tasks[0]->message, "exit code 1");
    CHECK_UINT(tasks->tasks[0]->result_json.len, 18);
    CHECK_MEM(tasks->tasks[0]->result_json.data, "{\"stderr\":\"oh no\"}", 18);
    CHECK_STR(peer_results(&p, job, 0), "{\"a\":null}"); /* a failed task has no result */
    peer_deinit(&p);
}
