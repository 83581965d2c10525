#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "cli/progress.h"

static const char *const names[] = {"extract", "load", "report"};

/* An event about stage `stage`, or about the job itself if `attempt` is 0 and the type is one of a job. */
static const struct pb_event *event(uint64_t seq, const char *type, uint32_t stage, uint32_t attempt)
{
    static struct pb_event e;
    static struct pb_attempt_ref ref;
    capstan__v1__attempt_ref__init(&ref);
    capstan__v1__event__init(&e);
    ref.query_id = (char *)"j";
    ref.stage_id = stage;
    ref.attempt = attempt;
    e.seq = seq;
    e.at_ms = 1000 * seq;
    e.type = (char *)type;
    e.ref = &ref;
    e.worker_id = (char *)(attempt > 0 ? "w1" : "");
    e.details = (char *)(strcmp(type, "failed") == 0 ? "{\"message\":\"exit code 3\\u001b\"}" : "{}");
    return &e;
}

static const char *line_of(struct progress *p, const struct pb_event *e)
{
    static char text[256];
    struct buf line = {0};
    progress_event(p, e, 0, &line);
    snprintf(text, sizeof text, "%s", line.data == NULL ? "" : line.data);
    buf_deinit(&line);
    return text;
}

TEST(each_change_of_a_task_is_one_line)
{
    struct progress p;
    progress_init(&p, names, 3);

    CHECK_STR(line_of(&p, event(1, "created", 0, 0)), "");
    CHECK_STR(line_of(&p, event(2, "pending", 0, 0)), "");
    CHECK_STR(line_of(&p, event(3, "assigned", 0, 1)), "extract: running on w1\n");
    CHECK_STR(line_of(&p, event(4, "started", 0, 1)), "");
    CHECK_STR(line_of(&p, event(5, "failed", 0, 1)), "extract: failed on w1 in 2.0 s: exit code 3\\x1b\n");
    CHECK_STR(line_of(&p, event(6, "assigned", 0, 2)), "extract: running on w1 (attempt 2)\n");
    CHECK_STR(line_of(&p, event(6, "assigned", 0, 2)), ""); /* once more, after the stream broke */
    CHECK_STR(line_of(&p, event(7, "reassigned", 0, 2)), "extract: taken back from w1 (attempt 2)\n");
    CHECK_STR(line_of(&p, event(8, "assigned", 0, 3)), "extract: running on w1 (attempt 3)\n");
    CHECK_STR(line_of(&p, event(9, "completed", 0, 3)), "extract: succeeded on w1 (attempt 3) in 1.0 s\n");
    CHECK_STR(line_of(&p, event(10, "skipped", 1, 0)), "load: skipped\n");
    CHECK_STR(line_of(&p, event(11, "stuck", 2, 0)), "");
    CHECK_STR(line_of(&p, event(12, "completed", 7, 1)), ""); /* a task that nobody knows */
    CHECK(!p.has_ended);
    CHECK_STR(line_of(&p, event(13, "failed", 0, 0)), "");
    CHECK(p.has_ended);
    CHECK_UINT(p.counts[PROGRESS_SUCCEEDED], 1);
    CHECK_UINT(p.counts[PROGRESS_SKIPPED], 1);
    CHECK_UINT(p.counts[PROGRESS_CANCELED], 1); /* what was left when the job ended */
    CHECK_UINT(p.last_seq, 13);
    progress_deinit(&p);
}

TEST(an_event_about_a_node_changes_nothing)
{
    struct progress p;
    struct pb_event joined;
    progress_init(&p, names, 3);
    capstan__v1__event__init(&joined);
    joined.seq = 1;
    joined.type = (char *)"joined";

    CHECK_STR(line_of(&p, &joined), "");
    CHECK_UINT(p.counts[PROGRESS_QUEUED], 3);
    progress_deinit(&p);
}

TEST(the_summary_counts_what_there_is)
{
    struct progress p;
    struct buf out = {0};
    progress_init(&p, NULL, 1200);
    progress_event(&p, event(1, "assigned", 0, 1), 0, NULL);
    progress_event(&p, event(2, "completed", 1, 1), 0, NULL);

    progress_summary(&p, 1234, &out);

    CHECK_STR(out.data, "1 of 1,200 done, 1 running, 1,198 queued \xc2\xb7 1.2 s");
    buf_deinit(&out);
    progress_deinit(&p);
}

static uint32_t lines_in(const char *text)
{
    uint32_t n = 0;
    for (const char *p = text; *p != '\0'; p++) {
        n += *p == '\n' ? 1 : 0;
    }
    return n;
}

TEST(a_drawing_replaces_the_one_before)
{
    struct progress p;
    struct buf out = {0};
    struct progress_view view = {.columns = 60, .lines = 20, .now_ms = 500};
    progress_init(&p, names, 3);
    progress_event(&p, event(1, "assigned", 1, 1), 0, NULL);

    progress_draw(&p, &view, &out);
    CHECK_STR(out.data, "\r\033[J"
                        "extract  queued     \n"
                        "load     running    w1  500 ms\n"
                        "report   queued     \n"
                        "0 of 3 done, 1 running, 2 queued \xc2\xb7 0 ms\n");
    buf_reset(&out);
    progress_draw(&p, &view, &out);
    CHECK_MEM(out.data, "\033[4A\r\033[J", 8);
    buf_deinit(&out);
    progress_deinit(&p);
}

TEST(a_drawing_of_a_large_job_fits_the_terminal)
{
    struct progress p;
    struct buf out = {0};
    struct progress_view view = {.columns = 40, .lines = 10};
    progress_init(&p, NULL, 100000);
    for (uint32_t i = 0; i < 50; i++) {
        progress_event(&p, event(i + 1, "assigned", i * 7, 1), 0, NULL);
    }

    progress_draw(&p, &view, &out);

    CHECK_UINT(lines_in(out.data), 10);
    CHECK_UINT(p.drawn, 10);
    CHECK(strstr(out.data, "task 7 ") != NULL);
    buf_deinit(&out);
    progress_deinit(&p);
}

TEST(no_line_of_a_drawing_is_wider_than_the_terminal)
{
    static const char *const long_names[] = {"a_name_that_is_much_longer_than_anything_that_fits_into_the_column"};
    struct progress p;
    struct buf out = {0};
    struct progress_view view = {.columns = 40, .lines = 10};
    progress_init(&p, long_names, 1);
    progress_event(&p, event(1, "failed", 0, 2), 0, NULL);

    progress_draw(&p, &view, &out);

    for (const char *line = strchr(out.data, 'J') + 1; *line != '\0'; line += strcspn(line, "\n") + 1) {
        CHECK(strcspn(line, "\n") <= 40 + 8); /* the ellipses and the dot have more bytes than columns */
    }
    buf_deinit(&out);
    progress_deinit(&p);
}
