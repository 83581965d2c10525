/*
 * sql_refine.c - the second planning of a query, when stages that choices waited for have finished.
 *
 * The sources of the task are the outputs of these stages; only their sizes count here, nothing is read.
 */
#include <inttypes.h>

#include "exec/sql_internal.h"
#include "query/refine.h"

/*
 * Adds up what the tasks of a stage have written. If the output of one of them has been lost meanwhile, it is not among
 * the sources; it will be made again when somebody reads it, and until then the stage counts as too large for any choice.
 */
static void measure(const struct physical_plan *plan, uint32_t position, const struct exec_task *task,
                    struct arena *arena, struct stage_size *out)
{
    const struct physical_stage *stage = &plan->stages[position];
    uint32_t n = stage->output.partitions;
    uint64_t *bytes = arena_zalloc(arena, ((size_t)n + 1) * sizeof(*bytes));
    uint32_t n_found = 0;
    *out = (struct stage_size){.is_finished = true, .n_partitions = n, .partition_bytes = bytes};
    for (uint32_t i = 0; i < task->n_sources; i++) {
        const struct exec_source *source = &task->sources[i];
        n_found += source->stage == stage->job_stage;
        for (uint32_t k = 0; k < source->n_partitions && source->stage == stage->job_stage; k++) {
            out->rows += source->partitions[k].rows;
            out->bytes += source->partitions[k].bytes;
            if (source->partitions[k].number < n) {
                bytes[source->partitions[k].number] += source->partitions[k].bytes;
            }
        }
    }
    if (n_found < physical_tasks(plan, position)) {
        *out = (struct stage_size){.is_finished = true, .rows = UINT64_MAX, .bytes = UINT64_MAX};
    }
}

/* A copy that says of each stage that has been added by now which stage of the job it is. */
static struct physical_plan *with_job_stages(const struct physical_plan *plan, struct arena *arena)
{
    struct physical_plan *copy = arena_copy(arena, plan, sizeof(*plan));
    copy->stages = arena_copy(arena, plan->stages, plan->n_stages * sizeof(*plan->stages));
    physical_mark_added(copy);
    return copy;
}

/*
 * If all that is left is one task, and what it reads are the sources of this one, its position, so that it can be run at
 * once; else PHYSICAL_NO_STAGE.
 */
static uint32_t find_last_task(const struct sql_run *run, const struct physical_plan *plan, struct arena *arena)
{
    uint32_t *stages = NULL;
    bool *is_whole = NULL;
    uint32_t last = PHYSICAL_NO_STAGE;
    uint32_t n_due = 0;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        bool is_due = plan->stages[i].job_stage == PHYSICAL_NOT_ADDED;
        last = is_due ? i : last;
        n_due += is_due;
    }
    if (n_due != 1 || physical_is_waiting(plan, last) || physical_tasks(plan, last) != 1 ||
        physical_required_op(&plan->stages[last]) != NULL || plan->stages[last].publish.to != NULL) {
        return PHYSICAL_NO_STAGE;
    }
    uint32_t n = physical_parents(plan, last, arena, &stages, &is_whole);
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_tasks = physical_tasks(plan, stages[i]);
        for (uint32_t t = 0; t < n_tasks; t++, at++) {
            if (at >= run->task->n_sources || run->task->sources[at].stage != plan->stages[stages[i]].job_stage) {
                return PHYSICAL_NO_STAGE;
            }
        }
    }
    return at == run->task->n_sources ? last : PHYSICAL_NO_STAGE;
}

void sql__refine(struct sql_run *run, const struct physical_plan *plan)
{
    struct arena arena = {0};
    uint32_t *awaited = NULL;
    uint32_t n = physical_awaited(plan, &arena, &awaited);
    const struct physical_plan *known = with_job_stages(plan, &arena);
    struct stage_size *sizes = arena_zalloc(&arena, plan->n_stages * sizeof(*sizes));
    for (uint32_t i = 0; i < n; i++) {
        measure(known, awaited[i], run->task, &arena, &sizes[awaited[i]]);
    }
    struct refine_options options = {.partition_bytes =
                                         plan->partition_bytes > 0 ? plan->partition_bytes : PHYSICAL_PARTITION_BYTES};
    struct physical_plan *next = query_refine(known, sizes, &options, &arena);
    next->first_job_stage = (uint32_t)run->task->stage + 1;
    uint32_t last = find_last_task(run, next, &arena);
    if (sql__write_plan(run, next) && last != PHYSICAL_NO_STAGE) {
        sql__run_stage(run, next, last, 0);
        if (!run->out->is_success) {
            buf_deinit(&run->out->plan);
        }
    }
    arena_deinit(&arena);
}
