/* The table of routes: the one place that says what the API takes, what that becomes, and what comes back. */
#include <stddef.h>
#include <string.h>

#include "coordinator/api_internal.h"
#include "wire/json_shape.h"

/* ---- answers ---- */

static void write_submitted_query(struct buf *out, const void *message, const struct api_call *call)
{
    const struct pb_submit_query_response *response = message;
    UNUSED(call);
    wire_json_submitted(out, response->query_id, response->state, response->existed);
}

static void write_submitted_tree(struct buf *out, const void *message, const struct api_call *call)
{
    const struct pb_submit_tasks_response *response = message;
    UNUSED(call);
    wire_json_submitted(out, response->job_id, response->state, response->existed);
}

static void write_jobs(struct buf *out, const void *message, const struct api_call *call)
{
    UNUSED(call);
    wire_json_jobs(out, message);
}

static void write_job(struct buf *out, const void *message, const struct api_call *call)
{
    const struct pb_get_query_status_response *response = message;
    UNUSED(call);
    wire_json_job(out, response->status);
}

static void write_tasks(struct buf *out, const void *message, const struct api_call *call)
{
    UNUSED(call);
    wire_json_tasks(out, message);
}

static void write_why(struct buf *out, const void *message, const struct api_call *call)
{
    wire_json_why(out, call->path_value, message);
}

static void write_canceled(struct buf *out, const void *message, const struct api_call *call)
{
    const struct pb_cancel_query_response *response = message;
    UNUSED(call);
    wire_json_job_state(out, response->query_id, response->state);
}

static void write_retried(struct buf *out, const void *message, const struct api_call *call)
{
    const struct pb_retry_job_response *response = message;
    UNUSED(call);
    wire_json_job_state(out, response->query_id, response->state);
}

static void write_nodes(struct buf *out, const void *message, const struct api_call *call)
{
    UNUSED(call);
    wire_json_nodes(out, message);
}

static void write_node(struct buf *out, const void *message, const struct api_call *call)
{
    const struct pb_set_node_response *response = message;
    UNUSED(call);
    if (response->node != NULL) {
        wire_json_node(out, response->node);
    } else {
        buf_text(out, "null"); /* it has gone in this very moment */
    }
}

static void write_leader(struct buf *out, const void *message, const struct api_call *call)
{
    UNUSED(call);
    wire_json_leader(out, message);
}

static void write_overview(struct buf *out, const void *message, const struct api_call *call)
{
    UNUSED(call);
    wire_json_overview(out, message);
}

static void write_tables(struct buf *out, const void *message, const struct api_call *call)
{
    UNUSED(call);
    wire_json_tables(out, message);
}

static void write_table(struct buf *out, const void *message, const struct api_call *call)
{
    const struct pb_put_table_response *response = message;
    UNUSED(call);
    wire_json_table(out, response->table);
}

static void write_nothing(struct buf *out, const void *message, const struct api_call *call)
{
    UNUSED(message);
    UNUSED(call);
    buf_text(out, "{}");
}

/* ---- what the route itself says ---- */

static void *begin_drain(void *message, struct arena *arena)
{
    struct pb_set_node_request *request = message;
    UNUSED(arena);
    request->set_draining = 1;
    request->draining = 1;
    return message;
}

static void *begin_undrain(void *message, struct arena *arena)
{
    struct pb_set_node_request *request = message;
    UNUSED(arena);
    request->set_draining = 1;
    return message;
}

static void *begin_clear(void *message, struct arena *arena)
{
    struct pb_set_node_request *request = message;
    UNUSED(arena);
    request->clear_blacklist = 1;
    return message;
}

static void *begin_table(void *message, struct arena *arena)
{
    struct pb_put_table_request *request = message;
    request->table = wire_new(PB_TABLE, arena);
    return request->table;
}

static void *begin_events(void *message, struct arena *arena)
{
    struct pb_watch_events_request *request = message;
    UNUSED(arena);
    request->follow = 1;
    return message;
}

/* A browser that connects again keeps its address, so `last` may be there with the event that it saw last. */
static void settle_events(void *target, struct http_request *http)
{
    struct pb_watch_events_request *request = target;
    if (http_request_header(http, "Last-Event-ID") != NULL) {
        request->last = 0;
    }
}

/* ---- what is read ---- */

#define AT(kind, member) offsetof(struct pb_##kind, member)

