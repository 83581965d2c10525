/*
 * Trouble with the database under a leader: it is cut off, silent, read-only, full. The leader stops acknowledging at
 * once, says that it does not lead any more when its lease has run out, and leads again by itself when the trouble is
 * over. Nothing that it acknowledged is missing.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integration/coordinator/clocks.h"
#include "integration/coordinator/world.h"
#include "integration/store/subject.h"

#define TTL_MS 1000
#define CLIENTS 3
#define SETTLE_MS 1000  /* for answers that were on their way to the clients when the trouble began */
#define NOTICED_MS 4500 /* less than any time-out of the store itself, the shortest of which is 5 s */

/* One leader whose clients stream. */
static struct node *start_streaming(struct world *w, bool relayed)
{
    struct node *node = world_start(w, (struct node_options){.node_id = "node-a",
                                                             .url = world_url(w, "node-a", relayed),
                                                             .leader_ttl_ms = TTL_MS,
                                                             .n_clients = CLIENTS});
    CHECK(ledger_await(w->ledger, 30, 30000));
    return node;
}

/* The trouble has begun: nothing is acknowledged any more, and soon it does not lead any more. */
static void check_stops(struct world *w, const struct node *node, int64_t began_ms)
{
    CHECK(node_await_leading(node, false, NOTICED_MS));
    CHECK_ERR(node_submit(node, "never", 1).err, ERR_PRECONDITION);
    clocks_pause(TTL_MS + SETTLE_MS);
    CHECK_UINT(ledger_acknowledged(w->ledger, began_ms + SETTLE_MS, INT64_MAX), 0);
}

/* It is over: it leads again, under another epoch, and everything that it ever acknowledged is there. */
static void check_resumes(struct world *w, struct node *node)
{
    CHECK(ledger_await(w->ledger, 30, 30000));
    CHECK(node_look(node).stats.elected >= 2);
    node_stop(node);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id = 'never'"), 0);
    world_check(w);
    world_close(w);
}

#define CUT_SQL                                                                                                        \
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'node-%%' "                    \
    "AND datname = current_database()"

TEST(a_leader_whose_connections_are_cut_leads_again)
{
    struct world *w = world_open();
    struct node *node = start_streaming(w, false);
    /* A cut between two commits may go by unnoticed. */
    for (int i = 0; i < 4 || (i < 40 && node_look(node).stats.elected < 2); i++) {
        world_sql(w, CUT_SQL);
        CHECK(ledger_await(w->ledger, 20, 20000));
    }
    check_resumes(w, node);
}

/* One whose lease is longer than the test waits, and that gives up if another leads. */
static struct node *start_that_must_lead(struct world *w)
{
    struct node *node = world_start(
        w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = 90000, .n_clients = CLIENTS, .must_lead = true});
    CHECK(ledger_await(w->ledger, 30, 30000));
    return node;
}

/* The row that it meets is its own. It does not wait until that has run out, and takes nobody else for its owner. */
TEST(a_leader_that_lost_its_connection_does_not_take_its_own_row_for_anothers)
{
    struct world *w = world_open();
    world_watch(w);
    struct node *node = start_that_must_lead(w);
    for (int i = 0; i < 3; i++) {
        world_sql(w, CUT_SQL);
        CHECK(ledger_await(w->ledger, 20, 30000));
    }
    server_stop(&w->server);
    server_restart(&w->server);
    CHECK(ledger_await(w->ledger, 20, 30000));
    server_kill(&w->server);
    server_restart(&w->server);
    CHECK(ledger_await(w->ledger, 20, 30000));
    CHECK(!node_look(node).gave_up);
    world_check_history(w);
    check_resumes(w, node);
}

