/*
 * plan_read_scan.c - scans and table functions out of a plan's JSON.
 *
 * DuckDB has one node for all of them, LOGICAL_GET. It has become a scan of Parquet files, a stand-in for CSV and JSON
 * files, a table function with constant arguments, or, if it has a child, a table function called for each of its rows.
 */
#include <string.h>

#include "base/buf.h"
#include "query/plan_read_internal.h"

/* Columns that are no columns of the file, as DuckDB counts them. */
static const struct {
    uint64_t index;
    enum scan_virtual is_virtual;
    enum type_id type;
} virtual_columns[] = {
    {UINT64_C(1) << 63, VIRTUAL_FILENAME, TYPE_VARCHAR},
    {(UINT64_C(1) << 63) + 1, VIRTUAL_FILE_ROW_NUMBER, TYPE_BIGINT},
    {(UINT64_C(1) << 63) + 2, VIRTUAL_FILE_INDEX, TYPE_UBIGINT},
    {UINT64_MAX - 1, VIRTUAL_EMPTY, TYPE_BOOLEAN},
};

#define NO_ORDINALITY UINT64_MAX

/*
 * The types of all columns of a source. What is not known does not matter in a column that nobody reads: there it is
 * TYPE_OTHER, and an error only in find_column.
 */
static bool read_types(struct plan_reader *r, struct scan *scan)
{
    size_t n = json_count(r->source_types);
    if (n > LIMIT_PLAN_ITEMS) {
        (void)plan__malformed(r, "a list of types");
        return false;
    }
    scan->types = arena_zalloc(r->arena, n * sizeof(*scan->types));
    scan->n_names = (uint32_t)n;
    struct error *e = r->e;
    for (size_t i = 0; i < n && r->err == ERR_OK; i++) {
        struct error why = {0};
        r->e = &why;
        scan->types[i] = plan__type(r, json_at(r->source_types, i));
        r->e = e;
        if (r->err == ERR_PRECONDITION && r->n_items < LIMIT_PLAN_ITEMS) {
            scan->types[i] = type_plain(TYPE_OTHER);
            r->err = ERR_OK;
        } else if (r->err != ERR_OK) {
            (void)error_set(e, r->err, "%s", why.message);
        }
    }
    return r->err == ERR_OK;
}

static bool find_column(struct plan_reader *r, const struct scan *scan, uint64_t index, struct scan_column *out)
{
    if (index < scan->n_names && scan->types[index]->id == TYPE_OTHER) {
        (void)plan__type(r, json_at(r->source_types, index)); /* which says why */
        return false;
    }
    if (index < scan->n_names) {
        *out = (struct scan_column){.index = (uint32_t)index, .type = scan->types[index]};
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(virtual_columns); i++) {
        if (virtual_columns[i].index == index) {
            *out = (struct scan_column){.is_virtual = virtual_columns[i].is_virtual,
                                        .type = type_plain(virtual_columns[i].type)};
            return true;
        }
    }
    (void)plan__unsupported(r, index == UINT64_MAX ? "the column rowid" : "a column of the file that is not known");
    return false;
}

/* The field that a column index picks out of a STRUCT, by its name or by its position. */
static const char *field_name(struct plan_reader *r, const struct json *json, const struct type *type)
{
    const char *field = json_text(json_get(json, "field"), NULL);
    if (field != NULL && field[0] != '\0') {
        return arena_strdup(r->arena, field);
    }
    uint64_t index = plan__u64(r, json, "index");
    if (r->err != ERR_OK || type->id != TYPE_STRUCT || index >= type->n_fields) {
        return plan__unsupported(r, "a field of a column that is not known");
    }
    return type->fields[index].name;
}

static const struct type *field_type(const struct type *type, const char *name)
{
    for (uint32_t i = 0; type->id == TYPE_STRUCT && i < type->n_fields; i++) {
        if (strcmp(type->fields[i].name, name) == 0) {
            return type->fields[i].type;
        }
    }
    return NULL;
}

/* A column of which only a field is read: the chain of child indexes says which. */
static bool read_path(struct plan_reader *r, const struct json *json, struct scan_column *column)
{
    column->path = arena_alloc(r->arena, LIMIT_PLAN_DEPTH * sizeof(char *));
    for (;;) {
        const struct json *children = json_get(json, "child_indexes");
        if (json_count(children) == 0) {
            return true;
        }
        json = json_at(children, 0);
        const char *name = field_name(r, json, column->type);
        const struct type *type = name != NULL ? field_type(column->type, name) : NULL;
        if (type == NULL || json_count(children) != 1 || column->n_path == LIMIT_PLAN_DEPTH) {
            (void)plan__unsupported(r, "a field of a column that is not known");
            return false;
        }
        column->path[column->n_path++] = name;
        column->type = type;
    }
}

