/*
 * server.c - opening and closing a server, and its pollers.
 *
 * Each poller is a thread with a completion queue of its own, and each call belongs to one queue. So the events of one
 * call are seen by one thread, one after the other, and call.c needs no lock among them; only the ends, which may come
 * from any thread, need one.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/rpc_internal.h"

#define POSTED_PER_POLLER 128 /* calls that gRPC may hand over before the poller has asked again */
#define FLUSH_MS_MAX 250      /* for the last answers to leave when no call is open any more */

static int compare_methods(const void *a, const void *b)
{
    return strcmp(((const struct rpc__method *)a)->path, ((const struct rpc__method *)b)->path);
}

static void copy_methods(struct rpc_server *server, const struct rpc_server_options *options)
{
    server->n_methods = options->n_methods;
    server->methods = mem_calloc(options->n_methods, sizeof(*server->methods));
    for (uint32_t i = 0; i < options->n_methods; i++) {
        server->methods[i].path = mem_strdup(options->methods[i].path);
        server->methods[i].handler = options->methods[i].handler;
        server->methods[i].number = i;
    }
    qsort(server->methods, server->n_methods, sizeof(*server->methods), compare_methods);
}

/* As strcmp; gRPC's own comparison of slices has an order of its own. */
static int compare_path(grpc_slice path, const char *with)
{
    size_t n = GRPC_SLICE_LENGTH(path);
    size_t m = strlen(with);
    int order = memcmp(GRPC_SLICE_START_PTR(path), with, n < m ? n : m);
    return order != 0 ? order : (n > m) - (n < m);
}

const struct rpc__method *rpc__server_method(const struct rpc_server *server, grpc_slice path)
{
    uint32_t from = 0;
    uint32_t to = server->n_methods;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        int order = compare_path(path, server->methods[middle].path);
        if (order == 0) {
            return &server->methods[middle];
        }
        if (order < 0) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    return NULL;
}

/* Why gRPC could not listen: it does not say, so the same is tried without it. Zero: this way it works. */
static int listen_errno(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno;
    }
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    int failed = bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, 1) != 0 ? errno : 0;
    close(fd);
    return failed;
}

static void set_port(struct addrinfo *at, uint16_t port)
{
    if (at->ai_family == AF_INET6) {
        ((struct sockaddr_in6 *)(void *)at->ai_addr)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)(void *)at->ai_addr)->sin_port = htons(port);
    }
}

/* Listens at one address. Returns 0 or an errno; `port` 0 becomes the port that was free. */
static int listen_at(struct rpc_server *server, struct addrinfo *at, uint16_t *port)
{
    char host[INET6_ADDRSTRLEN + 16];
    char text[sizeof(host) + 16];
    set_port(at, *port);
    if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0) {
        return EADDRNOTAVAIL;
    }
    rpc__address_format(host, *port, text, sizeof(text));
    grpc_server_credentials *credentials =
        server->tls != NULL ? rpc__tls_port(server->tls) : grpc_insecure_server_credentials_create();
    int bound = grpc_server_add_http2_port(server->grpc, text, credentials);
    grpc_server_credentials_release(credentials);
    if (bound <= 0) {
        int failed = listen_errno(at);
        return failed != 0 ? failed : EADDRINUSE; /* it was free again a moment later */
    }
    *port = (uint16_t)bound;
    return 0;
}

/* A name may stand for several addresses; all that this machine has must be free, or clients would find somebody else. */
static enum err listen_at_all(struct rpc_server *server, const struct rpc__address *address, struct error *e)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int unknown = getaddrinfo(address->host, NULL, &hints, &found);
    if (unknown != 0) {
        return error_set(e, ERR_INVALID, "cannot listen on '%s': %s", address->host, gai_strerror(unknown));
    }
    uint16_t port = address->port;
    bool listens = false;
    int failed = 0;
    for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        int problem = listen_at(server, at, &port);
        if (problem == 0) {
            listens = true;
        } else if (failed == 0 || (problem != EADDRNOTAVAIL && problem != EAFNOSUPPORT)) {
            failed = problem;
        }
    }
    freeaddrinfo(found);
    rpc__address_format(address->host, port, server->address, sizeof(server->address));
    if (failed == 0 || (listens && (failed == EADDRNOTAVAIL || failed == EAFNOSUPPORT))) {
        return ERR_OK;
    }
    error_set(e, ERR_UNAVAILABLE, "cannot listen on %s: %s", server->address, strerror(failed));
    if (failed == EADDRINUSE) {
        error_hint(e, "another process listens there; choose another port or stop it");
    }
    return ERR_UNAVAILABLE;
}

