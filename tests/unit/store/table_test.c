#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "core/command.h"
#include "store/codec.h"
#include "store/table.h"

/* Texts that something between here and a disk might trip over. All are UTF-8; invalid ones do not get this far. */
static const char *const hostile_texts[] = {
    "",
    " ",
    "'; DROP TABLE jobs; --",
    "\"quoted\" \\ back\\slash / % %s ?1 $1 :a @b",
    "\\u0000 \\n \\x00",
    "tab\tline\nreturn\r\x01\x1f\x7f",
    "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x92\xa5 \xf4\x8f\xbf\xbf", /* two, three, four bytes, the last code point */
    "\xef\xbb\xbf byte order mark",
    "\xed\x9f\xbf\xee\x80\x80 beside the surrogates",
    "e\xcc\x81 and \xc3\xa9",
    "NULL",
    "null",
    "[1,{\"a\":2}]",
    "00012",
    "1e400",
};

static const int64_t hostile_numbers[] = {0, 1, -1, INT64_MAX, INT64_MIN, UINT32_MAX, (int64_t)UINT32_MAX + 1};

/* What a store does with a row: value by value out of one struct and into another. */
static struct row *round_trip(const struct row *row, struct arena *arena)
{
    const struct table *table = table_of(row->kind);
    struct row *copy = table_row(table, arena);
    CHECK(copy->kind == row->kind);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        struct error e = {0};
        struct value value = table_get(row, &table->columns[i], arena);
        CHECK(value.type == VALUE_IS_NULL || value.type == column_type(&table->columns[i]));
        CHECK_ERR(table_set(copy, &table->columns[i], value, arena, &e), ERR_OK);
    }
    return copy;
}

static const enum row_kind all_kinds[] = {ROW_JOB,    ROW_STAGE, ROW_TASK,    ROW_LEASE, ROW_MAP_OUTPUT,
                                          ROW_RESULT, ROW_NODE,  ROW_ATTEMPT, ROW_EVENT};

static void *field_of(struct row *row, const struct column *column)
{
    return (char *)row + column->offset;
}

/* A row with something different in every simple field; the others are left empty. */
static struct row *filled_row(const struct table *table, uint32_t seed, struct arena *arena)
{
    struct row *row = table_row(table, arena);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        void *field = field_of(row, &table->columns[i]);
        uint32_t pick = seed + i;
        int64_t number = hostile_numbers[pick % ARRAY_LEN(hostile_numbers)];
        switch (table->columns[i].kind) {
        case COLUMN_TEXT:
            *(const char **)field = hostile_texts[pick % ARRAY_LEN(hostile_texts)];
            break;
        case COLUMN_U8:
            *(bool *)field = pick % 2 == 0;
            break;
        case COLUMN_U32:
            *(uint32_t *)field = (uint32_t)number;
            break;
        case COLUMN_I64:
            *(int64_t *)field = number;
            break;
        case COLUMN_DIGEST:
            memset(field, (int)(pick & 0xff), 32);
            break;
        case COLUMN_TOKEN:
            memset(field, (int)(pick & 0xff), 16);
            break;
        case COLUMN_STRINGS:
            *(struct string_list *)field = (struct string_list){hostile_texts, ARRAY_LEN(hostile_texts)};
            break;
        case COLUMN_MARKS:
        case COLUMN_PARTITIONS:
        case COLUMN_OFFER:
        case COLUMN_SPEC:
        case COLUMN_NEED:
        case COLUMN_NAME:
        case COLUMN_PAST:
            break;
        }
    }
    return row;
}

