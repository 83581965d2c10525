/*
 * The numbered steps of the schema. Each runs in one write transaction together with its row of `schema_migrations`: a
 * process that is killed in the middle leaves the step undone, and of two that start at once the second waits and then
 * finds it done.
 */
#include "store/migration.h"
#include "store/sqlite_internal.h"

#define DIALECT "sqlite"

/* The first number that a query yields; 0 if it yields none. */
static enum err query_number(struct sqlite *s, const char *text, int64_t *out, struct error *e)
{
    sqlite3_stmt *stmt = NULL;
    bool is_row = false;
    int rc = sqlite3_prepare_v2(s->db, text, -1, &stmt, NULL);
    enum err err = rc == SQLITE_OK ? sqlite__next(s, stmt, &is_row, e) : sqlite__error(s, rc, e);
    if (err == ERR_OK) {
        *out = is_row ? sqlite3_column_int64(stmt, 0) : 0;
    }
    sqlite3_finalize(stmt);
    return err;
}

static enum err read_status(struct sqlite *s, struct migration_status *out, struct error *e)
{
    int64_t there = 0, version = 0;
    enum err err = query_number(s, "SELECT count(*) FROM sqlite_schema WHERE name = 'schema_migrations'", &there, e);
    if (err == ERR_OK && there > 0) {
        err = query_number(s, "SELECT max(version) FROM schema_migrations", &version, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    if (version < 0 || version > UINT32_MAX) {
        return error_set(e, ERR_DATA_LOSS, "schema_migrations holds a version that there cannot be");
    }
    uint32_t newest = migration_newest(DIALECT);
    *out = (struct migration_status){
        .current = (uint32_t)version, .newest = newest, .is_too_new = (uint32_t)version > newest};
    return ERR_OK;
}

enum err sqlite__schema(struct store *store, struct migration_status *out, struct error *e)
{
    return read_status(sqlite__of(store), out, e);
}

static enum err too_new(const struct migration_status *status, struct error *e)
{
    enum err err = error_set(e, ERR_PRECONDITION, "the store's schema has version %u, this program knows up to %u",
                             status->current, status->newest);
    error_hint(e, "use a newer program; this one could damage what it does not know");
    return err;
}

enum err sqlite__need_schema(struct sqlite *s, struct error *e)
{
    struct migration_status status = {0};
    if (s->is_current) {
        return ERR_OK;
    }
    enum err err = read_status(s, &status, e);
    if (err != ERR_OK) {
        return err;
    }
    if (status.is_too_new) {
        return too_new(&status, e);
    }
    if (status.current < status.newest) {
        err = error_set(e, ERR_PRECONDITION, "the store's schema has version %u, this program needs %u", status.current,
                        status.newest);
        error_hint(e, "run capstan store migrate");
        return err;
    }
    s->is_current = true;
    return ERR_OK;
}

static enum err execute(struct sqlite *s, const char *text, struct error *e)
{
    int rc = sqlite3_exec(s->db, text, NULL, NULL, NULL);
    return rc == SQLITE_OK ? ERR_OK : sqlite__error(s, rc, e);
}

/* Notes that the step was done, or undone. */
static enum err note_step(struct sqlite *s, const struct migration *step, bool is_up, struct error *e)
{
    static const char table[] = "CREATE TABLE IF NOT EXISTS schema_migrations (version INTEGER PRIMARY KEY, "
                                "name TEXT NOT NULL, applied_at_ms INTEGER NOT NULL)";
    static const char up[] = "INSERT INTO schema_migrations (version, name, applied_at_ms) VALUES (?1, ?2, ?3)";
    static const char down[] = "DELETE FROM schema_migrations WHERE version = ?1";
    sqlite3_stmt *stmt = NULL;
    enum err err = execute(s, table, e);
    if (err != ERR_OK) {
        return err;
    }
    int rc = sqlite3_prepare_v2(s->db, is_up ? up : down, -1, &stmt, NULL);
    if (rc != SQLITE_OK) {
        return sqlite__error(s, rc, e);
    }
    sqlite3_bind_int64(stmt, 1, step->version);
    if (is_up) {
        sqlite__bind_text(stmt, 2, step->name);
        sqlite3_bind_int64(stmt, 3, sqlite__now_ms());
    }
    err = sqlite__run(s, stmt, e);
    sqlite3_finalize(stmt);
    return err;
}

/* One step nearer to `version`, inside a write transaction; `out_done` if it is reached. */
static enum err take_step(struct sqlite *s, uint32_t version, bool *out_done, struct error *e)
{
    struct migration_status status = {0};
    enum err err = read_status(s, &status, e);
    if (err != ERR_OK) {
        return err;
    }
    if (status.is_too_new) {
        return too_new(&status, e);
    }
    *out_done = status.current == version;
    if (*out_done) {
        return ERR_OK;
    }
    bool is_up = status.current < version;
    const struct migration *step = migration_find(DIALECT, is_up ? status.current + 1 : status.current);
    if (step == NULL) {
        return error_set(e, ERR_INTERNAL, "there is no step from version %u towards %u", status.current, version);
    }
    err = execute(s, is_up ? step->up : step->down, e);
    return err != ERR_OK ? err : note_step(s, step, is_up, e);
}

enum err sqlite__migrate(struct store *store, uint32_t version, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    uint32_t newest = migration_newest(DIALECT);
    bool done = false;
    if (version == STORE_NEWEST) {
        version = newest;
    }
    if (version > newest) {
        return error_set(e, ERR_INVALID, "this program knows schema versions up to %u, not %u", newest, version);
    }
    s->is_current = false;
    while (!done) {
        enum err err = sqlite__begin_write(s, e);
        if (err == ERR_OK) {
            err = sqlite__finish(s, take_step(s, version, &done, e), e);
        }
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}
