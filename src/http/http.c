#include "http/http.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/json.h"
#include "base/mem.h"
#include "http/http_internal.h"

#define BODY_BYTES_MAX (1024 * 1024)
#define CONNECTIONS_MAX 256
#define PULSE_MS 15000

/* ---- routes ---- */

static bool path_fits(const char *pattern, const char *path)
{
    size_t n = strlen(pattern);
    if (n >= 2 && pattern[n - 1] == '*') {
        return strncmp(pattern, path, n - 1) == 0;
    }
    return strcmp(pattern, path) == 0;
}

static const struct http_route *find_route(const struct http_server *server, const char *method, const char *path,
                                           bool *out_known)
{
    *out_known = false;
    for (uint32_t i = 0; i < server->n_routes; i++) {
        if (path_fits(server->routes[i].path, path)) {
            *out_known = true;
            if (server->routes[i].method == NULL || strcmp(server->routes[i].method, method) == 0) {
                return &server->routes[i];
            }
        }
    }
    return NULL;
}

/* ---- answers ---- */

void http_answer_allow(struct http_answer *answer, const char *method)
{
    size_t n = strlen(answer->header_value);
    answer->header = "Allow";
    snprintf(answer->header_value + n, sizeof answer->header_value - n, "%s%s%s", n > 0 ? ", " : "", method,
             strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

static void allow_methods_of(const struct http_server *server, const char *path, struct http_answer *answer)
{
    for (uint32_t i = 0; i < server->n_routes; i++) {
        if (path_fits(server->routes[i].path, path)) {
            http_answer_allow(answer, server->routes[i].method);
        }
    }
}

void http_answer_error(struct http_answer *answer, const struct error *e)
{
    answer->status = err_http(e->code);
    answer->type = "application/json";
    buf_reset(&answer->body);
    buf_format(&answer->body, "{\"error\":{\"code\":\"%s\",\"message\":", err_name(e->code));
    json_write_text(&answer->body, e->message);
    buf_text(&answer->body, ",\"detail\":null,\"hint\":");
    if (e->hint[0] != '\0') {
        json_write_text(&answer->body, e->hint);
    } else {
        buf_text(&answer->body, "null");
    }
    buf_text(&answer->body, "}}\n");
}

static void refuse(struct http_answer *answer, int status, enum err code, const char *message)
{
    struct error e = {0};
    error_set(&e, code, "%s", message);
    http_answer_error(answer, &e);
    answer->status = status;
}

/* NULL, if there is no memory for it, makes libmicrohttpd close the connection. */
static enum MHD_Result queue(struct http_request *request, const struct http_answer *answer,
                             struct MHD_Response *response)
{
    enum MHD_Result result = MHD_NO;
    if (response != NULL && atomic_load(&request->daemon->is_retired)) { /* there is a newer certificate */
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
    if (response != NULL) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
        (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL,
                                      answer->caching != NULL ? answer->caching : "no-store");
        if (answer->header != NULL) {
            (void)MHD_add_response_header(response, answer->header, answer->header_value);
        }
        for (const struct http_header *more = answer->headers; more != NULL && more->name != NULL; more++) {
            (void)MHD_add_response_header(response, more->name, more->value);
        }
        result = MHD_queue_response(request->connection, (unsigned)answer->status, response);
        MHD_destroy_response(response);
    }
    return result;
}

static enum MHD_Result send_fixed(struct http_request *request, struct http_answer *answer)
{
    buf_deinit(&answer->body);
    return queue(
        request, answer,
        MHD_create_response_from_buffer(answer->n_fixed, (void *)(uintptr_t)answer->fixed, MHD_RESPMEM_PERSISTENT));
}

/* Takes the body over: it is freed when it has been sent. */
static enum MHD_Result send_answer(struct http_request *request, struct http_answer *answer)
{
    if (answer->fixed != NULL) {
        return send_fixed(request, answer);
    }
    if (answer->body.data == NULL) {
        buf_text(&answer->body, "");
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(answer->body.n, answer->body.data, mem_free);
    if (response == NULL) {
        buf_deinit(&answer->body);
    }
    answer->body = (struct buf){0};
    return queue(request, answer, response);
}

/* Counts the request as one that a handler has. False: no more are taken. */
static bool enter(struct http_request *request)
{
    struct http_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    bool is_open = !server->is_closing && !request->daemon->is_ending;
    if (is_open) {
        http__busy(request, 1);
    }
    pthread_mutex_unlock(&server->lock);
    return is_open;
}

static void leave(struct http_request *request)
{
    pthread_mutex_lock(&request->server->lock);
    http__busy(request, -1);
    pthread_mutex_unlock(&request->server->lock);
}

static enum MHD_Result serve(struct http_server *server, struct http_request *request)
{
    struct http_answer answer = {.status = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
    bool is_known;
    const struct http_route *route = find_route(server, request->method, request->path, &is_known);
    bool is_open = enter(request);
    if (!is_open) {
        refuse(&answer, MHD_HTTP_SERVICE_UNAVAILABLE, ERR_UNAVAILABLE, "this connection ends: try again with another");
    } else if (request->is_too_long) {
        refuse(&answer, MHD_HTTP_CONTENT_TOO_LARGE, ERR_EXHAUSTED, "the body is too long");
    } else if (request->is_too_much) {
        refuse(&answer, MHD_HTTP_SERVICE_UNAVAILABLE, ERR_BUSY,
               "too many large requests are being served at this moment: try again");
    } else if (route != NULL) {
        route->handler(server->context, request, &answer);
    } else if (is_known) {
        refuse(&answer, MHD_HTTP_METHOD_NOT_ALLOWED, ERR_INVALID, "this path does not take this method");
        allow_methods_of(server, request->path, &answer);
    } else {
        refuse(&answer, MHD_HTTP_NOT_FOUND, ERR_NOT_FOUND, "there is no such path");
    }
    if (is_open) {
        leave(request);
    }
    if (request->is_deferred) {
        return MHD_YES; /* there is another call when it has been resumed */
    }
    return send_answer(request, &answer);
}

/* A deferred request that has been resumed: its answer is there. */
static enum MHD_Result serve_later(struct http_request *request)
{
    return request->is_stream ? queue(request, &request->answer, http__stream_response(request))
                              : send_answer(request, &request->answer);
}

static void drop_body(struct http_request *request)
{
    atomic_fetch_sub(&request->server->bodies_bytes, request->body.n);
    buf_deinit(&request->body);
}

static void take_piece(struct http_request *request, const char *piece, size_t n)
{
    struct http_server *server = request->server;
    if (request->is_too_long || request->is_too_much || request->is_unwanted) {
        return; /* read to its end, so that the client sees the answer */
    }
    buf_append(&request->body, piece, n);
    size_t all = atomic_fetch_add(&server->bodies_bytes, n) + n;
    request->is_too_long = request->body.n > server->body_bytes_max;
    request->is_too_much = server->bodies_bytes_max > 0 && all > server->bodies_bytes_max;
    if (request->is_too_long || request->is_too_much) {
        drop_body(request);
    }
}

/*
 * Called first with the head of a request, then for each piece of its body, then once more: then it is complete. For
 * deferred ones again, when their connection has been resumed.
 */
enum MHD_Result http__on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                 const char *version, const char *piece, size_t *n, void **state)
{
    struct http_request *request = *state;
    struct http__daemon *daemon = context;
    UNUSED(version);
    if (request == NULL && !http__daemon_is_client_known(daemon->server, connection)) {
        return MHD_NO; /* such a one does not get through the handshake; if it does, this ends it */
    }
    if (request == NULL) {
        request = mem_calloc(1, sizeof *request);
        request->server = daemon->server;
        request->daemon = daemon;
        request->connection = connection;
        request->method = strcmp(method, "HEAD") == 0 ? "GET" : method;
        request->path = url;
        *state = request;
        http__daemon_is_spoken_to(connection);
        request->is_unwanted =
            request->server->wants_body != NULL && !request->server->wants_body(request->server->context, request);
        return MHD_YES;
    }
    if (*n > 0) {
        take_piece(request, piece, *n);
        *n = 0;
        return MHD_YES;
    }
    request->path = url;
    return request->is_deferred ? serve_later(request) : serve(request->server, request);
}

void http__request_free(struct http_request *request)
{
    drop_body(request);
    buf_deinit(&request->answer.body);
    buf_deinit(&request->chunk);
    mem_free(request);
}

void http__on_completed(void *context, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode why)
{
    struct http_request *request = *state;
    UNUSED(context);
    UNUSED(connection);
    UNUSED(why);
    *state = NULL;
    if (request != NULL && request->is_deferred) {
        http__completed(request);
    } else if (request != NULL) {
        http__request_free(request);
    }
}

/* ---- requests ---- */

const char *http_request_method(const struct http_request *request)
{
    return request->method;
}

const char *http_request_path(const struct http_request *request)
{
    return request->path;
}

const char *http_request_query(const struct http_request *request, const char *key)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, key);
}

const char *http_request_header(const struct http_request *request, const char *key)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, key);
}

