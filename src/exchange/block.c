#include "exchange/block.h"

#include "base/mem.h"

struct block *block_new(size_t n)
{
    struct block *block = mem_alloc(sizeof(*block) + BLOCK_ALIGN + n);
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
