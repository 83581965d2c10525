/*
 * function.c - what our table functions have in common: how they are made, and names in SQL.
 */
#include "duck/duck_internal.h"

duckdb_table_function duck__new_function(struct duck *duck, const char *name, duckdb_table_function_bind_t bind,
                                         duckdb_table_function_init_t init, duckdb_table_function_t function)
{
    duckdb_table_function made = duck__api.create_table_function();
    duckdb_logical_type varchar = duck__api.create_logical_type(DUCKDB_TYPE_VARCHAR);
    duck__api.table_function_set_name(made, name);
    duck__api.table_function_add_parameter(made, varchar);
    duck__api.table_function_set_extra_info(made, duck, NULL);
    duck__api.table_function_set_bind(made, bind);
    duck__api.table_function_set_init(made, init);
    duck__api.table_function_set_function(made, function);
    duck__api.table_function_supports_projection_pushdown(made, true);
    duck__api.destroy_logical_type(&varchar);
    return made;
}

void duck__write_name(struct buf *sql, const char *name)
{
    buf_char(sql, '"');
    for (const char *p = name; *p != '\0'; p++) {
        if (*p == '"') {
            buf_char(sql, '"');
        }
        buf_char(sql, *p);
    }
    buf_char(sql, '"');
}
