/*
 * stream.c - Arrow streams as tables.
 *
 * DuckDB's own way, duckdb_arrow_scan, pushes projections and filters down into a stream that knows nothing of them, and
 * so yields wrong rows. Here is a table function instead, capstan_stream('id'): it is told which columns are wanted and
 * converts only these, filters stay above it, and it says how many rows to expect, which decides the order of joins.
 *
 * Any number of threads scan: each takes an array from the stream, one at a time, and then hands it out in pieces of a
 * vector's size, column by column. A conversion gives the ownership of the array to the vector of its first column only,
 * so each column is converted as an array of its own.
 *
 * The name that was asked for becomes a temporary view, which only its connection sees.
 */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/random.h"
#include "duck/duck_internal.h"
#include "duck/slice.h"

#define CHOSEN_GUESS 5
#define SECRET_DIGITS 16

struct duck_table {
    struct duck_connection *connection;
    char *name;
    char *id; /* NULL for a table that is kept: there is no stream any more */
    uint64_t rows;
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    int64_t n_columns;
    duckdb_logical_type *types;
    duckdb_arrow_converted_schema *converted;
    pthread_mutex_t mutex; /* guards the stream while it is scanned, and the next two */
    bool is_started;
    bool is_ended;                  /* or failed: it is not asked again */
    struct duck_table *next;        /* of the connection */
    struct duck_table *next_stream; /* of the instance */
};

/* What one thread of a scan has at hand. */
struct scan_local {
    struct slice_whole *whole; /* NULL: fetch the next one */
    int64_t at;                /* the next row of it */
    idx_t n_columns;
    idx_t *columns; /* which columns are wanted */
};

static void release_stream(struct ArrowArrayStream *stream)
{
    if (stream->release != NULL) {
        stream->release(stream);
        stream->release = NULL;
    }
}

/* The table function. */

static struct duck_table *find_stream(struct duck *duck, const char *id)
{
    (void)pthread_mutex_lock(&duck->mutex);
    struct duck_table *table = duck->streams;
    while (table != NULL && strcmp(table->id, id) != 0) {
        table = table->next_stream;
    }
    (void)pthread_mutex_unlock(&duck->mutex);
    return table;
}

static void bind_stream(duckdb_bind_info info)
{
    duckdb_value value = duck__api.bind_get_parameter(info, 0);
    char *id = duck__api.get_varchar(value);
    struct duck_table *table = find_stream(duck__api.bind_get_extra_info(info), id);
    if (table == NULL) {
        duck__api.bind_set_error(info, "capstan_stream is for Capstan's workers only");
    } else {
        for (int64_t i = 0; i < table->n_columns; i++) {
            const char *name = table->schema.children[i]->name;
            duck__api.bind_add_result_column(info, name != NULL ? name : "", table->types[i]);
        }
        if (table->rows > 0) {
            duck__api.bind_set_cardinality(info, table->rows, false);
        }
        duck__api.bind_set_bind_data(info, table, NULL);
    }
    duck__api.free(id);
    duck__api.destroy_value(&value);
}

static void init_stream(duckdb_init_info info)
{
    struct duck_table *table = duck__api.init_get_bind_data(info);
    (void)pthread_mutex_lock(&table->mutex);
    bool was_started = table->is_started;
    table->is_started = true;
    (void)pthread_mutex_unlock(&table->mutex);
    if (was_started) {
        duck__api.init_set_error(info, "an Arrow stream can be read only once");
    }
    duck__api.init_set_max_threads(info, 64);
}

static void free_local(void *data)
{
    struct scan_local *local = data;
    slice_whole_unref(local->whole);
    mem_free(local->columns);
    mem_free(local);
}

static void init_local(duckdb_init_info info)
{
    struct scan_local *local = mem_calloc(1, sizeof(*local));
    local->n_columns = duck__api.init_get_column_count(info);
    local->columns = mem_calloc(local->n_columns, sizeof(idx_t));
    for (idx_t i = 0; i < local->n_columns; i++) {
        local->columns[i] = duck__api.init_get_column_index(info, i);
    }
    duck__api.init_set_init_data(info, local, free_local);
}

