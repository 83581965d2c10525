/* The table of rules: what each kind of node needs of the rows below it, and how it leaves them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/mem.h"
#include "query/cut_internal.h"

#define SPLITS_PER_SLOT 64 /* so fine is a scan cut, before it is put together for tasks */
#define TASK_BYTES_MIN (4.0 * 1024 * 1024)

/*
 * A small table is read by every task for itself, rather than by one for all: that takes less time than one more stage. It
 * is small if its files are, or what is read of them is; but then the files must not be many times of that, and the
 * largest table is still shared out, as a query that is not to be one task needs something to share out.
 */
#define REPLICATED_FILE_BYTES (1024.0 * 1024)
#define REPLICATED_FILE_BYTES_MAX (32.0 * 1024 * 1024)
#define REPLICATED_READ_BYTES (16.0 * 1024 * 1024)
#define REPLICATED_ROWS_MAX 400000

double cut__correction(const struct fragment *f)
{
    return f->rows >= 0 && f->node->rows_estimated > 0 ? f->rows / f->node->rows_estimated : 1;
}

/* The fragment with another node on top, for nodes that work row by row. */
static struct fragment on_top(struct cutter *c, const struct fragment *child, const struct plan_node *node)
{
    struct fragment f = *child;
    f.node = plan_node_with_child(c->arena, node, child->node);
    f.rows = node->rows_estimated >= 0 ? node->rows_estimated * cut__correction(child) : child->rows;
    return f;
}

static enum err cut_child(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    ASSERT(node->n_children == 1);
    return cut__node(c, node->children[0], out);
}

static void replicated(struct plan_node *node, double rows, struct fragment *out)
{
    *out = (struct fragment){.node = node, .spread = SPREAD_REPLICATED, .rows = rows, .rows_max = rows};
}

static enum err cut_leaf(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    UNUSED(c);
    double rows = node->kind == NODE_DUMMY ? 1 : node->kind == NODE_VALUES ? (double)node->as.values.n_rows : 0;
    replicated(node, rows, out);
    return ERR_OK;
}

/* About how many rows come out of the scan, which has `rows_max` at most. */
static double scan_rows(const struct cutter *c, const struct plan_node *node, double rows_max)
{
    const struct scan *scan = node->as.scan;
    double left = scan->source == SCAN_PARQUET ? split_rows_left(c->options->catalog, scan) : -1;
    double estimated = left >= 0 ? left : node->rows_estimated;
    return (estimated >= 0 && scan->n_filters > 0) || !isfinite(rows_max) ? estimated : rows_max;
}

/* The scan as one that is shared out among tasks: its splits are set by the caller. */
static struct split_scan_entry *share_out(struct cutter *c, struct plan_node *node, double rows_max,
                                          struct fragment *out)
{
    *out = (struct fragment){
        .node = plan_node_copy(c->arena, node),
        .spread = SPREAD_ANY,
        .has_splits = true,
        .rows = scan_rows(c, node, rows_max),
        .rows_max = rows_max,
    };
    c->scans = mem_grow(c->scans, &c->cap_scans, c->n_scans + 1, sizeof *c->scans);
    struct split_scan_entry *entry = &c->scans[c->n_scans++];
    *entry = (struct split_scan_entry){.scan = out->node->as.scan};
    return entry;
}

/* So many tasks that all slots have the same to do, and none has too much. */
static uint64_t tasks_for_others(const struct cutter *c, const struct scan *scan)
{
    uint64_t slots = c->options->slots > c->options->partitions ? c->options->slots : c->options->partitions;
    slots = slots > 0 ? slots : 1;
    uint64_t rounds = split_others_bytes(scan) / slots / c->task_bytes_max + 1;
    return slots * rounds;
}

/* Several files of CSV or JSON are shared out by file, if they can be; else one task reads them all. */
static void cut_stand_in(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    const struct scan *scan = node->as.scan;
    struct split_scan_entry *entry = share_out(c, node, INFINITY, out);
    if (scan->shared_call != NULL) {
        split_others(scan, tasks_for_others(c, scan), c->arena, &entry->splits);
        entry->n_splits = scan->n_other_files;
        return;
    }
    /* The file is only a name here. */
    entry->splits = arena_zalloc(c->arena, sizeof *entry->splits);
    entry->splits[0].file = strlen(node->as.scan->from) <= LIMIT_SOURCE_BYTES ? node->as.scan->from : "files";
    entry->n_splits = 1;
}

