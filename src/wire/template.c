/*
 * One walk through a value fills in results and parameters alike: both are JSON values with a name. They differ in where
 * an escape ends, which is with the results, since these are filled in last.
 */
#include "wire/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "wire/canonical.h"
#include "wire/template_internal.h"

/* A named value; it is read when a template asks for it. */
struct source {
    const char *name;
    const char *json;
    size_t n;
    struct json *tree;
    bool is_read;
};

/* What happens to the texts of a value. */
enum text_mode {
    TEXT_FILL,  /* templates are replaced */
    TEXT_COPY,  /* none are looked for: it is a value that was put in */
    TEXT_QUOTE, /* the same, and ${ becomes $${, so that nobody finds one later */
};

struct filler {
    enum template_mark mark; /* MARK_RESULT or MARK_PARAM: what is replaced */
    struct source *sources;  /* sorted by name */
    uint32_t n_sources;
    size_t bytes_max;
    struct buf out;
    struct buf scratch; /* a text with templates inside, put together */
    struct template_path path;
    struct error *e;
};

/* Where the walk is, and what to do there. */
struct spot {
    struct where where;
    enum text_mode mode;
    bool in_inputs;
    size_t depth; /* containers around it */
};

static int compare_sources(const void *a, const void *b)
{
    return strcmp(((const struct source *)a)->name, ((const struct source *)b)->name);
}

static void filler_init(struct filler *f, enum template_mark mark, const struct template_result *values, uint32_t n,
                        size_t bytes_max, struct error *e)
{
    *f = (struct filler){.mark = mark, .n_sources = n, .bytes_max = bytes_max, .e = e};
    f->sources = mem_calloc((size_t)n + 1, sizeof *f->sources);
    for (uint32_t i = 0; i < n; i++) {
        f->sources[i] = (struct source){.name = values[i].name, .json = values[i].json, .n = values[i].n};
    }
    if (n > 1) {
        qsort(f->sources, n, sizeof *f->sources, compare_sources);
    }
}

static void filler_deinit(struct filler *f)
{
    for (uint32_t i = 0; i < f->n_sources; i++) {
        json_free(f->sources[i].tree);
    }
    mem_free(f->sources);
    template_path_deinit(&f->path);
    buf_deinit(&f->scratch);
    buf_deinit(&f->out);
}

static enum err too_large(const struct filler *f, size_t bytes)
{
    enum err err = error_set(f->e, ERR_EXHAUSTED,
                             "with the values that are put in there are %zu bytes or more, but at most %zu are allowed",
                             bytes, f->bytes_max);
    error_hint(f->e, "pass large data through a file, a table or an object store, and its name through the result");
    return err;
}

/* An error about the template at the place; `why` is freed. */
static enum err refuse(const struct filler *f, const struct where *where, const struct template_piece *piece,
                       struct buf *why)
{
    struct buf text = {0};
    where_write(&text, where);
    buf_text(&text, ": ");
    write_printable(&text, piece->raw, piece->raw_n, TEMPLATE_BYTES_SHOWN);
    buf_text(&text, ": ");
    write_printable(&text, why->data, why->n, sizeof f->e->message);
    enum err err = error_set(f->e, ERR_INVALID, "%s", text.data);
    buf_deinit(&text);
    buf_deinit(why);
    return err;
}

static struct source *find_source(const struct filler *f, const char *name)
{
    struct source key = {.name = name};
    return bsearch(&key, f->sources, f->n_sources, sizeof key, compare_sources);
}

static void write_unknown(const struct filler *f, struct buf *why, const char *name)
{
    if (f->mark == MARK_RESULT) {
        buf_format(why, "this task does not depend on a task '%s'", name);
    } else {
        buf_format(why, "there is no parameter '%s'; give it with --param %s=VALUE", name, name);
    }
}

/* The value that the template names. */
static enum err resolve(struct filler *f, const struct where *where, const struct template_piece *piece,
                        const struct json **out)
{
    struct buf why = {0};
    if (piece->broken != NULL) {
        buf_text(&why, piece->broken);
        return refuse(f, where, piece, &why);
    }
    struct source *source = find_source(f, template_key(&f->path, 0));
    if (source == NULL) {
        write_unknown(f, &why, template_key(&f->path, 0));
        return refuse(f, where, piece, &why);
    }
    if (!source->is_read && source->n > 0) {
        struct error e;
        if (json_parse(source->json, source->n, &source->tree, &e) != ERR_OK) {
            buf_format(&why, "the value of '%s' is not JSON: %s", source->name, e.message);
            return refuse(f, where, piece, &why);
        }
    }
    source->is_read = true;
    if (f->path.n_steps > 1 && source->n == 0) {
        buf_format(&why, "'%s' has no result: it failed, was skipped or returned nothing", source->name);
        return refuse(f, where, piece, &why);
    }
    if (!template_lookup(source->tree, &f->path, out, &why)) {
        return refuse(f, where, piece, &why);
    }
    return ERR_OK;
}

