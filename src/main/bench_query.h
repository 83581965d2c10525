/*
 * bench_query.h - one query, on the cluster and on a DuckDB of this process, and how long it took.
 *
 * On the cluster the time is that from the submit to the last row being here, read as Arrow; on DuckDB from the SQL to the
 * last row, read the same way.
 *
 * Ownership: nothing is kept. Threads: one at a time per client and connection.
 */
#ifndef CAPSTAN_MAIN_BENCH_QUERY_H
#define CAPSTAN_MAIN_BENCH_QUERY_H

#include "base/random.h"
#include "main/bench.h"
#include "main/bench_times.h"

struct duck_connection;

/* Either SQL or a physical plan; the rest may be NULL. */
struct query_request {
    const char *sql;
    const struct buf *plan;
    const char *options_json;
};

struct query_run {
    int64_t us;
    uint64_t rows;
    char job_id[UUID_TEXT_BYTES]; /* of the cluster's */
};

MUST_USE enum err query_run(const struct bench *bench, struct client *client, const struct query_request *request,
                            struct query_run *out, struct error *e);

/* As plainly as DuckDB can (duck_count), for that is what a cluster is compared with. */
MUST_USE enum err query_run_duck(struct duck_connection *connection, const char *sql, struct query_run *out,
                                 struct error *e);

/*
 * What the rows add up to (row_sum.h): those of a job that has succeeded, fetched once more, and those of DuckDB, for which
 * the query is run once more. So that what is measured does not pay for it.
 */
MUST_USE enum err query_sum(const struct bench *bench, struct client *client, const char *job_id, uint64_t *out,
                            struct error *e);
MUST_USE enum err query_sum_duck(struct duck_connection *connection, const char *sql, uint64_t *out, struct error *e);

/* ---- where the time went ---- */

/* Of a job that has ended. */
MUST_USE enum err query_times(const struct bench *bench, struct client *client, const char *job_id,
                              struct query_times *out, struct error *e);

#endif
