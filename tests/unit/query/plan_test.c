/* The tree: types, constants, expressions, and how they are walked, copied and compared. */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "query/plan.h"
#include "query/plan_read.h"
#include "test.h"

static struct arena arena;
static struct buf text;

/* What was written, and the buffer is empty again. */
static const char *written(void)
{
    const char *copy = arena_strdup(&arena, text.n > 0 ? text.data : "");
    buf_reset(&text);
    return copy;
}

static void done(void)
{
    arena_deinit(&arena);
    buf_deinit(&text);
}

static const char *type_text(const struct type *type)
{
    type_write(&text, type);
    return written();
}

static const char *constant_text(const struct constant *constant)
{
    CHECK(constant_write(&text, constant));
    return written();
}

static const char *integer_text(enum type_id id, int64_t upper, uint64_t lower)
{
    struct constant constant = {.type = type_plain(id), .as.integer = {.upper = upper, .lower = lower}};
    return constant_text(&constant);
}

static const char *small_text(enum type_id id, int64_t value)
{
    return integer_text(id, value < 0 ? -1 : 0, (uint64_t)value);
}

TEST(types_are_written_as_sql)
{
    struct type_field fields[] = {{"a", type_plain(TYPE_BIGINT)}, {"b \"c\"", type_decimal(&arena, 9, 2)}};
    struct type row = {.id = TYPE_STRUCT, .n_fields = 2, .fields = fields};
    struct type list = {.id = TYPE_LIST, .child = &row};
    struct type array = {.id = TYPE_ARRAY, .child = &list, .size = 3};
    struct type map = {.id = TYPE_MAP, .child = &row};
    struct type_field values[] = {{"low", NULL}, {"it's", NULL}};
    struct type level = {.id = TYPE_ENUM, .n_fields = 2, .fields = values};
    struct type json = {.id = TYPE_VARCHAR, .is_json = true};
    CHECK_STR(type_text(type_plain(TYPE_TIMESTAMP_TZ)), "TIMESTAMP WITH TIME ZONE");
    CHECK_STR(type_text(type_plain(TYPE_NULL)), "\"NULL\"");
    CHECK_STR(type_text(&array), "STRUCT(\"a\" BIGINT, \"b \"\"c\"\"\" DECIMAL(9,2))[][3]");
    CHECK_STR(type_text(&map), "MAP(BIGINT, DECIMAL(9,2))");
    CHECK_STR(type_text(&level), "ENUM('low', 'it''s')");
    CHECK_STR(type_text(&json), "JSON");
    CHECK(!type_equal(&json, type_plain(TYPE_VARCHAR)));
    CHECK(type_equal(type_decimal(&arena, 9, 2), fields[1].type));
    CHECK(!type_equal(type_decimal(&arena, 9, 3), fields[1].type));
    done();
}

TEST(a_struct_without_field_names_has_no_sql)
{
    struct type_field fields[] = {{"", type_plain(TYPE_INTEGER)}};
    struct type row = {.id = TYPE_STRUCT, .n_fields = 1, .fields = fields};
    struct type list = {.id = TYPE_LIST, .child = &row};
    struct constant null = {.type = &list, .is_null = true};
    CHECK(!type_has_sql(&list));
    CHECK(!constant_write(&text, &null));
    done();
}

TEST(every_id_in_the_table_is_found_again)
{
    CHECK_INT(type_id_of("HUGEINT"), TYPE_HUGEINT);
    CHECK_INT(type_id_of("TIME WITH TIME ZONE"), TYPE_TIME_TZ);
    CHECK_INT(type_id_of("CHAR"), TYPE_VARCHAR);
    CHECK_INT(type_id_of("POINTER"), TYPE_OTHER);
    CHECK_INT(type_form(TYPE_DECIMAL), FORM_INTEGER);
}

