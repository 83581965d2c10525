/* hostile_test.c - every field of every row, filled with what might be too much for a store: byte for byte the same. */
#include <string.h>

#include "base/limits.h"
#include "content.h"
#include "picture.h"

#define MIB ((size_t)1024 * 1024)

/* What goes into a row's fields. */
struct filling {
    const char *text; /* of all texts that are no keys */
    const char *item; /* of texts in lists and other JSON */
    const char *key;  /* of job ids, worker ids, names: indexed, and so of limited length */
    int64_t number;
    uint32_t index;   /* of stage, task, attempt */
    bool has_numbers; /* else plain ones */
};

static struct string_list list_of(struct rows *rows, const char *text)
{
    const char **items = arena_alloc(&rows->arena, 2 * sizeof *items);
    items[0] = text;
    items[1] = text;
    return (struct string_list){items, 2};
}

static struct capability_list capabilities_of(struct rows *rows, const char *text)
{
    struct string_list list = list_of(rows, text);
    struct capability *items = arena_zalloc(&rows->arena, 2 * sizeof *items);
    items[0] = (struct capability){.key = text, .kind = VALUE_TEXT, .text = text};
    items[1] = (struct capability){
        .key = arena_format(&rows->arena, "list of %s", text), .kind = VALUE_LIST, .items = list.items, .n_items = 2};
    return (struct capability_list){items, 2};
}

static void fill_job(struct rows *rows, const struct filling *f)
{
    struct row_job *job = add_job(rows, f->key);
    job->name = f->key;
    job->idempotency_key = f->key;
    job->parent.task.job_id = f->key;
    job->message = f->text;
    if (f->has_numbers) {
        job->priority = (uint8_t)f->index;
        job->parent.task.stage = f->index;
        job->parent.task.task = f->index;
        job->parent.attempt = f->index;
        job->submitted_at_ms = f->number;
        job->started_at_ms = f->number;
        job->finished_at_ms = f->number;
        job->n_stages = f->index;
        job->inline_bytes = (uint64_t)f->number;
    }
}

static void fill_stage(struct rows *rows, const struct filling *f)
{
    struct requirement *need = arena_zalloc(&rows->arena, sizeof *need);
    struct stage_spec *spec = arena_zalloc(&rows->arena, sizeof *spec);
    struct row_stage *stage = add_stage(rows, f->key, f->index);
    *need = (struct requirement){
        .executor = f->item,
        .ops = list_of(rows, f->item),
        .engine = f->item,
        .any_executors = list_of(rows, f->item),
        .capabilities = capabilities_of(rows, f->item),
        .allowed_nodes = list_of(rows, f->item),
        .forbidden_nodes = list_of(rows, f->item),
    };
    *spec = (struct stage_spec){.name = f->item, .need = need, .n_tasks = 1};
    if (f->has_numbers) {
        uint64_t *marks = arena_alloc(&rows->arena, sizeof *marks);
        *marks = (uint64_t)f->number;
        stage->recovered = marks;
        stage->n_recovered = 1;
        need->max_parallel_per_node = f->index;
        spec->n_tasks = f->index > 0 ? f->index : 1;
        spec->partitions = f->index;
        spec->max_attempts = f->index;
        spec->timeout_ms = f->index;
        spec->backoff_ms = f->number;
    }
    stage->spec = spec;
}

static void fill_task(struct rows *rows, const struct filling *f)
{
    struct row_task *task = add_task(rows, ref_of(f->key, f->index, f->index));
    task->worker_id = f->text;
    task->failed_on = list_of(rows, f->item);
    task->message = f->text;
    if (f->has_numbers) {
        task->inputs_bytes = f->index;
        task->attempt = f->index;
        task->failures = f->index;
        task->lease_expires_at_ms = f->number;
        task->ready_at_ms = f->number;
        task->queued_at_ms = f->number;
        task->started_at_ms = f->number;
        task->finished_at_ms = f->number;
        task->result_bytes = f->index;
        task->rows = (uint64_t)f->number;
        task->bytes = (uint64_t)f->number;
        memset(&task->result, 0xff, sizeof task->result);
        memset(&task->token, 0xff, sizeof task->token);
    }
}

