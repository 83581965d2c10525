/*
 * store.c - rows in arrays, and an undo log.
 */
#include "sim/store.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "core/requirement.h"
#include "sim/world.h"

void store_reset(struct store *store)
{
    ASSERT(!store->trying);
    arena_reset(&store->arena);
    for (uint32_t i = 0; i < store->n_jobs; i++) {
        struct stored_job *job = &store->jobs[i];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            job->stages[s].present = false;
        }
        job->n_stages = 0;
        job->present = false;
    }
    for (uint32_t i = 0; i < MAX_WORKERS; i++) {
        store->nodes[i].present = false;
    }
    for (uint32_t i = 0; i < MAX_KEYS; i++) {
        store->key_job[i] = NO_INDEX;
    }
    store->n_jobs = 0;
    store->n_tids = 0;
    store->last_event_seq = 0;
    store->n_maps = 1;
    store->n_results = 1;
}

void store_deinit(struct store *store)
{
    arena_deinit(&store->arena);
    mem_free(store->undo);
    store->undo = NULL;
    store->undo_cap = 0;
}

/* ---- trying ---- */

struct undo_mark {
    void *at;
    uint32_t bytes;
};

/* Must be called before memory of the store changes. */
static void touch(struct store *store, void *at, size_t bytes)
{
    if (!store->trying) {
        return;
    }
    struct undo_mark mark = {.at = at, .bytes = (uint32_t)bytes};
    uint32_t need = store->undo_bytes + (uint32_t)(bytes + sizeof(mark));
    if (need > store->undo_cap) {
        store->undo = mem_grow(store->undo, &store->undo_cap, need, 1);
    }
    memcpy(store->undo + store->undo_bytes, at, bytes);
    memcpy(store->undo + store->undo_bytes + bytes, &mark, sizeof(mark));
    store->undo_bytes = need;
}

#define TOUCH(store, field) touch(store, &(field), sizeof(field))

void store_try_begin(struct store *store)
{
    ASSERT(!store->trying);
    store->trying = true;
    store->undo_bytes = 0;
    TOUCH(store, store->n_jobs);
    TOUCH(store, store->n_tids);
    TOUCH(store, store->n_maps);
    TOUCH(store, store->n_results);
    TOUCH(store, store->last_event_seq);
}

void store_try_end(struct store *store)
{
    ASSERT(store->trying);
    while (store->undo_bytes > 0) {
        struct undo_mark mark;
        store->undo_bytes -= (uint32_t)sizeof(mark);
        memcpy(&mark, store->undo + store->undo_bytes, sizeof(mark));
        store->undo_bytes -= mark.bytes;
        memcpy(mark.at, store->undo + store->undo_bytes, mark.bytes);
    }
    store->trying = false;
}

/* ---- copies ---- */

static const char *keep_worker(const char *worker_id)
{
    return worker_id == NULL ? NULL : worker_name(name_index(worker_id));
}

static const char *keep_proc(const char *incarnation)
{
    return incarnation == NULL ? NULL : proc_name(name_index(incarnation));
}

static const char *keep_address(const char *address)
{
    return address == NULL ? NULL : proc_address(name_index(address));
}

static struct string_list keep_list(struct arena *arena, struct string_list list)
{
    const char **items = arena_alloc(arena, sizeof(char *) * (list.count + 1));
    for (uint32_t i = 0; i < list.count; i++) {
        items[i] = arena_strdup(arena, list.items[i]);
    }
    return (struct string_list){.items = items, .count = list.count};
}

static struct capability_list keep_capabilities(struct arena *arena, struct capability_list list)
{
    struct capability *items = arena_alloc(arena, sizeof(*items) * (list.count + 1));
    for (uint32_t i = 0; i < list.count; i++) {
        items[i] = list.items[i];
        items[i].key = arena_strdup(arena, items[i].key);
        items[i].text = arena_strdup(arena, items[i].text);
        struct string_list texts = {.items = items[i].items, .count = items[i].n_items};
        items[i].items = keep_list(arena, texts).items;
    }
    return (struct capability_list){.items = items, .count = list.count};
}

static const struct requirement *keep_requirement(struct arena *arena, const struct requirement *from)
{
    struct requirement *r = arena_alloc(arena, sizeof(*r));
    *r = *from;
    r->executor = arena_strdup(arena, from->executor);
    r->engine = arena_strdup(arena, from->engine);
    r->ops = keep_list(arena, from->ops);
    r->any_executors = keep_list(arena, from->any_executors);
    r->capabilities = keep_capabilities(arena, from->capabilities);
    r->allowed_nodes = keep_list(arena, from->allowed_nodes);
    r->forbidden_nodes = keep_list(arena, from->forbidden_nodes);
    return r;
}

