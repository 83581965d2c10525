#include "drive.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/sha256.h"
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
    enum drive_manner manner;
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

static void add_input(struct request *request, struct stage_spec *stage)
{
    const struct cmd_submit *submit = &request->command.u.submit;
    struct task_spec *task = arena_zalloc(&request->arena, sizeof *task);
    struct payload *payload = arena_zalloc(&request->arena, sizeof *payload);
    const char *text = script_input(&request->arena, submit->job_id);
    *payload = (struct payload){.job_id = submit->job_id, .bytes = text, .n_bytes = strlen(text)};
    sha256_once(text, payload->n_bytes, payload->digest.bytes);
    task->inputs = payload->digest;
    task->inputs_bytes = (uint32_t)payload->n_bytes;
    stage->tasks = task;
    request->payloads = payload;
    request->n_payloads = 1;
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
    if (lane->manner == DRIVE_EACH) {
        add_input(request, stage);
    }
    coordinator_send(lane->drive->coordinator, request);
}

/*
 * The ids are looked up in the store beforehand, on a connection of their own. The services do it with one question per
 * submit, on two connections at once; with one question for many the figures are those of the loop and its store alone.
 */
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
    bool is_each = lane->manner == DRIVE_EACH;
    struct sight unknown = is_each ? (struct sight){0} : look_up(lane, ids, lane->width);
    set_waiting(lane, lane->width);
    for (uint32_t i = 0; i < lane->width; i++) {
        submit(lane, ids[i], is_each ? look_up(lane, &ids[i], 1) : unknown);
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

/* A coordinator that leads, and lanes without a worker. */
static struct drive *start_coordinator(const char *url, int64_t history_ttl_ms)
{
    struct drive *d = mem_calloc(1, sizeof *d);
    struct coordinator_options options = {
        .store_url = url, .node_id = "bench", .address = "127.0.0.1:1", .history_ttl_ms = history_ttl_ms};
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
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        d->lanes[i].drive = d;
        d->lanes[i].worker_id = i == 0 ? "worker-1" : "worker-2";
        d->lanes[i].width = 1;
    }
    return d;
}

struct drive *drive_start(const char *url, int64_t history_ttl_ms)
{
    struct drive *d = start_coordinator(url, history_ttl_ms);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        join(&d->lanes[i]);
    }
    return d;
}

void drive_recover(const char *url, double *out_s, double *out_cpu_s)
{
    double start = seconds();
    double cpu_start = cpu_seconds();
    struct drive *d = start_coordinator(url, 0);
    submit_all(&d->lanes[0]);
    await(&d->lanes[0]);
    *out_s = seconds() - start;
    *out_cpu_s = cpu_seconds() - cpu_start;
    drive_stop(d);
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

double drive_lifecycles(struct drive *d, enum drive_manner manner, uint32_t n_lanes, uint32_t width, uint32_t n)
{
    ASSERT(n_lanes <= LANES_MAX);
    ASSERT(width <= WIDTH_MAX);
    uint32_t done = 0;
    for (uint32_t i = 0; i < n_lanes; i++) {
        d->lanes[i].width = width;
        d->lanes[i].manner = manner;
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

/* One task for the lane's worker, which must be there. */
static void take_one(struct lane *lane)
{
    lane->n_refs = 0;
    while (lane->n_refs == 0) {
        poll(lane);
        await(lane);
    }
}

double drive_submit(struct drive *d)
{
    struct lane *lane = &d->lanes[0];
    lane->width = 1;
    lane->manner = DRIVE_TOGETHER;
    double start = seconds();
    submit_all(lane);
    await(lane);
    double took = seconds() - start;
    take_one(lane); /* its task is ended, too, so that it does not stay behind */
    report_all(lane);
    await(lane);
    arena_reset(&lane->arena);
    return took;
}

static void submit_one(struct lane *lane, const char *job_id, enum drive_manner manner)
{
    lane->width = 1;
    lane->manner = manner;
    struct sight unknown = look_up(lane, &job_id, 1);
    set_waiting(lane, 1);
    submit(lane, job_id, unknown);
    await(lane);
}

void drive_make_templates(struct drive *d, const struct drive_templates *ids)
{
    submit_one(&d->lanes[0], ids->ended_id, DRIVE_EACH);
    take_one(&d->lanes[0]);
    report_all(&d->lanes[0]);
    await(&d->lanes[0]);
    submit_one(&d->lanes[1], ids->leased_id, DRIVE_TOGETHER);
    take_one(&d->lanes[1]);
    submit_one(&d->lanes[0], ids->waiting_id, DRIVE_TOGETHER);
}
