#include <string.h>
#include <strings.h>

#include "exec/http_internal.h"

#define STATUS_MIN 100
#define STATUS_MAX 599

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};

/* Headers that follow from the request itself. */
static const char *const own_headers[] = {"Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade"};

/* Headers that may go to another origin: they say nothing about who asks. */
static const char *const plain_headers[] = {"Accept", "Accept-Language", "Content-Type", "User-Agent"};

static bool is_among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_web(const char *url)
{
    return strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
}

/* Blanks and control characters have no place in a URL; curl would send some of them as they are. */
static bool is_plain_url(const char *url)
{
    for (const char *p = url; *p != '\0'; p++) {
        if ((unsigned char)*p <= ' ' || *p == 0x7f) {
            return false;
        }
    }
    return true;
}

static bool read_url(const struct json *inputs, struct arena *arena, struct http_request *request,
                     struct exec_outcome *out)
{
    const char *url = NULL;
    if (!exec__text_member(inputs, "url", &url, out)) {
        return false;
    }
    if (url == NULL || !is_web(url)) {
        exec_fail(out, true, "inputs.url must be a text that begins with http:// or https://");
        return false;
    }
    CURLU *parts = curl_url();
    CURLUcode code = parts == NULL ? CURLUE_OUT_OF_MEMORY : curl_url_set(parts, CURLUPART_URL, url, 0);
    curl_url_cleanup(parts);
    if (code != CURLUE_OK || !is_plain_url(url)) {
        exec_fail(out, true, "inputs.url is not valid: %s",
                  code != CURLUE_OK ? curl_url_strerror(code) : "blanks and control characters must be escaped");
        return false;
    }
    request->url = arena_strdup(arena, url);
    return true;
}

static bool read_body(const struct json *inputs, struct arena *arena, struct http_request *request,
                      struct exec_outcome *out)
{
    const struct json *json = NULL;
    const struct json *body = json_get(inputs, "body");
    request->is_json = exec__find(inputs, "json", &json);
    request->has_body = request->is_json || body != NULL;
    if (request->is_json && body != NULL) {
        exec_fail(out, true, "inputs.json and inputs.body exclude each other");
        return false;
    }
    if (body != NULL && json_kind_of(body) != JSON_TEXT) {
        exec_fail(out, true, "inputs.body must be a text; use inputs.json for anything else");
        return false;
    }
    if (request->is_json) {
        struct buf text = {0};
        exec__write_tree(&text, json);
        request->body = arena_copy(arena, text.data, text.n);
        request->n_body = text.n;
        buf_deinit(&text);
    } else {
        request->body = json_text(body, &request->n_body);
    }
    return true;
}

static bool read_method(const struct json *inputs, struct http_request *request, struct exec_outcome *out)
{
    const char *method = request->has_body ? "POST" : "GET";
    if (!exec__text_member(inputs, "method", &method, out)) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (strcasecmp(method, methods[i]) == 0) {
            request->method = methods[i];
        }
    }
    if (request->method == NULL) {
        exec_fail(out, true, "inputs.method must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS, not '%s'", method);
        return false;
    }
    if (request->has_body && (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0)) {
        exec_fail(out, true, "inputs.method %s takes no inputs.json and no inputs.body", request->method);
        return false;
    }
    return true;
}

static bool is_token(const char *name)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (const char *p = name; *p != '\0'; p++) {
        bool is_letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
        if (!is_letter && strchr(others, *p) == NULL) {
            return false;
        }
    }
    return *name != '\0';
}

static bool is_header_value(const struct json *value)
{
    if (!exec__is_c_string(value)) {
        return false;
    }
    for (const char *p = json_text(value, NULL); *p != '\0'; p++) {
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f) {
            return false;
        }
    }
    return true;
}

static bool read_headers(const struct json *inputs, struct arena *arena, struct http_request *request,
                         struct exec_outcome *out)
{
    const struct json *headers = json_get(inputs, "headers");
    if (headers != NULL && json_kind_of(headers) != JSON_OBJECT) {
        exec_fail(out, true, "inputs.headers must be an object: the names and their texts");
        return false;
    }
    request->headers = arena_zalloc(arena, json_count(headers) * sizeof(struct http_header));
    size_t cursor = 0;
    const char *name = NULL;
    const struct json *value = NULL;
    while (json_next(headers, &cursor, &name, &value)) {
        if (!is_token(name)) {
            exec_fail(out, true, "inputs.headers: '%s' is no name of a header", name);
            return false;
        }
        if (is_among(name, own_headers, ARRAY_LEN(own_headers))) {
            exec_fail(out, true, "inputs.headers.%s is set by Capstan itself", name);
            return false;
        }
        if (!is_header_value(value)) {
            exec_fail(out, true, "inputs.headers.%s must be a text of one line", name);
            return false;
        }
        request->headers[request->n_headers++] = (struct http_header){.name = name, .value = json_text(value, NULL)};
    }
    return true;
}

