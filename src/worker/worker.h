/*
 * worker.h - the engine of a worker process: it pulls tasks from the leader, runs them, reports them.
 *
 *     worker_start ─► registers ─► polls, runs, reports, beats ─► worker_drain ─► leaves ─► worker_wait returns
 *
 * Threads, all of the worker's own: one heartbeat thread that nothing else can block, two that hold the long poll, one
 * that reports, one that watches deadlines and runs the end, and up to `slots` that run executors, made when needed.
 * One more with a store, which removes what is not needed there. What each does, and why, is in README.md beside this file.
 *
 * A worker without a coordinator goes on looking for one, for ever. It ends when it is told to (worker_drain,
 * worker_stop_now), when a newer process has taken its worker_id, or when its first registration is refused for good
 * (credentials, a worker_id that is none).
 *
 * Ownership: worker_start copies the options' texts and lists; the executors and the store stay the caller's and must
 * outlive the worker. Threads: any may call these functions, but none from a signal handler; worker_close is the last call.
 */
#ifndef CAPSTAN_WORKER_WORKER_H
#define CAPSTAN_WORKER_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "exchange/store.h"
#include "exec/executor.h"

struct rpc_identity;
struct worker;

struct worker_options {
    const char *const *join; /* HOST:PORT of coordinators; at least one */
    uint32_t n_join;
    const char *worker_id;
    uint32_t slots;        /* attempts at one time; at least 1 */
    const char *listen;    /* HOST:PORT at which other workers fetch map outputs; NULL: nowhere */
    const char *advertise; /* HOST:PORT where others find that; port 0: the one it listens on. NULL: as it listens */
    struct executor_set *executors;
    const char *capabilities_json; /* NULL: none */
    const char *const *ops;        /* names of custom operators */
    uint32_t n_ops;
    const char *token; /* NULL: none. Sent to coordinators and other workers, and asked of those who fetch here */
    const char *version;
    struct rpc_identity *identity; /* of TLS to the coordinators, and outlives the worker; NULL: no TLS */
    const char *listen_cert_pem;   /* of `listen`; NULL: no TLS */
    const char *listen_key_pem;
    const char *listen_client_ca_pem;
    struct exchange_store *store; /* what executors keep for others. NULL: nothing; else outlives the worker */
};

/*
 * Starts the threads; does not wait for a coordinator. ERR_INVALID for options that make no sense, ERR_UNAVAILABLE if the
 * address cannot be used.
 */
MUST_USE enum err worker_start(const struct worker_options *options, struct worker **out, struct error *e);

/*
 * Begins to leave: no new tasks, what has not begun is given back, what runs may finish within the drain time and is
 * then given back, too. Returns at once. For the first SIGTERM. More calls change nothing.
 */
void worker_drain(struct worker *worker);

/* Stops all that runs and leaves. Returns at once. For SIGINT and the second SIGTERM. */
void worker_stop_now(struct worker *worker);

/*
 * Waits until the worker has ended. The exit code for the process: 0 it left as asked; 1 superseded, or something could
 * not be brought to an end (an executor that does not stop, outcomes that no coordinator took); 2 or 4 the registration
 * was refused. When executors have not stopped (worker_stats: busy > 0), worker_close would wait for them: exit instead.
 */
int worker_wait(struct worker *worker);

/* Ends the worker if it has not ended, and frees it. NULL ok. (libcore has a worker_free.) */
void worker_close(struct worker *worker);

struct worker_stats {
    uint32_t slots;
    uint32_t busy;            /* attempts that wait for a slot or run */
    uint32_t unreported;      /* finished, and no coordinator has answered the report */
    uint32_t threads;         /* of the slots */
    uint64_t assigned_total;  /* attempts taken */
    uint64_t succeeded_total; /* by how they ended here */
    uint64_t failed_total;
    uint64_t released_total;     /* given back unfinished: by a drain, a lease that was not renewed, the worker's end */
    uint64_t stopped_total;      /* by a stop order, or because no coordinator answered for too long */
    uint64_t refused_total;      /* reports that were not accepted */
    uint64_t polls_total;        /* GetTask answers */
    uint64_t reports_total;      /* ReportTaskStatus answers */
    uint64_t beats_total;        /* accepted heartbeats */
    uint64_t missed_beats_total; /* heartbeats without an answer, or not accepted */
    uint64_t shuffle_sent_bytes; /* to other workers, and of results to coordinators */
    uint64_t shuffle_memory_bytes; /* of the store, as it is now */
    uint64_t shuffle_file_bytes;
    bool is_registered; /* and a heartbeat was accepted, or it registered, within the last lease */
    bool is_accepted;   /* the last heartbeat was accepted */
    bool is_draining;   /* by worker_drain or by the coordinator */
    char leader[256];   /* where it looks for the leader now; it is there if `is_accepted` */
};
void worker_stats(struct worker *worker, struct worker_stats *out);

/*
 * Replaces the certificates of a worker that listens with TLS, for connections made from now on. ERR_INVALID if they cannot
 * be used: the old ones stay.
 */
MUST_USE enum err worker_reload_tls(struct worker *worker, const char *cert_pem, const char *key_pem,
                                    const char *client_ca_pem, struct error *e);

/* Where others find it, with the real port; "" if nowhere. Lives as long as the worker. */
const char *worker_address(const struct worker *worker);

#endif