static void check_column(struct row *copy, struct row *row, const struct column *column)
{
    const void *is = field_of(copy, column);
    const void *was = field_of(row, column);
    const struct string_list *list = is;
    switch (column->kind) {
    case COLUMN_TEXT:
        CHECK_STR(*(const char *const *)is, *(const char *const *)was);
        break;
    case COLUMN_U8:
        CHECK_MEM(is, was, 1);
        break;
    case COLUMN_U32:
        CHECK_MEM(is, was, 4);
        break;
    case COLUMN_I64:
        CHECK_MEM(is, was, 8);
        break;
    case COLUMN_DIGEST:
        CHECK_MEM(is, was, 32);
        break;
    case COLUMN_TOKEN:
        CHECK_MEM(is, was, 16);
        break;
    case COLUMN_STRINGS:
        CHECK_UINT(list->count, ARRAY_LEN(hostile_texts));
        for (uint32_t i = 0; i < list->count; i++) {
            CHECK_STR(list->items[i], hostile_texts[i]);
        }
        break;
    case COLUMN_MARKS:
    case COLUMN_PARTITIONS:
    case COLUMN_OFFER:
    case COLUMN_SPEC:
    case COLUMN_NEED:
    case COLUMN_NAME:
    case COLUMN_PAST:
        break;
    }
}

/* A stage without a spec is refused, and these rows have none. */
static struct stage_spec least_spec(struct requirement *need)
{
    return (struct stage_spec){.need = need, .n_tasks = 1};
}

TEST(every_column_of_every_table_comes_back_as_it_was)
{
    struct arena arena = {0};
    struct requirement need = {0};
    struct stage_spec spec = least_spec(&need);
    for (size_t k = 0; k < ARRAY_LEN(all_kinds); k++) {
        const struct table *table = table_of(all_kinds[k]);
        for (uint32_t seed = 0; seed < 64; seed++) {
            struct row *row = filled_row(table, seed, &arena);
            if (row->kind == ROW_STAGE) {
                ((struct row_stage *)(void *)row)->spec = &spec;
            }
            if (row->kind == ROW_ATTEMPT) { /* two columns share a field: the later one wins, as it should */
                ((struct row_attempt *)(void *)row)->at_ms = (int64_t)seed;
            }
            struct row *copy = round_trip(row, &arena);
            for (uint32_t i = 0; i < table->n_columns; i++) {
                check_column(copy, row, &table->columns[i]);
            }
            CHECK(table_row_is_new(table, copy) || row->kind == ROW_ATTEMPT);
        }
        arena_reset(&arena);
    }
    arena_deinit(&arena);
}

/* What a load hands out is gone when the load is over; a copy is not. */
TEST(a_copy_of_a_row_has_every_column_that_is_read_and_shares_no_text_with_it)
{
    static const enum row_kind kinds[] = {ROW_JOB, ROW_STAGE, ROW_TASK, ROW_LEASE, ROW_MAP_OUTPUT, ROW_RESULT};
    struct arena arena = {0}, scratch = {0};
    struct requirement need = {0};
    struct stage_spec spec = least_spec(&need);
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        const struct table *table = table_of(kinds[k]);
        struct row *row = filled_row(table, (uint32_t)k, &arena);
        struct row *copy = NULL;
        if (row->kind == ROW_STAGE) {
            ((struct row_stage *)(void *)row)->spec = &spec;
        }
        CHECK_ERR(table_copy(row, &arena, &scratch, &copy, NULL), ERR_OK);
        arena_deinit(&scratch); /* nothing of it may be in use */
        CHECK(copy->kind == row->kind && copy->next == NULL);
        for (uint32_t i = 0; i < table->n_columns; i++) {
            const struct column *column = &table->columns[i];
            if (column_is_read(column)) {
                check_column(copy, row, column);
            }
            if (column->kind == COLUMN_TEXT) {
                CHECK(*(const char **)field_of(copy, column) != *(const char **)field_of(row, column));
            }
        }
    }
    arena_deinit(&arena);
}

TEST(a_row_of_nothing_comes_back_as_nothing)
{
    struct arena arena = {0};
    struct requirement need = {0};
    struct stage_spec spec = least_spec(&need);
    for (size_t k = 0; k < ARRAY_LEN(all_kinds); k++) {
        const struct table *table = table_of(all_kinds[k]);
        struct row *row = table_row(table, &arena);
        if (row->kind == ROW_STAGE) {
            ((struct row_stage *)(void *)row)->spec = &spec;
        }
        struct row *copy = round_trip(row, &arena);
        if (row->kind == ROW_NODE) { /* a node without an offer gets an empty one: the core may look at it */
            struct row_node *node = (struct row_node *)(void *)copy;
            CHECK(node->offer != NULL && node->offer->executors.count == 0);
            node->offer = NULL;
        }
        if (row->kind != ROW_STAGE) {
            CHECK_MEM(copy, row, table->row_bytes);
        }
    }
    arena_deinit(&arena);
}

