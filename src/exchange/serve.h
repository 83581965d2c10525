/*
 * serve.h - FetchShufflePartition: partitions of the store, to whoever asks by the exact key.
 *
 * A call is a stream of chunks of at most 1 MiB; the next is made when the transport has taken the last, so a slow
 * reader costs one chunk. What is in memory is sent by the thread that is there; what is in a file is read by threads
 * of this module's own, because gRPC's must not block.
 *
 * Ownership: the server uses the store, which must outlive it. Threads: the handler may be called on any.
 */
#ifndef CAPSTAN_EXCHANGE_SERVE_H
#define CAPSTAN_EXCHANGE_SERVE_H

#include <stdint.h>

#include "exchange/store.h"
#include "rpc/rpc.h"

#define EXCHANGE_FETCH_PATH "/capstan.v1.ShuffleService/FetchShufflePartition"
#define EXCHANGE_CHUNK_BYTES ((size_t)1024 * 1024)

struct exchange_server;

struct exchange_server *exchange_server_open(struct exchange_store *store, uint32_t threads);

/* NULL ok. After the rpc server that calls the handler is closed. */
void exchange_server_close(struct exchange_server *server);

/* A handler for rpc_method with the server as its context; for a server with other methods, to be called by theirs. */
void exchange_serve(void *server, struct rpc_call *call);

/* Bytes sent since it was opened. */
uint64_t exchange_server_bytes(const struct exchange_server *server);

#endif
