/*
 * Random queries (query/generator.h) over real workers. CAPSTAN_TEST_RANDOM says how many, CAPSTAN_TEST_SEED where to begin. A
 * seed makes the same query as in tests/integration/query, which runs more of them, inside of one DuckDB, and makes those
 * smaller that show a difference; unless told, the two begin so far apart that they have no query in common.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pair.h"
#include "query/data.h"
#include "query/generator.h"
#include "query/schema.h"
#include "test.h"

#define QUERIES_DEFAULT 350
#define SEED_DEFAULT 1000001
#define FAILURES_MAX 5

/* As in query/random_test.c: a filter that DuckDB 1.5.6 cannot apply to files whose columns are in different places. */
static bool fails_in_duckdb(struct pair *pair, const char *sql, const char *message)
{
    static const char reason[] = "Can't convert TableFilterType (BLOOM_FILTER) from global to local indexes";
    struct table ignored = {0};
    struct error e = {0};
    bool fails = strstr(message, reason) != NULL &&
                 table_append(&ignored, pair->clusters[0].connection, sql, &e) != ERR_OK &&
                 strstr(e.message, reason) != NULL;
    table_deinit(&ignored);
    return fails;
}

TEST(random_queries_give_the_same_over_workers_and_in_one_piece)
{
    struct pair pair;
    uint64_t first = pair_number("CAPSTAN_TEST_SEED", SEED_DEFAULT);
    uint64_t n = pair_number("CAPSTAN_TEST_RANDOM", QUERIES_DEFAULT);
    uint64_t n_run = 0;
    uint64_t n_cut = 0;
    uint32_t n_failed = 0;
    pair_open(&pair);
    struct schema schema = schema_open(pair.clusters[0].connection, test_data()->tables, test_data()->n_tables);
    for (uint64_t seed = first; seed < first + n && n_failed < FAILURES_MAX; seed++) {
        struct decisions decisions = {0};
        struct buf query = {0};
        struct buf sql = {0};
        struct buf why = {0};
        struct table expected = {0};
        struct error e = {0};
        struct pair_run run = {0};
        const struct pair_way *way = pair_way_of((uint32_t)(seed % PAIR_WAYS));
        generate_query(&schema, seed, &decisions, &query);
        if (pair_whole(&pair, query.data, &expected, &sql, &e) == ERR_OK) { /* else DuckDB itself refuses it */
            n_run++;
            if (!pair_compare(&pair, sql.data, way, &expected, ORDER_IS_FREE, &run, &why) &&
                !fails_in_duckdb(&pair, sql.data, why.data)) {
                print_error("seed %" PRIu64 ", %s: %s\n  %s\n", seed, way->name, sql.data, why.data);
                n_failed++;
            }
            n_cut += run.n_stages > 1 ? 1 : 0;
        }
        decisions_deinit(&decisions);
        table_deinit(&expected);
        buf_deinit(&query);
        buf_deinit(&sql);
        buf_deinit(&why);
    }
    schema_close(&schema);
    pair_close(&pair);
    printf("%" PRIu64 " random queries: %" PRIu64 " run, %" PRIu64 " of them in stages\n", n, n_run, n_cut);
    CHECK_UINT(n_failed, 0);
    CHECK(n_run * 10 + 10 >= n * 9);
    CHECK(n_cut * 4 + 10 >= n * 3);
}

/* DuckDB begins to read one of its inputs a second time. */
TEST(a_stage_whose_input_is_read_twice_is_run_with_its_rows_kept)
{
    static const char sql[] =
        "SELECT o.score, l.l_linenumber, sum(o.k) OVER (PARTITION BY l.l_extendedprice) FROM one o "
        "JOIN (SELECT * FROM lineitem q WHERE hash(q) % 237 = 0) l ON o.name = l.l_shipinstruct "
        "ANTI JOIN supplier s ON l.l_suppkey = s.s_suppkey WHERE l.l_shipinstruct <> 'a' OR l.l_tax >= 1607.0";
    struct pair pair;
    struct table expected = {0};
    struct buf text = {0};
    struct error e = {0};
    pair_open(&pair);
    CHECK_ERR(pair_whole(&pair, sql, &expected, &text, &e), ERR_OK);
    for (uint32_t way = 0; way < PAIR_WAYS; way++) {
        struct buf why = {0};
        struct pair_run run = {0};
        (void)pair_compare(&pair, text.data, pair_way_of(way), &expected, ORDER_IS_FREE, &run, &why);
        CHECK_STR(why.n > 0 ? why.data : "", "");
        buf_deinit(&why);
    }
    table_deinit(&expected);
    buf_deinit(&text);
    pair_close(&pair);
}