static const struct api_field query_fields[] = {
    {"sql", API_BODY, API_TEXT, AT(submit_query_request, sql), 0, false, "The statement; either this or a plan."},
    {"plan", API_BODY, API_BYTES, AT(submit_query_request, physical_plan_json), 0, false, "A physical plan."},
    {"params", API_BODY, API_JSON, AT(submit_query_request, params_json), 0, false,
     "Parameters of the statement: an array, or an object for named ones."},
    {"options", API_BODY, API_JSON, AT(submit_query_request, options_json), 0, false,
     "How to distribute it, instead of as configured: partitions, forced, single_task_bytes, broadcast_bytes, "
     "partition_bytes."},
    {"explain", API_BODY, API_BOOL, AT(submit_query_request, explain), 0, false,
     "Only plan it: the result is one row, the explanation and the plan."},
    {"priority", API_BODY, API_UINT32, AT(submit_query_request, priority), AT(submit_query_request, priority_set),
     false, "0 urgent, 1 high, 2 normal, 3 low."},
    {"job_id", API_BODY, API_TEXT, AT(submit_query_request, query_id), 0, false, "The job's id; else one is made."},
    {"idempotency_key", API_BODY, API_TEXT, AT(submit_query_request, idempotency_key), 0, false,
     "The same key and the same content again mean the same job."},
};

static const struct api_field tree_fields[] = {
    {"tree", API_BODY, API_BYTES, AT(submit_tasks_request, tree_json), 0, true, "The task tree."},
    {"job_id", API_QUERY, API_TEXT, AT(submit_tasks_request, job_id), 0, false, "The job's id; else one is made."},
    {"idempotency_key", API_QUERY, API_TEXT, AT(submit_tasks_request, idempotency_key), 0, false,
     "The same key and the same content again mean the same job."},
};

static const struct api_field jobs_fields[] = {
    {"state", API_QUERY, API_TEXT, AT(list_jobs_request, state), 0, false,
     "Only those: queued, running, succeeded, failed, canceled."},
    {"name", API_QUERY, API_TEXT, AT(list_jobs_request, name), 0, false, "Only those of this name."},
    {"limit", API_QUERY, API_UINT32, AT(list_jobs_request, limit), 0, false,
     "At most so many; 100 without, 1,000 at most."},
    {"after", API_QUERY, API_TEXT, AT(list_jobs_request, after), 0, false, "What the page before came with as next."},
};

static const struct api_field job_fields[] = {
    {"job_id", API_PATH, API_TEXT, AT(get_query_status_request, query_id), 0, true, "The job."},
    {"wait_ms", API_QUERY, API_UINT32, AT(get_query_status_request, wait_ms), 0, false,
     "Answer when it has ended, or after so long; 60,000 at most."},
};

static const struct api_field tasks_fields[] = {
    {"job_id", API_PATH, API_TEXT, AT(list_tasks_request, query_id), 0, true, "The job."},
    {"state", API_QUERY, API_TEXT, AT(list_tasks_request, state), 0, false,
     "Only those: queued, running, succeeded, failed, canceled, skipped."},
    {"limit", API_QUERY, API_UINT32, AT(list_tasks_request, limit), 0, false,
     "At most so many; 100 without, 1,000 at most."},
    {"after", API_QUERY, API_TEXT, AT(list_tasks_request, after), 0, false, "What the page before came with as next."},
    {"without_results", API_QUERY, API_BOOL, AT(list_tasks_request, without_results), 0, false,
     "true: result is always null, so that pages are small."},
};

static const struct api_field why_fields[] = {
    {"job_id", API_PATH, API_TEXT, AT(why_pending_request, query_id), 0, true, "The job."},
};

static const struct api_field results_fields[] = {
    {"job_id", API_PATH, API_TEXT, AT(fetch_query_results_request, query_id), 0, true, "The job."},
    {"format", API_QUERY, API_FORMAT, 0, 0, false,
     "json (without), csv, parquet or arrow for the rows of a query; the results of a tree are JSON."},
    {"offset", API_QUERY, API_RANGE, 0, 0, false, "Leave out so many rows; json and csv only."},
    {"limit", API_QUERY, API_RANGE, 0, 0, false, "At most so many rows; json and csv only."},
};

static const struct api_field cancel_fields[] = {
    {"job_id", API_PATH, API_TEXT, AT(cancel_query_request, query_id), 0, true, "The job."},
    {"reason", API_BODY, API_TEXT, AT(cancel_query_request, reason), 0, false, "Why, for those who look at it later."},
};

