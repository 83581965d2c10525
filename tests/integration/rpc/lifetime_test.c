/* Servers and connections that come and go. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "integration/rpc/loop.h"
#include "integration/rpc/proxy.h"

/* How long after an outage a call got through. */
static int64_t found_after_ms(struct loop *loop)
{
    struct buf out = {0};
    CHECK_ERR(loop_call(loop, "/t/Echo", "x", 1, &out), ERR_OK);
    char address[64];
    snprintf(address, sizeof(address), "%s", rpc_server_address(loop->server));
    rpc_server_close(loop->server, 1000);
    for (int i = 0; i < 30; i++) {
        CHECK_ERR(loop_call(loop, "/t/Echo", "x", 1, &out), ERR_UNAVAILABLE);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* an outage that makes the channel wait longer */
    }
    struct rpc_server_options options = loop_options(loop);
    options.listen = address;
    CHECK_ERR(rpc_server_open(&options, &loop->server, &loop->e), ERR_OK);
    int64_t from_ms = clock_mono_ms();
    while (loop_call(loop, "/t/Echo", "x", 1, &out) != ERR_OK) {
        CHECK(clock_mono_ms() - from_ms < 60000);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    buf_deinit(&out);
    return clock_mono_ms() - from_ms;
}

TEST(a_call_fails_while_the_server_is_gone_and_works_soon_after_it_is_back)
{
    struct loop loop;
    loop_open(&loop);
    int64_t took_ms = INT64_MAX;
    for (int round = 0; round < 3 && took_ms >= 3000; round++) { /* a busy machine may be late once */
        took_ms = found_after_ms(&loop);
    }
    CHECK(took_ms < 3000);
    loop_close(&loop);
}

TEST(a_call_that_waits_for_the_connection_gets_through_when_the_server_comes)
{
    struct loop loop;
    loop_open(&loop);
    char address[64];
    snprintf(address, sizeof(address), "%s", rpc_server_address(loop.server));
    rpc_server_close(loop.server, 0);
    struct loop_caller caller = {
        .loop = &loop,
        .request = {.path = "/t/Echo", .bytes = "x", .n = 1, .timeout_ms = 20000, .wait_for_ready = true}};
    loop_caller_start(&caller);
    struct buf out = {0};
    CHECK_ERR(loop_call(&loop, "/t/Echo", "x", 1, &out), ERR_UNAVAILABLE); /* one that does not wait */
    struct rpc_request hopeless = {.path = "/t/Echo", .timeout_ms = 200, .wait_for_ready = true};
    CHECK_ERR(rpc_unary(loop.channel, &hopeless, &out, NULL, &loop.e), ERR_DEADLINE);
    struct rpc_server_options options = loop_options(&loop);
    options.listen = address;
    CHECK_ERR(rpc_server_open(&options, &loop.server, &loop.e), ERR_OK);
    CHECK_ERR(loop_caller_join(&caller), ERR_OK);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_call_can_be_canceled_while_it_waits_for_a_connection)
{
    struct rpc_channel *channel = NULL;
    struct error e = {0};
    CHECK_ERR(rpc_channel_open(&(struct rpc_channel_options){.target = "127.0.0.1:1"}, &channel, &e), ERR_OK);
    struct rpc_cancel *cancel = rpc_cancel_new();
    struct loop_caller caller = {.channel = channel,
                                 .request = {.path = "/t/Echo", .wait_for_ready = true, .cancel = cancel}};
    loop_caller_start(&caller);
    rpc_cancel_fire(cancel); /* before or during, as it happens */
    CHECK_ERR(loop_caller_join(&caller), ERR_CANCELED);
    rpc_cancel_free(cancel);
    rpc_channel_close(channel);
    rpc_channel_close(NULL);
}

TEST(a_server_that_closes_lets_open_calls_end_within_their_grace)
{
    struct loop loop;
    loop_open(&loop);
    struct loop_caller caller = {.loop = &loop, .request = {.path = "/t/Hold"}};
    loop_caller_start(&caller);
    CHECK(loop_await(&loop, &loop.n_held, 1));
    struct loop_caller last = {.loop = &loop, .request = {.path = "/t/Hold"}};
    loop_caller_start(&last);
    CHECK(loop_await(&loop, &loop.n_held, 2));
    struct rpc_call *first_call = loop_take(&loop);
    struct rpc_call *second_call = loop_take(&loop);
    rpc_call_reply(first_call, "a", 1);
    rpc_call_reply(second_call, "b", 1);
    int64_t from_ms = clock_mono_ms();
    rpc_server_close(loop.server, 60000); /* right behind the answers, which must not be lost */
    CHECK(clock_mono_ms() - from_ms < 10000);
    loop.server = NULL;
    CHECK_ERR(loop_caller_join(&caller), ERR_OK);
    CHECK_ERR(loop_caller_join(&last), ERR_OK);
    CHECK_UINT(loop.n_gone, 0);
    rpc_server_close(NULL, 0);
    loop_close(&loop);
}

TEST(a_server_that_closes_cancels_what_is_open_after_its_grace)
{
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.pollers = 2;
    loop_open_with(&loop, &options);
    loop.ends_when_gone = true;
    struct loop_caller callers[4];
    for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
        callers[i] = (struct loop_caller){.loop = &loop, .request = {.path = "/t/Hold"}};
        loop_caller_start(&callers[i]);
    }
    CHECK(loop_await(&loop, &loop.n_held, ARRAY_LEN(callers)));
    int64_t from_ms = clock_mono_ms();
    rpc_server_close(loop.server, 300);
    loop.server = NULL;
    CHECK(clock_mono_ms() - from_ms >= 299);
    CHECK(clock_mono_ms() - from_ms < 10000);
    CHECK_UINT(loop.n_gone, ARRAY_LEN(callers));
    CHECK_UINT(loop.n_held, 0);
    for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
        CHECK_ERR(loop_caller_join(&callers[i]), ERR_UNAVAILABLE);
    }
    loop_close(&loop);
}

