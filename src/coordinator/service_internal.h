/*
 * service_internal.h - what the files of the services share.
 *
 * An exchange is one call being served. It lives in the arena of its request, together with the decoded message and
 * everything that is made for the answer. It ends with exactly one exchange_reply, exchange_fail or exchange_end, on
 * whatever thread has it by then.
 */
#ifndef CAPSTAN_COORDINATOR_SERVICE_INTERNAL_H
#define CAPSTAN_COORDINATOR_SERVICE_INTERNAL_H

#include <stdatomic.h>

#include "coordinator/auth.h"
#include "coordinator/cache.h"
#include "coordinator/clerk.h"
#include "coordinator/gate.h"
#include "coordinator/metrics.h"
#include "coordinator/patience.h"
#include "coordinator/refusals.h"
#include "coordinator/request.h"
#include "coordinator/service.h"
#include "rpc/rpc.h"
#include "wire/message.h"

struct api;
struct api_call;
struct board;
struct exchange_channels;
struct feed;
struct inbox;
struct lost_results;
struct observer;
struct places;
struct watch;

struct service {
    struct settings settings;
    char *store_url;
    char *address;
    char *warehouse;   /* NULL: none */
    struct auth *auth; /* NULL: everybody may do everything */
    struct refusals refusals;
    struct gate *gate;
    struct rpc_server *server;
    _Atomic(struct coordinator *) coordinator; /* NULL: not started yet */
    atomic_bool is_stopping;
    struct cache *cache;
    struct office *composers;           /* one clerk, who puts together what workers get */
    struct office *takers;              /* of new jobs and large reports, which must not wait behind those who read */
    struct office *readers;             /* history, results, events */
    struct office *relays;              /* rows that lie in the store, and rows as text */
    struct office *fetchers;            /* rows that lie on workers, for which a clerk may have to wait */
    struct places *places;              /* where these may do so, for each worker */
    struct office *copyists;            /* one clerk, for snapshots */
    struct patience patience;           /* that it has with those who read them */
    struct exchange_channels *channels; /* to the workers */
    struct rpc_cancel *closing;         /* ends calls to them */
    struct lost_results *lost;
    struct board *board; /* how far running attempts are */
    struct watch *watch;
    struct feed *feed;
    struct observer *observer; /* NULL: this process leads or stands by. Else it has no coordinator */
    struct api *api;           /* NULL: no HTTP */
    struct metrics metrics;
    _Atomic(struct inbox *) inbox; /* NULL: not started yet */
    atomic_size_t bytes_open;      /* of large requests that have not been answered */
};

struct exchange {
    struct service *service;
    const struct door *door; /* that the call came through */
    struct rpc_call *rpc;    /* of door_grpc; else NULL */
    struct api_call *api;    /* of door_http; else NULL */
    struct request *request;
    const struct auth_pass *pass;            /* that has let it in, */
    enum scope scope;                        /* for this */
    size_t weight;                           /* its part of the service's bytes_open; 0: it is small */
    size_t n_bytes;                          /* of its message */
    bool is_counted;                         /* at the gate, */
    bool is_holding;                         /* also as one that may hold a connection for long */
    const void *message;                     /* struct pb_... of the method's kind */
    void *more;                              /* what a handler keeps until the answer */
    bool has_rows;                           /* of FetchQueryResults: its chunks are an Arrow stream */
    const char *about;                       /* the job that a read is about; NULL: none in particular */
    int64_t as_of_mono_ms;                   /* an observer's answer is as old as this; 0: as its copy */
    void (*held)(struct exchange *exchange); /* what an observer has yet to have it served by; NULL: nothing */
};

/* Serves a message that has been decoded. On a poller thread: must not block. */
typedef void exchange_fn(struct exchange *exchange);

/*
 * A way in, and back: what the call is answered through. Both doors lead to the same handlers, with the same messages,
 * checked by the same rules. What each function owes its caller is said in rpc.h at the one that it is named after.
 */
struct door {
    void (*reply)(struct exchange *exchange, const void *message);
    void (*fail)(struct exchange *exchange, const struct error *e, const char *leader); /* `leader` may be NULL */
    void (*send)(struct exchange *exchange, const void *message, rpc_sent_fn *sent, void *context);
    void (*rest)(struct exchange *exchange);
    void (*end)(struct exchange *exchange);
    void (*on_gone)(struct exchange *exchange, rpc_gone_fn *fn, void *context);
    bool (*is_gone)(struct exchange *exchange);
};

