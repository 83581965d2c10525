/*
 * Snapshots for observers: the state as the store has it, chunk by chunk.
 *
 * One clerk, who does nothing else, reads and sends. Jobs that have not ended, and the nodes, come from one consistent
 * picture (store_load); then come the newest of those that have, whole jobs until there is enough; then events and data
 * sets. What has changed since the picture may be among the latter; it comes once more with the feed.
 *
 * The clerk waits until the transport has taken a chunk before it makes the next, so a snapshot holds one chunk in memory,
 * and a reader that takes nothing for a while, or too little all the time, is dropped: others wait for the clerk.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "coordinator/feed.h"
#include "coordinator/service_internal.h"
#include "store/row_json.h"

#define CHUNK_BYTES ((size_t)256 * 1024)
#define JOBS_PER_PAGE 100
#define EVENTS_PER_PAGE 500
#define RESULTS_AT_A_TIME 16 /* each may have a mebibyte */

/* A result that tasks have left in the store. */
struct wanted {
    const char *job_id;
    struct digest digest;
};

struct snapshot {
    struct exchange *exchange;
    struct clerk *clerk;
    struct store *store;
    struct buf rows;
    struct arena scratch;
    struct arena names; /* of the jobs in `wanted` */
    struct wanted *wanted;
    uint32_t n_wanted;
    uint32_t cap_wanted;
    uint64_t seq;
    uint32_t n_jobs; /* that have ended, sent so far */
    uint32_t n_tasks;
    uint64_t n_bytes;
    struct patience patience;
    enum err err; /* the first thing that went wrong */
    struct error e;

    pthread_mutex_t lock;
    pthread_cond_t taken;
    bool is_taken;
    bool is_gone;
};

/* ---- chunks ---- */

static void chunk_sent(void *context, struct rpc_call *call, bool ok)
{
    struct snapshot *s = context;
    UNUSED(call);
    pthread_mutex_lock(&s->lock);
    s->is_taken = true;
    s->is_gone = !ok;
    pthread_cond_signal(&s->taken);
    pthread_mutex_unlock(&s->lock);
}

static enum err await_taken(struct snapshot *s)
{
    int64_t since_mono_ms = clock_mono_ms();
    int64_t until_mono_ms = since_mono_ms + s->patience.left_ms;
    struct timespec until = {.tv_sec = (time_t)(until_mono_ms / 1000), .tv_nsec = (until_mono_ms % 1000) * 1000000};
    int error = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->is_taken && error != ETIMEDOUT && !atomic_load(&s->exchange->service->is_stopping)) {
        error = pthread_cond_timedwait(&s->taken, &s->lock, &until);
    }
    bool is_taken = s->is_taken;
    bool is_gone = s->is_gone;
    pthread_mutex_unlock(&s->lock);
    patience_spend(&s->patience, clock_mono_ms() - since_mono_ms, s->rows.n);
    if (!is_taken) {
        return error_set(&s->e, ERR_DEADLINE, "the snapshot is not being read, or too slowly");
    }
    return is_gone ? error_set(&s->e, ERR_CANCELED, "the client has gone") : ERR_OK;
}

static void send_chunk(struct snapshot *s, const struct feed_place *place)
{
    struct arena arena = {0};
    s->err = s->err == ERR_OK ? exchange_look(s->exchange, &s->e) : s->err;
    if (s->err != ERR_OK) {
        buf_reset(&s->rows);
        return;
    }
    struct pb_snapshot_chunk *chunk = wire_new(PB_SNAPSHOT_CHUNK, &arena);
    if (s->rows.n > 0) {
        buf_char(&s->rows, ']');
    }
    chunk->rows_json.data = (uint8_t *)s->rows.data;
    chunk->rows_json.len = s->rows.n;
    if (place != NULL) {
        chunk->seq = s->seq;
        chunk->feed = place->feed;
        chunk->position = place->position;
    }
    s->is_taken = false;
    exchange_stream(s->exchange, chunk, chunk_sent, s);
    s->err = await_taken(s);
    buf_reset(&s->rows);
    arena_deinit(&arena);
}

/* The next change is about to be written. */
static void begin_change(struct snapshot *s)
{
    if (s->rows.n >= CHUNK_BYTES) {
        send_chunk(s, NULL);
    }
    buf_char(&s->rows, s->rows.n == 0 ? '[' : ',');
}

