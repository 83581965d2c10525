/*
 * duck_internal.h - the library's functions, and what the files of this folder share.
 *
 * Ownership: as in duck.h. Threads: the table of functions never changes once it is loaded.
 */
#ifndef CAPSTAN_DUCK_DUCK_INTERNAL_H
#define CAPSTAN_DUCK_DUCK_INTERNAL_H

#include <duckdb.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "duck/duck.h"

/*
 * Formats of COPY, which the library has and its header does not yet declare. The types are pointers to what only the
 * library knows; each function's meaning is in its name.
 */
typedef struct duck_copy_function *duckdb_copy_function;
typedef struct duck_copy_function_bind_info *duckdb_copy_function_bind_info;
typedef struct duck_copy_function_global_init_info *duckdb_copy_function_global_init_info;
typedef struct duck_copy_function_sink_info *duckdb_copy_function_sink_info;
typedef void (*duckdb_copy_function_bind_t)(duckdb_copy_function_bind_info info);
typedef void (*duckdb_copy_function_global_init_t)(duckdb_copy_function_global_init_info info);
typedef void (*duckdb_copy_function_sink_t)(duckdb_copy_function_sink_info info, duckdb_data_chunk chunk);
duckdb_copy_function duckdb_create_copy_function(void);
void duckdb_destroy_copy_function(duckdb_copy_function *function);
void duckdb_copy_function_set_name(duckdb_copy_function function, const char *name);
void duckdb_copy_function_set_bind(duckdb_copy_function function, duckdb_copy_function_bind_t bind);
void duckdb_copy_function_set_global_init(duckdb_copy_function function, duckdb_copy_function_global_init_t init);
void duckdb_copy_function_set_sink(duckdb_copy_function function, duckdb_copy_function_sink_t sink);
duckdb_state duckdb_register_copy_function(duckdb_connection connection, duckdb_copy_function function);
idx_t duckdb_copy_function_bind_get_column_count(duckdb_copy_function_bind_info info);
duckdb_logical_type duckdb_copy_function_bind_get_column_type(duckdb_copy_function_bind_info info, idx_t column);
void duckdb_copy_function_bind_set_bind_data(duckdb_copy_function_bind_info info, void *data,
                                             duckdb_delete_callback_t destroy);
void duckdb_copy_function_bind_set_error(duckdb_copy_function_bind_info info, const char *error);
void *duckdb_copy_function_global_init_get_bind_data(duckdb_copy_function_global_init_info info);
void duckdb_copy_function_global_init_set_global_state(duckdb_copy_function_global_init_info info, void *state,
                                                       duckdb_delete_callback_t destroy);
void duckdb_copy_function_global_init_set_error(duckdb_copy_function_global_init_info info, const char *error);
void *duckdb_copy_function_sink_get_global_state(duckdb_copy_function_sink_info info);
void duckdb_copy_function_sink_set_error(duckdb_copy_function_sink_info info, const char *error);

