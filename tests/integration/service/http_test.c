/* The HTTP API: every route, what it refuses and how, streams. Requests are written by hand, over real sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/sha256.h"
#include "coordinator/auth.h"
#include "http/talk.h"
#include "integration/postgres/server.h"
#include "service/peer.h"
#include "store/store.h"
#include "test.h"
#include "unit/exchange/generate.h"
#include "unit/exchange/stream.h"

#define TREE "{\"name\":\"n\",\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}]}"
#define JSON_BODY "Content-Type: application/json\r\n"
#define HAS_SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED

struct client {
    struct peer peer;
    struct buf answer;
    const char *body; /* of the last answer, and that as JSON */
    struct json *json;
};

static void client_init(struct client *c)
{
    *c = (struct client){0};
    peer_init(&c->peer);
    peer_register(&c->peer, "w1");
}

static void client_deinit(struct client *c)
{
    peer_deinit(&c->peer);
    buf_deinit(&c->answer);
    json_free(c->json);
}

static const char *address(const struct client *c)
{
    return service_http_address(c->peer.service);
}

/* Asks, and returns the status. JSON is read. */
static int ask(struct client *c, const char *line, const char *headers, const char *body)
{
    json_free(c->json);
    c->json = NULL;
    talk(address(c), line, headers, body, &c->answer);
    c->body = talk_body(&c->answer);
    if (strstr(c->answer.data, "Content-Type: application/json\r\n") != NULL) {
        CHECK_ERR(json_parse(c->body, strlen(c->body), &c->json, NULL), ERR_OK);
    }
    return talk_status(&c->answer);
}

static int get(struct client *c, const char *path)
{
    char line[512];
    snprintf(line, sizeof line, "GET %s", path);
    return ask(c, line, "", NULL);
}

static int post(struct client *c, const char *path, const char *body)
{
    char line[512];
    snprintf(line, sizeof line, "POST %s", path);
    return ask(c, line, body == NULL ? "" : JSON_BODY, body);
}

static const char *text_at(const struct client *c, const char *key)
{
    const char *text = json_text(json_get(c->json, key), NULL);
    return text == NULL ? "" : text;
}

static const char *error_at(const struct client *c, const char *key)
{
    const char *text = json_text(json_get(json_get(c->json, "error"), key), NULL);
    return text == NULL ? "" : text;
}

static void finish_task(struct client *c, const char *name, const char *result)
{
    CHECK_STR(peer_report(&c->peer, "w1", peer_take(&c->peer, "w1", name), HAS_SUCCEEDED, result), "");
}

/* ---- jobs ---- */

TEST(http_a_tree_is_submitted_watched_and_read)
{
    struct client c;
    client_init(&c);
    CHECK_INT(post(&c, "/v1/jobs?job_id=j1&idempotency_key=k1", TREE), 200);
    CHECK_STR(text_at(&c, "job_id"), "j1");
    CHECK_STR(text_at(&c, "state"), "queued");
    CHECK(!json_bool(json_get(c.json, "existed")));
    CHECK_INT(post(&c, "/v1/jobs?idempotency_key=k1", TREE), 200);
    CHECK_STR(text_at(&c, "job_id"), "j1");
    CHECK(json_bool(json_get(c.json, "existed")));

    CHECK_INT(get(&c, "/v1/jobs/j1/results"), 409); /* it has none yet */
    CHECK_STR(error_at(&c, "code"), "failed_precondition");
    CHECK_INT(get(&c, "/v1/jobs/j1/why"), 200);
    CHECK_STR(text_at(&c, "job_id"), "j1");
    finish_task(&c, "a", "{\"n\":1}");

    CHECK_INT(get(&c, "/v1/jobs/j1?wait_ms=10000"), 200);
    CHECK_STR(text_at(&c, "state"), "succeeded");
    CHECK_STR(text_at(&c, "kind"), "tree");
    CHECK_STR(text_at(&c, "name"), "n");
    CHECK_UINT(json_count(json_get(c.json, "stages")), 1);
    CHECK_INT(get(&c, "/v1/jobs/j1/tasks?state=succeeded&limit=5"), 200);
    const struct json *task = json_at(json_get(c.json, "tasks"), 0);
    CHECK_STR(json_text(json_get(task, "worker_id"), NULL), "w1");
    CHECK(json_number(json_get(json_get(task, "result"), "n")) == 1);
    CHECK_INT(get(&c, "/v1/jobs/j1/results?format=json"), 200);
    CHECK_STR(c.body, "{\"a\":{\"n\":1}}");
    CHECK_INT(get(&c, "/v1/jobs?state=succeeded&limit=10&name=n"), 200);
    CHECK_UINT(json_count(json_get(c.json, "jobs")), 1);
    CHECK_INT(post(&c, "/v1/jobs/j1/retry", "{\"from_task\":\"a\"}"), 200);
    CHECK_STR(text_at(&c, "state"), "queued");
    CHECK_INT(post(&c, "/v1/jobs/j1/cancel", "{\"reason\":\"enough\"}"), 200);
    CHECK_STR(text_at(&c, "state"), "canceled");
    CHECK_INT(get(&c, "/v1/jobs/j1"), 200);
    CHECK_STR(text_at(&c, "message"), "enough");
    client_deinit(&c);
}

