/*
 * parquet.h - rows as a Parquet file, written while they come.
 *
 * Each batch becomes one row group, in which each column is one page: plain values behind a bitmap of those that are there,
 * compressed with LZ4. What has been written is not needed any more but for where it lies, so that a file of any size takes
 * the memory of one batch and a few dozen bytes for each row group and column.
 *
 * Whole numbers, floating point, BOOLEAN, DECIMAL, texts, bytes, dates, times and timestamps keep their types. Everything
 * else is a text as DuckDB prints it: nested values, HUGEINT, UUID, INTERVAL, ENUM.
 *
 * Ownership: parquet_file_new's caller owns the file; it copies what it needs of the schema. Threads: one at a time.
 */
#ifndef CAPSTAN_EXCHANGE_PARQUET_H
#define CAPSTAN_EXCHANGE_PARQUET_H

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"

struct parquet_file;

/* Of rows with this schema, whose root is a struct; appends what stands before the first. */
MUST_USE enum err parquet_file_new(const struct ArrowSchema *schema, struct parquet_file **out, struct buf *bytes,
                                   struct error *e);
void parquet_file_free(struct parquet_file *file); /* NULL ok */

/* Appends `n` rows of a batch, from row `at` on. ERR_EXHAUSTED if a column of them does not fit into a page. */
MUST_USE enum err parquet_file_rows(struct parquet_file *file, const struct ArrowArray *batch, int64_t at, int64_t n,
                                    struct buf *bytes, struct error *e);

/* Appends what follows the last row: what is where. */
void parquet_file_end(struct parquet_file *file, struct buf *bytes);

#endif
