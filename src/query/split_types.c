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

/* One file of each kind that the scan reads, as a list in SQL. Returns how many; SHAPES_MAX + 1: too many. */
static uint32_t write_kinds(const struct type_loader *l, struct buf *list)
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
            shapes[n++] = file->shape;
            buf_text(list, n == 1 ? "[" : ", ");
            sql_write_text(list, file->path, strlen(file->path));
        }
    }
    buf_text(list, "]");
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

/* What is a text in the plan. */
static bool is_text(const struct scan *scan, const char *type)
{
    return strcmp(type, "VARCHAR") == 0 || strcmp(type, "JSON") == 0 ||
           (strcmp(type, "BLOB") == 0 && scan->has_binary_as_string);
}

/* name, type: of a column, or of something inside of one that is called the same */
static enum err check_type(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct type_loader *l = context;
    UNUSED(n);
    UNUSED(e);
    for (uint32_t i = 0; i < l->scan->n_names && l->scan->mixed_column == NULL; i++) {
        if (!l->is_filtered[i] || strcasecmp(l->scan->names[i], values[0]) != 0 || !type_has_sql(l->scan->types[i])) {
            continue;
        }
        struct buf type = {0};
        type_write(&type, l->scan->types[i]);
        bool is_same = strcmp(type.data, values[1]) == 0 ||
                       (is_whole_number(type.data) && is_whole_number(values[1])) ||
                       (is_text(l->scan, type.data) && is_text(l->scan, values[1]));
        l->scan->mixed_column = is_same ? NULL : l->scan->names[i];
        buf_deinit(&type);
    }
    return ERR_OK;
}

/* Nested types are not looked at: files of several kinds may differ in them. Nor is anything in files of too many kinds. */
static void check_kinds(const struct type_loader *l, uint32_t n_kinds)
{
    for (uint32_t i = 0; i < l->scan->n_names && l->scan->mixed_column == NULL; i++) {
        const struct type *type = l->scan->types[i];
        bool is_nested = type->child != NULL || type->n_fields > 0;
        bool is_unknown = n_kinds > SHAPES_MAX || (n_kinds > 1 && is_nested);
        l->scan->mixed_column = l->is_filtered[i] && is_unknown ? l->scan->names[i] : NULL;
    }
}

static bool look_at_scan(struct plan_node *node, void *context)
{
    struct type_loader *l = context;
    if (l->err != ERR_OK || node->kind != NODE_SCAN || node->as.scan->source != SCAN_PARQUET ||
        node->as.scan->n_filters == 0) {
        return l->err == ERR_OK;
    }
    bool *is_filtered = arena_zalloc(l->arena, node->as.scan->n_names * sizeof *is_filtered);
    struct buf files = {0};
    l->scan = node->as.scan;
    l->is_filtered = is_filtered;
    for (uint32_t i = 0; i < l->scan->n_filters; i++) {
        expression_visit(&l->scan->filters[i], note_filtered, is_filtered);
    }
    uint32_t n_kinds = write_kinds(l, &files);
    check_kinds(l, n_kinds);
    if (n_kinds > 0 && l->scan->mixed_column == NULL) {
        const char *sql = arena_format(l->arena,
                                       "SELECT DISTINCT name, duckdb_type FROM parquet_schema(%s) "
                                       "WHERE num_children IS NULL AND duckdb_type IS NOT NULL",
                                       files.data);
        l->err = planner_rows(l->planner, sql, check_type, l, l->e);
    }
    buf_deinit(&files);
    return l->err == ERR_OK;
}

enum err split_types_load(struct planner *planner, struct plan_node *root, const struct split_catalog *catalog,
                          struct arena *arena, struct error *e)
{
    struct type_loader l = {.planner = planner, .arena = arena, .catalog = catalog, .e = e};
    plan_visit(root, look_at_scan, &l);
    return l.err;
}
