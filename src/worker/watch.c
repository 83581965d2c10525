/*
 * Deadlines, and the way out.
 *
 * One thread sleeps until the next deadline: the lease of an exclusive attempt that was not renewed, the end of the
 * time without any coordinator, the steps of leaving. It also runs the end, so that whoever asks for it never waits.
 *
 *     leaving   no new tasks; what has not begun is given back ── all is reported, nobody needs outputs ──► goodbye
 *                  └─ the drain time is over: executors are stopped, their attempts given back ──► goodbye
 *     stopping  executors are stopped at once; outcomes get a moment to be reported ──► goodbye
 *     goodbye   polls, reports and heartbeats end; DeregisterWorker gives back whatever the leader thinks is here
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/planted.h"
#include "worker/worker_internal.h"

#define LEAVE_EXTRA_MS 10000 /* after the drain time, for executors to stop and reports to be answered */
#define STOP_EXTRA_MS 3000   /* after the time between SIGTERM and SIGKILL */
#define LAST_REPORTS_MS 2000 /* for outcomes when stopping */
#define GOODBYE_CALL_MS 1000
#define GOODBYE_MS 2500

void worker__watch_look_locked(struct worker *worker)
{
    if (worker->phase != PHASE_WORKING || heap_min(&worker->leases) != NULL || worker->orphan_since_ms != 0) {
        pthread_cond_signal(&worker->watch_cond);
    }
}

static void begin_stopping_locked(struct worker *worker, enum ending ending)
{
    if (worker->phase < PHASE_STOPPING) {
        worker->phase = PHASE_STOPPING;
        worker->ending = ending;
        worker->stopping_since_ms = clock_mono_ms();
        pthread_cond_signal(&worker->watch_cond);
    }
}

void worker_drain(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool is_first = worker->phase == PHASE_WORKING;
    uint32_t n_busy = worker->n_busy;
    if (is_first) {
        worker->phase = PHASE_LEAVING;
        worker->leaving_since_ms = clock_mono_ms();
        worker__attempts_release_queued_locked(worker);
        worker->is_beat_wanted = true;
        pthread_cond_signal(&worker->beat_cond);
        pthread_cond_signal(&worker->watch_cond);
        worker__poll_reconsider_locked(worker);
    }
    pthread_mutex_unlock(&worker->mutex);
    if (is_first) {
        log_info("drain", "leaving: no new tasks, %u to finish", n_busy);
    }
}

void worker_stop_now(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool is_first = worker->phase < PHASE_STOPPING;
    begin_stopping_locked(worker, ENDING_LEFT);
    if (is_first) {
        worker__attempts_release_queued_locked(worker);
        worker__attempts_release_running_locked(worker);
        worker__poll_reconsider_locked(worker);
    }
    pthread_mutex_unlock(&worker->mutex);
    if (is_first) {
        log_info("stop", "stopping now");
    }
}

void worker__watch_superseded(struct worker *worker)
{
    struct list garbage;
    list_init(&garbage);
    pthread_mutex_lock(&worker->mutex);
    bool is_first = worker->phase < PHASE_STOPPING;
    if (is_first) {
        begin_stopping_locked(worker, ENDING_SUPERSEDED);
        worker__attempts_stop_all_locked(worker, STOP_LEASE_LOST, true, &garbage);
    }
    pthread_mutex_unlock(&worker->mutex);
    worker__attempts_free(&garbage);
    if (is_first) {
        log_error("superseded", "a newer process runs under the worker_id %s: this one ends", worker->worker_id);
    }
}

void worker__watch_refused(struct worker *worker, int exit_code)
{
    pthread_mutex_lock(&worker->mutex);
    begin_stopping_locked(worker, ENDING_REFUSED);
    worker->refused_exit_code = exit_code;
    pthread_mutex_unlock(&worker->mutex);
}

/* ---- deadlines ---- */

/*
 * Stops exclusive attempts whose lease is over, and gives them back: a coordinator that comes back, and has not given
 * them to others meanwhile, can do so at once. Returns when the next would be.
 */