static void *close_server(void *context)
{
    struct loop *loop = context;
    rpc_server_close(loop->server, 50);
    pthread_mutex_lock(&loop->lock);
    loop->n_streams_ended = 1; /* says that it has returned */
    pthread_cond_broadcast(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
    return NULL;
}

TEST(closing_waits_for_whoever_holds_a_call)
{
    struct loop loop;
    loop_open(&loop);
    struct loop_caller caller = {.loop = &loop, .request = {.path = "/t/Hold"}};
    loop_caller_start(&caller);
    CHECK(loop_await(&loop, &loop.n_held, 1));
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, close_server, &loop), 0);
    CHECK(loop_await(&loop, &loop.n_gone, 1));
    CHECK_ERR(loop_caller_join(&caller), ERR_UNAVAILABLE);
    CHECK(!loop_await_ms(&loop, &loop.n_streams_ended, 1, 400));
    rpc_call_reply(loop_take(&loop), "x", 1);
    CHECK(loop_await(&loop, &loop.n_streams_ended, 1));
    pthread_join(thread, NULL);
    loop.server = NULL;
    loop_close(&loop);
}

TEST(a_call_over_the_servers_limit_of_open_calls_is_refused)
{
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.calls_max = 2;
    loop_open_with(&loop, &options);
    struct loop_caller callers[2];
    for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
        callers[i] = (struct loop_caller){.loop = &loop, .request = {.path = "/t/Hold"}};
        loop_caller_start(&callers[i]);
    }
    CHECK(loop_await(&loop, &loop.n_held, 2));
    struct buf out = {0};
    CHECK_ERR(loop_call(&loop, "/t/Echo", "x", 1, &out), ERR_EXHAUSTED);
    CHECK(loop.e.hint[0] != '\0');
    rpc_call_reply(loop_take(&loop), "", 0);
    rpc_call_reply(loop_take(&loop), "", 0);
    for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
        CHECK_ERR(loop_caller_join(&callers[i]), ERR_OK);
    }
    int64_t from_ms = clock_mono_ms();
    while (loop_call(&loop, "/t/Echo", "x", 1, &out) !=
           ERR_OK) { /* the server learns a little later that they are over */
        CHECK(clock_mono_ms() - from_ms < 10000);
    }
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_taken_port_is_an_error)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_server *second = NULL;
    struct rpc_server_options options = loop_options(&loop);
    options.listen = rpc_server_address(loop.server);
    CHECK_ERR(rpc_server_open(&options, &second, &loop.e), ERR_UNAVAILABLE);
    CHECK(second == NULL);
    CHECK(strstr(loop.e.message, options.listen) != NULL);
    CHECK(loop.e.hint[0] != '\0');
    char named[64]; /* the name may have more addresses than one; a server that has only some of them will not do */
    snprintf(named, sizeof(named), "localhost:%s", strrchr(options.listen, ':') + 1);
    options.listen = named;
    CHECK_ERR(rpc_server_open(&options, &second, &loop.e), ERR_UNAVAILABLE);
    options.listen = "no-such-host.invalid:7400";
    CHECK_ERR(rpc_server_open(&options, &second, &loop.e), ERR_INVALID);
    options.listen = "192.0.2.1:7400"; /* nobody's address */
    CHECK_ERR(rpc_server_open(&options, &second, &loop.e), ERR_UNAVAILABLE);
    loop_close(&loop);
}