static bool read_column(struct plan_reader *r, const struct scan *scan, const struct json *json,
                        struct scan_column *out)
{
    uint64_t index = plan__u64(r, json, "index");
    const char *kind = json_text(json_get(json, "index_type"), NULL);
    if (r->err != ERR_OK || !find_column(r, scan, index, out)) {
        return false;
    }
    if (kind != NULL && strcmp(kind, "PUSHDOWN_EXTRACT") == 0) {
        return read_path(r, json, out);
    }
    if (kind != NULL && strcmp(kind, "FULL_READ") != 0 && strstr(kind, "PRUNE_HINT") == NULL) {
        (void)plan__unsupported(r, "the column index %s", kind);
        return false;
    }
    return true;
}

/* Which of `column_indexes` are output: those in `projection_ids`, or all if there are none. */
static bool read_columns(struct plan_reader *r, const struct json *json, struct scan *scan, struct relation *self)
{
    const struct json *indexes = json_get(json, "column_indexes");
    uint32_t n = 0;
    uint32_t *ids = plan__map(r, json_get(json, "projection_ids"), (uint32_t)json_count(indexes), &n);
    uint64_t table = plan__u64(r, json, "table_index");
    if (r->err != ERR_OK) {
        return false;
    }
    struct scan_column *columns = arena_zalloc(r->arena, (n == 0 ? 1 : n) * sizeof(*columns));
    for (uint32_t i = 0; i < n; i++) {
        if (!read_column(r, scan, json_at(indexes, ids[i]), &columns[i])) {
            return false;
        }
    }
    if (n == 0) { /* only the number of rows is wanted, and a relation has at least one column */
        columns[0] = (struct scan_column){.is_virtual = VIRTUAL_EMPTY, .type = type_plain(TYPE_BOOLEAN)};
    }
    scan->columns = columns;
    scan->n_columns = n == 0 ? 1 : n;
    plan__set_columns(r, self, scan->n_columns);
    for (uint32_t i = 0; i < scan->n_columns; i++) {
        self->node->columns[i] = columns[i].type;
        self->bindings[i] = (struct binding){.table = table, .column = n == 0 ? 0 : ids[i]};
    }
    return true;
}

/* Filters that DuckDB has put into the scan. */

/* A column as a filter sees it: a reference, or a field of one. */
struct filtered {
    struct expression *column;
    uint32_t ref; /* what BOUND_REF 0 becomes */
};

/* What is read where there is nothing to check. Nobody looks into it. */
static struct expression hint;

static struct expression *read_filter(struct plan_reader *r, const struct json *json, const struct filtered *filtered);

static struct expression *filter_comparison(struct plan_reader *r, const struct json *json,
                                            const struct filtered *filtered)
{
    struct expression *expression = plan__new_expression(r, EXPRESSION_COMPARISON, type_plain(TYPE_BOOLEAN), 2);
    expression->args[0] = filtered->column;
    expression->args[1] = plan__constant_expression(r, plan__constant(r, json_get(json, "constant")));
    if (r->err != ERR_OK ||
        !plan__comparison(r, json_text(json_get(json, "comparison_type"), NULL), &expression->as.comparison)) {
        return NULL;
    }
    return expression;
}

static struct expression *filter_null(struct plan_reader *r, const struct json *json, const struct filtered *filtered)
{
    const char *type = plan__text(r, json, "filter_type");
    struct expression *expression = plan__new_expression(r, EXPRESSION_OPERATOR, type_plain(TYPE_BOOLEAN), 1);
    expression->args[0] = filtered->column;
    expression->as.operator= strcmp(type, "IS_NULL") == 0 ? OPERATOR_IS_NULL : OPERATOR_IS_NOT_NULL;
    return expression;
}

static struct expression *filter_in(struct plan_reader *r, const struct json *json, const struct filtered *filtered)
{
    const struct json *values = json_get(json, "values");
    uint32_t n = (uint32_t)json_count(values);
    if (n == 0) {
        return plan__malformed(r, "a filter without values");
    }
    struct expression *expression = plan__new_expression(r, EXPRESSION_OPERATOR, type_plain(TYPE_BOOLEAN), n + 1);
    expression->as.operator= OPERATOR_IN;
    expression->args[0] = filtered->column;
    for (uint32_t i = 0; i < n; i++) {
        expression->args[i + 1] = plan__constant_expression(r, plan__constant(r, json_at(values, i)));
    }
    return r->err == ERR_OK ? expression : NULL;
}

