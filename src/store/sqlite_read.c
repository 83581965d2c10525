/*
 * Reading: the state that a new leader loads, single things, and history in pages.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store/sqlite_internal.h"

/* ---- rows ---- */

struct value sqlite__value(sqlite3_stmt *stmt, int at)
{
    switch (sqlite3_column_type(stmt, at)) {
    case SQLITE_INTEGER:
        return (struct value){.type = VALUE_IS_INT, .number = sqlite3_column_int64(stmt, at)};
    case SQLITE_NULL:
        return (struct value){.type = VALUE_IS_NULL};
    case SQLITE_TEXT: {
        const void *text = sqlite3_column_text(stmt, at);
        return (struct value){.type = VALUE_IS_TEXT, .bytes = text, .n = (size_t)sqlite3_column_bytes(stmt, at)};
    }
    default: { /* a number with a fraction, which we never write, comes out as bytes that do not fit */
        const void *bytes = sqlite3_column_blob(stmt, at);
        return (struct value){.type = VALUE_IS_BYTES, .bytes = bytes, .n = (size_t)sqlite3_column_bytes(stmt, at)};
    }
    }
}

/* The current row of a statement that selects the columns of `table`. Resets the statement if it makes no sense. */
static enum err read_row(struct sqlite *s, sqlite3_stmt *stmt, const struct table *table, struct arena *arena,
                         struct row **out, struct error *e)
{
    struct row *row = table_row(table, arena);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (!column_is_read(&table->columns[i])) {
            continue;
        }
        enum err err = table_set_from(row, &table->columns[i], sqlite__value(stmt, (int)i), arena, &s->memo, e);
        if (err != ERR_OK) {
            sqlite3_reset(stmt);
            return err;
        }
    }
    *out = row;
    return ERR_OK;
}

/* ---- loading ---- */

struct loading {
    struct sqlite *s;
    store_row_fn *fn;
    void *context;
    uint64_t n_rows;
};

/* Hands out all rows of a statement; `key` NULL: it has no parameter. */
static enum err load_rows(struct loading *loading, enum sqlite_statement which, enum row_kind kind, const char *key,
                          struct error *e)
{
    struct sqlite *s = loading->s;
    sqlite3_stmt *stmt;
    bool is_row = true;
    enum err err = sqlite__statement(s, which, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    if (key != NULL) {
        sqlite__bind_text(stmt, 1, key);
    }
    while (err == ERR_OK && (err = sqlite__next(s, stmt, &is_row, e)) == ERR_OK && is_row) {
        struct row *row = NULL;
        err = read_row(s, stmt, s->tables[kind], &s->arena, &row, e);
        if (err == ERR_OK) {
            loading->fn(loading->context, row);
            loading->n_rows++;
        }
        arena_reset(&s->arena);
    }
    return err;
}

/* A statement that yields one number, NULL as 0. */
static enum err read_number(struct sqlite *s, enum sqlite_statement which, uint64_t *out, struct error *e)
{
    sqlite3_stmt *stmt;
    bool is_row = false;
    enum err err = sqlite__statement(s, which, &stmt, e);
    if (err == ERR_OK) {
        err = sqlite__next(s, stmt, &is_row, e);
    }
    if (err == ERR_OK) {
        *out = is_row ? (uint64_t)sqlite3_column_int64(stmt, 0) : 0;
        sqlite3_reset(stmt);
    }
    return err;
}

/* In the order that core/rows.h asks for. */
static const enum row_kind load_order[] = {ROW_JOB, ROW_STAGE, ROW_TASK, ROW_LEASE, ROW_MAP_OUTPUT, ROW_RESULT};

static enum err load_all(struct loading *loading, struct error *e)
{
    struct row_meta meta = {.row = {.kind = ROW_META}};
    enum err err = ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(load_order) && err == ERR_OK; i++) {
        err = load_rows(loading, SQL_LOAD_JOBS + (enum sqlite_statement)i, load_order[i], NULL, e);
    }
    if (err == ERR_OK) {
        err = load_rows(loading, SQL_LOAD_NODES, ROW_NODE, NULL, e);
    }
    if (err == ERR_OK) {
        err = read_number(loading->s, SQL_LAST_EVENT, &meta.last_event_seq, e);
    }
    if (err == ERR_OK) {
        loading->fn(loading->context, &meta.row);
    }
    return err;
}

