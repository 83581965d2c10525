/*
 * world_jobs.c - random jobs: single tasks, chains, fans, diamonds, tangles, queries with shuffle, planned queries.
 */
#include <string.h>

#include "base/check.h"
#include "sim/world.h"
#include "sim/world_internal.h"

#define TASKS_WANTED_MAX 420

/* A job while it is being made. */
struct draft {
    struct world *world;
    struct prng *prng;
    struct job_def *job;
    struct stage_def *stages[MAX_STAGES];
    uint32_t n_stages;
    uint32_t child_rate; /* permille of a tree's tasks that run as jobs of their own */
};

static struct stage_def *new_stage_def(struct draft *d)
{
    struct world *world = d->world;
    ASSERT(world->n_stage_defs < MAX_STAGE_DEFS);
    struct stage_def *def = &world->stage_defs[world->n_stage_defs];
    *def = (struct stage_def){
        .id = world->n_stage_defs,
        .job = (uint32_t)(d->job - world->jobs),
        .need = prng_permille(d->prng, 450) ? 0 : (uint32_t)prng_below(d->prng, world->n_needs),
        .poison_task = NO_INDEX,
    };
    def->spec = (struct stage_spec){
        .need = &world->needs[def->need].requirement,
        .n_tasks = 1,
        .timeout_ms = STAGE_DEF_BASE + def->id,
        .backoff_ms = prng_permille(d->prng, 150) ? prng_range(d->prng, 0, 300) : -1,
        .max_attempts = prng_permille(d->prng, 200) ? (uint32_t)prng_range(d->prng, 1, 4) : 0,
        .exclusive = prng_permille(d->prng, 100),
    };
    if (prng_permille(d->prng, 40)) {
        def->poison = prng_permille(d->prng, 500) ? POISON_RETRYABLE : POISON_FATAL;
        def->poison_task = 0;
    }
    world->n_stage_defs++;
    return def;
}

static struct stage_parent *parents_array(struct draft *d, uint32_t n)
{
    return arena_zalloc(&d->world->arena, sizeof(struct stage_parent) * (n + 1));
}

static void give_digests(struct draft *d, struct stage_def *def)
{
    if (!prng_permille(d->prng, 500)) {
        return;
    }
    struct task_spec *tasks = arena_zalloc(&d->world->arena, sizeof(*tasks) * def->spec.n_tasks);
    for (uint32_t i = 0; i < def->spec.n_tasks; i++) {
        uint64_t bits = prng_u64(d->prng);
        memcpy(tasks[i].inputs.bytes, &bits, sizeof(bits));
        tasks[i].inputs_bytes = (uint32_t)(bits & 1023);
    }
    def->spec.tasks = tasks;
}

/* A stage of the job itself, with room for parents. */
static struct stage_def *add_stage(struct draft *d, uint32_t n_parents_max)
{
    struct stage_def *def = new_stage_def(d);
    def->spec.parents = parents_array(d, n_parents_max);
    d->stages[d->n_stages++] = def;
    return def;
}

static void add_parent(struct draft *d, struct stage_def *def, uint32_t stage, bool added, enum read_mode read)
{
    /* The array was made by parents_array for this very stage, so writing through it is fine. */
    struct stage_parent *parents = (struct stage_parent *)(uintptr_t)def->spec.parents;
    bool optional = read == READ_NONE && prng_permille(d->prng, 200);
    parents[def->spec.n_parents++] =
        (struct stage_parent){.stage = stage, .added = added, .optional = optional, .read = read};
}

/* ---- trees ---- */

static struct stage_def *add_tree_task(struct draft *d, uint32_t n_parents_max)
{
    uint32_t index = d->n_stages;
    struct stage_def *def = add_stage(d, n_parents_max);
    def->spec.name = stage_name(index);
    give_digests(d, def);
    if (prng_permille(d->prng, d->child_rate)) {
        def->spec.child = true;
    }
    return def;
}

static void draft_chain(struct draft *d)
{
    uint32_t n = (uint32_t)prng_range(d->prng, 2, 7);
    for (uint32_t i = 0; i < n; i++) {
        struct stage_def *def = add_tree_task(d, 1);
        if (i > 0) {
            add_parent(d, def, i - 1, false, READ_NONE);
        }
    }
}

static void draft_fan(struct draft *d)
{
    uint32_t n = (uint32_t)prng_range(d->prng, 2, 8);
    add_tree_task(d, 0);
    for (uint32_t i = 1; i <= n; i++) {
        add_parent(d, add_tree_task(d, 1), 0, false, READ_NONE);
    }
    struct stage_def *join = add_tree_task(d, n);
    for (uint32_t i = 1; i <= n; i++) {
        add_parent(d, join, i, false, READ_NONE);
    }
}

static void draft_diamond(struct draft *d)
{
    add_tree_task(d, 0);
    add_parent(d, add_tree_task(d, 1), 0, false, READ_NONE);
    add_parent(d, add_tree_task(d, 1), 0, false, READ_NONE);
    struct stage_def *end = add_tree_task(d, 2);
    add_parent(d, end, 1, false, READ_NONE);
    add_parent(d, end, 2, false, READ_NONE);
}

