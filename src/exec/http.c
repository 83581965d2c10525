/*
 * http.c - the executor `http`: sends one request and takes the answer.
 *
 * Tasks come from people who may submit, and workers stand inside networks where such people may not be: so every
 * connection is checked when its socket is made, on the address that is really used. Names that resolve to something else
 * the second time, redirects and encoded addresses all come through there. For the same reason no proxy of the environment
 * is used, which would connect for us unseen.
 *
 * Redirects are followed here and not by curl, which keeps a method other than POST where a GET is asked for, and hands
 * all headers but two to the next host.
 */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "exec/address.h"
#include "exec/http_internal.h"

#define REDIRECTS_MAX 5
#define CONNECT_MS_MAX 30000L
#define POLL_MS 1000 /* curl's own needs; a stop wakes the poll at once */

struct http_executor {
    struct executor base;
    bool deny_private;
};

/* One run. */
struct exchange {
    const struct http_executor *executor;
    struct http_request request;
    struct http_response response;
    struct exec_stop *stop;
    int stop_fd;
    struct arena arena;
    CURLM *multi;
    bool is_denied; /* an address was refused, `denied` is its text */
    char denied[ADDRESS_TEXT_BYTES];
    const char *denied_as;
    char error[CURL_ERROR_SIZE];
};

/* For CURLOPT_OPENSOCKETFUNCTION: the last moment before anything is sent, with the address that is really meant. */
static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    UNUSED(purpose);
    struct exchange *x = context;
    enum address_kind kind = address_kind_of(&address->addr, address->addrlen);
    bool is_private = kind == ADDRESS_PRIVATE && x->executor->deny_private;
    if (kind == ADDRESS_LINK_LOCAL || kind == ADDRESS_FOREIGN || is_private) {
        x->is_denied = true;
        x->denied_as = is_private ? "a private address" : "a link-local address";
        address_text(&address->addr, address->addrlen, x->denied);
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static bool has_header(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->n_headers; i++) {
        if (strcasecmp(request->headers[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void add_header(struct curl_slist **list, const char *name, const char *value)
{
    struct buf line = {0};
    /* In curl's lists an empty header is written with a semicolon, and one that is not to be sent with a colon. */
    buf_format(&line, value[0] == '\0' ? "%s;%s" : "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(*list, line.data);
    ASSERT(longer != NULL);
    *list = longer;
    buf_deinit(&line);
}

static struct curl_slist *make_headers(const struct http_request *request)
{
    struct curl_slist *list = NULL;
    for (size_t i = 0; i < request->n_headers; i++) {
        add_header(&list, request->headers[i].name, request->headers[i].value);
    }
    if (request->idempotency_key != NULL && !has_header(request, "Idempotency-Key")) {
        add_header(&list, "Idempotency-Key", request->idempotency_key);
    }
    if (request->has_body && !has_header(request, "Content-Type")) {
        add_header(&list, "Content-Type", request->is_json ? "application/json" : "text/plain; charset=utf-8");
    }
    struct curl_slist *longer = curl_slist_append(list, "Expect:"); /* no second round trip for large bodies */
    ASSERT(longer != NULL);
    return longer;
}

static void set_method(CURL *easy, const struct http_request *request)
{
    const char *method = request->method;
    bool is_post = strcmp(method, "POST") == 0;
    if (strcmp(method, "GET") == 0) {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    } else if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else if (request->has_body || is_post || method[0] == 'P') {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(request->has_body ? request->n_body : 0));
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->has_body ? request->body : "");
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, is_post ? NULL : method);
    } else {
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    }
}

static void set_up(CURL *easy, struct exchange *x, struct curl_slist *headers)
{
    curl_easy_setopt(easy, CURLOPT_URL, x->request.url);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    set_method(easy, &x->request);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "capstan");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS_MAX);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, x);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, http__take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, &x->response);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, http__take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &x->response);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, x->error);
}

/* Drives the transfer to its end, or until it is stopped: CURLE_ABORTED_BY_CALLBACK then. */
static CURLcode drive(struct exchange *x)
{
    struct curl_waitfd stop = {.fd = x->stop_fd, .events = CURL_WAIT_POLLIN};
    int running = 1;
    while (running > 0) {
        if (exec_stop_reason(x->stop) != STOP_NONE) {
            return CURLE_ABORTED_BY_CALLBACK;
        }
        if (curl_multi_perform(x->multi, &running) != CURLM_OK ||
            (running > 0 && curl_multi_poll(x->multi, &stop, 1, POLL_MS, NULL) != CURLM_OK)) {
            return CURLE_FAILED_INIT;
        }
    }
    int left = 0;
    const CURLMsg *message = curl_multi_info_read(x->multi, &left);
    return message != NULL && message->msg == CURLMSG_DONE ? message->data.result : CURLE_FAILED_INIT;
}

