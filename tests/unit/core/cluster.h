/*
 * cluster.h - one core, the clock that it is told, the store that keeps its rows, and workers that talk to it.
 *
 * Every call of a worker or a client is a batch of its own: the command, then CMD_TICK, then the rows are "committed".
 * cluster_begin() and cluster_end() make one batch of several calls. After every step the core checks its invariants
 * (`checks`), and the fixture checks the contract of core.h: one reply per command, wake-up times, event numbers, one
 * lease per task. cluster_finish() loads a second core from the rows and compares, so every test tests recovery.
 *
 * Workers are known by a name that the test chooses. The fixture remembers what each was assigned and not yet answered
 * for, and names it in heartbeats, as semantics section 5 demands. cluster_advance() heartbeats for those that `beat`.
 *
 * Ownership: a cluster is the test's plain memory. Replies, and the assignments in them, are valid until
 * cluster_forget() or cluster_finish().
 */
#ifndef CAPSTAN_TESTS_UNIT_CORE_CLUSTER_H
#define CAPSTAN_TESTS_UNIT_CORE_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/prng.h"
#include "core/core.h"
#include "row_store.h"
#include "test.h"

#define SECOND_MS 1000

struct worker {
    const char *name;      /* in the test */
    const char *worker_id; /* for the core: the same, unless the test says otherwise */
    char incarnation[64];
    uint32_t starts;
    uint32_t slots;
    struct offer offer;
    bool beats;
    bool is_leaving; /* and says so */
    int64_t next_beat_ms;
    struct attempt_ref *running; /* what its heartbeats name */
    uint32_t n_running;
    uint32_t cap_running;
    struct attempt_ref *stopped; /* what it was told to stop */
    uint32_t n_stopped;
    uint32_t cap_stopped;
    struct worker *next;
};

struct cluster {
    struct core_config config;
    struct core *core;
    struct row_store store;
    struct effects fx;
    struct arena arena; /* what lasts as long as the cluster */
    struct prng prng;
    int64_t now_ms;
    bool checks; /* core_check after every step; too slow for large jobs */
    bool in_batch;
    uint64_t steps;
    struct row *last_row;     /* all up to here are stored */
    struct reply *last_reply; /* all up to here were looked at */
    struct map jobs;          /* job ids, each once */
    struct worker *workers;
    uint8_t *answers; /* by handle: 0 waiting, 1 answered */
    uint32_t cap_answers;
    uint32_t last_handle;
};

/* Default configuration, or one of the test's own; 2023 on the clock. */
void cluster_init(struct cluster *c);
void cluster_init_with(struct cluster *c, struct core_config config);
/* Checks that recovery would be equal, then frees everything. */
void cluster_finish(struct cluster *c);
/* Frees replies and assignments, which are then invalid. For tests with very many. */
void cluster_forget(struct cluster *c);

void cluster_begin(struct cluster *c);
void cluster_end(struct cluster *c);
/* One step and, outside of a batch, a tick. The reply, or NULL if it is still to come. */
const struct reply *cluster_do(struct cluster *c, struct command *command);
void cluster_tick(struct cluster *c);

/* Time passes, attended by the leader, step by step; workers that `beat` do so. */
void cluster_advance(struct cluster *c, int64_t ms);
/* Time passes while the leader does nothing at all. */
void cluster_stall(struct cluster *c, int64_t ms);

/* The leader dies after its last commit; the next one loads the rows. */
void cluster_fail_over(struct cluster *c);
/* Ends the test unless a core loaded from the rows equals this one. */
void cluster_check_recovery(struct cluster *c);
/* Brings back an ended job that left the core's memory. */
void cluster_load_job(struct cluster *c, const char *job_id);

/* The reply to a handle, NULL while there is none. */
const struct reply *cluster_reply(const struct cluster *c, uint64_t handle);
uint32_t cluster_events(const struct cluster *c, enum event_type type);
/* Events of that type about one job's task. */
uint32_t cluster_task_events(const struct cluster *c, enum event_type type, struct task_ref ref);
/* The newest event of that type, NULL if there is none. */
const struct row_event *cluster_event(const struct cluster *c, enum event_type type);

/* ---- jobs ---- */

extern const struct requirement ANY_WORKER; /* asks for nothing */

/*
 * Initialisers of struct stage_spec for any worker, with the configured budget and backoff. What follows the named
 * arguments are further fields.
 */
