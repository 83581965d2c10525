#include "integration/cli/warehouse.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "exchange/ipc.h"
#include "test.h"
#include "wire/message.h"

#define CHUNK_BYTES 4096

static void reply(struct rpc_call *call, const void *message)
{
    struct buf bytes = {0};
    wire_encode(message, &bytes);
    rpc_call_reply(call, bytes.data, bytes.n);
    buf_deinit(&bytes);
}

static enum err read_request(struct rpc_call *call, enum pb_kind kind, struct arena *arena, void *out)
{
    struct error e = {0};
    size_t n = 0;
    const void *bytes = rpc_call_bytes(call, &n);
    enum err err = wire_decode(kind, bytes, n, arena, out, &e);
    if (err != ERR_OK) {
        rpc_call_fail(call, &e, NULL);
    }
    return err;
}

/* ---- the query ---- */

static enum err append(void *context, struct block *message, struct error *e)
{
    (void)e;
    buf_append(context, message->bytes, message->n);
    block_unref(message);
    return ERR_OK;
}

static enum err write_rows(struct duck_result *result, struct buf *out, struct error *e)
{
    struct ArrowSchema schema = {0};
    struct ipc_format *format = NULL;
    struct ipc_writer writer = {0};
    enum err err = duck_result_schema(result, &schema, e);
    if (err == ERR_OK) {
        err = ipc_format_new(&schema, &format, e);
        schema.release(&schema);
    }
    if (err != ERR_OK) {
        return err;
    }
    ipc_writer_init(&writer, format, false);
    (void)append(out, ipc_writer_schema(&writer), NULL);
    while (err == ERR_OK) {
        struct ArrowArray batch = {0};
        err = duck_result_next(result, &batch, e);
        if (err != ERR_OK || batch.release == NULL) {
            break;
        }
        err = ipc_writer_batch(&writer, &batch, append, out, e);
        batch.release(&batch);
    }
    (void)append(out, ipc_writer_end(&writer), NULL);
    ipc_writer_deinit(&writer);
    ipc_format_free(format);
    return err;
}

static void run_query(struct warehouse *w)
{
    static const char *const explained = "SELECT 'stage 0: 1 task; result' || chr(10) || '    scan t' AS explain, "
                                         "'{\"stages\":[]}' AS plan";
    struct duck_result *result = NULL;
    buf_reset(&w->result);
    w->failure = (struct error){0};
    enum err err = duck_query(w->connection, w->explains ? explained : w->sql.data, &result, &w->failure);
    if (err == ERR_OK) {
        err = write_rows(result, &w->result, &w->failure);
    }
    w->failure.code = err;
    duck_result_close(result);
}

static void set(struct buf *buf, const char *text)
{
    buf_reset(buf);
    buf_text(buf, text);
}

static void answer_submit(void *context, struct rpc_call *call)
{
    struct warehouse *w = context;
    struct arena arena = {0};
    struct pb_submit_query_request *request = NULL;
    if (read_request(call, PB_SUBMIT_QUERY_REQUEST, &arena, &request) == ERR_OK) {
        struct pb_submit_query_response *response = wire_new(PB_SUBMIT_QUERY_RESPONSE, &arena);
        pthread_mutex_lock(&w->mutex);
        snprintf(w->job_id, sizeof w->job_id, "%s", request->query_id);
        set(&w->sql, request->sql);
        set(&w->params, request->params_json);
        set(&w->options, request->options_json);
        w->has_priority = request->priority_set != 0;
        w->priority = request->priority;
        w->explains = request->explain != 0;
        w->is_canceled = false;
        if (!w->runs_for_ever) {
            run_query(w);
        }
        pthread_mutex_unlock(&w->mutex);
        atomic_fetch_add(&w->submits, 1);
        response->query_id = request->query_id;
        response->state = CAPSTAN__V1__QUERY_STATE__QUERY_STATE_QUEUED;
        reply(call, response);
    }
    arena_deinit(&arena);
}

/* ---- its state ---- */

