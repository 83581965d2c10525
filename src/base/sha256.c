#include "base/sha256.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/sha256_internal.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t rotr(uint32_t x, int k)
{
    return (x >> k) | (x << (32 - k));
}

static inline uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static inline void store_be32(uint8_t *p, uint32_t x)
{
    p[0] = (uint8_t)(x >> 24);
    p[1] = (uint8_t)(x >> 16);
    p[2] = (uint8_t)(x >> 8);
    p[3] = (uint8_t)x;
}

static void expand_block(uint32_t w[64], const uint8_t *block)
{
    for (int t = 0; t < 16; t++) {
        w[t] = load_be32(block + 4 * t);
    }
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
        uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
}

static void block_portable(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    expand_block(w, block);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 64; t++) {
        uint32_t big1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
        uint32_t choice = (e & f) ^ (~e & g);
        uint32_t t1 = h + big1 + choice + round_constants[t] + w[t];
        uint32_t big0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
        uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + big0 + majority;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void sha256__blocks_portable(uint32_t state[8], const uint8_t *data, size_t blocks)
{
    for (; blocks > 0; blocks--) {
        block_portable(state, data);
        data += SHA256_BLOCK_BYTES;
    }
}

#if defined(__x86_64__)

#define NATIVE __attribute__((target("sha,sse4.1,ssse3")))
#define NATIVE_INLINE __attribute__((target("sha,sse4.1,ssse3"), always_inline)) static inline

/* The state in the order that the instructions want. */
struct lanes {
    __m128i abef;
    __m128i cdgh;
};

NATIVE_INLINE __m128i load_words(const uint8_t *p)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)p), big_endian);
}

/* Four rounds with the words `w` and the constants from `k` on. */
NATIVE_INLINE void four_rounds(struct lanes *s, __m128i w, const uint32_t *k)
{
    __m128i sum = _mm_add_epi32(w, _mm_loadu_si128((const __m128i *)(const void *)k));
    s->cdgh = _mm_sha256rnds2_epu32(s->cdgh, s->abef, sum);
    s->abef = _mm_sha256rnds2_epu32(s->abef, s->cdgh, _mm_shuffle_epi32(sum, 0x0e));
}

/* The four words that follow the sixteen in w0 to w3. */
NATIVE_INLINE __m128i next_words(__m128i w0, __m128i w1, __m128i w2, __m128i w3)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
    return _mm_sha256msg2_epu32(sum, w3);
}

NATIVE_INLINE void block_native(struct lanes *state, const uint8_t *block)
{
    struct lanes s = *state;
    __m128i w0 = load_words(block);
    __m128i w1 = load_words(block + 16);
    __m128i w2 = load_words(block + 32);
    __m128i w3 = load_words(block + 48);
    const uint32_t *k = round_constants;
    for (int i = 0; i < 3; i++) {
        four_rounds(&s, w0, k);
        w0 = next_words(w0, w1, w2, w3);
        four_rounds(&s, w1, k + 4);
        w1 = next_words(w1, w2, w3, w0);
        four_rounds(&s, w2, k + 8);
        w2 = next_words(w2, w3, w0, w1);
        four_rounds(&s, w3, k + 12);
        w3 = next_words(w3, w0, w1, w2);
        k += 16;
    }
    four_rounds(&s, w0, k);
    four_rounds(&s, w1, k + 4);
    four_rounds(&s, w2, k + 8);
    four_rounds(&s, w3, k + 12);
    state->abef = _mm_add_epi32(state->abef, s.abef);
    state->cdgh = _mm_add_epi32(state->cdgh, s.cdgh);
}

NATIVE void sha256__blocks_native(uint32_t state[8], const uint8_t *data, size_t blocks)
{
    __m128i *low = (__m128i *)(void *)state;
    __m128i *high = (__m128i *)(void *)(state + 4);
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(low), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(high), 0x1b);
    struct lanes s = {
        .abef = _mm_alignr_epi8(cdab, efgh, 8),
        .cdgh = _mm_blend_epi16(efgh, cdab, 0xf0),
    };
    for (; blocks > 0; blocks--) {
        block_native(&s, data);
        data += SHA256_BLOCK_BYTES;
    }
    __m128i feba = _mm_shuffle_epi32(s.abef, 0x1b);
    __m128i dchg = _mm_shuffle_epi32(s.cdgh, 0xb1);
    _mm_storeu_si128(low, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128(high, _mm_alignr_epi8(dchg, feba, 8));
}

