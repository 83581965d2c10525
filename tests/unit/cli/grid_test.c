/*
 * grid_test.c - tables of rows: what is cut on a terminal, what is not elsewhere, and what happens after the rows that are
 * held.
 */
#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "cli/grid.h"
#include "cli/text.h"

#define COLUMNS 3

/* One row of texts, in three columns. */
struct row {
    struct ArrowArray root;
    struct ArrowArray children[COLUMNS];
    struct ArrowArray *pointers[COLUMNS];
    const void *buffers[COLUMNS][3];
    int32_t ends[COLUMNS][2];
};

static void row_init(struct row *row, const char *const *texts)
{
    *row = (struct row){.root = {.length = 1, .n_children = COLUMNS, .children = row->pointers}};
    for (uint32_t i = 0; i < COLUMNS; i++) {
        row->ends[i][1] = (int32_t)strlen(texts[i]);
        row->buffers[i][1] = row->ends[i];
        row->buffers[i][2] = texts[i];
        row->children[i] = (struct ArrowArray){.length = 1, .n_buffers = 3, .buffers = row->buffers[i]};
        row->pointers[i] = &row->children[i];
    }
}

static void make_columns(struct columns *columns)
{
    struct ArrowSchema fields[COLUMNS] = {
        {.format = "u", .name = "a"}, {.format = "u", .name = "b"}, {.format = "u", .name = "c"}};
    struct ArrowSchema *pointers[COLUMNS] = {&fields[0], &fields[1], &fields[2]};
    struct ArrowSchema root = {.format = "+s", .n_children = COLUMNS, .children = pointers};
    struct error e = {0};
    CHECK_ERR(columns_init(columns, &root, &e), ERR_OK);
}

static void draw(size_t width, const char *const *texts, struct buf *out)
{
    struct columns columns;
    struct grid grid;
    struct row row;
    make_columns(&columns);
    grid_init(&grid, &columns, width, false);
    row_init(&row, texts);
    grid_row(&grid, &row.root, 0, out);
    grid_end(&grid, out);
    grid_deinit(&grid);
    columns_deinit(&columns);
}

/* Columns of one name get numbers, also next to one that has such a name already, and none twice. */
TEST(columns_of_one_name_are_told_apart)
{
    enum { N = 5 };
    static const char *const names[N] = {"a_1", "A", "a", "b", "a"};
    static const char *const unique[N] = {"a_1", "A", "a_2", "b", "a_3"};
    struct ArrowSchema fields[N] = {0};
    struct ArrowSchema *pointers[N];
    struct columns columns;
    struct error e = {0};
    for (int i = 0; i < N; i++) {
        fields[i] = (struct ArrowSchema){.format = "u", .name = names[i]};
        pointers[i] = &fields[i];
    }
    struct ArrowSchema root = {.format = "+s", .n_children = N, .children = pointers};
    CHECK_ERR(columns_init(&columns, &root, &e), ERR_OK);
    for (int i = 0; i < N; i++) {
        CHECK_STR(columns.columns[i].unique, unique[i]);
    }
    columns_deinit(&columns);
}

/* The widest line. */
static size_t width_of(const char *text)
{
    size_t widest = 0;
    while (*text != '\0') {
        char line[4096];
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        size_t width = text_width(line);
        widest = width > widest ? width : widest;
        text += n + 1;
    }
    return widest;
}

static const char *const long_texts[] = {"short", "a cell of forty characters, more or less.",
                                         "and one that is longer than all the others of this row, by far it is"};

TEST(on_a_terminal_the_widest_columns_are_cut_to_fit)
{
    for (size_t width = 30; width < 140; width++) {
        struct buf out = {0};
        draw(width, long_texts, &out);
        CHECK(width_of(out.data) <= width);
        CHECK(strstr(out.data, "short  ") != NULL);
        bool is_whole = strstr(out.data, "by far it is") != NULL;
        CHECK(is_whole == (width >= 7 + 2 + 41 + 2 + 68));
        /* Room that there is, is used. */
        CHECK(is_whole || width_of(out.data) == width);
        buf_deinit(&out);
    }
}

TEST(a_terminal_that_is_too_narrow_for_anything_gets_lines_that_wrap)
{
    struct buf out = {0};
    draw(10, long_texts, &out);
    CHECK_STR(out.data, "a        b         c\n"
                        "VARCHAR  VARCHAR   VARCHAR\n"
                        "-------  --------  --------\n"
                        "short    a cell \xe2\x80\xa6  and one\xe2\x80\xa6\n"
                        "(1 row)\n");
    buf_deinit(&out);
}

TEST(elsewhere_nothing_is_cut)
{
    struct buf out = {0};
    draw(0, long_texts, &out);
    CHECK(strstr(out.data, long_texts[1]) != NULL);
    CHECK(strstr(out.data, long_texts[2]) != NULL);
    buf_deinit(&out);
}

TEST(rows_after_those_that_are_held_have_the_same_widths)
{
    static const char *const few[] = {"x", "y", "z"};
    static const char *const more[] = {"wider than x", "y", "z"};
    struct columns columns;
    struct grid grid;
    struct row row;
    struct buf out = {0};
    make_columns(&columns);
    grid_init(&grid, &columns, 0, false);
    row_init(&row, few);
    for (uint32_t i = 0; i + 1 < GRID_ROWS_MAX; i++) {
        grid_row(&grid, &row.root, 0, &out);
    }
    CHECK_UINT(out.n, 0);
    grid_row(&grid, &row.root, 0, &out);
    CHECK(out.n > GRID_ROWS_MAX);
    CHECK_UINT(grid.n_cells, 0);
    buf_reset(&out);
    row_init(&row, more);
    grid_row(&grid, &row.root, 0, &out);
    CHECK_STR(out.data, "wider than x  y        z\n");
    buf_reset(&out);
    grid_end(&grid, &out);
    CHECK_STR(out.data, "(10,001 rows)\n");
    grid_deinit(&grid);
    columns_deinit(&columns);
    buf_deinit(&out);
}
