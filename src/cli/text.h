/*
 * text.h - text for people: durations, sizes, times, columns.
 *
 * Ownership: a struct table owns its cells until table_deinit. Threads: one at a time per object.
 */
#ifndef CAPSTAN_CLI_TEXT_H
#define CAPSTAN_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"

/* "0 ms", "830 ms", "1.2 s", "3 min 04 s", "2 h 05 min", "3 d 4 h". Negative ones count as zero. */
void text_duration(struct buf *out, int64_t ms);

/* "12 B", "1.5 KB", "2.0 GB": powers of 1000. */
void text_size(struct buf *out, uint64_t bytes);

/* "12,345". */
void text_count(struct buf *out, uint64_t number);

/* "2026-11-15 12:00:00Z"; "-" for 0. */
void text_time(struct buf *out, uint64_t ms);

/*
 * Appends foreign text so that it stays on its line and cannot talk to the terminal: control characters become \n, \t or
 * \x1b, and bytes that are no UTF-8 question marks.
 */
void text_clean(struct buf *out, const char *text);

/* Columns that a terminal needs for the UTF-8 text: 0 for combining marks, 2 for wide characters, 1 for all others. */
size_t text_width(const char *text);

/* Appends `text`, cut with an ellipsis if it is wider than `width`; escape sequences are not expected in it. */
void text_clip(struct buf *out, const char *text, size_t width);

#define TABLE_COLUMNS_MAX 12

/* Columns as wide as their widest cell, two blanks apart. */
struct table {
    const char *const *headings;
    uint32_t n_columns;
    uint32_t right; /* bit i: column i is flush right */
    char **cells;   /* row by row */
    uint32_t n_cells;
    uint32_t cap;
};

/* The headings must live as long as the table. */
void table_init(struct table *table, const char *const *headings, uint32_t n_columns, uint32_t right);
void table_deinit(struct table *table);

/* The next cell, row by row. The text is cleaned; an empty one becomes "-". */
void table_cell(struct table *table, const char *text);
void table_format(struct table *table, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* As table_cell, but takes the text over from the buffer, which is then empty. */
void table_buf(struct table *table, struct buf *text);

struct table_style {
    bool bold_headings;
    size_t width; /* the last column is cut to fit; 0: it is not */
};

/* The last row must be complete. */
void table_print(const struct table *table, FILE *out, struct table_style style);

#endif
