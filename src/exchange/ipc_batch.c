/*
 * ipc_batch.c - a record batch becomes arrays.
 *
 * Nodes and buffers are consumed in the order in which Arrow lists them, depth first. Every size is checked against the
 * body before it is used, every offset against its neighbours and its values, every text for UTF-8, every index against
 * its dictionary: whoever gets the arrays may walk them without looking.
 *
 * All nodes of a batch lie in one arena, the backing, with a reference of the block. Every array holds the backing, so
 * that a consumer may move a child out and release it after its parent.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include <lz4frame.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "exchange/bits.h"
#include "exchange/ipc_internal.h"

struct backing {
    atomic_uint refs;
    struct block *block;
    struct arena arena;
    struct block **unpacked; /* buffers that could not be used as they came */
    uint32_t n_unpacked;
    uint32_t unpacked_cap;
};

struct decode {
    const struct ipc__batch *batch;
    struct backing *backing;
    struct flat_list nodes;
    struct flat_list ranges;
    uint32_t node;
    uint32_t range;
    bool is_packed;
    uint64_t unpacked_bytes;
    struct error *e;
};

struct bytes {
    const uint8_t *p;
    size_t n;
};

static const uint64_t zeros[8]; /* what an empty buffer points to: one zero offset can always be read */

static enum err damaged(const struct decode *d, const char *what)
{
    return error_set(d->e, ERR_DATA_LOSS, "Arrow batch: %s", what);
}

static void backing_unref(struct backing *backing)
{
    if (atomic_fetch_sub_explicit(&backing->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (uint32_t i = 0; i < backing->n_unpacked; i++) {
        block_unref(backing->unpacked[i]);
    }
    mem_free((void *)backing->unpacked);
    block_unref(backing->block);
    arena_deinit(&backing->arena);
    mem_free(backing);
}

static void release(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
    }
    if (array->dictionary != NULL && array->dictionary->release != NULL) {
        array->dictionary->release(array->dictionary);
    }
    array->release = NULL;
    backing_unref(array->private_data);
}

/* Makes `array` one that can be released, even if its decoding fails further on. */
static void make_array(struct decode *d, const struct layout *layout, int64_t length, struct ArrowArray *array)
{
    struct arena *arena = &d->backing->arena;
    uint32_t n_buffers = layout_buffers(layout->kind);
    *array = (struct ArrowArray){.length = length,
                                 .n_buffers = n_buffers,
                                 .n_children = layout->n_children,
                                 .release = release,
                                 .private_data = d->backing};
    array->buffers = arena_zalloc(arena, n_buffers * sizeof(void *));
    array->children = arena_zalloc(arena, layout->n_children * sizeof(struct ArrowArray *));
    for (uint32_t i = 0; i < layout->n_children; i++) {
        array->children[i] = arena_zalloc(arena, sizeof(*array));
    }
    if (layout->dictionary != NULL) {
        array->dictionary = arena_zalloc(arena, sizeof(*array));
    }
    atomic_fetch_add_explicit(&d->backing->refs, 1, memory_order_relaxed);
}

/* ---- buffers ---- */

static uint8_t *add_unpacked(struct decode *d, size_t n)
{
    struct backing *backing = d->backing;
    backing->unpacked =
        mem_grow((void *)backing->unpacked, &backing->unpacked_cap, backing->n_unpacked + 1, sizeof(struct block *));
    struct block *block = block_new(n);
    backing->unpacked[backing->n_unpacked++] = block;
    return block->bytes;
}

/* Decompresses to exactly `n` bytes, and takes exactly those of `from`. */
static enum err unpack(struct decode *d, struct bytes from, size_t n, const uint8_t **out)
{
    LZ4F_dctx *context = NULL;
    if (n > LIMIT_ARROW_UNPACKED_BYTES - d->unpacked_bytes || n / 256 > from.n) { /* LZ4 reaches 255 to 1 */
        return error_set(d->e, ERR_EXHAUSTED, "Arrow batch: a compressed buffer claims to have %zu bytes", n);
    }
    d->unpacked_bytes += n;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION))) {
        return damaged(d, "it cannot be decompressed");
    }
    uint8_t *to = add_unpacked(d, n);
    size_t done = 0;
    size_t left = 1;
    while (left != 0 && !LZ4F_isError(left)) {
        size_t produced = n - done;
        size_t consumed = from.n;
        left = LZ4F_decompress(context, to + done, &produced, from.p, &consumed, NULL);
        done += produced;
        from.p += consumed;
        from.n -= consumed;
        if (produced == 0 && consumed == 0) {
            break;
        }
    }
    LZ4F_freeDecompressionContext(context);
    if (left != 0 || done != n || from.n != 0) {
        return damaged(d, "a compressed buffer is damaged");
    }
    *out = to;
    return ERR_OK;
}

