/*
 * column.h - a column that grows by rows picked out of arrays.
 *
 * Ownership: a column owns its buffers, and keeps their memory when it is reset. The array that column_view makes points
 * into them, and is valid until the next change. Threads: one at a time.
 */
#ifndef CAPSTAN_EXCHANGE_COLUMN_H
#define CAPSTAN_EXCHANGE_COLUMN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capstan/arrow.h"
#include "exchange/layout.h"

struct column_bytes {
    uint8_t *p;
    size_t n;
    size_t cap;
};

struct column {
    const struct layout *layout;
    size_t length;
    size_t null_count;
    struct column_bytes validity; /* empty as long as nothing is NULL */
    struct column_bytes values;   /* values, bits, offsets or types */
    struct column_bytes bytes;    /* what offsets of texts point into */
    struct column *children;
};

/* Rows of an array: those in `rows`, or with `rows` NULL the `n` from `start` on. They count from its offset. */
struct column_pick {
    const uint32_t *rows;
    uint32_t start;
    uint32_t n;
};

/*
 * A text as DuckDB has it in memory: up to COLUMN_TEXT_SHORT bytes lie from `start` on, over the pointer. An array of texts
 * that has two buffers, where Arrow's has three, is one of these, behind their validity. Those of NULLs may be anything.
 */
#define COLUMN_TEXT_SHORT 12
struct column_text {
    uint32_t n;
    uint8_t start[4];
    const uint8_t *bytes;
};

/* How many bytes the texts of `n` such rows have, from `first` on, without NULLs. */
uint64_t column_text_bytes(const struct ArrowArray *array, size_t first, size_t n);

/* Keeps a pointer to `layout`. */
void column_init(struct column *column, const struct layout *layout);
void column_deinit(struct column *column);
void column_reset(struct column *column); /* no rows */

/* Appends rows. The caller has made sure that 32-bit offsets do not overflow. */
void column_append(struct column *column, const struct ArrowArray *array, struct column_pick pick);

/* How many bytes the rows take, about. */
size_t column_bytes_used(const struct column *column);

/*
 * The column as an array with nothing to release, in memory that has room for column_view_nodes arrays. A dictionary has
 * to be added by the caller.
 */
struct column_view {
    struct ArrowArray *arrays;
    const void **buffers; /* three for each */
    struct ArrowArray **links;
    size_t n;
    size_t n_links;
};
size_t column_view_nodes(const struct layout *layout); /* with all inside it */
struct ArrowArray *column_view(const struct column *column, struct column_view *view);

#endif
