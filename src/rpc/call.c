/*
 * call.c - a call as the server sees it.
 *
 * The life of a call: it is posted, gRPC fills it with somebody's request (on_new), the message arrives (on_message) and
 * the handler is called. From then on the call belongs to whoever the handler gave it to, until the end. Meanwhile two
 * things may come out of the queue: the transport took a message (on_sent), or the client is gone (on_close).
 *
 * `pending` counts what gRPC still owes us for the call. The call is over when it has been ended and nothing is pending;
 * then the poller takes it back. So a thread that ends a call may be sure that its memory stays until gRPC has
 * answered, and the poller may be sure that a call does not vanish under a callback of its own.
 *
 * The lock is for what ends and callbacks tell each other. An end first says `ended`, so that no callback begins any
 * more, then waits for the one that runs, unless it is called from inside it.
 */
#include <stdio.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "rpc/rpc_internal.h"

#define SPARE_MAX 1024

enum { ENDING_METADATA_MAX = 4 };

/* How a call ends; kept, because it may have to wait for a message that is being sent. */
struct ending {
    grpc_status_code status;
    grpc_slice details;
    grpc_byte_buffer *message;
    grpc_metadata metadata[ENDING_METADATA_MAX];
    size_t n_metadata;
};

struct rpc_call {
    struct rpc_call *next; /* among the spare ones */
    struct rpc_server *server;
    struct rpc__poller *poller;
    grpc_call *grpc;
    grpc_call_details details;
    grpc_metadata_array metadata;
    const struct rpc__method *method;
    grpc_byte_buffer *incoming;
    grpc_slice request;
    int canceled;
    struct rpc__tag tag_new;
    struct rpc__tag tag_message;
    struct rpc__tag tag_close;
    struct rpc__tag tag_gone;
    struct rpc__tag tag_sent;
    struct rpc__tag tag_end;

    pthread_mutex_t lock; /* for all below */
    pthread_cond_t quiet; /* no callback is running */
    uint32_t pending;
    bool is_gone;
    bool ended;
    bool end_waits; /* the thread that ends the call has not decided yet who sends the ending */
    bool sending;
    bool headers_sent;
    bool in_callback;
    pthread_t callback_thread;
    rpc_gone_fn *gone;
    void *gone_context;
    rpc_sent_fn *sent;
    void *sent_context;
    grpc_byte_buffer *outgoing;
    int64_t staleness_ms;
    const void *note; /* that admit left */
    char **texts;     /* metadata values as strings, made when somebody asks */
    char *peer;
    struct ending ending;
};

static void on_new(void *owner, bool ok);
static void on_message(void *owner, bool ok);
static void on_close(void *owner, bool ok);
static void on_gone(void *owner, bool ok);
static void on_sent(void *owner, bool ok);
static void on_end(void *owner, bool ok);

static struct rpc_call *call_new(struct rpc__poller *poller)
{
    struct rpc_call *call = mem_calloc(1, sizeof(*call));
    call->server = poller->server;
    call->poller = poller;
    call->tag_new = (struct rpc__tag){.fn = on_new, .owner = call};
    call->tag_message = (struct rpc__tag){.fn = on_message, .owner = call};
    call->tag_close = (struct rpc__tag){.fn = on_close, .owner = call};
    call->tag_gone = (struct rpc__tag){.fn = on_gone, .owner = call};
    call->tag_sent = (struct rpc__tag){.fn = on_sent, .owner = call};
    call->tag_end = (struct rpc__tag){.fn = on_end, .owner = call};
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    call->request = grpc_empty_slice();
    call->ending.details = grpc_empty_slice();
    call->staleness_ms = -1;
    pthread_mutex_init(&call->lock, NULL);
    pthread_cond_init(&call->quiet, NULL);
    return call;
}

static void call_free(struct rpc_call *call)
{
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    pthread_cond_destroy(&call->quiet);
    pthread_mutex_destroy(&call->lock);
    mem_free(call);
}

