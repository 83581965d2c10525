#include "../test.h"

#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

static const enum err all[] = {
#define X(symbol, wire_name, text, grpc_code, http_status, exit_code) symbol,
    ERR_TABLE(X)
#undef X
};

TEST(success_is_zero_everywhere)
{
    CHECK_INT(ERR_OK, 0);
    CHECK_INT(err_grpc(ERR_OK), 0);
    CHECK_INT(err_http(ERR_OK), 200);
    CHECK_INT(err_exit(ERR_OK), 0);
}

TEST(every_code_has_a_name_of_its_own_and_a_text)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        CHECK(strlen(err_text(all[i])) > 0);
        for (size_t j = 0; j < i; j++) {
            CHECK(strcmp(err_name(all[i]), err_name(all[j])) != 0);
        }
    }
}

TEST(every_failure_maps_to_a_failure)
{
    for (size_t i = 1; i < ARRAY_LEN(all); i++) {
        CHECK(err_grpc(all[i]) > 0 && err_grpc(all[i]) <= 16);
        CHECK(err_http(all[i]) >= 400 && err_http(all[i]) < 600);
        CHECK(err_exit(all[i]) >= 1 && err_exit(all[i]) <= 4);
    }
}

TEST(codes_map_to_grpc_http_and_exit_codes)
{
    CHECK_STR(err_name(ERR_INVALID), "invalid_argument");
    CHECK_INT(err_grpc(ERR_INVALID), 3);
    CHECK_INT(err_http(ERR_INVALID), 400);
    CHECK_INT(err_exit(ERR_INVALID), 2);
    CHECK_INT(err_grpc(ERR_STALE), 10);
    CHECK_INT(err_grpc(ERR_BUSY), 14);
    CHECK_INT(err_exit(ERR_UNAVAILABLE), 3);
    CHECK_INT(err_exit(ERR_UNAUTHENTICATED), 4);
}

TEST(a_code_outside_the_table_counts_as_internal)
{
    CHECK_STR(err_name((enum err)999), "internal");
    CHECK_INT(err_http((enum err)999), 500);
}

TEST(setting_an_error_returns_the_code_and_clears_the_hint)
{
    struct error e = {0};
    error_hint(&e, "from before");
    CHECK_ERR(error_set(&e, ERR_NOT_FOUND, "job %d is unknown", 7), ERR_NOT_FOUND);
    CHECK_ERR(e.code, ERR_NOT_FOUND);
    CHECK_STR(e.message, "job 7 is unknown");
    CHECK_STR(e.hint, "");
    error_hint(&e, "run '%s'", "capstan jobs");
    CHECK_STR(e.hint, "run 'capstan jobs'");
}

TEST(nobody_has_to_take_the_error_text)
{
    CHECK_ERR(error_set(NULL, ERR_BUSY, "x"), ERR_BUSY);
    error_hint(NULL, "y");
}

TEST(a_message_can_wrap_itself)
{
    struct error e = {0};
    CHECK_ERR(error_set(&e, ERR_INVALID, "no such column"), ERR_INVALID);
    CHECK_ERR(error_set(&e, ERR_INTERNAL, "stage 3: %s", e.message), ERR_INTERNAL);
    CHECK_STR(e.message, "stage 3: no such column");
}

TEST(a_long_message_is_cut_to_fit)
{
    struct error e = {0};
    char text[9000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    CHECK_ERR(error_set(&e, ERR_INTERNAL, "%s", text), ERR_INTERNAL);
    error_hint(&e, "%s", text);
    CHECK_UINT(strlen(e.message), sizeof(e.message) - 1);
    CHECK_UINT(strlen(e.hint), sizeof(e.hint) - 1);
}

TEST(a_message_is_cut_between_two_characters)
{
    for (size_t shift = 0; shift < 4; shift++) {
        struct error e = {0};
        char text[8001];
        memset(text, 'x', shift);
        for (size_t i = shift; i + 4 < sizeof(text); i += 4) {
            memcpy(text + i, "\xf0\x9f\x9a\x80", 5);
        }
        CHECK_ERR(error_set(&e, ERR_INTERNAL, "%s", text), ERR_INTERNAL);
        size_t length = strlen(e.message);
        CHECK(length > sizeof(e.message) - 1 - 4);
        CHECK(utf8_is_valid(e.message, length));
        CHECK_UINT(length % 4, shift % 4);
    }
}
