/*
 * What is SQLite's alone: the file and its modes, the lock file, migrations that are killed, plans of statements. What
 * every store must do is in the contract suite (tests/integration/store).
 */
#include "../test.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/command.h"
#include "store/migration.h"
#include "store/sqlite_internal.h"
#include "store/store.h"

struct fixture {
    char folder[64];
    char path[96];
    char url[112];
    struct store *store;
    struct arena arena;
    struct fence fence;
};

/* A new folder, with nothing in it yet; in memory where that can be, for nothing here asks what a sync costs. */
static struct fixture fixture_empty(void)
{
    struct fixture f = {0};
    snprintf(f.folder, sizeof f.folder, "%s/capstan-sqlite-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(f.folder) != NULL);
    snprintf(f.path, sizeof f.path, "%s/capstan.db", f.folder);
    snprintf(f.url, sizeof f.url, "sqlite:%s", f.path);
    return f;
}

static struct store *open_store(const char *url)
{
    struct store *store = NULL;
    struct error e = {0};
    enum err err = store_open(url, &store, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    return store;
}

static struct leader_claim claim_of(uint64_t token)
{
    return (struct leader_claim){
        .node_id = "n1", .address = "127.0.0.1:1", .ttl_ms = 10000, .token = {.bits = {token, token}}};
}

static struct fence lead(struct fixture *f, struct store *store, uint64_t token)
{
    struct leader leader = {0};
    struct error e = {0};
    struct leader_claim claim = claim_of(token);
    enum err err = store_lead(store, &claim, &f->arena, &leader, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    return leader.fence;
}

/* An open store with the newest schema, which leads. */
static struct fixture fixture_leading(void)
{
    struct fixture f = fixture_empty();
    f.store = open_store(f.url);
    CHECK_ERR(store_migrate(f.store, STORE_NEWEST, NULL), ERR_OK);
    f.fence = lead(&f, f.store, 1);
    return f;
}

static void fixture_end(struct fixture *f)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal", ".lock"};
    char path[128];
    store_close(f->store);
    arena_deinit(&f->arena);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        snprintf(path, sizeof path, "%s%s", f->path, suffixes[i]);
        unlink(path);
    }
    CHECK_INT(rmdir(f->folder), 0);
}

/* The first column of the first row, as text, by a connection of its own. */
static const char *query(struct fixture *f, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    const char *text = NULL;
    CHECK_INT(sqlite3_open(f->path, &db), SQLITE_OK);
    CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        text = arena_strdup(&f->arena, (const char *)sqlite3_column_text(stmt, 0));
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return text;
}

static void execute(struct fixture *f, const char *sql)
{
    sqlite3 *db = NULL;
    CHECK_INT(sqlite3_open(f->path, &db), SQLITE_OK);
    CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static enum err commit_row(struct fixture *f, struct row *row, struct error *e)
{
    const struct row *rows[] = {row};
    struct batch batch = {.rows = rows, .n_rows = 1};
    return store_commit(f->store, &f->fence, &batch, e);
}

static struct row_job new_job(const char *job_id)
{
    return (struct row_job){.row = {.kind = ROW_JOB}, .is_new = true, .job_id = job_id, .submitted_at_ms = 1000};
}

static void count_row(void *context, const struct row *row)
{
    uint32_t *counts = context;
    counts[row->kind]++;
}

/* ---- the file ---- */

TEST(a_path_is_needed)
{
    struct store *store = NULL;
    struct error e = {0};
    CHECK_ERR(store_open("sqlite:", &store, &e), ERR_INVALID);
    CHECK_ERR(store_open("sqlite::memory:", &store, &e), ERR_INVALID);
    CHECK(store == NULL);
}

TEST(a_folder_that_is_not_there_is_named)
{
    struct fixture f = fixture_empty();
    struct store *store = NULL;
    struct error e = {0};
    char url[128];
    snprintf(url, sizeof url, "sqlite:%s/none/capstan.db", f.folder);
    CHECK_ERR(store_open(url, &store, &e), ERR_UNAVAILABLE);
    CHECK(strstr(e.message, "/none/capstan.db") != NULL);
    CHECK(strstr(e.message, "No such file") != NULL);
    fixture_end(&f);
}

TEST(a_file_that_is_no_database_is_left_alone)
{
    struct fixture f = fixture_empty();
    struct store *store = NULL;
    struct error e = {0};
    FILE *file = fopen(f.path, "w");
    CHECK(file != NULL);
    for (int i = 0; i < 1000; i++) {
        fputs("not a database\n", file);
    }
    fclose(file);
    CHECK_ERR(store_open(f.url, &store, &e), ERR_DATA_LOSS);
    CHECK(strstr(e.message, f.path) != NULL);
    struct stat status;
    CHECK_INT(stat(f.path, &status), 0);
    CHECK_INT(status.st_size, 15000);
    fixture_end(&f);
}

TEST(the_log_is_written_ahead_and_synced_fully)
{
    struct fixture f = fixture_leading();
    sqlite3_stmt *stmt = NULL;
    CHECK_STR(query(&f, "PRAGMA journal_mode"), "wal");
    CHECK_INT(sqlite3_prepare_v2(sqlite__of(f.store)->db, "PRAGMA synchronous", -1, &stmt, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
    CHECK_INT(sqlite3_column_int(stmt, 0), 2); /* FULL */
    sqlite3_finalize(stmt);
    fixture_end(&f);
}

/* ---- the lock file ---- */

TEST(a_second_coordinator_is_refused_with_the_name_of_the_lock_file)
{
    struct fixture f = fixture_leading();
    struct store *second = open_store(f.url);
    struct leader leader = {0};
    struct leader_claim claim = claim_of(2);
    struct error e = {0};
    char lock[128];
    snprintf(lock, sizeof lock, "%s.lock", f.path);

    CHECK_ERR(store_lead(second, &claim, &f.arena, &leader, &e), ERR_BUSY);

    CHECK(strstr(e.message, "another coordinator uses this store") != NULL);
    CHECK(strstr(e.message, lock) != NULL);
    CHECK(e.hint[0] != '\0');
    CHECK_STR(leader.node_id, "n1");
    CHECK_UINT(leader.fence.epoch, 1);
    store_close(second);
    CHECK_ERR(commit_row(&f, &(struct row_job){0}.row, NULL), ERR_OK); /* the first goes on; a zero row is harmless */
    fixture_end(&f);
}

TEST(a_symbolic_link_is_no_way_around_the_lock)
{
    struct fixture f = fixture_leading();
    struct leader leader = {0};
    struct leader_claim claim = claim_of(2);
    char link[128], url[144];
    snprintf(link, sizeof link, "%s/link.db", f.folder);
    snprintf(url, sizeof url, "sqlite:%s", link);
    CHECK_INT(symlink(f.path, link), 0);
    struct store *second = open_store(url);
    CHECK_ERR(store_lead(second, &claim, &f.arena, &leader, NULL), ERR_BUSY);
    store_close(second);
    unlink(link);
    fixture_end(&f);
}

TEST(a_leader_that_is_killed_leaves_the_lock)
{
    struct fixture f = fixture_empty();
    int ready[2];
    char byte;
    f.store = open_store(f.url);
    CHECK_ERR(store_migrate(f.store, STORE_NEWEST, NULL), ERR_OK);
    store_close(f.store); /* a connection must not be carried through a fork */
    f.store = NULL;
    CHECK_INT(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store *store = open_store(f.url);
        lead(&f, store, 1);
        if (write(ready[1], "x", 1) == 1) {
            pause();
        }
        _exit(1);
    }
    CHECK_INT(read(ready[0], &byte, 1), 1);
    f.store = open_store(f.url);
    struct leader leader = {0};
    struct leader_claim claim = claim_of(2);
    CHECK_ERR(store_lead(f.store, &claim, &f.arena, &leader, NULL), ERR_BUSY);

    kill(child, SIGKILL);
    waitpid(child, NULL, 0);

    f.fence = lead(&f, f.store, 2);
    CHECK_UINT(f.fence.epoch, 2);
    close(ready[0]);
    close(ready[1]);
    fixture_end(&f);
}

TEST(a_leader_that_resigns_lets_the_next_in_at_once)
{
    struct fixture f = fixture_leading();
    struct store *second = open_store(f.url);
    struct leader leader = {0};
    CHECK_ERR(store_resign(f.store, &f.fence, NULL), ERR_OK);
    CHECK_ERR(store_leader(second, &f.arena, &leader, NULL), ERR_NOT_FOUND);

    CHECK_UINT(lead(&f, second, 2).epoch, 2);

    CHECK_ERR(commit_row(&f, NULL, NULL), ERR_FENCED);
    CHECK_ERR(store_resign(f.store, &f.fence, NULL), ERR_OK); /* too late: nothing happens */
    CHECK_ERR(store_leader(second, &f.arena, &leader, NULL), ERR_OK);
    CHECK_UINT(leader.fence.epoch, 2);
    store_close(second);
    fixture_end(&f);
}

/* Somebody has written another epoch into the row: the lock is still this store's, so it may begin a new one. */
TEST(a_store_that_lost_its_row_but_not_its_lock_may_lead_anew)
{
    struct fixture f = fixture_leading();
    int64_t now_ms;
    execute(&f, "UPDATE cluster_leader SET epoch = 7");
    CHECK_ERR(store_renew(f.store, &f.fence, 1000, &now_ms, NULL), ERR_FENCED);
    struct fence anew = lead(&f, f.store, 2);
    CHECK_UINT(anew.epoch, 8);
    CHECK_ERR(store_resign(f.store, &f.fence, NULL), ERR_OK); /* of before; the lock stays */
    CHECK_ERR(store_renew(f.store, &anew, 1000, &now_ms, NULL), ERR_OK);
    struct store *second = open_store(f.url);
    struct leader leader = {0};
    struct leader_claim claim = claim_of(3);
    CHECK_ERR(store_lead(second, &claim, &f.arena, &leader, NULL), ERR_BUSY); /* the lock is still there */
    store_close(second);
    fixture_end(&f);
}

/* ---- the schema ---- */

TEST(a_store_without_tables_says_what_to_do)
{
    struct fixture f = fixture_empty();
    struct migration_status status;
    struct leader leader;
    struct leader_claim claim = claim_of(1);
    struct error e = {0};
    uint32_t counts[ROW_META + 1] = {0};
    f.store = open_store(f.url);
    CHECK_ERR(store_schema(f.store, &status, NULL), ERR_OK);
    CHECK_UINT(status.current, 0);
    CHECK_UINT(status.newest, migration_newest("sqlite"));
    CHECK_ERR(store_lead(f.store, &claim, &f.arena, &leader, &e), ERR_PRECONDITION);
    CHECK(strstr(e.hint, "migrate") != NULL);
    CHECK_ERR(store_load(f.store, count_row, counts, NULL), ERR_PRECONDITION);
    fixture_end(&f);
}

TEST(a_newer_schema_is_refused)
{
    struct fixture f = fixture_leading();
    struct migration_status status;
    struct leader leader;
    struct leader_claim claim = claim_of(2);
    struct error e = {0};
    uint32_t counts[ROW_META + 1] = {0};
    store_close(f.store);
    execute(&f, "INSERT INTO schema_migrations VALUES (9999, 'from the future', 0)");
    f.store = open_store(f.url);
    CHECK_ERR(store_schema(f.store, &status, NULL), ERR_OK);
    CHECK_UINT(status.current, 9999);
    CHECK(status.is_too_new);
    CHECK_ERR(store_migrate(f.store, STORE_NEWEST, &e), ERR_PRECONDITION);
    CHECK(strstr(e.message, "9999") != NULL);
    CHECK_ERR(store_migrate(f.store, 0, NULL), ERR_PRECONDITION);
    CHECK_ERR(store_lead(f.store, &claim, &f.arena, &leader, NULL), ERR_PRECONDITION);
    CHECK_ERR(store_load(f.store, count_row, counts, NULL), ERR_PRECONDITION);
    CHECK_STR(query(&f, "SELECT count(*) FROM schema_migrations"), "2");
    fixture_end(&f);
}

TEST(down_and_up_again_leaves_empty_tables)
{
    struct fixture f = fixture_leading();
    struct row_job job = new_job("j1");
    struct migration_status status;
    uint32_t counts[ROW_META + 1] = {0};
    CHECK_ERR(commit_row(&f, &job.row, NULL), ERR_OK);
    CHECK_ERR(store_migrate(f.store, migration_newest("sqlite") + 1, NULL), ERR_INVALID);
    CHECK_ERR(store_migrate(f.store, 0, NULL), ERR_OK);
    CHECK_ERR(store_schema(f.store, &status, NULL), ERR_OK);
    CHECK_UINT(status.current, 0);
    CHECK_STR(query(&f, "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"), "1");
    CHECK_ERR(store_load(f.store, count_row, counts, NULL), ERR_PRECONDITION);
    CHECK_ERR(store_migrate(f.store, STORE_NEWEST, NULL), ERR_OK);
    CHECK_ERR(store_load(f.store, count_row, counts, NULL), ERR_OK);
    CHECK_UINT(counts[ROW_JOB], 0);
    CHECK_UINT(counts[ROW_META], 1);
    fixture_end(&f);
}

/* Kills the process after so many steps of SQLite's virtual machine: inside some statement, not beside all of them. */
static int steps_left;

static int kill_at_step(void *context)
{
    UNUSED(context);
    if (--steps_left <= 0) {
        raise(SIGKILL);
    }
    return 0;
}

static int watch_connection(sqlite3 *db, const char **message, const struct sqlite3_api_routines *api)
{
    UNUSED(message);
    UNUSED(api);
    sqlite3_progress_handler(db, 10, kill_at_step, NULL);
    return SQLITE_OK;
}

/* Migrates to `version` in a process of its own. Returns whether it lived to the end. */
static bool migrate_until(struct fixture *f, uint32_t version, int steps)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct store *store = NULL;
        steps_left = steps;
        sqlite3_auto_extension((void (*)(void))watch_connection);
        bool ok = store_open(f->url, &store, NULL) == ERR_OK && store_migrate(store, version, NULL) == ERR_OK;
        _exit(ok ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return !WIFSIGNALED(status);
}

TEST(a_migration_that_is_killed_in_the_middle_is_undone_or_done)
{
    struct fixture f = fixture_empty();
    uint32_t newest = migration_newest("sqlite");
    int killed = 0;
    for (int steps = 1, direction = 0; direction < 2; steps += 1 + steps / 2) {
        uint32_t from = direction == 0 ? 0 : newest;
        bool lived = migrate_until(&f, newest - from, steps);
        struct migration_status status;
        f.store = open_store(f.url);
        CHECK_ERR(store_schema(f.store, &status, NULL), ERR_OK);
        store_close(f.store);
        f.store = NULL;
        CHECK(status.current == newest - from || (!lived && status.current == from));
        CHECK_STR(query(&f, "SELECT count(*) > 1 FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"),
                  status.current > 0 ? "1" : "0");
        killed += lived ? 0 : 1;
        if (status.current == newest - from) {
            direction++;
            steps = 1;
        }
    }
    CHECK(killed > 10);
    fixture_end(&f);
}

TEST(five_that_create_the_same_store_at_once_all_find_it_whole)
{
    for (int round = 0; round < 2; round++) {
        struct fixture f = fixture_empty();
        pid_t children[5];
        int leaders = 0;
        int hold[2];
        CHECK_INT(pipe(hold), 0);
        for (size_t i = 0; i < ARRAY_LEN(children); i++) {
            children[i] = fork();
            if (children[i] == 0) {
                struct leader leader;
                struct leader_claim claim = claim_of(i + 1);
                char byte;
                close(hold[1]);
                struct store *store = open_store(f.url);
                CHECK_ERR(store_migrate(store, STORE_NEWEST, NULL), ERR_OK);
                enum err err = store_lead(store, &claim, &f.arena, &leader, NULL);
                if (err == ERR_OK && read(hold[0], &byte, 1) != 0) { /* leads until all others have tried */
                    _exit(3);
                }
                _exit(err == ERR_OK ? 0 : err == ERR_BUSY ? 1 : 2);
            }
        }
        close(hold[0]);
        for (size_t i = 0, ended = 0; i < ARRAY_LEN(children); i++) {
            int status = 0;
            CHECK(waitpid(-1, &status, 0) > 0);
            CHECK(WIFEXITED(status));
            CHECK(WEXITSTATUS(status) <= 1);
            leaders += WEXITSTATUS(status) == 0 ? 1 : 0;
            if (++ended == ARRAY_LEN(children) - 1) {
                close(hold[1]);
            }
        }
        CHECK_INT(leaders, 1);
        fixture_end(&f);
    }
}

/* ---- commits ---- */

TEST(a_row_that_is_refused_leaves_nothing_of_its_batch)
{
    struct fixture f = fixture_leading();
    struct row_job job = new_job("j1");
    struct row_lease lease = {.row = {.kind = ROW_LEASE},
                              .ref = {.job_id = "j1"},
                              .attempt = 1,
                              .token = {.bits = {1, 2}},
                              .worker_id = "w",
                              .acquired_at_ms = 5,
                              .expires_at_ms = 5}; /* must be later */
    struct error e = {0};
    uint32_t counts[ROW_META + 1] = {0};
    job.row.next = &lease.row;
    CHECK_ERR(commit_row(&f, &job.row, &e), ERR_INVALID);
    CHECK(strstr(e.message, "expires_at_ms") != NULL);
    CHECK_ERR(store_load(f.store, count_row, counts, NULL), ERR_OK);
    CHECK_UINT(counts[ROW_JOB], 0);
    lease.expires_at_ms = 6;
    CHECK_ERR(commit_row(&f, &job.row, NULL), ERR_OK);
    fixture_end(&f);
}

TEST(a_full_disk_is_not_the_end)
{
    struct fixture f = fixture_leading();
    struct row_job job = new_job("j1");
    static char bytes[3 * 1024 * 1024];
    struct payload payload = {.job_id = "j1", .bytes = bytes, .n_bytes = sizeof bytes};
    const struct row *rows[] = {&job.row};
    struct batch batch = {.rows = rows, .n_rows = 1, .payloads = &payload, .n_payloads = 1};
    struct rlimit before, small;
    uint32_t counts[ROW_META + 1] = {0};
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1024 * 1024;
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum err err = store_commit(f.store, &f.fence, &batch, NULL);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_ERR(err, ERR_UNAVAILABLE);

    CHECK_ERR(store_load(f.store, count_row, counts, NULL), ERR_OK);
    CHECK_UINT(counts[ROW_JOB], 0);
    CHECK_ERR(store_commit(f.store, &f.fence, &batch, NULL), ERR_OK);
    CHECK_ERR(store_load(f.store, count_row, counts, NULL), ERR_OK);
    CHECK_UINT(counts[ROW_JOB], 1);
    fixture_end(&f);
}

/* ---- pruning ---- */

enum { MANY = 15000 };

/* An ended job with more tasks than one call removes. */
static void commit_large_job(struct fixture *f)
{
    struct row_job job = new_job("large");
    static struct row_task tasks[MANY];
    job.state = JOB_SUCCEEDED;
    job.finished_at_ms = 2000;
    job.name = "nightly";
    job.idempotency_key = "key";
    struct row *last = &job.row;
    for (uint32_t i = 0; i < MANY; i++) {
        tasks[i] = (struct row_task){.row = {.kind = ROW_TASK}, .is_new = true, .ref = {"large", 0, i}};
        last->next = &tasks[i].row;
        last = last->next;
    }
    CHECK_ERR(commit_row(f, &job.row, NULL), ERR_OK);
}

TEST(a_job_too_large_for_one_step_is_gone_from_the_first_step_on)
{
    struct fixture f = fixture_leading();
    uint32_t counts[ROW_META + 1] = {0};
    struct job_query jobs = {.state = -1, .limit = 10};
    struct row_job again = new_job("large");
    struct page page;
    const char *job_id;
    bool more = false;
    commit_large_job(&f);
    CHECK_ERR(store_jobs(f.store, &jobs, &f.arena, &page, NULL), ERR_OK);
    CHECK_UINT(page.n_rows, 1);
    CHECK_ERR(store_find_key(f.store, "key", 0, &f.arena, &job_id, NULL), ERR_OK);

    CHECK_ERR(store_prune(f.store, &f.fence, 3000, 10, &more, NULL), ERR_OK);

    CHECK(more);
    CHECK_STR(query(&f, "SELECT count(*) FROM tasks"), "5000");
    CHECK_ERR(store_load_job(f.store, "large", count_row, counts, NULL), ERR_NOT_FOUND);
    CHECK_ERR(store_jobs(f.store, &jobs, &f.arena, &page, NULL), ERR_OK);
    CHECK_UINT(page.n_rows, 0);
    CHECK_ERR(store_find_key(f.store, "key", 0, &f.arena, &job_id, NULL), ERR_NOT_FOUND);
    CHECK_ERR(store_prune(f.store, &f.fence, 3000, 10, &more, NULL), ERR_OK);
    CHECK(!more);
    CHECK_STR(query(&f, "SELECT count(*) FROM tasks"), "0");
    CHECK_STR(query(&f, "SELECT count(*) FROM jobs"), "0");
    CHECK_ERR(commit_row(&f, &again.row, NULL), ERR_OK);
    fixture_end(&f);
}

/* ---- plans ---- */

/* What may be read from end to end: tables that hold what is there now, a list with a limit, the result of another. */
static bool may_scan(enum sqlite_statement which, const char *step)
{
    static const enum sqlite_statement allowed[] = {SQL_LOAD_NODES, SQL_LOAD_LEASES, SQL_LOAD_MAP_OUTPUTS,
                                                    SQL_DATA_SETS,  SQL_INBOX,       SQL_PRUNE_FIND_EVENTS,
                                                    SQL_SUMMARY};
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        if (which == allowed[i]) {
            return true;
        }
    }
    return strcmp(step, "SCAN p") == 0 || strncmp(step, "SCAN (subquery", strlen("SCAN (subquery")) == 0;
}

/* `which` SQL_COUNT: one that is made from a table. */
static void check_plan(struct fixture *f, enum sqlite_statement which, sqlite3_stmt *stmt)
{
    static const char list[] = "SCAN bulk VIRTUAL TABLE"; /* the rows of a batch */
    sqlite3_stmt *plan = NULL;
    char *text = arena_format(&f->arena, "EXPLAIN QUERY PLAN %s", sqlite3_sql(stmt));
    CHECK_INT(sqlite3_prepare_v2(sqlite__of(f->store)->db, text, -1, &plan, NULL), SQLITE_OK);
    while (sqlite3_step(plan) == SQLITE_ROW) {
        const char *step = (const char *)sqlite3_column_text(plan, 3);
        bool fine = strncmp(step, "SCAN", 4) != 0 || strncmp(step, list, strlen(list)) == 0 || may_scan(which, step);
        if (!fine) {
            print_error("%s\n  %s\n", text, step);
        }
        CHECK(fine);
    }
    sqlite3_finalize(plan);
}

TEST(no_statement_walks_through_history)
{
    struct fixture f = fixture_leading();
    struct sqlite *s = sqlite__of(f.store);
    for (int which = SQL_LEADER; which < SQL_COUNT; which++) {
        sqlite3_stmt *stmt = NULL;
        CHECK_ERR(sqlite__statement(s, (enum sqlite_statement)which, &stmt, NULL), ERR_OK);
        check_plan(&f, (enum sqlite_statement)which, stmt);
    }
    fixture_end(&f);
}

/* Events have nothing that changes. */
TEST(what_a_batch_does_to_rows_goes_along_their_keys)
{
    struct fixture f = fixture_leading();
    struct sqlite *s = sqlite__of(f.store);
    for (int kind = 0; kind < ROW_META; kind++) {
        const struct table *table = s->tables[kind];
        for (int deed = 0; table != NULL && deed < SQLITE_DEEDS; deed++) {
            sqlite3_stmt *stmt = NULL;
            if (kind != ROW_EVENT || deed != ROWS_CHANGED) {
                CHECK_ERR(sqlite__row_statement(s, table, (enum sqlite_deed)deed, &stmt, NULL), ERR_OK);
                check_plan(&f, SQL_COUNT, stmt);
            }
        }
    }
    fixture_end(&f);
}

/* ---- the log ---- */

/* Each has its name as content, many times. */
#define CONTENT "replace(hex(zeroblob(300)), '00', name)"
#define MANY_ROWS(which)                                                                                               \
    "WITH RECURSIVE n (i, name) AS (SELECT 1, '" which "-1' UNION ALL SELECT i + 1, '" which "-' || (i + 1) FROM n "   \
    "WHERE i < 500) INSERT INTO data_sets SELECT name, " CONTENT ", 'csv' FROM n"

/* Pages that did not fit into the cache are written before the commit, and may still be gathered when all is undone. */
TEST(what_was_rolled_back_never_overwrites_what_another_committed)
{
    struct fixture f = fixture_leading();
    struct sqlite *s = sqlite__of(f.store);
    struct row_job job = new_job("j");
    CHECK_INT(sqlite3_exec(s->db, "PRAGMA cache_size = 10", NULL, NULL, NULL), SQLITE_OK);
    CHECK_ERR(sqlite__begin_write(s, NULL), ERR_OK);
    CHECK_INT(sqlite3_exec(s->db, MANY_ROWS("undone"), NULL, NULL, NULL), SQLITE_OK);
    sqlite__rollback(s);

    /* Each page of it goes into the log once, and more of them than were undone. */
    execute(&f, "PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 10000; BEGIN; " MANY_ROWS("one") "; " MANY_ROWS(
                    "two") "; " MANY_ROWS("three") "; " MANY_ROWS("four") "; COMMIT");
    CHECK_ERR(commit_row(&f, &job.row, NULL), ERR_OK);

    CHECK_STR(query(&f, "PRAGMA integrity_check"), "ok");
    CHECK_STR(query(&f, "SELECT count(*) FROM data_sets WHERE source = " CONTENT), "2000");
    CHECK_STR(query(&f, "SELECT count(*) FROM data_sets WHERE name LIKE 'undone%'"), "0");
    CHECK_STR(query(&f, "SELECT job_id FROM jobs"), "j");
    fixture_end(&f);
}

TEST(a_commit_of_many_pages_is_there_for_others_at_once)
{
    struct fixture f = fixture_leading();
    struct store *other = open_store(f.url);
    struct row_job job = new_job("j");
    const struct row *rows[] = {&job.row};
    const void *found = NULL;
    size_t n = 0;
    for (size_t size = 1; size < 8000000; size = size * 3 + 4091) {
        char *bytes = arena_alloc(&f.arena, size);
        struct payload payload = {.job_id = "j", .digest = {{(uint8_t)size, 1}}, .bytes = bytes, .n_bytes = size};
        struct batch batch = {.rows = rows, .n_rows = 1, .payloads = &payload, .n_payloads = 1};
        memset(bytes, (int)(size % 251), size);
        CHECK_ERR(store_commit(f.store, &f.fence, &batch, NULL), ERR_OK);
        CHECK_ERR(store_payload(other, "j", &payload.digest, &f.arena, &found, &n, NULL), ERR_OK);
        CHECK_UINT(n, size);
        CHECK(memcmp(found, bytes, size) == 0);
    }
    store_close(other);
    CHECK_STR(query(&f, "PRAGMA integrity_check"), "ok");
    fixture_end(&f);
}
