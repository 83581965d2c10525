/*
 * plan_sql_custom.c - calls of custom(…) in a parsed statement.
 *
 * The SELECT inside becomes a statement of its own, and is planned before the query around it. It may read CTEs of that
 * query: those are copied into it, as far as it needs them.
 */
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/mem.h"
#include "query/plan_sql.h"

/* CTEs that are visible at some place: the first `n` of a node's, then those of the nodes around it. */
struct scope {
    const struct scope *outer;
    const struct json *entries; /* a list of {"key": name, "value": definition} */
    size_t n;
};

struct custom_walk {
    plan_sql_custom_fn *custom;
    void *context;
    struct error *e;
    enum err err;
};

/* Names of tables, on the heap. */
struct names {
    char **items;
    uint32_t n;
    uint32_t cap;
};

static bool text_is(const struct json *object, const char *key, const char *expected)
{
    const char *text = json_text(json_get(object, key), NULL);
    return text != NULL && strcmp(text, expected) == 0;
}

bool plan_sql_is_custom(const struct json *table)
{
    const struct json *function = json_get(table, "function");
    const char *name = json_text(json_get(function, "function_name"), NULL);
    return text_is(table, "type", "TABLE_FUNCTION") && name != NULL && strcasecmp(name, "custom") == 0 &&
           text_is(function, "schema", "");
}

/* Which CTEs are read. */

static void add_name(void *context, const char *name)
{
    struct names *names = context;
    if (name == NULL) {
        return; /* such functions do not see CTEs */
    }
    names->items = mem_grow(names->items, &names->cap, names->n + 1, sizeof *names->items);
    names->items[names->n++] = mem_strdup(name);
}

