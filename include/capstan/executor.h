/*
 * executor.h - how to write an executor for Capstan's workers in C, as a plug-in.
 *
 * A plug-in is a shared object that exports one function, capstan_executor_v1. A worker loads it with
 * `capstan worker --plugin FILE.so` and from then on takes tasks whose "executor" is the plug-in's name.
 *
 *     static void run(void *context, const struct capstan_task *task, const struct capstan_host *host,
 *                     struct capstan_run *run)
 *     {
 *         host->set_result(run, "{\"answer\":42}", 13);
 *     }
 *
 *     const struct capstan_executor *capstan_executor_v1(void)
 *     {
 *         static const struct capstan_executor executor = {
 *             .size = sizeof(executor), .abi = CAPSTAN_EXECUTOR_ABI, .name = "answer", .run = run};
 *         return &executor;
 *     }
 *
 * Ownership: what the worker hands in (task, host, run) is the worker's and ends when run() returns; what the plug-in
 * passes to a function of the host is copied before that function returns. The struct that capstan_executor_v1 returns is
 * the plug-in's and stays as it is until close() has returned.
 *
 * Threads: run() is called on many threads at a time, each with a task of its own; open() and close() on one. Of the host's
 * functions, is_stopped and wait may be called from any thread while run() has not returned, the others only from the one
 * that run() is called on.
 *
 * Stopping: a task is stopped when its time is over, when it is canceled, or when the worker loses it. run() must then
 * return within two seconds, so ask is_stopped() often, or sleep with wait(). What it has set by then does not matter. A
 * plug-in shares the process with its worker: if it crashes, the worker does, and all of its tasks are run elsewhere.
 *
 * Versions: CAPSTAN_EXECUTOR_ABI grows when something is added, always at the end of a struct, and a worker takes plug-ins
 * of its own and of all older versions. Something that cannot be done that way will be capstan_executor_v2.
 */
#ifndef CAPSTAN_EXECUTOR_H
#define CAPSTAN_EXECUTOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAPSTAN_EXECUTOR_ABI 1

/* What is to be done. Texts end with a NUL and are UTF-8. */
struct capstan_task {
    size_t size; /* of this struct in the worker; a plug-in made for a newer ABI looks before it reads what was added */
    const char *job_id;
    const char *name;   /* of the task in its tree; NULL: none */
    const char *inputs; /* a JSON object, `n_inputs` bytes without the NUL */
    size_t n_inputs;
    const char *idempotency_key; /* differs for each attempt */
    const char *task_key;        /* the same over all attempts: for de-duplication outside */
    uint64_t stage;
    uint64_t task;
    uint32_t attempt;    /* from 1 */
    uint32_t timeout_ms; /* 0: none. The worker keeps the time; this is for planning. */
};

/* One call of run(). */
struct capstan_run;

/* The kinds of failure. */
enum capstan_failure {
    CAPSTAN_RETRY = 0,    /* it may work the next time, or elsewhere */
    CAPSTAN_NO_RETRY = 1, /* it will not: the inputs are wrong, for instance */
};

/* What the worker does for the plug-in. */
struct capstan_host {
    size_t size; /* of this struct in the worker */

    /* Not 0 if the run should end now. Costs next to nothing. */
    int (*is_stopped)(const struct capstan_run *run);

    /* Sleeps for `ms`, or until the run should end: not 0 then. */
    int (*wait)(struct capstan_run *run, int64_t ms);

    /* How far it is, for people who watch: a fraction from 0 to 1, and rows and bytes done so far, or 0. */
    void (*set_progress)(struct capstan_run *run, double fraction, uint64_t rows, uint64_t bytes);

    /* The result: one JSON value, at most 1 MiB. The last call counts. Without any, there is none. */
    void (*set_result)(struct capstan_run *run, const char *json, size_t n);

    /* The task has failed, for the reason given, which is `n` bytes of text for people. The last call counts. */
    void (*set_error)(struct capstan_run *run, enum capstan_failure kind, const char *message, size_t n);
};

/* What the plug-in is. */
struct capstan_executor {
    size_t size;      /* sizeof(struct capstan_executor) */
    uint32_t abi;     /* CAPSTAN_EXECUTOR_ABI */
    const char *name; /* what tasks ask for: a letter or _, then letters, digits, _ and -, at most 100 */

    /*
     * Once, before the first run. Returns NULL, or a text that says why the plug-in cannot be used. `*context` is handed to
     * run() and close(). May be NULL.
     */
    const char *(*open)(void **context);

    /* Does one task. It has succeeded when this returns and set_error was not called. */
    void (*run)(void *context, const struct capstan_task *task, const struct capstan_host *host,
                struct capstan_run *run);

    /* Once, after the last run; threads of the plug-in must be gone when it returns. May be NULL. */
    void (*close)(void *context);
};

/* The plug-in defines this; it is seen from outside even if the plug-in is compiled with -fvisibility=hidden. */
__attribute__((visibility("default"))) const struct capstan_executor *capstan_executor_v1(void);

#ifdef __cplusplus
}
#endif

#endif
