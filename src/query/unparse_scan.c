/* unparse_scan.c - scans as SQL: the FROM item, its columns and its filters. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "query/join_filter.h"
#include "query/unparse_internal.h"

/* Options of read_parquet. */

/* The position of the column called as the `n` bytes, whatever the case; n_names if there is none. */
static uint32_t find_name(const struct scan *scan, const char *bytes, size_t n)
{
    uint32_t i = 0;
    while (i < scan->n_names && (strlen(scan->names[i]) != n || strncasecmp(scan->names[i], bytes, n) != 0)) {
        i++;
    }
    return i;
}

/*
 * Hive partitions are folders called name=value. Their types were guessed from all the values, so they are written out,
 * lest a task that sees only some of the files guesses otherwise.
 */
static void write_hive_types(struct buf *sql, const struct scan *scan)
{
    bool is_first = true;
    size_t n = 0;
    const char *key = NULL;
    const char *rest = scan->files[0];
    while ((key = scan_next_folder(&rest, &n)) != NULL) {
        uint32_t column = find_name(scan, key, n);
        if (column == scan->n_names || !type_has_sql(scan->types[column])) {
            continue;
        }
        buf_text(sql, is_first ? ", hive_types = {" : ", ");
        is_first = false;
        sql_write_text(sql, key, n); /* DuckDB wants it in the letters of the folder */
        buf_text(sql, ": ");
        type_write(sql, scan->types[column]);
    }
    buf_text(sql, is_first ? "" : "}");
}

static bool note_filename(struct expression **slot, void *context)
{
    bool *is_used = context;
    *is_used = *is_used || ((*slot)->kind == EXPRESSION_REF && (*slot)->as.index == VIRTUAL_FILENAME);
    return true;
}

/*
 * Whether rows of a share must carry the name of their file. It may be put together out of several files, and DuckDB knows the
 * name only where it reads one.
 */
static bool carries_filename(const struct scan *scan)
{
    bool is_used = false;
    for (uint32_t i = 0; i < scan->n_columns; i++) {
        is_used = is_used || scan->columns[i].is_virtual == VIRTUAL_FILENAME;
    }
    for (uint32_t i = 0; i < scan->n_virtual_filters; i++) {
        expression_visit(&scan->virtual_filters[i], note_filename, &is_used);
    }
    return is_used && scan->split.files != NULL && scan->split.filename == NULL;
}

static void write_files(struct buf *sql, const struct scan *scan)
{
    if (scan->split.files != NULL) {
        buf_text(sql, scan->split.files);
        return;
    }
    for (uint32_t i = 0; i < scan->n_files; i++) {
        buf_text(sql, i == 0 ? "[" : ", ");
        sql_write_text(sql, scan->files[i], strlen(scan->files[i]));
    }
    buf_char(sql, ']');
}

static void write_parquet(struct buf *sql, const struct scan *scan)
{
    buf_text(sql, "read_parquet(");
    write_files(sql, scan);
    buf_text(sql, scan->has_binary_as_string ? ", binary_as_string = true" : "");
    buf_text(sql, scan->has_nan ? ", can_have_nan = true" : "");
    buf_text(sql, scan->has_file_row_number ? ", file_row_number = true" : "");
    buf_text(sql, scan->has_union_by_name ? ", union_by_name = true" : "");
    const char *carried = carries_filename(scan) ? SCAN_SHARE_FILE : NULL;
    const char *filename = scan->filename_column != NULL ? scan->filename_column : carried;
    if (filename != NULL) {
        buf_text(sql, ", filename = ");
        sql_write_text(sql, filename, strlen(filename));
    }
    buf_text(sql, scan->has_hive_partitioning ? ", hive_partitioning = true" : ", hive_partitioning = false");
    if (scan->has_hive_partitioning) {
        write_hive_types(sql, scan);
    }
    if (scan->split.cardinality > 0) {
        buf_format(sql, ", explicit_cardinality = %" PRIu64, scan->split.cardinality);
    }
    buf_char(sql, ')');
}

