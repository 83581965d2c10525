/*
 * step_test.c - a step of the schema over tables that are full: a second step, made here, with a column that is computed
 * from rows, an index built anew and a table whose rows move, up and down, killed after each of its statements and at
 * random moments. Every row of every table must be there afterwards, with the same content.
 */
#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "content.h"
#include "picture.h"
#include "store/migration.h"

enum { N_JOBS = 200, TASKS_PER_JOB = 10, SHOWN = 10, PARTS = 3, NOWHERE = PARTS };

/* ---- the step ---- */

/* What it does, in order, and how it is undone. */
struct step {
    const char *up[PARTS];
    const char *down[PARTS];
    const char *hold; /* never ends */
};

#define COUNT_TASKS "(SELECT count(*) FROM @tasks t WHERE t.job_id = @jobs.job_id)"
#define MOVE_BACK                                                                                                      \
    "INSERT INTO @moved SELECT seq, at_ms, event_type, job_id, stage, task, attempt_id, node_id, details FROM "        \
    "@task_events; DROP TABLE @task_events;"

static const struct step of_sqlite = {
    .up = {"ALTER TABLE jobs ADD COLUMN n_tasks INTEGER NOT NULL DEFAULT 0; UPDATE jobs SET n_tasks = " COUNT_TASKS ";",
           "DROP INDEX jobs_by_state; CREATE INDEX jobs_by_state ON jobs (state, n_tasks, submitted_at_ms, job_id);",
           "CREATE TABLE moved (seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, event_type INTEGER NOT NULL, job_id "
           "TEXT, stage INTEGER, task INTEGER, attempt_id INTEGER, node_id TEXT, details TEXT, day INTEGER NOT NULL);"
           "INSERT INTO moved SELECT *, at_ms / 86400000 FROM task_events; DROP TABLE task_events;"
           "ALTER TABLE moved RENAME TO task_events;"
           "CREATE INDEX task_events_of_job ON task_events (job_id, seq) WHERE job_id IS NOT NULL;"},
    .down = {"CREATE TABLE moved (seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, event_type INTEGER NOT NULL, job_id "
             "TEXT, stage INTEGER, task INTEGER, attempt_id INTEGER, node_id TEXT, details TEXT);" MOVE_BACK
             "ALTER TABLE moved RENAME TO task_events;"
             "CREATE INDEX task_events_of_job ON task_events (job_id, seq) WHERE job_id IS NOT NULL;",
             "DROP INDEX jobs_by_state; CREATE INDEX jobs_by_state ON jobs (state, submitted_at_ms, job_id);",
             "ALTER TABLE jobs DROP COLUMN n_tasks;"},
    .hold = "SELECT hold();",
};

#define KEYS_OF_EVENTS                                                                                                 \
    "ALTER TABLE capstan.moved RENAME TO task_events;"                                                                 \
    "ALTER TABLE capstan.task_events ADD CONSTRAINT task_events_pkey PRIMARY KEY (seq);"                               \
    "CREATE INDEX task_events_of_job ON capstan.task_events (job_id, seq) WHERE job_id IS NOT NULL;"

static const struct step of_postgres = {
    .up = {"ALTER TABLE capstan.jobs ADD COLUMN n_tasks bigint NOT NULL DEFAULT 0;"
           "UPDATE capstan.jobs SET n_tasks = " COUNT_TASKS ";",
           "DROP INDEX capstan.jobs_by_state;"
           "CREATE INDEX jobs_by_state ON capstan.jobs (state, n_tasks, submitted_at_ms, job_id);",
           "CREATE TABLE capstan.moved (LIKE capstan.task_events);"
           "ALTER TABLE capstan.moved ADD COLUMN day bigint NOT NULL;"
           "INSERT INTO capstan.moved SELECT *, at_ms / 86400000 FROM capstan.task_events;"
           "DROP TABLE capstan.task_events;" KEYS_OF_EVENTS},
    .down = {"CREATE TABLE capstan.moved (LIKE capstan.task_events);"
             "ALTER TABLE capstan.moved DROP COLUMN day;" MOVE_BACK KEYS_OF_EVENTS,
             "DROP INDEX capstan.jobs_by_state;"
             "CREATE INDEX jobs_by_state ON capstan.jobs (state, submitted_at_ms, job_id);",
             "ALTER TABLE capstan.jobs DROP COLUMN n_tasks;"},
    .hold = "SELECT pg_sleep(3600);",
};

