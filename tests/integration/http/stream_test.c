/* Answers that come later, and streams: slow readers, readers that go, servers that close. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/http.h"
#include "http/talk.h"
#include "test.h"

#define CHUNK_BYTES ((size_t)256 * 1024)
#define CHUNKS 200

/* What the handlers leave for the test. */
struct desk {
    struct http_server *server;
    struct http_request *_Atomic request; /* the one that waits for its end */
    atomic_uint chunks;                   /* that were taken */
    atomic_uint gone;                     /* how often a reader was found to be gone */
    unsigned wanted;                      /* chunks of a stream */
};

static void wait_until(bool (*is_true)(struct desk *desk), struct desk *desk)
{
    int64_t until_ms = clock_mono_ms() + 30000;
    while (!is_true(desk)) {
        CHECK(clock_mono_ms() < until_ms);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static bool has_request(struct desk *desk)
{
    return atomic_load(&desk->request) != NULL;
}

static bool is_gone(struct desk *desk)
{
    return atomic_load(&desk->gone) > 0;
}

static void *answer_late(void *context)
{
    struct http_request *request = context;
    struct http_answer answer = {.status = 201, .type = "text/plain", .header = "X-Late", .header_value = "yes"};
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    buf_text(&answer.body, "late");
    http_request_answer(request, &answer);
    return NULL;
}

static void serve_late(void *context, struct http_request *request, struct http_answer *answer)
{
    pthread_t thread;
    UNUSED(context);
    UNUSED(answer);
    http_request_defer(request);
    CHECK(pthread_create(&thread, NULL, answer_late, request) == 0);
    pthread_detach(thread);
}

/* Answers inside the handler, though it is deferred. */
static void serve_soon(void *context, struct http_request *request, struct http_answer *answer)
{
    struct http_answer own = {.status = 200, .type = "text/plain"};
    UNUSED(context);
    UNUSED(answer);
    buf_text(&own.body, "soon");
    http_request_defer(request);
    http_request_answer(request, &own);
}

struct feed {
    struct desk *desk;
    struct http_request *request;
    unsigned at;
};

static void feed_next(void *context, bool ok)
{
    struct feed *feed = context;
    struct buf chunk = {0};
    if (!ok || feed->at == feed->desk->wanted) {
        feed->desk->gone += !ok;
        http_stream_end(feed->request, ok);
        free(feed);
        return;
    }
    char *bytes = malloc(CHUNK_BYTES);
    memset(bytes, 'a' + (int)(feed->at % 26), CHUNK_BYTES);
    buf_append(&chunk, bytes, CHUNK_BYTES);
    free(bytes);
    feed->at++;
    feed->desk->chunks++;
    http_stream_send(feed->request, &chunk, feed_next, feed);
}

static void serve_stream(void *context, struct http_request *request, struct http_answer *answer)
{
    struct feed *feed = malloc(sizeof *feed);
    UNUSED(answer);
    *feed = (struct feed){.desk = context, .request = request};
    http_request_defer(request);
    http_stream_begin(request, 200, "application/octet-stream", NULL);
    feed_next(feed, true);
}

static void note_gone(void *context)
{
    struct desk *desk = context;
    http_stream_end(atomic_load(&desk->request), true);
    desk->gone++;
}

/* Begins and then has nothing to say. */
static void serve_rest(void *context, struct http_request *request, struct http_answer *answer)
{
    struct desk *desk = context;
    UNUSED(answer);
    http_request_defer(request);
    http_request_on_gone(request, note_gone, desk);
    http_stream_begin(request, 200, "text/event-stream", ": pulse\n\n");
    atomic_store(&desk->request, request);
}

static const struct http_route routes[] = {
    {"GET", "/late", serve_late},
    {"GET", "/soon", serve_soon},
    {"GET", "/stream", serve_stream},
    {"GET", "/rest", serve_rest},
};

static void open_desk(struct desk *desk)
{
    struct http_server_options options = {.listen = "127.0.0.1:0",
                                          .routes = routes,
                                          .n_routes = ARRAY_LEN(routes),
                                          .context = desk,
                                          .threads = 2,
                                          .pulse_ms = 20};
    *desk = (struct desk){.wanted = CHUNKS};
    CHECK_ERR(http_server_open(&options, &desk->server, NULL), ERR_OK);
}

TEST(an_answer_may_come_later_from_another_thread)
{
    struct desk desk;
    struct buf answer = {0};
    open_desk(&desk);
    for (int i = 0; i < 20; i++) {
        talk(http_server_address(desk.server), "GET /late", "", NULL, &answer);
        CHECK_INT(talk_status(&answer), 201);
        CHECK(strstr(answer.data, "X-Late: yes") != NULL);
        CHECK_STR(talk_body(&answer), "late");
        talk(http_server_address(desk.server), "GET /soon", "", NULL, &answer);
        CHECK_STR(talk_body(&answer), "soon");
        talk(http_server_address(desk.server), "HEAD /late", "", NULL, &answer);
        CHECK_INT(talk_status(&answer), 201);
    }
    http_server_close(desk.server);
    buf_deinit(&answer);
}

TEST(a_stream_comes_through_whole)
{
    struct desk desk;
    struct buf answer = {0};
    open_desk(&desk);
    desk.wanted = 20;
    talk(http_server_address(desk.server), "GET /stream", "", NULL, &answer);
    CHECK_INT(talk_status(&answer), 200);
    const char *body = talk_body(&answer);
    CHECK_UINT(strlen(body), 20 * CHUNK_BYTES);
    for (unsigned i = 0; i < 20; i++) {
        CHECK_INT(body[i * CHUNK_BYTES], 'a' + (int)i);
        CHECK_INT(body[(i + 1) * CHUNK_BYTES - 1], 'a' + (int)i);
    }
    talk(http_server_address(desk.server), "HEAD /stream", "", NULL, &answer);
    CHECK_INT(talk_status(&answer), 200);
    wait_until(is_gone, &desk); /* nobody reads the body of a HEAD */
    http_server_close(desk.server);
    buf_deinit(&answer);
}

static int begin_slowly(struct desk *desk)
{
    static const char request[] = "GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    int fd = talk_dial(http_server_address(desk->server), 65536);
    unsigned before = 0;
    talk_send(fd, request, sizeof request - 1);
    do { /* until no more is taken */
        before = desk->chunks;
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    } while (desk->chunks == 0 || desk->chunks != before);
    return fd;
}

TEST(a_slow_reader_holds_the_stream_back)
{
    struct desk desk;
    struct buf answer = {0};
    open_desk(&desk);
    int fd = begin_slowly(&desk);
    CHECK(desk.chunks < CHUNKS / 4); /* what sockets hold, and no more */
    while (talk_read(fd, &answer) > 0) {
    }
    close(fd);
    buf_text(&answer, "");
    CHECK_UINT(strlen(talk_body(&answer)), CHUNKS * CHUNK_BYTES);
    CHECK_UINT(desk.chunks, CHUNKS);
    http_server_close(desk.server);
    buf_deinit(&answer);
}

TEST(a_reader_that_goes_in_the_middle_ends_the_stream)
{
    struct desk desk;
    open_desk(&desk);
    close(begin_slowly(&desk));
    wait_until(is_gone, &desk);
    CHECK(desk.chunks < CHUNKS);
    http_server_close(desk.server);
}

TEST(a_close_breaks_streams_that_are_being_read)
{
    struct desk desk;
    open_desk(&desk);
    int fd = begin_slowly(&desk);
    http_server_close(desk.server);
    CHECK_UINT(desk.gone, 1);
    close(fd);
}

TEST(a_stream_that_rests_has_a_pulse_and_notices_that_its_reader_went)
{
    static const char request[] = "GET /rest HTTP/1.1\r\nHost: x\r\n\r\n";
    struct desk desk;
    struct buf answer = {0};
    open_desk(&desk);
    int fd = talk_dial(http_server_address(desk.server), 0);
    talk_send(fd, request, sizeof request - 1);
    do {
        CHECK(talk_read(fd, &answer) > 0);
        buf_text(&answer, "");
    } while (strstr(answer.data, ": pulse\n\n") == NULL);
    CHECK(strstr(answer.data, "text/event-stream") != NULL);
    CHECK(!is_gone(&desk));
    close(fd);
    wait_until(is_gone, &desk);
    http_server_close(desk.server);
    buf_deinit(&answer);
}

static void *close_server(void *context)
{
    http_server_close(context);
    return NULL;
}

TEST(a_close_waits_for_the_end_of_a_stream_that_rests)
{
    static const char request[] = "GET /rest HTTP/1.1\r\nHost: x\r\n\r\n";
    struct desk desk;
    struct buf answer = {0};
    pthread_t closer;
    open_desk(&desk);
    int fd = talk_dial(http_server_address(desk.server), 0);
    talk_send(fd, request, sizeof request - 1);
    wait_until(has_request, &desk);
    struct http_request *mine = atomic_load(&desk.request);
    http_request_on_gone(mine, NULL, NULL);
    CHECK(pthread_create(&closer, NULL, close_server, desk.server) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    http_stream_end(mine, true);
    pthread_join(closer, NULL);
    while (talk_read(fd, &answer) > 0) {
    }
    close(fd);
    buf_deinit(&answer);
}
