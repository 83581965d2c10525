#include "query/physical.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "test.h"

static const char example[] =
    "{ \"stages\": ["
    "{ \"id\": 0, \"sql\": \"select k, sum(v) s from read_parquet({{split}}) group by k\","
    "  \"splits\": [ {\"file\": \"a.parquet\"}, {\"file\": \"b.parquet\", \"first_row\": 0, \"last_row\": 122879} ],"
    "  \"deterministic\": true, \"output\": { \"exchange\": \"hash\", \"keys\": [\"k\"], \"partitions\": 4 } },"
    "{ \"id\": 1, \"inputs\": { \"m\": 0 }, \"sql\": \"select k, sum(s) s from m group by k\","
    "  \"custom\": { \"op\": \"add_five\", \"config\": {\"a\": [1, null, \"x\"]} }, \"output\": { \"exchange\": \"result\" } } ] }";

struct reading {
    struct arena arena;
    struct physical_plan *plan;
    struct buf errors;
    struct error e;
    enum err err;
};

static struct reading read_text(const char *text)
{
    struct reading r = {0};
    r.err = physical_read(text, strlen(text), &r.arena, &r.plan, &r.errors, &r.e);
    return r;
}

static void reading_deinit(struct reading *r)
{
    buf_deinit(&r->errors);
    arena_deinit(&r->arena);
}

static void check_task(const struct physical_plan *plan, uint32_t stage, uint32_t task, const char *expected)
{
    struct buf sql = {0};
    struct error e = {0};
    CHECK_ERR(physical_task_sql(&sql, plan, stage, task, &e), ERR_OK);
    CHECK_STR(sql.data, expected);
    buf_deinit(&sql);
}

TEST(the_example_of_the_documentation_is_read)
{
    struct reading r = read_text(example);
    CHECK_STR(r.e.message, "");
    CHECK_ERR(r.err, ERR_OK);
    CHECK_UINT(r.plan->n_stages, 2);
    CHECK_UINT(physical_tasks(r.plan, 0), 2);
    CHECK_UINT(physical_tasks(r.plan, 1), 4);
    CHECK_STR(physical_required_op(&r.plan->stages[1]), "add_five");
    CHECK_STR(r.plan->stages[1].custom.config_json, "{\"a\":[1,null,\"x\"]}");
    CHECK(physical_required_op(&r.plan->stages[0]) == NULL);
    check_task(r.plan, 0, 0,
               "SELECT *, CAST((hash(k) >> 32) % 4 AS INTEGER) AS capstan_partition FROM (select k, sum(v) s from "
               "read_parquet('a.parquet') group by k\n)");
    check_task(r.plan, 0, 1,
               "SELECT *, CAST((hash(k) >> 32) % 4 AS INTEGER) AS capstan_partition FROM (select k, sum(v) s from "
               "(SELECT * EXCLUDE (file_row_number) FROM read_parquet('b.parquet', file_row_number = true) WHERE "
               "(file_row_number <= 122879)) group by k\n)");
    check_task(r.plan, 1, 3, "select k, sum(s) s from m group by k");
    reading_deinit(&r);
}

TEST(what_is_written_is_read_as_the_same)
{
    struct reading r = read_text(example);
    struct buf once = {0};
    struct buf twice = {0};
    CHECK_ERR(r.err, ERR_OK);
    physical_write(&once, r.plan);
    struct reading again = read_text(once.data);
    CHECK_ERR(again.err, ERR_OK);
    physical_write(&twice, again.plan);
    CHECK_STR(twice.data, once.data);
    buf_deinit(&once);
    buf_deinit(&twice);
    reading_deinit(&again);
    reading_deinit(&r);
}

/* A plan of one stage with that SQL, as it stands in JSON. */
static struct reading read_sql(const char *sql)
{
    char text[400];
    snprintf(text, sizeof text, "{\"stages\":[{\"id\":0,\"sql\":\"%s\",\"output\":{\"exchange\":\"result\"}}]}", sql);
    return read_text(text);
}

TEST(files_that_the_sql_names_are_a_comment_at_its_end)
{
    struct reading r = read_sql("SELECT 1 /* mine */");
    CHECK_STR(r.plan->stages[0].sql, "SELECT 1 /* mine */");
    CHECK_UINT(r.plan->stages[0].n_files, 0);
    struct physical_file files[] = {{"/a'b\"/*x*/ {{task}}.parquet", 7, -5}, {"c", 0, 1234567890123}};
    r.plan->stages[0].files = files;
    r.plan->stages[0].n_files = 2;
    struct buf text = {0};
    physical_write(&text, r.plan);
    struct reading again = read_text(text.data);
    CHECK_STR(again.e.message, "");
    CHECK_STR(again.plan->stages[0].sql, "SELECT 1 /* mine */");
    CHECK_UINT(again.plan->stages[0].n_files, 2);
    CHECK_STR(again.plan->stages[0].files[0].path, files[0].path);
    CHECK_UINT(again.plan->stages[0].files[0].bytes, 7);
    CHECK_INT(again.plan->stages[0].files[0].mtime_ms, -5);
    CHECK_STR(again.plan->stages[0].files[1].path, "c");
    CHECK_INT(again.plan->stages[0].files[1].mtime_ms, 1234567890123);
    /* One that knows nothing of it has one comment more, whatever the names. */
    const char *comment = strstr(text.data, "/* files: ");
    CHECK(comment != NULL && strstr(comment + 2, "/*") == NULL);
    CHECK(strstr(comment, "*/\",") == strstr(comment, "*/"));
    buf_deinit(&text);
    reading_deinit(&again);
    reading_deinit(&r);
}

