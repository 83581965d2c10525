#include "coordinator/cache.h"

#include <pthread.h>
#include <string.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/siphash.h"

#define ENTRY_COST (sizeof(struct entry) + 32) /* with its slot in the map */

struct entry {
    struct list in_order; /* least recently used first */
    uint64_t hash;
    size_t n;
    bool has_digest;
    uint32_t stage;
    struct digest digest;
    uint32_t job_id_bytes; /* with the NUL */
    char job_id[];         /* then the payload */
};

struct cache {
    pthread_mutex_t lock;
    struct siphash_key secret; /* job ids are chosen by clients */
    struct map entries;
    struct list order;
    size_t bytes_max;
    uint64_t n_cleared;
    struct cache_stats stats;
};

static bool is_entry(const void *value, const void *wanted)
{
    const struct entry *entry = value;
    const struct cache_key *key = wanted;
    if (entry->has_digest != (key->digest != NULL) || strcmp(entry->job_id, key->job_id) != 0) {
        return false;
    }
    return entry->has_digest ? memcmp(&entry->digest, key->digest, sizeof entry->digest) == 0
                             : entry->stage == key->stage;
}

static uint64_t hash_of(const struct cache *cache, const struct cache_key *key)
{
    uint64_t hash = siphash(&cache->secret, key->job_id, strlen(key->job_id));
    if (key->digest == NULL) {
        return hash ^ ((uint64_t)key->stage + 1) * UINT64_C(0x9e3779b97f4a7c15);
    }
    uint64_t first;
    memcpy(&first, key->digest->bytes, sizeof first);
    return hash ^ first;
}

static size_t cost_of(const struct entry *entry)
{
    return ENTRY_COST + entry->job_id_bytes + entry->n;
}

/* Takes the entry out of everything and frees it. */
static void drop(struct cache *cache, struct entry *entry)
{
    (void)map_take_value(&cache->entries, entry->hash, entry);
    list_remove(&entry->in_order);
    cache->stats.entries--;
    cache->stats.bytes -= cost_of(entry);
    mem_free(entry);
}

struct cache *cache_new(size_t bytes_max)
{
    struct cache *cache = mem_calloc(1, sizeof *cache);
    int error = pthread_mutex_init(&cache->lock, NULL);
    ASSERT(error == 0);
    random_bytes(&cache->secret, sizeof cache->secret);
    list_init(&cache->order);
    cache->bytes_max = bytes_max;
    return cache;
}

void cache_clear(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    cache->n_cleared++;
    for (struct list *first; (first = list_first(&cache->order)) != NULL;) {
        drop(cache, CONTAINER_OF(first, struct entry, in_order));
    }
    pthread_mutex_unlock(&cache->lock);
}

void cache_free(struct cache *cache)
{
    if (cache != NULL) {
        cache_clear(cache);
        map_deinit(&cache->entries);
        pthread_mutex_destroy(&cache->lock);
        mem_free(cache);
    }
}

static struct entry *entry_new(uint64_t hash, const struct cache_key *key, const void *bytes, size_t n)
{
    size_t job_id_bytes = strlen(key->job_id) + 1;
    struct entry *entry = mem_alloc(sizeof *entry + job_id_bytes + n);
    *entry = (struct entry){.hash = hash,
                            .n = n,
                            .has_digest = key->digest != NULL,
                            .stage = key->digest != NULL ? 0 : key->stage,
                            .job_id_bytes = (uint32_t)job_id_bytes};
    if (key->digest != NULL) {
        entry->digest = *key->digest;
    }
    memcpy(entry->job_id, key->job_id, job_id_bytes);
    if (n > 0) {
        memcpy(entry->job_id + job_id_bytes, bytes, n);
    }
    return entry;
}

/* The lock is held. */
static void add(struct cache *cache, struct entry *entry)
{
    map_put(&cache->entries, entry->hash, entry);
    list_push_back(&cache->order, &entry->in_order);
    cache->stats.entries++;
    cache->stats.bytes += cost_of(entry);
    while (cache->stats.bytes > cache->bytes_max) {
        drop(cache, CONTAINER_OF(list_first(&cache->order), struct entry, in_order));
    }
}

void cache_put(struct cache *cache, const struct cache_key *key, const void *bytes, size_t n)
{
    uint64_t hash = hash_of(cache, key);
    struct entry *entry = n <= cache->bytes_max / 4 ? entry_new(hash, key, bytes, n) : NULL;
    pthread_mutex_lock(&cache->lock);
    struct entry *old = map_get(&cache->entries, hash, is_entry, key);
    if (old != NULL) {
        drop(cache, old);
    }
    if (entry != NULL) {
        add(cache, entry);
    }
    pthread_mutex_unlock(&cache->lock);
}

uint64_t cache_mark(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t mark = cache->n_cleared;
    pthread_mutex_unlock(&cache->lock);
    return mark;
}

void cache_fill(struct cache *cache, uint64_t mark, const struct cache_key *key, const void *bytes, size_t n)
{
    uint64_t hash = hash_of(cache, key);
    if (n > cache->bytes_max / 4) {
        return;
    }
    struct entry *entry = entry_new(hash, key, bytes, n);
    pthread_mutex_lock(&cache->lock);
    bool is_wanted = mark == cache->n_cleared && map_get(&cache->entries, hash, is_entry, key) == NULL;
    if (is_wanted) {
        add(cache, entry);
    }
    pthread_mutex_unlock(&cache->lock);
    if (!is_wanted) {
        mem_free(entry);
    }
}

bool cache_get(struct cache *cache, const struct cache_key *key, struct arena *arena, const void **out_bytes,
               size_t *out_n)
{
    uint64_t hash = hash_of(cache, key);
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = map_get(&cache->entries, hash, is_entry, key);
    if (entry != NULL) {
        *out_bytes = arena_copy(arena, entry->job_id + entry->job_id_bytes, entry->n);
        *out_n = entry->n;
        list_remove(&entry->in_order);
        list_push_back(&cache->order, &entry->in_order);
        cache->stats.hits++;
    } else {
        cache->stats.misses++;
    }
    pthread_mutex_unlock(&cache->lock);
    return entry != NULL;
}

struct cache_stats cache_stats(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    struct cache_stats stats = cache->stats;
    pthread_mutex_unlock(&cache->lock);
    return stats;
}