static int64_t end_leases_locked(struct worker *worker, int64_t now_ms)
{
    uint32_t n = 0;
    if (PLANTED(exclusive_runs_on)) {
        return NEVER;
    }
    for (struct heap_node *min; (min = heap_min(&worker->leases)) != NULL && min->key <= now_ms; n++) {
        worker__attempt_release_locked(worker, CONTAINER_OF(min, struct attempt, lease), STOP_LEASE_LOST);
    }
    struct heap_node *min = heap_min(&worker->leases);
    int64_t next_ms = min == NULL ? NEVER : min->key;
    if (n > 0) {
        pthread_mutex_unlock(&worker->mutex);
        log_warn("lease", "%u exclusive attempts stopped and given back: their leases could not be renewed", n);
        pthread_mutex_lock(&worker->mutex);
        next_ms = now_ms; /* the lock was open: look again */
    }
    return next_ms;
}

/* Stops everything that runs when no coordinator has answered for too long. Returns when that would be. */
static int64_t end_orphans_locked(struct worker *worker, int64_t now_ms)
{
    if (worker->orphan_since_ms == 0 || worker->n_busy == 0) {
        return NEVER;
    }
    int64_t at_ms = worker->orphan_since_ms + worker->settings.orphan_ms;
    if (now_ms < at_ms) {
        return at_ms;
    }
    struct list garbage;
    list_init(&garbage);
    uint32_t n = worker__attempts_stop_all_locked(worker, STOP_LEASE_LOST, false, &garbage);
    if (n > 0) {
        pthread_mutex_unlock(&worker->mutex);
        worker__attempts_free(&garbage);
        log_warn("orphan", "%u attempts stopped: no coordinator has answered for too long", n);
        pthread_mutex_lock(&worker->mutex);
    }
    return NEVER;
}

/* ---- leaving ---- */

static bool nothing_is_left_locked(const struct worker *worker)
{
    return worker->n_busy == 0 && worker->n_done == 0 && worker->n_sent == 0;
}

/* Whether somebody may still read map outputs from here. A leader must have said so after the last report. */
static bool outputs_are_needed_locked(const struct worker *worker)
{
    if (!worker->was_registered) {
        return false;
    }
    if (worker->outputs_known_ms >= worker->idle_since_ms) {
        return worker->outputs_needed > 0;
    }
    return worker->n_mapped_jobs > 0 || worker->orphan_since_ms == 0;
}

/* The end of the drain time: gives back what still runs. */
static void end_drain_time_locked(struct worker *worker)
{
    uint32_t n = worker__attempts_release_running_locked(worker);
    if (n > 0) {
        pthread_mutex_unlock(&worker->mutex);
        log_info("drain", "the time is over: %u attempts are stopped and given back", n);
        pthread_mutex_lock(&worker->mutex);
    }
}

/* Returns whether it is time to say goodbye; if not, when to look again. */
static bool leave_locked(struct worker *worker, int64_t now_ms, int64_t *next_ms)
{
    int64_t over_ms = worker->leaving_since_ms + worker->settings.drain_ms;
    int64_t last_ms = over_ms + worker->settings.kill_grace_ms + LEAVE_EXTRA_MS;
    bool is_over = now_ms >= over_ms;
    if (is_over) {
        end_drain_time_locked(worker);
    }
    *next_ms = is_over ? last_ms : over_ms;
    if (!nothing_is_left_locked(worker)) {
        worker->idle_since_ms = 0;
        return now_ms >= last_ms;
    }
    if (worker->idle_since_ms == 0) {
        worker->idle_since_ms = now_ms;
        worker->is_beat_wanted = true;
        pthread_cond_signal(&worker->beat_cond);
    }
    return is_over || !outputs_are_needed_locked(worker);
}

static bool stop_locked(const struct worker *worker, int64_t now_ms, int64_t *next_ms)
{
    int64_t stopped_by_ms = worker->stopping_since_ms + worker->settings.kill_grace_ms + STOP_EXTRA_MS;
    int64_t told_by_ms = worker->stopping_since_ms + LAST_REPORTS_MS;
    if (worker->ending == ENDING_REFUSED) {
        return true;
    }
    if (worker->n_busy > 0) {
        *next_ms = stopped_by_ms;
        return now_ms >= stopped_by_ms;
    }
    *next_ms = told_by_ms;
    return worker->ending == ENDING_SUPERSEDED || nothing_is_left_locked(worker) || now_ms >= told_by_ms;
}

/* ---- goodbye ---- */

