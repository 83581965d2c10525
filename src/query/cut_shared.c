/*
 * Rows that are read more than once: CTEs, and the key side of delim joins. Each is a stage with several readers; only if the
 * keys of a delim join are together where its rows are read (cut_range.c), the join can stay as it is.
 */
#include <math.h>

#include "base/mem.h"
#include "query/cut_internal.h"

static struct shared_rows *find_shared(const struct shared_list *list, uint32_t id)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->items[i].id == id) {
            return &list->items[i];
        }
    }
    return NULL;
}

static struct shared_rows *add_shared(struct shared_list *list, struct shared_rows rows)
{
    list->items = mem_grow(list->items, &list->cap, list->n + 1, sizeof *list->items);
    list->items[list->n] = rows;
    return &list->items[list->n++];
}

/* One more reader. */
static struct fragment read_again(struct cutter *c, const struct fragment *shape)
{
    struct fragment f = *shape;
    f.node = cut__read(c, cut__stage_of(c, shape->node), shape->node, shape->spread == SPREAD_REPLICATED);
    return f;
}

/* A reader that takes what is everybody's for its own, or its own for everybody's. */
static struct fragment read_wrongly(struct cutter *c, const struct fragment *shape)
{
    struct fragment f = read_again(c, shape);
    f.spread = shape->spread == SPREAD_REPLICATED ? SPREAD_ANY : SPREAD_REPLICATED;
    return f;
}

enum err cut__cte(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment definition;
    struct fragment shape;
    enum err err = cut__node(c, node->children[0], &definition);
    if (err == ERR_OK) {
        err = cut__forward(c, &definition, &shape);
    }
    if (err == ERR_OK) {
        add_shared(&c->ctes, (struct shared_rows){.id = node->as.cte.id, .shape = shape});
        err = cut__node(c, node->children[1], out);
    }
    return err;
}

enum err cut__cte_ref(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    const struct shared_rows *rows = find_shared(&c->ctes, node->as.cte_ref.id);
    if (rows == NULL) {
        return error_set(c->e, ERR_PRECONDITION, "a reference to a CTE that is not there");
    }
    *out = cut__is_planted(c, NODE_CTE_REF) ? read_wrongly(c, &rows->shape) : read_again(c, &rows->shape);
    return ERR_OK;
}

/* A copy of the tree in which outer CTEs are read from their stages. */
static enum err take_whole(struct cutter *c, struct plan_node *node, struct plan_node **out)
{
    const struct shared_rows *cte = node->kind == NODE_CTE_REF ? find_shared(&c->ctes, node->as.cte_ref.id) : NULL;
    if (cte != NULL) {
        *out = cut__read(c, cut__stage_of(c, cte->shape.node), cte->shape.node, true);
        return ERR_OK;
    }
    if (node->kind == NODE_DELIM_GET && find_shared(&c->delims, node->as.delim_get.delim_id) != NULL) {
        return error_set(c->e, ERR_PRECONDITION, "a recursive CTE inside of a correlated subquery");
    }
    struct plan_node **children = arena_zalloc(c->arena, node->n_children * sizeof *children);
    for (uint32_t i = 0; i < node->n_children; i++) {
        enum err err = take_whole(c, node->children[i], &children[i]);
        if (err != ERR_OK) {
            return err;
        }
    }
    *out = plan_node_with_children(c->arena, node, children, node->n_children);
    return ERR_OK;
}

/* Every round needs all rows of the one before: one task. */
enum err cut__recursive_cte(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct plan_node *whole = NULL;
    enum err err = take_whole(c, node, &whole);
    if (err == ERR_OK) {
        *out = (struct fragment){
            .node = whole, .spread = SPREAD_SINGLE, .rows = node->rows_estimated, .rows_max = INFINITY};
    }
    return err;
}

struct get_count {
    uint32_t id;
    uint32_t n;
};

static bool count_gets(struct plan_node *node, void *context)
{
    struct get_count *count = context;
    count->n += node->kind == NODE_DELIM_GET && node->as.delim_get.delim_id == count->id ? 1 : 0;
    return true;
}

/*
 * Makes the key side a stage. Its rows are spread by the keys, if these are columns: so tasks can make the keys distinct
 * for themselves, and the join finds its rows where it needs them.
 */
static enum err share_key_side(struct cutter *c, const struct join *join, const struct fragment *keys,
                               struct fragment *out)
{
    bool is_spread = cut__is_one(keys) || cut__is_together(keys, join->keys, join->n_keys) ||
                     cut__ref_columns(c, join->keys, join->n_keys) == NULL || cut__is_planted(c, NODE_DELIM_GET);
    return is_spread ? cut__forward(c, keys, out) : cut__shuffle(c, keys, join->keys, join->n_keys, out);
}

uint32_t cut__count_gets(struct plan_node *node, uint32_t delim_id)
{
    struct get_count count = {.id = delim_id};
    plan_visit(node, count_gets, &count);
    return count.n;
}

enum err cut__delim_sides(struct cutter *c, struct plan_node *node, const struct fragment *keys,
                          struct fragment *out_left, struct fragment *out_right)
{
    const struct join *join = node->as.join;
    struct plan_node *other_node = node->children[1 - join->delim_side];
    struct fragment shape;
    struct fragment other;
    enum err err = share_key_side(c, join, keys, &shape);
    if (err != ERR_OK) {
        return err;
    }
    add_shared(&c->delims, (struct shared_rows){.id = join->delim_id,
                                                .shape = shape,
                                                .join = join,
                                                .n_gets = cut__count_gets(other_node, join->delim_id)});
    err = cut__node(c, other_node, &other);
    if (err == ERR_OK) {
        *(join->delim_side == 0 ? out_left : out_right) = read_again(c, &shape);
        *(join->delim_side == 0 ? out_right : out_left) = other;
    }
    return err;
}

