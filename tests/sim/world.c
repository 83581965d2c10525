/*
 * world.c - settings, requirements and offers of a run. The jobs are made in world_jobs.c.
 */
#include "sim/world.h"

#include <string.h>

#include "base/check.h"
#include "sim/fault.h"
#include "sim/world_internal.h"

static const char *const LABELS[3] = {"ml", "etl", "edge"};
static const char *const ENGINE = "duckdb-1.5/x86_64";

/* Small limits, so that they bite; short periods, so that little simulated time passes. */
static void make_config(struct world *world, struct prng *prng)
{
    struct core_config config = core_config_default();
    config.heartbeat_interval_ms = prng_range(prng, 40, 120);
    config.lease_ms = config.heartbeat_interval_ms * prng_range(prng, 3, 6);
    config.worker_liveness_timeout_ms = config.lease_ms + prng_range(prng, 0, 300);
    config.node_stale_ms = prng_permille(prng, 500) ? config.worker_liveness_timeout_ms : prng_range(prng, 100, 1500);
    config.node_dead_ms = config.node_stale_ms * prng_range(prng, 2, 6);
    config.max_concurrent_tasks_per_worker = prng_range(prng, 1, 4);
    config.max_concurrent_tasks_per_query = prng_range(prng, 1, 6);
    config.max_task_attempts = prng_range(prng, 1, 4);
    config.retry_backoff_base_ms = prng_permille(prng, 150) ? 0 : prng_range(prng, 20, 250);
    config.blacklist_failure_threshold = prng_range(prng, 1, 3);
    config.blacklist_ttl_ms = prng_permille(prng, 200) ? 0 : prng_range(prng, 300, 4000);
    config.stuck_task_warn_ms = prng_range(prng, 200, 2000);
    config.max_fetch_recoveries = prng_range(prng, 0, 5);
    config.ended_jobs_resident = prng_permille(prng, 300) ? 0 : prng_range(prng, 1, 20);
    struct error e = {0};
    enum err err = core_config_check(&config, &e);
    ASSERT(err == ERR_OK);
    world->config = config;
}

/* A rate that is often zero and sometimes high. */
static uint32_t rate(struct prng *prng, uint32_t chance, uint32_t max)
{
    return prng_permille(prng, chance) ? (uint32_t)prng_below(prng, max + 1) : 0;
}

static void make_mood(struct world *world, struct prng *prng)
{
    struct mood *mood = &world->mood;
    *mood = (struct mood){
        .drop = rate(prng, 600, 60),
        .duplicate = rate(prng, 600, 60),
        .slow = rate(prng, 700, 80),
        .task_fails = rate(prng, 700, 250),
        .task_fatal = rate(prng, 300, 30),
        .task_released = rate(prng, 400, 60),
        .task_reports_running = rate(prng, 500, 300),
        .task_lazy = rate(prng, 250, 30),
        .task_blames = rate(prng, 250, 30),
        .plan_child_fails = rate(prng, 500, 300),
        .fault_every_ms = prng_range(prng, 150, 500),
        .commit_ms_max = prng_permille(prng, 300) ? prng_range(prng, 20, 120) : prng_range(prng, 2, 12),
        .task_ms_max = prng_range(prng, 20, 400),
        .phase_ms = prng_range(prng, 12000, 22000),
    };
    for (uint32_t i = 0; i < FAULT_COUNT; i++) {
        mood->fault_weight[i] = prng_permille(prng, 250) ? 0 : (uint32_t)prng_range(prng, 1, 10);
    }
    /* Some leaders live long: what builds up in memory only shows then. */
    if (prng_permille(prng, 350)) {
        mood->fault_weight[FAULT_LEADER_CRASH] = 0;
        mood->fault_weight[FAULT_CLOCK_JUMP] = 0;
    }
}

static const char **strings(struct world *world, uint32_t n)
{
    return arena_alloc(&world->arena, sizeof(char *) * (n + 1));
}

static struct string_list nodes_of(struct world *world, uint32_t mask)
{
    struct string_list list = {0};
    const char **items = strings(world, MAX_WORKERS);
    for (uint32_t i = 0; i < MAX_WORKERS; i++) {
        if ((mask >> i & 1) != 0) {
            items[list.count++] = worker_name(i);
        }
    }
    list.items = items;
    return list;
}

