/*
 * What a worker serves to others: the outputs in its store. One without a store tells every caller that what it asks for
 * is not registered here.
 *
 * A worker that has a token answers only those who send the same: the workers of a cluster share one, and the coordinator
 * knows it. Its digest is kept, so that the comparison takes the same time whatever is sent.
 */
#include <string.h>

#include "worker/worker_internal.h"

#define FILE_THREADS 2 /* that read what is not in memory any more */
#define REQUEST_BYTES_MAX ((size_t)64 * 1024)

#define SCHEME "Bearer "

static bool may_fetch(const struct worker *worker, const struct rpc_call *call)
{
    uint8_t digest[SHA256_BYTES];
    if (!worker->has_token) {
        return true;
    }
    const char *sent = rpc_call_metadata(call, RPC_TOKEN_KEY);
    if (sent == NULL || strncmp(sent, SCHEME, sizeof SCHEME - 1) != 0) {
        return false;
    }
    sent += sizeof SCHEME - 1;
    sha256_once(sent, strlen(sent), digest);
    return sha256_equal(digest, worker->token_digest);
}

static enum err admit(void *context, uint32_t method, struct rpc_call *call, const void **out_note, struct error *e)
{
    UNUSED(method);
    UNUSED(out_note);
    if (may_fetch(context, call)) {
        return ERR_OK;
    }
    error_set(e, ERR_UNAUTHENTICATED, "this worker gives its data only to those who send the workers' token");
    error_hint(e, "workers of a cluster need the same token, and the coordinator this one, too: CAPSTAN_TOKEN");
    return ERR_UNAUTHENTICATED;
}

static void serve_partition(void *context, struct rpc_call *call)
{
    struct worker *worker = context;
    struct error e = {0};
    if (worker->exchange == NULL) {
        error_set(&e, ERR_NOT_FOUND, EXCHANGE_NOT_REGISTERED);
        rpc_call_fail(call, &e, NULL);
    } else {
        exchange_serve(worker->exchange, call);
    }
}

enum err worker__serve_open(struct worker *worker, const struct worker_options *options, struct error *e)
{
    if (options->listen == NULL) {
        return ERR_OK;
    }
    if (options->store != NULL) {
        worker->exchange = exchange_server_open(options->store, FILE_THREADS);
    }
    worker->has_token = options->token != NULL;
    if (worker->has_token) {
        sha256_once(options->token, strlen(options->token), worker->token_digest);
    }
    struct rpc_method methods[] = {{EXCHANGE_FETCH_PATH, serve_partition}};
    struct rpc_server_options server = {.listen = options->listen,
                                        .methods = methods,
                                        .n_methods = ARRAY_LEN(methods),
                                        .admit = admit,
                                        .context = worker,
                                        .message_bytes_max = REQUEST_BYTES_MAX,
                                        .tls_cert_pem = options->listen_cert_pem,
                                        .tls_key_pem = options->listen_key_pem,
                                        .tls_client_ca_pem = options->listen_client_ca_pem};
    enum err err = rpc_server_open(&server, &worker->server, e);
    if (err != ERR_OK) {
        worker__serve_close(worker);
    }
    return err;
}

enum err worker_reload_tls(struct worker *worker, const char *cert_pem, const char *key_pem, const char *client_ca_pem,
                           struct error *e)
{
    return worker->server == NULL ? ERR_OK : rpc_server_reload_tls(worker->server, cert_pem, key_pem, client_ca_pem, e);
}

void worker__serve_close(struct worker *worker)
{
    if (worker->server != NULL) {
        rpc_server_close(worker->server, 0);
    }
    exchange_server_close(worker->exchange);
    worker->server = NULL;
    worker->exchange = NULL;
}
