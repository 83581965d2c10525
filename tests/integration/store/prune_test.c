/* prune_test.c - old history goes, in small steps; what lives and what is young stays. */
#include <string.h>

#include "content.h"
#include "picture.h"

#define CUT_MS 5000

/* An ended job with all that belongs to it, payload included. */
static void write_job(struct subject *s, const char *job_id, enum job_state state, int64_t finished_at_ms)
{
    struct rows rows = {0};
    add_whole_job(&rows, job_id);
    struct row_job *job = (struct row_job *)(void *)rows.first;
    job->state = state;
    job->finished_at_ms = finished_at_ms;
    const struct row *head = rows.first;
    struct payload payload = {.job_id = job_id, .digest = digest_from(1), .bytes = "p", .n_bytes = 1};
    struct batch batch = {.rows = &head, .n_rows = 1, .payloads = &payload, .n_payloads = 1};
    CHECK_OK(s, store_commit(s->store, &s->fence, &batch, &s->e));
    rows_deinit(&rows);
}

static void write_events(struct subject *s, uint64_t from, uint64_t to, int64_t at_ms)
{
    struct rows rows = {0};
    for (uint64_t seq = from; seq <= to; seq++) {
        add_event(&rows, seq, ref_of("j", 0, 0))->at_ms = at_ms;
    }
    CHECK_OK(s, rows_commit(s, &rows));
    rows_deinit(&rows);
}

/* Everything there is of a job. */
static bool is_there(struct subject *s, const char *job_id)
{
    struct picture p = {0};
    picture_load_job(&p, s, job_id);
    picture_tasks(&p, s, (struct task_query){.job_id = job_id, .state = -1, .limit = 10});
    picture_payload(&p, s, job_id, digest_from(1));
    uint32_t n = p.n;
    picture_deinit(&p);
    CHECK(n == 0 || n == 8); /* whole or absent */
    return n > 0;
}

static uint32_t prune_all(struct subject *s, int64_t before_ms, uint32_t limit)
{
    bool more = true;
    uint32_t n_steps = 0;
    while (more) {
        CHECK_OK(s, store_prune(s->store, &s->fence, before_ms, limit, &more, &s->e));
        CHECK(++n_steps < 1000);
    }
    return n_steps;
}

CONTRACT(only_jobs_that_ended_long_ago_are_pruned)
{
    subject_lead(s);
    write_job(s, "old-succeeded", JOB_SUCCEEDED, CUT_MS - 1);
    write_job(s, "old-failed", JOB_FAILED, 1);
    write_job(s, "old-canceled", JOB_CANCELED, CUT_MS - 2);
    write_job(s, "young", JOB_SUCCEEDED, CUT_MS);
    write_job(s, "running", JOB_RUNNING, 1);
    write_job(s, "queued", JOB_QUEUED, 0);
    prune_all(s, CUT_MS, 100);
    CHECK(!is_there(s, "old-succeeded"));
    CHECK(!is_there(s, "old-failed"));
    CHECK(!is_there(s, "old-canceled"));
    CHECK(is_there(s, "young"));
    CHECK(is_there(s, "running"));
    CHECK(is_there(s, "queued"));
    CHECK(strstr(subject_attempts(s), "6F6C642D") == NULL);       /* "old-" */
    CHECK(strstr(subject_attempts(s), "72756E6E696E67") != NULL); /* "running" */
    write_job(s, "old-failed", JOB_RUNNING, 0);                   /* the id is free again, and its attempts' keys */
    CHECK(is_there(s, "old-failed"));
    prune_all(s, INT64_MAX, 100);
    CHECK(!is_there(s, "young"));
    CHECK(is_there(s, "running"));
    CHECK(is_there(s, "queued"));
}

CONTRACT(jobs_are_pruned_in_steps_until_there_is_no_more)
{
    subject_lead(s);
    for (uint32_t i = 0; i < 10; i++) {
        write_job(s, arena_format(&s->arena, "job-%u", i), JOB_SUCCEEDED, 100 + i);
    }
    bool more = false;
    for (uint32_t left = 10; left > 0;) {
        CHECK_OK(s, store_prune(s->store, &s->fence, CUT_MS, 3, &more, &s->e));
        uint32_t now = 0;
        for (uint32_t i = 0; i < 10; i++) {
            now += is_there(s, arena_format(&s->arena, "job-%u", i));
        }
        CHECK(now <= left);
        CHECK(left - now <= 3);    /* a small step */
        CHECK(left > now || more); /* that gets somewhere */
        CHECK(now == 0 || more);   /* and says so while there is more */
        left = now;
    }
    prune_all(s, CUT_MS, 3);
}

static uint32_t count_of(struct subject *s, const char *job_id)
{
    struct picture p = {0};
    picture_load_job(&p, s, job_id);
    uint32_t n = p.n;
    picture_deinit(&p);
    return n;
}

