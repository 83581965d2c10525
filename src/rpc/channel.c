/*
 * channel.c - a client's connection, and what each call on it begins and ends with.
 *
 * A call waits in a completion queue of its own ("pluck"): its thread does the reading from the socket itself and no
 * other thread has to be woken. Queues are kept and used again, because making one costs more than a call.
 *
 * gRPC's channel keeps the certificates that it was made with. So a new identity means a new one ("line") for the calls that
 * begin from then on; the one before lives until its last call has ended.
 */
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>

#include "base/buf.h"
#include "base/mem.h"
#include "rpc/rpc_internal.h"

static enum err make_bearer(const char *token, grpc_slice *out, struct error *e)
{
    struct buf text = {0};
    buf_format(&text, "Bearer %s", token);
    grpc_slice bearer = grpc_slice_from_copied_buffer(text.data, text.n);
    buf_deinit(&text);
    if (!grpc_header_nonbin_value_is_legal(bearer) || token[0] == '\0') {
        grpc_slice_unref(bearer);
        return error_set(e, ERR_INVALID, "the token holds characters that cannot be sent");
    }
    *out = bearer;
    return ERR_OK;
}

/* ---- lines ---- */

/* It does not connect yet. */
static struct rpc__line *line_new(const struct rpc_channel *channel)
{
    struct rpc__line *line = mem_calloc(1, sizeof(*line));
    struct rpc__args args;
    rpc__args_client(&args, channel->message_bytes_max);
    line->n_users = 1;
    if (channel->identity != NULL) {
        line->grpc = rpc__identity_connect(channel->identity, channel->target, &args, &line->version);
    } else {
        grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
        line->grpc = grpc_channel_create(channel->target, credentials,
                                         &(grpc_channel_args){.num_args = args.n, .args = args.items});
        grpc_channel_credentials_release(credentials);
    }
    return line;
}

/* One user less, with the channel's lock. Returns the line if that was the last: free it without the lock. */
static struct rpc__line *line_leave(struct rpc__line *line)
{
    ASSERT(line->n_users > 0);
    line->n_users--;
    return line->n_users == 0 ? line : NULL;
}

static void line_free(struct rpc__line *line)
{
    if (line != NULL) {
        grpc_channel_destroy(line->grpc);
        mem_free(line);
    }
}

/* ---- channels ---- */

static enum err take_identity(struct rpc_channel *channel, const struct rpc_channel_options *options, struct error *e)
{
    struct rpc_identity_pems pems = {
        .ca = options->tls_ca_pem, .cert = options->tls_cert_pem, .key = options->tls_key_pem};
    if (!options->tls) {
        return ERR_OK;
    }
    channel->identity = options->identity;
    channel->owns_identity = options->identity == NULL;
    return channel->owns_identity ? rpc_identity_open(&pems, &channel->identity, e) : ERR_OK;
}

enum err rpc_channel_open(const struct rpc_channel_options *options, struct rpc_channel **out, struct error *e)
{
    struct rpc__address address;
    enum err err = rpc__address_parse(options->target, &address, e);
    if (err == ERR_OK && address.port == 0) {
        err = error_set(e, ERR_INVALID, "'%s' has no port to connect to", options->target);
    }
    if (err != ERR_OK) {
        return err;
    }
    rpc__runtime_acquire();
    struct rpc_channel *channel = mem_calloc(1, sizeof(*channel));
    channel->bearer = grpc_empty_slice();
    channel->has_token = options->token != NULL;
    channel->message_bytes_max = options->message_bytes_max;
    if (channel->has_token) {
        err = make_bearer(options->token, &channel->bearer, e);
    }
    if (err == ERR_OK) {
        err = take_identity(channel, options, e);
    }
    if (err != ERR_OK) {
        grpc_slice_unref(channel->bearer);
        mem_free(channel);
        rpc__runtime_release();
        return err;
    }
    struct buf target = {0};
    buf_format(&target, "dns:///%s", options->target); /* else a host called "unix" would be a file */
    channel->target = mem_strdup(target.data);
    buf_deinit(&target);
    channel->line = line_new(channel);
    pthread_mutex_init(&channel->lock, NULL);
    rpc__ticker_acquire();
    *out = channel;
    return ERR_OK;
}

