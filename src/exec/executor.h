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
/* Waits until it is fired or the time is over. True if it is fired. */
bool exec_stop_wait(struct exec_stop *stop, int64_t ms);

/* Told how far a run is: a fraction from 0 to 1, rows and bytes so far. Called on the thread that runs it; must not block. */
typedef void exec_progress_fn(void *context, double fraction, uint64_t rows, uint64_t bytes);

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
    exec_progress_fn *on_progress; /* NULL ok */
    void *progress_context;        /* for on_progress */
};

struct exec_outcome {
    bool is_success;
    bool not_retryable;
    struct buf message; /* why it failed; for people */
    struct buf result;  /* JSON; empty: none */
    uint64_t rows;
    uint64_t bytes;
};

void exec_outcome_deinit(struct exec_outcome *out);
/*
 * Makes it a failure with this message, cut at LIMIT_MESSAGE_BYTES; bytes that are no UTF-8 are replaced. A result that
 * is there already stays.
 */
void exec_fail(struct exec_outcome *out, bool not_retryable, const char *fmt, ...) PRINTF_LIKE(3, 4);

struct executor {
    const char *name; /* "command"; what tasks ask for */
    void (*run)(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                struct exec_outcome *out);
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
uint32_t executor_set_count(const struct executor_set *set);
struct executor *executor_set_at(const struct executor_set *set, uint32_t i);

/* Copied where it has to be kept. */
struct exec_options {
    const char *const *pass_env; /* names of variables that commands get from the worker's own environment, read once */
    uint32_t n_pass_env;
    bool http_deny_private;
    const char *work_dir; /* where commands run unless they say otherwise; NULL: where the worker runs */
};

/*
 * Programs. Starts one small process beside the worker (guard.h), which ends all commands when the worker dies. The
 * process must not ignore SIGCHLD, nor wait for children that it did not start itself.
 */
struct executor *executor_command(const struct exec_options *options);
struct executor *executor_http(const struct exec_options *options);
struct executor *executor_sleep(void);
/*
 * Loads FILE.so (include/capstan/executor.h). ERR_NOT_FOUND if there is no such file, ERR_INVALID if it is no plug-in, or
 * needs a newer worker.
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
