/*
 * A batch: one transaction, the fence first, then rows in their order. This is the path that decides how many tasks per
 * second the store can take, so values are bound where they lie and nothing is built per row.
 */
#include <string.h>

#include "base/utf8.h"
#include "store/sqlite_internal.h"

/* SQLite would take any bytes as a text. The other stores do not, and what one takes, all take. */
static enum err not_utf8(const char *what, struct error *e)
{
    return error_set(e, ERR_INVALID, "%s is not UTF-8", what);
}

static void bind_value(sqlite3_stmt *stmt, int at, struct value value)
{
    switch (value.type) {
    case VALUE_IS_NULL:
        sqlite3_bind_null(stmt, at);
        break;
    case VALUE_IS_INT:
        sqlite3_bind_int64(stmt, at, value.number);
        break;
    case VALUE_IS_TEXT:
        sqlite3_bind_text64(stmt, at, value.bytes, value.n, SQLITE_STATIC, SQLITE_UTF8);
        break;
    case VALUE_IS_BYTES:
        sqlite3_bind_blob64(stmt, at, value.bytes, value.n, SQLITE_STATIC);
        break;
    }
}

/* A row of a table: all of it if it is new, else what changes. */
static enum err put_row(struct sqlite *s, const struct table *table, const struct row *row, struct error *e)
{
    sqlite3_stmt *stmt;
    bool is_new = table_row_is_new(table, row);
    enum err err = sqlite__row_statement(s, row->kind, is_new, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    for (uint32_t i = 0; i < table->n_columns; i++) {
        const struct column *column = &table->columns[i];
        if (is_new || column->role != ROLE_FIXED) {
            struct value value = table_get(row, column, &s->arena);
            if (value.type == VALUE_IS_TEXT && !utf8_is_valid(value.bytes, value.n)) {
                return not_utf8(column->name, e);
            }
            bind_value(stmt, (int)i + 1, value);
        }
    }
    err = sqlite__run(s, stmt, e);
    if (err == ERR_OK && is_new && row->kind == ROW_JOB && sqlite3_changes(s->db) == 0) {
        /* An old job of this id is being removed. What is left of it goes now, so that its id is free. */
        err = sqlite__remove_job(s, ((const struct row_job *)(const void *)row)->job_id, e);
        err = err == ERR_OK ? sqlite__run(s, stmt, e) : err; /* what was bound is still bound */
    }
    arena_reset(&s->arena);
    return err;
}

static enum err sweep(struct sqlite *s, const struct row *row, struct error *e)
{
    static const enum sqlite_statement steps[] = {SQL_SWEEP_TASKS, SQL_SWEEP_LEASES, SQL_SWEEP_MAP_OUTPUTS,
                                                  SQL_SWEEP_ATTEMPTS};
    const struct row_job_sweep *job = (const struct row_job_sweep *)(const void *)row;
    enum err err = ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(steps) && err == ERR_OK; i++) {
        sqlite3_stmt *stmt;
        err = sqlite__statement(s, steps[i], &stmt, e);
        if (err == ERR_OK) {
            sqlite__bind_text(stmt, 1, job->job_id);
            if (sqlite3_bind_parameter_count(stmt) > 1) {
                sqlite3_bind_int64(stmt, 2, job->at_ms);
            }
            err = sqlite__run(s, stmt, e);
        }
    }
    return err;
}

static void bind_ref(sqlite3_stmt *stmt, const struct task_ref *ref)
{
    sqlite__bind_text(stmt, 1, ref->job_id);
    sqlite3_bind_int64(stmt, 2, ref->stage);
    sqlite3_bind_int64(stmt, 3, ref->task);
}

static enum err drop_lease(struct sqlite *s, const struct row *row, struct error *e)
{
    const struct row_lease_gone *gone = (const struct row_lease_gone *)(const void *)row;
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, SQL_LEASE_GONE, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    bind_ref(stmt, &gone->ref);
    sqlite__bind_token(stmt, 4, &gone->token);
    return sqlite__run(s, stmt, e);
}

static enum err drop_output(struct sqlite *s, const struct row *row, struct error *e)
{
    const struct row_output_gone *gone = (const struct row_output_gone *)(const void *)row;
    enum sqlite_statement which = row->kind == ROW_RESULT_GONE ? SQL_RESULT_GONE : SQL_MAP_OUTPUT_GONE;
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, which, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    bind_ref(stmt, &gone->ref);
    sqlite3_bind_int64(stmt, 4, gone->attempt);
    return sqlite__run(s, stmt, e);
}

