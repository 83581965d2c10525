/*
 * Which stages are said to give the same rows each time. If one that does not is redone after a loss, all that read it
 * must be, too; one stage too few that is marked, and readers see rows of two attempts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "query/data.h"
#include "query/runner.h"
#include "test.h"

static struct runner open_runner(void)
{
    struct runner runner = {.tables = test_data()->tables, .n_tables = test_data()->n_tables};
    struct error e = {0};
    CHECK_ERR(runner_open(&runner, &e), ERR_OK);
    test_create_views(runner.connection);
    return runner;
}

/* For each stage, by its number: '=' if it gives the same each time, '?' if not. */
static void write_flags(const char *explained, char *out, size_t n)
{
    size_t n_stages = 0;
    memset(out, '\0', n);
    for (const char *line = explained; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n' ? 1 : 0) {
        const char *start = line + strspn(line, " ");
        char text[1000];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(start, "\n"), start);
        if (strncmp(text, "stage ", 6) == 0 && strstr(text, "see above") == NULL) {
            size_t id = strtoul(text + 6, NULL, 10);
            CHECK(id < n - 1);
            out[id] = strstr(text, "not the same each time") != NULL ? '?' : '=';
            n_stages++;
        }
    }
    CHECK_UINT(strlen(out), n_stages);
}

/* No table is broadcast; so a GROUP BY is a stage of partial values and one that makes groups of them. */
TEST(stages_whose_rows_hang_on_chance_are_marked)
{
    static const struct {
        const char *flags;
        const char *sql;
    } cases[] = {
        {"==", "SELECT k, count(*), count(dbl), count_if(flag) FROM facts GROUP BY k"},
        {"==", "SELECT k, min(dbl), max(flt), min(txt), bool_or(flag), bit_xor(big) FROM facts GROUP BY k"},
        {"==", "SELECT k, sum(big), sum(price), sum(wide), avg(big), avg(price) FROM facts GROUP BY k"},
        {"==", "SELECT k, approx_count_distinct(dbl), regr_count(dbl, flt) FROM facts GROUP BY k"},
        {"==", "SELECT DISTINCT dbl, flt FROM facts"},
        {"==", "SELECT dbl, count(*) FROM facts GROUP BY dbl"},
        {"==", "SELECT k, median(dbl), quantile_cont(flt, 0.3), count(DISTINCT dbl) FROM facts GROUP BY k"},
        {"=", "SELECT dbl * 2, sqrt(flt), greatest(dbl, 1) FROM facts"},
        {"??", "SELECT k, sum(dbl) FROM facts GROUP BY k"},
        {"??", "SELECT sum(flt) FROM facts"},
        {"??", "SELECT k, avg(dbl) FROM facts GROUP BY k"},
        {"??", "SELECT k, sum(dbl) FILTER (WHERE flag) FROM facts GROUP BY k"},
        {"??", "SELECT k, stddev(big) FROM facts GROUP BY k"},
        {"??", "SELECT k, var_pop(price) FROM facts GROUP BY k"},
        {"??", "SELECT k, corr(big, id) FROM facts GROUP BY k"},
        {"??", "SELECT k, product(small) FROM facts GROUP BY k"},
        {"??", "SELECT k, fsum(dbl) FROM facts GROUP BY k"},
        {"=?", "SELECT k, sum(DISTINCT dbl) FROM facts GROUP BY k"},
        {"=?", "SELECT k, entropy(txt) FROM facts GROUP BY k"},
        {"??", "SELECT k, first(id) FROM facts GROUP BY k"},
        {"??", "SELECT k, any_value(txt) FROM facts GROUP BY k"},
        {"??", "SELECT k, arg_max(txt, day) FROM facts GROUP BY k"},
        {"=?", "SELECT k, list(id) FROM facts GROUP BY k"},
        {"=?", "SELECT k, string_agg(txt) FROM facts GROUP BY k"},
        {"?", "SELECT id, random() FROM facts"},
        {"?", "SELECT id, uuid() FROM facts"},
        {"?", "SELECT id FROM facts WHERE random() < 0.5"},
        {"==", "SELECT id, rank() OVER (PARTITION BY k ORDER BY day) FROM facts"},
        {"==", "SELECT id, percent_rank() OVER (PARTITION BY k ORDER BY day) FROM facts"},
        {"==", "SELECT id, sum(big) OVER (PARTITION BY k), max(dbl) OVER (PARTITION BY k) FROM facts"},
        {"=?", "SELECT id, sum(dbl) OVER (PARTITION BY k) FROM facts"},
        {"=?", "SELECT id, avg(flt) OVER (PARTITION BY k) FROM facts"},
        {"=?", "SELECT id, row_number() OVER (PARTITION BY k ORDER BY day) FROM facts"},
        {"=?", "SELECT id, lag(id) OVER (PARTITION BY k) FROM facts"},
        {"=?", "SELECT id, first_value(id) OVER (PARTITION BY k) FROM facts"},
        {"??", "SELECT id FROM facts LIMIT 5"},
        {"===", "SELECT f.id, d.name FROM facts f JOIN dims d ON f.dbl = d.score"},
        {"==?", "SELECT f.id, d.name FROM facts f ASOF JOIN dims d ON f.k = d.k AND f.day >= d.since"},
    };
    struct runner runner = open_runner();
    struct cut_options options = {.partitions = 3, .slots = 4, .is_forced = true};
    uint32_t n_wrong = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf text = {0};
        struct error e = {0};
        char flags[32];
        CHECK_ERR(run_explain(&runner, cases[i].sql, &options, &text, &e), ERR_OK);
        write_flags(text.data, flags, sizeof flags);
        if (strcmp(flags, cases[i].flags) != 0) {
            fprintf(stderr, "%s\n    stages expected %s, got %s\n", cases[i].sql, cases[i].flags, flags);
            n_wrong++;
        }
        buf_deinit(&text);
    }
    CHECK_UINT(n_wrong, 0);
    runner_close(&runner);
}