/* Hints among the filters of an AND are left out; an OR with a hint in it is one itself. */
static struct expression *filter_conjunction(struct plan_reader *r, const struct json *json,
                                             const struct filtered *filtered)
{
    const struct json *children = json_get(json, "child_filters");
    bool is_or = strcmp(plan__text(r, json, "filter_type"), "CONJUNCTION_OR") == 0;
    uint32_t n = (uint32_t)json_count(children);
    struct expression *expression =
        plan__new_expression(r, is_or ? EXPRESSION_OR : EXPRESSION_AND, type_plain(TYPE_BOOLEAN), n);
    expression->n_args = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct expression *child = read_filter(r, json_at(children, i), filtered);
        if (child == NULL || (child == &hint && is_or)) {
            return child;
        }
        if (child != &hint) {
            expression->args[expression->n_args++] = child;
        }
    }
    return expression->n_args == 0 ? &hint : expression;
}

static struct expression *filter_field(struct plan_reader *r, const struct json *json, const struct filtered *filtered)
{
    const char *name = plan__text(r, json, "child_name");
    const struct type *type = name != NULL ? field_type(filtered->column->type, name) : NULL;
    if (type == NULL) {
        return plan__unsupported(r, "a filter on a field that is not known");
    }
    struct expression *field = plan__new_expression(r, EXPRESSION_FUNCTION, type, 2);
    field->as.function.name = "struct_extract";
    field->args[0] = filtered->column;
    field->args[1] = plan__constant_expression(r, plan__text_constant(r, name, strlen(name)));
    struct filtered inner = {.column = field, .ref = filtered->ref};
    return read_filter(r, json_get(json, "child_filter"), &inner);
}

static struct expression *filter_expression(struct plan_reader *r, const struct json *json,
                                            const struct filtered *filtered)
{
    if (filtered->column->kind != EXPRESSION_REF) {
        return plan__unsupported(r, "a filter expression on a field");
    }
    struct input input = {.n = 1, .map = &filtered->ref};
    return plan__expression(r, json_get(json, "expr"), &input);
}

/* It only helps to skip data early; the real condition is elsewhere in the plan. */
static struct expression *filter_hint(struct plan_reader *r, const struct json *json, const struct filtered *filtered)
{
    UNUSED(r);
    UNUSED(json);
    UNUSED(filtered);
    return &hint;
}

static const struct {
    const char *name;
    struct expression *(*read)(struct plan_reader *r, const struct json *json, const struct filtered *filtered);
} filter_types[] = {
    {"CONSTANT_COMPARISON", filter_comparison},
    {"IS_NULL", filter_null},
    {"IS_NOT_NULL", filter_null},
    {"CONJUNCTION_AND", filter_conjunction},
    {"CONJUNCTION_OR", filter_conjunction},
    {"IN_FILTER", filter_in},
    {"STRUCT_EXTRACT", filter_field},
    {"EXPRESSION_FILTER", filter_expression},
    {"OPTIONAL_FILTER", filter_hint},
    {"DYNAMIC_FILTER", filter_hint},
    {"BLOOM_FILTER", filter_hint},
};

/* NULL after an error, &hint if there is nothing to check. */
static struct expression *read_filter(struct plan_reader *r, const struct json *json, const struct filtered *filtered)
{
    const char *name = plan__text(r, json, "filter_type");
    if (name == NULL || !plan__enter(r)) {
        return NULL;
    }
    struct expression *expression = NULL;
    bool is_known = false;
    for (size_t i = 0; !is_known && i < ARRAY_LEN(filter_types); i++) {
        if (strcmp(filter_types[i].name, name) == 0) {
            is_known = true;
            expression = filter_types[i].read(r, json, filtered);
        }
    }
    if (!is_known) {
        (void)plan__unsupported(r, "the table filter %s", name);
    }
    plan__leave(r);
    return expression;
}