/* The next buffer, which must have at least `need` bytes. */
static enum err take_buffer(struct decode *d, size_t need, struct bytes *out)
{
    struct ipc__range range;
    int64_t length = -1;
    if (d->range >= d->ranges.n) {
        return damaged(d, "a buffer is missing");
    }
    memcpy(&range, d->ranges.flat.bytes + d->ranges.pos + sizeof(range) * d->range++, sizeof(range));
    size_t body = d->batch->body_bytes;
    if (range.offset < 0 || range.length < 0 || (size_t)range.offset > body ||
        (size_t)range.length > body - (size_t)range.offset) {
        return damaged(d, "a buffer lies outside of the body");
    }
    struct bytes bytes = {.p = d->batch->body + range.offset, .n = (size_t)range.length};
    if (d->is_packed && bytes.n > 0) {
        if (bytes.n < sizeof(length)) {
            return damaged(d, "a compressed buffer is too short");
        }
        memcpy(&length, bytes.p, sizeof(length));
        bytes.p += sizeof(length);
        bytes.n -= sizeof(length);
    }
    if (length < -1) {
        return damaged(d, "a compressed buffer has no length");
    }
    if ((length == -1 ? bytes.n : (size_t)length) < need) {
        return damaged(d, "a buffer is too short");
    }
    if (length > 0) {
        enum err err = unpack(d, bytes, (size_t)length, &bytes.p);
        if (err != ERR_OK) {
            return err;
        }
        bytes.n = (size_t)length;
    } else if (length == 0 || bytes.n == 0) {
        bytes = (struct bytes){.p = (const uint8_t *)zeros, .n = 0};
    } else if ((uintptr_t)bytes.p % 8 != 0) {
        bytes.p = memcpy(add_unpacked(d, bytes.n), bytes.p, bytes.n);
    }
    *out = bytes;
    return ERR_OK;
}

static enum err take_node(struct decode *d, struct ipc__node *out)
{
    if (d->node >= d->nodes.n) {
        return damaged(d, "a column is missing");
    }
    memcpy(out, d->nodes.flat.bytes + d->nodes.pos + sizeof(*out) * d->node++, sizeof(*out));
    if (out->length < 0 || out->null_count < 0 || out->null_count > out->length) {
        return damaged(d, "a column has an impossible length or number of NULLs");
    }
    return ERR_OK;
}

/* ---- columns ---- */

static enum err get_validity(struct decode *d, const struct ipc__node *node, struct ArrowArray *array)
{
    struct bytes bytes = {0};
    size_t n = (size_t)node->length;
    enum err err = take_buffer(d, node->null_count > 0 ? bits_bytes(n) : 0, &bytes);
    if (err != ERR_OK || node->null_count == 0) {
        return err;
    }
    if (!d->batch->is_trusted && n - bits_count(bytes.p, 0, n) != (size_t)node->null_count) {
        return damaged(d, "a column's number of NULLs is wrong");
    }
    array->buffers[0] = bytes.p;
    array->null_count = node->null_count;
    return ERR_OK;
}

