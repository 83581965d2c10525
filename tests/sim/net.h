/*
 * net.h - messages between clients, workers and the leader, and the network that mistreats them.
 *
 * A message is a small fixed struct from a pool. A request stays with the leader until its answer leaves; then the
 * answer travels back as a message of its own. Nothing in a message points anywhere, so it may be copied (duplicated)
 * and dropped at will.
 *
 * Ownership: the net owns all messages; whoever handles one gives it back with net_free(). Threads: one.
 */
#ifndef CAPSTAN_SIM_NET_H
#define CAPSTAN_SIM_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "core/command.h"
#include "core/effects.h"
#include "sim/names.h"
#include "sim/world.h"

struct sim;

#define MAX_MSGS 8192
#define MAX_HANDOUTS 4096
#define MAX_REFS 12
#define MAX_REPORTS 4
#define MAX_FETCH 6
#define MAX_SOURCES 16

/* An attempt by numbers. */
struct ref {
    uint32_t job;
    uint32_t stage;
    uint32_t task;
    uint32_t attempt;
    struct lease_token token;
};

struct fetch_failure {
    uint32_t stage;
    uint32_t task;
    uint32_t attempt;
};

struct report {
    struct ref ref;
    enum task_state state;
    bool not_retryable;
    bool plan;           /* with the stages that a planning task adds */
    uint32_t def;        /* stage_def, for the plan */
    uint32_t missing_op; /* NO_INDEX: none */
    uint32_t n_fetch;
    struct fetch_failure fetch[MAX_FETCH];
};

enum client_action { ACT_SUBMIT, ACT_CANCEL, ACT_RETRY, ACT_RETRY_AGAIN, ACT_RESUBMIT };

struct source_told {
    uint32_t stage;
    uint32_t task;
    uint32_t attempt;
    uint32_t proc; /* by its address */
};

/* An assignment on its way; `next` is an index into the pool, 0 ends the list. */
struct handout {
    struct ref ref;
    uint32_t def; /* stage_def */
    uint32_t n_sources;
    struct source_told sources[MAX_SOURCES];
    uint32_t next;
};

struct msg {
    enum command_kind kind;
    bool is_answer;
    bool at_leader;
    uint32_t proc;       /* of a worker; NO_INDEX: of a client */
    uint32_t job;        /* of a client's request */
    uint32_t worker;     /* CMD_SET_NODE; else the one of `proc` */
    uint32_t rpc;        /* sender's number */
    uint32_t prev, next; /* among those at the leader; 0: none */
    uint64_t step_row;   /* rows that the leaders had written when it was stepped */
    int64_t step_now_ms; /* by the leader's clock */
    union {
        struct {
            struct ref running[MAX_REFS];
            uint32_t n_running;
            uint32_t ops;
            uint64_t held[(MAX_JOBS + 63) / 64];
        } heartbeat;
        struct traits reg; /* CMD_REGISTER */
        struct {
            uint32_t capacity;
            uint32_t wait_ms;
        } get_task;
        struct {
            struct report reports[MAX_REPORTS];
            uint32_t n_reports;
        } report;
        struct {
            struct ref ref;
            uint32_t n_partitions;
            bool is_inline;
            uint32_t bytes;
        } output;
        struct {
            bool other_content;
            bool has_parent;
            struct ref parent;
        } submit;
        struct {
            uint32_t from_stage; /* NO_INDEX: none */
            bool results_lost;
        } retry;
        struct {
            bool set_draining;
            bool draining;
            bool clear_blacklist;
        } set_node;
        struct ref child_news; /* CMD_CHILD_DONE, CMD_CHILD_FAILED */
        struct {
            enum reply_kind reply;
            enum err code;
            enum refusal refusal; /* of a heartbeat, a registration of output */
            bool accepted;
            bool drain;
            uint32_t job;
            enum job_state job_state;
            uint32_t handouts;
            uint32_t n_refs;
            struct ref refs[MAX_REFS]; /* stops; for an output or a report, what it was about */
            enum refusal outcomes[MAX_REPORTS];
            uint64_t ended[(MAX_JOBS + 63) / 64];
        } answer;
    } u;
};

struct net {
    struct msg msgs[MAX_MSGS]; /* index 0 is not used */
    uint32_t free_msgs[MAX_MSGS];
    uint32_t n_free_msgs;
    struct handout handouts[MAX_HANDOUTS];
    uint32_t free_handouts[MAX_HANDOUTS];
    uint32_t n_free_handouts;
    uint32_t cut_to_leader;   /* bits of workers */
    uint32_t cut_from_leader; /* bits of workers */
    uint32_t storm_drop;      /* permille on top */
    uint32_t storm_slow_ms;
};

void net_reset(struct net *net);

/* A new message, of which only the header is set. */
uint32_t net_new(struct sim *sim, enum command_kind kind, uint32_t proc);
void net_free(struct sim *sim, uint32_t m); /* its handouts, too */

uint32_t net_new_handout(struct sim *sim);

/* Sends it on its way: it arrives later, perhaps twice, perhaps never. */
void net_send(struct sim *sim, uint32_t m);

#endif
