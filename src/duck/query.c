/*
 * query.c - statements: run for their effect, for a few rows, or for a stream of Arrow arrays.
 *
 * A result that may be large is a streaming one, so that it is never held as a whole by DuckDB. That takes a prepared
 * statement, and DuckDB binds those that read files twice; so small results are had without.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "duck/duck_internal.h"
#include "duck/excerpt.h"

struct duck_result {
    struct duck_connection *connection;
    duckdb_prepared_statement statement;
    duckdb_result result;
    bool has_result;
    bool is_reading; /* in a transaction of duck__begin_reading */
    bool is_ended;   /* DuckDB takes it amiss to be asked again after the end */
    duckdb_arrow_options arrow;
    struct duck_shape shape; /* of the arrays that are handed out */
    bool has_shape;
    bool is_shortened;
};

static enum err bind_args(duckdb_prepared_statement statement, const struct duck_text *args, uint32_t n_args,
                          struct error *e)
{
    idx_t expected = duck__api.nparams(statement);
    if (expected != n_args) {
        return error_set(e, ERR_INVALID, "the statement has %" PRIu64 " parameters, but %" PRIu32 " are given",
                         (uint64_t)expected, n_args);
    }
    for (uint32_t i = 0; i < n_args; i++) {
        duckdb_state state = args[i].bytes == NULL
                                 ? duck__api.bind_null(statement, i + 1)
                                 : duck__api.bind_varchar_length(statement, i + 1, args[i].bytes, args[i].n);
        if (state != DuckDBSuccess) {
            return error_set(e, ERR_INVALID, "parameter %" PRIu32 " cannot be bound", i + 1);
        }
    }
    return ERR_OK;
}

/*
 * Prepares the last statement, after running those before it. There is more than one even where the user wrote one: PIVOT
 * makes a type first.
 */
static enum err prepare(struct duck_connection *connection, const char *sql, bool only_reads,
                        duckdb_prepared_statement *out, struct error *e)
{
    duckdb_extracted_statements statements = NULL;
    idx_t n = 0;
    enum err err = duck__extract(connection, sql, &statements, &n, e);
    for (idx_t i = 0; i < n && err == ERR_OK; i++) {
        duck__api.destroy_prepare(out);
        if (duck__api.prepare_extracted_statement(connection->connection, statements, i, out) != DuckDBSuccess) {
            err = duck__fail(connection, e, duck__api.prepare_error(*out));
        } else if (only_reads && i + 1 < n) {
            err = duck__check_before(*out, i, e);
        } else if (only_reads) {
            err = duck__check_last(connection, *out, sql, n, e);
        }
        if (err == ERR_OK && i + 1 < n) {
            err = duck__execute(connection, *out, e);
        }
    }
    duck__api.destroy_extracted(&statements);
    return err;
}

