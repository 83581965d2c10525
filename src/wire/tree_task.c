/* One task of a tree: its members one by one, then what only shows when all of them are known. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "wire/canonical.h"
#include "wire/tree_internal.h"

struct payload_node {
    struct tree_payload payload;
    struct payload_node *next;
};

/* ---- members ---- */

static void read_name(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    size_t n = 0;
    const char *text = json_text(value, &n);
    if (text == NULL || strlen(text) != n || !tree_name_is_valid(text)) {
        tree__expected(r, where, "a name: a letter or _, then up to 99 letters, digits, _ or -", value);
    } else {
        draft->name = arena_strdup(r->arena, text);
    }
}

bool tree__is_executor_name(const char *name)
{
    size_t n = 0;
    for (; name[n] != '\0'; n++) {
        char c = name[n];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        bool is_other = (c >= '0' && c <= '9') || c == '.' || c == '-';
        if (n >= LIMIT_NAME_BYTES || !(is_letter || (is_other && n > 0))) {
            return false;
        }
    }
    return n > 0;
}

static void read_executor(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    size_t n = 0;
    const char *text = json_text(value, &n);
    if (text == NULL || strlen(text) != n || !tree__is_executor_name(text)) {
        tree__expected(r, where, "the name of an executor, such as \"command\", \"http\", \"sql\" or a plug-in's",
                       value);
    } else {
        draft->executor = arena_strdup(&r->scratch, text);
    }
}

static void read_inputs(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    if (json_kind_of(value) != JSON_OBJECT) {
        tree__expected(r, where, "an object", value);
    } else {
        draft->inputs = value;
    }
}

static void read_dependency_task(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct tree_dependency *dependency = into;
    size_t n = 0;
    const char *text = json_text(value, &n);
    if (text == NULL || strlen(text) != n || !tree_name_is_valid(text)) {
        tree__expected(r, where, "the name of another task", value);
    } else {
        dependency->task = arena_strdup(&r->work, text);
    }
}

static void read_required(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct tree_dependency *dependency = into;
    bool required = true;
    if (tree__read_bool(r, where, value, &required)) {
        dependency->optional = !required;
    }
}

static const struct tree_member dependency_members[] = {{"task", read_dependency_task},
                                                        {"required", read_required},
                                                        {NULL, NULL}};

/* A name, or {"task": name, "required": bool}. `task` stays NULL if there is no usable name. */
static void read_dependency(struct tree_reader *r, const struct where *where, const struct json *value,
                            struct tree_dependency *out)
{
    *out = (struct tree_dependency){NULL, false};
    if (json_kind_of(value) == JSON_TEXT) {
        read_dependency_task(r, where, value, out);
    } else if (json_kind_of(value) != JSON_OBJECT) {
        tree__expected(r, where, "a task's name, or {\"task\": NAME, \"required\": false}", value);
    } else {
        tree__read_object(r, where, value, dependency_members, out);
        if (!json_has(value, "task")) {
            tree__complain(r, where, "\"task\" is missing: the name of the task to wait for");
        }
    }
}

static void read_depends_on(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    size_t n = json_count(value);
    if (json_kind_of(value) != JSON_ARRAY) {
        tree__expected(r, where, "a list of names of tasks", value);
        return;
    }
    r->n_edges += n;
    if (r->n_edges > LIMIT_EDGES_PER_JOB) {
        if (r->n_edges - n <= LIMIT_EDGES_PER_JOB) {
            tree__complain(r, where, "a tree has at most %u dependencies", (unsigned)LIMIT_EDGES_PER_JOB);
        }
        return;
    }
    draft->depends_on = arena_alloc(&r->work, n * sizeof *draft->depends_on);
    for (size_t i = 0; i < n; i++) {
        struct where element = {.up = where, .index = i};
        read_dependency(r, &element, json_at(value, i), &draft->depends_on[draft->n_depends_on]);
        draft->n_depends_on += draft->depends_on[draft->n_depends_on].task != NULL ? 1 : 0;
    }
}

