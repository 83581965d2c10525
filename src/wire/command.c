#include "wire/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "wire/reply.h"

#define TOKEN_BYTES 16

/* An empty text is how a message says that there is none. */
static const char *or_null(const char *text)
{
    return text[0] == '\0' ? NULL : text;
}

/* Attempts and their tokens. */

static uint64_t get_big_endian(const uint8_t *bytes)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < 8; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

static void put_big_endian(uint8_t *bytes, uint64_t number)
{
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(number >> (56 - 8 * i));
    }
}

static enum err token_of(ProtobufCBinaryData bytes, struct lease_token *out, struct error *e)
{
    if (bytes.len != 0 && bytes.len != TOKEN_BYTES) {
        return error_set(e, ERR_INVALID, "lease_token: must be %d bytes, got %zu", TOKEN_BYTES, bytes.len);
    }
    *out = (struct lease_token){{0, 0}};
    if (bytes.len == TOKEN_BYTES) {
        out->bits[0] = get_big_endian(bytes.data);
        out->bits[1] = get_big_endian(bytes.data + 8);
    }
    return ERR_OK;
}

static enum err narrow(uint64_t number, const char *field, uint32_t *out, struct error *e)
{
    if (number > UINT32_MAX) {
        return error_set(e, ERR_INVALID, "%s: must be at most %u, got %llu", field, UINT32_MAX,
                         (unsigned long long)number);
    }
    *out = (uint32_t)number;
    return ERR_OK;
}

enum err wire_ref(const struct pb_attempt_ref *m, struct attempt_ref *out, struct error *e)
{
    if (m == NULL) {
        return error_set(e, ERR_INVALID, "ref: is missing");
    }
    struct attempt_ref ref = {.task = {.job_id = m->query_id}, .attempt = m->attempt};
    enum err err = narrow(m->stage_id, "stage_id", &ref.task.stage, e);
    if (err == ERR_OK) {
        err = narrow(m->task_id, "task_id", &ref.task.task, e);
    }
    if (err == ERR_OK) {
        err = token_of(m->lease_token, &ref.token, e);
    }
    if (err == ERR_OK) {
        *out = ref;
    }
    return err;
}

ProtobufCBinaryData wire_token_message(struct lease_token token, struct arena *arena)
{
    if (lease_token_is_none(token)) {
        return (ProtobufCBinaryData){0, NULL};
    }
    uint8_t *bytes = arena_alloc(arena, TOKEN_BYTES);
    put_big_endian(bytes, token.bits[0]);
    put_big_endian(bytes + 8, token.bits[1]);
    return (ProtobufCBinaryData){TOKEN_BYTES, bytes};
}

struct pb_attempt_ref *wire_ref_message(const struct attempt_ref *ref, struct arena *arena)
{
    struct pb_attempt_ref *m = wire_new(PB_ATTEMPT_REF, arena);
    m->query_id = (char *)ref->task.job_id; /* protobuf-c's texts are not const, but nobody writes to this one */
    m->stage_id = ref->task.stage;
    m->task_id = ref->task.task;
    m->attempt = ref->attempt;
    m->lease_token = wire_token_message(ref->token, arena);
    return m;
}

/* `n` attempts; `out` is left alone if there are none. The error begins with where they are: "reports[3].". */
static enum err refs_of(struct pb_attempt_ref *const *messages, size_t n, const char *where, struct arena *arena,
                        const struct attempt_ref **out, struct error *e)
{
    if (n == 0) {
        return ERR_OK;
    }
    struct attempt_ref *refs = arena_alloc(arena, n * sizeof(*refs));
    for (size_t i = 0; i < n; i++) {
        enum err err = wire_ref(messages[i], &refs[i], e);
        if (err != ERR_OK) {
            return e == NULL ? err : error_set(e, err, "%s[%zu].%s", where, i, e->message);
        }
    }
    *out = refs;
    return ERR_OK;
}

