/*
 * Where the leader is, for all threads of a worker together.
 *
 * There is a list of coordinators and one target at a time. An answer of a leader makes the target "found". A refusal
 * that names the leader moves the target there; no answer, or a refusal without a name, moves it to the next of the
 * list. A move counts once, however many threads notice: they say which generation of the target failed them. It ends
 * the calls of the other threads, which would only find out more slowly, and opens new channels, so that nobody sits
 * out a reconnection back-off that belongs to the past.
 *
 * Threads that failed wait for a time of their own that grows, or until somebody has found the leader. They do not wait
 * for a mere move: when no coordinator lives, each one's failure would wake the others at once, round and round.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "worker/worker_internal.h"

#define PAUSE_MS_FIRST 20
#define MISSING_MS 1000 /* a coordinator that starts together with the worker is not missing */
#define POLL_ANSWER_BYTES_MAX ((size_t)256 * 1024 * 1024) /* a thousand assignments may be large */

static void set_target(struct leader *leader, const char *address)
{
    snprintf(leader->target, sizeof leader->target, "%s", address);
    leader->generation++;
    leader->is_found = false;
    LIST_EACH(at, &leader->calls) {
        rpc_cancel_fire(CONTAINER_OF(at, struct caller, in_calls)->cancel);
    }
}

void worker__leader_init(struct leader *leader, const struct worker_options *options)
{
    pthread_mutex_init(&leader->mutex, NULL);
    worker__cond_init(&leader->changed);
    list_init(&leader->calls);
    leader->n_addresses = options->n_join;
    leader->addresses = mem_calloc(options->n_join, sizeof *leader->addresses);
    for (uint32_t i = 0; i < options->n_join; i++) {
        snprintf(leader->addresses[i], sizeof leader->addresses[i], "%s", options->join[i]);
    }
    leader->channel = (struct rpc_channel_options){
        .token = mem_strdup(options->token), .tls = options->identity != NULL, .identity = options->identity};
    leader->next = leader->n_addresses > 1 ? 1 : 0;
    set_target(leader, leader->addresses[0]);
}

void worker__leader_deinit(struct leader *leader)
{
    for (int i = 0; i < LANE_COUNT; i++) {
        ASSERT(leader->lanes[i].users == 0);
        rpc_channel_close(leader->lanes[i].channel);
    }
    mem_free((void *)leader->channel.token);
    mem_free(leader->addresses);
    pthread_cond_destroy(&leader->changed);
    pthread_mutex_destroy(&leader->mutex);
}

void worker__leader_where(struct leader *leader, char out[ADDRESS_BYTES])
{
    pthread_mutex_lock(&leader->mutex);
    snprintf(out, ADDRESS_BYTES, "%s", leader->target);
    pthread_mutex_unlock(&leader->mutex);
}

void worker__leader_close_lane(struct leader *leader, enum lane lane)
{
    pthread_mutex_lock(&leader->mutex);
    leader->lanes[lane].is_closed = true;
    LIST_EACH(at, &leader->calls) {
        struct caller *caller = CONTAINER_OF(at, struct caller, in_calls);
        if (caller->lane == lane) {
            rpc_cancel_fire(caller->cancel);
        }
    }
    pthread_cond_broadcast(&leader->changed);
    pthread_mutex_unlock(&leader->mutex);
}

/* Somebody who should know says that the leader is elsewhere. */
void worker__leader_hint(struct leader *leader, const char *address)
{
    pthread_mutex_lock(&leader->mutex);
    if (address[0] != '\0' && strcmp(leader->target, address) != 0) {
        set_target(leader, address);
    }
    pthread_mutex_unlock(&leader->mutex);
}

void worker__caller_init(struct caller *caller, enum lane lane)
{
    uint64_t seed;
    random_bytes(&seed, sizeof seed);
    *caller = (struct caller){.lane = lane, .cancel = rpc_cancel_new()};
    prng_init(&caller->prng, seed);
}

void worker__caller_deinit(struct caller *caller)
{
    rpc_cancel_free(caller->cancel);
}

/* ---- one call ---- */

/* The channel of the caller's lane to the present target. Calls of the lane to an older one have been cancelled. */
static enum err enter(struct leader *leader, struct caller *caller, struct rpc_channel **out_channel,
                      uint64_t *out_generation, struct error *e)
{
    struct lane_state *lane = &leader->lanes[caller->lane];
    enum err err = ERR_OK;
    pthread_mutex_lock(&leader->mutex);
    while (!lane->is_closed && lane->users > 0 && lane->generation != leader->generation) {
        pthread_cond_wait(&leader->changed, &leader->mutex);
    }
    if (lane->is_closed) {
        err = error_set(e, ERR_CANCELED, "the worker is ending");
        goto out;
    }
    if (lane->channel == NULL || lane->generation != leader->generation) {
        struct rpc_channel_options options = leader->channel;
        options.target = leader->target;
        options.message_bytes_max = caller->lane == LANE_POLL ? POLL_ANSWER_BYTES_MAX : 0;
        rpc_channel_close(lane->channel);
        lane->channel = NULL;
        lane->generation = leader->generation;
        err = rpc_channel_open(&options, &lane->channel, e);
        if (err != ERR_OK) {
            goto out;
        }
    }
    lane->users++;
    rpc_cancel_reset(caller->cancel);
    list_push_back(&leader->calls, &caller->in_calls);
    *out_channel = lane->channel;
out:
    *out_generation = leader->generation;
    pthread_mutex_unlock(&leader->mutex);
    return err;
}

