#include "../test.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/prng.h"

TEST(a_zeroed_buffer_is_empty_and_can_be_reset_and_deinitialised)
{
    struct buf buf = {0};
    buf_reset(&buf);
    CHECK(buf.data == NULL);
    CHECK_UINT(buf.n, 0);
    buf_deinit(&buf);
    buf_deinit(&buf);
    CHECK(buf.data == NULL);
}

TEST(pieces_are_appended_in_order)
{
    struct buf buf = {0};
    buf_append(&buf, "abc", 2);
    buf_text(&buf, "cd");
    buf_char(&buf, 'e');
    buf_format(&buf, "%d-%s", 12, "x");
    CHECK_STR(buf.data, "abcde12-x");
    CHECK_UINT(buf.n, 9);
    buf_deinit(&buf);
}

TEST(even_an_append_of_nothing_yields_a_string)
{
    struct buf appended = {0};
    struct buf texted = {0};
    struct buf formatted = {0};
    buf_append(&appended, NULL, 0);
    buf_text(&texted, "");
    buf_format(&formatted, "%s", "");
    CHECK_STR(appended.data, "");
    CHECK_STR(texted.data, "");
    CHECK_STR(formatted.data, "");
    buf_deinit(&appended);
    buf_deinit(&texted);
    buf_deinit(&formatted);
}

TEST(bytes_may_be_nul)
{
    struct buf buf = {0};
    buf_append(&buf, "a\0b", 3);
    buf_char(&buf, '\0');
    CHECK_UINT(buf.n, 4);
    CHECK_MEM(buf.data, "a\0b\0", 5);
    buf_deinit(&buf);
}

TEST(a_reset_keeps_the_memory)
{
    struct buf buf = {0};
    buf_format(&buf, "%1000d", 1);
    const char *data = buf.data;
    buf_reset(&buf);
    CHECK_UINT(buf.n, 0);
    CHECK_STR(buf.data, "");
    buf_format(&buf, "%1000d", 2);
    CHECK(buf.data == data);
    buf_deinit(&buf);
}

/* Formats a text of every length around the sizes at which memory grows. */
TEST(formatted_text_of_any_length_fits)
{
    for (size_t before = 0; before < 130; before++) {
        for (size_t length = 0; length < 140; length++) {
            struct buf buf = {0};
            buf_format(&buf, "%*s", (int)before, "");
            buf_format(&buf, "%*s", (int)length, "");
            if (buf.n != before + length || strlen(buf.data) != buf.n) {
                CHECK_UINT(buf.n, before + length);
            }
            buf_deinit(&buf);
        }
    }
}

TEST(random_appends_add_up)
{
    enum { TOTAL = 100000 };
    struct prng prng;
    prng_init(&prng, 21);
    char *model = mem_alloc(TOTAL);
    for (size_t i = 0; i < TOTAL; i++) {
        model[i] = (char)prng_u64(&prng);
    }
    struct buf buf = {0};
    while (buf.n < TOTAL) {
        size_t n = prng_below(&prng, 300);
        if (n > TOTAL - buf.n) {
            n = TOTAL - buf.n;
        }
        if (n == 1) {
            buf_char(&buf, model[buf.n]);
        } else {
            buf_append(&buf, model + buf.n, n);
        }
        CHECK(buf.n < buf.cap);
        CHECK_INT(buf.data[buf.n], 0);
    }
    CHECK_MEM(buf.data, model, TOTAL);
    CHECK(buf.cap <= 4 * TOTAL);
    buf_deinit(&buf);
    mem_free(model);
}

TEST(a_size_beyond_all_memory_aborts)
{
    struct buf buf = {0};
    buf_char(&buf, 'x');
    CHECK_ABORTS(buf_append(&buf, "", SIZE_MAX));
    CHECK_ABORTS(buf_append(&buf, "", SIZE_MAX - 1));
    buf_deinit(&buf);
}
