/*
 * The way of an HTTP request: who asks, which route, its message, the services; and the door through which the answer
 * comes back, as JSON or as a stream.
 *
 * A call belongs to its exchange from service__serve on and ends with it: with exactly one reply, fail or end.
 */
#include "coordinator/api.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/mem.h"
#include "coordinator/api_internal.h"
#include "coordinator/observer.h"
#include "coordinator/web.h"
#include "wire/json_shape.h"

#define THREADS 2
#define BODIES_BYTES_MAX ((size_t)4 * LIMIT_WIRE_BYTES)
#define JSON_TYPE "application/json"
#define EVENTS_PULSE ": still here\n\n" /* a comment of the event stream */

/* ---- errors ---- */

/* Whether a state that does not allow something is that of this process: it does not lead, or observes. */
static bool is_elsewhere(const struct api_call *call, enum err code)
{
    const struct service *service = call->api->service;
    struct coordinator *coordinator = atomic_load(&service->coordinator);
    if (code != ERR_PRECONDITION) {
        return false;
    }
    if (service->observer != NULL) {
        return call->route->rule->scope != SCOPE_READ;
    }
    return coordinator == NULL || coordinator_epoch(coordinator) == 0;
}

/* `leader` (may be NULL) stands in the error and beside it, for those who look at one of them only. */
static void write_error(struct http_answer *answer, const struct error *e, int status, const char *leader)
{
    answer->status = status;
    answer->type = JSON_TYPE;
    buf_reset(&answer->body);
    wire_json_error(&answer->body, e);
    if (leader != NULL) {
        answer->body.n -= 2; /* the braces */
        buf_text(&answer->body, ",\"leader\":");
        json_write_text(&answer->body, leader);
        buf_text(&answer->body, "},\"leader\":");
        json_write_text(&answer->body, leader);
        buf_char(&answer->body, '}');
    }
    buf_char(&answer->body, '\n');
    if (status == 401) {
        answer->header = "WWW-Authenticate";
        snprintf(answer->header_value, sizeof answer->header_value, "Bearer");
    }
}

static void refuse(struct http_answer *answer, const struct error *e)
{
    write_error(answer, e, err_http(e->code), NULL);
}

/* ---- who asks ---- */