static bool read_filters(struct plan_reader *r, const struct json *json, struct scan *scan)
{
    const struct json *filters = json_get(json_get(json, "table_filters"), "filters");
    size_t n = json_count(filters);
    scan->filters = arena_zalloc(r->arena, n * sizeof(struct expression *));
    scan->virtual_filters = arena_zalloc(r->arena, n * sizeof(struct expression *));
    for (size_t i = 0; i < n; i++) {
        struct scan_column column;
        uint64_t key = plan__u64(r, json_at(filters, i), "key");
        if (r->err != ERR_OK || !find_column(r, scan, key, &column)) {
            return false;
        }
        struct filtered filtered = {.ref = column.is_virtual != VIRTUAL_NONE ? column.is_virtual : column.index};
        filtered.column = expression_ref(r->arena, filtered.ref, column.type);
        struct expression *filter = read_filter(r, json_get(json_at(filters, i), "value"), &filtered);
        if (filter == NULL) {
            return false;
        }
        if (filter != &hint && column.is_virtual != VIRTUAL_NONE) {
            scan->virtual_filters[scan->n_virtual_filters++] = filter;
        } else if (filter != &hint) {
            scan->filters[scan->n_filters++] = filter;
        }
    }
    return true;
}

/* Sources. */

static bool read_files(struct plan_reader *r, const struct json *array, struct scan *scan)
{
    size_t n = json_count(array);
    if (n == 0) {
        (void)plan__unsupported(r, "a scan without files");
        return false;
    }
    scan->files = arena_zalloc(r->arena, n * sizeof(char *));
    scan->n_files = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const char *file = json_text(json_at(array, i), NULL);
        if (file == NULL) {
            (void)plan__malformed(r, "the name of a file");
            return false;
        }
        scan->files[i] = arena_strdup(r->arena, file);
    }
    return true;
}

static bool read_parquet(struct plan_reader *r, const struct json *json, struct scan *scan)
{
    const struct json *data = json_get(json, "function_data");
    const struct json *options = json_get(data, "parquet_options");
    const struct json *file_options = json_get(options, "file_options");
    if (!read_files(r, json_get(data, "files"), scan)) {
        return false;
    }
    if (json_count(json_get(options, "schema")) > 0) {
        (void)plan__unsupported(r, "the option schema of read_parquet");
        return false;
    }
    if (json_get(options, "encryption_config") != NULL) {
        (void)plan__unsupported(r, "encrypted Parquet files");
        return false;
    }
    scan->source = SCAN_PARQUET;
    scan->has_binary_as_string = json_bool(json_get(options, "binary_as_string"));
    scan->has_nan = json_bool(json_get(options, "can_have_nan"));
    scan->has_file_row_number = json_bool(json_get(options, "file_row_number"));
    scan->has_hive_partitioning = json_bool(json_get(file_options, "hive_partitioning"));
    scan->has_union_by_name = json_bool(json_get(file_options, "union_by_name"));
    if (json_bool(json_get(file_options, "filename"))) {
        scan->filename_column = plan__text(r, file_options, "filename_column");
    }
    return r->err == ERR_OK;
}

static bool read_stand_in(struct plan_reader *r, const struct json *json, struct scan *scan)
{
    scan->source = SCAN_STAND_IN;
    scan->from = plan__text(r, json_at(json_get(json, "parameters"), 0), "value");
    return r->err == ERR_OK;
}

/* name(constant, …, name := constant, …) */
static bool read_call(struct plan_reader *r, const struct json *json, struct scan *scan)
{
    if (json_get(json, "function_data") != NULL || !json_has(json, "parameters")) {
        (void)plan__unsupported(r, "the table function %s", scan->function);
        return false;
    }
    struct buf sql = {0};
    const struct json *parameters = json_get(json, "parameters");
    const struct json *named = json_get(json, "named_parameters");
    size_t n = json_count(parameters);
    size_t n_all = n + json_count(named);
    sql_write_name(&sql, scan->function);
    buf_char(&sql, '(');
    for (size_t i = 0; i < n_all && r->err == ERR_OK; i++) {
        const struct json *value = i < n ? json_at(parameters, i) : json_get(json_at(named, i - n), "value");
        buf_text(&sql, i == 0 ? "" : ", ");
        if (i >= n) {
            const char *key = plan__text(r, json_at(named, i - n), "key");
            sql_write_name(&sql, key != NULL ? key : "");
            buf_text(&sql, " := ");
        }
        const struct constant *constant = plan__constant(r, value);
        if (constant != NULL && !constant_write(&sql, constant)) {
            (void)plan__unsupported(r, "an argument of the table function %s", scan->function);
        }
    }
    buf_char(&sql, ')');
    scan->source = SCAN_FUNCTION;
    scan->from = arena_strdup(r->arena, sql.data);
    buf_deinit(&sql);
    return r->err == ERR_OK;
}

static const struct {
    const char *function;
    bool (*read)(struct plan_reader *r, const struct json *json, struct scan *scan);
} sources[] = {
    {"parquet_scan", read_parquet},
    {"read_parquet", read_parquet},
    {"capstan_source", read_stand_in},
};

