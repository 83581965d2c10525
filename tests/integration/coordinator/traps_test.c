/*
 * The traps that concern the store (semantics, section 12), each with its number: coordinators that fell into them went
 * on writing after they were deposed, stopped standing for election, or ran alone.
 */
#include <stdio.h>
#include <string.h>

#include "integration/coordinator/clocks.h"
#include "integration/coordinator/world.h"

#define TTL_MS 4000       /* on a busy machine nobody may lose it but by the test's doing */
#define SHORT_TTL_MS 1500 /* where it does not matter how often it is lost */
#define LONG_TTL_MS 30000 /* here nobody's lease is to run out */
#define HOUR_MS INT64_C(3600000)

static struct node *start(struct world *w, const char *name)
{
    return world_start(w, (struct node_options){.node_id = name, .leader_ttl_ms = TTL_MS});
}

static struct node *start_leading(struct world *w, const char *name)
{
    struct node *node = start(w, name);
    CHECK(node_await_leading(node, true, 20000));
    return node;
}

/* The first of them leads. */
static void start_for_long(struct world *w, uint32_t n)
{
    static const char *const names[] = {"node-a", "node-b"};
    for (uint32_t i = 0; i < n; i++) {
        struct node *node = world_start(w, (struct node_options){.node_id = names[i], .leader_ttl_ms = LONG_TTL_MS});
        CHECK(i > 0 || node_await_leading(node, true, 20000));
    }
}

/* Ended jobs, as old as that, by the database's clock. */
static void add_history(struct world *w, const char *prefix, uint32_t n, int64_t age_ms)
{
    world_sql(
        w,
        "INSERT INTO capstan.jobs (job_id, kind, priority, stop_on_failure, submitted_at_ms, state, started_at_ms, "
        "finished_at_ms, n_stages, inline_bytes) SELECT '%s-' || i, 0, 2, 0, t, 4, t, t, 1, 0 FROM "
        "generate_series(1, %u) i, (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - %lld AS t) c",
        prefix, n, (long long)age_ms);
}

/* ---- 15 ---- */

/* Somebody else leads, for as long as the test wants; it waits for the leader's open transaction. */
static void depose(struct world *w, const char *until)
{
    world_sql(w,
              "BEGIN; SELECT FROM capstan.cluster_leader FOR UPDATE; UPDATE capstan.cluster_leader SET "
              "epoch = epoch + 1, node_id = 'usurper', token = decode(repeat('01', 16), 'hex'), "
              "expires_at = clock_timestamp() + interval '%s'; INSERT INTO public.history (writer, what) "
              "VALUES ('usurper', 'deposed'); COMMIT",
              until);
}

#define AFTER_SQL "id > (SELECT max(id) FROM public.history WHERE what = 'deposed')"

