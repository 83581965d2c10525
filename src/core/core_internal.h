/*
 * core_internal.h - the structs of the scheduler and the functions that its files share.
 *
 * Fields are marked durable (they come back from rows) or derived (they follow from durable ones, or need not survive).
 * Everything belongs to the core. `core->fx`, `core->now_ms` and the random key are valid only inside core_step.
 */
#ifndef CAPSTAN_CORE_CORE_INTERNAL_H
#define CAPSTAN_CORE_CORE_INTERNAL_H

#include "base/heap.h"
#include "base/idheap.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "base/siphash.h"
#include "core/core.h"

#define PRIORITY_COUNT 4
#define BACKOFF_MS_MAX 30000
#define NODE_FORGET_MS 86400000 /* a dead node is dropped from the list after this */
#define ENDED_TASKS_RESIDENT 1000000
#define IDEMPOTENCY_KEY_MS 86400000 /* a job's own key is kept so long after its end */

#ifdef CAPSTAN_PLANTED_BUGS
#define BUG(core, name) ((core)->bug == BUG_##name)
#else
#define BUG(core, name) ((void)(core), false)
#endif

/* ---- requirements, classes, profiles: who can run what (class.c) ---- */

/* One requirement, shared by everything that asks the same. */
struct need {
    struct requirement *value;
    uint64_t hash;
    uint32_t refs;
};

/* The classes that some workers can run and that have ready tasks, by priority. */
struct holder {
    struct link **ready[PRIORITY_COUNT];
    uint32_t n_ready[PRIORITY_COUNT];
    uint32_t cap[PRIORITY_COUNT];
    uint32_t rotor;
};

/* "The workers of this holder can run the tasks of this class." */
struct link {
    struct class *class;
    struct holder *holder;
    struct profile *profile; /* NULL: the holder is one worker's own, for classes with allowed_nodes */
    struct worker *worker;
    struct link *next; /* of the same class */
    bool is_queued;    /* it is in holder->ready */
    uint32_t index;    /* there */
};

/* Tasks with the same requirement, the same priority and the same workers to avoid. */
struct class {
    struct need *need;
    char **avoid; /* sorted; the tasks failed there before */
    uint32_t n_avoid;
    uint8_t priority;
    bool child;        /* runs as a job, not on a worker */
    bool is_announced; /* every link is in its holder, as far as anybody knows */
    uint64_t hash;
    uint32_t refs; /* queues of jobs */
    struct link *links;
    struct list queue;       /* of struct jobqueue.in_class, in turn order: those with ready tasks */
    struct list stuck;       /* those of them that were reported as stuck */
    int64_t unmatched_at_ms; /* since when no live worker fits; 0: one does, or nobody waits */
    struct list in_core;
    struct list in_unused;
};

/* Workers with the same offer. */
struct profile {
    struct offer *offer;
    struct holder holder;
    struct list parked; /* of struct worker.in_parked: waiting polls that could take a task */
    struct list in_core;
    struct list in_hot;
    uint32_t n_workers;
    uint32_t n_live;
    uint32_t n_able; /* live, neither blacklisted nor draining */
};

/*
 * The ready tasks of one job in one class. An entry is stage << 32 | task; a stage's untouched tasks are one entry. The
 * smallest entry is kept outside the heap, so that a job with one entry, as most are, needs none.
 */
struct jobqueue {
    struct job *job;
    struct class *class;
    uint64_t top;
    uint32_t n_ready; /* entries, `top` included */
    bool is_parked;   /* the job is at its limit; it gets back in line when it is below */
    struct idheap more;
    struct list in_class;
    struct jobqueue *next; /* of the same job */
    int64_t since_ms;
};

/* ---- jobs, stages, tasks, outputs ---- */

/* On a worker, or only a tally of rows and bytes for tasks whose stage leaves nothing behind. */
struct output {
    struct task *task;
    struct worker *worker; /* NULL for results, which outlive their worker */
    char *worker_id;       /* of results */
    struct list in_worker;
    uint64_t incarnation_mark;
    uint64_t rows;
    uint64_t bytes;
    uint32_t attempt;
    uint32_t generation;
    bool is_inline;
    uint32_t n_partitions;
    struct partition partitions[];
};

