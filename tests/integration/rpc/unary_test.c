/* Calls with one answer: what comes across, what is refused, and how a waiting caller gets away. */
#include <stdlib.h>
#include <string.h>

#include "integration/rpc/loop.h"

static char *bytes_of(size_t n)
{
    char *bytes = mem_alloc(n);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (char)(i * 7 + i / 251);
    }
    return bytes;
}

static void check_echo(struct loop *loop, size_t n)
{
    struct buf out = {0};
    char *bytes = bytes_of(n);
    buf_text(&out, "before");
    CHECK_ERR(loop_call(loop, "/t/Echo", bytes, n, &out), ERR_OK);
    CHECK_UINT(out.n, n + 6);
    CHECK_MEM(out.data, "before", 6); /* the answer is appended */
    CHECK(memcmp(out.data + 6, bytes, n) == 0);
    mem_free(bytes);
    buf_deinit(&out);
}

TEST(an_answer_has_the_bytes_that_the_handler_gave)
{
    struct loop loop;
    loop_open(&loop);
    check_echo(&loop, 0);
    check_echo(&loop, 1);
    check_echo(&loop, 23);
    check_echo(&loop, 24);
    check_echo(&loop, 10000);
    check_echo(&loop, 1024 * 1024);
    check_echo(&loop, 60 * 1024 * 1024);
    loop_close(&loop);
}

TEST(a_request_over_the_servers_limit_is_refused_and_the_connection_goes_on)
{
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.message_bytes_max = 1024 * 1024;
    loop_open_with(&loop, &options);
    struct buf out = {0};
    char *bytes = bytes_of(10 * 1024 * 1024);
    CHECK_ERR(loop_call(&loop, "/t/Echo", bytes, 1024 * 1024, &out), ERR_OK);
    buf_reset(&out);
    CHECK_ERR(loop_call(&loop, "/t/Echo", bytes, 1024 * 1024 + 1, &out), ERR_EXHAUSTED);
    CHECK_ERR(loop_call(&loop, "/t/Echo", bytes, 10 * 1024 * 1024, &out), ERR_EXHAUSTED);
    CHECK_UINT(out.n, 0);
    CHECK_ERR(loop_call(&loop, "/t/Echo", "x", 1, &out), ERR_OK);
    mem_free(bytes);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(without_a_limit_of_its_own_a_server_takes_64_mib)
{
    struct loop loop;
    loop_open(&loop);
    size_t limit = (size_t)64 * 1024 * 1024;
    char *bytes = bytes_of(limit + 1);
    struct buf out = {0};
    CHECK_ERR(loop_call(&loop, "/t/Echo", bytes, limit, &out), ERR_OK);
    CHECK_UINT(out.n, limit);
    CHECK_ERR(loop_call(&loop, "/t/Echo", bytes, limit + 1, &out), ERR_EXHAUSTED);
    mem_free(bytes);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(an_answer_over_the_clients_limit_is_refused)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_channel *small = NULL;
    struct rpc_channel_options options = {.target = rpc_server_address(loop.server), .message_bytes_max = 1000};
    CHECK_ERR(rpc_channel_open(&options, &small, &loop.e), ERR_OK);
    char bytes[1001] = {0};
    struct buf out = {0};
    struct rpc_request request = {.path = "/t/Echo", .bytes = bytes, .n = 1000};
    CHECK_ERR(rpc_unary(small, &request, &out, NULL, &loop.e), ERR_OK);
    request.n = 1001;
    CHECK_ERR(rpc_unary(small, &request, &out, NULL, &loop.e), ERR_EXHAUSTED);
    CHECK_UINT(out.n, 1000);
    buf_deinit(&out);
    rpc_channel_close(small);
    loop_close(&loop);
}

TEST(an_unknown_method_is_an_error_that_says_so)
{
    struct loop loop;
    loop_open(&loop);
    struct buf out = {0};
    static const char *const paths[] = {"/t/Nothing", "/t/Ech", "/t/Echoo", "/", "/a", "/z"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        CHECK_ERR(loop_call(&loop, paths[i], "", 0, &out), ERR_INTERNAL);
        CHECK_STR(loop.e.message, "there is no such method");
        CHECK(loop.e.hint[0] != '\0');
    }
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(each_error_code_comes_across_as_the_code_with_its_status)
{
    struct loop loop;
    loop_open(&loop);
    static const struct {
        enum err sent;
        enum err got;
    } codes[] = {
        {ERR_INVALID, ERR_INVALID},
        {ERR_NOT_FOUND, ERR_NOT_FOUND},
        {ERR_EXISTS, ERR_EXISTS},
        {ERR_PRECONDITION, ERR_PRECONDITION},
        {ERR_STALE, ERR_STALE},
        {ERR_BUSY, ERR_UNAVAILABLE},
        {ERR_EXHAUSTED, ERR_EXHAUSTED},
        {ERR_UNAVAILABLE, ERR_UNAVAILABLE},
        {ERR_DEADLINE, ERR_DEADLINE},
        {ERR_CANCELED, ERR_CANCELED},
        {ERR_FENCED, ERR_UNAVAILABLE},
        {ERR_DENIED, ERR_DENIED},
        {ERR_UNAUTHENTICATED, ERR_UNAUTHENTICATED},
        {ERR_DATA_LOSS, ERR_DATA_LOSS},
        {ERR_INTERNAL, ERR_INTERNAL},
        {ERR_OK, ERR_INTERNAL}, /* a failure without a code is still one */
    };
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        struct error failure = {0};
        error_set(&failure, codes[i].sent, "number %zu", i);
        CHECK_ERR(loop_call_failing(&loop, &failure, NULL, NULL), codes[i].got);
        CHECK_ERR(loop.e.code, codes[i].got);
        CHECK_STR(loop.e.message, failure.message);
        CHECK_STR(loop.e.hint, "");
    }
    loop_close(&loop);
}

TEST(message_hint_and_leader_come_across_byte_for_byte)
{
    struct loop loop;
    loop_open(&loop);
    struct buf out = {0};
    struct rpc_trailer trailer;
    struct error failure = {0};
    error_set(&failure, ERR_PRECONDITION, "line one\nline two: 50 %% of \"größe\" → %s", "100%41");
    error_hint(&failure, "ask the leader…\n(%s)", "50%");
    CHECK_ERR(loop_call_failing(&loop, &failure, "10.0.0.7:7400", &trailer), ERR_PRECONDITION);
    CHECK_STR(loop.e.message, failure.message);
    CHECK_STR(loop.e.hint, failure.hint);
    CHECK_STR(trailer.leader, "10.0.0.7:7400");
    CHECK_INT(trailer.staleness_ms, -1);

    struct rpc_request request = {.path = "/t/Fail"};
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, NULL, NULL), ERR_PRECONDITION); /* nobody has to look */
    request.path = "/t/Echo";
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, &trailer, &loop.e), ERR_OK);
    CHECK_STR(trailer.leader, "");
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_failure_without_a_text_gets_that_of_its_code)
{
    struct loop loop;
    loop_open(&loop);
    CHECK_ERR(loop_call_failing(&loop, &(struct error){.code = ERR_NOT_FOUND}, "", NULL), ERR_NOT_FOUND);
    CHECK_STR(loop.e.message, err_text(ERR_NOT_FOUND));
    loop_close(&loop);
}

