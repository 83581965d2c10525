/*
 * type.h - Arrow's types: their format strings in the C data interface, their tables in IPC schemas, their layouts.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_EXCHANGE_TYPE_H
#define CAPSTAN_EXCHANGE_TYPE_H

#include "base/buf.h"
#include "exchange/flat.h"
#include "exchange/layout.h"

/* What a format string says about the node itself: kind, width, is_text, is_signed, type_ids. */
struct type_info {
    struct layout layout;
    uint32_t n_children_min;
    uint32_t n_children_max;
    bool is_map;
    bool is_index; /* a whole number, so that it can be an index into a dictionary */
};

MUST_USE enum err type_of_format(const char *format, struct type_info *out, struct error *e);

/* Writes the IPC type of a format that type_of_format takes. Returns its position and its number in Arrow's union. */
size_t type_put(struct flat_writer *w, const char *format, bool are_keys_sorted, uint8_t *out_type);

/* Appends the format of an IPC type. ERR_INVALID for those that are not taken. */
MUST_USE enum err type_get(uint8_t type, const struct flat_table *table, struct buf *out_format, bool *out_keys_sorted,
                           struct error *e);

#endif
