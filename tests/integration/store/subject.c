#include "subject.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "broken.h"
#include "store/memory.h"
#include "store/migration.h"

#define HOUR_MS INT64_C(3600000)

static const char *const engine_names[] = {"memory", "sqlite", "postgres"};
static struct subject current;
static struct subject reference;
static struct subject embedded;
static uint32_t n_databases;
static pid_t main_pid;
static char folder[64]; /* of this run */

/* ---- commands ---- */

/* What a command prints; NULL if it fails. Arguments go by the environment, so nothing is ever quoted. */
static const char *output_of(struct arena *arena, const char *command)
{
    struct buf buf = {0};
    char chunk[4096];
    FILE *pipe = popen(command, "r");
    if (pipe == NULL) {
        return NULL;
    }
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) {
        buf_append(&buf, chunk, n);
    }
    buf_text(&buf, "");
    const char *text = pclose(pipe) == 0 ? arena_strdup(arena, buf.data) : NULL;
    buf_deinit(&buf);
    return text;
}

static void run_command(const char *command)
{
    if (system(command) != 0) {
        print_error("%s failed\n", command);
    }
}

static void remove_folder(void)
{
    if (getpid() == main_pid && folder[0] != '\0') {
        setenv("FOLDER", folder, 1);
        run_command("rm -rf \"$FOLDER\"");
    }
}

static const char *own_folder(void)
{
    if (folder[0] == '\0') {
        main_pid = getpid();
        snprintf(folder, sizeof folder, "/tmp/capstan-store-XXXXXX");
        if (mkdtemp(folder) == NULL) {
            folder[0] = '\0';
            fail_msg("cannot make a folder in /tmp");
        }
        atexit(remove_folder);
    }
    return folder;
}

/* ---- PostgreSQL ---- */

static char server[512]; /* the URL up to the database's name, then the options: two strings */
static const char *server_options;

static void stop_server(void)
{
    if (getpid() == main_pid) {
        setenv("FOLDER", folder, 1);
        run_command("tests/integration/postgres/server.sh remove \"$FOLDER/pg\"");
    }
}

static void use_server(const char *url)
{
    snprintf(server, sizeof server, "%s", url);
    server[strcspn(server, "\n")] = '\0';
    char *options = strchr(server, '?');
    if (options == NULL || options[-1] == '/') {
        fail_msg("a server's URL must be postgres://user@host/database?options, not %s", server);
        return;
    }
    server_options = options + 1;
    *options = '\0';
    strrchr(server, '/')[1] = '\0';
}

/* Once; a second try after a failure fails as fast as the first. */
static void start_server(void)
{
    static bool tried;
    const char *given = getenv("CAPSTAN_TEST_POSTGRES");
    if (server_options != NULL) {
        return;
    }
    if (given != NULL) {
        use_server(given);
        return;
    }
    if (!tried) {
        tried = true;
        setenv("FOLDER", own_folder(), 1);
        struct arena arena = {0};
        run_command("chmod 755 \"$FOLDER\"");
        const char *url = output_of(&arena, "tests/integration/postgres/server.sh start \"$FOLDER/pg\" --fsync=off");
        if (url != NULL) {
            use_server(url);
            atexit(stop_server);
        }
        arena_deinit(&arena);
    }
    if (server_options == NULL) {
        fail_msg("PostgreSQL cannot be started: see above; PG_BIN names the folder of its programs");
    }
}

static const char *psql(struct arena *arena, const char *database, const char *sql)
{
    char *url = arena_format(arena, "%s%s?%s", server, database, server_options);
    setenv("URL", url, 1);
    setenv("SQL", sql, 1);
    return output_of(arena, "psql -XAtq -v ON_ERROR_STOP=1 -d \"$URL\" -c \"$SQL\"");
}

/* ---- databases ---- */

static void make_database(struct subject *s)
{
    uint32_t number = ++n_databases;
    switch (s->kind) {
    case ENGINE_MEMORY:
        s->database = arena_format(&s->arena, "contract-%u", number);
        s->url = arena_format(&s->arena, "memory:%s", s->database);
        break;
    case ENGINE_SQLITE:
        s->database = arena_format(&s->arena, "%s/%u.db", own_folder(), number);
        s->url = arena_format(&s->arena, "sqlite:%s", s->database);
        break;
    case ENGINE_POSTGRES:
        start_server();
        s->database = arena_format(&s->arena, "contract_%d_%u", (int)getpid(), number);
        s->url = arena_format(&s->arena, "%s%s?%s", server, s->database, server_options);
        if (psql(&s->arena, "postgres", arena_format(&s->arena, "CREATE DATABASE %s", s->database)) == NULL) {
            fail_msg("cannot make a database");
        }
        break;
    }
}

