#include "../test.h"

#include <string.h>

#include "cli/suggest.h"
#include "cli/value.h"

static bool number_is(const char *text, int64_t expected)
{
    int64_t value = -12345;
    return value_number(text, (struct value_range){-100, 1000000}, &value, NULL) == ERR_OK && value == expected;
}

static bool number_is_refused(const char *text)
{
    int64_t value = 7;
    struct error e = {0};
    bool refused = value_number(text, (struct value_range){INT64_MIN, INT64_MAX}, &value, &e) == ERR_INVALID;
    return refused && value == 7 && e.message[0] != '\0';
}

TEST(a_number_is_digits_from_the_first_to_the_last_character)
{
    CHECK(number_is("0", 0));
    CHECK(number_is("42", 42));
    CHECK(number_is("-7", -7));
    CHECK(number_is("0042", 42));
    static const char *const bad[] = {
        "", " 1", "1 ", "+1", "1.0", "0x10", "1e3", "--1", "-", "12a", "9223372036854775808"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK(number_is_refused(bad[i]));
    }
}

TEST(a_number_out_of_range_is_refused_with_the_range)
{
    int64_t value = 0;
    struct error e = {0};

    CHECK_ERR(value_number("11", (struct value_range){1, 10}, &value, &e), ERR_INVALID);
    CHECK_STR(e.message, "11 is out of range: from 1 to 10");
    CHECK_ERR(value_number("10", (struct value_range){1, 10}, &value, &e), ERR_OK);
    CHECK_INT(value, 10);
}

static int64_t duration(const char *text)
{
    int64_t ms = -1;
    return value_duration_ms(text, &ms, NULL) == ERR_OK ? ms : -1;
}

TEST(a_duration_needs_a_unit_unless_it_is_zero)
{
    CHECK_INT(duration("0"), 0);
    CHECK_INT(duration("250ms"), 250);
    CHECK_INT(duration("60s"), 60000);
    CHECK_INT(duration("1.5s"), 1500);
    CHECK_INT(duration("5m"), 300000);
    CHECK_INT(duration("5min"), 300000);
    CHECK_INT(duration("2h"), 7200000);
    CHECK_INT(duration("7d"), 604800000);
    static const char *const bad[] = {"",
                                      "60",
                                      "s",
                                      "60 s",
                                      "-1s",
                                      "1s ",
                                      "1.s",
                                      ".5s",
                                      "1..5s",
                                      "1S",
                                      "1sec",
                                      "1e3s",
                                      "nans",
                                      "99999999999999999d",
                                      "1.0000000001s"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_INT(duration(bad[i]), -1);
    }
}

static int64_t size(const char *text)
{
    int64_t bytes = -1;
    return value_bytes(text, &bytes, NULL) == ERR_OK ? bytes : -1;
}

TEST(a_size_counts_in_thousands_or_with_an_i_in_1024)
{
    CHECK_INT(size("4096"), 4096);
    CHECK_INT(size("0"), 0);
    CHECK_INT(size("64KB"), 64000);
    CHECK_INT(size("64KiB"), 65536);
    CHECK_INT(size("2GB"), 2000000000);
    CHECK_INT(size("2GiB"), INT64_C(2147483648));
    CHECK_INT(size("1.5MB"), 1500000);
    static const char *const bad[] = {"", "GB", "2 GB", "2gb", "2G", "-1", "1.5.5MB", "99999999999TB", "2GBB"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_INT(size(bad[i]), -1);
    }
}

TEST(an_address_has_a_host_and_a_port)
{
    static const char *const good[] = {"127.0.0.1:7400", "localhost:0", "[::1]:7400", "db.example.org:65535",
                                       "a-b_c:1"};
    static const char *const bad[] = {"",        ":1",     "host",   "host:", "host:65536", "host:-1",     "::1:7400",
                                      "[::1]",   "[]:1",   "[::1:1", "a b:1", "a/b:1",      "user@host:1", "a,b:1",
                                      "host:1x", "x\x01:1"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        CHECK_ERR(value_address(good[i], NULL), ERR_OK);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_ERR(value_address(bad[i], NULL), ERR_INVALID);
    }
}

