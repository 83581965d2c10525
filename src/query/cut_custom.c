/* Operators of the user's own: what they read ends as a stage, with the operator behind its SQL. */
#include <math.h>

#include "base/mem.h"
#include "query/cut_internal.h"

/* What the operator reads was planned by itself, so its CTEs and delim joins may have the same ids as those around it. */
static enum err cut_inside(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct shared_list ctes = c->ctes;
    struct shared_list delims = c->delims;
    c->ctes = (struct shared_list){0};
    c->delims = (struct shared_list){0};
    enum err err = cut__node(c, node, out);
    mem_free(c->ctes.items);
    mem_free(c->delims.items);
    c->ctes = ctes;
    c->delims = delims;
    return err;
}

/*
 * The operator sees the rows of each task by themselves. Its rows stay spread as they are, over as many partitions as
 * everything else has, or at the one task that there is.
 */
enum err cut__custom(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    const struct plan_custom *custom = node->as.custom.custom;
    struct fragment child;
    uint32_t stage = 0;
    enum err err = cut_inside(c, node->children[0], &child);
    if (err != ERR_OK) {
        return err;
    }
    bool is_one = cut__is_one(&child);
    struct close_request request = {
        .exchange = is_one ? EXCHANGE_GATHER : EXCHANGE_FORWARD, .result = custom->input, .custom = custom};
    err = cut__close(c, &child, &request, &stage);
    if (err == ERR_OK) {
        *out = (struct fragment){
            .node = plan_node_with_child(c->arena, node, cut__read(c, stage, child.node, is_one)),
            .spread = is_one ? SPREAD_SINGLE : SPREAD_ANY,
            .reads_partitions = !is_one,
            .rows = child.rows, /* what it makes of them is not known */
            .rows_max = INFINITY,
        };
    }
    return err;
}
