#include "content.h"

#include <string.h>

#include "base/sha256.h"
#include "base/siphash.h"
#include "store/table.h"

#define DAY_ONE_MS INT64_C(1700000000000)

void rows_deinit(struct rows *rows)
{
    arena_deinit(&rows->arena);
    *rows = (struct rows){0};
}

size_t row_size(enum row_kind kind)
{
    switch (kind) {
    case ROW_JOB_SWEEP:
        return sizeof(struct row_job_sweep);
    case ROW_LEASE_GONE:
        return sizeof(struct row_lease_gone);
    case ROW_MAP_OUTPUT_GONE:
    case ROW_RESULT_GONE:
        return sizeof(struct row_output_gone);
    case ROW_NODE_GONE:
        return sizeof(struct row_node_gone);
    case ROW_JOB:
    case ROW_STAGE:
    case ROW_TASK:
    case ROW_LEASE:
    case ROW_MAP_OUTPUT:
    case ROW_RESULT:
    case ROW_NODE:
    case ROW_ATTEMPT:
    case ROW_EVENT:
    case ROW_META:
        break;
    }
    return table_of(kind)->row_bytes;
}

void *rows_add(struct rows *rows, enum row_kind kind)
{
    struct row *row = arena_zalloc(&rows->arena, row_size(kind));
    row->kind = kind;
    if (rows->end == NULL) {
        rows->end = &rows->first;
    }
    *rows->end = row;
    rows->end = &row->next;
    rows->n++;
    return row;
}

enum err rows_commit(struct subject *s, const struct rows *rows)
{
    const struct row *head = rows->first;
    struct batch batch = {.rows = &head, .n_rows = head == NULL ? 0 : 1};
    return store_commit(s->store, &s->fence, &batch, &s->e);
}

void rows_commit_singly(struct subject *s, const struct rows *rows)
{
    for (struct row *row = rows->first; row != NULL; row = row->next) {
        struct row *next = row->next;
        const struct row *head = row;
        struct batch batch = {.rows = &head, .n_rows = 1};
        row->next = NULL;
        enum err err = store_commit(s->store, &s->fence, &batch, &s->e);
        row->next = next;
        CHECK_OK(s, err);
    }
}

struct task_ref ref_of(const char *job_id, uint32_t stage, uint32_t task)
{
    return (struct task_ref){.job_id = job_id, .stage = stage, .task = task};
}

struct digest digest_from(uint64_t seed)
{
    struct digest digest;
    sha256_once(&seed, sizeof seed, digest.bytes);
    return digest;
}

struct lease_token token_of(struct task_ref ref, uint32_t attempt)
{
    static const struct siphash_key key = {7, 8};
    uint64_t job = siphash(&key, ref.job_id, strlen(ref.job_id));
    uint64_t numbers[] = {job, ref.stage, ref.task, attempt};
    struct lease_token token;
    siphash128(&key, numbers, sizeof numbers, token.bits);
    return token;
}

static uint64_t attempt_seed(struct task_ref ref, uint32_t attempt)
{
    return token_of(ref, attempt).bits[0];
}

/* ---- plain rows ---- */

struct row_job *add_job(struct rows *rows, const char *job_id)
{
    struct row_job *job = rows_add(rows, ROW_JOB);
    job->is_new = true;
    job->job_id = job_id;
    job->kind = JOB_KIND_TREE;
    job->priority = 3;
    job->stop_on_failure = true;
    job->name = "a name";
    job->idempotency_key = arena_format(&rows->arena, "key of %.60s", job_id);
    job->content = digest_from(1);
    job->parent = (struct attempt_ref){.task = {"parent", 4, 5}, .attempt = 6};
    job->submitted_at_ms = DAY_ONE_MS;
    job->state = JOB_RUNNING;
    job->started_at_ms = DAY_ONE_MS + 1;
    job->finished_at_ms = DAY_ONE_MS + 2;
    job->n_stages = 7;
    job->inline_bytes = 8;
    job->message = "a message";
    return job;
}

