/*
 * source.c - stand-ins for sources that DuckDB cannot write into a plan.
 *
 * A table function that only has columns. It offers projection pushdown, so that the plan says which columns are wanted,
 * and no filter pushdown, so that filters stay in the plan as nodes. An empty table would not do: DuckDB's statistics
 * would make an empty result of all that is above it.
 */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "duck/duck_internal.h"

struct duck_source {
    char *id;
    uint64_t rows;
    idx_t n;
    char **names;
    duckdb_logical_type *types;
    struct duck_source *next;
};

static struct duck_source *find(struct duck *duck, const char *id)
{
    struct duck_source *source = duck->sources;
    while (source != NULL && strcmp(source->id, id) != 0) {
        source = source->next;
    }
    return source;
}

static void bind(duckdb_bind_info info)
{
    struct duck *duck = duck__api.bind_get_extra_info(info);
    duckdb_value value = duck__api.bind_get_parameter(info, 0);
    char *id = duck__api.get_varchar(value);
    (void)pthread_mutex_lock(&duck->mutex);
    const struct duck_source *source = find(duck, id);
    if (source == NULL) {
        duck__api.bind_set_error(info, "capstan_source is for Capstan's planner only");
    } else {
        for (idx_t i = 0; i < source->n; i++) {
            duck__api.bind_add_result_column(info, source->names[i], source->types[i]);
        }
        duck__api.bind_set_cardinality(info, source->rows, false);
    }
    (void)pthread_mutex_unlock(&duck->mutex);
    duck__api.free(id);
    duck__api.destroy_value(&value);
}

static void init(duckdb_init_info info)
{
    UNUSED(info);
}

static void produce(duckdb_function_info info, duckdb_data_chunk chunk)
{
    UNUSED(info);
    duck__api.data_chunk_set_size(chunk, 0);
}

static enum err add_function(struct duck_connection *connection, struct error *e)
{
    struct duck *duck = connection->duck;
    if (duck->has_sources) {
        return ERR_OK;
    }
    duckdb_table_function function = duck__new_function(duck, "capstan_source", bind, init, produce);
    duck->has_sources = duck__api.register_table_function(connection->connection, function) == DuckDBSuccess;
    duck__api.destroy_table_function(&function);
    return duck->has_sources ? ERR_OK : error_set(e, ERR_INTERNAL, "DuckDB refuses the function capstan_source");
}

enum err duck_add_source(struct duck_connection *connection, const char *id, const char *from, uint64_t rows,
                         struct error *e)
{
    struct duck *duck = connection->duck;
    enum err err = add_function(connection, e);
    if (err != ERR_OK) {
        return err;
    }
    struct buf sql = {0};
    buf_format(&sql, "SELECT * FROM %s LIMIT 0", from);
    duckdb_result result = {0};
    duck__begin(connection);
    if (duck__api.query(connection->connection, sql.data, &result) != DuckDBSuccess) {
        err = duck__fail(connection, e, duck__api.result_error(&result));
        goto out;
    }
    struct duck_source *source = mem_calloc(1, sizeof(*source));
    source->id = mem_strdup(id);
    source->rows = rows;
    source->n = duck__api.column_count(&result);
    source->names = mem_calloc(source->n, sizeof(char *));
    source->types = mem_calloc(source->n, sizeof(duckdb_logical_type));
    for (idx_t i = 0; i < source->n; i++) {
        source->names[i] = mem_strdup(duck__api.column_name(&result, i));
        source->types[i] = duck__api.column_logical_type(&result, i);
    }
    (void)pthread_mutex_lock(&duck->mutex);
    source->next = duck->sources;
    duck->sources = source;
    (void)pthread_mutex_unlock(&duck->mutex);
out:
    duck__api.destroy_result(&result);
    buf_deinit(&sql);
    return err;
}

void duck__free_sources(struct duck *duck)
{
    while (duck->sources != NULL) {
        struct duck_source *source = duck->sources;
        duck->sources = source->next;
        for (idx_t i = 0; i < source->n; i++) {
            mem_free(source->names[i]);
            duck__api.destroy_logical_type(&source->types[i]);
        }
        mem_free(source->names);
        mem_free(source->types);
        mem_free(source->id);
        mem_free(source);
    }
}

void duck_forget_sources(struct duck_connection *connection)
{
    struct duck *duck = connection->duck;
    (void)pthread_mutex_lock(&duck->mutex);
    duck__free_sources(duck);
    (void)pthread_mutex_unlock(&duck->mutex);
}
