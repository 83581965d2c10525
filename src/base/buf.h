/*
 * buf.h - bytes that grow at the end: for text that is put together piece by piece.
 *
 * After the first append (of any length, even zero) `data` is NUL-terminated; the NUL is not counted in `n`. The bytes
 * may themselves contain NULs. As with mem.h, the process aborts when memory is exhausted. The fields are there to be read;
 * only the functions below change them.
 *
 * Ownership: a zero-initialised `struct buf` is valid and empty, with `data` NULL. It owns `data`, which moves when it
 * grows. Threads: one at a time per buffer.
 */
#ifndef CAPSTAN_BASE_BUF_H
#define CAPSTAN_BASE_BUF_H

#include <stddef.h>

#include "base/check.h"

struct buf {
    char *data;
    size_t n;   /* bytes in use, without the NUL */
    size_t cap; /* bytes allocated */
};

/* Appends the `n` bytes at `p`, which may be NULL if `n` is zero. They must not lie inside the buffer itself. */
void buf_append(struct buf *buf, const void *p, size_t n);

/* Appends a string, without its NUL. */
void buf_text(struct buf *buf, const char *text);

/* Appends one byte. */
void buf_char(struct buf *buf, char c);

/* Appends formatted text. The values must not point into the buffer itself. */
void buf_format(struct buf *buf, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Makes it empty and keeps its memory for reuse. `data`, if there is any, becomes "". */
void buf_reset(struct buf *buf);

/* Frees everything; the buffer is then as if zero-initialised. */
void buf_deinit(struct buf *buf);

#endif
