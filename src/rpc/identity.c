/*
 * identity.c - what a process presents to those that it calls, and whom it believes.
 *
 * gRPC's credentials cannot change; so there are new ones for each change, and a number by which channels notice. Whether
 * they can be used is found out before: a channel with bad ones would only say later that nobody can be reached.
 */
#include <string.h>

#include "base/mem.h"
#include "rpc/rpc_internal.h"

struct rpc_identity {
    _Atomic uint64_t version;
    pthread_mutex_t lock; /* for all below */
    char *ca;
    char *cert;
    char *key;
    grpc_channel_credentials *credentials;
};

/* Inside a runtime. */
static enum err check(const struct rpc_identity_pems *pems, struct error *e)
{
    bool has_pair = pems->cert != NULL || pems->key != NULL;
    enum err err = pems->ca != NULL ? rpc__tls_check_certificates(pems->ca, "TLS CA", e) : ERR_OK;
    if (err == ERR_OK && has_pair) {
        err = rpc__tls_check_pair(pems->cert, pems->key, NULL, e);
    }
    return err;
}

static bool is_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* With the lock, or before anybody else has it. */
static void set(struct rpc_identity *identity, const struct rpc_identity_pems *pems)
{
    grpc_ssl_pem_key_cert_pair pair = {.private_key = pems->key, .cert_chain = pems->cert};
    mem_free(identity->ca);
    mem_free(identity->cert);
    mem_free(identity->key);
    identity->ca = mem_strdup(pems->ca);
    identity->cert = mem_strdup(pems->cert);
    identity->key = mem_strdup(pems->key);
    if (identity->credentials != NULL) {
        grpc_channel_credentials_release(identity->credentials);
    }
    identity->credentials = grpc_ssl_credentials_create_ex(pems->ca, pems->cert != NULL ? &pair : NULL, NULL, NULL);
    atomic_fetch_add(&identity->version, 1);
}

enum err rpc_identity_open(const struct rpc_identity_pems *pems, struct rpc_identity **out, struct error *e)
{
    rpc__runtime_acquire();
    enum err err = check(pems, e);
    if (err != ERR_OK) {
        rpc__runtime_release();
        return err;
    }
    struct rpc_identity *identity = mem_calloc(1, sizeof(*identity));
    pthread_mutex_init(&identity->lock, NULL);
    set(identity, pems);
    *out = identity;
    return ERR_OK;
}

void rpc_identity_close(struct rpc_identity *identity)
{
    if (identity == NULL) {
        return;
    }
    grpc_channel_credentials_release(identity->credentials);
    pthread_mutex_destroy(&identity->lock);
    mem_free(identity->ca);
    mem_free(identity->cert);
    mem_free(identity->key);
    mem_free(identity);
    rpc__runtime_release();
}

enum err rpc_identity_replace(struct rpc_identity *identity, const struct rpc_identity_pems *pems, struct error *e)
{
    enum err err = check(pems, e);
    if (err != ERR_OK) {
        return err;
    }
    pthread_mutex_lock(&identity->lock);
    if (!is_same_text(identity->ca, pems->ca) || !is_same_text(identity->cert, pems->cert) ||
        !is_same_text(identity->key, pems->key)) {
        set(identity, pems);
    }
    pthread_mutex_unlock(&identity->lock);
    return ERR_OK;
}

uint64_t rpc__identity_version(const struct rpc_identity *identity)
{
    return atomic_load(&identity->version);
}

grpc_channel *rpc__identity_connect(struct rpc_identity *identity, const char *target, const struct rpc__args *args,
                                    uint64_t *out_version)
{
    grpc_channel_args all = {.num_args = args->n, .args = (grpc_arg *)args->items};
    pthread_mutex_lock(&identity->lock);
    grpc_channel *channel = grpc_channel_create(target, identity->credentials, &all);
    *out_version = rpc__identity_version(identity);
    pthread_mutex_unlock(&identity->lock);
    return channel;
}
