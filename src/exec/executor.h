/*
 * executor.h - how a worker runs one attempt of a task.
 *
 * An executor is a name and a function. The function runs on a thread of the worker (a slot), may block, and must come
 * back soon after exec_stop_is_fired(); what it started, processes included, is gone when it returns. It never logs.
 *
 * A stop has a reason. STOP_TIMEOUT is the task's own time limit, run by the executor's caller: the message of the
 * attempt is then "timed out after N ms". The other reasons are the worker's: what the executor returns is thrown away.
 *
 * Ownership: the task is the caller's and outlives the call; the executor fills in `out`, which the caller hands in
 * zero-initialised and ends with exec_outcome_deinit. Threads: run() of one executor is called from many at a time; a set
 * is filled by one thread, before the first exec_run, and freed by one, after the last.
 */
#ifndef CAPSTAN_EXEC_EXECUTOR_H
#define CAPSTAN_EXEC_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "exec/command_limits.h"

enum stop_reason { STOP_NONE, STOP_TIMEOUT, STOP_CANCELED, STOP_LEASE_LOST, STOP_SHUTDOWN };

/*
 * The right to stop one run, shared by the worker (fires) and the executor (watches). The first reason wins; a second one
 * can only make it more urgent (see exec_stop_is_urgent). All functions but exec_stop_free may be called from any thread at
 * any time; nobody may use it any more when it is freed.
 */
struct exec_stop;
struct exec_stop *exec_stop_new(void);
void exec_stop_free(struct exec_stop *stop); /* NULL ok */
void exec_stop_fire(struct exec_stop *stop, enum stop_reason reason);
enum stop_reason exec_stop_reason(const struct exec_stop *stop); /* STOP_NONE: go on */
/* Whether it was fired, also, for anything but the time limit: then there is no time for a long grace. */
bool exec_stop_is_urgent(const struct exec_stop *stop);
/*
 * Becomes readable when it is fired: for poll(); nobody reads from it. Made at the first call, so that tasks which never
 * wait cost none, and owned by the stop. -1 if the process has no descriptor left.
 */
int exec_stop_fd(struct exec_stop *stop);
/*
 * When what runs must be gone, in monotonic milliseconds, also if this process cannot see to it because it is halted; 0:
 * there is no such time. The worker moves it; an executor whose work could go on without this process asks for it.
 */
void exec_stop_set_limit(struct exec_stop *stop, int64_t limit_ms);
int64_t exec_stop_limit(const struct exec_stop *stop);
/* Waits until it is fired or the time is over. True if it is fired. */
bool exec_stop_wait(struct exec_stop *stop, int64_t ms);

/*
 * Told how far a run is: a fraction from 0 to 1, rows and bytes so far. Called on a thread of the executor's choice, one
 * call at a time, and never after the run has returned; must not block.
 */
typedef void exec_progress_fn(void *context, double fraction, uint64_t rows, uint64_t bytes);

/* One partition of a map output. */
struct exec_partition {
    uint32_t number;
    uint64_t bytes;
    uint64_t rows;
    uint64_t batches;
    uint64_t checksum;
};

/* A map output that a task reads: this attempt, of a task of the same job, and of it these partitions. */
struct exec_source {
    uint64_t stage;
    uint64_t task;
    uint32_t attempt;
    const char *worker_id;
    const char *address;
    const struct exec_partition *partitions;
    uint32_t n_partitions;
};

struct exec_task {
    const char *job_id;
    uint64_t stage;
    uint64_t task;
    uint32_t attempt;
    const char *name;   /* may be NULL */
    const char *inputs; /* JSON, `n_inputs` bytes, NUL-terminated; results and templates are filled in already */
    size_t n_inputs;
    const char *idempotency_key; /* of this attempt */
    const char *task_key;        /* the same over all attempts */
    uint32_t timeout_ms;         /* 0: none */
    uint32_t kill_grace_ms;
    const struct exec_source *sources; /* by stage, in the order in which the stage names them */
    uint32_t n_sources;
    exec_progress_fn *on_progress; /* NULL ok */
    void *progress_context;        /* for on_progress */
};

enum exec_output_kind {
    EXEC_OUTPUT_NONE,
    EXEC_OUTPUT_MAP,    /* partitions that lie on this worker */
    EXEC_OUTPUT_RESULT, /* rows for the client: in `ipc`, or, if that is empty, on this worker */
};

/* What a run leaves for others, to be registered with its success. */
struct exec_output {
    enum exec_output_kind kind;
    struct exec_partition *partitions; /* of a map: `number` is the index. From mem_alloc */
    uint32_t n_partitions;
    struct buf ipc; /* of a result that is small enough: an Arrow stream */
    uint64_t rows;  /* of a result */
    uint64_t bytes;
};

/* A map output of the same job that could not be read. */
struct exec_lost {
    uint64_t stage;
    uint64_t task;
    uint32_t attempt;
};

