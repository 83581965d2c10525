/*
 * What one task runs: the stage's SQL with its placeholders filled in, and the column that says which partition a row
 * belongs to.
 *
 * Placeholders count only outside of quotes and comments, since texts of the user's query, which may look like one, are
 * inside of quotes in our SQL.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "query/physical.h"
#include "query/physical_internal.h"
#include "query/plan.h"
#include "query/sql_text.h"

struct filler {
    struct buf *out;
    const struct physical_stage *stage;
    const struct physical_split *split; /* of the task, the first if there are several; NULL if the stage has none */
    uint32_t n_splits;
    uint32_t task;
    bool has_rows_placeholder;
    uint32_t depth;       /* of brackets */
    uint32_t close_depth; /* a read_parquet( that was opened here gets a condition when it closes; 0: none */
    size_t n_looked_at;   /* splits, for the file of another scan */
    struct error *e;
};

/* A short text may name many splits often. Looking for these counts like writing them. */
static enum err check_size(const struct filler *f)
{
    if (f->out->n + f->n_looked_at <= LIMIT_TASK_SQL_BYTES) {
        return ERR_OK;
    }
    return error_set(f->e, ERR_INVALID,
                     "stage %" PRIu32 ": the SQL of a task is larger than %d bytes with its splits filled in",
                     f->stage->id, LIMIT_TASK_SQL_BYTES);
}

size_t physical_last_statement(const char *sql)
{
    size_t start = 0;
    size_t next = 0;
    bool is_after_word = false;
    for (size_t i = 0; sql[i] != '\0';) {
        size_t n = sql_quoted_bytes(sql + i, is_after_word);
        if (n == 0 && sql[i] == ';') {
            next = i + 1;
        } else if (n > 0 || !isspace((unsigned char)sql[i])) {
            bool is_comment = n > 0 && (sql[i] == '-' || sql[i] == '/');
            start = next > start && !is_comment ? next : start;
        }
        is_after_word = n == 0 && sql_is_in_word(is_after_word, sql[i]);
        i += n > 0 ? n : 1;
    }
    return start;
}

/* Any split of the scan, for its file; NULL if it has none. */
static const struct physical_split *split_of_scan(struct filler *f, uint32_t scan)
{
    if (f->split != NULL && f->split->scan == scan) {
        return f->split;
    }
    ASSERT(f->stage->n_splits == 0 || f->stage->splits != NULL);
    for (uint32_t i = 0; i < f->stage->n_splits; i++) {
        f->n_looked_at++;
        if (f->stage->splits[i].scan == scan) {
            return &f->stage->splits[i];
        }
    }
    return NULL;
}

/* Each comparison is made for each row, so none is written that always holds. */
static void write_range(struct buf *out, const struct physical_split *split)
{
    if (split->first_row == 0) {
        buf_format(out, " <= %" PRIu64, split->last_row);
    } else {
        buf_format(out, " BETWEEN %" PRIu64 " AND %" PRIu64, split->first_row, split->last_row);
    }
}

static void write_rows(struct filler *f, uint32_t scan, const char *expression, size_t n)
{
    if (f->split == NULL || f->split->scan != scan || f->split->is_empty) {
        buf_text(f->out, "false");
    } else if (f->n_splits > 1) {
        buf_text(f->out, "true"); /* each split has its condition where it is read */
    } else if (f->split->has_rows) {
        buf_char(f->out, '(');
        buf_append(f->out, expression, n);
        write_range(f->out, f->split);
        buf_char(f->out, ')');
    } else {
        buf_text(f->out, "true");
    }
}

/* Takes "read_parquet(" from the end of what is written; false if it is not there. */
static bool take_back_call(struct buf *out)
{
    static const char name[] = "read_parquet";
    size_t n = out->n;
    while (n > 0 && isspace((unsigned char)out->data[n - 1])) {
        n--;
    }
    if (n == 0 || out->data[n - 1] != '(') {
        return false;
    }
    n--;
    while (n > 0 && isspace((unsigned char)out->data[n - 1])) {
        n--;
    }
    if (n < sizeof name - 1 || strncasecmp(out->data + n - (sizeof name - 1), name, sizeof name - 1) != 0) {
        return false;
    }
    n -= sizeof name - 1;
    if (n > 0 && (sql_is_word(out->data[n - 1]) || out->data[n - 1] == '.')) {
        return false;
    }
    out->n = n;
    out->data[n] = '\0';
    return true;
}

