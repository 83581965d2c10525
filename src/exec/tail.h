/*
 * tail.h - the end of a stream: keeps the last bytes, counts the rest.
 *
 * Ownership: a zero-initialised `struct tail` is valid and empty; it owns `data`. Threads: one at a time.
 */
#ifndef CAPSTAN_EXEC_TAIL_H
#define CAPSTAN_EXEC_TAIL_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that are kept. */
#define TAIL_BYTES ((size_t)64 * 1024)

struct tail {
    char *data; /* up to twice TAIL_BYTES, so that bytes are moved only once in a while */
    size_t n;
    size_t cap;
    uint64_t cut; /* bytes in front of `data` that were dropped */
};

void tail_append(struct tail *tail, const char *bytes, size_t n);

/* After the last append: drops what is too much, and up to three bytes more if the cut is inside a character. */
void tail_finish(struct tail *tail);

void tail_deinit(struct tail *tail);

#endif
