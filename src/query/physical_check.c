/* What the stages of a physical plan mean together. */
#include <inttypes.h>
#include <string.h>

#include "base/limits.h"
#include "query/physical.h"
#include "query/physical_internal.h"
#include "query/sql_text.h"
#include "query/write.h"

/* The position of the stage with that id; PHYSICAL_NO_STAGE if there is none. */
static uint32_t find_stage(const struct physical_plan *plan, uint32_t id)
{
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (plan->stages[i].id == id) {
            return i;
        }
    }
    return PHYSICAL_NO_STAGE;
}

static void check_ids(struct plan_reader *r)
{
    const struct physical_plan *plan = r->plan;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (plan->stages[i].id == plan->stages[j].id) {
                physical__complain(r, &plan->stages[i], "the id occurs twice");
                break;
            }
        }
    }
}

/* Replaces ids by positions. What reads a stage that is not there is dropped; the plan is refused anyway. */
static void resolve_inputs(struct plan_reader *r, uint32_t at)
{
    struct physical_stage *stage = &r->plan->stages[at];
    uint32_t n = 0;
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        struct physical_input input = stage->inputs[i];
        uint32_t id = input.stage;
        input.stage = find_stage(r->plan, id);
        if (input.stage == PHYSICAL_NO_STAGE) {
            physical__complain(r, stage, "input \"%s\" names stage %" PRIu32 ", which there is not", input.name, id);
            continue;
        }
        const struct physical_stage *from = &r->plan->stages[input.stage];
        if (r->senses[input.stage].has_exchange && from->output.exchange == EXCHANGE_RESULT) {
            physical__complain(r, stage, "input \"%s\" reads stage %" PRIu32 ", whose rows are the result", input.name,
                               id);
        }
        input.is_whole = input.is_whole || !exchange_is_partitioned(from->output.exchange);
        stage->inputs[n++] = input;
    }
    stage->n_inputs = n;
}

/* Replaces the ids of a choice by positions. */
static void resolve_choice(struct plan_reader *r, struct physical_stage *stage)
{
    struct physical_choice *choice = &stage->choice;
    bool has_small = false;
    bool has_large = false;
    if (!choice->is_open) {
        return;
    }
    choice->small = find_stage(r->plan, choice->small);
    choice->large = find_stage(r->plan, choice->large);
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        has_small = has_small || (!stage->inputs[i].is_whole && stage->inputs[i].stage == choice->small);
        has_large = has_large || (!stage->inputs[i].is_whole && stage->inputs[i].stage == choice->large);
    }
    if (!has_small || !has_large || choice->small == choice->large || stage->n_groups > 0) {
        physical__complain(r, stage, "a choice is between two inputs that are read by partition");
    }
}

/* How the stage's tasks follow from splits and inputs. */
static void check_tasks(struct plan_reader *r, const struct physical_stage *stage)
{
    const struct physical_stage *first = NULL;
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        const struct physical_stage *from = &r->plan->stages[stage->inputs[i].stage];
        if (stage->inputs[i].is_whole) {
            continue;
        }
        if (first != NULL && first->output.partitions != from->output.partitions) {
            physical__complain(r, stage,
                               "stages %" PRIu32 " and %" PRIu32 " are read by partition, but have %" PRIu32
                               " and %" PRIu32 " of them",
                               first->id, from->id, first->output.partitions, from->output.partitions);
        }
        first = first == NULL ? from : first;
    }
    if (first != NULL && stage->n_splits > 0) {
        physical__complain(r, stage, "it has splits, and reads stage %" PRIu32 " by partition: one task per what?",
                           first->id);
    }
    if (stage->n_groups > 0 && (first == NULL || stage->n_splits > 0 ||
                                stage->groups[stage->n_groups - 1].last + 1 != first->output.partitions)) {
        physical__complain(r, stage, "\"groups\" must take up all partitions of the inputs");
    }
}

