#include "query/operators.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "duck/duck.h"

enum err operator_sql(struct buf *sql, const char *op, const char *config_json, const char *from, struct error *e)
{
    struct json *config = NULL;
    int64_t by = 5;
    if (strcmp(op, "count") == 0) {
        buf_format(sql, "SELECT count(*) AS n FROM %s", from);
        return ERR_OK;
    }
    if (strcmp(op, "add") != 0) {
        return error_set(e, ERR_NOT_FOUND, "custom physical operator '%s' is not registered on worker", op);
    }
    enum err err = json_parse(config_json, strlen(config_json), &config, e);
    if (err == ERR_OK && json_has(config, "by") && !json_int(json_get(config, "by"), &by)) {
        err = error_set(e, ERR_INVALID, "add: \"by\" must be a whole number");
    }
    buf_format(sql, "SELECT * REPLACE (CAST(a + %" PRId64 " AS BIGINT) AS a) FROM %s", by, from);
    json_free(config);
    return err;
}

/* A stream with the columns and no rows. */

static void keep(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    *out = *(const struct ArrowSchema *)stream->private_data;
    out->release = keep;
    return 0;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    UNUSED(stream);
    *out = (struct ArrowArray){0};
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream)
{
    UNUSED(stream);
    return NULL;
}

static void end(struct ArrowArrayStream *stream)
{
    stream->release = NULL;
}

enum err operator_columns(void *context, const char *op, const char *config_json, const struct ArrowSchema *in,
                          struct ArrowSchema *out, struct error *e)
{
    struct duck_connection *connection = context;
    struct buf sql = {0};
    struct duck_result *result = NULL;
    struct ArrowSchema columns = *in;
    struct duck_input input = {.name = "operator_empty"};
    struct ArrowArrayStream stream = {.get_schema = get_schema,
                                      .get_next = get_next,
                                      .get_last_error = get_last_error,
                                      .release = end,
                                      .private_data = &columns};
    enum err err = operator_sql(&sql, op, config_json, "operator_empty", e);
    if (err == ERR_OK) {
        err = duck_register(connection, &input, &stream, e);
    }
    if (err == ERR_OK) {
        err = duck_query(connection, sql.data, &result, e);
    }
    if (err == ERR_OK) {
        err = duck_result_schema(result, out, e);
    }
    duck_result_close(result);
    duck_unregister(connection, "operator_empty");
    buf_deinit(&sql);
    return err;
}
