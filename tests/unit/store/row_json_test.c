#include "../test.h"

#include <string.h>

#include "base/json.h"
#include "core/command.h"
#include "store/memory.h"
#include "store/row_json.h"
#include "store/table.h"

#define HOSTILE "\"quoted\" \\ back\\slash\ttab\nline \x01 \xc3\xa4 \xf0\x9f\x92\xa5"

/* Stages are nothing without a spec; whole jobs go through tests/integration/service/observer_test.c. */
static const enum row_kind kept[] = {ROW_JOB, ROW_TASK, ROW_LEASE, ROW_MAP_OUTPUT, ROW_RESULT, ROW_NODE, ROW_EVENT};

/* Something in every field that is no list; numbers that mean states stay small. */
static struct row *filled(enum row_kind kind, struct arena *arena)
{
    const struct table *table = table_of(kind);
    struct row *row = table_row(table, arena);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        char *field = (char *)row + table->columns[i].offset;
        switch (table->columns[i].kind) {
        case COLUMN_TEXT:
            *(const char **)(void *)field = arena_format(arena, "%u" HOSTILE, i);
            break;
        case COLUMN_U8:
        case COLUMN_U32:
            *(uint8_t *)field = 1;
            break;
        case COLUMN_I64:
            *(int64_t *)(void *)field = i % 2 == 0 ? INT64_MAX : -7;
            break;
        case COLUMN_DIGEST:
            memset(field, (int)i + 1, 32);
            break;
        case COLUMN_TOKEN:
            memset(field, 0xab, 16);
            break;
        case COLUMN_MARKS:
        case COLUMN_PARTITIONS:
        case COLUMN_STRINGS:
        case COLUMN_OFFER:
        case COLUMN_SPEC:
        case COLUMN_NEED:
        case COLUMN_NAME:
        case COLUMN_PAST:
            break;
        }
    }
    return row;
}

static struct change round_trip(const struct row *row, struct buf *text, struct arena *arena)
{
    struct json *root = NULL;
    struct change change;
    struct error e = {0};
    CHECK(row_json_write(row, text, arena));
    CHECK_ERR(json_parse(text->data, text->n, &root, &e), ERR_OK);
    CHECK_ERR(row_json_read(root, arena, &change, &e), ERR_OK);
    json_free(root);
    return change;
}

static bool same(const struct value *a, const struct value *b)
{
    return a->type == b->type && a->number == b->number && a->n == b->n &&
           (a->n == 0 || memcmp(a->bytes, b->bytes, a->n) == 0);
}

TEST(a_row_comes_back_as_it_was_but_for_its_lease_token)
{
    struct arena arena = {0};
    for (size_t k = 0; k < ARRAY_LEN(kept); k++) {
        const struct table *table = table_of(kept[k]);
        struct buf text = {0};
        const struct row *row = filled(kept[k], &arena);
        struct change change = round_trip(row, &text, &arena);
        CHECK_INT(change.kind, CHANGE_ROW);
        CHECK_INT(change.row->kind, kept[k]);
        for (uint32_t i = 0; i < table->n_columns; i++) {
            const struct column *column = &table->columns[i];
            struct value before = table_get(row, column, &arena);
            struct value after = table_get(change.row, column, &arena);
            if (column->kind == COLUMN_TOKEN) {
                CHECK(after.type == VALUE_IS_BYTES && !same(&before, &after));
            } else if (column_is_read(column) &&
                       column->kind != COLUMN_OFFER) { /* no offer comes back as an empty one */
                CHECK(same(&before, &after));
            }
        }
        CHECK(strstr(text.data, "abababababababab") == NULL);
        buf_deinit(&text);
    }
    arena_deinit(&arena);
}