const void *http_request_body(const struct http_request *request, size_t *out_n)
{
    *out_n = request->body.n;
    return request->body.data;
}

const char *http_request_peer(struct http_request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info != NULL ? info->client_addr : NULL;
    char host[INET6_ADDRSTRLEN] = "";
    if (request->peer[0] != '\0') {
        return request->peer;
    }
    if (address != NULL && address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(request->peer, sizeof request->peer, "ipv4:%s:%u", host, (unsigned)ntohs(v4->sin_port));
    } else if (address != NULL && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        (void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(request->peer, sizeof request->peer, "ipv6:[%s]:%u", host, (unsigned)ntohs(v6->sin6_port));
    } else {
        snprintf(request->peer, sizeof request->peer, "unknown");
    }
    return request->peer;
}

struct query_walk {
    http_query_fn *fn;
    void *context;
};

static enum MHD_Result visit_query(void *context, enum MHD_ValueKind kind, const char *key, const char *value)
{
    const struct query_walk *walk = context;
    UNUSED(kind);
    return walk->fn(walk->context, key, value == NULL ? "" : value) ? MHD_YES : MHD_NO;
}

void http_request_each_query(struct http_request *request, http_query_fn *fn, void *context)
{
    struct query_walk walk = {fn, context};
    (void)MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, visit_query, &walk);
}

