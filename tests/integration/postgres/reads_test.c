/*
 * How statements find their rows: what each call reads, by the server's own count, beside a history that it has nothing to
 * do with. A store's session never prefers to read a whole table, so that alone proves little: the rows that came out of
 * indexes and the pages that were looked at are counted as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integration/postgres/fixture.h"

#define HOUR_MS INT64_C(3600000)
#define OLD_JOBS 4000 /* with five tasks each; in pages: some 1,500 of the tables and 400 of their indexes */

/* What a call may read. Without an index for it, or along the wrong one, it would be thousands. */
struct reads {
    long long rows;    /* fetched by way of an index, in all tables */
    long long entries; /* that indexes returned */
    long long pages;   /* of tables and indexes */
};

/* Ended jobs "old-1" and so on, as copies of job 1 with its stage, tasks, attempts and event. */
static void write_history(struct fixture *f)
{
    static const char sql[] =
        "INSERT INTO capstan.%s SELECT (jsonb_populate_record(t, jsonb_build_object('job_id', 'old-' || i%s))).* "
        "FROM capstan.%s t, generate_series(1, %d) i WHERE t.job_id = 'job-1' ORDER BY i";
    static const struct {
        const char *table;
        const char *more;
    } tables[] = {{"jobs", ", 'state', 2, 'name', 'x', 'submitted_at_ms', i, 'finished_at_ms', 1000 + i, "
                           "'idempotency_key', 'key-' || i"},
                  {"stages", ""},
                  {"tasks", ", 'state', 2"},
                  {"task_events", ", 'seq', 1000000 + i, 'at_ms', 1000 + i"}};
    CHECK_CALL(f, fixture_commit(f->store, &f->fence, 1, 5, &f->e), ERR_OK);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, sql, tables[i].table, tables[i].more, tables[i].table, OLD_JOBS);
        free(server_sql(&f->server, text));
    }
    free(server_sql(&f->server, "INSERT INTO capstan.execution_idempotency SELECT job_id, stage, task, 1, "
                                "sha256(convert_to(job_id || task, 'UTF8')), 'w', 1, 2, 1 FROM capstan.tasks"));
    free(server_sql(&f->server, "INSERT INTO capstan.payloads SELECT job_id, sha256('x'), 'x' FROM capstan.jobs"));
}

/* Ends the store's session, so that all is counted, looks what was read since the last reset, and resets. */
static struct reads take_reads(struct fixture *f)
{
    static const char sql[] = "SELECT sum(idx_tup_fetch), (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes), "
                              "(SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit + "
                              "coalesce(toast_blks_read + toast_blks_hit, 0)) FROM pg_statio_user_tables), "
                              "coalesce(string_agg(relname, ' ') FILTER (WHERE seq_tup_read > 0 AND relname NOT IN "
                              "('distributed_nodes', 'schema_migrations', 'cluster_leader')), '') "
                              "FROM pg_stat_user_tables; SELECT pg_stat_reset()";
    long long numbers[3];
    fixture_hang_up(f);
    char *text = server_sql(&f->server, sql);
    char *at = text;
    for (size_t i = 0; i < 3; i++) {
        char *end = at;
        numbers[i] = strtoll(at, &end, 10);
        CHECK(end > at && *end == '|');
        at = end + 1;
    }
    at[strcspn(at, "\n")] = '\0';
    CHECK_STR(at, ""); /* the tables that were read from end to end */
    free(text);
    fixture_call_again(f);
    return (struct reads){.rows = numbers[0], .entries = numbers[1], .pages = numbers[2]};
}

/* That nothing which came before a call is counted for it. */
static void forget_reads(struct fixture *f)
{
    fixture_hang_up(f);
    free(server_sql(&f->server, "SELECT pg_stat_reset()"));
    fixture_call_again(f);
}

static void check_reads(struct fixture *f, const char *what, struct reads most)
{
    struct reads reads = take_reads(f);
    bool is_little = reads.rows <= most.rows && reads.entries <= most.entries && reads.pages <= most.pages;
    if (!is_little || getenv("CAPSTAN_TEST_VERBOSE") != NULL) {
        print_message("%s: %lld rows by indexes, %lld entries, %lld pages\n", what, reads.rows, reads.entries,
                      reads.pages);
    }
    CHECK(is_little);
}

static void ignore_row(void *context, const struct row *row)
{
    UNUSED(row);
    ++*(uint32_t *)context;
}