static void draft_tangle(struct draft *d)
{
    uint32_t n = (uint32_t)prng_range(d->prng, 3, 10);
    for (uint32_t i = 0; i < n; i++) {
        struct stage_def *def = add_tree_task(d, i);
        for (uint32_t p = 0; p < i; p++) {
            if (prng_permille(d->prng, 300)) {
                add_parent(d, def, p, false, READ_NONE);
            }
        }
    }
}

static void draft_single(struct draft *d)
{
    add_tree_task(d, 0);
}

/* ---- queries ---- */

static void make_map(struct draft *d, struct stage_def *def)
{
    def->spec.n_tasks = (uint32_t)prng_range(d->prng, 1, prng_permille(d->prng, 200) ? 6 : 4);
    def->spec.output = OUTPUT_SHUFFLE;
    def->spec.partitions = (uint32_t)prng_range(d->prng, 1, MAX_PARTITIONS);
    def->spec.nondeterministic = prng_permille(d->prng, 450);
    give_digests(d, def);
}

static void make_final(struct draft *d, struct stage_def *def)
{
    def->spec.n_tasks = (uint32_t)prng_range(d->prng, 1, 3);
    def->spec.output = OUTPUT_RESULT;
    give_digests(d, def);
}

static enum read_mode read_some(struct draft *d)
{
    return prng_permille(d->prng, 700) ? READ_PARTITION : READ_ALL;
}

/* One or two scans, perhaps a stage between, one or two readers of it, results. */
static void draft_query(struct draft *d)
{
    uint32_t n_scans = (uint32_t)prng_range(d->prng, 1, 2);
    for (uint32_t i = 0; i < n_scans; i++) {
        make_map(d, add_stage(d, 0));
    }
    uint32_t last = 0;
    if (prng_permille(d->prng, 500)) {
        last = d->n_stages;
        struct stage_def *middle = add_stage(d, n_scans);
        make_map(d, middle);
        for (uint32_t i = 0; i < n_scans; i++) {
            add_parent(d, middle, i, false, read_some(d));
        }
    }
    struct stage_def *final = add_stage(d, 3);
    make_final(d, final);
    add_parent(d, final, last, false, read_some(d));
    if (last == 0 && n_scans == 2) {
        add_parent(d, final, 1, false, read_some(d));
    }
    if (last != 0 && prng_permille(d->prng, 300)) {
        add_parent(d, final, 0, false, READ_ALL);
    }
}

/* A planning task, perhaps after a scan, whose result is a map and a final stage. */
static void draft_planned(struct draft *d)
{
    bool has_scan = prng_permille(d->prng, 500);
    if (has_scan) {
        make_map(d, add_stage(d, 0));
    }
    struct stage_def *plan = add_stage(d, 1);
    plan->spec.planning = true;
    if (has_scan) {
        add_parent(d, plan, 0, false, READ_NONE);
    }
    struct stage_def *map = new_stage_def(d);
    map->spec.parents = parents_array(d, 2);
    make_map(d, map);
    if (has_scan && prng_permille(d->prng, 500)) {
        add_parent(d, map, 0, false, read_some(d));
    }
    struct stage_def *final = new_stage_def(d);
    final->spec.parents = parents_array(d, 2);
    make_final(d, final);
    add_parent(d, final, 0, true, read_some(d));
    if (has_scan && prng_permille(d->prng, 500)) {
        add_parent(d, final, 0, false, READ_ALL);
    }
    if (prng_permille(d->prng, 80)) {
        add_parent(d, map, MAX_STAGES + 7, false, READ_NONE); /* no such stage: the job must fail */
        plan->is_bad_plan = true;
    }
    struct stage_spec *added = arena_alloc(&d->world->arena, sizeof(*added) * 2);
    added[0] = map->spec;
    added[1] = final->spec;
    plan->added = added;
    plan->n_added = 2;
}

typedef void draft_fn(struct draft *d);

static const struct {
    draft_fn *make;
    enum job_kind kind;
    uint32_t weight;
} SHAPES[] = {
    {draft_single, JOB_KIND_TREE, 4},   {draft_chain, JOB_KIND_TREE, 2},  {draft_fan, JOB_KIND_TREE, 2},
    {draft_diamond, JOB_KIND_TREE, 1},  {draft_tangle, JOB_KIND_TREE, 2}, {draft_query, JOB_KIND_QUERY, 8},
    {draft_planned, JOB_KIND_QUERY, 2},
};

static uint32_t draw_shape(struct prng *prng)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < ARRAY_LEN(SHAPES); i++) {
        total += SHAPES[i].weight;
    }
    uint32_t at = (uint32_t)prng_below(prng, total);
    for (uint32_t i = 0;; i++) {
        if (at < SHAPES[i].weight) {
            return i;
        }
        at -= SHAPES[i].weight;
    }
}

