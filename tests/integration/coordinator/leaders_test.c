/*
 * Several coordinators, one leader: real processes that are frozen, killed and started at the same moment. What counts is
 * what the database has in the end: it keeps the history of who wrote what under which epoch.
 */
#include <stdio.h>
#include <string.h>

#include "integration/coordinator/clocks.h"
#include "integration/coordinator/world.h"
#include "integration/store/subject.h"

#define TTL_MS 4000       /* on a busy machine nobody may lose it but by being frozen or killed */
#define LONG_TTL_MS 15000 /* here nobody waits for it to run out */
#define ROUNDS 3

static struct node *start(struct world *w, const char *name)
{
    return world_start(w, (struct node_options){.node_id = name, .leader_ttl_ms = TTL_MS});
}

static struct node *start_leading(struct world *w, const char *name, bool relayed)
{
    struct node *node = world_start(
        w, (struct node_options){.node_id = name, .url = world_url(w, name, relayed), .leader_ttl_ms = TTL_MS});
    CHECK(node_await_leading(node, true, 20000));
    return node;
}

/* The first one was away for longer than its lease, and the second leads under the next epoch. */
static void check_deposed(struct world *w, const struct node *first, const struct node *second)
{
    CHECK(node_await_leading(first, false, 20000));
    CHECK_ERR(node_submit(first, "late", 1).err, ERR_PRECONDITION);
    CHECK_ERR(node_submit(second, "after", 1).err, ERR_OK);
    CHECK_UINT(node_look(second).epoch, 2);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id = 'late'"), 0);
    CHECK_STR(world_sql(w, "SELECT epoch, node_id FROM capstan.cluster_leader"), "2|node-b");
    /* Both wrote, each in its own epoch, and nothing of the first came after the second's first. */
    CHECK_STR(world_sql(w, "SELECT DISTINCT epoch, writer FROM public.events ORDER BY 1"), "1|node-a\n2|node-b");
    CHECK_INT(world_number(w, "SELECT count(*) FROM public.history a WHERE writer = 'node-a' AND id > (SELECT min(id) "
                              "FROM public.history WHERE writer = 'node-b' AND what NOT LIKE '%%cluster_leader')"),
              0);
    world_check_history(w);
    /* The first one is a standby like any other: it takes over when it is its turn. */
    CHECK_UINT(node_look(first).epoch, 0);
}

TEST(a_leader_that_was_frozen_at_rest_writes_nothing_when_it_wakes_up)
{
    struct world *w = world_open();
    world_watch(w);
    struct node *a = start_leading(w, "node-a", false);
    CHECK_ERR(node_submit(a, "before", 2).err, ERR_OK);
    struct node *b = start(w, "node-b");
    node_freeze(a);
    CHECK(node_await_leading(b, true, 20000));
    CHECK_INT(node_status(b, "before").state, JOB_QUEUED);
    CHECK_ERR(node_submit(b, "meanwhile", 2).err, ERR_OK);
    node_thaw(a);
    check_deposed(w, a, b);
    node_stop(b);
    CHECK(node_await_leading(a, true, 20000));
    CHECK_INT(node_status(a, "after").state, JOB_QUEUED);
    CHECK_UINT(node_look(a).epoch, 3);
    node_stop(a);
    world_check(w);
    world_close(w);
}

/*
 * The batch is larger than what fits between the two, and the server is kept from reading it by a lock that the test
 * holds: so the leader freezes when it has sent the beginning of its transaction, and not the end.
 */