static void *poll_queue(void *context)
{
    struct rpc__poller *poller = context;
    for (;;) {
        grpc_event event = grpc_completion_queue_next(poller->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN) {
            return NULL;
        }
        if (event.type == GRPC_OP_COMPLETE) {
            const struct rpc__tag *tag = event.tag;
            tag->fn(tag->owner, event.success != 0);
        }
    }
}

static void on_shutdown(void *owner, bool ok)
{
    UNUSED(ok);
    struct rpc_server *server = owner;
    pthread_mutex_lock(&server->lock);
    server->n_shut++;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

void rpc__server_call_is_over(struct rpc_server *server)
{
    bool is_last = atomic_fetch_sub(&server->n_open, 1) == 1;
    if (is_last && atomic_load(&server->closing)) {
        pthread_mutex_lock(&server->lock);
        pthread_cond_broadcast(&server->changed);
        pthread_mutex_unlock(&server->lock);
    }
}

static void init_sync(struct rpc_server *server)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&server->lock, NULL);
}

static void create_pollers(struct rpc_server *server, uint32_t n)
{
    server->n_pollers = n;
    server->pollers = mem_calloc(n, sizeof(*server->pollers));
    for (uint32_t i = 0; i < n; i++) {
        server->pollers[i].server = server;
        server->pollers[i].cq = grpc_completion_queue_create_for_next(NULL);
        grpc_server_register_completion_queue(server->grpc, server->pollers[i].cq, NULL);
    }
}

static void start(struct rpc_server *server)
{
    grpc_server_start(server->grpc);
    for (uint32_t i = 0; i < server->n_pollers; i++) {
        for (uint32_t k = 0; k < POSTED_PER_POLLER; k++) {
            rpc__call_post(&server->pollers[i]);
        }
    }
    for (uint32_t i = 0; i < server->n_pollers; i++) {
        rpc__thread_start(&server->pollers[i].thread, poll_queue, &server->pollers[i]);
    }
}

/* Frees a server that gRPC has nothing left of. Its threads must not have been started, or have been joined. */
static void destroy(struct rpc_server *server)
{
    for (uint32_t i = 0; i < server->n_pollers; i++) {
        rpc__call_free_spare(&server->pollers[i]);
        grpc_completion_queue_destroy(server->pollers[i].cq);
    }
    mem_free(server->pollers);
    for (uint32_t i = 0; i < server->n_methods; i++) {
        mem_free(server->methods[i].path);
    }
    mem_free(server->methods);
    rpc__tls_close(server->tls);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    mem_free(server);
    rpc__runtime_release();
}

