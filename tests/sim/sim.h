/*
 * sim.h - one run of a simulated cluster: everything in it, and time.
 *
 * A run is a loop over events. First comes a phase of faults; then all heals, and every job must end. It depends on
 * nothing but its seed and options.
 *
 * Ownership: sim_new's caller owns the sim; it is used for one run after the other. Threads: one.
 */
#ifndef CAPSTAN_SIM_SIM_H
#define CAPSTAN_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/prng.h"
#include "core/core.h"
#include "sim/check.h"
#include "sim/client.h"
#include "sim/events.h"
#include "sim/fault.h"
#include "sim/leader.h"
#include "sim/net.h"
#include "sim/proc.h"
#include "sim/store.h"
#include "sim/world.h"

#define HEAL_LIMIT_MS 180000 /* within this every job must have ended */
#define WATCH_MS 200

struct options {
    uint64_t seed;
    bool trace;      /* print it */
    bool trace_hash; /* hash it */
    enum bug bug;
    uint64_t crash_at; /* the leader also crashes at this commit, counted from 1; 0: only by chance */
    uint32_t crash_mode;
};

/* Summed over runs by whoever wants a summary. */
struct stats {
    uint64_t commands; /* core_step without CMD_LOAD... */
    uint64_t by_kind[CMD_LOADED_JOB + 1];
    uint64_t loads; /* CMD_LOAD... */
    uint64_t rows;
    uint64_t commits;
    uint64_t jobs;
    uint64_t jobs_ended[JOB_CANCELED + 1];
    uint64_t tasks;
    uint64_t attempts;
    uint64_t faults[FAULT_COUNT];
    uint64_t dropped, duplicated, delayed;
    uint64_t refused; /* things said by workers that were not taken */
    uint64_t leaders;
    uint64_t rehearsals;
    uint64_t reloads; /* of ended jobs */
    uint64_t simulated_ms;
};

struct failure {
    bool is_set;
    enum property property;
    char text[512];
};

struct sim {
    struct options options;
    struct prng prng;
    int64_t now_ms;
    bool is_healed;
    bool is_over;
    int64_t healed_at_ms;
    struct events events;
    struct world world;
    struct store store;
    struct net net;
    struct leader leader;
    struct workers workers;
    struct clients clients;
    struct checks checks;
    struct stats stats;
    struct failure failure;
    bool is_tracing;
    uint64_t trace_hash;
    uint32_t child_jobs[MAX_TASKS][MAX_ATTEMPTS]; /* the job of a child task's attempt; NO_INDEX: none yet */
    uint32_t n_child_jobs;                        /* tids that are initialised there */
    struct string_list op_lists[1 << N_OPS];      /* by the bits of the operators */
    struct arena op_arena;
};

static inline struct msg *net_msg(struct sim *sim, uint32_t m)
{
    ASSERT(m > 0 && m < MAX_MSGS);
    return &sim->net.msgs[m];
}

struct sim *sim_new(void);
void sim_free(struct sim *sim);

/* Runs one seed. True if no property was broken; else `sim->failure` says which. */
bool sim_run(struct sim *sim, const struct options *options);

/* A line of the trace. */
void sim_trace(struct sim *sim, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define TRACE(sim, ...) ((sim)->is_tracing ? sim_trace(sim, __VA_ARGS__) : (void)0)

#endif
