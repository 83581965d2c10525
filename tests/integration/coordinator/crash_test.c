/*
 * kill -9 at any instant, of the coordinator and of the server under it. Clients stream submits with inputs, successes with
 * results, cancellations and data sets; everything that they were told is done must be in the store afterwards, whatever
 * else is there must be whole, and the memory of whoever leads next must be what is in the store.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/prng.h"
#include "integration/coordinator/clocks.h"
#include "integration/coordinator/world.h"
#include "integration/store/subject.h"

#define CLIENTS 4

#define WHOLE_ROUNDS_MAX 20 /* with more than these the store is looked through only now and then */
#define WHOLE_EVERY 10

/* With thousands of rounds the store becomes too large to load all of it after each. SQL looks at all of it in any case. */
static bool is_whole_due(uint32_t round, uint32_t rounds)
{
    return rounds <= WHOLE_ROUNDS_MAX || round % WHOLE_EVERY == WHOLE_EVERY - 1 || round + 1 == rounds;
}

/* It has just been started with clients that are held. Mostly it is left in the midst of its work. */
static void let_work(struct prng *prng, const struct node *node)
{
    node_check_equal(node); /* what it has loaded, and done about it since */
    node_release(node);
    CHECK(ledger_await(node->ledger, (uint32_t)prng_range(prng, 1, 120), 60000));
    if (prng_range(prng, 0, 2) == 0) {
        node_hold(node);
        node_check_equal(node); /* what all those commands have made of it */
        node_release(node);
        CHECK(ledger_await(node->ledger, (uint32_t)prng_range(prng, 1, 60), 60000));
    }
    clocks_pause((int64_t)prng_range(prng, 0, 4));
}

static void check_round(struct subject *s, struct store *store, const struct ledger *ledger, uint32_t first,
                        bool is_whole)
{
    CHECK_STR(subject_sql(s, ledger_tables_sql), "");
    ledger_check(ledger, first, store);
    if (is_whole) {
        ledger_check_whole(store);
    }
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
        bool is_early = prng_range(&prng, 0, 9) == 0; /* perhaps before it has begun */
        struct node_options options = {
            .url = s->url, .node_id = "n1", .leader_ttl_ms = 300, .n_clients = CLIENTS, .are_held = !is_early};
        node_start(&node, ledger, &options);
        if (is_early) {
            clocks_pause((int64_t)prng_range(&prng, 0, 500));
        } else {
            let_work(&prng, &node);
        }
        node_kill(&node);
        check_round(s, store, ledger, first, is_whole_due(round, rounds));
    }
    ledger_check(ledger, 0, store); /* nor does it go missing later */
    print_message("%s: killed %u times, %u acknowledged commands are all there\n", s->engine, rounds,
                  atomic_load(&ledger->n_acknowledged));
    ledger_free(ledger);
}

/* Its clients are held: nobody writes. */
static void check_server_round(struct world *w, uint32_t first, bool is_whole)
{
    if (is_whole) {
        world_check_since(w, first);
    } else {
        struct store *store = NULL;
        world_check_tables(w);
        CHECK_ERR(store_open(w->server.url, &store, NULL), ERR_OK);
        ledger_check(w->ledger, first, store);
        store_close(store);
    }
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
        uint32_t first = atomic_load(&w->ledger->n);
        CHECK(ledger_await(w->ledger, (uint32_t)prng_range(&prng, 1, 150), 30000));
        if (round % 4 != 3) {
            server_kill(&w->server);
        }
        server_restart(&w->server); /* every fourth time in an orderly way */
        int64_t back_ms = clocks_mono_ms();
        CHECK(ledger_await(w->ledger, 1, 30000)); /* it leads again by itself */
        int64_t took_ms = clocks_mono_ms() - back_ms;
        longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
        node_hold(node);
        node_check_equal(node);
        check_server_round(w, first, is_whole_due(round, rounds));
        node_release(node);
    }
    CHECK(node_look(node).stats.elected > 1);
    node_kill(node);
    world_check(w); /* what was lost on the way would still be missing */
    print_message("the server went down %u times, %u acknowledged commands are all there; led again after %" PRId64
                  " ms at most\n",
                  rounds, atomic_load(&w->ledger->n_acknowledged), longest_ms);
    world_close(w);
}

/* The two checks that everything above relies on can fail: a row of every table is changed behind the leader's back. */
CONTRACT_OF_FILES(a_row_that_is_changed_or_missing_is_noticed)
{
    static const struct {
        const char *change, *undo;
        bool is_in_memory; /* the leader's memory has it, too */
    } cases[] = {
        {"UPDATE @tasks SET failures = failures + 1 WHERE job_id = 'open'",
         "UPDATE @tasks SET failures = failures - 1 WHERE job_id = 'open'", true},
        {"UPDATE @jobs SET priority = 3 WHERE job_id = 'open'", "UPDATE @jobs SET priority = 2 WHERE job_id = 'open'",
         true},
        {"UPDATE @distributed_nodes SET slots = slots + 1", "UPDATE @distributed_nodes SET slots = slots - 1", true},
        {"UPDATE @task_events SET attempt_id = 2 WHERE event_type = 4",
         "UPDATE @task_events SET attempt_id = 1 WHERE event_type = 4", false},
        {"UPDATE @execution_idempotency SET status = 1 WHERE job_id = 'ended'",
         "UPDATE @execution_idempotency SET status = 2 WHERE job_id = 'ended'", false},
        {"UPDATE @task_leases SET attempt_id = 2", "UPDATE @task_leases SET attempt_id = 1", false},
        {"UPDATE @payloads SET job_id = 'x' WHERE job_id = 'ended'",
         "UPDATE @payloads SET job_id = 'ended' WHERE job_id = 'x'", false},
        {"UPDATE @stages SET stage = 1 WHERE job_id = 'ended'", "UPDATE @stages SET stage = 0 WHERE job_id = 'ended'",
         false},
    };
    struct node node;
    struct ledger *ledger = ledger_new();
    struct store *store = subject_open(s);
    /* Nothing runs out here, neither the leadership nor what the worker holds: that would change rows, too. */
    struct node_options options = {.url = s->url, .node_id = "n1", .leader_ttl_ms = 600000, .lease_ms = 600000};
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &s->e), ERR_OK);
    node_start(&node, ledger, &options);
    CHECK(node_await_leading(&node, true, 20000));
    CHECK_ERR(node_submit(&node, "ended", 1).err, ERR_OK);
    CHECK(node_work(&node));
    CHECK_ERR(node_submit(&node, "open", 2).err, ERR_OK);
    node_send_poll(&node, "takes one");
    CHECK_ERR(ledger_answer(ledger, "takes one", 20000), ERR_OK);
    check_round(s, store, ledger, 0, true);
    node_check_equal(&node);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        subject_sql(s, cases[i].change);
        if (cases[i].is_in_memory) {
            CHECK_ERR(node_compare(&node), ERR_DATA_LOSS);
        } else {
            CHECK(strcmp(subject_sql(s, ledger_tables_sql), "") != 0);
        }
        subject_sql(s, cases[i].undo);
        check_round(s, store, ledger, 0, true);
        node_check_equal(&node);
    }
    node_kill(&node);
    ledger_free(ledger);
}
