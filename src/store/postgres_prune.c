/*
 * Pruning: one transaction under the fence. Jobs that somebody has locked are left for the next time. Events go in the
 * order of their numbers, and the newest one stays, because the next number follows from it.
 */
#include "store/postgres_internal.h"

static const char find_jobs_sql[] = "SELECT job_id FROM capstan.jobs WHERE state >= 2 AND finished_at_ms < $1 "
                                    "ORDER BY finished_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED";

/* Everything that belongs to jobs; the jobs themselves last. */
static const char *const remove_jobs_sql[] = {
    "DELETE FROM capstan.payloads WHERE job_id = ANY ($1)",
    "DELETE FROM capstan.execution_idempotency WHERE job_id = ANY ($1)",
    "DELETE FROM capstan.results WHERE job_id = ANY ($1)",
    "DELETE FROM capstan.map_outputs WHERE job_id = ANY ($1)",
    "DELETE FROM capstan.task_leases WHERE job_id = ANY ($1)",
    "DELETE FROM capstan.tasks WHERE job_id = ANY ($1)",
    "DELETE FROM capstan.stages WHERE job_id = ANY ($1)",
    "DELETE FROM capstan.jobs WHERE job_id = ANY ($1)",
};

/* The oldest events; one more than may go, because the last one stays. */
static const char find_events_sql[] = "SELECT seq, at_ms FROM capstan.task_events ORDER BY seq LIMIT $1";

static const char remove_events_sql[] = "DELETE FROM capstan.task_events WHERE seq <= $1";

static enum err check_fence(struct postgres *pg, const struct fence *fence, struct error *e)
{
    struct postgres_params params = {0};
    postgres__param_fence(&params, fence);
    return postgres__run(pg, "SELECT capstan.fence($1, $2)", &params, e);
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
    params = (struct postgres_params){0};
    postgres__param_texts(&params, &pg->arrays.at[0]);
    for (size_t i = 0; i < ARRAY_LEN(remove_jobs_sql) && err == ERR_OK; i++) {
        err = postgres__run(pg, remove_jobs_sql[i], &params, e);
    }
    return err;
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
    enum err err = postgres__begin(pg, POSTGRES_PATIENT_SILENCE_MS, true, e);
    if (err == ERR_OK) {
        /* A job can be very large, and its removal holds nobody up. */
        err = postgres__script(pg, "BEGIN; SET LOCAL statement_timeout = 600000", e);
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
