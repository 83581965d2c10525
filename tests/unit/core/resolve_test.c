/*
 * resolve_test.c - core/tree.h: names become stages, and everything that is wrong with a tree is listed.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "core/tree.h"
#include "test.h"

static const struct requirement NEED = {0};

#define TASK(task_name, ...)                                                                                           \
    {                                                                                                                  \
        .name = (task_name), .spec = {.need = &NEED, .backoff_ms = -1}, __VA_ARGS__                                    \
    }
#define DEPENDS(...)                                                                                                   \
    .depends_on = (const struct tree_dependency[]){__VA_ARGS__},                                                       \
    .n_depends_on = sizeof((const struct tree_dependency[]){__VA_ARGS__}) / sizeof(struct tree_dependency)

TEST(names_follow_the_rule)
{
    CHECK(tree_name_is_valid("a"));
    CHECK(tree_name_is_valid("_"));
    CHECK(tree_name_is_valid("Load-2_x"));
    CHECK(!tree_name_is_valid(""));
    CHECK(!tree_name_is_valid("2x"));
    CHECK(!tree_name_is_valid("-x"));
    CHECK(!tree_name_is_valid("a.b"));
    CHECK(!tree_name_is_valid("a b"));
    CHECK(!tree_name_is_valid("caf\xc3\xa9"));
    char name[102];
    memset(name, 'n', sizeof(name));
    name[100] = '\0';
    CHECK(tree_name_is_valid(name));
    name[100] = 'n';
    name[101] = '\0';
    CHECK(!tree_name_is_valid(name));
}

TEST(a_tree_becomes_stages_in_its_own_order)
{
    struct tree_task tasks[] = {
        TASK("z", DEPENDS({.task = "a"}, {.task = "b", .optional = true})),
        TASK("a"),
        TASK("b", DEPENDS({.task = "a"})),
    };
    tasks[0].spec.timeout_ms = 77;
    struct arena arena = {0};
    struct tree_errors errors = {0};
    const struct stage_spec *stages = NULL;
    CHECK_ERR(tree_resolve(tasks, 3, &arena, &stages, &errors), ERR_OK);
    CHECK_UINT(errors.count, 0);
    CHECK_STR(stages[0].name, "z");
    CHECK_UINT(stages[0].n_tasks, 1);
    CHECK_UINT(stages[0].timeout_ms, 77);
    CHECK_UINT(stages[0].n_parents, 2);
    CHECK_UINT(stages[0].parents[0].stage, 1);
    CHECK(!stages[0].parents[0].optional);
    CHECK_UINT(stages[0].parents[1].stage, 2);
    CHECK(stages[0].parents[1].optional);
    CHECK_UINT(stages[1].n_parents, 0);
    CHECK_UINT(stages[2].parents[0].stage, 1);
    arena_deinit(&arena);
}

static bool any_line_has(const struct tree_errors *errors, const char *text)
{
    for (uint32_t i = 0; i < errors->count && i < LIMIT_TREE_ERRORS; i++) {
        if (strstr(errors->lines[i], text) != NULL) {
            return true;
        }
    }
    return false;
}

TEST(an_empty_tree_has_an_error)
{
    struct arena arena = {0};
    struct tree_errors errors = {0};
    const struct stage_spec *stages = NULL;
    CHECK_ERR(tree_resolve(NULL, 0, &arena, &stages, &errors), ERR_INVALID);
    CHECK_UINT(errors.count, 1);
    CHECK(stages == NULL);
    arena_deinit(&arena);
}

TEST(all_errors_of_a_tree_are_listed)
{
    struct tree_task tasks[] = {
        TASK("twice"),
        TASK("twice"),
        TASK("bad name"),
        TASK("orphan", DEPENDS({.task = "nobody"})),
        TASK("selfish", DEPENDS({.task = "selfish"})),
        TASK("eager", DEPENDS({.task = "twice"}, {.task = "twice"})),
        TASK("ring_a", DEPENDS({.task = "ring_b"})),
        TASK("ring_b", DEPENDS({.task = "ring_a"})),
    };
    struct arena arena = {0};
    struct tree_errors errors = {0};
    const struct stage_spec *stages = NULL;
    CHECK_ERR(tree_resolve(tasks, 8, &arena, &stages, &errors), ERR_INVALID);
    CHECK(stages == NULL);
    CHECK(errors.count >= 6);
    CHECK(any_line_has(&errors, "twice"));
    CHECK(any_line_has(&errors, "bad name"));
    CHECK(any_line_has(&errors, "nobody"));
    CHECK(any_line_has(&errors, "selfish"));
    CHECK(any_line_has(&errors, "eager"));
    CHECK(any_line_has(&errors, "ring_a"));
    CHECK(any_line_has(&errors, "ring_b"));
    arena_deinit(&arena);
}

TEST(very_many_errors_are_counted_and_the_first_ones_listed)
{
    enum { N = 5000 };
    struct tree_task *tasks = mem_calloc(N, sizeof(*tasks));
    for (uint32_t i = 0; i < N; i++) {
        tasks[i] = (struct tree_task)TASK("same");
    }
    struct arena arena = {0};
    struct tree_errors errors = {0};
    const struct stage_spec *stages = NULL;
    CHECK_ERR(tree_resolve(tasks, N, &arena, &stages, &errors), ERR_INVALID);
    CHECK(errors.count >= LIMIT_TREE_ERRORS);
    CHECK(errors.lines[LIMIT_TREE_ERRORS - 1] != NULL);
    arena_deinit(&arena);
    mem_free(tasks);
}

/* A chain of n tasks; with `closed` the first depends on the last. */
static enum err resolve_chain(uint32_t n, bool closed)
{
    struct tree_task *tasks = mem_calloc(n, sizeof(*tasks));
    struct tree_dependency *depends = mem_calloc(n, sizeof(*depends));
    char(*names)[16] = mem_calloc(n, sizeof(*names));
    for (uint32_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof(names[i]), "t%u", i);
    }
    for (uint32_t i = 0; i < n; i++) {
        depends[i].task = names[i == 0 ? n - 1 : i - 1];
        tasks[i] = (struct tree_task)TASK(names[i]);
        tasks[i].depends_on = &depends[i];
        tasks[i].n_depends_on = i > 0 || closed ? 1 : 0;
    }
    struct arena arena = {0};
    struct tree_errors errors = {0};
    const struct stage_spec *stages = NULL;
    enum err code = tree_resolve(tasks, n, &arena, &stages, &errors);
    CHECK(code == ERR_OK ? stages[n - 1].parents[0].stage == n - 2 : errors.count > 0);
    arena_deinit(&arena);
    mem_free(names);
    mem_free(depends);
    mem_free(tasks);
    return code;
}

TEST(depth_is_free_and_cycles_of_any_length_are_found)
{
    CHECK_ERR(resolve_chain(100000, false), ERR_OK);
    CHECK_ERR(resolve_chain(100000, true), ERR_INVALID);
}
