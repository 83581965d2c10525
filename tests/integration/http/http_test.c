/* The server over real sockets: requests are written by hand, so that wrong ones can be written, too. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/http.h"
#include "http/metric.h"
#include "http/talk.h"
#include "test.h"

static void say_hello(void *context, struct http_request *request, struct http_answer *answer)
{
    const char *name = http_request_query(request, "name");
    buf_format(&answer->body, "hello %s %s", name == NULL ? "nobody" : name, (const char *)context);
}

static void echo(void *context, struct http_request *request, struct http_answer *answer)
{
    size_t n;
    const void *body = http_request_body(request, &n);
    UNUSED(context);
    answer->type = "application/octet-stream";
    buf_append(&answer->body, body, n);
}

static void go_wrong(void *context, struct http_request *request, struct http_answer *answer)
{
    struct error e = {0};
    UNUSED(context);
    UNUSED(request);
    error_set(&e, ERR_PRECONDITION, "not \"now\"");
    error_hint(&e, "later");
    http_answer_error(answer, &e);
}

static void below(void *context, struct http_request *request, struct http_answer *answer)
{
    UNUSED(context);
    buf_text(&answer->body, http_request_path(request));
}

static const struct http_route routes[] = {
    {"GET", "/hello", say_hello},
    {"POST", "/echo", echo},
    {"GET", "/fail", go_wrong},
    {"GET", "/below/*", below},
};

static struct http_server *start_with(uint32_t connections_max, uint32_t silent_s)
{
    struct http_server *server = NULL;
    struct http_server_options options = {.listen = "127.0.0.1:0",
                                          .routes = routes,
                                          .n_routes = sizeof routes / sizeof *routes,
                                          .context = (void *)(uintptr_t) "!",
                                          .connections_max = connections_max,
                                          .silent_s = silent_s,
                                          .body_bytes_max = 100000};
    CHECK_ERR(http_server_open(&options, &server, NULL), ERR_OK);
    return server;
}

static struct http_server *start(void)
{
    return start_with(0, 0);
}

/* Sends the bytes and reads until the server closes. */
static void ask_bytes(const struct http_server *server, const char *bytes, size_t n, struct buf *answer)
{
    talk_bytes(http_server_address(server), bytes, n, answer);
}

