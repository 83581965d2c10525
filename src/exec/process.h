/*
 * process.h - a program that runs for the worker, in a session and a process group of its own.
 *
 * The child is made with clone(CLONE_VM | CLONE_VFORK), as posix_spawn does it, for a fork of a worker with gigabytes of
 * memory takes long and holds up its other threads. By hand, since posix_spawn cannot tell the guard (guard.h) before the
 * program starts. The child gets three descriptors and nothing else, default signals, and the environment that it is told.
 *
 * A program that leaves its session by itself (setsid, a daemon) leaves our hands: it is not killed with the group.
 *
 * Ownership: a started process must be ended with process_end. Threads: one at a time per process.
 */
#ifndef CAPSTAN_EXEC_PROCESS_H
#define CAPSTAN_EXEC_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/check.h"
#include "exec/guard.h"

/* What the program may use of something that setrlimit bounds, or less if this process may not give so much. */
struct process_limit {
    int resource;
    uint64_t soft;
    uint64_t hard;
};

struct process_plan {
    struct guard *guard;
    int64_t until_ms;         /* when the guard kills it, in monotonic milliseconds; 0: never */
    char *const *argv;        /* ends with NULL, as all lists here */
    char *const *environment; /* NAME=VALUE */
    const char *const *paths; /* the first of these that exists and may be run is the program */
    const char *work_dir;     /* entered first; NULL: stays where it is */
    const char *cwd;          /* entered then; NULL: stays there */
    int files[3];             /* what becomes 0, 1 and 2 */
    const struct process_limit *limits;
    uint32_t n_limits;
};

/* What a new process does, in this order, and where it may fail. */
enum process_step { STEP_START, STEP_GUARD, STEP_FILES, STEP_WORK_DIR, STEP_CWD, STEP_LIMITS, STEP_EXEC };

struct process_failure {
    enum process_step step;
    int code; /* of errno */
};

struct process {
    struct guard *guard;
    pid_t pid; /* also the number of its group */
    int fd;    /* readable when it has ended */
};

/* Starts it. False, with the reason, if the program does not run; then nothing is left of it. */
MUST_USE bool process_start(const struct process_plan *plan, struct process *out, struct process_failure *out_failure);

/* It may run until then, in monotonic milliseconds: the guard kills it at that time. Does not block. */
void process_move_limit(const struct process *process, int64_t until_ms);

/* Sends the signal to all of the group. */
void process_signal(const struct process *process, int signal);

struct process_exit {
    bool is_signaled;
    int code; /* exit code, or number of the signal */
};

/*
 * Waits for its end (process->fd tells when that takes no time), kills what is left of the group, waits until that is
 * gone, and returns how the process ended.
 */
struct process_exit process_end(struct process *process);

#endif