static enum err write_file(struct filler *f, uint32_t scan)
{
    const struct physical_split *split = split_of_scan(f, scan);
    if (split == NULL) {
        return error_set(f->e, ERR_INVALID, "stage %" PRIu32 ": {{split}} without splits for it", f->stage->id);
    }
    bool needs_condition = !f->has_rows_placeholder && (split != f->split || split->has_rows || split->is_empty);
    if (needs_condition) {
        if (f->close_depth != 0 || !take_back_call(f->out)) {
            error_set(f->e, ERR_INVALID, "stage %" PRIu32 ": {{split}} of rows has to be in read_parquet({{split}})",
                      f->stage->id);
            error_hint(f->e, "or add the condition {{rows:file_row_number}}");
            return ERR_INVALID;
        }
        buf_text(f->out, "(SELECT * EXCLUDE (file_row_number) FROM read_parquet(");
        f->close_depth = f->depth;
    }
    sql_write_text(f->out, split->file, strlen(split->file));
    buf_text(f->out, needs_condition ? ", file_row_number = true" : "");
    return ERR_OK;
}

/* The length of the arguments that follow, up to the bracket that closes the call; without that one, all. */
static size_t arguments_bytes(const char *p)
{
    size_t n = 0;
    while (p[n] == ',' || (p[n] != ')' && p[n] != '\0')) {
        n += p[n] == ',' ? 1 : 0;
        n += sql_item_bytes(p + n);
    }
    return n;
}

/* Splits from `i` on that are whole files can be read by one call. Returns where they end. */
static uint32_t write_whole_files(struct filler *f, uint32_t i)
{
    buf_char(f->out, '[');
    for (uint32_t first = i; i < f->n_splits && !f->split[i].has_rows && f->out->n <= LIMIT_TASK_SQL_BYTES; i++) {
        buf_text(f->out, i > first ? ", " : "");
        sql_write_text(f->out, f->split[i].file, strlen(f->split[i].file));
    }
    buf_char(f->out, ']');
    return i;
}

/*
 * Several splits: read_parquet({{split}}, x) becomes (SELECT … FROM read_parquet('a', x) UNION ALL …). `rest` is what
 * follows the placeholder; `out_taken` how much of that has been used up.
 */
static enum err write_chain(struct filler *f, const char *rest, size_t *out_taken)
{
    size_t n_arguments = arguments_bytes(rest);
    if (rest[n_arguments] != ')' || !take_back_call(f->out)) {
        return error_set(f->e, ERR_INVALID,
                         "stage %" PRIu32 ": {{split}} of several has to be in read_parquet({{split}})", f->stage->id);
    }
    const char *columns = f->has_rows_placeholder ? "*, file_row_number" : "*";
    for (uint32_t i = 0; i < f->n_splits;) {
        const struct physical_split *split = &f->split[i];
        enum err err = check_size(f);
        if (err != ERR_OK) {
            return err;
        }
        buf_format(f->out, "%sSELECT %s FROM read_parquet(", i == 0 ? "(" : " UNION ALL ", columns);
        if (split->has_rows) {
            sql_write_text(f->out, split->file, strlen(split->file));
            i++;
        } else {
            i = write_whole_files(f, i);
        }
        buf_append(f->out, rest, n_arguments);
        buf_char(f->out, ')');
        if (split->has_rows) {
            buf_text(f->out, " WHERE file_row_number");
            write_range(f->out, split);
        }
    }
    buf_char(f->out, ')');
    f->depth--; /* the call's bracket had been counted */
    *out_taken = n_arguments + 1;
    return ERR_OK;
}

