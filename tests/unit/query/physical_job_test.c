#include <string.h>

#include "query/physical.h"
#include "test.h"

/* Two joins that may choose, of which the second waits for the first, and the result behind them. */
static const char two_choices[] =
    "{\"stages\":["
    "{\"id\":10,\"sql\":\"a\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":4}},"
    "{\"id\":11,\"sql\":\"b\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":4}},"
    "{\"id\":12,\"sql\":\"c\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":4}},"
    "{\"id\":13,\"sql\":\"d\",\"inputs\":{\"s\":10,\"l\":11},\"choice\":{\"small\":10,\"large\":11,\"bytes\":9},"
    "\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":4}},"
    "{\"id\":14,\"sql\":\"e\",\"inputs\":{\"s\":13,\"l\":12},\"choice\":{\"small\":13,\"large\":12,\"bytes\":9},"
    "\"output\":{\"exchange\":\"gather\"}},"
    "{\"id\":15,\"sql\":\"f\",\"inputs\":{\"x\":14},\"output\":{\"exchange\":\"result\"}}],"
    "\"engine\":\"duckdb-v1\",\"first_job_stage\":1}";

struct fixture {
    struct arena arena;
    struct physical_plan *plan;
    struct buf errors;
};

static struct fixture read_plan(const char *text)
{
    struct fixture f = {0};
    struct error e = {0};
    enum err err = physical_read(text, strlen(text), &f.arena, &f.plan, &f.errors, &e);
    CHECK((err == ERR_OK) == (f.plan != NULL));
    return f;
}

static void fixture_deinit(struct fixture *f)
{
    buf_deinit(&f->errors);
    arena_deinit(&f->arena);
}

/* Ids of the stages that are due, as text. */
static const char *due(const struct physical_plan *plan)
{
    static struct buf text;
    buf_deinit(&text);
    buf_text(&text, "");
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (physical_is_due(plan, i)) {
            buf_format(&text, "%s%u", text.n > 0 ? " " : "", (unsigned)plan->stages[i].id);
        }
    }
    return text.data;
}

TEST(stages_are_due_that_no_choice_is_about_and_whose_inputs_are_due)
{
    struct fixture f = read_plan(two_choices);
    uint32_t *awaited = NULL;
    CHECK_STR(due(f.plan), "10");
    CHECK_UINT(physical_awaited(f.plan, &f.arena, &awaited), 1);
    CHECK_UINT(f.plan->stages[awaited[0]].id, 10);
    f.plan->stages[3].choice.is_open = false;
    CHECK_STR(due(f.plan), "10 11 13");
    CHECK_UINT(physical_awaited(f.plan, &f.arena, &awaited), 1);
    CHECK_UINT(f.plan->stages[awaited[0]].id, 13);
    f.plan->stages[4].choice.is_open = false;
    CHECK_STR(due(f.plan), "10 11 12 13 14 15");
    CHECK_UINT(physical_awaited(f.plan, &f.arena, &awaited), 0);
    fixture_deinit(&f);
}

TEST(stages_that_were_added_keep_their_place_in_the_job)
{
    struct fixture f = read_plan(two_choices);
    struct buf text = {0};
    uint32_t *awaited = NULL;
    physical_mark_added(f.plan);
    CHECK_UINT(f.plan->stages[0].job_stage, 1);
    CHECK_UINT(f.plan->stages[1].job_stage, PHYSICAL_NOT_ADDED);
    CHECK_STR(due(f.plan), "");
    CHECK_UINT(physical_awaited(f.plan, &f.arena, &awaited), 1);
    CHECK_UINT(f.plan->stages[awaited[0]].id, 10);
    f.plan->first_job_stage = 3;
    f.plan->stages[3].choice.is_open = false;
    physical_write(&text, f.plan);
    struct fixture again = read_plan(text.data);
    CHECK_STR(again.errors.data == NULL ? "" : again.errors.data, "");
    CHECK_STR(again.plan->engine, "duckdb-v1");
    CHECK_UINT(again.plan->first_job_stage, 3);
    CHECK_UINT(again.plan->stages[0].job_stage, 1);
    CHECK_STR(due(again.plan), "11 13");
    physical_mark_added(again.plan);
    CHECK_UINT(again.plan->stages[1].job_stage, 3);
    CHECK_UINT(again.plan->stages[3].job_stage, 4);
    CHECK_UINT(again.plan->stages[2].job_stage, PHYSICAL_NOT_ADDED);
    buf_deinit(&text);
    fixture_deinit(&again);
    fixture_deinit(&f);
}

TEST(a_plan_that_was_never_added_says_nothing_about_a_job)
{
    struct fixture f = read_plan("{\"stages\":[{\"id\":0,\"sql\":\"select 1\",\"output\":{\"exchange\":\"result\"}}]}");
    struct buf text = {0};
    CHECK(f.plan->engine == NULL);
    CHECK_UINT(f.plan->first_job_stage, 0);
    CHECK_UINT(f.plan->stages[0].job_stage, PHYSICAL_NOT_ADDED);
    physical_write(&text, f.plan);
    CHECK(strstr(text.data, "job_stage") == NULL);
    CHECK(strstr(text.data, "engine") == NULL);
    buf_deinit(&text);
    fixture_deinit(&f);
}