static void end_database(struct subject *s)
{
    if (s->database == NULL) {
        return;
    }
    if (s->kind == ENGINE_MEMORY) {
        memory_drop(s->database);
    } else if (s->kind == ENGINE_POSTGRES && getenv("CAPSTAN_TEST_POSTGRES") == NULL) {
        return; /* it goes with its server */
    } else if (s->kind == ENGINE_POSTGRES) {
        psql(&s->arena, "postgres", arena_format(&s->arena, "DROP DATABASE IF EXISTS %s WITH (FORCE)", s->database));
    } else {
        unlink(s->database);
        unlink(arena_format(&s->arena, "%s-wal", s->database));
        unlink(arena_format(&s->arena, "%s-shm", s->database));
    }
}

static void end_subject(struct subject *s)
{
    while (s->n_open > 0) {
        store_close(s->open[--s->n_open]);
    }
    end_database(s);
    arena_deinit(&s->arena);
    *s = (struct subject){0};
}

/* A test that fails leaves by longjmp; what it left behind is cleared away before the next. */
void subject_run(enum engine_kind kind, contract_fn *fn)
{
    end_subject(&current);
    end_subject(&reference);
    end_subject(&embedded);
    migration_extend(NULL);
    current.kind = kind;
    current.engine = engine_names[kind];
    make_database(&current);
    fn(&current);
    end_subject(&current);
    end_subject(&reference);
    end_subject(&embedded);
}

void subject_check(struct subject *s, enum err actual, enum err expected, const char *text, const char *file, int line)
{
    if (actual != expected) {
        print_error("%s: %s\n", s->engine, actual == ERR_OK ? "succeeds" : s->e.message);
    }
    test_check_err(actual, expected, text, file, line);
}

struct store *subject_open(struct subject *s)
{
    struct store *store = NULL;
    CHECK(s->n_open < SUBJECT_STORES_MAX);
    CHECK_OK(s, store_open(s->url, &store, &s->e));
    store = broken_wrap(store);
    s->open[s->n_open++] = store;
    return store;
}

void subject_close(struct subject *s, struct store *store)
{
    for (uint32_t i = 0; i < s->n_open; i++) {
        if (s->open[i] == store) {
            s->open[i] = s->open[--s->n_open];
            store_close(store);
            return;
        }
    }
    fail_msg("this store is not open");
}

void subject_lead(struct subject *s)
{
    struct leader leader;
    struct leader_claim claim = subject_claim("leader", HOUR_MS);
    s->store = subject_open(s);
    CHECK_OK(s, store_migrate(s->store, STORE_NEWEST, &s->e));
    CHECK_OK(s, store_lead(s->store, &claim, &s->arena, &leader, &s->e));
    s->fence = leader.fence;
}

struct leader_claim subject_claim(const char *node_id, int64_t ttl_ms)
{
    static uint64_t last = 1000;
    return (struct leader_claim){
        .node_id = node_id, .address = "host:7400", .ttl_ms = ttl_ms, .token = {{++last, last * UINT64_C(0x9e3779b9)}}};
}

void subject_outwait(struct subject *s, struct store *store, int64_t ttl_ms)
{
    struct leader leader = {0};
    CHECK_OK(s, store_leader(store, &s->arena, &leader, &s->e));
    if (s->kind == ENGINE_MEMORY) {
        memory_set_clock(s->database, leader.now_ms + ttl_ms);
        return;
    }
    /* Its clock is the database's, and nobody can hand that in. */
    while (leader.expires_in_ms > 0) {
        struct timespec pause = {.tv_nsec = 20 * 1000000};
        nanosleep(&pause, NULL);
        CHECK_OK(s, store_leader(store, &s->arena, &leader, &s->e));
    }
}

/* ---- behind the store's back ---- */

static const char *with_schema(struct subject *s, const char *sql)
{
    struct buf buf = {0};
    for (; *sql != '\0'; sql++) {
        if (*sql == '@') {
            buf_text(&buf, s->kind == ENGINE_POSTGRES ? "capstan." : "");
        } else {
            buf_char(&buf, *sql);
        }
    }
    const char *text = arena_strdup(&s->arena, buf.data);
    buf_deinit(&buf);
    return text;
}