/* Appends plain text that a later walk is to take for plain text, too. */
static void append_quoted(struct buf *out, const char *text, size_t n)
{
    size_t start = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (text[i] == '$' && text[i + 1] == '{') {
            buf_append(out, text + start, i - start);
            buf_char(out, '$');
            start = i;
        }
    }
    buf_append(out, text + start, n - start);
}

/* Appends the text form of a value. */
static void append_text_form(struct buf *out, const struct json *value, bool quoted)
{
    struct buf written = {0};
    size_t n = 0;
    const char *text = json_text(value, &n);
    if (text == NULL) {
        wire_write_compact(&written, value);
        text = written.data;
        n = written.n;
    }
    if (quoted) {
        append_quoted(out, text, n);
    } else {
        buf_append(out, text, n);
    }
    buf_deinit(&written);
}

static enum err fill_value(struct filler *f, const struct json *node, const struct spot *spot);

/* A text with more in it than one template: its pieces are put together. */
static enum err fill_pieces(struct filler *f, const char *text, size_t n, const struct spot *spot)
{
    struct template_piece piece;
    size_t at = 0;
    buf_reset(&f->scratch);
    while (template_next(text, n, &at, &f->path, &piece)) {
        if (piece.mark == f->mark) {
            const struct json *value = NULL;
            enum err err = resolve(f, &spot->where, &piece, &value);
            if (err != ERR_OK) {
                return err;
            }
            append_text_form(&f->scratch, value, spot->in_inputs && f->mark == MARK_PARAM);
        } else if (piece.mark == MARK_ESCAPE && f->mark == MARK_RESULT) {
            buf_text(&f->scratch, "${");
        } else if (piece.broken != NULL) { /* of the other kind: only its opening was passed */
            buf_append(&f->scratch, piece.raw, (size_t)(text + at - piece.raw));
        } else {
            buf_append(&f->scratch, piece.raw, piece.raw_n);
        }
        if (f->scratch.n > f->bytes_max) {
            return too_large(f, f->out.n + f->scratch.n);
        }
    }
    json_write_bytes(&f->out, f->scratch.data, f->scratch.n);
    return ERR_OK;
}

static enum err fill_text(struct filler *f, const struct json *node, const struct spot *spot)
{
    struct template_piece piece;
    size_t n = 0;
    size_t at = 0;
    const char *text = json_text(node, &n);
    if (spot->mode == TEXT_QUOTE) {
        buf_reset(&f->scratch);
        append_quoted(&f->scratch, text, n);
        json_write_bytes(&f->out, f->scratch.data, f->scratch.n);
        return ERR_OK;
    }
    if (spot->mode == TEXT_COPY || !template_next(text, n, &at, &f->path, &piece) ||
        (piece.mark == MARK_NONE && at == n)) {
        json_write_bytes(&f->out, text, n);
        return ERR_OK;
    }
    if (piece.mark != f->mark || at < n) {
        return fill_pieces(f, text, n, spot);
    }
    const struct json *value = NULL;
    enum err err = resolve(f, &spot->where, &piece, &value);
    if (err != ERR_OK) {
        return err;
    }
    struct spot inner = *spot;
    inner.mode = spot->in_inputs && f->mark == MARK_PARAM ? TEXT_QUOTE : TEXT_COPY;
    return fill_value(f, value, &inner);
}

/* The members, with commas between them; the braces are the caller's. */
static enum err fill_members(struct filler *f, const struct json *node, const struct spot *spot)
{
    size_t cursor = 0;
    size_t n = 0;
    struct spot inner = {.where.up = &spot->where, .mode = spot->mode, .depth = spot->depth + 1};
    const struct json *value = NULL;
    enum err err = ERR_OK;
    while (err == ERR_OK && json_next(node, &cursor, &inner.where.key, &value)) {
        if (n++ > 0) {
            buf_char(&f->out, ',');
        }
        json_write_text(&f->out, inner.where.key);
        buf_char(&f->out, ':');
        /* In a tree, {"tasks": [{"inputs": ...}]}; inputs by themselves are all inputs. */
        inner.in_inputs = spot->in_inputs || (inner.depth == 3 && strcmp(inner.where.key, "inputs") == 0);
        err = fill_value(f, value, &inner);
    }
    return err;
}