TEST(columns_that_are_not_new_are_marked_so)
{
    struct row_task task = {.row = {.kind = ROW_TASK}};
    struct row_attempt attempt = {.row = {.kind = ROW_ATTEMPT}, .outcome = OUTCOME_PENDING};
    struct row_lease lease = {.row = {.kind = ROW_LEASE}};

    CHECK(!table_row_is_new(table_of(ROW_TASK), &task.row));
    task.is_new = true;
    CHECK(table_row_is_new(table_of(ROW_TASK), &task.row));
    CHECK(table_row_is_new(table_of(ROW_ATTEMPT), &attempt.row));
    attempt.outcome = OUTCOME_LOST;
    CHECK(!table_row_is_new(table_of(ROW_ATTEMPT), &attempt.row));
    CHECK(table_row_is_new(table_of(ROW_LEASE), &lease.row));
}

TEST(kinds_that_only_change_others_have_no_table)
{
    CHECK(table_of(ROW_JOB_SWEEP) == NULL);
    CHECK(table_of(ROW_LEASE_GONE) == NULL);
    CHECK(table_of(ROW_META) == NULL);
}

/* Engines make statements of it: keys first, in the order of the primary key. */
TEST(keys_come_before_all_other_columns)
{
    for (size_t k = 0; k < ARRAY_LEN(all_kinds); k++) {
        const struct table *table = table_of(all_kinds[k]);
        bool keys_over = false;
        CHECK(table->columns[0].role == ROLE_KEY);
        for (uint32_t i = 0; i < table->n_columns; i++) {
            CHECK(table->columns[i].role != ROLE_KEY || !keys_over);
            keys_over = keys_over || table->columns[i].role != ROLE_KEY;
        }
    }
}

TEST(a_text_of_a_mebibyte_comes_back_whole)
{
    enum { N = 1024 * 1024 };
    struct arena arena = {0};
    char *text = arena_alloc(&arena, N + 1);
    for (size_t i = 0; i < N; i++) {
        text[i] = (char)(1 + i % 127);
    }
    text[N] = '\0';
    const char *items[] = {text, "", text};
    struct row_task task = {.row = {.kind = ROW_TASK}, .message = text, .failed_on = {items, 3}};

    const struct row_task *copy = (const struct row_task *)(const void *)round_trip(&task.row, &arena);

    CHECK_STR(copy->message, text);
    CHECK_UINT(copy->failed_on.count, 3);
    CHECK_STR(copy->failed_on.items[1], "");
    CHECK_STR(copy->failed_on.items[2], text);
    arena_deinit(&arena);
}

static const struct capability capabilities[] = {
    {.key = "cpu_cores", .kind = VALUE_NUMBER, .number = 8},
    {.key = "share", .kind = VALUE_NUMBER, .number = 0.1},
    {.key = "huge", .kind = VALUE_NUMBER, .number = 1.7976931348623157e308},
    {.key = "least", .kind = VALUE_NUMBER, .number = -5e-324},
    {.key = "\"", .kind = VALUE_TEXT, .text = "line\nbreak"},
    {.key = "", .kind = VALUE_TEXT, .text = ""},
    {.key = "ssd", .kind = VALUE_BOOL, .number = 1},
    {.key = "gpu", .kind = VALUE_BOOL, .number = 0},
    {.key = "labels", .kind = VALUE_LIST, .items = hostile_texts, .n_items = ARRAY_LEN(hostile_texts)},
    {.key = "none", .kind = VALUE_LIST},
};
static const struct capability_list capability_list = {capabilities, ARRAY_LEN(capabilities)};
static const struct string_list texts = {hostile_texts, ARRAY_LEN(hostile_texts)};

