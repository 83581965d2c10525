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
#include "store/net.h"

#include <string.h>

#include "base/siphash.h"
#include "core/command.h"
#include "store/table.h"

#define KEEP_SLOTS 16384

/* Keys come from this cluster's own rows, but the names in them come from outside. */
static const struct siphash_key hash_key = {UINT64_C(0x7b1d8f6a3c5e9042), UINT64_C(0x2f94c1d0b7a6835e)};

static bool owner_matches(const void *value, const void *key)
{
    return strcmp(((const struct net_owner *)value)->name, key) == 0;
}

/* A row without a name goes along as any other: the database refuses it. */
static struct net_owner *owner_of(struct net *net, const char *name)
{
    name = name == NULL ? "" : name;
    if (net->last_owner != NULL && net->last_owner->name == name) {
        return net->last_owner;
    }
    uint64_t hash = siphash(&hash_key, name, strlen(name));
    struct net_owner *owner = map_get(&net->owner_map, hash, owner_matches, name);
    if (owner == NULL) {
        owner = arena_zalloc(net->arena, sizeof *owner);
        owner->name = name;
        owner->cells_end = &owner->cells;
        *net->owners_end = owner;
        net->owners_end = &owner->next;
        net->n_owners++;
        map_put(&net->owner_map, hash, owner);
    }
    net->last_owner = owner;
    return owner;
}

struct cell_key {
    const struct net_owner *owner;
    enum row_kind kind;
    uint32_t numbers[3];
};

static bool cell_matches(const void *value, const void *key)
{
    const struct net_cell *cell = value;
    const struct cell_key *wanted = key;
    return cell->owner == wanted->owner && cell->kind == wanted->kind &&
           memcmp(cell->key, wanted->numbers, sizeof cell->key) == 0;
}

static struct net_cell *add_cell(struct net *net, enum row_kind kind)
{
    struct net_cell *cell = arena_zalloc(net->arena, sizeof *cell);
    cell->kind = kind;
    *net->kinds[kind].end = cell;
    net->kinds[kind].end = &cell->next;
    return cell;
}

/* The cell of that row; an empty one if the batch has not mentioned the row yet. */
static struct net_cell *cell_at(struct net *net, const char *name, enum row_kind kind, const uint32_t numbers[3])
{
    struct net_owner *owner = owner_of(net, name);
    struct cell_key key = {owner, kind, {numbers[0], numbers[1], numbers[2]}};
    uint64_t hash = (uint64_t)(uintptr_t)owner ^ ((uint64_t)kind << 56) ^ ((uint64_t)numbers[0] << 40) ^
                    ((uint64_t)numbers[2] << 32) ^ numbers[1];
    struct net_cell *cell = map_get(&net->cells, hash, cell_matches, &key);
    if (cell == NULL) {
        cell = add_cell(net, kind);
        cell->owner = owner;
        memcpy(cell->key, numbers, sizeof cell->key);
        *owner->cells_end = cell;
        owner->cells_end = &cell->next_of_owner;
        map_put(&net->cells, hash, cell);
    }
    return cell;
}

static struct net_cell *cell_of_row(struct net *net, const struct table *table, const struct row *row)
{
    const char *name = NULL;
    uint32_t numbers[3] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n_columns && table->columns[i].role == ROLE_KEY; i++) {
        struct value value = table_get(row, &table->columns[i], net->arena);
        if (value.type == VALUE_IS_TEXT) {
            name = value.bytes;
        } else {
            ASSERT(n < ARRAY_LEN(numbers));
            numbers[n++] = (uint32_t)value.number;
        }
    }
    return cell_at(net, name, table->kind, numbers);
}

/* Events are numbered upwards, so that the cell of a new one need not be looked for. */
static void apply_event(struct net *net, const struct row *row)
{
    uint64_t seq = ((const struct row_event *)(const void *)row)->seq;
    const struct row_event *last = (const struct row_event *)(const void *)net->last_event;
    if (last != NULL && seq <= last->seq) {
        for (struct net_cell *cell = net->kinds[ROW_EVENT].first; cell != NULL; cell = cell->next) {
            if (((const struct row_event *)(const void *)cell->fixed)->seq == seq) {
                return; /* all that it has is fixed */
            }
        }
    } else {
        net->last_event = row;
    }
    struct net_cell *cell = add_cell(net, ROW_EVENT);
    cell->fixed = row;
    cell->changes = row;
}

static void apply_kept(struct net *net, const struct row *row)
{
    const struct table *table = table_of(row->kind);
    struct net_cell *cell = cell_of_row(net, table, row);
    if (table_row_is_new(table, row) && (cell->fixed == NULL || cell->is_gone)) {
        cell->fixed = row;
    }
    cell->changes = row;
    cell->is_gone = false;
}

