/* Plans that go on with actual sizes. */
#include "query/refine.h"

#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "query/join_filter.h"
#include "query/physical_internal.h"
#include "query/tail.h"

static void *copy_array(struct arena *arena, const void *items, uint32_t n, size_t size)
{
    return arena_copy(arena, items, n * size);
}

/* A copy that can be changed; texts are shared. */
static struct physical_plan *copy_plan(const struct physical_plan *plan, struct arena *arena)
{
    struct physical_plan *copy = arena_zalloc(arena, sizeof *copy);
    *copy = *plan;
    copy->stages = copy_array(arena, plan->stages, plan->n_stages, sizeof *plan->stages);
    for (uint32_t i = 0; i < copy->n_stages; i++) {
        struct physical_stage *stage = &copy->stages[i];
        stage->inputs = copy_array(arena, stage->inputs, stage->n_inputs, sizeof *stage->inputs);
        stage->splits = copy_array(arena, stage->splits, stage->n_splits, sizeof *stage->splits);
    }
    return copy;
}

static struct physical_input *find_input(struct physical_stage *stage, uint32_t from)
{
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        if (stage->inputs[i].stage == from && !stage->inputs[i].is_whole) {
            return &stage->inputs[i];
        }
    }
    ASSERT(false);
    return NULL;
}

/* The names of inputs that leave the stage empty, as positions in the inputs of another stage. */
static uint32_t take_empty_if(const struct physical_stage *from, const struct physical_stage *to, uint32_t *out,
                              uint32_t n)
{
    for (uint32_t i = 0; i < from->n_empty_if; i++) {
        for (uint32_t k = 0; k < to->n_inputs; k++) {
            if (strcmp(to->inputs[k].name, from->inputs[from->empty_if[i]].name) == 0) {
                out[n++] = k;
            }
        }
    }
    return n;
}

