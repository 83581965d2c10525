/*
 * planner.c - from SQL to a plan; planner.h says how.
 *
 * Optimizers that are off while planning, and why:
 * - build_side_probe_side: it turns joins round, for this machine's memory only
 * - compressed_materialization, late_materialization: they put functions and row ids into the plan that mean nothing
 *   elsewhere
 * - join_filter_pushdown, row_group_pruner: they point from one node into another
 * - top_n_window_elimination, window_self_join, common_aggregate: they make aggregates that cannot be written as SQL
 * - sampling_pushdown: it hides samples inside of scans
 * The fragments are optimized again where they run. column_lifetime stays on: it drops columns that nobody needs any more
 * above a join, which would have to travel. Statistics stay on: without them DuckDB cannot bind some plans.
 */
#include "query/planner.h"

#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "duck/duck.h"
#include "duck/excerpt.h"
#include "query/plan_estimate.h"
#include "query/plan_read.h"
#include "query/plan_repeat.h"
#include "query/plan_sql.h"
#include "query/planner_internal.h"
#include "query/split.h"
#include "query/sql_text.h"
#include "query/unparse.h"

#define OPTIMIZERS_OFF                                                                                                 \
    "compressed_materialization,late_materialization,build_side_probe_side,join_filter_pushdown,"                      \
    "top_n_window_elimination,window_self_join,sampling_pushdown,row_group_pruner,common_aggregate"

/* Sometimes DuckDB cannot write a plan that fewer optimizers have seen. */
#define OPTIMIZERS_OFF_MINIMAL "column_lifetime,compressed_materialization"

enum err planner_open(struct planner **out, struct error *e)
{
    /* It only reads metadata; what it may use of memory is for the statistics of many files. */
    struct duck_options options = {
        .threads = 2, .memory_bytes_max = UINT64_C(512) * 1024 * 1024, .disabled_optimizers = OPTIMIZERS_OFF};
    struct planner *planner = mem_calloc(1, sizeof(*planner));
    enum err err = duck_open(&options, &planner->duck, e);
    if (err == ERR_OK) {
        err = duck_connect(planner->duck, &planner->connection, e);
    }
    if (err == ERR_OK) {
        err = duck_connect(planner->duck, &planner->second, e);
    }
    if (err == ERR_OK) {
        err = duck_run(planner->second, "SET explain_output = 'optimized_only'", e);
    }
    planner->cache = split_cache_new();
    if (err != ERR_OK) {
        planner_close(planner);
        return err;
    }
    *out = planner;
    return ERR_OK;
}

void planner_close(struct planner *planner)
{
    if (planner == NULL) {
        return;
    }
    if (planner->connection != NULL) {
        planner__forget_views(planner);
    }
    duck_disconnect(planner->second);
    duck_disconnect(planner->connection);
    duck_close(planner->duck);
    split_cache_free(planner->cache);
    mem_free(planner->views);
    mem_free(planner);
}

struct split_cache *planner_cache(struct planner *planner)
{
    return planner->cache;
}

void planner_interrupt(struct planner *planner)
{
    duck_interrupt(planner->connection);
    duck_interrupt(planner->second);
}

/* Rows of texts. */

struct text_rows {
    planner_row_fn *row;
    void *context;
};

static enum err hand_on(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    const struct text_rows *rows = context;
    const char **texts = mem_calloc(n, sizeof(char *));
    for (uint32_t i = 0; i < n; i++) {
        texts[i] = values[i].bytes;
    }
    enum err err = rows->row(rows->context, texts, n, e);
    mem_free(texts);
    return err;
}

enum err planner_rows(struct planner *planner, const char *sql, planner_row_fn *row, void *context, struct error *e)
{
    struct text_rows rows = {.row = row, .context = context};
    return duck_rows(planner->connection, sql, NULL, 0, hand_on, &rows, e);
}

static enum err keep_text(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(e);
    if (n > 0 && values[0].bytes != NULL) {
        buf_append(context, values[0].bytes, values[0].n);
    }
    return ERR_OK;
}

/* The one text that `sql` yields for the argument. */
enum err planner__ask(struct planner *planner, const char *sql, const char *argument, size_t n, struct buf *out,
                      struct error *e)
{
    struct duck_text arg = {.bytes = argument, .n = n};
    buf_reset(out);
    buf_text(out, "");
    return duck_rows(planner->connection, sql, &arg, 1, keep_text, out, e);
}

