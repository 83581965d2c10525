/*
 * rpc_internal.h - what the files of src/rpc share: gRPC's life time, addresses, arguments, status codes, TLS.
 *
 * Ownership and threads: said at each function; those without a word own nothing and may be called from any thread.
 */
#ifndef CAPSTAN_RPC_RPC_INTERNAL_H
#define CAPSTAN_RPC_RPC_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include "base/list.h"
#include "rpc/rpc.h"

#define RPC__MESSAGE_BYTES_MAX ((size_t)64 * 1024 * 1024) /* unless the options say otherwise */

/* ---- runtime.c ---- */

/* gRPC is initialised while somebody holds the runtime; the last to let go waits until it has cleaned up. */
void rpc__runtime_acquire(void);
void rpc__runtime_release(void);

/* While somebody holds it, the process's connections are looked after even if no call is under way. Inside a runtime. */
void rpc__ticker_acquire(void);
void rpc__ticker_release(void);

/* Starts a thread that gets no signals. Threads are a resource that this process cannot do without: aborts if there are none. */
void rpc__thread_start(pthread_t *out, void *(*run)(void *context), void *context);

/* ---- address.c ---- */

struct rpc__address {
    char host[256]; /* without the brackets of an IPv6 address */
    uint16_t port;
};

/* ERR_INVALID unless `text` is HOST:PORT or [IPV6]:PORT. */
MUST_USE enum err rpc__address_parse(const char *text, struct rpc__address *out, struct error *e);

/* Writes HOST:PORT, with brackets where they are needed. */
void rpc__address_format(const char *host, uint16_t port, char *out, size_t size);

/* ---- args.c ---- */

struct rpc__args {
    grpc_arg items[32];
    size_t n;
};

/* `message_bytes_max` is what this side takes in one message; 0: the usual. */
void rpc__args_server(struct rpc__args *args, size_t message_bytes_max);
void rpc__args_client(struct rpc__args *args, size_t message_bytes_max);
size_t rpc__message_bytes_max(size_t wanted);

/* ---- status.c ---- */

/* The error code for a status that came over the wire. */
enum err rpc__err_of_status(grpc_status_code status);

/*
 * A metadata value may only hold printable ASCII, so hints and leaders travel as gRPC's own messages do: other bytes
 * and '%' become %XX. The caller owns the slice.
 */
grpc_slice rpc__percent_encode(const char *text);

/* The reverse, cut to `size` between two characters. What is no valid %XX stays as it is. */
void rpc__percent_decode(grpc_slice value, char *out, size_t size);

/* Sets `trailer` (may be NULL) from trailing metadata; NULL metadata: there is none. */
void rpc__trailer_read(const grpc_metadata_array *metadata, struct rpc_trailer *trailer);

/* What a finished call says: code, message and hint go into `e`. Returns the code, ERR_OK for status 0. */
enum err rpc__status_read(grpc_status_code status, grpc_slice details, const grpc_metadata_array *metadata,
                          struct error *e);

/* ---- tls.c ---- */

/* What a server shows to clients; it can be replaced while connections are being made. */
struct rpc__tls;

/* ERR_INVALID if certificate and key cannot be used. `client_ca` not NULL: clients must show a certificate by it. */
MUST_USE enum err rpc__tls_open(const char *cert, const char *key, const char *client_ca, struct rpc__tls **out,
                                struct error *e);
void rpc__tls_close(struct rpc__tls *tls); /* NULL ok; after the server that used it is destroyed */

/* Credentials for one port. They refer to `tls`. The caller releases them. */
grpc_server_credentials *rpc__tls_port(struct rpc__tls *tls);

/* Connections made from now on see the new ones. On failure the old ones stay. */
MUST_USE enum err rpc__tls_replace(struct rpc__tls *tls, const char *cert, const char *key, const char *client_ca,
                                   struct error *e);

/* Whether a text holds certificates, all of them whole. ERR_INVALID names it as `what`. */
MUST_USE enum err rpc__tls_check_certificates(const char *pem, const char *what, struct error *e);

/* Whether gRPC can use them to listen. `client_ca` may be NULL. Inside a runtime. */
MUST_USE enum err rpc__tls_check_pair(const char *cert, const char *key, const char *client_ca, struct error *e);

/* ---- identity.c ---- */

/* Which of the identities that it has been it is now. It only grows. */
uint64_t rpc__identity_version(const struct rpc_identity *identity);

/* A channel with the present identity, whose version is written to `out_version`. */
grpc_channel *rpc__identity_connect(struct rpc_identity *identity, const char *target, const struct rpc__args *args,
                                    uint64_t *out_version);

/* ---- server.c, call.c ---- */

/* What comes out of a completion queue. */
struct rpc__tag {
    void (*fn)(void *owner, bool ok);
    void *owner;
};

