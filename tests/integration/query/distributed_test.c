/*
 * Queries cut into stages give what one DuckDB gives: values and types, whatever the number of partitions and whether
 * sides of joins are broadcast or spread.
 *
 * By default each query is run in one of the ways, chosen by a seed; with CAPSTAN_TEST_ALL=1 in all of them. With
 * CAPSTAN_TEST_UPDATE=1, the golden files are written anew.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/prng.h"
#include "query/data.h"
#include "query/runner.h"
#include "test.h"

#define SINGLE_PERCENT_MAX 10 /* of the queries that read files */
#define FILELESS "it reads no files"
#define FILELESS_MARK "; there is nothing to share out"
#define SEED 20240601
#define PLANNED_WAYS 4 /* the first ways, whose plans are not refined and whose stages are all forced */

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

/* Ways to run a query. In the last four, plans are refined with the sizes of finished stages. */
static const struct {
    const char *name;
    struct run_options options;
} ways[] = {
    {"2 partitions, no broadcast", {.cut = {.partitions = 2, .slots = 3, .is_forced = true}}},
    {"5 partitions, no broadcast", {.cut = {.partitions = 5, .slots = 5, .is_forced = true}}},
    {"2 partitions, all broadcast",
     {.cut = {.partitions = 2, .slots = 2, .is_forced = true, .broadcast_bytes = UINT64_MAX}}},
    {"5 partitions, all broadcast",
     {.cut = {.partitions = 5, .slots = 7, .is_forced = true, .broadcast_bytes = UINT64_MAX}}},
    {"5 partitions, as sizes say",
     {.cut = {.partitions = 5, .slots = 3, .is_forced = true, .broadcast_bytes = 20000}, .is_refined = true}},
    {"3 partitions, as sizes say, few tasks",
     {.cut = {.partitions = 3, .slots = 3, .is_forced = true, .broadcast_bytes = 200000},
      .is_refined = true,
      .refine_bytes = 50000}},
    {"3 partitions, the last stages as one task",
     {.cut = {.partitions = 3, .slots = 3, .is_forced = true, .broadcast_bytes = 20000, .tail_bytes = LIMIT_QUANTITY},
      .is_refined = true}},
    {"3 partitions, small tables read by each task, the last stages as one task",
     {.cut = {.partitions = 3, .slots = 3, .broadcast_bytes = 200000, .tail_bytes = LIMIT_QUANTITY},
      .is_refined = true}},
};

struct totals {
    uint32_t n;
    uint32_t n_failed;
    uint32_t n_distributed;
    uint32_t n_without_rows; /* that should have some, or have some and should not */
    uint32_t n_choices;
    uint32_t n_sieves;
    uint32_t n_sieves_out;
    uint32_t n_ranged;
    uint32_t n_empty_scans;
    uint32_t n_empty_tasks;
    uint32_t n_grouped;
    struct buf singles; /* "name: reason" lines of those that nobody shares, whatever is forced */
    uint32_t n_single;
    uint32_t n_unshared; /* runs of others, in ways that are planned, of which no stage had two tasks */
};

static struct runner open_runner(void)
{
    struct runner runner = {.tables = test_data()->tables, .n_tables = test_data()->n_tables};
    struct error e = {0};
    CHECK_ERR(runner_open(&runner, &e), ERR_OK);
    test_create_views(runner.connection);
    return runner;
}

static bool run_one_way(struct runner *runner, const struct test_query *query, const struct table *expected, size_t way,
                        struct run_facts *facts)
{
    struct table actual = {0};
    struct buf difference = {0};
    struct error e = {0};
    enum table_order order = test_query_order(query);
    bool is_same = false;
    if (run_cut(runner, query->sql, &ways[way].options, &actual, facts, &e) != ERR_OK) {
        fprintf(stderr, "%s, %s: %s\n", query->name, ways[way].name, e.message);
    } else {
        is_same = table_equal(expected, &actual, order, &difference);
        if (!is_same) {
            fprintf(stderr, "%s, %s: %s\n", query->name, ways[way].name, difference.data);
        }
    }
    buf_deinit(&difference);
    table_deinit(&actual);
    return is_same;
}

static void note_facts(struct totals *totals, const struct run_facts *facts, bool is_first)
{
    totals->n_choices += facts->n_choices;
    totals->n_sieves += facts->n_sieves;
    totals->n_sieves_out += facts->n_sieves_out;
    totals->n_ranged += facts->n_ranged;
    totals->n_empty_scans += facts->n_empty_scans;
    totals->n_empty_tasks += facts->n_empty_tasks;
    totals->n_grouped += facts->n_grouped;
    if (!is_first) {
        return;
    }
    totals->n++;
    totals->n_distributed += !facts->is_single && facts->n_splits_max > 1 ? 1 : 0;
}