TEST(a_comment_of_the_users_own_stays_what_it_is)
{
    static const struct {
        const char *sql; /* as in JSON */
        uint32_t n_files;
        const char *expected; /* of the SQL */
    } cases[] = {
        {"s /* files: [] */", 0, "s"},
        {"s /* files: [[\\\"a\\\",1,2]] */", 1, "s"},
        {"s /* files: [[\\\"a\\\",1,2]] */ ", 0, "s /* files: [[\"a\",1,2]] */ "}, /* not at the end */
        {" /* files: */", 0, " /* files: */"},
        {" /* files: [] */", 0, " /* files: [] */"}, /* no SQL would be left */
        {"s /* files: orders, lines */", 0, "s /* files: orders, lines */"},
        {"s || ' /* files: ' || x /* y */", 0, "s || ' /* files: ' || x /* y */"},
        {"s /* files: [[\\\"a\\\",1]] */", 0, "s /* files: [[\"a\",1]] */"},
        {"s /* files: [[\\\"a\\\",-1,2]] */", 0, "s /* files: [[\"a\",-1,2]] */"},
        {"s /* files: [[\\\"\\\",1,2]] */", 0, "s /* files: [[\"\",1,2]] */"},
        {"s /* files: [[\\\"a\\\",1,2.5]] */", 0, "s /* files: [[\"a\",1,2.5]] */"},
        {"s /* files: [[\\\"a\\\",1,2] */", 0, "s /* files: [[\"a\",1,2] */"},
        {"s /* files: {} */", 0, "s /* files: {} */"},
        {"s /* files: [7] */", 0, "s /* files: [7] */"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reading r = read_sql(cases[i].sql);
        CHECK_STR(r.e.message, "");
        CHECK_STR(r.plan->stages[0].sql, cases[i].expected);
        CHECK_UINT(r.plan->stages[0].n_files, cases[i].n_files);
        reading_deinit(&r);
    }
}

TEST(files_without_room_in_the_sql_are_left_out)
{
    struct reading r = read_sql("s");
    struct physical_file file = {"a", 7, 5};
    struct buf sql = {0};
    struct buf text = {0};
    while (sql.n < LIMIT_SQL_BYTES - 10) {
        buf_char(&sql, 'x');
    }
    r.plan->stages[0].sql = sql.data;
    r.plan->stages[0].files = &file;
    r.plan->stages[0].n_files = 1;
    physical_write(&text, r.plan);
    struct reading again = read_text(text.data);
    CHECK_STR(again.e.message, "");
    CHECK_UINT(again.plan->stages[0].n_files, 0);
    buf_deinit(&sql);
    buf_deinit(&text);
    reading_deinit(&again);
    reading_deinit(&r);
}

TEST(sizes_of_the_plan_are_kept_and_checked)
{
    static const char stage[] = "\"stages\":[{\"id\":0,\"sql\":\"s\",\"output\":{\"exchange\":\"result\"}}]";
    static const struct {
        const char *sizes;
        const char *error;
    } cases[] = {
        {",\"tail_bytes\":4096,\"partition_bytes\":9007199254740991", ""},
        {",\"partition_bytes\":-1", "\"partition_bytes\" must be a whole number"},
        {",\"partition_bytes\":\"64MB\"", "\"partition_bytes\" must be a whole number"},
        {",\"partition_bytes\":9007199254740992", "\"partition_bytes\" must be a whole number"},
        {",\"tail_bytes\":1.5", "\"tail_bytes\" must be a whole number"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[300];
        struct buf again = {0};
        snprintf(text, sizeof text, "{%s%s}", stage, cases[i].sizes);
        struct reading r = read_text(text);
        CHECK_STR(r.e.message, cases[i].error);
        if (r.err == ERR_OK) {
            physical_write(&again, r.plan);
            CHECK(strstr(again.data, cases[i].sizes) != NULL);
            CHECK_UINT(r.plan->partition_bytes, LIMIT_QUANTITY);
        }
        buf_deinit(&again);
        reading_deinit(&r);
    }
    struct reading r = read_text(example);
    CHECK_UINT(r.plan->partition_bytes, 0);
    reading_deinit(&r);
}

/* A plan that is right but for `stage`, the second of three. */
static const char *plan_with(char *out, size_t n, const char *stage)
{
    snprintf(
        out, n,
        "{\"stages\":[{\"id\":0,\"sql\":\"x\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":2}},"
        "%s,{\"id\":9,\"sql\":\"y\",\"inputs\":{\"a\":1},\"output\":{\"exchange\":\"result\"}}]}",
        stage);
    return out;
}

