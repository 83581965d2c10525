/*
 * peer.h - a client and a worker of the services, over real gRPC on loopback, for tests.
 *
 * Calls CHECK that they succeed unless their name says otherwise. Messages live in the peer's arena.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_SERVICE_PEER_H
#define CAPSTAN_TESTS_INTEGRATION_SERVICE_PEER_H

#include "base/buf.h"
#include "coordinator/service.h"
#include "exchange/ipc.h"
#include "rpc/rpc.h"
#include "wire/message.h"

struct peer {
    struct service *service;
    struct rpc_channel *channel;
    struct arena arena;
    char folder[128];
    char url[256];
    struct error e; /* of the last call that failed */
    struct rpc_trailer trailer;
};

/* A coordinator on a SQLite file in a folder of its own, which leads when this returns. */
void peer_init(struct peer *peer);
void peer_init_with(struct peer *peer, struct settings settings);
/* The same on another store. */
void peer_init_on(struct peer *peer, const char *store_url);
void peer_init_on_with(struct peer *peer, const char *store_url, struct settings settings);
/* Stops the coordinator and starts another on the same file. */
void peer_restart(struct peer *peer);
void peer_deinit(struct peer *peer);

void *peer_message(struct peer *peer, enum pb_kind kind);

/* One call; `out` may be NULL. Does not CHECK. */
enum err peer_call(struct peer *peer, const char *method, const void *request, enum pb_kind kind, void *out);

/* Submits the tree and returns the job's id. */
const char *peer_submit(struct peer *peer, const char *tree);
enum err peer_submit_err(struct peer *peer, const char *job_id, const char *tree);

void peer_register(struct peer *peer, const char *worker_id);
/* A process `incarnation` of that worker, which serves its rows there. The others poll and report as "i1". */
void peer_register_at(struct peer *peer, const char *worker_id, const char *incarnation, const char *address);
struct pb_get_task_response *peer_poll(struct peer *peer, const char *worker_id, uint32_t capacity, uint32_t wait_ms);
/* Polls until there is a task; it must be of this name. */
struct pb_task_assignment *peer_take(struct peer *peer, const char *worker_id, const char *name);
const char *peer_inputs(struct peer *peer, const struct pb_task_assignment *task);
/* Reports it; returns the refusal, "" if it was accepted. */
const char *peer_report(struct peer *peer, const char *worker_id, const struct pb_task_assignment *task,
                        Capstan__V1__TaskState state, const char *result_or_message);

/* Reports a failure that leaves something behind. */
const char *peer_report_failure(struct peer *peer, const char *worker_id, const struct pb_task_assignment *task,
                                const char *message, const char *result);

/* Reports success with the rows of a final task: inline, or, without `stream`, kept by the worker. */
const char *peer_report_rows(struct peer *peer, const char *worker_id, const struct pb_task_assignment *task,
                             const struct buf *stream, const struct ipc_tally *tally);

struct pb_query_status *peer_status(struct peer *peer, const char *job_id, uint32_t wait_ms);
/* All payloads of the results, from the offset on, joined. */
const char *peer_results(struct peer *peer, const char *job_id, uint64_t offset);

#endif
