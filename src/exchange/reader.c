/*
 * reader.c - a partition, read piece by piece wherever each piece is at the moment.
 *
 * A reader holds one piece at most: what is in memory when it comes to it is given out, what has gone to the file by
 * then is read from there. So a slow reader keeps no memory from being freed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "exchange/store_internal.h"

struct exchange_reader {
    struct exchange_output *output;
    uint32_t partition;
    uint32_t piece;    /* the next to read from */
    uint64_t within;   /* where in it */
    int fd;            /* -1: the file is not open */
    size_t stop_bytes; /* read stops in front of pieces of so many bytes in memory; 0: of none */
};

static enum err not_registered(struct error *e)
{
    return error_set(e, ERR_NOT_FOUND, EXCHANGE_NOT_REGISTERED);
}

enum err exchange_reader_open(struct exchange_store *store, const struct exchange_key *key, uint32_t partition,
                              uint64_t offset, struct exchange_reader **out, struct error *e)
{
    struct exchange_output *output = store__find(store, key);
    enum err err = ERR_OK;
    struct exchange_reader reader = {.output = output, .partition = partition, .fd = -1};
    if (output == NULL) {
        return not_registered(e);
    }
    pthread_mutex_lock(&output->lock);
    if (!output->is_finished || output->is_dropped) {
        err = not_registered(e);
    } else if (partition >= output->n_partitions || offset > output->partitions[partition].bytes) {
        err = error_set(e, ERR_INVALID, "the map output has no partition %" PRIu32 ", or no byte %" PRIu64 " in it",
                        partition, offset);
    } else {
        const struct store__partition *from = &output->partitions[partition];
        while (reader.piece < from->n && from->pieces[reader.piece].start + from->pieces[reader.piece].n <= offset) {
            reader.piece++;
        }
        reader.within = reader.piece < from->n ? offset - from->pieces[reader.piece].start : 0;
    }
    pthread_mutex_unlock(&output->lock);
    if (err != ERR_OK) {
        store__output_unref(output);
        return err;
    }
    *out = mem_copy(&reader, sizeof(reader));
    return ERR_OK;
}

void exchange_reader_close(struct exchange_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->fd >= 0) {
        close(reader->fd);
    }
    store__output_unref(reader->output);
    mem_free(reader);
}

/* What the next piece is, with a reference of its block; false at the end. */
static enum err look(struct exchange_reader *reader, struct store__piece *out, bool *out_there, struct error *e)
{
    struct exchange_output *output = reader->output;
    enum err err = ERR_OK;
    pthread_mutex_lock(&output->lock);
    if (output->is_dropped) {
        err = not_registered(e);
    } else {
        const struct store__partition *partition = &output->partitions[reader->partition];
        *out_there = reader->piece < partition->n;
        if (*out_there) {
            *out = partition->pieces[reader->piece];
            if (out->block != NULL) {
                block_ref(out->block);
            }
        }
    }
    pthread_mutex_unlock(&output->lock);
    return err;
}

bool exchange_reader_is_ready(struct exchange_reader *reader)
{
    struct store__piece piece = {0};
    bool is_there = false;
    if (look(reader, &piece, &is_there, NULL) != ERR_OK || !is_there) {
        return true;
    }
    bool is_ready = piece.block != NULL;
    block_unref(piece.block);
    return is_ready;
}

struct block *exchange_reader_piece(struct exchange_reader *reader)
{
    struct store__piece piece = {0};
    bool is_there = false;
    if (reader->within != 0 || look(reader, &piece, &is_there, NULL) != ERR_OK || !is_there || piece.block == NULL) {
        return NULL;
    }
    reader->piece++;
    return piece.block;
}

static void advance(struct exchange_reader *reader, const struct store__piece *piece, size_t n)
{
    reader->within += n;
    if (reader->within == piece->n) {
        reader->piece++;
        reader->within = 0;
    }
}

void exchange_reader_stop_at(struct exchange_reader *reader, size_t bytes)
{
    reader->stop_bytes = bytes;
}

struct block *exchange_reader_lend(struct exchange_reader *reader, size_t min, size_t max, const uint8_t **out_bytes,
                                   size_t *out_n)
{
    struct store__piece piece = {0};
    bool is_there = false;
    if (look(reader, &piece, &is_there, NULL) != ERR_OK || !is_there || piece.block == NULL) {
        return NULL;
    }
    size_t left = (size_t)(piece.n - reader->within);
    if (left < min) {
        block_unref(piece.block);
        return NULL;
    }
    *out_bytes = piece.block->bytes + reader->within;
    *out_n = left < max ? left : max;
    advance(reader, &piece, *out_n);
    return piece.block;
}

/* Reads from the file at most to the end of the piece. */
static enum err read_file(struct exchange_reader *reader, const struct store__piece *piece, void *out, size_t n,
                          struct error *e)
{
    if (reader->fd < 0) {
        char *path = store__path(reader->output, false);
        reader->fd = open(path, O_RDONLY | O_CLOEXEC);
        mem_free(path);
    }
    for (size_t done = 0; done < n;) {
        off_t at = (off_t)(piece->at + reader->within + done);
        ssize_t some = reader->fd < 0 ? -1 : pread(reader->fd, (uint8_t *)out + done, n - done, at);
        if (some < 0 && reader->fd >= 0 && errno == EINTR) {
            continue;
        }
        if (some <= 0) {
            return error_set(e, ERR_DATA_LOSS, "the file of a map output cannot be read: %s",
                             some == 0 ? "it is too short" : strerror(errno));
        }
        done += (size_t)some;
    }
    return ERR_OK;
}

enum err exchange_reader_read(struct exchange_reader *reader, bool may_block, void *out, size_t max, size_t *out_n,
                              struct error *e)
{
    size_t done = 0;
    while (done < max) {
        struct store__piece piece = {0};
        bool is_there = false;
        enum err err = look(reader, &piece, &is_there, e);
        if (err != ERR_OK) {
            return err;
        }
        if (!is_there || (piece.block == NULL && !may_block)) {
            break;
        }
        size_t left = (size_t)(piece.n - reader->within);
        size_t n = left < max - done ? left : max - done;
        if (done > 0 && piece.block != NULL && reader->stop_bytes > 0 && left >= reader->stop_bytes) {
            block_unref(piece.block);
            break;
        }
        if (piece.block != NULL) {
            memcpy((uint8_t *)out + done, piece.block->bytes + reader->within, n);
            block_unref(piece.block);
        } else {
            err = read_file(reader, &piece, (uint8_t *)out + done, n, e);
            if (err != ERR_OK) {
                return err;
            }
        }
        done += n;
        advance(reader, &piece, n);
    }
    *out_n = done;
    return ERR_OK;
}