static bool is_empty_with(const struct physical_stage *stage, const char *name)
{
    for (uint32_t i = 0; i < stage->n_empty_if; i++) {
        if (strcmp(stage->inputs[stage->empty_if[i]].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* One more CTE in front of a query, which may have some already. */
static void write_with(struct buf *out, const char *name, const char *definition, const char *sql)
{
    static const char *const starts[] = {"WITH RECURSIVE ", "WITH "};
    const char *start = "";
    for (size_t i = 0; i < ARRAY_LEN(starts) && start[0] == '\0'; i++) {
        start = strncmp(sql, starts[i], strlen(starts[i])) == 0 ? starts[i] : "";
    }
    bool has_others = start[0] != '\0';
    buf_format(out, "%s\"%s\" AS %s", has_others ? start : "WITH ", name, join_filter_barrier(definition));
    physical__write_nested(out, definition);
    buf_format(out, "%s%s", has_others ? ", " : " ", sql + strlen(start));
}

/*
 * Makes the large side's SQL a part of the reader's: WITH i3 AS (…) in front of it, in place of the input i3. What that
 * side reads, the reader reads now.
 */
static void take_in(struct physical_plan *plan, uint32_t reader, struct arena *arena)
{
    struct physical_stage *stage = &plan->stages[reader];
    const struct physical_stage *large = &plan->stages[stage->choice.large];
    const struct physical_input taken = *find_input(stage, stage->choice.large);
    struct physical_stage merged = *stage;
    struct buf sql = {0};
    write_with(&sql, taken.name, large->sql, stage->sql);
    merged.sql = arena_strdup(arena, sql.data);
    buf_deinit(&sql);
    merged.inputs = arena_zalloc(arena, (stage->n_inputs + large->n_inputs) * sizeof *merged.inputs);
    merged.n_inputs = 0;
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        struct physical_input input = stage->inputs[i];
        input.is_whole = true; /* all that was read by partition: the small side */
        if (strcmp(input.name, taken.name) != 0) {
            merged.inputs[merged.n_inputs++] = input;
        }
    }
    for (uint32_t i = 0; i < large->n_inputs; i++) {
        merged.inputs[merged.n_inputs++] = large->inputs[i];
    }
    merged.n_splits = large->n_splits;
    merged.splits = large->splits;
    physical__add_files(&merged, large, arena);
    merged.is_deterministic = stage->is_deterministic && large->is_deterministic;
    merged.choice = large->choice;
    merged.n_groups = 0;
    merged.empty_if = arena_zalloc(arena, (stage->n_empty_if + large->n_empty_if) * sizeof *merged.empty_if);
    merged.n_empty_if = take_empty_if(stage, &merged, merged.empty_if, 0);
    if (is_empty_with(stage, taken.name)) {
        merged.n_empty_if = take_empty_if(large, &merged, merged.empty_if, merged.n_empty_if);
    }
    merged.what = arena_format(arena, "%s\n%s:\n%s", stage->what, taken.name, large->what);
    *stage = merged;
}

/* Whether any other input of the reader is read by partition, which the large side's tasks could not do. */
static bool has_other_partitions(const struct physical_stage *stage)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        n += stage->inputs[i].is_whole ? 0 : 1;
    }
    return n != 2;
}

/* Whether the stage must stay as it is: it is in the job, or even done. */
static bool is_settled(const struct physical_plan *plan, const struct stage_size *sizes, uint32_t at)
{
    return sizes[at].is_finished || plan->stages[at].job_stage != PHYSICAL_NOT_ADDED;
}

/* Whether the stage is a sieve, and writes what the other does, but for rows that are left out. */
static bool is_sieve_of(const struct physical_stage *stage, const struct physical_stage *large)
{
    const struct physical_output *a = &stage->output;
    const struct physical_output *b = &large->output;
    bool is_one = physical_is_sieve(stage) && stage->custom.op == NULL && a->exchange == b->exchange &&
                  a->partitions == b->partitions && a->n_keys == b->n_keys;
    for (uint32_t i = 0; is_one && i < a->n_keys; i++) {
        is_one = strcmp(a->keys[i], b->keys[i]) == 0;
    }
    return is_one;
}

/* Whoever reads the sieve, or waits for it, has to do with the large side itself from now on. */
static void take_out(struct physical_plan *plan, uint32_t at)
{
    uint32_t large = plan->stages[at].choice.large;
    for (uint32_t i = at + 1; i < plan->n_stages; i++) {
        struct physical_stage *stage = &plan->stages[i];
        for (uint32_t k = 0; k < stage->n_inputs; k++) {
            stage->inputs[k].stage = stage->inputs[k].stage == at ? large : stage->inputs[k].stage;
        }
        if (stage->choice.is_open) {
            stage->choice.small = stage->choice.small == at ? large : stage->choice.small;
            stage->choice.large = stage->choice.large == at ? large : stage->choice.large;
        }
    }
}

/* Whether one more CTE can stand before it: SQL that people wrote may begin in other ways. */
static bool may_have_with(const char *sql)
{
    static const char *const starts[] = {"SELECT ", "WITH ", "FROM "};
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        if (strncmp(sql, starts[i], strlen(starts[i])) == 0) {
            return physical__is_one(sql);
        }
    }
    return false;
}

static void choose(struct physical_plan *plan, const struct stage_size *sizes, uint32_t at, struct arena *arena)
{
    struct physical_stage *stage = &plan->stages[at];
    /* A stage that is taken in may bring a choice of its own, which can be made as well. */
    while (stage->choice.is_open && sizes[stage->choice.small].is_finished) {
        bool is_small = sizes[stage->choice.small].bytes <= stage->choice.bytes_max;
        bool has_started = is_settled(plan, sizes, at) || is_settled(plan, sizes, stage->choice.large);
        const struct physical_stage *large = &plan->stages[stage->choice.large];
        bool is_plain = large->custom.op == NULL && physical__is_one(large->sql); /* an operator is no SQL to take in */
        is_plain = is_plain && may_have_with(stage->sql);
        if (is_small && !has_started && is_plain && !has_other_partitions(stage)) {
            take_in(plan, at, arena);
        } else {
            if (!is_small && is_sieve_of(stage, &plan->stages[stage->choice.large])) {
                take_out(plan, at);
            }
            stage->choice.is_open = false;
        }
    }
}

