/*
 * Streams of events.
 *
 * A stream reads pages of events from the store, through a clerk, and sends them one by one. When there are no more and
 * the client wants to follow, it rests until the loop tells that further events of its job (or any) are durable. So it
 * never holds more than one page, however slow its reader is, and it can begin anywhere in the past.
 *
 * A stream is in one of three places: resting (in no thread's hands), with a clerk, or with the transport. Whoever has it
 * moves it on; others only leave marks (is_stale: there is more to read; is_over: end it, and e: why). The marks are
 * guarded by the lock, everything else belongs to whoever has the stream.
 */
#include <pthread.h>
#include <string.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/siphash.h"
#include "coordinator/feed.h"
#include "coordinator/service_internal.h"
#include "wire/reply.h"

#define EVENTS_PER_PAGE 500
#define STOPS "this coordinator stops"

/* The streams of one job; of all jobs if it has no id. */
struct topic {
    struct list streams;
    char job_id[];
};

struct stream {
    struct list in_topic;
    struct topic *topic;
    struct watch *watch;
    struct exchange *exchange;
    struct arena arena;
    struct page page;
    uint32_t at; /* in the page */
    uint64_t after_seq;
    uint64_t resync_seq; /* not 0: tell the client that events up to here are gone */
    uint32_t last;       /* not 0: begin so many before the newest one */
    bool follows;
    bool is_known; /* its job exists, or it wants all */
    bool is_resting;
    bool is_stale;
    bool is_over;
    struct error e; /* why it is over; ERR_OK: there is no more to tell */
};

struct watch {
    struct service *service;
    pthread_mutex_t lock;
    struct siphash_key secret;
    struct map topics;
    struct topic *all; /* of those that want everything */
    bool is_closed;
};

static bool is_topic(const void *value, const void *key)
{
    const struct topic *topic = value;
    return strcmp(topic->job_id, key) == 0;
}

static uint64_t hash_of(const struct watch *watch, const char *job_id)
{
    return siphash(&watch->secret, job_id, strlen(job_id));
}

static struct topic *topic_new(const char *job_id)
{
    size_t n = strlen(job_id) + 1;
    struct topic *topic = mem_alloc(sizeof *topic + n);
    memcpy(topic->job_id, job_id, n);
    list_init(&topic->streams);
    return topic;
}

struct watch *watch_new(struct service *service)
{
    struct watch *watch = mem_calloc(1, sizeof *watch);
    int error = pthread_mutex_init(&watch->lock, NULL);
    ASSERT(error == 0);
    watch->service = service;
    watch->all = topic_new("");
    random_bytes(&watch->secret, sizeof watch->secret);
    return watch;
}

void watch_free(struct watch *watch)
{
    if (watch != NULL) {
        ASSERT(watch->topics.count == 0 && list_is_empty(&watch->all->streams));
        map_deinit(&watch->topics);
        mem_free(watch->all);
        pthread_mutex_destroy(&watch->lock);
        mem_free(watch);
    }
}

/* ---- the way of a stream ---- */

static void read_page(struct clerk *clerk, void *context);

static void read_soon(struct stream *stream)
{
    office_send(stream->watch->service->readers, stream->exchange->request->sender, read_page, stream);
}

/* The lock is held. */
static void join_topic(struct watch *watch, struct stream *stream, const char *job_id)
{
    struct topic *topic =
        job_id[0] == '\0' ? watch->all : map_get(&watch->topics, hash_of(watch, job_id), is_topic, job_id);
    if (topic == NULL) {
        topic = topic_new(job_id);
        map_put(&watch->topics, hash_of(watch, job_id), topic);
    }
    stream->topic = topic;
    list_push_back(&topic->streams, &stream->in_topic);
}

/* The lock is held. */
static void leave_topic(struct watch *watch, struct stream *stream)
{
    struct topic *topic = stream->topic;
    list_remove(&stream->in_topic);
    if (topic != watch->all && list_is_empty(&topic->streams)) {
        mem_free(map_take_value(&watch->topics, hash_of(watch, topic->job_id), topic));
    }
}

