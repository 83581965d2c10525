/*
 * The tables, column by column. The names are those of migrations/; the order is the order of parameters everywhere.
 */
#include "store/table.h"

#include <string.h>

#include "store/codec.h"

#define COLUMN(type, role, name, kind, field)                                                                          \
    {                                                                                                                  \
        name, COLUMN_##kind, ROLE_##role, offsetof(struct type, field)                                                 \
    }

static const struct column job_columns[] = {
    COLUMN(row_job, KEY, "job_id", TEXT, job_id),
    COLUMN(row_job, FIXED, "kind", U32, kind),
    COLUMN(row_job, FIXED, "name", TEXT, name),
    COLUMN(row_job, FIXED, "priority", U8, priority),
    COLUMN(row_job, FIXED, "stop_on_failure", U8, stop_on_failure),
    COLUMN(row_job, FIXED, "idempotency_key", TEXT, idempotency_key),
    COLUMN(row_job, FIXED, "content", DIGEST, content),
    COLUMN(row_job, FIXED, "parent_job_id", TEXT, parent.task.job_id),
    COLUMN(row_job, FIXED, "parent_stage", U32, parent.task.stage),
    COLUMN(row_job, FIXED, "parent_task", U32, parent.task.task),
    COLUMN(row_job, FIXED, "parent_attempt", U32, parent.attempt),
    COLUMN(row_job, FIXED, "submitted_at_ms", I64, submitted_at_ms),
    COLUMN(row_job, CHANGES, "state", U32, state),
    COLUMN(row_job, CHANGES, "started_at_ms", I64, started_at_ms),
    COLUMN(row_job, CHANGES, "finished_at_ms", I64, finished_at_ms),
    COLUMN(row_job, CHANGES, "n_stages", U32, n_stages),
    COLUMN(row_job, CHANGES, "inline_bytes", I64, inline_bytes),
    COLUMN(row_job, CHANGES, "message", TEXT, message),
};

static const struct column stage_columns[] = {
    COLUMN(row_stage, KEY, "job_id", TEXT, job_id),
    COLUMN(row_stage, KEY, "stage", U32, stage),
    COLUMN(row_stage, FIXED, "name", NAME, spec),
    COLUMN(row_stage, FIXED, "spec", SPEC, spec),
    COLUMN(row_stage, CHANGES, "recovered", MARKS, recovered),
};

static const struct column task_columns[] = {
    COLUMN(row_task, KEY, "job_id", TEXT, ref.job_id),
    COLUMN(row_task, KEY, "stage", U32, ref.stage),
    COLUMN(row_task, KEY, "task", U32, ref.task),
    COLUMN(row_task, FIXED, "inputs", DIGEST, inputs),
    COLUMN(row_task, FIXED, "inputs_bytes", U32, inputs_bytes),
    COLUMN(row_task, FIXED, "placement_constraints", NEED, placement),
    COLUMN(row_task, CHANGES, "state", U32, state),
    COLUMN(row_task, CHANGES, "outcome", U32, outcome),
    COLUMN(row_task, CHANGES, "attempt_id", U32, attempt),
    COLUMN(row_task, CHANGES, "failures", U32, failures),
    COLUMN(row_task, CHANGES, "lease_id", TOKEN, token),
    COLUMN(row_task, CHANGES, "lease_expires_at_ms", I64, lease_expires_at_ms),
    COLUMN(row_task, CHANGES, "idempotency_key", DIGEST, idempotency_key),
    COLUMN(row_task, CHANGES, "last_assigned_node", TEXT, worker_id),
    COLUMN(row_task, CHANGES, "failed_on", STRINGS, failed_on),
    COLUMN(row_task, CHANGES, "ready_at_ms", I64, ready_at_ms),
    COLUMN(row_task, CHANGES, "queued_at_ms", I64, queued_at_ms),
    COLUMN(row_task, CHANGES, "started_at_ms", I64, started_at_ms),
    COLUMN(row_task, CHANGES, "finished_at_ms", I64, finished_at_ms),
    COLUMN(row_task, CHANGES, "result", DIGEST, result),
    COLUMN(row_task, CHANGES, "result_bytes", U32, result_bytes),
    COLUMN(row_task, CHANGES, "n_rows", I64, rows),
    COLUMN(row_task, CHANGES, "n_bytes", I64, bytes),
    COLUMN(row_task, CHANGES, "message", TEXT, message),
};