TEST(only_addresses_of_this_machine_are_loopback)
{
    CHECK(address_is_loopback("127.0.0.1:7400"));
    CHECK(address_is_loopback("127.8.9.10:0"));
    CHECK(address_is_loopback("localhost:1"));
    CHECK(address_is_loopback("LOCALHOST:1"));
    CHECK(address_is_loopback("[::1]:1"));
    static const char *const others[] = {"0.0.0.0:1",        "[::]:1",      "10.0.0.1:1", "127.example.org:1",
                                         "localhost.evil:1", "128.0.0.1:1", "127.0.0.1",  "1270.0.0.1:1"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        CHECK(!address_is_loopback(others[i]));
    }
}

TEST(listening_for_others_needs_encryption_or_an_explicit_wish)
{
    struct listen_rule rule = {.address = "0.0.0.0:7400", .can_tls = true};
    struct error e = {0};

    CHECK_ERR(address_check_listen(&rule, &e), ERR_INVALID);
    CHECK(strstr(e.hint, "--tls-cert") != NULL);
    rule.can_tls = false;
    CHECK_ERR(address_check_listen(&rule, &e), ERR_INVALID);
    CHECK(strstr(e.hint, "--tls-cert") == NULL);
    rule.is_insecure = true;
    CHECK_ERR(address_check_listen(&rule, NULL), ERR_OK);
    rule = (struct listen_rule){.address = "0.0.0.0:7400", .has_tls = true};
    CHECK_ERR(address_check_listen(&rule, NULL), ERR_OK);
    rule = (struct listen_rule){.address = "127.0.0.1:7400"};
    CHECK_ERR(address_check_listen(&rule, NULL), ERR_OK);
}

TEST(who_lets_others_run_commands_must_know_them)
{
    struct listen_rule rule = {.address = "0.0.0.0:7400", .can_tls = true, .has_tls = true, .needs_tokens = true};
    struct error e = {0};

    CHECK_ERR(address_check_listen(&rule, &e), ERR_INVALID);
    CHECK(strstr(e.hint, "--auth-tokens") != NULL);
    rule.has_tokens = true;
    CHECK_ERR(address_check_listen(&rule, NULL), ERR_OK);
    rule.has_tls = false; /* a token in plain text is everybody's */
    CHECK_ERR(address_check_listen(&rule, NULL), ERR_INVALID);
    rule = (struct listen_rule){.address = "127.0.0.1:7400", .needs_tokens = true};
    CHECK_ERR(address_check_listen(&rule, NULL), ERR_OK);
}

TEST(a_pair_has_a_name_and_may_have_an_empty_value)
{
    size_t n = 0;

    CHECK_ERR(value_pair("a=b=c", &n, NULL), ERR_OK);
    CHECK_UINT(n, 1);
    CHECK_ERR(value_pair("name=", &n, NULL), ERR_OK);
    CHECK_UINT(n, 4);
    CHECK_ERR(value_pair("=b", &n, NULL), ERR_INVALID);
    CHECK_ERR(value_pair("ab", &n, NULL), ERR_INVALID);
    CHECK_UINT(n, 4);
}

TEST(a_choice_is_one_of_the_words_and_no_part_of_one)
{
    CHECK_ERR(value_choice("auto", "auto|leader", NULL), ERR_OK);
    CHECK_ERR(value_choice("leader", "auto|leader", NULL), ERR_OK);
    CHECK_ERR(value_choice("lead", "auto|leader", NULL), ERR_INVALID);
    CHECK_ERR(value_choice("auto|leader", "auto|leader", NULL), ERR_INVALID);
    CHECK_ERR(value_choice("", "auto|leader", NULL), ERR_INVALID);
}