#define TREE_TASK(task_name, ...)                                                                                      \
    {                                                                                                                  \
        .name = (task_name), .need = &ANY_WORKER, .n_tasks = 1, .backoff_ms = -1, __VA_ARGS__                          \
    }
#define QUERY_STAGE(count, ...)                                                                                        \
    {                                                                                                                  \
        .need = &ANY_WORKER, .n_tasks = (count), .backoff_ms = -1, __VA_ARGS__                                         \
    }
#define MAP_STAGE(count, n_partitions, ...)                                                                            \
    {                                                                                                                  \
        .need = &ANY_WORKER, .n_tasks = (count), .backoff_ms = -1, .output = OUTPUT_SHUFFLE,                           \
        .partitions = (n_partitions), __VA_ARGS__                                                                      \
    }
#define RESULT_STAGE(count, ...)                                                                                       \
    {                                                                                                                  \
        .need = &ANY_WORKER, .n_tasks = (count), .backoff_ms = -1, .output = OUTPUT_RESULT, __VA_ARGS__                \
    }

/* Parents: AFTER(ON(0), ON_ANY_END(1), READS(2), READS_ALL(3), ON_STAGE(4)) */
#define AFTER(...)                                                                                                     \
    .parents = (const struct stage_parent[]){__VA_ARGS__},                                                             \
    .n_parents = sizeof((const struct stage_parent[]){__VA_ARGS__}) / sizeof(struct stage_parent)
#define ON(index)                                                                                                      \
    {                                                                                                                  \
        .stage = (index), .added = true                                                                                \
    }
#define ON_ANY_END(index)                                                                                              \
    {                                                                                                                  \
        .stage = (index), .added = true, .optional = true                                                              \
    }
#define READS(index)                                                                                                   \
    {                                                                                                                  \
        .stage = (index), .added = true, .read = READ_PARTITION                                                        \
    }
#define READS_ALL(index)                                                                                               \
    {                                                                                                                  \
        .stage = (index), .added = true, .read = READ_ALL                                                              \
    }
/* By its id in the job: for stages that a planning task adds. */
#define ON_STAGE(id)                                                                                                   \
    {                                                                                                                  \
        .stage = (id)                                                                                                  \
    }

/* Initialiser of a string_list. */
#define TEXTS(...)                                                                                                     \
    {                                                                                                                  \
        .items = (const char *const[]){__VA_ARGS__},                                                                   \
        .count = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)                                     \
    }

struct digest digest_of(const char *text);
bool digest_equal(struct digest a, struct digest b);

/* A request with normal priority and a content of its own. */
struct cmd_submit submit_request(const char *job_id, enum job_kind kind, const struct stage_spec *stages, uint32_t n);
const struct reply *submit(struct cluster *c, const struct cmd_submit *request);
/* These end the test if the job is refused. */
void submit_ok(struct cluster *c, const struct cmd_submit *request);
void submit_stages(struct cluster *c, const char *job_id, enum job_kind kind, const struct stage_spec *stages,
                   uint32_t n);
#define SUBMIT_TREE(c, job_id, stages)                                                                                 \
    submit_stages((c), (job_id), JOB_KIND_TREE, (stages), (uint32_t)ARRAY_LEN(stages))
#define SUBMIT_QUERY(c, job_id, stages)                                                                                \
    submit_stages((c), (job_id), JOB_KIND_QUERY, (stages), (uint32_t)ARRAY_LEN(stages))
/* A query of one stage, whose tasks need nothing and leave nothing. */
void submit_tasks(struct cluster *c, const char *job_id, uint32_t n_tasks);
/* The same with a requirement and a priority. */
void submit_tasks_for(struct cluster *c, const char *job_id, uint32_t n_tasks, const struct requirement *need);
void submit_tasks_urgent(struct cluster *c, const char *job_id, uint32_t n_tasks, uint8_t priority);

/* The coordinator has put together what this attempt's child job brought: 42 rows. */
const struct reply *child_is_done(struct cluster *c, struct attempt_ref ref);
/* The same for the child job that succeeded last; ends the test unless it is this one and the news is taken. */
void child_is_read(struct cluster *c, const char *job_id);

/* The state that the answer tells. */
enum job_state client_cancels(struct cluster *c, const char *job_id);
enum job_state client_retries(struct cluster *c, const char *job_id);
const struct reply *client_retries_from(struct cluster *c, const char *job_id, const char *task_name);