/* The number of a scan in "2}}" or "2:x}}"; 0 if there is none. Moves on behind it. */
static uint32_t read_scan_number(const char **p)
{
    char *end = NULL;
    if (!isdigit((unsigned char)**p)) {
        return 0;
    }
    unsigned long number = strtoul(*p, &end, 10);
    if (*end != ':' && *end != '}') {
        return 0;
    }
    *p = *end == ':' ? end + 1 : end;
    return number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

/* Fills in the placeholder at `p`, which starts with {{ and ends before `end`. */
static enum err fill_one(struct filler *f, const char *p, const char *end)
{
    const char *name = p + 2;
    size_t n_name = strcspn(name, ":}");
    const char *rest = name[n_name] == ':' ? name + n_name + 1 : name + n_name;
    if (n_name == 4 && strncmp(name, "task", 4) == 0) {
        buf_format(f->out, "%" PRIu32, f->task);
        return ERR_OK;
    }
    if (n_name == 5 && strncmp(name, "split", 5) == 0) {
        return write_file(f, read_scan_number(&rest));
    }
    if (n_name == 10 && strncmp(name, "file_index", 10) == 0) {
        const struct physical_split *split = split_of_scan(f, read_scan_number(&rest));
        buf_format(f->out, "%" PRIu32, split == NULL ? 0 : split->file_index);
        return ERR_OK;
    }
    if (n_name == 4 && strncmp(name, "rows", 4) == 0) {
        uint32_t scan = read_scan_number(&rest);
        write_rows(f, scan, rest, (size_t)(end - rest));
        return ERR_OK;
    }
    return error_set(f->e, ERR_INVALID, "stage %" PRIu32 ": unknown placeholder {{%.*s}}", f->stage->id,
                     (int)(end - name < 40 ? end - name : 40), name);
}

/* Whether {{split}} is here, of the scan of which the task has several. */
static bool is_of_chain(const struct filler *f, const char *p)
{
    static const char name[] = "{{split";
    const char *rest = p + sizeof name - 1;
    if (f->n_splits < 2 || strncmp(p, name, sizeof name - 1) != 0 || (*rest != ':' && *rest != '}')) {
        return false;
    }
    rest += *rest == ':' ? 1 : 0;
    return read_scan_number(&rest) == f->split->scan;
}

static void copy_char(struct filler *f, char c)
{
    buf_char(f->out, c);
    if (c == '(') {
        f->depth++;
    } else if (c == ')' && f->depth > 0) {
        if (f->close_depth == f->depth) {
            const struct physical_split *split = f->split;
            buf_text(f->out, " WHERE ");
            write_rows(f, split == NULL ? 0 : split->scan, "file_row_number", strlen("file_row_number"));
            buf_char(f->out, ')');
            f->close_depth = 0;
        }
        f->depth--;
    }
}

/* Fills in what is at `p`, up to `end`. Returns how much of the SQL that takes. */
static enum err fill_here(struct filler *f, const char *p, const char *end, size_t *out_taken)
{
    size_t n_more = 0;
    enum err err = is_of_chain(f, p) ? write_chain(f, end + 2, &n_more) : fill_one(f, p, end);
    *out_taken = (size_t)(end + 2 - p) + n_more;
    return err == ERR_OK ? check_size(f) : err;
}

static enum err fill(struct filler *f, const char *sql)
{
    bool is_after_word = false;
    bool has_end = true; /* of a placeholder, somewhere ahead */
    for (const char *p = sql; *p != '\0';) {
        size_t n = sql_quoted_bytes(p, is_after_word);
        bool is_begin = n == 0 && has_end && p[0] == '{' && p[1] == '{';
        const char *end = is_begin ? strstr(p, "}}") : NULL;
        has_end = has_end && (!is_begin || end != NULL);
        is_after_word = n == 0 && end == NULL && sql_is_in_word(is_after_word, *p);
        if (n > 0) {
            buf_append(f->out, p, n);
            p += n;
        } else if (end != NULL) {
            enum err err = fill_here(f, p, end, &n);
            if (err != ERR_OK) {
                return err;
            }
            p += n;
        } else {
            copy_char(f, *p++);
        }
    }
    return check_size(f);
}

uint64_t physical_task_bytes(const struct physical_stage *stage, uint32_t task)
{
    const struct physical_split *splits = NULL;
    uint32_t n = stage->n_splits > 0 ? physical_task_splits(stage, task, &splits) : 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += splits[i].bytes;
    }
    return bytes;
}

/* Takes the word from the end of the key's first `n` bytes, with blanks behind it. */
static bool take_last_word(const char *key, size_t *n, const char *word)
{
    size_t n_word = strlen(word);
    size_t end = *n;
    while (end > 0 && isspace((unsigned char)key[end - 1])) {
        end--;
    }
    bool is_here = end > n_word && strncasecmp(key + end - n_word, word, n_word) == 0 &&
                   !sql_is_in_word(true, key[end - n_word - 1]) && key[end - n_word - 1] != '.';
    *n = is_here ? end - n_word : *n;
    return is_here;
}

