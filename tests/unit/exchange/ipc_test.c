/*
 * ipc_test.c - what is written is what is read, for every type; and nothing else is ever read.
 */
#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/mem.h"
#include "exchange/schema.h"
#include "generate.h"
#include "stream.h"

/* Writes batches, reads them in pieces, compares schema, rows and tally. */
static void check_round_trip(const struct ArrowSchema *schema, struct ArrowArray *batches, uint32_t n,
                             bool is_compressed, size_t step)
{
    struct buf bytes = {0};
    struct stream_read read;
    struct ipc_tally tally = stream_write(schema, batches, n, is_compressed, &bytes);
    enum err err = stream_read(&bytes, step, true, &read);
    if (err != ERR_OK) {
        print_error("%s\n", read.e.message);
    }
    CHECK_ERR(err, ERR_OK);
    CHECK(schema_is_equal(ipc_reader_schema(read.reader), schema));
    CHECK_UINT(read.n_batches, n);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(generate_is_same(schema, &batches[i], &read.batches[i]));
    }
    const struct ipc_tally *is = ipc_reader_tally(read.reader);
    CHECK_UINT(is->bytes, tally.bytes);
    CHECK_UINT(is->rows, tally.rows);
    CHECK_UINT(is->batches, tally.batches);
    CHECK_UINT(is->checksum, tally.checksum);
    stream_read_deinit(&read);
    buf_deinit(&bytes);
}

static void release_all(struct ArrowSchema *schema, struct ArrowArray *batches, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        batches[i].release(&batches[i]);
    }
    schema->release(schema);
}

TEST(every_flat_type_comes_back_as_it_was)
{
    for (uint32_t i = 0; i < generate_n_formats; i++) {
        static const int64_t rows[] = {0, 1, 7, 8, 9, 64, 1000};
        struct ArrowSchema schema;
        struct ArrowArray batches[ARRAY_LEN(rows)];
        struct prng prng;
        prng_init(&prng, i);
        generate_flat_schema(generate_formats[i], &schema);
        for (uint32_t k = 0; k < ARRAY_LEN(rows); k++) {
            generate_array(&prng, &schema, rows[k], true, &batches[k]);
        }
        check_round_trip(&schema, batches, ARRAY_LEN(rows), false, 1 << 20);
        check_round_trip(&schema, batches, ARRAY_LEN(rows), true, 100);
        release_all(&schema, batches, ARRAY_LEN(rows));
    }
}

TEST(random_schemas_and_rows_come_back_as_they_were)
{
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct ArrowSchema schema;
        struct ArrowArray batches[3];
        struct prng prng;
        prng_init(&prng, seed);
        generate_schema(&prng, (uint32_t)prng_below(&prng, 6), (uint32_t)prng_below(&prng, 5), &schema);
        uint32_t n = (uint32_t)prng_below(&prng, 4);
        for (uint32_t i = 0; i < n; i++) {
            generate_array(&prng, &schema, (int64_t)prng_below(&prng, prng_permille(&prng, 100) ? 1500 : 60),
                           prng_permille(&prng, 800), &batches[i]);
        }
        check_round_trip(&schema, batches, n, prng_permille(&prng, 500), 1 + prng_below(&prng, 5000));
        release_all(&schema, batches, n);
    }
}

TEST(a_stream_may_come_byte_by_byte)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    generate_numbers(0, 100, &schema, &batch);
    check_round_trip(&schema, &batch, 1, false, 1);
    release_all(&schema, &batch, 1);
}

