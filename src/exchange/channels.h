/*
 * channels.h - connections to other workers, one for each address, kept while they are of use.
 *
 * Ownership: the set belongs to its opener; a channel that is taken is given back. Threads: any.
 */
#ifndef CAPSTAN_EXCHANGE_CHANNELS_H
#define CAPSTAN_EXCHANGE_CHANNELS_H

#include "rpc/rpc.h"

struct exchange_channels;

/* `options` say everything but the target; the texts are copied. */
struct exchange_channels *exchange_channels_open(const struct rpc_channel_options *options);
void exchange_channels_close(struct exchange_channels *channels); /* NULL ok; after all are given back */

/* The channel to an address. ERR_INVALID if it is none. */
MUST_USE enum err exchange_channels_take(struct exchange_channels *channels, const char *address,
                                         struct rpc_channel **out, struct error *e);
/* With `is_broken` nobody gets it any more: who asks for the address next connects anew. */
void exchange_channels_give(struct exchange_channels *channels, struct rpc_channel *channel, bool is_broken);

/*
 * Whom to tell how long each chunk of rows took to come, from any thread. Before the first of them is fetched; `context`
 * outlives the channels.
 */
typedef void exchange_fetched_fn(void *context, int64_t us);
void exchange_channels_watch(struct exchange_channels *channels, exchange_fetched_fn *on_fetched, void *context);
void exchange_channels_fetched(struct exchange_channels *channels, int64_t us);

/* Counts bytes that came over one of them; and all that have. */
void exchange_channels_count(struct exchange_channels *channels, uint64_t bytes);
uint64_t exchange_channels_bytes(const struct exchange_channels *channels);

#endif
