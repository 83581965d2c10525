#include "wire/json_shape.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "wire/canonical.h"

/* ---- pieces ---- */

/* The comma, unless something has just been opened: no value ends with an opening bracket. */
static void comma(struct buf *out)
{
    char last = out->n == 0 ? '{' : out->data[out->n - 1];
    if (last != '{' && last != '[') {
        buf_char(out, ',');
    }
}

static void put_key(struct buf *out, const char *key)
{
    comma(out);
    buf_char(out, '"');
    buf_text(out, key);
    buf_text(out, "\":");
}

static void put_text(struct buf *out, const char *key, const char *text)
{
    put_key(out, key);
    if (text == NULL || text[0] == '\0') {
        buf_text(out, "null");
    } else {
        json_write_text(out, text);
    }
}

static void put_uint(struct buf *out, const char *key, uint64_t number)
{
    put_key(out, key);
    buf_format(out, "%" PRIu64, number);
}

static void put_bool(struct buf *out, const char *key, bool value)
{
    put_key(out, key);
    buf_text(out, value ? "true" : "false");
}

/* Zero is no time. */
static void put_time(struct buf *out, const char *key, uint64_t ms)
{
    if (ms == 0) {
        put_text(out, key, NULL);
    } else {
        put_uint(out, key, ms);
    }
}

static void put_texts(struct buf *out, const char *key, char *const *texts, size_t n)
{
    put_key(out, key);
    buf_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        comma(out);
        json_write_text(out, texts[i]);
    }
    buf_char(out, ']');
}

/* Bytes that should be JSON. They are read and written anew, so that they add neither line ends nor a broken answer. */
static void put_json(struct buf *out, const char *key, const char *bytes, size_t n)
{
    struct json *root = NULL;
    put_key(out, key);
    if (n == 0) {
        buf_text(out, "null");
    } else if (json_parse(bytes, n, &root, NULL) == ERR_OK) {
        wire_write_compact(out, root);
        json_free(root);
    } else if (utf8_is_valid(bytes, n)) {
        json_write_bytes(out, bytes, n);
    } else {
        buf_text(out, "null");
    }
}

/* A stage or a task that is not meant is the largest number of 32 or of 64 bits. */
static void put_number_of(struct buf *out, const char *key, uint64_t number)
{
    if (number == UINT32_MAX || number == UINT64_MAX) {
        put_text(out, key, NULL);
    } else {
        put_uint(out, key, number);
    }
}

/* "stage", "task" and "attempt"; null for what is not meant. Attempts count from 1. */
static void put_ref(struct buf *out, const struct pb_attempt_ref *ref)
{
    bool has_task = ref != NULL && ref->query_id != NULL && ref->query_id[0] != '\0';
    put_number_of(out, "stage", has_task ? ref->stage_id : UINT64_MAX);
    put_number_of(out, "task", has_task ? ref->task_id : UINT64_MAX);
    put_number_of(out, "attempt", has_task && ref->attempt > 0 ? ref->attempt : UINT64_MAX);
}

/* ---- states ---- */

const char *wire_query_state_name(Capstan__V1__QueryState state)
{
    static const char *const names[] = {"unknown", "queued", "running", "succeeded", "failed", "canceled"};
    return (size_t)state < ARRAY_LEN(names) ? names[state] : names[0];
}

const char *wire_task_state_name(Capstan__V1__TaskState state)
{
    static const char *const names[] = {"unknown", "queued", "running", "succeeded", "failed", "canceled", "skipped"};
    return (size_t)state < ARRAY_LEN(names) ? names[state] : names[0];
}

/* ---- jobs ---- */

static void put_stage(struct buf *out, const struct pb_stage_status *stage)
{
    comma(out);
    buf_char(out, '{');
    put_uint(out, "stage", stage->stage_id);
    put_text(out, "name", stage->name);
    put_key(out, "parents");
    buf_char(out, '[');
    for (size_t i = 0; i < stage->n_parents; i++) {
        comma(out);
        buf_format(out, "%" PRIu64, stage->parents[i]);
    }
    buf_char(out, ']');
    put_uint(out, "tasks", stage->tasks);
    put_uint(out, "queued", stage->queued);
    put_uint(out, "running", stage->running);
    put_uint(out, "succeeded", stage->succeeded);
    put_uint(out, "failed", stage->failed);
    put_uint(out, "canceled", stage->canceled);
    put_uint(out, "skipped", stage->skipped);
    put_uint(out, "rows", stage->rows);
    put_uint(out, "bytes", stage->bytes);
    put_key(out, "fraction");
    json_write_number(out, stage->fraction);
    buf_char(out, '}');
}