static Capstan__V1__QueryState state_of(const struct warehouse *w)
{
    return w->is_canceled              ? CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED
           : w->runs_for_ever          ? CAPSTAN__V1__QUERY_STATE__QUERY_STATE_RUNNING
           : w->failure.code != ERR_OK ? CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED
                                       : CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED;
}

static struct pb_stage_status *stage_new(struct arena *arena, uint64_t id, const char *name, uint32_t tasks)
{
    struct pb_stage_status *stage = wire_new(PB_STAGE_STATUS, arena);
    stage->stage_id = id;
    stage->name = (char *)name;
    stage->tasks = stage->succeeded = tasks;
    stage->rows = 1000 * id;
    stage->bytes = 2000 * id;
    return stage;
}

static void answer_status(void *context, struct rpc_call *call)
{
    struct warehouse *w = context;
    struct arena arena = {0};
    struct pb_get_query_status_request *request = NULL;
    if (read_request(call, PB_GET_QUERY_STATUS_REQUEST, &arena, &request) == ERR_OK) {
        struct pb_get_query_status_response *response = wire_new(PB_GET_QUERY_STATUS_RESPONSE, &arena);
        struct pb_query_status *status = wire_new(PB_QUERY_STATUS, &arena);
        pthread_mutex_lock(&w->mutex);
        status->query_id = request->query_id;
        status->kind = (char *)(w->is_tree ? "tree" : "query");
        status->state = state_of(w);
        status->message = arena_strdup(&arena, w->failure.message);
        status->submitted_at_ms = 1000000;
        status->finished_at_ms = 1000500;
        status->n_stages = 3;
        status->stages = arena_alloc(&arena, 3 * sizeof *status->stages);
        status->stages[0] = stage_new(&arena, 0, "plan", 1);
        status->stages[1] = stage_new(&arena, 1, "s0", 3);
        status->stages[2] = stage_new(&arena, 2, "s1", 1);
        response->status = status;
        bool interrupts = w->interrupts_caller;
        w->interrupts_caller = false;
        reply(call, response);
        pthread_mutex_unlock(&w->mutex);
        if (interrupts) {
            kill(getpid(), SIGINT);
        }
    }
    arena_deinit(&arena);
}

static void answer_cancel(void *context, struct rpc_call *call)
{
    struct warehouse *w = context;
    struct arena arena = {0};
    struct pb_cancel_query_request *request = NULL;
    if (read_request(call, PB_CANCEL_QUERY_REQUEST, &arena, &request) == ERR_OK) {
        struct pb_cancel_query_response *response = wire_new(PB_CANCEL_QUERY_RESPONSE, &arena);
        pthread_mutex_lock(&w->mutex);
        w->is_canceled = true;
        pthread_mutex_unlock(&w->mutex);
        atomic_fetch_add(&w->cancels, 1);
        response->query_id = request->query_id;
        response->state = CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED;
        reply(call, response);
    }
    arena_deinit(&arena);
}

/* The planning task with its plan, three tasks of a scan, of which one is slow, and one that reads them. */
static void answer_tasks(void *context, struct rpc_call *call)
{
    static const char plan[] =
        "{\"stages\":[{\"id\":0,\"sql\":\"\",\"what\":\"scan t\\nfilter\",\"output\":{\"exchange\":\"hash\"}},"
        "{\"id\":1,\"inputs\":{\"m\":{\"stage\":0,\"read\":\"all\"}},\"sql\":\"\",\"what\":\"sort\","
        "\"output\":{\"exchange\":\"result\"}}]}";
    static const uint64_t stages[] = {0, 1, 1, 1, 2};
    static const uint64_t ends[] = {10, 100, 200, 600, 50};
    struct arena arena = {0};
    struct pb_list_tasks_response *response = wire_new(PB_LIST_TASKS_RESPONSE, &arena);
    (void)context;
    response->n_tasks = ARRAY_LEN(stages);
    response->tasks = arena_alloc(&arena, response->n_tasks * sizeof *response->tasks);
    for (size_t i = 0; i < ARRAY_LEN(stages); i++) {
        struct pb_task_status *task = wire_new(PB_TASK_STATUS, &arena);
        task->ref = wire_new(PB_ATTEMPT_REF, &arena);
        task->ref->query_id = (char *)"job";
        task->ref->stage_id = stages[i];
        task->ref->task_id = i;
        task->ref->attempt = 1;
        task->state = CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED;
        task->started_at_ms = 1000000;
        task->finished_at_ms = 1000000 + ends[i];
        response->tasks[i] = task;
    }
    response->tasks[0]->result_json.data = (uint8_t *)plan;
    response->tasks[0]->result_json.len = sizeof plan - 1;
    reply(call, response);
    arena_deinit(&arena);
}

