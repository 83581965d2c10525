/*
 * Random queries (query/generator.h) over real workers. CAPSTAN_TEST_RANDOM says how many, CAPSTAN_TEST_SEED where to begin. A
 * seed makes the same query as in tests/integration/query, which runs more of them, inside of one DuckDB; unless told, the two
 * begin so far apart that they have no query in common. A query that shows a difference is made smaller, over workers too,
 * before it is printed; put it into tests/data/sql/random.sql, so that it stays.
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
#define SHRINK_CALLS_MAX 300
#define MISTAKE_QUERIES_MAX 100
#define MISTAKE_CALLS_MAX 60

struct campaign {
    struct pair pair;
    struct schema schema;
    const struct pair_way *way;
    struct pair_run run; /* of the last query that DuckDB has not refused */
    uint64_t n_run;
    uint64_t n_cut;
    uint64_t n_ordered; /* of those that are in stages */
};

static void campaign_open(struct campaign *c)
{
    *c = (struct campaign){0};
    pair_open(&c->pair);
    c->schema = schema_open(c->pair.clusters[0].connection, test_data()->tables, test_data()->n_tables);
}

static void campaign_close(struct campaign *c)
{
    schema_close(&c->schema);
    pair_close(&c->pair);
}

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

/* Whether the query, over workers, gives something else than in one piece. What DuckDB itself refuses shows nothing. */
static bool shows_difference(struct campaign *c, const char *query, struct buf *why)
{
    struct table expected = {0};
    struct buf sql = {0};
    struct error e = {0};
    bool is_different = false;
    if (pair_whole(&c->pair, query, &expected, &sql, &e) == ERR_OK) {
        enum table_order order = pair_order(&c->pair, sql.data);
        is_different = !pair_compare(&c->pair, sql.data, c->way, &expected, order, &c->run, why) &&
                       !fails_in_duckdb(&c->pair, sql.data, why->data);
        c->n_run++;
        c->n_cut += c->run.n_stages > 1 ? 1 : 0;
        c->n_ordered += c->run.n_stages > 1 && order == ORDER_MATTERS ? 1 : 0;
    }
    table_deinit(&expected);
    buf_deinit(&sql);
    return is_different;
}

/* A query that is made smaller: one that has other rows must not become one that fails, for it might be for another reason. */
struct shrinking {
    struct campaign *campaign;
    bool has_failed;
};

static bool still_differs(void *context, const char *query)
{
    const struct shrinking *shrinking = context;
    struct buf why = {0};
    bool is_different = shows_difference(shrinking->campaign, query, &why);
    buf_deinit(&why);
    return is_different && shrinking->campaign->run.has_failed == shrinking->has_failed;
}

/* Makes the query that the decisions lead to smaller, as long as it shows a difference, and writes it. */
static void shrink(struct campaign *c, struct decisions *decisions, uint32_t calls_max, struct buf *out_query)
{
    struct shrinking shrinking = {.campaign = c, .has_failed = c->run.has_failed};
    generator_shrink(&c->schema, decisions, still_differs, &shrinking, calls_max);
    buf_reset(out_query);
    generate_from(&c->schema, decisions, out_query);
}

TEST(random_queries_give_the_same_over_workers_and_in_one_piece)
{
    struct campaign c;
    uint64_t first = pair_number("CAPSTAN_TEST_SEED", SEED_DEFAULT);
    uint64_t n = pair_number("CAPSTAN_TEST_RANDOM", QUERIES_DEFAULT);
    uint32_t n_failed = 0;
    campaign_open(&c);
    for (uint64_t seed = first; seed < first + n && n_failed < FAILURES_MAX; seed++) {
        struct decisions decisions = {0};
        struct buf query = {0};
        struct buf why = {0};
        c.way = pair_way_of((uint32_t)(seed % PAIR_WAYS));
        generate_query(&c.schema, seed, &decisions, &query);
        if (shows_difference(&c, query.data, &why)) {
            n_failed++;
            shrink(&c, &decisions, SHRINK_CALLS_MAX, &query);
            buf_reset(&why);
            (void)shows_difference(&c, query.data, &why);
            print_error("seed %" PRIu64 ", %s: %s\n  %s\n", seed, c.way->name, query.data, why.data);
        }
        decisions_deinit(&decisions);
        buf_deinit(&query);
        buf_deinit(&why);
    }
    printf("%" PRIu64 " random queries: %" PRIu64 " run, %" PRIu64 " of them in stages, %" PRIu64
           " of these in order\n",
           n, c.n_run, c.n_cut, c.n_ordered);
    CHECK_UINT(n_failed, 0);
    CHECK(c.n_run * 10 + 10 >= n * 9);
    CHECK(c.n_cut * 4 + 10 >= n * 3);
    CHECK(c.n_ordered * 20 + 10 >= n);
    campaign_close(&c);
}

/* The first query that shows the mistake by its rows, and then a smaller one. Without the mistake that one is right. */
static void check_mistake(struct campaign *c, enum cluster_mistake mistake)
{
    struct decisions decisions = {0};
    struct buf query = {0};
    struct buf why = {0};
    bool is_shown = false;
    uint64_t seed = 0;
    c->pair.mistake = mistake;
    while (!is_shown && seed < MISTAKE_QUERIES_MAX) {
        struct shrinking by_rows = {.campaign = c};
        c->way = pair_way_of((uint32_t)(seed % PAIR_WAYS));
        buf_reset(&query);
        generate_query(&c->schema, seed++, &decisions, &query);
        is_shown = still_differs(&by_rows, query.data);
    }
    CHECK(is_shown);
    size_t n_before = query.n;
    shrink(c, &decisions, MISTAKE_CALLS_MAX, &query);
    printf("mistake %d: shown by query %" PRIu64 ", of %zu bytes, and by %s\n", (int)mistake, seed, n_before,
           query.data);
    CHECK(query.n < n_before);
    CHECK(shows_difference(c, query.data, &why));
    CHECK(!c->run.has_failed);
    c->pair.mistake = CLUSTER_MISTAKE_NONE;
    buf_reset(&why);
    CHECK(!shows_difference(c, query.data, &why));
    decisions_deinit(&decisions);
    buf_deinit(&query);
    buf_deinit(&why);
}

/* The test of the test: rows that are lost between workers, and rows of the result that are in another order. */
TEST(random_queries_over_workers_show_mistakes_that_are_made_on_purpose_and_become_smaller)
{
    struct campaign c;
    campaign_open(&c);
    check_mistake(&c, CLUSTER_MISTAKE_OUTPUT);
    check_mistake(&c, CLUSTER_MISTAKE_ORDER);
    campaign_close(&c);
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
