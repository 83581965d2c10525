#include "store/row_json.h"

#include <string.h>

#include "base/json.h"
#include "base/sha256.h"
#include "store/table.h"

/* ---- writing ---- */

static void write_key(struct buf *out, const char *key)
{
    buf_text(out, ",\"");
    buf_text(out, key);
    buf_text(out, "\":");
}

static void write_int(struct buf *out, const char *key, int64_t number)
{
    if (number != 0) {
        write_key(out, key);
        json_write_int(out, number);
    }
}

static void write_text(struct buf *out, const char *key, const char *text)
{
    if (text != NULL) {
        write_key(out, key);
        json_write_text(out, text);
    }
}

static void write_hex(struct buf *out, const char *key, const void *bytes, size_t n)
{
    char digits[2 * 256 + 1];
    const uint8_t *from = bytes;
    write_key(out, key);
    buf_char(out, '"');
    for (size_t at = 0; at < n; at += 256) {
        size_t some = n - at < 256 ? n - at : 256;
        hex_encode(from + at, some, digits);
        buf_append(out, digits, 2 * some);
    }
    buf_char(out, '"');
}

static void write_token(struct buf *out, const char *key, const void *token)
{
    uint8_t digest[SHA256_BYTES];
    sha256_once(token, sizeof(struct lease_token), digest);
    write_hex(out, key, digest, sizeof(struct lease_token));
}

static void write_value(struct buf *out, const struct column *column, const struct value *value)
{
    switch (value->type) {
    case VALUE_IS_NULL:
        break;
    case VALUE_IS_INT:
        write_int(out, column->name, value->number);
        break;
    case VALUE_IS_TEXT:
        write_text(out, column->name, value->bytes);
        break;
    case VALUE_IS_BYTES:
        if (column->kind == COLUMN_TOKEN) {
            write_token(out, column->name, value->bytes);
        } else {
            write_hex(out, column->name, value->bytes, value->n);
        }
        break;
    }
}

static void write_kept(const struct table *table, const struct row *row, struct buf *out, struct arena *arena)
{
    bool is_new = table_row_is_new(table, row);
    buf_format(out, "{\"change\":\"%s\"", table->name);
    if (table->new_offset >= 0) {
        write_int(out, "new", is_new);
    }
    for (uint32_t i = 0; i < table->n_columns; i++) {
        const struct column *column = &table->columns[i];
        if (column_is_read(column) && (is_new || column->role != ROLE_FIXED)) {
            struct value value = table_get(row, column, arena);
            write_value(out, column, &value);
        }
    }
    buf_char(out, '}');
}

static void write_gone(struct buf *out, const char *kind, struct task_ref ref)
{
    buf_format(out, "{\"change\":\"%s\"", kind);
    write_text(out, "job_id", ref.job_id);
    write_int(out, "stage", ref.stage);
    write_int(out, "task", ref.task);
}

/* Rows that change or remove others. */
static void write_special(const struct row *row, struct buf *out)
{
    const struct row_job_sweep *sweep = (const struct row_job_sweep *)(const void *)row;
    const struct row_lease_gone *lease = (const struct row_lease_gone *)(const void *)row;
    const struct row_output_gone *output = (const struct row_output_gone *)(const void *)row;
    const struct row_node_gone *node = (const struct row_node_gone *)(const void *)row;
    if (row->kind == ROW_JOB_SWEEP) {
        buf_text(out, "{\"change\":\"job_sweep\"");
        write_text(out, "job_id", sweep->job_id);
        write_int(out, "at_ms", sweep->at_ms);
    } else if (row->kind == ROW_LEASE_GONE) {
        write_gone(out, "lease_gone", lease->ref);
        write_token(out, "lease_token", &lease->token);
    } else if (row->kind == ROW_NODE_GONE) {
        buf_text(out, "{\"change\":\"node_gone\"");
        write_text(out, "node_id", node->worker_id);
    } else {
        ASSERT(row->kind == ROW_MAP_OUTPUT_GONE || row->kind == ROW_RESULT_GONE);
        write_gone(out, row->kind == ROW_RESULT_GONE ? "result_gone" : "map_output_gone", output->ref);
        write_int(out, "attempt_id", output->attempt);
    }
    buf_char(out, '}');
}

bool row_json_write(const struct row *row, struct buf *out, struct arena *arena)
{
    const struct table *table = table_of(row->kind);
    if (row->kind == ROW_ATTEMPT || row->kind == ROW_META) {
        return false;
    }
    if (table != NULL) {
        write_kept(table, row, out, arena);
    } else {
        write_special(row, out);
    }
    return true;
}

void row_json_write_payload(const struct payload *payload, struct buf *out)
{
    buf_text(out, "{\"change\":\"payload\"");
    write_text(out, "job_id", payload->job_id);
    write_hex(out, "digest", &payload->digest, sizeof payload->digest);
    write_hex(out, "bytes", payload->bytes, payload->n_bytes);
    buf_char(out, '}');
}

