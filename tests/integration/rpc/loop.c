#include "integration/rpc/loop.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define PATIENCE_MS 20000

static void echo(void *context, struct rpc_call *call)
{
    UNUSED(context);
    size_t n;
    const void *bytes = rpc_call_bytes(call, &n);
    rpc_call_reply(call, bytes, n);
}

static void refuse(void *context, struct rpc_call *call)
{
    struct loop *loop = context;
    pthread_mutex_lock(&loop->lock);
    struct error e = loop->failure;
    const char *leader = loop->leader;
    pthread_mutex_unlock(&loop->lock);
    rpc_call_fail(call, &e, leader);
}

static void count(struct loop *loop, uint32_t *counter)
{
    pthread_mutex_lock(&loop->lock);
    (*counter)++;
    pthread_cond_broadcast(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
}

static void forget_held(struct loop *loop, const struct rpc_call *call)
{
    for (uint32_t i = 0; i < loop->n_held; i++) {
        if (loop->held[i] == call) {
            loop->held[i] = loop->held[--loop->n_held];
        }
    }
}

static void on_gone(void *context, struct rpc_call *call)
{
    struct loop *loop = context;
    pthread_mutex_lock(&loop->lock);
    bool ends = loop->ends_when_gone;
    if (ends) {
        forget_held(loop, call);
    }
    pthread_mutex_unlock(&loop->lock);
    if (ends) {
        rpc_call_reply(call, "late", 4);
    }
    count(loop, &loop->n_gone);
}

static void hold(void *context, struct rpc_call *call)
{
    struct loop *loop = context;
    rpc_call_on_gone(call, on_gone, loop);
    pthread_mutex_lock(&loop->lock);
    ASSERT(loop->n_held < LOOP_HELD_MAX);
    loop->held[loop->n_held++] = call;
    pthread_cond_broadcast(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
}

static void token(void *context, struct rpc_call *call)
{
    UNUSED(context);
    const char *text = rpc_call_metadata(call, RPC_TOKEN_KEY);
    bool is_same = text == rpc_call_metadata(call, RPC_TOKEN_KEY); /* it is kept, so it may be looked at again */
    bool is_local = strstr(rpc_call_peer(call), "127.0.0.1:") != NULL;
    if (text == NULL || !is_same || !is_local) {
        text = "none";
    }
    rpc_call_reply(call, text, strlen(text));
}

static void stale(void *context, struct rpc_call *call)
{
    UNUSED(context);
    rpc_call_staleness(call, 1234);
    rpc_call_reply(call, "", 0);
}

struct flow {
    struct loop *loop;
    struct loop_request left;
    uint32_t next;
    char *message;
};

static void on_sent(void *context, struct rpc_call *call, bool ok)
{
    struct flow *flow = context;
    struct loop *loop = flow->loop;
    if (ok && flow->next > 0) {
        count(loop, &loop->n_sent);
    }
    if (ok && flow->next < flow->left.n) {
        memcpy(flow->message, &flow->next, sizeof(flow->next));
        flow->next++;
        rpc_call_send(call, flow->message, flow->left.bytes, on_sent, flow);
        return;
    }
    rpc_call_end(call);
    count(loop, ok ? &loop->n_streams_ended : &loop->n_streams_lost);
    mem_free(flow->message);
    mem_free(flow);
}

static void stream(void *context, struct rpc_call *call)
{
    struct flow *flow = mem_calloc(1, sizeof(*flow));
    size_t n;
    const void *bytes = rpc_call_bytes(call, &n);
    ASSERT(n == sizeof(flow->left));
    memcpy(&flow->left, bytes, n);
    flow->loop = context;
    flow->message = mem_calloc(1, flow->left.bytes);
    on_sent(flow, call, true);
}

static const struct rpc_method methods[] = {
    {"/t/Stream", stream}, {"/t/Echo", echo},   {"/t/Fail", refuse},
    {"/t/Hold", hold},     {"/t/Token", token}, {"/t/Stale", stale},
};

struct rpc_server_options loop_options(struct loop *loop)
{
    return (struct rpc_server_options){
        .listen = "127.0.0.1:0", .methods = methods, .n_methods = ARRAY_LEN(methods), .context = loop};
}

struct rpc_channel *loop_connect(struct loop *loop)
{
    struct rpc_channel *channel = NULL;
    struct rpc_channel_options options = {.target = rpc_server_address(loop->server)};
    CHECK_ERR(rpc_channel_open(&options, &channel, &loop->e), ERR_OK);
    return channel;
}

void loop_open_with(struct loop *loop, const struct rpc_server_options *options)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&loop->lock, NULL);
    pthread_cond_init(&loop->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    CHECK_ERR(rpc_server_open(options, &loop->server, &loop->e), ERR_OK);
    loop->channel = loop_connect(loop);
}

void loop_open(struct loop *loop)
{
    *loop = (struct loop){0};
    struct rpc_server_options options = loop_options(loop);
    loop_open_with(loop, &options);
}

void loop_close(struct loop *loop)
{
    while (loop_read(loop, &loop->n_held) > 0) {
        rpc_call_reply(loop_take(loop), "", 0);
    }
    rpc_channel_close(loop->channel);
    rpc_server_close(loop->server, 5000);
    pthread_cond_destroy(&loop->changed);
    pthread_mutex_destroy(&loop->lock);
}

enum err loop_call_failing(struct loop *loop, const struct error *failure, const char *leader,
                           struct rpc_trailer *trailer)
{
    pthread_mutex_lock(
        &loop->lock); /* the sanitizer sees no order between a request and its handler, so this makes one */
    loop->failure = *failure;
    loop->leader = leader;
    pthread_mutex_unlock(&loop->lock);
    struct buf out = {0};
    struct rpc_request request = {.path = "/t/Fail", .timeout_ms = PATIENCE_MS};
    enum err err = rpc_unary(loop->channel, &request, &out, trailer, &loop->e);
    CHECK_UINT(out.n, 0);
    buf_deinit(&out);
    return err;
}

enum err loop_call(struct loop *loop, const char *path, const void *bytes, size_t n, struct buf *out)
{
    struct rpc_request request = {.path = path, .bytes = bytes, .n = n, .timeout_ms = PATIENCE_MS};
    return rpc_unary(loop->channel, &request, out, NULL, &loop->e);
}

bool loop_await_ms(struct loop *loop, const uint32_t *counter, uint32_t n, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
    int waited = 0;
    pthread_mutex_lock(&loop->lock);
    while (*counter < n && waited != ETIMEDOUT) {
        waited = pthread_cond_timedwait(&loop->changed, &loop->lock, &until);
    }
    bool reached = *counter >= n;
    pthread_mutex_unlock(&loop->lock);
    return reached;
}

bool loop_await(struct loop *loop, const uint32_t *counter, uint32_t n)
{
    return loop_await_ms(loop, counter, n, PATIENCE_MS);
}

uint32_t loop_read(struct loop *loop, const uint32_t *counter)
{
    pthread_mutex_lock(&loop->lock);
    uint32_t value = *counter;
    pthread_mutex_unlock(&loop->lock);
    return value;
}

struct rpc_call *loop_take(struct loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    ASSERT(loop->n_held > 0);
    struct rpc_call *call = loop->held[--loop->n_held];
    pthread_mutex_unlock(&loop->lock);
    return call;
}

static void *run_caller(void *context)
{
    struct loop_caller *caller = context;
    struct rpc_channel *channel = caller->channel != NULL ? caller->channel : caller->loop->channel;
    caller->err = rpc_unary(channel, &caller->request, &caller->out, NULL, &caller->e);
    return NULL;
}

void loop_caller_start(struct loop_caller *caller)
{
    CHECK_INT(pthread_create(&caller->thread, NULL, run_caller, caller), 0);
}

enum err loop_caller_join(struct loop_caller *caller)
{
    pthread_join(caller->thread, NULL);
    buf_deinit(&caller->out);
    return caller->err;
}
