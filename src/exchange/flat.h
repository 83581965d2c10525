/*
 * flat.h - the little of FlatBuffers that Arrow's messages need: tables, texts, lists of tables and of structs.
 *
 * The writer goes forward: a table is laid out with all its fields, and what they point to follows later and is linked
 * in. Every field of a table is written, so that no default has to be known here.
 *
 * The reader trusts nothing: each step is checked against the bytes, and says false if they are not well-formed. It does
 * not remember where it has been; a buffer in which tables are shared, or even hold themselves, is for the caller to bound.
 *
 * Ownership: the writer appends to the caller's buffer; what the reader hands out points into the caller's bytes.
 * Threads: one at a time per writer; readers have no state.
 */
#ifndef CAPSTAN_EXCHANGE_FLAT_H
#define CAPSTAN_EXCHANGE_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"

/* ---- writing ---- */

/* Positions count from the start of the flat buffer, which is where `out` ended when it was begun. */
struct flat_writer {
    struct buf *out;
    size_t base;
};

#define FLAT_SLOTS_MAX 8

/* Begins a flat buffer at the end of `out`, which must be there at a multiple of 8. The root is to be linked to position 0. */
struct flat_writer flat_begin(struct buf *out);

/* A zeroed table whose fields have these sizes (1, 2, 4, 8; 0: absent). Returns its position. */
size_t flat_put_table(struct flat_writer *w, const uint8_t *sizes, uint32_t n);

/* Sets a field. The value is cut to the size that the field was given. */
void flat_set(struct flat_writer *w, size_t table, uint32_t slot, uint64_t value);

/* Where the field is, to be linked. */
size_t flat_slot(const struct flat_writer *w, size_t table, uint32_t slot);

/* Makes the four bytes at `from` point to `to`, which lies behind. */
void flat_link(struct flat_writer *w, size_t from, size_t to);

size_t flat_put_text(struct flat_writer *w, const char *text, size_t n);

/* A list of `n` links, to be linked one by one: element i is at the returned position + 4 + 4 * i. */
size_t flat_put_links(struct flat_writer *w, uint32_t n);

/* A list of `n` elements of `size` bytes, a multiple of 4 up to 16. Little-endian machines only. */
size_t flat_put_structs(struct flat_writer *w, const void *elements, uint32_t n, size_t size);

/* ---- reading ---- */

struct flat {
    const uint8_t *bytes;
    size_t n;
};

struct flat_table {
    struct flat flat;
    size_t pos;
    size_t vtable;
    uint32_t n_vtable; /* bytes of it */
    uint32_t n_table;
};

struct flat_list {
    struct flat flat;
    size_t pos; /* of the first element */
    uint32_t n;
};

MUST_USE bool flat_root(struct flat flat, struct flat_table *out);

/* A field of `size` bytes, or `absent` if it is not there. */
MUST_USE bool flat_get(const struct flat_table *table, uint32_t slot, size_t size, uint64_t absent, uint64_t *out);

/* The table, text or list that a field points to. If there is none, `*out_there` is false. */
MUST_USE bool flat_get_table(const struct flat_table *table, uint32_t slot, struct flat_table *out, bool *out_there);
MUST_USE bool flat_get_text(const struct flat_table *table, uint32_t slot, const char **out, size_t *out_n,
                            bool *out_there);

/* An absent list has no elements. */
MUST_USE bool flat_get_list(const struct flat_table *table, uint32_t slot, size_t size, struct flat_list *out);
MUST_USE bool flat_list_table(const struct flat_list *list, uint32_t i, struct flat_table *out);

#endif
