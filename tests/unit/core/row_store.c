/*
 * row_store.c - one table per kind of row: a hash map to find an entity, a list to walk them in order. The rows of a
 * job also hang on the job, so that its end and its load cost what the job is large.
 */
#include "row_store.h"

#include <string.h>

#include "base/mem.h"
#include "base/siphash.h"
#include "core/command.h"
#include "test.h"

struct stored {
    struct list in_table;
    struct list in_job; /* jobs and nodes: not linked */
    uint64_t hash;
    struct row_key key;
    struct list *parts; /* jobs only: one list of struct stored per row kind */
    struct row row;     /* the whole row of its kind starts here */
};

#define STORED(node, member) CONTAINER_OF(node, struct stored, member)

static struct stored *stored_of(const struct row *row)
{
    return CONTAINER_OF((uintptr_t)row, struct stored, row);
}

static uint64_t key_hash(struct row_key key)
{
    static const struct siphash_key salt = {.k0 = 1, .k1 = 2};
    uint64_t h = siphash(&salt, key.name, strlen(key.name));
    uint32_t numbers[] = {key.stage, key.task, key.attempt};
    return h ^ siphash(&salt, numbers, sizeof(numbers));
}

static bool key_matches(const void *value, const void *wanted)
{
    const struct row_key *a = &((const struct stored *)value)->key;
    const struct row_key *b = wanted;
    return a->stage == b->stage && a->task == b->task && a->attempt == b->attempt && strcmp(a->name, b->name) == 0;
}

void row_store_init(struct row_store *store)
{
    *store = (struct row_store){0};
    for (int kind = 0; kind <= ROW_META; kind++) {
        list_init(&store->tables[kind].all);
    }
}

void row_store_deinit(struct row_store *store)
{
    LIST_EACH(at, &store->tables[ROW_STAGE].all) {
        const struct row_stage *stage = (const struct row_stage *)(void *)&STORED(at, in_table)->row;
        mem_free((void *)(uintptr_t)stage->spec->need);
    }
    LIST_EACH(at, &store->tables[ROW_NODE].all) {
        const struct row_node *node = (const struct row_node *)(void *)&STORED(at, in_table)->row;
        mem_free((void *)(uintptr_t)node->offer);
    }
    for (int kind = 0; kind <= ROW_META; kind++) {
        map_deinit(&store->tables[kind].map);
    }
    mem_free(store->events);
    arena_deinit(&store->arena);
}

static struct stored *find(const struct row_store *store, enum row_kind kind, struct row_key key)
{
    return map_get(&store->tables[kind].map, key_hash(key), key_matches, &key);
}

const struct row *row_store_get(const struct row_store *store, enum row_kind kind, struct row_key key)
{
    struct stored *entity = find(store, kind, key);
    return entity == NULL ? NULL : &entity->row;
}

uint32_t row_store_count(const struct row_store *store, enum row_kind kind)
{
    return (uint32_t)store->tables[kind].map.count;
}

/* The entity with that key, made empty if it was not there. */
static struct stored *find_or_add(struct row_store *store, enum row_kind kind, struct row_key key, size_t row_size)
{
    struct stored *entity = find(store, kind, key);
    if (entity != NULL) {
        return entity;
    }
    entity = arena_zalloc(&store->arena, offsetof(struct stored, row) + row_size);
    entity->key = key;
    struct stored *job =
        kind == ROW_JOB || kind == ROW_NODE ? NULL : find(store, ROW_JOB, (struct row_key){key.name, 0, 0, 0});
    entity->key.name = job != NULL ? job->key.name : arena_strdup(&store->arena, key.name);
    entity->hash = key_hash(key);
    entity->row.kind = kind;
    map_put(&store->tables[kind].map, entity->hash, entity);
    list_push_back(&store->tables[kind].all, &entity->in_table);
    if (kind == ROW_JOB) {
        entity->parts = arena_zalloc(&store->arena, (ROW_META + 1) * sizeof(struct list));
        for (int i = 0; i <= ROW_META; i++) {
            list_init(&entity->parts[i]);
        }
    } else if (kind != ROW_NODE) {
        CHECK(job != NULL); /* a row of a job that was never stored */
        list_push_back(&job->parts[kind], &entity->in_job);
    }
    return entity;
}