static const struct step *step_of(const struct subject *s)
{
    return s->kind == ENGINE_SQLITE ? &of_sqlite : &of_postgres;
}

static const char *join(struct subject *s, const char *const *parts, int hold_after)
{
    struct buf text = {0};
    for (int i = 0; i < PARTS; i++) {
        for (const char *p = parts[i]; *p != '\0'; p++) {
            if (*p != '@') {
                buf_char(&text, *p);
            } else if (s->kind == ENGINE_POSTGRES) {
                buf_text(&text, "capstan.");
            }
        }
        buf_text(&text, i == hold_after ? step_of(s)->hold : "");
    }
    const char *joined = arena_strdup(&s->arena, text.data);
    buf_deinit(&text);
    return joined;
}

/* Until the test ends the program knows the step as its newest; it hangs after a part of it, or NOWHERE. */
static void know_step(struct subject *s, int hold_up_after, int hold_down_after)
{
    static struct migration table[2];
    migration_extend(NULL);
    table[0] = (struct migration){.version = migration_newest(s->engine) + 1,
                                  .name = "further",
                                  .dialect = s->engine,
                                  .up = join(s, step_of(s)->up, hold_up_after),
                                  .down = join(s, step_of(s)->down, hold_down_after)};
    migration_extend(table);
}

/* ---- what is in the database, seen by the engine's own client ---- */

/* SQL for all rows of all tables as lines, with the columns that there are now. */
static const char *sql_for_rows(struct subject *s)
{
    const char *selects =
        s->kind == ENGINE_SQLITE
            ? "SELECT group_concat(q, ' UNION ALL ') FROM (SELECT 'SELECT ''' || m.name || '''' || group_concat("
              "' || ''|'' || quote(' || p.name || ')', '') || ' AS line FROM ' || m.name AS q "
              "FROM sqlite_schema m JOIN pragma_table_info(m.name) p WHERE m.type = 'table' "
              "AND m.name NOT LIKE 'sqlite_%' AND m.name <> 'schema_migrations' GROUP BY m.name)"
            : "SELECT string_agg(q, ' UNION ALL ') FROM (SELECT 'SELECT ''' || table_name || '''' || string_agg("
              "' || ''|'' || quote_nullable(' || column_name || '::text)', '') || ' AS line FROM capstan.' || "
              "table_name AS q FROM information_schema.columns WHERE table_schema = 'capstan' "
              "AND table_name <> 'schema_migrations' GROUP BY table_name) x";
    return arena_format(&s->arena, "SELECT line FROM (%s) x ORDER BY line%s", subject_sql(s, selects),
                        s->kind == ENGINE_SQLITE ? "" : " COLLATE \"C\"");
}

/* Tables, columns and indexes. */
static const char *shape_of(struct subject *s)
{
    return subject_sql(
        s, s->kind == ENGINE_SQLITE
               ? "SELECT m.name, p.name, p.type, p.\"notnull\", p.pk FROM sqlite_schema m "
                 "JOIN pragma_table_info(m.name) p WHERE m.type = 'table' ORDER BY m.name, p.cid;"
                 "SELECT name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY name"
               : "SELECT 'index', indexname, indexdef, '' FROM pg_indexes WHERE schemaname = 'capstan' UNION ALL "
                 "SELECT table_name, column_name, data_type || coalesce(collation_name, ''), is_nullable FROM "
                 "information_schema.columns WHERE table_schema = 'capstan' ORDER BY 1, 2");
}

static uint32_t version_of(struct subject *s)
{
    struct migration_status status = {0};
    struct store *store = subject_open(s);
    CHECK_OK(s, store_schema(store, &status, &s->e));
    subject_close(s, store);
    return status.current;
}

static void migrate(struct subject *s, uint32_t version)
{
    struct store *store = subject_open(s);
    CHECK_OK(s, store_migrate(store, version, &s->e));
    subject_close(s, store);
    CHECK_UINT(version_of(s), version);
}

/* ---- a full database ---- */

