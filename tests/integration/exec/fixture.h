/*
 * fixture.h - a set of executors as a worker has it, and one task after the other.
 *
 * Ownership: fixture_open ... fixture_close; an outcome belongs to the test, which ends it with exec_outcome_deinit (done
 * by the expect_ functions). Threads: one per fixture, except fixture_run, which any number may call.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_EXEC_FIXTURE_H
#define CAPSTAN_TESTS_INTEGRATION_EXEC_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "exec/executor.h"

struct fixture {
    char folder[64]; /* of its own, empty at first, removed at the end; commands run there */
    struct executor_set *set;
};

/* With what a worker has: command, http, sleep. `options` may be NULL; its work_dir is the fixture's. */
struct fixture fixture_open(const struct exec_options *options);
void fixture_close(struct fixture *f);

/* A task with these inputs, attempt 2 of task 7 in stage 3 of job "job-1", called "extract"; without a time limit. */
struct exec_task task_with(const char *inputs);

/* Runs it to its end. */
struct exec_outcome fixture_run(const struct fixture *f, const char *executor, const char *inputs);
struct exec_outcome fixture_run_task(const struct fixture *f, const char *executor, const struct exec_task *task);

/*
 * Runs it on another thread, until `is_time` (asked again and again) says that it is time, then fires the stop and waits
 * for the run's end. `out_took_ms` is the time from the firing to the end.
 */
struct exec_outcome fixture_stop(const struct fixture *f, const char *executor, const struct exec_task *task,
                                 enum stop_reason reason, bool (*is_time)(const struct fixture *),
                                 int64_t *out_took_ms);

/* Check the outcome and end it. The result must be exactly this. */
void expect_success(struct exec_outcome out, const char *result);
void expect_failure(struct exec_outcome out, const char *message, bool not_retryable);

/* Whether the fixture's folder has that file, and what is in it (a number, -1 if there is none). */
bool has_file(const struct fixture *f, const char *name);
long number_in_file(const struct fixture *f, const char *name);

/* Whether that process exists and is more than a zombie. */
bool is_alive(pid_t pid);

/* Waits until it is gone; false if that takes more than ten seconds. */
bool is_gone_soon(pid_t pid);

/* Number of children of this process, zombies among them. */
int count_children(void);

/* Number of descriptors that are open. */
int count_descriptors(void);

/* Copies the pattern with the value for every @ in it. */
void fill_in(const char *pattern, const char *value, char *out, size_t n);

/* A moment, for loops that wait for something. */
void pause_ms(int ms);

/* Path of build/VARIANT/plugins/NAME.so beside the test's own program. */
void plugin_path(const char *name, char *out, size_t n);

#endif
