/*
 * split_types.c - what the plan says about types of columns, and what files have.
 *
 * The plan has the types of the first file that the query names, or with union_by_name those that hold the values of all, and
 * DuckDB casts what it reads. Two things follow.
 *
 * A condition that is checked inside of the scan DuckDB moves over to the type of each file, with other rows as the result than
 * a condition on the value that was cast would have. A task that reads only some of the files cannot do the same. Between whole
 * numbers both are the same.
 *
 * The file that has said what the types are may be one that DuckDB has left out. Who reads the others together has other types
 * then, or lacks a column; who reads files of one kind only, and casts, has not.
 *
 * And a column of the names of folders may be in the files, too. The folder's value counts, but DuckDB 1.5.6 takes the file's
 * statistics for it in a scan of a single file, as most tasks have one, and then conditions for always true, or groups for few.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "query/split.h"
#include "query/split_types.h"
#include "query/sql_text.h"

#define KINDS_MAX 100            /* files of so many kinds are looked at */
#define COLUMNS_KEPT_MAX 1000000 /* of all kinds that are kept */

/* A column as DuckDB names and types it. */
struct column {
    const char *name;
    const char *type;
};

/* The columns of all files that have the same ones in the same places. */
struct kind {
    uint64_t shape;
    bool has_binary_as_string;
    uint32_t n;
    uint32_t cap;
    struct column *columns; /* sorted by name, whatever the case; on the heap */
};

struct split_types {
    struct arena arena; /* with all texts */
    uint32_t n;
    uint32_t cap;
    struct kind **kinds;
    uint32_t n_columns;
};

struct split_types *split_types_new(void)
{
    return mem_calloc(1, sizeof(struct split_types));
}

static void clear(struct split_types *types)
{
    for (uint32_t i = 0; i < types->n; i++) {
        mem_free(types->kinds[i]->columns);
        mem_free(types->kinds[i]);
    }
    arena_reset(&types->arena);
    types->n = 0;
    types->n_columns = 0;
}

void split_types_free(struct split_types *types)
{
    if (types != NULL) {
        clear(types);
        arena_deinit(&types->arena);
        mem_free((void *)types->kinds);
        mem_free(types);
    }
}

/* ---- kinds of files ---- */

struct type_loader {
    struct planner *planner;
    struct split_types *types;
    struct arena *arena;
    const struct split_catalog *catalog;
    struct scan *scan; /* that is looked at */
    const bool *is_filtered;
    const bool *is_read;       /* these, and those of the output */
    const char *const *wanted; /* the types that the plan has for them; NULL: not to be looked at */
    struct error *e;
    enum err err;
};

static int by_name(const void *a, const void *b)
{
    return strcasecmp(((const struct column *)a)->name, ((const struct column *)b)->name);
}

/* The type of a column; NULL: there is none with that name. */
static const char *type_in(const struct kind *kind, const char *name)
{
    struct column wanted = {.name = name};
    const struct column *column =
        kind->n == 0 ? NULL : bsearch(&wanted, kind->columns, kind->n, sizeof wanted, by_name);
    return column == NULL ? NULL : column->type;
}

struct kind_loader {
    struct kind *kind;
    struct arena *arena;
};

/* name, type */
static enum err add_column(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct kind_loader *l = context;
    UNUSED(n);
    UNUSED(e);
    struct kind *kind = l->kind;
    kind->columns = mem_grow(kind->columns, &kind->cap, kind->n + 1, sizeof *kind->columns);
    kind->columns[kind->n++] =
        (struct column){.name = arena_strdup(l->arena, values[0]), .type = arena_strdup(l->arena, values[1])};
    return ERR_OK;
}

/* What DuckDB says of files that it reads together. */
static void describe(struct type_loader *l, const char *const *paths, uint32_t n, struct kind_loader *to)
{
    struct buf sql = {0};
    buf_text(&sql, "SELECT column_name, column_type FROM (DESCRIBE FROM read_parquet(");
    for (uint32_t i = 0; i < n; i++) {
        buf_text(&sql, i == 0 ? "[" : ", ");
        sql_write_text(&sql, paths[i], strlen(paths[i]));
    }
    buf_format(&sql, "], hive_partitioning = false%s%s))",
               l->scan->has_binary_as_string ? ", binary_as_string = true" : "",
               n > 1 && l->scan->has_union_by_name ? ", union_by_name = true" : "");
    l->err = planner_rows(l->planner, sql.data, add_column, to, l->e);
    buf_deinit(&sql);
    if (l->err == ERR_OK && to->kind->n > 0) {
        qsort(to->kind->columns, to->kind->n, sizeof *to->kind->columns, by_name);
    }
}

