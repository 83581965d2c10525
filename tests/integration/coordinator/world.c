#include "integration/coordinator/world.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "integration/coordinator/clocks.h"
#include "integration/store/subject.h"

#define ROUNDS_USUAL 20

static struct server shared;
static pid_t owner; /* of the server */
static struct world world;

static void remove_server(void)
{
    if (getpid() == owner) {
        server_remove(&shared);
    }
}

static void start_server(void)
{
    if (owner != 0) {
        return;
    }
    owner = getpid();
    server_start(&shared, "--fsync=off");
    atexit(remove_server);
    free(server_sql(&shared, "ALTER SYSTEM SET log_line_prefix = '%m [%p] <%a> %e '"));
    free(server_sql(&shared, "ALTER SYSTEM SET log_connections = off"));
    free(server_sql(&shared, "SELECT pg_reload_conf()"));
}

/* What a test that failed has left behind: it may be frozen, or dead. */
static void end_world(void)
{
    for (uint32_t i = 0; i < world.n_nodes; i++) {
        if (world.nodes[i].pid != 0) {
            kill(world.nodes[i].pid, SIGKILL);
            node_kill(&world.nodes[i]);
        }
    }
    relay_stop(&world.relay);
    ledger_free(world.ledger);
    arena_deinit(&world.arena);
    world = (struct world){0};
}

struct world *world_open_in(const char *tablespace)
{
    static uint32_t n_databases;
    struct store *store = NULL;
    struct error e = {0};
    start_server();
    end_world();
    if (server_try(&shared, "SELECT 1") != 0) {
        server_restart(&shared);
    }
    snprintf(world.database, sizeof world.database, "world_%u", ++n_databases);
    world.server = shared;
    if (tablespace == NULL) {
        world.server = server_database(&shared, world.database);
    } else {
        char name[128];
        snprintf(name, sizeof name, "%s TABLESPACE %s", world.database, tablespace);
        world.server = server_database(&shared, name);
        snprintf(world.server.url, sizeof world.server.url, "postgres://postgres@/%s?host=%s&port=5432", world.database,
                 shared.dir);
    }
    world.ledger = ledger_new();
    CHECK_ERR(store_open(world.server.url, &store, &e), ERR_OK);
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &e), ERR_OK);
    store_close(store);
    return &world;
}

struct world *world_open(void)
{
    return world_open_in(NULL);
}

void world_close(struct world *w)
{
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (w->nodes[i].pid != 0) {
            node_stop(&w->nodes[i]);
        }
    }
    end_world();
}

struct node *world_start(struct world *w, struct node_options options)
{
    CHECK(w->n_nodes < WORLD_NODES_MAX);
    struct node *node = &w->nodes[w->n_nodes++];
    if (options.url == NULL) {
        options.url = world_url(w, options.node_id, false);
    }
    node_start(node, w->ledger, &options);
    return node;
}

const char *world_url(struct world *w, const char *name, bool relayed)
{
    return arena_format(&w->arena, "postgres://postgres@/%s?host=%s&port=5432&application_name=%s", w->database,
                        relayed ? w->relay.dir : w->server.dir, name);
}

/* ---- SQL ---- */

static const char *run_sql(struct world *w, const char *format, va_list args)
{
    struct buf sql = {0};
    char small[8192];
    int n = vsnprintf(small, sizeof small, format, args);
    CHECK(n >= 0 && (size_t)n < sizeof small);
    buf_text(&sql, small);
    char *text = server_sql(&w->server, sql.data);
    buf_deinit(&sql);
    size_t length = strlen(text);
    if (length > 0 && text[length - 1] == '\n') {
        text[length - 1] = '\0';
    }
    const char *copy = arena_strdup(&w->arena, text);
    free(text);
    return copy;
}

const char *world_sql(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = run_sql(w, format, args);
    va_end(args);
    return text;
}

int64_t world_number(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = run_sql(w, format, args);
    va_end(args);
    return strtoll(text, NULL, 10);
}

