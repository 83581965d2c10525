/* extras_test.c - what is not a row of the scheduler: payloads, data sets, the inbox, idempotency keys of clients. */
#include <string.h>

#include "content.h"
#include "picture.h"

static void commit_payloads(struct subject *s, const struct payload *payloads, uint32_t n)
{
    struct batch batch = {.payloads = payloads, .n_payloads = n};
    CHECK_OK(s, store_commit(s->store, &s->fence, &batch, &s->e));
}

static void check_payload(struct subject *s, const struct payload *payload)
{
    const void *bytes = NULL;
    size_t n = SIZE_MAX;
    CHECK_OK(s, store_payload(s->store, payload->job_id, &payload->digest, &s->arena, &bytes, &n, &s->e));
    CHECK_UINT(n, payload->n_bytes);
    CHECK_MEM(bytes, payload->bytes, n);
}

CONTRACT(payloads_are_bytes_and_come_back_as_they_were)
{
    static uint8_t every[256];
    enum { MIB = 1024 * 1024 };
    uint8_t *large = arena_alloc(&s->arena, MIB);
    struct prng prng;
    prng_init(&prng, 3);
    for (size_t i = 0; i < MIB; i++) {
        large[i] = (uint8_t)prng_u64(&prng);
    }
    for (int i = 0; i < 256; i++) {
        every[i] = (uint8_t)i;
    }
    struct payload payloads[] = {
        {.job_id = "j", .digest = digest_from(1), .bytes = "", .n_bytes = 0},
        {.job_id = "j", .digest = digest_from(2), .bytes = "\0", .n_bytes = 1},
        {.job_id = "j", .digest = digest_from(3), .bytes = every, .n_bytes = 256},
        {.job_id = "j", .digest = digest_from(4), .bytes = large, .n_bytes = MIB},
        {.job_id = "j", .digest = digest_from(5), .bytes = NULL, .n_bytes = 0},
        {.job_id = "k", .digest = digest_from(3), .bytes = every, .n_bytes = 256},
        {.job_id = "'\\\xf0\x9f\x92\xbb", .digest = {{0}}, .bytes = "x", .n_bytes = 1},
        {.job_id = "j", .digest = digest_from(3), .bytes = every, .n_bytes = 256}, /* once more in one batch */
    };
    subject_lead(s);
    commit_payloads(s, payloads, (uint32_t)ARRAY_LEN(payloads));
    commit_payloads(s, payloads + 2, 2); /* and in another */
    for (size_t i = 0; i < ARRAY_LEN(payloads); i++) {
        check_payload(s, &payloads[i]);
    }
}

CONTRACT(a_payload_is_found_only_under_its_job_and_digest)
{
    struct payload payload = {.job_id = "j", .digest = digest_from(1), .bytes = "x", .n_bytes = 1};
    struct digest other = digest_from(2);
    const void *bytes;
    size_t n;
    subject_lead(s);
    commit_payloads(s, &payload, 1);
    CHECK_FAILS(s, store_payload(s->store, "j", &other, &s->arena, &bytes, &n, &s->e), ERR_NOT_FOUND);
    CHECK_FAILS(s, store_payload(s->store, "k", &payload.digest, &s->arena, &bytes, &n, &s->e), ERR_NOT_FOUND);
    CHECK_FAILS(s, store_payload(s->store, "", &payload.digest, &s->arena, &bytes, &n, &s->e), ERR_NOT_FOUND);
}

/* ---- data sets ---- */

static void commit_data_sets(struct subject *s, const struct data_set *sets, uint32_t n)
{
    struct batch batch = {.data_sets = sets, .n_data_sets = n};
    CHECK_OK(s, store_commit(s->store, &s->fence, &batch, &s->e));
}

static const struct data_set *find_data_set(struct subject *s, const char *name, uint32_t *out_n)
{
    const struct data_set *sets = NULL;
    const struct data_set *found = NULL;
    CHECK_OK(s, store_data_sets(s->store, &s->arena, &sets, out_n, &s->e));
    for (uint32_t i = 0; i < *out_n; i++) {
        found = strcmp(sets[i].name, name) == 0 ? &sets[i] : found;
    }
    return found;
}

