/*
 * Tables that ascend by a key: what is joined or grouped by it stays where it is read (cut_range.c), and has the rows that
 * one DuckDB finds. Tables that do not are told from them.
 */
#include <stdio.h>
#include <string.h>

#include "query/cut.h"
#include "query/data.h"
#include "query/runner.h"
#include "test.h"

/* Keys are negative, too, and have gaps; heads without lines and lines without heads are many, at both ends. */
static const char make_tables[] =
    "CREATE TEMP TABLE heads AS SELECT i::BIGINT AS id, i % 7 AS kind, CASE WHEN i % 5 = 0 THEN NULL ELSE i * 3 END "
    "AS v FROM range(-6000, 9000) r(i) WHERE i % 3 <> 1;"
    "CREATE TEMP TABLE lines AS SELECT i::BIGINT AS id, n, (i * 31 + n * 7) % 11 AS who, 'line ' || n AS text "
    "FROM range(-5000, 11000) r(i), range(4) s(n) WHERE (i + n) % 5 < 3 AND i % 4 <> 2;"
    "COPY (FROM heads WHERE id % 2 = 0 ORDER BY id) TO '@/h-0.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (FROM heads WHERE id % 2 <> 0 ORDER BY id) TO '@/h-1.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (FROM lines WHERE id < 1000 ORDER BY id, n) TO '@/l-0.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (FROM lines WHERE id >= 1000 AND id < 1003 ORDER BY id, n) TO '@/l-1.parquet' (FORMAT parquet);"
    "COPY (FROM lines WHERE id >= 1003 ORDER BY id, n) TO '@/l-2.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (SELECT CASE WHEN id % 997 = 0 THEN NULL ELSE id END AS id, kind, v FROM heads ORDER BY heads.id) "
    "TO '@/nulls.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (FROM heads ORDER BY hash(id)) TO '@/mixed.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (FROM lines ORDER BY hash(id, n)) TO '@/lines_mixed.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (SELECT id::INTEGER AS id, kind, v FROM heads ORDER BY id) TO '@/ints.parquet' "
    "(FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (SELECT (id + 6000)::UINTEGER AS id, kind FROM heads ORDER BY id) TO '@/unsigned.parquet' "
    "(FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (SELECT CASE WHEN i < 8192 THEN i END AS id, i AS v FROM range(12288) r(i)) TO '@/late.parquet' "
    "(FORMAT parquet, ROW_GROUP_SIZE 4096);" /* the last row group has no key at all, and says nothing about it */
    "COPY (FROM heads WHERE false) TO '@/z-0.parquet' (FORMAT parquet);"
    "COPY (FROM heads ORDER BY id) TO '@/z-1.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048);"
    "COPY (SELECT 9223372036854775807 - i AS id, i AS v FROM range(8000) r(i) ORDER BY 1) TO '@/ends.parquet' "
    "(FORMAT parquet, ROW_GROUP_SIZE 2048)";

static const struct {
    const char *name;
    const char *files;
} tables[] = {
    {"heads", "h-*"},   {"lines", "l-*"},
    {"nulls", "nulls"}, {"mixed", "mixed"},
    {"ints", "ints"},   {"unsigneds", "unsigned"},
    {"ends", "ends"},   {"with_empty", "z-*"},
    {"late", "late"},   {"lines_mixed", "lines_mixed"},
};

/* By ranges: in no way, in all ways, or in those in which a side stays where it is because the other one is small. */
enum by_ranges { NEVER, ALWAYS, IF_SMALL };