/* The statements are prepared while the tables are empty and the planner knows it, and then again when they are full. */
TEST(no_commit_reads_more_than_the_rows_it_writes)
{
    struct fixture f;
    struct reads most = {.rows = 30, .entries = 30, .pages = 300};
    fixture_lead(&f, HOUR_MS);
    free(server_sql(&f.server, "VACUUM ANALYZE"));
    write_history(&f);
    for (int is_analyzed = 0; is_analyzed < 2; is_analyzed++) {
        for (uint64_t seq = 2; seq <= 4; seq++) {
            uint64_t id = seq + 10 * (uint64_t)is_analyzed;
            forget_reads(&f);
            CHECK_CALL(&f, fixture_commit(f.store, &f.fence, id, 5, &f.e), ERR_OK);
            check_reads(&f, "a commit of new rows", most);
            CHECK_CALL(&f, fixture_change(f.store, &f.fence, id, 5, &f.e), ERR_OK);
            check_reads(&f, "a commit of changes", most);
            CHECK_CALL(&f, fixture_commit(f.store, &f.fence, id, 5, &f.e), ERR_OK);
            check_reads(&f, "a commit of what is there", most);
        }
        free(server_sql(&f.server, "VACUUM ANALYZE"));
    }
    fixture_close(&f);
}

/* A session that keeps its statements while the tables grow under it. */
TEST(what_a_commit_reads_does_not_grow_with_the_history)
{
    struct fixture f;
    fixture_lead(&f, HOUR_MS);
    free(server_sql(&f.server, "VACUUM ANALYZE"));
    CHECK_CALL(&f, fixture_change(f.store, &f.fence, 2, 5, &f.e), ERR_OK);
    write_history(&f);
    free(server_sql(&f.server, "SELECT pg_stat_reset()"));
    for (uint64_t seq = 101; seq <= 150; seq++) {
        CHECK_CALL(&f, fixture_commit(f.store, &f.fence, seq, 5, &f.e), ERR_OK);
        CHECK_CALL(&f, fixture_change(f.store, &f.fence, seq, 5, &f.e), ERR_OK);
    }
    check_reads(&f, "100 commits", (struct reads){.rows = 1500, .entries = 1500, .pages = 15000});
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.tasks WHERE state = 4"), 250);
    fixture_close(&f);
}

/* ---- reads ---- */

typedef void read_fn(struct fixture *f);

static void load_all(struct fixture *f)
{
    uint32_t n_rows = 0;
    CHECK_CALL(f, store_load(f->store, ignore_row, &n_rows, &f->e), ERR_OK);
    CHECK_UINT(n_rows, 8); /* one job with a stage and five tasks, and the meta row */
}

static void load_one(struct fixture *f)
{
    uint32_t n_rows = 0;
    CHECK_CALL(f, store_load_job(f->store, "old-18", ignore_row, &n_rows, &f->e), ERR_OK);
    CHECK_UINT(n_rows, 7);
}

static void list_jobs(struct fixture *f, struct job_query query, uint32_t n)
{
    struct page page;
    CHECK_CALL(f, store_jobs(f->store, &query, &f->arena, &page, &f->e), ERR_OK);
    CHECK_UINT(page.n_rows, n);
    if (page.next != NULL) {
        query.after = page.next;
        CHECK_CALL(f, store_jobs(f->store, &query, &f->arena, &page, &f->e), ERR_OK);
    }
}

static void list_all_jobs(struct fixture *f)
{
    list_jobs(f, (struct job_query){.state = -1, .limit = 10}, 10);
}

static void list_queued_jobs(struct fixture *f)
{
    list_jobs(f, (struct job_query){.state = 0, .limit = 10}, 1);
}

static void list_named_jobs(struct fixture *f)
{
    list_jobs(f, (struct job_query){.state = -1, .name = "x", .limit = 10}, 10);
}

/* From the middle of the history: what comes before it in the list is not gone through. */
static void list_far_jobs(struct fixture *f)
{
    static const struct {
        int state;
        const char *name;
    } filters[] = {{-1, NULL}, {2, NULL}, {-1, "x"}, {2, "x"}};
    for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
        struct job_query query = {
            .state = filters[i].state, .name = filters[i].name, .after = "2000:old-2000", .limit = 10};
        struct page page;
        CHECK_CALL(f, store_jobs(f->store, &query, &f->arena, &page, &f->e), ERR_OK);
        CHECK_UINT(page.n_rows, 10);
        CHECK_STR(((const struct row_job *)(const void *)page.rows[0])->job_id, "old-1999");
        CHECK_STR(page.next, "1990:old-1990");
    }
}

