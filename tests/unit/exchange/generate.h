/*
 * generate.h - schemas and arrays of all kinds, by chance, and whether two arrays have the same rows.
 *
 * Arrays are as awkward as the C data interface allows: with offsets, with values behind their end, with null counts that
 * are not known, with bitmaps that say that nothing is NULL.
 *
 * Ownership: what is written to `out` is the caller's, to be released. Threads: any.
 */
#ifndef CAPSTAN_TESTS_UNIT_EXCHANGE_GENERATE_H
#define CAPSTAN_TESTS_UNIT_EXCHANGE_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/prng.h"
#include "capstan/arrow.h"
#include "exchange/ipc.h"

/* Every format without children that is supported. */
extern const char *const generate_formats[];
extern const uint32_t generate_n_formats;

/* A schema with one column of that format, which must have no children. */
void generate_flat_schema(const char *format, struct ArrowSchema *out);

/* A struct of some columns, whose types go `depth` deep at most. */
void generate_schema(struct prng *prng, uint32_t n_columns, uint32_t depth, struct ArrowSchema *out);

/* `n` rows. Without `is_awkward` the array begins at 0. Dictionaries are the same for each call with the same schema. */
void generate_array(struct prng *prng, const struct ArrowSchema *schema, int64_t n, bool is_awkward,
                    struct ArrowArray *out);

/* Whether row `i` of one is row `k` of the other, counted from their offsets. */
bool generate_is_same_row(const struct ArrowSchema *schema, const struct ArrowArray *a, int64_t i,
                          const struct ArrowArray *b, int64_t k);

/* Whether all rows are the same. */
bool generate_is_same(const struct ArrowSchema *schema, const struct ArrowArray *a, const struct ArrowArray *b);

/* An array of one column of numbers 0 to n - 1 (int64) that begins at `first`, with its schema. */
void generate_numbers(int64_t first, int64_t n, struct ArrowSchema *out_schema, struct ArrowArray *out_array);

#endif
