#include "../test.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/prng.h"

/* A bit of everything. */
static const char sample[] =
    "{\"name\": \"a\\u00e9\\n\\ud83d\\ude80 \xc3\xa9\xf0\x9f\x9a\x80\", \"list\": [1, -2.5e3, "
    "18446744073709551615, [], {}, [[true]]],\r\n\t\"deep\": {\"x\": {\"y\": null}, \"\": false}}";

/* Parses exactly `n` bytes: a copy with nothing behind them, so that the sanitizer sees a read too far. */
static enum err parse_bytes(const char *text, size_t n, struct json **out_root, struct error *e)
{
    char *copy = mem_copy(text, n);
    enum err err = json_parse(copy, n, out_root, e);
    mem_free(copy);
    return err;
}

static struct json *parse(const char *text)
{
    struct json *root = NULL;
    struct error e = {0};
    if (parse_bytes(text, strlen(text), &root, &e) != ERR_OK) {
        print_error("%s: %s\n", text, e.message);
        CHECK(false);
    }
    return root;
}

static void check_bytes_refused(const char *text, size_t n, const char *message)
{
    char somewhere;
    struct json *const before = (struct json *)(void *)&somewhere;
    struct json *root = before;
    struct error e = {0};
    CHECK_ERR(parse_bytes(text, n, &root, &e), ERR_INVALID);
    CHECK_STR(e.message, message);
    CHECK_ERR(parse_bytes(text, n, &root, NULL), ERR_INVALID);
    CHECK(root == before);
}

static void check_refused(const char *text, const char *message)
{
    check_bytes_refused(text, strlen(text), message);
}

/* Writes the tree without blanks. */
static void write_tree(struct buf *out, const struct json *node)
{
    size_t n = 0;
    int64_t integer = 0;
    uint64_t natural = 0;
    size_t cursor = 0;
    const char *key = NULL;
    const char *text = json_text(node, &n);
    const struct json *value = NULL;
    switch (json_kind_of(node)) {
    case JSON_NULL:
        buf_text(out, "null");
        break;
    case JSON_BOOL:
        buf_text(out, json_bool(node) ? "true" : "false");
        break;
    case JSON_NUMBER:
        if (json_int(node, &integer)) {
            json_write_int(out, integer);
        } else if (json_uint(node, &natural)) {
            buf_format(out, "%llu", (unsigned long long)natural);
        } else {
            json_write_number(out, json_number(node));
        }
        break;
    case JSON_TEXT:
        json_write_bytes(out, text, n);
        break;
    case JSON_ARRAY:
        for (size_t i = 0; i < json_count(node); i++) {
            buf_char(out, i == 0 ? '[' : ',');
            write_tree(out, json_at(node, i));
        }
        buf_text(out, json_count(node) == 0 ? "[]" : "]");
        break;
    case JSON_OBJECT:
        for (size_t i = 0; json_next(node, &cursor, &key, &value); i++) {
            buf_char(out, i == 0 ? '{' : ',');
            json_write_text(out, key);
            buf_char(out, ':');
            write_tree(out, value);
        }
        buf_text(out, json_count(node) == 0 ? "{}" : "}");
        break;
    }
}

/* That `text` is read, and is `expected` when it is written again. */
static void check_reads(const char *text, const char *expected)
{
    struct json *root = parse(text);
    struct buf out = {0};
    write_tree(&out, root);
    CHECK_STR(out.data, expected);
    buf_deinit(&out);
    json_free(root);
}

static void check_number(double number, const char *expected)
{
    struct buf out = {0};
    json_write_number(&out, number);
    CHECK_STR(out.data, expected);
    buf_deinit(&out);
}

TEST(text_is_quoted_and_escaped)
{
    struct buf out = {0};
    json_write_text(&out, "");
    json_write_text(&out, "plain");
    json_write_text(&out, "\"\\/");
    json_write_text(&out, "\x01\t\n\x1f\x7f");
    json_write_text(&out, "\xc3\xa9\xf0\x9f\x9a\x80");
    json_write_bytes(&out, "a\0b", 3);
    json_write_bytes(&out, NULL, 0);
    CHECK_STR(out.data, "\"\"\"plain\"\"\\\"\\\\/\"\"\\u0001\\t\\n\\u001f\x7f\"\"\xc3\xa9\xf0\x9f\x9a\x80\""
                        "\"a\\u0000b\"\"\"");
    buf_deinit(&out);
}

