#include "coordinator/query.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/sha256.h"
#include "query/physical.h"
#include "query/sql_text.h"

#define EXECUTOR "sql"

static struct task_spec *same_tasks(struct query_inputs inputs, uint32_t n, struct arena *arena)
{
    struct task_spec *tasks = arena_alloc(arena, n * sizeof *tasks);
    for (uint32_t i = 0; i < n; i++) {
        tasks[i] = (struct task_spec){.inputs = inputs.digest, .inputs_bytes = inputs.n_bytes};
    }
    return tasks;
}

static struct requirement *need_of(const char *engine, struct string_list ops, struct arena *arena)
{
    struct requirement *need = arena_zalloc(arena, sizeof *need);
    need->executor = EXECUTOR;
    need->engine = engine;
    need->ops = ops;
    return need;
}

static struct string_list one_op(const char *op, struct arena *arena)
{
    const char **ops = arena_alloc(arena, sizeof *ops);
    ops[0] = op;
    return (struct string_list){ops, op == NULL ? 0 : 1};
}

/* Its output is the result, if it can do the whole query at once; else the stages that it adds. */
static struct stage_spec planning_stage(const char *name, const struct requirement *need, struct query_inputs inputs,
                                        struct arena *arena)
{
    return (struct stage_spec){.name = name,
                               .need = need,
                               .tasks = same_tasks(inputs, 1, arena),
                               .n_tasks = 1,
                               .output = OUTPUT_RESULT,
                               .backoff_ms = -1,
                               .planning = true};
}

/* ---- operators in SQL ---- */

/* Behind white space and comments. */
static const char *skip_blank(const char *p)
{
    for (;;) {
        bool is_comment = (p[0] == '-' && p[1] == '-') || (p[0] == '/' && p[1] == '*');
        if (is_comment) {
            p += sql_quoted_bytes(p, false);
        } else if (isspace((unsigned char)*p)) {
            p++;
        } else {
            return p;
        }
    }
}

