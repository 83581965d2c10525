#include <stdio.h>
#include <string.h>

#include "rpc/rpc_internal.h"

static bool is_host_char(char c, bool in_brackets)
{
    bool is_alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return is_alnum || c == '.' || c == '-' || c == '_' || (in_brackets && (c == ':' || c == '%'));
}

/* Up to five digits and nothing else; -1: it is no port. */
static int32_t parse_port(const char *text)
{
    int32_t port = 0;
    size_t n = strlen(text);
    if (n < 1 || n > 5) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
        port = port * 10 + (text[i] - '0');
    }
    return port <= UINT16_MAX ? port : -1;
}

enum err rpc__address_parse(const char *text, struct rpc__address *out, struct error *e)
{
    const char *colon = text == NULL ? NULL : strrchr(text, ':');
    int32_t port = colon == NULL ? -1 : parse_port(colon + 1);
    if (port < 0) {
        goto invalid;
    }
    const char *host = text;
    size_t n = (size_t)(colon - text);
    bool in_brackets = n >= 2 && host[0] == '[' && host[n - 1] == ']';
    if (in_brackets) {
        host++;
        n -= 2;
    }
    if (n == 0 || n >= sizeof(out->host)) {
        goto invalid;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_host_char(host[i], in_brackets)) {
            goto invalid;
        }
    }
    memcpy(out->host, host, n);
    out->host[n] = '\0';
    out->port = (uint16_t)port;
    return ERR_OK;

invalid:
    error_set(e, ERR_INVALID, "'%s' is no address", text == NULL ? "" : text);
    error_hint(e, "write HOST:PORT, such as 127.0.0.1:7400 or [::1]:7400");
    return ERR_INVALID;
}

enum err rpc_address_check(const char *text, struct error *e)
{
    struct rpc__address address;
    return rpc__address_parse(text, &address, e);
}

void rpc__address_format(const char *host, uint16_t port, char *out, size_t size)
{
    bool needs_brackets = strchr(host, ':') != NULL;
    snprintf(out, size, needs_brackets ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
}