static bool are_offsets_ordered(const void *offsets, size_t width, size_t n)
{
    bool is_wrong = false;
    if (width == 4) {
        const int32_t *p = offsets;
        is_wrong = p[0] < 0;
        for (size_t i = 0; i < n; i++) {
            is_wrong |= p[i + 1] < p[i];
        }
    } else {
        const int64_t *p = offsets;
        is_wrong = p[0] < 0;
        for (size_t i = 0; i < n; i++) {
            is_wrong |= p[i + 1] < p[i];
        }
    }
    return !is_wrong;
}

static int64_t offset_at(const void *offsets, size_t width, size_t i)
{
    return width == 4 ? ((const int32_t *)offsets)[i] : ((const int64_t *)offsets)[i];
}

/* The buffer of offsets; `*out_end` is the last of them. */
static enum err get_offsets(struct decode *d, size_t n, size_t width, struct ArrowArray *array, uint64_t *out_end)
{
    struct bytes bytes = {0};
    enum err err = take_buffer(d, n == 0 ? 0 : (n + 1) * width, &bytes);
    if (err != ERR_OK) {
        return err;
    }
    if (n == 0) { /* what is in it says nothing, and it may be too short to be looked at */
        bytes.p = (const uint8_t *)zeros;
    } else if (!d->batch->is_trusted && !are_offsets_ordered(bytes.p, width, n)) {
        return damaged(d, "the offsets of a column are not in order");
    }
    array->buffers[1] = bytes.p;
    *out_end = (uint64_t)offset_at(bytes.p, width, n);
    return ERR_OK;
}

static bool is_ascii(const uint8_t *p, size_t n)
{
    uint64_t seen = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, sizeof(word));
        seen |= word;
    }
    for (; i < n; i++) {
        seen |= p[i];
    }
    return (seen & UINT64_C(0x8080808080808080)) == 0;
}

static bool is_text(const struct ArrowArray *array, size_t width)
{
    const void *offsets = array->buffers[1];
    const uint8_t *bytes = array->buffers[2];
    size_t n = (size_t)array->length;
    size_t first = (size_t)offset_at(offsets, width, 0);
    if (is_ascii(bytes + first, (size_t)offset_at(offsets, width, n) - first)) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        size_t start = (size_t)offset_at(offsets, width, i);
        if (!utf8_is_valid((const char *)bytes + start, (size_t)offset_at(offsets, width, i + 1) - start)) {
            return false;
        }
    }
    return true;
}

static enum err get_bytes(struct decode *d, const struct layout *layout, struct ArrowArray *array)
{
    size_t width = layout->kind == LAYOUT_BYTES64 ? 8 : 4;
    uint64_t end = 0;
    struct bytes bytes = {0};
    enum err err = get_offsets(d, (size_t)array->length, width, array, &end);
    if (err == ERR_OK) {
        err = take_buffer(d, end, &bytes);
    }
    if (err != ERR_OK) {
        return err;
    }
    array->buffers[2] = bytes.p;
    if (layout->is_text && !d->batch->is_trusted && !is_text(array, width)) {
        return damaged(d, "a text is not UTF-8");
    }
    return ERR_OK;
}

static enum err get_array(struct decode *d, const struct layout *layout, struct ArrowArray *array);

static enum err get_list(struct decode *d, const struct layout *layout, struct ArrowArray *array)
{
    uint64_t end = 0;
    enum err err = get_offsets(d, (size_t)array->length, layout->kind == LAYOUT_LIST64 ? 8 : 4, array, &end);
    if (err == ERR_OK) {
        err = get_array(d, &layout->children[0], array->children[0]);
    }
    if (err == ERR_OK && (uint64_t)array->children[0]->length < end) {
        err = damaged(d, "a list has fewer values than its offsets say");
    }
    return err;
}

