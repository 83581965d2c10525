/*
 * tree_internal.h - what the parts of the tree reader share. For tree*.c only.
 *
 * tree.c         the document: its members, its tasks one by one, the outcome
 * tree_task.c    one task
 * tree_placement.c  where a task may run
 * tree_inputs.c  inputs of the built-in executors, templates
 * tree_error.c   what is wrong, in words
 *
 * Ownership and threads: a reader belongs to one call of wire_read_tree.
 */
#ifndef CAPSTAN_WIRE_TREE_INTERNAL_H
#define CAPSTAN_WIRE_TREE_INTERNAL_H

#include "base/json.h"
#include "base/map.h"
#include "base/sha256.h"
#include "core/tree.h"
#include "wire/template_internal.h"
#include "wire/tree.h"

struct tree_reader {
    const char *text;
    size_t n;
    struct arena *arena;  /* the caller's: what is kept */
    struct arena work;    /* what is needed until the end of the call */
    struct arena scratch; /* what is needed for one task */

    struct buf lines; /* errors, one a line */
    uint32_t n_errors;
    bool is_broken; /* the text is not JSON: the one line says so */

    const char *name;
    uint8_t priority;
    bool stop_on_failure;
    bool has_tasks; /* there is a list of them */
    struct tree_task *tasks;
    uint32_t n_tasks;
    uint32_t cap_tasks;
    uint64_t n_edges;

    struct map payloads; /* of struct payload_node */
    struct payload_node *first_payload;
    struct payload_node **last_payload;
    uint32_t n_payloads;
    struct map needs; /* of const struct requirement */
    struct sha256 content;
    struct buf canonical; /* of one task */
    struct template_path path;
};

/* One task while it is read. */
struct task_draft {
    const char *name;
    const char *executor;
    const struct json *inputs; /* NULL: none */
    struct tree_dependency *depends_on;
    uint32_t n_depends_on;
    struct stage_spec spec;
    struct requirement need; /* its lists are in the scratch arena */
    bool is_placed;          /* there is a placement, or an operator is asked for */
    const char **sorted;     /* names of depends_on, for templates; NULL: not needed yet */
};

/* ---- tree_error.c ---- */

/* Adds a line `PLACE: ...`. Nothing is formatted beyond LIMIT_TREE_ERRORS lines. */
void tree__complain(struct tree_reader *r, const struct where *where, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Adds a line `PLACE: must be EXPECTED, got ...`. */
void tree__expected(struct tree_reader *r, const struct where *where, const char *expected, const struct json *got);

/* Adds a line about a key that `known`, which ends with NULL, does not have, with the one that may have been meant. */
void tree__unknown_key(struct tree_reader *r, const struct where *object, const char *key, const char *const *known);

/* Adds a line without a place. */
void tree__add_line(struct tree_reader *r, const char *line);

/* Says at which line and column the text ceases to be JSON; all that was found before is forgotten. */
void tree__broken(struct tree_reader *r, size_t at, const char *what);

/* The one of `known` that differs from the text by a slip or two, or else begins alike; NULL if none does. */
const char *tree__nearest(const char *text, size_t n, const char *const *known);

/* ---- values: false, with a line added, if it is not as expected ---- */

bool tree__read_uint(struct tree_reader *r, const struct where *where, const struct json *value, uint64_t min,
                     uint64_t max, uint64_t *out);
bool tree__read_bool(struct tree_reader *r, const struct where *where, const struct json *value, bool *out);

/* A text of 1 to `max` bytes without control characters, in the arena. */
bool tree__read_label(struct tree_reader *r, const struct where *where, const struct json *value, size_t max,
                      struct arena *arena, const char **out);

/* A list of at most `max` labels, in the scratch arena. */
bool tree__read_labels(struct tree_reader *r, const struct where *where, const struct json *value, size_t max,
                       struct string_list *out);

/* A member of an object, and who reads it. */
typedef void tree_member_fn(struct tree_reader *r, const struct where *where, const struct json *value, void *into);
struct tree_member {
    const char *key;
    tree_member_fn *read;
};

/*
 * Hands each member of `object` to its reader in the table, which ends with a NULL key; null is as if it were absent,
 * other keys are errors. Adds a line if it is no object.
 */
void tree__read_object(struct tree_reader *r, const struct where *where, const struct json *object,
                       const struct tree_member *table, void *into);

/* An executor's name: [A-Za-z_][A-Za-z0-9_.-]{0,99}. */
bool tree__is_executor_name(const char *name);

/* ---- the parts ---- */

/* Reads one task and adds it to the reader's. */
void tree__read_task(struct tree_reader *r, const struct where *where, const struct json *task);

/* Adds a task of which nothing is known, for one that is not read because it is too large. */
void tree__add_unread(struct tree_reader *r);

/* The payloads of all tasks, in the caller's arena. */
const struct tree_payload *tree__list_payloads(struct tree_reader *r);

/* The member "placement". */
tree_member_fn tree__read_placement; /* into a struct task_draft */

/* Checks what can be known about the inputs before the task runs. */
void tree__check_inputs(struct tree_reader *r, const struct where *where, struct task_draft *draft);

#endif
