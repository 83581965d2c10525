/* Trees as SQL, and above all what a cutter puts into them. Whole plans are tested with DuckDB, in tests/integration. */
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "query/unparse.h"
#include "test.h"

static struct arena arena;
static struct buf text;

static const char *sql_of(struct plan_node *node)
{
    struct error e = {0};
    buf_reset(&text);
    buf_text(&text, "");
    CHECK_ERR(unparse_node(&text, node, &e), ERR_OK);
    return text.data;
}

static const char *reason_of(struct plan_node *node)
{
    static struct error e;
    e = (struct error){0};
    buf_reset(&text);
    buf_text(&text, "before ");
    CHECK_ERR(unparse_node(&text, node, &e), ERR_PRECONDITION);
    CHECK_STR(text.data, "before ");
    return e.message;
}

static void done(void)
{
    arena_deinit(&arena);
    buf_deinit(&text);
}

static const struct type *two[] = {NULL, NULL};

static struct plan_node *input(const char *name)
{
    two[0] = type_plain(TYPE_INTEGER);
    two[1] = type_plain(TYPE_VARCHAR);
    return plan_input(&arena, name, two, 2);
}

static struct expression *ref(uint32_t i)
{
    return expression_ref(&arena, i, two[i]);
}

static struct plan_node *parquet(const char **files, uint32_t n)
{
    static const char *names[] = {"a", "b c"};
    static struct scan_column columns[3];
    struct scan *scan = arena_zalloc(&arena, sizeof(*scan));
    struct plan_node *node = arena_zalloc(&arena, sizeof(*node));
    (void)input("m");
    columns[0] = (struct scan_column){.index = 1, .type = two[1]};
    columns[1] = (struct scan_column){.is_virtual = VIRTUAL_FILE_INDEX, .type = type_plain(TYPE_UBIGINT)};
    columns[2] = (struct scan_column){.is_virtual = VIRTUAL_EMPTY, .type = type_plain(TYPE_BOOLEAN)};
    *scan = (struct scan){.source = SCAN_PARQUET,
                          .n_names = 2,
                          .names = names,
                          .types = two,
                          .n_columns = 3,
                          .columns = columns,
                          .n_files = n,
                          .files = files};
    node->kind = NODE_SCAN;
    node->as.scan = scan;
    node->n_columns = 3;
    node->columns = arena_zalloc(&arena, 3 * sizeof(struct type *));
    for (uint32_t i = 0; i < 3; i++) {
        node->columns[i] = columns[i].type;
    }
    return node;
}

TEST(an_input_is_cast_to_the_types_that_the_plan_says)
{
    CHECK_STR(sql_of(input("in 1")),
              "SELECT CAST(t0.c0 AS INTEGER) AS c0, CAST(t0.c1 AS VARCHAR) AS c1 FROM \"in 1\" t0");
    done();
}

TEST(templates_put_arguments_into_sql)
{
    struct plan_node *node = input("m");
    struct expression *args[] = {ref(0), ref(1)};
    struct expression *key =
        expression_template(&arena, "((hash(@*) >> 32) % {{partitions}} = @0 @@)", type_plain(TYPE_BOOLEAN), args, 2);
    const char *sql = sql_of(plan_extend(&arena, node, &key, 1));
    CHECK(strncmp(sql,
                  "SELECT t0.c0 AS c0, t0.c1 AS c1, ((hash(t0.c0, t0.c1) >> 32) % {{partitions}} = t0.c0 @) AS c2 "
                  "FROM (SELECT ",
                  90) == 0);
    buf_reset(&text);
    CHECK_ERR(unparse_expression(&text, key, NULL, NULL), ERR_OK);
    CHECK_STR(text.data, "((hash(c0, c1) >> 32) % {{partitions}} = c0 @)");
    buf_reset(&text);
    CHECK_ERR(unparse_expression(&text, key->args[1], "x", NULL), ERR_OK);
    CHECK_STR(text.data, "x.c1");
    done();
}