/* Ends the call and the stream. Nobody else has it, and the lock is not held. */
static void finish(struct stream *stream)
{
    struct watch *watch = stream->watch;
    struct exchange *exchange = stream->exchange;
    pthread_mutex_lock(&watch->lock);
    leave_topic(watch, stream);
    stream->is_over = true; /* what client_gone may have to say comes too late */
    pthread_mutex_unlock(&watch->lock);
    if (stream->e.code != ERR_OK) {
        exchange_fail(exchange, &stream->e); /* waits for on_gone, which may be looking at the stream */
    } else {
        exchange_end(exchange);
    }
    arena_deinit(&stream->arena);
    mem_free(stream);
}

/* Marks the stream as over, unless it is. The lock is held. */
static void mark_over(struct stream *stream, const struct error *e)
{
    if (!stream->is_over) {
        stream->is_over = true;
        stream->e = *e;
    }
}

/* Whoever has the stream ends it. */
static void fail(struct stream *stream, const struct error *e)
{
    pthread_mutex_lock(&stream->watch->lock);
    mark_over(stream, e);
    pthread_mutex_unlock(&stream->watch->lock);
    finish(stream);
}

static void sent(void *context, struct rpc_call *call, bool ok);

static void send_event(struct stream *stream, struct pb_event *event)
{
    exchange_stream(stream->exchange, event, sent, stream);
}

/* Whoever has the stream sends the next event, or has the next page read. */
static void move_on(struct stream *stream)
{
    struct error e = {0};
    bool may_go_on = exchange_look_at_token(stream->exchange, &e) == ERR_OK;
    pthread_mutex_lock(&stream->watch->lock);
    if (!may_go_on) {
        mark_over(stream, &e);
    }
    bool is_over = stream->is_over;
    pthread_mutex_unlock(&stream->watch->lock);
    if (is_over) {
        finish(stream);
    } else if (stream->resync_seq != 0) {
        struct pb_event *event = wire_new(PB_EVENT, &stream->arena);
        event->seq = stream->resync_seq;
        event->resync = true;
        stream->resync_seq = 0;
        send_event(stream, event);
    } else if (stream->at < stream->page.n_rows) {
        const struct row_event *row = (const struct row_event *)(const void *)stream->page.rows[stream->at++];
        stream->after_seq = row->seq;
        send_event(stream, wire_event_row(row, &stream->arena));
    } else {
        read_soon(stream);
    }
}

static void sent(void *context, struct rpc_call *call, bool ok)
{
    struct stream *stream = context;
    UNUSED(call);
    if (ok) {
        move_on(stream);
        return;
    }
    struct error e = {0};
    error_set(&e, ERR_CANCELED, "the client has gone");
    fail(stream, &e);
}

static bool ends_with_token(const struct stream *stream, struct error *e)
{
    return exchange_look_at_token(stream->exchange, e) != ERR_OK;
}

/* Everything has been sent. True if the stream rests now and is out of the caller's hands. */
static bool rest(struct stream *stream)
{
    struct error e = {0};
    pthread_mutex_lock(&stream->watch->lock);
    bool can_rest = !stream->is_stale && !stream->is_over && !ends_with_token(stream, &e);
    stream->is_stale = false;
    stream->is_resting = can_rest;
    pthread_mutex_unlock(&stream->watch->lock);
    return can_rest;
}

/* A stream of a job that does not exist would never say anything. */
static enum err check_job(struct stream *stream, struct clerk *clerk, struct store *store, struct error *e)
{
    const char *job_id = stream->topic->job_id;
    enum err err = ERR_OK;
    if (!stream->is_known && stream->page.n_rows == 0) {
        err = clerk_note(clerk, store_known_jobs(store, &job_id, 1, &stream->is_known, e));
    } else {
        stream->is_known = true;
    }
    if (err == ERR_OK && !stream->is_known) {
        err = error_set(e, ERR_NOT_FOUND, "there is no job '%s'", job_id);
        error_hint(e, "jobs that ended long ago are removed; capstan jobs lists what there is");
    }
    return err;
}

