/*
 * /openapi.json: the table of routes, as OpenAPI 3.1 describes an API.
 *
 * What is sent and answered is described in a notation of its own, one line each: members with their types, where s is a
 * text, i a whole number, n any number, b true or false, x any JSON, o an object, one|other one of these words, a capital
 * word another shape of this list, [..] a list of it, a question mark behind it that it may be null and a star that it may
 * be missing.
 */
#include <string.h>

#include "coordinator/api_internal.h"

struct shape {
    const char *name;
    const char *members;
    bool is_sent; /* to us: other members are refused */
};

#define JOB_STATE "queued|running|succeeded|failed|canceled"
#define JOB_MEMBERS                                                                                                    \
    "job_id:s state:" JOB_STATE " kind:query|tree name:s? submitted_at_ms:i? started_at_ms:i? finished_at_ms:i? "      \
    "message:s?"

static const struct shape shapes[] = {
    {"Submitted", "job_id:s state:" JOB_STATE " existed:b", false},
    {"JobState", "job_id:s state:" JOB_STATE, false},
    {"Stage",
     "stage:i name:s? parents:[i] tasks:i queued:i running:i succeeded:i failed:i canceled:i skipped:i rows:i "
     "bytes:i fraction:n",
     false},
    {"Job", JOB_MEMBERS " stages:[Stage]", false},
    {"JobOfList", JOB_MEMBERS, false},
    {"Jobs", "jobs:[JobOfList] next:s?", false},
    {"Task",
     "job_id:s name:s? stage:i task:i attempt:i? state:" JOB_STATE "|skipped worker_id:s? message:s? "
     "started_at_ms:i? finished_at_ms:i? failures:i rows:i bytes:i result:x",
     false},
    {"Tasks", "tasks:[Task] next:s?", false},
    {"Reason", "stage:i? task:i? attempt:i? reason:s tasks:i", false},
    {"Why", "job_id:s reasons:[Reason]", false},
    {"Column", "name:s type:s", false},
    {"Rows", "columns:[Column] rows:[[x]]", false},
    {"Event", "seq:i at_ms:i? type:s job_id:s? stage:i? task:i? attempt:i? worker_id:s? details:x resync:b*", false},
    {"Node",
     "worker_id:s address:s? status:healthy|stale|dead blacklisted:b draining:b slots:i running_tasks:i failures:i "
     "last_seen_ms:i? executor_types:[s] capabilities:o custom_operator_capabilities:[s] version:s?",
     false},
    {"Nodes", "nodes:[Node]", false},
    {"Leader", "node_id:s? address:s? epoch:i role:leader|standby|observer staleness_ms:i", false},
    {"Table", "name:s source:s format:parquet|csv|json?", false},
    {"Tables", "tables:[Table]", false},
    {"Overview",
     "jobs_queued:i jobs_running:i jobs_succeeded:i jobs_failed:i jobs_canceled:i tasks_queued:i tasks_running:i "
     "stuck_tasks:i leases:i attempts_completed:i attempts_failed:i attempts_lost:i nodes_healthy:i nodes_stale:i "
     "nodes_dead:i slots:i slots_busy:i",
     false},
    {"Health", "status:s leader:s?", false},
    {"Nothing", "", false},
    {"Description", "openapi:s info:o paths:o components:o", false},
    {"ErrorText", "code:s message:s detail:s? hint:s? leader:s*", false},
    {"Error", "error:ErrorText leader:s*", false},
    {"Tree", "name:s?* priority:x* on_failure:continue|stop?* tasks:[TreeTask]", true},
    {"TreeTask",
     "name:s executor:s inputs:o?* depends_on:[x]?* timeout_ms:i?* exclusive:b?* retry:TreeRetry?* "
     "placement:TreePlacement?* required_custom_ops:[s]?*",
     true},
    {"TreeRetry", "max_attempts:i?* backoff_ms:i?*", true},
    {"TreePlacement",
     "requires_executors:[s]?* requires_capabilities:o?* allowed_nodes:[s]?* forbidden_nodes:[s]?* "
     "max_parallel_per_node:i?*",
     true},
};