struct row_job *add_job_change(struct rows *rows, const char *job_id, enum job_state state)
{
    struct row_job *job = rows_add(rows, ROW_JOB);
    job->job_id = job_id;
    job->state = state;
    job->started_at_ms = DAY_ONE_MS + 21;
    job->finished_at_ms = DAY_ONE_MS + 22;
    job->n_stages = 23;
    job->inline_bytes = 24;
    job->message = "changed";
    return job;
}

struct row_stage *add_stage(struct rows *rows, const char *job_id, uint32_t stage)
{
    static const struct stage_parent parents[] = {{.stage = 1, .optional = true, .read = READ_ALL},
                                                  {.stage = 2, .read = READ_PARTITION}};
    static const uint64_t marks[] = {11, UINT64_MAX};
    struct prng prng;
    prng_init(&prng, stage);
    struct stage_spec *spec = arena_copy(&rows->arena, random_spec(&prng, &rows->arena), sizeof *spec);
    spec->name = "a stage";
    spec->parents = parents;
    spec->n_parents = (uint32_t)ARRAY_LEN(parents);
    struct row_stage *row = rows_add(rows, ROW_STAGE);
    row->is_new = true;
    row->job_id = job_id;
    row->stage = stage;
    row->spec = spec;
    row->recovered = marks;
    row->n_recovered = (uint32_t)ARRAY_LEN(marks);
    return row;
}

struct row_task *add_task(struct rows *rows, struct task_ref ref)
{
    static const char *const avoid[] = {"w8", "w9"};
    struct row_task *task = rows_add(rows, ROW_TASK);
    task->is_new = true;
    task->ref = ref;
    task->inputs = digest_from(2);
    task->inputs_bytes = 31;
    task->state = TASK_RUNNING;
    task->outcome = OUTCOME_PENDING;
    task->attempt = 1;
    task->failures = 34;
    task->token = token_of(ref, 1);
    task->worker_id = "w1";
    task->lease_expires_at_ms = DAY_ONE_MS + 35;
    task->idempotency_key = digest_from(attempt_seed(ref, 1));
    task->failed_on = (struct string_list){avoid, (uint32_t)ARRAY_LEN(avoid)};
    task->ready_at_ms = DAY_ONE_MS + 36;
    task->queued_at_ms = DAY_ONE_MS + 37;
    task->started_at_ms = DAY_ONE_MS + 38;
    task->finished_at_ms = DAY_ONE_MS + 39;
    task->result = digest_from(3);
    task->result_bytes = 40;
    task->rows = 41;
    task->bytes = 42;
    task->message = "a task's message";
    return task;
}

struct row_task *add_task_change(struct rows *rows, struct task_ref ref, enum task_state state)
{
    struct row_task *task = rows_add(rows, ROW_TASK);
    task->ref = ref;
    task->state = state;
    task->outcome = state == TASK_RUNNING ? OUTCOME_PENDING : OUTCOME_FAILED;
    task->attempt = 51;
    task->failures = 52;
    task->queued_at_ms = DAY_ONE_MS + 53;
    task->message = "changed";
    return task;
}

struct row_lease *add_lease(struct rows *rows, struct task_ref ref, uint32_t attempt)
{
    struct row_lease *lease = rows_add(rows, ROW_LEASE);
    lease->ref = ref;
    lease->attempt = attempt;
    lease->token = token_of(ref, attempt);
    lease->worker_id = "w1";
    lease->acquired_at_ms = DAY_ONE_MS + 61;
    lease->expires_at_ms = DAY_ONE_MS + 62;
    return lease;
}

struct row_map_output *add_map_output(struct rows *rows, struct task_ref ref, uint32_t attempt)
{
    static const struct partition partitions[] = {{71, 72, 73, 74}, {75, 76, 77, UINT64_MAX}};
    struct row_map_output *output = rows_add(rows, ROW_MAP_OUTPUT);
    output->ref = ref;
    output->attempt = attempt;
    output->generation = 78;
    output->worker_id = "w1";
    output->incarnation = "w1#1";
    output->address = "w1:7401";
    output->partitions = partitions;
    output->n_partitions = (uint32_t)ARRAY_LEN(partitions);
    return output;
}

