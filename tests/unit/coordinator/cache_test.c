#include "coordinator/cache.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

static struct cache_key result_key(const char *job_id, uint32_t stage)
{
    return (struct cache_key){.job_id = job_id, .stage = stage};
}

static const char *get(struct cache *cache, struct cache_key key, struct arena *arena)
{
    const void *bytes = NULL;
    size_t n = 0;
    if (!cache_get(cache, &key, arena, &bytes, &n)) {
        return NULL;
    }
    char *text = arena_alloc(arena, n + 1);
    memcpy(text, bytes, n);
    text[n] = '\0';
    return text;
}

static void put(struct cache *cache, struct cache_key key, const char *text)
{
    cache_put(cache, &key, text, strlen(text));
}

TEST(a_payload_is_found_under_its_own_key_only)
{
    struct cache *cache = cache_new(1 << 20);
    struct arena arena = {0};
    struct digest digest = {{1, 2, 3}};
    struct digest other = {{1, 2, 4}};
    put(cache, (struct cache_key){.job_id = "a", .digest = &digest}, "inputs");
    put(cache, result_key("a", 0), "result");
    CHECK_STR(get(cache, (struct cache_key){.job_id = "a", .digest = &digest}, &arena), "inputs");
    CHECK_STR(get(cache, result_key("a", 0), &arena), "result");
    CHECK(get(cache, (struct cache_key){.job_id = "b", .digest = &digest}, &arena) == NULL);
    CHECK(get(cache, (struct cache_key){.job_id = "a", .digest = &other}, &arena) == NULL);
    CHECK(get(cache, result_key("a", 1), &arena) == NULL);
    CHECK(get(cache, result_key("b", 0), &arena) == NULL);
    arena_deinit(&arena);
    cache_free(cache);
}

TEST(a_task_without_a_result_is_known_to_have_none)
{
    struct cache *cache = cache_new(1 << 20);
    struct arena arena = {0};
    put(cache, result_key("a", 3), "");
    CHECK_STR(get(cache, result_key("a", 3), &arena), "");
    arena_deinit(&arena);
    cache_free(cache);
}

TEST(a_later_result_takes_the_place_of_the_earlier)
{
    struct cache *cache = cache_new(1 << 20);
    struct arena arena = {0};
    put(cache, result_key("a", 0), "old");
    put(cache, result_key("a", 0), "new and longer");
    CHECK_STR(get(cache, result_key("a", 0), &arena), "new and longer");
    CHECK_UINT(cache_stats(cache).entries, 1);
    arena_deinit(&arena);
    cache_free(cache);
}

TEST(what_was_used_longest_ago_goes_first_and_the_bound_holds)
{
    struct cache *cache = cache_new(64 * 1024);
    struct arena arena = {0};
    char text[1001];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (uint32_t i = 0; i < 40; i++) {
        put(cache, result_key("a", i), text);
    }
    for (uint32_t i = 40; i < 400; i++) {
        CHECK(get(cache, result_key("a", 0), &arena) != NULL); /* used all the time: stays */
        put(cache, result_key("a", i), text);
        CHECK(cache_stats(cache).bytes <= 64 * 1024);
    }
    CHECK(get(cache, result_key("a", 1), &arena) == NULL);
    CHECK(get(cache, result_key("a", 399), &arena) != NULL);
    arena_deinit(&arena);
    cache_free(cache);
}

TEST(something_huge_is_not_kept_and_does_not_push_out_the_rest)
{
    static char huge[40 * 1024];
    struct cache *cache = cache_new(64 * 1024);
    struct arena arena = {0};
    put(cache, result_key("a", 0), "small");
    put(cache, result_key("a", 1), "was small");
    struct cache_key key = result_key("a", 1);
    cache_put(cache, &key, huge, sizeof huge);
    CHECK_STR(get(cache, result_key("a", 0), &arena), "small");
    CHECK(get(cache, result_key("a", 1), &arena) == NULL); /* the old value would be a lie */
    arena_deinit(&arena);
    cache_free(cache);
}

TEST(a_cleared_cache_knows_nothing)
{
    struct cache *cache = cache_new(1 << 20);
    struct arena arena = {0};
    put(cache, result_key("a", 0), "x");
    cache_clear(cache);
    CHECK(get(cache, result_key("a", 0), &arena) == NULL);
    CHECK_UINT(cache_stats(cache).bytes, 0);
    arena_deinit(&arena);
    cache_free(cache);
}

TEST(what_was_read_from_the_store_never_replaces_what_is_newer)
{
    struct cache *cache = cache_new(1 << 20);
    struct arena arena = {0};
    struct cache_key key = result_key("a", 0);
    uint64_t mark = cache_mark(cache);
    put(cache, key, "new");
    cache_fill(cache, mark, &key, "old", 3); /* somebody was slow to say what he had read */
    CHECK_STR(get(cache, key, &arena), "new");
    key = result_key("a", 1);
    cache_fill(cache, mark, &key, "read", 4);
    CHECK_STR(get(cache, key, &arena), "read");
    CHECK_UINT(cache_stats(cache).entries, 2);
    arena_deinit(&arena);
    cache_free(cache);
}

TEST(what_was_read_before_the_cache_was_cleared_does_not_come_back)
{
    struct cache *cache = cache_new(1 << 20);
    struct arena arena = {0};
    struct cache_key key = result_key("a", 0);
    uint64_t mark = cache_mark(cache);
    cache_clear(cache);
    cache_fill(cache, mark, &key, "old", 3);
    CHECK(get(cache, key, &arena) == NULL);
    cache_fill(cache, cache_mark(cache), &key, "now", 3);
    CHECK_STR(get(cache, key, &arena), "now");
    arena_deinit(&arena);
    cache_free(cache);
}