static void check_gather(struct plan_reader *r, uint32_t at)
{
    const struct physical_stage *stage = &r->plan->stages[at];
    if (physical_tasks(r->plan, at) == 1) {
        return;
    }
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        const struct physical_stage *from = &r->plan->stages[stage->inputs[i].stage];
        if (from->output.exchange == EXCHANGE_GATHER) {
            physical__complain(r, stage, "it has several tasks, but stage %" PRIu32 " is gathered for one", from->id);
        }
    }
}

static void check_bounds(struct plan_reader *r, const struct physical_stage *stage)
{
    if (stage->output.exchange != EXCHANGE_RANGE || stage->output.bounds == NULL) {
        return;
    }
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        if (strcmp(stage->inputs[i].name, stage->output.bounds) == 0 && stage->inputs[i].is_whole) {
            return;
        }
    }
    physical__complain(r, stage, "the \"bounds\" of its range exchange must be an input that is read as a whole");
}

static uint32_t count_readers(const struct physical_plan *plan, uint32_t stage)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        for (uint32_t k = 0; k < plan->stages[i].n_inputs; k++) {
            n += plan->stages[i].inputs[k].stage == stage ? 1 : 0;
        }
    }
    return n;
}

static void check_readers(struct plan_reader *r)
{
    const struct physical_plan *plan = r->plan;
    uint32_t n_results = 0;
    bool has_all_inputs = true;
    bool has_all_exchanges = true;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        has_all_inputs = has_all_inputs && r->senses[i].has_inputs;
        has_all_exchanges = has_all_exchanges && r->senses[i].has_exchange;
    }
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const struct physical_stage *stage = &plan->stages[i];
        bool is_result = r->senses[i].has_exchange && stage->output.exchange == EXCHANGE_RESULT;
        n_results += is_result ? 1 : 0;
        if (has_all_inputs && r->senses[i].has_exchange && !is_result && count_readers(plan, i) == 0) {
            physical__complain(r, stage, "nobody reads it");
        }
        if (r->senses[i].is_good && stage->choice.is_open && count_readers(plan, stage->choice.large) != 1) {
            physical__complain(r, stage, "the large side of its choice has other readers");
        }
    }
    if (has_all_exchanges ? n_results != 1 : n_results > 1) {
        physical__complain(r, NULL, "exactly one stage must have the exchange \"result\", %" PRIu32 " have", n_results);
    }
}

/* What says to which partition a row belongs stands around the SQL. */
static void check_statements(struct plan_reader *r, const struct physical_stage *stage)
{
    if (stage->sql != NULL && exchange_is_partitioned(stage->output.exchange) && !physical__is_one(stage->sql)) {
        physical__complain(
            r, stage,
            "\"sql\" must be one statement where rows go to partitions, without a CREATE TEMP VIEW before it");
    }
}

/* A stage that writes is read by one that publishes the same folder, and by nobody else. */
static void check_files(struct plan_reader *r, uint32_t at)
{
    const struct physical_plan *plan = r->plan;
    const struct physical_stage *stage = &plan->stages[at];
    if (stage->write.to != NULL &&
        (stage->output.exchange != EXCHANGE_GATHER || stage->custom.op != NULL || stage->publish.to != NULL)) {
        physical__complain(r, stage, "a stage that writes has the exchange gather, and no \"custom\" or \"publish\"");
    }
    if (stage->publish.to != NULL &&
        (stage->output.exchange != EXCHANGE_RESULT || stage->n_inputs != 1 || stage->n_splits > 0 ||
         stage->custom.op != NULL || plan->stages[stage->inputs[0].stage].write.to == NULL)) {
        physical__complain(r, stage, "a stage that publishes is the result, and reads one stage that writes");
    }
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        const struct physical_stage *from = &plan->stages[stage->inputs[i].stage];
        if (from->write.to != NULL && (stage->publish.to == NULL || strcmp(stage->publish.to, from->write.to) != 0)) {
            physical__complain(r, stage,
                               "it reads stage %" PRIu32 ", which writes to %.200s, but does not publish that",
                               from->id, from->write.to);
        }
    }
}