struct row_result *add_result(struct rows *rows, struct task_ref ref, uint32_t attempt)
{
    struct row_result *result = rows_add(rows, ROW_RESULT);
    result->ref = ref;
    result->attempt = attempt;
    result->worker_id = "w1";
    result->rows = 81;
    result->bytes = 82;
    result->is_inline = true;
    return result;
}

struct row_node *add_node(struct rows *rows, const char *worker_id)
{
    struct prng prng;
    prng_init(&prng, 91);
    struct row_node *node = rows_add(rows, ROW_NODE);
    node->worker_id = worker_id;
    node->incarnation = "third";
    node->past_incarnations[0] = "second";
    node->past_incarnations[1] = "first";
    node->address = "w1:7401";
    node->version = "1.2.3";
    node->slots = 92;
    node->offer = random_offer(&prng, &rows->arena);
    node->status = NODE_STALE;
    node->is_live = true;
    node->draining = true;
    node->failures = 93;
    node->blacklisted_until_ms = INT64_MAX;
    node->registered_at_ms = DAY_ONE_MS + 94;
    node->heartbeat_at_ms = DAY_ONE_MS + 95;
    return node;
}

struct row_attempt *add_attempt(struct rows *rows, struct task_ref ref, uint32_t attempt)
{
    struct row_attempt *row = rows_add(rows, ROW_ATTEMPT);
    row->ref = ref;
    row->attempt = attempt;
    row->outcome = OUTCOME_PENDING;
    row->worker_id = "w1";
    row->idempotency_key = digest_from(attempt_seed(ref, attempt));
    row->at_ms = DAY_ONE_MS + 101;
    return row;
}

void add_attempt_change(struct rows *rows, struct task_ref ref, uint32_t attempt, enum attempt_outcome outcome)
{
    struct row_attempt *row = rows_add(rows, ROW_ATTEMPT);
    row->ref = ref;
    row->attempt = attempt;
    row->outcome = outcome;
    row->worker_id = "not this one";
    row->at_ms = DAY_ONE_MS + 111;
}

struct row_event *add_event(struct rows *rows, uint64_t seq, struct task_ref ref)
{
    struct row_event *event = rows_add(rows, ROW_EVENT);
    event->seq = seq;
    event->at_ms = DAY_ONE_MS + (int64_t)(seq % 1000);
    event->type = EVENT_REASSIGNED;
    event->ref = ref;
    event->attempt = 121;
    event->worker_id = "w1";
    event->message = "what happened";
    return event;
}

void add_whole_job(struct rows *rows, const char *job_id)
{
    struct task_ref ref = ref_of(job_id, 0, 0);
    add_job(rows, job_id);
    add_stage(rows, job_id, 0);
    add_task(rows, ref);
    add_lease(rows, ref, 1);
    add_attempt(rows, ref, 1);
    add_map_output(rows, ref, 1);
    add_result(rows, ref, 1);
}

void add_sweep(struct rows *rows, const char *job_id, int64_t at_ms)
{
    struct row_job_sweep *sweep = rows_add(rows, ROW_JOB_SWEEP);
    sweep->job_id = job_id;
    sweep->at_ms = at_ms;
}

void add_lease_gone(struct rows *rows, struct task_ref ref, struct lease_token token)
{
    struct row_lease_gone *gone = rows_add(rows, ROW_LEASE_GONE);
    gone->ref = ref;
    gone->token = token;
}

void add_output_gone(struct rows *rows, enum row_kind kind, struct task_ref ref, uint32_t attempt)
{
    struct row_output_gone *gone = rows_add(rows, kind);
    gone->ref = ref;
    gone->attempt = attempt;
}

void add_node_gone(struct rows *rows, const char *worker_id)
{
    struct row_node_gone *gone = rows_add(rows, ROW_NODE_GONE);
    gone->worker_id = worker_id;
}
