/*
 * fault.h - what goes wrong, and when it is made good.
 *
 * Ownership: nothing is owned. Threads: one.
 */
#ifndef CAPSTAN_SIM_FAULT_H
#define CAPSTAN_SIM_FAULT_H

#include <stdint.h>

struct sim;

/* X(symbol, what a summary calls it) */
#define FAULT_TABLE(X)                                                                                                 \
    X(WORKER_CRASH, "worker crashes")                                                                                  \
    X(WORKER_ZOMBIE, "workers restarted while the old process lives")                                                  \
    X(WORKER_STALL, "worker stalls")                                                                                   \
    X(PARTITION, "network partitions")                                                                                 \
    X(STORM, "network storms")                                                                                         \
    X(LIE, "forged or repeated messages")                                                                              \
    X(LEADER_CRASH, "leader crashes")                                                                                  \
    X(LEADER_STALL, "leader stalls")                                                                                   \
    X(CLOCK_JUMP, "clock jumps")                                                                                       \
    X(OUTPUT_LOSS, "lost map outputs")                                                                                 \
    X(OP_LOSS, "operators lost")                                                                                       \
    X(OPERATOR, "drains, clears and departures")                                                                       \
    X(SLOW_COMMIT, "slow commits")

enum fault {
#define FAULT_ENUM(symbol, text) FAULT_##symbol,
    FAULT_TABLE(FAULT_ENUM)
#undef FAULT_ENUM
        FAULT_COUNT
};

const char *fault_text(enum fault fault);

/* EVENT_FAULT: one random fault, and the next one is scheduled. */
void fault_strike(struct sim *sim);

/* EVENT_CALM: a passing fault ends. */
void fault_calm(struct sim *sim, uint32_t fault, uint32_t where);

/* EVENT_HEAL: everything is made good; from now on nothing goes wrong. */
void fault_heal(struct sim *sim);

#endif
