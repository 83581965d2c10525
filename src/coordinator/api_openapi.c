/*
 * /openapi.json: the table of routes, as OpenAPI 3.1 describes an API.
 *
 * Answers are described in a notation of their own, one line each: members with their types, where s is a text, i a whole
 * number, n any number, b true or false, x any JSON, o an object, a capital word another shape of this list, [..] a list
 * of it, a question mark that it may be null and a star that it may be missing.
 */
#include <string.h>

#include "coordinator/api_internal.h"

struct shape {
    const char *name;
    const char *members;
};

static const struct shape shapes[] = {
    {"Submitted", "job_id:s state:s existed:b"},
    {"JobState", "job_id:s state:s"},
    {"Stage", "stage:i name:s? parents:[i] tasks:i queued:i running:i succeeded:i failed:i canceled:i skipped:i rows:i "
              "bytes:i fraction:n"},
    {"Job", "job_id:s state:s kind:s name:s? submitted_at_ms:i? started_at_ms:i? finished_at_ms:i? message:s? "
            "stages:[Stage]"},
    {"JobOfList", "job_id:s state:s kind:s name:s? submitted_at_ms:i? started_at_ms:i? finished_at_ms:i? message:s?"},
    {"Jobs", "jobs:[JobOfList] next:s?"},
    {"Task", "job_id:s name:s? stage:i task:i attempt:i? state:s worker_id:s? message:s? started_at_ms:i? "
             "finished_at_ms:i? failures:i rows:i bytes:i result:x"},
    {"Tasks", "tasks:[Task] next:s?"},
    {"Reason", "stage:i? task:i? attempt:i? reason:s tasks:i"},
    {"Why", "job_id:s reasons:[Reason]"},
    {"Node", "worker_id:s address:s? status:s blacklisted:b draining:b slots:i running_tasks:i failures:i "
             "last_seen_ms:i? executor_types:[s] capabilities:o custom_operator_capabilities:[s] version:s?"},
    {"Nodes", "nodes:[Node]"},
    {"Leader", "node_id:s? address:s? epoch:i role:s? staleness_ms:i"},
    {"Table", "name:s source:s format:s?"},
    {"Tables", "tables:[Table]"},
    {"Overview", "jobs_queued:i jobs_running:i jobs_succeeded:i jobs_failed:i jobs_canceled:i tasks_queued:i "
                 "tasks_running:i stuck_tasks:i leases:i attempts_completed:i attempts_failed:i attempts_lost:i "
                 "nodes_healthy:i nodes_stale:i nodes_dead:i slots:i slots_busy:i"},
    {"Health", "status:s leader:s?"},
    {"Nothing", ""},
    {"Description", "openapi:s info:o paths:o components:o"},
    {"ErrorText", "code:s message:s detail:s? hint:s? leader:s*"},
    {"Error", "error:ErrorText leader:s*"},
};

/* ---- shapes ---- */

static void write_type(struct buf *out, const char *type, size_t n)
{
    static const char *const names[][2] = {
        {"s", "string"}, {"i", "integer"}, {"n", "number"}, {"b", "boolean"}, {"o", "object"}};
    bool may_be_null = n > 1 && type[n - 1] == '?';
    n -= may_be_null;
    if (type[0] == '[') {
        buf_text(out, "{\"type\":\"array\",\"items\":");
        write_type(out, type + 1, n - 2);
        buf_char(out, '}');
        return;
    }
    if (type[0] == 'x') {
        buf_text(out, "{}");
        return;
    }
    for (size_t i = 0; n == 1 && i < ARRAY_LEN(names); i++) {
        if (type[0] == names[i][0][0]) {
            buf_format(out, may_be_null ? "{\"type\":[\"%s\",\"null\"]}" : "{\"type\":\"%s\"}", names[i][1]);
            return;
        }
    }
    buf_format(out, "{\"$ref\":\"#/components/schemas/%.*s\"}", (int)n, type);
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
    buf_char(out, '}');
    buf_deinit(&names);
}

/* ---- routes ---- */

static const char *type_of(enum api_type type)
{
    switch (type) {
    case API_TEXT:
    case API_ELSEWHERE:
        return "{\"type\":\"string\"}";
    case API_UINT32:
    case API_UINT64:
        return "{\"type\":\"integer\",\"minimum\":0}";
    case API_BOOL:
        return "{\"type\":\"boolean\"}";
    case API_JSON:
    case API_BYTES:
        break;
    }
    return "{}";
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
        buf_format(out, "%s\"%s\":%.*s%s\"description\":", is_first ? "" : ",", field->name, (int)strlen(type) - 1,
                   type, type[1] == '}' ? "" : ",");
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
    for (uint32_t i = 0; i < route->n_fields; i++) {
        has_body |= route->fields[i].place == API_BODY;
    }
    if (!has_body) {
        return;
    }
    buf_text(out, ",\"requestBody\":{\"content\":{\"application/json\":{\"schema\":{\"type\":\"object\"");
    if (!route->takes_whole_body) {
        buf_text(out, ",\"additionalProperties\":false,\"properties\":{");
        write_members(out, route, &needed);
        buf_char(out, '}');
        if (needed.n > 0) {
            buf_format(out, ",\"required\":[%s]", needed.data);
        }
    }
    buf_text(out, "}}}}");
    buf_deinit(&needed);
}

static void write_answers(struct buf *out, const struct api_route *route)
{
    buf_text(out, ",\"responses\":{\"200\":{\"description\":\"Done.\",\"content\":{");
    if (route->schema != NULL) {
        buf_format(out, "\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}", route->schema);
    } else if (route->rule == &method_FetchQueryResults) {
        buf_text(out, "\"application/json\":{\"schema\":{\"type\":\"object\"}},\"text/csv\":{\"schema\":{\"type\":"
                      "\"string\"}},\"application/vnd.apache.parquet\":{},\"application/vnd.apache.arrow.stream\":{}");
    } else if (route->rule == &method_WatchEvents) {
        buf_text(out, "\"text/event-stream\":{\"schema\":{\"type\":\"string\"}}");
    } else {
        buf_text(out, "\"text/plain\":{\"schema\":{\"type\":\"string\"}}");
    }
    buf_text(out, "}},\"default\":{\"description\":\"It went wrong.\",\"content\":{\"application/json\":{\"schema\":{"
                  "\"$ref\":\"#/components/schemas/Error\"}}}}}");
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
