/*
 * plan_json.c - any bytes as the plan that DuckDB writes.
 *
 * Promises: what is refused comes with a reason, and no tree; what is read is a tree within the limits in which every node
 * has as many columns as it has types, and it can be written as SQL, or there is a reason why not. What can be written can
 * be cut, whether something is known about its files or not: into a physical plan that can be explained, that readers take
 * as it was written, and that can be refined whenever a stage has ended, into another such plan, until the result is there.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "query/cut.h"
#include "query/explain.h"
#include "query/plan_read.h"
#include "query/refine.h"
#include "query/unparse.h"

#define GROUPS 3 /* of each file, if something is known about it */
#define GROUP_ROWS 1000
#define GROUP_BYTES 30000
#define STAGE_BYTES_MAX 90 /* that a stage has written for a partition */

struct counted {
    uint32_t n_nodes;
};

static bool check_expression(struct expression **slot, void *context)
{
    UNUSED(context);
    const struct expression *expression = *slot;
    ASSERT(expression->kind < N_EXPRESSION_KINDS);
    ASSERT(expression->type != NULL);
    for (uint32_t i = 0; i < expression->n_args; i++) {
        ASSERT(expression->args[i] != NULL);
    }
    return true;
}

static bool check_node(struct plan_node *node, void *context)
{
    struct counted *counted = context;
    counted->n_nodes++;
    ASSERT(node->kind < N_NODE_KINDS);
    ASSERT(node_kind_name(node->kind) != NULL);
    for (uint32_t i = 0; i < node->n_columns; i++) {
        ASSERT(node->columns[i] != NULL);
    }
    plan_node_visit_expressions(node, check_expression, NULL);
    return true;
}

/* Whether the tree can be written, which it can as often as its copy. */
static bool check_copy(struct arena *arena, struct plan_node *root)
{
    struct buf first = {0};
    struct buf second = {0};
    struct error e = {0};
    enum err err = unparse_node(&first, root, &e);
    ASSERT((err == ERR_OK) == (e.message[0] == '\0'));
    ASSERT(unparse_node(&second, plan_node_copy(arena, root), NULL) == err);
    ASSERT(first.n == second.n);
    ASSERT(first.n == 0 || memcmp(first.data, second.data, first.n) == 0);
    buf_deinit(&first);
    buf_deinit(&second);
    return err == ERR_OK;
}

/* ---- what is known about files ---- */

struct file_list {
    struct arena *arena;
    struct split_file *files;
    uint32_t n;
    uint32_t cap;
};

/* The columns of a file ascend, each from where the file before has ended, so that tasks can be ranges of their values. */
static struct split_file make_file(struct file_list *list, const struct scan *scan, uint32_t number)
{
    struct split_file file = {.path = scan->files[number],
                              .rows = GROUPS * GROUP_ROWS,
                              .bytes = GROUPS * GROUP_BYTES,
                              .has_identity = true,
                              .mtime_ms = 1234567890123,
                              .n_groups = GROUPS,
                              .shape = 1,
                              .n_columns = scan->n_names};
    file.groups = arena_zalloc(list->arena, GROUPS * sizeof *file.groups);
    file.columns = arena_zalloc(list->arena, scan->n_names * sizeof *file.columns);
    for (uint32_t i = 0; i < GROUPS; i++) {
        file.groups[i] = (struct split_group){.rows = GROUP_ROWS, .bytes = GROUP_BYTES};
    }
    for (uint32_t i = 0; i < scan->n_names; i++) {
        int64_t start = (int64_t)number * GROUPS * GROUP_ROWS;
        int64_t *first = arena_zalloc(list->arena, GROUPS * sizeof *first);
        int64_t *last = arena_zalloc(list->arena, GROUPS * sizeof *last);
        for (uint32_t k = 0; k < GROUPS; k++) {
            first[k] = start + (int64_t)k * GROUP_ROWS;
            last[k] = first[k] + GROUP_ROWS - 1;
        }
        file.columns[i] = (struct split_column){
            .name = scan->names[i], .least = first[0], .greatest = last[GROUPS - 1], .first = first, .last = last};
    }
    return file;
}

static bool add_files(struct plan_node *node, void *context)
{
    struct file_list *list = context;
    const struct scan *scan = node->kind == NODE_SCAN && node->as.scan->source == SCAN_PARQUET ? node->as.scan : NULL;
    for (uint32_t i = 0; scan != NULL && i < scan->n_files; i++) {
        list->files = mem_grow(list->files, &list->cap, list->n + 1, sizeof *list->files);
        list->files[list->n++] = make_file(list, scan, i);
    }
    return true;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct split_file *)a)->path, ((const struct split_file *)b)->path);
}

/* A catalog in which something is known about each file of the tree. Paths are there once. */
static struct split_catalog *make_catalog(struct arena *arena, struct plan_node *root)
{
    struct split_catalog *catalog = arena_zalloc(arena, sizeof *catalog);
    struct file_list list = {.arena = arena};
    plan_visit(root, add_files, &list);
    if (list.n > 0) {
        qsort(list.files, list.n, sizeof *list.files, by_path);
        catalog->files = arena_copy(arena, list.files, list.n * sizeof *list.files);
    }
    for (uint32_t i = 0; i < list.n; i++) {
        if (i == 0 || by_path(&catalog->files[catalog->n_files - 1], &list.files[i]) != 0) {
            catalog->files[catalog->n_files++] = list.files[i];
        }
    }
    mem_free(list.files);
    return catalog;
}

/* ---- stages ---- */

