#include "base/map.h"

#include "base/check.h"
#include "base/mem.h"

#define CAP_MIN 8

/* At most 5/8 full: a lookup of an absent key then looks at four slots on average, which is one cache line. */
static bool is_full(const struct map *map)
{
    return map->count >= map->cap / 8 * 5;
}

/* Puts the value into the first free slot for its hash. There is one. */
static void insert(struct map_slot *slots, size_t cap, struct map_slot slot)
{
    size_t i = map_home(slot.hash, cap);
    while (slots[i].value != NULL) {
        i = (i + 1) & (cap - 1);
    }
    slots[i] = slot;
}

static void grow(struct map *map)
{
    ASSERT(map->cap <= SIZE_MAX / 2);
    size_t cap = map->cap == 0 ? CAP_MIN : map->cap * 2;
    struct map_slot *slots = mem_calloc(cap, sizeof(*slots));
    for (size_t i = 0; i < map->cap; i++) {
        if (map->slots[i].value != NULL) {
            insert(slots, cap, map->slots[i]);
        }
    }
    mem_free(map->slots);
    map->slots = slots;
    map->cap = cap;
}

void map_put(struct map *map, uint64_t hash, void *value)
{
    ASSERT(value != NULL);
    if (is_full(map)) {
        grow(map);
    }
    insert(map->slots, map->cap, (struct map_slot){.hash = hash, .value = value});
    map->count++;
}

/* Empties slot `hole` and moves back the values after it that would no longer be found otherwise. */
static void *take_at(struct map *map, size_t hole)
{
    size_t mask = map->cap - 1;
    void *taken = map->slots[hole].value;
    for (size_t i = (hole + 1) & mask; map->slots[i].value != NULL; i = (i + 1) & mask) {
        size_t from_home = (i - map_home(map->slots[i].hash, map->cap)) & mask;
        size_t from_hole = (i - hole) & mask;
        if (from_home >= from_hole) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = (struct map_slot){0};
    map->count--;
    return taken;
}

static bool is_same(const void *value, const void *key)
{
    return value == key;
}

void *map_take(struct map *map, uint64_t hash, map_match_fn *match, const void *key)
{
    if (map->count == 0) {
        return NULL;
    }
    for (size_t i = map_home(hash, map->cap); map->slots[i].value != NULL; i = (i + 1) & (map->cap - 1)) {
        if (map->slots[i].hash == hash && match(map->slots[i].value, key)) {
            return take_at(map, i);
        }
    }
    return NULL;
}

void *map_take_value(struct map *map, uint64_t hash, const void *value)
{
    return map_take(map, hash, is_same, value);
}

void *map_next(const struct map *map, size_t *cursor)
{
    while (*cursor < map->cap) {
        void *value = map->slots[*cursor].value;
        (*cursor)++;
        if (value != NULL) {
            return value;
        }
    }
    return NULL;
}

void map_deinit(struct map *map)
{
    mem_free(map->slots);
    *map = (struct map){0};
}