TEST(parts_of_a_list_are_found_by_their_number)
{
    char out[8];

    CHECK(value_list_at("a,bc,", 0, out, sizeof out));
    CHECK_STR(out, "a");
    CHECK(value_list_at("a,bc,", 1, out, sizeof out));
    CHECK_STR(out, "bc");
    CHECK(value_list_at("a,bc,", 2, out, sizeof out));
    CHECK_STR(out, "");
    CHECK(!value_list_at("a,bc,", 3, out, sizeof out));
    CHECK(!value_list_at("12345678", 0, out, sizeof out));
}

static const char *nearest(const char *wanted)
{
    static const char *const words[] = {"jobs", "job", "run", "results", "completion", "leader"};
    struct suggestion near = {.wanted = wanted};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        suggestion_try(&near, words[i]);
    }
    return near.best;
}

TEST(the_nearest_word_is_suggested_and_nothing_that_is_far)
{
    CHECK_STR(nearest("jbos"), "jobs");
    CHECK_STR(nearest("rnu"), "run");
    CHECK_STR(nearest("result"), "results");
    CHECK_STR(nearest("comp"), "completion");
    CHECK_STR(nearest("laeder"), "leader");
    CHECK_STR(nearest("x"), NULL);
    CHECK_STR(nearest(""), NULL);
    CHECK_STR(nearest("elephant"), NULL);
    CHECK_STR(nearest("a-word-that-is-much-longer-than-anything-that-is-looked-at"), NULL);
}

TEST(an_address_that_stands_for_all_of_the_machine_is_known_in_all_spellings)
{
    static const char *const wild[] = {"0.0.0.0:1", "0.0.0.0:0",  "0:7400",       "[::]:7400",
                                       "[::]:0",    "[0:0::0]:1", "[::0.0.0.0]:1"};
    static const char *const others[] = {"127.0.0.1:0",     "10.0.0.0:1", "[::1]:0", "[fe80::]:1",
                                         "0.example.org:1", "[0::1]:1",   "nope",    ""};
    for (size_t i = 0; i < ARRAY_LEN(wild); i++) {
        CHECK(address_is_wildcard(wild[i]));
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        CHECK(!address_is_wildcard(others[i]));
    }
}

TEST(what_is_told_to_others_is_an_address_that_they_can_connect_to)
{
    struct error e = {0};
    struct advertise_rule rule = {.listen = "10.0.0.1:7400"};
    CHECK_INT(address_check_advertise(&rule, &e), ERR_OK);
    rule = (struct advertise_rule){.listen = "0.0.0.0:7400"};
    CHECK_INT(address_check_advertise(&rule, &e), ERR_INVALID);
    CHECK_STR(e.message, "0.0.0.0:7400 is no address that others can connect to: --advertise must say which is");
    CHECK(strstr(e.hint, "--advertise HOST:PORT") != NULL);
    rule.advertise = "[::]:7400";
    CHECK_INT(address_check_advertise(&rule, &e), ERR_INVALID);
    rule.advertise = "node1:0";
    CHECK_INT(address_check_advertise(&rule, &e), ERR_INVALID);
    CHECK_STR(e.message, "--advertise: node1:0 has no port that others can connect to");
    rule.may_lack_port = true;
    CHECK_INT(address_check_advertise(&rule, &e), ERR_OK);
    rule = (struct advertise_rule){.listen = "[::]:7400", .advertise = "node1:7400"};
    CHECK_INT(address_check_advertise(&rule, &e), ERR_OK);
}

TEST(the_id_of_a_job_is_checked_before_it_is_sent)
{
    struct error e = {0};
    char longest[102] = "";
    memset(longest, 'a', 100);
    CHECK_INT(value_job_id("0197a3c2-7d54-7e11-8c7b-5a1f2f0e9b21", &e), ERR_OK);
    CHECK_INT(value_job_id(longest, &e), ERR_OK);
    longest[100] = 'a';
    CHECK_INT(value_job_id(longest, &e), ERR_INVALID);
    CHECK_INT(value_job_id("x y", &e), ERR_INVALID);
    CHECK_STR(e.message, "it has 1 to 100 letters, digits, '.', '_' or '-'");
    CHECK_INT(value_job_id("", &e), ERR_INVALID);
    CHECK_INT(value_job_id("a/b", &e), ERR_INVALID);
}