TEST(trap_15_a_demoted_leader_writes_nothing_in_the_background)
{
    struct world *w = world_open();
    world_watch(w);
    add_history(w, "old", 120000, 2 * HOUR_MS); /* enough to be pruned for many seconds */
    struct node *node = world_start(
        w, (struct node_options){
               .node_id = "node-a", .leader_ttl_ms = SHORT_TTL_MS, .history_ttl_ms = HOUR_MS, .n_clients = 3});
    /* All three write: commits, renewals, pruning. */
    CHECK(world_await(w, 20000,
                      "SELECT (count(*) FILTER (WHERE what = 'DELETE jobs') > 2 AND count(*) FILTER "
                      "(WHERE what = 'UPDATE cluster_leader') > 1 AND count(*) FILTER (WHERE what = "
                      "'INSERT task_events') > 10)::int FROM public.history WHERE writer = 'node-a'"));
    CHECK(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id LIKE 'old-%%'") > 0);
    depose(w, "1 hour");
    int64_t epoch = world_number(w, "SELECT epoch FROM capstan.cluster_leader");
    int64_t left = world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id LIKE 'old-%%'");
    CHECK(left > 0); /* there is more to prune */
    CHECK(node_await_leading(node, false, 20000));
    clocks_pause(2 * SHORT_TTL_MS); /* time in which a loop that goes on would write */
    CHECK_STR(world_sql(w, "SELECT what, count(*) FROM public.history WHERE writer = 'node-a' AND " AFTER_SQL
                           " GROUP BY what"),
              "");
    CHECK_STR(world_sql(w, "SELECT node_id, expires_at > clock_timestamp() FROM capstan.cluster_leader"), "usurper|t");
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id LIKE 'old-%%'"), left);
    world_sql(w, "UPDATE capstan.cluster_leader SET expires_at = clock_timestamp()"); /* and then it is its turn */
    CHECK(world_await(
        w, 20000, arena_format(&w->arena, "SELECT (epoch > %lld)::int FROM capstan.cluster_leader", (long long)epoch)));
    CHECK(ledger_await(w->ledger, 5, 20000));
    node_stop(node);
    world_check_history(w);
    world_sql(w, "DELETE FROM capstan.jobs WHERE job_id LIKE 'old-%%'"); /* the test made only a part of them */
    world_check(w);
    world_close(w);
}

/* ---- 16 ---- */

static uint64_t failed_renewals(const struct node *node)
{
    struct coordinator_stats stats = node_look(node).stats;
    return stats.store_errors - stats.prune_errors; /* of one that leads, nothing else is counted */
}

/* Until it lasts longer than it did `before`. */
static bool await_renewal(struct world *w, const char *before)
{
    return world_await(w, 30000,
                       arena_format(&w->arena, "SELECT (expires_at > '%s')::int FROM capstan.cluster_leader", before));
}

TEST(trap_16_renewals_that_fail_for_less_than_the_lease_do_not_end_the_term)
{
    struct world *w = world_open();
    struct node *node = world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = 15000});
    CHECK(node_await_leading(node, true, 20000));
    uint64_t failed = failed_renewals(node);
    world_sql(w, "ALTER TABLE capstan.cluster_leader RENAME TO hidden");
    const char *before = world_sql(w, "SELECT expires_at FROM capstan.hidden");
    while (failed_renewals(node) == failed) {
        clocks_pause(10);
    }
    world_sql(w, "ALTER TABLE capstan.hidden RENAME TO cluster_leader");
    CHECK(await_renewal(w, before));
    CHECK_UINT(node_look(node).epoch, 1);
    CHECK_ERR(node_submit(node, "same-term", 1).err, ERR_OK);
    node_stop(node);
    world_check(w);
    world_close(w);
}

/* For longer: it steps down, and leads again. */
TEST(trap_16_renewals_that_fail_for_a_while_do_not_end_the_renewals)
{
    struct world *w = world_open();
    struct node *node = world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = 6000});
    CHECK(node_await_leading(node, true, 20000));
    world_sql(w, "ALTER TABLE capstan.cluster_leader RENAME TO hidden");
    CHECK(node_await_leading(node, false, 30000));
    CHECK_ERR(node_submit(node, "nobody", 1).err, ERR_PRECONDITION);
    world_sql(w, "ALTER TABLE capstan.hidden RENAME TO cluster_leader");
    CHECK(node_await_leading(node, true, 20000));
    CHECK_UINT(node_look(node).epoch, 2);
    CHECK_ERR(node_submit(node, "next-term", 1).err, ERR_OK);
    CHECK(await_renewal(w, world_sql(w, "SELECT expires_at FROM capstan.cluster_leader"))); /* and renews as before */
    node_stop(node);
    world_check(w);
    world_close(w);
}

/* The row is locked, so the renewal neither succeeds nor fails. */
TEST(trap_16_a_renewal_that_hangs_does_not_end_the_renewals)
{
    struct world *w = world_open();
    struct server_session lock;
    struct node *node = start_leading(w, "node-a");
    CHECK_ERR(node_submit(node, "before", 1).err, ERR_OK);
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; SELECT FROM capstan.cluster_leader FOR UPDATE");
    CHECK(node_await_leading(node, false, 10000));
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    CHECK(node_await_leading(node, true, 20000));
    CHECK_INT(node_status(node, "before").state, JOB_QUEUED);
    CHECK_ERR(node_submit(node, "after", 1).err, ERR_OK);
    node_stop(node);
    world_check(w);
    world_close(w);
}

