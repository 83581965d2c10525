/*
 * public_test.c - capstan/client.h as far as no coordinator is needed.
 */
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "capstan/client.h"

TEST(codes_are_called_as_on_the_wire)
{
    CHECK_STR(capstan_code_name(CAPSTAN_OK), "ok");
    CHECK_STR(capstan_code_name(CAPSTAN_NOT_FOUND), "not_found");
    CHECK_STR(capstan_code_name(CAPSTAN_UNAUTHENTICATED), "unauthenticated");
    CHECK_STR(capstan_code_name((enum capstan_code)99), "internal");
    /* Every code of ours has one of its own. */
    for (int i = 0; i <= CAPSTAN_INTERNAL; i++) {
        for (int k = 0; k < i; k++) {
            CHECK(strcmp(capstan_code_name((enum capstan_code)i), capstan_code_name((enum capstan_code)k)) != 0);
        }
    }
    CHECK_STR(capstan_code_name(CAPSTAN_INTERNAL), err_name(ERR_INTERNAL));
}

static enum capstan_code open_with(struct capstan_options options, struct capstan_error *e)
{
    struct capstan_client *client = NULL;
    options.size = sizeof options;
    enum capstan_code code = capstan_open(&options, &client, e);
    CHECK((client != NULL) == (code == CAPSTAN_OK));
    capstan_close(client);
    return code;
}

TEST(options_are_checked_before_anything_is_sent)
{
    struct capstan_error e = {0};
    CHECK_INT(open_with((struct capstan_options){.servers = "127.0.0.1:7400,[::1]:1"}, &e), CAPSTAN_OK);
    CHECK_INT(open_with((struct capstan_options){.servers = "nowhere"}, &e), CAPSTAN_INVALID);
    CHECK_INT(e.code, CAPSTAN_INVALID);
    CHECK(strstr(e.message, "'nowhere' is no address") != NULL);
    CHECK(strstr(e.hint, "HOST:PORT") != NULL);
    CHECK_INT(open_with((struct capstan_options){.servers = "a:1,,b:2"}, &e), CAPSTAN_INVALID);
    CHECK_INT(open_with((struct capstan_options){.tls_cert_pem = "x"}, &e), CAPSTAN_INVALID);
    CHECK(strstr(e.message, "belong together") != NULL);
    CHECK_INT(open_with((struct capstan_options){.servers = "nowhere"}, NULL), CAPSTAN_INVALID);
}

TEST(a_program_of_another_version_hands_in_structs_of_another_size)
{
    /* An older one, which knows only the servers. */
    struct {
        size_t size;
        const char *servers;
    } old = {sizeof old, "nowhere"};
    struct capstan_client *client = NULL;
    CHECK_INT(capstan_open((const struct capstan_options *)(const void *)&old, &client, NULL), CAPSTAN_INVALID);
    old.servers = "127.0.0.1:1";
    CHECK_INT(capstan_open((const struct capstan_options *)(const void *)&old, &client, NULL), CAPSTAN_OK);
    capstan_close(client);
    /* A newer one, which knows more than this library. */
    struct {
        struct capstan_options known;
        char more[64];
    } newer = {.known = {.size = sizeof newer, .servers = "127.0.0.1:1"}, .more = "more"};
    CHECK_INT(capstan_open(&newer.known, &client, NULL), CAPSTAN_OK);
    capstan_close(client);
}

TEST(servers_come_from_the_environment_if_none_are_given)
{
    struct capstan_error e = {0};
    struct capstan_client *client = NULL;
    CHECK_INT(setenv("CAPSTAN_SERVER", "wrong", 1), 0);
    CHECK_INT(capstan_open(NULL, &client, &e), CAPSTAN_INVALID);
    CHECK(strstr(e.message, "'wrong'") != NULL);
    CHECK_INT(unsetenv("CAPSTAN_SERVER"), 0);
    CHECK_INT(capstan_open(NULL, &client, &e), CAPSTAN_OK);
    capstan_close(client);
}

TEST(ending_nothing_is_fine)
{
    capstan_close(NULL);
    capstan_job_free(NULL);
    capstan_events_close(NULL);
    capstan_free(NULL);
}
