/*
 * Ranges: rows that meet in a join, or belong to a group, may lie side by side already.
 *
 * Tables are often written in the order of a key, and so are others that have the same key, such as orders and their lines.
 * Parquet files say so: from row group to row group, the least and the greatest value of a column ascend. Then the values
 * are cut into ranges, one for each task, and a task reads of all these tables what is in its range, mostly whole row groups
 * that no other task reads. Nothing has to move: rows with equal keys are at the same task as after a hash exchange.
 *
 * One scan of the fragment, the lead, has splits: for each task the files in which its range is. The others, the followers,
 * name all their files. Both have the range as a condition, by {{task}}, from which DuckDB sees what it need not read.
 * Values alone say where a row belongs. What files tell is believed in two things: that there are no NULLs, and in which
 * files a range is not.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "query/cut_internal.h"

/* A scan is not worth it if tasks read so many times of what it has in all. */
#define LEAD_EXCESS_MAX 1.25
#define FOLLOWER_EXCESS_MAX 1.5
#define FEW_EXCESS_MAX 2.0 /* of a lead that has fewer row groups than the next for each task */
#define FEW_PER_TASK 2

/* Every task opens all files of a follower. */
#define FOLLOWER_FILES_MAX 64

/* Files of a lead that tasks open in all: a plan with many more of them would be too large to be taken. */
#define LEAD_SPLITS_MAX 50000

#define TASKS_MAX 1024
#define NEAR_MAX 16 /* row groups that are looked at for where a range should begin, before and after the middle */

/* Values from bounds[i - 1] to less than bounds[i] are those of task i, the first and the last one have no end. */
struct key_ranges {
    uint32_t n;
    const int64_t *bounds; /* n - 1, ascending */
};

/* A row group, by one column. */
struct piece {
    int64_t first;
    int64_t last;
    uint64_t rows;
    uint64_t bytes;
    uint32_t file; /* of the scan */
};

/* A column of a scan that could be cut into ranges. */
struct ordered_scan {
    struct split_scan_entry *entry;
    uint32_t column; /* of the source */
    uint32_t n;
    struct piece *pieces; /* by their first values */
    int64_t *lasts;       /* the last values, ascending */
    double *bytes_first;  /* of so many pieces from the beginning, by their first values; n + 1 */
    double *bytes_last;   /* the same by their last values */
    double bytes;
};

/* ---- which scans ---- */

static bool is_whole_number(const struct type *type)
{
    return type->id == TYPE_TINYINT || type->id == TYPE_SMALLINT || type->id == TYPE_INTEGER ||
           type->id == TYPE_BIGINT || type->id == TYPE_UTINYINT || type->id == TYPE_USMALLINT ||
           type->id == TYPE_UINTEGER;
}

/* Whether it matters by which task, or together with which other rows, a row of the scan is read. */
static bool tells_place(const struct scan *scan)
{
    bool tells = scan->has_file_row_number || scan->filename_column != NULL || scan->n_virtual_filters > 0 ||
                 scan->has_hive_partitioning || scan->has_union_by_name;
    for (uint32_t i = 0; i < scan->n_columns && !tells; i++) {
        tells = scan->columns[i].is_virtual != VIRTUAL_NONE && scan->columns[i].is_virtual != VIRTUAL_EMPTY;
    }
    return tells;
}

static struct split_scan_entry *find_entry(struct cutter *c, const struct scan *scan)
{
    for (uint32_t i = 0; i < c->n_scans; i++) {
        if (c->scans[i].scan == scan) {
            return &c->scans[i];
        }
    }
    return NULL;
}

static int by_first(const void *a, const void *b)
{
    const struct piece *x = a;
    const struct piece *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : (x->last > y->last) - (x->last < y->last);
}

static int by_last(const void *a, const void *b)
{
    const struct piece *x = a;
    const struct piece *y = b;
    return (x->last > y->last) - (x->last < y->last);
}