TEST(an_offer_comes_back_as_it_was)
{
    struct arena arena = {0};
    struct offer full = {.executors = texts, .ops = texts, .capabilities = capability_list, .engine = "duck \"1\""};
    struct offer empty = {0};
    const struct offer *copy = NULL;

    CHECK_ERR(codec_read_offer(codec_offer(&full, &arena), &arena, &copy, NULL), ERR_OK);
    CHECK(offer_equal(copy, &full));
    CHECK_ERR(codec_read_offer(codec_offer(&empty, &arena), &arena, &copy, NULL), ERR_OK);
    CHECK(offer_equal(copy, &empty));
    arena_deinit(&arena);
}

static void check_same_spec(const struct stage_spec *a, const struct stage_spec *b)
{
    CHECK_STR(a->name, b->name);
    CHECK(requirement_equal(a->need, b->need));
    CHECK_UINT(a->n_parents, b->n_parents);
    for (uint32_t i = 0; i < a->n_parents; i++) {
        CHECK_UINT(a->parents[i].stage, b->parents[i].stage);
        CHECK_INT(a->parents[i].read, b->parents[i].read);
        CHECK_INT(a->parents[i].optional, b->parents[i].optional);
    }
    CHECK_UINT(a->n_tasks, b->n_tasks);
    CHECK_INT(a->output, b->output);
    CHECK_UINT(a->partitions, b->partitions);
    CHECK_UINT(a->max_attempts, b->max_attempts);
    CHECK_INT(a->backoff_ms, b->backoff_ms);
    CHECK_UINT(a->timeout_ms, b->timeout_ms);
    CHECK_INT(a->nondeterministic, b->nondeterministic);
    CHECK_INT(a->exclusive, b->exclusive);
    CHECK_INT(a->planning, b->planning);
    CHECK_INT(a->child, b->child);
}

TEST(a_stage_comes_back_as_it_was)
{
    struct arena arena = {0};
    struct requirement need = {.executor = "shell's",
                               .ops = texts,
                               .engine = "v1",
                               .any_executors = texts,
                               .capabilities = capability_list,
                               .allowed_nodes = texts,
                               .forbidden_nodes = texts,
                               .max_parallel_per_node = UINT32_MAX};
    struct requirement nothing = {0};
    struct stage_parent parents[] = {{.stage = 0, .read = READ_ALL},
                                     {.stage = UINT32_MAX, .read = READ_NONE, .optional = true},
                                     {.stage = 7, .read = READ_PARTITION}};
    uint64_t marks[] = {0, 1, UINT64_MAX};
    struct stage_spec specs[] = {
        {.name = hostile_texts[3],
         .need = &need,
         .parents = parents,
         .n_parents = 3,
         .n_tasks = UINT32_MAX,
         .output = OUTPUT_RESULT,
         .partitions = UINT32_MAX,
         .max_attempts = UINT32_MAX,
         .backoff_ms = INT64_MAX,
         .timeout_ms = UINT32_MAX,
         .nondeterministic = true,
         .exclusive = true,
         .planning = true,
         .child = true},
        {.need = &nothing, .n_tasks = 1, .backoff_ms = -1},
        {.need = &nothing, .n_tasks = 1, .backoff_ms = 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        struct row_stage stage = {
            .row = {.kind = ROW_STAGE}, .job_id = "j", .spec = &specs[i], .recovered = marks, .n_recovered = 3};
        const struct row_stage *copy = (const struct row_stage *)(const void *)round_trip(&stage.row, &arena);
        check_same_spec(copy->spec, &specs[i]);
        CHECK_UINT(copy->n_recovered, 3);
        CHECK_MEM(copy->recovered, marks, sizeof marks);
    }
    arena_deinit(&arena);
}

TEST(partitions_and_past_incarnations_come_back_as_they_were)
{
    struct arena arena = {0};
    struct partition partitions[] = {{1, 2, 3, 4}, {UINT64_MAX, 0, UINT64_MAX, 1}};
    struct offer offer = {0};
    struct row_map_output output = {.row = {.kind = ROW_MAP_OUTPUT}, .partitions = partitions, .n_partitions = 2};
    struct row_node node = {
        .row = {.kind = ROW_NODE}, .worker_id = "w", .past_incarnations = {"newest", "older"}, .offer = &offer};

    const struct row_map_output *copy = (const struct row_map_output *)(const void *)round_trip(&output.row, &arena);
    CHECK_UINT(copy->n_partitions, 2);
    CHECK_MEM(copy->partitions, partitions, sizeof partitions);

    const struct row_node *again = (const struct row_node *)(const void *)round_trip(&node.row, &arena);
    CHECK_STR(again->past_incarnations[0], "newest");
    CHECK_STR(again->past_incarnations[1], "older");
    CHECK_STR(again->past_incarnations[2], NULL);
    arena_deinit(&arena);
}

static enum err set(const char *name, enum row_kind kind, struct value value)
{
    struct arena arena = {0};
    const struct table *table = table_of(kind);
    enum err err = ERR_INTERNAL;
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (strcmp(table->columns[i].name, name) == 0) {
            err = table_set(table_row(table, &arena), &table->columns[i], value, &arena, NULL);
        }
    }
    arena_deinit(&arena);
    return err;
}

