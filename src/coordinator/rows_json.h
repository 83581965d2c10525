/*
 * rows_json.h - rows of an Arrow stream as a JSON array of objects, as many as there is room for.
 *
 * Values are written as exchange/text.h says. Two columns of one name would make an object that few can read: the second
 * is called name_1, and so on.
 *
 * Ownership: rows_json_new's caller owns it. Threads: one at a time.
 */
#ifndef CAPSTAN_COORDINATOR_ROWS_JSON_H
#define CAPSTAN_COORDINATOR_ROWS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"

struct rows_json;

/* Takes rows while there are at most `rows_max` of them and the array has at most `bytes_max` bytes. */
struct rows_json *rows_json_new(uint32_t rows_max, size_t bytes_max);
void rows_json_free(struct rows_json *rows); /* NULL ok */

/* The next bytes of the stream. ERR_DATA_LOSS if they are none, ERR_EXHAUSTED if a batch is too large to look at. */
MUST_USE enum err rows_json_feed(struct rows_json *rows, const void *bytes, size_t n, struct error *e);

/* Whether a row was left out: then there is no need to feed it the rest. */
bool rows_json_is_full(const struct rows_json *rows);

uint32_t rows_json_count(const struct rows_json *rows);

/* Appends the array. */
void rows_json_write(const struct rows_json *rows, struct buf *out);

#endif
