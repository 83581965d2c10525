/*
 * row_sum.h - one number for all rows of a result, whatever their order and however they are cut into batches.
 *
 * Two results that have the same rows have the same sum. Floating-point numbers count with nine digits, since their last ones
 * depend on the order in which tasks and threads added up; those inside of lists and structs count with all digits.
 *
 * Ownership: row_sum_close frees what row_sum_open took; `value` stays. Threads: one at a time.
 */
#ifndef CAPSTAN_MAIN_ROW_SUM_H
#define CAPSTAN_MAIN_ROW_SUM_H

#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"

struct row_sum_column;

struct row_sum {
    uint64_t value;
    uint32_t n_columns;
    struct row_sum_column *columns;
    struct buf row;  /* the texts of one row */
    struct buf cell; /* and of one value */
};

/* The schema is that of the rows, as a struct. row_sum_close in any case. */
MUST_USE enum err row_sum_open(struct row_sum *sum, const struct ArrowSchema *schema, struct error *e);
void row_sum_add(struct row_sum *sum, const struct ArrowArray *batch);
void row_sum_close(struct row_sum *sum);

#endif