/* Sorts the pieces, and adds up their bytes. */
static void settle_pieces(struct cutter *c, struct ordered_scan *out)
{
    out->lasts = arena_zalloc(c->arena, out->n * sizeof *out->lasts);
    out->bytes_first = arena_zalloc(c->arena, (out->n + 1) * sizeof *out->bytes_first);
    out->bytes_last = arena_zalloc(c->arena, (out->n + 1) * sizeof *out->bytes_last);
    qsort(out->pieces, out->n, sizeof *out->pieces, by_last);
    for (uint32_t i = 0; i < out->n; i++) {
        out->lasts[i] = out->pieces[i].last;
        out->bytes_last[i + 1] = out->bytes_last[i] + (double)out->pieces[i].bytes;
    }
    qsort(out->pieces, out->n, sizeof *out->pieces, by_first);
    for (uint32_t i = 0; i < out->n; i++) {
        out->bytes_first[i + 1] = out->bytes_first[i] + (double)out->pieces[i].bytes;
    }
    out->bytes = out->bytes_first[out->n];
}

/* All row groups of the scan; false if something is not known of one of its files, or a task could not read several. */
static bool find_pieces(struct cutter *c, struct ordered_scan *out)
{
    const struct scan *scan = out->entry->scan;
    const char *name = scan->names[out->column];
    const char *first = NULL; /* of the files that have rows */
    uint32_t n = 0;
    for (uint32_t i = 0; i < scan->n_files; i++) {
        const struct split_file *file = split_find(c->options->catalog, scan->files[i]);
        if (file == NULL || !file->has_identity) {
            return false;
        }
        const struct split_column *column = split_column_of(file, name);
        bool is_ascending = column != NULL && column->first != NULL;
        first = first == NULL && file->n_groups > 0 ? file->path : first;
        if (file->n_groups > 0 && (!is_ascending || !split_are_alike(c->options->catalog, first, file->path))) {
            return false;
        }
        n += file->n_groups;
    }
    out->pieces = arena_zalloc(c->arena, n * sizeof *out->pieces);
    for (uint32_t i = 0; i < scan->n_files; i++) {
        const struct split_file *file = split_find(c->options->catalog, scan->files[i]);
        const struct split_column *column = split_column_of(file, name);
        for (uint32_t k = 0; k < file->n_groups; k++) {
            out->pieces[out->n++] = (struct piece){.first = column->first[k],
                                                   .last = column->last[k],
                                                   .rows = file->groups[k].rows,
                                                   .bytes = file->groups[k].bytes,
                                                   .file = i};
        }
    }
    if (n > 0) {
        settle_pieces(c, out);
    }
    return n > 0;
}

/* The scan that the fragment's column comes from, if it is the one that is shared out, and not by other ranges yet. */
static bool find_ordered(struct cutter *c, const struct fragment *f, uint32_t column, struct ordered_scan *out)
{
    const struct plan_node *node = f->has_splits && f->ranges == NULL ? cut__find_source(f->node, &column) : NULL;
    if (node == NULL || node->kind != NODE_SCAN || node->as.scan->source != SCAN_PARQUET) {
        return false;
    }
    const struct scan *scan = node->as.scan;
    const struct scan_column *source = &scan->columns[column];
    *out = (struct ordered_scan){.entry = find_entry(c, scan), .column = source->index};
    if (out->entry == NULL || tells_place(scan) || source->is_virtual != VIRTUAL_NONE || source->n_path > 0 ||
        !is_whole_number(scan->types[source->index]) || (scan->is_recast != NULL && scan->is_recast[source->index])) {
        return false;
    }
    const char *name = scan->names[source->index];
    return strpbrk(name, "@{}") == NULL && find_pieces(c, out); /* scan_split.where would be misread */
}

/* ---- ranges ---- */

static bool is_in(const struct key_ranges *ranges, uint32_t task, const struct piece *piece)
{
    return (task == 0 || piece->last >= ranges->bounds[task - 1]) &&
           (task + 1 == ranges->n || piece->first < ranges->bounds[task]);
}

