/*
 * schema.h - schemas of the C data interface: copied, compared, cut.
 *
 * Ownership: a schema that is written to `out` is the caller's, to be released by its callback. Threads: any.
 */
#ifndef CAPSTAN_EXCHANGE_SCHEMA_H
#define CAPSTAN_EXCHANGE_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capstan/arrow.h"

/* A copy that shares nothing with `schema`. */
void schema_copy(const struct ArrowSchema *schema, struct ArrowSchema *out);

/* A copy without child number `column`. */
void schema_copy_without(const struct ArrowSchema *schema, uint32_t column, struct ArrowSchema *out);

/* Whether names, types and metadata are the same all over. Whether a field may be NULL does not matter. */
bool schema_is_equal(const struct ArrowSchema *a, const struct ArrowSchema *b);

/* Bytes of a field's metadata; 0 for NULL. */
size_t schema_metadata_bytes(const char *metadata);

/*
 * A schema with empty children, each of which is to be made, too, before it is released. Takes `format`, `name` and
 * `metadata`, which come from mem.h; `metadata` may be NULL.
 */
struct schema_parts {
    char *format;
    char *name;
    char *metadata;
    int64_t flags;
    uint32_t n_children;
    bool has_dictionary;
};
void schema_make(struct ArrowSchema *out, const struct schema_parts *parts);

/* Releases it unless that has been done. */
void schema_release(struct ArrowSchema *schema);

#endif
