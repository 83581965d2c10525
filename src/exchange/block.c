#define _DEFAULT_SOURCE /* madvise */
#include "exchange/block.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/mem.h"

/*
 * Large blocks are filled once and are gone soon: most of their cost would be a fault for each of their pages. With huge
 * pages it is one for 2 MiB. Smaller ones would waste too much of these.
 */
#define HUGE_PAGE_BYTES ((size_t)2 * 1024 * 1024)
#define HUGE_BYTES_MIN (HUGE_PAGE_BYTES * 3 / 4)

static void *allocate(size_t n)
{
    void *memory = NULL;
    if (n >= HUGE_BYTES_MIN && posix_memalign(&memory, HUGE_PAGE_BYTES, n) == 0) {
        (void)madvise(memory, n, MADV_HUGEPAGE); /* it is only faster */
        return memory;
    }
    return mem_alloc(n);
}

struct block *block_new(size_t n)
{
    struct block *block = allocate(sizeof(*block) + BLOCK_ALIGN + n);
    atomic_init(&block->refs, 1);
    block->n = n;
    uintptr_t start = (uintptr_t)(block + 1);
    block->bytes = (uint8_t *)(block + 1) + (BLOCK_ALIGN - start % BLOCK_ALIGN) % BLOCK_ALIGN;
    return block;
}

struct block *block_ref(struct block *block)
{
    atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
    return block;
}

void block_unref(struct block *block)
{
    if (block != NULL && atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) == 1) {
        mem_free(block);
    }
}
