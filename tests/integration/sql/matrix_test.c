/*
 * The queries of tests/data over real workers: what stages write goes through scatter, Arrow, store and network. Each query
 * can be run in ten ways: nothing or everything broadcast, 2 or 5 partitions, rows in memory or in files, by force; and as in
 * a cluster that is in use, where small tables are read by every task and the last stages become one.
 *
 * Of all runs a quarter is done, and it is another one each day: four days, or four values of CAPSTAN_TEST_SEED in a row, have
 * all of them, and so does CAPSTAN_TEST_ALL=1. What is asserted of the runs has been seen to hold for each of the four.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "pair.h"
#include "query/data.h"
#include "test.h"

#define DAY_MS INT64_C(86400000)
#define TURNS 4

/* How many runs there were, of these in stages, by several tasks, and with the last stages as one task. */
struct counts {
    uint32_t n_runs;
    uint32_t n_cut;
    uint32_t n_shared;
    uint32_t n_tails;
    uint32_t n_moved; /* in which rows went from one stage to another */
    uint32_t n_filed; /* that have left files */
};

struct totals {
    uint32_t n_queries;
    struct counts forced;
    struct counts in_use;
    struct counts in_memory; /* of all of these, those with memory for what stages write */
    struct counts in_files;  /* and those without */
    uint32_t n_failed;
    uint32_t n_without_rows; /* that should have some, or have some and should not */
};

static void note_run(struct counts *counts, const struct pair_run *run)
{
    counts->n_runs++;
    counts->n_cut += run->n_stages > 1 ? 1 : 0; /* else the planning task has run it */
    counts->n_shared += run->n_tasks_max > 1 ? 1 : 0;
    counts->n_tails += run->has_tail ? 1 : 0;
    counts->n_moved += run->moved_rows > 0 ? 1 : 0;
    counts->n_filed += run->n_files > 0 ? 1 : 0;
}

static void print_counts(const char *file, uint64_t seed, const char *how, const struct counts *counts)
{
    printf("%s with CAPSTAN_TEST_SEED=%" PRIu64 ", %s: %" PRIu32 " runs, %" PRIu32 " of them in stages, %" PRIu32
           " by several tasks, %" PRIu32 " with the last stages as one task; in %" PRIu32 " rows moved, %" PRIu32
           " left files\n",
           file, seed, how, counts->n_runs, counts->n_cut, counts->n_shared, counts->n_tails, counts->n_moved,
           counts->n_filed);
}

/* What is run of a file: a quarter of all, besides that all that is as in use, or everything. */
enum choice { A_QUARTER, A_QUARTER_AND_IN_USE, EVERYTHING };

/* Each way has its turn with each query; ways that have it together differ in all that they can. */
static bool is_chosen(enum choice choice, uint64_t seed, uint32_t query, uint32_t way)
{
    bool is_in_turn = (seed + query + way + way / TURNS) % TURNS == 0;
    return is_in_turn || choice == EVERYTHING || (choice == A_QUARTER_AND_IN_USE && !pair_way_of(way)->is_forced);
}