TEST(a_scan_lists_its_files_and_casts_its_columns)
{
    const char *files[] = {"one.parquet", "it's.parquet"};
    CHECK_STR(sql_of(parquet(files, 1)),
              "SELECT CAST(t0.\"b c\" AS VARCHAR) AS c0, t0.file_index AS c1, CAST(NULL AS BOOLEAN) AS c2 FROM "
              "read_parquet(['one.parquet'], hive_partitioning = false) t0");
    CHECK_STR(sql_of(parquet(files, 2)),
              "SELECT CAST(t0.\"b c\" AS VARCHAR) AS c0, t0.file_index AS c1, CAST(NULL AS BOOLEAN) AS c2 FROM "
              "read_parquet(['one.parquet', 'it''s.parquet'], hive_partitioning = false) t0");
    done();
}

TEST(a_split_replaces_files_conditions_and_virtual_columns)
{
    const char *files[] = {"one.parquet"};
    struct plan_node *node = plan_node_copy(&arena, parquet(files, 1));
    node->as.scan->split = (struct scan_split){
        .files = "{{split}}", .where = "@.file_row_number BETWEEN {{first}} AND {{last}}", .file_index = "{{index}}"};
    CHECK_STR(sql_of(node),
              "SELECT CAST(t0.\"b c\" AS VARCHAR) AS c0, {{index}} AS c1, CAST(NULL AS BOOLEAN) AS c2 FROM "
              "read_parquet({{split}}, hive_partitioning = false) t0 "
              "WHERE t0.file_row_number BETWEEN {{first}} AND {{last}}");
    done();
}

/* A column that is in other files only is NULL, also for a task that sees none of these. */
TEST(a_split_of_files_read_by_name_knows_the_columns_of_all_files)
{
    const char *files[] = {"one.parquet"};
    struct plan_node *node = plan_node_copy(&arena, parquet(files, 1));
    node->as.scan->has_union_by_name = true;
    CHECK(strstr(sql_of(node), "UNION ALL") == NULL);
    node->as.scan->split = (struct scan_split){.files = "{{split}}", .where = "{{rows:@.capstan_row}}"};
    const char *sql = sql_of(node);
    CHECK(strstr(sql, "FROM (SELECT CAST(NULL AS ") != NULL);
    CHECK(strstr(sql, " AS \"b c\", ") != NULL);
    CHECK(strstr(sql,
                 "CAST(NULL AS BIGINT) AS capstan_row WHERE false UNION ALL BY NAME "
                 "SELECT *, files.file_row_number AS capstan_row FROM read_parquet({{split}}, "
                 "union_by_name = true, hive_partitioning = false) files) t0 WHERE {{rows:t0.capstan_row}}") != NULL);
    done();
}

TEST(hive_partitions_keep_the_types_that_all_values_had)
{
    const char *files[] = {"data/A=5/x=1/part.parquet"};
    struct plan_node *node = parquet(files, 1);
    node->as.scan->has_hive_partitioning = true;
    CHECK(strstr(sql_of(node), "hive_partitioning = true, hive_types = {'A': INTEGER})") != NULL);
    done();
}

TEST(a_result_has_its_own_names_even_through_a_cte)
{
    struct plan_column columns[] = {{.name = "a \"b\"", .type = "INTEGER"}, {.name = "a", .type = "VARCHAR"}};
    struct plan_node *definition = input("m");
    struct plan_node reference = {.kind = NODE_CTE_REF, .n_columns = 2, .columns = two, .as.cte_ref.id = 3};
    struct plan_node *children[] = {definition, &reference};
    struct plan_node cte = {
        .kind = NODE_CTE, .n_children = 2, .children = children, .n_columns = 2, .columns = two, .as.cte.id = 3};
    CHECK_ERR(unparse_result(&text, &cte, columns, 2, NULL), ERR_OK);
    CHECK_STR(text.data,
              "WITH m1 AS MATERIALIZED (SELECT CAST(t0.c0 AS INTEGER) AS c0, CAST(t0.c1 AS VARCHAR) AS c1 FROM "
              "\"m\" t0) SELECT t2.c0 AS \"a \"\"b\"\"\", t2.c1 AS \"a\" FROM m1 t2");
    done();
}

