/*
 * Delim joins that need not be any.
 *
 * DuckDB writes `EXISTS (SELECT ... FROM x WHERE x.k = l.k)` as a semi join of l with x, which has been joined with the
 * distinct keys of l before, so that less of x is worked on. The distinct keys find exactly their own rows again, so that
 * is the same as a semi join of l and x by what x was joined by. Where rows of both are at the same task already, there is
 * nothing to be gained by doing it twice.
 */
#include "query/cut_internal.h"

/* The node below projections, and which column of it the column is; NULL if it is computed. */
static const struct plan_node *below_projections(const struct plan_node *node, uint32_t *column)
{
    while (node->kind == NODE_PROJECTION) {
        const struct expression *made = node->as.projection.expressions[*column];
        if (made->kind != EXPRESSION_REF) {
            return NULL;
        }
        *column = made->as.index;
        node = node->children[0];
    }
    return node;
}

/* The join of x with the distinct keys. */
struct inner {
    const struct plan_node *node;
    uint32_t gets_side; /* where these are */
};

/* Only equalities, and one for each key; any comparison counts as one if a test wants that. */
static bool is_by_keys(struct cutter *c, const struct plan_node *node, const struct join *outer, struct inner *out)
{
    if (node->kind != NODE_JOIN) {
        return false;
    }
    const struct join *join = node->as.join;
    *out = (struct inner){.node = node, .gets_side = node->children[0]->kind == NODE_DELIM_GET ? 0 : 1};
    const struct plan_node *gets = node->children[out->gets_side];
    bool is_right = join->type == JOIN_INNER && !join->is_asof && !join->is_delim && join->residual == NULL &&
                    join->n_conditions == outer->n_keys && gets->kind == NODE_DELIM_GET &&
                    gets->as.delim_get.delim_id == outer->delim_id;
    for (uint32_t i = 0; i < join->n_conditions && is_right; i++) {
        const struct join_condition *condition = &join->conditions[i];
        const struct expression *get = out->gets_side == 0 ? condition->left : condition->right;
        is_right = get->kind == EXPRESSION_REF &&
                   (condition->comparison == COMPARE_EQUAL || condition->comparison == COMPARE_NOT_DISTINCT ||
                    cut__is_planted(c, NODE_DELIM_GET));
    }
    return is_right;
}

/* The condition by which x is joined with key number `key`; NULL if there is not one. */
static const struct join_condition *find_condition(const struct inner *inner, uint32_t key)
{
    const struct join_condition *found = NULL;
    const struct join *join = inner->node->as.join;
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        const struct join_condition *condition = &join->conditions[i];
        const struct expression *get = inner->gets_side == 0 ? condition->left : condition->right;
        if (get->as.index == key) {
            if (found != NULL) {
                return NULL;
            }
            found = condition;
        }
    }
    return found;
}

/* Which key a column of the inner join is: it may also be the column of x that equals it. Keys if it is none. */
static uint32_t key_of(const struct inner *inner, uint32_t column, uint32_t n_keys)
{
    const struct join *join = inner->node->as.join;
    uint32_t side = column < join->n_left ? 0 : 1;
    uint32_t at = side == 0 ? join->left_map[column] : join->right_map[column - join->n_left];
    if (side == inner->gets_side) {
        return at;
    }
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        const struct join_condition *condition = &join->conditions[i];
        const struct expression *x = inner->gets_side == 0 ? condition->right : condition->left;
        const struct expression *get = inner->gets_side == 0 ? condition->left : condition->right;
        if (x->kind == EXPRESSION_REF && x->as.index == at && condition->comparison == COMPARE_EQUAL) {
            return get->as.index;
        }
    }
    return n_keys;
}

/* The inner join, if all conditions of the outer one compare a key with itself, and each key is compared. */
static bool find_inner(struct cutter *c, const struct plan_node *node, struct inner *out)
{
    const struct join *outer = node->as.join;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < outer->n_conditions; i++) {
        const struct join_condition *condition = &outer->conditions[i];
        const struct expression *right = condition->right;
        uint32_t column = right->kind == EXPRESSION_REF ? right->as.index : 0;
        const struct plan_node *below =
            right->kind == EXPRESSION_REF ? below_projections(node->children[1], &column) : NULL;
        if (condition->comparison != COMPARE_NOT_DISTINCT || below == NULL || !is_by_keys(c, below, outer, out)) {
            return false;
        }
        uint32_t key = key_of(out, column, outer->n_keys);
        if (key >= outer->n_keys || !expression_equal(condition->left, outer->keys[key])) {
            return false;
        }
        seen |= UINT64_C(1) << key;
    }
    return seen == (UINT64_C(1) << outer->n_keys) - 1;
}

struct plan_node *cut__without_delim(struct cutter *c, const struct plan_node *node)
{
    const struct join *outer = node->as.join;
    struct inner inner = {0};
    bool is_kind = (outer->type == JOIN_SEMI || outer->type == JOIN_ANTI) && outer->delim_side == 0 &&
                   outer->residual == NULL && !outer->is_asof && outer->n_keys > 0 && outer->n_keys < 64 &&
                   outer->n_conditions == outer->n_keys && cut__count_gets(node->children[1], outer->delim_id) == 1;
    if (!is_kind || !find_inner(c, node, &inner)) {
        return NULL;
    }
    struct plan_node *children[2] = {node->children[0], inner.node->children[1 - inner.gets_side]};
    struct plan_node *plain = plan_node_with_children(c->arena, node, children, 2);
    struct join *join = plain->as.join;
    join->is_delim = false;
    join->conditions = arena_zalloc(c->arena, outer->n_keys * sizeof *join->conditions);
    for (uint32_t i = 0; i < outer->n_keys; i++) {
        const struct join_condition *condition = find_condition(&inner, i);
        if (condition == NULL) {
            return NULL;
        }
        join->conditions[i] = (struct join_condition){
            .left = outer->keys[i],
            .right = inner.gets_side == 0 ? condition->right : condition->left,
            .comparison = cut__is_planted(c, NODE_DELIM_GET) ? outer->conditions[i].comparison : condition->comparison};
    }
    return plain;
}
