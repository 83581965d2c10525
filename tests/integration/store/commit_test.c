/* commit_test.c - what becomes of rows: written, changed, removed, in order, whole or not at all. */
#include <string.h>

#include "content.h"
#include "picture.h"

/* What was written is what all of the reads give back. */
static void check_written(struct subject *s, const struct rows *rows)
{
    struct picture expected = {0};
    struct picture actual = {0};
    for (const struct row *row = rows->first; row != NULL; row = row->next) {
        if (row->kind != ROW_ATTEMPT && row->kind != ROW_EVENT) {
            picture_add_row(&expected, "load", row);
        }
    }
    struct row_meta meta = {.row = {.kind = ROW_META}, .last_event_seq = 2};
    picture_add_row(&expected, "load", &meta.row);
    picture_load(&actual, s);
    CHECK_PICTURES(&actual, &expected);
    picture_deinit(&expected);
    picture_deinit(&actual);
    for (const struct row *row = rows->first; row != NULL; row = row->next) {
        if (row->kind == ROW_JOB || row->kind == ROW_EVENT) {
            picture_add_row(&expected, row->kind == ROW_JOB ? "jobs" : "events", row);
        }
    }
    picture_jobs(&actual, s, (struct job_query){.state = -1, .limit = 10});
    picture_events(&actual, s, (struct event_query){.limit = 10});
    actual.n--; /* how far events were pruned */
    CHECK_PICTURES(&actual, &expected);
    picture_deinit(&expected);
    picture_deinit(&actual);
}

CONTRACT(rows_of_every_kind_come_back_as_they_were_written)
{
    struct rows rows = {0};
    subject_lead(s);
    add_whole_job(&rows, "j1");
    add_whole_job(&rows, "j2");
    add_node(&rows, "w1");
    add_node(&rows, "w2");
    add_event(&rows, 1, ref_of("j1", 0, 0));
    add_event(&rows, 2, ref_of(NULL, 0, 0));
    CHECK_OK(s, rows_commit(s, &rows));
    check_written(s, &rows);
    CHECK_OK(s, rows_commit(s, &rows)); /* applying it twice does no harm */
    check_written(s, &rows);
    subject_close(s, s->store);
    s->store = subject_open(s);
    check_written(s, &rows);
    rows_deinit(&rows);
}

CONTRACT(rows_may_come_one_by_one_or_as_many_lists)
{
    struct rows one[2] = {0};
    subject_lead(s);
    add_whole_job(&one[0], "j1");
    add_node(&one[0], "w1");
    add_event(&one[0], 1, ref_of("j1", 0, 0));
    add_event(&one[1], 2, ref_of("j1", 0, 0));
    add_whole_job(&one[1], "j2");
    const struct row *heads[] = {NULL, one[0].first, NULL, one[1].first, NULL};
    struct batch batch = {.rows = heads, .n_rows = 5};
    CHECK_OK(s, store_commit(s->store, &s->fence, &batch, &s->e));
    *one[0].end = one[1].first;
    check_written(s, &one[0]);
    rows_commit_singly(s, &one[0]);
    check_written(s, &one[0]);
    struct batch empty = {0};
    CHECK_OK(s, store_commit(s->store, &s->fence, &empty, &s->e));
    check_written(s, &one[0]);
    rows_deinit(&one[0]);
    rows_deinit(&one[1]);
}

/* One change in the same batch, or in one of its own. */
static void begin_change(struct subject *s, struct rows *rows, bool same_batch)
{
    if (!same_batch) {
        CHECK_OK(s, rows_commit(s, rows));
        rows->first = NULL; /* what is in the arena stays */
        rows->end = NULL;
    }
}

