/*
 * ledger.h - what coordinators in other processes acknowledged, in memory that all of them share.
 *
 * A fact is in the ledger as soon as the client that got the answer has written it down, whatever becomes of its process
 * a moment later. The order of the facts is the order in which they were written down, over all processes.
 *
 * Ownership: ledger_new's caller, in the process that made it. Threads: any, in any process.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_COORDINATOR_LEDGER_H
#define CAPSTAN_TESTS_INTEGRATION_COORDINATOR_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/store.h"

#define LEDGER_FACTS_MAX 400000u

enum fact_kind {
    FACT_SUBMITTED, /* a job, acknowledged */
    FACT_DONE,      /* a task's success, acknowledged */
    FACT_CANCELED,  /* a job's cancellation, or that it had ended before, acknowledged */
    FACT_DATA_SET,  /* a version of a data set, or its removal, acknowledged */
    FACT_ANSWERED,  /* the answer to a job that was sent by name (node_send), whatever it was */
    FACT_POLLED,    /* the same for a poll (node_send_poll) */
    FACT_LEADS,     /* a coordinator says that it leads, or that it does not any more */
    FACT_FOLLOWS,
};

struct fact {
    atomic_bool is_whole; /* written last */
    enum fact_kind kind;
    uint32_t node;        /* number of the process */
    uint32_t task;        /* FACT_DATA_SET: the number of the client, each of which has one data set of its own */
    uint32_t version;     /* FACT_DATA_SET; FACT_DONE: the attempt */
    enum job_state state; /* FACT_CANCELED */
    enum err err;         /* FACT_ANSWERED */
    int64_t at_ms;        /* monotonic, the same for all processes */
    char job_id[40];      /* FACT_DATA_SET: its name */
};

#define LEDGER_CLIENTS_MAX 8 /* per process */

struct ledger {
    atomic_uint n;       /* facts, the last ones perhaps not whole yet */
    atomic_uint n_nodes; /* processes that were ever started */
    atomic_uint n_acknowledged;
    atomic_uint n_refused; /* commands that were answered with an error */
    struct fact facts[LEDGER_FACTS_MAX];
};

struct ledger *ledger_new(void);
void ledger_free(struct ledger *ledger); /* NULL ok */

/* Copies all but is_whole and at_ms, which it sets itself. */
void ledger_add(struct ledger *ledger, const struct fact *fact);

/*
 * That everything acknowledged from fact number `from` on is in the store: jobs whole, tasks done by the attempt that was
 * acknowledged, inputs and results byte for byte, jobs in the state in which they ended, data sets as they were left.
 */
void ledger_check(const struct ledger *ledger, uint32_t from, struct store *store);
/* That every job of the store is whole, acknowledged or not, with all bytes that belong to it, and that it all loads. */
void ledger_check_whole(struct store *store);
/*
 * The same over all tables at once, in SQL with @ for the schema: every row that does not go with the others, as a line with
 * what is wrong and the job. Jobs, stages, tasks, leases, attempts, events and payloads must tell the same story. It is
 * right for jobs of these tests only, whose tasks are all in one stage and succeed at worst after being lost.
 */
extern const char ledger_tables_sql[];
/* How many commands were acknowledged at or after `from_ms` and before `to_ms`. */
uint32_t ledger_acknowledged(const struct ledger *ledger, int64_t from_ms, int64_t to_ms);
/* Waits until `more` further commands have been acknowledged, for `ms` at most. */
bool ledger_await(const struct ledger *ledger, uint32_t more, int64_t ms);
/* The answer to a job or a poll that was sent by name. The test fails if there is none within `ms`. */
enum err ledger_answer(const struct ledger *ledger, const char *job_id, int64_t ms);

#endif
