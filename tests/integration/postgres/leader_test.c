/* Leadership on PostgreSQL: what the database itself enforces, whatever becomes of the processes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "integration/postgres/fixture.h"

#define HOUR_MS INT64_C(3600000)

/* ---- another clock for this process ---- */

static int64_t clock_offset_s; /* of the wall clock, not of the monotonic one */

/* Stands in for the C library's, for everything in this program and the libraries that it uses. */
time_t time(time_t *out)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    time_t shifted = now.tv_sec + (time_t)clock_offset_s;
    if (out != NULL) {
        *out = shifted;
    }
    return shifted;
}

static void check_leads_for(struct fixture *f, struct store *challenger, int64_t ttl_ms)
{
    struct leader leader = {0};
    struct leader_claim claim = fixture_claim("second", ttl_ms);
    CHECK_CALL(f, store_lead(challenger, &claim, &f->arena, &leader, &f->e), ERR_BUSY);
    CHECK_STR(leader.node_id, "first");
    CHECK(leader.expires_in_ms > 0);
    CHECK(leader.expires_in_ms <= ttl_ms);
    int64_t database_ms = server_number(&f->server, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint");
    CHECK(leader.now_ms <= database_ms);
    CHECK(leader.now_ms > database_ms - 60000);
}

TEST(the_clock_of_a_node_makes_no_difference)
{
    static const int64_t offsets_s[] = {-3600, 0, 3600};
    struct fixture f;
    struct store *challenger = NULL;
    struct leader leader;
    fixture_lead(&f, 20000);
    CHECK_CALL(&f, store_open(f.server.url, &challenger, &f.e), ERR_OK);
    for (size_t i = 0; i < 3; i++) {
        int64_t now_ms = 0;
        clock_offset_s = offsets_s[i];
        check_leads_for(&f, challenger, 20000);
        CHECK_CALL(&f, store_renew(f.store, &f.fence, 20000, &now_ms, &f.e), ERR_OK);
        CHECK_CALL(&f, fixture_commit(f.store, &f.fence, i + 1, 1, &f.e), ERR_OK);
    }
    clock_offset_s = -3600;
    int64_t now_ms = 0;
    struct leader_claim claim = fixture_claim("second", HOUR_MS);
    CHECK_CALL(&f, store_renew(f.store, &f.fence, 200, &now_ms, &f.e), ERR_OK);
    fixture_outwait(&f);
    CHECK_CALL(&f, store_lead(challenger, &claim, &f.arena, &leader, &f.e), ERR_OK);
    CHECK_UINT(leader.fence.epoch, f.fence.epoch + 1);
    clock_offset_s = 0;
    store_close(challenger);
    fixture_close(&f);
}

/* ---- the fence ---- */

TEST(the_fence_fails_inside_the_database)
{
    struct fixture f;
    fixture_lead(&f, HOUR_MS);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 1, 2, &f.e), ERR_OK);
    free(server_sql(&f.server, "UPDATE capstan.cluster_leader SET epoch = epoch + 1"));
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 2, 2, &f.e), ERR_FENCED);
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.jobs"), 1);
    f.fence.epoch++;
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 2, 2, &f.e), ERR_OK);
    f.fence.token.bits[1]++;
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 3, 2, &f.e), ERR_FENCED);
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.tasks"), 4);
    CHECK(server_try(&f.server, "SELECT capstan.fence(2, 'x')") != 0);
    fixture_close(&f);
}

TEST(a_renewal_waits_for_no_commit)
{
    struct fixture f;
    struct server_session commit;
    int64_t now_ms = 0;
    fixture_lead(&f, HOUR_MS);
    server_session_open(&commit, &f.server);
    server_session_run(&commit, "BEGIN");
    server_session_run(&commit, "SELECT capstan.fence(epoch, token) FROM capstan.cluster_leader");
    for (int i = 0; i < 3; i++) {
        int64_t before_ms = clock_ms();
        CHECK_CALL(&f, store_renew(f.store, &f.fence, HOUR_MS, &now_ms, &f.e), ERR_OK);
        CHECK(clock_ms() - before_ms < 2000);
    }
    server_session_run(&commit, "COMMIT");
    server_session_close(&commit);
    fixture_close(&f);
}

