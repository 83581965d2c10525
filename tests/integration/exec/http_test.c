#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "fixture.h"
#include "names.h"
#include "server.h"

static struct server *server; /* of the test that runs */

/* Runs `inputs`, in which every @ is the server's port. */
static struct exec_outcome fetch(const struct fixture *f, const char *inputs)
{
    char port[16];
    char text[4096];
    snprintf(port, sizeof(port), "%d", server_port(server));
    fill_in(inputs, port, text, sizeof(text));
    return fixture_run(f, "http", text);
}

/* The failure's message, in which every @ is the server's port. */
static void expect_port_failure(struct exec_outcome out, const char *message, bool not_retryable)
{
    char port[16];
    char text[1024];
    snprintf(port, sizeof(port), "%d", server_port(server));
    fill_in(message, port, text, sizeof(text));
    expect_failure(out, text, not_retryable);
}

static bool has_line(const char *request, const char *line)
{
    char text[512];
    snprintf(text, sizeof(text), "\r\n%s\r\n", line);
    return strstr(request, text) != NULL;
}

/* Checks what the server saw, and frees it. */
static void check_request(const char *first_line, const char *const *lines, const char *body)
{
    char *request = server_last(server);
    CHECK_MEM(request, first_line, strlen(first_line));
    for (; lines != NULL && *lines != NULL; lines++) {
        bool is_absent = **lines == '!';
        const char *line = *lines + (is_absent ? 1 : 0);
        bool is_right = is_absent ? strstr(request, line) == NULL : has_line(request, line);
        if (!is_right) {
            print_error("%s in\n%s\n", *lines, request);
        }
        CHECK(is_right);
    }
    CHECK_STR(strstr(request, "\r\n\r\n") + 4, body);
    mem_free(request);
}

TEST(an_answer_is_given_with_status_headers_and_body)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    expect_success(fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/201\"}"),
                   "{\"status\":201,\"headers\":{\"content-length\":\"4\"},\"body\":\"told\"}");
    const char *const lines[] = {"Idempotency-Key: key-of-the-task", "User-Agent: capstan", "!Expect", "!Content-Type",
                                 NULL};
    check_request("GET /status/201 HTTP/1.1\r\n", lines, "");
    server_close(server);
    fixture_close(&f);
}

TEST(an_answer_that_is_json_is_given_as_json)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    expect_success(fetch(&f, "{\"url\":\"http://127.0.0.1:@/json\"}"),
                   "{\"status\":200,\"headers\":{\"content-length\":\"14\",\"content-type\":\"application/json\"},"
                   "\"json\":{\"a\": [1, 2]}}");
    server_close(server);
    fixture_close(&f);
}

TEST(headers_are_given_in_lower_case_and_those_of_one_name_together)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    expect_success(fetch(&f, "{\"url\":\"http://127.0.0.1:@/headers\"}"),
                   "{\"status\":200,\"headers\":{\"content-length\":\"0\",\"x-mixed\":\"Some Value\","
                   "\"set-cookie\":\"a=1, b=2\",\"x-empty\":\"\"}}");
    server_close(server);
    fixture_close(&f);
}

TEST(an_answer_that_is_no_utf8_is_mended)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    expect_success(fetch(&f, "{\"url\":\"http://127.0.0.1:@/binary\"}"),
                   "{\"status\":200,\"headers\":{\"content-length\":\"4\"},\"body\":\"a\xef\xbf\xbd\\u0000b\"}");
    server_close(server);
    fixture_close(&f);
}

TEST(json_is_sent_as_json)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    struct exec_outcome out = fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/200\",\"json\":{\"n\": [1, null, \"x\"]},"
                                        "\"headers\":{\"Authorization\":\"Bearer t\",\"X-Empty\":\"\"}}");
    CHECK(out.is_success);
    exec_outcome_deinit(&out);
    const char *const lines[] = {"Content-Type: application/json",   "Content-Length: 18",
                                 "Authorization: Bearer t",          "X-Empty:",
                                 "Idempotency-Key: key-of-the-task", NULL};
    check_request("POST /status/200 HTTP/1.1\r\n", lines, "{\"n\":[1,null,\"x\"]}");
    server_close(server);
    fixture_close(&f);
}

