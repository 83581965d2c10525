/*
 * Slots: the threads that run executors.
 *
 * A thread is made only when something waits, nobody is idle and there are fewer threads than slots. Whoever takes an
 * attempt and sees more behind it wakes one other thread, and there is never more than one on its way: tasks that
 * do next to nothing are worked off by the few threads that are awake, tasks that block get a thread each.
 */
#include "base/clock.h"
#include "base/log.h"
#include "worker/worker_internal.h"

#define STACK_BYTES ((size_t)2 * 1024 * 1024)
#define FAILURE_LINES_PER_S 20

static void *slot_main(void *context);

static void spawn_locked(struct worker *worker)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (pthread_create(&worker->slot_threads[worker->n_slot_threads], &attributes, slot_main, worker) == 0) {
        worker->n_slot_threads++;
    } else {
        worker->is_waking = false; /* the threads that there are go on; the next assignment tries again */
    }
    pthread_attr_destroy(&attributes);
}

void worker__slots_wake_locked(struct worker *worker)
{
    if (worker->is_waking || worker->n_queued == 0 || worker->are_slots_closed) {
        return;
    }
    if (worker->n_idle > 0) {
        worker->is_waking = true;
        pthread_cond_signal(&worker->slot_cond);
    } else if (worker->n_slot_threads < worker->slots) {
        worker->is_waking = true;
        spawn_locked(worker);
    }
}

/* The next attempt; NULL: the worker ends. */
static struct attempt *take_locked(struct worker *worker)
{
    while (list_is_empty(&worker->queue)) {
        if (worker->are_slots_closed) {
            return NULL;
        }
        worker->n_idle++;
        pthread_cond_wait(&worker->slot_cond, &worker->mutex);
        worker->n_idle--;
        worker->is_waking = false;
    }
    struct attempt *attempt = CONTAINER_OF(list_first(&worker->queue), struct attempt, in_line);
    list_remove(&attempt->in_line);
    worker->n_queued--;
    attempt->state = ATTEMPT_RUNNING;
    attempt->started_ms = clock_mono_ms();
    worker__slots_wake_locked(worker);
    return attempt;
}

static void note_progress(void *context, double fraction, uint64_t rows, uint64_t bytes)
{
    struct progress *progress = context;
    atomic_store_explicit(&progress->fraction, fraction, memory_order_relaxed);
    atomic_store_explicit(&progress->rows, rows, memory_order_relaxed);
    atomic_store_explicit(&progress->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&progress->is_known, true, memory_order_relaxed);
}

static void run(struct worker *worker, struct attempt *attempt, uint32_t kill_grace_ms)
{
    if (attempt->is_fragment_wrong) {
        exec_fail(&attempt->outcome, false, "the fragment is not what its digest says: it was damaged on its way");
        return;
    }
    if (attempt->missing_op != NULL) {
        exec_fail(&attempt->outcome, false, "custom physical operator '%s' is not registered on worker",
                  attempt->missing_op);
        return;
    }
    struct exec_task task = {.job_id = attempt->job_id,
                             .stage = attempt->stage,
                             .task = attempt->task,
                             .attempt = attempt->attempt,
                             .name = attempt->name[0] == '\0' ? NULL : attempt->name,
                             .inputs = attempt->inputs,
                             .n_inputs = attempt->n_inputs,
                             .idempotency_key = attempt->idempotency_key,
                             .task_key = attempt->task_key,
                             .timeout_ms = attempt->timeout_ms,
                             .kill_grace_ms = kill_grace_ms,
                             .sources = attempt->sources,
                             .n_sources = attempt->n_sources,
                             .on_progress = note_progress,
                             .progress_context = &attempt->progress};
    exec_run(worker->executors, attempt->executor, &task, attempt->stop, &attempt->outcome);
}

