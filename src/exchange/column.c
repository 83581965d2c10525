#include "exchange/column.h"

#include <string.h>

#include "base/mem.h"
#include "exchange/bits.h"

/* Room for `more` bytes at the end, which the caller fills. */
static uint8_t *extend(struct column_bytes *bytes, size_t more)
{
    if (bytes->n + more > bytes->cap) {
        size_t cap = bytes->cap * 2 > bytes->n + more ? bytes->cap * 2 : bytes->n + more;
        bytes->cap = cap < 256 ? 256 : cap;
        bytes->p = mem_realloc(bytes->p, bytes->cap);
    }
    uint8_t *end = bytes->p + bytes->n;
    bytes->n += more;
    return end;
}

static bool has_offsets(enum layout_kind kind)
{
    return kind == LAYOUT_BYTES || kind == LAYOUT_BYTES64 || kind == LAYOUT_LIST || kind == LAYOUT_LIST64;
}

static bool is_wide(enum layout_kind kind)
{
    return kind == LAYOUT_BYTES64 || kind == LAYOUT_LIST64;
}

void column_reset(struct column *column)
{
    column->length = 0;
    column->null_count = 0;
    column->validity.n = 0;
    column->values.n = 0;
    column->bytes.n = 0;
    if (has_offsets(column->layout->kind)) {
        size_t width = is_wide(column->layout->kind) ? 8 : 4;
        memset(extend(&column->values, width), 0, width);
    }
    for (uint32_t i = 0; i < column->layout->n_children; i++) {
        column_reset(&column->children[i]);
    }
}

static void init(struct column *column, const struct layout *layout)
{
    *column = (struct column){.layout = layout};
    column->children = mem_calloc(layout->n_children, sizeof(*column->children));
    for (uint32_t i = 0; i < layout->n_children; i++) {
        init(&column->children[i], &layout->children[i]);
    }
}

void column_init(struct column *column, const struct layout *layout)
{
    init(column, layout);
    column_reset(column);
}

void column_deinit(struct column *column)
{
    for (uint32_t i = 0; column->children != NULL && i < column->layout->n_children; i++) {
        column_deinit(&column->children[i]);
    }
    mem_free(column->children);
    mem_free(column->validity.p);
    mem_free(column->values.p);
    mem_free(column->bytes.p);
    *column = (struct column){0};
}

/* ---- bits ---- */

/* Makes the bitmap long enough for `n` bits; new ones are zero. */
static void extend_bits(struct column_bytes *bits, size_t n)
{
    size_t bytes = bits_bytes(n);
    if (bytes > bits->n) {
        size_t more = bytes - bits->n;
        memset(extend(bits, more), 0, more);
    }
}

static void set_ones(uint8_t *bits, size_t start, size_t n)
{
    size_t i = start;
    size_t end = start + n;
    for (; i < end && i % 8 != 0; i++) {
        bits_set(bits, i);
    }
    if (end - i >= 8) {
        memset(bits + i / 8, 0xff, (end - i) / 8);
        i += (end - i) / 8 * 8;
    }
    for (; i < end; i++) {
        bits_set(bits, i);
    }
}

/* Appends the picked bits behind the `length` that are there. Returns how many are set. */
static size_t append_bits(struct column_bytes *bits, size_t length, const uint8_t *from, size_t offset,
                          struct column_pick pick)
{
    size_t n_set = 0;
    extend_bits(bits, length + pick.n);
    for (uint32_t i = 0; i < pick.n; i++) {
        size_t row = offset + (pick.rows != NULL ? pick.rows[i] : pick.start + i);
        unsigned bit = (unsigned)from[row / 8] >> (row % 8) & 1u;
        size_t at = length + i;
        bits->p[at / 8] = (uint8_t)(bits->p[at / 8] | bit << (at % 8));
        n_set += bit;
    }
    return n_set;
}

