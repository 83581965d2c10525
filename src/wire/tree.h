/*
 * tree.h - a task tree, from JSON to what CMD_SUBMIT takes.
 *
 * The whole document is looked at, and everything that is wrong with it is said at once, each with its place
 * (`tasks[3].retry.max_attempts: ...`) and, where it is not obvious, with the remedy: unknown keys, values that are not
 * allowed, inputs that a built-in executor could not use, templates of tasks that are not waited for, names used twice,
 * unknown dependencies, cycles. docs/task-trees.md describes the format.
 *
 * The document is read task by task, so that memory grows with what is kept and not with the nodes of the text.
 *
 * Ownership: what is read lives in the caller's arena. Threads: any.
 */
#ifndef CAPSTAN_WIRE_TREE_H
#define CAPSTAN_WIRE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "core/command.h"

/* The canonical inputs (wire/canonical.h) of all tasks that have the same; no digest is there twice. */
struct tree_payload {
    struct digest digest;
    const char *bytes;
    size_t n;
};

struct tree_submit {
    const char *name; /* may be NULL */
    uint8_t priority;
    bool stop_on_failure;
    const struct stage_spec *stages; /* one per task, in the tree's order */
    uint32_t n_stages;
    const struct tree_payload *payloads;
    uint32_t n_payloads;
    struct digest content; /* of the canonical form of the whole tree */
};

/*
 * Reads the tree. ERR_INVALID if anything is wrong with it: `errors` then gets one line for each error, the first
 * LIMIT_TREE_ERRORS of them, and how many more there are; the message of `e` is the same, with as many lines as fit.
 * `out` is untouched then. `errors` may be NULL.
 */
MUST_USE enum err wire_read_tree(const void *json, size_t n, struct arena *arena, struct tree_submit *out,
                                 struct buf *errors, struct error *e);

#endif