/*
 * Some files of a scan with union_by_name: together with no rows that have the columns of all files, since a column that is in
 * none of these is NULL, and one that has a narrower type here is cast.
 */
static void write_share_by_name(struct buf *sql, const struct scan *scan)
{
    buf_text(sql, "(SELECT ");
    for (uint32_t i = 0; i < scan->n_names; i++) {
        if (type_has_sql(scan->types[i])) {
            buf_text(sql, "CAST(NULL AS ");
            type_write(sql, scan->types[i]);
            buf_text(sql, ") AS ");
            sql_write_name(sql, scan->names[i]);
            buf_text(sql, ", ");
        }
    }
    buf_text(sql, "CAST(NULL AS BIGINT) AS " SCAN_BY_NAME_ROW
                  " WHERE false UNION ALL BY NAME SELECT *, files.file_row_number AS " SCAN_BY_NAME_ROW " FROM ");
    write_parquet(sql, scan);
    buf_text(sql, " files)");
}

static void write_from(struct buf *sql, const struct scan *scan, const char *alias)
{
    if (scan->split.from != NULL) {
        buf_text(sql, scan->split.from);
    } else if (scan->has_union_by_name && scan->split.files != NULL) {
        write_share_by_name(sql, scan);
    } else if (scan->source == SCAN_PARQUET) {
        write_parquet(sql, scan);
        buf_text(sql, scan->has_kinds && scan->split.files == NULL ? JOIN_FILTER_KINDS : "");
    } else {
        buf_text(sql, scan->from);
    }
    buf_text(sql, scan->has_ordinality ? " WITH ORDINALITY " : " ");
    buf_text(sql, alias);
    /* A function's columns may have been renamed; what is in files has the names that are known. */
    for (uint32_t i = 0; scan->source == SCAN_FUNCTION && i < scan->n_names; i++) {
        buf_text(sql, i == 0 ? "(" : ", ");
        sql_write_name(sql, scan->names[i]);
        buf_text(sql, i + 1 == scan->n_names ? ")" : "");
    }
}

/* Columns. */

static void write_virtual(struct buf *sql, const struct scan *scan, const char *alias, enum scan_virtual column)
{
    static const char *const names[] = {
        [VIRTUAL_FILENAME] = "filename",
        [VIRTUAL_FILE_ROW_NUMBER] = "file_row_number",
        [VIRTUAL_FILE_INDEX] = "file_index",
    };
    if (column == VIRTUAL_EMPTY) {
        buf_text(sql, "CAST(NULL AS BOOLEAN)");
    } else if (column == VIRTUAL_FILENAME && scan->split.filename != NULL) {
        buf_text(sql, scan->split.filename);
    } else if (column == VIRTUAL_FILENAME && carries_filename(scan)) {
        buf_format(sql, "%s.", alias);
        sql_write_name(sql, scan->filename_column != NULL ? scan->filename_column : SCAN_SHARE_FILE);
    } else if (column == VIRTUAL_FILE_INDEX && scan->split.file_index != NULL) {
        buf_text(sql, scan->split.file_index);
    } else {
        buf_format(sql, "%s.%s", alias, names[column]);
    }
}

static bool write_source_column(struct unparser *u, struct buf *sql, const struct columns *columns, uint32_t index)
{
    if (index >= columns->scan->n_names) {
        return unparse__unsupported(u, "a reference to a column that is not in the file");
    }
    buf_format(sql, "%s.", columns->table);
    sql_write_name(sql, columns->scan->names[index]);
    return true;
}

static bool write_virtual_column(struct unparser *u, struct buf *sql, const struct columns *columns, uint32_t index)
{
    UNUSED(u);
    write_virtual(sql, columns->scan, columns->table, (enum scan_virtual)index);
    return true;
}