static void put_job(struct buf *out, const struct pb_query_status *job, bool with_stages)
{
    buf_char(out, '{');
    put_text(out, "job_id", job->query_id);
    put_text(out, "state", wire_query_state_name(job->state));
    put_text(out, "kind", job->kind);
    put_text(out, "name", job->name);
    put_time(out, "submitted_at_ms", job->submitted_at_ms);
    put_time(out, "started_at_ms", job->started_at_ms);
    put_time(out, "finished_at_ms", job->finished_at_ms);
    put_text(out, "message", job->message);
    if (with_stages) {
        put_key(out, "stages");
        buf_char(out, '[');
        for (size_t i = 0; i < job->n_stages; i++) {
            put_stage(out, job->stages[i]);
        }
        buf_char(out, ']');
    }
    buf_char(out, '}');
}

void wire_json_job(struct buf *out, const struct pb_query_status *job)
{
    put_job(out, job, true);
}

void wire_json_jobs(struct buf *out, const struct pb_list_jobs_response *jobs)
{
    buf_text(out, "{\"jobs\":[");
    for (size_t i = 0; i < jobs->n_jobs; i++) {
        comma(out);
        put_job(out, jobs->jobs[i], false);
    }
    buf_char(out, ']');
    put_text(out, "next", jobs->next);
    buf_char(out, '}');
}

void wire_json_task(struct buf *out, const struct pb_task_status *task)
{
    buf_char(out, '{');
    put_text(out, "job_id", task->ref == NULL ? NULL : task->ref->query_id);
    put_text(out, "name", task->name);
    put_ref(out, task->ref);
    put_text(out, "state", wire_task_state_name(task->state));
    put_text(out, "worker_id", task->worker_id);
    put_text(out, "message", task->message);
    put_time(out, "started_at_ms", task->started_at_ms);
    put_time(out, "finished_at_ms", task->finished_at_ms);
    put_uint(out, "failures", task->failures);
    put_uint(out, "rows", task->rows);
    put_uint(out, "bytes", task->bytes);
    put_json(out, "result", (const char *)task->result_json.data, task->result_json.len);
    buf_char(out, '}');
}

void wire_json_tasks(struct buf *out, const struct pb_list_tasks_response *tasks)
{
    buf_text(out, "{\"tasks\":[");
    for (size_t i = 0; i < tasks->n_tasks; i++) {
        comma(out);
        wire_json_task(out, tasks->tasks[i]);
    }
    buf_char(out, ']');
    put_text(out, "next", tasks->next);
    buf_char(out, '}');
}

void wire_json_submitted(struct buf *out, const char *job_id, Capstan__V1__QueryState state, bool existed)
{
    buf_char(out, '{');
    put_text(out, "job_id", job_id);
    put_text(out, "state", wire_query_state_name(state));
    put_bool(out, "existed", existed);
    buf_char(out, '}');
}

void wire_json_job_state(struct buf *out, const char *job_id, Capstan__V1__QueryState state)
{
    buf_char(out, '{');
    put_text(out, "job_id", job_id);
    put_text(out, "state", wire_query_state_name(state));
    buf_char(out, '}');
}

void wire_json_why(struct buf *out, const char *job_id, const struct pb_why_pending_response *why)
{
    buf_char(out, '{');
    put_text(out, "job_id", job_id);
    put_key(out, "reasons");
    buf_char(out, '[');
    for (size_t i = 0; i < why->n_reasons; i++) {
        comma(out);
        buf_char(out, '{');
        put_ref(out, why->reasons[i]->ref);
        put_text(out, "reason", why->reasons[i]->reason);
        put_uint(out, "tasks", why->reasons[i]->tasks);
        buf_char(out, '}');
    }
    buf_text(out, "]}");
}

/* Events of a job as a whole name no attempt; those of its tasks without one are of other types. */
static bool is_of_job(const struct pb_event *event)
{
    static const char *const types[] = {"created", "completed", "failed", "cancelled", "retried"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (strcmp(event->type, types[i]) == 0) {
            return event->ref != NULL && event->ref->attempt == 0;
        }
    }
    return false;
}

void wire_json_event(struct buf *out, const struct pb_event *event)
{
    buf_char(out, '{');
    put_uint(out, "seq", event->seq);
    put_time(out, "at_ms", event->at_ms);
    put_text(out, "type", event->type);
    put_text(out, "job_id", event->ref == NULL ? NULL : event->ref->query_id);
    put_ref(out, is_of_job(event) ? NULL : event->ref);
    put_text(out, "worker_id", event->worker_id);
    put_json(out, "details", event->details, event->details == NULL ? 0 : strlen(event->details));
    if (event->resync) {
        put_bool(out, "resync", true);
    }
    buf_char(out, '}');
}