/* ---- shapes ---- */

static void write_words(struct buf *out, const char *words, size_t n, bool may_be_null)
{
    buf_text(out, may_be_null ? "{\"type\":[\"string\",\"null\"],\"enum\":[" : "{\"type\":\"string\",\"enum\":[");
    for (size_t at = 0; at < n;) {
        const char *end = memchr(words + at, '|', n - at);
        size_t length = end == NULL ? n - at : (size_t)(end - words) - at;
        buf_format(out, "%s\"%.*s\"", at == 0 ? "" : ",", (int)length, words + at);
        at += length + 1;
    }
    buf_text(out, may_be_null ? ",null]}" : "]}");
}

static void write_type(struct buf *out, const char *type, size_t n)
{
    static const char *const names[][2] = {
        {"s", "string"}, {"i", "integer"}, {"n", "number"}, {"b", "boolean"}, {"o", "object"}};
    bool may_be_null = n > 1 && type[n - 1] == '?';
    n -= may_be_null;
    if (type[0] == '[') {
        buf_format(out, "{\"type\":%s,\"items\":", may_be_null ? "[\"array\",\"null\"]" : "\"array\"");
        write_type(out, type + 1, n - 2);
        buf_char(out, '}');
    } else if (memchr(type, '|', n) != NULL) {
        write_words(out, type, n, may_be_null);
    } else if (n == 1 && type[0] == 'x') {
        buf_text(out, "{}");
    } else if (n == 1) {
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            if (type[0] == names[i][0][0]) {
                buf_format(out, may_be_null ? "{\"type\":[\"%s\",\"null\"]}" : "{\"type\":\"%s\"}", names[i][1]);
            }
        }
    } else {
        buf_text(out, may_be_null ? "{\"anyOf\":[" : "");
        buf_format(out, "{\"$ref\":\"#/components/schemas/%.*s\"}", (int)n, type);
        buf_text(out, may_be_null ? ",{\"type\":\"null\"}]}" : "");
    }
}

/* Calls for each member of the notation: its name and its type. */
static const char *next_member(const char *at, const char **name, size_t *n_name, const char **type, size_t *n_type)
{
    at += strspn(at, " ");
    if (*at == '\0') {
        return NULL;
    }
    *name = at;
    *n_name = strcspn(at, ":");
    *type = at + *n_name + 1;
    *n_type = strcspn(*type, " ");
    return *type + *n_type;
}

static void write_shape(struct buf *out, const struct shape *shape)
{
    struct buf names = {0};
    const char *name = NULL;
    const char *type = NULL;
    size_t n_name = 0;
    size_t n_type = 0;
    buf_format(out, "\"%s\":{\"type\":\"object\",\"properties\":{", shape->name);
    buf_text(&names, "");
    for (const char *at = shape->members; (at = next_member(at, &name, &n_name, &type, &n_type)) != NULL;) {
        bool may_be_missing = type[n_type - 1] == '*';
        buf_format(out, "%s\"%.*s\":", name == shape->members ? "" : ",", (int)n_name, name);
        write_type(out, type, n_type - may_be_missing);
        if (!may_be_missing) {
            buf_format(&names, "%s\"%.*s\"", names.n > 0 ? "," : "", (int)n_name, name);
        }
    }
    buf_text(out, "}");
    if (names.n > 0) {
        buf_format(out, ",\"required\":[%s]", names.data);
    }
    buf_text(out, shape->is_sent ? ",\"additionalProperties\":false}" : "}");
    buf_deinit(&names);
}

/* ---- routes ---- */

