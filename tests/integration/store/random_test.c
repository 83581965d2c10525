/*
 * random_test.c - the heart of the contract: random histories of rows over few keys, cut into batches at random,
 * written to the engine under test and to the one in memory. Whatever the order, both hold the same afterwards.
 *
 * The histories are such as a core could write, as far as one row goes: what changes has been made before, a lease has
 * the token of its attempt. Which rows follow each other is left to chance.
 *
 * CAPSTAN_STORE_HISTORIES and CAPSTAN_STORE_SEED ask for more of them, and others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "picture.h"

#define N_JOBS 3
#define N_STAGES 2
#define N_TASKS 2
#define N_ATTEMPTS 3
#define N_NODES 3
#define N_SETS 3
#define N_PAYLOADS 3
#define LISTS_MAX 64
#define GROUP 5 /* histories that are in the store at the same time, with jobs of their own */

static const char *const job_ids[GROUP][N_JOBS] = {
    {"a", "a'\\\"\xf0\x9f\x92\xbb", "A "},
    {"", "\t", "\xc3\xa9"},
    {"b", "bb", "B"},
    {"%", "_", "e\xcc\x81"},
    {"1", "01", "1 "},
};
static const char *const node_ids[N_NODES] = {"w", "w'", "\xc3\xa9"};
static const char *const set_names[N_SETS] = {"s", "S", "{\"s\"}"};

/* What has been made so far. */
struct known {
    bool jobs[N_JOBS];
    bool stages[N_JOBS][N_STAGES];
    bool tasks[N_JOBS][N_STAGES][N_TASKS];
    uint32_t attempts[N_JOBS][N_STAGES][N_TASKS];
    uint64_t seq;
};

struct history {
    uint64_t seed;
    const char *const *jobs; /* their ids */
    struct prng prng;
    struct known known;
    struct rows rows; /* of the batch that is being made */
    struct data_set sets[4];
    uint32_t n_sets;
    struct payload payloads[4];
    uint32_t n_payloads;
};

/* A task and its indices. */
struct spot {
    uint32_t job;
    uint32_t stage;
    uint32_t task;
    struct task_ref ref;
};

static uint32_t below(struct history *h, uint32_t n)
{
    return (uint32_t)prng_below(&h->prng, n);
}

static struct spot random_spot(struct history *h)
{
    struct spot spot = {.job = below(h, N_JOBS), .stage = below(h, N_STAGES), .task = below(h, N_TASKS)};
    spot.ref = ref_of(h->jobs[spot.job], spot.stage, spot.task);
    return spot;
}

/* For fields that never change: the same numbers for the same entity of a history. */
static struct prng fixed_prng(const struct history *h, enum row_kind kind, struct spot spot)
{
    struct prng prng;
    prng_init(&prng, h->seed * 1000 + (uint64_t)kind * 100 + spot.job * 10 + spot.stage * 3 + spot.task);
    return prng;
}

/* Now and then an entity is written as new although it is there: applying a row twice does no harm. */
static bool is_new(struct history *h, bool *known)
{
    bool fresh = !*known || prng_permille(&h->prng, 50);
    *known = true;
    return fresh;
}

static struct row_job *make_new_job(struct history *h, uint32_t index)
{
    struct prng fixed = fixed_prng(h, ROW_JOB, (struct spot){.job = index});
    struct row_job *job = rows_add(&h->rows, ROW_JOB);
    job->is_new = true;
    job->job_id = h->jobs[index];
    job->kind = (enum job_kind)prng_below(&fixed, 2);
    job->priority = (uint8_t)prng_below(&fixed, 256);
    job->stop_on_failure = prng_permille(&fixed, 500);
    job->name = random_text_or_null(&fixed, &h->rows.arena);
    job->idempotency_key = random_text_or_null(&fixed, &h->rows.arena);
    job->content = digest_from(prng_u64(&fixed));
    job->submitted_at_ms = random_int(&fixed);
    if (prng_permille(&fixed, 500)) {
        job->parent.task = ref_of(random_text(&fixed, &h->rows.arena), random_u32(&fixed), random_u32(&fixed));
        job->parent.attempt = random_u32(&fixed);
    }
    return job;
}

