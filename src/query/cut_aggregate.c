/*
 * GROUP BY, in one of four ways:
 *
 *   where the rows are    if rows of a group are together already, or could be read so (cut_range.c)
 *   in two steps          if the table of aggregate.h can take all aggregates apart
 *   without duplicates    if all are DISTINCT over the same value: duplicates are dropped before rows travel
 *   as rows               to the task of their group; without groups, to one task
 */
#include "query/cut_internal.h"

/* The node with other groups and aggregates, over another child. Sets are dropped. */
static struct plan_node *aggregate_node(struct cutter *c, struct plan_node *child, struct expression *const *groups,
                                        uint32_t n_groups, struct expression *const *aggregates, uint32_t n_aggregates)
{
    struct plan_node *node = arena_zalloc(c->arena, sizeof *node);
    struct aggregate *aggregate = arena_zalloc(c->arena, sizeof *aggregate);
    uint32_t n = n_groups + n_aggregates;
    *node = (struct plan_node){.kind = NODE_AGGREGATE, .n_children = 1, .n_columns = n, .rows_estimated = -1};
    node->children = arena_copy(c->arena, &child, sizeof(struct plan_node *));
    node->columns = arena_zalloc(c->arena, n * sizeof *node->columns);
    for (uint32_t i = 0; i < n; i++) {
        node->columns[i] = i < n_groups ? groups[i]->type : aggregates[i - n_groups]->type;
    }
    aggregate->n_groups = n_groups;
    aggregate->groups = arena_copy(c->arena, groups, n_groups * sizeof(struct expression *));
    aggregate->n_aggregates = n_aggregates;
    aggregate->aggregates = arena_copy(c->arena, aggregates, n_aggregates * sizeof(struct expression *));
    node->as.aggregate = aggregate;
    return node;
}

static bool has_sets(const struct aggregate *aggregate)
{
    return aggregate->n_sets > 1;
}

static bool are_sets_different(const struct aggregate *aggregate)
{
    for (uint32_t i = 0; i < aggregate->n_sets; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const struct group_set *a = &aggregate->sets[i];
            const struct group_set *b = &aggregate->sets[j];
            uint32_t n_common = 0;
            for (uint32_t k = 0; k < a->n * b->n; k++) {
                n_common += a->groups[k / b->n] == b->groups[k % b->n] ? 1 : 0;
            }
            if (a->n == b->n && n_common == a->n) {
                return false;
            }
        }
    }
    return true;
}

/* DuckDB's estimate; else as if there were a tenth as many groups as rows. */
static double rows_of(const struct plan_node *node, const struct fragment *child)
{
    if (node->as.aggregate->n_groups == 0) {
        return 1;
    }
    return node->rows_estimated >= 0 ? node->rows_estimated : child->rows < 0 ? -1 : child->rows / 10;
}

/* The node as it is, over a fragment that has what it needs. Groups are the first columns. */
static void finish(struct cutter *c, struct plan_node *node, const struct fragment *child, struct fragment *out)
{
    const struct aggregate *aggregate = node->as.aggregate;
    *out = *child;
    out->node = plan_node_with_child(c->arena, node, child->node);
    out->rows = rows_of(node, child);
    out->rows_max = aggregate->n_groups == 0 ? 1
                    : has_sets(aggregate)    ? child->rows_max * aggregate->n_sets
                                             : child->rows_max;
    out->choice = NULL;
    if (child->spread == SPREAD_HASH) {
        uint32_t n_columns = child->node->n_columns;
        uint32_t *sources = arena_zalloc(c->arena, aggregate->n_groups * sizeof *sources);
        for (uint32_t i = 0; i < aggregate->n_groups; i++) {
            const struct expression *group = aggregate->groups[i];
            sources[i] = group->kind == EXPRESSION_REF ? group->as.index : PLAN_NO_COLUMN;
        }
        uint32_t *map = cut__invert(c, sources, aggregate->n_groups, n_columns);
        cut__set_hashed(out, has_sets(aggregate) ? NULL : cut__remap_keys(c, child->keys, map, n_columns));
    }
}

static bool split_all(struct cutter *c, const struct aggregate *aggregate, struct aggregate_parts *parts)
{
    for (uint32_t i = 0; i < aggregate->n_aggregates; i++) {
        if (!aggregate_split(c->aggregate_rules, aggregate->aggregates[i], c->arena, &parts[i])) {
            return false;
        }
    }
    return true;
}