TEST(a_lease_and_its_end_have_the_same_digest_in_the_place_of_their_token)
{
    struct arena arena = {0};
    struct buf texts[2] = {{0}};
    struct row_lease lease = {.row = {.kind = ROW_LEASE}, .ref = {"j", 1, 2}, .token = {{7, 8}}, .worker_id = "w"};
    struct row_lease_gone gone = {.row = {.kind = ROW_LEASE_GONE}, .ref = {"j", 1, 2}, .token = {{7, 8}}};
    const struct row_lease *a = (const struct row_lease *)(const void *)round_trip(&lease.row, &texts[0], &arena).row;
    const struct row_lease_gone *b =
        (const struct row_lease_gone *)(const void *)round_trip(&gone.row, &texts[1], &arena).row;
    CHECK_INT(b->row.kind, ROW_LEASE_GONE);
    CHECK(lease_token_equal(a->token, b->token));
    CHECK(!lease_token_equal(a->token, lease.token));
    CHECK_UINT(b->ref.task, 2);
    buf_deinit(&texts[0]);
    buf_deinit(&texts[1]);
    arena_deinit(&arena);
}

TEST(a_row_that_is_not_new_has_only_what_can_change)
{
    struct arena arena = {0};
    struct buf text = {0};
    struct row_job job = {
        .row = {.kind = ROW_JOB}, .job_id = "j", .name = "fixed-name", .state = JOB_RUNNING, .message = "why"};
    struct change change = round_trip(&job.row, &text, &arena);
    CHECK(strstr(text.data, "fixed-name") == NULL);
    const struct row_job *read = (const struct row_job *)(const void *)change.row;
    CHECK(!read->is_new);
    CHECK_STR(read->message, "why");
    buf_deinit(&text);
    arena_deinit(&arena);
}

TEST(changes_that_nobody_writes_are_refused_and_newer_ones_passed_over)
{
    static const struct {
        const char *text;
        enum err err;
    } cases[] = {
        {"{}", ERR_INVALID},
        {"[]", ERR_INVALID},
        {"{\"change\":7}", ERR_INVALID},
        {"{\"change\":\"jobs\",\"job_id\":7}", ERR_INVALID},
        {"{\"change\":\"jobs\",\"job_id\":\"j\",\"state\":99}", ERR_INVALID},
        {"{\"change\":\"jobs\",\"job_id\":\"a\\u0000b\"}", ERR_INVALID},
        {"{\"change\":\"tasks\",\"job_id\":\"j\",\"result\":\"abc\"}", ERR_INVALID},
        {"{\"change\":\"tasks\",\"job_id\":\"j\",\"result\":\"zz\"}", ERR_INVALID},
        {"{\"change\":\"stages\",\"new\":1,\"job_id\":\"j\",\"spec\":\"no spec\"}", ERR_INVALID},
        {"{\"change\":\"lease_gone\",\"job_id\":\"j\"}", ERR_INVALID},
        {"{\"change\":\"payload\",\"job_id\":\"j\",\"digest\":\"00\",\"bytes\":\"\"}", ERR_INVALID},
        {"{\"change\":\"data_set\",\"name\":\"t\",\"source\":\"s\"}", ERR_INVALID},
        {"{\"change\":\"something_new\",\"x\":1}", ERR_OK},
        {"{\"change\":\"jobs\",\"job_id\":\"j\",\"a_new_column\":{\"x\":1}}", ERR_OK},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena arena = {0};
        struct json *root = NULL;
        struct change change;
        CHECK_ERR(json_parse(cases[i].text, strlen(cases[i].text), &root, NULL), ERR_OK);
        CHECK_ERR(row_json_read(root, &arena, &change, NULL), cases[i].err);
        json_free(root);
        arena_deinit(&arena);
    }
}

/* ---- what only the store in memory can ---- */

struct fixture {
    struct store *store;
    struct fence fence;
    const char *name;
};