TEST(the_longest_message_and_hint_come_across)
{
    struct loop loop;
    loop_open(&loop);
    struct buf text = {0};
    while (text.n < 10000) {
        buf_text(&text, "ü"); /* which gRPC writes as six bytes */
    }
    struct error failure = {0};
    error_set(&failure, ERR_INVALID, "%s", text.data);
    error_hint(&failure, "%s", text.data);
    CHECK_ERR(loop_call_failing(&loop, &failure, NULL, NULL), ERR_INVALID);
    CHECK(strlen(loop.e.message) > 4000);
    CHECK_STR(loop.e.message, failure.message);
    CHECK_STR(loop.e.hint, failure.hint);
    buf_deinit(&text);
    loop_close(&loop);
}

TEST(an_answer_can_say_how_old_it_is)
{
    struct loop loop;
    loop_open(&loop);
    struct buf out = {0};
    struct rpc_trailer trailer;
    struct rpc_request request = {.path = "/t/Stale"};
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, &trailer, &loop.e), ERR_OK);
    CHECK_INT(trailer.staleness_ms, 1234);
    request.path = "/t/Echo"; /* which may use the same call's memory */
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, &trailer, &loop.e), ERR_OK);
    CHECK_INT(trailer.staleness_ms, -1);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(the_token_reaches_the_handler)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_channel *channel = NULL;
    struct rpc_channel_options options = {.target = rpc_server_address(loop.server), .token = "s3cret-ABC"};
    CHECK_ERR(rpc_channel_open(&options, &channel, &loop.e), ERR_OK);
    struct buf out = {0};
    CHECK_ERR(rpc_unary(channel, &(struct rpc_request){.path = "/t/Token"}, &out, NULL, &loop.e), ERR_OK);
    CHECK_STR(out.data, "Bearer s3cret-ABC");
    buf_reset(&out);
    CHECK_ERR(loop_call(&loop, "/t/Token", "", 0, &out), ERR_OK); /* a channel without one */
    CHECK_STR(out.data, "none");
    rpc_channel_close(channel);
    buf_deinit(&out);

    channel = NULL;
    options.token = "two\nlines";
    CHECK_ERR(rpc_channel_open(&options, &channel, &loop.e), ERR_INVALID);
    CHECK(strstr(loop.e.message, "two") == NULL); /* tokens are never shown */
    CHECK(channel == NULL);
    loop_close(&loop);
}

