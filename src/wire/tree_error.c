/* What is wrong with a tree, in words that help to mend it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "wire/canonical.h"
#include "wire/tree_internal.h"

#define KEY_BYTES_COMPARED 40
#define SLIPS_MAX 2
#define ALIKE_BYTES 4 /* words that begin like this may be meant for each other: timeout, timeout_ms */

/* Counts one more error; true if there is room to say what it is. */
static bool may_complain(struct tree_reader *r)
{
    if (r->is_broken || r->n_errors++ >= LIMIT_TREE_ERRORS) {
        return false;
    }
    if (r->lines.n > 0) {
        buf_char(&r->lines, '\n');
    }
    return true;
}

void tree__add_line(struct tree_reader *r, const char *line)
{
    if (may_complain(r)) {
        buf_text(&r->lines, line);
    }
}

void tree__complain(struct tree_reader *r, const struct where *where, const char *fmt, ...)
{
    if (!may_complain(r)) {
        return;
    }
    va_list args;
    char text[2048]; /* more than any of our texts with what is shown in it */
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    where_write(&r->lines, where);
    buf_text(&r->lines, ": ");
    buf_text(&r->lines, text);
}

static void write_got(struct buf *out, const struct json *node)
{
    size_t n = 0;
    const char *text = json_text(node, &n);
    enum json_kind kind = json_kind_of(node);
    if (kind == JSON_TEXT) {
        write_excerpt(out, text, n);
    } else if (kind == JSON_ARRAY) {
        buf_text(out, json_count(node) == 0 ? "an empty list" : "a list");
    } else if (kind == JSON_OBJECT) {
        buf_text(out, "an object");
    } else {
        wire_write_compact(out, node);
    }
}

void tree__expected(struct tree_reader *r, const struct where *where, const char *expected, const struct json *got)
{
    if (!may_complain(r)) {
        return;
    }
    where_write(&r->lines, where);
    buf_format(&r->lines, ": must be %s, got ", expected);
    write_got(&r->lines, got);
}

/* ---- slips of the pen ---- */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_same_letter(char a, char b)
{
    return a == b || ((a ^ b) == 0x20 && (a | 0x20) >= 'a' && (a | 0x20) <= 'z');
}

/*
 * How many letters must be added, left out, changed or swapped with their neighbours to make one text of the other;
 * case does not count. Both are short.
 */
