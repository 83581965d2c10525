/*
 * All SQL of the store on SQLite: fixed statements, and those that are put together from the tables' columns. Each is
 * prepared when it is first needed and kept. Every read goes along a key or an index; none looks at history that it
 * does not return.
 */
#include <string.h>

#include "store/sqlite_internal.h"

#define NO_ROWS (-1)

/* A job whose removal has begun but would be too much for one transaction. Nobody sees it any more. */
#define HIDDEN_KIND "-1"

/* The newest jobs of a state. A list over all states is put together from the newest of each. */
#define JOBS_OF(filter, index)                                                                                         \
    "SELECT * FROM (SELECT job_id FROM jobs INDEXED BY " index " WHERE " filter                                        \
    " AND kind >= 0 AND (submitted_at_ms, job_id) < (?1, ?2) ORDER BY submitted_at_ms DESC, job_id DESC LIMIT ?3)"
#define JOBS_OF_ALL(filter, index)                                                                                     \
    JOBS_OF(filter "state = 0", index)                                                                                 \
    " UNION ALL " JOBS_OF(filter "state = 1", index) " UNION ALL " JOBS_OF(                                            \
        filter "state = 2", index) " UNION ALL " JOBS_OF(filter "state = 3",                                           \
                                                         index) " UNION ALL " JOBS_OF(filter "state = 4", index)
#define PAGE_JOBS(keys)                                                                                                \
    "FROM (" keys ") p CROSS JOIN jobs t ON t.job_id = p.job_id "                                                      \
    "ORDER BY t.submitted_at_ms DESC, t.job_id DESC LIMIT ?3"

/* What live jobs have in another table. */
#define OF_LIVE_JOBS(table)                                                                                            \
    "FROM jobs j INDEXED BY jobs_by_state CROSS JOIN " table " t ON t.job_id = j.job_id WHERE j.state < 2"

/* The same of a table in which only live jobs have rows: their end takes them away. */
#define OF_LIVE_JOBS_ONLY(table) "FROM " table " t CROSS JOIN jobs j ON j.job_id = t.job_id WHERE j.state < 2"

/* One more column of a page of tasks. */
#define STAGE_NAME ", (SELECT s.name FROM stages s WHERE s.job_id = t.job_id AND s.stage = t.stage) "

/* What store_results tells of a task of job ?1. */
#define TASK_RESULT                                                                                                    \
    "SELECT t.stage, t.state, (SELECT s.name FROM stages s WHERE s.job_id = ?1 AND s.stage = t.stage), "               \
    "(SELECT p.bytes FROM payloads p WHERE p.job_id = ?1 AND p.digest = t.result) FROM tasks t WHERE t.job_id = ?1 "

/* At most ?2 rows of a job. */
#define PRUNE(table, key)                                                                                              \
    "DELETE FROM " table " WHERE job_id = ?1 AND (" key ") IN (SELECT " key " FROM " table                             \
    " WHERE job_id = ?1 LIMIT ?2)"