static void drop(struct row_store *store, struct stored *entity)
{
    if (entity == NULL) {
        return;
    }
    CHECK(map_take_value(&store->tables[entity->row.kind].map, entity->hash, entity) == entity);
    list_remove(&entity->in_table);
    list_remove(&entity->in_job);
}

/* Keeps a copy of `text` in `*slot`, unless that is what is there. */
static void keep(struct row_store *store, const char **slot, const char *text)
{
    if (*slot == NULL || text == NULL || strcmp(*slot, text) != 0) {
        *slot = arena_strdup(&store->arena, text);
    }
}

static struct string_list keep_list(struct row_store *store, struct string_list list)
{
    const char **items = arena_alloc(&store->arena, (list.count + 1) * sizeof(*items));
    for (uint32_t i = 0; i < list.count; i++) {
        items[i] = arena_strdup(&store->arena, list.items[i]);
    }
    return (struct string_list){.items = items, .count = list.count};
}

static struct row_key task_key(struct task_ref ref, uint32_t attempt)
{
    return (struct row_key){.name = ref.job_id, .stage = ref.stage, .task = ref.task, .attempt = attempt};
}

static void apply_job(struct row_store *store, const struct row *row)
{
    const struct row_job *from = (const struct row_job *)(const void *)row;
    struct row_key key = {.name = from->job_id};
    bool known = find(store, ROW_JOB, key) != NULL;
    struct stored *entity = find_or_add(store, ROW_JOB, key, sizeof(struct row_job));
    struct row_job *to = (struct row_job *)(void *)&entity->row;
    CHECK(known != from->is_new);
    CHECK(!known || !job_state_is_terminal(to->state) || from->state == to->state || store->may_revive);
    struct row_job old = *to;
    *to = *from;
    to->row = old.row;
    to->is_new = true;
    to->job_id = entity->key.name;
    if (!from->is_new) {
        to->priority = old.priority;
        to->stop_on_failure = old.stop_on_failure;
        to->kind = old.kind;
        to->content = old.content;
        to->submitted_at_ms = old.submitted_at_ms;
        to->parent = old.parent;
        to->name = old.name;
        to->idempotency_key = old.idempotency_key;
    } else {
        to->name = arena_strdup(&store->arena, from->name);
        to->idempotency_key = arena_strdup(&store->arena, from->idempotency_key);
        to->parent.task.job_id = arena_strdup(&store->arena, from->parent.task.job_id);
    }
    to->message = arena_strdup(&store->arena, from->message);
}

static void sweep_task(struct stored *entity, int64_t at_ms)
{
    struct row_task *task = (struct row_task *)(void *)&entity->row;
    if (task->state == TASK_QUEUED || task->state == TASK_RUNNING) {
        task->state = TASK_CANCELED;
        task->finished_at_ms = at_ms;
        task->ready_at_ms = 0;
        if (task->outcome == OUTCOME_PENDING) {
            task->outcome = OUTCOME_LOST;
        }
    }
}

static void apply_job_sweep(struct row_store *store, const struct row *row)
{
    const struct row_job_sweep *from = (const struct row_job_sweep *)(const void *)row;
    struct stored *job = find(store, ROW_JOB, (struct row_key){.name = from->job_id});
    CHECK(job != NULL);
    LIST_EACH(at, &job->parts[ROW_TASK]) {
        sweep_task(STORED(at, in_job), from->at_ms);
    }
    LIST_EACH_SAFE(at, next_lease, &job->parts[ROW_LEASE]) {
        drop(store, STORED(at, in_job));
    }
    LIST_EACH_SAFE(at, next_output, &job->parts[ROW_MAP_OUTPUT]) {
        drop(store, STORED(at, in_job));
    }
    LIST_EACH(at, &job->parts[ROW_ATTEMPT]) {
        struct row_attempt *attempt = (struct row_attempt *)(void *)&STORED(at, in_job)->row;
        if (attempt->outcome == OUTCOME_PENDING) {
            attempt->outcome = OUTCOME_LOST;
        }
    }
}

static const struct stage_spec *keep_spec(struct row_store *store, const struct stage_spec *from)
{
    struct stage_spec *to = arena_copy(&store->arena, from, sizeof(*from));
    to->name = arena_strdup(&store->arena, from->name);
    to->need = requirement_copy(from->need);
    to->parents = arena_copy(&store->arena, from->parents, from->n_parents * sizeof(*from->parents));
    to->tasks = NULL;
    for (uint32_t i = 0; i < from->n_parents; i++) {
        CHECK(!from->parents[i].added);
    }
    return to;
}

