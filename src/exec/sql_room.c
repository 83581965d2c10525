/*
 * sql_room.c - where fragments run, beside each other or one alone.
 *
 * All fragments of a worker share the memory of one DuckDB. One that ran out of it beside others is run again when they are
 * done, with nobody beside it: what fails then would fail everywhere. Whoever waits to be alone lets nobody else in first,
 * so that it comes to its turn. Nobody in the room waits for somebody outside: what a fragment reads is finished.
 */
#include <time.h>

#include "exec/sql_internal.h"

#define ROOM_WAIT_MS 100

void sql__room_init(struct sql_room *room)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&room->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&room->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void sql__room_deinit(struct sql_room *room)
{
    pthread_mutex_destroy(&room->mutex);
    pthread_cond_destroy(&room->changed);
}

static bool is_open(const struct sql_room *room, bool is_alone)
{
    return is_alone ? room->n_inside == 0 : room->n_wanting == 0 && !room->is_taken;
}

bool sql__room_enter(struct sql_run *run, bool is_alone)
{
    struct sql_room *room = &run->sql->room;
    pthread_mutex_lock(&room->mutex);
    room->n_wanting += is_alone;
    while (!is_open(room, is_alone) && exec_stop_reason(run->stop) == STOP_NONE) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)ROOM_WAIT_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&room->changed, &room->mutex, &until);
    }
    room->n_wanting -= is_alone;
    bool is_in = is_open(room, is_alone);
    room->n_inside += is_in;
    room->is_taken = room->is_taken || (is_in && is_alone);
    pthread_cond_broadcast(&room->changed); /* one that gave up kept others out */
    pthread_mutex_unlock(&room->mutex);
    return is_in;
}

void sql__room_leave(struct sql_run *run)
{
    struct sql_room *room = &run->sql->room;
    pthread_mutex_lock(&room->mutex);
    room->n_inside--;
    room->is_taken = false; /* with one alone inside, it is that one that leaves */
    pthread_cond_broadcast(&room->changed);
    pthread_mutex_unlock(&room->mutex);
}