/*
 * A key by chance decides where a row goes and, once more, in which group it is: so all rows go to one task, which looks
 * at it once. There are four values; with a look on each side of an exchange, there would be up to four in each task.
 */
TEST(rows_are_not_spread_by_values_of_chance)
{
    static const char *const queries[] = {
        "SELECT count(*) <= 4 FROM (SELECT median(id) AS m FROM facts GROUP BY (random() * 3)::INTEGER) WHERE m >= 0",
        "SELECT sum(c) = (SELECT count(*) FROM facts) FROM "
        "(SELECT any_value(c) AS c FROM (SELECT r, count(*) OVER (PARTITION BY r) AS c FROM "
        "(SELECT (random() * 3)::INTEGER AS r FROM facts)) GROUP BY r)",
        "SELECT count(*) <= 4 FROM (SELECT DISTINCT ON ((random() * 3)::INTEGER) id FROM facts)",
        "SELECT count(d.k) = count(*) FROM facts f LEFT JOIN "
        "(SELECT DISTINCT id % 4 AS k FROM facts) d ON f.id * 0 + (random() * 3)::INTEGER = d.k",
    };
    struct runner runner = open_runner();
    for (size_t i = 0; i < 2 * ARRAY_LEN(queries); i++) {
        struct run_options options = {
            .cut = {.partitions = 3, .slots = 4, .is_forced = true, .broadcast_bytes = i % 2 == 0 ? 0 : UINT64_MAX}};
        struct table table = {0};
        struct run_facts facts;
        struct error e = {0};
        CHECK_ERR(run_cut(&runner, queries[i / 2], &options, &table, &facts, &e), ERR_OK);
        CHECK_UINT(table.n_rows, 1);
        if (strcmp(table.rows[0][0], "true") != 0) {
            CHECK_STR(queries[i / 2], "is true");
        }
        CHECK(facts.n_readers_max > 1); /* the rest is not one task */
        table_deinit(&table);
    }
    /* DuckDB itself looks twice at such a key of a window now and then, so of this only the plan can be judged. */
    struct buf text = {0};
    struct error e = {0};
    struct cut_options cut = {.partitions = 3, .slots = 4, .is_forced = true};
    CHECK_ERR(
        run_explain(&runner, "SELECT count(*) OVER (PARTITION BY (random() * 3)::INTEGER) FROM facts", &cut, &text, &e),
        ERR_OK);
    CHECK(strstr(text.data, "; gather;") != NULL);
    CHECK(strstr(text.data, "; hash;") == NULL);
    buf_deinit(&text);
    runner_close(&runner);
}

/* What every task could make for itself, but not twice the same, one task makes for all. */
TEST(a_value_by_chance_is_the_same_for_all_tasks)
{
    static const char *const queries[] = {
        "SELECT count(DISTINCT r) FROM facts, (SELECT random() AS r)",
        "SELECT count(DISTINCT r), count(*) FROM facts, (SELECT uuid() AS r FROM range(1))",
    };
    struct runner runner = open_runner();
    struct run_options options = {
        .cut = {.partitions = 3, .slots = 4, .is_forced = true, .broadcast_bytes = UINT64_MAX}};
    for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
        struct table table = {0};
        struct run_facts facts;
        struct error e = {0};
        CHECK_ERR(run_cut(&runner, queries[i], &options, &table, &facts, &e), ERR_OK);
        CHECK(facts.n_readers_max > 1);
        CHECK_UINT(table.n_rows, 1);
        CHECK_STR(table.rows[0][0], "1");
        table_deinit(&table);
    }
    runner_close(&runner);
}