static void fill_outputs(struct rows *rows, const struct filling *f)
{
    struct task_ref ref = ref_of(f->key, f->index, f->index);
    struct row_lease *lease = add_lease(rows, ref, f->index);
    struct row_map_output *output = add_map_output(rows, ref, f->index);
    struct row_result *result = add_result(rows, ref, f->index);
    lease->worker_id = f->text;
    output->worker_id = f->text;
    output->incarnation = f->text;
    output->address = f->text;
    result->worker_id = f->text;
    if (f->has_numbers) {
        uint64_t n = (uint64_t)f->number;
        struct partition *partition = arena_alloc(&rows->arena, sizeof *partition);
        *partition = (struct partition){n, n, n, n};
        lease->acquired_at_ms = f->number < INT64_MAX ? f->number : INT64_MIN;
        lease->expires_at_ms = INT64_MAX;
        output->generation = f->index;
        output->partitions = partition;
        output->n_partitions = 1;
        result->rows = n;
        result->bytes = n;
    }
}

static void fill_node(struct rows *rows, const struct filling *f)
{
    struct row_node *node = add_node(rows, f->key);
    struct offer *offer = arena_zalloc(&rows->arena, sizeof *offer);
    node->incarnation = f->text;
    for (int i = 0; i < NODE_PAST_INCARNATIONS; i++) {
        node->past_incarnations[i] = f->item;
    }
    node->address = f->text;
    node->version = f->text;
    *offer = (struct offer){
        .executors = list_of(rows, f->item),
        .ops = list_of(rows, f->item),
        .capabilities = capabilities_of(rows, f->item),
        .engine = f->item,
    };
    node->offer = offer;
    if (f->has_numbers) {
        node->slots = f->index;
        node->failures = f->index;
        node->blacklisted_until_ms = f->number;
        node->registered_at_ms = f->number;
        node->heartbeat_at_ms = f->number;
    }
}

/* Events are numbered by the filling, so that each has its own. */
static void fill(struct rows *rows, const struct filling *f, uint64_t seq)
{
    struct task_ref ref = ref_of(f->key, f->index, f->index);
    fill_job(rows, f);
    fill_stage(rows, f);
    fill_task(rows, f);
    fill_outputs(rows, f);
    fill_node(rows, f);
    struct row_attempt *attempt = add_attempt(rows, ref, f->index);
    attempt->worker_id = f->text;
    struct row_event *event = add_event(rows, seq, ref);
    event->worker_id = f->text;
    event->message = f->text;
    if (f->has_numbers) {
        attempt->at_ms = f->number;
        event->at_ms = f->number;
        event->attempt = f->index;
    }
}

static bool is_loaded(enum row_kind kind)
{
    return kind != ROW_ATTEMPT && kind != ROW_EVENT;
}

/* All that was written, by all ways of reading it. */
static void check_contents(struct subject *s, const struct rows *rows, uint64_t last_seq)
{
    struct picture expected = {0};
    struct picture actual = {0};
    struct row_meta meta = {.row = {.kind = ROW_META}, .last_event_seq = last_seq};
    picture_add_row(&expected, "load", &meta.row);
    picture_load(&actual, s);
    picture_jobs(&actual, s, (struct job_query){.state = -1, .limit = 10});
    picture_events(&actual, s, (struct event_query){.limit = 10});
    actual.n--; /* how far events were pruned */
    for (const struct row *row = rows->first; row != NULL; row = row->next) {
        if (is_loaded(row->kind)) {
            picture_add_row(&expected, "load", row);
        }
        if (row->kind == ROW_JOB) {
            const char *job_id = ((const struct row_job *)(const void *)row)->job_id;
            picture_add_row(&expected, "jobs", row);
            picture_load_job(&actual, s, job_id);
            picture_tasks(&actual, s, (struct task_query){.job_id = job_id, .state = -1, .limit = 10});
        } else if (row->kind == ROW_EVENT) {
            picture_add_row(&expected, "events", row);
        }
    }
    const char *job_id = NULL;
    for (const struct row *row = rows->first; row != NULL; row = row->next) {
        job_id = row->kind == ROW_JOB ? ((const struct row_job *)(const void *)row)->job_id : job_id;
        if (is_loaded(row->kind) && row->kind != ROW_NODE) {
            picture_add_row(&expected, arena_format(&expected.arena, "load of job %s", job_id), row);
        }
        if (row->kind == ROW_TASK) {
            picture_add_row(&expected, arena_format(&expected.arena, "tasks of %s", job_id), row);
        }
    }
    CHECK_PICTURES(&actual, &expected);
    picture_deinit(&expected);
    picture_deinit(&actual);
}

