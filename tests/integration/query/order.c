#include "query/order.h"

bool order_is_given(const struct plan_node *root)
{
    const struct plan_node *node = root;
    while (node != NULL) {
        if (node->kind == NODE_ORDER || node->kind == NODE_TOP_N) {
            return true;
        }
        bool goes_on = node->kind == NODE_PROJECTION || node->kind == NODE_LIMIT || node->kind == NODE_CTE;
        node = goes_on ? node->children[node->n_children - 1] : NULL;
    }
    return false;
}