static bool has_name(const struct names *names, const char *name)
{
    for (uint32_t i = 0; i < names->n; i++) {
        if (strcasecmp(names->items[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void names_deinit(struct names *names)
{
    for (uint32_t i = 0; i < names->n; i++) {
        mem_free(names->items[i]);
    }
    mem_free(names->items);
}

/*
 * Puts the entries of the scope that are read, directly or by each other, in front of what is in `out`. A name that was
 * taken already hides those farther out.
 */
static void collect_ctes(const struct scope *scope, struct names *read, struct names *taken, struct buf *out)
{
    for (; scope != NULL; scope = scope->outer) {
        for (size_t i = scope->n; i-- > 0;) {
            const struct json *entry = json_at(scope->entries, i);
            const char *key = json_text(json_get(entry, "key"), NULL);
            if (key == NULL || !has_name(read, key) || has_name(taken, key)) {
                continue;
            }
            struct buf text = {0};
            add_name(taken, key);
            plan_sql_tables(json_get(entry, "value"), add_name, read);
            plan_sql_copy(&text, entry);
            if (out->n > 0) {
                buf_char(&text, ',');
                buf_append(&text, out->data, out->n);
            }
            buf_deinit(out);
            *out = text;
        }
    }
}

/* The SELECT with the CTEs that it needs from around it. */
static void write_statement(struct buf *out, const struct json *node, const struct scope *scope)
{
    struct names read = {0};
    struct names taken = {0};
    struct buf ctes = {0};
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    const struct json *own = json_get(json_get(node, "cte_map"), "map");
    plan_sql_tables(node, add_name, &read);
    for (size_t i = 0; i < json_count(own); i++) {
        const char *name = json_text(json_get(json_at(own, i), "key"), NULL);
        add_name(&taken, name != NULL ? name : "");
    }
    collect_ctes(scope, &read, &taken, &ctes);
    buf_text(out, "{\"error\":false,\"statements\":[{\"node\":{");
    for (bool is_first = true; json_next(node, &cursor, &key, &value); is_first = false) {
        buf_text(out, is_first ? "" : ",");
        json_write_text(out, key);
        buf_char(out, ':');
        if (strcmp(key, "cte_map") != 0) {
            plan_sql_copy(out, value);
            continue;
        }
        buf_text(out, "{\"map\":[");
        buf_append(out, ctes.data, ctes.n);
        for (size_t i = 0; i < json_count(own); i++) {
            buf_text(out, i > 0 || ctes.n > 0 ? "," : "");
            plan_sql_copy(out, json_at(own, i));
        }
        buf_text(out, "]}");
    }
    buf_text(out, "},\"named_param_map\":[]}]}");
    names_deinit(&read);
    names_deinit(&taken);
    buf_deinit(&ctes);
}

/* Arguments. */

/* The text of a constant; NULL if it is none. */
static const char *constant_text(const struct json *expression, size_t *out_n)
{
    const struct json *value = json_get(expression, "value");
    if (!text_is(expression, "class", "CONSTANT") || !text_is(json_get(value, "type"), "id", "VARCHAR")) {
        return NULL;
    }
    return json_text(json_get(value, "value"), out_n);
}

/* config := '{…}', or config = '{…}'. NULL if the argument is none of these. */
static const char *config_text(const struct json *argument, size_t *out_n)
{
    const char *alias = json_text(json_get(argument, "alias"), NULL);
    if (alias != NULL && strcasecmp(alias, "config") == 0) {
        return constant_text(argument, out_n);
    }
    const struct json *names = json_get(json_get(argument, "left"), "column_names");
    const char *name = json_text(json_at(names, 0), NULL);
    bool is_equal = text_is(argument, "type", "COMPARE_EQUAL") && json_count(names) == 1 && name != NULL &&
                    strcasecmp(name, "config") == 0;
    return is_equal ? constant_text(json_get(argument, "right"), out_n) : NULL;
}

static enum err check_config(const char *op, const char *config, size_t n, struct error *e)
{
    struct json *parsed = NULL;
    struct error why = {0};
    enum err err = json_parse(config, n, &parsed, &why);
    if (err != ERR_OK || json_kind_of(parsed) != JSON_OBJECT) {
        err = error_set(e, ERR_INVALID, "the config of custom('%s', …) must be a JSON object such as '{\"a\": 1}'%s%s",
                        op, err != ERR_OK ? ": " : "", err != ERR_OK ? why.message : "");
    }
    json_free(parsed);
    return err;
}

static enum err read_custom(struct custom_walk *w, const struct json *table, const struct scope *scope)
{
    const struct json *arguments = json_get(json_get(table, "function"), "children");
    const struct json *subquery = json_get(json_at(arguments, 1), "subquery");
    const struct json *node = json_get(subquery, "node");
    size_t n_op = 0;
    size_t n_config = 2;
    const char *op = constant_text(json_at(arguments, 0), &n_op);
    const char *config = "{}";
    if (op == NULL || n_op == 0 || n_op > LIMIT_NAME_BYTES || strlen(op) != n_op) {
        error_set(w->e, ERR_INVALID, "the first argument of custom() must be the name of an operator, a text");
        error_hint(w->e, "as in custom('name', (SELECT …), config := '{…}')");
        return ERR_INVALID;
    }
    if (node == NULL || !text_is(json_at(arguments, 1), "subquery_type", "SCALAR")) {
        error_set(w->e, ERR_INVALID, "the second argument of custom('%s', …) must be a query in brackets", op);
        error_hint(w->e, "as in custom('%s', (SELECT …), config := '{…}')", op);
        return ERR_INVALID;
    }
    if (json_count(arguments) > 3 ||
        (json_count(arguments) == 3 && (config = config_text(json_at(arguments, 2), &n_config)) == NULL)) {
        error_set(w->e, ERR_INVALID, "custom('%s', …) takes a query, and config := a text with JSON; nothing else", op);
        error_hint(w->e, "as in custom('%s', (SELECT …), config := '{…}')", op);
        return ERR_INVALID;
    }
    if (!text_is(table, "with_ordinality", "WITHOUT_ORDINALITY")) {
        return error_set(w->e, ERR_INVALID, "custom('%s', …) has no WITH ORDINALITY: its rows have no order", op);
    }
    enum err err = check_config(op, config, n_config, w->e);
    if (err == ERR_OK) {
        struct buf statement = {0};
        write_statement(&statement, node, scope);
        err = w->custom(w->context, &(struct plan_sql_custom){.op = op, .config_json = config, .statement = &statement},
                        w->e);
        buf_deinit(&statement);
    }
    return err;
}

/* Walking: in the order of the text, as plan_sql_rewrite does. */

static void walk(struct custom_walk *w, const struct json *node, const struct scope *scope);

/* The CTEs of a node: each sees those before it. */
static void walk_ctes(struct custom_walk *w, const struct json *entries, const struct scope *outer)
{
    for (size_t i = 0; i < json_count(entries); i++) {
        struct scope before = {.outer = outer, .entries = entries, .n = i};
        walk(w, json_at(entries, i), &before);
    }
}

static void walk(struct custom_walk *w, const struct json *node, const struct scope *scope)
{
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    if (w->err != ERR_OK) {
        return;
    }
    if (plan_sql_is_custom(node)) {
        w->err = read_custom(w, node, scope);
        return;
    }
    const struct json *entries = json_get(json_get(node, "cte_map"), "map");
    struct scope inner = {.outer = scope, .entries = entries, .n = json_count(entries)};
    while (json_next(node, &cursor, &key, &value)) {
        if (strcmp(key, "cte_map") == 0) {
            walk_ctes(w, entries, scope);
        } else {
            walk(w, value, entries != NULL ? &inner : scope);
        }
    }
    for (size_t i = 0; json_kind_of(node) == JSON_ARRAY && i < json_count(node); i++) {
        walk(w, json_at(node, i), scope);
    }
}

enum err plan_sql_customs(const struct json *statement, plan_sql_custom_fn *custom, void *context, struct error *e)
{
    struct custom_walk w = {.custom = custom, .context = context, .e = e};
    walk(&w, statement, NULL);
    return w.err;
}