/* NULL, and `l->err`, if it cannot be read. */
static const struct kind *kind_of(struct type_loader *l, const struct split_file *file)
{
    struct split_types *types = l->types;
    for (uint32_t i = 0; i < types->n; i++) {
        struct kind *kind = types->kinds[i];
        if (kind->shape == file->shape && kind->has_binary_as_string == l->scan->has_binary_as_string) {
            return kind;
        }
    }
    struct kind *kind = mem_calloc(1, sizeof *kind);
    *kind = (struct kind){.shape = file->shape, .has_binary_as_string = l->scan->has_binary_as_string};
    describe(l, &file->path, 1, &(struct kind_loader){kind, &types->arena});
    if (l->err != ERR_OK) {
        mem_free(kind->columns);
        mem_free(kind);
        return NULL;
    }
    types->kinds = mem_grow((void *)types->kinds, &types->cap, types->n + 1, sizeof *types->kinds);
    types->kinds[types->n++] = kind;
    types->n_columns += kind->n;
    return kind;
}

/* The kinds of files that a scan reads, that of the first file in front, and a file of each. */
struct kinds {
    const struct kind *list[KINDS_MAX];
    const char *paths[KINDS_MAX];
    uint32_t n; /* KINDS_MAX + 1: there are more, of which nothing is known */
};

static void find_kinds(struct type_loader *l, struct kinds *out)
{
    out->n = 0;
    for (uint32_t i = 0; i < l->scan->n_files && l->err == ERR_OK && out->n <= KINDS_MAX; i++) {
        const struct split_file *file = split_find(l->catalog, l->scan->files[i]);
        uint32_t k = 0;
        if (file == NULL || file->is_unread) {
            continue;
        }
        while (k < out->n && out->list[k]->shape != file->shape) {
            k++;
        }
        if (k == KINDS_MAX) {
            out->n = KINDS_MAX + 1;
        } else if (k == out->n && (out->list[k] = kind_of(l, file)) != NULL) {
            out->paths[out->n++] = file->path;
        }
    }
}

/* ---- types of the plan ---- */

static bool is_nested(const struct type *type)
{
    return type->child != NULL || type->n_fields > 0;
}

/* Columns of the path: folders that are called name=value. DuckDB takes these before any of the file's own. */
static bool is_in_path(const struct scan *scan, const char *name)
{
    size_t n = 0;
    const char *key = NULL;
    const char *rest = scan->files[0];
    while (scan->has_hive_partitioning && (key = scan_next_folder(&rest, &n)) != NULL) {
        if (strlen(name) == n && strncasecmp(key, name, n) == 0) {
            return true;
        }
    }
    return false;
}

/* A column of the path that is read, and that the files have, too, or may have; NULL: there is none. */
static const char *find_hive(const struct type_loader *l, const struct kinds *kinds)
{
    const struct scan *scan = l->scan;
    for (uint32_t i = 0; i < scan->n_names; i++) {
        if (!l->is_read[i] || !is_in_path(scan, scan->names[i])) {
            continue;
        }
        bool is_there = kinds->n > KINDS_MAX;
        for (uint32_t k = 0; k < kinds->n && !is_there; k++) {
            is_there = type_in(kinds->list[k], scan->names[i]) != NULL;
        }
        if (is_there) {
            return scan->names[i];
        }
    }
    return NULL;
}

/* Columns that were asked for, and are in no file. */
static bool is_of_duckdb(const struct scan *scan, const char *name)
{
    return (scan->filename_column != NULL && strcasecmp(name, scan->filename_column) == 0) ||
           (scan->has_file_row_number && strcasecmp(name, "file_row_number") == 0);
}

/* Types as DuckDB writes them, which for what is nested is not how we do. */
struct type_texts {
    struct arena *arena;
    const char **types;
    uint32_t n;
    uint32_t *columns;
};

static enum err keep_texts(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct type_texts *texts = context;
    UNUSED(e);
    for (uint32_t i = 0; i < n && i < texts->n; i++) {
        texts->types[texts->columns[i]] = arena_strdup(texts->arena, values[i]);
    }
    return ERR_OK;
}

/* What the plan has for each column that is read. */
static const char *const *types_of_plan(struct type_loader *l)
{
    const struct scan *scan = l->scan;
    struct type_texts nested = {.arena = l->arena};
    nested.types = arena_zalloc(l->arena, (scan->n_names + 1) * sizeof *nested.types);
    nested.columns = arena_zalloc(l->arena, (scan->n_names + 1) * sizeof *nested.columns);
    struct buf sql = {0};
    buf_text(&sql, "SELECT ");
    for (uint32_t i = 0; i < scan->n_names; i++) {
        if (!l->is_read[i] || is_of_duckdb(scan, scan->names[i]) || !type_has_sql(scan->types[i]) ||
            is_in_path(scan, scan->names[i])) {
            continue;
        }
        struct buf type = {0};
        type_write(&type, scan->types[i]);
        if (is_nested(scan->types[i])) {
            buf_format(&sql, "%stypeof(CAST(NULL AS %s))", nested.n == 0 ? "" : ", ", type.data);
            nested.columns[nested.n++] = i;
        } else {
            nested.types[i] = arena_strdup(l->arena, type.data);
        }
        buf_deinit(&type);
    }
    if (nested.n > 0) {
        l->err = planner_rows(l->planner, sql.data, keep_texts, &nested, l->e);
    }
    buf_deinit(&sql);
    return nested.types;
}

/* ---- conditions ---- */

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

