#include "store/codec.h"

#include <string.h>

#include "base/buf.h"
#include "base/json.h"

/* ---- writing ---- */

/* Hands a finished buffer over to the arena. */
static const char *finish(struct buf *buf, struct arena *arena)
{
    const char *text = arena_strdup(arena, buf->data);
    buf_deinit(buf);
    return text;
}

static void write_strings(struct buf *buf, struct string_list list)
{
    buf_char(buf, '[');
    for (uint32_t i = 0; i < list.count; i++) {
        buf_text(buf, i > 0 ? "," : "");
        json_write_text(buf, list.items[i]);
    }
    buf_char(buf, ']');
}

static void write_value(struct buf *buf, const struct capability *capability)
{
    switch (capability->kind) {
    case VALUE_TEXT:
        json_write_text(buf, capability->text);
        break;
    case VALUE_NUMBER:
        json_write_number(buf, capability->number);
        break;
    case VALUE_BOOL:
        buf_text(buf, capability->number > 0 ? "true" : "false");
        break;
    case VALUE_LIST:
        write_strings(buf, (struct string_list){capability->items, capability->n_items});
        break;
    }
}

static void write_capabilities(struct buf *buf, struct capability_list list)
{
    buf_char(buf, '{');
    for (uint32_t i = 0; i < list.count; i++) {
        buf_text(buf, i > 0 ? "," : "");
        json_write_text(buf, list.items[i].key);
        buf_char(buf, ':');
        write_value(buf, &list.items[i]);
    }
    buf_char(buf, '}');
}

/* Members of an object: absent and empty ones are left out. */

static void begin_member(struct buf *buf, const char *key)
{
    buf_text(buf, buf->data[buf->n - 1] == '{' ? "\"" : ",\"");
    buf_text(buf, key);
    buf_text(buf, "\":");
}

static void member_text(struct buf *buf, const char *key, const char *text)
{
    if (text != NULL) {
        begin_member(buf, key);
        json_write_text(buf, text);
    }
}

static void member_int(struct buf *buf, const char *key, int64_t number)
{
    if (number != 0) {
        begin_member(buf, key);
        json_write_int(buf, number);
    }
}

static void member_strings(struct buf *buf, const char *key, struct string_list list)
{
    if (list.count > 0) {
        begin_member(buf, key);
        write_strings(buf, list);
    }
}

static void member_capabilities(struct buf *buf, const char *key, struct capability_list list)
{
    if (list.count > 0) {
        begin_member(buf, key);
        write_capabilities(buf, list);
    }
}

static void write_placement(struct buf *buf, const struct requirement *need)
{
    member_strings(buf, "requires_executors", need->any_executors);
    member_capabilities(buf, "requires_capabilities", need->capabilities);
    member_strings(buf, "allowed_nodes", need->allowed_nodes);
    member_strings(buf, "forbidden_nodes", need->forbidden_nodes);
    member_int(buf, "max_parallel_per_node", need->max_parallel_per_node);
}

const char *codec_strings(struct string_list list, struct arena *arena)
{
    struct buf buf = {0};
    if (list.count == 0) {
        return NULL;
    }
    write_strings(&buf, list);
    return finish(&buf, arena);
}

struct string_list codec_past_list(const char *const past[NODE_PAST_INCARNATIONS])
{
    struct string_list list = {past, 0};
    while (list.count < NODE_PAST_INCARNATIONS && past[list.count] != NULL) {
        list.count++;
    }
    return list;
}

const char *codec_offer(const struct offer *offer, struct arena *arena)
{
    struct buf buf = {0};
    if (offer == NULL) {
        return NULL;
    }
    buf_char(&buf, '{');
    member_strings(&buf, "executors", offer->executors);
    member_strings(&buf, "operators", offer->ops);
    member_capabilities(&buf, "capabilities", offer->capabilities);
    member_text(&buf, "engine", offer->engine);
    buf_char(&buf, '}');
    return finish(&buf, arena);
}

const char *codec_placement(const struct requirement *need, struct arena *arena)
{
    struct buf buf = {0};
    if (need == NULL) {
        return NULL;
    }
    buf_char(&buf, '{');
    write_placement(&buf, need);
    buf_char(&buf, '}');
    return finish(&buf, arena);
}

static void write_parents(struct buf *buf, const struct stage_spec *spec)
{
    if (spec->n_parents == 0) {
        return;
    }
    begin_member(buf, "parents");
    buf_char(buf, '[');
    for (uint32_t i = 0; i < spec->n_parents; i++) {
        const struct stage_parent *parent = &spec->parents[i];
        buf_text(buf, i > 0 ? ",[" : "[");
        json_write_int(buf, parent->stage);
        buf_format(buf, ",%d,%d]", (int)parent->read, parent->optional ? 1 : 0);
    }
    buf_char(buf, ']');
}