/* Parsing and rewriting. */

/* A file in the statement: it becomes a stand-in if it can be read by itself. */
static bool add_stand_in(void *context, const char *select_json, struct buf *out_argument)
{
    struct planning *p = context;
    struct buf select = {0};
    bool is_added = false;
    if (planner__ask(p->planner, "SELECT json_deserialize_sql($1::JSON)", select_json, strlen(select_json), &select,
                     NULL) == ERR_OK) {
        buf_format(out_argument, "(%s)", select.data);
        is_added = duck_add_source(p->planner->connection, out_argument->data, out_argument->data, STAND_IN_ROWS,
                                   NULL) == ERR_OK;
    }
    buf_deinit(&select);
    return is_added;
}

static enum err parse(struct planning *p, const char *sql, const char *params_json, struct error *e)
{
    struct buf text = {0};
    enum err err = ERR_OK;
    if (params_json != NULL && params_json[0] != '\0') {
        err = json_parse(params_json, strlen(params_json), &p->params, e);
        if (err != ERR_OK) {
            (void)error_set(e, ERR_INVALID, "the parameters are not JSON: %s", e != NULL ? e->message : "");
            goto out;
        }
    }
    err = planner__ask(p->planner, "SELECT json_serialize_sql($1::VARCHAR)", sql, strlen(sql), &text, e);
    if (err == ERR_OK) {
        err = json_parse_with_nan(text.data, text.n, &p->parsed, e);
    }
out:
    buf_deinit(&text);
    return err;
}

static enum err cannot_parse(const struct planning *p, const char *sql, struct error *e)
{
    const char *text = json_text(json_get(p->parsed, "error_message"), NULL);
    const char *position = json_text(json_get(p->parsed, "position"), NULL);
    const char *type = json_text(json_get(p->parsed, "error_type"), NULL);
    bool is_parser = type != NULL && strcmp(type, "parser") == 0;
    int64_t at = -1;
    error_set(e, ERR_INVALID, "%s%s", is_parser ? "Parser Error: " : "",
              text != NULL ? text : "the statement cannot be parsed");
    if (position != NULL && num_parse_int(position, &at) && at >= 0) {
        duck_excerpt_add(e, sql, (size_t)at);
    }
    return ERR_INVALID;
}

/* DuckDB puts statements other than SELECT, what it has no JSON for, and what it cannot parse into the same answer. */
static enum err check_parsed(struct planning *p, const char *sql, bool *out_is_select, struct error *e)
{
    const char *type = json_text(json_get(p->parsed, "error_type"), NULL);
    *out_is_select = !json_bool(json_get(p->parsed, "error"));
    if (!*out_is_select) {
        if (type != NULL && (strcmp(type, "not implemented") == 0 || strcmp(type, "serialization") == 0)) {
            return ERR_OK;
        }
        return cannot_parse(p, sql, e);
    }
    size_t n = json_count(json_get(p->parsed, "statements"));
    return n == 1 ? ERR_OK : error_set(e, ERR_INVALID, "one statement is expected, not %zu", n);
}

static enum err write_back(struct planning *p, const struct buf *json, struct buf *out, struct error *e)
{
    return planner__ask(p->planner, "SELECT json_deserialize_sql($1::JSON)", json->data, json->n, out, e);
}

