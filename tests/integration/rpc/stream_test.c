/* Server streams: order, holding back, and both ends going away. */
#include <string.h>
#include <time.h>

#include "integration/rpc/loop.h"

static struct rpc_stream *open_stream(struct loop *loop, uint32_t n, uint32_t bytes)
{
    struct loop_request wanted = {.n = n, .bytes = bytes};
    struct rpc_request request = {.path = "/t/Stream", .bytes = &wanted, .n = sizeof(wanted)};
    struct rpc_stream *stream = NULL;
    CHECK_ERR(rpc_stream_open(loop->channel, &request, &stream, &loop->e), ERR_OK);
    return stream;
}

TEST(ten_thousand_messages_arrive_in_order_and_then_the_end)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_stream *stream = open_stream(&loop, 10000, 100);
    struct buf out = {0};
    bool ended = false;
    for (uint32_t i = 0; i < 10000; i++) {
        CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
        CHECK(!ended);
        CHECK_UINT(out.n, 100); /* each replaces the one before */
        uint32_t number;
        memcpy(&number, out.data, sizeof(number));
        CHECK_UINT(number, i);
    }
    for (int i = 0; i < 2; i++) { /* the end stays the end */
        ended = false;
        CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
        CHECK(ended);
    }
    rpc_stream_close(stream);
    CHECK(loop_await(&loop, &loop.n_streams_ended, 1));
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_stream_without_messages_ends_well)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_stream *stream = open_stream(&loop, 0, 4);
    struct buf out = {0};
    bool ended = false;
    CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
    CHECK(ended);
    rpc_stream_close(stream);
    rpc_stream_close(NULL);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_reader_may_wait_in_vain_and_misses_nothing)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_stream *stream = NULL;
    struct buf out = {0};
    bool ended = false;
    CHECK_ERR(rpc_stream_open(loop.channel, &(struct rpc_request){.path = "/t/Hold"}, &stream, &loop.e), ERR_OK);
    CHECK(loop_await(&loop, &loop.n_held, 1));
    CHECK(!rpc_stream_wait(stream, 0));
    CHECK(!rpc_stream_wait(stream, 20));
    rpc_call_reply(loop_take(&loop), "late", 4);
    CHECK(rpc_stream_wait(stream, 20000));
    CHECK(rpc_stream_wait(stream, 0)); /* it stays there */
    CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
    CHECK(!ended);
    CHECK_STR(out.data, "late");
    CHECK(rpc_stream_wait(stream, 20000)); /* the end, too */
    CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
    CHECK(ended);
    CHECK(rpc_stream_wait(stream, 0));
    rpc_stream_close(stream);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_stream_can_be_closed_while_a_message_is_asked_for_or_there)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_stream *stream = NULL;
    CHECK_ERR(rpc_stream_open(loop.channel, &(struct rpc_request){.path = "/t/Hold"}, &stream, &loop.e), ERR_OK);
    CHECK(!rpc_stream_wait(stream, 0));
    rpc_stream_close(stream);
    stream = open_stream(&loop, 10, 1000);
    CHECK(rpc_stream_wait(stream, 20000));
    rpc_stream_close(stream);
    loop_close(&loop);
}

TEST(large_messages_of_a_stream_arrive_whole)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_stream *stream = open_stream(&loop, 5, 20 * 1024 * 1024);
    struct buf out = {0};
    bool ended = false;
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
        CHECK_UINT(out.n, 20 * 1024 * 1024);
    }
    rpc_stream_close(stream);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_slow_reader_holds_the_sender_back)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_stream *stream = open_stream(&loop, 10000, 64 * 1024);
    struct buf out = {0};
    bool ended = false;
    CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
    CHECK(!loop_await_ms(&loop, &loop.n_sent, 256, 1000)); /* 16 MiB would be more than windows and sockets hold */
    uint32_t sent = loop_read(&loop, &loop.n_sent);
    CHECK(sent >= 1);
    for (uint32_t i = 0; i < 2 * sent; i++) { /* and goes on when it reads */
        CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
    }
    CHECK(loop_read(&loop, &loop.n_sent) > sent);
    rpc_stream_close(stream);
    CHECK(loop_await(&loop, &loop.n_streams_lost, 1));
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(the_server_notices_that_a_stream_is_closed)
{
    struct loop loop;
    loop_open(&loop);
    for (uint32_t i = 0; i < 50; i++) { /* at different moments, from before its beginning on */
        struct rpc_stream *stream = open_stream(&loop, UINT32_MAX, 1000);
        struct buf out = {0};
        bool ended = false;
        for (uint32_t k = 0; k < i; k++) {
            CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
        }
        rpc_stream_close(stream);
        buf_deinit(&out);
    }
    CHECK(loop_await(&loop, &loop.n_streams_lost, 49)); /* the first one may have vanished before it was a call */
    loop_close(&loop);
}

