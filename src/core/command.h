/*
 * command.h - everything that can be asked of the scheduler.
 *
 * A command is a plain value that lives for one call of core_step; the core copies what it keeps. Whoever builds one
 * has validated foreign bytes (lengths, characters); the core checks meaning: known ids, tokens, states, cycles.
 *
 * `reply_to` is the caller's own handle; it comes back in exactly one reply per command (for CMD_GET_TASK perhaps much
 * later), except for CMD_TICK and CMD_LOAD*, which have none.
 */
#ifndef CAPSTAN_CORE_COMMAND_H
#define CAPSTAN_CORE_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/ids.h"
#include "core/requirement.h"
#include "core/rows.h"

enum command_kind {
    CMD_SUBMIT,       /* a job: a query or a tree */
    CMD_REGISTER,     /* a worker process starts, or comes back */
    CMD_HEARTBEAT,    /* a worker lives and names what it runs */
    CMD_DEREGISTER,   /* a worker leaves */
    CMD_GET_TASK,     /* a worker asks for work; answered by a later CMD_TICK */
    CMD_REPORT,       /* a worker says how attempts went */
    CMD_MAP_OUTPUT,   /* a worker has written a map task's partitions */
    CMD_RESULTS,      /* a worker has a final task's rows */
    CMD_CANCEL,       /* a client ends a job */
    CMD_RETRY,        /* a client runs an ended job again */
    CMD_SET_NODE,     /* an operator drains a worker, or clears its blacklisting */
    CMD_CHILD_DONE,   /* the coordinator has a task's result: its child job has succeeded */
    CMD_CHILD_FAILED, /* the coordinator could not start a task's child job, or not read its rows */
    CMD_TICK,         /* time passes: timers fire, then waiting polls are served. Ends every batch of commands */
    CMD_LOAD,         /* one stored row; jobs before stages before tasks before the rest */
    CMD_LOADED,       /* no more rows: derive the rest, give every lease and worker a full period */
    CMD_LOADED_JOB,   /* as CMD_LOADED, for one ended job that was brought back (core_has_job) */
};

/* How a stage's tasks use a parent's map output. */
enum read_mode {
    READ_NONE,      /* only wait for it (trees; planning tasks, which get its outputs as sources for their sizes) */
    READ_PARTITION, /* of P partitions and n tasks, task i reads partitions i*P/n up to (i+1)*P/n */
    READ_ALL,       /* every task reads every partition (broadcast, gather) */
};

/* What a stage's tasks leave behind. */
enum output_kind {
    OUTPUT_NONE,    /* a value in the report (trees) or nothing */
    OUTPUT_SHUFFLE, /* partitions on the worker; CMD_MAP_OUTPUT comes before success */
    OUTPUT_RESULT,  /* rows for the client; CMD_RESULTS comes before success */
};

struct stage_parent {
    uint32_t stage; /* id in the job, or with `added`: index among the stages that come with the same command */
    bool added;
    bool optional; /* wait for any terminal state, not for success */
    enum read_mode read;
};

struct task_spec {
    struct digest inputs;
    uint32_t inputs_bytes;
};

struct stage_spec {
    const char *name; /* NULL for stages of queries */
    const struct requirement *need;
    const struct stage_parent *parents;
    uint32_t n_parents;
    const struct task_spec *tasks; /* NULL: all digests are zero */
    uint32_t n_tasks;              /* at least 1 */
    enum output_kind output;
    uint32_t partitions;   /* OUTPUT_SHUFFLE: at least 1 */
    uint32_t max_attempts; /* 0: as configured */
    int64_t backoff_ms;    /* -1: as configured */
    uint32_t timeout_ms;   /* 0: none */
    bool nondeterministic; /* redoing a task of it restarts all readers */
    bool exclusive;        /* the worker stops it at its own lease deadline */
    bool planning;         /* its report may add stages, and is enough as an output then */
    bool child;            /* runs as a job of its own: no worker, no lease */
};

/*
 * Stages are checked one by one; the first that is wrong is named. Whoever takes trees from people resolves them with
 * core/tree.h, which lists everything that is wrong at once, names that are used twice included.
 */
