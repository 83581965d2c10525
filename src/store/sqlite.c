/*
 * The store on SQLite: one file, in WAL mode and with `synchronous=FULL`, so that a commit that was answered survives
 * the loss of power. Readers do not hold up the writer, nor it them; writers wait for each other.
 *
 * There is no connection that could be lost. What can fail is the disk: full, read-only, torn out. SQLite then rolls
 * back, and the store can be used again as soon as the disk can.
 */
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "store/sqlite_internal.h"

/* How long to wait for another writer. Far longer than any of our own transactions takes. */
#define BUSY_TIMEOUT_MS 10000

/* Pages (of 4 KiB) in the log before a commit also copies them into the database: rarely, for it syncs twice. */
#define CHECKPOINT_PAGES "16000"

static const struct engine sqlite_engine;

struct sqlite *sqlite__of(struct store *store)
{
    return CONTAINER_OF(store, struct sqlite, store);
}

int64_t sqlite__now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

enum err sqlite__error(struct sqlite *s, int rc, struct error *e)
{
    enum err err;
    switch (rc & 0xff) {
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
    case SQLITE_RANGE:
        return error_set(e, ERR_INVALID, "SQLite refuses a value: %s", sqlite3_errmsg(s->db));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        err = error_set(e, ERR_DATA_LOSS, "%s is damaged or no SQLite database: %s", sqlite3_db_filename(s->db, "main"),
                        sqlite3_errmsg(s->db));
        error_hint(e, "restore it from a backup, or name another file");
        return err;
    case SQLITE_FULL:
        err = error_set(e, ERR_UNAVAILABLE, "no space left for %s", sqlite3_db_filename(s->db, "main"));
        error_hint(e, "make room on that disk");
        return err;
    case SQLITE_BUSY:
        return error_set(e, ERR_UNAVAILABLE, "another process keeps %s locked", sqlite3_db_filename(s->db, "main"));
    default:
        return error_set(e, ERR_UNAVAILABLE, "SQLite: %s (%d)", sqlite3_errmsg(s->db), sqlite3_extended_errcode(s->db));
    }
}

/* ---- transactions ---- */

static enum err begin(struct sqlite *s, enum sqlite_statement how, struct error *e)
{
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, how, &stmt, e);
    return err != ERR_OK ? err : sqlite__run(s, stmt, e);
}

enum err sqlite__begin_read(struct sqlite *s, struct error *e)
{
    return begin(s, SQL_BEGIN_READ, e);
}

enum err sqlite__begin_write(struct sqlite *s, struct error *e)
{
    return begin(s, SQL_BEGIN_WRITE, e);
}

void sqlite__rollback(struct sqlite *s)
{
    sqlite3_stmt *stmt;
    /* After some errors SQLite has rolled back by itself. An error of the rollback adds nothing to what led here. */
    if (!sqlite3_get_autocommit(s->db) && sqlite__statement(s, SQL_ROLLBACK, &stmt, NULL) == ERR_OK) {
        enum err ignored = sqlite__run(s, stmt, NULL);
        UNUSED(ignored);
    }
}

enum err sqlite__commit(struct sqlite *s, struct error *e)
{
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, SQL_COMMIT, &stmt, e);
    if (err == ERR_OK) {
        err = sqlite__run(s, stmt, e);
    }
    if (err != ERR_OK) {
        sqlite__rollback(s);
    }
    return err;
}

enum err sqlite__finish(struct sqlite *s, enum err err, struct error *e)
{
    if (err == ERR_OK) {
        return sqlite__commit(s, e);
    }
    sqlite__rollback(s);
    return err;
}

/* ---- opening ---- */

static void sqlite_close(struct store *store)
{
    struct sqlite *s = sqlite__of(store);
    sqlite__finalize_all(s);
    sqlite3_close(s->db);
    sqlite__unlock(s); /* last: whoever gets it finds the database closed */
    wake_deinit(&s->wake);
    spec_memo_deinit(&s->memo);
    sqlite__free_lists(s);
    arena_deinit(&s->arena);
    mem_free(s);
}