TEST(uncompressed_buffers_are_not_copied_and_lie_at_multiples_of_64)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct ArrowArray out = {0};
    struct buf bytes = {0};
    generate_numbers(0, 100, &schema, &batch);
    stream_write(&schema, &batch, 1, false, &bytes);
    struct ipc_reader *reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = true});
    struct block *block = block_new(bytes.n);
    memcpy(block->bytes, bytes.data, bytes.n);
    uint64_t first = 0;
    uint64_t second = 0;
    bool is_known = false;
    CHECK_ERR(ipc_message_bytes(block->bytes, block->n, &first, &is_known, NULL), ERR_OK);
    CHECK(is_known);
    CHECK_ERR(ipc_message_bytes(block->bytes + first, block->n - first, &second, &is_known, NULL), ERR_OK);
    CHECK_ERR(ipc_reader_message(reader, block, 0, first, &out, NULL), ERR_OK);
    CHECK_ERR(ipc_reader_message(reader, block, first, second, &out, NULL), ERR_OK);
    const uint8_t *values = out.children[0]->buffers[1];
    CHECK(values > block->bytes && values < block->bytes + block->n);
    CHECK_UINT((uintptr_t)values % 64, 0);
    out.release(&out);
    block_unref(block);
    ipc_reader_free(reader);
    buf_deinit(&bytes);
    release_all(&schema, &batch, 1);
}

TEST(a_child_that_was_moved_out_outlives_its_parent_and_its_reader)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct buf bytes = {0};
    struct stream_read read;
    generate_numbers(5, 100, &schema, &batch);
    stream_write(&schema, &batch, 1, false, &bytes);
    CHECK_ERR(stream_read(&bytes, bytes.n, true, &read), ERR_OK);
    struct ArrowArray child = *read.batches[0].children[0];
    read.batches[0].children[0]->release = NULL;
    stream_read_deinit(&read);
    CHECK_INT(((const int64_t *)child.buffers[1])[99], 104);
    child.release(&child);
    buf_deinit(&bytes);
    release_all(&schema, &batch, 1);
}

TEST(compression_makes_repetitive_rows_smaller_and_leaves_noise_alone)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct prng prng;
    struct buf plain = {0};
    struct buf packed = {0};
    generate_numbers(0, 60000, &schema, &batch);
    memset((void *)batch.children[0]->buffers[1], 7, 60000 * sizeof(int64_t));
    stream_write(&schema, &batch, 1, false, &plain);
    stream_write(&schema, &batch, 1, true, &packed);
    CHECK(packed.n < plain.n / 10);
    check_round_trip(&schema, &batch, 1, true, 1 << 20);
    prng_init(&prng, 1);
    for (int64_t i = 0; i < 60000; i++) {
        ((uint64_t *)batch.children[0]->buffers[1])[i] = prng_u64(&prng);
    }
    buf_reset(&plain);
    buf_reset(&packed);
    stream_write(&schema, &batch, 1, false, &plain);
    stream_write(&schema, &batch, 1, true, &packed);
    CHECK_UINT(packed.n, plain.n);
    buf_deinit(&plain);
    buf_deinit(&packed);
    release_all(&schema, &batch, 1);
}

TEST(a_dictionary_is_written_once_and_again_when_it_changes)
{
    struct ArrowSchema schema = {0};
    struct ArrowArray batches[3];
    struct prng prng;
    struct buf one = {0};
    struct buf two = {0};
    struct buf three = {0};
    prng_init(&prng, 3);
    struct schema_parts root = {.format = mem_strdup("+s"), .name = mem_strdup(""), .n_children = 1};
    struct schema_parts column = {.format = mem_strdup("C"), .name = mem_strdup("e"), .has_dictionary = true};
    struct schema_parts values = {.format = mem_strdup("u"), .name = mem_strdup("")};
    schema_make(&schema, &root);
    schema_make(schema.children[0], &column);
    schema_make(schema.children[0]->dictionary, &values);
    for (int i = 0; i < 3; i++) {
        generate_array(&prng, &schema, 50, false, &batches[i]);
    }
    stream_write(&schema, batches, 1, false, &one);
    stream_write(&schema, batches, 2, false, &two);
    char *text = (char *)batches[2].children[0]->dictionary->buffers[2];
    int32_t *offsets = (int32_t *)batches[2].children[0]->dictionary->buffers[1];
    memset(text, 'q', (size_t)offsets[20]);
    stream_write(&schema, batches, 3, false, &three);
    size_t batch_bytes = two.n - one.n;
    CHECK(three.n - two.n > batch_bytes); /* another dictionary */
    CHECK(batch_bytes < one.n / 2);       /* none */
    check_round_trip(&schema, batches, 3, false, 1000);
    buf_deinit(&one);
    buf_deinit(&two);
    buf_deinit(&three);
    release_all(&schema, batches, 3);
}