const char *subject_sql(struct subject *s, const char *sql)
{
    const char *text = NULL;
    if (s->kind == ENGINE_POSTGRES) {
        text = psql(&s->arena, s->database, with_schema(s, sql));
    } else if (s->kind == ENGINE_SQLITE) {
        setenv("FILE", s->database, 1);
        setenv("SQL", with_schema(s, sql), 1);
        text = output_of(&s->arena, "sqlite3 -batch -bail -list -cmd '.timeout 5000' \"$FILE\" \"$SQL\"");
    }
    if (text == NULL) {
        fail_msg("%s: this failed: %s", s->engine, sql);
    }
    return text;
}

void subject_set_schema(struct subject *s, uint32_t version)
{
    if (s->kind == ENGINE_MEMORY) {
        memory_set_schema(s->database, version);
        return;
    }
    subject_sql(s, arena_format(&s->arena, "UPDATE @schema_migrations SET version = %u", version));
}

void subject_add_inbox(struct subject *s, const char *job_id, const char *tree)
{
    if (s->kind == ENGINE_MEMORY) {
        memory_add_inbox(s->database, job_id, tree, strlen(tree));
        return;
    }
    if (s->kind == ENGINE_SQLITE) {
        subject_sql(s, arena_format(&s->arena, "INSERT INTO inbox (job_id, tree) VALUES ('%s', CAST('%s' AS BLOB))",
                                    job_id, tree));
        return;
    }
    /* The id is a member beside the tasks, which is not part of the tree that is kept. */
    const char *sql = arena_format(&s->arena, "SELECT @submit('%s'::jsonb || '{\"job_id\": \"%s\"}')", tree, job_id);
    const char *id = subject_sql(s, sql);
    CHECK_STR(id, arena_format(&s->arena, "%s\n", job_id));
}

static void write_hex(struct buf *buf, const struct value *value)
{
    const unsigned char *bytes = value->bytes;
    for (size_t i = 0; i < value->n; i++) {
        buf_format(buf, "%02X", bytes[i]);
    }
}

static void write_attempt(void *context, const struct table *table, const struct value *values)
{
    struct buf *buf = context;
    for (uint32_t i = 0; i < table->n_columns; i++) {
        buf_text(buf, i > 0 ? "|" : "");
        if (values[i].type == VALUE_IS_INT) {
            buf_format(buf, "%" PRId64, values[i].number);
        } else {
            write_hex(buf, &values[i]);
        }
    }
    buf_char(buf, '\n');
}

/* `hex` is a macro for a text, `HEX` one for bytes. */
#define ATTEMPTS(hex, HEX)                                                                                             \
    "SELECT " hex("job_id") ", stage, task, attempt_id, " HEX("idempotency_key") ", coalesce(" hex(                    \
        "node_id") ", ''), "                                                                                           \
                   "created_at_ms, status, changed_at_ms FROM @execution_idempotency ORDER BY 1, 2, 3, 4"
#define SQLITE_HEX(column) "hex(" column ")"
#define POSTGRES_HEX(column) "upper(encode(" column ", 'hex'))"
#define POSTGRES_TEXT_HEX(column) POSTGRES_HEX("convert_to(" column ", 'UTF8')")

const char *subject_attempts(struct subject *s)
{
    struct buf buf = {0};
    if (s->kind == ENGINE_SQLITE) {
        return subject_sql(s, ATTEMPTS(SQLITE_HEX, SQLITE_HEX));
    }
    if (s->kind == ENGINE_POSTGRES) {
        return subject_sql(s, ATTEMPTS(POSTGRES_TEXT_HEX, POSTGRES_HEX));
    }
    buf_text(&buf, "");
    memory_each(s->database, ROW_ATTEMPT, write_attempt, &buf);
    const char *text = arena_strdup(&s->arena, buf.data);
    buf_deinit(&buf);
    return text;
}

struct subject *subject_reference(void)
{
    struct subject *r = &reference;
    struct leader leader;
    struct leader_claim claim = subject_claim("reference", HOUR_MS);
    CHECK(r->database == NULL);
    *r = (struct subject){.kind = ENGINE_MEMORY, .engine = "reference"};
    make_database(r);
    CHECK_OK(r, store_open(r->url, &r->store, &r->e));
    r->open[r->n_open++] = r->store;
    CHECK_OK(r, store_migrate(r->store, STORE_NEWEST, &r->e));
    CHECK_OK(r, store_lead(r->store, &claim, &r->arena, &leader, &r->e));
    r->fence = leader.fence;
    return r;
}

struct subject *subject_embedded(void)
{
    CHECK(embedded.database == NULL);
    embedded = (struct subject){.kind = ENGINE_SQLITE, .engine = "sqlite"};
    make_database(&embedded);
    return &embedded;
}

void subject_end_others(void)
{
    end_subject(&reference);
    end_subject(&embedded);
}