/* What a worker offers. */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The texts sorted, each once, so that equal offers look equal. Most workers send them in order: then nothing is moved. */
static struct string_list string_set(char *const *texts, size_t n, struct arena *arena)
{
    if (n == 0) {
        return (struct string_list){NULL, 0};
    }
    const char **items = arena_copy(arena, texts, n * sizeof(*items));
    size_t ordered = 1;
    while (ordered < n && strcmp(items[ordered - 1], items[ordered]) < 0) {
        ordered++;
    }
    if (ordered == n) {
        return (struct string_list){items, (uint32_t)n};
    }
    qsort(items, n, sizeof(*items), compare_texts);
    uint32_t kept = 1;
    for (size_t i = 1; i < n; i++) {
        if (strcmp(items[kept - 1], items[i]) != 0) {
            items[kept++] = items[i];
        }
    }
    return (struct string_list){items, kept};
}

/* A text from JSON, where it may contain NULs, as a capability or a part of one. */
static enum err capability_text(const char *key, const struct json *node, struct arena *arena, const char **out,
                                struct error *e)
{
    size_t n = 0;
    const char *text = json_text(node, &n);
    if (text == NULL) {
        return error_set(e, ERR_INVALID, "capabilities_json: %s: a list must consist of texts", key);
    }
    if (n > LIMIT_CAPABILITY_BYTES) {
        return error_set(e, ERR_EXHAUSTED, "capabilities_json: %s: a text must be at most %d bytes, got %zu", key,
                         LIMIT_CAPABILITY_BYTES, n);
    }
    if (memchr(text, '\0', n) != NULL) {
        return error_set(e, ERR_INVALID, "capabilities_json: %s: must not contain a NUL", key);
    }
    *out = arena_copy(arena, text, n + 1);
    return ERR_OK;
}

static enum err capability_items(const struct json *list, struct arena *arena, struct capability *capability,
                                 struct error *e)
{
    size_t n = json_count(list);
    if (n > LIMIT_CAPABILITIES) {
        return error_set(e, ERR_EXHAUSTED, "capabilities_json: %s: a list must have at most %d elements, got %zu",
                         capability->key, LIMIT_CAPABILITIES, n);
    }
    if (n == 0) {
        return ERR_OK;
    }
    const char **items = arena_alloc(arena, n * sizeof(*items));
    for (size_t i = 0; i < n; i++) {
        enum err err = capability_text(capability->key, json_at(list, i), arena, &items[i], e);
        if (err != ERR_OK) {
            return err;
        }
    }
    capability->items = items;
    capability->n_items = (uint32_t)n;
    return ERR_OK;
}

static enum err capability_value(const struct json *value, struct arena *arena, struct capability *capability,
                                 struct error *e)
{
    switch (json_kind_of(value)) {
    case JSON_TEXT:
        capability->kind = VALUE_TEXT;
        return capability_text(capability->key, value, arena, &capability->text, e);
    case JSON_NUMBER:
        capability->kind = VALUE_NUMBER;
        capability->number = json_number(value);
        return ERR_OK;
    case JSON_BOOL:
        capability->kind = VALUE_BOOL;
        capability->number = json_bool(value) ? 1 : 0;
        return ERR_OK;
    case JSON_ARRAY:
        capability->kind = VALUE_LIST;
        return capability_items(value, arena, capability, e);
    case JSON_NULL:
    case JSON_OBJECT:
    default:
        return error_set(e, ERR_INVALID,
                         "capabilities_json: %s: must be a text, a number, a boolean or a list of texts",
                         capability->key);
    }
}

static enum err capability_key(const char *key, struct arena *arena, const char **out, struct error *e)
{
    size_t n = strlen(key);
    if (n == 0) {
        return error_set(e, ERR_INVALID, "capabilities_json: a name must not be empty");
    }
    if (n > LIMIT_NAME_BYTES) {
        return error_set(e, ERR_EXHAUSTED, "capabilities_json: a name must be at most %d bytes, got %zu",
                         LIMIT_NAME_BYTES, n);
    }
    *out = arena_copy(arena, key, n + 1);
    return ERR_OK;
}

