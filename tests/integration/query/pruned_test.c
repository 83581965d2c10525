/*
 * Folders by a value, of which a condition leaves out the one whose file has said what the types are: DuckDB still reads the
 * others as that one would have it. And columns that only such files have, or that are in the names of folders and in their
 * files.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "query/data.h"
#include "query/runner.h"
#include "test.h"

#define FOLDER(part, name, columns)                                                                                    \
    "COPY (SELECT " columns ", i AS k, " part " AS p FROM range(3000) r(i)) TO '{ugly}/" name                          \
    "' (FORMAT parquet, PARTITION_BY (p), ROW_GROUP_SIZE 2048, OVERWRITE_OR_IGNORE, FILENAME_PATTERN 'f" part "')"

static const char *const files[] = {
    FOLDER("0", "pruned", "i / 8 AS a, TIMESTAMP '2020-01-01' + to_hours(i) AS d, i::INTEGER AS s, {'v': i / 8} AS n"),
    FOLDER("1", "pruned",
           "(i % 100)::INTEGER AS a, DATE '2020-01-01' + (i % 9)::INTEGER AS d, (i % 30)::VARCHAR AS s, "
           "{'v': (i % 7)::INTEGER} AS n"),
    FOLDER("2", "pruned",
           "((i % 100) + 0.3)::DECIMAL(10, 2) AS a, DATE '2020-01-05' AS d, (i % 30)::VARCHAR AS s, "
           "{'v': (i % 7)::INTEGER} AS n"),
    FOLDER("0", "pruned-names", "i AS a, 'x' || i AS extra"),
    FOLDER("1", "pruned-names", "i::INTEGER AS a"),
    FOLDER("2", "pruned-names", "(i + 0.5)::DECIMAL(10, 2) AS a"),
    "COPY (SELECT i AS k, i % 1000 AS t FROM range(20000) r(i)) TO '{ugly}/pruned-large.parquet' (ROW_GROUP_SIZE 2048)",
    /* Not a folder by a value: it has too many signs. */
    "COPY (SELECT 'z' || i AS z, i AS k, i % 3 AS a FROM range(6000) r(i)) TO '{ugly}/a=x=1' "
    "(FORMAT parquet, PER_THREAD_OUTPUT, ROW_GROUP_SIZE 2048)",
    /* Nothing is left out here, but types differ. */
    "COPY (SELECT i::INTEGER AS k FROM range(6000) r(i)) TO '{ugly}/widths-0.parquet' (ROW_GROUP_SIZE 2048)",
    "COPY (SELECT i + 5000 AS k FROM range(6000) r(i)) TO '{ugly}/widths-1.parquet' (ROW_GROUP_SIZE 2048)",
};

#define P "'{ugly}/pruned/*/*.parquet'"
#define N "read_parquet('{ugly}/pruned-names/*/*.parquet', union_by_name = true)"

