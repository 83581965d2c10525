/*
 * Rows of an Arrow stream become CSV, JSON or Parquet while they come. Holds one batch, and makes its text in pieces; of
 * Parquet a batch is one piece.
 */
#include "base/mem.h"
#include "coordinator/api_internal.h"
#include "exchange/columns.h"
#include "exchange/ipc.h"
#include "exchange/parquet.h"

#define PIECE_BYTES ((size_t)256 * 1024)

/* Of one message. Workers cut batches of a few megabytes; only a single very long row makes a larger one. */
#define BATCH_BYTES_MAX (256ULL * 1024 * 1024)

struct rows_text {
    enum api_format format;
    struct ipc_assembler assembler;
    struct ipc_reader *reader;
    struct columns columns;
    struct parquet_file *parquet; /* instead of text */
    bool has_columns;
    uint64_t n_rows;
    uint64_t skip;    /* rows to be left out */
    uint64_t left;    /* rows that are still wanted */
    struct buf bytes; /* that were fed */
    size_t taken;
    struct ArrowArray batch; /* while `release` is not NULL */
    int64_t at;              /* its next row */
    struct buf cell;
};

struct rows_text *rows_text_new(enum api_format format, struct rows_range range)
{
    struct rows_text *rows = mem_calloc(1, sizeof *rows);
    rows->format = format;
    rows->skip = range.offset;
    rows->left = range.limit;
    rows->reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = false});
    return rows;
}

static void drop_batch(struct rows_text *rows)
{
    if (rows->batch.release != NULL) {
        rows->batch.release(&rows->batch);
        rows->batch.release = NULL;
    }
}

void rows_text_free(struct rows_text *rows)
{
    if (rows == NULL) {
        return;
    }
    drop_batch(rows);
    if (rows->has_columns) {
        columns_deinit(&rows->columns);
    }
    parquet_file_free(rows->parquet);
    ipc_assembler_deinit(&rows->assembler);
    ipc_reader_free(rows->reader);
    buf_deinit(&rows->bytes);
    buf_deinit(&rows->cell);
    mem_free(rows);
}

void rows_text_feed(struct rows_text *rows, const void *bytes, size_t n)
{
    ASSERT(rows->taken == rows->bytes.n);
    buf_reset(&rows->bytes);
    buf_append(&rows->bytes, bytes, n);
    rows->taken = 0;
}

static enum err begin(struct rows_text *rows, struct buf *out, struct error *e)
{
    enum err err = columns_init(&rows->columns, ipc_reader_schema(rows->reader), e);
    if (err != ERR_OK) {
        return err;
    }
    rows->has_columns = true;
    if (rows->format == API_FORMAT_PARQUET) {
        return parquet_file_new(ipc_reader_schema(rows->reader), &rows->parquet, out, e);
    }
    if (rows->format == API_FORMAT_CSV) {
        columns_csv_names(&rows->columns, out);
    } else {
        columns_json_head(&rows->columns, out);
    }
    return ERR_OK;
}

static void write_rows(struct rows_text *rows, struct buf *out)
{
    uint64_t there = (uint64_t)(rows->batch.length - rows->at);
    uint64_t skipped = rows->skip < there ? rows->skip : there;
    rows->skip -= skipped;
    rows->at += (int64_t)skipped;
    for (; rows->at < rows->batch.length && rows->left > 0 && out->n < PIECE_BYTES; rows->at++, rows->left--) {
        if (rows->format == API_FORMAT_CSV) {
            columns_csv_row(&rows->columns, &rows->batch, rows->at, &rows->cell, out);
        } else {
            buf_text(out, rows->n_rows == 0 ? "" : ",");
            columns_json_row(&rows->columns, &rows->batch, rows->at, out);
        }
        rows->n_rows++;
    }
    if (rows->at == rows->batch.length) {
        drop_batch(rows);
    }
}

/* Takes the next message out of the bytes, if all of it is there. */
static enum err take_message(struct rows_text *rows, struct error *e)
{
    struct block *message = NULL;
    size_t taken = 0;
    if (rows->assembler.wants > BATCH_BYTES_MAX) {
        return error_set(e, ERR_EXHAUSTED, "a batch of the rows has %llu bytes: fetch them with format=arrow",
                         (unsigned long long)rows->assembler.wants);
    }
    if (rows->assembler.wants > 0) {
        ipc_assembler_admit(&rows->assembler);
    }
    enum err err = ipc_assembler_feed(&rows->assembler, (const uint8_t *)rows->bytes.data + rows->taken,
                                      rows->bytes.n - rows->taken, &taken, &message, e);
    rows->taken += taken;
    if (err == ERR_OK && message != NULL) {
        rows->at = 0;
        err = ipc_reader_message(rows->reader, message, 0, message->n, &rows->batch, e);
    }
    block_unref(message);
    return err;
}

bool rows_text_is_full(const struct rows_text *rows)
{
    return rows->has_columns && rows->left == 0;
}

static bool has_bytes(const struct rows_text *rows)
{
    return rows->taken < rows->bytes.n || rows->assembler.wants > 0;
}

enum err rows_text_next(struct rows_text *rows, struct buf *out, bool *out_more, struct error *e)
{
    enum err err = ERR_OK;
    while (err == ERR_OK && out->n < PIECE_BYTES && !rows_text_is_full(rows) &&
           (rows->batch.release != NULL || has_bytes(rows))) {
        if (rows->batch.release != NULL && rows->parquet != NULL) {
            err = parquet_file_rows(rows->parquet, &rows->batch, 0, rows->batch.length, out, e);
            drop_batch(rows);
            continue;
        }
        if (rows->batch.release != NULL) {
            write_rows(rows, out);
            continue;
        }
        err = take_message(rows, e);
        if (err == ERR_OK && !rows->has_columns && ipc_reader_schema(rows->reader) != NULL) {
            err = begin(rows, out, e);
        }
    }
    *out_more = err == ERR_OK && (rows->batch.release != NULL || has_bytes(rows));
    return err;
}

enum err rows_text_end(struct rows_text *rows, struct buf *out, struct error *e)
{
    bool is_full = rows_text_is_full(rows);
    if (!is_full &&
        (!rows->has_columns || !ipc_reader_has_ended(rows->reader) || !ipc_assembler_is_empty(&rows->assembler))) {
        return error_set(e, ERR_DATA_LOSS, "the rows end in the middle");
    }
    if (rows->parquet != NULL) {
        parquet_file_end(rows->parquet, out);
    }
    buf_text(out, rows->format == API_FORMAT_JSON ? COLUMNS_JSON_END : "");
    return ERR_OK;
}