static struct string_list executors_of(uint32_t mask, struct arena *arena)
{
    struct string_list list = {0};
    const char **items = arena_alloc(arena, sizeof(char *) * N_EXECUTORS);
    for (uint32_t i = 0; i < N_EXECUTORS; i++) {
        if ((mask >> i & 1) != 0) {
            items[list.count++] = executor_name(i);
        }
    }
    list.items = items;
    return list;
}

struct string_list traits_ops(uint32_t ops, struct arena *arena)
{
    struct string_list list = {0};
    const char **items = arena_alloc(arena, sizeof(char *) * N_OPS);
    for (uint32_t i = 0; i < N_OPS; i++) {
        if ((ops >> i & 1) != 0) {
            items[list.count++] = op_name(i);
        }
    }
    list.items = items;
    return list;
}

static struct capability_list wanted_capabilities(struct world *world, const struct wants *wants)
{
    struct capability_list list = {0};
    struct capability *items = arena_zalloc(&world->arena, sizeof(*items) * 6);
    if (wants->gpu) {
        items[list.count++] = (struct capability){.key = "gpu", .kind = VALUE_TEXT, .text = "nvidia"};
    }
    if (wants->cpu == CPU_EQUAL_16) {
        items[list.count++] = (struct capability){.key = "cpu_cores", .kind = VALUE_NUMBER, .number = 16};
    }
    if (wants->cpu == CPU_AT_LEAST_8) {
        items[list.count++] = (struct capability){.key = "cpu_cores", .kind = VALUE_TEXT, .text = ">=8"};
    }
    for (uint32_t i = 0; i < ARRAY_LEN(LABELS); i++) {
        if ((wants->labels >> i & 1) != 0) {
            items[list.count++] = (struct capability){.key = "labels", .kind = VALUE_TEXT, .text = LABELS[i]};
            break; /* one value per key */
        }
    }
    if (wants->ssd) {
        items[list.count++] = (struct capability){.key = "ssd", .kind = VALUE_BOOL, .number = 1};
    }
    list.items = items;
    return list;
}

static struct wants draw_wants(const struct world *world, struct prng *prng)
{
    struct wants wants = {.executor = NO_INDEX};
    if (prng_permille(prng, 500)) {
        wants.executor = (uint32_t)prng_below(prng, N_EXECUTORS);
    }
    if (prng_permille(prng, 400)) {
        wants.ops = 1U << prng_below(prng, N_OPS);
        wants.ops |= prng_permille(prng, 300) ? 1U << prng_below(prng, N_OPS) : 0;
    }
    wants.engine = prng_permille(prng, 200);
    if (prng_permille(prng, 150)) {
        wants.any_executors = (uint32_t)prng_range(prng, 1, (1 << N_EXECUTORS) - 1);
    }
    wants.gpu = prng_permille(prng, 120);
    if (prng_permille(prng, 200)) {
        wants.cpu = prng_permille(prng, 500) ? CPU_EQUAL_16 : CPU_AT_LEAST_8;
    }
    wants.labels = prng_permille(prng, 150) ? 1U << prng_below(prng, ARRAY_LEN(LABELS)) : 0;
    wants.ssd = prng_permille(prng, 100);
    if (prng_permille(prng, 200)) {
        wants.allowed = (1U << prng_below(prng, world->n_safe)) | (uint32_t)prng_below(prng, 1U << world->n_workers);
    }
    if (prng_permille(prng, 200)) {
        wants.forbidden = 1U << prng_below(prng, world->n_workers);
    }
    uint32_t safe = (1U << world->n_safe) - 1;
    uint32_t possible = (wants.allowed == 0 ? safe : wants.allowed & safe) & ~wants.forbidden;
    if (possible == 0) {
        wants.forbidden = 0;
    }
    wants.max_parallel = prng_permille(prng, 200) ? (uint32_t)prng_range(prng, 1, 2) : 0;
    return wants;
}

static void make_needs(struct world *world, struct prng *prng)
{
    world->n_needs = (uint32_t)prng_range(prng, 3, MAX_NEEDS);
    for (uint32_t i = 0; i < world->n_needs; i++) {
        struct wants wants = i == 0 ? (struct wants){.executor = NO_INDEX} : draw_wants(world, prng);
        world->needs[i] = (struct need){
            .requirement =
                {
                    .executor = wants.executor == NO_INDEX ? NULL : executor_name(wants.executor),
                    .ops = traits_ops(wants.ops, &world->arena),
                    .engine = wants.engine ? ENGINE : NULL,
                    .any_executors = executors_of(wants.any_executors, &world->arena),
                    .capabilities = wanted_capabilities(world, &wants),
                    .allowed_nodes = nodes_of(world, wants.allowed),
                    .forbidden_nodes = nodes_of(world, wants.forbidden),
                    .max_parallel_per_node = wants.max_parallel,
                },
            .wants = wants,
        };
    }
}