enum err sqlite__load(struct store *store, store_row_fn *fn, void *context, struct error *e)
{
    struct loading loading = {.s = sqlite__of(store), .fn = fn, .context = context};
    enum err err = sqlite__need_schema(loading.s, e);
    if (err == ERR_OK) {
        err = sqlite__begin_read(loading.s, e);
    }
    return err != ERR_OK ? err : sqlite__finish(loading.s, load_all(&loading, e), e);
}

static enum err load_one(struct loading *loading, const char *job_id, struct error *e)
{
    enum err err = load_rows(loading, SQL_JOB, ROW_JOB, job_id, e);
    if (err == ERR_OK && loading->n_rows == 0) {
        err = error_set(e, ERR_NOT_FOUND, "there is no job %s", job_id);
    }
    for (size_t i = 1; i < ARRAY_LEN(load_order) && err == ERR_OK; i++) {
        err = load_rows(loading, SQL_JOB + (enum sqlite_statement)i, load_order[i], job_id, e);
    }
    return err;
}

enum err sqlite__load_job(struct store *store, const char *job_id, store_row_fn *fn, void *context, struct error *e)
{
    struct loading loading = {.s = sqlite__of(store), .fn = fn, .context = context};
    enum err err = sqlite__need_schema(loading.s, e);
    if (err == ERR_OK) {
        err = sqlite__begin_read(loading.s, e);
    }
    return err != ERR_OK ? err : sqlite__finish(loading.s, load_one(&loading, job_id, e), e);
}

/* ---- single things ---- */

enum err sqlite__open_read(struct sqlite *s, enum sqlite_statement which, sqlite3_stmt **out, struct error *e)
{
    enum err err = sqlite__need_schema(s, e);
    return err != ERR_OK ? err : sqlite__statement(s, which, out, e);
}

