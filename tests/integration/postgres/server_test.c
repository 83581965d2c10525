/* Trouble with the server: it restarts, dies, is read-only, says nothing. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "integration/postgres/fixture.h"

#define HOUR_MS INT64_C(3600000)

TEST(a_store_survives_a_restart_of_the_server)
{
    struct fixture f;
    int64_t now_ms = 0;
    fixture_lead(&f, HOUR_MS);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 1, 1, &f.e), ERR_OK);
    server_restart(&f.server);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 2, 1, &f.e), ERR_OK);
    server_stop(&f.server);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 3, 1, &f.e), ERR_UNAVAILABLE);
    CHECK_CALL(&f, store_renew(f.store, &f.fence, HOUR_MS, &now_ms, &f.e), ERR_UNAVAILABLE);
    server_restart(&f.server);
    CHECK_CALL(&f, store_renew(f.store, &f.fence, HOUR_MS, &now_ms, &f.e), ERR_OK);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 3, 1, &f.e), ERR_OK);
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.jobs"), 3);
    fixture_close(&f);
}

struct killer {
    const struct server *server;
    uint32_t n_rounds;
};

static int kill_and_restart(void *context)
{
    const struct killer *killer = context;
    for (uint32_t i = 0; i < killer->n_rounds; i++) {
        pause_ms(30 + (int64_t)(i * 37 % 90));
        server_kill(killer->server);
        server_restart(killer->server);
    }
    return 0;
}

#define BATCHES_MAX 100000
#define BATCH_TASKS 7

/* Every acknowledged batch is there; every other one is there as a whole or not at all. */
static void check_batches(struct fixture *f, const bool *acknowledged, uint64_t n)
{
    static bool found[BATCHES_MAX];
    char *text = server_sql(&f->server, "SELECT substr(job_id, 5) FROM capstan.jobs");
    memset(found, 0, sizeof found);
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        unsigned long long seq = strtoull(line, NULL, 10);
        CHECK(seq > 0 && seq <= n);
        found[seq] = true;
    }
    free(text);
    for (uint64_t seq = 1; seq <= n; seq++) {
        if (acknowledged[seq] && !found[seq]) {
            print_error("batch %llu was acknowledged and is gone\n", (unsigned long long)seq);
        }
        CHECK(!acknowledged[seq] || found[seq]);
    }
    CHECK_INT(server_number(&f->server,
                            "SELECT count(*) FROM capstan.jobs j WHERE (SELECT count(*) FROM capstan.tasks t "
                            "WHERE t.job_id = j.job_id) <> 7 OR NOT EXISTS (SELECT FROM capstan.task_events v "
                            "WHERE v.job_id = j.job_id) OR NOT EXISTS (SELECT FROM capstan.stages s "
                            "WHERE s.job_id = j.job_id)"),
              0);
    CHECK_INT(server_number(&f->server, "SELECT (SELECT count(*) FROM capstan.tasks) - 7 * count(*) FROM capstan.jobs"),
              0);
}

TEST(no_acknowledged_batch_is_lost_when_the_server_dies)
{
    static bool acknowledged[BATCHES_MAX];
    struct fixture f;
    uint64_t seq = 0;
    uint32_t n_acknowledged = 0, n_lost = 0;
    const char *rounds = getenv("CAPSTAN_TEST_CRASHES");
    fixture_lead(&f, HOUR_MS);
    memset(acknowledged, 0, sizeof acknowledged);
    struct killer killer = {&f.server, rounds == NULL ? 6 : (uint32_t)strtoul(rounds, NULL, 10)};
    pid_t pid = child_start(kill_and_restart, &killer);
    while (child_is_running(pid)) {
        CHECK(seq + 1 < BATCHES_MAX);
        enum err err = fixture_commit(f.store, &f.fence, ++seq, BATCH_TASKS, &f.e);
        CHECK(err == ERR_OK || err == ERR_UNAVAILABLE);
        acknowledged[seq] = err == ERR_OK;
        n_acknowledged += err == ERR_OK;
        n_lost += err != ERR_OK;
        pause_ms(err == ERR_OK ? 0 : 5);
    }
    CHECK(n_acknowledged > 0);
    CHECK(n_lost > 0);
    check_batches(&f, acknowledged, seq);
    fixture_close(&f);
}

/* Makes the server read its settings, and waits until new sessions are read-only, or not. */
static void reload(const struct server *server, bool is_read_only)
{
    long long wanted = is_read_only;
    free(server_sql(server, "SELECT pg_reload_conf()"));
    while (server_number(server, "SELECT current_setting('default_transaction_read_only')::boolean::int") != wanted) {
        pause_ms(5);
    }
}

