/* plan_sql.c - a parsed statement, written again with changes. */
#include "query/plan_sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "query/plan_read.h"

struct rewriter {
    const struct plan_sql_changes *changes;
    struct plan_sql_outcome outcome;
    struct error *e;
    enum err err;
};

static void write_value(struct rewriter *w, struct buf *out, const struct json *node);

static bool text_is(const struct json *object, const char *key, const char *expected)
{
    const char *text = json_text(json_get(object, key), NULL);
    return text != NULL && strcmp(text, expected) == 0;
}

static bool text_is_empty(const struct json *object, const char *key)
{
    const char *text = json_text(json_get(object, key), NULL);
    return text == NULL || text[0] == '\0';
}

static bool text_is_any_case(const struct json *object, const char *key, const char *expected)
{
    const char *text = json_text(json_get(object, key), NULL);
    return text != NULL && strcasecmp(text, expected) == 0;
}

static bool is_memory(const struct json *table, const char *key)
{
    return text_is_any_case(table, key, "memory") || text_is_any_case(table, key, "temp");
}

/* Whether the table is named with a schema that is nowhere on disk: main, memory, memory.main, or temp for memory. */
static bool is_in_main(const struct json *table)
{
    if (!text_is(table, "type", "BASE_TABLE")) {
        return false;
    }
    if (text_is_empty(table, "catalog_name") && is_memory(table, "schema_name")) {
        return true;
    }
    return text_is_any_case(table, "schema_name", "main") &&
           (text_is_empty(table, "catalog_name") || is_memory(table, "catalog_name"));
}

/* Files. */