struct task_ref at(const char *job_id, uint32_t stage, uint32_t task);
struct task_status task_of(const struct cluster *c, const char *job_id, uint32_t stage, uint32_t task);
enum task_state state_of(const struct cluster *c, const char *job_id, uint32_t stage, uint32_t task);
struct job_status job_of(const struct cluster *c, const char *job_id);
enum job_state job_state_of(const struct cluster *c, const char *job_id);

/* ---- workers ---- */

extern const struct offer NOTHING_SPECIAL;

struct worker *worker_named(const struct cluster *c, const char *name);
/* Registers under its name, with 8 slots, and heartbeats from now on. */
void worker_joins(struct cluster *c, const char *name);
void worker_joins_with(struct cluster *c, const char *name, const struct offer *offer);
/* A process that the test calls `name` registers as `worker_id`. */
void worker_joins_as(struct cluster *c, const char *name, const char *worker_id);
/* Sends the registration once more. */
const struct reply *worker_registers(struct cluster *c, const char *name);
/* The process is gone and says nothing any more. */
void worker_dies(struct cluster *c, const char *name);
/* A new process under the same worker_id, which knows nothing of the old one's tasks. */
void worker_restarts(struct cluster *c, const char *name);
const struct reply *worker_beats(struct cluster *c, const char *name);
/* It never got the last assignments: a lost reply. */
void worker_forgets(struct cluster *c, const char *name);
const struct reply *worker_leaves(struct cluster *c, const char *name);
bool worker_was_stopped(const struct cluster *c, const char *name, const struct assignment *a);
void operator_drains(struct cluster *c, const char *name, bool draining);
void operator_clears(struct cluster *c, const char *name);
struct node_info node_of(const struct cluster *c, const char *name);

/* An empty poll, answered at once. */
const struct reply *worker_polls(struct cluster *c, const char *name, uint32_t capacity);
/* A long poll; the handle of its answer. worker_answer() gives the answer when it is there, NULL before that. */
uint64_t worker_waits(struct cluster *c, const char *name, uint32_t capacity, uint32_t wait_ms);
const struct reply *worker_answer(struct cluster *c, const char *name, uint64_t handle);

/* Polls; ends the test unless there is exactly one task, no task, or exactly that one. */
const struct assignment *worker_takes(struct cluster *c, const char *name);
void worker_gets_nothing(struct cluster *c, const char *name);
const struct assignment *worker_takes_task(struct cluster *c, const char *name, struct task_ref ref);
/* How many it gets. */
uint32_t worker_takes_up_to(struct cluster *c, const char *name, uint32_t capacity);

/* Refused, as something that is not current any more. */
#define CHECK_STALE(refusal) CHECK(refusal_is_stale(refusal))
bool refusal_is_stale(enum refusal refusal);

struct task_report report_on(const struct assignment *a, enum task_state state);
enum refusal worker_reports(struct cluster *c, const char *name, const struct task_report *report);
enum refusal worker_succeeds(struct cluster *c, const char *name, const struct assignment *a);
enum refusal worker_fails(struct cluster *c, const char *name, const struct assignment *a, const char *message);
enum refusal worker_fails_for_good(struct cluster *c, const char *name, const struct assignment *a,
                                   const char *message);
enum refusal worker_releases(struct cluster *c, const char *name, const struct assignment *a);
enum refusal worker_starts(struct cluster *c, const char *name, const struct assignment *a);
/* The attempt failed because that map output could not be read. */
enum refusal worker_cannot_fetch(struct cluster *c, const char *name, const struct assignment *a,
                                 const struct source *source);
enum refusal worker_registers_map(struct cluster *c, const char *name, const struct assignment *a,
                                  uint32_t n_partitions);
enum refusal worker_registers_result(struct cluster *c, const char *name, const struct assignment *a, uint64_t bytes,
                                     bool is_inline);
/* Takes that map task, registers its output, succeeds. Returns the assignment. */
const struct assignment *worker_maps(struct cluster *c, const char *name, struct task_ref ref, uint32_t n_partitions);
/* Takes that task and succeeds with it. */
const struct assignment *worker_runs(struct cluster *c, const char *name, struct task_ref ref);
/* Polls and succeeds, `capacity` at a time, until nothing comes any more; how many tasks that were. */
uint64_t worker_drains_queue(struct cluster *c, const char *name, uint32_t capacity);

#endif