static int compare_capabilities(const void *a, const void *b)
{
    return strcmp(((const struct capability *)a)->key, ((const struct capability *)b)->key);
}

static enum err capabilities_of(const struct json *root, struct arena *arena, struct offer *offer, struct error *e)
{
    if (json_kind_of(root) != JSON_OBJECT) {
        enum err err = error_set(e, ERR_INVALID, "capabilities_json: must be an object");
        error_hint(e, "such as {\"cpu_cores\": 8, \"gpu\": \"nvidia\", \"labels\": [\"ml\"]}");
        return err;
    }
    size_t n = json_count(root);
    if (n > LIMIT_CAPABILITIES) {
        return error_set(e, ERR_EXHAUSTED, "capabilities_json: must have at most %d members, got %zu",
                         LIMIT_CAPABILITIES, n);
    }
    if (n == 0) {
        return ERR_OK;
    }
    struct capability *items = arena_zalloc(arena, n * sizeof(*items));
    size_t cursor = 0;
    const char *key;
    const struct json *value;
    for (size_t i = 0; json_next(root, &cursor, &key, &value); i++) {
        enum err err = capability_key(key, arena, &items[i].key, e);
        if (err == ERR_OK) {
            err = capability_value(value, arena, &items[i], e);
        }
        if (err != ERR_OK) {
            return err;
        }
        if (items[i].kind == VALUE_TEXT && strcmp(items[i].key, "engine") == 0) {
            offer->engine = items[i].text;
        }
    }
    qsort(items, n, sizeof(*items), compare_capabilities);
    offer->capabilities = (struct capability_list){items, (uint32_t)n};
    return ERR_OK;
}

enum err wire_register(const struct pb_register_worker_request *m, struct arena *arena, struct cmd_register *out,
                       struct error *e)
{
    struct offer offer = {
        .executors = string_set(m->executor_types, m->n_executor_types, arena),
        .ops = string_set(m->custom_operator_capabilities, m->n_custom_operator_capabilities, arena),
    };
    if (m->capabilities_json[0] != '\0') {
        struct json *root = NULL;
        enum err err = json_parse(m->capabilities_json, strlen(m->capabilities_json), &root, e);
        if (err != ERR_OK) {
            return e == NULL ? err : error_set(e, err, "capabilities_json: %s", e->message);
        }
        err = capabilities_of(root, arena, &offer, e);
        json_free(root);
        if (err != ERR_OK) {
            return err;
        }
    }
    *out = (struct cmd_register){
        .worker_id = m->worker_id,
        .incarnation = m->incarnation,
        .address = m->address,
        .slots = m->slots,
        .offer = offer,
        .version = m->version,
    };
    return ERR_OK;
}

/* The other things that workers say. */

enum err wire_heartbeat(const struct pb_heartbeat_request *m, struct arena *arena, struct cmd_heartbeat *out,
                        struct error *e)
{
    const struct attempt_ref *running = NULL;
    enum err err = refs_of(m->running, m->n_running, "running", arena, &running, e);
    if (err != ERR_OK) {
        return err;
    }
    *out = (struct cmd_heartbeat){
        .worker_id = m->worker_id,
        .incarnation = m->incarnation,
        .running = running,
        .n_running = (uint32_t)m->n_running,
        .ops = string_set(m->custom_operator_capabilities, m->n_custom_operator_capabilities, arena),
        .held_jobs = (const char *const *)m->held_jobs,
        .n_held_jobs = (uint32_t)m->n_held_jobs,
        .load = m->load,
        .is_leaving = m->leaving,
    };
    return ERR_OK;
}

