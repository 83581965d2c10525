/*
 * effects.h - what a step wants done: rows to make durable, answers to send, and when to come back.
 *
 * Everything in it, strings included, is a copy in the effects' own arena: the store thread can read it while the core
 * takes its next step. The order of use is fixed: commit `rows`, then send `replies`, start `children` and read what
 * `child_ends` name. A reply marked `immediate` depends on nothing that is not yet durable and need not wait.
 *
 * Ownership: the caller owns the struct; zero-initialised is empty. Effects of several steps gather in one struct.
 * Threads: one at a time.
 */
#ifndef CAPSTAN_CORE_EFFECTS_H
#define CAPSTAN_CORE_EFFECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "core/command.h"
#include "core/ids.h"
#include "core/rows.h"

enum reply_kind {
    REPLY_ERROR, /* `code` and `message` say why; nothing changed */
    REPLY_SUBMIT,
    REPLY_REGISTER,
    REPLY_HEARTBEAT,
    REPLY_TASKS,
    REPLY_REPORT,
    REPLY_ACCEPT, /* map output, results, child done */
    REPLY_JOB,    /* cancel, retry: the job's state */
    REPLY_DONE,   /* deregister, set node, child failed */
};

/* Why something that a worker said was not taken. REFUSE_NONE: it was. */
#define REFUSE_TABLE(X)                                                                                                \
    X(NONE, "")                                                                                                        \
    X(UNKNOWN_JOB, "unknown job")                                                                                      \
    X(UNKNOWN_TASK, "unknown task")                                                                                    \
    X(STALE_ATTEMPT, "stale attempt")                                                                                  \
    X(WRONG_TOKEN, "stale attempt: wrong lease token")                                                                 \
    X(JOB_ENDED, "stale attempt: the job has ended")                                                                   \
    X(WRONG_WORKER, "stale attempt: leased to another worker")                                                         \
    X(UNKNOWN_WORKER, "unknown worker: register first")                                                                \
    X(SUPERSEDED, "superseded by a newer process with the same worker_id")                                             \
    X(BAD_OUTPUT, "output does not fit the stage")                                                                     \
    X(INLINE_LIMIT, "inline results of this job would exceed the limit: keep them on the worker")

enum refusal {
#define REFUSE_ENUM(symbol, text) REFUSE_##symbol,
    REFUSE_TABLE(REFUSE_ENUM)
#undef REFUSE_ENUM
        REFUSE_COUNT
};

const char *refusal_text(enum refusal refusal);

/* A map output that an assigned task reads: `partitions` are those of its own range, starting at `first_partition`. */
struct source {
    struct task_ref ref;
    uint32_t attempt;
    const char *worker_id;
    const char *address;
    uint32_t first_partition;
    uint32_t n_partitions;
    const struct partition *partitions;
};

/* A task that an assigned one depends on, without reading its map output: its result belongs to the inputs. */
struct parent_result {
    uint32_t stage;
    const char *name; /* may be NULL */
    bool has_succeeded;
};

struct assignment {
    struct attempt_ref ref;
    enum job_kind kind;
    struct digest inputs;
    uint32_t inputs_bytes;
    const struct parent_result *parents;
    uint32_t n_parents;
    const char *name;     /* may be NULL */
    const char *executor; /* may be NULL */
    struct string_list ops;
    struct digest idempotency_key;
    uint32_t lease_ms;
    uint32_t timeout_ms;
    bool exclusive;
    int64_t queued_ms; /* since it was queued and its stage could run; a backoff counts, too */
    const struct source *sources;
    uint32_t n_sources;
    struct assignment *next;
};

struct reply {
    struct reply *next;
    uint64_t to;
    enum reply_kind kind;
    bool immediate;
    enum err code;       /* REPLY_ERROR */
    const char *message; /* REPLY_ERROR */
    union {
        struct {
            const char *job_id;
            enum job_state state;
            bool existed;
        } job; /* REPLY_SUBMIT, REPLY_JOB */
        struct {
            int64_t heartbeat_interval_ms;
            int64_t lease_ms;
        } registered;
        struct {
            bool accepted;
            enum refusal refusal;
            bool drain;
            const struct attempt_ref *stop;
            uint32_t n_stop;
            const char *const *ended_jobs; /* of the held ones */
            uint32_t n_ended_jobs;
            const char *const
                *failed_jobs; /* of the ended ones: did not succeed, so that nobody can have their results */
            uint32_t n_failed_jobs;
            uint32_t outputs_needed; /* map outputs here that somebody has to read; only if it is leaving or draining */
        } heartbeat;
        struct {
            const struct assignment *first;
            uint32_t n_tasks;
            const struct attempt_ref *stop;
            uint32_t n_stop;
            int64_t waited_ms;
        } tasks;
        struct {
            const enum refusal *outcomes; /* in the order of the reports */
            const bool *repeated;         /* likewise: accepted, but it had won before, so nothing moved */
            uint32_t n_outcomes;
        } report;
        enum refusal accept;
    } u;
};

/*
 * A task that wants to run as a job: submit that job with this attempt as its parent, or send CMD_CHILD_FAILED. A new
 * leader says so again of a task that has no job which still runs, or whose time is limited: whoever submits the job
 * cancels it when that is over. If the submit finds that the job has ended, which happened under the leader before, there
 * is no child_end any more.
 */
struct child_start {
    struct child_start *next;
    struct attempt_ref ref;
    struct digest inputs;
    uint32_t inputs_bytes;
    const struct parent_result *parents;
    uint32_t n_parents;
    uint32_t timeout_ms;      /* 0: none */
    uint32_t timeout_left_ms; /* of that; 0: it is over */
};

/* The job of such a task has succeeded: send CMD_CHILD_DONE with what it brought, or CMD_CHILD_FAILED. */
struct child_end {
    struct child_end *next;
    struct attempt_ref ref;
    const char *job_id;
};

struct effects {
    struct arena arena;
    struct row *rows, **rows_end;
    struct reply *replies, **replies_end;
    struct child_start *children, **children_end;
    struct child_end *child_ends, **child_ends_end;
    uint32_t n_rows;
    uint32_t n_replies;
    int64_t wake_at_ms;                  /* send CMD_TICK no later than this */
    const char *last_job_id;             /* copied already; rows in a row often share them */
    uint64_t last_job_serial;            /* of that job */
    const struct requirement *last_need; /* likewise */
};

void effects_reset(struct effects *fx); /* empties it, keeps some memory for the next use */
void effects_deinit(struct effects *fx);

#endif