enum timer_kind { TIMER_WORKER, TIMER_POLL, TIMER_BLACKLIST, TIMER_RETRY, TIMER_STUCK };

struct timer {
    struct heap_node node;
    enum timer_kind kind;
};

/* A task in backoff. After a load the timer may be earlier than `ready_at_ms`: no wait is longer than its maximum. */
struct backoff {
    struct timer timer;
    struct task *task;
    int64_t ready_at_ms; /* durable */
};

#define TASK_IN_HEAP 1u /* it has an entry of its own in its queue */

struct task {
    struct stage *stage;
    union {
        struct lease *lease;     /* running on a worker */
        struct job *child;       /* running as a job; NULL until that job is submitted, and after it succeeded */
        struct backoff *backoff; /* queued, not before its time */
    } u;
    struct jobqueue *avoid_queue; /* the queue of the class that avoids the workers on which it failed; else NULL */
    struct output *output;
    struct digest inputs;     /* durable */
    struct lease_token token; /* durable; of the latest attempt */
    int64_t queued_at_ms;     /* durable */
    uint32_t attempt;         /* durable */
    uint32_t inputs_bytes;    /* durable */
    uint32_t failures;        /* durable */
    uint8_t state;            /* durable */
    uint8_t outcome;          /* durable */
    uint8_t flags;
};

enum settled { SETTLED_NOT, SETTLED_OK, SETTLED_BAD };

#define EDGE_NONE UINT32_MAX

/* A dependency. Edges of a job lie in one array and are chained from both ends. */
struct edge {
    uint32_t parent;
    uint32_t child;
    uint32_t next_of_parent;
    uint32_t next_of_child;
    uint8_t read;
    bool optional;
    bool is_satisfied; /* derived */
};

struct stage {
    struct job *job;
    struct jobqueue *queue;
    struct task *tasks;
    char *name;          /* durable; NULL: none */
    uint64_t *recovered; /* durable; marks of the incarnations whose loss this stage recovered from */
    struct stage *next_work;
    struct stage *next_recovery;
    struct stage *next_marked;
    int64_t ready_at_ms;         /* when it became runnable */
    int64_t child_started_at_ms; /* durable; of the task that runs as a job */
    uint64_t rows;               /* derived: of registered outputs */
    uint64_t bytes;              /* derived */
    uint64_t ended_rows;         /* derived: of map outputs that went with the job's end; for people */
    uint64_t ended_bytes;
    int64_t backoff_ms;
    uint32_t id;
    uint32_t n_tasks;
    uint32_t fresh;     /* tasks from here on were never handed out */
    uint32_t waiting;   /* unsatisfied edges to parents */
    uint32_t n_missing; /* succeeded tasks whose map output is gone */
    uint32_t counts[TASK_STATE_COUNT];
    uint32_t first_child;  /* edges */
    uint32_t first_parent; /* edges */
    uint32_t partitions;
    uint32_t max_attempts;
    uint32_t timeout_ms;
    uint32_t n_recovered;
    uint8_t output;
    uint8_t settled;
    uint8_t recovery; /* RECOVER_* that are due */
    bool nondeterministic;
    bool exclusive;
    bool planning;
    bool child;
    bool has_readers;
    bool is_range_queued; /* its untouched tasks have an entry */
    bool is_marked;       /* scratch */
    bool has_dropped;     /* entries of it were thrown out of the heap while it was not runnable */
};

