/*
 * world.h - what a run is about: its settings, its requirements and its jobs, all drawn from the seed before it starts.
 *
 * A stage carries the number of its stage_def in `timeout_ms` (which the core only passes on), so that an assignment or
 * a stored stage leads back to what the client asked for, whatever id the core gave it.
 *
 * Ownership: the world's arena owns everything in it until world_make() is called again. Threads: one.
 */
#ifndef CAPSTAN_SIM_WORLD_H
#define CAPSTAN_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/prng.h"
#include "core/command.h"
#include "core/config.h"
#include "core/requirement.h"
#include "sim/names.h"

#define MAX_NEEDS 10
#define MAX_STAGE_DEFS 1200
#define MAX_ATTEMPTS 4 /* tries of one child task that get a job of their own */
#define STAGE_DEF_BASE 100000

enum engine_trait { ENGINE_NONE, ENGINE_RIGHT, ENGINE_WRONG };
enum gpu_trait { GPU_NONE, GPU_NVIDIA, GPU_AMD };
enum cpu_want { CPU_ANY, CPU_EQUAL_16, CPU_AT_LEAST_8 };

/* What a worker process can do, as bits. */
struct traits {
    uint32_t executors;
    uint32_t ops;
    enum engine_trait engine;
    enum gpu_trait gpu;
    uint32_t cpu; /* 0: does not say */
    uint32_t labels;
    bool ssd;
};

/* What a task needs, as bits: the same as its `struct requirement`, for checkers that match by themselves. */
struct wants {
    uint32_t executor; /* NO_INDEX: any */
    uint32_t ops;
    bool engine;
    uint32_t any_executors; /* 0: no constraint */
    bool gpu;
    enum cpu_want cpu;
    uint32_t labels;
    bool ssd;
    uint32_t allowed;
    uint32_t forbidden;
    uint32_t max_parallel;
};

struct need {
    struct requirement requirement;
    struct wants wants;
};

enum poison { POISON_NONE, POISON_RETRYABLE, POISON_FATAL };

struct stage_def {
    struct stage_spec spec;
    uint32_t id;
    uint32_t job;  /* job_def */
    uint32_t need; /* index of a need */
    enum poison poison;
    uint32_t poison_task;
    const struct stage_spec *added; /* a planning task's result */
    uint32_t n_added;
    bool is_bad_plan; /* which is nonsense */
};

enum job_class { JOB_OF_CLIENT, JOB_OF_PARENT };

struct job_def {
    struct cmd_submit submit;
    struct cmd_submit other; /* the same id with another content */
    enum job_class class;
    bool is_invalid; /* must be refused */
    uint32_t first_stage_def;
    uint32_t key; /* NO_INDEX: none */
    int64_t submit_at_ms;
    /* What its client does besides, 0: not */
    int64_t cancel_at_ms;
    int64_t retry_at_ms[2];
    int64_t resubmit_at_ms;
    bool resubmit_other;
    bool retry_from_task;
    bool retry_results_lost;
};

/* How bad it gets, drawn per seed so that seeds differ from each other. Permille unless said. */
struct mood {
    uint32_t drop, duplicate, slow;
    uint32_t task_fails, task_fatal, task_released, task_reports_running, task_lazy, task_blames;
    uint32_t plan_child_fails;
    int64_t fault_every_ms;
    uint32_t fault_weight[16]; /* by enum fault */
    int64_t commit_ms_max;
    int64_t task_ms_max;
    int64_t phase_ms; /* of faults */
};

struct world {
    struct arena arena;
    struct core_config config;
    struct mood mood;
    uint32_t n_workers;
    uint32_t n_safe; /* the first ones: alive after the heal */
    uint32_t n_slots;
    struct need needs[MAX_NEEDS];
    uint32_t n_needs;
    struct stage_def stage_defs[MAX_STAGE_DEFS];
    uint32_t n_stage_defs;
    struct job_def jobs[MAX_JOBS];
    uint32_t n_jobs;
    uint32_t n_client_jobs; /* the first ones; children are added as they start */
    uint32_t n_tasks;
};

/* Fills `world` from the seed's generator. */
void world_make(struct world *world, struct prng *prng);

/*
 * A new job for a child task, with the content of a small tree. NO_INDEX if there is no room for more.
 */
uint32_t world_add_child(struct world *world, struct prng *prng);

/* The stage_def behind a spec that the core stored or assigned. */
const struct stage_def *world_stage_def(const struct world *world, uint32_t timeout_ms);

struct traits traits_full(void);
bool traits_are_full(struct traits traits); /* operators aside */
struct traits traits_random(struct prng *prng);

/* The offer of these traits, in `arena`. */
struct offer traits_offer(struct traits traits, struct arena *arena);
struct string_list traits_ops(uint32_t ops, struct arena *arena);

#endif
