/*
 * board.h - what running attempts say of themselves in heartbeats: for people who look at a job, and for nobody else.
 *
 * A heartbeat replaces what its worker said before. Nothing here is durable or decides anything: the core does not see it.
 * Whoever reads asks the core whether an attempt is still the one that runs, on that worker.
 *
 * Ownership: part of the service. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_BOARD_H
#define CAPSTAN_COORDINATOR_BOARD_H

#include <stdint.h>

#include "core/core.h"
#include "wire/message.h"

struct board;

/* What a worker has not said again within `ttl_ms` is forgotten. */
struct board *board_new(int64_t ttl_ms);
void board_free(struct board *board); /* NULL ok */

/* `beat` has been checked by the rules of the protocol. */
void board_take(struct board *board, const struct pb_heartbeat_request *beat, int64_t now_mono_ms);

/* Adds what the job's running attempts have said to the stages of its status. */
void board_add(struct board *board, const struct core *core, struct pb_query_status *status);

#endif
