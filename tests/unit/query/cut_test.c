/* Plans made by hand, cut; what DuckDB's own plans become, and that results are right, is seen in the integration tests. */
#include "query/cut.h"

#include <string.h>

#include "query/join_filter.h"
#include "test.h"

static struct split_group groups[] = {{1000, 5000000}, {1000, 5000000}, {1000, 5000000}};
static struct split_file files[] = {
    {.path = "large.parquet", .rows = 3000, .bytes = 15000000, .n_groups = 3, .groups = groups},
    {.path = "tiny.parquet", .rows = 10, .bytes = 400, .n_groups = 1, .groups = (struct split_group[]){{10, 400}}},
};
static const struct split_catalog catalog = {.n_files = 2, .files = files};

struct fixture {
    struct arena arena;
    struct cut_options options;
    struct physical_plan *physical;
};

static struct fixture fixture_new(void)
{
    return (struct fixture){.options = {.partitions = 4, .slots = 3, .catalog = &catalog, .broadcast_bytes = 100}};
}

static void fixture_deinit(struct fixture *f)
{
    arena_deinit(&f->arena);
}

/* A scan of a file with the BIGINT columns a and b. */
static struct plan_node *scan_of(struct fixture *f, const char *path)
{
    struct plan_node *node = arena_zalloc(&f->arena, sizeof *node);
    struct scan *scan = arena_zalloc(&f->arena, sizeof *scan);
    struct scan_column *columns = arena_zalloc(&f->arena, 2 * sizeof *columns);
    node->kind = NODE_SCAN;
    node->n_columns = 2;
    node->columns = arena_zalloc(&f->arena, 2 * sizeof *node->columns);
    node->rows_estimated = -1;
    node->as.scan = scan;
    scan->function = "read_parquet";
    scan->n_names = 2;
    scan->names = arena_zalloc(&f->arena, 2 * sizeof *scan->names);
    scan->types = arena_zalloc(&f->arena, 2 * sizeof *scan->types);
    scan->n_columns = 2;
    scan->columns = columns;
    scan->n_files = 1;
    scan->files = arena_zalloc(&f->arena, sizeof *scan->files);
    scan->files[0] = path;
    for (uint32_t i = 0; i < 2; i++) {
        node->columns[i] = scan->types[i] = columns[i].type = type_plain(TYPE_BIGINT);
        scan->names[i] = i == 0 ? "a" : "b";
        columns[i].index = i;
    }
    return node;
}

static struct plan_node *node_over(struct fixture *f, enum node_kind kind, struct plan_node *a, struct plan_node *b)
{
    struct plan_node *node = arena_zalloc(&f->arena, sizeof *node);
    *node = *a;
    node->kind = kind;
    node->n_children = b == NULL ? 1 : 2;
    node->children = arena_zalloc(&f->arena, 2 * sizeof *node->children);
    node->children[0] = a;
    node->children[1] = b;
    return node;
}

static struct plan_node *limit_over(struct fixture *f, struct plan_node *child, uint64_t rows, uint64_t offset)
{
    struct plan_node *node = node_over(f, NODE_LIMIT, child, NULL);
    node->as.limit = arena_zalloc(&f->arena, sizeof *node->as.limit);
    node->as.limit->count = (struct limit_value){.kind = LIMIT_BY_ROWS, .rows = rows};
    node->as.limit->offset = (struct limit_value){.kind = LIMIT_BY_ROWS, .rows = offset};
    return node;
}

