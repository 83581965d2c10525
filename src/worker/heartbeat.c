/*
 * Registration and heartbeats: the thread that nothing may block.
 *
 * It has a connection of its own, a time limit on every call, and shares with the others only a lock that is held for
 * moments. A heartbeat names every attempt that the worker knows of; the ones that the leader does not renew come back
 * as stop orders. A heartbeat without an answer is followed by the next one soon, not after a whole interval.
 */
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "worker/worker_internal.h"

#define TIMEOUT_MS_MIN 250
#define TIMEOUT_MS_MAX 5000
#define REGISTER_TIMEOUT_MS 5000
#define PAUSE_MS_MAX 1000
#define STARTED_AFTER_MS 1000 /* younger attempts are not worth a word of their own */

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* ---- registration ---- */

void worker__heartbeat_register_again(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->is_registered = false;
    worker->is_beat_wanted = true;
    pthread_cond_signal(&worker->beat_cond);
    pthread_mutex_unlock(&worker->mutex);
}

static void take_settings(struct worker *worker, const struct pb_register_worker_response *told)
{
    int64_t ttl_ms = (int64_t)(told->result_ttl_ms < LIMIT_QUANTITY ? told->result_ttl_ms : LIMIT_QUANTITY);
    pthread_mutex_lock(&worker->mutex);
    struct settings *settings = &worker->settings;
    settings->lease_ms = told->lease_ms > 0 ? told->lease_ms : settings->lease_ms;
    settings->beat_ms = told->heartbeat_interval_ms > 0 ? told->heartbeat_interval_ms : settings->beat_ms;
    settings->beat_ms = settings->beat_ms <= settings->lease_ms / 3 ? settings->beat_ms : settings->lease_ms / 3;
    settings->beat_ms = settings->beat_ms > 0 ? settings->beat_ms : 1;
    settings->orphan_ms = told->orphan_ms > 0 ? told->orphan_ms : settings->orphan_ms;
    settings->drain_ms = told->drain_timeout_ms > 0 ? told->drain_timeout_ms : settings->drain_ms;
    settings->kill_grace_ms = told->kill_grace_ms > 0 ? told->kill_grace_ms : settings->kill_grace_ms;
    settings->result_ttl_ms = ttl_ms > 0 ? ttl_ms : settings->result_ttl_ms;
    worker->is_registered = true;
    worker->was_registered = true;
    worker->registered_ms = clock_mono_ms();
    worker__poll_reconsider_locked(worker);
    pthread_cond_signal(&worker->report_cond);
    pthread_cond_signal(&worker->shuffle_cond);
    worker__watch_look_locked(worker);
    pthread_mutex_unlock(&worker->mutex);
    if (worker->store != NULL && told->shuffle_memory_bytes > 0) {
        exchange_store_set_memory(worker->store, told->shuffle_memory_bytes);
    }
}

static void encode_registration(struct worker *worker, struct arena *arena, struct buf *out)
{
    struct pb_register_worker_request *reg = wire_new(PB_REGISTER_WORKER_REQUEST, arena);
    uint32_t n = executor_set_count(worker->executors);
    reg->worker_id = worker->worker_id;
    reg->incarnation = worker->incarnation;
    reg->address = worker->address;
    reg->slots = worker->slots;
    reg->executor_types = arena_alloc(arena, n * sizeof *reg->executor_types);
    for (uint32_t i = 0; i < n; i++) {
        reg->executor_types[reg->n_executor_types++] = (char *)executor_set_at(worker->executors, i)->name;
    }
    reg->capabilities_json = worker->capabilities;
    reg->custom_operator_capabilities = worker->ops;
    reg->n_custom_operator_capabilities = worker->n_ops;
    reg->version = worker->version;
    wire_encode(reg, out);
}

/* Some reasons are not mended by time. But a worker that has been in already goes on: somebody is at work there. */
static void look_at_refusal(struct worker *worker, enum err err, const struct error *e)
{
    bool is_final = err == ERR_UNAUTHENTICATED || err == ERR_DENIED || err == ERR_INVALID;
    if (err == ERR_STALE && strstr(e->message, TEXT_SUPERSEDED) != NULL) {
        worker__watch_superseded(worker);
    } else if (is_final && !worker->was_registered) {
        log_error("register", "refused: %s", e->message);
        worker__watch_refused(worker, err_exit(err));
    } else if (err != ERR_UNAVAILABLE && err != ERR_CANCELED) {
        log_warn("register", "failed: %s", e->message);
    }
}

