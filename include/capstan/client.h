/*
 * client.h - a client of Capstan in C (libcapstan): submit task trees and SQL, wait for them, get results and events.
 *
 *     #include <capstan/client.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         struct capstan_error e = {0};
 *         struct capstan_client *client = NULL;
 *         struct capstan_job *job = NULL;
 *         struct capstan_query query = {.size = sizeof(query), .sql = "SELECT 42 AS answer"};
 *         char id[CAPSTAN_ID_BYTES];
 *         char *json = NULL;
 *         if (capstan_open(NULL, &client, &e) == CAPSTAN_OK &&
 *             capstan_submit_query(client, &query, id, &e) == CAPSTAN_OK &&
 *             capstan_wait(client, id, -1, &job, &e) == CAPSTAN_OK &&
 *             capstan_results_json(client, id, &json, NULL, &e) == CAPSTAN_OK) {
 *             puts(json);
 *         } else {
 *             fprintf(stderr, "%s\n  hint: %s\n", e.message, e.hint);
 *         }
 *         capstan_free(json);
 *         capstan_job_free(job);
 *         capstan_close(client);
 *         return (int)e.code;
 *     }
 *
 * cc example.c $(pkg-config --cflags --libs capstan)
 *
 * Of several coordinators one leads. A client has a list of them, finds the one that leads, follows it when it changes, and
 * tries again while none answers, for as long as its patience lasts. Every call may be repeated: ids of jobs are made
 * before a submit is sent, so a job is never submitted twice because an answer was lost.
 *
 * Ownership: what a function hands out through `out` is the caller's, and is ended with the function that belongs to it;
 * on failure nothing is written. Texts that are handed in are copied or used during the call only. All ending functions
 * take NULL. Streams of rows and of events must be ended before their client.
 *
 * Threads: one at a time per client, with all that came from it. capstan_interrupt may be called by any thread, and by a
 * signal handler through a thread of the program's own (not from the handler itself). Several clients do not disturb each
 * other. After fork() a child may not use a client that its parent has made.
 *
 * This header is all that a program may rely on. Structs that are handed in begin with their size, so that they can grow;
 * numbers and names stay as they are.
 */
#ifndef CAPSTAN_CLIENT_H
#define CAPSTAN_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "capstan/arrow.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CAPSTAN_API __attribute__((visibility("default")))

/* What can go wrong: the codes of Capstan, the same over gRPC, over HTTP and in the command line. */
enum capstan_code {
    CAPSTAN_OK = 0,
    CAPSTAN_INVALID = 1,          /* the input is not valid */
    CAPSTAN_NOT_FOUND = 2,        /* there is no such thing */
    CAPSTAN_EXISTS = 3,           /* a job of that id exists and is another one */
    CAPSTAN_PRECONDITION = 4,     /* the state does not allow this: results of a job that runs */
    CAPSTAN_STALE = 5,            /* not current any more */
    CAPSTAN_BUSY = 6,             /* somebody else holds it at the moment */
    CAPSTAN_EXHAUSTED = 7,        /* a limit is reached */
    CAPSTAN_UNAVAILABLE = 8,      /* no coordinator could be found that leads, for as long as there was patience */
    CAPSTAN_DEADLINE = 9,         /* the time is up; a job that was waited for goes on */
    CAPSTAN_CANCELED = 10,        /* capstan_interrupt was called; a job that was waited for goes on */
    CAPSTAN_FENCED = 11,          /* another leader has taken over */
    CAPSTAN_DENIED = 12,          /* the token does not allow this */
    CAPSTAN_UNAUTHENTICATED = 13, /* there is no token, or a wrong one */
    CAPSTAN_DATA_LOSS = 14,       /* rows are lost with the worker that had them: retry the job */
    CAPSTAN_INTERNAL = 15
};

/* "not_found" and so on, as they are called on the wire. */
CAPSTAN_API const char *capstan_code_name(enum capstan_code code);

/* What went wrong, and what to do about it; the hint may be empty. The caller's plain memory. */
struct capstan_error {
    enum capstan_code code;
    char message[4096];
    char hint[256];
};

/* ---- the client ---- */

struct capstan_client;