static struct value text_value(const char *text)
{
    return (struct value){.type = VALUE_IS_TEXT, .bytes = text, .n = strlen(text)};
}

TEST(a_value_that_was_never_written_is_damage)
{
    struct value too_large = {.type = VALUE_IS_INT, .number = (int64_t)UINT32_MAX + 1};
    struct value negative = {.type = VALUE_IS_INT, .number = -1};
    struct value seven_bytes = {.type = VALUE_IS_BYTES, .bytes = "1234567", .n = 7};

    CHECK_ERR(set("state", ROW_TASK, too_large), ERR_DATA_LOSS);
    CHECK_ERR(set("state", ROW_TASK, negative), ERR_DATA_LOSS);
    CHECK_ERR(set("state", ROW_TASK, text_value("1")), ERR_DATA_LOSS);
    CHECK_ERR(set("is_inline", ROW_RESULT, (struct value){.type = VALUE_IS_INT, .number = 256}), ERR_DATA_LOSS);
    CHECK_ERR(set("inputs", ROW_TASK, seven_bytes), ERR_DATA_LOSS);
    CHECK_ERR(set("lease_id", ROW_TASK, seven_bytes), ERR_DATA_LOSS);
    CHECK_ERR(set("recovered", ROW_STAGE, seven_bytes), ERR_DATA_LOSS);
    CHECK_ERR(set("partitions", ROW_MAP_OUTPUT, seven_bytes), ERR_DATA_LOSS);
    CHECK_ERR(set("message", ROW_TASK, seven_bytes), ERR_DATA_LOSS);
    CHECK_ERR(set("failed_on", ROW_TASK, text_value("[")), ERR_DATA_LOSS);
    CHECK_ERR(set("failed_on", ROW_TASK, text_value("{}")), ERR_DATA_LOSS);
    CHECK_ERR(set("failed_on", ROW_TASK, text_value("[1]")), ERR_DATA_LOSS);
    CHECK_ERR(set("capabilities", ROW_NODE, text_value("{\"capabilities\":{\"a\":{}}}")), ERR_DATA_LOSS);
    CHECK_ERR(set("past_incarnations", ROW_NODE, text_value("[\"1\",\"2\",\"3\",\"4\",\"5\"]")), ERR_DATA_LOSS);
    CHECK_ERR(set("spec", ROW_STAGE, text_value("{}")), ERR_DATA_LOSS);
    CHECK_ERR(set("spec", ROW_STAGE, text_value("{\"tasks\":1,\"parents\":[[0,9,0]]}")), ERR_DATA_LOSS);
    CHECK_ERR(set("spec", ROW_STAGE, (struct value){.type = VALUE_IS_NULL}), ERR_DATA_LOSS);
}

TEST(placement_is_written_for_people)
{
    struct arena arena = {0};
    static const char *const nodes[] = {"n1"};
    struct requirement need = {.executor = "http", .allowed_nodes = {nodes, 1}, .max_parallel_per_node = 2};

    CHECK_STR(codec_placement(&need, &arena), "{\"allowed_nodes\":[\"n1\"],\"max_parallel_per_node\":2}");
    CHECK_STR(codec_placement(NULL, &arena), NULL);
    arena_deinit(&arena);
}
