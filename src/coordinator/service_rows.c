/*
 * The rows of a query: one Arrow stream, made of the streams that its final tasks have left.
 *
 * Each of these is a schema, batches of rows and an end. The first one's schema is sent, then everybody's batches in the
 * order of the tasks, then one end. A stream begins with its schema, whose length is in its first bytes, and its end is
 * eight bytes long; so the parts in between are found without a look into them. The schemas must agree. Small streams lie in
 * the store, others on the workers that made them, and come from there piece by piece.
 *
 * Between two chunks nothing runs: the transport says when it has taken one, and a clerk fetches the next. A slow reader
 * holds one chunk in memory and no thread. A worker that is silent holds a clerk, but only for a while, and only as long as
 * somebody waits for the rows; then others have a turn before it is tried again. It holds few of them: who has to wait for a
 * worker needs a place there, and without one stands in line, without a clerk, until somebody gives one back. So however
 * many ask for its rows, most clerks are there for other workers' rows, and those in line are served one after the other as
 * soon as it speaks again. Rows that lie in the store are read by clerks who never wait for a worker.
 */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "coordinator/places.h"
#include "coordinator/service_internal.h"
#include "exchange/channels.h"
#include "exchange/ipc.h"
#include "exchange/schema.h"
#include "exchange/serve.h"
#include "wire/message.h"

#define PREFIX_BYTES 8 /* of a message: a marker, and how long its head is */
#define END_BYTES 8
#define TRIES 3
#define SILENCE_MS 10000 /* so long a clerk waits for a worker that sends nothing */
#define LOOK_MS 250      /* so often it looks whether anybody still waits for the rows */
#define LOST_MAX 64

static const uint8_t stream_end[END_BYTES] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};

/* One final task's stream. */
struct piece {
    struct task_ref ref;
    uint32_t attempt;
    bool is_inline;
    uint64_t bytes; /* all of them, schema and end included */
    const char *worker_id;
    const char *address; /* NULL: the worker is not there */
};

struct relay {
    struct service *service;
    struct exchange *exchange; /* NULL: the rows are for this process itself */
    const char *job_id;
    const struct piece *pieces;
    uint32_t n_pieces;
    bool is_remote;  /* some of them lie on workers */
    uint32_t at;     /* the piece that is being sent; n_pieces: only the end is left */
    uint64_t offset; /* in it: the next byte to read */
    uint64_t skip;   /* bytes of the joined stream that the client has already */
    bool is_open;    /* `offset` is behind what was to be left out */
    bool is_last;
    struct rpc_channel *channel; /* while a stream from a worker is open */
    struct rpc_stream *stream;
    uint32_t n_failed; /* in a row */
    struct buf head;   /* of the first piece: the schema */
    struct buf chunk;
    const char *place;   /* the address where it may wait; NULL: nowhere */
    struct list in_line; /* for such a place */
    struct sender sender;
    clerk_fn *go_on; /* what a clerk does when it is its turn, */
    void *context;   /* with this */
};

/* ---- queries whose rows are gone ---- */

struct lost_results {
    pthread_mutex_t mutex;
    char jobs[LOST_MAX][LIMIT_ID_BYTES + 1];
    uint32_t next;
};

struct lost_results *lost_results_new(void)
{
    struct lost_results *lost = mem_calloc(1, sizeof *lost);
    pthread_mutex_init(&lost->mutex, NULL);
    return lost;
}

void lost_results_free(struct lost_results *lost)
{
    if (lost != NULL) {
        pthread_mutex_destroy(&lost->mutex);
        mem_free(lost);
    }
}

static bool has_locked(const struct lost_results *lost, const char *job_id)
{
    for (uint32_t i = 0; i < LOST_MAX; i++) {
        if (strcmp(lost->jobs[i], job_id) == 0) {
            return true;
        }
    }
    return false;
}

void lost_results_add(struct lost_results *lost, const char *job_id)
{
    pthread_mutex_lock(&lost->mutex);
    if (!has_locked(lost, job_id)) {
        size_t n = strlen(job_id);
        ASSERT(n <= LIMIT_ID_BYTES);
        memcpy(lost->jobs[lost->next++ % LOST_MAX], job_id, n + 1);
    }
    pthread_mutex_unlock(&lost->mutex);
}

