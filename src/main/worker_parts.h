/*
 * worker_parts.h - what a worker process is made of besides its engine (worker/worker.h): the data folder, the outputs that
 * it keeps, its connections to other workers, custom operators and executors.
 *
 *     operators, executors ─► folder ─► store, channels ─► executor sql ─► worker_start … worker_close ─► all closed
 *
 * Ownership: the caller's, from zero-initialised memory; worker_parts_close takes what there is, half-built or not.
 * Threads: one.
 */
#ifndef CAPSTAN_MAIN_WORKER_PARTS_H
#define CAPSTAN_MAIN_WORKER_PARTS_H

#include "cli/cli.h"
#include "exchange/channels.h"
#include "exchange/store.h"
#include "exec/executor.h"
#include "exec/operator.h"
#include "http/metric.h"

struct worker_parts {
    int folder; /* the lock of the data folder, plus one; 0: none */
    struct exchange_store *store;
    struct exchange_channels *channels;
    struct metric_histogram fetch_seconds; /* for a chunk of rows from another worker */
    struct operators *operators;
    struct executor_set *executors;
    const char *engine; /* of the executor sql: DuckDB's version; NULL: there is none */
};

/*
 * Operators, executors but for sql, and the engine's name: what can be made, and found to be wrong, before the data folder
 * is touched. ERR_INVALID for plug-ins that are none, executors that are not there, required operators that are missing.
 */
MUST_USE enum err worker_parts_prepare(struct cli *cli, struct worker_parts *parts, struct error *e);

/* Takes the data folder. Before anything else in it is touched. ERR_BUSY if another worker has it. */
MUST_USE enum err worker_parts_take_folder(struct cli *cli, struct worker_parts *parts, struct error *e);

/* How a worker is known to the others, and what it does. */
struct worker_role {
    const char *worker_id;
    uint32_t slots;                        /* tasks that run at one time */
    struct rpc_channel_options to_workers; /* how to fetch from the others: all but the target */
};

/* The parts that live in the folder, and the executor sql. */
MUST_USE enum err worker_parts_open(struct cli *cli, const struct worker_role *role, struct worker_parts *parts,
                                    struct error *e);

void worker_parts_close(struct worker_parts *parts);

#endif
