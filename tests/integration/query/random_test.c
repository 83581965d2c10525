/*
 * Random queries, cut and compared with one DuckDB. CAPSTAN_TEST_RANDOM says how many (500 if it is not set), and
 * CAPSTAN_TEST_SEED where to begin; CAPSTAN_TEST_VERBOSE=1 prints all of them, and why DuckDB refuses some. A query that
 * shows a difference is made smaller before it is printed; put it into tests/data/sql/random.sql, so that it stays.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "query/data.h"
#include "query/generator.h"
#include "query/runner.h"
#include "query/schema.h"
#include "test.h"

#define QUERIES_DEFAULT 500
#define SHRINK_CALLS_MAX 300
#define FAILURES_MAX 5
#define MISTAKE_QUERIES_MAX 100

struct campaign {
    struct runner runner;
    struct arena arena;
    struct schema schema;
    struct run_options options;
    bool is_verbose;
    bool has_failed;    /* the query that was run last, cut, instead of having rows */
    uint32_t n_refused; /* by DuckDB itself */
    uint32_t n_single;
    uint32_t n_ranged;
    uint32_t n_rows; /* queries with rows */
};

static struct campaign campaign_open(void)
{
    struct campaign c = {.runner = {.tables = test_data()->tables, .n_tables = test_data()->n_tables}};
    struct error e = {0};
    c.is_verbose = getenv("CAPSTAN_TEST_VERBOSE") != NULL;
    CHECK_ERR(runner_open(&c.runner, &e), ERR_OK);
    test_create_views(c.runner.connection);
    c.schema = schema_open(c.runner.connection, c.runner.tables, c.runner.n_tables);
    return c;
}

static void campaign_close(struct campaign *c)
{
    schema_close(&c->schema);
    runner_close(&c->runner);
}

static void say(const struct campaign *c, const char *how, const char *sql, const char *why)
{
    if (c->is_verbose) {
        printf("%s: %s\n  %s\n", how, sql, why);
    }
}

/*
 * The filter that a join makes while it runs DuckDB 1.5.6 cannot always apply to files whose columns are of other types, or not
 * in the same places: the query fails. So it is no difference if a task fails with that and the whole query does, too, in a
 * DuckDB with all its optimizers; what it is compared with has been found without that filter.
 */
static bool fails_in_duckdb(struct campaign *c, const char *sql, const char *message)
{
    static const char reason[] = "Can't convert TableFilterType (BLOOM_FILTER) from global to local indexes";
    struct table ignored = {0};
    struct error e = {0};
    bool is_known = strstr(message, reason) != NULL;
    bool fails = is_known && run_plain(&c->runner, sql, &ignored, &e) != ERR_OK && strstr(e.message, reason) != NULL;
    table_deinit(&ignored);
    return fails;
}

/* Whether the query, cut, gives something else than in one piece. What DuckDB refuses shows nothing. */
static bool shows_difference(struct campaign *c, const char *sql, struct buf *difference)
{
    struct table expected = {0};
    struct table actual = {0};
    struct run_facts facts = {0};
    struct error e = {0};
    bool is_different = false;
    c->has_failed = false;
    if (run_whole(&c->runner, sql, &expected, &e) != ERR_OK) {
        c->n_refused++;
        say(c, "refused", sql, e.message);
    } else if (run_cut(&c->runner, sql, &c->options, &actual, &facts, &e) != ERR_OK) {
        is_different = !fails_in_duckdb(c, sql, e.message);
        c->has_failed = true;
        buf_text(difference, e.message);
        c->n_refused += is_different ? 0 : 1;
    } else {
        c->n_single += facts.is_single ? 1 : 0;
        say(c, facts.is_single ? "one task" : "stages", sql, facts.reason);
        c->n_ranged += facts.n_ranged > 0 ? 1 : 0;
        c->n_rows += expected.n_rows > 0 ? 1 : 0;
        is_different = !table_equal(&expected, &actual, facts.is_ordered ? ORDER_MATTERS : ORDER_IS_FREE, difference);
    }
    table_deinit(&expected);
    table_deinit(&actual);
    return is_different;
}

/* A query that is made smaller: one that has other rows must not become one that fails, for it might be for another reason. */
struct shrinking {
    struct campaign *campaign;
    bool has_failed;
};

static bool still_differs(void *context, const char *sql)
{
    const struct shrinking *shrinking = context;
    struct buf difference = {0};
    bool is_different = shows_difference(shrinking->campaign, sql, &difference);
    buf_deinit(&difference);
    return is_different && shrinking->campaign->has_failed == shrinking->has_failed;
}

/* As in a cluster that is in use, whose plans follow from sizes: tables that all tasks read, sides that are surely small. */
static void choose_by_size(struct campaign *c, struct prng *prng)
{
    static const uint64_t limits[] = {20000, 200000, 64 << 20, 64 << 20};
    static const uint32_t shrinks[] = {50, 200, 1000};
    c->options = (struct run_options){
        .cut = {.partitions = prng_permille(prng, 300) ? 2 + (uint32_t)prng_below(prng, 4) : 0,
                .slots = 1 + (uint32_t)prng_below(prng, 6),
                .broadcast_bytes = limits[prng_below(prng, 4)],
                .tail_bytes = prng_permille(prng, 300) ? 100000 : 0,
                .partition_bytes = prng_permille(prng, 500) ? 20000 : 0,
                .shrink = shrinks[prng_below(prng, 3)]},
        .is_refined = prng_permille(prng, 600),
        .refine_bytes = prng_permille(prng, 500) ? 30000 : 0,
    };
}

