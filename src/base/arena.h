/*
 * arena.h - many small allocations that end together.
 *
 * A chunked bump allocator: pointers stay valid until arena_reset() or arena_deinit(), whatever is allocated after
 * them. Chunks start at 4 KiB and double up to 1 MiB; a larger request gets a chunk of its own. As with mem.h, the
 * process aborts when memory is exhausted.
 *
 * Ownership: a zero-initialised `struct arena` is a valid empty arena. It owns all that it returns.
 * Threads: one at a time per arena.
 */
#ifndef CAPSTAN_BASE_ARENA_H
#define CAPSTAN_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

#define ARENA_ALIGN ((size_t)8)
#define ARENA_CHUNK_BYTES_MIN ((size_t)4 * 1024)
#define ARENA_CHUNK_BYTES_MAX ((size_t)1024 * 1024)
#define ARENA_KEEP_BYTES_MAX ((size_t)1024 * 1024) /* what arena_reset keeps */

/* Under AddressSanitizer, bytes that are not handed out are poisoned, so that it sees a use after arena_reset. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define ARENA_POISON(p, size) __asan_poison_memory_region((p), (size))
#define ARENA_UNPOISON(p, size) __asan_unpoison_memory_region((p), (size))
#else
#define ARENA_POISON(p, size) ((void)(p), (void)(size))
#define ARENA_UNPOISON(p, size) ((void)(p), (void)(size))
#endif

struct arena_chunk;

struct arena {
    unsigned char *next;         /* first free byte of the current chunk */
    size_t room;                 /* free bytes from there, a multiple of ARENA_ALIGN */
    struct arena_chunk *current; /* the chunk being filled; older full ones hang behind it */
    struct arena_chunk *spare;   /* empty chunks kept by arena_reset */
    size_t used;                 /* bytes handed out of chunks other than the current one */
};

/* Used by arena_alloc when the current chunk has no room; `size` is not rounded yet. */
void *arena_alloc_slow(struct arena *arena, size_t size);

/* `size` uninitialised bytes, aligned to 8. Zero bytes yield a valid pointer that must not be dereferenced. */
static inline void *arena_alloc(struct arena *arena, size_t size)
{
    size_t rounded = (size + (ARENA_ALIGN - 1)) & ~(ARENA_ALIGN - 1);
    /* A size that wraps around becomes zero; the subtraction below turns it, and zero itself, over to the slow path. */
    if (rounded - 1 >= arena->room) {
        return arena_alloc_slow(arena, size);
    }
    void *p = arena->next;
    arena->next += rounded;
    arena->room -= rounded;
    ARENA_UNPOISON(p, size);
    return p;
}

/* As arena_alloc, zeroed. */
void *arena_zalloc(struct arena *arena, size_t size);

/* A copy of `text`; NULL for NULL. */
char *arena_strdup(struct arena *arena, const char *text);

/* A copy of the `n` bytes at `p`, which may be NULL if `n` is zero. */
void *arena_copy(struct arena *arena, const void *p, size_t n);

/* A formatted string. */
char *arena_format(struct arena *arena, const char *fmt, ...) PRINTF_LIKE(2, 3);

/*
 * Ends all allocations. Keeps up to ARENA_KEEP_BYTES_MAX of chunks for reuse and frees the rest. Costs O(1) if all of
 * them fitted into one chunk, as they do after the first few rounds of similar work.
 */
void arena_reset(struct arena *arena);

/* Ends all allocations and frees everything; the arena is then as if zero-initialised. */
void arena_deinit(struct arena *arena);

/* Bytes handed out since the last reset, alignment included. */
size_t arena_bytes(const struct arena *arena);

#endif
