/*
 * rules.c - what every field of every message may hold: the one table that foreign bytes are measured by.
 *
 * One array per message, one row per field, in the order of the field numbers. What a peer asks is held to narrow rules;
 * what a coordinator answers to the same where it would be acted upon, and to plain sizes where it is shown to people.
 */
#include "base/limits.h"
#include "wire/message_internal.h"

/* Rows. What follows the named arguments are further members of struct rule. */
#define FIELD(name, kind, most, ...)                                                                                   \
    {                                                                                                                  \
        .field = name, .type = RULE_##kind, .max = (most), __VA_ARGS__                                                 \
    }
#define NEEDED .is_needed = true
#define TRIMMED .is_trimmed = true
#define UP_TO(n) .count_max = (n)
#define HINT(text) .hint = text

#define NUMBER(name, most, ...) FIELD(name, NUMBER, most, __VA_ARGS__)
#define COUNTER(name) FIELD(name, NUMBER, UINT64_MAX)
#define QUANTITY(name) FIELD(name, NUMBER, LIMIT_QUANTITY)
#define BOOL(name) FIELD(name, BOOL, 0)
#define ENUM(name) FIELD(name, ENUM, 0)
#define FRACTION(name) FIELD(name, FRACTION, 1)
#define ID(name, ...) FIELD(name, ID, LIMIT_ID_BYTES, __VA_ARGS__)
#define WORKER_ID(name, ...) FIELD(name, WORKER_ID, LIMIT_WORKER_ID_BYTES, __VA_ARGS__)
#define NAME(name, ...) FIELD(name, NAME, LIMIT_NAME_BYTES, __VA_ARGS__)
#define TABLE_NAME(name, ...) FIELD(name, TABLE_NAME, LIMIT_TABLE_NAME_BYTES, __VA_ARGS__)
#define ADDRESS(name) FIELD(name, ADDRESS, LIMIT_ADDRESS_BYTES)
#define TEXT(name, most, ...) FIELD(name, TEXT, most, __VA_ARGS__)
#define WORD(name) FIELD(name, TEXT, LIMIT_WORD_BYTES)
#define PROSE(name) FIELD(name, TEXT, LIMIT_TEXT_BYTES)
#define BYTES(name, most, ...) FIELD(name, BYTES, most, __VA_ARGS__)
#define TOKEN(name, ...) FIELD(name, TOKEN, 16, __VA_ARGS__)
#define MESSAGE(name, kind, ...) FIELD(name, MESSAGE, LIMIT_WIRE_BYTES, .sub = PB_##kind, __VA_ARGS__)
#define REF(name, needs, ...) MESSAGE(name, ATTEMPT_REF, .sub_needs = REF_##needs, __VA_ARGS__)

#define EXECUTOR_TYPES NAME("executor_types", UP_TO(LIMIT_EXECUTORS_PER_WORKER))
#define OPERATORS NAME("custom_operator_capabilities", UP_TO(LIMIT_OPS_PER_WORKER))

#define DIGEST_BYTES 32

#define KEEP_ON_WORKER HINT("keep larger results on the worker and send only where they are")
#define SPLIT HINT("send it in several requests")

static const struct rule attempt_ref[] = {
    ID("query_id"),       NUMBER("stage_id", UINT32_MAX), NUMBER("task_id", UINT32_MAX), NUMBER("attempt", UINT32_MAX),
    TOKEN("lease_token"),
};

/* Clients. */

static const struct rule submit_query_request[] = {
    ID("query_id"),
    BYTES("physical_plan_json", LIMIT_TREE_BYTES),
    TEXT("sql", LIMIT_SQL_BYTES, HINT("put the data into a file or a table and read it from there")),
    COUNTER("priority"), /* read only with priority_set: see check_submit_query */
    BOOL("priority_set"),
    TEXT("idempotency_key", LIMIT_KEY_BYTES, HINT("send a hash of it instead")),
    TEXT("params_json", LIMIT_PAYLOAD_BYTES),
    BOOL("explain"),
    TEXT("options_json", LIMIT_TEXT_BYTES),
};

static const struct rule submit_query_response[] = {ID("query_id"), ENUM("state"), BOOL("existed")};

static const struct rule submit_tasks_request[] = {
    ID("job_id"),
    BYTES("tree_json", LIMIT_TREE_BYTES, NEEDED, HINT("submit it as several jobs")),
    TEXT("idempotency_key", LIMIT_KEY_BYTES, HINT("send a hash of it instead")),
};

