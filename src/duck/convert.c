/*
 * convert.c - chunks as Arrow arrays, with what is in them put right, and refused where Arrow cannot say it.
 *
 * DuckDB checks neither that an INTERVAL fits into Arrow's nanoseconds, which end at 292 years, nor tells it apart when
 * texts are too long for offsets of 32 bits. Wrong rows would be the one result, an endless row of attempts the other.
 */
#include <stdlib.h>
#include <string.h>

#include "duck/duck_internal.h"

#define INTERVAL_FORMAT "tin"
#define MICROS_MAX (INT64_MAX / 1000)

static bool has_intervals(const struct ArrowSchema *schema)
{
    bool has_some = strcmp(schema->format, INTERVAL_FORMAT) == 0;
    for (int64_t i = 0; i < schema->n_children && !has_some; i++) {
        has_some = has_intervals(schema->children[i]);
    }
    return has_some;
}

enum err duck__shape_init(struct duck_shape *shape, struct duck_connection *connection, duckdb_arrow_options arrow,
                          duckdb_logical_type *types, const char *const *names, idx_t n, bool is_shortened,
                          struct error *e)
{
    bool has_bools = false;
    struct ArrowSchema schema = {0};
    enum err err = duck__make_schema(connection, arrow, types, names, n, &schema, &has_bools, e);
    if (err == ERR_OK) {
        *shape = (struct duck_shape){.schema = schema,
                                     .is_shortened = is_shortened,
                                     .has_bools = has_bools,
                                     .has_forms = duck__has_forms(&schema, is_shortened),
                                     .has_intervals = has_intervals(&schema)};
    }
    return err;
}

void duck__shape_deinit(struct duck_shape *shape)
{
    if (shape->schema.release != NULL) {
        shape->schema.release(&shape->schema);
    }
}

/* ---- intervals ---- */

static enum err refuse_interval(struct error *e)
{
    error_set(e, ERR_INVALID,
              "an INTERVAL of more than 292 years in hours or less cannot be passed on: Arrow has no such value");
    error_hint(e, "cast it to VARCHAR, or write it with days, months or years");
    return ERR_INVALID;
}

static bool is_valid(const uint8_t *validity, int64_t row)
{
    return validity == NULL || (validity[row / 8] >> (row % 8) & 1) != 0;
}

/* One kind of vector: the first `n` values of it, or what is inside of them. */
static bool do_values_fit(const struct ArrowSchema *schema, duckdb_vector vector, idx_t n);

static bool do_intervals_fit(duckdb_vector vector, idx_t n)
{
    const uint8_t *validity = (const uint8_t *)duck__api.vector_get_validity(vector);
    const duckdb_interval *values = duck__api.vector_get_data(vector);
    bool do_fit = true;
    for (idx_t row = 0; row < n && do_fit; row++) {
        do_fit = !is_valid(validity, (int64_t)row) ||
                 (values[row].micros <= MICROS_MAX && values[row].micros >= -MICROS_MAX);
    }
    return do_fit;
}

/* Members of a struct; of a union, whose first vector says which member it is. */
static bool do_members_fit(const struct ArrowSchema *schema, duckdb_vector vector, idx_t n)
{
    idx_t n_before = schema->format[1] == 'u' ? 1 : 0;
    bool do_fit = true;
    for (int64_t i = 0; i < schema->n_children && do_fit; i++) {
        do_fit = do_values_fit(schema->children[i], duck__api.struct_vector_get_child(vector, n_before + (idx_t)i), n);
    }
    return do_fit;
}

/* Lists, also as views, and maps: all that DuckDB has as a LIST. */
static bool is_list(const char *format)
{
    static const char *const formats[] = {"+l", "+L", "+vl", "+vL", "+m"};
    size_t i = 0;
    while (i < ARRAY_LEN(formats) && strcmp(format, formats[i]) != 0) {
        i++;
    }
    return i < ARRAY_LEN(formats);
}

