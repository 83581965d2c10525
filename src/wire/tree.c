/*
 * The document is cut into pieces before any of it is read: the members of the tree, then its tasks. A scanner that only
 * knows brackets and texts finds where each piece ends; base/json.h then reads the pieces strictly, one at a time, so
 * that the nodes of a hundred thousand tasks never exist together. Whatever lies between the pieces is checked here.
 *
 * "tasks" is the last of the members in the canonical order, so the digest of the whole tree can be taken on the way.
 */
#include "wire/tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "wire/canonical.h"
#include "wire/tree_internal.h"

/* ---- cutting ---- */

struct span {
    size_t start;
    size_t end;
    size_t containers; /* lists and objects in it */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_blanks(const struct tree_reader *r, size_t at)
{
    while (at < r->n && is_blank(r->text[at])) {
        at++;
    }
    return at;
}

/* Behind the closing quote of the text that starts at `at`; the end of everything if there is none. */
static size_t skip_text(const struct tree_reader *r, size_t at)
{
    for (at++; at < r->n; at++) {
        if (r->text[at] == '"') {
            return at + 1;
        }
        at += r->text[at] == '\\' ? 1 : 0;
    }
    return r->n;
}

/* Finds the end of the value that starts at `at`, without judging it. */
static struct span cut_value(const struct tree_reader *r, size_t at)
{
    struct span span = {.start = at};
    size_t depth = 0;
    while (at < r->n) {
        char c = r->text[at];
        bool ends = c == ']' || c == '}';
        if (depth == 0 && at > span.start && (ends || c == ',' || is_blank(c))) {
            break;
        }
        if (c == '"') {
            at = skip_text(r, at);
        } else {
            at++;
        }
        if (c == '[' || c == '{') {
            depth++;
            span.containers++;
        } else if (ends && depth > 0) {
            depth--;
        }
        if (depth == 0 && (ends || c == '"')) {
            break;
        }
    }
    span.end = at;
    return span;
}

/* Reads the piece. False, and the text is broken, if it is not JSON. */
static bool read_piece(struct tree_reader *r, struct span span, struct json **out)
{
    struct error e;
    if (json_parse(r->text + span.start, span.end - span.start, out, &e) == ERR_OK) {
        return true;
    }
    /* "at byte N: what" counts from the start of the piece. */
    size_t at = 0;
    const char *what = e.message;
    if (strncmp(what, "at byte ", 8) == 0) {
        char *end = NULL;
        at = (size_t)strtoull(what + 8, &end, 10);
        what = *end == ':' ? end + 2 : what;
    }
    tree__broken(r, span.start + at, what);
    return false;
}

static bool expected(struct tree_reader *r, size_t at, const char *what)
{
    struct buf text = {0};
    if (at >= r->n) {
        buf_format(&text, "expected %s, but the text ends", what);
    } else if (r->text[at] <= 0x20 || r->text[at] >= 0x7f) {
        buf_format(&text, "expected %s, found the byte 0x%02x", what, (unsigned)(unsigned char)r->text[at]);
    } else {
        buf_format(&text, "expected %s, found '%c'", what, r->text[at]);
    }
    tree__broken(r, at, text.data);
    buf_deinit(&text);
    return false;
}

/* ---- the members of the tree ---- */

enum { MEMBER_NAME, MEMBER_ON_FAILURE, MEMBER_PRIORITY, MEMBER_TASKS, MEMBER_COUNT };
static const char *const member_keys[] = {"name", "on_failure", "priority", "tasks", NULL}; /* sorted */

/* More than this is no name or number. */
#define SCALAR_BYTES_MAX 65536

/* Up to this much is read as a whole if it turns out not to be JSON. */
#define WHOLE_BYTES_MAX 262144

static const struct where root = {.key = ""};

static bool read_key(struct tree_reader *r, size_t *at, struct json **out_key)
{
    if (*at >= r->n || r->text[*at] != '"') {
        return expected(r, *at, "a key in quotes");
    }
    struct span span = {.start = *at, .end = skip_text(r, *at)};
    if (!read_piece(r, span, out_key)) {
        return false;
    }
    *at = skip_blanks(r, span.end);
    if (*at >= r->n || r->text[*at] != ':') {
        json_free(*out_key);
        return expected(r, *at, "a colon");
    }
    *at = skip_blanks(r, *at + 1);
    return true;
}

/* Notes where the value of the member is. */
static bool note_member(struct tree_reader *r, const struct json *key, size_t key_at, struct span value,
                        struct span spans[MEMBER_COUNT])
{
    size_t n = 0;
    size_t i = 0;
    const char *text = json_text(key, &n);
    if (strlen(text) != n) {
        tree__broken(r, key_at, "a key must not contain \\u0000");
        return false;
    }
    while (i < MEMBER_COUNT && strcmp(member_keys[i], text) != 0) {
        i++;
    }
    if (i == MEMBER_COUNT) {
        tree__unknown_key(r, &root, text, member_keys);
    } else if (spans[i].end > 0) {
        struct buf what = {0};
        buf_format(&what, "this key is in the object already: \"%s\"", text);
        tree__broken(r, key_at, what.data);
        buf_deinit(&what);
        return false;
    } else {
        spans[i] = value;
    }
    return true;
}

/* Cuts the document into its members. Values of unknown keys are not looked at: they are refused anyway. */
static bool cut_document(struct tree_reader *r, struct span spans[MEMBER_COUNT])
{
    size_t at = skip_blanks(r, skip_blanks(r, 0) + 1);
    bool is_first = true;
    while (at >= r->n || r->text[at] != '}' || !is_first) {
        struct json *key = NULL;
        size_t key_at = at;
        if (!read_key(r, &at, &key)) {
            return false;
        }
        struct span value = cut_value(r, at);
        if (value.start == value.end || strchr(",:]}", r->text[at]) != NULL) {
            json_free(key);
            return expected(r, at, "a value");
        }
        bool is_noted = note_member(r, key, key_at, value, spans);
        json_free(key);
        if (!is_noted) {
            return false;
        }
        is_first = false;
        at = skip_blanks(r, value.end);
        if (at < r->n && r->text[at] == '}') {
            break;
        }
        if (at >= r->n || r->text[at] != ',') {
            return expected(r, at, "a comma or '}'");
        }
        at = skip_blanks(r, at + 1);
    }
    at = skip_blanks(r, at + 1);
    return at == r->n || expected(r, at, "nothing after the tree");
}

static void read_name(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    UNUSED(into);
    if (tree__read_label(r, where, value, LIMIT_NAME_BYTES, r->arena, &r->name) &&
        strstr(r->name, "${params.") != NULL) {
        tree__complain(r, where, "a parameter was not filled in; give it with --param NAME=VALUE");
    }
}

static void read_on_failure(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    const char *text = json_text(value, NULL);
    UNUSED(into);
    r->stop_on_failure = text != NULL && strcmp(text, "stop") == 0;
    if (text == NULL || (!r->stop_on_failure && strcmp(text, "continue") != 0)) {
        tree__expected(r, where, "\"continue\" or \"stop\"", value);
    }
}

static void read_priority(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    static const char *const names[] = {"urgent", "high", "normal", "low"};
    const char *text = json_text(value, NULL);
    uint64_t number = 0;
    UNUSED(into);
    for (uint8_t i = 0; text != NULL && i < ARRAY_LEN(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            r->priority = i;
            return;
        }
    }
    if (json_uint(value, &number) && number < ARRAY_LEN(names)) {
        r->priority = (uint8_t)number;
    } else {
        tree__expected(r, where, "0 to 3, or \"urgent\", \"high\", \"normal\" or \"low\"", value);
    }
}

static tree_member_fn *const member_readers[] = {read_name, read_on_failure, read_priority};

/* Reads one of the small members, and adds it to the digest. */
static bool read_member(struct tree_reader *r, size_t i, struct span span, bool is_first)
{
    struct json *value = NULL;
    struct where where = {.up = &root, .key = member_keys[i]};
    if (span.end - span.start > SCALAR_BYTES_MAX) {
        tree__complain(r, &where, "is too long");
        return true;
    }
    if (!read_piece(r, span, &value)) {
        return false;
    }
    if (value != NULL) {
        member_readers[i](r, &where, value, NULL);
    }
    buf_reset(&r->canonical);
    buf_format(&r->canonical, "%s\"%s\":", is_first ? "" : ",", member_keys[i]);
    wire_write_canonical(&r->canonical, value);
    sha256_update(&r->content, r->canonical.data, r->canonical.n);
    json_free(value);
    return true;
}

/* ---- the tasks ---- */

static bool read_element(struct tree_reader *r, const struct where *where, struct span span)
{
    struct json *task = NULL;
    if (span.end - span.start > LIMIT_TASK_TEXT_BYTES) {
        tree__complain(r, where, "has %zu bytes, but one task may have at most %u", span.end - span.start,
                       (unsigned)LIMIT_TASK_TEXT_BYTES);
        tree__add_unread(r);
        return true;
    }
    if (span.containers > LIMIT_TASK_CONTAINERS) {
        tree__complain(r, where, "has %zu lists and objects, but one task may have at most %u", span.containers,
                       (unsigned)LIMIT_TASK_CONTAINERS);
        tree__add_unread(r);
        return true;
    }
    if (!read_piece(r, span, &task)) {
        return false;
    }
    tree__read_task(r, where, task);
    json_free(task);
    return true;
}

/* Takes the list of tasks apart. */
static bool read_tasks(struct tree_reader *r, struct span list)
{
    struct where tasks = {.up = &root, .key = "tasks"};
    struct where where = {.up = &tasks};
    size_t at = skip_blanks(r, list.start + 1);
    r->has_tasks = true;
    if (at < r->n && r->text[at] == ']') {
        return true;
    }
    for (;; where.index++) {
        if (where.index >= LIMIT_STAGES_PER_JOB) {
            tree__complain(r, &tasks, "a tree has at most %u tasks", (unsigned)LIMIT_STAGES_PER_JOB);
            r->has_tasks = false;
            return true;
        }
        struct span span = cut_value(r, at);
        if (!read_element(r, &where, span)) {
            return false;
        }
        at = skip_blanks(r, span.end);
        if (at < r->n && r->text[at] == ']') {
            return true;
        }
        if (at >= r->n || r->text[at] != ',') {
            return expected(r, at, "a comma or ']'");
        }
        sha256_update(&r->content, ",", 1);
        at = skip_blanks(r, at + 1);
    }
}

static bool read_tasks_member(struct tree_reader *r, struct span span, bool is_first)
{
    struct where where = {.up = &root, .key = "tasks"};
    struct json *value = NULL;
    if (span.end > 0 && r->text[span.start] == '[') {
        const char *opening = is_first ? "\"tasks\":[" : ",\"tasks\":[";
        sha256_update(&r->content, opening, strlen(opening));
        bool is_read = read_tasks(r, span);
        sha256_update(&r->content, "]}", 2);
        return is_read;
    }
    if (span.end > 0 && r->text[span.start] == '{') {
        tree__complain(r, &where, "must be a list of tasks, got an object");
    } else if (span.end - span.start > SCALAR_BYTES_MAX) {
        tree__complain(r, &where, "must be a list of tasks");
    } else if (span.end == 0 || (read_piece(r, span, &value) && value == NULL)) {
        tree__complain(r, &where, "is missing: a tree is {\"tasks\": [{\"name\": ..., \"executor\": ...}, ...]}");
    } else if (!r->is_broken) {
        tree__expected(r, &where, "a list of tasks", value);
        json_free(value);
    }
    return !r->is_broken;
}

static void read_document(struct tree_reader *r)
{
    struct span spans[MEMBER_COUNT] = {{0}};
    size_t at = skip_blanks(r, 0);
    if (r->n > LIMIT_TREE_BYTES) {
        tree__complain(r, &(struct where){.key = "the tree"}, "has %zu bytes, but at most %u are allowed", r->n,
                       (unsigned)LIMIT_TREE_BYTES);
        return;
    }
    if (at == r->n) {
        tree__add_line(r, "the tree is empty; it must be {\"tasks\": [...]}");
        return;
    }
    if (r->text[at] != '{') {
        struct span span = cut_value(r, at);
        struct json *value = NULL;
        if (r->text[at] == '[' || span.end - span.start > SCALAR_BYTES_MAX || read_piece(r, span, &value)) {
            tree__add_line(r, "the tree must be an object, {\"tasks\": [...]}");
        }
        json_free(value);
        return;
    }
    if (!cut_document(r, spans)) {
        return;
    }
    bool is_first = true;
    sha256_update(&r->content, "{", 1);
    for (size_t i = 0; i < MEMBER_TASKS; i++) {
        if (spans[i].end > 0) {
            if (!read_member(r, i, spans[i], is_first)) {
                return;
            }
            is_first = false;
        }
    }
    (void)read_tasks_member(r, spans[MEMBER_TASKS], is_first);
}

/*
 * Where the pieces do not fit together, a quote or bracket may be missing far in front of the place where that shows. A
 * text that a person wrote is small enough to be read as a whole, to find the first thing that is wrong.
 */
static void find_first_fault(struct tree_reader *r)
{
    struct json *value = NULL;
    if (r->is_broken && r->n <= WHOLE_BYTES_MAX && read_piece(r, (struct span){.end = r->n}, &value)) {
        json_free(value);
    }
}

/* ---- the outcome ---- */

/* Adds what is wrong with the tasks as a whole. */
static const struct stage_spec *resolve(struct tree_reader *r)
{
    const struct stage_spec *stages = NULL;
    struct tree_errors errors;
    if (r->is_broken || !r->has_tasks || tree_resolve(r->tasks, r->n_tasks, r->arena, &stages, &errors) == ERR_OK) {
        return stages;
    }
    for (uint32_t i = 0; i < errors.count && i < LIMIT_TREE_ERRORS; i++) {
        tree__add_line(r, errors.lines[i]);
    }
    r->n_errors += errors.count > LIMIT_TREE_ERRORS ? errors.count - LIMIT_TREE_ERRORS : 0;
    return NULL;
}

/* Whole lines, as many as fit into the message, and how many more there are. */
static enum err refuse(const struct tree_reader *r, struct buf *errors, struct error *e)
{
    struct buf message = {0};
    size_t room = sizeof e->message - sizeof "\n… and 4294967295 more" - 1;
    size_t start = 0;
    uint32_t n = 0;
    if (errors != NULL) {
        buf_append(errors, r->lines.data, r->lines.n);
        if (r->n_errors > LIMIT_TREE_ERRORS) {
            buf_format(errors, "\n… and %u more", r->n_errors - LIMIT_TREE_ERRORS);
        }
    }
    while (start < r->lines.n) {
        const char *newline = memchr(r->lines.data + start, '\n', r->lines.n - start);
        size_t end = newline == NULL ? r->lines.n : (size_t)(newline - r->lines.data);
        if (n > 0 && end > room) {
            break;
        }
        n++;
        start = end + 1;
    }
    buf_append(&message, r->lines.data, start - 1);
    if (n < r->n_errors) {
        buf_format(&message, "\n… and %u more", r->n_errors - n);
    }
    enum err err = error_set(e, ERR_INVALID, "%s", message.data);
    buf_deinit(&message);
    return err;
}

enum err wire_read_tree(const void *json, size_t n, struct arena *arena, struct tree_submit *out, struct buf *errors,
                        struct error *e)
{
    struct tree_reader r = {.text = json, .n = n, .arena = arena, .priority = 2};
    enum err err = ERR_OK;
    r.last_payload = &r.first_payload;
    sha256_init(&r.content);
    read_document(&r);
    find_first_fault(&r);
    const struct stage_spec *stages = resolve(&r);
    if (r.n_errors > 0) {
        err = refuse(&r, errors, e);
    } else {
        *out = (struct tree_submit){
            .name = r.name,
            .priority = r.priority,
            .stop_on_failure = r.stop_on_failure,
            .stages = stages,
            .n_stages = r.n_tasks,
            .payloads = tree__list_payloads(&r),
            .n_payloads = r.n_payloads,
        };
        sha256_final(&r.content, out->content.bytes);
    }
    mem_free(r.tasks);
    map_deinit(&r.payloads);
    map_deinit(&r.needs);
    template_path_deinit(&r.path);
    buf_deinit(&r.canonical);
    buf_deinit(&r.lines);
    arena_deinit(&r.scratch);
    arena_deinit(&r.work);
    return err;
}