bool sha256__has_native(void)
{
    const unsigned ssse3 = 1u << 9;  /* leaf 1, ecx */
    const unsigned sse41 = 1u << 19; /* leaf 1, ecx */
    const unsigned sha = 1u << 29;   /* leaf 7, ebx */
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & ssse3) == 0 || (ecx & sse41) == 0) {
        return false;
    }
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & sha) != 0;
}

#else

void sha256__blocks_native(uint32_t state[8], const uint8_t *data, size_t blocks)
{
    UNUSED(state);
    UNUSED(data);
    UNUSED(blocks);
    check_failed(__FILE__, __LINE__, "sha256__has_native()");
}

bool sha256__has_native(void)
{
    return false;
}

#endif

/* Asking the processor is slow under a hypervisor, so the answer is kept. Threads that race here find the same. */
static void work_blocks(uint32_t state[8], const uint8_t *data, size_t blocks)
{
    enum { UNKNOWN, PORTABLE, NATIVE_CODE };
    static _Atomic int kept = UNKNOWN;
    int choice = atomic_load_explicit(&kept, memory_order_relaxed);
    if (choice == UNKNOWN) {
        choice = sha256__has_native() ? NATIVE_CODE : PORTABLE;
        atomic_store_explicit(&kept, choice, memory_order_relaxed);
    }
    if (choice == NATIVE_CODE) {
        sha256__blocks_native(state, data, blocks);
    } else {
        sha256__blocks_portable(state, data, blocks);
    }
}

void sha256_init(struct sha256 *sha)
{
    *sha = (struct sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
    };
}

void sha256_update(struct sha256 *sha, const void *data, size_t n)
{
    if (n == 0) {
        return;
    }
    const uint8_t *p = data;
    size_t pending = (size_t)(sha->length_bytes % SHA256_BLOCK_BYTES);
    sha->length_bytes += n;
    if (pending > 0) {
        size_t missing = SHA256_BLOCK_BYTES - pending;
        size_t taken = n < missing ? n : missing;
        memcpy(sha->pending + pending, p, taken);
        if (taken < missing) {
            return;
        }
        work_blocks(sha->state, sha->pending, 1);
        p += taken;
        n -= taken;
    }
    size_t blocks = n / SHA256_BLOCK_BYTES;
    if (blocks > 0) {
        work_blocks(sha->state, p, blocks);
    }
    memcpy(sha->pending, p + blocks * SHA256_BLOCK_BYTES, n % SHA256_BLOCK_BYTES);
}

void sha256_final(struct sha256 *sha, uint8_t out[SHA256_BYTES])
{
    static const uint8_t padding[SHA256_BLOCK_BYTES] = {0x80};
    uint64_t length_bits = sha->length_bytes * 8;
    size_t pending = (size_t)(sha->length_bytes % SHA256_BLOCK_BYTES);
    uint8_t tail[8];
    store_be32(tail, (uint32_t)(length_bits >> 32));
    store_be32(tail + 4, (uint32_t)length_bits);
    sha256_update(sha, padding, pending < 56 ? 56 - pending : 120 - pending);
    sha256_update(sha, tail, sizeof(tail));
    for (int i = 0; i < 8; i++) {
        store_be32(out + 4 * i, sha->state[i]);
    }
}

void sha256_once(const void *data, size_t n, uint8_t out[SHA256_BYTES])
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_update(&sha, data, n);
    sha256_final(&sha, out);
}

bool sha256_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES])
{
    volatile unsigned differences = 0; /* so that no compiler finds a way to stop early */
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        differences = differences | (unsigned)(a[i] ^ b[i]);
    }
    return differences == 0;
}

void hex_encode(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}
