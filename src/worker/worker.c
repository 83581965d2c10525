/*
 * Starting and ending a worker; what its files share. How it works is in README.md and at the head of each file.
 */
#include "worker/worker.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "worker/worker_internal.h"

#define SLOTS_MAX 100000

/* Until a coordinator has told its own. */
#define BEAT_MS 3000
#define LEASE_MS 15000
#define ORPHAN_MS 600000
#define DRAIN_MS 60000
#define KILL_GRACE_MS 5000
#define RESULT_TTL_MS 3600000

void worker__cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

void worker__wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t at_us)
{
    if (at_us == NEVER) {
        pthread_cond_wait(cond, mutex);
        return;
    }
    struct timespec at = {.tv_sec = (time_t)(at_us / 1000000), .tv_nsec = (long)(at_us % 1000000) * 1000};
    pthread_cond_timedwait(cond, mutex, &at);
}

static enum err check(const struct worker_options *options, struct error *e)
{
    if (options->n_join == 0) {
        return error_set(e, ERR_INVALID, "there is no coordinator to join");
    }
    for (uint32_t i = 0; i < options->n_join; i++) {
        if (strlen(options->join[i]) >= ADDRESS_BYTES) {
            return error_set(e, ERR_INVALID, "the coordinator's address is longer than %d bytes", ADDRESS_BYTES - 1);
        }
    }
    if (options->worker_id == NULL || options->worker_id[0] == '\0' ||
        strlen(options->worker_id) > LIMIT_WORKER_ID_BYTES) {
        return error_set(e, ERR_INVALID, "a worker needs an id of 1 to %d bytes", LIMIT_WORKER_ID_BYTES);
    }
    if (options->slots == 0 || options->slots > SLOTS_MAX) {
        return error_set(e, ERR_INVALID, "slots must be between 1 and %d, not %u", SLOTS_MAX, options->slots);
    }
    if (options->n_ops > LIMIT_OPS_PER_WORKER) {
        return error_set(e, ERR_INVALID, "more than %d operators", LIMIT_OPS_PER_WORKER);
    }
    return ERR_OK;
}

static char *keep(struct worker *worker, const char *text)
{
    return arena_strdup(&worker->texts, text == NULL ? "" : text);
}

/* Where others find what it serves. */
static char *public_address(struct worker *worker, const char *advertise)
{
    const char *listens = worker->server == NULL ? "" : rpc_server_address(worker->server);
    if (advertise == NULL || worker->server == NULL) {
        return keep(worker, listens);
    }
    const char *port = strrchr(advertise, ':');
    if (port != NULL && strcmp(port, ":0") == 0) {
        return arena_format(&worker->texts, "%.*s%s", (int)(port - advertise), advertise, strrchr(listens, ':'));
    }
    return keep(worker, advertise);
}

static void copy_options(struct worker *worker, const struct worker_options *options)
{
    worker->worker_id = keep(worker, options->worker_id);
    worker->capabilities = keep(worker, options->capabilities_json);
    worker->version = keep(worker, options->version);
    worker->ops = arena_alloc(&worker->texts, (options->n_ops + 1) * sizeof *worker->ops);
    for (uint32_t i = 0; i < options->n_ops; i++) {
        worker->ops[worker->n_ops++] = keep(worker, options->ops[i]);
    }
    worker->address = public_address(worker, options->advertise);
    worker->slots = options->slots;
    worker->executors = options->executors;
    worker->store = options->store;
    random_hex(worker->incarnation, sizeof worker->incarnation - 1);
    worker__leader_init(&worker->leader, options);
}

static void init(struct worker *worker)
{
    pthread_cond_t *conds[] = {&worker->slot_cond,    &worker->poll_cond,  &worker->report_cond, &worker->beat_cond,
                               &worker->shuffle_cond, &worker->watch_cond, &worker->ended_cond};
    for (size_t i = 0; i < ARRAY_LEN(conds); i++) {
        worker__cond_init(conds[i]);
    }
    pthread_mutex_init(&worker->mutex, NULL);
    list_init(&worker->all);
    list_init(&worker->queue);
    list_init(&worker->done);
    list_init(&worker->started);
    fragments_init(&worker->fragments);
    worker->slot_threads = mem_calloc(worker->slots, sizeof *worker->slot_threads);
    worker->capacity_max = LIMIT_CAPACITY;
    worker->wake_at = UINT32_MAX;
    worker->settings = (struct settings){BEAT_MS, LEASE_MS, ORPHAN_MS, DRAIN_MS, KILL_GRACE_MS, RESULT_TTL_MS};
    worker__caller_init(&worker->beat_caller, LANE_BEAT);
    worker__caller_init(&worker->report_caller, LANE_REPORT);
    for (size_t i = 0; i < ARRAY_LEN(worker->poll_threads); i++) {
        worker__caller_init(&worker->poll_callers[i], LANE_POLL);
        worker->poll_contexts[i] = (struct poll_thread){worker, &worker->poll_callers[i]};
    }
}

