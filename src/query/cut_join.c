/*
 * Joins. By the table of join.h, a side may be replicated, or both are spread by the keys of the equalities. If they are
 * so where they are read (cut_range.c), nothing moves.
 *
 * A side that is certainly small is broadcast; one that is certainly large is spread by its keys. In between, estimates
 * are not to be trusted: both sides are planned to be spread, but the reader is marked so that, once the smaller side has
 * been written, it can still be read as a whole, and the other side stay where it is (refine.h).
 *
 * Small means small beside the other side, too. A side of b bytes that is broadcast costs each slot b; spread by their
 * keys, the two cost each slot a part of both. So b times all slots but one must not be more than the other side.
 */
#include <math.h>

#include "query/cut_internal.h"

/* Beyond so many times the limit for broadcasts, an estimate is believed. */
#define ESTIMATE_DOUBT 32

/* Up to this a broadcast is cheaper than one more stage, whatever the other side is like. */
#define BROADCAST_ALWAYS_BYTES (2.0 * 1024 * 1024)

/* An estimate is believed as well if it cannot be off by more than this. */
#define BROADCAST_CERTAIN_BYTES (32.0 * 1024 * 1024)

struct join_sides {
    struct plan_node *node;
    const struct join *join; /* NULL for a cross product */
    const struct join_rule *rule;
    struct fragment left;
    struct fragment right;
    uint32_t n_keys; /* the equalities */
    struct expression **left_keys;
    struct expression **right_keys;
    enum comparison *comparisons;
    bool is_delim_here; /* it remains a delim join */
};

static void find_keys(struct cutter *c, struct join_sides *s)
{
    uint32_t n = s->join == NULL ? 0 : s->join->n_conditions;
    s->left_keys = arena_zalloc(c->arena, n * sizeof *s->left_keys);
    s->right_keys = arena_zalloc(c->arena, n * sizeof *s->right_keys);
    s->comparisons = arena_zalloc(c->arena, n * sizeof *s->comparisons);
    for (uint32_t i = 0; i < n; i++) {
        const struct join_condition *condition = &s->join->conditions[i];
        if (condition->comparison == COMPARE_EQUAL || condition->comparison == COMPARE_NOT_DISTINCT) {
            s->left_keys[s->n_keys] = condition->left;
            s->comparisons[s->n_keys] = condition->comparison;
            s->right_keys[s->n_keys++] = condition->right;
        }
    }
}

/* Where the left or right child's columns are in the join's output. */
static uint32_t *output_map(struct cutter *c, const struct join_sides *s, bool is_left)
{
    const struct fragment *side = is_left ? &s->left : &s->right;
    uint32_t n = side->node->n_columns;
    uint32_t offset = is_left ? 0 : s->join == NULL ? s->left.node->n_columns : s->join->n_left;
    uint32_t *map = NULL;
    if (s->join == NULL) {
        map = arena_zalloc(c->arena, n * sizeof *map);
        for (uint32_t i = 0; i < n; i++) {
            map[i] = i + offset;
        }
        return map;
    }
    bool is_gone = !is_left && (s->join->type == JOIN_SEMI || s->join->type == JOIN_ANTI || s->join->type == JOIN_MARK);
    map = is_left ? cut__invert(c, s->join->left_map, s->join->n_left, n)
                  : cut__invert(c, s->join->right_map, is_gone ? 0 : s->join->n_right, n);
    for (uint32_t i = 0; i < n && !is_left; i++) {
        map[i] = map[i] == PLAN_NO_COLUMN ? PLAN_NO_COLUMN : map[i] + offset;
    }
    return map;
}

static double product(double a, double b)
{
    return a == 0 || b == 0 ? 0 : a * b; /* one of them may be INFINITY */
}

static double rows_max_of(const struct join_sides *s)
{
    double left = s->left.rows_max;
    double right = s->right.rows_max;
    switch (s->join == NULL ? JOIN_INNER : s->join->type) {
    case JOIN_SEMI:
    case JOIN_ANTI:
    case JOIN_MARK:
    case JOIN_SINGLE:
        return left;
    case JOIN_INNER:
        return product(left, right);
    case JOIN_LEFT:
        return product(left, fmax(right, 1));
    case JOIN_RIGHT:
        return product(right, fmax(left, 1));
    case JOIN_FULL:
        return product(left, right) + left + right;
    }
    ASSERT(false);
    return INFINITY;
}