static void read_timeout(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    uint64_t ms = 0;
    if (tree__read_uint(r, where, value, 1, LIMIT_TIMEOUT_MS, &ms)) {
        draft->spec.timeout_ms = (uint32_t)ms;
    }
}

static void read_exclusive(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    (void)tree__read_bool(r, where, value, &draft->spec.exclusive);
}

static void read_max_attempts(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    uint64_t n = 0;
    if (tree__read_uint(r, where, value, 1, LIMIT_TASK_ATTEMPTS, &n)) {
        draft->spec.max_attempts = (uint32_t)n;
    }
}

static void read_backoff(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    uint64_t ms = 0;
    if (tree__read_uint(r, where, value, 0, LIMIT_BACKOFF_MS, &ms)) {
        draft->spec.backoff_ms = (int64_t)ms;
    }
}

static const struct tree_member retry_members[] = {{"max_attempts", read_max_attempts},
                                                   {"backoff_ms", read_backoff},
                                                   {NULL, NULL}};

static void read_retry(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    tree__read_object(r, where, value, retry_members, into);
}

static void read_ops(struct tree_reader *r, const struct where *where, const struct json *value, void *into)
{
    struct task_draft *draft = into;
    (void)tree__read_labels(r, where, value, LIMIT_OPS_PER_TASK, &draft->need.ops);
}

static const struct tree_member task_members[] = {
    {"name", read_name},
    {"executor", read_executor},
    {"inputs", read_inputs},
    {"depends_on", read_depends_on},
    {"timeout_ms", read_timeout},
    {"exclusive", read_exclusive},
    {"retry", read_retry},
    {"placement", tree__read_placement},
    {"required_custom_ops", read_ops},
    {NULL, NULL},
};

/* ---- the task as a whole ---- */

static bool is_same_need(const void *value, const void *key)
{
    return requirement_equal(value, key);
}

/* The one copy of all requirements that are equal to this one. Not called any more once there was an error. */
static const struct requirement *share_need(struct tree_reader *r, const struct where *where,
                                            const struct requirement *need)
{
    uint64_t hash = requirement_hash(need);
    const struct requirement *shared = map_get(&r->needs, hash, is_same_need, need);
    if (shared == NULL) {
        shared = requirement_copy_in(r->arena, need);
        map_put(&r->needs, hash, (void *)(uintptr_t)shared);
        if (r->needs.count > LIMIT_REQUIREMENTS_PER_JOB) {
            tree__complain(r, where, "a tree has at most %u different combinations of executor and placement",
                           (unsigned)LIMIT_REQUIREMENTS_PER_JOB);
        }
    }
    return shared;
}

static bool has_digest(const void *value, const void *key)
{
    return memcmp(&((const struct payload_node *)value)->payload.digest, key, sizeof(struct digest)) == 0;
}

/* Keeps the payload, unless it is there, and writes what the task says of it. */
static const struct task_spec *keep_payload(struct tree_reader *r, const char *bytes, size_t n)
{
    struct digest digest;
    uint64_t hash = 0;
    sha256_once(bytes, n, digest.bytes);
    memcpy(&hash, digest.bytes, sizeof hash);
    if (map_get(&r->payloads, hash, has_digest, &digest) == NULL) {
        struct payload_node *node = arena_alloc(&r->work, sizeof *node);
        *node = (struct payload_node){.payload = {digest, arena_copy(r->arena, bytes, n), n}};
        map_put(&r->payloads, hash, node);
        *r->last_payload = node;
        r->last_payload = &node->next;
        r->n_payloads++;
    }
    struct task_spec *spec = arena_alloc(r->arena, sizeof *spec);
    *spec = (struct task_spec){.inputs = digest, .inputs_bytes = (uint32_t)n};
    return spec;
}

const struct tree_payload *tree__list_payloads(struct tree_reader *r)
{
    struct tree_payload *list = arena_alloc(r->arena, r->n_payloads * sizeof *list);
    size_t n = 0;
    for (const struct payload_node *node = r->first_payload; node != NULL; node = node->next) {
        list[n++] = node->payload;
    }
    return list;
}