/* However many transactions it takes, nobody sees a part of it. */
CONTRACT(a_large_job_is_pruned_without_being_seen_in_parts)
{
    enum { N_TASKS = 12000 };
    struct rows rows = {0};
    subject_lead(s);
    struct row_job *job = add_job(&rows, "large");
    job->state = JOB_SUCCEEDED;
    job->finished_at_ms = 1;
    job->idempotency_key = "key";
    for (uint32_t i = 0; i < N_TASKS; i++) {
        add_task(&rows, ref_of("large", 0, i));
        add_attempt(&rows, ref_of("large", 0, i), 1);
    }
    add_whole_job(&rows, "other");
    CHECK_OK(s, rows_commit(s, &rows));
    CHECK_UINT(count_of(s, "large"), N_TASKS + 1);
    bool more = true;
    for (int steps = 0; more; steps++) {
        struct picture p = {0};
        const char *job_id;
        CHECK(steps < 1000);
        CHECK_OK(s, store_prune(s->store, &s->fence, CUT_MS, 10, &more, &s->e));
        uint32_t n = count_of(s, "large");
        bool is_there_still = n > 0;
        CHECK(n == 0 || n == N_TASKS + 1);
        picture_jobs(&p, s, (struct job_query){.state = -1, .limit = 10});
        CHECK_UINT(picture_count(&p, "jobs"), is_there_still ? 2 : 1);
        picture_deinit(&p);
        picture_jobs(&p, s, (struct job_query){.state = JOB_SUCCEEDED, .name = "a name", .limit = 10});
        CHECK_UINT(picture_count(&p, "jobs"), is_there_still ? 1 : 0);
        picture_deinit(&p);
        enum err err = store_find_key(s->store, "key", 0, &s->arena, &job_id, &s->e);
        CHECK_ERR(err, is_there_still ? ERR_OK : ERR_NOT_FOUND);
        picture_load(&p, s); /* what is left of it belongs to nobody */
        CHECK_UINT(picture_count(&p, "tasks"), 1);
        picture_deinit(&p);
    }
    CHECK_UINT(count_of(s, "large"), 0);
    CHECK_UINT(count_of(s, "other"), 6);
    CHECK(strstr(subject_attempts(s), "6C61726765") == NULL); /* "large" */
    rows.first->next = NULL;
    CHECK_OK(s, rows_commit(s, &rows)); /* the id is free again */
    CHECK_UINT(count_of(s, "large"), 1);
    rows_deinit(&rows);
}

/* A value that the store refuses would depose leader after leader, so the id of a job that is half gone is free. */
CONTRACT(the_id_of_a_large_job_is_free_from_the_first_step_of_its_removal_on)
{
    enum { N_TASKS = 12000 };
    struct rows rows = {0};
    struct picture p = {0};
    bool more = false;
    const char *id = "large";
    bool known = true;
    subject_lead(s);
    struct row_job *job = add_job(&rows, "large");
    job->state = JOB_SUCCEEDED;
    job->finished_at_ms = 1;
    for (uint32_t i = 0; i < N_TASKS; i++) {
        add_task(&rows, ref_of("large", 0, i));
        add_attempt(&rows, ref_of("large", 0, i), 1);
    }
    CHECK_OK(s, rows_commit(s, &rows));
    rows_deinit(&rows);
    CHECK_OK(s, store_prune(s->store, &s->fence, CUT_MS, 10, &more, &s->e));
    CHECK(more || s->kind == ENGINE_MEMORY);
    CHECK_OK(s, store_known_jobs(s->store, &id, 1, &known, &s->e));
    CHECK(!known);
    job = add_job(&rows, "large");
    job->name = "a new one";
    job->idempotency_key = "new key";
    job->state = JOB_RUNNING;
    add_stage(&rows, "large", 0);
    add_task(&rows, ref_of("large", 0, 0));
    add_attempt(&rows, ref_of("large", 0, 0), 1);
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load_job(&p, s, "large");
    CHECK_UINT(p.n, 3);
    CHECK_STR(entry_text(picture_only(&p, "jobs"), "name"), "a new one");
    CHECK_STR(entry_text(picture_only(&p, "jobs"), "idempotency_key"), "new key");
    picture_deinit(&p);
    prune_all(s, CUT_MS, 10); /* it is not old */
    CHECK_UINT(count_of(s, "large"), 3);
    rows_deinit(&rows);
}

static void check_events(struct subject *s, uint64_t first, uint64_t last)
{
    struct picture p = {0};
    uint64_t pruned = UINT64_MAX;
    struct page page = {0};
    struct event_query query = {.limit = 1000};
    CHECK_OK(s, store_events(s->store, &query, &s->arena, &page, &pruned, &s->e));
    CHECK_UINT(pruned, first - 1);
    CHECK_UINT(page.n_rows, last - first + 1);
    CHECK_UINT(((const struct row_event *)(const void *)page.rows[0])->seq, first);
    picture_load(&p, s);
    CHECK_INT(p.entries[p.n - 1].values[0].number, (int64_t)last);
    picture_deinit(&p);
}

CONTRACT(events_are_cut_off_at_the_old_end)
{
    bool more = false;
    subject_lead(s);
    CHECK_UINT(prune_all(s, INT64_MAX, 10), 1); /* nothing there yet */
    write_events(s, 1, 10, CUT_MS - 1);
    write_events(s, 11, 12, CUT_MS);
    check_events(s, 1, 12);
    CHECK_OK(s, store_prune(s->store, &s->fence, CUT_MS, 4, &more, &s->e));
    CHECK(more);
    check_events(s, 5, 12);
    prune_all(s, CUT_MS, 4);
    check_events(s, 11, 12);
    prune_all(s, CUT_MS, 4);
    check_events(s, 11, 12);
}

CONTRACT(the_newest_event_is_never_pruned)
{
    subject_lead(s);
    write_events(s, 1, 20, 1);
    prune_all(s, INT64_MAX, 7);
    check_events(s, 20, 20);
    prune_all(s, INT64_MAX, 7);
    check_events(s, 20, 20);
    write_events(s, 21, 22, 1);
    prune_all(s, INT64_MAX, 1);
    check_events(s, 22, 22);
    subject_close(s, s->store);
    s->store = subject_open(s);
    check_events(s, 22, 22); /* a new leader goes on from there */
}