static const struct offer *keep_offer(struct arena *arena, const struct offer *from)
{
    struct offer *offer = arena_alloc(arena, sizeof(*offer));
    offer->executors = keep_list(arena, from->executors);
    offer->ops = keep_list(arena, from->ops);
    offer->capabilities = keep_capabilities(arena, from->capabilities);
    offer->engine = arena_strdup(arena, from->engine);
    return offer;
}

static const struct stage_spec *keep_spec(struct arena *arena, const struct stage_spec *from)
{
    struct stage_spec *spec = arena_alloc(arena, sizeof(*spec));
    *spec = *from;
    spec->name = arena_strdup(arena, from->name);
    spec->need = keep_requirement(arena, from->need);
    spec->parents = arena_copy(arena, from->parents, sizeof(*from->parents) * from->n_parents);
    return spec;
}

/* ---- rows of jobs, stages and tasks ---- */

static struct stored_task *task_of(struct store *store, const struct task_ref *ref)
{
    uint32_t tid = store_ref_tid(store, ref);
    ASSERT(tid < store->n_tids);
    return &store->tasks[tid];
}

static void apply_job(struct store *store, const struct row_job *row)
{
    uint32_t index = name_index(row->job_id);
    ASSERT(index < MAX_JOBS);
    struct stored_job *job = &store->jobs[index];
    TOUCH(store, job->row);
    TOUCH(store, job->present);
    TOUCH(store, job->n_stages);
    if (row->is_new) {
        job->row = *row;
        job->row.job_id = job_name(index);
        job->row.name = arena_strdup(&store->arena, row->name);
        if (row->idempotency_key != NULL) {
            uint32_t key = name_index(row->idempotency_key);
            job->row.idempotency_key = key_name(key);
            TOUCH(store, store->key_job[key]);
            store->key_job[key] = index;
        }
        if (row->parent.task.job_id != NULL) {
            job->row.parent.task.job_id = job_name(name_index(row->parent.task.job_id));
        }
        job->row.is_new = true; /* a load is complete */
        job->present = true;
        job->n_stages = 0;
    } else {
        ASSERT(job->present);
        job->row.state = row->state;
        job->row.started_at_ms = row->started_at_ms;
        job->row.finished_at_ms = row->finished_at_ms;
        job->row.n_stages = row->n_stages;
        job->row.inline_bytes = row->inline_bytes;
    }
    job->row.message = arena_strdup(&store->arena, row->message);
    store->n_jobs = index + 1 > store->n_jobs ? index + 1 : store->n_jobs;
}

static void apply_stage(struct store *store, const struct row_stage *row)
{
    ASSERT(row->stage < MAX_STAGES);
    uint32_t index = name_index(row->job_id);
    struct stored_job *job = &store->jobs[index];
    ASSERT(job->present);
    struct stored_stage *stage = &job->stages[row->stage];
    touch(store, stage, sizeof(*stage));
    TOUCH(store, job->n_stages);
    if (row->is_new) {
        stage->spec = keep_spec(&store->arena, row->spec);
        stage->def = row->spec->timeout_ms - STAGE_DEF_BASE;
        stage->first_tid = store->n_tids;
        stage->present = true;
        store->n_tids += row->spec->n_tasks;
        ASSERT(store->n_tids <= MAX_TASKS);
    }
    stage->row = *row;
    stage->row.is_new = true;
    stage->row.job_id = job_name(index);
    stage->row.spec = stage->spec;
    stage->row.recovered = arena_copy(&store->arena, row->recovered, sizeof(uint64_t) * row->n_recovered);
    job->n_stages = row->stage + 1 > job->n_stages ? row->stage + 1 : job->n_stages;
}

static void apply_task(struct store *store, const struct row_task *row)
{
    struct stored_task *task = task_of(store, &row->ref);
    touch(store, task, sizeof(*task));
    struct digest inputs = task->row.inputs;
    uint32_t inputs_bytes = task->row.inputs_bytes;
    task->row = *row;
    task->row.message = arena_strdup(&store->arena, row->message);
    task->row.is_new = true;
    task->row.ref.job_id = job_name(name_index(row->ref.job_id));
    task->row.worker_id = keep_worker(row->worker_id);
    ASSERT(row->failed_on.count <= LIMIT_ATTEMPTS_REMEMBERED);
    for (uint32_t i = 0; i < row->failed_on.count; i++) {
        task->failed_on[i] = keep_worker(row->failed_on.items[i]);
    }
    task->row.failed_on.items = task->failed_on;
    if (row->is_new) {
        task->has_lease = false;
        task->maps = 0;
        task->results = 0;
    } else {
        task->row.inputs = inputs;
        task->row.inputs_bytes = inputs_bytes;
    }
}