static void list_tasks(struct fixture *f)
{
    struct page page;
    struct task_query query = {.job_id = "old-17", .state = 2, .limit = 2};
    CHECK_CALL(f, store_tasks(f->store, &query, &f->arena, &page, &f->e), ERR_OK);
    CHECK_UINT(page.n_rows, 2);
}

static void list_events(struct fixture *f)
{
    struct page page;
    uint64_t pruned_seq;
    struct event_query queries[] = {
        {.limit = 10}, {.job_id = "old-17", .limit = 10}, {.after_seq = 1002000, .limit = 10}};
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        CHECK_CALL(f, store_events(f->store, &queries[i], &f->arena, &page, &pruned_seq, &f->e), ERR_OK);
        CHECK(page.n_rows > 0);
    }
}

static void look_up_jobs(struct fixture *f)
{
    const char *ids[] = {"old-17", "none"};
    const char *job_id = NULL;
    bool known[2];
    CHECK_CALL(f, store_known_jobs(f->store, ids, 2, known, &f->e), ERR_OK);
    CHECK(known[0] && !known[1]);
    CHECK_CALL(f, store_find_key(f->store, "none", 0, &f->arena, &job_id, &f->e), ERR_NOT_FOUND);
    CHECK_CALL(f, store_find_key(f->store, "key-17", 0, &f->arena, &job_id, &f->e), ERR_OK);
    CHECK_STR(job_id, "old-17");
}

static void look_up_parts(struct fixture *f)
{
    struct digest digests[2] = {{{1}}, {{2}}};
    uint32_t stages[] = {0, 1};
    struct found_bytes bytes[2];
    struct task_result results[2];
    const struct task_result *page = NULL;
    uint32_t n = 0;
    CHECK_CALL(f, store_payloads(f->store, "old-17", digests, 2, &f->arena, bytes, &f->e), ERR_OK);
    CHECK_CALL(f, store_results(f->store, "old-17", stages, 2, &f->arena, results, &f->e), ERR_OK);
    CHECK(results[0].is_found && !results[1].is_found);
    CHECK_CALL(f, store_task_results(f->store, "old-17", -1, 2, &f->arena, &page, &n, &f->e), ERR_OK);
    CHECK_UINT(n, 1);
}

static void summarize(struct fixture *f)
{
    struct store_summary summary;
    CHECK_CALL(f, store_summarize(f->store, &summary, &f->e), ERR_OK);
    CHECK_UINT(summary.queued_jobs, 1);
}

/* Ten jobs with five tasks and five attempts each. */
static void prune(struct fixture *f)
{
    bool more = false;
    CHECK_CALL(f, store_prune(f->store, &f->fence, 3000, 10, &more, &f->e), ERR_OK);
    CHECK(more);
}

static void prune_nothing(struct fixture *f)
{
    bool more = true;
    CHECK_CALL(f, store_prune(f->store, &f->fence, 1, 10, &more, &f->e), ERR_OK);
    CHECK(!more);
}

static const struct {
    const char *name;
    read_fn *run;
    struct reads most;
} calls[] = {
    {"store_load", load_all, {60, 60, 100}},
    {"store_load_job", load_one, {60, 60, 100}},
    {"store_jobs", list_all_jobs, {60, 60, 100}},
    {"store_jobs of a state", list_queued_jobs, {60, 60, 100}},
    {"store_jobs of a name", list_named_jobs, {60, 60, 100}},
    {"store_jobs far back", list_far_jobs, {60, 60, 150}},
    {"store_tasks", list_tasks, {60, 60, 100}},
    {"store_events", list_events, {60, 60, 100}},
    {"store_known_jobs and store_find_key", look_up_jobs, {60, 60, 100}},
    {"payloads and results", look_up_parts, {60, 60, 100}},
    {"store_summarize", summarize, {60, 60, 100}},
    {"store_prune of nothing", prune_nothing, {60, 60, 100}},
    {"store_prune", prune, {300, 300, 1200}},
};

TEST(no_call_reads_history_that_it_was_not_asked_for)
{
    struct fixture f;
    fixture_lead(&f, HOUR_MS);
    write_history(&f);
    for (int is_analyzed = 0; is_analyzed < 2; is_analyzed++) {
        forget_reads(&f);
        for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
            calls[i].run(&f);
            check_reads(&f, calls[i].name, calls[i].most);
        }
        free(server_sql(&f.server, "VACUUM ANALYZE"));
    }
    fixture_close(&f);
}
