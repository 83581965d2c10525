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
};

struct command {
    char **argv;
    char **environment;
    const char **paths;
    const char *cwd;        /* NULL: none */
    const char *stdin_text; /* NULL: none */
    size_t n_stdin;
    const struct json *no_retry_exit_codes; /* NULL, or an array of whole numbers */
};

/* What the process left behind. */
struct command_output {
    struct tail streams[2]; /* stdout, stderr */
    struct process_exit exit;
    bool was_stopped;
};

/* False with a failed outcome (not retryable, names the input) if the inputs are not right. */
MUST_USE bool command__read(const struct command_executor *executor, const struct exec_task *task,
                            const struct json *inputs, struct arena *arena, struct command *command,
                            struct exec_outcome *out);

/* Turns the output into the outcome. */
void command__judge(const struct command *command, struct command_output *output, struct exec_outcome *out);

#endif
