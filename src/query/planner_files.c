/*
 * planner_files.c - a plan and the files that it reads, which belong together.
 *
 * DuckDB leaves out conditions that are true of all rows by a file's statistics, so a plan is only good for the files as
 * they were when it was made; what they were like is written into the splits, and tasks look whether it still holds. But
 * it can only be looked at when the plan says which files there are. A file that has changed shortly before, or since,
 * may be another one than DuckDB saw. Then the query is planned once more: if the files are the same after that as before
 * it, they were so all the time.
 */
#include "base/clock.h"
#include "query/split.h"

#define ATTEMPTS_MAX 4

enum err query_plan_files(struct planner *planner, const struct planner_request *request, struct arena *arena,
                          struct query_planned *out, struct error *e)
{
    struct query_planned planned = {0};
    const struct split_catalog *before = NULL;
    for (uint32_t i = 0; i < ATTEMPTS_MAX; i++) {
        planned = (struct query_planned){.started_ms = clock_wall_ms()};
        enum err err = query_plan_request(planner, request, arena, &planned.plan, e);
        if (err == ERR_OK && planned.plan->root != NULL) {
            err = split_catalog_load(planner, planned.plan->root, arena, &planned.catalog, e);
        }
        if (err != ERR_OK) {
            return err;
        }
        if (planned.catalog == NULL || split_catalog_is_settled(planned.catalog, planned.started_ms) ||
            (before != NULL && split_catalog_was_there(before, planned.catalog, planned.started_ms))) {
            *out = planned;
            return ERR_OK;
        }
        before = planned.catalog;
    }
    return error_set(e, ERR_UNAVAILABLE, "the files of the query change while it is planned");
}