TEST(every_byte_below_128_survives_the_way_through_text)
{
    char all[128];
    for (size_t i = 0; i < sizeof(all); i++) {
        all[i] = (char)i;
    }
    struct buf out = {0};
    json_write_bytes(&out, all, sizeof(all));
    struct json *root = NULL;
    CHECK_ERR(parse_bytes(out.data, out.n, &root, NULL), ERR_OK);
    size_t n = 0;
    const char *text = json_text(root, &n);
    CHECK_UINT(n, sizeof(all));
    CHECK_MEM(text, all, n);
    CHECK_INT(text[n], 0);
    json_free(root);
    buf_deinit(&out);
}

TEST(integers_are_written_without_exponent_or_fraction)
{
    check_number(0, "0");
    check_number(-1, "-1");
    check_number(1e6, "1000000");
    check_number(1e15, "1000000000000000");
    check_number(9007199254740991, "9007199254740991");
    check_number(-9007199254740992, "-9007199254740992");
    check_number(9007199254740994, "9.007199254740994e15");
    check_number(-0.0, "-0.0");
    struct buf out = {0};
    json_write_int(&out, INT64_MIN);
    buf_char(&out, ' ');
    json_write_int(&out, INT64_MAX);
    CHECK_STR(out.data, "-9223372036854775808 9223372036854775807");
    buf_deinit(&out);
}

TEST(numbers_are_written_with_as_few_digits_as_they_need)
{
    check_number(0.1, "0.1");
    check_number(-0.5, "-0.5");
    check_number(0.1 + 0.2, "0.30000000000000004");
    check_number(1.0 / 3, "0.3333333333333333");
    check_number(2.0 / 3, "0.6666666666666666");
    check_number(1234.5678, "1234.5678");
    check_number(123456789012345.6, "123456789012345.6");
    check_number(0.00001, "0.00001");
    check_number(0.00001234, "0.00001234");
    check_number(0.000001234, "1.234e-6");
    check_number(1e-7, "1e-7");
    check_number(1e21, "1e21");
    check_number(-1.5e300, "-1.5e300");
    check_number(1.7976931348623157e308, "1.7976931348623157e308");
    check_number(5e-324, "5e-324");
    check_number(-1.2e-310, "-1.2e-310");
    check_number(2.2250738585072014e-308, "2.2250738585072014e-308");
}

TEST(numbers_that_json_lacks_are_written_as_null)
{
    check_number((double)NAN, "null");
    check_number((double)INFINITY, "null");
    check_number(-(double)INFINITY, "null");
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* That the double is written and read as the same bits. */
static void check_number_returns(struct buf *out, double number)
{
    buf_reset(out);
    json_write_number(out, number);
    struct json *root = parse(out->data);
    if (bits_of(json_number(root)) != bits_of(number)) {
        print_error("%.17g is written as %s\n", number, out->data);
        CHECK(false);
    }
    json_free(root);
}

TEST(random_doubles_survive_the_way_through_json)
{
    struct prng prng;
    prng_init(&prng, 31);
    struct buf out = {0};
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = prng_u64(&prng);
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (isfinite(value)) {
            check_number_returns(&out, value);
        }
        check_number_returns(&out, (double)prng_range(&prng, -1000000, 1000000) / 1000);
        check_number_returns(&out, (double)prng_range(&prng, INT64_MIN, INT64_MAX));
        check_number_returns(&out, ldexp(1, (int)prng_range(&prng, -1074, 1023)));
    }
    check_number_returns(&out, -0.0);
    buf_deinit(&out);
}

TEST(the_locale_does_not_matter_to_json)
{
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL && setlocale(LC_NUMERIC, "fr_FR.UTF-8") == NULL) {
        skip();
    }
    check_number(0.5, "0.5");
    check_reads("[0.5,1.5e300]", "[0.5,1.5e300]");
    setlocale(LC_NUMERIC, "C");
}