static const struct rule submit_tasks_response[] = {ID("job_id"), ENUM("state"), BOOL("existed")};

static const struct rule get_query_status_request[] = {
    ID("query_id", NEEDED),
    NUMBER("wait_ms", LIMIT_WAIT_MS, TRIMMED),
};

static const struct rule query_status[] = {
    ID("query_id"),
    ENUM("state"),
    COUNTER("submitted_at_ms"),
    COUNTER("started_at_ms"),
    COUNTER("finished_at_ms"),
    PROSE("message"),
    MESSAGE("stages", STAGE_STATUS, UP_TO(LIMIT_PAGE)),
    PROSE("name"),
    WORD("kind"),
};

static const struct rule stage_status[] = {
    NUMBER("stage_id", UINT32_MAX),
    PROSE("name"),
    NUMBER("parents", UINT32_MAX, UP_TO(LIMIT_STAGES_PER_JOB)),
    COUNTER("tasks"),
    COUNTER("queued"),
    COUNTER("running"),
    COUNTER("succeeded"),
    COUNTER("failed"),
    COUNTER("rows"),
    COUNTER("bytes"),
    COUNTER("canceled"),
    COUNTER("skipped"),
    FRACTION("fraction"),
};

static const struct rule get_query_status_response[] = {MESSAGE("status", QUERY_STATUS, NEEDED)};

static const struct rule cancel_query_request[] = {
    ID("query_id", NEEDED),
    TEXT("reason", LIMIT_MESSAGE_BYTES, TRIMMED),
};

static const struct rule cancel_query_response[] = {ID("query_id"), ENUM("state")};
static const struct rule retry_job_request[] = {ID("query_id", NEEDED), NAME("from_task")};
static const struct rule retry_job_response[] = {ID("query_id"), ENUM("state")};
static const struct rule fetch_query_results_request[] = {ID("query_id", NEEDED), COUNTER("offset")};
static const struct rule query_results_chunk[] = {BYTES("payload", LIMIT_TREE_BYTES)};

static const struct rule list_jobs_request[] = {
    WORD("state"),
    NUMBER("limit", LIMIT_PAGE, TRIMMED),
    WORD("after"),
    TEXT("name", LIMIT_NAME_BYTES),
};

static const struct rule list_jobs_response[] = {
    MESSAGE("jobs", QUERY_STATUS, UP_TO(LIMIT_PAGE)),
    WORD("next"),
};

static const struct rule list_tasks_request[] = {
    ID("query_id", NEEDED), WORD("state"), NUMBER("limit", LIMIT_PAGE, TRIMMED), WORD("after"), BOOL("without_results"),
};

static const struct rule task_status[] = {
    REF("ref", JOB, NEEDED),
    PROSE("name"),
    ENUM("state"),
    WORKER_ID("worker_id"),
    PROSE("message"),
    COUNTER("started_at_ms"),
    COUNTER("finished_at_ms"),
    BYTES("result_json", LIMIT_TREE_BYTES),
    COUNTER("failures"),
    COUNTER("rows"),
    COUNTER("bytes"),
};

static const struct rule list_tasks_response[] = {
    MESSAGE("tasks", TASK_STATUS, UP_TO(LIMIT_PAGE)),
    WORD("next"),
};

static const struct rule why_pending_request[] = {ID("query_id", NEEDED)};
static const struct rule pending_reason[] = {REF("ref", JOB, NEEDED), PROSE("reason"), COUNTER("tasks")};
static const struct rule why_pending_response[] = {MESSAGE("reasons", PENDING_REASON, UP_TO(LIMIT_PAGE))};
static const struct rule watch_events_request[] = {
    ID("query_id"),      COUNTER("after_seq"),       BOOL("follow"), BOOL("rows"), COUNTER("feed"),
    COUNTER("position"), NUMBER("last", UINT32_MAX),
};

static const struct rule event[] = {
    COUNTER("seq"),  COUNTER("at_ms"),         WORD("type"),
    REF("ref", JOB), WORKER_ID("worker_id", ), TEXT("details", LIMIT_TREE_BYTES, ),
    BOOL("resync"),  COUNTER("position"),      COUNTER("head"),
    BOOL("more"),
};

/* Workers. */

static const struct rule register_worker_request[] = {
    WORKER_ID("worker_id", NEEDED),
    WORKER_ID("incarnation", NEEDED),
    ADDRESS("address"),
    NUMBER("slots", LIMIT_SLOTS, HINT("start several workers")),
    EXECUTOR_TYPES,
    TEXT("capabilities_json", LIMIT_CAPABILITIES_BYTES),
    OPERATORS,
    NAME("version"),
};

