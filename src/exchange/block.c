/*
 * Large blocks are filled once, and gone when their job is: memory that came from the system each time would have to be
 * cleared first, which takes as long as filling it. So a part of it is kept for the next.
 */
#include "exchange/block.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/mem.h"

#define STEP_BYTES ((size_t)512 * 1024) /* large blocks have a multiple of this */
#define STEPS_MAX 32                    /* larger ones are not kept */

#ifdef __SANITIZE_ADDRESS__
#define KEPT_BYTES_MAX ((size_t)0) /* so that whoever uses a block after its end is found */
#else
#define KEPT_BYTES_MAX ((size_t)128 * 1024 * 1024)
#endif

/* A block that nobody uses, in its own memory. */
struct kept {
    struct kept *next;
};

static struct {
    pthread_mutex_t lock;
    struct kept *lists[STEPS_MAX + 1]; /* by steps */
    size_t bytes;
    size_t bytes_max;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .bytes_max = KEPT_BYTES_MAX};

void block_keep_at_most(uint64_t bytes)
{
    pthread_mutex_lock(&pool.lock);
    pool.bytes_max = bytes > KEPT_BYTES_MAX ? KEPT_BYTES_MAX : (size_t)bytes;
    pthread_mutex_unlock(&pool.lock);
}

static void *take_kept(uint32_t *steps)
{
    struct kept *kept = NULL;
    pthread_mutex_lock(&pool.lock);
    for (uint32_t i = *steps; i <= STEPS_MAX && i <= *steps + *steps / 4 && kept == NULL; i++) {
        kept = pool.lists[i];
        if (kept != NULL) {
            pool.lists[i] = kept->next;
            pool.bytes -= i * STEP_BYTES;
            *steps = i;
        }
    }
    pthread_mutex_unlock(&pool.lock);
    return kept;
}

/* False if there is enough of that already. */
static bool keep(void *memory, uint32_t steps)
{
    struct kept *kept = memory;
    size_t bytes = steps * STEP_BYTES;
    if (steps == 0) {
        return false;
    }
    pthread_mutex_lock(&pool.lock);
    bool has_room = pool.bytes + bytes <= pool.bytes_max;
    if (has_room) {
        kept->next = pool.lists[steps];
        pool.lists[steps] = kept;
        pool.bytes += bytes;
    }
    pthread_mutex_unlock(&pool.lock);
    return has_room;
}

/* `out_steps` is 0 for what is not to be kept. */
static void *allocate(size_t n, uint32_t *out_steps)
{
    *out_steps = 0;
    if (n < STEP_BYTES || n > STEP_BYTES * STEPS_MAX) {
        return mem_alloc(n);
    }
    *out_steps = (uint32_t)((n + STEP_BYTES - 1) / STEP_BYTES);
    void *memory = take_kept(out_steps);
    return memory != NULL ? memory : mem_alloc(*out_steps * STEP_BYTES);
}

struct block *block_new(size_t n)
{
    uint32_t steps = 0;
    struct block *block = allocate(sizeof(*block) + BLOCK_ALIGN + n, &steps);
    atomic_init(&block->refs, 1);
    block->n = n;
    block->steps = steps;
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
    if (block != NULL && atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) == 1 &&
        !keep(block, block->steps)) {
        mem_free(block);
    }
}
