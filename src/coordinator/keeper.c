/*
 * The keeper: renews the leadership when the writer cannot, because it is in the middle of a commit.
 *
 * A batch with a hundred thousand tasks takes a database seconds, and the writer's connection with it. Without somebody
 * else the leadership would run out meanwhile, and with it the batch that was nearly done. The keeper has a connection of
 * its own and looks only when the writer is late, so on an ordinary day it does nothing at all. A process that is frozen
 * is frozen with its keeper.
 *
 * It does not do so for ever: a commit that hangs must end the term, so that clients learn of it. The leadership outlives the
 * writer's last renewal by KEPT_TTLS at most.
 *
 * On SQLite the lock on the file is the leadership: it cannot run out, and a second connection could not write during a
 * commit.
 */
#include <string.h>

#include "base/clock.h"
#include "coordinator/coordinator_internal.h"

#define RETRY_MS 200
#define KEPT_TTLS 2

void coordinator__renewed(struct coordinator *c, int64_t asked_mono_ms)
{
    if (asked_mono_ms > c->renewed_mono_ms) {
        c->renewed_mono_ms = asked_mono_ms;
    }
    int64_t ttl_ms = c->options.leader_ttl_ms;
    c->deadline_mono_ms = c->renewed_mono_ms + ttl_ms - ttl_ms / 10;
}

bool coordinator__is_file(const struct coordinator *c)
{
    return strncmp(c->options.store_url, "sqlite:", 7) == 0;
}

bool coordinator__is_late(const struct coordinator *c)
{
    return !coordinator__is_file(c) && clock_mono_ms() >= c->deadline_mono_ms;
}

/* When the writer, which renews after a third of the time, is late. The lock is held. */
static int64_t keep_at_mono_ms(const struct coordinator *c)
{
    return c->renewed_mono_ms + c->options.leader_ttl_ms / 2;
}

/* Whether there is a leadership that may be kept at the time when that would be due. The lock is held. */
static bool may_keep(const struct coordinator *c)
{
    int64_t ttl_ms = c->options.leader_ttl_ms;
    return c->is_wanted && !c->is_lost &&
           keep_at_mono_ms(c) < c->writer_renewed_mono_ms + KEPT_TTLS * ttl_ms - ttl_ms / 2;
}

/* Waits until the writer is late. False if the coordinator stops. */
static bool await_delay(struct coordinator *c, struct fence *out)
{
    pthread_mutex_lock(&c->lock);
    while (!c->is_stopping && !(may_keep(c) && clock_mono_ms() >= keep_at_mono_ms(c))) {
        coordinator__wait(c, &c->keeper_wakes, may_keep(c) ? keep_at_mono_ms(c) : clock_mono_ms() + RETRY_MS);
    }
    *out = c->fence;
    bool goes_on = !c->is_stopping;
    pthread_mutex_unlock(&c->lock);
    return goes_on;
}

static void nap(struct coordinator *c)
{
    int64_t until_mono_ms = clock_mono_ms() + RETRY_MS;
    pthread_mutex_lock(&c->lock);
    while (!c->is_stopping && clock_mono_ms() < until_mono_ms) {
        coordinator__wait(c, &c->keeper_wakes, until_mono_ms);
    }
    pthread_mutex_unlock(&c->lock);
}

static bool renew(struct coordinator *c, struct store *store, const struct fence *fence)
{
    int64_t now_ms;
    int64_t asked_mono_ms = clock_mono_ms();
    if (store_renew(store, fence, c->options.leader_ttl_ms, &now_ms, NULL) != ERR_OK) {
        return false; /* if it was lost, the writer finds out */
    }
    pthread_mutex_lock(&c->lock);
    if (c->fence.epoch == fence->epoch && c->is_wanted) {
        coordinator__renewed(c, asked_mono_ms);
    }
    pthread_mutex_unlock(&c->lock);
    return true;
}

void *coordinator__keeper(void *coordinator)
{
    struct coordinator *c = coordinator;
    struct store *store = NULL;
    struct fence fence;
    while (!coordinator__is_file(c) && await_delay(c, &fence)) {
        if (store == NULL && store_open(c->options.store_url, &store, NULL) != ERR_OK) {
            store = NULL;
        }
        if (store == NULL || !renew(c, store, &fence)) {
            store_close(store);
            store = NULL;
            nap(c);
        }
    }
    store_close(store);
    return NULL;
}