static void sweep_task(struct store *store, struct stored_task *task, int64_t at_ms)
{
    if (task->row.state != TASK_QUEUED && task->row.state != TASK_RUNNING && !task->has_lease && task->maps == 0) {
        return;
    }
    touch(store, task, sizeof(*task));
    if (task->row.state == TASK_QUEUED || task->row.state == TASK_RUNNING) {
        task->row.state = TASK_CANCELED;
        task->row.finished_at_ms = at_ms;
        task->row.outcome = task->row.outcome == OUTCOME_PENDING ? OUTCOME_LOST : task->row.outcome;
    }
    task->has_lease = false;
    task->maps = 0;
}

static void apply_sweep(struct store *store, const struct row_job_sweep *row)
{
    struct stored_job *job = &store->jobs[name_index(row->job_id)];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            sweep_task(store, &store->tasks[job->stages[s].first_tid + t], row->at_ms);
        }
    }
}

/* ---- leases and outputs ---- */

static void apply_lease(struct store *store, const struct row_lease *row)
{
    struct stored_task *task = task_of(store, &row->ref);
    TOUCH(store, task->lease);
    TOUCH(store, task->has_lease);
    task->lease = *row;
    task->lease.ref.job_id = task->row.ref.job_id;
    task->lease.worker_id = keep_worker(row->worker_id);
    task->has_lease = true;
}

static void apply_lease_gone(struct store *store, const struct row_lease_gone *row)
{
    struct stored_task *task = task_of(store, &row->ref);
    if (task->has_lease && lease_token_equal(task->lease.token, row->token)) {
        TOUCH(store, task->has_lease);
        task->has_lease = false;
    }
}

static void apply_map_output_gone(struct store *store, const struct row_output_gone *row)
{
    struct stored_task *task = task_of(store, &row->ref);
    for (uint32_t *at = &task->maps; *at != 0; at = &store->maps[*at].next) {
        if (store->maps[*at].row.attempt == row->attempt) {
            touch(store, at, sizeof(*at));
            *at = store->maps[*at].next;
            return;
        }
    }
}

static void apply_map_output(struct store *store, const struct row_map_output *row)
{
    ASSERT(row->n_partitions <= MAX_PARTITIONS);
    ASSERT(store->n_maps < MAX_OUTPUTS);
    struct row_output_gone gone = {.ref = row->ref, .attempt = row->attempt};
    apply_map_output_gone(store, &gone); /* the same key again replaces it */
    struct stored_task *task = task_of(store, &row->ref);
    struct stored_map *map = &store->maps[store->n_maps];
    map->row = *row;
    map->row.ref.job_id = task->row.ref.job_id;
    map->row.worker_id = keep_worker(row->worker_id);
    map->row.incarnation = keep_proc(row->incarnation);
    map->row.address = keep_address(row->address);
    memcpy(map->partitions, row->partitions, sizeof(*row->partitions) * row->n_partitions);
    map->row.partitions = map->partitions;
    map->next = task->maps;
    TOUCH(store, task->maps);
    task->maps = store->n_maps++;
}

static void apply_result_gone(struct store *store, const struct row_output_gone *row)
{
    struct stored_task *task = task_of(store, &row->ref);
    for (uint32_t *at = &task->results; *at != 0; at = &store->results[*at].next) {
        if (store->results[*at].row.attempt == row->attempt) {
            touch(store, at, sizeof(*at));
            *at = store->results[*at].next;
            return;
        }
    }
}

static void apply_result(struct store *store, const struct row_result *row)
{
    ASSERT(store->n_results < MAX_OUTPUTS);
    struct row_output_gone gone = {.ref = row->ref, .attempt = row->attempt};
    apply_result_gone(store, &gone);
    struct stored_task *task = task_of(store, &row->ref);
    struct stored_result *result = &store->results[store->n_results];
    result->row = *row;
    result->row.ref.job_id = task->row.ref.job_id;
    result->row.worker_id = keep_worker(row->worker_id);
    result->next = task->results;
    TOUCH(store, task->results);
    task->results = store->n_results++;
}

/* ---- nodes ---- */

static void apply_node(struct store *store, const struct row_node *row)
{
    uint32_t index = name_index(row->worker_id);
    ASSERT(index < MAX_WORKERS);
    struct stored_node *node = &store->nodes[index];
    touch(store, node, sizeof(*node));
    const struct offer *offer = node->present ? node->row.offer : NULL;
    node->row = *row;
    node->row.worker_id = worker_name(index);
    node->row.incarnation = keep_proc(row->incarnation);
    for (uint32_t i = 0; i < NODE_PAST_INCARNATIONS; i++) {
        node->row.past_incarnations[i] = keep_proc(row->past_incarnations[i]);
    }
    node->row.address = keep_address(row->address);
    node->row.version = arena_strdup(&store->arena, row->version);
    bool same = offer != NULL && offer_equal(offer, row->offer);
    node->row.offer = same ? offer : keep_offer(&store->arena, row->offer);
    node->present = true;
}