struct exec_outcome {
    bool is_success;
    bool not_retryable;
    struct buf message; /* why it failed; for people */
    struct buf result;  /* JSON; empty: none */
    uint64_t rows;
    uint64_t bytes;
    struct exec_output output;
    struct buf plan;        /* of a planning task: the physical plan to go on with, as JSON */
    struct buf table_name;  /* a named data set that it has made, of Parquet files; empty: none */
    struct buf table_files; /* path of these, a glob */
    struct exec_lost *lost; /* of a failure: map outputs that could not be read. From mem_alloc */
    uint32_t n_lost;
};

void exec_outcome_deinit(struct exec_outcome *out);
/*
 * Makes it a failure with this message, cut at LIMIT_MESSAGE_BYTES; bytes that are no UTF-8 are replaced. A result that
 * is there already stays.
 */
void exec_fail(struct exec_outcome *out, bool not_retryable, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Told of a job. Must not call the executor. */
typedef void exec_job_fn(void *context, const char *job_id);

struct executor {
    const char *name; /* "command"; what tasks ask for */
    void (*run)(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                struct exec_outcome *out);
    /* The job is over: what was kept for its other tasks can go. NULL: nothing is kept. May be called at any time. */
    void (*drop_job)(struct executor *executor, const char *job_id);
    /* Names each job of which something is kept, at least once, so that its end is heard of. NULL as for drop_job. */
    void (*each_job)(struct executor *executor, exec_job_fn *fn, void *context);
    void (*close)(struct executor *executor); /* frees it; NULL: there is nothing to free */
};

/* Ends an executor that no set has taken over. NULL ok. */
void executor_close(struct executor *executor);

/* The executors of one worker, by name. */
struct executor_set;
struct executor_set *executor_set_new(void);
void executor_set_free(struct executor_set *set); /* closes them; NULL ok */
/* Takes it over. ERR_EXISTS if there is one of that name: then it is still the caller's, who ends it (executor_close). */
MUST_USE enum err executor_set_add(struct executor_set *set, struct executor *executor, struct error *e);
struct executor *executor_set_find(const struct executor_set *set, const char *name); /* NULL: none */
/* Tells all of them that a job is over. */
void executor_set_drop_job(const struct executor_set *set, const char *job_id);
/* Asks all of them for the jobs of which they keep something; a job may be named more than once. */
void executor_set_each_job(const struct executor_set *set, exec_job_fn *fn, void *context);
uint32_t executor_set_count(const struct executor_set *set);
struct executor *executor_set_at(const struct executor_set *set, uint32_t i);

/* Copied where it has to be kept. */
struct exec_options {
    const char *const *pass_env; /* names of variables that commands get from the worker's own environment, read once */
    uint32_t n_pass_env;
    bool http_deny_private;
    const char *work_dir; /* where commands run unless they say otherwise; NULL: where the worker runs */
    struct command_limits command_limits;
};

/*
 * Programs. Starts one small process beside the worker (guard.h), which ends all commands when the worker dies. The
 * process must not ignore SIGCHLD, nor wait for children that it did not start itself.
 */
struct executor *executor_command(const struct exec_options *options);
struct executor *executor_http(const struct exec_options *options);
struct executor *executor_sleep(void);

struct exchange_store;
struct exchange_channels;
struct operators;

struct sql_options {
    struct exchange_store *store;       /* where outputs are kept; outlives the executor, as do the next two */
    struct exchange_channels *channels; /* to other workers */
    const struct operators *operators;  /* NULL: none */
    const char *worker_id;              /* sources of this worker are read from the store */
    uint64_t memory_bytes_max;          /* of DuckDB's memory for fragments */
    uint32_t threads;                   /* of DuckDB's; as many as tasks run at a time */
    const char *temp_folder;            /* where DuckDB spills to; NULL: it may not */
    bool is_compressed;                 /* rows for other workers, with LZ4 */
    const char *notes_folder;           /* where it notes what is to be removed after a restart; NULL: nowhere */
    int64_t settled_ms;                 /* so old are files that DuckDB may remember; 0: as usual */
};

/* Planning of queries, and the fragments of their plans. DuckDB is opened at the first task. Texts are copied. */
struct executor *executor_sql(const struct sql_options *options);

/*
 * Loads FILE.so (include/capstan/executor.h). ERR_NOT_FOUND if there is no such file; ERR_PRECONDITION if it is a shared
 * object without a function capstan_executor_v1, so that it may still have operators (operator.h); ERR_INVALID if it cannot
 * be loaded or used, or needs a newer worker.
 */
MUST_USE enum err executor_plugin(const char *path, struct executor **out, struct error *e);

/*
 * Runs one task: finds the executor, keeps the time limit, turns STOP_TIMEOUT into its message. ERR is never returned:
 * an unknown executor is a failed outcome (retryable: another worker may have it). A run that is still under way when its
 * time is over has failed, whatever it returns then. A result that is no JSON, or larger than LIMIT_INLINE_RESULT_BYTES,
 * is a failed outcome, not retryable.
 */
void exec_run(const struct executor_set *set, const char *executor, const struct exec_task *task,
              struct exec_stop *stop, struct exec_outcome *out);

#endif
