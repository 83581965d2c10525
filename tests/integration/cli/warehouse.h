/*
 * warehouse.h - a small coordinator with one real DuckDB: takes queries over real gRPC, runs them, and serves their rows.
 *
 * It does what a coordinator's clients see, and can be told to misbehave: to break streams, to let a job run for ever.
 *
 * Ownership: warehouse_open's caller ends it with warehouse_close. Threads: calls come in on threads of its own; the knobs
 * are to be set before a call that they are about.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_CLI_WAREHOUSE_H
#define CAPSTAN_TESTS_INTEGRATION_CLI_WAREHOUSE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "duck/duck.h"
#include "rpc/rpc.h"

struct warehouse {
    struct rpc_server *server;
    struct duck *duck;
    struct duck_connection *connection;

    /* knobs */
    size_t chunk_bytes;     /* of the result; 0: 4096 */
    size_t break_after;     /* each stream breaks after so many bytes; 0: it does not */
    bool ends_early;        /* the stream ends well before its last message */
    bool runs_for_ever;     /* until it is canceled */
    bool is_tree;           /* the job is no query */
    bool interrupts_caller; /* sends SIGINT to this process, once, when it is asked for the status */

    /* what it was asked for, last */
    pthread_mutex_t mutex;
    char job_id[80];
    struct buf sql;
    struct buf params;
    struct buf options;
    uint32_t priority;
    bool has_priority;
    bool explains;
    struct buf result; /* the Arrow stream */
    struct error failure;
    bool is_canceled;
    atomic_uint submits;
    atomic_uint fetches;
    atomic_uint cancels;
};

void warehouse_open(struct warehouse *warehouse);
void warehouse_close(struct warehouse *warehouse);
const char *warehouse_address(const struct warehouse *warehouse);

#endif