static void apply_node_gone(struct store *store, const struct row_node_gone *row)
{
    struct stored_node *node = &store->nodes[name_index(row->worker_id)];
    TOUCH(store, node->present);
    node->present = false;
}

void store_apply(struct store *store, const struct row *row)
{
    switch (row->kind) {
    case ROW_JOB:
        apply_job(store, (const struct row_job *)row);
        break;
    case ROW_JOB_SWEEP:
        apply_sweep(store, (const struct row_job_sweep *)row);
        break;
    case ROW_STAGE:
        apply_stage(store, (const struct row_stage *)row);
        break;
    case ROW_TASK:
        apply_task(store, (const struct row_task *)row);
        break;
    case ROW_LEASE:
        apply_lease(store, (const struct row_lease *)row);
        break;
    case ROW_LEASE_GONE:
        apply_lease_gone(store, (const struct row_lease_gone *)row);
        break;
    case ROW_MAP_OUTPUT:
        apply_map_output(store, (const struct row_map_output *)row);
        break;
    case ROW_MAP_OUTPUT_GONE:
        apply_map_output_gone(store, (const struct row_output_gone *)row);
        break;
    case ROW_RESULT:
        apply_result(store, (const struct row_result *)row);
        break;
    case ROW_RESULT_GONE:
        apply_result_gone(store, (const struct row_output_gone *)row);
        break;
    case ROW_NODE:
        apply_node(store, (const struct row_node *)row);
        break;
    case ROW_NODE_GONE:
        apply_node_gone(store, (const struct row_node_gone *)row);
        break;
    case ROW_EVENT:
        store->last_event_seq = ((const struct row_event *)row)->seq;
        break;
    case ROW_ATTEMPT:
    case ROW_META:
        break;
    }
}

/* ---- loading ---- */

typedef void job_part_fn(const struct store *store, uint32_t job, store_row_fn *fn, void *context);

static void each_job(const struct store *store, uint32_t job, store_row_fn *fn, void *context)
{
    fn(context, &store->jobs[job].row.row);
}

static void each_stage(const struct store *store, uint32_t job, store_row_fn *fn, void *context)
{
    for (uint32_t s = 0; s < store->jobs[job].n_stages; s++) {
        fn(context, &store->jobs[job].stages[s].row.row);
    }
}

static void each_task(const struct store *store, uint32_t job, store_row_fn *fn, void *context)
{
    for (uint32_t s = 0; s < store->jobs[job].n_stages; s++) {
        const struct stored_stage *stage = &store->jobs[job].stages[s];
        for (uint32_t t = 0; t < stage->spec->n_tasks; t++) {
            fn(context, &store->tasks[stage->first_tid + t].row.row);
        }
    }
}

static void each_rest(const struct store *store, uint32_t job, store_row_fn *fn, void *context)
{
    for (uint32_t s = 0; s < store->jobs[job].n_stages; s++) {
        const struct stored_stage *stage = &store->jobs[job].stages[s];
        for (uint32_t t = 0; t < stage->spec->n_tasks; t++) {
            const struct stored_task *task = &store->tasks[stage->first_tid + t];
            if (task->has_lease) {
                fn(context, &task->lease.row);
            }
            for (uint32_t i = task->maps; i != 0; i = store->maps[i].next) {
                fn(context, &store->maps[i].row.row);
            }
            for (uint32_t i = task->results; i != 0; i = store->results[i].next) {
                fn(context, &store->results[i].row.row);
            }
        }
    }
}

static void each_open_job(const struct store *store, job_part_fn *part, store_row_fn *fn, void *context)
{
    for (uint32_t i = 0; i < store->n_jobs; i++) {
        if (store_job_is_open(store, i)) {
            part(store, i, fn, context);
        }
    }
}

void store_each_row(const struct store *store, store_row_fn *fn, void *context)
{
    struct row_meta meta = {.row = {.kind = ROW_META}, .last_event_seq = store->last_event_seq};
    fn(context, &meta.row);
    each_open_job(store, each_job, fn, context);
    each_open_job(store, each_stage, fn, context);
    each_open_job(store, each_task, fn, context);
    for (uint32_t i = 0; i < MAX_WORKERS; i++) {
        if (store->nodes[i].present) {
            fn(context, &store->nodes[i].row.row);
        }
    }
    each_open_job(store, each_rest, fn, context);
}

void store_each_row_of_job(const struct store *store, uint32_t job, store_row_fn *fn, void *context)
{
    each_job(store, job, fn, context);
    each_stage(store, job, fn, context);
    each_task(store, job, fn, context);
    each_rest(store, job, fn, context);
}