/* The row has been renewed meanwhile, by the same leader: the lock is on an older version of it. */
TEST(a_take_over_ends_whoever_still_holds_the_fence)
{
    struct fixture f;
    struct server_session commit;
    struct leader leader;
    int64_t now_ms = 0;
    struct leader_claim claim = fixture_claim("heir", HOUR_MS);
    fixture_lead(&f, HOUR_MS);
    server_session_open(&commit, &f.server);
    server_session_run(&commit, "SET application_name = 'holder'; BEGIN");
    server_session_run(&commit, "SELECT capstan.fence(epoch, token) FROM capstan.cluster_leader");
    CHECK_CALL(&f, store_renew(f.store, &f.fence, 300, &now_ms, &f.e), ERR_OK);
    fixture_outwait(&f);
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holder'"), 1);
    CHECK_CALL(&f, store_lead(f.store, &claim, &f.arena, &leader, &f.e), ERR_OK);
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holder'"), 0);
    CHECK_UINT(leader.fence.epoch, 2);
    server_session_close(&commit);
    fixture_close(&f);
}

/* ---- leaders that stop ---- */

struct frozen {
    const char *url;
    int ready[2]; /* written when it leads */
    int go[2];    /* read before it commits */
};

enum { CHILD_CANNOT_LEAD = 1, CHILD_COMMITTED, CHILD_NOT_FENCED, CHILD_FENCED = 10, CHILD_LOST_THEN_FENCED };

/* Leads for a short while and commits; commits again when it is told to, and once more. */
static int be_frozen(void *context)
{
    struct frozen *frozen = context;
    struct store *store = NULL;
    struct arena arena = {0};
    struct leader leader;
    struct leader_claim claim = fixture_claim("frozen", 2000);
    char byte = 'x';
    if (store_open(frozen->url, &store, NULL) != ERR_OK || store_lead(store, &claim, &arena, &leader, NULL) != ERR_OK ||
        fixture_commit(store, &leader.fence, 99, 1, NULL) != ERR_OK || write(frozen->ready[1], &byte, 1) != 1 ||
        read(frozen->go[0], &byte, 1) != 1) {
        return CHILD_CANNOT_LEAD;
    }
    enum err first = fixture_commit(store, &leader.fence, 100, 1, NULL);
    enum err second = fixture_commit(store, &leader.fence, 101, 1, NULL);
    store_close(store);
    arena_deinit(&arena);
    if (first == ERR_OK || second == ERR_OK) {
        return CHILD_COMMITTED;
    }
    if (second != ERR_FENCED) {
        return CHILD_NOT_FENCED;
    }
    return first == ERR_FENCED ? CHILD_FENCED : CHILD_LOST_THEN_FENCED;
}

static pid_t start_frozen(struct fixture *f, struct frozen *frozen)
{
    char byte;
    frozen->url = f->server.url;
    CHECK_INT(pipe(frozen->ready), 0);
    CHECK_INT(pipe(frozen->go), 0);
    pid_t pid = child_start(be_frozen, frozen);
    CHECK_INT(read(frozen->ready[0], &byte, 1), 1);
    return pid;
}

static void end_frozen(struct frozen *frozen)
{
    for (int i = 0; i < 2; i++) {
        close(frozen->ready[i]);
        close(frozen->go[i]);
    }
}

static void take_over(struct fixture *f)
{
    struct leader leader;
    struct leader_claim claim = fixture_claim("heir", HOUR_MS);
    fixture_outwait(f);
    int64_t before_ms = clock_ms();
    CHECK_CALL(f, store_lead(f->store, &claim, &f->arena, &leader, &f->e), ERR_OK);
    CHECK(clock_ms() - before_ms < 5000);
    CHECK_UINT(leader.fence.epoch, 2);
    f->fence = leader.fence;
}

TEST(a_leader_that_was_stopped_at_rest_is_fenced_when_it_goes_on)
{
    struct fixture f;
    struct frozen frozen;
    fixture_open(&f);
    CHECK_CALL(&f, store_migrate(f.store, STORE_NEWEST, &f.e), ERR_OK);
    pid_t pid = start_frozen(&f, &frozen);
    kill(pid, SIGSTOP);
    take_over(&f);
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 1, 1, &f.e), ERR_OK);
    CHECK_INT(write(frozen.go[1], "x", 1), 1);
    kill(pid, SIGCONT);
    CHECK_INT(child_wait(pid), CHILD_FENCED);
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.jobs"), 2);
    end_frozen(&frozen);
    fixture_close(&f);
}