/* ---- the cluster ---- */

void wire_json_node(struct buf *out, const struct pb_node *node)
{
    const char *capabilities = node->capabilities_json == NULL ? "" : node->capabilities_json;
    buf_char(out, '{');
    put_text(out, "worker_id", node->worker_id);
    put_text(out, "address", node->address);
    put_text(out, "status", node->status);
    put_bool(out, "blacklisted", node->blacklisted);
    put_bool(out, "draining", node->draining);
    put_uint(out, "slots", node->slots);
    put_uint(out, "running_tasks", node->running_tasks);
    put_uint(out, "failures", node->failures);
    put_time(out, "last_seen_ms", node->last_seen_ms);
    put_texts(out, "executor_types", node->executor_types, node->n_executor_types);
    put_json(out, "capabilities", capabilities[0] == '\0' ? "{}" : capabilities,
             capabilities[0] == '\0' ? 2 : strlen(capabilities));
    put_texts(out, "custom_operator_capabilities", node->custom_operator_capabilities,
              node->n_custom_operator_capabilities);
    put_text(out, "version", node->version);
    buf_char(out, '}');
}

void wire_json_nodes(struct buf *out, const struct pb_list_nodes_response *nodes)
{
    buf_text(out, "{\"nodes\":[");
    for (size_t i = 0; i < nodes->n_nodes; i++) {
        comma(out);
        wire_json_node(out, nodes->nodes[i]);
    }
    buf_text(out, "]}");
}

void wire_json_leader(struct buf *out, const struct pb_get_leader_response *leader)
{
    buf_char(out, '{');
    put_text(out, "node_id", leader->node_id);
    put_text(out, "address", leader->address);
    put_uint(out, "epoch", leader->epoch);
    put_text(out, "role", leader->role);
    put_uint(out, "staleness_ms", leader->staleness_ms);
    buf_char(out, '}');
}

void wire_json_overview(struct buf *out, const struct pb_get_overview_response *overview)
{
    buf_char(out, '{');
    put_uint(out, "jobs_queued", overview->jobs_queued);
    put_uint(out, "jobs_running", overview->jobs_running);
    put_uint(out, "jobs_succeeded", overview->jobs_succeeded);
    put_uint(out, "jobs_failed", overview->jobs_failed);
    put_uint(out, "jobs_canceled", overview->jobs_canceled);
    put_uint(out, "tasks_queued", overview->tasks_queued);
    put_uint(out, "tasks_running", overview->tasks_running);
    put_uint(out, "stuck_tasks", overview->stuck_tasks);
    put_uint(out, "leases", overview->leases);
    put_uint(out, "attempts_completed", overview->attempts_completed);
    put_uint(out, "attempts_failed", overview->attempts_failed);
    put_uint(out, "attempts_lost", overview->attempts_lost);
    put_uint(out, "nodes_healthy", overview->nodes_healthy);
    put_uint(out, "nodes_stale", overview->nodes_stale);
    put_uint(out, "nodes_dead", overview->nodes_dead);
    put_uint(out, "slots", overview->slots);
    put_uint(out, "slots_busy", overview->slots_busy);
    buf_char(out, '}');
}

void wire_json_table(struct buf *out, const struct pb_table *table)
{
    buf_char(out, '{');
    put_text(out, "name", table->name);
    put_text(out, "source", table->source);
    put_text(out, "format", table->format);
    buf_char(out, '}');
}

void wire_json_tables(struct buf *out, const struct pb_list_tables_response *tables)
{
    buf_text(out, "{\"tables\":[");
    for (size_t i = 0; i < tables->n_tables; i++) {
        comma(out);
        wire_json_table(out, tables->tables[i]);
    }
    buf_text(out, "]}");
}

/* ---- errors ---- */

void wire_json_error(struct buf *out, const struct error *e)
{
    char first[sizeof e->message];
    size_t n = strcspn(e->message, "\n");
    memcpy(first, e->message, n);
    first[n] = '\0';
    buf_text(out, "{\"error\":{");
    put_text(out, "code", err_name(e->code));
    put_text(out, "message", n == 0 ? err_text(e->code) : first);
    put_text(out, "detail", e->message[n] == '\n' ? e->message + n + 1 : NULL);
    put_text(out, "hint", e->hint);
    buf_text(out, "}}");
}