TEST(values_of_every_kind_are_read)
{
    check_reads("null", "null");
    check_reads("true", "true");
    check_reads("false", "false");
    check_reads("0", "0");
    check_reads("\"\"", "\"\"");
    check_reads("[]", "[]");
    check_reads("{}", "{}");
    check_reads(" \t\r\n[ \t\r\n] \t\r\n", "[]");
    check_reads(" { } ", "{}");
    check_reads("[null,[null],{\"a\":null}]", "[null,[null],{\"a\":null}]");
    check_reads("[ 1 , 2 , { \"a\" : [ ] } ]", "[1,2,{\"a\":[]}]");
    check_reads(sample, "{\"name\":\"a\xc3\xa9\\n\xf0\x9f\x9a\x80 \xc3\xa9\xf0\x9f\x9a\x80\",\"list\":[1,-2500,"
                        "18446744073709551615,[],{},[[true]]],\"deep\":{\"x\":{\"y\":null},\"\":false}}");
}

TEST(what_is_written_is_read_as_the_same)
{
    struct json *root = parse(sample);
    struct buf once = {0};
    write_tree(&once, root);
    check_reads(once.data, once.data);
    buf_deinit(&once);
    json_free(root);
}

TEST(members_keep_their_order_and_can_be_found)
{
    enum { MEMBERS = 1000 };
    struct buf out = {0};
    for (int i = 0; i < MEMBERS; i++) {
        buf_format(&out, "%s\"key%d\":%d", i == 0 ? "{" : ",", i * 7919 % MEMBERS, i);
    }
    buf_char(&out, '}');
    struct json *root = parse(out.data);
    CHECK_UINT(json_count(root), MEMBERS);
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    int64_t seen = 0;
    while (json_next(root, &cursor, &key, &value)) {
        char expected[32];
        snprintf(expected, sizeof(expected), "key%d", (int)seen * 7919 % MEMBERS);
        CHECK_STR(key, expected);
        CHECK(json_get(root, key) == value);
        int64_t number = -1;
        CHECK(json_int(value, &number));
        CHECK_INT(number, seen);
        seen++;
    }
    CHECK_INT(seen, MEMBERS);
    CHECK(!json_next(root, &cursor, &key, &value));
    CHECK(json_get(root, "key1000") == NULL);
    json_free(root);
    buf_deinit(&out);
}

TEST(elements_are_found_by_their_index)
{
    struct json *root = parse("[10, null, \"c\"]");
    CHECK_UINT(json_count(root), 3);
    CHECK(json_number(json_at(root, 0)) == 10);
    CHECK(json_at(root, 1) == NULL);
    CHECK_STR(json_text(json_at(root, 2), NULL), "c");
    CHECK(json_at(root, 3) == NULL);
    CHECK(json_at(root, SIZE_MAX) == NULL);
    json_free(root);
}

/* That nothing but what it is can be had from the node. */
static void check_is_only(const struct json *node, enum json_kind kind)
{
    size_t n = 77;
    size_t cursor = 0;
    int64_t integer = 77;
    uint64_t natural = 77;
    const char *key = "untouched";
    const struct json *value = node;
    CHECK_INT(json_kind_of(node), kind);
    CHECK((json_text(node, &n) != NULL) == (kind == JSON_TEXT));
    CHECK((n != 77) == (kind == JSON_TEXT));
    CHECK(json_bool(node) == (kind == JSON_BOOL));
    CHECK((json_number(node) != 0) == (kind == JSON_NUMBER));
    CHECK(json_is_int(node) == (kind == JSON_NUMBER));
    CHECK(json_int(node, &integer) == (kind == JSON_NUMBER));
    CHECK(json_uint(node, &natural) == (kind == JSON_NUMBER));
    CHECK((integer != 77) == (kind == JSON_NUMBER));
    CHECK((natural != 77) == (kind == JSON_NUMBER));
    CHECK_UINT(json_count(node), kind == JSON_ARRAY || kind == JSON_OBJECT ? 1 : 0);
    CHECK((json_at(node, 0) != NULL) == (kind == JSON_ARRAY));
    CHECK((json_get(node, "k") != NULL) == (kind == JSON_OBJECT));
    CHECK(json_next(node, &cursor, &key, &value) == (kind == JSON_OBJECT));
    CHECK_STR(key, kind == JSON_OBJECT ? "k" : "untouched");
}

TEST(a_node_of_another_kind_answers_with_nothing)
{
    struct json *root = parse("[null, true, 12, \"12\", [1], {\"k\": 1}]");
    for (size_t i = 0; i < json_count(root); i++) {
        check_is_only(json_at(root, i), (enum json_kind)i);
    }
    json_free(root);
    check_is_only(NULL, JSON_NULL);
    json_free(NULL);
}

