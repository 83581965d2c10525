/*
 * fetch_remote.c - sources on other workers: one thread reads one source at a time.
 *
 * The bytes of a partition never change, so a broken stream is opened again at the byte where it broke; what has been
 * put together by then stays.
 */
#include <inttypes.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/planted.h"
#include "exchange/chunk.h"
#include "exchange/fetch_internal.h"
#include "exchange/serve.h"
#include "wire/message.h"

#define BACKOFF_MS 100 /* before the first retry; doubles */

/* One source while it is being read. */
struct reading {
    struct exchange_fetch *fetch;
    struct fetch__source *source;
    struct ipc_reader *ipc;
    struct ipc_assembler assembler;
    uint64_t offset;    /* bytes that have been taken */
    struct buf message; /* a chunk that cannot be taken as it comes */
    bool is_begun;      /* parts of a chunk have been taken as they came */
    int64_t taking_us;  /* of the time for a chunk, what it took to take it; the window may be full */
    enum err err;       /* of what was taken */
    struct error error;
    struct arena arena;
};

static enum err canceled(struct error *e)
{
    return error_set(e, ERR_CANCELED, "the fetch was canceled");
}

/* Under the lock: whether so many bytes more may be held. */
static bool may_hold(const struct exchange_fetch *fetch, const struct fetch__source *source, uint64_t bytes)
{
    if (fetch->counts.held_bytes + bytes <= fetch->options.window_bytes || fetch->counts.held_bytes == 0) {
        return true;
    }
    /* The source that everybody waits for may always go on, or those behind it could fill the window for ever. */
    return fetch->options.is_ordered && source == &fetch->sources[fetch->current] && list_is_empty(&source->ready);
}

static enum err hold(struct reading *r, uint64_t bytes, struct error *e)
{
    struct exchange_fetch *fetch = r->fetch;
    struct exchange_fetch_counts *counts = &fetch->counts;
    pthread_mutex_lock(&fetch->lock);
    while (!fetch->has_failed && !may_hold(fetch, r->source, bytes)) {
        pthread_cond_wait(&fetch->changed, &fetch->lock);
    }
    bool has_failed = fetch->has_failed;
    if (!has_failed) {
        counts->held_bytes += bytes;
        counts->held_bytes_max =
            counts->held_bytes > counts->held_bytes_max ? counts->held_bytes : counts->held_bytes_max;
    }
    pthread_mutex_unlock(&fetch->lock);
    return has_failed ? canceled(e) : ERR_OK;
}

static void let_go(struct exchange_fetch *fetch, uint64_t bytes)
{
    pthread_mutex_lock(&fetch->lock);
    fetch->counts.held_bytes -= bytes;
    pthread_cond_broadcast(&fetch->changed);
    pthread_mutex_unlock(&fetch->lock);
}

/* Takes a message: rows go to the consumer. What it held is let go of when they are handed out, or here. */
static enum err take_message(struct reading *r, struct block *message, struct error *e)
{
    struct exchange_fetch *fetch = r->fetch;
    struct ArrowArray array = {0};
    bool had_schema = ipc_reader_schema(r->ipc) != NULL;
    uint64_t bytes = message->n;
    enum err err = fetch__damaged(ipc_reader_message(r->ipc, message, 0, message->n, &array, e), e);
    block_unref(message);
    if (err == ERR_OK && !had_schema) {
        err = fetch__check_schema(fetch, ipc_reader_schema(r->ipc), e);
    }
    if (err != ERR_OK || array.release == NULL) {
        let_go(fetch, bytes);
        return err;
    }
    struct fetch__item *item = mem_calloc(1, sizeof(*item));
    item->array = array;
    item->bytes = bytes;
    pthread_mutex_lock(&fetch->lock);
    list_push_back(fetch__ready(fetch, r->source), &item->link);
    pthread_cond_broadcast(&fetch->changed);
    pthread_mutex_unlock(&fetch->lock);
    return ERR_OK;
}