static void add_extras(struct subject *s, const char *const *job_ids)
{
    struct payload payloads[N_JOBS];
    const struct data_set set = {.name = "sales", .source = "/data/*.parquet", .format = "parquet"};
    for (int i = 0; i < N_JOBS; i++) {
        payloads[i] = (struct payload){.job_id = job_ids[i], .bytes = job_ids[i], .n_bytes = strlen(job_ids[i])};
        payloads[i].digest = digest_from((uint64_t)i);
    }
    struct batch batch = {.payloads = payloads, .n_payloads = N_JOBS, .data_sets = &set, .n_data_sets = 1};
    CHECK_OK(s, store_commit(s->store, &s->fence, &batch, &s->e));
    subject_add_inbox(s, "later", "{\"tasks\": []}");
}

struct full {
    const char *job_ids[N_JOBS];
    struct picture picture; /* of some of them, by the store */
    const char *rows_sql;
    const char *rows; /* what that yields */
    uint32_t version;
    const char *shapes[2]; /* without the step, and with it */
};

/* Thousands of tasks, attempts and events, and something in every other table. Nobody leads afterwards. */
static void fill(struct full *full, struct subject *s)
{
    struct rows rows = {0};
    uint64_t seq = 0;
    subject_lead(s);
    add_node(&rows, "w1");
    for (int i = 0; i < N_JOBS; i++) {
        full->job_ids[i] = arena_format(&s->arena, "job-%03d", i);
        add_whole_job(&rows, full->job_ids[i]);
        for (uint32_t task = 1; task < TASKS_PER_JOB; task++) {
            struct task_ref ref = ref_of(full->job_ids[i], 0, task);
            add_task(&rows, ref);
            add_attempt(&rows, ref, 1);
            add_event(&rows, ++seq, ref);
        }
    }
    CHECK_OK(s, rows_commit(s, &rows));
    rows_deinit(&rows);
    add_extras(s, full->job_ids);
    picture_all(&full->picture, s, full->job_ids, SHOWN);
    CHECK_OK(s, store_resign(s->store, &s->fence, &s->e));
    subject_close(s, s->store);
}

static void check_same_text(const char *actual, const char *expected)
{
    size_t at = 0;
    while (actual[at] != '\0' && actual[at] == expected[at]) {
        at++;
    }
    if (actual[at] != expected[at]) {
        fail_msg("byte %zu: \"%.200s\", expected \"%.200s\"", at, actual + at, expected + at);
    }
}

/* One version or the other, whole, and every row as it was. */
static void check_whole(struct subject *s, const struct full *full)
{
    uint32_t version = version_of(s);
    CHECK(version == full->version || version == full->version + 1);
    check_same_text(shape_of(s), full->shapes[version - full->version]);
    check_same_text(subject_sql(s, full->rows_sql), full->rows);
    if (version > full->version) {
        CHECK_STR(subject_sql(s, "SELECT count(*) FROM @jobs WHERE n_tasks <> " COUNT_TASKS), "0\n");
        CHECK_STR(subject_sql(s, "SELECT count(*) FROM @task_events WHERE day <> at_ms / 86400000"), "0\n");
    }
}

/* A full database that has been through the step and back. */
static void full_init(struct full *full, struct subject *s)
{
    *full = (struct full){0};
    fill(full, s);
    full->version = version_of(s);
    full->rows_sql = sql_for_rows(s);
    full->rows = subject_sql(s, full->rows_sql);
    CHECK(strstr(full->rows, "inbox|") != NULL && strstr(full->rows, "payloads|") != NULL);
    full->shapes[0] = shape_of(s);
    know_step(s, NOWHERE, NOWHERE);
    migrate(s, full->version + 1);
    full->shapes[1] = shape_of(s);
    CHECK(strcmp(full->shapes[0], full->shapes[1]) != 0);
    check_whole(s, full);
    migrate(s, full->version);
    check_whole(s, full);
}

static void full_deinit(struct full *full)
{
    picture_deinit(&full->picture);
}

/* ---- tests ---- */

CONTRACT_OF_FILES(a_step_up_and_down_keeps_every_row_of_a_full_database)
{
    struct full full;
    struct picture after = {0};
    full_init(&full, s); /* there and back, and looked at by SQL */
    migrate(s, full.version + 1);
    check_whole(s, &full);
    migrate(s, full.version);
    check_whole(s, &full);
    migration_extend(NULL);
    subject_lead(s); /* the program of before goes on with it */
    picture_all(&after, s, full.job_ids, SHOWN);
    CHECK_PICTURES(&after, &full.picture);
    picture_deinit(&after);
    full_deinit(&full);
}

