#include "../test.h"

#include <string.h>

#include "base/utf8.h"

static bool is_valid(const char *s)
{
    return utf8_is_valid(s, strlen(s));
}

TEST(well_formed_text_is_valid)
{
    CHECK(utf8_is_valid("", 0));
    CHECK(utf8_is_valid(NULL, 0));
    CHECK(utf8_is_valid("a\0b", 3));
    CHECK(is_valid("plain text that is longer than eight bytes"));
    CHECK(is_valid("\xc2\x80 \xdf\xbf"));
    CHECK(is_valid("\xe0\xa0\x80 \xef\xbf\xbf"));
    CHECK(is_valid("\xed\x9f\xbf \xee\x80\x80"));
    CHECK(is_valid("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf"));
    CHECK(is_valid("eight by\xc3\xa9tes and more text"));
}

TEST(malformed_text_is_not_valid)
{
    CHECK(!is_valid("\x80"));
    CHECK(!is_valid("\xc0\x80"));
    CHECK(!is_valid("\xc1\xbf"));
    CHECK(!is_valid("\xe0\x9f\xbf"));
    CHECK(!is_valid("\xf0\x8f\xbf\xbf"));
    CHECK(!is_valid("\xed\xa0\x80"));
    CHECK(!is_valid("\xed\xbf\xbf"));
    CHECK(!is_valid("\xf4\x90\x80\x80"));
    CHECK(!is_valid("\xf5\x80\x80\x80"));
    CHECK(!is_valid("\xff"));
    CHECK(!is_valid("12345678\xff"));
}

TEST(text_that_ends_inside_a_character_is_not_valid)
{
    CHECK(!is_valid("\xc3"));
    CHECK(!is_valid("a\xe2\x82"));
    CHECK(!is_valid("a\xf0\x9f\x9a"));
    CHECK(!is_valid("\xe2\x28\xa1"));
}

/* Writes the character in the plain way; returns its length. */
static size_t encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint32_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (char)(lead[length] | c);
    return length;
}

TEST(every_character_is_valid_but_the_surrogates)
{
    for (uint32_t c = 0; c < 0x110000; c++) {
        char bytes[4];
        size_t length = encode(c, bytes);
        bool is_surrogate = c >= 0xd800 && c <= 0xdfff;
        if (utf8_is_valid(bytes, length) == is_surrogate) {
            CHECK_UINT(c, 0);
        }
    }
}

TEST(short_text_is_not_clipped)
{
    CHECK_UINT(utf8_clip("abc", 3, 3), 3);
    CHECK_UINT(utf8_clip("abc", 3, 100), 3);
    CHECK_UINT(utf8_clip("", 0, 0), 0);
    CHECK_UINT(utf8_clip(NULL, 0, 5), 0);
}

TEST(text_is_clipped_between_two_characters)
{
    const char *s = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x80z"; /* characters start at 0, 1, 3, 6, 10; 11 bytes */
    static const size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
    for (size_t max = 0; max < ARRAY_LEN(expected); max++) {
        CHECK_UINT(utf8_clip(s, strlen(s), max), expected[max]);
    }
}

TEST(bytes_that_are_no_utf8_are_clipped_anywhere)
{
    CHECK_UINT(utf8_clip("\x80\x80\x80\x80\x80\x80\x80", 7, 5), 5);
    CHECK_UINT(utf8_clip("a\xff\xff\xff", 4, 2), 2);
    CHECK_UINT(utf8_clip("\xe2\x28\xa1z", 4, 2), 2);
}
