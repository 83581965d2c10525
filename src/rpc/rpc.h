/*
 * rpc.h - gRPC, reduced to what Capstan needs. Messages are bytes here; src/wire knows what is in them.
 *
 * Server: a table of methods, each with a handler. A handler is called on one of the server's poller threads, must not
 * block, and owes the call exactly one end: rpc_call_reply, rpc_call_end or rpc_call_fail, at once or later, from any
 * thread. A call that waits (a long poll) costs memory, no thread. Unknown methods are answered UNIMPLEMENTED.
 *
 * Client: a channel to one address, over which any number of threads call. Calls block their thread; another thread can
 * cancel them. A channel reconnects by itself, with back-off; a call on a broken one fails with ERR_UNAVAILABLE.
 *
 * Errors travel as the status codes of base/err.h (err_grpc) and come back as the code with that status; several share
 * status 14 (UNAVAILABLE), which comes back as ERR_UNAVAILABLE. The hint travels in trailing metadata.
 *
 * Ownership and threads: said at each function.
 */
#ifndef CAPSTAN_RPC_RPC_H
#define CAPSTAN_RPC_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"

#define RPC_LEADER_KEY "capstan-leader" /* trailing metadata of a refusal by a non-leader: where the leader is */
#define RPC_HINT_KEY "capstan-hint"
#define RPC_CODE_KEY "capstan-code"   /* err_name of a failure: that a server of ours answered, and did not vanish */
#define RPC_TOKEN_KEY "authorization" /* "Bearer <token>" */
#define RPC_STALENESS_KEY "capstan-staleness-ms"

/* ---- server ---- */

struct rpc_server;
struct rpc_call;

typedef void rpc_handler_fn(void *context, struct rpc_call *call);

struct rpc_method {
    const char *path; /* "/capstan.v1.ControlPlane/GetTask" */
    rpc_handler_fn *handler;
};

/*
 * Looks at a call, of the method with this number in the table, before anything of its message is read: one that is not
 * let in costs no memory. Not ERR_OK ends it with `e`. What it notes is there for the handler (rpc_call_note). On a poller
 * thread; must not block.
 */
typedef enum err rpc_admit_fn(void *context, uint32_t method, struct rpc_call *call, const void **out_note,
                              struct error *e);

struct rpc_server_options {
    const char *listen; /* HOST:PORT; port 0: any free one */
    const struct rpc_method *methods;
    uint32_t n_methods;
    rpc_admit_fn *admit;      /* NULL: all are let in */
    void *context;            /* for the handlers */
    uint32_t pollers;         /* threads; 0: 1 */
    size_t message_bytes_max; /* of one request; 0: 64 MiB. A longer one is answered RESOURCE_EXHAUSTED */
    uint32_t calls_max;       /* open at one time; 0: no limit. More are answered RESOURCE_EXHAUSTED */
    const char *tls_cert_pem; /* all three NULL: no TLS */
    const char *tls_key_pem;
    const char *tls_client_ca_pem; /* not NULL: clients must present a certificate */
};

/* ERR_UNAVAILABLE if the address is taken, ERR_INVALID if it is none. Strings and methods are copied. */
MUST_USE enum err rpc_server_open(const struct rpc_server_options *options, struct rpc_server **out, struct error *e);

/* HOST:PORT with the real port. Lives as long as the server. */
const char *rpc_server_address(const struct rpc_server *server);

/*
 * Replaces the certificates of a server with TLS; connections made from now on see them. ERR_INVALID if they cannot be
 * used: the old ones stay. Whether clients must present one cannot change. Any thread.
 */
MUST_USE enum err rpc_server_reload_tls(struct rpc_server *server, const char *cert_pem, const char *key_pem,
                                        const char *client_ca_pem, struct error *e);

/*
 * Takes no more calls, gives those that are open `grace_ms` to end, cancels the rest, joins the pollers, frees. Whoever
 * holds calls must still end them while this waits: it returns when all calls have been ended. NULL ok. Not from a
 * poller thread.
 */
void rpc_server_close(struct rpc_server *server, int64_t grace_ms);

/* The request's bytes. They live until the call is ended. */
const void *rpc_call_bytes(const struct rpc_call *call, size_t *out_n);

/* What `admit` noted; NULL: nothing. */
const void *rpc_call_note(const struct rpc_call *call);

/* A value of the request's metadata; NULL: there is none. Keys are lower case. Lives until the call is ended. */
const char *rpc_call_metadata(const struct rpc_call *call, const char *key);

/* The client's address as gRPC writes it. Lives until the call is ended. */
const char *rpc_call_peer(const struct rpc_call *call);

/*
 * Has `fn` called once, on a poller thread, if the client goes away or its deadline passes before the call is ended; at
 * once if that has happened, though never inside this function. The call must still be ended. `fn` is never called after
 * the call's end has returned, and an end waits for an `fn` that is running unless it is called from inside it: so do
 * not end a call while holding a lock that `fn` takes. Once per call.
 */
typedef void rpc_gone_fn(void *context, struct rpc_call *call);
void rpc_call_on_gone(struct rpc_call *call, rpc_gone_fn *fn, void *context);
bool rpc_call_is_gone(struct rpc_call *call);

/* Says how old the data in the answer is; goes into RPC_STALENESS_KEY. Before the end, by whoever ends the call. */
void rpc_call_staleness(struct rpc_call *call, int64_t ms);

/* Ends a unary call with its answer. The bytes are copied. The call is not to be touched any more. */
void rpc_call_reply(struct rpc_call *call, const void *bytes, size_t n);

/*
 * Ends any call with e->code and e->message. `leader` (may be NULL) goes into RPC_LEADER_KEY, e->hint into RPC_HINT_KEY;
 * in both, bytes that are not printable ASCII travel as %XX. While a message is being sent, too: the end follows it, and
 * `sent` is not called any more (a `sent` that is running is waited for, as with rpc_call_on_gone).
 */