static bool note_column(struct expression **slot, void *context)
{
    bool *is_read = context;
    if ((*slot)->kind == EXPRESSION_REF) {
        is_read[(*slot)->as.index] = true;
    }
    return true;
}

bool *cut__columns_read(struct cutter *c, const struct scan *scan)
{
    bool *is_read = arena_zalloc(c->arena, scan->n_names * sizeof *is_read);
    for (uint32_t i = 0; i < scan->n_columns; i++) {
        if (scan->columns[i].is_virtual == VIRTUAL_NONE && scan->columns[i].index < scan->n_names) {
            is_read[scan->columns[i].index] = true;
        }
    }
    for (uint32_t i = 0; i < scan->n_filters; i++) {
        expression_visit(&scan->filters[i], note_column, is_read);
    }
    return is_read;
}

/* About how many bytes a row has, of the columns that are looked at. */
static double read_row_bytes(struct cutter *c, const struct scan *scan)
{
    const bool *is_read = cut__columns_read(c, scan);
    const struct type **types = arena_zalloc(c->arena, scan->n_names * sizeof *types);
    struct plan_node row = {.columns = types};
    for (uint32_t i = 0; i < scan->n_names; i++) {
        if (is_read[i]) {
            types[row.n_columns++] = scan->types[i];
        }
    }
    return cut__row_bytes(&row);
}

/* Whether every task may read the whole table for itself. */
static bool is_small(struct cutter *c, const struct scan *scan, const struct split_total *total)
{
    if (c->options->is_forced || (double)total->bytes > c->broadcast_bytes) {
        return false;
    }
    return (double)total->bytes <= cut__size(c, REPLICATED_FILE_BYTES) ||
           (total->bytes < c->largest_scan_bytes && (double)total->bytes <= cut__size(c, REPLICATED_FILE_BYTES_MAX) &&
            (double)total->rows <= cut__size(c, REPLICATED_ROWS_MAX) &&
            (double)total->rows * read_row_bytes(c, scan) <= cut__size(c, REPLICATED_READ_BYTES));
}

struct split_sizes cut__scan_sizes(const struct cutter *c, uint64_t bytes)
{
    uint64_t slots = c->options->slots > 0 ? c->options->slots : 1;
    return (struct split_sizes){.bytes_target = bytes / (slots * SPLITS_PER_SLOT) + 1,
                                .slots = (uint32_t)slots,
                                .task_bytes_min = c->options->is_forced ? 1 : (uint64_t)cut__size(c, TASK_BYTES_MIN),
                                .task_bytes_max = c->options->is_forced ? c->split_bytes : c->task_bytes_max};
}

static bool all_are_alike(const struct cutter *c, const struct scan *scan)
{
    bool are_alike = true;
    for (uint32_t i = 1; i < scan->n_files && are_alike; i++) {
        are_alike = split_are_alike(c->options->catalog, scan->files[0], scan->files[i]);
    }
    return are_alike;
}

/*
 * Whether all its files can be read at once, and the columns cast, whatever has said what the types are. Filters of joins
 * cannot be relied on where types differ: with 1.5.6, a query may fail by what side of the join is the smaller one.
 */
static bool may_replicate(const struct cutter *c, const struct scan *scan)
{
    return all_are_alike(c, scan) && !(scan->has_union_by_name && scan->is_retyped);
}

/*
 * With union_by_name a column may be in some files only. A task can do with its own ones, if it is told of the others' columns
 * (unparse_scan.c); not so if it has to do with what files are called, and if files differ in what is inside of a column.
 */
static bool may_share_by_name(struct cutter *c, const struct scan *scan)
{
    const bool *is_read = cut__columns_read(c, scan);
    bool may = scan->mixed_column == NULL && scan->n_virtual_filters == 0 && !scan->has_file_row_number;
    bool are_alike = all_are_alike(c, scan);
    for (uint32_t i = 0; i < scan->n_columns && may; i++) {
        may = scan->columns[i].is_virtual == VIRTUAL_NONE || scan->columns[i].is_virtual == VIRTUAL_EMPTY;
    }
    for (uint32_t i = 0; i < scan->n_names && may; i++) {
        const struct type *type = scan->types[i];
        bool is_nested = type->child != NULL || type->n_fields > 0;
        may = strcasecmp(scan->names[i], SCAN_BY_NAME_ROW) != 0 &&
              (!is_read[i] || (type_has_sql(type) && (are_alike || !is_nested)));
    }
    return may;
}