TEST(a_server_that_turns_read_only_is_unavailable)
{
    struct fixture f;
    struct store *other = NULL;
    fixture_lead(&f, HOUR_MS);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 1, 1, &f.e), ERR_OK);
    free(server_sql(&f.server, "ALTER SYSTEM SET default_transaction_read_only = on"));
    reload(&f.server, true);
    /* The transaction that says READ WRITE itself still gets through; a new connection does not. */
    CHECK_CALL(&f, store_open(f.server.url, &other, &f.e), ERR_UNAVAILABLE);
    free(server_sql(&f.server, "ALTER SYSTEM RESET default_transaction_read_only"));
    reload(&f.server, false);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 2, 1, &f.e), ERR_OK);
    fixture_close(&f);
}

/* As a standby does, and as a server does whose disk is full. */
TEST(a_write_that_the_server_cannot_do_now_is_unavailable_and_not_invalid)
{
    static const char *const codes[] = {"25006", "53100", "57014", "40001", "57P01"};
    struct fixture f;
    fixture_lead(&f, HOUR_MS);
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        char sql[512];
        snprintf(sql, sizeof sql,
                 "CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
                 "$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '%s'; END $$; "
                 "CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON capstan.task_events "
                 "FOR EACH ROW EXECUTE FUNCTION public.refuse()",
                 codes[i]);
        free(server_sql(&f.server, sql));
        CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 1, 1, &f.e), ERR_UNAVAILABLE);
    }
    free(server_sql(&f.server, "DROP TRIGGER refuse ON capstan.task_events"));
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.jobs"), 0);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 1, 1, &f.e), ERR_OK);
    fixture_close(&f);
}

TEST(a_backend_that_was_terminated_is_replaced)
{
    static const char ours[] =
        "FROM pg_stat_activity WHERE application_name = 'capstan' AND datname = current_database()";
    char which[256], terminate[256];
    struct fixture f;
    snprintf(which, sizeof which, "SELECT pid %s", ours);
    snprintf(terminate, sizeof terminate, "SELECT pg_terminate_backend(pid) %s", ours);
    fixture_lead(&f, HOUR_MS);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        CHECK_CALL(&f, fixture_commit(f.store, &f.fence, seq, 1, &f.e), ERR_OK);
        pid_t backend = (pid_t)server_number(&f.server, which);
        CHECK(backend > 0);
        free(server_sql(&f.server, terminate));
        while (kill(backend, 0) == 0) { /* until its socket is closed, which is later than it is in no list any more */
            pause_ms(5);
        }
    }
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.jobs"), 3);
    fixture_close(&f);
}

TEST(a_server_that_says_nothing_does_not_hold_a_call_for_ever)
{
    struct fixture f;
    int64_t now_ms = 0;
    fixture_lead(&f, HOUR_MS);
    pid_t backend = (pid_t)server_number(&f.server, "SELECT backend_pid FROM capstan.cluster_leader");
    CHECK_INT(kill(backend, SIGSTOP), 0);
    int64_t before_ms = clock_ms();
    CHECK_CALL(&f, store_renew(f.store, &f.fence, HOUR_MS, &now_ms, &f.e), ERR_UNAVAILABLE);
    CHECK(clock_ms() - before_ms < 8000);
    CHECK_CALL(&f, store_renew(f.store, &f.fence, HOUR_MS, &now_ms, &f.e), ERR_OK);
    kill(backend, SIGCONT);
    fixture_close(&f);
}

TEST(a_commit_is_synchronous_whatever_the_default_is)
{
    struct fixture f;
    fixture_lead(&f, HOUR_MS);
    store_close(f.store);
    free(server_sql(&f.server, "ALTER ROLE postgres SET synchronous_commit = off"));
    free(server_sql(&f.server, "CREATE TABLE public.seen (setting text); "
                               "CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                               "INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); RETURN NEW; "
                               "END $$; CREATE TRIGGER see BEFORE INSERT ON capstan.jobs "
                               "FOR EACH ROW EXECUTE FUNCTION public.see()"));
    CHECK_CALL(&f, store_open(f.server.url, &f.store, &f.e), ERR_OK);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 1, 1, &f.e), ERR_OK);
    char *seen = server_sql(&f.server, "SELECT setting FROM public.seen");
    CHECK_STR(seen, "on\n");
    free(seen);
    free(server_sql(&f.server, "ALTER ROLE postgres RESET synchronous_commit"));
    fixture_close(&f);
}
