/*
 * split_other.c - scans of several CSV or JSON files, which tasks may share by file.
 *
 * What the columns are is a guess from what is in the files, and has to be the same guess in every task. So each task
 * names all files, as the query does, and adds a condition on the name of the file: DuckDB makes its guess from all of them,
 * and then opens only those that the condition leaves. It does that for the column that `filename = true` adds, and for no
 * other one. With that column it does not look at each file of CSV for its quotes, delimiter and so on, but takes what it has
 * found in the first. So CSV is shared out only if these are the same in all files; the types are said.
 */
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/num.h"
#include "query/plan_sql.h"
#include "query/split.h"
#include "query/sql_text.h"

#define FILES_MAX 1000
#define CSV_FILES_MAX 100                   /* each is looked at, which takes some milliseconds */
#define NAMES_BYTES_MAX ((size_t)64 * 1024) /* they are in the SQL of the stage */

/* A call, read_csv('a*.csv', header = true), in its parts. */
struct call {
    bool is_csv;
    bool is_fit;           /* it can have the condition */
    const char *function;  /* "read_csv(" */
    const char *files;     /* "'a*.csv'" */
    const char *arguments; /* all of them: "'a*.csv', header = true" */
};

struct other_loader {
    struct planner *planner;
    struct arena *arena;
    struct scan_file *files; /* of the scan at hand, on the heap */
    uint32_t n;
    uint32_t cap;
    size_t names_bytes;
    bool is_good; /* all of them can be looked at, and are not too many */
};

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text != '\0'; text++) {
        if (strncasecmp(text, word, n) == 0) {
            return true;
        }
    }
    return false;
}

/* The name of a file that stands for a table, "a*.csv", as the call that DuckDB makes of it. */
static bool read_name(const char *text, struct arena *arena, struct call *out)
{
    size_t n = strlen(text);
    if ((text[0] != '"' && text[0] != '\'') || sql_quoted_bytes(text, false) != n || n < 3) {
        return false;
    }
    char *path = arena_zalloc(arena, n);
    size_t n_path = 0;
    for (size_t i = 1; i + 1 < n; i++) {
        path[n_path++] = text[i];
        i += text[i] == text[0] ? 1 : 0; /* a quote inside is there twice */
    }
    enum source_format format = SOURCE_PARQUET;
    struct buf quoted = {0};
    if (!plan_sql_format(path, &format) || format == SOURCE_PARQUET) {
        return false;
    }
    sql_write_text(&quoted, path, n_path);
    out->is_csv = format == SOURCE_CSV;
    out->function = out->is_csv ? "read_csv_auto(" : "read_json_auto(";
    out->files = arena_strdup(arena, quoted.data);
    out->arguments = out->files;
    buf_deinit(&quoted);
    return true;
}

static bool read_function(const char *text, struct arena *arena, struct call *out)
{
    static const char *const functions[] = {"read_csv(",       "read_csv_auto(", "read_json(",
                                            "read_json_auto(", "read_ndjson(",   "read_ndjson_auto("};
    size_t i = 0;
    while (i < ARRAY_LEN(functions) && strncasecmp(text, functions[i], strlen(functions[i])) != 0) {
        i++;
    }
    if (i == ARRAY_LEN(functions)) {
        return false;
    }
    const char *arguments = text + strlen(functions[i]);
    size_t n_files = sql_item_bytes(arguments);
    size_t n = n_files;
    while (arguments[n] == ',') {
        n += 1 + sql_item_bytes(arguments + n + 1);
    }
    if (n_files == 0 || arguments[n] != ')' || arguments[n + 1] != '\0') {
        return false;
    }
    out->is_csv = strncmp(functions[i], "read_csv", strlen("read_csv")) == 0;
    out->function = functions[i];
    out->files = arena_format(arena, "%.*s", (int)n_files, arguments);
    out->arguments = arena_format(arena, "%.*s", (int)n, arguments);
    return true;
}

