#include "main/row_sum.h"

#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "base/siphash.h"
#include "exchange/text.h"

struct row_sum_column {
    struct text_type *type;
    bool is_inexact;
};

static const struct siphash_key sum_key = {0}; /* nobody chooses rows so that their sums are the same */

enum err row_sum_open(struct row_sum *sum, const struct ArrowSchema *schema, struct error *e)
{
    enum err err = ERR_OK;
    *sum = (struct row_sum){.n_columns = (uint32_t)schema->n_children};
    sum->columns = mem_calloc(sum->n_columns + 1, sizeof *sum->columns);
    for (uint32_t i = 0; i < sum->n_columns && err == ERR_OK; i++) {
        const char *format = schema->children[i]->format;
        sum->columns[i].is_inexact = strcmp(format, "g") == 0 || strcmp(format, "f") == 0;
        err = text_type_new(schema->children[i], &sum->columns[i].type, e);
        if (err == ERR_OK) { /* columns count, too, so that a result without rows has a sum of its own */
            buf_format(&sum->row, "%s ", schema->children[i]->name);
            text_type_name(&sum->row, sum->columns[i].type);
            buf_char(&sum->row, '\0');
        }
    }
    sum->value = siphash(&sum_key, sum->row.data, sum->row.n);
    return err;
}

void row_sum_close(struct row_sum *sum)
{
    for (uint32_t i = 0; i < sum->n_columns; i++) {
        text_type_free(sum->columns[i].type);
    }
    mem_free(sum->columns);
    buf_deinit(&sum->row);
    buf_deinit(&sum->cell);
    *sum = (struct row_sum){.value = sum->value};
}

/* A number with fewer digits, and zero without its sign. What is none, such as an infinity, stays as it is. */
static void append_rounded(struct buf *row, const struct buf *cell)
{
    double number = 0;
    if (num_parse(cell->data, &number)) {
        buf_format(row, "%.9g", number == 0 ? 0 : number);
    } else {
        buf_append(row, cell->data, cell->n);
    }
}

void row_sum_add(struct row_sum *sum, const struct ArrowArray *batch)
{
    for (int64_t i = 0; i < batch->length; i++) {
        buf_reset(&sum->row);
        for (uint32_t k = 0; k < sum->n_columns; k++) {
            const struct row_sum_column *column = &sum->columns[k];
            buf_reset(&sum->cell);
            bool is_null = !text_cell(&sum->cell, column->type, batch->children[k], i);
            buf_char(&sum->row, is_null ? 'n' : 'v'); /* NULL is not the empty text */
            if (column->is_inexact) {
                append_rounded(&sum->row, &sum->cell);
            } else {
                buf_append(&sum->row, sum->cell.data, sum->cell.n);
            }
            buf_char(&sum->row, '\0');
        }
        sum->value += siphash(&sum_key, sum->row.data, sum->row.n);
    }
}
