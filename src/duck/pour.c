/*
 * pour.c - the rows of a query, taken where DuckDB makes them.
 *
 * A result that is read in pieces (query.c) is copied into DuckDB's buffer first, every text of it, and from there into
 * Arrow's form. Rows that go to other workers are copied once more, into their partitions. Here the query is a
 * COPY ... TO with a format of our own, so that its chunks come to us as they are: what Arrow would have in the same form
 * (numbers, dates, most decimals) is handed out where it lies, texts as DuckDB has them, and only the rest is converted.
 *
 * DuckDB calls the format's functions by one thread at a time, and gives the whole pipeline that ends there one thread,
 * which need not be the one that asked. That they come one after the other is DuckDB's doing; the mutex is for those who
 * cannot know, such as ThreadSanitizer, and costs nothing beside a chunk. It binds in the thread that asked for it, and once:
 * a statement that is prepared first, and reads files, is bound a second time when it is run, which takes milliseconds.
 */
#include <pthread.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "duck/duck_internal.h"
#include "duck/excerpt.h"

#define FORMAT_NAME "capstan_pour"
#define NO_FILE "/dev/null/" FORMAT_NAME /* where nothing can be: DuckDB may remove it after a failure */

enum way {
    WAY_AS_IT_IS, /* in the same form as Arrow's */
    WAY_TEXT,     /* 16 bytes for each, which have it or point to it */
    WAY_CONVERT,
};

struct pour {
    pthread_mutex_t mutex; /* for all below, while DuckDB runs the statement */
    struct duck_connection *connection;
    const struct duck_sink *sink;
    struct arena arena;
    const char *const *names; /* of the columns, */
    idx_t n_names;            /* so many */
    duckdb_arrow_options arrow;
    idx_t n;
    duckdb_logical_type *types;
    enum way *ways;
    idx_t n_rest; /* columns that are converted */
    duckdb_logical_type *rest_types;
    struct duck_shape rest;
    struct ArrowArray *arrays; /* of the others */
    const void **buffers;      /* two for each */
    struct ArrowArray **children;
    bool is_bound;
    struct error error; /* the first, which is not DuckDB's */
};

/* The one whose statement this thread binds or begins. */
static _Thread_local struct pour *current;

/* ---- columns ---- */

static const struct {
    duckdb_type type;
    enum way way;
    const char *format; /* what Arrow's must start with */
} plain[] = {
    {DUCKDB_TYPE_TINYINT, WAY_AS_IT_IS, "c"},
    {DUCKDB_TYPE_SMALLINT, WAY_AS_IT_IS, "s"},
    {DUCKDB_TYPE_INTEGER, WAY_AS_IT_IS, "i"},
    {DUCKDB_TYPE_BIGINT, WAY_AS_IT_IS, "l"},
    {DUCKDB_TYPE_UTINYINT, WAY_AS_IT_IS, "C"},
    {DUCKDB_TYPE_USMALLINT, WAY_AS_IT_IS, "S"},
    {DUCKDB_TYPE_UINTEGER, WAY_AS_IT_IS, "I"},
    {DUCKDB_TYPE_UBIGINT, WAY_AS_IT_IS, "L"},
    {DUCKDB_TYPE_FLOAT, WAY_AS_IT_IS, "f"},
    {DUCKDB_TYPE_DOUBLE, WAY_AS_IT_IS, "g"},
    {DUCKDB_TYPE_DATE, WAY_AS_IT_IS, "tdD"},
    {DUCKDB_TYPE_TIME, WAY_AS_IT_IS, "ttu"},
    {DUCKDB_TYPE_TIMESTAMP, WAY_AS_IT_IS, "tsu:"},
    {DUCKDB_TYPE_TIMESTAMP_TZ, WAY_AS_IT_IS, "tsu:"},
    {DUCKDB_TYPE_TIMESTAMP_S, WAY_AS_IT_IS, "tss:"},
    {DUCKDB_TYPE_TIMESTAMP_MS, WAY_AS_IT_IS, "tsm:"},
    {DUCKDB_TYPE_TIMESTAMP_NS, WAY_AS_IT_IS, "tsn:"},
    {DUCKDB_TYPE_VARCHAR, WAY_TEXT, "u"},
    {DUCKDB_TYPE_BLOB, WAY_TEXT, "z"},
};

