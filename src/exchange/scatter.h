/*
 * scatter.h - rows are dealt to partitions, and gathered there into batches of a good size.
 *
 * The SQL of a fragment computes the number of each row's partition (hash or range) as one more column; here rows are
 * split by it, column by column: for each batch the rows are put in the order of their partitions once, then each column
 * is gathered partition by partition. A batch leaves when it has enough rows or bytes. Within a partition, rows keep the
 * order in which they came.
 *
 * Ownership: a scatter owns its memory; batches that it emits are valid during the call only. Threads: one at a time.
 */
#ifndef CAPSTAN_EXCHANGE_SCATTER_H
#define CAPSTAN_EXCHANGE_SCATTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"

#define SCATTER_BATCH_ROWS 65536
#define SCATTER_BATCH_BYTES ((size_t)8 * 1024 * 1024)
#define SCATTER_HELD_BYTES ((size_t)128 * 1024 * 1024)

enum scatter_mode {
    SCATTER_COLUMN, /* by the number in a column, which does not travel on */
    SCATTER_DEAL,   /* pieces of the input in turn */
    SCATTER_ONE,    /* all to partition 0 */
};

struct scatter_options {
    enum scatter_mode mode;
    uint32_t n_partitions;
    uint32_t column;       /* SCATTER_COLUMN: which; a whole number of 32 or 64 bits */
    uint32_t rows_max;     /* of a batch; 0: SCATTER_BATCH_ROWS */
    size_t bytes_max;      /* of a batch, about; 0: SCATTER_BATCH_BYTES */
    size_t held_bytes_max; /* of all that waits for more rows, about; 0: SCATTER_HELD_BYTES */
};

typedef enum err scatter_emit_fn(void *context, uint32_t partition, const struct ArrowArray *batch, struct error *e);

struct scatter;

/* `schema` is that of the input. */
MUST_USE enum err scatter_open(const struct ArrowSchema *schema, const struct scatter_options *options,
                               scatter_emit_fn *emit, void *context, struct scatter **out, struct error *e);
void scatter_close(struct scatter *scatter); /* NULL ok; what has not been emitted is gone */

/*
 * Adds rows. The array stays the caller's. ERR_INVALID for a partition that does not exist or is NULL. What `emit`
 * returns is passed on. After an error, the scatter can only be closed.
 */
MUST_USE enum err scatter_append(struct scatter *scatter, const struct ArrowArray *batch, struct error *e);

/* Emits what is left. */
MUST_USE enum err scatter_finish(struct scatter *scatter, struct error *e);

#endif