bool plan_sql_format(const char *path, enum source_format *out)
{
    static const struct {
        const char *ending;
        enum source_format format;
    } endings[] = {
        {".parquet", SOURCE_PARQUET}, {".csv", SOURCE_CSV},    {".tsv", SOURCE_CSV},
        {".json", SOURCE_JSON},       {".jsonl", SOURCE_JSON}, {".ndjson", SOURCE_JSON},
    };
    static const char *const compressions[] = {".gz", ".zst"};
    size_t n = strlen(path);
    for (size_t i = 0; i < ARRAY_LEN(compressions); i++) {
        size_t k = strlen(compressions[i]);
        if (n > k && strcasecmp(path + n - k, compressions[i]) == 0) {
            n -= k;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        size_t k = strlen(endings[i].ending);
        if (n >= k && strncasecmp(path + n - k, endings[i].ending, k) == 0) {
            *out = endings[i].format;
            return true;
        }
    }
    return false;
}

/* Functions that read files which DuckDB cannot write into a plan. */
static bool is_file_function(const struct json *function)
{
    static const char *const names[] = {
        "read_csv",
        "read_csv_auto",
        "read_json",
        "read_json_auto",
        "read_ndjson",
        "read_ndjson_auto",
        "read_json_objects",
        "read_json_objects_auto",
        "read_ndjson_objects",
    };
    const char *name = json_text(json_get(function, "function_name"), NULL);
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(names); i++) {
        if (strcasecmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* A table that is called as such a file. */
static bool is_file_table(const struct json *table)
{
    enum source_format format = SOURCE_PARQUET;
    const char *name = json_text(json_get(table, "table_name"), NULL);
    return name != NULL && text_is_empty(table, "schema_name") && text_is_empty(table, "catalog_name") &&
           plan_sql_format(name, &format) && format != SOURCE_PARQUET;
}

/* The name by which a query may call a file's columns: that of the function, or of the file without folder and ending. */
static void write_file_alias(struct buf *out, const struct json *table)
{
    const char *name = json_text(json_get(table, "alias"), NULL);
    if (name != NULL && name[0] != '\0') {
        json_write_text(out, name);
        return;
    }
    name = json_text(json_get(json_get(table, "function"), "function_name"), NULL);
    if (name != NULL) {
        json_write_text(out, name);
        return;
    }
    name = json_text(json_get(table, "table_name"), NULL);
    const char *slash = strrchr(name, '/');
    const char *base = slash != NULL ? slash + 1 : name;
    json_write_bytes(out, base, strcspn(base, "."));
}

/* SELECT * FROM the table, without what the query itself has put on it. */
static void write_select(struct rewriter *w, struct buf *out, const struct json *table)
{
    buf_text(out, "{\"error\":false,\"statements\":[{\"node\":{\"type\":\"SELECT_NODE\",\"modifiers\":[],"
                  "\"cte_map\":{\"map\":[]},\"select_list\":[{\"class\":\"STAR\",\"type\":\"STAR\",\"alias\":\"\","
                  "\"query_location\":0,\"relation_name\":\"\",\"exclude_list\":[],\"replace_list\":[],"
                  "\"columns\":false,\"expr\":null,\"qualified_exclude_list\":[],\"rename_list\":[]}],"
                  "\"from_table\":{");
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    bool is_first = true;
    while (json_next(table, &cursor, &key, &value)) {
        buf_text(out, is_first ? "" : ",");
        is_first = false;
        json_write_text(out, key);
        buf_char(out, ':');
        if (strcmp(key, "alias") == 0) {
            buf_text(out, "\"\"");
        } else if (strcmp(key, "column_name_alias") == 0) {
            buf_text(out, "[]");
        } else if (strcmp(key, "sample") == 0) {
            buf_text(out, "null");
        } else {
            write_value(w, out, value);
        }
    }
    buf_text(out, "},\"where_clause\":null,\"group_expressions\":[],\"group_sets\":[],"
                  "\"aggregate_handling\":\"STANDARD_HANDLING\",\"having\":null,\"sample\":null,\"qualify\":null},"
                  "\"named_param_map\":[]}]}");
}

/* A call of the stand-in, with all that the query has put on the table. */
static void write_stand_in(struct rewriter *w, struct buf *out, const struct json *table, const struct buf *argument)
{
    const char *ordinality = json_text(json_get(table, "with_ordinality"), NULL);
    buf_text(out, "{\"type\":\"TABLE_FUNCTION\",\"alias\":");
    write_file_alias(out, table);
    buf_text(out, ",\"sample\":");
    write_value(w, out, json_get(table, "sample"));
    buf_text(out, ",\"query_location\":0,\"function\":{\"class\":\"FUNCTION\",\"type\":\"FUNCTION\",\"alias\":\"\","
                  "\"query_location\":0,\"function_name\":\"" PLAN_STAND_IN "\",\"schema\":\"\",\"children\":["
                  "{\"class\":\"CONSTANT\",\"type\":\"VALUE_CONSTANT\",\"alias\":\"\",\"query_location\":0,"
                  "\"value\":{\"type\":{\"id\":\"VARCHAR\",\"type_info\":null},\"is_null\":false,\"value\":");
    json_write_bytes(out, argument->data, argument->n);
    buf_text(out, "}}],\"filter\":null,\"order_bys\":{\"type\":\"ORDER_MODIFIER\",\"orders\":[]},\"distinct\":false,"
                  "\"is_operator\":false,\"export_state\":false,\"catalog\":\"\"},\"column_name_alias\":");
    write_value(w, out, json_get(table, "column_name_alias"));
    buf_text(out, ",\"with_ordinality\":");
    json_write_text(out, ordinality != NULL ? ordinality : "WITHOUT_ORDINALITY");
    buf_char(out, '}');
}

/* True if the table was replaced. */
static bool replace_file(struct rewriter *w, struct buf *out, const struct json *table)
{
    bool is_file = (text_is(table, "type", "TABLE_FUNCTION") && is_file_function(json_get(table, "function"))) ||
                   (text_is(table, "type", "BASE_TABLE") && is_file_table(table));
    if (!is_file || w->changes->stand_in == NULL) {
        return false;
    }
    struct buf select = {0};
    struct buf argument = {0};
    write_select(w, &select, table);
    bool is_replaced = w->err == ERR_OK && w->changes->stand_in(w->changes->context, select.data, &argument);
    if (is_replaced) {
        write_stand_in(w, out, table, &argument);
        w->outcome.has_stand_ins = true;
    }
    buf_deinit(&select);
    buf_deinit(&argument);
    return is_replaced;
}

/* The name by which a query may call the operator's columns, and the table that these are in here. */
static void write_custom_table(struct rewriter *w, struct buf *out, const struct json *table, const char *name)
{
    buf_text(out, "{\"type\":\"BASE_TABLE\",\"alias\":");
    write_file_alias(out, table);
    buf_text(out, ",\"sample\":");
    write_value(w, out, json_get(table, "sample"));
    buf_text(out, ",\"query_location\":0,\"schema_name\":\"\",\"table_name\":");
    json_write_text(out, name);
    buf_text(out, ",\"column_name_alias\":");
    write_value(w, out, json_get(table, "column_name_alias"));
    buf_text(out, ",\"catalog_name\":\"\",\"at_clause\":null}");
}

/* True if the call was replaced. */
static bool replace_custom(struct rewriter *w, struct buf *out, const struct json *table)
{
    if (w->changes->customs == CUSTOM_STAYS || !plan_sql_is_custom(table)) {
        return false;
    }
    struct buf name = {0};
    buf_format(&name, PLAN_CUSTOM_NAME "%" PRIu32, w->outcome.n_customs++);
    if (w->changes->customs == CUSTOM_IS_TABLE) {
        write_custom_table(w, out, table, name.data);
    } else {
        write_stand_in(w, out, table, &name);
        w->outcome.has_stand_ins = true;
    }
    buf_deinit(&name);
    return true;
}

/* Parameters. */

/* The position of a parameter in an array, from 1 on; 0, or more than there are: none. */
static size_t position_of(const char *identifier, size_t n)
{
    size_t position = 0;
    for (const char *p = identifier; *p >= '0' && *p <= '9' && position <= n; p++) {
        position = position * 10 + (size_t)(*p - '0');
    }
    return position;
}

static const struct json *find_param(const struct rewriter *w, const char *identifier, bool *out_is_found)
{
    const struct json *params = w->changes->params;
    if (json_kind_of(params) == JSON_OBJECT) {
        *out_is_found = json_has(params, identifier);
        return json_get(params, identifier);
    }
    size_t position = position_of(identifier, json_count(params));
    *out_is_found = position >= 1 && position <= json_count(params);
    return *out_is_found ? json_at(params, position - 1) : NULL;
}

/* Calls `param` with each parameter that the statement has. */
typedef void param_fn(void *context, const char *identifier);
static void each_param(const struct json *node, param_fn *param, void *context)
{
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    const char *identifier = json_text(json_get(node, "identifier"), NULL);
    if (identifier != NULL && text_is(node, "class", "PARAMETER")) {
        param(context, identifier);
    }
    while (json_next(node, &cursor, &key, &value)) {
        each_param(value, param, context);
    }
    for (size_t i = 0; json_kind_of(node) == JSON_ARRAY && i < json_count(node); i++) {
        each_param(json_at(node, i), param, context);
    }
}

struct param_name {
    const char *name;
    size_t at;
};

struct asked_for {
    size_t n;
    struct param_name *names; /* sorted; NULL: they have none */
    bool *is_asked_for;       /* by their order */
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct param_name *)a)->name, ((const struct param_name *)b)->name);
}

