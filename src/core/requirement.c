#include "core/requirement.h"

#include <stddef.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/siphash.h"

bool string_list_has(struct string_list list, const char *text)
{
    for (uint32_t i = 0; i < list.count; i++) {
        if (strcmp(list.items[i], text) == 0) {
            return true;
        }
    }
    return false;
}

static bool list_contains(const struct capability *offered, const struct capability *required)
{
    struct string_list items = {offered->items, offered->n_items};
    if (required->kind == VALUE_TEXT) {
        return string_list_has(items, required->text);
    }
    if (required->kind != VALUE_LIST) {
        return false;
    }
    for (uint32_t i = 0; i < required->n_items; i++) {
        if (!string_list_has(items, required->items[i])) {
            return false;
        }
    }
    return true;
}

bool capability_satisfies(const struct capability *offered, const struct capability *required)
{
    if (offered->kind == VALUE_LIST) {
        return list_contains(offered, required);
    }
    if (offered->kind == VALUE_NUMBER && required->kind == VALUE_TEXT && strncmp(required->text, ">=", 2) == 0) {
        double least;
        return num_parse(required->text + 2, &least) && offered->number >= least;
    }
    if (offered->kind != required->kind) {
        return false;
    }
    if (offered->kind == VALUE_TEXT) {
        return strcmp(offered->text, required->text) == 0;
    }
    return !(offered->number < required->number) && !(offered->number > required->number);
}

static bool has_capability(struct capability_list offered, const struct capability *required)
{
    for (uint32_t i = 0; i < offered.count; i++) {
        if (strcmp(offered.items[i].key, required->key) == 0) {
            return capability_satisfies(&offered.items[i], required);
        }
    }
    return false;
}

static bool has_any(struct string_list offered, struct string_list wanted)
{
    for (uint32_t i = 0; i < wanted.count; i++) {
        if (string_list_has(offered, wanted.items[i])) {
            return true;
        }
    }
    return wanted.count == 0;
}

enum mismatch requirement_match(const struct requirement *need, const struct offer *offer, uint32_t *out_index)
{
    uint32_t unused;
    uint32_t *index = out_index != NULL ? out_index : &unused;
    if (need->executor != NULL && !string_list_has(offer->executors, need->executor)) {
        return MISMATCH_EXECUTOR;
    }
    for (uint32_t i = 0; i < need->ops.count; i++) {
        if (!string_list_has(offer->ops, need->ops.items[i])) {
            *index = i;
            return MISMATCH_OP;
        }
    }
    if (need->engine != NULL && (offer->engine == NULL || strcmp(need->engine, offer->engine) != 0)) {
        return MISMATCH_ENGINE;
    }
    if (!has_any(offer->executors, need->any_executors)) {
        return MISMATCH_ANY_EXECUTOR;
    }
    for (uint32_t i = 0; i < need->capabilities.count; i++) {
        if (!has_capability(offer->capabilities, &need->capabilities.items[i])) {
            *index = i;
            return MISMATCH_CAPABILITY;
        }
    }
    return MISMATCH_NONE;
}

bool requirement_allows_node(const struct requirement *need, const char *node)
{
    if (string_list_has(need->forbidden_nodes, node)) {
        return false;
    }
    return need->allowed_nodes.count == 0 || string_list_has(need->allowed_nodes, node);
}

/* ---- equality and hash ---- */

