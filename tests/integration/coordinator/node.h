/*
 * node.h - a coordinator in a process of its own, which a test can ask, freeze and kill.
 *
 * The process is a fork of the test program. It runs a coordinator and, if it is told so, a few clients beside it that
 * submit and cancel jobs, take tasks, report them done and change data sets as fast as they get answers; what is
 * acknowledged goes into the ledger. A client that is refused tries again, with the same job or the next one, for ever.
 *
 * The calls below ask the process and wait for its answer; one that is frozen does not answer. A test that waits in vain
 * fails. A process that dies by itself (a sanitizer found something) fails the test at the next call.
 *
 * Ownership: node_start's caller ends it with node_kill or node_stop; it dies with the test program. Threads: one.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_COORDINATOR_NODE_H
#define CAPSTAN_TESTS_INTEGRATION_COORDINATOR_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "coordinator/coordinator.h"
#include "integration/coordinator/client.h"
#include "integration/coordinator/ledger.h"

struct node_options {
    const char *url;
    const char *node_id;
    int64_t leader_ttl_ms;
    int64_t history_ttl_ms; /* 0: the coordinator's default */
    int64_t lease_ms;       /* of a task, and for how long a worker may say nothing; 0: the coordinator's default */
    int64_t clock_shift_s;  /* how wrong its machine's date is */
    uint32_t n_clients;
    bool are_held; /* the clients wait for node_release */
    bool must_lead;
};

struct node {
    pid_t pid; /* 0: none */
    uint32_t number;
    int orders;
    int answers;
    struct ledger *ledger;
};

/* What a node says of itself. */
struct node_view {
    uint64_t epoch;
    bool gave_up;
    int64_t date_ms; /* what it takes for the date */
    struct coordinator_stats stats;
    struct leader_news leader; /* whom it names */
    uint32_t n_troubles;       /* how often it told that the store does not answer */
    uint32_t n_prune_troubles; /* and that nothing can be pruned */
    uint32_t n_prune_mended;   /* and that it can be again */
};

void node_start(struct node *node, struct ledger *ledger, const struct node_options *options);
/* kill -9, at once. */
void node_kill(struct node *node);
/* Lets it end as after SIGTERM: it hands the leadership back. */
void node_stop(struct node *node);
void node_freeze(const struct node *node);
void node_thaw(const struct node *node);

struct node_view node_look(const struct node *node);
/* Until it leads, or does not, for `ms` at most. */
bool node_await_leading(const struct node *node, bool leads, int64_t ms);
struct client_answer node_submit(const struct node *node, const char *job_id, uint32_t n_tasks);
struct client_answer node_cancel(const struct node *node, const char *job_id);
/* A read of the core. */
struct client_answer node_status(const struct node *node, const char *job_id);
/* Whether the core knows the job, durable or not. */
bool node_knows(const struct node *node, const char *job_id);
/* Until it does, for `ms` at most. */
bool node_await_knowing(const struct node *node, const char *job_id, int64_t ms);
/* As a worker "w" that registers if need be: takes one task and reports it done. False if there was none. */
bool node_work(const struct node *node);
/* Submits without waiting: the answer goes into the ledger. */
void node_send(const struct node *node, const char *job_id, uint32_t n_tasks);
/* The same for a poll of that worker, which writes a lease and reads nothing from the store before. */
void node_send_poll(const struct node *node, const char *label);

/* Its clients finish what they are at, and then wait for node_release: nothing is on its way any more. */
void node_hold(const struct node *node);
void node_release(const struct node *node);
/*
 * Whether its memory, once it leads, is core_equal to what a new leader would load from its store; ERR_DATA_LOSS if not. Its
 * clients must be held.
 */
enum err node_compare(const struct node *node);
void node_check_equal(const struct node *node);

/* ---- several ---- */

/* The one that leads, when exactly one does; waits for that, `ms` at most. NULL: none, or more than one. */
struct node *node_await_one(struct node *nodes, uint32_t n, int64_t ms);

#endif
