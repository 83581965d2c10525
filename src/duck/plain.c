/* plain.c - the types of DuckDB that need no asking: those without children, dictionaries and extensions. */
#include <stdlib.h>
#include <string.h>

#include "duck/duck_internal.h"

#define WIDTH_MAX 38 /* digits of a DECIMAL */

static const struct {
    const char *format;
    duckdb_type type;
} plain_types[] = {
    {"b", DUCKDB_TYPE_BOOLEAN},
    {"c", DUCKDB_TYPE_TINYINT},
    {"C", DUCKDB_TYPE_UTINYINT},
    {"s", DUCKDB_TYPE_SMALLINT},
    {"S", DUCKDB_TYPE_USMALLINT},
    {"i", DUCKDB_TYPE_INTEGER},
    {"I", DUCKDB_TYPE_UINTEGER},
    {"l", DUCKDB_TYPE_BIGINT},
    {"L", DUCKDB_TYPE_UBIGINT},
    {"f", DUCKDB_TYPE_FLOAT},
    {"g", DUCKDB_TYPE_DOUBLE},
    {"u", DUCKDB_TYPE_VARCHAR},
    {"z", DUCKDB_TYPE_BLOB},
    {"tdD", DUCKDB_TYPE_DATE},
    {"tsu:", DUCKDB_TYPE_TIMESTAMP},
    {"tss:", DUCKDB_TYPE_TIMESTAMP_S},
    {"tsm:", DUCKDB_TYPE_TIMESTAMP_MS},
    {"tsn:", DUCKDB_TYPE_TIMESTAMP_NS},
    {"tsu:UTC", DUCKDB_TYPE_TIMESTAMP_TZ},
};

/* "d:15,2", perhaps with the bits behind it: those that DuckDB has. */
static bool read_decimal(const char *format, unsigned long *out_width, unsigned long *out_scale)
{
    char *end = NULL;
    if (strncmp(format, "d:", 2) != 0) {
        return false;
    }
    *out_width = strtoul(format + 2, &end, 10);
    if (*end != ',') {
        return false;
    }
    *out_scale = strtoul(end + 1, &end, 10);
    bool is_known = *end == '\0' || strcmp(end, ",32") == 0 || strcmp(end, ",64") == 0 || strcmp(end, ",128") == 0;
    return is_known && *out_width >= 1 && *out_width <= WIDTH_MAX && *out_scale <= *out_width;
}

bool duck__plain_type(const struct ArrowSchema *field, duckdb_logical_type *out)
{
    unsigned long width = 0;
    unsigned long scale = 0;
    if (field->metadata != NULL || field->dictionary != NULL || field->n_children > 0) {
        return false;
    }
    if (read_decimal(field->format, &width, &scale)) {
        *out = duck__api.create_decimal_type((uint8_t)width, (uint8_t)scale);
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(plain_types); i++) {
        if (strcmp(plain_types[i].format, field->format) == 0) {
            *out = duck__api.create_logical_type(plain_types[i].type);
            return true;
        }
    }
    return false;
}
