/*
 * type.c - one row per type that needs no parameters, one handler per type that does.
 *
 * Numbers of types, fields and units are those of Arrow's Schema.fbs.
 */
#include "exchange/type.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TYPE_NULL = 1,
    TYPE_INT = 2,
    TYPE_FLOAT = 3,
    TYPE_BINARY = 4,
    TYPE_UTF8 = 5,
    TYPE_BOOL = 6,
    TYPE_DECIMAL = 7,
    TYPE_DATE = 8,
    TYPE_TIME = 9,
    TYPE_TIMESTAMP = 10,
    TYPE_INTERVAL = 11,
    TYPE_LIST = 12,
    TYPE_STRUCT = 13,
    TYPE_UNION = 14,
    TYPE_FIXED_BINARY = 15,
    TYPE_FIXED_LIST = 16,
    TYPE_MAP = 17,
    TYPE_DURATION = 18,
    TYPE_LARGE_BINARY = 19,
    TYPE_LARGE_UTF8 = 20,
    TYPE_LARGE_LIST = 21,
};

struct simple {
    const char *format;
    uint8_t type;
    uint8_t sizes[2]; /* of the fields of its table */
    uint8_t values[2];
    uint8_t absent[2]; /* what the fields mean when they are not there */
    enum layout_kind kind;
    uint8_t width;
};

#define WHOLE(format, bits, is_signed)                                                                                 \
    {                                                                                                                  \
        format, TYPE_INT, {4, 1}, {bits, is_signed}, {0, 0}, LAYOUT_FIXED, (bits) / 8                                  \
    }
#define UNIT(format, type, unit, absent, width)                                                                        \
    {                                                                                                                  \
        format, type, {2, 0}, {unit, 0}, {absent, 0}, LAYOUT_FIXED, width                                              \
    }
#define TIME(format, unit, bits)                                                                                       \
    {                                                                                                                  \
        format, TYPE_TIME, {2, 4}, {unit, bits}, {1, 32}, LAYOUT_FIXED, (bits) / 8                                     \
    }
#define PLAIN(format, type, kind)                                                                                      \
    {                                                                                                                  \
        format, type, {0, 0}, {0, 0}, {0, 0}, kind, 0                                                                  \
    }

static const struct simple simples[] = {
    PLAIN("n", TYPE_NULL, LAYOUT_NULL),
    PLAIN("b", TYPE_BOOL, LAYOUT_BITS),
    WHOLE("c", 8, 1),
    WHOLE("C", 8, 0),
    WHOLE("s", 16, 1),
    WHOLE("S", 16, 0),
    WHOLE("i", 32, 1),
    WHOLE("I", 32, 0),
    WHOLE("l", 64, 1),
    WHOLE("L", 64, 0),
    UNIT("e", TYPE_FLOAT, 0, 0, 2),
    UNIT("f", TYPE_FLOAT, 1, 0, 4),
    UNIT("g", TYPE_FLOAT, 2, 0, 8),
    PLAIN("z", TYPE_BINARY, LAYOUT_BYTES),
    PLAIN("Z", TYPE_LARGE_BINARY, LAYOUT_BYTES64),
    PLAIN("u", TYPE_UTF8, LAYOUT_BYTES),
    PLAIN("U", TYPE_LARGE_UTF8, LAYOUT_BYTES64),
    UNIT("tdD", TYPE_DATE, 0, 1, 4),
    UNIT("tdm", TYPE_DATE, 1, 1, 8),
    TIME("tts", 0, 32),
    TIME("ttm", 1, 32),
    TIME("ttu", 2, 64),
    TIME("ttn", 3, 64),
    UNIT("tDs", TYPE_DURATION, 0, 1, 8),
    UNIT("tDm", TYPE_DURATION, 1, 1, 8),
    UNIT("tDu", TYPE_DURATION, 2, 1, 8),
    UNIT("tDn", TYPE_DURATION, 3, 1, 8),
    UNIT("tiM", TYPE_INTERVAL, 0, 0, 4),
    UNIT("tiD", TYPE_INTERVAL, 1, 0, 8),
    UNIT("tin", TYPE_INTERVAL, 2, 0, 16),
    PLAIN("+l", TYPE_LIST, LAYOUT_LIST),
    PLAIN("+L", TYPE_LARGE_LIST, LAYOUT_LIST64),
    PLAIN("+s", TYPE_STRUCT, LAYOUT_STRUCT),
};