static enum err try_register(struct worker *worker)
{
    struct arena arena = {0};
    struct buf request = {0}, bytes = {0};
    struct error e = {0};
    struct pb_register_worker_response *answer = NULL;
    encode_registration(worker, &arena, &request);
    struct call call = {"/capstan.v1.HeartbeatService/RegisterWorker", &request, REGISTER_TIMEOUT_MS};
    enum err err = worker__caller_call(&worker->leader, &worker->beat_caller, &call, &bytes, &e);
    if (err == ERR_OK) {
        err = wire_decode(PB_REGISTER_WORKER_RESPONSE, bytes.data, bytes.n, &arena, &answer, &e);
    }
    if (err == ERR_OK) {
        log_info("register", "%s as %s, %u slots", worker->was_registered ? "registered again" : "registered",
                 worker->worker_id, worker->slots);
        take_settings(worker, answer);
    } else {
        look_at_refusal(worker, err, &e);
    }
    buf_deinit(&request);
    buf_deinit(&bytes);
    arena_deinit(&arena);
    return err;
}

/* ---- one heartbeat ---- */

static uint64_t within_limit(uint64_t quantity)
{
    return quantity < LIMIT_QUANTITY ? quantity : LIMIT_QUANTITY;
}

/* What an executor tells is not believed: a heartbeat that is refused for it would cost all leases. */
static void add_progress(struct pb_heartbeat_request *beat, const struct attempt *attempt, struct pb_attempt_ref *ref,
                         struct arena *arena)
{
    const struct progress *told = &attempt->progress;
    if (!atomic_load_explicit(&told->is_known, memory_order_relaxed)) {
        return;
    }
    struct pb_attempt_progress *progress = wire_new(PB_ATTEMPT_PROGRESS, arena);
    double fraction = atomic_load_explicit(&told->fraction, memory_order_relaxed);
    fraction = fraction >= 0 ? fraction : 0; /* NaN, too */
    progress->ref = ref;
    progress->fraction = fraction <= 1 ? fraction : 1;
    progress->rows = within_limit(atomic_load_explicit(&told->rows, memory_order_relaxed));
    progress->bytes = within_limit(atomic_load_explicit(&told->bytes, memory_order_relaxed));
    beat->progress[beat->n_progress++] = progress;
}

/* Names every attempt. Those that have run for a while are handed to the reporter, which says so. */
static void name_attempts_locked(struct worker *worker, struct pb_heartbeat_request *beat, struct arena *arena,
                                 int64_t now_ms)
{
    beat->running = arena_alloc(arena, (worker->attempts.count + 1) * sizeof *beat->running);
    beat->progress = arena_alloc(arena, (worker->attempts.count + 1) * sizeof *beat->progress);
    LIST_EACH(at, &worker->all) {
        struct attempt *attempt = CONTAINER_OF(at, struct attempt, in_all);
        struct pb_attempt_ref *ref = worker__attempt_ref(attempt, arena);
        ref->query_id = arena_strdup(arena, attempt->job_id);
        ref->lease_token.data = arena_copy(arena, attempt->token, TOKEN_BYTES);
        beat->running[beat->n_running++] = ref;
        attempt->beat = worker->beat;
        if (attempt->state != ATTEMPT_RUNNING || attempt->is_dead || attempt->is_released) {
            continue;
        }
        add_progress(beat, attempt, ref, arena);
        if (!attempt->is_started_told && now_ms - attempt->started_ms >= STARTED_AFTER_MS) {
            attempt->is_started_told = true;
            list_push_back(&worker->started, &attempt->in_started);
        }
    }
    if (!list_is_empty(&worker->started) && worker->is_reporter_waiting) {
        worker->is_reporter_waiting = false;
        pthread_cond_signal(&worker->report_cond);
    }
}

/* Returns whether it says that the worker leaves. */
static bool encode_beat(struct worker *worker, struct arena *arena, struct buf *out, int64_t now_ms)
{
    struct pb_heartbeat_request *beat = wire_new(PB_HEARTBEAT_REQUEST, arena);
    beat->worker_id = worker->worker_id;
    beat->incarnation = worker->incarnation;
    beat->at_ms = (uint64_t)clock_wall_ms();
    beat->custom_operator_capabilities = worker->ops;
    beat->n_custom_operator_capabilities = worker->n_ops;
    beat->n_held_jobs = worker__shuffle_jobs(worker, arena, &beat->held_jobs);
    uint32_t n_mapped_jobs = worker->store == NULL ? 0 : exchange_store_mapped_jobs(worker->store);
    pthread_mutex_lock(&worker->mutex);
    worker->n_mapped_jobs = n_mapped_jobs;
    worker->beat++;
    worker->is_beat_wanted = false;
    name_attempts_locked(worker, beat, arena, now_ms);
    beat->running_tasks = worker->n_busy;
    beat->load = (double)worker->n_busy / worker->slots;
    beat->load = beat->load < 1 ? beat->load : 1;
    beat->leaving = worker->phase != PHASE_WORKING;
    pthread_mutex_unlock(&worker->mutex);
    wire_encode(beat, out);
    return beat->leaving;
}