TEST(wrong_places_in_the_job_are_named)
{
    static const struct {
        const char *text;
        const char *error;
    } cases[] = {
        {"{\"stages\":[{\"id\":0,\"job_stage\":0,\"sql\":\"s\",\"output\":{\"exchange\":\"result\"}}]}",
         "stage 0: its \"job_stage\" must be below the plan's \"first_job_stage\""},
        {"{\"first_job_stage\":5,\"stages\":[{\"id\":0,\"job_stage\":\"1\",\"sql\":\"s\",\"output\":{\"exchange\":"
         "\"result\"}}]}",
         "stage 0: \"job_stage\" must be a whole number from 0 to 1000000"},
        {"{\"first_job_stage\":5,\"stages\":[{\"id\":0,\"sql\":\"s\",\"output\":{\"exchange\":\"gather\"}},{\"id\":1,"
         "\"job_stage\":2,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"result\"}}]}",
         "stage 1: it has a \"job_stage\", but stage 0, which it reads, has none"},
        {"{\"first_job_stage\":5,\"stages\":[{\"id\":0,\"job_stage\":2,\"sql\":\"s\",\"output\":{\"exchange\":\"gather\"}},"
         "{\"id\":1,\"job_stage\":2,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"result\"}}]}",
         "stage 1: stage 0 has the same \"job_stage\""},
        {"{\"engine\":7,\"stages\":[{\"id\":0,\"sql\":\"s\",\"output\":{\"exchange\":\"result\"}}]}",
         "\"engine\" must be a text that is not empty"},
        {"{\"first_job_stage\":-1,\"stages\":[{\"id\":0,\"sql\":\"s\",\"output\":{\"exchange\":\"result\"}}]}",
         "\"first_job_stage\" must be a whole number from 0 to 1000000"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture f = read_plan(cases[i].text);
        CHECK(f.plan == NULL);
        CHECK_STR(f.errors.data, cases[i].error);
        fixture_deinit(&f);
    }
}

/* What the parents of the last stage but one are, as text: id, and * if it is read as a whole. */
static const char *parents(const struct physical_plan *plan, uint32_t stage)
{
    static struct buf text;
    struct arena arena = {0};
    uint32_t *stages = NULL;
    bool *whole = NULL;
    uint32_t n = physical_parents(plan, stage, &arena, &stages, &whole);
    buf_deinit(&text);
    buf_text(&text, "");
    for (uint32_t i = 0; i < n; i++) {
        buf_format(&text, "%s%u%s", i == 0 ? "" : " ", (unsigned)plan->stages[stages[i]].id, whole[i] ? "*" : "");
    }
    arena_deinit(&arena);
    return text.data;
}

/* A stage with these members that reads 0 and 1, by three partitions each, and 2, which everybody gets. */
static const char *parents_of(const char *members)
{
    struct buf text = {0};
    buf_format(
        &text,
        "{\"stages\":[{\"id\":0,\"sql\":\"x\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":3}},"
        "{\"id\":1,\"sql\":\"x\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":3}},"
        "{\"id\":2,\"sql\":\"x\",\"output\":{\"exchange\":\"broadcast\"}},"
        "{\"id\":3,\"sql\":\"y\",%s,\"output\":{\"exchange\":\"result\"}}]}",
        members);
    struct fixture f = read_plan(text.data);
    CHECK_STR(f.errors.data == NULL ? "" : f.errors.data, "");
    const char *answer = parents(f.plan, 3);
    fixture_deinit(&f);
    buf_deinit(&text);
    return answer;
}

TEST(parents_come_in_the_order_of_the_inputs_each_once)
{
    CHECK_STR(parents_of("\"inputs\":{\"a\":1,\"b\":2,\"c\":0,\"d\":1}"), "1 2* 0");
}

TEST(a_parent_that_any_input_reads_as_a_whole_is_given_as_a_whole)
{
    CHECK_STR(parents_of("\"inputs\":{\"a\":1,\"b\":2,\"c\":{\"stage\":0,\"read\":\"all\"},\"d\":0}"), "1 2* 0*");
}

TEST(groups_of_partitions_are_picked_by_the_task_itself)
{
    CHECK_STR(parents_of("\"inputs\":{\"a\":0,\"b\":1,\"c\":2},\"groups\":[[0,1],[2,2]]"), "0* 1* 2*");
    CHECK_STR(parents_of("\"inputs\":{\"a\":0,\"b\":1,\"c\":2},\"groups\":[[0,0],[1,1],[2,2]]"), "0* 1* 2*");
}

TEST(tasks_of_splits_are_given_all_of_what_they_read)
{
    CHECK_STR(
        parents_of("\"splits\":[{\"file\":\"f\"},{\"file\":\"g\"}],\"inputs\":{\"a\":{\"stage\":0,\"read\":\"all\"},"
                   "\"b\":{\"stage\":1,\"read\":\"all\"},\"c\":2}"),
        "0* 1* 2*");
}