TEST(each_mistake_is_named)
{
    static const struct {
        const char *stage;
        const char *error;
    } cases[] = {
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":7},\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: input \"a\" names stage 7, which there is not"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0,\"b\":1},\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: it reads, over others or by itself, its own rows"},
        {"{\"id\":0,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"gather\"}}",
         "stage 0: the id occurs twice"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":9},\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: input \"a\" reads stage 9, whose rows are the result"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"shuffle\"}}",
         "stage 1: \"output\" needs an \"exchange\": hash, range, forward, broadcast, gather or result"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"hash\",\"keys\":[],\"partitions\":2}}",
         "stage 1: a hash exchange needs \"keys\", a list of 1 to 1000 texts"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"hash\",\"keys\":[5],\"partitions\":2}}",
         "stage 1: a key must be a text that is not empty"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":0}}",
         "stage 1: \"partitions\" must be 1 at least"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"gather\",\"keys\":[\"k\"]}}",
         "stage 1: a gather exchange has no \"keys\""},
        {"{\"id\":1,\"sql\":\"\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: \"sql\" must be a text that is not empty"},
        {"{\"id\":1,\"sql\":\"s\",\"input\":{\"a\":0},\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: it has an unknown member \"input\""},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"splits\":[{\"file\":\"f\"}],\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: it has splits, and reads stage 0 by partition: one task per what?"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"result\"}}",
         "stage 9: input \"a\" reads stage 1, whose rows are the result"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"range\",\"keys\":[\"k\"],\"partitions\":2,"
         "\"bounds\":\"b\"}}",
         "stage 1: the \"bounds\" of its range exchange must be an input that is read as a whole"},
        {"{\"id\":1,\"sql\":\"s\",\"output\":{\"exchange\":\"gather\"}}", "stage 0: nobody reads it"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0,\"A\":0},\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: two inputs are called \"A\""},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"groups\":[[0,0]],\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: \"groups\" must take up all partitions of the inputs"},
        {"{\"id\":1,\"sql\":\"s\",\"inputs\":{\"a\":0},\"choice\":{\"small\":0,\"large\":0,\"bytes\":5},"
         "\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: a choice is between two inputs that are read by partition"},
        {"{\"id\":1,\"sql\":\"s\",\"splits\":[{\"file\":\"f\",\"first_row\":5,\"last_row\":4}],\"inputs\":{\"a\":{\"stage\":0,"
         "\"read\":\"all\"}},\"output\":{\"exchange\":\"gather\"}}",
         "stage 1: a split has \"first_row\" and \"last_row\", in that order, or none of them"},
        {"7", "a stage must be an object with an \"id\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[2000];
        struct reading r = read_text(plan_with(text, sizeof text, cases[i].stage));
        CHECK_ERR(r.err, ERR_INVALID);
        CHECK(r.plan == NULL);
        if (strstr(r.errors.data, cases[i].error) == NULL) {
            CHECK_STR(r.errors.data, cases[i].error);
        }
        reading_deinit(&r);
    }
}

TEST(all_mistakes_are_listed_at_once)
{
    struct reading r =
        read_text("{\"stages\":[{\"id\":1,\"sql\":\"\",\"x\":1,\"output\":{\"exchange\":\"gather\",\"keys\":[]}},"
                  "{\"id\":1,\"sql\":\"a\",\"inputs\":{\"t\":5},\"output\":{\"exchange\":\"result\"}}]}");
    CHECK_ERR(r.err, ERR_INVALID);
    CHECK_STR(r.errors.data, "stage 1: it has an unknown member \"x\"\n"
                             "stage 1: \"sql\" must be a text that is not empty\n"
                             "stage 1: a gather exchange has no \"keys\"\n"
                             "stage 1: the id occurs twice\n"
                             "stage 1: input \"t\" names stage 5, which there is not\n"
                             "stage 1: nobody reads it");
    CHECK_STR(r.e.message, "stage 1: it has an unknown member \"x\" (and more is wrong)");
    reading_deinit(&r);
}