/* What every assignment touches comes first; the id and the first stages lie in the same pieces of memory. */
struct job {
    struct jobqueue first_queue; /* most jobs have one class */
    struct jobqueue *queues;
    struct list parked; /* of struct jobqueue.in_class: ready, but the job is at its limit */
    struct stage **stages;
    uint64_t serial; /* tells this job from any other that ever was in this process */
    uint64_t turn;
    uint64_t n_open;        /* tasks that are not terminal */
    int64_t started_at_ms;  /* durable */
    int64_t finished_at_ms; /* durable */
    uint64_t inline_bytes;  /* durable */
    char *message;          /* durable: the first failure, or why it was canceled */
    uint32_t n_stages;
    uint32_t running;  /* attempts, child jobs included */
    uint32_t n_failed; /* tasks that failed for good */
    uint8_t kind;
    uint8_t priority;
    uint8_t state;
    bool stop_on_failure;
    bool has_stage_array; /* `stages` is not part of a block */
    uint64_t hash;
    uint64_t key_hash;
    char *name;            /* durable */
    char *idempotency_key; /* durable */
    struct edge *edges;
    char *parent_job;        /* durable; of a child job: whose task started it */
    struct task *parent;     /* that task, while it waits for this job */
    struct job *next_told;   /* ended, and its parent does not know yet */
    struct block *blocks;    /* memory of stages and tasks */
    struct list in_list;     /* ended jobs, oldest first */
    struct digest content;   /* durable */
    int64_t submitted_at_ms; /* durable */
    uint64_t n_tasks;
    uint32_t parent_stage; /* durable, like the attempt */
    uint32_t parent_attempt;
    uint32_t cap_stages;
    uint32_t n_edges;
    uint32_t cap_edges;
    uint32_t n_needs;   /* different requirements of its stages */
    uint32_t n_outputs; /* map outputs that exist */
    char id[];          /* durable */
};

/* Stages and tasks that came with one command, in one piece of memory. */
struct block {
    struct block *next;
};

struct lease {
    struct task *task;
    struct worker *worker;
    struct list in_worker;
    int64_t expires_ms;     /* attended time */
    int64_t assigned_ms;    /* attended time */
    int64_t acquired_at_ms; /* durable; leader time */
    uint32_t beat;          /* the heartbeat that named it last */
    bool is_started;
    struct lease *next_free;
};

struct stop {
    char *job_id;
    uint32_t stage;
    uint32_t task;
    uint32_t attempt;
    struct lease_token token;
};

struct poll {
    struct timer timer; /* key: when to answer with nothing */
    uint64_t reply_to;
    int64_t since_ms;
    uint32_t capacity;
    bool is_open;
    bool is_due; /* answer it in this tick, whatever there is */
};

struct worker {
    char *id;                                        /* durable */
    char *incarnation;                               /* durable */
    char *past_incarnations[NODE_PAST_INCARNATIONS]; /* durable */
    char *address;                                   /* durable */
    char *version;                                   /* durable */
    uint64_t hash;
    uint64_t incarnation_mark;
    struct profile *profile;
    struct holder own; /* classes with allowed_nodes that name this worker */
    struct list running;
    struct list outputs;
    struct list in_parked;
    struct list in_hot;
    struct list in_served;
    struct timer watch;     /* attended time: leases, liveness, dead, forgotten */
    struct timer blacklist; /* when the blacklisting ends */
    struct poll poll;
    struct stop *stops;
    struct assignment *given, **given_end;
    double load;
    int64_t last_seen_ms;         /* attended time */
    int64_t heartbeat_at_ms;      /* leader time */
    int64_t registered_at_ms;     /* durable */
    int64_t blacklisted_until_ms; /* durable */
    uint32_t n_given;
    uint32_t n_stops;
    uint32_t cap_stops;
    uint32_t n_running;
    uint32_t failures; /* durable */
    uint32_t slots;    /* durable */
    uint32_t beat;
    uint8_t status; /* durable */
    bool draining;  /* durable */
    bool is_live;   /* durable: registered, and heard of lately */
    bool is_counted_live;
    bool is_counted_able;
};