/* A query with these rows: numbers from 0 on, under the name of generate.h. */
static const char *run_query(struct client *c, int64_t n_rows)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    struct buf stream = {0};
    CHECK_INT(post(c, "/v1/queries",
                   "{\"sql\":\"select 1\",\"params\":[1,\"x\"],\"options\":{\"partitions\":2},"
                   "\"priority\":0}"),
              200);
    const char *job_id = arena_strdup(&c->peer.arena, text_at(c, "job_id"));
    struct pb_task_assignment *task = peer_take(&c->peer, "w1", "plan");
    CHECK(strstr(peer_inputs(&c->peer, task), "\"params\":[1,\"x\"]") != NULL);
    generate_numbers(0, n_rows, &schema, &array);
    struct ipc_tally tally = stream_write(&schema, &array, 1, false, &stream);
    CHECK_STR(peer_report_rows(&c->peer, "w1", task, &stream, &tally), "");
    peer_status(&c->peer, job_id, 10000);
    array.release(&array);
    schema.release(&schema);
    buf_deinit(&stream);
    return job_id;
}

TEST(http_the_rows_of_a_query_come_in_four_formats)
{
    struct client c;
    char path[256];
    client_init(&c);
    const char *job_id = run_query(&c, 3);
    snprintf(path, sizeof path, "/v1/jobs/%s/results", job_id);
    CHECK_INT(get(&c, path), 200);
    const struct json *column = json_at(json_get(c.json, "columns"), 0);
    CHECK_STR(json_text(json_get(column, "type"), NULL), "BIGINT");
    CHECK(strstr(c.body, "\"rows\":[[0],[1],[2]]}") != NULL);

    snprintf(path, sizeof path, "/v1/jobs/%s/results?format=csv", job_id);
    CHECK_INT(get(&c, path), 200);
    CHECK(strstr(c.answer.data, "text/csv") != NULL);
    CHECK(strstr(c.body, "\n0\n1\n2\n") != NULL);

    snprintf(path, sizeof path, "/v1/jobs/%s/results?format=arrow", job_id);
    CHECK_INT(get(&c, path), 200);
    CHECK(strstr(c.answer.data, "application/vnd.apache.arrow.stream") != NULL);
    const char *body = c.body;
    struct buf bytes = {0};
    struct stream_read read = {0};
    buf_append(&bytes, body, c.answer.n - (size_t)(body - c.answer.data));
    CHECK_ERR(stream_read(&bytes, 7, true, &read), ERR_OK);
    stream_read_deinit(&read);
    buf_deinit(&bytes);

    snprintf(path, sizeof path, "/v1/jobs/%s/results?format=parquet", job_id);
    CHECK_INT(get(&c, path), 200);
    CHECK(strstr(c.answer.data, "application/vnd.apache.parquet") != NULL);
    CHECK(strncmp(c.body, "PAR1", 4) == 0);
    snprintf(path, sizeof path, "/v1/jobs/%s/results?format=xml", job_id);
    CHECK_INT(get(&c, path), 400);
    client_deinit(&c);
}

/* 100,000 rows are more than one piece of text and less than what lies in the store as one. */
TEST(http_many_rows_come_in_pieces)
{
    struct client c;
    char path[256];
    client_init(&c);
    snprintf(path, sizeof path, "/v1/jobs/%s/results", run_query(&c, 100000));
    CHECK_INT(get(&c, path), 200);
    CHECK_UINT(json_count(json_get(c.json, "rows")), 100000);
    CHECK(json_number(json_at(json_at(json_get(c.json, "rows"), 99999), 0)) == 99999);
    client_deinit(&c);
}

static void check_rows(struct client *c, const char *job_id, const char *range, const char *expected)
{
    char path[256];
    snprintf(path, sizeof path, "/v1/jobs/%s/results?%s", job_id, range);
    CHECK_INT(get(c, path), 200);
    const char *rows = strstr(c->body, "\"rows\":");
    CHECK(rows != NULL);
    size_t n = rows == NULL ? 0 : strcspn(rows, "\n"); /* a line, as all JSON here */
    CHECK_UINT(n, strlen(expected));
    CHECK_MEM(rows, expected, n);
}

