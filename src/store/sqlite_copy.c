/*
 * What a copy is made from. The lock file keeps coordinators out, and one read transaction holds the picture still. Jobs
 * whose removal has begun stay behind.
 */
#include "store/sqlite_internal.h"

static enum err read_epoch(struct sqlite *s, uint64_t *out, struct error *e)
{
    sqlite3_stmt *stmt;
    bool is_row;
    enum err err = sqlite__statement(s, SQL_EPOCH, &stmt, e);
    if (err == ERR_OK) {
        err = sqlite__next(s, stmt, &is_row, e);
    }
    if (err == ERR_OK) {
        *out = is_row ? (uint64_t)sqlite3_column_int64(stmt, 0) : 0;
        sqlite3_reset(stmt);
    }
    return err;
}

static enum err begin(struct store *store, uint64_t *out_epoch, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    bool taken = false;
    enum err err = sqlite__need_schema(s, e);
    if (err == ERR_OK) {
        err = sqlite__lock(s, &taken, e);
    }
    if (err == ERR_OK && !taken) {
        return error_set(e, ERR_BUSY, "this store leads");
    }
    if (err != ERR_OK) {
        return err;
    }
    err = sqlite__begin_read(s, e);
    if (err == ERR_OK) {
        err = read_epoch(s, out_epoch, e);
    }
    if (err != ERR_OK) {
        sqlite__rollback(s);
        sqlite__unlock(s);
    }
    return err;
}

static void end(struct store *store)
{
    struct sqlite *s = sqlite__of(store);
    sqlite__rollback(s); /* it has written nothing */
    sqlite__unlock(s);
}

/* Prepares "SELECT <what> FROM table" without jobs whose removal has begun. */
static enum err prepare(struct sqlite *s, const struct copy_table *table, const char *what, sqlite3_stmt **out,
                        struct error *e)
{
    struct buf text = {0};
    buf_format(&text, "SELECT %s FROM %s", what, table->name);
    if (table->is_of_jobs) {
        buf_text(&text, " WHERE job_id NOT IN (SELECT job_id FROM jobs INDEXED BY jobs_ended "
                        "WHERE state >= 2 AND finished_at_ms = -9223372036854775808 AND kind < 0)");
    }
    int rc = sqlite3_prepare_v2(s->db, text.data, -1, out, NULL);
    buf_deinit(&text);
    return rc == SQLITE_OK ? ERR_OK : sqlite__error(s, rc, e);
}

static enum err count(struct store *store, const struct copy_table *table, uint64_t *out, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    sqlite3_stmt *stmt = NULL;
    bool is_row = false;
    enum err err = prepare(s, table, "count(*)", &stmt, e);
    if (err == ERR_OK) {
        err = sqlite__next(s, stmt, &is_row, e);
    }
    if (err == ERR_OK) {
        *out = (uint64_t)sqlite3_column_int64(stmt, 0);
    }
    sqlite3_finalize(stmt);
    return err;
}

static enum err rows(struct store *store, const struct copy_table *table, copy_row_fn *fn, void *context,
                     struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    struct buf columns = {0};
    struct value values[ARRAY_LEN(table->columns)];
    sqlite3_stmt *stmt = NULL;
    bool is_row = false;
    for (uint32_t i = 0; i < table->n_columns; i++) {
        buf_format(&columns, "%s%s", i == 0 ? "" : ", ", table->columns[i]);
    }
    enum err err = prepare(s, table, columns.data, &stmt, e);
    while (err == ERR_OK && (err = sqlite__next(s, stmt, &is_row, e)) == ERR_OK && is_row) {
        for (uint32_t i = 0; i < table->n_columns && err == ERR_OK; i++) {
            values[i] = sqlite__value(stmt, (int)i);
            if (values[i].type != VALUE_IS_NULL && values[i].type != table->types[i]) {
                err = error_set(e, ERR_DATA_LOSS, "column %s of %s holds something that was never written to it",
                                table->columns[i], table->name);
            }
        }
        if (err == ERR_OK) {
            err = fn(context, values, e);
        }
    }
    sqlite3_finalize(stmt);
    buf_deinit(&columns);
    return err;
}

const struct copy_source sqlite__copy_source = {.begin = begin, .count = count, .rows = rows, .end = end};
