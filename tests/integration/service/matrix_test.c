/*
 * Who may call what: every RPC and every route of the HTTP API, with every kind of token and with none, over real sockets.
 *
 * The one table below says what is expected. A method of the .proto, a path of /openapi.json, a kind of file of the dashboard
 * or a route of a worker's own HTTP port that has no row fails the test, and so does a row without what it is about: nothing
 * can be added, or taken away, without a thought about who may.
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "coordinator/service_internal.h"
#include "coordinator/web.h"
#include "http/talk.h"
#include "service/guarded.h"
#include "test.h"

#define NAME_BYTES 128
#define NAMES_MAX 200

/* Who is let in: n nobody in particular (no token), r read, s submit, w worker, a admin. */
static const struct meant {
    const char *name;
    const char *allowed;
} matrix[] = {
    {"ControlPlane/SubmitQuery", "sa"},
    {"ControlPlane/SubmitTasks", "sa"},
    {"ControlPlane/GetQueryStatus", "rswa"},
    {"ControlPlane/CancelQuery", "sa"},
    {"ControlPlane/RetryJob", "sa"},
    {"ControlPlane/FetchQueryResults", "rswa"},
    {"ControlPlane/ListJobs", "rswa"},
    {"ControlPlane/ListTasks", "rswa"},
    {"ControlPlane/WhyPending", "rswa"},
    {"ControlPlane/WatchEvents", "rswa"},
    {"ControlPlane/GetTask", "wa"},
    {"ControlPlane/ReportTaskStatus", "wa"},
    {"ControlPlane/RegisterQueryResults", "wa"},
    {"ShuffleService/RegisterMapOutput", "wa"},
    {"ShuffleService/FetchShufflePartition", ""}, /* of workers, with their own token: tests/e2e/security.test.js */
    {"HeartbeatService/RegisterWorker", "wa"},
    {"HeartbeatService/Heartbeat", "wa"},
    {"HeartbeatService/DeregisterWorker", "wa"},
    {"Cluster/GetLeader", "nrswa"},
    {"Cluster/ListNodes", "rswa"},
    {"Cluster/SetNode", "a"},
    {"Cluster/GetSnapshot", "rswa"},
    {"Cluster/GetOverview", "rswa"},
    {"Cluster/PutTable", "sa"},
    {"Cluster/ListTables", "rswa"},
    {"Cluster/DeleteTable", "sa"},
    {"POST /v1/queries", "sa"},
    {"POST /v1/jobs", "sa"},
    {"GET /v1/jobs", "rswa"},
    {"GET /v1/jobs/{job_id}", "rswa"},
    {"GET /v1/jobs/{job_id}/tasks", "rswa"},
    {"GET /v1/jobs/{job_id}/why", "rswa"},
    {"GET /v1/jobs/{job_id}/results", "rswa"},
    {"POST /v1/jobs/{job_id}/cancel", "sa"},
    {"POST /v1/jobs/{job_id}/retry", "sa"},
    {"GET /v1/nodes", "rswa"},
    {"POST /v1/nodes/{worker_id}/drain", "a"},
    {"POST /v1/nodes/{worker_id}/undrain", "a"},
    {"POST /v1/nodes/{worker_id}/clear", "a"},
    {"GET /v1/leader", "nrswa"},
    {"GET /v1/tables", "rswa"},
    {"POST /v1/tables", "sa"},
    {"DELETE /v1/tables/{name}", "sa"},
    {"GET /v1/events", "rswa"},
    {"GET /v1/overview", "rswa"},
    {"GET /metrics", "rswa"},
    {"GET /healthz", "nrswa"},
    {"GET /readyz", "nrswa"},
    {"GET /leaderz", "nrswa"},
    {"GET /openapi.json", "nrswa"},
    {"file /", "nrswa"}, /* the dashboard holds no data: it is what asks for a token */
    {"file /icon.svg", "nrswa"},
    {"file /assets/*", "nrswa"},
    {"worker GET /healthz", ""}, /* everybody who reaches its port: worker_http.c knows no tokens, and no data */
    {"worker GET /metrics", ""},
};

#define ROWS_OF_WORKERS 3

/* ---- what there is ---- */

struct names {
    char names[NAMES_MAX][NAME_BYTES];
    size_t n;
};