/* What readers of the plan make of it: the same. */
static const struct physical_plan *check_physical(const struct physical_plan *plan, struct arena *arena)
{
    struct physical_plan *read = NULL;
    struct buf once = {0};
    struct buf twice = {0};
    struct buf text = {0};
    struct error e = {0};
    physical_write(&once, plan);
    ASSERT(physical_read(once.data, once.n, arena, &read, NULL, &e) == ERR_OK);
    physical_write(&twice, read);
    ASSERT(once.n == twice.n);
    ASSERT(memcmp(once.data, twice.data, once.n) == 0);
    explain_write(&text, read);
    ASSERT(text.n > 0);
    buf_deinit(&once);
    buf_deinit(&twice);
    buf_deinit(&text);
    return read;
}

/* Whether the stage has ended, if it is asked in the order of the plan: all that it waits for has. */
static bool can_end(const struct physical_plan *plan, uint32_t stage, const struct stage_size *sizes)
{
    bool can = !physical_is_waiting(plan, stage);
    for (uint32_t i = 0; i < plan->stages[stage].n_inputs; i++) {
        can = can && sizes[plan->stages[stage].inputs[i].stage].is_finished;
    }
    return can;
}

/* What a stage has written, which follows from the bytes of the input and is the same each time that it is asked. */
static struct stage_size size_of(const struct physical_stage *stage, struct arena *arena, const uint8_t *bytes,
                                 size_t n)
{
    uint8_t seed = bytes[(stage->id * 31) % n];
    uint32_t partitions = stage->output.partitions;
    uint64_t *each = arena_zalloc(arena, (partitions + 1) * sizeof *each);
    struct stage_size size = {.is_finished = true, .n_partitions = partitions, .partition_bytes = each};
    for (uint32_t i = 0; i < partitions; i++) {
        each[i] = (uint64_t)(seed + i) % STAGE_BYTES_MAX;
        size.bytes += each[i];
    }
    size.bytes += partitions == 0 ? seed % STAGE_BYTES_MAX : 0;
    size.rows = (seed & 3) == 0 ? 0 : size.bytes;
    return size;
}

/* Every round some stages end that can, and at least one of them. */
static void run_stages(const struct physical_plan *plan, struct arena *arena, const uint8_t *bytes, size_t n)
{
    bool has_ended = false;
    uint32_t n_ids = 0;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        n_ids = plan->stages[i].id >= n_ids ? plan->stages[i].id + 1 : n_ids;
    }
    bool *is_done = arena_zalloc(arena, n_ids * sizeof *is_done);
    while (!has_ended) {
        struct stage_size *sizes = arena_zalloc(arena, plan->n_stages * sizeof *sizes);
        struct refine_options options = {.partition_bytes = STAGE_BYTES_MAX};
        uint32_t n_ended = 0;
        for (uint32_t i = 0; i < plan->n_stages; i++) {
            const struct physical_stage *stage = &plan->stages[i];
            bool ends = !is_done[stage->id] && n_ended < 2 && can_end(plan, i, sizes);
            n_ended += ends ? 1 : 0;
            is_done[stage->id] = is_done[stage->id] || ends;
            sizes[i] = is_done[stage->id] ? size_of(stage, arena, bytes, n) : sizes[i];
            has_ended = has_ended || (is_done[stage->id] && stage->output.exchange == EXCHANGE_RESULT);
        }
        ASSERT(n_ended > 0);
        plan = has_ended ? plan : check_physical(query_refine(plan, sizes, &options, arena), arena);
    }
}

static void check_cut(struct arena *arena, struct plan_node *root, const uint8_t *bytes, size_t n)
{
    static const struct split_catalog nothing = {0};
    const struct split_catalog *known = make_catalog(arena, root);
    const struct cut_options ways[] = {
        {.catalog = &nothing, .partitions = 3, .slots = 2, .is_forced = true},
        {.catalog = known, .partitions = 2, .slots = 3, .is_forced = true, .broadcast_bytes = UINT64_MAX},
        {.catalog = known, .slots = 4, .broadcast_bytes = 1, .is_forced = true, .tail_bytes = STAGE_BYTES_MAX},
        {.catalog = known, .slots = 4, .broadcast_bytes = 50000, .shrink = 1000, .tail_bytes = 4 * STAGE_BYTES_MAX},
    };
    struct plan plan = {.root = root, .sql = "SELECT whole", .n_columns = root->n_columns};
    plan.columns = arena_zalloc(arena, root->n_columns * sizeof *plan.columns);
    for (uint32_t i = 0; i < root->n_columns; i++) {
        plan.columns[i] = (struct plan_column){.name = "column", .type = "INTEGER"};
    }
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct physical_plan *cut = NULL;
        struct error e = {0};
        ASSERT(query_cut(&plan, &ways[i], arena, &cut, &e) == ERR_OK);
        run_stages(check_physical(cut, arena), arena, bytes, n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct arena arena = {0};
    struct error e = {0};
    struct plan_node *root = NULL;
    if (plan_read((const char *)bytes, n, &arena, &root, &e) != ERR_OK) {
        ASSERT(root == NULL);
        ASSERT(e.message[0] != '\0');
    } else {
        struct counted counted = {0};
        plan_visit(root, check_node, &counted);
        ASSERT(counted.n_nodes <= LIMIT_PLAN_ITEMS);
        if (check_copy(&arena, root)) {
            check_cut(&arena, root, bytes, n);
        }
    }
    arena_deinit(&arena);
    return 0;
}
