/*
 * sql_plan.c - the planning task of a query: from SQL to a physical plan.
 *
 * If the plan is one task's work, that task is run at once: it would come back to a worker anyway. The plan is reported
 * all the same, for those who ask how the query was run.
 */
#include <inttypes.h>
#include <string.h>

#include "exec/sql_internal.h"
#include "query/cut.h"
#include "query/explain.h"
#include "query/plan_repeat.h"
#include "query/split.h"

/* What the inputs ask for. Texts belong to the tree of the inputs, the rest to the arena. */
struct request {
    const char *sql;
    const char *params;    /* JSON; NULL: none */
    const char *warehouse; /* where CREATE TABLE … AS makes its tables; NULL: nowhere */
    struct planner_table *tables;
    uint32_t n_tables;
    bool is_explained; /* and not run */
    struct cut_options cut;
    uint8_t key[SHA256_BYTES]; /* stands for all that was asked */
    const char **paths;        /* what the plan depends on, if that is all */
    uint32_t n_paths;
    int64_t planned_ms; /* when the planning began */
};

/* ---- reading the inputs ---- */

static bool read_params(struct sql_run *run, const struct json *inputs, struct arena *arena, struct request *out)
{
    const struct json *params = json_get(inputs, "params");
    if (params == NULL) {
        return true;
    }
    if (json_kind_of(params) != JSON_ARRAY && json_kind_of(params) != JSON_OBJECT) {
        exec_fail(run->out, true, "inputs.params must be a list, for $1, $2 and so on, or an object, for named ones");
        return false;
    }
    struct buf text = {0};
    exec__write_tree(&text, params);
    out->params = arena_strdup(arena, text.data);
    buf_deinit(&text);
    return true;
}

static bool read_table(struct sql_run *run, const struct json *table, struct planner_table *out)
{
    out->format = "";
    if (!exec__text_member(table, "name", &out->name, run->out) ||
        !exec__text_member(table, "source", &out->source, run->out) ||
        !exec__text_member(table, "format", &out->format, run->out)) {
        return false;
    }
    if (out->name == NULL || out->source == NULL) {
        exec_fail(run->out, true, "each of inputs.tables must have a name and a source");
        return false;
    }
    return true;
}

static bool read_tables(struct sql_run *run, const struct json *inputs, struct arena *arena, struct request *out)
{
    const struct json *tables = json_get(inputs, "tables");
    size_t n = json_count(tables);
    if (tables == NULL) {
        return true;
    }
    if (json_kind_of(tables) != JSON_ARRAY || n > LIMIT_TABLES) {
        exec_fail(run->out, true, "inputs.tables must be a list of at most %d data sets", LIMIT_TABLES);
        return false;
    }
    out->tables = arena_zalloc(arena, (n + 1) * sizeof(*out->tables));
    out->n_tables = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        if (!read_table(run, json_at(tables, i), &out->tables[i])) {
            return false;
        }
    }
    return true;
}

/* A whole number of the options; `value` stays as it is if the member is absent. */
static bool read_option(struct sql_run *run, const struct json *options, const char *key, uint64_t max, uint64_t *value)
{
    const struct json *node = json_get(options, key);
    if (node == NULL) {
        return true;
    }
    uint64_t number = 0;
    if (!json_uint(node, &number) || number > max) {
        exec_fail(run->out, true, "inputs.options.%s must be a whole number from 0 to %" PRIu64, key, max);
        return false;
    }
    *value = number;
    return true;
}

static bool read_options(struct sql_run *run, const struct json *inputs, struct request *out)
{
    const struct json *options = json_get(inputs, "options");
    struct cut_options *cut = &out->cut;
    uint64_t slots = run->sql->options.threads;
    uint64_t partitions = 0;
    *cut = (struct cut_options){.broadcast_bytes = SQL_BROADCAST_BYTES,
                                .single_task_bytes = SQL_SINGLE_TASK_BYTES,
                                .partition_bytes = PHYSICAL_PARTITION_BYTES,
                                .is_forced = json_bool(json_get(options, "forced"))};
    cut->tail_bytes = cut->is_forced ? 0 : SQL_TAIL_BYTES;
    if (!read_option(run, options, "slots", LIMIT_TASKS_PER_JOB, &slots) ||
        !read_option(run, options, "partitions", LIMIT_PARTITIONS, &partitions) ||
        !read_option(run, options, "broadcast_bytes", UINT64_MAX, &cut->broadcast_bytes) ||
        !read_option(run, options, "tail_bytes", UINT64_MAX, &cut->tail_bytes) ||
        !read_option(run, options, "single_task_bytes", UINT64_MAX, &cut->single_task_bytes) ||
        !read_option(run, options, "partition_bytes", UINT64_MAX, &cut->partition_bytes)) {
        return false;
    }
    cut->slots = slots > 0 ? (uint32_t)slots : 1;
    cut->partitions = (uint32_t)partitions;
    return true;
}

