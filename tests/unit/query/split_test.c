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
