/*
 * bools.c - BOOLEAN as Arrow's own Bool.
 *
 * With arrow_lossless_conversion DuckDB writes a BOOLEAN as a byte with the extension arrow.bool8, which readers that do
 * not know the extension take for a number. All other types are as they should be in that mode. So fields and arrays are
 * put right after the conversion: bytes become bits in place, in buffers that DuckDB has made for this array alone.
 */
#include <string.h>

#include "duck/duck_internal.h"

#define EXTENSION_BOOL "arrow.bool8"

static bool says_bool(const struct ArrowSchema *field)
{
    size_t n = 0;
    const char *name = duck__metadata(field, "ARROW:extension:name", &n);
    return name != NULL && n == sizeof(EXTENSION_BOOL) - 1 && memcmp(name, EXTENSION_BOOL, n) == 0;
}

bool duck__bools_in_schema(struct ArrowSchema *schema)
{
    bool has_bools = false;
    for (int64_t i = 0; i < schema->n_children; i++) {
        has_bools = duck__bools_in_schema(schema->children[i]) || has_bools;
    }
    if (strcmp(schema->format, "c") == 0 && says_bool(schema)) {
        /* The texts themselves belong to what the schema's release frees. */
        schema->format = "b";
        schema->metadata = NULL;
        return true;
    }
    return has_bools;
}

/* A byte is read before the byte that takes its bit is written. */
static void pack(uint8_t *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i += 8) {
        uint8_t bits = 0;
        for (int64_t k = 0; k < 8 && i + k < n; k++) {
            bits = (uint8_t)(bits | (bytes[i + k] != 0 ? 1 : 0) << k);
        }
        bytes[i / 8] = bits;
    }
}

void duck__bools_in_array(const struct ArrowSchema *schema, struct ArrowArray *array)
{
    ASSERT(schema->n_children == array->n_children);
    if (strcmp(schema->format, "b") == 0 && array->buffers[1] != NULL) {
        pack((uint8_t *)(uintptr_t)array->buffers[1], array->offset + array->length);
    }
    for (int64_t i = 0; i < schema->n_children; i++) {
        duck__bools_in_array(schema->children[i], array->children[i]);
    }
}
