#include "base/random.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/clock.h"

void random_bytes(void *out, size_t n)
{
    unsigned char *p = out;
    while (n > 0) {
        ssize_t got = getrandom(p, n < 256 ? n : 256, 0);
        ASSERT(got > 0 || errno == EINTR);
        if (got > 0) {
            p += got;
            n -= (size_t)got;
        }
    }
}

void random_hex(char *out, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char byte = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 0) {
            random_bytes(&byte, 1);
        }
        out[i] = digits[i % 2 == 0 ? byte >> 4 : byte & 15];
    }
    out[n] = '\0';
}

void random_uuid7(char out[UUID_TEXT_BYTES])
{
    uint8_t b[16];
    uint64_t now_ms = (uint64_t)clock_wall_ms();
    random_bytes(b, sizeof b);
    for (int i = 0; i < 6; i++) {
        b[i] = (uint8_t)(now_ms >> (40 - 8 * i));
    }
    b[6] = (uint8_t)(0x70 | (b[6] & 0x0f));
    b[8] = (uint8_t)(0x80 | (b[8] & 0x3f));
    snprintf(out, UUID_TEXT_BYTES, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}
