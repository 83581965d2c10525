/*
 * script.h - a coordinator that does what a test tells it: real gRPC on loopback, scripted answers.
 *
 * It gives out the tasks that it was handed, one poll per worker at a time as the scheduler does (a second poll makes it
 * answer the first with nothing), accepts what it is told, and remembers all of it. Knobs make it refuse, keep silent
 * or lose answers.
 *
 * Ownership: the test frees it with script_stop. Threads: any; the functions lock.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_WORKER_SCRIPT_H
#define CAPSTAN_TESTS_INTEGRATION_WORKER_SCRIPT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "exec/executor.h"
#include "rpc/rpc.h"
#include "wire/message.h"

#define SCRIPT_PATIENCE_MS 60000 /* how long a test waits for something that must happen */

struct script_task {
    uint32_t task;
    uint32_t attempt;
    const char *executor;
    const char *inputs;
    const char *op; /* required operator */
    bool exclusive;
    uint32_t lease_ms; /* 0: the script's */
    uint32_t timeout_ms;
    const char *fragment; /* its inputs are this fragment, which is sent unless the worker says that it has it */
    bool is_bare;         /* the fragment is not sent in any case */
    bool is_damaged;      /* nor is it what its digest says */
    const struct exec_source *sources;
    uint32_t n_sources;
};

/* What was said about an attempt, newest last. */
struct script_report {
    uint32_t task;
    uint32_t attempt;
    int state;
    bool not_retryable;
    size_t result_bytes;
    char message[200];
    uint32_t batch; /* number of the call */
};

#define SCRIPT_HELD_MAX 8

/* What a heartbeat said of a running attempt. */
struct script_progress {
    uint32_t task;
    double fraction;
    uint64_t rows;
    uint64_t bytes;
};

struct script_poll {
    uint32_t capacity;
    int64_t at_ms;
};

struct script_beat {
    int64_t at_ms;
    uint32_t n_running;
    bool leaving;
    double load;
};

enum script_mood {
    MOOD_LEAD,      /* answers as a leader */
    MOOD_FOLLOW,    /* says that it does not lead, and who does */
    MOOD_SILENT,    /* takes calls and does not answer them */
    MOOD_FORGETFUL, /* does not know the worker until it registers again */
    MOOD_DENY,      /* refuses the credentials */
};

struct script {
    struct rpc_server *server;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char address[256];

    /* Knobs. */
    enum script_mood mood;
    char leader[256];        /* for MOOD_FOLLOW and heartbeats that are not accepted */
    const char *beat_reason; /* not NULL: heartbeats are not accepted, for this reason */
    const char *poll_reason; /* not NULL: polls are refused with ERR_STALE and this text */
    const char *refusal;     /* not NULL: reports are refused for this reason */
    const char *poison;      /* not NULL: a batch with a message like this is refused as a whole */
    uint32_t lose_reports;   /* so many batches are taken without an answer that arrives */
    bool hold_reports;       /* batches are kept until script_release_reports */
    bool drain;
    uint32_t outputs_needed;
    uint32_t beat_ms, lease_ms, orphan_ms, drain_ms, kill_grace_ms;
    uint64_t result_ttl_ms, shuffle_memory_bytes;
    const char *ended_job; /* of which heartbeats that hold it are told that it has ended; NULL: none */
    bool ended_job_has_failed;
    uint32_t capacity_max; /* 0: none; polls that ask for more are refused with ERR_EXHAUSTED */
    uint32_t give_max;     /* tasks per answer; 0: as many as asked for */

    /* What there is to give: the first `n_given` are gone. */
    struct script_task *tasks;
    uint32_t n_tasks, cap_tasks, n_given;
    struct rpc_call *poll; /* the one that waits */
    uint32_t poll_capacity;
    int64_t poll_since_ms;
    uint8_t known[64][32]; /* digests that it named */
    uint32_t n_known;
    struct pb_attempt_ref *stop; /* for the next heartbeat or poll; one at a time */
    bool stop_by_poll;
    struct arena arena; /* for the stop order */

