/* lookup_test.c - several things at once: payloads, results of tasks, ids of jobs; and waiting for the inbox. */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/limits.h"
#include "content.h"
#include "picture.h"

static void commit_payloads(struct subject *s, const struct payload *payloads, uint32_t n)
{
    struct batch batch = {.payloads = payloads, .n_payloads = n};
    CHECK_OK(s, store_commit(s->store, &s->fence, &batch, &s->e));
}

static void check_bytes(struct found_bytes found, const char *expected, size_t n)
{
    CHECK((found.bytes != NULL) == (expected != NULL));
    CHECK_UINT(found.n_bytes, n);
    if (expected != NULL) {
        CHECK_MEM(found.bytes, expected, n);
    }
}

CONTRACT(several_payloads_come_in_the_order_of_their_digests)
{
    struct payload payloads[] = {
        {.job_id = "j", .digest = digest_from(1), .bytes = "one", .n_bytes = 3},
        {.job_id = "j", .digest = digest_from(2), .bytes = "", .n_bytes = 0},
        {.job_id = "j", .digest = digest_from(3), .bytes = "\0\xff'", .n_bytes = 3},
        {.job_id = "k", .digest = digest_from(4), .bytes = "another job's", .n_bytes = 13},
    };
    struct digest wanted[] = {digest_from(3), digest_from(9), digest_from(1),
                              digest_from(2), digest_from(4), digest_from(3)};
    struct found_bytes found[ARRAY_LEN(wanted)];
    memset(found, 0xee, sizeof found);
    subject_lead(s);
    commit_payloads(s, payloads, (uint32_t)ARRAY_LEN(payloads));
    CHECK_OK(s, store_payloads(s->store, "j", wanted, (uint32_t)ARRAY_LEN(wanted), &s->arena, found, &s->e));
    check_bytes(found[0], "\0\xff'", 3);
    check_bytes(found[1], NULL, 0);
    check_bytes(found[2], "one", 3);
    check_bytes(found[3], "", 0);
    check_bytes(found[4], NULL, 0);
    check_bytes(found[5], "\0\xff'", 3);
    CHECK_OK(s, store_payloads(s->store, "j", NULL, 0, &s->arena, NULL, &s->e)); /* nothing is no question */
}

CONTRACT(a_thousand_payloads_of_a_thousand_may_be_asked_for_at_once)
{
    enum { N = 1000 };
    struct payload *payloads = arena_zalloc(&s->arena, N * sizeof *payloads);
    struct digest *digests = arena_zalloc(&s->arena, N * sizeof *digests);
    struct found_bytes *found = arena_zalloc(&s->arena, N * sizeof *found);
    subject_lead(s);
    for (uint32_t i = 0; i < N; i++) {
        const char *text = arena_format(&s->arena, "payload %u", i);
        payloads[i] = (struct payload){"j", digest_from(i), text, strlen(text)};
        digests[N - 1 - i] = payloads[i].digest;
    }
    commit_payloads(s, payloads, N);
    CHECK_OK(s, store_payloads(s->store, "j", digests, N, &s->arena, found, &s->e));
    for (uint32_t i = 0; i < N; i++) {
        check_bytes(found[N - 1 - i], payloads[i].bytes, payloads[i].n_bytes);
    }
}

/* ---- results ---- */

/* A tree of `n` tasks, of all states; every third has a result, one an empty one, one a result that lies elsewhere. */
static void write_tree(struct subject *s, uint32_t n)
{
    struct rows rows = {0};
    struct payload *payloads = arena_zalloc(&s->arena, n * sizeof *payloads);
    uint32_t n_payloads = 0;
    add_job(&rows, "tree");
    for (uint32_t i = 0; i < n; i++) {
        struct row_stage *stage = add_stage(&rows, "tree", i);
        struct stage_spec *spec = arena_copy(&rows.arena, stage->spec, sizeof *spec);
        spec->name = i == 2 ? NULL : arena_format(&rows.arena, "task-%u %s", i, hostile_texts[i % n_hostile_texts]);
        stage->spec = spec;
        struct row_task *task = add_task(&rows, ref_of("tree", i, 0));
        task->state = (enum task_state)(i % TASK_STATE_COUNT);
        task->result = i % 3 == 0 || i == 7 ? digest_from(1000 + i) : (struct digest){{0}};
        if (i % 3 == 0) {
            const char *text = i == 3 ? "" : arena_format(&s->arena, "result of %u", i);
            payloads[n_payloads++] = (struct payload){"tree", task->result, text, strlen(text)};
        }
    }
    add_task(&rows, ref_of("tree", 1, 1)); /* not the first of its stage */
    add_task(&rows, ref_of("tree ", 1, 0));
    struct batch batch = {.payloads = payloads, .n_payloads = n_payloads};
    const struct row *head = rows.first;
    batch.rows = &head;
    batch.n_rows = 1;
    CHECK_OK(s, store_commit(s->store, &s->fence, &batch, &s->e));
    rows_deinit(&rows);
}