static enum err cut_scan(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    const struct scan *scan = node->as.scan;
    if (scan->source == SCAN_FUNCTION) { /* it gives the same to everybody */
        replicated(node, node->rows_estimated, out);
        out->rows_max = INFINITY;
        return ERR_OK;
    }
    if (scan->source == SCAN_STAND_IN) {
        cut_stand_in(c, node, out);
        return ERR_OK;
    }
    struct split_total total = split_total_of(c->options->catalog, scan);
    if (scan->n_files == 0) {
        return error_set(c->e, ERR_PRECONDITION, "a scan has no files");
    }
    bool is_whole = scan->mixed_column != NULL || (scan->has_union_by_name && !may_share_by_name(c, scan));
    if (is_whole && scan->is_retyped) {
        return error_set(c->e, ERR_PRECONDITION,
                         "a file that is left out has said the types of columns, and others have other types%s%.100s",
                         scan->mixed_column != NULL ? " for " : "",
                         scan->mixed_column != NULL ? scan->mixed_column : "");
    }
    if (is_whole) {
        replicated(node, (double)total.rows, out);
        out->spread = SPREAD_SINGLE;
        return ERR_OK;
    }
    if (is_small(c, scan, &total) && may_replicate(c, scan)) {
        replicated(node, (double)total.rows, out);
        out->rows = scan_rows(c, node, out->rows_max);
        return ERR_OK;
    }
    struct split_scan_entry *entry = share_out(c, node, (double)total.rows, out);
    struct split_sizes sizes = cut__scan_sizes(c, total.bytes);
    split_scan(c->options->catalog, scan, &sizes, c->arena, &entry->splits, &entry->n_splits);
    return ERR_OK;
}

static enum err cut_filter(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    enum err err = cut_child(c, node, &child);
    if (err == ERR_OK) {
        *out = on_top(c, &child, node);
        if (child.spread == SPREAD_HASH) {
            uint32_t *map = cut__invert(c, node->as.filter.map, node->n_columns, child.node->n_columns);
            cut__set_hashed(out, cut__remap_keys(c, child.keys, map, child.node->n_columns));
        }
    }
    return err;
}

static enum err cut_projection(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    enum err err = cut_child(c, node, &child);
    if (err != ERR_OK) {
        return err;
    }
    *out = on_top(c, &child, node);
    bool has_unnest = false;
    uint32_t *sources = arena_zalloc(c->arena, node->n_columns * sizeof *sources);
    for (uint32_t i = 0; i < node->n_columns; i++) {
        const struct expression *expression = node->as.projection.expressions[i];
        sources[i] = expression->kind == EXPRESSION_REF ? expression->as.index : PLAN_NO_COLUMN;
        has_unnest = has_unnest || expression_contains(expression, EXPRESSION_UNNEST);
    }
    out->rows_max = has_unnest ? INFINITY : child.rows_max;
    if (child.spread == SPREAD_HASH) {
        uint32_t *map = cut__invert(c, sources, node->n_columns, child.node->n_columns);
        cut__set_hashed(out, cut__remap_keys(c, child.keys, map, child.node->n_columns));
    }
    return ERR_OK;
}

/* The child's columns stay in front. */
static enum err cut_unnest(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    enum err err = cut_child(c, node, &child);
    if (err == ERR_OK) {
        *out = on_top(c, &child, node);
        out->rows_max = INFINITY;
    }
    return err;
}

static enum err cut_call(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    enum err err = cut_child(c, node, &child);
    if (err == ERR_OK) {
        *out = on_top(c, &child, node);
        out->rows_max = INFINITY;
        if (child.spread == SPREAD_HASH) {
            cut__set_hashed(out, NULL);
        }
    }
    return err;
}