void row_json_write_data_set(const struct data_set *set, struct buf *out)
{
    buf_text(out, "{\"change\":\"data_set\"");
    write_text(out, "name", set->name);
    write_text(out, "source", set->source);
    write_text(out, "format", set->format);
    buf_char(out, '}');
}

/* ---- reading ---- */

static enum err bad(const char *kind, const char *member, struct error *e)
{
    return error_set(e, ERR_INVALID, "a change of kind '%s' has no good '%s'", kind, member);
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bytes in the arena; NULL if the text is none of hexadecimal digits. */
static const void *read_hex(const struct json *node, struct arena *arena, size_t *out_n)
{
    size_t n = 0;
    const char *text = json_text(node, &n);
    if (text == NULL || n % 2 != 0) {
        return NULL;
    }
    uint8_t *bytes = arena_alloc(arena, n / 2 + 1);
    for (size_t i = 0; i < n; i += 2) {
        int high = digit_of(text[i]);
        int low = digit_of(text[i + 1]);
        if (high < 0 || low < 0) {
            return NULL;
        }
        bytes[i / 2] = (uint8_t)(high * 16 + low);
    }
    bytes[n / 2] = 0;
    *out_n = n / 2;
    return bytes;
}

static bool read_digits(const struct json *node, void *out, size_t n, struct arena *arena)
{
    size_t length = 0;
    const void *bytes = read_hex(node, arena, &length);
    if (bytes == NULL || length != n) {
        return false;
    }
    memcpy(out, bytes, n);
    return true;
}

static bool read_value(const struct column *column, const struct json *node, struct arena *arena, struct value *out)
{
    out->type = column_type(column);
    if (out->type == VALUE_IS_INT) {
        return json_int(node, &out->number);
    }
    out->bytes = out->type == VALUE_IS_TEXT ? (const void *)json_text(node, &out->n) : read_hex(node, arena, &out->n);
    return out->bytes != NULL && (out->type != VALUE_IS_TEXT || strlen(out->bytes) == out->n);
}

/* Values that are looked up in tables of this program must be known to it. */
static bool is_known_value(enum row_kind kind, const struct column *column, int64_t number)
{
    static const struct {
        enum row_kind kind;
        const char *column;
        int64_t most;
    } limits[] = {
        {ROW_JOB, "kind", JOB_KIND_TREE},          {ROW_JOB, "state", JOB_CANCELED},    {ROW_JOB, "priority", 3},
        {ROW_TASK, "state", TASK_SKIPPED},         {ROW_TASK, "outcome", OUTCOME_LOST}, {ROW_NODE, "status", NODE_DEAD},
        {ROW_EVENT, "event_type", EVENT_DRAINING},
    };
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        if (limits[i].kind == kind && strcmp(limits[i].column, column->name) == 0) {
            return number >= 0 && number <= limits[i].most;
        }
    }
    return true;
}

static enum err read_kept(const struct table *table, const struct json *node, struct arena *arena, struct change *out,
                          struct error *e)
{
    struct row *row = table_row(table, arena);
    int64_t is_new = 0;
    if (table->new_offset >= 0) {
        *(bool *)((char *)row + table->new_offset) = json_int(json_get(node, "new"), &is_new) && is_new == 1;
    }
    for (uint32_t i = 0; i < table->n_columns; i++) {
        const struct column *column = &table->columns[i];
        const struct json *member = json_get(node, column->name);
        struct value value = {.type = VALUE_IS_NULL};
        if (!column_is_read(column) || (column->role == ROLE_FIXED && !table_row_is_new(table, row))) {
            continue;
        }
        if (member != NULL &&
            (!read_value(column, member, arena, &value) || !is_known_value(table->kind, column, value.number))) {
            return bad(table->name, column->name, e);
        }
        if (table_set(row, column, value, arena, e) != ERR_OK) {
            return bad(table->name, column->name, e);
        }
    }
    *out = (struct change){.kind = CHANGE_ROW, .row = row};
    return ERR_OK;
}

static const char *read_text(const struct json *node, const char *member, struct arena *arena)
{
    return arena_strdup(arena, json_text(json_get(node, member), NULL));
}

static uint32_t read_number(const struct json *node, const char *member)
{
    int64_t number = 0;
    bool is_good = json_int(json_get(node, member), &number) && number >= 0 && number <= UINT32_MAX;
    return is_good ? (uint32_t)number : 0;
}

static struct task_ref read_ref(const struct json *node, struct arena *arena)
{
    return (struct task_ref){.job_id = read_text(node, "job_id", arena),
                             .stage = read_number(node, "stage"),
                             .task = read_number(node, "task")};
}

