#include "base/mem.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void *not_null(void *p)
{
    if (p == NULL) {
        check_failed(__FILE__, __LINE__, "out of memory");
    }
    return p;
}

void *mem_alloc(size_t size)
{
    return not_null(malloc(size == 0 ? 1 : size));
}

void *mem_calloc(size_t n, size_t size)
{
    size_t total = 0;
    bool overflows = __builtin_mul_overflow(n, size, &total);
    ASSERT(!overflows);
    return not_null(calloc(1, total == 0 ? 1 : total));
}

void *mem_realloc(void *p, size_t size)
{
    return not_null(realloc(p, size == 0 ? 1 : size));
}

void mem_free(void *p)
{
    free(p);
}

char *mem_strdup(const char *text)
{
    return text == NULL ? NULL : mem_copy(text, strlen(text) + 1);
}

void *mem_copy(const void *p, size_t n)
{
    void *copy = mem_alloc(n);
    if (n > 0) {
        memcpy(copy, p, n);
    }
    return copy;
}

void *mem_grow(void *array, uint32_t *cap, uint32_t need, size_t elem_size)
{
    if (need <= *cap) {
        return array;
    }
    uint32_t grown = *cap > UINT32_MAX / 2 ? UINT32_MAX : *cap * 2;
    if (grown < 4) {
        grown = 4;
    }
    if (grown < need) {
        grown = need;
    }
    size_t bytes = 0;
    bool overflows = __builtin_mul_overflow((size_t)grown, elem_size, &bytes);
    ASSERT(!overflows);
    array = mem_realloc(array, bytes);
    *cap = grown;
    return array;
}