static bool is_number(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* 127.example.org is a name like any other: whoever owns it can make it lead here. */
static bool is_loopback_name(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (strncmp(host, "127.", 4) == 0 && is_number(host));
}

/* The host of HOST, HOST:PORT or [HOST]:PORT. False if it does not fit. */
static bool host_of(const char *address, char *out, size_t size)
{
    bool has_brackets = address[0] == '[';
    const char *end = has_brackets ? strchr(address, ']') : strrchr(address, ':');
    const char *start = address + has_brackets;
    size_t n = end == NULL ? strlen(start) : (size_t)(end - start);
    if (n >= size) {
        return false;
    }
    memcpy(out, start, n);
    out[n] = '\0';
    return true;
}

static bool is_listed(const struct api *api, const char *name)
{
    for (uint32_t i = 0; i < api->n_names; i++) {
        if (strcasecmp(name, api->names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/*
 * A web page can make a browser send requests to any address. It cannot choose the Host, which is the name that it was
 * itself loaded from or that it asks for; so one that is no name of this server means that its name was made to lead here.
 */
enum err api__check_origin(const struct api *api, const char *host, const char *origin, struct error *e)
{
    char name[LIMIT_ADDRESS_BYTES + 1] = "";
    bool is_known =
        host != NULL && host_of(host, name, sizeof name) &&
        (is_loopback_name(name) || strcasecmp(name, api->host) == 0 || strcasecmp(name, api->advertise) == 0 ||
         is_listed(api, name) || (!is_loopback_name(api->host) && is_number(name)));
    if (!is_known) {
        error_set(e, ERR_DENIED, "Host: '%.100s' is no name of this coordinator", host == NULL ? "" : host);
        error_hint(e, "use the address that it listens on, the one of --advertise, or a name of --http-name");
        return ERR_DENIED;
    }
    const char *rest = origin == NULL ? NULL : strstr(origin, "://");
    bool is_own = rest != NULL && (strncmp(origin, "http://", 7) == 0 || strncmp(origin, "https://", 8) == 0) &&
                  strcasecmp(rest + 3, host) == 0;
    if (origin != NULL && !is_own) {
        error_set(e, ERR_DENIED, "Origin: '%.100s' is another site; its pages may not call this API", origin);
        error_hint(e, "programs that are no web pages send no Origin");
        return ERR_DENIED;
    }
    return ERR_OK;
}

static bool is_json(const char *type)
{
    size_t n = strlen(JSON_TYPE);
    return type != NULL && strncasecmp(type, JSON_TYPE, n) == 0 && strchr("; \t", type[n]) != NULL;
}

/* ---- the door: answers ---- */

static void call_free(struct api_call *call)
{
    rows_text_free(call->rows);
    mem_free(call);
}

static void reply(struct exchange *exchange, const void *message)
{
    struct api_call *call = exchange->api;
    struct http_answer answer = {.status = 200, .type = JSON_TYPE};
    struct observer *observer = exchange->service->observer;
    if (observer != NULL) {
        answer.header = "Capstan-Staleness-Ms";
        snprintf(answer.header_value, sizeof answer.header_value, "%" PRId64,
                 observer_staleness_ms(observer, exchange->as_of_mono_ms));
    }
    call->route->write(&answer.body, message, call);
    buf_char(&answer.body, '\n');
    http_request_answer(call->http, &answer);
    call_free(call);
}

/* An error before anything of the answer has left. */
static void answer_error(struct api_call *call, const struct error *e, const char *leader)
{
    struct http_answer answer = {.status = 500};
    bool is_not_here = is_elsewhere(call, e->code);
    write_error(&answer, e, is_not_here ? 503 : err_http(e->code), is_not_here ? leader : NULL);
    http_request_answer(call->http, &answer);
}

static void nothing_sent(void *context, bool ok)
{
    UNUSED(context);
    UNUSED(ok);
}

/* Tells a reader of events why there are no more. */
static void send_farewell(struct api_call *call, const struct error *e)
{
    struct buf text = {0};
    buf_text(&text, "event: end\ndata: ");
    wire_json_error(&text, e);
    buf_text(&text, "\n\n");
    http_stream_send(call->http, &text, nothing_sent, NULL);
}

static void fail(struct exchange *exchange, const struct error *e, const char *leader)
{
    struct api_call *call = exchange->api;
    if (call->is_over) {
        /* its reader has been told */
    } else if (!call->has_begun) {
        answer_error(call, e, leader);
    } else {
        if (call->is_events && e->code != ERR_CANCELED) {
            send_farewell(call, e);
        }
        http_stream_end(call->http, call->is_events);
    }
    call_free(call);
}

/* ---- the door: streams ---- */

static void begin(struct api_call *call)
{
    static const char *const types[] = {[API_FORMAT_JSON] = JSON_TYPE,
                                        [API_FORMAT_CSV] = "text/csv; charset=utf-8",
                                        [API_FORMAT_PARQUET] = "application/vnd.apache.parquet",
                                        [API_FORMAT_ARROW] = "application/vnd.apache.arrow.stream"};
    if (!call->has_begun) {
        call->has_begun = true;
        http_stream_begin(call->http, 200, call->is_events ? "text/event-stream" : types[call->format],
                          call->is_events ? EVENTS_PULSE : NULL);
    }
}

/* The stream cannot go on: tells the reader, and then the handler, who ends the exchange. */
static void give_up(struct api_call *call, const struct error *e)
{
    if (!call->has_begun) {
        answer_error(call, e, NULL);
    } else {
        http_stream_end(call->http, false);
    }
    call->is_over = true;
    call->sent(call->sent_context, NULL, false);
}

/* All rows that were asked for are there: ends the answer, and then the handler, who may have more. */
static void end_early(struct api_call *call, struct buf *text)
{
    struct error e = {0};
    bool is_whole = rows_text_end(call->rows, text, &e) == ERR_OK;
    http_stream_send(call->http, text, nothing_sent, NULL);
    http_stream_end(call->http, is_whole);
    call->is_over = true;
    call->sent(call->sent_context, NULL, false);
}

static void make_text(struct clerk *clerk, void *context);

static void text_sent(void *context, bool ok)
{
    struct api_call *call = context;
    if (ok && call->has_more) {
        office_send(call->api->service->relays, call->sender, make_text, call);
    } else {
        call->sent(call->sent_context, NULL, ok);
    }
}

/* Makes the next piece of text of the rows that are there; without any, asks for more rows. */
static void make_text(struct clerk *clerk, void *context)
{
    struct api_call *call = context;
    struct buf text = {0};
    struct error e = {0};
    UNUSED(clerk);
    if (rows_text_next(call->rows, &text, &call->has_more, &e) != ERR_OK) {
        buf_deinit(&text);
        give_up(call, &e);
        return;
    }
    begin(call);
    if (rows_text_is_full(call->rows)) {
        end_early(call, &text);
        return;
    }
    if (text.n == 0) {
        buf_deinit(&text);
        text_sent(call, true);
        return;
    }
    http_stream_send(call->http, &text, text_sent, call);
}

static void send_chunk(struct exchange *exchange, const struct pb_query_results_chunk *chunk)
{
    struct api_call *call = exchange->api;
    struct buf bytes = {0};
    struct error e = {0};
    call->sender = exchange->request->sender;
    call->has_more = false;
    if (!exchange->has_rows && call->format != API_FORMAT_JSON) {
        error_set(&e, ERR_INVALID, "format: the results of a task tree are JSON, nothing else");
        give_up(call, &e);
        return;
    }
    if (!exchange->has_rows && call->has_range) {
        error_set(&e, ERR_INVALID, "offset, limit: the results of a task tree are one object and come as a whole");
        give_up(call, &e);
        return;
    }
    if (exchange->has_rows && call->format != API_FORMAT_ARROW) {
        call->rows = call->rows != NULL ? call->rows : rows_text_new(call->format, call->range);
        rows_text_feed(call->rows, chunk->payload.data, chunk->payload.len);
        make_text(NULL, call);
        return;
    }
    begin(call);
    buf_append(&bytes, chunk->payload.data, chunk->payload.len);
    http_stream_send(call->http, &bytes, text_sent, call);
}

static void send_event(struct api_call *call, const struct pb_event *event)
{
    struct buf text = {0};
    buf_format(&text, "id: %" PRIu64 "\ndata: ", event->seq);
    wire_json_event(&text, event);
    buf_text(&text, "\n\n");
    begin(call);
    call->has_more = false;
    http_stream_send(call->http, &text, text_sent, call);
}

static void send_message(struct exchange *exchange, const void *message, rpc_sent_fn *sent, void *context)
{
    struct api_call *call = exchange->api;
    call->sent = sent;
    call->sent_context = context;
    if (call->is_events) {
        send_event(call, message);
    } else {
        send_chunk(exchange, message);
    }
}

static void rest(struct exchange *exchange)
{
    begin(exchange->api);
}

static void end(struct exchange *exchange)
{
    struct api_call *call = exchange->api;
    struct buf text = {0};
    struct error e = {0};
    bool is_whole = call->rows == NULL || rows_text_end(call->rows, &text, &e) == ERR_OK;
    begin(call);
    if (text.n > 0) {
        http_stream_send(call->http, &text, nothing_sent, NULL);
    }
    buf_deinit(&text);
    http_stream_end(call->http, is_whole);
    call_free(call);
}

static void tell_gone(void *context)
{
    struct api_call *call = context;
    call->gone(call->gone_context, NULL);
}

static void on_gone(struct exchange *exchange, rpc_gone_fn *fn, void *context)
{
    struct api_call *call = exchange->api;
    call->gone = fn;
    call->gone_context = context;
    http_request_on_gone(call->http, tell_gone, call);
}

static bool is_gone(struct exchange *exchange)
{
    return !exchange->api->is_over && http_request_is_gone(exchange->api->http);
}

const struct door door_http = {.reply = reply,
                               .fail = fail,
                               .send = send_message,
                               .rest = rest,
                               .end = end,
                               .on_gone = on_gone,
                               .is_gone = is_gone};

/* ---- the way in ---- */

static enum err read_format(struct http_request *http, enum api_format *out, struct error *e)
{
    static const char *const names[] = {[API_FORMAT_JSON] = "json",
                                        [API_FORMAT_CSV] = "csv",
                                        [API_FORMAT_PARQUET] = "parquet",
                                        [API_FORMAT_ARROW] = "arrow"};
    const char *format = http_request_query(http, "format");
    for (size_t i = 0; format != NULL && i < ARRAY_LEN(names); i++) {
        if (strcmp(format, names[i]) == 0) {
            *out = (enum api_format)i;
            return ERR_OK;
        }
    }
    if (format == NULL) {
        *out = API_FORMAT_JSON;
        return ERR_OK;
    }
    error_set(e, ERR_INVALID, "format: must be json, csv, parquet or arrow, not '%.40s'", format);
    error_hint(e, "without it the answer is JSON");
    return ERR_INVALID;
}

/* Which rows; `out_given` says whether anything was said about that. */
static enum err read_range(struct http_request *http, struct rows_range *out, bool *out_given, struct error *e)
{
    static const char *const names[] = {"offset", "limit"};
    uint64_t *const places[] = {&out->offset, &out->limit};
    *out_given = false;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *text = http_request_query(http, names[i]);
        size_t n = text == NULL ? 0 : strlen(text);
        uint64_t number = 0;
        if (text == NULL) {
            continue;
        }
        if (n == 0 || n > 18 || strspn(text, "0123456789") != n) {
            return error_set(e, ERR_INVALID, "%s: must be a whole number", names[i]);
        }
        for (size_t k = 0; k < n; k++) {
            number = number * 10 + (uint64_t)(text[k] - '0');
        }
        *places[i] = number;
        *out_given = true;
    }
    return ERR_OK;
}

/* What is said about the results beside whose they are. */
static enum err read_results(struct http_request *http, struct api_call *call, struct error *e)
{
    enum err err = read_format(http, &call->format, e);
    if (err == ERR_OK) {
        err = read_range(http, &call->range, &call->has_range, e);
    }
    if (err == ERR_OK && call->has_range && call->format != API_FORMAT_JSON && call->format != API_FORMAT_CSV) {
        err = error_set(e, ERR_INVALID, "offset, limit: go with format=json and format=csv only");
    }
    return err;
}

/* Makes the message, and has it served as if it had come over gRPC. */
static void serve_message(struct api *api, const struct api_route *route, const struct api_input *input,
                          struct http_answer *answer)
{
    struct arena arena = {0};
    struct error e = {0};
    struct buf bytes = {0};
    void *message = NULL;
    struct api_call made = {.api = api,
                            .route = route,
                            .http = input->http,
                            .range = {.limit = UINT64_MAX},
                            .is_events = route->rule == &method_WatchEvents};
    bool is_results = route->rule == &method_FetchQueryResults;
    enum err err = api__read(route, input, &arena, &message, &e);
    if (err == ERR_OK && is_results) {
        err = read_results(input->http, &made, &e);
    }
    if (err != ERR_OK) {
        refuse(answer, &e);
        arena_deinit(&arena);
        return;
    }
    wire_encode(message, &bytes);
    struct api_call *call = mem_calloc(1, sizeof *call);
    *call = made;
    snprintf(call->path_value, sizeof call->path_value, "%s", input->value);
    struct arrival arrival = {.door = &door_http,
                              .api = call,
                              .pass = input->pass,
                              .peer = http_request_peer(input->http),
                              .bytes = bytes.data,
                              .n = bytes.n,
                              .is_lasting =
                                  made.is_events || is_results || http_request_query(input->http, "wait_ms") != NULL};
    http_request_defer(input->http);
    service__serve(api->service, &arrival, route->rule);
    buf_deinit(&bytes);
    arena_deinit(&arena);
}

/* The scope that a token needs for the route. */
static enum scope scope_of(const struct api_route *route)
{
    return route->rule != NULL ? route->rule->scope : route->scope;
}

static enum err check_caller(struct api *api, const struct api_route *route, struct http_request *http,
                             const struct auth_pass **out_pass, struct error *e)
{
    char what[160];
    snprintf(what, sizeof what, "%s %s", route->method, route->path);
    return service__admit(api->service, http_request_header(http, "Authorization"), scope_of(route), what,
                          http_request_peer(http), out_pass, e);
}

/* A small body could become one that fills the memory, so none is unpacked. */
static enum err check_encoding(struct http_request *http, struct error *e)
{
    const char *encoding = http_request_header(http, "Content-Encoding");
    if (encoding == NULL || strcasecmp(encoding, "identity") == 0) {
        return ERR_OK;
    }
    error_set(e, ERR_INVALID, "Content-Encoding: '%.40s' is not taken", encoding);
    error_hint(e, "send the body as it is, without compression");
    return ERR_INVALID;
}

static void serve_route(struct api *api, const struct api_route *route, const char *value, struct http_request *http,
                        struct http_answer *answer)
{
    struct api_input input = {.http = http, .value = value};
    struct error e = {0};
    input.body = http_request_body(http, &input.n_body);
    if (!route->is_for_probes &&
        api__check_origin(api, http_request_header(http, "Host"), http_request_header(http, "Origin"), &e) != ERR_OK) {
        refuse(answer, &e);
        return;
    }
    if (check_caller(api, route, http, &input.pass, &e) != ERR_OK) {
        refuse(answer, &e);
        return;
    }
    if (check_encoding(http, &e) != ERR_OK) {
        write_error(answer, &e, 415, NULL);
        return;
    }
    if (input.n_body > 0 && !is_json(http_request_header(http, "Content-Type"))) {
        error_set(&e, ERR_INVALID, "Content-Type: must be " JSON_TYPE);
        write_error(answer, &e, 415, NULL);
        return;
    }
    if (route->rule == NULL) {
        route->plain(api, http, answer);
    } else {
        serve_message(api, route, &input, answer);
    }
}

/* A file of the dashboard. It holds no secret, so it needs no token: it is what asks for one. */
static void serve_file(const struct api *api, const struct web_file *file, struct http_request *http,
                       struct http_answer *answer)
{
    struct error e = {0};
    if (strcmp(http_request_method(http), "GET") != 0) {
        error_set(&e, ERR_INVALID, "%.40s does not go with %.100s", http_request_method(http), file->path);
        write_error(answer, &e, 405, NULL);
        http_answer_allow(answer, "GET");
    } else if (api__check_origin(api, http_request_header(http, "Host"), http_request_header(http, "Origin"), &e) !=
               ERR_OK) {
        refuse(answer, &e);
    } else {
        web_answer(file, http, answer);
    }
}

static void serve(void *context, struct http_request *http, struct http_answer *answer)
{
    const struct api_route *route = NULL;
    const char *value = NULL;
    struct arena arena = {0};
    struct error e = {0};
    enum err err = api__find(http_request_method(http), http_request_path(http), &route, &arena, &value, &e);
    const struct web_file *file = err == ERR_NOT_FOUND ? web_find(http_request_path(http)) : NULL;
    if (file != NULL) {
        serve_file(context, file, http, answer);
    } else if (err == ERR_NOT_FOUND) {
        write_error(answer, &e, 404, NULL);
    } else if (err != ERR_OK) {
        write_error(answer, &e, 405, NULL);
        api__allow(http_request_path(http), answer);
    } else {
        serve_route(context, route, value, http, answer);
    }
    arena_deinit(&arena);
}

/* Nobody who may not call a route makes us keep what he sends. */
static bool wants_body(void *context, struct http_request *http)
{
    struct api *api = context;
    const struct api_route *route = NULL;
    const char *value = NULL;
    struct arena arena = {0};
    bool is_known =
        api__find(http_request_method(http), http_request_path(http), &route, &arena, &value, NULL) == ERR_OK;
    arena_deinit(&arena);
    return is_known && auth_check(api->service->auth, http_request_header(http, "Authorization"), scope_of(route), NULL,
                                  NULL) == ERR_OK;
}

/* ---- starting and stopping ---- */

static char *own_host(const char *address)
{
    char host[LIMIT_ADDRESS_BYTES + 1] = "";
    (void)host_of(address, host, sizeof host);
    return mem_strdup(host);
}

enum err api_start(struct service *service, const struct api_options *options, struct api **out, struct error *e)
{
    static const struct http_route all[] = {{NULL, "/*", serve}}; /* which knows what a path takes */
    struct api *api = mem_calloc(1, sizeof *api);
    struct http_server_options server = {.listen = options->listen,
                                         .routes = all,
                                         .n_routes = ARRAY_LEN(all),
                                         .context = api,
                                         .wants_body = wants_body,
                                         .threads = THREADS,
                                         .connections_max = API_CONNECTIONS_MAX,
                                         .body_bytes_max = LIMIT_TREE_BYTES,
                                         .bodies_bytes_max = BODIES_BYTES_MAX,
                                         .tls_cert_pem = options->tls_cert_pem,
                                         .tls_key_pem = options->tls_key_pem,
                                         .tls_client_ca_pem = options->tls_client_ca_pem};
    api->service = service;
    api->names = options->names;
    api->n_names = options->n_names;
    api->host = own_host(options->listen);
    api->advertise = own_host(options->advertise == NULL ? options->listen : options->advertise);
    enum err err = http_server_open(&server, &api->server, e);
    if (err != ERR_OK) {
        api_stop(api);
        return err;
    }
    *out = api;
    return ERR_OK;
}

void api_stop(struct api *api)
{
    if (api != NULL) {
        http_server_close(api->server);
        mem_free(api->host);
        mem_free(api->advertise);
        mem_free(api);
    }
}

enum err api_reload_tls(struct api *api, const char *cert_pem, const char *key_pem, const char *client_ca_pem,
                        struct error *e)
{
    return http_server_reload_tls(api->server, cert_pem, key_pem, client_ca_pem, e);
}

const char *api_address(const struct api *api)
{
    return http_server_address(api->server);
}