struct cmd_submit {
    const char *job_id;
    enum job_kind kind;
    const char *name;            /* may be NULL */
    const char *idempotency_key; /* NULL: none */
    uint8_t priority;            /* 0 urgent ... 3 low; there is no "not set" here */
    bool stop_on_failure;        /* queries always do */
    struct digest content;       /* of the whole request: a known id with another content is refused */
    const struct stage_spec *stages;
    uint32_t n_stages;
    const struct attempt_ref *parent; /* not NULL: the job is the child of this running attempt (token unused) */
    const char *refusal;              /* not NULL: it has no stages and is kept as a failed job, with this message */
};

struct cmd_register {
    const char *worker_id;
    const char *incarnation;
    const char *address;
    uint32_t slots;
    struct offer offer;
    const char *version;
};

struct cmd_heartbeat {
    const char *worker_id;
    const char *incarnation;
    const struct attempt_ref *running;
    uint32_t n_running;
    struct string_list ops;
    const char *const *held_jobs; /* jobs of which it keeps files; the answer names those that have ended */
    uint32_t n_held_jobs;
    double load;
    bool is_leaving; /* it wants to go and asks how many of its map outputs are still needed */
};

struct cmd_deregister {
    const char *worker_id;
    const char *incarnation;
};

struct cmd_get_task {
    const char *worker_id;
    const char *incarnation;
    uint32_t capacity; /* 0: wake me only for stops */
    uint32_t wait_ms;
};

/* What a final task has for the client. */
struct task_rows {
    uint64_t rows;
    uint64_t bytes;
    bool is_inline; /* the payload came along; else it stays on the worker */
};

struct task_report {
    struct attempt_ref ref;
    enum task_state state; /* TASK_RUNNING, TASK_SUCCEEDED, TASK_FAILED; TASK_QUEUED: released untouched */
    const char *message;   /* may be NULL */
    bool not_retryable;
    struct digest result; /* of the result value, which the caller stores */
    uint32_t result_bytes;
    const struct attempt_ref *fetch_failed; /* map outputs that could not be read (tokens unused) */
    uint32_t n_fetch_failed;
    uint64_t rows;
    uint64_t bytes;
    const struct stage_spec *added; /* a planning task's result */
    uint32_t n_added;
    const struct partition *map_output; /* not NULL: as CMD_MAP_OUTPUT, in one go with the success */
    uint32_t n_map_output;
    const struct task_rows *query_results; /* not NULL: as CMD_RESULTS, likewise */
};

struct cmd_report {
    const char *worker_id;
    const char *incarnation;
    const struct task_report *reports;
    uint32_t n_reports;
};

struct cmd_map_output {
    struct attempt_ref ref;
    const char *worker_id;
    const struct partition *partitions; /* index = reduce partition */
    uint32_t n_partitions;
};

struct cmd_results {
    struct attempt_ref ref;
    const char *worker_id;
    struct task_rows rows;
};

struct cmd_cancel {
    const char *job_id;
    const char *reason; /* may be NULL */
};

struct cmd_retry {
    const char *job_id;
    const char *from_task; /* NULL: all tasks that did not succeed; else also this one and what depends on it */
    bool results_lost;     /* a succeeded query whose result files are gone may be run again */
};

struct cmd_set_node {
    const char *worker_id;
    bool set_draining;
    bool draining;
    bool clear_blacklist;
};

struct cmd_child_done {
    struct attempt_ref ref; /* token unused */
    struct digest result;   /* of the result value, which the caller stores */
    uint32_t result_bytes;
    uint64_t rows;
};

struct cmd_child_failed {
    struct attempt_ref ref; /* token unused */
    const char *message;
};

struct command {
    enum command_kind kind;
    uint64_t reply_to;
    union {
        struct cmd_submit submit;
        struct cmd_register reg;
        struct cmd_heartbeat heartbeat;
        struct cmd_deregister deregister;
        struct cmd_get_task get_task;
        struct cmd_report report;
        struct cmd_map_output map_output;
        struct cmd_results results;
        struct cmd_cancel cancel;
        struct cmd_retry retry;
        struct cmd_set_node set_node;
        struct cmd_child_done child_done;
        struct cmd_child_failed child_failed;
        const struct row *load; /* CMD_LOAD */
        const char *loaded_job; /* CMD_LOADED_JOB: its id */
    } u;
};

#endif
