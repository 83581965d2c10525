/*
 * planner_custom.c - custom('name', (SELECT …), config := '{…}') in a FROM.
 *
 * DuckDB knows nothing of it. What it reads is planned first, as a query of its own; the operator says what columns it
 * makes of that; then DuckDB plans the query around it with a stand-in that has these columns, and the scan of the
 * stand-in becomes a NODE_CUSTOM over the plan of what is inside.
 */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "query/plan_sql.h"
#include "query/planner_internal.h"

#define DEPTH_MAX 16

/* The table that has the columns of a stand-in. */
#define COLUMNS_OF "_columns"

/* Parameters are put into the parsed statement, so that what is inside of custom(…) has them, too. */
static enum err fill_in_params(struct planning *p, struct error *e)
{
    struct buf json = {0};
    struct json *filled = NULL;
    struct plan_sql_outcome outcome = {0};
    struct plan_sql_changes changes = {.params = p->params};
    enum err err = plan_sql_rewrite(p->parsed, &changes, &json, &outcome, e);
    if (err == ERR_OK) {
        err = json_parse_with_nan(json.data, json.n, &filled, e);
    }
    if (err == ERR_OK) {
        json_free(p->parsed);
        json_free(p->params);
        p->parsed = filled;
        p->params = NULL;
    }
    buf_deinit(&json);
    return err;
}

static bool has_custom(const struct json *node)
{
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    bool is_found = plan_sql_is_custom(node);
    while (!is_found && json_next(node, &cursor, &key, &value)) {
        is_found = has_custom(value);
    }
    for (size_t i = 0; !is_found && json_kind_of(node) == JSON_ARRAY && i < json_count(node); i++) {
        is_found = has_custom(json_at(node, i));
    }
    return is_found;
}

static enum err ask_operator(const struct planning *p, const struct plan_custom *custom, const struct ArrowSchema *in,
                             struct ArrowSchema *out, struct error *e)
{
    if (p->request->custom == NULL) {
        return error_set(e, ERR_NOT_FOUND, "custom physical operator '%s' is not registered on worker", custom->op);
    }
    return p->request->custom(p->request->custom_context, custom->op, custom->config_json, in, out, e);
}

/* What it reads is a table for the operator, whose columns have names of their own. */
static enum err check_names(const char *op, const struct ArrowSchema *in, struct error *e)
{
    for (int64_t i = 0; i < in->n_children; i++) {
        for (int64_t k = 0; k < i; k++) {
            if (strcasecmp(in->children[i]->name, in->children[k]->name) == 0) {
                error_set(e, ERR_INVALID, "custom('%s', …): two of the columns that it reads are called '%.200s'", op,
                          in->children[i]->name);
                error_hint(e, "give them different names in its SELECT, with AS");
                return ERR_INVALID;
            }
        }
    }
    return ERR_OK;
}

static enum err add_custom(void *context, const struct plan_sql_custom *call, struct error *e)
{
    struct planning *p = context;
    struct plan *inside = NULL;
    struct ArrowSchema in = {0};
    struct buf sql = {0};
    enum err err = planner__ask(p->planner, "SELECT json_deserialize_sql($1::JSON)", call->statement->data,
                                call->statement->n, &sql, e);
    if (err == ERR_OK) {
        err = planner__plan_inside(p, sql.data, &inside, &in, e);
    }
    if (err == ERR_OK) {
        err = check_names(call->op, &in, e);
    }
    if (err == ERR_OK) {
        struct plan_custom custom = {.name = arena_format(p->arena, PLAN_CUSTOM_NAME "%" PRIu32, p->n_schemas),
                                     .op = arena_strdup(p->arena, call->op),
                                     .config_json = arena_strdup(p->arena, call->config_json),
                                     .input = inside};
        p->schemas = mem_grow(p->schemas, &p->cap_schemas, p->n_schemas + 1, sizeof *p->schemas);
        p->schemas[p->n_schemas] = (struct ArrowSchema){0};
        err = ask_operator(p, &custom, &in, &p->schemas[p->n_schemas], e);
        if (err == ERR_OK) {
            struct plan_custom *all = arena_alloc(p->arena, (p->n_schemas + 1) * sizeof *all);
            if (p->n_schemas > 0) {
                memcpy(all, p->plan->customs, p->n_schemas * sizeof *all);
            }
            all[p->n_schemas++] = custom;
            p->plan->customs = all;
            p->plan->n_customs = p->n_schemas;
        }
    }
    if (in.release != NULL) {
        in.release(&in);
    }
    buf_deinit(&sql);
    return err;
}