/* Whether a line about one more failure may be written in this second. */
static bool may_tell_locked(struct worker *worker)
{
    int64_t now_ms = clock_mono_ms();
    if (now_ms - worker->failure_lines_since_ms >= 1000) {
        worker->failure_lines_since_ms = now_ms;
        worker->failure_lines = 0;
    }
    return worker->failure_lines++ < FAILURE_LINES_PER_S;
}

static void tell_failure(const struct attempt *attempt)
{
    log_info("task", ATTEMPT_FORMAT " failed (executor %s%s)", ATTEMPT_VALUES(attempt), attempt->executor,
             attempt->outcome.not_retryable ? ", not to be retried" : "");
}

/*
 * The executor is back. What it returned counts unless it was told to stop for a reason of the worker's. Returns the
 * attempt if there is nothing to report: the caller frees it.
 */
static struct attempt *finish_locked(struct worker *worker, struct attempt *attempt, enum stop_reason reason)
{
    bool is_verdict = reason == STOP_NONE || reason == STOP_TIMEOUT;
    struct attempt *garbage = NULL;
    worker->n_busy--;
    if (attempt->is_dead || (!is_verdict && !attempt->is_released)) {
        worker__attempt_forget_locked(worker, attempt);
        garbage = attempt;
    } else if (!is_verdict) {
        worker__shuffle_discard_locked(worker, attempt);
        exec_outcome_deinit(&attempt->outcome);
        worker__attempt_done_locked(worker, attempt, CAPSTAN__V1__TASK_STATE__TASK_STATE_QUEUED);
    } else {
        worker__attempt_done_locked(worker, attempt,
                                    attempt->outcome.is_success ? CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED
                                                                : CAPSTAN__V1__TASK_STATE__TASK_STATE_FAILED);
    }
    worker__poll_slot_freed_locked(worker);
    worker__watch_look_locked(worker);
    return garbage;
}

/*
 * Whether the lease of an exclusive attempt was over before it failed: then that failure is the end of the lease, which
 * nobody has noticed yet because this process did not run, and says nothing about the task.
 */
static bool is_overdue_locked(const struct attempt *attempt)
{
    return !attempt->outcome.is_success && heap_has(&attempt->lease) && attempt->lease.key <= clock_mono_ms();
}

static void *slot_main(void *context)
{
    struct worker *worker = context;
    pthread_mutex_lock(&worker->mutex);
    worker->is_waking = false;
    for (struct attempt *attempt; (attempt = take_locked(worker)) != NULL;) {
        uint32_t kill_grace_ms = (uint32_t)worker->settings.kill_grace_ms;
        pthread_mutex_unlock(&worker->mutex);
        run(worker, attempt, kill_grace_ms);
        enum stop_reason reason = exec_stop_reason(attempt->stop);
        pthread_mutex_lock(&worker->mutex);
        if (is_overdue_locked(attempt)) {
            worker__attempt_release_locked(worker, attempt, STOP_LEASE_LOST);
            reason = exec_stop_reason(attempt->stop);
        }
        if (!attempt->is_dead && !attempt->outcome.is_success && (reason == STOP_NONE || reason == STOP_TIMEOUT) &&
            may_tell_locked(worker)) {
            /* The line is written without the lock: nobody waits for stderr. The attempt is still ours. */
            pthread_mutex_unlock(&worker->mutex);
            tell_failure(attempt);
            pthread_mutex_lock(&worker->mutex);
        }
        struct attempt *garbage = finish_locked(worker, attempt, reason);
        if (garbage != NULL) {
            pthread_mutex_unlock(&worker->mutex);
            worker__attempt_free(garbage);
            pthread_mutex_lock(&worker->mutex);
        }
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

/* Waits for all executors to come back. */
void worker__slots_close(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->are_slots_closed = true;
    pthread_cond_broadcast(&worker->slot_cond);
    uint32_t n = worker->n_slot_threads; /* nobody makes more */
    pthread_mutex_unlock(&worker->mutex);
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(worker->slot_threads[i], NULL);
    }
}
