/*
 * The long poll: asking for as many tasks as there are free slots.
 *
 * One poll is always open, with capacity 0 if all slots are taken, since stop orders come with its answer. The leader
 * holds one poll per worker: a second one makes it answer the first with nothing, at once. That is how it is told
 * about slots that got free meanwhile. A poll is never cancelled for that, because its answer may be on its way with
 * tasks, which would then run nowhere until the leader notices.
 *
 * For the same reason a second poll asks only for what the open one does not: both may be answered in full. It is sent
 * when it would ask for more than the open one, so that
 *  - a poll with capacity 0 is replaced by one that asks as soon as a slot is free;
 *  - under load, with the first answer waiting for its commit, the slots that got free meanwhile are asked for already;
 *  - in quiet times a slot that gets free costs no call: the open poll brings work as well, and the next asks for all;
 *  - the two never chase each other: the one that was answered with nothing asked for less than the one that is open.
 *
 * Slots that get free together make one poll: see patience_us.
 */
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "worker/worker_internal.h"

#define WAIT_MS 20000
#define WAIT_MARGIN_MS 10000 /* for the way and for a slow commit */
#define PAUSE_MS_MAX 1000
#define FULL_PATIENCE_US 2000
#define GATHER_US 500

bool worker__has_room_locked(const struct worker *worker)
{
    return worker->unreported_bytes < UNREPORTED_BYTES_MAX && worker->attempts.count < LIMIT_SLOTS;
}

static bool is_accepting_locked(const struct worker *worker)
{
    return worker->phase == PHASE_WORKING && !worker->is_drained_by_coordinator && worker__has_room_locked(worker);
}

/* The leader is not asked for more than fits into a heartbeat, which names what waits for its report, too. */
static uint32_t unpromised_locked(const struct worker *worker)
{
    size_t taken = worker->n_busy + worker->promised;
    size_t named = worker->attempts.count + worker->promised;
    if (!is_accepting_locked(worker) || taken >= worker->slots || named >= LIMIT_SLOTS) {
        return 0;
    }
    size_t n = worker->slots - taken;
    n = n < LIMIT_SLOTS - named ? n : LIMIT_SLOTS - named;
    return (uint32_t)(n < worker->capacity_max ? n : worker->capacity_max);
}

/*
 * How long to wait for more slots before asking for `n`. A full worker waits a little before it asks for stop orders
 * only: if its tasks are short, a slot is free in a moment and the call is spared. One that is half busy waits less.
 */
static int64_t patience_us(const struct worker *worker, uint32_t n)
{
    if (!is_accepting_locked(worker)) {
        return 0;
    }
    if (n == 0) {
        return FULL_PATIENCE_US;
    }
    return n < worker->slots / 2 && (worker->n_queued > 0 || worker->newest_capacity == 0) && worker->n_busy > 0
               ? GATHER_US
               : 0;
}

static bool has_waited_locked(struct worker *worker, int64_t patience, int64_t *look_again_us)
{
    int64_t now_us = clock_mono_us();
    if (patience == 0 || (worker->gather_until_us != 0 && worker->gather_until_us <= now_us)) {
        worker->gather_until_us = 0;
        return true;
    }
    if (worker->gather_until_us == 0) {
        worker->gather_until_us = now_us + patience;
    }
    *look_again_us = worker->gather_until_us;
    return false;
}

/* Whether to send a poll now, and for how many; if not, when to look again at the latest. */
static bool wants_poll_locked(struct worker *worker, uint32_t *out_capacity, int64_t *look_again_us)
{
    uint32_t n = unpromised_locked(worker);
    *look_again_us = NEVER;
    worker->wake_at = UINT32_MAX;
    if (!worker->is_registered) {
        return false;
    }
    if (worker->n_open > 0) {
        bool take_back = !is_accepting_locked(worker) && worker->newest_capacity > 0;
        if (!take_back && n <= worker->promised) {
            worker->gather_until_us = 0;
            worker->wake_at = 2 * worker->promised + 1; /* free slots: those promised, and more than as many again */
            return false;
        }
    }
    if (!has_waited_locked(worker, patience_us(worker, n), look_again_us)) {
        worker->wake_at = worker->slots / 2 > 0 ? worker->slots / 2 : 1;
        return false;
    }
    *out_capacity = n;
    return true;
}

void worker__poll_slot_freed_locked(struct worker *worker)
{
    if (worker->n_busy <= worker->slots && worker->slots - worker->n_busy >= worker->wake_at) {
        worker->wake_at = UINT32_MAX;
        pthread_cond_signal(&worker->poll_cond);
    }
}

void worker__poll_reconsider_locked(struct worker *worker)
{
    pthread_cond_broadcast(&worker->poll_cond);
}

/* ---- answers ---- */

/* The call has ended: its promise is over at the same moment as its tasks take their slots. */
static void close_locked(struct worker *worker, uint32_t capacity)
{
    worker->n_open--;
    worker->promised -= capacity;
}