static const struct {
    int kind; /* not NO_ROWS: the columns of this row's table are selected */
    const char *text;
} texts[SQL_COUNT] = {
    [SQL_BEGIN_READ] = {NO_ROWS, "BEGIN"},
    [SQL_BEGIN_WRITE] = {NO_ROWS, "BEGIN IMMEDIATE"},
    [SQL_COMMIT] = {NO_ROWS, "COMMIT"},
    [SQL_ROLLBACK] = {NO_ROWS, "ROLLBACK"},

    /* A leader that resigned leaves its epoch, without a token. */
    [SQL_LEADER] = {NO_ROWS, "SELECT epoch, token, node_id, address, expires_at_ms FROM cluster_leader WHERE id = 1 "
                             "AND length(token) > 0"},
    [SQL_LEADER_FENCE] = {NO_ROWS, "SELECT 1 FROM cluster_leader WHERE id = 1 AND epoch = ?1 AND token = ?2"},
    [SQL_LEADER_TAKE] = {NO_ROWS, "INSERT INTO cluster_leader (id, epoch, token, node_id, address, expires_at_ms) "
                                  "VALUES (1, 1, ?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1, "
                                  "token = ?1, node_id = ?2, address = ?3, expires_at_ms = ?4 RETURNING epoch"},
    [SQL_LEADER_RENEW] = {NO_ROWS, "UPDATE cluster_leader SET expires_at_ms = ?1 WHERE id = 1"},
    [SQL_LEADER_RESIGN] = {NO_ROWS, "UPDATE cluster_leader SET token = x'', expires_at_ms = 0 WHERE id = 1 "
                                    "AND epoch = ?1 AND token = ?2"},

    /* The numbers are those of enum task_state and enum attempt_outcome. */
    [SQL_SWEEP_TASKS] = {NO_ROWS, "UPDATE tasks SET outcome = CASE state WHEN 1 THEN 4 ELSE outcome END, state = 4, "
                                  "finished_at_ms = ?2, lease_expires_at_ms = 0 WHERE job_id = ?1 AND state < 2"},
    [SQL_SWEEP_LEASES] = {NO_ROWS, "DELETE FROM task_leases WHERE job_id = ?1"},
    [SQL_SWEEP_MAP_OUTPUTS] = {NO_ROWS, "DELETE FROM map_outputs WHERE job_id = ?1"},
    [SQL_SWEEP_ATTEMPTS] = {NO_ROWS, "UPDATE execution_idempotency SET status = 4, changed_at_ms = ?2 "
                                     "WHERE job_id = ?1 AND status = 1"},
    [SQL_LEASE_GONE] = {NO_ROWS, "DELETE FROM task_leases WHERE job_id = ?1 AND stage = ?2 AND task = ?3 "
                                 "AND lease_token = ?4"},
    [SQL_PAYLOAD_PUT] = {NO_ROWS,
                         "INSERT OR ROLLBACK INTO payloads (job_id, digest, bytes) SELECT c0, c1, c2 FROM bulk "
                         "WHERE true ON CONFLICT (job_id, digest) DO NOTHING"},
    [SQL_DATA_SET_PUT] = {NO_ROWS, "INSERT INTO data_sets (name, source, format) VALUES (?1, ?2, ?3) "
                                   "ON CONFLICT (name) DO UPDATE SET source = ?2, format = ?3"},
    [SQL_DATA_SET_GONE] = {NO_ROWS, "DELETE FROM data_sets WHERE name = ?1"},
    [SQL_INBOX_DONE] = {NO_ROWS, "DELETE FROM inbox WHERE id = ?1"},

    [SQL_LOAD_JOBS] = {ROW_JOB, "FROM jobs t INDEXED BY jobs_by_state WHERE t.state < 2"},
    [SQL_LOAD_STAGES] = {ROW_STAGE, OF_LIVE_JOBS("stages")},
    [SQL_LOAD_TASKS] = {ROW_TASK, OF_LIVE_JOBS("tasks")},
    [SQL_LOAD_LEASES] = {ROW_LEASE, OF_LIVE_JOBS_ONLY("task_leases")},
    [SQL_LOAD_MAP_OUTPUTS] = {ROW_MAP_OUTPUT, OF_LIVE_JOBS_ONLY("map_outputs")},
    [SQL_LOAD_RESULTS] = {ROW_RESULT, OF_LIVE_JOBS("results")},
    [SQL_LOAD_NODES] = {ROW_NODE, "FROM distributed_nodes t"},
    [SQL_LAST_EVENT] = {NO_ROWS, "SELECT max(seq) FROM task_events"},
    [SQL_JOB] = {ROW_JOB, "FROM jobs t WHERE t.job_id = ?1 AND t.kind >= 0"},
    [SQL_JOB_STAGES] = {ROW_STAGE, "FROM stages t WHERE t.job_id = ?1"},
    [SQL_JOB_TASKS] = {ROW_TASK, "FROM tasks t WHERE t.job_id = ?1"},
    [SQL_JOB_LEASES] = {ROW_LEASE, "FROM task_leases t WHERE t.job_id = ?1"},
    [SQL_JOB_MAP_OUTPUTS] = {ROW_MAP_OUTPUT, "FROM map_outputs t WHERE t.job_id = ?1"},
    [SQL_JOB_RESULTS] = {ROW_RESULT, "FROM results t WHERE t.job_id = ?1"},
    [SQL_FIND_KEY] = {NO_ROWS, "SELECT job_id FROM jobs INDEXED BY jobs_by_key WHERE idempotency_key = ?1 "
                               "AND submitted_at_ms >= ?2 AND kind >= 0 ORDER BY submitted_at_ms DESC LIMIT 1"},
    [SQL_PAYLOAD] = {NO_ROWS, "SELECT bytes FROM payloads WHERE job_id = ?1 AND digest = ?2"},
    [SQL_DATA_SETS] = {NO_ROWS, "SELECT name, source, format FROM data_sets ORDER BY name"},
    [SQL_INBOX] = {NO_ROWS, "SELECT id, job_id, tree FROM inbox WHERE id > ?1 ORDER BY id LIMIT ?2"},

    [SQL_PAGE_JOBS] = {ROW_JOB, PAGE_JOBS(JOBS_OF_ALL("", "jobs_by_state"))},
    [SQL_PAGE_JOBS_OF_STATE] = {ROW_JOB, PAGE_JOBS(JOBS_OF("state = ?4", "jobs_by_state"))},
    [SQL_PAGE_JOBS_OF_NAME] = {ROW_JOB, PAGE_JOBS(JOBS_OF_ALL("name = ?5 AND ", "jobs_by_name"))},
    [SQL_PAGE_JOBS_OF_BOTH] = {ROW_JOB, PAGE_JOBS(JOBS_OF("name = ?5 AND state = ?4", "jobs_by_name"))},
    [SQL_PAGE_TASKS] = {ROW_TASK, STAGE_NAME "FROM tasks t WHERE t.job_id = ?1 AND (t.stage, t.task) > (?2, ?3) "
                                             "ORDER BY t.stage, t.task LIMIT ?4"},
    [SQL_PAGE_TASKS_OF_STATE] = {ROW_TASK, STAGE_NAME "FROM tasks t WHERE t.job_id = ?1 "
                                                      "AND (t.stage, t.task) > (?2, ?3) AND t.state = ?5 "
                                                      "ORDER BY t.stage, t.task LIMIT ?4"},
    [SQL_PAGE_EVENTS] = {ROW_EVENT, "FROM task_events t WHERE t.seq > ?1 ORDER BY t.seq LIMIT ?2"},
    [SQL_PAGE_EVENTS_OF_JOB] = {ROW_EVENT, "FROM task_events t INDEXED BY task_events_of_job "
                                           "WHERE t.job_id = ?3 AND t.seq > ?1 ORDER BY t.seq LIMIT ?2"},
    [SQL_FIRST_EVENT] = {NO_ROWS, "SELECT min(seq) FROM task_events"},

    [SQL_PRUNE_FIND_EVENTS] = {NO_ROWS, "SELECT seq, at_ms FROM task_events ORDER BY seq LIMIT ?1"},
    [SQL_PRUNE_EVENTS] = {NO_ROWS, "DELETE FROM task_events WHERE seq <= ?1"},
    [SQL_PRUNE_FIND_JOBS] = {NO_ROWS, "SELECT job_id FROM jobs INDEXED BY jobs_ended WHERE state >= 2 "
                                      "AND finished_at_ms < ?1 ORDER BY finished_at_ms LIMIT ?2"},
    [SQL_PRUNE_HIDE] = {NO_ROWS, "UPDATE jobs SET kind = " HIDDEN_KIND ", finished_at_ms = -9223372036854775808 "
                                 "WHERE job_id = ?1"},
    [SQL_PRUNE_PAYLOADS] = {NO_ROWS, PRUNE("payloads", "digest")},
    [SQL_PRUNE_ATTEMPTS] = {NO_ROWS, PRUNE("execution_idempotency", "stage, task, attempt_id")},
    [SQL_PRUNE_RESULTS] = {NO_ROWS, PRUNE("results", "stage, task, attempt_id")},
    [SQL_PRUNE_MAP_OUTPUTS] = {NO_ROWS, PRUNE("map_outputs", "stage, task, attempt_id")},
    [SQL_PRUNE_LEASES] = {NO_ROWS, PRUNE("task_leases", "stage, task")},
    [SQL_PRUNE_TASKS] = {NO_ROWS, PRUNE("tasks", "stage, task")},
    [SQL_PRUNE_STAGES] = {NO_ROWS, PRUNE("stages", "stage")},
    [SQL_PRUNE_JOB] = {NO_ROWS, "DELETE FROM jobs WHERE job_id = ?1"},

    [SQL_KNOWN_JOB] = {NO_ROWS, "SELECT 1 FROM jobs WHERE job_id = ?1 AND kind >= 0"},
    [SQL_TASK_RESULT] = {NO_ROWS, TASK_RESULT "AND t.stage = ?2 AND t.task = 0"},
    [SQL_TASK_RESULTS] = {NO_ROWS, TASK_RESULT "AND t.stage > ?2 AND t.task = 0 ORDER BY t.stage LIMIT ?3"},
    [SQL_SUMMARY] = {NO_ROWS, "SELECT (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = 0 LIMIT ?1)), "
                              "(SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = 1 LIMIT ?1)), "
                              "(SELECT count(*) FROM (SELECT 1 FROM distributed_nodes LIMIT ?1)), "
                              "(SELECT count(*) FROM (SELECT 1 FROM inbox LIMIT ?1)), "
                              "(SELECT max(seq) FROM task_events), "
                              "(SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size())"},
    [SQL_EPOCH] = {NO_ROWS, "SELECT epoch FROM cluster_leader WHERE id = 1"},
};

