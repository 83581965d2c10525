/*
 * prng.h - reproducible pseudo-random numbers: xoshiro256**, seeded through splitmix64.
 *
 * The same seed yields the same numbers on every machine, which is what the simulator and the tests live on. Not
 * for secrets.
 *
 * Ownership: a `struct prng` is the caller's plain memory. Threads: one at a time per generator.
 */
#ifndef CAPSTAN_BASE_PRNG_H
#define CAPSTAN_BASE_PRNG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

struct prng {
    uint64_t s[4];
};

static inline void prng_init(struct prng *prng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        prng->s[i] = z ^ (z >> 31);
    }
}

static inline uint64_t prng_rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

/* 64 random bits. */
static inline uint64_t prng_u64(struct prng *prng)
{
    uint64_t *s = prng->s;
    uint64_t result = prng_rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = prng_rotl(s[3], 45);
    return result;
}

/* A number in [0, n), for n > 0. The bias is at most n / 2^64. */
static inline uint64_t prng_below(struct prng *prng, uint64_t n)
{
    ASSERT(n > 0);
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)prng_u64(prng) * n) >> 64);
}

/* True `p` times in a thousand: never for 0, always from 1000 on. */
static inline bool prng_permille(struct prng *prng, uint32_t p)
{
    return prng_below(prng, 1000) < p;
}

/* A number in [lo, hi], both included, for lo <= hi. */
static inline int64_t prng_range(struct prng *prng, int64_t lo, int64_t hi)
{
    ASSERT(lo <= hi);
    uint64_t span = (uint64_t)hi - (uint64_t)lo + 1; /* zero if the range is all of int64_t */
    uint64_t offset = span == 0 ? prng_u64(prng) : prng_below(prng, span);
    return (int64_t)((uint64_t)lo + offset);
}

#endif
