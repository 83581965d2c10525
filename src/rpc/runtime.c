/*
 * runtime.c - gRPC's life inside this process.
 *
 * Libraries do not log, so gRPC's log goes nowhere, unless GRPC_VERBOSITY asks for it; only what it says before it aborts
 * is printed. Threads that it starts get no signals: those belong to the program.
 *
 * gRPC moves a connection forward only while some thread waits in one of its queues. A server's pollers always do; a
 * process that is only a client does so during a call. Between calls the ticker looks in ten times a second, so that
 * pings are answered, a closed connection is noticed, and a new one is made.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <grpc/support/log.h>

#include "rpc/rpc_internal.h"

#define TICK_MS 100
#define POLLS_PER_TICK 16 /* one poll handles one event */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t n_users;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_users;
    bool stop;
    pthread_t thread;
} ticker = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void log_only_assertions(gpr_log_func_args *args)
{
    if (strstr(args->message, "assertion failed") != NULL) {
        fprintf(stderr, "gRPC: %s:%d: %s\n", args->file, args->line, args->message);
    }
}

static sigset_t block_signals(void)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    return before;
}

static void restore_signals(sigset_t before)
{
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void rpc__runtime_acquire(void)
{
    pthread_mutex_lock(&lock);
    if (n_users++ == 0) {
        if (getenv("GRPC_VERBOSITY") == NULL) {
            gpr_set_log_function(log_only_assertions);
            gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
        }
        sigset_t before = block_signals();
        grpc_init();
        restore_signals(before);
    }
    pthread_mutex_unlock(&lock);
}

void rpc__runtime_release(void)
{
    pthread_mutex_lock(&lock);
    ASSERT(n_users > 0);
    if (--n_users == 0) {
        grpc_shutdown_blocking();
    }
    pthread_mutex_unlock(&lock);
}

void rpc__thread_start(pthread_t *out, void *(*run)(void *context), void *context)
{
    sigset_t before = block_signals();
    int failed = pthread_create(out, NULL, run, context);
    restore_signals(before);
    ASSERT(failed == 0);
}

static void wait_for_tick(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    while (!ticker.stop && pthread_cond_timedwait(&ticker.changed, &ticker.lock, &until) != ETIMEDOUT) {
    }
}

static void *tick(void *context)
{
    grpc_completion_queue *cq = context;
    pthread_mutex_lock(&ticker.lock);
    while (!ticker.stop) {
        wait_for_tick();
        pthread_mutex_unlock(&ticker.lock);
        for (int i = 0; i < POLLS_PER_TICK; i++) {
            grpc_completion_queue_next(cq, gpr_inf_past(GPR_CLOCK_MONOTONIC), NULL);
        }
        pthread_mutex_lock(&ticker.lock);
    }
    pthread_mutex_unlock(&ticker.lock);
    grpc_completion_queue_shutdown(cq);
    while (grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type != GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(cq);
    return NULL;
}

/* Starting and stopping happens under the runtime's lock, so that a new ticker never meets an old one. */
void rpc__ticker_acquire(void)
{
    pthread_mutex_lock(&lock);
    if (ticker.n_users++ == 0) {
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&ticker.changed, &attributes);
        pthread_condattr_destroy(&attributes);
        ticker.stop = false;
        rpc__thread_start(&ticker.thread, tick, grpc_completion_queue_create_for_next(NULL));
    }
    pthread_mutex_unlock(&lock);
}

void rpc__ticker_release(void)
{
    pthread_mutex_lock(&lock);
    ASSERT(ticker.n_users > 0);
    if (--ticker.n_users == 0) {
        pthread_mutex_lock(&ticker.lock);
        ticker.stop = true;
        pthread_cond_signal(&ticker.changed);
        pthread_mutex_unlock(&ticker.lock);
        pthread_join(ticker.thread, NULL);
        pthread_cond_destroy(&ticker.changed);
    }
    pthread_mutex_unlock(&lock);
}
