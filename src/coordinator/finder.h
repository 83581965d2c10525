/*
 * finder.h - looks into the store for jobs that the core does not know, so that the loop need not wait for it.
 *
 * A command may name a job that ended long ago (core_has_job). The loop then asks for a search, one at a time, and goes
 * on; the finder, a thread with a connection of its own, reads what the store has of these jobs and gives the search
 * back. Only what an answered search has found comes into the core, so nobody else brings the same job in meanwhile. What
 * can happen to it meanwhile is that somebody submits it: the loop shows every step's rows to the search that is out
 * (search_watch), and one that was named there is made again.
 *
 * Ownership: the loop makes a search and frees it, but for the time that the finder has it. Then the finder reads what is
 * looked for and writes what is found, and touches nothing else. Threads: as said.
 */
#ifndef CAPSTAN_COORDINATOR_FINDER_H
#define CAPSTAN_COORDINATOR_FINDER_H

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/request.h"

/* A job that has ended, as the store has it. */
struct found_job {
    struct found_job *next;
    const char *job_id;
    struct row *rows, **rows_end;
};

struct search {
    struct request *request; /* that waits for it; NULL: it has been answered, because the term is over */
    struct sight sight;      /* when it began */
    bool is_stale;           /* what it looks for has changed since */

    /* What is looked for; in the arena, like what is found. */
    struct arena arena;
    const char **job_ids;
    uint32_t n_job_ids;
    const char *key; /* an idempotency key; NULL: none */
    int64_t key_not_before_ms;

    /* What is found. */
    enum err err; /* not ERR_OK: the store could not say */
    bool is_live; /* one of them has not ended there: that it has is not durable yet */
    struct found_job *jobs;
};

/* Whether the command names a job that the core does not know. */
bool search_is_needed(const struct core *core, const struct command *command);

/* For what the request's command names and the core does not know. */
struct search *search_new(const struct core *core, struct request *request, struct sight sight, int64_t now_ms);
void search_free(struct search *search); /* NULL ok */

/* Whether one of these rows is about what is looked for. */
bool search_is_named(const struct search *search, const struct row *rows);

/* The core has just written these rows. */
void search_watch(struct search *search, const struct row *rows);

#endif
