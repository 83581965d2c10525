#include "wire/reply.h"

#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "core/idempotency.h"
#include "wire/command.h"

/* protobuf-c's structs serve reading and writing alike, so its texts are not const. Nobody writes to those of answers. */
static char *borrow(const char *text)
{
    return text == NULL ? (char *)protobuf_c_empty_string : (char *)text;
}

static char **borrow_list(const char *const *texts)
{
    return (char **)texts;
}

/* A text for people, cut if it is longer than the other end takes. */
static char *prose(const char *text, struct arena *arena)
{
    size_t n = text == NULL ? 0 : strlen(text);
    if (n <= LIMIT_TEXT_BYTES) {
        return borrow(text);
    }
    size_t kept = utf8_clip(text, n, LIMIT_TEXT_BYTES);
    char *copy = arena_copy(arena, text, kept + 1);
    copy[kept] = '\0';
    return copy;
}

static uint64_t time_of(int64_t ms)
{
    return ms < 0 ? 0 : (uint64_t)ms;
}

static uint32_t period_of(int64_t ms)
{
    return ms < 0 ? 0 : ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static char *hex_of(const struct digest *digest, struct arena *arena)
{
    char *text = arena_alloc(arena, 2 * sizeof(digest->bytes) + 1);
    hex_encode(digest->bytes, sizeof(digest->bytes), text);
    return text;
}

static char *buf_to_arena(struct buf *buf, struct arena *arena)
{
    char *text = arena_copy(arena, buf->data, buf->n + 1);
    buf_deinit(buf);
    return text;
}

static struct pb_attempt_ref **refs_message(const struct attempt_ref *refs, uint32_t n, struct arena *arena)
{
    struct pb_attempt_ref **messages = arena_alloc(arena, n * sizeof(struct pb_attempt_ref *));
    for (uint32_t i = 0; i < n; i++) {
        messages[i] = wire_ref_message(&refs[i], arena);
    }
    return messages;
}

/* Replies to workers. */

struct pb_register_worker_response *wire_register_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_REGISTER);
    struct pb_register_worker_response *m = wire_new(PB_REGISTER_WORKER_RESPONSE, arena);
    m->heartbeat_interval_ms = period_of(reply->u.registered.heartbeat_interval_ms);
    m->lease_ms = period_of(reply->u.registered.lease_ms);
    return m;
}

struct pb_heartbeat_response *wire_heartbeat_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_HEARTBEAT);
    struct pb_heartbeat_response *m = wire_new(PB_HEARTBEAT_RESPONSE, arena);
    m->accepted = reply->u.heartbeat.accepted;
    m->reason = borrow(refusal_text(reply->u.heartbeat.refusal));
    m->drain = reply->u.heartbeat.drain;
    m->n_stop = reply->u.heartbeat.n_stop;
    m->stop = refs_message(reply->u.heartbeat.stop, reply->u.heartbeat.n_stop, arena);
    m->n_ended_jobs = reply->u.heartbeat.n_ended_jobs;
    m->ended_jobs = borrow_list(reply->u.heartbeat.ended_jobs);
    m->outputs_needed = reply->u.heartbeat.outputs_needed;
    m->n_failed_jobs = reply->u.heartbeat.n_failed_jobs;
    m->failed_jobs = borrow_list(reply->u.heartbeat.failed_jobs);
    return m;
}

static struct pb_map_output_partition *partition_message(uint32_t number, const struct partition *partition,
                                                         struct arena *arena)
{
    struct pb_map_output_partition *m = wire_new(PB_MAP_OUTPUT_PARTITION, arena);
    m->reduce_partition = number;
    m->bytes = partition->bytes;
    m->rows = partition->rows;
    m->batches = partition->batches;
    m->checksum = partition->checksum;
    return m;
}

static struct pb_map_output_location *source_message(const struct source *source, struct arena *arena)
{
    struct attempt_ref ref = {.task = source->ref, .attempt = source->attempt};
    struct pb_map_output_location *m = wire_new(PB_MAP_OUTPUT_LOCATION, arena);
    m->ref = wire_ref_message(&ref, arena);
    m->address = borrow(source->address);
    m->worker_id = borrow(source->worker_id);
    m->n_partitions = source->n_partitions;
    m->partitions = arena_alloc(arena, source->n_partitions * sizeof(struct pb_map_output_partition *));
    for (uint32_t i = 0; i < source->n_partitions; i++) {
        m->partitions[i] = partition_message(source->first_partition + i, &source->partitions[i], arena);
    }
    return m;
}