/* What is wrong with a stage by itself does not hide what is wrong between others, nor does it show twice. */
TEST(mistakes_of_stages_and_between_them_are_listed_at_once)
{
    struct reading r = read_text(
        "{\"stages\":[{\"id\":0,\"sql\":\"a\",\"output\":{\"exchange\":\"nowhere\"}},"
        "{\"id\":1,\"sql\":\"b\",\"inputs\":{\"x\":2},\"output\":{\"exchange\":\"gather\"}},"
        "{\"id\":2,\"sql\":\"c\",\"inputs\":{\"x\":1},\"output\":{\"exchange\":\"gather\"}},"
        "{\"id\":3,\"sql\":\"d\",\"output\":{\"exchange\":\"gather\"}},"
        "{\"id\":4,\"sql\":\"e\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":2}},"
        "{\"id\":5,\"sql\":\"f\",\"inputs\":{\"x\":4},\"splits\":[{\"file\":\"f\"}],\"output\":{\"exchange\":\"result\"}},"
        "{\"id\":6,\"sql\":\"g\",\"inputs\":{\"x\":0,\"y\":4},\"output\":{\"exchange\":\"range\",\"keys\":[\"k\"],"
        "\"partitions\":2,\"bounds\":\"x\"}},"
        "{\"id\":7,\"sql\":\"h\",\"inputs\":{\"x\":6,\"y\":8},\"output\":{\"exchange\":\"result\"}},"
        "{\"id\":9,\"sql\":\"i\",\"inputs\":{\"y\":4},\"output\":{\"exchange\":\"range\",\"keys\":[\"k\"],"
        "\"partitions\":2,\"bounds\":\"y\"}}]}");
    CHECK_STR(r.errors.data,
              "stage 0: \"output\" needs an \"exchange\": hash, range, forward, broadcast, gather or result\n"
              "stage 7: input \"y\" names stage 8, which there is not\n"
              "stage 3: nobody reads it\n"
              "stage 9: nobody reads it\n"
              "exactly one stage must have the exchange \"result\", 2 have\n"
              "stage 5: it has splits, and reads stage 4 by partition: one task per what?\n"
              "stage 9: the \"bounds\" of its range exchange must be an input that is read as a whole\n"
              "stage 1: it reads, over others or by itself, its own rows\n"
              "stage 2: it reads, over others or by itself, its own rows");
    reading_deinit(&r);
    /* Whom a stage reads is not known: so nobody can say who is not read, or how many tasks it has. */
    r = read_text(
        "{\"stages\":[{\"id\":0,\"sql\":\"a\",\"output\":{\"exchange\":\"gather\"}},"
        "{\"id\":1,\"sql\":\"b\",\"inputs\":{\"x\":\"0\"},\"groups\":[[0,0]],\"output\":{\"exchange\":\"result\"}}]}");
    CHECK_STR(r.errors.data, "stage 1: an input's stage must be a whole number from 0 to 4294967294");
    reading_deinit(&r);
}

TEST(stages_are_sorted_so_that_inputs_come_first)
{
    struct reading r =
        read_text("{\"stages\":[{\"id\":3,\"sql\":\"a\",\"inputs\":{\"t\":8},\"output\":{\"exchange\":\"result\"}},"
                  "{\"id\":8,\"sql\":\"b\",\"output\":{\"exchange\":\"gather\"}}]}");
    CHECK_STR(r.e.message, "");
    CHECK_UINT(r.plan->stages[0].id, 8);
    CHECK_UINT(r.plan->stages[1].id, 3);
    CHECK_UINT(r.plan->stages[1].inputs[0].stage, 0);
    CHECK(r.plan->stages[1].inputs[0].is_whole);
    reading_deinit(&r);
}

TEST(what_is_not_json_or_too_large_is_refused)
{
    struct reading r = read_text("{\"stages\":[");
    CHECK_ERR(r.err, ERR_INVALID);
    CHECK(strncmp(r.errors.data, "the plan is not JSON", 20) == 0);
    reading_deinit(&r);
    r = read_text("[]");
    CHECK_STR(r.errors.data, "a plan must be an object with \"stages\", a list of 1 to 1000");
    reading_deinit(&r);
    struct buf many = {0};
    for (int i = 0; i <= LIMIT_PLAN_CONTAINERS; i++) {
        buf_char(&many, '[');
    }
    r = read_text(many.data);
    CHECK(strncmp(r.errors.data, "the plan is too large", 21) == 0);
    reading_deinit(&r);
    buf_deinit(&many);
}

static struct physical_plan one_stage(struct physical_stage *stage, const char *sql)
{
    *stage = (struct physical_stage){
        .sql = sql, .what = "", .job_stage = PHYSICAL_NOT_ADDED, .output = {.exchange = EXCHANGE_RESULT}};
    return (struct physical_plan){.n_stages = 1, .stages = stage};
}

TEST(placeholders_inside_of_quotes_and_comments_stay)
{
    struct physical_stage stage;
    struct physical_plan plan = one_stage(
        &stage, "select {{task}}, '{{task}} ''{{task}}', \"{{task}}\", e'\\'{{task}}', $x$ {{task}} $x$, $$'$$ "
                "-- {{task}} '\n, {{task}} /* {{task}} */");
    check_task(&plan, 0, 0,
               "select 0, '{{task}} ''{{task}}', \"{{task}}\", e'\\'{{task}}', $x$ {{task}} $x$, $$'$$ "
               "-- {{task}} '\n, 0 /* {{task}} */");
}

