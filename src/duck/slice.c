/* slice.c - slices of Arrow arrays, by moving pointers. */
#include "duck/slice.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"

struct slice_whole {
    atomic_uint references;
    struct ArrowArray array;
};

struct slice_whole *slice_whole_new(struct ArrowArray *array)
{
    struct slice_whole *whole = mem_calloc(1, sizeof(*whole));
    atomic_init(&whole->references, 1);
    whole->array = *array;
    array->release = NULL;
    return whole;
}

void slice_whole_unref(struct slice_whole *whole)
{
    if (whole == NULL || atomic_fetch_sub_explicit(&whole->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    whole->array.release(&whole->array);
    mem_free(whole);
}

const struct ArrowArray *slice_whole_array(const struct slice_whole *whole)
{
    return &whole->array;
}

/* How the rows of an array lie in its buffers. */
enum layout {
    LAYOUT_UNKNOWN,
    LAYOUT_NULL,         /* no buffers */
    LAYOUT_BITS,         /* validity, bits */
    LAYOUT_FIXED,        /* validity, `width` bytes per row */
    LAYOUT_OFFSETS,      /* validity, offsets of `width` bytes, and what they point into: text, or a child */
    LAYOUT_TWO_FIXED,    /* validity, and two buffers of `width` bytes per row: list views */
    LAYOUT_STRUCT,       /* validity; children have the same rows */
    LAYOUT_FIXED_LIST,   /* validity; the child has `width` rows per row */
    LAYOUT_SPARSE_UNION, /* one byte per row; children have the same rows */
    LAYOUT_DENSE_UNION,  /* one byte and four bytes per row */
};

struct form {
    enum layout layout;
    int64_t width;
};

/* By the format's first letters; the longer ones first. */
static const struct {
    const char *prefix;
    struct form form;
} forms[] = {
    {"n", {LAYOUT_NULL, 0}},           {"b", {LAYOUT_BITS, 0}},          {"c", {LAYOUT_FIXED, 1}},
    {"C", {LAYOUT_FIXED, 1}},          {"s", {LAYOUT_FIXED, 2}},         {"S", {LAYOUT_FIXED, 2}},
    {"i", {LAYOUT_FIXED, 4}},          {"I", {LAYOUT_FIXED, 4}},         {"l", {LAYOUT_FIXED, 8}},
    {"L", {LAYOUT_FIXED, 8}},          {"e", {LAYOUT_FIXED, 2}},         {"f", {LAYOUT_FIXED, 4}},
    {"g", {LAYOUT_FIXED, 8}},          {"z", {LAYOUT_OFFSETS, 4}},       {"u", {LAYOUT_OFFSETS, 4}},
    {"Z", {LAYOUT_OFFSETS, 8}},        {"U", {LAYOUT_OFFSETS, 8}},       {"vz", {LAYOUT_FIXED, 16}},
    {"vu", {LAYOUT_FIXED, 16}},        {"tdD", {LAYOUT_FIXED, 4}},       {"tdm", {LAYOUT_FIXED, 8}},
    {"tts", {LAYOUT_FIXED, 4}},        {"ttm", {LAYOUT_FIXED, 4}},       {"ttu", {LAYOUT_FIXED, 8}},
    {"ttn", {LAYOUT_FIXED, 8}},        {"ts", {LAYOUT_FIXED, 8}},        {"tD", {LAYOUT_FIXED, 8}},
    {"tiM", {LAYOUT_FIXED, 4}},        {"tiD", {LAYOUT_FIXED, 8}},       {"tin", {LAYOUT_FIXED, 16}},
    {"+l", {LAYOUT_OFFSETS, 4}},       {"+L", {LAYOUT_OFFSETS, 8}},      {"+m", {LAYOUT_OFFSETS, 4}},
    {"+vl", {LAYOUT_TWO_FIXED, 4}},    {"+vL", {LAYOUT_TWO_FIXED, 8}},   {"+s", {LAYOUT_STRUCT, 0}},
    {"+us", {LAYOUT_SPARSE_UNION, 0}}, {"+ud", {LAYOUT_DENSE_UNION, 0}},
};

/* "w:16", "+w:3" and "d:38,2,256": the width is in the format. */
static struct form form_with_number(const char *format)
{
    const char *colon = strchr(format, ':');
    if (colon == NULL) {
        return (struct form){LAYOUT_UNKNOWN, 0};
    }
    if (format[0] == 'd') {
        const char *last = strrchr(colon, ',');
        bool has_bits = last != NULL && last != strchr(colon, ',');
        return (struct form){LAYOUT_FIXED, has_bits ? strtol(last + 1, NULL, 10) / 8 : 16};
    }
    return (struct form){format[0] == '+' ? LAYOUT_FIXED_LIST : LAYOUT_FIXED, strtol(colon + 1, NULL, 10)};
}

static struct form form_of(const char *format)
{
    if (format[0] == 'w' || format[0] == 'd' || strncmp(format, "+w", 2) == 0) {
        return form_with_number(format);
    }
    struct form form = {LAYOUT_UNKNOWN, 0};
    size_t longest = 0;
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        size_t n = strlen(forms[i].prefix);
        if (n > longest && strncmp(format, forms[i].prefix, n) == 0) {
            longest = n;
            form = forms[i].form;
        }
    }
    return form;
}

/* Where a slice starts and how long it is. */
struct range {
    int64_t start;
    int64_t n;
};

/* Moves buffer `i`, if it is there, by `bytes`. */
static void move(struct ArrowArray *array, int64_t i, int64_t bytes)
{
    if (i < array->n_buffers && array->buffers[i] != NULL) {
        array->buffers[i] = (const char *)array->buffers[i] + bytes;
    }
}

/* The same for a bitmap, which is copied if it does not start at a whole byte. */
static void move_bits(struct arena *arena, struct ArrowArray *array, int64_t i, struct range range)
{
    if (range.start % 8 == 0) {
        move(array, i, range.start / 8);
        return;
    }
    if (i >= array->n_buffers || array->buffers[i] == NULL) {
        return;
    }
    const uint8_t *from = (const uint8_t *)array->buffers[i] + range.start / 8;
    int shift = (int)(range.start % 8);
    int64_t n_from = (shift + range.n + 7) / 8;
    int64_t n_to = (range.n + 7) / 8;
    uint8_t *to = arena_alloc(arena, (size_t)n_to);
    for (int64_t k = 0; k < n_to; k++) {
        unsigned next = k + 1 < n_from ? from[k + 1] : 0;
        to[k] = (uint8_t)(from[k] >> shift | next << (8 - shift));
    }
    array->buffers[i] = to;
}

static void move_buffers(struct arena *arena, struct ArrowArray *array, struct form form, struct range range)
{
    bool has_validity =
        form.layout != LAYOUT_NULL && form.layout != LAYOUT_SPARSE_UNION && form.layout != LAYOUT_DENSE_UNION;
    if (has_validity) {
        move_bits(arena, array, 0, range);
    }
    switch (form.layout) {
    case LAYOUT_BITS:
        move_bits(arena, array, 1, range);
        break;
    case LAYOUT_FIXED:
    case LAYOUT_OFFSETS:
        move(array, 1, range.start * form.width);
        break;
    case LAYOUT_TWO_FIXED:
        move(array, 1, range.start * form.width);
        move(array, 2, range.start * form.width);
        break;
    case LAYOUT_SPARSE_UNION:
        move(array, 0, range.start);
        break;
    case LAYOUT_DENSE_UNION:
        move(array, 0, range.start);
        move(array, 1, range.start * 4);
        break;
    case LAYOUT_STRUCT:
    case LAYOUT_FIXED_LIST:
    case LAYOUT_UNKNOWN:
    case LAYOUT_NULL:
        break;
    }
}

/* How many rows of the children belong to one row; 0 if the children stay as they are. */
static int64_t child_rows(struct form form)
{
    switch (form.layout) {
    case LAYOUT_STRUCT:
    case LAYOUT_SPARSE_UNION:
        return 1;
    case LAYOUT_FIXED_LIST:
        return form.width;
    case LAYOUT_UNKNOWN:
    case LAYOUT_NULL:
    case LAYOUT_BITS:
    case LAYOUT_FIXED:
    case LAYOUT_OFFSETS:
    case LAYOUT_TWO_FIXED:
    case LAYOUT_DENSE_UNION:
        break;
    }
    return 0;
}

/* How many of the rows are NULL, in an array without an offset. */
static int64_t count_nulls(const struct ArrowArray *array)
{
    const uint8_t *bits = array->n_buffers > 0 ? array->buffers[0] : NULL;
    int64_t n = 0;
    for (int64_t i = 0; bits != NULL && i < array->length; i++) {
        n += (bits[i / 8] >> (i % 8) & 1) == 0 ? 1 : 0;
    }
    return n;
}

/* Children are released with the whole, never on their own; but a consumer may look whether `release` is set. */
static void release_nothing(struct ArrowArray *array)
{
    array->release = NULL;
}

static enum err slice(struct arena *arena, const struct ArrowArray *from, const struct ArrowSchema *schema,
                      int64_t first, int64_t n, struct ArrowArray *out, struct error *e)
{
    struct form form = form_of(schema->format);
    if (form.layout == LAYOUT_UNKNOWN || schema->n_children != from->n_children) {
        return error_set(e, ERR_INVALID, "an Arrow array of format '%s' is not known", schema->format);
    }
    struct range range = {.start = from->offset + first, .n = n};
    *out = *from;
    out->length = n;
    out->offset = 0;
    out->null_count = from->null_count == 0 ? 0 : -1;
    out->release = release_nothing;
    out->private_data = NULL;
    out->buffers = arena_copy(arena, from->buffers, (size_t)from->n_buffers * sizeof(void *));
    move_buffers(arena, out, form, range);
    if (schema->dictionary != NULL && out->null_count != 0) {
        out->null_count =
            count_nulls(out); /* of indices, DuckDB takes "unknown" for none, and NULLs for the first entry */
    }
    int64_t rows = child_rows(form);
    if (rows == 0) {
        return ERR_OK;
    }
    out->children = arena_alloc(arena, (size_t)from->n_children * sizeof(struct ArrowArray *));
    for (int64_t i = 0; i < from->n_children; i++) {
        out->children[i] = arena_alloc(arena, sizeof(struct ArrowArray));
        enum err err =
            slice(arena, from->children[i], schema->children[i], range.start * rows, n * rows, out->children[i], e);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

/* DuckDB's vectors. */
#define VECTOR_ROWS 2048

static int64_t offset_at(const struct ArrowArray *array, struct form form, int64_t row)
{
    const void *offsets = array->buffers[1];
    int64_t at = array->offset + row;
    return form.width == 8 ? ((const int64_t *)offsets)[at] : ((const int32_t *)offsets)[at];
}

/*
 * DuckDB dies of a dictionary's indices with NULLs if there are more of them than rows of a vector: that happens inside of
 * lists. So this looks for them.
 */
static enum err check_indices(const struct ArrowArray *array, const struct ArrowSchema *schema, struct range rows,
                              struct error *e)
{
    struct form form = form_of(schema->format);
    struct range inner = rows;
    enum err err = ERR_OK;
    if (schema->dictionary != NULL) {
        return rows.n <= VECTOR_ROWS || array->null_count == 0
                   ? ERR_OK
                   : error_set(e, ERR_INVALID,
                               "lists of ENUM with NULLs cannot be passed on; cast them, as in x::VARCHAR[]");
    }
    if (array->n_children != schema->n_children || form.layout == LAYOUT_DENSE_UNION) {
        return ERR_OK; /* slice() says what is wrong with it */
    }
    if (form.layout == LAYOUT_OFFSETS && schema->n_children > 0 && rows.n > 0) {
        inner.start = offset_at(array, form, rows.start);
        inner.n = offset_at(array, form, rows.start + rows.n) - inner.start;
    } else if (form.layout == LAYOUT_FIXED_LIST) {
        inner = (struct range){.start = (array->offset + rows.start) * form.width, .n = rows.n * form.width};
    } else {
        inner.start += array->offset;
    }
    for (int64_t i = 0; i < schema->n_children && err == ERR_OK; i++) {
        err = check_indices(array->children[i], schema->children[i], inner, e);
    }
    return err;
}

/* What a slice's parent owns. */
struct slice_owner {
    struct slice_whole *whole;
    struct arena arena;
    struct ArrowArray child;
    struct ArrowArray *children[1];
    const void *buffers[1];
};

static void release_slice(struct ArrowArray *array)
{
    struct slice_owner *owner = array->private_data;
    slice_whole_unref(owner->whole);
    arena_deinit(&owner->arena);
    mem_free(owner);
    array->release = NULL;
}

enum err slice_column(struct slice_whole *whole, const struct ArrowSchema *schema, int64_t column, int64_t first,
                      int64_t n, struct ArrowArray *out_array, struct error *e)
{
    if (column >= whole->array.n_children || first + n > whole->array.length) {
        return error_set(e, ERR_INVALID, "an Arrow array has fewer columns or rows than it should have");
    }
    enum err err = check_indices(whole->array.children[column], schema,
                                 (struct range){.start = whole->array.offset + first, .n = n}, e);
    if (err != ERR_OK) {
        return err;
    }
    struct slice_owner *owner = mem_calloc(1, sizeof(*owner));
    /* The whole is a struct too, and its own offset goes for its columns. */
    err = slice(&owner->arena, whole->array.children[column], schema, whole->array.offset + first, n, &owner->child, e);
    if (err != ERR_OK) {
        arena_deinit(&owner->arena);
        mem_free(owner);
        return err;
    }
    (void)atomic_fetch_add_explicit(&whole->references, 1, memory_order_relaxed);
    owner->whole = whole;
    owner->children[0] = &owner->child;
    *out_array = (struct ArrowArray){.length = n,
                                     .n_buffers = 1,
                                     .n_children = 1,
                                     .buffers = owner->buffers,
                                     .children = owner->children,
                                     .release = release_slice,
                                     .private_data = owner};
    return ERR_OK;
}
