/*
 * query.h - what a query asks of the core: a physical plan becomes stages.
 *
 * A job for SQL begins with one planning stage ("plan"). What it brings, or what a client has sent, is a physical plan;
 * its stages that are due become stages of the job, named "s" and the plan's own number, and all of their tasks have the
 * plan as their inputs. If the plan waits for sizes, a second planning stage ("refine") follows.
 *
 * Ownership: everything lies in the arena. Threads: any; pure functions.
 */
#ifndef CAPSTAN_COORDINATOR_QUERY_H
#define CAPSTAN_COORDINATOR_QUERY_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "core/command.h"

/* Bytes that tasks get as their inputs, by content. */
struct query_inputs {
    struct digest digest;
    uint32_t n_bytes;
};

/* The one stage of a job that has only SQL so far. To plan operators of the user's own, a worker must have them. */
const struct stage_spec *query_planning_stage(struct query_inputs inputs, const char *sql, struct arena *arena);

/*
 * Reads the plan, and makes stages of what is due in it. `planner` is the planning stage that brought it, -1 if a client
 * has; then workers need the engine `engine` (NULL: any), unless the plan names one. ERR_INVALID with all that is wrong
 * with the plan, a line each.
 */
MUST_USE enum err query_stages(const void *plan_json, size_t n, int64_t planner, const char *engine,
                               struct arena *arena, const struct stage_spec **out_stages, uint32_t *out_n,
                               struct error *e);

#endif
