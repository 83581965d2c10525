/*
 * Arrays in the binary form that array_recv takes: number of dimensions, whether there are NULLs, element type, length,
 * lower bound, then for each element its length (-1: NULL) and its bytes. All numbers are big-endian.
 */
#include <string.h>

#include "base/mem.h"
#include "store/postgres_internal.h"

#define HEADER_BYTES 20

static void put_u32(char *at, uint32_t number)
{
    number = __builtin_bswap32(number);
    memcpy(at, &number, sizeof number);
}

void postgres__arrays_start(struct postgres_arrays *arrays, const enum value_type *types, uint32_t n)
{
    ASSERT(n <= POSTGRES_PARAMS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        arrays->types[i] = types[i];
        arrays->at[i].n = HEADER_BYTES;
    }
    arrays->n = n;
    arrays->n_rows = 0;
    arrays->n_bytes = n * (size_t)HEADER_BYTES;
}

static char *reserve(struct postgres_array *array, size_t n)
{
    if (array->cap - array->n < n || array->cap < array->n) {
        array->cap = (array->n + n) * 2;
        array->data = mem_realloc(array->data, array->cap);
    }
    char *at = array->data + array->n;
    array->n += n;
    return at;
}

void postgres__arrays_put(struct postgres_arrays *arrays, uint32_t column, struct value value)
{
    struct postgres_array *array = &arrays->at[column];
    size_t n = value.type == VALUE_IS_NULL ? 0 : value.type == VALUE_IS_INT ? sizeof value.number : value.n;
    char *at = reserve(array, sizeof(uint32_t) + n);
    arrays->n_bytes += sizeof(uint32_t) + n;
    if (value.type == VALUE_IS_NULL) {
        put_u32(at, UINT32_MAX);
        return;
    }
    put_u32(at, (uint32_t)n);
    if (value.type == VALUE_IS_INT) {
        uint64_t number = __builtin_bswap64((uint64_t)value.number);
        memcpy(at + sizeof(uint32_t), &number, sizeof number);
    } else if (n > 0) {
        memcpy(at + sizeof(uint32_t), value.bytes, n);
    }
}

static uint32_t type_oid(enum value_type type)
{
    return type == VALUE_IS_INT ? 20 : type == VALUE_IS_TEXT ? 25 : 17;
}

void postgres__arrays_finish(struct postgres_arrays *arrays)
{
    for (uint32_t i = 0; i < arrays->n; i++) {
        const uint32_t header[] = {1, 1, type_oid(arrays->types[i]), arrays->n_rows, 1};
        reserve(&arrays->at[i], 0);
        for (uint32_t h = 0; h < ARRAY_LEN(header); h++) {
            put_u32(arrays->at[i].data + h * sizeof(uint32_t), header[h]);
        }
        ASSERT(arrays->at[i].n <= INT32_MAX);
    }
}

void postgres__arrays_deinit(struct postgres_arrays *arrays)
{
    for (uint32_t i = 0; i < POSTGRES_PARAMS_MAX; i++) {
        mem_free(arrays->at[i].data);
        arrays->at[i] = (struct postgres_array){0};
    }
}
