#include "cli/rows.h"

#include "base/arena.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "exchange/ipc.h"

/* Connections in a row that break before they bring a byte, after which it is no accident any more. */
#define FRUITLESS_MAX 5

struct rows {
    struct cli *cli;
    struct client *client;
    const char *job_id;
    rows_bytes_fn *on_bytes;
    void *context;
    struct client_stream *stream; /* NULL: to be opened */
    uint64_t offset;              /* bytes that came */
    uint32_t fruitless;
    struct arena arena; /* of the chunk */
    const uint8_t *chunk;
    size_t n_chunk;
    size_t taken; /* bytes of the chunk that are done */
    bool has_ended;
    struct ipc_assembler assembler;
    struct ipc_reader *reader;
    struct ArrowArray ready; /* a batch that was read while the schema was looked for */
};

enum err rows_open(struct cli *cli, const char *job_id, rows_bytes_fn *on_bytes, void *context, struct rows **out,
                   struct error *e)
{
    struct client *client = NULL;
    enum err err = cli_client(cli, &client, e);
    if (err != ERR_OK) {
        return err;
    }
    struct rows *rows = mem_calloc(1, sizeof *rows);
    *rows = (struct rows){.cli = cli, .client = client, .job_id = job_id, .on_bytes = on_bytes, .context = context};
    /* What a coordinator sends has checksums, but a plan's operator could bring a stream of its own. */
    rows->reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = false});
    *out = rows;
    return ERR_OK;
}

void rows_close(struct rows *rows)
{
    if (rows == NULL) {
        return;
    }
    if (rows->ready.release != NULL) {
        rows->ready.release(&rows->ready);
    }
    client_stream_close(rows->stream);
    ipc_assembler_deinit(&rows->assembler);
    ipc_reader_free(rows->reader);
    arena_deinit(&rows->arena);
    mem_free(rows);
}

static void open_stream(struct rows *rows)
{
    struct pb_fetch_query_results_request *request = wire_new(PB_FETCH_QUERY_RESULTS_REQUEST, &rows->arena);
    request->query_id = (char *)rows->job_id;
    request->offset = rows->offset;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/FetchQueryResults",
                               .message = request,
                               .answer = PB_QUERY_RESULTS_CHUNK,
                               .cancel = rows->cli->cancel};
    client_stream_open(rows->client, &call, &rows->stream);
}

/* Whether the connection broke, not the result. After Ctrl-C the next try says so at once. */
static bool is_broken(enum err err)
{
    return err == ERR_UNAVAILABLE || err == ERR_BUSY || err == ERR_FENCED || err == ERR_CANCELED || err == ERR_DEADLINE;
}

/* Brings the next chunk, over a new connection if the old one broke. */
static enum err fetch_chunk(struct rows *rows, struct error *e)
{
    for (;;) {
        struct pb_query_results_chunk *chunk = NULL;
        bool is_new = rows->stream == NULL;
        arena_reset(&rows->arena);
        if (is_new) {
            open_stream(rows);
        }
        enum err err = client_stream_next(rows->stream, &rows->arena, &chunk, &rows->has_ended, e);
        if (err == ERR_OK) {
            rows->chunk = rows->has_ended ? NULL : chunk->payload.data;
            rows->n_chunk = rows->has_ended ? 0 : chunk->payload.len;
            rows->taken = 0;
            rows->offset += rows->n_chunk;
            rows->fruitless = rows->n_chunk > 0 ? 0 : rows->fruitless;
            return ERR_OK;
        }
        client_stream_close(rows->stream);
        rows->stream = NULL;
        /* A stream that has not begun has tried all servers as long as there was patience. */
        if (is_new || !is_broken(err) || ++rows->fruitless > FRUITLESS_MAX) {
            return err;
        }
    }
}

/* Takes what there is of the chunk, up to one message. */
static enum err take_message(struct rows *rows, struct ArrowArray *out, struct error *e)
{
    struct block *message = NULL;
    size_t taken = 0;
    if (rows->assembler.wants > 0) {
        ipc_assembler_admit(&rows->assembler);
    }
    enum err err = ipc_assembler_feed(&rows->assembler, rows->chunk + rows->taken, rows->n_chunk - rows->taken, &taken,
                                      &message, e);
    rows->taken += taken;
    if (err == ERR_OK && message != NULL) {
        err = ipc_reader_message(rows->reader, message, 0, message->n, out, e);
    }
    block_unref(message);
    return err;
}

/* Reads on until there is a batch, or, if that is all that is wanted, the schema. */
static enum err read_on(struct rows *rows, bool wants_schema, struct ArrowArray *out, struct error *e)
{
    while (out->release == NULL && !(wants_schema && ipc_reader_schema(rows->reader) != NULL)) {
        enum err err = ERR_OK;
        if (rows->taken < rows->n_chunk || rows->assembler.wants > 0) {
            err = take_message(rows, out, e);
            if (err == ERR_OK && out->release != NULL && out->length == 0) {
                out->release(out);
            }
        } else if (rows->has_ended) {
            bool is_whole = ipc_reader_has_ended(rows->reader) && ipc_assembler_is_empty(&rows->assembler);
            return is_whole ? ERR_OK
                            : error_set(e, ERR_DATA_LOSS, "the result of job %s ends in the middle", rows->job_id);
        } else {
            err = fetch_chunk(rows, e);
            if (err == ERR_OK && rows->n_chunk > 0 && rows->on_bytes != NULL) {
                err = rows->on_bytes(rows->context, rows->chunk, rows->n_chunk, e);
            }
        }
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

enum err rows_schema(struct rows *rows, const struct ArrowSchema **out, struct error *e)
{
    enum err err = read_on(rows, true, &rows->ready, e);
    if (err != ERR_OK) {
        return err;
    }
    *out = ipc_reader_schema(rows->reader);
    return *out != NULL ? ERR_OK : error_set(e, ERR_DATA_LOSS, "the result of job %s has no columns", rows->job_id);
}

enum err rows_next(struct rows *rows, struct ArrowArray *out, struct error *e)
{
    struct ArrowArray batch = rows->ready;
    rows->ready.release = NULL;
    enum err err = read_on(rows, false, &batch, e);
    if (err == ERR_OK) {
        *out = batch;
    } else if (batch.release != NULL) {
        batch.release(&batch);
    }
    return err;
}