/*
 * Writes the canonical form of the task, which goes into the tree's digest; its inputs, which lie inside, are also a
 * payload.
 */
static void keep_inputs(struct tree_reader *r, const struct where *where, const struct json *task,
                        struct task_draft *draft)
{
    size_t n = 0;
    size_t start = 0;
    size_t end = 0;
    struct wire_member *members = wire_sorted_members(task, &n);
    buf_reset(&r->canonical);
    for (size_t i = 0; i < n; i++) {
        buf_char(&r->canonical, i == 0 ? '{' : ',');
        json_write_text(&r->canonical, members[i].key);
        buf_char(&r->canonical, ':');
        size_t before = r->canonical.n;
        wire_write_canonical(&r->canonical, members[i].value);
        if (members[i].value != NULL && members[i].value == draft->inputs) {
            start = before;
            end = r->canonical.n;
        }
    }
    buf_text(&r->canonical, n == 0 ? "{}" : "}");
    mem_free(members);
    sha256_update(&r->content, r->canonical.data, r->canonical.n);
    if (end - start > LIMIT_PAYLOAD_BYTES) {
        struct where inputs = {.up = where, .key = "inputs"};
        tree__complain(
            r, &inputs,
            "has %zu bytes, but at most %u are allowed; keep large data in a file or table and pass its name",
            end - start, (unsigned)LIMIT_PAYLOAD_BYTES);
    } else if (r->n_errors == 0) {
        draft->spec.tasks =
            end == 0 ? keep_payload(r, "{}", 2) : keep_payload(r, r->canonical.data + start, end - start);
    }
}

/* A name that no task has, so that the other tasks can still be checked against each other. */
static const char *stand_in(struct tree_reader *r)
{
    return arena_format(&r->work, "_unnamed_%020u_%065u", r->n_tasks, 0u);
}

static void add_task(struct tree_reader *r, const struct task_draft *draft)
{
    r->tasks = mem_grow(r->tasks, &r->cap_tasks, r->n_tasks + 1, sizeof *r->tasks);
    r->tasks[r->n_tasks] = (struct tree_task){
        .name = draft->name != NULL ? draft->name : stand_in(r),
        .depends_on = draft->depends_on,
        .n_depends_on = draft->n_depends_on,
        .spec = draft->spec,
    };
    r->n_tasks++;
}

static void check_child(struct tree_reader *r, const struct where *where, const struct task_draft *draft)
{
    if (draft->is_placed || draft->need.ops.count > 0) {
        struct where member = {.up = where, .key = draft->is_placed ? "placement" : "required_custom_ops"};
        tree__complain(r, &member, "a task with the executor \"sql\" runs as a job of its own and cannot be placed");
    }
}

void tree__read_task(struct tree_reader *r, const struct where *where, const struct json *task)
{
    struct task_draft draft = {.spec = {.n_tasks = 1, .backoff_ms = -1}};
    arena_reset(&r->scratch);
    tree__read_object(r, where, task, task_members, &draft);
    if (json_kind_of(task) == JSON_OBJECT) {
        if (json_get(task, "name") == NULL) {
            tree__complain(r, where, "\"name\" is missing");
        }
        if (json_get(task, "executor") == NULL) {
            tree__complain(r, where,
                           "\"executor\" is missing: \"command\", \"http\", \"sql\", \"sleep\" or a plug-in's name");
        }
        if (draft.inputs != NULL || json_get(task, "inputs") == NULL) {
            tree__check_inputs(r, where, &draft);
        }
    }
    draft.spec.child = draft.executor != NULL && strcmp(draft.executor, "sql") == 0;
    if (draft.spec.child) {
        check_child(r, where, &draft);
    }
    draft.need.executor = draft.executor;
    if (json_kind_of(task) == JSON_OBJECT) {
        keep_inputs(r, where, task, &draft);
    }
    if (r->n_errors == 0) {
        draft.spec.need = share_need(r, where, &draft.need);
    }
    add_task(r, &draft);
}

void tree__add_unread(struct tree_reader *r)
{
    struct task_draft draft = {0};
    add_task(r, &draft);
}