TEST(a_chain_of_lookups_needs_no_checks)
{
    struct json *root = parse("{\"a\": [{\"b\": \"found\"}]}");
    CHECK_STR(json_text(json_get(json_at(json_get(root, "a"), 0), "b"), NULL), "found");
    CHECK(json_text(json_get(json_at(json_get(root, "x"), 0), "b"), NULL) == NULL);
    json_free(root);
}

struct integer_case {
    const char *text;
    bool is_int;
    bool fits_int;
    bool fits_uint;
    double number;
};

TEST(integers_are_exact_over_64_bits_and_doubles_beyond)
{
    static const struct integer_case cases[] = {
        {"0", true, true, true, 0},
        {"-0", true, true, true, 0},
        {"-1", true, true, false, -1},
        {"9007199254740993", true, true, true, 9007199254740992.0},
        {"9223372036854775807", true, true, true, 9223372036854775808.0},
        {"9223372036854775808", true, false, true, 9223372036854775808.0},
        {"18446744073709551615", true, false, true, 18446744073709551616.0},
        {"18446744073709551616", false, false, false, 18446744073709551616.0},
        {"99999999999999999999", false, false, false, 1e20},
        {"-9223372036854775807", true, true, false, -9223372036854775808.0},
        {"-9223372036854775808", true, true, false, -9223372036854775808.0},
        {"-9223372036854775809", false, false, false, -9223372036854775808.0},
        {"-18446744073709551616", false, false, false, -18446744073709551616.0},
        {"170141183460469231731687303715884105727", false, false, false, 0x1p127},
        {"1.0", false, false, false, 1},
        {"1e2", false, false, false, 100},
        {"-0.0", false, false, false, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct integer_case *c = &cases[i];
        struct json *root = parse(c->text);
        int64_t integer = 77;
        uint64_t natural = 77;
        char text[32];
        CHECK_INT(json_kind_of(root), JSON_NUMBER);
        CHECK(json_number(root) == c->number);
        CHECK(json_is_int(root) == c->is_int);
        CHECK(json_int(root, &integer) == c->fits_int);
        CHECK(json_uint(root, &natural) == c->fits_uint);
        snprintf(text, sizeof(text), "%lld", (long long)integer);
        CHECK_STR(text, !c->fits_int ? "77" : strcmp(c->text, "-0") == 0 ? "0" : c->text);
        snprintf(text, sizeof(text), "%llu", (unsigned long long)natural);
        CHECK_STR(text, !c->fits_uint ? "77" : strcmp(c->text, "-0") == 0 ? "0" : c->text);
        json_free(root);
    }
}

TEST(an_integer_of_very_many_digits_is_a_double_or_too_large)
{
    char digits[400];
    memset(digits, '9', sizeof(digits));
    struct json *root = NULL;
    CHECK_ERR(parse_bytes(digits, 300, &root, NULL), ERR_OK);
    CHECK(json_number(root) == 1e300);
    CHECK(!json_is_int(root));
    json_free(root);
    check_bytes_refused(digits, 400, "at byte 0: a malformed number, or one too large for a double");
}

TEST(malformed_numbers_are_refused)
{
    static const char *const texts[] = {"-",   "01",    "-01", "1.",  "1.e5",  "1e", "1e+", "1.5.5",
                                        "1-2", "1e5.5", "--1", "-.5", "1e400", "-a", "00"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        check_refused(texts[i], "at byte 0: a malformed number, or one too large for a double");
    }
    check_refused("0x10", "at byte 1: expected nothing after the value, found 'x'");
    check_refused(".5", "at byte 0: expected a value, found '.'");
    check_refused("[1, +1]", "at byte 4: expected a value, found '+'");
    check_refused("[1, -Infinity]", "at byte 4: a malformed number, or one too large for a double");
}

TEST(nan_and_infinity_are_read_only_on_request)
{
    static const char text[] = "[NaN, Infinity, -Infinity, -1]";
    check_refused(text, "at byte 1: expected a value, found 'N'");
    check_refused("Infinity", "at byte 0: expected a value, found 'I'");
    struct json *root = NULL;
    CHECK_ERR(json_parse_with_nan(text, strlen(text), &root, NULL), ERR_OK);
    CHECK(isnan(json_number(json_at(root, 0))));
    CHECK(json_number(json_at(root, 1)) == (double)INFINITY);
    CHECK(json_number(json_at(root, 2)) == -(double)INFINITY);
    CHECK(json_number(json_at(root, 3)) == -1);
    CHECK(!json_is_int(json_at(root, 0)));
    json_free(root);
    CHECK_ERR(json_parse_with_nan("nan", 3, &root, NULL), ERR_INVALID);
    CHECK_ERR(json_parse_with_nan("-NaN", 4, &root, NULL), ERR_INVALID);
    CHECK_ERR(json_parse_with_nan("-Infinit", 8, &root, NULL), ERR_INVALID);
}

TEST(the_message_says_where_and_what)
{
    check_refused("", "at byte 0: expected a value, but the text ends");
    check_refused("  ", "at byte 2: expected a value, but the text ends");
    check_refused("nul", "at byte 0: expected a value, found 'n'");
    check_refused("TRUE", "at byte 0: expected a value, found 'T'");
    check_refused("'a'", "at byte 0: expected a value, found '''");
    check_refused("/*x*/1", "at byte 0: expected a value, found '/'");
    check_refused("\v1", "at byte 0: expected a value, found the byte 0x0b");
    check_refused("\xef\xbb\xbf{}", "at byte 0: expected a value, found the byte 0xef");
    check_refused("[1,]", "at byte 3: expected a value, found ']'");
    check_refused("[,1]", "at byte 1: expected a value, found ','");
    check_refused("[1 2]", "at byte 3: expected a comma or ']', found '2'");
    check_refused("[1}", "at byte 2: expected a comma or ']', found '}'");
    check_refused("{\"a\":1]", "at byte 6: expected a comma or '}', found ']'");
    check_refused("{\"a\":1", "at byte 6: expected a comma or '}', but the text ends");
    check_refused("{a:1}", "at byte 1: expected a key in quotes, found 'a'");
    check_refused("{\"a\":1,}", "at byte 7: expected a key in quotes, found '}'");
    check_refused("{,}", "at byte 1: expected a key in quotes, found ','");
    check_refused("{\"a\" 1}", "at byte 5: expected a colon after the key, found '1'");
    check_refused("{\"a\":}", "at byte 5: expected a value, found '}'");
    check_refused("]", "at byte 0: expected a value, found ']'");
}

TEST(garbage_after_the_value_is_refused)
{
    check_refused("1 x", "at byte 2: expected nothing after the value, found 'x'");
    check_refused("{}{}", "at byte 2: expected nothing after the value, found '{'");
    check_refused("[]]", "at byte 2: expected nothing after the value, found ']'");
    check_refused("nullx", "at byte 4: expected nothing after the value, found 'x'");
    check_refused("\"a\",", "at byte 3: expected nothing after the value, found ','");
    check_bytes_refused("1\0", 2, "at byte 1: expected nothing after the value, found the byte 0x00");
    check_bytes_refused("[]\0", 3, "at byte 2: expected nothing after the value, found the byte 0x00");
}

TEST(a_key_may_not_occur_twice_in_one_object)
{
    check_refused("{\"a\": 1, \"b\": 2, \"a\": 1}", "at byte 17: this key is in the object already: \"a\"");
    check_refused("{\"a\": null, \"\\u0061\": null}", "at byte 12: this key is in the object already: \"a\"");
    check_refused("[{\"x\\n\": {}, \"x\\n\": {}}]", "at byte 13: this key is in the object already: \"x\\n\"");
    check_reads("{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]},\"A\":3}", "{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]},\"A\":3}");
}

TEST(a_key_may_not_contain_nul)
{
    check_refused("{\"a\\u0000b\": 1}", "at byte 1: a key must not contain \\u0000");
    check_reads("[\"a\\u0000b\"]", "[\"a\\u0000b\"]");
}

TEST(escapes_are_read)
{
    struct json *root = parse("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00E9\\u20ac\\uD83D\\uDE80\\udbff\\udfff\"");
    CHECK_STR(json_text(root, NULL), "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x80\xf4\x8f\xbf\xbf");
    json_free(root);
}

TEST(malformed_texts_are_refused)
{
    check_refused("\"abc", "at byte 4: expected a closing quote, but the text ends");
    check_refused("\"abc\\\"", "at byte 6: expected a closing quote, but the text ends");
    check_refused("\"abc\\", "at byte 5: expected one of \"\\/bfnrtu after the backslash, but the text ends");
    check_refused("\"\\x41\"", "at byte 2: expected one of \"\\/bfnrtu after the backslash, found 'x'");
    check_bytes_refused("\"\\\0\"", 4,
                        "at byte 2: expected one of \"\\/bfnrtu after the backslash, found the byte 0x00");
    check_refused("\"a\nb\"", "at byte 2: expected a control character to be escaped, found the byte 0x0a");
    check_bytes_refused("\"a\0b\"", 5, "at byte 2: expected a control character to be escaped, found the byte 0x00");
    check_refused("\"\\u12g4\"", "at byte 5: expected a hexadecimal digit, found 'g'");
    check_refused("\"\\u12", "at byte 5: expected a hexadecimal digit, but the text ends");
    check_refused("\"\\u+123\"", "at byte 3: expected a hexadecimal digit, found '+'");
}

TEST(lone_surrogates_are_refused)
{
    static const char first[] = "at byte 1: the first half of a surrogate pair without the second";
    static const char second[] = "at byte 1: the second half of a surrogate pair without the first";
    check_refused("\"\\ud800\"", first);
    check_refused("\"\\udbffx\"", first);
    check_refused("\"\\ud800\\n\"", first);
    check_refused("\"\\ud800\\u0041\"", first);
    check_refused("\"\\ud800\\ud800\"", first);
    check_refused("\"\\ud800\\ue000\"", first);
    check_refused("\"\\ud800", first);
    check_refused("\"\\udc00\\ud800\"", second);
    check_refused("\"\\udfff\"", second);
    check_refused("\"\\ud800\\u", "at byte 9: expected a hexadecimal digit, but the text ends");
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

/* All characters of 4096 in a row at a time, in every plane: as they are, and escaped. */
TEST(every_character_is_read_escaped_or_not)
{
    struct buf plain = {0};
    struct buf escaped = {0};
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c % 4096 == 0) {
            buf_reset(&plain);
            buf_reset(&escaped);
            buf_char(&escaped, '"');
        }
        if (c < 0xd800 || c > 0xdfff) {
            char bytes[4];
            buf_append(&plain, bytes, encode(c, bytes));
        }
        if (c >= 0x10000) {
            buf_format(&escaped, "\\u%04x\\u%04X", (unsigned)(0xd800 + ((c - 0x10000) >> 10)), 0xdc00 + (c & 0x3ff));
        } else if (c < 0xd800 || c > 0xdfff) {
            buf_format(&escaped, "\\u%04X", (unsigned)c);
        }
        if (c % 4096 != 4095) {
            continue;
        }
        buf_char(&escaped, '"');
        struct buf written = {0};
        json_write_bytes(&written, plain.data, plain.n);
        const struct buf *texts[] = {&escaped, &written};
        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
            struct json *root = NULL;
            CHECK_ERR(parse_bytes(texts[i]->data, texts[i]->n, &root, NULL), ERR_OK);
            size_t n = 0;
            const char *text = json_text(root, &n);
            CHECK_UINT(n, plain.n);
            CHECK_MEM(text, plain.data, n);
            json_free(root);
        }
        buf_deinit(&written);
    }
    buf_deinit(&plain);
    buf_deinit(&escaped);
}

