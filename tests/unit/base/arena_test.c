#include "../test.h"

#include <string.h>

#include "base/arena.h"
#include "base/prng.h"

TEST(an_empty_arena_can_be_reset_and_freed)
{
    struct arena arena = {0};
    CHECK_UINT(arena_bytes(&arena), 0);
    arena_reset(&arena);
    arena_deinit(&arena);
    arena_deinit(&arena);
}

TEST(allocations_are_aligned_and_apart)
{
    struct arena arena = {0};
    unsigned char *before = arena_alloc(&arena, 1);
    for (size_t size = 0; size < 300; size++) {
        unsigned char *p = arena_alloc(&arena, size);
        CHECK(p != NULL && p != before);
        CHECK_UINT((uintptr_t)p % ARENA_ALIGN, 0);
        before = p;
    }
    arena_deinit(&arena);
}

TEST(pointers_stay_valid_whatever_is_allocated_after_them)
{
    enum { COUNT = 3000 };
    static unsigned char *pieces[COUNT];
    static size_t sizes[COUNT];
    struct arena arena = {0};
    struct prng prng;
    prng_init(&prng, 1);
    for (size_t i = 0; i < COUNT; i++) {
        sizes[i] = (size_t)prng_below(&prng, prng_permille(&prng, 20) ? 20000 : 200);
        pieces[i] = arena_alloc(&arena, sizes[i]);
        memset(pieces[i], (int)(i & 0xff), sizes[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < sizes[i]; k++) {
            CHECK(pieces[i][k] == (i & 0xff));
        }
    }
    arena_deinit(&arena);
}

TEST(zalloc_returns_zeroes_even_in_used_memory)
{
    static const char zeroes[100];
    struct arena arena = {0};
    memset(arena_alloc(&arena, 100), 0xff, 100);
    arena_reset(&arena);
    CHECK_MEM(arena_zalloc(&arena, 100), zeroes, 100);
    CHECK(arena_zalloc(&arena, 0) != NULL);
    arena_deinit(&arena);
}

TEST(strings_and_bytes_are_copied_into_the_arena)
{
    struct arena arena = {0};
    CHECK_STR(arena_strdup(&arena, "abc"), "abc");
    CHECK_STR(arena_strdup(&arena, ""), "");
    CHECK(arena_strdup(&arena, NULL) == NULL);
    CHECK_MEM(arena_copy(&arena, "a\0b", 3), "a\0b", 3);
    CHECK(arena_copy(&arena, NULL, 0) != NULL);
    arena_deinit(&arena);
}

TEST(short_and_long_texts_are_formatted)
{
    struct arena arena = {0};
    CHECK_STR(arena_format(&arena, "%s-%d", "job", 7), "job-7");
    for (int width = 250; width < 260; width++) {
        char *text = arena_format(&arena, "%*d", width, 5);
        CHECK_UINT(strlen(text), (size_t)width);
        CHECK_INT(text[width - 1], '5');
    }
    CHECK_UINT(strlen(arena_format(&arena, "%*d", 100000, 1)), 100000);
    arena_deinit(&arena);
}

TEST(bytes_counts_what_was_handed_out)
{
    struct arena arena = {0};
    CHECK(arena_alloc(&arena, 1) != NULL);
    CHECK(arena_alloc(&arena, 16) != NULL);
    CHECK_UINT(arena_bytes(&arena), 24);
    CHECK(arena_alloc(&arena, 3 * ARENA_CHUNK_BYTES_MAX) != NULL);
    CHECK(arena_alloc(&arena, 8000) != NULL);
    CHECK_UINT(arena_bytes(&arena), 24 + 3 * ARENA_CHUNK_BYTES_MAX + 8000);
    arena_reset(&arena);
    CHECK_UINT(arena_bytes(&arena), 0);
    arena_deinit(&arena);
}

TEST(a_reset_arena_reuses_its_memory)
{
    struct arena arena = {0};
    void *first = arena_alloc(&arena, 100);
    for (int round = 0; round < 10; round++) {
        arena_reset(&arena);
        CHECK(arena_alloc(&arena, 100) == first);
    }
    arena_deinit(&arena);
}

TEST(similar_work_fits_into_one_chunk_after_a_reset)
{
    struct arena arena = {0};
    for (int i = 0; i < 1000; i++) {
        CHECK(arena_alloc(&arena, 64) != NULL);
    }
    arena_reset(&arena);
    struct arena_chunk *chunk = arena.current;
    for (int i = 0; i < 500; i++) {
        CHECK(arena_alloc(&arena, 64) != NULL);
    }
    CHECK(arena.current == chunk);
    arena_deinit(&arena);
}

TEST(a_huge_request_gets_a_chunk_of_its_own)
{
    struct arena arena = {0};
    unsigned char *lone = arena_alloc(&arena, 2 * ARENA_CHUNK_BYTES_MAX);
    memset(lone, 1, 2 * ARENA_CHUNK_BYTES_MAX);
    unsigned char *small = arena_alloc(&arena, 8);
    unsigned char *huge = arena_alloc(&arena, 5 * ARENA_CHUNK_BYTES_MAX);
    memset(huge, 2, 5 * ARENA_CHUNK_BYTES_MAX);
    CHECK((unsigned char *)arena_alloc(&arena, 8) == small + 8);
    arena_reset(&arena);
    arena_deinit(&arena);
}

TEST(requests_around_the_largest_chunk_work)
{
    struct arena arena = {0};
    for (size_t size = ARENA_CHUNK_BYTES_MAX - 40; size <= ARENA_CHUNK_BYTES_MAX + 8; size += 4) {
        unsigned char *p = arena_alloc(&arena, size);
        p[0] = 1;
        p[size - 1] = 1;
        arena_reset(&arena);
    }
    arena_deinit(&arena);
}

TEST(an_impossible_size_aborts)
{
    struct arena arena = {0};
    CHECK_ABORTS(arena_alloc(&arena, SIZE_MAX));
    CHECK_ABORTS(arena_alloc(&arena, SIZE_MAX - 7));
}

TEST(rounds_of_random_work_and_resets_hold)
{
    struct arena arena = {0};
    struct prng prng;
    prng_init(&prng, 2);
    for (int round = 0; round < 200; round++) {
        size_t expected = 0;
        uint64_t count = prng_below(&prng, 100);
        for (uint64_t i = 0; i < count; i++) {
            size_t size = (size_t)prng_below(&prng, UINT64_C(1) << prng_below(&prng, 17)) + 1;
            memset(arena_alloc(&arena, size), 0xab, size);
            expected += (size + 7) / 8 * 8;
        }
        CHECK_UINT(arena_bytes(&arena), expected);
        arena_reset(&arena);
    }
    arena_deinit(&arena);
}
