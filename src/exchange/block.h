/*
 * block.h - a piece of memory that several hold: what is written once, kept, sent and read without being copied.
 *
 * The bytes begin at a multiple of 64, as Arrow recommends for its buffers. Some of the memory of large blocks that are
 * gone is kept for new ones, up to 128 MiB in a process, or what block_keep_at_most says.
 *
 * Ownership: counted. Who gets a block from block_new or block_ref gives it back with block_unref. After it is shared,
 * nobody writes to it. Threads: any.
 */
#ifndef CAPSTAN_EXCHANGE_BLOCK_H
#define CAPSTAN_EXCHANGE_BLOCK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

#define BLOCK_ALIGN ((size_t)64)

struct block {
    atomic_uint refs;
    uint32_t steps; /* block.c's */
    size_t n;
    uint8_t *bytes;
};

/* How much memory of blocks that are gone may be kept from now on; never more than 128 MiB. */
void block_keep_at_most(uint64_t bytes);

/* `n` uninitialised bytes. */
MUST_USE struct block *block_new(size_t n);

/* One holder more. Returns `block`. */
struct block *block_ref(struct block *block);

/* NULL is fine. */
void block_unref(struct block *block);

#endif
