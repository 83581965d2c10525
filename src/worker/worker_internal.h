/*
 * worker_internal.h - the structs of a worker, and what its files share.
 *
 * Two locks. `worker.mutex` guards everything about attempts and the worker's own state; it is held for moments only,
 * never over a call, a file or an executor, so the heartbeat thread may take it. `leader.mutex` guards where the leader
 * is and the channels to it. Nobody takes one while holding the other, nor the lock of the fragments (fragment.h).
 *
 * Functions whose name ends in _locked are called with worker.mutex held.
 */
#ifndef CAPSTAN_WORKER_WORKER_INTERNAL_H
#define CAPSTAN_WORKER_WORKER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/prng.h"
#include "base/sha256.h"
#include "exchange/serve.h"
#include "exec/executor.h"
#include "rpc/rpc.h"
#include "wire/message.h"
#include "worker/fragment.h"
#include "worker/worker.h"

#define TOKEN_BYTES 16
#define ADDRESS_BYTES 256
#define NEVER INT64_MAX
#define UNREPORTED_BYTES_MAX ((size_t)64 * 1024 * 1024) /* beyond this, reports come before new tasks */

/* What a coordinator says to a process that it does not know, or does not want to know any more. */
#define TEXT_UNKNOWN_WORKER "unknown worker"
#define TEXT_SUPERSEDED "superseded"

/* ---- where the leader is ---- */

/* Each lane is a connection of its own: what goes over one never stands in the way of another. */
enum lane { LANE_BEAT, LANE_POLL, LANE_REPORT, LANE_LEAVE, LANE_COUNT };

struct lane_state {
    struct rpc_channel *channel;
    uint64_t generation; /* of the target that the channel goes to */
    uint32_t users;
    bool is_closed;
};

/* A thread that calls: one call at a time. */
struct caller {
    struct list in_calls; /* while its call is under way */
    enum lane lane;
    struct rpc_cancel *cancel;
    uint32_t failures; /* since its last answer */
    struct prng prng;
};

struct leader {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char (*addresses)[ADDRESS_BYTES];
    uint32_t n_addresses;
    uint32_t next; /* index of the address to try after this one */
    char target[ADDRESS_BYTES];
    uint64_t generation; /* grows with every change of the target */
    bool is_found;       /* the target has answered as a leader */
    uint32_t misses;     /* targets that were none, since the last that was */
    int64_t missing_ms;  /* when the first of these was noticed */
    bool is_missing_told;
    struct lane_state lanes[LANE_COUNT];
    struct list calls;
    struct rpc_channel_options channel; /* but for the target and the size */
};

void worker__leader_init(struct leader *leader, const struct worker_options *options);
void worker__leader_deinit(struct leader *leader);
void worker__leader_where(struct leader *leader, char out[ADDRESS_BYTES]);
/* Ends the calls of the lane, now and from now on, with ERR_CANCELED. */
void worker__leader_close_lane(struct leader *leader, enum lane lane);
void worker__leader_hint(struct leader *leader, const char *address);

void worker__caller_init(struct caller *caller, enum lane lane);
void worker__caller_deinit(struct caller *caller);

struct call {
    const char *path;
    const struct buf *request;
    int64_t timeout_ms;
};

/*
 * Calls whoever is thought to lead, and learns from the answer where the leader is. ERR_UNAVAILABLE: nobody answered,
 * or not a leader; pause and call again. ERR_CANCELED: the leader moved, or the lane is closed. Anything else comes
 * from the leader.
 */
MUST_USE enum err worker__caller_call(struct leader *leader, struct caller *caller, const struct call *call,
                                      struct buf *answer, struct error *e);

/* Waits before the next try: longer from time to time, with jitter, up to `ms_max`; not when the leader is found. */
void worker__caller_pause(struct leader *leader, struct caller *caller, int64_t ms_max);

/* ---- attempts ---- */

enum attempt_state {
    ATTEMPT_QUEUED,  /* waits for a slot's thread */
    ATTEMPT_RUNNING, /* an executor has it */
    ATTEMPT_DONE,    /* its report waits to be sent */
    ATTEMPT_SENT,    /* its report is on its way; only the reporter touches it */
};