/* sum(b) by a, or of everything. */
static struct plan_node *sum_over(struct fixture *f, struct plan_node *child, bool is_grouped)
{
    struct plan_node *node = node_over(f, NODE_AGGREGATE, child, NULL);
    struct aggregate *aggregate = arena_zalloc(&f->arena, sizeof *aggregate);
    struct expression *sum = arena_zalloc(&f->arena, sizeof *sum);
    sum->kind = EXPRESSION_AGGREGATE;
    sum->type = type_plain(TYPE_HUGEINT);
    sum->n_args = 1;
    sum->args = arena_zalloc(&f->arena, sizeof *sum->args);
    sum->args[0] = expression_ref(&f->arena, 1, type_plain(TYPE_BIGINT));
    sum->as.aggregate = arena_zalloc(&f->arena, sizeof *sum->as.aggregate);
    sum->as.aggregate->name = "sum";
    aggregate->n_groups = is_grouped ? 1 : 0;
    aggregate->groups = arena_zalloc(&f->arena, sizeof *aggregate->groups);
    aggregate->groups[0] = expression_ref(&f->arena, 0, type_plain(TYPE_BIGINT));
    aggregate->n_aggregates = 1;
    aggregate->aggregates = arena_zalloc(&f->arena, sizeof *aggregate->aggregates);
    aggregate->aggregates[0] = sum;
    node->as.aggregate = aggregate;
    node->n_columns = aggregate->n_groups + 1;
    node->columns = arena_zalloc(&f->arena, 2 * sizeof *node->columns);
    node->columns[0] = type_plain(is_grouped ? TYPE_BIGINT : TYPE_HUGEINT);
    node->columns[1] = type_plain(TYPE_HUGEINT);
    return node;
}

/* left.a = right.a, with all columns of both sides. */
static struct plan_node *join_of(struct fixture *f, enum join_type type, struct plan_node *left,
                                 struct plan_node *right)
{
    struct plan_node *node = node_over(f, NODE_JOIN, left, right);
    struct join *join = arena_zalloc(&f->arena, sizeof *join);
    static uint32_t map[] = {0, 1};
    join->type = type;
    join->n_conditions = 1;
    join->conditions = arena_zalloc(&f->arena, sizeof *join->conditions);
    join->conditions[0].left = expression_ref(&f->arena, 0, type_plain(TYPE_BIGINT));
    join->conditions[0].right = expression_ref(&f->arena, 0, type_plain(TYPE_BIGINT));
    join->left_map = join->right_map = map;
    join->n_left = join->n_right = 2;
    node->as.join = join;
    node->n_columns = 4;
    node->columns = arena_zalloc(&f->arena, 4 * sizeof *node->columns);
    for (uint32_t i = 0; i < 4; i++) {
        node->columns[i] = type_plain(TYPE_BIGINT);
    }
    return node;
}

static struct plan_column columns[] = {{"w", "BIGINT"}, {"x", "BIGINT"}, {"y", "BIGINT"}, {"z", "BIGINT"}};

/* What the operator `op` makes of the child's rows: columns called a and b. */
static struct plan_node *custom_over(struct fixture *f, struct plan_node *child)
{
    struct plan_node *node = scan_of(f, "");
    struct plan *input = arena_zalloc(&f->arena, sizeof *input);
    struct plan_custom *custom = arena_zalloc(&f->arena, sizeof *custom);
    *input = (struct plan){.root = child, .sql = "SELECT inside", .n_columns = child->n_columns, .columns = columns};
    *custom = (struct plan_custom){.name = "capstan_custom_0", .op = "op", .config_json = "{\"x\":1}", .input = input};
    struct scan *scan = node->as.scan;
    scan->source = SCAN_STAND_IN;
    scan->n_files = 0;
    node->kind = NODE_CUSTOM;
    node->as.custom = (struct custom_node){.custom = custom, .scan = scan};
    node->n_children = 1;
    node->children = arena_zalloc(&f->arena, sizeof *node->children);
    node->children[0] = child;
    return node;
}

static const struct physical_plan *cut_plan(struct fixture *f, struct plan plan)
{
    struct plan_node *root = plan.root;
    plan.sql = "SELECT whole";
    plan.columns = columns;
    struct error e = {0};
    struct buf text = {0};
    struct physical_plan *read = NULL;
    plan.n_columns = root == NULL ? 0 : root->n_columns;
    plan.unsupported = root == NULL ? "a reason" : NULL;
    CHECK_ERR(query_cut(&plan, &f->options, &f->arena, &f->physical, &e), ERR_OK);
    physical_write(&text, f->physical); /* and it is a plan that everybody takes */
    CHECK_ERR(physical_read(text.data, text.n, &f->arena, &read, NULL, &e), ERR_OK);
    buf_deinit(&text);
    return f->physical;
}

