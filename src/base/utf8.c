#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* Length of the well-formed character at the start of the `n` > 0 bytes, 0 if there is none. */
static size_t char_length(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] < 0xc2 || p[0] > 0xf4) {
        return 0;
    }
    size_t length = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (length > n) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool is_overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool is_surrogate = p[0] == 0xed && p[1] >= 0xa0;
    bool is_beyond = p[0] == 0xf4 && p[1] >= 0x90;
    return is_overlong || is_surrogate || is_beyond ? 0 : length;
}

bool utf8_is_valid(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof(eight)) {
            memcpy(&eight, p + i, sizeof(eight));
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                i += sizeof(eight);
                continue;
            }
        }
        size_t length = char_length(p + i, n - i);
        if (length == 0) {
            return false;
        }
        i += length;
    }
    return true;
}

size_t utf8_clip(const char *s, size_t n, size_t max)
{
    if (n <= max) {
        return n;
    }
    const unsigned char *p = (const unsigned char *)s;
    size_t start = max; /* of the character that the byte after the cut belongs to */
    while (start > 0 && max - start < 3 && (p[start] & 0xc0) == 0x80) {
        start--;
    }
    size_t length = char_length(p + start, n - start);
    return start + length > max ? start : max;
}
