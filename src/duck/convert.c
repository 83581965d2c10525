/*
 * convert.c - chunks as Arrow arrays, with what is in them put right, and refused where Arrow cannot say it.
 *
 * DuckDB checks neither that an INTERVAL fits into Arrow's nanoseconds, which end at 292 years, nor tells it apart when
 * texts are too long for offsets of 32 bits. Wrong rows would be the one result, an endless row of attempts the other.
 */
#include <string.h>

#include "duck/duck_internal.h"

#define INTERVAL_FORMAT "tin"
#define MICROS_MAX (INT64_MAX / 1000)

/* As Arrow has it. */
struct month_day_nano {
    int32_t months;
    int32_t days;
    int64_t nanos;
};

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

/* Columns as DuckDB has them. */
static bool do_values_fit(const struct duck_shape *shape, duckdb_data_chunk chunk)
{
    bool do_fit = true;
    int64_t n = (int64_t)duck__api.data_chunk_get_size(chunk);
    for (int64_t i = 0; i < shape->schema.n_children; i++) {
        if (strcmp(shape->schema.children[i]->format, INTERVAL_FORMAT) != 0) {
            continue;
        }
        duckdb_vector vector = duck__api.data_chunk_get_vector(chunk, (idx_t)i);
        const uint8_t *validity = (const uint8_t *)duck__api.vector_get_validity(vector);
        const duckdb_interval *values = duck__api.vector_get_data(vector);
        for (int64_t row = 0; row < n && do_fit; row++) {
            do_fit =
                !is_valid(validity, row) || (values[row].micros <= MICROS_MAX && values[row].micros >= -MICROS_MAX);
        }
    }
    return do_fit;
}

/* Inside of others, by what has become of them: microseconds that did not fit are no whole ones any more. */
static bool do_nanos_fit(const struct ArrowSchema *schema, const struct ArrowArray *array)
{
    bool do_fit = true;
    int64_t n = strcmp(schema->format, INTERVAL_FORMAT) == 0 ? array->offset + array->length : 0;
    for (int64_t row = array->offset; row < n && do_fit; row++) {
        const struct month_day_nano *value = (const struct month_day_nano *)array->buffers[1] + row;
        do_fit = !is_valid(array->buffers[0], row) || value->nanos % 1000 == 0;
    }
    for (int64_t i = 0; i < schema->n_children && do_fit; i++) {
        do_fit = do_nanos_fit(schema->children[i], array->children[i]);
    }
    return do_fit;
}

/* ---- all of it ---- */

static enum err put_right(const struct duck_shape *shape, struct ArrowArray *array, struct error *e)
{
    if (shape->has_intervals && !do_nanos_fit(&shape->schema, array)) {
        return refuse_interval(e);
    }
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
    if (shape->has_intervals && !do_values_fit(shape, chunk)) {
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