/* Whether a condition means the same on both. */
static bool is_comparable(const char *a, const char *b)
{
    return strcmp(a, b) == 0 || (is_whole_number(a) && is_whole_number(b)) || (is_text(a) && is_text(b));
}

/* The columns that are read and of another type in some files, so that a condition would mean something else, or may be. */
static const bool *find_recast(const struct type_loader *l, const struct kinds *kinds)
{
    const struct scan *scan = l->scan;
    uint32_t n = kinds->n;
    bool *is_recast = arena_zalloc(l->arena, (scan->n_names + 1) * sizeof *is_recast);
    for (uint32_t i = 0; i < scan->n_names; i++) {
        is_recast[i] = l->is_read[i] && n > KINDS_MAX;
        for (uint32_t k = 0; k < n && n <= KINDS_MAX && l->wanted[i] != NULL; k++) {
            const char *type = type_in(kinds->list[k], scan->names[i]);
            is_recast[i] = is_recast[i] || (type != NULL && !is_comparable(type, l->wanted[i]));
        }
    }
    return is_recast;
}

/* One of these that has a condition; NULL: there is none. */
static const char *find_mixed(const struct type_loader *l)
{
    for (uint32_t i = 0; i < l->scan->n_names; i++) {
        if (l->is_filtered[i] && l->scan->is_recast[i]) {
            return l->scan->names[i];
        }
    }
    return NULL;
}

/* ---- files that are read together ---- */

/* Whether the columns that are read are all there, and of the plan's types. */
static bool has_wanted(const struct type_loader *l, const struct kind *kind)
{
    bool has_all = true;
    for (uint32_t i = 0; i < l->scan->n_names && has_all; i++) {
        const char *type = l->wanted[i] == NULL ? NULL : type_in(kind, l->scan->names[i]);
        has_all = l->wanted[i] == NULL || (type != NULL && strcmp(type, l->wanted[i]) == 0);
    }
    return has_all;
}

/* With union_by_name, what DuckDB makes of all kinds together. */
static bool has_wanted_by_name(struct type_loader *l, const struct kinds *kinds)
{
    struct kind all = {0};
    describe(l, kinds->paths, kinds->n, &(struct kind_loader){&all, l->arena});
    bool has_all = l->err == ERR_OK && has_wanted(l, &all);
    mem_free(all.columns);
    return has_all;
}

static bool find_retyped(struct type_loader *l, const struct kinds *kinds)
{
    if (kinds->n == 0 || has_wanted(l, kinds->list[0])) { /* nothing is known, and nothing shared out; or all is well */
        return false;
    }
    bool may_know = l->scan->has_union_by_name && kinds->n > 1 && kinds->n <= KINDS_MAX;
    return !may_know || !has_wanted_by_name(l, kinds);
}

/* ---- scans ---- */

static bool note_column(struct expression **slot, void *context)
{
    bool *is_filtered = context;
    if ((*slot)->kind == EXPRESSION_REF) {
        is_filtered[(*slot)->as.index] = true;
    }
    return true;
}

static void note_columns(struct type_loader *l)
{
    const struct scan *scan = l->scan;
    bool *is_filtered = arena_zalloc(l->arena, (scan->n_names + 1) * sizeof *is_filtered);
    bool *is_read = arena_zalloc(l->arena, (scan->n_names + 1) * sizeof *is_read);
    for (uint32_t i = 0; i < scan->n_filters; i++) {
        expression_visit(&l->scan->filters[i], note_column, is_filtered);
    }
    memcpy(is_read, is_filtered, scan->n_names * sizeof *is_read);
    for (uint32_t i = 0; i < scan->n_columns; i++) {
        if (scan->columns[i].is_virtual == VIRTUAL_NONE && scan->columns[i].index < scan->n_names) {
            is_read[scan->columns[i].index] = true;
        }
    }
    l->is_filtered = is_filtered;
    l->is_read = is_read;
}

static bool look_at_scan(struct plan_node *node, void *context)
{
    struct type_loader *l = context;
    if (l->err != ERR_OK || node->kind != NODE_SCAN || node->as.scan->source != SCAN_PARQUET ||
        node->as.scan->n_files == 0) {
        return l->err == ERR_OK;
    }
    struct kinds kinds = {0};
    l->scan = node->as.scan;
    note_columns(l);
    l->wanted = types_of_plan(l);
    if (l->err == ERR_OK) {
        find_kinds(l, &kinds);
    }
    if (l->err == ERR_OK) {
        l->scan->is_recast = find_recast(l, &kinds);
        l->scan->mixed_column = find_mixed(l);
        l->scan->has_kinds = kinds.n > 1;
        l->scan->is_retyped = find_retyped(l, &kinds);
        l->scan->hive_column = find_hive(l, &kinds);
    }
    return l->err == ERR_OK;
}

enum err split_types_load(struct planner *planner, struct split_types *types, struct plan_node *root,
                          const struct split_catalog *catalog, struct arena *arena, struct error *e)
{
    struct type_loader l = {.planner = planner, .types = types, .arena = arena, .catalog = catalog, .e = e};
    if (types->n_columns > COLUMNS_KEPT_MAX) {
        clear(types);
    }
    plan_visit(root, look_at_scan, &l);
    return l.err;
}
