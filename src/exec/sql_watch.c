/*
 * sql_watch.c - one thread that interrupts runs which are to stop, and tells how far the others are.
 *
 * It looks at all runs a few dozen times in a second, and sleeps while there are none. So a run costs no thread and no
 * descriptor; and a stop is passed on again and again until the run is over, because an interrupt that comes between two
 * statements is lost.
 */
#include <signal.h>
#include <time.h>

#include "exec/sql_internal.h"

#define TICK_MS 25
#define PROGRESS_TICKS 8 /* between two reports of a run */

static void interrupt(struct sql_run *run)
{
    for (uint32_t i = 0; i < SQL_CONNECTIONS_MAX; i++) {
        if (run->connections[i] != NULL) {
            duck_interrupt(run->connections[i]);
        }
    }
    if (run->planner != NULL) {
        planner_interrupt(run->planner);
    }
    for (uint32_t i = 0; i < run->n_fetches; i++) {
        exchange_fetch_cancel(run->fetches[i]);
    }
}

/* DuckDB knows how far it is with files; of streams it knows nothing, but we do. */
static double fraction_of(struct sql_run *run)
{
    double percent = run->connections[0] != NULL ? duck_progress(run->connections[0]) : -1;
    double fraction = percent / 100;
    uint64_t expected = atomic_load(&run->rows_expected);
    if (expected > 0) {
        fraction = (double)atomic_load(&run->rows_in) / (double)expected;
    }
    return fraction < 0 ? 0 : (fraction > 1 ? 1 : fraction);
}

static void look_at(struct sql_run *run)
{
    if (exec_stop_reason(run->stop) != STOP_NONE) {
        interrupt(run);
    } else if (++run->n_ticks % PROGRESS_TICKS == 0 && run->task->on_progress != NULL) {
        run->task->on_progress(run->task->progress_context, fraction_of(run), atomic_load(&run->rows),
                               atomic_load(&run->bytes));
    }
}

static void *watch_runs(void *argument)
{
    struct sql_watch *watch = argument;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->is_ending) {
        if (list_is_empty(&watch->runs)) {
            pthread_cond_wait(&watch->changed, &watch->mutex);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)TICK_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (!watch->is_ending && pthread_cond_timedwait(&watch->changed, &watch->mutex, &until) == 0) {
        }
        LIST_EACH(node, &watch->runs) {
            look_at(CONTAINER_OF(node, struct sql_run, link));
        }
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

/* Signals are for the threads of the program: this one takes none. */
static bool start_thread(struct sql_watch *watch)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    watch->has_thread = pthread_create(&watch->thread, NULL, watch_runs, watch) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return watch->has_thread;
}

void sql__watch_init(struct sql_watch *watch)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    list_init(&watch->runs);
}

void sql__watch_deinit(struct sql_watch *watch)
{
    pthread_mutex_lock(&watch->mutex);
    watch->is_ending = true;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->mutex);
    if (watch->has_thread) {
        pthread_join(watch->thread, NULL);
    }
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->mutex);
}

enum err sql__run_begin(struct sql_run *run, struct error *e)
{
    struct sql_watch *watch = &run->sql->watch;
    enum err err = ERR_OK;
    pthread_mutex_lock(&watch->mutex);
    if (!watch->has_thread && !start_thread(watch)) {
        err = error_set(e, ERR_EXHAUSTED, "cannot start a thread that watches over queries");
    } else {
        if (list_is_empty(&watch->runs)) {
            pthread_cond_signal(&watch->changed);
        }
        list_push_back(&watch->runs, &run->link);
    }
    pthread_mutex_unlock(&watch->mutex);
    return err;
}

void sql__run_end(struct sql_run *run)
{
    struct sql_watch *watch = &run->sql->watch;
    pthread_mutex_lock(&watch->mutex);
    list_remove(&run->link);
    pthread_mutex_unlock(&watch->mutex);
}

void sql__run_set_connection(struct sql_run *run, uint32_t i, struct duck_connection *connection)
{
    pthread_mutex_lock(&run->sql->watch.mutex);
    run->connections[i] = connection;
    pthread_mutex_unlock(&run->sql->watch.mutex);
}

void sql__run_set_planner(struct sql_run *run, struct planner *planner)
{
    pthread_mutex_lock(&run->sql->watch.mutex);
    run->planner = planner;
    pthread_mutex_unlock(&run->sql->watch.mutex);
}

void sql__run_set_fetches(struct sql_run *run, struct exchange_fetch **fetches, uint32_t n)
{
    pthread_mutex_lock(&run->sql->watch.mutex);
    run->fetches = fetches;
    run->n_fetches = n;
    pthread_mutex_unlock(&run->sql->watch.mutex);
}