static bool read_request(struct sql_run *run, const struct json *inputs, struct arena *arena, struct request *out)
{
    *out = (struct request){.is_explained = json_bool(json_get(inputs, "explain"))};
    if (!exec__text_member(inputs, "sql", &out->sql, run->out) ||
        !exec__text_member(inputs, "warehouse", &out->warehouse, run->out)) {
        return false;
    }
    if (out->sql == NULL || strlen(out->sql) > LIMIT_SQL_BYTES) {
        exec_fail(run->out, true, "inputs.sql must be a query of at most %d bytes", LIMIT_SQL_BYTES);
        return false;
    }
    return read_params(run, inputs, arena, out) && read_tables(run, inputs, arena, out) &&
           read_options(run, inputs, out);
}

/* ---- planning ---- */

struct asked {
    const struct operators *operators;
    bool is_missing; /* an operator that was asked for is not here */
};

static enum err ask_operator(void *context, const char *op, const char *config_json, const struct ArrowSchema *in,
                             struct ArrowSchema *out, struct error *e)
{
    struct asked *asked = context;
    enum err err = asked->operators == NULL
                       ? error_set(e, ERR_NOT_FOUND, "custom physical operator '%s' is not registered on worker", op)
                       : operators_schema(asked->operators, op, config_json, in, out, e);
    asked->is_missing = asked->is_missing || err == ERR_NOT_FOUND;
    return err;
}

static enum err plan_and_cut(struct sql_run *run, struct planner *planner, struct request *request, struct arena *arena,
                             struct physical_plan **out, struct error *e)
{
    struct query_planned planned = {0};
    struct asked asked = {.operators = run->sql->options.operators};
    struct planner_request what = {.sql = request->sql,
                                   .params_json = request->params,
                                   .tables = request->tables,
                                   .n_tables = request->n_tables,
                                   .warehouse = request->warehouse,
                                   .custom = ask_operator,
                                   .custom_context = &asked};
    enum err err = query_plan_files(planner, &what, arena, &planned, e);
    if (err == ERR_NOT_FOUND && asked.is_missing) {
        return error_set(e, ERR_UNAVAILABLE, "%s", e->message); /* another worker may have it */
    }
    if (err == ERR_OK && !plan_repeat_files(planned.plan, arena, &request->paths, &request->n_paths)) {
        request->n_paths = 0;
    }
    if (err == ERR_OK) {
        request->planned_ms = planned.started_ms;
        request->cut.catalog = planned.catalog;
        err = query_cut(planned.plan, &request->cut, arena, out, e);
    }
    return err;
}

/* What the user has to mend. */
static bool is_users(enum err err)
{
    return err == ERR_INVALID || err == ERR_NOT_FOUND;
}

/* Whether the planner may not be as it was before: it was interrupted, or DuckDB itself has failed. */
static bool is_spoiled(enum err err)
{
    return err != ERR_OK && err != ERR_UNAVAILABLE && !is_users(err);
}

/* With a planner that has what it needs. `out_has_planner`: false if there is none. */
static enum err plan_once(struct sql_run *run, struct request *request, struct arena *arena, struct physical_plan **out,
                          bool *out_has_planner, struct error *e)
{
    struct planner *planner = NULL;
    enum err err = sql__take_planner(run, &planner, e);
    *out_has_planner = err == ERR_OK;
    if (err == ERR_OK) {
        err = plan_and_cut(run, planner, request, arena, out, e);
        sql__give_planner(run, planner, is_spoiled(err));
    }
    return err;
}