/* A sample of every task's rows, if it is a share of them; else one of all rows. */
static enum err cut_sample(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    const struct sample *sample = node->as.sample;
    enum err err = cut_child(c, node, &child);
    bool is_local = sample->is_percent && sample->method != SAMPLE_RESERVOIR && !cut__is_one(&child);
    if (err == ERR_OK && !is_local) {
        err = cut__gather(c, &child, &child);
    }
    if (err == ERR_OK) {
        *out = on_top(c, &child, node);
    }
    return err;
}

/* A limit on the rows of one task: what it takes at most of these, whatever the others have. */
static bool limit_of_task(const struct limit *limit, struct limit *out)
{
    if (limit->count.kind != LIMIT_BY_ROWS || limit->offset.kind == LIMIT_BY_PERCENT) {
        return false;
    }
    uint64_t offset = limit->offset.kind == LIMIT_BY_ROWS ? limit->offset.rows : 0;
    if (offset > UINT64_MAX / 2 || limit->count.rows > (uint64_t)INT64_MAX - (offset < INT64_MAX ? offset : 0)) {
        return false;
    }
    *out = (struct limit){.count = {.kind = LIMIT_BY_ROWS, .rows = limit->count.rows + offset}};
    return true;
}

static double limit_rows(const struct limit *limit, double rows)
{
    bool is_less = limit->count.kind == LIMIT_BY_ROWS && (double)limit->count.rows < rows;
    return is_less ? (double)limit->count.rows : rows;
}

/* LIMIT and ORDER BY … LIMIT: first what each task can leave out, then the limit itself in one task. */
static enum err cut_limit(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    struct limit local;
    enum err err = cut_child(c, node, &child);
    const struct limit *limit = node->kind == NODE_TOP_N ? &node->as.order->limit : node->as.limit;
    if (err == ERR_OK && !cut__is_one(&child) && limit_of_task(limit, &local)) {
        struct plan_node *partial = plan_node_with_child(c->arena, node, child.node);
        *(node->kind == NODE_TOP_N ? &partial->as.order->limit : partial->as.limit) = local;
        child.node = partial;
        child.rows = limit_rows(&local, child.rows);
    }
    if (err == ERR_OK) {
        err = cut__gather(c, &child, &child);
    }
    if (err == ERR_OK) {
        *out = on_top(c, &child, node);
        out->rows = limit_rows(limit, out->rows);
        out->rows_max = limit_rows(limit, child.rows_max);
    }
    return err;
}

/* Local, then by the values, then again. */
static enum err cut_distinct(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    struct expression **targets = node->as.distinct.targets;
    uint32_t n = node->as.distinct.n_targets;
    enum err err = cut_child(c, node, &child);
    if (err != ERR_OK) {
        return err;
    }
    bool is_local = cut__is_one(&child) || cut__is_together(&child, targets, n) ||
                    cut__could_be_together(c, &child, targets, n, node->rows_estimated);
    if (!is_local && n > 0 && cut__are_fixed(targets, n)) {
        struct fragment first = on_top(c, &child, node);
        cut__set_hashed(&first, NULL);
        err = cut__shuffle(c, &first, targets, n, &child);
    } else if (!is_local) {
        err = cut__gather(c, &child, &child);
    }
    if (err == ERR_OK) {
        err = cut__settle_choice(c, &child);
        *out = on_top(c, &child, node);
    }
    return err;
}

static enum err cut_children(struct cutter *c, struct plan_node *node, struct fragment **out)
{
    struct fragment *children = arena_zalloc(c->arena, node->n_children * sizeof *children);
    for (uint32_t i = 0; i < node->n_children; i++) {
        enum err err = cut__node(c, node->children[i], &children[i]);
        if (err != ERR_OK) {
            return err;
        }
    }
    *out = children;
    return ERR_OK;
}