static void make_job(struct history *h)
{
    uint32_t index = below(h, N_JOBS);
    struct row_job *job = is_new(h, &h->known.jobs[index]) ? make_new_job(h, index) : rows_add(&h->rows, ROW_JOB);
    job->job_id = h->jobs[index];
    job->state = (enum job_state)below(h, 5);
    job->started_at_ms = random_int(&h->prng);
    job->finished_at_ms = random_int(&h->prng);
    job->n_stages = random_u32(&h->prng);
    job->inline_bytes = prng_u64(&h->prng);
    job->message = random_text_or_null(&h->prng, &h->rows.arena);
}

static void make_stage(struct history *h)
{
    struct spot spot = {.job = below(h, N_JOBS), .stage = below(h, N_STAGES)};
    struct prng fixed = fixed_prng(h, ROW_STAGE, spot);
    struct row_stage *stage = rows_add(&h->rows, ROW_STAGE);
    stage->is_new = is_new(h, &h->known.stages[spot.job][spot.stage]);
    stage->job_id = h->jobs[spot.job];
    stage->stage = spot.stage;
    stage->spec = stage->is_new ? random_spec(&fixed, &h->rows.arena) : NULL;
    stage->n_recovered = below(h, 4);
    uint64_t *marks = arena_alloc(&h->rows.arena, 4 * sizeof *marks);
    for (uint32_t i = 0; i < stage->n_recovered; i++) {
        marks[i] = prng_u64(&h->prng);
    }
    stage->recovered = marks;
}

static void make_task(struct history *h)
{
    struct spot spot = random_spot(h);
    struct prng fixed = fixed_prng(h, ROW_TASK, spot);
    struct row_task *task = rows_add(&h->rows, ROW_TASK);
    task->is_new = is_new(h, &h->known.tasks[spot.job][spot.stage][spot.task]);
    task->ref = spot.ref;
    if (task->is_new) {
        task->inputs = digest_from(prng_u64(&fixed));
        task->inputs_bytes = random_u32(&fixed);
        task->placement = prng_permille(&fixed, 500) ? random_requirement(&fixed, &h->rows.arena) : NULL;
    }
    task->state = (enum task_state)below(h, TASK_STATE_COUNT);
    task->outcome = (enum attempt_outcome)below(h, OUTCOME_LOST + 1);
    task->attempt = below(h, N_ATTEMPTS + 1);
    task->failures = random_u32(&h->prng);
    task->token = task->attempt > 0 ? token_of(spot.ref, task->attempt) : (struct lease_token){{0, 0}};
    task->worker_id = random_text_or_null(&h->prng, &h->rows.arena);
    task->lease_expires_at_ms = random_int(&h->prng);
    task->idempotency_key = below(h, 2) == 0 ? digest_from(prng_u64(&h->prng)) : (struct digest){{0}};
    task->failed_on = random_texts(&h->prng, &h->rows.arena, 4);
    task->ready_at_ms = random_int(&h->prng);
    task->queued_at_ms = random_int(&h->prng);
    task->started_at_ms = random_int(&h->prng);
    task->finished_at_ms = random_int(&h->prng);
    task->result = below(h, 2) == 0 ? digest_from(prng_u64(&h->prng)) : (struct digest){{0}};
    task->result_bytes = random_u32(&h->prng);
    task->rows = prng_u64(&h->prng);
    task->bytes = (uint64_t)random_int(&h->prng);
    task->message = random_text_or_null(&h->prng, &h->rows.arena);
}

static void make_lease(struct history *h)
{
    struct row_lease *lease = add_lease(&h->rows, random_spot(h).ref, 1 + below(h, N_ATTEMPTS));
    lease->worker_id = random_text(&h->prng, &h->rows.arena);
    lease->acquired_at_ms = random_int(&h->prng);
    if (lease->acquired_at_ms == INT64_MAX) {
        lease->acquired_at_ms = 0;
    }
    lease->expires_at_ms = prng_range(&h->prng, lease->acquired_at_ms + 1, INT64_MAX);
}

