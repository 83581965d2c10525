/*
 * What can be known about a task's inputs before it runs. A text that is one template stands for a value that is not
 * known yet, so it is let pass wherever a value is expected; a text with a template inside is a text.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "wire/tree_internal.h"

/* ---- templates ---- */

static bool is_template(struct tree_reader *r, const struct json *value)
{
    size_t n = 0;
    size_t at = 0;
    struct template_piece piece;
    const char *text = json_text(value, &n);
    return text != NULL && template_next(text, n, &at, &r->path, &piece) && at == n && piece.mark == MARK_RESULT;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool depends_on(struct tree_reader *r, struct task_draft *draft, const char *name)
{
    if (draft->sorted == NULL) {
        draft->sorted = arena_alloc(&r->scratch, (draft->n_depends_on + 1) * sizeof *draft->sorted);
        for (uint32_t i = 0; i < draft->n_depends_on; i++) {
            draft->sorted[i] = draft->depends_on[i].task;
        }
        qsort(draft->sorted, draft->n_depends_on, sizeof *draft->sorted, compare_names);
    }
    return bsearch(&name, draft->sorted, draft->n_depends_on, sizeof *draft->sorted, compare_names) != NULL;
}

/*
 * `${result.x}` would be taken for plain text. No shell has a variable with a dot in its name, so one that is called
 * almost like ours is a slip.
 */
static void check_slips(struct tree_reader *r, const struct where *where, const char *text, size_t n)
{
    static const char *const known[] = {"results", "params", NULL};
    for (size_t i = 0; i + 2 < n; i++) {
        if (text[i] != '$' || text[i + 1] != '{') {
            continue;
        }
        size_t length = 0;
        while (i + 2 + length < n && ((text[i + 2 + length] | 0x20) >= 'a' && (text[i + 2 + length] | 0x20) <= 'z')) {
            length++;
        }
        const char *nearest = length == 0 ? NULL : tree__nearest(text + i + 2, length, known);
        if (nearest != NULL && i + 2 + length < n && text[i + 2 + length] == '.') {
            tree__complain(r, where, "${%.*s.…} is not a template; did you mean ${%s.…}? Write $${ for ${ itself",
                           (int)length, text + i + 2, nearest);
        }
    }
}

/* Says what is wrong with a template, which is followed by `what`, its first name and `then`. */
static void complain_template(struct tree_reader *r, const struct where *where, const struct template_piece *piece,
                              const char *what, const char *then)
{
    struct buf shown = {0};
    struct buf name = {0};
    write_printable(&shown, piece->raw, piece->raw_n, TEMPLATE_BYTES_SHOWN);
    if (piece->broken == NULL) {
        write_printable(&name, template_key(&r->path, 0), strlen(template_key(&r->path, 0)), LIMIT_NAME_BYTES);
    }
    tree__complain(r, where, "%s %s%s%s", shown.data, what, piece->broken == NULL ? name.data : piece->broken, then);
    buf_deinit(&shown);
    buf_deinit(&name);
}

static void check_piece(struct tree_reader *r, const struct where *where, struct task_draft *draft,
                        const struct template_piece *piece)
{
    if (piece->mark == MARK_NONE) {
        check_slips(r, where, piece->raw, piece->raw_n);
    } else if (piece->broken != NULL) {
        complain_template(r, where, piece, "is not a template: ", "; write $${ for ${ itself");
    } else if (piece->mark == MARK_PARAM) {
        complain_template(r, where, piece, "was not filled in; give it with --param ",
                          "=VALUE, or write $${ for ${ itself");
    } else if (piece->mark == MARK_RESULT && !depends_on(r, draft, template_key(&r->path, 0))) {
        complain_template(r, where, piece, "needs the result of '",
                          "', which this task does not wait for; add it to depends_on");
    }
}

static void check_text(struct tree_reader *r, const struct where *where, struct task_draft *draft,
                       const struct json *value)
{
    size_t n = 0;
    size_t at = 0;
    const char *text = json_text(value, &n);
    struct template_piece piece;
    if (memchr(text, '$', n) == NULL) {
        return;
    }
    while (template_next(text, n, &at, &r->path, &piece)) {
        check_piece(r, where, draft, &piece);
    }
}

/* Calls itself as deep as the value is nested, which the reader bounds by LIMIT_JSON_DEPTH. */
static void check_templates(struct tree_reader *r, const struct where *where, struct task_draft *draft,
                            const struct json *value)
{
    struct where inner = {.up = where};
    size_t cursor = 0;
    const struct json *member = NULL;
    if (json_kind_of(value) == JSON_TEXT) {
        check_text(r, where, draft, value);
    }
    if (json_kind_of(value) == JSON_ARRAY) {
        for (inner.index = 0; inner.index < json_count(value); inner.index++) {
            check_templates(r, &inner, draft, json_at(value, inner.index));
        }
    }
    while (json_next(value, &cursor, &inner.key, &member)) {
        check_templates(r, &inner, draft, member);
    }
}

/* ---- the built-in executors ---- */

static void check_is_text(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    if (json_kind_of(value) != JSON_TEXT) {
        tree__expected(r, where, "a text", value);
    }
}

/* A text that a program can be given: the system's own end at the first NUL. */
static bool is_argument(const struct json *value)
{
    size_t n = 0;
    const char *text = json_text(value, &n);
    return text != NULL && strlen(text) == n;
}

static void check_is_argument(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    if (!is_argument(value)) {
        bool is_text = json_kind_of(value) == JSON_TEXT;
        tree__expected(r, where, is_text ? "a text without the character NUL" : "a text", value);
    }
}

static void check_is_some_text(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    const char *text = json_text(value, NULL);
    UNUSED(into);
    if (!is_argument(value) || text[strspn(text, " \t\r\n")] == '\0') {
        tree__expected(r, where, "a text that is not empty", value);
    }
}

static void check_anything(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(r);
    UNUSED(where);
    UNUSED(value);
    UNUSED(into);
}

static void check_argv(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    if (is_template(r, value)) {
        return;
    }
    if (json_kind_of(value) != JSON_ARRAY || json_count(value) == 0) {
        tree__expected(r, where, "a list of texts, the program first, such as [\"echo\", \"hello\"]", value);
        return;
    }
    for (size_t i = 0; i < json_count(value); i++) {
        struct where element = {.up = where, .index = i};
        if (i == 0) {
            check_is_some_text(r, &element, json_at(value, i), into);
        } else {
            check_is_argument(r, &element, json_at(value, i), into);
        }
    }
}

/* An object whose members are checked one by one, null included. */
static void check_each(struct tree_reader *r, const struct where *where, const struct json *value,
                       tree_member_fn *check)
{
    size_t cursor = 0;
    struct where member = {.up = where};
    const struct json *inner = NULL;
    if (json_kind_of(value) != JSON_OBJECT && !is_template(r, value)) {
        tree__expected(r, where, "an object of texts", value);
    }
    while (json_next(value, &cursor, &member.key, &inner)) {
        check(r, &member, inner, NULL);
    }
}

static void check_variable(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    static const char *const own[] = {"CAPSTAN_IDEMPOTENCY_KEY", "CAPSTAN_TASK_KEY", "CAPSTAN_JOB_ID",
                                      "CAPSTAN_TASK_NAME", "CAPSTAN_ATTEMPT"};
    check_is_argument(r, where, value, into);
    if (where->key[0] == '\0' || strchr(where->key, '=') != NULL) {
        tree__complain(r, where, "a variable has a name, without '='");
    }
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        if (strcmp(where->key, own[i]) == 0) {
            tree__complain(r, where, "is set by Capstan itself");
        }
    }
}

