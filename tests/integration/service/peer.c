#include "service/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/store.h"
#include "test.h"

#define CALL_MS 30000

static void start(struct peer *peer, struct settings settings)
{
    struct store *store;
    CHECK_ERR(store_open(peer->url, &store, &peer->e), ERR_OK);
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &peer->e), ERR_OK);
    store_close(store);
    struct service_options options = {
        .store_url = peer->url, .node_id = "n1", .listen = "127.0.0.1:0", .http = "127.0.0.1:0", .settings = settings};
    CHECK_ERR(service_start(&options, &peer->service, &peer->e), ERR_OK);
    struct rpc_channel_options channel = {.target = service_address(peer->service)};
    CHECK_ERR(rpc_channel_open(&channel, &peer->channel, &peer->e), ERR_OK);
    int64_t until_ms = clock_mono_ms() + CALL_MS;
    for (;;) { /* until it leads */
        struct pb_list_nodes_response *nodes;
        enum err err = peer_call(peer, "Cluster/ListNodes", peer_message(peer, PB_LIST_NODES_REQUEST),
                                 PB_LIST_NODES_RESPONSE, &nodes);
        if (err == ERR_OK) {
            break;
        }
        CHECK_ERR(err, ERR_PRECONDITION);
        CHECK(clock_mono_ms() < until_ms);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

static void stop(struct peer *peer)
{
    rpc_channel_close(peer->channel);
    service_stop(peer->service);
    peer->channel = NULL;
    peer->service = NULL;
}

void peer_init_with(struct peer *peer, struct settings settings)
{
    *peer = (struct peer){0};
    log_setup(LOG_NONE, false);
    snprintf(peer->folder, sizeof peer->folder, "%s/capstan-service-XXXXXX",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    CHECK(mkdtemp(peer->folder) != NULL);
    snprintf(peer->url, sizeof peer->url, "sqlite:%s/state.db", peer->folder);
    start(peer, settings);
}

void peer_init_on(struct peer *peer, const char *store_url)
{
    peer_init_on_with(peer, store_url, settings_default());
}

void peer_init_on_with(struct peer *peer, const char *store_url, struct settings settings)
{
    *peer = (struct peer){0};
    log_setup(LOG_NONE, false);
    snprintf(peer->url, sizeof peer->url, "%s", store_url);
    start(peer, settings);
}

void peer_init(struct peer *peer)
{
    peer_init_with(peer, settings_default());
}

void peer_restart(struct peer *peer)
{
    stop(peer);
    start(peer, settings_default());
}

void peer_deinit(struct peer *peer)
{
    static const char *const files[] = {"state.db", "state.db-wal", "state.db-shm", "state.db.lock"};
    char path[160];
    stop(peer);
    for (size_t i = 0; i < sizeof files / sizeof *files && peer->folder[0] != '\0'; i++) {
        snprintf(path, sizeof path, "%s/%s", peer->folder, files[i]);
        (void)unlink(path);
    }
    CHECK_INT(peer->folder[0] == '\0' ? 0 : rmdir(peer->folder), 0);
    arena_deinit(&peer->arena);
}

void *peer_message(struct peer *peer, enum pb_kind kind)
{
    return wire_new(kind, &peer->arena);
}

enum err peer_call(struct peer *peer, const char *method, const void *request, enum pb_kind kind, void *out)
{
    char path[128];
    struct buf bytes = {0};
    struct buf answer = {0};
    void *message = NULL;
    snprintf(path, sizeof path, "/capstan.v1.%s", method);
    wire_encode(request, &bytes);
    struct rpc_request call = {.path = path, .bytes = bytes.data, .n = bytes.n, .timeout_ms = CALL_MS};
    peer->e = (struct error){0};
    enum err err = rpc_unary(peer->channel, &call, &answer, &peer->trailer, &peer->e);
    if (err == ERR_OK) {
        err = wire_decode(kind, answer.data, answer.n, &peer->arena, &message, &peer->e);
    }
    if (err == ERR_OK && out != NULL) {
        memcpy(out, &message, sizeof message);
    }
    buf_deinit(&bytes);
    buf_deinit(&answer);
    return err;
}

static struct pb_submit_tasks_request *submit_request(struct peer *peer, const char *job_id, const char *tree)
{
    struct pb_submit_tasks_request *request = peer_message(peer, PB_SUBMIT_TASKS_REQUEST);
    request->job_id = arena_strdup(&peer->arena, job_id);
    request->tree_json.data = (uint8_t *)(uintptr_t)tree;
    request->tree_json.len = strlen(tree);
    return request;
}

const char *peer_submit(struct peer *peer, const char *tree)
{
    struct pb_submit_tasks_response *response = NULL;
    CHECK_ERR(peer_call(peer, "ControlPlane/SubmitTasks", submit_request(peer, "", tree), PB_SUBMIT_TASKS_RESPONSE,
                        &response),
              ERR_OK);
    return response->job_id;
}

enum err peer_submit_err(struct peer *peer, const char *job_id, const char *tree)
{
    return peer_call(peer, "ControlPlane/SubmitTasks", submit_request(peer, job_id, tree), PB_SUBMIT_TASKS_RESPONSE,
                     NULL);
}

void peer_register(struct peer *peer, const char *worker_id)
{
    peer_register_at(peer, worker_id, "i1", "127.0.0.1:1");
}

void peer_register_at(struct peer *peer, const char *worker_id, const char *incarnation, const char *address)
{
    static char *executors[] = {"sleep", "command", "sql"};
    struct pb_register_worker_request *request = peer_message(peer, PB_REGISTER_WORKER_REQUEST);
    request->worker_id = arena_strdup(&peer->arena, worker_id);
    request->incarnation = arena_strdup(&peer->arena, incarnation);
    request->address = arena_strdup(&peer->arena, address);
    request->slots = 8;
    request->executor_types = executors;
    request->n_executor_types = ARRAY_LEN(executors);
    CHECK_ERR(peer_call(peer, "HeartbeatService/RegisterWorker", request, PB_REGISTER_WORKER_RESPONSE, NULL), ERR_OK);
}

struct pb_get_task_response *peer_poll(struct peer *peer, const char *worker_id, uint32_t capacity, uint32_t wait_ms)
{
    struct pb_get_task_request *request = peer_message(peer, PB_GET_TASK_REQUEST);
    struct pb_get_task_response *response = NULL;
    request->worker_id = arena_strdup(&peer->arena, worker_id);
    request->incarnation = arena_strdup(&peer->arena, "i1");
    request->capacity = capacity;
    request->wait_ms = wait_ms;
    CHECK_ERR(peer_call(peer, "ControlPlane/GetTask", request, PB_GET_TASK_RESPONSE, &response), ERR_OK);
    return response;
}

struct pb_task_assignment *peer_take(struct peer *peer, const char *worker_id, const char *name)
{
    int64_t until_ms = clock_mono_ms() + CALL_MS;
    for (;;) {
        struct pb_get_task_response *response = peer_poll(peer, worker_id, 1, 5000);
        if (response->n_tasks == 1) {
            CHECK_STR(response->tasks[0]->name, name);
            return response->tasks[0];
        }
        CHECK(clock_mono_ms() < until_ms);
    }
}

const char *peer_inputs(struct peer *peer, const struct pb_task_assignment *task)
{
    char *text = arena_alloc(&peer->arena, task->plan_fragment_json.len + 1);
    memcpy(text, task->plan_fragment_json.data, task->plan_fragment_json.len);
    text[task->plan_fragment_json.len] = '\0';
    return text;
}

static const char *send_report(struct peer *peer, const char *worker_id, const struct pb_task_assignment *task,
                               struct pb_task_report *report)
{
    struct pb_report_task_status_request *request = peer_message(peer, PB_REPORT_TASK_STATUS_REQUEST);
    struct pb_report_task_status_response *response = NULL;
    report->ref = peer_message(peer, PB_ATTEMPT_REF);
    report->ref->query_id = task->query_id;
    report->ref->stage_id = task->stage_id;
    report->ref->task_id = task->task_id;
    report->ref->attempt = task->attempt;
    report->ref->lease_token = task->lease_token;
    request->worker_id = arena_strdup(&peer->arena, worker_id);
    request->incarnation = arena_strdup(&peer->arena, "i1");
    request->reports = &report;
    request->n_reports = 1;
    CHECK_ERR(peer_call(peer, "ControlPlane/ReportTaskStatus", request, PB_REPORT_TASK_STATUS_RESPONSE, &response),
              ERR_OK);
    CHECK_UINT(response->n_outcomes, 1);
    return response->outcomes[0]->accepted ? "" : response->outcomes[0]->reason;
}

static void set_result(struct pb_task_report *report, const char *result)
{
    report->result_json.data = (uint8_t *)(uintptr_t)result;
    report->result_json.len = strlen(result);
}

const char *peer_report(struct peer *peer, const char *worker_id, const struct pb_task_assignment *task,
                        Capstan__V1__TaskState state, const char *text)
{
    struct pb_task_report *report = peer_message(peer, PB_TASK_REPORT);
    report->state = state;
    if (state == CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED) {
        set_result(report, text);
    } else {
        report->message = arena_strdup(&peer->arena, text);
    }
    return send_report(peer, worker_id, task, report);
}

const char *peer_report_failure(struct peer *peer, const char *worker_id, const struct pb_task_assignment *task,
                                const char *message, const char *result)
{
    struct pb_task_report *report = peer_message(peer, PB_TASK_REPORT);
    report->state = CAPSTAN__V1__TASK_STATE__TASK_STATE_FAILED;
    report->message = arena_strdup(&peer->arena, message);
    set_result(report, result);
    return send_report(peer, worker_id, task, report);
}

const char *peer_report_rows(struct peer *peer, const char *worker_id, const struct pb_task_assignment *task,
                             const struct buf *stream, const struct ipc_tally *tally)
{
    struct pb_task_report *report = peer_message(peer, PB_TASK_REPORT);
    report->state = CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED;
    report->query_results = peer_message(peer, PB_TASK_ROWS);
    report->query_results->rows = tally->rows;
    report->query_results->bytes = tally->bytes;
    if (stream != NULL) {
        report->query_results->ipc_payload.data = (uint8_t *)stream->data;
        report->query_results->ipc_payload.len = stream->n;
    }
    return send_report(peer, worker_id, task, report);
}

struct pb_query_status *peer_status(struct peer *peer, const char *job_id, uint32_t wait_ms)
{
    struct pb_get_query_status_request *request = peer_message(peer, PB_GET_QUERY_STATUS_REQUEST);
    struct pb_get_query_status_response *response = NULL;
    request->query_id = arena_strdup(&peer->arena, job_id);
    request->wait_ms = wait_ms;
    CHECK_ERR(peer_call(peer, "ControlPlane/GetQueryStatus", request, PB_GET_QUERY_STATUS_RESPONSE, &response), ERR_OK);
    return response->status;
}

const char *peer_results(struct peer *peer, const char *job_id, uint64_t offset)
{
    struct pb_fetch_query_results_request *request = peer_message(peer, PB_FETCH_QUERY_RESULTS_REQUEST);
    struct rpc_stream *stream = NULL;
    struct buf bytes = {0};
    struct buf message = {0};
    struct buf all = {0};
    bool is_end = false;
    request->query_id = arena_strdup(&peer->arena, job_id);
    request->offset = offset;
    wire_encode(request, &bytes);
    struct rpc_request call = {
        .path = "/capstan.v1.ControlPlane/FetchQueryResults", .bytes = bytes.data, .n = bytes.n, .timeout_ms = CALL_MS};
    CHECK_ERR(rpc_stream_open(peer->channel, &call, &stream, &peer->e), ERR_OK);
    buf_text(&all, "");
    for (;;) {
        struct pb_query_results_chunk *chunk = NULL;
        CHECK_ERR(rpc_stream_next(stream, &message, &is_end, &peer->trailer, &peer->e), ERR_OK);
        if (is_end) {
            break;
        }
        CHECK_ERR(wire_decode(PB_QUERY_RESULTS_CHUNK, message.data, message.n, &peer->arena, &chunk, &peer->e), ERR_OK);
        buf_append(&all, chunk->payload.data, chunk->payload.len);
    }
    rpc_stream_close(stream);
    const char *text = arena_strdup(&peer->arena, all.data);
    buf_deinit(&bytes);
    buf_deinit(&message);
    buf_deinit(&all);
    return text;
}
