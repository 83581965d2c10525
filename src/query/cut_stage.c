/* Fragments end here: as stages, with an exchange behind them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "query/cut_internal.h"
#include "query/sql_text.h"
#include "query/unparse.h"

/* What a walk over a fragment's tree finds, for its stage. */
struct stage_parts {
    struct cutter *c;
    struct physical_stage *stage;
    uint32_t cap_inputs;
    uint32_t cap_splits;
    uint32_t cap_files;
    uint32_t n_scans;
};

static const struct stage_read *find_read(const struct cutter *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_reads; i++) {
        if (strcmp(c->reads[i].name, name) == 0) {
            return &c->reads[i];
        }
    }
    ASSERT(false);
    return NULL;
}

static void add_input(struct stage_parts *parts, const char *name)
{
    struct physical_stage *stage = parts->stage;
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        if (strcmp(stage->inputs[i].name, name) == 0) {
            return;
        }
    }
    const struct stage_read *read = find_read(parts->c, name);
    stage->inputs = mem_grow(stage->inputs, &parts->cap_inputs, stage->n_inputs + 1, sizeof *stage->inputs);
    stage->inputs[stage->n_inputs++] =
        (struct physical_input){.name = name, .stage = read->stage, .is_whole = read->is_whole};
}

/* Gives the scan its number in the stage, and the stage the scan's splits. */
static void add_scan(struct stage_parts *parts, const struct split_scan_entry *entry)
{
    struct physical_stage *stage = parts->stage;
    struct arena *arena = parts->c->arena;
    uint32_t number = parts->n_scans++;
    const char *which = number > 0 ? arena_format(arena, ":%" PRIu32, number) : "";
    if (entry->scan->shared_call != NULL) {
        struct buf from = {0};
        split_others_write(&from, entry->scan, entry->splits, which);
        entry->scan->split.from = arena_strdup(arena, from.data);
        buf_deinit(&from);
    } else if (entry->scan->source == SCAN_STAND_IN) {
        entry->scan->split.from =
            arena_format(arena, "(SELECT * FROM %s WHERE {{rows%s:0}})", entry->scan->from, which);
    } else {
        const char *row = entry->scan->has_union_by_name ? SCAN_BY_NAME_ROW : "file_row_number";
        entry->scan->split.files = arena_format(arena, "{{split%s}}", which);
        entry->scan->split.where =
            entry->condition != NULL ? entry->condition : arena_format(arena, "{{rows%s:@.%s}}", which, row);
        entry->scan->split.file_index = arena_format(arena, "CAST({{file_index%s}} AS UBIGINT)", which);
    }
    stage->splits =
        mem_grow(stage->splits, &parts->cap_splits, stage->n_splits + entry->n_splits, sizeof *stage->splits);
    for (uint32_t i = 0; i < entry->n_splits; i++) {
        stage->splits[stage->n_splits] = entry->splits[i];
        stage->splits[stage->n_splits++].scan = number;
    }
}

/* A file, unless it is among the first `n_before`, which other scans have brought. */
static void add_file(struct stage_parts *parts, uint32_t n_before, struct physical_file file)
{
    struct physical_stage *stage = parts->stage;
    for (uint32_t i = 0; i < n_before; i++) {
        if (strcmp(stage->files[i].path, file.path) == 0) {
            return;
        }
    }
    stage->files = mem_grow(stage->files, &parts->cap_files, stage->n_files + 1, sizeof *stage->files);
    stage->files[stage->n_files++] = file;
}

