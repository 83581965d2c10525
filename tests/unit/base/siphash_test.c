#include "../test.h"

#include <string.h>

#include "base/prng.h"
#include "base/sha256.h"
#include "base/siphash.h"

/* The key of the official vectors: bytes 00 to 0f. */
static const struct siphash_key official = {
    .k0 = UINT64_C(0x0706050403020100),
    .k1 = UINT64_C(0x0f0e0d0c0b0a0908),
};

struct vector {
    size_t length; /* of the message 00 01 02 ... */
    const char *hex;
};

static void store_le64(uint8_t *p, uint64_t x)
{
    for (int i = 0; i < 8; i++) {
        p[i] = (uint8_t)(x >> (8 * i));
    }
}

static void count_up(uint8_t message[64])
{
    for (size_t i = 0; i < 64; i++) {
        message[i] = (uint8_t)i;
    }
}

TEST(siphash_2_4_128_yields_the_official_vectors)
{
    static const struct vector vectors[] = {
        {0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
        {7, "a1f1ebbed8dbc153c0b84aa61ff08239"},  {8, "3b62a9ba6258f5610f83e264f31497b4"},
        {15, "5493e99933b0a8117e08ec0f97cfc3d9"}, {16, "6ee2a4ca67b054bbfd3315bf85230577"},
        {63, "5150d1772f50834a503e069a973fbd7c"},
    };
    uint8_t message[64];
    count_up(message);
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        uint64_t out[2];
        uint8_t bytes[16];
        char hex[33];
        siphash128(&official, message, vectors[i].length, out);
        store_le64(bytes, out[0]);
        store_le64(bytes + 8, out[1]);
        hex_encode(bytes, sizeof(bytes), hex);
        CHECK_STR(hex, vectors[i].hex);
    }
}

TEST(siphash_1_3_yields_the_numbers_of_openssl)
{
    static const struct vector vectors[] = {
        {0, "dcc40f055801acab"},  {1, "93ca577df39bf4c9"},  {7, "4011b19b987d92d3"},  {8, "8e9a298d11959036"},
        {15, "5699512a6dd820d3"}, {16, "668b907d1add4fcc"}, {63, "a8b3bbb76290199d"},
    };
    uint8_t message[64];
    count_up(message);
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        uint8_t bytes[8];
        char hex[17];
        store_le64(bytes, siphash(&official, message, vectors[i].length));
        hex_encode(bytes, sizeof(bytes), hex);
        CHECK_STR(hex, vectors[i].hex);
    }
}

static uint64_t rotate(uint64_t x, unsigned k)
{
    return x << k | x >> (64 - k);
}

/* The paper's figure of a round, line by line. */
static void plain_round(uint64_t v[4])
{
    v[0] = v[0] + v[1];
    v[2] = v[2] + v[3];
    v[1] = rotate(v[1], 13);
    v[3] = rotate(v[3], 16);
    v[1] = v[1] ^ v[0];
    v[3] = v[3] ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] = v[2] + v[1];
    v[0] = v[0] + v[3];
    v[1] = rotate(v[1], 17);
    v[3] = rotate(v[3], 21);
    v[1] = v[1] ^ v[2];
    v[3] = v[3] ^ v[0];
    v[2] = rotate(v[2], 32);
}

struct plain_kind {
    int rounds;
    int final_rounds;
    bool is_wide;
};

/* SipHash as the paper tells it: pads a copy of the message, then takes it word by word, byte by byte. */
static void plain_siphash(struct plain_kind kind, const struct siphash_key *key, const uint8_t *data, size_t n,
                          uint64_t out[2])
{
    uint8_t padded[272] = {0};
    size_t words = n / 8 + 1;
    if (n > 0) {
        memcpy(padded, data, n);
    }
    padded[words * 8 - 1] = (uint8_t)(n & 0xff);
    uint64_t v[4] = {key->k0 ^ UINT64_C(0x736f6d6570736575), key->k1 ^ UINT64_C(0x646f72616e646f6d),
                     key->k0 ^ UINT64_C(0x6c7967656e657261), key->k1 ^ UINT64_C(0x7465646279746573)};
    v[1] ^= kind.is_wide ? 0xee : 0;
    for (size_t w = 0; w < words; w++) {
        uint64_t m = 0;
        for (size_t i = 8; i > 0; i--) {
            m = m << 8 | padded[w * 8 + i - 1];
        }
        v[3] ^= m;
        for (int i = 0; i < kind.rounds; i++) {
            plain_round(v);
        }
        v[0] ^= m;
    }
    v[2] ^= kind.is_wide ? 0xee : 0xff;
    for (int i = 0; i < kind.final_rounds; i++) {
        plain_round(v);
    }
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    for (int i = 0; i < kind.final_rounds; i++) {
        plain_round(v);
    }
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

TEST(both_siphashes_agree_with_a_plain_implementation)
{
    struct prng prng;
    uint8_t message[260];
    prng_init(&prng, 13);
    for (size_t i = 0; i < sizeof(message); i++) {
        message[i] = (uint8_t)prng_u64(&prng);
    }
    for (size_t n = 0; n < 258; n++) {
        struct siphash_key key = {.k0 = prng_u64(&prng), .k1 = prng_u64(&prng)};
        const uint8_t *start = message + n % 3; /* unaligned, too */
        uint64_t expected[2];
        uint64_t actual[2];
        plain_siphash((struct plain_kind){1, 3, false}, &key, start, n, expected);
        CHECK_UINT(siphash(&key, start, n), expected[0]);
        plain_siphash((struct plain_kind){2, 4, true}, &key, start, n, expected);
        siphash128(&key, start, n, actual);
        CHECK_UINT(actual[0], expected[0]);
        CHECK_UINT(actual[1], expected[1]);
    }
}

TEST(hashing_nothing_needs_no_pointer)
{
    CHECK_UINT(siphash(&official, NULL, 0), siphash(&official, "", 0));
}
