/*
 * Pieces of JSON in a ring, and followers that read it.
 *
 * A follower is resting (in no thread's hands), with the feeder, or with the transport, as the streams of watch.c are.
 * Whoever has it moves it on; others only leave marks. The loop's thread writes the JSON, because the rows are gone
 * afterwards, and leaves the sending to the feeder.
 */
#include "coordinator/feed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "coordinator/service_internal.h"
#include "store/row_json.h"

#define PIECES_MAX 8192
#define BYTES_MAX ((size_t)32 * 1024 * 1024)
#define PIECE_BYTES ((size_t)256 * 1024)
#define ROWS_MAX 20000                             /* of one batch */
#define RESULT_BYTES_MAX ((size_t)8 * 1024 * 1024) /* of one batch */
#define IDLE_MS 60000                              /* without anybody, then the feed ends */
#define STOPS "this coordinator stops"

struct piece_of_feed {
    uint64_t seq;
    bool more;
    size_t n;
    char text[];
};

struct follower {
    struct list in_feed;
    struct feed *feed;
    struct exchange *exchange;
    uint64_t id;   /* of the feed that it follows */
    uint64_t next; /* position */
    bool is_resting;
    bool is_due;  /* it has not heard from us for a while */
    bool is_last; /* the message on its way is the last one */
    bool is_over;
    struct error e; /* why it is over; ERR_OK: all has been told */
};

struct feed {
    struct service *service;
    pthread_t feeder;
    pthread_mutex_t lock;
    pthread_cond_t wakes;
    struct list followers;
    uint32_t n_snapshots; /* being read */
    uint64_t id;          /* of this beginning; never 0 */
    bool is_recording;
    bool is_closed;
    bool has_news;
    int64_t used_mono_ms;
    uint64_t head;                            /* position of the newest piece; they count from 1 */
    uint32_t n;                               /* pieces that are kept: the newest ones */
    size_t bytes;                             /* of these */
    uint64_t seq;                             /* of the newest event */
    struct piece_of_feed *pieces[PIECES_MAX]; /* by position */
};

/* ---- the ring; the lock is held ---- */

static struct piece_of_feed **place_of(struct feed *feed, uint64_t position)
{
    return &feed->pieces[position % PIECES_MAX];
}

static void drop_oldest(struct feed *feed)
{
    struct piece_of_feed **oldest = place_of(feed, feed->head - feed->n + 1);
    feed->bytes -= (*oldest)->n;
    mem_free(*oldest);
    *oldest = NULL;
    feed->n--;
}

static void push(struct feed *feed, struct piece_of_feed *piece)
{
    while (feed->n == PIECES_MAX || (feed->n > 0 && feed->bytes + piece->n > BYTES_MAX)) {
        drop_oldest(feed);
    }
    *place_of(feed, ++feed->head) = piece;
    feed->n++;
    feed->bytes += piece->n;
}

/* Another beginning: what was kept is gone, and positions of before mean nothing. */
static void begin_anew(struct feed *feed)
{
    while (feed->n > 0) {
        drop_oldest(feed);
    }
    do {
        random_bytes(&feed->id, sizeof feed->id);
    } while (feed->id == 0);
    feed->has_news = true;
    pthread_cond_signal(&feed->wakes);
}

/* ---- a batch ---- */

/* Digests of the results that a batch's tasks have come with. Its other payloads are inputs, which stay here. */
struct results_of_batch {
    struct digest *digests;
    uint32_t n;
    uint32_t cap;
};

static void note_result(struct results_of_batch *results, const struct digest *digest)
{
    results->digests = mem_grow(results->digests, &results->cap, results->n + 1, sizeof *results->digests);
    results->digests[results->n++] = *digest;
}