/* Of a stream that begins near the end: where that is. */
static enum err find_start(struct stream *stream, struct clerk *clerk, struct store *store, struct error *e)
{
    struct store_summary summary = {0};
    enum err err = clerk_note(clerk, store_summarize(store, &summary, e));
    if (err == ERR_OK) {
        uint64_t start = summary.last_event_seq > stream->last ? summary.last_event_seq - stream->last : 0;
        stream->after_seq = start > stream->after_seq ? start : stream->after_seq;
        stream->last = 0;
    }
    return err;
}

static void read_page(struct clerk *clerk, void *context)
{
    struct stream *stream = context;
    struct error e = {0};
    struct event_query query = {.job_id = stream->topic->job_id[0] == '\0' ? NULL : stream->topic->job_id,
                                .after_seq = stream->after_seq,
                                .limit = EVENTS_PER_PAGE};
    struct store *store;
    uint64_t pruned_seq = 0;
    arena_reset(&stream->arena);
    stream->page = (struct page){0};
    stream->at = 0;
    enum err err = clerk_store(clerk, &store, &e);
    if (err == ERR_OK && stream->last > 0) {
        err = find_start(stream, clerk, store, &e);
        query.after_seq = stream->after_seq;
    }
    if (err == ERR_OK) {
        err = clerk_note(clerk, store_events(store, &query, &stream->arena, &stream->page, &pruned_seq, &e));
    }
    if (err == ERR_OK) {
        err = check_job(stream, clerk, store, &e);
    }
    if (err != ERR_OK) {
        fail(stream, &e);
        return;
    }
    if (stream->after_seq > 0 && stream->after_seq < pruned_seq) {
        stream->resync_seq = pruned_seq;
        stream->after_seq = pruned_seq;
    }
    if (stream->page.n_rows == 0 && stream->resync_seq == 0) {
        if (!stream->follows) {
            fail(stream, &e); /* without an error: that was all */
            return;
        }
        exchange_rest(stream->exchange);
        if (rest(stream)) {
            return;
        }
    }
    move_on(stream);
}

/* Marks the stream as over and, if it rests, says that it is the caller's to finish. The lock is held. */
static bool end_soon(struct stream *stream, const struct error *e)
{
    mark_over(stream, e);
    bool is_mine = stream->is_resting;
    stream->is_resting = false;
    return is_mine;
}

static void client_gone(void *context, struct rpc_call *call)
{
    struct stream *stream = context;
    struct error e = {0};
    UNUSED(call);
    error_set(&e, ERR_CANCELED, "the client has gone");
    pthread_mutex_lock(&stream->watch->lock);
    bool is_mine = end_soon(stream, &e);
    pthread_mutex_unlock(&stream->watch->lock);
    if (is_mine) {
        finish(stream);
    }
}

void service__WatchEvents(struct exchange *exchange)
{
    struct watch *watch = exchange->service->watch;
    const struct pb_watch_events_request *message = exchange->message;
    struct error e = {0};
    if (message->rows) {
        if (exchange_needs_leader(exchange)) {
            feed_follow(exchange->service->feed, exchange);
        }
        return;
    }
    struct stream *stream = mem_calloc(1, sizeof *stream);
    stream->watch = watch;
    stream->exchange = exchange;
    stream->after_seq = message->after_seq;
    stream->last = message->last;
    stream->follows = message->follow;
    stream->is_known = message->query_id[0] == '\0';
    pthread_mutex_lock(&watch->lock);
    join_topic(watch, stream, message->query_id);
    bool is_closed = watch->is_closed;
    pthread_mutex_unlock(&watch->lock);
    /* In this order: whoever ends the leadership after this look ends the stream, too. */
    if (is_closed) {
        error_set(&e, ERR_UNAVAILABLE, STOPS);
    } else if (message->follow && exchange->service->observer == NULL &&
               coordinator_epoch(atomic_load(&exchange->service->coordinator)) == 0) {
        error_set(&e, ERR_PRECONDITION, "this coordinator does not lead, so it has nothing to follow");
    }
    if (e.code != ERR_OK) {
        fail(stream, &e);
        return;
    }
    exchange_on_gone(exchange, client_gone, stream);
    read_soon(stream);
}