/* The row cannot be handed back for a while, can be read all the same, and is far from running out. */
TEST(a_leader_that_cannot_hand_its_row_back_names_nobody_and_waits)
{
    struct world *w = world_open();
    struct node *node = start_that_must_lead(w);
    world_sql(w, "CREATE FUNCTION public.stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "RAISE EXCEPTION 'nobody changes this'; END $$;"
                 "CREATE TRIGGER stay BEFORE UPDATE ON capstan.cluster_leader FOR EACH ROW "
                 "EXECUTE FUNCTION public.stay()");
    /* A cut between two commits is no more than a new connection to a leader. */
    for (int i = 0; i < 100 && !node_await_leading(node, false, 200); i++) {
        world_sql(w, CUT_SQL);
    }
    CHECK(node_await_leading(node, false, 20000));
    uint64_t errors = node_look(node).stats.store_errors;
    struct node_view view;
    int64_t until_ms = clocks_mono_ms() + 60000;
    while ((view = node_look(node)).stats.store_errors < errors + 4) {
        CHECK(view.leader.address[0] == '\0' || view.leader.is_self); /* at most that it has not noticed yet */
        CHECK(!view.gave_up);
        CHECK(clocks_mono_ms() < until_ms);
        clocks_pause(5);
    }
    CHECK_UINT(view.n_troubles, 1); /* told once */
    world_sql(w, "DROP TRIGGER stay ON capstan.cluster_leader");
    check_resumes(w, node);
}

/*
 * A commit whose connection was cut goes on in the database: it waits for a lock that the test holds. Its leader is elected
 * again meanwhile; what it did not hear the end of does not land afterwards.
 */
TEST(a_commit_that_outlives_its_connection_does_not_land_in_the_next_term)
{
    struct world *w = world_open();
    struct server_session lock;
    relay_prepare(&w->relay);
    relay_start(&w->relay, w->server.dir);
    struct node *node = world_start(
        w, (struct node_options){
               .node_id = "node-a", .url = world_url(w, "node-a", true), .leader_ttl_ms = 90000, .must_lead = true});
    CHECK(node_await_leading(node, true, 20000));
    CHECK_ERR(node_submit(node, "before", 1).err, ERR_OK);
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; LOCK TABLE capstan.task_events IN SHARE MODE");
    node_send(node, "late", 1);
    CHECK(world_await(w, 20000,
                      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node-a' "
                      "AND wait_event_type = 'Lock'"));
    relay_cut(&w->relay);
    relay_start(&w->relay, w->server.dir);
    CHECK_ERR(ledger_answer(w->ledger, "late", 20000), ERR_PRECONDITION);
    for (int64_t until_ms = clocks_mono_ms() + 30000; node_look(node).epoch != 2; clocks_pause(5)) {
        CHECK(clocks_mono_ms() < until_ms);
    }
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    CHECK_ERR(node_submit(node, "after", 1).err, ERR_OK);
    CHECK_ERR(node_status(node, "late").err, ERR_NOT_FOUND);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id = 'late'"), 0);
    node_check_equal(node);
    world_close(w);
}

/* Whoever is elected cannot read what there is, and says so once; it does not help that others try in between. */
TEST(nodes_that_cannot_load_what_there_is_say_so_once_and_lead_when_it_is_mended)
{
    struct world *w = world_open();
    struct node *node = world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = 3000});
    CHECK(node_await_leading(node, true, 20000));
    CHECK_ERR(node_submit(node, "damaged", 1).err, ERR_OK);
    node_stop(node);
    world_sql(w, "CREATE TABLE public.whole AS SELECT * FROM capstan.stages;"
                 "UPDATE capstan.stages SET spec = '[]'");
    struct node *pair[2];
    for (uint32_t i = 0; i < 2; i++) {
        pair[i] = world_start(w, (struct node_options){.node_id = i == 0 ? "node-b" : "node-c", .leader_ttl_ms = 3000});
    }
    for (uint32_t i = 0; i < 2; i++) {
        for (int64_t until_ms = clocks_mono_ms() + 60000; node_look(pair[i]).stats.store_errors < 5; clocks_pause(5)) {
            CHECK(clocks_mono_ms() < until_ms);
        }
        CHECK_UINT(node_look(pair[i]).n_troubles, 1);
        CHECK_UINT(node_look(pair[i]).epoch, 0);
    }
    world_sql(w, "UPDATE capstan.stages s SET spec = whole.spec FROM public.whole WHERE s.job_id = whole.job_id");
    CHECK(node_await_one(&w->nodes[1], 2, 30000) != NULL);
    world_close(w);
}

