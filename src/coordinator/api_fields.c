/* A request becomes a message: values from the path, the query, the headers and the body, by the route's table. */
#include <ctype.h>
#include <string.h>

#include "coordinator/api_internal.h"
#include "wire/canonical.h"

/* ---- one value into its place ---- */

static void mark_set(const struct api_field *field, void *target)
{
    if (field->is_set != 0) {
        *(protobuf_c_boolean *)(void *)((char *)target + field->is_set) = 1;
    }
}

static enum err put_number(const struct api_field *field, uint64_t number, void *target, struct error *e)
{
    void *place = (char *)target + field->offset;
    if (field->type == API_UINT64) {
        *(uint64_t *)place = number;
        return ERR_OK;
    }
    if (number > UINT32_MAX) {
        return error_set(e, ERR_INVALID, "%s: is too large", field->name);
    }
    *(uint32_t *)place = (uint32_t)number;
    return ERR_OK;
}

/* A value of the path, the query or a header: always text. */
static enum err put_text(const struct api_field *field, const char *text, void *target, struct arena *arena,
                         struct error *e)
{
    uint64_t number = 0;
    size_t n = strlen(text);
    if (field->type == API_FORMAT || field->type == API_RANGE) {
        return ERR_OK;
    }
    mark_set(field, target);
    if (field->type == API_TEXT) {
        *(char **)(void *)((char *)target + field->offset) = arena_strdup(arena, text);
        return ERR_OK;
    }
    if (field->type == API_BOOL) {
        bool is_true = strcmp(text, "true") == 0;
        if (!is_true && strcmp(text, "false") != 0) {
            return error_set(e, ERR_INVALID, "%s: must be true or false", field->name);
        }
        *(protobuf_c_boolean *)(void *)((char *)target + field->offset) = is_true;
        return ERR_OK;
    }
    ASSERT(field->type == API_UINT32 || field->type == API_UINT64);
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)text[i]) || n > 19) {
            return error_set(e, ERR_INVALID, "%s: must be a whole number", field->name);
        }
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    return n == 0 ? error_set(e, ERR_INVALID, "%s: must be a whole number", field->name)
                  : put_number(field, number, target, e);
}

static enum err put_json_text(const struct api_field *field, const struct json *value, void *target,
                              struct arena *arena, struct error *e)
{
    size_t n = 0;
    const char *text = json_text(value, &n);
    if (text == NULL) {
        return error_set(e, ERR_INVALID, "%s: must be a text", field->name);
    }
    if (strlen(text) != n) {
        return error_set(e, ERR_INVALID, "%s: must not have a NUL in it", field->name);
    }
    *(char **)(void *)((char *)target + field->offset) = arena_strdup(arena, text);
    return ERR_OK;
}

/* A member of the body. null is the same as none. */
static enum err put_json(const struct api_field *field, const struct json *value, void *target, struct arena *arena,
                         struct error *e)
{
    void *place = (char *)target + field->offset;
    uint64_t number = 0;
    struct buf text = {0};
    if (json_kind_of(value) == JSON_NULL) {
        return ERR_OK;
    }
    mark_set(field, target);
    switch (field->type) {
    case API_TEXT:
        return put_json_text(field, value, target, arena, e);
    case API_UINT32:
    case API_UINT64:
        return json_uint(value, &number) ? put_number(field, number, target, e)
                                         : error_set(e, ERR_INVALID, "%s: must be a whole number", field->name);
    case API_BOOL:
        if (json_kind_of(value) != JSON_BOOL) {
            return error_set(e, ERR_INVALID, "%s: must be true or false", field->name);
        }
        *(protobuf_c_boolean *)place = json_bool(value);
        return ERR_OK;
    case API_JSON:
        if (json_kind_of(value) != JSON_OBJECT && json_kind_of(value) != JSON_ARRAY) {
            return error_set(e, ERR_INVALID, "%s: must be an object or a list", field->name);
        }
        wire_write_compact(&text, value);
        *(char **)place = arena_strdup(arena, text.data);
        break;
    case API_BYTES:
        if (json_kind_of(value) != JSON_OBJECT) {
            return error_set(e, ERR_INVALID, "%s: must be an object", field->name);
        }
        wire_write_compact(&text, value);
        *(ProtobufCBinaryData *)place =
            (ProtobufCBinaryData){.len = text.n, .data = arena_copy(arena, text.data, text.n)};
        break;
    case API_FORMAT:
    case API_RANGE:
        break;
    }
    buf_deinit(&text);
    return ERR_OK;
}

/* ---- where they come from ---- */

