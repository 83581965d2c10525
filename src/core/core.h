/*
 * core.h - the scheduler: a pure state machine.
 *
 * Concepts, each one a struct in core_internal.h:
 *   job      what a client submits; made of stages. A query's stages have many tasks, a tree's stages have one each.
 *   stage    tasks with the same requirement and the same parents; runnable when its parents are done.
 *   task     the unit of work. Its latest attempt is the only one that counts.
 *   lease    ties the running attempt of a task to one worker, under a secret token.
 *   worker   a process that pulls work, known by worker_id and incarnation.
 *   output   what a succeeded attempt left on a worker: shuffle partitions, or result rows.
 *   class    all tasks with equal requirement and priority. Picking looks at classes, never at tasks.
 *   profile  all workers with equal offers. Whether a class fits a profile is worked out once.
 *
 * The loop: core_step() takes one command and writes into the caller's effects what must become durable, and what may
 * be answered after that. Commands gather in a batch; CMD_TICK ends it: timers fire, then waiting polls get tasks.
 *
 * Failure: the core has none of its own. It never does I/O, reads no clock, draws no random bits, holds no lock, logs
 * nothing. If a commit fails, the caller throws the core away. A core loaded from the committed rows is core_equal to
 * the one that wrote them. These are the fields that do not survive, because they need not: lease and liveness
 * deadlines (everyone gets a full period after a load), waiting polls and undelivered stop orders (heartbeats repeat
 * them), the turn order of jobs, stuck warnings, statistics, and jobs that have ended but are still in memory.
 *
 * Time: `now_ms` is the leader's clock; a value below an earlier one counts as the earlier one. Leases and liveness
 * run on attended time, which stands still while the leader does not step: a gap of more than
 * CORE_STALL_MS between two steps is the leader's own silence, not the workers'. So step at least as often as
 * `wake_at_ms` asks for.
 *
 * Jobs that have ended stay in memory for a while (`ended_jobs_resident`), for late and repeated messages. A command
 * that names a job which core_has_job() does not know may name one that ended long ago: whoever drives the core loads
 * its rows first (CMD_LOAD..., CMD_LOADED_JOB) if there are any.
 *
 * Ownership: core_new's caller owns the core. Threads: one at a time.
 */
#ifndef CAPSTAN_CORE_CORE_H
#define CAPSTAN_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "core/command.h"
#include "core/config.h"
#include "core/effects.h"
#include "core/ids.h"
#include "core/rows.h"

#define CORE_STALL_MS 1000
#define CORE_TICK_MS 500 /* wake_at_ms is never further away than this */

struct core;

/* What comes in from outside with every step. The seed must be unpredictable to workers: lease tokens come from it. */
struct core_input {
    int64_t now_ms;
    int64_t pending_since_ms; /* when the oldest step was taken whose effects have not left yet; 0: all have */
    uint64_t seed[2];
};

struct core *core_new(const struct core_config *config, uint64_t hash_seed);
void core_free(struct core *core); /* NULL ok */

void core_step(struct core *core, const struct core_input *input, const struct command *command, struct effects *fx);

/* True if a command about this job can be answered from memory. */
bool core_has_job(const struct core *core, const char *job_id);
/* The job that was submitted with this idempotency key, if it is in memory; else NULL. Valid until the next step. */
const char *core_job_by_key(const struct core *core, const char *idempotency_key);

/*
 * How many jobs ended under this core, and how many of those, the oldest ones, are out of memory again. Whoever looks
 * for a job in the store, finds none, and sees `forgotten` now not above `ended` at the time of the look can rely on
 * core_has_job() for everything that happened since.
 */
struct residency {
    uint64_t ended;
    uint64_t forgotten;
};

struct residency core_residency(const struct core *core);

/* Aborts if any invariant is broken. Looks at everything: for tests. */
void core_check(const struct core *core);

/*
 * True if both hold the same durable state of jobs that have not ended, and of nodes. Else false, with a line about the
 * first difference in `why` (may be NULL).
 */
bool core_equal(const struct core *a, const struct core *b, char *why, size_t why_size);

/* ---- reads; answers are valid until the next step ---- */

struct stage_status {
    const char *name;
    uint32_t n_tasks;
    uint32_t counts[TASK_STATE_COUNT];
    uint64_t rows;
    uint64_t bytes;
};

struct job_status {
    const char *job_id;
    const char *name;
    enum job_kind kind;
    enum job_state state;
    uint8_t priority;
    uint32_t n_stages;
    uint32_t running;
    int64_t submitted_at_ms;
    int64_t started_at_ms;
    int64_t finished_at_ms;
    const char *message;
};

MUST_USE enum err core_job_status(const struct core *core, const char *job_id, struct job_status *out);
MUST_USE enum err core_stage_status(const struct core *core, const char *job_id, uint32_t stage,
                                    struct stage_status *out);

/* The stages that a stage depends on, in the arena. NULL and no number if there is no such stage. */
const uint32_t *core_stage_parents(const struct core *core, const char *job_id, uint32_t stage, struct arena *arena,
                                   uint32_t *out_n);

