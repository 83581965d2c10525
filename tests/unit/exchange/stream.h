/*
 * stream.h - a whole Arrow stream as bytes, for tests: written, read, damaged.
 *
 * Ownership: a test frees what it is given. Threads: one.
 */
#ifndef CAPSTAN_TESTS_UNIT_EXCHANGE_STREAM_H
#define CAPSTAN_TESTS_UNIT_EXCHANGE_STREAM_H

#include "base/buf.h"
#include "exchange/ipc.h"

#define STREAM_BATCHES_MAX 64

/* What was read. */
struct stream_read {
    struct ipc_reader *reader;
    struct ArrowArray batches[STREAM_BATCHES_MAX];
    uint32_t n_batches;
    struct error e;
};

/* Writes the batches as one stream, and returns its tally. */
struct ipc_tally stream_write(const struct ArrowSchema *schema, const struct ArrowArray *batches, uint32_t n,
                              bool is_compressed, struct buf *out);

/* Reads it in pieces of `step` bytes. What was read before an error is there. */
enum err stream_read(const struct buf *bytes, size_t step, bool needs_checksums, struct stream_read *out);
void stream_read_deinit(struct stream_read *read);

#endif
