/*
 * duck_internal.h - the library's functions, and what the files of this folder share.
 *
 * Ownership: as in duck.h. Threads: the table of functions never changes once it is loaded.
 */
#ifndef CAPSTAN_DUCK_DUCK_INTERNAL_H
#define CAPSTAN_DUCK_DUCK_INTERNAL_H

#include <duckdb.h>
#include <pthread.h>

#include "duck/duck.h"

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
    X(destroy_extracted)                                                                                               \
    X(pending_prepared_streaming)                                                                                      \
    X(pending_error)                                                                                                   \
    X(execute_pending)                                                                                                 \
    X(destroy_pending)                                                                                                 \
    X(fetch_chunk)                                                                                                     \
    X(destroy_data_chunk)                                                                                              \
    X(data_chunk_get_size)                                                                                             \
    X(data_chunk_set_size)                                                                                             \
    X(data_chunk_get_vector)                                                                                           \
    X(vector_get_data)                                                                                                 \
    X(vector_get_validity)                                                                                             \
    X(validity_row_is_valid)                                                                                           \
    X(string_t_length)                                                                                                 \
    X(string_t_data)                                                                                                   \
    X(destroy_logical_type)                                                                                            \
    X(create_logical_type)                                                                                             \
    X(to_arrow_schema)                                                                                                 \
    X(data_chunk_to_arrow)                                                                                             \
    X(destroy_arrow_options)                                                                                           \
    X(error_data_message)                                                                                              \
    X(error_data_has_error)                                                                                            \
    X(destroy_error_data)                                                                                              \
    X(arrow_scan)                                                                                                      \
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
    X(destroy_value)

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

struct duck {
    duckdb_database database;
    pthread_mutex_t mutex; /* guards what follows */
    struct duck_source *sources;
    uint64_t n_registered; /* counts streams, for their names */
    bool has_stand_ins;    /* the table function is there */
};

/* A registered stream: a view of DuckDB's own making, and a temporary view with the name that was asked for. */
struct duck_table {
    char *name;
    char *view; /* the one in the instance's catalog; NULL for a table that is kept */
    struct ArrowArrayStream stream;
    struct duck_table *next;
};

struct duck_connection {
    struct duck *duck;
    duckdb_connection connection;
    struct duck_table *tables;
};

/* Sets `e` to what DuckDB says went wrong. `text` may be NULL. */
enum err duck__fail(struct error *e, const char *text);

/* Frees all stand-ins of the instance. */
void duck__free_sources(struct duck *duck);

#endif
