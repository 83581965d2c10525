/* leader_test.c - who leads, for how long, and that nobody else can write. */
#include <string.h>

#include "content.h"
#include "crowd.h"
#include "picture.h"
#include "store/memory.h"

#define SHORT_MS 300
#define LONG_MS INT64_C(3600000)

static struct leader lead(struct subject *s, struct store *store, const char *node_id, int64_t ttl_ms)
{
    struct leader leader = {0};
    struct leader_claim claim = subject_claim(node_id, ttl_ms);
    CHECK_OK(s, store_lead(store, &claim, &s->arena, &leader, &s->e));
    CHECK(lease_token_equal(leader.fence.token, claim.token));
    return leader;
}

/* Everything that only a leader may do is refused, and nothing of it happens. */
static void check_fenced(struct subject *s, struct store *store, struct fence fence)
{
    struct rows rows = {0};
    struct picture before = {0};
    struct picture after = {0};
    struct store *usual = s->store;
    int64_t now_ms = -1;
    bool more = true;
    s->store = store;
    picture_load(&before, s);
    add_job(&rows, "must not appear");
    const struct row *head = rows.first;
    struct payload payload = {.job_id = "must not appear", .digest = digest_from(9), .bytes = "x", .n_bytes = 1};
    struct data_set set = {.name = "must not appear", .source = "s", .format = "f"};
    struct batch batch = {
        .rows = &head, .n_rows = 1, .payloads = &payload, .n_payloads = 1, .data_sets = &set, .n_data_sets = 1};
    struct batch empty = {0};
    CHECK_FAILS(s, store_commit(store, &fence, &batch, &s->e), ERR_FENCED);
    CHECK_FAILS(s, store_commit(store, &fence, &empty, &s->e), ERR_FENCED);
    CHECK_FAILS(s, store_renew(store, &fence, LONG_MS, &now_ms, &s->e), ERR_FENCED);
    CHECK_FAILS(s, store_prune(store, &fence, INT64_MAX, 1000, &more, &s->e), ERR_FENCED);
    picture_load(&after, s);
    picture_data_sets(&after, s);
    picture_payload(&after, s, "must not appear", payload.digest);
    CHECK_PICTURES(&after, &before);
    s->store = usual;
    picture_deinit(&before);
    picture_deinit(&after);
    rows_deinit(&rows);
}

CONTRACT(nobody_leads_a_new_cluster)
{
    struct leader leader;
    struct fence fence = {.epoch = 0};
    s->store = subject_open(s);
    CHECK_OK(s, store_migrate(s->store, STORE_NEWEST, &s->e));
    CHECK_FAILS(s, store_leader(s->store, &s->arena, &leader, &s->e), ERR_NOT_FOUND);
    check_fenced(s, s->store, fence);
    fence = (struct fence){.epoch = 1, .token = {{3, 4}}};
    check_fenced(s, s->store, fence);
    CHECK_OK(s, store_resign(s->store, &fence, &s->e)); /* there is nothing to lose */
}

CONTRACT(one_leads_and_the_others_are_told_who)
{
    struct leader seen = {0};
    struct leader_claim claim = subject_claim("second", LONG_MS);
    struct store *first = subject_open(s);
    CHECK_OK(s, store_migrate(first, STORE_NEWEST, &s->e));
    struct leader leader = lead(s, first, "first", LONG_MS);
    CHECK(leader.fence.epoch > 0);
    CHECK_STR(leader.node_id, "first");
    CHECK_STR(leader.address, "host:7400");
    CHECK(leader.expires_in_ms > LONG_MS - 60000);
    CHECK(leader.expires_in_ms <= LONG_MS);
    CHECK(leader.now_ms > INT64_C(1600000000000));
    struct store *second = subject_open(s);
    CHECK_FAILS(s, store_lead(second, &claim, &s->arena, &seen, &s->e), ERR_BUSY);
    CHECK_STR(seen.node_id, "first");
    CHECK_STR(seen.address, "host:7400");
    CHECK_UINT(seen.fence.epoch, leader.fence.epoch);
    seen = (struct leader){0};
    CHECK_OK(s, store_leader(second, &s->arena, &seen, &s->e));
    CHECK_STR(seen.node_id, "first");
    CHECK_STR(seen.address, "host:7400");
    CHECK_UINT(seen.fence.epoch, leader.fence.epoch);
    CHECK(seen.expires_in_ms > 0);
    CHECK_FAILS(s, store_lead(first, &claim, &s->arena, &seen, &s->e), ERR_BUSY); /* itself, a second time */
    CHECK_STR(seen.node_id, "first");
    CHECK_UINT(seen.fence.epoch, leader.fence.epoch);
    CHECK(seen.expires_in_ms > 0);
    struct batch empty = {0};
    CHECK_OK(s, store_commit(first, &leader.fence, &empty, &s->e)); /* which changes nothing */
}

