#include "drive.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "coordinator/coordinator.h"
#include "script.h"

#define LANES_MAX 2
#define WIDTH_MAX 1000

static const char *const executors[] = {"command"};
static const struct requirement need = {.executor = "command"};

enum phase { PHASE_SUBMIT, PHASE_POLL, PHASE_REPORT };

struct lane {
    struct drive *drive;
    const char *worker_id;
    enum phase phase;
    uint32_t n_waiting; /* answers that have not come */
    uint32_t width;
    struct arena arena;
    struct attempt_ref refs[WIDTH_MAX];
    uint32_t n_refs;
};

struct drive {
    struct coordinator *coordinator;
    struct store *reader;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    struct lane lanes[LANES_MAX];
    struct arena arena;
};

static _Atomic uint64_t next_job;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bench-store: %s\n", what);
    exit(1);
}

double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- answers, on the loop thread ---- */

static void take_tasks(struct lane *lane, const struct reply *reply)
{
    for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
        lane->refs[lane->n_refs] = a->ref;
        lane->refs[lane->n_refs++].task.job_id = arena_strdup(&lane->arena, a->ref.task.job_id);
    }
}

static void on_answer(struct request *request, const struct reply *reply, enum err err)
{
    struct lane *lane = request->context;
    if (reply == NULL || reply->kind == REPLY_ERROR) {
        fprintf(stderr, "bench-store: a request failed: %s\n", reply == NULL ? err_text(err) : reply->message);
        exit(1);
    }
    pthread_mutex_lock(&lane->drive->lock);
    if (reply->kind == REPLY_TASKS) {
        take_tasks(lane, reply);
    }
    if (--lane->n_waiting == 0) {
        pthread_cond_signal(&lane->drive->answered);
    }
    pthread_mutex_unlock(&lane->drive->lock);
}

/* ---- requests ---- */

static struct request *request_of(struct lane *lane, enum command_kind kind)
{
    struct request *request = request_new(on_answer, lane);
    request->command.kind = kind;
    return request;
}

static void await(struct lane *lane)
{
    pthread_mutex_lock(&lane->drive->lock);
    while (lane->n_waiting > 0) {
        pthread_cond_wait(&lane->drive->answered, &lane->drive->lock);
    }
    pthread_mutex_unlock(&lane->drive->lock);
}

static void set_waiting(struct lane *lane, uint32_t n)
{
    pthread_mutex_lock(&lane->drive->lock);
    lane->n_waiting = n;
    pthread_mutex_unlock(&lane->drive->lock);
}

static void join(struct lane *lane)
{
    struct request *request = request_of(lane, CMD_REGISTER);
    request->command.u.reg = (struct cmd_register){.worker_id = lane->worker_id,
                                                   .incarnation = "i1",
                                                   .address = "127.0.0.1:1",
                                                   .slots = 8,
                                                   .offer = {.executors = {executors, 1}},
                                                   .version = "1"};
    set_waiting(lane, 1);
    coordinator_send(lane->drive->coordinator, request);
    await(lane);
}

static void submit(struct lane *lane, const char *job_id, struct sight unknown)
{
    struct request *request = request_of(lane, CMD_SUBMIT);
    struct stage_spec *stage = arena_zalloc(&request->arena, sizeof *stage);
    *stage = (struct stage_spec){.name = "task", .need = &need, .n_tasks = 1, .backoff_ms = -1};
    request->command.u.submit = (struct cmd_submit){.job_id = arena_strdup(&request->arena, job_id),
                                                    .kind = JOB_KIND_TREE,
                                                    .priority = 2,
                                                    .stages = stage,
                                                    .n_stages = 1};
    request->unknown = unknown;
    coordinator_send(lane->drive->coordinator, request);
}

/* As the services do: the ids are looked up in the store beforehand, on a connection of their own. */
static struct sight look_up(struct lane *lane, const char *const *ids, uint32_t n)
{
    bool known[WIDTH_MAX];
    struct sight sight = coordinator_sight(lane->drive->coordinator);
    if (store_known_jobs(lane->drive->reader, ids, n, known, NULL) != ERR_OK) {
        die("the store does not know which jobs it knows");
    }
    return sight;
}

static void submit_all(struct lane *lane)
{
    const char *ids[WIDTH_MAX];
    for (uint32_t i = 0; i < lane->width; i++) {
        ids[i] = script_job_id(&lane->arena, atomic_fetch_add(&next_job, 1));
    }
    struct sight unknown = look_up(lane, ids, lane->width);
    set_waiting(lane, lane->width);
    for (uint32_t i = 0; i < lane->width; i++) {
        submit(lane, ids[i], unknown);
    }
}

static void poll(struct lane *lane)
{
    struct request *request = request_of(lane, CMD_GET_TASK);
    request->command.u.get_task = (struct cmd_get_task){
        .worker_id = lane->worker_id, .incarnation = "i1", .capacity = lane->width - lane->n_refs, .wait_ms = 10000};
    set_waiting(lane, 1);
    coordinator_send(lane->drive->coordinator, request);
}

