/*
 * selftest.c - the simulator can fail: every planted bug is caught by the checker of its own property.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "sim/run.h"

#define SEEDS_MAX 2000
#define HONEST_SEEDS 200

#ifdef CAPSTAN_PLANTED_BUGS

static const enum property OWN_PROPERTY[] = {
    [BUG_accept_stale_token] = PROPERTY_stale,
    [BUG_ack_before_commit] = PROPERTY_durable,
    [BUG_skip_parent_gate] = PROPERTY_deps,
    [BUG_forget_requeue] = PROPERTY_end,
    [BUG_count_superseded_attempt] = PROPERTY_limits,
    [BUG_custom_op_to_anyone] = PROPERTY_capability,
    [BUG_late_failure_revives_job] = PROPERTY_terminal,
    [BUG_lose_row_at_recovery] = PROPERTY_recovery,
    [BUG_drop_backoff] = PROPERTY_backoff,
    [BUG_ignore_query_limit] = PROPERTY_limits,
    [BUG_serve_unregistered_map] = PROPERTY_map_output,
    [BUG_skip_blacklist] = PROPERTY_blacklist,
    [BUG_refuse_repeated_completion] = PROPERTY_repeat,
    [BUG_mix_nondeterministic_maps] = PROPERTY_nondet,
    [BUG_ignore_worker_limit] = PROPERTY_limits,
    [BUG_ignore_placement] = PROPERTY_placement,
    [BUG_second_lease] = PROPERTY_lease,
    [BUG_lease_never_expires] = PROPERTY_lease,
};

/* The first seed at which the bug's own property is broken; 0: none. Counts the seeds that broke something else. */
static uint64_t find_bug(struct sim *sim, enum bug bug, uint64_t *out_others)
{
    for (uint64_t seed = 1; seed <= SEEDS_MAX; seed++) {
        struct options options = {.seed = seed, .bug = bug};
        if (run_seed(sim, &options)) {
            continue;
        }
        if (sim->failure.property == OWN_PROPERTY[bug]) {
            return seed;
        }
        (*out_others)++;
    }
    return 0;
}

int selftest(struct sim *sim)
{
    uint64_t passed = 0;
    uint64_t failed = 0;
    uint64_t last_seed = HONEST_SEEDS;
    for (uint32_t i = 1; i < ARRAY_LEN(OWN_PROPERTY); i++) {
        enum bug bug = (enum bug)i;
        uint64_t others = 0;
        uint64_t seed = find_bug(sim, bug, &others);
        if (seed == 0) {
            failed++;
            (void)printf("not ok - bug %s is not caught by %s in %d seeds (%" PRIu64 " broke something else)\n",
                         bug_name(bug), property_name(OWN_PROPERTY[bug]), SEEDS_MAX, others);
            continue;
        }
        passed++;
        last_seed = seed > last_seed ? seed : last_seed;
        (void)printf("ok - bug %s caught by %s at seed %" PRIu64 "\n", bug_name(bug), property_name(OWN_PROPERTY[bug]),
                     seed);
        (void)fflush(stdout);
    }
    struct tally tally = {0};
    for (uint64_t seed = 1; seed <= last_seed; seed++) {
        struct options options = {.seed = seed};
        run_add(sim, &options, &tally);
    }
    passed += tally.failed == 0;
    failed += tally.failed != 0;
    (void)printf("%s - the honest core passes seeds 1..%" PRIu64 "\n", tally.failed == 0 ? "ok" : "not ok", last_seed);
    (void)printf("%" PRIu64 " passed, %" PRIu64 " failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}

#else

int selftest(struct sim *sim)
{
    UNUSED(sim);
    (void)fprintf(stderr, "sim: --selftest needs the build with planted bugs: make V=bugs\n");
    return 2;
}

#endif