enum err cut__delim_sides_here(struct cutter *c, struct plan_node *node, const struct fragment *keys, uint32_t key,
                               struct fragment *out_left, struct fragment *out_right)
{
    const struct join *join = node->as.join;
    struct fragment shape = *keys;
    struct fragment other;
    cut__set_hashed(&shape, cut__key_set(c, &key, 1, NULL));
    add_shared(&c->delims, (struct shared_rows){.id = join->delim_id, .shape = shape, .join = join, .is_here = true});
    enum err err = cut__node(c, node->children[1 - join->delim_side], &other);
    if (err == ERR_OK) {
        *(join->delim_side == 0 ? out_left : out_right) = *keys;
        *(join->delim_side == 0 ? out_right : out_left) = other;
    }
    return err;
}

struct cut_mark cut__mark(const struct cutter *c)
{
    struct cut_mark mark = {.n_stages = c->n_stages,
                            .n_reads = c->n_reads,
                            .n_scans = c->n_scans,
                            .n_ctes = c->ctes.n,
                            .n_delims = c->delims.n};
    mark.ctes = arena_copy(c->arena, c->ctes.items, c->ctes.n * sizeof *mark.ctes);
    mark.delims = arena_copy(c->arena, c->delims.items, c->delims.n * sizeof *mark.delims);
    mark.scans = arena_copy(c->arena, c->scans, c->n_scans * sizeof *c->scans);
    mark.splits = arena_zalloc(c->arena, c->n_scans * sizeof *mark.splits);
    for (uint32_t i = 0; i < c->n_scans; i++) {
        mark.splits[i] = c->scans[i].scan->split;
    }
    return mark;
}

void cut__return_to(struct cutter *c, const struct cut_mark *mark)
{
    c->n_stages = mark->n_stages;
    c->n_reads = mark->n_reads;
    c->n_scans = mark->n_scans;
    c->ctes.n = mark->n_ctes;
    c->delims.n = mark->n_delims;
    for (uint32_t i = 0; i < mark->n_ctes; i++) {
        c->ctes.items[i] = mark->ctes[i];
    }
    for (uint32_t i = 0; i < mark->n_delims; i++) {
        c->delims.items[i] = mark->delims[i]; /* a stage with its distinct keys may be gone */
    }
    for (uint32_t i = 0; i < c->n_scans; i++) {
        c->scans[i] = mark->scans[i];
        c->scans[i].scan->split = mark->splits[i];
    }
}

static struct plan_node *distinct_over(struct cutter *c, struct plan_node *child)
{
    struct plan_node *node = arena_zalloc(c->arena, sizeof *node);
    *node = (struct plan_node){.kind = NODE_DISTINCT,
                               .n_children = 1,
                               .n_columns = child->n_columns,
                               .columns = child->columns,
                               .rows_estimated = -1};
    node->children = arena_copy(c->arena, &child, sizeof(struct plan_node *));
    node->as.distinct.n_targets = child->n_columns;
    node->as.distinct.targets = cut__refs(c, child, child->n_columns);
    return node;
}

/* The distinct keys of a delim join, from the rows of its key side. */
static enum err distinct_keys(struct cutter *c, const struct shared_rows *rows, struct fragment *out)
{
    const struct join *join = rows->join;
    struct fragment f = read_again(c, &rows->shape);
    uint32_t n_columns = f.node->n_columns;
    uint32_t *sources = arena_zalloc(c->arena, join->n_keys * sizeof *sources);
    for (uint32_t i = 0; i < join->n_keys; i++) {
        sources[i] = join->keys[i]->kind == EXPRESSION_REF ? join->keys[i]->as.index : PLAN_NO_COLUMN;
    }
    f.node = distinct_over(c, plan_project(c->arena, f.node, join->keys, join->n_keys));
    if (f.spread == SPREAD_HASH) {
        uint32_t *map = cut__invert(c, sources, join->n_keys, n_columns);
        cut__set_hashed(&f, cut__remap_keys(c, f.keys, map, n_columns));
    }
    if (cut__is_one(&f) || f.spread == SPREAD_HASH || cut__is_planted(c, NODE_DELIM_GET)) {
        *out = f;
        return ERR_OK;
    }
    enum err err = cut__shuffle(c, &f, cut__refs(c, f.node, join->n_keys), join->n_keys, &f);
    if (err == ERR_OK) {
        f.node = distinct_over(c, f.node);
        *out = f;
    }
    return err;
}

enum err cut__delim_get(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct shared_rows *rows = find_shared(&c->delims, node->as.delim_get.delim_id);
    if (rows == NULL || rows->join->n_keys != node->n_columns) {
        return error_set(c->e, ERR_PRECONDITION, "keys of a correlated subquery that are not there");
    }
    if (rows->is_here) {
        *out = rows->shape;
        out->node = node;
        return ERR_OK;
    }
    /* What everybody has, everybody can make distinct; so can the only reader. */
    if (rows->shape.spread == SPREAD_REPLICATED || rows->n_gets == 1) {
        return distinct_keys(c, rows, out);
    }
    if (!rows->has_distinct) {
        struct fragment f;
        enum err err = distinct_keys(c, rows, &f);
        if (err == ERR_OK) {
            err = cut__forward(c, &f, &rows->distinct);
        }
        if (err != ERR_OK) {
            return err;
        }
        rows->has_distinct = true;
    }
    *out = read_again(c, &rows->distinct);
    return ERR_OK;
}
