#include "../test.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "base/prng.h"

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* That `text` is read as exactly `expected`. */
static void check_reads(const char *text, double expected)
{
    double value = -12345.5;
    if (!num_parse(text, &value) || bits_of(value) != bits_of(expected)) {
        print_error("\"%s\" is read as %.17g, expected %.17g\n", text, value, expected);
        CHECK(false);
    }
}

static void check_refuses(const char *text)
{
    double value = -12345.5;
    bool is_read = num_parse(text, &value);
    if (is_read || bits_of(value) != bits_of(-12345.5)) {
        print_error("\"%s\" is not refused\n", text == NULL ? "(NULL)" : text);
        CHECK(false);
    }
}

TEST(json_numbers_are_read)
{
    check_reads("0", 0.0);
    check_reads("-0", -0.0);
    check_reads("7", 7.0);
    check_reads("-12", -12.0);
    check_reads("0.5", 0.5);
    check_reads("-0.25", -0.25);
    check_reads("0.1", 0.1);
    check_reads("3.14159", 3.14159);
    check_reads("1e3", 1000.0);
    check_reads("1E+3", 1000.0);
    check_reads("25e-2", 0.25);
    check_reads("1e22", 1e22);
    check_reads("1e23", 1e23);
    check_reads("10e00", 10.0);
}

TEST(integers_up_to_2_to_the_53_are_exact)
{
    check_reads("9007199254740989", 9007199254740989.0);
    check_reads("9007199254740992", 9007199254740992.0);
    check_reads("-9007199254740991", -9007199254740991.0);
    check_reads("18446744073709551615", 18446744073709551616.0);
    struct prng prng;
    prng_init(&prng, 11);
    for (int i = 0; i < 1000; i++) {
        char text[32];
        int64_t number = prng_range(&prng, -(INT64_C(1) << 53), INT64_C(1) << 53);
        snprintf(text, sizeof(text), "%lld", (long long)number);
        check_reads(text, (double)number);
    }
}

TEST(anything_else_is_refused)
{
    static const char *const texts[] = {
        "",     " ",        "1 ",   " 1",  "+1",    "-",     "--1",  "01",   "-01",   "00",
        ".5",   "1.",       "1.e3", "1e",  "1e+",   "1e1.5", "1,5",  "0x10", "0x1p3", "inf",
        "-inf", "infinity", "nan",  "NaN", "1_000", "1f",    "1e5 ", "abc",  "1\n",   "\t1",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        check_refuses(texts[i]);
    }
    check_refuses(NULL);
}

TEST(numbers_too_large_are_refused_and_too_small_ones_are_zero)
{
    check_reads("1.7976931348623157e308", 1.7976931348623157e308);
    check_refuses("1e309");
    check_refuses("-1e309");
    check_refuses("1e99999999999999999999");
    check_reads("5e-324", 5e-324);
    check_reads("1e-400", 0.0);
    check_reads("1e-99999999999999999999", 0.0);
    check_reads("0e99999999999999999999", 0.0);
}

/* A text of `zeroes` zeroes between `before` and `after`; the caller frees it. */
static char *with_zeroes(const char *before, size_t zeroes, const char *after)
{
    size_t size = strlen(before) + zeroes + strlen(after) + 1;
    char *text = mem_alloc(size);
    snprintf(text, size, "%s%0*d%s", before, (int)zeroes, 0, after);
    return text;
}

TEST(very_long_texts_are_read_correctly)
{
    char *tiny = with_zeroes("0.", 200000, "1e200001");
    check_reads(tiny, 1.0);
    mem_free(tiny);
    char *trap = with_zeroes("0.", 200000, "1e100010");
    check_reads(trap, 0.0);
    mem_free(trap);
    char *large = with_zeroes("1", 300, "e-300");
    check_reads(large, 1.0);
    mem_free(large);
    check_reads("0.30000000000000000000000000000000000000000000000001", 0.3);
}

TEST(random_doubles_survive_the_way_through_text)
{
    struct prng prng;
    prng_init(&prng, 12);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = prng_u64(&prng);
        double value;
        memcpy(&value, &bits, sizeof(value));
        char text[64];
        if (!isfinite(value)) {
            continue;
        }
        snprintf(text, sizeof(text), "%.17g", value);
        check_reads(text, value);
        double small = (double)prng_range(&prng, -1000000, 1000000) / 1000.0;
        snprintf(text, sizeof(text), "%.3f", small);
        check_reads(text, small);
    }
}

TEST(the_locale_does_not_matter)
{
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL && setlocale(LC_NUMERIC, "fr_FR.UTF-8") == NULL) {
        skip();
    }
    check_reads("0.5", 0.5);
    check_reads("1.7976931348623157e308", 0x1.fffffffffffffp+1023);
    check_refuses("0,5");
    setlocale(LC_NUMERIC, "C");
}

TEST(a_whole_number_is_read_exactly_or_not_at_all)
{
    int64_t value = 7;
    CHECK(num_parse_int("0", &value));
    CHECK_INT(value, 0);
    CHECK(num_parse_int("-9223372036854775808", &value));
    CHECK_INT(value, INT64_MIN);
    CHECK(num_parse_int("9223372036854775807", &value));
    CHECK_INT(value, INT64_MAX);
    static const char *const wrong[] = {
        "", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "9223372036854775808", "1_0", "-- 1", "-9223372036854775809"};
    value = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!num_parse_int(wrong[i], &value));
    }
    CHECK(!num_parse_int(NULL, &value));
    CHECK_INT(value, 7);
}