/* "d:15,2,64" has 64 bits, "d:38,2" 128. */
static bool has_bits(const char *format, const char *bits)
{
    const char *last = strrchr(format, ',');
    bool says_bits = last != NULL && last != strchr(format, ',');
    return says_bits ? strcmp(last + 1, bits) == 0 : strcmp(bits, "128") == 0;
}

static enum way way_of_decimal(duckdb_logical_type type, const char *format)
{
    duckdb_type inside = duck__api.decimal_internal_type(type);
    bool is_same = (inside == DUCKDB_TYPE_INTEGER && has_bits(format, "32")) ||
                   (inside == DUCKDB_TYPE_BIGINT && has_bits(format, "64")) ||
                   (inside == DUCKDB_TYPE_HUGEINT && has_bits(format, "128"));
    return is_same ? WAY_AS_IT_IS : WAY_CONVERT;
}

static enum way way_of(duckdb_logical_type type, const char *format)
{
    duckdb_type id = duck__api.get_type_id(type);
    if (id == DUCKDB_TYPE_DECIMAL) {
        return way_of_decimal(type, format);
    }
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        if (plain[i].type == id) {
            return strncmp(format, plain[i].format, strlen(plain[i].format)) == 0 ? plain[i].way : WAY_CONVERT;
        }
    }
    return WAY_CONVERT;
}

/* The schema as it is handed out, and that of what is converted, as DuckDB writes it. */
static enum err make_schemas(struct pour *pour, struct ArrowSchema *out, struct error *e)
{
    bool has_bools = false;
    const char **rest_names = mem_calloc(pour->n, sizeof(char *));
    enum err err =
        duck__make_schema(pour->connection, pour->arrow, pour->types, pour->names, pour->n, out, &has_bools, e);
    if (err == ERR_OK) {
        duck__refit_schema(out, !pour->sink->is_long);
        for (idx_t i = 0; i < pour->n; i++) {
            pour->ways[i] = way_of(pour->types[i], out->children[i]->format);
            if (pour->ways[i] == WAY_CONVERT) {
                rest_names[pour->n_rest] = pour->names[i];
                pour->rest_types[pour->n_rest++] = pour->types[i];
            }
        }
    }
    if (err == ERR_OK && pour->n_rest > 0) {
        err = duck__shape_init(&pour->rest, pour->connection, pour->arrow, pour->rest_types, rest_names, pour->n_rest,
                               !pour->sink->is_long, e);
    }
    mem_free((void *)rest_names);
    return err;
}

static void forget_columns(struct pour *pour)
{
    for (idx_t i = 0; i < pour->n; i++) {
        duck__api.destroy_logical_type(&pour->types[i]);
    }
    duck__shape_deinit(&pour->rest);
    mem_free(pour->types);
    mem_free(pour->ways);
    mem_free(pour->rest_types);
    mem_free(pour->arrays);
    mem_free((void *)pour->buffers);
    mem_free((void *)pour->children);
    pour->n = 0;
    pour->n_rest = 0;
}

/* ---- DuckDB's side ---- */

static void bind(duckdb_copy_function_bind_info info)
{
    struct pour *pour = current;
    idx_t n = duck__api.copy_function_bind_get_column_count(info);
    if (pour == NULL) {
        duck__api.copy_function_bind_set_error(info, "the format " FORMAT_NAME " is for Capstan's workers only");
        return;
    }
    if (n != pour->n_names) {
        duck__api.copy_function_bind_set_error(info, "the query has another number of columns");
        return;
    }
    (void)pthread_mutex_lock(&pour->mutex);
    forget_columns(pour); /* it may be bound again */
    pour->types = mem_calloc(n, sizeof(duckdb_logical_type));
    pour->ways = mem_calloc(n, sizeof(*pour->ways));
    pour->rest_types = mem_calloc(n, sizeof(duckdb_logical_type));
    pour->arrays = mem_calloc(n, sizeof(*pour->arrays));
    pour->buffers = mem_calloc(2 * n, sizeof(void *));
    pour->children = mem_calloc(n, sizeof(struct ArrowArray *));
    for (pour->n = 0; pour->n < n; pour->n++) {
        pour->types[pour->n] = duck__api.copy_function_bind_get_column_type(info, pour->n);
    }
    duck__api.copy_function_bind_set_bind_data(info, pour, NULL);
    pour->is_bound = true;
    (void)pthread_mutex_unlock(&pour->mutex);
}