struct core {
    struct core_config config;
    struct siphash_key hash_key;
    struct map jobs;    /* by id */
    struct map keys;    /* by idempotency key */
    struct map workers; /* by id */
    struct map needs;
    struct map classes;
    struct list profiles;
    struct list all_classes;
    struct list unused_classes; /* no job uses them; kept for the next one */
    struct class *last_class;   /* that class_get found; it avoids nobody */
    struct list hot_profiles;
    struct list hot_workers;
    struct list served;
    struct list ended;
    struct holder child_holder;
    struct heap timers;  /* leader time */
    struct heap watches; /* attended time */
    struct timer stuck;
    struct stage *recoveries; /* stages with something due */
    struct job *to_tell;      /* ended children whose parents are told at the end of the step */
    struct lease *lease_pool;
    uint64_t turn;
    uint64_t event_seq;
    uint64_t draws;
    uint64_t n_ended_tasks;
    uint64_t ended_total;
    uint32_t n_ended;
    uint32_t n_parked;
    uint32_t n_unused_classes;
    bool is_everyone_hot; /* all waiting polls should be looked at again */
    bool is_stuck_due;    /* stuck classes should be looked at again */
    int64_t now_ms;
    int64_t attended_ms;
    int64_t pending_since_ms; /* effects of steps from then on have not left yet; 0: all have */
    int64_t fleet_changed_ms; /* when a worker was lost or changed its offer */
    struct core_stats stats;
    struct effects *fx;
    struct siphash_key random_key;
#ifdef CAPSTAN_PLANTED_BUGS
    enum bug bug;
#endif
};

/* ---- effects.c: hashes, random bits, and writing into the effects of the step ---- */

uint64_t core__hash(const struct core *core, const char *text);
uint64_t core__mark(const char *text); /* the same on every leader */
struct lease_token core__draw(struct core *core);

struct reply *core__reply(struct core *core, uint64_t to, enum reply_kind kind);
void core__reply_error(struct core *core, uint64_t to, enum err code, const char *message);
const char *core__text(struct core *core, const char *text);    /* copy into the effects */
const char *core__clip(struct core *core, const char *message); /* a message of bounded length */
const char *core__job_id(struct core *core, const struct job *job);
struct task_ref core__ref(struct core *core, const struct task *task);
struct attempt_ref core__attempt(struct core *core, const struct task *task);

/* What a task row says besides what the task itself knows. */
struct task_news {
    const char *message;
    int64_t started_at_ms;
    int64_t finished_at_ms;
    const char *worker_id;
    int64_t lease_expires_at_ms;
    const struct digest *idempotency_key;
    const struct task_report *report; /* of a success */
    bool is_new;
};

void core__emit_job(struct core *core, const struct job *job, bool is_new);
void core__emit_sweep(struct core *core, const struct job *job);
void core__emit_stage(struct core *core, const struct stage *stage, bool is_new);
void core__emit_task(struct core *core, const struct task *task, const struct task_news *news);
void core__emit_lease(struct core *core, const struct lease *lease);
void core__emit_lease_gone(struct core *core, const struct task *task);
void core__emit_map_output(struct core *core, const struct output *output);
void core__emit_result(struct core *core, const struct output *output);
void core__emit_output_gone(struct core *core, const struct output *output);
void core__emit_node(struct core *core, const struct worker *worker);
void core__emit_node_gone(struct core *core, const struct worker *worker);
void core__emit_attempt(struct core *core, const struct task *task, const char *worker_id,
                        const struct digest *idempotency_key);
void core__emit_child(struct core *core, const struct task *task);
void core__emit_child_end(struct core *core, const struct task *task, const struct job *child);
void core__job_event(struct core *core, enum event_type type, const struct job *job, const char *message);
void core__task_event(struct core *core, enum event_type type, const struct task *task, const char *worker_id,
                      const char *message);
void core__node_event(struct core *core, enum event_type type, const struct worker *worker, const char *message);

/* ---- class.c ---- */

struct class *class_get(struct core *core, const struct requirement *need, uint8_t priority, bool child);
struct class *class_avoiding(struct core *core, struct class *class, const char *worker_id);
void class_unref(struct core *core, struct class *class);
bool class_avoids(const struct class *class, const char *worker_id);
uint32_t class_live_workers(const struct core *core, const struct class *class);
bool class_blocks_worker(const struct core *core, const struct class *class, const struct worker *worker);
bool class_fits_worker(const struct class *class, const struct worker *worker);
void class_announce(struct core *core, struct class *class);
void class_check_stuck(struct core *core);
void classes_free(struct core *core);