TEST(every_method_sends_what_it_should)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    const char *const methods[] = {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        char inputs[256];
        char first[64];
        snprintf(inputs, sizeof(inputs),
                 "{\"url\":\"http://127.0.0.1:%d/status/200\",\"method\":\"%s\",\"body\":\"b\"}", server_port(server),
                 methods[i]);
        snprintf(first, sizeof(first), "%s /status/200 HTTP/1.1\r\n", methods[i]);
        struct exec_outcome out = fixture_run(&f, "http", inputs);
        CHECK(out.is_success);
        exec_outcome_deinit(&out);
        const char *const lines[] = {"Content-Type: text/plain; charset=utf-8", "Content-Length: 1", NULL};
        check_request(first, lines, "b");
        snprintf(inputs, sizeof(inputs), "{\"url\":\"http://127.0.0.1:%d/status/200\",\"method\":\"%s\"}",
                 server_port(server), methods[i]);
        out = fixture_run(&f, "http", inputs);
        CHECK(out.is_success);
        exec_outcome_deinit(&out);
        check_request(first, NULL, "");
    }
    server_close(server);
    fixture_close(&f);
}

TEST(a_head_has_no_body)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    expect_success(fetch(&f, "{\"method\":\"head\",\"url\":\"http://127.0.0.1:@/status/200\"}"),
                   "{\"status\":200,\"headers\":{\"content-length\":\"4\"}}");
    check_request("HEAD /status/200 HTTP/1.1\r\n", NULL, "");
    server_close(server);
    fixture_close(&f);
}

TEST(headers_of_the_task_win_over_our_own)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    struct exec_outcome out =
        fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/200\",\"body\":\"a,b\",\"headers\":"
                  "{\"content-type\":\"text/csv\",\"idempotency-key\":\"mine\",\"user-agent\":\"me\"}}");
    CHECK(out.is_success);
    exec_outcome_deinit(&out);
    const char *const lines[] = {"content-type: text/csv",
                                 "idempotency-key: mine",
                                 "user-agent: me",
                                 "!capstan",
                                 "!key-of-the-task",
                                 "!text/plain",
                                 NULL};
    check_request("POST /status/200 HTTP/1.1\r\n", lines, "a,b");
    server_close(server);
    fixture_close(&f);
}

TEST(what_the_server_cannot_help_is_tried_again_and_what_the_task_did_wrong_is_not)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    struct exec_outcome out = fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/503\"}");
    CHECK_STR(out.result.data, "{\"status\":503,\"headers\":{\"content-length\":\"4\"},\"body\":\"told\"}");
    expect_port_failure(out, "GET http://127.0.0.1:@: status 503", false);
    expect_port_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/500\"}"), "GET http://127.0.0.1:@: status 500",
                        false);
    expect_port_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/429\"}"), "GET http://127.0.0.1:@: status 429",
                        false);
    expect_port_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/404\"}"), "GET http://127.0.0.1:@: status 404",
                        true);
    expect_port_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/304\"}"), "GET http://127.0.0.1:@: status 304",
                        true);
    server_close(server);
    fixture_close(&f);
}

TEST(the_task_may_say_what_status_it_expects)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    struct exec_outcome out = fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/404\",\"expect_status\":404}");
    CHECK(out.is_success);
    exec_outcome_deinit(&out);
    out = fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/500\",\"expect_status\":[404,500]}");
    CHECK(out.is_success);
    exec_outcome_deinit(&out);
    expect_port_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/status/200\",\"expect_status\":201}"),
                        "GET http://127.0.0.1:@: status 200", true);
    out = fetch(&f, "{\"url\":\"http://127.0.0.1:@/to/302/http://127.0.0.1:@/json\",\"expect_status\":302}");
    CHECK(out.is_success); /* then it is not followed */
    exec_outcome_deinit(&out);
    server_close(server);
    fixture_close(&f);
}

TEST(a_network_that_fails_is_tried_again)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    const char *const paths[] = {"close", "half", "nonsense"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char inputs[128];
        snprintf(inputs, sizeof(inputs), "{\"url\":\"http://127.0.0.1:%d/%s\"}", server_port(server), paths[i]);
        struct exec_outcome out = fixture_run(&f, "http", inputs);
        CHECK(!out.is_success);
        CHECK(!out.not_retryable);
        CHECK_MEM(out.message.data, "GET http://127.0.0.1:", 21);
        exec_outcome_deinit(&out);
    }
    char inputs[128];
    snprintf(inputs, sizeof(inputs), "{\"url\":\"http://user:secret@127.0.0.1:%d/?token=secret\"}",
             server_port(server));
    server_close(server); /* now nobody listens there */
    struct exec_outcome out = fixture_run(&f, "http", inputs);
    CHECK(!out.is_success);
    CHECK(!out.not_retryable);
    CHECK(strstr(out.message.data, "secret") == NULL);
    exec_outcome_deinit(&out);
    fixture_close(&f);
}

