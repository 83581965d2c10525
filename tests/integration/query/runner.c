#include "query/runner.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/num.h"
#include "query/explain.h"
#include "query/operators.h"
#include "query/order.h"
#include "query/physical.h"
#include "query/refine.h"

#define BYTES_PER_ROW 100 /* what a row counts as, where a size is needed */

enum err runner_open(struct runner *runner, struct error *e)
{
    struct duck_options options = {.threads = 2, .memory_bytes_max = 2000000000};
    enum err err = duck_open(&options, &runner->duck, e);
    if (err == ERR_OK) {
        err = duck_connect(runner->duck, &runner->connection, e);
    }
    if (err == ERR_OK) {
        err = planner_open(&runner->planner, e);
    }
    return err;
}

void runner_close(struct runner *runner)
{
    planner_close(runner->planner);
    duck_disconnect(runner->connection);
    duck_close(runner->duck);
    *runner = (struct runner){0};
}

enum err run_plain(struct runner *runner, const char *sql, struct table *out, struct error *e)
{
    return table_append(out, runner->connection, sql, e);
}

/*
 * DuckDB 1.5.6 sometimes pushes the filter that a join makes while it runs through a TOP_N below it, which then finds other
 * rows: joins with a `... LIMIT 3` had 444 rows or none, from run to run. What is compared with must be right.
 */
enum err run_whole(struct runner *runner, const char *sql, struct table *out, struct error *e)
{
    enum err err = duck_run(runner->connection, "SET disabled_optimizers = 'join_filter_pushdown'", e);
    if (err == ERR_OK) {
        err = table_append(out, runner->connection, sql, e);
    }
    struct error reset;
    enum err reset_err = duck_run(runner->connection, "RESET disabled_optimizers", &reset);
    ASSERT(reset_err == ERR_OK);
    return err;
}

/* One run of a plan. Sizes are by stage id, which stays when the plan is refined. */
struct run {
    struct runner *runner;
    const struct run_options *options;
    struct arena *arena;
    const struct physical_plan *plan;
    struct stage_size *sizes;
    uint32_t *n_tasks; /* of finished stages */
    uint32_t n_ids;
    struct run_facts *facts;
    struct table *out;
    struct error *e;
};

static struct stage_size *size_of(const struct run *run, uint32_t stage)
{
    return &run->sizes[run->plan->stages[stage].id];
}

/* The partitions of a parent that a scheduler gives to the task: all, or its share by number. */
static struct physical_group given_partitions(struct run *run, uint32_t stage, uint32_t task, uint32_t parent)
{
    uint32_t *parents = NULL;
    bool *whole = NULL;
    uint32_t n = physical_parents(run->plan, stage, run->arena, &parents, &whole);
    uint32_t n_tasks = physical_tasks(run->plan, stage);
    uint32_t n_partitions = run->plan->stages[parent].output.partitions;
    uint32_t at = 0;
    while (at < n && parents[at] != parent) {
        at++;
    }
    if (at == n) {
        return (struct physical_group){.first = 1, .last = 0}; /* nothing at all: rows will be missing */
    }
    if (whole[at]) {
        return (struct physical_group){.first = 0, .last = UINT32_MAX};
    }
    return (struct physical_group){.first = task * n_partitions / n_tasks,
                                   .last = (task + 1) * n_partitions / n_tasks - 1};
}

/* What one task reads of one input: a view over tables of the stage's tasks, of which it sees what it was given. */
static enum err make_input(struct run *run, uint32_t stage, uint32_t task, const struct physical_input *input)
{
    const struct physical_stage *from = &run->plan->stages[input->stage];
    struct physical_group given = given_partitions(run, stage, task, input->stage);
    struct physical_group group = physical_task_group(run->plan, stage, task);
    bool has_column = exchange_is_partitioned(from->output.exchange);
    struct buf sql = {0};
    if (run->options->mistake == MISTAKE_SHARE) {
        given = group = (struct physical_group){.first = 0, .last = UINT32_MAX};
    }
    buf_format(&sql, "CREATE OR REPLACE TEMP VIEW \"%s\" AS ", input->name);
    for (uint32_t i = 0; i < run->n_tasks[from->id]; i++) {
        buf_format(&sql, "%sSELECT *%s FROM s%" PRIu32 "_t%" PRIu32, i == 0 ? "" : " UNION ALL ",
                   has_column ? " EXCLUDE (" PHYSICAL_PARTITION_COLUMN ")" : "", from->id, i);
        if (has_column) {
            buf_format(&sql, " WHERE " PHYSICAL_PARTITION_COLUMN " BETWEEN %" PRIu32 " AND %" PRIu32, given.first,
                       given.last);
        } else if (given.first > given.last) {
            buf_text(&sql, " WHERE false");
        }
        if (!input->is_whole) {
            buf_format(&sql, " AND " PHYSICAL_PARTITION_COLUMN " BETWEEN %" PRIu32 " AND %" PRIu32, group.first,
                       group.last);
        }
    }
    enum err err = duck_run(run->runner->connection, sql.data, run->e);
    buf_deinit(&sql);
    return err;
}