static void apply_stage(struct row_store *store, const struct row *row)
{
    const struct row_stage *from = (const struct row_stage *)(const void *)row;
    struct row_key key = {.name = from->job_id, .stage = from->stage};
    CHECK((find(store, ROW_STAGE, key) == NULL) == from->is_new);
    struct stored *entity = find_or_add(store, ROW_STAGE, key, sizeof(struct row_stage));
    struct row_stage *to = (struct row_stage *)(void *)&entity->row;
    to->is_new = true;
    to->job_id = entity->key.name;
    to->stage = from->stage;
    if (from->is_new) {
        to->spec = keep_spec(store, from->spec);
    }
    to->recovered = arena_copy(&store->arena, from->recovered, from->n_recovered * sizeof(*from->recovered));
    to->n_recovered = from->n_recovered;
}

static void apply_task(struct row_store *store, const struct row *row)
{
    const struct row_task *from = (const struct row_task *)(const void *)row;
    struct row_key key = task_key(from->ref, 0);
    CHECK((find(store, ROW_TASK, key) == NULL) == from->is_new);
    struct stored *entity = find_or_add(store, ROW_TASK, key, sizeof(struct row_task));
    struct row_task *to = (struct row_task *)(void *)&entity->row;
    struct row_task old = *to;
    CHECK(from->attempt >= old.attempt);
    *to = *from;
    to->row = old.row;
    to->is_new = true;
    to->ref.job_id = entity->key.name;
    if (!from->is_new) {
        to->inputs = old.inputs;
        to->inputs_bytes = old.inputs_bytes;
    }
    to->worker_id = old.worker_id;
    keep(store, &to->worker_id, from->worker_id);
    to->failed_on = from->failed_on.count == 0 ? (struct string_list){0} : keep_list(store, from->failed_on);
    to->message = arena_strdup(&store->arena, from->message);
}

static void apply_lease(struct row_store *store, const struct row *row)
{
    const struct row_lease *from = (const struct row_lease *)(const void *)row;
    struct row_key key = task_key(from->ref, 0);
    CHECK(find(store, ROW_LEASE, key) == NULL); /* one lease per task, by the primary key */
    struct stored *entity = find_or_add(store, ROW_LEASE, key, sizeof(struct row_lease));
    struct row_lease *to = (struct row_lease *)(void *)&entity->row;
    *to = *from;
    to->row = (struct row){.kind = ROW_LEASE};
    to->ref.job_id = entity->key.name;
    to->worker_id = arena_strdup(&store->arena, from->worker_id);
}

static void apply_lease_gone(struct row_store *store, const struct row *row)
{
    const struct row_lease_gone *from = (const struct row_lease_gone *)(const void *)row;
    const struct row_lease *lease = stored_lease(store, from->ref);
    if (lease != NULL && lease_token_equal(lease->token, from->token)) {
        drop(store, stored_of(&lease->row));
    }
}

static void apply_map_output(struct row_store *store, const struct row *row)
{
    const struct row_map_output *from = (const struct row_map_output *)(const void *)row;
    struct stored *entity =
        find_or_add(store, ROW_MAP_OUTPUT, task_key(from->ref, from->attempt), sizeof(struct row_map_output));
    struct row_map_output *to = (struct row_map_output *)(void *)&entity->row;
    *to = *from;
    to->row = (struct row){.kind = ROW_MAP_OUTPUT};
    to->ref.job_id = entity->key.name;
    to->worker_id = arena_strdup(&store->arena, from->worker_id);
    to->incarnation = arena_strdup(&store->arena, from->incarnation);
    to->address = arena_strdup(&store->arena, from->address);
    to->partitions = arena_copy(&store->arena, from->partitions, from->n_partitions * sizeof(*from->partitions));
}

static void apply_result(struct row_store *store, const struct row *row)
{
    const struct row_result *from = (const struct row_result *)(const void *)row;
    struct stored *entity =
        find_or_add(store, ROW_RESULT, task_key(from->ref, from->attempt), sizeof(struct row_result));
    struct row_result *to = (struct row_result *)(void *)&entity->row;
    *to = *from;
    to->row = (struct row){.kind = ROW_RESULT};
    to->ref.job_id = entity->key.name;
    to->worker_id = arena_strdup(&store->arena, from->worker_id);
}