static void report_all(struct lane *lane)
{
    set_waiting(lane, lane->n_refs);
    for (uint32_t i = 0; i < lane->n_refs; i++) {
        struct request *request = request_of(lane, CMD_REPORT);
        struct task_report *report = arena_zalloc(&request->arena, sizeof *report);
        *report = (struct task_report){.ref = lane->refs[i], .state = TASK_SUCCEEDED};
        request->command.u.report =
            (struct cmd_report){.worker_id = lane->worker_id, .incarnation = "i1", .reports = report, .n_reports = 1};
        coordinator_send(lane->drive->coordinator, request);
    }
}

/* The next thing for a lane whose answers have come. Returns the lifecycles that have just ended. */
static uint32_t advance(struct lane *lane)
{
    switch (lane->phase) {
    case PHASE_SUBMIT:
        arena_reset(&lane->arena);
        lane->n_refs = 0;
        submit_all(lane);
        lane->phase = PHASE_POLL;
        return 0;
    case PHASE_POLL:
        if (lane->n_refs < lane->width) {
            poll(lane);
            return 0;
        }
        lane->phase = PHASE_REPORT;
        report_all(lane);
        return 0;
    case PHASE_REPORT:
        lane->phase = PHASE_SUBMIT;
        return lane->n_refs;
    }
    return 0;
}

/* ---- */

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct drive *drive_start(const char *url, double *out_s, double *out_cpu_s)
{
    struct drive *d = mem_calloc(1, sizeof *d);
    struct coordinator_options options = {.store_url = url, .node_id = "bench", .address = "127.0.0.1:1"};
    struct error e = {0};
    options.config = core_config_default();
    options.config.max_concurrent_tasks_per_worker = 100000;
    options.config.max_concurrent_tasks_per_query = 10000000;
    options.config.worker_liveness_timeout_ms = 3600000; /* nobody sends heartbeats here */
    options.config.node_stale_ms = 3600000;
    options.config.node_dead_ms = 7200000;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->answered, NULL);
    double start = seconds();
    double cpu_start = cpu_seconds();
    if (coordinator_start(&options, &d->coordinator, &e) != ERR_OK || store_open(url, &d->reader, &e) != ERR_OK) {
        die(e.message);
    }
    while (coordinator_epoch(d->coordinator) == 0) {
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        if (seconds() - start > 300) {
            die("the coordinator does not lead");
        }
    }
    if (out_s != NULL) {
        *out_s = seconds() - start;
        *out_cpu_s = cpu_seconds() - cpu_start;
    }
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        d->lanes[i].drive = d;
        d->lanes[i].worker_id = i == 0 ? "worker-1" : "worker-2";
        join(&d->lanes[i]);
    }
    return d;
}

void drive_stop(struct drive *d)
{
    coordinator_stop(d->coordinator);
    store_close(d->reader);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        arena_deinit(&d->lanes[i].arena);
    }
    arena_deinit(&d->arena);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->answered);
    mem_free(d);
}

/* Which lane has all its answers; the lock is held. */
static struct lane *ready_lane(struct drive *d, uint32_t n_lanes)
{
    for (uint32_t i = 0; i < n_lanes; i++) {
        if (d->lanes[i].n_waiting == 0) {
            return &d->lanes[i];
        }
    }
    return NULL;
}

double drive_lifecycles(struct drive *d, uint32_t n_lanes, uint32_t width, uint32_t n)
{
    ASSERT(n_lanes <= LANES_MAX);
    ASSERT(width <= WIDTH_MAX);
    uint32_t done = 0;
    for (uint32_t i = 0; i < n_lanes; i++) {
        d->lanes[i].width = width;
        d->lanes[i].phase = PHASE_SUBMIT;
    }
    double start = seconds();
    while (done < n) {
        struct lane *lane;
        pthread_mutex_lock(&d->lock);
        while ((lane = ready_lane(d, n_lanes)) == NULL) {
            pthread_cond_wait(&d->answered, &d->lock);
        }
        pthread_mutex_unlock(&d->lock);
        done += advance(lane);
    }
    double rate = done / (seconds() - start);
    for (uint32_t i = 0; i < n_lanes; i++) { /* what is under way comes to its end */
        while (d->lanes[i].phase != PHASE_SUBMIT || d->lanes[i].n_waiting > 0) {
            await(&d->lanes[i]);
            (void)advance(&d->lanes[i]);
        }
    }
    return rate;
}

double drive_submit(struct drive *d)
{
    struct lane *lane = &d->lanes[0];
    lane->width = 1;
    double start = seconds();
    submit_all(lane);
    await(lane);
    double took = seconds() - start;
    lane->n_refs = 0; /* its task is ended, too, so that it does not stay behind */
    while (lane->n_refs == 0) {
        poll(lane);
        await(lane);
    }
    report_all(lane);
    await(lane);
    arena_reset(&lane->arena);
    return took;
}

void drive_templates(struct drive *d, const char *live_id, const char *ended_id)
{
    struct lane *lane = &d->lanes[0];
    lane->width = 1;
    lane->n_refs = 0;
    struct sight unknown = look_up(lane, &ended_id, 1);
    set_waiting(lane, 1);
    submit(lane, ended_id, unknown);
    await(lane);
    while (lane->n_refs == 0) {
        poll(lane);
        await(lane);
    }
    report_all(lane);
    await(lane);
    unknown = look_up(lane, &live_id, 1);
    set_waiting(lane, 1);
    submit(lane, live_id, unknown);
    await(lane);
}