/* What an operator makes of the rows, as SQL: they go into a table first, so that it sees all of them. */
static enum err apply_operator(struct run *run, const struct physical_stage *s, uint32_t task, struct buf *query)
{
    struct buf sql = {0};
    struct buf rows = {0};
    buf_format(&sql, "CREATE OR REPLACE TEMP TABLE operator_in AS %s", query->data);
    enum err err = duck_run(run->runner->connection, sql.data, run->e);
    if (err == ERR_OK) {
        err = operator_sql(&rows, s->custom.op, s->custom.config_json, "operator_in", run->e);
    }
    if (err == ERR_OK) {
        buf_reset(query);
        if (exchange_is_partitioned(s->output.exchange)) {
            buf_reset(&sql);
            buf_format(&sql, "(%s)", rows.data);
            physical_scatter_sql(query, s, task, sql.data);
        } else {
            buf_text(query, rows.data);
        }
    }
    buf_deinit(&sql);
    buf_deinit(&rows);
    return err;
}

/* A file is a table here, called w<stage>_<task>; what is left of the rows is its name, and how many there are. */
static enum err write_file(struct run *run, const struct physical_stage *s, uint32_t task, struct buf *query)
{
    struct buf sql = {0};
    buf_format(&sql, "CREATE OR REPLACE TEMP TABLE w%" PRIu32 "_%" PRIu32 " AS %s", s->id, task, query->data);
    enum err err = duck_run(run->runner->connection, sql.data, run->e);
    buf_reset(query);
    buf_format(query, "SELECT 'w%" PRIu32 "_%" PRIu32 "' AS file, count(*) AS rows FROM w%" PRIu32 "_%" PRIu32, s->id,
               task, s->id, task);
    buf_deinit(&sql);
    return err;
}

static enum err add_file(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    struct buf *sql = context;
    (void)n;
    (void)e;
    buf_format(sql, "%sFROM %s", sql->n > 0 ? " UNION ALL " : "", values[0].bytes);
    return ERR_OK;
}

/* The result is what is in the files that were named. */
static enum err publish(struct run *run, struct buf *query)
{
    struct buf sql = {0};
    enum err err = duck_rows(run->runner->connection, query->data, NULL, 0, add_file, &sql, run->e);
    run->facts->is_published = true;
    buf_deinit(query);
    *query = sql;
    return err;
}

/* Runs what comes before the last statement, and leaves that. */
static enum err run_before(struct run *run, struct buf *sql)
{
    size_t last = physical_last_statement(sql->data);
    if (last == 0) {
        return ERR_OK;
    }
    char *query = arena_strdup(run->arena, sql->data + last);
    sql->data[last] = '\0';
    enum err err = duck_run(run->runner->connection, sql->data, run->e);
    buf_reset(sql);
    buf_text(sql, query);
    return err;
}

/* Keeps what the task yields: for readers, or as the result. */
static enum err keep_rows(struct run *run, const struct physical_stage *s, uint32_t task, const char *query)
{
    if (s->output.exchange == EXCHANGE_RESULT) {
        return table_append(run->out, run->runner->connection, query, run->e);
    }
    struct buf sql = {0};
    buf_format(&sql, "CREATE OR REPLACE TEMP TABLE s%" PRIu32 "_t%" PRIu32 " AS ", s->id, task);
    if (run->options->mistake == MISTAKE_SCATTER && exchange_is_partitioned(s->output.exchange)) {
        buf_format(&sql, "SELECT * REPLACE (row_number() OVER () %% %" PRIu32 " AS %s) FROM (%s)", s->output.partitions,
                   PHYSICAL_PARTITION_COLUMN, query);
    } else {
        buf_text(&sql, query);
    }
    enum err err = duck_run(run->runner->connection, sql.data, run->e);
    buf_deinit(&sql);
    return err;
}

