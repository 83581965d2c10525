/*
 * Removing history, a little at a time. Events go from the old end, and the newest stays: its number is where the next
 * leader goes on. A job goes with all that belongs to it. One that is too large for a single small transaction is
 * hidden first and then goes piece by piece; it sorts before all others, so the next call goes on with it.
 */
#include "store/sqlite_internal.h"

/* Rows of jobs that one call removes. What is left of a job waits for the next call. */
#define PRUNE_ROWS_MAX 10000

struct pruning {
    struct sqlite *s;
    struct arena arena;
    int64_t before_ms;
    uint32_t limit;
    int64_t room; /* rows that may still go */
    bool more;
};

/* The last of the oldest events that may go, 0 if there is none: old enough, and with a newer one behind it. */
static enum err find_event_cut(struct pruning *p, int64_t *out_cut, struct error *e)
{
    struct sqlite *s = p->s;
    sqlite3_stmt *stmt;
    int64_t cut = 0, candidate = 0;
    bool is_row;
    enum err err = sqlite__statement(s, SQL_PRUNE_FIND_EVENTS, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_bind_int64(stmt, 1, (int64_t)p->limit + 1);
    for (uint32_t n = 0; (err = sqlite__next(s, stmt, &is_row, e)) == ERR_OK && is_row; n++) {
        cut = candidate;
        if (sqlite3_column_int64(stmt, 1) >= p->before_ms) {
            break;
        }
        if (n == p->limit) {
            p->more = true;
            break;
        }
        candidate = sqlite3_column_int64(stmt, 0);
    }
    sqlite3_reset(stmt);
    *out_cut = cut;
    return err;
}

static enum err prune_events(struct pruning *p, struct error *e)
{
    sqlite3_stmt *stmt;
    int64_t cut = 0;
    enum err err = find_event_cut(p, &cut, e);
    if (err != ERR_OK || cut == 0) {
        return err;
    }
    err = sqlite__statement(p->s, SQL_PRUNE_EVENTS, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_bind_int64(stmt, 1, cut);
    return sqlite__run(p->s, stmt, e);
}

static enum err run_for_job(struct pruning *p, enum sqlite_statement which, const char *job_id, struct error *e)
{
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(p->s, which, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite__bind_text(stmt, 1, job_id);
    if (sqlite3_bind_parameter_count(stmt) > 1) {
        sqlite3_bind_int64(stmt, 2, p->room);
    }
    return sqlite__run(p->s, stmt, e);
}

/* All of it, or as much as there is room for. */
static enum err prune_job(struct pruning *p, const char *job_id, struct error *e)
{
    for (int which = SQL_PRUNE_PAYLOADS; which <= SQL_PRUNE_STAGES; which++) {
        enum err err = run_for_job(p, (enum sqlite_statement)which, job_id, e);
        if (err != ERR_OK) {
            return err;
        }
        p->room -= sqlite3_changes64(p->s->db);
        if (p->room <= 0) {
            p->more = true;
            return run_for_job(p, SQL_PRUNE_HIDE, job_id, e);
        }
    }
    return run_for_job(p, SQL_PRUNE_JOB, job_id, e);
}

enum err sqlite__remove_job(struct sqlite *s, const char *job_id, struct error *e)
{
    struct pruning p = {.s = s, .room = INT64_MAX};
    return prune_job(&p, job_id, e);
}

/* A list of names. */
struct victim {
    struct victim *next;
    const char *job_id;
};

static enum err find_victims(struct pruning *p, struct victim **out, struct error *e)
{
    struct victim **end = out;
    sqlite3_stmt *stmt;
    bool is_row;
    enum err err = sqlite__statement(p->s, SQL_PRUNE_FIND_JOBS, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_bind_int64(stmt, 1, p->before_ms);
    sqlite3_bind_int64(stmt, 2, (int64_t)p->limit + 1);
    for (uint32_t n = 0; (err = sqlite__next(p->s, stmt, &is_row, e)) == ERR_OK && is_row; n++) {
        if (n == p->limit) {
            p->more = true;
            break;
        }
        struct victim *victim = arena_zalloc(&p->arena, sizeof *victim);
        victim->job_id = sqlite__text(stmt, 0, &p->arena);
        *end = victim;
        end = &victim->next;
    }
    sqlite3_reset(stmt);
    return err;
}

static enum err prune_jobs(struct pruning *p, struct error *e)
{
    struct victim *victims = NULL;
    enum err err = find_victims(p, &victims, e);
    for (const struct victim *v = victims; v != NULL && err == ERR_OK && p->room > 0; v = v->next) {
        err = prune_job(p, v->job_id, e);
    }
    return err;
}

enum err sqlite__prune(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit,
                       bool *out_more, struct error *e)
{
    struct pruning p = {.s = sqlite__of(store), .before_ms = before_ms, .limit = limit, .room = PRUNE_ROWS_MAX};
    enum err err = sqlite__begin_fenced(p.s, fence, e);
    if (err != ERR_OK) {
        return err;
    }
    if (limit > 0) {
        err = prune_events(&p, e);
    }
    if (limit > 0 && err == ERR_OK) {
        err = prune_jobs(&p, e);
    }
    err = sqlite__finish(p.s, err, e);
    if (err == ERR_OK) {
        *out_more = p.more;
    }
    arena_deinit(&p.arena);
    return err;
}
