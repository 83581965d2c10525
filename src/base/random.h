/*
 * random.h - unpredictable bits from the operating system, and names made of them.
 *
 * For secrets and names. What must be replayable takes its randomness from base/prng.h instead.
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_BASE_RANDOM_H
#define CAPSTAN_BASE_RANDOM_H

#include <stddef.h>

#define UUID_TEXT_BYTES 37 /* with the NUL */

void random_bytes(void *out, size_t n);

/* A UUID of version 7: sorts by the time at which it was made, to the millisecond. */
void random_uuid7(char out[UUID_TEXT_BYTES]);

/* `n` random lower-case hex digits and a NUL. */
void random_hex(char *out, size_t n);

#endif
