/*
 * ipc_internal.h - what the writer and the reader of IPC messages share: the message around a header, and schemas.
 *
 * Ownership and threads: said at each function; those without a word own nothing and may be called from any thread.
 */
#ifndef CAPSTAN_EXCHANGE_IPC_INTERNAL_H
#define CAPSTAN_EXCHANGE_IPC_INTERNAL_H

#include "base/buf.h"
#include "exchange/flat.h"
#include "exchange/ipc.h"
#include "exchange/layout.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Arrow buffers are little-endian, and are used here as they come"
#endif

/* Of Arrow's Message.fbs. */
enum {
    IPC__SCHEMA = 1,
    IPC__DICTIONARY = 2,
    IPC__RECORDS = 3,
    IPC__VERSION_5 = 4,
    IPC__LZ4_FRAME = 0,
};

#define IPC__PREFIX_BYTES ((size_t)8) /* a marker and the length of the metadata */
#define IPC__END_BYTES IPC__PREFIX_BYTES

struct ipc__node {
    int64_t length;
    int64_t null_count;
};

struct ipc__range {
    int64_t offset;
    int64_t length;
};

/* ---- message.c ---- */

/* A message whose metadata is being written. Zero-initialised; deinit frees it. */
struct ipc__draft {
    struct buf meta;
    struct flat_writer w;
    size_t message;
    size_t checksum; /* where its digits are, in the metadata */
};

/* The header is to be written to `draft->w` next. */
void ipc__draft_begin(struct ipc__draft *draft, uint8_t header_type, uint64_t body_bytes);
void ipc__draft_header(struct ipc__draft *draft, size_t header);

/* The message with its body still to be filled in; that begins at `*out_body`. */
struct block *ipc__draft_block(const struct ipc__draft *draft, size_t body_bytes, size_t *out_body);

/* Writes the checksum into the block, and counts the message. */
void ipc__draft_seal(const struct ipc__draft *draft, struct block *block, size_t body, struct ipc_tally *tally);
void ipc__draft_deinit(struct ipc__draft *draft);

void ipc__tally_add(struct ipc_tally *tally, uint64_t bytes, uint64_t checksum);

/* A message that came from somewhere. */
struct ipc__message {
    struct flat_table header;
    uint8_t type;
    const uint8_t *body;
    size_t body_bytes;
    uint64_t checksum; /* as it was computed; of a trusted message, as it says */
    bool has_checksum;
    bool is_end;
};

/* Opens a message of exactly `n` bytes. ERR_DATA_LOSS if it is none or its checksum is wrong. */
MUST_USE enum err ipc__message_open(const uint8_t *bytes, size_t n, bool is_trusted, struct ipc__message *out,
                                    struct error *e);

/* ---- ipc_schema.c ---- */

/* Writes a schema header. Returns its position. */
size_t ipc__schema_put(struct flat_writer *w, const struct ArrowSchema *schema);

/* Reads one. `out_ids` are the ids of its dictionaries, in the order of layout.h; the caller frees them. */
MUST_USE enum err ipc__schema_get(const struct flat_table *header, struct ArrowSchema *out, int64_t **out_ids,
                                  uint32_t *out_n_ids, struct error *e);

/* ---- ipc_batch.c ---- */

struct ipc__dictionary {
    int64_t id;
    struct block *block; /* NULL: has not come yet */
    struct flat_table records;
    const uint8_t *body;
    size_t body_bytes;
    const struct layout *layout; /* of its values */
};

/* What is needed to turn a record batch into arrays. */
struct ipc__batch {
    struct block *block;
    struct flat_table records;
    const uint8_t *body;
    size_t body_bytes;
    const struct ipc__dictionary *dictionaries;
    uint32_t n_dictionaries;
    bool is_trusted;
};

/* The columns of `layout`, a struct, as one array. `out` holds references of the block. */
MUST_USE enum err ipc__batch_get(const struct ipc__batch *batch, const struct layout *layout, struct ArrowArray *out,
                                 struct error *e);

/* As ipc__batch_get, for the one column of a dictionary. */
MUST_USE enum err ipc__batch_get_values(const struct ipc__batch *batch, const struct layout *layout,
                                        struct ArrowArray *out, struct error *e);

#endif