/* Files of a scan that the SQL names itself, so that they are in no split. */
static void add_files(struct stage_parts *parts, const struct scan *scan)
{
    uint32_t n_before = parts->stage->n_files;
    for (uint32_t i = 0; scan->source == SCAN_PARQUET && i < scan->n_files; i++) {
        const struct split_file *file = split_find(parts->c->options->catalog, scan->files[i]);
        if (file != NULL && file->has_identity) {
            add_file(parts, n_before,
                     (struct physical_file){.path = file->path, .bytes = file->bytes, .mtime_ms = file->mtime_ms});
        }
    }
    for (uint32_t i = 0; scan->source == SCAN_STAND_IN && i < scan->n_other_files; i++) {
        const struct scan_file *file = &scan->other_files[i];
        add_file(parts, n_before,
                 (struct physical_file){.path = file->path, .bytes = file->bytes, .mtime_ms = file->mtime_ms});
    }
}

static bool find_parts(struct plan_node *node, void *context)
{
    struct stage_parts *parts = context;
    if (node->kind == NODE_INPUT) {
        add_input(parts, node->as.input.name);
    }
    bool is_split = false;
    for (uint32_t i = 0; node->kind == NODE_SCAN && i < parts->c->n_scans; i++) {
        if (parts->c->scans[i].scan == node->as.scan && !parts->c->scans[i].is_follower) {
            add_scan(parts, &parts->c->scans[i]);
            is_split = node->as.scan->source == SCAN_PARQUET || node->as.scan->shared_call != NULL;
        }
    }
    if (node->kind == NODE_SCAN && !is_split) {
        add_files(parts, node->as.scan);
    }
    if (node->kind == NODE_SCAN && node->as.scan->source == SCAN_FUNCTION &&
        strncmp(node->as.scan->function, "parquet", strlen("parquet")) == 0) {
        parts->stage->knows_files = false; /* what it tells of files is in its arguments */
    }
    return true;
}

/* Moves arrays from the heap into the arena. */
static void settle_parts(struct stage_parts *parts)
{
    struct physical_stage *stage = parts->stage;
    void *inputs = stage->inputs;
    void *splits = stage->splits;
    void *files = stage->files;
    stage->inputs = arena_copy(parts->c->arena, inputs, stage->n_inputs * sizeof *stage->inputs);
    stage->splits = arena_copy(parts->c->arena, splits, stage->n_splits * sizeof *stage->splits);
    stage->files = arena_copy(parts->c->arena, files, stage->n_files * sizeof *stage->files);
    mem_free(inputs);
    mem_free(splits);
    mem_free(files);
}

void cut__name_files(struct plan_node *root, const struct cut_options *options, struct arena *arena,
                     struct physical_stage *stage)
{
    struct cutter c = {.options = options, .arena = arena};
    struct stage_parts parts = {.c = &c, .stage = stage};
    stage->knows_files = true;
    plan_visit(root, find_parts, &parts);
    settle_parts(&parts);
}

static enum err write_keys(struct cutter *c, const struct close_request *request, struct physical_output *output)
{
    bool is_range = request->exchange == EXCHANGE_RANGE;
    output->n_keys = is_range ? request->n_orders : request->n_keys;
    output->keys = arena_zalloc(c->arena, output->n_keys * sizeof *output->keys);
    for (uint32_t i = 0; i < output->n_keys; i++) {
        struct buf text = {0};
        const struct order_key *order = is_range ? &request->orders[i] : NULL;
        enum err err = unparse_expression(&text, is_range ? order->expression : request->keys[i], NULL, c->e);
        if (err == ERR_OK && is_range) {
            buf_format(&text, " %s NULLS %s", order->is_descending ? "DESC" : "ASC",
                       order->has_nulls_first ? "FIRST" : "LAST");
        }
        output->keys[i] = arena_strdup(c->arena, text.data);
        buf_deinit(&text);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static void note_empty_if(struct cutter *c, const struct fragment *f, struct physical_stage *stage)
{
    const char **names = arena_zalloc(c->arena, stage->n_inputs * sizeof *names);
    bool *flags = arena_zalloc(c->arena, stage->n_inputs * sizeof *flags);
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        names[i] = stage->inputs[i].name;
    }
    cut__empty_if(f->node, names, stage->n_inputs, flags);
    stage->empty_if = arena_zalloc(c->arena, stage->n_inputs * sizeof *stage->empty_if);
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        if (flags[i]) {
            stage->empty_if[stage->n_empty_if++] = i;
        }
    }
}