/* Writes the drafted stages into the job's submit command. */
static void finish_job(struct draft *d, enum job_kind kind)
{
    struct world *world = d->world;
    struct job_def *job = d->job;
    uint32_t index = (uint32_t)(job - world->jobs);
    struct stage_spec *specs = arena_alloc(&world->arena, sizeof(*specs) * d->n_stages);
    for (uint32_t i = 0; i < d->n_stages; i++) {
        specs[i] = d->stages[i]->spec;
        world->n_tasks += specs[i].n_tasks + (d->stages[i]->n_added > 0 ? 8 : 0);
    }
    job->submit = (struct cmd_submit){
        .job_id = job_name(index),
        .kind = kind,
        .name = prng_permille(d->prng, 500) ? "a job" : NULL,
        .idempotency_key = job->key == NO_INDEX ? NULL : key_name(job->key),
        .priority = (uint8_t)prng_below(d->prng, 4),
        .stop_on_failure = prng_permille(d->prng, 300),
        .stages = specs,
        .n_stages = d->n_stages,
    };
    uint64_t content = prng_u64(d->prng);
    memcpy(job->submit.content.bytes, &content, sizeof(content));
    job->other = job->submit;
    job->other.content.bytes[31] = 1;
}

/* Breaks the request in one of the ways that a submit must refuse. */
static void spoil(struct draft *d)
{
    struct cmd_submit *submit = &d->job->submit;
    struct stage_spec *specs = (struct stage_spec *)(uintptr_t)submit->stages; /* made by finish_job */
    struct stage_parent *parents = parents_array(d, 1);
    d->job->is_invalid = true;
    switch (prng_below(d->prng, 5)) {
    case 0:
        submit->n_stages = 0;
        break;
    case 1:
        submit->priority = 9;
        break;
    case 2:
        specs[0].n_tasks = 0;
        break;
    case 3:
        parents[0].stage = submit->n_stages + (uint32_t)prng_below(d->prng, 3); /* no such stage */
        specs[0].parents = parents;
        specs[0].n_parents = 1;
        break;
    default:
        parents[0].stage = submit->n_stages - 1; /* a cycle, if the last stage depends on the first; or itself */
        parents[0].stage = specs[submit->n_stages - 1].n_parents > 0 && submit->n_stages == 2 ? 1 : 0;
        specs[0].parents = parents;
        specs[0].n_parents = 1;
        break;
    }
    d->job->other = *submit;
    d->job->other.content.bytes[31] = 1;
}

static void draw_behaviour(struct draft *d)
{
    struct job_def *job = d->job;
    struct prng *prng = d->prng;
    int64_t phase_ms = d->world->mood.phase_ms;
    job->submit_at_ms = prng_range(prng, 0, phase_ms * 9 / 10);
    if (prng_permille(prng, 200)) {
        job->cancel_at_ms = job->submit_at_ms + prng_range(prng, 1, 1500);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (prng_permille(prng, 250)) {
            job->retry_at_ms[i] = job->submit_at_ms + prng_range(prng, 1, 4000);
        }
    }
    if (prng_permille(prng, 200)) {
        job->resubmit_at_ms = job->submit_at_ms + prng_range(prng, 1, 5000);
    }
    job->resubmit_other = prng_permille(prng, 300);
    job->retry_from_task = prng_permille(prng, 300);
    job->retry_results_lost = prng_permille(prng, 500);
}

static void draft_one(struct world *world, struct prng *prng, enum job_class class, uint32_t shape)
{
    struct draft d = {.world = world, .prng = prng, .job = &world->jobs[world->n_jobs]};
    *d.job = (struct job_def){.class = class, .first_stage_def = world->n_stage_defs, .key = NO_INDEX};
    if (class == JOB_OF_CLIENT) {
        d.child_rate = prng_permille(prng, 100) ? 600 : 40;
    }
    if (class == JOB_OF_CLIENT && prng_permille(prng, 150)) {
        d.job->key = (uint32_t)prng_below(prng, 6);
    }
    SHAPES[shape].make(&d);
    finish_job(&d, SHAPES[shape].kind);
    draw_behaviour(&d);
    if (class == JOB_OF_CLIENT && prng_permille(prng, 30)) {
        spoil(&d);
    }
    world->n_jobs++;
}

void world__make_jobs(struct world *world, struct prng *prng)
{
    uint32_t n = (uint32_t)prng_range(prng, 10, 55);
    for (uint32_t i = 0; i < n && world->n_tasks < TASKS_WANTED_MAX; i++) {
        draft_one(world, prng, JOB_OF_CLIENT, draw_shape(prng));
    }
}

uint32_t world_add_child(struct world *world, struct prng *prng)
{
    if (world->n_jobs + 1 >= MAX_JOBS || world->n_stage_defs + 16 >= MAX_STAGE_DEFS || world->n_tasks > 1000) {
        return NO_INDEX;
    }
    draft_one(world, prng, JOB_OF_PARENT, prng_permille(prng, 700) ? 0 : 1);
    return world->n_jobs - 1;
}
