/*
 * The one who follows: finds the leader, takes a snapshot, then the changes of every batch.
 *
 * A snapshot goes into a new store beside the copy. What it was begun with may have changed while it was read, so it is
 * one consistent picture only when all messages up to the head of the feed have been taken in; then it takes the copy's
 * place. A batch may come in several messages, and is applied as a whole.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "coordinator/feed.h"
#include "coordinator/lag.h"
#include "coordinator/observer_internal.h"
#include "store/memory.h"
#include "store/row_json.h"

#define CALL_MS 1500
#define SNAPSHOT_SILENCE_MS 60000 /* snapshots are made one after the other */
#define PAUSE_MS_MIN 100
#define PAUSE_MS_MAX 2000
#define TRIM_MS 1000

/* Where the follower is. */
struct following {
    struct observer *o;
    struct rpc_channel *channel;
    struct copy fresh; /* a snapshot that is not whole yet; its store is NULL if there is none */
    uint64_t whole_at; /* the position at which it will be; 0: not known yet */
    bool has_place;    /* the copy, or the fresh one, is at this position of this feed */
    uint64_t feed;
    uint64_t position;
    struct lag lag; /* of the stream of changes */
    uint32_t n_snapshots;
    int64_t trim_at_mono_ms;
    bool is_troubled; /* the log says that no leader can be reached */

    struct arena arena; /* of the changes that have been read and not been applied yet */
    struct row *rows, **rows_end;
    struct payload *payloads;
    uint32_t n_payloads;
    uint32_t cap_payloads;
    struct data_set *data_sets;
    uint32_t n_data_sets;
    uint32_t cap_data_sets;
};

static bool is_stopping(struct observer *o)
{
    pthread_mutex_lock(&o->lock);
    bool is_stopping = o->is_stopping;
    pthread_mutex_unlock(&o->lock);
    return is_stopping;
}

static void nap(struct observer *o, int64_t ms)
{
    int64_t until_mono_ms = clock_mono_ms() + ms;
    struct timespec until = {.tv_sec = (time_t)(until_mono_ms / 1000), .tv_nsec = (until_mono_ms % 1000) * 1000000};
    pthread_mutex_lock(&o->lock);
    while (!o->is_stopping && clock_mono_ms() < until_mono_ms) {
        (void)pthread_cond_timedwait(&o->wakes, &o->lock, &until);
    }
    pthread_mutex_unlock(&o->lock);
}

/* ---- changes ---- */

static void forget_changes(struct following *f)
{
    arena_reset(&f->arena);
    f->rows = NULL;
    f->rows_end = &f->rows;
    f->n_payloads = 0;
    f->n_data_sets = 0;
}

static void keep_change(struct following *f, const struct change *change)
{
    switch (change->kind) {
    case CHANGE_ROW:
        change->row->next = NULL;
        *f->rows_end = change->row;
        f->rows_end = &change->row->next;
        break;
    case CHANGE_PAYLOAD:
        f->payloads = mem_grow(f->payloads, &f->cap_payloads, f->n_payloads + 1, sizeof *f->payloads);
        f->payloads[f->n_payloads++] = change->payload;
        break;
    case CHANGE_DATA_SET:
        f->data_sets = mem_grow(f->data_sets, &f->cap_data_sets, f->n_data_sets + 1, sizeof *f->data_sets);
        f->data_sets[f->n_data_sets++] = change->data_set;
        break;
    case CHANGE_UNKNOWN:
        break;
    }
}

static enum err read_changes(struct following *f, const char *text, size_t n, struct error *e)
{
    struct json *root = NULL;
    if (n == 0) {
        return ERR_OK;
    }
    enum err err = json_parse(text, n, &root, e);
    if (err == ERR_OK && json_kind_of(root) != JSON_ARRAY) {
        err = error_set(e, ERR_INVALID, "changes that are no array");
    }
    for (size_t i = 0, count = json_count(root); i < count && err == ERR_OK; i++) {
        struct change change;
        err = row_json_read(json_at(root, i), &f->arena, &change, e);
        if (err == ERR_OK) {
            keep_change(f, &change);
        }
    }
    json_free(root);
    return err;
}