/* Every function of the library that we call, without its prefix. */
#define DUCK_FUNCTIONS(X)                                                                                              \
    X(open_ext)                                                                                                        \
    X(close)                                                                                                           \
    X(connect)                                                                                                         \
    X(disconnect)                                                                                                      \
    X(interrupt)                                                                                                       \
    X(query_progress)                                                                                                  \
    X(library_version)                                                                                                 \
    X(create_config)                                                                                                   \
    X(set_config)                                                                                                      \
    X(destroy_config)                                                                                                  \
    X(free)                                                                                                            \
    X(query)                                                                                                           \
    X(destroy_result)                                                                                                  \
    X(result_error)                                                                                                    \
    X(result_get_arrow_options)                                                                                        \
    X(column_count)                                                                                                    \
    X(column_name)                                                                                                     \
    X(column_type)                                                                                                     \
    X(column_logical_type)                                                                                             \
    X(prepare)                                                                                                         \
    X(prepare_error)                                                                                                   \
    X(destroy_prepare)                                                                                                 \
    X(nparams)                                                                                                         \
    X(bind_varchar_length)                                                                                             \
    X(bind_null)                                                                                                       \
    X(extract_statements)                                                                                              \
    X(extract_statements_error)                                                                                        \
    X(prepare_extracted_statement)                                                                                     \
    X(prepared_statement_type)                                                                                         \
    X(destroy_extracted)                                                                                               \
    X(pending_prepared_streaming)                                                                                      \
    X(pending_error)                                                                                                   \
    X(execute_prepared)                                                                                                \
    X(execute_pending)                                                                                                 \
    X(destroy_pending)                                                                                                 \
    X(fetch_chunk)                                                                                                     \
    X(destroy_data_chunk)                                                                                              \
    X(data_chunk_get_size)                                                                                             \
    X(data_chunk_set_size)                                                                                             \
    X(data_chunk_get_vector)                                                                                           \
    X(vector_get_data)                                                                                                 \
    X(vector_get_validity)                                                                                             \
    X(vector_get_column_type)                                                                                          \
    X(list_vector_get_child)                                                                                           \
    X(list_vector_get_size)                                                                                            \
    X(struct_vector_get_child)                                                                                         \
    X(array_vector_get_child)                                                                                          \
    X(create_vector)                                                                                                   \
    X(vector_copy_sel)                                                                                                 \
    X(destroy_vector)                                                                                                  \
    X(create_selection_vector)                                                                                         \
    X(selection_vector_get_data_ptr)                                                                                   \
    X(destroy_selection_vector)                                                                                        \
    X(validity_row_is_valid)                                                                                           \
    X(string_t_length)                                                                                                 \
    X(string_t_data)                                                                                                   \
    X(destroy_logical_type)                                                                                            \
    X(create_logical_type)                                                                                             \
    X(create_decimal_type)                                                                                             \
    X(to_arrow_schema)                                                                                                 \
    X(data_chunk_to_arrow)                                                                                             \
    X(destroy_arrow_options)                                                                                           \
    X(error_data_message)                                                                                              \
    X(error_data_has_error)                                                                                            \
    X(destroy_error_data)                                                                                              \
    X(arrow_scan)                                                                                                      \
    X(schema_from_arrow)                                                                                               \
    X(data_chunk_from_arrow)                                                                                           \
    X(destroy_arrow_converted_schema)                                                                                  \
    X(vector_reference_vector)                                                                                         \
    X(vector_size)                                                                                                     \
    X(prepared_statement_column_logical_type)                                                                          \
    X(prepared_statement_column_count)                                                                                 \
    X(prepared_statement_column_name)                                                                                  \
    X(table_function_set_local_init)                                                                                   \
    X(bind_set_bind_data)                                                                                              \
    X(init_get_bind_data)                                                                                              \
    X(init_get_column_count)                                                                                           \
    X(init_get_column_index)                                                                                           \
    X(init_set_error)                                                                                                  \
    X(init_set_init_data)                                                                                              \
    X(init_set_max_threads)                                                                                            \
    X(function_get_bind_data)                                                                                          \
    X(function_get_local_init_data)                                                                                    \
    X(function_set_error)                                                                                              \
    X(create_table_function)                                                                                           \
    X(destroy_table_function)                                                                                          \
    X(table_function_set_name)                                                                                         \
    X(table_function_add_parameter)                                                                                    \
    X(table_function_set_extra_info)                                                                                   \
    X(table_function_set_bind)                                                                                         \
    X(table_function_set_init)                                                                                         \
    X(table_function_set_function)                                                                                     \
    X(table_function_supports_projection_pushdown)                                                                     \
    X(register_table_function)                                                                                         \
    X(bind_get_parameter)                                                                                              \
    X(bind_get_extra_info)                                                                                             \
    X(bind_add_result_column)                                                                                          \
    X(bind_set_cardinality)                                                                                            \
    X(bind_set_error)                                                                                                  \
    X(get_varchar)                                                                                                     \
    X(destroy_value)                                                                                                   \
    X(connection_get_arrow_options)                                                                                    \
    X(create_data_chunk)                                                                                               \
    X(get_type_id)                                                                                                     \
    X(decimal_internal_type)                                                                                           \
    X(create_copy_function)                                                                                            \
    X(destroy_copy_function)                                                                                           \
    X(copy_function_set_name)                                                                                          \
    X(copy_function_set_bind)                                                                                          \
    X(copy_function_set_global_init)                                                                                   \
    X(copy_function_set_sink)                                                                                          \
    X(register_copy_function)                                                                                          \
    X(copy_function_bind_get_column_count)                                                                             \
    X(copy_function_bind_get_column_type)                                                                              \
    X(copy_function_bind_set_bind_data)                                                                                \
    X(copy_function_bind_set_error)                                                                                    \
    X(copy_function_global_init_get_bind_data)                                                                         \
    X(copy_function_global_init_set_global_state)                                                                      \
    X(copy_function_global_init_set_error)                                                                             \
    X(copy_function_sink_get_global_state)                                                                             \
    X(copy_function_sink_set_error)

/* clang-format off */
struct duck_api {
#define X(name) __typeof__(&duckdb_##name) name;
    DUCK_FUNCTIONS(X)
#undef X
};
/* clang-format on */

/* The functions. Valid after duck__load has returned ERR_OK. */
extern struct duck_api duck__api;

/* Opens the library, once per process. */
MUST_USE enum err duck__load(struct error *e);

struct duck_source;
struct duck_table;

struct duck {
    duckdb_database database;
    pthread_mutex_t mutex;       /* guards what follows */
    struct duck_source *sources; /* stand-ins */
    struct duck_table *streams;  /* of all connections */
    uint64_t n_registered;       /* counts streams, for their ids */
    bool has_sources;            /* the table function capstan_source is there */
    bool has_streams;            /* and capstan_stream */
    bool has_pours;              /* and the format of duck_pour */
};

struct duck_connection {
    struct duck *duck;
    duckdb_connection connection;
    struct duck_table *tables;  /* what is registered */
    atomic_bool is_interrupted; /* somebody has called duck_interrupt since the statement began */
};

/* Says that a statement begins: interrupts of earlier ones do not count for it. */
void duck__begin(struct duck_connection *connection);