static const struct rule register_worker_response[] = {
    COUNTER("heartbeat_interval_ms"), COUNTER("lease_ms"),      COUNTER("orphan_ms"),
    COUNTER("drain_timeout_ms"),      COUNTER("kill_grace_ms"), COUNTER("result_ttl_ms"),
    COUNTER("shuffle_memory_bytes"),
};

static const struct rule heartbeat_request[] = {
    WORKER_ID("worker_id", NEEDED),
    QUANTITY("at_ms"),
    COUNTER("running_tasks"),
    OPERATORS,
    WORKER_ID("incarnation", NEEDED),
    REF("running", LEASED, UP_TO(LIMIT_SLOTS)),
    FRACTION("load"),
    MESSAGE("progress", ATTEMPT_PROGRESS, UP_TO(LIMIT_SLOTS)),
    ID("held_jobs", UP_TO(LIMIT_HELD_JOBS)),
    BOOL("leaving"),
};

static const struct rule attempt_progress[] = {
    REF("ref", JOB, NEEDED),
    FRACTION("fraction"),
    QUANTITY("rows"),
    QUANTITY("bytes"),
};

static const struct rule heartbeat_response[] = {
    BOOL("accepted"),          REF("stop", JOB, UP_TO(2 * LIMIT_SLOTS)),
    PROSE("reason"),           BOOL("drain"),
    ADDRESS("leader"),         ID("ended_jobs", UP_TO(LIMIT_HELD_JOBS)),
    COUNTER("outputs_needed"), ID("failed_jobs", UP_TO(LIMIT_HELD_JOBS)),
};

static const struct rule deregister_worker_request[] = {
    WORKER_ID("worker_id", NEEDED),
    WORKER_ID("incarnation", NEEDED),
};

static const struct rule get_task_request[] = {
    WORKER_ID("worker_id", NEEDED),
    NUMBER("capacity", LIMIT_CAPACITY, HINT("ask for fewer, and ask again")),
    NUMBER("wait_ms", LIMIT_WAIT_MS, TRIMMED),
    WORKER_ID("incarnation", NEEDED),
    BYTES("known_fragments", DIGEST_BYTES, UP_TO(LIMIT_KNOWN_FRAGMENTS), HINT("name those that were used last")),
};

static const struct rule task_assignment[] = {
    ID("query_id", NEEDED),
    NUMBER("stage_id", UINT32_MAX),
    NUMBER("task_id", UINT32_MAX),
    NUMBER("attempt", UINT32_MAX, NEEDED),
    BYTES("plan_fragment_json", LIMIT_TREE_BYTES),
    TOKEN("lease_token", NEEDED),
    COUNTER("lease_ms"),
    NAME("executor"),
    NAME("required_custom_ops", UP_TO(LIMIT_OPS_PER_TASK)),
    TEXT("idempotency_key", LIMIT_KEY_BYTES),
    COUNTER("timeout_ms"),
    NAME("name"),
    MESSAGE("sources", MAP_OUTPUT_LOCATION, UP_TO(LIMIT_SOURCES)),
    BOOL("exclusive"),
    TEXT("task_key", LIMIT_KEY_BYTES),
    BYTES("fragment", DIGEST_BYTES),
};

static const struct rule map_output_location[] = {
    REF("ref", ATTEMPT, NEEDED),
    ADDRESS("address"),
    WORKER_ID("worker_id"),
    MESSAGE("partitions", MAP_OUTPUT_PARTITION, UP_TO(LIMIT_PARTITIONS)),
};

static const struct rule get_task_response[] = {
    MESSAGE("tasks", TASK_ASSIGNMENT, UP_TO(LIMIT_CAPACITY)),
    REF("stop", JOB, UP_TO(2 * LIMIT_SLOTS)),
    COUNTER("waited_ms"),
};

static const struct rule task_report[] = {
    REF("ref", LEASED, NEEDED),
    ENUM("state"),
    TEXT("message", LIMIT_MESSAGE_BYTES, TRIMMED),
    BOOL("not_retryable"),
    BYTES("result_json", LIMIT_INLINE_RESULT_BYTES, KEEP_ON_WORKER),
    REF("fetch_failed", ATTEMPT, UP_TO(LIMIT_FETCH_FAILED), HINT("name the first ones; the others are noticed later")),
    QUANTITY("rows"),
    QUANTITY("bytes"),
    MESSAGE("map_output", MAP_OUTPUT_PARTITION, UP_TO(LIMIT_PARTITIONS)),
    MESSAGE("query_results", TASK_ROWS),
    BYTES("plan_json", LIMIT_PLAN_BYTES, HINT("read fewer files at a time")),
    MESSAGE("table", TABLE),
};

