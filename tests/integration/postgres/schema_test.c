/* Migrations with several processes, the inbox from the application's side, and how statements find their rows. */
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

static uint32_t inbox_size(struct fixture *f, const struct inbox_entry **out)
{
    uint32_t n = 0;
    CHECK_CALL(f, store_inbox(f->store, 10, &f->arena, out, &n, &f->e), ERR_OK);
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

static void ignore_row(void *context, const struct row *row)
{
    UNUSED(row);
    ++*(uint32_t *)context;
}

/* Closes the store, which makes its backend report, and looks what was read from end to end since the last reset. */
static void check_no_scan(struct fixture *f)
{
    store_close(f->store);
    f->store = NULL;
    pause_ms(300);
    char *scanned =
        server_sql(&f->server, "SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE seq_tup_read > 0 "
                               "AND schemaname = 'capstan' AND relname NOT IN ('distributed_nodes', "
                               "'schema_migrations', 'cluster_leader')");
    CHECK_STR(scanned, "");
    free(scanned);
    CHECK(server_number(&f->server, "SELECT sum(idx_scan) FROM pg_stat_user_tables WHERE schemaname = 'capstan'") > 0);
    free(server_sql(&f->server, "UPDATE capstan.jobs SET state = 2, finished_at_ms = 1 WHERE job_id <> 'job-17'"));
    free(server_sql(&f->server, "SELECT pg_stat_reset()"));
    CHECK_CALL(f, store_open(f->server.url, &f->store, &f->e), ERR_OK);
}

/* The tables are empty, and the planner knows it, while the statements are prepared. */
TEST(no_commit_reads_a_whole_table)
{
    struct fixture f;
    fixture_lead(&f, HOUR_MS);
    free(server_sql(&f.server, "VACUUM ANALYZE"));
    free(server_sql(&f.server, "SELECT pg_stat_reset()"));
    CHECK_CALL(&f, fixture_change(f.store, &f.fence, 1, 5, &f.e), ERR_OK);
    for (uint64_t seq = 1; seq <= 100; seq++) {
        CHECK_CALL(&f, fixture_commit(f.store, &f.fence, seq, 5, &f.e), ERR_OK);
        CHECK_CALL(&f, fixture_change(f.store, &f.fence, seq, 5, &f.e), ERR_OK);
    }
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.tasks WHERE state = 4"), 500);
    free(server_sql(&f.server, "SELECT pg_stat_reset()")); /* of what this count has read */
    for (uint64_t seq = 101; seq <= 150; seq++) {
        CHECK_CALL(&f, fixture_commit(f.store, &f.fence, seq, 5, &f.e), ERR_OK);
        CHECK_CALL(&f, fixture_change(f.store, &f.fence, seq, 5, &f.e), ERR_OK);
    }
    check_no_scan(&f);
    fixture_close(&f);
}

static void look_up_everything(struct fixture *f)
{
    const char *ids[] = {"job-17", "none"};
    struct digest digests[2] = {{{1}}, {{2}}};
    uint32_t stages[] = {0, 1};
    bool known[2];
    struct found_bytes bytes[2];
    struct task_result results[2];
    const struct task_result *page = NULL;
    const char *job_id = NULL;
    uint32_t n = 0;
    CHECK_CALL(f, store_known_jobs(f->store, ids, 2, known, &f->e), ERR_OK);
    CHECK(known[0] && !known[1]);
    CHECK_CALL(f, store_payloads(f->store, "job-17", digests, 2, &f->arena, bytes, &f->e), ERR_OK);
    CHECK_CALL(f, store_results(f->store, "job-17", stages, 2, &f->arena, results, &f->e), ERR_OK);
    CHECK(results[0].is_found && !results[1].is_found);
    CHECK_CALL(f, store_task_results(f->store, "job-17", -1, 2, &f->arena, &page, &n, &f->e), ERR_OK);
    CHECK_UINT(n, 1);
    CHECK_CALL(f, store_find_key(f->store, "none", 0, &f->arena, &job_id, &f->e), ERR_NOT_FOUND);
}

TEST(nothing_reads_a_whole_table_that_holds_history)
{
    struct fixture f;
    struct page page;
    uint64_t pruned_seq;
    bool more;
    uint32_t n_rows = 0;
    fixture_lead(&f, HOUR_MS);
    for (uint64_t seq = 1; seq <= 200; seq++) {
        CHECK_CALL(&f, fixture_commit(f.store, &f.fence, seq, 5, &f.e), ERR_OK);
    }
    check_no_scan(&f);
    CHECK_CALL(&f, store_load(f.store, ignore_row, &n_rows, &f.e), ERR_OK);
    CHECK_UINT(n_rows, 8); /* one job with a stage and five tasks, and the meta row */
    CHECK_CALL(&f, store_load_job(f.store, "job-18", ignore_row, &n_rows, &f.e), ERR_OK);
    struct job_query jobs[] = {
        {.state = -1, .limit = 10}, {.state = 0, .limit = 10}, {.state = -1, .name = "x", .limit = 10}};
    for (size_t i = 0; i < 3; i++) {
        CHECK_CALL(&f, store_jobs(f.store, &jobs[i], &f.arena, &page, &f.e), ERR_OK);
    }
    struct task_query tasks = {.job_id = "job-17", .state = 0, .limit = 2};
    CHECK_CALL(&f, store_tasks(f.store, &tasks, &f.arena, &page, &f.e), ERR_OK);
    struct event_query events[] = {{.limit = 10}, {.job_id = "job-17", .limit = 10}};
    for (size_t i = 0; i < 2; i++) {
        CHECK_CALL(&f, store_events(f.store, &events[i], &f.arena, &page, &pruned_seq, &f.e), ERR_OK);
    }
    look_up_everything(&f);
    CHECK_CALL(&f, store_prune(f.store, &f.fence, 50, 10, &more, &f.e), ERR_OK);
    check_no_scan(&f);
    fixture_close(&f);
}
