/*
 * physical_plan.c - any bytes as a physical plan.
 *
 * Promises: a plan that is accepted can be written, and what is written is accepted and written again as the same; its
 * stages are in an order in which inputs come first, one of them is the result, every stage has tasks; for every task the
 * SQL can be asked for, which gives text or an error with a message; a stage that is due reads only what is due or added,
 * and if a choice is open, something is awaited; the plan can be explained, and refined by any sizes into a plan that is
 * accepted too, in which stages that were added or done are as they were. A plan that is refused has texts that say why,
 * at most LIMIT_PLAN_ERRORS.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "fuzz/fuzz.h"
#include "query/explain.h"
#include "query/physical.h"
#include "query/refine.h"

#define TASKS_LOOKED_AT 4
#define SQL_BYTES (4 * 1024 * 1024)   /* of all tasks that are looked at */
#define SQL_REFUSED_BYTES (64 * 1024) /* what a task without SQL is taken for */

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* `left`: bytes of SQL that may still be made. */
static void check_stage(const struct physical_plan *plan, uint32_t at, size_t *left)
{
    const struct physical_stage *stage = &plan->stages[at];
    uint32_t n = physical_tasks(plan, at);
    must(n > 0 && stage->sql[0] != '\0' && stage->what != NULL);
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        must(stage->inputs[i].stage < at);
    }
    for (uint32_t i = 0; i < stage->n_empty_if; i++) {
        must(stage->empty_if[i] < stage->n_inputs);
    }
    for (uint32_t i = 0; i < n && i<TASKS_LOOKED_AT && * left> 0; i++) {
        struct buf sql = {0};
        struct error e = {0};
        struct physical_group group = physical_task_group(plan, at, i);
        must(group.first <= group.last);
        if (physical_task_sql(&sql, plan, at, i, &e) != ERR_OK) {
            must(sql.n == 0 && e.message[0] != '\0');
            *left -= *left < SQL_REFUSED_BYTES ? *left : SQL_REFUSED_BYTES;
        } else {
            *left -= *left < sql.n ? *left : sql.n;
            must(physical_last_statement(sql.data) <= sql.n);
        }
        buf_deinit(&sql);
    }
    (void)physical_is_waiting(plan, at);
    must(stage->write.to == NULL || (stage->write.format != NULL && stage->write.options != NULL));
    must(stage->write.to == NULL || physical_write_ending(&stage->write)[0] != '\0');
    must(stage->publish.to == NULL || (n == 1 && stage->n_inputs == 1));
}

/* How the plan becomes stages of a job. */
static void check_job(const struct physical_plan *plan, struct arena *arena)
{
    bool has_choice = false;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const struct physical_stage *stage = &plan->stages[i];
        uint32_t *parents = NULL;
        bool *whole = NULL;
        uint32_t n = physical_parents(plan, i, arena, &parents, &whole);
        bool is_due = physical_is_due(plan, i);
        has_choice = has_choice || stage->choice.is_open;
        must(n <= stage->n_inputs && (n > 0) == (stage->n_inputs > 0));
        must(!is_due || stage->job_stage == PHYSICAL_NOT_ADDED);
        for (uint32_t k = 0; k < n; k++) {
            const struct physical_stage *parent = &plan->stages[parents[k]];
            must(!is_due || parent->job_stage != PHYSICAL_NOT_ADDED || physical_is_due(plan, parents[k]));
            must(whole[k] || parent->output.partitions == physical_tasks(plan, i));
        }
    }
    uint32_t *awaited = NULL;
    must(!has_choice || physical_awaited(plan, arena, &awaited) > 0);
}

/* The stage with that id; NULL if there is none. */
static const struct physical_stage *find_stage(const struct physical_plan *plan, uint32_t id)
{
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (plan->stages[i].id == id) {
            return &plan->stages[i];
        }
    }
    return NULL;
}