enum err wire_deregister(const struct pb_deregister_worker_request *m, struct arena *arena, struct cmd_deregister *out,
                         struct error *e)
{
    UNUSED(arena);
    UNUSED(e);
    *out = (struct cmd_deregister){.worker_id = m->worker_id, .incarnation = m->incarnation};
    return ERR_OK;
}

enum err wire_get_task(const struct pb_get_task_request *m, struct arena *arena, struct cmd_get_task *out,
                       struct error *e)
{
    UNUSED(arena);
    UNUSED(e);
    *out = (struct cmd_get_task){
        .worker_id = m->worker_id,
        .incarnation = m->incarnation,
        .capacity = m->capacity,
        .wait_ms = m->wait_ms,
    };
    return ERR_OK;
}

/* Every number from 0 on must be there once. */
static enum err partitions_of(struct pb_map_output_partition *const *messages, size_t n, const char *where,
                              struct arena *arena, const struct partition **out, struct error *e)
{
    struct partition *partitions = arena_alloc(arena, n * sizeof(*partitions));
    bool *given = arena_zalloc(arena, n * sizeof(*given));
    for (size_t i = 0; i < n; i++) {
        const struct pb_map_output_partition *from = messages[i];
        uint32_t at = from->reduce_partition;
        if (at >= n) {
            return error_set(e, ERR_INVALID, "%s[%zu].reduce_partition: is %u, but only %zu partitions are given",
                             where, i, (unsigned)at, n);
        }
        if (given[at]) {
            return error_set(e, ERR_INVALID, "%s[%zu].reduce_partition: %u is given twice", where, i, (unsigned)at);
        }
        given[at] = true;
        partitions[at] = (struct partition){
            .bytes = from->bytes,
            .rows = from->rows,
            .batches = from->batches,
            .checksum = from->checksum,
        };
    }
    *out = partitions;
    return ERR_OK;
}

/* Rows that came along, or stay on the worker. */
static enum err rows_of(ProtobufCBinaryData payload, uint64_t bytes, uint64_t rows, struct task_rows *out,
                        struct error *e)
{
    bool is_inline = payload.len > 0;
    if (is_inline && bytes != 0 && bytes != payload.len) {
        return error_set(e, ERR_INVALID, "bytes: is %llu, but ipc_payload has %zu", (unsigned long long)bytes,
                         payload.len);
    }
    *out = (struct task_rows){.rows = rows, .bytes = is_inline ? payload.len : bytes, .is_inline = is_inline};
    return ERR_OK;
}

static enum err report_state(Capstan__V1__TaskState state, enum task_state *out, struct error *e)
{
    enum task_state said;
    if (!wire_task_state_read(state, &said) || said == TASK_CANCELED || said == TASK_SKIPPED) {
        return error_set(e, ERR_INVALID, "state: must be RUNNING, SUCCEEDED, FAILED, or QUEUED for a release");
    }
    *out = said;
    return ERR_OK;
}

static enum err report_result(ProtobufCBinaryData json, struct task_report *out, struct wire_bytes *out_result,
                              struct error *e)
{
    *out_result = (struct wire_bytes){NULL, 0};
    if (json.len == 0) {
        return ERR_OK;
    }
    struct json *root = NULL;
    enum err err = json_parse((const char *)json.data, json.len, &root, e);
    if (err != ERR_OK) {
        return e == NULL ? err : error_set(e, err, "result_json: %s", e->message);
    }
    json_free(root);
    sha256_once(json.data, json.len, out->result.bytes);
    out->result_bytes = (uint32_t)json.len;
    *out_result = (struct wire_bytes){json.data, json.len};
    return ERR_OK;
}

