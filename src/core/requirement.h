/*
 * requirement.h - what a task asks of a worker, what a worker offers, and whether the two fit.
 *
 * Pure functions over plain values; nothing here owns memory except requirement_copy and offer_copy, which make one
 * block each. Absent and empty lists mean "no constraint".
 */
#ifndef CAPSTAN_CORE_REQUIREMENT_H
#define CAPSTAN_CORE_REQUIREMENT_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum value_kind { VALUE_TEXT, VALUE_NUMBER, VALUE_BOOL, VALUE_LIST };

/* A capability as a worker states it: {"cpu_cores": 8, "gpu": "nvidia", "labels": ["ml"]}. */
struct capability {
    const char *key;
    enum value_kind kind;
    const char *text;         /* VALUE_TEXT */
    double number;            /* VALUE_NUMBER; VALUE_BOOL as 0 or 1 */
    const char *const *items; /* VALUE_LIST: texts */
    uint32_t n_items;
};

struct string_list {
    const char *const *items;
    uint32_t count;
};

struct capability_list {
    const struct capability *items;
    uint32_t count;
};

/*
 * What a task needs. `executor` and `ops` come from the task itself, `engine` from the planner (the DuckDB version and
 * architecture that planned it), the rest from its placement.
 */
struct requirement {
    const char *executor; /* NULL: any worker will do */
    struct string_list ops;
    const char *engine;                  /* NULL: any */
    struct string_list any_executors;    /* requires_executors: one of them is enough */
    struct capability_list capabilities; /* all equal; the text ">=8" compares numbers; a worker's list contains */
    struct string_list allowed_nodes;
    struct string_list forbidden_nodes; /* wins over allowed_nodes */
    uint32_t max_parallel_per_node;     /* 0: no limit */
};

/* What a worker offers, besides its name. */
struct offer {
    struct string_list executors;
    struct string_list ops;
    struct capability_list capabilities;
    const char *engine; /* NULL: none */
};

/* The part of a requirement that a worker does not meet, in the order in which they are looked at. */
enum mismatch {
    MISMATCH_NONE,
    MISMATCH_EXECUTOR,
    MISMATCH_OP,
    MISMATCH_ENGINE,
    MISMATCH_ANY_EXECUTOR,
    MISMATCH_CAPABILITY,
    MISMATCH_NODE, /* not allowed, or forbidden */
};

/* Everything except the node's name. On a mismatch `out_index` (may be NULL) is the op's or capability's index. */
enum mismatch requirement_match(const struct requirement *need, const struct offer *offer, uint32_t *out_index);

/* True if `node` may run it as far as allowed_nodes and forbidden_nodes go. */
bool requirement_allows_node(const struct requirement *need, const char *node);

/* True if an offered capability satisfies the required one (keys are the same). */
bool capability_satisfies(const struct capability *offered, const struct capability *required);

bool string_list_has(struct string_list list, const char *text);

bool requirement_equal(const struct requirement *a, const struct requirement *b);
uint64_t requirement_hash(const struct requirement *r);
struct requirement *requirement_copy(const struct requirement *r); /* free with mem_free */
const struct requirement *requirement_copy_in(struct arena *arena, const struct requirement *r);

bool offer_equal(const struct offer *a, const struct offer *b);
struct offer *offer_copy(const struct offer *o); /* free with mem_free */
const struct offer *offer_copy_in(struct arena *arena, const struct offer *o);

#endif
