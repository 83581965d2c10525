/*
 * siphash.h - keyed hashing of short byte strings.
 *
 * siphash() is SipHash-1-3: fast, and good against peers that choose colliding keys for a hash table.
 * siphash128() is SipHash-2-4 with 128 bits of output: a pseudo-random function, used for lease tokens.
 * Results do not depend on the byte order of the machine.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_BASE_SIPHASH_H
#define CAPSTAN_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* The 16 bytes of the key, read as two little-endian numbers. */
struct siphash_key {
    uint64_t k0;
    uint64_t k1;
};

/* `data` may be NULL if `n` is zero, here and below. */
uint64_t siphash(const struct siphash_key *key, const void *data, size_t n);

/* out[0] holds the first eight output bytes of the reference implementation as a little-endian number. */
void siphash128(const struct siphash_key *key, const void *data, size_t n, uint64_t out[2]);

#endif