/* The node over the fragments, with what they have in common. */
static struct fragment combine(struct cutter *c, const struct plan_node *node, const struct fragment *children)
{
    struct plan_node **nodes = arena_zalloc(c->arena, node->n_children * sizeof *nodes);
    struct fragment f = {.spread = SPREAD_REPLICATED, .rows = 0};
    for (uint32_t i = 0; i < node->n_children; i++) {
        nodes[i] = children[i].node;
        f.reads_partitions = f.reads_partitions || children[i].reads_partitions;
        f.has_splits = f.has_splits || children[i].has_splits;
        f.rows = f.rows < 0 || children[i].rows < 0 ? -1 : f.rows + children[i].rows;
        f.rows_max += children[i].rows_max;
        f.spread = children[i].spread == SPREAD_REPLICATED ? f.spread : SPREAD_SINGLE;
    }
    f.node = plan_node_with_children(c->arena, node, nodes, node->n_children);
    f.rows = node->rows_estimated >= 0 ? node->rows_estimated : f.rows;
    return f;
}

static bool are_all_one(const struct fragment *children, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!cut__is_one(&children[i])) {
            return false;
        }
    }
    return true;
}

/* UNION ALL: rows stay where they are; what is in one place goes on from one task only. */
static enum err cut_union(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment *children = NULL;
    bool has_partitions = false;
    enum err err = cut_children(c, node, &children);
    if (err == ERR_OK && !node->as.is_all) {
        return error_set(c->e, ERR_PRECONDITION, "a UNION that removes duplicates by itself");
    }
    if (err == ERR_OK && are_all_one(children, node->n_children)) {
        *out = combine(c, node, children);
        return ERR_OK;
    }
    for (uint32_t i = 0; i < node->n_children && err == ERR_OK; i++) {
        err = cut__spread(c, &children[i], &children[i]);
        has_partitions = has_partitions || children[i].reads_partitions || children[i].ranges != NULL;
    }
    for (uint32_t i = 0; i < node->n_children && err == ERR_OK; i++) {
        if (has_partitions && children[i].has_splits) {
            err = cut__forward(c, &children[i], &children[i]);
        }
    }
    if (err == ERR_OK) {
        *out = combine(c, node, children);
        out->spread = SPREAD_ANY;
    }
    return err;
}

/* EXCEPT and INTERSECT: equal rows to the same task. */
static enum err cut_set_operation(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment *children = NULL;
    enum err err = cut_children(c, node, &children);
    if (err == ERR_OK && are_all_one(children, node->n_children)) {
        *out = combine(c, node, children);
        return ERR_OK;
    }
    for (uint32_t i = 0; i < node->n_children && err == ERR_OK; i++) {
        struct expression **refs = cut__refs(c, children[i].node, node->n_columns);
        err = cut__shuffle(c, &children[i], refs, node->n_columns, &children[i]);
    }
    if (err == ERR_OK) {
        *out = combine(c, node, children);
        out->spread = SPREAD_HASH;
        out->keys = children[0].keys;
    }
    return err;
}

/* Whether all are the binder's own row numbers, for which any numbers will do that differ. */
static bool are_row_ids(const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->as.projection.n_expressions; i++) {
        const struct expression *expression = node->as.projection.expressions[i];
        if (expression->kind != EXPRESSION_WINDOW || !expression->as.window->is_row_id) {
            return false;
        }
    }
    return true;
}

static struct plan_node *number_rows_by_task(struct cutter *c, struct plan_node *node, struct plan_node *child)
{
    struct plan_node *copy = plan_node_with_child(c->arena, node, child);
    for (uint32_t i = 0; i < copy->as.projection.n_expressions; i++) {
        copy->as.projection.expressions[i] =
            expression_template(c->arena, "(row_number() OVER () + {{task}} * 1099511627776)",
                                copy->as.projection.expressions[i]->type, NULL, 0);
    }
    return copy;
}

/* The partition keys that all window expressions share. */
static struct expression **common_partitions(struct cutter *c, const struct plan_node *node, uint32_t *out_n)
{
    const struct window_call *first = node->as.projection.expressions[0]->as.window;
    struct expression **common = arena_zalloc(c->arena, first->n_partitions * sizeof *common);
    uint32_t n = 0;
    for (uint32_t k = 0; k < first->n_partitions; k++) {
        bool is_common = true;
        for (uint32_t i = 1; i < node->as.projection.n_expressions && is_common; i++) {
            const struct window_call *other = node->as.projection.expressions[i]->as.window;
            bool is_there = false;
            for (uint32_t j = 0; j < other->n_partitions && !is_there; j++) {
                is_there = expression_equal(first->partitions[k], other->partitions[j]);
            }
            is_common = is_there;
        }
        if (is_common) {
            common[n++] = first->partitions[k];
        }
    }
    *out_n = n;
    return common;
}

