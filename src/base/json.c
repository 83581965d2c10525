/*
 * json.c - JSON on top of json-c.
 *
 * The tree is json-c's: a `struct json *` is a `struct json_object *`, and this file is the only one that knows. The text
 * is not read by json-c's tokener, which lets too much pass even when it is told to be strict: "1.", "-01", line ends
 * inside a text, lone surrogates (it makes up a character), integers beyond 64 bits (it saturates them), a key twice (the
 * last one wins), a key with a NUL (it cuts there). So the parser below reads the text and builds json-c's nodes.
 *
 * A node is hung into the tree before it is filled. So there is always one tree that hangs on the root, which is all
 * that an error has to free, and no key has to be remembered while its value is read.
 */
#include "base/json.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* json-c has a type of the name of our function. */
#define json_bool json_c_bool
#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#undef json_bool

#include "base/limits.h"
#include "base/num.h"
#include "base/utf8.h"

/* Writing. */

void json_write_text(struct buf *buf, const char *text)
{
    json_write_bytes(buf, text, strlen(text));
}

/* Whether the byte stands for itself inside a text. */
static bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && c != '"' && c != '\\';
}

static void write_control(struct buf *buf, unsigned char c)
{
    switch (c) {
    case '\n':
        buf_text(buf, "\\n");
        break;
    case '\r':
        buf_text(buf, "\\r");
        break;
    case '\t':
        buf_text(buf, "\\t");
        break;
    default:
        buf_format(buf, "\\u%04x", (unsigned)c);
        break;
    }
}

void json_write_bytes(struct buf *buf, const char *text, size_t n)
{
    buf_char(buf, '"');
    size_t start = 0; /* of the plain bytes that are not copied yet */
    for (size_t i = 0; i < n; i++) {
        if (is_plain(text[i])) {
            continue;
        }
        buf_append(buf, text + start, i - start);
        start = i + 1;
        if (text[i] == '"' || text[i] == '\\') {
            buf_char(buf, '\\');
            buf_char(buf, text[i]);
        } else {
            write_control(buf, (unsigned char)text[i]);
        }
    }
    if (start < n) {
        buf_append(buf, text + start, n - start);
    }
    buf_char(buf, '"');
}

#define DIGITS_MAX 17 /* as many as any double needs */
#define INTEGER_MAX 9007199254740992.0

/* A positive number as d.ddd * 10^exponent, with the last digit not zero. */
struct decimal {
    char digits[DIGITS_MAX + 1];
    int n;
    int exponent;
};

/* Rounds to `n` digits. The C library writes the digits; the decimal point of its locale is skipped. */
static struct decimal decimal_of(double number, int n)
{
    char text[64];
    snprintf(text, sizeof(text), "%.*e", n - 1, number);
    struct decimal decimal = {.n = 0};
    const char *p = text;
    for (; *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9') {
            decimal.digits[decimal.n++] = *p;
        }
    }
    while (decimal.n > 1 && decimal.digits[decimal.n - 1] == '0') {
        decimal.n--;
    }
    decimal.exponent = (int)strtol(p + 1, NULL, 10);
    return decimal;
}

/* Writes the number into `out`, plainly where that takes no more than a few zeroes. */
static void lay_out(const struct decimal *decimal, char out[64])
{
    const char *digits = decimal->digits;
    int n = decimal->n;
    int whole = decimal->exponent + 1; /* digits before the point */
    if (whole > 0 && whole < n) {
        snprintf(out, 64, "%.*s.%.*s", whole, digits, n - whole, digits + whole);
    } else if (whole <= 0 && whole > -5) {
        snprintf(out, 64, "0.%.*s%.*s", -whole, "00000", n, digits);
    } else if (n == 1) {
        snprintf(out, 64, "%ce%d", digits[0], decimal->exponent);
    } else {
        snprintf(out, 64, "%c.%.*se%d", digits[0], n - 1, digits + 1, decimal->exponent);
    }
}

/*
 * 15 digits come back from any double that was made of as many, and 17 are always enough. Only the tiniest doubles, which
 * hold less, may do with fewer. (The digits are the nearest ones, so for 46 powers of two one more is written than some
 * other digits would need.)
 */
static void write_fraction(struct buf *buf, double number)
{
    char text[64];
    for (int n = number < 1e-290 ? 1 : 15; n <= DIGITS_MAX; n++) {
        struct decimal decimal = decimal_of(number, n);
        lay_out(&decimal, text);
        double back = 0;
        if (num_parse(text, &back) && back == number) {
            break;
        }
    }
    buf_text(buf, text);
}

