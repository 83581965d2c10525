/*
 * command_limits.h - what a command may use. The worker says how much at most, and a task may ask for less.
 *
 * All but the output are limits of the system (setrlimit) and hold for each process of the command by itself.
 *
 * Ownership: a plain value; all zero means that there are none. Threads: any.
 */
#ifndef CAPSTAN_EXEC_COMMAND_LIMITS_H
#define CAPSTAN_EXEC_COMMAND_LIMITS_H

#include <stdint.h>

/* X(symbol, member of inputs.limits, option of the worker) */
#define COMMAND_LIMITS_TABLE(X)                                                                                        \
    X(COMMAND_CPU, "cpu_seconds", "command-cpu")                                                                       \
    X(COMMAND_MEMORY, "memory_bytes", "command-memory")                                                                \
    X(COMMAND_FILES, "open_files", "command-files")                                                                    \
    X(COMMAND_FILE_SIZE, "file_bytes", "command-file-size")                                                            \
    X(COMMAND_OUTPUT, "output_bytes", "command-output")

/* clang-format off */
enum command_limit {
#define X(symbol, member, option) symbol,
    COMMAND_LIMITS_TABLE(X)
#undef X
    COMMAND_LIMITS
};
/* clang-format on */

struct command_limits {
    uint64_t max[COMMAND_LIMITS]; /* 0: none */
};

#endif
