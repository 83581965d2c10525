/*
 * lifecycles.h - the rows that a core makes while tasks come and go, committed one transaction after the other.
 *
 * A round is `width` jobs with one task each: one transaction submits them, one assigns their tasks, one ends them. So a
 * batch is as large as a coordinator makes it under load.
 *
 * Ownership: lifecycles_end ends what lifecycles_begin began. Threads: one.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_POSTGRES_LIFECYCLES_H
#define CAPSTAN_TESTS_INTEGRATION_POSTGRES_LIFECYCLES_H

#include "core/core.h"
#include "integration/postgres/fixture.h"

struct lifecycles {
    struct fixture *f;
    struct core *core;
    struct effects fx;
    struct arena arena; /* of the round */
    struct attempt_ref *refs;
    uint32_t n_refs;
    uint64_t n_jobs;
    uint64_t seed;
    int64_t now_ms;
};

/* A core with one worker, which is committed. */
void lifecycles_begin(struct lifecycles *l, struct fixture *f);
void lifecycles_end(struct lifecycles *l);

/* The three transactions of a round. */
void lifecycles_submit(struct lifecycles *l, uint32_t width);
void lifecycles_assign(struct lifecycles *l, uint32_t width);
void lifecycles_finish(struct lifecycles *l);

#endif