TEST(what_a_fragment_lacks_is_a_reason)
{
    (void)input("m");
    struct plan_node reference = {.kind = NODE_CTE_REF, .n_columns = 2, .columns = two, .as.cte_ref.id = 3};
    struct plan_node keys = {.kind = NODE_DELIM_GET, .n_columns = 2, .columns = two, .as.delim_get.delim_id = 3};
    CHECK_STR(reason_of(&reference), "a CTE that is not in this fragment");
    CHECK_STR(reason_of(&keys), "the keys of a delim join that is not in this fragment");
    struct expression *bad = expression_ref(&arena, 9, two[0]);
    CHECK_STR(reason_of(plan_project(&arena, input("m"), &bad, 1)), "a reference to a column that is not there");
    done();
}

static struct plan_node *join(enum join_type type, const struct join_condition *conditions, uint32_t n)
{
    static uint32_t map[] = {0, 1};
    struct join *made = arena_zalloc(&arena, sizeof(*made));
    struct plan_node *node = arena_zalloc(&arena, sizeof(*node));
    struct plan_node *children[] = {input("l"), input("r")};
    *made = (struct join){.type = type,
                          .n_left = 2,
                          .left_map = map,
                          .n_right = 2,
                          .right_map = map,
                          .n_conditions = n,
                          .conditions = arena_copy(&arena, conditions, n * sizeof(*conditions))};
    node->kind = NODE_JOIN;
    node->n_children = 2;
    node->children = arena_copy(&arena, children, sizeof(children));
    node->n_columns = type == JOIN_MARK ? 3 : type == JOIN_SEMI || type == JOIN_ANTI ? 2 : 4;
    node->columns = arena_zalloc(&arena, node->n_columns * sizeof(struct type *));
    node->as.join = made;
    return node;
}

TEST(marks_that_sql_cannot_express_are_refused)
{
    (void)input("m");
    struct join_condition mixed[] = {{ref(0), ref(0), COMPARE_EQUAL}, {ref(1), ref(1), COMPARE_LESS}};
    CHECK_STR(reason_of(join(JOIN_MARK, mixed, 2)), "a subquery with several inequalities");
    struct join_condition keyed[] = {{ref(0), ref(0), COMPARE_NOT_DISTINCT}, {ref(1), ref(1), COMPARE_LESS}};
    CHECK(strstr(sql_of(join(JOIN_MARK, keyed, 2)), "t0.c1 < s5.hi THEN true") != NULL);
    struct join_condition several[] = {keyed[0], keyed[1], {ref(1), ref(1), COMPARE_EQUAL}};
    CHECK_STR(reason_of(join(JOIN_MARK, several, 3)), "a correlated subquery with several comparisons");
    struct join_condition unequal[] = {{ref(0), ref(0), COMPARE_DISTINCT}, {ref(1), ref(1), COMPARE_LESS}};
    CHECK_STR(reason_of(join(JOIN_MARK, unequal, 2)), "a correlated subquery that is not correlated by equality");
    struct join_condition apart[] = {{ref(0), ref(0), COMPARE_DISTINCT}};
    CHECK_STR(reason_of(join(JOIN_MARK, apart, 1)), "an EXISTS that is not correlated by equality");
    CHECK_STR(reason_of(join(JOIN_SINGLE, mixed, 2)), "a scalar subquery that is not correlated by equality");
    const struct {
        enum join_type type;
        const char *reason;
    } beside[] = {{JOIN_MARK, "a subquery with a condition over both sides"},
                  {JOIN_SINGLE, "a scalar subquery with a condition over both sides"}};
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
        struct plan_node *node = join(beside[i].type, mixed, 1);
        node->as.join->residual = ref(0);
        CHECK_STR(reason_of(node), beside[i].reason);
    }
    CHECK(strstr(sql_of(join(JOIN_MARK, mixed, 1)), "(t0.c0 = ANY (SELECT t2.c0 FROM ") != NULL);
    CHECK(strstr(sql_of(join(JOIN_MARK, mixed, 0)), "EXISTS (SELECT 1 FROM ") != NULL);
    CHECK(strstr(sql_of(join(JOIN_SEMI, mixed, 2)), " SEMI JOIN ") != NULL);
    done();
}