/* A plan is the task's result; what is in it is for others to read. */
static enum err report_plan(const struct pb_task_report *m, struct task_report *out, struct wire_bytes *out_result,
                            struct error *e)
{
    if (m->plan_json.len == 0) {
        return ERR_OK;
    }
    if (m->result_json.len > 0) {
        return error_set(e, ERR_INVALID, "plan_json: is the result of a planning task; leave result_json empty");
    }
    sha256_once(m->plan_json.data, m->plan_json.len, out->result.bytes);
    out->result_bytes = (uint32_t)m->plan_json.len;
    *out_result = (struct wire_bytes){m->plan_json.data, m->plan_json.len};
    return ERR_OK;
}

static enum err report_output(const struct pb_task_report *m, struct arena *arena, struct task_report *out,
                              struct error *e)
{
    enum err err = ERR_OK;
    if (m->n_map_output > 0) {
        out->n_map_output = (uint32_t)m->n_map_output;
        err = partitions_of(m->map_output, m->n_map_output, "map_output", arena, &out->map_output, e);
    }
    if (err == ERR_OK && m->query_results != NULL) {
        struct task_rows *rows = arena_alloc(arena, sizeof *rows);
        out->query_results = rows;
        err = rows_of(m->query_results->ipc_payload, m->query_results->bytes, m->query_results->rows, rows, e);
        if (err != ERR_OK && e != NULL) {
            error_set(e, err, "query_results.%s", e->message);
        }
    }
    return err;
}

static enum err report_of(const struct pb_task_report *m, struct arena *arena, struct task_report *out,
                          struct wire_bytes *out_result, struct error *e)
{
    *out = (struct task_report){
        .message = or_null(m->message),
        .not_retryable = m->not_retryable,
        .n_fetch_failed = (uint32_t)m->n_fetch_failed,
        .rows = m->rows,
        .bytes = m->bytes,
    };
    enum err err = wire_ref(m->ref, &out->ref, e);
    if (err != ERR_OK) {
        return m->ref == NULL || e == NULL ? err : error_set(e, err, "ref.%s", e->message);
    }
    err = report_state(m->state, &out->state, e);
    if (err == ERR_OK) {
        err = refs_of(m->fetch_failed, m->n_fetch_failed, "fetch_failed", arena, &out->fetch_failed, e);
    }
    if (err == ERR_OK) {
        err = report_result(m->result_json, out, out_result, e);
    }
    if (err == ERR_OK) {
        err = report_plan(m, out, out_result, e);
    }
    return err == ERR_OK ? report_output(m, arena, out, e) : err;
}

enum err wire_report(const struct pb_report_task_status_request *m, struct arena *arena, struct cmd_report *out,
                     const struct wire_bytes **out_results, struct error *e)
{
    struct task_report *reports = arena_alloc(arena, m->n_reports * sizeof(*reports));
    struct wire_bytes *results = arena_alloc(arena, m->n_reports * sizeof(*results));
    for (size_t i = 0; i < m->n_reports; i++) {
        enum err err = report_of(m->reports[i], arena, &reports[i], &results[i], e);
        if (err != ERR_OK) {
            return e == NULL ? err : error_set(e, err, "reports[%zu].%s", i, e->message);
        }
    }
    *out = (struct cmd_report){
        .worker_id = m->worker_id,
        .incarnation = m->incarnation,
        .reports = reports,
        .n_reports = (uint32_t)m->n_reports,
    };
    *out_results = results;
    return ERR_OK;
}

enum err wire_map_output(const struct pb_register_map_output_request *m, struct arena *arena,
                         struct cmd_map_output *out, struct error *e)
{
    struct attempt_ref ref = {.task = {.job_id = m->query_id}, .attempt = m->attempt};
    const struct partition *partitions = NULL;
    enum err err = narrow(m->stage_id, "stage_id", &ref.task.stage, e);
    if (err == ERR_OK) {
        err = narrow(m->map_task, "map_task", &ref.task.task, e);
    }
    if (err == ERR_OK) {
        err = token_of(m->lease_token, &ref.token, e);
    }
    if (err == ERR_OK) {
        err = partitions_of(m->partitions, m->n_partitions, "partitions", arena, &partitions, e);
    }
    if (err == ERR_OK) {
        *out = (struct cmd_map_output){
            .ref = ref,
            .worker_id = m->worker_id,
            .partitions = partitions,
            .n_partitions = (uint32_t)m->n_partitions,
        };
    }
    return err;
}

