/*
 * split_types.c - conditions on columns that have other types in some files than in the plan.
 *
 * The plan has the types of the first file that the query names, and DuckDB casts what it reads from others; but a condition
 * that is checked inside of the scan it moves over to the type of the file, with other rows as the result than a condition
 * on the value that was cast would have. A task that reads only some of the files cannot do the same. Between whole numbers
 * both are the same.
 */
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "query/split.h"
#include "query/sql_text.h"

#define SHAPES_MAX 100 /* files of so many kinds are looked at */

struct type_loader {
    struct planner *planner;
    struct arena *arena;
    const struct split_catalog *catalog;
    struct scan *scan; /* that is looked at */
    const bool *is_filtered;
    const char *const *types; /* of these, in the plan */
    struct error *e;
    enum err err;
};

static bool note_filtered(struct expression **slot, void *context)
{
    bool *is_filtered = context;
    if ((*slot)->kind == EXPRESSION_REF) {
        is_filtered[(*slot)->as.index] = true;
    }
    return true;
}

/* One file of each kind that the scan reads. Returns how many; SHAPES_MAX + 1: too many. */
static uint32_t find_kinds(const struct type_loader *l, const char *out_paths[SHAPES_MAX])
{
    uint64_t shapes[SHAPES_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->scan->n_files; i++) {
        const struct split_file *file = split_find(l->catalog, l->scan->files[i]);
        uint32_t k = 0;
        if (file == NULL || file->is_unread) {
            continue;
        }
        while (k < n && shapes[k] != file->shape) {
            k++;
        }
        if (k == SHAPES_MAX) {
            return SHAPES_MAX + 1;
        }
        if (k == n) {
            out_paths[n] = file->path;
            shapes[n++] = file->shape;
        }
    }
    return n;
}

static bool is_whole_number(const char *type)
{
    static const char *const names[] = {"TINYINT",  "SMALLINT",  "INTEGER",  "BIGINT",
                                        "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"};
    size_t i = 0;
    while (i < ARRAY_LEN(names) && strcmp(type, names[i]) != 0) {
        i++;
    }
    return i < ARRAY_LEN(names);
}

static bool is_text(const char *type)
{
    return strcmp(type, "VARCHAR") == 0 || strcmp(type, "JSON") == 0;
}

/* A type as DuckDB writes it, which for what is nested is not how we do. */
static enum err keep_text(void *context, const char *const *values, uint32_t n, struct error *e)
{
    UNUSED(n);
    UNUSED(e);
    buf_text(context, values[0]);
    return ERR_OK;
}

/* What the plan has for each column with a condition; NULL for those that are not to be looked at. */
static const char *const *types_of_plan(struct type_loader *l)
{
    const struct scan *scan = l->scan;
    const char **types = arena_zalloc(l->arena, (scan->n_names + 1) * sizeof *types);
    for (uint32_t i = 0; i < scan->n_names && l->err == ERR_OK; i++) {
        if (!l->is_filtered[i] || !type_has_sql(scan->types[i])) {
            continue;
        }
        struct buf sql = {0};
        struct buf type = {0};
        type_write(&type, scan->types[i]);
        if (scan->types[i]->child != NULL || scan->types[i]->n_fields > 0) {
            buf_format(&sql, "SELECT typeof(CAST(NULL AS %s))", type.data);
            buf_reset(&type);
            l->err = planner_rows(l->planner, sql.data, keep_text, &type, l->e);
        }
        types[i] = arena_strdup(l->arena, type.data);
        buf_deinit(&sql);
        buf_deinit(&type);
    }
    return types;
}

/* name, type: of a column of a file */
static enum err check_type(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct type_loader *l = context;
    UNUSED(n);
    UNUSED(e);
    for (uint32_t i = 0; i < l->scan->n_names && l->scan->mixed_column == NULL; i++) {
        const char *type = l->types[i];
        if (type != NULL && strcasecmp(l->scan->names[i], values[0]) == 0) {
            bool is_same = strcmp(type, values[1]) == 0 || (is_whole_number(type) && is_whole_number(values[1])) ||
                           (is_text(type) && is_text(values[1]));
            l->scan->mixed_column = is_same ? NULL : l->scan->names[i];
        }
    }
    return ERR_OK;
}

static void check_file(struct type_loader *l, const char *path)
{
    struct buf sql = {0};
    buf_text(&sql, "SELECT column_name, column_type FROM (DESCRIBE FROM read_parquet(");
    sql_write_text(&sql, path, strlen(path));
    buf_format(&sql, ", hive_partitioning = false%s))",
               l->scan->has_binary_as_string ? ", binary_as_string = true" : "");
    l->err = planner_rows(l->planner, sql.data, check_type, l, l->e);
    buf_deinit(&sql);
}

/* Nothing is known of files of too many kinds. */
static void check_kinds(struct type_loader *l, const char *const *paths, uint32_t n)
{
    for (uint32_t i = 0; i < l->scan->n_names && n > SHAPES_MAX && l->scan->mixed_column == NULL; i++) {
        l->scan->mixed_column = l->is_filtered[i] ? l->scan->names[i] : NULL;
    }
    for (uint32_t i = 0; i < n && l->scan->mixed_column == NULL && l->err == ERR_OK; i++) {
        check_file(l, paths[i]);
    }
}

static bool look_at_scan(struct plan_node *node, void *context)
{
    struct type_loader *l = context;
    if (l->err != ERR_OK || node->kind != NODE_SCAN || node->as.scan->source != SCAN_PARQUET ||
        node->as.scan->n_filters == 0) {
        return l->err == ERR_OK;
    }
    const char *paths[SHAPES_MAX];
    bool *is_filtered = arena_zalloc(l->arena, node->as.scan->n_names * sizeof *is_filtered);
    l->scan = node->as.scan;
    l->is_filtered = is_filtered;
    for (uint32_t i = 0; i < l->scan->n_filters; i++) {
        expression_visit(&l->scan->filters[i], note_filtered, is_filtered);
    }
    l->types = types_of_plan(l);
    if (l->err == ERR_OK) {
        check_kinds(l, paths, find_kinds(l, paths));
    }
    return l->err == ERR_OK;
}

enum err split_types_load(struct planner *planner, struct plan_node *root, const struct split_catalog *catalog,
                          struct arena *arena, struct error *e)
{
    struct type_loader l = {.planner = planner, .arena = arena, .catalog = catalog, .e = e};
    plan_visit(root, look_at_scan, &l);
    return l.err;
}