TEST(a_scan_that_the_split_is_not_for_yields_no_rows)
{
    struct physical_stage stage;
    struct physical_plan plan =
        one_stage(&stage, "select * from read_parquet({{split}}) a where {{rows:a.n}} union all select * from "
                          "read_parquet({{split:1}}) b where {{rows:1:b.n}}, {{file_index:1}}");
    struct physical_split splits[] = {{.file = "o'x"},
                                      {.file = "y", .scan = 1, .file_index = 4, .has_rows = true, .last_row = 9}};
    stage.splits = splits;
    stage.n_splits = 2;
    check_task(
        &plan, 0, 0,
        "select * from read_parquet('o''x') a where true union all select * from read_parquet('y') b where false, "
        "4");
    check_task(
        &plan, 0, 1,
        "select * from read_parquet('o''x') a where false union all select * from read_parquet('y') b where (b.n "
        "<= 9), 4");
}

TEST(a_task_reads_a_chain_of_splits)
{
    struct physical_stage stage;
    struct physical_plan plan =
        one_stage(&stage, "select x from read_parquet({{split}}, hive_partitioning = f(1, ')')) t where {{rows:t.n}}");
    struct physical_split splits[] = {
        {.file = "a", .has_rows = true, .first_row = 5, .last_row = 9, .is_continued = true},
        {.file = "b", .is_continued = true},
        {.file = "c"},
        {.file = "d", .has_rows = true, .last_row = 3},
    };
    const struct physical_split *first = NULL;
    stage.splits = splits;
    stage.n_splits = 4;
    CHECK_UINT(physical_tasks(&plan, 0), 2);
    CHECK_UINT(physical_task_splits(&stage, 0, &first), 3);
    CHECK(first == &splits[0]);
    CHECK_UINT(physical_task_splits(&stage, 1, &first), 1);
    CHECK(first == &splits[3]);
    check_task(&plan, 0, 0,
               "select x from (SELECT *, file_row_number FROM read_parquet('a', hive_partitioning = f(1, ')')) WHERE "
               "file_row_number BETWEEN 5 AND 9 UNION ALL SELECT *, file_row_number FROM read_parquet(['b', 'c'], "
               "hive_partitioning = f(1, ')'))) t where true");
    check_task(&plan, 0, 1, "select x from read_parquet('d', hive_partitioning = f(1, ')')) t where (t.n <= 3)");
}

/* A short text may name many files often. */
TEST(what_a_task_would_have_too_much_of_is_refused)
{
    enum { N = 10000 };
    struct physical_stage stage;
    struct buf text = {0};
    buf_text(&text, "SELECT 1");
    for (int i = 0; i < 4000; i++) {
        buf_text(&text, ", (FROM read_parquet({{split}}))");
    }
    struct physical_plan plan = one_stage(&stage, text.data);
    struct physical_split *splits = mem_calloc(N, sizeof *splits);
    stage.splits = splits;
    stage.n_splits = N;
    for (int i = 0; i < N; i++) {
        splits[i] = (struct physical_split){.file = "a", .is_continued = i + 1 < N};
    }
    static const char expected[] = "stage 0: the SQL of a task is larger than 16777216 bytes with its splits filled in";
    struct buf sql = {0};
    struct error e = {0};
    for (int i = 0; i < 2; i++) {
        CHECK_ERR(physical_task_sql(&sql, &plan, 0, 0, &e), ERR_INVALID);
        CHECK_STR(e.message, expected);
        CHECK_UINT(sql.n, 0);
        for (int k = 0; k < N; k++) {
            splits[k].has_rows = true; /* one after the other instead of all in one list */
        }
    }
    buf_reset(&text);
    for (int i = 0; i < 4000; i++) {
        buf_text(&text, "SELECT {{file_index:7}} ");
    }
    stage.sql = text.data;
    CHECK_ERR(physical_task_sql(&sql, &plan, 0, 0, &e), ERR_INVALID);
    CHECK_STR(e.message, expected);
    buf_deinit(&sql);
    buf_deinit(&text);
    mem_free(splits);
}

TEST(a_plan_of_a_client_whose_sql_would_be_too_large_is_refused)
{
    struct buf text = {0};
    struct reading r = {0};
    buf_text(&text, "{\"stages\":[");
    for (int i = 0; i < 30; i++) {
        buf_format(&text, "{\"id\":%d,%s\"sql\":\"SELECT 1", i, i > 0 ? "\"inputs\":{\"m\":0}," : "");
        for (int k = 0; k < 2000; k++) {
            buf_text(&text, ", (FROM read_parquet({{split}}))");
        }
        buf_text(&text, "\",\"splits\":[{\"file\":\"a\"}");
        for (int k = 0; k < 3000; k++) {
            buf_text(&text, ",{\"file\":\"a\",\"and_next\":true}");
        }
        buf_format(&text, ",{\"file\":\"a\"}],\"output\":{\"exchange\":\"%s\"}}%s", i < 29 ? "gather" : "result",
                   i < 29 ? "," : "]}");
    }
    CHECK_ERR(physical_read_foreign(text.data, text.n, &r.arena, &r.plan, &r.errors, &r.e), ERR_INVALID);
    CHECK(strstr(r.errors.data, "the SQL of a task is larger than 16777216 bytes with its splits filled in") != NULL);
    size_t n = 0;
    for (const char *at = r.errors.data; (at = strstr(at, "filled in")) != NULL; at++) {
        n++;
    }
    CHECK_UINT(n, 8); /* after that nobody looks */
    buf_deinit(&text);
    reading_deinit(&r);
}