TEST(invalid_utf8_is_refused)
{
    check_refused("\"\xff\"", "at byte 1: not UTF-8");
    check_refused("[\"a\", \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x80\xc0\x80\"]", "at byte 16: not UTF-8");
    check_refused("\"\xed\xa0\x80\"", "at byte 1: not UTF-8");
    check_refused("\"\xf4\x90\x80\x80\"", "at byte 1: not UTF-8");
    check_refused("\"\xe2\x82", "at byte 1: not UTF-8");
    check_refused("\xc3", "at byte 0: not UTF-8");
    check_refused("{\"k\x80\": 1}", "at byte 3: not UTF-8");
}

/* `depth` containers inside each other, made of `opening` and `closing`. */
static void nest(struct buf *out, size_t depth, const char *opening, const char *closing)
{
    buf_reset(out);
    for (size_t i = 0; i < depth; i++) {
        buf_text(out, opening);
    }
    buf_text(out, "1");
    for (size_t i = 0; i < depth; i++) {
        buf_text(out, closing);
    }
}

TEST(nesting_is_limited)
{
    struct buf text = {0};
    char message[64];
    nest(&text, LIMIT_JSON_DEPTH, "[", "]");
    check_reads(text.data, text.data);
    nest(&text, LIMIT_JSON_DEPTH, "{\"a\":", "}");
    check_reads(text.data, text.data);
    nest(&text, LIMIT_JSON_DEPTH / 2, "{\"a\":[0,", "]}");
    check_reads(text.data, text.data);

    nest(&text, LIMIT_JSON_DEPTH + 1, "[", "]");
    snprintf(message, sizeof(message), "at byte %d: nested deeper than %d", LIMIT_JSON_DEPTH, LIMIT_JSON_DEPTH);
    check_refused(text.data, message);
    nest(&text, LIMIT_JSON_DEPTH + 1, "{\"a\":", "}");
    snprintf(message, sizeof(message), "at byte %d: nested deeper than %d", LIMIT_JSON_DEPTH * 5, LIMIT_JSON_DEPTH);
    check_refused(text.data, message);
    nest(&text, 1000000, "[", "");
    snprintf(message, sizeof(message), "at byte %d: nested deeper than %d", LIMIT_JSON_DEPTH, LIMIT_JSON_DEPTH);
    check_refused(text.data, message);
    buf_deinit(&text);
}