CONTRACT(data_sets_are_put_replaced_and_removed)
{
    uint32_t n;
    struct data_set first[] = {{"a", "s3://one", "csv"}, {"b", "two", "parquet"}, {"a", "three", "json"}};
    struct data_set second[] = {{"a", NULL, NULL}, {"b", "four", "csv"}, {"none", NULL, NULL}};
    struct data_set third[] = {{"b", NULL, NULL}, {"b", "five", "orc"}, {"c", "six", "csv"}, {"c", NULL, "csv"}};
    subject_lead(s);
    CHECK(find_data_set(s, "a", &n) == NULL);
    CHECK_UINT(n, 0);
    commit_data_sets(s, first, 3);
    CHECK_STR(find_data_set(s, "a", &n)->source, "three"); /* the later one in the batch */
    CHECK_STR(find_data_set(s, "a", &n)->format, "json");
    CHECK_STR(find_data_set(s, "b", &n)->source, "two");
    CHECK_UINT(n, 2);
    commit_data_sets(s, second, 3);
    CHECK(find_data_set(s, "a", &n) == NULL);
    CHECK_STR(find_data_set(s, "b", &n)->source, "four");
    CHECK_UINT(n, 1);
    commit_data_sets(s, third, 4);
    CHECK_STR(find_data_set(s, "b", &n)->source, "five");
    CHECK_UINT(n, 1);
}

CONTRACT(data_sets_may_be_called_anything)
{
    uint32_t n;
    struct data_set *sets = arena_zalloc(&s->arena, n_hostile_texts * sizeof *sets);
    subject_lead(s);
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        sets[i] = (struct data_set){hostile_texts[i], hostile_texts[n_hostile_texts - 1 - i], hostile_texts[i]};
    }
    commit_data_sets(s, sets, n_hostile_texts);
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        const struct data_set *found = find_data_set(s, sets[i].name, &n);
        CHECK(found != NULL);
        CHECK_STR(found->source, sets[i].source);
        CHECK_STR(found->format, sets[i].format);
    }
    CHECK_UINT(n, n_hostile_texts);
}

/* ---- the inbox ---- */

static uint32_t read_inbox(struct subject *s, uint32_t limit, const struct inbox_entry **out)
{
    uint32_t n = UINT32_MAX;
    CHECK_OK(s, store_inbox(s->store, &(struct inbox_query){.limit = limit}, &s->arena, out, &n, &s->e));
    return n;
}

static enum err finish_inbox(struct subject *s, const struct fence *fence, const uint64_t *ids, uint32_t n)
{
    struct batch batch = {.inbox_done = ids, .n_inbox_done = n};
    return store_commit(s->store, fence, &batch, &s->e);
}

CONTRACT(what_is_left_in_the_inbox_stays_until_a_batch_says_that_it_is_done)
{
    const struct inbox_entry *entries = NULL;
    subject_lead(s);
    CHECK_UINT(read_inbox(s, 10, &entries), 0);
    subject_add_inbox(s, "first", "{\"n\": 1}");
    subject_add_inbox(s, "second", "{\"n\": 2}");
    subject_add_inbox(s, "third", "{\"n\": 3}");
    CHECK_UINT(read_inbox(s, 2, &entries), 2);
    CHECK_STR(entries[0].job_id, "first"); /* the oldest first */
    CHECK_STR(entries[1].job_id, "second");
    CHECK(entries[0].id < entries[1].id);
    CHECK_UINT(entries[1].n_bytes, strlen("{\"n\": 2}"));
    CHECK_MEM(entries[1].tree, "{\"n\": 2}", entries[1].n_bytes);
    struct inbox_query rest = {.after_id = entries[0].id, .limit = 10};
    uint32_t n = 0;
    CHECK_OK(s, store_inbox(s->store, &rest, &s->arena, &entries, &n, &s->e));
    CHECK_UINT(n, 2);
    CHECK_STR(entries[0].job_id, "second");
    CHECK_STR(entries[1].job_id, "third");
    rest.after_id = entries[1].id;
    CHECK_OK(s, store_inbox(s->store, &rest, &s->arena, &entries, &n, &s->e));
    CHECK_UINT(n, 0);
    CHECK_UINT(read_inbox(s, 10, &entries), 3); /* nobody took them */
    uint64_t ids[] = {entries[0].id, entries[2].id, entries[0].id, 999999};
    struct fence wrong = {.epoch = s->fence.epoch + 1, .token = s->fence.token};
    CHECK_FAILS(s, finish_inbox(s, &wrong, ids, 4), ERR_FENCED);
    CHECK_UINT(read_inbox(s, 10, &entries), 3);
    CHECK_OK(s, finish_inbox(s, &s->fence, ids, 4));
    CHECK_UINT(read_inbox(s, 10, &entries), 1);
    CHECK_STR(entries[0].job_id, "second");
    subject_add_inbox(s, "fourth", "{\"n\": 4}");
    CHECK_UINT(read_inbox(s, 10, &entries), 2);
    CHECK_STR(entries[1].job_id, "fourth");
}