static void free_texts(struct rpc_call *call)
{
    for (size_t i = 0; call->texts != NULL && i < call->metadata.count; i++) {
        mem_free(call->texts[i]);
    }
    mem_free((void *)call->texts);
    call->texts = NULL;
    gpr_free(call->peer);
    call->peer = NULL;
}

static void free_ending(struct ending *ending)
{
    for (size_t i = 0; i < ending->n_metadata; i++) {
        grpc_slice_unref(ending->metadata[i].value);
    }
    if (ending->message != NULL) {
        grpc_byte_buffer_destroy(ending->message);
    }
    grpc_slice_unref(ending->details);
    *ending = (struct ending){.details = grpc_empty_slice()};
}

/* Lets go of everything that belonged to one use of the call, and keeps the rest for the next. */
static void call_recycle(struct rpc_call *call)
{
    struct rpc__poller *poller = call->poller;
    free_texts(call);
    free_ending(&call->ending);
    grpc_slice_unref(call->request);
    call->request = grpc_empty_slice();
    grpc_call_unref(call->grpc);
    call->grpc = NULL;
    grpc_call_details_destroy(&call->details);
    grpc_call_details_init(&call->details);
    call->metadata.count = 0;
    call->canceled = 0;
    call->is_gone = false;
    call->ended = false;
    call->headers_sent = false;
    call->gone = NULL;
    call->note = NULL;
    call->staleness_ms = -1;
    if (poller->n_spare < SPARE_MAX) {
        call->next = poller->spare;
        poller->spare = call;
        poller->n_spare++;
    } else {
        call_free(call);
    }
}

void rpc__call_free_spare(struct rpc__poller *poller)
{
    while (poller->spare != NULL) {
        struct rpc_call *call = poller->spare;
        poller->spare = call->next;
        call_free(call);
    }
}

void rpc__call_post(struct rpc__poller *poller)
{
    struct rpc_call *call = poller->spare;
    if (call != NULL) {
        poller->spare = call->next;
        poller->n_spare--;
    } else {
        call = call_new(poller);
    }
    grpc_call_error error = grpc_server_request_call(poller->server->grpc, &call->grpc, &call->details, &call->metadata,
                                                     poller->cq, poller->cq, &call->tag_new);
    ASSERT(error == GRPC_CALL_OK);
}

static void start_batch(struct rpc_call *call, const grpc_op *ops, size_t n, struct rpc__tag *tag)
{
    grpc_call_error error = grpc_call_start_batch(call->grpc, ops, n, tag, NULL);
    ASSERT(error == GRPC_CALL_OK);
}

/* Releases the lock. If that was the last thing to happen to the call, it is over. On the poller. */
static void settle(struct rpc_call *call)
{
    bool is_over = call->ended && call->pending == 0;
    pthread_mutex_unlock(&call->lock);
    if (is_over) {
        struct rpc_server *server = call->server;
        call_recycle(call);
        rpc__server_call_is_over(server);
    }
}

static void callback_begin(struct rpc_call *call)
{
    call->in_callback = true;
    call->callback_thread = pthread_self();
    pthread_mutex_unlock(&call->lock);
}

static void callback_end(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    call->in_callback = false;
    pthread_cond_broadcast(&call->quiet);
}

/*
 * Sends what `ending` says. `pending` has been raised for it. The lock is held, so that the poller takes the call back only
 * after this thread has let go of it.
 */
static void send_ending(struct rpc_call *call)
{
    struct ending *ending = &call->ending;
    grpc_op ops[3];
    size_t n = 0;
    if (!call->headers_sent) {
        ops[n++] = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
    }
    if (ending->message != NULL) {
        ops[n++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = ending->message};
    }
    ops[n++] = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
                         .data.send_status_from_server = {.trailing_metadata_count = ending->n_metadata,
                                                          .trailing_metadata = ending->metadata,
                                                          .status = ending->status,
                                                          .status_details = &ending->details}};
    start_batch(call, ops, n, &call->tag_end);
}