static const struct column lease_columns[] = {
    COLUMN(row_lease, KEY, "job_id", TEXT, ref.job_id),
    COLUMN(row_lease, KEY, "stage", U32, ref.stage),
    COLUMN(row_lease, KEY, "task", U32, ref.task),
    COLUMN(row_lease, CHANGES, "attempt_id", U32, attempt),
    COLUMN(row_lease, CHANGES, "lease_token", TOKEN, token),
    COLUMN(row_lease, CHANGES, "node_id", TEXT, worker_id),
    COLUMN(row_lease, CHANGES, "acquired_at_ms", I64, acquired_at_ms),
    COLUMN(row_lease, CHANGES, "expires_at_ms", I64, expires_at_ms),
};

static const struct column map_output_columns[] = {
    COLUMN(row_map_output, KEY, "job_id", TEXT, ref.job_id),
    COLUMN(row_map_output, KEY, "stage", U32, ref.stage),
    COLUMN(row_map_output, KEY, "task", U32, ref.task),
    COLUMN(row_map_output, KEY, "attempt_id", U32, attempt),
    COLUMN(row_map_output, CHANGES, "generation", U32, generation),
    COLUMN(row_map_output, CHANGES, "node_id", TEXT, worker_id),
    COLUMN(row_map_output, CHANGES, "incarnation", TEXT, incarnation),
    COLUMN(row_map_output, CHANGES, "address", TEXT, address),
    COLUMN(row_map_output, CHANGES, "partitions", PARTITIONS, partitions),
};

static const struct column result_columns[] = {
    COLUMN(row_result, KEY, "job_id", TEXT, ref.job_id),     COLUMN(row_result, KEY, "stage", U32, ref.stage),
    COLUMN(row_result, KEY, "task", U32, ref.task),          COLUMN(row_result, KEY, "attempt_id", U32, attempt),
    COLUMN(row_result, CHANGES, "node_id", TEXT, worker_id), COLUMN(row_result, CHANGES, "n_rows", I64, rows),
    COLUMN(row_result, CHANGES, "n_bytes", I64, bytes),      COLUMN(row_result, CHANGES, "is_inline", U8, is_inline),
};

static const struct column node_columns[] = {
    COLUMN(row_node, KEY, "node_id", TEXT, worker_id),
    COLUMN(row_node, CHANGES, "incarnation", TEXT, incarnation),
    COLUMN(row_node, CHANGES, "past_incarnations", PAST, past_incarnations),
    COLUMN(row_node, CHANGES, "address", TEXT, address),
    COLUMN(row_node, CHANGES, "version", TEXT, version),
    COLUMN(row_node, CHANGES, "slots", U32, slots),
    COLUMN(row_node, CHANGES, "capabilities", OFFER, offer),
    COLUMN(row_node, CHANGES, "status", U32, status),
    COLUMN(row_node, CHANGES, "is_live", U8, is_live),
    COLUMN(row_node, CHANGES, "draining", U8, draining),
    COLUMN(row_node, CHANGES, "failures", U32, failures),
    COLUMN(row_node, CHANGES, "blacklisted_until_ms", I64, blacklisted_until_ms),
    COLUMN(row_node, CHANGES, "registered_at_ms", I64, registered_at_ms),
    COLUMN(row_node, CHANGES, "heartbeat_at_ms", I64, heartbeat_at_ms),
};

