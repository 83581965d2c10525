/*
 * ipc_schema.c - schemas as IPC headers.
 *
 * The C data interface has the index type of a dictionary on the outside and the type of its values in `dictionary`; in
 * IPC, a field has the type and the children of the values, and the index type is a note.
 */
#include <inttypes.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "exchange/ipc_internal.h"
#include "exchange/schema.h"
#include "exchange/type.h"

/* Fields of the tables Schema, Field and DictionaryEncoding. */
enum { SCHEMA_ENDIANNESS, SCHEMA_FIELDS, SCHEMA_METADATA };
enum { FIELD_NAME, FIELD_NULLABLE, FIELD_TYPE_TYPE, FIELD_TYPE, FIELD_DICTIONARY, FIELD_CHILDREN, FIELD_METADATA };
enum { DICTIONARY_ID, DICTIONARY_INDEX, DICTIONARY_ORDERED };

/* ---- writing ---- */

/* The pairs of the C data interface as a list of tables. */
static size_t put_metadata(struct flat_writer *w, const char *metadata)
{
    static const uint8_t sizes[] = {4, 4};
    int32_t n_pairs = 0;
    memcpy(&n_pairs, metadata, sizeof(n_pairs));
    const char *p = metadata + sizeof(n_pairs);
    size_t list = flat_put_links(w, (uint32_t)n_pairs);
    for (uint32_t i = 0; i < (uint32_t)n_pairs; i++) {
        size_t pair = flat_put_table(w, sizes, ARRAY_LEN(sizes));
        flat_link(w, list + 4 + 4 * (size_t)i, pair);
        for (uint32_t slot = 0; slot < 2; slot++) {
            int32_t n = 0;
            memcpy(&n, p, sizeof(n));
            size_t text = flat_put_text(w, p + sizeof(n), (size_t)n);
            flat_link(w, flat_slot(w, pair, slot), text);
            p += sizeof(n) + (size_t)n;
        }
    }
    return list;
}

static size_t put_dictionary(struct flat_writer *w, const struct ArrowSchema *schema, int64_t id)
{
    static const uint8_t sizes[] = {8, 4, 1};
    uint8_t type = 0;
    size_t table = flat_put_table(w, sizes, ARRAY_LEN(sizes));
    flat_set(w, table, DICTIONARY_ID, (uint64_t)id);
    flat_set(w, table, DICTIONARY_ORDERED, (schema->flags & ARROW_FLAG_DICTIONARY_ORDERED) != 0);
    size_t index = type_put(w, schema->format, false, &type);
    flat_link(w, flat_slot(w, table, DICTIONARY_INDEX), index);
    return table;
}

static size_t put_field(struct flat_writer *w, const struct ArrowSchema *schema, int64_t *next_id)
{
    const struct ArrowSchema *values = schema->dictionary != NULL ? schema->dictionary : schema;
    const char *name = schema->name == NULL ? "" : schema->name;
    const uint8_t sizes[] = {4, 1, 1, 4, schema->dictionary != NULL ? 4 : 0, 4, schema->metadata != NULL ? 4 : 0};
    uint8_t type = 0;
    size_t field = flat_put_table(w, sizes, ARRAY_LEN(sizes));
    flat_set(w, field, FIELD_NULLABLE, (schema->flags & ARROW_FLAG_NULLABLE) != 0);
    size_t text = flat_put_text(w, name, strlen(name));
    flat_link(w, flat_slot(w, field, FIELD_NAME), text);
    size_t table = type_put(w, values->format, (values->flags & ARROW_FLAG_MAP_KEYS_SORTED) != 0, &type);
    flat_link(w, flat_slot(w, field, FIELD_TYPE), table);
    flat_set(w, field, FIELD_TYPE_TYPE, type);
    if (schema->dictionary != NULL) {
        size_t dictionary = put_dictionary(w, schema, (*next_id)++);
        flat_link(w, flat_slot(w, field, FIELD_DICTIONARY), dictionary);
    }
    if (schema->metadata != NULL) {
        size_t metadata = put_metadata(w, schema->metadata);
        flat_link(w, flat_slot(w, field, FIELD_METADATA), metadata);
    }
    size_t children = flat_put_links(w, (uint32_t)values->n_children);
    flat_link(w, flat_slot(w, field, FIELD_CHILDREN), children);
    for (int64_t i = 0; i < values->n_children; i++) {
        size_t child = put_field(w, values->children[i], next_id);
        flat_link(w, children + 4 + 4 * (size_t)i, child);
    }
    return field;
}

