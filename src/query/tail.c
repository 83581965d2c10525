#include "query/tail.h"

#include <string.h>

#include "query/join_filter.h"
#include "query/physical_internal.h"

/* ---- which stages ---- */

/* SQL that names its task filters what others have for themselves; there are no others then. */
static bool is_plain_sql(const struct physical_stage *stage)
{
    return stage->n_splits == 0 && strstr(stage->sql, "{{") == NULL && physical__is_one(stage->sql) &&
           stage->custom.op == NULL && stage->write.to == NULL && stage->publish.to == NULL &&
           stage->job_stage == PHYSICAL_NOT_ADDED && !stage->choice.is_open;
}

/* Says of all inputs of the stage whether they may be in the tail, too: only if nobody outside of it reads them. */
static void pass_on(const struct physical_stage *stage, bool is_in, bool *may_be_in, bool *is_read)
{
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        may_be_in[stage->inputs[i].stage] = may_be_in[stage->inputs[i].stage] && is_in;
        is_read[stage->inputs[i].stage] = true;
    }
}

/* One stage that is one task anyway has nothing to wait for. */
static bool is_worth_it(const struct physical_plan *plan, const struct tail *tail)
{
    bool is_worth = tail->n > 1;
    for (uint32_t i = 0; i < plan->n_stages && !is_worth; i++) {
        is_worth = tail->is_in[i] && physical_tasks(plan, i) > 1;
    }
    return is_worth;
}

struct tail tail_find(const struct physical_plan *plan, struct arena *arena)
{
    struct tail tail = {.is_in = arena_alloc(arena, plan->n_stages * sizeof *tail.is_in),
                        .reads = arena_alloc(arena, plan->n_stages * sizeof *tail.reads)};
    bool *is_read = arena_zalloc(arena, plan->n_stages * sizeof *is_read);
    memset(tail.is_in, true, plan->n_stages * sizeof *tail.is_in);
    for (uint32_t i = plan->n_stages; i-- > 0;) { /* readers come first then */
        const struct physical_stage *stage = &plan->stages[i];
        bool is_wanted = is_read[i] || stage->output.exchange == EXCHANGE_RESULT;
        tail.is_in[i] = tail.is_in[i] && is_wanted && is_plain_sql(stage);
        tail.n += tail.is_in[i] ? 1 : 0;
        if (is_wanted) {
            pass_on(stage, tail.is_in[i], tail.is_in, is_read);
        }
    }
    memset(is_read, false, plan->n_stages * sizeof *is_read);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const struct physical_stage *stage = &plan->stages[i];
        for (uint32_t k = 0; k < stage->n_inputs && tail.is_in[i]; k++) {
            is_read[stage->inputs[k].stage] = !tail.is_in[stage->inputs[k].stage];
        }
    }
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (is_read[i]) {
            tail.reads[tail.n_reads++] = i;
        }
    }
    if (tail.n_reads == 0 || !is_worth_it(plan, &tail)) {
        memset(tail.is_in, false, plan->n_stages * sizeof *tail.is_in);
        tail.n = 0;
        tail.n_reads = 0;
    }
    return tail;
}

/* ---- one stage ---- */

/* A name by which stages of the tail read a stage. */
struct name {
    const char *text;
    uint32_t stage;
    uint32_t n_uses; /* two stand for many */
};

struct names {
    struct name *items;
    uint32_t n;
};

/* All names, each once. False if one means two stages. */
static bool find_names(const struct physical_plan *plan, const struct tail *tail, struct arena *arena,
                       struct names *out)
{
    uint32_t n_max = 0;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        n_max += plan->stages[i].n_inputs;
    }
    *out = (struct names){.items = arena_alloc(arena, n_max * sizeof *out->items)};
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const struct physical_stage *stage = &plan->stages[i];
        for (uint32_t k = 0; k < stage->n_inputs && tail->is_in[i]; k++) {
            uint32_t at = 0;
            while (at < out->n && strcmp(out->items[at].text, stage->inputs[k].name) != 0) {
                at++;
            }
            if (at == out->n) {
                out->items[out->n++] = (struct name){.text = stage->inputs[k].name, .stage = stage->inputs[k].stage};
            }
            if (out->items[at].stage != stage->inputs[k].stage) {
                return false;
            }
            out->items[at].n_uses += stage->inputs[k].is_repeated ? 2 : 1;
        }
    }
    return true;
}