static struct pb_task_assignment *assignment_message(const struct assignment *task, struct arena *arena)
{
    struct digest key = task_key(task->ref.task);
    struct pb_task_assignment *m = wire_new(PB_TASK_ASSIGNMENT, arena);
    m->query_id = borrow(task->ref.task.job_id);
    m->stage_id = task->ref.task.stage;
    m->task_id = task->ref.task.task;
    m->attempt = task->ref.attempt;
    m->lease_token = wire_token_message(task->ref.token, arena);
    m->lease_ms = task->lease_ms;
    m->executor = borrow(task->executor);
    m->n_required_custom_ops = task->ops.count;
    m->required_custom_ops = borrow_list(task->ops.items);
    m->idempotency_key = hex_of(&task->idempotency_key, arena);
    m->timeout_ms = task->timeout_ms;
    m->name = borrow(task->name);
    m->exclusive = task->exclusive;
    m->task_key = hex_of(&key, arena);
    m->n_sources = task->n_sources;
    m->sources = arena_alloc(arena, task->n_sources * sizeof(struct pb_map_output_location *));
    for (uint32_t i = 0; i < task->n_sources; i++) {
        m->sources[i] = source_message(&task->sources[i], arena);
    }
    return m;
}

struct pb_get_task_response *wire_tasks_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_TASKS);
    struct pb_get_task_response *m = wire_new(PB_GET_TASK_RESPONSE, arena);
    m->tasks = arena_alloc(arena, reply->u.tasks.n_tasks * sizeof(struct pb_task_assignment *));
    for (const struct assignment *task = reply->u.tasks.first; task != NULL; task = task->next) {
        ASSERT(m->n_tasks < reply->u.tasks.n_tasks);
        m->tasks[m->n_tasks++] = assignment_message(task, arena);
    }
    m->n_stop = reply->u.tasks.n_stop;
    m->stop = refs_message(reply->u.tasks.stop, reply->u.tasks.n_stop, arena);
    m->waited_ms = period_of(reply->u.tasks.waited_ms);
    return m;
}

struct pb_report_task_status_response *wire_report_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_REPORT);
    uint32_t n = reply->u.report.n_outcomes;
    struct pb_report_task_status_response *m = wire_new(PB_REPORT_TASK_STATUS_RESPONSE, arena);
    m->n_outcomes = n;
    m->outcomes = arena_alloc(arena, n * sizeof(struct pb_report_outcome *));
    for (uint32_t i = 0; i < n; i++) {
        m->outcomes[i] = wire_new(PB_REPORT_OUTCOME, arena);
        m->outcomes[i]->accepted = reply->u.report.outcomes[i] == REFUSE_NONE;
        m->outcomes[i]->reason = borrow(refusal_text(reply->u.report.outcomes[i]));
    }
    return m;
}

struct pb_register_map_output_response *wire_map_output_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_ACCEPT);
    struct pb_register_map_output_response *m = wire_new(PB_REGISTER_MAP_OUTPUT_RESPONSE, arena);
    m->accepted = reply->u.accept == REFUSE_NONE;
    m->reason = borrow(refusal_text(reply->u.accept));
    return m;
}

struct pb_register_query_results_response *wire_results_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_ACCEPT);
    struct pb_register_query_results_response *m = wire_new(PB_REGISTER_QUERY_RESULTS_RESPONSE, arena);
    m->accepted = reply->u.accept == REFUSE_NONE;
    m->reason = borrow(refusal_text(reply->u.accept));
    return m;
}

/* Replies to clients. */

struct pb_submit_query_response *wire_submit_query_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_SUBMIT);
    struct pb_submit_query_response *m = wire_new(PB_SUBMIT_QUERY_RESPONSE, arena);
    m->query_id = borrow(reply->u.job.job_id);
    m->state = wire_job_state(reply->u.job.state);
    m->existed = reply->u.job.existed;
    return m;
}

struct pb_submit_tasks_response *wire_submit_tasks_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_SUBMIT);
    struct pb_submit_tasks_response *m = wire_new(PB_SUBMIT_TASKS_RESPONSE, arena);
    m->job_id = borrow(reply->u.job.job_id);
    m->state = wire_job_state(reply->u.job.state);
    m->existed = reply->u.job.existed;
    return m;
}

struct pb_cancel_query_response *wire_cancel_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_JOB);
    struct pb_cancel_query_response *m = wire_new(PB_CANCEL_QUERY_RESPONSE, arena);
    m->query_id = borrow(reply->u.job.job_id);
    m->state = wire_job_state(reply->u.job.state);
    return m;
}