static void append_validity(struct column *column, const struct ArrowArray *array, struct column_pick pick)
{
    const uint8_t *validity = array->n_buffers > 0 ? array->buffers[0] : NULL;
    bool may_be_null = validity != NULL && array->null_count != 0;
    if (!may_be_null && column->null_count == 0) {
        return;
    }
    if (column->validity.n == 0) { /* until now, everything was there */
        extend_bits(&column->validity, column->length);
        set_ones(column->validity.p, 0, column->length);
    }
    if (may_be_null) {
        size_t n_set = append_bits(&column->validity, column->length, validity, (size_t)array->offset, pick);
        column->null_count += pick.n - n_set;
        if (column->null_count == 0) { /* the NULLs of the array went to others */
            column->validity.n = 0;
        }
    } else {
        extend_bits(&column->validity, column->length + pick.n);
        set_ones(column->validity.p, column->length, pick.n);
    }
}

/* ---- values ---- */

#define GATHER(type)                                                                                                   \
    do {                                                                                                               \
        const type *in = (const type *)(const void *)from;                                                             \
        type *out = (type *)(void *)to;                                                                                \
        for (uint32_t i = 0; i < pick.n; i++) {                                                                        \
            out[i] = in[pick.rows[i]];                                                                                 \
        }                                                                                                              \
    } while (0)

struct pair {
    uint64_t low;
    uint64_t high;
};

/* `from` is the row with number 0. Buffers of Arrow are aligned to their values, and so are ours. */
static void gather(const uint8_t *from, size_t width, struct column_pick pick, uint8_t *to)
{
    switch (width) {
    case 1:
        GATHER(uint8_t);
        break;
    case 2:
        GATHER(uint16_t);
        break;
    case 4:
        GATHER(uint32_t);
        break;
    case 8:
        GATHER(uint64_t);
        break;
    case 16:
        GATHER(struct pair);
        break;
    default:
        for (uint32_t i = 0; i < pick.n; i++) {
            memcpy(to + i * width, from + pick.rows[i] * width, width);
        }
    }
}

static void append_values(struct column *column, const uint8_t *values, size_t offset, size_t width,
                          struct column_pick pick)
{
    if (pick.n == 0) {
        return;
    }
    uint8_t *to = extend(&column->values, pick.n * width);
    if (pick.rows == NULL) {
        memcpy(to, values + (offset + pick.start) * width, pick.n * width);
    } else {
        gather(values + offset * width, width, pick, to);
    }
}

/* One offset for each row, behind those that are there. `total` becomes how much the rows take together. */
#define APPEND_OFFSETS(type)                                                                                           \
    do {                                                                                                               \
        const type *in = (const type *)offsets + offset;                                                               \
        type *out = (type *)(void *)extend(&column->values, pick.n * sizeof(type));                                    \
        type at = out[-1];                                                                                             \
        type start = at;                                                                                               \
        for (uint32_t i = 0; i < pick.n; i++) {                                                                        \
            size_t row = pick.rows != NULL ? pick.rows[i] : pick.start + i;                                            \
            at = (type)(at + in[row + 1] - in[row]);                                                                   \
            out[i] = at;                                                                                               \
        }                                                                                                              \
        total = (size_t)(at - start);                                                                                  \
    } while (0)

static size_t append_offsets(struct column *column, const void *offsets, size_t offset, struct column_pick pick)
{
    size_t total = 0;
    if (is_wide(column->layout->kind)) {
        APPEND_OFFSETS(int64_t);
    } else {
        APPEND_OFFSETS(int32_t);
    }
    return total;
}

static int64_t offset_at(const struct layout *layout, const void *offsets, size_t i)
{
    return is_wide(layout->kind) ? ((const int64_t *)offsets)[i] : ((const int32_t *)offsets)[i];
}

/* A text, most of which are short: faster than a call, with a few words that may overlap. */
static void copy_short(uint8_t *to, const uint8_t *from, size_t n)
{
    if (n > 32) {
        memcpy(to, from, n);
    } else if (n >= 16) {
        struct pair first, last;
        memcpy(&first, from, 16);
        memcpy(&last, from + n - 16, 16);
        memcpy(to, &first, 16);
        memcpy(to + n - 16, &last, 16);
    } else if (n >= 8) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + n - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + n - 8, &last, 8);
    } else {
        for (size_t i = 0; i < n; i++) {
            to[i] = from[i];
        }
    }
}