static void make_lease_gone(struct history *h)
{
    struct task_ref ref = random_spot(h).ref;
    add_lease_gone(&h->rows, ref, token_of(ref, 1 + below(h, N_ATTEMPTS)));
}

static void make_map_output(struct history *h)
{
    struct row_map_output *output = add_map_output(&h->rows, random_spot(h).ref, 1 + below(h, N_ATTEMPTS));
    output->generation = random_u32(&h->prng);
    output->worker_id = random_text(&h->prng, &h->rows.arena);
    output->incarnation = random_text(&h->prng, &h->rows.arena);
    output->address = random_text_or_null(&h->prng, &h->rows.arena);
    output->n_partitions = below(h, 4);
    struct partition *partitions = arena_alloc(&h->rows.arena, 4 * sizeof *partitions);
    for (uint32_t i = 0; i < output->n_partitions; i++) {
        partitions[i] = (struct partition){prng_u64(&h->prng), prng_u64(&h->prng), 0, (uint64_t)random_int(&h->prng)};
    }
    output->partitions = partitions;
}

static void make_result(struct history *h)
{
    struct row_result *result = add_result(&h->rows, random_spot(h).ref, 1 + below(h, N_ATTEMPTS));
    result->worker_id = random_text_or_null(&h->prng, &h->rows.arena);
    result->rows = prng_u64(&h->prng);
    result->bytes = (uint64_t)random_int(&h->prng);
    result->is_inline = below(h, 2) == 0;
}

static void make_output_gone(struct history *h)
{
    enum row_kind kind = below(h, 2) == 0 ? ROW_MAP_OUTPUT_GONE : ROW_RESULT_GONE;
    add_output_gone(&h->rows, kind, random_spot(h).ref, 1 + below(h, N_ATTEMPTS));
}

static void make_node(struct history *h)
{
    struct row_node *node = add_node(&h->rows, node_ids[below(h, N_NODES)]);
    node->incarnation = random_text_or_null(&h->prng, &h->rows.arena);
    uint32_t n_past = below(h, NODE_PAST_INCARNATIONS + 1);
    for (uint32_t i = 0; i < NODE_PAST_INCARNATIONS; i++) {
        node->past_incarnations[i] = i < n_past ? random_text(&h->prng, &h->rows.arena) : NULL;
    }
    node->address = random_text_or_null(&h->prng, &h->rows.arena);
    node->version = random_text_or_null(&h->prng, &h->rows.arena);
    node->slots = random_u32(&h->prng);
    node->offer = random_offer(&h->prng, &h->rows.arena);
    node->status = (enum node_status)below(h, 3);
    node->is_live = below(h, 2) == 0;
    node->draining = below(h, 2) == 0;
    node->failures = random_u32(&h->prng);
    node->blacklisted_until_ms = random_int(&h->prng);
    node->registered_at_ms = random_int(&h->prng);
    node->heartbeat_at_ms = random_int(&h->prng);
}

static void make_node_gone(struct history *h)
{
    add_node_gone(&h->rows, node_ids[below(h, N_NODES)]);
}

static void make_attempt(struct history *h)
{
    struct spot spot = random_spot(h);
    uint32_t *n = &h->known.attempts[spot.job][spot.stage][spot.task];
    if (*n == 0 || (*n < N_ATTEMPTS && below(h, 2) == 0)) {
        struct row_attempt *attempt = add_attempt(&h->rows, spot.ref, ++*n);
        attempt->worker_id = random_text_or_null(&h->prng, &h->rows.arena);
        attempt->at_ms = random_int(&h->prng);
        return;
    }
    struct row_attempt *attempt = rows_add(&h->rows, ROW_ATTEMPT);
    attempt->ref = spot.ref;
    attempt->attempt = 1 + below(h, *n);
    attempt->outcome = (enum attempt_outcome)(OUTCOME_COMPLETED + below(h, 3));
    attempt->at_ms = random_int(&h->prng);
}

