/*
 * fetch_local.c - sources in this process. Pieces in memory are used as they are; what is in a file is read through the
 * same checks as what comes over the network.
 */
#include "base/mem.h"
#include "exchange/fetch_internal.h"

#define CHUNK_BYTES ((size_t)1024 * 1024)

void fetch__local_close(struct fetch__local *local)
{
    exchange_reader_close(local->reader);
    ipc_reader_free(local->ipc);
    ipc_assembler_deinit(&local->assembler);
    mem_free(local->chunk);
    *local = (struct fetch__local){0};
}

/* The next message, NULL at the end of the partition; and whether it was in memory all the time. */
static enum err next_message(struct fetch__local *local, uint64_t bytes_max, struct block **out, bool *out_is_trusted,
                             struct error *e)
{
    *out_is_trusted = false;
    *out = NULL;
    if (local->taken == local->n_chunk && ipc_assembler_is_empty(&local->assembler)) {
        *out = exchange_reader_piece(local->reader);
        *out_is_trusted = *out != NULL;
    }
    while (*out == NULL) {
        size_t taken = 0;
        enum err err = ERR_OK;
        if (local->taken == local->n_chunk && local->assembler.wants == 0) {
            local->chunk = local->chunk == NULL ? mem_alloc(CHUNK_BYTES) : local->chunk;
            local->taken = local->n_chunk = 0;
            err = exchange_reader_read(local->reader, true, local->chunk, CHUNK_BYTES, &local->n_chunk, e);
            if (err != ERR_OK || local->n_chunk == 0) {
                return err;
            }
        }
        if (local->assembler.wants > bytes_max) {
            return error_set(e, ERR_DATA_LOSS, "a message is longer than what was registered");
        }
        if (local->assembler.wants > 0) {
            ipc_assembler_admit(&local->assembler);
        }
        err = ipc_assembler_feed(&local->assembler, local->chunk + local->taken, local->n_chunk - local->taken, &taken,
                                 out, e);
        err = fetch__damaged(err, e);
        if (err != ERR_OK) {
            return err;
        }
        local->taken += taken;
    }
    return ERR_OK;
}

static enum err open_local(struct exchange_fetch *fetch, const struct fetch__source *source, struct error *e)
{
    struct fetch__local *local = &fetch->local;
    if (local->reader != NULL) {
        return ERR_OK;
    }
    enum err err =
        exchange_reader_open(fetch->options.store, &source->is.key, source->is.partition, 0, &local->reader, e);
    if (err == ERR_OK) {
        local->ipc = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = true});
    }
    return err;
}

/* Reads the next message; at the end of the partition `*out_end` is true. */
static enum err step(struct exchange_fetch *fetch, const struct fetch__source *source, struct ArrowArray *out,
                     bool *out_end, struct error *e)
{
    struct fetch__local *local = &fetch->local;
    struct block *message = NULL;
    bool is_trusted = false;
    bool had_schema = ipc_reader_schema(local->ipc) != NULL;
    enum err err = next_message(local, source->is.tally.bytes, &message, &is_trusted, e);
    if (err != ERR_OK) {
        return err;
    }
    if (message == NULL) {
        *out_end = true;
        return fetch__check_end(source, local->ipc, e);
    }
    ipc_reader_trust(local->ipc, is_trusted);
    size_t n = message->n;
    err = fetch__damaged(ipc_reader_message(local->ipc, message, 0, n, out, e), e);
    block_unref(message);
    if (err == ERR_OK && !had_schema) {
        err = fetch__check_schema(fetch, ipc_reader_schema(local->ipc), e);
    }
    if (err == ERR_OK) {
        pthread_mutex_lock(&fetch->lock);
        fetch->counts.local_bytes += n;
        pthread_mutex_unlock(&fetch->lock);
    }
    return err;
}

enum err fetch__local_next(struct exchange_fetch *fetch, const struct fetch__source *source, bool schema_only,
                           struct ArrowArray *out, struct error *e)
{
    struct ArrowArray array = {0};
    bool is_end = false;
    enum err err = open_local(fetch, source, e);
    while (err == ERR_OK && !is_end && array.release == NULL) {
        if (schema_only && ipc_reader_schema(fetch->local.ipc) != NULL) {
            break;
        }
        err = step(fetch, source, &array, &is_end, e);
    }
    if (err != ERR_OK || is_end) {
        fetch__local_close(&fetch->local);
    }
    if (err == ERR_OK) {
        *out = array;
    }
    return err;
}