extern const struct door door_grpc; /* door.c */
extern const struct door door_http; /* api.c */

/* What a row of SERVICE_TABLE says of its method. */
struct method_rule {
    const char *name;
    enum pb_kind kind;
    enum scope scope;
    exchange_fn *handler;
};

/* A call at one of the doors: bytes of a message, and who sends them. */
struct arrival {
    const struct door *door;
    struct rpc_call *rpc;
    struct api_call *api;
    const struct auth_pass *pass; /* that lets it in. Not NULL: that has been checked */
    const char *peer;             /* where it comes from */
    const void *bytes;
    size_t n;
    bool is_lasting; /* it holds a connection of HTTP, maybe for long */
};

/*
 * Whether whoever sends this header (NULL: none) may call the method (arrival.pass). A refusal is logged, as one of `what`.
 */
MUST_USE enum err service__admit(struct service *service, const char *authorization, enum scope scope, const char *what,
                                 const char *peer, const struct auth_pass **out_pass, struct error *e);

/* Checks what is called, and has it served. */
void service__serve(struct service *service, const struct arrival *arrival, const struct method_rule *rule);

/* Sends the exchange's request to the loop, to be answered with `answer`. */
void exchange_send(struct exchange *exchange, answer_fn *answer);

/* Ends the call with a message (struct pb_...), or an error, and the exchange with it. */
void exchange_reply(struct exchange *exchange, const void *message);
void exchange_fail(struct exchange *exchange, const struct error *e);

/* If an answer says that something went wrong, ends the call and the exchange with that. True if it did. */
bool exchange_failed(struct exchange *exchange, const struct reply *reply, enum err err);

/* Whether this process leads. If not, ends the exchange with that. */
bool exchange_needs_leader(struct exchange *exchange);

/*
 * For streams: sends a message, says that there is none for a while, ends the call and the exchange, has `fn` called when
 * the client goes. A callback's `call` is NULL if there is no rpc_call.
 */
void exchange_stream(struct exchange *exchange, const void *message, rpc_sent_fn *sent, void *context);
void exchange_rest(struct exchange *exchange);
void exchange_end(struct exchange *exchange);
void exchange_on_gone(struct exchange *exchange, rpc_gone_fn *fn, void *context);
bool exchange_is_gone(struct exchange *exchange);

/*
 * For what goes on for long: whether it may. ERR_CANCELED if the client has gone, ERR_UNAUTHENTICATED if its token does not
 * allow the call any more.
 */
MUST_USE enum err exchange_look(struct exchange *exchange, struct error *e);
MUST_USE enum err exchange_look_at_token(const struct exchange *exchange, struct error *e);

static inline struct exchange *exchange_of(const struct request *request)
{
    return request->context;
}

/*
 * X(service, method, kind of the request, the scope that a token needs for it): one function service__Method for each.
 * All calls come this way, so there is none whose scope nobody has thought of.
 */
