/*
 * tls.c - certificates: whether they can be used, and those of a server.
 *
 * A server's certificates are fetched by gRPC at each handshake, through a callback, so that they can be replaced while
 * the server runs. Each port asks on its own, and must be told once about each change; hence a view per port.
 *
 * Whether a certificate can be used only gRPC's TLS library can say, and it says so only when a port is opened. So
 * certificates are tried on a port of their own first: a bad file is then an error of whoever names it, not a connection
 * that fails later without a word.
 */
#include <string.h>

#include "base/mem.h"
#include "rpc/rpc_internal.h"

struct pems {
    char *cert;
    char *key;
    char *client_ca;
};

struct view {
    struct view *next;
    struct rpc__tls *tls;
    uint64_t seen; /* the version that this port has; under the lock */
};

struct rpc__tls {
    pthread_mutex_t lock;
    struct pems pems;
    uint64_t version;
    struct view *views;
    bool wants_client_cert; /* fixed: the kind of request belongs to the port */
};

static void pems_init(struct pems *pems, const char *cert, const char *key, const char *client_ca)
{
    *pems = (struct pems){.cert = mem_strdup(cert), .key = mem_strdup(key), .client_ca = mem_strdup(client_ca)};
}

static void pems_deinit(struct pems *pems)
{
    mem_free(pems->cert);
    mem_free(pems->key);
    mem_free(pems->client_ca);
}

static grpc_ssl_client_certificate_request_type request_type(bool wants_client_cert)
{
    return wants_client_cert ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
}

/* Whether gRPC opens a port with these. */
static bool port_opens(const char *cert, const char *key, const char *client_ca)
{
    grpc_ssl_pem_key_cert_pair pair = {.private_key = key, .cert_chain = cert};
    grpc_server_credentials *credentials =
        grpc_ssl_server_credentials_create_ex(client_ca, &pair, 1, request_type(client_ca != NULL), NULL);
    grpc_server *server = grpc_server_create(NULL, NULL);
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(server, cq, NULL);
    bool opens = grpc_server_add_http2_port(server, "127.0.0.1:0", credentials) != 0;
    grpc_server_credentials_release(credentials);
    grpc_server_shutdown_and_notify(server, cq, NULL);
    gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    grpc_completion_queue_next(cq, never, NULL);
    grpc_server_destroy(server);
    grpc_completion_queue_shutdown(cq);
    while (grpc_completion_queue_next(cq, never, NULL).type != GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(cq);
    return opens;
}

/* The value of a digit of base64, -1 for any other character. */
static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c == '\0' ? NULL : strchr(digits, c);
    return found == NULL ? -1 : (int)(found - digits);
}

/* Whether the lines of a block are one sequence of DER, as long as it says itself: not so if a part is missing. */
static bool block_is_whole(const char *at, const char *end)
{
    uint8_t head[5] = {0};
    size_t n = 0;
    uint32_t bits = 0;
    unsigned n_bits = 0;
    for (; at < end && *at != '='; at++) {
        int digit = digit_of(*at);
        if (digit < 0 && strchr(" \t\r\n", *at) == NULL) {
            return false;
        }
        if (digit < 0) {
            continue;
        }
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            head[n < sizeof head ? n : sizeof head - 1] = (uint8_t)(bits >> n_bits);
            n++;
        }
    }
    size_t n_length = head[1] > 0x80 ? head[1] - 0x80u : 0; /* bytes of a length that does not fit into one */
    size_t length = n_length == 0 ? head[1] : 0;
    for (size_t i = 0; i < n_length && n_length <= 2; i++) {
        length = length << 8 | head[2 + i];
    }
    return n > 4 && head[0] == 0x30 && n == 2 + n_length + length;
}

enum err rpc__tls_check_certificates(const char *pem, const char *what, struct error *e)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----";
    static const char end[] = "-----END CERTIFICATE-----";
    const char *at = strstr(pem, begin);
    if (at == NULL) {
        return error_set(e, ERR_INVALID, "the %s holds no certificate in PEM form", what);
    }
    for (int i = 1; at != NULL; i++) {
        const char *block = at + sizeof begin - 1;
        const char *block_end = strstr(block, end);
        if (block_end == NULL || !block_is_whole(block, block_end)) {
            error_set(e, ERR_INVALID, "the %s is broken: certificate %d in it is not whole", what, i);
            error_hint(e, "replace the file in one step: write another one, then rename it");
            return ERR_INVALID;
        }
        at = strstr(block_end, begin);
    }
    return ERR_OK;
}