static void note_param(void *context, const char *identifier)
{
    struct asked_for *asked_for = context;
    struct param_name wanted = {.name = identifier};
    if (asked_for->names != NULL) {
        const struct param_name *found = bsearch(&wanted, asked_for->names, asked_for->n, sizeof wanted, compare_names);
        if (found != NULL) {
            asked_for->is_asked_for[found->at] = true;
        }
        return;
    }
    size_t position = position_of(identifier, asked_for->n);
    if (position >= 1 && position <= asked_for->n) {
        asked_for->is_asked_for[position - 1] = true;
    }
}

/* The names of an object's members; NULL if there are none. */
static struct param_name *sorted_names(const struct json *params)
{
    size_t n = json_count(params);
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    if (json_kind_of(params) != JSON_OBJECT || n == 0) {
        return NULL;
    }
    struct param_name *names = mem_calloc(n, sizeof *names);
    for (size_t i = 0; i < n && json_next(params, &cursor, &key, &value); i++) {
        names[i] = (struct param_name){.name = key, .at = i};
    }
    qsort(names, n, sizeof *names, compare_names);
    return names;
}

enum err plan_sql_check_params(const struct json *statement, const struct json *params, struct error *e)
{
    struct asked_for asked_for = {.n = json_count(params), .names = sorted_names(params)};
    enum err err = ERR_OK;
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    char number[24];
    asked_for.is_asked_for = mem_calloc(asked_for.n + 1, sizeof(bool));
    each_param(statement, note_param, &asked_for);
    for (size_t i = 0; err == ERR_OK && i < json_count(params); i++) {
        (void)snprintf(number, sizeof number, "%zu", i + 1);
        const char *name = json_next(params, &cursor, &key, &value) ? key : number;
        if (!asked_for.is_asked_for[i]) {
            err = error_set(e, ERR_INVALID,
                            "there is a value for the parameter $%.100s, which the statement does not have", name);
            error_hint(e, "leave the value out, or write $%.100s where it belongs", name);
        }
    }
    mem_free(asked_for.names);
    mem_free(asked_for.is_asked_for);
    return err;
}

