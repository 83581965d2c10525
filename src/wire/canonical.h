/*
 * canonical.h - one spelling for each JSON value, so that equal values have equal digests.
 *
 * No white space; members sorted by the bytes of their keys; texts escaped only where JSON demands it; a number that is
 * a whole one of up to 64 bits as its digits, however it was written (1, 1.0 and 1e0 are all 1), any other as the
 * shortest text that reads back as the same double. An integer of more than 64 bits is the nearest double. Reading the
 * canonical form and writing it again gives the same bytes.
 *
 * Ownership: the caller's buffers. Threads: any.
 */
#ifndef CAPSTAN_WIRE_CANONICAL_H
#define CAPSTAN_WIRE_CANONICAL_H

#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"

/* Appends the canonical form. */
void wire_write_canonical(struct buf *out, const struct json *node);

/* The same, but with members in the order that they have. */
void wire_write_compact(struct buf *out, const struct json *node);

/* Appends a number in its canonical form; `node` is a JSON_NUMBER. */
void wire_write_canonical_number(struct buf *out, const struct json *node);

/* A member of an object. */
struct wire_member {
    const char *key;
    const struct json *value;
};

/* The members of the object, sorted by key, with their number; the caller frees the array with mem_free. */
struct wire_member *wire_sorted_members(const struct json *object, size_t *out_n);

#endif