static const struct rule task_rows[] = {
    BYTES("ipc_payload", LIMIT_INLINE_RESULT_BYTES, KEEP_ON_WORKER),
    QUANTITY("bytes"),
    QUANTITY("rows"),
};

static const struct rule report_task_status_request[] = {
    WORKER_ID("worker_id", NEEDED),
    WORKER_ID("incarnation", NEEDED),
    MESSAGE("reports", TASK_REPORT, UP_TO(LIMIT_REPORTS), SPLIT),
};

static const struct rule report_outcome[] = {BOOL("accepted"), PROSE("reason")};
static const struct rule report_task_status_response[] = {MESSAGE("outcomes", REPORT_OUTCOME, UP_TO(LIMIT_REPORTS))};

static const struct rule register_query_results_request[] = {
    REF("ref", LEASED, NEEDED),
    BYTES("ipc_payload", LIMIT_INLINE_RESULT_BYTES, KEEP_ON_WORKER),
    QUANTITY("bytes"),
    QUANTITY("rows"),
    WORKER_ID("worker_id", NEEDED),
};

static const struct rule register_query_results_response[] = {BOOL("accepted"), PROSE("reason")};

static const struct rule map_output_partition[] = {
    NUMBER("reduce_partition", LIMIT_PARTITIONS - 1),
    QUANTITY("bytes"),
    QUANTITY("rows"),
    QUANTITY("batches"),
    COUNTER("checksum"),
};

static const struct rule register_map_output_request[] = {
    ID("query_id", NEEDED),
    NUMBER("stage_id", UINT32_MAX),
    NUMBER("map_task", UINT32_MAX),
    NUMBER("attempt", UINT32_MAX, NEEDED),
    MESSAGE("partitions", MAP_OUTPUT_PARTITION, UP_TO(LIMIT_PARTITIONS)),
    TOKEN("lease_token", NEEDED),
    WORKER_ID("worker_id", NEEDED),
};

static const struct rule register_map_output_response[] = {BOOL("accepted"), PROSE("reason")};

static const struct rule fetch_shuffle_partition_request[] = {
    ID("query_id", NEEDED),
    NUMBER("stage_id", UINT32_MAX),
    NUMBER("map_task", UINT32_MAX),
    NUMBER("attempt", UINT32_MAX, NEEDED),
    NUMBER("reduce_partition", LIMIT_PARTITIONS - 1),
    COUNTER("offset"),
};

static const struct rule shuffle_partition_chunk[] = {BYTES("payload", LIMIT_TREE_BYTES)};

/* The cluster. */

static const struct rule get_leader_response[] = {
    WORKER_ID("node_id"), ADDRESS("address"), COUNTER("epoch"), WORD("role"), COUNTER("staleness_ms"),
};

static const struct rule get_overview_response[] = {
    COUNTER("jobs_queued"),   COUNTER("jobs_running"),       COUNTER("jobs_succeeded"),  COUNTER("jobs_failed"),
    COUNTER("jobs_canceled"), COUNTER("tasks_queued"),       COUNTER("tasks_running"),   COUNTER("stuck_tasks"),
    COUNTER("leases"),        COUNTER("attempts_completed"), COUNTER("attempts_failed"), COUNTER("attempts_lost"),
    COUNTER("nodes_healthy"), COUNTER("nodes_stale"),        COUNTER("nodes_dead"),      COUNTER("slots"),
    COUNTER("slots_busy"),
};

static const struct rule list_nodes_request[] = {NAME("executor"), WORD("capability"), NAME("operator", )};

static const struct rule node[] = {
    WORKER_ID("worker_id", NEEDED),
    ADDRESS("address"),
    WORD("status"),
    BOOL("blacklisted"),
    BOOL("draining"),
    COUNTER("slots"),
    COUNTER("running_tasks"),
    COUNTER("failures"),
    COUNTER("last_seen_ms"),
    EXECUTOR_TYPES,
    TEXT("capabilities_json", LIMIT_PAYLOAD_BYTES),
    OPERATORS,
    NAME("version"),
};