static void begin(duckdb_copy_function_global_init_info info)
{
    struct pour *pour = duck__api.copy_function_global_init_get_bind_data(info);
    struct ArrowSchema schema = {0};
    (void)pthread_mutex_lock(&pour->mutex);
    enum err err = make_schemas(pour, &schema, &pour->error);
    if (err == ERR_OK) {
        err = pour->sink->open(pour->sink->context, &schema, &pour->error);
    }
    if (schema.release != NULL) {
        schema.release(&schema);
    }
    if (err != ERR_OK) {
        duck__api.copy_function_global_init_set_error(info, pour->error.message);
    }
    (void)pthread_mutex_unlock(&pour->mutex);
    duck__api.copy_function_global_init_set_global_state(info, pour, NULL);
}

/* The columns that have to be converted, as an array of their own. */
static enum err convert_rest(struct pour *pour, duckdb_data_chunk chunk, struct ArrowArray *out, struct error *e)
{
    duckdb_data_chunk rest = duck__api.create_data_chunk(pour->rest_types, pour->n_rest);
    idx_t to = 0;
    for (idx_t i = 0; i < pour->n; i++) {
        if (pour->ways[i] == WAY_CONVERT) {
            duck__api.vector_reference_vector(duck__api.data_chunk_get_vector(rest, to++),
                                              duck__api.data_chunk_get_vector(chunk, i));
        }
    }
    duck__api.data_chunk_set_size(rest, duck__api.data_chunk_get_size(chunk));
    enum err err = duck__convert(pour->connection, pour->arrow, &pour->rest, rest, out, e);
    duck__api.destroy_data_chunk(&rest);
    return err;
}

static enum err take(struct pour *pour, duckdb_data_chunk chunk, struct error *e)
{
    struct ArrowArray rest = {0};
    const void *no_validity[1] = {NULL};
    int64_t n_rows = (int64_t)duck__api.data_chunk_get_size(chunk);
    enum err err = pour->n_rest > 0 ? convert_rest(pour, chunk, &rest, e) : ERR_OK;
    idx_t from = 0;
    for (idx_t i = 0; i < pour->n && err == ERR_OK; i++) {
        if (pour->ways[i] == WAY_CONVERT) {
            ASSERT(rest.children != NULL);
            pour->children[i] = rest.children[from++];
            continue;
        }
        duckdb_vector vector = duck__api.data_chunk_get_vector(chunk, i);
        const void **buffers = &pour->buffers[2 * i];
        buffers[0] = duck__api.vector_get_validity(vector); /* bits in the order of Arrow's */
        buffers[1] = duck__api.vector_get_data(vector);
        pour->arrays[i] = (struct ArrowArray){
            .length = n_rows, .null_count = buffers[0] == NULL ? 0 : -1, .n_buffers = 2, .buffers = buffers};
        pour->children[i] = &pour->arrays[i];
    }
    if (err == ERR_OK) {
        struct ArrowArray rows = {.length = n_rows,
                                  .n_buffers = 1,
                                  .buffers = no_validity,
                                  .n_children = (int64_t)pour->n,
                                  .children = pour->children};
        err = pour->sink->take(pour->sink->context, &rows, e);
    }
    if (rest.release != NULL) {
        rest.release(&rest);
    }
    return err;
}

static void sink(duckdb_copy_function_sink_info info, duckdb_data_chunk chunk)
{
    struct pour *pour = duck__api.copy_function_sink_get_global_state(info);
    (void)pthread_mutex_lock(&pour->mutex);
    if (duck__api.data_chunk_get_size(chunk) > 0 && take(pour, chunk, &pour->error) != ERR_OK) {
        duck__api.copy_function_sink_set_error(info, pour->error.message);
    }
    (void)pthread_mutex_unlock(&pour->mutex);
}