TEST(a_server_can_be_reached_by_name)
{
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.listen = "localhost:0";
    loop_open_with(&loop, &options);
    CHECK(strncmp(rpc_server_address(loop.server), "localhost:", 10) == 0);
    CHECK(strcmp(rpc_server_address(loop.server), "localhost:0") != 0);
    struct buf out = {0};
    CHECK_ERR(loop_call(&loop, "/t/Echo", "x", 1, &out), ERR_OK);
    buf_deinit(&out);
    loop_close(&loop);
}

static int connect_raw(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_port = htons((uint16_t)strtol(strrchr(address, ':') + 1, NULL, 10));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

TEST(garbage_on_the_socket_disturbs_nobody_else)
{
    struct loop loop;
    loop_open(&loop);
    struct buf out = {0};
    struct loop_caller waiting = {.loop = &loop, .request = {.path = "/t/Hold"}};
    loop_caller_start(&waiting);
    CHECK(loop_await(&loop, &loop.n_held, 1));
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    int silent = connect_raw(rpc_server_address(loop.server));
    uint32_t state = 1;
    for (int i = 0; i < 60; i++) {
        char bytes[2048];
        for (size_t k = 0; k < sizeof(bytes); k++) {
            state = state * 1664525 + 1013904223;
            bytes[k] = (char)(state >> 24);
        }
        int fd = connect_raw(rpc_server_address(loop.server));
        if (i % 3 == 0) {
            CHECK(send(fd, preface, sizeof(preface) - 1, MSG_NOSIGNAL) > 0);
        } else if (i % 3 == 1) {
            CHECK(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL) > 0);
        }
        (void)send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
        close(fd);
        CHECK_ERR(loop_call(&loop, "/t/Echo", "x", 1, &out), ERR_OK);
    }
    close(silent);
    CHECK_UINT(loop_read(&loop, &loop.n_gone), 0);
    rpc_call_reply(loop_take(&loop), "", 0);
    CHECK_ERR(loop_caller_join(&waiting), ERR_OK);
    buf_deinit(&out);
    loop_close(&loop);
}

static struct rpc_channel *connect_through(struct proxy *proxy)
{
    struct rpc_channel *channel = NULL;
    struct error e = {0};
    CHECK_ERR(rpc_channel_open(&(struct rpc_channel_options){.target = proxy->address}, &channel, &e), ERR_OK);
    return channel;
}

TEST(a_connection_that_breaks_is_noticed_at_once_on_both_sides)
{
    struct loop loop;
    struct proxy proxy;
    loop_open(&loop);
    proxy_open(&proxy, rpc_server_address(loop.server));
    struct rpc_channel *channel = connect_through(&proxy);
    struct loop_caller callers[3];
    for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
        callers[i] = (struct loop_caller){.loop = &loop, .channel = channel, .request = {.path = "/t/Hold"}};
        loop_caller_start(&callers[i]);
    }
    CHECK(loop_await(&loop, &loop.n_held, ARRAY_LEN(callers)));
    int64_t from_ms = clock_mono_ms();
    atomic_store(&proxy.cut, true);
    for (size_t i = 0; i < ARRAY_LEN(callers); i++) {
        CHECK_ERR(loop_caller_join(&callers[i]), ERR_UNAVAILABLE);
    }
    CHECK(loop_await(&loop, &loop.n_gone, ARRAY_LEN(callers)));
    CHECK(clock_mono_ms() - from_ms < 5000);
    rpc_channel_close(channel);
    proxy_close(&proxy);
    loop_close(&loop);
    CHECK_UINT(loop.n_gone, ARRAY_LEN(callers));
}