/* How often the SQL names the input. */
static void note_repeats(struct physical_stage *stage)
{
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        uint32_t n = 0;
        struct buf name = {0};
        sql_write_name(&name, stage->inputs[i].name);
        for (const char *p = stage->sql; (p = strstr(p, name.data)) != NULL; p += name.n) {
            n++;
        }
        stage->inputs[i].is_repeated = n > 1;
        buf_deinit(&name);
    }
}

static void note_choice(const struct fragment *f, struct physical_stage *stage)
{
    /* SQL that depends on the number of its task, or keeps partitions for others, must keep its tasks. */
    if (f->choice == NULL || strstr(stage->sql, "{{task}}") != NULL || stage->output.exchange == EXCHANGE_FORWARD) {
        return;
    }
    stage->choice = (struct physical_choice){
        .is_open = true,
        .small = f->choice->small,
        .large = f->choice->large,
        .bytes_max = f->choice->bytes_max < (double)LIMIT_QUANTITY ? (uint64_t)f->choice->bytes_max : LIMIT_QUANTITY,
    };
}

/* Whether there is a UNION in it. */
static bool has_union(const struct type *type)
{
    bool is_nested = type->id == TYPE_STRUCT || type->id == TYPE_UNION;
    bool has_one = type->id == TYPE_UNION || (type->child != NULL && has_union(type->child));
    for (uint32_t i = 0; i < type->n_fields && is_nested && !has_one; i++) {
        has_one = has_union(type->fields[i].type);
    }
    return has_one;
}

/* Whether there is a list of ENUMs in it, however deep; `is_inside` says whether this is inside of a list already. */
static bool has_enum_list(const struct type *type, bool is_inside)
{
    bool is_list = type->id == TYPE_LIST || type->id == TYPE_ARRAY || type->id == TYPE_MAP;
    bool is_nested = type->id == TYPE_STRUCT || type->id == TYPE_UNION;
    bool has_one = (type->id == TYPE_ENUM && is_inside) ||
                   (type->child != NULL && has_enum_list(type->child, is_inside || is_list));
    for (uint32_t i = 0; i < type->n_fields && is_nested && !has_one; i++) {
        has_one = has_enum_list(type->fields[i].type, is_inside);
    }
    return has_one;
}

/*
 * Arrow has no NULL for a UNION, only for what is in it, so one that is NULL would come out as one with a NULL in it. And
 * DuckDB cannot read lists of ENUMs with NULLs out of Arrow, if there are many of them (duck/slice.c).
 */
static enum err check_columns(struct cutter *c, const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->n_columns; i++) {
        if (has_union(node->columns[i])) {
            return error_set(c->e, ERR_PRECONDITION, "a column of type UNION cannot go from stage to stage");
        }
        if (has_enum_list(node->columns[i], false)) {
            return error_set(c->e, ERR_PRECONDITION, "a column with lists of ENUM cannot go from stage to stage");
        }
    }
    return ERR_OK;
}

/* The SQL has one number for the file of a Parquet scan: if it names it, a task reads one file of that scan only. */
static void part_files(struct physical_stage *stage)
{
    bool has_mark = sql_has(stage->sql, "CAST({{file_index");
    for (uint32_t i = 0; i < stage->n_splits && has_mark; i++) {
        char mark[40] = "CAST({{file_index}} AS";
        if (stage->splits[i].scan > 0) {
            (void)snprintf(mark, sizeof(mark), "CAST({{file_index:%" PRIu32 "}} AS", stage->splits[i].scan);
        }
        stage->splits[i].is_continued = stage->splits[i].is_continued && !sql_has(stage->sql, mark);
    }
}