static void deregister(struct worker *worker)
{
    struct arena arena = {0};
    struct buf request = {0}, bytes = {0};
    struct caller caller;
    struct error e = {0};
    struct pb_deregister_worker_request *leave = wire_new(PB_DEREGISTER_WORKER_REQUEST, &arena);
    leave->worker_id = worker->worker_id;
    leave->incarnation = worker->incarnation;
    wire_encode(leave, &request);
    worker__caller_init(&caller, LANE_LEAVE);
    struct call call = {"/capstan.v1.HeartbeatService/DeregisterWorker", &request, GOODBYE_CALL_MS};
    enum err err = ERR_UNAVAILABLE;
    for (int64_t until_ms = clock_mono_ms() + GOODBYE_MS; err != ERR_OK && clock_mono_ms() < until_ms;) {
        if (caller.failures > 0) {
            worker__caller_pause(&worker->leader, &caller, GOODBYE_CALL_MS / 4);
        }
        caller.failures++;
        err = worker__caller_call(&worker->leader, &caller, &call, &bytes, &e);
    }
    if (err != ERR_OK) {
        log_warn("goodbye", "no leader heard it: %s", e.message);
    }
    worker__caller_deinit(&caller);
    buf_deinit(&request);
    buf_deinit(&bytes);
    arena_deinit(&arena);
}

/* Ends the threads that talk. */
static void close_lines(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->are_polls_closed = true;
    worker->is_reporter_closed = true;
    worker->is_beat_closed = true;
    pthread_cond_broadcast(&worker->poll_cond);
    pthread_cond_signal(&worker->report_cond);
    pthread_cond_signal(&worker->beat_cond);
    pthread_mutex_unlock(&worker->mutex);
    worker__leader_close_lane(&worker->leader, LANE_POLL);
    worker__leader_close_lane(&worker->leader, LANE_REPORT);
    worker__leader_close_lane(&worker->leader, LANE_BEAT);
    for (size_t i = 0; i < ARRAY_LEN(worker->poll_threads); i++) {
        pthread_join(worker->poll_threads[i], NULL);
    }
    pthread_join(worker->report_thread, NULL);
    pthread_join(worker->beat_thread, NULL);
}

static void say_goodbye(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool is_complete = nothing_is_left_locked(worker);
    bool was_asked = worker->phase == PHASE_STOPPING; /* then unreported outcomes are part of the bargain */
    uint32_t n_busy = worker->n_busy;
    enum ending ending = worker->ending;
    int exit_code = is_complete || (was_asked && n_busy == 0) ? 0 : 1;
    exit_code = ending == ENDING_SUPERSEDED ? 1 : exit_code;
    exit_code = ending == ENDING_REFUSED ? worker->refused_exit_code : exit_code;
    pthread_mutex_unlock(&worker->mutex);
    close_lines(worker);
    if (ending == ENDING_LEFT && worker->was_registered) {
        deregister(worker);
    }
    if (n_busy > 0) {
        log_error("stop", "%u executors have not stopped", n_busy);
    }
    log_info("goodbye", "%s has ended", worker->worker_id);
    pthread_mutex_lock(&worker->mutex);
    worker->phase = PHASE_ENDED;
    worker->exit_code = exit_code;
    pthread_cond_broadcast(&worker->ended_cond);
    pthread_mutex_unlock(&worker->mutex);
}

static bool is_ending_locked(struct worker *worker, int64_t now_ms, int64_t *next_ms)
{
    if (worker->phase == PHASE_LEAVING) {
        return leave_locked(worker, now_ms, next_ms);
    }
    return worker->phase == PHASE_STOPPING && stop_locked(worker, now_ms, next_ms);
}

void *worker__watch_main(void *context)
{
    struct worker *worker = context;
    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        int64_t now_ms = clock_mono_ms();
        int64_t next_ms = NEVER;
        int64_t lease_ms = end_leases_locked(worker, now_ms);
        int64_t orphan_ms = end_orphans_locked(worker, now_ms);
        if (is_ending_locked(worker, now_ms, &next_ms)) {
            break;
        }
        next_ms = lease_ms < next_ms ? lease_ms : next_ms;
        next_ms = orphan_ms < next_ms ? orphan_ms : next_ms;
        worker__wait_until(&worker->watch_cond, &worker->mutex, next_ms == NEVER ? NEVER : next_ms * 1000);
    }
    pthread_mutex_unlock(&worker->mutex);
    say_goodbye(worker);
    return NULL;
}