static const struct physical_plan *cut(struct fixture *f, struct plan_node *root)
{
    return cut_plan(f, (struct plan){.root = root});
}

static void check_exchanges(const struct physical_plan *plan, const char *expected)
{
    struct buf text = {0};
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        buf_format(&text, "%s%s/%u", i == 0 ? "" : " ", exchange_name(plan->stages[i].output.exchange),
                   (unsigned)physical_tasks(plan, i));
    }
    CHECK_STR(text.data, expected);
    buf_deinit(&text);
}

TEST(what_cannot_or_need_not_be_cut_is_one_task_with_the_reason)
{
    struct fixture f = fixture_new();
    CHECK_STR(cut(&f, NULL)->single_reason, "a reason");
    CHECK_STR(f.physical->stages[0].sql, "SELECT whole");
    f.options.single_task_bytes = 20000000;
    CHECK_STR(cut(&f, scan_of(&f, "large.parquet"))->single_reason, "its input is small: 15000000 bytes");
    CHECK(!f.physical->stages[0].knows_files); /* its words may name more than the tree */
    /* How large files are that cannot be split is not known, so nothing is said about it. */
    struct plan_node *csv = scan_of(&f, "");
    csv->as.scan->source = SCAN_STAND_IN;
    csv->as.scan->from = "read_csv('x.csv')";
    csv->as.scan->n_files = 0;
    CHECK_STR(cut(&f, csv)->single_reason, "it reads only files that are not Parquet, which cannot be split");
    CHECK_STR(cut(&f, join_of(&f, JOIN_INNER, scan_of(&f, "large.parquet"), csv))->single_reason,
              "its input is small: 15000000 bytes, besides files that are not Parquet, which cannot be split");
    f.options.is_forced = true;
    CHECK(cut(&f, scan_of(&f, "large.parquet"))->single_reason == NULL);
    CHECK_STR(cut(&f, scan_of(&f, "large[1].parquet"))->single_reason,
              "the name of a file has *, ?, [ or \\ in it, and DuckDB would take it for a pattern");
    struct plan_node *dummy = arena_zalloc(&f.arena, sizeof *dummy);
    dummy->kind = NODE_DUMMY;
    CHECK_STR(cut(&f, dummy)->single_reason, "it reads no files");
    fixture_deinit(&f);
}

/* In the user's own words, DuckDB's filters of joins may change which rows a LIMIT takes (join_filter.h). */
TEST(a_small_query_with_a_limit_below_a_join_is_cut_nevertheless)
{
    struct fixture f = fixture_new();
    f.options.single_task_bytes = 40000000;
    f.options.broadcast_bytes = 100000;
    struct plan_node *limit = limit_over(&f, scan_of(&f, "large.parquet"), 10, 0);
    struct plan_node *join = join_of(&f, JOIN_INNER, scan_of(&f, "tiny.parquet"), limit);
    CHECK(cut(&f, join)->single_reason == NULL);
    const char *last = f.physical->stages[f.physical->n_stages - 1].sql;
    CHECK(strncmp(last, "WITH ", 5) == 0);
    CHECK(strstr(last, " AS MATERIALIZED (") != NULL);
    struct plan_node *plain = join_of(&f, JOIN_INNER, scan_of(&f, "tiny.parquet"), scan_of(&f, "large.parquet"));
    CHECK_STR(cut(&f, limit_over(&f, plain, 10, 0))->single_reason, "its input is small: 15000400 bytes");
    limit->as.limit->count.kind = LIMIT_BY_PERCENT;
    struct plan_node *sum = sum_over(&f, limit, false); /* one row, whatever is looked for */
    CHECK_STR(cut(&f, join_of(&f, JOIN_LEFT, plain, sum))->single_reason, "its input is small: 30000400 bytes");
    fixture_deinit(&f);
}

