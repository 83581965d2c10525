/*
 * The client against small coordinators over real sockets: one that leads, some that do not, some that are gone.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/client.h"
#include "test.h"

#define LEADER_PATH "/capstan.v1.Cluster/GetLeader"
#define EVENTS_PATH "/capstan.v1.ControlPlane/WatchEvents"

/* A coordinator that answers GetLeader with its own address, or with its failure. */
struct fake {
    struct rpc_server *server;
    struct error failure; /* code ERR_OK: it leads */
    char leader[64];      /* "": it does not know one */
    uint32_t heals_after; /* calls until it leads after all; 0: never */
    atomic_uint calls;
};

static bool is_refused(struct fake *fake, struct rpc_call *call)
{
    uint32_t n = atomic_fetch_add(&fake->calls, 1) + 1;
    if (fake->failure.code == ERR_OK || (fake->heals_after > 0 && n > fake->heals_after)) {
        return false;
    }
    rpc_call_fail(call, &fake->failure, fake->leader[0] != '\0' ? fake->leader : NULL);
    return true;
}

static void answer_leader(void *context, struct rpc_call *call)
{
    struct fake *fake = context;
    struct arena arena = {0};
    struct buf bytes = {0};
    if (is_refused(fake, call)) {
        return;
    }
    struct pb_get_leader_response *response = wire_new(PB_GET_LEADER_RESPONSE, &arena);
    response->address = (char *)rpc_server_address(fake->server);
    response->node_id = (char *)"n";
    response->role = (char *)"leader";
    wire_encode(response, &bytes);
    rpc_call_reply(call, bytes.data, bytes.n);
    buf_deinit(&bytes);
    arena_deinit(&arena);
}

static void end_stream(void *context, struct rpc_call *call, bool ok)
{
    (void)context;
    (void)ok;
    rpc_call_end(call);
}

static void answer_events(void *context, struct rpc_call *call)
{
    struct arena arena = {0};
    struct buf bytes = {0};
    if (is_refused(context, call)) {
        return;
    }
    struct pb_event *event = wire_new(PB_EVENT, &arena);
    event->seq = 7;
    event->type = (char *)"created";
    wire_encode(event, &bytes);
    rpc_call_send(call, bytes.data, bytes.n, end_stream, NULL);
    buf_deinit(&bytes);
    arena_deinit(&arena);
}

static const struct rpc_method methods[] = {{LEADER_PATH, answer_leader}, {EVENTS_PATH, answer_events}};

static void fake_open(struct fake *fake)
{
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0", .methods = methods, .n_methods = ARRAY_LEN(methods), .context = fake};
    CHECK_ERR(rpc_server_open(&options, &fake->server, NULL), ERR_OK);
}

static void refuse(struct fake *fake, const char *leader)
{
    error_set(&fake->failure, ERR_PRECONDITION, "this coordinator does not lead");
    snprintf(fake->leader, sizeof fake->leader, "%s", leader);
}

static struct client *open_client(const char *servers, int64_t patience_ms)
{
    struct client *client = NULL;
    struct client_options options = {.servers = servers, .patience_ms = patience_ms};
    CHECK_ERR(client_open(&options, &client, NULL), ERR_OK);
    return client;
}

/* Asks who leads. The address is written into `out`, of 64 bytes. */
static enum err ask(struct client *client, struct rpc_cancel *cancel, char *out, struct error *e)
{
    struct arena arena = {0};
    struct pb_get_leader_response *response = NULL;
    struct client_call call = {.path = LEADER_PATH,
                               .message = wire_new(PB_GET_LEADER_REQUEST, &arena),
                               .answer = PB_GET_LEADER_RESPONSE,
                               .cancel = cancel};
    enum err err = client_call(client, &call, &arena, &response, e);
    if (err == ERR_OK) {
        snprintf(out, 64, "%s", response->address);
    }
    arena_deinit(&arena);
    return err;
}

/* An address at which nobody listens: somebody just did. */
static void dead_address(char out[64])
{
    struct fake fake = {0};
    fake_open(&fake);
    snprintf(out, 64, "%s", rpc_server_address(fake.server));
    rpc_server_close(fake.server, 0);
}