static void note_results(struct results_of_batch *results, const struct row *row)
{
    const struct row_task *task = (const struct row_task *)(const void *)row;
    const struct row_result *result = (const struct row_result *)(const void *)row;
    if (row->kind == ROW_TASK && task->result_bytes > 0) {
        note_result(results, &task->result);
    } else if (row->kind == ROW_RESULT && result->is_inline) {
        struct digest digest = service__result_digest(result->ref, result->attempt);
        note_result(results, &digest);
    }
}

static int by_digest(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct digest));
}

static bool is_result(const struct results_of_batch *results, const struct payload *payload)
{
    return results->n > 0 &&
           bsearch(&payload->digest, results->digests, results->n, sizeof *results->digests, by_digest) != NULL;
}

struct writing {
    struct buf text;
    struct arena arena;
    struct piece_of_feed **pieces;
    uint32_t n;
    uint32_t cap;
    uint64_t seq;
};

static void end_piece(struct writing *writing, bool more)
{
    buf_char(&writing->text, ']');
    struct piece_of_feed *piece = mem_alloc(sizeof *piece + writing->text.n + 1);
    *piece = (struct piece_of_feed){.seq = writing->seq, .more = more, .n = writing->text.n};
    memcpy(piece->text, writing->text.data, writing->text.n + 1);
    writing->pieces = mem_grow(writing->pieces, &writing->cap, writing->n + 1, sizeof *writing->pieces);
    writing->pieces[writing->n++] = piece;
    buf_reset(&writing->text);
}

/* The next change is about to be written. */
static void begin_change(struct writing *writing)
{
    if (writing->text.n >= PIECE_BYTES) {
        end_piece(writing, true);
    }
    buf_char(&writing->text, writing->text.n == 0 ? '[' : ',');
}

static void write_row(struct writing *writing, const struct row *row)
{
    if (row->kind == ROW_ATTEMPT) {
        return;
    }
    begin_change(writing);
    bool is_written = row_json_write(row, &writing->text, &writing->arena);
    ASSERT(is_written);
    arena_reset(&writing->arena);
}

static void write_batch(struct writing *writing, const struct batch *batch, const struct results_of_batch *results)
{
    for (uint32_t i = 0; i < batch->n_payloads; i++) {
        if (is_result(results, &batch->payloads[i])) {
            begin_change(writing);
            row_json_write_payload(&batch->payloads[i], &writing->text);
        }
    }
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->next) {
            write_row(writing, row);
        }
    }
    for (uint32_t i = 0; i < batch->n_data_sets; i++) {
        begin_change(writing);
        row_json_write_data_set(&batch->data_sets[i], &writing->text);
    }
    if (writing->text.n > 0) {
        end_piece(writing, false);
    }
}

/* How much there is to write. */
struct measure {
    uint32_t n_rows;
    size_t result_bytes;
    uint64_t seq; /* of its last event; 0: it has none */
};

static struct measure measure_batch(const struct batch *batch, struct results_of_batch *results)
{
    struct measure measure = {0};
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->next) {
            measure.n_rows++;
            if (row->kind == ROW_EVENT) {
                measure.seq = ((const struct row_event *)(const void *)row)->seq;
            }
            if (measure.n_rows <= ROWS_MAX) {
                note_results(results, row);
            }
        }
    }
    if (results->n > 1) {
        qsort(results->digests, results->n, sizeof *results->digests, by_digest);
    }
    for (uint32_t i = 0; i < batch->n_payloads && measure.n_rows <= ROWS_MAX; i++) {
        measure.result_bytes += is_result(results, &batch->payloads[i]) ? batch->payloads[i].n_bytes : 0;
    }
    return measure;
}

static bool is_recording(struct feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    bool is_recording = feed->is_recording;
    pthread_mutex_unlock(&feed->lock);
    return is_recording;
}