/* ---- 17 ---- */

TEST(trap_17_a_standby_stands_for_election_again_and_again)
{
    static const char *const names[] = {"node-a", "node-b"};
    struct world *w = world_open();
    struct node_options options = {.leader_ttl_ms = LONG_TTL_MS};
    uint32_t rounds = world_rounds(4);
    uint32_t leader = 0;
    start_for_long(w, 2);
    for (uint32_t round = 0; round < rounds; round++) {
        char job_id[32];
        struct node *standby = &w->nodes[1 - leader];
        clocks_pause(1200); /* it has tried in vain several times by now, once every 400 ms */
        CHECK_UINT(node_look(standby).epoch, 0);
        CHECK_ERR(node_submit(standby, "nowhere", 1).err, ERR_PRECONDITION);
        if (round % 2 == 0) {
            node_kill(&w->nodes[leader]);
            /* Nobody waits until its lease has run out. */
            world_sql(w, "UPDATE capstan.cluster_leader SET expires_at = clock_timestamp()");
        } else {
            node_stop(&w->nodes[leader]);
        }
        CHECK(node_await_leading(standby, true, 60000));
        CHECK_UINT(node_look(standby).epoch, round + 2);
        snprintf(job_id, sizeof job_id, "job-%u", round);
        CHECK_ERR(node_submit(standby, job_id, 1).err, ERR_OK);
        options.node_id = names[leader];
        options.url = world_url(w, names[leader], false);
        node_start(&w->nodes[leader], w->ledger, &options);
        leader = 1 - leader;
    }
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs"), rounds);
    node_kill(&w->nodes[0]);
    node_kill(&w->nodes[1]);
    world_check(w);
    world_close(w);
}

/* ---- 18 ---- */

static int64_t database_ms(struct world *w)
{
    return world_number(w, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint");
}

/* What the leader wrote carries the database's time, and what is old by the database's clock is pruned, nothing else. */
static void check_times(struct world *w, const struct node *node, const char *job_id)
{
    CHECK_ERR(node_submit(node, job_id, 1).err, ERR_OK);
    while (!node_work(node)) {
        clocks_pause(5);
    }
    CHECK_INT(world_number(w,
                           "SELECT count(*) FROM capstan.jobs j JOIN capstan.tasks t USING (job_id), (SELECT "
                           "(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) c WHERE job_id = '%s' AND "
                           "least(submitted_at_ms, j.started_at_ms, j.finished_at_ms, t.started_at_ms, "
                           "t.finished_at_ms) > now - 60000 AND greatest(submitted_at_ms, j.started_at_ms, "
                           "j.finished_at_ms, t.started_at_ms, t.finished_at_ms) < now + 60000",
                           job_id),
              1);
    CHECK(world_await(w, 20000, "SELECT (count(*) = 0)::int FROM capstan.jobs WHERE job_id LIKE 'old-%%'"));
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id LIKE 'recent-%%'"), 5);
}

TEST(trap_18_a_machine_whose_clock_is_wrong_by_an_hour_leads_and_stands_by_like_any_other)
{
    static const int64_t shifts_s[] = {3600, -3600, 3600, 0};
    static const char *const names[] = {"node-a", "node-b", "node-c", "node-d"};
    struct world *w = world_open();
    world_watch(w);
    add_history(w, "recent", 5, HOUR_MS / 2 + HOUR_MS / 4); /* an hour later it would be too old */
    struct node *leader = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        char job_id[32];
        add_history(w, "old", 5, HOUR_MS + HOUR_MS * 3 / 4); /* an hour earlier it would be too young */
        struct node *next = world_start(w, (struct node_options){.node_id = names[i],
                                                                 .leader_ttl_ms = TTL_MS,
                                                                 .history_ttl_ms = HOUR_MS + HOUR_MS / 2,
                                                                 .clock_shift_s = shifts_s[i]});
        int64_t wrong_ms = node_look(next).date_ms - database_ms(w) - shifts_s[i] * 1000;
        CHECK(wrong_ms > -60000 && wrong_ms < 60000); /* its clock is as wrong as it should be */
        if (leader != NULL) {
            /* The present leader's lease is good, and has been renewed by now. */
            CHECK(!node_await_leading(next, true, TTL_MS / 2));
            CHECK(node_look(leader).epoch > 0);
            node_kill(leader);
        }
        int64_t since_ms = clocks_mono_ms();
        CHECK(node_await_leading(next, true, 20000));
        CHECK(leader == NULL || clocks_mono_ms() - since_ms < TTL_MS + 15000); /* nor is it good for an hour */
        CHECK_UINT(node_look(next).epoch, i + 1);
        snprintf(job_id, sizeof job_id, "job-%u", i);
        check_times(w, next, job_id);
        leader = next;
    }
    node_stop(leader);
    CHECK_INT(world_number(w, "SELECT count(*) FROM (SELECT at_ms < max(at_ms) OVER (ORDER BY seq) - 1000 AS back "
                              "FROM capstan.task_events) e WHERE back"),
              0); /* time does not go backwards from leader to leader */
    world_check_history(w);
    world_close(w);
}