bool lost_results_has(struct lost_results *lost, const char *job_id)
{
    pthread_mutex_lock(&lost->mutex);
    bool has = job_id[0] != '\0' && has_locked(lost, job_id);
    pthread_mutex_unlock(&lost->mutex);
    return has;
}

/* ---- the end ---- */

static void close_stream(struct relay *relay, bool is_broken)
{
    rpc_stream_close(relay->stream);
    relay->stream = NULL;
    if (relay->channel != NULL) {
        exchange_channels_give(relay->service->channels, relay->channel, is_broken);
        relay->channel = NULL;
    }
}

/* When it is this client's turn again. */
void relay_send(struct relay *relay)
{
    const struct service *service = relay->service;
    office_send(relay->is_remote ? service->fetchers : service->relays, relay->sender, relay->go_on, relay->context);
}

/* By a clerk, so there is one left to go on with the next in line, also when the service stops. */
static void give_place(struct relay *relay)
{
    if (relay->place != NULL) {
        struct list *next = places_give(relay->service->places, relay->place);
        relay->place = NULL;
        if (next != NULL) {
            relay_send(CONTAINER_OF(next, struct relay, in_line));
        }
    }
}

void relay_close(struct relay *relay)
{
    if (relay != NULL) {
        give_place(relay);
        close_stream(relay, false);
        buf_deinit(&relay->head);
        buf_deinit(&relay->chunk);
        mem_free(relay);
    }
}

static void end_relay(struct relay *relay, const struct error *e)
{
    struct exchange *exchange = relay->exchange;
    relay_close(relay);
    if (e != NULL) {
        exchange_fail(exchange, e);
    } else {
        exchange_end(exchange);
    }
}

/* ---- bytes of one piece, from `offset` on ---- */

static enum err say_lost(struct relay *relay, const struct piece *piece, const char *why, struct error *e)
{
    lost_results_add(relay->service->lost, relay->job_id);
    error_set(e, ERR_DATA_LOSS, "rows of job '%s' that worker '%s' had are lost: %s", relay->job_id, piece->worker_id,
              why);
    error_hint(e, "capstan retry %s computes them again", relay->job_id);
    return ERR_DATA_LOSS;
}

static enum err read_stored(struct relay *relay, struct clerk *clerk, const struct piece *piece, struct arena *arena,
                            const uint8_t **out, size_t *out_n, struct error *e)
{
    struct digest digest = service__result_digest(piece->ref, piece->attempt);
    const void *bytes = NULL;
    size_t n = 0;
    struct store *store;
    enum err err = clerk_store(clerk, &store, e);
    if (err == ERR_OK) {
        err = clerk_note(clerk, store_payload(store, relay->job_id, &digest, arena, &bytes, &n, e));
    }
    if (err == ERR_NOT_FOUND || (err == ERR_OK && n != piece->bytes)) {
        return error_set(e, ERR_DATA_LOSS, "rows of job '%s' are not in the store", relay->job_id);
    }
    if (err == ERR_OK) {
        *out = (const uint8_t *)bytes + relay->offset;
        *out_n = n - (size_t)relay->offset;
    }
    return err;
}

static enum err open_stream(struct relay *relay, const struct piece *piece, struct error *e)
{
    struct service *service = relay->service;
    struct arena arena = {0};
    struct buf bytes = {0};
    struct pb_fetch_shuffle_partition_request *message = wire_new(PB_FETCH_SHUFFLE_PARTITION_REQUEST, &arena);
    message->query_id = (char *)(uintptr_t)relay->job_id;
    message->stage_id = piece->ref.stage;
    message->map_task = piece->ref.task;
    message->attempt = piece->attempt;
    message->offset = relay->offset;
    wire_encode(message, &bytes);
    struct rpc_request request = {
        .path = EXCHANGE_FETCH_PATH, .bytes = bytes.data, .n = bytes.n, .cancel = service->closing};
    enum err err = exchange_channels_take(service->channels, piece->address, &relay->channel, e);
    if (err == ERR_OK) {
        err = rpc_stream_open(relay->channel, &request, &relay->stream, e);
    }
    buf_deinit(&bytes);
    arena_deinit(&arena);
    return err;
}

