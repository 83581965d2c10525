/*
 * ipc_write.c - arrays become record batches.
 *
 * A batch is planned first: one node per array and one piece per buffer, with its size, where it comes from and how it
 * must be changed on the way (bits of a slice are shifted, offsets of a slice begin at zero). Then the metadata is
 * written, the message allocated at its right size, and every piece copied once into its place.
 */
#include <inttypes.h>
#include <string.h>

#include <lz4frame.h>
#include <xxhash.h>

#include "base/limits.h"
#include "base/mem.h"
#include "exchange/bits.h"
#include "exchange/ipc_internal.h"
#include "exchange/schema.h"

#define COMPRESS_BYTES_MIN ((size_t)1024) /* shorter buffers are not worth it */
#define SAMPLE_BYTES ((size_t)16 * 1024)  /* what is tried before a long buffer is compressed as a whole */

struct ipc_format {
    struct layout *layout;
    uint32_t n_dictionaries;
    struct block *schema;
    struct ipc_tally schema_tally;
    struct block *end;
};

enum piece_kind { PIECE_PLAIN, PIECE_BITS, PIECE_OFFSETS32, PIECE_OFFSETS64 };

struct piece {
    enum piece_kind kind;
    const uint8_t *from;
    size_t start; /* the first bit, or the first offset */
    size_t count; /* of bits or offsets */
    size_t n;     /* bytes, when it is copied */
    uint8_t *packed;
    size_t n_packed; /* 0: not compressed */
};

struct plan {
    struct ipc__node *nodes;
    uint32_t n_nodes;
    uint32_t nodes_cap;
    struct piece *pieces;
    uint32_t n_pieces;
    uint32_t pieces_cap;
    struct ipc__range *ranges;
    size_t body_bytes;
    bool is_packed;
};

/* ---- formats and writers ---- */

enum err ipc_format_new(const struct ArrowSchema *schema, struct ipc_format **out, struct error *e)
{
    struct ipc_format *format = mem_calloc(1, sizeof(*format));
    struct ipc__draft draft = {0};
    size_t body = 0;
    enum err err = layout_new(schema, &format->layout, &format->n_dictionaries, e);
    if (err != ERR_OK) {
        ipc_format_free(format);
        return err;
    }
    ipc__draft_begin(&draft, IPC__SCHEMA, 0);
    ipc__draft_header(&draft, ipc__schema_put(&draft.w, schema));
    format->schema = ipc__draft_block(&draft, 0, &body);
    ipc__draft_seal(&draft, format->schema, body, &format->schema_tally);
    ipc__draft_deinit(&draft);
    format->end = block_new(IPC__END_BYTES);
    static const uint32_t end[2] = {UINT32_MAX, 0};
    memcpy(format->end->bytes, end, sizeof(end));
    *out = format;
    return ERR_OK;
}

void ipc_format_free(struct ipc_format *format)
{
    if (format == NULL) {
        return;
    }
    layout_free(format->layout);
    block_unref(format->schema);
    block_unref(format->end);
    mem_free(format);
}

void ipc_writer_init(struct ipc_writer *writer, const struct ipc_format *format, bool is_compressed)
{
    *writer = (struct ipc_writer){.format = format, .is_compressed = is_compressed};
}

void ipc_writer_deinit(struct ipc_writer *writer)
{
    mem_free(writer->dictionaries);
    writer->dictionaries = NULL;
}

struct block *ipc_writer_schema(struct ipc_writer *writer)
{
    ASSERT(writer->tally.bytes == 0);
    writer->tally = writer->format->schema_tally;
    return block_ref(writer->format->schema);
}

struct block *ipc_writer_end(struct ipc_writer *writer)
{
    writer->tally.bytes += IPC__END_BYTES;
    return block_ref(writer->format->end);
}

/* ---- planning ---- */

static void add_node(struct plan *plan, int64_t length, int64_t null_count)
{
    plan->nodes = mem_grow(plan->nodes, &plan->nodes_cap, plan->n_nodes + 1, sizeof(*plan->nodes));
    plan->nodes[plan->n_nodes++] = (struct ipc__node){.length = length, .null_count = null_count};
}