static enum err fill_elements(struct filler *f, const struct json *node, const struct spot *spot)
{
    size_t n = json_count(node);
    struct spot inner = {
        .where.up = &spot->where, .mode = spot->mode, .in_inputs = spot->in_inputs, .depth = spot->depth + 1};
    enum err err = ERR_OK;
    for (size_t i = 0; i < n && err == ERR_OK; i++) {
        if (i > 0) {
            buf_char(&f->out, ',');
        }
        inner.where.index = i;
        err = fill_value(f, json_at(node, i), &inner);
    }
    return err;
}

static enum err too_deep(const struct filler *f, const struct where *where)
{
    struct buf text = {0};
    where_write(&text, where);
    enum err err = error_set(f->e, ERR_INVALID,
                             "%.1000s: with the values that are put in, lists and objects are nested deeper than %d",
                             text.data, LIMIT_JSON_DEPTH);
    buf_deinit(&text);
    return err;
}

/* Calls itself as deep as the value is nested, and never beyond LIMIT_JSON_DEPTH. */
static enum err fill_value(struct filler *f, const struct json *node, const struct spot *spot)
{
    enum json_kind kind = json_kind_of(node);
    if (f->out.n > f->bytes_max) {
        return too_large(f, f->out.n);
    }
    if (kind == JSON_TEXT) {
        return fill_text(f, node, spot);
    }
    if (kind != JSON_ARRAY && kind != JSON_OBJECT) {
        wire_write_compact(&f->out, node);
        return ERR_OK;
    }
    if (spot->depth == LIMIT_JSON_DEPTH) {
        return too_deep(f, &spot->where);
    }
    buf_char(&f->out, kind == JSON_ARRAY ? '[' : '{');
    enum err err = kind == JSON_ARRAY ? fill_elements(f, node, spot) : fill_members(f, node, spot);
    buf_char(&f->out, kind == JSON_ARRAY ? ']' : '}');
    return err;
}

/* ---- results ---- */

/* How deep the JSON is nested. It is well-formed, so brackets outside of texts are all there is to see. */
static size_t depth_of(const char *json, size_t n)
{
    size_t depth = 0;
    size_t deepest = 0;
    bool in_text = false;
    for (size_t i = 0; i < n; i++) {
        if (in_text && json[i] == '\\') {
            i++; /* whatever it escapes does not end the text */
        } else if (in_text) {
            in_text = json[i] != '"';
        } else if (json[i] == '"') {
            in_text = true;
        } else if (json[i] == '{' || json[i] == '[') {
            depth++;
            deepest = depth > deepest ? depth : deepest;
        } else if ((json[i] == '}' || json[i] == ']') && depth > 0) {
            depth--;
        }
    }
    return deepest;
}

/* Appends "results":{...}. */
static enum err write_results(struct filler *f, const struct template_result *results, uint32_t n)
{
    buf_text(&f->out, "\"results\":{");
    for (uint32_t i = 0; i < n; i++) {
        const struct template_result *result = &results[i];
        if (f->out.n + result->n > f->bytes_max) {
            return too_large(f, f->out.n + result->n);
        }
        if (depth_of(result->json, result->n) > LIMIT_JSON_DEPTH - 2) {
            struct where inputs = {.key = "inputs"};
            struct where all = {.up = &inputs, .key = "results"};
            return too_deep(f, &(struct where){.up = &all, .key = result->name});
        }
        buf_text(&f->out, i == 0 ? "" : ",");
        json_write_text(&f->out, result->name);
        buf_char(&f->out, ':');
        if (result->n == 0) {
            buf_text(&f->out, "null");
        } else {
            buf_append(&f->out, result->json, result->n);
        }
    }
    buf_char(&f->out, '}');
    return ERR_OK;
}

static bool contains(const char *text, size_t n, const char *wanted)
{
    size_t length = strlen(wanted);
    const char *at = text;
    while (n >= length && (at = memchr(at, wanted[0], n - length + 1)) != NULL) {
        if (memcmp(at, wanted, length) == 0) {
            return true;
        }
        at++;
        n -= (size_t)(at - text);
        text = at;
    }
    return false;
}