/* ---- 22 ---- */

TEST(trap_22_without_its_database_a_node_does_not_run_alone)
{
    struct world *w = world_open();
    relay_prepare(&w->relay); /* nobody listens there */
    struct node *node = world_start(w, (struct node_options){.node_id = "node-a",
                                                             .url = world_url(w, "node-a", true),
                                                             .leader_ttl_ms = SHORT_TTL_MS,
                                                             .n_clients = 2});
    for (int i = 0; i < 20; i++) {
        CHECK_ERR(node_submit(node, "alone", 1).err, ERR_PRECONDITION);
        CHECK_ERR(node_status(node, "alone").err, ERR_PRECONDITION);
        CHECK(!node_work(node));
        clocks_pause(50);
    }
    struct node_view view = node_look(node);
    CHECK_UINT(view.epoch, 0);
    CHECK_UINT(view.stats.elected, 0);
    CHECK(view.stats.store_errors > 1); /* it goes on trying */
    CHECK(atomic_load(&w->ledger->n_refused) > 0);
    CHECK_UINT(atomic_load(&w->ledger->n_acknowledged), 0);
    relay_start(&w->relay, w->server.dir);
    CHECK(ledger_await(w->ledger, 10, 30000));
    /* The same when it goes away again. */
    relay_cut(&w->relay);
    CHECK(node_await_leading(node, false, 10000));
    CHECK_ERR(node_submit(node, "alone", 1).err, ERR_PRECONDITION);
    relay_start(&w->relay, w->server.dir);
    CHECK(ledger_await(w->ledger, 10, 30000));
    node_stop(node);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id = 'alone'"), 0);
    world_check(w);
    world_close(w);
}

/* The server is there, the database is not, and then it is empty. */
TEST(trap_22_without_its_schema_a_node_does_not_run_alone)
{
    struct world *w = world_open();
    struct store *store = NULL;
    struct error e = {0};
    char *url = arena_format(&w->arena, "postgres://postgres@/later?host=%s&port=5432", w->server.dir);
    struct node *node = world_start(
        w, (struct node_options){.node_id = "node-a", .url = url, .leader_ttl_ms = SHORT_TTL_MS, .n_clients = 1});
    CHECK(!node_await_leading(node, true, 300));
    server_database(&w->server, "later");
    CHECK(!node_await_leading(node, true, 1000));
    CHECK_ERR(node_submit(node, "alone", 1).err, ERR_PRECONDITION);
    CHECK_UINT(atomic_load(&w->ledger->n_acknowledged), 0);
    CHECK_ERR(store_open(url, &store, &e), ERR_OK);
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &e), ERR_OK);
    CHECK(ledger_await(w->ledger, 10, 30000));
    node_stop(node);
    ledger_check(w->ledger, 0, store);
    store_close(store);
    world_close(w);
}

