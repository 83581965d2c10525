/* Starting and stopping, and what the threads use. Those are in loop.c, writer.c, keeper.c and finder.c. */
#include "coordinator/coordinator.h"

#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "coordinator/coordinator_internal.h"

struct request *request_new(answer_fn *answer, void *context)
{
    struct request *request = mem_calloc(1, sizeof *request);
    request->answer = answer;
    request->context = context;
    return request;
}

void request_free(struct request *request)
{
    if (request != NULL) {
        arena_deinit(&request->arena);
        mem_free(request);
    }
}

void coordinator__seed(uint64_t seed[2])
{
    random_bytes(seed, 2 * sizeof *seed);
}

void coordinator__wait(struct coordinator *coordinator, pthread_cond_t *condition, int64_t until_mono_ms)
{
    struct timespec until = {.tv_sec = (time_t)(until_mono_ms / 1000), .tv_nsec = (until_mono_ms % 1000) * 1000000};
    (void)pthread_cond_timedwait(condition, &coordinator->lock, &until);
}

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    error |= pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    error |= pthread_cond_init(condition, &attributes);
    error |= pthread_condattr_destroy(&attributes);
    ASSERT(error == 0);
}

enum err coordinator_start(const struct coordinator_options *options, struct coordinator **out_coordinator,
                           struct error *e)
{
    enum err err = core_config_check(&options->config, e);
    if (err != ERR_OK) {
        return err;
    }
    if (options->store_url == NULL || options->node_id == NULL || options->address == NULL) {
        return error_set(e, ERR_INVALID, "a coordinator needs a store, a node id and an address");
    }
    struct coordinator *c = mem_calloc(1, sizeof *c);
    c->options = *options;
    c->options.store_url = mem_strdup(options->store_url);
    c->options.node_id = mem_strdup(options->node_id);
    c->options.address = mem_strdup(options->address);
    c->options.leader_ttl_ms = options->leader_ttl_ms > 0 ? options->leader_ttl_ms : 10000;
    c->options.history_ttl_ms = options->history_ttl_ms > 0 ? options->history_ttl_ms : 604800000;
    list_init(&c->inbound);
    list_init(&c->leaving);
    turns_init(&c->clients);
    int error = pthread_mutex_init(&c->lock, NULL);
    init_condition(&c->loop_wakes);
    init_condition(&c->writer_wakes);
    init_condition(&c->keeper_wakes);
    init_condition(&c->finder_wakes);
    error |= pthread_create(&c->loop, NULL, coordinator__loop, c);
    error |= pthread_create(&c->writer, NULL, coordinator__writer, c);
    error |= pthread_create(&c->keeper, NULL, coordinator__keeper, c);
    error |= pthread_create(&c->finder, NULL, coordinator__finder, c);
    ASSERT(error == 0);
    *out_coordinator = c;
    return ERR_OK;
}

void coordinator_wind_up(struct coordinator *c)
{
    if (c->is_joined) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->is_stopping = true;
    pthread_cond_broadcast(&c->loop_wakes);
    pthread_cond_broadcast(&c->writer_wakes);
    pthread_cond_broadcast(&c->keeper_wakes);
    pthread_cond_broadcast(&c->finder_wakes);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->loop, NULL);
    pthread_join(c->writer, NULL);
    pthread_join(c->keeper, NULL);
    pthread_join(c->finder, NULL);
    c->is_joined = true;
}

void coordinator_stop(struct coordinator *c)
{
    if (c == NULL) {
        return;
    }
    coordinator_wind_up(c);
    search_free(c->asked);
    search_free(c->found);
    turns_deinit(&c->clients);
    pthread_cond_destroy(&c->loop_wakes);
    pthread_cond_destroy(&c->writer_wakes);
    pthread_cond_destroy(&c->keeper_wakes);
    pthread_cond_destroy(&c->finder_wakes);
    pthread_mutex_destroy(&c->lock);
    mem_free((void *)(uintptr_t)c->options.store_url);
    mem_free((void *)(uintptr_t)c->options.node_id);
    mem_free((void *)(uintptr_t)c->options.address);
    mem_free(c);
}

