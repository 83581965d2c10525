/* Batches and pruning: each in one go, under the lock, undone if it fails. */
#include <string.h>

#include "base/mem.h"
#include "store/memory_internal.h"

/* ---- applying rows ---- */

struct apply {
    struct database *db;
    struct memory_journal journal;
    struct arena arena;
    struct error *e;
};

static enum err put(struct apply *a, int table, const struct value *values)
{
    return memory_table_put(&a->db->tables[table], &a->journal, values, a->e);
}

static void remove_key(struct apply *a, int table, const struct value *key)
{
    struct record *record = memory_table_find(&a->db->tables[table], key);
    if (record != NULL) {
        memory_table_remove(&a->db->tables[table], &a->journal, record);
    }
}

static void remove_of_job(struct apply *a, int table, const char *job_id)
{
    struct value key = memory__text(job_id);
    uint32_t from = memory_table_from(&a->db->tables[table], &key, 1);
    while (memory_table_at(&a->db->tables[table], from, &key, 1)) {
        memory_table_remove(&a->db->tables[table], &a->journal, a->db->tables[table].by_key.items[from]);
    }
}

static enum err apply_kept(struct apply *a, const struct row *row)
{
    struct value values[MEMORY_COLUMNS_MAX];
    const struct table *table = table_of(row->kind);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        values[i] = table_get(row, &table->columns[i], &a->arena);
    }
    const struct record *before = memory_table_find(&a->db->tables[row->kind], values);
    if (before == NULL && !table_row_is_new(table, row)) {
        return ERR_OK; /* a change of something that is not there */
    }
    for (uint32_t i = 0; i < table->n_columns && before != NULL; i++) {
        values[i] = table->columns[i].role == ROLE_FIXED ? before->values[i] : values[i];
    }
    if (row->kind == ROW_LEASE) {
        const struct row_lease *lease = (const struct row_lease *)(const void *)row;
        if (lease->expires_at_ms <= lease->acquired_at_ms) {
            return error_set(a->e, ERR_INVALID, "a lease ends before it begins");
        }
    }
    return put(a, row->kind, values);
}

static enum err sweep_task(struct apply *a, const struct record *task, int64_t at_ms)
{
    const struct table *table = table_of(ROW_TASK);
    struct value values[MEMORY_COLUMNS_MAX];
    int64_t state = memory__number(task, ROW_TASK, "state");
    if (state != TASK_QUEUED && state != TASK_RUNNING) {
        return ERR_OK;
    }
    memcpy(values, task->values, table->n_columns * sizeof *values);
    values[memory__column(table->kind, "state")] = memory__int(TASK_CANCELED);
    values[memory__column(table->kind, "finished_at_ms")] = memory__int(at_ms);
    values[memory__column(table->kind, "lease_expires_at_ms")] = memory__int(0);
    if (state == TASK_RUNNING) {
        values[memory__column(table->kind, "outcome")] = memory__int(OUTCOME_LOST);
    }
    return put(a, ROW_TASK, values);
}

static enum err sweep_attempt(struct apply *a, const struct record *attempt, int64_t at_ms)
{
    const struct table *table = table_of(ROW_ATTEMPT);
    struct value values[MEMORY_COLUMNS_MAX];
    if (memory__number(attempt, ROW_ATTEMPT, "status") != OUTCOME_PENDING) {
        return ERR_OK;
    }
    memcpy(values, attempt->values, table->n_columns * sizeof *values);
    values[memory__column(table->kind, "status")] = memory__int(OUTCOME_LOST);
    values[memory__column(table->kind, "changed_at_ms")] = memory__int(at_ms);
    return put(a, ROW_ATTEMPT, values);
}

static enum err apply_sweep(struct apply *a, const struct row *row)
{
    const struct row_job_sweep *sweep = (const struct row_job_sweep *)(const void *)row;
    struct value key = memory__text(sweep->job_id);
    const struct memory_table *tasks = &a->db->tables[ROW_TASK];
    const struct memory_table *attempts = &a->db->tables[ROW_ATTEMPT];
    enum err err = ERR_OK;
    for (uint32_t i = memory_table_from(tasks, &key, 1); err == ERR_OK && memory_table_at(tasks, i, &key, 1); i++) {
        err = sweep_task(a, tasks->by_key.items[i], sweep->at_ms);
    }
    for (uint32_t i = memory_table_from(attempts, &key, 1); err == ERR_OK && memory_table_at(attempts, i, &key, 1);
         i++) {
        err = sweep_attempt(a, attempts->by_key.items[i], sweep->at_ms);
    }
    remove_of_job(a, ROW_LEASE, sweep->job_id);
    remove_of_job(a, ROW_MAP_OUTPUT, sweep->job_id);
    return err;
}

static enum err apply_lease_gone(struct apply *a, const struct row *row)
{
    const struct row_lease_gone *gone = (const struct row_lease_gone *)(const void *)row;
    struct value key[] = {memory__text(gone->ref.job_id), memory__int(gone->ref.stage), memory__int(gone->ref.task)};
    struct value token = memory__bytes(&gone->token, sizeof gone->token);
    struct record *lease = memory_table_find(&a->db->tables[ROW_LEASE], key);
    if (lease != NULL && memory_compare(&lease->values[memory__column(ROW_LEASE, "lease_token")], &token) == 0) {
        memory_table_remove(&a->db->tables[ROW_LEASE], &a->journal, lease);
    }
    return ERR_OK;
}