/* One request and its answer. `out_next` is where the answer sends us, in the arena, or NULL. */
static CURLcode transfer(struct exchange *x, const char **out_next)
{
    CURL *easy = curl_easy_init();
    struct curl_slist *headers = make_headers(&x->request);
    CURLcode code = CURLE_FAILED_INIT;
    http__response_reset(&x->response);
    x->error[0] = '\0';
    x->is_denied = false;
    *out_next = NULL;
    if (easy == NULL) {
        goto out;
    }
    set_up(easy, x, headers);
    if (curl_multi_add_handle(x->multi, easy) != CURLM_OK) {
        goto out;
    }
    code = drive(x);
    if (code == CURLE_WRITE_ERROR && x->response.is_cut) {
        code = CURLE_OK; /* we had enough */
    }
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &x->response.status);
    char *next = NULL;
    curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &next);
    *out_next = arena_strdup(&x->arena, next);
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        /* Otherwise curl would wait here for a thread that asks for a name. */
        curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    }
    curl_multi_remove_handle(x->multi, easy);
out:
    curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
    return code;
}

static void explain(const struct exchange *x, CURLcode code, struct exec_outcome *out)
{
    struct buf origin = {0};
    http__origin(x->request.url, &origin);
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        exec_fail(out, false, "stopped");
    } else if (x->is_denied) {
        exec_fail(out, true, "inputs.url: %s leads to %s, %s, which is refused", origin.data, x->denied, x->denied_as);
    } else {
        const char *why = x->error[0] != '\0' ? x->error : curl_easy_strerror(code);
        exec_fail(out, code == CURLE_URL_MALFORMAT, "%s %s: %s", x->request.method, origin.data, why);
    }
    buf_deinit(&origin);
}

static void judge(const struct exchange *x, struct exec_outcome *out)
{
    long status = x->response.status;
    http__write_result(&x->response, &out->result);
    if (http__is_expected(&x->request, status)) {
        out->is_success = true;
        return;
    }
    struct buf origin = {0};
    http__origin(x->request.url, &origin);
    bool is_retryable = status >= 500 || status == 429;
    exec_fail(out, !is_retryable, "%s %s: status %ld", x->request.method, origin.data, status);
    buf_deinit(&origin);
}

/* Sends the request, and follows where the answers lead. */
static void exchange(struct exchange *x, struct exec_outcome *out)
{
    for (int redirects = 0;; redirects++) {
        const char *next = NULL;
        CURLcode code = transfer(x, &next);
        long status = x->response.status;
        if (code != CURLE_OK) {
            explain(x, code, out);
            return;
        }
        bool is_wanted = x->request.expect_status != NULL && http__is_expected(&x->request, status);
        if (next == NULL || is_wanted || !http__is_redirect(status)) {
            judge(x, out);
            return;
        }
        if (redirects == REDIRECTS_MAX) {
            exec_fail(out, true, "inputs.url: more than %d redirects", REDIRECTS_MAX);
            return;
        }
        if (http__redirect(&x->request, status, next, &x->arena) != ERR_OK) {
            exec_fail(out, true, "inputs.url: a redirect to '%s' is refused: it is neither http nor https", next);
            return;
        }
    }
}

static void run_http(struct executor *base, const struct exec_task *task, struct exec_stop *stop,
                     struct exec_outcome *out)
{
    struct exchange x = {.executor = CONTAINER_OF(base, struct http_executor, base), .stop = stop};
    struct json *inputs = NULL;
    if (!exec__read_inputs(task, out, &inputs)) {
        return;
    }
    if (http__read(task, inputs, &x.arena, &x.request, out)) {
        x.stop_fd = exec_stop_fd(stop);
        x.multi = curl_multi_init();
        if (x.stop_fd >= 0 && x.multi != NULL) {
            exchange(&x, out);
        } else {
            exec_fail(out, false, "cannot begin a request: there is no descriptor or memory left");
        }
        curl_multi_cleanup(x.multi);
    }
    http__response_deinit(&x.response);
    arena_deinit(&x.arena);
    json_free(inputs);
}

static void close_http(struct executor *base)
{
    mem_free(CONTAINER_OF(base, struct http_executor, base));
}

static void start_curl(void)
{
    CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
    ASSERT(code == CURLE_OK);
}

struct executor *executor_http(const struct exec_options *options)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_curl);
    struct http_executor *executor = mem_calloc(1, sizeof(*executor));
    executor->base = (struct executor){.name = "http", .run = run_http, .close = close_http};
    executor->deny_private = options->http_deny_private;
    return &executor->base;
}
