/* plan_read_value.c - types and constants out of a plan's JSON. */
#include <string.h>

#include "base/limits.h"
#include "query/plan_read_internal.h"

/* Types. */

/* "NULL" for a name would be read as SQL's NULL; DuckDB itself never has a field without any letter but row()'s. */
static struct type_field *read_fields(struct plan_reader *r, const struct json *array, uint32_t *out_n)
{
    size_t n = json_count(array);
    if (n > LIMIT_PLAN_ITEMS) {
        return plan__malformed(r, "fields of a type");
    }
    struct type_field *fields = arena_zalloc(r->arena, n * sizeof(*fields));
    for (size_t i = 0; i < n; i++) {
        const struct json *field = json_at(array, i);
        fields[i].name = plan__text(r, field, "first");
        fields[i].type = plan__type(r, json_get(field, "second"));
        if (fields[i].type == NULL) {
            return NULL;
        }
    }
    *out_n = (uint32_t)n;
    return fields;
}

/* A UNION's first child is its tag, which is no member. */
static bool read_members(struct plan_reader *r, const struct json *info, struct type *type)
{
    uint32_t n = 0;
    struct type_field *fields = read_fields(r, json_get(info, "child_types"), &n);
    if (fields == NULL) {
        return false;
    }
    uint32_t skipped = type->id == TYPE_UNION ? 1 : 0;
    if (n < skipped) {
        (void)plan__malformed(r, "members of a union");
        return false;
    }
    type->fields = fields + skipped;
    type->n_fields = n - skipped;
    return true;
}

static bool read_values(struct plan_reader *r, const struct json *info, struct type *type)
{
    const struct json *array = json_get(info, "values");
    size_t n = json_count(array);
    struct type_field *values = arena_zalloc(r->arena, n * sizeof(*values));
    for (size_t i = 0; i < n; i++) {
        const char *value = json_text(json_at(array, i), NULL);
        if (value == NULL) {
            (void)plan__malformed(r, "values of an enum");
            return false;
        }
        values[i].name = arena_strdup(r->arena, value);
    }
    type->fields = values;
    type->n_fields = (uint32_t)n;
    return true;
}

static bool read_child(struct plan_reader *r, const struct json *info, struct type *type)
{
    type->child = plan__type(r, json_get(info, "child_type"));
    if (type->child == NULL) {
        return false;
    }
    if (type->id == TYPE_MAP && (type->child->id != TYPE_STRUCT || type->child->n_fields != 2)) {
        (void)plan__malformed(r, "entries of a map");
        return false;
    }
    return true;
}

static bool read_digits(struct plan_reader *r, const struct json *info, struct type *type)
{
    uint32_t width = plan__u32(r, info, "width");
    uint32_t scale = plan__u32(r, info, "scale");
    if (width > 38 || scale > width) {
        (void)plan__malformed(r, "digits of a decimal");
        return false;
    }
    type->width = (uint8_t)width;
    type->scale = (uint8_t)scale;
    return r->err == ERR_OK;
}

static bool read_info(struct plan_reader *r, const struct json *info, struct type *type)
{
    const char *alias = json_text(json_get(info, "alias"), NULL);
    switch ((int)type->id) {
    case TYPE_DECIMAL:
        return read_digits(r, info, type);
    case TYPE_LIST:
    case TYPE_MAP:
        return read_child(r, info, type);
    case TYPE_ARRAY:
        type->size = plan__u32(r, info, "size");
        return read_child(r, info, type);
    case TYPE_STRUCT:
    case TYPE_UNION:
        return read_members(r, info, type);
    case TYPE_ENUM:
        return read_values(r, info, type);
    default:
        type->is_json = type->id == TYPE_VARCHAR && alias != NULL && strcmp(alias, "JSON") == 0;
        if (alias != NULL && alias[0] != '\0' &&
            !type->is_json) { /* such as GEOMETRY, which is a BLOB with that name */
            (void)plan__unsupported(r, "the type %s", alias);
            return false;
        }
        return true;
    }
}