/* The next array with rows; NULL at the end of the stream. */
static enum err fetch(struct duck_table *table, struct slice_whole **out, struct error *e)
{
    for (;;) {
        struct ArrowArray array = {0};
        (void)pthread_mutex_lock(&table->mutex);
        int failure = table->is_ended ? 0 : table->stream.get_next(&table->stream, &array);
        const char *text = failure != 0 ? table->stream.get_last_error(&table->stream) : NULL;
        enum err err = ERR_OK;
        if (failure != 0) {
            err = error_set(e, ERR_INTERNAL, "%s", text != NULL ? text : "the Arrow stream failed");
        }
        table->is_ended = array.release == NULL;
        (void)pthread_mutex_unlock(&table->mutex);
        if (err != ERR_OK) {
            return err;
        }
        if (array.release == NULL) {
            *out = NULL;
            return ERR_OK;
        }
        if (array.length > 0) {
            *out = slice_whole_new(&array);
            return ERR_OK;
        }
        array.release(&array);
    }
}

static enum err convert_column(struct duck_table *table, struct scan_local *local, idx_t column, int64_t n,
                               duckdb_vector vector, struct error *e)
{
    struct ArrowArray array;
    duckdb_data_chunk chunk = NULL;
    enum err err = slice_column(local->whole, table->schema.children[column], (int64_t)column, local->at, n, &array, e);
    if (err != ERR_OK) {
        return err;
    }
    err = duck__take_error(
        table->connection,
        duck__api.data_chunk_from_arrow(table->connection->connection, &array, table->converted[column], &chunk), e);
    if (array.release != NULL) {
        array.release(&array);
    }
    if (err == ERR_OK) {
        duck__api.vector_reference_vector(vector, duck__api.data_chunk_get_vector(chunk, 0));
        duck__api.destroy_data_chunk(&chunk);
    }
    return err;
}

static enum err produce_rows(struct duck_table *table, struct scan_local *local, duckdb_data_chunk out, struct error *e)
{
    if (local->whole == NULL) {
        enum err err = fetch(table, &local->whole, e);
        if (err != ERR_OK || local->whole == NULL) {
            duck__api.data_chunk_set_size(out, 0);
            return err;
        }
        local->at = 0;
    }
    const struct ArrowArray *array = slice_whole_array(local->whole);
    int64_t room = (int64_t)duck__api.vector_size();
    int64_t left = array->length - local->at;
    int64_t n = left < room ? left : room;
    for (idx_t i = 0; i < local->n_columns; i++) {
        if (local->columns[i] >= (idx_t)table->n_columns) {
            continue; /* nobody wants a value, only the number of rows */
        }
        enum err err = convert_column(table, local, local->columns[i], n, duck__api.data_chunk_get_vector(out, i), e);
        if (err != ERR_OK) {
            return err;
        }
    }
    duck__api.data_chunk_set_size(out, (idx_t)n);
    local->at += n;
    if (local->at == array->length) {
        slice_whole_unref(local->whole);
        local->whole = NULL;
    }
    return ERR_OK;
}

static void produce(duckdb_function_info info, duckdb_data_chunk out)
{
    struct error e = {0};
    struct duck_table *table = duck__api.function_get_bind_data(info);
    if (produce_rows(table, duck__api.function_get_local_init_data(info), out, &e) != ERR_OK) {
        duck__api.function_set_error(info, e.message);
    }
}

static enum err add_function(struct duck_connection *connection, struct error *e)
{
    struct duck *duck = connection->duck;
    (void)pthread_mutex_lock(&duck->mutex);
    if (!duck->has_streams) {
        duckdb_table_function function = duck__new_function(duck, "capstan_stream", bind_stream, init_stream, produce);
        duck__api.table_function_set_local_init(function, init_local);
        duck->has_streams = duck__api.register_table_function(connection->connection, function) == DuckDBSuccess;
        duck__api.destroy_table_function(&function);
    }
    bool has_streams = duck->has_streams;
    (void)pthread_mutex_unlock(&duck->mutex);
    return has_streams ? ERR_OK : error_set(e, ERR_INTERNAL, "DuckDB refuses the function capstan_stream");
}

/* Registering. */

/*
 * The types of columns that are not plain are asked for in the only way that the library has: DuckDB's own view of a
 * stream, which has the schema and no rows. It is bound, never run.
 */

static void keep_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static int lend_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    *out = *(const struct ArrowSchema *)stream->private_data;
    out->release = keep_schema;
    return 0;
}

static int yield_nothing(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    UNUSED(stream);
    *out = (struct ArrowArray){0};
    return 0;
}

