#include "coordinator/web.h"

#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "http/http.h"

/*
 * The page loads nothing from elsewhere, runs no script but its own, and nobody may put it into a frame. Styles are set by
 * script through the object model only, which needs no exception.
 */
#define CONTENT_SECURITY                                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "                    \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

#define HEADERS_ALL                                                                                                    \
    {"Vary", "Accept-Encoding"}, {"Content-Security-Policy", CONTENT_SECURITY}, {"Referrer-Policy", "no-referrer"},    \
        {"X-Frame-Options", "DENY"}, {"Cross-Origin-Opener-Policy", "same-origin"},                                    \
    {                                                                                                                  \
        "Cross-Origin-Resource-Policy", "same-origin"                                                                  \
    }

static const struct http_header headers_plain[] = {HEADERS_ALL, {NULL, NULL}};
static const struct http_header headers_gzip[] = {HEADERS_ALL, {"Content-Encoding", "gzip"}, {NULL, NULL}};

const struct web_file *web_find(const char *path)
{
    for (uint32_t i = 0; i < web_n_files; i++) {
        if (strcmp(web_files[i].path, path) == 0) {
            return &web_files[i];
        }
    }
    return NULL;
}

/* Whether one of the words that a header lists is this one, and is not refused with a weight of zero. */
static bool lists(const char *header, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = header; at != NULL && *at != '\0'; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        size_t length = strcspn(at, ",; \t");
        if (length == n && strncasecmp(at, word, n) == 0) {
            const char *rest = at + n + strspn(at + n, "; \t");
            bool is_zero = strncasecmp(rest, "q=0", 3) == 0 && strspn(rest + 3, ".0") == strcspn(rest + 3, ", \t");
            return !is_zero;
        }
    }
    return false;
}

void web_answer(const struct web_file *file, struct http_request *http, struct http_answer *answer)
{
    const char *known = http_request_header(http, "If-None-Match");
    bool is_known = known != NULL && strstr(known, file->etag) != NULL;
    bool takes_gzip = lists(http_request_header(http, "Accept-Encoding"), "gzip");
    answer->type = file->type;
    answer->caching = file->is_immutable ? "public, max-age=31536000, immutable" : "no-cache";
    answer->header = "ETag";
    size_t n = strlen(file->etag);
    ASSERT(n < sizeof answer->header_value);
    memcpy(answer->header_value, file->etag, n + 1);
    answer->headers = headers_plain;
    if (is_known) {
        answer->status = 304;
    } else if (takes_gzip) {
        answer->headers = headers_gzip;
        answer->fixed = file->gzip;
        answer->n_fixed = file->n_gzip;
    } else {
        answer->fixed = file->plain;
        answer->n_fixed = file->n_plain;
    }
}