static const char *type_of(enum api_type type)
{
    switch (type) {
    case API_TEXT:
        return "{\"type\":\"string\"}";
    case API_FORMAT:
        return "{\"type\":\"string\",\"enum\":[\"json\",\"csv\",\"parquet\",\"arrow\"]}";
    case API_UINT32:
    case API_UINT64:
    case API_RANGE:
        return "{\"type\":\"integer\",\"minimum\":0}";
    case API_BOOL:
        return "{\"type\":\"boolean\"}";
    case API_JSON:
        return "{\"type\":[\"object\",\"array\"]}";
    case API_BYTES:
        break;
    }
    return "{\"type\":\"object\"}";
}

static void write_parameters(struct buf *out, const struct api_route *route)
{
    static const char *const places[] = {[API_PATH] = "path", [API_QUERY] = "query", [API_HEADER] = "header"};
    bool is_first = true;
    buf_text(out, ",\"parameters\":[");
    for (uint32_t i = 0; i < route->n_fields; i++) {
        const struct api_field *field = &route->fields[i];
        if (field->place != API_BODY) {
            buf_format(out, "%s{\"name\":\"%s\",\"in\":\"%s\",\"required\":%s,\"schema\":%s,\"description\":",
                       is_first ? "" : ",", field->name, places[field->place],
                       field->place == API_PATH ? "true" : "false", type_of(field->type));
            json_write_text(out, field->note);
            buf_char(out, '}');
            is_first = false;
        }
    }
    buf_char(out, ']');
}

static void write_members(struct buf *out, const struct api_route *route, struct buf *needed)
{
    bool is_first = true;
    for (uint32_t i = 0; i < route->n_fields; i++) {
        const struct api_field *field = &route->fields[i];
        if (field->place != API_BODY) {
            continue;
        }
        const char *type = type_of(field->type);
        buf_format(out, "%s\"%s\":%.*s,\"description\":", is_first ? "" : ",", field->name, (int)strlen(type) - 1,
                   type);
        json_write_text(out, field->note);
        buf_char(out, '}');
        is_first = false;
        if (field->is_needed) {
            buf_format(needed, "%s\"%s\"", needed->n > 0 ? "," : "", field->name);
        }
    }
}