TEST(a_call_follows_to_the_leader_that_is_named)
{
    struct fake standby = {0};
    struct fake leader = {0};
    char answer[64] = "";
    fake_open(&leader);
    refuse(&standby, rpc_server_address(leader.server));
    fake_open(&standby);
    struct client *client = open_client(rpc_server_address(standby.server), 10000);

    CHECK_ERR(ask(client, NULL, answer, NULL), ERR_OK);
    CHECK_STR(answer, rpc_server_address(leader.server));
    CHECK_ERR(ask(client, NULL, answer, NULL), ERR_OK);
    CHECK_UINT(atomic_load(&standby.calls), 1); /* the second call knows where to go */
    CHECK_STR(client_server(client), rpc_server_address(leader.server));
    client_close(client);
    rpc_server_close(standby.server, 0);
    rpc_server_close(leader.server, 0);
}

TEST(a_server_that_is_gone_is_passed_over)
{
    struct fake leader = {0};
    char servers[256];
    char dead[64];
    char answer[64] = "";
    dead_address(dead);
    fake_open(&leader);
    snprintf(servers, sizeof servers, "%s,%s", dead, rpc_server_address(leader.server));
    struct client *client = open_client(servers, 10000);

    CHECK_ERR(ask(client, NULL, answer, NULL), ERR_OK);
    CHECK_STR(answer, rpc_server_address(leader.server));
    client_close(client);
    rpc_server_close(leader.server, 0);
}

TEST(a_standby_that_names_a_dead_leader_does_not_hold_the_search_up)
{
    struct fake standby = {0};
    struct fake leader = {0};
    char servers[256];
    char dead[64];
    char answer[64] = "";
    dead_address(dead);
    refuse(&standby, dead);
    fake_open(&standby);
    fake_open(&leader);
    snprintf(servers, sizeof servers, "%s,%s", rpc_server_address(standby.server), rpc_server_address(leader.server));
    struct client *client = open_client(servers, 10000);

    CHECK_ERR(ask(client, NULL, answer, NULL), ERR_OK);
    CHECK_STR(answer, rpc_server_address(leader.server));
    client_close(client);
    rpc_server_close(standby.server, 0);
    rpc_server_close(leader.server, 0);
}

TEST(a_call_waits_while_nobody_leads)
{
    struct fake fake = {.heals_after = 3};
    char answer[64] = "";
    refuse(&fake, "");
    fake_open(&fake);
    struct client *client = open_client(rpc_server_address(fake.server), 10000);

    CHECK_ERR(ask(client, NULL, answer, NULL), ERR_OK);
    CHECK_UINT(atomic_load(&fake.calls), 4);
    client_close(client);
    rpc_server_close(fake.server, 0);
}

TEST(an_election_is_waited_for_longer_than_a_server_is_looked_for)
{
    struct fake fake = {.heals_after = 8}; /* with the pauses between two calls that is more than two seconds */
    char answer[64] = "";
    refuse(&fake, "");
    fake_open(&fake);
    struct client *client = open_client(rpc_server_address(fake.server), 2000);

    int64_t began_ms = clock_mono_ms();
    CHECK_ERR(ask(client, NULL, answer, NULL), ERR_OK);
    CHECK(clock_mono_ms() - began_ms > 2000);
    client_close(client);
    rpc_server_close(fake.server, 0);
}

TEST(when_the_patience_is_over_the_error_says_who_was_asked)
{
    char dead[64];
    char answer[64];
    struct error e = {0};
    dead_address(dead);
    struct client *client = open_client(dead, 150);

    CHECK_ERR(ask(client, NULL, answer, &e), ERR_UNAVAILABLE);
    CHECK(strstr(e.message, "cannot reach a coordinator at") != NULL);
    CHECK(strstr(e.message, dead) != NULL);
    CHECK(strstr(e.hint, "capstan up") != NULL);
    CHECK_INT(err_exit(e.code), 3);
    client_close(client);
}

TEST(a_coordinator_that_answers_but_cannot_serve_is_quoted_even_if_another_one_is_away)
{
    struct fake fake = {0};
    char servers[160];
    char dead[64];
    char answer[64];
    struct error e = {0};
    error_set(&fake.failure, ERR_UNAVAILABLE, "the database is away");
    fake_open(&fake);
    dead_address(dead);
    snprintf(servers, sizeof servers, "%s,%s", rpc_server_address(fake.server), dead);
    struct client *client = open_client(servers, 150);

    CHECK_ERR(ask(client, NULL, answer, &e), ERR_UNAVAILABLE);
    CHECK(strstr(e.message, "answers, but cannot serve this at the moment: the database is away") != NULL);
    CHECK(strstr(e.message, rpc_server_address(fake.server)) != NULL);
    CHECK(strstr(e.hint, "store") != NULL);
    CHECK(strstr(e.hint, "capstan up") == NULL);
    CHECK_INT(err_exit(e.code), 3);
    client_close(client);
    rpc_server_close(fake.server, 0);
}

