/*
 * rows.h - the durable form of the scheduler's state: what a step changes, and what a load reads back.
 *
 * A step emits rows in order; a store applies all rows of a batch in one transaction, later ones over earlier ones.
 * A row holds the whole durable content of its entity under its key, so applying it twice does no harm. Fields marked
 * (new) never change afterwards, and but for a job's kind and when it was submitted are set only when `is_new`; NULL
 * strings are stored as NULL.
 *
 * Loading: the rows of all jobs that have not ended, then their stages, then their tasks, then their leases, map
 * outputs and results; all nodes and one ROW_META at any place. Attempts and events are never loaded. The rows of one
 * ended job are loaded when somebody asks for it.
 *
 * Ownership: rows and their strings live in the effects that they came in, or with the store that loads them.
 */
#ifndef CAPSTAN_CORE_ROWS_H
#define CAPSTAN_CORE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/ids.h"
#include "core/requirement.h"

struct stage_spec;

enum row_kind {
    ROW_JOB,
    ROW_JOB_SWEEP, /* the job ended: its queued and running tasks are canceled, its leases and map outputs gone,
                      its pending attempts lost */
    ROW_STAGE,
    ROW_TASK,
    ROW_LEASE,
    ROW_LEASE_GONE,
    ROW_MAP_OUTPUT,
    ROW_MAP_OUTPUT_GONE,
    ROW_RESULT,
    ROW_RESULT_GONE,
    ROW_NODE,
    ROW_NODE_GONE,
    ROW_ATTEMPT,
    ROW_EVENT,
    ROW_META, /* loads only */
};

struct row {
    struct row *next;
    enum row_kind kind;
};

struct row_job {
    struct row row;
    bool is_new;
    uint8_t priority;            /* (new) */
    bool stop_on_failure;        /* (new) */
    enum job_kind kind;          /* (new) */
    const char *job_id;          /* key */
    const char *name;            /* (new) may be NULL */
    const char *idempotency_key; /* (new) may be NULL */
    struct digest content;       /* (new) */
    struct attempt_ref parent;   /* (new) job_id NULL: a job of its own */
    int64_t submitted_at_ms;     /* (new) */
    enum job_state state;
    int64_t started_at_ms;  /* 0: not yet */
    int64_t finished_at_ms; /* 0: not yet */
    uint32_t n_stages;
    uint64_t inline_bytes; /* of results that lie in the store */
    const char *message;
};

struct row_job_sweep {
    struct row row;
    const char *job_id;
    int64_t at_ms;
};

/* `recovered` has one entry, the lost incarnation's mark, for every recovery that the stage's outputs went through. */
struct row_stage {
    struct row row;
    bool is_new;
    const char *job_id;            /* key */
    uint32_t stage;                /* key */
    const struct stage_spec *spec; /* (new) parents as ids in the job, `tasks` NULL */
    const uint64_t *recovered;
    uint32_t n_recovered;
};

struct row_task {
    struct row row;
    bool is_new;
    struct task_ref ref;                 /* key */
    struct digest inputs;                /* (new) */
    uint32_t inputs_bytes;               /* (new) */
    const struct requirement *placement; /* (new) NULL: it can run anywhere its executor is */
    enum task_state state;
    enum attempt_outcome outcome; /* of the latest attempt */
    uint32_t attempt;             /* the latest; 0: none yet */
    uint32_t failures;
    struct lease_token token;      /* of the latest attempt */
    const char *worker_id;         /* that got the latest attempt; NULL: none */
    int64_t lease_expires_at_ms;   /* as granted; 0: no lease */
    struct digest idempotency_key; /* of the running attempt; zero: none */
    struct string_list failed_on;  /* workers to avoid */
    int64_t ready_at_ms;           /* queued: not before this; 0: at once */
    int64_t queued_at_ms;
    int64_t started_at_ms;
    int64_t finished_at_ms;
    struct digest result;
    uint32_t result_bytes;
    uint64_t rows;
    uint64_t bytes;
    const char *message;
};