/* The one way out, for any thread. `ending` has been filled. */
static void end(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    ASSERT(!call->ended);
    call->ended = true;
    call->pending++; /* for the ending; from here on, so that the call stays while we wait */
    call->end_waits = true;
    while (call->in_callback && !pthread_equal(call->callback_thread, pthread_self())) {
        pthread_cond_wait(&call->quiet, &call->lock);
    }
    call->end_waits = false;
    if (!call->sending) { /* else on_sent does it */
        send_ending(call);
    }
    pthread_mutex_unlock(&call->lock);
}

static grpc_byte_buffer *message_of(const void *bytes, size_t n)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(bytes, n);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return message;
}

static void add_metadata(struct rpc_call *call, const char *key, grpc_slice value)
{
    struct ending *ending = &call->ending;
    ASSERT(ending->n_metadata < ENDING_METADATA_MAX);
    ending->metadata[ending->n_metadata++] = (grpc_metadata){.key = grpc_slice_from_static_string(key), .value = value};
}

static void add_staleness(struct rpc_call *call)
{
    if (call->staleness_ms >= 0) {
        char text[24];
        snprintf(text, sizeof(text), "%lld", (long long)call->staleness_ms);
        add_metadata(call, RPC_STALENESS_KEY, grpc_slice_from_copied_string(text));
    }
}

/* Ends a call that no handler has seen. On the poller. */
static void refuse(struct rpc_call *call, grpc_status_code status, const char *text)
{
    call->ending.status = status;
    call->ending.details = grpc_slice_from_copied_string(text);
    end(call);
}

/* Lets the call in: from here on its message is read. */
static void receive(struct rpc_call *call)
{
    const struct rpc_server *server = call->server;
    struct error e = {0};
    if (server->admit != NULL &&
        server->admit(server->context, call->method->number, call, &call->note, &e) != ERR_OK) {
        rpc_call_fail(call, &e, NULL);
        return;
    }
    grpc_op message = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->incoming};
    call->pending++;
    start_batch(call, &message, 1, &call->tag_message);
}

static void on_new(void *owner, bool ok)
{
    struct rpc_call *call = owner;
    struct rpc_server *server = call->server;
    if (!ok) { /* the server is closing */
        call_free(call);
        return;
    }
    rpc__call_post(call->poller);
    uint32_t n_open = atomic_fetch_add(&server->n_open, 1);
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &call->canceled};
    call->pending = 1;
    start_batch(call, &close, 1, &call->tag_close);
    call->method = rpc__server_method(server, call->details.method);
    if (call->method == NULL) {
        refuse(call, GRPC_STATUS_UNIMPLEMENTED, "there is no such method");
    } else if (server->calls_max > 0 && n_open >= server->calls_max) {
        struct error e = {0};
        error_set(&e, ERR_EXHAUSTED, "too many calls are open");
        error_hint(&e, "try again when others have been answered");
        rpc_call_fail(call, &e, NULL);
    } else {
        receive(call);
    }
}

/* Makes one piece of what may have come in several, and lets go of the message. */
static grpc_slice take_bytes(grpc_byte_buffer *message)
{
    grpc_slice bytes = grpc_empty_slice();
    grpc_byte_buffer_reader reader;
    int opened = grpc_byte_buffer_reader_init(&reader, message);
    ASSERT(opened != 0);
    if (message->data.raw.slice_buffer.count == 1) {
        grpc_byte_buffer_reader_next(&reader, &bytes);
    } else if (message->data.raw.slice_buffer.count > 1) {
        bytes = grpc_byte_buffer_reader_readall(&reader);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(message);
    return bytes;
}

static void on_message(void *owner, bool ok)
{
    struct rpc_call *call = owner;
    grpc_byte_buffer *message = call->incoming;
    call->incoming = NULL;
    pthread_mutex_lock(&call->lock);
    call->pending--;
    pthread_mutex_unlock(&call->lock);
    if (message == NULL && ok) {
        refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "the request has no message");
    } else if (message == NULL) { /* too large, and gRPC has said so itself, or the client is gone */
        refuse(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "the request is too large");
    } else {
        call->request = take_bytes(message);
        call->method->handler(call->server->context, call);
    }
}