/*
 * Among the rows that were applied: a job that goes on, but that the copy has forgotten because it had ended. Only a
 * snapshot has all of it.
 */
static bool has_returned_job(const struct following *f)
{
    for (const struct row *row = f->rows; row != NULL; row = row->next) {
        const struct row_job *job = (const struct row_job *)(const void *)row;
        if (row->kind == ROW_JOB && !job->is_new && !job_state_is_terminal(job->state) &&
            memory_job_state(f->o->copy.name, job->job_id) < 0) {
            return true;
        }
    }
    return false;
}

/* What has been read goes into the store in one transaction, and is forgotten here. */
static enum err apply_changes(struct following *f, struct copy *copy, struct error *e)
{
    const struct row *rows = f->rows;
    struct batch batch = {.rows = &rows,
                          .n_rows = rows == NULL ? 0 : 1,
                          .payloads = f->payloads,
                          .n_payloads = f->n_payloads,
                          .data_sets = f->data_sets,
                          .n_data_sets = f->n_data_sets};
    enum err err = store_commit(copy->store, &copy->fence, &batch, e);
    return err;
}

static void trim(struct following *f, const struct copy *copy)
{
    static const struct memory_limits limits = {
        .ended_jobs = FEED_ENDED_JOBS, .tasks = FEED_TASKS, .payload_bytes = FEED_RESULT_BYTES, .events = FEED_EVENTS};
    int64_t now_mono_ms = clock_mono_ms();
    if (now_mono_ms >= f->trim_at_mono_ms) {
        memory_trim(copy->name, &limits);
        f->trim_at_mono_ms = now_mono_ms + TRIM_MS;
    }
}

/* ---- calls ---- */

static enum err open_channel(struct observer *o, const char *target, struct rpc_channel **out, struct error *e)
{
    struct rpc_channel_options options = o->channel;
    options.target = target;
    return rpc_channel_open(&options, out, e);
}

static enum err open_stream(struct following *f, const char *path, const void *message, struct rpc_stream **out,
                            struct error *e)
{
    struct buf bytes = {0};
    wire_encode(message, &bytes);
    struct rpc_request request = {.path = path, .bytes = bytes.data, .n = bytes.n, .cancel = f->o->cancel};
    enum err err = rpc_stream_open(f->channel, &request, out, e);
    buf_deinit(&bytes);
    return err;
}

/* The next message; a leader that is silent for too long is an error. */
static enum err next_message(struct rpc_stream *stream, int64_t silence_ms, struct buf *out, bool *out_end,
                             struct error *e)
{
    if (!rpc_stream_wait(stream, silence_ms)) {
        return error_set(e, ERR_UNAVAILABLE, "the leader has said nothing for %" PRId64 " ms", silence_ms);
    }
    return rpc_stream_next(stream, out, out_end, NULL, e);
}

/* ---- a snapshot ---- */

static void drop_fresh(struct following *f)
{
    copy_close(&f->fresh);
    f->whole_at = 0;
}

static enum err take_chunks(struct following *f, struct rpc_stream *stream, struct error *e)
{
    struct buf bytes = {0};
    struct arena arena = {0};
    struct pb_snapshot_chunk *chunk = NULL;
    bool is_end = false;
    enum err err = ERR_OK;
    uint64_t feed = 0;
    while (err == ERR_OK) {
        err = next_message(stream, SNAPSHOT_SILENCE_MS, &bytes, &is_end, e);
        if (err != ERR_OK || is_end) {
            break;
        }
        forget_changes(f);
        err = wire_decode(PB_SNAPSHOT_CHUNK, bytes.data, bytes.n, &arena, &chunk, e);
        if (err == ERR_OK) {
            err = read_changes(f, (const char *)chunk->rows_json.data, chunk->rows_json.len, e);
        }
        if (err == ERR_OK) {
            err = apply_changes(f, &f->fresh, e);
            feed = chunk->feed;
            f->position = chunk->position;
        }
        arena_reset(&arena);
    }
    if (err == ERR_OK && feed == 0) {
        err = error_set(e, ERR_DATA_LOSS, "the snapshot ends before its end");
    }
    f->feed = feed;
    buf_deinit(&bytes);
    arena_deinit(&arena);
    return err;
}