/* ---- what wakes and what ends them ---- */

/* The lock is held. */
static void wake_topic(struct topic *topic)
{
    LIST_EACH(at, &topic->streams) {
        struct stream *stream = CONTAINER_OF(at, struct stream, in_topic);
        if (stream->is_resting) {
            stream->is_resting = false;
            read_soon(stream);
        } else {
            stream->is_stale = true;
        }
    }
}

void watch_durable(struct watch *watch, const struct row *rows)
{
    const char *last = NULL; /* events of one job often follow each other */
    bool any = false;
    pthread_mutex_lock(&watch->lock);
    bool is_watched = watch->topics.count > 0 || !list_is_empty(&watch->all->streams);
    for (const struct row *row = is_watched ? rows : NULL; row != NULL; row = row->next) {
        const struct row_event *event = (const struct row_event *)(const void *)row;
        if (row->kind != ROW_EVENT) {
            continue;
        }
        any = true;
        if (event->ref.job_id != NULL && event->ref.job_id != last && watch->topics.count > 0) {
            last = event->ref.job_id;
            struct topic *topic = map_get(&watch->topics, hash_of(watch, last), is_topic, last);
            if (topic != NULL) {
                wake_topic(topic);
            }
        }
    }
    if (any) {
        wake_topic(watch->all);
    }
    pthread_mutex_unlock(&watch->lock);
}

void watch_everything(struct watch *watch)
{
    size_t cursor = 0;
    pthread_mutex_lock(&watch->lock);
    wake_topic(watch->all);
    for (struct topic *topic; (topic = map_next(&watch->topics, &cursor)) != NULL;) {
        wake_topic(topic);
    }
    pthread_mutex_unlock(&watch->lock);
}

/* Whether a stream is to be ended, and why. */
typedef bool ends_fn(const struct stream *stream, struct error *e);

/* Collects those of a topic that rest; the others end by themselves. The lock is held. */
static void end_topic(struct topic *topic, ends_fn *ends, struct stream **out, uint32_t max, uint32_t *n)
{
    LIST_EACH(at, &topic->streams) {
        struct stream *stream = CONTAINER_OF(at, struct stream, in_topic);
        struct error e = {0};
        if (*n < max && ends(stream, &e) && end_soon(stream, &e)) {
            out[(*n)++] = stream;
        }
    }
}

/* In small steps, because finishing a stream needs the lock. */
static void end_those(struct watch *watch, ends_fn *ends)
{
    struct stream *found[64];
    uint32_t n;
    do {
        size_t cursor = 0;
        n = 0;
        pthread_mutex_lock(&watch->lock);
        end_topic(watch->all, ends, found, 64, &n);
        for (struct topic *topic; (topic = map_next(&watch->topics, &cursor)) != NULL;) {
            end_topic(topic, ends, found, 64, &n);
        }
        pthread_mutex_unlock(&watch->lock);
        for (uint32_t i = 0; i < n; i++) {
            finish(found[i]);
        }
    } while (n == 64);
}

static bool ends_with_term(const struct stream *stream, struct error *e)
{
    error_set(e, ERR_PRECONDITION, "this coordinator does not lead any more");
    return stream->follows;
}

static bool ends_with_service(const struct stream *stream, struct error *e)
{
    UNUSED(stream);
    error_set(e, ERR_UNAVAILABLE, STOPS);
    return true;
}

void watch_demoted(struct watch *watch)
{
    end_those(watch, ends_with_term);
}

void watch_tokens(struct watch *watch)
{
    end_those(watch, ends_with_token);
}

void watch_close(struct watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->is_closed = true;
    pthread_mutex_unlock(&watch->lock);
    end_those(watch, ends_with_service);
}