/* "c0 DESC NULLS LAST" → the expression's length, and the rest, which says how to sort; parts of it may be left out. */
static size_t key_order(const char *key, const char **out_order)
{
    static const char *const orders[2][2] = {{"ASC NULLS LAST", "ASC NULLS FIRST"},
                                             {"DESC NULLS LAST", "DESC NULLS FIRST"}};
    size_t n = strlen(key);
    size_t before = n;
    bool is_first = take_last_word(key, &before, "FIRST");
    bool has_nulls = (is_first || take_last_word(key, &before, "LAST")) && take_last_word(key, &before, "NULLS");
    n = has_nulls ? before : n;
    bool is_descending = take_last_word(key, &n, "DESC");
    if (!is_descending) {
        (void)take_last_word(key, &n, "ASC");
    }
    while (n > 0 && isspace((unsigned char)key[n - 1])) {
        n--;
    }
    *out_order = orders[is_descending ? 1 : 0][has_nulls && is_first ? 1 : 0];
    return n;
}

void physical_write_sort_key(struct buf *sql, const char *const *keys, uint32_t n)
{
    buf_text(sql, "create_sort_key(");
    for (uint32_t i = 0; i < n; i++) {
        const char *order = NULL;
        size_t n_key = key_order(keys[i], &order);
        buf_text(sql, i == 0 ? "" : ", ");
        buf_append(sql, keys[i], n_key);
        buf_format(sql, ", '%s'", order);
    }
    buf_text(sql, ", '', 'ASC NULLS LAST')"); /* a text among the keys makes it a BLOB in all cases */
}

static void write_partition(struct buf *sql, const struct physical_output *output, uint32_t task)
{
    buf_text(sql, "CAST(");
    if (output->exchange == EXCHANGE_FORWARD) {
        buf_format(sql, "%" PRIu32, task % output->partitions);
    } else if (output->exchange == EXCHANGE_HASH) {
        buf_text(sql, "(hash(");
        for (uint32_t i = 0; i < output->n_keys; i++) {
            buf_text(sql, i == 0 ? "" : ", ");
            buf_text(sql, output->keys[i]);
        }
        buf_format(sql, ") >> 32) %% %" PRIu32, output->partitions);
    } else {
        buf_text(sql, "len(list_filter((SELECT * FROM ");
        sql_write_name(sql, output->bounds);
        buf_text(sql, "), lambda capstan_bound: capstan_bound < ");
        physical_write_sort_key(sql, (const char *const *)output->keys, output->n_keys);
        buf_text(sql, "))");
    }
    buf_text(sql, " AS INTEGER)");
}

void physical_scatter_sql(struct buf *sql, const struct physical_stage *stage, uint32_t task, const char *from)
{
    ASSERT(exchange_is_partitioned(stage->output.exchange));
    buf_text(sql, "SELECT *, ");
    write_partition(sql, &stage->output, task);
    buf_format(sql, " AS " PHYSICAL_PARTITION_COLUMN " FROM %s", from);
}

enum err physical_task_sql(struct buf *sql, const struct physical_plan *plan, uint32_t stage, uint32_t task,
                           struct error *e)
{
    ASSERT(task < physical_tasks(plan, stage));
    const struct physical_stage *s = &plan->stages[stage];
    struct buf body = {0};
    struct filler f = {
        .out = &body,
        .stage = s,
        .task = task,
        .has_rows_placeholder = sql_has(s->sql, "{{rows:"),
        .e = e,
    };
    f.n_splits = s->n_splits > 0 ? physical_task_splits(s, task, &f.split) : 0;
    bool is_scattered = s->custom.op == NULL && exchange_is_partitioned(s->output.exchange);
    buf_text(&body, is_scattered ? "(" : "");
    enum err err = fill(&f, s->sql);
    if (err == ERR_OK && is_scattered) {
        body.n = physical_trimmed(body.data);
        body.data[body.n] = '\0';
        buf_text(&body, "\n)"); /* the SQL may end in a comment */
        physical_scatter_sql(sql, s, task, body.data);
    } else if (err == ERR_OK) {
        buf_append(sql, body.data, body.n);
    }
    buf_deinit(&body);
    return err;
}