const char *codec_spec(const struct stage_spec *spec, struct arena *arena)
{
    struct buf buf = {0};
    if (spec == NULL) {
        return NULL;
    }
    buf_char(&buf, '{');
    member_text(&buf, "name", spec->name);
    member_int(&buf, "tasks", spec->n_tasks);
    member_text(&buf, "executor", spec->need->executor);
    member_strings(&buf, "operators", spec->need->ops);
    member_text(&buf, "engine", spec->need->engine);
    write_placement(&buf, spec->need);
    write_parents(&buf, spec);
    member_int(&buf, "output", (int)spec->output);
    member_int(&buf, "partitions", spec->partitions);
    member_int(&buf, "max_attempts", spec->max_attempts);
    begin_member(&buf, "backoff_ms");
    json_write_int(&buf, spec->backoff_ms);
    member_int(&buf, "timeout_ms", spec->timeout_ms);
    member_int(&buf, "nondeterministic", spec->nondeterministic);
    member_int(&buf, "exclusive", spec->exclusive);
    member_int(&buf, "planning", spec->planning);
    member_int(&buf, "child", spec->child);
    buf_char(&buf, '}');
    return finish(&buf, arena);
}

/* ---- reading ---- */

static enum err damaged(struct error *e, const char *what)
{
    return error_set(e, ERR_DATA_LOSS, "the stored %s is damaged", what);
}

static const char *copy_text(const struct json *json, struct arena *arena)
{
    size_t n;
    return arena_strdup(arena, json_text(json, &n));
}

static bool read_strings(const struct json *json, struct arena *arena, struct string_list *out)
{
    uint32_t n = (uint32_t)json_count(json);
    if (json_kind_of(json) != JSON_ARRAY) {
        *out = (struct string_list){NULL, 0};
        return json_kind_of(json) == JSON_NULL;
    }
    const char **items = arena_alloc(arena, n * sizeof *items);
    for (uint32_t i = 0; i < n; i++) {
        items[i] = copy_text(json_at(json, i), arena);
        if (items[i] == NULL) {
            return false;
        }
    }
    *out = (struct string_list){items, n};
    return true;
}

static bool read_capability(const struct json *json, struct arena *arena, struct capability *out)
{
    struct string_list list;
    switch (json_kind_of(json)) {
    case JSON_TEXT:
        out->kind = VALUE_TEXT;
        out->text = copy_text(json, arena);
        return true;
    case JSON_NUMBER:
        out->kind = VALUE_NUMBER;
        out->number = json_number(json);
        return true;
    case JSON_BOOL:
        out->kind = VALUE_BOOL;
        out->number = json_bool(json) ? 1 : 0;
        return true;
    case JSON_ARRAY:
        if (!read_strings(json, arena, &list)) {
            return false;
        }
        out->kind = VALUE_LIST;
        out->items = list.items;
        out->n_items = list.count;
        return true;
    case JSON_NULL:
    case JSON_OBJECT:
        break;
    }
    return false;
}

static bool read_capabilities(const struct json *json, struct arena *arena, struct capability_list *out)
{
    size_t n = json_count(json);
    size_t cursor = 0;
    const struct json *value;
    const char *key;
    uint32_t at = 0;
    if (json_kind_of(json) != JSON_OBJECT) {
        *out = (struct capability_list){NULL, 0};
        return json_kind_of(json) == JSON_NULL;
    }
    struct capability *items = arena_zalloc(arena, n * sizeof *items);
    while (json_next(json, &cursor, &key, &value)) {
        items[at].key = arena_strdup(arena, key);
        if (!read_capability(value, arena, &items[at])) {
            return false;
        }
        at++;
    }
    *out = (struct capability_list){items, at};
    return true;
}

static int64_t number_of(const struct json *object, const char *key)
{
    int64_t number = 0;
    return json_int(json_get(object, key), &number) ? number : 0;
}

/* Parses `text` and lets `read` fill in `out`. */
typedef bool read_fn(const struct json *root, struct arena *arena, void *out);

static enum err read_with(const char *text, const char *what, read_fn *read, struct arena *arena, void *out,
                          struct error *e)
{
    struct json *root = NULL;
    if (json_parse(text, strlen(text), &root, NULL) != ERR_OK) {
        return damaged(e, what);
    }
    bool ok = read(root, arena, out);
    json_free(root);
    return ok ? ERR_OK : damaged(e, what);
}

static bool read_list(const struct json *root, struct arena *arena, void *out)
{
    return read_strings(root, arena, out);
}

enum err codec_read_strings(const char *text, struct arena *arena, struct string_list *out, struct error *e)
{
    *out = (struct string_list){NULL, 0};
    return text == NULL ? ERR_OK : read_with(text, "list", read_list, arena, out, e);
}

enum err codec_read_past(const char *text, struct arena *arena, const char *out[NODE_PAST_INCARNATIONS],
                         struct error *e)
{
    struct string_list list;
    enum err err = codec_read_strings(text, arena, &list, e);
    if (err != ERR_OK || list.count > NODE_PAST_INCARNATIONS) {
        return err != ERR_OK ? err : damaged(e, "list of incarnations");
    }
    for (uint32_t i = 0; i < list.count; i++) {
        out[i] = list.items[i];
    }
    return ERR_OK;
}

