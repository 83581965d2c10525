/*
 * rows.h - the rows of a query as they arrive: FetchQueryResults, read batch by batch.
 *
 * Memory stays flat whatever the size of the result: one chunk, one message of the Arrow stream and one batch are held.
 * When the connection breaks, the fetch goes on at the byte where it stopped, for as long as a coordinator can be found
 * and brings something new.
 *
 * Ownership: rows_open's caller owns it. Batches belong to the receiver and outlive it. Threads: one at a time.
 */
#ifndef CAPSTAN_CLI_ROWS_H
#define CAPSTAN_CLI_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"

struct cli;
struct rows;

/* Gets the bytes of the stream as they come, before anything is made of them. */
typedef enum err rows_bytes_fn(void *context, const uint8_t *bytes, size_t n, struct error *e);

/* `on_bytes` may be NULL. Nothing is fetched yet. Calls use the cli's client and its cancel. */
MUST_USE enum err rows_open(struct cli *cli, const char *job_id, rows_bytes_fn *on_bytes, void *context,
                            struct rows **out, struct error *e);
void rows_close(struct rows *rows); /* NULL ok */

/* The columns, as children of a struct. Lives as long as the rows. */
MUST_USE enum err rows_schema(struct rows *rows, const struct ArrowSchema **out, struct error *e);

/* The next batch, which has at least one row. At the end, `out->release` is NULL. */
MUST_USE enum err rows_next(struct rows *rows, struct ArrowArray *out, struct error *e);

#endif
