/* Jobs that an application leaves in the database, in transactions of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "integration/postgres/server.h"
#include "service/peer.h"
#include "test.h"

#define TREE "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}]}"

static bool is_known(struct peer *p, const char *job_id)
{
    struct pb_get_query_status_request *request = peer_message(p, PB_GET_QUERY_STATUS_REQUEST);
    request->query_id = arena_strdup(&p->arena, job_id);
    return peer_call(p, "ControlPlane/GetQueryStatus", request, PB_GET_QUERY_STATUS_RESPONSE, NULL) == ERR_OK;
}

static void await_job(struct peer *p, const char *job_id)
{
    int64_t until_ms = clock_mono_ms() + 30000;
    while (!is_known(p, job_id)) {
        CHECK(clock_mono_ms() < until_ms);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static void await_inbox(const struct server *server, int64_t n)
{
    int64_t until_ms = clock_mono_ms() + 30000;
    while (server_number(server, "SELECT count(*) FROM capstan.inbox") != n) {
        CHECK(clock_mono_ms() < until_ms);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static void leave(const struct server *server, const char *before, const char *job_id, const char *after)
{
    char sql[512];
    snprintf(
        sql, sizeof sql,
        "%s SELECT capstan.submit('{\"job_id\":\"%s\",\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":"
        "{\"ms\":0}}]}'); %s",
        before, job_id, after);
    free(server_sql(server, sql));
}

TEST(a_job_left_in_a_transaction_runs_if_that_commits_and_only_then)
{
    struct server server;
    struct peer p;
    server_start(&server, NULL);
    peer_init_on(&p, server.url);
    peer_register(&p, "w1");
    leave(&server, "BEGIN;", "rolled-back", "ROLLBACK;");
    leave(&server, "BEGIN;", "committed", "COMMIT;");
    await_job(&p, "committed");
    CHECK(!is_known(&p, "rolled-back"));
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED, ""), "");
    CHECK_INT(peer_status(&p, "committed", 10000)->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED);
    CHECK_INT(server_number(&server, "SELECT count(*) FROM capstan.inbox"), 0);
    peer_deinit(&p);
    server_remove(&server);
}

TEST(a_tree_that_is_not_valid_becomes_a_failed_job_and_holds_up_nobody)
{
    struct server server;
    struct peer p;
    server_start(&server, NULL);
    peer_init_on(&p, server.url);
    free(server_sql(&server,
                    "SELECT capstan.submit('{\"job_id\":\"bad\",\"tasks\":[{\"name\":\"a\"},{\"name\":\"a\"}]}')"));
    leave(&server, "", "good", "");
    await_job(&p, "good");
    await_job(&p, "bad");
    const struct pb_query_status *status = peer_status(&p, "bad", 0);
    CHECK_INT(status->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED);
    CHECK(strstr(status->message, "executor") != NULL);
    CHECK_INT(server_number(&server, "SELECT count(*) FROM capstan.inbox"), 0);
    peer_deinit(&p);
    server_remove(&server);
}

/* As many as one look takes: if they stayed, nobody would ever see what is behind them. */
TEST(entries_under_the_id_of_another_job_are_removed_and_hold_up_nobody)
{
    struct server server;
    struct peer p;
    server_start(&server, NULL);
    peer_init_on(&p, server.url);
    leave(&server, "", "taken", "");
    await_job(&p, "taken");
    leave(&server, "BEGIN;", "taken", /* the same tree again: no other job */
          "SELECT count(capstan.submit('{\"job_id\":\"taken\",\"tasks\":[{\"name\":\"other\",\"executor\":\"sleep\","
          "\"inputs\":{\"ms\":0}}]}')) FROM generate_series(1, 100); COMMIT;");
    leave(&server, "", "behind", "");
    await_job(&p, "behind");
    int64_t until_ms = clock_mono_ms() + 30000;
    while (server_number(&server, "SELECT count(*) FROM capstan.inbox") > 0) {
        CHECK(clock_mono_ms() < until_ms);
    }
    CHECK_INT(server_number(&server, "SELECT count(*) FROM capstan.jobs"), 2);
    CHECK_INT(server_number(&server, "SELECT count(*) FROM capstan.stages WHERE name = 'other'"), 0);
    peer_deinit(&p);
    server_remove(&server);
}

TEST(what_was_left_while_nobody_led_is_taken_by_the_next_leader)
{
    struct server server;
    struct peer p;
    server_start(&server, NULL);
    peer_init_on(&p, server.url); /* makes the schema */
    peer_deinit(&p);
    leave(&server, "", "first", "");
    free(server_sql(&server,
                    "SELECT count(capstan.submit('" TREE "')) FROM generate_series(1, 250)")); /* several looks */
    leave(&server, "", "last", "");
    peer_init_on(&p, server.url);
    await_job(&p, "first");
    await_job(&p, "last");
    int64_t until_ms = clock_mono_ms() + 30000;
    while (server_number(&server, "SELECT count(*) FROM capstan.inbox") > 0) {
        CHECK(clock_mono_ms() < until_ms);
    }
    CHECK_INT(server_number(&server, "SELECT count(*) FROM capstan.jobs"), 252);
    peer_deinit(&p);
    server_remove(&server);
}

