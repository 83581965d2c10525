/*
 * plan_json.c - any bytes as the plan that DuckDB writes.
 *
 * Promises: what is refused comes with a reason, and no tree; what is read is a tree within the limits in which every node
 * has as many columns as it has types, and it can be written as SQL, or there is a reason why not.
 */
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/limits.h"
#include "fuzz/fuzz.h"
#include "query/plan_read.h"
#include "query/unparse.h"

struct counted {
    uint32_t n_nodes;
};

static bool check_expression(struct expression **slot, void *context)
{
    UNUSED(context);
    const struct expression *expression = *slot;
    ASSERT(expression->kind < N_EXPRESSION_KINDS);
    ASSERT(expression->type != NULL);
    for (uint32_t i = 0; i < expression->n_args; i++) {
        ASSERT(expression->args[i] != NULL);
    }
    return true;
}

static bool check_node(struct plan_node *node, void *context)
{
    struct counted *counted = context;
    counted->n_nodes++;
    ASSERT(node->kind < N_NODE_KINDS);
    ASSERT(node_kind_name(node->kind) != NULL);
    for (uint32_t i = 0; i < node->n_columns; i++) {
        ASSERT(node->columns[i] != NULL);
    }
    plan_node_visit_expressions(node, check_expression, NULL);
    return true;
}

static void check_copy(struct arena *arena, struct plan_node *root)
{
    struct buf first = {0};
    struct buf second = {0};
    struct error e = {0};
    enum err err = unparse_node(&first, root, &e);
    ASSERT((err == ERR_OK) == (e.message[0] == '\0'));
    ASSERT(unparse_node(&second, plan_node_copy(arena, root), NULL) == err);
    ASSERT(first.n == second.n);
    ASSERT(first.n == 0 || memcmp(first.data, second.data, first.n) == 0);
    buf_deinit(&first);
    buf_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct arena arena = {0};
    struct error e = {0};
    struct plan_node *root = NULL;
    if (plan_read((const char *)bytes, n, &arena, &root, &e) != ERR_OK) {
        ASSERT(root == NULL);
        ASSERT(e.message[0] != '\0');
    } else {
        struct counted counted = {0};
        plan_visit(root, check_node, &counted);
        ASSERT(counted.n_nodes <= LIMIT_PLAN_ITEMS);
        check_copy(&arena, root);
    }
    arena_deinit(&arena);
    return 0;
}
