/*
 * demo.c - one run, told to a person.
 */
#include <inttypes.h>
#include <stdio.h>

#include "sim/run.h"

#define DEMO_SEED 7

int demo(struct sim *sim)
{
    struct options options = {.seed = DEMO_SEED};
    bool is_good = run_seed(sim, &options);
    const struct stats *stats = &sim->stats;
    (void)printf("A simulated cluster: one thread, no network, no disk, simulated time (seed %d).\n\n", DEMO_SEED);
    (void)printf("  workers     %u, restarted until there had been %u processes\n", sim->world.n_workers,
                 sim->workers.n_procs);
    (void)printf("  leaders     %" PRIu64 ", one after the other\n", stats->leaders);
    (void)printf("  jobs        %" PRIu64 " with %" PRIu64 " tasks, which took %" PRIu64 " attempts\n", stats->jobs,
                 stats->tasks, stats->attempts);
    (void)printf("  commands    %" PRIu64 " to the scheduler in %.1f simulated seconds\n", stats->commands,
                 (double)stats->simulated_ms / 1000);
    (void)printf("  messages    %" PRIu64 " lost, %" PRIu64 " duplicated, %" PRIu64 " late\n", stats->dropped,
                 stats->duplicated, stats->delayed);
    (void)printf("  faults\n");
    for (uint32_t i = 0; i < FAULT_COUNT; i++) {
        if (stats->faults[i] > 0) {
            (void)printf("    %3" PRIu64 "  %s\n", stats->faults[i], fault_text((enum fault)i));
        }
    }
    if (!is_good) {
        (void)printf("\n");
        run_print_failure(sim);
        return 1;
    }
    (void)printf("\nThen everything healed, and every job ended: %" PRIu64 " succeeded, %" PRIu64
                 " failed (some tasks are\n"
                 "made to fail), %" PRIu64 " canceled by their clients. No property was broken.\n",
                 stats->jobs_ended[JOB_SUCCEEDED], stats->jobs_ended[JOB_FAILED], stats->jobs_ended[JOB_CANCELED]);
    (void)printf("Try: ./dev sim --seeds 1..1000, or ./dev sim --seed 7 --trace\n");
    return 0;
}