static void choose_options(struct campaign *c, uint64_t seed)
{
    struct prng prng;
    prng_init(&prng, seed ^ 0x9e3779b9);
    if (prng_permille(&prng, 400)) {
        choose_by_size(c, &prng);
        return;
    }
    static const uint64_t limits[] = {0, UINT64_MAX, 20000, 200000};
    c->options = (struct run_options){
        .cut = {.partitions = 2 + (uint32_t)prng_below(&prng, 2),
                .slots = 1 + (uint32_t)prng_below(&prng, 3),
                .broadcast_bytes = limits[prng_below(&prng, 4)],
                .tail_bytes = prng_permille(&prng, 300) ? 100000 : 0,
                .is_forced = true},
        .is_refined = prng_permille(&prng, 500),
        .refine_bytes = prng_permille(&prng, 500) ? 30000 : 0,
    };
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);
    return value == NULL ? otherwise : strtoull(value, NULL, 10);
}

static void print_failure(const struct run_options *options, uint64_t seed, const char *sql, const char *difference)
{
    fprintf(stderr,
            "seed %" PRIu64 " (%u partitions, %u slots, broadcast %" PRIu64 ", tail %" PRIu64
            ", sizes by %u, %s, %" PRIu64 " bytes a task): %s\n  %s\n",
            seed, (unsigned)options->cut.partitions, (unsigned)options->cut.slots, options->cut.broadcast_bytes,
            options->cut.tail_bytes, (unsigned)options->cut.shrink, options->is_refined ? "refined" : "not refined",
            options->refine_bytes, sql, difference);
}

TEST(random_queries_give_the_same_in_stages_and_in_one_piece)
{
    struct campaign c = campaign_open();
    uint64_t first = number_of("CAPSTAN_TEST_SEED", 1);
    uint64_t n = number_of("CAPSTAN_TEST_RANDOM", QUERIES_DEFAULT);
    uint32_t n_failed = 0;
    for (uint64_t seed = first; seed < first + n && n_failed < FAILURES_MAX; seed++) {
        struct decisions decisions = {0};
        struct buf sql = {0};
        struct buf difference = {0};
        choose_options(&c, seed);
        generate_query(&c.schema, seed, &decisions, &sql);
        if (shows_difference(&c, sql.data, &difference)) {
            struct shrinking shrinking = {.campaign = &c, .has_failed = c.has_failed};
            n_failed++;
            generator_shrink(&c.schema, &decisions, still_differs, &shrinking, SHRINK_CALLS_MAX);
            buf_reset(&sql);
            buf_reset(&difference);
            generate_from(&c.schema, &decisions, &sql);
            (void)shows_difference(&c, sql.data, &difference);
            print_failure(&c.options, seed, sql.data, difference.data);
        }
        buf_deinit(&sql);
        buf_deinit(&difference);
        decisions_deinit(&decisions);
    }
    printf("%" PRIu64 " random queries: %" PRIu32 " with rows, %" PRIu32 " refused by DuckDB, %" PRIu32
           " as one task, %" PRIu32 " by ranges\n",
           n, c.n_rows, c.n_refused, c.n_single, c.n_ranged);
    CHECK_UINT(n_failed, 0);
    /* The queries must be worth running: few refused, most with rows, most in stages. */
    CHECK(c.n_refused * 10 <= n + 10);
    CHECK(c.n_rows * 2 + 10 >= n);
    CHECK(c.n_single * 4 <= n + 10);
    CHECK(c.n_ranged * 25 + 10 >= n);
    campaign_close(&c);
}

/* The test of the test: each mistake shows itself within so many queries, by rows and not by a query that fails. */
TEST(random_queries_show_mistakes_that_are_made_on_purpose)
{
    static const enum run_mistake mistakes[] = {MISTAKE_SPLIT, MISTAKE_SCATTER, MISTAKE_AGGREGATE, MISTAKE_SHARE};
    struct campaign c = campaign_open();
    struct shrinking by_rows = {.campaign = &c};
    for (size_t i = 0; i < ARRAY_LEN(mistakes); i++) {
        bool is_shown = false;
        uint64_t seed = 0;
        while (!is_shown && seed < MISTAKE_QUERIES_MAX) {
            struct decisions decisions = {0};
            struct buf sql = {0};
            choose_options(&c, ++seed);
            c.options.mistake = mistakes[i];
            generate_query(&c.schema, seed, &decisions, &sql);
            is_shown = still_differs(&by_rows, sql.data);
            buf_deinit(&sql);
            decisions_deinit(&decisions);
        }
        printf("mistake %zu: shown by query %" PRIu64 "\n", i + 1, seed);
        CHECK(is_shown);
    }
    campaign_close(&c);
}
