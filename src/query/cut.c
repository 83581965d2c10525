/* From a plan to a physical plan, or to one task with the reason. */
#include "query/cut.h"

#include <inttypes.h>
#include <math.h>
#include <strings.h>

#include "base/limits.h"
#include "base/mem.h"
#include "query/cut_internal.h"
#include "query/join_filter.h"
#include "query/physical_internal.h"
#include "query/sql_text.h"
#include "query/tail.h"

#define TASK_PARTITIONS 16 /* a task that reads files may read so many times what a partition should have */

/* What the plan reads. */
struct input_total {
    const struct split_catalog *catalog;
    struct arena *arena;
    uint32_t n_scans; /* of files */
    uint64_t bytes;
    uint64_t bytes_max;   /* of the largest scan */
    bool has_other_files; /* CSV or JSON */
    bool has_unsplit;     /* and of these some that one task reads, whose size nobody has looked at */
    const char *unfit;    /* why tasks cannot share the files; NULL if they can */
};

static bool names_file(const struct scan *scan)
{
    bool names = scan->n_virtual_filters > 0;
    for (uint32_t i = 0; i < scan->n_columns && !names; i++) {
        names = scan->columns[i].is_virtual == VIRTUAL_FILENAME || scan->columns[i].is_virtual == VIRTUAL_FILE_INDEX;
    }
    return names;
}

/*
 * Tasks read their files by name, and know their rows by number. A name that DuckDB takes for a pattern means other files
 * than the one that it found, and a column of the file's own hides DuckDB's number. And by one file alone, DuckDB takes what
 * that one says of a column's values, also if these are not the file's (split_types.c). NULL: nothing is so.
 */
static const char *find_unfit(const struct split_catalog *catalog, const struct scan *scan, struct arena *arena)
{
    bool is_pattern = false;
    bool hides_rows = false;
    for (uint32_t i = 0; scan->source == SCAN_PARQUET && i < scan->n_names;
         i++) { /* those of hive folders are among them */
        hides_rows = hides_rows || strcasecmp(scan->names[i], "file_row_number") == 0;
    }
    for (uint32_t i = 0; scan->source == SCAN_PARQUET && i < scan->n_files; i++) {
        const struct split_file *file = split_find(catalog, scan->files[i]);
        is_pattern = is_pattern || sql_is_pattern(scan->files[i]);
        hides_rows = hides_rows || (file != NULL && file->has_file_row_number);
        if (hides_rows && !scan->has_file_row_number) {
            return "a file has a column called file_row_number, by which tasks would know their rows";
        }
        if (file != NULL && file->has_share_file && names_file(scan)) {
            return "a file has a column called " SCAN_SHARE_FILE
                   ", as tasks call the name of a file, and the query asks for that";
        }
        if (file != NULL && file->has_file_name && names_file(scan)) {
            return "a file has a column called filename or file_index, and the query asks DuckDB for that";
        }
    }
    if (scan->hive_column != NULL) {
        return arena_format(arena, "the column %.100s comes from the names of folders, and the files have it, too",
                            scan->hive_column);
    }
    for (uint32_t i = 0; scan->source == SCAN_STAND_IN && i < scan->n_other_files; i++) {
        is_pattern = is_pattern || sql_is_pattern(scan->other_files[i].path);
    }
    return is_pattern ? "the name of a file has *, ?, [ or \\ in it, and DuckDB would take it for a pattern" : NULL;
}

static bool add_scan(struct plan_node *node, void *context)
{
    struct input_total *total = context;
    if (node->kind == NODE_SCAN && total->unfit == NULL) {
        total->unfit = find_unfit(total->catalog, node->as.scan, total->arena);
    }
    if (node->kind == NODE_SCAN && node->as.scan->source == SCAN_PARQUET) {
        uint64_t bytes = split_total_of(total->catalog, node->as.scan).bytes;
        total->n_scans++;
        total->bytes += bytes;
        total->bytes_max = bytes > total->bytes_max ? bytes : total->bytes_max;
    }
    if (node->kind == NODE_SCAN && node->as.scan->shared_call != NULL) {
        uint64_t bytes = split_others_bytes(node->as.scan);
        total->n_scans++;
        total->bytes += bytes;
        total->bytes_max = bytes > total->bytes_max ? bytes : total->bytes_max;
    }
    bool is_other = node->kind == NODE_SCAN && node->as.scan->source == SCAN_STAND_IN;
    total->has_other_files = total->has_other_files || is_other;
    total->has_unsplit = total->has_unsplit || (is_other && node->as.scan->shared_call == NULL);
    return true;
}

/* The ORDER BY that orders the result, if only projections are above it. */
static const struct plan_node *find_final_order(const struct plan_node *root)
{
    const struct plan_node *node = root;
    while (node->kind == NODE_PROJECTION || (node->kind == NODE_CTE && node->n_children == 2)) {
        node = node->children[node->n_children - 1];
    }
    return node->kind == NODE_ORDER ? node : NULL;
}

static void choose_sizes(struct cutter *c, const struct input_total *total)
{
    const struct cut_options *options = c->options;
    uint64_t partition_bytes = options->partition_bytes > 0 ? options->partition_bytes : PHYSICAL_PARTITION_BYTES;
    uint64_t slots = options->slots > 0 ? options->slots : 1;
    uint64_t partitions = options->partitions;
    if (partitions == 0) {
        partitions = total->bytes / partition_bytes + 1;
        partitions = partitions > slots ? slots : partitions;
        partitions = partitions < 2 ? 2 : partitions;
    }
    c->partitions = (uint32_t)(partitions < LIMIT_PARTITIONS ? partitions : LIMIT_PARTITIONS);
    /* Enough splits for everybody, but none so large that a lost task is a loss, or so small that it is all overhead. */
    uint64_t tasks = slots > options->partitions ? slots : options->partitions;
    c->largest_scan_bytes = total->bytes_max;
    c->split_bytes = total->bytes_max / tasks;
    c->split_bytes = c->split_bytes > partition_bytes ? partition_bytes : c->split_bytes;
    c->split_bytes = c->split_bytes < 1 ? 1 : c->split_bytes;
    c->task_bytes_max = partition_bytes < UINT64_MAX / TASK_PARTITIONS ? TASK_PARTITIONS * partition_bytes : UINT64_MAX;
    c->broadcast_bytes = options->broadcast_bytes >= LIMIT_QUANTITY ? INFINITY : (double)options->broadcast_bytes;
}