static enum err take_snapshot(struct following *f, struct error *e)
{
    struct rpc_stream *stream = NULL;
    struct arena arena = {0};
    char name[64];
    drop_fresh(f);
    f->has_place = false;
    snprintf(name, sizeof name, "%.48s-%" PRIu32, f->o->copy.name, ++f->n_snapshots);
    enum err err = copy_open(&f->fresh, name, e);
    if (err == ERR_OK) {
        err = open_stream(f, "/capstan.v1.Cluster/GetSnapshot", wire_new(PB_GET_SNAPSHOT_REQUEST, &arena), &stream, e);
    }
    if (err == ERR_OK) {
        err = take_chunks(f, stream, e);
    }
    rpc_stream_close(stream);
    arena_deinit(&arena);
    if (err != ERR_OK) {
        drop_fresh(f);
        return err;
    }
    f->has_place = true;
    return ERR_OK;
}

/* The fresh store takes the copy's place. */
static void exchange_copies(struct following *f)
{
    struct observer *o = f->o;
    memory_swap(o->copy.name, f->fresh.name);
    drop_fresh(f);
    pthread_mutex_lock(&o->lock);
    bool was_ready = o->is_ready;
    o->is_ready = true;
    pthread_mutex_unlock(&o->lock);
    log_info("observer", "%s from %s", was_ready ? "a new copy" : "a copy", o->leader.address);
    observer__changed(o, NULL);
    watch_everything(o->service->watch);
}

/* ---- the stream of changes ---- */

/* The head is from when the leader sent the message, which may have been long under way. */
static void note_complete(struct following *f, const struct pb_event *event, int64_t sent_mono_ms)
{
    struct observer *o = f->o;
    pthread_mutex_lock(&o->lock);
    o->leader_offset_ms = (int64_t)event->at_ms - sent_mono_ms;
    if (f->fresh.store == NULL && f->position >= event->head) {
        o->complete_mono_ms = sent_mono_ms;
    }
    pthread_mutex_unlock(&o->lock);
}

/* A whole batch is here. */
static enum err take_batch(struct following *f, bool *out_again, struct error *e)
{
    struct copy *copy = f->fresh.store != NULL ? &f->fresh : &f->o->copy;
    bool has_changes = f->rows != NULL || f->n_payloads > 0 || f->n_data_sets > 0;
    bool is_serving = copy == &f->o->copy;
    if (!has_changes) {
        return ERR_OK;
    }
    enum err err = apply_changes(f, copy, e);
    if (err == ERR_OK && is_serving && has_returned_job(f)) {
        *out_again = true;
    }
    if (err == ERR_OK && is_serving) {
        observer__changed(f->o, f->rows != NULL ? f->rows : &(struct row){.kind = ROW_META});
        watch_durable(f->o->service->watch, f->rows);
        trim(f, copy);
    }
    return err;
}

/* One message. `out_again`: only a snapshot helps. */
static enum err take_event(struct following *f, const struct pb_event *event, bool *out_again, struct error *e)
{
    int64_t sent_mono_ms = lag_sent_mono_ms(&f->lag, (int64_t)event->at_ms, clock_mono_ms());
    if (event->resync) {
        *out_again = true;
        return ERR_OK;
    }
    enum err err = read_changes(f, event->details, strlen(event->details), e);
    if (err != ERR_OK || event->more) {
        return err;
    }
    err = take_batch(f, out_again, e);
    forget_changes(f);
    if (err != ERR_OK || *out_again) {
        return err;
    }
    f->position = event->position;
    if (f->fresh.store != NULL) {
        f->whole_at = f->whole_at == 0 ? event->head : f->whole_at;
        if (f->position >= f->whole_at) {
            exchange_copies(f);
        }
    }
    note_complete(f, event, sent_mono_ms);
    return ERR_OK;
}

