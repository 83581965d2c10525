/*
 * http_request.c - a request of the HTTP API: a line "METHOD PATH", then lines with Host, Origin and Authorization, any
 * of them or none, then the body, after an empty line if there is one.
 *
 * Promises: a request either becomes a message or is refused with a message; what it becomes can be encoded, and passes
 * the rules of the protocol or is refused by them with a message. A Host is let in only if it is a name of this server or a
 * number, an Origin only if it is that Host. A caller is let in only by a token that is known, and for what that one is
 * for; a refusal never repeats what he sent as a token.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/sha256.h"
#include "coordinator/api_internal.h"
#include "fuzz/fuzz.h"

static const struct {
    const char *token;
    const char *scope;
    unsigned allows;
} tokens[] = {
    {"read-token", "read", SCOPE_READ},
    {"submit-token", "submit", SCOPE_READ | SCOPE_SUBMIT},
    {"worker-token", "worker", SCOPE_READ | SCOPE_WORKER},
    {"admin-token", "admin", SCOPE_READ | SCOPE_SUBMIT | SCOPE_WORKER | SCOPE_ADMIN},
};

/* What a request says about itself; NULL: nothing. */
struct headers {
    char *host;
    char *origin;
    char *authorization;
};

/* The file is gone when it has been read. */
static struct auth *open_auth(void)
{
    char path[] = "/tmp/fuzz-tokens-XXXXXX";
    struct auth *auth = NULL;
    int fd = mkstemp(path);
    ASSERT(fd >= 0);
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        uint8_t digest[SHA256_BYTES];
        char line[2 * SHA256_BYTES + 40];
        size_t n = 0;
        sha256_once(tokens[i].token, strlen(tokens[i].token), digest);
        for (size_t b = 0; b < SHA256_BYTES; b++) {
            n += (size_t)snprintf(line + n, sizeof line - n, "%02x", digest[b]);
        }
        n += (size_t)snprintf(line + n, sizeof line - n, " %s %s\n", tokens[i].scope, tokens[i].scope);
        ASSERT(write(fd, line, n) == (ssize_t)n);
    }
    close(fd);
    ASSERT(auth_open(path, &auth, NULL) == ERR_OK);
    unlink(path);
    return auth;
}

static bool is_listed(const struct api *api, const char *host, size_t n)
{
    const char *own[] = {"localhost", api->host, api->advertise, api->n_names > 0 ? api->names[0] : ""};
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        if (strlen(own[i]) == n && strncasecmp(own[i], host, n) == 0) {
            return true;
        }
    }
    return false;
}

/* A host that was let in, without its port and brackets, is one of the server's names, or no name at all. */
static void check_host(const struct api *api, const char *host)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : strrchr(host, ':');
    const char *start = host + (host[0] == '[');
    size_t n = end == NULL ? strlen(start) : (size_t)(end - start);
    char name[64] = "";
    struct in6_addr address;
    if (n < sizeof name) {
        memcpy(name, start, n);
    }
    bool is_number = inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
    bool is_ours = strncmp(name, "127.", 4) == 0 || strcmp(name, "::1") == 0 || strcmp(api->host, "0.0.0.0") == 0;
    ASSERT(is_listed(api, start, n) || (is_number && is_ours));
}

static void try_origin(const struct headers *headers)
{
    static const char *const names[] = {"capstan.example"};
    static char loopback[] = "127.0.0.1";
    static char any[] = "0.0.0.0";
    static char public[] = "10.0.0.7";
    const struct api apis[] = {{.host = loopback, .advertise = loopback},
                               {.host = any, .advertise = public, .names = names, .n_names = 1}};
    for (size_t i = 0; i < ARRAY_LEN(apis); i++) {
        struct error e = {0};
        if (api__check_origin(&apis[i], headers->host, headers->origin, &e) != ERR_OK) {
            ASSERT(e.message[0] != '\0');
            continue;
        }
        ASSERT(headers->host != NULL);
        check_host(&apis[i], headers->host);
        if (headers->origin != NULL) {
            const char *rest = strstr(headers->origin, "://");
            ASSERT(rest != NULL);
            ASSERT(strcasecmp(rest + 3, headers->host) == 0);
            ASSERT(strncmp(headers->origin, "http", 4) == 0);
        }
    }
}

static void try_token(const char *authorization, enum scope scope)
{
    static struct auth *auth;
    if (auth == NULL) {
        auth = open_auth();
    }
    const struct auth_pass *pass = NULL;
    struct error e = {0};
    const char *token = authorization == NULL ? NULL : strrchr(authorization, ' ');
    unsigned allows = 0;
    for (size_t i = 0; token != NULL && i < ARRAY_LEN(tokens); i++) {
        allows |= strcmp(token + 1, tokens[i].token) == 0 ? tokens[i].allows : 0;
    }
    if (auth_check(auth, authorization, scope, &pass, &e) == ERR_OK) {
        ASSERT(scope == SCOPE_NONE || (allows & scope) != 0);
        return;
    }
    ASSERT(e.message[0] != '\0');
    ASSERT(token == NULL || strlen(token + 1) < 12 || strstr(e.message, token + 1) == NULL);
}

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

/* The next line, without its end, and what follows it. */
static char *take_line(const char **text, size_t *n, struct arena *arena)
{
    const char *end = *n == 0 ? NULL : memchr(*text, '\n', *n);
    size_t n_line = end == NULL ? *n : (size_t)(end - *text);
    char *line = arena_format(arena, "%.*s", (int)n_line, *n == 0 ? "" : *text);
    *text = end == NULL ? NULL : end + 1;
    *n = end == NULL ? 0 : *n - n_line - 1;
    return line;
}

static struct headers take_headers(const char **text, size_t *n, struct arena *arena)
{
    struct headers headers = {0};
    const struct {
        const char *name;
        char **value;
    } known[] = {{"Host: ", &headers.host}, {"Origin: ", &headers.origin}, {"Authorization: ", &headers.authorization}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        size_t length = strlen(known[i].name);
        if (*n >= length && strncasecmp(*text, known[i].name, length) == 0) {
            *known[i].value = take_line(text, n, arena) + length;
        }
    }
    if (*n > 0 && (*text)[0] == '\n') {
        (void)take_line(text, n, arena);
    }
    return headers;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct arena arena = {0};
    struct error e = {0};
    const struct api_route *route = NULL;
    struct api_input input = {0};
    void *message = NULL;
    const char *text = (const char *)bytes;
    char *line = take_line(&text, &n, &arena);
    char *path = line + strcspn(line, " ");
    if (*path != '\0') {
        *path++ = '\0';
    }
    struct headers headers = take_headers(&text, &n, &arena);
    try_origin(&headers);
    if (api__find(line, path, &route, &arena, &input.value, &e) != ERR_OK) {
        ASSERT(e.message[0] != '\0');
    } else {
        try_token(headers.authorization, route->rule != NULL ? route->rule->scope : route->scope);
    }
    if (route != NULL && route->rule != NULL) {
        input.body = text;
        input.n_body = n;
        if (api__read(route, &input, &arena, &message, &e) != ERR_OK) {
            ASSERT(e.message[0] != '\0');
        } else {
            try_message(route, message, &arena);
        }
    }
    arena_deinit(&arena);
    return 0;
}