TEST(whole_numbers_have_exactly_their_type)
{
    CHECK_STR(small_text(TYPE_INTEGER, 5), "5");
    CHECK_STR(small_text(TYPE_INTEGER, -5), "CAST('-5' AS INTEGER)");
    CHECK_STR(small_text(TYPE_TINYINT, 5), "CAST('5' AS TINYINT)");
    CHECK_STR(small_text(TYPE_BIGINT, INT64_MIN), "CAST('-9223372036854775808' AS BIGINT)");
    CHECK_STR(integer_text(TYPE_UBIGINT, 0, UINT64_MAX), "CAST('18446744073709551615' AS UBIGINT)");
    CHECK_STR(integer_text(TYPE_HUGEINT, INT64_MIN, 0), "CAST('-170141183460469231731687303715884105728' AS HUGEINT)");
    CHECK_STR(integer_text(TYPE_UHUGEINT, -1, UINT64_MAX),
              "CAST('340282366920938463463374607431768211455' AS UHUGEINT)");
    done();
}

TEST(decimals_keep_their_zeros)
{
    struct constant constant = {.type = type_decimal(&arena, 5, 3), .as.integer = {.lower = 5}};
    CHECK_STR(constant_text(&constant), "CAST('0.005' AS DECIMAL(5,3))");
    constant.as.integer = (struct wide_int){.upper = -1, .lower = (uint64_t)-12345};
    CHECK_STR(constant_text(&constant), "CAST('-12.345' AS DECIMAL(5,3))");
    constant.type = type_decimal(&arena, 5, 0);
    CHECK_STR(constant_text(&constant), "CAST('-12345' AS DECIMAL(5,0))");
    done();
}

TEST(dates_and_times_are_written_as_text)
{
    CHECK_STR(small_text(TYPE_DATE, 0), "CAST('1970-01-01' AS DATE)");
    CHECK_STR(small_text(TYPE_DATE, 11016), "CAST('2000-02-29' AS DATE)");
    CHECK_STR(small_text(TYPE_DATE, -719163), "CAST('0001-12-31 (BC)' AS DATE)");
    CHECK_STR(small_text(TYPE_DATE, INT32_MAX), "CAST('infinity' AS DATE)");
    CHECK_STR(small_text(TYPE_DATE, -INT32_MAX), "CAST('-infinity' AS DATE)");
    CHECK_STR(small_text(TYPE_TIME, 3723000001), "CAST('01:02:03.000001' AS TIME)");
    CHECK_STR(small_text(TYPE_TIMESTAMP, -1), "CAST('1969-12-31 23:59:59.999999' AS TIMESTAMP)");
    CHECK_STR(small_text(TYPE_TIMESTAMP_S, 86400), "CAST('1970-01-02 00:00:00' AS TIMESTAMP_S)");
    CHECK_STR(small_text(TYPE_TIMESTAMP_MS, 1500), "CAST('1970-01-01 00:00:01.500' AS TIMESTAMP_MS)");
    CHECK_STR(small_text(TYPE_TIMESTAMP_NS, 1), "CAST('1970-01-01 00:00:00.000000001' AS TIMESTAMP_NS)");
    CHECK_STR(small_text(TYPE_TIMESTAMP_TZ, 0), "CAST('1970-01-01 00:00:00+00' AS TIMESTAMP WITH TIME ZONE)");
    CHECK_STR(small_text(TYPE_TIMESTAMP, INT64_MAX), "CAST('infinity' AS TIMESTAMP)");
    CHECK_STR(integer_text(TYPE_TIME_TZ, 0, UINT64_C(43200000000) << 24 | (57599 - 19800)),
              "CAST('12:00:00+05:30:00' AS TIME WITH TIME ZONE)");
    CHECK_STR(integer_text(TYPE_UUID, INT64_MIN, 1), "CAST('00000000-0000-0000-0000-000000000001' AS UUID)");
    done();
}

