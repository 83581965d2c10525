/* Where a task may run. */
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/num.h"
#include "wire/canonical.h"
#include "wire/tree_internal.h"

#define CAPABILITY_TEXT_BYTES 1000

static void read_executors(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct requirement *need = into;
    struct string_list list = {NULL, 0};
    if (!tree__read_labels(r, where, value, LIMIT_EXECUTORS_PER_WORKER, &list)) {
        return;
    }
    for (uint32_t i = 0; i < list.count; i++) {
        struct where element = {.up = where, .index = i};
        if (!tree__is_executor_name(list.items[i])) {
            tree__expected(r, &element, "the name of an executor", json_at(value, i));
        }
    }
    need->any_executors = list;
}

static bool read_list_value(struct tree_reader *r, const struct where *where, const struct json *value,
                            struct capability *out)
{
    struct string_list list = {NULL, 0};
    if (!tree__read_labels(r, where, value, LIMIT_CAPABILITIES, &list)) {
        return false;
    }
    out->kind = VALUE_LIST;
    out->items = list.items;
    out->n_items = list.count;
    return true;
}

/* A text that starts with >= compares numbers, so the rest must be one. */
static bool read_text_value(struct tree_reader *r, const struct where *where, const struct json *value,
                            struct capability *out)
{
    double least = 0;
    out->kind = VALUE_TEXT;
    if (!tree__read_label(r, where, value, CAPABILITY_TEXT_BYTES, &r->scratch, &out->text)) {
        return false;
    }
    if (strncmp(out->text, ">=", 2) == 0 && !num_parse(out->text + 2, &least)) {
        tree__expected(r, where, "\">=\" and a number right behind it, such as \">=8\"", value);
        return false;
    }
    return true;
}

static bool read_capability(struct tree_reader *r, const struct where *where, const struct json *value,
                            struct capability *out)
{
    *out = (struct capability){.key = arena_strdup(&r->scratch, where->key)};
    size_t n = strlen(where->key);
    if (n == 0 || n > LIMIT_NAME_BYTES) {
        tree__complain(r, where, "the name of a capability has 1 to %d bytes", LIMIT_NAME_BYTES);
        return false;
    }
    switch (json_kind_of(value)) {
    case JSON_TEXT:
        return read_text_value(r, where, value, out);
    case JSON_ARRAY:
        return read_list_value(r, where, value, out);
    case JSON_NUMBER:
        out->kind = VALUE_NUMBER;
        out->number = json_number(value);
        return true;
    case JSON_BOOL:
        out->kind = VALUE_BOOL;
        out->number = json_bool(value) ? 1 : 0;
        return true;
    case JSON_NULL:
    case JSON_OBJECT:
        break;
    }
    tree__expected(r, where, "a text, a number, true, false or a list of texts", value);
    return false;
}

static void read_capabilities(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct requirement *need = into;
    size_t n = json_count(value);
    if (json_kind_of(value) != JSON_OBJECT) {
        tree__expected(r, where, "an object such as {\"gpu\": \"nvidia\", \"cpu_cores\": \">=8\"}", value);
        return;
    }
    if (n > LIMIT_CAPABILITIES) {
        tree__complain(r, where, "must have at most %d members, not %zu", LIMIT_CAPABILITIES, n);
        return;
    }
    /* Sorted, so that tasks which ask for the same in another order are of one class. */
    struct wire_member *members = wire_sorted_members(value, &n);
    struct capability *items = arena_alloc(&r->scratch, n * sizeof *items);
    bool is_good = true;
    for (size_t i = 0; i < n; i++) {
        struct where member = {.up = where, .key = members[i].key};
        is_good = read_capability(r, &member, members[i].value, &items[i]) && is_good;
    }
    mem_free(members);
    if (is_good) {
        need->capabilities = (struct capability_list){items, (uint32_t)n};
    }
}

static void read_allowed(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct requirement *need = into;
    (void)tree__read_labels(r, where, value, LIMIT_NODES_IN_PLACEMENT, &need->allowed_nodes);
}

static void read_forbidden(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct requirement *need = into;
    (void)tree__read_labels(r, where, value, LIMIT_NODES_IN_PLACEMENT, &need->forbidden_nodes);
}

static void read_max_parallel(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct requirement *need = into;
    uint64_t n = 0;
    if (tree__read_uint(r, where, value, 1, LIMIT_PARALLEL_PER_NODE, &n)) {
        need->max_parallel_per_node = (uint32_t)n;
    }
}

static const struct tree_member placement_members[] = {
    {"requires_executors", read_executors},
    {"requires_capabilities", read_capabilities},
    {"allowed_nodes", read_allowed},
    {"forbidden_nodes", read_forbidden},
    {"max_parallel_per_node", read_max_parallel},
    {NULL, NULL},
};

/* Whether no node is left. Both lists are bounded, so comparing all with all is, too. */
static bool is_nowhere(const struct requirement *need)
{
    for (uint32_t i = 0; i < need->allowed_nodes.count; i++) {
        if (!string_list_has(need->forbidden_nodes, need->allowed_nodes.items[i])) {
            return false;
        }
    }
    return need->allowed_nodes.count > 0;
}

void tree__read_placement(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    draft->is_placed = true;
    tree__read_object(r, where, value, placement_members, &draft->need);
    if (is_nowhere(&draft->need)) {
        tree__complain(r, where, "every one of allowed_nodes is also among forbidden_nodes, so no node is left");
    }
}