#define SERVICE_TABLE(X)                                                                                               \
    X(ControlPlane, SubmitQuery, PB_SUBMIT_QUERY_REQUEST, SCOPE_SUBMIT)                                                \
    X(ControlPlane, SubmitTasks, PB_SUBMIT_TASKS_REQUEST, SCOPE_SUBMIT)                                                \
    X(ControlPlane, GetQueryStatus, PB_GET_QUERY_STATUS_REQUEST, SCOPE_READ)                                           \
    X(ControlPlane, CancelQuery, PB_CANCEL_QUERY_REQUEST, SCOPE_SUBMIT)                                                \
    X(ControlPlane, RetryJob, PB_RETRY_JOB_REQUEST, SCOPE_SUBMIT)                                                      \
    X(ControlPlane, FetchQueryResults, PB_FETCH_QUERY_RESULTS_REQUEST, SCOPE_READ)                                     \
    X(ControlPlane, ListJobs, PB_LIST_JOBS_REQUEST, SCOPE_READ)                                                        \
    X(ControlPlane, ListTasks, PB_LIST_TASKS_REQUEST, SCOPE_READ)                                                      \
    X(ControlPlane, WhyPending, PB_WHY_PENDING_REQUEST, SCOPE_READ)                                                    \
    X(ControlPlane, WatchEvents, PB_WATCH_EVENTS_REQUEST, SCOPE_READ)                                                  \
    X(ControlPlane, GetTask, PB_GET_TASK_REQUEST, SCOPE_WORKER)                                                        \
    X(ControlPlane, ReportTaskStatus, PB_REPORT_TASK_STATUS_REQUEST, SCOPE_WORKER)                                     \
    X(ControlPlane, RegisterQueryResults, PB_REGISTER_QUERY_RESULTS_REQUEST, SCOPE_WORKER)                             \
    X(ShuffleService, RegisterMapOutput, PB_REGISTER_MAP_OUTPUT_REQUEST, SCOPE_WORKER)                                 \
    X(HeartbeatService, RegisterWorker, PB_REGISTER_WORKER_REQUEST, SCOPE_WORKER)                                      \
    X(HeartbeatService, Heartbeat, PB_HEARTBEAT_REQUEST, SCOPE_WORKER)                                                 \
    X(HeartbeatService, DeregisterWorker, PB_DEREGISTER_WORKER_REQUEST, SCOPE_WORKER)                                  \
    X(Cluster, GetLeader, PB_GET_LEADER_REQUEST, SCOPE_NONE)                                                           \
    X(Cluster, GetOverview, PB_GET_OVERVIEW_REQUEST, SCOPE_READ)                                                       \
    X(Cluster, ListNodes, PB_LIST_NODES_REQUEST, SCOPE_READ)                                                           \
    X(Cluster, SetNode, PB_SET_NODE_REQUEST, SCOPE_ADMIN)                                                              \
    X(Cluster, GetSnapshot, PB_GET_SNAPSHOT_REQUEST, SCOPE_READ)                                                       \
    X(Cluster, PutTable, PB_PUT_TABLE_REQUEST, SCOPE_SUBMIT)                                                           \
    X(Cluster, ListTables, PB_LIST_TABLES_REQUEST, SCOPE_READ)                                                         \
    X(Cluster, DeleteTable, PB_DELETE_TABLE_REQUEST, SCOPE_SUBMIT)

#define SERVICE_DECLARE(service, method, kind, scope)                                                                  \
    exchange_fn service__##method;                                                                                     \
    extern const struct method_rule method_##method;
SERVICE_TABLE(SERVICE_DECLARE)
#undef SERVICE_DECLARE

/*
 * A question about one job, answered from the leader's memory or, for jobs that have left it, by a clerk from a core of
 * its own. `read` returns what it found, in the arena; NULL: nothing.
 */
struct job_question {
    const char *job_id;
    void *(*read)(const struct core *core, const char *job_id, struct arena *arena);
    /* Adds to it what only the leader knows of jobs in its memory, on the thread that owns the core. NULL: nothing */
    void (*add)(const struct service *service, const struct core *core, void *found);
    void (*then)(struct exchange *exchange, void *found); /* NULL: what was found is the answer */
    void *found;
};

/* Asks it, and ends the exchange with an error if there is no such job. */
void service__ask(struct exchange *exchange, const struct job_question *question);

/* The clerk's part of it: what was found is in the arena, NULL if the job has not ended. ERR_NOT_FOUND: there is none. */
MUST_USE enum err service__ask_store(struct service *service, struct clerk *clerk, struct job_question *question,
                                     struct arena *arena, struct error *e);

const char *service__new_job_id(struct arena *arena);

/*
 * Looks whether the id or the key of a new job belong to one in the store. If neither does, the request says so; if one
 * does, or the store does not answer, the loop looks for itself.
 */
void service__look_up(struct service *service, struct clerk *clerk, struct request *request);

/* The inputs of the new job's tasks will be handed out soon. */
void service__remember_inputs(struct service *service, const struct request *request);

/* Makes the request a submit of this tree, under the job id and key that its command has already. */
struct tree_submit;
void service__submit_tree(struct request *request, const struct tree_submit *tree);

/* Fills in what the tasks of a GetTask answer get as inputs, then sends it (compose.c). */
void service__compose(struct exchange *exchange, const struct reply *reply);

/* What the inputs of a tree's task are made of. */
struct task_inputs {
    const char *job_id;
    struct digest digest;
    uint32_t n_bytes;
    const struct parent_result *parents;
    uint32_t n_parents;
};

struct json_bytes {
    const void *bytes;
    size_t n;
};

/*
 * Puts them together, in the arena: from the cache or the store, with results of parents and templates filled in. If that
 * fails, `out_is_final` says whether the task can never have these inputs, or only the store did not answer.
 */
