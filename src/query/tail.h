/*
 * tail.h - the last stages of a plan as one task, when there is little left to do.
 *
 * How many groups an aggregate will have is hard to guess, so a plan often has stage after stage to spread, sort and gather
 * a handful of rows. The tail of a plan are its last stages that read no files and need nothing but SQL. If the plan has
 * "tail_bytes", its tail waits until all that it reads is there; if that is at most so much, one task does the tail's work,
 * else its stages are run as they are (refine.h).
 *
 * Ownership: lists lie in the arena. Threads: any.
 */
#ifndef CAPSTAN_QUERY_TAIL_H
#define CAPSTAN_QUERY_TAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "query/physical.h"

struct tail {
    bool *is_in; /* by stage */
    uint32_t n;  /* stages in it; 0: the plan has no tail that is worth it */
    uint32_t *reads;
    uint32_t n_reads; /* stages that it reads, in the order of the plan */
};

/* Of a plan that waits for its tail, or could. A tail that is one stage of one task is not worth it. */
struct tail tail_find(const struct physical_plan *plan, struct arena *arena);

/* The plan with the tail as one stage of one task; NULL if its SQL cannot be put together. */
struct physical_plan *tail_merge(const struct physical_plan *plan, const struct tail *tail, struct arena *arena);

#endif
