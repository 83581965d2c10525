/*
 * Tests of the tests: for each rule about joins, aggregates and other nodes a wrong one is planted, and the comparison with
 * one DuckDB must notice. The same query with the right rules must pass, so that it is the rule that makes the difference.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "query/aggregate.h"
#include "query/data.h"
#include "query/join.h"
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

/* What a query gives, cut by some rules. One that fails says nothing of rows, so it does not show that wrong ones are noticed. */
enum verdict { RIGHT, WRONG_ROWS, FAILS };

static const char *verdict_name(enum verdict verdict)
{
    static const char *const names[] = {"are right", "give other rows", "fail"};
    return names[verdict];
}

static enum verdict judge(const struct table *expected, const struct table *actual, enum table_order order)
{
    struct buf difference = {0};
    bool is_same = table_equal(expected, actual, order, &difference);
    if (!is_same) { /* by its rows: no wrong rule changes names or types */
        struct buf ignored = {0};
        CHECK(table_equal(expected, actual, TYPES_ONLY, &ignored));
        buf_deinit(&ignored);
    }
    buf_deinit(&difference);
    return is_same ? RIGHT : WRONG_ROWS;
}

/* Runs the query by these options, and compares it with what one DuckDB gives. */
static enum verdict run_by(struct runner *runner, const char *sql, const struct cut_options *cut,
                           enum table_order order, uint32_t *out_n_stages)
{
    struct run_options options = {.cut = *cut};
    struct table expected = {0};
    struct table actual = {0};
    struct run_facts facts;
    struct error e = {0};
    enum verdict verdict = FAILS;
    enum err err = run_whole(runner, sql, &expected, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    if (run_cut(runner, sql, &options, &actual, &facts, &e) == ERR_OK) {
        CHECK(!facts.is_single);
        verdict = judge(&expected, &actual, order);
    }
    *out_n_stages = facts.n_stages;
    table_deinit(&expected);
    table_deinit(&actual);
    return verdict;
}

static enum verdict verdict_of(struct runner *runner, const char *sql, const struct cut_options *cut)
{
    uint32_t n_stages = 0;
    return run_by(runner, sql, cut, ORDER_IS_FREE, &n_stages);
}

static void print_missed(const char *what, enum verdict right, enum verdict wrong)
{
    fprintf(stderr, "%s: the right rules %s, the wrong one: %s\n", what, verdict_name(right), verdict_name(wrong));
}

/* A wrong entry in the table of joins. What is not named stays false. */
struct wrong_join {
    const char *what;
    bool is_asof;
    enum join_type type;
    struct join_rule rule;
    bool is_broadcast; /* else everything is spread by keys */
    const char *sql;
};

#define WRONG_LEFT(name)                                                                                               \
    {                                                                                                                  \
        name, .may_replicate_left = true                                                                               \
    }
#define WRONG_RIGHT(name)                                                                                              \
    {                                                                                                                  \
        name, .may_replicate_right = true                                                                              \
    }

static const struct wrong_join wrong_joins[] = {
    {"a left join's left side is replicated", false, JOIN_LEFT, WRONG_LEFT("left"), true,
     "SELECT d.k, f.id FROM dims d LEFT JOIN facts f ON d.k = f.k AND f.id < 300"},
    {"a right join's right side is replicated", false, JOIN_RIGHT, WRONG_RIGHT("right"), true,
     "SELECT f.id, d.k FROM (SELECT * FROM facts WHERE id < 300) f RIGHT JOIN dims d ON d.k = f.k"},
    {"a full join's right side is replicated", false, JOIN_FULL, WRONG_RIGHT("full"), true,
     "SELECT f.id, d.k FROM facts f FULL JOIN dims d ON d.k = f.k"},
    {"a full join's left side is replicated", false, JOIN_FULL, WRONG_LEFT("full"), true,
     "SELECT f.id, d.k FROM dims d FULL JOIN facts f ON d.k = f.k"},
    {"a semi join's left side is replicated", false, JOIN_SEMI, WRONG_LEFT("semi"), true,
     "SELECT k, name FROM dims d SEMI JOIN facts f ON d.k = f.k"},
    {"an anti join's left side is replicated", false, JOIN_ANTI, WRONG_LEFT("anti"), true,
     "SELECT k, name FROM dims d ANTI JOIN facts f ON d.k = f.k AND f.id < 3000"},
    {"a mark join's left side is replicated", false, JOIN_MARK, WRONG_LEFT("mark"), true,
     "SELECT name, k IN (SELECT k FROM facts WHERE id < 5000) FROM dims"},
    {"a mark join is spread by keys although NULLs are everybody's",
     false,
     JOIN_MARK,
     {"mark", .may_hash = true, .keeps_left = true},
     false,
     "SELECT id, k IN (SELECT k FROM dims) FROM facts"},
    {"a single join's left side is replicated", false, JOIN_SINGLE, WRONG_LEFT("single"), true,
     "SELECT name, (SELECT f.txt FROM facts f WHERE f.id = d.k) FROM dims d"},
    {"a left join keeps its right side's keys together",
     false,
     JOIN_LEFT,
     {"left", .may_hash = true, .keeps_right = true},
     false,
     "SELECT d.k, count(*) FROM facts f LEFT JOIN dims d ON f.k = d.k GROUP BY d.k"},
    {"a right join keeps its left side's keys together",
     false,
     JOIN_RIGHT,
     {"right", .may_hash = true, .keeps_left = true},
     false,
     "SELECT d.k, count(*) FROM dims d RIGHT JOIN facts f ON f.k = d.k GROUP BY d.k"},
    {"a full join keeps its right side's keys together",
     false,
     JOIN_FULL,
     {"full", .may_hash = true, .keeps_right = true},
     false,
     "SELECT d.k, count(*) FROM facts f FULL JOIN dims d ON f.k = d.k GROUP BY d.k"},
    {"a left join's left rows are thinned out",
     false,
     JOIN_LEFT,
     {"left", .may_hash = true, .drops_left = true},
     true,
     "SELECT f.id, d.k FROM facts f LEFT JOIN dims d ON d.k = f.k"},
    {"a right join's right rows are thinned out",
     false,
     JOIN_RIGHT,
     {"right", .may_hash = true, .drops_right = true},
     true,
     "SELECT f.id, d.k FROM (SELECT * FROM dims WHERE k > 3) d RIGHT JOIN facts f ON d.k = f.k"},
    {"a full join's left rows are thinned out",
     false,
     JOIN_FULL,
     {"full", .may_hash = true, .drops_left = true},
     true,
     "SELECT f.id, d.k FROM facts f FULL JOIN dims d ON d.k = f.k"},
    {"an anti join's left rows are thinned out",
     false,
     JOIN_ANTI,
     {"anti", .may_hash = true, .drops_left = true},
     true,
     "SELECT id FROM facts f ANTI JOIN dims d ON d.k = f.k AND d.score > 0"},
    {"a single join's left rows are thinned out",
     false,
     JOIN_SINGLE,
     {"single", .may_hash = true, .drops_left = true},
     true,
     "SELECT id, (SELECT d.name FROM dims d WHERE d.k = f.k) FROM facts f"},
    {"an asof join's left side is replicated", true, JOIN_LEFT, WRONG_LEFT("asof left"), true,
     "SELECT d.k, f.id FROM dims d ASOF LEFT JOIN facts f ON d.k = f.k AND d.score * 100 >= f.id"},
    {"an asof inner join's left side is replicated", true, JOIN_INNER, WRONG_LEFT("asof inner"), true,
     "SELECT d.k, f.id FROM dims d ASOF JOIN facts f ON d.k = f.k AND d.score * 100 >= f.id"},
    {"an asof left join keeps its right side's keys together",
     true,
     JOIN_LEFT,
     {"asof left", .may_hash = true, .keeps_right = true},
     false,
     "SELECT d.k, count(*) FROM facts f ASOF LEFT JOIN dims d ON f.k = d.k AND f.id >= d.score GROUP BY d.k"},
};

TEST(wrong_rules_for_joins_are_noticed)
{
    struct runner runner = open_runner();
    uint32_t n_missed = 0;
    for (size_t i = 0; i < ARRAY_LEN(wrong_joins); i++) {
        const struct wrong_join *wrong = &wrong_joins[i];
        struct join_rules rules = join_rules_default;
        struct cut_options options = {.partitions = 3, .slots = 4, .is_forced = true};
        options.broadcast_bytes = wrong->is_broadcast ? UINT64_MAX : 0;
        enum verdict right = verdict_of(&runner, wrong->sql, &options);
        (wrong->is_asof ? rules.asof : rules.plain)[wrong->type] = wrong->rule;
        options.join_rules = &rules;
        enum verdict planted = verdict_of(&runner, wrong->sql, &options);
        if (right != RIGHT || planted != WRONG_ROWS) {
            print_missed(wrong->what, right, planted);
            n_missed++;
        }
    }
    CHECK_UINT(n_missed, 0);
    runner_close(&runner);
}

/*
 * Kinds of nodes whose rows may lie anywhere, wrongly. Readers of CTEs take their share for all rows, or all rows for their
 * share; keys of correlated subqueries are made distinct by each task for itself, and any comparison with them counts as an
 * equality.
 */
struct wrong_node {
    enum node_kind kind;
    const char *sql;
};

static const struct wrong_node wrong_nodes[] = {
    {NODE_WINDOW, "SELECT id, count(*) OVER (PARTITION BY k) FROM facts WHERE id % 7 = 3"},
    {NODE_WINDOW, "SELECT id, row_number() OVER (ORDER BY id) FROM facts WHERE id % 7 = 3"},
    {NODE_DISTINCT, "SELECT DISTINCT k FROM facts"},
    {NODE_DISTINCT, "SELECT DISTINCT ON (k) k, id FROM facts ORDER BY k, id DESC"},
    {NODE_EXCEPT, "SELECT k FROM facts EXCEPT SELECT k FROM facts WHERE id > 15000"},
    {NODE_EXCEPT, "SELECT k FROM facts EXCEPT ALL SELECT k FROM facts WHERE id > 15000"},
    {NODE_INTERSECT, "SELECT k FROM facts WHERE id < 12000 INTERSECT SELECT k FROM facts WHERE id > 8000"},
    {NODE_INTERSECT, "SELECT k FROM facts WHERE id < 12000 INTERSECT ALL SELECT k FROM facts WHERE id > 8000"},
    {NODE_UNION, "SELECT k FROM facts UNION ALL SELECT i FROM range(10) r(i)"},
    {NODE_LIMIT, "SELECT count(*) FROM (SELECT id FROM facts LIMIT 10)"},
    {NODE_LIMIT, "SELECT count(*) FROM (SELECT id FROM facts OFFSET 10)"},
    {NODE_TOP_N, "SELECT id FROM facts ORDER BY id DESC LIMIT 10 OFFSET 3"},
    {NODE_ORDER, "SELECT id FROM facts ORDER BY id DESC"},
    {NODE_ORDER, "SELECT id, k FROM facts ORDER BY k NULLS FIRST, id"},
    {NODE_AGGREGATE, "SELECT k, median(id) FROM facts GROUP BY k"},
    {NODE_JOIN, "SELECT f.id, d.name FROM facts f JOIN dims d ON f.k = d.k"},
    {NODE_CROSS, "SELECT f.id, d.name FROM facts f, dims d WHERE f.id < 40"},
    {NODE_SAMPLE, "SELECT count(*) FROM (FROM facts USING SAMPLE 10 ROWS)"},
    {NODE_SAMPLE, "SELECT count(*) FROM (FROM facts USING SAMPLE reservoir(7 PERCENT))"},
    {NODE_CTE_REF, "WITH c AS MATERIALIZED (SELECT id % 100 AS i FROM facts) SELECT count(*), min(i) FROM c"},
    {NODE_CTE_REF, "WITH c AS MATERIALIZED (SELECT k, max(id) AS m FROM facts GROUP BY k) "
                   "SELECT a.k, sum(b.m) FROM c a JOIN c b ON a.k > b.k GROUP BY a.k"},
    {NODE_CTE_REF, "WITH c AS MATERIALIZED (SELECT count(*) AS n, 1 AS i FROM facts) "
                   "SELECT id FROM facts UNION ALL SELECT n FROM c UNION ALL SELECT i FROM c"},
    {NODE_DELIM_GET,
     "SELECT f.id, l.n FROM facts f, LATERAL (SELECT count(*) AS n FROM dims d WHERE d.k < f.small + 1) l"},
    {NODE_DELIM_GET, "SELECT o_orderkey FROM orders o WHERE EXISTS (SELECT 1 FROM lineitem l WHERE l.l_orderkey = "
                     "o.o_orderkey AND l.l_linestatus <> o.o_orderstatus AND l_commitdate < l_receiptdate)"},
};

/* Those that cannot show in the rows, since DuckDB notices them: two rows for a scalar subquery. */
static const struct wrong_node failing_nodes[] = {
    {NODE_DELIM_GET, "SELECT f.id, (SELECT count(*) FROM dims d WHERE d.k < f.small) FROM facts f"},
};

/* How many of them do not end in that way. */
static uint32_t count_missed(struct runner *runner, const struct wrong_node *nodes, size_t n, enum verdict wanted)
{
    uint32_t n_missed = 0;
    for (size_t i = 0; i < n; i++) {
        struct cut_options options = {.partitions = 3, .slots = 4, .is_forced = true, .broadcast_bytes = 1};
        enum table_order order = nodes[i].kind == NODE_ORDER ? ORDER_MATTERS : ORDER_IS_FREE;
        uint32_t n_stages = 0;
        enum verdict right = run_by(runner, nodes[i].sql, &options, order, &n_stages);
        options.wrong_kinds = UINT32_C(1) << nodes[i].kind;
        enum verdict planted = run_by(runner, nodes[i].sql, &options, order, &n_stages);
        if (right != RIGHT || planted != wanted) {
            print_missed(nodes[i].sql, right, planted);
            n_missed++;
        }
    }
    return n_missed;
}

TEST(rules_that_leave_rows_where_they_are_are_noticed)
{
    struct runner runner = open_runner();
    CHECK_UINT(count_missed(&runner, wrong_nodes, ARRAY_LEN(wrong_nodes), WRONG_ROWS), 0);
    CHECK_UINT(count_missed(&runner, failing_nodes, ARRAY_LEN(failing_nodes), FAILS), 0);
    runner_close(&runner);
}

/*
 * A rule that says that keys stay together cannot be wrong in the other direction: without it rows are only moved once more.
 * So each of them must spare a stage, and the rows must be right without that.
 */
static const struct {
    const char *what;
    bool is_asof;
    enum join_type type;
    const char *sql;
} keeping_joins[] = {
    {"inner, left", false, JOIN_INNER, "SELECT f.k, count(*) FROM facts f JOIN dims d ON f.k = d.k GROUP BY f.k"},
    {"inner, right", false, JOIN_INNER, "SELECT d.k, count(*) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.k"},
    {"left", false, JOIN_LEFT,
     "SELECT f.k, count(*), count(d.name) FROM facts f LEFT JOIN dims d ON f.k = d.k GROUP BY f.k"},
    {"right", false, JOIN_RIGHT,
     "SELECT d.k, count(*), count(f.id) FROM facts f RIGHT JOIN dims d ON f.k = d.k GROUP BY d.k"},
    {"semi", false, JOIN_SEMI, "SELECT f.k, count(*) FROM facts f SEMI JOIN dims d ON f.k = d.k GROUP BY f.k"},
    {"anti", false, JOIN_ANTI, "SELECT f.k, count(*) FROM facts f ANTI JOIN dims d ON f.k = d.k GROUP BY f.k"},
    {"mark", false, JOIN_MARK,
     "SELECT k, count(*), count_if(e) FROM (SELECT f.k, EXISTS (SELECT 1 FROM dims d WHERE d.k IS NOT DISTINCT FROM f.k) "
     "AS e FROM facts f) GROUP BY k"},
    {"single", false, JOIN_SINGLE,
     "SELECT k, count(v), max(v) FROM (SELECT f.k, (SELECT d.name FROM dims d WHERE d.k = f.k) AS v FROM facts f) "
     "GROUP BY k"},
    {"asof inner", true, JOIN_INNER,
     "SELECT f.k, sum(d.score) FROM facts f ASOF JOIN dims d ON f.k = d.k AND f.id >= d.score GROUP BY f.k"},
    {"asof left", true, JOIN_LEFT,
     "SELECT f.k, count(*), sum(d.score) FROM facts f ASOF LEFT JOIN dims d ON f.k = d.k AND f.id >= d.score GROUP BY f.k"},
};

TEST(rules_that_keep_keys_together_spare_a_stage_and_are_right)
{
    struct runner runner = open_runner();
    uint32_t n_missed = 0;
    for (size_t i = 0; i < ARRAY_LEN(keeping_joins); i++) {
        struct join_rules rules = join_rules_default;
        struct join_rule *rule = &(keeping_joins[i].is_asof ? rules.asof : rules.plain)[keeping_joins[i].type];
        struct cut_options options = {.partitions = 3, .slots = 4, .is_forced = true, .join_rules = &rules};
        uint32_t n_with = 0;
        uint32_t n_without = 0;
        enum verdict with = run_by(&runner, keeping_joins[i].sql, &options, ORDER_IS_FREE, &n_with);
        rule->keeps_left = false;
        rule->keeps_right = false;
        enum verdict without = run_by(&runner, keeping_joins[i].sql, &options, ORDER_IS_FREE, &n_without);
        if (with != RIGHT || without != RIGHT || n_with >= n_without) {
            fprintf(stderr, "%s: %u stages %s, %u without the rule %s\n", keeping_joins[i].what, (unsigned)n_with,
                    verdict_name(with), (unsigned)n_without, verdict_name(without));
            n_missed++;
        }
    }
    CHECK_UINT(n_missed, 0);
    runner_close(&runner);
}

/* The table with the rule for `name` replaced by one that takes any task's value for the whole. */
static struct aggregate_rule *with_wrong_rule(const char *name)
{
    uint32_t n = 0;
    while (aggregate_rules_default[n].name != NULL) {
        n++;
    }
    struct aggregate_rule *rules = mem_copy(aggregate_rules_default, (n + 1) * sizeof *rules);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(rules[i].name, name) == 0) {
            static char sql[100];
            snprintf(sql, sizeof sql, "\"%s\"(%s)%%", name, rules[i].n_args == 2 ? "@0, @1" : "@0");
            rules[i].is_state = false;
            rules[i].partials[0] =
                (struct aggregate_partial){strcmp(name, "count_star") == 0 ? "count(*)%" : sql, NULL, PARTIAL_RESULT};
            rules[i].partials[1].sql = NULL;
            rules[i].final = "any_value(@0)";
        }
    }
    return rules;
}