/* Texts may be NULL. */
struct capstan_options {
    size_t size;
    const char *servers;    /* HOST:PORT,HOST:PORT...; NULL: $CAPSTAN_SERVER, else 127.0.0.1:7400 */
    const char *token;      /* NULL: $CAPSTAN_TOKEN, else the one that `capstan up` has left for this user, else none */
    int tls;                /* not 0: encrypt */
    const char *tls_ca_pem; /* texts, not files; NULL: the system's */
    const char *tls_cert_pem;
    const char *tls_key_pem;
    int64_t patience_ms; /* how long to look for a coordinator that leads and answers; 0: ten seconds */
};

/* Makes a client. It connects at its first call. `options` may be NULL. Every `e` here and below may be NULL. */
CAPSTAN_API enum capstan_code capstan_open(const struct capstan_options *options, struct capstan_client **out,
                                           struct capstan_error *e);
CAPSTAN_API void capstan_close(struct capstan_client *client);

/* Ends the call that is under way, and all further ones, with CAPSTAN_CANCELED, until capstan_resume. From any thread. */
CAPSTAN_API void capstan_interrupt(struct capstan_client *client);
CAPSTAN_API void capstan_resume(struct capstan_client *client);

/* Frees a text that a function below has handed out. */
CAPSTAN_API void capstan_free(char *text);

/* ---- jobs ---- */

#define CAPSTAN_ID_BYTES 101 /* of a job's id, with its NUL */

struct capstan_tree {
    size_t size;
    const char *json;            /* the tree, as docs/task-trees.md describes it */
    size_t n_json;               /* 0: up to the NUL */
    const char *job_id;          /* NULL: one is made */
    const char *idempotency_key; /* NULL: none. A second submit with it returns the first one's job */
};

struct capstan_query {
    size_t size;
    const char *sql;          /* either this */
    const char *plan_json;    /* or a physical plan */
    const char *params_json;  /* an array, or an object for named ones; NULL: none */
    const char *options_json; /* {"partitions":4}: instead of what the coordinator is set to; NULL: none */
    int has_priority;
    uint32_t priority; /* 0 urgent, 1 high, 2 normal, 3 low */
    int explain;       /* not 0: only the plan, one row with the columns explain and plan */
    const char *job_id;
    const char *idempotency_key;
};

/* When it returns, the job is durable. `out_job_id` has the id, also if it was the caller's. */
CAPSTAN_API enum capstan_code capstan_submit_tree(struct capstan_client *client, const struct capstan_tree *tree,
                                                  char out_job_id[CAPSTAN_ID_BYTES], struct capstan_error *e);
CAPSTAN_API enum capstan_code capstan_submit_query(struct capstan_client *client, const struct capstan_query *query,
                                                   char out_job_id[CAPSTAN_ID_BYTES], struct capstan_error *e);

enum capstan_state {
    CAPSTAN_STATE_UNKNOWN = 0,
    CAPSTAN_STATE_QUEUED = 1,
    CAPSTAN_STATE_RUNNING = 2,
    CAPSTAN_STATE_SUCCEEDED = 3,
    CAPSTAN_STATE_FAILED = 4,
    CAPSTAN_STATE_CANCELED = 5
};

/* How a job was when it was asked for. */
struct capstan_job;
CAPSTAN_API enum capstan_state capstan_job_state(const struct capstan_job *job);
CAPSTAN_API const char *capstan_job_message(const struct capstan_job *job); /* why it failed; "": nothing to say */
CAPSTAN_API const char *capstan_job_json(const struct capstan_job *job);    /* all of it, as GET /v1/jobs/ID has it */
CAPSTAN_API void capstan_job_free(struct capstan_job *job);

CAPSTAN_API enum capstan_code capstan_status(struct capstan_client *client, const char *job_id,
                                             struct capstan_job **out, struct capstan_error *e);

/*
 * Waits until the job has ended, well or not: capstan_job_state says how. `timeout_ms` below 0: however long that takes; else
 * CAPSTAN_DEADLINE when the time is up. The coordinator holds the call; it is not asked again and again.
 */
CAPSTAN_API enum capstan_code capstan_wait(struct capstan_client *client, const char *job_id, int64_t timeout_ms,
                                           struct capstan_job **out, struct capstan_error *e);

