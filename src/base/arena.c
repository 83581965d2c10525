#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct arena_chunk {
    struct arena_chunk *next;
    size_t bytes; /* this header included */
};

static size_t payload_bytes(const struct arena_chunk *chunk)
{
    return chunk->bytes - sizeof(struct arena_chunk);
}

static unsigned char *payload(struct arena_chunk *chunk)
{
    return (unsigned char *)(chunk + 1);
}

static struct arena_chunk *chunk_new(size_t bytes)
{
    struct arena_chunk *chunk = mem_alloc(bytes);
    chunk->next = NULL;
    chunk->bytes = bytes;
    ARENA_POISON(payload(chunk), payload_bytes(chunk));
    return chunk;
}

static void chunk_free(struct arena_chunk *chunk)
{
    ARENA_UNPOISON(payload(chunk), payload_bytes(chunk));
    mem_free(chunk);
}

static void chain_free(struct arena_chunk *chunk)
{
    while (chunk != NULL) {
        struct arena_chunk *next = chunk->next;
        chunk_free(chunk);
        chunk = next;
    }
}

/* Makes the whole payload of the current chunk available again. */
static void rewind_current(struct arena *arena)
{
    arena->next = payload(arena->current);
    arena->room = payload_bytes(arena->current);
    ARENA_POISON(arena->next, arena->room);
}

static size_t current_used(const struct arena *arena)
{
    return arena->current == NULL ? 0 : payload_bytes(arena->current) - arena->room;
}

/* The first spare chunk with `size` bytes of payload, unlinked; NULL if there is none. */
static struct arena_chunk *take_spare(struct arena *arena, size_t size)
{
    for (struct arena_chunk **at = &arena->spare; *at != NULL; at = &(*at)->next) {
        struct arena_chunk *chunk = *at;
        if (payload_bytes(chunk) >= size) {
            *at = chunk->next;
            return chunk;
        }
    }
    return NULL;
}

/* A new chunk: twice the current one, and more if `size` needs it. */
static struct arena_chunk *next_chunk(const struct arena *arena, size_t size)
{
    size_t bytes = arena->current == NULL ? ARENA_CHUNK_BYTES_MIN : arena->current->bytes * 2;
    if (bytes > ARENA_CHUNK_BYTES_MAX) {
        bytes = ARENA_CHUNK_BYTES_MAX;
    }
    while (bytes - sizeof(struct arena_chunk) < size) {
        bytes *= 2;
    }
    return chunk_new(bytes);
}

/* A chunk for one request that is too large for any other. The current chunk goes on being filled. */
static void *alloc_own_chunk(struct arena *arena, size_t rounded)
{
    struct arena_chunk *chunk = chunk_new(sizeof(struct arena_chunk) + rounded);
    if (arena->current == NULL) {
        arena->current = chunk;
        arena->next = payload(chunk) + rounded;
        arena->room = 0;
    } else {
        chunk->next = arena->current->next;
        arena->current->next = chunk;
        arena->used += rounded;
    }
    return payload(chunk);
}

void *arena_alloc_slow(struct arena *arena, size_t size)
{
    if (size == 0) {
        return arena_alloc(arena, 1);
    }
    ASSERT(size <= SIZE_MAX / 2);
    size_t rounded = (size + (ARENA_ALIGN - 1)) & ~(ARENA_ALIGN - 1);
    if (rounded > ARENA_CHUNK_BYTES_MAX - sizeof(struct arena_chunk)) {
        void *p = alloc_own_chunk(arena, rounded);
        ARENA_UNPOISON(p, size);
        return p;
    }
    struct arena_chunk *chunk = take_spare(arena, rounded);
    if (chunk == NULL) {
        chunk = next_chunk(arena, rounded);
    }
    arena->used += current_used(arena);
    chunk->next = arena->current;
    arena->current = chunk;
    rewind_current(arena);
    return arena_alloc(arena, size);
}

void *arena_zalloc(struct arena *arena, size_t size)
{
    void *p = arena_alloc(arena, size);
    if (size > 0) {
        memset(p, 0, size);
    }
    return p;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    return text == NULL ? NULL : arena_copy(arena, text, strlen(text) + 1);
}

void *arena_copy(struct arena *arena, const void *p, size_t n)
{
    void *copy = arena_alloc(arena, n);
    if (n > 0) {
        memcpy(copy, p, n);
    }
    return copy;
}

char *arena_format(struct arena *arena, const char *fmt, ...)
{
    char shortcut[256];
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(shortcut, sizeof(shortcut), fmt, args);
    va_end(args);
    ASSERT(length >= 0);
    size_t bytes = (size_t)length + 1;
    if (bytes <= sizeof(shortcut)) {
        return arena_copy(arena, shortcut, bytes);
    }
    char *text = arena_alloc(arena, bytes);
    va_start(args, fmt);
    int again = vsnprintf(text, bytes, fmt, args);
    va_end(args);
    ASSERT(again == length);
    return text;
}

/*
 * Sorts the chunks of a chain into those to keep, as far as `*kept_bytes` allows, and those to free. The largest kept
 * chunk becomes the current one, so that similar work fits into it next time.
 */
static void keep_or_free(struct arena *arena, struct arena_chunk *chain, size_t *kept_bytes)
{
    while (chain != NULL) {
        struct arena_chunk *chunk = chain;
        chain = chunk->next;
        if (chunk->bytes > ARENA_KEEP_BYTES_MAX - *kept_bytes) {
            chunk_free(chunk);
            continue;
        }
        *kept_bytes += chunk->bytes;
        chunk->next = NULL;
        if (arena->current == NULL) {
            arena->current = chunk;
            continue;
        }
        if (chunk->bytes > arena->current->bytes) {
            struct arena_chunk *smaller = arena->current;
            arena->current = chunk;
            chunk = smaller;
        }
        ARENA_POISON(payload(chunk), payload_bytes(chunk));
        chunk->next = arena->spare;
        arena->spare = chunk;
    }
}

void arena_reset(struct arena *arena)
{
    arena->used = 0;
    if (arena->current == NULL) {
        return;
    }
    if (arena->current->next != NULL || arena->current->bytes > ARENA_KEEP_BYTES_MAX) {
        struct arena_chunk *filled = arena->current;
        struct arena_chunk *spare = arena->spare;
        size_t kept_bytes = 0;
        *arena = (struct arena){0};
        keep_or_free(arena, filled, &kept_bytes);
        keep_or_free(arena, spare, &kept_bytes);
    }
    if (arena->current != NULL) {
        rewind_current(arena);
    }
}

void arena_deinit(struct arena *arena)
{
    chain_free(arena->current);
    chain_free(arena->spare);
    *arena = (struct arena){0};
}

size_t arena_bytes(const struct arena *arena)
{
    return arena->used + current_used(arena);
}