static const char units[] = "smun";

/* ---- format strings ---- */

/* Reads a whole number at *p and goes behind it. */
static bool take_number(const char **p, int64_t min, int64_t max, int64_t *out)
{
    char *end = NULL;
    if (**p != '-' && (**p < '0' || **p > '9')) {
        return false;
    }
    int64_t value = strtoll(*p, &end, 10);
    if (end == *p || value < min || value > max) {
        return false;
    }
    *p = end;
    *out = value;
    return true;
}

struct decimal {
    int64_t precision;
    int64_t scale;
    int64_t bits;
};

static bool parse_decimal(const char *p, struct decimal *out)
{
    out->bits = 128;
    if (!take_number(&p, 1, 76, &out->precision) || *p++ != ',' || !take_number(&p, -128, 127, &out->scale)) {
        return false;
    }
    if (*p == ',') {
        p++;
        if (!take_number(&p, 32, 256, &out->bits)) {
            return false;
        }
    }
    bool is_width = out->bits == 32 || out->bits == 64 || out->bits == 128 || out->bits == 256;
    return *p == '\0' && is_width;
}

/* A single number up to the end. */
static bool parse_width(const char *p, int64_t min, uint32_t *out)
{
    int64_t width = 0;
    if (!take_number(&p, min, INT32_MAX, &width) || *p != '\0') {
        return false;
    }
    *out = (uint32_t)width;
    return true;
}