/* False with a failed outcome. What DuckDB errs at twice, it errs at on every worker. */
static bool make_plan(struct sql_run *run, struct request *request, struct arena *arena, struct physical_plan **out)
{
    struct error e = {0};
    bool has_planner = false;
    struct physical_plan *plan = NULL;
    enum err err = plan_once(run, request, arena, &plan, &has_planner, &e);
    if (err != ERR_OK && duck_has_failed(&e)) {
        e = (struct error){0};
        err = plan_once(run, request, arena, &plan, &has_planner, &e);
    }
    if (err == ERR_OK) {
        ASSERT(plan != NULL);
        err = duck_engine(&plan->engine, &e);
    }
    if (err == ERR_OK) {
        /* A plan that is only shown can be sent as a query of its own. */
        plan->first_job_stage = request->is_explained ? 0 : (uint32_t)run->task->stage + 1;
        *out = plan;
        return true;
    }
    if (err == ERR_NOT_FOUND && e.hint[0] == '\0') {
        error_hint(&e, "paths must mean the same on all workers");
    } else if (duck_has_failed(&e)) {
        sql__hint_of_failure(&e);
    }
    sql__fail(run, has_planner && (is_users(err) || duck_has_failed(&e)), &e);
    return false;
}

bool sql__write_plan(struct sql_run *run, const struct physical_plan *plan)
{
    struct exec_outcome *out = run->out;
    buf_reset(&out->plan);
    physical_write(&out->plan, plan);
    if (out->plan.n > LIMIT_PLAN_BYTES) {
        exec_fail(out, true, "the plan of the query has %zu bytes, %d are allowed; fewer files or larger splits help",
                  out->plan.n, LIMIT_PLAN_BYTES);
        buf_deinit(&out->plan);
        return false;
    }
    out->is_success = true;
    return true;
}

/* One row of two texts: the plan for people, and as JSON. */
static void explain(struct sql_run *run, const struct physical_plan *plan)
{
    struct buf text = {0};
    struct buf sql = {0};
    explain_write(&text, plan);
    buf_text(&sql, "SELECT ");
    sql_write_text(&sql, text.data, text.n);
    buf_text(&sql, " AS \"explain\", ");
    sql_write_text(&sql, run->out->plan.data, run->out->plan.n);
    buf_text(&sql, " AS \"plan\"");
    buf_deinit(&run->out->plan); /* nobody is to run it */
    sql__run_select(run, sql.data);
    buf_deinit(&text);
    buf_deinit(&sql);
}

/* Whether the query is one task that can be run here. */
static bool is_for_here(const struct sql_run *run, const struct physical_plan *plan)
{
    if (plan->n_stages != 1 || physical_tasks(plan, 0) != 1) {
        return false;
    }
    const char *op = physical_required_op(&plan->stages[0]);
    const struct operators *operators = run->sql->options.operators;
    return op == NULL || (operators != NULL && operators_have(operators, op));
}

/* What was asked: the text of the inputs, and which stage of the job it is. */
static void make_key(const struct sql_run *run, uint8_t out[SHA256_BYTES])
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_update(&sha, &run->task->stage, sizeof(run->task->stage));
    sha256_update(&sha, run->task->inputs, run->task->n_inputs);
    sha256_final(&sha, out);
}

/* The plan of the same query from before. False if there is none. */
static bool find_plan(struct sql_run *run, const struct request *request, struct arena *arena,
                      struct physical_plan **out)
{
    struct buf text = {0};
    bool is_found = sql__known_find(run->sql, request->key, &text) &&
                    physical_read(text.data, text.n, arena, out, NULL, NULL) == ERR_OK;
    if (is_found) {
        run->out->plan = text;
        run->out->is_success = true;
    } else {
        buf_deinit(&text);
    }
    return is_found;
}

/* False with a failed outcome. */
static bool find_or_make_plan(struct sql_run *run, struct request *request, struct arena *arena,
                              struct physical_plan **out)
{
    make_key(run, request->key);
    if (find_plan(run, request, arena, out)) {
        return true;
    }
    if (!make_plan(run, request, arena, out) || !sql__write_plan(run, *out)) {
        return false;
    }
    if (request->n_paths > 0) {
        struct sql_known_files files = {request->paths, request->n_paths, request->planned_ms};
        sql__known_add(run->sql, request->key, &run->out->plan, &files);
    }
    return true;
}

void sql__plan(struct sql_run *run, const struct json *inputs)
{
    struct arena arena = {0};
    struct request request;
    struct physical_plan *plan = NULL;
    if (read_request(run, inputs, &arena, &request) && find_or_make_plan(run, &request, &arena, &plan)) {
        if (!request.is_explained) {
            sql__folders_of_plan(run->sql, run->task->job_id, plan);
        }
        if (request.is_explained) {
            explain(run, plan);
        } else if (is_for_here(run, plan)) {
            sql__run_stage(run, plan, 0, 0);
        }
        if (!run->out->is_success) {
            buf_deinit(&run->out->plan);
        }
    }
    arena_deinit(&arena);
}