/* The key of an attempt is known when it is new; later rows say how it ended. */
static const struct column attempt_columns[] = {
    COLUMN(row_attempt, KEY, "job_id", TEXT, ref.job_id),
    COLUMN(row_attempt, KEY, "stage", U32, ref.stage),
    COLUMN(row_attempt, KEY, "task", U32, ref.task),
    COLUMN(row_attempt, KEY, "attempt_id", U32, attempt),
    COLUMN(row_attempt, FIXED, "idempotency_key", DIGEST, idempotency_key),
    COLUMN(row_attempt, FIXED, "node_id", TEXT, worker_id),
    COLUMN(row_attempt, FIXED, "created_at_ms", I64, at_ms),
    COLUMN(row_attempt, CHANGES, "status", U32, outcome),
    COLUMN(row_attempt, CHANGES, "changed_at_ms", I64, at_ms),
};

static const struct column event_columns[] = {
    COLUMN(row_event, KEY, "seq", I64, seq),
    COLUMN(row_event, FIXED, "at_ms", I64, at_ms),
    COLUMN(row_event, FIXED, "event_type", U32, type),
    COLUMN(row_event, FIXED, "job_id", TEXT, ref.job_id),
    COLUMN(row_event, FIXED, "stage", U32, ref.stage),
    COLUMN(row_event, FIXED, "task", U32, ref.task),
    COLUMN(row_event, FIXED, "attempt_id", U32, attempt),
    COLUMN(row_event, FIXED, "node_id", TEXT, worker_id),
    COLUMN(row_event, FIXED, "details", TEXT, message),
};

#define TABLE(name, kind, type, columns, new_offset)                                                                   \
    {                                                                                                                  \
        name, ROW_##kind, sizeof(struct type), new_offset, columns, ARRAY_LEN(columns)                                 \
    }

static const struct table tables[] = {
    TABLE("jobs", JOB, row_job, job_columns, offsetof(struct row_job, is_new)),
    TABLE("stages", STAGE, row_stage, stage_columns, offsetof(struct row_stage, is_new)),
    TABLE("tasks", TASK, row_task, task_columns, offsetof(struct row_task, is_new)),
    TABLE("task_leases", LEASE, row_lease, lease_columns, -1),
    TABLE("map_outputs", MAP_OUTPUT, row_map_output, map_output_columns, -1),
    TABLE("results", RESULT, row_result, result_columns, -1),
    TABLE("distributed_nodes", NODE, row_node, node_columns, -1),
    TABLE("execution_idempotency", ATTEMPT, row_attempt, attempt_columns, -1),
    TABLE("task_events", EVENT, row_event, event_columns, -1),
};

const struct table *table_of(enum row_kind kind)
{
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        if (tables[i].kind == kind) {
            return &tables[i];
        }
    }
    return NULL;
}

enum value_type column_type(const struct column *column)
{
    switch (column->kind) {
    case COLUMN_U8:
    case COLUMN_U32:
    case COLUMN_I64:
        return VALUE_IS_INT;
    case COLUMN_TEXT:
    case COLUMN_STRINGS:
    case COLUMN_OFFER:
    case COLUMN_SPEC:
    case COLUMN_NEED:
    case COLUMN_NAME:
    case COLUMN_PAST:
        return VALUE_IS_TEXT;
    case COLUMN_DIGEST:
    case COLUMN_TOKEN:
    case COLUMN_MARKS:
    case COLUMN_PARTITIONS:
        return VALUE_IS_BYTES;
    }
    return VALUE_IS_NULL;
}

bool column_is_read(const struct column *column)
{
    return column->kind != COLUMN_NEED && column->kind != COLUMN_NAME;
}

/* An attempt is new while it is pending: that row carries its key. */
bool table_row_is_new(const struct table *table, const struct row *row)
{
    if (table->kind == ROW_ATTEMPT) {
        return ((const struct row_attempt *)(const void *)row)->outcome == OUTCOME_PENDING;
    }
    return table->new_offset < 0 || *(const bool *)((const char *)row + table->new_offset);
}