/* ---- its rows ---- */

struct serving {
    struct warehouse *warehouse;
    size_t at;
    size_t sent;
};

static void send_next(void *context, struct rpc_call *call, bool ok)
{
    struct serving *s = context;
    struct warehouse *w = s->warehouse;
    size_t chunk_bytes = w->chunk_bytes == 0 ? CHUNK_BYTES : w->chunk_bytes;
    size_t total = w->result.n - (w->ends_early ? 16 : 0);
    size_t left = s->at < total ? total - s->at : 0;
    if (ok && w->break_after > 0 && s->sent >= w->break_after && left > 0) {
        struct error e = {0};
        error_set(&e, ERR_UNAVAILABLE, "the connection broke");
        rpc_call_fail(call, &e, NULL);
        mem_free(s);
        return;
    }
    if (!ok || left == 0) {
        rpc_call_end(call);
        mem_free(s);
        return;
    }
    struct arena arena = {0};
    struct buf bytes = {0};
    struct pb_query_results_chunk *chunk = wire_new(PB_QUERY_RESULTS_CHUNK, &arena);
    chunk->payload.data = (uint8_t *)w->result.data + s->at;
    chunk->payload.len = left < chunk_bytes ? left : chunk_bytes;
    s->at += chunk->payload.len;
    s->sent += chunk->payload.len;
    wire_encode(chunk, &bytes);
    rpc_call_send(call, bytes.data, bytes.n, send_next, s);
    buf_deinit(&bytes);
    arena_deinit(&arena);
}

static void answer_fetch(void *context, struct rpc_call *call)
{
    struct warehouse *w = context;
    struct arena arena = {0};
    struct pb_fetch_query_results_request *request = NULL;
    if (read_request(call, PB_FETCH_QUERY_RESULTS_REQUEST, &arena, &request) == ERR_OK) {
        struct serving *s = mem_calloc(1, sizeof *s);
        *s = (struct serving){.warehouse = w, .at = (size_t)request->offset};
        atomic_fetch_add(&w->fetches, 1);
        send_next(s, call, true);
    }
    arena_deinit(&arena);
}

static const struct rpc_method methods[] = {
    {"/capstan.v1.ControlPlane/SubmitQuery", answer_submit},
    {"/capstan.v1.ControlPlane/GetQueryStatus", answer_status},
    {"/capstan.v1.ControlPlane/CancelQuery", answer_cancel},
    {"/capstan.v1.ControlPlane/ListTasks", answer_tasks},
    {"/capstan.v1.ControlPlane/FetchQueryResults", answer_fetch},
};

void warehouse_open(struct warehouse *w)
{
    struct error e = {0};
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0", .methods = methods, .n_methods = ARRAY_LEN(methods), .context = w};
    pthread_mutex_init(&w->mutex, NULL);
    CHECK_ERR(duck_open(&(struct duck_options){.threads = 1}, &w->duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(w->duck, &w->connection, &e), ERR_OK);
    CHECK_ERR(rpc_server_open(&options, &w->server, &e), ERR_OK);
}

void warehouse_close(struct warehouse *w)
{
    rpc_server_close(w->server, 0);
    duck_disconnect(w->connection);
    duck_close(w->duck);
    pthread_mutex_destroy(&w->mutex);
    buf_deinit(&w->sql);
    buf_deinit(&w->params);
    buf_deinit(&w->options);
    buf_deinit(&w->result);
}

const char *warehouse_address(const struct warehouse *w)
{
    return rpc_server_address(w->server);
}