/* True if the call was ended from here: the target has moved meanwhile, or the lane is closed. */
static bool leave(struct leader *leader, struct caller *caller)
{
    struct lane_state *lane = &leader->lanes[caller->lane];
    pthread_mutex_lock(&leader->mutex);
    bool is_over = lane->is_closed || lane->generation != leader->generation;
    list_remove(&caller->in_calls);
    lane->users--;
    if (lane->users == 0 && lane->generation != leader->generation) {
        pthread_cond_broadcast(&leader->changed);
    }
    pthread_mutex_unlock(&leader->mutex);
    return is_over;
}

static void found(struct leader *leader, uint64_t generation)
{
    pthread_mutex_lock(&leader->mutex);
    char at[ADDRESS_BYTES];
    bool is_news = generation == leader->generation && !leader->is_found;
    if (is_news) {
        leader->is_found = true;
        leader->misses = 0;
        leader->is_missing_told = false;
        snprintf(at, sizeof at, "%s", leader->target);
        pthread_cond_broadcast(&leader->changed);
    }
    pthread_mutex_unlock(&leader->mutex);
    if (is_news) {
        log_info("leader", "found at %s", at);
    }
}

/* Whether this one completes the first round over all addresses that is worth a word. Called with the lock. */
static bool note_miss(struct leader *leader)
{
    int64_t now_ms = clock_mono_ms();
    leader->missing_ms = leader->misses == 0 ? now_ms : leader->missing_ms;
    leader->misses += leader->misses < UINT32_MAX ? 1 : 0;
    bool is_news =
        !leader->is_missing_told && leader->misses >= leader->n_addresses && now_ms - leader->missing_ms >= MISSING_MS;
    leader->is_missing_told = leader->is_missing_told || is_news;
    return is_news;
}

/* The target of that generation is no leader, or does not answer. `hint` says who is; "" if nobody said. */
static void failed(struct leader *leader, uint64_t generation, const char *hint, const char *why)
{
    char at[ADDRESS_BYTES];
    pthread_mutex_lock(&leader->mutex);
    bool is_news = generation == leader->generation;
    bool was_found = leader->is_found;
    bool is_round_over = false;
    if (is_news) {
        is_round_over = note_miss(leader);
        snprintf(at, sizeof at, "%s", leader->target);
        if (hint[0] != '\0' && strcmp(hint, leader->target) != 0) {
            set_target(leader, hint);
        } else {
            uint32_t next = leader->next;
            leader->next = (next + 1) % leader->n_addresses;
            set_target(leader, leader->addresses[next]);
        }
    }
    pthread_mutex_unlock(&leader->mutex);
    if (is_news) {
        log_line(was_found ? LOG_WARN : LOG_DEBUG, "leader", "%s %s: %s", was_found ? "lost at" : "not at", at, why);
    }
    if (is_round_over) {
        /* Once, however long it goes on; the line that it was found ends it. */
        log_warn("leader", "no coordinator that leads at any of %u addresses, the last of them %s: %s; looking on",
                 leader->n_addresses, at, why);
    }
}

enum err worker__caller_call(struct leader *leader, struct caller *caller, const struct call *call, struct buf *answer,
                             struct error *e)
{
    struct rpc_channel *channel = NULL;
    struct rpc_trailer trailer = {0};
    uint64_t generation = 0;
    enum err err = enter(leader, caller, &channel, &generation, e);
    if (err == ERR_OK) {
        struct rpc_request request = {.path = call->path,
                                      .bytes = call->request->data,
                                      .n = call->request->n,
                                      .timeout_ms = call->timeout_ms,
                                      .cancel = caller->cancel};
        err = rpc_unary(channel, &request, answer, &trailer, e);
        bool is_over = leave(leader, caller);
        if (err == ERR_CANCELED && !is_over) {
            err = ERR_UNAVAILABLE; /* by a coordinator that is going down */
        }
    } else if (err == ERR_INVALID) {
        err = ERR_UNAVAILABLE; /* an address that is none, perhaps from a hint: try the next */
    }
    if (err == ERR_UNAVAILABLE || err == ERR_DEADLINE || err == ERR_PRECONDITION) {
        failed(leader, generation, err == ERR_PRECONDITION ? trailer.leader : "", e->message);
        return e->code = ERR_UNAVAILABLE;
    }
    if (err == ERR_OK) {
        caller->failures = 0;
        found(leader, generation);
    }
    return err;
}

void worker__caller_pause(struct leader *leader, struct caller *caller, int64_t ms_max)
{
    uint32_t round = caller->failures / leader->n_addresses; /* the first tries of all addresses follow quickly */
    int64_t ms = PAUSE_MS_FIRST << (round < 10 ? round : 10);
    ms = ms < ms_max ? ms : ms_max;
    ms = ms / 2 + (int64_t)prng_below(&caller->prng, (uint64_t)ms / 2 + 1);
    caller->failures++;
    int64_t until_us = clock_mono_us() + ms * 1000;
    pthread_mutex_lock(&leader->mutex);
    bool was_found = leader->is_found;
    while (!leader->lanes[caller->lane].is_closed && clock_mono_us() < until_us && (was_found || !leader->is_found)) {
        worker__wait_until(&leader->changed, &leader->mutex, until_us);
    }
    pthread_mutex_unlock(&leader->mutex);
}