TEST(a_job_id_that_is_none_is_refused_in_the_transaction)
{
    struct server server;
    struct peer p;
    server_start(&server, NULL);
    peer_init_on(&p, server.url);
    CHECK(server_try(&server, "SELECT capstan.submit('{\"job_id\":\"a b\",\"tasks\":[]}')") != 0);
    CHECK_INT(server_number(&server, "SELECT count(*) FROM capstan.inbox"), 0);
    peer_deinit(&p);
    server_remove(&server);
}

TEST(trap_29_an_entry_that_the_database_refuses_does_not_depose_leader_after_leader)
{
    struct server server;
    struct peer p;
    server_start(&server, NULL);
    peer_init_on(&p, server.url);
    free(server_sql(&server, "ALTER TABLE capstan.jobs ADD CHECK (job_id NOT LIKE 'poison%')"));
    long long epoch = server_number(&server, "SELECT epoch FROM capstan.cluster_leader");
    leave(&server, "", "poison", "");
    leave(&server, "", "good", "");
    await_job(&p, "good");
    int64_t until_ms = clock_mono_ms() + 60000;
    while (server_number(&server, "SELECT count(*) FROM capstan.inbox") > 0) {
        CHECK(clock_mono_ms() < until_ms);
    }
    CHECK(server_number(&server, "SELECT epoch FROM capstan.cluster_leader") - epoch <= 6);
    leave(&server, "", "later", "");
    await_job(&p, "later");
    peer_deinit(&p);
    server_remove(&server);
}

static void finish_one(struct peer *p)
{
    CHECK_STR(peer_report(p, "w1", peer_take(p, "w1", "a"), CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED, ""), "");
}

TEST(what_the_scheduler_has_no_room_for_waits_in_the_inbox)
{
    struct server server;
    struct peer p;
    struct settings settings = settings_default();
    settings.core.max_live_tasks = 1;
    server_start(&server, NULL);
    peer_init_on_with(&p, server.url, settings);
    peer_register(&p, "w1");
    /* One for which there will never be room does not wait. */
    leave(&server,
          "SELECT capstan.submit('{\"job_id\":\"large\",\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\"},"
          "{\"name\":\"b\",\"executor\":\"sleep\"}]}');",
          "first", "");
    await_job(&p, "large");
    CHECK_INT(peer_status(&p, "large", 0)->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED);
    await_job(&p, "first");
    leave(&server, "BEGIN; SELECT capstan.submit(('{\"job_id\":\"second\",' || substr('" TREE "', 2))::jsonb);",
          "third", "COMMIT;");
    await_inbox(&server, 2);
    finish_one(&p);
    leave(&server, "", "wakes", "");
    /* Which of them finds the room depends on the moment at which it is there; but each does, one after the other. */
    for (int64_t n_left = 2; n_left >= 0; n_left--) {
        await_inbox(&server, n_left);
        CHECK_INT(server_number(&server, "SELECT count(*) FROM capstan.jobs WHERE state < 2"), 1);
        finish_one(&p);
        free(server_sql(&server, "NOTIFY capstan_inbox")); /* or it would look after a while */
    }
    CHECK(is_known(&p, "second"));
    CHECK(is_known(&p, "third")); /* which was there when there was no room for it */
    CHECK(is_known(&p, "wakes"));
    peer_deinit(&p);
    server_remove(&server);
}

/* More of them than one look goes through, and each with more tasks than there is room for. */
TEST(what_there_is_no_room_for_holds_up_nobody_behind_it_for_whom_there_is)
{
    struct server server;
    struct peer p;
    struct settings settings = settings_default();
    settings.core.max_live_tasks = 5;
    server_start(&server, NULL);
    peer_init_on_with(&p, server.url, settings);
    leave(&server, "", "first", "");
    await_job(&p, "first");
    leave(&server,
          "BEGIN; SELECT count(capstan.submit(jsonb_build_object('tasks', (SELECT jsonb_agg(jsonb_build_object("
          "'name', 't' || i, 'executor', 'sleep', 'inputs', '{\"ms\":0}'::jsonb)) FROM generate_series(1, 5) i)))) "
          "FROM generate_series(1, 650);",
          "small", "COMMIT;");
    leave(&server, "", "wakes", "");
    await_job(&p, "small");
    await_job(&p, "wakes");
    CHECK_INT(server_number(&server, "SELECT count(*) FROM capstan.jobs"), 3);
    await_inbox(&server, 650);
    peer_deinit(&p);
    server_remove(&server);
}
