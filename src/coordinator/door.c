/* The door for gRPC: messages as bytes, errors as statuses. */
#include "coordinator/service_internal.h"

static void reply(struct exchange *exchange, const void *message)
{
    struct buf bytes = {0};
    wire_encode(message, &bytes);
    rpc_call_reply(exchange->rpc, bytes.data, bytes.n);
    buf_deinit(&bytes);
}

static void fail(struct exchange *exchange, const struct error *e, const char *leader)
{
    rpc_call_fail(exchange->rpc, e, leader);
}

static void send_message(struct exchange *exchange, const void *message, rpc_sent_fn *sent, void *context)
{
    struct buf bytes = {0};
    wire_encode(message, &bytes);
    rpc_call_send(exchange->rpc, bytes.data, bytes.n, sent, context);
    buf_deinit(&bytes);
}

static void rest(struct exchange *exchange)
{
    UNUSED(exchange); /* its clients see a stream before its first message */
}

static void end(struct exchange *exchange)
{
    rpc_call_end(exchange->rpc);
}

static void on_gone(struct exchange *exchange, rpc_gone_fn *fn, void *context)
{
    rpc_call_on_gone(exchange->rpc, fn, context);
}

static bool is_gone(struct exchange *exchange)
{
    return rpc_call_is_gone(exchange->rpc);
}

const struct door door_grpc = {.reply = reply,
                               .fail = fail,
                               .send = send_message,
                               .rest = rest,
                               .end = end,
                               .on_gone = on_gone,
                               .is_gone = is_gone};