void feed_append(struct feed *feed, const struct batch *batch)
{
    struct results_of_batch results = {0};
    struct writing writing = {0};
    if (!is_recording(feed)) {
        return;
    }
    struct measure measure = measure_batch(batch, &results);
    bool is_large = measure.n_rows > ROWS_MAX || measure.result_bytes > RESULT_BYTES_MAX;
    writing.seq = measure.seq != 0 ? measure.seq : feed->seq; /* only this thread writes it */
    if (!is_large) {
        write_batch(&writing, batch, &results);
    }
    pthread_mutex_lock(&feed->lock);
    feed->seq = writing.seq;
    for (uint32_t i = 0; i < writing.n; i++) {
        push(feed, writing.pieces[i]);
    }
    if (is_large) {
        begin_anew(feed);
    }
    feed->has_news = true;
    pthread_cond_signal(&feed->wakes);
    pthread_mutex_unlock(&feed->lock);
    mem_free(writing.pieces);
    buf_deinit(&writing.text);
    arena_deinit(&writing.arena);
    mem_free(results.digests);
}

/* ---- the way of a follower ---- */

/* Ends the call. Nobody else has the follower, and the lock is not held. */
static void finish(struct follower *follower)
{
    struct feed *feed = follower->feed;
    struct exchange *exchange = follower->exchange;
    pthread_mutex_lock(&feed->lock);
    list_remove(&follower->in_feed);
    follower->is_over = true; /* what client_gone may have to say comes too late */
    feed->used_mono_ms = clock_mono_ms();
    pthread_mutex_unlock(&feed->lock);
    if (follower->e.code != ERR_OK) {
        exchange_fail(exchange, &follower->e); /* waits for on_gone, which may be looking at the follower */
    } else {
        exchange_end(exchange);
    }
    mem_free(follower);
}

/* Marks the follower as over and, if it rests, says that it is the caller's to finish. The lock is held. */
static bool end_soon(struct follower *follower, const struct error *e)
{
    if (!follower->is_over) {
        follower->is_over = true;
        follower->e = *e;
    }
    bool is_mine = follower->is_resting;
    follower->is_resting = false;
    return is_mine;
}

/* The next message, in the arena; NULL: there is none, and the follower rests now. The lock is held. */
static struct pb_event *next_message(struct follower *follower, struct arena *arena)
{
    struct feed *feed = follower->feed;
    struct pb_event *event = wire_new(PB_EVENT, arena);
    event->type = arena_strdup(arena, "rows");
    event->seq = feed->seq;
    event->head = feed->head;
    event->position = follower->next - 1;
    if (follower->id != feed->id || !feed->is_recording || follower->next + feed->n <= feed->head ||
        follower->next > feed->head + 1) {
        event->resync = true;
        follower->is_last = true;
    } else if (follower->next <= feed->head) {
        struct piece_of_feed *piece = *place_of(feed, follower->next);
        event->position = follower->next++;
        event->seq = piece->seq;
        event->more = piece->more;
        event->details = arena_copy(arena, piece->text, piece->n + 1);
    } else if (!follower->is_due) {
        follower->is_resting = true;
        return NULL;
    }
    follower->is_due = false;
    event->at_ms = (uint64_t)coordinator_now_ms(atomic_load(&feed->service->coordinator));
    return event;
}

static void sent(void *context, struct rpc_call *call, bool ok);

/* Whoever has the follower sends it the next message, ends it or lets it rest. */
static void move_on(struct follower *follower)
{
    struct arena arena = {0};
    struct error e = {0};
    bool may_go_on = exchange_look_at_token(follower->exchange, &e) == ERR_OK;
    pthread_mutex_lock(&follower->feed->lock);
    if (!may_go_on) {
        (void)end_soon(follower, &e);
    }
    bool is_over = follower->is_over || follower->is_last;
    struct pb_event *event = is_over ? NULL : next_message(follower, &arena);
    pthread_mutex_unlock(&follower->feed->lock);
    if (is_over) {
        finish(follower);
    } else if (event != NULL) {
        exchange_stream(follower->exchange, event, sent, follower);
    }
    arena_deinit(&arena);
}