/* ---- rows ---- */

static void want(struct snapshot *s, const char *job_id, const struct digest *digest)
{
    s->wanted = mem_grow(s->wanted, &s->cap_wanted, s->n_wanted + 1, sizeof *s->wanted);
    const struct wanted *last = s->n_wanted == 0 ? NULL : &s->wanted[s->n_wanted - 1];
    bool is_same = last != NULL && strcmp(last->job_id, job_id) == 0;
    s->wanted[s->n_wanted++] =
        (struct wanted){.job_id = is_same ? last->job_id : arena_strdup(&s->names, job_id), .digest = *digest};
}

static void want_results(struct snapshot *s, const struct row *row)
{
    const struct row_task *task = (const struct row_task *)(const void *)row;
    const struct row_result *result = (const struct row_result *)(const void *)row;
    if (row->kind == ROW_TASK && task->result_bytes > 0) {
        want(s, task->ref.job_id, &task->result);
    } else if (row->kind == ROW_RESULT && result->is_inline) {
        struct digest digest = service__result_digest(result->ref, result->attempt);
        want(s, result->ref.job_id, &digest);
    }
}

static void add_row(void *context, const struct row *row)
{
    struct snapshot *s = context;
    if (row->kind == ROW_META) {
        s->seq = ((const struct row_meta *)(const void *)row)->last_event_seq;
    }
    if (row->kind == ROW_META || row->kind == ROW_ATTEMPT || s->err != ERR_OK) {
        return;
    }
    begin_change(s);
    bool is_written = row_json_write(row, &s->rows, &s->scratch);
    ASSERT(is_written);
    arena_reset(&s->scratch);
    s->n_tasks += row->kind == ROW_TASK;
    want_results(s, row);
}

/* Those of one job, from `from` on; returns how many were looked for. */
static uint32_t add_some_results(struct snapshot *s, uint32_t from)
{
    struct digest digests[RESULTS_AT_A_TIME];
    struct found_bytes found[RESULTS_AT_A_TIME] = {{0}};
    const char *job_id = s->wanted[from].job_id;
    uint32_t n = 0;
    while (n < RESULTS_AT_A_TIME && from + n < s->n_wanted && strcmp(s->wanted[from + n].job_id, job_id) == 0) {
        digests[n] = s->wanted[from + n].digest;
        n++;
    }
    s->err = clerk_note(s->clerk, store_payloads(s->store, job_id, digests, n, &s->scratch, found, &s->e));
    for (uint32_t i = 0; i < n && s->err == ERR_OK; i++) {
        struct payload payload = {
            .job_id = job_id, .digest = digests[i], .bytes = found[i].bytes, .n_bytes = found[i].n_bytes};
        if (found[i].bytes != NULL) {
            begin_change(s);
            row_json_write_payload(&payload, &s->rows);
            s->n_bytes += found[i].n_bytes;
        }
    }
    arena_reset(&s->scratch);
    return n;
}

static void add_results(struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n_wanted && s->err == ERR_OK;) {
        i += add_some_results(s, i);
    }
    s->n_wanted = 0;
    arena_reset(&s->names);
}

/* ---- the parts of a snapshot ---- */

static void add_open_jobs(struct snapshot *s)
{
    if (s->err == ERR_OK) {
        enum err err = clerk_note(s->clerk, store_load(s->store, add_row, s, &s->e));
        s->err = s->err != ERR_OK ? s->err : err;
    }
    add_results(s);
}

static void add_ended_job(struct snapshot *s, const char *job_id)
{
    enum err err = clerk_note(s->clerk, store_load_job(s->store, job_id, add_row, s, &s->e));
    if (s->err == ERR_OK && err != ERR_NOT_FOUND) { /* it may have been removed just now */
        s->err = err;
    }
    s->n_jobs++;
    add_results(s);
}

static bool has_enough(const struct snapshot *s)
{
    return s->n_jobs >= FEED_ENDED_JOBS || s->n_tasks >= FEED_TASKS || s->n_bytes >= FEED_RESULT_BYTES;
}

