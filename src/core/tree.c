/* Names become numbers, and whatever is wrong is collected. Cycles are what is left when all that can run has been taken away. */
#include "core/tree.h"

#include <string.h>

#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/siphash.h"

struct resolver {
    const struct tree_task *tasks;
    uint32_t n;
    struct map names; /* of struct tree_task */
    struct arena *arena;
    struct tree_errors *errors;
};

/* Counts one more error; true if there is room to say what it is. */
static bool may_complain(struct resolver *r)
{
    return r->errors->count++ < LIMIT_TREE_ERRORS;
}

static void add_line(struct resolver *r, const char *line)
{
    if (r->errors->lines == NULL) {
        r->errors->lines = arena_alloc(r->arena, LIMIT_TREE_ERRORS * sizeof *r->errors->lines);
    }
    r->errors->lines[r->errors->count - 1] = line;
}

/* Lines are formatted only while there is room for them: a large tree can be wrong in a million places. */
#define COMPLAIN(r, ...)                                                                                               \
    do {                                                                                                               \
        if (may_complain(r)) {                                                                                         \
            add_line(r, arena_format((r)->arena, __VA_ARGS__));                                                        \
        }                                                                                                              \
    } while (0)

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool tree_name_is_valid(const char *name)
{
    size_t n = 0;
    if (!is_letter(name[0])) {
        return false;
    }
    for (; name[n] != '\0'; n++) {
        if (n >= LIMIT_NAME_BYTES || !(is_letter(name[n]) || (name[n] >= '0' && name[n] <= '9') || name[n] == '-')) {
            return false;
        }
    }
    return true;
}

static bool has_name(const void *value, const void *key)
{
    return strcmp(((const struct tree_task *)value)->name, key) == 0;
}

static uint64_t hash_name(const char *name)
{
    static const struct siphash_key key = {0x74726565, 0};
    return siphash(&key, name, strlen(name));
}

static const struct tree_task *find_task(const struct resolver *r, const char *name)
{
    return map_get(&r->names, hash_name(name), has_name, name);
}

static void collect_names(struct resolver *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const struct tree_task *task = &r->tasks[i];
        if (!tree_name_is_valid(task->name)) {
            COMPLAIN(r, "task %u: '%.100s' is not a name: use [A-Za-z_][A-Za-z0-9_-]{0,99}", i, task->name);
        } else if (find_task(r, task->name) != NULL) {
            COMPLAIN(r, "task '%s' is there more than once", task->name);
        } else {
            map_put(&r->names, hash_name(task->name), (void *)(uintptr_t)task);
        }
    }
}

/*
 * Resolves what can be resolved and complains about the rest. A fan-in can have 100,000 dependencies, so seeing one
 * twice must not compare them all.
 */
static const struct stage_parent *resolve_parents(struct resolver *r, const struct tree_task *task, uint32_t *seen_by,
                                                  uint32_t mark, uint32_t *out_n)
{
    struct stage_parent *parents = arena_alloc(r->arena, task->n_depends_on * sizeof *parents);
    *out_n = 0;
    for (uint32_t k = 0; k < task->n_depends_on; k++) {
        const struct tree_dependency *dependency = &task->depends_on[k];
        const struct tree_task *parent = find_task(r, dependency->task);
        if (parent == NULL) {
            COMPLAIN(r, "task '%.100s' depends on '%.100s', which is not in the tree", task->name, dependency->task);
            continue;
        }
        uint32_t index = (uint32_t)(parent - r->tasks);
        if (parent == task) {
            COMPLAIN(r, "task '%s' depends on itself", task->name);
            continue;
        }
        if (seen_by[index] == mark) {
            COMPLAIN(r, "task '%s' depends on '%s' twice", task->name, parent->name);
            continue;
        }
        seen_by[index] = mark;
        parents[(*out_n)++] = (struct stage_parent){.stage = index, .added = true, .optional = dependency->optional};
    }
    return parents;
}

struct walk {
    uint32_t *open;  /* unresolved parents per task */
    uint32_t *first; /* per task: first of its edges in `next` */
    uint32_t *next;
    uint32_t *child;
    uint32_t *work;
};