/* Tells whoever wants to know that the client is gone. The lock is held, before and after. */
static void tell_gone(struct rpc_call *call)
{
    if (call->is_gone && !call->ended && call->gone != NULL) {
        rpc_gone_fn *fn = call->gone;
        call->gone = NULL;
        callback_begin(call);
        fn(call->gone_context, call);
        callback_end(call);
    }
}

static void on_close(void *owner, bool ok)
{
    struct rpc_call *call = owner;
    pthread_mutex_lock(&call->lock);
    call->pending--;
    call->is_gone = !ok || call->canceled != 0;
    tell_gone(call);
    settle(call);
}

static void on_gone(void *owner, bool ok)
{
    UNUSED(ok);
    struct rpc_call *call = owner;
    pthread_mutex_lock(&call->lock);
    call->pending--;
    tell_gone(call);
    settle(call);
}

static void on_sent(void *owner, bool ok)
{
    struct rpc_call *call = owner;
    pthread_mutex_lock(&call->lock);
    grpc_byte_buffer_destroy(call->outgoing);
    call->outgoing = NULL;
    call->pending--;
    call->sending = false;
    if (call->ended) { /* there is an ending to be sent, by us unless its thread is about to look */
        if (!call->end_waits) {
            send_ending(call);
        }
        pthread_mutex_unlock(&call->lock);
        return;
    }
    rpc_sent_fn *fn = call->sent;
    callback_begin(call);
    fn(call->sent_context, call, ok);
    callback_end(call);
    settle(call);
}

static void on_end(void *owner, bool ok)
{
    UNUSED(ok);
    struct rpc_call *call = owner;
    pthread_mutex_lock(&call->lock);
    call->pending--;
    settle(call);
}

const void *rpc_call_bytes(const struct rpc_call *call, size_t *out_n)
{
    *out_n = GRPC_SLICE_LENGTH(call->request);
    return GRPC_SLICE_START_PTR(call->request);
}

const void *rpc_call_note(const struct rpc_call *call)
{
    return call->note;
}

static const char *text_of(struct rpc_call *call, size_t i)
{
    if (call->texts == NULL) {
        call->texts = mem_calloc(call->metadata.count, sizeof(*call->texts));
    }
    if (call->texts[i] == NULL) {
        grpc_slice value = call->metadata.metadata[i].value;
        size_t n = GRPC_SLICE_LENGTH(value);
        call->texts[i] = mem_alloc(n + 1);
        memcpy(call->texts[i], GRPC_SLICE_START_PTR(value), n);
        call->texts[i][n] = '\0';
    }
    return call->texts[i];
}

/* The two below remember what they made, hence the lock and the cast. */
const char *rpc_call_metadata(const struct rpc_call *call, const char *key)
{
    struct rpc_call *mutable = (struct rpc_call *)call;
    const char *text = NULL;
    pthread_mutex_lock(&mutable->lock);
    for (size_t i = 0; i < call->metadata.count && text == NULL; i++) {
        if (grpc_slice_str_cmp(call->metadata.metadata[i].key, key) == 0) {
            text = text_of(mutable, i);
        }
    }
    pthread_mutex_unlock(&mutable->lock);
    return text;
}

const char *rpc_call_peer(const struct rpc_call *call)
{
    struct rpc_call *mutable = (struct rpc_call *)call;
    pthread_mutex_lock(&mutable->lock);
    if (mutable->peer == NULL) {
        mutable->peer = grpc_call_get_peer(call->grpc);
    }
    pthread_mutex_unlock(&mutable->lock);
    return mutable->peer;
}

