/*
 * plan_repeat.h - whether a plan can be used again for the same statement.
 *
 * DuckDB puts into a plan what it knows when it makes it: the files behind a glob, their statistics, and the values of
 * functions such as now(). So a plan may be kept only if it depends on nothing but files that can be looked at: whoever
 * keeps it asks for these (plan_repeat_files), and uses it as long as none of them, and no folder that they are in, has
 * changed.
 *
 * What is not known to be safe is not: functions count only if they are in a list.
 *
 * Ownership: lists lie in the arena. Threads: any.
 */
#ifndef CAPSTAN_QUERY_PLAN_REPEAT_H
#define CAPSTAN_QUERY_PLAN_REPEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "query/plan.h"

/* Whether a parsed statement means the same each time, as far as files are the same. */
bool plan_repeat_statement(const struct json *statement);

/*
 * All files of the data sets that the plan's statement names, and their folders, each once. False if the plan depends on
 * something else.
 */
bool plan_repeat_files(const struct plan *plan, struct arena *arena, const char ***out_paths, uint32_t *out_n);

#endif
