#include "integration/exchange/sql.h"

#include "base/num.h"

enum err sql_write(struct duck_connection *connection, const char *query, const struct exchange_writer_options *options,
                   struct ipc_tally *out_tallies, struct error *e)
{
    struct duck_result *result = NULL;
    struct exchange_writer *writer = NULL;
    struct ArrowSchema schema = {0};
    bool is_over = false;
    enum err err = duck_query(connection, query, &result, e);
    if (err == ERR_OK) {
        err = duck_result_schema(result, &schema, e);
    }
    if (err == ERR_OK) {
        err = exchange_writer_open(options, &schema, &writer, e);
        schema.release(&schema);
    }
    while (err == ERR_OK && !is_over) {
        struct ArrowArray array = {0};
        err = duck_result_next(result, &array, e);
        is_over = array.release == NULL;
        if (err == ERR_OK && !is_over) {
            err = exchange_writer_append(writer, &array, e);
            array.release(&array);
        }
    }
    if (err == ERR_OK) {
        err = exchange_writer_finish(writer, out_tallies, e);
    }
    exchange_writer_close(writer);
    duck_result_close(result);
    return err;
}

enum err sql_read(struct duck_connection *connection, const char *name, const struct exchange_source *sources,
                  uint32_t n, const struct exchange_fetch_options *options, struct error *e)
{
    struct exchange_fetch *fetch = NULL;
    struct ArrowArrayStream stream;
    enum err err = exchange_fetch_open(sources, n, options, &fetch, e);
    if (err != ERR_OK) {
        return err;
    }
    exchange_fetch_stream(fetch, &stream);
    exchange_fetch_close(fetch);
    struct duck_input input = {.name = name};
    return duck_register(connection, &input, &stream, e);
}

static enum err take_number(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    bool is_ok = n == 1 && values[0].bytes != NULL && num_parse_int(values[0].bytes, context);
    return is_ok ? ERR_OK : error_set(e, ERR_INVALID, "not one number");
}

enum err sql_number(struct duck_connection *connection, const char *query, int64_t *out, struct error *e)
{
    return duck_rows(connection, query, NULL, 0, take_number, out, e);
}
