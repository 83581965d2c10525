#include "exchange/layout.h"

#include "base/limits.h"
#include "base/mem.h"
#include "exchange/type.h"

struct making {
    uint32_t n_fields;
    uint32_t n_dictionaries;
};

uint32_t layout_buffers(enum layout_kind kind)
{
    static const uint8_t buffers[] = {
        [LAYOUT_NULL] = 0, [LAYOUT_BITS] = 2,   [LAYOUT_FIXED] = 2,      [LAYOUT_BYTES] = 3,  [LAYOUT_BYTES64] = 3,
        [LAYOUT_LIST] = 2, [LAYOUT_LIST64] = 2, [LAYOUT_FIXED_LIST] = 1, [LAYOUT_STRUCT] = 1, [LAYOUT_UNION] = 1,
    };
    return buffers[kind];
}

static void deinit(struct layout *layout)
{
    for (uint32_t i = 0; i < layout->n_children; i++) {
        deinit(&layout->children[i]);
    }
    mem_free(layout->children);
    layout_free(layout->dictionary);
}

void layout_free(struct layout *layout)
{
    if (layout != NULL) {
        deinit(layout);
        mem_free(layout);
    }
}

static enum err check_node(const struct ArrowSchema *schema, const struct type_info *info, uint32_t depth,
                           struct making *making, struct error *e)
{
    const char *name = schema->name == NULL ? "" : schema->name;
    if (depth > LIMIT_ARROW_DEPTH || ++making->n_fields > LIMIT_ARROW_FIELDS) {
        return error_set(e, ERR_EXHAUSTED, "Arrow schema: more than %d types inside each other, or %d fields",
                         LIMIT_ARROW_DEPTH, LIMIT_ARROW_FIELDS);
    }
    if (schema->n_children < info->n_children_min || schema->n_children > info->n_children_max) {
        return error_set(e, ERR_INVALID, "Arrow schema: field '%.100s' of type '%.100s' has %lld children", name,
                         schema->format, (long long)schema->n_children);
    }
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i] == NULL || schema->children[i]->format == NULL) {
            return error_set(e, ERR_INVALID, "Arrow schema: field '%.100s' has a child without a type", name);
        }
    }
    if (info->is_map && (schema->children[0]->n_children != 2 || schema->children[0]->format[0] != '+' ||
                         schema->children[0]->format[1] != 's')) {
        return error_set(e, ERR_INVALID, "Arrow schema: the map '%.100s' is not made of keys and values", name);
    }
    if (schema->dictionary != NULL && !info->is_index) {
        return error_set(e, ERR_INVALID, "Arrow schema: the dictionary of '%.100s' has indices of type '%.100s'", name,
                         schema->format);
    }
    return ERR_OK;
}

/* Leaves a tree that layout_free can free, on failure too. Recursion ends at LIMIT_ARROW_DEPTH. */
static enum err fill(struct layout *layout, const struct ArrowSchema *schema, uint32_t depth, struct making *making,
                     struct error *e)
{
    struct type_info info = {0};
    enum err err = type_of_format(schema->format, &info, e);
    if (err == ERR_OK) {
        err = check_node(schema, &info, depth, making, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    *layout = info.layout;
    layout->n_children = (uint32_t)schema->n_children;
    layout->children = mem_calloc(layout->n_children, sizeof(*layout->children));
    for (uint32_t i = 0; i < layout->n_children && err == ERR_OK; i++) {
        err = fill(&layout->children[i], schema->children[i], depth + 1, making, e);
    }
    if (err == ERR_OK && schema->dictionary != NULL) {
        if (schema->dictionary->format == NULL || schema->dictionary->dictionary != NULL) {
            return error_set(e, ERR_INVALID, "Arrow schema: a dictionary has no type, or one of its own");
        }
        layout->dictionary_id = making->n_dictionaries++;
        layout->dictionary = mem_calloc(1, sizeof(*layout->dictionary));
        err = fill(layout->dictionary, schema->dictionary, depth + 1, making, e);
    }
    return err;
}

enum err layout_new(const struct ArrowSchema *schema, struct layout **out, uint32_t *out_dictionaries, struct error *e)
{
    struct making making = {0};
    if (schema->format == NULL || schema->dictionary != NULL || schema->format[0] != '+' || schema->format[1] != 's') {
        return error_set(e, ERR_INVALID, "Arrow schema: the columns must be the children of a struct");
    }
    struct layout *layout = mem_calloc(1, sizeof(*layout));
    enum err err = fill(layout, schema, 0, &making, e);
    if (err != ERR_OK) {
        layout_free(layout);
        return err;
    }
    *out = layout;
    *out_dictionaries = making.n_dictionaries;
    return ERR_OK;
}