static void take_accepted(struct worker *worker, const struct pb_heartbeat_response *answer, int64_t sent_ms,
                          bool was_leaving)
{
    worker__attempts_stop_named(worker, answer->stop, answer->n_stop);
    worker__shuffle_jobs_ended(worker, answer);
    pthread_mutex_lock(&worker->mutex);
    bool drain_changed = worker->is_drained_by_coordinator != (bool)answer->drain;
    worker->is_drained_by_coordinator = answer->drain;
    worker->accepted_beat_ms = sent_ms;
    worker->orphan_since_ms = 0;
    worker->stats.beats_total++;
    LIST_EACH(at, &worker->all) {
        struct attempt *attempt = CONTAINER_OF(at, struct attempt, in_all);
        if (attempt->beat == worker->beat) {
            worker__attempt_renew_locked(worker, attempt, sent_ms);
        }
    }
    if (was_leaving) {
        worker->outputs_needed = answer->outputs_needed;
        worker->outputs_known_ms = sent_ms;
        worker__watch_look_locked(worker);
    }
    if (drain_changed) {
        worker__poll_reconsider_locked(worker);
    }
    pthread_mutex_unlock(&worker->mutex);
    if (drain_changed) {
        log_info("drain", answer->drain ? "no new tasks: drained by the coordinator" : "takes tasks again");
    }
}

/* The answer of a coordinator that does not accept: why decides. */
static enum err take_not_accepted(struct worker *worker, const struct pb_heartbeat_response *answer)
{
    if (strstr(answer->reason, TEXT_SUPERSEDED) != NULL) {
        worker__watch_superseded(worker);
        return ERR_STALE;
    }
    if (strstr(answer->reason, TEXT_UNKNOWN_WORKER) != NULL) {
        worker__heartbeat_register_again(worker);
        return ERR_NOT_FOUND;
    }
    log_warn("heartbeat", "not accepted: %s", answer->reason);
    worker__leader_hint(&worker->leader, answer->leader);
    return ERR_UNAVAILABLE;
}

static enum err send_beat(struct worker *worker, int64_t timeout_ms)
{
    struct arena arena = {0};
    struct buf request = {0}, bytes = {0};
    struct error e = {0};
    struct pb_heartbeat_response *answer = NULL;
    int64_t sent_ms = clock_mono_ms();
    bool is_leaving = encode_beat(worker, &arena, &request, sent_ms);
    struct call call = {"/capstan.v1.HeartbeatService/Heartbeat", &request, timeout_ms};
    enum err err = worker__caller_call(&worker->leader, &worker->beat_caller, &call, &bytes, &e);
    if (err == ERR_OK) {
        err = wire_decode(PB_HEARTBEAT_RESPONSE, bytes.data, bytes.n, &arena, &answer, &e);
    }
    if (err == ERR_OK && answer->accepted) {
        take_accepted(worker, answer, sent_ms, is_leaving);
    } else if (err == ERR_OK) {
        err = take_not_accepted(worker, answer);
    } else if (err != ERR_UNAVAILABLE && err != ERR_CANCELED) {
        log_warn("heartbeat", "refused: %s", e.message);
    }
    buf_deinit(&request);
    buf_deinit(&bytes);
    arena_deinit(&arena);
    return err;
}

/* ---- the thread ---- */

static void note_missed_locked(struct worker *worker)
{
    worker->stats.missed_beats_total++;
    if (worker->orphan_since_ms == 0) {
        /* From when it was noticed: if this process itself stood still, that was not the coordinators' silence. */
        worker->orphan_since_ms = clock_mono_ms();
        worker__watch_look_locked(worker);
    }
}

/* One step: registers if that is due, else sends a heartbeat and waits for the time of the next. */
static void step_locked(struct worker *worker)
{
    bool is_registered = worker->is_registered;
    int64_t beat_ms = worker->settings.beat_ms;
    int64_t started_ms = clock_mono_ms();
    pthread_mutex_unlock(&worker->mutex);
    enum err err =
        is_registered ? send_beat(worker, clamp(beat_ms, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX)) : try_register(worker);
    /* Not known although it has just registered: something is odd there, so not again and again at full speed. */
    bool is_odd = err == ERR_NOT_FOUND && started_ms - worker->registered_ms < beat_ms;
    if (is_odd || (err != ERR_OK && err != ERR_CANCELED && err != ERR_NOT_FOUND)) {
        worker__caller_pause(&worker->leader, &worker->beat_caller, clamp(beat_ms / 2, 1, PAUSE_MS_MAX));
    }
    pthread_mutex_lock(&worker->mutex);
    if (err != ERR_OK) {
        note_missed_locked(worker);
        return;
    }
    if (!is_registered) {
        return; /* the first heartbeat follows at once */
    }
    int64_t due_us = (started_ms + beat_ms) * 1000;
    while (!worker->is_beat_closed && !worker->is_beat_wanted && clock_mono_us() < due_us) {
        worker__wait_until(&worker->beat_cond, &worker->mutex, due_us);
    }
}

void *worker__heartbeat_main(void *context)
{
    struct worker *worker = context;
    pthread_mutex_lock(&worker->mutex);
    while (!worker->is_beat_closed) {
        step_locked(worker);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}