static enum err open_feed(struct following *f, struct rpc_stream **out, struct error *e)
{
    struct arena arena = {0};
    struct pb_watch_events_request *message = wire_new(PB_WATCH_EVENTS_REQUEST, &arena);
    message->follow = true;
    message->rows = true;
    message->feed = f->feed;
    message->position = f->position;
    enum err err = open_stream(f, "/capstan.v1.ControlPlane/WatchEvents", message, out, e);
    arena_deinit(&arena);
    return err;
}

/* Until the stream ends or only a snapshot helps. */
static enum err take_feed(struct following *f, bool *out_again, struct error *e)
{
    struct rpc_stream *stream = NULL;
    struct buf bytes = {0};
    struct arena arena = {0};
    bool is_end = false;
    forget_changes(f);
    f->lag = (struct lag){0};
    enum err err = open_feed(f, &stream, e);
    while (err == ERR_OK && !*out_again && !is_end) {
        struct pb_event *event = NULL;
        err = next_message(stream, f->o->silence_ms, &bytes, &is_end, e);
        if (err == ERR_OK && !is_end) {
            err = wire_decode(PB_EVENT, bytes.data, bytes.n, &arena, &event, e);
        }
        if (err == ERR_OK && !is_end) {
            err = take_event(f, event, out_again, e);
        }
        arena_reset(&arena);
    }
    if (err == ERR_INVALID || err == ERR_DATA_LOSS) { /* what came cannot be applied; a snapshot may be better */
        f->has_place = false;
    }
    rpc_stream_close(stream);
    buf_deinit(&bytes);
    arena_deinit(&arena);
    return err != ERR_OK || *out_again ? err : error_set(e, ERR_UNAVAILABLE, "the leader ended the stream");
}

/* ---- finding the leader ---- */

struct finding {
    char address[LIMIT_ADDRESS_BYTES + 1]; /* to ask next; "": nobody named one */
    bool is_leader;
};

/* Asks one coordinator who leads. If it does itself, its channel is the one to follow. */
static enum err ask_leader(struct following *f, const char *target, struct finding *out, struct error *e)
{
    struct rpc_channel *channel = NULL;
    struct buf bytes = {0};
    struct buf question = {0};
    struct arena arena = {0};
    struct pb_get_leader_response *answer = NULL;
    *out = (struct finding){0};
    wire_encode(wire_new(PB_GET_LEADER_REQUEST, &arena), &question);
    struct rpc_request request = {.path = "/capstan.v1.Cluster/GetLeader",
                                  .bytes = question.data,
                                  .n = question.n,
                                  .timeout_ms = CALL_MS,
                                  .cancel = f->o->cancel};
    enum err err = open_channel(f->o, target, &channel, e);
    if (err == ERR_OK) {
        err = rpc_unary(channel, &request, &bytes, NULL, e);
    }
    if (err == ERR_OK) {
        err = wire_decode(PB_GET_LEADER_RESPONSE, bytes.data, bytes.n, &arena, &answer, e);
    }
    if (err == ERR_OK) {
        snprintf(out->address, sizeof out->address, "%s", answer->address);
        out->is_leader = strcmp(answer->role, "leader") == 0;
        pthread_mutex_lock(&f->o->lock);
        if (answer->address[0] != '\0') {
            f->o->leader = (struct leader_news){.epoch = answer->epoch};
            snprintf(f->o->leader.node_id, sizeof f->o->leader.node_id, "%s", answer->node_id);
            snprintf(f->o->leader.address, sizeof f->o->leader.address, "%s", answer->address);
        }
        pthread_mutex_unlock(&f->o->lock);
    }
    if (err == ERR_OK && out->is_leader) {
        f->channel = channel;
        channel = NULL;
    }
    rpc_channel_close(channel);
    buf_deinit(&bytes);
    buf_deinit(&question);
    arena_deinit(&arena);
    return err;
}