static void check_result(struct subject *s, const struct task_result *r, uint32_t stage)
{
    const char *text = stage == 3 ? "" : arena_format(&s->arena, "result of %u", stage);
    CHECK(r->is_found);
    CHECK_UINT(r->stage, stage);
    CHECK_INT(r->state, stage % TASK_STATE_COUNT);
    CHECK_STR(r->name,
              stage == 2 ? NULL : arena_format(&s->arena, "task-%u %s", stage, hostile_texts[stage % n_hostile_texts]));
    check_bytes(r->result, stage % 3 == 0 ? text : NULL, stage % 3 == 0 ? strlen(text) : 0);
}

CONTRACT(results_of_tasks_are_found_by_their_stages)
{
    uint32_t stages[] = {5, 3, 0, 99, 7, 2, 3, UINT32_MAX, 1};
    struct task_result found[ARRAY_LEN(stages)];
    memset(found, 0xee, sizeof found);
    subject_lead(s);
    write_tree(s, 10);
    CHECK_OK(s, store_results(s->store, "tree", stages, (uint32_t)ARRAY_LEN(stages), &s->arena, found, &s->e));
    for (size_t i = 0; i < ARRAY_LEN(stages); i++) {
        if (stages[i] < 10) {
            check_result(s, &found[i], stages[i]);
        } else {
            CHECK(!found[i].is_found);
            CHECK_UINT(found[i].stage, stages[i]);
            check_bytes(found[i].result, NULL, 0);
        }
    }
    CHECK_OK(s, store_results(s->store, "none", stages, 2, &s->arena, found, &s->e));
    CHECK(!found[0].is_found);
    CHECK(!found[1].is_found);
    CHECK_OK(s, store_results(s->store, "tree", NULL, 0, &s->arena, NULL, &s->e));
}

CONTRACT(results_of_a_tree_come_in_pages_in_the_order_of_its_tasks)
{
    enum { N = 25 };
    subject_lead(s);
    write_tree(s, N);
    for (uint32_t limit = 1; limit <= 30; limit += limit < 6 ? 1 : 19) {
        int64_t after = -1;
        uint32_t seen = 0;
        uint32_t n = limit;
        while (n == limit) {
            const struct task_result *page = NULL;
            n = UINT32_MAX;
            CHECK_OK(s, store_task_results(s->store, "tree", after, limit, &s->arena, &page, &n, &s->e));
            CHECK(n <= limit);
            for (uint32_t i = 0; i < n; i++) {
                check_result(s, &page[i], seen++);
                after = page[i].stage;
            }
        }
        CHECK_UINT(seen, N);
    }
    const struct task_result *page = NULL;
    uint32_t n = 1;
    CHECK_OK(s, store_task_results(s->store, "none", -1, 10, &s->arena, &page, &n, &s->e));
    CHECK_UINT(n, 0);
    CHECK_OK(s, store_task_results(s->store, "tree", INT64_MAX, 10, &s->arena, &page, &n, &s->e));
    CHECK_UINT(n, 0);
    CHECK_OK(s, store_task_results(s->store, "tree", INT64_MIN, UINT32_MAX, &s->arena, &page, &n, &s->e));
    CHECK_UINT(n, N);
    CHECK_OK(s, store_task_results(s->store, "tree", -1, 0, &s->arena, &page, &n, &s->e));
    CHECK_UINT(n, 0);
}