struct row *table_row(const struct table *table, struct arena *arena)
{
    struct row *row = arena_zalloc(arena, table->row_bytes);
    row->kind = table->kind;
    if (table->new_offset >= 0) {
        *(bool *)((char *)row + table->new_offset) = true; /* all fields are there */
    }
    return row;
}

/* ---- fields to values ---- */

static struct value of_int(int64_t number)
{
    return (struct value){.type = VALUE_IS_INT, .number = number};
}

static struct value of_text(const char *text)
{
    if (text == NULL) {
        return (struct value){.type = VALUE_IS_NULL};
    }
    return (struct value){.type = VALUE_IS_TEXT, .bytes = text, .n = strlen(text)};
}

static struct value of_bytes(const void *bytes, size_t n)
{
    return (struct value){.type = n == 0 ? VALUE_IS_NULL : VALUE_IS_BYTES, .bytes = bytes, .n = n};
}

static const char *name_of(const struct stage_spec *spec)
{
    return spec == NULL ? NULL : spec->name;
}

/* A pointer and, right behind it, a count. */
struct counted {
    const void *items;
    uint32_t n;
};

struct value table_get(const struct row *row, const struct column *column, struct arena *arena)
{
    static const uint8_t zero[32];
    const char *field = (const char *)row + column->offset;
    const struct counted *counted = (const struct counted *)(const void *)field;
    switch (column->kind) {
    case COLUMN_TEXT:
        return of_text(*(const char *const *)(const void *)field);
    case COLUMN_U8:
        return of_int(*(const uint8_t *)field);
    case COLUMN_U32:
        return of_int(*(const uint32_t *)(const void *)field);
    case COLUMN_I64:
        return of_int(*(const int64_t *)(const void *)field);
    case COLUMN_DIGEST:
        return of_bytes(field, memcmp(field, zero, 32) == 0 ? 0 : 32);
    case COLUMN_TOKEN:
        return of_bytes(field, memcmp(field, zero, 16) == 0 ? 0 : 16);
    case COLUMN_MARKS:
        return of_bytes(counted->items, counted->n * sizeof(uint64_t));
    case COLUMN_PARTITIONS:
        return of_bytes(counted->items, counted->n * sizeof(struct partition));
    case COLUMN_STRINGS:
        return of_text(codec_strings(*(const struct string_list *)(const void *)field, arena));
    case COLUMN_OFFER:
        return of_text(codec_offer(*(const struct offer *const *)(const void *)field, arena));
    case COLUMN_SPEC:
        return of_text(codec_spec(*(const struct stage_spec *const *)(const void *)field, arena));
    case COLUMN_NEED:
        return of_text(codec_placement(*(const struct requirement *const *)(const void *)field, arena));
    case COLUMN_NAME:
        return of_text(name_of(*(const struct stage_spec *const *)(const void *)field));
    case COLUMN_PAST:
        return of_text(codec_strings(codec_past_list((const char *const *)(const void *)field), arena));
    }
    return (struct value){.type = VALUE_IS_NULL};
}

/* ---- values to fields ---- */

static enum err damaged(const struct column *column, struct error *e)
{
    return error_set(e, ERR_DATA_LOSS, "column %s holds something that was never written to it", column->name);
}

static enum err set_number(char *field, const struct column *column, struct value value, struct error *e)
{
    int64_t number = value.type == VALUE_IS_NULL ? 0 : value.number;
    if (column->kind == COLUMN_I64) {
        memcpy(field, &number, sizeof number);
        return ERR_OK;
    }
    if (number < 0 || number > (column->kind == COLUMN_U8 ? UINT8_MAX : UINT32_MAX)) {
        return damaged(column, e);
    }
    if (column->kind == COLUMN_U8) {
        *(uint8_t *)field = (uint8_t)number;
    } else {
        *(uint32_t *)(void *)field = (uint32_t)number;
    }
    return ERR_OK;
}

