/*
 * Attempts: what this worker has been given, until nothing is left to say about it.
 *
 * An attempt is known from the moment of its assignment until its final report has been answered, or until it was
 * stopped and its executor has come back. All that time, every heartbeat names it.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/planted.h"
#include "worker/worker_internal.h"

/* An exclusive attempt is stopped a little before its lease is over, so that what it started is gone by then. */
#define LEASE_MARGIN_MS_MAX 2000

#define NAMES_PER_LINE 8

static int64_t lease_margin_ms(int64_t lease_ms)
{
    int64_t tenth = lease_ms / 10;
    return tenth < LEASE_MARGIN_MS_MAX ? tenth : LEASE_MARGIN_MS_MAX;
}

/*
 * Until when an exclusive attempt may run. If this process is halted then, executors see to it in the other half of the
 * margin.
 */
static void set_lease_locked(struct worker *worker, struct attempt *attempt, int64_t from_ms)
{
    int64_t margin_ms = lease_margin_ms(attempt->lease_ms);
    int64_t until_ms = from_ms + attempt->lease_ms - margin_ms;
    heap_set(&worker->leases, &attempt->lease, until_ms);
    if (!PLANTED(exclusive_runs_on)) {
        exec_stop_set_limit(attempt->stop, until_ms + margin_ms / 2);
    }
}

/* ---- one attempt ---- */

void worker__attempts_free(struct list *garbage)
{
    for (struct list *first; (first = list_first(garbage)) != NULL;) {
        list_remove(first);
        worker__attempt_free(CONTAINER_OF(first, struct attempt, in_line));
    }
}

struct pb_attempt_ref *worker__attempt_ref(const struct attempt *attempt, struct arena *arena)
{
    struct pb_attempt_ref *ref = wire_new(PB_ATTEMPT_REF, arena);
    ref->query_id = (char *)attempt->job_id;
    ref->stage_id = attempt->stage;
    ref->task_id = attempt->task;
    ref->attempt = attempt->attempt;
    ref->lease_token.data = (uint8_t *)attempt->token;
    ref->lease_token.len = TOKEN_BYTES;
    return ref;
}

/* ---- the table ---- */

/* Tokens are random already. */
static uint64_t token_hash(const unsigned char *token)
{
    uint64_t hash;
    memcpy(&hash, token, sizeof hash);
    return hash;
}

static bool token_matches(const void *value, const void *key)
{
    return memcmp(((const struct attempt *)value)->token, key, TOKEN_BYTES) == 0;
}

static struct attempt *find(const struct worker *worker, const struct pb_attempt_ref *ref)
{
    if (ref->lease_token.len != TOKEN_BYTES) {
        return NULL;
    }
    struct attempt *attempt =
        map_get(&worker->attempts, token_hash(ref->lease_token.data), token_matches, ref->lease_token.data);
    bool is_it = attempt != NULL && attempt->attempt == ref->attempt && attempt->stage == ref->stage_id &&
                 attempt->task == ref->task_id && strcmp(attempt->job_id, ref->query_id) == 0;
    return is_it ? attempt : NULL;
}

void worker__attempt_add_locked(struct worker *worker, struct attempt *attempt, int64_t lease_from_ms,
                                struct list *garbage)
{
    uint64_t hash = token_hash(attempt->token);
    if (map_get(&worker->attempts, hash, token_matches, attempt->token) != NULL) {
        list_push_back(garbage, &attempt->in_line);
        return;
    }
    map_put(&worker->attempts, hash, attempt);
    list_push_back(&worker->all, &attempt->in_all);
    list_push_back(&worker->queue, &attempt->in_line);
    attempt->state = ATTEMPT_QUEUED;
    worker->n_queued++;
    worker->n_busy++;
    worker->stats.assigned_total++;
    if (attempt->lease_ms == 0) {
        attempt->lease_ms = (uint32_t)worker->settings.lease_ms;
    }
    if (attempt->is_exclusive) {
        set_lease_locked(worker, attempt, lease_from_ms);
        if (heap_min(&worker->leases) == &attempt->lease) {
            worker__watch_look_locked(worker);
        }
    }
    if (attempt->is_fragment_missing) {
        worker__attempt_release_locked(worker, attempt, STOP_NONE);
    }
}

void worker__attempt_renew_locked(struct worker *worker, struct attempt *attempt, int64_t from_ms)
{
    if (heap_has(&attempt->lease)) {
        int64_t until_ms = from_ms + attempt->lease_ms - lease_margin_ms(attempt->lease_ms);
        if (until_ms > attempt->lease.key) {
            set_lease_locked(worker, attempt, from_ms);
        }
    }
}

void worker__attempt_forget_locked(struct worker *worker, struct attempt *attempt)
{
    bool had_room = worker__has_room_locked(worker);
    map_take_value(&worker->attempts, token_hash(attempt->token), attempt);
    worker->unreported_bytes -= attempt->report_bytes; /* 0 unless it is done */
    if (!had_room && worker__has_room_locked(worker)) {
        worker__poll_reconsider_locked(worker);
    }
    heap_remove(&worker->leases, &attempt->lease);
    list_remove(&attempt->in_all);
    list_remove(&attempt->in_line);
    list_remove(&attempt->in_started);
    if (!attempt->was_sent || attempt->is_refused) { /* else it counts, or nobody knows */
        worker__shuffle_discard_locked(worker, attempt);
    }
}

void worker__attempt_tell_started_later_locked(struct worker *worker, const struct pb_attempt_ref *ref)
{
    struct attempt *attempt = find(worker, ref);
    if (attempt != NULL && attempt->state == ATTEMPT_RUNNING) {
        attempt->is_started_told = false;
    }
}

