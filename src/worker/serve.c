/*
 * What a worker serves to others: the outputs in its store. One without a store tells every caller that what it asks for
 * is not registered here.
 */
#include "worker/worker_internal.h"

#define FILE_THREADS 2 /* that read what is not in memory any more */
#define REQUEST_BYTES_MAX ((size_t)64 * 1024)

static void refuse_partition(void *context, struct rpc_call *call)
{
    UNUSED(context);
    struct error e = {0};
    error_set(&e, ERR_NOT_FOUND, EXCHANGE_NOT_REGISTERED);
    rpc_call_fail(call, &e, NULL);
}

enum err worker__serve_open(struct worker *worker, const struct worker_options *options, struct error *e)
{
    if (options->listen == NULL) {
        return ERR_OK;
    }
    if (options->store != NULL) {
        worker->exchange = exchange_server_open(options->store, FILE_THREADS);
    }
    struct rpc_method methods[] = {{EXCHANGE_FETCH_PATH, options->store != NULL ? exchange_serve : refuse_partition}};
    struct rpc_server_options server = {.listen = options->listen,
                                        .methods = methods,
                                        .n_methods = ARRAY_LEN(methods),
                                        .context = worker->exchange,
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

void worker__serve_close(struct worker *worker)
{
    if (worker->server != NULL) {
        rpc_server_close(worker->server, 0);
    }
    exchange_server_close(worker->exchange);
    worker->server = NULL;
    worker->exchange = NULL;
}