static void remove_cell(struct net_cell *cell)
{
    cell->is_gone = true;
    cell->fixed = NULL;
    cell->changes = NULL;
}

static void apply_lease_gone(struct net *net, const struct row *row)
{
    const struct row_lease_gone *gone = (const struct row_lease_gone *)(const void *)row;
    const uint32_t numbers[3] = {gone->ref.stage, gone->ref.task, 0};
    struct net_cell *cell = cell_at(net, gone->ref.job_id, ROW_LEASE, numbers);
    const struct row_lease *lease = (const struct row_lease *)(const void *)cell->changes;
    if (lease != NULL && lease_token_equal(lease->token, gone->token)) {
        remove_cell(cell);
    } else if (lease == NULL && !cell->is_gone) {
        struct net_lease_gone *entry = arena_zalloc(net->arena, sizeof *entry);
        entry->row = gone;
        *net->leases_gone_end = entry;
        net->leases_gone_end = &entry->next;
    }
}

static void apply_output_gone(struct net *net, const struct row *row)
{
    const struct row_output_gone *gone = (const struct row_output_gone *)(const void *)row;
    const uint32_t numbers[3] = {gone->ref.stage, gone->ref.task, gone->attempt};
    remove_cell(cell_at(net, gone->ref.job_id, row->kind == ROW_RESULT_GONE ? ROW_RESULT : ROW_MAP_OUTPUT, numbers));
}

static void apply_node_gone(struct net *net, const struct row *row)
{
    const uint32_t numbers[3] = {0};
    remove_cell(cell_at(net, ((const struct row_node_gone *)(const void *)row)->worker_id, ROW_NODE, numbers));
}

/* What a sweep does to a task that the batch has written; the same as the statement does in the database. */
static void sweep_task(struct net *net, struct net_cell *cell, int64_t at_ms)
{
    const struct row_task *task = (const struct row_task *)(const void *)cell->changes;
    if (task_state_is_terminal(task->state)) {
        return;
    }
    struct row_task *swept = arena_copy(net->arena, task, sizeof *task);
    swept->outcome = task->state == TASK_RUNNING ? OUTCOME_LOST : task->outcome;
    swept->state = TASK_CANCELED;
    swept->finished_at_ms = at_ms;
    swept->lease_expires_at_ms = 0;
    cell->changes = &swept->row;
}

static void sweep_attempt(struct net *net, struct net_cell *cell, int64_t at_ms)
{
    const struct row_attempt *attempt = (const struct row_attempt *)(const void *)cell->changes;
    if (attempt->outcome != OUTCOME_PENDING) {
        return;
    }
    struct row_attempt *swept = arena_copy(net->arena, attempt, sizeof *attempt);
    swept->outcome = OUTCOME_LOST;
    swept->at_ms = at_ms;
    cell->changes = &swept->row;
}

static void apply_sweep(struct net *net, const struct row *row)
{
    const struct row_job_sweep *sweep = (const struct row_job_sweep *)(const void *)row;
    struct net_owner *owner = owner_of(net, sweep->job_id);
    for (struct net_cell *cell = owner->cells; cell != NULL; cell = cell->next_of_owner) {
        if (cell->changes == NULL) {
            continue;
        }
        if (cell->kind == ROW_TASK) {
            sweep_task(net, cell, sweep->at_ms);
        } else if (cell->kind == ROW_ATTEMPT) {
            sweep_attempt(net, cell, sweep->at_ms);
        } else if (cell->kind == ROW_LEASE || cell->kind == ROW_MAP_OUTPUT) {
            remove_cell(cell);
        }
    }
    if (!owner->is_swept) {
        owner->is_swept = true;
        owner->swept_at_ms = sweep->at_ms;
        *net->swept_end = owner;
        net->swept_end = &owner->next_swept;
    }
}

static void apply_row(struct net *net, const struct row *row)
{
    typedef void apply_fn(struct net *, const struct row *);
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
    apply(net, row);
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

void net_fill(struct net *net, const struct batch *batch, struct arena *arena)
{
    net->arena = arena;
    net->last_owner = NULL;
    net->last_event = NULL;
    empty_map(&net->owner_map);
    empty_map(&net->cells);
    for (int kind = 0; kind <= ROW_META; kind++) {
        net->kinds[kind] = (struct net_cells){NULL, &net->kinds[kind].first};
    }
    net->owners = NULL;
    net->owners_end = &net->owners;
    net->n_owners = 0;
    net->swept = NULL;
    net->swept_end = &net->swept;
    net->leases_gone = NULL;
    net->leases_gone_end = &net->leases_gone;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->next) {
            apply_row(net, row);
        }
    }
}

void net_deinit(struct net *net)
{
    map_deinit(&net->owner_map);
    map_deinit(&net->cells);
}
