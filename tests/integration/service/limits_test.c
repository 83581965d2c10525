/* How much one client may have open, at both doors, and that others are served all the same. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "coordinator/api.h"
#include "http/talk.h"
#include "service/guarded.h"
#include "test.h"

#define OPEN 3
#define PATIENCE_MS 30000
#define BYTES_OPEN (1024 * 1024) /* the least that max_bytes_per_client can be */

/* Streams of events that wait for something to happen. */
struct followers {
    struct rpc_channel *channel;
    struct rpc_stream *streams[OPEN];
};

static void followers_init(struct followers *f, struct guarded *g, const char *token)
{
    struct rpc_channel_options options = {.target = service_address(g->service), .token = token};
    struct arena arena = {0};
    struct buf bytes = {0};
    struct pb_watch_events_request *message = wire_new(PB_WATCH_EVENTS_REQUEST, &arena);
    message->follow = true;
    wire_encode(message, &bytes);
    CHECK_ERR(rpc_channel_open(&options, &f->channel, &g->e), ERR_OK);
    for (int i = 0; i < OPEN; i++) {
        struct rpc_request request = {
            .path = "/capstan.v1.ControlPlane/WatchEvents", .bytes = bytes.data, .n = bytes.n};
        CHECK_ERR(rpc_stream_open(f->channel, &request, &f->streams[i], &g->e), ERR_OK);
    }
    buf_deinit(&bytes);
    arena_deinit(&arena);
}

static void followers_close_one(struct followers *f, int i)
{
    rpc_stream_close(f->streams[i]);
    f->streams[i] = NULL;
}

static void followers_deinit(struct followers *f)
{
    for (int i = 0; i < OPEN; i++) {
        followers_close_one(f, i);
    }
    rpc_channel_close(f->channel);
}

static enum err list_nodes(struct guarded *g, const char *token)
{
    return guarded_call(g, "/capstan.v1.Cluster/ListNodes", PB_LIST_NODES_REQUEST,
                        (struct rpc_channel_options){.token = token});
}