void profile_join(struct core *core, struct worker *worker, const struct offer *offer);
void profile_leave(struct core *core, struct worker *worker);
void profile_recount(struct core *core, struct worker *worker);
void holder_deinit(struct holder *holder);
void holder_drop(struct link *link);

/* ---- jobqueue.c ---- */

struct jobqueue *jobqueue_get(struct core *core, struct job *job, struct class *class);
void jobqueue_wake(struct core *core, struct jobqueue *queue);
void jobqueue_park(struct jobqueue *queue);
void jobqueue_leave(struct jobqueue *queue);
struct task *jobqueue_top(struct core *core, struct jobqueue *queue);
void jobqueue_pop(struct jobqueue *queue);
void jobqueue_clear(struct jobqueue *queue);
void jobqueues_free(struct core *core, struct job *job);
bool job_is_full(const struct core *core, const struct job *job);
void job_slot_freed(struct core *core, struct job *job);
struct jobqueue *task_queue(const struct task *task);
void task_enqueue(struct core *core, struct task *task);
void stage_enqueue(struct core *core, struct stage *stage);

/* ---- job.c ---- */

struct job *job_find(const struct core *core, const char *job_id);
struct job *job_new(struct core *core, const char *id);
void job_index_key(struct core *core, struct job *job);
void job_free(struct core *core, struct job *job);
void job_evict(struct core *core);
void job_end(struct core *core, struct job *job, enum job_state state, const char *message);
void job_remember_ended(struct core *core, struct job *job);
void job_maybe_end(struct core *core, struct job *job);
void jobs_tell_parents(struct core *core);
void job_find_parent(struct core *core, struct job *job);
struct task *child_task_waiting(const struct core *core, const struct attempt_ref *ref);
void job_mark_running(struct core *core, struct job *job);
MUST_USE enum err job_add_stages(struct core *core, struct job *job, const struct stage_spec *specs, uint32_t n,
                                 struct error *e);
void job_submit(struct core *core, const struct command *command);
void job_cancel(struct core *core, const struct command *command);
void job_retry(struct core *core, const struct command *command);

/* ---- stage.c ---- */

MUST_USE enum err stages_check(const struct job *job, const struct stage_spec *specs, uint32_t n, struct error *e);
void stages_build(struct core *core, struct job *job, const struct stage_spec *specs, uint32_t n);
void stage_build_one(struct core *core, struct job *job, uint32_t id, const struct stage_spec *spec,
                     struct stage *stage);
void stage_reserve(struct job *job, uint32_t n);
void stage_add_edge(struct job *job, uint32_t parent, uint32_t child, const struct stage_parent *spec);
void stage_link_edges(struct job *job, uint32_t first);
void stage_settle(struct core *core, struct stage *stage);
void stage_unsettle(struct stage *stage);
void stages_derive(struct core *core, struct job *job, uint32_t first);
void job_derive(struct core *core, struct job *job);
struct stage *stage_find(const struct job *job, uint32_t stage);

/* ---- task.c ---- */

struct task *task_find(const struct job *job, uint32_t stage, uint32_t task);
uint32_t task_index(const struct task *task);
void task_move(struct core *core, struct task *task, enum task_state to);
void task_requeue(struct core *core, struct task *task, enum attempt_outcome outcome, const char *why);
void task_release(struct core *core, struct task *task, const char *why);

/* Why an attempt did not succeed. */
struct failure {
    const char *message;
    const struct task_report *report; /* NULL: nobody reported it */
    bool is_retryable;
    bool is_lost; /* not the task's doing: no backoff, and its worker is not to be avoided */
};
void task_retry_or_fail(struct core *core, struct task *task, const struct failure *failure);

void task_succeed(struct core *core, struct task *task, const struct task_report *report);
void task_cancel(struct core *core, struct task *task);
void task_skip(struct core *core, struct task *task);
void task_avoid(struct core *core, struct task *task, const char *worker_id);
void task_set_backoff(struct core *core, struct task *task, int64_t ready_at_ms);
void task_clear_backoff(struct core *core, struct task *task);
int64_t task_ready_at(const struct task *task);
int64_t task_timer_at(const struct task *task);