/* The task whose range the value is in. */
static uint32_t task_of(const struct key_ranges *ranges, int64_t value)
{
    uint32_t low = 0;
    uint32_t high = ranges->n - 1;
    while (low < high) { /* it is as many as there are bounds up to the value */
        uint32_t middle = low + (high - low) / 2;
        low = ranges->bounds[middle] <= value ? middle + 1 : low;
        high = ranges->bounds[middle] <= value ? high : middle;
    }
    return low;
}

/* How many bytes all tasks read of the scan together, as a part of those that it has. */
static double excess_of(const struct ordered_scan *scan, const struct key_ranges *ranges)
{
    double bytes = 0;
    for (uint32_t i = 0; i < scan->n; i++) {
        const struct piece *piece = &scan->pieces[i];
        bytes += (double)piece->bytes * (task_of(ranges, piece->last) - task_of(ranges, piece->first) + 1);
    }
    return scan->bytes > 0 ? bytes / scan->bytes : INFINITY;
}

/* How many files all tasks open together. In each file pieces ascend. */
static uint64_t count_files(const struct ordered_scan *scan, const struct key_ranges *ranges)
{
    uint64_t n = 0;
    uint32_t *next = mem_calloc(scan->entry->scan->n_files, sizeof *next); /* the first task that has not opened it */
    for (uint32_t i = 0; i < scan->n; i++) {
        const struct piece *piece = &scan->pieces[i];
        uint32_t from = task_of(ranges, piece->first);
        uint32_t end = task_of(ranges, piece->last) + 1;
        from = from > next[piece->file] ? from : next[piece->file];
        n += end > from ? end - from : 0;
        next[piece->file] = end > next[piece->file] ? end : next[piece->file];
    }
    mem_free(next);
    return n;
}

/* Bytes in front of a bound: of row groups that begin there. */
static double bytes_before(const struct ordered_scan *scan, int64_t bound)
{
    uint32_t low = 0;
    uint32_t high = scan->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        low = scan->pieces[middle].first < bound ? middle + 1 : low;
        high = scan->pieces[middle].first < bound ? high : middle;
    }
    return scan->bytes_first[low];
}

/* Bytes of row groups that two tasks would read if a range began there: they begin in front of it, but do not end there. */
static double bytes_across(const struct ordered_scan *scan, int64_t bound)
{
    uint32_t low = 0;
    uint32_t high = scan->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        low = scan->lasts[middle] < bound ? middle + 1 : low;
        high = scan->lasts[middle] < bound ? high : middle;
    }
    return bytes_before(scan, bound) - scan->bytes_last[low];
}

/*
 * Near piece `at`, and behind `after`, where a range had better begin: where the tasks before it have `wanted` bytes, or
 * about as many, and few are read twice. False if it cannot.
 */
static bool choose_bound(const struct ordered_scan *scan, uint32_t at, double wanted, const int64_t *after,
                         int64_t *out)
{
    uint32_t near = scan->entry->scan->n_files < NEAR_MAX ? scan->entry->scan->n_files : NEAR_MAX;
    double least = INFINITY;
    for (uint32_t i = at > near ? at - near : 0; i < scan->n && i <= at + near; i++) {
        int64_t bound = scan->pieces[i].first;
        double price = fabs(bytes_before(scan, bound) - wanted) + bytes_across(scan, bound) / 2;
        if (bound > scan->pieces[0].first && (after == NULL || bound > *after) && price < least) {
            least = price;
            *out = bound;
        }
    }
    return least < INFINITY;
}

/* Beyond these, doubles cannot tell whole numbers apart. */
#define INSIDE_MAX (INT64_C(1) << 52)

/* So few row groups that ranges begin inside of them; then two tasks read the same one. */
static bool are_few(const struct ordered_scan *scan, uint64_t n_tasks)
{
    return scan->n < FEW_PER_TASK * n_tasks && scan->pieces[0].first >= -INSIDE_MAX &&
           scan->lasts[scan->n - 1] <= INSIDE_MAX;
}