static const struct rule list_nodes_response[] = {MESSAGE("nodes", NODE, UP_TO(LIMIT_NODES))};

static const struct rule set_node_request[] = {
    WORKER_ID("worker_id", NEEDED),
    BOOL("set_draining"),
    BOOL("draining"),
    BOOL("clear_blacklist"),
};

static const struct rule set_node_response[] = {MESSAGE("node", NODE, NEEDED)};
static const struct rule snapshot_chunk[] = {
    COUNTER("seq"),
    BYTES("rows_json", LIMIT_TREE_BYTES),
    COUNTER("feed"),
    COUNTER("position"),
};

static const struct rule table[] = {
    TABLE_NAME("name", NEEDED),
    TEXT("source", LIMIT_SOURCE_BYTES, NEEDED),
    FIELD("format", FORMAT, LIMIT_WORD_BYTES),
};

static const struct rule put_table_request[] = {MESSAGE("table", TABLE, NEEDED)};
static const struct rule put_table_response[] = {MESSAGE("table", TABLE, NEEDED)};
static const struct rule list_tables_response[] = {MESSAGE("tables", TABLE, UP_TO(LIMIT_TABLES))};
static const struct rule delete_table_request[] = {TABLE_NAME("name", NEEDED)};

static enum err check_submit_query(const void *message, struct error *e)
{
    const struct pb_submit_query_request *m = message;
    bool has_sql = m->sql[0] != '\0';
    bool has_plan = m->physical_plan_json.len > 0;
    if (has_sql == has_plan) {
        return error_set(e, ERR_INVALID, "sql, physical_plan_json: exactly one of them must be given");
    }
    if (m->priority_set && m->priority > 3) {
        enum err code = error_set(e, ERR_INVALID, "priority: must be at most 3, got %u", (unsigned)m->priority);
        error_hint(e, "0 is urgent, 1 high, 2 normal, 3 low");
        return code;
    }
    return ERR_OK;
}

#define REQUEST(array)                                                                                                 \
    {                                                                                                                  \
        .fields = (array), .n_fields = ARRAY_LEN(array), .fields_max = LIMIT_REQUEST_FIELDS                            \
    }
#define RESPONSE(array)                                                                                                \
    {                                                                                                                  \
        .fields = (array), .n_fields = ARRAY_LEN(array), .fields_max = LIMIT_RESPONSE_FIELDS                           \
    }
#define EMPTY                                                                                                          \
    {                                                                                                                  \
        .fields_max = LIMIT_REQUEST_FIELDS                                                                             \
    }

