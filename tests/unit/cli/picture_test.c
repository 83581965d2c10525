/*
 * picture_test.c - how a running query looks on a terminal.
 */
#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "cli/picture.h"
#include "cli/text.h"

#define STAGES 3

/* A query of three stages: planned, at work, waiting. */
struct sample {
    struct pb_stage_status stages[STAGES];
    struct pb_stage_status *list[STAGES];
    uint64_t parents[2];
    struct pb_query_status status;
    struct picture picture;
};

static void sample_init(struct sample *s)
{
    *s = (struct sample){.parents = {0, 1}, .status = CAPSTAN__V1__QUERY_STATUS__INIT};
    for (uint32_t i = 0; i < STAGES; i++) {
        s->stages[i] = (struct pb_stage_status)CAPSTAN__V1__STAGE_STATUS__INIT;
        s->stages[i].stage_id = i;
        s->list[i] = &s->stages[i];
    }
    s->stages[0].name = (char *)"plan";
    s->stages[0].tasks = s->stages[0].succeeded = 1;
    s->stages[0].fraction = 1;
    s->stages[1].name = (char *)"s0";
    s->stages[1].tasks = 8;
    s->stages[1].succeeded = 3;
    s->stages[1].running = 2;
    s->stages[1].queued = 3;
    s->stages[1].rows = 1234567;
    s->stages[1].bytes = 12300000;
    s->stages[1].fraction = 0.5;
    s->stages[1].parents = &s->parents[0];
    s->stages[1].n_parents = 1;
    s->stages[2].name = (char *)"s1";
    s->stages[2].tasks = s->stages[2].queued = 4;
    s->stages[2].parents = &s->parents[1];
    s->stages[2].n_parents = 1;
    s->status.state = CAPSTAN__V1__QUERY_STATE__QUERY_STATE_RUNNING;
    s->status.stages = s->list;
    s->status.n_stages = STAGES;
}

static const char *draw(struct sample *s, const struct picture_view *view)
{
    static char text[4096];
    struct buf out = {0};
    picture_draw(&s->picture, &s->status, view, &out);
    snprintf(text, sizeof text, "%s", out.data);
    buf_deinit(&out);
    return text;
}

#define FULL "\xe2\x96\x88"
#define NONE "\xe2\x96\x91"
#define FULL_6 FULL FULL FULL FULL FULL FULL
#define NONE_6 NONE NONE NONE NONE NONE NONE

TEST(a_running_query_is_a_summary_and_a_bar_for_each_stage)
{
    struct sample s;
    sample_init(&s);
    struct picture_view view = {.columns = 100, .lines = 20, .now_ms = 1000, .elapsed_ms = 400};
    draw(&s, &view);
    view.now_ms = 3000; /* two seconds later */
    view.elapsed_ms = 2400;
    static const char plan[] = "{\"stages\":[{\"id\":0,\"what\":\"scan a.parquet: k, v\"},"
                               "{\"id\":1,\"what\":\"aggregate (one step of two) by 1 column\\n  rows\"}]}";
    picture_take_plan(&s.picture, &s.status, plan, sizeof plan - 1);
    CHECK_STR(draw(&s, &view), "\r\033[4A"
                               "running: 1 of 3 stages done, 2.4 s, 12.3 MB shuffled\033[K\n"
                               "  plan               " FULL_6 FULL_6 FULL_6 FULL_6 "  1/1 tasks\033[K\n"
                               "  s0 scan a.parquet  " FULL_6 FULL_6 NONE_6 NONE_6
                               "  3/8 tasks  1.23 M rows  617 k rows/s  12.3 MB\033[K\n"
                               "  s1 aggregate       " NONE_6 NONE_6 NONE_6 NONE_6 "  0/4 tasks\033[K\n"
                               "\033[J");
    picture_deinit(&s.picture);
}

TEST(what_does_not_fit_a_narrow_terminal_is_left_out_from_the_right)
{
    static const struct {
        uint32_t columns;
        const char *has;
        const char *has_not;
    } cases[] = {{62, "12.3 MB\033[K", "s9"},
                 {61, "617 k rows/s", "12.3 MB\033[K"},
                 {50, "1.23 M rows", "rows/s"},
                 {34, FULL, "M rows"},
                 {24, "3/8 tasks", FULL},
                 {12, "s0", "tasks"},
                 {1, "", "s0"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sample s;
        sample_init(&s);
        struct picture_view view = {.columns = cases[i].columns, .lines = 20, .now_ms = 1000};
        draw(&s, &view);
        view.now_ms = 3000;
        char *text = (char *)draw(&s, &view);
        CHECK(strstr(text, cases[i].has) != NULL);
        CHECK(strstr(text, cases[i].has_not) == NULL);
        /* No line reaches the edge: one that wrapped would not be taken away. */
        for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
            line += strspn(line, "\r");
            line += strncmp(line, "\033[4A", 4) == 0 ? 4 : 0;
            line[strcspn(line, "\033")] = '\0';
            CHECK(text_width(line) < cases[i].columns || cases[i].columns == 1);
        }
        picture_deinit(&s.picture);
    }
}

TEST(a_low_terminal_shows_what_is_not_done_first)
{
    struct sample s;
    sample_init(&s);
    struct picture_view view = {.columns = 80, .lines = 3, .now_ms = 1000};
    const char *text = draw(&s, &view);
    CHECK(strstr(text, "s0") != NULL && strstr(text, "s1") != NULL && strstr(text, "plan") == NULL);
    CHECK_UINT(s.picture.drawn, 3);
    struct buf out = {0};
    picture_clear(&s.picture, &out);
    CHECK_STR(out.data, "\r\033[3A\033[J");
    buf_reset(&out);
    picture_clear(&s.picture, &out);
    CHECK_UINT(out.n, 0); /* nothing is left to take away */
    buf_deinit(&out);
    picture_deinit(&s.picture);
}

TEST(colors_are_used_where_they_are_wanted_and_foreign_text_cannot_talk_to_the_terminal)
{
    struct sample s;
    sample_init(&s);
    s.stages[1].name = (char *)"s0\033[2J";
    s.stages[2].failed = 1;
    struct picture_view view = {.columns = 100, .lines = 20, .now_ms = 1000};
    CHECK(strstr(draw(&s, &view), "\033[2J") == NULL);
    CHECK(strstr(draw(&s, &view), "\033[3") == NULL); /* the picture before has four lines */
    CHECK(strstr(draw(&s, &view), "s0\\x1b[2J") != NULL);
    CHECK(strstr(draw(&s, &view), "0/4 tasks, 1 failed") != NULL);
    view.has_colors = true;
    CHECK(strstr(draw(&s, &view), "\033[36m" FULL) != NULL);
    CHECK(strstr(draw(&s, &view), "\033[31m" NONE) != NULL);
    picture_deinit(&s.picture);
}

TEST(the_plan_is_asked_for_when_there_are_stages_of_it_and_only_then)
{
    struct sample s;
    sample_init(&s);
    CHECK(picture_wants_plan(&s.picture, &s.status));
    s.status.n_stages = 1;
    CHECK(!picture_wants_plan(&s.picture, &s.status));
    s.status.n_stages = STAGES;
    picture_take_plan(&s.picture, &s.status, "no plan", 7);
    CHECK(picture_wants_plan(&s.picture, &s.status));
    picture_take_plan(&s.picture, &s.status, "{\"stages\":[{\"id\":1,\"what\":\"\"}]}", 31);
    CHECK(!picture_wants_plan(&s.picture, &s.status));
    picture_deinit(&s.picture);
}
