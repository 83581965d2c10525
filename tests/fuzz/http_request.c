/*
 * http_request.c - a request of the HTTP API: a line "METHOD PATH", then the body.
 *
 * Promises: a request either becomes a message or is refused with a message; what it becomes can be encoded, and passes
 * the rules of the protocol or is refused by them with a message.
 */
#include <string.h>

#include "coordinator/api_internal.h"
#include "fuzz/fuzz.h"

static void try_message(const struct api_route *route, const void *message, struct arena *arena)
{
    struct buf bytes = {0};
    struct error e = {0};
    void *decoded = NULL;
    wire_encode(message, &bytes);
    if (wire_decode(route->rule->kind, bytes.data, bytes.n, arena, &decoded, &e) != ERR_OK) {
        ASSERT(e.message[0] != '\0');
    }
    buf_deinit(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const uint8_t *end = n == 0 ? NULL : memchr(bytes, '\n', n);
    size_t n_line = end == NULL ? n : (size_t)(end - bytes);
    struct arena arena = {0};
    struct error e = {0};
    const struct api_route *route = NULL;
    struct api_input input = {0};
    void *message = NULL;
    char *line = arena_format(&arena, "%.*s", (int)n_line, n == 0 ? "" : (const char *)bytes);
    char *path = line + strcspn(line, " ");
    if (*path != '\0') {
        *path++ = '\0';
    }
    if (api__find(line, path, &route, &arena, &input.value, &e) != ERR_OK) {
        ASSERT(e.message[0] != '\0');
    } else if (route->rule != NULL) {
        input.body = end == NULL ? NULL : (const char *)end + 1;
        input.n_body = end == NULL ? 0 : n - n_line - 1;
        if (api__read(route, &input, &arena, &message, &e) != ERR_OK) {
            ASSERT(e.message[0] != '\0');
        } else {
            try_message(route, message, &arena);
        }
    }
    arena_deinit(&arena);
    return 0;
}