static const struct message_rules messages[PB_KIND_COUNT] = {
    [PB_ATTEMPT_REF] = REQUEST(attempt_ref),
    [PB_SUBMIT_QUERY_REQUEST] = {.fields = submit_query_request,
                                 .n_fields = ARRAY_LEN(submit_query_request),
                                 .fields_max = LIMIT_REQUEST_FIELDS,
                                 .check = check_submit_query},
    [PB_SUBMIT_QUERY_RESPONSE] = RESPONSE(submit_query_response),
    [PB_SUBMIT_TASKS_REQUEST] = REQUEST(submit_tasks_request),
    [PB_SUBMIT_TASKS_RESPONSE] = RESPONSE(submit_tasks_response),
    [PB_GET_QUERY_STATUS_REQUEST] = REQUEST(get_query_status_request),
    [PB_QUERY_STATUS] = RESPONSE(query_status),
    [PB_STAGE_STATUS] = RESPONSE(stage_status),
    [PB_GET_QUERY_STATUS_RESPONSE] = RESPONSE(get_query_status_response),
    [PB_CANCEL_QUERY_REQUEST] = REQUEST(cancel_query_request),
    [PB_CANCEL_QUERY_RESPONSE] = RESPONSE(cancel_query_response),
    [PB_RETRY_JOB_REQUEST] = REQUEST(retry_job_request),
    [PB_RETRY_JOB_RESPONSE] = RESPONSE(retry_job_response),
    [PB_FETCH_QUERY_RESULTS_REQUEST] = REQUEST(fetch_query_results_request),
    [PB_QUERY_RESULTS_CHUNK] = RESPONSE(query_results_chunk),
    [PB_LIST_JOBS_REQUEST] = REQUEST(list_jobs_request),
    [PB_LIST_JOBS_RESPONSE] = RESPONSE(list_jobs_response),
    [PB_LIST_TASKS_REQUEST] = REQUEST(list_tasks_request),
    [PB_TASK_STATUS] = RESPONSE(task_status),
    [PB_LIST_TASKS_RESPONSE] = RESPONSE(list_tasks_response),
    [PB_WHY_PENDING_REQUEST] = REQUEST(why_pending_request),
    [PB_PENDING_REASON] = RESPONSE(pending_reason),
    [PB_WHY_PENDING_RESPONSE] = RESPONSE(why_pending_response),
    [PB_WATCH_EVENTS_REQUEST] = REQUEST(watch_events_request),
    [PB_EVENT] = RESPONSE(event),
    [PB_REGISTER_WORKER_REQUEST] = REQUEST(register_worker_request),
    [PB_REGISTER_WORKER_RESPONSE] = RESPONSE(register_worker_response),
    [PB_HEARTBEAT_REQUEST] = REQUEST(heartbeat_request),
    [PB_ATTEMPT_PROGRESS] = REQUEST(attempt_progress),
    [PB_HEARTBEAT_RESPONSE] = RESPONSE(heartbeat_response),
    [PB_DEREGISTER_WORKER_REQUEST] = REQUEST(deregister_worker_request),
    [PB_DEREGISTER_WORKER_RESPONSE] = EMPTY,
    [PB_GET_TASK_REQUEST] = REQUEST(get_task_request),
    [PB_TASK_ASSIGNMENT] = RESPONSE(task_assignment),
    [PB_MAP_OUTPUT_LOCATION] = RESPONSE(map_output_location),
    [PB_GET_TASK_RESPONSE] = RESPONSE(get_task_response),
    [PB_TASK_REPORT] = REQUEST(task_report),
    [PB_TASK_ROWS] = REQUEST(task_rows),
    [PB_REPORT_TASK_STATUS_REQUEST] = REQUEST(report_task_status_request),
    [PB_REPORT_OUTCOME] = RESPONSE(report_outcome),
    [PB_REPORT_TASK_STATUS_RESPONSE] = RESPONSE(report_task_status_response),
    [PB_REGISTER_QUERY_RESULTS_REQUEST] = REQUEST(register_query_results_request),
    [PB_REGISTER_QUERY_RESULTS_RESPONSE] = RESPONSE(register_query_results_response),
    [PB_MAP_OUTPUT_PARTITION] = REQUEST(map_output_partition),
    [PB_REGISTER_MAP_OUTPUT_REQUEST] = REQUEST(register_map_output_request),
    [PB_REGISTER_MAP_OUTPUT_RESPONSE] = RESPONSE(register_map_output_response),
    [PB_FETCH_SHUFFLE_PARTITION_REQUEST] = REQUEST(fetch_shuffle_partition_request),
    [PB_SHUFFLE_PARTITION_CHUNK] = RESPONSE(shuffle_partition_chunk),
    [PB_GET_LEADER_REQUEST] = EMPTY,
    [PB_GET_LEADER_RESPONSE] = RESPONSE(get_leader_response),
    [PB_GET_OVERVIEW_REQUEST] = EMPTY,
    [PB_GET_OVERVIEW_RESPONSE] = RESPONSE(get_overview_response),
    [PB_LIST_NODES_REQUEST] = REQUEST(list_nodes_request),
    [PB_NODE] = RESPONSE(node),
    [PB_LIST_NODES_RESPONSE] = RESPONSE(list_nodes_response),
    [PB_SET_NODE_REQUEST] = REQUEST(set_node_request),
    [PB_SET_NODE_RESPONSE] = RESPONSE(set_node_response),
    [PB_GET_SNAPSHOT_REQUEST] = EMPTY,
    [PB_SNAPSHOT_CHUNK] = RESPONSE(snapshot_chunk),
    [PB_TABLE] = REQUEST(table),
    [PB_PUT_TABLE_REQUEST] = REQUEST(put_table_request),
    [PB_PUT_TABLE_RESPONSE] = RESPONSE(put_table_response),
    [PB_LIST_TABLES_REQUEST] = EMPTY,
    [PB_LIST_TABLES_RESPONSE] = RESPONSE(list_tables_response),
    [PB_DELETE_TABLE_REQUEST] = REQUEST(delete_table_request),
    [PB_DELETE_TABLE_RESPONSE] = EMPTY,
};

const struct message_rules *wire__rules(enum pb_kind kind)
{
    ASSERT((unsigned)kind < PB_KIND_COUNT);
    return &messages[kind];
}