/* A struct, a union or a fixed list: children whose length follows from ours. */
static enum err get_children(struct decode *d, const struct layout *layout, struct ArrowArray *array)
{
    enum err err = ERR_OK;
    uint64_t per_row = layout->kind == LAYOUT_FIXED_LIST ? layout->width : 1;
    for (uint32_t i = 0; i < layout->n_children && err == ERR_OK; i++) {
        err = get_array(d, &layout->children[i], array->children[i]);
        if (err == ERR_OK && (uint64_t)array->children[i]->length != (uint64_t)array->length * per_row) {
            err = damaged(d, "a column's children have the wrong length");
        }
    }
    return err;
}

static enum err get_union(struct decode *d, const struct layout *layout, struct ArrowArray *array)
{
    struct bytes bytes = {.p = (const uint8_t *)zeros};
    enum err err = take_buffer(d, (size_t)array->length, &bytes);
    if (err != ERR_OK) {
        return err;
    }
    for (int64_t i = 0; i < array->length && !d->batch->is_trusted; i++) {
        if (bytes.p[i] > 127 || (layout->type_ids[bytes.p[i] / 64] >> (bytes.p[i] % 64) & 1) == 0) {
            return damaged(d, "a value of a union has an unknown type");
        }
    }
    array->buffers[0] = bytes.p;
    return get_children(d, layout, array);
}

static int64_t index_at(const struct layout *layout, const uint8_t *values, size_t i)
{
    const uint8_t *p = values + i * layout->width;
    int64_t index = 0;
    memcpy(&index, p, layout->width); /* one that is negative is huge, or negative if it has 64 bits */
    return index;
}

static enum err get_dictionary(struct decode *d, const struct layout *layout, struct ArrowArray *array)
{
    const struct ipc__dictionary *dictionary = &d->batch->dictionaries[layout->dictionary_id];
    if (dictionary->block == NULL) {
        return damaged(d, "a dictionary is missing");
    }
    struct ipc__batch batch = {.block = dictionary->block,
                               .records = dictionary->records,
                               .body = dictionary->body,
                               .body_bytes = dictionary->body_bytes,
                               .dictionaries = d->batch->dictionaries,
                               .n_dictionaries = d->batch->n_dictionaries,
                               /* Its values were checked when it came; not so what they may point to by now. */
                               .is_trusted = d->batch->is_trusted || layout->dictionary->n_children == 0};
    enum err err = ipc__batch_get_values(&batch, layout->dictionary, array->dictionary, d->e);
    const uint8_t *validity = array->buffers[0];
    for (size_t i = 0; err == ERR_OK && i < (size_t)array->length && !d->batch->is_trusted; i++) {
        int64_t index = index_at(layout, array->buffers[1], i);
        bool is_null = validity != NULL && !bits_get(validity, i);
        if (!is_null && (index < 0 || index >= array->dictionary->length)) {
            err = damaged(d, "an index lies outside of its dictionary");
        }
    }
    return err;
}

static enum err get_fixed(struct decode *d, const struct layout *layout, struct ArrowArray *array)
{
    struct bytes bytes = {0};
    size_t n = (size_t)array->length;
    enum err err = take_buffer(d, layout->kind == LAYOUT_BITS ? bits_bytes(n) : n * layout->width, &bytes);
    if (err != ERR_OK) {
        return err;
    }
    array->buffers[1] = bytes.p;
    return layout->dictionary == NULL ? ERR_OK : get_dictionary(d, layout, array);
}