/* Only with SQLite nobody else can be in between; with all of them it is a new leadership. */
CONTRACT(a_leader_whose_time_ran_out_may_lead_anew)
{
    struct leader seen;
    s->store = subject_open(s);
    CHECK_OK(s, store_migrate(s->store, STORE_NEWEST, &s->e));
    struct leader old = lead(s, s->store, "first", 50);
    subject_outwait(s, s->store, 50);
    struct leader heir = lead(s, s->store, "first again", LONG_MS);
    CHECK_UINT(heir.fence.epoch, old.fence.epoch + 1);
    check_fenced(s, s->store, old.fence);
    CHECK_OK(s, store_leader(s->store, &s->arena, &seen, &s->e));
    CHECK_STR(seen.node_id, "first again");
}

CONTRACT(a_leader_that_resigns_is_followed_at_once)
{
    struct leader seen;
    struct store *first = subject_open(s);
    struct store *second = subject_open(s);
    CHECK_OK(s, store_migrate(first, STORE_NEWEST, &s->e));
    struct leader old = lead(s, first, "first", LONG_MS);
    CHECK_OK(s, store_resign(first, &old.fence, &s->e));
    CHECK_FAILS(s, store_leader(second, &s->arena, &seen, &s->e), ERR_NOT_FOUND);
    check_fenced(s, first, old.fence);
    struct leader heir = lead(s, second, "second", LONG_MS);
    CHECK_UINT(heir.fence.epoch, old.fence.epoch + 1);
    check_fenced(s, first, old.fence);
    check_fenced(s, second, old.fence);
    CHECK_OK(s, store_resign(first, &old.fence, &s->e)); /* takes nothing from the heir */
    CHECK_OK(s, store_leader(first, &s->arena, &seen, &s->e));
    CHECK_STR(seen.node_id, "second");
    struct batch empty = {0};
    CHECK_OK(s, store_commit(second, &heir.fence, &empty, &s->e));
}

CONTRACT(a_fence_must_fit_in_epoch_and_token)
{
    subject_lead(s);
    struct fence right = s->fence;
    struct fence wrong[] = {
        {.epoch = right.epoch + 1, .token = right.token},
        {.epoch = right.epoch - 1, .token = right.token},
        {.epoch = UINT64_MAX, .token = right.token},
        {.epoch = right.epoch, .token = {{right.token.bits[0] ^ 1, right.token.bits[1]}}},
        {.epoch = right.epoch, .token = {{right.token.bits[0], right.token.bits[1] ^ 1}}},
        {.epoch = right.epoch, .token = {{0, 0}}},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        check_fenced(s, s->store, wrong[i]);
    }
    struct batch empty = {0};
    CHECK_OK(s, store_commit(s->store, &right, &empty, &s->e));
}

CONTRACT(the_fence_counts_and_not_the_connection)
{
    struct rows rows = {0};
    struct picture p = {0};
    bool more = true;
    subject_lead(s);
    struct store *upkeep = subject_open(s);
    add_job(&rows, "old")->state = JOB_FAILED;
    CHECK_OK(s, rows_commit(s, &rows));
    CHECK_OK(s, store_prune(upkeep, &s->fence, INT64_MAX, 10, &more, &s->e));
    CHECK(!more);
    picture_load_job(&p, s, "old");
    CHECK_UINT(p.n, 0);
    picture_deinit(&p);
    rows_deinit(&rows);
}