TEST(a_leader_that_was_frozen_inside_a_transaction_is_got_rid_of)
{
    struct server_session lock;
    struct world *w = world_open();
    world_watch(w);
    struct node *a = start_leading(w, "node-a", false);
    CHECK_ERR(node_submit(a, "before", 2).err, ERR_OK);
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; LOCK TABLE capstan.jobs IN SHARE MODE");
    node_send(a, "large", 60000);
    CHECK(world_await(w, 20000,
                      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node-a' "
                      "AND wait_event_type = 'Lock'"));
    node_freeze(a);
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    CHECK(world_await(w, 20000,
                      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node-a' "
                      "AND xact_start IS NOT NULL AND wait_event = 'ClientRead'"));
    int64_t backend = world_number(w, "SELECT backend_pid FROM capstan.cluster_leader");
    struct node *b = start(w, "node-b");
    CHECK(node_await_leading(b, true, 30000));
    CHECK_INT(world_number(w, "SELECT count(*) FROM pg_stat_activity WHERE pid = %lld", (long long)backend), 0);
    CHECK_ERR(node_submit(b, "meanwhile", 2).err, ERR_OK);
    node_thaw(a);
    CHECK_ERR(ledger_answer(w->ledger, "large", 20000), ERR_PRECONDITION);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id = 'large'"), 0);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.tasks WHERE job_id = 'large'"), 0);
    check_deposed(w, a, b);
    node_stop(a);
    node_stop(b);
    world_check(w);
    world_close(w);
}

static void await_renewal(struct world *w)
{
    const char *before = world_sql(w, "SELECT expires_at FROM capstan.cluster_leader");
    CHECK(world_await(
        w, 20000,
        arena_format(&w->arena, "SELECT count(*) FROM capstan.cluster_leader WHERE expires_at > '%s'", before)));
}

/*
 * The leader is frozen, and so is the network: what it had sent arrives when another one leads. False if the database had
 * nothing to refuse: a renewal was under way first, and the write stood behind it, or it was not sent in time.
 */
static bool is_late_write_refused(void)
{
    struct world *w = world_open();
    world_watch(w);
    relay_prepare(&w->relay);
    relay_start(&w->relay, w->server.dir);
    struct node *a = start_leading(w, "node-a", true);
    CHECK_ERR(node_submit(a, "before", 2).err, ERR_OK);
    CHECK(node_work(a));
    uint32_t refused = world_log_lines(w, "<node-a>", "CPFEN ERROR");
    await_renewal(w); /* the next one is not due for a third of the lease */
    relay_freeze(&w->relay);
    node_send_poll(a, "delayed");
    clocks_pause(400); /* nobody can see that it is on its way */
    node_freeze(a);
    struct node *b = start(w, "node-b");
    CHECK(node_await_leading(b, true, 20000));
    CHECK_ERR(node_submit(b, "meanwhile", 2).err, ERR_OK);
    relay_thaw(&w->relay);
    node_thaw(a);
    CHECK_ERR(ledger_answer(w->ledger, "delayed", 20000), ERR_PRECONDITION);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.task_leases"), 0);
    check_deposed(w, a, b);
    refused = world_log_lines(w, "<node-a>", "CPFEN ERROR") - refused;
    CHECK(refused <= 1);
    node_stop(a);
    node_stop(b);
    world_check(w);
    world_close(w);
    return refused == 1;
}

TEST(a_write_that_arrives_after_the_next_leader_was_elected_is_refused_by_the_database)
{
    bool is_shown = false;
    for (uint32_t i = 0; i < ROUNDS && !is_shown; i++) {
        is_shown = is_late_write_refused();
    }
    CHECK(is_shown);
}

/* Frozen at any moment, with commands on their way, and both go on writing whenever they lead. */
TEST(leaders_that_are_frozen_at_random_moments_never_write_in_each_others_term)
{
    struct world *w = world_open();
    uint32_t rounds = world_rounds(3);
    world_watch(w);
    for (uint32_t i = 0; i < 2; i++) {
        world_start(
            w, (struct node_options){.node_id = i == 0 ? "node-a" : "node-b", .leader_ttl_ms = TTL_MS, .n_clients = 2});
    }
    for (uint32_t round = 0; round < rounds; round++) {
        struct node *leader = node_await_one(w->nodes, 2, 20000);
        CHECK(leader != NULL);
        struct node *other = leader == &w->nodes[0] ? &w->nodes[1] : &w->nodes[0];
        CHECK(ledger_await(w->ledger, 20 + round * 7 % 50, 20000));
        node_freeze(leader);
        CHECK(node_await_leading(other, true, 20000));
        CHECK(ledger_await(w->ledger, 20, 20000));
        node_thaw(leader);
        CHECK(node_await_leading(leader, false, 20000));
        CHECK(node_look(other).epoch > 0);
    }
    node_kill(&w->nodes[0]);
    node_kill(&w->nodes[1]);
    CHECK(world_number(w, "SELECT count(DISTINCT epoch) FROM public.events") >= (int64_t)rounds + 1);
    world_check_history(w);
    world_check(w);
    world_close(w);
}