/* A value inside of the row group before which there are less than `wanted` bytes, as if its values were even. */
static bool choose_inside(const struct ordered_scan *scan, double wanted, const int64_t *after, int64_t *out)
{
    uint32_t at = 0;
    while (at + 1 < scan->n && scan->bytes_first[at + 1] < wanted) {
        at++;
    }
    const struct piece *piece = &scan->pieces[at];
    double part = piece->bytes > 0 ? (wanted - scan->bytes_first[at]) / (double)piece->bytes : 0;
    *out = piece->first + (int64_t)((double)(piece->last - piece->first) * part);
    return *out > scan->pieces[0].first && (after == NULL || *out > *after);
}

/* Ranges in which the scan has about the same to read each; NULL if there is no more than one. */
static const struct key_ranges *make_ranges(struct cutter *c, const struct ordered_scan *scan, uint64_t n_tasks)
{
    n_tasks = n_tasks < TASKS_MAX ? n_tasks : TASKS_MAX;
    struct key_ranges *ranges = arena_zalloc(c->arena, sizeof *ranges);
    int64_t *bounds = arena_zalloc(c->arena, n_tasks * sizeof *bounds);
    bool is_inside = are_few(scan, n_tasks);
    ranges->n = 1;
    ranges->bounds = bounds;
    for (uint32_t i = 0; i < (is_inside ? n_tasks : scan->n) && ranges->n < n_tasks; i++) {
        double wanted = scan->bytes * ranges->n / (double)n_tasks;
        const int64_t *after = ranges->n > 1 ? &bounds[ranges->n - 2] : NULL;
        int64_t *bound = &bounds[ranges->n - 1];
        if (is_inside) {
            ranges->n += choose_inside(scan, wanted, after, bound) ? 1 : 0;
        } else if (scan->bytes_first[i] + (double)scan->pieces[i].bytes / 2 >= wanted) {
            ranges->n += choose_bound(scan, i, wanted, after, bound) ? 1 : 0;
        }
    }
    bool is_enough = c->options->is_forced || 2 * ranges->n > n_tasks; /* else others would find more work */
    return ranges->n > 1 && is_enough ? ranges : NULL;
}

static uint64_t n_tasks_of(const struct cutter *c, const struct ordered_scan *lead)
{
    struct split_sizes sizes = cut__scan_sizes(c, 0);
    return split_tasks((uint64_t)lead->bytes, &sizes);
}

/* ---- scans by ranges ---- */

/*
 * DuckDB takes all conditions that a scan can check to leave a fifth of its rows together. So a range would make tables look
 * smaller that have no other conditions, beside those that have, and the wrong side of a join would be hashed. Of those that
 * have some, DuckDB is told to begin with a fifth of their rows.
 */
#define CONDITIONS_LEAVE 5

/* What DuckDB is to take for the number of rows before conditions; 0 for what it finds itself. */
static uint64_t cardinality_of(const struct ordered_scan *scan)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < scan->n; i++) {
        rows += scan->pieces[i].rows;
    }
    return scan->entry->scan->n_filters > 0 ? 1 + rows / CONDITIONS_LEAVE : 0;
}

static const struct range_rule right_rule = {.from = ">=", .to = "<"};

/* The values of task {{task}}; @ is the scan. */
static const char *condition_of(struct cutter *c, const struct ordered_scan *scan, const struct key_ranges *ranges)
{
    struct buf name = {0};
    struct buf list = {0};
    struct buf type = {0};
    sql_write_name(&name, scan->entry->scan->names[scan->column]);
    type_write(&type, scan->entry->scan->types[scan->column]);
    for (uint32_t i = 0; i + 1 < ranges->n; i++) {
        buf_format(&list, "%s%" PRId64, i == 0 ? "[" : ", ", ranges->bounds[i]);
    }
    buf_char(&list, ']');
    struct buf sql = {0};
    const struct range_rule *rule = c->options->range_rule != NULL ? c->options->range_rule : &right_rule;
    buf_format(&sql, "({{task}} = 0 OR @.%s %s CAST((%s)[{{task}}] AS %s))", name.data, rule->from, list.data,
               type.data);
    buf_format(&sql, " AND ({{task}} = %" PRIu32 " OR @.%s %s CAST((%s)[{{task}} + 1] AS %s))", ranges->n - 1,
               name.data, rule->to, list.data, type.data);
    const char *text = arena_strdup(c->arena, sql.data);
    buf_deinit(&sql);
    buf_deinit(&name);
    buf_deinit(&list);
    buf_deinit(&type);
    return text;
}

