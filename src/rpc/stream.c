/*
 * stream.c - reading what a server sends message by message.
 *
 * Three things are under way on a stream, each with a tag of its own: the beginning, the status, which comes last, and
 * while somebody reads, a message. The next message is asked for only when somebody wants it; what the server sends
 * before that waits in the connection's window, and when that is full, at the server. Who waited in vain has asked: that
 * stays under way.
 */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>

#include "base/mem.h"
#include "rpc/rpc_internal.h"

struct rpc_stream {
    struct rpc__outgoing o;
    char begin_tag; /* only their addresses count */
    char status_tag;
    char message_tag;
    grpc_byte_buffer *message; /* that is there, and nobody has taken yet */
    bool is_asked;             /* for a message, which is not there yet */
    bool is_there;             /* it came; without a message: the status is next */
    bool has_ended;            /* the status is there */
};

enum err rpc_stream_open(struct rpc_channel *channel, const struct rpc_request *request, struct rpc_stream **out,
                         struct error *e)
{
    struct rpc_stream *stream = mem_calloc(1, sizeof(*stream));
    enum err err = rpc__outgoing_open(&stream->o, channel, request, e);
    if (err != ERR_OK) {
        mem_free(stream);
        return err;
    }
    grpc_op ops[4];
    rpc__outgoing_begin(&stream->o, request, ops);
    grpc_op status = rpc__outgoing_status(&stream->o);
    rpc__outgoing_start(&stream->o, &status, 1, &stream->status_tag);
    rpc__outgoing_start(&stream->o, ops, ARRAY_LEN(ops), &stream->begin_tag);
    *out = stream;
    return ERR_OK;
}

static void append_piece(void *context, const uint8_t *bytes, size_t n, size_t n_left)
{
    UNUSED(n_left);
    buf_append(context, bytes, n);
}

enum err rpc_stream_next(struct rpc_stream *stream, struct buf *out, bool *out_end, struct rpc_trailer *trailer,
                         struct error *e)
{
    buf_reset(out);
    buf_append(out, NULL, 0);
    return rpc_stream_next_pieces(stream, append_piece, out, out_end, trailer, e);
}

static void hand_out(grpc_byte_buffer *message, rpc_piece_fn *piece, void *context)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *slice = NULL;
    size_t n_left = grpc_byte_buffer_length(message);
    int opened = grpc_byte_buffer_reader_init(&reader, message);
    ASSERT(opened != 0);
    while (grpc_byte_buffer_reader_peek(&reader, &slice)) {
        n_left -= GRPC_SLICE_LENGTH(*slice);
        piece(context, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice), n_left);
    }
    grpc_byte_buffer_reader_destroy(&reader);
}

/* Asks for a message, unless that has been done. */
static void ask(struct rpc_stream *stream)
{
    if (!stream->is_asked && !stream->is_there) {
        grpc_op next = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &stream->message};
        rpc__outgoing_start(&stream->o, &next, 1, &stream->message_tag);
        stream->is_asked = true;
    }
}

/* True if it has come until then. */
static bool await_message(struct rpc_stream *stream, gpr_timespec until)
{
    if (stream->is_asked && rpc__outgoing_wait_until(&stream->o, &stream->message_tag, until)) {
        stream->is_asked = false;
        stream->is_there = true;
    }
    return stream->is_there;
}

bool rpc_stream_wait(struct rpc_stream *stream, int64_t timeout_ms)
{
    if (stream->has_ended) {
        return true;
    }
    ask(stream);
    gpr_timespec span = gpr_time_from_millis(timeout_ms, GPR_TIMESPAN);
    return await_message(stream, gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), span));
}

enum err rpc_stream_next_pieces(struct rpc_stream *stream, rpc_piece_fn *piece, void *context, bool *out_end,
                                struct rpc_trailer *trailer, struct error *e)
{
    rpc__trailer_read(NULL, trailer);
    if (!stream->has_ended) {
        ask(stream);
        await_message(stream, gpr_inf_future(GPR_CLOCK_MONOTONIC));
        stream->is_there = false;
        if (stream->message != NULL) {
            hand_out(stream->message, piece, context);
            grpc_byte_buffer_destroy(stream->message);
            stream->message = NULL;
            *out_end = false;
            return ERR_OK;
        }
        rpc__outgoing_wait(&stream->o, &stream->status_tag);
        stream->has_ended = true;
    }
    enum err err = rpc__outgoing_read(&stream->o, trailer, e);
    if (err == ERR_OK) {
        *out_end = true;
    }
    return err;
}

void rpc_stream_close(struct rpc_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    if (!stream->has_ended) {
        grpc_call_cancel(stream->o.call, NULL);
        await_message(stream, gpr_inf_future(GPR_CLOCK_MONOTONIC));
        rpc__outgoing_wait(&stream->o, &stream->status_tag);
    }
    if (stream->message != NULL) {
        grpc_byte_buffer_destroy(stream->message);
    }
    rpc__outgoing_wait(&stream->o, &stream->begin_tag);
    rpc__outgoing_close(&stream->o);
    mem_free(stream);
}
