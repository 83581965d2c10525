#include "exchange/bits.h"

#include <string.h>

void bits_copy(const uint8_t *from, size_t start, size_t n, uint8_t *to)
{
    size_t bytes = bits_bytes(n);
    unsigned shift = (unsigned)(start % 8);
    const uint8_t *p = from + start / 8;
    if (n == 0) {
        return;
    }
    if (shift == 0) {
        memcpy(to, p, bytes);
    } else {
        size_t last = (start % 8 + n - 1) / 8; /* the last byte that holds one of the bits */
        for (size_t i = 0; i < bytes; i++) {
            unsigned high = i < last ? p[i + 1] : 0;
            to[i] = (uint8_t)(p[i] >> shift | high << (8 - shift));
        }
    }
    if (n % 8 != 0) {
        to[bytes - 1] = (uint8_t)(to[bytes - 1] & ((1u << (n % 8)) - 1));
    }
}

size_t bits_count(const uint8_t *bits, size_t start, size_t n)
{
    size_t count = 0;
    size_t i = start;
    size_t end = start + n;
    for (; i < end && i % 8 != 0; i++) {
        count += bits_get(bits, i);
    }
    for (; end - i >= 64 && i < end; i += 64) {
        uint64_t word = 0;
        memcpy(&word, bits + i / 8, sizeof(word));
        count += (size_t)__builtin_popcountll(word);
    }
    for (; i < end; i++) {
        count += bits_get(bits, i);
    }
    return count;
}