/* By the database's clock, for which the lock file of SQLite stands in: see below. */
static void check_expiry(struct subject *s)
{
    struct leader seen;
    struct leader_claim claim = subject_claim("second", LONG_MS);
    struct store *first = subject_open(s);
    struct store *second = subject_open(s);
    struct leader old = lead(s, first, "first", SHORT_MS);
    CHECK_FAILS(s, store_lead(second, &claim, &s->arena, &seen, &s->e), ERR_BUSY);
    subject_outwait(s, second, SHORT_MS);
    CHECK_OK(s, store_leader(second, &s->arena, &seen, &s->e));
    CHECK(seen.expires_in_ms <= 0);
    CHECK_STR(seen.node_id, "first");
    struct leader heir = lead(s, second, "second", LONG_MS);
    CHECK_UINT(heir.fence.epoch, old.fence.epoch + 1);
    check_fenced(s, first, old.fence);
    struct batch empty = {0};
    CHECK_OK(s, store_commit(second, &heir.fence, &empty, &s->e));
    CHECK_OK(s, store_resign(second, &heir.fence, &s->e));
    subject_close(s, first);
    subject_close(s, second);
}

CONTRACT(a_leadership_that_ran_out_can_be_taken)
{
    struct store *store = subject_open(s);
    CHECK_OK(s, store_migrate(store, STORE_NEWEST, &s->e));
    s->store = store;
    if (s->kind != ENGINE_SQLITE) {
        check_expiry(s);
        check_expiry(s); /* and again */
        return;
    }
    struct leader seen;
    struct leader_claim claim = subject_claim("second", LONG_MS);
    struct leader old = lead(s, store, "first", 1);
    struct store *second = subject_open(s);
    CHECK_FAILS(s, store_lead(second, &claim, &s->arena, &seen, &s->e), ERR_BUSY); /* it lives, so it leads */
    struct batch empty = {0};
    CHECK_OK(s, store_commit(store, &old.fence, &empty, &s->e));
    subject_close(s, store); /* without a word, as a crash would */
    s->store = second;
    struct leader heir = lead(s, second, "second", LONG_MS);
    CHECK_UINT(heir.fence.epoch, old.fence.epoch + 1);
    check_fenced(s, second, old.fence);
}

CONTRACT(a_renewal_counts_from_now)
{
    struct leader seen;
    int64_t now_ms = 0;
    struct leader_claim claim = subject_claim("second", LONG_MS);
    struct store *first = subject_open(s);
    struct store *second = subject_open(s);
    CHECK_OK(s, store_migrate(first, STORE_NEWEST, &s->e));
    struct leader leader = lead(s, first, "first", 60000);
    CHECK_OK(s, store_renew(first, &leader.fence, LONG_MS, &now_ms, &s->e));
    CHECK(now_ms >= leader.now_ms);
    CHECK_OK(s, store_leader(second, &s->arena, &seen, &s->e));
    CHECK(seen.expires_in_ms > LONG_MS - 60000);
    CHECK(seen.expires_in_ms <= LONG_MS);
    CHECK_UINT(seen.fence.epoch, leader.fence.epoch);
    CHECK_OK(s, store_renew(first, &leader.fence, SHORT_MS, &now_ms, &s->e)); /* also shorter */
    CHECK_OK(s, store_leader(second, &s->arena, &seen, &s->e));
    CHECK(seen.expires_in_ms <= SHORT_MS);
    if (s->kind == ENGINE_MEMORY) {
        memory_set_clock(s->database, now_ms + SHORT_MS - 1);
        CHECK_FAILS(s, store_lead(second, &claim, &s->arena, &seen, &s->e), ERR_BUSY); /* the last instant */
        memory_set_clock(s->database, now_ms + SHORT_MS);
        lead(s, second, "second", LONG_MS);
    }
}

CONTRACT(an_epoch_is_never_given_twice)
{
    uint64_t last = 0;
    struct store *stores[] = {subject_open(s), subject_open(s)};
    CHECK_OK(s, store_migrate(stores[0], STORE_NEWEST, &s->e));
    for (int i = 0; i < 10; i++) {
        struct store *store = stores[i % 2];
        struct leader leader = lead(s, store, "n", LONG_MS);
        CHECK(i == 0 || leader.fence.epoch == last + 1);
        last = leader.fence.epoch;
        if (i % 3 == 0) {
            CHECK_OK(s, store_resign(store, &leader.fence, &s->e));
        } else if (s->kind == ENGINE_SQLITE) {
            subject_close(s, store);
            stores[i % 2] = subject_open(s);
        } else {
            int64_t now_ms;
            CHECK_OK(s, store_renew(store, &leader.fence, 1, &now_ms, &s->e));
            subject_outwait(s, store, 1);
        }
    }
}