void coordinator__answer(struct request *request, const struct reply *reply, enum err err)
{
    bool is_kept = request->is_kept; /* a kept one may be gone when the answer returns */
    request->answer(request, reply, err);
    if (!is_kept) {
        request_free(request);
    }
}

void coordinator_send(struct coordinator *c, struct request *request)
{
    pthread_mutex_lock(&c->lock);
    bool is_late = c->has_ended;
    if (!is_late) {
        if (request->sender.client == 0) {
            list_push_back(&c->inbound, &request->in_list);
        } else {
            turns_push(&c->clients, request->sender, &request->in_list);
        }
        pthread_cond_signal(&c->loop_wakes);
    }
    pthread_mutex_unlock(&c->lock);
    if (is_late) {
        coordinator__answer(request, NULL, ERR_PRECONDITION);
    }
}

/* ---- answers that have not left ---- */

/* The lock is held. */
static void look_for_oldest(struct coordinator *c)
{
    const struct list *first = list_first(&c->leaving);
    atomic_store(&c->leaving_since_ms, first == NULL ? 0 : CONTAINER_OF(first, struct leaving, in_list)->since_ms);
}

void coordinator_leaves(struct coordinator *c, struct leaving *leaving)
{
    leaving->since_ms = c->landing_since_ms;
    pthread_mutex_lock(&c->lock);
    list_push_back(&c->leaving, &leaving->in_list);
    look_for_oldest(c);
    pthread_mutex_unlock(&c->lock);
}

void coordinator_has_left(struct coordinator *c, struct leaving *leaving)
{
    pthread_mutex_lock(&c->lock);
    list_remove(&leaving->in_list);
    look_for_oldest(c);
    pthread_mutex_unlock(&c->lock);
}

int64_t coordinator__pending_since(struct coordinator *c, int64_t flight_since_ms)
{
    int64_t leaving_since_ms = atomic_load(&c->leaving_since_ms);
    bool is_older = leaving_since_ms != 0 && (flight_since_ms == 0 || leaving_since_ms < flight_since_ms);
    return is_older ? leaving_since_ms : flight_since_ms;
}

struct sight coordinator_sight(struct coordinator *c)
{
    pthread_mutex_lock(&c->lock);
    struct sight sight = {.term = c->stats.elected, .ended = c->ended_landed};
    pthread_mutex_unlock(&c->lock);
    return sight;
}

struct leader_news coordinator_leader(struct coordinator *c)
{
    pthread_mutex_lock(&c->lock);
    struct leader_news news = c->leader;
    pthread_mutex_unlock(&c->lock);
    return news;
}

uint64_t coordinator_epoch(struct coordinator *c)
{
    pthread_mutex_lock(&c->lock);
    bool leads = c->is_wanted && !c->is_lost && !coordinator__is_late(c);
    uint64_t epoch = leads ? c->fence.epoch : 0;
    pthread_mutex_unlock(&c->lock);
    return epoch;
}

int64_t coordinator_now_ms(struct coordinator *c)
{
    pthread_mutex_lock(&c->lock);
    int64_t now_ms = clock_mono_ms() + c->clock_offset_ms;
    pthread_mutex_unlock(&c->lock);
    return now_ms;
}

bool coordinator_gave_up(struct coordinator *c, struct error *e)
{
    pthread_mutex_lock(&c->lock);
    bool gave_up = c->has_given_up;
    if (gave_up && e != NULL) {
        *e = c->gave_up_why;
    }
    pthread_mutex_unlock(&c->lock);
    return gave_up;
}

struct coordinator_stats coordinator_stats(struct coordinator *c)
{
    pthread_mutex_lock(&c->lock);
    struct coordinator_stats stats = c->stats;
    pthread_mutex_unlock(&c->lock);
    return stats;
}