static bool is_status(const struct json *node)
{
    int64_t status = 0;
    return json_int(node, &status) && status >= STATUS_MIN && status <= STATUS_MAX;
}

static bool read_expected(const struct json *inputs, struct http_request *request, struct exec_outcome *out)
{
    const struct json *expected = json_get(inputs, "expect_status");
    bool is_list = json_kind_of(expected) == JSON_ARRAY && json_count(expected) > 0;
    bool is_good = expected == NULL || is_list || is_status(expected);
    for (size_t i = 0; is_list && i < json_count(expected) && is_good; i++) {
        is_good = is_status(json_at(expected, i));
    }
    if (!is_good) {
        exec_fail(out, true, "inputs.expect_status must be a status from %d to %d, or a list of such", STATUS_MIN,
                  STATUS_MAX);
        return false;
    }
    request->expect_status = expected;
    return true;
}

bool http__read(const struct exec_task *task, const struct json *inputs, struct arena *arena,
                struct http_request *request, struct exec_outcome *out)
{
    *request = (struct http_request){.idempotency_key = task->task_key};
    return read_url(inputs, arena, request, out) && read_body(inputs, arena, request, out) &&
           read_method(inputs, request, out) && read_headers(inputs, arena, request, out) &&
           read_expected(inputs, request, out);
}

static bool is_that(const struct json *node, long status)
{
    int64_t expected = 0;
    return json_int(node, &expected) && expected == status;
}

bool http__is_expected(const struct http_request *request, long status)
{
    if (request->expect_status == NULL) {
        return status >= 200 && status <= 299;
    }
    for (size_t i = 0; i < json_count(request->expect_status); i++) {
        if (is_that(json_at(request->expect_status, i), status)) {
            return true;
        }
    }
    return is_that(request->expect_status, status);
}

bool http__is_redirect(long status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

void http__origin(const char *url, struct buf *out)
{
    char *scheme = NULL;
    char *host = NULL;
    char *port = NULL;
    CURLU *parts = curl_url();
    if (parts != NULL && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        buf_format(out, "%s://%s", scheme, host);
        if (curl_url_get(parts, CURLUPART_PORT, &port, 0) == CURLUE_OK) {
            buf_format(out, ":%s", port);
        }
    } else {
        buf_text(out, "the server");
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(parts);
}

/* Whether scheme, host and port are the same. */
static bool is_same_origin(const char *a, const char *b)
{
    static const CURLUPart which[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    CURLU *left = curl_url();
    CURLU *right = curl_url();
    bool is_same = left != NULL && right != NULL && curl_url_set(left, CURLUPART_URL, a, 0) == CURLUE_OK &&
                   curl_url_set(right, CURLUPART_URL, b, 0) == CURLUE_OK;
    for (size_t i = 0; i < ARRAY_LEN(which) && is_same; i++) {
        char *x = NULL;
        char *y = NULL;
        is_same = curl_url_get(left, which[i], &x, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                  curl_url_get(right, which[i], &y, CURLU_DEFAULT_PORT) == CURLUE_OK && strcasecmp(x, y) == 0;
        curl_free(x);
        curl_free(y);
    }
    curl_url_cleanup(left);
    curl_url_cleanup(right);
    return is_same;
}

static void drop_headers_for_stranger(struct http_request *request)
{
    size_t kept = 0;
    for (size_t i = 0; i < request->n_headers; i++) {
        if (is_among(request->headers[i].name, plain_headers, ARRAY_LEN(plain_headers))) {
            request->headers[kept++] = request->headers[i];
        }
    }
    request->n_headers = kept;
}

static void drop_content_type(struct http_request *request)
{
    size_t kept = 0;
    for (size_t i = 0; i < request->n_headers; i++) {
        if (strcasecmp(request->headers[i].name, "Content-Type") != 0) {
            request->headers[kept++] = request->headers[i];
        }
    }
    request->n_headers = kept;
}

enum err http__redirect(struct http_request *request, long status, const char *url, struct arena *arena)
{
    if (!is_web(url)) {
        return ERR_INVALID;
    }
    bool is_post = strcmp(request->method, "POST") == 0;
    bool is_head = strcmp(request->method, "HEAD") == 0;
    if ((status == 303 && !is_head) || ((status == 301 || status == 302) && is_post)) {
        request->method = "GET";
        request->has_body = false;
        request->is_json = false;
        drop_content_type(request);
    }
    if (!is_same_origin(request->url, url)) {
        drop_headers_for_stranger(request);
    }
    request->url = arena_strdup(arena, url);
    return ERR_OK;
}