/*
 * Files may differ in their types, and the plan has those of the first: a task may see another one first, and DuckDB may
 * have left the first one out. So every column is cast.
 */
static bool write_column(struct unparser *u, struct buf *sql, const struct scan *scan, const char *alias,
                         const struct scan_column *column)
{
    if (column->is_virtual != VIRTUAL_NONE) {
        write_virtual(sql, scan, alias, column->is_virtual);
        return true;
    }
    struct columns columns = {.table = alias, .scan = scan};
    bool is_cast = scan->source != SCAN_FUNCTION && type_has_sql(column->type);
    buf_text(sql, is_cast ? "CAST(" : "");
    for (uint32_t i = 0; i < column->n_path; i++) {
        buf_text(sql, "struct_extract(");
    }
    if (!write_source_column(u, sql, &columns, column->index)) {
        return false;
    }
    for (uint32_t i = 0; i < column->n_path; i++) {
        buf_text(sql, ", ");
        sql_write_text(sql, column->path[i], strlen(column->path[i]));
        buf_char(sql, ')');
    }
    if (is_cast) {
        buf_text(sql, " AS ");
        type_write(sql, column->type);
        buf_char(sql, ')');
    }
    return true;
}

/* Filters. */

static bool write_conditions(struct unparser *u, struct buf *sql, struct expression *const *filters, uint32_t n,
                             const struct columns *columns, bool *is_first)
{
    for (uint32_t i = 0; i < n; i++) {
        buf_text(sql, *is_first ? " WHERE " : " AND ");
        *is_first = false;
        if (!unparse__expression(u, sql, filters[i], columns)) {
            return false;
        }
    }
    return true;
}

static bool write_where(struct unparser *u, struct buf *sql, const struct scan *scan, const char *alias)
{
    bool is_first = true;
    struct columns source = {.write = write_source_column, .table = alias, .scan = scan};
    struct columns virtuals = {.write = write_virtual_column, .table = alias, .scan = scan};
    if (!write_conditions(u, sql, scan->filters, scan->n_filters, &source, &is_first) ||
        !write_conditions(u, sql, scan->virtual_filters, scan->n_virtual_filters, &virtuals, &is_first)) {
        return false;
    }
    if (scan->split.where == NULL) {
        return true;
    }
    buf_text(sql, is_first ? " WHERE " : " AND ");
    for (const char *p = scan->split.where; *p != '\0'; p++) {
        if (*p == '@') {
            buf_text(sql, alias);
        } else {
            buf_char(sql, *p);
        }
    }
    return true;
}

bool unparse__scan(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    const struct scan *scan = node->as.scan;
    char alias[16];
    unparse__alias(u, 't', alias);
    for (uint32_t i = 0; i < scan->n_columns; i++) {
        unparse__separate(sql, i);
        if (!write_column(u, sql, scan, alias, &scan->columns[i])) {
            return false;
        }
        unparse__as(u, sql, node, i);
    }
    buf_text(sql, " FROM ");
    write_from(sql, scan, alias);
    return write_where(u, sql, scan, alias);
}

/* The operator has run in a stage of its own: its rows are a table that is called as the input. */
bool unparse__custom(struct unparser *u, struct buf *sql, struct plan_node *node)
{
    struct plan_node *child = node->children[0];
    if (child->kind != NODE_INPUT) {
        return unparse__unsupported(u, "the operator %s where no stage can end", node->as.custom.custom->op);
    }
    struct buf name = {0};
    struct scan scan = *node->as.custom.scan;
    struct plan_node read = *node;
    sql_write_name(&name, child->as.input.name);
    scan.split.from = name.data;
    read.kind = NODE_SCAN;
    read.as.scan = &scan;
    bool is_named = u->named == node;
    u->named = is_named ? &read : u->named;
    bool is_written = unparse__scan(u, sql, &read);
    u->named = is_named ? node : u->named;
    buf_deinit(&name);
    return is_written;
}
