/* Texts are cut into plain pieces and templates here, and the path of a template is followed into a value. */
#include <string.h>

#include "base/utf8.h"
#include "wire/template_internal.h"

#define EXCERPT_BYTES 60
#define MEMBERS_SHOWN 10
#define INDEX_MAX 1000000000

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           (unsigned char)c >= 0x80;
}

static bool is_plain_key(const char *key)
{
    size_t n = 0;
    while (is_name_byte(key[n])) {
        n++;
    }
    return n > 0 && key[n] == '\0';
}

void write_excerpt(struct buf *out, const char *text, size_t n)
{
    size_t keep = utf8_clip(text, n, EXCERPT_BYTES);
    json_write_bytes(out, text, keep);
    if (keep < n) {
        buf_text(out, "…");
    }
}

void write_printable(struct buf *out, const char *text, size_t n, size_t max)
{
    size_t keep = utf8_clip(text, n, max);
    for (size_t i = 0; i < keep; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            buf_format(out, "\\u%04x", (unsigned)(unsigned char)text[i]);
        } else {
            buf_char(out, text[i]);
        }
    }
    if (keep < n) {
        buf_text(out, "…");
    }
}

void where_write(struct buf *out, const struct where *where)
{
    size_t start = out->n;
    if (where->up != NULL) {
        where_write(out, where->up);
    }
    if (where->key == NULL) {
        buf_format(out, "[%zu]", where->index);
    } else if (where->up == NULL) {
        buf_text(out, where->key);
    } else if (!is_plain_key(where->key)) {
        buf_char(out, '[');
        write_excerpt(out, where->key, strlen(where->key));
        buf_char(out, ']');
    } else {
        size_t n = strlen(where->key);
        buf_text(out, out->n == start ? "" : ".");
        if (n <= EXCERPT_BYTES) {
            buf_text(out, where->key);
        } else {
            write_excerpt(out, where->key, n);
        }
    }
}

/* ---- finding ---- */

static const struct {
    enum template_mark mark;
    const char *opening;
} openings[] = {{MARK_ESCAPE, "$${"}, {MARK_RESULT, "${results."}, {MARK_PARAM, "${params."}};

/* What the dollar at the start of the text opens, and how long the opening is. */
static enum template_mark mark_at(const char *text, size_t n, size_t *out_n)
{
    for (size_t i = 0; i < ARRAY_LEN(openings); i++) {
        size_t length = strlen(openings[i].opening);
        if (n >= length && memcmp(text, openings[i].opening, length) == 0) {
            *out_n = length;
            return openings[i].mark;
        }
    }
    return MARK_NONE;
}

/* Where the next mark is, from `at` on; `n` if there is none. */
static size_t find_mark(const char *text, size_t n, size_t at, enum template_mark *out_mark, size_t *out_n)
{
    *out_mark = MARK_NONE;
    while (at < n) {
        const char *dollar = memchr(text + at, '$', n - at);
        if (dollar == NULL) {
            return n;
        }
        at = (size_t)(dollar - text);
        *out_mark = mark_at(dollar, n - at, out_n);
        if (*out_mark != MARK_NONE) {
            return at;
        }
        at++;
    }
    return n;
}

bool template_is_in(const char *text, size_t n)
{
    enum template_mark mark;
    size_t length = 0;
    return n > 0 && find_mark(text, n, 0, &mark, &length) < n;
}

/* ---- reading a path ---- */

struct path_reader {
    const char *text; /* from the name on */
    size_t n;
    size_t at;
    struct template_path *path;
};

static int peek(const struct path_reader *r)
{
    return r->at < r->n ? (unsigned char)r->text[r->at] : -1;
}

static const char *read_name(struct path_reader *r)
{
    size_t start = r->at;
    while (r->at < r->n && is_name_byte(r->text[r->at])) {
        r->at++;
    }
    if (r->at == start) {
        return "a dot must be followed by a name; other keys go into brackets and quotes, [\"a key\"]";
    }
    buf_append(&r->path->keys, r->text + start, r->at - start);
    return NULL;
}

/* What follows `["`: the key, with \" and \\ for quote and backslash, and the closing quote. */
static const char *read_quoted(struct path_reader *r)
{
    for (;;) {
        int c = peek(r);
        r->at++;
        if (c == '"') {
            return NULL;
        }
        if (c == '\\') {
            c = peek(r);
            r->at++;
            if (c != '"' && c != '\\') {
                return "in a quoted key a backslash stands before a quote or a backslash only";
            }
        }
        if (c < 0) {
            return "the quoted key does not end";
        }
        if (c == 0) {
            return "a key cannot contain NUL";
        }
        buf_char(&r->path->keys, (char)c);
    }
}

static const char *read_index(struct path_reader *r, struct template_step *step)
{
    size_t start = r->at;
    step->is_index = true;
    while (peek(r) >= '0' && peek(r) <= '9') {
        step->index = step->index * 10 + (size_t)(r->text[r->at] - '0');
        r->at++;
        if (step->index > INDEX_MAX) {
            return "the index is too large";
        }
    }
    return r->at > start ? NULL : "brackets hold an index from 0 on, or a key in quotes";
}

static const char *read_brackets(struct path_reader *r, struct template_step *step)
{
    const char *broken;
    if (peek(r) == '"') {
        r->at++;
        broken = read_quoted(r);
    } else {
        broken = read_index(r, step);
    }
    if (broken == NULL && peek(r) != ']') {
        return "a closing bracket is missing";
    }
    r->at++;
    return broken;
}

