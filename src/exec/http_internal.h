/*
 * http_internal.h - the executor `http`: from inputs to a request (http_request.c), the exchange (http.c), from the answer
 * to a result (http_response.c).
 *
 * Ownership: a request lives in the arena of one run and borrows from the tree of its inputs; a response owns its buffers.
 * Threads: one run, one thread.
 */
#ifndef CAPSTAN_EXEC_HTTP_INTERNAL_H
#define CAPSTAN_EXEC_HTTP_INTERNAL_H

#include <curl/curl.h>

#include "base/arena.h"
#include "exec/exec_internal.h"

struct http_header {
    const char *name;
    const char *value;
};

struct http_request {
    const char *method;
    char *url;
    struct http_header *headers; /* of the task, in its order */
    size_t n_headers;
    bool has_body;
    const char *body;
    size_t n_body;
    bool is_json;                     /* the body; says so unless the task does */
    const struct json *expect_status; /* NULL, a whole number, or an array of such */
    const char *idempotency_key;
};

/* False with a failed outcome (not retryable, names the input) if the inputs are not right. */
MUST_USE bool http__read(const struct exec_task *task, const struct json *inputs, struct arena *arena,
                         struct http_request *request, struct exec_outcome *out);

/* Whether the task asks for this status. Without expect_status: 200 to 299. */
bool http__is_expected(const struct http_request *request, long status);

/*
 * Turns the request into the one that the answer `status` with a new place asks for. `url` is from the root on. What the
 * task sends to one origin (scheme, host, port) is not for another: its headers are dropped then, but for those that
 * describe the body and the answer that is wanted. ERR_INVALID if the new place is no http or https.
 */
MUST_USE enum err http__redirect(struct http_request *request, long status, const char *url, struct arena *arena);

/* Scheme, host and port of a URL, for messages: without user, password and query, which may be secrets. */
void http__origin(const char *url, struct buf *out);

/* Whether such an answer asks to look elsewhere. */
bool http__is_redirect(long status);

/* An answer as it comes in. A new status line makes it empty, so that what is left is the last one. */
struct http_response {
    long status;
    struct buf headers; /* name NUL value NUL, in the order of the answer; names in lower case */
    uint32_t n_headers;
    struct buf body;
    bool is_cut; /* the body or the headers were longer than is kept */
};

/* For CURLOPT_HEADERFUNCTION and CURLOPT_WRITEFUNCTION. */
size_t http__take_header(char *bytes, size_t one, size_t n, void *response);
size_t http__take_body(char *bytes, size_t one, size_t n, void *response);

void http__response_reset(struct http_response *response);
void http__response_deinit(struct http_response *response);

/* Writes status, headers, and json or body: never more than LIMIT_INLINE_RESULT_BYTES. */
void http__write_result(const struct http_response *response, struct buf *result);

#endif