size_t ipc__schema_put(struct flat_writer *w, const struct ArrowSchema *schema)
{
    const uint8_t sizes[] = {2, 4, schema->metadata != NULL ? 4 : 0};
    int64_t next_id = 0;
    size_t header = flat_put_table(w, sizes, ARRAY_LEN(sizes));
    if (schema->metadata != NULL) {
        size_t metadata = put_metadata(w, schema->metadata);
        flat_link(w, flat_slot(w, header, SCHEMA_METADATA), metadata);
    }
    size_t fields = flat_put_links(w, (uint32_t)schema->n_children);
    flat_link(w, flat_slot(w, header, SCHEMA_FIELDS), fields);
    for (int64_t i = 0; i < schema->n_children; i++) {
        size_t field = put_field(w, schema->children[i], &next_id);
        flat_link(w, fields + 4 + 4 * (size_t)i, field);
    }
    return header;
}

/* ---- reading ---- */

struct getting {
    uint32_t n_fields;
    size_t metadata_bytes;
    int64_t *ids;
    uint32_t n_ids;
    uint32_t ids_cap;
};

static enum err malformed(struct error *e)
{
    return error_set(e, ERR_DATA_LOSS, "Arrow schema: it is malformed");
}

/* A text that must be UTF-8 without NUL. The caller frees it. */
static enum err get_name(const struct flat_table *table, uint32_t slot, char **out, struct error *e)
{
    const char *text = "";
    size_t n = 0;
    bool is_there = false;
    if (!flat_get_text(table, slot, &text, &n, &is_there) || memchr(text, '\0', n) != NULL || !utf8_is_valid(text, n)) {
        return malformed(e);
    }
    *out = mem_alloc(n + 1);
    memcpy(*out, text, n);
    (*out)[n] = '\0';
    return ERR_OK;
}

static void put_int32(struct buf *out, size_t value)
{
    int32_t number = (int32_t)value;
    buf_append(out, &number, sizeof(number));
}

/*
 * The pairs as the C data interface has them, NULL if there are none. Texts may be shared in a flat buffer, so what they
 * come to is bounded here.
 */
static enum err get_metadata(const struct flat_table *table, uint32_t slot, struct getting *getting, char **out,
                             struct error *e)
{
    struct flat_list list = {0};
    struct buf pairs = {0};
    bool is_ok = flat_get_list(table, slot, 4, &list);
    put_int32(&pairs, list.n);
    for (uint32_t i = 0; i < list.n && is_ok; i++) {
        struct flat_table pair;
        is_ok = flat_list_table(&list, i, &pair);
        for (uint32_t part = 0; part < 2 && is_ok; part++) {
            const char *text = "";
            size_t n = 0;
            bool is_there = false;
            is_ok = flat_get_text(&pair, part, &text, &n, &is_there);
            getting->metadata_bytes += n + sizeof(int32_t);
            is_ok = is_ok && getting->metadata_bytes <= LIMIT_ARROW_METADATA_BYTES;
            if (is_ok) {
                put_int32(&pairs, n);
                buf_append(&pairs, text, n);
            }
        }
    }
    if (is_ok && list.n > 0) {
        *out = mem_copy(pairs.data, pairs.n);
    }
    buf_deinit(&pairs);
    return is_ok ? ERR_OK : malformed(e);
}

/* The index type of a dictionary and its id. */
static enum err get_dictionary(const struct flat_table *table, struct getting *getting, char **out_format,
                               int64_t *out_flags, struct error *e)
{
    struct flat_table index;
    bool has_index = false;
    uint64_t id = 0;
    uint64_t is_ordered = 0;
    bool is_sorted = false;
    struct buf format = {0};
    if (!flat_get(table, DICTIONARY_ID, 8, 0, &id) || !flat_get(table, DICTIONARY_ORDERED, 1, 0, &is_ordered) ||
        !flat_get_table(table, DICTIONARY_INDEX, &index, &has_index)) {
        return malformed(e);
    }
    buf_text(&format, has_index ? "" : "i");
    enum err err = has_index ? type_get(2, &index, &format, &is_sorted, e) : ERR_OK;
    if (err == ERR_OK) {
        *out_format = mem_strdup(format.data);
        *out_flags |= is_ordered != 0 ? ARROW_FLAG_DICTIONARY_ORDERED : 0;
        getting->ids = mem_grow(getting->ids, &getting->ids_cap, getting->n_ids + 1, sizeof(*getting->ids));
        getting->ids[getting->n_ids++] = (int64_t)id;
    }
    buf_deinit(&format);
    return err;
}

/* The type of a field's values. */
static enum err get_type(const struct flat_table *field, char **out_format, int64_t *out_flags, struct error *e)
{
    uint64_t type = 0;
    struct flat_table table;
    bool is_there = false;
    bool are_keys_sorted = false;
    struct buf format = {0};
    if (!flat_get(field, FIELD_TYPE_TYPE, 1, 0, &type) || !flat_get_table(field, FIELD_TYPE, &table, &is_there) ||
        !is_there) {
        return malformed(e);
    }
    enum err err = type_get((uint8_t)type, &table, &format, &are_keys_sorted, e);
    if (err == ERR_OK) {
        *out_format = mem_strdup(format.data);
        *out_flags |= are_keys_sorted ? ARROW_FLAG_MAP_KEYS_SORTED : 0;
    }
    buf_deinit(&format);
    return err;
}