static const struct range_case {
    enum by_ranges is_ranged;
    const char *sql;
} cases[] = {
    {ALWAYS, "SELECT h.id, h.v, l.n, l.text FROM heads h JOIN lines l ON h.id = l.id"},
    {ALWAYS, "SELECT h.id, l.id, l.n FROM heads h LEFT JOIN lines l ON h.id = l.id"},
    {ALWAYS, "SELECT h.id, l.id, l.n FROM heads h RIGHT JOIN lines l ON h.id = l.id"},
    {ALWAYS, "SELECT h.id, l.id, l.n FROM heads h FULL JOIN lines l ON h.id = l.id"},
    {ALWAYS, "SELECT h.id, l.n FROM heads h LEFT JOIN lines l ON h.id = l.id AND l.n > 1 WHERE h.kind < 3"},
    {ALWAYS, "SELECT id, count(*), sum(who), min(text) FROM lines GROUP BY id"},
    {ALWAYS, "SELECT id, kind, count(DISTINCT who) FROM heads JOIN lines USING (id) GROUP BY ALL"},
    {ALWAYS, "SELECT kind, sum(n) FROM heads JOIN lines USING (id) GROUP BY kind"},
    {ALWAYS, "SELECT DISTINCT id FROM lines"},
    {ALWAYS, "SELECT DISTINCT id, who FROM lines WHERE n < 2"},
    {ALWAYS, "SELECT count(*) FROM heads h WHERE EXISTS (FROM lines l WHERE l.id = h.id AND l.n = 2)"},
    {ALWAYS, "SELECT h.id FROM heads h WHERE NOT EXISTS (FROM lines l WHERE l.id = h.id AND l.who < l.n * 4)"},
    {NEVER, "SELECT h.id, h.v FROM heads h WHERE h.v > 5 AND h.id NOT IN (SELECT id FROM lines WHERE n > 1)"},
    {ALWAYS, "SELECT l.id, l.n FROM lines l WHERE EXISTS (FROM lines k WHERE k.id = l.id AND k.who <> l.who) AND NOT "
             "EXISTS (FROM lines k WHERE k.id = l.id AND k.who <> l.who AND k.n > 2)"},
    {ALWAYS, "SELECT h.id, (SELECT max(l.n) FROM lines l WHERE l.id = h.id) AS most FROM heads h"},
    {ALWAYS, "SELECT h.id FROM heads h WHERE h.v > (SELECT avg(l.who) * 100 FROM lines l WHERE l.id = h.id)"},
    {NEVER, "SELECT h.id, (h.id IN (SELECT id FROM lines WHERE n = 3)) AS is_in FROM heads h"},
    {ALWAYS,
     "SELECT a.id, b.n, c.n FROM lines a JOIN lines b ON a.id = b.id JOIN lines c ON b.id = c.id WHERE a.n = 1"},
    {ALWAYS, "SELECT id, n, row_number() OVER (PARTITION BY id ORDER BY n) FROM heads JOIN lines USING (id)"},
    {ALWAYS, "SELECT id, count(*) FROM (SELECT id FROM heads JOIN lines USING (id) UNION ALL SELECT id FROM lines) "
             "GROUP BY id"},
    {ALWAYS, "SELECT h.id, l.n FROM heads h JOIN lines l USING (id) UNION ALL SELECT h.id, l.n FROM heads h LEFT JOIN "
             "lines l USING (id) WHERE l.id IS NULL"},
    {ALWAYS,
     "WITH b AS (SELECT id, sum(n) AS s FROM lines GROUP BY id) SELECT x.id, y.s FROM b x JOIN b y ON x.id = y.id"},
    {ALWAYS, "SELECT m.id, count(*) FROM mixed m JOIN (SELECT id FROM heads JOIN lines USING (id)) j ON m.id = j.id "
             "GROUP BY m.id"},
    {ALWAYS, "SELECT h.id, t.id FROM heads h JOIN with_empty t ON h.id = t.id"},
    {ALWAYS,
     "SELECT h.id, o.n FROM heads h JOIN (SELECT id + 0 AS other, id, n, who FROM lines) o ON h.id = o.id AND h.kind = "
     "o.who"},
    {ALWAYS, "SELECT a.id, b.v FROM ends a JOIN ends b ON a.id = b.id"},
    {ALWAYS, "SELECT id, max(v) FROM ends GROUP BY id"},
    {ALWAYS, "SELECT u.id, count(*) FROM unsigneds u JOIN unsigneds w ON u.id = w.id GROUP BY u.id"},
    {ALWAYS, "SELECT id, kind, count(*) FROM heads JOIN lines USING (id) GROUP BY ROLLUP (id, kind)"},
    {ALWAYS, "SELECT h.id, l.n FROM heads h ASOF JOIN lines l ON h.id = l.id AND h.kind >= l.n"},
    {ALWAYS, "SELECT h.id, l.n FROM heads h JOIN lines l ON h.id = l.id ORDER BY h.id DESC, l.n LIMIT 17 OFFSET 5"},
    /* The side that stays where it is, if the other one is small, is in ranges of its key: so are its groups. */
    {IF_SMALL,
     "SELECT l.id, l.who, count(*), sum(m.v) FROM lines l JOIN (SELECT v, v * 2 AS w FROM mixed WHERE kind = 2 AND "
     "v % 11 < 4) m ON l.id = m.v GROUP BY l.id, l.who"},
    {IF_SMALL,
     "SELECT l.id, count(*) FROM lines l JOIN (SELECT v // 3 AS w FROM mixed WHERE v % 51 = 0) m ON l.id = m.w "
     "GROUP BY l.id"},
    {IF_SMALL,
     "SELECT l.id, count(m.w) FROM lines l LEFT JOIN (SELECT v // 3 AS w FROM mixed WHERE v % 51 = 0) m ON l.id = m.w "
     "GROUP BY l.id"},
    {NEVER,
     "SELECT l.id, count(*) FROM lines_mixed l JOIN (SELECT v // 3 AS w FROM mixed WHERE v % 51 = 0) m ON l.id = m.w "
     "GROUP BY l.id"},
    {NEVER, "SELECT a.v, m.kind FROM mixed a JOIN mixed m ON a.id = m.id"},
    {IF_SMALL, "SELECT n.id, l.n FROM nulls n JOIN lines l ON n.id = l.id"},
    {NEVER, "SELECT id, count(*) FROM nulls GROUP BY id"},
    {NEVER, "SELECT n.id, l.n FROM nulls n FULL JOIN lines l ON n.id IS NOT DISTINCT FROM l.id"},
    {NEVER, "SELECT id, count(*) FROM late GROUP BY id"},
    {NEVER, "SELECT t.id, t.v, l.n FROM late t LEFT JOIN lines l ON t.id = l.id"},
    {ALWAYS, "SELECT h.id FROM heads h WHERE EXISTS (FROM heads k WHERE k.id = h.id AND k.v = h.v)"},
    {ALWAYS, "SELECT h.id FROM heads h WHERE NOT EXISTS (FROM heads k WHERE k.id = h.id AND k.v = h.v)"},
    {IF_SMALL, "SELECT i.id, l.n FROM ints i JOIN lines l ON i.id = l.id"},
    {IF_SMALL, "SELECT h.v, l.n FROM heads h JOIN lines l ON h.v = l.id"},
    {NEVER, "SELECT h.id, l.n FROM heads h JOIN lines l ON h.id = l.id + 1"},
    {NEVER,
     "SELECT h.id, l.filename[-11:] FROM heads h JOIN read_parquet('@/l-*.parquet', filename = true) l ON h.id = "
     "l.id"},
    {NEVER,
     "SELECT h.id, l.file_row_number FROM heads h JOIN read_parquet('@/l-*.parquet', file_row_number = true) l ON "
     "h.id = l.id"},
};

