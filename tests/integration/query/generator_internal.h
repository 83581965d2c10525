/*
 * generator_internal.h - the parts of the generator of queries: values, what is read FROM, subqueries, SELECTs.
 *
 * All of them write to the generator's `out` and draw decisions with generator__pick. What there is to choose from is in
 * tables, with the simplest first.
 *
 * Ownership: a generator lives for one query; scopes are their makers' own. Threads: one at a time.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_QUERY_GENERATOR_INTERNAL_H
#define CAPSTAN_TESTS_INTEGRATION_QUERY_GENERATOR_INTERNAL_H

#include "base/prng.h"
#include "query/generator.h"

#define SCOPE_MAX 200

/* A column that can be named at some place of the query. */
struct visible {
    char sql[96];
    enum column_class class;
};

struct scope {
    struct visible columns[SCOPE_MAX];
    uint32_t n;
};

struct generator {
    const struct schema *schema;
    struct prng prng;
    bool is_replay;
    uint32_t at;
    struct decisions *decisions;
    struct buf *out;
    uint32_t n_names;
    uint32_t depth;
};

/* What stands for {a}, {b} and so on in a template. */
struct holes {
    const char *texts['z' - 'a' + 1];
};

/* Decisions. A number below `n`, or whether it is the last of so many; zero leads to the simplest query. */
uint32_t generator__pick(struct generator *g, uint32_t n);
bool generator__chance(struct generator *g, uint32_t one_in);

/* Columns. `alias` and `name` are written without quotes. */
void generator__show(struct scope *scope, const char *alias, const char *name, enum column_class class);

/* A column of that class; NULL if there is none. */
const struct visible *generator__column(struct generator *g, const struct scope *scope, enum column_class class);

/* Some column that is not of a nested or rare type; there may be only such, then any. */
const struct visible *generator__plain(struct generator *g, const struct scope *scope);

/* Some column of which equal values read the same, so that an order by it leaves nothing open; NULL if there is none. */
const struct visible *generator__exact(struct generator *g, const struct scope *scope);

/* Values. A value of the class, over the columns of the scope; a constant if it has none. */
void generator__constant(struct generator *g, enum column_class class);
void generator__value(struct generator *g, const struct scope *scope, enum column_class class);
void generator__predicate(struct generator *g, const struct scope *scope);

/* Writes the template with its holes filled; {p} is a predicate over the scope. */
void generator__fill(struct generator *g, const char *template, const struct holes *holes, const struct scope *scope);

/* IN, EXISTS, ANY or a scalar subquery that is compared, correlated or not. */
void generator__subquery_predicate(struct generator *g, const struct scope *scope);

/* A subquery as a value. False if the scope has no column for it; then nothing is written. */
bool generator__subquery_value(struct generator *g, const struct scope *scope);

/* A table, or a share of it if it is to be joined, under a new name. Its columns come into scope. */
void generator__relation(struct generator *g, struct scope *scope, bool is_joined);

/* What stands behind FROM: relations, joins, and perhaps a WHERE. */
void generator__from(struct generator *g, struct scope *scope);
void generator__where(struct generator *g, const struct scope *scope);

/* A query with windows, up to its order: how many columns it has, and whether all of them may be ordered by. */
void generator__windows(struct generator *g, uint32_t *out_columns, bool *out_is_exact);

/* A whole query. */
void generator__query(struct generator *g);

#endif
