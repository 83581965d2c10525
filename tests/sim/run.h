/*
 * run.h - runs of many seeds: counting, reporting, and surviving a core that aborts.
 *
 * Ownership: nothing is owned. Threads: one.
 */
#ifndef CAPSTAN_SIM_RUN_H
#define CAPSTAN_SIM_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/sim.h"

struct tally {
    uint64_t passed;
    uint64_t failed;
    double seconds;
    double cpu_seconds;
    struct stats sum;
};

/* As sim_run; an assertion of the core counts as the broken property core_check. */
bool run_seed(struct sim *sim, const struct options *options);

/* Prints which property a seed broke, and how to see it again. */
void run_print_failure(const struct sim *sim);

/* Runs one seed, adds it up, and prints a failure. */
void run_add(struct sim *sim, const struct options *options, struct tally *tally);

void run_print_summary(const struct tally *tally);

/* "ack_before_commit" and the like. */
const char *bug_name(enum bug bug);
enum bug bug_by_name(const char *name); /* BUG_NONE: no such bug */

/* Checks that every planted bug is caught by the checker of its property. Returns the exit code. */
int selftest(struct sim *sim);

/* Prints what happens in one friendly run. Returns the exit code. */
int demo(struct sim *sim);

#endif