double cut__size(const struct cutter *c, double size)
{
    return c->options->shrink > 0 ? size / c->options->shrink : size;
}

/* As the plan says it: 0 is the usual size, which readers of earlier releases know as well. */
static uint64_t unusual_partition_bytes(const struct cut_options *options)
{
    uint64_t bytes = options->partition_bytes < LIMIT_QUANTITY ? options->partition_bytes : LIMIT_QUANTITY;
    return bytes == PHYSICAL_PARTITION_BYTES ? 0 : bytes;
}

/* Whether everybody will take the plan: its readers have limits. */
static enum err check_limits(const struct physical_plan *plan, struct error *e)
{
    struct arena arena = {0};
    struct buf text = {0};
    struct physical_plan *read = NULL;
    struct error why = {0};
    physical_write(&text, plan);
    enum err err = physical_read(text.data, text.n, &arena, &read, NULL, &why);
    if (err != ERR_OK) {
        err = error_set(e, ERR_PRECONDITION, "it is too large to be cut: %s", why.message);
    }
    buf_deinit(&text);
    arena_deinit(&arena);
    return err;
}

static enum err cut_all(struct cutter *c, const struct plan *plan, struct physical_plan **out)
{
    struct fragment root;
    uint32_t last = 0;
    c->final_order = find_final_order(plan->root);
    enum err err = cut__node(c, plan->root, &root);
    if (err == ERR_OK) {
        struct close_request request = {.exchange = EXCHANGE_RESULT, .result = plan};
        err = cut__close(c, &root, &request, &last);
    }
    if (err == ERR_OK && plan->write.sql != NULL) {
        c->stages = mem_grow(c->stages, &c->cap_stages, c->n_stages + 1, sizeof *c->stages);
        cut__write_stage(&c->stages[last], &plan->write);
        c->stages[c->n_stages] = cut__publish_stage(c->n_stages, last, &plan->write, c->arena);
        c->n_stages++;
    }
    if (err == ERR_OK) {
        struct physical_plan whole = {
            .n_stages = c->n_stages, .stages = c->stages, .partition_bytes = unusual_partition_bytes(c->options)};
        struct physical_plan *plan_made = physical__without_unread(&whole, c->arena);
        err = check_limits(plan_made, c->e);
        plan_made->tail_bytes = tail_find(plan_made, c->arena).n > 0 ? c->options->tail_bytes : 0;
        *out = err == ERR_OK ? plan_made : *out;
    }
    return err;
}

static void cutter_deinit(struct cutter *c)
{
    mem_free(c->stages);
    mem_free(c->reads);
    mem_free(c->scans);
    mem_free(c->ctes.items);
    mem_free(c->delims.items);
}

/* Why the query is not worth cutting, or cannot be; NULL if it can. */
static const char *reason_for_one_task(const struct plan *plan, const struct cut_options *options,
                                       struct input_total *total, struct arena *arena)
{
    if (plan->root == NULL) {
        return plan->unsupported;
    }
    total->catalog = options->catalog;
    total->arena = arena;
    plan_visit(plan->root, add_scan, total);
    if (total->n_scans == 0 && !total->has_other_files) {
        return "it reads no files";
    }
    if (total->unfit != NULL) {
        return total->unfit;
    }
    if (total->n_scans == 0 && !options->is_forced) {
        return "it reads only files that are not Parquet, which cannot be split";
    }
    /*
     * The user's own words may be such that DuckDB takes the wrong rows (join_filter.h), where what the cutter writes is
     * right. Only scans of Parquet files have filters of joins, so that queries that read no such files are fine.
     */
    bool is_small = total->bytes < options->single_task_bytes && !join_filter_does_harm(plan->root);
    if (!options->is_forced && is_small) {
        return arena_format(arena, "its input is small: %" PRIu64 " bytes%s", total->bytes,
                            total->has_unsplit ? ", besides files that are not Parquet, which cannot be split" : "");
    }
    return NULL;
}

enum err query_cut(const struct plan *plan, const struct cut_options *options, struct arena *arena,
                   struct physical_plan **out_physical, struct error *e)
{
    struct input_total total = {0};
    struct error why = {0};
    const char *reason = reason_for_one_task(plan, options, &total, arena);
    if (reason != NULL) {
        *out_physical = cut__single(plan, options, reason, arena);
        return ERR_OK;
    }
    struct cutter c = {
        .options = options,
        .arena = arena,
        .e = &why,
        .join_rules = options->join_rules != NULL ? options->join_rules : &join_rules_default,
        .aggregate_rules = options->aggregate_rules != NULL ? options->aggregate_rules : aggregate_rules_default,
    };
    choose_sizes(&c, &total);
    enum err err = cut_all(&c, plan, out_physical);
    cutter_deinit(&c);
    if (err == ERR_PRECONDITION) {
        *out_physical = cut__single(plan, options, why.message, arena);
        return ERR_OK;
    }
    return err == ERR_OK ? ERR_OK : error_set(e, err, "%s", why.message);
}
