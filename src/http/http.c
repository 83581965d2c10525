#include "http/http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/json.h"
#include "base/mem.h"

#define BODY_BYTES_MAX (1024 * 1024)
#define CONNECTIONS_MAX 256
#define IDLE_SECONDS 60
#define ADDRESS_BYTES 300

struct http_server {
    struct MHD_Daemon *daemon;
    const struct http_route *routes;
    uint32_t n_routes;
    void *context;
    size_t body_bytes_max;
    char address[ADDRESS_BYTES];
};

struct http_request {
    struct MHD_Connection *connection;
    const char *path;
    struct buf body;
    bool is_too_long;
};

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
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    *out_known = false;
    for (uint32_t i = 0; i < server->n_routes; i++) {
        if (path_fits(server->routes[i].path, path)) {
            *out_known = true;
            if (strcmp(server->routes[i].method, wanted) == 0) {
                return &server->routes[i];
            }
        }
    }
    return NULL;
}

/* ---- answers ---- */

void http_answer_error(struct http_answer *answer, const struct error *e)
{
    answer->status = err_http(e->code);
    answer->type = "application/json";
    buf_reset(&answer->body);
    buf_format(&answer->body, "{\"error\":{\"code\":\"%s\",\"message\":", err_name(e->code));
    json_write_text(&answer->body, e->message);
    if (e->hint[0] != '\0') {
        buf_text(&answer->body, ",\"hint\":");
        json_write_text(&answer->body, e->hint);
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

static enum MHD_Result send_answer(struct MHD_Connection *connection, const struct http_answer *answer)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        answer->body.n, answer->body.data == NULL ? (void *)(uintptr_t) "" : answer->body.data, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result = MHD_NO;
    if (response != NULL) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
        (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
        result = MHD_queue_response(connection, (unsigned)answer->status, response);
        MHD_destroy_response(response);
    }
    return result;
}

static enum MHD_Result serve(const struct http_server *server, struct http_request *request, const char *method)
{
    struct http_answer answer = {.status = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
    bool is_known;
    const struct http_route *route = find_route(server, method, request->path, &is_known);
    if (request->is_too_long) {
        refuse(&answer, MHD_HTTP_CONTENT_TOO_LARGE, ERR_EXHAUSTED, "the body is too long");
    } else if (route != NULL) {
        route->handler(server->context, request, &answer);
    } else if (is_known) {
        refuse(&answer, MHD_HTTP_METHOD_NOT_ALLOWED, ERR_INVALID, "this path does not take this method");
    } else {
        refuse(&answer, MHD_HTTP_NOT_FOUND, ERR_NOT_FOUND, "there is no such path");
    }
    enum MHD_Result result = send_answer(request->connection, &answer);
    buf_deinit(&answer.body);
    return result;
}

/* Called first with the head of a request, then for each piece of its body, then once more: then it is complete. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *piece, size_t *n, void **state)
{
    const struct http_server *server = context;
    struct http_request *request = *state;
    UNUSED(version);
    if (request == NULL) {
        request = mem_calloc(1, sizeof *request);
        request->connection = connection;
        *state = request;
        return MHD_YES;
    }
    if (*n > 0) {
        if (request->body.n + *n > server->body_bytes_max) {
            request->is_too_long = true;
            buf_deinit(&request->body);
        } else if (!request->is_too_long) {
            buf_append(&request->body, piece, *n);
        }
        *n = 0;
        return MHD_YES;
    }
    request->path = url;
    return serve(server, request, method);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct http_request *request = *state;
    UNUSED(context);
    UNUSED(connection);
    UNUSED(why);
    if (request != NULL) {
        buf_deinit(&request->body);
        mem_free(request);
        *state = NULL;
    }
}

/* ---- requests ---- */

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
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    const char *colon = strrchr(listen, ':');
    snprintf(server->address, sizeof server->address, "%.*s:%u", (int)(colon - listen), listen,
             info == NULL ? 0u : (unsigned)info->port);
}

enum err http_server_open(const struct http_server_options *options, struct http_server **out, struct error *e)
{
    struct addrinfo *address = NULL;
    enum err err = resolve(options->listen, &address, e);
    if (err != ERR_OK) {
        return err;
    }
    ASSERT(address != NULL);
    struct http_server *server = mem_calloc(1, sizeof *server);
    server->routes = options->routes;
    server->n_routes = options->n_routes;
    server->context = options->context;
    server->body_bytes_max = options->body_bytes_max > 0 ? options->body_bytes_max : BODY_BYTES_MAX;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | (address->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    unsigned threads = options->threads > 1 ? options->threads : 0; /* a pool of one is no pool */
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_SOCK_ADDR, address->ai_addr, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, NULL, MHD_OPTION_CONNECTION_LIMIT,
        options->connections_max > 0 ? options->connections_max : (unsigned)CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_THREAD_POOL_SIZE, threads, MHD_OPTION_END);
    freeaddrinfo(address);
    if (server->daemon == NULL) {
        mem_free(server);
        error_set(e, ERR_UNAVAILABLE, "cannot listen on %.80s", options->listen);
        error_hint(e, "another process may use the port");
        return ERR_UNAVAILABLE;
    }
    write_address(server, options->listen);
    *out = server;
    return ERR_OK;
}

const char *http_server_address(const struct http_server *server)
{
    return server->address;
}

void http_server_close(struct http_server *server)
{
    if (server != NULL) {
        MHD_stop_daemon(server->daemon);
        mem_free(server);
    }
}
