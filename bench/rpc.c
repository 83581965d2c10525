/*
 * bench-rpc - what gRPC costs: a server with one poller thread in a process of its own, a client in another, over
 * loopback.
 *
 *   bench-rpc [--json] [--quick] [unary|polls|stream]
 *
 * Unary: small echoes, from one thread (which is the latency) and from several. Polls: calls that stay open until all
 * are answered. Stream: one server stream, of large and of small messages.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/rpc.h"

#define ECHO_BYTES 100
#define ROUNDS 3
#define THREADS_MAX 64

static bool as_json;
static bool any_printed;

static void print(const char *name, double value, const char *unit)
{
    if (as_json) {
        printf("%s\"%s\": %.6g", any_printed ? ", " : "{", name, value);
    } else {
        printf("%-28s %14.6g  %s\n", name, value, unit);
    }
    any_printed = true;
    fflush(stdout);
}

static void must(enum err err, const struct error *e)
{
    if (err != ERR_OK) {
        fprintf(stderr, "bench-rpc: %s\n", e->message);
        exit(1);
    }
}

/* ---- the server's process ---- */

static struct {
    struct rpc_call **calls;
    uint32_t n;
    uint32_t cap;
} held; /* only the one poller touches it */

static void echo(void *context, struct rpc_call *call)
{
    UNUSED(context);
    size_t n;
    const void *bytes = rpc_call_bytes(call, &n);
    rpc_call_reply(call, bytes, n);
}

static void hold(void *context, struct rpc_call *call)
{
    UNUSED(context);
    held.calls = mem_grow((void *)held.calls, &held.cap, held.n + 1, sizeof(struct rpc_call *));
    held.calls[held.n++] = call;
}

/* Answers with how many are held. */
static void count(void *context, struct rpc_call *call)
{
    UNUSED(context);
    rpc_call_reply(call, &held.n, sizeof(held.n));
}

static void release(void *context, struct rpc_call *call)
{
    UNUSED(context);
    for (uint32_t i = 0; i < held.n; i++) {
        rpc_call_reply(held.calls[i], "x", 1);
    }
    held.n = 0;
    rpc_call_reply(call, "", 0);
}

struct flow {
    uint32_t n;
    uint32_t bytes;
    char *message;
};

static void send_next(void *context, struct rpc_call *call, bool ok)
{
    struct flow *flow = context;
    if (!ok || flow->n == 0) {
        mem_free(flow->message);
        mem_free(flow);
        rpc_call_end(call);
        return;
    }
    flow->n--;
    rpc_call_send(call, flow->message, flow->bytes, send_next, flow);
}

/* The request is two numbers: how many messages, of how many bytes. */
static void stream(void *context, struct rpc_call *call)
{
    UNUSED(context);
    size_t n;
    uint32_t wanted[2];
    const void *bytes = rpc_call_bytes(call, &n);
    memcpy(wanted, bytes, sizeof(wanted));
    struct flow *flow = mem_calloc(1, sizeof(*flow));
    flow->n = wanted[0];
    flow->bytes = wanted[1];
    flow->message = mem_calloc(1, wanted[1]);
    send_next(flow, call, true);
}

static const struct rpc_method methods[] = {
    {"/bench/Echo", echo},       {"/bench/Hold", hold},     {"/bench/Count", count},
    {"/bench/Release", release}, {"/bench/Stream", stream},
};

static _Noreturn void serve(int report, int until)
{
    struct rpc_server_options options = {.listen = "127.0.0.1:0", .methods = methods, .n_methods = ARRAY_LEN(methods)};
    struct rpc_server *server = NULL;
    struct error e = {0};
    must(rpc_server_open(&options, &server, &e), &e);
    dprintf(report, "%s", rpc_server_address(server));
    close(report);
    char byte;
    while (read(until, &byte, 1) > 0) {
    }
    rpc_server_close(server, 1000);
    mem_free((void *)held.calls);
    exit(0);
}

/* ---- the client's process ---- */

static char address[64];

static struct rpc_channel *connect_to_server(void)
{
    struct rpc_channel *channel = NULL;
    struct error e = {0};
    must(rpc_channel_open(&(struct rpc_channel_options){.target = address}, &channel, &e), &e);
    return channel;
}

static void call(struct rpc_channel *channel, const char *path, const void *bytes, size_t n, struct buf *out)
{
    struct error e = {0};
    struct rpc_request request = {.path = path, .bytes = bytes, .n = n, .wait_for_ready = true};
    buf_reset(out);
    must(rpc_unary(channel, &request, out, NULL, &e), &e);
}