/* DuckDB's estimate; else as if the smaller side had one match for each row of the larger one. */
static double rows_of(const struct join_sides *s)
{
    enum join_type type = s->join == NULL ? JOIN_INNER : s->join->type;
    if (s->node->rows_estimated >= 0) {
        return s->node->rows_estimated * cut__correction(&s->left) * cut__correction(&s->right);
    }
    if (type == JOIN_SEMI || type == JOIN_ANTI || type == JOIN_MARK || type == JOIN_SINGLE) {
        return s->left.rows;
    }
    if (s->left.rows < 0 || s->right.rows < 0) {
        return -1;
    }
    return s->join == NULL ? s->left.rows * s->right.rows
                           : (s->left.rows > s->right.rows ? s->left.rows : s->right.rows);
}

/* The join over its sides as they are now. Spread and tasks are those of `main`, by the columns that come out. */
static void finish(struct cutter *c, const struct join_sides *s, const struct fragment *main, struct fragment *out)
{
    struct plan_node *children[2] = {s->left.node, s->right.node};
    struct plan_node *node = plan_node_with_children(c->arena, s->node, children, 2);
    if (node->kind == NODE_JOIN && !s->is_delim_here) {
        node->as.join->is_delim = false;
    }
    *out = *main;
    out->node = node;
    out->rows = rows_of(s);
    out->rows_max = rows_max_of(s);
    if (main->spread == SPREAD_HASH) {
        bool is_left = main == &s->left;
        uint32_t *map = output_map(c, s, is_left);
        cut__set_hashed(out, cut__remap_keys(c, main->keys, map, main->node->n_columns));
    }
}

static bool is_hashed_on(const struct fragment *f, const uint32_t *columns, uint32_t n)
{
    bool is_hashed = f->spread == SPREAD_HASH && f->ranges == NULL;
    for (const struct key_set *set = is_hashed ? f->keys : NULL; set != NULL && columns != NULL; set = set->next) {
        bool is_same = set->n == n;
        for (uint32_t i = 0; i < n && is_same; i++) {
            is_same = set->columns[i] == columns[i];
        }
        if (is_same) {
            return true;
        }
    }
    return false;
}

/* Up to which size a side may be broadcast beside the other. */
static double broadcast_max(const struct cutter *c, const struct fragment *other)
{
    double slots = c->options->slots > 2 ? (double)c->options->slots : 2;
    double share = cut__bytes(other) / (slots - 1);
    double always = cut__size(c, BROADCAST_ALWAYS_BYTES);
    double enough = share > always ? share : always;
    return isinf(c->broadcast_bytes) || enough > c->broadcast_bytes ? c->broadcast_bytes : enough;
}

/* Whether a side is small enough to be broadcast beside the other: for sure, or by an estimate that can do little harm. */
static bool is_small(const struct cutter *c, const struct fragment *side, const struct fragment *other)
{
    double max = broadcast_max(c, other);
    double most = cut__bytes_max(side);
    bool is_likely =
        cut__bytes(side) <= max / 2 && most <= cut__size(c, BROADCAST_CERTAIN_BYTES) && most <= c->broadcast_bytes;
    return most <= max || is_likely;
}

/* Which side could turn out to be small enough to be broadcast: 1 the right one, 0 the left one, -1 none. */
static int doubtful_side(const struct cutter *c, const struct join_sides *s)
{
    double limit = c->broadcast_bytes * ESTIMATE_DOUBT;
    double left = s->rule->may_replicate_left ? cut__bytes(&s->left) : INFINITY;
    double right = s->rule->may_replicate_right ? cut__bytes(&s->right) : INFINITY;
    bool may_right = s->rule->may_replicate_right && right <= limit;
    bool may_left = s->rule->may_replicate_left && left <= limit;
    if (c->broadcast_bytes <= 0) {
        return -1;
    }
    return may_right && (!may_left || right <= left) ? 1 : may_left ? 0 : -1;
}

/*
 * Whether a side that need not move is written all the same, because it is so small that the other side will probably not
 * have to move then.
 */
static bool is_worth_writing(const struct cutter *c, const struct fragment *small, bool may_replicate,
                             const struct fragment *large)
{
    return may_replicate && !isinf(c->broadcast_bytes) && cut__bytes(large) > cut__size(c, BROADCAST_ALWAYS_BYTES) &&
           cut__bytes(small) <= broadcast_max(c, large);
}