/* The smallest of SQL's types that holds the number, as for a number in the text of a query. */
static const char *type_of_number(const struct json *value)
{
    int64_t number = 0;
    if (!json_is_int(value)) {
        return "DOUBLE";
    }
    if (!json_int(value, &number)) {
        return "UBIGINT";
    }
    return number == (int32_t)number ? "INTEGER" : "BIGINT";
}

static void write_param(struct rewriter *w, struct buf *out, const struct json *node)
{
    static const char *const types[] = {
        [JSON_NULL] = "NULL", [JSON_BOOL] = "BOOLEAN", [JSON_TEXT] = "VARCHAR", [JSON_OBJECT] = NULL};
    const char *identifier = json_text(json_get(node, "identifier"), NULL);
    const char *alias = json_text(json_get(node, "alias"), NULL);
    bool is_found = false;
    const struct json *value = identifier != NULL ? find_param(w, identifier, &is_found) : NULL;
    enum json_kind kind = json_kind_of(value);
    w->outcome.has_params = true;
    if (!is_found) {
        w->err = error_set(w->e, ERR_INVALID, "the parameter $%s has no value", identifier != NULL ? identifier : "");
        return;
    }
    if (kind == JSON_ARRAY || kind == JSON_OBJECT) {
        w->err =
            error_set(w->e, ERR_INVALID, "the parameter $%s must be a text, a number, true, false or null", identifier);
        return;
    }
    buf_text(out, "{\"class\":\"CONSTANT\",\"type\":\"VALUE_CONSTANT\",\"alias\":");
    json_write_text(out, alias != NULL ? alias : "");
    buf_format(out, ",\"query_location\":0,\"value\":{\"type\":{\"id\":\"%s\",\"type_info\":null},\"is_null\":%s",
               kind == JSON_NUMBER ? type_of_number(value) : types[kind], kind == JSON_NULL ? "true" : "false");
    if (kind != JSON_NULL) {
        buf_text(out, ",\"value\":");
        write_value(w, out, value);
    }
    buf_text(out, "}}");
}

/* Everything else is copied. */

static void write_number(struct buf *out, const struct json *node)
{
    int64_t small = 0;
    uint64_t large = 0;
    if (json_int(node, &small)) {
        buf_format(out, "%" PRId64, small);
    } else if (json_uint(node, &large)) {
        buf_format(out, "%" PRIu64, large);
    } else {
        size_t n = out->n;
        json_write_number(out, json_number(node));
        /* A double stays one, even if it has no fraction. */
        if (strpbrk(out->data + n, ".eEn") == NULL) {
            buf_text(out, ".0");
        }
    }
}

static void write_array(struct rewriter *w, struct buf *out, const struct json *node)
{
    buf_char(out, '[');
    for (size_t i = 0; i < json_count(node); i++) {
        buf_text(out, i == 0 ? "" : ",");
        write_value(w, out, json_at(node, i));
    }
    buf_char(out, ']');
}

/*
 * Whether the table is a data set by a name with a schema. Views of one connection are found only by temp.main, or without a
 * schema; but without one, a CTE of that name would hide them.
 */
static bool is_data_set(const struct rewriter *w, const struct json *node)
{
    const char *name = json_text(json_get(node, "table_name"), NULL);
    return w->changes->is_set != NULL && name != NULL && is_in_main(node) &&
           w->changes->is_set(w->changes->context, name);
}

static bool is_text(const struct json *node, const char *expected)
{
    const char *text = json_text(node, NULL);
    return text != NULL && strcasecmp(text, expected) == 0;
}

