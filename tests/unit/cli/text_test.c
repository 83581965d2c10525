#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/pretty.h"
#include "cli/text.h"

static const char *taken(struct buf *buf)
{
    static char text[1024];
    snprintf(text, sizeof text, "%s", buf->data == NULL ? "" : buf->data);
    buf_deinit(buf);
    return text;
}

static const char *duration(int64_t ms)
{
    struct buf out = {0};
    text_duration(&out, ms);
    return taken(&out);
}

static const char *size(uint64_t bytes)
{
    struct buf out = {0};
    text_size(&out, bytes);
    return taken(&out);
}

TEST(durations_read_as_people_say_them)
{
    CHECK_STR(duration(-5), "0 ms");
    CHECK_STR(duration(0), "0 ms");
    CHECK_STR(duration(999), "999 ms");
    CHECK_STR(duration(1000), "1.0 s");
    CHECK_STR(duration(59999), "59.9 s");
    CHECK_STR(duration(60000), "1 min 00 s");
    CHECK_STR(duration(3599999), "59 min 59 s");
    CHECK_STR(duration(3600000), "1 h 00 min");
    CHECK_STR(duration(90061000), "1 d 1 h");
}

TEST(sizes_keep_one_digit_after_the_point)
{
    CHECK_STR(size(0), "0 B");
    CHECK_STR(size(999), "999 B");
    CHECK_STR(size(1500), "1.5 KB");
    CHECK_STR(size(999949), "999.9 KB");
    CHECK_STR(size(999999), "1.0 MB");
    CHECK_STR(size(2000000000), "2.0 GB");
    CHECK_STR(size(UINT64_MAX), "18.4 EB");
}

TEST(counts_have_commas_and_times_are_utc)
{
    struct buf out = {0};
    text_count(&out, 0);
    buf_char(&out, ' ');
    text_count(&out, 999);
    buf_char(&out, ' ');
    text_count(&out, 1234567);
    CHECK_STR(taken(&out), "0 999 1,234,567");
    text_time(&out, 0);
    buf_char(&out, ' ');
    text_time(&out, UINT64_C(1794744000000));
    buf_char(&out, ' ');
    text_time(&out, UINT64_MAX);
    CHECK_STR(taken(&out), "- 2026-11-15 12:00:00Z -");
}

static const char *clean(const char *text)
{
    struct buf out = {0};
    text_clean(&out, text);
    return taken(&out);
}

TEST(foreign_text_cannot_talk_to_the_terminal)
{
    CHECK_STR(clean("plain \xc3\xa9 \xf0\x9f\x9a\x80"), "plain \xc3\xa9 \xf0\x9f\x9a\x80");
    CHECK_STR(clean("\x1b[2Jx"), "\\x1b[2Jx");
    CHECK_STR(clean("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
    CHECK_STR(clean("\xc2\x9b"), "\\x9b"); /* the one-character form of ESC [ */
    CHECK_STR(clean("\xe2\x80\xae"
                    "abc"),
              "?abc"); /* turns the direction of writing */
    CHECK_STR(clean("\xff\xc3"), "??");
    CHECK_STR(clean("\xf0\x9f\x9a"), "???");
}

static const char *clip(const char *text, size_t width)
{
    struct buf out = {0};
    text_clip(&out, text, width);
    return taken(&out);
}

TEST(width_counts_columns_and_not_bytes)
{
    CHECK_UINT(text_width(""), 0);
    CHECK_UINT(text_width("abc"), 3);
    CHECK_UINT(text_width("\xc3\xa9"), 1);
    CHECK_UINT(text_width("e\xcc\x81"), 1);    /* e and a combining accent */
    CHECK_UINT(text_width("\xe6\xbc\xa2"), 2); /* a wide character */
    CHECK_UINT(text_width("\xf0\x9f\x9a\x80"), 2);
    CHECK_UINT(text_width("\xff"), 1);
    CHECK_STR(clip("abcdef", 6), "abcdef");
    CHECK_STR(clip("abcdef", 4), "abc\xe2\x80\xa6");
    CHECK_STR(clip("\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2", 4), "\xe6\xbc\xa2\xe2\x80\xa6");
    CHECK_STR(clip("abc", 1), "\xe2\x80\xa6");
    CHECK_STR(clip("abc", 0), "");
}

static const char *printed(const struct table *table, struct table_style style)
{
    static char text[2048];
    FILE *file = tmpfile();
    CHECK(file != NULL);
    table_print(table, file, style);
    rewind(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    fclose(file);
    return text;
}

TEST(columns_of_a_table_are_as_wide_as_their_widest_cell)
{
    static const char *const headings[] = {"NAME", "N", "TEXT"};
    struct table table;
    table_init(&table, headings, 3, 1U << 1);
    table_cell(&table, "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2");
    table_format(&table, "%d", 7);
    table_cell(&table, "x");
    table_cell(&table, "b");
    table_cell(&table, "1234");
    table_cell(&table, "");

    CHECK_STR(printed(&table, (struct table_style){0}), "NAME       N  TEXT\n"
                                                        "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2     7  x\n"
                                                        "b       1234  -\n");
    table_deinit(&table);
}

TEST(a_table_without_rows_is_its_headings)
{
    static const char *const headings[] = {"A", "B"};
    struct table table;
    table_init(&table, headings, 2, 0);

    CHECK_STR(printed(&table, (struct table_style){.bold_headings = true}), "\033[1mA  B\033[0m\n");
    table_deinit(&table);
}

TEST(the_last_column_is_cut_to_the_terminal)
{
    static const char *const headings[] = {"A", "B"};
    struct table table;
    table_init(&table, headings, 2, 0);
    table_cell(&table, "a");
    table_cell(&table, "a long text that does not fit\nat all");

    CHECK_STR(printed(&table, (struct table_style){.width = 14}), "A  B\na  a long tex\xe2\x80\xa6\n");
    table_deinit(&table);
}

static const char *laid_out(const char *json, bool indents, size_t step)
{
    struct pretty pretty = {.indents = indents};
    struct buf out = {0};
    size_t n = strlen(json);
    buf_append(&out, NULL, 0);
    for (size_t at = 0; at < n; at += step) {
        pretty_feed(&pretty, json + at, n - at < step ? n - at : step, &out);
    }
    return taken(&out);
}

TEST(json_is_laid_out_the_same_however_it_arrives)
{
    static const char json[] = "{\"a\":[1,{\"b\":null},[],{ }],\"t\":\"x{[,:\\\"}\\\\\",\"e\":{}}";
    static const char people[] = "{\n"
                                 "  \"a\": [\n"
                                 "    1,\n"
                                 "    {\n"
                                 "      \"b\": null\n"
                                 "    },\n"
                                 "    [],\n"
                                 "    {}\n"
                                 "  ],\n"
                                 "  \"t\": \"x{[,:\\\"}\\\\\",\n"
                                 "  \"e\": {}\n"
                                 "}";
    for (size_t step = 1; step < sizeof json; step++) {
        CHECK_STR(laid_out(json, true, step), people);
        CHECK_STR(laid_out(people, false, step), "{\"a\":[1,{\"b\":null},[],{}],\"t\":\"x{[,:\\\"}\\\\\",\"e\":{}}");
    }
    CHECK_STR(laid_out("]]}", true, 1), "\n]\n]\n}"); /* nonsense does no harm */
}
