/*
 * mem.h - heap memory that never fails.
 *
 * The process aborts when memory is exhausted, so nobody checks for NULL. Sizes that a peer controls are checked
 * against base/limits.h before they come here.
 *
 * Ownership: the caller owns what is returned and gives it back with mem_free(). Threads: any.
 */
#ifndef CAPSTAN_BASE_MEM_H
#define CAPSTAN_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* `size` uninitialised bytes. Zero bytes yield a valid pointer that must not be dereferenced. */
MUST_USE void *mem_alloc(size_t size);

/* `n` zeroed elements of `size` bytes each. Aborts if the product overflows. */
MUST_USE void *mem_calloc(size_t n, size_t size);

/* Resizes `p` (NULL: allocates) to `size` bytes. Size zero keeps a valid block; it never frees. */
MUST_USE void *mem_realloc(void *p, size_t size);

/* `p` may be NULL. */
void mem_free(void *p);

/* A copy of `text`; NULL for NULL. */
MUST_USE char *mem_strdup(const char *text);

/* A copy of the `n` bytes at `p`, which may be NULL if `n` is zero. */
MUST_USE void *mem_copy(const void *p, size_t n);

/*
 * Returns `array` with room for at least `need` elements of `elem_size` bytes, moved if it had to grow. `*cap` is
 * the capacity in elements and is kept up to date. Capacity at least doubles, and is at least 4. New room is
 * uninitialised. `array` may be NULL if `*cap` is zero.
 */
MUST_USE void *mem_grow(void *array, uint32_t *cap, uint32_t need, size_t elem_size);

#endif
