#include <grpc/byte_buffer.h>

#include "rpc/rpc_internal.h"

enum err rpc_unary(struct rpc_channel *channel, const struct rpc_request *request, struct buf *out,
                   struct rpc_trailer *trailer, struct error *e)
{
    struct rpc__outgoing o;
    rpc__trailer_read(NULL, trailer);
    enum err err = rpc__outgoing_open(&o, channel, request, e);
    if (err != ERR_OK) {
        return err;
    }
    grpc_byte_buffer *answer = NULL;
    grpc_op ops[6];
    rpc__outgoing_begin(&o, request, ops);
    ops[4] = (grpc_op){.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &answer};
    ops[5] = rpc__outgoing_status(&o);
    rpc__outgoing_start(&o, ops, ARRAY_LEN(ops), &o);
    rpc__outgoing_wait(&o, &o);
    err = rpc__outgoing_read(&o, trailer, e);
    if (err == ERR_OK && answer == NULL) {
        err = error_set(e, ERR_INTERNAL, "the server sent no answer");
    }
    if (err == ERR_OK) {
        rpc__message_append(answer, out);
    }
    if (answer != NULL) {
        grpc_byte_buffer_destroy(answer);
    }
    rpc__outgoing_close(&o);
    return err;
}
