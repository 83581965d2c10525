#include "query/split.h"

#include "test.h"

static struct split_group groups[] = {{100, 1000}, {100, 1000}, {50, 500}, {100, 1000}};
static struct split_file files[] = {
    {.path = "a", .rows = 350, .bytes = 3500, .n_groups = 4, .groups = groups},
    {.path = "b", .rows = 100, .bytes = 1000, .n_groups = 1, .groups = groups},
    {.path = "c", .rows = 0, .bytes = 300},
};
static const struct split_catalog catalog = {.n_files = 3, .files = files};

struct fixture {
    struct arena arena;
    struct physical_split *splits;
    uint32_t n;
};

static struct fixture split_files(const char **names, uint32_t n, uint64_t bytes)
{
    struct fixture f = {0};
    struct scan scan = {.source = SCAN_PARQUET, .files = names, .n_files = n};
    split_scan(&catalog, &scan, &(struct split_sizes){.bytes_target = bytes}, &f.arena, &f.splits, &f.n);
    return f;
}

TEST(a_file_is_cut_along_its_row_groups)
{
    const char *names[] = {"a", "b"};
    struct fixture f = split_files(names, 2, 1800);
    CHECK_UINT(f.n, 3);
    CHECK_STR(f.splits[0].file, "a");
    CHECK(f.splits[0].has_rows);
    CHECK_UINT(f.splits[0].first_row, 0);
    CHECK_UINT(f.splits[0].last_row, 199);
    CHECK_UINT(f.splits[1].first_row, 200);
    CHECK_UINT(f.splits[1].last_row, 349);
    CHECK_UINT(f.splits[1].bytes, 1500);
    CHECK_STR(f.splits[2].file, "b");
    CHECK(!f.splits[2].has_rows);
    CHECK_UINT(f.splits[2].file_index, 1);
    arena_deinit(&f.arena);
}

TEST(every_row_is_in_exactly_one_split_whatever_their_size)
{
    for (uint64_t bytes = 1; bytes < 5000; bytes += 250) {
        const char *names[] = {"a"};
        struct fixture f = split_files(names, 1, bytes);
        uint64_t next = 0;
        for (uint32_t i = 0; i < f.n && f.splits[i].has_rows; i++) {
            CHECK_UINT(f.splits[i].first_row, next);
            next = f.splits[i].last_row + 1;
        }
        CHECK(f.n == 1 ? !f.splits[0].has_rows : next == 350);
        arena_deinit(&f.arena);
    }
}

TEST(files_without_rows_are_left_out_unless_there_are_no_others)
{
    const char *some[] = {"c", "b"};
    struct fixture f = split_files(some, 2, 100000);
    CHECK_UINT(f.n, 1);
    CHECK_STR(f.splits[0].file, "b");
    CHECK_UINT(f.splits[0].file_index, 1);
    arena_deinit(&f.arena);
    f = split_files(some, 1, 100000);
    CHECK_UINT(f.n, 1);
    CHECK_STR(f.splits[0].file, "c");
    arena_deinit(&f.arena);
}

TEST(a_file_that_nobody_knows_is_read_as_a_whole)
{
    const char *names[] = {"zzz", "a"};
    struct fixture f = split_files(names, 2, 100000);
    CHECK_UINT(f.n, 2);
    CHECK_STR(f.splits[0].file, "zzz");
    CHECK(!f.splits[0].has_rows && !f.splits[0].has_identity);
    struct scan scan = {.source = SCAN_PARQUET, .files = names, .n_files = 2};
    CHECK_UINT(split_total_of(&catalog, &scan).rows, 350);
    arena_deinit(&f.arena);
}

/* What each task reads, in bytes; the number of tasks is returned. */
static uint32_t shares(const struct fixture *f, uint64_t *out)
{
    uint32_t n = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        out[n] += f->splits[i].bytes;
        if (!f->splits[i].is_continued) {
            out[++n] = 0;
        }
    }
    return n;
}

TEST(splits_are_chained_so_that_all_slots_have_the_same_to_do)
{
    const char *names[] = {"a", "b", "a"};
    struct scan scan = {.source = SCAN_PARQUET, .files = names, .n_files = 3};
    struct fixture f = {0};
    struct split_sizes sizes = {.bytes_target = 1, .slots = 2, .task_bytes_min = 1, .task_bytes_max = 100000};
    uint64_t bytes[16];
    split_scan(&catalog, &scan, &sizes, &f.arena, &f.splits, &f.n);
    CHECK_UINT(shares(&f, bytes), 2);
    CHECK_UINT(bytes[0], 4500); /* of 8,000; the next end of a row group */
    CHECK_UINT(bytes[1], 3500);
    CHECK_UINT(f.n, 3); /* row groups of a file that one task reads are one split */
    CHECK_STR(f.splits[0].file, "a");
    CHECK(f.splits[0].is_continued);
    CHECK(!f.splits[0].has_rows); /* all of the file, so nobody looks at the numbers of its rows */
    CHECK_STR(f.splits[1].file, "b");
    CHECK(!f.splits[1].is_continued);
    sizes.task_bytes_max = 1000; /* more rounds */
    split_scan(&catalog, &scan, &sizes, &f.arena, &f.splits, &f.n);
    CHECK_UINT(shares(&f, bytes), 8);
    sizes.task_bytes_min = 1000000;
    split_scan(&catalog, &scan, &sizes, &f.arena, &f.splits, &f.n);
    CHECK_UINT(shares(&f, bytes), 1);
    arena_deinit(&f.arena);
}