static void add_name(struct names *names, const char *first, char between, const char *second)
{
    CHECK(names->n < NAMES_MAX);
    snprintf(names->names[names->n++], NAME_BYTES, "%s%c%s", first, between, second);
}

/* The services and methods of the contract: lines "service X {" and "rpc Y(...". */
static void read_proto(struct names *names)
{
    char line[1024];
    char service[64] = "";
    char word[64];
    FILE *file = fopen("proto/capstan.proto", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, " service %63[A-Za-z]", word) == 1) {
            snprintf(service, sizeof service, "%s", word);
        } else if (sscanf(line, " rpc %63[A-Za-z]", word) == 1) {
            add_name(names, service, '/', word);
        }
    }
    fclose(file);
    CHECK(names->n > 20); /* it was read at all */
}

static void read_openapi(struct guarded *g, struct names *names)
{
    struct buf answer = {0};
    struct json *root = NULL;
    size_t at_path = 0;
    const char *path = NULL;
    const struct json *methods = NULL;
    size_t before = names->n;
    talk(service_http_address(g->service), "GET /openapi.json", "", NULL, &answer);
    const char *body = talk_body(&answer);
    CHECK_ERR(json_parse(body, strlen(body), &root, NULL), ERR_OK);
    while (json_next(json_get(root, "paths"), &at_path, &path, &methods)) {
        size_t at_method = 0;
        const char *method = NULL;
        const struct json *ignored = NULL;
        while (json_next(methods, &at_method, &method, &ignored)) {
            char upper[16] = "";
            for (size_t i = 0; method[i] != '\0' && i + 1 < sizeof upper; i++) {
                upper[i] = (char)(method[i] >= 'a' && method[i] <= 'z' ? method[i] - 'a' + 'A' : method[i]);
            }
            add_name(names, upper, ' ', path);
        }
    }
    CHECK(names->n > before + 20);
    json_free(root);
    buf_deinit(&answer);
}

/* The kind of a file: those with a digest in their name are one. */
static const char *kind_of(const struct web_file *file)
{
    return file->is_immutable && strncmp(file->path, "/assets/", 8) == 0 ? "/assets/*" : file->path;
}

static void read_dashboard(struct names *names)
{
    CHECK(web_n_files > 2);
    for (uint32_t i = 0; i < web_n_files; i++) {
        add_name(names, "file", ' ', kind_of(&web_files[i]));
    }
}

/* The table of a worker's routes: lines {"METHOD", "/path", ... */
static void read_worker(struct names *names)
{
    char line[1024];
    char method[16];
    char path[64];
    size_t before = names->n;
    FILE *file = fopen("src/main/worker_http.c", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, " {\"%15[A-Z]\", \"%63[^\"]\"", method, path) == 2) {
            char route[NAME_BYTES - 16];
            snprintf(route, sizeof route, "%s %s", method, path);
            add_name(names, "worker", ' ', route);
        }
    }
    fclose(file);
    CHECK(names->n > before);
}

static bool has_row(const char *name)
{
    bool is_there = false;
    for (size_t i = 0; i < ARRAY_LEN(matrix); i++) {
        is_there = is_there || strcmp(matrix[i].name, name) == 0;
    }
    return is_there;
}

TEST(every_method_and_every_route_has_a_row_and_every_row_its_method_or_route)
{
    static struct names names;
    struct guarded g;
    names.n = 0;
    guarded_init(&g, NULL);
    read_proto(&names);
    read_openapi(&g, &names);
    read_dashboard(&names);
    read_worker(&names);
    for (size_t i = 0; i < names.n; i++) {
        CHECK_STR(has_row(names.names[i]) ? "" : names.names[i], "");
    }
    for (size_t i = 0; i < ARRAY_LEN(matrix); i++) {
        bool is_there = false;
        for (size_t k = 0; k < names.n; k++) {
            is_there = is_there || strcmp(matrix[i].name, names.names[k]) == 0;
        }
        CHECK_STR(is_there ? "" : matrix[i].name, "");
    }
    guarded_deinit(&g);
}

/* ---- who is let in ---- */

static const struct {
    const char *name;
    const char *path;
    enum pb_kind kind;
} methods[] = {
#define ROW(service, method, kind, scope) {#service "/" #method, "/capstan.v1." #service "/" #method, kind},
    SERVICE_TABLE(ROW)
#undef ROW
};

