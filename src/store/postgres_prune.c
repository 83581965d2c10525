/*
 * Pruning: a small transaction under the fence. Jobs that somebody has locked are left for the next time. Jobs with more
 * rows than one call may remove are hidden first (kind -1) and then go piece by piece; they sort before all others, so the
 * next call goes on with them. Events go in the order of their numbers, and the newest one stays, because the next number
 * follows from it.
 */
#include "store/postgres_internal.h"

/* Rows of jobs that one call removes: some 20 ms, for which a commit may have to wait. */
#define PRUNE_ROWS_MAX 2500

static const char find_jobs_sql[] = "SELECT job_id FROM capstan.jobs WHERE state >= 2 AND finished_at_ms < $1 "
                                    "ORDER BY finished_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED";

/* At most $2 rows of all these jobs. */
#define REMOVE(table)                                                                                                  \
    "WITH gone AS (DELETE FROM capstan." table                                                                         \
    " WHERE ctid = ANY (ARRAY(SELECT l.at FROM (SELECT unnest($1::text[]) AS job_id) u, "                              \
    "LATERAL (SELECT x.ctid AS at FROM capstan." table                                                                 \
    " x WHERE x.job_id = u.job_id OFFSET 0) l LIMIT $2)) RETURNING 1) SELECT count(*) FROM gone"

static const char *const remove_parts_sql[] = {
    REMOVE("payloads"),    REMOVE("execution_idempotency"), REMOVE("results"),
    REMOVE("map_outputs"), REMOVE("task_leases"),           REMOVE("tasks"),
    REMOVE("stages"),
};

static const char remove_jobs_sql[] = "DELETE FROM capstan.jobs WHERE job_id = ANY ($1)";

static const char hide_jobs_sql[] = "UPDATE capstan.jobs SET kind = -1, finished_at_ms = -9223372036854775808 "
                                    "WHERE job_id = ANY ($1) AND kind >= 0";

/* The oldest events; one more than may go, because the last one stays. */
static const char find_events_sql[] = "SELECT seq, at_ms FROM capstan.task_events ORDER BY seq LIMIT $1";

static const char remove_events_sql[] = "DELETE FROM capstan.task_events WHERE seq <= $1";

static enum err check_fence(struct postgres *pg, const struct fence *fence, struct error *e)
{
    struct postgres_params params = {0};
    postgres__param_fence(&params, fence);
    return postgres__run(pg, "SELECT capstan.fence($1, $2)", &params, e);
}

/* All that belongs to the jobs in the arrays, or as much as may go. */
static enum err remove_jobs(struct postgres *pg, bool *out_more, struct error *e)
{
    struct postgres_params jobs = {0};
    int64_t room = PRUNE_ROWS_MAX;
    postgres__param_array(&jobs, &pg->arrays, 0);
    for (size_t i = 0; i < ARRAY_LEN(remove_parts_sql); i++) {
        PGresult *result = NULL;
        struct postgres_params params = jobs;
        postgres__param_int(&params, room);
        enum err err = postgres__query(pg, remove_parts_sql[i], &params, &result, e);
        if (err != ERR_OK) {
            return err;
        }
        room -= postgres__int_at(result, 0, 0);
        PQclear(result);
        if (room <= 0) {
            *out_more = true;
            return postgres__run(pg, hide_jobs_sql, &jobs, e);
        }
    }
    return postgres__run(pg, remove_jobs_sql, &jobs, e);
}

static enum err prune_jobs(struct postgres *pg, int64_t before_ms, uint32_t limit, bool *out_more, struct error *e)
{
    static const enum value_type types[] = {VALUE_IS_TEXT};
    PGresult *result = NULL;
    struct postgres_params params = {0};
    postgres__param_int(&params, before_ms);
    postgres__param_int(&params, (int64_t)limit + 1);
    enum err err = postgres__query(pg, find_jobs_sql, &params, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    uint32_t n = (uint32_t)PQntuples(result);
    *out_more = n > limit;
    postgres__arrays_start(&pg->arrays, types, 1);
    for (uint32_t i = 0; i < n && i < limit; i++) {
        postgres__arrays_put(&pg->arrays, 0, postgres__value_at(result, (int)i, 0, VALUE_IS_TEXT));
        pg->arrays.n_rows++;
    }
    PQclear(result);
    if (pg->arrays.n_rows == 0) {
        return ERR_OK;
    }
    postgres__arrays_finish(&pg->arrays);
    return remove_jobs(pg, out_more, e);
}

/* Events go as long as they are old and not the newest of all. */
static enum err prune_events(struct postgres *pg, int64_t before_ms, uint32_t limit, bool *out_more, struct error *e)
{
    PGresult *result = NULL;
    struct postgres_params params = {0};
    postgres__param_int(&params, (int64_t)limit + 2);
    enum err err = postgres__query(pg, find_events_sql, &params, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    uint32_t n = (uint32_t)PQntuples(result);
    uint32_t n_gone = 0;
    while (n_gone + 1 < n && postgres__int_at(result, (int)n_gone, 1) < before_ms) {
        n_gone++;
    }
    *out_more = n_gone > limit;
    n_gone = n_gone > limit ? limit : n_gone;
    params = (struct postgres_params){0};
    postgres__param_int(&params, n_gone == 0 ? 0 : postgres__int_at(result, (int)n_gone - 1, 0));
    PQclear(result);
    return n_gone == 0 ? ERR_OK : postgres__run(pg, remove_events_sql, &params, e);
}

enum err postgres__prune(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit,
                         bool *out_more, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    bool more_jobs = false;
    bool more_events = false;
    enum err err = postgres__begin(pg, POSTGRES_SILENCE_MS, true, e);
    if (err == ERR_OK) {
        err = postgres__script(pg, "BEGIN", e);
    }
    if (err == ERR_OK) {
        err = check_fence(pg, fence, e);
    }
    if (err == ERR_OK && limit > 0) {
        err = prune_jobs(pg, before_ms, limit, &more_jobs, e);
    }
    if (err == ERR_OK && limit > 0) {
        err = prune_events(pg, before_ms, limit, &more_events, e);
    }
    err = postgres__end(pg, err, e);
    if (err == ERR_OK) {
        *out_more = more_jobs || more_events;
    }
    return err;
}
