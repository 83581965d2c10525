/*
 * fetch.c - the consumer's side: what is ready is handed out, in order or as it comes, until all sources are done.
 */
#include "exchange/fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exchange/fetch_internal.h"
#include "exchange/schema.h"
#include "exchange/thread.h"

#define WINDOW_BYTES ((uint64_t)64 * 1024 * 1024)
#define THREADS 4
#define RETRIES 3

/* ---- opening and closing ---- */

/* Keeps the sources that have rows; if none has, the first, because somebody has to say what the columns are. */
static void take_sources(struct exchange_fetch *fetch, const struct exchange_source *sources, uint32_t n)
{
    fetch->sources = mem_calloc(n, sizeof(*fetch->sources));
    for (uint32_t i = 0; i < n; i++) {
        if (sources[i].tally.rows > 0) {
            fetch->sources[fetch->n_sources++].is = sources[i];
        }
    }
    if (fetch->n_sources == 0 && n > 0) {
        fetch->sources[fetch->n_sources++].is = sources[0];
    }
    for (uint32_t i = 0; i < fetch->n_sources; i++) {
        struct fetch__source *source = &fetch->sources[i];
        source->address = mem_strdup(source->is.address == NULL ? "" : source->is.address);
        source->is.address = source->address;
        list_init(&source->ready);
    }
}

static void start_threads(struct exchange_fetch *fetch)
{
    uint32_t n_remote = 0;
    for (uint32_t i = 0; i < fetch->n_sources; i++) {
        n_remote += fetch->sources[i].is.is_local ? 0 : 1;
    }
    fetch->n_threads = n_remote < fetch->options.threads ? n_remote : fetch->options.threads;
    fetch->threads = mem_calloc(fetch->n_threads, sizeof(*fetch->threads));
    for (uint32_t i = 0; i < fetch->n_threads; i++) {
        exchange__thread_start(&fetch->threads[i], fetch__run, fetch);
    }
}

enum err exchange_fetch_open(const struct exchange_source *sources, uint32_t n,
                             const struct exchange_fetch_options *options, struct exchange_fetch **out, struct error *e)
{
    pthread_condattr_t monotonic;
    if (n == 0 && options->schema == NULL) {
        return error_set(e, ERR_INVALID, "there is nothing to fetch, and nobody says what its columns would be");
    }
    struct exchange_fetch *fetch = mem_calloc(1, sizeof(*fetch));
    fetch->options = *options;
    fetch->options.window_bytes = options->window_bytes == 0 ? WINDOW_BYTES : options->window_bytes;
    fetch->options.threads = options->threads == 0 ? THREADS : options->threads;
    fetch->options.retries = options->retries == 0 ? RETRIES : options->retries;
    fetch->options.schema = NULL;
    atomic_init(&fetch->refs, 1);
    pthread_mutex_init(&fetch->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&fetch->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    fetch->cancel = rpc_cancel_new();
    list_init(&fetch->ready);
    if (n == 0) {
        schema_copy(options->schema, &fetch->schema);
    }
    take_sources(fetch, sources, n);
    start_threads(fetch);
    *out = fetch;
    return ERR_OK;
}

void exchange_fetch_cancel(struct exchange_fetch *fetch)
{
    struct error e = {0};
    error_set(&e, ERR_CANCELED, "the fetch was canceled");
    fetch__fail(fetch, NULL, &e);
}

static void drop_items(struct list *items)
{
    LIST_EACH_SAFE(node, next, items) {
        struct fetch__item *item = CONTAINER_OF(node, struct fetch__item, link);
        item->array.release(&item->array);
        list_remove(node);
        mem_free(item);
    }
}

void exchange_fetch_close(struct exchange_fetch *fetch)
{
    if (fetch == NULL || atomic_fetch_sub_explicit(&fetch->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    exchange_fetch_cancel(fetch);
    for (uint32_t i = 0; i < fetch->n_threads; i++) {
        pthread_join(fetch->threads[i], NULL);
    }
    fetch__local_close(&fetch->local);
    drop_items(&fetch->ready);
    for (uint32_t i = 0; i < fetch->n_sources; i++) {
        drop_items(&fetch->sources[i].ready);
        mem_free(fetch->sources[i].address);
    }
    schema_release(&fetch->schema);
    rpc_cancel_free(fetch->cancel);
    pthread_mutex_destroy(&fetch->lock);
    pthread_cond_destroy(&fetch->changed);
    mem_free(fetch->sources);
    mem_free(fetch->threads);
    mem_free(fetch->failed);
    mem_free(fetch);
}

/* ---- failing ---- */

/* Whether the map output is to blame, and not this reader or somebody who wants it to stop. */
static bool is_lost(enum err err)
{
    return err != ERR_CANCELED && err != ERR_DENIED && err != ERR_UNAUTHENTICATED;
}

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct exchange_key)); /* keys are zero behind the name */
}