/* Arguments for which the aggregate's value is not that of the first task, whose rows have the smallest ids. */
static const struct {
    const char *start; /* of the aggregate's name; the first that fits counts */
    const char *args;
} args_of[] = {
    {"count_star", "*"},
    {"count_if", "id > 5"},
    {"countif", "id > 5"},
    {"bool_and", "id < 19990"},
    {"bool_or", "id = 19999"},
    {"bit_and", "15 - id // 6144"},
    {"bit_", "id * 7919"},
    {"product", "1 + id / 1000000000"},
    {"min_by", "id, abs(id - 10007)"},
    {"arg_min", "id, abs(id - 10007)"},
    {"argmin", "id, abs(id - 10007)"},
    {"max_by", "id, -abs(id - 10007)"},
    {"arg", "id, -abs(id - 10007)"},
    {"min", "abs(id - 10007)"},
    {"max", "-abs(id - 10007)"},
    {"corr", "id % 1013, id % 777"},
    {"covar", "id % 1013, id % 777"},
    {"regr", "id % 1013, id % 777"},
    {"", "id * id"},
};

/* With `is_grouped`: by groups and sums of them, over NULLs, and with a FILTER. */
static void write_query(struct buf *out, const struct aggregate_rule *rule, bool is_grouped)
{
    const char *name = strcmp(rule->name, "count_star") == 0 ? "count" : rule->name;
    size_t i = 0;
    while (strncmp(rule->name, args_of[i].start, strlen(args_of[i].start)) != 0) {
        i++;
    }
    const char *args = args_of[i].args;
    const char *comma = strchr(args, ',');
    buf_reset(out);
    if (!is_grouped) {
        buf_format(out, "SELECT %s(%s) FROM facts WHERE id %% 7 <> 3", name, args);
    } else if (args[0] == '*') {
        buf_format(out, "SELECT small, count(*) FILTER (WHERE id %% 5 <> 2) FROM facts GROUP BY ROLLUP (small)");
    } else {
        int n = comma == NULL ? (int)strlen(args) : (int)(comma - args);
        buf_format(out,
                   "SELECT small, %s(CASE WHEN id %% 7 <> 3 THEN %.*s END%s) FILTER (WHERE id %% 5 <> 2) FROM facts "
                   "GROUP BY ROLLUP (small)",
                   name, n, args, comma == NULL ? "" : comma);
    }
}

