#include "exec/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

struct watchdog {
    pthread_mutex_t mutex; /* guards everything here */
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread;
    bool is_ending;
    struct heap limits;
    int64_t wakes_us; /* when the thread will look again; INT64_MAX: when it is told to */
};

struct watchdog *watchdog_new(void)
{
    struct watchdog *watchdog = mem_calloc(1, sizeof(*watchdog));
    watchdog->wakes_us = INT64_MAX;
    pthread_mutex_init(&watchdog->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watchdog->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return watchdog;
}

void watchdog_free(struct watchdog *watchdog)
{
    if (watchdog == NULL) {
        return;
    }
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->is_ending = true;
    bool has_thread = watchdog->has_thread;
    pthread_cond_signal(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->mutex);
    if (has_thread) {
        pthread_join(watchdog->thread, NULL);
    }
    ASSERT(heap_min(&watchdog->limits) == NULL);
    heap_deinit(&watchdog->limits);
    pthread_cond_destroy(&watchdog->changed);
    pthread_mutex_destroy(&watchdog->mutex);
    mem_free(watchdog);
}

/* Fires what is due. Returns when the next one is. */
static int64_t fire_due(struct watchdog *watchdog, int64_t now_us)
{
    struct heap_node *first = NULL;
    while ((first = heap_min(&watchdog->limits)) != NULL && first->key <= now_us) {
        heap_remove(&watchdog->limits, first);
        exec_stop_fire(CONTAINER_OF(first, struct watchdog_limit, node)->stop, STOP_TIMEOUT);
    }
    return first == NULL ? INT64_MAX : first->key;
}

static void *watch(void *argument)
{
    struct watchdog *watchdog = argument;
    pthread_mutex_lock(&watchdog->mutex);
    while (!watchdog->is_ending) {
        watchdog->wakes_us = fire_due(watchdog, clock_mono_us());
        if (watchdog->wakes_us == INT64_MAX) {
            pthread_cond_wait(&watchdog->changed, &watchdog->mutex);
        } else {
            struct timespec until = {.tv_sec = (time_t)(watchdog->wakes_us / 1000000),
                                     .tv_nsec = (long)(watchdog->wakes_us % 1000000) * 1000};
            (void)pthread_cond_timedwait(&watchdog->changed, &watchdog->mutex, &until);
        }
    }
    pthread_mutex_unlock(&watchdog->mutex);
    return NULL;
}

/* Signals are for the threads of the program: this one takes none. */
static bool start_thread(struct watchdog *watchdog)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    watchdog->has_thread = pthread_create(&watchdog->thread, NULL, watch, watchdog) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return watchdog->has_thread;
}

enum err watchdog_arm(struct watchdog *watchdog, struct watchdog_limit *limit, struct exec_stop *stop, uint32_t ms)
{
    enum err err = ERR_OK;
    *limit = (struct watchdog_limit){.node.key = clock_mono_us() + (int64_t)ms * 1000, .stop = stop};
    pthread_mutex_lock(&watchdog->mutex);
    if (!watchdog->has_thread && !start_thread(watchdog)) {
        err = ERR_EXHAUSTED;
    } else {
        heap_push(&watchdog->limits, &limit->node);
        if (limit->node.key < watchdog->wakes_us) {
            watchdog->wakes_us = limit->node.key;
            pthread_cond_signal(&watchdog->changed);
        }
    }
    pthread_mutex_unlock(&watchdog->mutex);
    return err;
}

void watchdog_disarm(struct watchdog *watchdog, struct watchdog_limit *limit)
{
    pthread_mutex_lock(&watchdog->mutex);
    heap_remove(&watchdog->limits, &limit->node);
    pthread_mutex_unlock(&watchdog->mutex);
}