/* Sorts the keys and leaves each once. Returns how many there are. */
static uint32_t make_unique(struct exchange_key *keys, uint32_t n)
{
    uint32_t n_unique = 0;
    qsort(keys, n, sizeof(*keys), compare_keys);
    for (uint32_t i = 0; i < n; i++) {
        if (n_unique == 0 || compare_keys(&keys[n_unique - 1], &keys[i]) != 0) {
            keys[n_unique++] = keys[i];
        }
    }
    return n_unique;
}

/*
 * A worker that cannot be reached has lost all that is expected of it, not only what was asked for first. Under the
 * lock, so that whoever sees the failure sees these, too.
 */
static void note_lost(struct exchange_fetch *fetch, const struct fetch__source *source, enum err err)
{
    bool is_all = err == ERR_UNAVAILABLE && !source->is.is_local;
    uint32_t max = fetch->n_sources < LIMIT_FETCH_FAILED ? fetch->n_sources : LIMIT_FETCH_FAILED;
    uint32_t n = 0;
    fetch->failed = mem_calloc((size_t)max + 1, sizeof(*fetch->failed));
    fetch->failed[n++] = source->is.key;
    for (uint32_t i = 0; i < fetch->n_sources && is_all && n < max; i++) {
        const struct fetch__source *other = &fetch->sources[i];
        if (other != source && !other->is.is_local && strcmp(other->address, source->address) == 0) {
            fetch->failed[n++] = other->is.key;
        }
    }
    fetch->n_failed = make_unique(fetch->failed, n);
}

void fetch__fail(struct exchange_fetch *fetch, const struct fetch__source *source, const struct error *e)
{
    struct error failure = *e;
    bool is_theirs = source != NULL && is_lost(e->code);
    if (is_theirs) {
        const struct exchange_key *key = &source->is.key;
        error_set(&failure, e->code,
                  "fetch_failed: partition %" PRIu32 " of %s stage %" PRIu32 " task %" PRIu32 " attempt %" PRIu32
                  " from %s: %.3000s",
                  source->is.partition, key->job, key->stage, key->task, key->attempt,
                  source->is.is_local ? "this worker" : source->address, e->message);
    }
    pthread_mutex_lock(&fetch->lock);
    if (!fetch->has_failed) {
        fetch->has_failed = true;
        fetch->failure = failure;
        if (is_theirs) {
            note_lost(fetch, source, e->code);
        }
    }
    pthread_cond_broadcast(&fetch->changed);
    pthread_mutex_unlock(&fetch->lock);
    rpc_cancel_fire(fetch->cancel);
}

uint32_t exchange_fetch_failed(struct exchange_fetch *fetch, struct exchange_key *out, uint32_t max)
{
    pthread_mutex_lock(&fetch->lock);
    uint32_t n = fetch->n_failed < max ? fetch->n_failed : max;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = fetch->failed[i];
    }
    pthread_mutex_unlock(&fetch->lock);
    return n;
}

/* ---- what all sources are checked for ---- */

enum err fetch__check_schema(struct exchange_fetch *fetch, const struct ArrowSchema *schema, struct error *e)
{
    enum err err = ERR_OK;
    pthread_mutex_lock(&fetch->lock);
    if (fetch->schema.release == NULL) {
        schema_copy(schema, &fetch->schema);
        pthread_cond_broadcast(&fetch->changed);
    } else if (!schema_is_equal(&fetch->schema, schema)) {
        err = error_set(e, ERR_DATA_LOSS,
                        "its columns are not those of the other map outputs; if its SQL gives other types for other "
                        "files, cast them");
    }
    pthread_mutex_unlock(&fetch->lock);
    return err;
}

enum err fetch__damaged(enum err err, struct error *e)
{
    return err == ERR_OK ? ERR_OK : error_set(e, ERR_DATA_LOSS, "%s", e->message);
}