/* DuckDB's filters of joins may not be understood there (join_filter.h). */
TEST(files_of_several_kinds_that_one_task_reads_are_apart_from_joins)
{
    struct fixture f = fixture_new();
    struct plan_node *mixed = scan_of(&f, "large.parquet");
    mixed->as.scan->has_kinds = true;
    mixed->as.scan->mixed_column = mixed->as.scan->names[0];
    struct plan_node *join = join_of(&f, JOIN_INNER, mixed, scan_of(&f, "tiny.parquet"));
    CHECK(cut(&f, join)->single_reason == NULL);
    const char *sql = f.physical->stages[0].sql;
    CHECK(strstr(sql, JOIN_FILTER_KINDS) != NULL);
    CHECK(strstr(sql, "JOIN") == NULL || strstr(sql, " AS MATERIALIZED (") != NULL);
    mixed->as.scan->mixed_column = NULL;
    CHECK(cut(&f, join)->single_reason == NULL); /* shared out, each task reads files of one kind */
    CHECK(strstr(f.physical->stages[0].sql, JOIN_FILTER_KINDS) == NULL);
    fixture_deinit(&f);
}

TEST(a_scan_is_a_task_per_split_and_its_rows_are_the_result)
{
    struct fixture f = fixture_new();
    check_exchanges(cut(&f, scan_of(&f, "large.parquet")), "result/3");
    CHECK(f.physical->stages[0].is_deterministic);
    fixture_deinit(&f);
}

TEST(a_sum_is_made_in_two_steps)
{
    struct fixture f = fixture_new();
    check_exchanges(cut(&f, sum_over(&f, scan_of(&f, "large.parquet"), true)), "hash/3 result/4");
    CHECK_STR(f.physical->stages[0].output.keys[0], "c0");
    CHECK_UINT(f.physical->stages[1].n_empty_if, 1);
    check_exchanges(cut(&f, sum_over(&f, scan_of(&f, "large.parquet"), false)), "gather/3 result/1");
    CHECK_UINT(f.physical->stages[1].n_empty_if, 0); /* the sum of nothing is a row */
    fixture_deinit(&f);
}

TEST(a_sum_of_floating_point_numbers_is_not_the_same_each_time)
{
    struct fixture f = fixture_new();
    struct plan_node *sum = sum_over(&f, scan_of(&f, "large.parquet"), true);
    cut(&f, sum);
    CHECK(f.physical->stages[0].is_deterministic);
    CHECK(f.physical->stages[1].is_deterministic);
    struct expression *call = sum->as.aggregate->aggregates[0];
    sum->columns[1] = call->type = call->args[0]->type = type_plain(TYPE_DOUBLE);
    check_exchanges(cut(&f, sum), "hash/3 result/4");
    CHECK(!f.physical->stages[0].is_deterministic);
    CHECK(!f.physical->stages[1].is_deterministic);
    call->as.aggregate->name = "max"; /* whichever comes first */
    cut(&f, sum);
    CHECK(f.physical->stages[0].is_deterministic);
    CHECK(f.physical->stages[1].is_deterministic);
    fixture_deinit(&f);
}

TEST(rows_that_are_together_are_not_moved_again)
{
    struct fixture f = fixture_new();
    struct plan_node *once = sum_over(&f, scan_of(&f, "large.parquet"), true);
    check_exchanges(cut(&f, sum_over(&f, once, true)), "hash/3 result/4");
    fixture_deinit(&f);
}

