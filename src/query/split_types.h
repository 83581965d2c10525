/*
 * split_types.h - which columns files have, and of which types: whether they are those that a plan speaks of.
 *
 * What kinds of files have is kept from plan to plan; a kind is what struct split_file calls a shape.
 *
 * Ownership: of the planner's cache. Threads: those of the planner, one at a time.
 */
#ifndef CAPSTAN_QUERY_SPLIT_TYPES_H
#define CAPSTAN_QUERY_SPLIT_TYPES_H

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "query/plan.h"
#include "query/planner.h"
#include "query/split.h"

struct split_types;
struct split_types *split_types_new(void);
void split_types_free(struct split_types *types); /* NULL ok */

/* Sets `mixed_column`, `is_recast`, `has_kinds`, `is_retyped` and `hive_column` of all scans of Parquet files. Errors as planner_rows. */
MUST_USE enum err split_types_load(struct planner *planner, struct split_types *types, struct plan_node *root,
                                   const struct split_catalog *catalog, struct arena *arena, struct error *e);

#endif