static void check_env(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    check_each(r, where, value, check_variable);
}

static void check_header(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    const char *text = json_text(value, NULL);
    UNUSED(into);
    if (!is_argument(value) || text[strcspn(text, "\r\n")] != '\0') {
        tree__expected(r, where, "a text of one line", value);
    }
}

static void check_headers(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    check_each(r, where, value, check_header);
}

/* A number between the two, or a list of such. */
static void check_codes(struct tree_reader *r, const struct where *where, const struct json *value, uint64_t min,
                        uint64_t max)
{
    uint64_t code = 0;
    if (is_template(r, value)) {
        return;
    }
    if (json_kind_of(value) != JSON_ARRAY) {
        (void)tree__read_uint(r, where, value, min, max, &code);
        return;
    }
    for (size_t i = 0; i < json_count(value); i++) {
        struct where element = {.up = where, .index = i};
        if (!is_template(r, json_at(value, i))) {
            (void)tree__read_uint(r, &element, json_at(value, i), min, max, &code);
        }
    }
}

static void check_exit_codes(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    if (json_kind_of(value) != JSON_ARRAY && !is_template(r, value)) {
        tree__expected(r, where, "a list of exit codes", value);
        return;
    }
    check_codes(r, where, value, 0, 255);
}

static void check_status(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    if (json_kind_of(value) == JSON_ARRAY && json_count(value) == 0) {
        tree__expected(r, where, "a status, or a list of those that are good", value);
    }
    check_codes(r, where, value, 100, 599);
}