static void say_gone(struct error *e)
{
    error_set(e, ERR_CANCELED, "the client has gone");
}

static void sent(void *context, struct rpc_call *call, bool ok)
{
    struct follower *follower = context;
    struct error e = {0};
    UNUSED(call);
    if (!ok) {
        say_gone(&e);
        pthread_mutex_lock(&follower->feed->lock);
        (void)end_soon(follower, &e);
        pthread_mutex_unlock(&follower->feed->lock);
    }
    move_on(follower);
}

static void client_gone(void *context, struct rpc_call *call)
{
    struct follower *follower = context;
    struct error e = {0};
    UNUSED(call);
    say_gone(&e);
    pthread_mutex_lock(&follower->feed->lock);
    bool is_mine = end_soon(follower, &e);
    pthread_mutex_unlock(&follower->feed->lock);
    if (is_mine) {
        finish(follower);
    }
}

void feed_follow(struct feed *feed, struct exchange *exchange)
{
    const struct pb_watch_events_request *message = exchange->message;
    struct error e = {0};
    struct follower *follower = mem_calloc(1, sizeof *follower);
    *follower = (struct follower){
        .feed = feed, .exchange = exchange, .id = message->feed, .next = message->position + 1, .is_due = true};
    pthread_mutex_lock(&feed->lock);
    list_push_back(&feed->followers, &follower->in_feed);
    bool is_closed = feed->is_closed;
    pthread_mutex_unlock(&feed->lock);
    /* In this order: whoever ends the leadership after this look ends the follower, too. */
    if (is_closed) {
        error_set(&e, ERR_UNAVAILABLE, STOPS);
    } else if (coordinator_epoch(atomic_load(&feed->service->coordinator)) == 0) {
        error_set(&e, ERR_PRECONDITION, "this coordinator does not lead, so it has nothing to follow");
    }
    if (e.code != ERR_OK) {
        pthread_mutex_lock(&feed->lock);
        (void)end_soon(follower, &e);
        pthread_mutex_unlock(&feed->lock);
    } else {
        exchange_on_gone(exchange, client_gone, follower);
    }
    move_on(follower);
}

/* ---- the feeder ---- */

#define HANDFUL 64

/* Takes those out of their rest that have something to hear. The lock is held. */
static uint32_t take_resting(struct feed *feed, struct follower **out)
{
    uint32_t n = 0;
    LIST_EACH(at, &feed->followers) {
        struct follower *follower = CONTAINER_OF(at, struct follower, in_feed);
        bool has_news = follower->next <= feed->head || follower->id != feed->id || follower->is_due;
        if (n < HANDFUL && follower->is_resting && has_news) {
            follower->is_resting = false;
            out[n++] = follower;
        }
    }
    return n;
}

/* The lock is held. */
static void beat(struct feed *feed, int64_t now_mono_ms)
{
    LIST_EACH(at, &feed->followers) {
        CONTAINER_OF(at, struct follower, in_feed)->is_due = true;
    }
    bool is_idle = list_is_empty(&feed->followers) && feed->n_snapshots == 0;
    if (feed->is_recording && is_idle && now_mono_ms - feed->used_mono_ms > IDLE_MS) {
        feed->is_recording = false;
        begin_anew(feed);
    }
}

