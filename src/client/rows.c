#include "client/rows.h"

#include "base/mem.h"
#include "client/results.h"
#include "exchange/ipc.h"

struct rows {
    const char *job_id;
    rows_bytes_fn *on_bytes;
    void *context;
    struct results *results;
    struct results_chunk chunk;
    size_t taken; /* bytes of the chunk that are done */
    bool has_ended;
    struct ipc_assembler assembler;
    struct ipc_reader *reader;
    struct ArrowArray ready; /* a batch that was read while the schema was looked for */
};

struct rows *rows_open(const struct client_caller *caller, const char *job_id, rows_bytes_fn *on_bytes, void *context)
{
    struct rows *rows = mem_calloc(1, sizeof *rows);
    *rows = (struct rows){.job_id = job_id, .on_bytes = on_bytes, .context = context};
    rows->results = results_open(caller, job_id);
    /* What a coordinator sends has checksums, but a plan's operator could bring a stream of its own. */
    rows->reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = false});
    return rows;
}

void rows_close(struct rows *rows)
{
    if (rows == NULL) {
        return;
    }
    if (rows->ready.release != NULL) {
        rows->ready.release(&rows->ready);
    }
    results_close(rows->results);
    ipc_assembler_deinit(&rows->assembler);
    ipc_reader_free(rows->reader);
    mem_free(rows);
}

/* Takes what there is of the chunk, up to one message. */
static enum err take_message(struct rows *rows, struct ArrowArray *out, struct error *e)
{
    struct block *message = NULL;
    size_t taken = 0;
    if (rows->assembler.wants > 0) {
        ipc_assembler_admit(&rows->assembler);
    }
    enum err err = ipc_assembler_feed(&rows->assembler, rows->chunk.bytes + rows->taken, rows->chunk.n - rows->taken,
                                      &taken, &message, e);
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
        if (rows->taken < rows->chunk.n || rows->assembler.wants > 0) {
            err = take_message(rows, out, e);
            if (err == ERR_OK && out->release != NULL && out->length == 0) {
                out->release(out);
            }
        } else if (rows->has_ended) {
            bool is_whole = ipc_reader_has_ended(rows->reader) && ipc_assembler_is_empty(&rows->assembler);
            return is_whole ? ERR_OK
                            : error_set(e, ERR_DATA_LOSS, "the result of job %s ends in the middle", rows->job_id);
        } else {
            err = results_next(rows->results, &rows->chunk, &rows->has_ended, e);
            rows->taken = 0;
            if (err == ERR_OK && rows->chunk.n > 0 && rows->on_bytes != NULL) {
                err = rows->on_bytes(rows->context, rows->chunk.bytes, rows->chunk.n, e);
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
