/*
 * tree.h - from the tasks of a tree, which name each other, to stages, which count each other.
 *
 * Looks at the whole tree and lists everything that is wrong with it: no tasks, names that are not allowed or used
 * twice, dependencies on unknown tasks or on itself, dependencies named twice, cycles. Depth and width are free.
 */
#ifndef CAPSTAN_CORE_TREE_H
#define CAPSTAN_CORE_TREE_H

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "core/command.h"

struct tree_dependency {
    const char *task;
    bool optional;
};

struct tree_task {
    const char *name;
    const struct tree_dependency *depends_on;
    uint32_t n_depends_on;
    struct stage_spec spec; /* all but name, parents and n_tasks, which are filled in */
};

struct tree_errors {
    const char **lines; /* in the arena; at most LIMIT_TREE_ERRORS of them */
    uint32_t count;     /* may be more than there are lines */
};

/* A task's name: [A-Za-z_][A-Za-z0-9_-]{0,99}. */
bool tree_name_is_valid(const char *name);

/*
 * Writes one stage per task, in the tree's order, into the arena. ERR_INVALID with all errors if there are any;
 * `out_stages` is untouched then.
 */
MUST_USE enum err tree_resolve(const struct tree_task *tasks, uint32_t n, struct arena *arena,
                               const struct stage_spec **out_stages, struct tree_errors *errors);

#endif