static bool parse_type_ids(const char *p, uint64_t ids[2], uint32_t *out_n)
{
    *out_n = 0;
    while (*p != '\0') {
        int64_t id = 0;
        if (!take_number(&p, 0, 127, &id) || (ids[id / 64] >> (id % 64) & 1) != 0) {
            return false;
        }
        ids[id / 64] |= UINT64_C(1) << (id % 64);
        ++*out_n;
        if (*p == ',') {
            p++;
        } else if (*p != '\0') {
            return false;
        }
    }
    return true;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_timestamp(const char *format)
{
    return starts(format, "ts") && format[2] != '\0' && strchr(units, format[2]) != NULL && format[3] == ':';
}

static const struct simple *find_simple(const char *format)
{
    for (size_t i = 0; i < ARRAY_LEN(simples); i++) {
        if (strcmp(simples[i].format, format) == 0) {
            return &simples[i];
        }
    }
    return NULL;
}

static void from_simple(const struct simple *simple, struct type_info *out)
{
    struct layout *layout = &out->layout;
    layout->kind = simple->kind;
    layout->width = simple->width;
    layout->is_text = simple->type == TYPE_UTF8 || simple->type == TYPE_LARGE_UTF8;
    out->is_index = simple->type == TYPE_INT;
    layout->is_signed = out->is_index && simple->values[1] != 0;
    if (simple->kind == LAYOUT_LIST || simple->kind == LAYOUT_LIST64) {
        out->n_children_min = out->n_children_max = 1;
    } else if (simple->kind == LAYOUT_STRUCT) {
        out->n_children_max = UINT32_MAX;
    }
}

enum err type_of_format(const char *format, struct type_info *out, struct error *e)
{
    struct type_info info = {0};
    struct layout *layout = &info.layout;
    struct decimal decimal = {0};
    const struct simple *simple = find_simple(format);
    bool is_ok = true;
    if (simple != NULL) {
        from_simple(simple, &info);
    } else if (starts(format, "d:")) {
        is_ok = parse_decimal(format + 2, &decimal);
        layout->kind = LAYOUT_FIXED;
        layout->width = (uint32_t)decimal.bits / 8;
    } else if (starts(format, "w:")) {
        is_ok = parse_width(format + 2, 1, &layout->width);
        layout->kind = LAYOUT_FIXED;
    } else if (is_timestamp(format)) {
        layout->kind = LAYOUT_FIXED;
        layout->width = 8;
    } else if (starts(format, "+w:")) {
        is_ok = parse_width(format + 3, 0, &layout->width);
        layout->kind = LAYOUT_FIXED_LIST;
        info.n_children_min = info.n_children_max = 1;
    } else if (strcmp(format, "+m") == 0) {
        layout->kind = LAYOUT_LIST;
        info.is_map = true;
        info.n_children_min = info.n_children_max = 1;
    } else if (starts(format, "+us:")) {
        is_ok = parse_type_ids(format + 4, layout->type_ids, &info.n_children_max);
        layout->kind = LAYOUT_UNION;
        info.n_children_min = info.n_children_max;
    } else {
        return error_set(e, ERR_INVALID, "the Arrow type '%.100s' is not supported", format);
    }
    if (!is_ok) {
        return error_set(e, ERR_INVALID, "the Arrow type '%.100s' is malformed", format);
    }
    *out = info;
    return ERR_OK;
}

/* ---- into IPC ---- */

static size_t put_two(struct flat_writer *w, const uint8_t sizes[2], uint64_t first, uint64_t second)
{
    size_t table = flat_put_table(w, sizes, 2);
    if (sizes[0] != 0) {
        flat_set(w, table, 0, first);
    }
    if (sizes[1] != 0) {
        flat_set(w, table, 1, second);
    }
    return table;
}

static size_t put_decimal(struct flat_writer *w, const char *format)
{
    struct decimal decimal = {0};
    static const uint8_t sizes[] = {4, 4, 4};
    bool is_ok = parse_decimal(format + 2, &decimal);
    ASSERT(is_ok);
    size_t table = flat_put_table(w, sizes, 3);
    flat_set(w, table, 0, (uint64_t)decimal.precision);
    flat_set(w, table, 1, (uint64_t)decimal.scale);
    flat_set(w, table, 2, (uint64_t)decimal.bits);
    return table;
}

static size_t put_timestamp(struct flat_writer *w, const char *format)
{
    const char *zone = format + 4;
    const uint8_t sizes[] = {2, *zone == '\0' ? 0 : 4};
    size_t table = flat_put_table(w, sizes, 2);
    flat_set(w, table, 0, (uint64_t)(strchr(units, format[2]) - units));
    if (*zone != '\0') {
        size_t text = flat_put_text(w, zone, strlen(zone));
        flat_link(w, flat_slot(w, table, 1), text);
    }
    return table;
}

static size_t put_union(struct flat_writer *w, const char *format)
{
    int32_t ids[128];
    uint32_t n = 0;
    for (const char *p = format + 4; *p != '\0';) {
        int64_t id = 0;
        bool is_ok = take_number(&p, 0, 127, &id);
        ASSERT(is_ok);
        ids[n++] = (int32_t)id;
        p += *p == ',' ? 1 : 0;
    }
    static const uint8_t sizes[] = {2, 4};
    size_t table = flat_put_table(w, sizes, 2);
    size_t list = flat_put_structs(w, ids, n, sizeof(ids[0]));
    flat_link(w, flat_slot(w, table, 1), list);
    return table;
}

size_t type_put(struct flat_writer *w, const char *format, bool are_keys_sorted, uint8_t *out_type)
{
    static const uint8_t one_int[2] = {4, 0};
    static const uint8_t one_bool[2] = {1, 0};
    const struct simple *simple = find_simple(format);
    uint32_t width = 0;
    if (simple != NULL) {
        *out_type = simple->type;
        return put_two(w, simple->sizes, simple->values[0], simple->values[1]);
    }
    if (format[0] == 'd') {
        *out_type = TYPE_DECIMAL;
        return put_decimal(w, format);
    }
    if (format[0] == 't') {
        *out_type = TYPE_TIMESTAMP;
        return put_timestamp(w, format);
    }
    if (starts(format, "+u")) {
        *out_type = TYPE_UNION;
        return put_union(w, format);
    }
    if (strcmp(format, "+m") == 0) {
        *out_type = TYPE_MAP;
        return put_two(w, one_bool, are_keys_sorted, 0);
    }
    bool is_list = format[0] == '+';
    bool is_ok = parse_width(format + (is_list ? 3 : 2), 0, &width);
    ASSERT(is_ok);
    *out_type = is_list ? TYPE_FIXED_LIST : TYPE_FIXED_BINARY;
    return put_two(w, one_int, width, 0);
}

/* ---- out of IPC ---- */

typedef bool get_fn(const struct flat_table *table, struct buf *out);

static bool get_decimal(const struct flat_table *table, struct buf *out)
{
    uint64_t precision = 0;
    uint64_t scale = 0;
    uint64_t bits = 0;
    if (!flat_get(table, 0, 4, 0, &precision) || !flat_get(table, 1, 4, 0, &scale) ||
        !flat_get(table, 2, 4, 128, &bits)) {
        return false;
    }
    buf_format(out, "d:%" PRId32 ",%" PRId32, (int32_t)precision, (int32_t)scale);
    if (bits != 128) {
        buf_format(out, ",%" PRIu64, bits);
    }
    return true;
}

static bool get_timestamp(const struct flat_table *table, struct buf *out)
{
    uint64_t unit = 0;
    const char *zone = "";
    size_t n = 0;
    bool is_there = false;
    if (!flat_get(table, 0, 2, 0, &unit) || unit > 3 || !flat_get_text(table, 1, &zone, &n, &is_there) ||
        memchr(zone, '\0', n) != NULL) {
        return false;
    }
    buf_format(out, "ts%c:", units[unit]);
    buf_append(out, zone, n);
    return true;
}

static bool get_union(const struct flat_table *table, struct buf *out)
{
    uint64_t mode = 0;
    struct flat_list ids = {0};
    if (!flat_get(table, 0, 2, 0, &mode) || mode != 0 || !flat_get_list(table, 1, 4, &ids) || ids.n > 128) {
        return false;
    }
    buf_text(out, "+us:");
    for (uint32_t i = 0; i < ids.n; i++) {
        int32_t id = 0;
        memcpy(&id, ids.flat.bytes + ids.pos + 4 * (size_t)i, sizeof(id));
        buf_format(out, "%s%" PRId32, i == 0 ? "" : ",", id);
    }
    return true;
}

static bool get_width(const struct flat_table *table, struct buf *out)
{
    uint64_t width = 0;
    if (!flat_get(table, 0, 4, 0, &width)) {
        return false;
    }
    buf_format(out, ":%" PRId32, (int32_t)width);
    return true;
}

static bool get_fixed_binary(const struct flat_table *table, struct buf *out)
{
    buf_text(out, "w");
    return get_width(table, out);
}

static bool get_fixed_list(const struct flat_table *table, struct buf *out)
{
    buf_text(out, "+w");
    return get_width(table, out);
}

static bool get_simple(uint8_t type, const struct flat_table *table, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(simples); i++) {
        const struct simple *simple = &simples[i];
        bool is_it = simple->type == type;
        for (uint32_t slot = 0; slot < 2 && is_it; slot++) {
            uint64_t value = 0;
            is_it =
                simple->sizes[slot] == 0 || (flat_get(table, slot, simple->sizes[slot], simple->absent[slot], &value) &&
                                             value == simple->values[slot]);
        }
        if (is_it) {
            buf_text(out, simple->format);
            return true;
        }
    }
    return false;
}

enum err type_get(uint8_t type, const struct flat_table *table, struct buf *out_format, bool *out_keys_sorted,
                  struct error *e)
{
    static get_fn *const getters[] = {
        [TYPE_DECIMAL] = get_decimal,           [TYPE_TIMESTAMP] = get_timestamp,   [TYPE_UNION] = get_union,
        [TYPE_FIXED_BINARY] = get_fixed_binary, [TYPE_FIXED_LIST] = get_fixed_list, [TYPE_LARGE_LIST] = NULL};
    uint64_t are_sorted = 0;
    bool is_ok = false;
    if (type == TYPE_MAP) {
        buf_text(out_format, "+m");
        is_ok = flat_get(table, 0, 1, 0, &are_sorted);
    } else if (type < ARRAY_LEN(getters) && getters[type] != NULL) {
        is_ok = getters[type](table, out_format);
    } else {
        is_ok = get_simple(type, table, out_format);
    }
    if (!is_ok) {
        return error_set(e, ERR_INVALID, "Arrow schema: a field's type (%u) is malformed or not supported",
                         (unsigned)type);
    }
    *out_keys_sorted = are_sorted != 0;
    return ERR_OK;
}
