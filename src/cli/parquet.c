#include "cli/parquet.h"

#include <errno.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/output.h"
#include "duck/duck.h"
#include "exchange/columns.h"
#include "exchange/schema.h"

#define THREADS 2
#define TABLE "capstan_rows"

/* The rows as a stream of the C interface. */
struct source {
    struct rows *rows;
    struct ArrowSchema schema; /* with names that differ */
    struct error e;
    uint64_t n_rows;
};

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    struct source *source = stream->private_data;
    schema_copy(&source->schema, out);
    return 0;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct source *source = stream->private_data;
    struct ArrowArray batch = {0};
    if (rows_next(source->rows, &batch, &source->e) != ERR_OK) {
        return EIO;
    }
    source->n_rows += batch.release != NULL ? (uint64_t)batch.length : 0;
    *out = batch;
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream)
{
    struct source *source = stream->private_data;
    return source->e.message;
}

/* The source is its maker's. */
static void release(struct ArrowArrayStream *stream)
{
    stream->release = NULL;
}

static enum err source_init(struct source *source, struct cli *cli, const char *job_id, struct error *e)
{
    const struct ArrowSchema *schema = NULL;
    struct columns columns = {0};
    enum err err = cli_rows(cli, job_id, NULL, NULL, &source->rows, e);
    if (err == ERR_OK) {
        err = rows_schema(source->rows, &schema, e);
    }
    if (err == ERR_OK) {
        err = columns_init(&columns, schema, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    schema_copy(schema, &source->schema);
    for (uint32_t i = 0; i < columns.n; i++) {
        struct ArrowSchema *child = source->schema.children[i];
        mem_free((char *)child->name);
        child->name = mem_strdup(columns.columns[i].unique);
    }
    columns_deinit(&columns);
    return ERR_OK;
}

static void source_deinit(struct source *source)
{
    schema_release(&source->schema);
    rows_close(source->rows);
}

static enum err copy(struct source *source, const char *path, struct error *e)
{
    struct duck *duck = NULL;
    struct duck_connection *connection = NULL;
    struct duck_input input = {.name = TABLE};
    struct ArrowArrayStream stream = {.get_schema = get_schema,
                                      .get_next = get_next,
                                      .get_last_error = get_last_error,
                                      .release = release,
                                      .private_data = source};
    struct buf sql = {0};
    enum err err = duck_open(&(struct duck_options){.threads = THREADS}, &duck, e);
    if (err == ERR_OK) {
        err = duck_connect(duck, &connection, e);
    }
    if (err == ERR_OK) {
        err = duck_register(connection, &input, &stream, e);
    }
    if (err == ERR_OK) {
        buf_text(&sql, "COPY (SELECT * FROM " TABLE ") TO '");
        for (const char *p = path; *p != '\0'; p++) {
            buf_text(&sql, *p == '\'' ? "'" : "");
            buf_char(&sql, *p);
        }
        buf_text(&sql, "' (FORMAT parquet)");
        err = duck_run(connection, sql.data, e);
    }
    /* What went wrong with the rows says more than that the query over them failed. */
    if (err != ERR_OK && source->e.code != ERR_OK) {
        *e = source->e;
        err = source->e.code;
    }
    buf_deinit(&sql);
    duck_disconnect(connection);
    duck_close(duck);
    return err;
}

enum err parquet_write(struct cli *cli, const char *job_id, const char *path, uint64_t *out_rows, struct error *e)
{
    struct source source = {0};
    struct output output = {0};
    enum err err = source_init(&source, cli, job_id, e);
    if (err == ERR_OK) {
        err = output_open(cli, path, false, &output, e);
    }
    if (err == ERR_OK) {
        err = copy(&source, output.temporary, e);
    }
    if (err == ERR_OK) {
        err = output_finish(&output, e);
    }
    if (err == ERR_OK) {
        *out_rows = source.n_rows;
    }
    output_close(&output);
    source_deinit(&source);
    return err;
}