static const char *say_nothing(struct ArrowArrayStream *stream)
{
    UNUSED(stream);
    return NULL;
}

static void keep_stream(struct ArrowArrayStream *stream)
{
    stream->release = NULL;
}

static enum err ask_for_types(struct duck_table *table, struct error *e)
{
    duckdb_connection connection = table->connection->connection;
    struct ArrowArrayStream lent = {.get_schema = lend_schema,
                                    .get_next = yield_nothing,
                                    .get_last_error = say_nothing,
                                    .release = keep_stream,
                                    .private_data = &table->schema};
    struct buf sql = {0};
    duckdb_prepared_statement statement = NULL;
    enum err err = ERR_OK;
    buf_format(&sql, "capstan_schema_%s", table->id);
    if (duck__api.arrow_scan(connection, sql.data, (duckdb_arrow_stream)&lent) != DuckDBSuccess) {
        err = error_set(e, ERR_INVALID, "DuckDB does not understand the columns of the Arrow stream '%s'", table->name);
        goto out;
    }
    buf_reset(&sql);
    buf_format(&sql, "SELECT * FROM memory.main.capstan_schema_%s", table->id);
    if (duck__api.prepare(connection, sql.data, &statement) != DuckDBSuccess) {
        err = duck__fail(table->connection, e, duck__api.prepare_error(statement));
    }
    for (int64_t i = 0; err == ERR_OK && i < table->n_columns; i++) {
        table->types[i] = duck__api.prepared_statement_column_logical_type(statement, (idx_t)i);
    }
    duck__api.destroy_prepare(&statement);
    buf_reset(&sql);
    buf_format(&sql, "DROP VIEW memory.main.capstan_schema_%s", table->id);
    enum err dropped = duck_run(table->connection, sql.data, err == ERR_OK ? e : NULL);
    err = err == ERR_OK ? dropped : err;
out:
    buf_deinit(&sql);
    return err;
}

static enum err learn_types(struct duck_table *table, struct error *e)
{
    int64_t n = 0;
    while (n < table->n_columns && duck__plain_type(table->schema.children[n], &table->types[n])) {
        n++;
    }
    if (n == table->n_columns) {
        return ERR_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        duck__api.destroy_logical_type(&table->types[i]);
    }
    return ask_for_types(table, e);
}