/* DuckDB widens sums of DECIMALs each time it binds them. */
TEST(decimal_arithmetic_is_not_widened_twice)
{
    const struct type *narrow = type_decimal(&arena, 10, 2);
    const struct type *wide = type_decimal(&arena, 11, 2);
    struct expression *leaf = expression_ref(&arena, 0, narrow);
    struct expression cast = {.kind = EXPRESSION_CAST, .type = wide, .n_args = 1, .args = &leaf};
    struct expression *args[] = {&cast, &cast};
    struct expression sum = {.kind = EXPRESSION_FUNCTION, .type = wide, .n_args = 2, .args = args};
    sum.as.function.name = "+";
    CHECK_ERR(unparse_expression(&text, &sum, NULL, NULL), ERR_OK);
    CHECK_STR(text.data, "\"+\"(c0, c0)");
    sum.type = type_decimal(&arena, 20, 2);
    buf_reset(&text);
    CHECK_ERR(unparse_expression(&text, &sum, NULL, NULL), ERR_OK);
    CHECK_STR(text.data, "CAST(\"+\"(CAST(c0 AS DECIMAL(11,2)), CAST(c0 AS DECIMAL(11,2))) AS DECIMAL(20,2))");
    done();
}

/* The two columns of "m", by the first, or one row for each value of it. */
static struct plan_node *some_rows(enum node_kind kind)
{
    struct plan_node *node = arena_zalloc(&arena, sizeof(*node));
    struct plan_node *child = input("m");
    struct order *order = arena_zalloc(&arena, sizeof(*order));
    struct order_key keys[] = {{.expression = ref(0)}};
    struct expression *targets[] = {ref(0)};
    *node = (struct plan_node){.kind = kind, .n_children = 1, .n_columns = 2, .columns = two};
    node->children = arena_copy(&arena, &child, sizeof(struct plan_node *));
    *order = (struct order){.n_keys = 1, .keys = arena_copy(&arena, keys, sizeof(keys))};
    order->limit.count = (struct limit_value){.kind = LIMIT_BY_ROWS, .rows = 7};
    if (kind == NODE_TOP_N) {
        node->as.order = order;
    } else if (kind == NODE_LIMIT) {
        node->as.limit = &order->limit;
    } else {
        node->as.distinct = (struct distinct){
            .is_on = true, .n_targets = 1, .targets = arena_copy(&arena, (void *)targets, sizeof(targets))};
    }
    return node;
}

static struct plan_node *joined_with(enum join_type type, struct plan_node *left)
{
    struct join_condition equal[] = {{ref(0), ref(0), COMPARE_EQUAL}};
    struct plan_node *node = join(type, equal, 1);
    node->children[0] = left;
    return node;
}

/* Filters of the join would get at the rows that these nodes choose from. */
TEST(limits_and_distinct_on_below_a_join_are_entries_of_the_with)
{
    (void)input("m");
    CHECK_STR(
        sql_of(joined_with(JOIN_SEMI, some_rows(NODE_TOP_N))),
        "WITH m3 AS MATERIALIZED (SELECT t1.c0 AS c0, t1.c1 AS c1 FROM (SELECT CAST(t2.c0 AS INTEGER) AS c0, "
        "CAST(t2.c1 AS VARCHAR) AS c1 FROM \"m\" t2) t1 ORDER BY t1.c0 ASC NULLS LAST LIMIT 7) "
        "SELECT t0.c0 AS c0, t0.c1 AS c1 FROM (SELECT t4.c0 AS c0, t4.c1 AS c1 FROM m3 t4) t0 SEMI JOIN "
        "(SELECT CAST(t6.c0 AS INTEGER) AS c0, CAST(t6.c1 AS VARCHAR) AS c1 FROM \"r\" t6) t5 ON (t0.c0 = t5.c0)");
    static const enum join_type types[] = {JOIN_INNER, JOIN_LEFT, JOIN_RIGHT, JOIN_FULL,
                                           JOIN_SEMI,  JOIN_ANTI, JOIN_MARK};
    static const enum node_kind kinds[] = {NODE_TOP_N, NODE_LIMIT, NODE_DISTINCT};
    for (size_t i = 0; i < ARRAY_LEN(types) * ARRAY_LEN(kinds); i++) {
        enum node_kind kind = kinds[i % ARRAY_LEN(kinds)];
        const char *sql =
            sql_of(joined_with(types[i / ARRAY_LEN(kinds)], plan_filter(&arena, some_rows(kind), ref(0))));
        CHECK(strncmp(sql, "WITH m", 6) == 0);
        CHECK(strstr(sql, kind == NODE_DISTINCT ? " AS MATERIALIZED (SELECT DISTINCT ON (" : " LIMIT 7) SELECT ") !=
              NULL);
    }
    struct plan_node *window =
        plan_project(&arena, some_rows(NODE_LIMIT), NULL, 0); /* of which DuckDB may make groups */
    window->kind = NODE_WINDOW;
    window->n_columns = 2;
    CHECK(strstr(sql_of(joined_with(JOIN_SEMI, window)), " LIMIT 7) SELECT ") != NULL);
    done();
}