TEST(numbers_read_back_as_the_same)
{
    struct constant constant = {.type = type_plain(TYPE_DOUBLE), .as.number = 0.1};
    CHECK_STR(constant_text(&constant), "CAST('0.1' AS DOUBLE)");
    constant.as.number = (double)NAN;
    CHECK_STR(constant_text(&constant), "CAST('nan' AS DOUBLE)");
    constant.as.number = -(double)INFINITY;
    CHECK_STR(constant_text(&constant), "CAST('-inf' AS DOUBLE)");
    constant.as.number = -0.0;
    CHECK_STR(constant_text(&constant), "CAST('-0.0' AS DOUBLE)");
    CHECK(!constant_equal(&constant, &(struct constant){.type = constant.type, .as.number = 0.0}));
    done();
}

TEST(a_text_may_contain_quotes_and_nuls)
{
    struct constant constant = {.type = type_plain(TYPE_VARCHAR), .as.text = {.bytes = "it's", .n = 4}};
    CHECK_STR(constant_text(&constant), "'it''s'");
    constant.as.text = (struct constant_text){.bytes = "a\0b", .n = 3};
    CHECK_STR(constant_text(&constant), "('a' || chr(0) || 'b')");
    constant.type = type_plain(TYPE_BLOB);
    constant.as.text = (struct constant_text){.bytes = "\\x00", .n = 4};
    CHECK_STR(constant_text(&constant), "CAST('\\x00' AS BLOB)");
    done();
}

TEST(nested_constants_are_written_with_their_types)
{
    struct constant items[] = {{.type = type_plain(TYPE_INTEGER), .as.integer = {.lower = 1}},
                               {.type = type_plain(TYPE_INTEGER), .is_null = true}};
    struct type list = {.id = TYPE_LIST, .child = type_plain(TYPE_INTEGER)};
    struct constant constant = {.type = &list, .as.items = {.items = items, .n = 2}};
    CHECK_STR(constant_text(&constant), "CAST([1, CAST(NULL AS INTEGER)] AS INTEGER[])");
    struct type_field fields[] = {{"a", type_plain(TYPE_INTEGER)}, {"b", type_plain(TYPE_INTEGER)}};
    struct type row = {.id = TYPE_STRUCT, .n_fields = 2, .fields = fields};
    struct constant entry = {.type = &row, .as.items = {.items = items, .n = 2}};
    CHECK_STR(constant_text(&entry), "{'a': 1, 'b': CAST(NULL AS INTEGER)}");
    struct type map = {.id = TYPE_MAP, .child = &row};
    struct constant mapped = {.type = &map, .as.items = {.items = &entry, .n = 1}};
    CHECK_STR(constant_text(&mapped), "CAST(MAP([1], [CAST(NULL AS INTEGER)]) AS MAP(INTEGER, INTEGER))");
    struct type either = {.id = TYPE_UNION, .n_fields = 2, .fields = fields};
    struct constant one = {.type = &either, .as.items = {.items = items, .n = 1, .tag = 1}};
    CHECK_STR(constant_text(&one), "CAST(union_value(\"b\" := 1) AS UNION(\"a\" INTEGER, \"b\" INTEGER))");
    CHECK(constant_equal(&entry, &entry));
    CHECK(!constant_equal(&constant, &one));
    done();
}

static struct expression *sum_of_two(void)
{
    const struct type *type = type_plain(TYPE_INTEGER);
    struct expression *args[] = {expression_ref(&arena, 0, type), expression_ref(&arena, 2, type)};
    return expression_template(&arena, "(@0 + @1)", type, args, 2);
}

TEST(a_copy_shares_nothing_that_can_be_changed)
{
    struct expression *one = sum_of_two();
    struct expression *two = expression_copy(&arena, one);
    CHECK(expression_equal(one, two));
    two->args[1]->as.index = 5;
    CHECK(!expression_equal(one, two));
    CHECK_UINT(one->args[1]->as.index, 2);
    done();
}