CONTRACT(texts_may_hold_any_character)
{
    struct rows rows = {0};
    subject_lead(s);
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        struct filling f = {.text = hostile_texts[i], .item = hostile_texts[i], .key = hostile_texts[i]};
        fill(&rows, &f, i + 1);
    }
    CHECK_OK(s, rows_commit(s, &rows));
    check_contents(s, &rows, n_hostile_texts);
    CHECK_OK(s, rows_commit(s, &rows));
    check_contents(s, &rows, n_hostile_texts);
    rows_deinit(&rows);
}

CONTRACT(attempts_may_hold_any_character)
{
    struct subject *reference = subject_reference();
    struct rows rows = {0};
    subject_lead(s);
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        add_attempt(&rows, ref_of(hostile_texts[i], UINT32_MAX, i), i)->worker_id = hostile_texts[i];
    }
    CHECK_OK(s, rows_commit(s, &rows));
    CHECK_OK(reference, rows_commit(reference, &rows));
    CHECK_STR(subject_attempts(s), subject_attempts(reference));
    rows_deinit(&rows);
}

CONTRACT(an_empty_text_is_not_an_absent_one)
{
    struct rows rows = {0};
    struct picture p = {0};
    subject_lead(s);
    add_job(&rows, "empty")->name = "";
    add_job_change(&rows, "empty", JOB_RUNNING)->message = "";
    add_job(&rows, "absent")->name = NULL;
    add_job_change(&rows, "absent", JOB_RUNNING)->message = NULL;
    add_event(&rows, 1, ref_of(NULL, 0, 0))->worker_id = "";
    add_event(&rows, 2, ref_of("", 0, 0))->worker_id = NULL;
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load_job(&p, s, "empty");
    CHECK_STR(entry_text(picture_only(&p, "jobs"), "name"), "");
    CHECK_STR(entry_text(picture_only(&p, "jobs"), "message"), "");
    picture_deinit(&p);
    picture_load_job(&p, s, "absent");
    CHECK_STR(entry_text(picture_only(&p, "jobs"), "name"), NULL);
    CHECK_STR(entry_text(picture_only(&p, "jobs"), "message"), NULL);
    picture_deinit(&p);
    picture_events(&p, s, (struct event_query){.limit = 1});
    CHECK_STR(entry_text(&p.entries[0], "job_id"), NULL);
    CHECK_STR(entry_text(&p.entries[0], "node_id"), "");
    CHECK_STR(entry_text(&p.entries[1], "job_id"), "");
    CHECK_STR(entry_text(&p.entries[1], "node_id"), NULL);
    picture_deinit(&p);
    rows_deinit(&rows);
}

CONTRACT(texts_may_be_as_long_as_a_mebibyte)
{
    subject_lead(s);
    struct rows rows = {0};
    for (int kind = 0; kind < LONG_KINDS; kind++) {
        size_t n_bytes = kind == LONG_RANDOM ? MIB : MIB / 8;
        struct filling f = {.text = long_text(&rows.arena, (enum long_kind)kind, n_bytes),
                            .item = long_text(&rows.arena, (enum long_kind)kind, n_bytes / 32),
                            .key = long_text(&rows.arena, (enum long_kind)kind, LIMIT_ID_BYTES)};
        fill(&rows, &f, (uint64_t)kind + 1);
    }
    CHECK_OK(s, rows_commit(s, &rows));
    check_contents(s, &rows, LONG_KINDS);
    rows_deinit(&rows);
}

CONTRACT(numbers_may_lie_at_the_edges)
{
    static const int64_t numbers[] = {INT64_MIN, INT64_MIN + 1, INT32_MIN,       -1,        0,
                                      1,         INT32_MAX,     UINT32_MAX,      1LL << 53, (1LL << 53) + 1,
                                      INT64_MAX, INT64_MAX - 1, -(1LL << 53) - 1};
    static const uint32_t indices[] = {0,     1,     127,   128,       255,        256,       32767,
                                       32768, 65535, 65536, INT32_MAX, 0x80000000, UINT32_MAX};
    struct rows rows = {0};
    subject_lead(s);
    _Static_assert(ARRAY_LEN(numbers) == ARRAY_LEN(indices), "they go in pairs");
    for (uint32_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct filling f = {
            .text = "t", .item = "i", .key = arena_format(&rows.arena, "job-%u", i), .has_numbers = true};
        f.number = numbers[i];
        f.index = indices[i];
        fill(&rows, &f, i + 1);
        add_event(&rows, (uint64_t)INT64_MAX - ARRAY_LEN(numbers) + 1 + i, ref_of(NULL, UINT32_MAX, UINT32_MAX));
    }
    CHECK_OK(s, rows_commit(s, &rows));
    check_contents(s, &rows, INT64_MAX);
    struct subject *reference = subject_reference();
    CHECK_OK(reference, rows_commit(reference, &rows));
    CHECK_STR(subject_attempts(s), subject_attempts(reference));
    rows_deinit(&rows);
}