static bool is_set(void *context, const char *name)
{
    const struct planning *p = context;
    for (uint32_t i = 0; i < p->n_tables; i++) {
        if (strcasecmp(p->tables[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/*
 * Fills `statement` and `planned`: with constants for parameters, and stand-ins. Text that needs no change stays as the user
 * wrote it. Data sets are views of the planner's DuckDB, of both its connections, and of that of one task only.
 */
static enum err rewrite(struct planning *p, const char *sql, struct error *e)
{
    struct buf json = {0};
    struct plan_sql_outcome outcome = {0};
    struct plan_sql_changes changes = {
        .params = p->params, .is_set = is_set, .sets_are_in = "temp", .context = p, .customs = CUSTOM_IS_TABLE};
    enum err err = plan_sql_rewrite(p->parsed, &changes, &json, &outcome, e);
    if (err == ERR_OK && outcome.has_sets) {
        err = write_back(p, &json, &p->task, e);
        changes.sets_are_in = "memory";
        buf_reset(&json);
        err = err == ERR_OK ? plan_sql_rewrite(p->parsed, &changes, &json, &outcome, e) : err;
    }
    if (err == ERR_OK && (outcome.has_params || outcome.has_sets || outcome.n_customs > 0)) {
        err = write_back(p, &json, &p->statement, e);
    } else {
        buf_text(&p->statement, sql);
    }
    changes.stand_in = add_stand_in;
    changes.customs = CUSTOM_IS_STAND_IN;
    buf_reset(&json);
    if (err == ERR_OK) {
        err = plan_sql_rewrite(p->parsed, &changes, &json, &outcome, e);
    }
    if (err == ERR_OK && outcome.has_stand_ins) {
        err = write_back(p, &json, &p->planned, e);
    } else {
        buf_append(&p->planned, p->statement.data, p->statement.n);
    }
    buf_deinit(&json);
    return err;
}

/* What one task would run: the data sets as views, which are gone with its connection, then the statement itself. */
static enum err write_task_sql(struct planning *p, const char *statement, struct error *e)
{
    struct buf sql = {0};
    enum err err = ERR_OK;
    for (uint32_t i = 0; err == ERR_OK && i < p->n_tables; i++) {
        bool has_stand_in = false;
        if (!p->is_used[i]) {
            continue;
        }
        buf_text(&sql, "CREATE OR REPLACE TEMP VIEW ");
        sql_write_name(&sql, p->tables[i].name);
        buf_text(&sql, " AS SELECT * FROM ");
        err = planner__write_source(&sql, &p->tables[i], &has_stand_in, e);
        buf_text(&sql, ";\n");
    }
    buf_text(&sql, statement);
    if (err == ERR_OK) {
        p->plan->sql = arena_strdup(p->arena, sql.data);
    }
    buf_deinit(&sql);
    return err;
}

/* Planning. */

struct described {
    struct planning *planning;
    uint32_t cap;
};

static enum err add_column(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    struct described *described = context;
    struct plan *plan = described->planning->plan;
    struct arena *arena = described->planning->arena;
    if (n < 2 || values[0].bytes == NULL || values[1].bytes == NULL) {
        return error_set(e, ERR_INTERNAL, "DuckDB describes a column without name and type");
    }
    if (plan->n_columns == described->cap) {
        described->cap = described->cap == 0 ? 16 : described->cap * 2;
        struct plan_column *columns = arena_alloc(arena, described->cap * sizeof(*columns));
        if (plan->n_columns > 0) {
            memcpy(columns, plan->columns, plan->n_columns * sizeof(*columns));
        }
        plan->columns = columns;
    }
    plan->columns[plan->n_columns++] = (struct plan_column){.name = arena_strdup(arena, values[0].bytes),
                                                            .type = arena_strdup(arena, values[1].bytes)};
    return ERR_OK;
}

static enum err describe_as(struct planning *p, const char *before, const char *after, struct error *e)
{
    struct described described = {.planning = p};
    struct buf sql = {0};
    const struct buf *bound = p->plan->n_customs > 0 ? &p->planned : &p->statement;
    buf_format(&sql, "DESCRIBE %s", before);
    buf_append(&sql, bound->data, sql_trimmed_bytes(bound->data)); /* its semicolon would end what is around it */
    buf_text(&sql, after);
    enum err err = duck_rows(p->planner->connection, sql.data, NULL, 0, add_column, &described, e);
    buf_deinit(&sql);
    return err;
}

/* DuckDB knows the data sets that the statement names, and guesses at tables of its own. */
static void name_data_sets(const struct planning *p, struct error *e)
{
    char *guess = strstr(e->message, "\nDid you mean \"");
    char *end = guess != NULL ? strchr(guess + 1, '\n') : NULL;
    if (strstr(e->message, "Catalog Error: Table with name ") != e->message) {
        return;
    }
    for (uint32_t i = 0; guess != NULL && i < p->n_tables; i++) {
        if (strstr(guess, p->tables[i].name) != NULL) {
            return;
        }
    }
    if (guess != NULL) {
        memmove(guess, end != NULL ? end : guess + strlen(guess), end != NULL ? strlen(end) + 1 : 1);
    }
    error_hint(e, "named data sets are in `capstan table list`; files are named in quotes, with their whole path");
}

/*
 * Binds the statement as the user wrote it, and so finds what is wrong with it. A few kinds of queries, such as SUMMARIZE,
 * can only be described as a derived table.
 */
static enum err describe(struct planning *p, struct error *e)
{
    struct error first = {0};
    enum err err = describe_as(p, "", "", &first);
    if (err == ERR_OK) {
        return ERR_OK;
    }
    if (strncmp(first.message, "Parser Error", 12) == 0 && describe_as(p, "SELECT * FROM (", "\n)", NULL) == ERR_OK) {
        return ERR_OK;
    }
    duck_excerpt_without(&first, "DESCRIBE ");
    name_data_sets(p, &first);
    if (e != NULL) {
        *e = first;
    }
    return err;
}

static enum err read_plan(struct planning *p, struct error *e)
{
    struct buf json = {0};
    struct plan_node *root = NULL;
    struct buf sql = {0};
    enum err err = planner__ask(p->planner, "SELECT json_serialize_plan($1::VARCHAR, optimize := true)",
                                p->planned.data, p->planned.n, &json, e);
    if (err == ERR_OK && json.n == 0) {
        err = error_set(e, ERR_PRECONDITION, "a constant that DuckDB cannot write into a plan");
    }
    if (err == ERR_OK) {
        err = plan_read(json.data, json.n, p->arena, &root, e);
    }
    if (err == ERR_OK && root->n_columns != p->plan->n_columns) {
        err = error_set(e, ERR_PRECONDITION, "the plan has other columns than the statement");
    }
    if (err == ERR_OK) {
        err = unparse_result(&sql, root, p->plan->columns, p->plan->n_columns, e);
    }
    if (err == ERR_OK) {
        p->plan->root = root;
    }
    buf_deinit(&json);
    buf_deinit(&sql);
    return err;
}

static enum err set_optimizers(struct planner *planner, const char *off, struct error *e)
{
    struct buf sql = {0};
    buf_format(&sql, "SET disabled_optimizers = '%s'", off);
    enum err err = duck_run(planner->connection, sql.data, e);
    buf_deinit(&sql);
    return err;
}

/*
 * Once more with nearly all optimizers, if the first plan cannot be used; its reason counts. The setting is everybody's, so
 * nobody else may be planning then.
 */
static enum err read_plan_again(struct planning *p, const struct error *reason, struct error *e)
{
    struct error second = {0};
    enum err err = set_optimizers(p->planner, OPTIMIZERS_OFF_MINIMAL, &second);
    if (err == ERR_OK) {
        err = read_plan(p, &second);
    }
    enum err reset = set_optimizers(p->planner, OPTIMIZERS_OFF, e);
    if (reset != ERR_OK) {
        return reset;
    }
    if (planner__is_fatal(err)) {
        return error_set(e, err, "%s", second.code != ERR_OK ? second.message : reason->message);
    }
    if (err != ERR_OK) {
        p->plan->unsupported = arena_strdup(p->arena, reason->message);
    }
    return ERR_OK;
}

/* Describes what is planned, and reads its plan, with estimates. */
static enum err describe_and_read(struct planning *p, struct error *e)
{
    struct estimating estimating;
    struct error reason = {0};
    planner__estimate_begin(p, &estimating);
    enum err err = describe(p, e);
    enum err read = err == ERR_OK ? read_plan(p, &reason) : ERR_OK;
    enum err estimated = planner__estimate_end(p, &estimating, err == ERR_OK ? e : NULL);
    if (err != ERR_OK || estimated != ERR_OK) {
        return err != ERR_OK ? err : estimated;
    }
    if (planner__is_fatal(read)) {
        return error_set(e, read, "%s", reason.message);
    }
    return read == ERR_OK ? ERR_OK : read_plan_again(p, &reason, e);
}

/* The columns as Arrow has them, which DuckDB only tells of a result; one that needs no rows. */
static enum err export_schema(struct planning *p, struct error *e)
{
    struct duck_result *result = NULL;
    struct ArrowArray rows = {0};
    struct buf sql = {0};
    buf_text(&sql, "SELECT * FROM (");
    buf_append(&sql, p->planned.data, p->planned.n);
    buf_text(&sql, "\n) LIMIT 0");
    enum err err = duck_query(p->planner->connection, sql.data, &result, e);
    /* To its end: DuckDB undoes what follows a result that was left open, such as a new function. */
    if (err == ERR_OK) {
        err = duck_result_next(result, &rows, e);
    }
    if (err == ERR_OK) {
        err = duck_result_schema(result, p->out_schema, e);
    }
    if (rows.release != NULL) {
        rows.release(&rows);
    }
    duck_result_close(result);
    buf_deinit(&sql);
    return err;
}

static enum err bind_and_read(struct planning *p, const char *sql, struct error *e)
{
    buf_reset(&p->planned);
    buf_reset(&p->statement);
    buf_reset(&p->task);
    p->plan->n_columns = 0;
    enum err err = planner__create_views(p, e);
    if (err == ERR_OK) {
        err = rewrite(p, sql, e);
    }
    return err == ERR_OK ? describe_and_read(p, e) : err;
}

/* Notes what the plan depends on. */
static void note_sources(struct planning *p)
{
    struct plan *plan = p->plan;
    plan->is_repeatable = plan_repeat_statement(p->parsed);
    plan->sources = arena_zalloc(p->arena, (p->n_tables + 1) * sizeof(char *));
    for (uint32_t i = 0; i < p->n_tables; i++) {
        if (p->is_used[i]) {
            plan->sources[plan->n_sources++] = arena_strdup(p->arena, p->tables[i].source);
        }
    }
}

static enum err plan_select(struct planning *p, const char *sql, struct error *e)
{
    enum err err = planner__find_customs(p, e);
    if (err == ERR_OK) {
        err = planner__add_customs(p, e);
    }
    if (err == ERR_OK) {
        err = bind_and_read(p, sql, e);
        if (err != ERR_OK && !planner__is_fatal(err) && p->has_old_views) {
            planner__forget_views(p->planner); /* perhaps the files have other columns by now */
            err = bind_and_read(p, sql, e);
        }
    }
    if (err == ERR_OK) {
        planner__attach_customs(p);
        note_sources(p);
        err = write_task_sql(p, p->task.n > 0 ? p->task.data : p->statement.data, e);
    }
    if (err == ERR_OK && p->out_schema != NULL) {
        err = export_schema(p, e);
    }
    planner__drop_views(p->planner);
    duck_forget_sources(p->planner->connection);
    planner__drop_customs(p);
    return err;
}

/* DuckDB does not tell which tables such a statement reads, so every data set counts whose name is somewhere in it. */
static enum err plan_other(struct planning *p, const char *sql, struct error *e)
{
    for (uint32_t i = 0; i < p->n_tables; i++) {
        size_t n = strlen(p->tables[i].name);
        for (const char *at = sql; *at != '\0' && !p->is_used[i]; at++) {
            p->is_used[i] = strncasecmp(at, p->tables[i].name, n) == 0;
        }
    }
    if (sql_has_call(sql, "custom")) {
        error_set(e, ERR_INVALID, "custom(…) can only be used in a plain SELECT");
        error_hint(e, "PIVOT needs a list of values (ON … IN (…)); EXPLAIN cannot have it at all");
        return ERR_INVALID;
    }
    p->plan->unsupported = "it is not a plain SELECT";
    return write_task_sql(p, sql, e);
}

static enum err parse_select(struct planning *p, const char *sql, bool *out_is_select, struct error *e)
{
    enum err err = parse(p, sql, p->request->params_json, e);
    if (err == ERR_OK) {
        err = check_parsed(p, sql, out_is_select, e);
    }
    return err == ERR_OK && *out_is_select ? plan_sql_check_params(p->parsed, p->params, e) : err;
}

/* A name that is taken stays what it is. The same files by the same name are what an earlier CREATE TABLE made of it. */
static enum err check_new_table(const struct planning *p, const struct query_write *write, struct error *e)
{
    const char *source = arena_format(p->arena, "%s/*.parquet", write->to);
    for (uint32_t i = 0; write->table != NULL && i < p->n_tables; i++) {
        const struct planner_table *table = &p->tables[i];
        if (strcasecmp(table->name, write->table) == 0 && strcmp(table->source, source) != 0) {
            error_set(e, ERR_INVALID, "there is a data set '%s' already, which reads %.300s", table->name,
                      table->source);
            error_hint(e, "take another name, or give this one up first: capstan table rm %s", table->name);
            return ERR_INVALID;
        }
    }
    return ERR_OK;
}

/* A statement that writes: its SELECT is planned. Others that DuckDB does not parse into SELECTs are left as they are. */
static enum err plan_no_select(struct planning *p, struct error *e)
{
    struct query_write write = {0};
    bool is_select = false;
    enum err err = query_write_read(p->request->sql, p->request->warehouse, p->arena, &write, e);
    if (err == ERR_OK && write.sql == NULL && p->params != NULL && json_count(p->params) > 0) {
        error_set(e, ERR_INVALID, "a statement of this kind cannot have parameters");
        error_hint(e, "write the values into its text");
        return ERR_INVALID;
    }
    if (err != ERR_OK || write.sql == NULL) {
        return err == ERR_OK ? plan_other(p, p->request->sql, e) : err;
    }
    err = check_new_table(p, &write, e);
    if (err != ERR_OK) {
        return err;
    }
    json_free(p->parsed);
    json_free(p->params);
    p->parsed = NULL;
    p->params = NULL;
    err = parse_select(p, write.sql, &is_select, e);
    if (err == ERR_OK && !is_select) {
        err = error_set(e, ERR_INVALID, "only the rows of a plain SELECT can be written");
    }
    if (err == ERR_OK) {
        err = plan_select(p, write.sql, e);
    }
    p->plan->write = write;
    return err;
}

/*
 * Planning has little memory, and a plan has the values of constants in it, however large they are. What is too large for it is
 * run as it stands, with the memory that queries have.
 */
static enum err leave_whole(struct planning *p, struct error *e)
{
    if (strstr(e->message, "Out of Memory") == NULL || p->out_schema != NULL || p->params != NULL ||
        sql_has_call(p->request->sql, "custom")) {
        return ERR_EXHAUSTED;
    }
    *e = (struct error){0};
    enum err err = plan_other(p, p->request->sql, e);
    p->plan->unsupported = "to plan it takes more memory than there is for that";
    return err;
}

static enum err plan_statement(struct planning *p, struct error *e)
{
    bool is_select = false;
    p->tables = p->request->tables;
    p->n_tables = p->request->n_tables;
    p->plan = arena_zalloc(p->arena, sizeof(*p->plan));
    p->is_used = arena_zalloc(p->arena, p->n_tables * sizeof(bool));
    enum err err = parse_select(p, p->request->sql, &is_select, e);
    if (err == ERR_OK && is_select) {
        err = plan_select(p, p->request->sql, e);
        err = err == ERR_EXHAUSTED ? leave_whole(p, e) : err;
    } else if (err == ERR_OK && p->out_schema == NULL) {
        err = plan_no_select(p, e);
    } else if (err == ERR_OK) {
        err = error_set(e, ERR_INVALID, "custom(…) can only read a plain SELECT");
    }
    json_free(p->parsed);
    json_free(p->params);
    buf_deinit(&p->planned);
    buf_deinit(&p->statement);
    buf_deinit(&p->task);
    return err;
}

enum err planner__plan_inside(const struct planning *outer, const char *sql, struct plan **out_plan,
                              struct ArrowSchema *out_schema, struct error *e)
{
    struct planner_request request = *outer->request;
    request.sql = sql;
    request.params_json = NULL; /* they are in the SQL */
    struct planning p = {.planner = outer->planner,
                         .request = &request,
                         .arena = outer->arena,
                         .depth = outer->depth + 1,
                         .out_schema = out_schema};
    enum err err = plan_statement(&p, e);
    *out_plan = p.plan;
    return err;
}

enum err query_plan_request(struct planner *planner, const struct planner_request *request, struct arena *arena,
                            struct plan **out_plan, struct error *e)
{
    struct planning p = {.planner = planner, .request = request, .arena = arena};
    enum err err = plan_statement(&p, e);
    if (err == ERR_OK) {
        *out_plan = p.plan;
    }
    return err;
}

enum err query_plan(struct planner *planner, const char *sql, const char *params_json,
                    const struct planner_table *tables, uint32_t n_tables, struct arena *arena, struct plan **out_plan,
                    struct error *e)
{
    struct planner_request request = {.sql = sql, .params_json = params_json, .tables = tables, .n_tables = n_tables};
    return query_plan_request(planner, &request, arena, out_plan, e);
}