enum err sqlite__find_key(struct store *store, const char *idempotency_key, int64_t not_before_ms, struct arena *arena,
                          const char **out_job_id, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    sqlite3_stmt *stmt;
    bool is_row;
    enum err err = sqlite__open_read(s, SQL_FIND_KEY, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite__bind_text(stmt, 1, idempotency_key);
    sqlite3_bind_int64(stmt, 2, not_before_ms);
    err = sqlite__next(s, stmt, &is_row, e);
    if (err == ERR_OK && !is_row) {
        return error_set(e, ERR_NOT_FOUND, "there is no job with this idempotency key");
    }
    if (err == ERR_OK) {
        *out_job_id = sqlite__text(stmt, 0, arena);
        sqlite3_reset(stmt);
    }
    return err;
}

enum err sqlite__payload(struct store *store, const char *job_id, const struct digest *digest, struct arena *arena,
                         const void **out_bytes, size_t *out_n, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    sqlite3_stmt *stmt;
    bool is_row;
    enum err err = sqlite__open_read(s, SQL_PAYLOAD, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite__bind_text(stmt, 1, job_id);
    sqlite__bind_bytes(stmt, 2, digest->bytes, sizeof digest->bytes);
    err = sqlite__next(s, stmt, &is_row, e);
    if (err == ERR_OK && !is_row) {
        return error_set(e, ERR_NOT_FOUND, "job %s has no such payload", job_id);
    }
    if (err == ERR_OK) {
        *out_bytes = sqlite__bytes(stmt, 0, arena, out_n);
        sqlite3_reset(stmt);
    }
    return err;
}

void *sqlite__append(struct arena *arena, void *items, uint32_t n, size_t size)
{
    if (n > 0 && (n & (n - 1)) != 0) {
        return items; /* it grows when n is 0 and at powers of two */
    }
    char *larger = arena_alloc(arena, (n == 0 ? 1 : (size_t)n * 2) * size);
    if (n > 0) {
        memcpy(larger, items, n * size);
    }
    return larger;
}

enum err sqlite__data_sets(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                           struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    struct data_set *sets = NULL;
    sqlite3_stmt *stmt;
    bool is_row;
    uint32_t n = 0;
    enum err err = sqlite__open_read(s, SQL_DATA_SETS, &stmt, e);
    while (err == ERR_OK && (err = sqlite__next(s, stmt, &is_row, e)) == ERR_OK && is_row) {
        sets = sqlite__append(arena, sets, n, sizeof *sets);
        sets[n++] = (struct data_set){.name = sqlite__text(stmt, 0, arena),
                                      .source = sqlite__text(stmt, 1, arena),
                                      .format = sqlite__text(stmt, 2, arena)};
    }
    if (err == ERR_OK) {
        *out = sets;
        *out_n = n;
    }
    return err;
}

enum err sqlite__inbox(struct store *store, const struct inbox_query *query, struct arena *arena,
                       const struct inbox_entry **out, uint32_t *out_n, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    struct inbox_entry *entries = NULL;
    sqlite3_stmt *stmt;
    bool is_row;
    uint32_t n = 0;
    enum err err = sqlite__open_read(s, SQL_INBOX, &stmt, e);
    if (err == ERR_OK) {
        sqlite3_bind_int64(stmt, 1, (sqlite3_int64)query->after_id);
        sqlite3_bind_int64(stmt, 2, query->limit);
    }
    while (err == ERR_OK && (err = sqlite__next(s, stmt, &is_row, e)) == ERR_OK && is_row) {
        entries = sqlite__append(arena, entries, n, sizeof *entries);
        struct inbox_entry *entry = &entries[n++];
        entry->id = (uint64_t)sqlite3_column_int64(stmt, 0);
        entry->job_id = sqlite__text(stmt, 1, arena);
        entry->tree = sqlite__bytes(stmt, 2, arena, &entry->n_bytes);
    }
    if (err == ERR_OK) {
        *out = entries;
        *out_n = n;
    }
    return err;
}

/* ---- pages ---- */

/*
 * Reads up to `limit` rows of a statement that was asked for one more; whether that one is there says whether there is
 * a next page.
 */
static enum err read_page(struct sqlite *s, sqlite3_stmt *stmt, enum row_kind kind, uint32_t limit, struct arena *arena,
                          struct page *out, bool *out_more, struct error *e)
{
    const struct row **rows = NULL;
    const char **names = NULL;
    uint32_t n = 0;
    bool is_row = false;
    enum err err = ERR_OK;
    while (err == ERR_OK && (err = sqlite__next(s, stmt, &is_row, e)) == ERR_OK && is_row && n < limit) {
        struct row *row = NULL;
        if (kind == ROW_TASK) { /* before the row, which resets the statement if it is damaged */
            names = sqlite__append(arena, names, n, sizeof(const char *));
            names[n] = sqlite__text(stmt, (int)s->tables[kind]->n_columns, arena);
        }
        err = read_row(s, stmt, s->tables[kind], arena, &row, e);
        rows = sqlite__append(arena, rows, n, sizeof(const struct row *));
        rows[n++] = row;
    }
    if (err == ERR_OK) {
        sqlite3_reset(stmt);
        *out = (struct page){.rows = rows, .n_rows = n, .names = names};
        *out_more = is_row && n > 0;
    }
    return err;
}

static enum err bad_token(struct error *e)
{
    return error_set(e, ERR_INVALID, "the page token is not one that a page came with");
}

/* The number in front of a colon; moves `text` behind it. */
static bool take_number(const char **text, int64_t *out)
{
    char *end;
    if (**text != '-' && (**text < '0' || **text > '9')) {
        return false;
    }
    errno = 0;
    *out = strtoll(*text, &end, 10);
    if (errno != 0 || end == *text || *end != ':') {
        return false;
    }
    *text = end + 1;
    return true;
}

enum err sqlite__jobs(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                      struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    int which = SQL_PAGE_JOBS + (query->state >= 0 ? 1 : 0) + (query->name != NULL ? 2 : 0);
    const char *job_id = query->after;
    int64_t submitted_at_ms = INT64_MAX;
    sqlite3_stmt *stmt;
    bool more;
    if (job_id != NULL && !take_number(&job_id, &submitted_at_ms)) {
        return bad_token(e);
    }
    enum err err = sqlite__open_read(s, (enum sqlite_statement)which, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_bind_int64(stmt, 1, submitted_at_ms);
    if (job_id != NULL) {
        sqlite__bind_text(stmt, 2, job_id);
    } else {
        sqlite__bind_bytes(stmt, 2, NULL, 0); /* bytes come after every text */
    }
    sqlite3_bind_int64(stmt, 3, (int64_t)query->limit + 1);
    if (query->state >= 0) {
        sqlite3_bind_int64(stmt, 4, query->state);
    }
    if (query->name != NULL) {
        sqlite__bind_text(stmt, 5, query->name);
    }
    err = read_page(s, stmt, ROW_JOB, query->limit, arena, out, &more, e);
    if (err == ERR_OK && more) {
        const struct row_job *last = (const struct row_job *)(const void *)out->rows[out->n_rows - 1];
        out->next = arena_format(arena, "%" PRId64 ":%s", last->submitted_at_ms, last->job_id);
    }
    return err;
}

enum err sqlite__tasks(struct store *store, const struct task_query *query, struct arena *arena, struct page *out,
                       struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    int which = SQL_PAGE_TASKS + (query->state >= 0 ? 1 : 0);
    const char *after = query->after;
    int64_t stage = -1, task = -1;
    char *end = NULL;
    sqlite3_stmt *stmt;
    bool more;
    if (after != NULL) {
        if (!take_number(&after, &stage) || *after < '0' || *after > '9') {
            return bad_token(e);
        }
        task = strtoll(after, &end, 10);
        if (*end != '\0') {
            return bad_token(e);
        }
    }
    enum err err = sqlite__open_read(s, (enum sqlite_statement)which, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite__bind_text(stmt, 1, query->job_id);
    sqlite3_bind_int64(stmt, 2, stage);
    sqlite3_bind_int64(stmt, 3, task);
    sqlite3_bind_int64(stmt, 4, (int64_t)query->limit + 1);
    if (query->state >= 0) {
        sqlite3_bind_int64(stmt, 5, query->state);
    }
    err = read_page(s, stmt, ROW_TASK, query->limit, arena, out, &more, e);
    if (err == ERR_OK && more) {
        const struct row_task *last = (const struct row_task *)(const void *)out->rows[out->n_rows - 1];
        out->next = arena_format(arena, "%" PRIu32 ":%" PRIu32, last->ref.stage, last->ref.task);
    }
    return err;
}

static enum err read_events(struct sqlite *s, const struct event_query *query, struct arena *arena, struct page *out,
                            uint64_t *out_first_seq, struct error *e)
{
    int which = SQL_PAGE_EVENTS + (query->job_id != NULL ? 1 : 0);
    sqlite3_stmt *stmt;
    bool more;
    enum err err = sqlite__statement(s, (enum sqlite_statement)which, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_bind_int64(stmt, 1, query->after_seq > INT64_MAX ? INT64_MAX : (int64_t)query->after_seq);
    sqlite3_bind_int64(stmt, 2, (int64_t)query->limit + 1);
    if (query->job_id != NULL) {
        sqlite__bind_text(stmt, 3, query->job_id);
    }
    err = read_page(s, stmt, ROW_EVENT, query->limit, arena, out, &more, e);
    if (err == ERR_OK && more) {
        const struct row_event *last = (const struct row_event *)(const void *)out->rows[out->n_rows - 1];
        out->next = arena_format(arena, "%" PRIu64, last->seq);
    }
    return err != ERR_OK ? err : read_number(s, SQL_FIRST_EVENT, out_first_seq, e);
}

/* One transaction, so that the events and the number up to which there are none fit each other. */
enum err sqlite__events(struct store *store, const struct event_query *query, struct arena *arena, struct page *out,
                        uint64_t *out_pruned_seq, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    struct page page = {0};
    uint64_t first_seq = 0;
    enum err err = sqlite__need_schema(s, e);
    if (err == ERR_OK) {
        err = sqlite__begin_read(s, e);
    }
    if (err == ERR_OK) {
        err = sqlite__finish(s, read_events(s, query, arena, &page, &first_seq, e), e);
    }
    if (err == ERR_OK) {
        *out = page;
        *out_pruned_seq = first_seq > 0 ? first_seq - 1 : 0;
    }
    return err;
}