/* SQLITE_OK only if the file now is in WAL mode: there are file systems on which it cannot be. */
static int ask_for_wal_mode(sqlite3 *db)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);
    }
    if (rc == SQLITE_ROW) {
        rc = strcmp((const char *)sqlite3_column_text(stmt, 0), "wal") == 0 ? SQLITE_OK : SQLITE_IOERR;
    }
    sqlite3_finalize(stmt);
    return rc;
}

/*
 * A new file becomes a WAL database under an exclusive lock, for which SQLite does not wait as it does for others. Five
 * processes that create the same file at the same moment are good for some attempts.
 */
static int enter_wal_mode(sqlite3 *db)
{
    int rc = ask_for_wal_mode(db);
    for (int waited_ms = 0; (rc & 0xff) == SQLITE_BUSY && waited_ms < BUSY_TIMEOUT_MS; waited_ms += 10) {
        sqlite3_sleep(10);
        rc = ask_for_wal_mode(db);
    }
    return rc;
}

static enum err set_up(struct sqlite *s, const char *path, struct error *e)
{
    static const char settings[] = "PRAGMA synchronous = FULL;"
                                   "PRAGMA foreign_keys = OFF;"
                                   "PRAGMA cache_size = -65536;"
                                   "PRAGMA wal_autocheckpoint = " CHECKPOINT_PAGES;
    int rc = sqlite__open_file(path, &s->db);
    if (rc != SQLITE_OK) {
        int why = sqlite3_system_errno(s->db);
        enum err err =
            error_set(e, ERR_UNAVAILABLE, "cannot open %s: %s", path, why != 0 ? strerror(why) : sqlite3_errstr(rc));
        error_hint(e, "the folder must exist and be writable: SQLite keeps its log beside the database");
        return err;
    }
    sqlite3_busy_timeout(s->db, BUSY_TIMEOUT_MS);
    rc = enter_wal_mode(s->db);
    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(s->db, settings, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite__bulk_init(s);
    }
    return rc == SQLITE_OK ? ERR_OK : sqlite__error(s, rc, e);
}

enum err sqlite_open(const char *url, struct store **out_store, struct error *e)
{
    const char *path = url + strlen("sqlite:");
    if (path[0] == '\0' || path[0] == ':' || strncmp(path, "file:", strlen("file:")) == 0) {
        enum err err = error_set(e, ERR_INVALID, "sqlite: needs the path of a file");
        error_hint(e, "for example sqlite:capstan.db; a store that is gone with its process is memory:");
        return err;
    }
    struct sqlite *s = mem_calloc(1, sizeof *s);
    s->store.engine = &sqlite_engine;
    s->lock_fd = -1;
    for (uint32_t kind = 0; kind < ROW_META; kind++) {
        s->tables[kind] = table_of((enum row_kind)kind);
    }
    enum err err = wake_init(&s->wake, e);
    if (err == ERR_OK) {
        err = set_up(s, path, e);
    }
    if (err != ERR_OK) {
        sqlite_close(&s->store);
        return err;
    }
    *out_store = &s->store;
    return ERR_OK;
}

static const struct engine sqlite_engine = {
    .close = sqlite_close,
    .schema = sqlite__schema,
    .migrate = sqlite__migrate,
    .lead = sqlite__lead,
    .renew = sqlite__renew,
    .resign = sqlite__resign,
    .leader = sqlite__leader,
    .commit = sqlite__commit_batch,
    .load = sqlite__load,
    .load_job = sqlite__load_job,
    .find_key = sqlite__find_key,
    .payload = sqlite__payload,
    .payloads = sqlite__payloads,
    .results = sqlite__results,
    .known_jobs = sqlite__known_jobs,
    .data_sets = sqlite__data_sets,
    .inbox = sqlite__inbox,
    .listen = sqlite__listen,
    .wait = sqlite__wait,
    .interrupt = sqlite__interrupt,
    .jobs = sqlite__jobs,
    .tasks = sqlite__tasks,
    .task_results = sqlite__task_results,
    .events = sqlite__events,
    .prune = sqlite__prune,
    .summarize = sqlite__summarize,
    .source = &sqlite__copy_source,
};