/* Notes a query that is one task by decision, or of which no stage has two tasks in some way. Whether it is one. */
static bool note_single(struct runner *runner, const struct test_query *query, struct totals *totals)
{
    const char *reason = NULL;
    struct run_facts facts = {0};
    for (size_t way = 0; way < PLANNED_WAYS && reason == NULL; way++) {
        struct error e = {0};
        CHECK_ERR(run_plan(runner, query->sql, &ways[way].options.cut, &facts, &e), ERR_OK);
        if (facts.is_single) {
            reason = facts.reason;
        } else if (facts.n_tasks_max < 2) {
            reason = "each of its stages is one task";
        }
    }
    if (reason != NULL) {
        totals->n_single++;
        buf_format(&totals->singles, "%s: %s%s\n", query->name, reason, query->is_fileless ? FILELESS_MARK : "");
    }
    /* Only these are not among those that could be shared. */
    CHECK(!query->is_fileless || (reason != NULL && strcmp(reason, FILELESS) == 0));
    return reason != NULL;
}

/* Runs the queries of a file; `n_ways` ways each unless all are wanted. */
static struct totals run_file(struct runner *runner, const char *file, uint32_t n_ways)
{
    struct totals totals = {0};
    struct prng prng;
    uint32_t n = 0;
    const struct test_query *queries = test_queries(file, &n);
    const char *only = getenv("CAPSTAN_TEST_QUERY");
    prng_init(&prng, SEED);
    for (uint32_t i = 0; i < n; i++) {
        struct table expected = {0};
        struct error e = {0};
        uint32_t first = (uint32_t)prng_below(&prng, ARRAY_LEN(ways));
        uint32_t n_tried = is_set("CAPSTAN_TEST_ALL") ? (uint32_t)ARRAY_LEN(ways) : n_ways;
        if (only != NULL && strcmp(queries[i].name, only) != 0) {
            continue;
        }
        if (run_whole(runner, queries[i].sql, &expected, &e) != ERR_OK) {
            fprintf(stderr, "%s: in one piece: %s\n", queries[i].name, e.message);
            totals.n_failed++;
        }
        bool is_known = e.code == ERR_OK && note_single(runner, &queries[i], &totals);
        totals.n_without_rows += e.code == ERR_OK && !test_has_rows(&queries[i], &expected) ? 1 : 0;
        for (uint32_t k = 0; k < n_tried && e.code == ERR_OK; k++) {
            struct run_facts facts;
            /* The ways that go together are far apart, so that two of them are different enough. */
            size_t way = (first + k * (n_tried == 2 ? 3 : 1)) % ARRAY_LEN(ways);
            totals.n_failed += run_one_way(runner, &queries[i], &expected, way, &facts) ? 0 : 1;
            note_facts(&totals, &facts, k == 0);
            totals.n_unshared += way < PLANNED_WAYS && !is_known && facts.n_tasks_max < 2 ? 1 : 0;
        }
        table_deinit(&expected);
    }
    printf("%s: %" PRIu32 " queries, %" PRIu32 " distributed, %" PRIu32 " as one task, %" PRIu32
           " choices for a broadcast, %" PRIu32 " sieves and %" PRIu32 " taken out, %" PRIu32
           " stages by ranges, %" PRIu32 " that read no file and %" PRIu32
           " that are one task since they are empty, %" PRIu32 " with fewer tasks\n",
           file, totals.n, totals.n_distributed, totals.n_single, totals.n_choices, totals.n_sieves,
           totals.n_sieves_out, totals.n_ranged, totals.n_empty_scans, totals.n_empty_tasks, totals.n_grouped);
    return totals;
}

static void check_golden(const char *path, const char *text)
{
    if (is_set("CAPSTAN_TEST_UPDATE")) {
        FILE *file = fopen(path, "wb");
        CHECK(file != NULL);
        CHECK_UINT(fwrite(text, 1, strlen(text), file), strlen(text));
        CHECK_INT(fclose(file), 0);
    }
    CHECK_STR(text, test_read_file(path));
}

