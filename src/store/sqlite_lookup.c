/* Several things at once, waiting, and what can be told at a glance. Here a statement costs next to nothing: one for each. */
#include <string.h>

#include "store/sqlite_internal.h"

/* A copy that is not NULL even if it is empty; nothing for NULL. */
static struct found_bytes bytes_at(sqlite3_stmt *stmt, int at, struct arena *arena)
{
    struct found_bytes found = {NULL, 0};
    if (sqlite3_column_type(stmt, at) != SQLITE_NULL) {
        const void *bytes = sqlite__bytes(stmt, at, arena, &found.n_bytes);
        found.bytes = found.n_bytes == 0 ? "" : bytes;
    }
    return found;
}

static enum err find_payloads(struct sqlite *s, const char *job_id, const struct digest *digests, uint32_t n,
                              struct arena *arena, struct found_bytes *out, struct error *e)
{
    sqlite3_stmt *stmt;
    bool is_row;
    enum err err = sqlite__statement(s, SQL_PAYLOAD, &stmt, e);
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        sqlite__bind_text(stmt, 1, job_id);
        sqlite__bind_bytes(stmt, 2, digests[i].bytes, sizeof digests[i].bytes);
        err = sqlite__next(s, stmt, &is_row, e);
        out[i] = err == ERR_OK && is_row ? bytes_at(stmt, 0, arena) : (struct found_bytes){NULL, 0};
        sqlite3_reset(stmt);
    }
    return err;
}

/* One transaction, so that all answers are of the same moment; so do the next two. */
enum err sqlite__payloads(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                          struct arena *arena, struct found_bytes *out, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    struct found_bytes *found = arena_alloc(arena, n * sizeof *found);
    enum err err = sqlite__need_schema(s, e);
    if (err == ERR_OK) {
        err = sqlite__begin_read(s, e);
    }
    if (err == ERR_OK) {
        err = sqlite__finish(s, find_payloads(s, job_id, digests, n, arena, found, e), e);
    }
    if (err == ERR_OK) {
        memcpy(out, found, n * sizeof *found);
    }
    return err;
}

static enum err result_at(sqlite3_stmt *stmt, struct arena *arena, struct task_result *out, struct error *e)
{
    int64_t state = sqlite3_column_int64(stmt, 1);
    if (state < TASK_QUEUED || state > TASK_SKIPPED) {
        return error_set(e, ERR_DATA_LOSS, "a task has a state that there is not");
    }
    *out = (struct task_result){
        .stage = (uint32_t)sqlite3_column_int64(stmt, 0),
        .name = sqlite__text(stmt, 2, arena),
        .state = (enum task_state)state,
        .is_found = true,
        .result = bytes_at(stmt, 3, arena),
    };
    return ERR_OK;
}

static enum err find_results(struct sqlite *s, const char *job_id, const uint32_t *stages, uint32_t n,
                             struct arena *arena, struct task_result *out, struct error *e)
{
    sqlite3_stmt *stmt;
    bool is_row;
    enum err err = sqlite__statement(s, SQL_TASK_RESULT, &stmt, e);
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        out[i] = (struct task_result){.stage = stages[i]};
        sqlite__bind_text(stmt, 1, job_id);
        sqlite3_bind_int64(stmt, 2, stages[i]);
        err = sqlite__next(s, stmt, &is_row, e);
        if (err == ERR_OK && is_row) {
            err = result_at(stmt, arena, &out[i], e);
            sqlite3_reset(stmt);
        }
    }
    return err;
}

enum err sqlite__results(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n,
                         struct arena *arena, struct task_result *out, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    struct task_result *found = arena_alloc(arena, n * sizeof *found);
    enum err err = sqlite__need_schema(s, e);
    if (err == ERR_OK) {
        err = sqlite__begin_read(s, e);
    }
    if (err == ERR_OK) {
        err = sqlite__finish(s, find_results(s, job_id, stages, n, arena, found, e), e);
    }
    if (err == ERR_OK) {
        memcpy(out, found, n * sizeof *found);
    }
    return err;
}

enum err sqlite__task_results(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                              struct arena *arena, const struct task_result **out, uint32_t *out_n, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    struct task_result *found = NULL;
    sqlite3_stmt *stmt;
    bool is_row;
    uint32_t n = 0;
    enum err err = sqlite__open_read(s, SQL_TASK_RESULTS, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite__bind_text(stmt, 1, job_id);
    sqlite3_bind_int64(stmt, 2, after_stage);
    sqlite3_bind_int64(stmt, 3, limit);
    while (err == ERR_OK && (err = sqlite__next(s, stmt, &is_row, e)) == ERR_OK && is_row) {
        found = sqlite__append(arena, found, n, sizeof *found);
        err = result_at(stmt, arena, &found[n++], e);
    }
    sqlite3_reset(stmt);
    if (err == ERR_OK) {
        *out = found;
        *out_n = n;
    }
    return err;
}

static enum err find_jobs(struct sqlite *s, const char *const *job_ids, uint32_t n, bool *out_known, struct error *e)
{
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, SQL_KNOWN_JOB, &stmt, e);
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        sqlite__bind_text(stmt, 1, job_ids[i]);
        err = sqlite__next(s, stmt, &out_known[i], e);
        sqlite3_reset(stmt);
    }
    return err;
}

enum err sqlite__known_jobs(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known,
                            struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    bool *known = arena_alloc(&s->arena, n * sizeof *known);
    enum err err = sqlite__need_schema(s, e);
    if (err == ERR_OK) {
        err = sqlite__begin_read(s, e);
    }
    if (err == ERR_OK) {
        err = sqlite__finish(s, find_jobs(s, job_ids, n, known, e), e);
    }
    if (err == ERR_OK) {
        memcpy(out_known, known, n * sizeof *known);
    }
    arena_reset(&s->arena);
    return err;
}

/* ---- waiting ---- */

/* Nobody tells this process what another one writes into the file. */
enum err sqlite__listen(struct store *store, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    enum err err = sqlite__need_schema(s, e);
    s->is_listening = s->is_listening || err == ERR_OK;
    return err;
}

enum err sqlite__wait(struct store *store, int64_t timeout_ms, bool *out_woken, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    if (!s->is_listening) {
        return error_set(e, ERR_PRECONDITION, "this store does not listen");
    }
    *out_woken = wake_wait(&s->wake, -1, timeout_ms);
    return ERR_OK;
}

void sqlite__interrupt(struct store *store)
{
    wake_up(&sqlite__of(store)->wake);
}

/* ---- at a glance ---- */

enum err sqlite__summarize(struct store *store, struct store_summary *out, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    sqlite3_stmt *stmt;
    bool is_row;
    enum err err = sqlite__open_read(s, SQL_SUMMARY, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_bind_int64(stmt, 1, STORE_SUMMARY_MAX);
    err = sqlite__next(s, stmt, &is_row, e);
    if (err == ERR_OK) {
        *out = (struct store_summary){
            .queued_jobs = (uint64_t)sqlite3_column_int64(stmt, 0),
            .running_jobs = (uint64_t)sqlite3_column_int64(stmt, 1),
            .nodes = (uint64_t)sqlite3_column_int64(stmt, 2),
            .inbox = (uint64_t)sqlite3_column_int64(stmt, 3),
            .last_event_seq = (uint64_t)sqlite3_column_int64(stmt, 4),
            .bytes = (uint64_t)sqlite3_column_int64(stmt, 5),
        };
        sqlite3_reset(stmt);
    }
    return err;
}
