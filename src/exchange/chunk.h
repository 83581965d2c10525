/*
 * chunk.h - ShufflePartitionChunk: the one message that is made and read once per megabyte.
 *
 * It has a single field, so it is written around the bytes and read in place, where src/wire would copy them once more.
 * What does not look just as we write it goes through src/wire all the same.
 *
 * Ownership: said at each function. Threads: any.
 */
#ifndef CAPSTAN_EXCHANGE_CHUNK_H
#define CAPSTAN_EXCHANGE_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"

#define CHUNK_HEAD_BYTES_MAX 11

/*
 * Writes the message's head for a payload of `n` bytes so that it ends at `out` + CHUNK_HEAD_BYTES_MAX, where the payload
 * is to follow. Returns how long it is.
 */
size_t chunk_head(size_t n, uint8_t out[CHUNK_HEAD_BYTES_MAX]);

/*
 * How long the head of a message of `n` bytes is, of which the first `n_first` are at `bytes`, if it is one payload and
 * nothing else; 0 if it is not, or if its head is not all there.
 */
size_t chunk_plain_head(const uint8_t *bytes, size_t n_first, size_t n);

/* The payload, in `bytes` or in the arena. Errors as wire_decode. */
MUST_USE enum err chunk_payload(const uint8_t *bytes, size_t n, struct arena *arena, const uint8_t **out, size_t *out_n,
                                struct error *e);

#endif
