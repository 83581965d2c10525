/*
 * peer.h - a worker as others see it: a store, and a server over a real socket.
 *
 * Ownership: a test opens and closes it. Threads: the server's own; the functions are for the test's.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_EXCHANGE_PEER_H
#define CAPSTAN_TESTS_INTEGRATION_EXCHANGE_PEER_H

#include "exchange/fetch.h"
#include "exchange/serve.h"
#include "unit/exchange/folder.h"

struct peer {
    struct folder folder;
    struct exchange_server *server;
    struct rpc_server *rpc;
    char address[64];
};

void peer_open(struct peer *peer, uint64_t memory_bytes);
void peer_close(struct peer *peer);

/* Takes the server down, and up again at the same address. The store stays. */
void peer_stop(struct peer *peer);
void peer_start(struct peer *peer);

/* Numbers from `first` on, in `n` partitions, and the sources to read partition `partition` of them. */
struct exchange_source peer_write(struct peer *peer, uint32_t task, int64_t first, int64_t rows, uint32_t n,
                                  uint32_t partition);

/* What a fetch brought. */
struct peer_sum {
    int64_t rows;
    int64_t sum;
    int64_t last; /* the last number */
    bool is_ordered;
};

/* Reads all of it; with `is_slow`, waits after each array until as much as possible is held. */
enum err peer_read(struct exchange_fetch *fetch, bool is_slow, struct peer_sum *out, struct error *e);

struct exchange_channels *peer_channels(void);

#endif