static void check_change(struct subject *s, const char *job_id, bool same_batch)
{
    struct rows rows = {0};
    struct picture p = {0};
    struct task_ref ref = ref_of(job_id, 0, 0);
    add_whole_job(&rows, job_id);
    begin_change(s, &rows, same_batch);
    add_job_change(&rows, job_id, JOB_QUEUED);
    add_task_change(&rows, ref, TASK_QUEUED);
    struct row_stage *stage = rows_add(&rows, ROW_STAGE);
    stage->job_id = job_id;
    begin_change(s, &rows, same_batch);
    struct row_job *job = add_job_change(&rows, job_id, JOB_RUNNING); /* later over earlier */
    job->message = NULL;
    struct row_lease *lease = add_lease(&rows, ref, 2);
    lease->worker_id = "w2";
    add_map_output(&rows, ref, 1)->address = NULL;
    add_result(&rows, ref, 1)->is_inline = false;
    CHECK_OK(s, rows_commit(s, &rows));

    picture_load_job(&p, s, job_id);
    const struct entry *e = picture_only(&p, "jobs");
    CHECK_STR(entry_text(e, "name"), "a name"); /* fixed when it was new */
    CHECK_INT(entry_number(e, "priority"), 3);
    CHECK_INT(entry_number(e, "parent_attempt"), 6);
    CHECK_INT(entry_number(e, "state"), JOB_RUNNING);
    CHECK_INT(entry_number(e, "n_stages"), 23);
    CHECK_STR(entry_text(e, "message"), NULL);
    e = picture_only(&p, "stages");
    CHECK(entry_text(e, "spec") != NULL);
    CHECK_STR(entry_text(e, "recovered"), NULL);
    e = picture_only(&p, "tasks");
    CHECK_INT(entry_number(e, "inputs_bytes"), 31);
    CHECK_INT(entry_number(e, "state"), TASK_QUEUED);
    CHECK_STR(entry_text(e, "lease_id"), NULL);
    CHECK_STR(entry_text(e, "failed_on"), NULL);
    CHECK_STR(entry_text(e, "message"), "changed");
    e = picture_only(&p, "task_leases");
    CHECK_INT(entry_number(e, "attempt_id"), 2);
    CHECK_STR(entry_text(e, "node_id"), "w2");
    CHECK_STR(entry_text(picture_only(&p, "map_outputs"), "address"), NULL);
    CHECK_INT(entry_number(picture_only(&p, "results"), "is_inline"), 0);
    picture_deinit(&p);
    rows_deinit(&rows);
}

CONTRACT(later_rows_go_over_earlier_ones)
{
    subject_lead(s);
    check_change(s, "in one batch", true);
    check_change(s, "in three batches", false);
}

/* ---- the history of attempts ---- */

static const char *attempt_line(struct subject *s, const char *job_hex, struct task_ref ref, uint32_t attempt,
                                const char *rest)
{
    struct digest key = digest_from(token_of(ref, attempt).bits[0]);
    char hex[65];
    for (int i = 0; i < 32; i++) {
        const char *digits = "0123456789ABCDEF";
        hex[2 * i] = digits[key.bytes[i] >> 4];
        hex[2 * i + 1] = digits[key.bytes[i] & 15];
    }
    hex[64] = '\0';
    return arena_format(&s->arena, "%s|%u|%u|%u|%s|%s\n", job_hex, ref.stage, ref.task, attempt, hex, rest);
}

CONTRACT(an_attempt_keeps_its_key_and_its_worker_while_its_outcome_changes)
{
    struct rows rows = {0};
    struct task_ref ref = ref_of("j", 3, 4);
    subject_lead(s);
    add_attempt(&rows, ref, 1);
    add_attempt(&rows, ref, 2)->worker_id = NULL;
    CHECK_OK(s, rows_commit(s, &rows));
    CHECK_STR(subject_attempts(s),
              arena_format(&s->arena, "%s%s", attempt_line(s, "6A", ref, 1, "7731|1700000000101|1|1700000000101"),
                           attempt_line(s, "6A", ref, 2, "|1700000000101|1|1700000000101")));
    rows.first = NULL;
    rows.end = NULL;
    add_attempt_change(&rows, ref, 1, OUTCOME_FAILED);
    CHECK_OK(s, rows_commit(s, &rows));
    CHECK_STR(subject_attempts(s),
              arena_format(&s->arena, "%s%s", attempt_line(s, "6A", ref, 1, "7731|1700000000101|3|1700000000111"),
                           attempt_line(s, "6A", ref, 2, "|1700000000101|1|1700000000101")));
    rows_deinit(&rows);
}

/* ---- the end of a job ---- */