/* ---- ends ---- */

static void leave_queue_locked(struct worker *worker, struct attempt *attempt)
{
    list_remove(&attempt->in_line);
    worker->n_queued--;
    worker->n_busy--;
    worker__poll_slot_freed_locked(worker);
}

void worker__attempt_stop_locked(struct worker *worker, struct attempt *attempt, enum stop_reason reason,
                                 struct list *garbage)
{
    switch (attempt->state) {
    case ATTEMPT_QUEUED:
        leave_queue_locked(worker, attempt);
        break;
    case ATTEMPT_RUNNING:
        if (!attempt->is_dead) {
            attempt->is_dead = true;
            worker->stats.stopped_total++;
            heap_remove(&worker->leases, &attempt->lease);
            list_remove(&attempt->in_started);
            exec_stop_fire(attempt->stop, reason);
        }
        return;
    case ATTEMPT_DONE:
        worker->n_done--;
        break;
    case ATTEMPT_SENT:
        return; /* the answer to its report says what became of it */
    }
    worker->stats.stopped_total++;
    worker__attempt_forget_locked(worker, attempt);
    list_push_back(garbage, &attempt->in_line);
    worker__watch_look_locked(worker);
}

void worker__attempts_stop_named(struct worker *worker, struct pb_attempt_ref *const *refs, size_t n)
{
    struct list garbage;
    struct buf names = {0};
    uint32_t n_stopped = 0;
    list_init(&garbage);
    pthread_mutex_lock(&worker->mutex);
    for (size_t i = 0; i < n; i++) {
        struct attempt *attempt = find(worker, refs[i]);
        if (attempt == NULL || attempt->is_dead || attempt->state == ATTEMPT_SENT) {
            continue;
        }
        if (n_stopped++ < NAMES_PER_LINE) {
            buf_format(&names, "%s" ATTEMPT_FORMAT, names.n == 0 ? "" : ", ", ATTEMPT_VALUES(attempt));
        }
        worker__attempt_stop_locked(worker, attempt, STOP_CANCELED, &garbage);
    }
    pthread_mutex_unlock(&worker->mutex);
    if (n_stopped > 0) {
        log_info("stop", "%u stopped by the coordinator: %s%s", n_stopped, names.data,
                 n_stopped > NAMES_PER_LINE ? ", ..." : "");
    }
    buf_deinit(&names);
    worker__attempts_free(&garbage);
}

uint32_t worker__attempts_stop_all_locked(struct worker *worker, enum stop_reason reason, bool outcomes,
                                          struct list *garbage)
{
    uint64_t before = worker->stats.stopped_total;
    LIST_EACH_SAFE(at, next, &worker->all) {
        struct attempt *attempt = CONTAINER_OF(at, struct attempt, in_all);
        if (outcomes || attempt->state == ATTEMPT_QUEUED || attempt->state == ATTEMPT_RUNNING) {
            worker__attempt_stop_locked(worker, attempt, reason, garbage);
        }
    }
    return (uint32_t)(worker->stats.stopped_total - before);
}

void worker__attempt_done_locked(struct worker *worker, struct attempt *attempt, Capstan__V1__TaskState verdict)
{
    attempt->verdict = verdict;
    attempt->state = ATTEMPT_DONE;
    worker__report_measure(attempt);
    heap_remove(&worker->leases, &attempt->lease);
    list_remove(&attempt->in_started);
    list_push_back(&worker->done, &attempt->in_line);
    worker->n_done++;
    worker->unreported_bytes += attempt->report_bytes;
    switch ((int)verdict) {
    case CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED:
        worker->stats.succeeded_total++;
        break;
    case CAPSTAN__V1__TASK_STATE__TASK_STATE_FAILED:
        worker->stats.failed_total++;
        break;
    default:
        worker->stats.released_total++;
        break;
    }
    if (worker->is_reporter_waiting) {
        worker->is_reporter_waiting = false;
        pthread_cond_signal(&worker->report_cond);
    }
}

void worker__attempts_release_queued_locked(struct worker *worker)
{
    for (struct list *first; (first = list_first(&worker->queue)) != NULL;) {
        struct attempt *attempt = CONTAINER_OF(first, struct attempt, in_line);
        leave_queue_locked(worker, attempt);
        worker__attempt_done_locked(worker, attempt, CAPSTAN__V1__TASK_STATE__TASK_STATE_QUEUED);
    }
}

void worker__attempt_release_locked(struct worker *worker, struct attempt *attempt, enum stop_reason reason)
{
    heap_remove(&worker->leases, &attempt->lease);
    list_remove(&attempt->in_started);
    if (attempt->state == ATTEMPT_QUEUED) {
        leave_queue_locked(worker, attempt);
        worker__attempt_done_locked(worker, attempt, CAPSTAN__V1__TASK_STATE__TASK_STATE_QUEUED);
    } else if (attempt->state == ATTEMPT_RUNNING && !attempt->is_dead && !attempt->is_released) {
        attempt->is_released = true;
        exec_stop_fire(attempt->stop, reason);
    }
}

uint32_t worker__attempts_release_running_locked(struct worker *worker)
{
    uint32_t n = 0;
    LIST_EACH(at, &worker->all) {
        struct attempt *attempt = CONTAINER_OF(at, struct attempt, in_all);
        if (attempt->state == ATTEMPT_RUNNING && !attempt->is_dead && !attempt->is_released) {
            worker__attempt_release_locked(worker, attempt, STOP_SHUTDOWN);
            n++;
        }
    }
    return n;
}
