/*
 * scatter_test.c - rows go where their number says, in order, whole; compared with a scatter that goes row by row.
 */
#include "../test.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "exchange/column.h"
#include "exchange/scatter.h"
#include "exchange/schema.h"
#include "generate.h"
#include "stream.h"

#define PARTITIONS_MAX 40

/* Gathers what comes out as streams, so that rows outlive the call. */
struct sink {
    struct ArrowSchema schema;
    struct ipc_format *format;
    struct ipc_writer writers[PARTITIONS_MAX];
    struct buf bytes[PARTITIONS_MAX];
    uint32_t n;
    uint64_t rows_most;
    uint32_t n_batches;
};

static enum err append(void *context, struct block *message, struct error *e)
{
    UNUSED(e);
    buf_append(context, message->bytes, message->n);
    block_unref(message);
    return ERR_OK;
}

static enum err take(void *context, uint32_t partition, const struct ArrowArray *batch, struct error *e)
{
    struct sink *sink = context;
    sink->rows_most = (uint64_t)batch->length > sink->rows_most ? (uint64_t)batch->length : sink->rows_most;
    sink->n_batches++;
    return ipc_writer_batch(&sink->writers[partition], batch, append, &sink->bytes[partition], e);
}

/* `column` < 0: there is none with numbers. */
static void sink_init(struct sink *sink, const struct ArrowSchema *schema, int column, uint32_t n)
{
    *sink = (struct sink){.n = n};
    if (column < 0) {
        schema_copy(schema, &sink->schema);
    } else {
        schema_copy_without(schema, (uint32_t)column, &sink->schema);
    }
    CHECK_ERR(ipc_format_new(&sink->schema, &sink->format, NULL), ERR_OK);
    for (uint32_t i = 0; i < n; i++) {
        ipc_writer_init(&sink->writers[i], sink->format, false);
        (void)append(&sink->bytes[i], ipc_writer_schema(&sink->writers[i]), NULL);
    }
}

static void sink_read(struct sink *sink, uint32_t partition, struct stream_read *out)
{
    (void)append(&sink->bytes[partition], ipc_writer_end(&sink->writers[partition]), NULL);
    CHECK_ERR(stream_read(&sink->bytes[partition], 1 << 20, true, out), ERR_OK);
}

static void sink_deinit(struct sink *sink)
{
    for (uint32_t i = 0; i < sink->n; i++) {
        ipc_writer_deinit(&sink->writers[i]);
        buf_deinit(&sink->bytes[i]);
    }
    ipc_format_free(sink->format);
    schema_release(&sink->schema);
}

/* A schema with the numbers in column `column`, and arrays to go with it. */
static void make_numbers(struct prng *prng, struct ArrowArray *column, uint32_t n)
{
    mem_free((void *)column->buffers[0]);
    column->buffers[0] = NULL;
    column->null_count = 0;
    for (int64_t i = 0; i < column->offset + column->length; i++) {
        ((uint32_t *)column->buffers[1])[i] = (uint32_t)prng_below(prng, n);
    }
}

static void generate_with_numbers(struct prng *prng, uint32_t column, struct ArrowSchema *out)
{
    generate_schema(prng, 1 + (uint32_t)prng_below(prng, 5), 3, out);
    struct ArrowSchema **children = mem_alloc(((size_t)out->n_children + 1) * sizeof(struct ArrowSchema *));
    struct ArrowSchema *number = mem_calloc(1, sizeof(*number));
    struct schema_parts parts = {.format = mem_strdup("I"), .name = mem_strdup("partition")};
    schema_make(number, &parts);
    for (uint32_t i = 0, k = 0; i <= (uint32_t)out->n_children; i++) {
        children[i] = i == column ? number : out->children[k++];
    }
    mem_free((void *)out->children);
    out->children = children;
    out->n_children++;
}

/* A view of the columns but that one, as the rows that are to come out. */
static struct ArrowArray without(const struct ArrowArray *batch, uint32_t column, struct ArrowArray **children)
{
    struct ArrowArray view = *batch;
    for (uint32_t i = 0, k = 0; i < batch->n_children; i++) {
        if (i != column) {
            children[k++] = batch->children[i];
        }
    }
    view.children = children;
    view.n_children--;
    return view;
}

/* The same rows with texts as DuckDB has them; what is NULL there must not be looked at. */
struct loose {
    struct ArrowArray batch;
    struct ArrowArray arrays[16];
    struct ArrowArray *children[16];
    const void *buffers[16][2];
};