TEST(references_can_be_mapped_but_not_those_of_a_lambda)
{
    static const uint32_t map[] = {7, PLAN_NO_COLUMN, 9};
    struct expression *mapped = expression_remap(&arena, sum_of_two(), map, 3);
    CHECK_UINT(mapped->args[0]->as.index, 7);
    CHECK_UINT(mapped->args[1]->as.index, 9);
    struct expression *parts[] = {expression_ref(&arena, 0, type_plain(TYPE_INTEGER)),
                                  expression_ref(&arena, 2, type_plain(TYPE_INTEGER))};
    struct expression lambda = {
        .kind = EXPRESSION_LAMBDA, .type = type_plain(TYPE_INTEGER), .n_args = 2, .args = parts};
    mapped = expression_remap(&arena, &lambda, map, 3);
    CHECK_UINT(mapped->args[0]->as.index, 0);
    CHECK_UINT(mapped->args[1]->as.index, 9);
    CHECK(expression_contains(mapped, EXPRESSION_REF));
    CHECK(!expression_contains(mapped, EXPRESSION_WINDOW));
    done();
}

TEST(volatile_functions_are_found_inside_of_others)
{
    struct expression call = {.kind = EXPRESSION_FUNCTION, .type = type_plain(TYPE_DOUBLE)};
    call.as.function.name = "random";
    struct expression *args[] = {&call};
    struct expression *outer = expression_template(&arena, "(@0)", call.type, args, 1);
    CHECK(expression_is_volatile(outer));
    call.as.function.name = "sin";
    CHECK(!expression_is_volatile(outer));
    struct plan_node *node = plan_project(&arena, plan_input(&arena, "m", &call.type, 1), &outer, 1);
    CHECK(!plan_node_is_volatile(node));
    call.as.function.name = "uuid";
    CHECK(plan_node_is_volatile(node));
    done();
}

static bool count_node(struct plan_node *node, void *context)
{
    UNUSED(node);
    (*(int *)context)++;
    return true;
}

TEST(nodes_can_be_made_extended_and_given_other_children)
{
    const struct type *types[] = {type_plain(TYPE_INTEGER), type_plain(TYPE_VARCHAR), type_plain(TYPE_INTEGER)};
    struct expression *sum = sum_of_two();
    struct plan_node *input = plan_input(&arena, "m", types, 3);
    struct plan_node *node = plan_extend(&arena, input, &sum, 1);
    CHECK_UINT(node->n_columns, 4);
    CHECK(node->columns[1] == types[1]);
    CHECK(node->columns[3] == types[0]);
    struct plan_node *filter = plan_filter(&arena, node, expression_template(&arena, "true", types[0], NULL, 0));
    struct plan_node *other = plan_node_with_child(&arena, filter, plan_input(&arena, "n", types, 3));
    CHECK(filter->children[0] == node);
    CHECK(other->children[0]->kind == NODE_INPUT);
    int n = 0;
    plan_visit(filter, count_node, &n);
    CHECK_INT(n, 3);
    done();
}

static const char *reason(const char *json, enum err expected)
{
    static struct error e;
    struct plan_node *root = NULL;
    e = (struct error){0};
    CHECK_ERR(plan_read(json, strlen(json), &arena, &root, &e), expected);
    CHECK(root == NULL);
    return e.message;
}

TEST(what_is_not_known_is_a_reason_and_not_a_guess)
{
    CHECK_STR(reason("{\"error\":true,\"error_message\":\"no\"}", ERR_PRECONDITION),
              "DuckDB cannot write the plan: no");
    CHECK_STR(reason("{\"error\":false,\"plans\":[]}", ERR_PRECONDITION), "0 statements instead of one");
    CHECK_STR(reason("{\"error\":false,\"plans\":[{\"type\":\"LOGICAL_NEWS\",\"children\":[]}]}", ERR_PRECONDITION),
              "the operator LOGICAL_NEWS");
    CHECK_STR(reason("{\"error\":false,\"plans\":[{\"type\":\"LOGICAL_LIMIT\",\"children\":[]}]}", ERR_INVALID),
              "the plan is not as expected: the children of a node");
    CHECK_STR(reason("{\"error\":false,\"plans\":[{\"type\":\"LOGICAL_EMPTY_RESULT\",\"children\":[],\"bindings\":[],"
                     "\"return_types\":[{\"id\":\"POINTER\",\"type_info\":null}]}]}",
                     ERR_PRECONDITION),
              "the type POINTER");
    CHECK(strstr(reason("nonsense", ERR_INVALID), "at byte 0") != NULL);
    done();
}

