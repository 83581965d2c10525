/*
 * sha256.h - SHA-256 (FIPS 180-4), and bytes as hexadecimal text.
 *
 * Uses the SHA instructions of x86 where the processor has them (found out at run time), portable C otherwise.
 *
 * Ownership: a `struct sha256` is the caller's plain memory and owns nothing; it may be copied to fork a hash.
 * Threads: any, each with a `struct sha256` of its own.
 */
#ifndef CAPSTAN_BASE_SHA256_H
#define CAPSTAN_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_BLOCK_BYTES 64

struct sha256 {
    uint32_t state[8];
    uint64_t length_bytes;               /* of all input so far */
    uint8_t pending[SHA256_BLOCK_BYTES]; /* the last length_bytes % 64 bytes of it */
};

void sha256_init(struct sha256 *sha);

/* `data` may be NULL if `n` is zero. */
void sha256_update(struct sha256 *sha, const void *data, size_t n);

/* Writes the digest. Another use of `sha` needs sha256_init(). */
void sha256_final(struct sha256 *sha, uint8_t out[SHA256_BYTES]);

/* Digest of one piece of memory. */
void sha256_once(const void *data, size_t n, uint8_t out[SHA256_BYTES]);

/* Whether two digests are equal, found out in a time that does not depend on them: for digests of secrets. */
bool sha256_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]);

/* Writes 2n lower-case hexadecimal digits and a NUL: 2n + 1 bytes. */
void hex_encode(const uint8_t *bytes, size_t n, char *out);

#endif
