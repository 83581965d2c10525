#include "coordinator/rows_json.h"

#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "exchange/ipc.h"
#include "exchange/text.h"

/* Of one message. Workers cut batches of a few megabytes; only a single very long row makes a larger one. */
#define BATCH_BYTES_MAX (64ULL * 1024 * 1024)

struct rows_column {
    const char *member; /* its name as JSON, with the colon */
    struct text_type *type;
};

struct rows_json {
    struct ipc_assembler assembler;
    struct ipc_reader *reader;
    struct arena arena; /* names */
    struct rows_column *columns;
    uint32_t n_columns;
    bool has_schema;
    struct buf text; /* the rows, separated by commas */
    struct buf row;  /* the next one */
    uint32_t n_rows;
    uint32_t rows_max;
    size_t bytes_max;
    bool is_full;
};

struct rows_json *rows_json_new(uint32_t rows_max, size_t bytes_max)
{
    struct rows_json *rows = mem_calloc(1, sizeof *rows);
    rows->reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = false});
    rows->rows_max = rows_max;
    rows->bytes_max = bytes_max;
    return rows;
}

void rows_json_free(struct rows_json *rows)
{
    if (rows == NULL) {
        return;
    }
    for (uint32_t i = 0; i < rows->n_columns; i++) {
        text_type_free(rows->columns[i].type);
    }
    ipc_assembler_deinit(&rows->assembler);
    ipc_reader_free(rows->reader);
    arena_deinit(&rows->arena);
    buf_deinit(&rows->text);
    buf_deinit(&rows->row);
    mem_free(rows);
}

/* ---- columns ---- */

static const char *own_name(const struct ArrowSchema *schema, int64_t at)
{
    return schema->children[at]->name == NULL ? "" : schema->children[at]->name;
}

/* Whether one of the first `n` columns, whose names are known, or a later one is called so. */
static bool is_taken(const struct ArrowSchema *schema, int64_t n, const char *const *names, const char *name)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (strcmp(i < n ? names[i] : own_name(schema, i), name) == 0) {
            return true;
        }
    }
    return false;
}

/* Its own name, if it is the first with it; else one that no column has. */
static const char *name_column(struct rows_json *rows, const struct ArrowSchema *schema, int64_t at,
                               const char *const *names)
{
    const char *name = own_name(schema, at);
    bool is_repeated = false;
    for (int64_t i = 0; i < at && !is_repeated; i++) {
        is_repeated = strcmp(names[i], name) == 0;
    }
    for (unsigned i = 1; is_repeated && is_taken(schema, at, names, name); i++) {
        name = arena_format(&rows->arena, "%s_%u", own_name(schema, at), i);
    }
    return name;
}

static enum err take_schema(struct rows_json *rows, const struct ArrowSchema *schema, struct error *e)
{
    const char **names = arena_zalloc(&rows->arena, (size_t)schema->n_children * sizeof *names);
    struct buf member = {0};
    enum err err = ERR_OK;
    rows->columns = arena_zalloc(&rows->arena, (size_t)schema->n_children * sizeof *rows->columns);
    rows->has_schema = true;
    for (int64_t i = 0; i < schema->n_children && err == ERR_OK; i++) {
        struct rows_column *column = &rows->columns[i];
        names[i] = name_column(rows, schema, i, names);
        buf_reset(&member);
        json_write_text(&member, names[i]);
        buf_char(&member, ':');
        column->member = arena_strdup(&rows->arena, member.data);
        err = text_type_new(schema->children[i], &column->type, e);
        rows->n_columns += err == ERR_OK;
    }
    buf_deinit(&member);
    return err;
}

/* ---- rows ---- */

static void take_row(struct rows_json *rows, const struct ArrowArray *batch, int64_t row)
{
    struct buf *text = &rows->row;
    size_t room = rows->bytes_max - rows->text.n;
    if (rows->n_rows == rows->rows_max) {
        rows->is_full = true;
        return;
    }
    buf_reset(text);
    buf_text(text, rows->n_rows == 0 ? "{" : ",{");
    for (uint32_t c = 0; c < rows->n_columns && text->n <= room; c++) {
        buf_text(text, c == 0 ? "" : ",");
        buf_text(text, rows->columns[c].member);
        text_cell_json(text, rows->columns[c].type, batch->children[c], batch->offset + row);
    }
    buf_char(text, '}');
    if (text->n + 2 > room) { /* with the brackets of the array */
        rows->is_full = true;
        return;
    }
    buf_append(&rows->text, text->data, text->n);
    rows->n_rows++;
}

static enum err take_message(struct rows_json *rows, struct block *message, size_t n, struct error *e)
{
    struct ArrowArray batch = {.release = NULL};
    enum err err = ipc_reader_message(rows->reader, message, 0, n, &batch, e);
    if (err == ERR_OK && !rows->has_schema && ipc_reader_schema(rows->reader) != NULL) {
        err = take_schema(rows, ipc_reader_schema(rows->reader), e);
    }
    for (int64_t i = 0; err == ERR_OK && batch.release != NULL && i < batch.length && !rows->is_full; i++) {
        take_row(rows, &batch, i);
    }
    if (batch.release != NULL) {
        batch.release(&batch);
    }
    return err;
}

enum err rows_json_feed(struct rows_json *rows, const void *bytes, size_t n, struct error *e)
{
    const uint8_t *at = bytes;
    enum err err = ERR_OK;
    while (n > 0 && err == ERR_OK && !rows->is_full) {
        struct block *message = NULL;
        size_t taken = 0;
        err = ipc_assembler_feed(&rows->assembler, at, n, &taken, &message, e);
        at += taken;
        n -= taken;
        if (message != NULL) {
            err = take_message(rows, message, message->n, e);
            block_unref(message);
        } else if (err == ERR_OK && rows->assembler.wants > BATCH_BYTES_MAX) {
            err = error_set(e, ERR_EXHAUSTED, "a batch of its rows has %llu bytes, which is too much for a result",
                            (unsigned long long)rows->assembler.wants);
        } else if (err == ERR_OK && rows->assembler.wants > 0) {
            ipc_assembler_admit(&rows->assembler);
        }
    }
    return err;
}

bool rows_json_is_full(const struct rows_json *rows)
{
    return rows->is_full;
}

uint32_t rows_json_count(const struct rows_json *rows)
{
    return rows->n_rows;
}

void rows_json_write(const struct rows_json *rows, struct buf *out)
{
    buf_char(out, '[');
    buf_append(out, rows->text.data, rows->text.n);
    buf_char(out, ']');
}
