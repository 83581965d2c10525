/*
 * What a worker keeps for others, and when it goes: map outputs when their job has ended, results when they are old, or at
 * the end of a job that did not succeed, and all of an attempt that does not count.
 *
 * Removing files can take long, and waits for whoever is writing them. So it is done by a thread of its own; the heartbeat
 * thread, which learns that jobs have ended, only leaves their names. A heartbeat names every job that is still held, so
 * the last answer says all that there is to drop, and takes the place of an older one.
 */
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/siphash.h"
#include "worker/worker_internal.h"

#define SWEEP_MS_MIN 1000
#define SWEEP_MS_MAX 60000 /* how long an old result may lie around */

static void free_names(char **names, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        mem_free(names[i]);
    }
    mem_free((void *)names);
}

static void free_ended(struct ended_job *jobs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        mem_free(jobs[i].job_id);
    }
    mem_free(jobs);
}

/* Names of jobs, each once. */
struct held_jobs {
    char **names;
    uint32_t n;
    uint32_t cap;
    struct map seen; /* the names; empty until somebody else than the store adds one */
    struct siphash_key key;
};

static bool is_name(const void *value, const void *key)
{
    return strcmp(value, key) == 0;
}

static uint64_t name_hash(const struct held_jobs *held, const char *name)
{
    return siphash(&held->key, name, strlen(name));
}

static void see_all(struct held_jobs *held)
{
    random_bytes(&held->key, sizeof held->key);
    for (uint32_t i = 0; i < held->n; i++) {
        map_put(&held->seen, name_hash(held, held->names[i]), held->names[i]);
    }
}

static void add_held(void *context, const char *job_id)
{
    struct held_jobs *held = context;
    if (held->n >= LIMIT_HELD_JOBS) {
        return;
    }
    if (held->seen.count == 0) {
        see_all(held);
    }
    uint64_t hash = name_hash(held, job_id);
    if (map_get(&held->seen, hash, is_name, job_id) == NULL) {
        held->names = mem_grow((void *)held->names, &held->cap, held->n + 1, sizeof *held->names);
        held->names[held->n] = mem_strdup(job_id);
        map_put(&held->seen, hash, held->names[held->n++]);
    }
}

uint32_t worker__shuffle_jobs(struct worker *worker, struct arena *arena, char ***out_job_ids)
{
    struct held_jobs held = {0};
    if (worker->store == NULL) {
        return 0;
    }
    worker->beat_output = exchange_store_number(worker->store); /* the heartbeat thread's */
    held.names = exchange_store_jobs(worker->store, LIMIT_HELD_JOBS, &held.n);
    held.cap = held.n;
    executor_set_each_job(worker->executors, add_held, &held);
    char **copies = arena_alloc(arena, held.n * sizeof *copies);
    for (uint32_t i = 0; i < held.n; i++) {
        copies[i] = arena_strdup(arena, held.names[i]);
    }
    free_names(held.names, held.n);
    map_deinit(&held.seen);
    *out_job_ids = copies;
    return held.n;
}

void worker__shuffle_jobs_ended(struct worker *worker, const struct pb_heartbeat_response *answer)
{
    size_t n = answer->n_ended_jobs;
    if (worker->store == NULL || n == 0) {
        return;
    }
    struct ended_job *jobs = mem_alloc(n * sizeof *jobs);
    size_t n_failed = 0; /* they stand in the same order */
    for (size_t i = 0; i < n; i++) {
        jobs[i].job_id = mem_strdup(answer->ended_jobs[i]);
        jobs[i].has_failed =
            n_failed < answer->n_failed_jobs && strcmp(answer->failed_jobs[n_failed], jobs[i].job_id) == 0;
        n_failed += jobs[i].has_failed;
    }
    pthread_mutex_lock(&worker->mutex);
    struct ended_job *older = worker->ended_jobs;
    uint32_t n_older = worker->n_ended_jobs;
    worker->ended_jobs = jobs;
    worker->n_ended_jobs = (uint32_t)n;
    worker->ended_output = worker->beat_output;
    pthread_cond_signal(&worker->shuffle_cond);
    pthread_mutex_unlock(&worker->mutex);
    free_ended(older, n_older);
}