#define TRIES_MAX 20

/* Whether the query is right with the right rule, and has other rows with a wrong one. */
static bool is_noticed(struct runner *runner, const char *name, const char *sql)
{
    struct cut_options options = {.partitions = 3, .slots = 9, .is_forced = true};
    enum verdict right = verdict_of(runner, sql, &options);
    struct aggregate_rule *wrong = with_wrong_rule(name);
    options.aggregate_rules = wrong;
    enum verdict planted = RIGHT;
    for (int i = 0; i < TRIES_MAX && planted == RIGHT; i++) {
        planted = verdict_of(runner, sql, &options); /* the value that is taken may be the right one by chance */
    }
    mem_free(wrong);
    bool is_seen = right == RIGHT && planted == WRONG_ROWS;
    if (!is_seen) {
        print_missed(sql, right, planted);
    }
    return is_seen;
}

TEST(wrong_rules_for_aggregates_are_noticed)
{
    struct runner runner = open_runner();
    struct buf sql = {0};
    uint32_t n_missed = 0;
    for (const struct aggregate_rule *rule = aggregate_rules_default; rule->name != NULL; rule++) {
        /* Any value will do for these; a rule for them cannot be wrong in this way. */
        bool is_any = strcmp(rule->name, "any_value") == 0 || strcmp(rule->name, "first") == 0 ||
                      strcmp(rule->name, "arbitrary") == 0;
        for (int i = 0; i < 2 && !is_any; i++) {
            write_query(&sql, rule, i == 1);
            n_missed += is_noticed(&runner, rule->name, sql.data) ? 0 : 1;
        }
    }
    CHECK_UINT(n_missed, 0);
    buf_deinit(&sql);
    runner_close(&runner);
}

