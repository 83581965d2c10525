/*
 * planner_internal.h - what the files of the planner share. planner.h says how it goes.
 *
 * Ownership: a planning lives during one query_plan_request; what it makes lies in the arena. Threads: one per planner.
 */
#ifndef CAPSTAN_QUERY_PLANNER_INTERNAL_H
#define CAPSTAN_QUERY_PLANNER_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "duck/duck.h"
#include "query/planner.h"

/* What a source is taken to have while nobody has counted. */
#define STAND_IN_ROWS 100000

struct planner_view;

struct planner {
    struct duck *duck;
    struct duck_connection *connection;
    struct duck_connection *second; /* for what is asked at the same time */
    struct split_cache *cache;
    struct planner_view *views; /* of data sets, on the heap */
    uint32_t n_views;
    uint32_t cap_views;
};

/* One statement, or the query inside of a custom(…). */
struct planning {
    struct planner *planner;
    const struct planner_request *request;
    struct arena *arena;
    const struct planner_table *tables;
    uint32_t n_tables;
    bool *is_used;        /* by table */
    struct json *parsed;  /* the statement */
    struct json *params;  /* NULL: none, or they are in `parsed` already */
    struct buf planned;   /* what is planned: with parameters and stand-ins */
    struct buf statement; /* the same without stand-ins; custom(…) is a table */
    struct buf task;      /* the same for one task, if data sets are elsewhere there; else nothing */
    struct plan *plan;
    uint32_t depth;                 /* of custom(…) inside of custom(…) */
    struct ArrowSchema *out_schema; /* where the columns of the result go; NULL: nobody asks */
    struct ArrowSchema *schemas;    /* by custom(…): the operator's columns; on the heap */
    uint32_t n_schemas;
    uint32_t cap_schemas;
    bool has_old_views; /* it reads views that were made for an earlier statement */
};

/* Errors that mean that DuckDB is at fault or gone, rather than that the plan cannot be used. */
static inline bool planner__is_fatal(enum err err)
{
    return err == ERR_CANCELED || err == ERR_EXHAUSTED;
}

/* The one text that `sql` yields for the argument. */
MUST_USE enum err planner__ask(struct planner *planner, const char *sql, const char *argument, size_t n,
                               struct buf *out, struct error *e);

/* read_parquet('source') and its like. */
MUST_USE enum err planner__write_source(struct buf *sql, const struct planner_table *table, bool *out_has_stand_in,
                                        struct error *e);

/* Makes views of the data sets that the statement reads; those that are there are used again. */
MUST_USE enum err planner__create_views(struct planning *p, struct error *e);

/* Drops the views that are for one statement only, and all of them. */
void planner__drop_views(struct planner *planner);
void planner__forget_views(struct planner *planner);

/* Asking for estimates of what is planned, at the same time as for the plan. It must stay where it is until the end. */
struct estimating {
    struct duck_connection *connection;
    struct buf sql;
    struct buf text;
    enum err err;
    struct error error;
    bool has_thread;
    pthread_t thread;
};
void planner__estimate_begin(struct planning *p, struct estimating *out);

/* Waits for the answer, and gives the plan, if there is one, its estimates. Fails only if DuckDB is at fault or was interrupted. */
MUST_USE enum err planner__estimate_end(struct planning *p, struct estimating *estimating, struct error *e);

/* Plans a SELECT that custom(…) reads, and writes its columns as Arrow has them. */
MUST_USE enum err planner__plan_inside(const struct planning *outer, const char *sql, struct plan **out_plan,
                                       struct ArrowSchema *out_schema, struct error *e);

/* Finds custom(…) in the statement, plans what they read, and asks for their operators' columns. */
MUST_USE enum err planner__find_customs(struct planning *p, struct error *e);

/* Makes stand-ins with these columns known to DuckDB, and forgets them again. */
MUST_USE enum err planner__add_customs(struct planning *p, struct error *e);
void planner__drop_customs(struct planning *p);

/* Turns their scans in the plan into NODE_CUSTOM. */
void planner__attach_customs(struct planning *p);

#endif
