#include "main/bench_times.h"

#include "../test.h"
#include "main/bench_exchange.h"

/* A task of a job: stage 0 plans, stages from 1 on each read the one before. */
struct sample {
    uint64_t stage;
    const char *worker;
    uint64_t from_ms; /* 0: it never ran */
    uint64_t to_ms;
    uint64_t rows;
};

/* The times of a job of so many stages, submitted at 1000, ended at 1100. */
static struct query_times times_of(uint32_t n_stages, const struct sample *samples, uint32_t n)
{
    struct arena arena = {0};
    struct query_times times;
    struct pb_query_status *status = wire_new(PB_QUERY_STATUS, &arena);
    const struct pb_task_status **tasks = arena_zalloc(&arena, (n + 1) * sizeof *tasks);
    status->submitted_at_ms = 1000;
    status->finished_at_ms = 1100;
    status->n_stages = n_stages;
    status->stages = arena_zalloc(&arena, n_stages * sizeof *status->stages);
    for (uint32_t i = 0; i < n_stages; i++) {
        status->stages[i] = wire_new(PB_STAGE_STATUS, &arena);
        status->stages[i]->stage_id = i;
        status->stages[i]->name = (char *)(i == 0 ? "plan" : "s");
        if (i > 0) {
            status->stages[i]->n_parents = 1;
            status->stages[i]->parents = arena_zalloc(&arena, sizeof *status->stages[i]->parents);
            status->stages[i]->parents[0] = i - 1;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        struct pb_task_status *task = wire_new(PB_TASK_STATUS, &arena);
        task->ref = wire_new(PB_ATTEMPT_REF, &arena);
        task->ref->stage_id = samples[i].stage;
        task->worker_id = (char *)samples[i].worker;
        task->started_at_ms = samples[i].from_ms;
        task->finished_at_ms = samples[i].to_ms;
        task->rows = samples[i].rows;
        task->bytes = 8 * samples[i].rows;
        tasks[i] = task;
    }
    query_times_of(status, tasks, n, &times);
    arena_deinit(&arena);
    return times;
}

#define TIMES(n_stages, ...)                                                                                           \
    times_of(n_stages, (const struct sample[]){__VA_ARGS__}, ARRAY_LEN(((const struct sample[]){__VA_ARGS__})))

TEST(each_moment_of_a_job_is_counted_once)
{
    struct query_times times =
        TIMES(3, {0, "a", 1010, 1030, 0}, {1, "a", 1030, 1060, 5}, {1, "b", 1040, 1070, 6}, {2, "a", 1080, 1095, 3});
    CHECK_INT((int64_t)times.plan_ms, 20);
    CHECK_INT((int64_t)times.run_ms, 40 + 15);
    CHECK_INT((int64_t)times.dispatch_ms, 10 + 10 + 5);
    CHECK_INT((int64_t)times.job_ms, 100);
    CHECK_INT((int64_t)times.task_ms, 30 + 30 + 15);
    CHECK_UINT(times.moved_rows, 11);
    CHECK_UINT(times.moved_bytes, 88);
}

TEST(who_took_part_is_told_by_stage_and_of_all)
{
    struct query_times both = TIMES(3, {0, "a", 1010, 1030, 0}, {1, "a", 1030, 1060, 5}, {1, "b", 1040, 1070, 6},
                                    {2, "b", 1080, 1090, 3}, {2, "a", 1080, 1090, 3}, {2, "a", 1090, 1095, 3});
    CHECK_UINT(both.stages, 2);
    CHECK_UINT(both.tasks, 5);
    CHECK_UINT(both.tasks_max, 3);
    CHECK_UINT(both.workers, 2);
    CHECK_UINT(both.workers_least, 2);
    /* One that only plans, or whose tasks were skipped, takes no part. */
    struct query_times one = TIMES(3, {0, "b", 1010, 1030, 0}, {1, "a", 1030, 1060, 5}, {1, "a", 1040, 1070, 6},
                                   {2, "a", 1080, 1090, 3}, {2, "b", 0, 0, 0});
    CHECK_UINT(one.workers, 1);
    CHECK_UINT(one.workers_least, 1);
    CHECK_UINT(one.tasks_max, 2);
    /* Both, but each had a stage to itself. */
    struct query_times apart = TIMES(3, {0, "a", 1010, 1030, 0}, {1, "a", 1030, 1060, 5}, {1, "a", 1040, 1070, 6},
                                     {2, "b", 1080, 1090, 3}, {2, "b", 1080, 1090, 3});
    CHECK_UINT(apart.workers, 2);
    CHECK_UINT(apart.workers_least, 1);
}

TEST(a_query_that_its_planning_task_has_run_is_one_task)
{
    struct query_times times = TIMES(1, {0, "a", 1010, 1090, 0});
    CHECK_UINT(times.stages, 1);
    CHECK_UINT(times.tasks, 1);
    CHECK_UINT(times.tasks_max, 1);
    CHECK_UINT(times.workers, 1);
    CHECK_UINT(times.workers_least, 0); /* there is nothing to share */
    CHECK_INT((int64_t)times.plan_ms, 80);
    CHECK_INT((int64_t)times.run_ms, 0);
}

TEST(what_the_exchange_took_is_added_up_over_workers_that_tell_it)
{
    static const char metrics[] = "HTTP/1.0 200 OK\r\n\r\n# TYPE capstan_shuffle_work_seconds_total counter\n"
                                  "capstan_shuffle_work_seconds_total{direction=\"in\"} 1.5\n"
                                  "capstan_shuffle_work_seconds_total{direction=\"out\"} 0.25\n";
    struct bench_exchange sum = {0};
    CHECK(bench_exchange_add(metrics, &sum));
    CHECK(bench_exchange_add(metrics, &sum));
    CHECK_INT((int64_t)sum.in_ms, 3000);
    CHECK_INT((int64_t)sum.out_ms, 500);
    CHECK(!bench_exchange_add("HTTP/1.0 404 Not Found\r\n\r\n", &sum));
    CHECK(!bench_exchange_add("capstan_shuffle_work_seconds_total{direction=\"in\"} 1\n", &sum));
    CHECK_INT((int64_t)sum.in_ms, 3000);
}