/* Joins as DuckDB writes them: the left child has one INTEGER, the right one a VARCHAR and a BIGINT. */

#define TYPE_JSON(id) "{\"id\":\"" id "\",\"type_info\":null}"
#define REF_JSON(id, index)                                                                                            \
    "{\"expression_class\":\"BOUND_REF\",\"type\":\"BOUND_REF\",\"alias\":\"\",\"return_type\":" TYPE_JSON(            \
        id) ",\"index\":" index "}"
#define LEFT_JSON                                                                                                      \
    "{\"type\":\"LOGICAL_EMPTY_RESULT\",\"children\":[],\"bindings\":[{\"table_index\":1,\"column_index\":0}],"        \
    "\"return_types\":[" TYPE_JSON("INTEGER") "]}"
#define RIGHT_JSON                                                                                                     \
    "{\"type\":\"LOGICAL_EMPTY_RESULT\",\"children\":[],\"bindings\":[{\"table_index\":2,\"column_index\":0},"         \
    "{\"table_index\":2,\"column_index\":1}],\"return_types\":[" TYPE_JSON("VARCHAR") "," TYPE_JSON("BIGINT") "]}"
#define DELIM_GET_JSON                                                                                                 \
    "{\"type\":\"LOGICAL_DELIM_GET\",\"children\":[],\"table_index\":3,\"chunk_types\":[" TYPE_JSON("BIGINT") "]}"
#define LESS_JSON                                                                                                      \
    "[{\"left\":" REF_JSON("INTEGER", "0") ",\"right\":" REF_JSON("BIGINT",                                            \
                                                                  "1") ",\"comparison\":\"COMPARE_LESSTHAN\"}]"
#define JOIN_JSON(node, left, right, type, maps, conditions, keys)                                                     \
    "{\"error\":false,\"plans\":[{\"type\":\"" node "\",\"children\":[" left "," right "],\"join_type\":\"" type       \
    "\",\"mark_index\":0," maps ",\"conditions\":" conditions                                                          \
    ",\"mark_types\":[],\"duplicate_eliminated_columns\":[" keys "],\"delim_flipped\":true,\"predicate\":null}]}"
#define SECOND_RIGHT "\"left_projection_map\":[],\"right_projection_map\":[1]"
#define ALL_COLUMNS "\"left_projection_map\":[],\"right_projection_map\":[]"

#define PLAN_JSON(node, columns, expressions)                                                                          \
    "{\"error\":false,\"plans\":[{\"type\":\"" node "\",\"children\":[" LEFT_JSON "]," columns                         \
    ",\"expressions\":[" expressions "]}]}"
#define GROUPS_JSON                                                                                                    \
    "\"groups\":[],\"grouping_sets\":[],\"grouping_functions\":[],\"group_index\":4,\"aggregate_index\":5,\"groupings_index\":6"
#define DATE_JSON(days)                                                                                                   \
    "{\"expression_class\":\"BOUND_CONSTANT\",\"type\":\"VALUE_CONSTANT\",\"alias\":\"\",\"value\":{\"type\":" TYPE_JSON( \
        "DATE") ",\"is_null\":false,\"value\":" days "}}"

TEST(calls_and_values_that_cannot_be_are_refused)
{
    CHECK_STR(reason(PLAN_JSON("LOGICAL_AGGREGATE_AND_GROUP_BY", GROUPS_JSON, REF_JSON("INTEGER", "0")), ERR_INVALID),
              "the plan is not as expected: the aggregates of a node");
    CHECK_STR(reason(PLAN_JSON("LOGICAL_WINDOW", "\"window_index\":4", REF_JSON("INTEGER", "0")), ERR_INVALID),
              "the plan is not as expected: the expressions of a window or of UNNEST");
    CHECK_STR(reason(PLAN_JSON("LOGICAL_WINDOW", "\"window_index\":4", ""), ERR_INVALID),
              "the plan is not as expected: a node without expressions");
    CHECK_STR(
        reason(PLAN_JSON("LOGICAL_PROJECTION", "\"table_index\":4", DATE_JSON("9223372036854775807")), ERR_INVALID),
        "the plan is not as expected: a date");
    CHECK_STR(reason(PLAN_JSON("LOGICAL_PROJECTION", "\"table_index\":4", DATE_JSON("2147483648")), ERR_INVALID),
              "the plan is not as expected: a date");
    done();
}

