#include "query/join_filter.h"

#include <string.h>

#include "base/check.h"

bool join_filter_changes(const struct plan_node *node)
{
    return node->kind == NODE_TOP_N || node->kind == NODE_LIMIT ||
           (node->kind == NODE_DISTINCT && node->as.distinct.is_on) ||
           (node->kind == NODE_SCAN && node->as.scan->has_kinds && node->as.scan->split.files == NULL);
}

/*
 * One group has no keys to filter by; most LIMITs that DuckDB makes of subqueries itself are below such. All else counts as
 * open: a window, say, may be replaced by groups before filters are handed out.
 */
bool join_filter_passes(const struct plan_node *node)
{
    return node->kind != NODE_AGGREGATE || node->as.aggregate->n_groups > 0;
}

static bool does_harm(const struct plan_node *node, bool is_below_join)
{
    if (is_below_join && join_filter_changes(node)) {
        return true;
    }
    if (node->kind == NODE_RECURSIVE_CTE) { /* where it cannot be written otherwise, either */
        return false;
    }
    bool is_open = node->kind == NODE_JOIN || (is_below_join && join_filter_passes(node));
    for (uint32_t i = 0; i < node->n_children; i++) {
        /* A CTE that is still in the plan is MATERIALIZED, and what an operator reads is SQL of its own. */
        bool is_apart = (node->kind == NODE_CTE && i == 0) || node->kind == NODE_CUSTOM;
        if (does_harm(node->children[i], is_open && !is_apart)) {
            return true;
        }
    }
    return false;
}

bool join_filter_does_harm(const struct plan_node *root)
{
    return does_harm(root, false);
}

/* A text that only looks so becomes MATERIALIZED as well, which is right, too. */
const char *join_filter_barrier(const char *sql)
{
    static const char *const words[] = {" LIMIT ", " OFFSET ", "SELECT DISTINCT ON (", JOIN_FILTER_KINDS};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strstr(sql, words[i]) != NULL) {
            return "MATERIALIZED ";
        }
    }
    return "";
}