    /* What happened. */
    uint32_t n_registered, n_deregistered;
    char incarnation[64];
    char executors[200];
    char worker_address[200];
    char token[64];
    struct script_report *reports;
    uint32_t n_reports, cap_reports;
    uint64_t n_final; /* reports of an end */
    uint32_t n_batches;
    struct script_poll *polls;
    uint32_t n_polls, cap_polls;
    struct script_beat *beats;
    uint32_t n_beats, cap_beats;
    uint32_t named[64]; /* tasks that the last heartbeat named */
    uint32_t n_named;
    struct script_progress progress[64]; /* in the last heartbeat that had any */
    uint32_t n_progress;
    char held_jobs[SCRIPT_HELD_MAX][101]; /* in the last heartbeat: the first of them */
    uint32_t n_held_jobs;                 /* all of them */
    uint32_t n_fragments_sent;
    struct buf full;        /* the last report that had more than a word to say, encoded */
    struct rpc_call **held; /* calls that get no answer until the end */
    uint32_t n_held, cap_held;
    bool is_closing;
};

/* Turns a knob. */
#define SCRIPT_SET(script, knob, value)                                                                                \
    do {                                                                                                               \
        pthread_mutex_lock(&(script)->mutex);                                                                          \
        (script)->knob = (value);                                                                                      \
        pthread_mutex_unlock(&(script)->mutex);                                                                        \
    } while (0)

/* Listens at `listen` (NULL: any port of 127.0.0.1), with heartbeats every 100 ms and leases of 600 ms. */
struct script *script_start(const char *listen);
/* The same, with `hold_reports` from the first call on. */
struct script *script_start_holding(const char *listen);
/* Ends all calls and frees. NULL ok. */
void script_stop(struct script *script);

void script_add(struct script *script, const struct script_task *task);
/* All of them before the first is given away. */
void script_add_all(struct script *script, const struct script_task *tasks, uint32_t n);
/* `n` tasks for the executor, numbered from `first`, attempt 1. */
void script_add_many(struct script *script, const char *executor, uint32_t first, uint32_t n);
/* Orders a stop of that attempt of a task; `wrong_token`: of somebody else's. */
void script_order_stop(struct script *script, uint32_t task, uint32_t attempt, bool by_poll, bool wrong_token);
void script_release_reports(struct script *script);
void script_set_mood(struct script *script, enum script_mood mood);
/* Whom it names as the leader from now on. */
void script_name_leader(struct script *script, const char *address);

/* Waits until the condition holds (it is asked under the lock, after every call). False: it did not in time. */
typedef bool script_holds_fn(const struct script *script, int64_t value);
bool script_wait(struct script *script, script_holds_fn *holds, int64_t value);
bool script_wait_ms(struct script *script, script_holds_fn *holds, int64_t value, int64_t ms);

/* As script_wait, for what heartbeats say: those that left before this call do not count. */
bool script_wait_beat(struct script *script, script_holds_fn *holds, int64_t value);

/* Conditions. */
bool has_beats(const struct script *script, int64_t n);
bool has_registered(const struct script *script, int64_t n);
bool has_deregistered(const struct script *script, int64_t n);
bool has_final(const struct script *script, int64_t n);
bool has_batches(const struct script *script, int64_t n);
bool has_given(const struct script *script, int64_t n);
bool has_polls(const struct script *script, int64_t n);
bool has_open_poll(const struct script *script, int64_t capacity);
bool has_open_poll_for(const struct script *script, int64_t capacity_min);
bool names_task(const struct script *script, int64_t task);
bool names_nothing(const struct script *script, int64_t unused);
bool names_exactly(const struct script *script, int64_t n);
bool has_leaving_beat(const struct script *script, int64_t unused);

bool has_known(const struct script *script, int64_t n);
bool has_progress(const struct script *script, int64_t task);
bool holds_jobs(const struct script *script, int64_t n);

/* The last report with a result, an output, a plan, or lost outputs, in the arena. */
struct pb_task_report *script_full_report(struct script *script, struct arena *arena);

/* What was last said about the task; zero if nothing. Copies, under the lock. */
struct script_report script_last_report(struct script *script, uint32_t task);
uint32_t script_count_reports(struct script *script, uint32_t task, int state);
uint32_t script_beats(struct script *script);

/* What has happened so far, copied under the lock. */
struct script_facts {
    uint32_t n_registered, n_deregistered, n_batches, n_polls;
    uint64_t n_final;
    char incarnation[64];
    char executors[200];
    char worker_address[200];
    char token[64];
};
struct script_facts script_facts(struct script *script);

#endif