TEST(placeholders_that_do_not_end_are_looked_for_once)
{
    struct physical_stage stage;
    struct buf text = {0};
    struct buf sql = {0};
    buf_text(&text, "SELECT ");
    for (int i = 0; i < 1000000; i++) {
        buf_text(&text, "{{");
    }
    struct physical_plan plan = one_stage(&stage, text.data);
    CHECK_ERR(physical_task_sql(&sql, &plan, 0, 0, NULL), ERR_OK);
    CHECK_STR(sql.data, text.data);
    buf_deinit(&sql);
    buf_deinit(&text);
}

static void check_sort_key(const char *key, const char *expected)
{
    struct buf sql = {0};
    physical_write_sort_key(&sql, &key, 1);
    CHECK_STR(sql.data, expected);
    buf_deinit(&sql);
}

TEST(an_order_may_have_any_blanks)
{
    check_sort_key("c0 DESC  NULLS LAST", "create_sort_key(c0, 'DESC NULLS LAST', '', 'ASC NULLS LAST')");
    check_sort_key("c0\tdesc\n nulls  first ", "create_sort_key(c0, 'DESC NULLS FIRST', '', 'ASC NULLS LAST')");
    check_sort_key("(c0)NULLS FIRST", "create_sort_key((c0), 'ASC NULLS FIRST', '', 'ASC NULLS LAST')");
    check_sort_key("c0  asc", "create_sort_key(c0, 'ASC NULLS LAST', '', 'ASC NULLS LAST')");
    check_sort_key("c0", "create_sort_key(c0, 'ASC NULLS LAST', '', 'ASC NULLS LAST')");
    check_sort_key("t.desc", "create_sort_key(t.desc, 'ASC NULLS LAST', '', 'ASC NULLS LAST')");
    check_sort_key("x_last", "create_sort_key(x_last, 'ASC NULLS LAST', '', 'ASC NULLS LAST')");
    check_sort_key("\"a DESC\"", "create_sort_key(\"a DESC\", 'ASC NULLS LAST', '', 'ASC NULLS LAST')");
}

TEST(wrong_placeholders_are_errors)
{
    struct physical_stage stage;
    struct physical_plan plan = one_stage(&stage, "select {{tusk}}");
    struct buf sql = {0};
    struct error e = {0};
    CHECK_ERR(physical_task_sql(&sql, &plan, 0, 0, &e), ERR_INVALID);
    CHECK_STR(e.message, "stage 0: unknown placeholder {{tusk}}");
    plan = one_stage(&stage, "from {{split}}");
    CHECK_ERR(physical_task_sql(&sql, &plan, 0, 0, &e), ERR_INVALID);
    CHECK_STR(e.message, "stage 0: {{split}} without splits for it");
    struct physical_split split = {.file = "f", .has_rows = true, .last_row = 1};
    stage.splits = &split;
    stage.n_splits = 1;
    CHECK_ERR(physical_task_sql(&sql, &plan, 0, 0, &e), ERR_INVALID);
    CHECK_STR(e.hint, "or add the condition {{rows:file_row_number}}");
    CHECK_UINT(sql.n, 0);
    buf_deinit(&sql);
}

/* What a client wrote is looked at more closely than what a planner did, and all of it at once. */
TEST(a_plan_of_a_client_only_reads_and_has_right_placeholders)
{
    static const char text[] =
        "{\"stages\":[{\"id\":0,\"sql\":\"DROP TABLE t\",\"output\":{\"exchange\":\"gather\"}},"
        "{\"id\":1,\"sql\":\"SELECT {{tusk}}\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"gather\"}},"
        "{\"id\":2,\"sql\":\"CREATE TEMP VIEW v AS FROM b; FROM v\",\"inputs\":{\"b\":1},"
        "\"output\":{\"exchange\":\"result\"}}]}";
    struct reading planner = read_text(text);
    CHECK_ERR(planner.err, ERR_OK);
    reading_deinit(&planner);
    struct reading r = {0};
    CHECK_ERR(physical_read_foreign(text, strlen(text), &r.arena, &r.plan, &r.errors, &r.e), ERR_INVALID);
    CHECK_STR(r.errors.data, "stage 0: \"sql\" must be one statement that only reads, such as SELECT; CREATE TEMP VIEW "
                             "may stand before it\n"
                             "stage 1: unknown placeholder {{tusk}}");
    reading_deinit(&r);
    static const char parts[] = "{\"stages\":[{\"id\":0,\"sql\":\"FROM {{split}}\",\"splits\":[{\"file\":\"a\"},"
                                "{\"file\":\"b\",\"first_row\":0,\"last_row\":9}],"
                                "\"output\":{\"exchange\":\"result\"}}]}";
    r = (struct reading){0};
    CHECK_ERR(physical_read_foreign(parts, strlen(parts), &r.arena, &r.plan, &r.errors, &r.e), ERR_INVALID);
    CHECK(strstr(r.errors.data, "stage 0: ") == r.errors.data);
    reading_deinit(&r);
    static const char between[] =
        "{\"stages\":["
        "{\"id\":0,\"sql\":\"SELECT 1) TO 'x' --\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0) --\"],\"partitions\":2}},"
        "{\"id\":1,\"sql\":\"CREATE TEMP VIEW v AS SELECT 1; FROM v\",\"inputs\":{\"a\":0},"
        "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0, c1\"],\"partitions\":2}},"
        "{\"id\":2,\"sql\":\"CREATE TEMP VIEW v AS SELECT 1; FROM v\",\"inputs\":{\"b\":1},\"output\":{\"exchange\":\"result\"}}]}";
    r = (struct reading){0};
    CHECK_ERR(physical_read_foreign(between, strlen(between), &r.arena, &r.plan, &r.errors, &r.e), ERR_INVALID);
    CHECK_STR(
        r.errors.data,
        "stage 0: its \"sql\" has a bracket that closes, but was not opened\n"
        "stage 0: key number 1 must be one expression, without comments\n"
        "stage 1: key number 1 must be one expression, without comments\n"
        "stage 1: \"sql\" must be one statement where rows go to partitions, without a CREATE TEMP VIEW before it");
    reading_deinit(&r);
    r = (struct reading){0};
    CHECK_ERR(physical_read_foreign(example, strlen(example), &r.arena, &r.plan, &r.errors, &r.e), ERR_OK);
    reading_deinit(&r);
}