/* Nobody waits for what is pruned, so nobody would notice. */
TEST(a_leader_that_cannot_prune_says_so_once_and_goes_on)
{
    struct world *w = world_open();
    world_sql(w, "CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "RAISE EXCEPTION 'nothing is removed here'; END $$;"
                 "CREATE TRIGGER keep BEFORE DELETE ON capstan.jobs FOR EACH ROW EXECUTE FUNCTION public.keep()");
    struct node *node =
        world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = 30000, .history_ttl_ms = 1000});
    CHECK(node_await_leading(node, true, 20000));
    CHECK_ERR(node_submit(node, "old", 1).err, ERR_OK);
    CHECK_INT(node_cancel(node, "old").state, JOB_CANCELED);
    for (int64_t until_ms = clocks_mono_ms() + 30000; node_look(node).stats.prune_errors < 3; clocks_pause(10)) {
        CHECK(clocks_mono_ms() < until_ms);
    }
    CHECK_ERR(node_submit(node, "new", 1).err, ERR_OK);
    struct node_view view = node_look(node);
    CHECK_UINT(view.epoch, 1);
    CHECK_UINT(view.n_prune_troubles, 1);
    CHECK_UINT(view.n_prune_mended, 0);
    CHECK(view.stats.store_errors >= view.stats.prune_errors);
    world_sql(w, "DROP TRIGGER keep ON capstan.jobs");
    CHECK(world_await(w, 30000, "SELECT (count(*) = 0)::int FROM capstan.jobs WHERE job_id = 'old'"));
    for (int64_t until_ms = clocks_mono_ms() + 20000; node_look(node).n_prune_mended == 0; clocks_pause(10)) {
        CHECK(clocks_mono_ms() < until_ms);
    }
    CHECK_UINT(node_look(node).n_prune_mended, 1);
    world_close(w);
}

TEST(a_leader_whose_server_is_down_for_a_while_stops_and_resumes)
{
    struct world *w = world_open();
    struct node *node = start_streaming(w, false);
    server_stop(&w->server);
    check_stops(w, node, clocks_mono_ms());
    server_restart(&w->server);
    check_resumes(w, node);
}

/* Nobody asks it anything, so nothing but its own deadline can tell it. */
TEST(an_idle_leader_whose_server_is_gone_says_so_when_its_lease_has_run_out)
{
    struct world *w = world_open();
    struct node *node = world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = TTL_MS});
    CHECK(node_await_leading(node, true, 20000));
    server_stop(&w->server);
    bool noticed = node_await_leading(node, false, NOTICED_MS);
    server_restart(&w->server);
    CHECK(noticed);
    CHECK(node_await_leading(node, true, 20000));
    world_close(w);
}

/* A server that is reached and says nothing: every call waits for its own time-out, which is longer than the lease. */
TEST(a_leader_whose_server_falls_silent_does_not_keep_its_clients_waiting)
{
    struct world *w = world_open();
    relay_prepare(&w->relay);
    relay_start(&w->relay, w->server.dir);
    struct node *node = start_streaming(w, true);
    int64_t began_ms = clocks_mono_ms();
    relay_freeze(&w->relay);
    node_send(node, "never", 1); /* while it still believes that it leads */
    CHECK(node_await_leading(node, false, NOTICED_MS));
    struct client_answer answer = node_submit(node, "never", 1);
    int64_t took_ms = clocks_mono_ms() - began_ms;
    clocks_pause(SETTLE_MS);
    CHECK_UINT(ledger_acknowledged(w->ledger, began_ms + SETTLE_MS, INT64_MAX), 0);
    relay_thaw(&w->relay);
    CHECK_ERR(answer.err, ERR_PRECONDITION);
    CHECK(took_ms < 9000);
    check_resumes(w, node);
}