/* For each task, the files in which its range is. */
static void split_by_ranges(struct cutter *c, const struct ordered_scan *scan, const struct key_ranges *ranges)
{
    const struct scan *files = scan->entry->scan;
    struct split_group *shares = mem_calloc(files->n_files, sizeof *shares); /* of one task */
    struct physical_split *splits = NULL;
    uint32_t n = 0;
    uint32_t cap = 0;
    for (uint32_t task = 0; task < ranges->n; task++) {
        memset(shares, 0, files->n_files * sizeof *shares);
        for (uint32_t i = 0; i < scan->n; i++) {
            bool is_here = is_in(ranges, task, &scan->pieces[i]);
            shares[scan->pieces[i].file].rows += is_here ? scan->pieces[i].rows : 0;
            shares[scan->pieces[i].file].bytes += is_here ? scan->pieces[i].bytes : 0;
        }
        uint32_t n_before = n;
        splits = mem_grow(splits, &cap, n + files->n_files, sizeof *splits);
        for (uint32_t i = 0; i < files->n_files; i++) {
            bool is_last_chance = n == n_before && i + 1 == files->n_files; /* it must have one */
            if (shares[i].rows > 0 || is_last_chance) {
                const struct split_file *file = split_find(c->options->catalog, files->files[i]);
                splits[n++] = (struct physical_split){.file = file->path,
                                                      .file_index = i,
                                                      .is_continued = true,
                                                      .rows = shares[i].rows,
                                                      .bytes = shares[i].bytes,
                                                      .has_identity = true,
                                                      .file_bytes = file->bytes,
                                                      .file_mtime_ms = file->mtime_ms};
            }
        }
        splits[n - 1].is_continued = false;
    }
    scan->entry->splits = arena_copy(c->arena, splits, n * sizeof *splits);
    scan->entry->n_splits = n;
    mem_free(splits);
    mem_free(shares);
}

/* What people and DuckDB are told of it. */
static void tell_range(const struct ordered_scan *scan)
{
    scan->entry->scan->split.range = scan->entry->scan->names[scan->column];
    scan->entry->scan->split.cardinality = cardinality_of(scan);
}

static void lead(struct cutter *c, const struct ordered_scan *scan, const struct key_ranges *ranges)
{
    split_by_ranges(c, scan, ranges);
    scan->entry->condition = condition_of(c, scan, ranges);
    tell_range(scan);
}

static void follow(struct cutter *c, const struct ordered_scan *scan, const struct key_ranges *ranges)
{
    scan->entry->n_splits = 0;
    scan->entry->is_follower = true;
    scan->entry->scan->split.where = condition_of(c, scan, ranges);
    tell_range(scan);
}

static bool may_lead(const struct cutter *c, const struct ordered_scan *scan, const struct key_ranges *ranges)
{
    double excess_max = ranges != NULL && are_few(scan, ranges->n) ? FEW_EXCESS_MAX : LEAD_EXCESS_MAX;
    return ranges != NULL && count_files(scan, ranges) <= LEAD_SPLITS_MAX &&
           (c->options->is_forced || excess_of(scan, ranges) <= excess_max);
}

static bool may_follow(const struct cutter *c, const struct ordered_scan *scan, const struct key_ranges *ranges)
{
    return scan->entry->scan->n_files <= FOLLOWER_FILES_MAX &&
           (c->options->is_forced || excess_of(scan, ranges) <= FOLLOWER_EXCESS_MAX);
}

