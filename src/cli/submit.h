/*
 * submit.h - a task tree from a file to a job, for `run` and `submit`; what became of a job, for these, `sql` and `results`.
 *
 * The job's id is made here, so that a submit whose answer was lost can be repeated: the coordinator knows the id.
 *
 * Ownership: all lives in the cli's arena. Threads: the cli's.
 */
#ifndef CAPSTAN_CLI_SUBMIT_H
#define CAPSTAN_CLI_SUBMIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "wire/message.h"

struct cli;
struct interrupt;

#define SUBMIT_TREE_BYTES_MAX ((size_t)60 * 1024 * 1024) /* a message to the coordinator has at most 64 MiB */

struct submission {
    const char *job_id;
    const char *tree; /* with all parameters filled in */
    size_t n_tree;
};

/* Reads the tree that the first argument names, with the options `param`, `param-json` and `id` of the verb. */
MUST_USE enum err submit_read(struct cli *cli, struct submission *out, struct error *e);

/* Sends it, with the option `key`. */
MUST_USE enum err submit_send(struct cli *cli, const struct submission *submission,
                              struct pb_submit_tasks_response **out, struct error *e);

/* Prints the id of the job, or {"job_id","state","existed"}. */
void submit_print(struct cli *cli, const struct pb_submit_tasks_response *response);

/* Prints "job ID is STATE", or {"job_id","state"}. */
void submit_print_state(struct cli *cli, const char *job_id, Capstan__V1__QueryState state);

/* The names of its tasks in the tree's order; NULL and 0 if the tree is not right, which the coordinator will say. */
const char *const *submit_names(struct cli *cli, const struct submission *submission, uint32_t *out_n);

/* Prints the results that a job which has ended has, laid out for people unless --json. */
MUST_USE enum err results_print(struct cli *cli, const char *job_id, struct error *e);

/* Says that the job failed or was canceled, why, and which tasks failed first. Returns EXIT_JOB_FAILED. */
int job_report_failure(struct cli *cli, const struct pb_query_status *status);

/*
 * After Ctrl-C: cancels the job on the cluster and says so. A submit that was under way may arrive after the first cancel,
 * which then finds no job; hence a few tries. Returns EXIT_INTERRUPTED.
 */
int submit_cancel(struct cli *cli, struct interrupt *interrupt, const char *job_id);

#endif
