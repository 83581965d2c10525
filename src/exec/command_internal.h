/*
 * command_internal.h - the executor `command`: from inputs to a process (command_inputs.c), the process (command.c), from
 * its output to a result (command_result.c).
 *
 * Ownership: a `struct command` lives in the arena of one run and borrows from the tree of its inputs. Threads: one run,
 * one thread; `struct command_executor` is only read.
 */
#ifndef CAPSTAN_EXEC_COMMAND_INTERNAL_H
#define CAPSTAN_EXEC_COMMAND_INTERNAL_H

#include "base/arena.h"
#include "exec/exec_internal.h"
#include "exec/process.h"
#include "exec/tail.h"

struct command_executor {
    struct executor base;
    struct guard *guard;
    char *work_dir;     /* NULL: where the worker runs */
    char **environment; /* NAME=VALUE: what every command gets; ends with NULL */
    uint32_t n_environment;
    struct command_limits limits; /* at most */
};

struct command {
    char **argv;
    char **environment;
    const char **paths;
    const char *cwd;        /* NULL: none */
    const char *stdin_text; /* NULL: none */
    size_t n_stdin;
    const struct json *no_retry_exit_codes; /* NULL, or an array of whole numbers */
    struct command_limits limits;
};

/* What the process left behind. */
struct command_output {
    struct tail streams[2]; /* stdout, stderr */
    struct process_exit exit;
    bool was_stopped;
    uint64_t n_bytes; /* of both streams, while it ran */
    bool is_too_much; /* it was killed for that */
};

/* False with a failed outcome (not retryable, names the input) if the inputs are not right. */
MUST_USE bool command__read(const struct command_executor *executor, const struct exec_task *task,
                            const struct json *inputs, struct arena *arena, struct command *command,
                            struct exec_outcome *out);

/* The worker's limits, and what inputs.limits makes narrower. False with a failed outcome if that is not right. */
MUST_USE bool command__read_limits(const struct command_limits *most, const struct json *inputs,
                                   struct command_limits *out, struct exec_outcome *failed);

/* Those that the system keeps. Returns how many. */
uint32_t command__process_limits(const struct command_limits *limits, struct process_limit out[COMMAND_LIMITS]);

/* If a limit is what ended the command, makes that the outcome. False if none is. */
bool command__judge_limits(const struct command_limits *limits, const struct command_output *output,
                           struct exec_outcome *out);

/* Appends the limits that make programs fail in ways of their own; nothing if there are none. */
void command__tell_limits(const struct command_limits *limits, struct buf *out);

/* Turns the output into the outcome. */
void command__judge(const struct command *command, struct command_output *output, struct exec_outcome *out);

#endif
