/*
 * operator.h - how to write an operator for Capstan's SQL queries in C: code of your own over batches of rows.
 *
 * An operator stands behind the SQL of a stage. It gets the rows that the SQL yields, a batch at a time, as Arrow arrays
 * (capstan/arrow.h), and hands out rows of its own, with the same columns or with others. Queries call it with
 * custom('name', (SELECT ...), config := '{...}'). This one is complete: it passes all rows on, and fails a task that has
 * more than a million of them.
 *
 *     #include <capstan/operator.h>
 *     #include <stdlib.h>
 *
 *     static void *create_fuse(const char *config, const struct ArrowSchema *input, struct ArrowSchema *output,
 *                              const struct capstan_operator_host *host, struct capstan_operator_run *run)
 *     {
 *         return calloc(1, sizeof(int64_t));         // `output` is left alone: the columns stay as they are
 *     }
 *
 *     static void process_fuse(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
 *                              struct capstan_operator_run *run)
 *     {
 *         int64_t *count = instance;
 *         *count += rows->length;
 *         if (*count > 1000000) {
 *             host->set_error(run, CAPSTAN_NO_RETRY, "too many rows", 13);
 *         } else {
 *             host->emit(run, rows);
 *         }
 *     }
 *
 *     static const struct capstan_operator fuse = {.size = sizeof(fuse), .abi = CAPSTAN_OPERATOR_ABI, .name = "fuse",
 *         .create = create_fuse, .process = process_fuse, .destroy = free};
 *
 *     const struct capstan_operator *const *capstan_operators_v1(void)
 *     {
 *         static const struct capstan_operator *const all[] = {&fuse, NULL};
 *         return all;
 *     }
 *
 * Two ways in. As a plug-in: a shared object that exports capstan_operators_v1, for `capstan worker --plugin FILE.so`; the
 * same file may have an executor (capstan/executor.h), too. Or linked into a worker of your own: capstan/worker.h.
 *
 * What an instance sees: each task of the stage has an instance of its own, which sees the rows of that task, a part of all
 * rows, and knows nothing of the others. A task that fails begins again, with a new instance; so an operator that does
 * something outside of the query may do it twice. create() is also called to ask for the columns while a query is planned,
 * and destroy() follows at once: do the expensive things at the first process(), and none with effects in create().
 *
 * Ownership: what the worker hands in (config, input, host, run) is the worker's and ends when the call returns; messages are
 * copied. Arrays and schemas follow the rules of capstan/arrow.h: emit() takes an array over and sets its `release` to NULL;
 * process() may keep the rows it is given by moving them, and the worker releases them if they are still there when it
 * returns; what create() puts into `output` is the worker's. Arrays that are handed in must not be changed: others may
 * read them, too. Factories stay as they are until the process ends.
 *
 * Threads: create() is called on many threads at a time. An instance is used by one thread at a time, but not always by
 * the same. What was emitted is released on any thread, perhaps while process() runs, perhaps after destroy(). The host's
 * functions are called only by the thread, and during the call, that they were handed to; is_stopped by any thread during
 * the call.
 *
 * Failing: a call has failed if it called set_error(), whatever it returns or has emitted. The task then fails with that
 * message. If create() calls it, destroy() is not called; after process() or finish() it is. A call that does what it must
 * not, such as emit rows in create(), fails as well; it does not know that, so destroy() is called.
 *
 * Stopping: a worker stops a task between two calls. A call that takes longer than a second asks is_stopped(), and returns
 * if it says so. An operator shares the process with its worker: if it crashes, the worker does, and all of its tasks are run
 * elsewhere.
 *
 * Versions: CAPSTAN_OPERATOR_ABI grows when something is added, always at the end of a struct, and a worker takes operators
 * of its own and of all older versions. Something that cannot be done that way will be capstan_operators_v2.
 */
#ifndef CAPSTAN_OPERATOR_H
#define CAPSTAN_OPERATOR_H

#include <stddef.h>
#include <stdint.h>

#include "capstan/arrow.h"
#include "capstan/executor.h" /* enum capstan_failure */

#ifdef __cplusplus
extern "C" {
#endif

#define CAPSTAN_OPERATOR_ABI 1

/* One call of create(), process() or finish(). */
struct capstan_operator_run;

/* What the worker does for the operator. */
struct capstan_operator_host {
    size_t size; /* of this struct in the worker; one made for a newer ABI looks before it reads what was added */

    /*
     * Hands out rows: a struct array with the columns that create() told, as often as wanted in one call, any number of rows
     * each. Takes the array over, in any case. Rows that do not fit the columns fail the call. Not in create(). What
     * one call emits is kept in memory until it returns.
     */
    void (*emit)(struct capstan_operator_run *run, struct ArrowArray *rows);

    /* The call has failed, for the reason given, which is `n` bytes of text for people. The first call counts. */
    void (*set_error)(struct capstan_operator_run *run, enum capstan_failure kind, const char *message, size_t n);

    /* Not 0 if the call should return now. Costs next to nothing. */
    int (*is_stopped)(const struct capstan_operator_run *run);
};

/* What an operator is: a factory of instances. */
struct capstan_operator {
    size_t size;      /* sizeof(struct capstan_operator) */
    uint32_t abi;     /* CAPSTAN_OPERATOR_ABI */
    const char *name; /* what queries ask for: a letter or _, then letters, digits, _ and -, at most 100 */

    /*
     * Makes an instance for rows of these columns. `config_json` is a valid JSON object, {} if the query gives none. `input`
     * is a struct ("+s") with a child per column. `output`, which is released at first, gets the columns that will be
     * emitted, a struct as well; left alone, they are those of the input. The same arguments must yield the same columns on
     * every worker. Returns the instance, which may be NULL if there is nothing to keep.
     */
    void *(*create)(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                    const struct capstan_operator_host *host, struct capstan_operator_run *run);

    /*
     * Takes the next rows, at least one: a struct array with a child per column. Any array, here and inside, may have an
     * `offset`. It may emit nothing, and need not release `rows`.
     */
    void (*process)(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                    struct capstan_operator_run *run);

    /* There are no more rows, or there were none at all: the time to emit what was kept. Once. May be NULL. */
    void (*finish)(void *instance, const struct capstan_operator_host *host, struct capstan_operator_run *run);

    /* Ends the instance, at any time after create(); finish() was not called if nobody wants more rows. May be NULL. */
    void (*destroy)(void *instance);
};

/*
 * A plug-in defines this: all of its operators, and NULL after the last. It is seen from outside even if the plug-in is
 * compiled with -fvisibility=hidden.
 */
__attribute__((visibility("default"))) const struct capstan_operator *const *capstan_operators_v1(void);

#ifdef __cplusplus
}
#endif

#endif