void rpc_call_on_gone(struct rpc_call *call, rpc_gone_fn *fn, void *context)
{
    pthread_mutex_lock(&call->lock);
    ASSERT(!call->ended);
    ASSERT(call->gone == NULL);
    call->gone = fn;
    call->gone_context = context;
    if (call->is_gone) { /* an empty batch comes out of the queue at once, on the poller */
        call->pending++;
        start_batch(call, NULL, 0, &call->tag_gone);
    }
    pthread_mutex_unlock(&call->lock);
}

bool rpc_call_is_gone(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    bool is_gone = call->is_gone;
    pthread_mutex_unlock(&call->lock);
    return is_gone;
}

void rpc_call_staleness(struct rpc_call *call, int64_t ms)
{
    ASSERT(ms >= 0);
    call->staleness_ms = ms;
}

void rpc_call_reply(struct rpc_call *call, const void *bytes, size_t n)
{
    call->ending.status = GRPC_STATUS_OK;
    call->ending.message = message_of(bytes, n);
    add_staleness(call);
    end(call);
}

void rpc_call_fail(struct rpc_call *call, const struct error *e, const char *leader)
{
    struct ending *ending = &call->ending;
    int status = err_grpc(e->code);
    ending->status = status == 0 ? GRPC_STATUS_INTERNAL : (grpc_status_code)status; /* OK is no failure */
    const char *text = e->message[0] != '\0' ? e->message : err_text(e->code);
    ending->details = grpc_slice_from_copied_string(text);
    if (leader != NULL && leader[0] != '\0') {
        add_metadata(call, RPC_LEADER_KEY, rpc__percent_encode(leader));
    }
    add_metadata(call, RPC_CODE_KEY, grpc_slice_from_static_string(err_name(e->code)));
    if (e->hint[0] != '\0') {
        add_metadata(call, RPC_HINT_KEY, rpc__percent_encode(e->hint));
    }
    add_staleness(call);
    end(call);
}

/* The message is the call's from now on. */
static void send_message(struct rpc_call *call, grpc_byte_buffer *message, rpc_sent_fn *sent, void *context)
{
    grpc_op ops[2];
    size_t n_ops = 0;
    pthread_mutex_lock(&call->lock);
    if (call->ended) { /* another thread is ending the call and waits for the callback that we are in */
        pthread_mutex_unlock(&call->lock);
        grpc_byte_buffer_destroy(message);
        return;
    }
    ASSERT(!call->sending);
    call->sending = true;
    call->sent = sent;
    call->sent_context = context;
    call->outgoing = message;
    if (!call->headers_sent) {
        ops[n_ops++] = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
    }
    call->headers_sent = true;
    ops[n_ops++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = call->outgoing};
    call->pending++;
    start_batch(call, ops, n_ops, &call->tag_sent);
    pthread_mutex_unlock(&call->lock);
}

void rpc_call_send(struct rpc_call *call, const void *bytes, size_t n, rpc_sent_fn *sent, void *context)
{
    send_message(call, message_of(bytes, n), sent, context);
}

void rpc_call_send_lent(struct rpc_call *call, const void *head, size_t n_head, const struct rpc_lent *body,
                        rpc_sent_fn *sent, void *context)
{
    grpc_slice slices[2] = {
        grpc_slice_from_copied_buffer(head, n_head),
        grpc_slice_new_with_user_data((void *)(uintptr_t)body->bytes, body->n, body->let_go, body->owner)};
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(slices, ARRAY_LEN(slices));
    grpc_slice_unref(slices[0]);
    grpc_slice_unref(slices[1]);
    send_message(call, message, sent, context);
}

void rpc_call_end(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    ASSERT(!call->sending);
    pthread_mutex_unlock(&call->lock);
    call->ending.status = GRPC_STATUS_OK;
    add_staleness(call);
    end(call);
}