TEST(a_read_only_database_stops_the_leader_until_it_can_be_written_again)
{
    struct world *w = world_open();
    struct node *node = start_streaming(w, false);
    world_sql(w, "ALTER DATABASE %s SET default_transaction_read_only = on", w->database);
    world_sql(w, CUT_SQL);
    check_stops(w, node, clocks_mono_ms());
    /* This very session is read-only, too, unless it says otherwise. */
    world_sql(w, "BEGIN READ WRITE; ALTER DATABASE %s RESET default_transaction_read_only; COMMIT", w->database);
    check_resumes(w, node);
}

/* The session's time-out is a minute; the first statement of the transaction makes it short, the last one is slow. */
TEST(a_statement_that_times_out_ends_the_term_and_nothing_else)
{
    struct world *w = world_open();
    struct node *node = start_streaming(w, false);
    uint32_t before = world_log_lines(w, "<node-a>", "57014 ERROR");
    world_sql(w, "CREATE FUNCTION public.hurry() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "PERFORM set_config('statement_timeout', '100', true); RETURN NULL; END $$;"
                 "CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "PERFORM pg_sleep(5); RETURN NULL; END $$;"
                 "CREATE TRIGGER hurry BEFORE INSERT OR UPDATE ON capstan.tasks FOR EACH STATEMENT "
                 "EXECUTE FUNCTION public.hurry();"
                 "CREATE TRIGGER dawdle BEFORE INSERT ON capstan.task_events FOR EACH STATEMENT "
                 "EXECUTE FUNCTION public.dawdle()");
    int64_t began_ms = clocks_mono_ms();
    while (world_log_lines(w, "<node-a>", "57014 ERROR") < before + 2) {
        CHECK(clocks_mono_ms() < began_ms + 30000);
        clocks_pause(20);
    }
    clocks_pause(SETTLE_MS);
    CHECK_UINT(ledger_acknowledged(w->ledger, began_ms + SETTLE_MS, INT64_MAX), 0);
    world_sql(w, "DROP TRIGGER hurry ON capstan.tasks; DROP TRIGGER dawdle ON capstan.task_events");
    check_resumes(w, node);
}

/* A commit that waits for a lock for longer than the lease. */
TEST(a_leader_whose_commit_waits_for_a_lock_does_not_keep_its_clients_waiting)
{
    struct world *w = world_open();
    struct server_session lock;
    struct node *node = start_streaming(w, false);
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; LOCK TABLE capstan.task_events IN SHARE MODE");
    int64_t began_ms = clocks_mono_ms();
    CHECK(node_await_leading(node, false, NOTICED_MS));
    struct client_answer answer = node_submit(node, "never", 1);
    int64_t took_ms = clocks_mono_ms() - began_ms;
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    CHECK_ERR(answer.err, ERR_PRECONDITION);
    CHECK(took_ms < 9000);
    check_resumes(w, node);
}

/*
 * Loading what there is takes longer than the lease. The lease must outlive the load all the same: otherwise the two take
 * the leadership from each other for ever, each while the other one loads.
 */