static void loosen(const struct ArrowArray *from, struct ArrowArray *to, const void **buffers)
{
    size_t n = (size_t)(from->offset + from->length);
    const int32_t *offsets = from->buffers[1];
    const uint8_t *validity = from->buffers[0];
    struct column_text *texts = mem_calloc(n, sizeof(*texts));
    for (size_t i = 0; i < n; i++) {
        texts[i].n = (uint32_t)(offsets[i + 1] - offsets[i]);
        if (validity != NULL && from->null_count != 0 && (validity[i / 8] >> (i % 8) & 1) == 0) {
            texts[i] = (struct column_text){.n = UINT32_MAX, .bytes = (const uint8_t *)8};
        } else if (texts[i].n <= COLUMN_TEXT_SHORT && texts[i].n > 0) {
            memcpy((uint8_t *)&texts[i] + 4, (const uint8_t *)from->buffers[2] + offsets[i], texts[i].n);
        } else if (texts[i].n > 0) {
            texts[i].bytes = (const uint8_t *)from->buffers[2] + offsets[i];
        }
    }
    *to = *from;
    buffers[0] = validity;
    buffers[1] = texts;
    to->buffers = buffers;
    to->n_buffers = 2;
}

static void loose_init(struct loose *loose, const struct ArrowSchema *schema, const struct ArrowArray *batch)
{
    loose->batch = *batch;
    loose->batch.children = loose->children;
    for (int64_t i = 0; i < batch->n_children; i++) {
        const char *format = schema->children[i]->format;
        bool is_text = strcmp(format, "u") == 0 || strcmp(format, "z") == 0;
        loose->children[i] = batch->children[i];
        loose->buffers[i][1] = NULL;
        if (is_text && schema->children[i]->dictionary == NULL && batch->children[i]->buffers[1] != NULL) {
            loosen(batch->children[i], &loose->arrays[i], loose->buffers[i]);
            loose->children[i] = &loose->arrays[i];
        }
    }
}

/* Returns how many columns of texts there were. */
static uint32_t loose_deinit(struct loose *loose)
{
    uint32_t n = 0;
    for (int64_t i = 0; i < loose->batch.n_children; i++) {
        n += loose->children[i] == &loose->arrays[i] ? 1 : 0;
        mem_free((void *)loose->buffers[i][1]);
    }
    return n;
}

/* Checks that the rows of all batches with the partition's number, in order, are those that came out for it. */
static void check_partition(struct sink *sink, uint32_t partition, struct ArrowArray *batches, uint32_t n,
                            uint32_t column)
{
    struct stream_read read;
    uint32_t at = 0;
    int64_t row = 0;
    sink_read(sink, partition, &read);
    for (uint32_t b = 0; b < n; b++) {
        struct ArrowArray *children[16];
        struct ArrowArray view = without(&batches[b], column, children);
        const struct ArrowArray *numbers = batches[b].children[column];
        for (int64_t i = 0; i < view.length; i++) {
            int64_t in_numbers = numbers->offset + batches[b].offset + i;
            if (((const uint32_t *)numbers->buffers[1])[in_numbers] != partition) {
                continue;
            }
            CHECK(at < read.n_batches);
            CHECK(generate_is_same_row(&sink->schema, &view, i, &read.batches[at], row));
            row++;
            if (row == read.batches[at].length) {
                at++;
                row = 0;
            }
        }
    }
    CHECK_UINT(at, read.n_batches);
    stream_read_deinit(&read);
}

TEST(a_scatter_puts_each_row_where_a_naive_one_would)
{
    uint32_t n_loose = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        struct ArrowSchema schema;
        struct ArrowArray batches[4];
        struct scatter *scatter = NULL;
        struct sink sink;
        struct prng prng;
        struct error e = {0};
        prng_init(&prng, seed);
        uint32_t column = (uint32_t)prng_below(&prng, 2);
        uint32_t n = 1 + (uint32_t)prng_below(&prng, seed % 5 == 0 ? PARTITIONS_MAX : 5);
        generate_with_numbers(&prng, column, &schema);
        sink_init(&sink, &schema, (int)column, n);
        struct scatter_options options = {
            .mode = SCATTER_COLUMN, .n_partitions = n, .column = column, .rows_max = 40, .bytes_max = 20000};
        CHECK_ERR(scatter_open(&schema, &options, take, &sink, &scatter, &e), ERR_OK);
        for (uint32_t i = 0; i < ARRAY_LEN(batches); i++) {
            generate_array(&prng, &schema, (int64_t)prng_below(&prng, 100), prng_permille(&prng, 700), &batches[i]);
            make_numbers(&prng, batches[i].children[column], n);
            if (seed % 2 == 0) {
                struct loose loose;
                loose_init(&loose, &schema, &batches[i]);
                CHECK_ERR(scatter_append(scatter, &loose.batch, &e), ERR_OK);
                n_loose += loose_deinit(&loose);
            } else {
                CHECK_ERR(scatter_append(scatter, &batches[i], &e), ERR_OK);
            }
        }
        CHECK_ERR(scatter_finish(scatter, &e), ERR_OK);
        CHECK(sink.rows_most <= 40);
        for (uint32_t p = 0; p < n; p++) {
            check_partition(&sink, p, batches, ARRAY_LEN(batches), column);
        }
        for (uint32_t i = 0; i < ARRAY_LEN(batches); i++) {
            batches[i].release(&batches[i]);
        }
        scatter_close(scatter);
        sink_deinit(&sink);
        schema.release(&schema);
    }
    CHECK(n_loose > 10);
}