static bool do_values_fit(const struct ArrowSchema *schema, duckdb_vector vector, idx_t n)
{
    if (strcmp(schema->format, INTERVAL_FORMAT) == 0) {
        return do_intervals_fit(vector, n);
    }
    if (!has_intervals(schema)) {
        return true;
    }
    if (strncmp(schema->format, "+w:", 3) == 0) {
        idx_t n_each = (idx_t)strtoull(schema->format + 3, NULL, 10);
        return do_values_fit(schema->children[0], duck__api.array_vector_get_child(vector), n * n_each);
    }
    if (schema->n_children == 1 && is_list(schema->format)) {
        return do_values_fit(schema->children[0], duck__api.list_vector_get_child(vector),
                             duck__api.list_vector_get_size(vector));
    }
    return do_members_fit(schema, vector, n);
}

/* What is inside of a column may be stored in other ways than one value behind the other; a copy never is. */
static bool do_nested_values_fit(const struct ArrowSchema *schema, duckdb_vector vector, idx_t n)
{
    duckdb_logical_type type = duck__api.vector_get_column_type(vector);
    duckdb_vector copy = duck__api.create_vector(type, n);
    duckdb_selection_vector all = duck__api.create_selection_vector(n);
    sel_t *rows = duck__api.selection_vector_get_data_ptr(all);
    for (idx_t i = 0; i < n; i++) {
        rows[i] = (sel_t)i;
    }
    duck__api.vector_copy_sel(vector, copy, all, n, 0, 0);
    bool do_fit = do_values_fit(schema, copy, n);
    duck__api.destroy_selection_vector(all);
    duck__api.destroy_vector(&copy);
    duck__api.destroy_logical_type(&type);
    return do_fit;
}

static bool do_columns_fit(const struct duck_shape *shape, duckdb_data_chunk chunk)
{
    idx_t n = duck__api.data_chunk_get_size(chunk);
    bool do_fit = true;
    for (int64_t i = 0; i < shape->schema.n_children && do_fit && n > 0; i++) {
        const struct ArrowSchema *schema = shape->schema.children[i];
        if (has_intervals(schema)) {
            duckdb_vector vector = duck__api.data_chunk_get_vector(chunk, (idx_t)i);
            do_fit = schema->n_children > 0 ? do_nested_values_fit(schema, vector, n) : do_intervals_fit(vector, n);
        }
    }
    return do_fit;
}

/* ---- all of it ---- */

static enum err put_right(const struct duck_shape *shape, struct ArrowArray *array, struct error *e)
{
    if (shape->has_bools) {
        duck__bools_in_array(&shape->schema, array);
    }
    return shape->has_forms ? duck__refit_array(&shape->schema, array, shape->is_shortened, e) : ERR_OK;
}

enum err duck__refuse_long(struct error *e)
{
    error_set(e, ERR_INVALID,
              "the values of one column in " DUCK_ROWS_TEXT
              " rows that follow each other have more than 2 GiB, which cannot be passed on");
    error_hint(e, "make them shorter, or fewer");
    return ERR_INVALID;
}

enum err duck__convert(struct duck_connection *connection, duckdb_arrow_options arrow, const struct duck_shape *shape,
                       duckdb_data_chunk chunk, struct ArrowArray *out, struct error *e)
{
    struct ArrowArray array = {0};
    if (shape->has_intervals && !do_columns_fit(shape, chunk)) {
        return refuse_interval(e);
    }
    enum err err = duck__take_error(connection, duck__api.data_chunk_to_arrow(arrow, chunk, &array), e);
    if (err != ERR_OK && strstr(e->message, "arrow_large_buffer_size") != NULL) {
        err = duck__refuse_long(e);
    }
    if (err == ERR_OK) {
        err = put_right(shape, &array, e);
    }
    if (err == ERR_OK) {
        *out = array;
    } else if (array.release != NULL) {
        array.release(&array);
    }
    return err;
}