static enum err prepare(struct sqlite *s, const char *text, sqlite3_stmt **out, struct error *e)
{
    int rc = sqlite3_prepare_v3(s->db, text, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    return rc == SQLITE_OK ? ERR_OK : sqlite__error(s, rc, e);
}

enum err sqlite__statement(struct sqlite *s, enum sqlite_statement which, sqlite3_stmt **out, struct error *e)
{
    struct buf text = {0};
    if (s->statements[which] == NULL) {
        if (texts[which].kind != NO_ROWS) {
            const struct table *table = table_of((enum row_kind)texts[which].kind);
            for (uint32_t i = 0; i < table->n_columns; i++) {
                buf_format(&text, "%s t.%s", i == 0 ? "SELECT" : ",", table->columns[i].name);
            }
            buf_char(&text, ' ');
        }
        buf_text(&text, texts[which].text);
        enum err err = prepare(s, text.data, &s->statements[which], e);
        buf_deinit(&text);
        if (err != ERR_OK) {
            return err;
        }
    }
    *out = s->statements[which];
    return ERR_OK;
}

/* ---- rows into tables; column i of a table is column i of `bulk` ---- */

static uint32_t count_keys(const struct table *table)
{
    uint32_t n = 0;
    while (n < table->n_columns && table->columns[n].role == ROLE_KEY) {
        n++;
    }
    return n;
}

/* "(name, ...": the first `n` columns. */
static void write_names(struct buf *text, const struct table *table, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        buf_format(text, "%s%s", i == 0 ? "(" : ", ", table->columns[i].name);
    }
}