static enum err write_sql(struct cutter *c, const struct fragment *f, const struct close_request *request,
                          struct buf *sql)
{
    const struct plan *result = request->result;
    if (result != NULL) {
        enum err err = unparse_result(sql, f->node, result->columns, result->n_columns, c->e);
        cut__write_names(sql, result);
        return err;
    }
    enum err err = check_columns(c, f->node);
    return err == ERR_OK ? unparse_node(sql, f->node, c->e) : err;
}

enum err cut__close(struct cutter *c, const struct fragment *f, const struct close_request *request,
                    uint32_t *out_stage)
{
    struct physical_stage stage = {
        .id = c->n_stages, .job_stage = PHYSICAL_NOT_ADDED, .estimate = {.rows = -1, .bytes = -1}};
    struct stage_parts parts = {.c = c, .stage = &stage};
    struct buf sql = {0};
    struct buf what = {0};
    stage.knows_files = true;
    plan_visit(f->node, find_parts, &parts);
    if (request->bounds != NULL) {
        add_input(&parts, request->bounds);
    }
    settle_parts(&parts);
    stage.output = (struct physical_output){.exchange = request->exchange, .bounds = request->bounds};
    stage.output.partitions = exchange_is_partitioned(request->exchange) ? c->partitions : 0;
    enum err err = write_sql(c, f, request, &sql);
    if (err == ERR_OK) {
        err = write_keys(c, request, &stage.output);
    }
    if (err == ERR_OK) {
        stage.sql = arena_strdup(c->arena, sql.data);
        part_files(&stage);
        stage.is_deterministic = cut__is_deterministic(f->node);
        stage.estimate.rows = f->rows;
        stage.estimate.bytes = f->rows < 0 ? -1 : f->rows * cut__row_bytes(f->node);
        cut__describe(&what, f->node);
        stage.what = arena_strdup(c->arena, what.n > 0 ? what.data : "");
        if (request->custom != NULL) {
            /* Nobody knows what an operator does, or whether it needs rows to yield some. */
            stage.custom =
                (struct physical_custom){.op = request->custom->op, .config_json = request->custom->config_json};
            stage.is_deterministic = false;
        } else {
            note_empty_if(c, f, &stage);
        }
        note_repeats(&stage);
        note_choice(f, &stage);
        c->stages = mem_grow(c->stages, &c->cap_stages, c->n_stages + 1, sizeof *c->stages);
        *out_stage = c->n_stages;
        c->stages[c->n_stages++] = stage;
    }
    buf_deinit(&sql);
    buf_deinit(&what);
    return err;
}

struct plan_node *cut__read(struct cutter *c, uint32_t stage, const struct plan_node *shape, bool is_whole)
{
    const char *name = arena_format(c->arena, "i%" PRIu32, c->n_reads);
    c->reads = mem_grow(c->reads, &c->cap_reads, c->n_reads + 1, sizeof *c->reads);
    c->reads[c->n_reads++] = (struct stage_read){.name = name, .stage = stage, .is_whole = is_whole};
    struct plan_node *node = plan_input(c->arena, name, (const struct type *const *)shape->columns, shape->n_columns);
    node->rows_estimated = shape->rows_estimated;
    return node;
}

uint32_t cut__stage_of(const struct cutter *c, const struct plan_node *input)
{
    ASSERT(input->kind == NODE_INPUT);
    return find_read(c, input->as.input.name)->stage;
}

bool cut__is_whole(const struct cutter *c, const struct plan_node *input)
{
    ASSERT(input->kind == NODE_INPUT);
    return find_read(c, input->as.input.name)->is_whole;
}

/* A new fragment that begins with another stage's rows. */
static struct fragment read_fragment(struct cutter *c, uint32_t stage, const struct fragment *from, bool is_whole)
{
    return (struct fragment){
        .node = cut__read(c, stage, from->node, is_whole),
        .spread = is_whole ? SPREAD_SINGLE : SPREAD_ANY,
        .reads_partitions = !is_whole,
        .rows = from->rows,
        .rows_max = from->rows_max,
    };
}

