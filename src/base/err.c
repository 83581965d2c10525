#include "base/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

struct row {
    const char *name;
    const char *text;
    int grpc;
    int http;
    int exit;
};

static const struct row table[] = {
#define X(symbol, wire_name, text, grpc_code, http_status, exit_code)                                                  \
    [symbol] = {wire_name, text, grpc_code, http_status, exit_code},
    ERR_TABLE(X)
#undef X
};

static const struct row *row_of(enum err code)
{
    size_t i = (size_t)code;
    return i < ARRAY_LEN(table) ? &table[i] : &table[ERR_INTERNAL];
}

const char *err_name(enum err code)
{
    return row_of(code)->name;
}

const char *err_text(enum err code)
{
    return row_of(code)->text;
}

int err_grpc(enum err code)
{
    return row_of(code)->grpc;
}

int err_http(enum err code)
{
    return row_of(code)->http;
}

int err_exit(enum err code)
{
    return row_of(code)->exit;
}

/*
 * Formats into `out`. The detour over `whole` lets the values point into `out`, and its few bytes more let
 * utf8_clip see whether the last character that fits goes on.
 */
PRINTF_LIKE(3, 0)
static void format_clipped(char *out, size_t size, const char *fmt, va_list args)
{
    char whole[sizeof(((struct error *)0)->message) + 8];
    ASSERT(size + 8 <= sizeof(whole));
    int written = vsnprintf(whole, sizeof(whole), fmt, args);
    size_t n = written < 0 ? 0 : (size_t)written;
    if (n > sizeof(whole) - 1) {
        n = sizeof(whole) - 1;
    }
    n = utf8_clip(whole, n, size - 1);
    memcpy(out, whole, n);
    out[n] = '\0';
}

enum err error_set(struct error *e, enum err code, const char *fmt, ...)
{
    if (e == NULL) {
        return code;
    }
    va_list args;
    va_start(args, fmt);
    format_clipped(e->message, sizeof(e->message), fmt, args);
    va_end(args);
    e->code = code;
    e->hint[0] = '\0';
    return code;
}

void error_hint(struct error *e, const char *fmt, ...)
{
    if (e == NULL) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    format_clipped(e->hint, sizeof(e->hint), fmt, args);
    va_end(args);
}