/* ERR_DEADLINE if the worker sends nothing; what exchange_look says if nobody waits for the rows any more. */
static enum err await_bytes(struct relay *relay, struct error *e)
{
    int64_t until_mono_ms = clock_mono_ms() + SILENCE_MS;
    enum err err = ERR_OK;
    while (err == ERR_OK && !rpc_stream_wait(relay->stream, LOOK_MS)) {
        err = relay->exchange == NULL ? ERR_OK : exchange_look(relay->exchange, e);
        if (err == ERR_OK && clock_mono_ms() >= until_mono_ms) {
            err = error_set(e, ERR_DEADLINE, "worker '%s' has sent nothing of job '%s' for %d s",
                            relay->pieces[relay->at].worker_id, relay->job_id, SILENCE_MS / 1000);
        }
    }
    return err;
}

static enum err read_once(struct relay *relay, const struct piece *piece, struct arena *arena, const uint8_t **out,
                          size_t *out_n, struct error *e)
{
    struct pb_shuffle_partition_chunk *message = NULL;
    struct buf bytes = {0};
    bool is_end = false;
    enum err err = relay->stream == NULL ? open_stream(relay, piece, e) : ERR_OK;
    if (err == ERR_OK) {
        err = await_bytes(relay, e);
    }
    if (err == ERR_OK) {
        err = rpc_stream_next(relay->stream, &bytes, &is_end, NULL, e);
    }
    if (err == ERR_OK && is_end) {
        err =
            error_set(e, ERR_DATA_LOSS, "they end after %" PRIu64 " of %" PRIu64 " bytes", relay->offset, piece->bytes);
    }
    if (err == ERR_OK) {
        err = wire_decode(PB_SHUFFLE_PARTITION_CHUNK, bytes.data, bytes.n, arena, &message, e);
    }
    if (err == ERR_OK) {
        *out = message->payload.data;
        *out_n = message->payload.len;
    }
    buf_deinit(&bytes);
    return err;
}

/* What a worker has. Whoever tries again after a failure goes on at the same byte, over a new connection. */
static enum err read_remote(struct relay *relay, const struct piece *piece, struct arena *arena, const uint8_t **out,
                            size_t *out_n, struct error *e)
{
    if (piece->address == NULL) {
        error_set(e, ERR_UNAVAILABLE, "worker '%s', which has rows of job '%s', is not there", piece->worker_id,
                  relay->job_id);
        error_hint(e, "start it again with its data folder, or run the query once more");
        lost_results_add(relay->service->lost, relay->job_id);
        relay->n_failed = TRIES;
        return ERR_UNAVAILABLE;
    }
    int64_t began_us = clock_mono_us();
    enum err err = read_once(relay, piece, arena, out, out_n, e);
    give_place(relay);
    if (err == ERR_OK) {
        metric_observe(&relay->service->metrics.fetch_seconds, (double)(clock_mono_us() - began_us) / 1e6);
        exchange_channels_count(relay->service->channels, *out_n);
        relay->n_failed = 0;
        return ERR_OK;
    }
    bool is_told = err == ERR_NOT_FOUND || err == ERR_DATA_LOSS;
    bool is_unwanted = err == ERR_CANCELED || err == ERR_UNAUTHENTICATED;
    close_stream(relay, !is_told && !is_unwanted);
    relay->n_failed = is_told || is_unwanted ? TRIES : relay->n_failed + 1;
    if (is_told) {
        struct error why = *e;
        return say_lost(relay, piece, why.message, e);
    }
    return err;
}

static enum err read_piece(struct relay *relay, struct clerk *clerk, struct arena *arena, const uint8_t **out,
                           size_t *out_n, struct error *e)
{
    const struct piece *piece = &relay->pieces[relay->at];
    return piece->is_inline ? read_stored(relay, clerk, piece, arena, out, out_n, e)
                            : read_remote(relay, piece, arena, out, out_n, e);
}

/* ---- the joined stream ---- */