/* Takes the largest part where parts are to be summed up. */
static void forget_sums(struct buf *sql)
{
    for (char *at = strstr(sql->data, "sum("); at != NULL; at = strstr(at, "sum(")) {
        at[0] = 'm';
        at[1] = 'a';
        at[2] = 'x';
    }
}

static enum err run_task(struct run *run, uint32_t stage, uint32_t task)
{
    const struct physical_stage *s = &run->plan->stages[stage];
    struct buf sql = {0};
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < s->n_inputs && err == ERR_OK; i++) {
        err = make_input(run, stage, task, &s->inputs[i]);
    }
    if (err == ERR_OK) {
        err = physical_task_sql(&sql, run->plan, stage, task, run->e);
    }
    if (err == ERR_OK && s->n_inputs > 0 && run->options->mistake == MISTAKE_AGGREGATE) {
        forget_sums(&sql);
    }
    if (err == ERR_OK) {
        err = run_before(run, &sql);
    }
    if (err == ERR_OK && s->custom.op != NULL) {
        run->facts->n_operator_tasks++;
        err = apply_operator(run, s, task, &sql);
    }
    if (err == ERR_OK && s->write.to != NULL) {
        err = write_file(run, s, task, &sql);
    }
    if (err == ERR_OK && s->publish.to != NULL) {
        err = publish(run, &sql);
    }
    if (err == ERR_OK) {
        err = keep_rows(run, s, task, sql.data);
    }
    if (err != ERR_OK && run->e != NULL) {
        err = error_set(run->e, err, "stage %" PRIu32 ", task %" PRIu32 ": %.1500s\n  in: %.2000s", s->id, task,
                        run->e->message, sql.data == NULL ? "" : sql.data);
    }
    buf_deinit(&sql);
    return err;
}

struct counts {
    uint64_t *bytes;
    uint32_t n;
    uint64_t rows;
    bool is_outside; /* a row belongs to a partition that there is not */
};

static enum err add_count(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    struct counts *counts = context;
    int64_t partition = -1;
    int64_t rows = 0;
    (void)n;
    if (!num_parse_int(values[1].bytes, &rows)) {
        return error_set(e, ERR_INTERNAL, "no count");
    }
    counts->rows += (uint64_t)rows;
    if (counts->n == 0) {
        return ERR_OK;
    }
    if (values[0].bytes == NULL || !num_parse_int(values[0].bytes, &partition) || partition < 0 ||
        partition >= (int64_t)counts->n) {
        return error_set(e, ERR_INTERNAL, "a row belongs to partition %s of %u",
                         values[0].bytes == NULL ? "NULL" : values[0].bytes, (unsigned)counts->n);
    }
    counts->bytes[partition] += (uint64_t)rows * BYTES_PER_ROW;
    return ERR_OK;
}

/* Counts what a stage has written, by partition. */
static enum err measure(struct run *run, uint32_t stage)
{
    const struct physical_stage *s = &run->plan->stages[stage];
    struct counts counts = {.n = s->output.partitions};
    enum err err = ERR_OK;
    /* Sizes are needed for what comes next; and no row may be at a partition that there is not. */
    bool is_counted = s->output.exchange != EXCHANGE_RESULT && (run->options->is_refined || counts.n > 0);
    counts.bytes = arena_zalloc(run->arena, (counts.n + 1) * sizeof *counts.bytes);
    for (uint32_t i = 0; i < run->n_tasks[s->id] && err == ERR_OK && is_counted; i++) {
        struct buf sql = {0};
        buf_format(&sql, "SELECT %s AS p, count(*) FROM s%" PRIu32 "_t%" PRIu32 " GROUP BY p",
                   counts.n > 0 ? PHYSICAL_PARTITION_COLUMN : "0", s->id, i);
        err = duck_rows(run->runner->connection, sql.data, NULL, 0, add_count, &counts, run->e);
        buf_deinit(&sql);
    }
    *size_of(run, stage) = (struct stage_size){.is_finished = true,
                                               .rows = counts.rows,
                                               .bytes = counts.rows * BYTES_PER_ROW,
                                               .n_partitions = counts.n,
                                               .partition_bytes = counts.bytes};
    return err;
}