TEST(http_a_range_of_rows_is_what_was_asked_for)
{
    struct client c;
    char path[256];
    client_init(&c);
    const char *job_id = run_query(&c, 100000);
    check_rows(&c, job_id, "offset=0&limit=2", "\"rows\":[[0],[1]]}");
    check_rows(&c, job_id, "offset=65536&limit=3", "\"rows\":[[65536],[65537],[65538]]}");
    check_rows(&c, job_id, "offset=99998&limit=5", "\"rows\":[[99998],[99999]]}");
    check_rows(&c, job_id, "offset=99999", "\"rows\":[[99999]]}");
    check_rows(&c, job_id, "offset=100000&limit=5", "\"rows\":[]}");
    check_rows(&c, job_id, "offset=999999999999999999&limit=1", "\"rows\":[]}");
    check_rows(&c, job_id, "limit=0", "\"rows\":[]}");
    snprintf(path, sizeof path, "/v1/jobs/%s/results?format=csv&offset=7&limit=2", job_id);
    CHECK_INT(get(&c, path), 200);
    CHECK(strstr(c.body, "\n7\n8\n") != NULL);
    static const char *const wrong[] = {"limit=-1",
                                        "limit=",
                                        "offset=1e3",
                                        "offset=1000000000000000000000",
                                        "format=arrow&limit=1",
                                        "format=parquet&offset=1"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        snprintf(path, sizeof path, "/v1/jobs/%s/results?%s", job_id, wrong[i]);
        CHECK_INT(get(&c, path), 400);
    }
    CHECK_INT(post(&c, "/v1/jobs?job_id=t1", TREE), 200);
    finish_task(&c, "a", "{\"n\":1}");
    CHECK_INT(get(&c, "/v1/jobs/t1?wait_ms=10000"), 200);
    CHECK_INT(get(&c, "/v1/jobs/t1/results?limit=1"), 400); /* a tree's results are one object */
    client_deinit(&c);
}

TEST(http_tasks_come_without_results_if_these_are_not_wanted)
{
    struct client c;
    client_init(&c);
    CHECK_INT(post(&c, "/v1/jobs?job_id=t1", TREE), 200);
    finish_task(&c, "a", "{\"n\":1}");
    CHECK_INT(get(&c, "/v1/jobs/t1/tasks"), 200);
    CHECK(json_get(json_get(json_at(json_get(c.json, "tasks"), 0), "result"), "n") != NULL);
    CHECK_INT(get(&c, "/v1/jobs/t1/tasks?without_results=true"), 200);
    CHECK_UINT(json_count(json_get(c.json, "tasks")), 1);
    CHECK_INT(json_kind_of(json_get(json_at(json_get(c.json, "tasks"), 0), "result")), JSON_NULL);
    client_deinit(&c);
}

/* ---- the cluster ---- */

static double number_at(const struct client *c, const char *key)
{
    return json_number(json_get(c->json, key));
}

TEST(http_an_overview_counts_what_runs_and_what_ended)
{
    struct client c;
    client_init(&c);
    CHECK_INT(get(&c, "/v1/overview"), 200);
    CHECK(number_at(&c, "nodes_healthy") == 1);
    CHECK(number_at(&c, "jobs_queued") == 0);
    CHECK(number_at(&c, "slots_busy") == 0);
    CHECK_INT(post(&c, "/v1/jobs?job_id=t1", TREE), 200);
    CHECK_INT(get(&c, "/v1/overview"), 200);
    CHECK(number_at(&c, "jobs_queued") == 1);
    CHECK(number_at(&c, "tasks_queued") == 1);
    struct pb_task_assignment *task = peer_take(&c.peer, "w1", "a");
    CHECK_INT(get(&c, "/v1/overview"), 200);
    CHECK(number_at(&c, "jobs_running") == 1);
    CHECK(number_at(&c, "tasks_running") == 1);
    CHECK(number_at(&c, "leases") == 1);
    CHECK_STR(peer_report(&c.peer, "w1", task, HAS_SUCCEEDED, "{}"), "");
    CHECK_INT(get(&c, "/v1/jobs/t1?wait_ms=10000"), 200);
    CHECK_INT(get(&c, "/v1/overview"), 200);
    CHECK(number_at(&c, "jobs_running") == 0);
    CHECK(number_at(&c, "jobs_succeeded") == 1);
    CHECK(number_at(&c, "attempts_completed") == 1);
    client_deinit(&c);
}

static int count_in(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what)) {
        n++;
    }
    return n;
}