void worker__shuffle_discard_locked(struct worker *worker, const struct attempt *attempt)
{
    struct exchange_key key;
    if (worker->store == NULL || attempt->outcome.output.kind == EXEC_OUTPUT_NONE ||
        worker->n_discarded >= LIMIT_HELD_JOBS ||
        !exchange_key_make(attempt->job_id, (uint32_t)attempt->stage, (uint32_t)attempt->task, attempt->attempt,
                           &key)) {
        return;
    }
    worker->discarded =
        mem_grow(worker->discarded, &worker->cap_discarded, worker->n_discarded + 1, sizeof *worker->discarded);
    worker->discarded[worker->n_discarded++] = key;
    pthread_cond_signal(&worker->shuffle_cond);
}

/* Opens the lock while it works. */
static void drop_jobs_locked(struct worker *worker)
{
    struct ended_job *jobs = worker->ended_jobs;
    uint32_t n = worker->n_ended_jobs;
    uint64_t number = worker->ended_output;
    worker->ended_jobs = NULL;
    worker->n_ended_jobs = 0;
    pthread_mutex_unlock(&worker->mutex);
    for (uint32_t i = 0; i < n; i++) {
        exchange_store_end_job(worker->store, jobs[i].job_id, jobs[i].has_failed, number);
        executor_set_drop_job(worker->executors, jobs[i].job_id);
    }
    log_debug("shuffle", "what %u jobs that have ended have left is removed", n);
    free_ended(jobs, n);
    pthread_mutex_lock(&worker->mutex);
}

/* Opens the lock while it works. */
static void drop_discarded_locked(struct worker *worker)
{
    struct exchange_key key = worker->discarded[--worker->n_discarded];
    pthread_mutex_unlock(&worker->mutex);
    exchange_store_drop(worker->store, &key);
    pthread_mutex_lock(&worker->mutex);
}

/* Opens the lock while it works. */
static void drop_results_locked(struct worker *worker)
{
    int64_t ttl_ms = worker->settings.result_ttl_ms;
    pthread_mutex_unlock(&worker->mutex);
    uint32_t n = exchange_store_drop_results(worker->store, clock_wall_ms() - ttl_ms);
    if (n > 0) {
        log_info("shuffle", "%u results removed: they are older than %lld ms", n, (long long)ttl_ms);
    }
    pthread_mutex_lock(&worker->mutex);
}

static int64_t sweep_interval_ms(const struct worker *worker)
{
    int64_t ttl_ms = worker->settings.result_ttl_ms;
    return ttl_ms < SWEEP_MS_MIN ? SWEEP_MS_MIN : ttl_ms < SWEEP_MS_MAX ? ttl_ms : SWEEP_MS_MAX;
}

static void *shuffle_main(void *context)
{
    struct worker *worker = context;
    int64_t swept_ms = 0;
    pthread_mutex_lock(&worker->mutex);
    /* What is left at the end is done before it ends: nobody would think of an attempt that does not count any more. */
    while (!worker->is_shuffle_closed || worker->n_ended_jobs > 0 || worker->n_discarded > 0) {
        /* How old results may get is known when a coordinator has told it. */
        int64_t sweep_ms = !worker->was_registered ? NEVER
                           : swept_ms == 0         ? clock_mono_ms()
                                                   : swept_ms + sweep_interval_ms(worker);
        if (worker->n_ended_jobs > 0) {
            drop_jobs_locked(worker);
        } else if (worker->n_discarded > 0) {
            drop_discarded_locked(worker);
        } else if (sweep_ms <= clock_mono_ms()) {
            drop_results_locked(worker);
            swept_ms = clock_mono_ms();
        } else {
            worker__wait_until(&worker->shuffle_cond, &worker->mutex, sweep_ms == NEVER ? NEVER : sweep_ms * 1000);
        }
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

void worker__shuffle_start(struct worker *worker)
{
    if (worker->store != NULL) {
        int failed = pthread_create(&worker->shuffle_thread, NULL, shuffle_main, worker);
        ASSERT(failed == 0);
    }
}

void worker__shuffle_close(struct worker *worker)
{
    if (worker->store == NULL) {
        return;
    }
    pthread_mutex_lock(&worker->mutex);
    worker->is_shuffle_closed = true;
    pthread_cond_signal(&worker->shuffle_cond);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->shuffle_thread, NULL);
    mem_free(worker->discarded);
}