static void check_ms(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    uint64_t ms = 0;
    if (!is_template(r, value)) {
        (void)tree__read_uint(r, where, value, 0, LIMIT_TIMEOUT_MS, &ms);
    }
}

static void check_params(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    if (json_kind_of(value) != JSON_ARRAY && json_kind_of(value) != JSON_OBJECT && !is_template(r, value)) {
        tree__expected(r, where, "a list, or an object for named parameters", value);
    }
}

static void check_url(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    const char *text = json_text(value, NULL);
    UNUSED(into);
    if (!is_argument(value) || (strncasecmp(text, "http://", 7) != 0 && strncasecmp(text, "https://", 8) != 0 &&
                                strncmp(text, "${results.", 10) != 0)) {
        tree__expected(r, where, "an address that starts with http:// or https://", value);
    }
}

static void check_method(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    const char *text = json_text(value, NULL);
    UNUSED(into);
    for (size_t i = 0; is_argument(value) && i < ARRAY_LEN(methods); i++) {
        if (strcasecmp(text, methods[i]) == 0) {
            return;
        }
    }
    if (!is_template(r, value)) {
        tree__expected(r, where, "GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS", value);
    }
}

static void check_limit(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    uint64_t limit = 0;
    UNUSED(into);
    if (!is_template(r, value)) {
        (void)tree__read_uint(r, where, value, 1, LIMIT_QUANTITY, &limit);
    }
}

static const struct tree_member limit_members[] = {
    {"cpu_seconds", check_limit}, {"memory_bytes", check_limit}, {"open_files", check_limit},
    {"file_bytes", check_limit},  {"output_bytes", check_limit}, {NULL, NULL},
};

static void check_limits(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    if (json_kind_of(value) == JSON_OBJECT) {
        tree__read_object(r, where, value, limit_members, NULL);
    } else if (!is_template(r, value)) {
        tree__expected(r, where, "an object, such as {\"cpu_seconds\": 60}", value);
    }
}

static const struct tree_member command_inputs[] = {
    {"argv", check_argv},
    {"env", check_env},
    {"cwd", check_is_argument},
    {"stdin", check_is_text},
    {"no_retry_exit_codes", check_exit_codes},
    {"limits", check_limits},
    {NULL, NULL},
};
static const struct tree_member http_inputs[] = {
    {"url", check_url},
    {"method", check_method},
    {"headers", check_headers},
    {"json", check_anything},
    {"body", check_is_text},
    {"expect_status", check_status},
    {NULL, NULL},
};
static const struct tree_member sql_inputs[] = {
    {"sql", check_is_some_text},
    {"params", check_params},
    {NULL, NULL},
};
static const struct tree_member sleep_inputs[] = {{"ms", check_ms}, {NULL, NULL}};

/* The first member of each table is the one that must be there. */
static const struct {
    const char *executor;
    const struct tree_member *members;
    const char *what;
} built_in[] = {
    {"command", command_inputs, "the program and its arguments, such as [\"echo\", \"hello\"]"},
    {"http", http_inputs, "the address to call"},
    {"sql", sql_inputs, "the query"},
    {"sleep", sleep_inputs, "how many milliseconds to sleep"},
};

static void check_built_in(struct tree_reader *r, const struct where *where, const struct task_draft *draft, size_t i)
{
    const char *needed = built_in[i].members[0].key;
    if (draft->inputs != NULL) {
        tree__read_object(r, where, draft->inputs, built_in[i].members, NULL);
    }
    if (json_get(draft->inputs, needed) == NULL) {
        tree__complain(r, where, "\"%s\" is missing: %s", needed, built_in[i].what);
    }
    if (strcmp(needed, "url") == 0 && json_has(draft->inputs, "json") &&
        json_get(draft->inputs, "body") != NULL) { /* a body of JSON may be null */
        tree__complain(r, where, "\"json\" and \"body\" are both given; a request has only one of them");
    }
}

void tree__check_inputs(struct tree_reader *r, const struct where *where, struct task_draft *draft)
{
    struct where inputs = {.up = where, .key = "inputs"};
    for (size_t i = 0; draft->executor != NULL && i < ARRAY_LEN(built_in); i++) {
        if (strcmp(draft->executor, built_in[i].executor) == 0) {
            check_built_in(r, &inputs, draft, i);
        }
    }
    if (draft->inputs == NULL) {
        return;
    }
    if (draft->n_depends_on > 0 && json_has(draft->inputs, "results")) {
        struct where results = {.up = &inputs, .key = "results"};
        tree__complain(r, &results, "this name is taken: the results of the tasks in depends_on are put there");
    }
    check_templates(r, &inputs, draft, draft->inputs);
}
