/*
 * slice.h - a part of an Arrow array that is an array of its own, almost without a copy.
 *
 * DuckDB takes at most 2,048 rows at a time, and arrays that come from elsewhere have more. A slice could be had by
 * `offset` alone, but DuckDB does not apply an offset rightly inside nested types. So the pointers are moved instead, and
 * slices have no offset at all; a bitmap that would have to start inside of a byte is copied.
 *
 * Ownership: slices share a whole, which is released when the last of them and the whole's own reference are gone.
 * Threads: slices of one whole may be used and released by different threads.
 */
#ifndef CAPSTAN_DUCK_SLICE_H
#define CAPSTAN_DUCK_SLICE_H

#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"

struct slice_whole;

/* Takes the array, which is a struct of columns: `array->release` is NULL afterwards. */
struct slice_whole *slice_whole_new(struct ArrowArray *array);

/* Ends the caller's reference. NULL is fine. */
void slice_whole_unref(struct slice_whole *whole);

const struct ArrowArray *slice_whole_array(const struct slice_whole *whole);

/*
 * A struct array with one child: rows `first` to `first + n - 1` of column `column`, whose schema is given too.
 * ERR_INVALID if the schema's format is not known, or does not fit the array.
 */
MUST_USE enum err slice_column(struct slice_whole *whole, const struct ArrowSchema *schema, int64_t column,
                               int64_t first, int64_t n, struct ArrowArray *out_array, struct error *e);

#endif