TEST(a_cancel_ends_a_stream_that_waits)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_cancel *cancel = rpc_cancel_new();
    struct rpc_request request = {.path = "/t/Hold", .cancel = cancel};
    struct rpc_stream *stream = NULL;
    CHECK_ERR(rpc_stream_open(loop.channel, &request, &stream, &loop.e), ERR_OK);
    CHECK(loop_await(&loop, &loop.n_held, 1));
    rpc_cancel_fire(cancel);
    struct buf out = {0};
    bool ended = false;
    for (int i = 0; i < 2; i++) {
        CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_CANCELED);
        CHECK(!ended);
    }
    rpc_stream_close(stream);
    rpc_cancel_free(cancel);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_streams_deadline_is_kept)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_request request = {.path = "/t/Hold", .timeout_ms = 100};
    struct rpc_stream *stream = NULL;
    CHECK_ERR(rpc_stream_open(loop.channel, &request, &stream, &loop.e), ERR_OK);
    struct buf out = {0};
    bool ended = false;
    CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_DEADLINE);
    rpc_stream_close(stream);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_stream_can_fail_and_says_why)
{
    struct loop loop;
    loop_open(&loop);
    struct error failure = {0};
    error_set(&failure, ERR_DATA_LOSS, "the partition is gone");
    error_hint(&failure, "run it again");
    CHECK_ERR(loop_call_failing(&loop, &failure, "l:1", NULL), ERR_DATA_LOSS); /* the stream fails in the same way */
    struct rpc_stream *stream = NULL;
    struct rpc_trailer trailer;
    loop.e = (struct error){0};
    CHECK_ERR(rpc_stream_open(loop.channel, &(struct rpc_request){.path = "/t/Fail"}, &stream, &loop.e), ERR_OK);
    struct buf out = {0};
    bool ended = false;
    CHECK_ERR(rpc_stream_next(stream, &out, &ended, &trailer, &loop.e), ERR_DATA_LOSS);
    CHECK_STR(loop.e.message, "the partition is gone");
    CHECK_STR(loop.e.hint, "run it again");
    CHECK_STR(trailer.leader, "l:1");
    rpc_stream_close(stream);
    buf_deinit(&out);
    loop_close(&loop);
}

/* A stream that another thread fails while it is sending without a pause. */
static atomic_uint n_after_end;
static atomic_bool has_ended;

static void send_without_end(void *context, struct rpc_call *call, bool ok)
{
    UNUSED(ok);
    if (atomic_load(&has_ended)) {
        atomic_fetch_add(&n_after_end, 1);
        return;
    }
    rpc_call_send(call, "0123456789", 10, send_without_end, context);
}

static void flood(void *context, struct rpc_call *call)
{
    struct loop *loop = context;
    rpc_call_send(call, "0123456789", 10, send_without_end, loop);
    pthread_mutex_lock(&loop->lock);
    loop->held[loop->n_held++] = call;
    pthread_cond_broadcast(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
}

TEST(a_stream_can_be_failed_by_another_thread_while_it_is_sending)
{
    static const struct rpc_method methods[] = {{"/t/Flood", flood}};
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.methods = methods;
    options.n_methods = 1;
    loop_open_with(&loop, &options);
    struct error e = {0};
    error_set(&e, ERR_EXHAUSTED, "enough");
    struct buf out = {0};
    for (int i = 0; i < 200; i++) {
        struct rpc_stream *stream = NULL;
        bool ended = false;
        atomic_store(&has_ended, false);
        CHECK_ERR(rpc_stream_open(loop.channel, &(struct rpc_request){.path = "/t/Flood"}, &stream, &loop.e), ERR_OK);
        CHECK(loop_await(&loop, &loop.n_held, 1));
        for (int k = 0; k < i % 5; k++) {
            CHECK_ERR(rpc_stream_next(stream, &out, &ended, NULL, &loop.e), ERR_OK);
        }
        rpc_call_fail(loop_take(&loop), &e, NULL);
        atomic_store(&has_ended, true); /* from here on nothing may be called */
        enum err err = ERR_OK;
        while (err == ERR_OK) {
            err = rpc_stream_next(stream, &out, &ended, NULL, &loop.e);
        }
        CHECK_ERR(err, ERR_EXHAUSTED);
        rpc_stream_close(stream);
    }
    CHECK_UINT(atomic_load(&n_after_end), 0);
    buf_deinit(&out);
    loop_close(&loop);
}
