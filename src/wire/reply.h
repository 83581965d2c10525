/*
 * reply.h - what the core answers and what it knows, as messages.
 *
 * Every message made here is one that wire_decode lets pass at the other end.
 *
 * Ownership: messages lie in the arena and point into what they were made of; encode them while both are there.
 * Lease tokens leave only with assignments and stop orders. Threads: any.
 */
#ifndef CAPSTAN_WIRE_REPLY_H
#define CAPSTAN_WIRE_REPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "core/core.h"
#include "core/effects.h"
#include "core/rows.h"
#include "wire/message.h"

/* Replies. Each function takes the reply of the kind that its name says; REPLY_ERROR is a status, not a message. */

/* The coordinator adds orphan_ms, drain_timeout_ms and kill_grace_ms, which the core does not know. */
struct pb_register_worker_response *wire_register_reply(const struct reply *reply, struct arena *arena);

/* The coordinator adds the leader's address. */
struct pb_heartbeat_response *wire_heartbeat_reply(const struct reply *reply, struct arena *arena);

/* The coordinator adds plan_fragment_json to each task: they are in the order of the assignments. */
struct pb_get_task_response *wire_tasks_reply(const struct reply *reply, struct arena *arena);

struct pb_report_task_status_response *wire_report_reply(const struct reply *reply, struct arena *arena);

/* REPLY_ACCEPT */
struct pb_register_map_output_response *wire_map_output_reply(const struct reply *reply, struct arena *arena);
struct pb_register_query_results_response *wire_results_reply(const struct reply *reply, struct arena *arena);

/* REPLY_SUBMIT */
struct pb_submit_query_response *wire_submit_query_reply(const struct reply *reply, struct arena *arena);
struct pb_submit_tasks_response *wire_submit_tasks_reply(const struct reply *reply, struct arena *arena);

/* REPLY_JOB */
struct pb_cancel_query_response *wire_cancel_reply(const struct reply *reply, struct arena *arena);
struct pb_retry_job_response *wire_retry_reply(const struct reply *reply, struct arena *arena);

/* Reads, from the core and from stored rows. */

/* Without stages. */
struct pb_query_status *wire_job_status(const struct job_status *job, struct arena *arena);
struct pb_query_status *wire_job_row(const struct row_job *row, struct arena *arena);

/* Without parents. */
struct pb_stage_status *wire_stage(uint32_t stage, const struct stage_status *status, struct arena *arena);

/* `name` may be NULL. Without the result. */
struct pb_task_status *wire_task_row(const struct row_task *row, const char *name, struct arena *arena);

/* An event of a job as a whole has stage, task and attempt 0; one about a node only has no ref. */
struct pb_event *wire_event_row(const struct row_event *row, struct arena *arena);

struct pb_node *wire_node(const struct node_info *node, struct arena *arena);

struct pb_pending_reason *wire_pending_reason(const char *job_id, const struct pending_reason *reason,
                                              struct arena *arena);

/* States, in both directions. False, with `out` untouched, for the value that stands for "not said". */

Capstan__V1__QueryState wire_job_state(enum job_state state);
Capstan__V1__TaskState wire_task_state(enum task_state state);
MUST_USE bool wire_job_state_read(Capstan__V1__QueryState state, enum job_state *out);
MUST_USE bool wire_task_state_read(Capstan__V1__TaskState state, enum task_state *out);

/* The words that filters use ("queued"). The error lists those that there are. */
MUST_USE enum err wire_job_state_word(const char *word, enum job_state *out, struct error *e);
MUST_USE enum err wire_task_state_word(const char *word, enum task_state *out, struct error *e);

#endif
