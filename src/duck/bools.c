/*
 * bools.c - BOOLEAN as Arrow's own Bool.
 *
 * With arrow_lossless_conversion DuckDB writes a BOOLEAN as a byte with the extension arrow.bool8, which readers that do
 * not know the extension take for a number. All other types are as they should be in that mode. So fields and arrays are
 * put right after the conversion: bytes become bits in place, in buffers that DuckDB has made for this array alone.
 */
#include <string.h>

#include "duck/duck_internal.h"

#define EXTENSION_KEY "ARROW:extension:name"
#define EXTENSION_BOOL "arrow.bool8"

/* Whether the metadata of a field, as Arrow's C interface has it, says that it is a BOOLEAN. DuckDB wrote it. */
static bool says_bool(const char *metadata)
{
    int32_t n_pairs = 0;
    if (metadata == NULL) {
        return false;
    }
    memcpy(&n_pairs, metadata, sizeof(n_pairs));
    metadata += sizeof(n_pairs);
    for (int32_t i = 0; i < n_pairs; i++) {
        const char *texts[2];
        int32_t n[2];
        for (int k = 0; k < 2; k++) {
            memcpy(&n[k], metadata, sizeof(n[k]));
            texts[k] = metadata + sizeof(n[k]);
            metadata = texts[k] + n[k];
        }
        if (n[0] == sizeof(EXTENSION_KEY) - 1 && memcmp(texts[0], EXTENSION_KEY, (size_t)n[0]) == 0) {
            return n[1] == sizeof(EXTENSION_BOOL) - 1 && memcmp(texts[1], EXTENSION_BOOL, (size_t)n[1]) == 0;
        }
    }
    return false;
}

bool duck__bools_in_schema(struct ArrowSchema *schema)
{
    bool has_bools = false;
    for (int64_t i = 0; i < schema->n_children; i++) {
        has_bools = duck__bools_in_schema(schema->children[i]) || has_bools;
    }
    if (strcmp(schema->format, "c") == 0 && says_bool(schema->metadata)) {
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
