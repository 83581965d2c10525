/*
 * verbs.h - what the command-line client can do: one function per verb, one table of them all.
 *
 * Ownership: the table is constant. Threads: a verb is run by the main thread.
 */
#ifndef CAPSTAN_CLI_VERBS_H
#define CAPSTAN_CLI_VERBS_H

#include "cli/cli.h"
#include "cli/verb.h"

/* The verbs that talk to a coordinator, and those about the program itself (completion, help, version). */
extern const struct verb cli_verbs[];
extern const uint32_t cli_verb_count;

/* Each returns the exit code. */
int verb_sql(struct cli *cli);
int verb_run(struct cli *cli);
int verb_submit(struct cli *cli);
int verb_jobs(struct cli *cli);
int verb_job(struct cli *cli);
int verb_tasks(struct cli *cli);
int verb_results(struct cli *cli);
int verb_cancel(struct cli *cli);
int verb_retry(struct cli *cli);
int verb_why(struct cli *cli);
int verb_events(struct cli *cli);
int verb_nodes(struct cli *cli);
int verb_node(struct cli *cli);
int verb_leader(struct cli *cli);
int verb_table(struct cli *cli);
int verb_completion(struct cli *cli);
int verb_help(struct cli *cli);
int verb_version(struct cli *cli);

#endif
