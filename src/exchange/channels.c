#include "exchange/channels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/list.h"
#include "base/mem.h"

#define IDLE_MAX 64 /* workers come and go, each time at another port: the longest unused make room */

struct entry {
    struct list link; /* the most recently used first */
    char *address;
    struct rpc_channel *channel;
    uint32_t users;
    bool is_broken;
};

struct exchange_channels {
    struct rpc_channel_options options;
    exchange_fetched_fn *on_fetched; /* NULL: nobody is to be told */
    void *context;
    _Atomic uint64_t bytes;
    pthread_mutex_t lock; /* for all below */
    struct list entries;
    uint32_t n_idle;
};

struct exchange_channels *exchange_channels_open(const struct rpc_channel_options *options)
{
    struct exchange_channels *channels = mem_calloc(1, sizeof(*channels));
    channels->options = *options;
    channels->options.token = mem_strdup(options->token);
    channels->options.tls_ca_pem = mem_strdup(options->tls_ca_pem);
    channels->options.tls_cert_pem = mem_strdup(options->tls_cert_pem);
    channels->options.tls_key_pem = mem_strdup(options->tls_key_pem);
    pthread_mutex_init(&channels->lock, NULL);
    list_init(&channels->entries);
    return channels;
}

static void entry_free(struct entry *entry)
{
    list_remove(&entry->link);
    rpc_channel_close(entry->channel);
    mem_free(entry->address);
    mem_free(entry);
}

void exchange_channels_close(struct exchange_channels *channels)
{
    if (channels == NULL) {
        return;
    }
    LIST_EACH_SAFE(node, next, &channels->entries) {
        struct entry *entry = CONTAINER_OF(node, struct entry, link);
        ASSERT(entry->users == 0);
        entry_free(entry);
    }
    pthread_mutex_destroy(&channels->lock);
    mem_free((char *)channels->options.token);
    mem_free((char *)channels->options.tls_ca_pem);
    mem_free((char *)channels->options.tls_cert_pem);
    mem_free((char *)channels->options.tls_key_pem);
    mem_free(channels);
}

static struct entry *find(struct exchange_channels *channels, const char *address)
{
    LIST_EACH(node, &channels->entries) {
        struct entry *entry = CONTAINER_OF(node, struct entry, link);
        if (!entry->is_broken && strcmp(entry->address, address) == 0) {
            return entry;
        }
    }
    return NULL;
}

enum err exchange_channels_take(struct exchange_channels *channels, const char *address, struct rpc_channel **out,
                                struct error *e)
{
    enum err err = ERR_OK;
    pthread_mutex_lock(&channels->lock);
    struct entry *entry = find(channels, address);
    if (entry == NULL) { /* opening one connects nothing, so it may be done under the lock */
        struct rpc_channel_options options = channels->options;
        struct rpc_channel *channel = NULL;
        options.target = address;
        err = rpc_channel_open(&options, &channel, e);
        if (err == ERR_OK) {
            entry = mem_calloc(1, sizeof(*entry));
            entry->address = mem_strdup(address);
            entry->channel = channel;
            channels->n_idle++;
        }
    }
    if (err == ERR_OK) {
        channels->n_idle -= entry->users == 0 ? 1 : 0;
        entry->users++;
        list_remove(&entry->link);
        list_push_front(&channels->entries, &entry->link);
        *out = entry->channel;
    }
    pthread_mutex_unlock(&channels->lock);
    return err;
}

/*
 * Once a connection has failed, gRPC answers calls with that failure, and makes no new one unless somebody waits on its
 * queue: calls that fail at once do not. So a broken channel goes with its last user.
 */
void exchange_channels_give(struct exchange_channels *channels, struct rpc_channel *channel, bool is_broken)
{
    struct entry *given = NULL;
    struct entry *oldest = NULL;
    pthread_mutex_lock(&channels->lock);
    LIST_EACH(node, &channels->entries) {
        struct entry *entry = CONTAINER_OF(node, struct entry, link);
        if (entry->channel == channel) {
            ASSERT(entry->users > 0);
            entry->users--;
            entry->is_broken |= is_broken;
            given = entry;
            channels->n_idle += entry->users == 0 ? 1 : 0;
        }
        oldest = entry->users == 0 ? entry : oldest;
    }
    struct entry *gone = channels->n_idle > IDLE_MAX ? oldest : NULL;
    if (given != NULL && given->is_broken && given->users == 0) {
        gone = given;
    }
    if (gone != NULL) {
        list_remove(&gone->link);
        channels->n_idle--;
    }
    pthread_mutex_unlock(&channels->lock);
    if (gone != NULL) { /* closing may take a while */
        entry_free(gone);
    }
}

void exchange_channels_watch(struct exchange_channels *channels, exchange_fetched_fn *on_fetched, void *context)
{
    channels->on_fetched = on_fetched;
    channels->context = context;
}

void exchange_channels_fetched(struct exchange_channels *channels, int64_t us)
{
    if (channels->on_fetched != NULL) {
        channels->on_fetched(channels->context, us);
    }
}

void exchange_channels_count(struct exchange_channels *channels, uint64_t bytes)
{
    atomic_fetch_add_explicit(&channels->bytes, bytes, memory_order_relaxed);
}

uint64_t exchange_channels_bytes(const struct exchange_channels *channels)
{
    return atomic_load_explicit(&channels->bytes, memory_order_relaxed);
}