static bool text_equal(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool strings_equal(struct string_list a, struct string_list b)
{
    if (a.count != b.count) {
        return false;
    }
    for (uint32_t i = 0; i < a.count; i++) {
        if (strcmp(a.items[i], b.items[i]) != 0) {
            return false;
        }
    }
    return true;
}

static bool capability_equal(const struct capability *a, const struct capability *b)
{
    if (strcmp(a->key, b->key) != 0 || a->kind != b->kind) {
        return false;
    }
    switch (a->kind) {
    case VALUE_TEXT:
        return strcmp(a->text, b->text) == 0;
    case VALUE_NUMBER:
    case VALUE_BOOL:
        return memcmp(&a->number, &b->number, sizeof a->number) == 0;
    case VALUE_LIST:
        return strings_equal((struct string_list){a->items, a->n_items}, (struct string_list){b->items, b->n_items});
    }
    return false;
}

static bool capabilities_equal(struct capability_list a, struct capability_list b)
{
    if (a.count != b.count) {
        return false;
    }
    for (uint32_t i = 0; i < a.count; i++) {
        if (!capability_equal(&a.items[i], &b.items[i])) {
            return false;
        }
    }
    return true;
}

bool requirement_equal(const struct requirement *a, const struct requirement *b)
{
    return text_equal(a->executor, b->executor) && strings_equal(a->ops, b->ops) && text_equal(a->engine, b->engine) &&
           strings_equal(a->any_executors, b->any_executors) && capabilities_equal(a->capabilities, b->capabilities) &&
           strings_equal(a->allowed_nodes, b->allowed_nodes) && strings_equal(a->forbidden_nodes, b->forbidden_nodes) &&
           a->max_parallel_per_node == b->max_parallel_per_node;
}

bool offer_equal(const struct offer *a, const struct offer *b)
{
    return strings_equal(a->executors, b->executors) && strings_equal(a->ops, b->ops) &&
           capabilities_equal(a->capabilities, b->capabilities) && text_equal(a->engine, b->engine);
}

static uint64_t mix(uint64_t hash, const char *text)
{
    static const struct siphash_key key = {0, 0};
    uint64_t part = text == NULL ? 1 : siphash(&key, text, strlen(text));
    return (hash ^ part) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
}

static uint64_t mix_list(uint64_t hash, struct string_list list)
{
    hash = (hash + list.count) * UINT64_C(0xff51afd7ed558ccd);
    for (uint32_t i = 0; i < list.count; i++) {
        hash = mix(hash, list.items[i]);
    }
    return hash;
}

static uint64_t mix_capability(uint64_t hash, const struct capability *capability)
{
    static const struct siphash_key key = {0, 1};
    hash = mix(hash, capability->key);
    if (capability->kind == VALUE_TEXT) {
        return mix(hash, capability->text);
    }
    if (capability->kind == VALUE_LIST) {
        return mix_list(hash, (struct string_list){capability->items, capability->n_items});
    }
    return hash ^ siphash(&key, &capability->number, sizeof capability->number);
}

uint64_t requirement_hash(const struct requirement *r)
{
    uint64_t hash = mix(mix(r->max_parallel_per_node, r->executor), r->engine);
    hash = mix_list(mix_list(hash, r->ops), r->any_executors);
    hash = mix_list(mix_list(hash, r->allowed_nodes), r->forbidden_nodes);
    for (uint32_t i = 0; i < r->capabilities.count; i++) {
        hash = mix_capability(hash, &r->capabilities.items[i]);
    }
    return hash;
}

/* ---- copies in one block: a first walk measures, a second one writes ---- */

struct packer {
    unsigned char *base; /* NULL: only measure */
    size_t used;
};

static void *pack(struct packer *packer, const void *from, size_t n)
{
    void *to = packer->base == NULL ? NULL : packer->base + packer->used;
    if (to != NULL && n > 0) {
        memcpy(to, from, n);
    }
    packer->used += (n + 7) & ~(size_t)7;
    return to;
}

static const char *pack_text(struct packer *packer, const char *text)
{
    return text == NULL ? NULL : pack(packer, text, strlen(text) + 1);
}

static struct string_list pack_strings(struct packer *packer, struct string_list list)
{
    const char **items = pack(packer, list.items, list.count * sizeof *list.items);
    for (uint32_t i = 0; i < list.count; i++) {
        const char *copy = pack_text(packer, list.items[i]);
        if (items != NULL) {
            items[i] = copy;
        }
    }
    return (struct string_list){items, list.count};
}

static struct capability_list pack_capabilities(struct packer *packer, struct capability_list list)
{
    struct capability *items = pack(packer, list.items, list.count * sizeof *list.items);
    for (uint32_t i = 0; i < list.count; i++) {
        struct capability copy = list.items[i];
        copy.key = pack_text(packer, copy.key);
        copy.text = copy.kind == VALUE_TEXT ? pack_text(packer, copy.text) : NULL;
        if (copy.kind == VALUE_LIST) {
            copy.items = pack_strings(packer, (struct string_list){copy.items, copy.n_items}).items;
        }
        if (items != NULL) {
            items[i] = copy;
        }
    }
    return (struct capability_list){items, list.count};
}

static struct requirement *pack_requirement(struct packer *packer, const struct requirement *r)
{
    struct requirement *to = pack(packer, r, sizeof *r);
    struct requirement copy = {
        .executor = pack_text(packer, r->executor),
        .ops = pack_strings(packer, r->ops),
        .engine = pack_text(packer, r->engine),
        .any_executors = pack_strings(packer, r->any_executors),
        .capabilities = pack_capabilities(packer, r->capabilities),
        .allowed_nodes = pack_strings(packer, r->allowed_nodes),
        .forbidden_nodes = pack_strings(packer, r->forbidden_nodes),
        .max_parallel_per_node = r->max_parallel_per_node,
    };
    if (to != NULL) {
        *to = copy;
    }
    return to;
}

static struct offer *pack_offer(struct packer *packer, const struct offer *o)
{
    struct offer *to = pack(packer, o, sizeof *o);
    struct offer copy = {
        .executors = pack_strings(packer, o->executors),
        .ops = pack_strings(packer, o->ops),
        .capabilities = pack_capabilities(packer, o->capabilities),
        .engine = pack_text(packer, o->engine),
    };
    if (to != NULL) {
        *to = copy;
    }
    return to;
}

struct requirement *requirement_copy(const struct requirement *r)
{
    struct packer packer = {NULL, 0};
    pack_requirement(&packer, r);
    packer = (struct packer){mem_alloc(packer.used), 0};
    return pack_requirement(&packer, r);
}

struct offer *offer_copy(const struct offer *o)
{
    struct packer packer = {NULL, 0};
    pack_offer(&packer, o);
    packer = (struct packer){mem_alloc(packer.used), 0};
    return pack_offer(&packer, o);
}

const struct requirement *requirement_copy_in(struct arena *arena, const struct requirement *r)
{
    struct packer packer = {NULL, 0};
    pack_requirement(&packer, r);
    packer = (struct packer){arena_alloc(arena, packer.used), 0};
    return pack_requirement(&packer, r);
}

const struct offer *offer_copy_in(struct arena *arena, const struct offer *o)
{
    struct packer packer = {NULL, 0};
    pack_offer(&packer, o);
    packer = (struct packer){arena_alloc(arena, packer.used), 0};
    return pack_offer(&packer, o);
}