static enum err apply_output_gone(struct apply *a, const struct row *row)
{
    const struct row_output_gone *gone = (const struct row_output_gone *)(const void *)row;
    struct value key[] = {memory__text(gone->ref.job_id), memory__int(gone->ref.stage), memory__int(gone->ref.task),
                          memory__int(gone->attempt)};
    remove_key(a, row->kind == ROW_RESULT_GONE ? ROW_RESULT : ROW_MAP_OUTPUT, key);
    return ERR_OK;
}

static enum err apply_node_gone(struct apply *a, const struct row *row)
{
    struct value key = memory__text(((const struct row_node_gone *)(const void *)row)->worker_id);
    remove_key(a, ROW_NODE, &key);
    return ERR_OK;
}

static enum err apply_row(struct apply *a, const struct row *row)
{
    typedef enum err apply_fn(struct apply *, const struct row *);
    static apply_fn *const special[ROW_META + 1] = {
        [ROW_JOB_SWEEP] = apply_sweep,
        [ROW_LEASE_GONE] = apply_lease_gone,
        [ROW_MAP_OUTPUT_GONE] = apply_output_gone,
        [ROW_RESULT_GONE] = apply_output_gone,
        [ROW_NODE_GONE] = apply_node_gone,
    };
    ASSERT(row->kind < ROW_META);
    return special[row->kind] != NULL ? special[row->kind](a, row) : apply_kept(a, row);
}

static enum err apply_extras(struct apply *a, const struct batch *batch)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < batch->n_payloads && err == ERR_OK; i++) {
        const struct payload *p = &batch->payloads[i];
        struct value values[] = {memory__text(p->job_id), memory__bytes(&p->digest, sizeof p->digest),
                                 memory__bytes(p->bytes, p->n_bytes)};
        if (memory_table_find(&a->db->tables[TABLE_PAYLOADS], values) == NULL) {
            err = put(a, TABLE_PAYLOADS, values);
        }
    }
    for (uint32_t i = 0; i < batch->n_data_sets && err == ERR_OK; i++) {
        const struct data_set *set = &batch->data_sets[i];
        struct value values[] = {memory__text(set->name), memory__text(set->source), memory__text(set->format)};
        if (set->source == NULL) {
            remove_key(a, TABLE_DATA_SETS, values);
        } else {
            err = put(a, TABLE_DATA_SETS, values);
        }
    }
    for (uint32_t i = 0; i < batch->n_inbox_done; i++) {
        struct value key = memory__int((int64_t)batch->inbox_done[i]);
        remove_key(a, TABLE_INBOX, &key);
    }
    return err;
}

static enum err apply_end(struct apply *a, enum err err)
{
    if (err == ERR_OK) {
        memory_journal_keep(&a->journal);
    } else {
        memory_journal_undo(&a->journal);
    }
    arena_deinit(&a->arena);
    return memory__leave(err);
}

enum err memory__commit(struct store *store, const struct fence *fence, const struct batch *batch, struct error *e)
{
    struct apply a = {.e = e};
    enum err err = memory__enter(store, &a.db, e);
    if (err != ERR_OK) {
        return err;
    }
    if (!memory__fence_holds(a.db, fence)) {
        return memory__leave(memory__fenced(e));
    }
    for (uint32_t i = 0; i < batch->n_rows && err == ERR_OK; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL && err == ERR_OK; row = row->next) {
            err = apply_row(&a, row);
        }
    }
    if (err == ERR_OK) {
        err = apply_extras(&a, batch);
    }
    return apply_end(&a, err);
}
/* ---- upkeep ---- */

static void prune_job(struct apply *a, const struct record *job)
{
    static const int tables[] = {ROW_STAGE,  ROW_TASK,    ROW_LEASE,      ROW_MAP_OUTPUT,
                                 ROW_RESULT, ROW_ATTEMPT, TABLE_PAYLOADS, ROW_JOB};
    char *job_id = arena_strdup(&a->arena, job->values[0].bytes);
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        remove_of_job(a, tables[i], job_id);
    }
}

/* Removes at most `limit` jobs; true if there are more. */
static bool prune_jobs(struct apply *a, int64_t before_ms, uint32_t limit)
{
    const struct memory_order *jobs = &a->db->tables[ROW_JOB].by_key;
    uint32_t removed = 0;
    for (uint32_t i = 0; i < jobs->n;) {
        const struct record *job = jobs->items[i];
        if (memory__job_is_open(job) || memory__number(job, ROW_JOB, "finished_at_ms") >= before_ms) {
            i++;
            continue;
        }
        if (removed == limit) {
            return true;
        }
        prune_job(a, job);
        removed++;
    }
    return false;
}

/* Cuts events off at the old end, but never the newest: the next one gets its number from it. */
static bool prune_events(struct apply *a, int64_t before_ms, uint32_t limit)
{
    struct memory_table *events = &a->db->tables[ROW_EVENT];
    for (uint32_t removed = 0; events->by_key.n > 1; removed++) {
        if (memory__number(events->by_key.items[0], ROW_EVENT, "at_ms") >= before_ms) {
            return false;
        }
        if (removed == limit) {
            return true;
        }
        memory_table_remove(events, &a->journal, events->by_key.items[0]);
    }
    return false;
}

enum err memory__prune(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit,
                       bool *out_more, struct error *e)
{
    struct apply a = {.e = e};
    enum err err = memory__enter(store, &a.db, e);
    if (err != ERR_OK) {
        return err;
    }
    if (!memory__fence_holds(a.db, fence)) {
        return memory__leave(memory__fenced(e));
    }
    bool more_jobs = prune_jobs(&a, before_ms, limit);
    bool more_events = prune_events(&a, before_ms, limit);
    *out_more = more_jobs || more_events;
    return apply_end(&a, ERR_OK);
}
