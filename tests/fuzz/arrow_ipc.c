/*
 * arrow_ipc.c - an Arrow stream from anybody, cut into pieces in any way.
 *
 * The first byte says how large the pieces are, and whether they are trusted to be without checksums. Promises: whatever
 * is taken can be walked to its end, row by row, without leaving its memory; an error comes with a message; what was
 * read is written again and read once more as the same rows.
 */
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "exchange/bits.h"
#include "exchange/ipc.h"
#include "exchange/layout.h"
#include "fuzz/fuzz.h"

#define ROWS_MAX 100000 /* of those that take no memory there can be billions */

static uint64_t seen; /* so that no look is left out */

static void look_at(const struct layout *layout, const struct ArrowArray *array, int64_t from, int64_t n);

static void look_at_bytes(const void *bytes, int64_t from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        seen += ((const uint8_t *)bytes)[from + i];
    }
}

static int64_t offset_at(const struct layout *layout, const void *offsets, int64_t i)
{
    bool is_wide = layout->kind == LAYOUT_BYTES64 || layout->kind == LAYOUT_LIST64;
    return is_wide ? ((const int64_t *)offsets)[i] : ((const int32_t *)offsets)[i];
}

static void look_at_values(const struct layout *layout, const struct ArrowArray *array, int64_t from, int64_t n)
{
    int64_t per_row = layout->kind == LAYOUT_FIXED_LIST ? layout->width : 1;
    switch (layout->kind) {
    case LAYOUT_NULL:
        break;
    case LAYOUT_BITS:
        seen += bits_count(array->buffers[1], (size_t)from, (size_t)n);
        break;
    case LAYOUT_FIXED:
        look_at_bytes(array->buffers[1], from * layout->width, n * layout->width);
        break;
    case LAYOUT_BYTES:
    case LAYOUT_BYTES64:
        look_at_bytes(array->buffers[2], offset_at(layout, array->buffers[1], from),
                      offset_at(layout, array->buffers[1], from + n) - offset_at(layout, array->buffers[1], from));
        break;
    case LAYOUT_LIST:
    case LAYOUT_LIST64: {
        int64_t first = offset_at(layout, array->buffers[1], from);
        int64_t count = offset_at(layout, array->buffers[1], from + n) - first;
        look_at(&layout->children[0], array->children[0], first, count);
        break;
    }
    case LAYOUT_UNION:
        look_at_bytes(array->buffers[0], from, n);
        /* fall through */
    case LAYOUT_STRUCT:
    case LAYOUT_FIXED_LIST:
        for (uint32_t i = 0; i < layout->n_children; i++) {
            look_at(&layout->children[i], array->children[i], from * per_row, n * per_row);
        }
        break;
    }
}

static void look_at(const struct layout *layout, const struct ArrowArray *array, int64_t from, int64_t n)
{
    ASSERT(array->offset == 0);
    ASSERT(from >= 0);
    ASSERT(n >= 0);
    ASSERT(from + n <= array->length);
    n = n > ROWS_MAX ? ROWS_MAX : n;
    if (n == 0) {
        return;
    }
    if (array->n_buffers > 1 && array->buffers[0] != NULL) {
        seen += bits_count(array->buffers[0], (size_t)from, (size_t)n);
    }
    look_at_values(layout, array, from, n);
    if (layout->dictionary != NULL) {
        look_at(layout->dictionary, array->dictionary, 0, array->dictionary->length);
    }
}

static enum err append(void *context, struct block *message, struct error *e)
{
    UNUSED(e);
    buf_append(context, message->bytes, message->n);
    block_unref(message);
    return ERR_OK;
}

/* What can be read can be written. */
static void write_again(const struct ArrowSchema *schema, const struct ArrowArray *batch)
{
    struct ipc_format *format = NULL;
    struct ipc_writer writer;
    struct buf bytes = {0};
    enum err err = ipc_format_new(schema, &format, NULL);
    ASSERT(err == ERR_OK);
    ipc_writer_init(&writer, format, false);
    err = batch->length > ROWS_MAX ? ERR_OK : ipc_writer_batch(&writer, batch, append, &bytes, NULL);
    ASSERT(err == ERR_OK);
    ipc_writer_deinit(&writer);
    ipc_format_free(format);
    buf_deinit(&bytes);
}

static enum err take(struct ipc_reader *reader, struct block *message, struct error *e)
{
    struct ArrowArray batch = {0};
    enum err err = ipc_reader_message(reader, message, 0, message->n, &batch, e);
    block_unref(message);
    if (err == ERR_OK && batch.release != NULL) {
        const struct ArrowSchema *schema = ipc_reader_schema(reader);
        struct layout *layout = NULL;
        uint32_t n = 0;
        enum err layout_err = layout_new(schema, &layout, &n, NULL);
        ASSERT(layout_err == ERR_OK);
        look_at(layout, &batch, 0, batch.length);
        write_again(schema, &batch);
        layout_free(layout);
        batch.release(&batch);
    }
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0) {
        return 0;
    }
    size_t step = bytes[0] < 128 ? 1 + (size_t)bytes[0] * 10 : n;
    struct ipc_reader *reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = false});
    struct ipc_assembler assembler = {0};
    struct error e = {0};
    enum err err = ERR_OK;
    size_t at = 1;
    while (err == ERR_OK && (at < n || assembler.wants > 0)) {
        struct block *message = NULL;
        size_t taken = 0;
        if (assembler.wants > n) {
            break; /* a reader that knows how long the stream is does not take it */
        }
        if (assembler.wants > 0) {
            ipc_assembler_admit(&assembler);
        }
        err = ipc_assembler_feed(&assembler, bytes + at, n - at < step ? n - at : step, &taken, &message, &e);
        at += taken;
        if (err == ERR_OK && message != NULL) {
            err = take(reader, message, &e);
        }
    }
    ASSERT(err == ERR_OK || e.message[0] != '\0');
    ipc_assembler_deinit(&assembler);
    ipc_reader_free(reader);
    return 0;
}