bool world_await(struct world *w, int64_t ms, const char *sql)
{
    int64_t until_ms = clocks_mono_ms() + ms;
    while (world_number(w, "%s", sql) == 0) {
        if (clocks_mono_ms() >= until_ms) {
            return false;
        }
        clocks_pause(10);
    }
    return true;
}

/* ---- history ---- */

void world_watch(struct world *w)
{
    world_sql(w, "CREATE TABLE public.history (id bigserial PRIMARY KEY, writer text, epoch bigint, what text, at "
                 "timestamptz DEFAULT clock_timestamp());"
                 "CREATE TABLE public.events (seq bigint PRIMARY KEY, writer text, epoch bigint);"
                 "CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "INSERT INTO public.history (writer, epoch, what) SELECT current_setting('application_name'), "
                 "max(epoch), TG_OP || ' ' || TG_TABLE_NAME FROM capstan.cluster_leader; RETURN NULL; END $$;"
                 "CREATE FUNCTION public.note_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "INSERT INTO public.events SELECT NEW.seq, current_setting('application_name'), epoch "
                 "FROM capstan.cluster_leader; RETURN NULL; END $$;"
                 "CREATE TRIGGER note_event AFTER INSERT ON capstan.task_events FOR EACH ROW "
                 "EXECUTE FUNCTION public.note_event();"
                 "DO $$ DECLARE t text; BEGIN FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'capstan' "
                 "AND tablename <> 'schema_migrations' LOOP EXECUTE format('CREATE TRIGGER note AFTER INSERT OR UPDATE "
                 "OR DELETE ON capstan.%%I FOR EACH %%s EXECUTE FUNCTION public.note()', t, "
                 "CASE t WHEN 'cluster_leader' THEN 'ROW' ELSE 'STATEMENT' END); END LOOP; END $$");
}

void world_check_history(struct world *w)
{
    const char *mixed = world_sql(w, "SELECT epoch, string_agg(DISTINCT writer, ' and ') FROM public.events "
                                     "GROUP BY epoch HAVING count(DISTINCT writer) > 1");
    const char *late =
        world_sql(w, "SELECT * FROM (SELECT seq, writer, epoch, max(epoch) OVER (ORDER BY seq) AS newest "
                     "FROM public.events) e WHERE epoch < newest ORDER BY seq LIMIT 5");
    CHECK_STR(mixed, "");
    CHECK_STR(late, "");
    /* The same in the order of the transactions' writes, over all tables. */
    CHECK_STR(world_sql(w, "SELECT epoch, string_agg(DISTINCT writer, ' and ') FROM public.history "
                           "WHERE writer LIKE 'node-%%' AND what NOT LIKE '%%cluster_leader' "
                           "GROUP BY epoch HAVING count(DISTINCT writer) > 1"),
              "");
}

void world_check_tables(struct world *w)
{
    struct buf sql = {0};
    for (const char *at = ledger_tables_sql; *at != '\0'; at++) {
        if (*at == '@') {
            buf_text(&sql, "capstan.");
        } else {
            buf_char(&sql, *at);
        }
    }
    char *wrong = server_sql(&w->server, sql.data);
    buf_deinit(&sql);
    CHECK_STR(wrong, "");
    free(wrong);
}

void world_check_since(struct world *w, uint32_t from)
{
    struct store *store = NULL;
    struct error e = {0};
    world_check_tables(w);
    CHECK_ERR(store_open(w->server.url, &store, &e), ERR_OK);
    ledger_check(w->ledger, from, store);
    ledger_check_whole(store);
    store_close(store);
}

void world_check(struct world *w)
{
    world_check_since(w, 0);
}

uint32_t world_log_lines(struct world *w, const char *a, const char *b)
{
    char path[128];
    char line[4096];
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s/log", w->server.dir);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        n += strstr(line, a) != NULL && strstr(line, b) != NULL;
    }
    fclose(file);
    return n;
}

uint32_t world_rounds(uint32_t usual)
{
    const char *text = getenv("CAPSTAN_CRASH_ROUNDS");
    uint32_t rounds = text == NULL ? usual : (uint32_t)strtoul(text, NULL, 10) * usual / ROUNDS_USUAL;
    return rounds == 0 ? 1 : rounds;
}
