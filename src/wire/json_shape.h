/*
 * json_shape.h - answers as JSON: what `--json` prints and what the HTTP API returns.
 *
 * Each function appends one value, without blanks and line ends. Rules that hold for all of them:
 *   - names are those of proto/capstan.proto, but for query_id, which is called job_id; and an attempt is written as
 *     "stage", "task" and "attempt" beside the rest; lease tokens are never shown
 *   - states are in lower case
 *   - times are whole milliseconds since 1970 under names that end in _ms, and null if there is none yet
 *   - an absent text is null, an empty list is []
 *   - numbers have all their digits, also beyond 2^53
 *   - JSON that travels as bytes (results, capabilities, details) is put in as JSON; a text that is none, as a text
 *
 * Ownership: everything is the caller's. Threads: any.
 */
#ifndef CAPSTAN_WIRE_JSON_SHAPE_H
#define CAPSTAN_WIRE_JSON_SHAPE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/message.h"

/* {"job_id","state","kind","name","submitted_at_ms","started_at_ms","finished_at_ms","message","stages":[...]} */
void wire_json_job(struct buf *out, const struct pb_query_status *job);

/* {"jobs":[...],"next":...}: jobs as above, but without "stages"; "next" is null at the end. */
void wire_json_jobs(struct buf *out, const struct pb_list_jobs_response *jobs);

/* {"job_id","name","stage","task","attempt","state",...,"result"} */
void wire_json_task(struct buf *out, const struct pb_task_status *task);

/* {"tasks":[...],"next":...} */
void wire_json_tasks(struct buf *out, const struct pb_list_tasks_response *tasks);

/* {"job_id","state","existed"} */
void wire_json_submitted(struct buf *out, const char *job_id, Capstan__V1__QueryState state, bool existed);

/* {"job_id","state"}: the answer to a cancel or a retry. */
void wire_json_job_state(struct buf *out, const char *job_id, Capstan__V1__QueryState state);

/* {"job_id","reasons":[{"stage","task","attempt","reason","tasks"}...]} */
void wire_json_why(struct buf *out, const char *job_id, const struct pb_why_pending_response *why);

/*
 * {"seq","at_ms","type","job_id","stage","task","attempt","worker_id","details"}; "resync":true only if it is. An event of
 * the job as a whole has null for stage, task and attempt, one of a node for the job, too.
 */
void wire_json_event(struct buf *out, const struct pb_event *event);

/* {"worker_id","address","status","blacklisted",...} */
void wire_json_node(struct buf *out, const struct pb_node *node);

/* {"nodes":[...]} */
void wire_json_nodes(struct buf *out, const struct pb_list_nodes_response *nodes);

/* {"node_id","address","epoch","role","staleness_ms"} */
void wire_json_leader(struct buf *out, const struct pb_get_leader_response *leader);

/* {"jobs_queued","jobs_running",...}: the numbers of GetOverviewResponse, by their names. */
void wire_json_overview(struct buf *out, const struct pb_get_overview_response *overview);

/* {"name","source","format"} */
void wire_json_table(struct buf *out, const struct pb_table *table);

/* {"tables":[...]} */
void wire_json_tables(struct buf *out, const struct pb_list_tables_response *tables);

/* {"error":{"code","message","detail","hint"}}: the first line of the text is the message, those behind it the detail. */
void wire_json_error(struct buf *out, const struct error *e);

/* "queued", "running", ...; "unknown" for a value that this version does not know. */
const char *wire_query_state_name(Capstan__V1__QueryState state);
const char *wire_task_state_name(Capstan__V1__TaskState state);

#endif
