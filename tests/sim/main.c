/*
 * main.c - the simulator's command line.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/run.h"

enum mode { MODE_NONE, MODE_SEEDS, MODE_FILE, MODE_DETERMINISM, MODE_SELFTEST, MODE_DEMO, MODE_HELP };

struct arguments {
    enum mode mode;
    uint64_t first;
    uint64_t last;
    const char *file;
    bool trace;
    enum bug bug;
    uint64_t crash_at;
    uint32_t crash_mode;
    uint64_t sweep; /* commits; 0: no sweep */
};

static const char *const HELP =
    "usage: sim MODE [options]\n"
    "\n"
    "  --seed N            run one seed\n"
    "  --seeds A..B        run the seeds from A to B\n"
    "  --seeds-file FILE   run the seeds in FILE, one a line; # starts a comment\n"
    "  --determinism N     run the seeds 1..N twice each and compare their traces\n"
    "  --selftest          every planted bug must be caught by its own checker (build with V=bugs)\n"
    "  --demo              one run, told to a person\n"
    "  --trace             print a line per message and transition\n"
    "  --crash-at N:WHEN   the leader also crashes at commit N; WHEN is before, during or after\n"
    "  --sweep N           every seed again and again, with a crash at each of the first N commits, in each way\n"
    "  --bug NAME          with a planted bug (build with V=bugs)\n"
    "  --help              this text\n";

static int usage(const char *complaint, const char *what)
{
    (void)fprintf(stderr, "sim: %s%s\n  hint: sim --help\n", complaint, what);
    return 2;
}

/* Reads a number up to `end`; false if there is anything else. */
static bool parse_number(const char *text, const char *end, uint64_t *out)
{
    if (text == end || *text < '0' || *text > '9') {
        return false;
    }
    char *stop = NULL;
    errno = 0;
    uint64_t n = strtoull(text, &stop, 10);
    if (errno != 0 || stop != end) {
        return false;
    }
    *out = n;
    return true;
}

static bool parse_range(const char *text, uint64_t *out_first, uint64_t *out_last)
{
    const char *dots = strstr(text, "..");
    return dots != NULL && parse_number(text, dots, out_first) &&
           parse_number(dots + 2, dots + 2 + strlen(dots + 2), out_last) && *out_first <= *out_last;
}

static bool parse_bug(const char *name, enum bug *out)
{
#ifdef CAPSTAN_PLANTED_BUGS
    *out = bug_by_name(name);
    return *out != BUG_NONE;
#else
    UNUSED(name);
    *out = BUG_NONE; /* this build has none */
    return false;
#endif
}

static const char *const CRASH_MODES[] =
    {[CRASH_BEFORE_COMMIT] = "before", [CRASH_DURING_COMMIT] = "during", [CRASH_AFTER_COMMIT] = "after"};

static bool parse_crash(const char *text, struct arguments *out)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL || !parse_number(text, colon, &out->crash_at) || out->crash_at == 0) {
        return false;
    }
    for (uint32_t mode = 0; mode < ARRAY_LEN(CRASH_MODES); mode++) {
        if (strcmp(colon + 1, CRASH_MODES[mode]) == 0) {
            out->crash_mode = mode;
            return true;
        }
    }
    return false;
}

/* A flag with a value. False: it is none, or the value is nonsense. */
static bool parse_valued(const char *flag, const char *value, struct arguments *out)
{
    const char *end = value + strlen(value);
    if (strcmp(flag, "--seed") == 0) {
        out->mode = MODE_SEEDS;
        if (!parse_number(value, end, &out->first)) {
            return false;
        }
        out->last = out->first;
        return true;
    }
    if (strcmp(flag, "--seeds") == 0) {
        out->mode = MODE_SEEDS;
        return parse_range(value, &out->first, &out->last);
    }
    if (strcmp(flag, "--determinism") == 0) {
        out->mode = MODE_DETERMINISM;
        out->first = 1;
        return parse_number(value, end, &out->last);
    }
    if (strcmp(flag, "--seeds-file") == 0) {
        out->mode = MODE_FILE;
        out->file = value;
        return true;
    }
    if (strcmp(flag, "--crash-at") == 0) {
        return parse_crash(value, out);
    }
    if (strcmp(flag, "--sweep") == 0) {
        return parse_number(value, end, &out->sweep) && out->sweep > 0;
    }
    return strcmp(flag, "--bug") == 0 && parse_bug(value, &out->bug);
}

static bool parse_plain(const char *flag, struct arguments *out)
{
    if (strcmp(flag, "--trace") == 0) {
        out->trace = true;
    } else if (strcmp(flag, "--selftest") == 0) {
        out->mode = MODE_SELFTEST;
    } else if (strcmp(flag, "--demo") == 0) {
        out->mode = MODE_DEMO;
    } else if (strcmp(flag, "--help") == 0) {
        out->mode = MODE_HELP;
    } else {
        return false;
    }
    return true;
}

