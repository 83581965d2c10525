#include "main/bench_query.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/rows.h"
#include "duck/duck.h"
#include "exchange/ipc.h"
#include "main/row_sum.h"

#define TASKS_PAGE 1000

/* ---- on the cluster ---- */

static enum err submit(const struct bench *bench, struct client *client, const struct query_request *query,
                       const char *job_id, struct error *e)
{
    struct arena arena = {0};
    struct pb_submit_query_request *request = wire_new(PB_SUBMIT_QUERY_REQUEST, &arena);
    struct pb_submit_query_response *response = NULL;
    request->query_id = (char *)job_id;
    if (query->sql != NULL) {
        request->sql = (char *)query->sql;
    }
    if (query->plan != NULL) {
        request->physical_plan_json.data = (uint8_t *)query->plan->data;
        request->physical_plan_json.len = query->plan->n;
    }
    if (query->options_json != NULL) {
        request->options_json = (char *)query->options_json;
    }
    struct client_call call = {.path = "/capstan.v1.ControlPlane/SubmitQuery",
                               .message = request,
                               .answer = PB_SUBMIT_QUERY_RESPONSE,
                               .cancel = interrupt_cancel(bench->interrupt)};
    enum err err = client_call(client, &call, &arena, &response, e);
    arena_deinit(&arena);
    return err;
}

/* Reads the messages in a piece of the stream and counts their rows. */
static enum err count_rows(struct ipc_assembler *assembler, struct ipc_reader *reader, const uint8_t *bytes, size_t n,
                           struct error *e)
{
    enum err err = ERR_OK;
    while (n > 0 && err == ERR_OK) {
        struct block *message = NULL;
        size_t taken = 0;
        err = ipc_assembler_feed(assembler, bytes, n, &taken, &message, e);
        bytes += taken;
        n -= taken;
        if (err == ERR_OK && message != NULL) {
            struct ArrowArray batch = {0};
            err = ipc_reader_message(reader, message, 0, message->n, &batch, e);
            if (batch.release != NULL) {
                batch.release(&batch);
            }
            block_unref(message);
        } else if (err == ERR_OK && assembler->wants > 0) {
            ipc_assembler_admit(assembler);
        }
    }
    return err;
}

static enum err fetch(const struct bench *bench, struct client *client, const char *job_id, uint64_t *out_rows,
                      struct error *e)
{
    struct arena arena = {0};
    struct pb_fetch_query_results_request *request = wire_new(PB_FETCH_QUERY_RESULTS_REQUEST, &arena);
    struct ipc_reader *reader = ipc_reader_new(&(struct ipc_reader_options){0});
    struct ipc_assembler assembler = {0};
    struct client_stream *stream = NULL;
    struct arena piece = {0};
    enum err err = ERR_OK;
    bool is_end = false;
    request->query_id = (char *)job_id;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/FetchQueryResults",
                               .message = request,
                               .answer = PB_QUERY_RESULTS_CHUNK,
                               .cancel = interrupt_cancel(bench->interrupt)};
    client_stream_open(client, &call, &stream);
    while (err == ERR_OK && !is_end) {
        struct pb_query_results_chunk *chunk = NULL;
        arena_reset(&piece);
        err = client_stream_next(stream, &piece, &chunk, &is_end, e);
        if (err == ERR_OK && !is_end) {
            err = count_rows(&assembler, reader, chunk->payload.data, chunk->payload.len, e);
        }
    }
    if (err == ERR_OK && ipc_reader_schema(reader) == NULL) {
        err = error_set(e, ERR_INTERNAL, "job %s has a result without columns", job_id);
    }
    if (err == ERR_OK) {
        *out_rows = ipc_reader_tally(reader)->rows;
    }
    client_stream_close(stream);
    ipc_assembler_deinit(&assembler);
    ipc_reader_free(reader);
    arena_deinit(&piece);
    arena_deinit(&arena);
    return err;
}

enum err query_run(const struct bench *bench, struct client *client, const struct query_request *request,
                   struct query_run *out, struct error *e)
{
    struct query_run run = {0};
    int64_t began_us = clock_mono_us();
    random_uuid7(run.job_id);
    enum err err = submit(bench, client, request, run.job_id, e);
    if (err == ERR_OK) {
        err = bench_await(bench, client, run.job_id, e);
    }
    if (err == ERR_OK) {
        err = fetch(bench, client, run.job_id, &run.rows, e);
    }
    run.us = clock_mono_us() - began_us;
    if (err == ERR_OK) {
        *out = run;
    }
    return err;
}

/* ---- on DuckDB ---- */

enum err query_run_duck(struct duck_connection *connection, const char *sql, struct query_run *out, struct error *e)
{
    struct query_run run = {0};
    int64_t began_us = clock_mono_us();
    enum err err = duck_count(connection, sql, &run.rows, e);
    run.us = clock_mono_us() - began_us;
    if (err == ERR_OK) {
        *out = run;
    }
    return err;
}