static void apply_output_gone(struct row_store *store, const struct row *row)
{
    const struct row_output_gone *from = (const struct row_output_gone *)(const void *)row;
    enum row_kind kind = row->kind == ROW_RESULT_GONE ? ROW_RESULT : ROW_MAP_OUTPUT;
    drop(store, find(store, kind, task_key(from->ref, from->attempt)));
}

static void apply_node(struct row_store *store, const struct row *row)
{
    const struct row_node *from = (const struct row_node *)(const void *)row;
    struct stored *entity =
        find_or_add(store, ROW_NODE, (struct row_key){.name = from->worker_id}, sizeof(struct row_node));
    struct row_node *to = (struct row_node *)(void *)&entity->row;
    struct row_node old = *to;
    *to = *from;
    to->row = old.row;
    to->worker_id = entity->key.name;
    to->incarnation = arena_strdup(&store->arena, from->incarnation);
    to->address = arena_strdup(&store->arena, from->address);
    to->version = arena_strdup(&store->arena, from->version);
    for (int i = 0; i < NODE_PAST_INCARNATIONS; i++) {
        to->past_incarnations[i] = arena_strdup(&store->arena, from->past_incarnations[i]);
    }
    to->offer = offer_copy(from->offer);
    mem_free((void *)(uintptr_t)old.offer);
}

static void apply_node_gone(struct row_store *store, const struct row *row)
{
    const struct row_node_gone *from = (const struct row_node_gone *)(const void *)row;
    struct stored *entity = find(store, ROW_NODE, (struct row_key){.name = from->worker_id});
    if (entity != NULL) {
        mem_free((void *)(uintptr_t)((struct row_node *)(void *)&entity->row)->offer);
        drop(store, entity);
    }
}

static void apply_attempt(struct row_store *store, const struct row *row)
{
    const struct row_attempt *from = (const struct row_attempt *)(const void *)row;
    struct row_key key = task_key(from->ref, from->attempt);
    CHECK((find(store, ROW_ATTEMPT, key) == NULL) == (from->outcome == OUTCOME_PENDING));
    struct stored *entity = find_or_add(store, ROW_ATTEMPT, key, sizeof(struct row_attempt));
    struct row_attempt *to = (struct row_attempt *)(void *)&entity->row;
    struct row_attempt old = *to;
    *to = *from;
    to->row = old.row;
    to->ref.job_id = entity->key.name;
    if (from->outcome != OUTCOME_PENDING) {
        to->idempotency_key = old.idempotency_key;
    }
    to->worker_id = old.worker_id;
    keep(store, &to->worker_id, from->worker_id);
}

static void apply_event(struct row_store *store, const struct row *row)
{
    const struct row_event *from = (const struct row_event *)(const void *)row;
    CHECK_UINT(from->seq, store->n_events + 1);
    CHECK(store->n_events == 0 || from->at_ms >= store->events[store->n_events - 1].at_ms);
    store->events = mem_grow(store->events, &store->cap_events, store->n_events + 1, sizeof(*store->events));
    struct row_event *to = &store->events[store->n_events++];
    struct stored *job =
        from->ref.job_id == NULL ? NULL : find(store, ROW_JOB, (struct row_key){.name = from->ref.job_id});
    CHECK((from->ref.job_id == NULL) == (job == NULL)); /* an event of a job that was never stored */
    *to = *from;
    to->ref.job_id = job == NULL ? NULL : job->key.name;
    to->worker_id = arena_strdup(&store->arena, from->worker_id);
    to->message = arena_strdup(&store->arena, from->message);
}

void row_store_apply(struct row_store *store, const struct row *row)
{
    typedef void apply_fn(struct row_store *, const struct row *);
    static apply_fn *const apply[ROW_META + 1] = {
        [ROW_JOB] = apply_job,
        [ROW_JOB_SWEEP] = apply_job_sweep,
        [ROW_STAGE] = apply_stage,
        [ROW_TASK] = apply_task,
        [ROW_LEASE] = apply_lease,
        [ROW_LEASE_GONE] = apply_lease_gone,
        [ROW_MAP_OUTPUT] = apply_map_output,
        [ROW_MAP_OUTPUT_GONE] = apply_output_gone,
        [ROW_RESULT] = apply_result,
        [ROW_RESULT_GONE] = apply_output_gone,
        [ROW_NODE] = apply_node,
        [ROW_NODE_GONE] = apply_node_gone,
        [ROW_ATTEMPT] = apply_attempt,
        [ROW_EVENT] = apply_event,
    };
    CHECK(row->kind < ROW_META);
    apply[row->kind](store, row);
    store->n_applied++;
}

