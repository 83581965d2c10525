#include "cli/config.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

struct reader {
    const char *file;
    config_fn *fn;
    void *context;
    struct config_line line;
    struct buf text; /* the line, whose pieces are cut out of it */
    char section[CONFIG_WORD_BYTES_MAX + 1];
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Without the blanks at both ends; the end is cut off in place. */
static char *trim(char *text)
{
    while (is_blank(*text)) {
        text++;
    }
    size_t n = strlen(text);
    while (n > 0 && is_blank(text[n - 1])) {
        n--;
    }
    text[n] = '\0';
    return text;
}

/* Names of verbs and flags. */
static bool is_word(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n <= CONFIG_WORD_BYTES_MAX && text[0] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == n;
}

static enum err read_section(struct reader *r, char *text, struct error *e)
{
    size_t n = strlen(text);
    if (n < 2 || text[n - 1] != ']') {
        return error_set(e, ERR_INVALID, "a section is written as [verb]");
    }
    text[n - 1] = '\0';
    char *name = trim(text + 1);
    if (!is_word(name)) {
        return error_set(e, ERR_INVALID, "'%.80s' is not the name of a verb", name);
    }
    memcpy(r->section, name, strlen(name) + 1);
    r->line.key = NULL;
    r->line.value = NULL;
    return r->fn(r->context, &r->line, e);
}

static enum err read_pair(struct reader *r, char *text, struct error *e)
{
    char *equals = strchr(text, '=');
    if (equals == NULL) {
        return error_set(e, ERR_INVALID, "expected 'key = value' or '[section]'");
    }
    *equals = '\0';
    char *key = trim(text);
    char *value = trim(equals + 1);
    if (!is_word(key)) {
        return error_set(e, ERR_INVALID, "'%.80s' is not the name of a flag", key);
    }
    size_t n = strlen(value);
    if (value[0] == '"') {
        if (n < 2 || value[n - 1] != '"') {
            return error_set(e, ERR_INVALID, "the quotes of the value are not closed");
        }
        value[n - 1] = '\0';
        value++;
    }
    r->line.key = key;
    r->line.value = value;
    return r->fn(r->context, &r->line, e);
}

static enum err read_line(struct reader *r, const char *bytes, size_t n, struct error *e)
{
    if (!utf8_is_valid(bytes, n)) {
        return error_set(e, ERR_INVALID, "the line is not UTF-8");
    }
    for (size_t i = 0; i < n; i++) {
        if (((unsigned char)bytes[i] < 0x20 && bytes[i] != '\t') || bytes[i] == 0x7f) {
            return error_set(e, ERR_INVALID, "the line has a control character");
        }
    }
    buf_reset(&r->text);
    buf_append(&r->text, bytes, n);
    char *text = trim(r->text.data);
    if (text[0] == '\0' || text[0] == '#' || text[0] == ';') {
        return ERR_OK;
    }
    return text[0] == '[' ? read_section(r, text, e) : read_pair(r, text, e);
}

enum err config_parse(const char *file, const char *bytes, size_t n, config_fn *fn, void *context, struct error *e)
{
    struct reader r = {.file = file, .fn = fn, .context = context};
    enum err err = ERR_OK;
    size_t at = 0;
    r.line.section = r.section;
    if (n > CONFIG_BYTES_MAX) {
        return error_set(e, ERR_INVALID, "%s: the file is too long; %zu bytes are allowed", file, CONFIG_BYTES_MAX);
    }
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) {
        at = 3; /* a byte order mark, as some editors write it */
    }
    while (at < n && err == ERR_OK) {
        const char *end = memchr(bytes + at, '\n', n - at);
        size_t line_n = end == NULL ? n - at : (size_t)(end - (bytes + at));
        size_t cut = line_n > 0 && bytes[at + line_n - 1] == '\r' ? 1 : 0;
        struct error problem = {0};
        r.line.number++;
        err = read_line(&r, bytes + at, line_n - cut, &problem);
        if (err != ERR_OK) {
            error_set(e, err, "%s:%u: %s", file, r.line.number, problem.message);
            error_hint(e, "%s", problem.hint);
        }
        at += line_n + 1;
    }
    buf_deinit(&r.text);
    return err;
}
