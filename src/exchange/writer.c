#include "exchange/writer.h"

#include "base/clock.h"
#include "base/mem.h"
#include "exchange/schema.h"

struct exchange_writer {
    struct exchange_writer_options options;
    struct exchange_output *output;
    struct ipc_format *format;
    struct scatter *scatter;
    struct ipc_writer *streams; /* one for each partition */
    uint64_t bytes;             /* of all messages that were made of rows */
    bool is_taken;
};

struct target {
    struct exchange_writer *writer;
    uint32_t partition;
};

static enum err keep(void *context, struct block *message, struct error *e)
{
    struct target *target = context;
    target->writer->bytes += message->n;
    return exchange_output_append(target->writer->output, target->partition, message, false, e);
}

static enum err begin_stream(struct exchange_writer *writer, uint32_t partition, struct error *e)
{
    struct ipc_writer *stream = &writer->streams[partition];
    if (stream->tally.bytes > 0) {
        return ERR_OK;
    }
    return exchange_output_append(writer->output, partition, ipc_writer_schema(stream), true, e);
}

static enum err on_batch(void *context, uint32_t partition, const struct ArrowArray *batch, struct error *e)
{
    struct target target = {.writer = context, .partition = partition};
    enum err err = begin_stream(target.writer, partition, e);
    return err == ERR_OK ? ipc_writer_batch(&target.writer->streams[partition], batch, keep, &target, e) : err;
}

static enum err open_parts(struct exchange_writer *writer, const struct ArrowSchema *schema, struct error *e)
{
    const struct exchange_writer_options *options = &writer->options;
    struct ArrowSchema kept = {0};
    enum err err = scatter_open(schema, &options->scatter, on_batch, writer, &writer->scatter, e);
    if (err != ERR_OK) {
        return err;
    }
    if (options->scatter.mode == SCATTER_COLUMN) {
        schema_copy_without(schema, options->scatter.column, &kept);
    } else {
        schema_copy(schema, &kept);
    }
    err = ipc_format_new(&kept, &writer->format, e);
    schema_release(&kept);
    if (err != ERR_OK) {
        return err;
    }
    writer->streams = mem_calloc(options->scatter.n_partitions, sizeof(*writer->streams));
    for (uint32_t i = 0; i < options->scatter.n_partitions; i++) {
        ipc_writer_init(&writer->streams[i], writer->format, options->is_compressed);
    }
    err = exchange_output_open(options->store, &options->key, options->kind, options->scatter.n_partitions,
                               &writer->output, e);
    if (err == ERR_OK && options->inline_bytes_max > 0) {
        exchange_output_limit(writer->output, options->inline_bytes_max);
    }
    return err;
}

enum err exchange_writer_open(const struct exchange_writer_options *options, const struct ArrowSchema *schema,
                              struct exchange_writer **out, struct error *e)
{
    struct exchange_writer *writer = mem_calloc(1, sizeof(*writer));
    writer->options = *options;
    enum err err = open_parts(writer, schema, e);
    if (err != ERR_OK) {
        exchange_writer_close(writer);
        return err;
    }
    *out = writer;
    return ERR_OK;
}

void exchange_writer_close(struct exchange_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    exchange_output_close(writer->output, writer->is_taken);
    scatter_close(writer->scatter);
    for (uint32_t i = 0; writer->streams != NULL && i < writer->options.scatter.n_partitions; i++) {
        ipc_writer_deinit(&writer->streams[i]);
    }
    mem_free(writer->streams);
    ipc_format_free(writer->format);
    mem_free(writer);
}

/* Results go to nobody's task. */
static void note_work(const struct exchange_writer *writer, int64_t began_us)
{
    if (writer->options.kind == EXCHANGE_KIND_SHUFFLE) {
        exchange_store_note_work(writer->options.store, EXCHANGE_WRITING, clock_mono_us() - began_us);
    }
}

enum err exchange_writer_append(struct exchange_writer *writer, const struct ArrowArray *batch, struct error *e)
{
    int64_t began_us = clock_mono_us();
    enum err err = scatter_append(writer->scatter, batch, e);
    note_work(writer, began_us);
    return err;
}

uint64_t exchange_writer_bytes(const struct exchange_writer *writer)
{
    return writer->bytes;
}

static enum err finish(struct exchange_writer *writer, struct ipc_tally *out_tallies, struct error *e)
{
    uint32_t n = writer->options.scatter.n_partitions;
    enum err err = scatter_finish(writer->scatter, e);
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        err = begin_stream(writer, i, e);
        if (err == ERR_OK) {
            err = exchange_output_append(writer->output, i, ipc_writer_end(&writer->streams[i]), true, e);
        }
    }
    if (err != ERR_OK) {
        return err;
    }
    struct ipc_tally *tallies = mem_alloc(n * sizeof(*tallies));
    for (uint32_t i = 0; i < n; i++) {
        tallies[i] = writer->streams[i].tally;
    }
    err = exchange_output_finish(writer->output, tallies, e);
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        out_tallies[i] = tallies[i];
    }
    mem_free(tallies);
    return err;
}

enum err exchange_writer_finish(struct exchange_writer *writer, struct ipc_tally *out_tallies, struct error *e)
{
    int64_t began_us = clock_mono_us();
    enum err err = finish(writer, out_tallies, e);
    note_work(writer, began_us);
    return err;
}

enum err exchange_writer_take(struct exchange_writer *writer, struct buf *out, struct error *e)
{
    struct exchange_reader *reader = NULL;
    uint64_t bytes = writer->streams[0].tally.bytes;
    size_t n = 0;
    ASSERT(bytes <= LIMIT_INLINE_RESULT_BYTES);
    enum err err = exchange_reader_open(writer->options.store, &writer->options.key, 0, 0, &reader, e);
    if (err != ERR_OK) {
        return err;
    }
    void *copy = mem_alloc((size_t)bytes);
    err = exchange_reader_read(reader, true, copy, (size_t)bytes, &n, e);
    exchange_reader_close(reader);
    if (err == ERR_OK) {
        ASSERT(n == bytes);
        buf_append(out, copy, n);
        writer->is_taken = true;
    }
    mem_free(copy);
    return err;
}