CONTRACT_OF_POSTGRES(a_tree_that_is_rolled_back_was_never_in_the_inbox)
{
    const struct inbox_entry *entries = NULL;
    subject_lead(s);
    subject_sql(s, "BEGIN; SELECT @submit('{\"job_id\": \"gone\"}'); ROLLBACK");
    CHECK_UINT(read_inbox(s, 10, &entries), 0);
    const char *id = subject_sql(s, "SELECT @submit('{\"tasks\": [\"\\u00e9'' \\\\ \\ud83d\\udcbb\"]}')");
    CHECK_UINT(read_inbox(s, 10, &entries), 1);
    CHECK_STR(arena_format(&s->arena, "%s\n", entries[0].job_id), id); /* one was made up */
    static const char tree[] = "{\"tasks\": [\"\xc3\xa9' \\\\ \xf0\x9f\x92\xbb\"]}";
    CHECK_UINT(entries[0].n_bytes, strlen(tree));
    CHECK_MEM(entries[0].tree, tree, strlen(tree));
}

/* ---- keys of clients ---- */

static enum err find_key(struct subject *s, const char *key, int64_t not_before_ms, const char **out_job_id)
{
    return store_find_key(s->store, key, not_before_ms, &s->arena, out_job_id, &s->e);
}

CONTRACT(a_job_is_found_by_its_idempotency_key_while_it_is_young_enough)
{
    struct rows rows = {0};
    const char *job_id = NULL;
    subject_lead(s);
    struct row_job *job = add_job(&rows, "ended");
    job->idempotency_key = "k1";
    job->submitted_at_ms = 1000;
    job->state = JOB_SUCCEEDED;
    job = add_job(&rows, "open");
    job->idempotency_key = "k2";
    job->submitted_at_ms = 2000;
    job = add_job(&rows, "older");
    job->idempotency_key = "k3";
    job->submitted_at_ms = 1000;
    job = add_job(&rows, "newer");
    job->idempotency_key = "k3";
    job->submitted_at_ms = 2000;
    job = add_job(&rows, "without");
    job->idempotency_key = NULL;
    CHECK_OK(s, rows_commit(s, &rows));
    CHECK_OK(s, find_key(s, "k1", 1000, &job_id)); /* also after it ended */
    CHECK_STR(job_id, "ended");
    CHECK_FAILS(s, find_key(s, "k1", 1001, &job_id), ERR_NOT_FOUND);
    CHECK_OK(s, find_key(s, "k2", 0, &job_id));
    CHECK_STR(job_id, "open");
    CHECK_OK(s, find_key(s, "k3", 0, &job_id));
    CHECK_STR(job_id, "newer");
    CHECK_OK(s, find_key(s, "k3", 1500, &job_id));
    CHECK_STR(job_id, "newer");
    CHECK_FAILS(s, find_key(s, "k3", 2001, &job_id), ERR_NOT_FOUND);
    CHECK_FAILS(s, find_key(s, "", 0, &job_id), ERR_NOT_FOUND);
    CHECK_FAILS(s, find_key(s, "k", 0, &job_id), ERR_NOT_FOUND);
    CHECK_FAILS(s, find_key(s, "K1", 0, &job_id), ERR_NOT_FOUND);
    rows_deinit(&rows);
}

CONTRACT(idempotency_keys_may_hold_anything)
{
    struct rows rows = {0};
    const char *job_id = NULL;
    subject_lead(s);
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        add_job(&rows, arena_format(&s->arena, "job-%u", i))->idempotency_key = hostile_texts[i];
    }
    CHECK_OK(s, rows_commit(s, &rows));
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        CHECK_OK(s, find_key(s, hostile_texts[i], 0, &job_id));
        CHECK_STR(job_id, arena_format(&s->arena, "job-%u", i));
    }
    rows_deinit(&rows);
}
