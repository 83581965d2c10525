/*
 * query_test.c - parameters and settings of `capstan sql`, and what its stages took.
 */
#include "../test.h"

#include <string.h>

#include "base/json.h"
#include "cli/analyze.h"
#include "cli/query.h"

#define TEXTS_MAX 8

static uint32_t count(const char *const *texts)
{
    uint32_t n = 0;
    while (texts[n] != NULL) {
        n++;
    }
    return n;
}

static void check_params(const char *const *texts, const char *expected)
{
    struct buf out = {0};
    struct error e = {0};
    buf_append(&out, NULL, 0);
    CHECK_ERR(query_params(texts, count(texts), &out, &e), ERR_OK);
    CHECK_STR(out.data, expected);
    buf_deinit(&out);
}

#define PARAMS(expected, ...) check_params((const char *const[]){__VA_ARGS__, NULL}, (expected))

TEST(parameters_are_json_where_they_can_be_and_texts_else)
{
    PARAMS("", NULL);
    PARAMS("[1,\"x\",\"1\",true,null,[1, 2],\"\"]", "1", "x", "\"1\"", "true", "null", "[1, 2]", "");
    PARAMS("[18446744073709551615,-9223372036854775808,0.10000000000000001,1e300]", "18446744073709551615",
           "-9223372036854775808", "0.10000000000000001", "1e300");
    PARAMS("[100000000000000000000,1.00000000000000000000,0.10000000000000000000e3]", "100000000000000000000",
           "1.00000000000000000000", "0.10000000000000000000e3");
    PARAMS("[\"2026-11-15\",\"say \\\"x\\\"\"]", "2026-11-15", "say \"x\"");
    PARAMS("{\"a\":1,\"_b2\":\"x=y\",\"c\":\"\"}", "a=1", "_b2=x=y", "c=");
    /* What stands before the equals sign is no name. */
    PARAMS("[\"1=2\",\"a b=c\",\"=x\"]", "1=2", "a b=c", "=x");
}

TEST(numbers_that_would_be_rounded_are_refused)
{
    static const char *const texts[] = {"18446744073709551616", "n=123456789.123456789", "-0.0012345678901234567890e2"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct buf out = {0};
        struct error e = {0};
        CHECK_ERR(query_params(&texts[i], 1, &out, &e), ERR_INVALID);
        CHECK(strstr(e.message, "would be rounded") != NULL);
        CHECK(strstr(e.hint, "as a text") != NULL);
        buf_deinit(&out);
    }
}

static void check_settings(const char *text, const char *expected)
{
    struct buf out = {0};
    struct error e = {0};
    enum err err = query_settings(&text, 1, &out, &e);
    if (err == ERR_OK) {
        CHECK_STR(out.data, expected);
    } else {
        CHECK(strstr(e.message, expected) != NULL);
    }
    buf_deinit(&out);
}

TEST(settings_are_checked_by_their_kind)
{
    check_settings("partitions=8", "{\"partitions\":8}");
    check_settings("forced=on", "{\"forced\":true}");
    check_settings("single_task_bytes=0", "{\"single_task_bytes\":0}");
    check_settings("broadcast_bytes=2MiB", "{\"broadcast_bytes\":2097152}");
    check_settings("partitions=-1", "--set partitions:");
    check_settings("partition_bytes=much", "--set partition_bytes:");
    check_settings("lease_ms=5", "--set lease_ms: a query has no such setting");
}

static struct pb_task_status task(uint64_t start, uint64_t end)
{
    struct pb_task_status status = CAPSTAN__V1__TASK_STATUS__INIT;
    status.started_at_ms = start;
    status.finished_at_ms = end;
    return status;
}

TEST(skew_is_the_slowest_task_by_the_median_one)
{
    struct stage_times times = {0};
    struct pb_task_status tasks[] = {task(100, 200), task(0, 0),   task(50, 100),
                                     task(100, 400), task(300, 0), task(100, 200)};
    CHECK(stage_times_skew(&times) == 0);
    stage_times_add(&times, &tasks[0]);
    CHECK(stage_times_skew(&times) == 0);
    for (size_t i = 1; i < ARRAY_LEN(tasks); i++) {
        stage_times_add(&times, &tasks[i]);
    }
    CHECK_UINT(times.n, 4); /* those that have ended */
    CHECK_UINT(times.first_ms, 50);
    CHECK_UINT(times.last_ms, 400);
    CHECK(stage_times_skew(&times) == 3); /* 50, 100, 100, 300 */
    stage_times_deinit(&times);
}