/* A process that cannot make five threads cannot do anything else either. */
static void start_thread(pthread_t *thread, void *(*main)(void *), void *context)
{
    int failed = pthread_create(thread, NULL, main, context);
    ASSERT(failed == 0);
}

/* Signals are the main thread's business: the worker's threads, and those that they make, leave them alone. */
static void start_threads(struct worker *worker)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    start_thread(&worker->beat_thread, worker__heartbeat_main, worker);
    start_thread(&worker->report_thread, worker__report_main, worker);
    for (size_t i = 0; i < ARRAY_LEN(worker->poll_threads); i++) {
        start_thread(&worker->poll_threads[i], worker__poll_main, &worker->poll_contexts[i]);
    }
    worker__shuffle_start(worker);
    start_thread(&worker->watch_thread, worker__watch_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

enum err worker_start(const struct worker_options *options, struct worker **out, struct error *e)
{
    enum err err = check(options, e);
    if (err != ERR_OK) {
        return err;
    }
    struct worker *worker = mem_calloc(1, sizeof *worker);
    err = worker__serve_open(worker, options, e);
    if (err != ERR_OK) {
        mem_free(worker);
        return err;
    }
    copy_options(worker, options);
    init(worker);
    start_threads(worker);
    *out = worker;
    return ERR_OK;
}

int worker_wait(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    while (worker->phase != PHASE_ENDED) {
        pthread_cond_wait(&worker->ended_cond, &worker->mutex);
    }
    int exit_code = worker->exit_code;
    pthread_mutex_unlock(&worker->mutex);
    return exit_code;
}

/* Nobody can report them any more: what they have left here and no leader has heard of goes, too. */
static void forget_all(struct worker *worker)
{
    struct list garbage;
    list_init(&garbage);
    pthread_mutex_lock(&worker->mutex);
    LIST_EACH_SAFE(at, next, &worker->all) {
        struct attempt *attempt = CONTAINER_OF(at, struct attempt, in_all);
        worker__attempt_forget_locked(worker, attempt);
        list_push_back(&garbage, &attempt->in_line);
    }
    pthread_mutex_unlock(&worker->mutex);
    worker__attempts_free(&garbage);
}

static void deinit(struct worker *worker)
{
    for (size_t i = 0; i < ARRAY_LEN(worker->poll_callers); i++) {
        worker__caller_deinit(&worker->poll_callers[i]);
    }
    worker__caller_deinit(&worker->report_caller);
    worker__caller_deinit(&worker->beat_caller);
    worker__leader_deinit(&worker->leader);
    map_deinit(&worker->attempts);
    heap_deinit(&worker->leases);
    fragments_deinit(&worker->fragments);
    mem_free(worker->slot_threads);
    pthread_cond_t *conds[] = {&worker->slot_cond,    &worker->poll_cond,  &worker->report_cond, &worker->beat_cond,
                               &worker->shuffle_cond, &worker->watch_cond, &worker->ended_cond};
    for (size_t i = 0; i < ARRAY_LEN(conds); i++) {
        pthread_cond_destroy(conds[i]);
    }
    pthread_mutex_destroy(&worker->mutex);
    arena_deinit(&worker->texts);
}

void worker_close(struct worker *worker)
{
    if (worker == NULL) {
        return;
    }
    worker_stop_now(worker);
    worker_wait(worker);
    pthread_join(worker->watch_thread, NULL);
    worker__slots_close(worker);
    forget_all(worker);
    worker__shuffle_close(worker);
    worker__serve_close(worker);
    deinit(worker);
    mem_free(worker);
}

void worker_stats(struct worker *worker, struct worker_stats *out)
{
    pthread_mutex_lock(&worker->mutex);
    int64_t known_ms =
        worker->accepted_beat_ms > worker->registered_ms ? worker->accepted_beat_ms : worker->registered_ms;
    *out = worker->stats;
    out->slots = worker->slots;
    out->busy = worker->n_busy;
    out->unreported = worker->n_done + worker->n_sent;
    out->threads = worker->n_slot_threads;
    out->is_registered = worker->is_registered && clock_mono_ms() - known_ms <= worker->settings.lease_ms;
    out->is_accepted = worker->accepted_beat_ms > 0 && worker->orphan_since_ms == 0;
    out->is_draining = worker->phase != PHASE_WORKING || worker->is_drained_by_coordinator;
    pthread_mutex_unlock(&worker->mutex);
    if (worker->exchange != NULL) {
        out->shuffle_sent_bytes = exchange_server_bytes(worker->exchange);
    }
    if (worker->store != NULL) {
        out->shuffle_memory_bytes = exchange_store_memory_bytes(worker->store);
        out->shuffle_file_bytes = exchange_store_file_bytes(worker->store);
    }
    worker__leader_where(&worker->leader, out->leader);
}

const char *worker_address(const struct worker *worker)
{
    return worker->address;
}