/* Sieves that are no longer about to be chosen: they have taken the large side in, or are gone. */
static void count_sieves(struct run *run, const struct physical_plan *next)
{
    for (uint32_t i = 0; i < run->plan->n_stages; i++) {
        const struct physical_stage *before = &run->plan->stages[i];
        const struct physical_stage *after = NULL;
        for (uint32_t k = 0; k < next->n_stages; k++) {
            after = next->stages[k].id == before->id ? &next->stages[k] : after;
        }
        if (physical_is_sieve(before) && before->choice.is_open && after == NULL) {
            run->facts->n_sieves_out++;
        } else if (physical_is_sieve(before) && before->choice.is_open && !after->choice.is_open) {
            run->facts->n_sieves++;
        }
    }
}

static void refine(struct run *run)
{
    struct stage_size *sizes = arena_zalloc(run->arena, run->plan->n_stages * sizeof *sizes);
    struct refine_options options = {.partition_bytes = run->options->refine_bytes};
    for (uint32_t i = 0; i < run->plan->n_stages; i++) {
        sizes[i] = *size_of(run, i);
    }
    const struct physical_plan *next = query_refine(run->plan, sizes, &options, run->arena);
    count_sieves(run, next);
    run->facts->n_choices += next->n_stages < run->plan->n_stages ? 1 : 0;
    run->plan = next;
}

/* A stage that can be run now; PHYSICAL_NO_STAGE if there is none. */
static uint32_t next_stage(const struct run *run)
{
    for (uint32_t i = 0; i < run->plan->n_stages; i++) {
        const struct physical_stage *stage = &run->plan->stages[i];
        bool is_ready = !size_of(run, i)->is_finished;
        is_ready = is_ready && !(run->options->is_refined && physical_is_waiting(run->plan, i));
        for (uint32_t k = 0; k < stage->n_inputs && is_ready; k++) {
            is_ready = size_of(run, stage->inputs[k].stage)->is_finished;
        }
        if (is_ready) {
            return i;
        }
    }
    return PHYSICAL_NO_STAGE;
}

/* Unless partitions are grouped by their size, only a stage that will have no rows has one task for all of them. */
static bool is_group_of_nothing(const struct run *run, const struct physical_stage *s)
{
    return run->options->refine_bytes == 0 && s->n_splits == 0 && s->n_groups == 1;
}

static enum err run_stage(struct run *run, uint32_t stage)
{
    const struct physical_stage *s = &run->plan->stages[stage];
    uint32_t n = physical_tasks(run->plan, stage);
    enum err err = ERR_OK;
    if (run->options->mistake == MISTAKE_SPLIT && s->n_splits > 1) {
        n--;
    }
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        err = run_task(run, stage, i);
    }
    run->n_tasks[s->id] = n;
    run->facts->n_tasks_max = n > run->facts->n_tasks_max ? n : run->facts->n_tasks_max;
    run->facts->n_grouped += s->n_groups > 0 ? 1 : 0;
    run->facts->n_empty_scans += s->n_splits > 0 && s->splits[0].is_empty ? 1 : 0;
    run->facts->n_empty_tasks += is_group_of_nothing(run, s) ? 1 : 0;
    if (s->n_splits > run->facts->n_splits_max) {
        run->facts->n_splits_max = s->n_splits;
    }
    run->facts->n_ranged += strstr(s->sql, "({{task}} = 0 OR ") != NULL ? 1 : 0;
    if (s->n_splits > 0 && n > run->facts->n_readers_max) {
        run->facts->n_readers_max = n;
    }
    return err == ERR_OK ? measure(run, stage) : err;
}

static enum err drop_tables(struct run *run)
{
    enum err err = ERR_OK;
    for (uint32_t id = 0; id < run->n_ids && err == ERR_OK; id++) {
        for (uint32_t i = 0; i < run->n_tasks[id]; i++) {
            char sql[64];
            snprintf(sql, sizeof sql, "DROP TABLE IF EXISTS s%" PRIu32 "_t%" PRIu32, id, i);
            err = duck_run(run->runner->connection, sql, run->e);
        }
    }
    return err;
}

