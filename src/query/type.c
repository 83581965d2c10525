/* type.c - SQL's types: their names, and when two are the same. */
#include <inttypes.h>
#include <string.h>

#include "query/plan.h"

struct type_row {
    const char *json_id;
    const char *sql_name;
    enum constant_form form;
};

/* clang-format off */
static const struct type_row rows[] = {
#define X(symbol, json_id, sql_name, form) [symbol] = {json_id, sql_name, form},
    TYPE_TABLE(X)
#undef X
};

static const struct type plain[] = {
#define X(symbol, json_id, sql_name, form) [symbol] = {.id = symbol},
    TYPE_TABLE(X)
#undef X
};
/* clang-format on */

const struct type *type_plain(enum type_id id)
{
    return &plain[id];
}

const struct type *type_decimal(struct arena *arena, uint8_t width, uint8_t scale)
{
    struct type *type = arena_zalloc(arena, sizeof(*type));
    type->id = TYPE_DECIMAL;
    type->width = width;
    type->scale = scale;
    return type;
}

enum type_id type_id_of(const char *json_id)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].json_id, json_id) == 0) {
            return (enum type_id)i;
        }
    }
    /* What a literal's type was before it was bound, and the old name of VARCHAR. */
    return strcmp(json_id, "CHAR") == 0 ? TYPE_VARCHAR : TYPE_OTHER;
}

enum constant_form type_form(enum type_id id)
{
    return rows[id].form;
}

/* Literals are bound as VARCHAR and INTEGER. */
static enum type_id id_in_sql(const struct type *type)
{
    switch ((int)type->id) {
    case TYPE_STRING_LITERAL:
        return TYPE_VARCHAR;
    case TYPE_INTEGER_LITERAL:
        return TYPE_INTEGER;
    default:
        return type->id;
    }
}

bool type_equal(const struct type *a, const struct type *b)
{
    if (a == b) {
        return true;
    }
    if (id_in_sql(a) != id_in_sql(b) || a->is_json != b->is_json || a->width != b->width || a->scale != b->scale ||
        a->size != b->size || a->n_fields != b->n_fields || (a->child == NULL) != (b->child == NULL)) {
        return false;
    }
    if (a->child != NULL && !type_equal(a->child, b->child)) {
        return false;
    }
    for (uint32_t i = 0; i < a->n_fields; i++) {
        if (strcmp(a->fields[i].name, b->fields[i].name) != 0) {
            return false;
        }
        if (a->fields[i].type != NULL && !type_equal(a->fields[i].type, b->fields[i].type)) {
            return false;
        }
    }
    return true;
}

bool type_has_sql(const struct type *type)
{
    if (rows[type->id].sql_name == NULL || (type->id == TYPE_STRUCT && type->n_fields == 0)) {
        return false;
    }
    if (type->child != NULL && !type_has_sql(type->child)) {
        return false;
    }
    for (uint32_t i = 0; i < type->n_fields && type->id != TYPE_ENUM; i++) {
        if (type->fields[i].name[0] == '\0' || !type_has_sql(type->fields[i].type)) {
            return false;
        }
    }
    return true;
}

static void write_fields(struct buf *sql, const char *name, const struct type *type)
{
    buf_text(sql, name);
    for (uint32_t i = 0; i < type->n_fields; i++) {
        buf_text(sql, i == 0 ? "(" : ", ");
        sql_write_name(sql, type->fields[i].name);
        buf_char(sql, ' ');
        type_write(sql, type->fields[i].type);
    }
    buf_char(sql, ')');
}

static void write_values(struct buf *sql, const struct type *type)
{
    buf_text(sql, "ENUM(");
    for (uint32_t i = 0; i < type->n_fields; i++) {
        buf_text(sql, i == 0 ? "" : ", ");
        sql_write_text(sql, type->fields[i].name, strlen(type->fields[i].name));
    }
    buf_char(sql, ')');
}

void type_write(struct buf *sql, const struct type *type)
{
    switch ((int)type->id) {
    case TYPE_DECIMAL:
        buf_format(sql, "DECIMAL(%u,%u)", (unsigned)type->width, (unsigned)type->scale);
        break;
    case TYPE_LIST:
        type_write(sql, type->child);
        buf_text(sql, "[]");
        break;
    case TYPE_ARRAY:
        type_write(sql, type->child);
        buf_format(sql, "[%" PRIu32 "]", type->size);
        break;
    case TYPE_MAP:
        buf_text(sql, "MAP(");
        type_write(sql, type->child->fields[0].type);
        buf_text(sql, ", ");
        type_write(sql, type->child->fields[1].type);
        buf_char(sql, ')');
        break;
    case TYPE_STRUCT:
    case TYPE_UNION:
        write_fields(sql, rows[type->id].sql_name, type);
        break;
    case TYPE_ENUM:
        write_values(sql, type);
        break;
    default:
        ASSERT(rows[type->id].sql_name != NULL);
        buf_text(sql, type->is_json ? "JSON" : rows[type->id].sql_name);
        break;
    }
}

bool type_is_exact_number(const struct type *type, uint8_t *out_width, uint8_t *out_scale)
{
    /* Decimal digits of the whole numbers, as DuckDB counts them when it makes them DECIMAL. */
    static const uint8_t digits[] = {
        [TYPE_TINYINT] = 3,  [TYPE_SMALLINT] = 5,  [TYPE_INTEGER] = 10,  [TYPE_BIGINT] = 19,
        [TYPE_HUGEINT] = 38, [TYPE_UTINYINT] = 3,  [TYPE_USMALLINT] = 5, [TYPE_UINTEGER] = 10,
        [TYPE_UBIGINT] = 20, [TYPE_UHUGEINT] = 38, [TYPE_DECIMAL] = 255, [TYPE_INTEGER_LITERAL] = 10,
    };
    if ((size_t)type->id >= ARRAY_LEN(digits) || digits[type->id] == 0) {
        return false;
    }
    if (out_width != NULL) {
        *out_width = type->id == TYPE_DECIMAL ? type->width : digits[type->id];
    }
    if (out_scale != NULL) {
        *out_scale = type->scale;
    }
    return true;
}
