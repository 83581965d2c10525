/*
 * run.c - runs of many seeds.
 */
#include "sim/run.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

static const char *const BUG_NAMES[] = {"none",
#define BUG_NAME(name) #name,
                                        BUG_TABLE(BUG_NAME)
#undef BUG_NAME
};

const char *bug_name(enum bug bug)
{
    ASSERT((size_t)bug < ARRAY_LEN(BUG_NAMES));
    return BUG_NAMES[bug];
}

enum bug bug_by_name(const char *name)
{
    for (uint32_t i = 1; i < ARRAY_LEN(BUG_NAMES); i++) {
        if (strcmp(BUG_NAMES[i], name) == 0) {
            return (enum bug)i;
        }
    }
    return BUG_NONE;
}

/* ---- a core that aborts ---- */

static sigjmp_buf abort_jump;
static volatile sig_atomic_t is_running;
static char last_words[128]; /* what to say if the process dies; made beforehand */
static size_t last_words_bytes;

/* An assertion ends the run; worse ends the program, but not without saying where. */
static void on_signal(int number)
{
    if (number == SIGABRT && is_running) {
        siglongjmp(abort_jump, 1);
    }
    (void)!write(STDERR_FILENO, last_words, last_words_bytes);
    _exit(128 + number);
}

static const int SIGNALS[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static void catch_signals(const struct options *options, struct sigaction *before)
{
    const char *flag = options->bug == BUG_NONE ? "" : " --bug ";
    int n = snprintf(last_words, sizeof(last_words), "sim: crashed; replay: ./dev sim --seed %" PRIu64 "%s%s --trace\n",
                     options->seed, flag, options->bug == BUG_NONE ? "" : bug_name(options->bug));
    last_words_bytes = (size_t)n < sizeof(last_words) ? (size_t)n : sizeof(last_words) - 1;
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(SIGNALS); i++) {
        (void)sigaction(SIGNALS[i], &action, &before[i]);
    }
}

/* What the core was doing is unknown: it is left where it is, and its memory is lost. */
static void abandon(struct sim *sim)
{
    sim->leader.core = NULL;
    memset(sim->leader.batch, 0, sizeof(sim->leader.batch));
    memset(&sim->leader.scratch, 0, sizeof(sim->leader.scratch));
    if (sim->store.trying) {
        store_try_end(&sim->store);
    }
}

bool run_seed(struct sim *sim, const struct options *options)
{
    struct sigaction before[ARRAY_LEN(SIGNALS)];
    catch_signals(options, before);
    bool is_good = false;
    if (sigsetjmp(abort_jump, 1) == 0) {
        is_running = 1;
        is_good = sim_run(sim, options);
    } else {
        sim_fail(sim, PROPERTY_core_check, "an assertion failed; its message is on stderr");
        abandon(sim);
    }
    is_running = 0;
    for (size_t i = 0; i < ARRAY_LEN(SIGNALS); i++) {
        (void)sigaction(SIGNALS[i], &before[i], NULL);
    }
    return is_good;
}

/* ---- counting ---- */