TEST(bad_inputs_of_a_request_are_named)
{
    struct fixture f = fixture_open(NULL);
    const char *const pairs[][2] = {
        {"{}", "inputs.url must be a text that begins with http:// or https://"},
        {"{\"url\":7}", "inputs.url must be a text"},
        {"{\"url\":\"file:///etc/passwd\"}", "inputs.url must be a text that begins with http:// or https://"},
        {"{\"url\":\"gopher://x\"}", "inputs.url must be a text that begins with http:// or https://"},
        {"{\"url\":\"http://\"}", "inputs.url is not valid: No host part in the URL"},
        {"{\"url\":\"http://a:99999/\"}",
         "inputs.url is not valid: Port number was not a decimal number between 0 and 65535"},
        {"{\"url\":\"http://a/\\u0000\"}", "inputs.url must not contain the character NUL"},
        {"{\"url\":\"http://a\",\"method\":\"TRACE\"}",
         "inputs.method must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS, not 'TRACE'"},
        {"{\"url\":\"http://a\",\"method\":1}", "inputs.method must be a text"},
        {"{\"url\":\"http://a\",\"method\":\"GET\",\"json\":1}",
         "inputs.method GET takes no inputs.json and no inputs.body"},
        {"{\"url\":\"http://a\",\"json\":null,\"body\":\"x\"}", "inputs.json and inputs.body exclude each other"},
        {"{\"url\":\"http://a\",\"body\":{}}", "inputs.body must be a text; use inputs.json for anything else"},
        {"{\"url\":\"http://a\",\"headers\":[]}", "inputs.headers must be an object: the names and their texts"},
        {"{\"url\":\"http://a\",\"headers\":{\"X\":1}}", "inputs.headers.X must be a text of one line"},
        {"{\"url\":\"http://a\",\"headers\":{\"X\":\"a\\r\\nY: b\"}}", "inputs.headers.X must be a text of one line"},
        {"{\"url\":\"http://a\",\"headers\":{\"X: Y\":\"\"}}", "inputs.headers: 'X: Y' is no name of a header"},
        {"{\"url\":\"http://a\",\"headers\":{\"\":\"\"}}", "inputs.headers: '' is no name of a header"},
        {"{\"url\":\"http://a\",\"headers\":{\"content-length\":\"1\"}}",
         "inputs.headers.content-length is set by Capstan itself"},
        {"{\"url\":\"http://a\",\"expect_status\":\"200\"}",
         "inputs.expect_status must be a status from 100 to 599, or a list of such"},
        {"{\"url\":\"http://a\",\"expect_status\":[]}",
         "inputs.expect_status must be a status from 100 to 599, or a list of such"},
        {"{\"url\":\"http://a\",\"expect_status\":[200,1000]}",
         "inputs.expect_status must be a status from 100 to 599, or a list of such"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        expect_failure(fixture_run(&f, "http", pairs[i][0]), pairs[i][1], true);
    }
    struct exec_outcome out = fixture_run(&f, "http", "{\"url\":\"http://a/b c\"}");
    CHECK(out.not_retryable);
    CHECK_MEM(out.message.data, "inputs.url is not valid: ", 25);
    exec_outcome_deinit(&out);
    fixture_close(&f);
}

TEST(redirects_are_followed)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    expect_success(fetch(&f, "{\"url\":\"http://127.0.0.1:@/to/302/http://127.0.0.1:@/to/301/http://127.0.0.1:@/to/307/"
                             "http://127.0.0.1:@/to/308//status/200\"}"),
                   "{\"status\":200,\"headers\":{\"content-length\":\"4\"},\"body\":\"told\"}");
    CHECK_INT(server_requests(server), 5);
    expect_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/to/302//to/302//to/302//to/302//to/302//to/302//json\"}"),
                   "inputs.url: more than 5 redirects", true);
    expect_port_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/to/302/\"}"), "GET http://127.0.0.1:@: status 302",
                        true);
    server_close(server);
    fixture_close(&f);
}

