#include "coordinator/gate.h"

#include <string.h>

#include "test.h"

static struct gate *small_gate(void)
{
    return gate_new((struct gate_limits){.calls = 3, .bytes = 1000, .calls_all = 5, .held = 2, .held_all = 3});
}

TEST(a_client_is_a_token_wherever_it_calls_from_and_a_host_without_one)
{
    struct gate *gate = small_gate();
    struct sender ci = gate_sender(gate, "ci", "ipv4:10.0.0.1:50001");
    struct sender ci_elsewhere = gate_sender(gate, "ci", "ipv4:10.0.0.2:50002");
    struct sender ops = gate_sender(gate, "ops", "ipv4:10.0.0.1:50001");
    struct sender open = gate_sender(gate, "", "ipv4:10.0.0.1:50001");
    struct sender open_again = gate_sender(gate, "", "ipv4:10.0.0.1:50002");
    struct sender open_elsewhere = gate_sender(gate, "", "ipv6:%5B::1%5D:50001");
    CHECK(ci.client == ci_elsewhere.client);
    CHECK(ci.connection != ci_elsewhere.connection);
    CHECK(ci.client != ops.client);
    CHECK(open.client == open_again.client);
    CHECK(open.connection != open_again.connection);
    CHECK(open.client != open_elsewhere.client);
    CHECK(open.client != ci.client);
    CHECK(ci.client != 0);
    gate_free(gate);
}

TEST(beyond_its_calls_a_client_is_refused_and_told_what_to_do_and_others_are_not)
{
    struct gate *gate = small_gate();
    struct sender greedy = gate_sender(gate, "greedy", "h:1");
    struct sender other = gate_sender(gate, "other", "h:2");
    struct error e = {0};
    for (int i = 0; i < 3; i++) {
        CHECK_ERR(gate_enter(gate, greedy, 1, &e), ERR_OK);
    }
    CHECK_ERR(gate_enter(gate, greedy, 1, &e), ERR_EXHAUSTED);
    CHECK_STR(e.message, "this client has 3 calls open that have not been answered");
    CHECK(strstr(e.hint, "max_calls_per_client") != NULL);
    CHECK_ERR(gate_enter(gate, other, 1, &e), ERR_OK);
    gate_leave(gate, greedy, 1);
    CHECK_ERR(gate_enter(gate, greedy, 1, &e), ERR_OK);
    for (int i = 0; i < 3; i++) {
        gate_leave(gate, greedy, 1);
    }
    gate_leave(gate, other, 1);
    gate_free(gate);
}

TEST(bytes_are_counted_but_one_request_of_any_size_may_pass)
{
    struct gate *gate = small_gate();
    struct sender client = gate_sender(gate, "c", "h:1");
    struct error e = {0};
    CHECK_ERR(gate_enter(gate, client, 5000, &e), ERR_OK); /* it is alone */
    CHECK_ERR(gate_enter(gate, client, 1, &e), ERR_BUSY);
    CHECK(strstr(e.message, "5000 bytes") != NULL);
    CHECK(strstr(e.hint, "max_bytes_per_client") != NULL);
    gate_leave(gate, client, 5000);
    CHECK_ERR(gate_enter(gate, client, 600, &e), ERR_OK);
    CHECK_ERR(gate_enter(gate, client, 400, &e), ERR_OK);
    CHECK_ERR(gate_enter(gate, client, 1, &e), ERR_BUSY);
    gate_leave(gate, client, 600);
    gate_leave(gate, client, 400);
    gate_free(gate);
}

TEST(all_clients_together_leave_room_for_workers)
{
    struct gate *gate = small_gate();
    struct sender clients[3];
    struct error e = {0};
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"a", "b", "c"};
        clients[i] = gate_sender(gate, names[i], "h:1");
    }
    for (int i = 0; i < 5; i++) {
        CHECK_ERR(gate_enter(gate, clients[i % 2], 0, &e), ERR_OK);
    }
    CHECK_ERR(gate_enter(gate, clients[2], 0, &e), ERR_EXHAUSTED);
    CHECK(strstr(e.message, "all clients together") != NULL);
    for (int i = 0; i < 5; i++) {
        gate_leave(gate, clients[i % 2], 0);
    }
    gate_free(gate);
}

TEST(what_lasts_gets_a_part_of_the_connections_and_short_calls_pass_all_the_same)
{
    struct gate *gate = small_gate();
    struct sender greedy = gate_sender(gate, "greedy", "h:1");
    struct sender other = gate_sender(gate, "other", "h:2");
    struct error e = {0};
    for (int i = 0; i < 3; i++) {
        CHECK_ERR(gate_enter(gate, greedy, 0, &e), ERR_OK);
    }
    CHECK_ERR(gate_hold(gate, greedy, &e), ERR_OK);
    CHECK_ERR(gate_hold(gate, greedy, &e), ERR_OK);
    CHECK_ERR(gate_hold(gate, greedy, &e), ERR_EXHAUSTED);
    CHECK(strstr(e.message, "this client has 2 streams") != NULL);
    CHECK(strstr(e.hint, "/v1/events") != NULL);
    CHECK_ERR(gate_enter(gate, other, 0, &e), ERR_OK);
    CHECK_ERR(gate_enter(gate, other, 0, &e), ERR_OK);
    CHECK_ERR(gate_hold(gate, other, &e), ERR_OK);
    CHECK_ERR(gate_hold(gate, other, &e), ERR_EXHAUSTED);
    CHECK(strstr(e.message, "all clients together have 3 streams") != NULL);
    gate_release(gate, greedy);
    CHECK_ERR(gate_hold(gate, other, &e), ERR_OK);
    gate_release(gate, other);
    gate_release(gate, other);
    gate_release(gate, greedy);
    for (int i = 0; i < 3; i++) {
        gate_leave(gate, greedy, 0);
    }
    gate_leave(gate, other, 0);
    gate_leave(gate, other, 0);
    gate_free(gate);
}