static const struct api_field *find_field(const struct api_route *route, enum api_place place, const char *name)
{
    for (uint32_t i = 0; i < route->n_fields; i++) {
        if (route->fields[i].place == place && strcmp(route->fields[i].name, name) == 0) {
            return &route->fields[i];
        }
    }
    return NULL;
}

static enum err say_unknown(const struct api_route *route, enum api_place place, const char *name, struct error *e)
{
    struct buf known = {0};
    for (uint32_t i = 0; i < route->n_fields; i++) {
        if (route->fields[i].place == place) {
            buf_format(&known, "%s%s", known.n > 0 ? ", " : "", route->fields[i].name);
        }
    }
    error_set(e, ERR_INVALID, "%.100s: %s %s takes no such %s", name, route->method, route->path,
              place == API_QUERY ? "parameter" : "member");
    error_hint(e, "it takes %s", known.n > 0 ? known.data : "none");
    buf_deinit(&known);
    return ERR_INVALID;
}

struct query_reader {
    const struct api_route *route;
    void *target;
    struct arena *arena;
    enum err err;
    struct error *e;
};

static bool read_query(void *context, const char *key, const char *value)
{
    struct query_reader *reader = context;
    const struct api_field *field = find_field(reader->route, API_QUERY, key);
    reader->err = field == NULL ? say_unknown(reader->route, API_QUERY, key, reader->e)
                                : put_text(field, value, reader->target, reader->arena, reader->e);
    return reader->err == ERR_OK;
}

static enum err read_http(const struct api_route *route, struct http_request *http, void *target, struct arena *arena,
                          struct error *e)
{
    struct query_reader reader = {.route = route, .target = target, .arena = arena, .e = e};
    http_request_each_query(http, read_query, &reader);
    for (uint32_t i = 0; i < route->n_fields && reader.err == ERR_OK; i++) {
        const struct api_field *field = &route->fields[i];
        const char *text = field->place == API_HEADER ? http_request_header(http, field->name) : NULL;
        if (text != NULL) {
            reader.err = put_text(field, text, target, arena, e);
        }
    }
    return reader.err;
}

static enum err read_members(const struct api_route *route, const struct json *root, void *target, struct arena *arena,
                             struct error *e)
{
    size_t cursor = 0;
    const char *name;
    const struct json *value;
    enum err err = ERR_OK;
    if (json_kind_of(root) != JSON_OBJECT) {
        return error_set(e, ERR_INVALID, "the body must be a JSON object");
    }
    while (err == ERR_OK && json_next(root, &cursor, &name, &value)) {
        const struct api_field *field = find_field(route, API_BODY, name);
        err = field == NULL ? say_unknown(route, API_BODY, name, e) : put_json(field, value, target, arena, e);
    }
    return err;
}

static const struct api_field *first_in(const struct api_route *route, enum api_place place)
{
    for (uint32_t i = 0; i < route->n_fields; i++) {
        if (route->fields[i].place == place) {
            return &route->fields[i];
        }
    }
    return NULL;
}

static enum err read_body(const struct api_route *route, const struct api_input *input, void *target,
                          struct arena *arena, struct error *e)
{
    const struct api_field *first = first_in(route, API_BODY);
    struct json *root = NULL;
    if (input->n_body == 0) {
        return ERR_OK;
    }
    if (route->takes_whole_body) {
        ASSERT(first != NULL);
        *(ProtobufCBinaryData *)(void *)((char *)target + first->offset) =
            (ProtobufCBinaryData){.len = input->n_body, .data = (uint8_t *)(uintptr_t)input->body};
        return ERR_OK;
    }
    enum err err = json_parse(input->body, input->n_body, &root, e);
    if (err != ERR_OK) {
        return error_set(e, err, "the body is not JSON: %s", e->message);
    }
    err = read_members(route, root, target, arena, e);
    json_free(root);
    return err;
}

enum err api__read(const struct api_route *route, const struct api_input *input, struct arena *arena,
                   void **out_message, struct error *e)
{
    void *message = wire_new(route->rule->kind, arena);
    void *target = route->begin != NULL ? route->begin(message, arena) : message;
    const struct api_field *in_path = first_in(route, API_PATH);
    enum err err = ERR_OK;
    if (in_path != NULL) {
        err = put_text(in_path, input->value, target, arena, e);
    }
    if (err == ERR_OK && input->http != NULL) {
        err = read_http(route, input->http, target, arena, e);
        if (err == ERR_OK && route->settle != NULL) {
            route->settle(target, input->http);
        }
    }
    if (err == ERR_OK) {
        err = read_body(route, input, target, arena, e);
    }
    if (err == ERR_OK) {
        *out_message = message;
    }
    return err;
}
