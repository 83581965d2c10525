/*
 * writer.h - the output of a task: rows in, partitions in the store out. What a task that runs SQL needs to know.
 *
 * Ownership: the writer belongs to its opener. Closed before it is finished, it leaves nothing behind. Threads: one at a
 * time.
 */
#ifndef CAPSTAN_EXCHANGE_WRITER_H
#define CAPSTAN_EXCHANGE_WRITER_H

#include "base/buf.h"
#include "exchange/scatter.h"
#include "exchange/store.h"

struct exchange_writer_options {
    struct exchange_store *store;
    struct exchange_key key;
    enum exchange_kind kind; /* EXCHANGE_KIND_RESULT: with SCATTER_ONE */
    struct scatter_options scatter;
    uint64_t inline_bytes_max; /* of a result that is to be taken: a larger one goes to its file; 0: the most */
    bool is_compressed;        /* LZ4, where it pays: for links slower than a few hundred MB/s */
};

struct exchange_writer;

/* `schema` is that of the rows that will come, with the column of partition numbers if there is one. */
MUST_USE enum err exchange_writer_open(const struct exchange_writer_options *options, const struct ArrowSchema *schema,
                                       struct exchange_writer **out, struct error *e);

/* NULL ok. */
void exchange_writer_close(struct exchange_writer *writer);

/* Errors as those of scatter_append and exchange_output_append; after one, it can only be closed. */
MUST_USE enum err exchange_writer_append(struct exchange_writer *writer, const struct ArrowArray *batch,
                                         struct error *e);

/* Bytes of all partitions so far, without rows that wait for more. */
uint64_t exchange_writer_bytes(const struct exchange_writer *writer);

/*
 * All rows are there: from now on others can read them. `out_tallies` has one place for each partition. Partitions
 * without rows have bytes, too: their schema.
 */
MUST_USE enum err exchange_writer_finish(struct exchange_writer *writer, struct ipc_tally *out_tallies,
                                         struct error *e);

/*
 * For a finished result of at most LIMIT_INLINE_RESULT_BYTES: appends all its bytes to `out`. The store keeps nothing of
 * it when the writer is closed.
 */
MUST_USE enum err exchange_writer_take(struct exchange_writer *writer, struct buf *out, struct error *e);

#endif