/* The texts of the picked rows, one behind the other. */
#define COPY_TEXTS(type)                                                                                               \
    do {                                                                                                               \
        const type *in = (const type *)offsets + offset;                                                               \
        for (uint32_t i = 0; i < pick.n; i++) {                                                                        \
            size_t start = (size_t)in[pick.rows[i]];                                                                   \
            size_t n = (size_t)in[pick.rows[i] + 1] - start;                                                           \
            copy_short(to, bytes + start, n);                                                                          \
            to += n;                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- texts as DuckDB has them ---- */

_Static_assert(sizeof(struct column_text) == 16, "as DuckDB has them");

/* The row counts from the array's start, not from its offset. */
static bool is_null(const struct ArrowArray *array, size_t row)
{
    const uint8_t *validity = array->null_count == 0 ? NULL : array->buffers[0];
    return validity != NULL && (validity[row / 8] >> (row % 8) & 1) == 0;
}

uint64_t column_text_bytes(const struct ArrowArray *array, size_t first, size_t n)
{
    const struct column_text *texts = array->buffers[1];
    uint64_t total = 0;
    for (size_t row = first; row < first + n; row++) {
        total += is_null(array, row) ? 0 : texts[row].n;
    }
    return total;
}

static void append_loose_texts(struct column *column, const struct ArrowArray *array, struct column_pick pick)
{
    const struct column_text *texts = (const struct column_text *)array->buffers[1] + array->offset;
    size_t offset = (size_t)array->offset;
    int32_t *ends = (int32_t *)(void *)extend(&column->values, pick.n * sizeof(int32_t));
    int32_t start = ends[-1];
    int32_t at = start;
    for (uint32_t i = 0; i < pick.n; i++) {
        size_t row = pick.rows != NULL ? pick.rows[i] : pick.start + i;
        at += is_null(array, offset + row) ? 0 : (int32_t)texts[row].n;
        ends[i] = at;
    }
    uint8_t *to = extend(&column->bytes, (size_t)(at - start));
    for (uint32_t i = 0; i < pick.n; i++) {
        const struct column_text *text = &texts[pick.rows != NULL ? pick.rows[i] : pick.start + i];
        size_t n = (size_t)(ends[i] - start);
        start = ends[i];
        if (n > 0) {
            copy_short(to, n <= COLUMN_TEXT_SHORT ? text->start : text->bytes, n);
            to += n;
        }
    }
}

static void append_texts(struct column *column, const struct ArrowArray *array, struct column_pick pick)
{
    if (array->n_buffers == 2) {
        append_loose_texts(column, array, pick);
        return;
    }
    const struct layout *layout = column->layout;
    size_t offset = (size_t)array->offset;
    const void *offsets = array->buffers[1];
    const uint8_t *bytes = array->buffers[2];
    size_t total = append_offsets(column, offsets, offset, pick);
    if (total == 0) {
        return;
    }
    uint8_t *to = extend(&column->bytes, total);
    if (pick.rows == NULL) {
        memcpy(to, bytes + offset_at(layout, offsets, offset + pick.start), total);
        return;
    }
    if (is_wide(layout->kind)) {
        COPY_TEXTS(int64_t);
    } else {
        COPY_TEXTS(int32_t);
    }
}

static void append_list(struct column *column, const struct ArrowArray *array, struct column_pick pick)
{
    const struct layout *layout = column->layout;
    size_t offset = (size_t)array->offset;
    const void *offsets = array->buffers[1];
    size_t total = append_offsets(column, offsets, offset, pick);
    struct column_pick inner = {.n = (uint32_t)total};
    uint32_t *rows = NULL;
    if (total == 0) {
        return;
    }
    if (pick.rows == NULL) {
        inner.start = (uint32_t)offset_at(layout, offsets, offset + pick.start);
    } else {
        inner.rows = rows = mem_alloc(total * sizeof(*rows));
        uint32_t *next = rows;
        for (uint32_t i = 0; i < pick.n; i++) {
            size_t row = offset + pick.rows[i];
            int64_t end = offset_at(layout, offsets, row + 1);
            for (int64_t value = offset_at(layout, offsets, row); value < end; value++) {
                *next++ = (uint32_t)value;
            }
        }
    }
    column_append(&column->children[0], array->children[0], inner);
    mem_free(rows);
}

static void append_fixed_list(struct column *column, const struct ArrowArray *array, struct column_pick pick)
{
    uint32_t width = column->layout->width;
    uint32_t offset = (uint32_t)array->offset;
    struct column_pick inner = {.n = pick.n * width};
    uint32_t *rows = NULL;
    if (inner.n == 0) {
        return;
    }
    if (pick.rows == NULL) {
        inner.start = (offset + pick.start) * width;
    } else {
        inner.rows = rows = mem_alloc(inner.n * sizeof(*rows));
        for (uint32_t i = 0; i < inner.n; i++) {
            rows[i] = (offset + pick.rows[i / width]) * width + i % width;
        }
    }
    column_append(&column->children[0], array->children[0], inner);
    mem_free(rows);
}

/* Children of a struct or a union: the same rows, but they do not know their parent's offset. */
static void append_children(struct column *column, const struct ArrowArray *array, struct column_pick pick)
{
    uint32_t offset = (uint32_t)array->offset;
    uint32_t *rows = NULL;
    pick.start += offset;
    if (pick.rows != NULL && offset != 0) {
        rows = mem_alloc(pick.n * sizeof(*rows));
        for (uint32_t i = 0; i < pick.n; i++) {
            rows[i] = pick.rows[i] + offset;
        }
        pick.rows = rows;
    }
    for (uint32_t i = 0; i < column->layout->n_children; i++) {
        column_append(&column->children[i], array->children[i], pick);
    }
    mem_free(rows);
}

void column_append(struct column *column, const struct ArrowArray *array, struct column_pick pick)
{
    enum layout_kind kind = column->layout->kind;
    size_t offset = (size_t)array->offset;
    if (pick.n == 0) {
        return;
    }
    if (kind == LAYOUT_UNION) {
        append_values(column, array->buffers[array->n_buffers - 1], offset, 1, pick);
    } else if (kind != LAYOUT_NULL) {
        append_validity(column, array, pick);
    }
    switch (kind) {
    case LAYOUT_NULL:
        break;
    case LAYOUT_BITS:
        (void)append_bits(&column->values, column->length, array->buffers[1], offset, pick);
        break;
    case LAYOUT_FIXED:
        append_values(column, array->buffers[1], offset, column->layout->width, pick);
        break;
    case LAYOUT_BYTES:
    case LAYOUT_BYTES64:
        append_texts(column, array, pick);
        break;
    case LAYOUT_LIST:
    case LAYOUT_LIST64:
        append_list(column, array, pick);
        break;
    case LAYOUT_FIXED_LIST:
        append_fixed_list(column, array, pick);
        break;
    case LAYOUT_STRUCT:
    case LAYOUT_UNION:
        append_children(column, array, pick);
        break;
    }
    column->length += pick.n;
}

size_t column_bytes_used(const struct column *column)
{
    size_t n = column->validity.n + column->values.n + column->bytes.n;
    for (uint32_t i = 0; i < column->layout->n_children; i++) {
        n += column_bytes_used(&column->children[i]);
    }
    return n;
}

size_t column_view_nodes(const struct layout *layout)
{
    size_t n = 1;
    for (uint32_t i = 0; i < layout->n_children; i++) {
        n += column_view_nodes(&layout->children[i]);
    }
    return n;
}

struct ArrowArray *column_view(const struct column *column, struct column_view *view)
{
    const struct layout *layout = column->layout;
    const void **buffers = view->buffers + 3 * view->n;
    struct ArrowArray *array = &view->arrays[view->n++];
    struct ArrowArray **children = view->links + view->n_links;
    view->n_links += layout->n_children;
    *array = (struct ArrowArray){.length = (int64_t)column->length,
                                 .null_count = (int64_t)column->null_count,
                                 .n_buffers = layout_buffers(layout->kind),
                                 .n_children = layout->n_children,
                                 .buffers = buffers,
                                 .children = children};
    if (layout->kind == LAYOUT_UNION) {
        buffers[0] = column->values.p;
    } else {
        buffers[0] = column->null_count > 0 ? column->validity.p : NULL;
        buffers[1] = column->values.p;
        buffers[2] = column->bytes.p;
    }
    for (uint32_t i = 0; i < layout->n_children; i++) {
        children[i] = column_view(&column->children[i], view);
    }
    return array;
}
