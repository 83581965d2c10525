/*
 * map.h - a hash map from a hash to a pointer.
 *
 * The values hold their keys: the map stores the 64-bit hash and the pointer, and asks a match function whether a
 * value with the right hash has the wanted key. Any hash will do, even a plain counter, because the map mixes it
 * before it chooses a slot; keys that a peer controls need siphash.h.
 *
 * Open addressing with linear probing and backward-shift deletion, so there are no tombstones and the cost of a
 * lookup does not depend on the past. The table never shrinks.
 *
 * Ownership: a zero-initialised `struct map` is valid and empty. It owns its slots, not the values.
 * Threads: one at a time per map; several may read while nobody writes.
 */
#ifndef CAPSTAN_BASE_MAP_H
#define CAPSTAN_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot {
    uint64_t hash;
    void *value; /* NULL = the slot is free */
};

struct map {
    struct map_slot *slots;
    size_t count;
    size_t cap; /* zero or a power of two */
};

/* Whether `value` has the key `key`. */
typedef bool map_match_fn(const void *value, const void *key);

/* The slot at which the probe for `hash` starts. `cap` is a power of two, and at least 2. */
static inline size_t map_home(uint64_t hash, size_t cap)
{
    uint64_t mixed = (hash ^ (hash >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return (size_t)(mixed >> (__builtin_clzll(cap) + 1)); /* the top log2(cap) bits */
}

/* The value with that hash and key, NULL if absent. */
static inline void *map_get(const struct map *map, uint64_t hash, map_match_fn *match, const void *key)
{
    if (map->count == 0) {
        return NULL;
    }
    for (size_t i = map_home(hash, map->cap); map->slots[i].value != NULL; i = (i + 1) & (map->cap - 1)) {
        if (map->slots[i].hash == hash && match(map->slots[i].value, key)) {
            return map->slots[i].value;
        }
    }
    return NULL;
}

/* Adds `value`, which is not NULL. The caller has made sure that no value with its key is there. */
void map_put(struct map *map, uint64_t hash, void *value);

/* Removes and returns the value with that hash and key, NULL if absent. */
void *map_take(struct map *map, uint64_t hash, map_match_fn *match, const void *key);

/* Removes and returns `value` itself, NULL if absent. */
void *map_take_value(struct map *map, uint64_t hash, const void *value);

/*
 * Iterates: `*cursor` starts at 0, NULL marks the end. The order is arbitrary but depends only on the calls made. The
 * map must not change meanwhile.
 */
void *map_next(const struct map *map, size_t *cursor);

/* Frees the slots, not the values. The map is then as if zero-initialised. */
void map_deinit(struct map *map);

#endif
