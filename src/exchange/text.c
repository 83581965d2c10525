/*
 * text.c - columns: from a schema to a type, the type's name, and cells with all that is nested in them.
 */
#include "exchange/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/mem.h"
#include "exchange/bits.h"
#include "exchange/text_internal.h"
#include "exchange/type.h"

#define JSON_EXACT_MAX (UINT64_C(1) << 53)

/* ---- from a schema ---- */

/* The value of a key in a field's metadata; NULL if it is not there. */
static const char *find_metadata(const char *metadata, const char *key, size_t *out_n)
{
    int32_t n_pairs = 0;
    if (metadata == NULL) {
        return NULL;
    }
    memcpy(&n_pairs, metadata, sizeof n_pairs);
    const char *p = metadata + sizeof n_pairs;
    for (int32_t i = 0; i < n_pairs; i++) {
        int32_t n_key = 0;
        int32_t n_value = 0;
        memcpy(&n_key, p, sizeof n_key);
        const char *found = p + sizeof n_key;
        p = found + n_key;
        memcpy(&n_value, p, sizeof n_value);
        p += sizeof n_value;
        if ((size_t)n_key == strlen(key) && memcmp(found, key, (size_t)n_key) == 0) {
            *out_n = (size_t)n_value;
            return p;
        }
        p += n_value;
    }
    return NULL;
}

/* Types that Arrow lacks: what they are called, what they look like, and what they are. */
struct extension {
    const char *name; /* of the extension, or of DuckDB's type in an arrow.opaque */
    const char *format;
    enum text_kind kind;
    bool is_signed;
};

static const struct extension extensions[] = {
    {"arrow.bool8", "c", TEXT_BOOL, false},  {"arrow.uuid", "w:16", TEXT_UUID, false},
    {"arrow.json", "u", TEXT_JSON, false},   {"arrow.json", "U", TEXT_JSON, false},
    {"hugeint", "w:16", TEXT_WHOLE, true},   {"uhugeint", "w:16", TEXT_WHOLE, false},
    {"time_tz", "w:8", TEXT_TIME_TZ, false}, {"bit", "z", TEXT_BIT, false},
    {"bit", "Z", TEXT_BIT, false},           {"bignum", "z", TEXT_BIGNUM, false},
    {"bignum", "Z", TEXT_BIGNUM, false},
};

/* What the field's extension is called; of an opaque type, what DuckDB calls it. */
static void extension_name(const struct ArrowSchema *schema, struct buf *out)
{
    size_t n = 0;
    size_t n_details = 0;
    const char *name = find_metadata(schema->metadata, "ARROW:extension:name", &n);
    const char *details = find_metadata(schema->metadata, "ARROW:extension:metadata", &n_details);
    buf_append(out, name, name == NULL ? 0 : n);
    if (strcmp(out->data, "arrow.opaque") != 0 || details == NULL) {
        return;
    }
    struct json *root = NULL;
    buf_reset(out);
    if (json_parse(details, n_details, &root, NULL) == ERR_OK) {
        const char *vendor = json_text(json_get(root, "vendor_name"), NULL);
        const char *type = json_text(json_get(root, "type_name"), NULL);
        if (vendor != NULL && type != NULL && strcmp(vendor, "DuckDB") == 0) {
            buf_text(out, type);
        }
        json_free(root);
    }
}

static bool take_extension(const struct ArrowSchema *schema, struct text_type *type)
{
    struct buf name = {0};
    bool is_known = false;
    if (schema->metadata == NULL) {
        return false;
    }
    extension_name(schema, &name);
    for (size_t i = 0; i < ARRAY_LEN(extensions) && !is_known; i++) {
        const struct extension *extension = &extensions[i];
        is_known = strcmp(extension->name, name.data) == 0 && strcmp(extension->format, schema->format) == 0;
        if (is_known) {
            type->kind = extension->kind;
            type->is_signed = extension->is_signed;
        }
    }
    buf_deinit(&name);
    return is_known;
}