TEST(http_the_newest_events_can_be_asked_for_without_those_before)
{
    struct client c;
    client_init(&c);
    CHECK_INT(post(&c, "/v1/jobs?job_id=t1", TREE), 200);
    finish_task(&c, "a", "{}");
    CHECK_INT(get(&c, "/v1/jobs/t1?wait_ms=10000"), 200);
    CHECK_INT(get(&c, "/v1/events?follow=false"), 200);
    CHECK(count_in(c.body, "\ndata: ") > 2);
    CHECK_INT(get(&c, "/v1/events?follow=false&last=2"), 200);
    CHECK_INT(count_in(c.body, "data: "), 2);
    CHECK(strstr(c.body, "\"type\":\"created\"") == NULL);
    CHECK(strstr(c.body, "\"type\":\"completed\"") != NULL);
    CHECK_INT(get(&c, "/v1/events?follow=false&last=1000000"), 200);
    CHECK(strstr(c.body, "\"type\":\"created\"") != NULL);
    client_deinit(&c);
}

TEST(http_nodes_leader_and_tables)
{
    struct client c;
    client_init(&c);
    CHECK_INT(get(&c, "/v1/nodes?executor=sleep"), 200);
    CHECK_UINT(json_count(json_get(c.json, "nodes")), 1);
    CHECK_INT(get(&c, "/v1/nodes?executor=none"), 200);
    CHECK_UINT(json_count(json_get(c.json, "nodes")), 0);
    CHECK_INT(post(&c, "/v1/nodes/w1/drain", NULL), 200);
    CHECK(json_bool(json_get(c.json, "draining")));
    CHECK_INT(post(&c, "/v1/nodes/w1/undrain", NULL), 200);
    CHECK(!json_bool(json_get(c.json, "draining")));
    CHECK_INT(post(&c, "/v1/nodes/w1/clear", "{}"), 200);
    CHECK_INT(post(&c, "/v1/nodes/none/drain", NULL), 404);
    CHECK_INT(get(&c, "/v1/leader"), 200);
    CHECK_STR(text_at(&c, "node_id"), "n1");
    CHECK_STR(text_at(&c, "role"), "leader");

    CHECK_INT(post(&c, "/v1/tables", "{\"name\":\"t\",\"source\":\"/x/*.csv\",\"format\":\"csv\"}"), 200);
    CHECK_STR(text_at(&c, "source"), "/x/*.csv");
    CHECK_INT(get(&c, "/v1/tables"), 200);
    CHECK_UINT(json_count(json_get(c.json, "tables")), 1);
    CHECK_INT(ask(&c, "DELETE /v1/tables/t%00x", "", NULL), 400); /* which does not mean t */
    CHECK_INT(post(&c, "/v1/tables", "{\"name\":\"T\",\"source\":\"/y/*.csv\",\"format\":\"csv\"}"), 409);
    CHECK(strstr(c.body, "there is a table 't' already") != NULL);
    CHECK_INT(ask(&c, "DELETE /v1/tables/%74", "", NULL), 200);
    CHECK_INT(ask(&c, "DELETE /v1/tables/t", "", NULL), 404);
    CHECK_INT(post(&c, "/v1/tables", "{\"name\":\"1\",\"source\":\"/x\",\"format\":\"csv\"}"), 400);
    client_deinit(&c);
}

TEST(http_health_and_metrics)
{
    static const char *const names[] = {"capstan_tasks{state=\"queued\"} 0",
                                        "capstan_jobs{state=\"running\"} 0",
                                        "capstan_jobs{state=\"succeeded\"} 1",
                                        "capstan_task_attempts_total{outcome=\"completed\"} 1",
                                        "capstan_assign_seconds_count 1",
                                        "capstan_commit_seconds_count",
                                        "capstan_commit_batch_size_bucket{le=\"1\"}",
                                        "capstan_leases 0",
                                        "capstan_lease_expired_total 0",
                                        "capstan_stale_reports_total{reason=\"stale_attempt\"} 0",
                                        "capstan_nodes{status=\"healthy\"} 1",
                                        "capstan_leader 1",
                                        "capstan_leader_changes_total 1",
                                        "capstan_prune_errors_total 0",
                                        "capstan_stuck_tasks 0",
                                        "capstan_shuffle_bytes_total{direction=\"in\"} 0",
                                        "capstan_shuffle_fetch_seconds_count 0",
                                        "capstan_query_seconds_count 1",
                                        "capstan_worker_slots{state=\"free\"} 8"};
    struct client c;
    client_init(&c);
    run_query(&c, 1);
    CHECK_INT(get(&c, "/metrics"), 200);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CHECK(strstr(c.body, names[i]) != NULL);
    }
    CHECK_INT(get(&c, "/healthz"), 200);
    CHECK_STR(text_at(&c, "status"), "ok");
    CHECK_INT(get(&c, "/readyz"), 200);
    CHECK_INT(get(&c, "/leaderz"), 200);
    CHECK_STR(text_at(&c, "leader"), service_address(c.peer.service));
    client_deinit(&c);
}

