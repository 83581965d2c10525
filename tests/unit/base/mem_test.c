#include "../test.h"

#include <string.h>

#include "base/mem.h"

TEST(zero_bytes_are_a_valid_allocation)
{
    void *a = mem_alloc(0);
    void *b = mem_calloc(0, 8);
    void *c = mem_realloc(NULL, 0);
    void *d = mem_copy(NULL, 0);
    CHECK(a != NULL && b != NULL && c != NULL && d != NULL);
    c = mem_realloc(c, 0);
    CHECK(c != NULL);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
    mem_free(NULL);
}

TEST(calloc_returns_zeroes)
{
    static const char zeroes[80];
    char *p = mem_calloc(10, 8);
    CHECK_MEM(p, zeroes, 80);
    mem_free(p);
}

TEST(a_product_that_overflows_aborts)
{
    CHECK_ABORTS(mem_free(mem_calloc(SIZE_MAX / 2, 3)));
}

TEST(strings_and_bytes_are_copied)
{
    const char *text = "capstan";
    char *copy = mem_strdup(text);
    CHECK(copy != text);
    CHECK_STR(copy, "capstan");
    mem_free(copy);
    CHECK(mem_strdup(NULL) == NULL);
    char *bytes = mem_copy("a\0b", 3);
    CHECK_MEM(bytes, "a\0b", 3);
    mem_free(bytes);
}

TEST(an_array_grows_geometrically_and_keeps_its_elements)
{
    uint32_t *array = NULL;
    uint32_t cap = 0;
    uint32_t moves = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t before = cap;
        array = mem_grow(array, &cap, i + 1, sizeof(*array));
        moves += cap != before;
        array[i] = i;
    }
    CHECK_UINT(cap, 1024);
    CHECK_UINT(moves, 9);
    for (uint32_t i = 0; i < 1000; i++) {
        CHECK_UINT(array[i], i);
    }
    mem_free(array);
}

TEST(an_array_has_room_for_what_is_needed_at_once)
{
    uint32_t cap = 0;
    char *array = mem_grow(NULL, &cap, 0, 1);
    CHECK(array == NULL);
    CHECK_UINT(cap, 0);
    array = mem_grow(array, &cap, 1, 1);
    CHECK_UINT(cap, 4);
    array = mem_grow(array, &cap, 100, 1);
    CHECK_UINT(cap, 100);
    char *same = mem_grow(array, &cap, 100, 1);
    CHECK(same == array);
    mem_free(same);
}

TEST(an_array_too_large_for_the_address_space_aborts)
{
    uint32_t cap = 0;
    CHECK_ABORTS(mem_free(mem_grow(NULL, &cap, UINT32_MAX, SIZE_MAX / 2)));
}