struct row_lease {
    struct row row;
    struct task_ref ref; /* key: one lease per task */
    uint32_t attempt;
    struct lease_token token; /* unique */
    const char *worker_id;
    int64_t acquired_at_ms;
    int64_t expires_at_ms;
};

struct row_lease_gone {
    struct row row;
    struct task_ref ref;
    struct lease_token token; /* only this one: a lease that was taken anew stays */
};

struct row_map_output {
    struct row row;
    struct task_ref ref; /* key with attempt */
    uint32_t attempt;
    uint32_t generation; /* recoveries of the stage when it was made */
    const char *worker_id;
    const char *incarnation;
    const char *address;
    const struct partition *partitions;
    uint32_t n_partitions;
};

struct row_result {
    struct row row;
    struct task_ref ref; /* key with attempt */
    uint32_t attempt;
    const char *worker_id;
    uint64_t rows;
    uint64_t bytes;
    bool is_inline;
};

/* ROW_MAP_OUTPUT_GONE and ROW_RESULT_GONE. */
struct row_output_gone {
    struct row row;
    struct task_ref ref;
    uint32_t attempt;
};

enum node_status { NODE_HEALTHY, NODE_STALE, NODE_DEAD };

#define NODE_PAST_INCARNATIONS 4

struct row_node {
    struct row row;
    const char *worker_id; /* key */
    const char *incarnation;
    const char *past_incarnations[NODE_PAST_INCARNATIONS]; /* newest first; NULL: none */
    const char *address;
    const char *version;
    uint32_t slots;
    const struct offer *offer; /* ops as advertised, without those found missing */
    enum node_status status;
    bool is_live; /* registered and heard of; else it must register again */
    bool draining;
    uint32_t failures;
    int64_t blacklisted_until_ms; /* 0: not; INT64_MAX: until cleared */
    int64_t registered_at_ms;
    int64_t heartbeat_at_ms;
};

struct row_node_gone {
    struct row row;
    const char *worker_id;
};

/* A row of `execution_idempotency`: the history of attempts. */
struct row_attempt {
    struct row row;
    struct task_ref ref; /* key with attempt */
    uint32_t attempt;
    enum attempt_outcome outcome;
    const char *worker_id;         /* NULL: a child job */
    struct digest idempotency_key; /* set while OUTCOME_PENDING: the row is new */
    int64_t at_ms;
};

#define EVENT_TABLE(X)                                                                                                 \
    X(CREATED, created)                                                                                                \
    X(PENDING, pending)                                                                                                \
    X(ASSIGNED, assigned)                                                                                              \
    X(STARTED, started)                                                                                                \
    X(COMPLETED, completed)                                                                                            \
    X(FAILED, failed)                                                                                                  \
    X(REASSIGNED, reassigned)                                                                                          \
    X(CANCELLED, cancelled)                                                                                            \
    X(RETRIED, retried)                                                                                                \
    X(SKIPPED, skipped)                                                                                                \
    X(STUCK, stuck)                                                                                                    \
    X(JOINED, joined)                                                                                                  \
    X(LOST, lost)                                                                                                      \
    X(BLACKLISTED, blacklisted)                                                                                        \
    X(CLEARED, cleared)                                                                                                \
    X(DRAINING, draining)

enum event_type {
#define EVENT_ENUM(symbol, text) EVENT_##symbol,
    EVENT_TABLE(EVENT_ENUM)
#undef EVENT_ENUM
};

const char *event_type_name(enum event_type type);

#define EVENT_WHOLE_JOB UINT32_MAX /* as stage and task: the event is the job's own */

struct row_event {
    struct row row;
    uint64_t seq; /* grows by one per event, over all leaders */
    int64_t at_ms;
    enum event_type type;
    struct task_ref ref; /* job_id NULL: about a node only */
    uint32_t attempt;
    const char *worker_id; /* may be NULL */
    const char *message;   /* may be NULL */
};

/* What a load must know besides the rows. */
struct row_meta {
    struct row row;
    uint64_t last_event_seq;
};

#endif
