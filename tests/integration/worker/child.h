/*
 * child.h - a worker in a process of its own: this program, started again, with the script's address in its environment.
 *
 * Its executors are those of hands.h. It ends when its standard input is closed, so that none outlives its test.
 *
 * Ownership: child_end waits for the process. Threads: one at a time per child.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_WORKER_CHILD_H
#define CAPSTAN_TESTS_INTEGRATION_WORKER_CHILD_H

#include <stdint.h>
#include <sys/types.h>

struct child {
    pid_t pid;
    int input;
};

struct child child_start(const char *join, uint32_t slots);
/* The same with this descriptor as its standard error, for its log; -1: it keeps ours. */
struct child child_start_logging(const char *join, uint32_t slots, int log);
/* Closes its input and waits. Its exit code; -1: it was ended by a signal. */
int child_end(struct child *child);

/* CPU time that the process has used, in milliseconds. */
int64_t child_cpu_ms(const struct child *child);
/* Memory that is its own, in KiB. */
int64_t child_private_kib(const struct child *child);

#endif