void json_write_number(struct buf *buf, double number)
{
    if (!isfinite(number)) {
        buf_text(buf, "null");
    } else if (number == 0) {
        buf_text(buf, signbit(number) ? "-0.0" : "0");
    } else if (fabs(number) <= INTEGER_MAX && number == (double)(int64_t)number) {
        json_write_int(buf, (int64_t)number);
    } else {
        if (number < 0) {
            buf_char(buf, '-');
        }
        write_fraction(buf, fabs(number));
    }
}

void json_write_int(struct buf *buf, int64_t number)
{
    buf_format(buf, "%" PRId64, number);
}

/* Reading. */

struct parser {
    const char *text;
    size_t n;
    size_t at; /* the next byte to read */
    bool has_nan;
    bool wants_value;                                /* or else a comma or a closing bracket, or the end */
    struct json_object *root;                        /* what is read so far */
    struct json_object *open[LIMIT_PLAN_JSON_DEPTH]; /* the containers around the next byte, outermost first */
    size_t depth;
    size_t depth_max;
    struct buf key; /* of the value to be read, if it goes into an object */
    struct buf scratch;
    struct error *e;
};

static void must(bool has_memory)
{
    if (!has_memory) {
        check_failed(__FILE__, __LINE__, "out of memory");
    }
}

static struct json_object *not_null(struct json_object *node)
{
    must(node != NULL);
    return node;
}

/* The next byte, or -1 at the end. */
static int peek(const struct parser *p)
{
    return p->at < p->n ? (unsigned char)p->text[p->at] : -1;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct parser *p)
{
    while (p->at < p->n && is_blank(p->text[p->at])) {
        p->at++;
    }
}

static enum err refuse(struct parser *p, size_t at, const char *what)
{
    return error_set(p->e, ERR_INVALID, "at byte %zu: %s", at, what);
}

/* Refuses what comes next. */
static enum err expected(struct parser *p, const char *what)
{
    int c = peek(p);
    if (c < 0) {
        return error_set(p->e, ERR_INVALID, "at byte %zu: expected %s, but the text ends", p->at, what);
    }
    if (c <= 0x20 || c >= 0x7f) {
        return error_set(p->e, ERR_INVALID, "at byte %zu: expected %s, found the byte 0x%02x", p->at, what,
                         (unsigned)c);
    }
    return error_set(p->e, ERR_INVALID, "at byte %zu: expected %s, found '%c'", p->at, what, c);
}

/* Hangs a value, which may be NULL for null, where the next one belongs. The tree owns it from then on. */
static void attach(struct parser *p, struct json_object *value)
{
    p->wants_value = false;
    if (p->depth == 0) {
        p->root = value;
        return;
    }
    struct json_object *parent = p->open[p->depth - 1];
    if (json_object_is_type(parent, json_type_array)) {
        must(json_object_array_add(parent, value) == 0);
    } else {
        must(json_object_object_add_ex(parent, p->key.data, value, JSON_C_OBJECT_ADD_KEY_IS_NEW) == 0);
    }
}

/* Four hexadecimal digits. */
static enum err read_hex(struct parser *p, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int c = peek(p);
        uint32_t digit;
        if (c >= '0' && c <= '9') {
            digit = (uint32_t)(c - '0');
        } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
            digit = (uint32_t)((c | 0x20) - 'a' + 10);
        } else {
            return expected(p, "a hexadecimal digit");
        }
        value = value << 4 | digit;
        p->at++;
    }
    *out = value;
    return ERR_OK;
}

static void append_character(struct buf *out, uint32_t c)
{
    if (c < 0x80) {
        buf_char(out, (char)c);
        return;
    }
    if (c < 0x800) {
        buf_char(out, (char)(0xc0 | c >> 6));
    } else {
        if (c < 0x10000) {
            buf_char(out, (char)(0xe0 | c >> 12));
        } else {
            buf_char(out, (char)(0xf0 | c >> 18));
            buf_char(out, (char)(0x80 | (c >> 12 & 0x3f)));
        }
        buf_char(out, (char)(0x80 | (c >> 6 & 0x3f)));
    }
    buf_char(out, (char)(0x80 | (c & 0x3f)));
}