/* ---- damage ---- */

/* Whether what was read of a damaged stream is nothing but whole batches of the true one. */
static bool is_prefix(const struct ArrowSchema *schema, const struct ArrowArray *batches,
                      const struct stream_read *read)
{
    for (uint32_t i = 0; i < read->n_batches; i++) {
        if (!schema_is_equal(schema, ipc_reader_schema(read->reader)) ||
            !generate_is_same(schema, &batches[i], &read->batches[i])) {
            return false;
        }
    }
    return true;
}

static void check_every_flip(const struct ArrowSchema *schema, const struct ArrowArray *batches, uint32_t n,
                             bool is_compressed)
{
    struct buf bytes = {0};
    stream_write(schema, batches, n, is_compressed, &bytes);
    for (size_t i = 0; i < bytes.n; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            struct stream_read read;
            bytes.data[i] = (char)(bytes.data[i] ^ (1 << bit));
            enum err err = stream_read(&bytes, 1 << 20, true, &read);
            if (err == ERR_OK) {
                print_error("byte %zu, bit %u: not seen\n", i, bit);
            }
            CHECK(err != ERR_OK);
            CHECK(is_prefix(schema, batches, &read));
            stream_read_deinit(&read);
            bytes.data[i] = (char)(bytes.data[i] ^ (1 << bit));
        }
    }
    buf_deinit(&bytes);
}

TEST(each_flipped_bit_is_seen_before_a_wrong_row_is)
{
    for (uint64_t seed = 1; seed < 6; seed++) {
        struct ArrowSchema schema;
        struct ArrowArray batches[2];
        struct prng prng;
        prng_init(&prng, seed * 77);
        generate_schema(&prng, 3, 2, &schema);
        generate_array(&prng, &schema, 20, true, &batches[0]);
        generate_array(&prng, &schema, 5, true, &batches[1]);
        check_every_flip(&schema, batches, 2, seed % 2 == 0);
        release_all(&schema, batches, 2);
    }
}

TEST(a_stream_that_is_cut_off_anywhere_is_refused)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct buf bytes = {0};
    generate_numbers(0, 30, &schema, &batch);
    stream_write(&schema, &batch, 1, false, &bytes);
    size_t whole = bytes.n;
    for (bytes.n = 0; bytes.n < whole; bytes.n++) {
        struct stream_read read;
        CHECK_ERR(stream_read(&bytes, 1 << 20, true, &read), ERR_DATA_LOSS);
        stream_read_deinit(&read);
    }
    buf_deinit(&bytes);
    release_all(&schema, &batch, 1);
}

static void forget_checksums(struct buf *bytes)
{
    for (char *p = bytes->data; p + 12 < bytes->data + bytes->n; p++) { /* nobody knows that key */
        if (memcmp(p, "capstan:xxh3", 12) == 0) {
            *p = 'C';
        }
    }
}