static enum err say_broken(const struct relay *relay, struct error *e)
{
    return error_set(e, ERR_DATA_LOSS, "the rows of task %" PRIu32 " of job '%s' are no Arrow stream",
                     relay->pieces[relay->at].ref.task, relay->job_id);
}

static void next_piece(struct relay *relay)
{
    close_stream(relay, false);
    relay->at++;
    relay->offset = 0;
    relay->is_open = false;
}

/* Adds bytes of the piece that are at `from` in it to the chunk, up to the piece's end. */
static void add_bytes(struct relay *relay, uint64_t from, const uint8_t *bytes, size_t n)
{
    uint64_t left = relay->pieces[relay->at].bytes - END_BYTES - from;
    uint64_t taken = n < left ? n : left;
    buf_append(&relay->chunk, bytes, (size_t)taken);
    relay->offset = from + n;
    if (taken == left) {
        next_piece(relay);
    }
}

/* Reads a schema message; NULL if it is none. The caller frees it. */
static struct ipc_reader *read_head(const void *bytes, size_t n)
{
    struct ipc_reader *reader = ipc_reader_new(&(struct ipc_reader_options){0});
    struct block *message = block_new(n);
    struct ArrowArray none = {0};
    memcpy(message->bytes, bytes, n);
    if (ipc_reader_message(reader, message, 0, n, &none, NULL) != ERR_OK || ipc_reader_schema(reader) == NULL) {
        ipc_reader_free(reader);
        reader = NULL;
    }
    block_unref(message);
    return reader;
}

/*
 * All pieces must have the columns of the first, or their rows would be read as something else. Plans of the planner see to
 * that; SQL and operators of others may not. Schemas that are longer than a chunk are not looked at.
 */
static enum err check_head(struct relay *relay, const uint8_t *bytes, size_t n, struct error *e)
{
    if (relay->at == 0) {
        buf_reset(&relay->head);
        buf_append(&relay->head, bytes, n);
        return ERR_OK;
    }
    if (relay->head.n == 0 || (relay->head.n == n && memcmp(relay->head.data, bytes, n) == 0)) {
        return ERR_OK;
    }
    struct ipc_reader *first = read_head(relay->head.data, relay->head.n);
    struct ipc_reader *other = read_head(bytes, n);
    bool is_same =
        first != NULL && other != NULL && schema_is_equal(ipc_reader_schema(first), ipc_reader_schema(other));
    ipc_reader_free(first);
    ipc_reader_free(other);
    if (!is_same) {
        error_set(e, ERR_PRECONDITION,
                  "the rows of task %" PRIu32 " of job '%s' have other columns than those of task %" PRIu32,
                  relay->pieces[relay->at].ref.task, relay->job_id, relay->pieces[0].ref.task);
        error_hint(e, "the SQL of a plan's last stage must give the same names and types for all splits: add casts");
    }
    return is_same ? ERR_OK : ERR_PRECONDITION;
}

/*
 * The first bytes of a piece are here: finds where its part of the joined stream begins, goes over what the client has
 * already, and adds what is left of them.
 */
static enum err begin_piece(struct relay *relay, const uint8_t *bytes, size_t n, struct error *e)
{
    const struct piece *piece = &relay->pieces[relay->at];
    uint32_t head = 0;
    if (n < PREFIX_BYTES) {
        return say_broken(relay, e);
    }
    memcpy(&head, bytes + 4, sizeof head); /* little-endian, as the machine */
    if (PREFIX_BYTES + (uint64_t)head + END_BYTES > piece->bytes) {
        return say_broken(relay, e);
    }
    uint64_t head_bytes = PREFIX_BYTES + (uint64_t)head;
    enum err err = head_bytes <= n ? check_head(relay, bytes, (size_t)head_bytes, e) : ERR_OK;
    if (err != ERR_OK) {
        return err;
    }
    uint64_t from = relay->at == 0 ? 0 : head_bytes;
    uint64_t length = piece->bytes - END_BYTES - from;
    if (relay->skip >= length) {
        relay->skip -= length;
        next_piece(relay);
        return ERR_OK;
    }
    from += relay->skip;
    relay->skip = 0;
    relay->is_open = true;
    if (from < n) {
        add_bytes(relay, from, bytes + from, n - (size_t)from);
    } else {
        close_stream(relay, false);
        relay->offset = from;
    }
    return ERR_OK;
}