CONTRACT(a_sweep_ends_what_belongs_to_its_job_and_nothing_else)
{
    struct rows rows = {0};
    struct picture p = {0};
    struct picture other[2] = {0};
    subject_lead(s);
    add_whole_job(&rows, "j");
    add_whole_job(&rows, "jj");
    add_task(&rows, ref_of("j", 0, 1))->state = TASK_SUCCEEDED;
    add_attempt(&rows, ref_of("j", 0, 1), 1);
    add_attempt_change(&rows, ref_of("j", 0, 1), 1, OUTCOME_COMPLETED);
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load_job(&other[0], s, "jj");
    rows_deinit(&rows);
    add_sweep(&rows, "j", 1234);
    add_sweep(&rows, "no such job", 1235);
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load_job(&other[1], s, "jj");
    CHECK_PICTURES(&other[1], &other[0]);
    picture_load_job(&p, s, "j");
    CHECK_UINT(picture_count(&p, "task_leases"), 0);
    CHECK_UINT(picture_count(&p, "map_outputs"), 0);
    CHECK_UINT(picture_count(&p, "results"), 1);
    CHECK_UINT(picture_count(&p, "tasks"), 2);
    for (uint32_t i = 0; i < p.n; i++) {
        const struct entry *e = &p.entries[i];
        if (strcmp(e->table, "tasks") == 0 && entry_number(e, "task") == 0) { /* it ran */
            CHECK_INT(entry_number(e, "state"), TASK_CANCELED);
            CHECK_INT(entry_number(e, "outcome"), OUTCOME_LOST);
            CHECK_INT(entry_number(e, "finished_at_ms"), 1234);
            CHECK_INT(entry_number(e, "lease_expires_at_ms"), 0);
            CHECK_STR(entry_text(e, "message"), "a task's message");
        } else if (strcmp(e->table, "tasks") == 0) { /* it had succeeded */
            CHECK_INT(entry_number(e, "state"), TASK_SUCCEEDED);
            CHECK_INT(entry_number(e, "finished_at_ms"), INT64_C(1700000000039));
        }
    }
    CHECK_STR(subject_attempts(s),
              arena_format(&s->arena, "%s%s%s",
                           attempt_line(s, "6A", ref_of("j", 0, 0), 1, "7731|1700000000101|4|1234"),
                           attempt_line(s, "6A", ref_of("j", 0, 1), 1, "7731|1700000000101|2|1700000000111"),
                           attempt_line(s, "6A6A", ref_of("jj", 0, 0), 1, "7731|1700000000101|1|1700000000101")));
    picture_deinit(&p);
    picture_deinit(&other[0]);
    picture_deinit(&other[1]);
    rows_deinit(&rows);
}

CONTRACT(a_queued_task_is_swept_without_an_outcome_and_what_comes_after_the_sweep_stays)
{
    struct rows rows = {0};
    struct picture p = {0};
    subject_lead(s);
    add_whole_job(&rows, "j");
    struct row_task *task = add_task_change(&rows, ref_of("j", 0, 0), TASK_QUEUED);
    task->outcome = OUTCOME_FAILED;
    add_sweep(&rows, "j", 99);
    add_lease(&rows, ref_of("j", 0, 7), 3);
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load_job(&p, s, "j");
    CHECK_INT(entry_number(picture_only(&p, "tasks"), "state"), TASK_CANCELED);
    CHECK_INT(entry_number(picture_only(&p, "tasks"), "outcome"), OUTCOME_FAILED);
    CHECK_INT(entry_number(picture_only(&p, "tasks"), "finished_at_ms"), 99);
    CHECK_INT(entry_number(picture_only(&p, "task_leases"), "task"), 7);
    picture_deinit(&p);
    rows_deinit(&rows);
    add_task_change(&rows, ref_of("j", 0, 0), TASK_QUEUED); /* a retry */
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load_job(&p, s, "j");
    CHECK_INT(entry_number(picture_only(&p, "tasks"), "state"), TASK_QUEUED);
    picture_deinit(&p);
    rows_deinit(&rows);
}

/* ---- removals ---- */

