/*
 * Sieves: rows that will find no partner need not move.
 *
 * In a join by hash both sides move. If one turns out to be small, it is broadcast instead (cut_join.c), but not always:
 * its rows may have to come out once only, or the tasks of the join read partitions of others as well. The large side can
 * still be thinned out before it moves, by a stage between it and the join which keeps only rows whose keys are among those
 * of the small side. That stage, the sieve, is a join with a choice of its own: if the small side is small indeed, it takes
 * in the large side's SQL, so that a scan leaves out what nobody wants (refine.h). If it is not, the sieve is taken out
 * again, and its readers read the large side itself: PHYSICAL_SIEVE at the end of its SQL says that this may be done.
 *
 * Only for sides of which a row without a partner yields nothing (join.h), and by keys that are plain columns.
 */
#include <math.h>
#include <string.h>

#include "query/cut_internal.h"
#include "query/unparse.h"

/* A side that is smaller than this part of what may be broadcast may as well move. */
#define SIEVE_SHARE_MIN (1.0 / 8)

/* Beyond so many times the limit for broadcasts, the estimate of the small side is believed. */
#define SIEVE_DOUBT 8

/* Where a join's column comes from: not from a side whose rows may be missing, so that it is NULL. */
static const struct plan_node *step_into_join(const struct plan_node *node, uint32_t *column)
{
    const struct join *join = node->as.join;
    if (*column < join->n_left) {
        *column = join->left_map[*column];
        return join->type == JOIN_RIGHT || join->type == JOIN_FULL ? NULL : node->children[0];
    }
    if (join->type == JOIN_INNER || join->type == JOIN_RIGHT) {
        *column = join->right_map[*column - join->n_left];
        return node->children[1];
    }
    return NULL;
}

/* The child that a column comes from, and which one it is there; NULL if it may have values that no child has. */
static const struct plan_node *step_down(const struct plan_node *node, uint32_t *column)
{
    const struct expression *made = NULL;
    if (node->kind == NODE_JOIN) {
        return step_into_join(node, column);
    }
    if (node->kind == NODE_FILTER || node->kind == NODE_DISTINCT) {
        const uint32_t *map = node->kind == NODE_FILTER ? node->as.filter.map : NULL;
        *column = map == NULL ? *column : map[*column];
        return node->children[0];
    }
    if (node->kind == NODE_PROJECTION) {
        made = node->as.projection.expressions[*column];
    } else if (node->kind == NODE_AGGREGATE && node->as.aggregate->n_sets <= 1 &&
               *column < node->as.aggregate->n_groups) {
        made = node->as.aggregate->groups[*column];
    }
    if (made == NULL || made->kind != EXPRESSION_REF) {
        return NULL;
    }
    *column = made->as.index;
    return node->children[0];
}

const struct plan_node *cut__find_source(const struct plan_node *node, uint32_t *column)
{
    while (node != NULL && node->kind != NODE_INPUT && node->kind != NODE_SCAN) {
        node = step_down(node, column);
    }
    return node;
}

/* Whether the stage spreads its rows by exactly these columns. */
static bool is_spread_by(struct cutter *c, const struct physical_stage *stage, const struct plan_node *node,
                         const uint32_t *columns, uint32_t n)
{
    bool is_same = stage->output.exchange == EXCHANGE_HASH && stage->output.n_keys == n;
    for (uint32_t i = 0; i < n && is_same; i++) {
        struct buf text = {0};
        struct expression *ref = expression_ref(c->arena, columns[i], node->columns[columns[i]]);
        is_same = unparse_expression(&text, ref, NULL, c->e) == ERR_OK && strcmp(text.data, stage->output.keys[i]) == 0;
        buf_deinit(&text);
    }
    return is_same;
}

/* What the keys of a large side are compared with. */
struct small_side {
    const struct plan_node *input; /* of the fragment that it was found in */
    uint32_t stage;
    uint32_t *columns; /* one for each key */
};

/* The rows of one stage, spread as the join is, among which all values of the keys are. */
static bool find_small(struct cutter *c, const struct plan_node *other, const uint32_t *columns, uint32_t n,
                       struct small_side *out)
{
    out->columns = arena_copy(c->arena, columns, n * sizeof *columns);
    out->input = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_node *source = cut__find_source(other, &out->columns[i]);
        if (source == NULL || source->kind != NODE_INPUT || (i > 0 && source != out->input)) {
            return false;
        }
        out->input = source;
    }
    if (out->input == NULL || cut__is_whole(c, out->input)) {
        return false;
    }
    out->stage = cut__stage_of(c, out->input);
    return is_spread_by(c, &c->stages[out->stage], out->input, out->columns, n);
}