/* Who asks may ask for anything: nothing is found, and the store goes on. */
CONTRACT(questions_may_hold_what_no_text_can)
{
    static const char *const questions[] = {"\xff", "caf\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"};
    struct digest digest = digest_from(1);
    subject_lead(s);
    for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
        const char *q = questions[i];
        const char *job_id = NULL;
        const void *bytes = NULL;
        size_t n = 0;
        uint64_t pruned = 0;
        struct found_bytes found = {NULL, 0};
        struct task_result result = {0};
        const struct task_result *results = NULL;
        uint32_t stage = 0;
        uint32_t n_results = 0;
        bool known = false;
        struct page pages[3] = {0};
        struct job_query jobs = {.state = -1, .name = q, .limit = 5};
        struct task_query tasks = {.job_id = q, .state = -1, .limit = 5};
        struct event_query events = {.job_id = q, .limit = 5};
        enum err errs[] = {
            store_load_job(s->store, q, NULL, NULL, &s->e),
            store_find_key(s->store, q, 0, &s->arena, &job_id, &s->e),
            store_payload(s->store, q, &digest, &s->arena, &bytes, &n, &s->e),
            store_jobs(s->store, &jobs, &s->arena, &pages[0], &s->e),
            store_tasks(s->store, &tasks, &s->arena, &pages[1], &s->e),
            store_events(s->store, &events, &s->arena, &pages[2], &pruned, &s->e),
            store_payloads(s->store, q, &digest, 1, &s->arena, &found, &s->e),
            store_results(s->store, q, &stage, 1, &s->arena, &result, &s->e),
            store_task_results(s->store, q, -1, 5, &s->arena, &results, &n_results, &s->e),
            store_known_jobs(s->store, &q, 1, &known, &s->e),
        };
        for (size_t k = 0; k < ARRAY_LEN(errs); k++) {
            CHECK(errs[k] == ERR_NOT_FOUND || errs[k] == ERR_INVALID || (errs[k] == ERR_OK && k >= 3));
        }
        CHECK_UINT(pages[0].n_rows + pages[1].n_rows + pages[2].n_rows + n_results, 0);
        CHECK(found.bytes == NULL);
        CHECK(!result.is_found);
        CHECK(!known);
    }
    struct batch empty = {0};
    CHECK_OK(s, store_commit(s->store, &s->fence, &empty, &s->e));
}

CONTRACT(jobs_are_found_by_any_name)
{
    struct rows rows = {0};
    subject_lead(s);
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        add_job(&rows, arena_format(&rows.arena, "job-%u", i))->name = hostile_texts[i];
    }
    CHECK_OK(s, rows_commit(s, &rows));
    for (uint32_t i = 0; i < n_hostile_texts; i++) {
        struct picture p = {0};
        picture_jobs(&p, s,
                     (struct job_query){.state = i % 2 == 0 ? -1 : JOB_RUNNING, .name = hostile_texts[i], .limit = 5});
        CHECK_STR(entry_text(picture_only(&p, "jobs"), "job_id"), arena_format(&s->arena, "job-%u", i));
        picture_deinit(&p);
    }
    rows_deinit(&rows);
}

/*
 * Keys are limited (base/limits.h), but a store must not call it an outage if one is not: that would depose every
 * leader.
 */

typedef void long_key_fn(struct rows *rows, const char *key);

static void long_job_id(struct rows *rows, const char *key)
{
    add_job(rows, key)->idempotency_key = NULL;
}

static void long_name(struct rows *rows, const char *key)
{
    add_job(rows, "j")->name = key;
}

static void long_idempotency_key(struct rows *rows, const char *key)
{
    add_job(rows, "j")->idempotency_key = key;
}

static void long_worker_id(struct rows *rows, const char *key)
{
    add_node(rows, key);
}

