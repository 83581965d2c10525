/*
 * print.c - formats that are made row by row are a table of three functions each; parquet and arrow go their own ways.
 */
#include "cli/print.h"

#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/grid.h"
#include "cli/output.h"
#include "cli/parquet.h"
#include "exchange/columns.h"

#define FLUSH_BYTES ((size_t)64 * 1024)

struct printer {
    const struct format *format;
    struct output output;
    struct columns columns;
    struct grid grid;
    struct buf text; /* to be written */
    struct buf cell;
    uint64_t rows;
};

struct format {
    const char *name;
    void (*begin)(struct printer *printer);
    void (*row)(struct printer *printer, const struct ArrowArray *batch, int64_t row);
    void (*end)(struct printer *printer);
};

static void nothing(struct printer *p)
{
    (void)p;
}

static void table_row(struct printer *p, const struct ArrowArray *batch, int64_t row)
{
    grid_row(&p->grid, batch, row, &p->text);
}

static void table_end(struct printer *p)
{
    grid_end(&p->grid, &p->text);
}

/* ---- csv ---- */

static void csv_begin(struct printer *p)
{
    columns_csv_names(&p->columns, &p->text);
}

static void csv_row(struct printer *p, const struct ArrowArray *batch, int64_t row)
{
    columns_csv_row(&p->columns, batch, row, &p->cell, &p->text);
}

/* ---- json ---- */

static void json_begin(struct printer *p)
{
    columns_json_head(&p->columns, &p->text);
}

static void json_row(struct printer *p, const struct ArrowArray *batch, int64_t row)
{
    buf_text(&p->text, p->rows == 0 ? "" : ",");
    columns_json_row(&p->columns, batch, row, &p->text);
}

static void json_end(struct printer *p)
{
    buf_text(&p->text, COLUMNS_JSON_END);
}

static void jsonl_row(struct printer *p, const struct ArrowArray *batch, int64_t row)
{
    buf_char(&p->text, '{');
    for (uint32_t i = 0; i < p->columns.n; i++) {
        buf_text(&p->text, i == 0 ? "" : ",");
        json_write_text(&p->text, p->columns.columns[i].unique);
        buf_char(&p->text, ':');
        columns_json(&p->columns, batch, i, row, &p->text);
    }
    buf_text(&p->text, "}\n");
}

/* ---- all of them ---- */

static const struct format formats[] = {
    {"table", nothing, table_row, table_end},
    {"csv", csv_begin, csv_row, nothing},
    {"json", json_begin, json_row, json_end},
    {"jsonl", nothing, jsonl_row, nothing},
};

static const struct format *find_format(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

enum err print_check(struct cli *cli, const char *format, const char *path, struct error *e)
{
    bool is_parquet = strcmp(format, "parquet") == 0;
    if (is_parquet && path == NULL) {
        error_set(e, ERR_INVALID, "-o parquet needs a file: its end is written before its beginning is known");
        error_hint(e, "say where: --out FILE");
        return ERR_INVALID;
    }
    if (strcmp(format, "arrow") == 0 && path == NULL && cli->out_is_terminal) {
        error_set(e, ERR_INVALID, "-o arrow is not for a terminal");
        error_hint(e, "write it to a file with --out FILE, or into a pipe");
        return ERR_INVALID;
    }
    return output_check(cli, path, !is_parquet, e);
}

static enum err print_batch(struct printer *p, const struct ArrowArray *batch, struct error *e)
{
    for (int64_t row = 0; row < batch->length; row++) {
        p->format->row(p, batch, row);
        p->rows++;
        if (p->text.n >= FLUSH_BYTES) {
            enum err err = output_flush(&p->output, &p->text, e);
            if (err != ERR_OK) {
                return err;
            }
        }
    }
    return ERR_OK;
}

static enum err print_all(struct printer *p, struct rows *rows, struct error *e)
{
    p->format->begin(p);
    for (;;) {
        struct ArrowArray batch = {0};
        enum err err = rows_next(rows, &batch, e);
        if (err != ERR_OK) {
            return err;
        }
        if (batch.release == NULL) {
            break;
        }
        err = print_batch(p, &batch, e);
        batch.release(&batch);
        if (err != ERR_OK) {
            return err;
        }
    }
    p->format->end(p);
    enum err err = output_flush(&p->output, &p->text, e);
    return err == ERR_OK ? output_finish(&p->output, e) : err;
}

static enum err print_text(struct cli *cli, const struct print_request *request, struct print_result *out,
                           struct error *e)
{
    struct printer p = {.format = find_format(request->format)};
    struct rows *rows = NULL;
    const struct ArrowSchema *schema = NULL;
    enum err err = cli_rows(cli, request->job_id, NULL, NULL, &rows, e);
    if (err == ERR_OK) {
        err = rows_schema(rows, &schema, e);
    }
    if (err == ERR_OK) {
        err = columns_init(&p.columns, schema, e);
    }
    if (err == ERR_OK) {
        err = output_open(cli, request->path, true, &p.output, e);
    }
    if (err == ERR_OK) {
        bool is_on_terminal = request->path == NULL;
        grid_init(&p.grid, &p.columns, is_on_terminal ? cli_table_width(cli) : 0,
                  is_on_terminal && cli->has_colors_out);
        err = print_all(&p, rows, e);
        grid_deinit(&p.grid);
    }
    out->rows = p.rows;
    out->reader_is_gone = p.output.reader_is_gone;
    output_close(&p.output);
    columns_deinit(&p.columns);
    buf_deinit(&p.text);
    buf_deinit(&p.cell);
    rows_close(rows);
    return err;
}

/* ---- arrow ---- */

static enum err write_bytes(void *context, const uint8_t *bytes, size_t n, struct error *e)
{
    return output_write(context, bytes, n, e);
}

/* The bytes go out as they come; that they are read as well shows whether they are whole. */
static enum err print_arrow(struct cli *cli, const struct print_request *request, struct print_result *out,
                            struct error *e)
{
    struct output output = {0};
    struct rows *rows = NULL;
    struct ArrowArray batch = {0};
    enum err err = output_open(cli, request->path, true, &output, e);
    if (err == ERR_OK) {
        err = cli_rows(cli, request->job_id, write_bytes, &output, &rows, e);
    }
    while (err == ERR_OK) {
        err = rows_next(rows, &batch, e);
        if (err != ERR_OK || batch.release == NULL) {
            break;
        }
        out->rows += (uint64_t)batch.length;
        batch.release(&batch);
    }
    if (err == ERR_OK) {
        err = output_finish(&output, e);
    }
    out->reader_is_gone = output.reader_is_gone;
    output_close(&output);
    rows_close(rows);
    return err;
}

enum err print_rows(struct cli *cli, const struct print_request *request, struct print_result *out, struct error *e)
{
    *out = (struct print_result){0};
    if (strcmp(request->format, "parquet") == 0) {
        return parquet_write(cli, request->job_id, request->path, &out->rows, e);
    }
    if (strcmp(request->format, "arrow") == 0) {
        return print_arrow(cli, request, out, e);
    }
    return print_text(cli, request, out, e);
}