struct traits traits_full(void)
{
    return (struct traits){
        .executors = (1U << N_EXECUTORS) - 1,
        .ops = (1U << N_OPS) - 1,
        .engine = ENGINE_RIGHT,
        .gpu = GPU_NVIDIA,
        .cpu = 16,
        .labels = (1U << ARRAY_LEN(LABELS)) - 1,
        .ssd = true,
    };
}

bool traits_are_full(struct traits traits)
{
    struct traits full = traits_full();
    return traits.executors == full.executors && traits.engine == full.engine && traits.gpu == full.gpu &&
           traits.cpu == full.cpu && traits.labels == full.labels && traits.ssd == full.ssd;
}

struct traits traits_random(struct prng *prng)
{
    struct traits traits = traits_full();
    if (prng_permille(prng, 400)) {
        return traits;
    }
    traits.executors = (uint32_t)prng_range(prng, 1, (1 << N_EXECUTORS) - 1);
    traits.ops = (uint32_t)prng_below(prng, 1U << N_OPS);
    traits.engine = (enum engine_trait)prng_below(prng, 3);
    traits.gpu = (enum gpu_trait)prng_below(prng, 3);
    traits.cpu = (uint32_t)prng_below(prng, 3) * 8;
    traits.labels = (uint32_t)prng_below(prng, 1U << ARRAY_LEN(LABELS));
    traits.ssd = prng_permille(prng, 500);
    return traits;
}

struct offer traits_offer(struct traits traits, struct arena *arena)
{
    struct capability *items = arena_zalloc(arena, sizeof(*items) * 4);
    uint32_t n = 0;
    if (traits.gpu != GPU_NONE) {
        const char *gpu = traits.gpu == GPU_NVIDIA ? "nvidia" : "amd";
        items[n++] = (struct capability){.key = "gpu", .kind = VALUE_TEXT, .text = gpu};
    }
    if (traits.cpu != 0) {
        items[n++] = (struct capability){.key = "cpu_cores", .kind = VALUE_NUMBER, .number = traits.cpu};
    }
    const char **labels = arena_alloc(arena, sizeof(char *) * ARRAY_LEN(LABELS));
    uint32_t n_labels = 0;
    for (uint32_t i = 0; i < ARRAY_LEN(LABELS); i++) {
        if ((traits.labels >> i & 1) != 0) {
            labels[n_labels++] = LABELS[i];
        }
    }
    items[n++] = (struct capability){.key = "labels", .kind = VALUE_LIST, .items = labels, .n_items = n_labels};
    items[n++] = (struct capability){.key = "ssd", .kind = VALUE_BOOL, .number = traits.ssd ? 1 : 0};
    const char *engines[] = {NULL, ENGINE, "duckdb-1.4/x86_64"};
    return (struct offer){
        .executors = executors_of(traits.executors, arena),
        .ops = traits_ops(traits.ops, arena),
        .capabilities = {.items = items, .count = n},
        .engine = engines[traits.engine],
    };
}

const struct stage_def *world_stage_def(const struct world *world, uint32_t timeout_ms)
{
    ASSERT(timeout_ms >= STAGE_DEF_BASE);
    ASSERT(timeout_ms - STAGE_DEF_BASE < world->n_stage_defs);
    return &world->stage_defs[timeout_ms - STAGE_DEF_BASE];
}

void world_make(struct world *world, struct prng *prng)
{
    arena_reset(&world->arena);
    world->n_stage_defs = 0;
    world->n_jobs = 0;
    world->n_tasks = 0;
    make_config(world, prng);
    make_mood(world, prng);
    world->n_workers = (uint32_t)prng_range(prng, 3, 7);
    world->n_safe = world->n_workers - (prng_permille(prng, 600) ? 1 : 0);
    world->n_slots = (uint32_t)prng_range(prng, 1, 6);
    make_needs(world, prng);
    world__make_jobs(world, prng);
    world->n_client_jobs = world->n_jobs;
}