/* Its transaction is held up by a lock on a table, at a point where it has passed the fence. */
TEST(a_leader_that_was_stopped_inside_a_transaction_is_got_rid_of)
{
    struct fixture f;
    struct frozen frozen;
    struct server_session lock;
    fixture_open(&f);
    CHECK_CALL(&f, store_migrate(f.store, STORE_NEWEST, &f.e), ERR_OK);
    pid_t pid = start_frozen(&f, &frozen);
    server_session_open(&lock, &f.server);
    server_session_run(&lock, "BEGIN");
    server_session_run(&lock, "LOCK TABLE capstan.task_events IN ACCESS EXCLUSIVE MODE");
    CHECK_INT(write(frozen.go[1], "x", 1), 1);
    while (server_number(&f.server, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
        pause_ms(10);
    }
    kill(pid, SIGSTOP);
    take_over(&f);
    server_session_run(&lock, "ROLLBACK");
    CHECK_CALL(&f, fixture_commit(f.store, &f.fence, 1, 1, &f.e), ERR_OK);
    kill(pid, SIGCONT);
    CHECK_INT(child_wait(pid), CHILD_LOST_THEN_FENCED);
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.jobs"), 2);
    CHECK_INT(server_number(&f.server, "SELECT count(*) FROM capstan.task_events"), 2);
    server_session_close(&lock);
    end_frozen(&frozen);
    fixture_close(&f);
}

/* ---- elections ---- */

struct claimant {
    const char *url;
    int start; /* becomes readable when all may start */
};

static int claim_once(void *context)
{
    struct claimant *claimant = context;
    struct store *store = NULL;
    struct arena arena = {0};
    struct leader leader;
    char node[16];
    char byte;
    snprintf(node, sizeof node, "n%d", (int)getpid());
    struct leader_claim claim = fixture_claim(node, HOUR_MS);
    if (store_open(claimant->url, &store, NULL) != ERR_OK) {
        return 2;
    }
    if (read(claimant->start, &byte, 1) < 0) { /* ends when the parent closes the other side */
        return 2;
    }
    struct error e = {0};
    enum err err = store_lead(store, &claim, &arena, &leader, &e);
    if (err != ERR_OK && err != ERR_BUSY) {
        fprintf(stderr, "%s\n", e.message);
    }
    store_close(store);
    arena_deinit(&arena);
    return err == ERR_OK ? 1 : err == ERR_BUSY ? 0 : 2;
}

TEST(of_five_that_claim_at_once_one_leads)
{
    struct fixture f;
    fixture_open(&f);
    CHECK_CALL(&f, store_migrate(f.store, STORE_NEWEST, &f.e), ERR_OK);
    for (int round = 1; round <= 10; round++) {
        int start[2];
        pid_t pids[5];
        int n_leaders = 0;
        CHECK_INT(pipe(start), 0);
        struct claimant claimant = {f.server.url, start[0]};
        for (int i = 0; i < 5; i++) {
            pids[i] = child_start(claim_once, &claimant);
        }
        pause_ms(100);
        CHECK_INT(write(start[1], "12345", 5), 5);
        for (int i = 0; i < 5; i++) {
            int result = child_wait(pids[i]);
            CHECK(result == 0 || result == 1);
            n_leaders += result;
        }
        CHECK_INT(n_leaders, 1);
        CHECK_INT(server_number(&f.server, "SELECT epoch FROM capstan.cluster_leader"), round);
        close(start[0]);
        close(start[1]);
        free(server_sql(&f.server, "UPDATE capstan.cluster_leader SET expires_at = to_timestamp(0)"));
    }
    fixture_close(&f);
}

TEST(the_row_names_the_backend_of_who_took_the_leadership_whoever_renews_it)
{
    struct fixture f;
    struct store *other = NULL;
    int64_t now_ms = 0;
    fixture_lead(&f, HOUR_MS);
    long long first = server_number(&f.server, "SELECT backend_pid FROM capstan.cluster_leader");
    CHECK_CALL(&f, store_open(f.server.url, &other, &f.e), ERR_OK);
    CHECK_CALL(&f, store_renew(other, &f.fence, HOUR_MS, &now_ms, &f.e), ERR_OK);
    CHECK_INT(server_number(&f.server, "SELECT backend_pid FROM capstan.cluster_leader"), first);
    free(server_sql(&f.server, "SELECT pg_terminate_backend(backend_pid, 10000) FROM capstan.cluster_leader"));
    while (store_renew(f.store, &f.fence, HOUR_MS, &now_ms, &f.e) != ERR_OK) { /* it finds out, and connects anew */
        CHECK_ERR(f.e.code, ERR_UNAVAILABLE);
    }
    CHECK(server_number(&f.server, "SELECT backend_pid FROM capstan.cluster_leader") != first);
    store_close(other);
    fixture_close(&f);
}
