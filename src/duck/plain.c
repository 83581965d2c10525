/* plain.c - the types of DuckDB that need no asking: those without children, dictionaries and extensions. */
#include <stdio.h>
#include <string.h>

#include "duck/duck_internal.h"

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

bool duck__plain_type(const struct ArrowSchema *field, duckdb_logical_type *out)
{
    unsigned width = 0;
    unsigned scale = 0;
    if (field->metadata != NULL || field->dictionary != NULL || field->n_children > 0) {
        return false;
    }
    if (sscanf(field->format, "d:%2u,%2u", &width, &scale) == 2 && width >= 1 && width <= 38 && scale <= width) {
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