CONTRACT(a_lease_that_was_taken_anew_stays)
{
    struct rows rows = {0};
    struct picture p = {0};
    struct task_ref ref = ref_of("j", 0, 0);
    subject_lead(s);
    add_whole_job(&rows, "j");
    add_lease_gone(&rows, ref, token_of(ref, 2)); /* never was */
    add_lease(&rows, ref, 2);
    add_lease_gone(&rows, ref, token_of(ref, 1)); /* the one before */
    for (int i = 0; i < 2; i++) {
        if (i == 0) {
            CHECK_OK(s, rows_commit(s, &rows));
        } else {
            rows_commit_singly(s, &rows);
        }
        picture_load_job(&p, s, "j");
        CHECK_INT(entry_number(picture_only(&p, "task_leases"), "attempt_id"), 2);
        picture_deinit(&p);
    }
    rows_deinit(&rows);
    add_lease_gone(&rows, ref, token_of(ref, 1));
    add_lease_gone(&rows, ref_of("j", 0, 1), token_of(ref, 2)); /* another task's */
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load_job(&p, s, "j");
    CHECK_UINT(picture_count(&p, "task_leases"), 1);
    picture_deinit(&p);
    add_lease_gone(&rows, ref, token_of(ref, 2));
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load_job(&p, s, "j");
    CHECK_UINT(picture_count(&p, "task_leases"), 0);
    picture_deinit(&p);
    rows_deinit(&rows);
}

CONTRACT(outputs_and_nodes_go_by_their_whole_key)
{
    struct rows rows = {0};
    struct picture p = {0};
    struct task_ref ref = ref_of("j", 0, 0);
    subject_lead(s);
    add_whole_job(&rows, "j");
    add_map_output(&rows, ref, 2);
    add_result(&rows, ref, 2);
    add_node(&rows, "w1");
    add_node(&rows, "w2");
    add_output_gone(&rows, ROW_MAP_OUTPUT_GONE, ref, 1);
    add_output_gone(&rows, ROW_RESULT_GONE, ref, 2);
    add_output_gone(&rows, ROW_RESULT_GONE, ref_of("j", 0, 1), 1);
    add_output_gone(&rows, ROW_RESULT_GONE, ref_of("k", 0, 0), 1);
    add_node_gone(&rows, "w1");
    add_node_gone(&rows, "w3");
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load(&p, s);
    CHECK_INT(entry_number(picture_only(&p, "map_outputs"), "attempt_id"), 2);
    CHECK_INT(entry_number(picture_only(&p, "results"), "attempt_id"), 1);
    CHECK_STR(entry_text(picture_only(&p, "distributed_nodes"), "node_id"), "w2");
    picture_deinit(&p);
    rows_deinit(&rows);
    add_node_gone(&rows, "w2");
    add_node(&rows, "w2")->slots = 5; /* it came back */
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load(&p, s);
    CHECK_INT(entry_number(picture_only(&p, "distributed_nodes"), "slots"), 5);
    picture_deinit(&p);
    rows_deinit(&rows);
}

/* ---- whole or not at all ---- */

typedef void violate_fn(struct rows *rows);

static void same_token_twice(struct rows *rows)
{
    add_lease(rows, ref_of("v", 0, 0), 1);
    add_lease(rows, ref_of("v", 0, 1), 1)->token = token_of(ref_of("v", 0, 0), 1);
}

static void token_of_an_older_lease(struct rows *rows)
{
    add_lease(rows, ref_of("v", 0, 0), 1)->token = token_of(ref_of("old", 0, 0), 1);
}

static void lease_without_token(struct rows *rows)
{
    add_lease(rows, ref_of("v", 0, 0), 1)->token = (struct lease_token){{0, 0}};
}

static void lease_without_worker(struct rows *rows)
{
    add_lease(rows, ref_of("v", 0, 0), 1)->worker_id = NULL;
}

static void lease_that_ends_before_it_begins(struct rows *rows)
{
    struct row_lease *lease = add_lease(rows, ref_of("v", 0, 0), 1);
    lease->expires_at_ms = lease->acquired_at_ms;
}

static void same_idempotency_key_twice(struct rows *rows)
{
    add_attempt(rows, ref_of("v", 0, 0), 1);
    add_attempt(rows, ref_of("v", 0, 0), 2)->idempotency_key = digest_from(token_of(ref_of("v", 0, 0), 1).bits[0]);
}

