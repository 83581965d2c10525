/*
 * plan_read.h - the JSON of DuckDB's json_serialize_plan() into a tree (plan.h).
 *
 * The form of this JSON is internal to one version of DuckDB, which is pinned. Nothing is guessed: a node, an expression,
 * a constant or an option that is not known makes the whole plan unsupported. The text is bounded by its caller, depth
 * and size by LIMIT_PLAN_DEPTH and LIMIT_PLAN_ITEMS.
 *
 * Ownership: the tree lies in the arena and shares nothing with the text. Threads: any.
 */
#ifndef CAPSTAN_QUERY_PLAN_READ_H
#define CAPSTAN_QUERY_PLAN_READ_H

#include <stddef.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "query/plan.h"

/* The table function that stands for CSV and JSON files; its argument is the FROM item that it stands for. */
#define PLAN_STAND_IN "capstan_source"

/*
 * Reads {"error": false, "plans": [plan]}. ERR_PRECONDITION if the plan is unsupported, or DuckDB says that it could not
 * write it; the message is the reason. ERR_INVALID if the text is not of that form at all.
 */
MUST_USE enum err plan_read(const char *json, size_t n, struct arena *arena, struct plan_node **out_root,
                            struct error *e);

#endif