enum err fetch__check_end(const struct fetch__source *source, const struct ipc_reader *ipc, struct error *e)
{
    const struct ipc_tally *is = ipc_reader_tally(ipc);
    const struct ipc_tally *expected = &source->is.tally;
    if (!ipc_reader_has_ended(ipc)) {
        return error_set(e, ERR_DATA_LOSS, "it is cut off");
    }
    if (is->bytes != expected->bytes || is->rows != expected->rows || is->batches != expected->batches ||
        is->checksum != expected->checksum) {
        return error_set(e, ERR_DATA_LOSS,
                         "it has %" PRIu64 " bytes, %" PRIu64 " rows, %" PRIu64 " batches and checksum %016" PRIx64
                         ", but %" PRIu64 ", %" PRIu64 ", %" PRIu64 " and %016" PRIx64 " were registered",
                         is->bytes, is->rows, is->batches, is->checksum, expected->bytes, expected->rows,
                         expected->batches, expected->checksum);
    }
    return ERR_OK;
}

/* ---- the consumer ---- */

struct list *fetch__ready(struct exchange_fetch *fetch, struct fetch__source *source)
{
    return fetch->options.is_ordered ? &source->ready : &fetch->ready;
}

/* Under the lock: takes the first item, if there is one. */
static bool pop(struct exchange_fetch *fetch, struct list *items, struct ArrowArray *out)
{
    struct list *first = list_first(items);
    if (first == NULL) {
        return false;
    }
    struct fetch__item *item = CONTAINER_OF(first, struct fetch__item, link);
    list_remove(first);
    *out = item->array;
    fetch->counts.held_bytes -= item->bytes;
    fetch->counts.rows += (uint64_t)item->array.length;
    mem_free(item);
    pthread_cond_broadcast(&fetch->changed);
    return true;
}

/* What the consumer can do next. */
enum turn { TURN_WAIT, TURN_TAKEN, TURN_LOCAL, TURN_END };

/* Under the lock. */
static enum turn next_in_order(struct exchange_fetch *fetch, struct ArrowArray *out, struct fetch__source **out_local)
{
    while (fetch->current < fetch->n_sources) {
        struct fetch__source *source = &fetch->sources[fetch->current];
        if (pop(fetch, &source->ready, out)) {
            return TURN_TAKEN;
        }
        if (!source->is_done) {
            *out_local = source;
            return source->is.is_local ? TURN_LOCAL : TURN_WAIT;
        }
        fetch->current++;
        pthread_cond_broadcast(&fetch->changed); /* the next source may now hold what it needs */
    }
    return TURN_END;
}

/* Under the lock. What others have sent comes first, so that they can go on. */
static enum turn next_of_any(struct exchange_fetch *fetch, struct ArrowArray *out, struct fetch__source **out_local)
{
    if (pop(fetch, &fetch->ready, out)) {
        return TURN_TAKEN;
    }
    for (; fetch->next_local < fetch->n_sources; fetch->next_local++) {
        struct fetch__source *source = &fetch->sources[fetch->next_local];
        if (source->is.is_local && !source->is_done) {
            *out_local = source;
            return TURN_LOCAL;
        }
    }
    return fetch->n_done == fetch->n_sources ? TURN_END : TURN_WAIT;
}

static enum err read_local(struct exchange_fetch *fetch, struct fetch__source *source, bool schema_only,
                           struct ArrowArray *out, struct error *e)
{
    struct error failure = {0};
    enum err err = fetch__local_next(fetch, source, schema_only, out, &failure);
    if (err != ERR_OK) {
        fetch__fail(fetch, source, &failure);
        pthread_mutex_lock(&fetch->lock);
        failure = fetch->failure;
        pthread_mutex_unlock(&fetch->lock);
        error_set(e, failure.code, "%s", failure.message);
        return failure.code;
    }
    pthread_mutex_lock(&fetch->lock);
    source->is_done = !schema_only && out->release == NULL;
    fetch->n_done += source->is_done ? 1 : 0;
    fetch->counts.rows += out->release == NULL ? 0 : (uint64_t)out->length;
    pthread_mutex_unlock(&fetch->lock);
    return ERR_OK;
}

static enum err take_next(struct exchange_fetch *fetch, struct ArrowArray *out, struct error *e)
{
    struct ArrowArray array = {0};
    enum err err = ERR_OK;
    bool is_over = false;
    while (err == ERR_OK && array.release == NULL && !is_over) {
        struct fetch__source *local = NULL;
        enum turn turn = TURN_WAIT;
        pthread_mutex_lock(&fetch->lock);
        while (!fetch->has_failed && turn == TURN_WAIT) {
            turn =
                fetch->options.is_ordered ? next_in_order(fetch, &array, &local) : next_of_any(fetch, &array, &local);
            if (turn == TURN_WAIT) {
                pthread_cond_wait(&fetch->changed, &fetch->lock);
            }
        }
        if (fetch->has_failed && turn != TURN_TAKEN) {
            err = error_set(e, fetch->failure.code, "%s", fetch->failure.message);
        }
        pthread_mutex_unlock(&fetch->lock);
        if (err == ERR_OK && turn == TURN_LOCAL) {
            err = read_local(fetch, local, false, &array, e);
        }
        is_over = turn == TURN_END;
    }
    if (err == ERR_OK) {
        *out = array;
    }
    return err;
}