/* If custom('name' is here, the name; else NULL. `n` is how long the word here is. */
static const char *op_at(const char *p, size_t n, struct arena *arena)
{
    if (n != strlen("custom") || strncasecmp(p, "custom", n) != 0) {
        return NULL;
    }
    p = skip_blank(p + n);
    if (*p != '(') {
        return NULL;
    }
    p = skip_blank(p + 1);
    if (*p != '\'') {
        return NULL;
    }
    size_t length = strcspn(p + 1, "'");
    bool is_name = p[1 + length] == '\'' && length > 0 && length <= LIMIT_NAME_BYTES;
    return is_name ? arena_format(arena, "%.*s", (int)length, p + 1) : NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The operators that the text names, sorted, each once. What is wrong with their use, the planner will say. */
static struct string_list ops_in(const char *sql, struct arena *arena)
{
    const char **ops = arena_alloc(arena, LIMIT_OPS_PER_TASK * sizeof *ops);
    uint32_t n = 0;
    for (const char *p = sql; *p != '\0' && n < LIMIT_OPS_PER_TASK;) {
        size_t length = sql_quoted_bytes(p, p > sql && sql_is_word(p[-1]));
        if (length == 0 && sql_is_word(*p)) {
            while (sql_is_word(p[length])) {
                length++;
            }
            const char *op = op_at(p, length, arena);
            if (op != NULL && !string_list_has((struct string_list){ops, n}, op)) {
                ops[n++] = op;
            }
        }
        p += length > 0 ? length : 1;
    }
    qsort(ops, n, sizeof *ops, compare_names);
    return (struct string_list){ops, n};
}

const struct stage_spec *query_planning_stage(struct query_inputs inputs, const char *sql, struct arena *arena)
{
    struct stage_spec *stage = arena_alloc(arena, sizeof *stage);
    *stage = planning_stage("plan", need_of(NULL, ops_in(sql, arena), arena), inputs, arena);
    return stage;
}

/* ---- a plan's stages ---- */

struct making {
    const struct physical_plan *plan;
    struct query_inputs inputs;
    const char *engine;
    uint32_t *added; /* by position in the plan: index among the stages that are added, or PHYSICAL_NOT_ADDED */
    struct arena *arena;
};

static enum err parent_of(const struct making *m, uint32_t stage, struct stage_parent *out, struct error *e)
{
    uint32_t job_stage = m->plan->stages[stage].job_stage;
    if (job_stage != PHYSICAL_NOT_ADDED) {
        *out = (struct stage_parent){.stage = job_stage};
        return ERR_OK;
    }
    if (m->added[stage] == PHYSICAL_NOT_ADDED) {
        return error_set(e, ERR_INVALID, "stages[%u]: is read by a stage that does not wait for it", (unsigned)stage);
    }
    *out = (struct stage_parent){.stage = m->added[stage], .added = true};
    return ERR_OK;
}

static enum err make_stage(const struct making *m, uint32_t position, struct stage_spec *out, struct error *e)
{
    const struct physical_stage *from = &m->plan->stages[position];
    uint32_t *stages = NULL;
    bool *is_whole = NULL;
    uint32_t n = physical_parents(m->plan, position, m->arena, &stages, &is_whole);
    struct stage_parent *parents = arena_alloc(m->arena, n * sizeof *parents);
    for (uint32_t i = 0; i < n; i++) {
        enum err err = parent_of(m, stages[i], &parents[i], e);
        if (err != ERR_OK) {
            return err;
        }
        parents[i].read = is_whole[i] ? READ_ALL : READ_PARTITION;
    }
    uint32_t n_tasks = physical_tasks(m->plan, position);
    bool is_result = from->output.exchange == EXCHANGE_RESULT;
    *out = (struct stage_spec){
        .name = arena_format(m->arena, "s%u", (unsigned)from->id),
        .need = need_of(m->engine, one_op(physical_required_op(from), m->arena), m->arena),
        .parents = parents,
        .n_parents = n,
        .tasks = same_tasks(m->inputs, n_tasks, m->arena),
        .n_tasks = n_tasks,
        .output = is_result ? OUTPUT_RESULT : OUTPUT_SHUFFLE,
        .partitions = is_result                                        ? 0
                      : exchange_is_partitioned(from->output.exchange) ? from->output.partitions
                                                                       : 1,
        .backoff_ms = -1,
        .nondeterministic = !from->is_deterministic,
    };
    return ERR_OK;
}

static enum err make_refining(const struct making *m, const uint32_t *awaited, uint32_t n, struct stage_spec *out,
                              struct error *e)
{
    struct stage_parent *parents = arena_alloc(m->arena, n * sizeof *parents);
    for (uint32_t i = 0; i < n; i++) {
        enum err err = parent_of(m, awaited[i], &parents[i], e);
        if (err != ERR_OK) {
            return err;
        }
    }
    *out = planning_stage("refine", need_of(m->engine, one_op(NULL, m->arena), m->arena), m->inputs, m->arena);
    out->parents = parents;
    out->n_parents = n;
    return ERR_OK;
}

static enum err make_all(struct making *m, const struct stage_spec **out_stages, uint32_t *out_n, struct error *e)
{
    const struct physical_plan *plan = m->plan;
    struct stage_spec *specs = arena_alloc(m->arena, (plan->n_stages + 1) * sizeof *specs);
    uint32_t *awaited = NULL;
    uint64_t n_tasks = 0;
    uint32_t n = 0;
    enum err err = ERR_OK;
    m->added = arena_alloc(m->arena, plan->n_stages * sizeof *m->added);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        bool is_due = physical_is_due(plan, i);
        m->added[i] = is_due ? n : PHYSICAL_NOT_ADDED;
        n += is_due;
        n_tasks += physical_tasks(plan, i);
    }
    if (n_tasks > LIMIT_TASKS_PER_JOB) {
        return error_set(e, ERR_EXHAUSTED, "the plan has more than %d tasks", LIMIT_TASKS_PER_JOB);
    }
    for (uint32_t i = 0; i < plan->n_stages && err == ERR_OK; i++) {
        if (m->added[i] != PHYSICAL_NOT_ADDED) {
            err = make_stage(m, i, &specs[m->added[i]], e);
        }
    }
    uint32_t n_awaited = physical_awaited(plan, m->arena, &awaited);
    if (err == ERR_OK && n_awaited > 0) {
        err = make_refining(m, awaited, n_awaited, &specs[n++], e);
    }
    *out_stages = specs;
    *out_n = n;
    return err;
}

enum err query_stages(const void *plan_json, size_t n, int64_t planner, const char *engine, struct arena *arena,
                      const struct stage_spec **out_stages, uint32_t *out_n, struct error *e)
{
    struct physical_plan *plan = NULL;
    struct buf errors = {0};
    enum err err = planner < 0 ? physical_read_foreign(plan_json, n, arena, &plan, &errors, e)
                               : physical_read(plan_json, n, arena, &plan, &errors, e);
    if (err != ERR_OK) {
        if (errors.n > 0) {
            error_set(e, err, "physical_plan_json: %.*s", (int)errors.n, errors.data);
        }
        buf_deinit(&errors);
        return err;
    }
    buf_deinit(&errors);
    if (plan->first_job_stage != planner + 1) {
        return error_set(e, ERR_INVALID, "first_job_stage: must be %lld, got %u", (long long)planner + 1,
                         (unsigned)plan->first_job_stage);
    }
    struct making m = {.plan = plan,
                       .inputs = {.n_bytes = (uint32_t)n},
                       .engine = plan->engine != NULL ? plan->engine : engine,
                       .arena = arena};
    sha256_once(plan_json, n, m.inputs.digest.bytes);
    return make_all(&m, out_stages, out_n, e);
}