static void run_query(struct pair *pair, const struct test_query *query, const bool *is_wanted, struct totals *totals)
{
    struct table expected = {0};
    struct buf sql = {0};
    struct error e = {0};
    enum table_order order = test_query_order(query);
    enum err err = pair_whole(pair, query->sql, &expected, &sql, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    totals->n_without_rows += test_has_rows(query, &expected) ? 0 : 1;
    for (uint32_t i = 0; i < PAIR_WAYS; i++) {
        const struct pair_way *way = pair_way_of(i);
        struct buf why = {0};
        struct pair_run run = {0};
        if (!is_wanted[i]) {
            continue;
        }
        if (!pair_compare(pair, sql.data, way, &expected, order, &run, &why)) {
            print_error("%s, %s: %s\n", query->name, way->name, why.data);
            totals->n_failed++;
        }
        note_run(way->is_forced ? &totals->forced : &totals->in_use, &run);
        note_run(way->is_spilled ? &totals->in_files : &totals->in_memory, &run);
        buf_deinit(&why);
    }
    table_deinit(&expected);
    buf_deinit(&sql);
}

static struct totals run_file(const char *file, enum choice choice)
{
    struct totals totals = {0};
    struct pair pair;
    uint32_t n = 0;
    pair_open(&pair);
    const struct test_query *queries = test_queries(file, &n);
    uint64_t seed = pair_number("CAPSTAN_TEST_SEED", (uint64_t)(clock_wall_ms() / DAY_MS));
    choice = pair_number("CAPSTAN_TEST_ALL", 0) != 0 ? EVERYTHING : choice;
    printf("%s: CAPSTAN_TEST_SEED=%" PRIu64 "\n", file, seed);
    (void)fflush(stdout);
    for (uint32_t i = 0; i < n; i++) {
        bool is_wanted[PAIR_WAYS];
        for (uint32_t way = 0; way < PAIR_WAYS; way++) {
            is_wanted[way] = is_chosen(choice, seed, i, way);
        }
        run_query(&pair, &queries[i], is_wanted, &totals);
    }
    for (uint32_t i = 0; i < 2 && totals.forced.n_cut > 0; i++) {
        for (uint32_t k = 0; k < CLUSTER_WORKERS; k++) {
            CHECK(exchange_server_bytes(pair.clusters[i].workers[k].server) > 0); /* rows went over the network */
        }
    }
    pair_close(&pair);
    totals.n_queries = n;
    print_counts(file, seed, "by force", &totals.forced);
    print_counts(file, seed, "as in use", &totals.in_use);
    print_counts(file, seed, "in memory", &totals.in_memory);
    print_counts(file, seed, "in files", &totals.in_files);
    (void)fflush(stdout); /* before what fails below, which may hold with the seed of another day */
    CHECK_UINT(totals.n_failed, 0);
    return totals;
}

TEST(the_queries_of_tpch_give_the_same_over_workers_in_all_ways)
{
    struct totals totals = run_file("tpch.sql", A_QUARTER_AND_IN_USE);
    CHECK_UINT(totals.n_queries, 22);
    CHECK_UINT(totals.n_without_rows, TEST_TPCH_WITHOUT_ROWS);
    CHECK(totals.forced.n_runs >= 44);
    CHECK_UINT(totals.forced.n_cut, totals.forced.n_runs);
    /* All that is as in use is run on every day, so these are always the same: 34 and 29 of 44. */
    CHECK_UINT(totals.in_use.n_runs, 44);
    CHECK(totals.in_use.n_shared >= 30);
    CHECK(totals.in_use.n_tails >= 20);
    CHECK_UINT(totals.in_files.n_filed, totals.in_files.n_moved);
    CHECK_UINT(totals.in_memory.n_filed, 0);
}

TEST(queries_that_cannot_be_cut_give_the_same_over_workers)
{
    struct totals totals = run_file("fallback.sql", EVERYTHING);
    CHECK(totals.n_queries > 0);
    CHECK_UINT(totals.n_without_rows, 0);
    CHECK_UINT(totals.forced.n_runs + totals.in_use.n_runs, PAIR_WAYS * totals.n_queries);
    CHECK_UINT(totals.forced.n_cut + totals.in_use.n_cut, 0);
}

TEST(queries_that_showed_a_difference_once_show_none_over_workers)
{
    struct totals totals = run_file("random.sql", EVERYTHING);
    CHECK(totals.n_queries > 0);
    CHECK_UINT(totals.forced.n_runs + totals.in_use.n_runs, PAIR_WAYS * totals.n_queries);
    CHECK(totals.forced.n_cut * 2 > totals.forced.n_runs);
    CHECK_UINT(totals.in_files.n_filed, totals.in_files.n_moved);
    CHECK_UINT(totals.in_memory.n_filed, 0);
}

TEST(queries_over_the_whole_dialect_give_the_same_over_workers_in_all_ways)
{
    struct totals totals = run_file("wide.sql", A_QUARTER);
    CHECK(totals.n_queries >= 150);
    CHECK_UINT(totals.n_without_rows, 0);
    CHECK(totals.forced.n_runs >= 2 * totals.n_queries);
    CHECK(totals.forced.n_cut * 10 > totals.forced.n_runs * 8);
    CHECK(totals.in_use.n_runs >= totals.n_queries / 2 - 1);
    CHECK(totals.in_use.n_shared * 2 > totals.in_use.n_runs);
    CHECK(totals.in_files.n_moved > totals.n_queries / 3);
    CHECK_UINT(totals.in_files.n_filed, totals.in_files.n_moved);
    CHECK_UINT(totals.in_memory.n_filed, 0);
}
