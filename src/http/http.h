/*
 * http.h - a small HTTP server: a table of routes, a function for each, answers in a buffer or as a stream.
 *
 * Handlers run on a few threads of the server's own. They know nothing of sockets: a request has a method, a path, a
 * query, headers and a body; an answer has a status, a type and a body. A path in the table may end in "/" and a star to
 * mean everything below it.
 *
 * A handler whose answer takes time calls http_request_defer() and returns: then the request is its own, costs no thread,
 * and is owed exactly one end, from any thread: http_request_answer, or http_stream_end after http_stream_begin.
 *
 * A stream holds one chunk: the next is handed over when the reader has taken the one before, so a slow reader costs one
 * chunk of memory, whatever is behind it.
 *
 * Foreign bytes are bounded: bodies by `body_bytes_max` (413), connections by `connections_max`, those that are idle, or
 * have asked for nothing yet, by time-outs.
 * HEAD is answered as GET without the body, an unknown path with 404, a known one with another method with 405 and the
 * methods that it takes.
 *
 * Ownership: http_server_open's caller owns the server; what a request holds lives until the handler returns, or, if it
 * is deferred, its body until its end. Threads: handlers are called from several at a time.
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

struct http_header {
    const char *name;
    const char *value;
};

struct http_answer {
    int status;         /* 200 unless the handler says otherwise */
    const char *type;   /* a constant; "text/plain; charset=utf-8" unless the handler says otherwise */
    struct buf body;    /* the server's to free */
    const char *header; /* one more header, a constant; NULL: none */
    char header_value[64];
    const void *fixed; /* a constant that is the body instead of `body`; NULL: none */
    size_t n_fixed;
    const struct http_header *headers; /* more of them, constants, up to one without a name; NULL: none */
    const char *caching;               /* a constant for Cache-Control; NULL: "no-store" */
};

typedef void http_handler_fn(void *context, struct http_request *request, struct http_answer *answer);

/*
 * Whether the body of a request is worth reading. False: it is thrown away as it comes, and the handler gets an empty one,
 * to refuse the request. Method, path, query and headers are there.
 */
typedef bool http_wants_fn(void *context, struct http_request *request);

struct http_route {
    const char *method; /* NULL: all of them */
    const char *path;
    http_handler_fn *handler;
};

struct http_server_options {
    const char *listen; /* HOST:PORT; port 0: any free one */
    const struct http_route *routes;
    uint32_t n_routes;
    void *context;
    http_wants_fn *wants_body; /* asked before a body is read; NULL: all are wanted */
    uint32_t threads;          /* 0: 1 */
    uint32_t connections_max;  /* 0: 256; one address may have half of them */
    uint32_t silent_s;         /* how long a connection may go without its first request; 0: 10 */
    size_t body_bytes_max;     /* 0: 1 MiB */
    size_t bodies_bytes_max;   /* of all requests that are being served (503); 0: no limit */
    uint32_t pulse_ms; /* how often a stream that rests says something, to notice that its reader has gone; 0: 15,000 */
    const char *tls_cert_pem; /* all three NULL: no TLS */
    const char *tls_key_pem;
    const char *tls_client_ca_pem; /* not NULL: clients must present a certificate */
};

/* ERR_UNAVAILABLE if the address is taken, ERR_INVALID if it is none. The table must outlive the server. */
MUST_USE enum err http_server_open(const struct http_server_options *options, struct http_server **out,
                                   struct error *e);
const char *http_server_address(const struct http_server *server); /* with the real port */

/*
 * Replaces the certificates of a server with TLS: connections made from now on get them, those that are open go on with the
 * old ones up to their next answer; streams go on, but those of a certificate that was replaced long ago (eight times) break.
 * ERR_INVALID if they cannot be used, or the certificate is not its key's: then all stays as it was. Whether clients must
 * present one cannot change. One thread at a time.
 */
MUST_USE enum err http_server_reload_tls(struct http_server *server, const char *cert_pem, const char *key_pem,
                                         const char *client_ca_pem, struct error *e);

/*
 * Takes no more requests, waits for handlers and for the ends of those that are deferred, breaks streams that are being
 * read, frees. NULL ok. Whoever holds requests must still end them while this waits.
 */
void http_server_close(struct http_server *server);

/* Adds a method to what an answer of status 405 says is allowed. GET allows HEAD, too. */
void http_answer_allow(struct http_answer *answer, const char *method);

/* "GET" for HEAD, too. */
const char *http_request_method(const struct http_request *request);
const char *http_request_path(const struct http_request *request);
/* A value of the query or a header; NULL: there is none. */
const char *http_request_query(const struct http_request *request, const char *key);
const char *http_request_header(const struct http_request *request, const char *key);
const void *http_request_body(const struct http_request *request, size_t *out_n);
/* The other end, such as ipv4:127.0.0.1:50123. In the handler. */
const char *http_request_peer(struct http_request *request);

/* Calls `fn` for each value of the query; `value` is "" if there is none. False from it ends the walk. */
typedef bool http_query_fn(void *context, const char *key, const char *value);
void http_request_each_query(struct http_request *request, http_query_fn *fn, void *context);

/* In the handler: its `answer` will not be looked at. Nothing more is to be read of the request but its body. */
void http_request_defer(struct http_request *request);

/* The end of a deferred request. Takes the answer's body over. */
void http_request_answer(struct http_request *request, struct http_answer *answer);

/*
 * The answer is a stream of unknown length. `pulse` is a constant to be sent from time to time while the stream rests;
 * NULL: nothing is.
 */
void http_stream_begin(struct http_request *request, int status, const char *type, const char *pulse);

/*
 * Hands over the next chunk, which is empty afterwards. `sent` is called once, when the next may be handed over (`ok`) or
 * the reader has gone (not `ok`): on a thread of the server, or inside this call.
 */
typedef void http_sent_fn(void *context, bool ok);
void http_stream_send(struct http_request *request, struct buf *chunk, http_sent_fn *sent, void *context);

/* The end of a stream, after what was handed over. Not `ok`: the connection breaks, so that the reader notices. */
void http_stream_end(struct http_request *request, bool ok);

/*
 * Has `fn` called once, on a thread of the server, if the reader goes while no chunk is being sent. Never after the end
 * has returned; an end waits for an `fn` that is running, unless it is called from inside it.
 */
typedef void http_gone_fn(void *context);
void http_request_on_gone(struct http_request *request, http_gone_fn *fn, void *context);
bool http_request_is_gone(struct http_request *request);

/* Makes the answer an error as the interface has it: {"error":{"code","message","detail","hint"}}. */
void http_answer_error(struct http_answer *answer, const struct error *e);

#endif
