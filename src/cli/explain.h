/*
 * explain.h - what `capstan sql --explain` prints: the one row that a query brings which is only planned.
 *
 * Ownership: nothing is kept. Threads: one.
 */
#ifndef CAPSTAN_CLI_EXPLAIN_H
#define CAPSTAN_CLI_EXPLAIN_H

#include <stdbool.h>

#include "base/check.h"
#include "base/err.h"

struct cli;

/* Prints the stages as a tree, or the physical plan as JSON, to stdout or into the file. */
MUST_USE enum err explain_print(struct cli *cli, const char *job_id, bool wants_plan, const char *path,
                                struct error *e);

#endif