/* What is in the job already came from an earlier form of this plan, and so did all that it reads. */
static void check_added(struct plan_reader *r, uint32_t at)
{
    const struct physical_plan *plan = r->plan;
    const struct physical_stage *stage = &plan->stages[at];
    if (stage->job_stage == PHYSICAL_NOT_ADDED) {
        return;
    }
    if (stage->job_stage >= plan->first_job_stage) {
        physical__complain(r, stage, "its \"job_stage\" must be below the plan's \"first_job_stage\"");
    }
    for (uint32_t i = 0; i < at; i++) {
        if (plan->stages[i].job_stage == stage->job_stage) {
            physical__complain(r, stage, "stage %" PRIu32 " has the same \"job_stage\"", plan->stages[i].id);
        }
    }
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        const struct physical_stage *from = &plan->stages[stage->inputs[i].stage];
        if (from->job_stage == PHYSICAL_NOT_ADDED) {
            physical__complain(r, stage, "it has a \"job_stage\", but stage %" PRIu32 ", which it reads, has none",
                               from->id);
        }
    }
    if (r->n_errors == 0 && physical_is_waiting(plan, at)) { /* which looks at the plan as a whole */
        physical__complain(r, stage, "it has a \"job_stage\", but a choice about it is open");
    }
}

/* Moves the stages into an order in which inputs come first: `order` says which comes where. */
static void apply_order(struct plan_reader *r, const uint32_t *order)
{
    struct physical_plan *plan = r->plan;
    struct physical_stage *sorted = arena_zalloc(r->arena, plan->n_stages * sizeof *sorted);
    uint32_t *place = arena_zalloc(r->arena, plan->n_stages * sizeof *place);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        place[order[i]] = i;
        sorted[i] = plan->stages[order[i]];
    }
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        for (uint32_t k = 0; k < sorted[i].n_inputs; k++) {
            sorted[i].inputs[k].stage = place[sorted[i].inputs[k].stage];
        }
        if (sorted[i].choice.is_open) {
            sorted[i].choice.small = place[sorted[i].choice.small];
            sorted[i].choice.large = place[sorted[i].choice.large];
        }
    }
    plan->stages = sorted;
}

/* Sorts the stages, if nothing is wrong with them; complains if they read each other in a circle. */
static void sort_stages(struct plan_reader *r)
{
    const struct physical_plan *plan = r->plan;
    uint32_t *order = arena_zalloc(r->arena, plan->n_stages * sizeof *order);
    bool *is_placed = arena_zalloc(r->arena, plan->n_stages * sizeof *is_placed);
    uint32_t n = 0;
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (uint32_t i = 0; i < plan->n_stages; i++) {
            bool is_ready = !is_placed[i];
            for (uint32_t k = 0; k < plan->stages[i].n_inputs && is_ready; k++) {
                is_ready = is_placed[plan->stages[i].inputs[k].stage];
            }
            if (is_ready) {
                is_placed[i] = true;
                order[n++] = i;
                has_moved = true;
            }
        }
    }
    if (n == plan->n_stages && r->n_errors == 0) {
        apply_order(r, order);
    }
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (!is_placed[i]) {
            physical__complain(r, &plan->stages[i], "it reads, over others or by itself, its own rows");
        }
    }
}

/* Replaces ids by positions everywhere, so that the rest can follow them. */
static void resolve(struct plan_reader *r)
{
    for (uint32_t i = 0; i < r->plan->n_stages; i++) {
        struct physical_stage *stage = &r->plan->stages[i];
        struct stage_sense *sense = &r->senses[i];
        uint32_t errors_before = r->n_errors;
        if (sense->has_inputs) {
            resolve_inputs(r, i);
        } else {
            stage->n_inputs = 0;
        }
        if (sense->is_good && r->n_errors == errors_before) {
            resolve_choice(r, stage);
        }
        sense->is_good = sense->is_good && r->n_errors == errors_before;
    }
}