/* Of the same job: keys of different jobs differ, because the job's id is part of them. */
static void idempotency_key_of_an_older_attempt(struct rows *rows)
{
    add_attempt(rows, ref_of("old", 0, 1), 1)->idempotency_key = digest_from(token_of(ref_of("old", 0, 0), 1).bits[0]);
}

static void attempt_without_key(struct rows *rows)
{
    add_attempt(rows, ref_of("v", 0, 0), 1)->idempotency_key = (struct digest){{0}};
}

static void output_without_worker(struct rows *rows)
{
    add_map_output(rows, ref_of("v", 0, 0), 1)->worker_id = NULL;
}

static void output_without_incarnation(struct rows *rows)
{
    add_map_output(rows, ref_of("v", 0, 0), 1)->incarnation = NULL;
}

static void job_without_id(struct rows *rows)
{
    add_job(rows, "")->job_id = NULL;
}

static void node_without_id(struct rows *rows)
{
    add_node(rows, NULL);
}

static void message_that_is_not_utf8(struct rows *rows)
{
    add_job_change(rows, "old", JOB_FAILED)->message = "\xff\xfe";
}

static void message_with_half_a_character(struct rows *rows)
{
    add_event(rows, 77, ref_of("old", 0, 0))->message = "caf\xc3";
}

static void list_with_a_surrogate(struct rows *rows)
{
    static const char *const items[] = {"fine", "\xed\xa0\x80"};
    add_task_change(rows, ref_of("old", 0, 0), TASK_QUEUED)->failed_on = (struct string_list){items, 2};
}

static const struct {
    const char *what;
    violate_fn *violate;
} violations[] = {
#define VIOLATION(name)                                                                                                \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
    VIOLATION(same_token_twice),
    VIOLATION(token_of_an_older_lease),
    VIOLATION(lease_without_token),
    VIOLATION(lease_without_worker),
    VIOLATION(lease_that_ends_before_it_begins),
    VIOLATION(same_idempotency_key_twice),
    VIOLATION(idempotency_key_of_an_older_attempt),
    VIOLATION(attempt_without_key),
    VIOLATION(output_without_worker),
    VIOLATION(output_without_incarnation),
    VIOLATION(job_without_id),
    VIOLATION(node_without_id),
    VIOLATION(message_that_is_not_utf8),
    VIOLATION(message_with_half_a_character),
    VIOLATION(list_with_a_surrogate),
};

static void take_all(struct subject *s, struct picture *p)
{
    static const char *const jobs[] = {"old", "new", "v"};
    picture_all(p, s, jobs, 3);
    picture_payload(p, s, "new", digest_from(5));
}

CONTRACT(a_batch_with_one_bad_row_leaves_nothing)
{
    struct rows old = {0};
    struct picture before = {0};
    subject_lead(s);
    add_whole_job(&old, "old");
    add_event(&old, 1, ref_of("old", 0, 0));
    CHECK_OK(s, rows_commit(s, &old));
    take_all(s, &before);
    const char *attempts = subject_attempts(s);
    struct data_set set = {.name = "new", .source = "a", .format = "b"};
    struct payload payload = {.job_id = "new", .digest = digest_from(5), .bytes = "z", .n_bytes = 1};
    for (size_t i = 0; i < ARRAY_LEN(violations); i++) {
        struct rows rows = {0};
        struct picture after = {0};
        add_whole_job(&rows, "new");
        add_job_change(&rows, "old", JOB_CANCELED);
        add_sweep(&rows, "old", 5);
        add_lease(&rows, ref_of("old", 0, 0), 1);
        add_event(&rows, 2, ref_of("old", 0, 0));
        violations[i].violate(&rows);
        const struct row *head = rows.first;
        struct batch batch = {
            .rows = &head, .n_rows = 1, .payloads = &payload, .n_payloads = 1, .data_sets = &set, .n_data_sets = 1};
        enum err err = store_commit(s->store, &s->fence, &batch, &s->e);
        if (err != ERR_INVALID) {
            print_error("%s: %s\n", violations[i].what, err == ERR_OK ? "accepted" : s->e.message);
        }
        CHECK_ERR(err, ERR_INVALID);
        take_all(s, &after);
        CHECK_PICTURES(&after, &before);
        CHECK_STR(subject_attempts(s), attempts);
        picture_deinit(&after);
        rows_deinit(&rows);
    }
    CHECK_OK(s, rows_commit(s, &old)); /* it still leads, and can go on */
    picture_deinit(&before);
    rows_deinit(&old);
}