/* ---- lease.c ---- */

void lease_grant(struct core *core, struct task *task, struct worker *worker);
void lease_end(struct core *core, struct task *task, bool tell_worker);
struct lease *lease_attach(struct core *core, struct task *task, struct worker *worker);
void leases_free(struct core *core);

/* ---- worker.c ---- */

struct worker *worker_find(const struct core *core, const char *worker_id);
struct worker *worker_new(struct core *core, const char *worker_id);
void worker_free(struct core *core, struct worker *worker);
bool worker_is_able(const struct worker *worker);
enum refusal worker_speak(const struct core *core, const char *worker_id, const char *incarnation,
                          struct worker **out_worker);
void worker_register(struct core *core, const struct command *command);
void worker_heartbeat(struct core *core, const struct command *command);
void worker_deregister(struct core *core, const struct command *command);
void worker_set(struct core *core, const struct command *command);
void worker_watch(struct core *core, struct worker *worker);
void worker_watch_fired(struct core *core, struct worker *worker);
void worker_count_failure(struct core *core, struct worker *worker, const struct task *task);
void worker_count_success(struct core *core, struct worker *worker);
void worker_clear_blacklist(struct core *core, struct worker *worker);
void worker_drop_op(struct core *core, struct worker *worker, const char *op);
void worker_arm_blacklist(struct core *core, struct worker *worker);
void worker_change_offer(struct core *core, struct worker *worker, const struct offer *offer);
void worker_tell_stop(struct core *core, struct worker *worker, const struct task *task);

/* ---- poll.c ---- */

uint32_t worker_count_alike(const struct worker *worker, const struct job *job, const struct need *need);
void poll_open(struct core *core, const struct command *command);
void poll_close(struct core *core, struct worker *worker);
void poll_refuse(struct core *core, struct worker *worker, enum refusal refusal);
void poll_due(struct core *core, struct worker *worker);
void poll_unpark(struct core *core, struct worker *worker);
void poll_reconsider(struct core *core, struct worker *worker);
void poll_dispatch(struct core *core);
const struct parent_result *core__list_parents(struct core *core, const struct stage *stage, uint32_t *out_n);

/* ---- report.c ---- */

void report_take(struct core *core, const struct command *command);
void report_child_done(struct core *core, const struct command *command);
void report_child_failed(struct core *core, const struct command *command);
struct task *attempt_find(const struct core *core, const struct attempt_ref *ref, enum refusal *out_refusal);
enum refusal attempt_current(const struct core *core, const struct attempt_ref *ref, const struct task *task);
enum refusal core__refused(struct core *core, enum refusal refusal);

/* ---- output.c ---- */

enum refusal output_take_map(struct core *core, struct task *task, const struct partition *partitions, uint32_t n);
enum refusal output_take_rows(struct core *core, struct task *task, const struct task_rows *rows);
void output_register_map(struct core *core, const struct command *command);
void output_register_results(struct core *core, const struct command *command);
struct output *output_new(struct task *task, uint32_t n_partitions);
void output_attach(struct core *core, struct output *output);
void output_tally(struct core *core, struct task *task, uint64_t rows, uint64_t bytes);
void output_drop(struct core *core, struct task *task, bool emit);
bool output_is_current(const struct task *task);
void outputs_lost_with(struct core *core, struct worker *worker);
void output_fetch_failed(struct core *core, struct task *reader, const struct task_report *report);
void recovery_need(struct core *core, struct stage *stage);
void recovery_run(struct core *core);
bool stage_outputs_needed(const struct stage *stage);
const struct source *output_sources(struct core *core, const struct task *task, uint32_t *out_n);
struct worker *output_best_worker(const struct task *task);

/* ---- load.c ---- */

void load_row(struct core *core, const struct row *row);
void load_done(struct core *core);
void load_job_done(struct core *core, const char *job_id);

/* ---- why.c ---- */

const char *why_class(const struct core *core, const struct job *job, const struct class *class, struct arena *arena);

#endif