CONTRACT(pages_of_tasks_have_the_names_of_their_stages)
{
    struct page page = {0};
    subject_lead(s);
    write_tree(s, 10);
    struct task_query query = {.job_id = "tree", .state = -1, .limit = 4};
    uint32_t n = 0;
    do {
        CHECK_OK(s, store_tasks(s->store, &query, &s->arena, &page, &s->e));
        for (uint32_t i = 0; i < page.n_rows; i++, n++) {
            uint32_t stage = ((const struct row_task *)(const void *)page.rows[i])->ref.stage;
            CHECK_STR(page.names[i], stage == 2 ? NULL
                                                : arena_format(&s->arena, "task-%u %s", stage,
                                                               hostile_texts[stage % n_hostile_texts]));
        }
        query.after = page.next;
    } while (query.after != NULL);
    CHECK_UINT(n, 11);
    query = (struct task_query){.job_id = "tree ", .state = -1, .limit = 4};
    CHECK_OK(s, store_tasks(s->store, &query, &s->arena, &page, &s->e));
    CHECK_UINT(page.n_rows, 1);
    CHECK_STR(page.names[0], NULL); /* a task without a stage, which there never is */
    struct job_query jobs = {.state = -1, .limit = 4};
    CHECK_OK(s, store_jobs(s->store, &jobs, &s->arena, &page, &s->e));
    CHECK(page.names == NULL);
}

/* ---- ids ---- */

CONTRACT(known_jobs_are_told_from_others)
{
    const char *ids[] = {"b", "none", "a", "", "A", "a", "a", "ended"};
    static const bool expected[] = {true, false, true, false, false, true, true, true};
    bool known[ARRAY_LEN(ids)];
    struct rows rows = {0};
    subject_lead(s);
    add_job(&rows, "a");
    add_job(&rows, "b");
    add_job(&rows, "ended")->state = JOB_FAILED;
    CHECK_OK(s, rows_commit(s, &rows));
    memset(known, 0xee, sizeof known);
    CHECK_OK(s, store_known_jobs(s->store, ids, (uint32_t)ARRAY_LEN(ids), known, &s->e));
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        CHECK_INT(known[i], expected[i]);
    }
    CHECK_OK(
        s, store_known_jobs(s->store, hostile_texts, n_hostile_texts, arena_zalloc(&s->arena, n_hostile_texts), &s->e));
    CHECK_OK(s, store_known_jobs(s->store, NULL, 0, NULL, &s->e));
    rows_deinit(&rows);
}

/* ---- what a new row does to an old one ---- */

CONTRACT(a_new_row_whose_key_exists_leaves_what_is_fixed)
{
    struct rows rows = {0};
    struct picture p = {0};
    const char *found = NULL;
    subject_lead(s);
    struct row_job *job = add_job(&rows, "j");
    job->name = "first";
    job->idempotency_key = "key of the first";
    job->submitted_at_ms = 100;
    add_attempt(&rows, ref_of("j", 0, 0), 1)->worker_id = "first";
    add_event(&rows, 1, ref_of("j", 0, 0))->message = "first";
    struct row_stage *stage = add_stage(&rows, "j", 0);
    stage->n_recovered = 1;
    CHECK_OK(s, rows_commit(s, &rows));
    rows_deinit(&rows);
    job = add_job(&rows, "j");
    job->name = "second";
    job->idempotency_key = "key of the second";
    job->submitted_at_ms = 200;
    job->message = "changed";
    job->state = JOB_FAILED;
    struct row_attempt *attempt = add_attempt(&rows, ref_of("j", 0, 0), 1);
    attempt->worker_id = "second";
    attempt->at_ms = 777;
    add_event(&rows, 1, ref_of("j", 0, 0))->message = "second";
    stage = add_stage(&rows, "j", 0);
    struct stage_spec *spec = arena_copy(&rows.arena, stage->spec, sizeof *spec);
    spec->name = "another name";
    stage->spec = spec;
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load_job(&p, s, "j");
    picture_events(&p, s, (struct event_query){.limit = 10});
    CHECK_STR(entry_text(picture_only(&p, "jobs"), "name"), "first");
    CHECK_STR(entry_text(picture_only(&p, "jobs"), "message"), "changed");
    CHECK_INT(entry_number(picture_only(&p, "jobs"), "submitted_at_ms"), 100);
    CHECK_INT(entry_number(picture_only(&p, "jobs"), "state"), JOB_FAILED);
    CHECK(strstr(entry_text(picture_only(&p, "stages"), "spec"), "\"a stage\"") != NULL);
    CHECK_STR(entry_text(picture_only(&p, "task_events"), "details"), "first");
    CHECK_OK(s, store_find_key(s->store, "key of the first", 0, &s->arena, &found, &s->e));
    CHECK_FAILS(s, store_find_key(s->store, "key of the second", 0, &s->arena, &found, &s->e), ERR_NOT_FOUND);
    CHECK(strstr(subject_attempts(s), "|6669727374|") != NULL); /* "first" */
    CHECK(strstr(subject_attempts(s), "|777\n") != NULL);
    picture_deinit(&p);
    rows_deinit(&rows);
}