static void make_event(struct history *h)
{
    uint64_t seq = ++h->known.seq;
    bool is_of_node = below(h, 4) == 0;
    struct row_event *event = add_event(&h->rows, seq, is_of_node ? ref_of(NULL, 0, 0) : random_spot(h).ref);
    event->at_ms = (int64_t)seq;
    event->type = (enum event_type)below(h, EVENT_DRAINING + 1);
    event->attempt = random_u32(&h->prng);
    event->worker_id = random_text_or_null(&h->prng, &h->rows.arena);
    event->message = random_text_or_null(&h->prng, &h->rows.arena);
}

static void make_sweep(struct history *h)
{
    add_sweep(&h->rows, h->jobs[below(h, N_JOBS)], random_int(&h->prng));
}

static void make_row(struct history *h)
{
    typedef void make_fn(struct history *);
    static make_fn *const makers[] = {
        make_job,        make_job,        make_stage,  make_stage,       make_task,  make_task,       make_task,
        make_task,       make_task,       make_lease,  make_lease,       make_lease, make_lease_gone, make_lease_gone,
        make_map_output, make_map_output, make_result, make_output_gone, make_node,  make_node_gone,  make_attempt,
        make_attempt,    make_attempt,    make_event,  make_sweep,       make_sweep,
    };
    makers[below(h, ARRAY_LEN(makers))](h);
}

static void make_extras(struct history *h)
{
    h->n_sets = below(h, 4) == 0 ? below(h, 4) : 0;
    for (uint32_t i = 0; i < h->n_sets; i++) {
        bool is_gone = below(h, 3) == 0;
        h->sets[i] = (struct data_set){
            .name = set_names[below(h, N_SETS)],
            .source = is_gone ? NULL : random_text(&h->prng, &h->rows.arena),
            .format = is_gone ? NULL : random_text(&h->prng, &h->rows.arena),
        };
    }
    h->n_payloads = below(h, 4) == 0 ? below(h, 4) : 0;
    for (uint32_t i = 0; i < h->n_payloads; i++) {
        uint32_t number = below(h, N_PAYLOADS);
        h->payloads[i] = (struct payload){.job_id = h->jobs[below(h, N_JOBS)],
                                          .digest = digest_from(number),
                                          .bytes = number == 0 ? "" : "some bytes",
                                          .n_bytes = number * 4};
    }
}

/* Rows that no engine takes, whatever stands before them. */
static void make_violation(struct history *h)
{
    struct task_ref ref = ref_of("violator", 0, 0);
    if (below(h, 2) == 0) {
        add_lease(&h->rows, ref, 1)->worker_id = NULL;
        return;
    }
    add_lease(&h->rows, ref, 1);
    add_lease(&h->rows, ref_of("violator", 0, 1), 1)->token = token_of(ref, 1);
}

/* ---- committing to both ---- */

static enum err commit(struct subject *s, const struct history *h, struct batch *batch, bool is_fenced)
{
    struct fence fence = s->fence;
    fence.epoch += is_fenced ? 1 : 0;
    batch->payloads = h->payloads;
    batch->n_payloads = h->n_payloads;
    batch->data_sets = h->sets;
    batch->n_data_sets = h->n_sets;
    return store_commit(s->store, &fence, batch, &s->e);
}

/* One batch, in lists that are cut at random. */
static void commit_batch(struct history *h, struct subject *s, struct subject *reference)
{
    const struct row *heads[LISTS_MAX];
    struct known before = h->known;
    struct batch batch = {.rows = heads};
    bool is_bad = below(h, 12) == 0;
    bool is_fenced = below(h, 25) == 0;
    for (uint32_t i = 1 + below(h, 25); i > 0; i--) {
        make_row(h);
    }
    if (is_bad) {
        make_violation(h);
    }
    make_extras(h);
    heads[batch.n_rows++] = h->rows.first;
    for (struct row *row = h->rows.first, *next; row != NULL; row = next) {
        next = row->next;
        if (next != NULL && below(h, 4) == 0 && batch.n_rows < LISTS_MAX) {
            row->next = NULL;
            heads[batch.n_rows++] = next;
        }
    }
    enum err expected = is_fenced ? ERR_FENCED : is_bad ? ERR_INVALID : ERR_OK;
    CHECK_FAILS(reference, commit(reference, h, &batch, is_fenced), expected);
    CHECK_FAILS(s, commit(s, h, &batch, is_fenced), expected);
    h->known = expected == ERR_OK ? h->known : before;
    rows_deinit(&h->rows);
}

