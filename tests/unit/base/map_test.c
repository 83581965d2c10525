#include "../test.h"

#include "base/check.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/prng.h"

struct entry {
    uint64_t key;
    bool is_in;
};

static bool has_key(const void *value, const void *key)
{
    const struct entry *entry = value;
    const uint64_t *wanted = key;
    return entry->key == *wanted;
}

TEST(an_empty_map_finds_nothing)
{
    struct map map = {0};
    uint64_t key = 1;
    size_t cursor = 0;
    CHECK(map_get(&map, 1, has_key, &key) == NULL);
    CHECK(map_take(&map, 1, has_key, &key) == NULL);
    CHECK(map_take_value(&map, 1, &key) == NULL);
    CHECK(map_next(&map, &cursor) == NULL);
    map_deinit(&map);
}

TEST(a_value_is_found_until_it_is_taken)
{
    struct map map = {0};
    struct entry entry = {.key = 7};
    uint64_t other = 8;
    map_put(&map, 7, &entry);
    CHECK(map_get(&map, 7, has_key, &entry.key) == &entry);
    CHECK(map_get(&map, 7, has_key, &other) == NULL);
    CHECK(map_get(&map, 8, has_key, &entry.key) == NULL);
    CHECK(map_take(&map, 7, has_key, &other) == NULL);
    CHECK(map_take(&map, 7, has_key, &entry.key) == &entry);
    CHECK(map_get(&map, 7, has_key, &entry.key) == NULL);
    CHECK_UINT(map.count, 0);
    map_deinit(&map);
}

TEST(values_with_the_same_hash_are_told_apart)
{
    struct map map = {0};
    struct entry entries[100];
    for (uint64_t i = 0; i < 100; i++) {
        entries[i] = (struct entry){.key = i};
        map_put(&map, 42, &entries[i]);
    }
    for (uint64_t i = 0; i < 100; i += 2) {
        CHECK(map_take(&map, 42, has_key, &i) == &entries[i]);
    }
    for (uint64_t i = 0; i < 100; i++) {
        CHECK(map_get(&map, 42, has_key, &i) == (i % 2 == 0 ? NULL : &entries[i]));
    }
    map_deinit(&map);
}

TEST(a_value_can_be_taken_by_identity)
{
    struct map map = {0};
    struct entry a = {.key = 1};
    struct entry b = {.key = 1};
    map_put(&map, 1, &a);
    CHECK(map_take_value(&map, 1, &b) == NULL);
    CHECK(map_take_value(&map, 2, &a) == NULL);
    CHECK(map_take_value(&map, 1, &a) == &a);
    CHECK_UINT(map.count, 0);
    map_deinit(&map);
}

TEST(a_null_value_is_refused)
{
    struct map map = {0};
    CHECK_ABORTS(map_put(&map, 1, NULL));
}

TEST(an_iteration_visits_every_value_once)
{
    struct map map = {0};
    static struct entry entries[1000];
    for (uint64_t i = 0; i < 1000; i++) {
        entries[i] = (struct entry){.key = i};
        map_put(&map, i, &entries[i]);
    }
    size_t cursor = 0;
    size_t visits = 0;
    for (struct entry *entry = map_next(&map, &cursor); entry != NULL; entry = map_next(&map, &cursor)) {
        CHECK(!entry->is_in);
        entry->is_in = true;
        visits++;
    }
    CHECK_UINT(visits, 1000);
    CHECK(map_next(&map, &cursor) == NULL);
    map_deinit(&map);
}

/* Mean distance of the values from the slots where their probes start. */
static double mean_probe(const struct map *map)
{
    size_t total = 0;
    for (size_t i = 0; i < map->cap; i++) {
        if (map->slots[i].value != NULL) {
            total += (i - map_home(map->slots[i].hash, map->cap)) & (map->cap - 1);
        }
    }
    return (double)total / (double)map->count;
}

TEST(weak_hashes_spread_over_the_slots)
{
    static char value;
    for (int shift = 0; shift <= 50; shift++) {
        struct map map = {0};
        for (uint64_t i = 0; i < 10000; i++) {
            map_put(&map, i << shift, &value);
        }
        CHECK(mean_probe(&map) < 1.0);
        map_deinit(&map);
    }
    struct map map = {0};
    for (uint64_t i = 0; i < 100; i++) {
        for (uint64_t k = 0; k < 100; k++) {
            map_put(&map, i << 32 | k, &value);
        }
    }
    CHECK(mean_probe(&map) < 1.0);
    map_deinit(&map);
}

enum { KEYS = 512 };

static void check_same(const struct map *map, struct entry *entries, uint64_t hash_bits)
{
    size_t count = 0;
    for (size_t i = 0; i < KEYS; i++) {
        uint64_t hash = entries[i].key & hash_bits;
        CHECK(map_get(map, hash, has_key, &entries[i].key) == (entries[i].is_in ? &entries[i] : NULL));
        count += entries[i].is_in;
    }
    CHECK_UINT(map->count, count);
    size_t cursor = 0;
    size_t visits = 0;
    for (const struct entry *entry = map_next(map, &cursor); entry != NULL; entry = map_next(map, &cursor)) {
        CHECK(entry->is_in);
        visits++;
    }
    CHECK_UINT(visits, count);
}

/* Few hash bits make many collisions, and so long chains for the deletion to repair. */
static void run_random(uint64_t seed, uint64_t hash_bits, int steps)
{
    static struct entry entries[KEYS];
    struct map map = {0};
    struct prng prng;
    prng_init(&prng, seed);
    for (size_t i = 0; i < KEYS; i++) {
        entries[i] = (struct entry){.key = i};
    }
    for (int step = 0; step < steps; step++) {
        struct entry *entry = &entries[prng_below(&prng, KEYS)];
        uint64_t hash = entry->key & hash_bits;
        if (!entry->is_in) {
            CHECK(map_get(&map, hash, has_key, &entry->key) == NULL);
            map_put(&map, hash, entry);
        } else if (prng_permille(&prng, 500)) {
            CHECK(map_take(&map, hash, has_key, &entry->key) == entry);
        } else {
            CHECK(map_take_value(&map, hash, entry) == entry);
        }
        entry->is_in = !entry->is_in;
        if (step % 500 == 0) {
            check_same(&map, entries, hash_bits);
        }
    }
    check_same(&map, entries, hash_bits);
    map_deinit(&map);
}

TEST(random_operations_agree_with_a_flag_per_key)
{
    run_random(7, UINT64_MAX, 100000);
    run_random(8, 0x3f, 50000);
    run_random(9, 0x7, 10000);
    run_random(10, 0, 2000);
}