/* And what looks at it sees a single row that is missing. */
CONTRACT_OF_FILES(a_step_that_loses_one_row_on_its_way_is_noticed)
{
    struct full full;
    full_init(&full, s);
    struct migration lossy[2] = {{.version = full.version + 1, .name = "lossy", .dialect = s->engine}, {0}};
    lossy[0].up = arena_format(&s->arena, "%sDELETE FROM %stask_events WHERE seq = 1234;",
                               join(s, step_of(s)->up, NOWHERE), s->kind == ENGINE_POSTGRES ? "capstan." : "");
    lossy[0].down = join(s, step_of(s)->down, NOWHERE);
    migration_extend(lossy);
    migrate(s, full.version + 1);
    CHECK(strcmp(subject_sql(s, full.rows_sql), full.rows) != 0);
    full_deinit(&full);
}

/* ---- killed ---- */

static int held; /* the end of a pipe where one hears that the step has come to where it hangs */

static void hold(sqlite3_context *context, int n, sqlite3_value **values)
{
    (void)context;
    (void)n;
    (void)values;
    if (write(held, "x", 1) == 1) {
        for (;;) {
            pause();
        }
    }
}

static int add_hold(sqlite3 *db, char **message, const struct sqlite3_api_routines *api)
{
    (void)message;
    (void)api;
    return sqlite3_create_function_v2(db, "hold", 0, SQLITE_UTF8, NULL, hold, NULL, NULL, NULL);
}

/* Goes to one version and then to the other, for ever if need be. */
static pid_t start_migrating(struct subject *s, uint32_t version, uint32_t then)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct store *store = NULL;
        struct error e;
        sqlite3_auto_extension((void (*)(void))add_hold);
        enum err err = store_open(s->url, &store, &e);
        while (err == ERR_OK) {
            err = store_migrate(store, version, &e);
            err = err == ERR_OK ? store_migrate(store, then, &e) : err;
        }
        _exit(1);
    }
    return child;
}

static void pause_ms(int64_t ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static void await_held(struct subject *s, int fd)
{
    char byte;
    if (s->kind == ENGINE_SQLITE) {
        CHECK_INT(read(fd, &byte, 1), 1);
        return;
    }
    while (strcmp(subject_sql(s, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                                 "wait_event = 'PgSleep'"),
                  "1\n") != 0) {
        pause_ms(5);
    }
}

/* kill -9; the server then loses the connection, and what it still does for it comes to its end. */
static void kill_hard(struct subject *s, pid_t child)
{
    int status = 0;
    CHECK_INT(kill(child, SIGKILL), 0);
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status)); /* it had not failed before */
    while (s->kind == ENGINE_POSTGRES &&
           strcmp(subject_sql(s, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = "
                                 "current_database() AND pid <> pg_backend_pid()"),
                  "0\n") != 0) {
        pause_ms(5);
    }
}

CONTRACT_OF_FILES(a_step_that_is_killed_after_any_of_its_parts_has_done_nothing)
{
    struct full full;
    int ends[2];
    full_init(&full, s);
    CHECK_INT(pipe(ends), 0);
    held = ends[1];
    for (int i = 0; i < 2 * PARTS; i++) {
        bool is_up = i < PARTS;
        uint32_t from = full.version + (is_up ? 0 : 1);
        migrate(s, from);
        know_step(s, is_up ? i : NOWHERE, is_up ? NOWHERE : i - PARTS);
        pid_t child = start_migrating(s, 2 * full.version + 1 - from, from);
        await_held(s, ends[0]);
        kill_hard(s, child);
        know_step(s, NOWHERE, NOWHERE);
        CHECK_UINT(version_of(s), from);
        check_whole(s, &full);
    }
    migrate(s, full.version);
    check_whole(s, &full);
    close(ends[0]);
    close(ends[1]);
    full_deinit(&full);
}

CONTRACT_OF_FILES(a_step_that_is_killed_at_any_moment_is_done_or_undone)
{
    struct full full;
    struct prng prng;
    prng_init(&prng, 7);
    full_init(&full, s);
    for (int round = 0; round < 4; round++) {
        pid_t child = start_migrating(s, full.version + 1, full.version);
        pause_ms(prng_range(&prng, 1, 120));
        kill_hard(s, child);
        check_whole(s, &full);
    }
    migrate(s, full.version);
    check_whole(s, &full);
    full_deinit(&full);
}
