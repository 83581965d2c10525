/*
 * What a worker serves to others: map outputs. As long as it keeps none, every request is for one that is not
 * registered here, and is told so.
 */
#include "worker/worker_internal.h"

static void fetch_partition(void *context, struct rpc_call *call)
{
    UNUSED(context);
    struct error e = {0};
    error_set(&e, ERR_NOT_FOUND, "map output not registered for requested attempt");
    rpc_call_fail(call, &e, NULL);
}

enum err worker__serve_open(const struct worker_options *options, struct rpc_server **out, struct error *e)
{
    static const struct rpc_method methods[] = {{"/capstan.v1.ShuffleService/FetchShufflePartition", fetch_partition}};
    struct rpc_server_options server = {.listen = options->listen,
                                        .methods = methods,
                                        .n_methods = ARRAY_LEN(methods),
                                        .message_bytes_max = (size_t)64 * 1024,
                                        .tls_cert_pem = options->listen_cert_pem,
                                        .tls_key_pem = options->listen_key_pem,
                                        .tls_client_ca_pem = options->listen_client_ca_pem};
    return rpc_server_open(&server, out, e);
}