/* Kinds by how a format string begins; the first row that fits counts. */
static const struct {
    const char *start;
    enum text_kind kind;
} kinds[] = {
    {"n", TEXT_NULL},      {"b", TEXT_BOOL},   {"e", TEXT_FLOAT}, {"f", TEXT_FLOAT},      {"g", TEXT_FLOAT},
    {"d:", TEXT_DECIMAL},  {"w:", TEXT_BLOB},  {"z", TEXT_BLOB},  {"Z", TEXT_BLOB},       {"u", TEXT_VARCHAR},
    {"U", TEXT_VARCHAR},   {"td", TEXT_DATE},  {"tt", TEXT_TIME}, {"ts", TEXT_TIMESTAMP}, {"tD", TEXT_INTERVAL},
    {"ti", TEXT_INTERVAL}, {"+l", TEXT_LIST},  {"+L", TEXT_LIST}, {"+w", TEXT_ARRAY},     {"+m", TEXT_MAP},
    {"+s", TEXT_STRUCT},   {"+u", TEXT_UNION}, {"", TEXT_WHOLE},
};

static enum text_kind kind_of_format(const char *format)
{
    size_t i = 0;
    while (strncmp(format, kinds[i].start, strlen(kinds[i].start)) != 0) {
        i++;
    }
    return kinds[i].kind;
}

/* What stands in the format behind the kind. It has been checked. */
static void read_parameters(const char *format, struct text_type *type)
{
    if (type->kind == TEXT_DECIMAL) {
        char *end = NULL;
        type->precision = (int32_t)strtol(format + 2, &end, 10);
        type->scale = (int32_t)strtol(end + 1, NULL, 10);
    } else if (format[0] == 't') {
        type->unit = format[2];
        type->has_zone = type->kind == TEXT_TIMESTAMP && format[4] != '\0';
    } else if (type->kind == TEXT_UNION) {
        uint8_t child = 0;
        type->child_of = mem_calloc(128, 1);
        for (const char *p = format + 4; *p != '\0';) {
            char *end = NULL;
            type->child_of[strtol(p, &end, 10) & 127] = child++;
            p = *end == ',' ? end + 1 : end;
        }
    }
}

static void deinit(struct text_type *type)
{
    for (uint32_t i = 0; i < type->n_children; i++) {
        deinit(&type->children[i]);
    }
    text_type_free(type->dictionary);
    mem_free(type->children);
    mem_free(type->child_of);
    mem_free(type->name);
}

void text_type_free(struct text_type *type)
{
    if (type != NULL) {
        deinit(type);
        mem_free(type);
    }
}

/* What was made before an error is there to be ended. */
static enum err init(const struct ArrowSchema *schema, struct text_type *type, struct error *e)
{
    struct type_info info;
    enum err err = type_of_format(schema->format, &info, e);
    if (err != ERR_OK) {
        return err;
    }
    *type = (struct text_type){.kind = kind_of_format(schema->format),
                               .layout = info.layout.kind,
                               .width = info.layout.width,
                               .is_signed = info.layout.is_signed,
                               .name = mem_strdup(schema->name == NULL ? "" : schema->name)};
    if (!take_extension(schema, type)) {
        read_parameters(schema->format, type);
    }
    if (schema->dictionary != NULL) {
        type->kind = TEXT_ENUM;
        type->dictionary = mem_calloc(1, sizeof *type->dictionary);
        err = init(schema->dictionary, type->dictionary, e);
    }
    if (schema->n_children > 0) {
        type->children = mem_calloc((size_t)schema->n_children, sizeof *type->children);
    }
    for (int64_t i = 0; i < schema->n_children && err == ERR_OK; i++) {
        type->n_children++;
        err = init(schema->children[i], &type->children[i], e);
    }
    return err;
}

enum err text_type_new(const struct ArrowSchema *schema, struct text_type **out, struct error *e)
{
    struct text_type *type = mem_calloc(1, sizeof *type);
    enum err err = init(schema, type, e);
    if (err != ERR_OK) {
        text_type_free(type);
        return err;
    }
    *out = type;
    return ERR_OK;
}

/* ---- names ---- */

bool text_type_is_number(const struct text_type *type)
{
    return type->kind == TEXT_WHOLE || type->kind == TEXT_FLOAT || type->kind == TEXT_DECIMAL ||
           type->kind == TEXT_BIGNUM;
}

/* A name that is no plain word stands in quotes. */
static void put_name(struct buf *out, const char *name)
{
    bool is_plain = name[0] != '\0' && isdigit((unsigned char)name[0]) == 0;
    for (const char *p = name; *p != '\0' && is_plain; p++) {
        is_plain = isalnum((unsigned char)*p) != 0 || *p == '_';
    }
    if (is_plain) {
        buf_text(out, name);
        return;
    }
    buf_char(out, '"');
    for (const char *p = name; *p != '\0'; p++) {
        buf_text(out, *p == '"' ? "\"" : "");
        buf_char(out, *p);
    }
    buf_char(out, '"');
}