static struct fixture fixture(const char *name, const char *url)
{
    struct fixture f = {.name = name};
    struct arena arena = {0};
    struct leader leader;
    struct leader_claim claim = {.node_id = "n", .address = "a", .ttl_ms = 1000000, .token = {{1, 1}}};
    CHECK_ERR(store_open(url, &f.store, NULL), ERR_OK);
    CHECK_ERR(store_migrate(f.store, STORE_NEWEST, NULL), ERR_OK);
    CHECK_ERR(store_lead(f.store, &claim, &arena, &leader, NULL), ERR_OK);
    f.fence = leader.fence;
    arena_deinit(&arena);
    return f;
}

static void add_job(struct fixture *f, const char *job_id, enum job_state state, int64_t finished_at_ms)
{
    struct row_task task = {.row = {.kind = ROW_TASK}, .is_new = true, .ref = {job_id, 0, 0}};
    struct row_job job = {.row = {.next = &task.row, .kind = ROW_JOB},
                          .is_new = true,
                          .job_id = job_id,
                          .state = state,
                          .finished_at_ms = finished_at_ms};
    struct payload payload = {.job_id = job_id, .digest = {{1}}, .bytes = "0123456789", .n_bytes = 10};
    const struct row *rows = &job.row;
    struct batch batch = {.rows = &rows, .n_rows = 1, .payloads = &payload, .n_payloads = 1};
    CHECK_ERR(store_commit(f->store, &f->fence, &batch, NULL), ERR_OK);
}

static uint32_t count_tasks(const struct fixture *f, const char *job_id)
{
    struct arena arena = {0};
    struct page page = {0};
    struct task_query query = {.job_id = job_id, .state = -1, .limit = 100};
    CHECK_ERR(store_tasks(f->store, &query, &arena, &page, NULL), ERR_OK);
    uint32_t n = page.n_rows;
    arena_deinit(&arena);
    return n;
}

static void fixture_end(struct fixture *f)
{
    store_close(f->store);
    memory_drop(f->name);
}

TEST(trimming_forgets_what_ended_first_and_never_an_open_job)
{
    struct fixture f = fixture("trim", "memory:trim");
    struct memory_limits limits = {.ended_jobs = 1, .tasks = 100, .payload_bytes = 1000, .events = 10};
    add_job(&f, "open", JOB_RUNNING, 0);
    add_job(&f, "new", JOB_SUCCEEDED, 30);
    add_job(&f, "old", JOB_FAILED, 10);
    add_job(&f, "middle", JOB_SUCCEEDED, 20);
    memory_trim(f.name, &limits);
    CHECK_INT(memory_job_state(f.name, "open"), JOB_RUNNING);
    CHECK_INT(memory_job_state(f.name, "new"), JOB_SUCCEEDED);
    CHECK_INT(memory_job_state(f.name, "old"), -1);
    CHECK_INT(memory_job_state(f.name, "middle"), -1);
    CHECK_UINT(count_tasks(&f, "old"), 0);
    CHECK_UINT(count_tasks(&f, "new"), 1);
    limits.payload_bytes = 5;
    memory_trim(f.name, &limits); /* the open job's stay although they are too many */
    CHECK_INT(memory_job_state(f.name, "new"), -1);
    CHECK_INT(memory_job_state(f.name, "open"), JOB_RUNNING);
    fixture_end(&f);
}

TEST(a_swap_is_seen_at_once_by_stores_that_are_open)
{
    struct fixture a = fixture("swap-a", "memory:swap-a");
    struct fixture b = fixture("swap-b", "memory:swap-b");
    add_job(&a, "j1", JOB_RUNNING, 0);
    add_job(&b, "j2", JOB_RUNNING, 0);
    memory_swap(a.name, b.name);
    CHECK_UINT(count_tasks(&a, "j1"), 0);
    CHECK_UINT(count_tasks(&a, "j2"), 1);
    add_job(&a, "j3", JOB_RUNNING, 0); /* each is still led by whoever led it */
    CHECK_UINT(count_tasks(&a, "j3"), 1);
    fixture_end(&a);
    fixture_end(&b);
}