/* Takes the FROM item of a stand-in apart. False if it is of a form that is not known. */
static bool read_call(const char *from, struct arena *arena, struct call *out)
{
    static const char select[] = "(SELECT * FROM ";
    static const char *const unfit[] = {"filename", "union_by_name", "rejects"};
    size_t n = strlen(from);
    char *text = arena_strdup(arena, from);
    if (strncmp(text, select, sizeof(select) - 1) == 0 && text[n - 1] == ')') {
        text[n - 1] = '\0';
        text += sizeof(select) - 1;
    }
    out->is_fit = true;
    for (size_t i = 0; i < ARRAY_LEN(unfit); i++) {
        out->is_fit = out->is_fit && !has_word(text, unfit[i]);
    }
    return read_name(text, arena, out) || read_function(text, arena, out);
}

static bool is_known(const struct other_loader *l, const char *path)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (strcmp(l->files[i].path, path) == 0) {
            return true;
        }
    }
    return false;
}

static enum err add_file(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct other_loader *l = context;
    struct stat st;
    UNUSED(e);
    if (!l->is_good || n == 0 || values[0] == NULL || is_known(l, values[0])) {
        return ERR_OK; /* one that is named twice is read twice, by the task that has it */
    }
    l->names_bytes += strlen(values[0]);
    l->is_good = l->n < FILES_MAX && l->names_bytes <= NAMES_BYTES_MAX && strlen(values[0]) <= LIMIT_SOURCE_BYTES &&
                 stat(values[0], &st) == 0 && S_ISREG(st.st_mode);
    if (l->is_good) {
        l->files = mem_grow(l->files, &l->cap, l->n + 1, sizeof(*l->files));
        l->files[l->n++] = (struct scan_file){
            .path = arena_strdup(l->arena, values[0]),
            .bytes = (uint64_t)st.st_size,
            .mtime_ms = (int64_t)st.st_mtim.tv_sec * 1000 + (int64_t)st.st_mtim.tv_nsec / 1000000,
        };
    }
    return ERR_OK;
}

