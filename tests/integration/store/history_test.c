/* history_test.c - pages of jobs, tasks and events: filtered, by key, never skipping or repeating a row. */
#include <string.h>

#include "content.h"
#include "picture.h"

/* 40 jobs, two of each millisecond; every fourth has ended, every fifth has another name. */
static void write_jobs(struct subject *s, uint32_t from, uint32_t to)
{
    struct rows rows = {0};
    for (uint32_t i = from; i < to; i++) {
        struct row_job *job = add_job(&rows, arena_format(&rows.arena, "job-%03u", i));
        job->submitted_at_ms = 1000 + i / 2;
        job->state = i % 4 == 0 ? JOB_SUCCEEDED : i % 4 == 1 ? JOB_QUEUED : JOB_RUNNING;
        job->name = i % 5 == 0 ? "fifth" : i % 5 == 1 ? NULL : "other";
    }
    CHECK_OK(s, rows_commit(s, &rows));
    rows_deinit(&rows);
}

static uint32_t count_jobs(struct subject *s, struct job_query query)
{
    struct picture p = {0};
    picture_jobs(&p, s, query);
    uint32_t n = p.n;
    for (uint32_t i = 0; i < p.n; i++) {
        const struct entry *e = &p.entries[i];
        CHECK(query.state < 0 || entry_number(e, "state") == query.state);
        if (query.name != NULL) {
            CHECK_STR(entry_text(e, "name"), query.name);
        }
        for (uint32_t k = 0; k < i; k++) { /* each one once */
            CHECK(strcmp(entry_text(e, "job_id"), entry_text(&p.entries[k], "job_id")) != 0);
        }
    }
    picture_deinit(&p);
    return n;
}

CONTRACT(pages_of_jobs_are_filtered_and_none_is_missed_or_repeated)
{
    subject_lead(s);
    CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .limit = 5}), 0);
    write_jobs(s, 0, 40);
    for (uint32_t limit = 1; limit <= 45; limit += limit < 8 ? 1 : 13) {
        CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .limit = limit}), 40);
        CHECK_UINT(count_jobs(s, (struct job_query){.state = JOB_SUCCEEDED, .limit = limit}), 10);
        CHECK_UINT(count_jobs(s, (struct job_query){.state = JOB_RUNNING, .limit = limit}), 20);
        CHECK_UINT(count_jobs(s, (struct job_query){.state = JOB_CANCELED, .limit = limit}), 0);
        CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .name = "fifth", .limit = limit}), 8);
        CHECK_UINT(count_jobs(s, (struct job_query){.state = JOB_SUCCEEDED, .name = "fifth", .limit = limit}), 2);
        CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .name = "", .limit = limit}), 0);
        CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .name = "Fifth", .limit = limit}), 0);
    }
}

/* Newer jobs arrive and others change while somebody reads page by page. */
CONTRACT(pages_of_jobs_stand_still_while_new_ones_arrive)
{
    struct job_query query = {.state = -1, .limit = 7};
    uint32_t seen[60] = {0};
    uint32_t arrived = 40;
    subject_lead(s);
    write_jobs(s, 0, 40);
    do {
        struct page page = {0};
        struct rows rows = {0};
        CHECK_OK(s, store_jobs(s->store, &query, &s->arena, &page, &s->e));
        for (uint32_t i = 0; i < page.n_rows; i++) {
            const char *job_id = ((const struct row_job *)(const void *)page.rows[i])->job_id;
            unsigned number =
                (unsigned)(job_id[4] - '0') * 100 + (unsigned)(job_id[5] - '0') * 10 + (unsigned)(job_id[6] - '0');
            CHECK(number < 60);
            seen[number]++;
        }
        write_jobs(s, arrived, arrived + 2);
        arrived += 2;
        add_job_change(&rows, "job-020", JOB_FAILED);
        CHECK_OK(s, rows_commit(s, &rows));
        rows_deinit(&rows);
        query.after = page.next;
    } while (query.after != NULL);
    for (uint32_t i = 0; i < 60; i++) {
        CHECK_UINT(seen[i], i < 40 ? 1 : 0); /* those that came later are newer than the first page */
    }
}

CONTRACT(pages_of_tasks_are_in_order_and_filtered)
{
    struct rows rows = {0};
    subject_lead(s);
    for (uint32_t i = 0; i < 60; i++) {
        struct row_task *task = add_task(&rows, ref_of("j", (i * 7) % 4, (i * 7) / 4 % 15));
        task->ref.task = i / 4;
        task->ref.stage = i % 4;
        task->state = i % 3 == 0 ? TASK_QUEUED : TASK_SUCCEEDED;
    }
    add_task(&rows, ref_of("jj", 0, 0));
    CHECK_OK(s, rows_commit(s, &rows));
    for (uint32_t limit = 1; limit <= 70; limit += limit < 4 ? 1 : 17) {
        struct picture p = {0};
        picture_tasks(&p, s, (struct task_query){.job_id = "j", .state = -1, .limit = limit});
        CHECK_UINT(p.n, 60);
        picture_tasks(&p, s, (struct task_query){.job_id = "j", .state = TASK_QUEUED, .limit = limit});
        CHECK_UINT(p.n, 80);
        picture_tasks(&p, s, (struct task_query){.job_id = "j", .state = TASK_FAILED, .limit = limit});
        CHECK_UINT(p.n, 80);
        picture_tasks(&p, s, (struct task_query){.job_id = "none", .state = -1, .limit = limit});
        CHECK_UINT(p.n, 80);
        picture_deinit(&p);
    }
    rows_deinit(&rows);
}

