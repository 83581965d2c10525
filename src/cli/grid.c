#include "cli/grid.h"

#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/text.h"

#define CUT_MIN 8 /* columns of a terminal that a column keeps */

void grid_init(struct grid *grid, const struct columns *columns, size_t width, bool has_colors)
{
    *grid = (struct grid){.columns = columns, .width = width, .has_colors = has_colors};
    grid->widths = mem_calloc(columns->n + 1, sizeof *grid->widths);
    for (uint32_t i = 0; i < columns->n; i++) {
        const char *texts[] = {columns->columns[i].name, columns->columns[i].type_name};
        for (size_t k = 0; k < ARRAY_LEN(texts); k++) {
            buf_reset(&grid->clean);
            text_clean(&grid->clean, texts[k]);
            size_t needs = grid->clean.n > 0 ? text_width(grid->clean.data) : 0;
            grid->widths[i] = needs > grid->widths[i] ? needs : grid->widths[i];
        }
    }
}

static void drop_cells(struct grid *grid)
{
    for (uint32_t i = 0; i < grid->n_cells; i++) {
        mem_free(grid->cells[i]);
    }
    grid->n_cells = 0;
}

void grid_deinit(struct grid *grid)
{
    drop_cells(grid);
    mem_free(grid->cells);
    mem_free(grid->widths);
    buf_deinit(&grid->cell);
    buf_deinit(&grid->clean);
}

/* Cuts the widest columns until a line fits, or none can give more. */
static void fit(struct grid *grid)
{
    size_t total = 0;
    for (uint32_t i = 0; i < grid->columns->n; i++) {
        total += grid->widths[i] + (i > 0 ? 2 : 0);
    }
    while (grid->width > 0 && total > grid->width) {
        size_t *widest = &grid->widths[0];
        size_t second = CUT_MIN;
        for (uint32_t i = 1; i < grid->columns->n; i++) {
            if (grid->widths[i] > *widest) {
                second = *widest;
                widest = &grid->widths[i];
            } else if (grid->widths[i] > second) {
                second = grid->widths[i];
            }
        }
        if (*widest <= CUT_MIN) {
            return;
        }
        size_t over = total - grid->width;
        size_t lead = second < *widest && second >= CUT_MIN ? *widest - second : 1;
        size_t cut = over < lead ? over : lead;
        cut = *widest - cut < CUT_MIN ? *widest - CUT_MIN : cut;
        *widest -= cut;
        total -= cut;
    }
}

static void pad(struct buf *out, char c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_char(out, c);
    }
}

/* A cell that has been cleaned. */
static void put_cell(struct grid *grid, uint32_t column, const char *text, struct buf *out)
{
    bool is_last = column + 1 == grid->columns->n;
    bool is_right = text_type_is_number(grid->columns->columns[column].type);
    struct buf cut = {0};
    if (grid->width > 0 && text_width(text) > grid->widths[column]) {
        text_clip(&cut, text, grid->widths[column]);
        text = cut.data;
    }
    size_t used = text_width(text);
    size_t gap = grid->widths[column] > used ? grid->widths[column] - used : 0;
    pad(out, ' ', is_right ? gap : 0);
    buf_text(out, text);
    pad(out, ' ', is_last ? 0 : 2 + (is_right ? 0 : gap));
    buf_text(out, is_last ? "\n" : "");
    buf_deinit(&cut);
}

static void put_heading(struct grid *grid, bool is_type, struct buf *out)
{
    enum color color = is_type ? COLOR_DIM : COLOR_BOLD;
    buf_text(out, color_start(grid->has_colors, color));
    for (uint32_t i = 0; i < grid->columns->n; i++) {
        const struct column *column = &grid->columns->columns[i];
        buf_reset(&grid->clean);
        buf_append(&grid->clean, NULL, 0);
        text_clean(&grid->clean, is_type ? column->type_name : column->name);
        put_cell(grid, i, grid->clean.data, out);
    }
    buf_text(out, color_end(grid->has_colors, color));
}

static void begin_streaming(struct grid *grid, struct buf *out)
{
    uint32_t n = grid->columns->n;
    fit(grid);
    put_heading(grid, false, out);
    put_heading(grid, true, out);
    for (uint32_t i = 0; i < n; i++) {
        pad(out, '-', grid->widths[i]);
        buf_text(out, i + 1 < n ? "  " : "\n");
    }
    for (uint32_t i = 0, column = 0; i < grid->n_cells; i++) {
        put_cell(grid, column, grid->cells[i], out);
        column = column + 1 < n ? column + 1 : 0;
    }
    drop_cells(grid);
    grid->is_streaming = true;
}

/* Makes `clean` the text of the cell, which may contain zeros. */
static void make_cell(struct grid *grid, const struct ArrowArray *batch, uint32_t column, int64_t row)
{
    buf_reset(&grid->cell);
    buf_reset(&grid->clean);
    buf_append(&grid->clean, NULL, 0);
    if (!columns_text(grid->columns, batch, column, row, &grid->cell)) {
        buf_text(&grid->clean, "NULL");
        return;
    }
    for (size_t at = 0; at < grid->cell.n;) {
        text_clean(&grid->clean, grid->cell.data + at);
        at += strlen(grid->cell.data + at);
        if (at < grid->cell.n) {
            buf_text(&grid->clean, "\\x00");
            at++;
        }
    }
}

void grid_row(struct grid *grid, const struct ArrowArray *batch, int64_t row, struct buf *out)
{
    grid->rows++;
    for (uint32_t i = 0; i < grid->columns->n; i++) {
        make_cell(grid, batch, i, row);
        if (grid->is_streaming) {
            put_cell(grid, i, grid->clean.data, out);
            continue;
        }
        size_t width = text_width(grid->clean.data);
        grid->widths[i] = width > grid->widths[i] ? width : grid->widths[i];
        grid->cells = mem_grow(grid->cells, &grid->cap_cells, grid->n_cells + 1, sizeof *grid->cells);
        grid->cells[grid->n_cells++] = mem_strdup(grid->clean.data);
        grid->bytes += grid->clean.n;
    }
    if (!grid->is_streaming && (grid->rows == GRID_ROWS_MAX || grid->bytes >= GRID_BYTES_MAX)) {
        begin_streaming(grid, out);
    }
}

void grid_end(struct grid *grid, struct buf *out)
{
    if (!grid->is_streaming) {
        begin_streaming(grid, out);
    }
    buf_char(out, '(');
    text_count(out, grid->rows);
    buf_text(out, grid->rows == 1 ? " row)\n" : " rows)\n");
}