TEST(truncated_text_is_refused_wherever_it_ends)
{
    for (size_t n = 0; n < strlen(sample); n++) {
        struct json *root = NULL;
        struct error e = {0};
        CHECK_ERR(parse_bytes(sample, n, &root, &e), ERR_INVALID);
        CHECK(e.message[0] != '\0');
    }
}

/* Overwrites, drops, repeats or inserts a few bytes, mostly those that mean something. */
static void mutate(struct prng *prng, struct buf *text)
{
    static const char bytes[] = "{}[],:\"\\u0d8c19-+.eE \ntrufalsn\xc3\xa9\xf0\x00";
    for (uint64_t changes = 1 + prng_below(prng, 4); changes > 0; changes--) {
        struct buf next = {0};
        size_t at = prng_below(prng, text->n + 1);
        size_t dropped = prng_below(prng, text->n - at + 1);
        dropped = dropped > 8 && !prng_permille(prng, 50) ? dropped % 3 : dropped;
        buf_append(&next, text->data, at);
        for (uint64_t more = prng_below(prng, 4); more > 0; more--) {
            bool is_any = prng_permille(prng, 200);
            buf_char(&next, is_any ? (char)prng_u64(prng) : bytes[prng_below(prng, sizeof(bytes))]);
        }
        bool is_repeated = prng_permille(prng, 100);
        buf_append(&next, text->data + (is_repeated ? 0 : at + dropped), text->n - (is_repeated ? 0 : at + dropped));
        buf_deinit(text);
        *text = next;
    }
}