/* How a join by hash is done. */
struct hash_way {
    const uint32_t *left_columns; /* the keys; NULL: not all are columns */
    const uint32_t *right_columns;
    bool moves_left;
    bool moves_right;
    int small; /* 1: the right side may turn out to be small, 0: the left one, -1: neither, or it would not help */
    double bytes_max; /* what it may have then */
};

static struct hash_way find_way(struct cutter *c, const struct join_sides *s)
{
    struct hash_way way = {.left_columns = cut__ref_columns(c, s->left_keys, s->n_keys),
                           .right_columns = cut__ref_columns(c, s->right_keys, s->n_keys),
                           .small = -1};
    way.moves_left = !is_hashed_on(&s->left, way.left_columns, s->n_keys);
    way.moves_right = !is_hashed_on(&s->right, way.right_columns, s->n_keys);
    if (way.moves_left && !way.moves_right) {
        way.moves_right = is_worth_writing(c, &s->right, s->rule->may_replicate_right, &s->left);
    } else if (way.moves_right && !way.moves_left) {
        way.moves_left = is_worth_writing(c, &s->left, s->rule->may_replicate_left, &s->right);
    }
    if (way.moves_left && way.moves_right && !cut__is_one(&s->left) && !cut__is_one(&s->right)) {
        way.small = doubtful_side(c, s);
    }
    way.bytes_max = broadcast_max(c, way.small == 1 ? &s->left : &s->right);
    return way;
}

static struct join_keys keys_of(const struct join_sides *s, const struct hash_way *way, bool is_large_left)
{
    return (struct join_keys){.n = s->n_keys,
                              .large = is_large_left ? way->left_columns : way->right_columns,
                              .other = is_large_left ? way->right_columns : way->left_columns,
                              .comparisons = s->comparisons};
}

/* Ends the sides that have to move as stages. Those that stay do so in company of others, so they can no longer choose. */
static enum err move_sides(struct cutter *c, struct join_sides *s, const struct hash_way *way)
{
    enum err err = way->moves_left ? cut__shuffle(c, &s->left, s->left_keys, s->n_keys, &s->left)
                                   : cut__settle_choice(c, &s->left);
    if (err == ERR_OK) {
        err = way->moves_right ? cut__shuffle(c, &s->right, s->right_keys, s->n_keys, &s->right)
                               : cut__settle_choice(c, &s->right);
    }
    return err;
}

/* Thins out a side that has moved by the other one: the larger, if both could be. */
static enum err sieve_sides(struct cutter *c, struct join_sides *s, const struct hash_way *way)
{
    bool may_left = way->moves_left && s->rule->drops_left;
    bool may_right = way->moves_right && s->rule->drops_right;
    if (may_left && may_right) {
        may_left = cut__bytes(&s->left) >= cut__bytes(&s->right);
        may_right = !may_left;
    }
    if (!may_left && !may_right) {
        return ERR_OK;
    }
    struct fragment *large = may_left ? &s->left : &s->right;
    const struct fragment *other = may_left ? &s->right : &s->left;
    struct join_keys keys = keys_of(s, way, may_left);
    return cut__sieve(c, large, &keys, other->node, broadcast_max(c, large));
}

static const struct fragment_choice *make_choice(struct cutter *c, const struct join_sides *s,
                                                 const struct hash_way *way, struct plan_node *join, bool is_likely,
                                                 bool keeps_keys)
{
    struct fragment_choice *choice = arena_zalloc(c->arena, sizeof *choice);
    bool is_large_left = way->small == 1;
    const struct fragment *large = is_large_left ? &s->left : &s->right;
    *choice = (struct fragment_choice){
        .small = cut__stage_of(c, is_large_left ? s->right.node : s->left.node),
        .large = cut__stage_of(c, large->node),
        .bytes_max = way->bytes_max,
        .is_likely = is_likely,
        .keeps_keys = keeps_keys,
        .drops_large = is_large_left ? s->rule->drops_left : s->rule->drops_right,
        .is_large_left = is_large_left,
        .join = join,
        .keys = keys_of(s, way, is_large_left),
        .large_rows = large->rows,
        .large_rows_max = large->rows_max,
    };
    return choice;
}

