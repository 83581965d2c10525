#include "bytes.h"

#include <stdlib.h>
#include <string.h>

#include "../test.h"

static const char *assemble(struct buf *out, const char *p, char closing);

static void append_length(struct buf *out, size_t n)
{
    while (n >= 0x80) {
        buf_char(out, (char)(n | 0x80));
        n >>= 7;
    }
    buf_char(out, (char)n);
}

static const char *assemble_group(struct buf *out, const char *p)
{
    struct buf inside = {0};
    p = assemble(&inside, p, '}');
    append_length(out, inside.n);
    buf_append(out, inside.data, inside.n);
    buf_deinit(&inside);
    return p;
}

static const char *assemble_times(struct buf *out, const char *p, unsigned long times)
{
    struct buf inside = {0};
    p = assemble(&inside, p, ')');
    for (unsigned long i = 0; i < times; i++) {
        buf_append(out, inside.data, inside.n);
    }
    buf_deinit(&inside);
    return p;
}

static const char *assemble_word(struct buf *out, const char *p)
{
    char *end;
    unsigned long number = strtoul(p, &end, 10);
    if (end > p && end[0] == '*' && end[1] == '(') {
        return assemble_times(out, end + 2, number);
    }
    number = strtoul(p, &end, 16);
    CHECK_INT(end - p, 2);
    buf_char(out, (char)number);
    return end;
}

/* Up to the closing character; returns what follows it. */
static const char *assemble(struct buf *out, const char *p, char closing)
{
    while (*p != closing) {
        CHECK(*p != '\0');
        if (*p == ' ') {
            p++;
        } else if (*p == '\'') {
            size_t n = strcspn(p + 1, "'");
            CHECK(p[n + 1] == '\'');
            buf_append(out, p + 1, n);
            p += n + 2;
        } else if (*p == '{') {
            p = assemble_group(out, p + 1);
        } else {
            p = assemble_word(out, p);
        }
    }
    return closing == '\0' ? p : p + 1;
}

void bytes_append(struct buf *out, const char *notation)
{
    buf_append(out, NULL, 0);
    assemble(out, notation, '\0');
}
