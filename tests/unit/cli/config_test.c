#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/prng.h"
#include "cli/config.h"

static enum err note(void *context, const struct config_line *line, struct error *e)
{
    struct buf *out = context;
    if (line->key != NULL && strcmp(line->key, "bad") == 0) {
        error_hint(e, "mend it");
        return error_set(e, ERR_INVALID, "this one is bad");
    }
    if (line->key == NULL) {
        buf_format(out, "%u [%s]\n", line->number, line->section);
    } else {
        buf_format(out, "%u %s.%s=<%s>\n", line->number, line->section, line->key, line->value);
    }
    return ERR_OK;
}

static enum err parse(const char *text, size_t n, struct buf *out, struct error *e)
{
    buf_reset(out);
    buf_append(out, NULL, 0);
    return config_parse("f.ini", text, n, note, out, e);
}

static void check_refused(const char *text, size_t n, const char *message)
{
    struct buf out = {0};
    struct error e = {0};
    CHECK_ERR(parse(text, n, &out, &e), ERR_INVALID);
    CHECK_STR(e.message, message);
    buf_deinit(&out);
}

TEST(sections_keys_and_values_are_read_with_their_lines)
{
    static const char text[] = "\xef\xbb\xbf# a comment\n"
                               "server = a:1,b:2\r\n"
                               "\n"
                               " [ worker ] \n"
                               "; another\n"
                               "slots=8\n"
                               "\tlabel = \"  two words \" \n"
                               "label = x = y # not a comment\n"
                               "id =\n"
                               "[run]\n"
                               "quiet = true";
    struct buf out = {0};

    CHECK_ERR(parse(text, strlen(text), &out, NULL), ERR_OK);
    CHECK_STR(out.data, "2 .server=<a:1,b:2>\n"
                        "4 [worker]\n"
                        "6 worker.slots=<8>\n"
                        "7 worker.label=<  two words >\n"
                        "8 worker.label=<x = y # not a comment>\n"
                        "9 worker.id=<>\n"
                        "10 [run]\n"
                        "11 run.quiet=<true>\n");
    buf_deinit(&out);
}

TEST(errors_name_the_file_and_the_line)
{
    check_refused("a = 1\nwhat\n", 11, "f.ini:2: expected 'key = value' or '[section]'");
    check_refused("[worker\n", 8, "f.ini:1: a section is written as [verb]");
    check_refused("[]\n", 3, "f.ini:1: '' is not the name of a verb");
    check_refused("[Work er]\n", 10, "f.ini:1: 'Work er' is not the name of a verb");
    check_refused("\n\n= 3\n", 6, "f.ini:3: '' is not the name of a flag");
    check_refused("--slots = 3\n\n", 12, "f.ini:1: '--slots' is not the name of a flag");
}

TEST(an_unclosed_quote_is_refused)
{
    check_refused("a = \"x\n", 7, "f.ini:1: the quotes of the value are not closed");
    check_refused("a = \"\n", 6, "f.ini:1: the quotes of the value are not closed");
}

TEST(the_error_of_the_callback_gets_the_place_and_keeps_its_hint)
{
    struct buf out = {0};
    struct error e = {0};

    CHECK_ERR(parse("a = 1\nbad = 2\nc = 3\n", 20, &out, &e), ERR_INVALID);
    CHECK_STR(e.message, "f.ini:2: this one is bad");
    CHECK_STR(out.data, "1 .a=<1>\n");
    buf_deinit(&out);
}

TEST(bytes_that_are_no_text_are_refused)
{
    check_refused("a = \xff\n", 6, "f.ini:1: the line is not UTF-8");
    check_refused("a = \x01\n", 6, "f.ini:1: the line has a control character");
    check_refused("a = b\0c\n", 8, "f.ini:1: the line has a control character");
    check_refused("a = b\rc\n", 8, "f.ini:1: the line has a control character");
    check_refused("a = b\x7f\n", 7, "f.ini:1: the line has a control character");
}

TEST(a_file_that_is_too_long_is_refused_before_it_is_read)
{
    size_t n = CONFIG_BYTES_MAX + 1;
    char *text = mem_calloc(n, 1);
    struct buf out = {0};
    memset(text, '\n', n);

    CHECK_ERR(parse(text, n, &out, NULL), ERR_INVALID);
    CHECK_ERR(parse(text, n - 1, &out, NULL), ERR_OK);

    memset(text, 'a', n);
    text[0] = 'k';
    text[1] = '=';
    CHECK_ERR(parse(text, n - 1, &out, NULL), ERR_OK); /* one very long line */
    memset(text, 'a', n);
    text[n - 3] = '=';
    CHECK_ERR(parse(text, n - 1, &out, NULL), ERR_INVALID); /* one very long key */
    buf_deinit(&out);
    mem_free(text);
}

TEST(random_bytes_and_damaged_files_never_do_harm)
{
    static const char seed_text[] = "a = 1\n[run]\nquiet = \"yes\"\r\n; x\nparam = k=v\n";
    static const char letters[] = "=[]\"\n\r \t;#ab\xc3\xa9\x00\xff";
    struct prng prng;
    struct buf out = {0};
    prng_init(&prng, 7);
    for (int round = 0; round < 20000; round++) {
        char text[64];
        size_t n = (size_t)(prng_u64(&prng) % sizeof text);
        for (size_t i = 0; i < n; i++) {
            uint64_t bits = prng_u64(&prng);
            text[i] =
                (bits & 1) != 0 ? letters[(bits >> 8) % (sizeof letters - 1)] : seed_text[i % (sizeof seed_text - 1)];
        }
        char *exact = mem_copy(text, n); /* so that a read beyond the end is seen */
        (void)!parse(exact, n, &out, &(struct error){0});
        mem_free(exact);
    }
    buf_deinit(&out);
}