static void put_fields(struct buf *out, const char *start, const struct text_type *type, bool has_names)
{
    buf_text(out, start);
    for (uint32_t i = 0; i < type->n_children; i++) {
        buf_text(out, i == 0 ? "" : ", ");
        if (has_names && type->children[i].name[0] != '\0') {
            put_name(out, type->children[i].name);
            buf_char(out, ' ');
        }
        text_type_name(out, &type->children[i]);
    }
    buf_char(out, ')');
}

static void put_whole_name(struct buf *out, const struct text_type *type)
{
    static const struct {
        uint32_t width;
        const char *name;
    } names[] = {{1, "TINYINT"}, {2, "SMALLINT"}, {4, "INTEGER"}, {8, "BIGINT"}, {16, "HUGEINT"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (names[i].width == type->width) {
            buf_text(out, type->is_signed ? "" : "U");
            buf_text(out, names[i].name);
        }
    }
}

static void put_timestamp_name(struct buf *out, const struct text_type *type)
{
    static const char *const names[] = {"TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS"};
    static const char units[] = "smun";
    if (type->has_zone) {
        buf_text(out, "TIMESTAMP WITH TIME ZONE");
    } else {
        buf_text(out, names[strchr(units, type->unit) - units]);
    }
}

/* Kinds whose name needs no parameters. */
static const char *const plain_names[N_TEXT_KINDS] = {
    [TEXT_NULL] = "\"NULL\"",     [TEXT_BOOL] = "BOOLEAN",
    [TEXT_BIGNUM] = "BIGNUM",     [TEXT_VARCHAR] = "VARCHAR",
    [TEXT_JSON] = "JSON",         [TEXT_BLOB] = "BLOB",
    [TEXT_BIT] = "BIT",           [TEXT_UUID] = "UUID",
    [TEXT_DATE] = "DATE",         [TEXT_TIME_TZ] = "TIME WITH TIME ZONE",
    [TEXT_INTERVAL] = "INTERVAL",
};

void text_type_name(struct buf *out, const struct text_type *type)
{
    if (plain_names[type->kind] != NULL) {
        buf_text(out, plain_names[type->kind]);
    } else if (type->kind == TEXT_WHOLE) {
        put_whole_name(out, type);
    } else if (type->kind == TEXT_FLOAT) {
        buf_text(out, type->width == 8 ? "DOUBLE" : "FLOAT");
    } else if (type->kind == TEXT_DECIMAL) {
        buf_format(out, "DECIMAL(%" PRId32 ",%" PRId32 ")", type->precision, type->scale);
    } else if (type->kind == TEXT_TIME) {
        buf_text(out, type->unit == 'n' ? "TIME_NS" : "TIME");
    } else if (type->kind == TEXT_TIMESTAMP) {
        put_timestamp_name(out, type);
    } else if (type->kind == TEXT_ENUM) {
        if (type->dictionary->kind == TEXT_VARCHAR) {
            buf_text(out, "ENUM");
        } else {
            text_type_name(out, type->dictionary);
        }
    } else if (type->kind == TEXT_LIST) {
        text_type_name(out, &type->children[0]);
        buf_text(out, "[]");
    } else if (type->kind == TEXT_ARRAY) {
        text_type_name(out, &type->children[0]);
        buf_format(out, "[%" PRIu32 "]", type->width);
    } else if (type->kind == TEXT_MAP) {
        put_fields(out, "MAP(", &type->children[0], false);
    } else {
        put_fields(out, type->kind == TEXT_STRUCT ? "STRUCT(" : "UNION(", type, true);
    }
}

/* ---- where values are ---- */

/* The bytes of a value that is not nested. `i` counts from the start of the buffers. */
struct value {
    const uint8_t *bytes;
    size_t n;
    uint8_t bit;
};

static void find_value(const struct text_type *type, const struct ArrowArray *array, int64_t i, struct value *out)
{
    const uint8_t *data = array->buffers[1];
    ASSERT(data != NULL);
    if (type->layout == LAYOUT_FIXED) {
        out->bytes = data + i * type->width;
        out->n = type->width;
    } else if (type->layout == LAYOUT_BITS) {
        out->bit = bits_get(data, (size_t)i) ? 1 : 0;
        out->bytes = &out->bit;
        out->n = 1;
    } else {
        int64_t from = 0;
        int64_t to = 0;
        if (type->layout == LAYOUT_BYTES) {
            int32_t ends[2];
            memcpy(ends, data + i * (int64_t)sizeof ends[0], sizeof ends);
            from = ends[0];
            to = ends[1];
        } else {
            int64_t ends[2];
            memcpy(ends, data + i * (int64_t)sizeof ends[0], sizeof ends);
            from = ends[0];
            to = ends[1];
        }
        /* Arrays of empty texts may have no bytes at all. */
        out->bytes = array->buffers[2] == NULL ? (const uint8_t *)"" : (const uint8_t *)array->buffers[2] + from;
        out->n = (size_t)(to - from);
    }
}

/* The values of a list: from which to before which row of its child. */
struct range {
    int64_t from;
    int64_t to;
};

static struct range find_range(const struct text_type *type, const struct ArrowArray *array, int64_t i)
{
    if (type->layout == LAYOUT_FIXED_LIST) {
        return (struct range){i * type->width, (i + 1) * type->width};
    }
    const uint8_t *data = array->buffers[1];
    if (type->layout == LAYOUT_LIST) {
        int32_t ends[2];
        memcpy(ends, data + i * (int64_t)sizeof ends[0], sizeof ends);
        return (struct range){ends[0], ends[1]};
    }
    int64_t ends[2];
    memcpy(ends, data + i * (int64_t)sizeof ends[0], sizeof ends);
    return (struct range){ends[0], ends[1]};
}

/* Where one value is. */
struct place {
    const struct text_type *type;
    const struct ArrowArray *array;
    int64_t i; /* from the start of the buffers */
};

/* Goes through dictionaries to the value itself. False if it is NULL. */
static bool find_place(const struct text_type *type, const struct ArrowArray *array, int64_t row, struct place *out)
{
    int64_t i = array->offset + row;
    if (type->kind == TEXT_NULL) {
        return false;
    }
    if (type->kind != TEXT_UNION && array->n_buffers > 0 && array->buffers[0] != NULL && array->null_count != 0 &&
        !bits_get(array->buffers[0], (size_t)i)) {
        return false;
    }
    if (type->dictionary != NULL) {
        struct value index = {0};
        find_value(type, array, i, &index);
        return find_place(type->dictionary, array->dictionary, (int64_t)text__number(type, index.bytes), out);
    }
    *out = (struct place){type, array, i};
    return true;
}

static uint8_t union_child(const struct place *place)
{
    const uint8_t *ids = place->array->buffers[place->array->n_buffers - 1];
    return place->type->child_of[ids[place->i] & 127];
}

/* ---- as DuckDB prints it ---- */

static text_value_fn *const values[N_TEXT_KINDS] = {
    [TEXT_BOOL] = text__bool,       [TEXT_WHOLE] = text__whole,         [TEXT_FLOAT] = text__float,
    [TEXT_DECIMAL] = text__decimal, [TEXT_BIGNUM] = text__bignum,       [TEXT_VARCHAR] = text__varchar,
    [TEXT_JSON] = text__varchar,    [TEXT_BLOB] = text__blob,           [TEXT_BIT] = text__bit,
    [TEXT_UUID] = text__uuid,       [TEXT_DATE] = text__date,           [TEXT_TIME] = text__time,
    [TEXT_TIME_TZ] = text__time_tz, [TEXT_TIMESTAMP] = text__timestamp, [TEXT_INTERVAL] = text__interval,
};

static bool put_cell(struct buf *out, const struct text_type *type, const struct ArrowArray *array, int64_t row);

/* In quotes, where quotes and backslashes have a backslash in front. */
static void put_quoted(struct buf *out, const char *text, size_t n)
{
    buf_char(out, '\'');
    for (size_t i = 0; i < n; i++) {
        buf_text(out, text[i] == '\'' || text[i] == '\\' ? "\\" : "");
        buf_char(out, text[i]);
    }
    buf_char(out, '\'');
}

static bool needs_quotes(const char *text, size_t n)
{
    if (n == 0 || isspace((unsigned char)text[0]) != 0 || isspace((unsigned char)text[n - 1]) != 0 ||
        (n == 4 && strncasecmp(text, "null", n) == 0)) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\0' && strchr("\"'(),:=[]{}", text[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static void put_raw(struct buf *out, const struct text_type *type, const struct ArrowArray *array, int64_t row)
{
    buf_text(out, put_cell(out, type, array, row) ? "" : "NULL");
}

/* A value inside another one: quoted if it could be taken for something else. */
static void put_inner(struct buf *out, const struct text_type *type, const struct ArrowArray *array, int64_t row)
{
    if (type->kind >= TEXT_LIST) {
        put_raw(out, type, array, row);
        return;
    }
    struct buf text = {0};
    if (!put_cell(&text, type, array, row)) {
        buf_text(out, "NULL");
    } else if (needs_quotes(text.data, text.n)) {
        put_quoted(out, text.data, text.n);
    } else {
        buf_append(out, text.data, text.n);
    }
    buf_deinit(&text);
}

static void put_list(struct buf *out, const struct place *place)
{
    const struct text_type *child = &place->type->children[0];
    struct range range = find_range(place->type, place->array, place->i);
    buf_char(out, '[');
    for (int64_t i = range.from; i < range.to; i++) {
        buf_text(out, i == range.from ? "" : ", ");
        /* JSON is never quoted in a list, though it is in structs and maps. */
        (child->kind == TEXT_JSON ? put_raw : put_inner)(out, child, place->array->children[0], i);
    }
    buf_char(out, ']');
}

static void put_map(struct buf *out, const struct place *place)
{
    const struct text_type *entry = &place->type->children[0];
    const struct ArrowArray *entries = place->array->children[0];
    struct range range = find_range(place->type, place->array, place->i);
    buf_char(out, '{');
    for (int64_t i = range.from; i < range.to; i++) {
        buf_text(out, i == range.from ? "" : ", ");
        put_inner(out, &entry->children[0], entries->children[0], entries->offset + i);
        buf_char(out, '=');
        put_inner(out, &entry->children[1], entries->children[1], entries->offset + i);
    }
    buf_char(out, '}');
}

static bool has_field_names(const struct text_type *type)
{
    return type->n_children == 0 || type->children[0].name[0] != '\0';
}

static void put_struct(struct buf *out, const struct place *place)
{
    bool has_names = has_field_names(place->type);
    buf_char(out, has_names ? '{' : '(');
    for (uint32_t c = 0; c < place->type->n_children; c++) {
        const struct text_type *child = &place->type->children[c];
        buf_text(out, c == 0 ? "" : ", ");
        if (has_names) {
            put_quoted(out, child->name, strlen(child->name));
            buf_text(out, ": ");
        }
        put_inner(out, child, place->array->children[c], place->i);
    }
    buf_char(out, has_names ? '}' : ')');
}

static bool put_cell(struct buf *out, const struct text_type *type, const struct ArrowArray *array, int64_t row)
{
    struct place place;
    if (!find_place(type, array, row, &place)) {
        return false;
    }
    type = place.type;
    if (type->kind == TEXT_LIST || type->kind == TEXT_ARRAY) {
        put_list(out, &place);
    } else if (type->kind == TEXT_MAP) {
        put_map(out, &place);
    } else if (type->kind == TEXT_STRUCT) {
        put_struct(out, &place);
    } else if (type->kind == TEXT_UNION) {
        uint8_t child = union_child(&place);
        return put_cell(out, &type->children[child], place.array->children[child], place.i);
    } else {
        struct value value = {0};
        find_value(type, place.array, place.i, &value);
        values[type->kind](out, type, value.bytes, value.n);
    }
    return true;
}

bool text_cell(struct buf *out, const struct text_type *type, const struct ArrowArray *array, int64_t row)
{
    buf_append(out, NULL, 0);
    return put_cell(out, type, array, row);
}

/* ---- JSON ---- */

static void put_json_list(struct buf *out, const struct place *place)
{
    struct range range = find_range(place->type, place->array, place->i);
    buf_char(out, '[');
    for (int64_t i = range.from; i < range.to; i++) {
        buf_text(out, i == range.from ? "" : ",");
        text_cell_json(out, &place->type->children[0], place->array->children[0], i);
    }
    buf_char(out, ']');
}

static void put_json_map(struct buf *out, const struct place *place)
{
    const struct text_type *entry = &place->type->children[0];
    const struct ArrowArray *entries = place->array->children[0];
    struct range range = find_range(place->type, place->array, place->i);
    buf_char(out, '{');
    for (int64_t i = range.from; i < range.to; i++) {
        struct buf key = {0};
        text_cell(&key, &entry->children[0], entries->children[0], entries->offset + i);
        buf_text(out, i == range.from ? "" : ",");
        json_write_bytes(out, key.data, key.n);
        buf_char(out, ':');
        text_cell_json(out, &entry->children[1], entries->children[1], entries->offset + i);
        buf_deinit(&key);
    }
    buf_char(out, '}');
}

static void put_json_struct(struct buf *out, const struct place *place)
{
    bool has_names = has_field_names(place->type);
    buf_char(out, has_names ? '{' : '[');
    for (uint32_t c = 0; c < place->type->n_children; c++) {
        const struct text_type *child = &place->type->children[c];
        buf_text(out, c == 0 ? "" : ",");
        if (has_names) {
            json_write_text(out, child->name);
            buf_char(out, ':');
        }
        text_cell_json(out, child, place->array->children[c], place->i);
    }
    buf_char(out, has_names ? '}' : ']');
}

/* A union that is NULL as a whole cannot be told from one whose value is. */
static void put_json_union(struct buf *out, const struct place *place)
{
    uint8_t child = union_child(place);
    const struct text_type *type = &place->type->children[child];
    struct place inner;
    if (!find_place(type, place->array->children[child], place->i, &inner)) {
        buf_text(out, "null");
        return;
    }
    buf_char(out, '{');
    json_write_text(out, type->name);
    buf_char(out, ':');
    text_cell_json(out, type, place->array->children[child], place->i);
    buf_char(out, '}');
}

/* Takes JSON over without the white space between its parts. What is none after all becomes a text. */
static void put_json_itself(struct buf *out, const char *text, size_t n)
{
    struct json *root = NULL;
    bool in_text = false;
    ASSERT(text != NULL);
    if (json_parse(text, n, &root, NULL) != ERR_OK) {
        json_write_bytes(out, text, n);
        return;
    }
    json_free(root);
    for (size_t i = 0; i < n; i++) {
        if (in_text && text[i] == '\\') {
            buf_append(out, text + i++, 2);
            continue;
        }
        in_text = in_text != (text[i] == '"');
        if (in_text || strchr(" \t\r\n", text[i]) == NULL) {
            buf_char(out, text[i]);
        }
    }
}

/* Whether the text of the value is a number in JSON, and every reader gets it exactly. */
static bool is_json_number(const struct text_type *type, const struct value *value, const struct buf *text)
{
    if (type->kind == TEXT_FLOAT) {
        return strpbrk(text->data, "nf") == NULL; /* nan, inf */
    }
    if (type->kind != TEXT_WHOLE || type->width > 8) {
        return false;
    }
    uint64_t number = text__number(type, value->bytes);
    uint64_t size = type->is_signed && (int64_t)number < 0 ? 0 - number : number;
    return size <= JSON_EXACT_MAX;
}

static void put_json_value(struct buf *out, const struct place *place)
{
    const struct text_type *type = place->type;
    struct value value = {0};
    struct buf text = {0};
    find_value(type, place->array, place->i, &value);
    if (type->kind == TEXT_VARCHAR) {
        json_write_bytes(out, (const char *)value.bytes, value.n);
        return;
    }
    if (type->kind == TEXT_JSON) {
        put_json_itself(out, (const char *)value.bytes, value.n);
        return;
    }
    buf_append(&text, NULL, 0);
    values[type->kind](&text, type, value.bytes, value.n);
    if (type->kind == TEXT_BOOL || is_json_number(type, &value, &text)) {
        buf_append(out, text.data, text.n);
    } else {
        json_write_bytes(out, text.data, text.n);
    }
    buf_deinit(&text);
}

void text_cell_json(struct buf *out, const struct text_type *type, const struct ArrowArray *array, int64_t row)
{
    struct place place;
    if (!find_place(type, array, row, &place)) {
        buf_text(out, "null");
        return;
    }
    type = place.type;
    if (type->kind == TEXT_LIST || type->kind == TEXT_ARRAY) {
        put_json_list(out, &place);
    } else if (type->kind == TEXT_MAP) {
        put_json_map(out, &place);
    } else if (type->kind == TEXT_STRUCT) {
        put_json_struct(out, &place);
    } else if (type->kind == TEXT_UNION) {
        put_json_union(out, &place);
    } else {
        put_json_value(out, &place);
    }
}