TEST(ranges_without_bounds_get_stages_that_find_them)
{
    struct reading r = read_text(
        "{\"stages\":[{\"id\":7,\"sql\":\"SELECT k FROM read_parquet({{split}})\",\"splits\":[{\"file\":\"a\"},"
        "{\"file\":\"b\"}],\"output\":{\"exchange\":\"range\",\"keys\":[\"k DESC\"],\"partitions\":3}},"
        "{\"id\":2,\"inputs\":{\"m\":7},\"sql\":\"FROM m ORDER BY k DESC\",\"output\":{\"exchange\":\"result\"}}]}");
    CHECK_STR(r.e.message, "");
    CHECK_UINT(r.plan->n_stages, 5);
    static const struct {
        uint32_t id;
        uint32_t n_tasks;
        enum exchange exchange;
    } expected[] = {{8, 2, EXCHANGE_FORWARD},
                    {9, 3, EXCHANGE_GATHER},
                    {10, 1, EXCHANGE_BROADCAST},
                    {7, 3, EXCHANGE_RANGE},
                    {2, 3, EXCHANGE_RESULT}};
    for (uint32_t i = 0; i < r.plan->n_stages; i++) {
        CHECK_UINT(r.plan->stages[i].id, expected[i].id);
        CHECK_UINT(physical_tasks(r.plan, i), expected[i].n_tasks);
        CHECK_INT(r.plan->stages[i].output.exchange, expected[i].exchange);
    }
    check_task(
        r.plan, 3, 0,
        "SELECT *, CAST(len(list_filter((SELECT * FROM \"capstan_bounds\"), lambda capstan_bound: capstan_bound < "
        "create_sort_key(k, 'DESC NULLS LAST', '', 'ASC NULLS LAST'))) AS INTEGER) AS capstan_partition FROM "
        "(SELECT * FROM capstan_rows\n)");
    static const char *const keys[] = {"a", "b asc", "c nulls first", "d DESC", "e DESC NULLS FIRST", "desc"};
    struct buf sql = {0};
    physical_write_sort_key(&sql, keys, ARRAY_LEN(keys));
    CHECK_STR(sql.data,
              "create_sort_key(a, 'ASC NULLS LAST', b, 'ASC NULLS LAST', c, 'ASC NULLS FIRST', d, 'DESC NULLS "
              "LAST', e, 'DESC NULLS FIRST', desc, 'ASC NULLS LAST', '', 'ASC NULLS LAST')");
    buf_deinit(&sql);
    reading_deinit(&r);
    r = read_text("{\"stages\":[{\"id\":4294967294,\"sql\":\"a\",\"output\":{\"exchange\":\"range\",\"keys\":[\"k\"],"
                  "\"partitions\":3}},{\"id\":2,\"inputs\":{\"m\":4294967294},\"sql\":\"b\","
                  "\"output\":{\"exchange\":\"result\"}}]}");
    CHECK(strstr(r.errors.data, "each range exchange without \"bounds\" adds three stages") != NULL);
    reading_deinit(&r);
}

