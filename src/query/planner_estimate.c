/*
 * planner_estimate.c - DuckDB's guesses at numbers of rows, asked for while the plan itself is made.
 *
 * They are only in what EXPLAIN says, for which DuckDB plans the query once more. So that is done at the same time as the
 * rest, by a thread and a connection of its own.
 */
#include <pthread.h>

#include "query/plan_estimate.h"
#include "query/planner_internal.h"

static enum err keep_explained(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(e);
    if (n == 2 && values[1].bytes != NULL) {
        buf_append(context, values[1].bytes, values[1].n);
    }
    return ERR_OK;
}

static void *ask(void *context)
{
    struct estimating *estimating = context;
    estimating->err = duck_rows(estimating->connection, estimating->sql.data, NULL, 0, keep_explained,
                                &estimating->text, &estimating->error);
    return NULL;
}

void planner__estimate_begin(struct planning *p, struct estimating *out)
{
    *out = (struct estimating){.connection = p->planner->second};
    buf_text(&out->sql, "EXPLAIN (FORMAT JSON) ");
    buf_append(&out->sql, p->planned.data, p->planned.n);
    out->has_thread = pthread_create(&out->thread, NULL, ask, out) == 0;
    if (!out->has_thread) {
        (void)ask(out);
    }
}

enum err planner__estimate_end(struct planning *p, struct estimating *estimating, struct error *e)
{
    if (estimating->has_thread) {
        (void)pthread_join(estimating->thread, NULL);
    }
    enum err err = estimating->err;
    if (err == ERR_OK && estimating->text.n > 0 && p->plan->root != NULL) {
        plan_estimate(p->plan->root, estimating->text.data, estimating->text.n);
    }
    buf_deinit(&estimating->sql);
    buf_deinit(&estimating->text);
    /* A plan without estimates is as right as one with them. */
    return planner__is_fatal(err) ? error_set(e, err, "%s", estimating->error.message) : ERR_OK;
}