/* A semi join: rows of `left` whose keys are among those of `right`. */
static struct plan_node *make_semi_join(struct cutter *c, const struct join_keys *keys, struct plan_node *left,
                                        struct plan_node *right, const uint32_t *right_columns)
{
    struct join *join = arena_zalloc(c->arena, sizeof *join);
    struct plan_node *node = arena_zalloc(c->arena, sizeof *node);
    struct plan_node *children[] = {left, right};
    join->type = JOIN_SEMI;
    join->n_conditions = keys->n;
    join->conditions = arena_zalloc(c->arena, keys->n * sizeof *join->conditions);
    for (uint32_t i = 0; i < keys->n; i++) {
        uint32_t from = keys->large[i];
        uint32_t to = right_columns[i];
        join->conditions[i] = (struct join_condition){.left = expression_ref(c->arena, from, left->columns[from]),
                                                      .right = expression_ref(c->arena, to, right->columns[to]),
                                                      .comparison = keys->comparisons[i]};
    }
    join->n_left = left->n_columns;
    join->left_map = arena_zalloc(c->arena, join->n_left * sizeof *join->left_map);
    for (uint32_t i = 0; i < join->n_left; i++) {
        join->left_map[i] = i;
    }
    *node = (struct plan_node){.kind = NODE_JOIN, .n_children = 2, .n_columns = left->n_columns, .rows_estimated = -1};
    node->columns = left->columns;
    node->children = arena_copy(c->arena, children, sizeof children);
    node->as.join = join;
    return node;
}

enum err cut__sieve(struct cutter *c, struct fragment *large, const struct join_keys *keys,
                    const struct plan_node *other, double bytes_max)
{
    struct small_side small;
    if (c->broadcast_bytes <= 0 || large->node->kind != NODE_INPUT || keys->large == NULL || keys->other == NULL ||
        !find_small(c, other, keys->other, keys->n, &small)) {
        return ERR_OK;
    }
    uint32_t from = cut__stage_of(c, large->node);
    const struct physical_estimate *estimate = &c->stages[small.stage].estimate;
    double bytes = estimate->bytes < 0 ? INFINITY : estimate->bytes;
    bool is_large = cut__bytes(large) >= c->broadcast_bytes * SIEVE_SHARE_MIN && bytes <= cut__bytes(large) / 2;
    bool is_worth = isinf(c->broadcast_bytes) || (is_large && bytes <= bytes_max * SIEVE_DOUBT);
    /* A side that reads other stages has been joined already, often with the very keys. */
    if (!is_worth || c->stages[from].n_inputs > 0) {
        return ERR_OK;
    }
    struct fragment sieve = *large;
    struct fragment_choice choice = {.small = small.stage, .large = from, .bytes_max = bytes_max};
    struct plan_node *again = cut__read(c, small.stage, small.input, false);
    sieve.node = make_semi_join(c, keys, large->node, again, small.columns);
    sieve.choice = &choice;
    if (estimate->rows >= 0 && (sieve.rows < 0 || sieve.rows > estimate->rows)) {
        sieve.rows = estimate->rows;
    }
    struct expression **refs = arena_zalloc(c->arena, keys->n * sizeof *refs);
    for (uint32_t i = 0; i < keys->n; i++) {
        refs[i] = expression_ref(c->arena, keys->large[i], sieve.node->columns[keys->large[i]]);
    }
    enum err err = cut__shuffle(c, &sieve, refs, keys->n, large);
    if (err == ERR_OK) {
        struct physical_stage *stage = &c->stages[cut__stage_of(c, large->node)];
        ASSERT(stage->choice.is_open);
        stage->sql = arena_format(c->arena, "%s" PHYSICAL_SIEVE, stage->sql);
    }
    return err;
}

enum err cut__settle_choice(struct cutter *c, struct fragment *f)
{
    const struct fragment_choice *choice = f->choice;
    f->choice = NULL;
    if (choice == NULL || !choice->drops_large) {
        return ERR_OK;
    }
    struct plan_node **large = &choice->join->children[choice->is_large_left ? 0 : 1];
    struct plan_node *small = choice->join->children[choice->is_large_left ? 1 : 0];
    struct fragment side = {.node = *large,
                            .spread = SPREAD_HASH,
                            .reads_partitions = true,
                            .rows = choice->large_rows,
                            .rows_max = choice->large_rows_max};
    enum err err = cut__sieve(c, &side, &choice->keys, small, choice->bytes_max);
    if (err == ERR_OK) {
        *large = side.node;
    }
    return err;
}
