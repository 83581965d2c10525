#include "stream.h"

#include "../test.h"

#include "base/check.h"

static enum err append(void *context, struct block *message, struct error *e)
{
    UNUSED(e);
    buf_append(context, message->bytes, message->n);
    block_unref(message);
    return ERR_OK;
}

struct ipc_tally stream_write(const struct ArrowSchema *schema, const struct ArrowArray *batches, uint32_t n,
                              bool is_compressed, struct buf *out)
{
    struct ipc_format *format = NULL;
    struct ipc_writer writer;
    struct error e = {0};
    CHECK_ERR(ipc_format_new(schema, &format, &e), ERR_OK);
    ipc_writer_init(&writer, format, is_compressed);
    (void)append(out, ipc_writer_schema(&writer), NULL);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_ERR(ipc_writer_batch(&writer, &batches[i], append, out, &e), ERR_OK);
    }
    (void)append(out, ipc_writer_end(&writer), NULL);
    CHECK_UINT(writer.tally.bytes, out->n);
    struct ipc_tally tally = writer.tally;
    ipc_writer_deinit(&writer);
    ipc_format_free(format);
    return tally;
}

static enum err take(struct stream_read *read, struct block *message)
{
    struct ArrowArray array = {0};
    enum err err = ipc_reader_message(read->reader, message, 0, message->n, &array, &read->e);
    block_unref(message);
    if (err == ERR_OK && array.release != NULL) {
        ASSERT(read->n_batches < STREAM_BATCHES_MAX);
        read->batches[read->n_batches++] = array;
    }
    return err;
}

enum err stream_read(const struct buf *bytes, size_t step, bool needs_checksums, struct stream_read *out)
{
    struct ipc_assembler assembler = {0};
    enum err err = ERR_OK;
    size_t at = 0;
    *out = (struct stream_read){0};
    out->reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = needs_checksums});
    while (err == ERR_OK && (at < bytes->n || assembler.wants > 0)) {
        struct block *message = NULL;
        size_t taken = 0;
        size_t n = bytes->n - at < step ? bytes->n - at : step;
        if (assembler.wants > bytes->n) { /* as a reader that knows how long the stream is */
            err = error_set(&out->e, ERR_DATA_LOSS, "too long");
            break;
        }
        if (assembler.wants > 0) {
            ipc_assembler_admit(&assembler);
        }
        err = ipc_assembler_feed(&assembler, (const uint8_t *)bytes->data + at, n, &taken, &message, &out->e);
        at += taken;
        if (err == ERR_OK && message != NULL) {
            err = take(out, message);
        }
    }
    if (err == ERR_OK && !ipc_reader_has_ended(out->reader)) {
        err = error_set(&out->e, ERR_DATA_LOSS, "cut off");
    }
    ipc_assembler_deinit(&assembler);
    return err;
}

void stream_read_deinit(struct stream_read *read)
{
    for (uint32_t i = 0; i < read->n_batches; i++) {
        if (read->batches[i].release != NULL) {
            read->batches[i].release(&read->batches[i]);
        }
    }
    ipc_reader_free(read->reader);
}