TEST(a_network_that_falls_silent_is_noticed_by_both_sides)
{
    struct loop loop;
    struct proxy proxy;
    loop_open(&loop);
    proxy_open(&proxy, rpc_server_address(loop.server));
    struct rpc_channel *channel = connect_through(&proxy);
    struct loop_caller caller = {.loop = &loop, .channel = channel, .request = {.path = "/t/Hold"}};
    loop_caller_start(&caller);
    CHECK(loop_await(&loop, &loop.n_held, 1));
    int64_t from_ms = clock_mono_ms();
    atomic_store(&proxy.is_silent, true);
    CHECK_ERR(loop_caller_join(&caller), ERR_UNAVAILABLE);
    CHECK(loop_await_ms(&loop, &loop.n_gone, 1, 30000));
    print_message("noticed after %lld ms\n", (long long)(clock_mono_ms() - from_ms));
    CHECK(clock_mono_ms() - from_ms < 15000); /* the promise is ten seconds */
    rpc_channel_close(channel);
    proxy_close(&proxy);
    loop_close(&loop);
}

/* Descriptors of this process that a program started by it would inherit, beyond those that were there before. */
static uint32_t count_inheritable(const bool *before, bool *seen)
{
    uint32_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        long fd = strtol(entry->d_name, NULL, 10);
        int flags = entry->d_name[0] == '.' || fd == dirfd(folder) ? -1 : fcntl((int)fd, F_GETFD);
        if (flags >= 0 && fd < 1024) {
            seen[fd] = true;
            n += (before == NULL || !before[fd]) && (flags & FD_CLOEXEC) == 0;
        }
    }
    closedir(folder);
    return n;
}

TEST(programs_that_are_started_inherit_no_connection)
{
    bool before[1024] = {0};
    bool during[1024] = {0};
    count_inheritable(NULL, before);
    struct loop loop;
    loop_open(&loop);
    struct buf out = {0};
    CHECK_ERR(loop_call(&loop, "/t/Echo", "x", 1, &out), ERR_OK);
    struct rpc_channel *named = NULL; /* one that has to ask for a name */
    struct rpc_channel_options options = {.target = "no-such-host.invalid:1"};
    CHECK_ERR(rpc_channel_open(&options, &named, &loop.e), ERR_OK);
    CHECK_ERR(rpc_unary(named, &(struct rpc_request){.path = "/t/Echo"}, &out, NULL, &loop.e), ERR_UNAVAILABLE);
    CHECK_UINT(count_inheritable(before, during), 0);
    CHECK(memcmp(before, during, sizeof(before)) != 0);
    rpc_channel_close(named);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(nothing_is_printed_when_things_go_wrong)
{
    char path[] = "/tmp/capstan-rpc-XXXXXX";
    int file = mkstemp(path);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    CHECK(file >= 0 && saved >= 0);
    dup2(file, STDERR_FILENO);
    struct loop loop;
    loop_open(&loop);
    struct rpc_server *second = NULL;
    struct rpc_server_options options = loop_options(&loop);
    options.listen = rpc_server_address(loop.server);
    enum err taken = rpc_server_open(&options, &second, &loop.e);
    rpc_server_close(loop.server, 0);
    loop.server = NULL;
    struct buf out = {0};
    enum err gone = loop_call(&loop, "/t/Echo", "x", 1, &out);
    loop_close(&loop);
    dup2(saved, STDERR_FILENO);
    close(saved);
    off_t printed = lseek(file, 0, SEEK_END);
    close(file);
    unlink(path);
    buf_deinit(&out);
    CHECK_ERR(taken, ERR_UNAVAILABLE);
    CHECK_ERR(gone, ERR_UNAVAILABLE);
    CHECK_INT(printed, 0);
}

TEST(servers_and_channels_can_be_opened_and_closed_again_and_again)
{
    for (int i = 0; i < 20; i++) { /* gRPC itself goes and comes back each time */
        struct loop loop;
        loop_open(&loop);
        struct buf out = {0};
        if (i % 2 == 0) {
            CHECK_ERR(loop_call(&loop, "/t/Echo", "x", 1, &out), ERR_OK);
        }
        buf_deinit(&out);
        loop_close(&loop);
    }
}