static const struct {
    const char *sql;
    bool is_single; /* the query as a whole is one task; else it is cut */
} queries[] = {
    {"SELECT max(a), sum(a), min(d), max(s), max(n) FROM " P " WHERE p >= 1", false},
    {"SELECT a, d, s, n, typeof(a), typeof(d), typeof(s), typeof(n) FROM " P " WHERE p = 1 AND k % 9 = 0", false},
    {"SELECT sum(l.t), sum(t.a), count(*) FROM " P " t JOIN '{ugly}/pruned-large.parquet' l ON l.k = t.k WHERE p >= 1",
     false},
    {"SELECT sum(a) FROM " P " WHERE p >= 1 AND a > 1", true},
    {"SELECT count(*) FROM " P " WHERE p = 1 AND a > 3.6", true},
    {"SELECT count(*) FROM " P " WHERE p = 1 AND d >= TIMESTAMP '2020-01-05 10:00'", true},
    {"SELECT count(*), min(k) FROM " P " WHERE p = 1 AND s < 2", true},
    {"SELECT count(*), min(k) FROM " P " WHERE p >= 1 AND n.v > 2.5", true},
    {"SELECT count(*), sum(a) FROM " P " WHERE p <= 1 AND a > 3.6", false}, /* the first one is there */
    {"SELECT k, extra, a FROM " N " WHERE p = 1", false},
    {"SELECT sum(a), count(extra) FROM " N " WHERE p >= 1", false},
    {"SELECT count(*), max(extra), sum(a) FROM " N " WHERE p <= 1 AND a > 7.5", true},
    {"SELECT count(*), max(extra), sum(a) FROM " N " WHERE p <> 1 AND a > 7.5", false},
    {"SELECT sum(a) FROM " N " WHERE p = 1 AND a <= 7.5", true},
    {"SELECT count(*), sum(k) FROM " N " WHERE p = 1 AND k < 100", false},
    {"SELECT file_index, count(extra) FROM " N " WHERE p = 1 GROUP BY ALL", true},
    {"SELECT count(*), sum(a.k) FROM read_parquet('{ugly}/pruned/p=[01]/*.parquet', file_row_number = true) a "
     "JOIN '{ugly}/pruned-large.parquet' b ON a.file_row_number = b.k WHERE a.a > 3.6",
     false},
    {"SELECT k, a, z FROM read_parquet('{ugly}/a=x=1/*.parquet', hive_partitioning = true) WHERE k < 100", false},
    {"SELECT count(*), sum(a.k), min(b.t) FROM '{ugly}/pruned-large.parquet' b JOIN '{ugly}/widths-*.parquet' a "
     "ON a.k = b.k",
     false},
};

static const struct run_options ways[] = {
    {.cut = {.partitions = 3, .slots = 4, .is_forced = true, .broadcast_bytes = 1}},
    {.cut = {.slots = 2, .single_task_bytes = 1, .broadcast_bytes = 1 << 20}, .is_refined = true},
    {.cut = {.slots = 4, .single_task_bytes = 1, .broadcast_bytes = 1 << 20, .shrink = 100}, .is_refined = true},
};

static void compare(struct runner *runner, const char *text, bool is_single)
{
    const char *sql = test_fill_in(text);
    struct table expected = {0};
    struct error e = {0};
    CHECK_ERR(run_whole(runner, sql, &expected, &e), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct table actual = {0};
        struct run_facts facts;
        struct buf difference = {0};
        enum err err = run_cut(runner, sql, &ways[i], &actual, &facts, &e);
        bool is_same = err == ERR_OK && table_equal(&expected, &actual, ORDER_IS_FREE, &difference);
        if (!is_same || facts.is_single != is_single) {
            fprintf(stderr, "%s\n  way %zu: %s%s\n", sql, i, e.message, difference.n > 0 ? difference.data : "");
        }
        CHECK(is_same);
        CHECK_INT(facts.is_single, is_single);
        buf_deinit(&difference);
        table_deinit(&actual);
    }
    table_deinit(&expected);
}

