/*
 * layout.h - how the columns of a schema lie in memory: what the Arrow format calls a layout, as a tree.
 *
 * Arrow has about forty types but few layouts. Everything here that touches rows (writing, reading, scattering) knows
 * layouts only; the types themselves, and how they are named in the C data interface and in IPC messages, are in one
 * table in type.c.
 *
 * Not taken: views, run-end encoding, list views and dense unions. DuckDB does not make them as it is set here.
 *
 * Ownership: a layout owns its children and nothing of the schema that it was made of. Threads: it never changes.
 */
#ifndef CAPSTAN_EXCHANGE_LAYOUT_H
#define CAPSTAN_EXCHANGE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"

enum layout_kind {
    LAYOUT_NULL,       /* no buffers */
    LAYOUT_BITS,       /* validity, bits */
    LAYOUT_FIXED,      /* validity, values of `width` bytes */
    LAYOUT_BYTES,      /* validity, 32-bit offsets, bytes */
    LAYOUT_BYTES64,    /* the same with 64-bit offsets */
    LAYOUT_LIST,       /* validity, 32-bit offsets; one child. Maps, too */
    LAYOUT_LIST64,     /* the same with 64-bit offsets */
    LAYOUT_FIXED_LIST, /* validity; one child with `width` values for each of ours */
    LAYOUT_STRUCT,     /* validity; children of the same length */
    LAYOUT_UNION,      /* the type of each value; children of the same length */
};

struct layout {
    enum layout_kind kind;
    uint32_t width;
    bool is_text;         /* its bytes must be UTF-8 */
    uint64_t type_ids[2]; /* of a union: bit i is set if i is one of its types */
    uint32_t n_children;
    struct layout *children;
    struct layout *dictionary; /* NULL: none; else this is the layout of the indices */
    bool is_signed;            /* of indices */
    uint32_t dictionary_id;    /* dictionaries count from 0, parents before what is inside them */
};

/* Number of buffers that an array of the layout has in the C data interface, and in IPC (the same, but for nulls). */
uint32_t layout_buffers(enum layout_kind kind);

/*
 * The layout of a schema whose root must be a struct. ERR_INVALID for types that are unknown, not taken here or
 * malformed; ERR_EXHAUSTED for one that is too deep or has too many fields. `out_dictionaries` counts them.
 */
MUST_USE enum err layout_new(const struct ArrowSchema *schema, struct layout **out, uint32_t *out_dictionaries,
                             struct error *e);
void layout_free(struct layout *layout); /* NULL ok */

#endif