static const char **read_names(struct plan_reader *r, const struct json *array, uint32_t n)
{
    if (json_count(array) != n) {
        return plan__malformed(r, "the names of a scan's columns");
    }
    const char **names = arena_zalloc(r->arena, n * sizeof(char *));
    for (uint32_t i = 0; i < n; i++) {
        const char *name = json_text(json_at(array, i), NULL);
        if (name == NULL) {
            return plan__malformed(r, "the name of a column");
        }
        names[i] = arena_strdup(r->arena, name);
    }
    return names;
}

static bool read_scan(struct plan_reader *r, const struct json *json, struct scan *scan, struct relation *self)
{
    if (json_get(json_get(json, "extra_info"), "sample_options") != NULL) {
        (void)plan__unsupported(r, "a sample inside a scan");
        return false;
    }
    bool (*read)(struct plan_reader *, const struct json *, struct scan *) = read_call;
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        if (strcmp(sources[i].function, scan->function) == 0) {
            read = sources[i].read;
        }
    }
    if (strcmp(scan->function, "seq_scan") == 0) {
        (void)plan__unsupported(r, "a table of a local database");
        return false;
    }
    return read(r, json, scan) && read_columns(r, json, scan, self) && read_filters(r, json, scan);
}

/* A table function with a child: the first columns of the child are its arguments. */
static bool read_table_call(struct plan_reader *r, const struct json *json, const struct relation *child,
                            const struct scan *scan, struct relation *self)
{
    struct table_call *call = arena_zalloc(r->arena, sizeof(*call));
    uint64_t table = plan__u64(r, json, "table_index");
    const struct json *indexes = json_get(json, "column_indexes");
    uint32_t n = 0;
    uint32_t *ids = plan__map(r, json_get(json, "projection_ids"), (uint32_t)json_count(indexes), &n);
    call->function = scan->function;
    call->has_ordinality = scan->has_ordinality;
    call->n_names = scan->n_names;
    call->names = scan->names;
    call->n_arguments = (uint32_t)json_count(json_get(json, "input_table_types"));
    call->passed = plan__positions(r, json_get(json, "projected_input"), child->node->n_columns, &call->n_passed);
    if (r->err != ERR_OK || call->n_arguments > child->node->n_columns ||
        json_count(json_get(json_get(json, "table_filters"), "filters")) > 0) {
        (void)plan__unsupported(r, "the table function %s over rows", scan->function);
        return false;
    }
    uint32_t *columns = arena_zalloc(r->arena, n * sizeof(*columns));
    self->node->kind = NODE_CALL;
    self->node->as.call = call;
    call->n_columns = n;
    call->columns = columns;
    plan__set_columns(r, self, n + call->n_passed);
    for (uint32_t i = 0; i < n; i++) {
        struct scan_column column;
        if (!read_column(r, scan, json_at(indexes, ids[i]), &column)) {
            return false;
        }
        if (column.is_virtual != VIRTUAL_NONE || column.n_path > 0) {
            (void)plan__unsupported(r, "a column of the table function %s", scan->function);
            return false;
        }
        columns[i] = column.index;
        self->node->columns[i] = column.type;
        self->bindings[i] = (struct binding){.table = table, .column = ids[i]};
    }
    for (uint32_t i = 0; i < call->n_passed; i++) {
        self->node->columns[n + i] = child->node->columns[call->passed[i]];
        self->bindings[n + i] = child->bindings[call->passed[i]];
    }
    return true;
}

bool plan__scan(struct plan_reader *r, const struct json *json, const struct relation *children, struct relation *self)
{
    struct scan *scan = arena_zalloc(r->arena, sizeof(*scan));
    scan->function = plan__text(r, json, "name");
    scan->table_index = plan__u32(r, json, "table_index");
    r->source_types = json_get(json, "returned_types");
    if (r->err != ERR_OK || !read_types(r, scan)) {
        return false;
    }
    scan->names = read_names(r, json_get(json, "names"), scan->n_names);
    uint64_t ordinality = NO_ORDINALITY;
    if (json_get(json, "ordinality_idx") != NULL) {
        ordinality = plan__u64(r, json, "ordinality_idx");
    }
    scan->has_ordinality = ordinality != NO_ORDINALITY;
    if (r->err != ERR_OK) {
        return false;
    }
    if (self->node->n_children == 1) {
        return read_table_call(r, json, &children[0], scan, self);
    }
    self->node->kind = NODE_SCAN;
    self->node->as.scan = scan;
    return read_scan(r, json, scan, self);
}