/* The first step. With grouping sets, GROUPING() of all groups is one more column in the end, which tells them apart. */
static struct plan_node *first_step(struct cutter *c, const struct aggregate *aggregate,
                                    const struct aggregate_parts *parts, struct plan_node *child)
{
    struct expression **partials =
        arena_zalloc(c->arena, aggregate->n_aggregates * AGGREGATE_PARTIALS_MAX * sizeof *partials);
    uint32_t n = 0;
    for (uint32_t i = 0; i < aggregate->n_aggregates; i++) {
        for (uint32_t k = 0; k < parts[i].n; k++) {
            partials[n++] = parts[i].partials[k];
        }
    }
    struct plan_node *node = aggregate_node(c, child, aggregate->groups, aggregate->n_groups, partials, n);
    if (has_sets(aggregate)) {
        struct group_set *all = arena_zalloc(c->arena, sizeof *all);
        all->n = aggregate->n_groups;
        all->groups = arena_zalloc(c->arena, all->n * sizeof *all->groups);
        for (uint32_t i = 0; i < all->n; i++) {
            all->groups[i] = i;
        }
        node->as.aggregate->n_sets = aggregate->n_sets;
        node->as.aggregate->sets = aggregate->sets;
        node->as.aggregate->n_groupings = 1;
        node->as.aggregate->groupings = all;
        const struct type **columns = arena_zalloc(c->arena, (node->n_columns + 1) * sizeof *columns);
        for (uint32_t i = 0; i < node->n_columns; i++) {
            columns[i] = node->columns[i];
        }
        columns[node->n_columns++] = type_plain(TYPE_BIGINT);
        node->columns = columns;
    }
    return node;
}

/* GROUPING(a, b) from GROUPING of all groups, column `column`: each group has a bit, the first one the highest. */
static struct expression *grouping_of(struct cutter *c, const struct group_set *set, uint32_t n_groups, uint32_t column)
{
    struct buf text = {0};
    buf_char(&text, '(');
    for (uint32_t i = 0; i < set->n; i++) {
        buf_format(&text, "%s(((@0 >> %u) & 1) << %u)", i == 0 ? "" : " | ", (unsigned)(n_groups - 1 - set->groups[i]),
                   (unsigned)(set->n - 1 - i));
    }
    buf_char(&text, ')');
    struct expression *all = expression_ref(c->arena, column, type_plain(TYPE_BIGINT));
    struct expression *grouping =
        expression_template(c->arena, arena_strdup(c->arena, text.data), type_plain(TYPE_BIGINT), &all, 1);
    buf_deinit(&text);
    return grouping;
}

/* The second step over the partial values, with the columns of the original node. */
static struct plan_node *second_step(struct cutter *c, const struct plan_node *node,
                                     const struct aggregate_parts *parts, struct plan_node *child)
{
    const struct aggregate *aggregate = node->as.aggregate;
    uint32_t n_groups = aggregate->n_groups;
    uint32_t n_keys = n_groups + (has_sets(aggregate) ? 1 : 0);
    struct expression **keys = arena_zalloc(c->arena, n_keys * sizeof *keys);
    struct expression **finals = arena_zalloc(c->arena, aggregate->n_aggregates * sizeof *finals);
    for (uint32_t i = 0; i < n_groups; i++) {
        keys[i] = expression_ref(c->arena, i, child->columns[i]);
    }
    if (has_sets(aggregate)) {
        keys[n_groups] = expression_ref(c->arena, child->n_columns - 1, type_plain(TYPE_BIGINT));
    }
    uint32_t at = n_groups;
    for (uint32_t i = 0; i < aggregate->n_aggregates; i++) {
        finals[i] = aggregate_final(&parts[i], at, c->arena);
        at += parts[i].n;
    }
    struct plan_node *second = aggregate_node(c, child, keys, n_keys, finals, aggregate->n_aggregates);
    struct expression **columns = arena_zalloc(c->arena, node->n_columns * sizeof *columns);
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_groups; i++) {
        columns[n++] = expression_ref(c->arena, i, second->columns[i]);
    }
    for (uint32_t i = 0; i < aggregate->n_aggregates; i++) {
        columns[n++] = expression_ref(c->arena, n_keys + i, second->columns[n_keys + i]);
    }
    for (uint32_t i = 0; i < aggregate->n_groupings && has_sets(aggregate); i++) {
        columns[n++] = grouping_of(c, &aggregate->groupings[i], n_groups, n_groups);
    }
    return plan_project(c->arena, second, columns, n);
}

static enum err aggregate_in_two_steps(struct cutter *c, struct plan_node *node, const struct aggregate_parts *parts,
                                       const struct fragment *child, struct fragment *out)
{
    const struct aggregate *aggregate = node->as.aggregate;
    struct fragment f = *child;
    f.node = first_step(c, aggregate, parts, child->node);
    f.rows = rows_of(node, child);
    f.spread = SPREAD_ANY;
    enum err err = ERR_OK;
    if (aggregate->n_groups == 0) {
        err = cut__gather(c, &f, &f);
    } else {
        uint32_t n = aggregate->n_groups + (has_sets(aggregate) ? 1 : 0);
        struct expression **keys = cut__refs(c, f.node, n);
        if (has_sets(aggregate)) {
            keys[n - 1] = expression_ref(c->arena, f.node->n_columns - 1, type_plain(TYPE_BIGINT));
        }
        err = cut__shuffle(c, &f, keys, n, &f);
    }
    if (err != ERR_OK) {
        return err;
    }
    *out = f;
    out->node = second_step(c, node, parts, f.node);
    out->rows = rows_of(node, child);
    out->rows_max = aggregate->n_groups == 0 ? 1
                    : has_sets(aggregate)    ? child->rows_max * aggregate->n_sets
                                             : child->rows_max;
    out->choice = NULL;
    if (has_sets(aggregate)) {
        cut__set_hashed(out, NULL);
    }
    return ERR_OK;
}