static void long_job_of_a_task(struct rows *rows, const char *key)
{
    add_task(rows, ref_of(key, 0, 0));
}

static void long_job_of_an_event(struct rows *rows, const char *key)
{
    add_event(rows, 1, ref_of(key, 0, 0));
}

CONTRACT(a_key_that_is_too_long_is_taken_or_refused_but_no_outage)
{
    static long_key_fn *const makers[] = {long_job_id,    long_name,          long_idempotency_key,
                                          long_worker_id, long_job_of_a_task, long_job_of_an_event};
    static const size_t lengths[] = {2600, 3000, 9000, MIB};
    subject_lead(s);
    for (size_t i = 0; i < ARRAY_LEN(makers) * ARRAY_LEN(lengths); i++) {
        struct rows rows = {0};
        makers[i % ARRAY_LEN(makers)](&rows, long_text(&rows.arena, LONG_RANDOM, lengths[i / ARRAY_LEN(makers)]));
        enum err err = rows_commit(s, &rows);
        if (err != ERR_OK) {
            CHECK_FAILS(s, err, ERR_INVALID);
        }
        rows_deinit(&rows);
    }
    struct batch empty = {0};
    CHECK_OK(s, store_commit(s->store, &s->fence, &empty, &s->e));
}

/* Through the structs themselves, not only through the values that both sides make of them. */

static const struct stage_spec *seen_spec;
static const struct offer *seen_offer;

static void see(void *context, const struct row *row)
{
    struct arena *arena = context;
    if (row->kind == ROW_STAGE) {
        const struct stage_spec *spec = ((const struct row_stage *)(const void *)row)->spec;
        struct stage_spec *copy = arena_copy(arena, spec, sizeof *spec);
        copy->name = arena_strdup(arena, spec->name);
        copy->need = requirement_copy_in(arena, spec->need);
        copy->parents = arena_copy(arena, spec->parents, spec->n_parents * sizeof *spec->parents);
        seen_spec = copy;
    } else if (row->kind == ROW_NODE) {
        seen_offer = offer_copy_in(arena, ((const struct row_node *)(const void *)row)->offer);
    }
}

static void check_spec(const struct stage_spec *a, const struct stage_spec *b)
{
    CHECK_STR(a->name, b->name);
    CHECK(requirement_equal(a->need, b->need));
    CHECK_UINT(a->n_parents, b->n_parents);
    for (uint32_t i = 0; i < a->n_parents; i++) {
        CHECK_UINT(a->parents[i].stage, b->parents[i].stage);
        CHECK_INT(a->parents[i].optional, b->parents[i].optional);
        CHECK_INT(a->parents[i].read, b->parents[i].read);
        CHECK(!a->parents[i].added);
    }
    CHECK_UINT(a->n_tasks, b->n_tasks);
    CHECK_INT(a->output, b->output);
    CHECK_UINT(a->partitions, b->partitions);
    CHECK_UINT(a->max_attempts, b->max_attempts);
    CHECK_INT(a->backoff_ms, b->backoff_ms);
    CHECK_UINT(a->timeout_ms, b->timeout_ms);
    CHECK_INT(a->nondeterministic, b->nondeterministic);
    CHECK_INT(a->exclusive, b->exclusive);
    CHECK_INT(a->planning, b->planning);
    CHECK_INT(a->child, b->child);
}

CONTRACT(specs_and_offers_come_back_field_by_field)
{
    struct prng prng;
    prng_init(&prng, 11);
    subject_lead(s);
    for (int i = 0; i < 30; i++) {
        struct rows rows = {0};
        const char *job_id = arena_format(&rows.arena, "job-%d", i);
        const struct stage_spec *spec = random_spec(&prng, &rows.arena);
        const struct offer *offer = random_offer(&prng, &rows.arena);
        add_job(&rows, job_id);
        add_stage(&rows, job_id, 0)->spec = spec;
        add_node(&rows, "w")->offer = offer;
        CHECK_OK(s, rows_commit(s, &rows));
        seen_spec = NULL;
        seen_offer = NULL;
        CHECK_OK(s, store_load(s->store, see, &rows.arena, &s->e));
        CHECK_OK(s, store_load_job(s->store, job_id, see, &rows.arena, &s->e));
        check_spec(seen_spec, spec);
        CHECK(offer_equal(seen_offer, offer));
        rows_deinit(&rows);
    }
}