TEST(a_redirect_leads_nowhere_but_to_http)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    expect_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/to/302/file:///etc/passwd\"}"),
                   "inputs.url: a redirect to 'file:///etc/passwd' is refused: it is neither http nor https", true);
    server_close(server);
    fixture_close(&f);
}

/* What comes of a request with this method, redirected with this status. */
static void check_method_after(const char *method, int status, const char *expected, const char *body)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    char inputs[256];
    char first[64];
    snprintf(inputs, sizeof(inputs), "{\"url\":\"http://127.0.0.1:%d/to/%d//status/200\",\"method\":\"%s\",\"json\":1}",
             server_port(server), status, method);
    snprintf(first, sizeof(first), "%s /status/200 HTTP/1.1\r\n", expected);
    struct exec_outcome out = fixture_run(&f, "http", inputs);
    CHECK(out.is_success);
    exec_outcome_deinit(&out);
    const char *const without[] = {"!Content-Type", "!Content-Length", NULL};
    check_request(first, *body == '\0' ? without : NULL, body);
    server_close(server);
    fixture_close(&f);
}

TEST(a_redirect_changes_the_method_as_browsers_do)
{
    check_method_after("POST", 301, "GET", "");
    check_method_after("POST", 302, "GET", "");
    check_method_after("POST", 303, "GET", "");
    check_method_after("POST", 307, "POST", "1");
    check_method_after("POST", 308, "POST", "1");
    check_method_after("PUT", 302, "PUT", "1");
    check_method_after("PUT", 303, "GET", "");
    check_method_after("DELETE", 303, "GET", "");
}

TEST(headers_of_the_task_go_to_no_other_origin)
{
    struct fixture f = fixture_open(NULL);
    struct server *first = server_open();
    server = server_open();
    char inputs[512];
    snprintf(inputs, sizeof(inputs),
             "{\"url\":\"http://user:pass@127.0.0.1:%d/to/307/http://127.0.0.1:%d/status/200\",\"json\":1,\"headers\":"
             "{\"Cookie\":\"c\",\"X-Api-Key\":\"k\",\"Accept\":\"text/x\",\"Host\":\"elsewhere\"}}",
             server_port(first), server_port(server));
    struct exec_outcome out = fixture_run(&f, "http", inputs);
    CHECK(out.is_success);
    exec_outcome_deinit(&out);
    const char *const lines[] = {"Accept: text/x",
                                 "Content-Type: application/json",
                                 "!Authorization",
                                 "!Cookie",
                                 "!X-Api-Key",
                                 "!elsewhere",
                                 NULL};
    check_request("POST /status/200 HTTP/1.1\r\n", lines, "1");
    char *request = server_last(first);
    CHECK(has_line(request, "Authorization: Basic dXNlcjpwYXNz"));
    CHECK(has_line(request, "Cookie: c"));
    mem_free(request);
    server_close(server);
    server_close(first);
    fixture_close(&f);
}

TEST(headers_of_the_task_stay_within_one_origin)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    struct exec_outcome out =
        fetch(&f, "{\"url\":\"http://127.0.0.1:@/to/302//status/200\",\"headers\":{\"X-Api-Key\":\"k\"}}");
    CHECK(out.is_success);
    exec_outcome_deinit(&out);
    const char *const lines[] = {"X-Api-Key: k", NULL};
    check_request("GET /status/200 HTTP/1.1\r\n", lines, "");
    server_close(server);
    fixture_close(&f);
}

TEST(link_local_addresses_are_refused_however_they_are_written)
{
    struct fixture f = fixture_open(NULL);
    const char *const urls[][3] = {
        {"http://169.254.169.254/latest", "http://169.254.169.254", "169.254.169.254"},
        {"http://[::ffff:169.254.169.254]/", "http://[::ffff:169.254.169.254]", "::ffff:169.254.169.254"},
        {"http://[::ffff:a9fe:a9fe]/", "http://[::ffff:169.254.169.254]", "::ffff:169.254.169.254"},
        {"http://2852039166/", "http://169.254.169.254", "169.254.169.254"},
        {"http://0xa9.0xfe.0xa9.0xfe/", "http://169.254.169.254", "169.254.169.254"},
        {"http://metadata.test/", "http://metadata.test", "169.254.169.254"},
        {"http://metadata6.test/", "http://metadata6.test", "::ffff:169.254.169.254"},
    };
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        char inputs[128];
        char message[256];
        snprintf(inputs, sizeof(inputs), "{\"url\":\"%s\"}", urls[i][0]);
        snprintf(message, sizeof(message), "inputs.url: %s leads to %s, a link-local address, which is refused",
                 urls[i][1], urls[i][2]);
        struct exec_outcome out = fixture_run(&f, "http", inputs);
        /* How curl writes the origin of an address differs between its versions; what matters is where it leads. */
        const char *leads = strstr(message, " leads to ");
        const char *actual = strstr(out.message.data, " leads to ");
        CHECK_STR(actual, leads);
        CHECK(out.not_retryable);
        exec_outcome_deinit(&out);
    }
    fixture_close(&f);
}