/* ---- what is refused ---- */

TEST(http_errors_name_what_is_wrong)
{
    static const struct {
        const char *line;
        const char *body;
        int status;
        const char *code;
        const char *message; /* a part of it */
    } cases[] = {
        {"GET /nothing", NULL, 404, "not_found", "/nothing"},
        {"DELETE /v1/jobs", NULL, 405, "invalid_argument", "DELETE"},
        {"GET /v1/jobs/none", NULL, 404, "not_found", "none"},
        {"GET /v1/jobs/none/results", NULL, 404, "not_found", "none"},
        {"GET /v1/events?job=none", NULL, 404, "not_found", "none"},
        {"GET /v1/jobs/%01", NULL, 400, "invalid_argument", "query_id"},
        {"GET /v1/jobs?limit=many", NULL, 400, "invalid_argument", "limit: must be a whole number"},
        {"GET /v1/jobs?limit=99999999999", NULL, 400, "invalid_argument", "limit: is too large"},
        {"GET /v1/jobs?lim=1", NULL, 400, "invalid_argument", "lim: GET /v1/jobs takes no such parameter"},
        {"GET /v1/jobs?state=odd", NULL, 400, "invalid_argument", "odd"},
        {"GET /v1/events?follow=maybe", NULL, 400, "invalid_argument", "follow: must be true or false"},
        {"POST /v1/queries", "{", 400, "invalid_argument", "not JSON"},
        {"POST /v1/queries", "[]", 400, "invalid_argument", "must be a JSON object"},
        {"POST /v1/queries", "{}", 400, "invalid_argument", "sql"},
        {"POST /v1/queries", "{\"sql\":1}", 400, "invalid_argument", "sql: must be a text"},
        {"POST /v1/queries", "{\"sql\":\"a\\u0000b\"}", 400, "invalid_argument", "sql: must not have a NUL"},
        {"POST /v1/queries", "{\"sql\":\"x\",\"explain\":1}", 400, "invalid_argument", "explain: must be true"},
        {"POST /v1/queries", "{\"sql\":\"x\",\"priority\":-1}", 400, "invalid_argument", "priority: must be a whole"},
        {"POST /v1/queries", "{\"sql\":\"x\",\"priority\":9}", 400, "invalid_argument", "priority"},
        {"POST /v1/queries", "{\"sql\":\"x\",\"more\":1}", 400, "invalid_argument", "more: POST /v1/queries takes"},
        {"POST /v1/jobs", "{}", 400, "invalid_argument", "tasks"},
        {"POST /v1/jobs", NULL, 400, "invalid_argument", "tree_json"},
        {"GET /v1/jobs", "{\"x\":1}", 400, "invalid_argument", "x: GET /v1/jobs takes no such member"},
    };
    struct client c;
    client_init(&c);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CHECK_INT(ask(&c, cases[i].line, cases[i].body == NULL ? "" : JSON_BODY, cases[i].body), cases[i].status);
        CHECK_STR(error_at(&c, "code"), cases[i].code);
        if (strstr(error_at(&c, "message"), cases[i].message) == NULL) {
            CHECK_STR(error_at(&c, "message"), cases[i].message);
        }
        CHECK(json_has(json_get(c.json, "error"), "detail") && json_has(json_get(c.json, "error"), "hint"));
    }
    client_deinit(&c);
}

TEST(http_a_method_that_does_not_go_with_a_path_is_told_which_do)
{
    static const struct {
        const char *line;
        int status;
        const char *allow;
    } cases[] = {
        {"DELETE /v1/jobs", 405, "POST, GET, HEAD"},
        {"PUT /v1/jobs", 405, "POST, GET, HEAD"},
        {"POST /v1/jobs/none", 405, "GET, HEAD"},
        {"GET /v1/jobs/none/cancel", 405, "POST"},
        {"OPTIONS /v1/tables/t", 405, "DELETE"},
        {"POST /", 405, "GET, HEAD"}, /* a file */
        {"PUT /nothing", 404, NULL},
    };
    struct client c;
    client_init(&c);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char line[64];
        CHECK_INT(ask(&c, cases[i].line, "", NULL), cases[i].status);
        snprintf(line, sizeof line, "\r\nAllow: %s\r\n", cases[i].allow);
        CHECK((strstr(c.answer.data, "\r\nAllow: ") != NULL) == (cases[i].allow != NULL));
        CHECK(cases[i].allow == NULL || strstr(c.answer.data, line) != NULL);
    }
    client_deinit(&c);
}