TEST(a_compressed_buffer_that_lies_about_its_length_is_refused_before_memory_is_taken_for_it)
{
    enum { ROWS = 5000 };
    const uint64_t plain = (uint64_t)8 * ROWS;
    const uint64_t lies[] = {plain + 1, plain - 1, 0, 1ULL << 30, 1ULL << 40, 1ULL << 62, UINT64_MAX, UINT64_MAX - 5};
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct buf bytes = {0};
    uint32_t n_found = 0;
    generate_numbers(0, ROWS, &schema, &batch);
    stream_write(&schema, &batch, 1, true, &bytes);
    forget_checksums(&bytes);
    for (size_t at = 0; at + 8 <= bytes.n; at += 8) {
        struct stream_read read;
        if (memcmp(bytes.data + at, &plain, 8) != 0) {
            continue;
        }
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
            memcpy(bytes.data + at, &lies[i], 8);
            CHECK(stream_read(&bytes, 1 << 20, false, &read) != ERR_OK);
            stream_read_deinit(&read);
        }
        memcpy(bytes.data + at, &plain, 8);
        CHECK_ERR(stream_read(&bytes, 1 << 20, false, &read), ERR_OK);
        stream_read_deinit(&read);
        n_found++;
    }
    CHECK_UINT(n_found, 1);
    buf_deinit(&bytes);
    release_all(&schema, &batch, 1);
}

/* A column of numbers, half of them noise and half of them 0, that LZ4 makes smaller by a half. */
static void make_half_noise(uint64_t seed, int64_t n, struct ArrowSchema *out_schema, struct ArrowArray *out)
{
    struct prng prng;
    generate_numbers(0, n, out_schema, out);
    uint64_t *values = (void *)(uintptr_t)out->children[0]->buffers[1];
    prng_init(&prng, seed);
    for (int64_t i = 0; i < n; i++) {
        values[i] = i < n / 2 ? prng_u64(&prng) : 0;
    }
}

/* The buffers are long enough to unfold to all that is claimed, as far as anyone can tell before it is tried. */
TEST(compressed_buffers_that_claim_more_than_a_message_may_have_are_refused_also_together)
{
    enum { ROWS = 1200000 };
    const uint64_t plain = (uint64_t)8 * ROWS;
    const uint64_t lies[] = {LIMIT_ARROW_UNPACKED_BYTES + 1, LIMIT_ARROW_UNPACKED_BYTES - plain + 1};
    struct ArrowSchema schema;
    struct ArrowArray columns[2];
    struct ArrowArray *children[] = {&columns[0], &columns[1]};
    const void *no_nulls[] = {NULL};
    struct ArrowArray batch = {
        .length = ROWS, .n_buffers = 1, .buffers = no_nulls, .n_children = 2, .children = children};
    struct schema_parts parts = {.format = mem_strdup("+s"), .name = mem_strdup(""), .n_children = 2};
    struct buf bytes = {0};
    uint32_t n_found = 0;
    schema_make(&schema, &parts);
    for (uint64_t i = 0; i < 2; i++) {
        make_half_noise(i, ROWS, schema.children[i], &columns[i]);
    }
    stream_write(&schema, &batch, 1, true, &bytes);
    CHECK(bytes.n > LIMIT_ARROW_UNPACKED_BYTES / 256 * 2 && bytes.n < 2 * plain * 3 / 4);
    forget_checksums(&bytes);
    for (size_t at = 0; at + 8 <= bytes.n && n_found < 2; at += 8) {
        struct stream_read read;
        if (memcmp(bytes.data + at, &plain, 8) != 0) {
            continue;
        }
        memcpy(bytes.data + at, &lies[n_found++], 8);
        CHECK_ERR(stream_read(&bytes, 1 << 20, false, &read), ERR_EXHAUSTED);
        stream_read_deinit(&read);
        memcpy(bytes.data + at, &plain, 8);
    }
    CHECK_UINT(n_found, 2);
    buf_deinit(&bytes);
    release_all(&schema, columns, 2);
}

/*
 * The rows' own checks, without the help of checksums: damage anywhere may change values, but never leads outside of the
 * memory that an array says it has. The sanitizers watch while all is walked.
 */