CONTRACT(events_come_in_order_from_any_number_on)
{
    struct rows rows = {0};
    subject_lead(s);
    for (uint32_t i = 1; i <= 50; i++) {
        add_event(&rows, i, ref_of(i % 5 == 0 ? NULL : i % 2 == 0 ? "even" : "odd", 0, i));
    }
    CHECK_OK(s, rows_commit(s, &rows));
    for (uint32_t limit = 1; limit <= 60; limit += limit < 4 ? 1 : 19) {
        struct picture p = {0};
        picture_events(&p, s, (struct event_query){.limit = limit});
        CHECK_UINT(picture_count(&p, "task_events"), 50);
        picture_events(&p, s, (struct event_query){.after_seq = 45, .limit = limit});
        CHECK_UINT(picture_count(&p, "task_events"), 55);
        picture_events(&p, s, (struct event_query){.after_seq = 50, .limit = limit});
        CHECK_UINT(picture_count(&p, "task_events"), 55);
        picture_events(&p, s, (struct event_query){.after_seq = INT64_MAX, .limit = limit});
        CHECK_UINT(picture_count(&p, "task_events"), 55);
        picture_events(&p, s, (struct event_query){.job_id = "even", .limit = limit});
        CHECK_UINT(picture_count(&p, "task_events"), 75);
        picture_events(&p, s, (struct event_query){.job_id = "odd", .after_seq = 40, .limit = limit});
        CHECK_UINT(picture_count(&p, "task_events"), 79);
        picture_events(&p, s, (struct event_query){.job_id = "none", .limit = limit});
        CHECK_UINT(picture_count(&p, "task_events"), 79);
        picture_deinit(&p);
    }
    rows_deinit(&rows);
}

/* Cursors travel through clients, so anything may come back. */
CONTRACT(a_page_after_nonsense_is_refused_or_empty_but_never_fatal)
{
    subject_lead(s);
    write_jobs(s, 0, 10);
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        struct page page = {0};
        struct job_query jobs = {.state = -1, .limit = 3, .after = hostile_texts[i]};
        struct task_query tasks = {.job_id = "job-001", .state = -1, .limit = 3, .after = hostile_texts[i]};
        enum err err = store_jobs(s->store, &jobs, &s->arena, &page, &s->e);
        CHECK(err == ERR_OK || err == ERR_INVALID);
        err = store_tasks(s->store, &tasks, &s->arena, &page, &s->e);
        CHECK(err == ERR_OK || err == ERR_INVALID);
    }
    CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .limit = 100}), 10);
}

CONTRACT(limits_and_filters_may_be_beyond_all_bounds)
{
    struct rows rows = {0};
    struct picture p = {0};
    const struct inbox_entry *entries = NULL;
    uint32_t n = 1;
    subject_lead(s);
    write_jobs(s, 0, 10);
    add_task(&rows, ref_of("job-001", 0, 0));
    add_event(&rows, 1, ref_of("job-001", 0, 0));
    CHECK_OK(s, rows_commit(s, &rows));
    CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .limit = UINT32_MAX}), 10);
    CHECK_UINT(count_jobs(s, (struct job_query){.state = 77, .limit = UINT32_MAX}), 0);
    CHECK_UINT(count_jobs(s, (struct job_query){.state = INT32_MAX, .limit = 1}), 0);
    picture_tasks(&p, s, (struct task_query){.job_id = "job-001", .state = -1, .limit = UINT32_MAX});
    picture_tasks(&p, s, (struct task_query){.job_id = "job-001", .state = 77, .limit = UINT32_MAX});
    CHECK_UINT(p.n, 1);
    picture_events(&p, s, (struct event_query){.limit = UINT32_MAX});
    CHECK_UINT(picture_count(&p, "task_events"), 1);
    picture_events(&p, s, (struct event_query){.after_seq = UINT64_MAX, .limit = UINT32_MAX});
    picture_events(&p, s, (struct event_query){.after_seq = (uint64_t)INT64_MAX + 1, .limit = 5});
    picture_events(&p, s, (struct event_query){.job_id = "job-001", .after_seq = UINT64_MAX, .limit = 5});
    CHECK_UINT(picture_count(&p, "task_events"), 1);
    CHECK_OK(s, store_inbox(s->store, &(struct inbox_query){.limit = UINT32_MAX}, &s->arena, &entries, &n, &s->e));
    CHECK_UINT(n, 0);
    bool more = true;
    CHECK_OK(s, store_prune(s->store, &s->fence, INT64_MIN, UINT32_MAX, &more, &s->e));
    CHECK(!more);
    CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .limit = UINT32_MAX}), 10);
    CHECK_OK(s, store_prune(s->store, &s->fence, INT64_MAX, UINT32_MAX, &more, &s->e));
    CHECK(!more);
    CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .limit = UINT32_MAX}), 7);
    picture_deinit(&p);
    rows_deinit(&rows);
}

CONTRACT(readers_may_have_stores_of_their_own)
{
    struct picture mine = {0};
    struct picture theirs = {0};
    subject_lead(s);
    struct store *writer = s->store;
    struct store *reader = subject_open(s);
    write_jobs(s, 0, 10);
    picture_jobs(&mine, s, (struct job_query){.state = -1, .limit = 3});
    picture_load(&mine, s);
    s->store = reader;
    picture_jobs(&theirs, s, (struct job_query){.state = -1, .limit = 3});
    picture_load(&theirs, s);
    CHECK_PICTURES(&theirs, &mine);
    s->store = writer;
    write_jobs(s, 10, 20);
    s->store = reader;
    CHECK_UINT(count_jobs(s, (struct job_query){.state = -1, .limit = 7}), 20);
    picture_deinit(&mine);
    picture_deinit(&theirs);
}
