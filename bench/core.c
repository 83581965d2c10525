/*
 * bench-core - what the scheduler itself costs, without any I/O: lifecycles, picking from short and long queues, memory,
 * large trees, heartbeats of a large fleet.
 *
 *   bench-core [--json] [--quick] [lifecycles|assign|trees|heartbeats]
 *
 * Every figure is the median of a few rounds (memory and the 10,000,000-task cases: one round). The effects are built in
 * full and thrown away, as a store would after its commit.
 */
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "core/core.h"

struct bench {
    struct core *core;
    struct effects fx;
    int64_t now_ms;
    uint64_t seed;
};

static const char *const command_executors[] = {"command"};
static const struct requirement need_command = {.executor = "command"};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double resident_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}

static void bench_init(struct bench *b)
{
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 100000;
    config.max_concurrent_tasks_per_query = 10000000;
    *b = (struct bench){.core = core_new(&config, 1), .now_ms = 1000000};
}

static void bench_deinit(struct bench *b)
{
    core_free(b->core);
    effects_deinit(&b->fx);
}

static void step(struct bench *b, const struct command *command)
{
    struct core_input input = {.now_ms = b->now_ms, .seed = {++b->seed, 42}};
    core_step(b->core, &input, command, &b->fx);
}

static void tick(struct bench *b)
{
    step(b, &(struct command){.kind = CMD_TICK});
}

static void join_with(struct bench *b, const char *worker_id, const struct offer *offer)
{
    step(b, &(struct command){.kind = CMD_REGISTER,
                              .u.reg = {.worker_id = worker_id,
                                        .incarnation = "i1",
                                        .address = "127.0.0.1:1",
                                        .slots = 8,
                                        .offer = *offer,
                                        .version = "1"}});
    effects_reset(&b->fx);
}

static void join(struct bench *b, const char *worker_id)
{
    struct offer offer = {.executors = {command_executors, 1}};
    join_with(b, worker_id, &offer);
}

static void submit(struct bench *b, const char *job_id, const struct stage_spec *stages, uint32_t n)
{
    step(b, &(struct command){
                .kind = CMD_SUBMIT,
                .u.submit = {.job_id = job_id, .kind = JOB_KIND_TREE, .priority = 2, .stages = stages, .n_stages = n}});
}

static void submit_tasks(struct bench *b, const char *job_id, uint32_t n_tasks)
{
    struct stage_spec stage = {.need = &need_command, .n_tasks = n_tasks, .backoff_ms = -1};
    submit(b, job_id, &stage, 1);
}

/* Polls once; returns the assignments, which live in the effects. */
static const struct reply *poll(struct bench *b, const char *worker_id, uint32_t capacity)
{
    step(b, &(struct command){.kind = CMD_GET_TASK,
                              .u.get_task = {.worker_id = worker_id, .incarnation = "i1", .capacity = capacity}});
    tick(b);
    const struct reply *last = NULL;
    for (const struct reply *reply = b->fx.replies; reply != NULL; reply = reply->next) {
        last = reply;
    }
    if (last == NULL || last->kind != REPLY_TASKS) {
        fprintf(stderr, "bench-core: a poll was not answered\n");
        exit(1);
    }
    return last;
}

static void succeed(struct bench *b, const char *worker_id, const struct assignment *first, uint32_t n)
{
    struct task_report reports[64];
    uint32_t at = 0;
    for (const struct assignment *a = first; a != NULL && at < n; a = a->next) {
        reports[at++] = (struct task_report){.ref = a->ref, .state = TASK_SUCCEEDED};
    }
    step(b, &(struct command){
                .kind = CMD_REPORT,
                .u.report = {.worker_id = worker_id, .incarnation = "i1", .reports = reports, .n_reports = at}});
}

/* ---- figures ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return values[n / 2];
}

/* submit -> assign -> succeed of jobs with one task, in batches of 32 as a busy coordinator would have them. */
static double lifecycles_per_s(uint32_t total)
{
    struct bench b;
    bench_init(&b);
    join(&b, "w1");
    double start = seconds();
    for (uint32_t done = 0; done < total; done += 32) {
        for (uint32_t i = 0; i < 32; i++) {
            char id[32];
            snprintf(id, sizeof id, "job-%u", done + i);
            submit_tasks(&b, id, 1);
        }
        const struct reply *reply = poll(&b, "w1", 32);
        if (reply->u.tasks.n_tasks != 32) {
            fprintf(stderr, "bench-core: %u of 32 tasks were assigned\n", reply->u.tasks.n_tasks);
            exit(1);
        }
        succeed(&b, "w1", reply->u.tasks.first, 32);
        effects_reset(&b.fx);
    }
    double rate = total / (seconds() - start);
    bench_deinit(&b);
    return rate;
}

