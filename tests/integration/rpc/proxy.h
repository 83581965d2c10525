/*
 * proxy.h - a network that can be cut: passes bytes between clients and a server, both ways, until a test says otherwise.
 *
 * Ownership: a test opens and closes its proxy. Threads: it has one of its own; the functions may be called from any.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_RPC_PROXY_H
#define CAPSTAN_TESTS_INTEGRATION_RPC_PROXY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define PROXY_PAIRS_MAX 64

struct proxy {
    char address[64]; /* where clients connect */
    uint16_t server_port;
    int listener;
    int pairs[PROXY_PAIRS_MAX][2];
    int n_pairs;
    pthread_t thread;
    atomic_bool stop;
    atomic_bool is_silent; /* nothing passes, and nobody is told */
    atomic_bool cut;       /* all connections are closed; becomes false when that is done */
};

/* `server_address` is 127.0.0.1:PORT. */
void proxy_open(struct proxy *proxy, const char *server_address);
void proxy_close(struct proxy *proxy);

#endif
