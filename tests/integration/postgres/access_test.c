/* What another role than the owner of the schema can do: leave jobs in the inbox, once it was granted, and nothing else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integration/postgres/fixture.h"

#define HOUR_MS INT64_C(3600000)

#define SUBMIT "SELECT capstan.submit('{\"job_id\": \"mine\", \"tasks\": []}')"

/* The same database as seen by that role, which is new. Roles belong to the server, so each test takes another name. */
static struct server as_role(const struct fixture *f, const char *role)
{
    char sql[128];
    struct server other = f->server;
    snprintf(sql, sizeof sql, "CREATE ROLE %s LOGIN", role);
    free(server_sql(&f->server, sql));
    const char *rest = strchr(f->server.url, '@');
    CHECK(rest != NULL);
    CHECK((size_t)snprintf(other.url, sizeof other.url, "postgres://%s%s", role, rest) < sizeof other.url);
    return other;
}

/* The grants of docs/operations-postgresql.md. */
static void grant(const struct fixture *f, const char *role)
{
    char sql[256];
    snprintf(sql, sizeof sql,
             "GRANT USAGE ON SCHEMA capstan TO %s; GRANT EXECUTE ON FUNCTION capstan.submit(jsonb) TO %s", role, role);
    free(server_sql(&f->server, sql));
}

static long long inbox_size(const struct fixture *f)
{
    return server_number(&f->server, "SELECT count(*) FROM capstan.inbox");
}

TEST(a_role_that_was_granted_it_submits_jobs_in_its_own_transactions)
{
    struct fixture f;
    struct server_session session;
    fixture_lead(&f, HOUR_MS);
    struct server app = as_role(&f, "app_granted");
    grant(&f, "app_granted");
    server_session_open(&session, &app);
    server_session_run(&session, "BEGIN");
    server_session_run(&session, SUBMIT);
    CHECK_INT(inbox_size(&f), 0);
    server_session_run(&session, "COMMIT");
    CHECK_INT(inbox_size(&f), 1);
    server_session_run(&session, "BEGIN");
    server_session_run(&session, SUBMIT);
    server_session_run(&session, "ROLLBACK");
    CHECK_INT(inbox_size(&f), 1);
    server_session_close(&session);
    fixture_close(&f);
}

TEST(a_role_without_grants_submits_nothing)
{
    struct fixture f;
    fixture_lead(&f, HOUR_MS);
    struct server app = as_role(&f, "app_stranger");
    CHECK(server_try(&app, SUBMIT) != 0);
    free(server_sql(&f.server, "GRANT USAGE ON SCHEMA capstan TO app_stranger"));
    CHECK(server_try(&app, "SELECT 1") == 0);
    CHECK(server_try(&app, SUBMIT) != 0);
    CHECK_INT(inbox_size(&f), 0);
    fixture_close(&f);
}

TEST(a_role_that_submits_can_touch_no_table_and_call_nothing_else)
{
    static const char *const attempts[] = {
        "SELECT * FROM capstan.inbox",
        "SELECT * FROM capstan.payloads",
        "INSERT INTO capstan.inbox (job_id, tree) VALUES ('not / an id', '{}')",
        "SELECT nextval('capstan.inbox_id_seq')",
        "UPDATE capstan.cluster_leader SET epoch = epoch + 1",
        "DELETE FROM capstan.jobs",
        "SELECT capstan.clear_job('mine', 0)",
        "SELECT capstan.fence(1, '')",
        "CREATE TABLE capstan.mine (x int)",
        "SELECT capstan.submit('{\"job_id\": \"not / an id\", \"tasks\": []}')",
    };
    struct fixture f;
    fixture_lead(&f, HOUR_MS);
    struct server app = as_role(&f, "app_curious");
    grant(&f, "app_curious");
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        if (server_try(&app, attempts[i]) == 0) {
            print_error("a role that may only submit can do this: %s\n", attempts[i]);
            CHECK(false);
        }
    }
    CHECK_INT(server_try(&app, SUBMIT), 0);
    CHECK_INT(inbox_size(&f), 1);
    fixture_close(&f);
}

/* The function has its owner's rights, so nothing of the caller's may run inside it. */
TEST(what_a_role_puts_into_its_search_path_does_not_run_with_the_rights_of_the_owner)
{
    static const char trap[] =
        "CREATE FUNCTION trap.convert_to(text, name) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "'caught as %', current_user; END $$; "
        "CREATE FUNCTION trap.gen_random_uuid() RETURNS uuid LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "'caught as %', current_user; END $$; "
        "CREATE FUNCTION trap.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "'caught as %', current_user; END $$; "
        "CREATE FUNCTION trap.no(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "'caught as %', current_user; END $$; "
        "CREATE OPERATOR trap.!~ (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.no); "
        "CREATE TEMP TABLE inbox (id int, job_id text, tree bytea)";
    struct fixture f;
    fixture_lead(&f, HOUR_MS);
    struct server app = as_role(&f, "app_trapper");
    grant(&f, "app_trapper");
    free(server_sql(&f.server, "CREATE SCHEMA trap AUTHORIZATION app_trapper"));
    struct server_session session;
    server_session_open(&session, &app);
    server_session_run(&session, trap);
    server_session_run(&session, "SET search_path = trap, pg_temp, pg_catalog");
    server_session_run(&session, "SELECT capstan.submit('{\"tasks\": []}')");
    server_session_close(&session);
    CHECK_INT(inbox_size(&f), 1);
    fixture_close(&f);
}
