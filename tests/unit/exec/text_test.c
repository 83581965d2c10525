#include "../test.h"

#include <string.h>

#include "exec/exec_internal.h"

static void check_repaired(const char *bytes, size_t n, const char *expected)
{
    struct buf buf = {0};
    exec__append_utf8(&buf, bytes, n);
    CHECK_STR(buf.data, expected);
    buf_deinit(&buf);
}

TEST(bytes_that_are_no_utf8_are_replaced_one_by_one)
{
    check_repaired("plain", 5, "plain");
    check_repaired("", 0, "");
    check_repaired(NULL, 0, "");
    check_repaired("a\xff"
                   "b",
                   3,
                   "a\xef\xbf\xbd"
                   "b");
    check_repaired("\xc3\xa9\xff", 3, "\xc3\xa9\xef\xbf\xbd");
    check_repaired("\xe2\x82", 2, "\xef\xbf\xbd\xef\xbf\xbd");
    check_repaired("\xff\xff", 2, "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(a_repaired_text_is_json)
{
    struct buf buf = {0};
    exec__write_text(&buf, "\"\xff\n\0", 4);
    CHECK_STR(buf.data, "\"\\\"\xef\xbf\xbd\\n\\u0000\"");
    buf_deinit(&buf);
}

TEST(a_tree_is_written_as_it_was_read)
{
    static const char text[] =
        "{\"a\":[1,-2,18446744073709551615,1.5,true,false,null],\"b\":{},\"c\":[],\"d\":\"x\\\"\\u0000\","
        "\"e\":{\"f\":{\"g\":null}}}";
    struct json *root = NULL;
    CHECK_ERR(json_parse(text, strlen(text), &root, NULL), ERR_OK);
    struct buf buf = {0};
    exec__write_tree(&buf, root);
    CHECK_STR(buf.data, text);
    buf_deinit(&buf);
    json_free(root);
}

TEST(json_is_found_without_the_space_around_it)
{
    struct exec_span value = {0};
    CHECK(exec__is_json(" \n{\"a\": 1}\r\n", 12, &value));
    CHECK_UINT(value.n, 8);
    CHECK_MEM(value.data, "{\"a\": 1}", 8);
    CHECK(exec__is_json("42\n", 3, &value));
    CHECK(exec__is_json("null", 4, &value));
}

TEST(what_is_no_json_is_not_taken_for_it)
{
    struct exec_span value = {0};
    CHECK(!exec__is_json("", 0, &value));
    CHECK(!exec__is_json(NULL, 0, &value));
    CHECK(!exec__is_json(" \n", 2, &value));
    CHECK(!exec__is_json("hello", 5, &value));
    CHECK(!exec__is_json("1 2", 3, &value));
    CHECK(!exec__is_json("{\"a\":1,\"a\":2}", 13, &value));
}

/* `depth` arrays around a text that has brackets, quotes and backslashes in it. */
static bool is_json_at(size_t depth)
{
    struct buf buf = {0};
    for (size_t i = 0; i < depth; i++) {
        buf_char(&buf, '[');
    }
    buf_text(&buf, "\"[[[[ \\\" [[[[ \\\\\"");
    for (size_t i = 0; i < depth; i++) {
        buf_char(&buf, ']');
    }
    struct exec_span value;
    bool is_json = exec__is_json(buf.data, buf.n, &value);
    buf_deinit(&buf);
    return is_json;
}

TEST(json_that_is_too_deep_to_be_passed_on_is_left_as_text)
{
    CHECK(is_json_at(1));
    CHECK(is_json_at(EXEC_JSON_DEPTH_MAX));
    CHECK(!is_json_at(EXEC_JSON_DEPTH_MAX + 1));
    CHECK(!is_json_at(LIMIT_JSON_DEPTH + 1));
}

TEST(a_member_that_is_null_is_found)
{
    struct json *root = NULL;
    CHECK_ERR(json_parse("{\"a\":null,\"b\":1}", 16, &root, NULL), ERR_OK);
    const struct json *value = root;
    CHECK(exec__find(root, "a", &value));
    CHECK(value == NULL);
    CHECK(exec__find(root, "b", &value));
    CHECK(!exec__find(root, "c", &value));
    json_free(root);
}