TEST(damage_without_checksums_never_leads_outside_of_the_memory)
{
    uint64_t n_read = 0;
    for (uint64_t seed = 1; seed < 40; seed++) {
        struct ArrowSchema schema;
        struct ArrowArray batch;
        struct prng prng;
        struct buf bytes = {0};
        prng_init(&prng, seed * 1001);
        generate_schema(&prng, 4, 3, &schema);
        generate_array(&prng, &schema, 40, true, &batch);
        stream_write(&schema, &batch, 1, seed % 3 == 0, &bytes);
        forget_checksums(&bytes);
        for (int i = 0; i < 300; i++) {
            struct stream_read read;
            size_t at = prng_below(&prng, bytes.n);
            char before = bytes.data[at];
            bytes.data[at] = (char)prng_u64(&prng);
            if (stream_read(&bytes, 1 << 20, false, &read) == ERR_OK && read.n_batches == 1) {
                const struct ArrowSchema *is = ipc_reader_schema(read.reader);
                CHECK(read.batches[0].length > 1000000 || generate_is_same(is, &read.batches[0], &read.batches[0]));
                n_read++;
            }
            stream_read_deinit(&read);
            bytes.data[at] = before;
        }
        buf_deinit(&bytes);
        release_all(&schema, &batch, 1);
    }
    CHECK(n_read > 100);
}

TEST(a_message_without_a_checksum_is_refused_where_one_is_needed)
{
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct stream_read read;
    struct buf bytes = {0};
    generate_numbers(0, 30, &schema, &batch);
    stream_write(&schema, &batch, 1, false, &bytes);
    for (char *p = bytes.data; p + 12 < bytes.data + bytes.n; p++) {
        if (memcmp(p, "capstan:xxh3", 12) == 0) {
            *p = 'C';
        }
    }
    CHECK_ERR(stream_read(&bytes, 1 << 20, true, &read), ERR_DATA_LOSS);
    stream_read_deinit(&read);
    CHECK_ERR(stream_read(&bytes, 1 << 20, false, &read), ERR_OK);
    CHECK(generate_is_same(&schema, &batch, &read.batches[0]));
    stream_read_deinit(&read);
    buf_deinit(&bytes);
    release_all(&schema, &batch, 1);
}

/* ---- what is not taken ---- */

static enum err try_format(const char *format)
{
    struct ArrowSchema schema;
    struct ipc_format *made = NULL;
    struct error e = {0};
    generate_flat_schema(format, &schema);
    enum err err = ipc_format_new(&schema, &made, &e);
    ipc_format_free(made);
    schema.release(&schema);
    return err;
}

TEST(types_that_are_unknown_or_malformed_are_refused)
{
    static const char *const formats[] = {
        "vu", "vz",  "+ud:0", "+r", "",    "x",  "d:", "d:1", "d:1,2,7", "w:",    "w:-1", "w:0",    "tsx:",   "tsu",
        "ts", "tdX", "+us:1", "+l", "+w:", "+m", "cc", "+vl", "d:0,0",   "d:a,b", "w:1x", "d:77,1", "+us:1,1"};
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        if (try_format(formats[i]) != ERR_INVALID) {
            print_error("'%s' is taken\n", formats[i]);
        }
        CHECK_ERR(try_format(formats[i]), ERR_INVALID);
    }
}

TEST(a_type_that_is_too_deep_is_refused)
{
    struct ArrowSchema schema;
    struct ipc_format *made = NULL;
    struct error e = {0};
    generate_flat_schema("l", &schema);
    for (int i = 0; i < 70; i++) {
        struct ArrowSchema outer;
        struct schema_parts parts = {.format = mem_strdup("+s"), .name = mem_strdup("x"), .n_children = 1};
        schema_make(&outer, &parts);
        *outer.children[0] = schema;
        schema = outer;
    }
    CHECK_ERR(ipc_format_new(&schema, &made, &e), ERR_EXHAUSTED);
    schema.release(&schema);
}
