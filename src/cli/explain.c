#include "cli/explain.h"

#include <string.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/text.h"
#include "exchange/columns.h"

/* Appends the cell of the first row in the column called `name`. */
static enum err read_cell(struct rows *rows, const char *name, struct buf *out, struct error *e)
{
    const struct ArrowSchema *schema = NULL;
    struct ArrowArray batch = {0};
    struct columns columns = {0};
    enum err err = rows_schema(rows, &schema, e);
    if (err == ERR_OK) {
        err = columns_init(&columns, schema, e);
    }
    if (err == ERR_OK) {
        err = rows_next(rows, &batch, e);
    }
    if (err == ERR_OK) {
        err = error_set(e, ERR_INTERNAL, "the answer has no '%s' in it", name);
        for (uint32_t i = 0; i < columns.n && batch.release != NULL; i++) {
            if (strcmp(columns.columns[i].name, name) == 0 && columns_text(&columns, &batch, i, 0, out)) {
                err = ERR_OK;
            }
        }
    }
    if (batch.release != NULL) {
        batch.release(&batch);
    }
    columns_deinit(&columns);
    return err;
}

/* The text has words of the query in it, which must not talk to a terminal. */
static void clean_lines(const char *text, struct buf *out)
{
    while (*text != '\0') {
        struct buf line = {0};
        size_t n = strcspn(text, "\n");
        buf_append(&line, text, n);
        text_clean(out, line.data);
        buf_char(out, '\n');
        buf_deinit(&line);
        text += n + (text[n] == '\n' ? 1 : 0);
    }
}

enum err explain_print(struct cli *cli, const char *job_id, bool wants_plan, const char *path, struct error *e)
{
    struct output output = {0};
    struct rows *rows = NULL;
    struct buf text = {0};
    struct buf lines = {0};
    enum err err = cli_rows(cli, job_id, NULL, NULL, &rows, e);
    if (err == ERR_OK) {
        err = read_cell(rows, wants_plan ? "plan" : "explain", &text, e);
    }
    if (err == ERR_OK) {
        if (wants_plan) {
            buf_append(&lines, text.data, text.n);
            buf_char(&lines, '\n');
        } else {
            clean_lines(text.data != NULL ? text.data : "", &lines);
        }
        err = output_open(cli, path, true, &output, e);
    }
    if (err == ERR_OK) {
        err = output_flush(&output, &lines, e);
    }
    if (err == ERR_OK) {
        err = output_finish(&output, e);
    }
    output_close(&output);
    rows_close(rows);
    buf_deinit(&text);
    buf_deinit(&lines);
    return err;
}
