/*
 * bits.h - bitmaps of Arrow: bit i is bit i % 8 of byte i / 8.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_EXCHANGE_BITS_H
#define CAPSTAN_EXCHANGE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool bits_get(const uint8_t *bits, size_t i)
{
    return (bits[i / 8] >> (i % 8) & 1) != 0;
}

static inline void bits_set(uint8_t *bits, size_t i)
{
    bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << (i % 8));
}

static inline size_t bits_bytes(size_t n)
{
    return (n + 7) / 8;
}

/* Copies `n` bits from bit `start` on to the start of `to`; the bits behind them, up to a whole byte, become zero. */
void bits_copy(const uint8_t *from, size_t start, size_t n, uint8_t *to);

/* How many of the `n` bits from bit `start` on are set. */
size_t bits_count(const uint8_t *bits, size_t start, size_t n);

#endif
