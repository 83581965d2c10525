/*
 * coordinator.h - the scheduler with a store behind it: commands in, one transaction per batch, answers out.
 *
 * Two threads do most of it. The loop owns the core: it steps commands as they come and gathers their effects. The writer
 * stands for election, loads the state, commits batches and renews the leadership, on one connection to the store. Two
 * more help, each with a connection of its own: the keeper renews while the writer cannot, and the finder looks for jobs
 * that commands name and that have left the core. While one batch commits, the next gathers; a lone command waits for
 * nobody. Nothing leaves the process before what it tells of is durable, except answers that depend on nothing new.
 *
 * If a commit fails, or the leadership's time runs out by the monotonic clock, the loop drops the core, answers everyone
 * with ERR_PRECONDITION, and the writer stands for election again, for ever. A store that cannot be reached is retried
 * with growing pauses; meanwhile this process does not lead.
 *
 * Time: the leader's clock is the monotonic clock plus the offset of the database's clock when it was elected. The
 * machine's own date is never looked at.
 *
 * Ownership: coordinator_start's caller owns it. Threads: coordinator_send and the reads of the role from any thread.
 */
#ifndef CAPSTAN_COORDINATOR_COORDINATOR_H
#define CAPSTAN_COORDINATOR_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "base/list.h"
#include "coordinator/request.h"
#include "core/config.h"
#include "core/effects.h"

struct coordinator;
struct leader_news;

struct coordinator_options {
    const char *store_url;
    const char *node_id;
    const char *address; /* where others find this process; part of the leader's row */
    struct core_config config;
    int64_t leader_ttl_ms;  /* 0: 10,000 */
    int64_t history_ttl_ms; /* 0: 604,800,000 */
    bool must_lead;         /* role `leader`: give up, instead of standing by, if another node leads */
    /* The store does not answer (`why`), or answers again (NULL). On the writer's thread. May be NULL. */
    void (*on_store)(void *context, const char *why);
    /*
     * This process stands by, and another one leads than before. `is_self`: the row is this node's own, from before it was
     * started again, and runs out. On the writer's thread. May be NULL.
     */
    void (*on_leader)(void *context, const struct leader_news *leader);
    /* Old jobs and events cannot be removed (`why`), or can be again (NULL). On the writer's thread. May be NULL. */
    void (*on_prune)(void *context, const char *why);
    /* The schema was of an earlier release, and has been brought up to date. On the writer's thread. May be NULL. */
    void (*on_schema)(void *context, uint32_t before, uint32_t after);
    /* A commit took so long and carried so many commands. On the writer's thread. May be NULL. */
    void (*on_commit)(void *context, int64_t us, uint32_t n_commands);
    /* All on the loop thread; each may be NULL. */
    void (*on_role)(void *context, bool leads, const char *why);
    /* These rows have just become durable, and nobody has been told yet. */
    void (*on_durable)(void *context, const struct row *rows);
    /* The same for all that was in the transaction. */
    void (*on_batch)(void *context, const struct batch *batch);
    /* A task wants to run as a job: submit it, or send CMD_CHILD_FAILED. NULL: refused here. */
    void (*on_child)(void *context, const struct child_start *start);
    /* That job has succeeded: send CMD_CHILD_DONE with what it brought, or CMD_CHILD_FAILED. NULL: refused here. */
    void (*on_child_end)(void *context, const struct child_end *end);
    void *context;
};

/* Starts the threads. There must be a schema, which whoever leads brings up to date. ERR_INVALID for nonsense in the options. */
MUST_USE enum err coordinator_start(const struct coordinator_options *options, struct coordinator **out_coordinator,
                                    struct error *e);

/*
 * Ends the threads: commits what was begun, hands the leadership back, answers what is left. Requests can still be sent
 * and are answered with ERR_PRECONDITION.
 */
void coordinator_wind_up(struct coordinator *coordinator);

/* Winds up, if that has not been done, and frees. NULL ok. */
void coordinator_stop(struct coordinator *coordinator);

/* Takes the request over. It is answered in any case. */
void coordinator_send(struct coordinator *coordinator, struct request *request);

/*
 * An answer with assignments that somebody else has to finish before it can leave. As long as it has not, nobody takes
 * the worker's silence about these attempts for a sign that the answer was lost. The node is the caller's.
 */
struct leaving {
    struct list in_list;
    int64_t since_ms;
};

/* In a request's answer, on the thread that calls it. */
void coordinator_leaves(struct coordinator *coordinator, struct leaving *leaving);
/* From any thread: it is on its way, or will never be. */
void coordinator_has_left(struct coordinator *coordinator, struct leaving *leaving);

/* For a look into the store, to be taken before it: see struct sight. */
struct sight coordinator_sight(struct coordinator *coordinator);

/* Where the leader is, as far as this process knows. */
struct leader_news {
    char node_id[128];
    char address[256]; /* "": nobody leads, or nobody is known to */
    uint64_t epoch;
    bool is_self;
};

struct leader_news coordinator_leader(struct coordinator *coordinator);

/* Whether this process leads at the moment, and under which epoch (0: it does not). */
uint64_t coordinator_epoch(struct coordinator *coordinator);

/* The leader's clock, if this process leads. */
int64_t coordinator_now_ms(struct coordinator *coordinator);

/* With must_lead: true once another was found to lead; `e` (may be NULL) says who. */
bool coordinator_gave_up(struct coordinator *coordinator, struct error *e);

struct coordinator_stats {
    uint64_t batches;
    uint64_t commands;
    uint64_t elected;
    uint64_t stepped_down;
    uint64_t store_errors;
    uint64_t prune_errors; /* of these, attempts to remove what is too old */
};

struct coordinator_stats coordinator_stats(struct coordinator *coordinator);

#endif