/* Whether all aggregates are DISTINCT over one value, and nothing else. */
static bool are_distinct_of_one(const struct aggregate *aggregate)
{
    for (uint32_t i = 0; i < aggregate->n_aggregates; i++) {
        const struct expression *expression = aggregate->aggregates[i];
        if (expression->kind != EXPRESSION_AGGREGATE) {
            return false;
        }
        const struct aggregate_call *call = expression->as.aggregate;
        if (!call->is_distinct || expression->n_args != 1 || call->filter != NULL || call->n_orders > 0 ||
            !expression_equal(expression->args[0], aggregate->aggregates[0]->args[0])) {
            return false;
        }
    }
    return aggregate->n_aggregates > 0 && aggregate->n_sets <= 1 && aggregate->n_groupings == 0;
}

static enum err aggregate_distinct(struct cutter *c, struct plan_node *node, const struct fragment *child,
                                   struct fragment *out)
{
    const struct aggregate *aggregate = node->as.aggregate;
    uint32_t n = aggregate->n_groups;
    struct expression **keys = arena_zalloc(c->arena, (n + 1) * sizeof *keys);
    for (uint32_t i = 0; i < n; i++) {
        keys[i] = aggregate->groups[i];
    }
    keys[n] = aggregate->aggregates[0]->args[0];
    struct fragment f = *child;
    f.node = aggregate_node(c, child->node, keys, n + 1, NULL, 0);
    f.spread = SPREAD_ANY;
    f.rows = -1;
    enum err err = n == 0 ? cut__gather(c, &f, &f) : cut__shuffle(c, &f, cut__refs(c, f.node, n), n, &f);
    if (err != ERR_OK) {
        return err;
    }
    struct expression **aggregates = arena_zalloc(c->arena, aggregate->n_aggregates * sizeof *aggregates);
    for (uint32_t i = 0; i < aggregate->n_aggregates; i++) {
        aggregates[i] = expression_copy(c->arena, aggregate->aggregates[i]);
        aggregates[i]->args[0] = expression_ref(c->arena, n, keys[n]->type);
    }
    *out = f;
    out->node = aggregate_node(c, f.node, cut__refs(c, f.node, n), n, aggregates, aggregate->n_aggregates);
    out->rows = rows_of(node, child);
    out->rows_max = n == 0 ? 1 : child->rows_max;
    return ERR_OK;
}

enum err cut__aggregate(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    const struct aggregate *aggregate = node->as.aggregate;
    enum err err = cut__node(c, node->children[0], &child);
    if (err != ERR_OK) {
        return err;
    }
    bool is_plain = !has_sets(aggregate);
    struct aggregate_parts *parts = arena_zalloc(c->arena, aggregate->n_aggregates * sizeof *parts);
    bool may_split =
        (aggregate->n_groups > 0 || aggregate->n_aggregates > 0) &&
        (is_plain ? aggregate->n_groupings == 0 : are_sets_different(aggregate) && aggregate->n_groups < 63);
    may_split = may_split && split_all(c, aggregate, parts);
    /* Groups that are together are so because rows have moved: if they probably need not move, two steps are better. */
    bool keeps_keys = child.choice != NULL && child.choice->keeps_keys;
    bool stays = child.choice != NULL && child.choice->is_likely && may_split && !keeps_keys;
    bool is_together =
        is_plain && !stays &&
        (cut__is_together(&child, aggregate->groups, aggregate->n_groups) ||
         cut__could_be_together(c, &child, aggregate->groups, aggregate->n_groups, rows_of(node, &child)));
    if (cut__is_one(&child) || is_together) {
        const struct fragment_choice *choice = keeps_keys && is_together ? child.choice : NULL;
        err = choice == NULL ? cut__settle_choice(c, &child) : ERR_OK;
        finish(c, node, &child, out);
        out->choice = choice;
        return err;
    }
    if (may_split) {
        return aggregate_in_two_steps(c, node, parts, &child, out);
    }
    if (are_distinct_of_one(aggregate)) {
        return aggregate_distinct(c, node, &child, out);
    }
    if (is_plain && aggregate->n_groups > 0 && cut__are_fixed(aggregate->groups, aggregate->n_groups)) {
        err = cut__shuffle(c, &child, aggregate->groups, aggregate->n_groups, &child);
    } else {
        err = cut__gather(c, &child, &child);
    }
    if (err == ERR_OK) {
        finish(c, node, &child, out);
    }
    return err;
}