/* How far a run is, as its executor tells it from time to time, on its own thread. */
struct progress {
    _Atomic double fraction;
    _Atomic uint64_t rows;
    _Atomic uint64_t bytes;
    atomic_bool is_known;
};

struct attempt {
    struct list in_all;
    struct list in_line;    /* QUEUED: for the slots; DONE: for the reporter */
    struct list in_started; /* RUNNING: for the reporter, which says that it runs */
    struct heap_node lease; /* exclusive ones: when to stop it, in monotonic milliseconds */
    uint64_t beat;          /* the last heartbeat that named it */
    int64_t started_ms;
    enum attempt_state state;
    bool is_exclusive;
    bool is_dead;     /* not current any more: nothing about it is reported */
    bool is_released; /* to be given back, unless it has just finished */
    bool is_started_told;
    bool was_sent;            /* its report, which may have counted although nobody has answered */
    bool is_refused;          /* a leader has said that what it brought does not count, or that it failed */
    bool is_replaced;         /* its outcome was refused as such, and a plain failure put in its place */
    bool is_fragment_missing; /* it came without its fragment, which is not here */
    bool is_fragment_wrong;   /* the fragment is not what its digest says */
    uint32_t attempt;
    uint64_t stage;
    uint64_t task;
    uint32_t lease_ms;
    uint32_t timeout_ms;
    unsigned char token[TOKEN_BYTES];
    struct exec_stop *stop;
    struct exec_outcome outcome;
    Capstan__V1__TaskState verdict; /* what the report says */
    size_t report_bytes;
    uint32_t report_fields;
    struct progress progress;
    struct fragment *fragment; /* that has its inputs; NULL: they are its own */
    const char *inputs;
    size_t n_inputs;
    const char *missing_op; /* an operator that it needs and this worker does not have; NULL: none */
    const char *job_id;     /* this and what follows lie behind the struct, in the same block */
    const char *executor;
    const char *name;
    const char *idempotency_key;
    const char *task_key;
    const struct exec_source *sources;
    uint32_t n_sources;
};

/* ---- the worker ---- */

struct ended_job {
    char *job_id;
    bool has_failed; /* nobody can have its results */
};

enum phase {
    PHASE_WORKING,
    PHASE_LEAVING,  /* drains */
    PHASE_STOPPING, /* everything is being stopped */
    PHASE_ENDED,
};

enum ending { ENDING_LEFT, ENDING_SUPERSEDED, ENDING_REFUSED };

/* What the coordinator told at registration. */
struct settings {
    int64_t beat_ms;
    int64_t lease_ms;
    int64_t orphan_ms;
    int64_t drain_ms;
    int64_t kill_grace_ms;
    int64_t result_ttl_ms;
};

/* What one of the poll threads needs. */
struct poll_thread {
    struct worker *worker;
    struct caller *caller;
};

struct worker {
    pthread_mutex_t mutex;

    /* Fixed after the start. */
    struct arena texts;
    char *worker_id;
    char incarnation[33];
    char *address;
    char *capabilities;
    char *version;
    char **ops;
    uint32_t n_ops;
    uint32_t slots;
    struct executor_set *executors;
    struct exchange_store *store;     /* NULL: it keeps nothing for others */
    struct exchange_server *exchange; /* serves it; NULL: nothing is served */
    struct rpc_server *server;
    bool has_token; /* only who sends the token of this digest is served */
    uint8_t token_digest[SHA256_BYTES];
    struct leader leader;
    struct fragments fragments;

    /* Attempts. */
    struct map attempts; /* by token */
    struct list all;
    struct list queue;   /* QUEUED */
    struct list done;    /* DONE */
    struct list started; /* RUNNING, to be told */
    struct heap leases;
    uint32_t n_queued;
    uint32_t n_busy; /* QUEUED and RUNNING */
    uint32_t n_done;
    uint32_t n_sent;
    size_t unreported_bytes; /* of DONE and SENT */

