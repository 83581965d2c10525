/*
 * command.h - requests that have been decoded become commands of the core.
 *
 * One function per request that the scheduler answers. Each takes a message that wire_decode has let pass, looks at what
 * lies inside its JSON and at what its numbers mean together, and fills in the core's struct. Errors name the field.
 *
 * Ownership: a command points into the message and into the arena; both must outlive it. Threads: any.
 */
#ifndef CAPSTAN_WIRE_COMMAND_H
#define CAPSTAN_WIRE_COMMAND_H

#include <stddef.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "core/command.h"
#include "core/core.h"
#include "wire/message.h"

/* Bytes that somebody else owns. */
struct wire_bytes {
    const void *data; /* NULL if `n` is zero */
    size_t n;
};

/* Executor types and operators come out sorted and without repetitions, capabilities sorted by key. */
MUST_USE enum err wire_register(const struct pb_register_worker_request *m, struct arena *arena,
                                struct cmd_register *out, struct error *e);

/* Operators as above. What it says of progress is not for the core. */
MUST_USE enum err wire_heartbeat(const struct pb_heartbeat_request *m, struct arena *arena, struct cmd_heartbeat *out,
                                 struct error *e);

MUST_USE enum err wire_deregister(const struct pb_deregister_worker_request *m, struct arena *arena,
                                  struct cmd_deregister *out, struct error *e);

MUST_USE enum err wire_get_task(const struct pb_get_task_request *m, struct arena *arena, struct cmd_get_task *out,
                                struct error *e);

/*
 * `out_results` gets one entry for each report: the result to store, which is JSON, or nothing. The digest is of these
 * bytes as they are, and zero for nothing. Stages that a planning task adds are the caller's to find in its result.
 */
MUST_USE enum err wire_report(const struct pb_report_task_status_request *m, struct arena *arena,
                              struct cmd_report *out, const struct wire_bytes **out_results, struct error *e);

/* The partitions may come in any order, but every number from 0 on must be there once. */
MUST_USE enum err wire_map_output(const struct pb_register_map_output_request *m, struct arena *arena,
                                  struct cmd_map_output *out, struct error *e);

/* If the result came along, it is m->ipc_payload. */
MUST_USE enum err wire_results(const struct pb_register_query_results_request *m, struct arena *arena,
                               struct cmd_results *out, struct error *e);

MUST_USE enum err wire_cancel(const struct pb_cancel_query_request *m, struct arena *arena, struct cmd_cancel *out,
                              struct error *e);

/* Whether the results were lost is not for the client to say: `results_lost` is false. */
MUST_USE enum err wire_retry(const struct pb_retry_job_request *m, struct arena *arena, struct cmd_retry *out,
                             struct error *e);

MUST_USE enum err wire_set_node(const struct pb_set_node_request *m, struct arena *arena, struct cmd_set_node *out,
                                struct error *e);

/*
 * Which nodes to list. A capability is KEY=VALUE; the value is JSON (8, true, "8") or else a plain text (nvidia, >=8).
 */
MUST_USE enum err wire_node_filter(const struct pb_list_nodes_request *m, struct arena *arena, struct node_filter *out,
                                   struct error *e);

/*
 * The name of an attempt, and back. A token is 16 bytes, the more significant first; none is no bytes. ERR_INVALID for
 * a stage or task beyond 32 bits and for a token of another length. Either way the job's id is not copied.
 */
MUST_USE enum err wire_ref(const struct pb_attempt_ref *m, struct attempt_ref *out, struct error *e);
struct pb_attempt_ref *wire_ref_message(const struct attempt_ref *ref, struct arena *arena);

/* Only the token, for messages that have one outside an AttemptRef. */
ProtobufCBinaryData wire_token_message(struct lease_token token, struct arena *arena);

#endif