/* The stages of the tail but the last, each as a CTE under all its names. */
static void write_ctes(struct buf *sql, const struct physical_plan *plan, const struct tail *tail,
                       const struct names *names)
{
    bool is_first = true;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const char *first = NULL;
        uint32_t n_uses = 0;
        for (uint32_t k = 0; k < names->n; k++) {
            n_uses += names->items[k].stage == i ? names->items[k].n_uses : 0;
        }
        for (uint32_t k = 0; k < names->n && tail->is_in[i]; k++) {
            if (names->items[k].stage != i) {
                continue;
            }
            buf_text(sql, is_first ? "WITH " : ", ");
            is_first = false;
            if (first == NULL) { /* rows that are not the same each time must be the same for all readers */
                const char *barrier = n_uses > 1 ? "MATERIALIZED " : join_filter_barrier(plan->stages[i].sql);
                buf_format(sql, "\"%s\" AS %s", names->items[k].text, barrier);
                physical__write_nested(sql, plan->stages[i].sql);
                first = names->items[k].text;
            } else {
                buf_format(sql, "\"%s\" AS (SELECT * FROM \"%s\")", names->items[k].text, first);
            }
        }
    }
    buf_text(sql, is_first ? "" : " ");
}

static void add_inputs(struct physical_stage *merged, const struct tail *tail, const struct names *names)
{
    for (uint32_t i = 0; i < tail->n_reads; i++) {
        for (uint32_t k = 0; k < names->n; k++) {
            if (names->items[k].stage == tail->reads[i]) {
                merged->inputs[merged->n_inputs++] = (struct physical_input){.name = names->items[k].text,
                                                                             .stage = tail->reads[i],
                                                                             .is_whole = true,
                                                                             .is_repeated = names->items[k].n_uses > 1};
            }
        }
    }
}

static uint32_t find_result(const struct physical_plan *plan)
{
    uint32_t at = 0;
    while (plan->stages[at].output.exchange != EXCHANGE_RESULT) {
        at++;
    }
    return at;
}

struct physical_plan *tail_merge(const struct physical_plan *plan, const struct tail *tail, struct arena *arena)
{
    uint32_t last = find_result(plan);
    struct names names;
    struct buf sql = {0};
    bool has_ctes = strncmp(plan->stages[last].sql, "SELECT ", strlen("SELECT ")) != 0;
    if (!tail->is_in[last] || has_ctes || !find_names(plan, tail, arena, &names)) {
        return NULL;
    }
    struct physical_stage merged = plan->stages[last];
    write_ctes(&sql, plan, tail, &names);
    buf_text(&sql, merged.sql);
    merged.sql = arena_strdup(arena, sql.data);
    buf_deinit(&sql);
    merged.inputs = arena_alloc(arena, names.n * sizeof *merged.inputs);
    merged.n_inputs = 0;
    add_inputs(&merged, tail, &names);
    merged.n_groups = 0;
    merged.n_empty_if = 0;
    merged.what = "all that is left, as one task";
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (tail->is_in[i]) {
            merged.is_deterministic = merged.is_deterministic && plan->stages[i].is_deterministic;
            physical__add_files(&merged, &plan->stages[i], arena);
        }
    }
    struct physical_plan *next = arena_copy(arena, plan, sizeof *plan);
    next->stages = arena_copy(arena, plan->stages, plan->n_stages * sizeof *plan->stages);
    next->stages[last] = merged;
    next->tail_bytes = 0;
    return physical__without_unread(next, arena);
}
