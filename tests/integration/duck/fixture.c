#include "duck/fixture.h"

struct fixture fixture_open(const struct duck_options *options)
{
    struct fixture f = {0};
    struct error e = {0};
    CHECK_ERR(duck_open(options, &f.duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(f.duck, &f.connection, &e), ERR_OK);
    return f;
}

void fixture_close(struct fixture *f)
{
    duck_disconnect(f->connection);
    duck_close(f->duck);
    buf_deinit(&f->text);
}

static enum err add_row(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(e);
    struct buf *text = context;
    buf_text(text, text->n > 0 ? ";" : "");
    for (uint32_t i = 0; i < n; i++) {
        buf_text(text, i > 0 ? "," : "");
        if (values[i].bytes == NULL) {
            buf_text(text, "null");
        } else {
            buf_append(text, values[i].bytes, values[i].n);
        }
    }
    return ERR_OK;
}

const char *rows_of(struct fixture *f, struct duck_connection *connection, const char *sql)
{
    struct error e = {0};
    buf_reset(&f->text);
    buf_text(&f->text, "");
    enum err err = duck_rows(connection, sql, NULL, 0, add_row, &f->text, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    return f->text.data;
}