/* Reads the inputs and writes them with every template replaced, but without the closing brace. */
static enum err fill_object(struct filler *f, const char *inputs, size_t n, bool has_results)
{
    struct json *root = NULL;
    struct error why;
    enum err err = json_parse(inputs, n, &root, &why);
    if (err != ERR_OK) {
        return error_set(f->e, ERR_INVALID, "inputs: not JSON: %.500s", why.message);
    }
    struct spot spot = {.where.key = "inputs", .mode = TEXT_FILL, .in_inputs = true};
    if (json_kind_of(root) != JSON_OBJECT) {
        err = error_set(f->e, ERR_INVALID, "inputs: not an object");
    } else if (has_results && json_has(root, "results")) {
        err = error_set(f->e, ERR_INVALID, "inputs.results: the name is taken by the results of other tasks");
    } else {
        buf_char(&f->out, '{');
        err = fill_members(f, root, &spot);
    }
    json_free(root);
    return err;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Copies the inputs without reading them, but without the closing brace. */
static enum err copy_object(struct filler *f, const char *inputs, size_t n)
{
    while (n > 0 && is_blank(inputs[n - 1])) {
        n--;
    }
    while (n > 0 && is_blank(inputs[0])) {
        inputs++;
        n--;
    }
    if (n < 2 || inputs[0] != '{' || inputs[n - 1] != '}') {
        return error_set(f->e, ERR_INVALID, "inputs: not an object");
    }
    do {
        n--;
    } while (is_blank(inputs[n - 1]));
    buf_append(&f->out, inputs, n);
    return ERR_OK;
}

enum err wire_fill_inputs(const char *inputs, size_t n, const struct template_result *results, uint32_t n_results,
                          size_t bytes_max, struct buf *out, struct error *e)
{
    bool has_templates = template_is_in(inputs, n);
    if (n_results == 0 && !has_templates) {
        if (n > bytes_max) {
            return error_set(e, ERR_EXHAUSTED, "the inputs are %zu bytes, but at most %zu are allowed", n, bytes_max);
        }
        buf_append(out, inputs, n);
        return ERR_OK;
    }
    struct filler f;
    filler_init(&f, MARK_RESULT, results, has_templates ? n_results : 0, bytes_max, e);
    bool must_read = has_templates || contains(inputs, n, "\"results\"");
    enum err err = must_read ? fill_object(&f, inputs, n, n_results > 0) : copy_object(&f, inputs, n);
    if (err == ERR_OK && n_results > 0) {
        buf_text(&f.out, f.out.n > 1 ? "," : "");
        err = write_results(&f, results, n_results);
    }
    if (err == ERR_OK) {
        buf_char(&f.out, '}');
        err = f.out.n > bytes_max ? too_large(&f, f.out.n) : ERR_OK;
    }
    if (err == ERR_OK) {
        buf_append(out, f.out.data, f.out.n);
    }
    filler_deinit(&f);
    return err;
}

/* ---- parameters ---- */

/* A text that is no JSON is passed on: whoever reads the tree says, with line and column, what is wrong with it. */
static enum err fill_tree(struct filler *f, const char *tree, size_t n)
{
    struct json *root = NULL;
    enum err err = json_parse(tree, n, &root, NULL);
    if (err != ERR_OK) {
        buf_append(&f->out, tree, n);
        return ERR_OK;
    }
    struct spot spot = {.where.key = "", .mode = TEXT_FILL};
    err = fill_value(f, root, &spot);
    json_free(root);
    return err;
}

enum err wire_fill_params(const char *tree, size_t n, const struct template_param *params, uint32_t n_params,
                          struct buf *out, struct error *e)
{
    struct template_result *values = mem_calloc((size_t)n_params + 1, sizeof *values);
    struct buf *texts = mem_calloc((size_t)n_params + 1, sizeof *texts);
    struct filler f = {0};
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < n_params && err == ERR_OK; i++) {
        struct json *value = NULL;
        struct error why;
        if (!params[i].is_json) {
            json_write_text(&texts[i], params[i].value);
        } else {
            buf_text(&texts[i], params[i].value);
        }
        err = json_parse(texts[i].data, texts[i].n, &value, &why);
        if (err != ERR_OK) {
            error_set(e, ERR_INVALID, "parameter '%.100s': not %s: %.500s", params[i].name,
                      params[i].is_json ? "JSON" : "a text", why.message);
        }
        json_free(value);
        values[i] = (struct template_result){.name = params[i].name, .json = texts[i].data, .n = texts[i].n};
    }
    if (err != ERR_OK) {
        goto out;
    }
    if (!contains(tree, n, "${params.") && !contains(tree, n, "\\u")) { /* the dollar might be an escape of JSON's */
        buf_append(out, tree, n);
        goto out;
    }
    filler_init(&f, MARK_PARAM, values, n_params, LIMIT_TREE_BYTES, e);
    err = fill_tree(&f, tree, n);
    if (err == ERR_OK) {
        buf_append(out, f.out.data, f.out.n);
    }
out:
    filler_deinit(&f);
    for (uint32_t i = 0; i < n_params; i++) {
        buf_deinit(&texts[i]);
    }
    mem_free(texts);
    mem_free(values);
    return err;
}