static enum err read_sweep(const struct json *node, struct arena *arena, struct change *out, struct error *e)
{
    struct row_job_sweep *sweep = arena_zalloc(arena, sizeof *sweep);
    sweep->row.kind = ROW_JOB_SWEEP;
    sweep->job_id = read_text(node, "job_id", arena);
    if (!json_int(json_get(node, "at_ms"), &sweep->at_ms)) {
        sweep->at_ms = 0;
    }
    *out = (struct change){.kind = CHANGE_ROW, .row = &sweep->row};
    return sweep->job_id == NULL ? bad("job_sweep", "job_id", e) : ERR_OK;
}

static enum err read_lease_gone(const struct json *node, struct arena *arena, struct change *out, struct error *e)
{
    struct row_lease_gone *gone = arena_zalloc(arena, sizeof *gone);
    gone->row.kind = ROW_LEASE_GONE;
    gone->ref = read_ref(node, arena);
    *out = (struct change){.kind = CHANGE_ROW, .row = &gone->row};
    if (!read_digits(json_get(node, "lease_token"), &gone->token, sizeof gone->token, arena)) {
        return bad("lease_gone", "lease_token", e);
    }
    return gone->ref.job_id == NULL ? bad("lease_gone", "job_id", e) : ERR_OK;
}

static enum err read_output_gone(const struct json *node, enum row_kind kind, struct arena *arena, struct change *out,
                                 struct error *e)
{
    struct row_output_gone *gone = arena_zalloc(arena, sizeof *gone);
    gone->row.kind = kind;
    gone->ref = read_ref(node, arena);
    gone->attempt = read_number(node, "attempt_id");
    *out = (struct change){.kind = CHANGE_ROW, .row = &gone->row};
    return gone->ref.job_id == NULL ? bad("output_gone", "job_id", e) : ERR_OK;
}

static enum err read_node_gone(const struct json *node, struct arena *arena, struct change *out, struct error *e)
{
    struct row_node_gone *gone = arena_zalloc(arena, sizeof *gone);
    gone->row.kind = ROW_NODE_GONE;
    gone->worker_id = read_text(node, "node_id", arena);
    *out = (struct change){.kind = CHANGE_ROW, .row = &gone->row};
    return gone->worker_id == NULL ? bad("node_gone", "node_id", e) : ERR_OK;
}

static enum err read_payload(const struct json *node, struct arena *arena, struct change *out, struct error *e)
{
    *out = (struct change){.kind = CHANGE_PAYLOAD};
    struct payload *payload = &out->payload;
    payload->job_id = read_text(node, "job_id", arena);
    payload->bytes = read_hex(json_get(node, "bytes"), arena, &payload->n_bytes);
    if (!read_digits(json_get(node, "digest"), &payload->digest, sizeof payload->digest, arena)) {
        return bad("payload", "digest", e);
    }
    return payload->job_id == NULL  ? bad("payload", "job_id", e)
           : payload->bytes == NULL ? bad("payload", "bytes", e)
                                    : ERR_OK;
}

static enum err read_data_set(const struct json *node, struct arena *arena, struct change *out, struct error *e)
{
    *out = (struct change){.kind = CHANGE_DATA_SET,
                           .data_set = {.name = read_text(node, "name", arena),
                                        .source = read_text(node, "source", arena),
                                        .format = read_text(node, "format", arena)}};
    bool is_whole = out->data_set.source == NULL || out->data_set.format != NULL;
    return out->data_set.name == NULL || !is_whole ? bad("data_set", "name", e) : ERR_OK;
}

enum err row_json_read(const struct json *node, struct arena *arena, struct change *out, struct error *e)
{
    const char *kind = json_text(json_get(node, "change"), NULL);
    if (kind == NULL) {
        return error_set(e, ERR_INVALID, "a change without a kind");
    }
    for (int i = 0; i < ROW_META; i++) {
        const struct table *table = table_of((enum row_kind)i);
        if (table != NULL && strcmp(table->name, kind) == 0) {
            return read_kept(table, node, arena, out, e);
        }
    }
    if (strcmp(kind, "job_sweep") == 0) {
        return read_sweep(node, arena, out, e);
    }
    if (strcmp(kind, "lease_gone") == 0) {
        return read_lease_gone(node, arena, out, e);
    }
    if (strcmp(kind, "map_output_gone") == 0 || strcmp(kind, "result_gone") == 0) {
        return read_output_gone(node, kind[0] == 'r' ? ROW_RESULT_GONE : ROW_MAP_OUTPUT_GONE, arena, out, e);
    }
    if (strcmp(kind, "node_gone") == 0) {
        return read_node_gone(node, arena, out, e);
    }
    if (strcmp(kind, "payload") == 0) {
        return read_payload(node, arena, out, e);
    }
    if (strcmp(kind, "data_set") == 0) {
        return read_data_set(node, arena, out, e);
    }
    *out = (struct change){.kind = CHANGE_UNKNOWN};
    return ERR_OK;
}
