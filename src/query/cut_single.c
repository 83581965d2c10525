/*
 * Queries that are not cut: one task, which runs the query as it was written.
 *
 * Operators are no SQL, so what each of them reads is a task of its own, with the operator behind it, and the query reads
 * its rows as a table. A query that writes has one more task in the end, which publishes what the first has written.
 */
#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "query/cut_internal.h"
#include "query/plan.h"

struct single {
    const struct cut_options *options;
    struct arena *arena;
    struct physical_plan *plan;
};

static uint32_t count_customs(const struct plan *plan)
{
    uint32_t n = plan->n_customs;
    for (uint32_t i = 0; i < plan->n_customs; i++) {
        n += count_customs(plan->customs[i].input);
    }
    return n;
}

void cut__write_names(struct buf *sql, const struct plan *plan)
{
    const char **names = mem_calloc(plan->n_columns, sizeof *names);
    for (uint32_t i = 0; i < plan->n_columns; i++) {
        names[i] = plan->columns[i].name;
    }
    physical_write_names(sql, names, plan->write.sql == NULL ? plan->n_columns : 0);
    mem_free((void *)names);
}

static const char *named_sql(const struct plan *query, struct arena *arena)
{
    struct buf sql = {0};
    buf_text(&sql, query->sql);
    cut__write_names(&sql, query);
    const char *copy = arena_strdup(arena, sql.data);
    buf_deinit(&sql);
    return copy;
}

/* Adds the query's stage behind those of what it reads. `custom`: the operator that reads it, or NULL. */
static uint32_t add_query(struct single *s, const struct plan *query, const struct plan_custom *custom)
{
    struct physical_stage stage = {
        .job_stage = PHYSICAL_NOT_ADDED,
        .sql = custom == NULL ? named_sql(query, s->arena) : query->sql,
        .is_deterministic = custom == NULL,
        .estimate = {.rows = -1, .bytes = -1},
        .what =
            custom == NULL ? "the whole query" : arena_format(s->arena, "all that the operator %s reads", custom->op),
        .output = {.exchange = custom == NULL ? EXCHANGE_RESULT : EXCHANGE_GATHER},
    };
    if (custom == NULL && query->root != NULL && query->n_customs == 0) {
        cut__name_files(query->root, s->options, s->arena, &stage);
        /* The tree is without what DuckDB could leave out, which the user's words still name. */
        stage.knows_files = false;
    }
    stage.inputs = arena_zalloc(s->arena, query->n_customs * sizeof *stage.inputs);
    for (uint32_t i = 0; i < query->n_customs; i++) {
        uint32_t from = add_query(s, query->customs[i].input, &query->customs[i]);
        /* The query's own words may read it more often than they name it. */
        stage.inputs[stage.n_inputs++] = (struct physical_input){
            .name = query->customs[i].name, .stage = from, .is_whole = true, .is_repeated = true};
    }
    if (custom != NULL) {
        stage.custom = (struct physical_custom){.op = custom->op, .config_json = custom->config_json};
    }
    stage.id = s->plan->n_stages;
    s->plan->stages[s->plan->n_stages] = stage;
    return s->plan->n_stages++;
}

struct physical_plan *cut__single(const struct plan *plan, const struct cut_options *options, const char *reason,
                                  struct arena *arena)
{
    struct physical_plan *physical = arena_zalloc(arena, sizeof *physical);
    struct single s = {.options = options, .arena = arena, .plan = physical};
    physical->stages = arena_zalloc(arena, (count_customs(plan) + 2) * sizeof *physical->stages);
    physical->single_reason = arena_strdup(arena, reason);
    uint32_t last = add_query(&s, plan, NULL);
    if (plan->write.sql != NULL) {
        cut__write_stage(&physical->stages[last], &plan->write);
        physical->stages[physical->n_stages] =
            cut__publish_stage(physical->stages[last].id + 1, last, &plan->write, arena);
        physical->n_stages++;
    }
    return physical;
}

void cut__write_stage(struct physical_stage *stage, const struct query_write *write)
{
    stage->write = (struct physical_write){.to = write->to, .format = write->format, .options = write->options};
    stage->output = (struct physical_output){.exchange = EXCHANGE_GATHER};
    stage->n_empty_if = 0; /* there is a file even without rows */
}

struct physical_stage cut__publish_stage(uint32_t id, uint32_t writers, const struct query_write *write,
                                         struct arena *arena)
{
    struct physical_stage stage = {
        .id = id,
        .job_stage = PHYSICAL_NOT_ADDED,
        .sql = "SELECT file, rows FROM files",
        .n_inputs = 1,
        .is_deterministic = true,
        .publish = {.to = write->to, .table = write->table},
        .output = {.exchange = EXCHANGE_RESULT},
        .estimate = {.rows = 1, .bytes = 8},
        .what = "publish the files",
    };
    stage.inputs = arena_zalloc(arena, sizeof *stage.inputs);
    stage.inputs[0] = (struct physical_input){.name = "files", .stage = writers, .is_whole = true};
    return stage;
}