/* ---- elections ---- */

/* Its owner is dead: nobody has to wait for it. */
static void end_lease(struct world *w)
{
    world_sql(w, "UPDATE capstan.cluster_leader SET expires_at = clock_timestamp()");
}

TEST(of_five_coordinators_that_start_at_once_one_leads_and_another_when_it_dies)
{
    static const char *const names[] = {"node-a", "node-b", "node-c", "node-d", "node-e"};
    uint32_t rounds = world_rounds(5);
    struct world *w = world_open();
    world_watch(w);
    for (uint32_t round = 0; round < rounds; round++) {
        char job_id[32];
        w->n_nodes = 0; /* those of the last round are gone */
        for (uint32_t i = 0; i < 5; i++) {
            world_start(w, (struct node_options){.node_id = names[i], .leader_ttl_ms = LONG_TTL_MS});
        }
        struct node *first = node_await_one(w->nodes, 5, 30000);
        CHECK(first != NULL);
        uint64_t epoch = node_look(first).epoch;
        CHECK_UINT(epoch, 2 * round + 1);
        snprintf(job_id, sizeof job_id, "r%u-first", round);
        CHECK_ERR(node_submit(first, job_id, 1).err, ERR_OK);
        for (uint32_t i = 0; i < 5; i++) {
            if (&w->nodes[i] != first) {
                CHECK_ERR(node_submit(&w->nodes[i], "nowhere", 1).err, ERR_PRECONDITION);
            }
        }
        node_kill(first);
        end_lease(w);
        struct node *second = node_await_one(w->nodes, 5, 30000);
        CHECK(second != NULL);
        CHECK_UINT(node_look(second).epoch, epoch + 1);
        CHECK_INT(node_status(second, job_id).state, JOB_QUEUED);
        snprintf(job_id, sizeof job_id, "r%u-second", round);
        CHECK_ERR(node_submit(second, job_id, 1).err, ERR_OK);
        for (uint32_t i = 0; i < 5; i++) {
            node_kill(&w->nodes[i]);
        }
        end_lease(w);
    }
    CHECK_INT(world_number(w, "SELECT count(DISTINCT epoch) FROM public.events"), 2 * rounds);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id = 'nowhere'"), 0);
    world_check_history(w);
    world_check(w);
    print_message("%u elections among five, one leader each time\n", 2 * rounds);
    world_close(w);
}

TEST(a_node_that_must_lead_gives_up_if_another_leads)
{
    struct world *w = world_open();
    struct node *a = world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = LONG_TTL_MS});
    CHECK(node_await_leading(a, true, 20000));
    struct node *b =
        world_start(w, (struct node_options){.node_id = "node-b", .leader_ttl_ms = LONG_TTL_MS, .must_lead = true});
    for (int64_t until_ms = clocks_mono_ms() + 20000; !node_look(b).gave_up; clocks_pause(5)) {
        CHECK(clocks_mono_ms() < until_ms);
    }
    CHECK_UINT(node_look(b).epoch, 0);
    CHECK(node_look(a).epoch > 0);
    world_close(w);
}