/* ---- 29 ---- */

static void refuse_poison(struct world *w)
{
    world_sql(w, "ALTER TABLE capstan.jobs ADD CONSTRAINT no_poison CHECK (job_id NOT LIKE 'poison%%')");
}

TEST(trap_29_a_value_that_the_database_refuses_does_not_depose_leader_after_leader)
{
    struct world *w = world_open();
    refuse_poison(w);
    start_for_long(w, 2);
    CHECK_ERR(node_submit(&w->nodes[0], "before", 1).err, ERR_OK);
    for (uint32_t i = 0; i < 3; i++) {
        char job_id[32];
        struct node *leader = node_await_one(w->nodes, 2, 20000);
        CHECK(leader != NULL);
        CHECK_ERR(node_submit(leader, "poison", 1).err, ERR_INVALID); /* its sender's fault, and it is told so */
        int64_t since_ms = clocks_mono_ms();
        leader = node_await_one(w->nodes, 2, 20000);
        CHECK(leader != NULL);
        snprintf(job_id, sizeof job_id, "after-%u", i);
        CHECK_ERR(node_submit(leader, job_id, 1).err, ERR_OK);
        CHECK(clocks_mono_ms() - since_ms < LONG_TTL_MS / 2); /* nobody had to wait for a lease to run out */
        CHECK_INT(node_status(leader, "before").state, JOB_QUEUED);
    }
    CHECK(world_number(w, "SELECT epoch FROM capstan.cluster_leader") <= 1 + 3);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs"), 4);
    node_kill(&w->nodes[0]);
    node_kill(&w->nodes[1]);
    world_check(w);
    world_close(w);
}

/* They gather in one batch while the one before it is kept waiting. */
TEST(trap_29_who_shares_a_batch_with_a_refused_value_is_not_refused)
{
    struct world *w = world_open();
    struct server_session lock;
    static const char *const gathered[] = {"good-1", "good-2", "poison", "good-3", "good-4"};
    const uint32_t n = sizeof gathered / sizeof gathered[0];
    refuse_poison(w);
    start_for_long(w, 1);
    struct node *node = &w->nodes[0];
    CHECK_ERR(node_submit(node, "before", 1).err, ERR_OK);
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; LOCK TABLE capstan.jobs IN SHARE MODE");
    node_send(node, "first", 1);
    CHECK(world_await(w, 20000,
                      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node-a' "
                      "AND wait_event_type = 'Lock'"));
    for (uint32_t i = 0; i < n; i++) {
        node_send(node, gathered[i], 1);
    }
    for (uint32_t i = 0; i < n; i++) {
        CHECK(node_await_knowing(node, gathered[i], 20000)); /* the core has taken it, so it is in the next batch */
    }
    CHECK_UINT(node_look(node).stats.stepped_down, 0);
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    for (uint32_t i = 0; i < n; i++) {
        bool is_poison = strcmp(gathered[i], "poison") == 0;
        CHECK_ERR(ledger_answer(w->ledger, gathered[i], 20000), is_poison ? ERR_INVALID : ERR_OK);
    }
    CHECK_ERR(ledger_answer(w->ledger, "first", 20000), ERR_OK);
    /* One term ended with the batch, one with the poison alone; none with anything else. */
    CHECK(node_await_leading(node, true, 20000));
    struct node_view view = node_look(node);
    CHECK_UINT(view.stats.stepped_down, 2);
    CHECK_UINT(view.stats.elected, 3);
    CHECK_UINT(view.epoch, 3);
    CHECK_UINT(view.stats.store_errors, 0);
    CHECK_STR(world_sql(w, "SELECT node_id, epoch FROM capstan.cluster_leader"), "node-a|3");
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs"), 6);
    node_stop(node);
    world_check(w);
    world_close(w);
}