const struct type *plan__type(struct plan_reader *r, const struct json *json)
{
    const char *id = json_text(json_get(json, "id"), NULL);
    if (id == NULL) {
        return plan__malformed(r, "a type without an id");
    }
    const struct json *info = json_get(json, "type_info");
    enum type_id known = type_id_of(id);
    if (known == TYPE_OTHER) {
        return plan__unsupported(r, "the type %s", id);
    }
    if (info == NULL && known != TYPE_DECIMAL && type_form(known) != FORM_ITEMS && known != TYPE_ENUM) {
        return type_plain(known);
    }
    if (!plan__enter(r)) {
        return NULL;
    }
    struct type *type = arena_zalloc(r->arena, sizeof(*type));
    type->id = known;
    bool is_read = info != NULL ? read_info(r, info, type) : plan__malformed(r, "a type without its parts") != NULL;
    plan__leave(r);
    return is_read ? type : NULL;
}

const struct type **plan__types(struct plan_reader *r, const struct json *array, uint32_t *out_n)
{
    size_t n = json_count(array);
    if (n > LIMIT_PLAN_ITEMS) {
        return plan__malformed(r, "a list of types");
    }
    const struct type **types = arena_zalloc(r->arena, n * sizeof(*types));
    for (size_t i = 0; i < n; i++) {
        types[i] = plan__type(r, json_at(array, i));
        if (types[i] == NULL) {
            return NULL;
        }
    }
    *out_n = (uint32_t)n;
    return types;
}

/* Constants. */

static bool read_constant(struct plan_reader *r, const struct type *type, const struct json *json,
                          struct constant *out);

/* A number, or {"upper", "lower"} for what 64 bits do not hold. */
static bool read_integer(struct plan_reader *r, const struct json *value, struct wide_int *out)
{
    int64_t small = 0;
    uint64_t large = 0;
    if (json_int(value, &small)) {
        *out = (struct wide_int){.upper = small < 0 ? -1 : 0, .lower = (uint64_t)small};
        return true;
    }
    if (json_uint(value, &large)) {
        *out = (struct wide_int){.upper = 0, .lower = large};
        return true;
    }
    const struct json *upper = json_get(value, "upper");
    bool has_upper = json_int(upper, &small);
    if (!has_upper && json_uint(upper, &large)) { /* UHUGEINT's */
        small = (int64_t)large;
        has_upper = true;
    }
    if (!has_upper || !json_uint(json_get(value, "lower"), &large)) {
        (void)plan__malformed(r, "a whole number");
        return false;
    }
    *out = (struct wide_int){.upper = small, .lower = large};
    return true;
}

static bool read_interval(struct plan_reader *r, const struct json *value, struct constant_interval *out)
{
    int64_t months = 0;
    int64_t days = 0;
    int64_t micros = 0;
    if (!json_int(json_get(value, "months"), &months) || !json_int(json_get(value, "days"), &days) ||
        !json_int(json_get(value, "micros"), &micros) || months != (int32_t)months || days != (int32_t)days) {
        (void)plan__malformed(r, "an interval");
        return false;
    }
    *out = (struct constant_interval){.months = (int32_t)months, .days = (int32_t)days, .micros = micros};
    return true;
}

static bool read_text(struct plan_reader *r, const struct json *value, struct constant_text *out)
{
    size_t n = 0;
    const char *bytes = json_text(value, &n);
    if (bytes == NULL) {
        (void)plan__malformed(r, "a text");
        return false;
    }
    char *copy = arena_alloc(r->arena, n + 1);
    memcpy(copy, bytes, n + 1);
    *out = (struct constant_text){.bytes = copy, .n = n};
    return true;
}

/* A UNION's children are its tag and all members, of which only the one with that number counts. */
static bool read_member(struct plan_reader *r, const struct type *type, const struct json *children,
                        struct constant_items *out)
{
    uint64_t tag = 0;
    if (!json_uint(json_get(json_at(children, 0), "value"), &tag) || tag >= type->n_fields) {
        (void)plan__malformed(r, "the tag of a union");
        return false;
    }
    struct constant *item = arena_zalloc(r->arena, sizeof(*item));
    *out = (struct constant_items){.items = item, .n = 1, .tag = (uint32_t)tag};
    return read_constant(r, type->fields[tag].type, json_at(children, tag + 1), item);
}