static bool read_offer(const struct json *root, struct arena *arena, void *out)
{
    struct offer *offer = arena_zalloc(arena, sizeof *offer);
    offer->engine = copy_text(json_get(root, "engine"), arena);
    *(const struct offer **)out = offer;
    return read_strings(json_get(root, "executors"), arena, &offer->executors) &&
           read_strings(json_get(root, "operators"), arena, &offer->ops) &&
           read_capabilities(json_get(root, "capabilities"), arena, &offer->capabilities);
}

enum err codec_read_offer(const char *text, struct arena *arena, const struct offer **out, struct error *e)
{
    if (text == NULL) {
        *out = arena_zalloc(arena, sizeof **out);
        return ERR_OK;
    }
    return read_with(text, "offer", read_offer, arena, out, e);
}

static bool read_parents(const struct json *json, struct arena *arena, struct stage_spec *spec)
{
    spec->n_parents = (uint32_t)json_count(json);
    struct stage_parent *parents = arena_zalloc(arena, spec->n_parents * sizeof *parents);
    for (uint32_t i = 0; i < spec->n_parents; i++) {
        int64_t stage, read, optional;
        const struct json *item = json_at(json, i);
        if (!json_int(json_at(item, 0), &stage) || !json_int(json_at(item, 1), &read) ||
            !json_int(json_at(item, 2), &optional) || stage < 0 || stage > UINT32_MAX || read < READ_NONE ||
            read > READ_ALL) {
            return false;
        }
        parents[i] =
            (struct stage_parent){.stage = (uint32_t)stage, .read = (enum read_mode)read, .optional = optional != 0};
    }
    spec->parents = parents;
    return true;
}

static bool read_need(const struct json *root, struct arena *arena, struct requirement *need)
{
    need->executor = copy_text(json_get(root, "executor"), arena);
    need->engine = copy_text(json_get(root, "engine"), arena);
    need->max_parallel_per_node = (uint32_t)number_of(root, "max_parallel_per_node");
    return read_strings(json_get(root, "operators"), arena, &need->ops) &&
           read_strings(json_get(root, "requires_executors"), arena, &need->any_executors) &&
           read_capabilities(json_get(root, "requires_capabilities"), arena, &need->capabilities) &&
           read_strings(json_get(root, "allowed_nodes"), arena, &need->allowed_nodes) &&
           read_strings(json_get(root, "forbidden_nodes"), arena, &need->forbidden_nodes);
}

static bool read_spec(const struct json *root, struct arena *arena, void *out)
{
    struct stage_spec *spec = arena_zalloc(arena, sizeof *spec);
    struct requirement *need = arena_zalloc(arena, sizeof *need);
    *spec = (struct stage_spec){
        .name = copy_text(json_get(root, "name"), arena),
        .need = need,
        .n_tasks = (uint32_t)number_of(root, "tasks"),
        .output = (enum output_kind)number_of(root, "output"),
        .partitions = (uint32_t)number_of(root, "partitions"),
        .max_attempts = (uint32_t)number_of(root, "max_attempts"),
        .backoff_ms = number_of(root, "backoff_ms"),
        .timeout_ms = (uint32_t)number_of(root, "timeout_ms"),
        .nondeterministic = number_of(root, "nondeterministic") != 0,
        .exclusive = number_of(root, "exclusive") != 0,
        .planning = number_of(root, "planning") != 0,
        .child = number_of(root, "child") != 0,
    };
    *(const struct stage_spec **)out = spec;
    return spec->n_tasks > 0 && read_need(root, arena, need) && read_parents(json_get(root, "parents"), arena, spec);
}

enum err codec_read_spec(const char *text, struct arena *arena, const struct stage_spec **out, struct error *e)
{
    return text == NULL ? damaged(e, "stage") : read_with(text, "stage", read_spec, arena, out, e);
}

enum err codec_recall_spec(struct spec_memo *memo, const char *text, size_t n, const struct stage_spec **out,
                           struct error *e)
{
    if (text != NULL && memo->text != NULL && memo->n == n && memcmp(memo->text, text, n) == 0) {
        *out = memo->spec;
        return ERR_OK;
    }
    memo->text = NULL;
    arena_reset(&memo->arena);
    char *copy = NULL;
    if (text != NULL) {
        copy = arena_alloc(&memo->arena, n + 1);
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    enum err err = codec_read_spec(copy, &memo->arena, &memo->spec, e);
    if (err == ERR_OK) {
        memo->text = copy;
        memo->n = n;
        *out = memo->spec;
    }
    return err;
}

void spec_memo_deinit(struct spec_memo *memo)
{
    arena_deinit(&memo->arena);
    *memo = (struct spec_memo){0};
}
