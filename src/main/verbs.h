/*
 * verbs.h - the verbs that are processes of a cluster, or need more of the program than the client does.
 *
 * Ownership: tables are constant. Threads: a verb is run by the main thread.
 */
#ifndef CAPSTAN_MAIN_VERBS_H
#define CAPSTAN_MAIN_VERBS_H

#include "cli/cli.h"
#include "cli/verb.h"

#define UP_LISTEN_DEFAULT "127.0.0.1:7400" /* of coordinators, alone or with `up` */

extern const struct verb main_verbs[];
extern const uint32_t main_verb_count;

/* All verbs of the program: these and the client's. */
struct verb_table verbs_all(void);

/* Each returns the exit code. */
int verb_up(struct cli *cli);
int verb_coordinator(struct cli *cli);
int verb_worker(struct cli *cli);
int verb_store(struct cli *cli);
int verb_bench(struct cli *cli);
int verb_demo(struct cli *cli);

#endif