enum err wire_results(const struct pb_register_query_results_request *m, struct arena *arena, struct cmd_results *out,
                      struct error *e)
{
    UNUSED(arena);
    struct attempt_ref ref;
    enum err err = wire_ref(m->ref, &ref, e);
    if (err != ERR_OK) {
        return m->ref == NULL || e == NULL ? err : error_set(e, err, "ref.%s", e->message);
    }
    *out = (struct cmd_results){.ref = ref, .worker_id = m->worker_id};
    return rows_of(m->ipc_payload, m->bytes, m->rows, &out->rows, e);
}

/* What people ask for. */

enum err wire_cancel(const struct pb_cancel_query_request *m, struct arena *arena, struct cmd_cancel *out,
                     struct error *e)
{
    UNUSED(arena);
    UNUSED(e);
    *out = (struct cmd_cancel){.job_id = m->query_id, .reason = or_null(m->reason)};
    return ERR_OK;
}

enum err wire_retry(const struct pb_retry_job_request *m, struct arena *arena, struct cmd_retry *out, struct error *e)
{
    UNUSED(arena);
    UNUSED(e);
    *out = (struct cmd_retry){.job_id = m->query_id, .from_task = or_null(m->from_task)};
    return ERR_OK;
}

enum err wire_set_node(const struct pb_set_node_request *m, struct arena *arena, struct cmd_set_node *out,
                       struct error *e)
{
    UNUSED(arena);
    if (!m->set_draining && !m->clear_blacklist) {
        return error_set(e, ERR_INVALID, "set_draining, clear_blacklist: one of them must be set");
    }
    *out = (struct cmd_set_node){
        .worker_id = m->worker_id,
        .set_draining = m->set_draining,
        .draining = m->draining,
        .clear_blacklist = m->clear_blacklist,
    };
    return ERR_OK;
}

/* The value of a filter: JSON if it is a text, a number or a boolean in JSON, else as it stands. */
static enum err filter_value(const char *value, struct arena *arena, struct capability *out, struct error *e)
{
    struct json *root = NULL;
    enum err err = json_parse(value, strlen(value), &root, NULL);
    enum json_kind kind = err == ERR_OK ? json_kind_of(root) : JSON_NULL;
    if (kind == JSON_TEXT || kind == JSON_NUMBER || kind == JSON_BOOL) {
        err = capability_value(root, arena, out, NULL);
        json_free(root);
        return err == ERR_OK ? err : error_set(e, err, "capability: this is no value that a node can have");
    }
    json_free(root);
    out->kind = VALUE_TEXT;
    out->text = value;
    return ERR_OK;
}

enum err wire_node_filter(const struct pb_list_nodes_request *m, struct arena *arena, struct node_filter *out,
                          struct error *e)
{
    struct node_filter filter = {.executor = or_null(m->executor), .op = or_null(m->operator_)};
    const char *equals = strchr(m->capability, '=');
    if (m->capability[0] != '\0') {
        if (equals == NULL || equals == m->capability) {
            enum err err = error_set(e, ERR_INVALID, "capability: must be KEY=VALUE");
            error_hint(e, "such as gpu=nvidia or cpu_cores=>=8");
            return err;
        }
        size_t n = (size_t)(equals - m->capability);
        struct capability *capability = arena_zalloc(arena, sizeof(*capability));
        char *key = arena_copy(arena, m->capability, n + 1);
        key[n] = '\0';
        capability->key = key;
        enum err err = filter_value(equals + 1, arena, capability, e);
        if (err != ERR_OK) {
            return err;
        }
        filter.capability = capability;
    }
    *out = filter;
    return ERR_OK;
}