static void slot_free(struct rpc__slot *slot)
{
    grpc_completion_queue_shutdown(slot->cq);
    while (grpc_completion_queue_pluck(slot->cq, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
           GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(slot->cq);
    grpc_metadata_array_destroy(&slot->initial);
    grpc_metadata_array_destroy(&slot->trailing);
    mem_free(slot);
}

void rpc_channel_close(struct rpc_channel *channel)
{
    if (channel == NULL) {
        return;
    }
    ASSERT(channel->n_used == 0);
    while (channel->spare != NULL) {
        struct rpc__slot *slot = channel->spare;
        channel->spare = slot->next;
        slot_free(slot);
    }
    line_free(channel->line);
    if (channel->owns_identity) {
        rpc_identity_close(channel->identity);
    }
    grpc_slice_unref(channel->bearer);
    pthread_mutex_destroy(&channel->lock);
    mem_free(channel->target);
    mem_free(channel);
    rpc__ticker_release();
    rpc__runtime_release();
}

/* What a call needs: a slot, and the line with the present identity, which is made if there is none yet. */
static struct rpc__slot *slot_borrow(struct rpc_channel *channel, struct rpc__line **out_line)
{
    struct rpc__line *left = NULL;
    pthread_mutex_lock(&channel->lock);
    if (channel->identity != NULL && channel->line->version != rpc__identity_version(channel->identity)) {
        left = line_leave(channel->line);
        channel->line = line_new(channel);
    }
    channel->line->n_users++;
    *out_line = channel->line;
    channel->n_used++;
    struct rpc__slot *slot = channel->spare;
    if (slot != NULL) {
        channel->spare = slot->next;
    }
    pthread_mutex_unlock(&channel->lock);
    line_free(left);
    if (slot == NULL) {
        slot = mem_calloc(1, sizeof(*slot));
        slot->cq = grpc_completion_queue_create_for_pluck(NULL);
        grpc_metadata_array_init(&slot->initial);
        grpc_metadata_array_init(&slot->trailing);
    }
    return slot;
}

static void slot_return(struct rpc_channel *channel, struct rpc__slot *slot, struct rpc__line *line)
{
    slot->initial.count = 0;
    slot->trailing.count = 0;
    pthread_mutex_lock(&channel->lock);
    struct rpc__line *left = line_leave(line);
    slot->next = channel->spare;
    channel->spare = slot;
    channel->n_used--;
    pthread_mutex_unlock(&channel->lock);
    line_free(left);
}

static gpr_timespec deadline_of(const struct rpc_request *request)
{
    if (request->timeout_ms <= 0) {
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    }
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(request->timeout_ms, GPR_TIMESPAN));
}

enum err rpc__outgoing_open(struct rpc__outgoing *o, struct rpc_channel *channel, const struct rpc_request *request,
                            struct error *e)
{
    *o = (struct rpc__outgoing){.channel = channel, .cancel = request->cancel, .details = grpc_empty_slice()};
    o->slot = slot_borrow(channel, &o->line);
    grpc_slice path = grpc_slice_from_copied_string(request->path);
    o->call = grpc_channel_create_call(o->line->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, o->slot->cq, path, NULL,
                                       deadline_of(request), NULL);
    grpc_slice_unref(path);
    o->cancelable.call = o->call;
    if (!rpc__cancel_add(o->cancel, &o->cancelable)) {
        rpc__outgoing_close(o);
        return error_set(e, ERR_CANCELED, "%s", err_text(ERR_CANCELED));
    }
    grpc_slice bytes = grpc_slice_from_copied_buffer(request->bytes, request->n);
    o->request = grpc_raw_byte_buffer_create(&bytes, 1);
    grpc_slice_unref(bytes);
    return ERR_OK;
}

void rpc__outgoing_close(struct rpc__outgoing *o)
{
    rpc__cancel_remove(o->cancel, &o->cancelable);
    if (o->request != NULL) {
        grpc_byte_buffer_destroy(o->request);
    }
    grpc_slice_unref(o->details);
    grpc_call_unref(o->call);
    slot_return(o->channel, o->slot, o->line);
}

void rpc__outgoing_begin(struct rpc__outgoing *o, const struct rpc_request *request, grpc_op ops[4])
{
    o->metadata[0] = (grpc_metadata){.key = grpc_slice_from_static_string(RPC_TOKEN_KEY), .value = o->channel->bearer};
    uint32_t flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET;
    if (request->wait_for_ready) {
        flags |= GRPC_INITIAL_METADATA_WAIT_FOR_READY;
    }
    ops[0] = (grpc_op){
        .op = GRPC_OP_SEND_INITIAL_METADATA,
        .flags = flags,
        .data.send_initial_metadata = {.count = o->channel->has_token ? 1 : 0, .metadata = o->metadata},
    };
    ops[1] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = o->request};
    ops[2] = (grpc_op){.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    ops[3] = (grpc_op){.op = GRPC_OP_RECV_INITIAL_METADATA,
                       .data.recv_initial_metadata.recv_initial_metadata = &o->slot->initial};
}

grpc_op rpc__outgoing_status(struct rpc__outgoing *o)
{
    return (grpc_op){.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                     .data.recv_status_on_client = {
                         .trailing_metadata = &o->slot->trailing, .status = &o->status, .status_details = &o->details}};
}

void rpc__outgoing_start(struct rpc__outgoing *o, const grpc_op *ops, size_t n, void *tag)
{
    grpc_call_error error = grpc_call_start_batch(o->call, ops, n, tag, NULL);
    ASSERT(error == GRPC_CALL_OK);
}

bool rpc__outgoing_wait(struct rpc__outgoing *o, void *tag)
{
    grpc_event event = grpc_completion_queue_pluck(o->slot->cq, tag, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    ASSERT(event.type == GRPC_OP_COMPLETE);
    return event.success != 0;
}

bool rpc__outgoing_wait_until(struct rpc__outgoing *o, void *tag, gpr_timespec until)
{
    grpc_event event = grpc_completion_queue_pluck(o->slot->cq, tag, until, NULL);
    ASSERT(event.type == GRPC_OP_COMPLETE || event.type == GRPC_QUEUE_TIMEOUT);
    return event.type == GRPC_OP_COMPLETE;
}

enum err rpc__outgoing_read(const struct rpc__outgoing *o, struct rpc_trailer *trailer, struct error *e)
{
    rpc__trailer_read(&o->slot->trailing, trailer);
    return rpc__status_read(o->status, o->details, &o->slot->trailing, e);
}

void rpc__message_append(grpc_byte_buffer *message, struct buf *out)
{
    grpc_byte_buffer_reader reader;
    int opened = grpc_byte_buffer_reader_init(&reader, message);
    ASSERT(opened != 0);
    grpc_slice *piece = NULL;
    buf_append(out, NULL, 0);
    while (grpc_byte_buffer_reader_peek(&reader, &piece)) {
        buf_append(out, GRPC_SLICE_START_PTR(*piece), GRPC_SLICE_LENGTH(*piece));
    }
    grpc_byte_buffer_reader_destroy(&reader);
}
