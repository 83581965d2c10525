/*
 * public_test.c - capstan/client.h where nobody answers. With coordinators it is tested in clients/c/test.
 */
#include "capstan/client.h"
#include "test.h"

TEST(an_interrupted_client_makes_no_calls_until_it_is_resumed)
{
    struct capstan_error e = {0};
    struct capstan_client *client = NULL;
    struct capstan_options options = {.size = sizeof options, .servers = "127.0.0.1:1", .patience_ms = 1};
    char *text = NULL;
    CHECK_INT(capstan_open(&options, &client, &e), CAPSTAN_OK);
    capstan_interrupt(client);
    CHECK_INT(capstan_leader_json(client, &text, &e), CAPSTAN_CANCELED);
    capstan_resume(client);
    CHECK_INT(capstan_leader_json(client, &text, &e), CAPSTAN_UNAVAILABLE);
    CHECK(text == NULL);
    capstan_close(client);
}