/* Stages of the same job: even, uneven and alone. The analysis is printed for people, or as JSON. */
static void analyze_three(bool wants_json, struct buf *out)
{
    static const char plan[] = "{\"stages\":[{\"id\":0,\"output\":{\"exchange\":\"hash\"}},"
                               "{\"id\":1,\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"gather\"}},"
                               "{\"id\":2,\"inputs\":{\"a\":1},\"output\":{\"exchange\":\"result\"}}]}";
    static const char *const names[] = {"s0", "s1", "s2"};
    static const uint64_t took_ms[][3] = {{40, 40, 40}, {10, 205, 10}, {40, 0, 0}};
    struct pb_stage_status stages[3];
    struct pb_stage_status *pointers[3];
    struct stage_times times[3] = {0};
    struct pb_query_status status = CAPSTAN__V1__QUERY_STATUS__INIT;
    struct error e = {0};
    for (size_t i = 0; i < ARRAY_LEN(stages); i++) {
        stages[i] = (struct pb_stage_status)CAPSTAN__V1__STAGE_STATUS__INIT;
        stages[i].name = (char *)names[i];
        for (size_t k = 0; k < ARRAY_LEN(took_ms[i]) && took_ms[i][k] > 0; k++) {
            struct pb_task_status one = task(1000, 1000 + took_ms[i][k]);
            stage_times_add(&times[i], &one);
            stages[i].tasks++;
        }
        pointers[i] = &stages[i];
    }
    status.query_id = (char *)"j";
    status.stages = pointers;
    status.n_stages = ARRAY_LEN(stages);
    struct analysis analysis = {.status = &status, .times = times, .plan_json = plan, .n_plan = strlen(plan)};
    CHECK_ERR(analyze_write(out, &analysis, wants_json, &e), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        stage_times_deinit(&times[i]);
    }
}

TEST(skew_is_printed_of_even_and_uneven_stages_and_not_of_a_task_alone)
{
    struct buf out = {0};
    struct json *root = NULL;
    analyze_three(false, &out);
    CHECK_STR(out.data, "job j took 0 ms\n"
                        "stage 2: 1 task, 0 rows, 0 B, 40 ms; result\n"
                        "    a\n"
                        "        stage 1: 3 tasks, 0 rows, 0 B, 205 ms, skew 20.5; gather\n"
                        "            a\n"
                        "                stage 0: 3 tasks, 0 rows, 0 B, 40 ms, skew 1.0; hash\n");
    buf_reset(&out);
    analyze_three(true, &out);
    CHECK_ERR(json_parse(out.data, out.n, &root, NULL), ERR_OK);
    const struct json *stages = json_get(root, "stages");
    CHECK(json_number(json_get(json_at(stages, 0), "skew")) == 1);
    CHECK(json_number(json_get(json_at(stages, 1), "skew")) == 20.5);
    CHECK_INT(json_kind_of(json_get(json_at(stages, 2), "skew")), JSON_NULL);
    json_free(root);
    buf_deinit(&out);
}

static enum err analyze(const char *plan, struct buf *out, struct error *e)
{
    struct pb_stage_status stage = CAPSTAN__V1__STAGE_STATUS__INIT;
    struct pb_stage_status *stages[] = {&stage};
    struct pb_query_status status = CAPSTAN__V1__QUERY_STATUS__INIT;
    struct stage_times times = {.first_ms = 10, .last_ms = 25};
    stage.name = (char *)"plan";
    stage.tasks = 1;
    stage.rows = 1;
    status.query_id = (char *)"j";
    status.stages = stages;
    status.n_stages = 1;
    struct analysis analysis = {.status = &status, .times = &times, .plan_json = plan};
    analysis.n_plan = plan == NULL ? 0 : strlen(plan);
    return analyze_write(out, &analysis, false, e);
}

TEST(a_plan_of_one_task_was_run_by_the_planning_task)
{
    struct buf out = {0};
    struct error e = {0};
    CHECK_ERR(analyze("{\"stages\":[{\"id\":0,\"what\":\"all\",\"output\":{\"exchange\":\"result\"}}],"
                      "\"single\":\"the input is small\"}",
                      &out, &e),
              ERR_OK);
    CHECK_STR(out.data,
              "job j took 0 ms\none task: the input is small\nstage 0: 1 task, 1 row, 0 B, 15 ms; result\n    all\n");
    buf_deinit(&out);
}

TEST(a_plan_that_is_none_is_an_error_and_one_that_bites_its_tail_is_not_followed)
{
    struct buf out = {0};
    struct error e = {0};
    CHECK_ERR(analyze(NULL, &out, &e), ERR_INTERNAL);
    CHECK_ERR(analyze("{\"stages\":", &out, &e), ERR_INTERNAL);
    CHECK_ERR(analyze("[1]", &out, &e), ERR_OK);
    buf_reset(&out);
    CHECK_ERR(analyze("{\"stages\":[{\"id\":0,\"inputs\":{\"a\":1},\"output\":{\"exchange\":\"hash\"}},"
                      "{\"id\":1,\"inputs\":{\"a\":0,\"b\":7,\"c\":\"x\"},\"output\":{\"exchange\":\"result\"}}]}",
                      &out, &e),
              ERR_OK);
    CHECK(strstr(out.data, "stage 1: see above") != NULL);
    buf_deinit(&out);
}