    /* Slots. */
    pthread_cond_t slot_cond;
    pthread_t *slot_threads;
    uint32_t n_slot_threads;
    uint32_t n_idle;
    bool is_waking; /* a thread has been woken or made, and has not looked at the queue yet */
    bool are_slots_closed;
    int64_t failure_lines_since_ms; /* how many lines about failures there were in this second */
    uint32_t failure_lines;

    /* Polls. */
    pthread_cond_t poll_cond;
    pthread_t poll_threads[2];
    struct caller poll_callers[2];
    struct poll_thread poll_contexts[2];
    uint32_t n_open;          /* polls under way */
    uint32_t promised;        /* the sum of their capacities */
    uint32_t newest_capacity; /* of the one that was sent last */
    uint32_t wake_at;         /* free slots at which a poll thread wants to be woken; UINT32_MAX: never */
    uint32_t capacity_max;
    int64_t gather_until_us; /* 0: nothing is being gathered for */
    bool are_polls_closed;

    /* Reports. */
    pthread_cond_t report_cond;
    pthread_t report_thread;
    struct caller report_caller;
    bool is_reporter_waiting;
    bool is_reporter_closed;
    uint32_t single_reports; /* so many are sent one by one, because a batch was refused */

    /* Heartbeats. */
    pthread_cond_t beat_cond;
    pthread_t beat_thread;
    struct caller beat_caller;
    struct settings settings;
    bool is_registered;
    bool was_registered;   /* once */
    int64_t registered_ms; /* when it last was; written by the heartbeat thread only */
    bool is_beat_wanted;   /* before its time */
    bool is_beat_closed;
    bool is_drained_by_coordinator;
    uint64_t beat;            /* number of the last heartbeat that was built */
    int64_t accepted_beat_ms; /* when the last accepted one was sent */
    int64_t orphan_since_ms;  /* when it was first noticed that nobody answers; 0: somebody does */
    uint32_t n_mapped_jobs;   /* of which it had map outputs when the last heartbeat was built */
    uint32_t outputs_needed;
    int64_t outputs_known_ms; /* when the heartbeat that told it was sent; 0: not told since the worker leaves */

    /* What is kept for others; only with a store. */
    pthread_cond_t shuffle_cond;
    pthread_t shuffle_thread;
    uint64_t
        beat_output; /* the last output that there was when the last heartbeat was built, as exchange_store_number */
    struct ended_job *ended_jobs; /* whose outputs are to be dropped */
    uint32_t n_ended_jobs;
    uint64_t ended_output;          /* none that is newer */
    struct exchange_key *discarded; /* outputs of attempts that do not count */
    uint32_t n_discarded;
    uint32_t cap_discarded;
    bool is_shuffle_closed;

    /* The end. */
    pthread_cond_t watch_cond;
    pthread_cond_t ended_cond;
    pthread_t watch_thread;
    enum phase phase;
    enum ending ending;
    int refused_exit_code;
    int64_t leaving_since_ms;
    int64_t stopping_since_ms;
    int64_t idle_since_ms; /* when the last report was answered, while leaving; 0: something is left */
    int exit_code;

    struct worker_stats stats; /* the totals */
};

/* Waits for the condition until the monotonic time; NEVER: without end. */
void worker__wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t at_us);
void worker__cond_init(pthread_cond_t *cond);

/* assignment.c */

/* A new attempt that nobody knows yet. */
struct attempt *worker__attempt_new(struct worker *worker, const struct pb_task_assignment *from);
void worker__attempt_free(struct attempt *attempt);

/* attempt.c */

/* Frees all attempts that are in the list by `in_line`. Not under the lock: there may be many. */
void worker__attempts_free(struct list *garbage);
/*
 * Takes it over; one that is known already goes to `garbage`, one whose fragment is missing back to the coordinator.
 * `lease_from_ms`: when its lease began at the earliest.
 */
void worker__attempt_add_locked(struct worker *worker, struct attempt *attempt, int64_t lease_from_ms,
                                struct list *garbage);
/* Ends what runs, forgets what does not. Those that can be freed go to `garbage`. */
void worker__attempt_stop_locked(struct worker *worker, struct attempt *attempt, enum stop_reason reason,
                                 struct list *garbage);