/*
 * By stage: whether it gives the same rows if it has to be redone, because it and all that it reads do. The rows of others
 * may be more at the next time; their readers are restarted then, but nobody plans them again.
 */
static bool *find_lasting(const struct physical_plan *plan, struct arena *arena)
{
    bool *is_lasting = arena_zalloc(arena, plan->n_stages * sizeof *is_lasting);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const struct physical_stage *stage = &plan->stages[i];
        is_lasting[i] = stage->is_deterministic;
        for (uint32_t k = 0; k < stage->n_inputs; k++) {
            ASSERT(stage->inputs[k].stage < i);
            is_lasting[i] = is_lasting[i] && is_lasting[stage->inputs[k].stage];
        }
    }
    return is_lasting;
}

/* `is_empty`: by stage, of which it is known that they have no rows, and will have none if they are redone. */
static bool will_be_empty(const struct physical_stage *stage, const bool *is_empty)
{
    for (uint32_t i = 0; i < stage->n_empty_if; i++) {
        if (is_empty[stage->inputs[stage->empty_if[i]].stage]) {
            return true;
        }
    }
    return false;
}

/* One task is enough, and it need not read. */
static void make_empty(struct physical_plan *plan, uint32_t at, struct arena *arena)
{
    struct physical_stage *stage = &plan->stages[at];
    stage->choice.is_open = false;
    if (stage->n_splits > 0) {
        /* One split for each scan would be needed for its columns; the others say which files these are. */
        for (uint32_t i = 0; i < stage->n_splits; i++) {
            stage->splits[i].is_empty = true;
            stage->splits[i].is_continued = false;
        }
        uint32_t n = 1;
        for (uint32_t i = 1; i < stage->n_splits; i++) {
            if (stage->splits[i].scan != stage->splits[n - 1].scan) {
                stage->splits[n++] = stage->splits[i];
            }
        }
        stage->n_splits = n;
        return;
    }
    uint32_t tasks = physical_tasks(plan, at);
    if (tasks > 1) {
        uint32_t last = physical_task_group(plan, at, tasks - 1).last; /* its partitions may be grouped already */
        stage->groups = arena_zalloc(arena, sizeof *stage->groups);
        stage->groups[0] = (struct physical_group){.first = 0, .last = last};
        stage->n_groups = 1;
    }
}

/* Bytes that partition `partition` of all inputs has; false if some are not known. */
static bool bytes_of_partition(const struct physical_stage *stage, const struct stage_size *sizes, uint32_t partition,
                               uint64_t *out)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        const struct stage_size *size = &sizes[stage->inputs[i].stage];
        if (stage->inputs[i].is_whole) {
            continue;
        }
        if (!size->is_finished || partition >= size->n_partitions) {
            return false;
        }
        bytes += size->partition_bytes[partition];
    }
    *out = bytes;
    return true;
}

/* Whether several partitions may be one task's: others must not count on which task has which rows. */
static bool may_group(const struct physical_plan *plan, const struct physical_stage *stage)
{
    if (stage->n_splits > 0 || stage->n_groups > 0 || stage->choice.is_open ||
        stage->output.exchange == EXCHANGE_FORWARD || strstr(stage->sql, "{{task}}") != NULL) {
        return false;
    }
    UNUSED(plan);
    return true;
}

/* With less than this, a task is mostly overhead. */
#define GROUP_BYTES_MIN UINT64_C(2097152)

/* What a task should read: no more than is wanted, and no more than its share if there is enough for all of them. */
static uint64_t bytes_of_group(uint64_t total, uint32_t n, uint64_t bytes_wanted)
{
    uint64_t share = total / n > GROUP_BYTES_MIN ? total / n : GROUP_BYTES_MIN;
    return share < bytes_wanted ? share : bytes_wanted;
}