/* A thread with its completion queue. All events of a call come out of one queue, so one thread sees them in a row. */
struct rpc__poller {
    struct rpc_server *server;
    grpc_completion_queue *cq;
    pthread_t thread;
    struct rpc_call *spare; /* calls to use again; only this thread touches them */
    uint32_t n_spare;
};

struct rpc__method {
    char *path;
    rpc_handler_fn *handler;
    uint32_t number; /* in the table that the server was opened with */
};

struct rpc_server {
    grpc_server *grpc;
    struct rpc__poller *pollers;
    uint32_t n_pollers;
    struct rpc__method *methods; /* sorted by path, which is owned */
    uint32_t n_methods;
    rpc_admit_fn *admit; /* NULL: all are let in */
    void *context;
    size_t message_bytes_max;
    uint32_t calls_max;
    _Atomic uint32_t n_open; /* calls that gRPC gave to us and that are not over */
    atomic_bool closing;
    struct rpc__tls *tls;
    char address[300];
    struct rpc__tag shutdown;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* n_shut, or n_open fell to zero while closing */
    uint32_t n_shut;        /* under the lock: pollers that have seen gRPC's last word on this server */
};

/* The method with that path, NULL if there is none. */
const struct rpc__method *rpc__server_method(const struct rpc_server *server, grpc_slice path);

/* One call less. On a poller. */
void rpc__server_call_is_over(struct rpc_server *server);

/* Asks gRPC for one more call. Before the pollers run, or on that poller. */
void rpc__call_post(struct rpc__poller *poller);

/* Frees the calls kept for reuse. When the poller's thread is gone. */
void rpc__call_free_spare(struct rpc__poller *poller);

/* ---- channel.c, cancel.c ---- */

/* What a call borrows from its channel: a queue of its own, so that the calling thread waits for nothing but its call. */
struct rpc__slot {
    struct rpc__slot *next;
    grpc_completion_queue *cq;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
};

/* gRPC's channel, made with one version of the identity; it lives until its last call has ended. */
struct rpc__line {
    grpc_channel *grpc;
    uint64_t version;
    uint32_t n_users; /* under the channel's lock: calls, and the channel itself while new calls take this line */
};

struct rpc_channel {
    char *target;
    size_t message_bytes_max;
    struct rpc_identity *identity; /* NULL: no TLS */
    bool owns_identity;
    bool has_token;
    grpc_slice bearer;
    pthread_mutex_t lock;
    struct rpc__line *line;  /* under the lock: for calls that begin */
    struct rpc__slot *spare; /* under the lock */
    uint32_t n_used;         /* under the lock */
};

/* A call that can be canceled from another thread. Its memory is the call's. */
struct rpc__cancelable {
    struct list link;
    grpc_call *call;
};

/* What unary calls and streams have in common. */
struct rpc__outgoing {
    struct rpc_channel *channel;
    struct rpc__line *line;
    struct rpc__slot *slot;
    grpc_call *call;
    struct rpc_cancel *cancel;
    struct rpc__cancelable cancelable;
    grpc_byte_buffer *request;
    grpc_metadata metadata[1];
    grpc_status_code status;
    grpc_slice details;
};

/*
 * Makes the call, without starting anything on it. ERR_CANCELED if its cancel has fired already; then there is nothing
 * to close.
 */
MUST_USE enum err rpc__outgoing_open(struct rpc__outgoing *o, struct rpc_channel *channel,
                                     const struct rpc_request *request, struct error *e);

/* Gives everything back. No operation may be under way. */
void rpc__outgoing_close(struct rpc__outgoing *o);

/* Writes the four operations with which each call begins. */
void rpc__outgoing_begin(struct rpc__outgoing *o, const struct rpc_request *request, grpc_op ops[4]);

/* The operation that waits for the status. */
grpc_op rpc__outgoing_status(struct rpc__outgoing *o);

/* Starts operations, and waits for those started with the same tag. Returns whether they succeeded. */
void rpc__outgoing_start(struct rpc__outgoing *o, const grpc_op *ops, size_t n, void *tag);
bool rpc__outgoing_wait(struct rpc__outgoing *o, void *tag);
/* Waits until then. Returns whether they have ended, well or not. */
MUST_USE bool rpc__outgoing_wait_until(struct rpc__outgoing *o, void *tag, gpr_timespec until);

/* What the server said at the end. */
enum err rpc__outgoing_read(const struct rpc__outgoing *o, struct rpc_trailer *trailer, struct error *e);

/* Appends the message to `out`. */
void rpc__message_append(grpc_byte_buffer *message, struct buf *out);

/* False if it has fired already; else the call is canceled when it fires, until it is removed. `cancel` may be NULL. */
MUST_USE bool rpc__cancel_add(struct rpc_cancel *cancel, struct rpc__cancelable *call);
void rpc__cancel_remove(struct rpc_cancel *cancel, struct rpc__cancelable *call);

#endif
