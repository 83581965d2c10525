/*
 * planner.h - SQL into a plan, by DuckDB's own parser, binder and optimizer.
 *
 * A planner is a DuckDB instance of its own, for its settings are global: optimizers that only shape a plan for a local
 * run are off there. It never reads rows, but it reads the metadata of files, and enough of CSV and JSON files to tell
 * their columns.
 *
 * query_plan() goes through these steps:
 *   1. parse; of statements that write, unwrap the SELECT (write.h); plan what custom(…) reads by itself, and ask for the
 *      columns that its operator makes of it
 *   2. put parameters into the parsed statement as constants, and stand-ins for custom(…) and for the CSV and JSON files
 *      that it reads, because DuckDB cannot write a scan of these into a plan
 *   3. prepare it, for the names and types of the result, and for errors that the user has to know
 *   4. let DuckDB write its optimized plan as JSON, and read that (plan_read.h)
 *   5. unparse it once as a whole, so that what cannot be unparsed is known now
 *   6. ask DuckDB for its guesses at numbers of rows
 * What fails after step 3 is no error: the plan is `unsupported`, with the reason, and the query runs as one task.
 *
 * Ownership: planner_open's caller closes it; the plan lies in the arena. Threads: one at a time per planner, except for
 * planner_interrupt.
 */
#ifndef CAPSTAN_QUERY_PLANNER_H
#define CAPSTAN_QUERY_PLANNER_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"
#include "query/plan.h"

struct planner;

/* A named data set: a view for the query. */
struct planner_table {
    const char *name;
    const char *source; /* path, glob or URL */
    const char *format; /* "parquet", "csv" or "json"; "" or NULL: by the source's ending */
};

/*
 * Asked for the columns that an operator makes of an input with the columns `in`; `out` is the planner's to release.
 * ERR_NOT_FOUND if there is no such operator, ERR_INVALID if it does not like them or its configuration.
 */
typedef enum err planner_custom_fn(void *context, const char *op, const char *config_json, const struct ArrowSchema *in,
                                   struct ArrowSchema *out, struct error *e);

/* What is to be planned. All but `sql` may be NULL or 0. */
struct planner_request {
    const char *sql;
    const char *params_json; /* NULL or "": none; an array for $1, $2, … and ?, or an object for named ones */
    const struct planner_table *tables;
    uint32_t n_tables;
    const char *warehouse;     /* the folder in which CREATE TABLE … AS makes its tables */
    planner_custom_fn *custom; /* NULL: there are no operators */
    void *custom_context;
};

MUST_USE enum err planner_open(struct planner **out, struct error *e);

/* NULL is fine. */
void planner_close(struct planner *planner);

/*
 * Plans one SELECT, or one statement that writes a SELECT's rows (plan.write). ERR_INVALID, with DuckDB's message, if the
 * statement is wrong or a parameter is missing, and for statements that change anything else; ERR_NOT_FOUND if a file is
 * missing, or an operator.
 */
MUST_USE enum err query_plan_request(struct planner *planner, const struct planner_request *request,
                                     struct arena *arena, struct plan **out_plan, struct error *e);

/* The same without operators and warehouse. */
MUST_USE enum err query_plan(struct planner *planner, const char *sql, const char *params_json,
                             const struct planner_table *tables, uint32_t n_tables, struct arena *arena,
                             struct plan **out_plan, struct error *e);

/* What it remembers of the metadata of files (split.h). The planner's. */
struct split_cache;
struct split_cache *planner_cache(struct planner *planner);

/* Ends a running query_plan of another thread, which then returns ERR_CANCELED. */
void planner_interrupt(struct planner *planner);

/*
 * Runs one statement on the planner's connection, for metadata such as parquet_file_metadata(…), and hands every row to
 * `row` as texts (NULL for a NULL). The texts are valid during the call only.
 */
typedef enum err planner_row_fn(void *context, const char *const *values, uint32_t n, struct error *e);
MUST_USE enum err planner_rows(struct planner *planner, const char *sql, planner_row_fn *row, void *context,
                               struct error *e);

#endif