/* Where rows of a key are after a join that has them together: in columns of the left side, of the right one, or both. */
static const struct key_set *keys_after(struct cutter *c, const struct join_sides *s, const uint32_t *left,
                                        const uint32_t *right, uint32_t n)
{
    const struct key_set *keys = NULL;
    uint32_t *map = output_map(c, s, true);
    if (s->rule->keeps_left && left != NULL) {
        keys = cut__remap_keys(c, cut__key_set(c, left, n, NULL), map, s->left.node->n_columns);
    }
    map = output_map(c, s, false);
    if (s->rule->keeps_right && right != NULL) {
        const struct key_set *more = cut__remap_keys(c, cut__key_set(c, right, n, NULL), map, s->right.node->n_columns);
        keys = more == NULL ? keys : cut__key_set(c, more->columns, more->n, keys);
    }
    return keys;
}

/* A pair of keys whose equal values are at the same task, or can be; -1 if there is none. */
static int find_meeting(struct cutter *c, struct join_sides *s)
{
    for (uint32_t i = 0; i < s->n_keys; i++) {
        const struct expression *left = s->left_keys[i];
        const struct expression *right = s->right_keys[i];
        if (left->kind == EXPRESSION_REF && right->kind == EXPRESSION_REF &&
            cut__meet(c, &s->left, left->as.index, &s->right, right->as.index)) {
            return (int)i;
        }
    }
    return -1;
}

static void join_where_they_are(struct cutter *c, const struct join_sides *s, int pair, struct fragment *out)
{
    uint32_t left = s->left_keys[pair]->as.index;
    uint32_t right = s->right_keys[pair]->as.index;
    finish(c, s, &s->left, out);
    cut__set_hashed(out, keys_after(c, s, &left, &right, 1));
}

/* Has the side that may not have to move read in ranges of its key, if that is one. */
static bool range_large(struct cutter *c, struct join_sides *s, const struct hash_way *way)
{
    bool is_large_left = way->small == 1;
    return way->small >= 0 && s->n_keys == 1 &&
           cut__find_range(c, is_large_left ? &s->left : &s->right, is_large_left ? s->left_keys : s->right_keys, 1) >=
               0;
}

static enum err join_by_hash(struct cutter *c, struct join_sides *s, struct fragment *out)
{
    struct hash_way way = find_way(c, s);
    bool keeps_keys = range_large(c, s, &way);
    bool is_likely = cut__bytes(way.small == 1 ? &s->right : &s->left) <= way.bytes_max;
    enum err err = move_sides(c, s, &way);
    if (err == ERR_OK && way.small < 0) {
        err = sieve_sides(c, s, &way);
    }
    if (err != ERR_OK) {
        return err;
    }
    const struct key_set *keys = keys_after(c, s, way.left_columns, way.right_columns, s->n_keys);
    finish(c, s, &s->left, out);
    cut__set_hashed(out, keys);
    out->reads_partitions = true;
    out->has_splits = false;
    out->ranges = NULL;
    out->choice = way.small < 0 ? NULL : make_choice(c, s, &way, out->node, is_likely, keeps_keys);
    return ERR_OK;
}

/* Sends the right side (or the left one) to all tasks of the other. */
static enum err join_by_broadcast(struct cutter *c, struct join_sides *s, bool is_right, struct fragment *out)
{
    struct fragment *small = is_right ? &s->right : &s->left;
    enum err err = cut__broadcast(c, small, small);
    if (err == ERR_OK) {
        finish(c, s, is_right ? &s->left : &s->right, out);
    }
    return err;
}

static enum err join_in_one_task(struct cutter *c, struct join_sides *s, struct fragment *out)
{
    enum err err = cut__gather(c, &s->left, &s->left);
    if (err == ERR_OK) {
        err = cut__gather(c, &s->right, &s->right);
    }
    if (err == ERR_OK) {
        finish(c, s, &s->left, out);
    }
    return err;
}