static void ask(const struct http_server *server, const char *head, struct buf *answer)
{
    char request[512];
    int n = snprintf(request, sizeof request, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", head);
    ask_bytes(server, request, (size_t)n, answer);
}

static const char *body_of(const struct buf *answer)
{
    const char *end = strstr(answer->data, "\r\n\r\n");
    return end == NULL ? "" : end + 4;
}

TEST(a_route_is_served_with_its_query)
{
    struct http_server *server = start();
    struct buf answer = {0};
    ask(server, "GET /hello?name=a%20b", &answer);
    CHECK(strstr(answer.data, "HTTP/1.1 200 ") == answer.data);
    CHECK_STR(body_of(&answer), "hello a b !");
    ask(server, "GET /hello", &answer);
    CHECK_STR(body_of(&answer), "hello nobody !");
    ask(server, "HEAD /hello", &answer);
    CHECK(strstr(answer.data, "HTTP/1.1 200 ") == answer.data);
    CHECK_STR(body_of(&answer), "");
    ask(server, "GET /below/x/y", &answer);
    CHECK_STR(body_of(&answer), "/below/x/y");
    buf_deinit(&answer);
    http_server_close(server);
}

TEST(unknown_paths_and_methods_are_told_apart)
{
    struct http_server *server = start();
    struct buf answer = {0};
    ask(server, "GET /nothing", &answer);
    CHECK(strstr(answer.data, "HTTP/1.1 404 ") == answer.data);
    ask(server, "DELETE /hello", &answer);
    CHECK(strstr(answer.data, "HTTP/1.1 405 ") == answer.data);
    CHECK(strstr(answer.data, "\r\nAllow: GET, HEAD\r\n") != NULL);
    ask(server, "GET /below", &answer);
    CHECK(strstr(answer.data, "HTTP/1.1 404 ") == answer.data);
    buf_deinit(&answer);
    http_server_close(server);
}

TEST(an_error_has_the_shape_of_the_interface)
{
    struct http_server *server = start();
    struct buf answer = {0};
    ask(server, "GET /fail", &answer);
    CHECK(strstr(answer.data, "HTTP/1.1 409 ") == answer.data);
    CHECK_STR(
        body_of(&answer),
        "{\"error\":{\"code\":\"failed_precondition\",\"message\":\"not \\\"now\\\"\",\"detail\":null,\"hint\":\"later\"}}\n");
    buf_deinit(&answer);
    http_server_close(server);
}

TEST(a_body_comes_through_whole_or_is_refused_for_its_length)
{
    struct http_server *server = start();
    struct buf answer = {0};
    struct buf request = {0};
    for (int i = 0; i < 2; i++) {
        size_t n = i == 0 ? 100000 : 100001;
        buf_reset(&request);
        buf_format(&request, "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", n);
        for (size_t k = 0; k < n; k++) {
            buf_char(&request, (char)('a' + k % 26));
        }
        ask_bytes(server, request.data, request.n, &answer);
        CHECK(strstr(answer.data, i == 0 ? "HTTP/1.1 200 " : "HTTP/1.1 413 ") == answer.data);
        if (i == 0) {
            CHECK_UINT(strlen(body_of(&answer)), n);
            CHECK_MEM(body_of(&answer), request.data + request.n - n, n);
        }
    }
    buf_deinit(&request);
    buf_deinit(&answer);
    http_server_close(server);
}

TEST(garbage_disturbs_nobody)
{
    struct http_server *server = start();
    struct buf answer = {0};
    ask_bytes(server, "\x16\x03\x01\x02\x00\x01garbage\r\n\r\n\r\n", 20, &answer);
    ask_bytes(server, "GET  HTTP\r\n\r\n", 13, &answer);
    ask(server, "GET /hello", &answer);
    CHECK_STR(body_of(&answer), "hello nobody !");
    buf_deinit(&answer);
    http_server_close(server);
}

TEST(a_taken_port_and_a_wrong_address_are_told)
{
    struct http_server *server = start();
    struct http_server *second = NULL;
    struct error e = {0};
    struct http_server_options options = {.listen = http_server_address(server), .routes = routes, .n_routes = 1};
    CHECK_ERR(http_server_open(&options, &second, &e), ERR_UNAVAILABLE);
    static const char *const wrong[] = {"", "7480", ":", "127.0.0.1:x", "[::1:80"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.listen = wrong[i];
        CHECK_ERR(http_server_open(&options, &second, &e), ERR_INVALID);
    }
    CHECK(second == NULL);
    http_server_close(server);
}

TEST(metrics_are_written_as_prometheus_reads_them)
{
    struct buf out = {0};
    metric_family(&out, "capstan_worker_slots", METRIC_GAUGE, "Slots by state.");
    metric_value(&out, "capstan_worker_slots", "state=\"busy\"", 3);
    metric_value(&out, "capstan_worker_slots", NULL, 0.5);
    CHECK_STR(out.data, "# HELP capstan_worker_slots Slots by state.\n# TYPE capstan_worker_slots gauge\n"
                        "capstan_worker_slots{state=\"busy\"} 3\ncapstan_worker_slots 0.5\n");
    buf_deinit(&out);
}

TEST(a_histogram_counts_values_up_to_each_bound)
{
    static const double bounds[] = {0.1, 1, 10};
    struct metric_histogram histogram = {.bounds = bounds, .n_bounds = 3};
    struct buf out = {0};
    metric_observe(&histogram, 0.1);
    metric_observe(&histogram, 0.5);
    metric_observe(&histogram, 0.25);
    metric_observe(&histogram, 100);
    metric_histogram(&out, "h", &histogram);
    CHECK_STR(out.data, "h_bucket{le=\"0.1\"} 1\nh_bucket{le=\"1\"} 3\nh_bucket{le=\"10\"} 3\n"
                        "h_bucket{le=\"+Inf\"} 4\nh_sum 100.85\nh_count 4\n");
    buf_deinit(&out);
}

static bool is_keeping(void *context, struct http_request *request)
{
    UNUSED(context);
    return http_request_header(request, "X-Keep") != NULL && strcmp(http_request_path(request), "/echo") == 0;
}

static void say_peer(void *context, struct http_request *request, struct http_answer *answer)
{
    UNUSED(context);
    buf_text(&answer->body, http_request_peer(request));
}

TEST(a_body_that_nobody_wants_is_read_to_its_end_and_not_kept)
{
    static const struct http_route some[] = {{"POST", "/echo", echo}, {"GET", "/peer", say_peer}};
    struct http_server *server = NULL;
    struct http_server_options options = {.listen = "127.0.0.1:0",
                                          .routes = some,
                                          .n_routes = 2,
                                          .wants_body = is_keeping,
                                          .body_bytes_max = 1000,
                                          .bodies_bytes_max = 1000};
    struct buf answer = {0};
    struct buf large = {0};
    CHECK_ERR(http_server_open(&options, &server, NULL), ERR_OK);
    for (int i = 0; i < 5000; i++) {
        buf_text(&large, "0123456789");
    }
    talk(http_server_address(server), "POST /echo", "X-Keep: yes\r\n", "abc", &answer);
    CHECK_STR(talk_body(&answer), "abc");
    talk(http_server_address(server), "POST /echo", "", "abc", &answer);
    CHECK_INT(talk_status(&answer), 200);
    CHECK_STR(talk_body(&answer), "");
    talk(http_server_address(server), "POST /echo", "", large.data, &answer); /* not even too long */
    CHECK_INT(talk_status(&answer), 200);
    CHECK_STR(talk_body(&answer), "");
    talk(http_server_address(server), "POST /echo", "X-Keep: yes\r\n", large.data, &answer);
    CHECK_INT(talk_status(&answer), 413);
    talk(http_server_address(server), "GET /peer", "", NULL, &answer);
    CHECK(strncmp(talk_body(&answer), "ipv4:127.0.0.1:", 15) == 0);
    buf_deinit(&answer);
    buf_deinit(&large);
    http_server_close(server);
}

#define CONNECTIONS 8

TEST(one_address_cannot_take_all_connections)
{
    static const char request[] = "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    struct http_server *server = start_with(CONNECTIONS, 0);
    struct buf answer = {0};
    int greedy[2 * CONNECTIONS];
    for (int i = 0; i < 2 * CONNECTIONS; i++) {
        greedy[i] = talk_dial(http_server_address(server), 0);
    }
    int other = talk_dial_from("127.0.0.2", http_server_address(server), 0);
    talk_send(other, request, sizeof request - 1);
    while (talk_read(other, &answer) > 0) {
    }
    buf_text(&answer, "");
    CHECK_INT(talk_status(&answer), 200);
    close(other);
    for (int i = 0; i < 2 * CONNECTIONS; i++) {
        close(greedy[i]);
    }
    buf_deinit(&answer);
    http_server_close(server);
}

TEST(whoever_asks_for_nothing_is_soon_cut_off_and_whoever_has_asked_may_pause)
{
    static const char request[] = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    struct http_server *server = start_with(CONNECTIONS, 1);
    struct buf answer = {0};
    char byte;
    int guest = talk_dial(http_server_address(server), 0);
    talk_send(guest, request, sizeof request - 1);
    CHECK(talk_read(guest, &answer) > 0);
    int silent = talk_dial(http_server_address(server), 0);
    CHECK_INT(recv(silent, &byte, 1, 0), 0); /* its end; patience would end with -1 */
    int again = talk_dial(http_server_address(server), 0);
    CHECK_INT(recv(again, &byte, 1, 0), 0); /* as long once more, in which the guest says nothing */
    buf_reset(&answer);
    talk_send(guest, request, sizeof request - 1);
    CHECK(talk_read(guest, &answer) > 0);
    buf_text(&answer, "");
    CHECK_INT(talk_status(&answer), 200);
    close(guest);
    close(silent);
    close(again);
    buf_deinit(&answer);
    http_server_close(server);
}