/* " SELECT c0, ... FROM bulk": as many. */
static void write_source(struct buf *text, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        buf_format(text, "%sc%u", i == 0 ? " SELECT " : ", ", i);
    }
    buf_text(text, " FROM bulk");
}

static void write_gone(struct buf *text, const struct table *table)
{
    uint32_t n_keys = count_keys(table);
    buf_format(text, "DELETE FROM %s WHERE ", table->name);
    write_names(text, table, n_keys);
    buf_text(text, ") IN (");
    write_source(text, n_keys);
    buf_char(text, ')');
}

/* Fails if there is one of that key. */
static void write_new(struct buf *text, const struct table *table)
{
    buf_format(text, "INSERT OR ROLLBACK INTO %s ", table->name);
    write_names(text, table, table->n_columns);
    buf_char(text, ')');
    write_source(text, table->n_columns);
}

/* What is there under the key keeps its fixed columns. */
static void write_new_or_not(struct buf *text, const struct table *table)
{
    const char *separator = ") DO UPDATE SET ";
    write_new(text, table);
    buf_text(text, " WHERE true ON CONFLICT "); /* without the WHERE, ON would belong to the SELECT */
    write_names(text, table, count_keys(table));
    for (uint32_t i = 0; i < table->n_columns; i++) {
        const char *name = table->columns[i].name;
        if (table->columns[i].role == ROLE_CHANGES) {
            buf_format(text, "%s%s = excluded.%s", separator, name, name);
            separator = ", ";
        }
    }
    if (separator[0] == ')') {
        buf_text(text, ") DO NOTHING");
    }
    if (table->kind == ROW_JOB) {
        buf_text(text, " WHERE kind <> " HIDDEN_KIND);
    }
}