/* Its row is still there, and belongs to nobody who lives. Until that has run out it names nobody, least of all itself. */
TEST(a_node_that_was_killed_while_it_led_waits_for_its_own_row_and_leads_again)
{
    for (uint32_t must_lead = 0; must_lead < 2; must_lead++) {
        struct world *w = world_open();
        struct node_options options = {.node_id = "node-a", .leader_ttl_ms = TTL_MS, .must_lead = must_lead == 1};
        struct node *first = world_start(w, options);
        CHECK(node_await_leading(first, true, 20000));
        CHECK_ERR(node_submit(first, "before", 1).err, ERR_OK);
        node_kill(first);
        struct node *second = world_start(w, options);
        struct node_view view;
        for (int64_t until_ms = clocks_mono_ms() + 20000; (view = node_look(second)).epoch == 0; clocks_pause(5)) {
            CHECK(!view.gave_up);
            CHECK(view.leader.address[0] == '\0' || view.leader.is_self);
            CHECK(clocks_mono_ms() < until_ms);
        }
        CHECK_UINT(view.epoch, 2);
        CHECK_INT(node_status(second, "before").state, JOB_QUEUED);
        world_close(w);
    }
}

/* Its row is renewed, so whoever has it lives: two nodes were given one name. */
TEST(a_node_that_must_lead_gives_up_if_another_of_its_name_leads)
{
    struct world *w = world_open();
    struct node *a = start_leading(w, "node-a", false);
    struct node *twin =
        world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = TTL_MS, .must_lead = true});
    for (int64_t until_ms = clocks_mono_ms() + 20000; !node_look(twin).gave_up; clocks_pause(5)) {
        CHECK(clocks_mono_ms() < until_ms);
    }
    CHECK_STR(node_look(twin).leader.node_id, "node-a");
    CHECK(!node_look(twin).leader.is_self);
    CHECK_UINT(node_look(twin).epoch, 0);
    CHECK_UINT(node_look(a).epoch, 1);
    world_close(w);
}

/* ---- one file ---- */

#define FILE_TTL_MS 1500 /* nobody loses a file by being slow */

static void sqlite_second_is_refused(struct subject *s)
{
    struct ledger *ledger = ledger_new();
    struct node first, second;
    struct leader leader;
    struct node_options options = {.url = s->url, .node_id = "n1", .leader_ttl_ms = FILE_TTL_MS};
    struct store *store = subject_open(s);
    CHECK_OK(s, store_migrate(store, STORE_NEWEST, &s->e));
    node_start(&first, ledger, &options);
    CHECK(node_await_leading(&first, true, 20000));
    CHECK_ERR(node_submit(&first, "a", 1).err, ERR_OK);
    /* What a person gets to read. */
    struct leader_claim claim = subject_claim("n3", FILE_TTL_MS);
    CHECK_FAILS(s, store_lead(store, &claim, &s->arena, &leader, &s->e), ERR_BUSY);
    CHECK(strstr(s->e.message, "another coordinator uses this store") != NULL);
    CHECK(strstr(s->e.message, arena_format(&s->arena, "process %d", (int)first.pid)) != NULL);
    /* The time of its lease does not matter, only its life. */
    options.node_id = "n2";
    node_start(&second, ledger, &options);
    node_freeze(&first);
    CHECK(!node_await_leading(&second, true, 2 * FILE_TTL_MS));
    CHECK_ERR(node_submit(&second, "b", 1).err, ERR_PRECONDITION);
    node_thaw(&first);
    CHECK(node_await_leading(&first, true, 20000));
    node_kill(&first);
    CHECK(node_await_leading(&second, true, 20000));
    CHECK_INT(node_status(&second, "a").state, JOB_QUEUED);
    CHECK_ERR(node_submit(&second, "b", 1).err, ERR_OK);
    node_stop(&second);
    ledger_check(ledger, 0, store);
    ledger_check_whole(store);
    ledger_free(ledger);
}

TEST(sqlite_a_second_coordinator_on_the_same_file_waits_until_the_first_is_dead)
{
    subject_run(ENGINE_SQLITE, sqlite_second_is_refused);
}
