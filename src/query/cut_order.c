/*
 * ORDER BY of the whole result.
 *
 * Little is gathered and sorted by one task. Much is spread by ranges of the sort key, each sorted by a task of its own,
 * and the results are read in the order of the tasks. The ranges come from a sample:
 *
 *   rows ──forward──► sample of each task ──gather──► bounds ──broadcast──┐
 *     └────────────────────────────────────────────────► rows ──range──► sort
 */
#include <inttypes.h>

#include "query/cut_internal.h"

#define SAMPLE_ROWS 1000
#define TEMPLATE_ARGS_MAX 10 /* @0 … @9 */

static bool may_use_ranges(const struct cutter *c, const struct plan_node *node, const struct fragment *child)
{
    const struct order *order = node->as.order;
    if (node != c->final_order || cut__is_one(child) || order->n_keys == 0 || order->n_keys > TEMPLATE_ARGS_MAX ||
        c->partitions < 2 || cut__bytes(child) <= c->broadcast_bytes) {
        return false;
    }
    for (uint32_t i = 0; i < order->n_keys; i++) {
        if (expression_is_volatile(order->keys[i].expression)) {
            return false;
        }
    }
    return true;
}

/* create_sort_key(@0, 'DESC NULLS LAST', …): a BLOB, thanks to the text in the end, that sorts as the keys do. */
static struct expression *sort_key(struct cutter *c, const struct order *order)
{
    struct expression *args[TEMPLATE_ARGS_MAX];
    struct buf text = {0};
    buf_text(&text, "create_sort_key(");
    for (uint32_t i = 0; i < order->n_keys; i++) {
        args[i] = order->keys[i].expression;
        buf_format(&text, "%s@%" PRIu32 ", '%s NULLS %s'", i == 0 ? "" : ", ", i,
                   order->keys[i].is_descending ? "DESC" : "ASC", order->keys[i].has_nulls_first ? "FIRST" : "LAST");
    }
    buf_text(&text, ", '', 'ASC NULLS LAST')");
    struct expression *key =
        expression_template(c->arena, arena_strdup(c->arena, text.data), type_plain(TYPE_BLOB), args, order->n_keys);
    buf_deinit(&text);
    return key;
}

/*
 * Some of the task's sort keys. Those of the rows with the smallest hashes, so that a task that is run again takes the
 * same ones.
 */
static struct plan_node *sample_keys(struct cutter *c, struct plan_node *rows, const struct order *order)
{
    struct expression *columns[2] = {
        sort_key(c, order),
        expression_template(c->arena, "hash(@*)", type_plain(TYPE_UBIGINT), cut__refs(c, rows, rows->n_columns),
                            rows->n_columns),
    };
    struct plan_node *keys = plan_project(c->arena, rows, columns, 2);
    struct plan_node *top = arena_zalloc(c->arena, sizeof *top);
    *top = *keys;
    top->kind = NODE_TOP_N;
    top->n_children = 1;
    top->children = arena_copy(c->arena, &keys, sizeof(struct plan_node *));
    top->as.order = arena_zalloc(c->arena, sizeof *top->as.order);
    top->as.order->n_keys = 1;
    top->as.order->keys = arena_zalloc(c->arena, sizeof *top->as.order->keys);
    top->as.order->keys[0].expression = expression_ref(c->arena, 1, type_plain(TYPE_UBIGINT));
    top->as.order->limit.count = (struct limit_value){.kind = LIMIT_BY_ROWS, .rows = SAMPLE_ROWS};
    struct expression *key = expression_ref(c->arena, 0, type_plain(TYPE_BLOB));
    return plan_project(c->arena, top, &key, 1);
}

/* One row: the list of keys that end the ranges, all but the last. */
static struct plan_node *bounds_of(struct cutter *c, struct plan_node *keys)
{
    static const struct type blob = {.id = TYPE_BLOB};
    static const struct type blobs = {.id = TYPE_LIST, .child = &blob};
    struct plan_node *all = arena_zalloc(c->arena, sizeof *all);
    struct expression *key = expression_ref(c->arena, 0, type_plain(TYPE_BLOB));
    struct expression *list =
        expression_template(c->arena, "coalesce(list(@0 ORDER BY @0), CAST([] AS BLOB[]))", &blobs, &key, 1);
    *all = (struct plan_node){.kind = NODE_AGGREGATE, .n_children = 1, .n_columns = 1, .rows_estimated = 1};
    all->children = arena_copy(c->arena, &keys, sizeof(struct plan_node *));
    all->columns = arena_zalloc(c->arena, sizeof *all->columns);
    all->columns[0] = &blobs;
    all->as.aggregate = arena_zalloc(c->arena, sizeof *all->as.aggregate);
    all->as.aggregate->n_aggregates = 1;
    all->as.aggregate->aggregates = arena_copy(c->arena, &list, sizeof(struct expression *));
    const char *sql = arena_format(
        c->arena, "list_transform(range(1, %" PRIu32 "), lambda capstan_i: @0[1 + len(@0) * capstan_i // %" PRIu32 "])",
        c->partitions, c->partitions);
    struct expression *column = expression_ref(c->arena, 0, &blobs);
    struct expression *ends = expression_template(c->arena, sql, &blobs, &column, 1);
    return plan_project(c->arena, all, &ends, 1);
}

static enum err sort_by_ranges(struct cutter *c, struct plan_node *node, const struct fragment *child,
                               struct fragment *out)
{
    const struct order *order = node->as.order;
    struct fragment rows;
    enum err err = cut__forward(c, child, &rows);
    if (err != ERR_OK) {
        return err;
    }
    struct fragment keys = rows;
    keys.node = sample_keys(c, rows.node, order);
    keys.spread = SPREAD_ANY;
    keys.rows = SAMPLE_ROWS * (double)c->partitions;
    struct fragment bounds;
    err = cut__gather(c, &keys, &bounds);
    if (err != ERR_OK) {
        return err;
    }
    bounds.node = bounds_of(c, bounds.node);
    bounds.rows = 1;
    err = cut__broadcast(c, &bounds, &bounds);
    if (err != ERR_OK) {
        return err;
    }
    /* The same rows once more, by a read of their own. */
    struct fragment again = rows;
    again.node = cut__read(c, cut__stage_of(c, rows.node), rows.node, false);
    uint32_t stage = 0;
    struct close_request request = {.exchange = EXCHANGE_RANGE,
                                    .orders = order->keys,
                                    .n_orders = order->n_keys,
                                    .bounds = bounds.node->as.input.name};
    err = cut__close(c, &again, &request, &stage);
    if (err == ERR_OK) {
        *out = again;
        out->node = plan_node_with_child(c->arena, node, cut__read(c, stage, again.node, false));
        out->spread = SPREAD_ANY;
        out->keys = NULL;
        out->reads_partitions = true;
    }
    return err;
}

enum err cut__order(struct cutter *c, struct plan_node *node, struct fragment *out)
{
    struct fragment child;
    enum err err = cut__node(c, node->children[0], &child);
    if (err == ERR_OK && may_use_ranges(c, node, &child)) {
        return sort_by_ranges(c, node, &child, out);
    }
    if (err == ERR_OK) {
        err = cut__gather(c, &child, &child);
    }
    if (err == ERR_OK) {
        *out = child;
        out->node = plan_node_with_child(c->arena, node, child.node);
    }
    return err;
}
