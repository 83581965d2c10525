/*
 * template_internal.h - finding templates in a text, and naming places in a JSON value. For template*.c and tree*.c.
 *
 * A text is looked at from left to right: `$${` stands for `${`; `${results.` and `${params.` open a template, which
 * ends with `}`; everything else, `${HOME}` included, is just text. Neither of the two openings can be a variable of a
 * shell, whose names have no dots, so scripts need no escapes.
 *
 * Ownership: pieces point into the text. A path owns its keys until template_path_deinit; it is reused from text to
 * text. Threads: any, each with its own values.
 */
#ifndef CAPSTAN_WIRE_TEMPLATE_INTERNAL_H
#define CAPSTAN_WIRE_TEMPLATE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"

/* A place in a value, as a chain from the inside out on the caller's stack; it costs nothing until it is written. */
struct where {
    const struct where *up; /* NULL: the outermost, whose key may be "" */
    const char *key;        /* NULL: an element of a list */
    size_t index;
};

/* Appends it: tasks[3].inputs["a key"].x */
void where_write(struct buf *out, const struct where *where);

/* Appends a piece of a text for people: in quotes, escaped, cut after about 60 bytes. */
void write_excerpt(struct buf *out, const char *text, size_t n);

/* Appends a text for people without quotes: at most `max` of its bytes, with control characters as \u00XX. */
void write_printable(struct buf *out, const char *text, size_t n, size_t max);

/* Bytes of a template that are shown in a message. */
#define TEMPLATE_BYTES_SHOWN 200

enum template_mark { MARK_NONE, MARK_ESCAPE, MARK_RESULT, MARK_PARAM };

/* A path has the name of a task or parameter, and then at most as many steps as a value can be deep. */
#define TEMPLATE_STEPS_MAX (1 + LIMIT_JSON_DEPTH)

struct template_step {
    size_t key_at; /* in `keys`, NUL-terminated */
    bool is_index;
    size_t index;
    size_t end; /* of the step in the path as written */
};

struct template_path {
    struct buf keys;
    struct template_step steps[TEMPLATE_STEPS_MAX];
    size_t n_steps;
    const char *text; /* the path as written, from the name on, without the closing brace */
    size_t n;
};

struct template_piece {
    enum template_mark mark; /* MARK_NONE: plain text */
    const char *raw;         /* as written */
    size_t raw_n;
    const char *broken; /* MARK_RESULT, MARK_PARAM: what is wrong with it; NULL: nothing, and its path is read */
};

/*
 * Takes the next piece of the text from `*at` on, and moves `*at` behind it. False at the end. A broken template is
 * reported with the rest of the text as its `raw`, and only its opening is passed.
 */
bool template_next(const char *text, size_t n, size_t *at, struct template_path *path, struct template_piece *out);

/* Whether there is anything but plain text in the bytes. */
bool template_is_in(const char *text, size_t n);

/* The key of a step; only if it is no index. */
const char *template_key(const struct template_path *path, size_t step);

/*
 * The value that the steps from the second on lead to, starting from the value of what the first names. False if there
 * is none: then `why` (not NULL) gets a text such as `rows[3] does not exist; rows has 2 elements`.
 */
bool template_lookup(const struct json *root, const struct template_path *path, const struct json **out,
                     struct buf *why);

void template_path_deinit(struct template_path *path);

#endif