static double seconds_now(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* All fields of struct stats are numbers of the same type. */
static void add_stats(struct stats *sum, const struct stats *one)
{
    uint64_t a[sizeof(*sum) / sizeof(uint64_t)];
    uint64_t b[sizeof(*sum) / sizeof(uint64_t)];
    memcpy(a, sum, sizeof(a));
    memcpy(b, one, sizeof(b));
    for (size_t i = 0; i < ARRAY_LEN(a); i++) {
        a[i] += b[i];
    }
    memcpy(sum, a, sizeof(a));
}

void run_print_failure(const struct sim *sim)
{
    const struct options *options = &sim->options;
    const char *bug = options->bug == BUG_NONE ? "" : bug_name(options->bug);
    const char *flag = options->bug == BUG_NONE ? "" : " --bug ";
    (void)printf("not ok - seed %" PRIu64 "%s%s broke '%s': %s\n", options->seed, flag, bug,
                 property_name(sim->failure.property), property_text(sim->failure.property));
    (void)printf("  at %lld ms: %s\n", (long long)sim->now_ms, sim->failure.text);
    (void)printf("  replay: ./dev sim --seed %" PRIu64 "%s%s", options->seed, flag, bug);
    if (options->crash_at > 0) {
        static const char *const modes[] = {"before", "during", "after"};
        (void)printf(" --crash-at %" PRIu64 ":%s", options->crash_at, modes[options->crash_mode]);
    }
    (void)printf(" --trace\n");
}

void run_add(struct sim *sim, const struct options *options, struct tally *tally)
{
    double start = seconds_now(CLOCK_MONOTONIC);
    double cpu_start = seconds_now(CLOCK_PROCESS_CPUTIME_ID);
    bool is_good = run_seed(sim, options);
    tally->seconds += seconds_now(CLOCK_MONOTONIC) - start;
    tally->cpu_seconds += seconds_now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
    add_stats(&tally->sum, &sim->stats);
    tally->passed += is_good;
    tally->failed += !is_good;
    if (!is_good) {
        run_print_failure(sim);
    }
}

static uint64_t sum_of(const uint64_t *numbers, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += numbers[i];
    }
    return sum;
}

static void print_commands(const struct stats *sum)
{
    static const char *const kinds[] = {"submit",   "register",   "heartbeat",    "deregister", "get_task",
                                        "report",   "map_output", "results",      "cancel",     "retry",
                                        "set_node", "child_done", "child_failed", "tick"};
    (void)printf("commands:");
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        (void)printf(" %s %" PRIu64, kinds[i], sum->by_kind[i]);
    }
    (void)printf("\nfaults:");
    for (uint32_t i = 0; i < FAULT_COUNT; i++) {
        (void)printf(" %s%" PRIu64 " %s", i == 0 ? "" : "- ", sum->faults[i], fault_text((enum fault)i));
    }
    (void)printf("\nnetwork: %" PRIu64 " dropped, %" PRIu64 " duplicated, %" PRIu64 " delayed; %" PRIu64
                 " reports refused\n",
                 sum->dropped, sum->duplicated, sum->delayed, sum->refused);
}

void run_print_summary(const struct tally *tally)
{
    const struct stats *sum = &tally->sum;
    uint64_t n = tally->passed + tally->failed;
    double seeds = n == 0 ? 1 : (double)n;
    double seconds = tally->cpu_seconds > 0 ? tally->cpu_seconds : 1e-9; /* others may use the machine, too */
    uint64_t faults = sum_of(sum->faults, ARRAY_LEN(sum->faults));
    print_commands(sum);
    (void)printf("jobs: %" PRIu64 " (%" PRIu64 " succeeded, %" PRIu64 " failed, %" PRIu64 " canceled), tasks: %" PRIu64
                 ", attempts: %" PRIu64 ", rows: %" PRIu64 "\n",
                 sum->jobs, sum->jobs_ended[JOB_SUCCEEDED], sum->jobs_ended[JOB_FAILED], sum->jobs_ended[JOB_CANCELED],
                 sum->tasks, sum->attempts, sum->rows);
    (void)printf("leaders: %" PRIu64 ", recoveries compared: %" PRIu64 ", rows loaded: %" PRIu64
                 ", ended jobs loaded: %" PRIu64 "\n",
                 sum->leaders, sum->rehearsals, sum->loads, sum->reloads);
    (void)printf("per seed: %.0f core commands, %.1f faults, %.1f s simulated\n", (double)sum->commands / seeds,
                 (double)faults / seeds, (double)sum->simulated_ms / 1000 / seeds);
    if (n > 1) { /* one seed prints nothing that a second run would not */
        (void)printf("speed: %" PRIu64
                     " core commands in %.2f s (%.2f s of processor time): %.0f commands/s and %.1f seeds/s on "
                     "one core\n",
                     sum->commands, tally->seconds, tally->cpu_seconds, (double)sum->commands / seconds,
                     (double)n / seconds);
    }
    (void)printf("%" PRIu64 " passed, %" PRIu64 " failed\n", tally->passed, tally->failed);
}