static enum err count_bytes(void *context, uint32_t partition, const struct ArrowArray *batch, struct error *e)
{
    uint64_t *total = context;
    UNUSED(partition);
    UNUSED(e);
    const int32_t *offsets = batch->children[0]->buffers[1];
    CHECK(offsets[0] == 0 && offsets[batch->length] > 0); /* they did not wrap */
    CHECK(offsets[batch->length] <= 64 * 1024 * 1024);
    *total += (uint64_t)offsets[batch->length];
    return ERR_OK;
}

/* A constant of a query is one text that all its rows point to. */
TEST(rows_that_share_a_large_text_are_cut_into_batches)
{
    enum { ROWS = 2048, BYTES = 1100000 };
    struct ArrowSchema text = {.format = "u", .name = "t"};
    struct ArrowSchema *fields[] = {&text};
    struct ArrowSchema schema = {.format = "+s", .name = "", .n_children = 1, .children = fields};
    uint8_t *bytes = mem_calloc(BYTES, 1);
    static struct column_text texts[ROWS];
    const void *buffers[2] = {NULL, texts};
    const void *none[1] = {NULL};
    struct ArrowArray column = {.length = ROWS, .n_buffers = 2, .buffers = buffers};
    struct ArrowArray *columns[] = {&column};
    struct ArrowArray batch = {.length = ROWS, .n_buffers = 1, .buffers = none, .n_children = 1, .children = columns};
    struct scatter_options options = {.mode = SCATTER_ONE, .n_partitions = 1};
    struct scatter *scatter = NULL;
    struct error e = {0};
    uint64_t total = 0;
    for (int i = 0; i < ROWS; i++) {
        texts[i] = (struct column_text){.n = BYTES, .bytes = bytes};
    }
    CHECK_ERR(scatter_open(&schema, &options, count_bytes, &total, &scatter, &e), ERR_OK);
    CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_OK);
    CHECK_ERR(scatter_finish(scatter, &e), ERR_OK);
    CHECK_UINT(total, (uint64_t)ROWS * BYTES);
    texts[5].n = (uint32_t)INT32_MAX;
    CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_EXHAUSTED); /* before a byte of it is read */
    scatter_close(scatter);
    mem_free(bytes);
}

TEST(small_batches_are_put_together_and_large_ones_are_cut)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct scatter *scatter = NULL;
    struct sink sink;
    struct stream_read read;
    struct error e = {0};
    generate_numbers(0, 2048, &schema, &batch);
    sink_init(&sink, &schema, -1, 1);
    struct scatter_options options = {.mode = SCATTER_ONE, .n_partitions = 1};
    CHECK_ERR(scatter_open(&schema, &options, take, &sink, &scatter, &e), ERR_OK);
    for (int i = 0; i < 64; i++) {
        CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_OK);
    }
    CHECK_ERR(scatter_finish(scatter, &e), ERR_OK);
    CHECK_UINT(sink.n_batches, 2);
    CHECK_UINT(sink.rows_most, SCATTER_BATCH_ROWS);
    sink_read(&sink, 0, &read);
    CHECK_INT(((const int64_t *)read.batches[1].children[0]->buffers[1])[2047], 2047);
    stream_read_deinit(&read);
    batch.release(&batch);
    schema.release(&schema);
    sink_deinit(&sink);
    generate_numbers(0, 200000, &schema, &batch);
    sink_init(&sink, &schema, -1, 1);
    scatter_close(scatter);
    CHECK_ERR(scatter_open(&schema, &options, take, &sink, &scatter, &e), ERR_OK);
    CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_OK);
    CHECK_ERR(scatter_finish(scatter, &e), ERR_OK);
    CHECK_UINT(sink.n_batches, 4);
    CHECK(sink.rows_most <= SCATTER_BATCH_ROWS);
    scatter_close(scatter);
    batch.release(&batch);
    schema.release(&schema);
    sink_deinit(&sink);
}