/* How each column, as an array of its own, is converted. */
static enum err learn_conversions(struct duck_table *table, struct error *e)
{
    for (int64_t i = 0; i < table->n_columns; i++) {
        struct ArrowSchema one = {.format = "+s",
                                  .name = "",
                                  .n_children = 1,
                                  .children = &table->schema.children[i],
                                  .release = keep_schema};
        enum err err =
            duck__take_error(table->connection,
                             duck__api.schema_from_arrow(table->connection->connection, &one, &table->converted[i]), e);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static void add_stream(struct duck_table *table)
{
    struct duck *duck = table->connection->duck;
    struct buf id = {0};
    (void)pthread_mutex_lock(&duck->mutex);
    char secret[SECRET_DIGITS + 1]; /* other queries may call the function as well, but know no streams of this one */
    random_hex(secret, SECRET_DIGITS);
    buf_format(&id, "%" PRIu64 "_%s", duck->n_registered++, secret);
    table->id = id.data;
    table->next_stream = duck->streams;
    duck->streams = table;
    (void)pthread_mutex_unlock(&duck->mutex);
}

static void remove_stream(struct duck_table *table)
{
    if (table->id == NULL) {
        return;
    }
    struct duck *duck = table->connection->duck;
    (void)pthread_mutex_lock(&duck->mutex);
    struct duck_table **link = &duck->streams;
    while (*link != table) {
        link = &(*link)->next_stream;
    }
    *link = table->next_stream;
    (void)pthread_mutex_unlock(&duck->mutex);
    mem_free(table->id);
    table->id = NULL;
}

/* Ends all that a table has of its stream. */
static void end_stream(struct duck_table *table)
{
    remove_stream(table);
    for (int64_t i = 0; i < table->n_columns; i++) {
        duck__api.destroy_logical_type(&table->types[i]);
        duck__api.destroy_arrow_converted_schema(&table->converted[i]);
    }
    table->n_columns = 0;
    if (table->schema.release != NULL) {
        table->schema.release(&table->schema);
    }
    release_stream(&table->stream);
}

static void free_table(struct duck_table *table)
{
    end_stream(table);
    mem_free(table->types);
    mem_free(table->converted);
    mem_free(table->name);
    (void)pthread_mutex_destroy(&table->mutex);
    mem_free(table);
}

/*
 * Makes the table that the connection sees.
 *
 * DuckDB hands a Bloom filter of a join's keys to the scan on the other side only if it sees a filter on this one: a table
 * without any, it thinks, has all keys. So rows that were chosen get a condition that always holds, and that it cannot see
 * through. It takes such a condition to leave a fifth of the rows (CHOSEN_GUESS).
 */
static enum err make_visible(struct duck_table *table, const struct duck_input *input, struct error *e)
{
    struct buf sql = {0};
    buf_text(&sql, input->is_kept ? "CREATE TEMP TABLE " : "CREATE TEMP VIEW ");
    duck__write_name(&sql, table->name);
    buf_format(&sql, " AS SELECT * FROM capstan_stream('%s')", table->id);
    const char *first = table->schema.children[0]->name;
    if (input->is_chosen && !input->is_kept && first != NULL && first[0] != '\0') {
        buf_text(&sql, " WHERE hash(");
        duck__write_name(&sql, first);
        buf_text(&sql, ") >= 0");
    }
    enum err err = duck_run(table->connection, sql.data, e);
    buf_deinit(&sql);
    return err;
}

static enum err read_schema(struct duck_table *table, struct error *e)
{
    if (table->stream.get_schema(&table->stream, &table->schema) != 0) {
        const char *text = table->stream.get_last_error(&table->stream);
        return error_set(e, ERR_INTERNAL, "%s", text != NULL ? text : "the Arrow stream has no schema");
    }
    if (table->schema.format == NULL || strcmp(table->schema.format, "+s") != 0 || table->schema.n_children == 0) {
        return error_set(e, ERR_INVALID, "the Arrow stream '%s' has no columns", table->name);
    }
    table->n_columns = table->schema.n_children;
    table->types = mem_calloc((size_t)table->n_columns, sizeof(duckdb_logical_type));
    table->converted = mem_calloc((size_t)table->n_columns, sizeof(duckdb_arrow_converted_schema));
    return ERR_OK;
}

enum err duck_register(struct duck_connection *connection, const struct duck_input *input,
                       struct ArrowArrayStream *stream, struct error *e)
{
    struct duck_table *table = mem_calloc(1, sizeof(*table));
    (void)pthread_mutex_init(&table->mutex, NULL);
    table->connection = connection;
    table->name = mem_strdup(input->name);
    table->rows = input->is_chosen && !input->is_kept ? input->rows * CHOSEN_GUESS : input->rows;
    table->stream = *stream;
    stream->release = NULL;
    add_stream(table);
    enum err err = add_function(connection, e);
    if (err == ERR_OK) {
        err = read_schema(table, e);
    }
    if (err == ERR_OK) {
        err = learn_types(table, e);
    }
    if (err == ERR_OK) {
        err = learn_conversions(table, e);
    }
    if (err == ERR_OK) {
        err = make_visible(table, input, e);
    }
    if (err != ERR_OK) {
        free_table(table);
        return err;
    }
    if (input->is_kept) {
        end_stream(table);
    }
    table->next = connection->tables;
    connection->tables = table;
    return ERR_OK;
}

void duck_unregister(struct duck_connection *connection, const char *name)
{
    struct duck_table **link = &connection->tables;
    while (*link != NULL && strcmp((*link)->name, name) != 0) {
        link = &(*link)->next;
    }
    struct duck_table *table = *link;
    if (table == NULL) {
        return;
    }
    *link = table->next;
    struct buf sql = {0};
    buf_format(&sql, "DROP %s IF EXISTS ", table->id == NULL ? "TABLE" : "VIEW");
    duck__write_name(&sql, table->name);
    enum err err = duck_run(connection, sql.data, NULL);
    UNUSED(err); /* nobody could do anything about a view that cannot be dropped */
    buf_deinit(&sql);
    free_table(table);
}

void duck__unregister_all(struct duck_connection *connection)
{
    while (connection->tables != NULL) {
        struct duck_table *table = connection->tables;
        connection->tables = table->next;
        free_table(table); /* what is temporary goes with the connection */
    }
}
