/* excerpt.c - the line of a statement below an error; excerpt.h says what for. */
#include "duck/excerpt.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

#define START "\n\nLINE "
#define SHOWN_MAX 80 /* characters before and behind the place, together */

static bool is_inside_character(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

size_t duck_excerpt_start(const char *message)
{
    const char *start = strstr(message, START);
    return start != NULL ? (size_t)(start - message) : strlen(message);
}

void duck_excerpt_drop(struct error *e)
{
    if (e != NULL) {
        e->message[duck_excerpt_start(e->message)] = '\0';
    }
}

void duck_excerpt_without(struct error *e, const char *before)
{
    static const char first[] = START "1: ";
    size_t n = strlen(before);
    char *line = e != NULL ? strstr(e->message, first) : NULL;
    if (line == NULL || strncmp(line + strlen(first), before, n) != 0) {
        return; /* another line, or only a part of one, which begins with an ellipsis */
    }
    line += strlen(first);
    memmove(line, line + n, strlen(line + n) + 1);
    char *caret = strchr(line, '\n');
    if (caret != NULL && strspn(caret + 1, " ") >= n) {
        memmove(caret + 1, caret + 1 + n, strlen(caret + 1 + n) + 1);
    }
}

/* The start of the character that is `n` before the one at `at`, in the same line. */
static const char *back(const char *line, const char *at, size_t n)
{
    while (n > 0 && at > line) {
        at--;
        n -= is_inside_character(*at) ? 0 : 1;
    }
    return at;
}

void duck_excerpt_add(struct error *e, const char *sql, size_t position)
{
    const char *at = sql;
    const char *line = sql;
    size_t number = 1;
    for (size_t i = 0; e != NULL && i < position && *at != '\0'; i++) {
        if (*at == '\n') {
            line = at + 1;
            number++;
        }
        do {
            at++;
        } while (is_inside_character(*at));
    }
    if (e == NULL || strstr(e->message, START) != NULL) {
        return;
    }
    const char *from = back(line, at, SHOWN_MAX / 2);
    const char *to = at;
    for (size_t i = 0; i < SHOWN_MAX / 2 && *to != '\0' && *to != '\n' && *to != '\r'; i++) {
        do {
            to++;
        } while (is_inside_character(*to));
    }
    struct buf text = {0};
    buf_format(&text, START "%zu: %s", number, from > line ? "..." : "");
    size_t n_before = text.n - strlen("\n\n");
    for (const char *p = from; p < at; p++) {
        n_before += is_inside_character(*p) ? 0 : 1;
    }
    buf_append(&text, from, (size_t)(to - from));
    buf_text(&text, *to == '\0' || *to == '\n' || *to == '\r' ? "\n" : "...\n");
    for (size_t i = 0; i < n_before; i++) {
        buf_char(&text, ' ');
    }
    char hint[sizeof e->hint];
    memcpy(hint, e->hint, sizeof hint);
    error_set(e, e->code, "%s%s^", e->message, text.data);
    memcpy(e->hint, hint, sizeof hint);
    buf_deinit(&text);
}
