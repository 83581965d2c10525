/*
 * job.h - what can be asked of one job: submit, status, the wait for its end, cancel, retry.
 *
 * Ids are made here, before anything is sent, so that a submit whose answer was lost can be repeated, and a job can be
 * canceled whose submit has not been answered.
 *
 * Ownership: answers live in the caller's arena. Threads: one at a time per client.
 */
#ifndef CAPSTAN_CLIENT_JOB_H
#define CAPSTAN_CLIENT_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "client/client.h"
#include "wire/message.h"

struct tree_submission {
    const char *job_id; /* NULL: one is made */
    const char *json;
    size_t n_json;
    const char *key; /* NULL: none */
};

struct query_submission {
    const char *job_id; /* NULL: one is made */
    const char *sql;    /* NULL: the plan */
    const char *plan_json;
    size_t n_plan;
    const char *params_json;  /* "" or NULL: none */
    const char *options_json; /* "" or NULL: as the coordinator is set */
    const char *key;          /* NULL: none */
    bool has_priority;
    uint32_t priority;
    bool explains; /* plan only */
};

MUST_USE enum err client_submit_tree(const struct client_caller *caller, const struct tree_submission *tree,
                                     struct pb_submit_tasks_response **out, struct error *e);
MUST_USE enum err client_submit_query(const struct client_caller *caller, const struct query_submission *query,
                                      struct pb_submit_query_response **out, struct error *e);

/* A new id, in the arena: a UUID of version 7. */
const char *client_new_job_id(struct arena *arena);

/* How it is now, or when it ends if that is within `wait_ms`. */
MUST_USE enum err client_job_status(const struct client_caller *caller, const char *job_id, int64_t wait_ms,
                                    struct pb_query_status **out, struct error *e);

/* How to wait. All zero: until the end, however long that takes. */
struct client_wait {
    int64_t until_mono_ms; /* 0: no limit */
    int64_t first_ms;      /* how long the first call may be held, and the others; 0: half a minute */
    int64_t every_ms;
    void (*on_status)(void *context, const struct pb_query_status *status); /* of a job that has not ended; NULL ok */
    void *context;
};

/* ERR_DEADLINE if there is a limit and it was reached, ERR_CANCELED after the caller's cancel was fired. */
MUST_USE enum err client_await(const struct client_caller *caller, const char *job_id, const struct client_wait *wait,
                               struct pb_query_status **out, struct error *e);

MUST_USE enum err client_cancel(const struct client_caller *caller, const char *job_id, const char *reason,
                                struct pb_cancel_query_response **out, struct error *e);

/* `from_task` "": all that failed or was skipped. */
MUST_USE enum err client_retry(const struct client_caller *caller, const char *job_id, const char *from_task,
                               struct pb_retry_job_response **out, struct error *e);

bool query_state_is_terminal(Capstan__V1__QueryState state);

#endif
