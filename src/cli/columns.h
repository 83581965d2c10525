/*
 * columns.h - the columns of a result: what they are called, and how their cells become text.
 *
 * Ownership: columns_init copies all that it needs; columns_deinit frees. Threads: one at a time.
 */
#ifndef CAPSTAN_CLI_COLUMNS_H
#define CAPSTAN_CLI_COLUMNS_H

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

#endif