struct task_status {
    enum task_state state;
    enum attempt_outcome outcome;
    uint32_t attempt;
    uint32_t failures;
    struct lease_token token;
    const char *worker_id; /* while it runs; else NULL */
    int64_t ready_at_ms;
};

MUST_USE enum err core_task_status(const struct core *core, struct task_ref ref, struct task_status *out);

struct node_info {
    const char *worker_id;
    const char *incarnation;
    const char *address;
    const char *version;
    enum node_status status;
    bool blacklisted;
    bool draining;
    uint32_t slots;
    uint32_t running;
    uint32_t failures;
    int64_t last_seen_ms;
    double load;
    const struct offer *offer;
};

/* Which nodes to list; NULL and zero fields do not filter. */
struct node_filter {
    const char *executor;
    const char *op;
    const struct capability *capability;
};

/* Walks the nodes in no particular order; `cursor` starts at 0. False at the end. */
bool core_next_node(const struct core *core, const struct node_filter *filter, size_t *cursor, struct node_info *out);
MUST_USE enum err core_node(const struct core *core, const char *worker_id, struct node_info *out);

/* Where a registered map output or result lies. */
struct output_info {
    uint32_t attempt;
    const char *worker_id;
    const char *address;
    uint64_t rows;
    uint64_t bytes;
    bool is_inline;
    const struct partition *partitions;
    uint32_t n_partitions;
};

/*
 * A map output that may be fetched: exactly this attempt, registered, of a task that succeeded with it. Else
 * ERR_NOT_FOUND with "map output not registered for requested attempt".
 */
MUST_USE enum err core_map_output(const struct core *core, const struct attempt_ref *ref, struct output_info *out,
                                  struct error *e);

/* A final task's result. ERR_PRECONDITION until the job has succeeded. */
MUST_USE enum err core_result(const struct core *core, struct task_ref ref, struct output_info *out, struct error *e);

/* The results of a query that has succeeded, in the order in which their rows come. Valid until the next step. */
struct result_info {
    struct task_ref ref;
    struct output_info output;
};

/* Returns how many there are; they are in the arena. None if the job has not succeeded. */
uint32_t core_results(const struct core *core, const char *job_id, struct arena *arena,
                      const struct result_info **out_results);

/* Bytes and rows that a stage's finished tasks have registered: what a planning task is told of its parents. */
MUST_USE enum err core_stage_sizes(const struct core *core, const char *job_id, uint32_t stage, uint64_t *out_rows,
                                   uint64_t *out_bytes);

struct pending_reason {
    uint32_t stage;
    uint32_t task; /* the first of them */
    uint32_t n_tasks;
    const char *reason; /* in the arena */
};

/*
 * Why the queued tasks of a job are not running: at most `max` reasons, by stage. Returns how many were written.
 */
uint32_t core_why_pending(const struct core *core, const char *job_id, struct arena *arena, struct pending_reason *out,
                          uint32_t max);

struct core_stats {
    uint64_t jobs;                    /* that have not ended */
    uint64_t jobs_running;            /* of these */
    uint64_t tasks[TASK_STATE_COUNT]; /* of jobs that have not ended */
    uint64_t leases;
    uint64_t assigned_total;
    uint64_t outcomes_total[5]; /* attempts that ended, by enum attempt_outcome; not those of the next two lines */
    uint64_t canceled_total;    /* attempts that ended with their job */
    uint64_t released_total;    /* that were given back: their worker leaves, or their input is being redone */
    uint64_t lease_expired_total;
    uint64_t refused_total[REFUSE_COUNT];
    uint64_t stuck_tasks;
    uint64_t nodes[3]; /* by enum node_status */
    uint64_t classes;
    uint64_t profiles;
};

struct core_stats core_stats(const struct core *core);

/* Bugs that the simulator must find. Compiled in only with CAPSTAN_PLANTED_BUGS; none is ever set otherwise. */
#define BUG_TABLE(X)                                                                                                   \
    X(accept_stale_token)                                                                                              \
    X(ack_before_commit)                                                                                               \
    X(skip_parent_gate)                                                                                                \
    X(forget_requeue)                                                                                                  \
    X(count_superseded_attempt)                                                                                        \
    X(custom_op_to_anyone)                                                                                             \
    X(late_failure_revives_job)                                                                                        \
    X(lose_row_at_recovery)                                                                                            \
    X(drop_backoff)                                                                                                    \
    X(ignore_query_limit)                                                                                              \
    X(serve_unregistered_map)                                                                                          \
    X(skip_blacklist)                                                                                                  \
    X(refuse_repeated_completion)                                                                                      \
    X(mix_nondeterministic_maps)                                                                                       \
    X(ignore_worker_limit)                                                                                             \
    X(ignore_placement)                                                                                                \
    X(second_lease)                                                                                                    \
    X(lease_never_expires)

enum bug {
    BUG_NONE,
#define BUG_ENUM(name) BUG_##name,
    BUG_TABLE(BUG_ENUM)
#undef BUG_ENUM
};

#ifdef CAPSTAN_PLANTED_BUGS
void core_plant_bug(struct core *core, enum bug bug);
#endif

#endif