static void check_plan(const struct physical_plan *plan, struct arena *arena)
{
    struct buf once = {0};
    struct buf twice = {0};
    struct buf text = {0};
    struct physical_plan *again = NULL;
    uint32_t n_results = 0;
    size_t left = SQL_BYTES;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        check_stage(plan, i, &left);
        n_results += plan->stages[i].output.exchange == EXCHANGE_RESULT ? 1 : 0;
    }
    must(n_results == 1);
    check_job(plan, arena);
    physical_write(&once, plan);
    must(physical_read(once.data, once.n, arena, &again, NULL, NULL) == ERR_OK);
    physical_write(&twice, again);
    must(once.n == twice.n && memcmp(once.data, twice.data, once.n) == 0);
    explain_write(&text, plan);
    must(text.n > 0);
    buf_deinit(&once);
    buf_deinit(&twice);
    buf_deinit(&text);
}

/* Some stages are done, with sizes that follow from the input's bytes. */
static void check_refined(const struct physical_plan *plan, struct arena *arena, const uint8_t *bytes, size_t n)
{
    struct stage_size *sizes = arena_zalloc(arena, plan->n_stages * sizeof *sizes);
    struct refine_options options = {.partition_bytes = plan->partition_bytes > 0 ? plan->partition_bytes : 50};
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        uint8_t seed = bytes[(i * 31) % n];
        uint32_t partitions = plan->stages[i].output.partitions;
        uint64_t *each = arena_zalloc(arena, partitions * sizeof *each);
        for (uint32_t k = 0; k < partitions; k++) {
            each[k] = (uint64_t)(seed + k) % 90;
        }
        sizes[i] = (struct stage_size){.is_finished = (seed & 1) != 0,
                                       .rows = seed >> 4,
                                       .bytes = seed,
                                       .n_partitions = partitions,
                                       .partition_bytes = each};
        for (uint32_t k = 0; k < plan->stages[i].n_inputs; k++) { /* nothing ends before what it reads */
            sizes[i].is_finished = sizes[i].is_finished && sizes[plan->stages[i].inputs[k].stage].is_finished;
        }
        sizes[i].is_finished = sizes[i].is_finished && !physical_is_waiting(plan, i);
    }
    const struct physical_plan *next = query_refine(plan, sizes, &options, arena);
    check_plan(next, arena);
    for (uint32_t i = 0; i < plan->n_stages; i++) { /* what the job has is not changed */
        const struct physical_stage *before = &plan->stages[i];
        const struct physical_stage *after = find_stage(next, before->id);
        if (before->job_stage != PHYSICAL_NOT_ADDED || sizes[i].is_finished) {
            must(after != NULL && after->job_stage == before->job_stage && after->sql == before->sql);
            must(after->n_inputs == before->n_inputs && after->n_splits == before->n_splits);
            must(after->n_groups == before->n_groups && after->custom.op == before->custom.op);
        }
    }
}

/* A plan of a client is one of a planner of which more is wanted. */
static void check_foreign(const uint8_t *bytes, size_t n, bool is_good)
{
    struct arena arena = {0};
    struct physical_plan *plan = NULL;
    struct buf errors = {0};
    enum err err = physical_read_foreign((const char *)bytes, n, &arena, &plan, &errors, NULL);
    must(err == ERR_OK ? is_good && errors.n == 0 : errors.n > 0);
    buf_deinit(&errors);
    arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct arena arena = {0};
    struct physical_plan *plan = NULL;
    struct buf errors = {0};
    struct error e = {0};
    if (physical_read((const char *)bytes, n, &arena, &plan, &errors, &e) == ERR_OK) {
        must(errors.n == 0 && plan != NULL);
        check_plan(plan, &arena);
        check_refined(plan, &arena, bytes, n);
    } else {
        size_t lines = 1;
        must(plan == NULL && errors.n > 0 && e.code == ERR_INVALID && e.message[0] != '\0');
        for (size_t i = 0; i < errors.n; i++) {
            lines += errors.data[i] == '\n' ? 1 : 0;
            must((unsigned char)errors.data[i] >= 0x20 || errors.data[i] == '\n');
        }
        must(lines <= LIMIT_PLAN_ERRORS);
        must(utf8_is_valid(errors.data, errors.n));
    }
    check_foreign(bytes, n, plan != NULL);
    buf_deinit(&errors);
    arena_deinit(&arena);
    return 0;
}