static enum err get_array(struct decode *d, const struct layout *layout, struct ArrowArray *array)
{
    struct ipc__node node = {0};
    enum err err = take_node(d, &node);
    if (err != ERR_OK) {
        return err;
    }
    /* More values than that cannot be told from nonsense: each takes a bit at least, but those of nulls and structs. */
    if ((uint64_t)node.length > LIMIT_ARROW_MESSAGE_BYTES) {
        return damaged(d, "a column is too long");
    }
    make_array(d, layout, node.length, array);
    if (layout->kind == LAYOUT_NULL) {
        array->null_count = node.length;
        return ERR_OK;
    }
    if (layout->kind == LAYOUT_UNION) {
        return get_union(d, layout, array);
    }
    err = get_validity(d, &node, array);
    if (err != ERR_OK) {
        return err;
    }
    switch (layout->kind) {
    case LAYOUT_BITS:
    case LAYOUT_FIXED:
        return get_fixed(d, layout, array);
    case LAYOUT_BYTES:
    case LAYOUT_BYTES64:
        return get_bytes(d, layout, array);
    case LAYOUT_LIST:
    case LAYOUT_LIST64:
        return get_list(d, layout, array);
    case LAYOUT_NULL:
    case LAYOUT_UNION:
    case LAYOUT_FIXED_LIST:
    case LAYOUT_STRUCT:
        break;
    }
    return get_children(d, layout, array);
}

/* ---- the batch ---- */

static enum err open_records(struct decode *d, int64_t *out_rows)
{
    const struct flat_table *records = &d->batch->records;
    struct flat_table codec;
    uint64_t rows = 0;
    uint64_t number = 0;
    if (!flat_get(records, 0, 8, 0, &rows) || !flat_get_list(records, 1, sizeof(struct ipc__node), &d->nodes) ||
        !flat_get_list(records, 2, sizeof(struct ipc__range), &d->ranges) ||
        !flat_get_table(records, 3, &codec, &d->is_packed) ||
        (d->is_packed && !flat_get(&codec, 0, 1, IPC__LZ4_FRAME, &number))) {
        return damaged(d, "its header is malformed");
    }
    if (number != IPC__LZ4_FRAME) {
        return error_set(d->e, ERR_INVALID, "Arrow batch: its compression (%" PRIu64 ") is not supported", number);
    }
    if (rows > LIMIT_ARROW_ROWS) {
        return error_set(d->e, ERR_EXHAUSTED, "Arrow batch: %" PRIu64 " rows, at most %d are allowed", rows,
                         LIMIT_ARROW_ROWS);
    }
    *out_rows = (int64_t)rows;
    return ERR_OK;
}

static struct decode decode_begin(const struct ipc__batch *batch, struct error *e)
{
    struct decode d = {.batch = batch, .e = e};
    d.backing = mem_calloc(1, sizeof(*d.backing));
    atomic_init(&d.backing->refs, 1);
    d.backing->block = block_ref(batch->block);
    return d;
}

/* Hands the array out, or releases what there is of it. */
static enum err decode_end(struct decode *d, enum err err, struct ArrowArray *array, struct ArrowArray *out)
{
    if (err == ERR_OK && (d->node != d->nodes.n || d->range != d->ranges.n)) {
        err = damaged(d, "there are more columns than the schema has");
    }
    if (err == ERR_OK) {
        *out = *array;
    } else if (array->release != NULL) {
        array->release(array);
    }
    backing_unref(d->backing);
    return err;
}

enum err ipc__batch_get(const struct ipc__batch *batch, const struct layout *layout, struct ArrowArray *out,
                        struct error *e)
{
    struct ArrowArray array = {0};
    struct decode d = decode_begin(batch, e);
    int64_t rows = 0;
    enum err err = open_records(&d, &rows);
    if (err == ERR_OK) {
        make_array(&d, layout, rows, &array);
        err = get_children(&d, layout, &array);
    }
    return decode_end(&d, err, &array, out);
}

enum err ipc__batch_get_values(const struct ipc__batch *batch, const struct layout *layout, struct ArrowArray *out,
                               struct error *e)
{
    struct ArrowArray array = {0};
    struct decode d = decode_begin(batch, e);
    int64_t rows = 0;
    enum err err = open_records(&d, &rows);
    if (err == ERR_OK) {
        err = get_array(&d, layout, &array);
    }
    if (err == ERR_OK && array.length != rows) {
        err = damaged(&d, "a dictionary has the wrong length");
    }
    return decode_end(&d, err, &array, out);
}