/* Adds the next bytes of the current piece to the chunk. */
static enum err take_bytes(struct relay *relay, struct clerk *clerk, struct error *e)
{
    struct arena arena = {0};
    const uint8_t *bytes = NULL;
    size_t n = 0;
    enum err err = read_piece(relay, clerk, &arena, &bytes, &n, e);
    if (err == ERR_OK && !relay->is_open) {
        err = begin_piece(relay, bytes, n, e);
    } else if (err == ERR_OK) {
        add_bytes(relay, relay->offset, bytes, n);
    }
    arena_deinit(&arena);
    return err;
}

/* A worker did not answer, and it has not been tried often enough. */
bool relay_may_go_on(const struct relay *relay)
{
    return relay->n_failed > 0 && relay->n_failed < TRIES;
}

/*
 * Whether the next bytes can be read now: nobody has to wait for them, or there is a place to wait. If not, a relay with an
 * empty chunk stands in line and is not to be touched any more.
 */
static bool is_its_turn(struct relay *relay)
{
    const struct piece *piece = &relay->pieces[relay->at];
    if (piece->is_inline || piece->address == NULL || relay->place != NULL ||
        (relay->stream != NULL && rpc_stream_wait(relay->stream, 0))) {
        return true;
    }
    relay->place = piece->address; /* before: whoever goes on with it has the place */
    bool may_stand = relay->chunk.n == 0;
    bool is_free =
        places_take(relay->service->places, piece->address, relay->sender, may_stand ? &relay->in_line : NULL);
    if (!is_free && !may_stand) {
        relay->place = NULL;
    }
    return is_free;
}

/* `out_in_line`: it has no bytes and stands in line; it is not to be touched any more. */
static enum err fill_chunk(struct relay *relay, struct clerk *clerk, bool *out_in_line, struct error *e)
{
    enum err err = ERR_OK;
    while (err == ERR_OK && relay->at < relay->n_pieces && relay->chunk.n < EXCHANGE_CHUNK_BYTES) {
        bool is_empty = relay->chunk.n == 0;
        if (!is_its_turn(relay)) {
            *out_in_line = is_empty; /* else what is there goes first */
            return ERR_OK;
        }
        err = take_bytes(relay, clerk, e);
    }
    if (err != ERR_OK && relay_may_go_on(relay) && relay->chunk.n > 0) {
        return ERR_OK; /* what is there goes first */
    }
    if (err == ERR_OK && relay->at == relay->n_pieces) {
        size_t from = relay->skip < END_BYTES ? (size_t)relay->skip : END_BYTES;
        buf_append(&relay->chunk, stream_end + from, END_BYTES - from);
        relay->is_last = true;
    }
    return err;
}

enum err relay_next(struct relay *relay, struct clerk *clerk, const struct buf **out_chunk, struct error *e)
{
    static const struct buf nothing = {0};
    if (relay->is_last) {
        *out_chunk = &nothing;
        return ERR_OK;
    }
    bool is_in_line = false;
    buf_reset(&relay->chunk);
    enum err err = fill_chunk(relay, clerk, &is_in_line, e);
    if (err == ERR_OK) {
        *out_chunk = is_in_line ? NULL : &relay->chunk;
    }
    return err;
}

static void chunk_sent(void *context, struct rpc_call *call, bool ok)
{
    struct relay *relay = context;
    struct error e = {0};
    UNUSED(call);
    if (!ok) {
        error_set(&e, ERR_CANCELED, "the client has gone");
        end_relay(relay, &e);
    } else if (relay->is_last) {
        end_relay(relay, NULL);
    } else {
        relay_send(relay);
    }
}