static void *feed_all(void *context)
{
    struct feed *feed = context;
    struct follower *taken[HANDFUL];
    int64_t beat_at_mono_ms = clock_mono_ms() + FEED_BEAT_MS;
    pthread_mutex_lock(&feed->lock);
    while (!feed->is_closed) {
        int64_t now_mono_ms = clock_mono_ms();
        if (now_mono_ms >= beat_at_mono_ms) {
            beat(feed, now_mono_ms);
            beat_at_mono_ms = now_mono_ms + FEED_BEAT_MS;
        }
        feed->has_news = false;
        uint32_t n = take_resting(feed, taken);
        if (n > 0) {
            pthread_mutex_unlock(&feed->lock);
            for (uint32_t i = 0; i < n; i++) {
                move_on(taken[i]);
            }
            pthread_mutex_lock(&feed->lock);
        } else if (!feed->is_recording && list_is_empty(&feed->followers)) {
            pthread_cond_wait(&feed->wakes, &feed->lock);
        } else if (!feed->has_news) {
            struct timespec until = {.tv_sec = (time_t)(beat_at_mono_ms / 1000),
                                     .tv_nsec = (beat_at_mono_ms % 1000) * 1000000};
            (void)pthread_cond_timedwait(&feed->wakes, &feed->lock, &until);
        }
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

struct feed *feed_new(struct service *service)
{
    struct feed *feed = mem_calloc(1, sizeof *feed);
    pthread_condattr_t attributes;
    feed->service = service;
    list_init(&feed->followers);
    random_bytes(&feed->id, sizeof feed->id);
    feed->id |= 1;
    int error = pthread_mutex_init(&feed->lock, NULL);
    error |= pthread_condattr_init(&attributes);
    error |= pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    error |= pthread_cond_init(&feed->wakes, &attributes);
    error |= pthread_condattr_destroy(&attributes);
    error |= pthread_create(&feed->feeder, NULL, feed_all, feed);
    ASSERT(error == 0);
    return feed;
}

/* In small steps, because finishing a follower needs the lock. */
static void end_all(struct feed *feed, const struct error *e)
{
    struct follower *found[HANDFUL];
    uint32_t n;
    do {
        n = 0;
        pthread_mutex_lock(&feed->lock);
        LIST_EACH(at, &feed->followers) {
            struct follower *follower = CONTAINER_OF(at, struct follower, in_feed);
            if (n < HANDFUL && end_soon(follower, e)) {
                found[n++] = follower;
            }
        }
        pthread_mutex_unlock(&feed->lock);
        for (uint32_t i = 0; i < n; i++) {
            finish(found[i]);
        }
    } while (n == HANDFUL);
}

void feed_elected(struct feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    begin_anew(feed); /* a snapshot that was begun before may miss what another leader has done */
    pthread_mutex_unlock(&feed->lock);
}

void feed_demoted(struct feed *feed)
{
    struct error e = {0};
    error_set(&e, ERR_PRECONDITION, "this coordinator does not lead any more");
    pthread_mutex_lock(&feed->lock);
    feed->is_recording = false;
    begin_anew(feed);
    pthread_mutex_unlock(&feed->lock);
    end_all(feed, &e);
}

void feed_close(struct feed *feed)
{
    struct error e = {0};
    error_set(&e, ERR_UNAVAILABLE, STOPS);
    pthread_mutex_lock(&feed->lock);
    bool was_closed = feed->is_closed;
    feed->is_closed = true;
    pthread_cond_signal(&feed->wakes);
    pthread_mutex_unlock(&feed->lock);
    if (!was_closed) {
        pthread_join(feed->feeder, NULL);
    }
    end_all(feed, &e);
}

void feed_free(struct feed *feed)
{
    if (feed == NULL) {
        return;
    }
    ASSERT(list_is_empty(&feed->followers));
    while (feed->n > 0) {
        drop_oldest(feed);
    }
    pthread_cond_destroy(&feed->wakes);
    pthread_mutex_destroy(&feed->lock);
    mem_free(feed);
}

struct feed_place feed_enter(struct feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    feed->n_snapshots++;
    feed->is_recording = true;
    struct feed_place place = {.feed = feed->id, .position = feed->head};
    pthread_cond_signal(&feed->wakes);
    pthread_mutex_unlock(&feed->lock);
    return place;
}

void feed_leave(struct feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    feed->n_snapshots--;
    feed->used_mono_ms = clock_mono_ms();
    pthread_mutex_unlock(&feed->lock);
}