TEST(a_load_that_takes_longer_than_the_lease_does_not_keep_everybody_from_leading)
{
    struct world *w = world_open();
    struct node *node = world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = 30000});
    CHECK(node_await_leading(node, true, 20000));
    CHECK_ERR(node_submit(node, "large", 100000).err, ERR_OK);
    node_stop(node);
    struct node *a = world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = 100});
    struct node *b = world_start(w, (struct node_options){.node_id = "node-b", .leader_ttl_ms = 100});
    uint32_t n_done = 0;
    int64_t until_ms = clocks_mono_ms() + 180000;
    for (uint32_t i = 0; n_done < 5 && clocks_mono_ms() < until_ms; i++) {
        char job_id[32];
        snprintf(job_id, sizeof job_id, "small-%u", i);
        n_done += node_submit(i % 2 == 0 ? a : b, job_id, 1).err == ERR_OK;
        clocks_pause(25);
    }
    int64_t epoch = world_number(w, "SELECT epoch FROM capstan.cluster_leader");
    node_kill(a);
    node_kill(b);
    print_message("%u commands acknowledged, epoch %lld\n", n_done, (long long)epoch);
    CHECK_UINT(n_done, 5);
    world_close(w);
}

/* An ended job is not in memory: the store is asked whether there is one. If it cannot say, nobody knows. */
TEST(a_job_that_cannot_be_looked_up_is_not_taken_for_a_new_one)
{
    struct world *w = world_open();
    struct server_session lock;
    struct node_options options = {.node_id = "node-a", .leader_ttl_ms = 30000};
    struct node *node = world_start(w, options);
    CHECK(node_await_leading(node, true, 20000));
    CHECK_ERR(node_submit(node, "old", 1).err, ERR_OK);
    CHECK_INT(node_cancel(node, "old").state, JOB_CANCELED);
    const char *was = world_sql(w, "SELECT state, submitted_at_ms, finished_at_ms FROM capstan.jobs");
    node_stop(node);
    node = world_start(w, options);
    CHECK(node_await_leading(node, true, 20000));
    CHECK_ERR(node_submit(node, "other", 1).err, ERR_OK);
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; LOCK TABLE capstan.jobs IN ACCESS EXCLUSIVE MODE");
    node_send(node, "old", 3);
    CHECK(world_await(w, 20000,
                      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node-a' "
                      "AND wait_event_type = 'Lock'"));
    world_sql(w, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'node-a' "
                 "AND wait_event_type = 'Lock'");
    clocks_pause(200); /* a job that was taken for new is on its way by now, and waits for the lock, too */
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    (void)ledger_answer(w->ledger, "old", 20000); /* an error, or what became of it, but never a new job */
    CHECK(node_await_leading(node, true, 60000));
    CHECK_STR(world_sql(w, "SELECT state, submitted_at_ms, finished_at_ms FROM capstan.jobs WHERE job_id = 'old'"),
              was);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.tasks WHERE job_id = 'old'"), 1);
    struct client_answer again = node_submit(node, "old", 1);
    CHECK(again.existed);
    CHECK_INT(again.state, JOB_CANCELED);
    node_stop(node);
    world_check(w);
    world_close(w);
}

/* ---- full disks ---- */

/* A small file system of its own; skips the test if this user may not make one. */
static void mount_small(const char *dir, const char *size)
{
    if (mount("capstan-test", dir, "tmpfs", 0, size) != 0) {
        rmdir(dir);
        print_message("a file system of its own cannot be mounted here (%s): this test is left out\n", strerror(errno));
        skip();
    }
}

/* Writes until nothing more fits. */
static void fill(const char *path)
{
    static char block[65536];
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    CHECK(fd >= 0);
    while (write(fd, block, sizeof block) > 0) {
    }
    CHECK_INT(errno, ENOSPC);
    close(fd);
}

/* A place for data files that belongs to the server's user. */
static void make_tablespace(const char *place)
{
    char data[128];
    struct stat owner;
    struct world *w = world_open();
    snprintf(data, sizeof data, "%s/data", w->server.dir);
    CHECK_INT(stat(data, &owner), 0);
    CHECK_INT(mkdir(place, 0700), 0);
    CHECK_INT(chown(place, owner.st_uid, owner.st_gid), 0);
    world_sql(w, "CREATE TABLESPACE small LOCATION '%s'", place);
    world_close(w);
}