static void make_chunk(struct clerk *clerk, void *context)
{
    struct relay *relay = context;
    struct error e = {0};
    struct arena arena = {0};
    const struct buf *chunk = NULL;
    enum err err = exchange_look(relay->exchange, &e);
    if (err == ERR_OK) {
        err = relay_next(relay, clerk, &chunk, &e);
        if (err != ERR_OK && relay_may_go_on(relay)) {
            relay_send(relay);
            return;
        }
    }
    if (err != ERR_OK) {
        end_relay(relay, &e);
        return;
    }
    if (chunk == NULL) {
        return; /* in line */
    }
    struct pb_query_results_chunk *message = wire_new(PB_QUERY_RESULTS_CHUNK, &arena);
    message->payload.data = (uint8_t *)chunk->data;
    message->payload.len = chunk->n;
    exchange_stream(relay->exchange, message, chunk_sent, relay);
    arena_deinit(&arena);
}

/* ---- the beginning: which pieces there are, and where ---- */

void *service__read_pieces(const struct core *core, const char *job_id, struct arena *arena)
{
    const struct result_info *results = NULL;
    struct result_pieces *found = arena_zalloc(arena, sizeof *found);
    found->n = core_results(core, job_id, arena, &results);
    found->pieces = arena_zalloc(arena, found->n * sizeof *found->pieces);
    for (uint32_t i = 0; i < found->n; i++) {
        const struct output_info *output = &results[i].output;
        found->pieces[i] = (struct piece){.ref = results[i].ref,
                                          .attempt = output->attempt,
                                          .is_inline = output->is_inline,
                                          .bytes = output->bytes,
                                          .worker_id = arena_strdup(arena, output->worker_id)};
        found->pieces[i].ref.job_id = arena_strdup(arena, job_id);
        found->n_rows += output->rows;
        found->is_remote |= !output->is_inline;
    }
    return found;
}

void service__read_addresses(const struct core *core, struct result_pieces *pieces, struct arena *arena)
{
    for (uint32_t i = 0; i < pieces->n; i++) {
        struct piece *piece = &pieces->pieces[i];
        struct node_info node;
        if (!piece->is_inline && core_node(core, piece->worker_id, &node) == ERR_OK && node.status == NODE_HEALTHY) {
            piece->address = arena_strdup(arena, node.address);
        }
    }
}

struct relay *relay_open(struct service *service, const char *job_id, const struct result_pieces *pieces,
                         clerk_fn *go_on, void *context)
{
    struct relay *relay = mem_calloc(1, sizeof *relay);
    *relay = (struct relay){.service = service,
                            .job_id = job_id,
                            .pieces = pieces->pieces,
                            .n_pieces = pieces->n,
                            .is_remote = pieces->is_remote,
                            .sender = SENDER_SELF,
                            .go_on = go_on,
                            .context = context};
    return relay;
}

static void send_pieces(struct exchange *exchange, const struct result_pieces *pieces)
{
    const struct pb_fetch_query_results_request *message = exchange->message;
    struct relay *relay = relay_open(exchange->service, message->query_id, pieces, make_chunk, NULL);
    relay->context = relay;
    relay->exchange = exchange;
    relay->sender = exchange->request->sender;
    relay->skip = message->offset;
    relay_send(relay);
}

static void read_addresses(const struct core *core, struct request *request)
{
    service__read_addresses(core, exchange_of(request)->more, &request->arena);
}

static void answer_addresses(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        send_pieces(exchange, exchange->more);
    }
}

static void start_relay(struct exchange *exchange, void *context)
{
    const struct pb_fetch_query_results_request *message = exchange->message;
    struct result_pieces *pieces = context;
    struct error e = {0};
    if (pieces->n == 0) {
        error_set(&e, ERR_PRECONDITION, "job '%s' has no rows at this moment", message->query_id);
        exchange_fail(exchange, &e);
    } else if (pieces->is_remote) {
        exchange->more = pieces;
        exchange->request->read = read_addresses;
        exchange_send(exchange, answer_addresses);
    } else {
        send_pieces(exchange, pieces);
    }
}

void service__send_rows(struct exchange *exchange)
{
    const struct pb_fetch_query_results_request *message = exchange->message;
    exchange->has_rows = true;
    service__ask(exchange, &(struct job_question){
                               .job_id = message->query_id, .read = service__read_pieces, .then = start_relay});
}