TEST(random_mutations_are_refused_or_read_as_what_they_say)
{
    struct prng prng;
    prng_init(&prng, 32);
    int valid = 0;
    for (int i = 0; i < 30000; i++) {
        struct buf text = {0};
        buf_text(&text, sample);
        mutate(&prng, &text);
        struct json *root = NULL;
        struct error e = {0};
        if (parse_bytes(text.data, text.n, &root, &e) == ERR_OK) {
            struct buf out = {0};
            write_tree(&out, root);
            check_reads(out.data, out.data);
            buf_deinit(&out);
            json_free(root);
            valid++;
        } else {
            CHECK_STR(err_name(e.code), "invalid_argument");
        }
        buf_deinit(&text);
    }
    CHECK(valid > 1000);
}

TEST(a_long_key_that_occurs_twice_is_cut_in_the_message)
{
    struct buf text = {0};
    buf_format(&text, "{\"%01000d\": 1, \"%01000d\": 2}", 0, 0);
    struct json *root = NULL;
    struct error e = {0};
    CHECK_ERR(parse_bytes(text.data, text.n, &root, &e), ERR_INVALID);
    CHECK(strstr(e.message, "at byte 1008: this key is in the object already: \"000") == e.message);
    buf_deinit(&text);
}

TEST(a_member_that_is_null_is_there_all_the_same)
{
    struct json *root = parse("{\"a\": null, \"b\": [1]}");
    CHECK(json_has(root, "a"));
    CHECK(json_has(root, "b"));
    CHECK(!json_has(root, "c"));
    CHECK(!json_has(json_get(root, "b"), "a"));
    CHECK(!json_has(NULL, "a"));
    json_free(root);
}
