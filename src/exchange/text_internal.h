/*
 * text_internal.h - what text.c (types, nesting, JSON) and text_value.c (single values) share.
 *
 * Ownership: as text.h says. Threads: any.
 */
#ifndef CAPSTAN_EXCHANGE_TEXT_INTERNAL_H
#define CAPSTAN_EXCHANGE_TEXT_INTERNAL_H

#include <stddef.h>

#include "exchange/layout.h"
#include "exchange/text.h"

enum text_kind {
    TEXT_NULL,
    TEXT_BOOL,
    TEXT_WHOLE,
    TEXT_FLOAT,
    TEXT_DECIMAL,
    TEXT_BIGNUM,
    TEXT_VARCHAR,
    TEXT_JSON,
    TEXT_BLOB,
    TEXT_BIT,
    TEXT_UUID,
    TEXT_DATE,
    TEXT_TIME,
    TEXT_TIME_TZ,
    TEXT_TIMESTAMP,
    TEXT_INTERVAL,
    TEXT_ENUM,
    TEXT_LIST,
    TEXT_ARRAY,
    TEXT_MAP,
    TEXT_STRUCT,
    TEXT_UNION,
    N_TEXT_KINDS,
};

struct text_type {
    enum text_kind kind;
    enum layout_kind layout;
    uint32_t width;    /* bytes of a value, or values of a fixed list */
    bool is_signed;    /* of a whole number */
    bool has_zone;     /* of a timestamp */
    char unit;         /* of times and durations: s, m, u or n; of intervals in months M, in days and milliseconds D */
    int32_t precision; /* of a decimal */
    int32_t scale;
    char *name; /* of the field */
    uint32_t n_children;
    struct text_type *children;
    struct text_type *dictionary; /* NULL: none; else the values, and this is the type of the indices */
    uint8_t *child_of;            /* of a union: which child a type id stands for, 128 of them */
};

/* One value that is not nested: its bytes, which for a BOOL are one byte. */
typedef void text_value_fn(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n);

text_value_fn text__bool;
text_value_fn text__whole;
text_value_fn text__float;
text_value_fn text__decimal;
text_value_fn text__bignum;
text_value_fn text__varchar;
text_value_fn text__blob;
text_value_fn text__bit;
text_value_fn text__uuid;
text_value_fn text__date;
text_value_fn text__time;
text_value_fn text__time_tz;
text_value_fn text__timestamp;
text_value_fn text__interval;

/* A whole number of up to 8 bytes, extended by its sign if it has one. */
uint64_t text__number(const struct text_type *type, const uint8_t *bytes);

#endif
