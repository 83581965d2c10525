/*
 * fragment.h - fragments of queries that a worker has been sent, by their SHA-256.
 *
 * All tasks of a stage have the same one, so the coordinator sends it once and then only names it. The most recently used
 * are kept, up to FRAGMENTS_MAX and FRAGMENT_BYTES_MAX; one that an attempt uses stays whatever the bounds say, because
 * its memory is needed anyway.
 *
 * Ownership: the cache outlives all its fragments' users; each fragment that is handed out is given back. Threads: any. Its
 * lock is held for moments only, and nobody takes another one meanwhile.
 */
#ifndef CAPSTAN_WORKER_FRAGMENT_H
#define CAPSTAN_WORKER_FRAGMENT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/list.h"
#include "base/sha256.h"

#define FRAGMENTS_MAX 64
#define FRAGMENT_BYTES_MAX ((size_t)64 * 1024 * 1024)

struct fragments {
    pthread_mutex_t mutex;
    struct list all; /* the most recently used first */
    uint32_t n;
    size_t bytes;
};

struct fragment {
    struct fragments *home;
    struct list in_all;
    uint32_t users;
    uint8_t digest[SHA256_BYTES];
    size_t n;
    char text[]; /* and a NUL */
};

void fragments_init(struct fragments *fragments);
void fragments_deinit(struct fragments *fragments); /* after all have been given back */

/* The one with that digest, for the caller to give back; NULL: there is none. */
struct fragment *fragments_take(struct fragments *fragments, const uint8_t digest[SHA256_BYTES]);

/* Keeps a text, which has been found to have that digest, and returns it as fragments_take. */
struct fragment *fragments_put(struct fragments *fragments, const uint8_t digest[SHA256_BYTES], const void *text,
                               size_t n);

void fragment_give_back(struct fragment *fragment); /* NULL ok */

/* The digests that there are, FRAGMENTS_MAX at most, one behind the other in the arena. Returns how many. */
uint32_t fragments_known(struct fragments *fragments, struct arena *arena, uint8_t **out_digests);

#endif