TEST(http_a_web_page_of_another_site_is_refused)
{
    struct client c;
    char headers[256];
    client_init(&c);
    CHECK_INT(ask(&c, "GET /v1/jobs", "Host: evil.example\r\n", NULL), 403);
    CHECK_INT(ask(&c, "GET /v1/jobs", "Host: 127.evil.example\r\n", NULL), 403);
    CHECK_INT(ask(&c, "GET /v1/jobs", "Host: 10.1.2.3:80\r\n", NULL), 403);
    CHECK_INT(ask(&c, "GET /v1/jobs", "Host: localhost:1\r\n", NULL), 200);
    CHECK_INT(ask(&c, "GET /v1/jobs", "Host: [::1]:1\r\n", NULL), 200);
    CHECK_INT(ask(&c, "GET /healthz", "Host: evil.example\r\n", NULL), 200); /* probes have names of their own */
    CHECK_INT(ask(&c, "POST /v1/jobs", JSON_BODY "Origin: http://evil.example\r\n", TREE), 403);
    CHECK_INT(ask(&c, "POST /v1/jobs", JSON_BODY "Origin: null\r\n", TREE), 403);
    CHECK_INT(ask(&c, "POST /v1/jobs", JSON_BODY "Origin: http://localhost:3000\r\n", TREE), 403);
    CHECK_INT(ask(&c, "POST /v1/jobs/x/cancel", "Origin: http://evil.example\r\n", NULL), 403);
    snprintf(headers, sizeof headers, JSON_BODY "Origin: http://%s\r\n", address(&c));
    CHECK_INT(ask(&c, "POST /v1/jobs", headers, TREE), 200);
    CHECK_INT(ask(&c, "POST /v1/jobs", "Content-Type: text/plain\r\n", TREE), 415);
    CHECK_INT(ask(&c, "POST /v1/jobs", "", TREE), 415);
    CHECK_INT(ask(&c, "POST /v1/jobs", "Content-Type: application/jsonp\r\n", TREE), 415);
    CHECK_INT(ask(&c, "POST /v1/jobs", "Content-Type: application/json; charset=utf-8\r\n", TREE), 200);
    CHECK_INT(ask(&c, "OPTIONS /v1/jobs", "Origin: http://evil.example\r\n", NULL), 405);
    CHECK(strstr(c.answer.data, "Access-Control") == NULL);
    client_deinit(&c);
}

TEST(http_a_body_that_is_too_long_is_refused)
{
    static const char head[] = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" JSON_BODY
                               "Content-Length: 70000000\r\n\r\n";
    struct client c;
    struct buf request = {0};
    client_init(&c);
    char *megabyte = calloc(1, 1000000);
    memset(megabyte, ' ', 1000000);
    buf_append(&request, head, sizeof head - 1);
    for (int i = 0; i < 70; i++) {
        buf_append(&request, megabyte, 1000000);
    }
    talk_bytes(address(&c), request.data, request.n, &c.answer);
    CHECK_INT(talk_status(&c.answer), 413);
    CHECK_INT(get(&c, "/v1/jobs"), 200);
    free(megabyte);
    buf_deinit(&request);
    client_deinit(&c);
}

TEST(http_tokens_are_asked_for)
{
    static const char *const tokens[] = {"reader read", "writer submit", "boss admin"};
    char path[] = "/tmp/capstan-http-tokens-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        uint8_t digest[SHA256_BYTES];
        size_t n = strcspn(tokens[i], " ");
        sha256_once(tokens[i], n, digest);
        for (size_t k = 0; k < sizeof digest; k++) {
            fprintf(file, "%02x", digest[k]);
        }
        fprintf(file, " name%zu %s\n", i, tokens[i] + n + 1);
    }
    fclose(file);
    struct client c;
    struct error e = {0};
    struct auth *auth = NULL;
    client_init(&c);
    peer_restart(&c.peer); /* the file of the store is made */
    CHECK_ERR(auth_open(path, &auth, &e), ERR_OK);
    struct service *service = c.peer.service;
    service_stop(service);
    struct service_options options = {.store_url = c.peer.url,
                                      .node_id = "n1",
                                      .listen = "127.0.0.1:0",
                                      .http = "127.0.0.1:0",
                                      .auth = auth,
                                      .settings = settings_default()};
    CHECK_ERR(service_start(&options, &c.peer.service, &e), ERR_OK);
    int64_t until_ms = clock_mono_ms() + 30000;
    while (get(&c, "/leaderz") != 200) {
        CHECK(clock_mono_ms() < until_ms);
    }
    CHECK_INT(get(&c, "/v1/leader"), 200);
    CHECK_INT(get(&c, "/v1/jobs"), 401);
    CHECK(strstr(c.answer.data, "WWW-Authenticate: Bearer\r\n") != NULL);
    CHECK_INT(get(&c, "/metrics"), 401);
    CHECK_INT(ask(&c, "GET /v1/jobs", "Authorization: Bearer nobody\r\n", NULL), 401);
    CHECK_INT(ask(&c, "GET /v1/jobs", "Authorization: Bearer reader\r\n", NULL), 200);
    CHECK_INT(ask(&c, "GET /metrics", "Authorization: Bearer reader\r\n", NULL), 200);
    CHECK_INT(ask(&c, "POST /v1/jobs", JSON_BODY "Authorization: Bearer reader\r\n", TREE), 403);
    CHECK_STR(error_at(&c, "code"), "permission_denied");
    CHECK_INT(ask(&c, "POST /v1/jobs", JSON_BODY "Authorization: Bearer writer\r\n", TREE), 200);
    CHECK_INT(ask(&c, "POST /v1/nodes/w1/drain", "Authorization: Bearer writer\r\n", NULL), 403);
    CHECK_INT(ask(&c, "POST /v1/nodes/w1/drain", "Authorization: Bearer boss\r\n", NULL), 200);
    client_deinit(&c);
    auth_close(auth);
    unlink(path);
}

