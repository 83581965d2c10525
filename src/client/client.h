/*
 * client.h - calls to whichever coordinator leads.
 *
 * A client has a list of servers. A call goes to the one that answered last; a server that does not lead names the one
 * that does, and the call follows; one that cannot be reached is passed over for the next. This goes on until the
 * patience runs out. All calls of the protocol may be repeated: ids are chosen by the client.
 *
 * Ownership: client_open's caller owns the client. Threads: one at a time per client; another thread may fire the cancel.
 */
#ifndef CAPSTAN_CLIENT_CLIENT_H
#define CAPSTAN_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "rpc/rpc.h"
#include "wire/message.h"

struct client;

#define CLIENT_SERVERS_MAX 64
#define CLIENT_ADDRESS_BYTES 300 /* host, colon, port and the NUL */

/* Texts may be NULL but for `servers`. */
struct client_options {
    const char *servers; /* HOST:PORT,HOST:PORT... */
    const char *token;
    bool tls;
    const char *tls_ca_pem;
    const char *tls_cert_pem;
    const char *tls_key_pem;
    int64_t patience_ms; /* how long to look for a coordinator that answers */
};

struct client_call {
    const char *path;    /* "/capstan.v1.ControlPlane/ListJobs" */
    const void *message; /* struct pb_... */
    enum pb_kind answer;
    int64_t wait_ms;     /* how long the server may hold the call */
    int64_t patience_ms; /* 0: the client's */
    struct rpc_cancel *cancel;
};

/* Copies the options. ERR_INVALID for addresses that are none. Does not connect. */
MUST_USE enum err client_open(const struct client_options *options, struct client **out, struct error *e);
void client_close(struct client *client); /* NULL ok */

/*
 * Calls and waits. The answer, a `struct pb_... *`, lives in the arena. ERR_UNAVAILABLE when the patience is over; other
 * errors are the server's own.
 */
MUST_USE enum err client_call(struct client *client, const struct client_call *call, struct arena *arena,
                              void *out_answer, struct error *e);

/* A stream. Up to its first message it looks for a server as client_call does; an error after that ends it. */
struct client_stream;
void client_stream_open(struct client *client, const struct client_call *call, struct client_stream **out);
/* The next message, in the arena. With `out_end` there is none: the server has ended the stream. */
MUST_USE enum err client_stream_next(struct client_stream *stream, struct arena *arena, void *out_message,
                                     bool *out_end, struct error *e);
void client_stream_close(struct client_stream *stream); /* NULL ok */

/*
 * Whether a stream that had begun broke off for want of a server, so that another one may be opened where it ended: the
 * server has gone, stops, or leads no more. After a cancel of our own a further stream says so at once.
 */
bool client_may_resume(enum err err);

/* Who calls: with which client, what ends its calls (NULL: nothing), and where answers live. */
struct client_caller {
    struct client *client;
    struct rpc_cancel *cancel;
    struct arena *arena;
};

/* Part `i` of a list of addresses (HOST:PORT,HOST:PORT...). False if there is none, or it is too long for one. */
bool client_server_at(const char *list, uint32_t i, char out[CLIENT_ADDRESS_BYTES]);

/* Who answered last, for people. */
const char *client_server(const struct client *client);

#endif