static void check_sql(struct plan_reader *r, const struct physical_stage *stage)
{
    if (r->is_foreign && stage->sql != NULL && !query_only_reads(stage->sql, r->arena)) {
        physical__complain(r, stage,
                           "\"sql\" must be one statement that only reads, such as SELECT; "
                           "CREATE TEMP VIEW may stand before it");
    }
    const char *oddity = r->is_foreign && stage->sql != NULL ? sql_oddity(stage->sql) : NULL;
    if (oddity != NULL) {
        physical__complain(r, stage, "its \"sql\" has %s", oddity);
    }
    for (uint32_t i = 0; i < stage->output.n_keys && r->is_foreign; i++) {
        const char *key = stage->output.keys[i];
        if (!sql_is_part(key) || key[sql_item_bytes(key)] != '\0') {
            physical__complain(r, stage, "key number %" PRIu32 " must be one expression, without comments", i + 1);
        }
    }
    if (r->is_foreign && stage->write.to != NULL && !sql_is_part(stage->write.options)) {
        physical__complain(r, stage, "the \"options\" of its write must be a list, without comments");
    }
}

/* Fills in the placeholders as the task will. Whether that is right. */
static bool check_task_sql(struct plan_reader *r, uint32_t at, uint32_t task)
{
    struct buf sql = {0};
    struct error e = {0};
    bool is_right = physical_task_sql(&sql, r->plan, at, task, &e) == ERR_OK;
    r->n_filled += is_right ? sql.n : LIMIT_TASK_SQL_BYTES;
    if (!is_right) {
        physical__complain(r, NULL, "%s", e.message); /* which names the stage */
    } else if (r->n_filled > LIMIT_PLAN_FILLED_BYTES) {
        is_right = false;
        physical__complain(r, &r->plan->stages[at], "the SQL of the plan is larger than %d bytes with splits filled in",
                           LIMIT_PLAN_FILLED_BYTES);
    }
    buf_deinit(&sql);
    return is_right;
}

/* Looks at one task of each kind: without splits, with whole files, with parts of files, with several of these. */
static void check_placeholders(struct plan_reader *r, uint32_t at)
{
    const struct physical_stage *stage = &r->plan->stages[at];
    bool is_seen[4] = {false};
    uint32_t task = 0;
    uint32_t kind = 0;
    bool is_right =
        r->is_foreign && r->n_filled <= LIMIT_PLAN_FILLED_BYTES && (stage->n_splits > 0 || check_task_sql(r, at, 0));
    for (uint32_t i = 0; i < stage->n_splits && is_right; i++) {
        const struct physical_split *split = &stage->splits[i];
        kind |= (split->has_rows ? 1U : 0U) | (split->is_continued ? 2U : 0U);
        if (!split->is_continued) {
            is_right = is_seen[kind] || check_task_sql(r, at, task);
            is_seen[kind] = true;
            kind = 0;
            task++;
        }
    }
}

/* Whether the stage and all that it reads are good, so that they can be looked at together. */
static bool is_clear(const struct plan_reader *r, uint32_t at)
{
    const struct physical_stage *stage = &r->plan->stages[at];
    bool is_good = r->senses[at].is_good;
    for (uint32_t i = 0; i < stage->n_inputs && is_good; i++) {
        is_good = r->senses[stage->inputs[i].stage].is_good;
    }
    return is_good;
}

void physical__check(struct plan_reader *r)
{
    check_ids(r);
    resolve(r);
    check_readers(r);
    for (uint32_t i = 0; i < r->plan->n_stages; i++) {
        check_sql(r, &r->plan->stages[i]);
        uint32_t errors_before = r->n_errors;
        if (!is_clear(r, i)) {
            continue;
        }
        check_tasks(r, &r->plan->stages[i]);
        if (r->n_errors == errors_before) {
            check_gather(r, i);
            check_placeholders(r, i);
        }
        check_bounds(r, &r->plan->stages[i]);
        check_files(r, i);
        check_statements(r, &r->plan->stages[i]);
        check_added(r, i);
    }
    sort_stages(r);
}