TEST(a_redirect_to_a_link_local_address_is_refused)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    expect_failure(
        fetch(&f, "{\"url\":\"http://127.0.0.1:@/to/302/http://169.254.169.254/latest/meta-data\"}"),
        "inputs.url: http://169.254.169.254 leads to 169.254.169.254, a link-local address, which is refused", true);
    expect_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/to/302/http://metadata.test/\"}"),
                   "inputs.url: http://metadata.test leads to 169.254.169.254, a link-local address, which is refused",
                   true);
    server_close(server);
    fixture_close(&f);
}

TEST(a_name_that_means_something_else_the_second_time_is_refused_then)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    struct exec_outcome out = fetch(&f, "{\"url\":\"http://rebind.test:@/status/200\"}");
    CHECK(out.is_success);
    exec_outcome_deinit(&out);
    expect_port_failure(
        fetch(&f, "{\"url\":\"http://rebind.test:@/status/200\"}"),
        "inputs.url: http://rebind.test:@ leads to 169.254.169.254, a link-local address, which is refused", true);
    server_close(server);
    fixture_close(&f);
}

TEST(of_the_addresses_of_a_name_the_allowed_ones_are_used)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    struct exec_outcome out = fetch(&f, "{\"url\":\"http://mixed.test:@/status/200\"}");
    CHECK(out.is_success);
    exec_outcome_deinit(&out);
    server_close(server);
    fixture_close(&f);
}

TEST(private_addresses_are_refused_where_the_worker_says_so)
{
    struct exec_options options = {.http_deny_private = true};
    struct fixture f = fixture_open(&options);
    server = server_open();
    expect_port_failure(fetch(&f, "{\"url\":\"http://127.0.0.1:@/json\"}"),
                        "inputs.url: http://127.0.0.1:@ leads to 127.0.0.1, a private address, which is refused", true);
    expect_port_failure(fetch(&f, "{\"url\":\"http://local.test:@/json\"}"),
                        "inputs.url: http://local.test:@ leads to 127.0.0.1, a private address, which is refused",
                        true);
    expect_failure(fixture_run(&f, "http", "{\"url\":\"http://private.test\"}"),
                   "inputs.url: http://private.test leads to 10.1.2.3, a private address, which is refused", true);
    expect_failure(fixture_run(&f, "http", "{\"url\":\"http://[::1]/\"}"),
                   "inputs.url: http://[::1] leads to ::1, a private address, which is refused", true);
    CHECK_INT(server_requests(server), 0);
    server_close(server);
    fixture_close(&f);
}

TEST(a_proxy_of_the_environment_is_not_used)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    char proxy[64];
    snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", server_port(server));
    CHECK_INT(setenv("http_proxy", proxy, 1), 0);
    CHECK_INT(setenv("ALL_PROXY", proxy, 1), 0);
    expect_failure(
        fixture_run(&f, "http", "{\"url\":\"http://169.254.169.254/\"}"),
        "inputs.url: http://169.254.169.254 leads to 169.254.169.254, a link-local address, which is refused", true);
    CHECK_INT(unsetenv("http_proxy"), 0);
    CHECK_INT(unsetenv("ALL_PROXY"), 0);
    CHECK_INT(server_requests(server), 0);
    server_close(server);
    fixture_close(&f);
}

/* Checks that the body of the result is cut, and how long it is; ends the outcome. */
static size_t length_of_cut_body(struct exec_outcome out)
{
    CHECK(out.is_success);
    CHECK(out.result.n <= LIMIT_INLINE_RESULT_BYTES);
    struct json *root = NULL;
    CHECK_ERR(json_parse(out.result.data, out.result.n, &root, NULL), ERR_OK);
    CHECK(json_bool(json_get(root, "is_cut")));
    size_t n = 0;
    CHECK(json_text(json_get(root, "body"), &n) != NULL);
    json_free(root);
    exec_outcome_deinit(&out);
    return n;
}

