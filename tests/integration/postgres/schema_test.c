/* Migrations with several processes, and the inbox from the application's side. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/postgres/fixture.h"

#define HOUR_MS INT64_C(3600000)

static int migrate(void *context)
{
    struct store *store = NULL;
    enum err err = store_open(context, &store, NULL);
    if (err == ERR_OK) {
        err = store_migrate(store, STORE_NEWEST, NULL);
    }
    store_close(store);
    return err == ERR_OK ? 0 : 1;
}

TEST(several_that_migrate_at_once_take_turns)
{
    struct fixture f;
    struct migration_status status = {0};
    pid_t pids[4];
    fixture_open(&f);
    for (int i = 0; i < 4; i++) {
        pids[i] = child_start(migrate, f.server.url);
    }
    for (int i = 0; i < 4; i++) {
        CHECK_INT(child_wait(pids[i]), 0);
    }
    CHECK_CALL(&f, store_schema(f.store, &status, &f.e), ERR_OK);
    CHECK_UINT(status.current, status.newest);
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.schema_migrations"), status.newest);
    fixture_close(&f);
}

/* Somebody else has begun to make the same schema, so the migration waits in the middle; there it is killed. */
TEST(a_migration_that_is_killed_in_the_middle_leaves_nothing)
{
    struct fixture f;
    struct server_session other;
    struct migration_status status = {0};
    fixture_open(&f);
    free(server_sql(&f.server, "CREATE SCHEMA capstan"));
    server_session_open(&other, &f.server);
    server_session_run(&other, "BEGIN");
    server_session_run(&other, "CREATE TABLE capstan.payloads (x int)");
    pid_t pid = child_start(migrate, f.server.url);
    while (server_number(&f.server, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
        pause_ms(10);
    }
    kill(pid, SIGKILL);
    CHECK_INT(child_wait(pid), 128 + SIGKILL);
    server_session_run(&other, "ROLLBACK");
    CHECK_CALL(&f, store_schema(f.store, &status, &f.e), ERR_OK);
    CHECK_UINT(status.current, 0);
    CHECK_CALL(&f, store_migrate(f.store, STORE_NEWEST, &f.e), ERR_OK);
    CHECK_CALL(&f, store_schema(f.store, &status, &f.e), ERR_OK);
    CHECK_UINT(status.current, status.newest);
    server_session_close(&other);
    fixture_close(&f);
}

TEST(a_store_on_a_database_without_a_schema_says_so)
{
    struct fixture f;
    struct leader leader;
    fixture_open(&f);
    CHECK_CALL(&f, store_leader(f.store, &f.arena, &leader, &f.e), ERR_PRECONDITION);
    CHECK(strstr(f.e.hint, "migrate") != NULL);
    fixture_close(&f);
}

TEST(on_a_schema_of_later_a_program_sees_who_leads_and_does_not_lead_itself)
{
    struct fixture f;
    struct server_session other;
    struct leader leader;
    struct store_summary summary;
    struct store *fresh = NULL;
    fixture_lead(&f, HOUR_MS);
    server_session_open(&other, &f.server);
    server_session_run(&other, "INSERT INTO capstan.schema_migrations VALUES (999, 'later')");

    /* Over a connection that stood before, and over one that is made now. */
    CHECK_CALL(&f, store_open(f.server.url, &fresh, &f.e), ERR_OK);
    CHECK_CALL(&f, store_leader(fresh, &f.arena, &leader, &f.e), ERR_OK);
    CHECK_CALL(&f, store_summarize(fresh, &summary, &f.e), ERR_UNAVAILABLE); /* somebody else may be able to */
    CHECK_CALL(&f, store_resign(f.store, &f.fence, &f.e), ERR_OK);
    struct leader_claim claim = fixture_claim("n", HOUR_MS);
    CHECK_CALL(&f, store_lead(f.store, &claim, &f.arena, &leader, &f.e), ERR_PRECONDITION);
    CHECK(strstr(f.e.message, "999") != NULL);
    CHECK_CALL(&f, store_lead(fresh, &claim, &f.arena, &leader, &f.e), ERR_PRECONDITION);

    server_session_run(&other, "DELETE FROM capstan.schema_migrations WHERE version = 999");
    CHECK_CALL(&f, store_lead(fresh, &claim, &f.arena, &leader, &f.e), ERR_OK);
    store_close(fresh);
    server_session_close(&other);
    fixture_close(&f);
}

static uint32_t inbox_size(struct fixture *f, const struct inbox_entry **out)
{
    uint32_t n = 0;
    CHECK_CALL(f, store_inbox(f->store, &(struct inbox_query){.limit = 10}, &f->arena, out, &n, &f->e), ERR_OK);
    return n;
}

TEST(a_job_is_submitted_when_the_transaction_of_the_application_commits)
{
    struct fixture f;
    struct server_session app;
    const struct inbox_entry *entries = NULL;
    fixture_lead(&f, HOUR_MS);
    server_session_open(&app, &f.server);
    server_session_run(&app, "BEGIN");
    server_session_run(&app, "SELECT capstan.submit('{\"job_id\": \"mine\", \"tasks\": []}')");
    CHECK_UINT(inbox_size(&f, &entries), 0);
    server_session_run(&app, "COMMIT");
    CHECK_UINT(inbox_size(&f, &entries), 1);
    CHECK_STR(entries[0].job_id, "mine");
    CHECK(memchr(entries[0].tree, '{', entries[0].n_bytes) == entries[0].tree);
    uint64_t id = entries[0].id;

    server_session_run(&app, "BEGIN");
    server_session_run(&app, "SELECT capstan.submit('{\"tasks\": []}')");
    server_session_run(&app, "ROLLBACK");
    CHECK_UINT(inbox_size(&f, &entries), 1);

    struct batch done = {.inbox_done = &id, .n_inbox_done = 1};
    CHECK_CALL(&f, store_commit(f.store, &f.fence, &done, &f.e), ERR_OK);
    CHECK_UINT(inbox_size(&f, &entries), 0);
    server_session_close(&app);
    fixture_close(&f);
}

TEST(a_job_that_is_submitted_without_an_id_gets_one)
{
    struct fixture f;
    const struct inbox_entry *entries = NULL;
    fixture_lead(&f, HOUR_MS);
    char *id = server_sql(&f.server, "SELECT capstan.submit('{\"tasks\": [1]}')");
    CHECK_UINT(inbox_size(&f, &entries), 1);
    id[strcspn(id, "\n")] = '\0';
    CHECK_STR(entries[0].job_id, id);
    free(id);
    fixture_close(&f);
}