static void drop_tablespace(struct world *w)
{
    char database[32];
    snprintf(database, sizeof database, "%s", w->database);
    world_close(w);
    w = world_open();
    world_sql(w, "DROP DATABASE %s WITH (FORCE)", database);
    world_sql(w, "DROP TABLESPACE small");
    world_close(w);
}

/* Data files lie on a disk of their own; the log of the server, without which it would stop, does not. */
TEST(a_full_disk_stops_the_leader_until_there_is_room_again_postgres)
{
    char dir[] = "/tmp/capstan-small-XXXXXX";
    char place[64], filler[64];
    CHECK(mkdtemp(dir) != NULL);
    mount_small(dir, "size=32m,mode=777");
    snprintf(place, sizeof place, "%s/data", dir);
    snprintf(filler, sizeof filler, "%s/filler", dir);
    make_tablespace(place);
    struct world *w = world_open_in("small");
    struct node *node = start_streaming(w, false);
    fill(filler);
    int64_t until_ms = clocks_mono_ms() + 30000; /* there is some room in the pages that exist */
    while (world_log_lines(w, "<node-a>", "53100 ERROR") == 0) {
        CHECK(clocks_mono_ms() < until_ms);
        clocks_pause(20);
    }
    uint64_t elected = node_look(node).stats.elected;
    CHECK_ERR(node_submit(node, "never", 20000).err, ERR_PRECONDITION);
    clocks_pause(TTL_MS);
    CHECK_INT(unlink(filler), 0);
    CHECK_INT(world_number(w, "SELECT count(*) FROM capstan.jobs WHERE job_id = 'never'"),
              0); /* before, nobody new gets in */
    CHECK(ledger_await(w->ledger, 30, 30000));
    CHECK(node_look(node).stats.elected > elected);
    node_stop(node);
    world_check(w);
    drop_tablespace(w);
    CHECK_INT(umount(dir), 0);
    rmdir(dir);
}

static void sqlite_full_disk(struct subject *s)
{
    char dir[] = "/tmp/capstan-small-XXXXXX";
    char filler[64];
    CHECK(mkdtemp(dir) != NULL);
    mount_small(dir, "size=8m");
    snprintf(filler, sizeof filler, "%s/filler", dir);
    struct ledger *ledger = ledger_new();
    struct node node;
    struct store *store = NULL;
    struct node_options options = {.url = arena_format(&s->arena, "sqlite:%s/db", dir),
                                   .node_id = "node-a",
                                   .leader_ttl_ms = TTL_MS,
                                   .n_clients = CLIENTS};
    CHECK_OK(s, store_open(options.url, &store, &s->e));
    CHECK_OK(s, store_migrate(store, STORE_NEWEST, &s->e));
    node_start(&node, ledger, &options);
    CHECK(ledger_await(ledger, 30, 30000));
    fill(filler);
    uint32_t refused = atomic_load(&ledger->n_refused);
    for (int i = 0; i < 1000 && atomic_load(&ledger->n_refused) < refused + 50; i++) {
        clocks_pause(20);
    }
    CHECK(atomic_load(&ledger->n_refused) >= refused + 50);
    CHECK_ERR(node_submit(&node, "never", 64).err, ERR_PRECONDITION);
    CHECK_UINT(node_look(&node).epoch, 0);
    int64_t began_ms = clocks_mono_ms();
    clocks_pause(2 * TTL_MS);
    CHECK_UINT(ledger_acknowledged(ledger, began_ms, INT64_MAX), 0);
    CHECK_INT(unlink(filler), 0);
    CHECK(ledger_await(ledger, 30, 30000));
    node_stop(&node);
    ledger_check(ledger, 0, store);
    ledger_check_whole(store);
    store_close(store);
    ledger_free(ledger);
    CHECK_INT(umount(dir), 0);
    rmdir(dir);
}

TEST(a_full_disk_stops_the_leader_until_there_is_room_again_sqlite)
{
    subject_run(ENGINE_SQLITE, sqlite_full_disk);
}
