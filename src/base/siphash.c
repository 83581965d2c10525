#include "base/siphash.h"

#include <string.h>

struct sip {
    uint64_t v0;
    uint64_t v1;
    uint64_t v2;
    uint64_t v3;
};

static inline uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

static inline void sip_rounds(struct sip *s, int count)
{
    for (int i = 0; i < count; i++) {
        s->v0 += s->v1;
        s->v1 = rotl(s->v1, 13) ^ s->v0;
        s->v0 = rotl(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotl(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotl(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotl(s->v1, 17) ^ s->v2;
        s->v2 = rotl(s->v2, 32);
    }
}

static inline struct sip sip_start(const struct siphash_key *key)
{
    return (struct sip){
        .v0 = key->k0 ^ UINT64_C(0x736f6d6570736575),
        .v1 = key->k1 ^ UINT64_C(0x646f72616e646f6d),
        .v2 = key->k0 ^ UINT64_C(0x6c7967656e657261),
        .v3 = key->k1 ^ UINT64_C(0x7465646279746573),
    };
}

static inline uint64_t load_le64(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof(word));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline void sip_word(struct sip *s, uint64_t word, int rounds)
{
    s->v3 ^= word;
    sip_rounds(s, rounds);
    s->v0 ^= word;
}

/* Takes in all bytes, and the last word, which holds the bytes left over and the length. */
static inline void sip_absorb(struct sip *s, const unsigned char *p, size_t n, int rounds)
{
    uint64_t last = (uint64_t)n << 56;
    size_t left = n % 8;
    for (size_t words = n / 8; words > 0; words--) {
        sip_word(s, load_le64(p), rounds);
        p += 8;
    }
    for (size_t i = 0; i < left; i++) {
        last |= (uint64_t)p[i] << (8 * i);
    }
    sip_word(s, last, rounds);
}

static inline uint64_t sip_sum(const struct sip *s)
{
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

uint64_t siphash(const struct siphash_key *key, const void *data, size_t n)
{
    struct sip s = sip_start(key);
    sip_absorb(&s, data, n, 1);
    s.v2 ^= 0xff;
    sip_rounds(&s, 3);
    return sip_sum(&s);
}

void siphash128(const struct siphash_key *key, const void *data, size_t n, uint64_t out[2])
{
    struct sip s = sip_start(key);
    s.v1 ^= 0xee;
    sip_absorb(&s, data, n, 2);
    s.v2 ^= 0xee;
    sip_rounds(&s, 4);
    out[0] = sip_sum(&s);
    s.v1 ^= 0xdd;
    sip_rounds(&s, 4);
    out[1] = sip_sum(&s);
}
