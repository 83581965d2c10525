/*
 * aggregate.h - aggregates in two steps: what each task computes, and what is made of these partial values.
 *
 * One table has all aggregates that can be taken apart. For the others the rows themselves have to travel.
 *
 * Ownership: new expressions lie in the arena given. Threads: any.
 */
#ifndef CAPSTAN_QUERY_AGGREGATE_H
#define CAPSTAN_QUERY_AGGREGATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "query/plan.h"

#define AGGREGATE_PARTIALS_MAX 2

/* What type a partial value has. */
enum partial_type {
    PARTIAL_RESULT, /* that of the aggregate */
    PARTIAL_SUM,    /* that of the sum of the argument */
    PARTIAL_SECOND, /* that of the second argument */
    PARTIAL_BIGINT,
};

/*
 * In `sql`, @0 and @1 are the aggregate's arguments, and % is where its FILTER belongs. `condition` goes into that FILTER
 * too. `sql` NULL: there is no such partial value.
 */
struct aggregate_partial {
    const char *sql;
    const char *condition;
    enum partial_type type;
};

struct aggregate_rule {
    const char *name; /* NULL ends the table */
    uint32_t n_args;
    bool needs_number;     /* only if the first argument is one */
    bool ignores_distinct; /* the same value comes out with and without DISTINCT */
    /*
     * DuckDB's own state of the aggregate travels, as a BLOB. Its form is that of the machine and of DuckDB's version, so
     * all workers must have the same (duck_engine). The texts below are not used.
     */
    bool is_state;
    struct aggregate_partial partials[AGGREGATE_PARTIALS_MAX];
    const char *final; /* @0, @1, … are the partial values; the result is cast to the aggregate's type */
};

/* The right table. */
extern const struct aggregate_rule aggregate_rules_default[];

/* An aggregate taken apart. */
struct aggregate_parts {
    const struct aggregate_rule *rule;
    const struct expression *whole;
    uint32_t n;
    struct expression *partials[AGGREGATE_PARTIALS_MAX]; /* over the same input as the aggregate */
};

/* Takes an EXPRESSION_AGGREGATE apart. False if there is no rule for it. */
bool aggregate_split(const struct aggregate_rule *rules, const struct expression *aggregate, struct arena *arena,
                     struct aggregate_parts *out);

/* The second step; the partial values are columns `first`, `first` + 1, … of its input. */
struct expression *aggregate_final(const struct aggregate_parts *parts, uint32_t first, struct arena *arena);

#endif