/* What wire accepts, all stores take: keys, names and sources as long as the limits allow, and indexes with them. */
CONTRACT(what_keeps_to_the_limits_is_taken)
{
    subject_lead(s);
    for (int kind = 0; kind < LONG_KINDS; kind++) {
        struct rows rows = {0};
        uint32_t n = 0;
        const char *found = NULL;
        const struct data_set *sets = NULL;
        const char *key = long_text(&rows.arena, (enum long_kind)kind, LIMIT_KEY_BYTES);
        const char *job_id = long_text(&rows.arena, (enum long_kind)kind, LIMIT_ID_BYTES);
        struct data_set set = {
            .name = key, .source = long_text(&rows.arena, (enum long_kind)kind, LIMIT_SOURCE_BYTES), .format = job_id};
        struct row_job *job = add_job(&rows, job_id);
        job->idempotency_key = key;
        job->name = long_text(&rows.arena, (enum long_kind)kind, LIMIT_NAME_BYTES);
        job->message = long_text(&rows.arena, (enum long_kind)kind, LIMIT_MESSAGE_BYTES);
        add_node(&rows, long_text(&rows.arena, (enum long_kind)kind, LIMIT_WORKER_ID_BYTES));
        const struct row *head = rows.first;
        struct batch batch = {.rows = &head, .n_rows = 1, .data_sets = &set, .n_data_sets = 1};
        CHECK_OK(s, store_commit(s->store, &s->fence, &batch, &s->e));
        CHECK_OK(s, store_find_key(s->store, key, 0, &s->arena, &found, &s->e));
        CHECK_STR(found, job_id);
        CHECK_OK(s, store_data_sets(s->store, &s->arena, &sets, &n, &s->e));
        bool is_there = false;
        for (uint32_t i = 0; i < n; i++) {
            is_there = is_there || (strcmp(sets[i].name, set.name) == 0 && strcmp(sets[i].source, set.source) == 0);
        }
        CHECK(is_there);
        rows_deinit(&rows);
    }
}

/* ---- waiting ---- */

static int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

CONTRACT(a_wait_ends_when_its_time_is_over)
{
    bool woken = true;
    subject_lead(s);
    struct store *listener = subject_open(s);
    CHECK_FAILS(s, store_wait(listener, 0, &woken, &s->e), ERR_PRECONDITION);
    CHECK_OK(s, store_listen(listener, &s->e));
    CHECK_OK(s, store_listen(listener, &s->e)); /* twice is once */
    int64_t start_ms = clock_ms();
    CHECK_OK(s, store_wait(listener, 50, &woken, &s->e));
    CHECK(!woken);
    CHECK(clock_ms() - start_ms >= 49);
    CHECK_OK(s, store_wait(listener, 0, &woken, &s->e));
    CHECK_OK(s, store_wait(listener, -5, &woken, &s->e));
    CHECK(!woken);
}

static void *interrupt_soon(void *store)
{
    struct timespec pause = {.tv_nsec = 30 * 1000000};
    nanosleep(&pause, NULL); /* the wait is most likely under way; if not, it is over at once */
    store_interrupt(store);
    return NULL;
}