TEST(first_without_its_count_is_noticed)
{
    struct runner runner = open_runner();
    struct cut_options options = {.partitions = 3, .slots = 9, .is_forced = true};
    const char *sql = "SELECT first(id) FILTER (WHERE id = 19999) FROM facts";
    CHECK_INT(verdict_of(&runner, sql, &options), RIGHT);
    struct aggregate_rule *wrong = with_wrong_rule("first");
    for (struct aggregate_rule *rule = wrong; rule->name != NULL; rule++) {
        rule->final = strcmp(rule->name, "first") == 0 ? "first(@0)" : rule->final;
    }
    options.aggregate_rules = wrong;
    CHECK_INT(verdict_of(&runner, sql, &options), WRONG_ROWS);
    mem_free(wrong);
    runner_close(&runner);
}

TEST(a_rule_with_which_queries_fail_is_not_taken_for_one_with_wrong_rows)
{
    struct runner runner = open_runner();
    struct cut_options options = {.partitions = 3, .slots = 9, .is_forced = true};
    struct aggregate_rule *wrong = with_wrong_rule("max");
    for (struct aggregate_rule *rule = wrong; rule->name != NULL; rule++) {
        rule->final = strcmp(rule->name, "max") == 0 ? "no_such_function(@0)" : rule->final;
    }
    options.aggregate_rules = wrong;
    CHECK_INT(verdict_of(&runner, "SELECT max(id) FROM facts", &options), FAILS);
    mem_free(wrong);
    runner_close(&runner);
}