/* What follows a backslash and a `u`: one character, in two escapes if it is beyond 16 bits. */
static enum err read_unicode(struct parser *p, struct buf *out)
{
    size_t start = p->at - 2;
    uint32_t c = 0;
    enum err err = read_hex(p, &c);
    if (err != ERR_OK) {
        return err;
    }
    if (c >= 0xdc00 && c <= 0xdfff) {
        return refuse(p, start, "the second half of a surrogate pair without the first");
    }
    if (c >= 0xd800 && c <= 0xdbff) {
        uint32_t low = 0;
        if (p->n - p->at < 2 || memcmp(p->text + p->at, "\\u", 2) != 0) {
            return refuse(p, start, "the first half of a surrogate pair without the second");
        }
        p->at += 2;
        err = read_hex(p, &low);
        if (err != ERR_OK) {
            return err;
        }
        if (low < 0xdc00 || low > 0xdfff) {
            return refuse(p, start, "the first half of a surrogate pair without the second");
        }
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    append_character(out, c);
    return ERR_OK;
}

static enum err read_escape(struct parser *p, struct buf *out)
{
    static const char names[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    p->at++;
    int c = peek(p);
    if (c == 'u') {
        p->at++;
        return read_unicode(p, out);
    }
    const char *name = c > 0 ? strchr(names, c) : NULL;
    if (name == NULL) {
        return expected(p, "one of \"\\/bfnrtu after the backslash");
    }
    buf_char(out, meanings[name - names]);
    p->at++;
    return ERR_OK;
}

/* From the opening to the closing quote; `out` gets what it means. */
static enum err read_text(struct parser *p, struct buf *out)
{
    buf_reset(out);
    p->at++;
    for (;;) {
        size_t start = p->at;
        while (p->at < p->n && is_plain(p->text[p->at])) {
            p->at++;
        }
        buf_append(out, p->text + start, p->at - start);
        int c = peek(p);
        if (c == '"') {
            p->at++;
            return ERR_OK;
        }
        if (c != '\\') {
            return expected(p, c < 0 ? "a closing quote" : "a control character to be escaped");
        }
        enum err err = read_escape(p, out);
        if (err != ERR_OK) {
            return err;
        }
    }
}

/* A key of the innermost object, and the colon. */
static enum err read_key(struct parser *p)
{
    skip_blanks(p);
    size_t start = p->at;
    if (peek(p) != '"') {
        return expected(p, "a key in quotes");
    }
    enum err err = read_text(p, &p->key);
    if (err != ERR_OK) {
        return err;
    }
    if (memchr(p->key.data, '\0', p->key.n) != NULL) {
        return refuse(p, start, "a key must not contain \\u0000");
    }
    if (json_object_object_get_ex(p->open[p->depth - 1], p->key.data, NULL)) {
        buf_reset(&p->scratch);
        json_write_bytes(&p->scratch, p->key.data, p->key.n);
        return error_set(p->e, ERR_INVALID, "at byte %zu: this key is in the object already: %s", start,
                         p->scratch.data);
    }
    skip_blanks(p);
    if (peek(p) != ':') {
        return expected(p, "a colon after the key");
    }
    p->at++;
    return ERR_OK;
}

static bool is_object(const struct parser *p)
{
    return json_object_is_type(p->open[p->depth - 1], json_type_object);
}

/* An opening bracket, and what must follow it: the closing one, or a key, or the first element (by the caller). */
static enum err read_opening(struct parser *p)
{
    if (p->depth == p->depth_max) {
        return error_set(p->e, ERR_INVALID, "at byte %zu: nested deeper than %zu", p->at, p->depth_max);
    }
    bool opens_object = peek(p) == '{';
    struct json_object *node = not_null(opens_object ? json_object_new_object() : json_object_new_array_ext(2));
    attach(p, node);
    p->open[p->depth++] = node;
    p->at++;
    skip_blanks(p);
    if (peek(p) == (opens_object ? '}' : ']')) {
        p->at++;
        p->depth--;
        return ERR_OK;
    }
    p->wants_value = true;
    return opens_object ? read_key(p) : ERR_OK;
}

/* The integer that the digits and the sign in front of them mean, if it fits 64 bits; else NULL. */
static struct json_object *integer_of(const char *text)
{
    bool is_negative = *text == '-';
    uint64_t value = 0;
    for (const char *p = text + (is_negative ? 1 : 0); *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value)) {
            return NULL;
        }
    }
    if (!is_negative) {
        return not_null(value <= INT64_MAX ? json_object_new_int64((int64_t)value) : json_object_new_uint64(value));
    }
    if (value > (uint64_t)INT64_MAX + 1) {
        return NULL;
    }
    return not_null(json_object_new_int64((int64_t)(0 - value)));
}