static enum err get_field(const struct flat_table *field, uint32_t depth, struct getting *getting,
                          struct ArrowSchema *out, struct error *e);

static enum err get_children(const struct flat_list *list, uint32_t depth, struct getting *getting,
                             struct ArrowSchema *out, struct error *e)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < list->n && err == ERR_OK; i++) {
        struct flat_table child;
        err = flat_list_table(list, i, &child) ? get_field(&child, depth, getting, out->children[i], e) : malformed(e);
    }
    return err;
}

/* What a field says about itself, into two nodes if it has a dictionary; `values` is then the inner one. */
static enum err get_parts(const struct flat_table *field, struct getting *getting, struct schema_parts *outer,
                          struct schema_parts *values, struct error *e)
{
    struct flat_table dictionary;
    uint64_t is_nullable = 0;
    if (!flat_get(field, FIELD_NULLABLE, 1, 0, &is_nullable) ||
        !flat_get_table(field, FIELD_DICTIONARY, &dictionary, &outer->has_dictionary)) {
        return malformed(e);
    }
    outer->flags = is_nullable != 0 ? ARROW_FLAG_NULLABLE : 0;
    enum err err = get_name(field, FIELD_NAME, &outer->name, e);
    if (err == ERR_OK) {
        err = get_metadata(field, FIELD_METADATA, getting, &outer->metadata, e);
    }
    if (err == ERR_OK && outer->has_dictionary) {
        err = get_dictionary(&dictionary, getting, &outer->format, &outer->flags, e);
        values->flags = ARROW_FLAG_NULLABLE;
        values->name = mem_strdup("");
    }
    if (err == ERR_OK) {
        struct schema_parts *typed = outer->has_dictionary ? values : outer;
        err = get_type(field, &typed->format, &typed->flags, e);
    }
    return err;
}

static void free_parts(struct schema_parts *parts)
{
    mem_free(parts->format);
    mem_free(parts->name);
    mem_free(parts->metadata);
}

/* Tables may be shared in a flat buffer, or hold themselves: children are counted before there is memory for them. */
static enum err count_fields(struct getting *getting, uint32_t depth, uint32_t n, struct error *e)
{
    if (depth > LIMIT_ARROW_DEPTH || n > LIMIT_ARROW_FIELDS - getting->n_fields) {
        return error_set(e, ERR_EXHAUSTED, "Arrow schema: more than %d types inside each other, or %d fields",
                         LIMIT_ARROW_DEPTH, LIMIT_ARROW_FIELDS);
    }
    getting->n_fields += n;
    return ERR_OK;
}

static enum err get_field(const struct flat_table *field, uint32_t depth, struct getting *getting,
                          struct ArrowSchema *out, struct error *e)
{
    struct schema_parts outer = {0};
    struct schema_parts values = {0};
    struct flat_list children = {0};
    enum err err = ERR_OK;
    if (!flat_get_list(field, FIELD_CHILDREN, 4, &children)) {
        return malformed(e);
    }
    err = count_fields(getting, depth, children.n, e);
    if (err == ERR_OK) {
        err = get_parts(field, getting, &outer, &values, e);
    }
    if (err != ERR_OK) {
        free_parts(&outer);
        free_parts(&values);
        return err;
    }
    (outer.has_dictionary ? &values : &outer)->n_children = children.n;
    schema_make(out, &outer);
    struct ArrowSchema *inner = out;
    if (outer.has_dictionary) {
        inner = out->dictionary;
        schema_make(inner, &values);
    }
    return get_children(&children, depth + 1, getting, inner, e);
}

enum err ipc__schema_get(const struct flat_table *header, struct ArrowSchema *out, int64_t **out_ids,
                         uint32_t *out_n_ids, struct error *e)
{
    struct getting getting = {0};
    struct schema_parts parts = {.flags = 0};
    struct flat_list fields = {0};
    struct ArrowSchema schema = {0};
    uint64_t endianness = 0;
    if (!flat_get(header, SCHEMA_ENDIANNESS, 2, 0, &endianness) || !flat_get_list(header, SCHEMA_FIELDS, 4, &fields)) {
        return malformed(e);
    }
    if (endianness != 0) {
        return error_set(e, ERR_INVALID, "Arrow schema: big-endian data is not supported");
    }
    enum err err = count_fields(&getting, 0, fields.n, e);
    if (err == ERR_OK) {
        err = get_metadata(header, SCHEMA_METADATA, &getting, &parts.metadata, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    parts.format = mem_strdup("+s");
    parts.name = mem_strdup("");
    parts.n_children = fields.n;
    schema_make(&schema, &parts);
    err = get_children(&fields, 1, &getting, &schema, e);
    if (err != ERR_OK) {
        schema_release(&schema);
        mem_free(getting.ids);
        return err;
    }
    *out = schema;
    *out_ids = getting.ids;
    *out_n_ids = getting.n_ids;
    return ERR_OK;
}