/* Takes a chunk's payload. */
static enum err take_payload(struct reading *r, const uint8_t *bytes, size_t n, struct error *e)
{
    uint64_t whole = r->source->is.tally.bytes;
    if (n > whole - r->offset) {
        return error_set(e, ERR_DATA_LOSS, "it has more bytes than the %" PRIu64 " that were registered", whole);
    }
    while (n > 0 || r->assembler.wants > 0) {
        struct block *message = NULL;
        size_t taken = 0;
        enum err err = ERR_OK;
        if (r->assembler.wants > 0) {
            uint64_t start = r->offset - r->assembler.have;
            if (r->assembler.wants > whole - start) {
                return error_set(e, ERR_DATA_LOSS, "a message is longer than what was registered");
            }
            err = hold(r, r->assembler.wants, e);
            if (err != ERR_OK) {
                return err;
            }
            ipc_assembler_admit(&r->assembler);
        }
        err = fetch__damaged(ipc_assembler_feed(&r->assembler, bytes, n, &taken, &message, e), e);
        bytes += taken;
        n -= taken;
        r->offset += taken;
        if (err == ERR_OK && message != NULL) {
            err = take_message(r, message, e);
        }
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static void make_request(const struct reading *r, struct buf *out)
{
    const struct exchange_source *is = &r->source->is;
    struct arena arena = {0};
    struct pb_fetch_shuffle_partition_request *request = wire_new(PB_FETCH_SHUFFLE_PARTITION_REQUEST, &arena);
    request->query_id = (char *)is->key.job;
    request->stage_id = is->key.stage;
    request->map_task = is->key.task;
    request->attempt = is->key.attempt;
    request->reduce_partition = is->partition;
    request->offset = r->offset;
    wire_encode(request, out);
    arena_deinit(&arena);
}

/* What the server says of itself stays as it is; everything else that a call can fail with is a broken connection. */
static enum err broken(struct exchange_fetch *fetch, enum err err, struct error *e)
{
    static const bool is_final[] = {[ERR_NOT_FOUND] = true, [ERR_INVALID] = true,         [ERR_DENIED] = true,
                                    [ERR_DATA_LOSS] = true, [ERR_UNAUTHENTICATED] = true, [ERR_INTERNAL] = false};
    pthread_mutex_lock(&fetch->lock);
    bool is_stopped = fetch->has_failed;
    pthread_mutex_unlock(&fetch->lock);
    if (is_stopped) {
        return canceled(e);
    }
    return is_final[err] ? err : error_set(e, ERR_UNAVAILABLE, "%s", e->message);
}

/* Takes bytes of a payload and counts them. */
static enum err take_counted(struct reading *r, const uint8_t *bytes, size_t n, struct error *e)
{
    enum err err = take_payload(r, bytes, n, e);
    if (err == ERR_OK) {
        pthread_mutex_lock(&r->fetch->lock);
        r->fetch->counts.remote_bytes += n;
        pthread_mutex_unlock(&r->fetch->lock);
        exchange_channels_count(r->fetch->options.channels, n);
    }
    return err;
}

/* Takes a chunk that has been put together. */
static enum err take_chunk(struct reading *r, struct error *e)
{
    const uint8_t *payload = NULL;
    size_t n = 0;
    arena_reset(&r->arena);
    enum err err = chunk_payload((const uint8_t *)r->message.data, r->message.n, &r->arena, &payload, &n, e);
    return err == ERR_OK ? take_counted(r, payload, n, e) : err;
}

/*
 * Takes a part of a chunk as it came. Nearly all chunks are one payload behind a head of a few bytes, whose parts need
 * not be put together.
 */
static void take_part(struct reading *r, const uint8_t *bytes, size_t n, size_t n_left)
{
    if (r->err != ERR_OK) {
        return;
    }
    if (!r->is_begun && r->message.n == 0) {
        size_t n_head = chunk_plain_head(bytes, n, n + n_left);
        r->is_begun = n_head > 0;
        bytes += n_head;
        n -= n_head;
    }
    if (r->is_begun) {
        r->err = take_counted(r, bytes, n, &r->error);
        return;
    }
    buf_append(&r->message, bytes, n);
    if (n_left == 0) {
        r->err = take_chunk(r, &r->error);
    }
}

static void on_part(void *context, const uint8_t *bytes, size_t n, size_t n_left)
{
    struct reading *r = context;
    int64_t began_us = clock_mono_us();
    take_part(r, bytes, n, n_left);
    r->taking_us += clock_mono_us() - began_us;
}

static enum err next_chunk(struct reading *r, struct rpc_stream *stream, bool *out_end, struct error *e)
{
    r->is_begun = false;
    r->taking_us = 0;
    r->err = ERR_OK;
    buf_reset(&r->message);
    enum err err = rpc_stream_next_pieces(stream, on_part, r, out_end, NULL, e);
    if (err != ERR_OK) {
        return broken(r->fetch, err, e);
    }
    if (r->err != ERR_OK && e != NULL) {
        *e = r->error;
    }
    ASSERT(r->err != ERR_UNAVAILABLE);
    return r->err;
}

/* Reads on from where it is to the end of the partition. ERR_UNAVAILABLE means that it can be tried again. */
static enum err read_stream(struct reading *r, struct rpc_channel *channel, struct error *e)
{
    struct exchange_fetch *fetch = r->fetch;
    struct rpc_stream *stream = NULL;
    struct buf request = {0};
    bool is_end = false;
    int64_t began_us = clock_mono_us(); /* the first chunk's time includes that of the connection */
    make_request(r, &request);
    struct rpc_request call = {
        .path = EXCHANGE_FETCH_PATH, .bytes = request.data, .n = request.n, .cancel = fetch->cancel};
    enum err err = rpc_stream_open(channel, &call, &stream, e);
    if (err != ERR_OK) {
        err = broken(fetch, err, e);
    }
    while (err == ERR_OK && !is_end) {
        err = next_chunk(r, stream, &is_end, e);
        int64_t now_us = clock_mono_us();
        if (err == ERR_OK && !is_end) {
            exchange_channels_fetched(fetch->options.channels, now_us - began_us - r->taking_us);
        }
        began_us = now_us;
    }
    rpc_stream_close(stream);
    buf_deinit(&request);
    if (PLANTED(cut_partition) && err == ERR_UNAVAILABLE && r->offset > 0) {
        return ERR_OK;
    }
    return err == ERR_OK ? fetch__check_end(r->source, r->ipc, e) : err;
}

/* Waits before a retry; false if there is no point in it any more. */
static bool pause_for(struct exchange_fetch *fetch, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&fetch->lock);
    int waited = 0;
    while (!fetch->has_failed && waited == 0) {
        waited = pthread_cond_timedwait(&fetch->changed, &fetch->lock, &until);
    }
    bool goes_on = !fetch->has_failed;
    pthread_mutex_unlock(&fetch->lock);
    return goes_on;
}

/* Reads on from where it is, over a channel that is good until it fails. */
static enum err read_once(struct reading *r, struct error *e)
{
    struct exchange_channels *channels = r->fetch->options.channels;
    struct rpc_channel *channel = NULL;
    enum err err = exchange_channels_take(channels, r->source->address, &channel, e);
    if (err == ERR_OK) {
        err = read_stream(r, channel, e);
        exchange_channels_give(channels, channel, err == ERR_UNAVAILABLE);
    }
    return err;
}

static enum err read_source(struct reading *r, struct error *e)
{
    struct exchange_fetch *fetch = r->fetch;
    uint32_t tries = 0;
    for (;;) {
        uint64_t before = r->offset;
        enum err err = read_once(r, e);
        if (err != ERR_UNAVAILABLE) {
            return err;
        }
        tries = r->offset > before ? 0 : tries + 1;
        if (tries > fetch->options.retries) {
            return err;
        }
        if (!pause_for(fetch, (int64_t)BACKOFF_MS << (tries < 5 ? tries : 5))) {
            return canceled(e);
        }
        pthread_mutex_lock(&fetch->lock);
        fetch->counts.resumed++;
        pthread_mutex_unlock(&fetch->lock);
    }
}

static void run_source(struct exchange_fetch *fetch, struct fetch__source *source)
{
    struct reading r = {.fetch = fetch, .source = source};
    struct error e = {0};
    r.ipc = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = true});
    enum err err = read_source(&r, &e);
    if (r.assembler.message != NULL) {
        let_go(fetch, r.assembler.message->n);
    }
    ipc_assembler_deinit(&r.assembler);
    ipc_reader_free(r.ipc);
    buf_deinit(&r.message);
    arena_deinit(&r.arena);
    if (err != ERR_OK) {
        e.code = err;
        fetch__fail(fetch, source, &e);
        return;
    }
    pthread_mutex_lock(&fetch->lock);
    source->is_done = true;
    fetch->n_done++;
    pthread_cond_broadcast(&fetch->changed);
    pthread_mutex_unlock(&fetch->lock);
}

/* The next source on another worker; NULL: there is none. */
static struct fetch__source *next_source(struct exchange_fetch *fetch)
{
    struct fetch__source *found = NULL;
    pthread_mutex_lock(&fetch->lock);
    while (found == NULL && fetch->next_remote < fetch->n_sources && !fetch->has_failed) {
        struct fetch__source *source = &fetch->sources[fetch->next_remote++];
        found = source->is.is_local ? NULL : source;
    }
    pthread_mutex_unlock(&fetch->lock);
    return found;
}

void *fetch__run(void *context)
{
    struct exchange_fetch *fetch = context;
    for (struct fetch__source *source = next_source(fetch); source != NULL; source = next_source(fetch)) {
        run_source(fetch, source);
    }
    return NULL;
}
