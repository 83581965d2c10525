/* plan_read_join.c - joins out of a plan's JSON. */
#include <string.h>

#include "query/plan_read_internal.h"

static const struct {
    const char *name;
    enum join_type type;
    bool is_turned; /* the sides are to be exchanged */
} join_types[] = {
    {"INNER", JOIN_INNER, false},    {"LEFT", JOIN_LEFT, false},      {"RIGHT", JOIN_RIGHT, false},
    {"FULL", JOIN_FULL, false},      {"OUTER", JOIN_FULL, false},     {"SEMI", JOIN_SEMI, false},
    {"ANTI", JOIN_ANTI, false},      {"MARK", JOIN_MARK, false},      {"SINGLE", JOIN_SINGLE, false},
    {"RIGHT_SEMI", JOIN_SEMI, true}, {"RIGHT_ANTI", JOIN_ANTI, true},
};

static bool read_type(struct plan_reader *r, const struct json *json, struct join *join, bool *out_is_turned)
{
    const char *name = plan__text(r, json, "join_type");
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(join_types); i++) {
        if (strcmp(join_types[i].name, name) == 0) {
            join->type = join_types[i].type;
            *out_is_turned = join_types[i].is_turned;
            return true;
        }
    }
    (void)plan__unsupported(r, "the join type %s", name != NULL ? name : "without a name");
    return false;
}

static bool read_conditions(struct plan_reader *r, const struct json *array, const struct relation *children,
                            struct join *join)
{
    size_t n = json_count(array);
    struct input left = plan__input(&children[0]);
    struct input right = plan__input(&children[1]);
    join->conditions = arena_zalloc(r->arena, n * sizeof(*join->conditions));
    join->n_conditions = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const struct json *condition = json_at(array, i);
        join->conditions[i].left = plan__expression(r, json_get(condition, "left"), &left);
        join->conditions[i].right = plan__expression(r, json_get(condition, "right"), &right);
        if (r->err != ERR_OK ||
            !plan__comparison(r, json_text(json_get(condition, "comparison"), NULL), &join->conditions[i].comparison)) {
            return false;
        }
    }
    return true;
}

/*
 * A condition over both sides refers to the join's output, and after the left columns of a SEMI or ANTI join, which
 * outputs no right ones, to all columns of the right child.
 */
static bool read_residual(struct plan_reader *r, const struct json *json, const struct relation *children,
                          struct join *join)
{
    if (json == NULL) {
        return true;
    }
    bool has_all = join->type == JOIN_SEMI || join->type == JOIN_ANTI;
    uint32_t n_left = children[0].node->n_columns;
    uint32_t n_right = has_all ? children[1].node->n_columns : join->n_right;
    uint32_t *map = arena_alloc(r->arena, (join->n_left + n_right) * sizeof(*map));
    for (uint32_t i = 0; i < join->n_left; i++) {
        map[i] = join->left_map[i];
    }
    for (uint32_t i = 0; i < n_right; i++) {
        map[join->n_left + i] = n_left + (has_all ? i : join->right_map[i]);
    }
    struct input input = {.n = join->n_left + n_right, .map = map};
    join->residual = plan__expression(r, json, &input);
    return join->residual != NULL;
}

static void swap_sides(struct join *join, struct plan_node *node)
{
    struct plan_node *child = node->children[0];
    node->children[0] = node->children[1];
    node->children[1] = child;
    uint32_t *map = join->left_map;
    uint32_t n = join->n_left;
    join->left_map = join->right_map;
    join->n_left = join->n_right;
    join->right_map = map;
    join->n_right = n;
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        struct join_condition *condition = &join->conditions[i];
        struct expression *left = condition->left;
        condition->left = condition->right;
        condition->right = left;
        condition->comparison = comparison_flip(condition->comparison);
    }
    join->delim_side = 1 - join->delim_side;
}

/* `left` and `right` are the sides as the tree has them. */
static void name_columns(struct plan_reader *r, const struct json *json, const struct relation *left,
                         const struct relation *right, struct relation *self)
{
    const struct join *join = self->node->as.join;
    bool has_right = join->type != JOIN_SEMI && join->type != JOIN_ANTI && join->type != JOIN_MARK;
    uint32_t n = join->n_left + (has_right ? join->n_right : 0) + (join->type == JOIN_MARK ? 1 : 0);
    plan__set_columns(r, self, n);
    for (uint32_t i = 0; i < join->n_left; i++) {
        self->node->columns[i] = left->node->columns[join->left_map[i]];
        self->bindings[i] = left->bindings[join->left_map[i]];
    }
    for (uint32_t i = 0; has_right && i < join->n_right; i++) {
        self->node->columns[join->n_left + i] = right->node->columns[join->right_map[i]];
        self->bindings[join->n_left + i] = right->bindings[join->right_map[i]];
    }
    if (join->type == JOIN_MARK) {
        self->node->columns[n - 1] = type_plain(TYPE_BOOLEAN);
        self->bindings[n - 1] = (struct binding){.table = plan__u64(r, json, "mark_index")};
    }
}

bool plan__join(struct plan_reader *r, const struct json *json, const struct relation *children, struct relation *self)
{
    struct join *join = self->node->as.join;
    const char *kind = plan__text(r, json, "type");
    bool is_turned = false;
    join->is_asof = strcmp(kind, "LOGICAL_ASOF_JOIN") == 0;
    join->left_map = plan__map(r, json_get(json, "left_projection_map"), children[0].node->n_columns, &join->n_left);
    join->right_map = plan__map(r, json_get(json, "right_projection_map"), children[1].node->n_columns, &join->n_right);
    if (r->err != ERR_OK || !read_type(r, json, join, &is_turned) ||
        !read_conditions(r, json_get(json, "conditions"), children, join)) {
        return false;
    }
    const struct json *residual = json_get(json, strcmp(kind, "LOGICAL_ANY_JOIN") == 0 ? "condition" : "predicate");
    if (is_turned && residual != NULL) {
        (void)plan__unsupported(r, "a condition over both sides of a right semi join");
        return false;
    }
    if (!read_residual(r, residual, children, join)) {
        return false;
    }
    if (join->is_delim) {
        struct input input = plan__input(&children[join->delim_side]);
        join->keys = plan__expressions(r, json_get(json, "duplicate_eliminated_columns"), &input, &join->n_keys);
        if (join->keys == NULL) {
            return false;
        }
    }
    if (is_turned) {
        swap_sides(join, self->node);
    }
    name_columns(r, json, &children[is_turned ? 1 : 0], &children[is_turned ? 0 : 1], self);
    return r->err == ERR_OK;
}
