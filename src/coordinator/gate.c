#include "coordinator/gate.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "base/siphash.h"

/* What has an open call. */
struct client {
    uint64_t key;
    uint64_t n_calls;
    uint64_t n_bytes;
    uint64_t n_held; /* connections */
};

struct gate {
    struct gate_limits limits;
    struct siphash_key secret;
    pthread_mutex_t lock; /* for all below */
    struct map clients;
    uint64_t n_calls;
    uint64_t n_held;
};

static bool is_client(const void *value, const void *key)
{
    return ((const struct client *)value)->key == *(const uint64_t *)key;
}

struct gate *gate_new(struct gate_limits limits)
{
    struct gate *gate = mem_calloc(1, sizeof *gate);
    int error = pthread_mutex_init(&gate->lock, NULL);
    ASSERT(error == 0);
    gate->limits = limits;
    random_bytes(&gate->secret, sizeof gate->secret);
    return gate;
}

void gate_free(struct gate *gate)
{
    if (gate != NULL) {
        ASSERT(gate->n_calls == 0);
        map_deinit(&gate->clients);
        pthread_mutex_destroy(&gate->lock);
        mem_free(gate);
    }
}

/* Zero is the coordinator itself. */
static uint64_t hash_of(const struct gate *gate, char kind, const char *text, size_t n)
{
    uint64_t hash = siphash(&gate->secret, text, n) ^ (uint64_t)(unsigned char)kind;
    return hash != 0 ? hash : 1;
}

struct sender gate_sender(const struct gate *gate, const char *token, const char *peer)
{
    const char *colon = strrchr(peer, ':');
    size_t n_host = colon != NULL ? (size_t)(colon - peer) : strlen(peer);
    return (struct sender){.client = token[0] != '\0' ? hash_of(gate, 't', token, strlen(token))
                                                      : hash_of(gate, 'h', peer, n_host),
                           .connection = hash_of(gate, 'c', peer, strlen(peer))};
}

static enum err check(const struct gate *gate, const struct client *client, size_t n_bytes, struct error *e)
{
    const struct gate_limits *limits = &gate->limits;
    if (client->n_calls >= limits->calls) {
        error_set(e, ERR_EXHAUSTED, "this client has %" PRIu64 " calls open that have not been answered",
                  client->n_calls);
        error_hint(e, "wait for answers before you send more; the limit is max_calls_per_client of the coordinator");
    } else if (client->n_calls > 0 && client->n_bytes + n_bytes > limits->bytes) {
        error_set(e, ERR_BUSY, "this client has requests of %" PRIu64 " bytes open that have not been answered",
                  client->n_bytes);
        error_hint(e, "try again when some have been; the limit is max_bytes_per_client of the coordinator");
        return ERR_BUSY;
    } else if (gate->n_calls >= limits->calls_all) {
        error_set(e, ERR_EXHAUSTED, "all clients together have %" PRIu64 " calls open", gate->n_calls);
        error_hint(e, "try again when others have been answered");
    } else {
        return ERR_OK;
    }
    return ERR_EXHAUSTED;
}

enum err gate_enter(struct gate *gate, struct sender sender, size_t n_bytes, struct error *e)
{
    static const struct client nobody;
    pthread_mutex_lock(&gate->lock);
    struct client *client = map_get(&gate->clients, sender.client, is_client, &sender.client);
    enum err err = check(gate, client != NULL ? client : &nobody, n_bytes, e);
    if (err == ERR_OK && client == NULL) {
        client = mem_calloc(1, sizeof *client);
        client->key = sender.client;
        map_put(&gate->clients, client->key, client);
    }
    if (err == ERR_OK) {
        client->n_calls++;
        client->n_bytes += n_bytes;
        gate->n_calls++;
    }
    pthread_mutex_unlock(&gate->lock);
    return err;
}

void gate_leave(struct gate *gate, struct sender sender, size_t n_bytes)
{
    pthread_mutex_lock(&gate->lock);
    struct client *client = map_get(&gate->clients, sender.client, is_client, &sender.client);
    ASSERT(client != NULL);
    ASSERT(client->n_calls > client->n_held);
    gate->n_calls--;
    client->n_bytes -= n_bytes;
    if (--client->n_calls == 0) {
        mem_free(map_take_value(&gate->clients, client->key, client));
    }
    pthread_mutex_unlock(&gate->lock);
}

enum err gate_hold(struct gate *gate, struct sender sender, struct error *e)
{
    enum err err = ERR_OK;
    pthread_mutex_lock(&gate->lock);
    struct client *client = map_get(&gate->clients, sender.client, is_client, &sender.client);
    ASSERT(client != NULL);
    if (client->n_held >= gate->limits.held) {
        err = error_set(e, ERR_EXHAUSTED, "this client has %" PRIu64 " streams and calls that wait open over HTTP",
                        client->n_held);
        error_hint(e, "end some of them: one GET /v1/events tells of all jobs; over gRPC there may be more");
    } else if (gate->n_held >= gate->limits.held_all) {
        err =
            error_set(e, ERR_EXHAUSTED,
                      "all clients together have %" PRIu64 " streams and calls that wait open over HTTP", gate->n_held);
        error_hint(e, "try again when others have ended, or use gRPC");
    } else {
        client->n_held++;
        gate->n_held++;
    }
    pthread_mutex_unlock(&gate->lock);
    return err;
}

void gate_release(struct gate *gate, struct sender sender)
{
    pthread_mutex_lock(&gate->lock);
    struct client *client = map_get(&gate->clients, sender.client, is_client, &sender.client);
    ASSERT(client != NULL);
    ASSERT(client->n_held > 0);
    client->n_held--;
    gate->n_held--;
    pthread_mutex_unlock(&gate->lock);
}