TEST(limits_where_no_filter_of_a_join_gets_stay_where_they_are)
{
    struct aggregate none = {0};
    CHECK(strncmp(sql_of(some_rows(NODE_TOP_N)), "SELECT ", 7) == 0);
    struct plan_node *top = some_rows(NODE_TOP_N);
    top->children[0] = joined_with(JOIN_SEMI, input("l"));
    CHECK(strstr(sql_of(top), "MATERIALIZED") == NULL);
    struct expression *args[] = {ref(0)};
    struct expression *items[] = {expression_template(&arena, "max(@0)", two[0], args, 1)};
    struct plan_node *one = plan_project(&arena, some_rows(NODE_TOP_N), items, 1); /* a node like it, of one group */
    none.n_aggregates = 1;
    none.aggregates = items;
    one->kind = NODE_AGGREGATE;
    one->as.aggregate = &none;
    struct plan_node *pair = joined_with(JOIN_SEMI, one);
    pair->as.join->n_left = 1;
    pair->n_columns = 1;
    CHECK(strstr(sql_of(pair), "MATERIALIZED") == NULL);
    done();
}

/* What is inside could only stand before the recursion, so it is written as it is rather than refused. */
TEST(limits_inside_a_recursion_stay_where_they_are)
{
    struct plan_node *children[] = {input("m"), joined_with(JOIN_SEMI, some_rows(NODE_TOP_N))};
    struct plan_node recursive = {
        .kind = NODE_RECURSIVE_CTE, .n_children = 2, .children = children, .n_columns = 2, .columns = two};
    const char *sql = sql_of(&recursive);
    CHECK(strncmp(sql, "WITH RECURSIVE r", 16) == 0);
    CHECK(strstr(sql, " LIMIT 7") != NULL);
    CHECK(strstr(sql, "MATERIALIZED") == NULL);
    done();
}

/* The definition of a CTE is such an entry already, and what reads it knows it by then. */
TEST(entries_of_the_with_come_after_those_that_they_read)
{
    struct plan_node *top = some_rows(NODE_TOP_N);
    struct plan_node reference = {.kind = NODE_CTE_REF, .n_columns = 2, .columns = two, .as.cte_ref.id = 3};
    top->children[0] = &reference;
    struct plan_node *children[] = {some_rows(NODE_LIMIT), top};
    struct plan_node cte = {
        .kind = NODE_CTE, .n_children = 2, .children = children, .n_columns = 2, .columns = two, .as.cte.id = 3};
    const char *sql = sql_of(joined_with(JOIN_SEMI, &cte));
    const char *second = strstr(sql, ", m6 AS MATERIALIZED (SELECT ");
    CHECK(strncmp(sql, "WITH m3 AS MATERIALIZED (SELECT ", 32) == 0);
    CHECK(second != NULL);
    CHECK(strstr(second, " FROM m3 ") != NULL);
    CHECK(strstr(strstr(second, "MATERIALIZED") + 1, "MATERIALIZED") == NULL);
    done();
}