/* `reason` may be NULL. A job that has ended stays as it is. */
CAPSTAN_API enum capstan_code capstan_cancel(struct capstan_client *client, const char *job_id, const char *reason,
                                             struct capstan_error *e);

/* Runs what failed and was skipped once more; with `from_task`, which may be NULL, that task and all that depend on it. */
CAPSTAN_API enum capstan_code capstan_retry(struct capstan_client *client, const char *job_id, const char *from_task,
                                            struct capstan_error *e);

/* ---- results ---- */

/*
 * The rows of a query that has succeeded, as a stream of Arrow arrays. Memory stays flat whatever the size; a connection
 * that breaks is taken up again where it broke. Use and release it before the client is closed.
 */
CAPSTAN_API enum capstan_code capstan_results_arrow(struct capstan_client *client, const char *job_id,
                                                    struct ArrowArrayStream *out, struct capstan_error *e);

/*
 * All results as one text, for capstan_free: of a tree an object by task name, of a query
 * {"columns":[{"name","type"}...],"rows":[[...]...]}. `out_n` may be NULL.
 */
CAPSTAN_API enum capstan_code capstan_results_json(struct capstan_client *client, const char *job_id, char **out,
                                                   size_t *out_n, struct capstan_error *e);

/* ---- events ---- */

/* Texts are never NULL, and live until the next call with the same events. */
struct capstan_event {
    uint64_t seq;       /* only grows: events after this one are asked for with after_seq */
    uint64_t at_ms;     /* since 1970 */
    const char *type;   /* created, assigned, started, completed, failed, ... */
    const char *job_id; /* "": an event of a node */
    uint64_t stage;     /* of the attempt */
    uint64_t task;
    uint32_t attempt; /* 0: of a job as a whole, or of a node */
    const char *worker_id;
    const char *details; /* JSON; "": none */
    int is_end;          /* not 0: the job that was asked for has ended, and was not retried since */
    int resync;          /* not 0: events before this one were removed, and were not seen */
};

struct capstan_events_request {
    size_t size;
    const char *job_id; /* NULL: all jobs and nodes */
    uint64_t after_seq;
    int follow; /* not 0: go on with what happens from now on, until capstan_interrupt */
};

struct capstan_events;
CAPSTAN_API enum capstan_code capstan_events_open(struct capstan_client *client,
                                                  const struct capstan_events_request *request,
                                                  struct capstan_events **out, struct capstan_error *e);
CAPSTAN_API void capstan_events_close(struct capstan_events *events);

/*
 * The next event, oldest first; `*out_has` is 0 if there is none, which cannot be if it follows. None is left out and none
 * comes twice, also if a connection breaks or the leader changes meanwhile.
 */
CAPSTAN_API enum capstan_code capstan_events_next(struct capstan_events *events, struct capstan_event *out,
                                                  int *out_has, struct capstan_error *e);

/* ---- the cluster, as JSON in the shapes of the HTTP API; texts for capstan_free ---- */

struct capstan_page {
    size_t size;
    const char *state; /* NULL: all */
    const char *name;  /* of jobs; NULL: all */
    const char *after; /* "next" of the page before; NULL: the first page */
    uint32_t limit;    /* 0: as many as the coordinator likes */
};

/* `page` may be NULL. */
CAPSTAN_API enum capstan_code capstan_jobs_json(struct capstan_client *client, const struct capstan_page *page,
                                                char **out, struct capstan_error *e);
CAPSTAN_API enum capstan_code capstan_tasks_json(struct capstan_client *client, const char *job_id,
                                                 const struct capstan_page *page, char **out, struct capstan_error *e);
CAPSTAN_API enum capstan_code capstan_why_json(struct capstan_client *client, const char *job_id, char **out,
                                               struct capstan_error *e);
CAPSTAN_API enum capstan_code capstan_nodes_json(struct capstan_client *client, char **out, struct capstan_error *e);
CAPSTAN_API enum capstan_code capstan_leader_json(struct capstan_client *client, char **out, struct capstan_error *e);

#ifdef __cplusplus
}
#endif

#endif
