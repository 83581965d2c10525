/*
 * forms.c - DECIMAL and BLOB in the forms of Arrow that are wanted.
 *
 * An instance with `has_short_decimals` writes Arrow of version 1.5. A DECIMAL is then as DuckDB keeps it, in 32 or 64 bits
 * if its digits fit: half of the bytes, and DuckDB reads it back without a conversion. But not every reader knows it, so
 * what leaves for others is widened to 128 bits. A BLOB is a view of bytes that lie elsewhere, which we do not send; it
 * becomes bytes behind offsets in any case. The new values belong to the array that is handed out.
 */
#include <string.h>

#include "base/mem.h"
#include "duck/duck_internal.h"

#define VIEW_BYTES 16
#define VIEW_INLINE_MAX 12 /* a view of so many bytes has them in itself */

/* An array that owns memory besides that which DuckDB has made. */
struct refitted {
    struct ArrowArray inner;
    uint32_t n;
    uint32_t cap;
    void **memory;
};

/* The end of "d:15,2,64", which says how many bits it has; NULL for other types, and if it does not say. */
static const char *bits_of(const char *format)
{
    const char *last = strncmp(format, "d:", 2) == 0 ? strrchr(format, ',') : NULL;
    return last != NULL && last != strchr(format, ',') ? last : NULL;
}

/* 4 or 8 for a decimal that is short, else 0. */
static int64_t short_bytes(const char *format)
{
    const char *bits = bits_of(format);
    return bits == NULL ? 0 : strcmp(bits, ",64") == 0 ? 8 : strcmp(bits, ",32") == 0 ? 4 : 0;
}

static bool is_view(const char *format)
{
    return strcmp(format, "vz") == 0 || strcmp(format, "vu") == 0;
}

bool duck__has_forms(const struct ArrowSchema *schema, bool is_shortened)
{
    bool has_some = is_view(schema->format) || (!is_shortened && short_bytes(schema->format) > 0);
    for (int64_t i = 0; i < schema->n_children && !has_some; i++) {
        has_some = duck__has_forms(schema->children[i], is_shortened);
    }
    return has_some;
}

void duck__refit_schema(struct ArrowSchema *schema, bool is_shortened)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        duck__refit_schema(schema->children[i], is_shortened);
    }
    const char *bits = is_shortened ? NULL : bits_of(schema->format);
    if (bits != NULL) {
        *(char *)(uintptr_t)bits =
            '\0'; /* of a text that DuckDB has made for this field alone; 128 is what is meant then */
    } else if (is_view(schema->format)) {
        schema->format = schema->format[1] == 'z' ? "z" : "u";
    }
}

static void *allocate(struct refitted *refitted, size_t n)
{
    refitted->memory = mem_grow((void *)refitted->memory, &refitted->cap, refitted->n + 1, sizeof(void *));
    return refitted->memory[refitted->n++] = mem_alloc(n);
}

static void widen(struct ArrowArray *array, int64_t width, struct refitted *refitted)
{
    int64_t n = array->offset + array->length;
    const void *from = array->buffers[1];
    int64_t *to = allocate(refitted, (size_t)n * 16);
    for (int64_t i = 0; i < n; i++) {
        int64_t value = width == 8 ? ((const int64_t *)from)[i] : ((const int32_t *)from)[i];
        to[2 * i] = value;
        to[2 * i + 1] = value < 0 ? -1 : 0;
    }
    array->buffers[1] = to;
}

/* The bytes that a view means; those of a row that is NULL may be anything, so it has none. */
static const uint8_t *bytes_of(const struct ArrowArray *array, int64_t row, size_t *out_n)
{
    const uint8_t *validity = array->buffers[0];
    const uint8_t *view = (const uint8_t *)array->buffers[1] + row * VIEW_BYTES;
    int32_t parts[4]; /* length, the first four bytes, which buffer, where in it */
    memcpy(parts, view, sizeof(parts));
    bool is_null = validity != NULL && (validity[row / 8] >> (row % 8) & 1) == 0;
    *out_n = is_null ? 0 : (size_t)parts[0];
    return parts[0] <= VIEW_INLINE_MAX ? view + 4 : (const uint8_t *)array->buffers[2 + parts[2]] + parts[3];
}

static enum err unfold_views(struct ArrowArray *array, struct refitted *refitted, struct error *e)
{
    int64_t n = array->offset + array->length;
    const void **buffers = allocate(refitted, 3 * sizeof(void *));
    int32_t *offsets = allocate(refitted, ((size_t)n + 1) * sizeof(int32_t));
    size_t total = 0;
    size_t n_bytes = 0;
    offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        (void)bytes_of(array, i, &n_bytes);
        total += n_bytes;
        if (total > INT32_MAX) {
            return duck__refuse_long(e);
        }
        offsets[i + 1] = (int32_t)total;
    }
    uint8_t *bytes = allocate(refitted, total + 1);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *from = bytes_of(array, i, &n_bytes);
        if (n_bytes > 0) {
            memcpy(bytes + offsets[i], from, n_bytes);
        }
    }
    buffers[0] = array->buffers[0];
    buffers[1] = offsets;
    buffers[2] = bytes;
    array->buffers = buffers;
    array->n_buffers = 3;
    return ERR_OK;
}

static enum err refit(const struct ArrowSchema *schema, struct ArrowArray *array, bool is_shortened,
                      struct refitted *refitted, struct error *e)
{
    enum err err = ERR_OK;
    int64_t width = is_shortened ? 0 : short_bytes(schema->format);
    if (width > 0 && array->buffers[1] != NULL) {
        widen(array, width, refitted);
    } else if (is_view(schema->format)) {
        err = unfold_views(array, refitted, e);
    }
    for (int64_t i = 0; i < schema->n_children && err == ERR_OK; i++) {
        err = refit(schema->children[i], array->children[i], is_shortened, refitted, e);
    }
    return err;
}

static void release(struct ArrowArray *array)
{
    struct refitted *refitted = array->private_data;
    refitted->inner.release(&refitted->inner);
    for (uint32_t i = 0; i < refitted->n; i++) {
        mem_free(refitted->memory[i]);
    }
    mem_free((void *)refitted->memory);
    mem_free(refitted);
    array->release = NULL;
}

enum err duck__refit_array(const struct ArrowSchema *schema, struct ArrowArray *array, bool is_shortened,
                           struct error *e)
{
    struct refitted *refitted = mem_calloc(1, sizeof(*refitted));
    refitted->inner = *array;
    enum err err = refit(schema, array, is_shortened, refitted, e);
    array->release = release;
    array->private_data = refitted;
    return err;
}