/* ---- what the rows are ---- */

enum err query_sum(const struct bench *bench, struct client *client, const char *job_id, uint64_t *out, struct error *e)
{
    struct arena arena = {0};
    struct client_caller caller = {.client = client, .cancel = interrupt_cancel(bench->interrupt), .arena = &arena};
    struct rows *rows = rows_open(&caller, job_id, NULL, NULL);
    const struct ArrowSchema *schema = NULL;
    struct ArrowArray batch = {0};
    struct row_sum sum = {0};
    enum err err = rows_schema(rows, &schema, e);
    err = err == ERR_OK ? row_sum_open(&sum, schema, e) : err;
    err = err == ERR_OK ? rows_next(rows, &batch, e) : err;
    while (err == ERR_OK && batch.release != NULL) {
        row_sum_add(&sum, &batch);
        batch.release(&batch);
        err = rows_next(rows, &batch, e);
    }
    if (err == ERR_OK) {
        *out = sum.value;
    }
    row_sum_close(&sum);
    rows_close(rows);
    arena_deinit(&arena);
    return err;
}

enum err query_sum_duck(struct duck_connection *connection, const char *sql, uint64_t *out, struct error *e)
{
    struct duck_result *result = NULL;
    struct ArrowSchema schema = {0};
    struct ArrowArray batch = {0};
    struct row_sum sum = {0};
    enum err err = duck_query(connection, sql, &result, e);
    err = err == ERR_OK ? duck_result_schema(result, &schema, e) : err;
    err = err == ERR_OK ? row_sum_open(&sum, &schema, e) : err;
    err = err == ERR_OK ? duck_result_next(result, &batch, e) : err;
    while (err == ERR_OK && batch.release != NULL) {
        row_sum_add(&sum, &batch);
        batch.release(&batch);
        err = duck_result_next(result, &batch, e);
    }
    if (err == ERR_OK) {
        *out = sum.value;
    }
    if (schema.release != NULL) {
        schema.release(&schema);
    }
    row_sum_close(&sum);
    duck_result_close(result);
    return err;
}

/* ---- where the time went ---- */

struct tasks {
    const struct pb_task_status **list;
    uint32_t n;
    uint32_t cap;
};

static enum err read_status(const struct bench *bench, struct client *client, const char *job_id, struct arena *arena,
                            const struct pb_query_status **out, struct error *e)
{
    struct pb_get_query_status_request *request = wire_new(PB_GET_QUERY_STATUS_REQUEST, arena);
    struct pb_get_query_status_response *response = NULL;
    request->query_id = (char *)job_id;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/GetQueryStatus",
                               .message = request,
                               .answer = PB_GET_QUERY_STATUS_RESPONSE,
                               .cancel = interrupt_cancel(bench->interrupt)};
    enum err err = client_call(client, &call, arena, &response, e);
    if (err == ERR_OK && response->status == NULL) {
        err = error_set(e, ERR_INTERNAL, "job %s has no status", job_id);
    }
    if (err == ERR_OK) {
        *out = response->status;
    }
    return err;
}

/* Appends all tasks of the job. */
static enum err read_tasks(const struct bench *bench, struct client *client, const char *job_id, struct arena *arena,
                           struct tasks *tasks, struct error *e)
{
    const char *after = "";
    do {
        struct pb_list_tasks_request *request = wire_new(PB_LIST_TASKS_REQUEST, arena);
        struct pb_list_tasks_response *response = NULL;
        request->query_id = (char *)job_id;
        request->limit = TASKS_PAGE;
        request->after = (char *)after;
        struct client_call call = {.path = "/capstan.v1.ControlPlane/ListTasks",
                                   .message = request,
                                   .answer = PB_LIST_TASKS_RESPONSE,
                                   .cancel = interrupt_cancel(bench->interrupt)};
        enum err err = client_call(client, &call, arena, &response, e);
        if (err != ERR_OK) {
            return err;
        }
        for (size_t i = 0; i < response->n_tasks; i++) {
            tasks->list = mem_grow(tasks->list, &tasks->cap, tasks->n + 1, sizeof *tasks->list);
            tasks->list[tasks->n++] = response->tasks[i];
        }
        after = response->next;
    } while (*after != '\0');
    return ERR_OK;
}

enum err query_times(const struct bench *bench, struct client *client, const char *job_id, struct query_times *out,
                     struct error *e)
{
    const struct pb_query_status *status = NULL;
    struct arena arena = {0};
    struct tasks tasks = {0};
    enum err err = read_status(bench, client, job_id, &arena, &status, e);
    if (err == ERR_OK) {
        err = read_tasks(bench, client, job_id, &arena, &tasks, e);
    }
    if (err == ERR_OK) {
        query_times_of(status, tasks.list, tasks.n, out);
    }
    mem_free((void *)tasks.list);
    arena_deinit(&arena);
    return err;
}
