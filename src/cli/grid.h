/*
 * grid.h - a result as a table for people: names, types, a line, aligned cells, the number of rows.
 *
 * Columns are as wide as the widest cell of the first GRID_ROWS_MAX rows, which are held for that (fewer if they are long:
 * GRID_BYTES_MAX). What follows is printed as it comes, with the same widths; a cell that is wider then pushes the rest of
 * its line to the right. On a terminal, the widest columns are cut so that a line fits; nothing is cut elsewhere.
 *
 * Ownership: grid_init's caller ends it with grid_deinit; the columns must live as long. Threads: one.
 */
#ifndef CAPSTAN_CLI_GRID_H
#define CAPSTAN_CLI_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "capstan/arrow.h"
#include "exchange/columns.h"

#define GRID_ROWS_MAX 10000
#define GRID_BYTES_MAX ((size_t)16 * 1024 * 1024)

struct grid {
    const struct columns *columns;
    size_t width; /* that a line may have; 0: any */
    bool has_colors;
    bool is_streaming; /* widths are fixed */
    char **cells;      /* of held rows */
    uint32_t n_cells;
    uint32_t cap_cells;
    size_t bytes;
    size_t *widths;
    uint64_t rows;
    struct buf cell; /* of the moment */
    struct buf clean;
};

void grid_init(struct grid *grid, const struct columns *columns, size_t width, bool has_colors);
void grid_deinit(struct grid *grid);

/* Takes a row in, and appends what can be printed by now. */
void grid_row(struct grid *grid, const struct ArrowArray *batch, int64_t row, struct buf *out);

/* Appends all that is left, and the number of rows. */
void grid_end(struct grid *grid, struct buf *out);

#endif