TEST(tls_against_a_server_without_it_is_what_the_hint_is_about)
{
    struct fake fake = {0};
    struct client *client = NULL;
    char answer[64];
    struct error e = {0};
    fake_open(&fake);
    struct client_options options = {.servers = rpc_server_address(fake.server), .tls = true, .patience_ms = 150};
    CHECK_ERR(client_open(&options, &client, &e), ERR_OK);

    CHECK_ERR(ask(client, NULL, answer, &e), ERR_UNAVAILABLE);
    CHECK(strstr(e.hint, "leave out --tls") != NULL);
    client_close(client);
    rpc_server_close(fake.server, 0);
}

TEST(nobody_leading_is_another_error_than_nobody_there)
{
    struct fake fake = {0};
    char answer[64];
    struct error e = {0};
    refuse(&fake, "");
    fake_open(&fake);
    struct client *client = open_client(rpc_server_address(fake.server), 100);

    CHECK_ERR(ask(client, NULL, answer, &e), ERR_UNAVAILABLE);
    CHECK(strstr(e.message, "no coordinator leads") != NULL);
    client_close(client);
    rpc_server_close(fake.server, 0);
}

TEST(an_error_of_the_leader_itself_comes_back_at_once)
{
    struct fake fake = {0};
    char answer[64];
    struct error e = {0};
    error_set(&fake.failure, ERR_PRECONDITION, "the job has not ended");
    error_hint(&fake.failure, "wait for it");
    fake_open(&fake);
    struct client *client = open_client(rpc_server_address(fake.server), 10000);

    CHECK_ERR(ask(client, NULL, answer, &e), ERR_PRECONDITION);
    CHECK_STR(e.message, "the job has not ended");
    CHECK_STR(e.hint, "wait for it");
    CHECK_UINT(atomic_load(&fake.calls), 1);
    client_close(client);
    rpc_server_close(fake.server, 0);
}

TEST(a_call_that_is_canceled_ends_although_there_is_patience_left)
{
    struct fake fake = {0};
    char answer[64];
    refuse(&fake, "");
    fake_open(&fake);
    struct client *client = open_client(rpc_server_address(fake.server), 600000);
    struct rpc_cancel *cancel = rpc_cancel_new();
    rpc_cancel_fire(cancel);

    CHECK_ERR(ask(client, cancel, answer, NULL), ERR_CANCELED);
    client_close(client);
    rpc_cancel_free(cancel);
    rpc_server_close(fake.server, 0);
}

TEST(a_stream_follows_to_the_leader_too)
{
    struct fake standby = {0};
    struct fake leader = {0};
    struct arena arena = {0};
    struct client_stream *stream = NULL;
    struct pb_event *event = NULL;
    struct error e = {0};
    bool is_end = false;
    fake_open(&leader);
    refuse(&standby, rpc_server_address(leader.server));
    fake_open(&standby);
    struct client *client = open_client(rpc_server_address(standby.server), 10000);
    struct client_call call = {
        .path = EVENTS_PATH, .message = wire_new(PB_WATCH_EVENTS_REQUEST, &arena), .answer = PB_EVENT};

    client_stream_open(client, &call, &stream);
    CHECK_ERR(client_stream_next(stream, &arena, &event, &is_end, &e), ERR_OK);
    CHECK(!is_end);
    CHECK_UINT(event->seq, 7);
    CHECK_ERR(client_stream_next(stream, &arena, &event, &is_end, &e), ERR_OK);
    CHECK(is_end);
    client_stream_close(stream);
    client_close(client);
    arena_deinit(&arena);
    rpc_server_close(standby.server, 0);
    rpc_server_close(leader.server, 0);
}

TEST(addresses_that_are_none_are_refused)
{
    struct client *client = NULL;
    struct client_options options = {.servers = "127.0.0.1:1,nowhere"};
    struct error e = {0};

    CHECK_ERR(client_open(&options, &client, &e), ERR_INVALID);
    CHECK(strstr(e.message, "nowhere") != NULL);
    CHECK(client == NULL);
}