TEST(a_limit_is_taken_by_each_task_and_then_of_all)
{
    struct fixture f = fixture_new();
    check_exchanges(cut(&f, limit_over(&f, scan_of(&f, "large.parquet"), 10, 5)), "gather/3 result/1");
    CHECK(strstr(f.physical->stages[0].sql, "LIMIT 15") != NULL);
    CHECK(strstr(f.physical->stages[0].sql, "OFFSET") == NULL);
    CHECK(strstr(f.physical->stages[1].sql, "LIMIT 10 OFFSET 5") != NULL);
    CHECK(!f.physical->stages[0].is_deterministic);
    fixture_deinit(&f);
}

TEST(a_tiny_table_is_read_by_every_task_unless_it_is_forced)
{
    struct fixture f = fixture_new();
    f.options.broadcast_bytes = 100000;
    struct plan_node *join = join_of(&f, JOIN_LEFT, scan_of(&f, "large.parquet"), scan_of(&f, "tiny.parquet"));
    check_exchanges(cut(&f, join), "result/3");
    f.options.is_forced = true;
    check_exchanges(cut(&f, join), "broadcast/1 result/3");
    CHECK(f.physical->stages[1].inputs[0].is_whole);
    fixture_deinit(&f);
}

TEST(a_stage_notes_the_files_that_its_sql_names_itself)
{
    struct fixture f = fixture_new();
    struct split_file known[] = {files[0], files[1]};
    struct split_catalog with_times = {.n_files = 2, .files = known};
    f.options.catalog = &with_times;
    f.options.broadcast_bytes = 100000;
    struct plan_node *inner = join_of(&f, JOIN_LEFT, scan_of(&f, "large.parquet"), scan_of(&f, "tiny.parquet"));
    struct plan_node *join = join_of(&f, JOIN_LEFT, inner, scan_of(&f, "tiny.parquet"));
    CHECK_UINT(cut(&f, join)->stages[0].n_files, 0); /* nobody knows what they were like */
    known[0].has_identity = known[1].has_identity = true;
    known[1].mtime_ms = 1234567890123;
    check_exchanges(cut(&f, join), "result/3");
    CHECK_UINT(f.physical->stages[0].n_files, 1); /* once; the other one is in splits */
    CHECK_STR(f.physical->stages[0].files[0].path, "tiny.parquet");
    CHECK_UINT(f.physical->stages[0].files[0].bytes, 400);
    CHECK_INT(f.physical->stages[0].files[0].mtime_ms, 1234567890123);
    CHECK(f.physical->stages[0].splits[0].has_identity);
    fixture_deinit(&f);
}

TEST(the_side_of_a_left_join_whose_rows_all_come_out_is_never_sent_to_all)
{
    struct fixture f = fixture_new();
    f.options.broadcast_bytes = 100000;
    f.options.is_forced = true;
    struct plan_node *join = join_of(&f, JOIN_LEFT, scan_of(&f, "tiny.parquet"), scan_of(&f, "large.parquet"));
    check_exchanges(cut(&f, join), "broadcast/3 result/1"); /* small enough as well: 3000 rows of 16 bytes */
    /* Its keys are, so that the other side need not send what has no match. */
    f.options.broadcast_bytes = 1000;
    check_exchanges(cut(&f, join), "hash/1 hash/3 hash/4 result/4");
    CHECK(physical_is_sieve(&f.physical->stages[2]));
    CHECK_UINT(f.physical->stages[2].choice.small, 0);
    CHECK_UINT(f.physical->stages[2].choice.large, 1);
    f.options.broadcast_bytes = 0;
    check_exchanges(cut(&f, join), "hash/1 hash/3 result/4");
    fixture_deinit(&f);
}