TEST(all_queries_of_tpch_are_distributed_and_right)
{
    struct runner runner = open_runner();
    struct totals totals = run_file(&runner, "tpch.sql", 2);
    CHECK_UINT(totals.n_failed, 0);
    CHECK_UINT(totals.n_single, 0);
    if (getenv("CAPSTAN_TEST_QUERY") == NULL) {
        CHECK_UINT(totals.n, 22);
        CHECK_UINT(totals.n_without_rows, TEST_TPCH_WITHOUT_ROWS);
        CHECK_UINT(totals.n_distributed, 22);
        CHECK(totals.n_choices > 0);
        CHECK(totals.n_ranged > 0);
        CHECK(totals.n_grouped > 0);
    }
    buf_deinit(&totals.singles);
    runner_close(&runner);
}

/* Of q11, no supplier is of the nation that it asks for; when that is known, what they have is not read. */
TEST(what_would_be_joined_with_nothing_is_not_read)
{
    struct runner runner = open_runner();
    uint32_t n = 0;
    uint32_t n_empty_scans = 0;
    uint32_t n_empty_tasks = 0;
    const struct test_query *queries = test_queries("tpch.sql", &n);
    for (uint32_t i = 0; i < n; i++) {
        struct table expected = {0};
        struct error e = {0};
        if (strcmp(queries[i].name, "q11") != 0) {
            continue;
        }
        CHECK_ERR(run_whole(&runner, queries[i].sql, &expected, &e), ERR_OK);
        for (size_t way = PLANNED_WAYS; way < ARRAY_LEN(ways); way++) {
            struct run_facts facts;
            CHECK(run_one_way(&runner, &queries[i], &expected, way, &facts));
            n_empty_scans += facts.n_empty_scans;
            n_empty_tasks += facts.n_empty_tasks;
        }
        table_deinit(&expected);
    }
    CHECK(n_empty_scans > 0);
    CHECK(n_empty_tasks > 0);
    runner_close(&runner);
}

/* Subqueries whose large side cannot stay as a whole. What may be broadcast decides whether a sieve is worth it. */
TEST(rows_without_a_match_are_left_out_before_they_move)
{
    static const char *const names[] = {"q04", "q17", "q18", "q22"};
    static const uint64_t limits[] = {500, 5000, 50000, 200000};
    struct runner runner = open_runner();
    uint32_t n = 0;
    uint32_t n_sieves = 0;
    uint32_t n_sieves_out = 0;
    const struct test_query *queries = test_queries("tpch.sql", &n);
    for (uint32_t i = 0; i < n; i++) {
        bool is_one = false;
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            is_one = is_one || strcmp(queries[i].name, names[k]) == 0;
        }
        for (size_t k = 0; k < ARRAY_LEN(limits) && is_one; k++) {
            struct run_options options = {
                .cut = {.partitions = 3, .slots = 3, .is_forced = true, .broadcast_bytes = limits[k]},
                .is_refined = true};
            struct table expected = {0};
            struct table actual = {0};
            struct run_facts facts;
            struct error e = {0};
            struct buf difference = {0};
            CHECK_ERR(run_whole(&runner, queries[i].sql, &expected, &e), ERR_OK);
            CHECK_ERR(run_cut(&runner, queries[i].sql, &options, &actual, &facts, &e), ERR_OK);
            CHECK(table_equal(&expected, &actual, ORDER_MATTERS, &difference));
            n_sieves += facts.n_sieves;
            n_sieves_out += facts.n_sieves_out;
            buf_deinit(&difference);
            table_deinit(&expected);
            table_deinit(&actual);
        }
    }
    printf("%" PRIu32 " sieves, %" PRIu32 " taken out\n", n_sieves, n_sieves_out);
    CHECK(n_sieves > 0);
    CHECK(n_sieves_out > 0);
    runner_close(&runner);
}

TEST(queries_over_the_whole_dialect_are_right_and_few_of_them_are_one_task)
{
    struct runner runner = open_runner();
    struct totals totals = run_file(&runner, "wide.sql", 2);
    if (getenv("CAPSTAN_TEST_QUERY") == NULL) {
        check_golden("tests/data/sql/single.txt", totals.singles.n > 0 ? totals.singles.data : "");
        CHECK_UINT(totals.n_unshared, 0);
        CHECK(totals.n_grouped > 0);
    }
    CHECK_UINT(totals.n_failed, 0);
    CHECK_UINT(totals.n_without_rows, 0);
    buf_deinit(&totals.singles);
    runner_close(&runner);
}

TEST(what_cannot_be_cut_is_one_task_with_its_reason_and_right)
{
    struct runner runner = open_runner();
    struct totals totals = run_file(&runner, "fallback.sql", (uint32_t)ARRAY_LEN(ways));
    if (getenv("CAPSTAN_TEST_QUERY") == NULL) {
        check_golden("tests/data/sql/fallback.txt", totals.singles.n > 0 ? totals.singles.data : "");
        CHECK_UINT(totals.n_single, totals.n);
        CHECK(totals.n > 0);
    }
    CHECK_UINT(totals.n_failed, 0);
    CHECK_UINT(totals.n_without_rows, 0);
    buf_deinit(&totals.singles);
    runner_close(&runner);
}