static const struct api_field retry_fields[] = {
    {"job_id", API_PATH, API_TEXT, AT(retry_job_request, query_id), 0, true, "The job."},
    {"from_task", API_BODY, API_TEXT, AT(retry_job_request, from_task), 0, false,
     "This task and all that depend on it, else all that have not succeeded. Of a query: a stage by its name, such as "
     "s1; what it reads is computed again, too."},
};

static const struct api_field nodes_fields[] = {
    {"executor", API_QUERY, API_TEXT, AT(list_nodes_request, executor), 0, false, "Only those with this executor."},
    {"capability", API_QUERY, API_TEXT, AT(list_nodes_request, capability), 0, false,
     "Only those with this capability: name=value."},
    {"operator", API_QUERY, API_TEXT, AT(list_nodes_request, operator_), 0, false, "Only those with this operator."},
};

static const struct api_field node_fields[] = {
    {"worker_id", API_PATH, API_TEXT, AT(set_node_request, worker_id), 0, true, "The worker."},
};

static const struct api_field table_fields[] = {
    {"name", API_BODY, API_TEXT, AT(table, name), 0, true, "The name in SQL."},
    {"source", API_BODY, API_TEXT, AT(table, source), 0, true, "Path, glob or URL of the files."},
    {"format", API_BODY, API_TEXT, AT(table, format), 0, true, "parquet, csv or json."},
};

static const struct api_field drop_table_fields[] = {
    {"name", API_PATH, API_TEXT, AT(delete_table_request, name), 0, true, "The data set."},
};

static const struct api_field events_fields[] = {
    {"job", API_QUERY, API_TEXT, AT(watch_events_request, query_id), 0, false, "Only events of this job."},
    {"after", API_QUERY, API_UINT64, AT(watch_events_request, after_seq), 0, false, "Only those after this one."},
    {"last", API_QUERY, API_UINT32, AT(watch_events_request, last), 0, false,
     "Begin no earlier than so many events, of all jobs, before the newest."},
    {"follow", API_QUERY, API_BOOL, AT(watch_events_request, follow), 0, false,
     "false: end after the last event that there is."},
    {"Last-Event-ID", API_HEADER, API_UINT64, AT(watch_events_request, after_seq), 0, false,
     "As after, and last does not count; browsers send it when they connect again."},
};

#undef AT

/* ---- the table ---- */

#define FIELDS(list) .fields = (list), .n_fields = ARRAY_LEN(list)

