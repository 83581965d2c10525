/* Where rows with equal values are: sets of columns, and what becomes of them. */
#include <string.h>

#include "query/cut_internal.h"

const struct key_set *cut__key_set(struct cutter *c, const uint32_t *columns, uint32_t n, const struct key_set *next)
{
    struct key_set *set = arena_zalloc(c->arena, sizeof *set);
    set->next = next;
    set->n = n;
    set->columns = arena_copy(c->arena, columns, n * sizeof *columns);
    return set;
}

const struct key_set *cut__remap_keys(struct cutter *c, const struct key_set *keys, const uint32_t *map, uint32_t n)
{
    const struct key_set *result = NULL;
    for (; keys != NULL; keys = keys->next) {
        bool is_kept = true;
        uint32_t *columns = arena_zalloc(c->arena, keys->n * sizeof *columns);
        for (uint32_t i = 0; i < keys->n && is_kept; i++) {
            is_kept = keys->columns[i] < n && map[keys->columns[i]] != PLAN_NO_COLUMN;
            columns[i] = is_kept ? map[keys->columns[i]] : 0;
        }
        if (is_kept) {
            result = cut__key_set(c, columns, keys->n, result);
        }
    }
    return result;
}

uint32_t *cut__invert(struct cutter *c, const uint32_t *map, uint32_t n_map, uint32_t n)
{
    uint32_t *inverse = arena_zalloc(c->arena, n * sizeof *inverse);
    for (uint32_t i = 0; i < n; i++) {
        inverse[i] = PLAN_NO_COLUMN;
    }
    for (uint32_t i = 0; i < n_map; i++) {
        if (map[i] < n && inverse[map[i]] == PLAN_NO_COLUMN) {
            inverse[map[i]] = i;
        }
    }
    return inverse;
}

void cut__set_hashed(struct fragment *f, const struct key_set *keys)
{
    f->spread = keys == NULL ? SPREAD_ANY : SPREAD_HASH;
    f->keys = keys;
}

static bool is_among(uint32_t column, struct expression *const *keys, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (keys[i]->kind == EXPRESSION_REF && keys[i]->as.index == column) {
            return true;
        }
    }
    return false;
}

bool cut__is_together(const struct fragment *f, struct expression *const *keys, uint32_t n)
{
    for (const struct key_set *set = f->spread == SPREAD_HASH ? f->keys : NULL; set != NULL; set = set->next) {
        bool is_inside = set->n > 0;
        for (uint32_t i = 0; i < set->n && is_inside; i++) {
            is_inside = is_among(set->columns[i], keys, n);
        }
        if (is_inside) {
            return true;
        }
    }
    return false;
}

uint32_t *cut__ref_columns(struct cutter *c, struct expression *const *expressions, uint32_t n)
{
    uint32_t *columns = arena_zalloc(c->arena, n * sizeof *columns);
    for (uint32_t i = 0; i < n; i++) {
        if (expressions[i]->kind != EXPRESSION_REF) {
            return NULL;
        }
        columns[i] = expressions[i]->as.index;
    }
    return columns;
}

struct expression **cut__refs(struct cutter *c, const struct plan_node *node, uint32_t n)
{
    struct expression **refs = arena_zalloc(c->arena, n * sizeof *refs);
    for (uint32_t i = 0; i < n; i++) {
        refs[i] = expression_ref(c->arena, i, node->columns[i]);
    }
    return refs;
}