static bool has_column(const struct scan *scan, const char *name)
{
    for (uint32_t i = 0; i < scan->n_names; i++) {
        if (strcasecmp(scan->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static enum err keep_number(void *context, const char *const *values, uint32_t n, struct error *e)
{
    int64_t number = 0;
    UNUSED(e);
    if (n > 0 && values[0] != NULL && num_parse_int(values[0], &number)) {
        *(int64_t *)context = number;
    }
    return ERR_OK;
}

/* Whether all files of CSV have the same columns, quotes and so on, as far as DuckDB looks to find out. */
static bool is_alike(const struct other_loader *l, const struct call *call)
{
    const char *options = call->arguments + strlen(call->files);
    struct buf sql = {0};
    struct error why = {0};
    int64_t n_kinds = 0;
    buf_text(&sql, "SELECT count(*) FROM (");
    for (uint32_t i = 0; i < l->n; i++) {
        buf_format(&sql,
                   "%sSELECT Delimiter, Quote, Escape, NewLineDelimiter, Comment, SkipRows, HasHeader, "
                   "list_transform(Columns, lambda x: x.name), DateFormat, TimestampFormat FROM sniff_csv(",
                   i > 0 ? " UNION " : "");
        sql_write_text(&sql, l->files[i].path, strlen(l->files[i].path));
        buf_format(&sql, "%s)", options);
    }
    buf_char(&sql, ')');
    bool is_known = planner_rows(l->planner, sql.data, keep_number, &n_kinds, &why) == ERR_OK;
    buf_deinit(&sql);
    return is_known && n_kinds == 1;
}

/* The columns' types, unless the query says what they are; false if one of them cannot be written. */
static bool write_types(struct buf *sql, const struct scan *scan, const struct call *call)
{
    static const char *const said[] = {"types", "columns", "all_varchar"};
    for (size_t i = 0; i < ARRAY_LEN(said); i++) {
        if (has_word(call->arguments + strlen(call->files), said[i])) {
            return true;
        }
    }
    buf_text(sql, ", types = {");
    for (uint32_t i = 0; i < scan->n_names; i++) {
        struct buf type = {0};
        if (!type_has_sql(scan->types[i])) {
            return false;
        }
        buf_text(sql, i > 0 ? ", " : "");
        sql_write_text(sql, scan->names[i], strlen(scan->names[i]));
        buf_text(sql, ": ");
        type_write(&type, scan->types[i]);
        sql_write_text(sql, type.data, type.n);
        buf_deinit(&type);
    }
    buf_char(sql, '}');
    return true;
}

static bool write_call(struct buf *sql, const struct other_loader *l, const struct scan *scan, const struct call *call)
{
    buf_format(sql, "%s%s", call->function, call->arguments);
    if (call->is_csv && (l->n > CSV_FILES_MAX || !is_alike(l, call) || !write_types(sql, scan, call))) {
        return false;
    }
    buf_text(sql, ", filename = true)");
    return true;
}

static bool look_at_scan(struct plan_node *node, void *context)
{
    struct other_loader *l = context;
    struct call call = {0};
    if (node->kind != NODE_SCAN || node->as.scan->source != SCAN_STAND_IN ||
        !read_call(node->as.scan->from, l->arena, &call)) {
        return true;
    }
    struct scan *scan = node->as.scan;
    struct error why = {0};
    l->n = 0;
    l->names_bytes = 0;
    l->is_good = true;
    const char *sql = arena_format(l->arena, "SELECT file FROM glob(%s)", call.files);
    if (planner_rows(l->planner, sql, add_file, l, &why) != ERR_OK || !l->is_good) {
        return true;
    }
    scan->other_files = arena_copy(l->arena, l->files, l->n * sizeof(*l->files));
    scan->n_other_files = l->n;
    struct buf shared = {0};
    if (l->n > 1 && call.is_fit && !has_column(scan, "filename") && write_call(&shared, l, scan, &call)) {
        scan->shared_call = arena_strdup(l->arena, shared.data);
    }
    buf_deinit(&shared);
    return true;
}

void split_others_load(struct planner *planner, struct plan_node *root, struct arena *arena)
{
    struct other_loader l = {.planner = planner, .arena = arena};
    plan_visit(root, look_at_scan, &l);
    mem_free(l.files);
}

uint64_t split_others_bytes(const struct scan *scan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < scan->n_other_files; i++) {
        bytes += scan->other_files[i].bytes;
    }
    return bytes;
}

void split_others(const struct scan *scan, uint64_t n_tasks, struct arena *arena, struct physical_split **out_splits)
{
    struct physical_split *splits = arena_zalloc(arena, scan->n_other_files * sizeof(*splits));
    double share = (double)split_others_bytes(scan) / (double)n_tasks;
    double done = 0;
    double end = share;
    for (uint32_t i = 0; i < scan->n_other_files; i++) {
        double bytes = (double)scan->other_files[i].bytes;
        double next = i + 1 < scan->n_other_files ? (double)scan->other_files[i + 1].bytes : 0;
        done += bytes;
        splits[i] = (struct physical_split){.file = scan->other_files[i].path,
                                            .file_index = i,
                                            .bytes = scan->other_files[i].bytes,
                                            .has_identity = true,
                                            .file_bytes = scan->other_files[i].bytes,
                                            .file_mtime_ms = scan->other_files[i].mtime_ms,
                                            .is_continued = i + 1 < scan->n_other_files && done + next / 2 <= end};
        while (!splits[i].is_continued && share > 0 && end <= done + next / 2) {
            end += share;
        }
    }
    *out_splits = splits;
}

void split_others_write(struct buf *sql, const struct scan *scan, const struct physical_split *splits,
                        const char *which)
{
    uint32_t first = 0;
    buf_format(sql, "(SELECT * EXCLUDE (filename) FROM %s WHERE {{rows%s:0}} AND CASE filename", scan->shared_call,
               which);
    for (uint32_t i = 0; i < scan->n_other_files; i++) {
        if (first > 0) {
            buf_text(sql, " WHEN ");
            sql_write_text(sql, splits[i].file, strlen(splits[i].file));
            buf_format(sql, " THEN %" PRIu32, first);
        }
        first = splits[i].is_continued ? first : i + 1;
    }
    /* Whatever else there is belongs to the first task, so that no row can be lost. */
    buf_format(sql, " ELSE 0 END = {{file_index%s}})", which);
}
