#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/prng.h"
#include "base/sha256.h"
#include "base/sha256_internal.h"

typedef void blocks_fn(uint32_t state[8], const uint8_t *data, size_t blocks);

static const char *const empty_hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
static const char *const abc_hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
static const char *const two_blocks_text = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
static const char *const two_blocks_hex = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
static const char *const million_hex = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

/* Digest by the given block function alone: pads a copy of the message. */
static void digest_by(blocks_fn *work, const void *data, size_t n, char hex[65])
{
    struct sha256 sha;
    uint8_t out[SHA256_BYTES];
    size_t blocks = (n + 9 + 63) / 64;
    uint8_t *padded = mem_calloc(blocks, 64);
    if (n > 0) {
        memcpy(padded, data, n);
    }
    padded[n] = 0x80;
    for (size_t i = 0; i < 8; i++) {
        padded[blocks * 64 - 1 - i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
    }
    sha256_init(&sha);
    work(sha.state, padded, blocks);
    for (size_t i = 0; i < 32; i++) {
        out[i] = (uint8_t)(sha.state[i / 4] >> (24 - 8 * (i % 4)));
    }
    hex_encode(out, sizeof(out), hex);
    mem_free(padded);
}

static void digest_once(const void *data, size_t n, char hex[65])
{
    uint8_t out[SHA256_BYTES];
    sha256_once(data, n, out);
    hex_encode(out, sizeof(out), hex);
}

static char *million_letters(void)
{
    char *text = mem_alloc(1000000);
    memset(text, 'a', 1000000);
    return text;
}

static void check_nist_vectors(blocks_fn *work)
{
    char hex[65];
    digest_by(work, "", 0, hex);
    CHECK_STR(hex, empty_hex);
    digest_by(work, "abc", 3, hex);
    CHECK_STR(hex, abc_hex);
    digest_by(work, two_blocks_text, strlen(two_blocks_text), hex);
    CHECK_STR(hex, two_blocks_hex);
    char *million = million_letters();
    digest_by(work, million, 1000000, hex);
    CHECK_STR(hex, million_hex);
    mem_free(million);
}

TEST(the_portable_code_yields_the_nist_vectors)
{
    check_nist_vectors(sha256__blocks_portable);
}

TEST(the_sha_instructions_yield_the_nist_vectors)
{
    if (!sha256__has_native()) {
        return;
    }
    check_nist_vectors(sha256__blocks_native);
}

TEST(the_public_functions_yield_the_nist_vectors)
{
    char hex[65];
    digest_once(NULL, 0, hex);
    CHECK_STR(hex, empty_hex);
    digest_once("abc", 3, hex);
    CHECK_STR(hex, abc_hex);
    digest_once(two_blocks_text, strlen(two_blocks_text), hex);
    CHECK_STR(hex, two_blocks_hex);
    char *million = million_letters();
    digest_once(million, 1000000, hex);
    CHECK_STR(hex, million_hex);
    mem_free(million);
}

TEST(both_block_functions_agree_on_random_data)
{
    if (!sha256__has_native()) {
        return;
    }
    struct prng prng;
    uint8_t data[64 * 9 + 1];
    prng_init(&prng, 14);
    for (int round = 0; round < 500; round++) {
        uint32_t a[8];
        uint32_t b[8];
        for (size_t i = 0; i < sizeof(data); i++) {
            data[i] = (uint8_t)prng_u64(&prng);
        }
        for (size_t i = 0; i < 8; i++) {
            a[i] = (uint32_t)prng_u64(&prng);
            b[i] = a[i];
        }
        size_t blocks = (size_t)prng_below(&prng, 10);
        const uint8_t *start = data + round % 2; /* unaligned, too */
        sha256__blocks_portable(a, start, blocks);
        sha256__blocks_native(b, start, blocks);
        CHECK_MEM(b, a, sizeof(a));
    }
}

TEST(every_length_around_a_block_is_padded_right)
{
    uint8_t data[200];
    memset(data, 0x5a, sizeof(data));
    for (size_t n = 0; n <= sizeof(data); n++) {
        char expected[65];
        char actual[65];
        digest_by(sha256__blocks_portable, data, n, expected);
        digest_once(data, n, actual);
        CHECK_STR(actual, expected);
    }
}

TEST(the_pieces_in_which_the_input_comes_do_not_matter)
{
    struct prng prng;
    uint8_t data[1000];
    prng_init(&prng, 15);
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)prng_u64(&prng);
    }
    uint8_t expected[SHA256_BYTES];
    sha256_once(data, sizeof(data), expected);
    for (int round = 0; round < 500; round++) {
        struct sha256 sha;
        uint8_t actual[SHA256_BYTES];
        size_t at = 0;
        sha256_init(&sha);
        while (at < sizeof(data)) {
            size_t n = (size_t)prng_below(&prng, 150);
            n = n < sizeof(data) - at ? n : sizeof(data) - at;
            sha256_update(&sha, data + at, n);
            at += n;
        }
        sha256_final(&sha, actual);
        CHECK_MEM(actual, expected, SHA256_BYTES);
    }
}

TEST(a_copied_hash_goes_its_own_way)
{
    struct sha256 sha;
    uint8_t out[SHA256_BYTES];
    char hex[65];
    sha256_init(&sha);
    sha256_update(&sha, "ab", 2);
    struct sha256 fork = sha;
    sha256_update(&sha, "x", 1);
    sha256_update(&fork, "c", 1);
    sha256_final(&fork, out);
    hex_encode(out, sizeof(out), hex);
    CHECK_STR(hex, abc_hex);
}

TEST(bytes_become_lower_case_hexadecimal)
{
    static const uint8_t bytes[] = {0x00, 0x0f, 0xa5, 0xff};
    char hex[9];
    hex_encode(bytes, sizeof(bytes), hex);
    CHECK_STR(hex, "000fa5ff");
    hex_encode(bytes, 0, hex);
    CHECK_STR(hex, "");
}