/* memory.main.NAME.column and memory.NAME.column of a data set: main.NAME.column, which its view is found by anywhere. */
static bool replace_column(struct rewriter *w, struct buf *out, const struct json *node)
{
    const struct json *names = json_get(node, "column_names");
    size_t n = text_is(node, "class", "COLUMN_REF") ? json_count(names) : 0;
    size_t place = n >= 4 && is_text(json_at(names, 1), "main") ? 2 : 1; /* of the data set's name */
    const char *name = n >= 3 ? json_text(json_at(names, place), NULL) : NULL;
    if (name == NULL || w->changes->is_set == NULL || !is_text(json_at(names, 0), "memory") ||
        !w->changes->is_set(w->changes->context, name)) {
        return false;
    }
    buf_text(out, "[\"main\"");
    for (size_t i = place; i < n; i++) {
        buf_char(out, ',');
        write_value(w, out, json_at(names, i));
    }
    buf_char(out, ']');
    return true;
}

static void write_object(struct rewriter *w, struct buf *out, const struct json *node)
{
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    bool is_first = true;
    if (text_is(node, "class", "PARAMETER")) {
        write_param(w, out, node);
        return;
    }
    if (replace_custom(w, out, node) || replace_file(w, out, node)) {
        return;
    }
    bool is_set = is_data_set(w, node);
    w->outcome.has_sets = w->outcome.has_sets || is_set;
    buf_char(out, '{');
    while (json_next(node, &cursor, &key, &value)) {
        buf_text(out, is_first ? "" : ",");
        is_first = false;
        json_write_text(out, key);
        buf_char(out, ':');
        if (strcmp(key, "named_param_map") == 0) {
            buf_text(out, "[]");
        } else if (is_set && strcmp(key, "catalog_name") == 0) {
            json_write_text(out, w->changes->sets_are_in);
        } else if (is_set && strcmp(key, "schema_name") == 0) {
            buf_text(out, "\"main\"");
        } else if (strcmp(key, "column_names") != 0 || !replace_column(w, out, node)) {
            write_value(w, out, value);
        }
    }
    buf_char(out, '}');
}

static void write_value(struct rewriter *w, struct buf *out, const struct json *node)
{
    size_t n = 0;
    const char *text = NULL;
    if (w->err != ERR_OK) {
        return;
    }
    switch (json_kind_of(node)) {
    case JSON_NULL:
        buf_text(out, "null");
        break;
    case JSON_BOOL:
        buf_text(out, json_bool(node) ? "true" : "false");
        break;
    case JSON_NUMBER:
        write_number(out, node);
        break;
    case JSON_TEXT:
        text = json_text(node, &n);
        json_write_bytes(out, text, n);
        break;
    case JSON_ARRAY:
        write_array(w, out, node);
        break;
    case JSON_OBJECT:
        write_object(w, out, node);
        break;
    }
}

enum err plan_sql_rewrite(const struct json *statement, const struct plan_sql_changes *changes, struct buf *out,
                          struct plan_sql_outcome *out_outcome, struct error *e)
{
    struct rewriter w = {.changes = changes, .e = e};
    struct buf text = {0};
    write_value(&w, &text, statement);
    if (w.err == ERR_OK) {
        buf_append(out, text.data, text.n);
        *out_outcome = w.outcome;
    }
    buf_deinit(&text);
    return w.err;
}

void plan_sql_copy(struct buf *out, const struct json *node)
{
    static const struct plan_sql_changes none;
    struct rewriter w = {.changes = &none};
    write_value(&w, out, node);
}

/* Tables. */

/* query('FROM …') and query_table('…'). */
static bool reads_by_name(const struct json *function)
{
    return text_is_any_case(function, "function_name", "query") ||
           text_is_any_case(function, "function_name", "query_table");
}

void plan_sql_tables(const struct json *statement, plan_sql_table_fn *table, void *context)
{
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    const char *name = json_text(json_get(statement, "table_name"), NULL);
    bool has_no_schema = text_is(statement, "type", "BASE_TABLE") && text_is_empty(statement, "schema_name") &&
                         text_is_empty(statement, "catalog_name");
    if (name != NULL && (has_no_schema || is_in_main(statement))) {
        table(context, name);
    }
    if (text_is(statement, "type", "TABLE_FUNCTION") && reads_by_name(json_get(statement, "function"))) {
        table(context, NULL);
    }
    while (json_next(statement, &cursor, &key, &value)) {
        plan_sql_tables(value, table, context);
    }
    for (size_t i = 0; json_kind_of(statement) == JSON_ARRAY && i < json_count(statement); i++) {
        plan_sql_tables(json_at(statement, i), table, context);
    }
}