static enum err start(struct duck_connection *connection, const char *sql, bool only_reads,
                      const struct duck_text *args, uint32_t n_args, struct duck_result *result, struct error *e)
{
    duckdb_pending_result pending = NULL;
    duck__begin(connection);
    result->connection = connection;
    enum err err = only_reads ? duck__begin_reading(connection, e) : ERR_OK;
    result->is_reading = only_reads && err == ERR_OK;
    if (err == ERR_OK) {
        err = prepare(connection, sql, only_reads, &result->statement, e);
    }
    if (err == ERR_OK) {
        err = bind_args(result->statement, args, n_args, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    if (duck__api.pending_prepared_streaming(result->statement, &pending) != DuckDBSuccess) {
        err = duck__fail(connection, e, duck__api.pending_error(pending));
    } else {
        result->has_result = true;
        if (duck__api.execute_pending(pending, &result->result) != DuckDBSuccess) {
            err = duck__fail(connection, e, duck__api.result_error(&result->result));
        }
    }
    duck__api.destroy_pending(&pending);
    return err;
}

/* At once: DuckDB would bind a statement that reads files a second time if it were prepared first. */
static enum err run(struct duck_connection *connection, const char *sql, struct duck_result *result, struct error *e)
{
    duck__begin(connection);
    result->connection = connection;
    result->has_result = true;
    if (duck__api.query(connection->connection, sql, &result->result) != DuckDBSuccess) {
        return duck__fail(connection, e, duck__api.result_error(&result->result));
    }
    return ERR_OK;
}

static void finish(struct duck_result *result)
{
    if (result->arrow != NULL) {
        duck__api.destroy_arrow_options(&result->arrow);
    }
    if (result->has_result) {
        duck__api.destroy_result(&result->result);
    }
    duck__api.destroy_prepare(&result->statement);
    if (result->is_reading) {
        duck__end_reading(result->connection);
    }
}

enum err duck_run(struct duck_connection *connection, const char *sql, struct error *e)
{
    struct duck_result result = {0};
    enum err err = run(connection, sql, &result, e);
    finish(&result);
    return err;
}

/* The next chunk; NULL at the end, and after an error, which is then in `e`. */
static enum err fetch(struct duck_result *result, duckdb_data_chunk *out, struct error *e)
{
    duckdb_data_chunk chunk = result->is_ended ? NULL : duck__api.fetch_chunk(result->result);
    if (chunk == NULL && !result->is_ended) {
        result->is_ended = true;
        const char *text = duck__api.result_error(&result->result);
        if (text != NULL && text[0] != '\0') {
            return duck__fail(result->connection, e, text);
        }
    }
    *out = chunk;
    return ERR_OK;
}

/* Rows as texts. */

typedef void cell_fn(struct arena *arena, void *data, idx_t row, struct duck_text *out);

static void formatted(struct duck_text *out, const char *text)
{
    out->bytes = text;
    out->n = strlen(text);
}

static void cell_varchar(struct arena *arena, void *data, idx_t row, struct duck_text *out)
{
    duckdb_string_t *string = (duckdb_string_t *)data + row;
    out->n = duck__api.string_t_length(*string);
    char *copy = arena_alloc(arena, out->n + 1); /* DuckDB's own has no NUL after it */
    memcpy(copy, duck__api.string_t_data(string), out->n);
    copy[out->n] = '\0';
    out->bytes = copy;
}

static void cell_boolean(struct arena *arena, void *data, idx_t row, struct duck_text *out)
{
    UNUSED(arena);
    formatted(out, ((bool *)data)[row] ? "true" : "false");
}

static void cell_double(struct arena *arena, void *data, idx_t row, struct duck_text *out)
{
    formatted(out, arena_format(arena, "%.17g", ((double *)data)[row]));
}

#define INTEGER_CELL(name, type, format, wide)                                                                         \
    static void name(struct arena *arena, void *data, idx_t row, struct duck_text *out)                                \
    {                                                                                                                  \
        formatted(out, arena_format(arena, "%" format, (wide)((type *)data)[row]));                                    \
    }
INTEGER_CELL(cell_int8, int8_t, PRId64, int64_t)
INTEGER_CELL(cell_int16, int16_t, PRId64, int64_t)
INTEGER_CELL(cell_int32, int32_t, PRId64, int64_t)
INTEGER_CELL(cell_int64, int64_t, PRId64, int64_t)
INTEGER_CELL(cell_uint8, uint8_t, PRIu64, uint64_t)
INTEGER_CELL(cell_uint16, uint16_t, PRIu64, uint64_t)
INTEGER_CELL(cell_uint32, uint32_t, PRIu64, uint64_t)
INTEGER_CELL(cell_uint64, uint64_t, PRIu64, uint64_t)

static cell_fn *cell_of(duckdb_type type)
{
    static cell_fn *const cells[] = {
        [DUCKDB_TYPE_VARCHAR] = cell_varchar,  [DUCKDB_TYPE_BOOLEAN] = cell_boolean,
        [DUCKDB_TYPE_DOUBLE] = cell_double,    [DUCKDB_TYPE_TINYINT] = cell_int8,
        [DUCKDB_TYPE_SMALLINT] = cell_int16,   [DUCKDB_TYPE_INTEGER] = cell_int32,
        [DUCKDB_TYPE_BIGINT] = cell_int64,     [DUCKDB_TYPE_UTINYINT] = cell_uint8,
        [DUCKDB_TYPE_USMALLINT] = cell_uint16, [DUCKDB_TYPE_UINTEGER] = cell_uint32,
        [DUCKDB_TYPE_UBIGINT] = cell_uint64,
    };
    return (size_t)type < ARRAY_LEN(cells) ? cells[type] : NULL;
}

struct reader {
    struct arena arena; /* of one row */
    cell_fn **cells;
    struct duck_text *values;
    uint32_t n;
    duck_row_fn *row;
    void *context;
};

static enum err read_chunk(struct reader *reader, duckdb_data_chunk chunk, struct error *e)
{
    idx_t n_rows = duck__api.data_chunk_get_size(chunk);
    for (idx_t row = 0; row < n_rows; row++) {
        arena_reset(&reader->arena);
        for (uint32_t i = 0; i < reader->n; i++) {
            duckdb_vector vector = duck__api.data_chunk_get_vector(chunk, i);
            uint64_t *validity = duck__api.vector_get_validity(vector);
            reader->values[i] = (struct duck_text){0};
            if (validity == NULL || duck__api.validity_row_is_valid(validity, row)) {
                reader->cells[i](&reader->arena, duck__api.vector_get_data(vector), row, &reader->values[i]);
            }
        }
        enum err err = reader->row(reader->context, reader->values, reader->n, e);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static enum err read_all(struct reader *reader, struct duck_result *result, struct error *e)
{
    reader->n = (uint32_t)duck__api.column_count(&result->result);
    reader->cells = mem_calloc(reader->n, sizeof(cell_fn *));
    reader->values = mem_calloc(reader->n, sizeof(struct duck_text));
    for (uint32_t i = 0; i < reader->n; i++) {
        reader->cells[i] = cell_of(duck__api.column_type(&result->result, i));
        if (reader->cells[i] == NULL) {
            return error_set(e, ERR_INVALID, "column '%s' must be cast to VARCHAR",
                             duck__api.column_name(&result->result, i));
        }
    }
    for (;;) {
        duckdb_data_chunk chunk = NULL;
        enum err err = fetch(result, &chunk, e);
        if (err != ERR_OK || chunk == NULL) {
            return err;
        }
        err = read_chunk(reader, chunk, e);
        duck__api.destroy_data_chunk(&chunk);
        if (err != ERR_OK) {
            return err;
        }
    }
}

/* The rows of what was begun; ends it. */
static enum err hand_out(struct duck_result *result, enum err err, duck_row_fn *row, void *context, struct error *e)
{
    struct reader reader = {.row = row, .context = context};
    if (err == ERR_OK) {
        err = read_all(&reader, result, e);
    }
    mem_free(reader.cells);
    mem_free(reader.values);
    arena_deinit(&reader.arena);
    finish(result);
    return err;
}

enum err duck_rows(struct duck_connection *connection, const char *sql, const struct duck_text *args, uint32_t n_args,
                   duck_row_fn *row, void *context, struct error *e)
{
    struct duck_result result = {0};
    bool is_plain =
        n_args == 0 && duck_statements(connection, sql) == 1; /* of several it would give the first result */
    enum err err =
        is_plain ? run(connection, sql, &result, e) : start(connection, sql, false, args, n_args, &result, e);
    return hand_out(&result, err, row, context, e);
}

enum err duck_read_rows(struct duck_connection *connection, const char *sql, duck_row_fn *row, void *context,
                        struct error *e)
{
    struct duck_result result = {0};
    enum err err = start(connection, sql, true, NULL, 0, &result, e);
    return hand_out(&result, err, row, context, e);
}

enum err duck_copy(struct duck_connection *connection, const char *select, const char *to, duck_row_fn *row,
                   void *context, struct error *e)
{
    struct duck_result result = {.connection = connection};
    struct buf sql = {0};
    enum err err = duck__write_copy(&sql, connection, select, to, e);
    if (err == ERR_OK) {
        err = duck__begin_reading(connection, e);
        result.is_reading = err == ERR_OK;
    }
    if (err == ERR_OK) {
        err = run(connection, sql.data, &result, e);
    }
    duck_excerpt_without(e, "COPY (");
    err = hand_out(&result, err, row, context, e);
    buf_deinit(&sql);
    return err;
}

enum err duck_count(struct duck_connection *connection, const char *sql, uint64_t *out_rows, struct error *e)
{
    struct duck_result result = {0};
    uint64_t rows = 0;
    duckdb_data_chunk chunk = NULL;
    enum err err = run(connection, sql, &result, e);
    err = err == ERR_OK ? fetch(&result, &chunk, e) : err;
    while (err == ERR_OK && chunk != NULL) {
        rows += duck__api.data_chunk_get_size(chunk);
        duck__api.destroy_data_chunk(&chunk);
        err = fetch(&result, &chunk, e);
    }
    finish(&result);
    if (err == ERR_OK) {
        *out_rows = rows;
    }
    return err;
}

/* Streams. */

enum err duck_query(struct duck_connection *connection, const char *sql, struct duck_result **out, struct error *e)
{
    struct duck_result *result = mem_calloc(1, sizeof(*result));
    enum err err = start(connection, sql, true, NULL, 0, result, e);
    if (err != ERR_OK) {
        duck_result_close(result);
        return err;
    }
    result->arrow = duck__api.result_get_arrow_options(&result->result);
    *out = result;
    return ERR_OK;
}

void duck_result_close(struct duck_result *result)
{
    if (result == NULL) {
        return;
    }
    duck__shape_deinit(&result->shape);
    finish(result);
    mem_free(result);
}

void duck_result_shorten(struct duck_result *result)
{
    result->is_shortened = true;
}

/* DuckDB says in JSON that Arrow has nothing for a type, such as VARIANT. */
static enum err explain_type(struct error *e)
{
    static const char words[] = "Unsupported Arrow type ";
    const char *type = strstr(e->message, words);
    if (type == NULL) {
        return e->code;
    }
    char name[64];
    type += sizeof(words) - 1;
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(type, "\"}"), type);
    error_set(e, ERR_INVALID, "a column of type %s cannot be given out: Arrow has no such type", name);
    error_hint(e, "cast it, as in x::VARCHAR or x::JSON");
    return ERR_INVALID;
}

enum err duck__make_schema(struct duck_connection *connection, duckdb_arrow_options arrow, duckdb_logical_type *types,
                           const char *const *names, idx_t n, struct ArrowSchema *out, bool *out_has_bools,
                           struct error *e)
{
    struct ArrowSchema schema = {0};
    const char **texts = mem_calloc(n, sizeof(char *)); /* DuckDB wants to be able to write there */
    for (idx_t i = 0; i < n; i++) {
        texts[i] = names[i];
    }
    enum err err = duck__take_error(connection, duck__api.to_arrow_schema(arrow, types, texts, n, &schema), e);
    if (err != ERR_OK) {
        err = explain_type(e);
    }
    if (err == ERR_OK) {
        *out_has_bools = duck__bools_in_schema(&schema);
        *out = schema;
    }
    mem_free((void *)texts);
    return err;
}

static enum err make_shape(struct duck_result *result, struct duck_shape *out, struct error *e)
{
    idx_t n = duck__api.column_count(&result->result);
    duckdb_logical_type *types = mem_calloc(n, sizeof(duckdb_logical_type));
    const char **names = mem_calloc(n, sizeof(char *));
    for (idx_t i = 0; i < n; i++) {
        types[i] = duck__api.column_logical_type(&result->result, i);
        names[i] = duck__api.column_name(&result->result, i);
    }
    enum err err = duck__shape_init(out, result->connection, result->arrow, types, names, n, result->is_shortened, e);
    for (idx_t i = 0; i < n; i++) {
        duck__api.destroy_logical_type(&types[i]);
    }
    mem_free(types);
    mem_free((void *)names);
    return err;
}

enum err duck_result_schema(struct duck_result *result, struct ArrowSchema *out_schema, struct error *e)
{
    struct duck_shape shape = {0};
    enum err err = make_shape(result, &shape, e);
    if (err == ERR_OK) {
        duck__refit_schema(&shape.schema, result->is_shortened);
        *out_schema = shape.schema;
    }
    return err;
}

enum err duck_result_next(struct duck_result *result, struct ArrowArray *out_array, struct error *e)
{
    duckdb_data_chunk chunk = NULL;
    enum err err = fetch(result, &chunk, e);
    if (err != ERR_OK || chunk == NULL) {
        *out_array = err == ERR_OK ? (struct ArrowArray){0} : *out_array;
        return err;
    }
    if (!result->has_shape) {
        err = make_shape(result, &result->shape, e);
        result->has_shape = err == ERR_OK;
    }
    if (err == ERR_OK) {
        err = duck__convert(result->connection, result->arrow, &result->shape, chunk, out_array, e);
    }
    duck__api.destroy_data_chunk(&chunk);
    return err;
}