/* The parts of a job that are loaded, in this order; attempts and events never are. */
static const enum row_kind LOADED_PARTS[] = {ROW_STAGE, ROW_TASK, ROW_LEASE, ROW_MAP_OUTPUT, ROW_RESULT};

static void load_parts(struct stored *job, enum row_kind kind, bool backwards, row_load_fn *load, void *context)
{
    struct list *head = &job->parts[kind];
    for (struct list *at = backwards ? head->prev : head->next; at != head; at = backwards ? at->prev : at->next) {
        load(context, &STORED(at, in_job)->row);
    }
}

static bool job_is_loaded(const struct stored *job)
{
    return !job_state_is_terminal(((const struct row_job *)(const void *)&job->row)->state);
}

void row_store_load(const struct row_store *store, bool backwards, row_load_fn *load, void *context)
{
    const struct list *jobs = &store->tables[ROW_JOB].all;
    for (struct list *at = backwards ? jobs->prev : jobs->next; at != jobs; at = backwards ? at->prev : at->next) {
        if (job_is_loaded(STORED(at, in_table))) {
            load(context, &STORED(at, in_table)->row);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(LOADED_PARTS); i++) {
        for (struct list *at = backwards ? jobs->prev : jobs->next; at != jobs; at = backwards ? at->prev : at->next) {
            if (job_is_loaded(STORED(at, in_table))) {
                load_parts(STORED(at, in_table), LOADED_PARTS[i], backwards, load, context);
            }
        }
    }
    const struct list *nodes = &store->tables[ROW_NODE].all;
    for (struct list *at = backwards ? nodes->prev : nodes->next; at != nodes; at = backwards ? at->prev : at->next) {
        load(context, &STORED(at, in_table)->row);
    }
    struct row_meta meta = {.row = {.kind = ROW_META}, .last_event_seq = store->n_events};
    load(context, &meta.row);
}

void row_store_load_job(const struct row_store *store, const char *job_id, row_load_fn *load, void *context)
{
    struct stored *job = find(store, ROW_JOB, (struct row_key){.name = job_id});
    CHECK(job != NULL);
    load(context, &job->row);
    for (size_t i = 0; i < ARRAY_LEN(LOADED_PARTS); i++) {
        load_parts(job, LOADED_PARTS[i], false, load, context);
    }
}

const struct row_job *stored_job(const struct row_store *store, const char *job_id)
{
    return (const struct row_job *)(const void *)row_store_get(store, ROW_JOB, (struct row_key){.name = job_id});
}

const struct row_stage *stored_stage(const struct row_store *store, const char *job_id, uint32_t stage)
{
    struct row_key key = {.name = job_id, .stage = stage};
    return (const struct row_stage *)(const void *)row_store_get(store, ROW_STAGE, key);
}

const struct row_task *stored_task(const struct row_store *store, struct task_ref ref)
{
    return (const struct row_task *)(const void *)row_store_get(store, ROW_TASK, task_key(ref, 0));
}

const struct row_lease *stored_lease(const struct row_store *store, struct task_ref ref)
{
    return (const struct row_lease *)(const void *)row_store_get(store, ROW_LEASE, task_key(ref, 0));
}

const struct row_attempt *stored_attempt(const struct row_store *store, struct task_ref ref, uint32_t attempt)
{
    return (const struct row_attempt *)(const void *)row_store_get(store, ROW_ATTEMPT, task_key(ref, attempt));
}

const struct row_map_output *stored_map_output(const struct row_store *store, struct task_ref ref, uint32_t attempt)
{
    return (const struct row_map_output *)(const void *)row_store_get(store, ROW_MAP_OUTPUT, task_key(ref, attempt));
}

const struct row_result *stored_result(const struct row_store *store, struct task_ref ref, uint32_t attempt)
{
    return (const struct row_result *)(const void *)row_store_get(store, ROW_RESULT, task_key(ref, attempt));
}

const struct row_node *stored_node(const struct row_store *store, const char *worker_id)
{
    return (const struct row_node *)(const void *)row_store_get(store, ROW_NODE, (struct row_key){.name = worker_id});
}