static void add_piece(struct plan *plan, struct piece piece)
{
    plan->pieces = mem_grow(plan->pieces, &plan->pieces_cap, plan->n_pieces + 1, sizeof(*plan->pieces));
    plan->pieces[plan->n_pieces++] = piece;
}

static void add_plain(struct plan *plan, const void *from, size_t n)
{
    add_piece(plan, (struct piece){.kind = PIECE_PLAIN, .from = from, .n = n});
}

static void add_bits(struct plan *plan, const void *from, size_t start, size_t n)
{
    add_piece(plan, (struct piece){.kind = PIECE_BITS, .from = from, .start = start, .count = n, .n = bits_bytes(n)});
}

/* The rows of an array that are to be written: `n` from row `start` of its buffers on. */
struct slice {
    const struct ArrowArray *array;
    size_t start;
    size_t n;
};

static struct slice slice_of(const struct ArrowArray *array, size_t start, size_t n)
{
    return (struct slice){.array = array, .start = (size_t)array->offset + start, .n = n};
}

/* The node, and the validity bitmap that it needs, if any. */
static void plan_validity(struct plan *plan, struct slice slice)
{
    const struct ArrowArray *array = slice.array;
    const uint8_t *validity = array->n_buffers > 0 ? array->buffers[0] : NULL;
    bool is_whole = slice.start == (size_t)array->offset && slice.n == (size_t)array->length;
    size_t null_count = 0;
    if (validity != NULL && array->null_count != 0) {
        null_count = is_whole && array->null_count > 0 ? (size_t)array->null_count
                                                       : slice.n - bits_count(validity, slice.start, slice.n);
    }
    add_node(plan, (int64_t)slice.n, (int64_t)null_count);
    if (null_count == 0) {
        add_plain(plan, NULL, 0);
    } else {
        add_bits(plan, validity, slice.start, slice.n);
    }
}

/* Offsets, and in *out_first and *out_end which part of the values they cover. An array without rows has one offset. */
static void plan_offsets(struct plan *plan, struct slice slice, size_t width, size_t *out_first, size_t *out_end)
{
    static const uint8_t zero[8] = {0};
    const uint8_t *offsets = slice.array->buffers[1];
    int64_t first = 0;
    int64_t end = 0;
    if (slice.n == 0 || offsets == NULL) {
        add_plain(plan, zero, width);
        *out_first = *out_end = 0;
        return;
    }
    memcpy(&first, offsets + slice.start * width, width);
    memcpy(&end, offsets + (slice.start + slice.n) * width, width);
    add_piece(plan, (struct piece){.kind = width == 4 ? PIECE_OFFSETS32 : PIECE_OFFSETS64,
                                   .from = offsets,
                                   .start = slice.start,
                                   .count = slice.n + 1,
                                   .n = (slice.n + 1) * width});
    *out_first = (size_t)first;
    *out_end = (size_t)end;
}

