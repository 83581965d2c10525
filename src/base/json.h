/*
 * json.h - JSON (RFC 8259), written into a buffer and read into a tree.
 *
 * Writing is done by the piece: the caller sets brackets, commas and colons with buf_char and buf_text, and the
 * functions here write the values that need care.
 *
 * Reading is strict, since the text is a peer's: one value and nothing but white space after it, no comments, no NaN or
 * Infinity, no raw control characters inside a text, no lone surrogates, nesting at most LIMIT_JSON_DEPTH, and no key
 * twice in one object. How long a text may be is the caller's to check; a tree takes up to 270 bytes for each byte of
 * its text.
 *
 * Ownership: json_parse yields a tree, which its caller ends with json_free(root). All that the other functions return
 * (nodes, keys, texts) belongs to that tree and lives as long. NULL is a valid node everywhere: it is JSON's null, so
 * that a chain of json_get and json_at needs no checks between its links.
 * Threads: any; a tree may be read by several threads at once, as long as none of them frees it.
 */
#ifndef CAPSTAN_BASE_JSON_H
#define CAPSTAN_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"

/*
 * Appends the string in quotes, with quote, backslash and control characters escaped; all else is copied as it is, so
 * the result is JSON if `text` is UTF-8.
 */
void json_write_text(struct buf *buf, const char *text);

/* The same for `n` bytes, which may contain NULs. `text` may be NULL if `n` is zero. */
void json_write_bytes(struct buf *buf, const char *text, size_t n);

/*
 * Appends the number with the fewest digits that reads back as the same double, whatever the locale. Integers up to 2^53
 * have neither exponent nor fraction, but for minus zero, which is -0.0. NaN and the infinities, which JSON lacks, become
 * null.
 */
void json_write_number(struct buf *buf, double number);

/* Appends all digits. A reader that knows only doubles sees them rounded beyond 2^53. */
void json_write_int(struct buf *buf, int64_t number);

/* A node of a tree. */
struct json;

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_ARRAY, JSON_OBJECT };

/*
 * Reads the `n` bytes, which need no NUL after them. ERR_INVALID if they are not JSON as described above; the message
 * says what is wrong and at which byte, counted from 0. A root that is just `null` is NULL, so success is told by the
 * result alone. A key that contains \u0000 is refused, a text may contain it.
 */
MUST_USE enum err json_parse(const char *text, size_t n, struct json **out_root, struct error *e);

/*
 * As json_parse, but NaN, Infinity and -Infinity are numbers too, and nesting goes to LIMIT_PLAN_JSON_DEPTH, as in the
 * plans that DuckDB writes.
 */
MUST_USE enum err json_parse_with_nan(const char *text, size_t n, struct json **out_root, struct error *e);

/* Ends the tree. `root` is what json_parse returned, or NULL. */
void json_free(struct json *root);

/* What it is. NULL is JSON_NULL. */
enum json_kind json_kind_of(const struct json *node);

/* The member `key`; NULL if there is none, if it is null, or if `object` is no object. */
const struct json *json_get(const struct json *object, const char *key);

/* Whether `object` is an object with the member `key`, be it null. */
bool json_has(const struct json *object, const char *key);

/* Number of elements of an array or of members of an object; 0 for anything else. */
size_t json_count(const struct json *node);

/* Element `i`; NULL if there is none, if it is null, or if `array` is no array. */
const struct json *json_at(const struct json *array, size_t i);

/*
 * The text, NUL-terminated, and its length in bytes, for it may contain NULs as well. `out_n` may be NULL. Returns NULL
 * and leaves `out_n` untouched if it is no text.
 */
const char *json_text(const struct json *node, size_t *out_n);

/* Whether it is the value true. */
bool json_bool(const struct json *node);

/* The nearest double; 0 if it is no number. */
double json_number(const struct json *node);

/*
 * Whether it is a number written without fraction and exponent that fits int64_t or uint64_t. An integer beyond both
 * is held as a double and is none in this sense.
 */
bool json_is_int(const struct json *node);

/* The exact integer. False, with `out` untouched, if it is none in the sense of json_is_int or does not fit. */
MUST_USE bool json_int(const struct json *node, int64_t *out);
MUST_USE bool json_uint(const struct json *node, uint64_t *out);

/*
 * Steps through the members of an object in the order of the text. `*cursor` starts as 0 and means nothing to the
 * caller. Returns false, with the outputs untouched, after the last member and for anything but an object. Each step
 * costs O(1).
 *
 *     size_t cursor = 0;
 *     while (json_next(object, &cursor, &key, &value)) { ... }
 */
bool json_next(const struct json *object, size_t *cursor, const char **out_key, const struct json **out_value);

#endif
