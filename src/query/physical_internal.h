/*
 * physical_internal.h - what the files about physical plans share.
 *
 * Ownership: a reader lives during one physical_read; what it makes lies in the arena. Threads: one per reader.
 */
#ifndef CAPSTAN_QUERY_PHYSICAL_INTERNAL_H
#define CAPSTAN_QUERY_PHYSICAL_INTERNAL_H

#include <stddef.h>

#include "base/json.h"
#include "query/physical.h"

/* One reading of a plan. Stages are in the order of the text until physical__check has sorted them. */
struct plan_reader {
    struct arena *arena;
    struct buf lines; /* what is wrong, a line each */
    uint32_t n_errors;
    struct physical_plan *plan;
    bool *is_good; /* by stage: its own fields are right, so that it can be looked at together with others */
};

/* Adds a line about the stage (NULL: about the plan). */
void physical__complain(struct plan_reader *r, const struct physical_stage *stage, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/*
 * Looks at what the stages mean together, once each is right by itself: who reads whom, how many tasks that gives, that
 * it has no cycle and one result. Sorts them so that inputs come before readers.
 */
void physical__check(struct plan_reader *r);

/* The plan without stages that nobody reads and that are not the result. Ids stay, positions change. */
struct physical_plan *physical__without_unread(const struct physical_plan *plan, struct arena *arena);

/* Whether options of COPY, such as "HEADER, COMPRESSION 'gzip'", have one of that name with that value, in any case. */
bool physical__option_is(const char *options, const char *name, const char *value);

/* Splits a key of a range exchange, such as "c0 DESC NULLS LAST": returns the expression's length, and the order. */
size_t physical__key_order(const char *key, const char **out_order);

#endif
