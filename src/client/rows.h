/*
 * rows.h - the rows of a query as they arrive: its result (results.h), read batch by batch.
 *
 * Memory stays flat whatever the size of the result: one chunk, one message of the Arrow stream and one batch are held.
 *
 * Ownership: rows_open's caller owns it; the job's id is the caller's and must live as long. Batches belong to the receiver
 * and outlive it. Threads: one at a time.
 */
#ifndef CAPSTAN_CLIENT_ROWS_H
#define CAPSTAN_CLIENT_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"
#include "client/client.h"

struct rows;

/* Gets the bytes of the stream as they come, before anything is made of them. */
typedef enum err rows_bytes_fn(void *context, const uint8_t *bytes, size_t n, struct error *e);

/* `on_bytes` may be NULL. Nothing is fetched yet. The caller's arena is not used. */
struct rows *rows_open(const struct client_caller *caller, const char *job_id, rows_bytes_fn *on_bytes, void *context);
void rows_close(struct rows *rows); /* NULL ok */

/* The columns, as children of a struct. Lives as long as the rows. */
MUST_USE enum err rows_schema(struct rows *rows, const struct ArrowSchema **out, struct error *e);

/* The next batch, which has at least one row. At the end, `out->release` is NULL. */
MUST_USE enum err rows_next(struct rows *rows, struct ArrowArray *out, struct error *e);

#endif
