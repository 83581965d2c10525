/*
 * plain.c - the types of DuckDB that need no asking: those without children and dictionaries, and of the extensions those of
 * sums. To ask takes DuckDB a millisecond, and each stage that reads rows of others would.
 */
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

/* Types that Arrow lacks: how DuckDB describes them. */
static const struct {
    const char *details;
    duckdb_type type;
} opaque_types[] = {
    {"{\"type_name\":\"hugeint\",\"vendor_name\":\"DuckDB\"}", DUCKDB_TYPE_HUGEINT},
    {"{\"type_name\":\"uhugeint\",\"vendor_name\":\"DuckDB\"}", DUCKDB_TYPE_UHUGEINT},
};

static bool opaque_type(const struct ArrowSchema *field, duckdb_logical_type *out)
{
    size_t n = 0;
    size_t n_details = 0;
    const char *name = duck__metadata(field, "ARROW:extension:name", &n);
    const char *details = duck__metadata(field, "ARROW:extension:metadata", &n_details);
    if (strcmp(field->format, "w:16") != 0 || name == NULL || details == NULL || n != strlen("arrow.opaque") ||
        memcmp(name, "arrow.opaque", n) != 0) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(opaque_types); i++) {
        if (n_details == strlen(opaque_types[i].details) && memcmp(details, opaque_types[i].details, n_details) == 0) {
            *out = duck__api.create_logical_type(opaque_types[i].type);
            return true;
        }
    }
    return false;
}

const char *duck__metadata(const struct ArrowSchema *field, const char *key, size_t *out_n)
{
    const char *at = field->metadata;
    int32_t n_pairs = 0;
    if (at == NULL) {
        return NULL;
    }
    memcpy(&n_pairs, at, sizeof(n_pairs));
    at += sizeof(n_pairs);
    for (int32_t i = 0; i < n_pairs; i++) {
        const char *texts[2];
        int32_t n[2];
        for (int k = 0; k < 2; k++) {
            memcpy(&n[k], at, sizeof(n[k]));
            texts[k] = at + sizeof(n[k]);
            at = texts[k] + n[k];
        }
        if ((size_t)n[0] == strlen(key) && memcmp(texts[0], key, (size_t)n[0]) == 0) {
            *out_n = (size_t)n[1];
            return texts[1];
        }
    }
    return NULL;
}

bool duck__plain_type(const struct ArrowSchema *field, duckdb_logical_type *out)
{
    unsigned long width = 0;
    unsigned long scale = 0;
    if (field->dictionary != NULL || field->n_children > 0) {
        return false;
    }
    if (field->metadata != NULL) {
        return opaque_type(field, out);
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