struct caller {
    pthread_t thread;
    struct rpc_channel *channel;
    atomic_bool *stop;
    uint64_t n;
};

static void *call_on(void *context)
{
    struct caller *caller = context;
    struct buf out = {0};
    char bytes[ECHO_BYTES] = {0};
    while (!atomic_load(caller->stop)) {
        call(caller->channel, "/bench/Echo", bytes, sizeof(bytes), &out);
        caller->n++;
    }
    buf_deinit(&out);
    return NULL;
}

static pid_t server_pid;

/* Processor time that a process has used; unlike the time on the wall it does not depend on what else the machine does. */
static double cpu_seconds(pid_t pid)
{
    clockid_t clock;
    struct timespec used = {0};
    if (clock_getcpuclockid(pid, &clock) == 0) {
        clock_gettime(clock, &used);
    }
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

struct figures {
    double per_s;
    double client_us; /* processor time for each call */
    double server_us;
};

static struct figures echoes(uint32_t n_threads, uint32_t n_channels, int64_t ms)
{
    struct rpc_channel *channels[THREADS_MAX];
    struct caller callers[THREADS_MAX] = {0};
    atomic_bool stop = false;
    struct buf out = {0};
    for (uint32_t i = 0; i < n_channels; i++) {
        channels[i] = connect_to_server();
        call(channels[i], "/bench/Echo", "", 0, &out);
    }
    double client_from = cpu_seconds(0);
    double server_from = cpu_seconds(server_pid);
    int64_t from_us = clock_mono_us();
    for (uint32_t i = 0; i < n_threads; i++) {
        callers[i] = (struct caller){.channel = channels[i % n_channels], .stop = &stop};
        pthread_create(&callers[i].thread, NULL, call_on, &callers[i]);
    }
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
    atomic_store(&stop, true);
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_threads; i++) {
        pthread_join(callers[i].thread, NULL);
        n += callers[i].n;
    }
    double seconds = (double)(clock_mono_us() - from_us) / 1e6;
    struct figures figures = {.per_s = (double)n / seconds,
                              .client_us = (cpu_seconds(0) - client_from) * 1e6 / (double)n,
                              .server_us = (cpu_seconds(server_pid) - server_from) * 1e6 / (double)n};
    for (uint32_t i = 0; i < n_channels; i++) {
        rpc_channel_close(channels[i]);
    }
    buf_deinit(&out);
    return figures;
}

static int compare(const void *a, const void *b)
{
    double x = ((const struct figures *)a)->per_s;
    double y = ((const struct figures *)b)->per_s;
    return (x > y) - (x < y);
}

static struct figures median_echoes(uint32_t n_threads, uint32_t n_channels, bool quick)
{
    struct figures rounds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        rounds[i] = echoes(n_threads, n_channels, quick ? 200 : 2000);
    }
    qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
    return rounds[ROUNDS / 2];
}

static void run_unary(bool quick)
{
    struct figures one = median_echoes(1, 1, quick);
    struct figures several = median_echoes(16, 1, quick);
    print("unary_us_1_thread", 1e6 / one.per_s, "us per echo of 100 bytes, one thread");
    print("unary_per_s_4_threads", median_echoes(4, 1, quick).per_s, "echoes/s, 4 threads, one connection");
    print("unary_per_s_16_threads", several.per_s, "echoes/s, 16 threads, one connection");
    print("unary_server_cpu_us", several.server_us, "us of processor time per echo in the server, 16 threads");
    print("unary_client_cpu_us", several.client_us, "us in the client");
    print("unary_per_s_64_threads", median_echoes(64, 1, quick).per_s, "echoes/s, 64 threads, one connection");
    print("unary_per_s_16_channels", median_echoes(16, 16, quick).per_s, "echoes/s, 16 threads, a connection each");
}

/* Kilobytes of memory that a process has. */
static double resident_kb(pid_t pid)
{
    char path[64];
    char line[256];
    double kb = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            kb = strtod(line + 6, NULL);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kb;
}

