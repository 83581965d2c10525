/* plan_estimate.c - both trees, side by side. */
#include "query/plan_estimate.h"

#include "base/json.h"
#include "base/num.h"

static void estimate(struct plan_node *node, const struct json *json)
{
    const struct json *children = json_get(json, "children");
    const char *text = json_text(json_get(json_get(json, "extra_info"), "Estimated Cardinality"), NULL);
    int64_t rows = 0;
    if (text != NULL && num_parse_int(text, &rows) && rows >= 0) {
        node->rows_estimated = (double)rows;
    }
    if (json_count(children) != node->n_children) {
        return; /* VALUES have a child in DuckDB's tree that ours leaves out */
    }
    for (uint32_t i = 0; i < node->n_children; i++) {
        estimate(node->children[i], json_at(children, i));
    }
}

void plan_estimate(struct plan_node *root, const char *explained, size_t n)
{
    struct json *json = NULL;
    if (json_parse_with_nan(explained, n, &json, NULL) == ERR_OK) {
        estimate(root, json_at(json, 0));
        json_free(json);
    }
}
