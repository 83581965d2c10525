#include "exchange/schema.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

void schema_release(struct ArrowSchema *schema)
{
    if (schema->release != NULL) {
        schema->release(schema);
    }
}

static void release(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        schema_release(schema->children[i]);
        mem_free(schema->children[i]);
    }
    if (schema->dictionary != NULL) {
        schema_release(schema->dictionary);
        mem_free(schema->dictionary);
    }
    mem_free((void *)schema->children);
    mem_free((char *)schema->format);
    mem_free((char *)schema->name);
    mem_free((char *)schema->metadata);
    schema->release = NULL;
}

void schema_make(struct ArrowSchema *out, const struct schema_parts *parts)
{
    *out = (struct ArrowSchema){.format = parts->format,
                                .name = parts->name,
                                .metadata = parts->metadata,
                                .flags = parts->flags,
                                .n_children = parts->n_children,
                                .release = release};
    if (parts->n_children > 0) {
        out->children = mem_calloc(parts->n_children, sizeof(struct ArrowSchema *));
    }
    for (uint32_t i = 0; i < parts->n_children; i++) {
        out->children[i] = mem_calloc(1, sizeof(*out));
    }
    if (parts->has_dictionary) {
        out->dictionary = mem_calloc(1, sizeof(*out));
    }
}

/* Pairs of texts, each with its length in front, and their number before all. Machine's byte order. */
size_t schema_metadata_bytes(const char *metadata)
{
    int32_t n_pairs = 0;
    if (metadata == NULL) {
        return 0;
    }
    memcpy(&n_pairs, metadata, sizeof(n_pairs));
    size_t at = sizeof(n_pairs);
    for (int32_t i = 0; i < 2 * n_pairs; i++) {
        int32_t n = 0;
        memcpy(&n, metadata + at, sizeof(n));
        at += sizeof(n) + (size_t)n;
    }
    return at;
}

static void copy_node(const struct ArrowSchema *schema, uint32_t n_children, struct ArrowSchema *out)
{
    struct schema_parts parts = {.format = mem_strdup(schema->format),
                                 .name = mem_strdup(schema->name == NULL ? "" : schema->name),
                                 .flags = schema->flags,
                                 .n_children = n_children,
                                 .has_dictionary = schema->dictionary != NULL};
    if (schema->metadata != NULL) {
        parts.metadata = mem_copy(schema->metadata, schema_metadata_bytes(schema->metadata));
    }
    schema_make(out, &parts);
    if (schema->dictionary != NULL) {
        schema_copy(schema->dictionary, out->dictionary);
    }
}

void schema_copy(const struct ArrowSchema *schema, struct ArrowSchema *out)
{
    copy_node(schema, (uint32_t)schema->n_children, out);
    for (int64_t i = 0; i < schema->n_children; i++) {
        schema_copy(schema->children[i], out->children[i]);
    }
}

void schema_copy_without(const struct ArrowSchema *schema, uint32_t column, struct ArrowSchema *out)
{
    ASSERT(column < schema->n_children);
    copy_node(schema, (uint32_t)schema->n_children - 1, out);
    for (uint32_t i = 0, n = 0; i < schema->n_children; i++) {
        if (i != column) {
            schema_copy(schema->children[i], out->children[n++]);
        }
    }
}

static bool is_same_text(const char *a, const char *b)
{
    return strcmp(a == NULL ? "" : a, b == NULL ? "" : b) == 0;
}

static bool is_same_metadata(const char *a, const char *b)
{
    int32_t none = 0;
    a = a == NULL ? (const char *)&none : a;
    b = b == NULL ? (const char *)&none : b;
    size_t n = schema_metadata_bytes(a);
    return n == schema_metadata_bytes(b) && memcmp(a, b, n) == 0;
}

bool schema_is_equal(const struct ArrowSchema *a, const struct ArrowSchema *b)
{
    bool is_equal = is_same_text(a->format, b->format) && is_same_text(a->name, b->name) &&
                    is_same_metadata(a->metadata, b->metadata) && a->n_children == b->n_children &&
                    (a->dictionary == NULL) == (b->dictionary == NULL);
    for (int64_t i = 0; i < a->n_children && is_equal; i++) {
        is_equal = schema_is_equal(a->children[i], b->children[i]);
    }
    return is_equal && (a->dictionary == NULL || schema_is_equal(a->dictionary, b->dictionary));
}