enum err exchange_fetch_next(struct exchange_fetch *fetch, struct ArrowArray *out, struct error *e)
{
    int64_t began_us = clock_mono_us();
    enum err err = take_next(fetch, out, e);
    exchange_store_note_work(fetch->options.store, EXCHANGE_TAKING, clock_mono_us() - began_us);
    return err;
}

/* A local source that can say what the columns are, if it is its turn or turns do not matter; NULL: there is none. */
static struct fetch__source *local_for_schema(struct exchange_fetch *fetch)
{
    uint32_t n = fetch->options.is_ordered && fetch->n_sources > 0 ? 1 : fetch->n_sources;
    for (uint32_t i = 0; i < n; i++) {
        if (fetch->sources[i].is.is_local) {
            return &fetch->sources[i];
        }
    }
    return NULL;
}

static enum err take_schema(struct exchange_fetch *fetch, struct ArrowSchema *out, struct error *e)
{
    struct ArrowArray none = {0};
    enum err err = ERR_OK;
    pthread_mutex_lock(&fetch->lock);
    bool is_known = fetch->schema.release != NULL;
    pthread_mutex_unlock(&fetch->lock);
    struct fetch__source *local = is_known ? NULL : local_for_schema(fetch);
    if (local != NULL) {
        err = read_local(fetch, local, true, &none, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    pthread_mutex_lock(&fetch->lock);
    while (fetch->schema.release == NULL && !fetch->has_failed) {
        pthread_cond_wait(&fetch->changed, &fetch->lock);
    }
    if (fetch->schema.release != NULL) {
        schema_copy(&fetch->schema, out);
    } else {
        err = error_set(e, fetch->failure.code, "%s", fetch->failure.message);
    }
    pthread_mutex_unlock(&fetch->lock);
    return err;
}

enum err exchange_fetch_schema(struct exchange_fetch *fetch, struct ArrowSchema *out, struct error *e)
{
    int64_t began_us = clock_mono_us();
    enum err err = take_schema(fetch, out, e);
    exchange_store_note_work(fetch->options.store, EXCHANGE_TAKING, clock_mono_us() - began_us);
    return err;
}

struct exchange_fetch_counts exchange_fetch_counts(struct exchange_fetch *fetch)
{
    pthread_mutex_lock(&fetch->lock);
    struct exchange_fetch_counts counts = fetch->counts;
    pthread_mutex_unlock(&fetch->lock);
    return counts;
}

/* ---- as a stream ---- */

static int stream_failed(struct exchange_fetch *fetch, const struct error *e)
{
    snprintf(fetch->last_error, sizeof(fetch->last_error), "%s", e->message);
    return e->code == ERR_CANCELED ? ECANCELED : EIO;
}

static int stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    struct exchange_fetch *fetch = stream->private_data;
    struct error e = {0};
    return exchange_fetch_schema(fetch, out, &e) == ERR_OK ? 0 : stream_failed(fetch, &e);
}

static int stream_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct exchange_fetch *fetch = stream->private_data;
    struct error e = {0};
    return exchange_fetch_next(fetch, out, &e) == ERR_OK ? 0 : stream_failed(fetch, &e);
}

static const char *stream_error(struct ArrowArrayStream *stream)
{
    struct exchange_fetch *fetch = stream->private_data;
    return fetch->last_error[0] == '\0' ? NULL : fetch->last_error;
}

static void stream_release(struct ArrowArrayStream *stream)
{
    exchange_fetch_close(stream->private_data);
    stream->release = NULL;
}

void exchange_fetch_stream(struct exchange_fetch *fetch, struct ArrowArrayStream *out)
{
    atomic_fetch_add_explicit(&fetch->refs, 1, memory_order_relaxed);
    *out = (struct ArrowArrayStream){.get_schema = stream_schema,
                                     .get_next = stream_next,
                                     .get_last_error = stream_error,
                                     .release = stream_release,
                                     .private_data = fetch};
}