static bool read_items(struct plan_reader *r, const struct type *type, const struct json *value,
                       struct constant_items *out)
{
    const struct json *children = json_get(value, "children");
    size_t n = json_count(children);
    if (json_kind_of(children) != JSON_ARRAY || (type->id == TYPE_STRUCT && n != type->n_fields) ||
        (type->id == TYPE_ARRAY && n != type->size)) {
        (void)plan__malformed(r, "the items of a nested value");
        return false;
    }
    if (type->id == TYPE_UNION) {
        return read_member(r, type, children, out);
    }
    struct constant *items = arena_zalloc(r->arena, n * sizeof(*items));
    for (size_t i = 0; i < n; i++) {
        const struct type *item = type->id == TYPE_STRUCT ? type->fields[i].type : type->child;
        if (!read_constant(r, item, json_at(children, i), &items[i])) {
            return false;
        }
        if (type->id == TYPE_MAP && items[i].is_null) {
            (void)plan__malformed(r, "an entry of a map");
            return false;
        }
    }
    *out = (struct constant_items){.items = items, .n = (uint32_t)n};
    return true;
}

/* DuckDB writes NaN and the infinities as bare words, which the JSON reader knows, or as texts inside nested values. */
static bool read_number(struct plan_reader *r, const struct json *value, double *out)
{
    if (json_kind_of(value) != JSON_NUMBER) {
        (void)plan__malformed(r, "a number");
        return false;
    }
    *out = json_number(value);
    return true;
}

/* Days have 32 bits; more of them would be no date that anybody can write. */
static bool is_in_range(struct plan_reader *r, const struct constant *constant)
{
    int64_t days = (int64_t)constant->as.integer.lower;
    bool is_right = constant->type->id != TYPE_DATE || days == (int32_t)days;
    if (!is_right) {
        (void)plan__malformed(r, "a date");
    }
    return is_right;
}

static bool read_as(struct plan_reader *r, const struct json *value, struct constant *out)
{
    switch (type_form(out->type->id)) {
    case FORM_BOOLEAN:
        out->as.boolean = json_bool(value);
        if (json_kind_of(value) != JSON_BOOL) {
            (void)plan__malformed(r, "a boolean");
            return false;
        }
        return true;
    case FORM_INTEGER:
        return read_integer(r, value, &out->as.integer) && is_in_range(r, out);
    case FORM_NUMBER:
        return read_number(r, value, &out->as.number);
    case FORM_TEXT:
        return read_text(r, value, &out->as.text);
    case FORM_INTERVAL:
        return read_interval(r, value, &out->as.interval);
    case FORM_ITEMS:
        return read_items(r, out->type, value, &out->as.items);
    case FORM_NONE:
        break;
    }
    (void)plan__unsupported(r, "a constant of this type");
    return false;
}

/* `json` is {"type", "is_null", "value"}; inside nested values the type may be left out. */
static bool read_constant(struct plan_reader *r, const struct type *type, const struct json *json, struct constant *out)
{
    if (json_kind_of(json) != JSON_OBJECT) {
        (void)plan__malformed(r, "a constant");
        return false;
    }
    if (!plan__enter(r)) {
        return false;
    }
    out->type = type;
    out->is_null = json_bool(json_get(json, "is_null"));
    bool is_read = out->is_null || read_as(r, json_get(json, "value"), out);
    plan__leave(r);
    return is_read;
}

const struct constant *plan__constant(struct plan_reader *r, const struct json *json)
{
    const struct type *type = plan__type(r, json_get(json, "type"));
    if (type == NULL) {
        return NULL;
    }
    struct constant *constant = arena_zalloc(r->arena, sizeof(*constant));
    return read_constant(r, type, json, constant) ? constant : NULL;
}

const struct constant *plan__text_constant(struct plan_reader *r, const char *bytes, size_t n)
{
    struct constant *constant = arena_zalloc(r->arena, sizeof(*constant));
    char *copy = arena_alloc(r->arena, n + 1);
    memcpy(copy, bytes, n);
    copy[n] = '\0';
    constant->type = type_plain(TYPE_VARCHAR);
    constant->as.text = (struct constant_text){.bytes = copy, .n = n};
    return constant;
}

const struct constant *plan__list_constant(struct plan_reader *r, const struct constant *items, uint32_t n,
                                           const struct type *child)
{
    struct type *type = arena_zalloc(r->arena, sizeof(*type));
    type->id = TYPE_LIST;
    type->child = child;
    struct constant *constant = arena_zalloc(r->arena, sizeof(*constant));
    constant->type = type;
    constant->as.items = (struct constant_items){.items = items, .n = n};
    return constant;
}
