#include "cli/pretty.h"

static void break_line(const struct pretty *p, struct buf *out)
{
    if (!p->indents) {
        return;
    }
    buf_char(out, '\n');
    for (uint32_t i = 0; i < p->depth; i++) {
        buf_text(out, "  ");
    }
}

static void feed_text(struct pretty *p, char c, struct buf *out)
{
    buf_char(out, c);
    if (p->after_backslash) {
        p->after_backslash = false;
    } else if (c == '\\') {
        p->after_backslash = true;
    } else if (c == '"') {
        p->in_text = false;
    }
}

static void feed_close(struct pretty *p, char c, struct buf *out)
{
    p->depth -= p->depth > 0 ? 1 : 0;
    if (!p->after_open) {
        break_line(p, out);
    }
    p->after_open = false;
    buf_char(out, c);
}

static void feed_other(struct pretty *p, char c, struct buf *out)
{
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        return;
    }
    if (c == '}' || c == ']') {
        feed_close(p, c, out);
        return;
    }
    if (p->after_open) {
        break_line(p, out);
        p->after_open = false;
    }
    buf_char(out, c);
    if (c == '{' || c == '[') {
        p->depth++;
        p->after_open = true;
    } else if (c == ',') {
        break_line(p, out);
    } else if (c == ':' && p->indents) {
        buf_char(out, ' ');
    } else if (c == '"') {
        p->in_text = true;
    }
}

void pretty_feed(struct pretty *p, const char *bytes, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (p->in_text) {
            feed_text(p, bytes[i], out);
        } else {
            feed_other(p, bytes[i], out);
        }
    }
}