CONTRACT(a_wait_can_be_interrupted_from_another_thread)
{
    pthread_t thread;
    bool woken = true;
    subject_lead(s);
    struct store *listener = subject_open(s);
    CHECK_OK(s, store_listen(listener, &s->e));
    CHECK_INT(pthread_create(&thread, NULL, interrupt_soon, listener), 0);
    CHECK_OK(s, store_wait(listener, INT64_MAX, &woken, &s->e));
    CHECK(!woken);
    pthread_join(thread, NULL);
    store_interrupt(listener); /* before the wait */
    store_interrupt(listener);
    CHECK_OK(s, store_wait(listener, INT64_MAX, &woken, &s->e));
    int64_t start_ms = clock_ms();
    CHECK_OK(s, store_wait(listener, 30, &woken, &s->e)); /* it is used up */
    CHECK(clock_ms() - start_ms >= 29);
}

CONTRACT_OF_POSTGRES(who_listens_is_woken_by_what_is_left_in_the_inbox)
{
    bool woken = false;
    const struct inbox_entry *entries = NULL;
    uint32_t n = 0;
    subject_lead(s);
    struct store *listener = subject_open(s);
    CHECK_OK(s, store_listen(listener, &s->e));
    subject_add_inbox(s, "first", "{\"job_id\": \"first\"}");
    CHECK_OK(s, store_wait(listener, 60000, &woken, &s->e));
    CHECK(woken);
    CHECK_OK(s, store_inbox(s->store, &(struct inbox_query){.limit = 10}, &s->arena, &entries, &n, &s->e));
    CHECK_UINT(n, 1);
    CHECK_OK(s, store_wait(listener, 20, &woken, &s->e));
    CHECK(!woken);
    subject_sql(s, "BEGIN; SELECT @submit('{\"job_id\": \"gone\"}'); ROLLBACK");
    CHECK_OK(s, store_wait(listener, 20, &woken, &s->e)); /* a transaction that was rolled back wakes nobody */
    CHECK(!woken);
    subject_add_inbox(s, "second", "{\"job_id\": \"second\"}");
    subject_add_inbox(s, "third", "{\"job_id\": \"third\"}");
    CHECK_OK(s, store_wait(listener, 60000, &woken, &s->e));
    CHECK(woken);
}

CONTRACT_OF_POSTGRES(a_listener_that_lost_its_connection_looks_and_listens_again)
{
    bool woken = false;
    subject_lead(s);
    struct store *listener = subject_open(s);
    CHECK_OK(s, store_listen(listener, &s->e));
    subject_sql(s, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                   "WHERE datname = current_database() AND pid <> pg_backend_pid()");
    CHECK_OK(s, store_wait(listener, 60000, &woken, &s->e));
    CHECK(woken); /* something may have been missed */
    subject_add_inbox(s, "first", "{\"job_id\": \"first\"}");
    CHECK_OK(s, store_wait(listener, 60000, &woken, &s->e));
    CHECK(woken);
    CHECK_OK(s, store_wait(listener, 20, &woken, &s->e));
    CHECK(!woken);
}

/* ---- at a glance ---- */

CONTRACT(a_summary_counts_what_is_there_now)
{
    struct rows rows = {0};
    struct store_summary summary;
    subject_lead(s);
    CHECK_OK(s, store_summarize(s->store, &summary, &s->e));
    CHECK_UINT(summary.queued_jobs + summary.running_jobs + summary.nodes + summary.inbox + summary.last_event_seq, 0);
    for (uint32_t i = 0; i < 12; i++) {
        add_job(&rows, arena_format(&rows.arena, "job-%u", i))->state = i < 5   ? JOB_QUEUED
                                                                        : i < 8 ? JOB_RUNNING
                                                                                : JOB_SUCCEEDED;
    }
    add_node(&rows, "w1");
    add_event(&rows, 41, ref_of("job-1", 0, 0));
    CHECK_OK(s, rows_commit(s, &rows));
    subject_add_inbox(s, "first", "{\"job_id\": \"first\"}");
    CHECK_OK(s, store_summarize(s->store, &summary, &s->e));
    CHECK_UINT(summary.queued_jobs, 5);
    CHECK_UINT(summary.running_jobs, 3);
    CHECK_UINT(summary.nodes, 1);
    CHECK_UINT(summary.inbox, 1);
    CHECK_UINT(summary.last_event_seq, 41);
    CHECK((summary.bytes > 0) == (s->kind != ENGINE_MEMORY));
    rows_deinit(&rows);
}