static void take(struct picture *p, struct subject *s, const char *const *jobs)
{
    picture_all(p, s, jobs, N_JOBS);
    for (uint32_t job = 0; job < N_JOBS; job++) {
        for (uint32_t i = 0; i < N_PAYLOADS; i++) {
            picture_payload(p, s, jobs[job], digest_from(i));
        }
    }
}

static void compare(struct history *h, struct subject *s, struct subject *reference)
{
    struct picture actual = {0};
    struct picture expected = {0};
    struct arena arena = {0};
    take(&actual, s, h->jobs);
    take(&expected, reference, h->jobs);
    const char *diff = picture_diff(&actual, &expected, &arena);
    if (diff != NULL) {
        fprintf(stderr, "seed %llu differs from memory:\n  %s\n", (unsigned long long)h->seed, diff);
    }
    CHECK(diff == NULL);
    picture_deinit(&actual);
    picture_deinit(&expected);
    arena_deinit(&arena);
}

/* All jobs end and are pruned, so that the next histories start with an empty store; only the last event stays. */
static void end_group(struct subject *s, struct subject *reference)
{
    struct subject *both[] = {s, reference};
    struct rows rows = {0};
    for (uint32_t i = 0; i < GROUP * N_JOBS; i++) {
        add_job_change(&rows, job_ids[i / N_JOBS][i % N_JOBS], JOB_SUCCEEDED);
    }
    for (uint32_t i = 0; i < N_NODES; i++) {
        add_node_gone(&rows, node_ids[i]);
    }
    for (int i = 0; i < 2; i++) {
        bool more = true;
        CHECK_OK(both[i], rows_commit(both[i], &rows));
        while (more) {
            CHECK_OK(both[i], store_prune(both[i]->store, &both[i]->fence, INT64_MAX, 5, &more, &both[i]->e));
        }
    }
    rows_deinit(&rows);
}

/* All jobs come first: rows of one that was never made would outlive the history. */
static void make_jobs(struct history *h, struct subject *s, struct subject *reference)
{
    for (uint32_t i = 0; i < N_JOBS; i++) {
        make_new_job(h, i);
        h->known.jobs[i] = true;
    }
    CHECK_OK(s, rows_commit(s, &h->rows));
    CHECK_OK(reference, rows_commit(reference, &h->rows));
    rows_deinit(&h->rows);
}

static void check_attempts(struct subject *s, struct subject *reference, uint64_t seed)
{
    const char *actual = subject_attempts(s);
    const char *expected = subject_attempts(reference);
    if (strcmp(actual, expected) != 0) {
        fprintf(stderr, "the attempts of the %d seeds up to %llu differ from memory's\n", GROUP,
                (unsigned long long)seed);
    }
    CHECK_STR(actual, expected);
}

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

CONTRACT(random_histories_leave_the_same_in_every_engine)
{
    uint64_t n_histories = number_from("CAPSTAN_STORE_HISTORIES", 200);
    uint64_t first = number_from("CAPSTAN_STORE_SEED", 1);
    struct subject *reference = subject_reference();
    uint64_t seq = 0;
    subject_lead(s);
    for (uint64_t i = 0; i < n_histories; i++) {
        struct history h = {.seed = first + i, .jobs = job_ids[i % GROUP], .known = {.seq = seq}};
        prng_init(&h.prng, h.seed);
        make_jobs(&h, s, reference);
        for (uint32_t n = 2 + below(&h, 6); n > 0; n--) {
            commit_batch(&h, s, reference);
            if (n == 1 || below(&h, 4) == 0) {
                compare(&h, s, reference);
            }
        }
        seq = h.known.seq;
        if ((i + 1) % GROUP == 0) {
            check_attempts(s, reference, h.seed);
            end_group(s, reference);
        }
    }
    end_group(s, reference);
    CHECK_STR(subject_attempts(s), ""); /* all of them went with their jobs */
    CHECK_STR(subject_attempts(reference), "");
}