/* Takes away tasks whose parents are all gone; if some are left, walking up from one of them finds a cycle. */
static uint32_t remove_acyclic(const struct resolver *r, const struct stage_spec *stages, struct walk *w)
{
    uint32_t n_edges = 0;
    uint32_t n_work = 0;
    memset(w->first, 0xff, r->n * sizeof *w->first);
    for (uint32_t i = 0; i < r->n; i++) {
        w->open[i] = stages[i].n_parents;
        for (uint32_t k = 0; k < stages[i].n_parents; k++) {
            uint32_t parent = stages[i].parents[k].stage;
            w->child[n_edges] = i;
            w->next[n_edges] = w->first[parent];
            w->first[parent] = n_edges++;
        }
        if (w->open[i] == 0) {
            w->work[n_work++] = i;
        }
    }
    for (uint32_t done = 0; done < n_work; done++) {
        for (uint32_t e = w->first[w->work[done]]; e != UINT32_MAX; e = w->next[e]) {
            if (--w->open[w->child[e]] == 0) {
                w->work[n_work++] = w->child[e];
            }
        }
    }
    return n_work;
}

static uint32_t open_parent(const struct stage_spec *stage, const uint32_t *open)
{
    for (uint32_t k = 0; k < stage->n_parents; k++) {
        if (open[stage->parents[k].stage] > 0) {
            return stage->parents[k].stage;
        }
    }
    ASSERT(!"a task in a cycle has a parent in it");
}

/* Names the tasks of one cycle, in the order in which they wait for each other. Looks at each task's parents once. */
static void name_cycle(struct resolver *r, const struct stage_spec *stages, struct walk *w)
{
    uint32_t *up = w->work; /* done with; UINT32_MAX: not looked at */
    uint32_t at = 0;
    memset(up, 0xff, r->n * sizeof *up);
    while (w->open[at] == 0) {
        at++;
    }
    while (up[at] == UINT32_MAX) { /* until one comes up again: that one is in a cycle */
        up[at] = open_parent(&stages[at], w->open);
        at = up[at];
    }
    const char *text = arena_format(r->arena, "a cycle: '%s'", r->tasks[at].name);
    uint32_t shown = 0;
    uint32_t next = at;
    do {
        next = up[next];
        if (++shown <= 10) {
            text = arena_format(r->arena, "%s waits for '%s'", text, r->tasks[next].name);
        }
    } while (next != at);
    if (shown > 10) {
        text = arena_format(r->arena, "%s ... (%u tasks)", text, shown);
    }
    COMPLAIN(r, "%s", text);
}

static void find_cycle(struct resolver *r, const struct stage_spec *stages)
{
    uint64_t n_edges = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        n_edges += stages[i].n_parents;
    }
    struct walk w = {
        .open = mem_calloc(r->n, sizeof *w.open),
        .first = mem_calloc(r->n, sizeof *w.first),
        .next = mem_calloc(n_edges, sizeof *w.next),
        .child = mem_calloc(n_edges, sizeof *w.child),
        .work = mem_calloc(r->n, sizeof *w.work),
    };
    if (remove_acyclic(r, stages, &w) < r->n) {
        name_cycle(r, stages, &w);
    }
    mem_free(w.open);
    mem_free(w.first);
    mem_free(w.next);
    mem_free(w.child);
    mem_free(w.work);
}

enum err tree_resolve(const struct tree_task *tasks, uint32_t n, struct arena *arena,
                      const struct stage_spec **out_stages, struct tree_errors *errors)
{
    struct resolver r = {.tasks = tasks, .n = n, .arena = arena, .errors = errors};
    *errors = (struct tree_errors){NULL, 0};
    if (n == 0) {
        COMPLAIN(&r, "%s", "the tree has no tasks");
        return ERR_INVALID;
    }
    if (n > LIMIT_STAGES_PER_JOB) {
        COMPLAIN(&r, "a tree has at most %u tasks, not %u", (unsigned)LIMIT_STAGES_PER_JOB, n);
        return ERR_INVALID;
    }
    collect_names(&r);
    struct stage_spec *stages = arena_alloc(arena, n * sizeof *stages);
    uint32_t *seen_by = mem_calloc(n, sizeof *seen_by);
    for (uint32_t i = 0; i < n; i++) {
        stages[i] = tasks[i].spec;
        stages[i].name = tasks[i].name;
        stages[i].n_tasks = 1;
        stages[i].parents = resolve_parents(&r, &tasks[i], seen_by, i + 1, &stages[i].n_parents);
    }
    mem_free(seen_by);
    map_deinit(&r.names);
    find_cycle(&r, stages);
    if (errors->count > 0) {
        return ERR_INVALID;
    }
    *out_stages = stages;
    return ERR_OK;
}