/* The text with every @ as the folder. */
static const char *fill_in(struct arena *arena, const char *sql)
{
    struct buf text = {0};
    for (; *sql != '\0'; sql++) {
        if (*sql == '@') {
            buf_text(&text, test_data()->ugly);
        } else {
            buf_char(&text, *sql);
        }
    }
    const char *copy = arena_strdup(arena, text.data);
    buf_deinit(&text);
    return copy;
}

static struct runner open_runner(struct arena *arena)
{
    static bool is_made;
    struct planner_table *known = arena_zalloc(arena, sizeof(*known) * ARRAY_LEN(tables));
    struct runner runner = {.tables = known, .n_tables = ARRAY_LEN(tables)};
    struct error e = {0};
    CHECK_ERR(runner_open(&runner, &e), ERR_OK);
    if (!is_made) {
        enum err err = duck_run(runner.connection, fill_in(arena, make_tables), &e);
        CHECK_STR(e.message, "");
        CHECK_ERR(err, ERR_OK);
        CHECK_ERR(duck_run(runner.connection, "DROP TABLE heads; DROP TABLE lines", &e), ERR_OK);
        is_made = true;
    }
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        known[i].name = tables[i].name;
        known[i].source = arena_format(arena, "%s/%s.parquet", test_data()->ugly, tables[i].files);
        const char *view =
            arena_format(arena, "CREATE TEMP VIEW %s AS FROM read_parquet('%s')", known[i].name, known[i].source);
        CHECK_ERR(duck_run(runner.connection, view, &e), ERR_OK);
    }
    return runner;
}

static void close_runner(struct runner *runner, struct arena *arena)
{
    runner_close(runner);
    arena_deinit(arena);
}