static void write_body(struct buf *out, const struct api_route *route)
{
    struct buf needed = {0};
    bool has_body = false;
    bool is_needed = route->rule == &method_SubmitQuery; /* one of its members, whichever it is */
    for (uint32_t i = 0; i < route->n_fields; i++) {
        has_body |= route->fields[i].place == API_BODY;
        is_needed |= route->fields[i].place == API_BODY && route->fields[i].is_needed;
    }
    if (!has_body) {
        return;
    }
    buf_format(out, ",\"requestBody\":{\"required\":%s,\"content\":{\"application/json\":{\"schema\":",
               is_needed ? "true" : "false");
    if (route->takes_whole_body) {
        buf_text(out, "{\"$ref\":\"#/components/schemas/Tree\"}");
    } else {
        buf_text(out, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
        write_members(out, route, &needed);
        buf_char(out, '}');
        if (needed.n > 0) {
            buf_format(out, ",\"required\":[%s]", needed.data);
        }
        buf_char(out, '}');
    }
    buf_text(out, "}}}");
    buf_deinit(&needed);
}

#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"
#define BINARY "{\"schema\":{\"type\":\"string\",\"format\":\"binary\"}}"

/* Rows of a query, or an object with the result of each task of a tree. */
#define RESULTS                                                                                                               \
    "\"application/json\":{\"schema\":{\"anyOf\":[" REF(                                                                      \
        "Rows") ",{\"type\":\"object\",\"description\":\"Of a tree: "                                                         \
                "the result of each task, by its name.\",\"additionalProperties\":{}}]}},\"text/csv\":{\"schema\":{\"type\":" \
                "\"string\"}},\"application/vnd.apache.parquet\":" BINARY                                                     \
                ",\"application/vnd.apache.arrow.stream\":" BINARY

/* The data of the events. The last one, of type end, says why there are no more. */
#define EVENTS                                                                                                         \
    "\"text/event-stream\":{\"schema\":{\"type\":\"string\",\"contentMediaType\":\"text/event-stream\","               \
    "\"contentSchema\":{\"type\":\"array\",\"items\":{\"anyOf\":[" REF("Event") "," REF("Error") "]}}}}"

static void write_answers(struct buf *out, const struct api_route *route)
{
    bool is_health = route->schema != NULL && strcmp(route->schema, "Health") == 0;
    buf_text(out, ",\"responses\":{\"200\":{\"description\":\"Done.\",\"content\":{");
    if (route->schema != NULL) {
        buf_text(out, "\"application/json\":{\"schema\":");
        write_type(out, route->schema, strlen(route->schema));
        buf_char(out, '}');
    } else if (route->rule == &method_FetchQueryResults) {
        buf_text(out, RESULTS);
    } else if (route->rule == &method_WatchEvents) {
        buf_text(out, EVENTS);
    } else {
        buf_text(out, "\"text/plain\":{\"schema\":{\"type\":\"string\"}}");
    }
    buf_text(out, "}}");
    if (is_health) {
        buf_text(out, ",\"503\":{\"description\":\"No.\",\"content\":{\"application/json\":{\"schema\":" REF(
                          "Health") "}}}");
    }
    buf_text(out, ",\"default\":{\"description\":\"It went wrong.\",\"content\":{\"application/json\":{\"schema\":" REF(
                      "Error") "}}}}");
}

static void write_operation(struct buf *out, const struct api_route *route)
{
    char method[8] = "";
    for (size_t i = 0; route->method[i] != '\0' && i + 1 < sizeof method; i++) {
        method[i] = (char)(route->method[i] - 'A' + 'a');
    }
    buf_format(out, "\"%s\":{\"operationId\":\"%s\",\"summary\":", method, route->id);
    json_write_text(out, route->summary);
    enum scope scope = route->rule != NULL ? route->rule->scope : route->scope;
    buf_text(out, scope == SCOPE_NONE ? ",\"security\":[]" : ",\"security\":[{\"token\":[]},{}]");
    write_parameters(out, route);
    write_body(out, route);
    write_answers(out, route);
    buf_char(out, '}');
}

/* All methods of one path stand together, under the first route that has it. */
static bool is_first_of_path(uint32_t at)
{
    for (uint32_t i = 0; i < at; i++) {
        if (strcmp(api_routes[i].path, api_routes[at].path) == 0) {
            return false;
        }
    }
    return true;
}

static void write_paths(struct buf *out)
{
    for (uint32_t i = 0; i < api_n_routes; i++) {
        if (!is_first_of_path(i)) {
            continue;
        }
        buf_format(out, "%s\"%s\":{", i == 0 ? "" : ",", api_routes[i].path);
        for (uint32_t j = i; j < api_n_routes; j++) {
            if (strcmp(api_routes[i].path, api_routes[j].path) == 0) {
                buf_text(out, j == i ? "" : ",");
                write_operation(out, &api_routes[j]);
            }
        }
        buf_char(out, '}');
    }
}

void api__openapi(struct api *api, struct http_request *http, struct http_answer *answer)
{
    struct buf *out = &answer->body;
    UNUSED(api);
    UNUSED(http);
    answer->type = "application/json";
    buf_text(out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"Capstan\",\"version\":\"1\",\"summary\":"
                  "\"Task trees and distributed SQL\"},\"paths\":{");
    write_paths(out);
    buf_text(out, "},\"components\":{\"securitySchemes\":{\"token\":{\"type\":\"http\",\"scheme\":\"bearer\"}},"
                  "\"schemas\":{");
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        buf_text(out, i == 0 ? "" : ",");
        write_shape(out, &shapes[i]);
    }
    buf_text(out, "}}}\n");
}
