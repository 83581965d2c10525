/*
 * physical_range.c - range exchanges of plans that do not say where the ranges end.
 *
 * Such a stage becomes four. The first has its SQL and all that this reads, and forwards the rows; the next takes some of
 * their sort keys, the third finds the bounds in these, and the last, which keeps the id, spreads the rows:
 *
 *   rows ──forward──► some keys ──gather──► bounds ──broadcast──┐
 *     └──────────────────────────────────────────────► rows ──range──►
 *
 * Two of them compute the keys: with random() in these, a task that is redone finds others, and puts rows elsewhere. So if the
 * stage is not the same each time, these are not either; only the bounds follow from the keys that they are given.
 *
 * Everybody who reads the plan makes the same of it, so it is run as the client has written it.
 */
#include <inttypes.h>
#include <string.h>

#include "base/limits.h"
#include "query/physical.h"
#include "query/physical_internal.h"

#define SAMPLE_ROWS                                                                                                    \
    1000 /* of a task; those with the smallest hashes, so that a task that is run again takes the same */
#define ADDED 3

static bool lacks_bounds(const struct plan_reader *r, uint32_t at)
{
    const struct physical_output *output = &r->plan->stages[at].output;
    return r->senses[at].is_good && output->exchange == EXCHANGE_RANGE && output->bounds == NULL;
}

static struct physical_input *make_input(struct plan_reader *r, uint32_t n)
{
    return arena_zalloc(r->arena, n * sizeof(struct physical_input));
}

/* A stage with an input called `name`, and nothing else. */
static struct physical_stage make_stage(struct plan_reader *r, uint32_t id, const char *name, uint32_t from)
{
    struct physical_stage stage = {
        .id = id,
        .job_stage = PHYSICAL_NOT_ADDED,
        .n_inputs = 1,
        .inputs = make_input(r, 2), /* there may come one more */
        .is_deterministic = true,
        .estimate = {.rows = -1, .bytes = -1},
        .what = "",
    };
    stage.inputs[0] = (struct physical_input){.name = name, .stage = from};
    return stage;
}

static const char *keys_sql(struct plan_reader *r, const struct physical_output *output)
{
    struct buf sql = {0};
    buf_text(&sql, "SELECT capstan_key FROM (SELECT ");
    physical_write_sort_key(&sql, (const char *const *)output->keys, output->n_keys);
    buf_format(&sql,
               " AS capstan_key, hash(capstan_rows) AS capstan_hash FROM capstan_rows) ORDER BY capstan_hash LIMIT %d",
               SAMPLE_ROWS);
    const char *text = arena_strdup(r->arena, sql.data);
    buf_deinit(&sql);
    return text;
}

static const char *bounds_sql(struct plan_reader *r, uint32_t partitions)
{
    return arena_format(r->arena,
                        "SELECT list_transform(range(1, %" PRIu32 "), lambda capstan_i: "
                        "capstan_all[1 + len(capstan_all) * capstan_i // %" PRIu32 "]) AS capstan_bounds FROM "
                        "(SELECT coalesce(list(capstan_key ORDER BY capstan_key), CAST([] AS BLOB[])) AS capstan_all "
                        "FROM capstan_keys)",
                        partitions, partitions);
}

/* Makes four of the stage at `at`: three are put at `added`, with ids from `id` on. Inputs are named by ids yet. */
static void expand(struct plan_reader *r, uint32_t at, uint32_t added, uint32_t id)
{
    struct physical_stage *stages = r->plan->stages;
    struct physical_stage rows = stages[at];
    const struct physical_output output = rows.output;
    rows.id = id;
    rows.output = (struct physical_output){.exchange = EXCHANGE_FORWARD, .partitions = output.partitions};
    struct physical_stage keys = make_stage(r, id + 1, "capstan_rows", id);
    keys.sql = keys_sql(r, &output);
    if (strlen(keys.sql) > LIMIT_SQL_BYTES) {
        physical__complain(r, &stages[at], "its \"keys\" are too long: at most %d bytes in all", LIMIT_SQL_BYTES / 2);
    }
    keys.is_deterministic = rows.is_deterministic;
    keys.what = "some sort keys";
    keys.output.exchange = EXCHANGE_GATHER;
    struct physical_stage bounds = make_stage(r, id + 2, "capstan_keys", id + 1);
    bounds.sql = bounds_sql(r, output.partitions);
    bounds.what = "bounds of ranges";
    bounds.output.exchange = EXCHANGE_BROADCAST;
    struct physical_stage spread = make_stage(r, stages[at].id, "capstan_rows", id);
    spread.inputs[spread.n_inputs++] =
        (struct physical_input){.name = "capstan_bounds", .stage = id + 2, .is_whole = true};
    spread.sql = "SELECT * FROM capstan_rows";
    spread.is_deterministic = rows.is_deterministic;
    spread.what = "rows by ranges";
    spread.estimate = rows.estimate;
    spread.output = output;
    spread.output.bounds = "capstan_bounds";
    stages[at] = spread;
    stages[added] = rows;
    stages[added + 1] = keys;
    stages[added + 2] = bounds;
}

void physical__expand_ranges(struct plan_reader *r)
{
    struct physical_plan *plan = r->plan;
    uint32_t n = plan->n_stages;
    uint32_t n_lacking = 0;
    uint32_t id = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_lacking += lacks_bounds(r, i) ? 1 : 0;
        id = plan->stages[i].id != PHYSICAL_NO_STAGE && plan->stages[i].id >= id ? plan->stages[i].id + 1 : id;
    }
    uint32_t n_all = n + ADDED * n_lacking;
    if (n_lacking == 0) {
        return;
    }
    if (n_all > LIMIT_PLAN_STAGES || id > PHYSICAL_NO_STAGE - ADDED * n_lacking) {
        physical__complain(r, NULL,
                           "each range exchange without \"bounds\" adds three stages, with the next ids: at most %d "
                           "stages are possible, and ids below %" PRIu32,
                           LIMIT_PLAN_STAGES, PHYSICAL_NO_STAGE);
        return;
    }
    struct physical_stage *stages = arena_zalloc(r->arena, n_all * sizeof *stages);
    struct stage_sense *senses = arena_zalloc(r->arena, n_all * sizeof *senses);
    memcpy(stages, plan->stages, n * sizeof *stages);
    memcpy(senses, r->senses, n * sizeof *senses);
    plan->stages = stages;
    r->senses = senses;
    for (uint32_t i = 0, added = n; i < n; i++) {
        if (lacks_bounds(r, i)) {
            expand(r, i, added, id);
            for (uint32_t k = 0; k < ADDED; k++) {
                senses[added + k] = (struct stage_sense){.is_good = true, .has_inputs = true, .has_exchange = true};
            }
            added += ADDED;
            id += ADDED;
        }
    }
    plan->n_stages = n_all;
}