/* Asks again and again: a stream that was opened or closed is seen a moment later. */
static void await_outcome(struct guarded *g, const char *token, bool is_refused)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;
    while ((list_nodes(g, token) == ERR_EXHAUSTED) != is_refused) {
        CHECK(clock_mono_ms() < until_ms);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* The same, for one outcome. */
static void await_code(struct guarded *g, const char *token, enum err wanted)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;
    while (list_nodes(g, token) != wanted) {
        CHECK(clock_mono_ms() < until_ms);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

#define AGAIN_MS 500

/* A call of before may be open still when a stream arrives: then that is the one that is refused, and all are opened again. */
static void followers_fill(struct followers *f, struct guarded *g, const char *token)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;
    int64_t again_ms = clock_mono_ms() + AGAIN_MS;
    followers_init(f, g, token);
    while (list_nodes(g, token) != ERR_EXHAUSTED) {
        CHECK(clock_mono_ms() < until_ms);
        if (clock_mono_ms() >= again_ms) {
            followers_deinit(f);
            followers_init(f, g, token);
            again_ms = clock_mono_ms() + AGAIN_MS;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

TEST(a_client_with_too_much_open_is_refused_at_both_doors_and_others_are_served)
{
    struct settings settings = settings_default();
    struct guarded g;
    struct followers followers = {0};
    struct buf answer = {0};
    settings.max_calls_per_client = OPEN;
    guarded_init_with(&g, NULL, settings);
    await_outcome(&g, "read-token", false); /* it leads, or at least answers */
    for (int64_t until_ms = clock_mono_ms() + PATIENCE_MS; list_nodes(&g, "read-token") != ERR_OK;) {
        CHECK(clock_mono_ms() < until_ms); /* it leads: else there is nothing to follow */
    }
    followers_fill(&followers, &g, "read-token");
    CHECK_STR(g.e.message, "this client has 3 calls open that have not been answered");
    CHECK(strstr(g.e.hint, "max_calls_per_client") != NULL);
    talk(service_http_address(g.service), "GET /v1/nodes", "Authorization: Bearer read-token\r\n", NULL, &answer);
    CHECK_INT(talk_status(&answer), 429);
    CHECK(strstr(answer.data, "max_calls_per_client") != NULL);
    CHECK_ERR(list_nodes(&g, "submit-token"), ERR_OK);
    talk(service_http_address(g.service), "GET /v1/nodes", "Authorization: Bearer submit-token\r\n", NULL, &answer);
    CHECK_INT(talk_status(&answer), 200);
    /* What workers send is not counted. */
    CHECK_ERR(guarded_call(&g, "/capstan.v1.HeartbeatService/Heartbeat", PB_HEARTBEAT_REQUEST,
                           (struct rpc_channel_options){.token = "admin-token"}),
              ERR_INVALID);
    followers_close_one(&followers, 0);
    await_outcome(&g, "read-token", false);
    followers_deinit(&followers);
    buf_deinit(&answer);
    guarded_deinit(&g);
}

/* A field that no coordinator knows and each leaves alone: field 1000, as many bytes. */
static void append_unknown_field(struct buf *message, uint32_t n)
{
    char *bytes = mem_calloc(n, 1);
    uint8_t head[2 + 5] = {0xc2, 0x3e}; /* the number and the type, as a varint */
    size_t at = 2;
    for (uint32_t left = n; at == 2 || left > 0; left >>= 7) {
        head[at++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    }
    buf_append(message, head, at);
    buf_append(message, bytes, n);
    mem_free(bytes);
}

/*
 * Opens a stream whose request has as many bytes as the client may have open, so that its calls are refused. Should one of
 * these calls be open just when it arrives, then it is the stream that is refused, and ends.
 */
static struct rpc_stream *open_until_refused(struct guarded *g, struct rpc_channel *channel,
                                             const struct rpc_request *request)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;
    struct rpc_stream *stream = NULL;
    CHECK_ERR(rpc_stream_open(channel, request, &stream, &g->e), ERR_OK);
    while (list_nodes(g, "read-token") != ERR_UNAVAILABLE) {
        CHECK(clock_mono_ms() < until_ms);
        if (rpc_stream_wait(stream, 5)) {
            rpc_stream_close(stream);
            CHECK_ERR(rpc_stream_open(channel, request, &stream, &g->e), ERR_OK);
        }
    }
    return stream;
}

TEST(a_client_with_too_many_bytes_open_is_told_to_try_again_at_both_doors_and_others_are_served)
{
    struct settings settings = settings_default();
    struct guarded g;
    struct rpc_channel *channel = NULL;
    struct arena arena = {0};
    struct buf bytes = {0};
    struct buf answer = {0};
    struct pb_watch_events_request *message = wire_new(PB_WATCH_EVENTS_REQUEST, &arena);
    settings.max_bytes_per_client = BYTES_OPEN;
    guarded_init_with(&g, NULL, settings);
    await_code(&g, "read-token", ERR_OK);
    message->follow = true;
    wire_encode(message, &bytes);
    append_unknown_field(&bytes, BYTES_OPEN);
    struct rpc_channel_options options = {.target = service_address(g.service), .token = "read-token"};
    struct rpc_request request = {.path = "/capstan.v1.ControlPlane/WatchEvents", .bytes = bytes.data, .n = bytes.n};
    CHECK_ERR(rpc_channel_open(&options, &channel, &g.e), ERR_OK);
    struct rpc_stream *stream = open_until_refused(&g, channel, &request);
    CHECK(strstr(g.e.message, "bytes open that have not been answered") != NULL);
    CHECK(strstr(g.e.hint, "max_bytes_per_client") != NULL);
    talk(service_http_address(g.service), "GET /v1/nodes", "Authorization: Bearer read-token\r\n", NULL, &answer);
    CHECK_INT(talk_status(&answer), 503);
    CHECK(strstr(answer.data, "max_bytes_per_client") != NULL);
    CHECK_ERR(list_nodes(&g, "submit-token"), ERR_OK);
    talk(service_http_address(g.service), "GET /v1/nodes", "Authorization: Bearer submit-token\r\n", NULL, &answer);
    CHECK_INT(talk_status(&answer), 200);
    rpc_stream_close(stream);
    await_code(&g, "read-token", ERR_OK);
    rpc_channel_close(channel);
    buf_deinit(&bytes);
    buf_deinit(&answer);
    arena_deinit(&arena);
    guarded_deinit(&g);
}

TEST(a_body_that_is_compressed_is_not_taken)
{
    struct guarded g;
    struct buf answer = {0};
    const char *headers =
        "Authorization: Bearer admin-token\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n";
    guarded_init(&g, NULL);
    talk(service_http_address(g.service), "POST /v1/jobs", headers, "{}", &answer);
    CHECK_INT(talk_status(&answer), 415);
    CHECK(strstr(answer.data, "Content-Encoding: 'gzip' is not taken") != NULL);
    buf_deinit(&answer);
    guarded_deinit(&g);
}

/* ---- connections ---- */

#define STREAMS (API_CONNECTIONS_MAX / 8) /* of one client */

/* Opens a stream of events, and reads what is there of the answer. */
static int follow_events(struct guarded *g, const char *token, struct buf *answer)
{
    char request[256];
    int fd = talk_dial(service_http_address(g->service), 0);
    snprintf(request, sizeof request, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
             token);
    buf_reset(answer);
    talk_send(fd, request, strlen(request));
    CHECK(talk_read(fd, answer) > 0);
    buf_text(answer, "");
    return fd;
}

TEST(a_client_with_many_streams_over_http_leaves_connections_for_others)
{
    static int streams[STREAMS];
    struct guarded g;
    struct buf answer = {0};
    guarded_init(&g, NULL);
    await_code(&g, "read-token", ERR_OK);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = follow_events(&g, "read-token", &answer);
        CHECK_INT(talk_status(&answer), 200);
    }
    int refused = follow_events(&g, "read-token", &answer);
    CHECK_INT(talk_status(&answer), 429);
    int other = follow_events(&g, "submit-token", &answer);
    CHECK_INT(talk_status(&answer), 200);
    talk(service_http_address(g.service), "GET /v1/jobs/x?wait_ms=1", "Authorization: Bearer read-token\r\n", NULL,
         &answer);
    CHECK_INT(talk_status(&answer), 429);
    CHECK(strstr(answer.data, "this client has 256 streams and calls that wait open over HTTP") != NULL);
    CHECK(strstr(answer.data, "\"hint\":\"end some of them") != NULL);
    talk(service_http_address(g.service), "GET /v1/nodes", "Authorization: Bearer read-token\r\n", NULL, &answer);
    CHECK_INT(talk_status(&answer), 200); /* what is short passes */
    talk(service_http_address(g.service), "GET /healthz", "", NULL, &answer);
    CHECK_INT(talk_status(&answer), 200);
    close(refused);
    close(other);
    for (int i = 0; i < STREAMS; i++) {
        close(streams[i]);
    }
    buf_deinit(&answer);
    guarded_deinit(&g);
}

/* ---- tasks ---- */

static int submit_over_http(struct guarded *g, const char *job_id, struct buf *answer)
{
    static const char tree[] = "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}},"
                               "{\"name\":\"b\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}]}";
    char line[64];
    snprintf(line, sizeof line, "POST /v1/jobs?job_id=%s", job_id);
    talk(service_http_address(g->service), line,
         "Authorization: Bearer submit-token\r\nContent-Type: application/json\r\n", tree, answer);
    return talk_status(answer);
}

TEST(more_live_tasks_than_the_limit_are_refused_until_jobs_have_ended)
{
    struct settings settings = settings_default();
    struct guarded g;
    struct buf answer = {0};
    settings.core.max_live_tasks = 3;
    guarded_init_with(&g, NULL, settings);
    await_code(&g, "read-token", ERR_OK);
    CHECK_INT(submit_over_http(&g, "first", &answer), 200);
    CHECK_INT(submit_over_http(&g, "second", &answer), 429);
    CHECK(strstr(answer.data, "jobs that have not ended have 2 tasks") != NULL);
    CHECK(strstr(answer.data, "max_live_tasks") != NULL);
    CHECK_INT(submit_over_http(&g, "first", &answer), 200); /* it is known */
    talk(service_http_address(g.service), "GET /v1/jobs/second", "Authorization: Bearer read-token\r\n", NULL, &answer);
    CHECK_INT(talk_status(&answer), 404); /* nothing was changed */
    talk(service_http_address(g.service), "POST /v1/jobs/first/cancel",
         "Authorization: Bearer submit-token\r\nContent-Type: application/json\r\n", "{}", &answer);
    CHECK_INT(talk_status(&answer), 200);
    CHECK_INT(submit_over_http(&g, "second", &answer), 200);
    buf_deinit(&answer);
    guarded_deinit(&g);
}