struct pb_retry_job_response *wire_retry_reply(const struct reply *reply, struct arena *arena)
{
    ASSERT(reply->kind == REPLY_JOB);
    struct pb_retry_job_response *m = wire_new(PB_RETRY_JOB_RESPONSE, arena);
    m->query_id = borrow(reply->u.job.job_id);
    m->state = wire_job_state(reply->u.job.state);
    return m;
}

/* Reads. */

static char *kind_word(enum job_kind kind)
{
    return borrow(kind == JOB_KIND_QUERY ? "query" : "tree");
}

struct pb_query_status *wire_job_status(const struct job_status *job, struct arena *arena)
{
    struct pb_query_status *m = wire_new(PB_QUERY_STATUS, arena);
    m->query_id = borrow(job->job_id);
    m->state = wire_job_state(job->state);
    m->submitted_at_ms = time_of(job->submitted_at_ms);
    m->started_at_ms = time_of(job->started_at_ms);
    m->finished_at_ms = time_of(job->finished_at_ms);
    m->message = prose(job->message, arena);
    m->name = borrow(job->name);
    m->kind = kind_word(job->kind);
    return m;
}

struct pb_query_status *wire_job_row(const struct row_job *row, struct arena *arena)
{
    struct job_status job = {
        .job_id = row->job_id,
        .name = row->name,
        .kind = row->kind,
        .state = row->state,
        .submitted_at_ms = row->submitted_at_ms,
        .started_at_ms = row->started_at_ms,
        .finished_at_ms = row->finished_at_ms,
        .message = row->message,
    };
    return wire_job_status(&job, arena);
}

struct pb_stage_status *wire_stage(uint32_t stage, const struct stage_status *status, struct arena *arena)
{
    struct pb_stage_status *m = wire_new(PB_STAGE_STATUS, arena);
    m->stage_id = stage;
    m->name = borrow(status->name);
    m->tasks = status->n_tasks;
    m->queued = status->counts[TASK_QUEUED];
    m->running = status->counts[TASK_RUNNING];
    m->succeeded = status->counts[TASK_SUCCEEDED];
    m->failed = status->counts[TASK_FAILED];
    m->canceled = status->counts[TASK_CANCELED];
    m->skipped = status->counts[TASK_SKIPPED];
    m->rows = status->rows;
    m->bytes = status->bytes;
    m->fraction = status->n_tasks > 0 ? (double)m->succeeded / status->n_tasks : 0;
    return m;
}

struct pb_task_status *wire_task_row(const struct row_task *row, const char *name, struct arena *arena)
{
    struct attempt_ref ref = {.task = row->ref, .attempt = row->attempt}; /* a token is nobody's but the worker's */
    struct pb_task_status *m = wire_new(PB_TASK_STATUS, arena);
    m->ref = wire_ref_message(&ref, arena);
    m->name = borrow(name);
    m->state = wire_task_state(row->state);
    m->worker_id = borrow(row->worker_id);
    m->message = prose(row->message, arena);
    m->started_at_ms = time_of(row->started_at_ms);
    m->finished_at_ms = time_of(row->finished_at_ms);
    m->failures = row->failures;
    m->rows = row->rows;
    m->bytes = row->bytes;
    return m;
}

static char *event_details(const char *message, struct arena *arena)
{
    if (message == NULL || message[0] == '\0') {
        return borrow(NULL);
    }
    struct buf buf = {0};
    buf_text(&buf, "{\"message\":");
    json_write_text(&buf, message);
    buf_char(&buf, '}');
    return buf_to_arena(&buf, arena);
}

struct pb_event *wire_event_row(const struct row_event *row, struct arena *arena)
{
    struct pb_event *m = wire_new(PB_EVENT, arena);
    m->seq = row->seq;
    m->at_ms = time_of(row->at_ms);
    m->type = borrow(event_type_name(row->type));
    m->worker_id = borrow(row->worker_id);
    m->details = event_details(row->message, arena);
    if (row->ref.job_id != NULL) {
        struct attempt_ref ref = {.task = row->ref, .attempt = row->attempt};
        if (row->ref.stage == EVENT_WHOLE_JOB) {
            ref = (struct attempt_ref){.task = {.job_id = row->ref.job_id}};
        }
        m->ref = wire_ref_message(&ref, arena);
    }
    return m;
}