TEST(of_an_answer_without_an_end_only_as_much_is_fetched_as_fits)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    size_t n = length_of_cut_body(fetch(&f, "{\"url\":\"http://127.0.0.1:@/endless\"}"));
    CHECK(n > 1000000);
    while (server_desertions(server) == 0) {
        pause_ms(1);
    }
    server_close(server);
    fixture_close(&f);
}

TEST(an_answer_that_is_compressed_is_not_unpacked)
{
    struct fixture f = fixture_open(NULL);
    struct json *root = NULL;
    server = server_open();
    struct exec_outcome out =
        fetch(&f, "{\"url\":\"http://127.0.0.1:@/packed\",\"headers\":{\"Accept-Encoding\":\"gzip\"}}");
    CHECK(out.is_success);
    CHECK_ERR(json_parse(out.result.data, out.result.n, &root, NULL), ERR_OK);
    CHECK(json_get(root, "json") == NULL); /* a few bytes could become any number of them */
    CHECK(json_text(json_get(root, "body"), NULL) != NULL);
    CHECK_STR(json_text(json_get(json_get(root, "headers"), "content-encoding"), NULL), "gzip");
    json_free(root);
    exec_outcome_deinit(&out);
    server_close(server);
    fixture_close(&f);
}

TEST(an_answer_that_grows_as_json_is_cut_to_fit)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    size_t n = length_of_cut_body(fetch(&f, "{\"url\":\"http://127.0.0.1:@/quotes\"}"));
    CHECK(n > 500000);
    CHECK(n < 1048576 / 2);
    server_close(server);
    fixture_close(&f);
}

static bool has_asked(const struct fixture *f)
{
    UNUSED(f);
    return server_requests(server) > 0;
}

TEST(a_request_that_is_stopped_ends_at_once)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    char inputs[128];
    snprintf(inputs, sizeof(inputs), "{\"url\":\"http://127.0.0.1:%d/silence\"}", server_port(server));
    struct exec_task task = task_with(inputs);
    int64_t took_ms = 0;
    struct exec_outcome out = fixture_stop(&f, "http", &task, STOP_CANCELED, has_asked, &took_ms);
    CHECK(took_ms < 5000); /* nobody would ever have answered */
    expect_failure(out, "stopped: canceled", false);
    server_close(server);
    fixture_close(&f);
}

TEST(a_request_that_takes_too_long_has_timed_out)
{
    struct fixture f = fixture_open(NULL);
    server = server_open();
    char inputs[128];
    snprintf(inputs, sizeof(inputs), "{\"url\":\"http://127.0.0.1:%d/silence\"}", server_port(server));
    struct exec_task task = task_with(inputs);
    task.timeout_ms = 150;
    int64_t start_ms = clock_mono_ms();
    struct exec_outcome out = fixture_run_task(&f, "http", &task);
    CHECK(clock_mono_ms() - start_ms < 5000);
    expect_failure(out, "timed out after 150 ms", false);
    server_close(server);
    fixture_close(&f);
}

static bool has_asked_for_name(const struct fixture *f)
{
    UNUSED(f);
    return names_is_asked();
}

TEST(a_request_that_waits_for_a_name_can_be_stopped)
{
    struct fixture f = fixture_open(NULL);
    struct exec_task task = task_with("{\"url\":\"http://hangs.test/\"}");
    int64_t took_ms = 0;
    struct exec_outcome out = fixture_stop(&f, "http", &task, STOP_LEASE_LOST, has_asked_for_name, &took_ms);
    CHECK(took_ms < 5000); /* the name hangs for as long as the test wants */
    expect_failure(out, "stopped: the lease was lost", false);
    names_release();
    fixture_close(&f);
}

TEST(requests_leave_no_descriptor)
{
    int descriptors = count_descriptors();
    struct fixture f = fixture_open(NULL);
    server = server_open();
    for (int i = 0; i < 10; i++) {
        struct exec_outcome out = fetch(&f, "{\"url\":\"http://127.0.0.1:@/to/302//json\"}");
        CHECK(out.is_success);
        exec_outcome_deinit(&out);
    }
    server_close(server);
    fixture_close(&f);
    CHECK_INT(count_descriptors(), descriptors);
}
