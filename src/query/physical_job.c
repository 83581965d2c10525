/* How a plan becomes stages of a job: which are added when, and what their tasks read. */
#include "query/physical.h"
#include "query/tail.h"

/* By stage: whether it is to be added now. Inputs come before their readers, so one pass is enough. */
static void find_due(const struct physical_plan *plan, bool *out)
{
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        out[i] = plan->stages[i].job_stage == PHYSICAL_NOT_ADDED;
    }
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (plan->stages[i].choice.is_open) {
            out[i] = false;
            out[plan->stages[i].choice.large] = false;
        }
    }
    struct arena arena = {0};
    struct tail tail = tail_find(plan, &arena);
    for (uint32_t i = 0; i < plan->n_stages && plan->tail_bytes > 0; i++) {
        out[i] = out[i] && !tail.is_in[i];
    }
    arena_deinit(&arena);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const struct physical_stage *stage = &plan->stages[i];
        for (uint32_t k = 0; k < stage->n_inputs && out[i]; k++) {
            uint32_t from = stage->inputs[k].stage;
            out[i] = out[from] || plan->stages[from].job_stage != PHYSICAL_NOT_ADDED;
        }
    }
}

bool physical_is_due(const struct physical_plan *plan, uint32_t stage)
{
    ASSERT(stage < plan->n_stages);
    struct arena arena = {0};
    bool *is_due = arena_zalloc(&arena, plan->n_stages * sizeof *is_due);
    find_due(plan, is_due);
    bool answer = is_due[stage];
    arena_deinit(&arena);
    return answer;
}

void physical_mark_added(struct physical_plan *plan)
{
    struct arena arena = {0};
    bool *is_due = arena_zalloc(&arena, plan->n_stages * sizeof *is_due);
    uint32_t next = plan->first_job_stage;
    find_due(plan, is_due);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (is_due[i]) {
            plan->stages[i].job_stage = next++;
        }
    }
    arena_deinit(&arena);
}

/* Adds the stage to the list, unless it is there. Returns where it is. */
static uint32_t note_stage(uint32_t *stages, uint32_t *n, uint32_t stage)
{
    uint32_t at = 0;
    while (at < *n && stages[at] != stage) {
        at++;
    }
    if (at == *n) {
        stages[(*n)++] = stage;
    }
    return at;
}

uint32_t physical_awaited(const struct physical_plan *plan, struct arena *arena, uint32_t **out_stages)
{
    bool *is_due = arena_zalloc(arena, plan->n_stages * sizeof *is_due);
    uint32_t *stages = arena_zalloc(arena, plan->n_stages * sizeof *stages);
    uint32_t n = 0;
    find_due(plan, is_due);
    bool has_choice = false;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const struct physical_choice *choice = &plan->stages[i].choice;
        has_choice = has_choice || choice->is_open;
        if (choice->is_open && (is_due[choice->small] || plan->stages[choice->small].job_stage != PHYSICAL_NOT_ADDED)) {
            note_stage(stages, &n, choice->small);
        }
    }
    if (!has_choice && plan->tail_bytes > 0) {
        struct tail tail = tail_find(plan, arena);
        *out_stages = tail.reads;
        return tail.n_reads;
    }
    *out_stages = stages;
    return n;
}

uint32_t physical_parents(const struct physical_plan *plan, uint32_t stage, struct arena *arena, uint32_t **out_stages,
                          bool **out_whole)
{
    ASSERT(stage < plan->n_stages);
    const struct physical_stage *s = &plan->stages[stage];
    uint32_t *stages = arena_zalloc(arena, s->n_inputs * sizeof *stages);
    bool *whole = arena_zalloc(arena, s->n_inputs * sizeof *whole);
    uint32_t n_tasks = physical_tasks(plan, stage);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_inputs; i++) {
        const struct physical_input *input = &s->inputs[i];
        uint32_t at = note_stage(stages, &n, input->stage);
        whole[at] =
            whole[at] || input->is_whole || s->n_groups > 0 || plan->stages[input->stage].output.partitions != n_tasks;
    }
    *out_stages = stages;
    *out_whole = whole;
    return n;
}
