/*
 * kill -9 at any instant, of the coordinator and of the server under it. Clients stream commands; everything that they
 * were told is done must be in the store afterwards, and whatever else is there must be whole.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/prng.h"
#include "integration/coordinator/clocks.h"
#include "integration/coordinator/world.h"
#include "integration/store/subject.h"

#define CLIENTS 4

/* Mostly in the midst of its work, sometimes before it has begun. */
static void let_work(struct prng *prng, const struct ledger *ledger)
{
    if (prng_range(prng, 0, 9) == 0) {
        clocks_pause((int64_t)prng_range(prng, 0, 500));
        return;
    }
    CHECK(ledger_await(ledger, (uint32_t)prng_range(prng, 1, 120), 60000));
    clocks_pause((int64_t)prng_range(prng, 0, 4));
}

CONTRACT_OF_FILES(nothing_acknowledged_is_missing_after_kill_9)
{
    struct prng prng;
    struct node node;
    struct ledger *ledger = ledger_new();
    struct store *store = subject_open(s);
    uint32_t rounds = world_rounds(20);
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &s->e), ERR_OK);
    prng_init(&prng, 42);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t first = atomic_load(&ledger->n);
        struct node_options options = {.url = s->url, .node_id = "n1", .leader_ttl_ms = 300, .n_clients = CLIENTS};
        node_start(&node, ledger, &options);
        let_work(&prng, ledger);
        node_kill(&node);
        ledger_check(ledger, first, store);
        if (round % 10 == 9) {
            ledger_check_whole(store);
        }
    }
    ledger_check(ledger, 0, store); /* nor does it go missing later */
    ledger_check_whole(store);
    print_message("%s: killed %u times, %u acknowledged commands are all there\n", s->engine, rounds,
                  atomic_load(&ledger->n_acknowledged));
    ledger_free(ledger);
}

TEST(nothing_acknowledged_is_missing_after_the_server_died_under_the_leader)
{
    struct prng prng;
    struct world *w = world_open();
    uint32_t rounds = world_rounds(10);
    struct node *node =
        world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = 500, .n_clients = CLIENTS});
    int64_t longest_ms = 0;
    prng_init(&prng, 43);
    for (uint32_t round = 0; round < rounds; round++) {
        CHECK(ledger_await(w->ledger, (uint32_t)prng_range(&prng, 1, 150), 30000));
        if (round % 4 != 3) {
            server_kill(&w->server);
        }
        server_restart(&w->server); /* every fourth time in an orderly way */
        int64_t back_ms = clocks_mono_ms();
        CHECK(ledger_await(w->ledger, 1, 30000)); /* it leads again by itself */
        int64_t took_ms = clocks_mono_ms() - back_ms;
        longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
    }
    CHECK(node_look(node).stats.elected > 1);
    node_kill(node);
    world_check(w); /* what was lost on the way would still be missing */
    print_message("the server died %u times, %u acknowledged commands are all there; led again after %" PRId64
                  " ms at most\n",
                  rounds, atomic_load(&w->ledger->n_acknowledged), longest_ms);
    world_close(w);
}
