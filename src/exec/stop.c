/*
 * stop.c - the right to stop one run.
 *
 * A worker makes one for every task, tens of thousands in a second, and nearly all are never fired nor waited for. So
 * making one costs one allocation, and asking whether it is fired one atomic load; the descriptor is made when somebody
 * asks for it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/executor.h"

struct exec_stop {
    atomic_int reason;
    atomic_bool is_urgent;
    atomic_int_least64_t limit_ms;
    pthread_mutex_t mutex; /* guards `fd`; held while `reason` changes, so that a waiter misses nothing */
    pthread_cond_t fired;
    int fd; /* -1: nobody has asked for it */
};

struct exec_stop *exec_stop_new(void)
{
    struct exec_stop *stop = mem_alloc(sizeof(*stop));
    atomic_init(&stop->reason, STOP_NONE);
    atomic_init(&stop->is_urgent, false);
    atomic_init(&stop->limit_ms, 0);
    pthread_mutex_init(&stop->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&stop->fired, &monotonic);
    pthread_condattr_destroy(&monotonic);
    stop->fd = -1;
    return stop;
}

void exec_stop_free(struct exec_stop *stop)
{
    if (stop == NULL) {
        return;
    }
    if (stop->fd >= 0) {
        close(stop->fd);
    }
    pthread_cond_destroy(&stop->fired);
    pthread_mutex_destroy(&stop->mutex);
    mem_free(stop);
}

/* With the mutex held. Adding 1 to a counter that nobody reads cannot fail. */
static void make_readable(const struct exec_stop *stop)
{
    uint64_t one = 1;
    ssize_t n = write(stop->fd, &one, sizeof(one));
    ASSERT(n == sizeof(one));
}

void exec_stop_fire(struct exec_stop *stop, enum stop_reason reason)
{
    ASSERT(reason != STOP_NONE);
    pthread_mutex_lock(&stop->mutex);
    if (reason != STOP_TIMEOUT) {
        atomic_store(&stop->is_urgent, true);
    }
    if (atomic_load(&stop->reason) == STOP_NONE) {
        atomic_store(&stop->reason, (int)reason);
        if (stop->fd >= 0) {
            make_readable(stop);
        }
        pthread_cond_broadcast(&stop->fired);
    }
    pthread_mutex_unlock(&stop->mutex);
}

enum stop_reason exec_stop_reason(const struct exec_stop *stop)
{
    return (enum stop_reason)atomic_load(&stop->reason);
}

bool exec_stop_is_urgent(const struct exec_stop *stop)
{
    return atomic_load(&stop->is_urgent);
}

void exec_stop_set_limit(struct exec_stop *stop, int64_t limit_ms)
{
    atomic_store(&stop->limit_ms, limit_ms);
}

int64_t exec_stop_limit(const struct exec_stop *stop)
{
    return atomic_load(&stop->limit_ms);
}

int exec_stop_fd(struct exec_stop *stop)
{
    pthread_mutex_lock(&stop->mutex);
    if (stop->fd < 0) {
        stop->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (stop->fd >= 0 && atomic_load(&stop->reason) != STOP_NONE) {
            make_readable(stop);
        }
    }
    int fd = stop->fd;
    pthread_mutex_unlock(&stop->mutex);
    return fd;
}

bool exec_stop_wait(struct exec_stop *stop, int64_t ms)
{
    if (exec_stop_reason(stop) != STOP_NONE || ms <= 0) {
        return exec_stop_reason(stop) != STOP_NONE;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int status = 0;
    pthread_mutex_lock(&stop->mutex);
    while (atomic_load(&stop->reason) == STOP_NONE && status == 0) {
        status = pthread_cond_timedwait(&stop->fired, &stop->mutex, &until);
    }
    pthread_mutex_unlock(&stop->mutex);
    return exec_stop_reason(stop) != STOP_NONE;
}