static void run_polls(bool quick)
{
    uint32_t n = quick ? 1000 : 20000;
    struct rpc_channel *channel = connect_to_server();
    struct rpc_stream **polls = mem_calloc(n, sizeof(struct rpc_stream *));
    struct error e = {0};
    struct buf out = {0};
    call(channel, "/bench/Echo", "", 0, &out);
    double kb_before = resident_kb(server_pid);
    int64_t from_us = clock_mono_us();
    for (uint32_t i = 0; i < n; i++) { /* a stream's opening does not wait, so no thread is needed here either */
        must(rpc_stream_open(channel, &(struct rpc_request){.path = "/bench/Hold"}, &polls[i], &e), &e);
    }
    uint32_t open = 0;
    while (open < n) {
        call(channel, "/bench/Count", "", 0, &out);
        memcpy(&open, out.data, sizeof(open));
    }
    double open_s = (double)(clock_mono_us() - from_us) / 1e6;
    double kb = resident_kb(server_pid) - kb_before;
    from_us = clock_mono_us();
    call(channel, "/bench/Release", "", 0, &out);
    for (uint32_t i = 0; i < n; i++) {
        bool ended = false;
        must(rpc_stream_next(polls[i], &out, &ended, NULL, &e), &e);
        must(rpc_stream_next(polls[i], &out, &ended, NULL, &e), &e);
        rpc_stream_close(polls[i]);
    }
    double answer_s = (double)(clock_mono_us() - from_us) / 1e6;
    print("polls_open", n, "calls open at one time, on one poller thread");
    print("polls_kb_each", kb / n, "KB of the server's memory for each");
    print("polls_opened_per_s", n / open_s, "opened/s");
    print("polls_answered_per_s", n / answer_s, "answered/s");
    buf_deinit(&out);
    mem_free((void *)polls);
    rpc_channel_close(channel);
}

static double messages_per_s(uint32_t n, uint32_t bytes)
{
    struct rpc_channel *channel = connect_to_server();
    struct rpc_stream *s = NULL;
    struct error e = {0};
    struct buf out = {0};
    uint32_t wanted[2] = {n, bytes};
    int64_t from_us = clock_mono_us();
    must(rpc_stream_open(channel, &(struct rpc_request){.path = "/bench/Stream", .bytes = wanted, .n = sizeof(wanted)},
                         &s, &e),
         &e);
    bool ended = false;
    while (!ended) {
        must(rpc_stream_next(s, &out, &ended, NULL, &e), &e);
    }
    double rate = n / ((double)(clock_mono_us() - from_us) / 1e6);
    rpc_stream_close(s);
    rpc_channel_close(channel);
    buf_deinit(&out);
    return rate;
}

static void run_stream(bool quick)
{
    print("stream_mb_per_s", messages_per_s(quick ? 100 : 2000, 1024 * 1024), "MiB/s, messages of 1 MiB");
    print("stream_messages_per_s", messages_per_s(quick ? 10000 : 200000, ECHO_BYTES), "messages/s, of 100 bytes");
}

static const struct part {
    const char *name;
    void (*run)(bool quick);
} parts[] = {{"unary", run_unary}, {"polls", run_polls}, {"stream", run_stream}};

static int usage(const char *argument)
{
    fprintf(stderr, "bench-rpc: unknown argument '%s'\n", argument);
    fprintf(stderr, "  hint: bench-rpc [--json] [--quick] [unary|polls|stream]\n");
    return 2;
}

/* Starts the server's process. Returns the pipe that keeps it alive. */
static int start_server(void)
{
    int report[2];
    int until[2];
    if (pipe(report) != 0 || pipe(until) != 0) {
        exit(1);
    }
    server_pid = fork();
    if (server_pid == 0) {
        close(report[0]);
        close(until[1]);
        serve(report[1], until[0]);
    }
    close(report[1]);
    close(until[0]);
    ssize_t n = read(report[0], address, sizeof(address) - 1);
    close(report[0]);
    if (n <= 0) {
        exit(1);
    }
    return until[1];
}

int main(int argc, char **argv)
{
    bool quick = false;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        bool is_part = false;
        for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
            is_part |= strcmp(argv[i], parts[k].name) == 0;
        }
        if (strcmp(argv[i], "--json") == 0) {
            as_json = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            quick = true;
        } else if (is_part) {
            only = argv[i];
        } else {
            return usage(argv[i]);
        }
    }
    int until = start_server();
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        if (only == NULL || strcmp(only, parts[k].name) == 0) {
            parts[k].run(quick);
        }
    }
    if (as_json) {
        printf(", \"quick\": %s}\n", quick ? "true" : "false");
    }
    close(until);
    waitpid(server_pid, NULL, 0);
    return 0;
}
