/*
 * http.h - a small HTTP server: a table of routes, a function for each, answers in a buffer.
 *
 * Handlers run on a few threads of the server's own and may block. They know nothing of sockets: a request has a path, a
 * query, headers and a body; an answer has a status, a type and a body. A path in the table may end in "/" and a star to
 * mean everything below it.
 *
 * Foreign bytes are bounded: bodies by `body_bytes_max` (413), connections by `connections_max`, idle ones by a time-out.
 * HEAD is answered as GET without the body, an unknown path with 404, a known one with another method with 405.
 *
 * Ownership: http_server_open's caller owns the server; what a request holds lives until the handler returns.
 * Threads: handlers are called from several at a time.
 */
#ifndef CAPSTAN_HTTP_HTTP_H
#define CAPSTAN_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"

struct http_server;
struct http_request;

struct http_answer {
    int status;       /* 200 unless the handler says otherwise */
    const char *type; /* a constant; "text/plain; charset=utf-8" unless the handler says otherwise */
    struct buf body;  /* the server's to free */
};

typedef void http_handler_fn(void *context, struct http_request *request, struct http_answer *answer);

struct http_route {
    const char *method;
    const char *path;
    http_handler_fn *handler;
};

struct http_server_options {
    const char *listen; /* HOST:PORT; port 0: any free one */
    const struct http_route *routes;
    uint32_t n_routes;
    void *context;
    uint32_t threads;         /* 0: 1 */
    uint32_t connections_max; /* 0: 256 */
    size_t body_bytes_max;    /* 0: 1 MiB */
};

/* ERR_UNAVAILABLE if the address is taken, ERR_INVALID if it is none. The table must outlive the server. */
MUST_USE enum err http_server_open(const struct http_server_options *options, struct http_server **out,
                                   struct error *e);
const char *http_server_address(const struct http_server *server); /* with the real port */
void http_server_close(struct http_server *server);                /* waits for handlers; NULL ok */

const char *http_request_path(const struct http_request *request);
/* A value of the query or a header; NULL: there is none. */
const char *http_request_query(const struct http_request *request, const char *key);
const char *http_request_header(const struct http_request *request, const char *key);
const void *http_request_body(const struct http_request *request, size_t *out_n);

/* Makes the answer an error as the interface has it: {"error":{"code":...,"message":...,"hint":...}}. */
void http_answer_error(struct http_answer *answer, const struct error *e);

#endif
