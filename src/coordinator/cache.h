/*
 * cache.h - payloads that were used lately, so that handing out a task needs no look into the store.
 *
 * Two kinds of entries: inputs, under the digest of their content, and results of tree tasks, under the task's stage. A
 * result may be known to be none. Bounded by bytes; what was used longest ago goes first. It holds only what is durable,
 * and is emptied when the leadership is lost: another leader may have changed results since.
 *
 * Ownership: entries are copies. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_CACHE_H
#define CAPSTAN_COORDINATOR_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "core/ids.h"

struct cache;

/* What a payload is known by: `digest`, or without one the result of the task of `stage`. */
struct cache_key {
    const char *job_id;
    const struct digest *digest;
    uint32_t stage;
};

struct cache *cache_new(size_t bytes_max);
void cache_free(struct cache *cache); /* NULL ok */

/* Replaces what was there. `n` 0: the task has no result. Entries of more than a quarter of the whole are not kept. */
void cache_put(struct cache *cache, const struct cache_key *key, const void *bytes, size_t n);

/*
 * The same for what was read from the store: only if there is no entry yet, which would be newer, and the cache has not
 * been emptied since `mark`, which is cache_mark's answer from before the read.
 */
uint64_t cache_mark(struct cache *cache);
void cache_fill(struct cache *cache, uint64_t mark, const struct cache_key *key, const void *bytes, size_t n);

/* Copies the entry into the arena. False if there is none. */
bool cache_get(struct cache *cache, const struct cache_key *key, struct arena *arena, const void **out_bytes,
               size_t *out_n);

void cache_clear(struct cache *cache);

struct cache_stats {
    uint64_t hits;
    uint64_t misses;
    uint64_t entries;
    uint64_t bytes;
};

struct cache_stats cache_stats(struct cache *cache);

#endif