/* Whether the fragment's tasks are ranges of the column's values. */
static bool is_ranged_by(const struct fragment *f, uint32_t column)
{
    for (const struct key_set *set = f->ranges != NULL && f->spread == SPREAD_HASH ? f->keys : NULL; set != NULL;
         set = set->next) {
        if (set->n == 1 && set->columns[0] == column) {
            return true;
        }
    }
    return false;
}

static void set_ranged(struct cutter *c, struct fragment *f, uint32_t column, const struct key_ranges *ranges)
{
    f->ranges = ranges;
    cut__set_hashed(f, cut__key_set(c, &column, 1, NULL));
}

/* ---- what others ask for ---- */

/* Nothing is by ranges if everything is to move. */
static bool is_wanted(const struct cutter *c)
{
    return c->broadcast_bytes > 0;
}

/* One is in ranges already: the other one as well. */
static bool follow_other(struct cutter *c, struct fragment *f, uint32_t column, const struct fragment *other)
{
    struct ordered_scan scan;
    if (!find_ordered(c, f, column, &scan) || !may_follow(c, &scan, other->ranges)) {
        return false;
    }
    follow(c, &scan, other->ranges);
    set_ranged(c, f, column, other->ranges);
    return true;
}

bool cut__meet(struct cutter *c, struct fragment *left, uint32_t left_column, struct fragment *right,
               uint32_t right_column)
{
    if (!is_wanted(c) || !type_equal(left->node->columns[left_column], right->node->columns[right_column])) {
        return false;
    }
    bool is_left = is_ranged_by(left, left_column);
    bool is_right = is_ranged_by(right, right_column);
    if (is_left || is_right) {
        return is_left && is_right ? left->ranges == right->ranges
               : is_left           ? follow_other(c, right, right_column, left)
                                   : follow_other(c, left, left_column, right);
    }
    struct ordered_scan a;
    struct ordered_scan b;
    if (!find_ordered(c, left, left_column, &a) || !find_ordered(c, right, right_column, &b)) {
        return false;
    }
    bool is_left_lead = a.bytes >= b.bytes;
    const struct ordered_scan *first = is_left_lead ? &a : &b;
    const struct ordered_scan *second = is_left_lead ? &b : &a;
    const struct key_ranges *ranges = make_ranges(c, first, n_tasks_of(c, first));
    if (!may_lead(c, first, ranges) || !may_follow(c, second, ranges)) {
        return false;
    }
    lead(c, first, ranges);
    follow(c, second, ranges);
    set_ranged(c, left, left_column, ranges);
    set_ranged(c, right, right_column, ranges);
    return true;
}

static bool keep_together(struct cutter *c, struct fragment *f, uint32_t column)
{
    struct ordered_scan scan;
    if (!is_wanted(c) || !find_ordered(c, f, column, &scan)) {
        return false;
    }
    const struct key_ranges *ranges = make_ranges(c, &scan, n_tasks_of(c, &scan));
    if (!may_lead(c, &scan, ranges)) {
        return false;
    }
    lead(c, &scan, ranges);
    set_ranged(c, f, column, ranges);
    return true;
}

int cut__find_range(struct cutter *c, struct fragment *f, struct expression *const *keys, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (keys[i]->kind == EXPRESSION_REF &&
            (is_ranged_by(f, keys[i]->as.index) || keep_together(c, f, keys[i]->as.index))) {
            return (int)i;
        }
    }
    return -1;
}

/* With fewer groups, each task sends its own to one that puts them together. */
#define GROUPS_MIN 100000

bool cut__could_be_together(struct cutter *c, struct fragment *f, struct expression *const *keys, uint32_t n,
                            double n_groups)
{
    bool is_tried = c->options->is_forced && c->options->partitions > 0; /* whoever says so much wants to see all */
    bool is_worth = is_tried || n_groups < 0 || n_groups >= cut__size(c, GROUPS_MIN);
    return is_worth && cut__find_range(c, f, keys, n) >= 0;
}