/* "in", or the code of the refusal; NULL: it is no method of a coordinator. */
static const char *try_method(struct guarded *g, const char *name, const char *token)
{
    for (size_t m = 0; m < ARRAY_LEN(methods); m++) {
        if (strcmp(methods[m].name, name) == 0) {
            enum err err =
                guarded_call(g, methods[m].path, methods[m].kind, (struct rpc_channel_options){.token = token});
            return err == ERR_UNAUTHENTICATED || err == ERR_DENIED ? err_name(err) : "in";
        }
    }
    return NULL;
}

/* A request that is as good as it can be without knowing the route: with the token, a body, and "x" for what is in braces. */
static const char *try_route(struct guarded *g, const char *name, const char *token)
{
    struct buf line = {0};
    struct buf headers = {0};
    struct buf answer = {0};
    buf_text(&headers, "Content-Type: application/json\r\n");
    if (token != NULL) {
        buf_format(&headers, "Authorization: Bearer %s\r\n", token);
    }
    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '{') {
            buf_char(&line, 'x');
            at = strchr(at, '}');
        } else {
            buf_char(&line, *at);
        }
    }
    buf_text(&line, strcmp(name, "GET /v1/events") == 0 ? "?follow=false" : "");
    talk(service_http_address(g->service), line.data, headers.data, strncmp(name, "POST ", 5) == 0 ? "{}" : NULL,
         &answer);
    int status = talk_status(&answer);
    CHECK(status >= 200);
    buf_deinit(&line);
    buf_deinit(&headers);
    buf_deinit(&answer);
    return status == 401 ? err_name(ERR_UNAUTHENTICATED) : status == 403 ? err_name(ERR_DENIED) : "in";
}

/* "in" if all files of the kind are served. */
static const char *try_files(struct guarded *g, const char *kind, const char *token)
{
    const char *outcome = "in";
    for (uint32_t i = 0; i < web_n_files; i++) {
        char route[NAME_BYTES];
        snprintf(route, sizeof route, "GET %s", web_files[i].path);
        if (strcmp(kind_of(&web_files[i]), kind) == 0 && strcmp(outcome, "in") == 0) {
            outcome = try_route(g, route, token);
        }
    }
    return outcome;
}

static const char *try_row(struct guarded *g, const char *name, const char *token)
{
    if (strncmp(name, "file ", 5) == 0) {
        return try_files(g, name + 5, token);
    }
    return strchr(name, ' ') != NULL ? try_route(g, name, token) : try_method(g, name, token);
}

static void check_row(struct guarded *g, const struct meant *row)
{
    static const char *const who[] = {"nobody", "read", "submit", "worker", "admin", "stranger"};
    for (size_t i = 0; i < ARRAY_LEN(who); i++) {
        char token[32];
        char seen[NAME_BYTES + 64];
        char expected[NAME_BYTES + 64];
        bool is_stranger = strcmp(who[i], "stranger") == 0;
        bool is_nobody = i == 0 || is_stranger;
        snprintf(token, sizeof token, "%s-token", who[i]);
        const char *outcome = try_row(g, row->name, i == 0 ? NULL : token);
        const char *refusal = err_name(is_nobody ? ERR_UNAUTHENTICATED : ERR_DENIED);
        snprintf(seen, sizeof seen, "%s by %s: %s", row->name, who[i], outcome);
        snprintf(expected, sizeof expected, "%s by %s: %s", row->name, who[i],
                 strchr(row->allowed, is_nobody ? 'n' : who[i][0]) != NULL ? "in" : refusal);
        CHECK_STR(seen, expected);
    }
}

TEST(every_method_and_every_route_lets_in_exactly_those_that_are_meant_for_it)
{
    struct guarded g;
    size_t n_tried = 0;
    guarded_init(&g, NULL);
    for (size_t i = 0; i < ARRAY_LEN(matrix); i++) {
        if (matrix[i].allowed[0] != '\0') {
            check_row(&g, &matrix[i]);
            n_tried++;
        }
    }
    CHECK_INT(n_tried, ARRAY_LEN(matrix) - ROWS_OF_WORKERS); /* all but the workers' own */
    guarded_deinit(&g);
}