static enum err set_bytes(char *field, const struct column *column, struct value value, struct arena *arena,
                          struct error *e)
{
    struct counted counted = {NULL, 0};
    size_t fixed = column->kind == COLUMN_DIGEST ? 32 : column->kind == COLUMN_TOKEN ? 16 : 0;
    size_t item = column->kind == COLUMN_MARKS ? sizeof(uint64_t) : sizeof(struct partition);
    if (value.type == VALUE_IS_NULL) {
        return ERR_OK; /* the row is zeroed */
    }
    if (fixed > 0) {
        if (value.n != fixed) {
            return damaged(column, e);
        }
        memcpy(field, value.bytes, fixed);
        return ERR_OK;
    }
    if (value.n % item != 0) {
        return damaged(column, e);
    }
    counted.items = arena_copy(arena, value.bytes, value.n);
    counted.n = (uint32_t)(value.n / item);
    memcpy(field, &counted.items, sizeof counted.items);
    memcpy(field + sizeof counted.items, &counted.n, sizeof counted.n);
    return ERR_OK;
}

static const char *text_of(struct value value, struct arena *arena)
{
    if (value.type == VALUE_IS_NULL) {
        return NULL;
    }
    char *text = arena_alloc(arena, value.n + 1);
    memcpy(text, value.bytes, value.n);
    text[value.n] = '\0';
    return text;
}

static enum err set_text(char *field, const struct column *column, struct value value, struct arena *arena,
                         struct error *e)
{
    const char *text = text_of(value, arena);
    struct string_list *list = (struct string_list *)(void *)field;
    switch (column->kind) {
    case COLUMN_TEXT:
        *(const char **)(void *)field = text;
        return ERR_OK;
    case COLUMN_STRINGS:
        return codec_read_strings(text, arena, list, e);
    case COLUMN_OFFER:
        return codec_read_offer(text, arena, (const struct offer **)(void *)field, e);
    case COLUMN_SPEC:
        return codec_read_spec(text, arena, (const struct stage_spec **)(void *)field, e);
    case COLUMN_PAST:
        return codec_read_past(text, arena, (const char **)(void *)field, e);
    case COLUMN_NEED: /* for people; the stage has it all */
    case COLUMN_NAME: /* for lists; the spec has it */
    case COLUMN_U8:
    case COLUMN_U32:
    case COLUMN_I64:
    case COLUMN_DIGEST:
    case COLUMN_TOKEN:
    case COLUMN_MARKS:
    case COLUMN_PARTITIONS:
        break;
    }
    return ERR_OK;
}

enum err table_set(struct row *row, const struct column *column, struct value value, struct arena *arena,
                   struct error *e)
{
    char *field = (char *)row + column->offset;
    enum value_type type = column_type(column);
    if (value.type != VALUE_IS_NULL && value.type != type) {
        return damaged(column, e);
    }
    if (type == VALUE_IS_INT) {
        return set_number(field, column, value, e);
    }
    return type == VALUE_IS_BYTES ? set_bytes(field, column, value, arena, e)
                                  : set_text(field, column, value, arena, e);
}

enum err table_set_from(struct row *row, const struct column *column, struct value value, struct arena *arena,
                        struct spec_memo *memo, struct error *e)
{
    if (column->kind != COLUMN_SPEC || (value.type != VALUE_IS_TEXT && value.type != VALUE_IS_NULL)) {
        return table_set(row, column, value, arena, e);
    }
    const struct stage_spec **field = (const struct stage_spec **)(void *)((char *)row + column->offset);
    return codec_recall_spec(memo, value.type == VALUE_IS_NULL ? NULL : value.bytes, value.n, field, e);
}

enum err table_copy(const struct row *row, struct arena *arena, struct arena *scratch, struct row **out,
                    struct error *e)
{
    const struct table *table = table_of(row->kind);
    ASSERT(table != NULL);
    struct row *copy = table_row(table, arena);
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < table->n_columns && err == ERR_OK; i++) {
        const struct column *column = &table->columns[i];
        if (column_is_read(column)) {
            err = table_set(copy, column, table_get(row, column, scratch), arena, e);
        }
    }
    *out = copy;
    return err;
}
