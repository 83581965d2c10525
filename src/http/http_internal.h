/*
 * http_internal.h - what the server's files share: a request on its way.
 *
 * All fields of a request below `is_held` are guarded by the server's lock. A request that is deferred has two holders,
 * the owner of its answer and libmicrohttpd; the last one that lets go frees it.
 *
 * While a connection is suspended, libmicrohttpd does nothing with it, not even notice that its peer has gone.
 */
#ifndef CAPSTAN_HTTP_HTTP_INTERNAL_H
#define CAPSTAN_HTTP_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "http/http.h"

#define HTTP_ADDRESS_BYTES 300
#define HTTP_PEER_BYTES 80

#define HTTP_RETIRED_MAX 8

/* One of libmicrohttpd's, with the certificate that it was started with. */
struct http__daemon {
    struct http_server *server;
    struct MHD_Daemon *mhd;
    struct list in_retired;
    atomic_bool is_retired; /* it does not listen any more: its answers close their connections */
    bool is_ending;         /* guarded by the server's lock, like n_busy: it takes no more requests */
    uint32_t n_busy;        /* requests in the hands of a handler, and connections that are suspended */
};

struct http_server {
    struct http__daemon *daemon; /* that listens; like `retired` of one thread at a time */
    struct list retired;         /* of struct http__daemon.in_retired, oldest first: while they have connections */
    uint32_t n_retired;          /* of these, without those that are ending */
    intptr_t threads;            /* 0: one */
    intptr_t connections_max;
    unsigned silent_s;
    bool is_ipv6;
    bool has_tls;
    bool wants_client_cert;
    const struct http_route *routes;
    uint32_t n_routes;
    void *context;
    http_wants_fn *wants_body; /* NULL: all are wanted */
    size_t body_bytes_max;
    size_t bodies_bytes_max;
    atomic_size_t bodies_bytes; /* of requests that are there */
    char address[HTTP_ADDRESS_BYTES];
    uint32_t pulse_ms;
    pthread_t pulse; /* says something on streams that rest */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* something of what a close waits for, or that there is a close */
    struct list streams;    /* of struct http_request.in_streams */
    uint32_t n_held;        /* deferred requests whose owner has not ended them */
    uint32_t n_busy;        /* of all daemons */
    bool is_closing;
};

struct http_request {
    struct http_server *server;
    struct http__daemon *daemon;
    struct MHD_Connection *connection;
    const char *method;
    const char *path;
    char peer[HTTP_PEER_BYTES]; /* "": nobody has asked */
    struct buf body;
    bool is_unwanted; /* the body */
    bool is_too_long;
    bool is_too_much; /* together with those of others */
    bool is_deferred;

    bool is_held;      /* by the owner of the answer */
    bool is_completed; /* libmicrohttpd has let go of it */
    bool is_suspended;
    bool is_ready; /* there is an answer, or the beginning of a stream */
    bool is_stream;
    struct http_answer answer;
    struct list in_streams;
    const char *pulse;
    struct buf chunk;
    size_t taken; /* bytes of it */
    http_sent_fn *sent;
    void *sent_context;
    bool has_ended;
    bool is_broken;
    http_gone_fn *gone;
    void *gone_context;
    bool is_telling; /* `gone` runs, in this thread: */
    pthread_t teller;
};

struct http__tls {
    const char *cert_pem; /* all NULL: none */
    const char *key_pem;
    const char *client_ca_pem;
};

/*
 * Starts to serve, at the address, or, without one (NULL), on a socket that listens already, which belongs to the daemon
 * from then on. NULL if that cannot be: then libmicrohttpd has closed the socket.
 */
struct http__daemon *http__daemon_start(struct http_server *server, const struct http__tls *tls,
                                        const struct sockaddr *address, int listening);

/* Whether the client of a connection has presented what it must. */
bool http__daemon_is_client_known(const struct http_server *server, struct MHD_Connection *connection);

/* A request has come: from now on the connection may be idle for longer. */
void http__daemon_is_spoken_to(struct MHD_Connection *connection);

/* Stops all of them. Nothing is suspended any more. */
void http__daemons_stop(struct http_server *server);

/* What libmicrohttpd calls. */
enum MHD_Result http__on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                 const char *version, const char *piece, size_t *n, void **state);
void http__on_completed(void *context, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode why);

/* The answer of a stream that has begun, to be queued. NULL if there is no memory. */
struct MHD_Response *http__stream_response(struct http_request *request);

/* libmicrohttpd has let go of a deferred request. */
void http__completed(struct http_request *request);

void http__request_free(struct http_request *request);

/* Counts a request of a daemon in, or out. The lock is held. */
void http__busy(struct http_request *request, int change);

/* Wakes the streams of a daemon that is ending, which break. The lock is held. */
void http__streams_break(struct http__daemon *daemon);

/* The thread of the pulse. */
void *http__pulse(void *server);

#endif