/* ---- starting and stopping ---- */

/* Splits HOST:PORT, where an IPv6 address stands in brackets, and looks the host up. */
static enum err resolve(const char *listen, struct addrinfo **out, struct error *e)
{
    const char *colon = strrchr(listen, ':');
    char host[256];
    size_t n = colon == NULL ? 0 : (size_t)(colon - listen);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    bool has_brackets = n >= 2 && listen[0] == '[' && listen[n - 1] == ']';
    if (colon == NULL || n == 0 || n >= sizeof host) {
        return error_set(e, ERR_INVALID, "'%.80s' is no address: write HOST:PORT", listen);
    }
    memcpy(host, listen + has_brackets, n - 2 * (size_t)has_brackets);
    host[n - 2 * (size_t)has_brackets] = '\0';
    int error = getaddrinfo(host, colon + 1, &hints, out);
    if (error != 0) {
        return error_set(e, ERR_INVALID, "'%.80s' is no address: %s", listen, gai_strerror(error));
    }
    return ERR_OK;
}

/* The address as people write it, with the port that the system has chosen. */
static void write_address(struct http_server *server, const char *listen)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon->mhd, MHD_DAEMON_INFO_BIND_PORT);
    const char *colon = strrchr(listen, ':');
    snprintf(server->address, sizeof server->address, "%.*s:%u", (int)(colon - listen), listen,
             info == NULL ? 0u : (unsigned)info->port);
}

static struct http_server *server_new(const struct http_server_options *options)
{
    struct http_server *server = mem_calloc(1, sizeof *server);
    pthread_condattr_t monotonic;
    server->routes = options->routes;
    server->n_routes = options->n_routes;
    server->context = options->context;
    server->wants_body = options->wants_body;
    server->body_bytes_max = options->body_bytes_max > 0 ? options->body_bytes_max : BODY_BYTES_MAX;
    server->bodies_bytes_max = options->bodies_bytes_max;
    server->threads = options->threads > 1 ? (intptr_t)options->threads : 0; /* a pool of one is no pool */
    server->connections_max = options->connections_max > 0 ? (intptr_t)options->connections_max : CONNECTIONS_MAX;
    server->pulse_ms = options->pulse_ms > 0 ? options->pulse_ms : PULSE_MS;
    server->silent_s = options->silent_s;
    list_init(&server->retired);
    list_init(&server->streams);
    pthread_mutex_init(&server->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return server;
}

static void server_free(struct http_server *server)
{
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    mem_free(server);
}

enum err http_server_open(const struct http_server_options *options, struct http_server **out, struct error *e)
{
    struct addrinfo *address = NULL;
    enum err err = resolve(options->listen, &address, e);
    if (err != ERR_OK) {
        return err;
    }
    ASSERT(address != NULL);
    struct http_server *server = server_new(options);
    server->is_ipv6 = address->ai_family == AF_INET6;
    server->has_tls = options->tls_cert_pem != NULL;
    server->wants_client_cert = options->tls_client_ca_pem != NULL;
    struct http__tls tls = {options->tls_cert_pem, options->tls_key_pem, options->tls_client_ca_pem};
    server->daemon = http__daemon_start(server, &tls, address->ai_addr, -1);
    freeaddrinfo(address);
    if (server->daemon == NULL) {
        server_free(server);
        error_set(e, ERR_UNAVAILABLE, "cannot serve HTTP on %.80s", options->listen);
        error_hint(e, "%s",
                   options->tls_cert_pem != NULL
                       ? "another process may use the port, or the certificate is not its key's"
                       : "another process may use the port");
        return ERR_UNAVAILABLE;
    }
    write_address(server, options->listen);
    int failed = pthread_create(&server->pulse, NULL, http__pulse, server);
    ASSERT(failed == 0);
    *out = server;
    return ERR_OK;
}

const char *http_server_address(const struct http_server *server)
{
    return server->address;
}

void http_server_close(struct http_server *server)
{
    if (server == NULL) {
        return;
    }
    pthread_mutex_lock(&server->lock);
    server->is_closing = true;
    pthread_cond_broadcast(&server->changed);
    while (server->n_busy > 0) { /* libmicrohttpd must not be stopped while connections are suspended */
        pthread_cond_wait(&server->changed, &server->lock);
    }
    pthread_mutex_unlock(&server->lock);
    pthread_join(server->pulse, NULL);
    http__daemons_stop(server);
    pthread_mutex_lock(&server->lock);
    while (server->n_held > 0) {
        pthread_cond_wait(&server->changed, &server->lock);
    }
    pthread_mutex_unlock(&server->lock);
    server_free(server);
}
