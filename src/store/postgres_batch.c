/*
 * Nets out a batch. Its rows are to be applied in order, later ones over earlier ones, but a statement that writes many
 * rows may name each row once. So all that a batch says about one row is gathered in a cell:
 *
 *   written, then written again   the later changes; the fixed columns of the first, if that was new
 *   written, then removed         removed, whatever was there before the batch
 *   removed, then written         written
 *
 * A lease is removed by its token. If the batch has written the lease, its token is known and decides here; if not, the
 * database decides: these removals come first, because what the batch writes comes later.
 *
 * A sweep changes what the batch has said so far about the job's rows, and all rows in the database that it has said
 * nothing about. What the batch says, before or after the sweep, replaces whatever the sweep does in the database: it is
 * enough to do all sweeps first. For a job that is swept twice the first sweep is the one that finds anything.
 */
#include <string.h>

#include "base/siphash.h"
#include "core/command.h"
#include "store/postgres_internal.h"

#define KEEP_SLOTS 16384

/* Keys come from this cluster's own rows, but the names in them come from outside. */
static const struct siphash_key hash_key = {UINT64_C(0x7b1d8f6a3c5e9042), UINT64_C(0x2f94c1d0b7a6835e)};

static bool owner_matches(const void *value, const void *key)
{
    return strcmp(((const struct postgres_owner *)value)->name, key) == 0;
}

/* A row without a name goes along as any other: the database refuses it. */
static struct postgres_owner *owner_of(struct postgres_batch *b, const char *name)
{
    name = name == NULL ? "" : name;
    if (b->last_owner != NULL && b->last_owner->name == name) {
        return b->last_owner;
    }
    uint64_t hash = siphash(&hash_key, name, strlen(name));
    struct postgres_owner *owner = map_get(&b->owners, hash, owner_matches, name);
    if (owner == NULL) {
        owner = arena_zalloc(b->arena, sizeof *owner);
        owner->name = name;
        map_put(&b->owners, hash, owner);
    }
    b->last_owner = owner;
    return owner;
}

struct cell_key {
    const struct postgres_owner *owner;
    enum row_kind kind;
    uint32_t numbers[3];
};

static bool cell_matches(const void *value, const void *key)
{
    const struct postgres_cell *cell = value;
    const struct cell_key *wanted = key;
    return cell->owner == wanted->owner && cell->kind == wanted->kind &&
           memcmp(cell->key, wanted->numbers, sizeof cell->key) == 0;
}

static struct postgres_cell *add_cell(struct postgres_batch *b, enum row_kind kind)
{
    struct postgres_cell *cell = arena_zalloc(b->arena, sizeof *cell);
    cell->kind = kind;
    *b->kinds[kind].end = cell;
    b->kinds[kind].end = &cell->next;
    return cell;
}

/* The cell of that row; an empty one if the batch has not mentioned the row yet. */
static struct postgres_cell *cell_at(struct postgres_batch *b, const char *name, enum row_kind kind,
                                     const uint32_t numbers[3])
{
    struct postgres_owner *owner = owner_of(b, name);
    struct cell_key key = {owner, kind, {numbers[0], numbers[1], numbers[2]}};
    uint64_t hash = (uint64_t)(uintptr_t)owner ^ ((uint64_t)kind << 56) ^ ((uint64_t)numbers[0] << 40) ^
                    ((uint64_t)numbers[2] << 32) ^ numbers[1];
    struct postgres_cell *cell = map_get(&b->cells, hash, cell_matches, &key);
    if (cell == NULL) {
        cell = add_cell(b, kind);
        cell->owner = owner;
        memcpy(cell->key, numbers, sizeof cell->key);
        cell->next_of_owner = owner->cells;
        owner->cells = cell;
        map_put(&b->cells, hash, cell);
    }
    return cell;
}

static struct postgres_cell *cell_of_row(struct postgres_batch *b, const struct table *table, const struct row *row)
{
    const char *name = NULL;
    uint32_t numbers[3] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n_columns && table->columns[i].role == ROLE_KEY; i++) {
        struct value value = table_get(row, &table->columns[i], b->arena);
        if (value.type == VALUE_IS_TEXT) {
            name = value.bytes;
        } else {
            ASSERT(n < ARRAY_LEN(numbers));
            numbers[n++] = (uint32_t)value.number;
        }
    }
    return cell_at(b, name, table->kind, numbers);
}

/* Events are numbered upwards, so that the cell of a new one need not be looked for. */
static void apply_event(struct postgres_batch *b, const struct row *row)
{
    uint64_t seq = ((const struct row_event *)(const void *)row)->seq;
    const struct row_event *last = (const struct row_event *)(const void *)b->last_event;
    if (last != NULL && seq <= last->seq) {
        for (struct postgres_cell *cell = b->kinds[ROW_EVENT].first; cell != NULL; cell = cell->next) {
            if (((const struct row_event *)(const void *)cell->fixed)->seq == seq) {
                return; /* all that it has is fixed */
            }
        }
    } else {
        b->last_event = row;
    }
    struct postgres_cell *cell = add_cell(b, ROW_EVENT);
    cell->fixed = row;
    cell->changes = row;
}

static void apply_kept(struct postgres_batch *b, const struct row *row)
{
    const struct table *table = table_of(row->kind);
    struct postgres_cell *cell = cell_of_row(b, table, row);
    if (table_row_is_new(table, row) && (cell->fixed == NULL || cell->is_gone)) {
        cell->fixed = row;
    }
    cell->changes = row;
    cell->is_gone = false;
}

static void remove_cell(struct postgres_cell *cell)
{
    cell->is_gone = true;
    cell->fixed = NULL;
    cell->changes = NULL;
}