TEST(few_row_groups_are_cut_so_that_tasks_have_the_same_to_do)
{
    static struct split_group uneven[] = {{122880, 12000000}, {27120, 2700000}};
    static struct split_file one[] = {
        {.path = "d", .rows = 150000, .bytes = 14700000, .n_groups = 2, .groups = uneven}};
    const struct split_catalog few = {.n_files = 1, .files = one};
    const char *names[] = {"d"};
    struct scan scan = {.source = SCAN_PARQUET, .files = names, .n_files = 1};
    struct split_sizes sizes = {.bytes_target = 1, .slots = 2, .task_bytes_min = 1, .task_bytes_max = 1000000000};
    struct arena arena = {0};
    struct physical_split *splits = NULL;
    uint32_t n = 0;
    split_scan(&few, &scan, &sizes, &arena, &splits, &n);
    CHECK_UINT(n, 2);
    CHECK_UINT(splits[0].first_row, 0);
    CHECK_UINT(splits[1].first_row, splits[0].last_row + 1);
    CHECK_UINT(splits[1].last_row, 149999);
    CHECK_UINT(splits[0].rows + splits[1].rows, 150000);
    CHECK_UINT((splits[0].last_row + 1) % 2048, 0);
    CHECK(splits[0].rows > 60000 && splits[0].rows < 90000);
    /* With more, none is. */
    sizes.slots = 1;
    split_scan(&few, &scan, &sizes, &arena, &splits, &n);
    CHECK_UINT(n, 1);
    CHECK(!splits[0].has_rows);
    arena_deinit(&arena);
}

/* Days and numbers of two files, and conditions on them. */

static struct split_column first_columns[] = {{.name = "day", .least = 0, .greatest = 99},
                                              {.name = "n", .least = 1, .greatest = 10}};
static struct split_column second_columns[] = {{.name = "day", .least = 100, .greatest = 199},
                                               {.name = "n", .least = 11, .greatest = 20}};
static struct split_file dated_files[] = {
    {.path = "a", .rows = 1000, .n_columns = 2, .columns = first_columns},
    {.path = "b", .rows = 3000, .n_columns = 2, .columns = second_columns},
    {.path = "c", .rows = 0},
};
static const struct split_catalog dated = {.n_files = 3, .files = dated_files};

static struct expression *day(struct arena *arena, enum comparison comparison, int64_t days, bool is_turned)
{
    struct constant *constant = arena_zalloc(arena, sizeof *constant);
    struct expression *e = arena_zalloc(arena, sizeof *e);
    struct expression *value = arena_zalloc(arena, sizeof *value);
    struct expression *column = expression_ref(arena, 0, type_plain(TYPE_DATE));
    *constant = (struct constant){.type = type_plain(TYPE_DATE)};
    constant->as.integer = (struct wide_int){.upper = days < 0 ? -1 : 0, .lower = (uint64_t)days};
    *value = (struct expression){.kind = EXPRESSION_CONSTANT, .type = constant->type};
    value->as.constant = constant;
    *e = (struct expression){.kind = EXPRESSION_COMPARISON, .type = type_plain(TYPE_BOOLEAN), .n_args = 2};
    e->args = arena_zalloc(arena, 2 * sizeof *e->args);
    e->args[is_turned ? 1 : 0] = column;
    e->args[is_turned ? 0 : 1] = value;
    e->as.comparison = comparison;
    return e;
}

static int64_t rows_left(struct expression **filters, uint32_t n)
{
    const char *paths[] = {"a", "b", "c"};
    const char *columns[] = {"day", "n"};
    const struct type *types[] = {type_plain(TYPE_DATE), type_plain(TYPE_VARCHAR)};
    struct scan scan = {.source = SCAN_PARQUET,
                        .files = paths,
                        .n_files = 3,
                        .names = columns,
                        .types = types,
                        .n_names = 2,
                        .filters = filters,
                        .n_filters = n};
    return (int64_t)split_rows_left(&dated, &scan);
}

TEST(a_range_of_days_leaves_its_share_of_the_rows)
{
    struct arena arena = {0};
    struct expression *filters[2] = {day(&arena, COMPARE_GREATER_OR_EQUAL, 50, false)};
    CHECK_INT(rows_left(filters, 0), -1);
    CHECK_INT(rows_left(filters, 1), 500 + 3000);
    filters[1] = day(&arena, COMPARE_LESS, 150, false);
    struct expression both = {.kind = EXPRESSION_AND, .n_args = 2, .args = filters};
    struct expression *conjunction = &both;
    CHECK_INT(rows_left(&conjunction, 1), 500 + 1500);
    filters[1] = day(&arena, COMPARE_GREATER, 150, true); /* 150 > day */
    CHECK_INT(rows_left(&conjunction, 1), 500 + 1500);
    filters[1] = day(&arena, COMPARE_LESS_OR_EQUAL, 49, false);
    CHECK_INT(rows_left(&conjunction, 1), 1); /* none, but nobody knows for sure */
    filters[0] = day(&arena, COMPARE_GREATER, -7, false);
    filters[1] = day(&arena, COMPARE_EQUAL, 3, false); /* another condition: a fifth */
    CHECK_INT(rows_left(&conjunction, 1), 800);
    CHECK_INT(rows_left(&filters[1], 1), -1);
    arena_deinit(&arena);
}

TEST(files_that_do_not_know_their_days_leave_it_to_others)
{
    struct arena arena = {0};
    struct expression *filter = day(&arena, COMPARE_GREATER_OR_EQUAL, 50, false);
    dated_files[1].n_columns = 0;
    CHECK_INT(rows_left(&filter, 1), -1);
    dated_files[1].n_columns = 2;
    arena_deinit(&arena);
}