static void plan_array(struct plan *plan, const struct layout *layout, struct slice slice)
{
    const struct ArrowArray *array = slice.array;
    size_t first = 0;
    size_t end = 0;
    size_t width = layout->kind == LAYOUT_BYTES64 || layout->kind == LAYOUT_LIST64 ? 8 : 4;
    if (layout->kind == LAYOUT_NULL) {
        add_node(plan, (int64_t)slice.n, (int64_t)slice.n);
        return;
    }
    if (layout->kind == LAYOUT_UNION) {
        add_node(plan, (int64_t)slice.n, 0);
        add_plain(plan, slice.n == 0 ? NULL : (const uint8_t *)array->buffers[array->n_buffers - 1] + slice.start,
                  slice.n);
    } else {
        plan_validity(plan, slice);
    }
    switch (layout->kind) {
    case LAYOUT_NULL:
    case LAYOUT_UNION:
    case LAYOUT_STRUCT:
        break;
    case LAYOUT_BITS:
        add_bits(plan, array->buffers[1], slice.start, slice.n);
        break;
    case LAYOUT_FIXED:
        add_plain(plan, slice.n == 0 ? NULL : (const uint8_t *)array->buffers[1] + slice.start * layout->width,
                  slice.n * layout->width);
        break;
    case LAYOUT_BYTES:
    case LAYOUT_BYTES64:
        plan_offsets(plan, slice, width, &first, &end);
        add_plain(plan, end == first ? NULL : (const uint8_t *)array->buffers[2] + first, end - first);
        break;
    case LAYOUT_LIST:
    case LAYOUT_LIST64:
        plan_offsets(plan, slice, width, &first, &end);
        plan_array(plan, &layout->children[0], slice_of(array->children[0], first, end - first));
        return;
    case LAYOUT_FIXED_LIST:
        plan_array(plan, &layout->children[0],
                   slice_of(array->children[0], slice.start * layout->width, slice.n * layout->width));
        return;
    }
    for (uint32_t i = 0; i < layout->n_children; i++) { /* of a struct or a union */
        plan_array(plan, &layout->children[i], slice_of(array->children[i], slice.start, slice.n));
    }
}

/* ---- compressing ---- */

static void fill_piece(const struct piece *piece, uint8_t *to)
{
    if (piece->n == 0) {
        return;
    }
    if (piece->kind == PIECE_PLAIN) {
        memcpy(to, piece->from, piece->n);
    } else if (piece->kind == PIECE_BITS) {
        bits_copy(piece->from, piece->start, piece->count, to);
    } else if (piece->kind == PIECE_OFFSETS32) {
        const int32_t *from = (const int32_t *)(const void *)piece->from + piece->start;
        int32_t *offsets = (int32_t *)(void *)to;
        for (size_t i = 0; i < piece->count; i++) {
            offsets[i] = from[i] - from[0];
        }
    } else {
        const int64_t *from = (const int64_t *)(const void *)piece->from + piece->start;
        int64_t *offsets = (int64_t *)(void *)to;
        for (size_t i = 0; i < piece->count; i++) {
            offsets[i] = from[i] - from[0];
        }
    }
}

static bool is_clearly_smaller(size_t packed, size_t n)
{
    return packed < n - n / 8;
}

static size_t compress(const uint8_t *from, size_t n, uint8_t *to, size_t room)
{
    LZ4F_preferences_t preferences = {.frameInfo = {.blockSizeID = LZ4F_max256KB, .contentSize = n}};
    size_t packed = LZ4F_compressFrame(to, room, from, n, &preferences);
    return LZ4F_isError(packed) ? SIZE_MAX : packed;
}

/* Compresses a buffer if that pays; a long one is tried at its middle first. */
static void pack_piece(struct plan *plan, struct piece *piece)
{
    if (piece->n < COMPRESS_BYTES_MIN) {
        return;
    }
    uint8_t *plain = NULL;
    const uint8_t *from = piece->from;
    if (piece->kind != PIECE_PLAIN) {
        plain = mem_alloc(piece->n);
        fill_piece(piece, plain);
        from = plain;
    }
    size_t room = LZ4F_compressFrameBound(piece->n, NULL) + 64;
    uint8_t *packed = mem_alloc(room);
    bool is_worth = piece->n < 4 * SAMPLE_BYTES ||
                    is_clearly_smaller(compress(from + piece->n / 2, SAMPLE_BYTES, packed, room), SAMPLE_BYTES);
    size_t n = is_worth ? compress(from, piece->n, packed, room) : SIZE_MAX;
    if (is_worth && is_clearly_smaller(n, piece->n)) {
        piece->packed = mem_realloc(packed, n);
        piece->n_packed = n;
        plan->is_packed = true;
        packed = NULL;
    }
    mem_free(packed);
    mem_free(plain);
}

/* ---- the message ---- */