/* How many lines of the golden file there are, and how many of them have the mark of queries without files. */
static uint32_t count_lines(const char *path, uint32_t *out_fileless)
{
    uint32_t n = 0;
    const char *text = test_read_file(path);
    *out_fileless = 0;
    for (const char *end = NULL; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        size_t mark = strlen(FILELESS_MARK);
        n++;
        *out_fileless += (size_t)(end - text) > mark && strncmp(end - mark, FILELESS_MARK, mark) == 0 ? 1 : 0;
    }
    return n;
}

/* By the golden files, which the tests above compare with what is so. */
TEST(at_most_a_tenth_of_the_queries_that_read_files_are_one_task)
{
    static const char *const files[][2] = {{"wide.sql", "tests/data/sql/single.txt"},
                                           {"fallback.sql", "tests/data/sql/fallback.txt"}};
    uint32_t n_all = 0;
    uint32_t n_single = 0;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        uint32_t n = 0;
        uint32_t n_marked = 0;
        uint32_t n_fileless = 0;
        const struct test_query *queries = test_queries(files[i][0], &n);
        for (uint32_t k = 0; k < n; k++) {
            n_marked += queries[k].is_fileless ? 1 : 0;
        }
        n_single += count_lines(files[i][1], &n_fileless);
        CHECK_UINT(n_fileless, n_marked);
        n_single -= n_fileless;
        n_all += n - n_fileless;
    }
    printf("%" PRIu32 " of %" PRIu32 " queries that read files are one task\n", n_single, n_all);
    CHECK(n_single > 0);
    CHECK(n_single * 100 <= n_all * SINGLE_PERCENT_MAX);
}

TEST(queries_that_were_wrong_once_are_right_in_all_ways)
{
    struct runner runner = open_runner();
    struct totals totals = run_file(&runner, "random.sql", (uint32_t)ARRAY_LEN(ways));
    CHECK_UINT(totals.n_failed, 0);
    buf_deinit(&totals.singles);
    runner_close(&runner);
}

/* Whether the query fails in this way, and for the reason that is expected: `e` names the task's SQL, too, at its end. */
static bool fails_one_way(struct runner *runner, const struct test_query *query, size_t way)
{
    struct table actual = {0};
    struct run_facts facts;
    struct error e = {0};
    bool has_failed = run_cut(runner, query->sql, &ways[way].options, &actual, &facts, &e) != ERR_OK;
    char *sql = strstr(e.message, "\n  in: ");
    if (sql != NULL) {
        *sql = '\0';
    }
    bool is_expected = has_failed && strstr(e.message, query->fails) != NULL;
    if (!is_expected) {
        fprintf(stderr, "%s, %s: %s instead of: %s\n", query->name, ways[way].name,
                has_failed ? e.message : "no failure", query->fails);
    }
    table_deinit(&actual);
    return is_expected;
}

TEST(queries_that_fail_in_one_piece_fail_in_all_ways_with_the_same_text)
{
    struct runner runner = open_runner();
    uint32_t n = 0;
    uint32_t n_missed = 0;
    const struct test_query *queries = test_queries("failing.sql", &n);
    for (uint32_t i = 0; i < n; i++) {
        struct table whole = {0};
        struct error e = {0};
        CHECK(queries[i].fails != NULL);
        if (run_whole(&runner, queries[i].sql, &whole, &e) == ERR_OK || strstr(e.message, queries[i].fails) == NULL) {
            fprintf(stderr, "%s, in one piece: '%s' instead of: %s\n", queries[i].name, e.message, queries[i].fails);
            n_missed++;
        }
        table_deinit(&whole);
        for (size_t way = 0; way < ARRAY_LEN(ways); way++) {
            n_missed += fails_one_way(&runner, &queries[i], way) ? 0 : 1;
        }
    }
    CHECK(n > 0);
    CHECK_UINT(n_missed, 0);
    runner_close(&runner);
}

TEST(the_plans_of_tpch_read_as_in_the_golden_files)
{
    struct runner runner = open_runner();
    struct cut_options options = {.partitions = 4, .slots = 4, .broadcast_bytes = 65536, .is_forced = true};
    uint32_t n = 0;
    const struct test_query *queries = test_queries("tpch.sql", &n);
    for (uint32_t i = 0; i < n; i++) {
        struct buf text = {0};
        struct error e = {0};
        char path[200];
        CHECK_ERR(run_explain(&runner, queries[i].sql, &options, &text, &e), ERR_OK);
        snprintf(path, sizeof path, "tests/data/explain/%s.txt", queries[i].name);
        check_golden(path, text.data);
        buf_deinit(&text);
    }
    runner_close(&runner);
}