CONTRACT(a_bad_data_set_or_payload_takes_the_whole_batch_with_it)
{
    static const struct data_set bad_sets[] = {
        {.name = "without format", .source = "a"},
        {.name = NULL, .source = "a", .format = "b"},
        {.name = "\xff", .source = "a", .format = "b"},
        {.name = "source", .source = "\xc3", .format = "b"},
        {.name = "format", .source = "a", .format = "\xed\xa0\x80"},
    };
    static const struct payload bad_payloads[] = {{.job_id = NULL, .bytes = "x", .n_bytes = 1},
                                                  {.job_id = "\xff", .bytes = "x", .n_bytes = 1}};
    struct rows rows = {0};
    struct picture p = {0};
    subject_lead(s);
    add_job(&rows, "new");
    const struct row *head = rows.first;
    for (size_t i = 0; i < ARRAY_LEN(bad_sets); i++) {
        struct data_set sets[] = {{.name = "good", .source = "a", .format = "b"}, bad_sets[i]};
        struct batch batch = {.rows = &head, .n_rows = 1, .data_sets = sets, .n_data_sets = 2};
        CHECK_FAILS(s, store_commit(s->store, &s->fence, &batch, &s->e), ERR_INVALID);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad_payloads); i++) {
        struct payload payloads[] = {{.job_id = "new", .digest = digest_from(1), .bytes = "b", .n_bytes = 1},
                                     bad_payloads[i]};
        struct batch batch = {.rows = &head, .n_rows = 1, .payloads = payloads, .n_payloads = 2};
        CHECK_FAILS(s, store_commit(s->store, &s->fence, &batch, &s->e), ERR_INVALID);
    }
    picture_load(&p, s);
    picture_payload(&p, s, "new", digest_from(1));
    picture_data_sets(&p, s);
    CHECK_UINT(p.n, 1);
    picture_deinit(&p);
    rows_deinit(&rows);
}

CONTRACT(a_batch_may_be_large)
{
    struct subject *reference = subject_reference();
    struct rows rows = {0};
    struct picture actual = {0};
    struct picture expected = {0};
    subject_lead(s);
    add_job(&rows, "j");
    for (uint32_t i = 0; i < 10000; i++) {
        struct task_ref ref = ref_of("j", i / 100, i % 100);
        if (i % 100 == 0) {
            add_stage(&rows, "j", i / 100);
        }
        add_task(&rows, ref);
        add_attempt(&rows, ref, 1);
        add_lease(&rows, ref, 1);
        add_event(&rows, i + 1, ref);
        if (i % 2 == 0) { /* half of them have ended by the end of the batch */
            add_task_change(&rows, ref, TASK_SUCCEEDED);
            add_attempt_change(&rows, ref, 1, OUTCOME_COMPLETED);
            add_lease_gone(&rows, ref, token_of(ref, 1));
            add_map_output(&rows, ref, 1);
        }
    }
    CHECK_OK(s, rows_commit(s, &rows));
    CHECK_OK(reference, rows_commit(reference, &rows));
    picture_load(&actual, s);
    picture_load(&expected, reference);
    picture_tasks(&actual, s, (struct task_query){.job_id = "j", .state = TASK_SUCCEEDED, .limit = 999});
    picture_tasks(&expected, reference, (struct task_query){.job_id = "j", .state = TASK_SUCCEEDED, .limit = 999});
    CHECK_PICTURES(&actual, &expected);
    CHECK_UINT(picture_count(&actual, "task_leases"), 5000);
    CHECK(strcmp(subject_attempts(s), subject_attempts(reference)) == 0);
    picture_deinit(&actual);
    picture_deinit(&expected);
    rows_deinit(&rows);
}