/* Where the buffers lie in the body. */
static void place(struct plan *plan)
{
    size_t align = plan->is_packed ? 8 : BLOCK_ALIGN;
    size_t at = 0;
    plan->ranges = mem_alloc(plan->n_pieces * sizeof(*plan->ranges));
    for (uint32_t i = 0; i < plan->n_pieces; i++) {
        const struct piece *piece = &plan->pieces[i];
        size_t n = piece->n_packed > 0 ? piece->n_packed : piece->n;
        n += plan->is_packed && piece->n > 0 ? sizeof(int64_t) : 0;
        plan->ranges[i] = (struct ipc__range){.offset = (int64_t)at, .length = (int64_t)n};
        at = (at + n + align - 1) / align * align;
    }
    plan->body_bytes = (at + 7) / 8 * 8;
}

static void fill_body(const struct plan *plan, uint8_t *body)
{
    size_t at = 0;
    for (uint32_t i = 0; i < plan->n_pieces; i++) {
        const struct piece *piece = &plan->pieces[i];
        size_t start = (size_t)plan->ranges[i].offset;
        memset(body + at, 0, start - at);
        at = start;
        if (plan->is_packed && piece->n > 0) {
            int64_t length = piece->n_packed > 0 ? (int64_t)piece->n : -1;
            memcpy(body + at, &length, sizeof(length));
            at += sizeof(length);
        }
        if (piece->n_packed > 0) {
            memcpy(body + at, piece->packed, piece->n_packed);
            at += piece->n_packed;
        } else {
            fill_piece(piece, body + at);
            at += piece->n;
        }
    }
    memset(body + at, 0, plan->body_bytes - at);
}

static size_t put_records(struct flat_writer *w, const struct plan *plan, int64_t rows)
{
    static const uint8_t codec_sizes[] = {1, 1};
    const uint8_t sizes[] = {8, 4, 4, plan->is_packed ? 4 : 0};
    size_t records = flat_put_table(w, sizes, ARRAY_LEN(sizes));
    flat_set(w, records, 0, (uint64_t)rows);
    size_t nodes = flat_put_structs(w, plan->nodes, plan->n_nodes, sizeof(*plan->nodes));
    flat_link(w, flat_slot(w, records, 1), nodes);
    size_t ranges = flat_put_structs(w, plan->ranges, plan->n_pieces, sizeof(*plan->ranges));
    flat_link(w, flat_slot(w, records, 2), ranges);
    if (plan->is_packed) {
        size_t codec = flat_put_table(w, codec_sizes, ARRAY_LEN(codec_sizes));
        flat_set(w, codec, 0, IPC__LZ4_FRAME);
        flat_link(w, flat_slot(w, records, 3), codec);
    }
    return records;
}

static void plan_deinit(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->n_pieces; i++) {
        mem_free(plan->pieces[i].packed);
    }
    mem_free(plan->nodes);
    mem_free(plan->pieces);
    mem_free(plan->ranges);
}

static size_t plain_bytes(const struct plan *plan)
{
    size_t n = 0;
    for (uint32_t i = 0; i < plan->n_pieces; i++) {
        n += plan->pieces[i].n;
    }
    return n;
}

/* Makes the message of a plan. `dictionary_id` < 0: a batch of records. */
static struct block *make_message(struct ipc_writer *writer, struct plan *plan, int64_t rows, int64_t dictionary_id)
{
    static const uint8_t dictionary_sizes[] = {8, 4, 1};
    struct ipc__draft draft = {0};
    size_t body = 0;
    if (writer->is_compressed && plain_bytes(plan) <= LIMIT_ARROW_UNPACKED_BYTES) { /* a reader takes no more */
        for (uint32_t i = 0; i < plan->n_pieces; i++) {
            pack_piece(plan, &plan->pieces[i]);
        }
    }
    place(plan);
    ipc__draft_begin(&draft, dictionary_id < 0 ? IPC__RECORDS : IPC__DICTIONARY, plan->body_bytes);
    if (dictionary_id < 0) {
        ipc__draft_header(&draft, put_records(&draft.w, plan, rows));
    } else {
        size_t header = flat_put_table(&draft.w, dictionary_sizes, ARRAY_LEN(dictionary_sizes));
        flat_set(&draft.w, header, 0, (uint64_t)dictionary_id);
        ipc__draft_header(&draft, header);
        size_t records = put_records(&draft.w, plan, rows);
        flat_link(&draft.w, flat_slot(&draft.w, header, 1), records);
    }
    struct block *block = ipc__draft_block(&draft, plan->body_bytes, &body);
    fill_body(plan, block->bytes + body);
    ipc__draft_seal(&draft, block, body, &writer->tally);
    ipc__draft_deinit(&draft);
    return block;
}

