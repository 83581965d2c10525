/*
 * columns.h - the columns of a result: what they are called, and how their cells and rows become text.
 *
 * Rows as CSV: names in the first line; RFC 4180 quotes; NULL is nothing at all, an empty text is "". As JSON:
 * {"columns":[{"name","type"}...],"rows":[[...]...]}. What the values look like is told in text.h.
 *
 * Ownership: columns_init copies all that it needs; columns_deinit frees. Threads: one at a time.
 */
#ifndef CAPSTAN_EXCHANGE_COLUMNS_H
#define CAPSTAN_EXCHANGE_COLUMNS_H

#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"
#include "exchange/text.h"

struct column {
    char *name;
    char *unique; /* the same, but followed by _1, _2, ... if an earlier column is called so, whatever the case */
    char *type_name;
    struct text_type *type;
    uint32_t n_alike; /* the number behind the last one that would be called so */
};

struct columns {
    struct column *columns;
    uint32_t n;
};

/* Of a schema whose root is a struct. */
MUST_USE enum err columns_init(struct columns *columns, const struct ArrowSchema *schema, struct error *e);
void columns_deinit(struct columns *columns);

/* Cell of a batch whose root is a struct; as text_cell and text_cell_json. */
bool columns_text(const struct columns *columns, const struct ArrowArray *batch, uint32_t column, int64_t row,
                  struct buf *out);
void columns_json(const struct columns *columns, const struct ArrowArray *batch, uint32_t column, int64_t row,
                  struct buf *out);

/* CSV: the first line, and a row; `cell` is scratch. */
void columns_csv_names(const struct columns *columns, struct buf *out);
void columns_csv_row(const struct columns *columns, const struct ArrowArray *batch, int64_t row, struct buf *cell,
                     struct buf *out);

/* JSON: what stands before the first row, and a row without the comma before it. COLUMNS_JSON_END follows the last. */
void columns_json_head(const struct columns *columns, struct buf *out);
void columns_json_row(const struct columns *columns, const struct ArrowArray *batch, int64_t row, struct buf *out);
#define COLUMNS_JSON_END "]}\n"

#endif