static enum err run_stages(struct run *run)
{
    enum err err = ERR_OK;
    uint32_t stage = 0;
    uint32_t n_run = 0;
    while (err == ERR_OK && (stage = next_stage(run)) != PHYSICAL_NO_STAGE) {
        bool is_result = run->plan->stages[stage].output.exchange == EXCHANGE_RESULT;
        err = run_stage(run, stage);
        n_run++;
        if (err == ERR_OK && is_result) {
            run->facts->n_stages = n_run;
            return drop_tables(run);
        }
        if (err == ERR_OK && run->options->is_refined) {
            refine(run);
        }
    }
    enum err ignored = drop_tables(run);
    (void)ignored;
    return err != ERR_OK ? err : error_set(run->e, ERR_INTERNAL, "no stage can be run, but there is no result");
}

/* Plans and cuts. The plan that is handed out has been written as text and read again. */
static enum err prepare(struct runner *runner, const char *sql, const struct cut_options *options, struct arena *arena,
                        struct physical_plan **out, bool *out_is_ordered, struct error *e)
{
    struct plan *plan = NULL;
    struct split_catalog *catalog = NULL;
    struct physical_plan *cut = NULL;
    struct cut_options with_catalog = *options;
    struct buf text = {0};
    struct planner_request request = {.sql = sql,
                                      .params_json = runner->params_json,
                                      .tables = runner->tables,
                                      .n_tables = runner->n_tables,
                                      .warehouse = "/warehouse",
                                      .custom = operator_columns,
                                      .custom_context = runner->connection};
    enum err err = query_plan_request(runner->planner, &request, arena, &plan, e);
    if (err == ERR_OK && plan->root != NULL) {
        err = split_catalog_load(runner->planner, plan->root, arena, &catalog, e);
    }
    if (err == ERR_OK) {
        with_catalog.catalog = catalog;
        *out_is_ordered = order_is_given(plan->root);
        err = query_cut(plan, &with_catalog, arena, &cut, e);
    }
    if (err == ERR_OK) {
        physical_write(&text, cut);
        err = physical_read(text.data, text.n, arena, out, NULL, e);
    }
    buf_deinit(&text);
    return err;
}

static void note_single(const struct physical_plan *plan, struct run_facts *facts)
{
    facts->is_single = plan->single_reason != NULL;
    snprintf(facts->reason, sizeof facts->reason, "%s", facts->is_single ? plan->single_reason : "");
}

enum err run_cut(struct runner *runner, const char *sql, const struct run_options *options, struct table *out,
                 struct run_facts *out_facts, struct error *e)
{
    struct arena arena = {0};
    struct physical_plan *plan = NULL;
    *out_facts = (struct run_facts){0};
    enum err err = prepare(runner, sql, &options->cut, &arena, &plan, &out_facts->is_ordered, e);
    if (err == ERR_OK) {
        struct run run = {.runner = runner, .options = options, .arena = &arena, .plan = plan, .facts = out_facts};
        for (uint32_t i = 0; i < plan->n_stages; i++) {
            run.n_ids = plan->stages[i].id >= run.n_ids ? plan->stages[i].id + 1 : run.n_ids;
        }
        run.sizes = arena_zalloc(&arena, run.n_ids * sizeof *run.sizes);
        run.n_tasks = arena_zalloc(&arena, run.n_ids * sizeof *run.n_tasks);
        run.out = out;
        run.e = e;
        note_single(plan, out_facts);
        err = run_stages(&run);
    }
    arena_deinit(&arena);
    return err;
}

enum err run_plan(struct runner *runner, const char *sql, const struct cut_options *options,
                  struct run_facts *out_facts, struct error *e)
{
    struct arena arena = {0};
    struct physical_plan *plan = NULL;
    *out_facts = (struct run_facts){0};
    enum err err = prepare(runner, sql, options, &arena, &plan, &out_facts->is_ordered, e);
    if (err == ERR_OK) {
        note_single(plan, out_facts);
        out_facts->n_stages = plan->n_stages;
        for (uint32_t i = 0; i < plan->n_stages; i++) {
            uint32_t n = physical_tasks(plan, i);
            out_facts->n_tasks_max = n > out_facts->n_tasks_max ? n : out_facts->n_tasks_max;
        }
    }
    arena_deinit(&arena);
    return err;
}

enum err run_explain(struct runner *runner, const char *sql, const struct cut_options *options, struct buf *out,
                     struct error *e)
{
    struct arena arena = {0};
    struct physical_plan *plan = NULL;
    bool ordered = false;
    enum err err = prepare(runner, sql, options, &arena, &plan, &ordered, e);
    if (err == ERR_OK) {
        explain_write(out, plan);
    }
    arena_deinit(&arena);
    return err;
}