/* Nanoseconds per assigned task, 32 at a time; the tasks are left running. */
static double assign_ns(struct bench *b, uint32_t n_assign)
{
    double start = seconds();
    for (uint32_t done = 0; done < n_assign; done += 32) {
        const struct reply *reply = poll(b, "w1", 32);
        if (reply->u.tasks.n_tasks != 32) {
            fprintf(stderr, "bench-core: %u of 32 tasks were assigned\n", reply->u.tasks.n_tasks);
            exit(1);
        }
        effects_reset(&b->fx);
    }
    return (seconds() - start) * 1e9 / n_assign;
}

enum shape { ONE_JOB, MANY_JOBS, BEHIND_CLASSES };

/* 1,000 classes that nobody can run, of a higher priority than what the worker can. */
static void submit_unrunnable_classes(struct bench *b)
{
    for (uint32_t i = 0; i < 1000; i++) {
        char id[32], executor[32];
        snprintf(id, sizeof id, "stuck-%u", i);
        snprintf(executor, sizeof executor, "nobody-%u", i);
        struct requirement need = {.executor = executor};
        struct stage_spec stage = {.need = &need, .n_tasks = 10, .backoff_ms = -1};
        step(b, &(struct command){
                    .kind = CMD_SUBMIT,
                    .u.submit = {.job_id = id, .kind = JOB_KIND_TREE, .priority = 0, .stages = &stage, .n_stages = 1}});
        effects_reset(&b->fx);
    }
}

static double assign_from_queue(enum shape shape, uint32_t queued, uint32_t n_assign, double *out_bytes_per_task)
{
    struct bench b;
    bench_init(&b);
    join(&b, "w1");
    if (shape == BEHIND_CLASSES) {
        submit_unrunnable_classes(&b);
    }
    double before = resident_bytes();
    if (shape == MANY_JOBS) {
        for (uint32_t i = 0; i < queued; i++) {
            char id[32];
            snprintf(id, sizeof id, "job-%u", i);
            submit_tasks(&b, id, 1);
            effects_reset(&b.fx);
        }
    } else {
        submit_tasks(&b, "one", queued);
        effects_reset(&b.fx);
    }
    *out_bytes_per_task = (resident_bytes() - before) / queued;
    double ns = assign_ns(&b, n_assign);
    bench_deinit(&b);
    return ns;
}

/* A short queue is used up quickly, so it is filled again for every round. */
static double assign_1k(enum shape shape, int rounds)
{
    double *values = mem_alloc((size_t)rounds * sizeof *values);
    double unused;
    for (int i = 0; i < rounds; i++) {
        values[i] = assign_from_queue(shape, 1024, 1024, &unused);
    }
    double result = median(values, rounds);
    mem_free(values);
    return result;
}

/* Submits a tree and runs it to its end; seconds for both. `fan` in: tasks per level. */
static double tree_seconds(uint32_t n, bool chain)
{
    struct bench b;
    bench_init(&b);
    join(&b, "w1");
    struct stage_spec *stages = mem_calloc(n, sizeof *stages);
    struct stage_parent *parents = mem_calloc(n, sizeof *parents);
    for (uint32_t i = 0; i < n; i++) {
        stages[i] = (struct stage_spec){.name = "t", .need = &need_command, .n_tasks = 1, .backoff_ms = -1};
        if (i > 0) {
            parents[i] = (struct stage_parent){.stage = chain ? i - 1 : (i - 1) / 16};
            stages[i].parents = &parents[i];
            stages[i].n_parents = 1;
        }
    }
    double start = seconds();
    submit(&b, "tree", stages, n);
    effects_reset(&b.fx);
    for (uint32_t done = 0; done < n;) {
        const struct reply *reply = poll(&b, "w1", 32);
        succeed(&b, "w1", reply->u.tasks.first, 32);
        done += reply->u.tasks.n_tasks;
        effects_reset(&b.fx);
    }
    double result = seconds() - start;
    struct job_status status;
    if (core_job_status(b.core, "tree", &status) != ERR_OK || status.state != JOB_SUCCEEDED) {
        fprintf(stderr, "bench-core: the tree did not succeed\n");
        exit(1);
    }
    mem_free(stages);
    mem_free(parents);
    bench_deinit(&b);
    return result;
}

/* A fleet in which every worker runs 8 tasks and says so every 3 s: share of one core. */
static double heartbeat_core_share(uint32_t n_workers)
{
    struct bench b;
    bench_init(&b);
    struct attempt_ref *refs = mem_calloc((size_t)n_workers * 8, sizeof *refs);
    char(*names)[16] = mem_calloc(n_workers, sizeof *names);
    submit_tasks(&b, "job", n_workers * 8);
    effects_reset(&b.fx);
    for (uint32_t w = 0; w < n_workers; w++) {
        snprintf(names[w], sizeof names[w], "w%u", w);
        join(&b, names[w]);
        const struct reply *reply = poll(&b, names[w], 8);
        uint32_t i = 0;
        for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
            refs[w * 8 + i] = a->ref;
            refs[w * 8 + i++].task.job_id = "job";
        }
        effects_reset(&b.fx);
    }
    double start = seconds();
    int rounds = 5;
    for (int round = 0; round < rounds; round++) {
        for (uint32_t w = 0; w < n_workers; w++) {
            step(&b, &(struct command){
                         .kind = CMD_HEARTBEAT,
                         .u.heartbeat = {
                             .worker_id = names[w], .incarnation = "i1", .running = &refs[w * 8], .n_running = 8}});
            if (w % 16 == 0) { /* the batches that a busy loop would have */
                tick(&b);
                effects_reset(&b.fx);
            }
            b.now_ms += (w % 4) == 0; /* 10,000 workers in about 3 s */
        }
    }
    double share = (seconds() - start) / rounds / 3.0;
    if (core_stats(b.core).leases != n_workers * 8) {
        fprintf(stderr, "bench-core: leases were lost\n");
        exit(1);
    }
    mem_free(refs);
    mem_free(names);
    bench_deinit(&b);
    return share;
}