static void group_partitions(struct physical_plan *plan, const struct stage_size *sizes, uint32_t at,
                             uint64_t bytes_wanted, struct arena *arena)
{
    struct physical_stage *stage = &plan->stages[at];
    uint32_t n = physical_tasks(plan, at);
    if (n < 2 || !may_group(plan, stage)) {
        return;
    }
    struct physical_group *groups = arena_zalloc(arena, n * sizeof *groups);
    uint64_t *partitions = arena_zalloc(arena, n * sizeof *partitions);
    uint32_t n_groups = 0;
    uint64_t bytes_in_group = 0;
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!bytes_of_partition(stage, sizes, i, &partitions[i])) {
            return;
        }
        total = partitions[i] < UINT64_MAX - total ? total + partitions[i] : UINT64_MAX;
    }
    bytes_wanted = bytes_of_group(total, n, bytes_wanted);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = partitions[i];
        if (n_groups > 0 && bytes_in_group + bytes <= bytes_wanted) {
            groups[n_groups - 1].last = i;
            bytes_in_group += bytes;
        } else {
            groups[n_groups++] = (struct physical_group){.first = i, .last = i};
            bytes_in_group = bytes;
        }
    }
    if (n_groups < n) {
        stage->groups = groups;
        stage->n_groups = n_groups;
    }
}

/* If all that the tail reads is there, it is known now whether one task can do it. */
static struct physical_plan *settle_tail(struct physical_plan *plan, const struct stage_size *sizes,
                                         struct arena *arena)
{
    struct tail tail = tail_find(plan, arena);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (plan->stages[i].choice.is_open) {
            return plan;
        }
    }
    for (uint32_t i = 0; i < tail.n_reads; i++) {
        const struct stage_size *size = &sizes[tail.reads[i]];
        if (!size->is_finished) {
            return plan;
        }
        bytes = size->bytes > plan->tail_bytes ? UINT64_MAX : bytes == UINT64_MAX ? bytes : bytes + size->bytes;
    }
    struct physical_plan *merged = bytes <= plan->tail_bytes && tail.n > 0 ? tail_merge(plan, &tail, arena) : NULL;
    plan->tail_bytes = 0;
    return merged != NULL ? merged : plan;
}

/* Stages that will have no rows need not read, nor do those that read them; and their choices are made. */
static bool *settle_empty(struct physical_plan *plan, const struct stage_size *sizes, struct arena *arena)
{
    const bool *is_lasting = find_lasting(plan, arena);
    bool *is_empty = arena_zalloc(arena, plan->n_stages * sizeof *is_empty);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (is_settled(plan, sizes, i)) {
            is_empty[i] = sizes[i].is_finished && sizes[i].rows == 0 && is_lasting[i];
            continue;
        }
        is_empty[i] = will_be_empty(&plan->stages[i], is_empty);
        if (is_empty[i]) {
            make_empty(plan, i, arena);
        }
    }
    return is_empty;
}

struct physical_plan *query_refine(const struct physical_plan *plan, const struct stage_size *sizes,
                                   const struct refine_options *options, struct arena *arena)
{
    struct physical_plan *next = copy_plan(plan, arena);
    for (uint32_t i = 0; i < next->n_stages; i++) {
        if (!is_settled(next, sizes, i)) {
            choose(next, sizes, i, arena);
        }
    }
    const bool *is_empty = settle_empty(next, sizes, arena); /* before the tail, which waits for choices */
    struct physical_plan *settled = next->tail_bytes > 0 ? settle_tail(next, sizes, arena) : next;
    if (settled != next) {
        return settled;
    }
    for (uint32_t i = 0; i < next->n_stages && options->partition_bytes > 0; i++) {
        if (!is_settled(next, sizes, i) && !is_empty[i]) {
            group_partitions(next, sizes, i, options->partition_bytes, arena);
        }
    }
    return physical__without_unread(next, arena);
}