static void add_ended_jobs(struct snapshot *s)
{
    struct job_query query = {.state = -1, .limit = JOBS_PER_PAGE};
    struct arena arenas[2] = {{0}}; /* of this page, and of the one before, which has the cursor */
    int at = 0;
    do {
        struct page page = {0};
        struct arena *arena = &arenas[at];
        arena_reset(arena);
        if (s->err == ERR_OK) {
            s->err = clerk_note(s->clerk, store_jobs(s->store, &query, arena, &page, &s->e));
        }
        for (uint32_t i = 0; i < page.n_rows && s->err == ERR_OK && !has_enough(s); i++) {
            const struct row_job *job = (const struct row_job *)(const void *)page.rows[i];
            if (job_state_is_terminal(job->state)) {
                add_ended_job(s, job->job_id);
            }
        }
        query.after = page.next;
        at = 1 - at;
    } while (s->err == ERR_OK && query.after != NULL && !has_enough(s));
    arena_deinit(&arenas[0]);
    arena_deinit(&arenas[1]);
}

static void add_events(struct snapshot *s)
{
    struct event_query query = {.after_seq = s->seq > FEED_EVENTS ? s->seq - FEED_EVENTS : 0, .limit = EVENTS_PER_PAGE};
    struct arena arena = {0};
    struct page page = {0};
    uint64_t pruned_seq = 0;
    do {
        page = (struct page){0};
        if (s->err == ERR_OK) {
            s->err = clerk_note(s->clerk, store_events(s->store, &query, &arena, &page, &pruned_seq, &s->e));
        }
        for (uint32_t i = 0; i < page.n_rows; i++) {
            query.after_seq = ((const struct row_event *)(const void *)page.rows[i])->seq;
            add_row(s, page.rows[i]);
        }
        arena_reset(&arena);
    } while (s->err == ERR_OK && page.n_rows == EVENTS_PER_PAGE);
    arena_deinit(&arena);
}

static void add_data_sets(struct snapshot *s)
{
    const struct data_set *sets = NULL;
    uint32_t n = 0;
    if (s->err == ERR_OK) {
        s->err = clerk_note(s->clerk, store_data_sets(s->store, &s->scratch, &sets, &n, &s->e));
    }
    for (uint32_t i = 0; i < n && s->err == ERR_OK; i++) {
        begin_change(s);
        row_json_write_data_set(&sets[i], &s->rows);
    }
}

static void init(struct snapshot *s)
{
    pthread_condattr_t attributes;
    int error = pthread_mutex_init(&s->lock, NULL);
    error |= pthread_condattr_init(&attributes);
    error |= pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    error |= pthread_cond_init(&s->taken, &attributes);
    error |= pthread_condattr_destroy(&attributes);
    ASSERT(error == 0);
}

static void deinit(struct snapshot *s)
{
    pthread_cond_destroy(&s->taken);
    pthread_mutex_destroy(&s->lock);
    buf_deinit(&s->rows);
    arena_deinit(&s->scratch);
    arena_deinit(&s->names);
    mem_free(s->wanted);
}

static void make_snapshot(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    struct feed *feed = exchange->service->feed;
    struct snapshot s = {.exchange = exchange, .clerk = clerk, .patience = exchange->service->patience};
    init(&s);
    struct feed_place place = feed_enter(feed); /* first, so that nothing can slip by */
    s.err = exchange_is_gone(exchange) ? error_set(&s.e, ERR_CANCELED, "the client has gone")
                                       : clerk_store(clerk, &s.store, &s.e);
    add_open_jobs(&s);
    add_ended_jobs(&s);
    add_events(&s);
    add_data_sets(&s);
    send_chunk(&s, &place);
    feed_leave(feed);
    if (s.err != ERR_OK && s.e.code == ERR_OK) {
        error_set(&s.e, s.err, "%s", err_text(s.err));
    }
    if (s.err != ERR_OK) {
        exchange_fail(exchange, &s.e); /* nothing is told about a chunk on its way any more */
    } else {
        exchange_end(exchange);
    }
    deinit(&s);
}

void service__GetSnapshot(struct exchange *exchange)
{
    if (exchange_needs_leader(exchange)) {
        office_send(exchange->service->copyists, exchange->request->sender, make_snapshot, exchange);
    }
}