void rpc_call_fail(struct rpc_call *call, const struct error *e, const char *leader);

/*
 * Sends one message of a stream. `sent` is called once, on a poller thread, when the next may be sent: the transport
 * has taken this one (`ok`), or the client is gone (not `ok`; end the call). One message at a time.
 */
typedef void rpc_sent_fn(void *context, struct rpc_call *call, bool ok);
void rpc_call_send(struct rpc_call *call, const void *bytes, size_t n, rpc_sent_fn *sent, void *context);

/* Bytes that stay as they are until `let_go` is called with `owner`: once, by any thread, in any case. */
struct rpc_lent {
    const void *bytes;
    size_t n;
    void (*let_go)(void *owner);
    void *owner;
};

/* The same for a message of two parts, the second of which is not copied. */
void rpc_call_send_lent(struct rpc_call *call, const void *head, size_t n_head, const struct rpc_lent *body,
                        rpc_sent_fn *sent, void *context);

/* Ends a stream. Not while a message is being sent. */
void rpc_call_end(struct rpc_call *call);

/* ---- client ---- */

/* ERR_INVALID for a text that is not HOST:PORT. */
MUST_USE enum err rpc_address_check(const char *text, struct error *e);

/*
 * What a process presents to those that it calls, and whom it believes, for all its channels together, so that it can be
 * replaced while they are in use. Texts are in PEM form.
 */
struct rpc_identity;

struct rpc_identity_pems {
    const char *ca;   /* whom it believes; NULL: whom the system does */
    const char *cert; /* what it presents; NULL, like the key: nothing */
    const char *key;
};

/* ERR_INVALID if they cannot be used. The texts are copied. */
MUST_USE enum err rpc_identity_open(const struct rpc_identity_pems *pems, struct rpc_identity **out, struct error *e);
void rpc_identity_close(struct rpc_identity *identity); /* NULL ok; after all channels that use it */

/*
 * Calls that begin from now on go over new connections with this; those under way end where they are. ERR_INVALID if it
 * cannot be used: all stays as it was. Nothing happens if nothing is new. Any thread.
 */
MUST_USE enum err rpc_identity_replace(struct rpc_identity *identity, const struct rpc_identity_pems *pems,
                                       struct error *e);

struct rpc_channel;

struct rpc_channel_options {
    const char *target;       /* HOST:PORT */
    const char *token;        /* NULL: none */
    size_t message_bytes_max; /* of one answer; 0: 64 MiB */
    bool tls;
    struct rpc_identity *identity; /* of TLS, and outlives the channel; NULL: one of its own, with these: */
    const char *tls_ca_pem;        /* NULL: the system's */
    const char *tls_cert_pem;
    const char *tls_key_pem;
};

/* Does not connect yet. ERR_INVALID for a target that is no address. */
MUST_USE enum err rpc_channel_open(const struct rpc_channel_options *options, struct rpc_channel **out,
                                   struct error *e);
void rpc_channel_close(struct rpc_channel *channel); /* NULL ok; not while calls are on it */

/* A way to end calls that block in other threads. */
struct rpc_cancel;
struct rpc_cancel *rpc_cancel_new(void);
void rpc_cancel_free(struct rpc_cancel *cancel); /* NULL ok; not while a call uses it */
void rpc_cancel_fire(struct rpc_cancel *cancel); /* calls with it end with ERR_CANCELED, now and later, until reset */
void rpc_cancel_reset(struct rpc_cancel *cancel);

struct rpc_request {
    const char *path;
    const void *bytes;
    size_t n;
    int64_t timeout_ms;        /* 0: none */
    bool wait_for_ready;       /* wait for the connection, within the time-out, instead of failing at once */
    struct rpc_cancel *cancel; /* may be NULL */
};

/* The leader's address from RPC_LEADER_KEY, if the answer had one; else "". */
struct rpc_trailer {
    char leader[256];
    int64_t staleness_ms; /* -1: not told */
    bool is_answered;     /* the failure is what a server said, not the network */
};

/* Calls and waits. The answer's bytes are appended to `out`. `trailer` may be NULL; it is set in any case. */
MUST_USE enum err rpc_unary(struct rpc_channel *channel, const struct rpc_request *request, struct buf *out,
                            struct rpc_trailer *trailer, struct error *e);

/* A server stream. One thread reads; rpc_stream_close cancels what is left. */
struct rpc_stream;
MUST_USE enum err rpc_stream_open(struct rpc_channel *channel, const struct rpc_request *request,
                                  struct rpc_stream **out, struct error *e);
/*
 * Waits so long for something to read. True: the next call of the two below does not wait, be it for a message, the end
 * or a failure. For readers that have to look round between.
 */
MUST_USE bool rpc_stream_wait(struct rpc_stream *stream, int64_t timeout_ms);
/* The next message replaces what is in `out`. `out_end` with ERR_OK: the server has ended it well. */
MUST_USE enum err rpc_stream_next(struct rpc_stream *stream, struct buf *out, bool *out_end,
                                  struct rpc_trailer *trailer, struct error *e);
/*
 * The same without putting the message together: `piece` gets its parts one by one, and how many bytes follow after each.
 * It is called only if there is a message.
 */
typedef void rpc_piece_fn(void *context, const uint8_t *bytes, size_t n, size_t n_left);
MUST_USE enum err rpc_stream_next_pieces(struct rpc_stream *stream, rpc_piece_fn *piece, void *context, bool *out_end,
                                         struct rpc_trailer *trailer, struct error *e);
void rpc_stream_close(struct rpc_stream *stream); /* NULL ok */

#endif