static void take_tasks(struct worker *worker, const struct pb_get_task_response *answer, uint32_t capacity,
                       int64_t sent_ms)
{
    /* The leases began after the call had left and had waited; they may have begun later, never earlier. */
    int64_t waited_ms = answer->waited_ms;
    int64_t lease_from_ms = sent_ms + waited_ms;
    struct list fresh, garbage;
    list_init(&fresh);
    list_init(&garbage);
    uint32_t n_given_back = 0;
    for (size_t i = 0; i < answer->n_tasks; i++) {
        struct attempt *attempt = worker__attempt_new(worker, answer->tasks[i]);
        n_given_back += attempt->is_fragment_missing;
        list_push_back(&fresh, &attempt->in_line);
    }
    int64_t now_ms = clock_mono_ms();
    lease_from_ms = lease_from_ms < now_ms ? lease_from_ms : now_ms;
    pthread_mutex_lock(&worker->mutex);
    close_locked(worker, capacity);
    worker->stats.polls_total++;
    for (struct list *first; (first = list_first(&fresh)) != NULL;) {
        list_remove(first);
        worker__attempt_add_locked(worker, CONTAINER_OF(first, struct attempt, in_line), lease_from_ms, &garbage);
    }
    if (worker->phase != PHASE_WORKING) {
        worker__attempts_release_queued_locked(worker); /* they crossed the news that this worker leaves */
    }
    if (answer->n_tasks > 0 && worker->capacity_max < LIMIT_CAPACITY) {
        worker->capacity_max++;
    }
    worker__slots_wake_locked(worker);
    pthread_mutex_unlock(&worker->mutex);
    worker__attempts_free(&garbage);
    if (n_given_back > 0) {
        log_info("poll", "%u tasks given back: their fragment is not here any more", n_given_back);
    }
    if (answer->n_stop > 0) {
        worker__attempts_stop_named(worker, answer->stop, answer->n_stop);
    }
}

/* Fragments that are here need not be sent again. */
static void name_fragments(struct worker *worker, struct pb_get_task_request *get, struct arena *arena)
{
    uint8_t *digests = NULL;
    uint32_t n = fragments_known(&worker->fragments, arena, &digests);
    if (n == 0) {
        return;
    }
    get->known_fragments = arena_alloc(arena, n * sizeof *get->known_fragments);
    get->n_known_fragments = n;
    for (uint32_t i = 0; i < n; i++) {
        get->known_fragments[i].data = digests + (size_t)i * SHA256_BYTES;
        get->known_fragments[i].len = SHA256_BYTES;
    }
}

static enum err ask(struct worker *worker, struct caller *caller, uint32_t capacity, struct error *e)
{
    struct arena arena = {0};
    struct buf request = {0}, bytes = {0};
    struct pb_get_task_request *get = wire_new(PB_GET_TASK_REQUEST, &arena);
    struct pb_get_task_response *answer = NULL;
    get->worker_id = worker->worker_id;
    get->incarnation = worker->incarnation;
    get->capacity = capacity;
    get->wait_ms = WAIT_MS;
    name_fragments(worker, get, &arena);
    wire_encode(get, &request);
    struct call call = {"/capstan.v1.ControlPlane/GetTask", &request, WAIT_MS + WAIT_MARGIN_MS};
    int64_t sent_ms = clock_mono_ms();
    enum err err = worker__caller_call(&worker->leader, caller, &call, &bytes, e);
    if (err == ERR_OK) {
        err = wire_decode(PB_GET_TASK_RESPONSE, bytes.data, bytes.n, &arena, &answer, e);
    }
    if (err == ERR_OK) {
        take_tasks(worker, answer, capacity, sent_ms);
    }
    buf_deinit(&request);
    buf_deinit(&bytes);
    arena_deinit(&arena);
    return err;
}

/* What to do about a poll without an answer. Returns whether to pause. */
static bool look_at_failure(struct worker *worker, enum err err, const struct error *e)
{
    if (err == ERR_CANCELED) {
        return false;
    }
    if (err == ERR_NOT_FOUND) {
        worker__heartbeat_register_again(worker);
    } else if (err == ERR_STALE && strstr(e->message, TEXT_SUPERSEDED) != NULL) {
        worker__watch_superseded(worker);
    } else if (err == ERR_EXHAUSTED) {
        /* Perhaps the answer was too large to be sent: its tasks come back, and this time not all at once. */
        pthread_mutex_lock(&worker->mutex);
        worker->capacity_max = worker->capacity_max > 1 ? worker->capacity_max / 2 : 1;
        pthread_mutex_unlock(&worker->mutex);
        log_warn("poll", "no tasks: %s", e->message);
    } else if (err != ERR_UNAVAILABLE) {
        log_warn("poll", "no tasks: %s", e->message);
    }
    return true;
}

void *worker__poll_main(void *poll_thread_context)
{
    struct poll_thread *self = poll_thread_context;
    struct worker *worker = self->worker;
    pthread_mutex_lock(&worker->mutex);
    while (!worker->are_polls_closed) {
        uint32_t capacity = 0;
        int64_t look_again_us = NEVER;
        if (!wants_poll_locked(worker, &capacity, &look_again_us)) {
            worker__wait_until(&worker->poll_cond, &worker->mutex, look_again_us);
            continue;
        }
        worker->n_open++;
        worker->promised += capacity;
        worker->newest_capacity = capacity;
        worker->wake_at = is_accepting_locked(worker) ? 2 * worker->promised + 1 : UINT32_MAX;
        pthread_mutex_unlock(&worker->mutex);
        struct error e = {0};
        enum err err = ask(worker, self->caller, capacity, &e);
        bool pause = err != ERR_OK && look_at_failure(worker, err, &e);
        if (pause) {
            worker__caller_pause(&worker->leader, self->caller, PAUSE_MS_MAX);
        }
        pthread_mutex_lock(&worker->mutex);
        if (err != ERR_OK) {
            close_locked(worker, capacity);
        }
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}
