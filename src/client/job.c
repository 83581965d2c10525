#include "client/job.h"

#include "base/clock.h"
#include "base/random.h"

#define STATUS_WAIT_MS 30000
#define PATIENCE_MS 60000 /* with a coordinator that was there before */

/* One call with the caller's client. */
static enum err call(const struct client_caller *caller, struct client_call call, void *out, struct error *e)
{
    call.cancel = caller->cancel;
    return client_call(caller->client, &call, caller->arena, out, e);
}

static char *text_or_empty(const char *text)
{
    return (char *)(text != NULL ? text : "");
}

const char *client_new_job_id(struct arena *arena)
{
    char uuid[UUID_TEXT_BYTES];
    random_uuid7(uuid);
    return arena_strdup(arena, uuid);
}

/* ---- submit ---- */

enum err client_submit_tree(const struct client_caller *caller, const struct tree_submission *tree,
                            struct pb_submit_tasks_response **out, struct error *e)
{
    struct pb_submit_tasks_request *request = wire_new(PB_SUBMIT_TASKS_REQUEST, caller->arena);
    request->job_id = (char *)(tree->job_id != NULL ? tree->job_id : client_new_job_id(caller->arena));
    request->tree_json.data = (uint8_t *)(uintptr_t)tree->json;
    request->tree_json.len = tree->n_json;
    request->idempotency_key = text_or_empty(tree->key);
    return call(caller,
                (struct client_call){.path = "/capstan.v1.ControlPlane/SubmitTasks",
                                     .message = request,
                                     .answer = PB_SUBMIT_TASKS_RESPONSE},
                out, e);
}

enum err client_submit_query(const struct client_caller *caller, const struct query_submission *query,
                             struct pb_submit_query_response **out, struct error *e)
{
    struct pb_submit_query_request *request = wire_new(PB_SUBMIT_QUERY_REQUEST, caller->arena);
    request->query_id = (char *)(query->job_id != NULL ? query->job_id : client_new_job_id(caller->arena));
    request->sql = text_or_empty(query->sql);
    if (query->plan_json != NULL) {
        request->physical_plan_json.data = (uint8_t *)(uintptr_t)query->plan_json;
        request->physical_plan_json.len = query->n_plan;
    }
    request->params_json = text_or_empty(query->params_json);
    request->options_json = text_or_empty(query->options_json);
    request->explain = query->explains ? 1 : 0;
    request->priority_set = query->has_priority ? 1 : 0;
    request->priority = query->priority;
    request->idempotency_key = text_or_empty(query->key);
    return call(caller,
                (struct client_call){.path = "/capstan.v1.ControlPlane/SubmitQuery",
                                     .message = request,
                                     .answer = PB_SUBMIT_QUERY_RESPONSE},
                out, e);
}

/* ---- status ---- */

bool query_state_is_terminal(Capstan__V1__QueryState state)
{
    return state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED ||
           state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED ||
           state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED;
}

enum err client_job_status(const struct client_caller *caller, const char *job_id, int64_t wait_ms,
                           struct pb_query_status **out, struct error *e)
{
    struct pb_get_query_status_request *request = wire_new(PB_GET_QUERY_STATUS_REQUEST, caller->arena);
    struct pb_get_query_status_response *response = NULL;
    request->query_id = (char *)job_id;
    request->wait_ms = (uint32_t)wait_ms;
    enum err err = call(caller,
                        (struct client_call){.path = "/capstan.v1.ControlPlane/GetQueryStatus",
                                             .message = request,
                                             .answer = PB_GET_QUERY_STATUS_RESPONSE,
                                             .wait_ms = wait_ms,
                                             .patience_ms = wait_ms > 0 ? PATIENCE_MS : 0},
                        &response, e);
    if (err == ERR_OK && response->status == NULL) {
        return error_set(e, ERR_INTERNAL, "the answer has no job in it");
    }
    if (err == ERR_OK) {
        *out = response->status;
    }
    return err;
}

/* The same status in another arena. */
static enum err keep(const struct pb_query_status *status, struct arena *arena, struct pb_query_status **out,
                     struct error *e)
{
    struct buf bytes = {0};
    wire_encode(status, &bytes);
    enum err err = wire_decode(PB_QUERY_STATUS, bytes.data, bytes.n, arena, out, e);
    buf_deinit(&bytes);
    return err;
}

enum err client_await(const struct client_caller *caller, const char *job_id, const struct client_wait *wait,
                      struct pb_query_status **out, struct error *e)
{
    struct arena arena = {0}; /* for those that are not the last */
    struct client_caller asker = {.client = caller->client, .cancel = caller->cancel, .arena = &arena};
    int64_t hold_ms = wait->first_ms > 0 ? wait->first_ms : STATUS_WAIT_MS;
    enum err err = ERR_OK;
    for (;;) {
        struct pb_query_status *status = NULL;
        int64_t left_ms = wait->until_mono_ms == 0 ? INT64_MAX : wait->until_mono_ms - clock_mono_ms();
        if (left_ms <= 0) {
            err = error_set(e, ERR_DEADLINE, "job %s has not ended in time", job_id);
            break;
        }
        arena_reset(&arena);
        err = client_job_status(&asker, job_id, hold_ms < left_ms ? hold_ms : left_ms, &status, e);
        if (err == ERR_OK && status != NULL && query_state_is_terminal(status->state)) {
            err = keep(status, caller->arena, out, e);
            break;
        }
        if (err != ERR_OK && err != ERR_DEADLINE) {
            break;
        }
        if (status != NULL && wait->on_status != NULL) {
            wait->on_status(wait->context, status);
        }
        hold_ms = wait->every_ms > 0 ? wait->every_ms : STATUS_WAIT_MS;
    }
    arena_deinit(&arena);
    return err;
}

/* ---- cancel and retry ---- */

enum err client_cancel(const struct client_caller *caller, const char *job_id, const char *reason,
                       struct pb_cancel_query_response **out, struct error *e)
{
    struct pb_cancel_query_request *request = wire_new(PB_CANCEL_QUERY_REQUEST, caller->arena);
    request->query_id = (char *)job_id;
    request->reason = text_or_empty(reason);
    return call(caller,
                (struct client_call){.path = "/capstan.v1.ControlPlane/CancelQuery",
                                     .message = request,
                                     .answer = PB_CANCEL_QUERY_RESPONSE},
                out, e);
}

enum err client_retry(const struct client_caller *caller, const char *job_id, const char *from_task,
                      struct pb_retry_job_response **out, struct error *e)
{
    struct pb_retry_job_request *request = wire_new(PB_RETRY_JOB_REQUEST, caller->arena);
    request->query_id = (char *)job_id;
    request->from_task = text_or_empty(from_task);
    return call(caller,
                (struct client_call){
                    .path = "/capstan.v1.ControlPlane/RetryJob", .message = request, .answer = PB_RETRY_JOB_RESPONSE},
                out, e);
}