/* For one row: parameter i + 1 is column i. UPDATE ... FROM bulk would put all rows aside first, which costs more. */
static void write_changed(struct buf *text, const struct table *table)
{
    const char *separator = " SET ";
    uint32_t n_keys = count_keys(table);
    buf_format(text, "UPDATE %s", table->name);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (table->columns[i].role == ROLE_CHANGES) {
            buf_format(text, "%s%s = ?%u", separator, table->columns[i].name, i + 1);
            separator = ", ";
        }
    }
    for (uint32_t i = 0; i < n_keys; i++) {
        buf_format(text, "%s%s = ?%u", i == 0 ? " WHERE " : " AND ", table->columns[i].name, i + 1);
    }
}

/*
 * OR ROLLBACK, because whatever fails ends the batch: for a statement that may fail halfway in a transaction that goes on,
 * SQLite puts every page aside before it changes it. ON CONFLICT DO UPDATE has no such choice.
 */
enum err sqlite__row_statement(struct sqlite *s, const struct table *table, enum sqlite_deed deed, sqlite3_stmt **out,
                               struct error *e)
{
    typedef void write_fn(struct buf * text, const struct table *table);
    static write_fn *const writers[SQLITE_DEEDS] = {[ROWS_GONE] = write_gone,
                                                    [ROWS_NEW] = write_new,
                                                    [ROWS_CHANGED] = write_changed,
                                                    [ROWS_NEW_OR_NOT] = write_new_or_not};
    sqlite3_stmt **slot = &s->row_statements[table->kind][deed];
    struct buf text = {0};
    if (*slot == NULL) {
        writers[deed](&text, table);
        enum err err = prepare(s, text.data, slot, e);
        buf_deinit(&text);
        if (err != ERR_OK) {
            return err;
        }
    }
    *out = *slot;
    return ERR_OK;
}

void sqlite__finalize_all(struct sqlite *s)
{
    for (size_t i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(s->statements[i]);
        s->statements[i] = NULL;
    }
    for (size_t kind = 0; kind < ROW_META; kind++) {
        for (size_t deed = 0; deed < SQLITE_DEEDS; deed++) {
            sqlite3_finalize(s->row_statements[kind][deed]);
            s->row_statements[kind][deed] = NULL;
        }
    }
}

/* ---- running ---- */

enum err sqlite__run(struct sqlite *s, sqlite3_stmt *stmt, struct error *e)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_DONE) {
        sqlite3_reset(stmt);
        return ERR_OK;
    }
    enum err err = sqlite__error(s, rc, e);
    sqlite3_reset(stmt);
    return err;
}

enum err sqlite__next(struct sqlite *s, sqlite3_stmt *stmt, bool *out_row, struct error *e)
{
    int rc = sqlite3_step(stmt);
    enum err err = ERR_OK;
    *out_row = rc == SQLITE_ROW;
    if (rc == SQLITE_ROW) {
        return ERR_OK;
    }
    if (rc != SQLITE_DONE) {
        err = sqlite__error(s, rc, e);
    }
    sqlite3_reset(stmt);
    return err;
}

void sqlite__bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
    sqlite3_bind_text64(stmt, at, text, text == NULL ? 0 : strlen(text), SQLITE_STATIC, SQLITE_UTF8);
}

void sqlite__bind_bytes(sqlite3_stmt *stmt, int at, const void *bytes, size_t n)
{
    sqlite3_bind_blob64(stmt, at, n == 0 ? "" : bytes, n, SQLITE_STATIC); /* a null pointer would be a NULL */
}

void sqlite__bind_token(sqlite3_stmt *stmt, int at, const struct lease_token *token)
{
    sqlite3_bind_blob64(stmt, at, token->bits, sizeof token->bits, SQLITE_STATIC);
}

const char *sqlite__text(sqlite3_stmt *stmt, int at, struct arena *arena)
{
    return arena_strdup(arena, (const char *)sqlite3_column_text(stmt, at));
}

const void *sqlite__bytes(sqlite3_stmt *stmt, int at, struct arena *arena, size_t *out_n)
{
    const void *bytes = sqlite3_column_blob(stmt, at);
    *out_n = (size_t)sqlite3_column_bytes(stmt, at);
    return arena_copy(arena, bytes, *out_n);
}