enum err planner__find_customs(struct planning *p, struct error *e)
{
    if (!has_custom(p->parsed)) {
        return ERR_OK;
    }
    if (p->depth >= DEPTH_MAX) {
        return error_set(e, ERR_INVALID, "custom(…) is nested more than %d times", DEPTH_MAX);
    }
    enum err err = fill_in_params(p, e);
    return err == ERR_OK ? plan_sql_customs(p->parsed, add_custom, p, e) : err;
}

/* A stream with an operator's columns and no rows. The columns stay the planning's, and outlive it. */

static void release_lent_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static int lend_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    *out = *(const struct ArrowSchema *)stream->private_data;
    out->release = release_lent_schema;
    return 0;
}

static int no_rows(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    UNUSED(stream);
    *out = (struct ArrowArray){0};
    return 0;
}

static const char *no_error(struct ArrowArrayStream *stream)
{
    UNUSED(stream);
    return NULL;
}

static void release_stream(struct ArrowArrayStream *stream)
{
    stream->release = NULL;
}

enum err planner__add_customs(struct planning *p, struct error *e)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < p->n_schemas && err == ERR_OK; i++) {
        const char *name = p->plan->customs[i].name;
        const char *columns = arena_format(p->arena, "%s" COLUMNS_OF, name);
        struct duck_input input = {.name = columns};
        struct ArrowArrayStream stream = {.get_schema = lend_schema,
                                          .get_next = no_rows,
                                          .get_last_error = no_error,
                                          .release = release_stream,
                                          .private_data = &p->schemas[i]};
        err = duck_register(p->planner->connection, &input, &stream, e);
        if (err == ERR_OK) {
            err = duck_add_source(p->planner->connection, name, columns, STAND_IN_ROWS, e);
        }
        if (err != ERR_OK && e != NULL) {
            struct error why = *e;
            err = error_set(e, ERR_INVALID, "the columns of the operator %s are no table: %s", p->plan->customs[i].op,
                            why.message);
        }
    }
    return err;
}

void planner__drop_customs(struct planning *p)
{
    for (uint32_t i = 0; i < p->n_schemas; i++) {
        duck_unregister(p->planner->connection, arena_format(p->arena, "%s" COLUMNS_OF, p->plan->customs[i].name));
        if (p->schemas[i].release != NULL) {
            p->schemas[i].release(&p->schemas[i]);
        }
    }
    mem_free(p->schemas);
    p->schemas = NULL;
    p->n_schemas = 0;
}

static bool attach(struct plan_node *node, void *context)
{
    struct planning *p = context;
    if (node->kind != NODE_SCAN || node->as.scan->source != SCAN_STAND_IN) {
        return true;
    }
    for (uint32_t i = 0; i < p->plan->n_customs; i++) {
        const struct plan_custom *custom = &p->plan->customs[i];
        if (strcmp(custom->name, node->as.scan->from) == 0) {
            struct scan *scan = node->as.scan;
            struct plan_node *child = custom->input->root;
            node->kind = NODE_CUSTOM;
            node->as.custom = (struct custom_node){.custom = custom, .scan = scan};
            node->n_children = 1;
            node->children = arena_copy(p->arena, &child, sizeof(struct plan_node *));
            return false;
        }
    }
    return true;
}

void planner__attach_customs(struct planning *p)
{
    for (uint32_t i = 0; i < p->plan->n_customs && p->plan->root != NULL; i++) {
        const struct plan_custom *custom = &p->plan->customs[i];
        if (custom->input->root == NULL) { /* then the query around it cannot be cut either */
            p->plan->root = NULL;
            p->plan->unsupported =
                arena_format(p->arena, "what custom('%s', …) reads: %s", custom->op, custom->input->unsupported);
        }
    }
    if (p->plan->root != NULL && p->plan->n_customs > 0) {
        plan_visit(p->plan->root, attach, p);
    }
}