/* Whoever asks in its last moments is told that somebody leads, or leads. */
CONTRACT_OF_POSTGRES(a_leadership_is_one_up_to_its_end)
{
    struct store *store = subject_open(s);
    CHECK_OK(s, store_migrate(store, STORE_NEWEST, &s->e));
    for (int i = 0; i < 100; i++) {
        struct leader leader = lead(s, store, "n", LONG_MS);
        struct leader_claim claim = subject_claim("n", LONG_MS);
        int64_t now_ms;
        enum err err;
        CHECK_OK(s, store_renew(store, &leader.fence, 2, &now_ms, &s->e));
        do {
            err = store_lead(store, &claim, &s->arena, &leader, &s->e);
        } while (err == ERR_BUSY);
        CHECK_ERR(err, ERR_OK);
        CHECK_OK(s, store_resign(store, &leader.fence, &s->e));
    }
}

static int try_to_lead(struct member *m)
{
    struct leader leader;
    struct leader_claim claim = {.node_id = "one of many", .address = "", .ttl_ms = LONG_MS};
    claim.token = (struct lease_token){{m->index + 1, 99}};
    return (int)store_lead(m->store, &claim, &m->arena, &leader, &m->e);
}

static void check_one_leads(const int *answers, uint32_t n)
{
    uint32_t n_leaders = 0;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(answers[i] == ERR_OK || answers[i] == ERR_BUSY);
        n_leaders += answers[i] == ERR_OK;
    }
    CHECK_UINT(n_leaders, 1);
}

/* Ends a leadership that one of the crowd left behind, and says which it was. */
static uint64_t end_leadership(struct subject *s, uint32_t n)
{
    struct leader leader = {0};
    struct store *store = subject_open(s);
    CHECK_OK(s, store_leader(store, &s->arena, &leader, &s->e));
    for (uint32_t i = 0; i < n; i++) {
        struct fence fence = {.epoch = leader.fence.epoch, .token = {{i + 1, 99}}};
        CHECK_OK(s, store_resign(store, &fence, &s->e));
    }
    subject_close(s, store);
    return leader.fence.epoch;
}

static void migrate(struct subject *s)
{
    struct store *store = subject_open(s);
    CHECK_OK(s, store_migrate(store, STORE_NEWEST, &s->e));
    subject_close(s, store);
}

CONTRACT(of_eight_threads_that_start_at_once_one_leads)
{
    int answers[8];
    migrate(s);
    for (uint64_t round = 1; round <= 10; round++) {
        crowd_of_threads(s, 8, try_to_lead, answers);
        check_one_leads(answers, 8);
        CHECK_UINT(end_leadership(s, 8), round);
    }
}

CONTRACT_OF_FILES(of_five_processes_that_start_at_once_one_leads)
{
    int answers[5];
    migrate(s);
    for (uint64_t round = 1; round <= 10; round++) {
        crowd_of_processes(s, 5, try_to_lead, answers);
        check_one_leads(answers, 5);
        CHECK_UINT(end_leadership(s, 5), round);
    }
}

CONTRACT(names_of_leaders_may_hold_anything)
{
    s->store = subject_open(s);
    CHECK_OK(s, store_migrate(s->store, STORE_NEWEST, &s->e));
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        struct leader seen = {0};
        struct leader_claim claim = subject_claim(hostile_texts[i], LONG_MS);
        claim.address = hostile_texts[n_hostile_texts - 1 - i];
        CHECK_OK(s, store_lead(s->store, &claim, &s->arena, &seen, &s->e));
        CHECK_STR(seen.node_id, claim.node_id);
        CHECK_OK(s, store_leader(s->store, &s->arena, &seen, &s->e));
        CHECK_STR(seen.node_id, claim.node_id);
        CHECK_STR(seen.address, claim.address);
        CHECK_OK(s, store_resign(s->store, &seen.fence, &s->e));
    }
}