static const char *read_step(struct path_reader *r, int opening)
{
    struct template_path *path = r->path;
    if (path->n_steps == TEMPLATE_STEPS_MAX) {
        return "the path is longer than any value is deep";
    }
    struct template_step *step = &path->steps[path->n_steps++];
    *step = (struct template_step){.key_at = path->keys.n};
    const char *broken = opening == '.' ? read_name(r) : read_brackets(r, step);
    buf_char(&path->keys, '\0');
    step->end = r->at;
    return broken;
}

/* Reads the path that starts with the name, up to the closing brace. NULL, or what is wrong with it. */
static const char *read_path(struct path_reader *r)
{
    r->path->n_steps = 0;
    r->path->text = r->text;
    buf_reset(&r->path->keys);
    const char *broken = read_step(r, '.');
    while (broken == NULL) {
        int c = peek(r);
        if (c == '}') {
            r->path->n = r->at++;
            return NULL;
        }
        if (c != '.' && c != '[') {
            return c < 0 ? "the closing brace is missing" : "after a step come '.', '[' or '}'";
        }
        r->at++;
        broken = read_step(r, c);
    }
    return broken;
}

bool template_next(const char *text, size_t n, size_t *at, struct template_path *path, struct template_piece *out)
{
    enum template_mark mark;
    size_t opening = 0;
    size_t start = *at;
    if (start == n) {
        return false;
    }
    size_t found = find_mark(text, n, start, &mark, &opening);
    if (found > start) {
        *out = (struct template_piece){.mark = MARK_NONE, .raw = text + start, .raw_n = found - start};
        *at = found;
        return true;
    }
    *out = (struct template_piece){.mark = mark, .raw = text + start, .raw_n = opening};
    *at = start + opening;
    if (mark != MARK_ESCAPE) {
        struct path_reader reader = {.text = text + *at, .n = n - *at, .path = path};
        out->broken = read_path(&reader);
        out->raw_n = out->broken == NULL ? opening + reader.at : n - start;
        *at = out->broken == NULL ? start + out->raw_n : *at;
    }
    return true;
}

const char *template_key(const struct template_path *path, size_t step)
{
    return path->keys.data + path->steps[step].key_at;
}

void template_path_deinit(struct template_path *path)
{
    buf_deinit(&path->keys);
}

/* ---- following a path ---- */

static void write_members(struct buf *why, const struct json *object)
{
    size_t cursor = 0;
    size_t n = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    if (json_count(object) == 0) {
        buf_text(why, "no members");
        return;
    }
    buf_text(why, json_count(object) == 1 ? "the member " : "the members ");
    while (n < MEMBERS_SHOWN && json_next(object, &cursor, &key, &value)) {
        buf_text(why, n++ == 0 ? "" : ", ");
        if (is_plain_key(key) && strlen(key) <= EXCERPT_BYTES) {
            buf_text(why, key);
        } else {
            write_excerpt(why, key, strlen(key));
        }
    }
    if (json_count(object) > n) {
        buf_format(why, " and %zu more", json_count(object) - n);
    }
}

/* What the value has that the step could have asked for. */
static void write_contents(struct buf *why, const struct json *node)
{
    switch (json_kind_of(node)) {
    case JSON_NULL:
        buf_text(why, "is null");
        break;
    case JSON_BOOL:
        buf_text(why, json_bool(node) ? "is true" : "is false");
        break;
    case JSON_NUMBER:
        buf_text(why, "is a number");
        break;
    case JSON_TEXT:
        buf_text(why, "is a text");
        break;
    case JSON_ARRAY:
        buf_format(why, "is a list with %zu element%s", json_count(node), json_count(node) == 1 ? "" : "s");
        break;
    case JSON_OBJECT:
        buf_text(why, "has ");
        write_members(why, node);
        break;
    }
}

/* The element or member that the step names; false if there is none. A member that is null is there. */
static bool take_step(const struct json *node, const struct template_path *path, size_t i, const struct json **out)
{
    const struct template_step *step = &path->steps[i];
    if (step->is_index) {
        *out = json_at(node, step->index);
        return json_kind_of(node) == JSON_ARRAY && step->index < json_count(node);
    }
    *out = json_get(node, template_key(path, i));
    return *out != NULL || json_has(node, template_key(path, i));
}

/* Leaves out the name in front, unless it is all there is: the path is read from within its value. */
static void write_prefix(struct buf *why, const struct template_path *path, size_t n_steps)
{
    size_t start = n_steps == 1 ? 0 : path->steps[0].end;
    start += path->text[start] == '.' ? 1 : 0;
    buf_append(why, path->text + start, path->steps[n_steps - 1].end - start);
}

bool template_lookup(const struct json *root, const struct template_path *path, const struct json **out,
                     struct buf *why)
{
    const struct json *node = root;
    for (size_t i = 1; i < path->n_steps; i++) {
        const struct json *next = NULL;
        if (!take_step(node, path, i, &next)) {
            write_prefix(why, path, i + 1);
            buf_text(why, " does not exist; ");
            write_prefix(why, path, i);
            buf_char(why, ' ');
            write_contents(why, node);
            return false;
        }
        node = next;
    }
    *out = node;
    return true;
}
