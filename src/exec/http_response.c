#include <string.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "exec/http_internal.h"

/* Bytes of an answer that are taken from the network. What is written of them as JSON is bounded as a whole. */
#define BODY_BYTES_MAX ((size_t)1024 * 1024)
#define HEADER_BYTES_MAX ((size_t)32 * 1024)
#define HEADERS_MAX 200 /* each is compared with all others */

/* Room in a result for all but headers and body. */
#define FRAME_BYTES 128

void http__response_reset(struct http_response *response)
{
    response->status = 0;
    response->is_cut = false;
    response->n_headers = 0;
    buf_reset(&response->headers);
    buf_reset(&response->body);
}

void http__response_deinit(struct http_response *response)
{
    buf_deinit(&response->headers);
    buf_deinit(&response->body);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void append_lower(struct buf *buf, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_char(buf, bytes[i] >= 'A' && bytes[i] <= 'Z' ? (char)(bytes[i] - 'A' + 'a') : bytes[i]);
    }
}

size_t http__take_header(char *bytes, size_t one, size_t n, void *context)
{
    UNUSED(one);
    struct http_response *response = context;
    size_t all = n;
    if (n >= 5 && strncmp(bytes, "HTTP/", 5) == 0) {
        http__response_reset(response);
        return all;
    }
    const char *colon = memchr(bytes, ':', n);
    if (colon == NULL || memchr(bytes, '\0', n) != NULL) {
        return all; /* the empty line, or nonsense */
    }
    if (response->headers.n + n > HEADER_BYTES_MAX || response->n_headers == HEADERS_MAX) {
        response->is_cut = true;
        return all;
    }
    response->n_headers++;
    const char *value = colon + 1;
    const char *end = bytes + n;
    while (value < end && is_blank(*value)) {
        value++;
    }
    while (value < end && is_blank(end[-1])) {
        end--;
    }
    append_lower(&response->headers, bytes, (size_t)(colon - bytes));
    buf_char(&response->headers, '\0');
    buf_append(&response->headers, value, (size_t)(end - value));
    buf_char(&response->headers, '\0');
    return all;
}

/* Refusing bytes ends the transfer: what lies beyond the limit is not even fetched. */
size_t http__take_body(char *bytes, size_t one, size_t n, void *context)
{
    UNUSED(one);
    struct http_response *response = context;
    size_t room = BODY_BYTES_MAX - response->body.n;
    if (n > room) {
        response->is_cut = true;
        buf_append(&response->body, bytes, room);
        return 0;
    }
    buf_append(&response->body, bytes, n);
    return n;
}

static const char *next_text(const char *text)
{
    return text + strlen(text) + 1;
}

/* The values of all headers of that name, from the first on, as one. */
static void write_values(struct buf *result, const char *name, const char *value, const char *end)
{
    struct buf joined = {0};
    buf_text(&joined, value);
    for (const char *p = next_text(value); p < end; p = next_text(next_text(p))) {
        if (strcmp(p, name) == 0) {
            buf_text(&joined, ", ");
            buf_text(&joined, next_text(p));
        }
    }
    exec__write_text(result, joined.data, joined.n);
    buf_deinit(&joined);
}

static void write_headers(struct buf *result, const struct buf *headers)
{
    const char *end = headers->data + headers->n;
    const char *first = headers->data;
    bool is_first = true;
    buf_char(result, '{');
    for (const char *p = first; headers->n > 0 && p < end; p = next_text(next_text(p))) {
        const char *seen = first;
        while (strcmp(seen, p) != 0) {
            seen = next_text(next_text(seen));
        }
        if (seen != p) {
            continue;
        }
        if (!is_first) {
            buf_char(result, ',');
        }
        is_first = false;
        exec__write_text(result, p, strlen(p));
        buf_char(result, ':');
        write_values(result, p, next_text(p), end);
    }
    buf_char(result, '}');
}

/* How many bytes of the body, which is UTF-8, take at most `room` bytes as a JSON text. */
static size_t fitting(const struct buf *body, size_t room)
{
    size_t written = 2;
    size_t i = 0;
    while (i < body->n) {
        unsigned char c = (unsigned char)body->data[i];
        written += c < ' ' ? 6 : c == '"' || c == '\\' ? 2 : 1;
        if (written > room) {
            break;
        }
        i++;
    }
    return utf8_clip(body->data, body->n, i);
}

static bool write_body(struct buf *result, const struct buf *body, size_t room)
{
    struct buf text = {0};
    exec__append_utf8(&text, body->data, body->n);
    size_t n = fitting(&text, room);
    buf_text(result, ",\"body\":");
    json_write_bytes(result, text.data, n);
    bool is_whole = n == text.n;
    buf_deinit(&text);
    return is_whole;
}

void http__write_result(const struct http_response *response, struct buf *result)
{
    struct exec_span value;
    bool is_cut = response->is_cut;
    buf_format(result, "{\"status\":%ld,\"headers\":", response->status);
    write_headers(result, &response->headers);
    size_t room = LIMIT_INLINE_RESULT_BYTES - FRAME_BYTES - result->n;
    if (!is_cut && response->body.n <= room && exec__is_json(response->body.data, response->body.n, &value)) {
        buf_text(result, ",\"json\":");
        buf_append(result, value.data, value.n);
    } else if (response->body.n > 0) {
        is_cut = !write_body(result, &response->body, room) || is_cut;
    }
    if (is_cut) {
        buf_text(result, ",\"is_cut\":true");
    }
    buf_char(result, '}');
}