/* Undoes what was done before the pollers were started. */
static void abandon(struct rpc_server *server)
{
    grpc_server_shutdown_and_notify(server->grpc, server->pollers[0].cq, &server->shutdown);
    for (uint32_t i = 0; i < server->n_pollers; i++) {
        if (i == 0) {
            grpc_completion_queue_next(server->pollers[i].cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        }
        grpc_completion_queue_shutdown(server->pollers[i].cq);
        poll_queue(&server->pollers[i]);
    }
    grpc_server_destroy(server->grpc);
    destroy(server);
}

enum err rpc_server_open(const struct rpc_server_options *options, struct rpc_server **out, struct error *e)
{
    struct rpc__address address;
    enum err err = rpc__address_parse(options->listen, &address, e);
    if (err != ERR_OK) {
        return err;
    }
    rpc__runtime_acquire();
    struct rpc__tls *tls = NULL;
    if (options->tls_cert_pem != NULL || options->tls_key_pem != NULL || options->tls_client_ca_pem != NULL) {
        err = rpc__tls_open(options->tls_cert_pem, options->tls_key_pem, options->tls_client_ca_pem, &tls, e);
        if (err != ERR_OK) {
            rpc__runtime_release();
            return err;
        }
    }
    struct rpc_server *server = mem_calloc(1, sizeof(*server));
    server->tls = tls;
    server->context = options->context;
    server->calls_max = options->calls_max;
    server->message_bytes_max = rpc__message_bytes_max(options->message_bytes_max);
    server->shutdown = (struct rpc__tag){.fn = on_shutdown, .owner = server};
    init_sync(server);
    copy_methods(server, options);
    server->admit = options->admit;
    struct rpc__args args;
    rpc__args_server(&args, options->message_bytes_max);
    server->grpc = grpc_server_create(&(grpc_channel_args){.num_args = args.n, .args = args.items}, NULL);
    create_pollers(server, options->pollers == 0 ? 1 : options->pollers);
    err = listen_at_all(server, &address, e);
    if (err != ERR_OK) {
        abandon(server);
        return err;
    }
    start(server);
    *out = server;
    return ERR_OK;
}

const char *rpc_server_address(const struct rpc_server *server)
{
    return server->address;
}

enum err rpc_server_reload_tls(struct rpc_server *server, const char *cert_pem, const char *key_pem,
                               const char *client_ca_pem, struct error *e)
{
    if (server->tls == NULL) {
        return error_set(e, ERR_PRECONDITION, "the server was started without TLS");
    }
    return rpc__tls_replace(server->tls, cert_pem, key_pem, client_ca_pem, e);
}

static bool is_shut(const struct rpc_server *server)
{
    return server->n_shut == server->n_pollers;
}

/* gRPC forgets calls whose connection is gone, but somebody may still hold them. */
static bool is_over(const struct rpc_server *server)
{
    return is_shut(server) && atomic_load(&server->n_open) == 0;
}

/* Waits, at most until `until_ms`, until all is over, or only until no call is open. The lock is held. */
static void wait_for_calls(struct rpc_server *server, int64_t until_ms, bool until_over)
{
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = (until_ms % 1000) * 1000000};
    int waited = 0;
    while (waited != ETIMEDOUT && (until_over ? !is_over(server) : atomic_load(&server->n_open) > 0)) {
        waited = pthread_cond_timedwait(&server->changed, &server->lock, &until);
    }
}

/*
 * An idle connection keeps a server open until the client has answered the farewell, and a silent client might never;
 * so once no call is open, the last answers get a moment to leave and then the connections are cut.
 */
static void shut(struct rpc_server *server, int64_t grace_ms)
{
    int64_t until_ms = clock_mono_ms() + (grace_ms < 0 ? 0 : grace_ms);
    atomic_store(&server->closing, true);
    for (uint32_t i = 0; i < server->n_pollers; i++) { /* through each queue, behind the calls that are in it already */
        grpc_server_shutdown_and_notify(server->grpc, server->pollers[i].cq, &server->shutdown);
    }
    pthread_mutex_lock(&server->lock);
    wait_for_calls(server, until_ms, false);
    if (atomic_load(&server->n_open) == 0) {
        wait_for_calls(server, clock_mono_ms() + FLUSH_MS_MAX, true);
    }
    if (!is_shut(server)) {
        pthread_mutex_unlock(&server->lock);
        grpc_server_cancel_all_calls(server->grpc);
        pthread_mutex_lock(&server->lock);
    }
    while (!is_over(server)) {
        pthread_cond_wait(&server->changed, &server->lock);
    }
    pthread_mutex_unlock(&server->lock);
}

void rpc_server_close(struct rpc_server *server, int64_t grace_ms)
{
    if (server == NULL) {
        return;
    }
    shut(server, grace_ms);
    for (uint32_t i = 0; i < server->n_pollers; i++) {
        grpc_completion_queue_shutdown(server->pollers[i].cq);
    }
    for (uint32_t i = 0; i < server->n_pollers; i++) {
        pthread_join(server->pollers[i].thread, NULL);
    }
    grpc_server_destroy(server->grpc);
    destroy(server);
}