/* If the fragment is nothing but the partitions of a stage, that stage can as well be read as a whole. */
static bool read_whole_instead(struct cutter *c, const struct fragment *f, struct fragment *out)
{
    if (f->node->kind != NODE_INPUT) {
        return false;
    }
    *out = read_fragment(c, cut__stage_of(c, f->node), f, true);
    return true;
}

/* Up to this, by the estimate, it takes less time that every task works on all rows than that one more stage does. */
#define REREAD_BYTES_MAX (16.0 * 1024 * 1024)

/*
 * A few steps over the partitions of a stage: every task can read all of the stage and do them itself, rather than that
 * each does a part and sends it to all. Only for steps that are nothing but columns and DISTINCT; others may cost more.
 */
static bool reread_whole_instead(struct cutter *c, const struct fragment *f, struct fragment *out)
{
    struct plan_node *path[8];
    uint32_t n = 0;
    struct plan_node *node = f->node;
    while ((node->kind == NODE_PROJECTION || node->kind == NODE_DISTINCT) && n < ARRAY_LEN(path)) {
        path[n++] = node;
        node = node->children[0];
    }
    if (node->kind != NODE_INPUT || !cut__is_deterministic(f->node)) {
        return false;
    }
    uint32_t stage = cut__stage_of(c, node);
    double bytes = c->stages[stage].estimate.bytes;
    if (bytes < 0 || bytes > cut__size(c, REREAD_BYTES_MAX) || bytes > c->broadcast_bytes) {
        return false;
    }
    struct plan_node *whole = cut__read(c, stage, node, true);
    while (n > 0) {
        whole = plan_node_with_child(c->arena, path[--n], whole);
    }
    *out = *f;
    out->node = whole;
    out->reads_partitions = false;
    out->keys = NULL;
    out->choice = NULL;
    return true;
}

enum err cut__gather(struct cutter *c, const struct fragment *f, struct fragment *out)
{
    if (cut__is_one(f)) {
        *out = *f;
        out->spread = SPREAD_SINGLE;
        return ERR_OK;
    }
    if (read_whole_instead(c, f, out)) {
        return ERR_OK;
    }
    uint32_t stage = 0;
    enum err err = cut__close(c, f, &(struct close_request){.exchange = EXCHANGE_GATHER}, &stage);
    if (err == ERR_OK) {
        *out = read_fragment(c, stage, f, true);
    }
    return err;
}

enum err cut__broadcast(struct cutter *c, const struct fragment *f, struct fragment *out)
{
    if (f->spread == SPREAD_REPLICATED) {
        *out = *f;
        return ERR_OK;
    }
    enum err err = ERR_OK;
    if (f->reads_partitions && f->node->kind != NODE_INPUT && reread_whole_instead(c, f, out)) {
        out->spread = SPREAD_REPLICATED;
        return ERR_OK;
    }
    if (read_whole_instead(c, f, out)) {
        struct physical_output *output = &c->stages[cut__stage_of(c, out->node)].output;
        output->exchange = output->exchange == EXCHANGE_GATHER ? EXCHANGE_BROADCAST : output->exchange;
    } else {
        uint32_t stage = 0;
        err = cut__close(c, f, &(struct close_request){.exchange = EXCHANGE_BROADCAST}, &stage);
        if (err == ERR_OK) {
            *out = read_fragment(c, stage, f, true);
        }
    }
    if (err == ERR_OK) {
        out->spread = SPREAD_REPLICATED;
    }
    return err;
}

/* Everybody has the rows already, so each task only has to leave out what is not its share. */
static struct fragment keep_share(struct cutter *c, const struct fragment *f, const char *sql,
                                  struct expression *const *args, uint32_t n)
{
    struct fragment share = *f;
    struct expression *condition = expression_template(c->arena, sql, type_plain(TYPE_BOOLEAN), args, n);
    share.node = plan_filter(c->arena, f->node, condition);
    share.spread = SPREAD_ANY;
    share.choice = NULL;
    return share;
}

