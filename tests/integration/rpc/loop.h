/*
 * loop.h - a server and a client in one process, over real sockets, for tests.
 *
 * The server's methods: /t/Echo answers with its request; /t/Fail with the loop's `failure`; /t/Hold keeps the call until
 * a test takes it; /t/Token answers with the request's token; /t/Stale says how old its answer is; /t/Stream sends as
 * many messages as the request says, each with its number in front.
 *
 * Ownership: a test opens and closes its loop. Threads: handlers run on pollers and touch the loop under its lock; only
 * the test's own thread may CHECK.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_RPC_LOOP_H
#define CAPSTAN_TESTS_INTEGRATION_RPC_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/rpc.h"
#include "test.h"

#define LOOP_HELD_MAX 4096

struct loop {
    struct rpc_server *server;
    struct rpc_channel *channel;
    struct error e;

    pthread_mutex_t lock; /* for all below */
    pthread_cond_t changed;
    struct error failure;
    const char *leader;
    struct rpc_call *held[LOOP_HELD_MAX];
    uint32_t n_held;
    bool ends_when_gone; /* a held call whose client goes away is ended at once */
    uint32_t n_gone;
    uint32_t n_sent;
    uint32_t n_streams_ended;
    uint32_t n_streams_lost; /* ended because the client was gone */
};

struct loop_request {
    uint32_t n;
    uint32_t bytes; /* of each message, at least 4 */
};

/* Options for a loop's server, to be changed before loop_open_with. */
struct rpc_server_options loop_options(struct loop *loop);

void loop_open(struct loop *loop);
void loop_open_with(struct loop *loop, const struct rpc_server_options *options);
void loop_close(struct loop *loop);

/* A channel to the loop's server, besides the one that it has. The caller closes it. */
struct rpc_channel *loop_connect(struct loop *loop);

/* One call, with a time-out of 20 s unless the request has one. */
enum err loop_call(struct loop *loop, const char *path, const void *bytes, size_t n, struct buf *out);

/* A call that the server refuses in this way. */
enum err loop_call_failing(struct loop *loop, const struct error *failure, const char *leader,
                           struct rpc_trailer *trailer);

/* Waits until `*counter`, which the lock guards, is at least `n`; false after 20 s, or `ms`. */
bool loop_await(struct loop *loop, const uint32_t *counter, uint32_t n);
bool loop_await_ms(struct loop *loop, const uint32_t *counter, uint32_t n, int64_t ms);
uint32_t loop_read(struct loop *loop, const uint32_t *counter);

/* Takes one of the held calls; there must be one. */
struct rpc_call *loop_take(struct loop *loop);

/* A call in a thread of its own. */
struct loop_caller {
    struct loop *loop;
    struct rpc_channel *channel; /* NULL: the loop's */
    struct rpc_request request;
    pthread_t thread;
    enum err err;
    struct error e;
    struct buf out;
};

void loop_caller_start(struct loop_caller *caller);
enum err loop_caller_join(struct loop_caller *caller);

#endif
