/*
 * ipc.h - Arrow's IPC stream format: batches of rows as bytes, and back.
 *
 * What is written is a plain Arrow stream that every Arrow library reads: a schema message, dictionary and record
 * batches, an end. Each message also carries a checksum of all its bytes in its own metadata (key "capstan:xxh3", 16 hex
 * digits): XXH3 over the message's head, those digits being zeros, and with that as the seed over its body. So a
 * message is either as it was written or refused, before any of its rows is seen; others ignore the key. A stream's
 * checksum folds those of its messages, in order, so that it costs no second pass over the bytes.
 *
 * The reader takes any Arrow stream of the types in type.c, checks everything against the limits before it allocates,
 * and hands out arrays that point into the received block wherever a buffer is neither compressed nor misaligned.
 *
 * Ownership: said at each function. Threads: a format may be shared; a writer or reader belongs to one at a time. Arrays
 * that were read may be released by any thread.
 */
#ifndef CAPSTAN_EXCHANGE_IPC_H
#define CAPSTAN_EXCHANGE_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"
#include "exchange/block.h"

/* What a stream consists of. */
struct ipc_tally {
    uint64_t bytes;
    uint64_t rows;
    uint64_t batches; /* of records */
    uint64_t checksum;
};

/* ---- writing ---- */

/* A schema, ready to be written any number of times. Never changes. */
struct ipc_format;

/* Copies what it needs of `schema`, whose root is a struct with the columns. ERR_INVALID, ERR_EXHAUSTED as layout_new. */
MUST_USE enum err ipc_format_new(const struct ArrowSchema *schema, struct ipc_format **out, struct error *e);
void ipc_format_free(struct ipc_format *format); /* NULL ok; after the writers that use it */

/* One stream. Zero-initialised: to be given to ipc_writer_init. */
struct ipc_writer {
    const struct ipc_format *format;
    bool is_compressed;
    struct ipc_tally tally;
    uint64_t *dictionaries; /* for each, a hash of what was written last; 0: nothing yet */
};

/* Gets each message as it is made. The block is the receiver's. */
typedef enum err ipc_emit_fn(void *context, struct block *message, struct error *e);

/* With `is_compressed`, buffers that become clearly smaller by LZ4 are compressed. Keeps a pointer to `format`. */
void ipc_writer_init(struct ipc_writer *writer, const struct ipc_format *format, bool is_compressed);
void ipc_writer_deinit(struct ipc_writer *writer);

/* The stream begins with the schema and ends with the end; both blocks are shared by all streams of the format. */
struct block *ipc_writer_schema(struct ipc_writer *writer);
struct block *ipc_writer_end(struct ipc_writer *writer);

/*
 * Writes one batch, and the dictionaries that it needs if they have changed. The array is of the format's schema (its
 * root may be a slice) and stays the caller's. ERR_INVALID if rows of the root itself are NULL or it is too long.
 */
MUST_USE enum err ipc_writer_batch(struct ipc_writer *writer, const struct ArrowArray *batch, ipc_emit_fn *emit,
                                   void *context, struct error *e);

/* ---- reading ---- */

/*
 * How long the message is that begins at `bytes`, or how many bytes are needed to know. Both are ERR_OK; in the second
 * case `out_is_known` is false. ERR_DATA_LOSS if it is no message, ERR_EXHAUSTED if it is too long.
 */
MUST_USE enum err ipc_message_bytes(const uint8_t *bytes, size_t n, uint64_t *out_bytes, bool *out_is_known,
                                    struct error *e);

struct ipc_reader_options {
    bool needs_checksums; /* a message without one is refused; with one, it is always checked */
};

struct ipc_reader;
struct ipc_reader *ipc_reader_new(const struct ipc_reader_options *options);
void ipc_reader_free(struct ipc_reader *reader); /* NULL ok; arrays that were read live on */

/*
 * Reads the message of `n` bytes at `at` in the block, which it takes a reference of if it needs one. A batch of records
 * goes to `out_batch`; for other messages its `release` is NULL. ERR_DATA_LOSS for anything that is wrong with it,
 * ERR_INVALID for what is right but not supported, ERR_EXHAUSTED for what is too large.
 */
MUST_USE enum err ipc_reader_message(struct ipc_reader *reader, struct block *block, size_t at, size_t n,
                                     struct ArrowArray *out_batch, struct error *e);

/*
 * Whether the messages that follow were written by this very process and kept in its memory: then neither checksums nor
 * rows are checked.
 */
void ipc_reader_trust(struct ipc_reader *reader, bool is_trusted);

/* NULL before the schema message has been read. The reader's. */
const struct ArrowSchema *ipc_reader_schema(const struct ipc_reader *reader);
bool ipc_reader_has_ended(const struct ipc_reader *reader);
const struct ipc_tally *ipc_reader_tally(const struct ipc_reader *reader);

/* ---- bytes that come in pieces ---- */

/*
 * Puts messages together. It reads the head of a message first; then it `wants` so many bytes, and goes on when somebody
 * has agreed to that (admit): the place to wait for memory.
 */
struct ipc_assembler {
    struct block *message;
    size_t have;
    uint64_t wants; /* not 0: the size of a message whose head is there and that has not been admitted */
    uint8_t *head;
    size_t head_cap;
};

void ipc_assembler_deinit(struct ipc_assembler *assembler);

/*
 * Takes bytes up to the end of the message and says how many it took. `*out_message` is the whole message, the
 * caller's, or NULL: then either all bytes are taken or it wants to be admitted.
 */
MUST_USE enum err ipc_assembler_feed(struct ipc_assembler *assembler, const uint8_t *bytes, size_t n, size_t *out_taken,
                                     struct block **out_message, struct error *e);
void ipc_assembler_admit(struct ipc_assembler *assembler);

/* Whether it is between two messages. */
bool ipc_assembler_is_empty(const struct ipc_assembler *assembler);

#endif