/* Stops exactly the attempts that are named, token and all. Takes the lock. */
void worker__attempts_stop_named(struct worker *worker, struct pb_attempt_ref *const *refs, size_t n);
/* Stops those that wait for a slot or run; with `outcomes`, those that wait to be reported, too. Returns how many. */
uint32_t worker__attempts_stop_all_locked(struct worker *worker, enum stop_reason reason, bool outcomes,
                                          struct list *garbage);
/* Its lease was renewed by a heartbeat that left at `from_ms`. */
void worker__attempt_renew_locked(struct worker *worker, struct attempt *attempt, int64_t from_ms);
/* Nobody has it any more: not named in heartbeats from now on. */
void worker__attempt_forget_locked(struct worker *worker, struct attempt *attempt);
/*
 * Gives it back: at once if it has not begun, else when its executor, which is stopped for that reason, has come back.
 * That it runs is not told any more.
 */
void worker__attempt_release_locked(struct worker *worker, struct attempt *attempt, enum stop_reason reason);
/* Nobody heard that it runs: the next heartbeat hands it to the reporter again, if it still does. */
void worker__attempt_tell_started_later_locked(struct worker *worker, const struct pb_attempt_ref *ref);
/* Gives back those that have not begun. */
void worker__attempts_release_queued_locked(struct worker *worker);
/* Gives back those that run: their executors are stopped. Returns how many. */
uint32_t worker__attempts_release_running_locked(struct worker *worker);
/* It has ended with a verdict, which the reporter is to send. */
void worker__attempt_done_locked(struct worker *worker, struct attempt *attempt, Capstan__V1__TaskState verdict);
/* The name in a message. Nothing is copied: the attempt must live as long as the message. */
struct pb_attempt_ref *worker__attempt_ref(const struct attempt *attempt, struct arena *arena);
/* How a person finds it in the log. */
#define ATTEMPT_FORMAT "%s stage %llu task %llu attempt %u"
#define ATTEMPT_VALUES(a) (a)->job_id, (unsigned long long)(a)->stage, (unsigned long long)(a)->task, (a)->attempt

/* slot.c */
void worker__slots_wake_locked(struct worker *worker);
void worker__slots_close(struct worker *worker);

/* poll.c */
void *worker__poll_main(void *poll_thread_context);
/* A slot got free, or something else changed that a poll depends on. */
void worker__poll_slot_freed_locked(struct worker *worker);
void worker__poll_reconsider_locked(struct worker *worker);

/* Whether reports need not come before new tasks: they take neither too much memory nor the room of a heartbeat. */
bool worker__has_room_locked(const struct worker *worker);

/* report.c */
void *worker__report_main(void *worker);
/* How large its report is going to be. */
void worker__report_measure(struct attempt *attempt);

/* heartbeat.c */
void *worker__heartbeat_main(void *worker);
/* A coordinator does not know this worker. */
void worker__heartbeat_register_again(struct worker *worker);

/* watch.c */
void *worker__watch_main(void *worker);
/* The state changed in a way that could bring the end nearer. */
void worker__watch_look_locked(struct worker *worker);
void worker__watch_superseded(struct worker *worker);
void worker__watch_refused(struct worker *worker, int exit_code);

/* serve.c: what others fetch from here. */
MUST_USE enum err worker__serve_open(struct worker *worker, const struct worker_options *options, struct error *e);
void worker__serve_close(struct worker *worker);

/* shuffle.c: what is kept for others. Without a store these do nothing. */
void worker__shuffle_start(struct worker *worker);
void worker__shuffle_close(struct worker *worker);
/* The jobs whose end is waited for: their number, and their ids in the arena. A heartbeat is built with them. */
uint32_t worker__shuffle_jobs(struct worker *worker, struct arena *arena, char ***out_job_ids);
/* What the answer to that heartbeat says of them: whose map outputs can go, and whose results, too. Returns at once. */
void worker__shuffle_jobs_ended(struct worker *worker, const struct pb_heartbeat_response *answer);
/* What the attempt has left here, if anything, does not count. Returns at once. */
void worker__shuffle_discard_locked(struct worker *worker, const struct attempt *attempt);

#endif