/* ---- output ---- */

static bool as_json;
static bool any_printed;

static void print(const char *name, double value, const char *unit)
{
    if (as_json) {
        printf("%s\"%s\": %.6g", any_printed ? ", " : "{", name, value);
    } else {
        printf("%-28s %14.6g  %s\n", name, value, unit);
    }
    any_printed = true;
    fflush(stdout);
}

static void run_lifecycles(bool quick)
{
    double rates[5];
    for (int i = 0; i < 5; i++) {
        rates[i] = lifecycles_per_s(quick ? 32000 : 320000);
    }
    print("lifecycles_per_s", median(rates, 5), "submit -> assign -> succeed, one task each");
}

static void run_assign(bool quick)
{
    uint32_t many = quick ? 100000 : 10000000;
    double bytes_one, bytes_jobs, unused;
    double short_ns = assign_1k(ONE_JOB, 31);
    print("assign_ns_1k", short_ns, "ns per assigned task, one job with 1,024 tasks");
    double long_ns = assign_from_queue(ONE_JOB, many, 32000, &bytes_one);
    print("assign_ns_10m", long_ns, "ns, one job with 10,000,000 tasks");
    print("assign_ratio", long_ns / short_ns, "10m / 1k");
    short_ns = assign_1k(MANY_JOBS, 31);
    print("assign_ns_1k_jobs", short_ns, "ns, 1,024 jobs with one task");
    long_ns = assign_from_queue(MANY_JOBS, many, 32000, &bytes_jobs);
    print("assign_ns_10m_jobs", long_ns, "ns, 10,000,000 jobs with one task");
    print("assign_ratio_jobs", long_ns / short_ns, "10m / 1k");
    short_ns = assign_1k(BEHIND_CLASSES, 31);
    print("assign_ns_1k_classes", short_ns, "ns, behind 1,000 classes that nobody can run");
    long_ns = assign_from_queue(BEHIND_CLASSES, many, 32000, &unused);
    print("assign_ns_10m_classes", long_ns, "ns, the same with 10,000,000 tasks");
    print("assign_ratio_classes", long_ns / short_ns, "10m / 1k");
    print("bytes_per_task", bytes_one, "queued, in one job");
    print("bytes_per_job", bytes_jobs, "a queued job with one task");
}

static void run_trees(bool quick)
{
    double small = tree_seconds(quick ? 10000 : 100000, false);
    double large = tree_seconds(quick ? 100000 : 1000000, false);
    print("tree_100k_s", small, "s, a tree of 100,000 tasks, submitted and drained");
    print("tree_1m_s", large, "s, a tree of 1,000,000 tasks");
    print("tree_growth", large / small, "10 would be linear");
    small = tree_seconds(quick ? 10000 : 100000, true);
    large = tree_seconds(quick ? 100000 : 1000000, true);
    print("chain_1m_s", large, "s, a chain of 1,000,000 tasks");
    print("chain_growth", large / small, "10 would be linear");
}

static void run_heartbeats(bool quick)
{
    print("heartbeat_core_share", heartbeat_core_share(quick ? 1000 : 10000),
          "of one core: 10,000 workers with 8 tasks, every 3 s");
}

static const struct part {
    const char *name;
    void (*run)(bool quick);
} parts[] = {{"lifecycles", run_lifecycles},
             {"assign", run_assign},
             {"trees", run_trees},
             {"heartbeats", run_heartbeats}};

static int usage(const char *argument)
{
    fprintf(stderr, "bench-core: unknown argument '%s'\n", argument);
    fprintf(stderr, "  hint: bench-core [--json] [--quick] [lifecycles|assign|trees|heartbeats]\n");
    return 2;
}

int main(int argc, char **argv)
{
    bool quick = false;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        bool is_part = false;
        for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
            is_part |= strcmp(argv[i], parts[k].name) == 0;
        }
        if (strcmp(argv[i], "--json") == 0) {
            as_json = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            quick = true;
        } else if (is_part) {
            only = argv[i];
        } else {
            return usage(argv[i]);
        }
    }
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        if (only == NULL || strcmp(only, parts[k].name) == 0) {
            parts[k].run(quick);
        }
    }
    if (as_json) {
        printf(", \"quick\": %s}\n", quick ? "true" : "false");
    }
    return 0;
}