static void apply_lease_gone(struct postgres_batch *b, const struct row *row)
{
    const struct row_lease_gone *gone = (const struct row_lease_gone *)(const void *)row;
    const uint32_t numbers[3] = {gone->ref.stage, gone->ref.task, 0};
    struct postgres_cell *cell = cell_at(b, gone->ref.job_id, ROW_LEASE, numbers);
    const struct row_lease *lease = (const struct row_lease *)(const void *)cell->changes;
    if (lease != NULL && lease_token_equal(lease->token, gone->token)) {
        remove_cell(cell);
    } else if (lease == NULL && !cell->is_gone) {
        struct postgres_lease_gone *entry = arena_zalloc(b->arena, sizeof *entry);
        entry->row = gone;
        *b->leases_gone_end = entry;
        b->leases_gone_end = &entry->next;
    }
}

static void apply_output_gone(struct postgres_batch *b, const struct row *row)
{
    const struct row_output_gone *gone = (const struct row_output_gone *)(const void *)row;
    const uint32_t numbers[3] = {gone->ref.stage, gone->ref.task, gone->attempt};
    remove_cell(cell_at(b, gone->ref.job_id, row->kind == ROW_RESULT_GONE ? ROW_RESULT : ROW_MAP_OUTPUT, numbers));
}

static void apply_node_gone(struct postgres_batch *b, const struct row *row)
{
    const uint32_t numbers[3] = {0};
    remove_cell(cell_at(b, ((const struct row_node_gone *)(const void *)row)->worker_id, ROW_NODE, numbers));
}

/* What a sweep does to a task that the batch has written; the same as the statement does in the database. */
static void sweep_task(struct postgres_batch *b, struct postgres_cell *cell, int64_t at_ms)
{
    const struct row_task *task = (const struct row_task *)(const void *)cell->changes;
    if (task_state_is_terminal(task->state)) {
        return;
    }
    struct row_task *swept = arena_copy(b->arena, task, sizeof *task);
    swept->outcome = task->state == TASK_RUNNING ? OUTCOME_LOST : task->outcome;
    swept->state = TASK_CANCELED;
    swept->finished_at_ms = at_ms;
    swept->lease_expires_at_ms = 0;
    cell->changes = &swept->row;
}

static void sweep_attempt(struct postgres_batch *b, struct postgres_cell *cell, int64_t at_ms)
{
    const struct row_attempt *attempt = (const struct row_attempt *)(const void *)cell->changes;
    if (attempt->outcome != OUTCOME_PENDING) {
        return;
    }
    struct row_attempt *swept = arena_copy(b->arena, attempt, sizeof *attempt);
    swept->outcome = OUTCOME_LOST;
    swept->at_ms = at_ms;
    cell->changes = &swept->row;
}

static void apply_sweep(struct postgres_batch *b, const struct row *row)
{
    const struct row_job_sweep *sweep = (const struct row_job_sweep *)(const void *)row;
    struct postgres_owner *owner = owner_of(b, sweep->job_id);
    for (struct postgres_cell *cell = owner->cells; cell != NULL; cell = cell->next_of_owner) {
        if (cell->changes == NULL) {
            continue;
        }
        if (cell->kind == ROW_TASK) {
            sweep_task(b, cell, sweep->at_ms);
        } else if (cell->kind == ROW_ATTEMPT) {
            sweep_attempt(b, cell, sweep->at_ms);
        } else if (cell->kind == ROW_LEASE || cell->kind == ROW_MAP_OUTPUT) {
            remove_cell(cell);
        }
    }
    if (!owner->is_swept) {
        owner->is_swept = true;
        owner->swept_at_ms = sweep->at_ms;
        *b->swept_end = owner;
        b->swept_end = &owner->next_swept;
    }
}

static void apply_row(struct postgres_batch *b, const struct row *row)
{
    typedef void apply_fn(struct postgres_batch *, const struct row *);
    static apply_fn *const special[ROW_META + 1] = {
        [ROW_JOB_SWEEP] = apply_sweep,
        [ROW_LEASE_GONE] = apply_lease_gone,
        [ROW_MAP_OUTPUT_GONE] = apply_output_gone,
        [ROW_RESULT_GONE] = apply_output_gone,
        [ROW_NODE_GONE] = apply_node_gone,
        [ROW_EVENT] = apply_event,
    };
    ASSERT(row->kind < ROW_META);
    apply_fn *apply = special[row->kind] != NULL ? special[row->kind] : apply_kept;
    apply(b, row);
}

/* Empties a map and keeps its slots, unless a large batch has left many. */
static void empty_map(struct map *map)
{
    if (map->cap > KEEP_SLOTS) {
        map_deinit(map);
    } else if (map->cap > 0) {
        memset(map->slots, 0, map->cap * sizeof *map->slots);
        map->count = 0;
    }
}

void postgres__batch_fill(struct postgres_batch *b, const struct batch *batch, struct arena *arena)
{
    b->arena = arena;
    b->last_owner = NULL;
    b->last_event = NULL;
    empty_map(&b->owners);
    empty_map(&b->cells);
    for (int kind = 0; kind <= ROW_META; kind++) {
        b->kinds[kind] = (struct postgres_cells){NULL, &b->kinds[kind].first};
    }
    b->swept = NULL;
    b->swept_end = &b->swept;
    b->leases_gone = NULL;
    b->leases_gone_end = &b->leases_gone;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->next) {
            apply_row(b, row);
        }
    }
}

void postgres__batch_deinit(struct postgres_batch *b)
{
    map_deinit(&b->owners);
    map_deinit(&b->cells);
}