MUST_USE enum err service__fill_inputs(struct service *service, struct clerk *clerk, const struct task_inputs *made_of,
                                       struct arena *arena, struct json_bytes *out, bool *out_is_final,
                                       struct error *e);
const struct parent_result *service__copy_parents(struct arena *arena, const struct parent_result *from, uint32_t n);

/* What the cluster has for SQL at the moment. */
struct fleet {
    uint32_t slots;
    const char *engine; /* of the most slots; NULL: nobody says */
    uint32_t engine_slots;
};

struct fleet service__read_fleet(const struct core *core, struct arena *arena);

struct statement {
    const char *sql;
    const char *params_json;  /* "": none */
    const char *options_json; /* "": as configured */
    bool is_explain;
};

/* Gives the job that the request submits its one stage, which plans the statement, and that stage its inputs. */
MUST_USE enum err service__plan_first(struct service *service, struct clerk *clerk, struct request *request,
                                      const struct fleet *fleet, const struct statement *statement, struct error *e);

/* Under which digest the rows of a final task lie in the store, when they are few. */
struct digest service__result_digest(struct task_ref ref, uint32_t attempt);

/* Sends the rows of a query that has succeeded (service_rows.c). */
void service__send_rows(struct exchange *exchange);

/* Where those rows are: streams of the final tasks, in order. A job that has none, or not succeeded, has no pieces. */
struct piece;
struct result_pieces {
    struct piece *pieces;
    uint32_t n;
    uint64_t n_rows;
    bool is_remote; /* some of them lie on workers */
};

/* To be asked of a job: struct result_pieces. */
void *service__read_pieces(const struct core *core, const char *job_id, struct arena *arena);
/* The core that answered for the job may know nothing of workers: the leader's does. */
void service__read_addresses(const struct core *core, struct result_pieces *pieces, struct arena *arena);

/*
 * All rows of a job as one Arrow stream, chunk by chunk. The relay points to what it is opened with; a chunk is valid
 * until the next call; an empty one is the end. NULL: too many wait for the same worker, so the relay stands in line. Then it
 * belongs to the clerk who will call `go_on`, perhaps already does: neither it nor the context is to be touched any more.
 * To be read by a clerk of the relays, or, if pieces lie on workers, of the fetchers. ERR_UNAVAILABLE or ERR_DEADLINE: a
 * worker did not answer; the next call tries it again, at the same byte.
 */
struct relay;
struct relay *relay_open(struct service *service, const char *job_id, const struct result_pieces *pieces,
                         clerk_fn *go_on, void *context);
MUST_USE enum err relay_next(struct relay *relay, struct clerk *clerk, const struct buf **out_chunk, struct error *e);
bool relay_may_go_on(const struct relay *relay); /* after an error: relay_next goes on at the same byte */
void relay_send(struct relay *relay);            /* has a clerk call `go_on` when it is its turn again */
void relay_close(struct relay *relay);           /* NULL ok; by a clerk, or after a chunk and before the next call */

/* Tasks of trees that run as jobs (child.c). Both on the loop thread. */
void child_started(void *context, const struct child_start *start);
void child_ended(void *context, const struct child_end *end);

/* Queries whose rows were asked for lately and are gone: these may be run again. */
struct lost_results *lost_results_new(void);
void lost_results_free(struct lost_results *lost); /* NULL ok */
void lost_results_add(struct lost_results *lost, const char *job_id);
bool lost_results_has(struct lost_results *lost, const char *job_id);

/* The event streams (watch.c). */
struct watch *watch_new(struct service *service);
void watch_durable(struct watch *watch, const struct row *rows); /* on the loop thread */
void watch_everything(struct watch *watch);                      /* there may be something new for all of them */
void watch_demoted(struct watch *watch);                         /* ends those that follow */
void watch_tokens(struct watch *watch); /* ends those whose token does not allow them any more */
void watch_close(struct watch *watch);  /* ends all streams */
void watch_free(struct watch *watch);   /* NULL ok */

/* Logs what is worth a person's attention (journal.c). On the loop thread. */
void journal_durable(const struct row *rows);

/* The inbox (inbox.c). */
struct inbox *inbox_start(struct service *service);
void inbox_look(struct inbox *inbox); /* soon, without waiting to be woken */
void inbox_stop(struct inbox *inbox); /* while the loop still answers */
void inbox_free(struct inbox *inbox); /* when it has been stopped, and nobody calls inbox_look any more; NULL ok */

#endif