TEST(a_join_of_unknown_size_waits_for_the_smaller_side)
{
    struct fixture f = fixture_new();
    f.options.is_forced = true;
    f.options.broadcast_bytes = 20000;
    struct plan_node *inner = join_of(&f, JOIN_INNER, scan_of(&f, "large.parquet"), scan_of(&f, "large.parquet"));
    check_exchanges(cut(&f, inner), "hash/3 hash/3 result/4");
    CHECK(f.physical->stages[2].choice.is_open);
    CHECK_UINT(f.physical->stages[2].choice.small, 1);
    CHECK_UINT(f.physical->stages[2].choice.bytes_max, 20000);
    f.options.broadcast_bytes = 0;
    check_exchanges(cut(&f, inner), "hash/3 hash/3 result/4");
    CHECK(!f.physical->stages[2].choice.is_open);
    /* What counts on how the join spreads its rows leaves no choice. */
    f.options.broadcast_bytes = 20000;
    check_exchanges(cut(&f, sum_over(&f, inner, true)), "hash/3 hash/3 result/4");
    CHECK(!f.physical->stages[2].choice.is_open);
    fixture_deinit(&f);
}

TEST(a_union_reads_each_scan_with_tasks_of_its_own)
{
    struct fixture f = fixture_new();
    f.options.is_forced = true;
    struct plan_node *both = node_over(&f, NODE_UNION, scan_of(&f, "large.parquet"), scan_of(&f, "tiny.parquet"));
    both->as.is_all = true;
    check_exchanges(cut(&f, both), "result/4");
    CHECK_UINT(f.physical->stages[0].splits[3].scan, 1);
    /* One side has tasks by partition: the other gets such too. */
    both = node_over(&f, NODE_UNION, sum_over(&f, scan_of(&f, "large.parquet"), true), scan_of(&f, "tiny.parquet"));
    both->as.is_all = true;
    check_exchanges(cut(&f, both), "hash/3 forward/1 result/4");
    fixture_deinit(&f);
}

TEST(an_operator_ends_a_stage_with_the_names_that_it_knows)
{
    struct fixture f = fixture_new();
    const struct physical_plan *plan = cut(&f, sum_over(&f, custom_over(&f, scan_of(&f, "large.parquet")), true));
    check_exchanges(plan, "forward/3 hash/4 result/4");
    CHECK_STR(physical_required_op(&plan->stages[0]), "op");
    CHECK_STR(plan->stages[0].custom.config_json, "{\"x\":1}");
    CHECK(strstr(plan->stages[0].sql, "AS \"w\"") != NULL);
    CHECK(!plan->stages[0].is_deterministic);
    CHECK_UINT(plan->stages[0].n_empty_if, 0);
    CHECK(strstr(plan->stages[1].sql, "CAST(t1.\"a\" AS BIGINT)") != NULL);
    CHECK(strstr(plan->stages[1].sql, "FROM \"i0\" t1") != NULL);
    CHECK_UINT(plan->stages[1].n_empty_if, 1);
    check_exchanges(cut(&f, custom_over(&f, sum_over(&f, scan_of(&f, "large.parquet"), false))),
                    "gather/3 gather/1 result/1"); /* one task has all rows */
    check_exchanges(cut(&f, custom_over(&f, custom_over(&f, scan_of(&f, "large.parquet")))),
                    "forward/3 forward/4 result/4");
    fixture_deinit(&f);
}

TEST(a_query_that_is_not_cut_has_tasks_for_its_operators)
{
    struct fixture f = fixture_new();
    f.options.single_task_bytes = 20000000;
    struct plan_node *node = custom_over(&f, scan_of(&f, "large.parquet"));
    const struct physical_plan *plan =
        cut_plan(&f, (struct plan){.root = node,
                                   .n_customs = 1,
                                   .customs = (struct plan_custom[]){*node->as.custom.custom},
                                   .write = {.sql = "x", .to = "/out", .format = "csv", .options = "HEADER"}});
    check_exchanges(plan, "gather/1 gather/1 result/1");
    CHECK_STR(plan->stages[0].sql, "SELECT inside");
    CHECK_STR(plan->stages[0].custom.op, "op");
    CHECK_STR(plan->stages[1].sql, "SELECT whole");
    CHECK_STR(plan->stages[1].inputs[0].name, "capstan_custom_0");
    CHECK(plan->stages[1].inputs[0].is_repeated);
    CHECK_STR(plan->stages[1].write.to, "/out");
    CHECK_STR(plan->stages[1].write.options, "HEADER");
    CHECK_STR(plan->stages[2].publish.to, "/out");
    fixture_deinit(&f);
}