/* Sets `e` to what DuckDB says went wrong. `text` may be NULL. */
enum err duck__fail(struct duck_connection *connection, struct error *e, const char *text);

/* Parts SQL into statements, one at least; what is handed out is to be destroyed, also after an error. */
MUST_USE enum err duck__extract(struct duck_connection *connection, const char *sql, duckdb_extracted_statements *out,
                                idx_t *out_n, struct error *e);

/* Runs a statement, and drops its result. */
MUST_USE enum err duck__execute(struct duck_connection *connection, duckdb_prepared_statement statement,
                                struct error *e);

/*
 * SQL of others is run between these (foreign.c), and each of its statements is checked: one that stands before the last, and
 * that one, of `n` in `sql`. Between them there must be no other SQL on the connection.
 */
MUST_USE enum err duck__begin_reading(struct duck_connection *connection, struct error *e);
void duck__end_reading(struct duck_connection *connection);
MUST_USE enum err duck__check_before(duckdb_prepared_statement statement, idx_t i, struct error *e);
MUST_USE enum err duck__check_last(struct duck_connection *connection, duckdb_prepared_statement statement,
                                   const char *sql, idx_t n, struct error *e);

/* COPY (select) TO …, if that is what it is for DuckDB. */
MUST_USE enum err duck__write_copy(struct buf *out, struct duck_connection *connection, const char *select,
                                   const char *to, struct error *e);

/* Takes DuckDB's other form of an error, which may be none, and frees it. */
MUST_USE enum err duck__take_error(struct duck_connection *connection, duckdb_error_data data, struct error *e);

/* A table function with one VARCHAR parameter and projection pushdown; `duck` is its extra info. */
duckdb_table_function duck__new_function(struct duck *duck, const char *name, duckdb_table_function_bind_t bind,
                                         duckdb_table_function_init_t init, duckdb_table_function_t function);

/* The schema of columns with these types and names, but for forms (below); BOOLEANs are Arrow's own. */
MUST_USE enum err duck__make_schema(struct duck_connection *connection, duckdb_arrow_options arrow,
                                    duckdb_logical_type *types, const char *const *names, idx_t n,
                                    struct ArrowSchema *out, bool *out_has_bools, struct error *e);

/* Makes BOOLEANs in a schema that DuckDB has written Arrow's own Bool. True if there are any. */
bool duck__bools_in_schema(struct ArrowSchema *schema);

/* Makes them bits in an array, with the schema that the former has left. */
void duck__bools_in_array(const struct ArrowSchema *schema, struct ArrowArray *array);

/*
 * Whether a schema that DuckDB has written has forms that are not wanted (forms.c): views, and, unless `is_shortened`, short
 * DECIMALs; and that schema without them.
 */
bool duck__has_forms(const struct ArrowSchema *schema, bool is_shortened);
void duck__refit_schema(struct ArrowSchema *schema, bool is_shortened);

/* The same for an array, which is the caller's also if this fails; the schema is that which DuckDB has written. */
MUST_USE enum err duck__refit_array(const struct ArrowSchema *schema, struct ArrowArray *array, bool is_shortened,
                                    struct error *e);

/* How chunks of some columns become arrays (convert.c). */
struct duck_shape {
    struct ArrowSchema schema; /* as DuckDB has written it, but for BOOLEANs */
    bool is_shortened;
    bool has_bools;
    bool has_forms; /* that are not wanted */
    bool has_intervals;
};

MUST_USE enum err duck__shape_init(struct duck_shape *shape, struct duck_connection *connection,
                                   duckdb_arrow_options arrow, duckdb_logical_type *types, const char *const *names,
                                   idx_t n, bool is_shortened, struct error *e);
void duck__shape_deinit(struct duck_shape *shape); /* also of one that is all zero */

/* A chunk as an array, which is the caller's. ERR_INVALID if Arrow has nothing for one of its values. */
MUST_USE enum err duck__convert(struct duck_connection *connection, duckdb_arrow_options arrow,
                                const struct duck_shape *shape, duckdb_data_chunk chunk, struct ArrowArray *out,
                                struct error *e);

/* Says that values are too long for offsets of 32 bits. Returns ERR_INVALID. */
enum err duck__refuse_long(struct error *e);

/* What DuckDB has in one chunk at most, in words. */
#define DUCK_ROWS_TEXT "2,048"

/*
 * What the metadata of a field, as Arrow's C interface has them, say of `key`; NULL: nothing. They are trusted: DuckDB or our
 * own reader of Arrow has made them.
 */
const char *duck__metadata(const struct ArrowSchema *field, const char *key, size_t *out_n);

/* The type of a field, if that is one that needs no asking. */
bool duck__plain_type(const struct ArrowSchema *field, duckdb_logical_type *out);

/* Appends a name in double quotes. */
void duck__write_name(struct buf *sql, const char *name);

/* Frees all stand-ins of the instance. */
void duck__free_sources(struct duck *duck);

/* Releases all streams of a connection that is about to be closed. */
void duck__unregister_all(struct duck_connection *connection);

#endif
