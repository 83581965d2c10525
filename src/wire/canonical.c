#include "wire/canonical.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Up to this many members are sorted by insertion, which spares the call of a comparison per step. */
#define FEW 16

static int compare_members(const void *a, const void *b)
{
    return strcmp(((const struct wire_member *)a)->key, ((const struct wire_member *)b)->key);
}

static void sort_members(struct wire_member *members, size_t n)
{
    if (n > FEW) {
        qsort(members, n, sizeof *members, compare_members);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        struct wire_member member = members[i];
        size_t at = i;
        for (; at > 0 && strcmp(members[at - 1].key, member.key) > 0; at--) {
            members[at] = members[at - 1];
        }
        members[at] = member;
    }
}

static void gather_members(const struct json *object, struct wire_member *members)
{
    size_t cursor = 0;
    for (struct wire_member *at = members; json_next(object, &cursor, &at->key, &at->value);) {
        at++;
    }
}

struct wire_member *wire_sorted_members(const struct json *object, size_t *out_n)
{
    size_t n = json_count(object);
    struct wire_member *members = mem_calloc(n + 1, sizeof *members);
    gather_members(object, members);
    sort_members(members, n);
    *out_n = n;
    return members;
}

/*
 * A double that is whole and fits 64 bits is written as the integer that it is, because the same value may come as one:
 * 1e17 and 100000000000000000 are the same number.
 */
void wire_write_canonical_number(struct buf *out, const struct json *node)
{
    int64_t integer = 0;
    uint64_t natural = 0;
    double number = json_number(node);
    if (json_int(node, &integer)) {
        json_write_int(out, integer);
    } else if (json_uint(node, &natural)) {
        buf_format(out, "%" PRIu64, natural);
    } else if (number >= 0x1p53 && number < 0x1p64) {
        buf_format(out, "%" PRIu64, (uint64_t)number); /* doubles of this size are whole */
    } else if (number <= -0x1p53 && number >= -0x1p63) {
        json_write_int(out, (int64_t)number);
    } else {
        json_write_number(out, number);
    }
}

static void write_value(struct buf *out, const struct json *node, bool sorted);

static void write_object(struct buf *out, const struct json *node, bool sorted)
{
    struct wire_member few[FEW + 1];
    size_t n = json_count(node);
    struct wire_member *members = n <= FEW ? few : mem_calloc(n + 1, sizeof *members);
    gather_members(node, members);
    if (sorted) {
        sort_members(members, n);
    }
    buf_char(out, '{');
    for (size_t i = 0; i < n; i++) {
        if (i > 0) {
            buf_char(out, ',');
        }
        json_write_text(out, members[i].key);
        buf_char(out, ':');
        write_value(out, members[i].value, sorted);
    }
    buf_char(out, '}');
    if (members != few) {
        mem_free(members);
    }
}

/* Calls itself as deep as the value is nested, which the reader bounds by LIMIT_JSON_DEPTH. */
static void write_value(struct buf *out, const struct json *node, bool sorted)
{
    size_t n = 0;
    const char *text = NULL;
    switch (json_kind_of(node)) {
    case JSON_NULL:
        buf_text(out, "null");
        break;
    case JSON_BOOL:
        buf_text(out, json_bool(node) ? "true" : "false");
        break;
    case JSON_NUMBER:
        wire_write_canonical_number(out, node);
        break;
    case JSON_TEXT:
        text = json_text(node, &n);
        json_write_bytes(out, text, n);
        break;
    case JSON_ARRAY:
        buf_char(out, '[');
        n = json_count(node);
        for (size_t i = 0; i < n; i++) {
            if (i > 0) {
                buf_char(out, ',');
            }
            write_value(out, json_at(node, i), sorted);
        }
        buf_char(out, ']');
        break;
    case JSON_OBJECT:
        write_object(out, node, sorted);
        break;
    }
}

void wire_write_canonical(struct buf *out, const struct json *node)
{
    write_value(out, node, true);
}

void wire_write_compact(struct buf *out, const struct json *node)
{
    write_value(out, node, false);
}