static struct plan_node *read_join(const char *json)
{
    struct plan_node *root = NULL;
    struct error e = {0};
    enum err err = plan_read(json, strlen(json), &arena, &root, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    CHECK_INT(root->kind, NODE_JOIN);
    return root;
}

/* The sides have changed places, and everything that belongs to them. */
static void check_turned(const struct plan_node *node, enum join_type type)
{
    const struct join *join = node->as.join;
    CHECK_INT(join->type, type);
    CHECK_UINT(node->children[0]->n_columns, 2);
    CHECK_UINT(node->children[1]->n_columns, 1);
    CHECK_UINT(join->n_left, 1);
    CHECK_UINT(join->left_map[0], 1);
    CHECK_UINT(join->n_right, 1);
    CHECK_UINT(join->right_map[0], 0);
    CHECK_UINT(node->n_columns, 1);
    CHECK(type_equal(node->columns[0], type_plain(TYPE_BIGINT)));
    CHECK_UINT(join->n_conditions, 1);
    CHECK_UINT(join->conditions[0].left->as.index, 1);
    CHECK(type_equal(join->conditions[0].left->type, type_plain(TYPE_BIGINT)));
    CHECK_UINT(join->conditions[0].right->as.index, 0);
    CHECK(type_equal(join->conditions[0].right->type, type_plain(TYPE_INTEGER)));
    CHECK_INT(join->conditions[0].comparison, COMPARE_GREATER); /* a < b is b > a */
}

TEST(a_right_semi_or_anti_join_is_a_plain_one_with_its_sides_exchanged)
{
    check_turned(read_join(JOIN_JSON("LOGICAL_COMPARISON_JOIN", LEFT_JSON, RIGHT_JSON, "RIGHT_SEMI", SECOND_RIGHT,
                                     LESS_JSON, "")),
                 JOIN_SEMI);
    check_turned(read_join(JOIN_JSON("LOGICAL_COMPARISON_JOIN", LEFT_JSON, RIGHT_JSON, "RIGHT_ANTI", SECOND_RIGHT,
                                     LESS_JSON, "")),
                 JOIN_ANTI);
    done();
}

TEST(the_keys_of_a_flipped_delim_join_are_those_of_its_right_side)
{
    struct plan_node *node = read_join(JOIN_JSON("LOGICAL_DELIM_JOIN", DELIM_GET_JSON, RIGHT_JSON, "INNER", ALL_COLUMNS,
                                                 "[]", REF_JSON("BIGINT", "1")));
    const struct join *join = node->as.join;
    CHECK(join->is_delim);
    CHECK_UINT(join->delim_side, 1);
    CHECK_UINT(join->n_keys, 1);
    CHECK_UINT(join->keys[0]->as.index, 1); /* which the left side does not have */
    CHECK_INT(node->children[0]->kind, NODE_DELIM_GET);
    CHECK_UINT(node->children[0]->as.delim_get.delim_id, join->delim_id);
    /* With the sides exchanged, they are those of the left. */
    node = read_join(JOIN_JSON("LOGICAL_DELIM_JOIN", DELIM_GET_JSON, RIGHT_JSON, "RIGHT_SEMI", ALL_COLUMNS, "[]",
                               REF_JSON("BIGINT", "1")));
    CHECK_INT(node->as.join->type, JOIN_SEMI);
    CHECK_UINT(node->as.join->delim_side, 0);
    CHECK_UINT(node->children[0]->n_columns, 2);
    CHECK_INT(node->children[1]->kind, NODE_DELIM_GET);
    done();
}