TEST(a_call_that_takes_too_long_ends_at_its_deadline_on_both_sides)
{
    struct loop loop;
    loop_open(&loop);
    struct buf out = {0};
    int64_t from_ms = clock_mono_ms();
    struct rpc_request request = {.path = "/t/Hold", .timeout_ms = 200};
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, NULL, &loop.e), ERR_DEADLINE);
    CHECK(clock_mono_ms() - from_ms >= 100); /* not at once; gRPC's timers may be some milliseconds early */
    CHECK(loop_await(&loop, &loop.n_gone, 1));
    CHECK(rpc_call_is_gone(loop.held[0]));
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_cancel_that_has_fired_ends_calls_before_they_begin_until_it_is_reset)
{
    struct loop loop;
    loop_open(&loop);
    struct buf out = {0};
    struct rpc_cancel *cancel = rpc_cancel_new();
    struct rpc_request request = {.path = "/t/Echo", .cancel = cancel};
    rpc_cancel_fire(cancel);
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, NULL, &loop.e), ERR_CANCELED);
    struct rpc_stream *stream = NULL;
    CHECK_ERR(rpc_stream_open(loop.channel, &request, &stream, &loop.e), ERR_CANCELED);
    CHECK(stream == NULL);
    rpc_cancel_reset(cancel);
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, NULL, &loop.e), ERR_OK);
    rpc_cancel_fire(cancel); /* after all calls */
    rpc_cancel_free(cancel);
    rpc_cancel_free(NULL);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_cancel_ends_all_calls_that_wait_with_it_and_no_others)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_cancel *cancel = rpc_cancel_new();
    struct rpc_request request = {.path = "/t/Hold", .cancel = cancel};
    struct loop_caller callers[9] = {0};
    for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
        callers[i].loop = &loop;
        callers[i].request = request;
        callers[i].request.cancel = i < 8 ? cancel : NULL;
        loop_caller_start(&callers[i]);
    }
    CHECK(loop_await(&loop, &loop.n_held, ARRAY_LEN(callers)));
    rpc_cancel_fire(cancel);
    for (size_t i = 0; i < 8; i++) {
        CHECK_ERR(loop_caller_join(&callers[i]), ERR_CANCELED);
    }
    CHECK(loop_await(&loop, &loop.n_gone, 8));
    while (loop_read(&loop, &loop.n_held) > 0) {
        rpc_call_reply(loop_take(&loop), "", 0);
    }
    CHECK_ERR(loop_caller_join(&callers[8]), ERR_OK);
    CHECK_UINT(loop_read(&loop, &loop.n_gone), 8);
    rpc_cancel_free(cancel);
    loop_close(&loop);
}

static void *fire_and_reset(void *context)
{
    for (int i = 0; i < 300; i++) {
        rpc_cancel_fire(context);
        rpc_cancel_reset(context);
    }
    return NULL;
}

TEST(a_cancel_may_fire_at_any_moment_of_a_call)
{
    struct loop loop;
    loop_open(&loop);
    struct buf out = {0};
    struct rpc_cancel *cancel = rpc_cancel_new();
    struct rpc_request request = {.path = "/t/Echo", .bytes = "x", .n = 1, .cancel = cancel};
    for (int round = 0; round < 5; round++) {
        pthread_t thread;
        CHECK_INT(pthread_create(&thread, NULL, fire_and_reset, cancel), 0);
        for (int i = 0; i < 100; i++) {
            enum err err = rpc_unary(loop.channel, &request, &out, NULL, &loop.e);
            CHECK(err == ERR_OK || err == ERR_CANCELED);
        }
        pthread_join(thread, NULL);
    }
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, NULL, &loop.e), ERR_OK);
    rpc_cancel_free(cancel);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(many_threads_call_over_one_channel)
{
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.pollers = 3;
    loop_open_with(&loop, &options);
    struct loop_caller callers[16];
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
            callers[i] = (struct loop_caller){.loop = &loop, .request = {.path = "/t/Echo", .bytes = "abc", .n = 3}};
            loop_caller_start(&callers[i]);
        }
        for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
            CHECK_ERR(loop_caller_join(&callers[i]), ERR_OK);
        }
    }
    loop_close(&loop);
}

TEST(what_is_no_address_is_refused)
{
    struct loop loop = {0};
    static const char *const wrong[] = {"",        "127.0.0.1", ":7400",       "host:",    "host:x",
                                        "h:70000", "h:-1",      "unix:/tmp/x", "a b:1",    "::1:7400",
                                        "[]:1",    "[::1]",     "http://h:80", "h:1/path", "h:123456"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct rpc_channel *channel = NULL;
        struct rpc_server *server = NULL;
        struct rpc_server_options options = loop_options(&loop);
        options.listen = wrong[i];
        CHECK_ERR(rpc_channel_open(&(struct rpc_channel_options){.target = wrong[i]}, &channel, &loop.e), ERR_INVALID);
        CHECK_ERR(rpc_server_open(&options, &server, &loop.e), ERR_INVALID);
        CHECK(channel == NULL && server == NULL);
    }
    struct rpc_channel *channel = NULL;
    CHECK_ERR(rpc_channel_open(&(struct rpc_channel_options){.target = "127.0.0.1:0"}, &channel, &loop.e), ERR_INVALID);
}
