#include "query/plan_repeat.h"

#include <dirent.h>
#include <fnmatch.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

/* ---- statements ---- */

/* Functions whose value follows from their arguments. */
static const char *const pure_functions[] = {
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "^",
    "**",
    "||",
    "&",
    "|",
    "<<",
    ">>",
    "~~",
    "!~~",
    "~~*",
    "!~~*",
    "~~~",
    "!",
    "~",
    "abs",
    "any_value",
    "approx_count_distinct",
    "arg_max",
    "arg_min",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "ceil",
    "ceiling",
    "coalesce",
    "concat",
    "concat_ws",
    "contains",
    "corr",
    "count",
    "count_if",
    "count_star",
    "covar_pop",
    "covar_samp",
    "cume_dist",
    "date_add",
    "date_diff",
    "date_part",
    "date_sub",
    "date_trunc",
    "datediff",
    "datepart",
    "datesub",
    "datetrunc",
    "day",
    "dayofmonth",
    "dayofweek",
    "dayofyear",
    "dense_rank",
    "ends_with",
    "exp",
    "first",
    "first_value",
    "floor",
    "greatest",
    "grouping",
    "hash",
    "hour",
    "ifnull",
    "instr",
    "lag",
    "last",
    "last_value",
    "lcase",
    "lead",
    "least",
    "left",
    "len",
    "length",
    "like_escape",
    "list",
    "list_contains",
    "list_value",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "lpad",
    "ltrim",
    "make_date",
    "max",
    "mean",
    "median",
    "min",
    "minute",
    "mod",
    "month",
    "not_like_escape",
    "nth_value",
    "ntile",
    "nullif",
    "percent_rank",
    "position",
    "pow",
    "power",
    "prefix",
    "quantile",
    "quantile_cont",
    "quantile_disc",
    "quarter",
    "rank",
    "regexp_extract",
    "regexp_matches",
    "regexp_replace",
    "replace",
    "reverse",
    "right",
    "round",
    "row",
    "row_number",
    "rpad",
    "rtrim",
    "second",
    "sign",
    "sqrt",
    "starts_with",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "strlen",
    "strpos",
    "struct_pack",
    "substr",
    "substring",
    "suffix",
    "sum",
    "to_days",
    "to_hours",
    "to_microseconds",
    "to_milliseconds",
    "to_minutes",
    "to_months",
    "to_quarters",
    "to_seconds",
    "to_weeks",
    "to_years",
    "trim",
    "trunc",
    "ucase",
    "upper",
    "var_pop",
    "var_samp",
    "variance",
    "week",
    "year",
};

/* Names that are functions though they look like columns, unless a table has such a column. */
static const char *const value_names[] = {
    "current_catalog",
    "current_date",
    "current_localtime",
    "current_localtimestamp",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "localtime",
    "localtimestamp",
    "session_user",
    "user",
};

static bool is_in(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/*
 * Whether a table may be a file that is called by its name, of which DuckDB may have put the rows into the plan: then no
 * scan tells of it. Names of files have an ending.
 */
static bool is_file_name(const char *table)
{
    return table != NULL && strpbrk(table, "./") != NULL;
}

static bool is_node_repeatable(const struct json *node)
{
    const char *function = json_text(json_get(node, "function_name"), NULL);
    if (function != NULL && !is_in(function, pure_functions, ARRAY_LEN(pure_functions))) {
        return false;
    }
    const struct json *names = json_get(node, "column_names");
    for (size_t i = 0; i < json_count(names); i++) {
        const char *name = json_text(json_at(names, i), NULL);
        if (name != NULL && is_in(name, value_names, ARRAY_LEN(value_names))) {
            return false;
        }
    }
    const char *type = json_text(json_get(node, "type"), NULL);
    const char *table = json_text(json_get(node, "table_name"), NULL);
    if (type != NULL && (strcmp(type, "SHOW_REF") == 0 || (strcmp(type, "BASE_TABLE") == 0 && is_file_name(table)))) {
        return false;
    }
    return json_kind_of(json_get(node, "sample")) != JSON_OBJECT;
}

bool plan_repeat_statement(const struct json *statement)
{
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    if (json_kind_of(statement) == JSON_OBJECT && !is_node_repeatable(statement)) {
        return false;
    }
    while (json_next(statement, &cursor, &key, &value)) {
        if (!plan_repeat_statement(value)) {
            return false;
        }
    }
    for (size_t i = 0; json_kind_of(statement) == JSON_ARRAY && i < json_count(statement); i++) {
        if (!plan_repeat_statement(json_at(statement, i))) {
            return false;
        }
    }
    return true;
}

/* ---- files ---- */

struct finder {
    struct arena *arena;
    const char **paths; /* on the heap */
    uint32_t n;
    uint32_t cap;
    bool is_refused;
};

static bool has_path(const struct finder *f, const char *path)
{
    uint32_t i = 0;
    while (i < f->n && strcmp(f->paths[i], path) != 0) {
        i++;
    }
    return i < f->n;
}

static void add_path(struct finder *f, const char *path)
{
    if (!has_path(f, path)) {
        f->paths = mem_grow((void *)f->paths, &f->cap, f->n + 1, sizeof(char *));
        f->paths[f->n++] = path;
    }
}

/* All files that the data set consists of, and the folder, which changes if there are more. */
static void add_source(struct finder *f, const char *source)
{
    const char *slash = strrchr(source, '/');
    size_t n = slash == NULL ? 0 : (size_t)(slash - source);
    if (n == 0 || strcspn(source, "*?[") < n) { /* folders with wildcards: too many places to look at */
        f->is_refused = true;
        return;
    }
    const char *folder = arena_format(f->arena, "%.*s", (int)n, source);
    DIR *entries = opendir(folder);
    f->is_refused = f->is_refused || entries == NULL;
    for (const struct dirent *entry = NULL; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (fnmatch(slash + 1, entry->d_name, 0) == 0) {
            add_path(f, arena_format(f->arena, "%s/%s", folder, entry->d_name));
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    add_path(f, folder);
}

/* A plan may read less than all files, or nothing, if the statistics allow it; but it must not read others. */
static bool check_scan(struct plan_node *node, void *context)
{
    struct finder *f = context;
    if (node->kind == NODE_CUSTOM || (node->kind == NODE_SCAN && node->as.scan->source != SCAN_PARQUET)) {
        f->is_refused = true;
    }
    for (uint32_t i = 0; node->kind == NODE_SCAN && i < node->as.scan->n_files; i++) {
        f->is_refused = f->is_refused || !has_path(f, node->as.scan->files[i]);
    }
    return !f->is_refused;
}

bool plan_repeat_files(const struct plan *plan, struct arena *arena, const char ***out_paths, uint32_t *out_n)
{
    struct finder f = {.arena = arena};
    if (!plan->is_repeatable || plan->root == NULL || plan->n_customs > 0 || plan->write.sql != NULL) {
        return false;
    }
    for (uint32_t i = 0; i < plan->n_sources && !f.is_refused; i++) {
        add_source(&f, plan->sources[i]);
    }
    if (!f.is_refused) {
        plan_visit(plan->root, check_scan, &f);
    }
    if (!f.is_refused && f.n > 0) {
        *out_paths = arena_copy(arena, (const void *)f.paths, f.n * sizeof(char *));
        *out_n = f.n;
    }
    mem_free((void *)f.paths);
    return !f.is_refused && f.n > 0;
}