static void make_file(struct runner *runner, const char *sql)
{
    struct error e = {0};
    enum err err = duck_run(runner->connection, test_fill_in(sql), &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
}

TEST(types_are_those_of_a_file_that_is_left_out)
{
    struct runner runner = {0};
    struct error e = {0};
    CHECK_ERR(runner_open(&runner, &e), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        make_file(&runner, files[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
        compare(&runner, queries[i].sql, queries[i].is_single);
    }
    runner_close(&runner);
}

/*
 * Folders by a value of a column that the files have, too, with other values. The folder's name counts; but DuckDB 1.5.6 takes
 * the statistics of the file's column for it where it reads a single file, as most tasks would.
 */
#define TWICE(folder, value)                                                                                           \
    {                                                                                                                  \
        folder, "COPY (SELECT i AS id, i % 7 AS v, " value " FROM range(3000) r(i)) TO '{ugly}/" folder                \
                "/f.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)"                                                    \
    }

static const struct {
    const char *folder;
    const char *copy; /* NULL: the folder only has others */
} twice[] = {
    {"twice-date", NULL},
    TWICE("twice-date/k=1", "DATE '2020-01-01' AS k"),
    TWICE("twice-date/k=2", "DATE '2020-01-02' AS k"),
    {"twice-number", NULL},
    TWICE("twice-number/K=1", "99 AS k"),
    TWICE("twice-number/K=2", "98 AS k"),
    {"twice-month", NULL},
    TWICE("twice-month/month=2026-01", "i::INTEGER AS month"),
    TWICE("twice-month/month=2026-02", "i::INTEGER AS month"),
    {"twice-some", NULL},
    TWICE("twice-some/k=1", "i AS more"),
    TWICE("twice-some/k=2", "98 AS k"),
    {"twice-once", NULL},
    TWICE("twice-once/k=1", "{'k': 99} AS s"),
    TWICE("twice-once/k=2", "{'k': 98} AS s"),
};

#define TD "'{ugly}/twice-date/*/*.parquet'"
#define TN "read_parquet('{ugly}/twice-number/*/*.parquet', hive_partitioning = true)"
#define TM "'{ugly}/twice-month/*/*.parquet'"
#define TS "read_parquet('{ugly}/twice-some/*/*.parquet', union_by_name = true)"
#define TO "'{ugly}/twice-once/*/*.parquet'"

TEST(a_column_of_folders_that_is_in_their_files_too_is_left_to_one_task)
{
    static const struct {
        const char *sql;
        bool is_single;
    } cases[] = {
        {"SELECT max(k), min(k) FROM " TD " WHERE k < 5 OR v = 9", true},
        {"SELECT k + v AS x, count(*) FROM " TD " GROUP BY x", true},
        {"SELECT count(*), min(k) FROM " TD " WHERE k >= 2", true}, /* DuckDB leaves out a file */
        {"SELECT CASE WHEN k < 50 THEN 'a' ELSE 'b' END AS x, count(*) FROM " TN " GROUP BY x", true},
        {"SELECT count(*) FROM " TN " WHERE k + v < 50", true},
        {"SELECT l.t, max(n.k) FROM " TN " n JOIN '{ugly}/twice-large.parquet' l ON n.id = l.k GROUP BY l.t", true},
        {"SELECT count(*) FROM " TM " WHERE month = '2026-01' OR v = 99", true},
        {"SELECT k, count(*), sum(v), count(more) FROM " TS " GROUP BY ALL", true},
        {"SELECT max(k) FROM " TN, true},
        {"SELECT v, count(*), sum(id) FROM " TN " GROUP BY v", false}, /* nobody asks for it */
        {"SELECT count(*), sum(id) FROM " TD " WHERE k = 1 AND v > 2", false},
        {"SELECT count(*), sum(id) FROM read_parquet('{ugly}/twice-number/*/*.parquet', hive_partitioning = false) "
         "WHERE k + v < 101",
         false},
        {"SELECT k, s.k AS x, count(*), sum(v) FROM " TO " GROUP BY ALL", false}, /* it has another place */
    };
    struct runner runner = {0};
    struct error e = {0};
    CHECK_ERR(runner_open(&runner, &e), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(twice); i++) {
        const char *folder = test_fill_in("{ugly}/");
        char path[500];
        snprintf(path, sizeof path, "%s%s", folder, twice[i].folder);
        CHECK_INT(mkdir(path, 0700), 0);
        if (twice[i].copy != NULL) {
            make_file(&runner, twice[i].copy);
        }
    }
    make_file(&runner, "COPY (SELECT i AS k, i % 10 AS t FROM range(20000) r(i)) TO '{ugly}/twice-large.parquet' "
                       "(ROW_GROUP_SIZE 2048)");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        compare(&runner, cases[i].sql, cases[i].is_single);
    }
    runner_close(&runner);
}