/* How many tasks read the files; the rows are compared as well. */
static uint32_t count_readers(struct runner *runner, const char *text, const struct run_options *options)
{
    struct table expected = {0};
    struct table actual = {0};
    struct run_facts facts;
    struct error e = {0};
    struct buf difference = {0};
    const char *sql = test_fill_in(text);
    CHECK_ERR(run_whole(runner, sql, &expected, &e), ERR_OK);
    enum err err = run_cut(runner, sql, options, &actual, &facts, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    (void)table_equal(&expected, &actual, ORDER_IS_FREE, &difference);
    CHECK_STR(difference.n > 0 ? difference.data : "", "");
    buf_deinit(&difference);
    table_deinit(&expected);
    table_deinit(&actual);
    return facts.n_readers_max;
}

#define SHARED "SELECT count(*) AS n, min(id) AS i, max(code) AS c, min(name) AS m FROM "

TEST(several_files_of_csv_or_json_are_shared_out_and_read_as_one)
{
    static const struct {
        const char *sql;
        uint32_t n_tasks;
    } cases[] = {
        {SHARED "'{ugly}/shared-*.csv'", 3},
        {SHARED "read_csv('{ugly}/shared-*.csv', header = true)", 3},
        {SHARED "read_csv(['{ugly}/shared-2.csv', '{ugly}/shared-0.csv', '{ugly}/shared-2.csv'])", 2},
        {"SELECT count(*) AS n, max(extra) AS e FROM read_json('{ugly}/shared-*.json')", 2},
        {"SELECT count(*) AS n, max(s) AS s FROM '{ugly}/plain.csv'", 1},
        {"SELECT count(*) AS n, min(name) AS m FROM '{ugly}/uneven-*.csv'", 1}, /* with quotes, and without */
        {SHARED "read_csv('{ugly}/shared-*.csv', filename = true)", 1},
        {SHARED "read_csv('{ugly}/shared-*.csv', union_by_name = true)", 1},
    };
    struct runner runner = open_runner();
    struct run_options options = {.cut = {.partitions = 2, .slots = 4, .is_forced = true}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CHECK_UINT(count_readers(&runner, cases[i].sql, &options), cases[i].n_tasks);
    }
    options.cut.slots = 2; /* more files than tasks */
    CHECK_UINT(count_readers(&runner, SHARED "'{ugly}/shared-*.csv'", &options), 2);
    options.cut = (struct cut_options){.slots = 4, .single_task_bytes = 1000}; /* not forced, but not small either */
    CHECK_UINT(count_readers(&runner, SHARED "'{ugly}/shared-*.csv'", &options), 3);
    runner_close(&runner);
}

/* Its tables come from a table function, so nothing splits them; what they are joined with is split. */
TEST(a_local_database_is_read_beside_files_that_tasks_share)
{
    struct runner runner = open_runner();
    for (size_t way = 0; way < PLANNED_WAYS; way++) {
        CHECK(count_readers(&runner,
                            "SELECT d.name, f.id FROM read_duckdb('{ugly}/local.duckdb', table_name = 't') d "
                            "JOIN facts f ON f.k = d.k WHERE f.id < 1000",
                            &ways[way].options) > 1);
    }
    runner_close(&runner);
}

TEST(a_small_query_is_one_task_unless_it_is_forced)
{
    struct runner runner = open_runner();
    struct run_options options = {.cut = {.slots = 2, .single_task_bytes = 33554432, .broadcast_bytes = 1 << 20}};
    struct table table = {0};
    struct run_facts facts;
    struct error e = {0};
    CHECK_ERR(run_cut(&runner, "SELECT count(*) FROM lineitem", &options, &table, &facts, &e), ERR_OK);
    CHECK(facts.is_single);
    table_deinit(&table);
    options.cut.single_task_bytes = 1000;
    const char *sql = "SELECT l_returnflag, n_name FROM lineitem JOIN nation ON n_nationkey = l_suppkey % 25";
    CHECK_ERR(run_cut(&runner, sql, &options, &table, &facts, &e), ERR_OK);
    CHECK(!facts.is_single);
    CHECK_UINT(facts.n_stages, 1); /* the nations are read by each task for itself */
    CHECK(facts.n_splits_max > 1);
    table_deinit(&table);
    runner_close(&runner);
}