static enum err cut_window(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    enum err err = cut_child(c, node, &child);
    if (err != ERR_OK || cut__is_one(&child)) {
        if (err == ERR_OK) {
            *out = on_top(c, &child, node);
        }
        return err;
    }
    if (are_row_ids(node)) {
        *out = on_top(c, &child, node);
        out->node = number_rows_by_task(c, node, child.node);
        return ERR_OK;
    }
    uint32_t n = 0;
    struct expression **keys = common_partitions(c, node, &n);
    if (n == 0 || !cut__are_fixed(keys, n)) {
        err = cut__gather(c, &child, &child);
    } else if (!cut__is_together(&child, keys, n)) {
        err = cut__shuffle(c, &child, keys, n, &child);
    }
    if (err == ERR_OK) {
        err = cut__settle_choice(c, &child);
        *out = on_top(c, &child, node);
    }
    return err;
}

/* First with first, second with second: an order of all rows, which is lost when they come from several tasks. */
static enum err cut_positional(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    UNUSED(node);
    UNUSED(out);
    return error_set(c->e, ERR_PRECONDITION, "a positional join needs all rows in their order");
}

static cut_rule_fn *const rules[N_NODE_KINDS] = {
    [NODE_SCAN] = cut_scan,
    [NODE_CALL] = cut_call,
    [NODE_INPUT] = NULL,
    [NODE_VALUES] = cut_leaf,
    [NODE_DUMMY] = cut_leaf,
    [NODE_EMPTY] = cut_leaf,
    [NODE_FILTER] = cut_filter,
    [NODE_PROJECTION] = cut_projection,
    [NODE_AGGREGATE] = cut__aggregate,
    [NODE_WINDOW] = cut_window,
    [NODE_UNNEST] = cut_unnest,
    [NODE_ORDER] = cut__order,
    [NODE_TOP_N] = cut_limit,
    [NODE_LIMIT] = cut_limit,
    [NODE_DISTINCT] = cut_distinct,
    [NODE_SAMPLE] = cut_sample,
    [NODE_UNION] = cut_union,
    [NODE_EXCEPT] = cut_set_operation,
    [NODE_INTERSECT] = cut_set_operation,
    [NODE_JOIN] = cut__join,
    [NODE_CROSS] = cut__join,
    [NODE_POSITIONAL] = cut_positional,
    [NODE_DELIM_GET] = cut__delim_get,
    [NODE_CTE] = cut__cte,
    [NODE_RECURSIVE_CTE] = cut__recursive_cte,
    [NODE_CTE_REF] = cut__cte_ref,
    [NODE_CUSTOM] = cut__custom,
};

_Static_assert(N_NODE_KINDS <= 32, "wrong_kinds has a bit for each");

bool cut__is_planted(const struct cutter *c, enum node_kind kind)
{
    return (c->options->wrong_kinds >> kind & 1) != 0;
}

/* What nearly every node would be if its rows could lie anywhere: right for a filter only. */
static enum err cut_wrongly(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment *children = NULL;
    enum err err = cut_children(c, node, &children);
    if (err == ERR_OK && node->n_children == 1) {
        *out = on_top(c, &children[0], node);
    } else if (err == ERR_OK) {
        *out = combine(c, node, children);
        out->spread = SPREAD_ANY;
    }
    return err;
}

enum err cut__node(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    bool is_planted = node->n_children > 0 && cut__is_planted(c, node->kind);
    if (rules[node->kind] == NULL) {
        error_set(c->e, ERR_PRECONDITION, "%s: no rule for it", node_kind_name(node->kind));
        return ERR_PRECONDITION;
    }
    struct fragment f = {0};
    enum err err = (is_planted ? cut_wrongly : rules[node->kind])(c, node, &f);
    if (err != ERR_OK) {
        return err;
    }
    ASSERT(!(f.reads_partitions && f.has_splits));
    if (f.spread == SPREAD_REPLICATED && !cut__is_node_deterministic(node)) {
        f.spread = SPREAD_SINGLE; /* each task would have values of its own */
    }
    *out = f;
    return ERR_OK;
}