/* Returns NULL, or the argument that is wrong. */
static const char *parse(int argc, char **argv, struct arguments *out)
{
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (parse_plain(argv[i], out)) {
            continue;
        }
        if (equals != NULL) {
            *equals = '\0';
            if (!parse_valued(argv[i], equals + 1, out)) {
                *equals = '=';
                return argv[i];
            }
            continue;
        }
        if (i + 1 >= argc || !parse_valued(argv[i], argv[i + 1], out)) {
            return argv[i];
        }
        i++;
    }
    return NULL;
}

static struct options options_of(const struct arguments *arguments, uint64_t seed)
{
    return (struct options){.seed = seed,
                            .trace = arguments->trace,
                            .bug = arguments->bug,
                            .crash_at = arguments->crash_at,
                            .crash_mode = arguments->crash_mode};
}

/* One seed with a crash at each of its first commits, in each of the three ways. */
static void sweep_seed(struct sim *sim, const struct arguments *arguments, uint64_t seed, struct tally *tally)
{
    for (uint64_t commit = 1; commit <= arguments->sweep; commit++) {
        for (uint32_t mode = 0; mode < ARRAY_LEN(CRASH_MODES); mode++) {
            struct options options = options_of(arguments, seed);
            options.crash_at = commit;
            options.crash_mode = mode;
            run_add(sim, &options, tally);
        }
    }
}

static int run_seeds(struct sim *sim, const struct arguments *arguments)
{
    struct tally tally = {0};
    for (uint64_t seed = arguments->first;; seed++) {
        struct options options = options_of(arguments, seed);
        if (arguments->sweep > 0) {
            sweep_seed(sim, arguments, seed, &tally);
        } else {
            run_add(sim, &options, &tally);
        }
        if (seed == arguments->last) {
            break;
        }
    }
    run_print_summary(&tally);
    return tally.failed == 0 ? 0 : 1;
}

static int run_file(struct sim *sim, const struct arguments *arguments)
{
    FILE *file = fopen(arguments->file, "r");
    if (file == NULL) {
        return usage("cannot open ", arguments->file);
    }
    struct tally tally = {0};
    char line[256];
    int code = 0;
    while (code == 0 && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "#\r\n")] = '\0';
        size_t n = strlen(line);
        while (n > 0 && line[n - 1] == ' ') {
            line[--n] = '\0';
        }
        uint64_t seed = 0;
        if (n == 0) {
            continue;
        }
        if (!parse_number(line, line + n, &seed)) {
            code = usage("not a seed: ", line);
            break;
        }
        struct options options = options_of(arguments, seed);
        run_add(sim, &options, &tally);
    }
    (void)fclose(file);
    if (code == 0) {
        run_print_summary(&tally);
        code = tally.failed == 0 ? 0 : 1;
    }
    return code;
}

static int run_determinism(struct sim *sim, const struct arguments *arguments)
{
    uint64_t passed = 0;
    uint64_t failed = 0;
    for (uint64_t seed = 1; seed <= arguments->last; seed++) {
        struct options options = options_of(arguments, seed);
        options.trace = false;
        options.trace_hash = true;
        (void)run_seed(sim, &options);
        uint64_t first = sim->trace_hash;
        (void)run_seed(sim, &options);
        bool is_same = sim->trace_hash == first;
        passed += is_same;
        failed += !is_same;
        if (!is_same) {
            (void)printf("not ok - seed %" PRIu64 " has two different traces\n", seed);
        }
    }
    (void)printf("%" PRIu64 " passed, %" PRIu64 " failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0};
    const char *wrong = parse(argc, argv, &arguments);
    if (wrong != NULL) {
        return usage("unknown argument or wrong value: ", wrong);
    }
    if (arguments.mode == MODE_NONE) {
        return usage("what should it run?", "");
    }
    if (arguments.mode == MODE_HELP) {
        (void)fputs(HELP, stdout);
        return 0;
    }
    struct sim *sim = sim_new();
    int code = 0;
    switch (arguments.mode) {
    case MODE_SEEDS:
        code = run_seeds(sim, &arguments);
        break;
    case MODE_FILE:
        code = run_file(sim, &arguments);
        break;
    case MODE_DETERMINISM:
        code = run_determinism(sim, &arguments);
        break;
    case MODE_SELFTEST:
        code = selftest(sim);
        break;
    case MODE_DEMO:
        code = demo(sim);
        break;
    case MODE_NONE:
    case MODE_HELP:
        break;
    }
    sim_free(sim);
    return code;
}
