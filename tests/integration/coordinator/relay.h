/*
 * relay.h - a network between a coordinator and its PostgreSQL server that can be cut and stopped.
 *
 * A process that listens on a socket of its own and passes everything on to the server's. Frozen, it holds back what both
 * sides have sent, and delivers it late when it is thawed, even if the sender has hung up meanwhile. Cut, it ends all
 * connections.
 *
 * Ownership: relay_start's caller calls relay_stop; it dies with the test program. Threads: one.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_COORDINATOR_RELAY_H
#define CAPSTAN_TESTS_INTEGRATION_COORDINATOR_RELAY_H

#include <sys/types.h>

struct relay {
    pid_t pid;
    char dir[64]; /* of its socket: the host of a URL */
};

/* Makes its folder, in which nobody listens yet. */
void relay_prepare(struct relay *relay);
/* `server_dir`: the folder of the server's socket. */
void relay_start(struct relay *relay, const char *server_dir);
void relay_freeze(const struct relay *relay);
void relay_thaw(const struct relay *relay);
/* Ends all connections; nobody listens any more, until it is started again. */
void relay_cut(struct relay *relay);
/* The same, and removes its folder. */
void relay_stop(struct relay *relay);

#endif