/* Whether the query, cut, gives what one DuckDB gives. */
static bool is_same(struct runner *runner, const char *sql, const struct run_options *options, struct run_facts *facts,
                    struct buf *difference)
{
    struct table expected = {0};
    struct table actual = {0};
    struct error e = {0};
    enum err err = run_whole(runner, sql, &expected, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    CHECK(expected.n_rows > 0);
    err = run_cut(runner, sql, options, &actual, facts, &e);
    bool is_same = err == ERR_OK && table_equal(&expected, &actual, ORDER_IS_FREE, difference);
    if (err != ERR_OK) {
        buf_text(difference, e.message);
    }
    table_deinit(&expected);
    table_deinit(&actual);
    return is_same;
}

TEST(what_is_joined_or_grouped_by_ranges_is_right)
{
    static const uint64_t broadcasts[] = {1, 100000, UINT64_MAX, 20000};
    struct arena arena = {0};
    struct runner runner = open_runner(&arena);
    uint32_t n_wrong = 0;
    uint32_t n_choices = 0;
    uint32_t n_if_small = 0;
    for (size_t i = 0; i < 4 * ARRAY_LEN(cases); i++) {
        const struct range_case *c = &cases[i / 4];
        struct run_facts facts;
        struct buf difference = {0};
        struct run_options options = {.cut = {.partitions = 3 + (uint32_t)(i % 2) * 2,
                                              .slots = 3 + (uint32_t)(i % 2),
                                              .is_forced = true,
                                              .broadcast_bytes = broadcasts[i % 4]},
                                      .is_refined = true};
        const char *sql = fill_in(&arena, c->sql);
        bool is_right = is_same(&runner, sql, &options, &facts, &difference);
        n_choices += facts.n_choices;
        bool is_as_said = c->is_ranged == IF_SMALL || (facts.n_ranged > 0) == (c->is_ranged == ALWAYS);
        n_if_small += c->is_ranged == IF_SMALL && facts.n_ranged > 0 ? 1 : 0;
        if (!is_right || !is_as_said || facts.is_single) {
            fprintf(stderr, "%s\n  way %d: %s, %u stages by ranges%s\n%s\n", sql, (int)(i % 4),
                    is_right ? "right" : "wrong", (unsigned)facts.n_ranged, facts.is_single ? ", single" : "",
                    difference.data != NULL ? difference.data : "");
            n_wrong++;
        }
        buf_deinit(&difference);
    }
    CHECK_UINT(n_wrong, 0);
    CHECK(n_choices > 0);
    CHECK(n_if_small > 0);
    close_runner(&runner, &arena);
}

TEST(nothing_is_by_ranges_if_all_rows_are_to_move)
{
    struct arena arena = {0};
    struct runner runner = open_runner(&arena);
    struct run_facts facts;
    struct buf difference = {0};
    struct run_options options = {.cut = {.partitions = 3, .slots = 4, .is_forced = true, .broadcast_bytes = 0}};
    CHECK(is_same(&runner, cases[0].sql, &options, &facts, &difference));
    CHECK_UINT(facts.n_ranged, 0);
    buf_deinit(&difference);
    close_runner(&runner, &arena);
}

/* Each bound is the key of some rows, which are then at no task, or at two. */
TEST(wrong_bounds_are_noticed)
{
    static const struct range_rule wrong[] = {{">", "<"}, {">=", "<="}, {">=", ">="}};
    static const char *const queries[] = {
        "SELECT h.id, l.n FROM heads h JOIN lines l ON h.id = l.id",
        "SELECT h.id, l.id FROM heads h FULL JOIN lines l ON h.id = l.id",
        "SELECT id, count(*) FROM lines GROUP BY id",
    };
    struct arena arena = {0};
    struct runner runner = open_runner(&arena);
    for (size_t i = 0; i < ARRAY_LEN(wrong) * ARRAY_LEN(queries); i++) {
        struct run_facts facts;
        struct buf difference = {0};
        struct run_options options = {.cut = {.partitions = 3, .slots = 4, .is_forced = true, .broadcast_bytes = 1}};
        CHECK(is_same(&runner, queries[i % ARRAY_LEN(queries)], &options, &facts, &difference));
        CHECK(facts.n_ranged > 0);
        options.cut.range_rule = &wrong[i / ARRAY_LEN(queries)];
        CHECK(!is_same(&runner, queries[i % ARRAY_LEN(queries)], &options, &facts, &difference));
        CHECK(facts.n_stages > 0); /* it has other rows: it has not failed */
        buf_deinit(&difference);
    }
    close_runner(&runner, &arena);
}