TEST(http_a_coordinator_that_stands_by_names_the_leader)
{
    struct server server;
    struct client c = {0};
    struct error e = {0};
    struct service *leader = NULL;
    server_start(&server, NULL);
    peer_init_on(&c.peer, server.url);
    leader = c.peer.service;
    struct service_options options = {.store_url = server.url,
                                      .node_id = "n2",
                                      .listen = "127.0.0.1:0",
                                      .http = "127.0.0.1:0",
                                      .settings = settings_default()};
    CHECK_ERR(service_start(&options, &c.peer.service, &e), ERR_OK);
    int64_t until_ms = clock_mono_ms() + 30000;
    while (get(&c, "/readyz") != 200) { /* until it has heard of the leader */
        CHECK(clock_mono_ms() < until_ms);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    CHECK_STR(text_at(&c, "status"), "stands by");
    CHECK_INT(get(&c, "/leaderz"), 503);
    CHECK_INT(get(&c, "/healthz"), 200);
    CHECK_INT(post(&c, "/v1/jobs", TREE), 503);
    CHECK_STR(error_at(&c, "leader"), service_address(leader));
    CHECK_INT(get(&c, "/v1/leader"), 200);
    CHECK_STR(text_at(&c, "role"), "standby");
    CHECK_INT(get(&c, "/metrics"), 200);
    CHECK(strstr(c.body, "capstan_leader 0") != NULL);
    service_stop(c.peer.service);
    c.peer.service = leader;
    client_deinit(&c);
    server_remove(&server);
}

/* ---- streams ---- */

/* Reads until the text has come. */
static void read_until(int fd, struct buf *into, const char *text)
{
    for (;;) {
        buf_text(into, "");
        if (strstr(into->data, text) != NULL) {
            return;
        }
        CHECK(talk_read(fd, into) > 0);
    }
}

TEST(http_events_are_followed_and_taken_up_again)
{
    static const char follow[] = "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct client c;
    struct buf seen = {0};
    client_init(&c);
    int fd = talk_dial(address(&c), 0);
    talk_send(fd, follow, sizeof follow - 1);
    read_until(fd, &seen, "\"type\":\"joined\""); /* from the past, then what happens */
    CHECK(strstr(seen.data, "text/event-stream") != NULL);
    CHECK_INT(post(&c, "/v1/jobs?job_id=j1", TREE), 200);
    read_until(fd, &seen, "\"type\":\"created\",\"job_id\":\"j1\"");
    finish_task(&c, "a", "");
    read_until(fd, &seen, "\"type\":\"completed\",\"job_id\":\"j1\",\"stage\":null");
    close(fd);

    CHECK_INT(get(&c, "/v1/events?job=j1&follow=false"), 200);
    const char *first = strstr(c.body, "id: ");
    CHECK(first != NULL);
    char headers[128];
    unsigned long id = strtoul(first + 4, NULL, 10);
    snprintf(headers, sizeof headers, "Last-Event-ID: %lu\r\n", id);
    CHECK_INT(ask(&c, "GET /v1/events?job=j1&follow=false&after=0", headers, NULL), 200);
    CHECK(strstr(c.body, "\"type\":\"created\"") == NULL);
    CHECK(strstr(c.body, "\"type\":\"assigned\"") != NULL);
    CHECK_INT(ask(&c, "GET /v1/events?job=j1&follow=false&last=1", headers, NULL), 200);
    CHECK(strstr(c.body, "\"type\":\"created\"") == NULL);
    CHECK(strstr(c.body, "\"type\":\"assigned\"") != NULL); /* was missed, however few `last` asks for */
    CHECK_INT(get(&c, "/v1/events?job=j1&follow=false&last=1"), 200);
    CHECK(strstr(c.body, "\"type\":\"assigned\"") == NULL);
    CHECK_INT(ask(&c, "GET /v1/events", "Last-Event-ID: x\r\n", NULL), 400);
    client_deinit(&c);
    buf_deinit(&seen);
}

TEST(http_a_stream_of_events_begins_before_there_are_any_and_ends_with_the_coordinator)
{
    static const char follow[] = "GET /v1/events?after=1000000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct client c;
    struct buf seen = {0};
    client_init(&c);
    int fd = talk_dial(address(&c), 0);
    talk_send(fd, follow, sizeof follow - 1);
    read_until(fd, &seen, "text/event-stream");
    peer_restart(&c.peer);
    read_until(fd, &seen, "event: end\ndata: {\"error\":");
    while (talk_read(fd, &seen) > 0) {
    }
    close(fd);
    client_deinit(&c);
    buf_deinit(&seen);
}

#define LARGE_TASKS 60
#define LARGE_BYTES 500000

static void run_large_tree(struct client *c)
{
    struct buf tree = {0};
    struct buf result = {0};
    buf_text(&tree, "{\"tasks\":[");
    for (int i = 0; i < LARGE_TASKS; i++) {
        buf_format(&tree, "%s{\"name\":\"t%d\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}", i == 0 ? "" : ",", i);
    }
    buf_text(&tree, "]}");
    CHECK_INT(post(c, "/v1/jobs?job_id=large", tree.data), 200);
    char *filler = calloc(1, LARGE_BYTES + 1);
    memset(filler, 'x', LARGE_BYTES);
    buf_format(&result, "\"%s\"", filler);
    for (int i = 0; i < LARGE_TASKS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        finish_task(c, name, result.data);
    }
    free(filler);
    buf_deinit(&tree);
    buf_deinit(&result);
}

TEST(http_a_slow_reader_gets_all_of_a_large_result_and_holds_up_nobody)
{
    static const char request[] = "GET /v1/jobs/large/results HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct client c;
    struct buf all = {0};
    client_init(&c);
    run_large_tree(&c);
    int fd = talk_dial(address(&c), 4096);
    talk_send(fd, request, sizeof request - 1);
    CHECK(talk_read(fd, &all) > 0);
    CHECK_INT(get(&c, "/v1/jobs/large"), 200); /* while the other waits */
    CHECK_STR(text_at(&c, "state"), "succeeded");
    while (talk_read(fd, &all) > 0) {
    }
    close(fd);
    buf_text(&all, "");
    CHECK_STR(talk_body(&all), peer_results(&c.peer, "large", 0));
    int second = talk_dial(address(&c), 4096);
    talk_send(second, request, sizeof request - 1);
    buf_reset(&all);
    CHECK(talk_read(second, &all) > 0);
    client_deinit(&c); /* stops although somebody reads */
    close(second);
    buf_deinit(&all);
}

/* ---- the description ---- */

TEST(http_the_description_lists_every_route_and_each_answers)
{
    static const char *const methods[] = {"get", "post", "delete"};
    struct client c;
    struct buf text = {0};
    struct json *description = NULL;
    size_t cursor = 0;
    const char *path;
    const struct json *item;
    uint32_t n = 0;
    client_init(&c);
    CHECK_INT(get(&c, "/openapi.json"), 200);
    buf_text(&text, c.body);
    CHECK_ERR(json_parse(text.data, text.n, &description, NULL), ERR_OK);
    CHECK_STR(json_text(json_get(description, "openapi"), NULL), "3.1.0");
    while (json_next(json_get(description, "paths"), &cursor, &path, &item)) {
        for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
            char line[256];
            const char *brace = strchr(path, '{');
            size_t before = brace == NULL ? strlen(path) : (size_t)(brace - path);
            if (json_get(item, methods[i]) == NULL) {
                continue;
            }
            n++;
            snprintf(line, sizeof line, "%s %.*s%s%s%s",
                     i == 0   ? "GET"
                     : i == 1 ? "POST"
                              : "DELETE",
                     (int)before, path, brace == NULL ? "" : "none", brace == NULL ? "" : strchr(path, '}') + 1,
                     strcmp(path, "/v1/events") == 0 ? "?follow=false" : "");
            int status = ask(&c, line, "", NULL);
            CHECK(status != 405 && status != 500 && status != 501);
            bool is_no_path = status == 404 && strstr(error_at(&c, "message"), " here") != NULL;
            CHECK(!is_no_path);
        }
    }
    CHECK_UINT(n, 24);
    json_free(description);
    buf_deinit(&text);
    client_deinit(&c);
}