static enum err read_number(struct parser *p)
{
    size_t start = p->at;
    while (p->at < p->n && p->text[p->at] != '\0' && strchr("+-.0123456789eE", p->text[p->at]) != NULL) {
        p->at++;
    }
    buf_reset(&p->scratch);
    buf_append(&p->scratch, p->text + start, p->at - start);
    double value = 0;
    if (!num_parse(p->scratch.data, &value)) {
        return refuse(p, start, "a malformed number, or one too large for a double");
    }
    struct json_object *integer = integer_of(p->scratch.data);
    attach(p, integer != NULL ? integer : not_null(json_object_new_double(value)));
    return ERR_OK;
}

static bool reads(struct parser *p, const char *word)
{
    size_t n = strlen(word);
    if (p->n - p->at < n || memcmp(p->text + p->at, word, n) != 0) {
        return false;
    }
    p->at += n;
    return true;
}

/* Whether one of the words came next, and was read. */
static bool read_word(struct parser *p)
{
    static const struct {
        const char *word;
        double value;
    } numbers[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    if (reads(p, "null")) {
        attach(p, NULL);
        return true;
    }
    bool is_true = reads(p, "true");
    if (is_true || reads(p, "false")) {
        attach(p, not_null(json_object_new_boolean(is_true)));
        return true;
    }
    for (size_t i = 0; p->has_nan && i < ARRAY_LEN(numbers); i++) {
        if (reads(p, numbers[i].word)) {
            attach(p, not_null(json_object_new_double(numbers[i].value)));
            return true;
        }
    }
    return false;
}

static enum err read_value(struct parser *p)
{
    skip_blanks(p);
    int c = peek(p);
    if (c == '{' || c == '[') {
        return read_opening(p);
    }
    if (c == '"') {
        enum err err = read_text(p, &p->scratch);
        if (err == ERR_OK) {
            attach(p, not_null(json_object_new_string_len(p->scratch.data, (int)p->scratch.n)));
        }
        return err;
    }
    if (read_word(p)) {
        return ERR_OK;
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return read_number(p);
    }
    return expected(p, "a value");
}

/* What follows a value inside a container: a comma, and a key if it is an object; or the closing bracket. */
static enum err read_separator(struct parser *p)
{
    skip_blanks(p);
    int c = peek(p);
    if (c == ',') {
        p->at++;
        p->wants_value = true;
        return is_object(p) ? read_key(p) : ERR_OK;
    }
    if (c == (is_object(p) ? '}' : ']')) {
        p->at++;
        p->depth--;
        return ERR_OK;
    }
    return expected(p, is_object(p) ? "a comma or '}'" : "a comma or ']'");
}

static enum err read_document(struct parser *p)
{
    while (p->wants_value || p->depth > 0) {
        enum err err = p->wants_value ? read_value(p) : read_separator(p);
        if (err != ERR_OK) {
            return err;
        }
    }
    skip_blanks(p);
    return p->at == p->n ? ERR_OK : expected(p, "nothing after the value");
}

/* Where the first character starts that is no UTF-8; there is one. */
static size_t first_invalid(const char *text, size_t n)
{
    size_t at = 0;
    for (;;) {
        size_t length = 1;
        while (length <= 4 && length <= n - at && !utf8_is_valid(text + at, length)) {
            length++;
        }
        if (length > 4 || length > n - at) {
            return at;
        }
        at += length;
    }
}

static enum err parse(struct parser *p, struct json **out_root)
{
    if (p->n > INT_MAX) { /* json-c's lengths are int */
        return error_set(p->e, ERR_INVALID, "a JSON text of %zu bytes is too long", p->n);
    }
    if (!utf8_is_valid(p->text, p->n)) {
        return refuse(p, first_invalid(p->text, p->n), "not UTF-8");
    }
    enum err err = read_document(p);
    if (err == ERR_OK) {
        *out_root = (struct json *)(void *)p->root;
    } else {
        json_object_put(p->root);
    }
    buf_deinit(&p->key);
    buf_deinit(&p->scratch);
    return err;
}

enum err json_parse(const char *text, size_t n, struct json **out_root, struct error *e)
{
    struct parser parser = {.text = text, .n = n, .wants_value = true, .depth_max = LIMIT_JSON_DEPTH, .e = e};
    return parse(&parser, out_root);
}

enum err json_parse_with_nan(const char *text, size_t n, struct json **out_root, struct error *e)
{
    struct parser parser = {
        .text = text, .n = n, .wants_value = true, .depth_max = LIMIT_PLAN_JSON_DEPTH, .has_nan = true, .e = e};
    return parse(&parser, out_root);
}

/* The tree. json-c's readers take NULL for null, and take some nodes as not const that they do not change. */

static struct json_object *object_of(const struct json *node)
{
    return (struct json_object *)(uintptr_t)node;
}

static const struct json *node_of(const struct json_object *object)
{
    return (const struct json *)(const void *)object;
}

void json_free(struct json *root)
{
    json_object_put(object_of(root));
}

enum json_kind json_kind_of(const struct json *node)
{
    static const enum json_kind kinds[] = {
        [json_type_null] = JSON_NULL,   [json_type_boolean] = JSON_BOOL,  [json_type_double] = JSON_NUMBER,
        [json_type_int] = JSON_NUMBER,  [json_type_object] = JSON_OBJECT, [json_type_array] = JSON_ARRAY,
        [json_type_string] = JSON_TEXT,
    };
    return kinds[json_object_get_type(object_of(node))];
}

const struct json *json_get(const struct json *object, const char *key)
{
    struct json_object *value = NULL;
    return json_object_object_get_ex(object_of(object), key, &value) ? node_of(value) : NULL;
}

bool json_has(const struct json *object, const char *key)
{
    return json_object_object_get_ex(object_of(object), key, NULL);
}

size_t json_count(const struct json *node)
{
    switch (json_kind_of(node)) {
    case JSON_ARRAY:
        return json_object_array_length(object_of(node));
    case JSON_OBJECT:
        return (size_t)json_object_object_length(object_of(node));
    case JSON_NULL:
    case JSON_BOOL:
    case JSON_NUMBER:
    case JSON_TEXT:
        break;
    }
    return 0;
}

const struct json *json_at(const struct json *array, size_t i)
{
    return json_kind_of(array) == JSON_ARRAY ? node_of(json_object_array_get_idx(object_of(array), i)) : NULL;
}

const char *json_text(const struct json *node, size_t *out_n)
{
    if (json_kind_of(node) != JSON_TEXT) {
        return NULL;
    }
    if (out_n != NULL) {
        *out_n = (size_t)json_object_get_string_len(object_of(node));
    }
    return json_object_get_string(object_of(node));
}

bool json_bool(const struct json *node)
{
    return json_kind_of(node) == JSON_BOOL && json_object_get_boolean(object_of(node));
}

double json_number(const struct json *node)
{
    return json_kind_of(node) == JSON_NUMBER ? json_object_get_double(object_of(node)) : 0;
}

bool json_is_int(const struct json *node)
{
    return json_object_is_type(object_of(node), json_type_int);
}

/* json-c answers with the nearest number of the type that is asked for, so an end of its range may stand for others. */

bool json_int(const struct json *node, int64_t *out)
{
    if (!json_is_int(node)) {
        return false;
    }
    int64_t value = json_object_get_int64(object_of(node));
    if (value == INT64_MAX && json_object_get_uint64(object_of(node)) != (uint64_t)INT64_MAX) {
        return false;
    }
    *out = value;
    return true;
}

bool json_uint(const struct json *node, uint64_t *out)
{
    if (!json_is_int(node) || json_object_get_int64(object_of(node)) < 0) {
        return false;
    }
    *out = json_object_get_uint64(object_of(node));
    return true;
}

/* The cursor is the address of the entry that was returned last. The entries of an object are linked in its order. */
bool json_next(const struct json *object, size_t *cursor, const char **out_key, const struct json **out_value)
{
    if (json_kind_of(object) != JSON_OBJECT) {
        return false;
    }
    const struct lh_entry *last = (const struct lh_entry *)(uintptr_t)*cursor;
    const struct lh_entry *entry =
        last == NULL ? lh_table_head(json_object_get_object(object_of(object))) : lh_entry_next(last);
    if (entry == NULL) {
        return false;
    }
    *cursor = (size_t)(uintptr_t)entry;
    *out_key = lh_entry_k(entry);
    *out_value = node_of(lh_entry_v(entry));
    return true;
}