static enum err join_sides(struct cutter *c, struct join_sides *s, struct fragment *out)
{
    const struct join_rule *rule = s->rule;
    if (cut__is_one(&s->left) && cut__is_one(&s->right)) {
        finish(c, s, s->left.spread == SPREAD_SINGLE ? &s->left : &s->right, out);
        return ERR_OK;
    }
    if (plan_node_is_volatile(s->node)) { /* each task would have values of its own for the same row */
        return join_in_one_task(c, s, out);
    }
    if (s->right.spread == SPREAD_REPLICATED && rule->may_replicate_right) {
        finish(c, s, &s->left, out);
        return ERR_OK;
    }
    if (s->left.spread == SPREAD_REPLICATED && rule->may_replicate_left) {
        finish(c, s, &s->right, out);
        return ERR_OK;
    }
    bool may_hash = join_may_hash(rule, s->join);
    int meeting = may_hash ? find_meeting(c, s) : -1;
    if (meeting >= 0) {
        join_where_they_are(c, s, meeting, out);
        return ERR_OK;
    }
    bool wants_right = rule->may_replicate_right && (is_small(c, &s->right, &s->left) || !may_hash);
    bool wants_left = rule->may_replicate_left && (is_small(c, &s->left, &s->right) || !may_hash);
    if (wants_right && wants_left && !cut__is_one(&s->left) && !cut__is_one(&s->right)) {
        return join_by_broadcast(c, s, cut__bytes(&s->right) <= cut__bytes(&s->left), out);
    }
    if (wants_right && !cut__is_one(&s->left)) {
        return join_by_broadcast(c, s, true, out);
    }
    if (wants_left && !cut__is_one(&s->right)) {
        return join_by_broadcast(c, s, false, out);
    }
    if (may_hash) {
        return join_by_hash(c, s, out);
    }
    return join_in_one_task(c, s, out);
}

/* Both sides are where they are read, and have all that belongs there: the delim join's keys, too, of which there are n. */
static bool join_here(struct cutter *c, struct join_sides *s, uint32_t n_gets, struct fragment *out)
{
    find_keys(c, s);
    int meeting = find_meeting(c, s);
    if (meeting >= 0) {
        join_where_they_are(c, s, meeting, out);
    }
    return meeting >= 0 && cut__count_gets(out->node, s->join->delim_id) == n_gets;
}

/* As a plain join. */
static bool join_without_delim(struct cutter *c, const struct join_sides *from, const struct fragment *keys,
                               struct fragment *out)
{
    struct join_sides s = *from;
    s.node = cut__without_delim(c, from->node);
    if (s.node == NULL) {
        return false;
    }
    s.join = s.node->as.join;
    s.left = *keys;
    return cut__node(c, s.node->children[1], &s.right) == ERR_OK && join_here(c, &s, 0, out);
}

/* As it is: its key side is in ranges of a key, or can be. */
static bool join_with_delim(struct cutter *c, const struct join_sides *from, const struct fragment *keys,
                            struct fragment *out)
{
    struct join_sides s = *from;
    struct fragment side = *keys;
    uint32_t n_gets = cut__count_gets(s.node->children[1 - s.join->delim_side], s.join->delim_id);
    int key = cut__find_range(c, &side, s.join->keys, s.join->n_keys);
    s.is_delim_here = true;
    return key >= 0 && cut__delim_sides_here(c, s.node, &side, (uint32_t)key, &s.left, &s.right) == ERR_OK &&
           join_here(c, &s, n_gets, out);
}

/* Tries in tries, as of subqueries in subqueries, would double with every level. */
#define DELIM_TRIES_MAX 32

/* A delim join where its rows are read, if nothing in between has to move. */
static bool join_delim_here(struct cutter *c, const struct join_sides *s, const struct fragment *keys,
                            struct fragment *out)
{
    struct cut_mark mark = cut__mark(c);
    bool may_be = join_may_hash(s->rule, s->join) && c->n_delim_tries++ < DELIM_TRIES_MAX;
    if (may_be && join_without_delim(c, s, keys, out)) {
        return true;
    }
    cut__return_to(c, &mark);
    if (may_be && join_with_delim(c, s, keys, out)) {
        return true;
    }
    cut__return_to(c, &mark);
    *c->e = (struct error){0};
    return false;
}

static enum err join_delim(struct cutter *c, struct join_sides *s, struct fragment *out)
{
    struct fragment keys;
    enum err err = cut__node(c, s->node->children[s->join->delim_side], &keys);
    if (err != ERR_OK || join_delim_here(c, s, &keys, out)) {
        return err;
    }
    err = cut__delim_sides(c, s->node, &keys, &s->left, &s->right);
    if (err == ERR_OK) {
        find_keys(c, s);
        err = join_sides(c, s, out);
    }
    return err;
}

enum err cut__join(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct join_sides s = {.node = node, .join = node->kind == NODE_JOIN ? node->as.join : NULL};
    s.rule = join_rule_of(c->join_rules, s.join);
    if (s.join != NULL && s.join->is_delim) {
        return join_delim(c, &s, out);
    }
    enum err err = cut__node(c, node->children[0], &s.left);
    if (err == ERR_OK) {
        err = cut__node(c, node->children[1], &s.right);
    }
    if (err == ERR_OK) {
        find_keys(c, &s);
        err = join_sides(c, &s, out);
    }
    return err;
}