TEST(a_query_that_writes_has_a_file_per_task_and_publishes_them)
{
    struct fixture f = fixture_new();
    struct query_write write = {.sql = "x", .to = "/w/t", .format = "parquet", .options = "", .table = "t"};
    const struct physical_plan *plan =
        cut_plan(&f, (struct plan){.root = sum_over(&f, scan_of(&f, "large.parquet"), true), .write = write});
    check_exchanges(plan, "hash/3 gather/4 result/1");
    CHECK_STR(plan->stages[1].write.to, "/w/t");
    CHECK_STR(plan->stages[1].write.format, "parquet");
    CHECK(strstr(plan->stages[1].sql, "AS \"w\"") != NULL); /* names as in the result */
    CHECK_UINT(plan->stages[1].n_empty_if, 0);
    CHECK_STR(plan->stages[2].publish.to, "/w/t");
    CHECK_STR(plan->stages[2].publish.table, "t");
    CHECK_STR(plan->stages[2].sql, "SELECT file, rows FROM files");
    fixture_deinit(&f);
}

#define MANY_FILES 200
#define MANY_GROUPS 1000

/* Sums by a over files in which a ascends, each behind the one before, or all over the same values. */
static const struct physical_plan *sum_many(struct fixture *f, bool has_overlap)
{
    struct split_file *many = arena_zalloc(&f->arena, MANY_FILES * sizeof *many);
    struct split_catalog *known = arena_zalloc(&f->arena, sizeof *known);
    struct plan_node *scan = scan_of(f, "");
    scan->as.scan->n_files = MANY_FILES;
    scan->as.scan->files = arena_zalloc(&f->arena, MANY_FILES * sizeof *scan->as.scan->files);
    for (uint32_t i = 0; i < MANY_FILES; i++) {
        struct split_column *column = arena_zalloc(&f->arena, sizeof *column);
        many[i] = (struct split_file){.path = arena_format(&f->arena, "%04u", (unsigned)i),
                                      .has_identity = true,
                                      .n_groups = MANY_GROUPS,
                                      .n_columns = 1,
                                      .columns = column};
        many[i].groups = arena_zalloc(&f->arena, MANY_GROUPS * sizeof *many[i].groups);
        column->name = "a";
        column->first = arena_zalloc(&f->arena, MANY_GROUPS * sizeof *column->first);
        column->last = arena_zalloc(&f->arena, MANY_GROUPS * sizeof *column->last);
        for (uint32_t k = 0; k < MANY_GROUPS; k++) {
            many[i].groups[k] = (struct split_group){.rows = 1000, .bytes = 100000000};
            many[i].rows += many[i].groups[k].rows;
            many[i].bytes += many[i].groups[k].bytes;
            column->first[k] = 1000 * ((has_overlap ? 0 : (int64_t)i * MANY_GROUPS) + k);
            column->last[k] = column->first[k] + 999;
        }
        scan->as.scan->files[i] = many[i].path;
    }
    *known = (struct split_catalog){.n_files = MANY_FILES, .files = many};
    f->options.catalog = known;
    f->options.slots = 1024;
    return cut(f, sum_over(f, scan, true));
}

/* A split for each file of each task would be a plan that nobody takes; and bounds must not be looked for in all pieces. */
TEST(a_table_of_very_many_row_groups_is_cut_into_ranges_if_few_files_are_opened)
{
    struct fixture f = fixture_new();
    const struct physical_plan *plan = sum_many(&f, false);
    CHECK(plan->single_reason == NULL);
    check_exchanges(plan, "result/1024");
    fixture_deinit(&f);
    f = fixture_new();
    plan = sum_many(&f, true);
    CHECK(plan->single_reason == NULL);
    CHECK_UINT(plan->n_stages, 2);
    fixture_deinit(&f);
}