static enum err drop_node(struct sqlite *s, const struct row *row, struct error *e)
{
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, SQL_NODE_GONE, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite__bind_text(stmt, 1, ((const struct row_node_gone *)(const void *)row)->worker_id);
    return sqlite__run(s, stmt, e);
}

typedef enum err apply_fn(struct sqlite *s, const struct row *row, struct error *e);

/* Kinds of rows that have no table of their own. */
static apply_fn *const others[ROW_META] = {
    [ROW_JOB_SWEEP] = sweep,         [ROW_LEASE_GONE] = drop_lease, [ROW_MAP_OUTPUT_GONE] = drop_output,
    [ROW_RESULT_GONE] = drop_output, [ROW_NODE_GONE] = drop_node,
};

static enum err put_rows(struct sqlite *s, const struct batch *batch, struct error *e)
{
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->next) {
            ASSERT(row->kind < ROW_META);
            const struct table *table = s->tables[row->kind];
            enum err err = table != NULL ? put_row(s, table, row, e) : others[row->kind](s, row, e);
            if (err != ERR_OK) {
                return err;
            }
        }
    }
    return ERR_OK;
}

static bool is_text(const char *text)
{
    return text == NULL || utf8_is_valid(text, strlen(text));
}

static enum err put_payload(struct sqlite *s, const struct payload *payload, struct error *e)
{
    sqlite3_stmt *stmt;
    if (!is_text(payload->job_id)) {
        return not_utf8("the job of a payload", e);
    }
    enum err err = sqlite__statement(s, SQL_PAYLOAD_PUT, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite__bind_text(stmt, 1, payload->job_id);
    sqlite__bind_bytes(stmt, 2, payload->digest.bytes, sizeof payload->digest.bytes);
    sqlite__bind_bytes(stmt, 3, payload->bytes, payload->n_bytes);
    return sqlite__run(s, stmt, e);
}

static enum err put_data_set(struct sqlite *s, const struct data_set *set, struct error *e)
{
    sqlite3_stmt *stmt;
    if (!is_text(set->name) || !is_text(set->source) || !is_text(set->format)) {
        return not_utf8("a text of a data set", e);
    }
    enum err err = sqlite__statement(s, set->source == NULL ? SQL_DATA_SET_GONE : SQL_DATA_SET_PUT, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite__bind_text(stmt, 1, set->name);
    if (set->source != NULL) {
        sqlite__bind_text(stmt, 2, set->source);
        sqlite__bind_text(stmt, 3, set->format);
    }
    return sqlite__run(s, stmt, e);
}

static enum err end_inbox_entry(struct sqlite *s, uint64_t id, struct error *e)
{
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, SQL_INBOX_DONE, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_bind_int64(stmt, 1, (int64_t)id);
    return sqlite__run(s, stmt, e);
}

static enum err put_batch(struct sqlite *s, const struct batch *batch, struct error *e)
{
    enum err err = put_rows(s, batch, e);
    for (uint32_t i = 0; i < batch->n_payloads && err == ERR_OK; i++) {
        err = put_payload(s, &batch->payloads[i], e);
    }
    for (uint32_t i = 0; i < batch->n_data_sets && err == ERR_OK; i++) {
        err = put_data_set(s, &batch->data_sets[i], e);
    }
    for (uint32_t i = 0; i < batch->n_inbox_done && err == ERR_OK; i++) {
        err = end_inbox_entry(s, batch->inbox_done[i], e);
    }
    return err;
}

enum err sqlite__commit_batch(struct store *store, const struct fence *fence, const struct batch *batch,
                              struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    enum err err = sqlite__begin_fenced(s, fence, e);
    if (err == ERR_OK) {
        err = sqlite__finish(s, put_batch(s, batch, e), e);
    }
    arena_reset(&s->arena);
    /* A damaged file is one more reason for which nothing is certain. */
    if (err == ERR_DATA_LOSS && e != NULL) {
        e->code = ERR_UNAVAILABLE;
    }
    return err == ERR_DATA_LOSS ? ERR_UNAVAILABLE : err;
}