/* A hash of all that would be written of the array; never 0. */
static uint64_t hash_plan(const struct plan *plan)
{
    uint64_t hash = XXH3_64bits(plan->nodes, plan->n_nodes * sizeof(*plan->nodes));
    for (uint32_t i = 0; i < plan->n_pieces; i++) {
        const struct piece *piece = &plan->pieces[i];
        uint8_t *bytes = mem_alloc(piece->n);
        fill_piece(piece, bytes);
        hash = XXH3_64bits_withSeed(bytes, piece->n, hash);
        mem_free(bytes);
    }
    return hash == 0 ? 1 : hash;
}

static enum err write_dictionary(struct ipc_writer *writer, const struct layout *layout, const struct ArrowArray *array,
                                 ipc_emit_fn *emit, void *context, struct error *e)
{
    struct plan plan = {0};
    enum err err = ERR_OK;
    if (writer->dictionaries == NULL) {
        writer->dictionaries = mem_calloc(writer->format->n_dictionaries, sizeof(*writer->dictionaries));
    }
    plan_array(&plan, layout->dictionary, slice_of(array, 0, (size_t)array->length));
    uint64_t hash = hash_plan(&plan);
    if (writer->dictionaries[layout->dictionary_id] != hash) {
        writer->dictionaries[layout->dictionary_id] = hash;
        err = emit(context, make_message(writer, &plan, array->length, layout->dictionary_id), e);
    }
    plan_deinit(&plan);
    return err;
}

/* Those of the values of a dictionary come before it. */
static enum err write_dictionaries(struct ipc_writer *writer, const struct layout *layout,
                                   const struct ArrowArray *array, ipc_emit_fn *emit, void *context, struct error *e)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < layout->n_children && err == ERR_OK; i++) {
        err = write_dictionaries(writer, &layout->children[i], array->children[i], emit, context, e);
    }
    if (err == ERR_OK && layout->dictionary != NULL) {
        err = write_dictionaries(writer, layout->dictionary, array->dictionary, emit, context, e);
        if (err == ERR_OK) {
            err = write_dictionary(writer, layout, array->dictionary, emit, context, e);
        }
    }
    return err;
}

static bool has_null(const struct ArrowArray *array)
{
    return array->n_buffers > 0 && array->buffers[0] != NULL && array->null_count != 0 &&
           bits_count(array->buffers[0], (size_t)array->offset, (size_t)array->length) != (size_t)array->length;
}

enum err ipc_writer_batch(struct ipc_writer *writer, const struct ArrowArray *batch, ipc_emit_fn *emit, void *context,
                          struct error *e)
{
    const struct layout *layout = writer->format->layout;
    struct plan plan = {0};
    enum err err = ERR_OK;
    if (batch->length < 0 || batch->length > LIMIT_ARROW_ROWS || batch->n_children != layout->n_children ||
        has_null(batch)) {
        return error_set(e, ERR_INVALID, "an Arrow batch of %" PRId64 " rows and %" PRId64 " columns cannot be written",
                         batch->length, batch->n_children);
    }
    if (writer->format->n_dictionaries > 0) {
        err = write_dictionaries(writer, layout, batch, emit, context, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    for (uint32_t i = 0; i < layout->n_children; i++) {
        plan_array(&plan, &layout->children[i],
                   slice_of(batch->children[i], (size_t)batch->offset, (size_t)batch->length));
    }
    struct block *block = make_message(writer, &plan, batch->length, -1);
    plan_deinit(&plan);
    writer->tally.rows += (uint64_t)batch->length;
    writer->tally.batches++;
    return emit(context, block, e);
}