static enum err add_format(struct duck_connection *connection, struct error *e)
{
    struct duck *duck = connection->duck;
    (void)pthread_mutex_lock(&duck->mutex);
    if (!duck->has_pours) {
        duckdb_copy_function function = duck__api.create_copy_function();
        duck__api.copy_function_set_name(function, FORMAT_NAME);
        duck__api.copy_function_set_bind(function, bind);
        duck__api.copy_function_set_global_init(function, begin);
        duck__api.copy_function_set_sink(function, sink);
        duck->has_pours = duck__api.register_copy_function(connection->connection, function) == DuckDBSuccess;
        duck__api.destroy_copy_function(&function);
    }
    bool has_pours = duck->has_pours;
    (void)pthread_mutex_unlock(&duck->mutex);
    return has_pours ? ERR_OK : error_set(e, ERR_INTERNAL, "DuckDB refuses the format " FORMAT_NAME);
}

/* ---- our side ---- */

/* A format is not told the names of its columns; if the caller does not know them, DuckDB is asked. */
static enum err learn_names(struct pour *pour, const char *select, struct error *e)
{
    duckdb_prepared_statement statement = NULL;
    enum err err = ERR_OK;
    pour->names = pour->sink->names;
    pour->n_names = pour->sink->n;
    if (pour->names != NULL) {
        return ERR_OK;
    }
    if (duck__api.prepare(pour->connection->connection, select, &statement) != DuckDBSuccess) {
        err = duck__fail(pour->connection, e, duck__api.prepare_error(statement));
    } else {
        pour->n_names = duck__api.prepared_statement_column_count(statement);
        const char **names = arena_alloc(&pour->arena, (pour->n_names + 1) * sizeof(char *));
        for (idx_t i = 0; i < pour->n_names; i++) {
            const char *name = duck__api.prepared_statement_column_name(statement, i);
            names[i] = arena_strdup(&pour->arena, name != NULL ? name : "");
            duck__api.free((void *)(uintptr_t)name);
        }
        pour->names = names;
    }
    duck__api.destroy_prepare(&statement);
    return err;
}

static enum err run(struct pour *pour, const char *sql, struct error *e)
{
    duckdb_result result = {0};
    enum err err = ERR_OK;
    bool is_done = duck__api.query(pour->connection->connection, sql, &result) == DuckDBSuccess;
    (void)pthread_mutex_lock(&pour->mutex);
    if (!is_done) {
        err = duck__fail(pour->connection, e, duck__api.result_error(&result));
        if (pour->error.code != ERR_OK) {
            *e = pour->error;
            err = pour->error.code;
        }
    }
    (void)pthread_mutex_unlock(&pour->mutex);
    duck__api.destroy_result(&result);
    return err;
}

enum err duck_pour(struct duck_connection *connection, const char *select, const struct duck_sink *sink,
                   bool *out_has_begun, struct error *e)
{
    struct pour pour = {.mutex = PTHREAD_MUTEX_INITIALIZER, .connection = connection, .sink = sink};
    struct buf sql = {0};
    duck__begin(connection);
    enum err err = add_format(connection, e);
    if (err == ERR_OK) {
        err = learn_names(&pour, select, e);
    }
    if (err == ERR_OK && sink->is_watched) {
        err = duck_run(connection, "SET enable_progress_bar = true; SET enable_progress_bar_print = false", e);
    }
    if (err == ERR_OK) {
        err =
            duck__write_copy(&sql, connection, select, "'" NO_FILE "' (FORMAT " FORMAT_NAME ", USE_TMP_FILE false)", e);
    }
    if (err == ERR_OK) {
        err = duck__begin_reading(connection, e);
    }
    if (err == ERR_OK) {
        duck__api.connection_get_arrow_options(connection->connection, &pour.arrow);
        current = &pour;
        err = run(&pour, sql.data, e);
        duck__end_reading(connection);
        duck_excerpt_without(e, "COPY (");
        current = NULL;
        duck__api.destroy_arrow_options(&pour.arrow);
        forget_columns(&pour);
    }
    *out_has_begun = pour.is_bound;
    arena_deinit(&pour.arena);
    buf_deinit(&sql);
    (void)pthread_mutex_destroy(&pour.mutex);
    return err;
}