static size_t slips(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t rows[3][KEY_BYTES_COMPARED + 1]; /* the one before the last, the last, and the current one, in turn */
    for (size_t j = 0; j <= n_b; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        size_t *row = rows[i % 3];
        const size_t *last = rows[(i + 2) % 3];
        const size_t *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t changed = last[j - 1] + (is_same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
            row[j] = smaller(changed, smaller(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && is_same_letter(a[i - 1], b[j - 2]) && is_same_letter(a[i - 2], b[j - 1])) {
                row[j] = smaller(row[j], before[j - 2] + 1);
            }
        }
    }
    return rows[n_a % 3][n_b];
}

/* How many letters both begin with. */
static size_t common_start(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t n = 0;
    while (n < n_a && n < n_b && is_same_letter(a[n], b[n])) {
        n++;
    }
    return n;
}

const char *tree__nearest(const char *text, size_t n, const char *const *known)
{
    const char *nearest = NULL;
    size_t least = SLIPS_MAX + 1;
    const char *alike = NULL;
    size_t longest = ALIKE_BYTES - 1;
    for (; n <= KEY_BYTES_COMPARED && *known != NULL; known++) {
        size_t length = strlen(*known);
        if (length > KEY_BYTES_COMPARED) {
            continue;
        }
        size_t distance = slips(text, n, *known, length);
        /* Two slips in a word of three letters make any word of any other. */
        if (distance < least && distance * 3 <= smaller(n, length) + 1) {
            least = distance;
            nearest = *known;
        }
        size_t start = common_start(text, n, *known, length);
        if (start > longest) {
            longest = start;
            alike = *known;
        }
    }
    return nearest != NULL ? nearest : alike;
}

void tree__unknown_key(struct tree_reader *r, const struct where *object, const char *key, const char *const *known)
{
    struct where where = {.up = object, .key = key};
    if (!may_complain(r)) {
        return;
    }
    where_write(&r->lines, &where);
    const char *nearest = tree__nearest(key, strlen(key), known);
    if (nearest != NULL) {
        buf_format(&r->lines, ": there is no such key; did you mean \"%s\"?", nearest);
        return;
    }
    buf_text(&r->lines, ": there is no such key; allowed here: ");
    for (size_t i = 0; known[i] != NULL; i++) {
        buf_format(&r->lines, "%s%s", i == 0 ? "" : ", ", known[i]);
    }
}

/* ---- text that is not JSON ---- */

void tree__broken(struct tree_reader *r, size_t at, const char *what)
{
    size_t line = 1;
    size_t column = 1;
    for (size_t i = 0; i < at && i < r->n; i++) {
        unsigned char c = (unsigned char)r->text[i];
        line += c == '\n' ? 1 : 0;
        column = c == '\n' ? 1 : column + ((c & 0xc0) == 0x80 ? 0 : 1);
    }
    buf_reset(&r->lines);
    buf_format(&r->lines, "the tree is not JSON: line %zu, column %zu: %s", line, column, what);
    r->n_errors = 1;
    r->is_broken = true;
}

/* ---- values ---- */

bool tree__read_uint(struct tree_reader *r, const struct where *where, const struct json *value, uint64_t min,
                     uint64_t max, uint64_t *out)
{
    uint64_t number = 0;
    double real = json_number(value);
    bool is_whole = json_uint(value, &number);
    if (!is_whole && json_kind_of(value) == JSON_NUMBER && real >= 0 && real <= 0x1p53) {
        number = (uint64_t)real; /* 1e3 and 60000.0 are whole numbers, too */
        is_whole = !((double)number < real);
    }
    if (is_whole && number >= min && number <= max) {
        *out = number;
        return true;
    }
    char expected[100];
    snprintf(expected, sizeof expected, "a whole number from %llu to %llu", (unsigned long long)min,
             (unsigned long long)max);
    tree__expected(r, where, expected, value);
    return false;
}

bool tree__read_bool(struct tree_reader *r, const struct where *where, const struct json *value, bool *out)
{
    if (json_kind_of(value) != JSON_BOOL) {
        tree__expected(r, where, "true or false", value);
        return false;
    }
    *out = json_bool(value);
    return true;
}

bool tree__read_label(struct tree_reader *r, const struct where *where, const struct json *value, size_t max,
                      struct arena *arena, const char **out)
{
    size_t n = 0;
    const char *text = json_text(value, &n);
    if (text == NULL) {
        tree__expected(r, where, "a text", value);
        return false;
    }
    if (n == 0 || n > max) {
        tree__complain(r, where, "must have 1 to %zu bytes, not %zu", max, n);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            tree__expected(r, where, "without control characters", value);
            return false;
        }
    }
    *out = arena_strdup(arena, text);
    return true;
}

bool tree__read_labels(struct tree_reader *r, const struct where *where, const struct json *value, size_t max,
                       struct string_list *out)
{
    size_t n = json_count(value);
    if (json_kind_of(value) != JSON_ARRAY) {
        tree__expected(r, where, "a list of texts", value);
        return false;
    }
    if (n > max) {
        tree__complain(r, where, "must have at most %zu elements, not %zu", max, n);
        return false;
    }
    const char **items = arena_alloc(&r->scratch, n * sizeof *items);
    bool is_good = true;
    for (size_t i = 0; i < n; i++) {
        struct where element = {.up = where, .index = i};
        is_good = tree__read_label(r, &element, json_at(value, i), LIMIT_NAME_BYTES, &r->scratch, &items[i]) && is_good;
    }
    if (is_good) {
        *out = (struct string_list){items, (uint32_t)n};
    }
    return is_good;
}

#define MEMBERS_MAX 16

void tree__read_object(struct tree_reader *r, const struct where *where, const struct json *object,
                       const struct tree_member *table, void *into)
{
    size_t cursor = 0;
    struct where member = {.up = where};
    const struct json *value = NULL;
    if (json_kind_of(object) != JSON_OBJECT) {
        tree__expected(r, where, "an object", object);
        return;
    }
    while (json_next(object, &cursor, &member.key, &value)) {
        size_t i = 0;
        while (table[i].key != NULL && strcmp(table[i].key, member.key) != 0) {
            i++;
        }
        if (table[i].key == NULL) {
            const char *known[MEMBERS_MAX] = {NULL};
            for (size_t k = 0; table[k].key != NULL && k + 1 < MEMBERS_MAX; k++) {
                known[k] = table[k].key;
            }
            tree__unknown_key(r, where, member.key, known);
        } else if (value != NULL) {
            table[i].read(r, &member, value, into);
        }
    }
}
