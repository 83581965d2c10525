#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "exec/exec_internal.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define CHARACTER_BYTES_MAX 4

/* Length of the character at the start of the `n` > 0 bytes, 0 if there is none. */
static size_t character_length(const char *bytes, size_t n)
{
    for (size_t length = 1; length <= CHARACTER_BYTES_MAX && length <= n; length++) {
        if (utf8_is_valid(bytes, length)) {
            return length;
        }
    }
    return 0;
}

void exec__append_utf8(struct buf *buf, const char *bytes, size_t n)
{
    if (utf8_is_valid(bytes, n)) {
        buf_append(buf, bytes, n);
        return;
    }
    size_t start = 0; /* of the valid bytes that are not copied yet */
    size_t i = 0;
    while (i < n) {
        size_t length = character_length(bytes + i, n - i);
        if (length == 0) {
            buf_append(buf, bytes + start, i - start);
            buf_text(buf, REPLACEMENT);
            start = i + 1;
            length = 1;
        }
        i += length;
    }
    buf_append(buf, bytes + start, n - start);
}

void exec__write_text(struct buf *buf, const char *bytes, size_t n)
{
    if (utf8_is_valid(bytes, n)) {
        json_write_bytes(buf, bytes, n);
        return;
    }
    struct buf repaired = {0};
    exec__append_utf8(&repaired, bytes, n);
    json_write_bytes(buf, repaired.data, repaired.n);
    buf_deinit(&repaired);
}

static void write_number(struct buf *buf, const struct json *node)
{
    int64_t number = 0;
    uint64_t large = 0;
    if (json_int(node, &number)) {
        json_write_int(buf, number);
    } else if (json_uint(node, &large)) {
        buf_format(buf, "%" PRIu64, large);
    } else {
        json_write_number(buf, json_number(node));
    }
}

static void write_members(struct buf *buf, const struct json *object)
{
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    bool is_first = true;
    buf_char(buf, '{');
    while (json_next(object, &cursor, &key, &value)) {
        if (!is_first) {
            buf_char(buf, ',');
        }
        is_first = false;
        json_write_text(buf, key);
        buf_char(buf, ':');
        exec__write_tree(buf, value);
    }
    buf_char(buf, '}');
}

static void write_elements(struct buf *buf, const struct json *array)
{
    buf_char(buf, '[');
    for (size_t i = 0; i < json_count(array); i++) {
        if (i > 0) {
            buf_char(buf, ',');
        }
        exec__write_tree(buf, json_at(array, i));
    }
    buf_char(buf, ']');
}

/* The tree was read by json_parse, so it is at most LIMIT_JSON_DEPTH deep. */
void exec__write_tree(struct buf *buf, const struct json *node)
{
    size_t n = 0;
    const char *text = NULL;
    switch (json_kind_of(node)) {
    case JSON_NULL:
        buf_text(buf, "null");
        break;
    case JSON_BOOL:
        buf_text(buf, json_bool(node) ? "true" : "false");
        break;
    case JSON_NUMBER:
        write_number(buf, node);
        break;
    case JSON_TEXT:
        text = json_text(node, &n);
        json_write_bytes(buf, text, n);
        break;
    case JSON_ARRAY:
        write_elements(buf, node);
        break;
    case JSON_OBJECT:
        write_members(buf, node);
        break;
    }
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The deepest nesting of a text that is JSON. */
static size_t depth_of(const char *text, size_t n)
{
    size_t depth = 0;
    size_t deepest = 0;
    bool is_in_text = false;
    for (size_t i = 0; i < n; i++) {
        if (is_in_text && text[i] == '\\') {
            i++; /* whatever it is, it does not end the text */
        } else if (is_in_text) {
            is_in_text = text[i] != '"';
        } else if (text[i] == '"') {
            is_in_text = true;
        } else if (text[i] == '[' || text[i] == '{') {
            depth++;
            deepest = depth > deepest ? depth : deepest;
        } else if (text[i] == ']' || text[i] == '}') {
            depth--;
        }
    }
    return deepest;
}

bool exec__is_json(const char *bytes, size_t n, struct exec_span *out_value)
{
    while (n > 0 && is_space(bytes[n - 1])) {
        n--;
    }
    while (n > 0 && is_space(*bytes)) {
        bytes++;
        n--;
    }
    struct json *root = NULL;
    if (n == 0 || json_parse(bytes, n, &root, NULL) != ERR_OK) {
        return false;
    }
    json_free(root);
    if (depth_of(bytes, n) > EXEC_JSON_DEPTH_MAX) {
        return false;
    }
    *out_value = (struct exec_span){.data = bytes, .n = n};
    return true;
}