/* Asks all of the list until one leads, but for the one that was asked already (NULL: none). */
static enum err find_leader(struct following *f, const char *asked, struct error *e)
{
    struct finding finding;
    struct error why = {0};
    error_set(&why, ERR_UNAVAILABLE, "none of those that were asked leads");
    why = asked != NULL && e->code != ERR_OK ? *e : why;
    for (uint32_t i = 0; i < f->o->n_targets && !is_stopping(f->o); i++) {
        if (asked != NULL && strcmp(f->o->targets[i], asked) == 0) {
            continue;
        }
        enum err err = ask_leader(f, f->o->targets[i], &finding, e);
        if (err == ERR_OK && !finding.is_leader && finding.address[0] != '\0' &&
            strcmp(finding.address, f->o->targets[i]) != 0) {
            char next[LIMIT_ADDRESS_BYTES + 1];
            snprintf(next, sizeof next, "%s", finding.address);
            err = ask_leader(f, next, &finding, e);
        }
        if (err == ERR_OK && finding.is_leader) {
            return ERR_OK;
        }
        why = err != ERR_OK ? *e : why;
    }
    *e = why;
    return why.code;
}

/* The one that led before may not be in the list. */
static enum err find_again(struct following *f, struct error *e)
{
    struct finding finding;
    struct leader_news last = observer_leader(f->o);
    if (last.address[0] == '\0') {
        return find_leader(f, NULL, e);
    }
    if (ask_leader(f, last.address, &finding, e) == ERR_OK && finding.is_leader) {
        return ERR_OK;
    }
    return find_leader(f, last.address, e);
}

/* ---- the thread ---- */

static void note_trouble(struct following *f, const struct error *e)
{
    if (e != NULL && !f->is_troubled && !is_stopping(f->o)) {
        log_warn("observer", "no leader can be followed at the moment, answers get older: %s", e->message);
    } else if (e == NULL && f->is_troubled) {
        log_info("observer", "following %s again", observer_leader(f->o).address);
    }
    f->is_troubled = e != NULL;
}

/* Follows the leader that was found, until it cannot be any more. */
static enum err follow_leader(struct following *f, struct error *e)
{
    enum err err = ERR_OK;
    while (err == ERR_OK && !is_stopping(f->o)) {
        bool again = false;
        if (!f->has_place) {
            err = take_snapshot(f, e);
        }
        if (err == ERR_OK) {
            note_trouble(f, NULL);
            err = take_feed(f, &again, e);
        }
        f->has_place = f->has_place && !again;
    }
    if (f->fresh.store != NULL) { /* half a snapshot is of no use with another stream */
        drop_fresh(f);
        f->has_place = false;
    }
    return err;
}

void *observer__follow(void *context)
{
    struct following f = {.o = context};
    int64_t pause_ms = PAUSE_MS_MIN;
    forget_changes(&f);
    while (!is_stopping(f.o)) {
        struct error e = {0};
        enum err err = find_again(&f, &e);
        if (err == ERR_OK) {
            pause_ms = PAUSE_MS_MIN;
            err = follow_leader(&f, &e);
        }
        rpc_channel_close(f.channel);
        f.channel = NULL;
        if (err != ERR_OK) {
            note_trouble(&f, &e);
        }
        nap(f.o, pause_ms);
        pause_ms = pause_ms * 2 < PAUSE_MS_MAX ? pause_ms * 2 : PAUSE_MS_MAX;
    }
    drop_fresh(&f);
    mem_free(f.payloads);
    mem_free(f.data_sets);
    arena_deinit(&f.arena);
    return NULL;
}