static void write_capability(struct buf *buf, const struct capability *capability)
{
    switch (capability->kind) {
    case VALUE_TEXT:
        json_write_text(buf, capability->text);
        break;
    case VALUE_NUMBER:
        json_write_number(buf, capability->number);
        break;
    case VALUE_BOOL:
        buf_text(buf, capability->number > 0 ? "true" : "false");
        break;
    case VALUE_LIST:
        buf_char(buf, '[');
        for (uint32_t i = 0; i < capability->n_items; i++) {
            buf_text(buf, i > 0 ? "," : "");
            json_write_text(buf, capability->items[i]);
        }
        buf_char(buf, ']');
        break;
    default:
        buf_text(buf, "null");
        break;
    }
}

static char *capabilities_message(struct capability_list list, struct arena *arena)
{
    struct buf buf = {0};
    buf_char(&buf, '{');
    for (uint32_t i = 0; i < list.count; i++) {
        buf_text(&buf, i > 0 ? "," : "");
        json_write_text(&buf, list.items[i].key);
        buf_char(&buf, ':');
        write_capability(&buf, &list.items[i]);
    }
    buf_char(&buf, '}');
    return buf_to_arena(&buf, arena);
}

static const char *status_word(enum node_status status)
{
    static const char *const words[] = {[NODE_HEALTHY] = "healthy", [NODE_STALE] = "stale", [NODE_DEAD] = "dead"};
    ASSERT((unsigned)status < ARRAY_LEN(words));
    return words[status];
}

struct pb_node *wire_node(const struct node_info *node, struct arena *arena)
{
    struct pb_node *m = wire_new(PB_NODE, arena);
    m->worker_id = borrow(node->worker_id);
    m->address = borrow(node->address);
    m->status = borrow(status_word(node->status));
    m->blacklisted = node->blacklisted;
    m->draining = node->draining;
    m->slots = node->slots;
    m->running_tasks = node->running;
    m->failures = node->failures;
    m->last_seen_ms = time_of(node->last_seen_ms);
    m->n_executor_types = node->offer->executors.count;
    m->executor_types = borrow_list(node->offer->executors.items);
    m->capabilities_json = capabilities_message(node->offer->capabilities, arena);
    m->n_custom_operator_capabilities = node->offer->ops.count;
    m->custom_operator_capabilities = borrow_list(node->offer->ops.items);
    m->version = borrow(node->version);
    return m;
}

struct pb_pending_reason *wire_pending_reason(const char *job_id, const struct pending_reason *reason,
                                              struct arena *arena)
{
    struct attempt_ref ref = {.task = {.job_id = job_id, .stage = reason->stage, .task = reason->task}};
    struct pb_pending_reason *m = wire_new(PB_PENDING_REASON, arena);
    m->ref = wire_ref_message(&ref, arena);
    m->reason = prose(reason->reason, arena);
    m->tasks = reason->n_tasks;
    return m;
}

/* States: the protocol's are the core's plus one, because its 0 means that nothing was said. */

Capstan__V1__QueryState wire_job_state(enum job_state state)
{
    ASSERT((unsigned)state <= JOB_CANCELED);
    return (Capstan__V1__QueryState)((unsigned)state + 1);
}

Capstan__V1__TaskState wire_task_state(enum task_state state)
{
    ASSERT((unsigned)state < TASK_STATE_COUNT);
    return (Capstan__V1__TaskState)((unsigned)state + 1);
}

bool wire_job_state_read(Capstan__V1__QueryState state, enum job_state *out)
{
    if ((unsigned)state - 1 > JOB_CANCELED) {
        return false;
    }
    *out = (enum job_state)((unsigned)state - 1);
    return true;
}

bool wire_task_state_read(Capstan__V1__TaskState state, enum task_state *out)
{
    if ((unsigned)state - 1 >= TASK_STATE_COUNT) {
        return false;
    }
    *out = (enum task_state)((unsigned)state - 1);
    return true;
}

enum err wire_job_state_word(const char *word, enum job_state *out, struct error *e)
{
    for (unsigned i = 0; i <= JOB_CANCELED; i++) {
        if (strcmp(word, job_state_name((enum job_state)i)) == 0) {
            *out = (enum job_state)i;
            return ERR_OK;
        }
    }
    return error_set(e, ERR_INVALID, "state: must be queued, running, succeeded, failed or canceled, got '%s'", word);
}

enum err wire_task_state_word(const char *word, enum task_state *out, struct error *e)
{
    for (unsigned i = 0; i < TASK_STATE_COUNT; i++) {
        if (strcmp(word, task_state_name((enum task_state)i)) == 0) {
            *out = (enum task_state)i;
            return ERR_OK;
        }
    }
    return error_set(e, ERR_INVALID, "state: must be queued, running, succeeded, failed, canceled or skipped, got '%s'",
                     word);
}