bool cut__are_fixed(struct expression *const *keys, uint32_t n)
{
    bool are_fixed = true;
    for (uint32_t i = 0; i < n && are_fixed; i++) {
        are_fixed = !expression_is_volatile(keys[i]);
    }
    return are_fixed;
}

enum err cut__shuffle(struct cutter *c, const struct fragment *f, struct expression *const *keys, uint32_t n,
                      struct fragment *out)
{
    uint32_t *columns = cut__ref_columns(c, keys, n);
    if (!cut__are_fixed(keys, n)) {
        return error_set(c->e, ERR_PRECONDITION, "rows cannot be spread by a value that is another each time");
    }
    if (f->spread == SPREAD_REPLICATED) {
        const char *sql = arena_format(c->arena, "((hash(@*) >> 32) %% %" PRIu32 " = {{task}})", c->partitions);
        *out = keep_share(c, f, sql, keys, n);
        out->reads_partitions = true;
    } else {
        uint32_t stage = 0;
        struct close_request request = {.exchange = EXCHANGE_HASH, .keys = keys, .n_keys = n};
        enum err err = cut__close(c, f, &request, &stage);
        if (err != ERR_OK) {
            return err;
        }
        *out = read_fragment(c, stage, f, false);
    }
    cut__set_hashed(out, columns == NULL ? NULL : cut__key_set(c, columns, n, NULL));
    return ERR_OK;
}

enum err cut__forward(struct cutter *c, const struct fragment *f, struct fragment *out)
{
    uint32_t stage = 0;
    struct close_request request = {.exchange = cut__is_one(f) ? EXCHANGE_BROADCAST : EXCHANGE_FORWARD};
    enum err err = cut__close(c, f, &request, &stage);
    if (err != ERR_OK) {
        return err;
    }
    *out = read_fragment(c, stage, f, cut__is_one(f));
    if (cut__is_one(f)) {
        out->spread = SPREAD_REPLICATED;
    } else {
        cut__set_hashed(out, f->spread == SPREAD_HASH && f->ranges == NULL ? f->keys : NULL);
    }
    return ERR_OK;
}

enum err cut__spread(struct cutter *c, const struct fragment *f, struct fragment *out)
{
    struct fragment everywhere;
    if (!cut__is_one(f)) {
        *out = *f;
        return ERR_OK;
    }
    enum err err = cut__broadcast(c, f, &everywhere);
    if (err == ERR_OK) {
        *out = keep_share(c, &everywhere, "({{task}} = 0)", NULL, 0);
    }
    return err;
}

double cut__row_bytes(const struct plan_node *node)
{
    double bytes = 0;
    for (uint32_t i = 0; i < node->n_columns; i++) {
        enum type_id id = node->columns[i]->id;
        bool is_small = id == TYPE_BOOLEAN || id == TYPE_TINYINT || id == TYPE_UTINYINT || id == TYPE_SMALLINT ||
                        id == TYPE_USMALLINT;
        bool is_long = id == TYPE_HUGEINT || id == TYPE_UHUGEINT || id == TYPE_UUID || id == TYPE_INTERVAL;
        bool is_nested = id == TYPE_LIST || id == TYPE_ARRAY || id == TYPE_STRUCT || id == TYPE_MAP ||
                         id == TYPE_UNION || id == TYPE_BLOB;
        bool is_text = id == TYPE_VARCHAR || id == TYPE_BIT || id == TYPE_BIGNUM;
        bytes += is_small ? 2 : is_long ? 16 : is_nested ? 64 : is_text ? 24 : 8;
    }
    return bytes > 1 ? bytes : 1;
}

double cut__bytes(const struct fragment *f)
{
    double rows = f->rows < 0 || f->rows > f->rows_max ? f->rows_max : f->rows;
    return rows * cut__row_bytes(f->node);
}

double cut__bytes_max(const struct fragment *f)
{
    return f->rows_max * cut__row_bytes(f->node);
}
