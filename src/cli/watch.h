/*
 * watch.h - follows one job until it ends, and shows how it goes on stderr.
 *
 * Costs the coordinator one held call, which it answers when the job has ended, and one stream of the job's events; it is
 * not asked again and again. Both survive a coordinator that goes away for a while.
 *
 * Ownership: texts of the result live in the cli's arena. Threads: makes two of its own for the two calls and ends them;
 * the caller's draws.
 */
#ifndef CAPSTAN_CLI_WATCH_H
#define CAPSTAN_CLI_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "cli/interrupt.h"
#include "wire/message.h"

struct cli;

struct watch_request {
    const char *job_id;
    const char *const *names; /* of its tasks, in the tree's order; NULL: not known */
    uint32_t n_tasks;
    bool is_quiet; /* show nothing */
    const struct interrupt *interrupt;
};

struct watch_result {
    const struct pb_query_status *status; /* NULL if interrupted */
    bool is_interrupted;
    int64_t elapsed_ms;
};

/* Waits for the end of the job, or for Ctrl-C. */
MUST_USE enum err watch_job(struct cli *cli, const struct watch_request *request, struct watch_result *out,
                            struct error *e);

#endif
