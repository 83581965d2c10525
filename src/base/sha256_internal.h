/*
 * sha256_internal.h - the two block functions of SHA-256, apart, so that a test can compare them.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_BASE_SHA256_INTERNAL_H
#define CAPSTAN_BASE_SHA256_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Works `blocks` blocks of 64 bytes into `state`. */
void sha256__blocks_portable(uint32_t state[8], const uint8_t *data, size_t blocks);

/* The same with the SHA instructions of x86; only to be called if sha256__has_native(). */
void sha256__blocks_native(uint32_t state[8], const uint8_t *data, size_t blocks);

/* Whether this processor has the instructions that sha256__blocks_native() needs. */
bool sha256__has_native(void);

#endif
