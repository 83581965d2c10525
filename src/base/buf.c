#include "base/buf.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define CAP_MIN ((size_t)64)

/* Makes room for `more` bytes and the NUL behind them. */
static void reserve(struct buf *buf, size_t more)
{
    size_t need = 0;
    bool overflows = __builtin_add_overflow(buf->n, more, &need) || __builtin_add_overflow(need, 1, &need);
    ASSERT(!overflows);
    if (need <= buf->cap) {
        return;
    }
    size_t cap = buf->cap < CAP_MIN / 2 ? CAP_MIN : buf->cap > SIZE_MAX / 2 ? SIZE_MAX : buf->cap * 2;
    buf->cap = cap < need ? need : cap;
    buf->data = mem_realloc(buf->data, buf->cap);
}

void buf_append(struct buf *buf, const void *p, size_t n)
{
    reserve(buf, n);
    if (n > 0) {
        memcpy(buf->data + buf->n, p, n);
    }
    buf->n += n;
    buf->data[buf->n] = '\0';
}

void buf_text(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_char(struct buf *buf, char c)
{
    reserve(buf, 1);
    buf->data[buf->n++] = c;
    buf->data[buf->n] = '\0';
}

void buf_format(struct buf *buf, const char *fmt, ...)
{
    reserve(buf, 0);
    size_t room = buf->cap - buf->n;
    va_list args;
    va_start(args, fmt);
    int written = vsnprintf(buf->data + buf->n, room, fmt, args);
    va_end(args);
    ASSERT(written >= 0);
    size_t n = (size_t)written;
    if (n >= room) {
        reserve(buf, n);
        va_start(args, fmt);
        vsnprintf(buf->data + buf->n, n + 1, fmt, args);
        va_end(args);
    }
    buf->n += n;
}

void buf_reset(struct buf *buf)
{
    buf->n = 0;
    if (buf->data != NULL) {
        buf->data[0] = '\0';
    }
}

void buf_deinit(struct buf *buf)
{
    mem_free(buf->data);
    *buf = (struct buf){0};
}