enum err rpc__tls_check_pair(const char *cert, const char *key, const char *client_ca, struct error *e)
{
    if (cert == NULL || key == NULL) {
        return error_set(e, ERR_INVALID, "TLS needs both a certificate and its key");
    }
    enum err err = rpc__tls_check_certificates(cert, "TLS certificate", e);
    if (err == ERR_OK && client_ca != NULL) {
        err = rpc__tls_check_certificates(client_ca, "TLS client CA", e);
    }
    if (err == ERR_OK && !port_opens(cert, key, client_ca)) {
        err = error_set(e, ERR_INVALID, "the TLS certificate and key cannot be used");
        error_hint(e, "they must be in PEM form and belong together");
    }
    return err;
}

enum err rpc__tls_open(const char *cert, const char *key, const char *client_ca, struct rpc__tls **out, struct error *e)
{
    enum err err = rpc__tls_check_pair(cert, key, client_ca, e);
    if (err != ERR_OK) {
        return err;
    }
    struct rpc__tls *tls = mem_calloc(1, sizeof(*tls));
    pthread_mutex_init(&tls->lock, NULL);
    pems_init(&tls->pems, cert, key, client_ca);
    tls->version = 1;
    tls->wants_client_cert = client_ca != NULL;
    *out = tls;
    return ERR_OK;
}

void rpc__tls_close(struct rpc__tls *tls)
{
    if (tls == NULL) {
        return;
    }
    while (tls->views != NULL) {
        struct view *view = tls->views;
        tls->views = view->next;
        mem_free(view);
    }
    pems_deinit(&tls->pems);
    pthread_mutex_destroy(&tls->lock);
    mem_free(tls);
}

/* gRPC's question before each handshake. */
static grpc_ssl_certificate_config_reload_status fetch(void *context, grpc_ssl_server_certificate_config **out)
{
    struct view *view = context;
    struct rpc__tls *tls = view->tls;
    pthread_mutex_lock(&tls->lock);
    bool is_new = view->seen != tls->version;
    if (is_new) {
        grpc_ssl_pem_key_cert_pair pair = {.private_key = tls->pems.key, .cert_chain = tls->pems.cert};
        /* gRPC insists on some CA here, even where no client is asked for a certificate and it is not looked at. */
        const char *ca = tls->pems.client_ca != NULL ? tls->pems.client_ca : tls->pems.cert;
        *out = grpc_ssl_server_certificate_config_create(ca, &pair, 1);
        view->seen = tls->version;
    }
    pthread_mutex_unlock(&tls->lock);
    return is_new ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
}

grpc_server_credentials *rpc__tls_port(struct rpc__tls *tls)
{
    struct view *view = mem_calloc(1, sizeof(*view));
    view->tls = tls;
    view->next = tls->views;
    tls->views = view;
    grpc_ssl_server_credentials_options *options = grpc_ssl_server_credentials_create_options_using_config_fetcher(
        request_type(tls->wants_client_cert), fetch, view);
    return grpc_ssl_server_credentials_create_with_options(options);
}

enum err rpc__tls_replace(struct rpc__tls *tls, const char *cert, const char *key, const char *client_ca,
                          struct error *e)
{
    if ((client_ca != NULL) != tls->wants_client_cert) {
        return error_set(e, ERR_INVALID, "whether clients need a certificate cannot change while the server runs");
    }
    enum err err = rpc__tls_check_pair(cert, key, client_ca, e);
    if (err != ERR_OK) {
        return err;
    }
    struct pems fresh;
    pems_init(&fresh, cert, key, client_ca);
    pthread_mutex_lock(&tls->lock);
    struct pems old = tls->pems;
    tls->pems = fresh;
    tls->version++;
    pthread_mutex_unlock(&tls->lock);
    pems_deinit(&old);
    return ERR_OK;
}