const struct api_route api_routes[] = {
    {"POST", "/v1/queries", "submitQuery", "Submit a query", &method_SubmitQuery, FIELDS(query_fields),
     .write = write_submitted_query, .schema = "Submitted"},
    {"POST", "/v1/jobs", "submitTree", "Submit a task tree", &method_SubmitTasks, FIELDS(tree_fields),
     .takes_whole_body = true, .write = write_submitted_tree, .schema = "Submitted"},
    {"GET", "/v1/jobs", "listJobs", "Jobs, newest first", &method_ListJobs, FIELDS(jobs_fields), .write = write_jobs,
     .schema = "Jobs"},
    {"GET", "/v1/jobs/{job_id}", "getJob", "A job with its stages", &method_GetQueryStatus, FIELDS(job_fields),
     .write = write_job, .schema = "Job"},
    {"GET", "/v1/jobs/{job_id}/tasks", "listTasks", "Tasks of a job", &method_ListTasks, FIELDS(tasks_fields),
     .write = write_tasks, .schema = "Tasks"},
    {"GET", "/v1/jobs/{job_id}/why", "whyPending", "Why tasks of a job do not run", &method_WhyPending,
     FIELDS(why_fields), .write = write_why, .schema = "Why"},
    {"GET", "/v1/jobs/{job_id}/results", "getResults", "Results of a job that has ended", &method_FetchQueryResults,
     FIELDS(results_fields)},
    {"POST", "/v1/jobs/{job_id}/cancel", "cancelJob", "Cancel a job", &method_CancelQuery, FIELDS(cancel_fields),
     .write = write_canceled, .schema = "JobState"},
    {"POST", "/v1/jobs/{job_id}/retry", "retryJob", "Run again what did not succeed", &method_RetryJob,
     FIELDS(retry_fields), .write = write_retried, .schema = "JobState"},
    {"GET", "/v1/nodes", "listNodes", "Workers", &method_ListNodes, FIELDS(nodes_fields), .write = write_nodes,
     .schema = "Nodes"},
    {"POST", "/v1/nodes/{worker_id}/drain", "drainNode", "Give a worker no more tasks", &method_SetNode,
     FIELDS(node_fields), .begin = begin_drain, .write = write_node, .schema = "Node?"},
    {"POST", "/v1/nodes/{worker_id}/undrain", "undrainNode", "Give a worker tasks again", &method_SetNode,
     FIELDS(node_fields), .begin = begin_undrain, .write = write_node, .schema = "Node?"},
    {"POST", "/v1/nodes/{worker_id}/clear", "clearNode", "Take a worker off the blacklist", &method_SetNode,
     FIELDS(node_fields), .begin = begin_clear, .write = write_node, .schema = "Node?"},
    {"GET", "/v1/leader", "getLeader", "Who leads", &method_GetLeader, .write = write_leader, .schema = "Leader"},
    {"GET", "/v1/tables", "listTables", "Named data sets", &method_ListTables, .write = write_tables,
     .schema = "Tables"},
    {"POST", "/v1/tables", "putTable", "Name a data set, or change one", &method_PutTable, FIELDS(table_fields),
     .begin = begin_table, .write = write_table, .schema = "Table"},
    {"DELETE", "/v1/tables/{name}", "deleteTable", "Forget a data set; its files stay", &method_DeleteTable,
     FIELDS(drop_table_fields), .write = write_nothing, .schema = "Nothing"},
    {"GET", "/v1/events", "watchEvents", "What happens, as server-sent events", &method_WatchEvents,
     FIELDS(events_fields), .begin = begin_events, .settle = settle_events},
    {"GET", "/v1/overview", "getOverview", "How much runs, waits and has gone wrong", &method_GetOverview,
     .write = write_overview, .schema = "Overview"},
    {"GET", "/metrics", "getMetrics", "Metrics for Prometheus", .plain = api__metrics, .scope = SCOPE_READ,
     .is_for_probes = true},
    {"GET", "/healthz", "getHealth", "Whether the process works", .plain = api__healthz, .schema = "Health",
     .is_for_probes = true},
    {"GET", "/readyz", "getReadiness", "Whether it can serve, or says who can", .plain = api__readyz,
     .schema = "Health", .is_for_probes = true},
    {"GET", "/leaderz", "getLeadership", "Whether it leads", .plain = api__leaderz, .schema = "Health",
     .is_for_probes = true},
    {"GET", "/openapi.json", "getDescription", "This API, as OpenAPI describes one", .plain = api__openapi,
     .schema = "Description"},
};

const uint32_t api_n_routes = ARRAY_LEN(api_routes);

/* ---- finding one ---- */

/* Whether the path fits; a value in it is a whole segment and goes to `out`, which has room for it. */
static bool path_fits(const char *pattern, const char *path, const char **out, size_t *out_n)
{
    *out = "";
    *out_n = 0;
    while (*pattern != '\0') {
        if (*pattern == '{') {
            *out = path;
            *out_n = strcspn(path, "/");
            path += *out_n;
            pattern = strchr(pattern, '}') + 1;
            if (*out_n == 0) {
                return false;
            }
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

enum err api__find(const char *method, const char *path, const struct api_route **out, struct arena *arena,
                   const char **out_value, struct error *e)
{
    bool is_known = false;
    for (uint32_t i = 0; i < api_n_routes; i++) {
        const char *value;
        size_t n;
        if (!path_fits(api_routes[i].path, path, &value, &n)) {
            continue;
        }
        is_known = true;
        if (strcmp(api_routes[i].method, method) == 0) {
            *out = &api_routes[i];
            *out_value = arena_format(arena, "%.*s", (int)n, value);
            return ERR_OK;
        }
    }
    if (is_known) {
        return error_set(e, ERR_INVALID, "%.40s does not go with %.100s", method, path);
    }
    error_set(e, ERR_NOT_FOUND, "there is no %.100s here", path);
    error_hint(e, "/openapi.json describes what there is");
    return ERR_NOT_FOUND;
}

void api__allow(const char *path, struct http_answer *answer)
{
    for (uint32_t i = 0; i < api_n_routes; i++) {
        const char *value;
        size_t n;
        if (path_fits(api_routes[i].path, path, &value, &n)) {
            http_answer_allow(answer, api_routes[i].method);
        }
    }
}