TEST(dealing_gives_every_partition_its_share)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct scatter *scatter = NULL;
    struct sink sink;
    struct error e = {0};
    generate_numbers(0, 1000, &schema, &batch);
    sink_init(&sink, &schema, -1, 4);
    struct scatter_options options = {.mode = SCATTER_DEAL, .n_partitions = 4};
    CHECK_ERR(scatter_open(&schema, &options, take, &sink, &scatter, &e), ERR_OK);
    for (int i = 0; i < 8; i++) {
        CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_OK);
    }
    CHECK_ERR(scatter_finish(scatter, &e), ERR_OK);
    for (uint32_t p = 0; p < 4; p++) {
        CHECK_UINT(sink.writers[p].tally.rows, 2000);
    }
    scatter_close(scatter);
    batch.release(&batch);
    schema.release(&schema);
    sink_deinit(&sink);
}

TEST(many_partitions_share_the_memory_that_may_be_held)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct scatter *scatter = NULL;
    struct sink sink;
    struct error e = {0};
    generate_numbers(0, 65536, &schema, &batch);
    sink_init(&sink, &schema, -1, 1);
    struct scatter_options options = {.mode = SCATTER_ONE, .n_partitions = 1, .held_bytes_max = 128 * 1024};
    CHECK_ERR(scatter_open(&schema, &options, take, &sink, &scatter, &e), ERR_OK);
    CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_OK);
    CHECK_ERR(scatter_finish(scatter, &e), ERR_OK);
    CHECK_UINT(sink.rows_most, 16384); /* two strides of 64 KiB */
    scatter_close(scatter);
    batch.release(&batch);
    schema.release(&schema);
    sink_deinit(&sink);
}

TEST(a_partition_that_does_not_exist_is_an_error)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct scatter *scatter = NULL;
    struct sink sink;
    struct prng prng;
    struct error e = {0};
    prng_init(&prng, 1);
    generate_with_numbers(&prng, 0, &schema);
    generate_array(&prng, &schema, 10, false, &batch);
    make_numbers(&prng, batch.children[0], 3);
    sink_init(&sink, &schema, 0, 3);
    struct scatter_options options = {.mode = SCATTER_COLUMN, .n_partitions = 3};
    CHECK_ERR(scatter_open(&schema, &options, take, &sink, &scatter, &e), ERR_OK);
    ((uint32_t *)batch.children[0]->buffers[1])[9] = 3;
    CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_INVALID);
    CHECK_STR(e.message, "a row is for partition 3, but there are 3");
    ((uint32_t *)batch.children[0]->buffers[1])[9] = UINT32_MAX;
    CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_INVALID);
    static const uint8_t one_is_null[] = {0xff, 0x01};
    ((uint32_t *)batch.children[0]->buffers[1])[9] = 0;
    batch.children[0]->buffers[0] = one_is_null;
    batch.children[0]->null_count = 1;
    CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_INVALID);
    CHECK_STR(e.message, "the number of a row's partition is NULL");
    batch.children[0]->buffers[0] = NULL;
    scatter_close(scatter);
    options.n_partitions = 0;
    CHECK_ERR(scatter_open(&schema, &options, take, &sink, &scatter, &e), ERR_INVALID);
    options = (struct scatter_options){.mode = SCATTER_COLUMN, .n_partitions = 3, .column = 99};
    CHECK_ERR(scatter_open(&schema, &options, take, &sink, &scatter, &e), ERR_INVALID);
    batch.release(&batch);
    schema.release(&schema);
    sink_deinit(&sink);
}

static enum err refuse(void *context, uint32_t partition, const struct ArrowArray *batch, struct error *e)
{
    UNUSED(context);
    UNUSED(partition);
    UNUSED(batch);
    return error_set(e, ERR_EXHAUSTED, "full");
}

TEST(what_the_receiver_refuses_is_passed_on)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct scatter *scatter = NULL;
    struct error e = {0};
    generate_numbers(0, 1000, &schema, &batch);
    struct scatter_options options = {.mode = SCATTER_ONE, .n_partitions = 1, .rows_max = 100};
    CHECK_ERR(scatter_open(&schema, &options, refuse, NULL, &scatter, &e), ERR_OK);
    CHECK_ERR(scatter_append(scatter, &batch, &e), ERR_EXHAUSTED);
    CHECK_STR(e.message, "full");
    scatter_close(scatter);
    batch.release(&batch);
    schema.release(&schema);
}