/* With a key such as random(), a task that is redone puts rows elsewhere, so whoever has read it must read it again. */
TEST(stages_that_find_bounds_are_the_same_each_time_only_if_their_stage_is)
{
    static const char *const marks[] = {"", "\"deterministic\":true,", "\"deterministic\":false,"};
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        struct buf text = {0};
        buf_format(&text,
                   "{\"stages\":[{\"id\":0,%s\"sql\":\"SELECT 1 AS k\",\"output\":{\"exchange\":\"range\",\"keys\":"
                   "[\"random()\"],\"partitions\":3}},{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"FROM m\","
                   "\"output\":{\"exchange\":\"result\"}}]}",
                   marks[i]);
        struct reading r = read_text(text.data);
        CHECK_STR(r.e.message, "");
        CHECK_UINT(r.plan->n_stages, 5);
        bool is_same = i < 2;
        const bool expected[] = {is_same, is_same, true /* of the same keys, the same bounds */, is_same, true};
        for (uint32_t k = 0; k < ARRAY_LEN(expected); k++) {
            CHECK_INT(r.plan->stages[k].is_deterministic, expected[k]);
        }
        reading_deinit(&r);
        buf_deinit(&text);
    }
}

TEST(each_exchange_has_its_column)
{
    struct physical_stage stage;
    struct physical_plan plan = one_stage(&stage, "select 1 ; ");
    const char *keys[] = {"c0 DESC NULLS LAST", "c1"};
    stage.output = (struct physical_output){.exchange = EXCHANGE_FORWARD, .partitions = 3};
    check_task(&plan, 0, 0, "SELECT *, CAST(0 AS INTEGER) AS capstan_partition FROM (select 1\n)");
    stage.output =
        (struct physical_output){.exchange = EXCHANGE_RANGE, .partitions = 3, .n_keys = 2, .keys = keys, .bounds = "b"};
    check_task(&plan, 0, 0,
               "SELECT *, CAST(len(list_filter((SELECT * FROM \"b\"), lambda capstan_bound: capstan_bound < "
               "create_sort_key(c0, 'DESC NULLS LAST', c1, 'ASC NULLS LAST', '', 'ASC NULLS LAST'))) AS INTEGER) AS "
               "capstan_partition FROM (select 1\n)");
    stage.custom = (struct physical_custom){.op = "o", .config_json = "{}"};
    check_task(&plan, 0, 0, "select 1 ; "); /* the operator's rows are scattered, not these */
}

TEST(the_last_of_several_statements_is_found)
{
    CHECK_UINT(physical_last_statement("select 1"), 0);
    CHECK_UINT(physical_last_statement("select ';' ; -- x\n"), 0);
    CHECK_UINT(physical_last_statement("a; b;c ; "), 5);
    CHECK_UINT(physical_last_statement("create view v as select ';'; select $$;$$"), 28);
    CHECK_UINT(physical_last_statement("select 1 as a$$q$; select 2 as x$q$"), 18);
}

static void check_names(const char *const *names, uint32_t n, const char *sql, bool is_told)
{
    struct arena arena = {0};
    struct buf text = {0};
    const char *const *read = NULL;
    buf_text(&text, sql);
    physical_write_names(&text, names, n);
    CHECK_UINT(physical_read_names(text.data, &arena, &read), is_told ? n : 0);
    for (uint32_t i = 0; i < n && is_told; i++) {
        CHECK_STR(read[i], names[i]);
    }
    text.data[physical_trimmed(text.data)] = '\0';
    CHECK_STR(text.data, "SELECT 1");
    buf_deinit(&text);
    arena_deinit(&arena);
}

TEST(names_of_a_result_come_back_as_they_were)
{
    check_names((const char *const[]){"a"}, 1, "SELECT 1", true);
    check_names((const char *const[]){"a", "a", "", "we \"ird\"", "x, \"y", "line\nbreak", "-- no", "*", "/"}, 9,
                "SELECT 1; \n;", true);
    check_names((const char *const[]){"ends */ here"}, 1, "SELECT 1", false); /* would end the comment */
    check_names((const char *const[]){"begins /* here"}, 1, "SELECT 1", false);
    check_names((const char *const[]){"a *", "/ b"}, 2, "SELECT 1", true);
    check_names(NULL, 0, "SELECT 1;", false);
}

TEST(names_that_the_user_wrote_into_a_comment_are_not_ours)
{
    struct arena arena = {0};
    struct buf text = {0};
    const char *const *read = NULL;
    const char *name = "a*/";
    buf_text(&text, "SELECT 1 AS \"a*/\"\n/* columns \"z\" */");
    physical_write_names(&text, &name, 1);
    CHECK_UINT(physical_read_names(text.data, &arena, &read), 0);
    buf_deinit(&text);
    arena_deinit(&arena);
}

TEST(what_only_looks_like_names_is_none)
{
    static const char *const texts[] = {
        "SELECT '\n/* columns \"a\" */'",       "SELECT 1\n/* columns a */",
        "SELECT 1\n/* columns \"a\", */",       "SELECT 1\n/* columns \"a */",
        "SELECT 1\n/* columns \"a\" */ FROM t", "SELECT 1\n/* columns  */",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct arena arena = {0};
        const char *const *names = NULL;
        CHECK_UINT(physical_read_names(texts[i], &arena, &names), 0);
        arena_deinit(&arena);
    }
    CHECK_UINT(physical_trimmed(texts[0]), strlen(texts[0]));
    CHECK_UINT(physical_trimmed(texts[4]), strlen(texts[4]));
}
